package plan

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/rxsteer/rxsteer/internal/cpuset"
	"github.com/rxsteer/rxsteer/internal/host/knob"
	"github.com/rxsteer/rxsteer/internal/host/nic"
	"github.com/rxsteer/rxsteer/steer/diagnose"
)

// vectors gives queues a CPU of their own: those that share one (RX102; the first stays), are far from the
// device (RX103) or where they must not be (RX107).
func (m *maker) vectors(f diagnose.Finding) {
	dev := f.Site.Device
	if !m.in.Policy.allows(knob.IRQAffinity) {
		m.p.reason("%s of %s: the policy does not allow %s", f.ID, dev, knob.IRQAffinity)
		return
	}
	i := slices.IndexFunc(m.in.NICs, func(n nic.NIC) bool { return n.Name == dev })
	if i < 0 {
		return
	}
	irqs := map[int]int{} // queue → vector
	for _, q := range m.in.NICs[i].Queues {
		if q.IRQ < 0 || !slices.Contains(f.Site.Queues, q.RX) {
			continue
		}
		if q.KnownBy == nic.ByOrder || q.KnownBy == nic.Unknown {
			m.p.reason("%s of %s: which vector serves rx-%d is a guess (%q): no vector is moved on a guess", f.ID, dev, q.RX, q.KnownBy)
			return
		}
		irqs[q.RX] = q.IRQ
	}
	moving := f.Site.Queues
	if f.ID == "RX102" && f.Subject == dev && len(moving) > 0 {
		moving = moving[1:] // the CPU keeps its first vector
	}
	candidates, where := m.candidates(dev, nil)
	slices.SortStableFunc(candidates, func(a, b int) int { return cmp.Compare(m.background[a], m.background[b]) })
	candidates = slices.DeleteFunc(candidates, func(c int) bool { return c == f.Site.CPU || m.background[c] > 0.5 })
	if len(candidates) == 0 {
		m.p.reason("%s of %s: no other CPU is %s and has room", f.ID, dev, where)
		return
	}
	n := 0
	for _, q := range moving {
		irq, ok := irqs[q]
		if !ok {
			m.p.reason("%s of %s: the vector of rx-%d is not known", f.ID, dev, q)
			continue
		}
		ref := knob.Ref{Knob: knob.IRQAffinity, Target: knob.On(dev, "irq-%d", irq)}
		var managed bool
		if m.in.Snapshot.Get(knob.Ref{Knob: knob.IRQManaged, Target: ref.Target}).Decode(&managed) == nil && managed {
			m.p.reason("%s of %s: the kernel manages vector %d, nobody can move it", f.ID, dev, irq)
			continue
		}
		if slices.ContainsFunc(m.p.Changes, func(c Change) bool { return c.Ref() == ref }) {
			continue // another finding moves it already
		}
		cpu := candidates[n%len(candidates)]
		from, to := m.in.Snapshot.Get(ref), knob.Set(cpuset.Of(cpu))
		if !from.Known() || from.Equal(to) {
			continue
		}
		n++
		why := fmt.Sprintf("rx-%d shares cpu %d with another busy queue; cpu %d is %s and has room", q, f.Site.CPU, cpu, where)
		if f.ID != "RX102" {
			why = fmt.Sprintf("%s; cpu %d is %s and has room", f.Summary, cpu, where)
			if n > 1 {
				why = fmt.Sprintf("as for the other queues of %s; cpu %d is %s and has room", dev, cpu, where)
			}
		}
		m.add(Change{Knob: ref.Knob, Target: ref.Target, From: from, To: to, Findings: []diagnose.ID{f.ID}, Risk: Reorder, Why: why,
			Expect: fmt.Sprintf("polls of rx-%d run on cpu %d%s", q, cpu, m.takes(dev, q))})
	}
}

// takes is how much of a CPU a queue's polls are, "" where that is not known.
func (m *maker) takes(dev string, queue int) string {
	if n := m.nic(dev); n != nil {
		if on, ok := m.polled(*n)[queue]; ok {
			return fmt.Sprintf(" and take their %s of a CPU there", percent(sum(on)))
		}
	}
	return ""
}

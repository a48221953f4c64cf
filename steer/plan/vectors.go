package plan

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/rxsteer/rxsteer/internal/cpuset"
	"github.com/rxsteer/rxsteer/internal/host/knob"
	"github.com/rxsteer/rxsteer/internal/host/nic"
	"github.com/rxsteer/rxsteer/steer/balance"
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
	r := m.rooms(m.in.NICs[i], f, moving)
	moving = slices.Clone(moving)
	slices.SortStableFunc(moving, func(a, b int) int { return -cmp.Compare(r.weight[a], r.weight[b]) })
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
		cpu, ok := r.best(q)
		if !ok {
			m.p.reason("%s of %s: no other CPU is %s and has room", f.ID, dev, r.where)
			continue
		}
		from, to := m.in.Snapshot.Get(ref), knob.Set(cpuset.Of(cpu))
		if !from.Known() {
			continue
		}
		if from.Equal(to) { // asked for already
			r.move(q, cpu)
			continue
		}
		n++
		why := fmt.Sprintf("rx-%d shares cpu %d with another busy queue; cpu %d is %s and has room", q, f.Site.CPU, cpu, r.where)
		if f.ID != "RX102" {
			why = fmt.Sprintf("%s; cpu %d is %s and has room", f.Summary, cpu, r.where)
			if n > 1 {
				why = fmt.Sprintf("as for the other queues of %s; cpu %d is %s and has room", dev, cpu, r.where)
			}
		}
		if m.add(Change{Knob: ref.Knob, Target: ref.Target, From: from, To: to, Findings: []diagnose.ID{f.ID}, Risk: Reorder, Why: why,
			Expect: fmt.Sprintf("polls of rx-%d run on cpu %d%s", q, cpu, m.takes(dev, q))}) {
			r.move(q, cpu)
		}
	}
}

// rooms is the CPUs that vectors of a device may go to, and what is on each while they are dealt.
type rooms struct {
	cpus   []int // ascending
	where  string
	core   map[int]int     // of each CPU
	load   map[int]float64 // busy part of each CPU
	queues map[int]int     // busy queues on each core, of all devices
	weight map[int]float64 // of each moving queue, in parts of a CPU
	at     map[int]int     // CPU of each moving queue, balance.Unused not known
	from   int             // the CPU they crowd on, balance.Unused where that is not why they move
	most   float64         // no CPU is filled beyond this
}

func (m *maker) rooms(n nic.NIC, f diagnose.Finding, moving []int) *rooms {
	r := &rooms{core: map[int]int{}, load: maps.Clone(m.background), queues: map[int]int{}, weight: map[int]float64{}, at: map[int]int{}, from: balance.Unused, most: full}
	for _, c := range m.in.Topology.CPUs {
		r.core[c.ID] = c.Core
	}
	r.cpus, r.where = m.candidates(n.Name, nil)
	if !f.Site.Near.IsEmpty() {
		r.cpus = slices.DeleteFunc(r.cpus, func(c int) bool { return !f.Site.Near.Contains(c) })
		r.where += ", shares the readers' cache"
	}
	if f.ID == "RX102" {
		r.from = f.Site.CPU
		r.cpus = slices.DeleteFunc(r.cpus, func(c int) bool { return c == r.from })
		if r.load[r.from] == 0 { // a table of interrupts alone tells no times
			r.load[r.from] = 1
		}
		r.most = min(full, r.load[r.from]) // a cure that heats the hottest is none
	}
	here := map[int]int{} // the finding's queues on each CPU
	for _, x := range m.in.NICs {
		on := m.polled(x)
		for _, q := range x.Queues {
			c := m.cpuOf(x.Name, q, on[q.RX])
			if c != balance.Unused && x.Name == n.Name && slices.Contains(f.Site.Queues, q.RX) {
				here[c]++
			}
			if x.Name == n.Name && slices.Contains(moving, q.RX) {
				r.at[q.RX], r.weight[q.RX] = c, sum(on[q.RX])
			} else if c != balance.Unused && (len(on) == 0 || sum(on[q.RX]) > 0) {
				r.queues[r.core[c]]++
			}
		}
	}
	for _, q := range moving {
		if r.from != balance.Unused {
			r.at[q] = r.from
			here[r.from] = len(f.Site.Queues)
		}
		if c := r.at[q]; r.weight[q] == 0 && here[c] > 0 { // not known: an even part
			r.weight[q] = r.load[c] / float64(here[c])
		}
	}
	return r
}

// best is the CPU for a queue: one whose core has no busy queue yet before one that has, then the least loaded.
// A core is shared only where that is better than to stay.
func (r *rooms) best(q int) (int, bool) {
	best, ok := 0, false
	after := func(c int) float64 {
		if c == r.at[q] {
			return r.load[c]
		}
		return r.load[c] + r.weight[q]
	}
	order := func(a, b int) int {
		x, y := r.queues[r.core[a]], r.queues[r.core[b]]
		return cmp.Or(cmp.Compare(min(x, 1), min(y, 1)), cmp.Compare(after(a), after(b)), cmp.Compare(x, y))
	}
	for _, c := range r.cpus {
		if after(c) > r.most || r.from != balance.Unused && r.queues[r.core[c]] > 0 && after(c)+fewer >= r.load[r.from] {
			continue
		}
		if !ok || order(c, best) < 0 {
			best, ok = c, true
		}
	}
	return best, ok
}

func (r *rooms) move(q, to int) {
	if from := r.at[q]; from != balance.Unused {
		r.load[from] = max(0, r.load[from]-r.weight[q])
	}
	r.load[to] += r.weight[q]
	r.queues[r.core[to]]++
	r.at[q] = to
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

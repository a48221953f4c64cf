package plan

import (
	"fmt"
	"maps"
	"slices"

	"github.com/rxsteer/rxsteer/internal/cpuset"
	"github.com/rxsteer/rxsteer/internal/host/knob"
	"github.com/rxsteer/rxsteer/internal/host/nic"
	"github.com/rxsteer/rxsteer/steer/diagnose"
)

// table levels an uneven indirection table (RX201) over the queues it names already: the buckets a queue has too
// many of go to those that have too few, the others stay.
func (m *maker) table(f diagnose.Finding) {
	dev := f.Site.Device
	ref := knob.Ref{Knob: knob.RSSTable, Target: knob.Target(dev)}
	if !m.in.Policy.allows(knob.RSSTable) {
		m.p.reason("%s of %s: the policy does not allow %s", f.ID, dev, knob.RSSTable)
		return
	}
	from := m.in.Snapshot.Get(ref)
	var was []int
	if from.Decode(&was) != nil || len(was) == 0 {
		m.p.reason("%s is %s (%s): left alone", ref, from, from.Reason())
		return
	}
	to := level(was)
	moved := 0
	for i := range was {
		if was[i] != to[i] {
			moved++
		}
	}
	if moved == 0 {
		m.p.reason("%s of %s: its table already is as even as its size allows", f.ID, dev)
		return
	}
	m.add(Change{Knob: ref.Knob, Target: ref.Target, From: from, To: knob.List(to), Findings: []diagnose.ID{f.ID}, Risk: Reorder,
		Why:    fmt.Sprintf("%s; %d of %d buckets move", f.Summary, moved, len(was)),
		Expect: "packets per queue follow the table; the hottest CPU cools"})
}

// level is a table with the same queues in even numbers, and as few buckets moved as that takes.
func level(was []int) []int {
	count := map[int]int{}
	for _, q := range was {
		count[q]++
	}
	queues := slices.Sorted(maps.Keys(count))
	// Queues with most buckets keep the one more that some must have.
	slices.SortStableFunc(queues, func(a, b int) int { return count[b] - count[a] })
	quota := map[int]int{}
	for i, q := range queues {
		quota[q] = len(was) / len(queues)
		if i < len(was)%len(queues) {
			quota[q]++
		}
	}
	to := slices.Clone(was)
	kept := map[int]int{}
	var free []int // buckets over quota
	for i, q := range was {
		if kept[q] == quota[q] {
			free = append(free, i)
			continue
		}
		kept[q]++
	}
	slices.Sort(queues)
	for _, i := range free {
		best := -1
		for _, q := range queues {
			if left := quota[q] - kept[q]; left > 0 && (best < 0 || left > quota[best]-kept[best]) {
				best = q
			}
		}
		to[i] = best
		kept[best]++
	}
	return to
}

// rpsOff takes RPS away where it costs more than it gives (RX302).
func (m *maker) rpsOff(f diagnose.Finding) {
	if !m.in.Policy.allows(knob.RPSCPUs) {
		m.p.reason("%s of %s: the policy does not allow %s", f.ID, f.Site.Device, knob.RPSCPUs)
		return
	}
	off := knob.Set(cpuset.Set{})
	for _, q := range f.Site.Queues {
		ref := knob.Ref{Knob: knob.RPSCPUs, Target: knob.On(f.Site.Device, "rx-%d", q)}
		from := m.in.Snapshot.Get(ref)
		if !from.Known() || from.Equal(off) {
			continue
		}
		m.add(Change{Knob: ref.Knob, Target: ref.Target, From: from, To: off, Findings: []diagnose.ID{f.ID}, Risk: Reorder, Why: f.Summary,
			Expect: "no work between CPUs, receive time per packet falls"})
	}
}

// crossed maps transmit queues to the CPUs of their vectors (RX305).
func (m *maker) crossed(f diagnose.Finding) {
	dev := f.Site.Device
	i := slices.IndexFunc(m.in.NICs, func(n nic.NIC) bool { return n.Name == dev })
	if i < 0 || !m.in.Policy.allows(knob.XPSCPUs) || len(f.Site.Queues) == 0 {
		m.advise(f)
		return
	}
	for _, q := range m.in.NICs[i].Queues {
		if q.TX < 0 || q.IRQ < 0 || !slices.Contains(f.Site.Queues, q.TX) {
			continue
		}
		at := m.in.Snapshot.Get(knob.Ref{Knob: knob.IRQEffective, Target: knob.On(dev, "irq-%d", q.IRQ)})
		ref := knob.Ref{Knob: knob.XPSCPUs, Target: knob.On(dev, "tx-%d", q.TX)}
		from := m.in.Snapshot.Get(ref)
		if !at.Known() || !from.Known() || from.Equal(at) {
			continue
		}
		m.add(Change{Knob: ref.Knob, Target: ref.Target, From: from, To: at, Findings: []diagnose.ID{f.ID}, Risk: NoRisk, Why: f.Summary,
			Expect: "transmit completions on the CPUs that send"})
	}
}

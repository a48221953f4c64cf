package plan

import (
	"cmp"
	"fmt"
	"maps"
	"math/bits"
	"slices"

	"github.com/rxsteer/rxsteer/internal/cpuset"
	"github.com/rxsteer/rxsteer/internal/host/knob"
	"github.com/rxsteer/rxsteer/internal/host/nic"
	"github.com/rxsteer/rxsteer/steer/diagnose"
)

// placement is a choice of CPUs, the predicted load of the hottest of them, and of the hottest CPU before and after:
// a CPU that hands work over keeps the rest of its own.
type placement struct {
	cpus      cpuset.Set
	hottest   float64
	now, then float64
}

// place chooses the CPUs over which movable work, spread evenly by flow hash,
// heats the hottest one least; demand scales it to what was offered.
func (m *maker) place(candidates []int, movable map[int]float64, demand float64) placement {
	work := sum(movable) * max(demand, 1)
	rest := maps.Clone(m.background)
	var now, kept float64
	for c, w := range movable {
		rest[c] = max(0, rest[c]-w)
		kept = max(kept, rest[c])
		now = max(now, rest[c]+w*max(demand, 1))
	}
	slices.SortStableFunc(candidates, func(a, b int) int { return cmp.Compare(rest[a], rest[b]) })
	var floor float64 // CPUs that are as hot as they are whatever we choose
	for _, c := range candidates {
		floor = max(floor, rest[c])
	}
	at := func(k int) float64 {
		h := floor
		for _, c := range candidates[:k] {
			h = max(h, rest[c]+work/float64(k))
		}
		return h
	}
	if len(candidates) == 0 {
		return placement{}
	}
	best := at(1)
	for k := 2; k <= len(candidates); k++ {
		best = min(best, at(k))
	}
	for k := 1; k <= len(candidates); k++ {
		if h := at(k); h <= max(best+fewer, headroom[m.p.Goal]) {
			return placement{cpus: cpuset.Of(candidates[:k]...), hottest: h, now: now, then: max(h, kept)}
		}
	}
	return placement{}
}

// usable is the CPUs on which receive work may be placed at all.
func (m *maker) usable() cpuset.Set {
	usable := diagnose.Usable(m.in.Topology)
	if !m.in.Policy.CPUs.IsEmpty() {
		usable = usable.Intersect(m.in.Policy.CPUs)
	}
	return usable
}

// placeable is the CPUs on which receive work of a device may be placed: its own node's where it has one.
func (m *maker) placeable(device string) (cpuset.Set, string) {
	t := m.in.Topology
	usable, where := m.usable(), "usable"
	for _, n := range m.in.NICs {
		if n.Name != device || n.Kind != nic.Physical || n.Node < 0 {
			continue
		}
		var local cpuset.Set
		for _, c := range t.CPUs {
			if c.Node == n.Node {
				local = local.Union(cpuset.Of(c.ID))
			}
		}
		if local.Intersects(usable) {
			usable, where = usable.Intersect(local), fmt.Sprintf("usable and on node %d", n.Node)
		}
	}
	return usable, where
}

// candidates is one CPU per physical core on which receive work of a device may be
// placed, its own node's where it has one; of a core that polls the device only
// the polling CPU itself.
func (m *maker) candidates(device string, polls []int) ([]int, string) {
	t := m.in.Topology
	usable, where := m.placeable(device)
	core := map[int]int{}
	for _, c := range t.CPUs {
		if !usable.Contains(c.ID) {
			continue
		}
		o, ok := core[c.Core]
		switch {
		case !ok, slices.Contains(polls, c.ID):
			core[c.Core] = c.ID
		case slices.Contains(polls, o):
		case m.background[c.ID] < m.background[o]:
			core[c.Core] = c.ID
		}
	}
	for _, c := range t.CPUs { // a core whose polling thread may not be used is not used at all
		if slices.Contains(polls, c.ID) && !usable.Contains(c.ID) {
			delete(core, c.Core)
		}
	}
	out := slices.Collect(maps.Values(core))
	slices.Sort(out)
	return out, where
}

// rps sets the RPS masks a finding asks for.
func (m *maker) rps(f diagnose.Finding) {
	dev := f.Site.Device
	if !m.in.Policy.allows(knob.RPSCPUs) {
		m.p.reason("%s of %s: the policy does not allow %s", f.ID, dev, knob.RPSCPUs)
		return
	}
	if len(f.Site.Movable) == 0 || len(f.Site.Queues) == 0 {
		m.p.reason("%s of %s: how much of the load RPS could move is not known", f.ID, dev)
		return
	}
	candidates, where := m.candidates(dev, f.Site.PollCPUs)
	if len(candidates) == 0 {
		m.p.reason("%s of %s: no CPU is %s", f.ID, dev, where)
		return
	}
	// The polling CPU already does the driver's part, and how large that is is a guess: it is
	// named only where the others cannot carry the rest.
	others := slices.DeleteFunc(slices.Clone(candidates), func(c int) bool { return slices.Contains(f.Site.PollCPUs, c) })
	pl := m.place(others, f.Site.Movable, f.Site.Demand)
	if pl.cpus.IsEmpty() || pl.hottest > full {
		pl = m.place(candidates, f.Site.Movable, f.Site.Demand)
	}
	wrong := f.ID == "RX303" && f.Site.CPU < 0 // the mask is wrong whatever the load
	if pl.now-pl.then < minGain && !wrong {
		m.p.reason("%s of %s: no choice of CPUs lowers the hottest one's load by %d points (now %.0f %%, at best %.0f %%)", f.ID, dev, int(minGain*100), 100*pl.now, 100*pl.then)
		return
	}
	to := knob.Set(pl.cpus)
	n := 0
	for _, q := range f.Site.Queues {
		ref := knob.Ref{Knob: knob.RPSCPUs, Target: knob.On(dev, "rx-%d", q)}
		from := m.in.Snapshot.Get(ref)
		if !from.Known() {
			m.p.reason("%s is %s (%s): left alone", ref, from, from.Reason())
			continue
		}
		if from.Equal(to) {
			continue
		}
		why := fmt.Sprintf("%s; cpus %s are %s, one per core, with the least other work", f.Summary, pl.cpus, where)
		if n > 0 {
			why = fmt.Sprintf("one mask for all queues of %s that carry the load", dev)
		}
		n++
		m.add(Change{Knob: ref.Knob, Target: ref.Target, From: from, To: to, Findings: []diagnose.ID{f.ID}, Risk: Reorder, Why: why,
			Expect: fmt.Sprintf("the hottest CPU is asked for %.0f %% of its time now and for about %.0f %% then", 100*pl.now, 100*pl.then)})
	}
	if n == 0 {
		m.p.reason("%s of %s: its masks already are the best choice (%s)", f.ID, dev, pl.cpus)
		return
	}
	for c, w := range f.Site.Movable {
		m.background[c] = max(0, m.background[c]-w)
	}
	for c := range pl.cpus.All() {
		m.background[c] += sum(f.Site.Movable) * max(f.Site.Demand, 1) / float64(pl.cpus.Len())
	}
	m.rfs(f)
	m.xps(f, pl.cpus)
}

// xps gives each CPU of a new RPS mask a transmit queue of its own, where the device answers from those
// CPUs and nobody mapped its transmit queues. Virtual devices are left alone: the transmit queue of a
// veth chooses the peer's receive queue.
func (m *maker) xps(f diagnose.Finding, cpus cpuset.Set) {
	dev := f.Site.Device
	i := slices.IndexFunc(m.in.NICs, func(n nic.NIC) bool { return n.Name == dev })
	if i < 0 || m.in.NICs[i].Kind != nic.Physical || f.Site.Sends < sends || !m.in.Policy.allows(knob.XPSCPUs) {
		return
	}
	var queues []int
	for _, q := range m.in.NICs[i].Queues {
		if q.TX >= 0 {
			queues = append(queues, q.TX)
		}
	}
	if len(queues) < 2 {
		return
	}
	slices.Sort(queues)
	none := knob.Set(cpuset.Set{})
	for _, q := range queues {
		if !m.in.Snapshot.Get(knob.Ref{Knob: knob.XPSCPUs, Target: knob.On(dev, "tx-%d", q)}).Equal(none) {
			return // mapped by the driver or its owner, or not known
		}
	}
	share := make([]cpuset.Set, len(queues))
	n := 0
	for c := range cpus.All() {
		share[n%len(queues)] = share[n%len(queues)].Union(cpuset.Of(c))
		n++
	}
	for j, q := range queues {
		if share[j].IsEmpty() {
			continue
		}
		m.add(Change{Knob: knob.XPSCPUs, Target: knob.On(dev, "tx-%d", q), From: none, To: knob.Set(share[j]), Findings: []diagnose.ID{f.ID}, Risk: NoRisk,
			Why:    fmt.Sprintf("%s sends %.0f packets/s, from now on also from cpus %s: a transmit queue each keeps them off each other's locks", dev, f.Site.Sends, cpus),
			Expect: "transmit queues used by one CPU each"})
	}
}

// Bounds of the RFS table: scaling.rst suggests 32768 for a moderately loaded
// server; the kernel refuses above 2^29 (rps_sock_flow_sysctl in
// net/core/sysctl_net_core.c).
const (
	defaultFlows = 32768
	maxFlows     = 1 << 20
)

// rfs makes RFS follow RPS: where the host already uses RFS but the queue has no table
// of its own, or where long flows with pinned readers are known.
func (m *maker) rfs(f diagnose.Finding) {
	dev := f.Site.Device
	global := knob.Ref{Knob: knob.RPSSockFlowEntries, Target: knob.Host}
	was := m.in.Snapshot.Get(global)
	var entries int64
	if !was.Known() || was.Decode(&entries) != nil {
		return
	}
	want := entries
	if m.in.Policy.LongFlows {
		n := defaultFlows
		if m.in.Policy.Flows > 0 {
			n = min(m.in.Policy.Flows, maxFlows)
		}
		want = max(entries, int64(nextPow2(n)))
	}
	if want == 0 {
		m.p.reason("RFS left off: nothing shows long flows with pinned readers, without which it only costs")
		return
	}
	if !m.in.Policy.allows(knob.RPSFlowCnt) || want != entries && !m.in.Policy.allows(knob.RPSSockFlowEntries) {
		m.p.reason("RFS left alone: the policy does not allow it")
		return
	}
	per := knob.Int(int64(nextPow2(int(want) / max(len(f.Site.Queues), 1))))
	for _, q := range f.Site.Queues {
		ref := knob.Ref{Knob: knob.RPSFlowCnt, Target: knob.On(dev, "rx-%d", q)}
		from := m.in.Snapshot.Get(ref)
		var n int64
		if !from.Known() || from.Decode(&n) != nil || n > 0 && want == entries {
			continue
		}
		m.add(Change{Knob: ref.Knob, Target: ref.Target, From: from, To: per, Findings: []diagnose.ID{f.ID}, Risk: NoRisk,
			Why:    fmt.Sprintf("RFS is in use with %d entries: each queue under RPS needs its share of the flow table, or its flows do not follow their readers", want),
			Expect: "protocol work moves to the readers' CPUs"})
	}
	if want != entries {
		m.add(Change{Knob: global.Knob, Target: global.Target, From: was, To: knob.Int(want), Findings: []diagnose.ID{f.ID}, Risk: NoRisk,
			Why:    "long flows with pinned readers: RFS moves protocol work to the readers' CPUs",
			Expect: "protocol work moves to the readers' CPUs"})
	}
}

func nextPow2(n int) int {
	if n <= 1 {
		return 1
	}
	return 1 << bits.Len(uint(n-1))
}

// rpsOff takes RPS away where it costs more than it gives (RX302).
func (m *maker) rpsOff(f diagnose.Finding) {
	if !m.in.Policy.allows(knob.RPSCPUs) {
		m.p.reason("%s of %s: the policy does not allow %s", f.ID, f.Site.Device, knob.RPSCPUs)
		return
	}
	off := knob.Set(cpuset.Set{})
	expect := "no work between CPUs, receive time per packet falls"
	if w := sum(f.Site.Movable); w > 0 {
		expect += fmt.Sprintf(": packets handed over take %s of a CPU now", percent(w))
	}
	for _, q := range f.Site.Queues {
		ref := knob.Ref{Knob: knob.RPSCPUs, Target: knob.On(f.Site.Device, "rx-%d", q)}
		from := m.in.Snapshot.Get(ref)
		if !from.Known() || from.Equal(off) {
			continue
		}
		m.add(Change{Knob: ref.Knob, Target: ref.Target, From: from, To: off, Findings: []diagnose.ID{f.ID}, Risk: Reorder, Why: f.Summary,
			Expect: expect})
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

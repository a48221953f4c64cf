package plan

import (
	"context"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/rxsteer/rxsteer/collector"
	"github.com/rxsteer/rxsteer/internal/cpuset"
	"github.com/rxsteer/rxsteer/internal/host/knob"
	"github.com/rxsteer/rxsteer/internal/host/nic"
	"github.com/rxsteer/rxsteer/internal/host/topo"
	"github.com/rxsteer/rxsteer/steer/balance"
	"github.com/rxsteer/rxsteer/steer/diagnose"
)

const (
	// slack is how far above the best possible a hottest CPU is good enough: up to there fewer
	// buckets are moved. Loads are not known better than this.
	slack = 0.03
	// coolest is how much the hottest CPU has to gain, in parts of what it does, for buckets to be moved.
	coolest = 0.05
	// short is the load of a CPU, all its work counted, from which it is short of time.
	short = 0.85
	// agrees is the part of the packets that must have come to the queue the table names for their bucket, for
	// the loads of buckets to be believed.
	agrees = 0.8
	// trusted is how much of the differences between buckets must be more than chance for nothing to be said of it.
	trusted = 0.9
	// unplaced is where the IDs of CPUs begin that stand for those not known.
	unplaced = 1 << 20
	// solveFor bounds the search; its budget of steps ends it long before.
	solveFor = time.Second
)

// steered is what the optimiser has to know of an interface.
type steered struct {
	dev     string
	ids     []diagnose.ID // findings served
	why     string
	from    knob.Value
	was     []int     // the table as it is
	table   []int     // the same with every bucket on a queue that is there
	cpus    []int     // queue → CPU, balance.Unused
	load    []float64 // queue → parts of a CPU's time
	buckets []float64
	known   string      // how the loads of buckets are known, as a sentence's end
	counted bool        // they were measured
	irqs    map[int]int // queue → vector that may move, nil none
}

// tables fits indirection tables to what buckets carry (RX201, RX202, RX205), all devices at once
// for they may share CPUs, and their vectors with them where a finding wants those moved too (RX102).
func (m *maker) tables(findings []diagnose.Finding) {
	var all []*steered
	for _, f := range findings {
		i := slices.IndexFunc(all, func(s *steered) bool { return s.dev == f.Site.Device })
		if i >= 0 {
			all[i].ids = append(all[i].ids, f.ID)
			continue
		}
		s, why := m.steered(f.Site.Device)
		if s == nil {
			m.p.reason("%s of %s: %s", f.ID, f.Site.Device, why)
			if f.ID == "RX202" || f.ID == "RX205" {
				m.advise(f)
			}
			continue
		}
		s.ids, s.why = []diagnose.ID{f.ID}, f.Summary
		all = append(all, s)
	}
	all = slices.DeleteFunc(all, func(s *steered) bool {
		if slices.Contains(s.ids, "RX205") && m.part(s) {
			return true
		}
		if !s.counted && !slices.ContainsFunc(s.ids, func(id diagnose.ID) bool { return id != "RX205" }) {
			m.p.reason("RX205 of %s: which bucket the big flow is in was not measured, so no bucket is moved on its account", s.dev)
			m.alone(s, -1, 0)
			return true
		}
		return false
	})
	if len(all) > 0 {
		m.solve(all)
	}
}

// steered gathers what is known of a device, or says why its table cannot be fitted.
func (m *maker) steered(dev string) (*steered, string) {
	s := &steered{dev: dev, from: m.in.Snapshot.Get(knob.Ref{Knob: knob.RSSTable, Target: knob.Target(dev)})}
	switch {
	case m.rebuilt[dev]:
		return nil, "its queues are rebuilt by this plan; plan again after it"
	case !m.in.Policy.allows(knob.RSSTable):
		return nil, fmt.Sprintf("the policy does not allow %s", knob.RSSTable)
	case s.from.Decode(&s.was) != nil || len(s.was) == 0:
		return nil, fmt.Sprintf("its %s is %s (%s): left alone", knob.RSSTable, s.from, s.from.Reason())
	case m.in.Typed && !knob.Typable(s.from):
		return nil, "ethtool cannot type the table that is set, so that a script could not put it back: rxsteer apply can"
	}
	n := m.nic(dev)
	if n == nil {
		return nil, "its queues are not known"
	}
	queues := 0
	for _, q := range n.Queues {
		queues = max(queues, q.RX+1)
	}
	owned := m.owned(*n)
	limit := queues
	if f, ok := nic.Has(n.Driver, nic.TableLimit); ok && f.N < queues {
		limit = f.N
		m.p.reason("%s: its table can name %d of %d queues: %s", dev, limit, queues, f.Text)
	}
	s.cpus, s.load = make([]int, queues), make([]float64, queues)
	for q := range s.cpus {
		s.cpus[q] = balance.Unused
	}
	on := m.polled(*n)
	for _, q := range n.Queues {
		if q.RX < 0 || q.RX >= limit || q.XSK || owned.Contains(q.RX) {
			continue
		}
		c := m.cpuOf(dev, q, on[q.RX])
		if c != balance.Unused && !m.usable().Contains(c) {
			m.p.reason("%s: rx-%d is handled on cpu %d, where no receive work is to be placed: its buckets are left alone", dev, q.RX, c)
			continue
		}
		s.cpus[q.RX] = c
		s.load[q.RX] = sum(on[q.RX])
	}
	if !slices.ContainsFunc(s.cpus, func(c int) bool { return c != balance.Unused }) {
		// Not known (pasted texts may not tell): as if each queue had a CPU of its own.
		for _, q := range n.Queues {
			if q.RX >= 0 && q.RX < limit && !q.XSK && !owned.Contains(q.RX) {
				s.cpus[q.RX] = unplaced + q.RX
			}
		}
		if !slices.ContainsFunc(s.cpus, func(c int) bool { return c != balance.Unused }) {
			return nil, "all its queues belong to somebody"
		}
		m.p.reason("%s: on which CPUs its queues are handled is not known: each is taken to have one of its own", dev)
	}
	// Buckets of queues that are not there go to those that have fewest.
	s.table = slices.Clone(s.was)
	count := make([]int, queues)
	for _, q := range s.table {
		if q >= 0 && q < queues {
			count[q]++
		}
	}
	for b, q := range s.table {
		if q >= 0 && q < queues {
			continue
		}
		best := -1
		for q, c := range s.cpus {
			if c != balance.Unused && (best < 0 || count[q] < count[best]) {
				best = q
			}
		}
		s.table[b] = best
		count[best]++
	}
	m.loads(s, count)
	return s, ""
}

// loads fills the loads of buckets: measured, or the queues' spread evenly.
func (m *maker) loads(s *steered, count []int) {
	s.buckets = make([]float64, len(s.table))
	total := 0.0
	for _, l := range s.load {
		total += l
	}
	if m.rehashed[s.dev] {
		for b := range s.buckets {
			s.buckets[b] = total / float64(len(s.buckets))
		}
		s.known = "the hash changes, and all buckets are taken as alike"
		return
	}
	if d := m.buckets(s.dev); d != nil && len(d.Packets) == len(s.table) && d.Hash != collector.HashEstimated && float64(d.Agreed) >= agrees*float64(d.Compared) {
		s.counted = true
		// A packet is taken to cost the same in every queue: what one costs less in a busy queue now comes of its
		// batches, which follow the load when buckets move.
		if total == 0 {
			total = 1 // no receive time was measured: parts of all
		}
		shares, trust := d.Shares()
		for b, share := range shares {
			s.buckets[b] = share * total
		}
		s.known = fmt.Sprintf("the load of each bucket was measured (%d packets, %s)", d.Seen, map[string]string{collector.HashNIC: "the NIC's own hash", collector.HashExact: "hashed with the NIC's key"}[d.Hash])
		if trust < trusted {
			s.known += fmt.Sprintf("; so few tell little: %.0f %% of what they differ is taken for chance", 100*(1-trust))
		}
		return
	}
	for b, q := range s.table {
		if count[q] > 0 {
			s.buckets[b] = s.load[q] / float64(count[q])
		}
	}
	s.known = "which bucket carries how much was not measured: each queue's load is taken as even over its buckets"
	if total == 0 {
		for b := range s.buckets {
			s.buckets[b] = 1 / float64(len(s.buckets))
		}
		s.known = "what queues and buckets carry was not measured: all are taken as alike"
	}
}

func (m *maker) nic(dev string) *nic.NIC {
	if i := slices.IndexFunc(m.in.NICs, func(n nic.NIC) bool { return n.Name == dev }); i >= 0 {
		return &m.in.NICs[i]
	}
	return nil
}

func (m *maker) buckets(dev string) *collector.DeviceBuckets {
	if m.in.Sample == nil {
		return nil
	}
	for i, d := range m.in.Sample.Buckets {
		if d.Device == dev && d.Seen > 0 {
			return &m.in.Sample.Buckets[i]
		}
	}
	return nil
}

// owned is the queues that somebody else fills: RSS contexts and ntuple rules.
func (m *maker) owned(n nic.NIC) (out cpuset.Set) {
	for _, s := range m.in.Snapshot.Settings {
		if s.Target.Device() != n.Name {
			continue
		}
		switch {
		case s.Knob == knob.RSSTable && strings.HasPrefix(s.Target.Part(), "context-"):
			var t []int
			if s.Value.Decode(&t) == nil {
				out = out.Union(cpuset.Of(t...))
			}
		case s.Knob == knob.NtupleRule:
			if q, ok := number(s.Value, "queue"); ok && q >= 0 {
				out = out.Union(cpuset.Of(int(q)))
			}
		}
	}
	return out
}

// polled is the receive time of each queue by CPU, in parts of a CPU's time. Without times
// (level 0) a CPU's receive softirq is divided by packets.
func (m *maker) polled(n nic.NIC) map[int]map[int]float64 {
	out := map[int]map[int]float64{}
	s := m.in.Sample
	if s == nil || s.Interval <= 0 {
		return out
	}
	byNAPI := map[uint32]int{}
	for _, q := range n.Queues {
		if q.NAPI != 0 && q.RX >= 0 {
			byNAPI[q.NAPI] = q.RX
		}
	}
	packets := map[int]uint64{} // through each CPU
	timed := false
	for _, p := range s.NAPIs {
		packets[p.CPU] += p.Packets
		timed = timed || p.Time > 0
	}
	softirq := map[int]float64{}
	for _, l := range m.in.Report.Loads {
		softirq[l.CPU] = l.NetRX
	}
	for _, p := range s.NAPIs {
		q := p.RXQueue
		if byID, ok := byNAPI[p.ID]; q < 0 && ok {
			q = byID
		}
		if p.Device != n.Name || p.Netns != 0 && n.Netns != 0 && p.Netns != n.Netns || q < 0 || p.CPU < 0 {
			continue
		}
		load := float64(p.Time) / float64(s.Interval)
		if !timed && packets[p.CPU] > 0 {
			load = softirq[p.CPU] * float64(p.Packets) / float64(packets[p.CPU])
		}
		if out[q] == nil {
			out[q] = map[int]float64{}
		}
		out[q][p.CPU] += load
	}
	return out
}

// cpuOf is the CPU that handles a queue: the one the plan gives it, the one that was seen
// polling it most, the one its vector is on.
func (m *maker) cpuOf(dev string, q nic.Queue, on map[int]float64) int {
	ref := knob.Ref{Knob: knob.IRQAffinity, Target: knob.On(dev, "irq-%d", q.IRQ)}
	for _, c := range m.p.Changes {
		var text string
		if c.Ref() == ref && c.To.Decode(&text) == nil {
			if s, err := cpuset.ParseList(text); err == nil {
				return m.known(s.First())
			}
		}
	}
	best := balance.Unused
	for _, c := range slices.Sorted(maps.Keys(on)) {
		if best == balance.Unused || on[c] > on[best] {
			best = c
		}
	}
	if best != balance.Unused {
		return m.known(best)
	}
	var text string
	if m.in.Snapshot.Get(knob.Ref{Knob: knob.IRQEffective, Target: ref.Target}).Decode(&text) == nil {
		if s, err := cpuset.ParseList(text); err == nil && s.Len() == 1 {
			return m.known(s.First())
		}
	}
	if q.Effective.Len() == 1 {
		return m.known(q.Effective.First())
	}
	return balance.Unused
}

// known is a CPU the topology holds.
func (m *maker) known(cpu int) int {
	if slices.ContainsFunc(m.in.Topology.CPUs, func(c topo.CPU) bool { return c.ID == cpu }) {
		return cpu
	}
	return balance.Unused
}

// solve asks the optimiser and turns its answer into changes.
func (m *maker) solve(all []*steered) {
	p := balance.Problem{Slack: slack, Isolate: m.p.Goal == Latency}
	background := maps.Clone(m.background)
	for _, s := range all {
		d := balance.Device{Name: s.dev, Buckets: s.buckets, Table: s.table, IRQ: s.cpus, May: balance.Table, WeightsOnly: m.in.Typed}
		if s.irqs = m.movable(s); s.irqs != nil {
			d.May |= balance.IRQ
			d.CPUs, _ = m.candidates(s.dev, nil)
		}
		p.Devices = append(p.Devices, d)
		for q, c := range s.cpus {
			if c != balance.Unused {
				background[c] = max(0, background[c]-s.load[q])
			}
		}
	}
	for _, c := range m.in.Topology.CPUs {
		if c.Online {
			p.CPUs = append(p.CPUs, balance.CPU{ID: c.ID, Core: c.Core, Background: background[c.ID]})
		}
	}
	for i := range p.Devices { // a queue on a CPU that went offline
		for q, c := range p.Devices[i].IRQ {
			if c >= unplaced && !slices.ContainsFunc(p.CPUs, func(x balance.CPU) bool { return x.ID == c }) {
				p.CPUs = append(p.CPUs, balance.CPU{ID: c, Core: topo.None})
			}
			if !slices.ContainsFunc(p.CPUs, func(x balance.CPU) bool { return x.ID == c }) {
				p.Devices[i].IRQ[q] = balance.Unused
			}
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), solveFor)
	defer cancel()
	// While no CPU is short of time, level queues serve better than ones that make way for other work, which the
	// scheduler moves by itself.
	level := p
	level.CPUs = slices.Clone(p.CPUs)
	for i := range level.CPUs {
		level.CPUs[i].Background = 0
	}
	r, err := balance.Solve(ctx, level)
	if err == nil && (hottest(p, r) > short || m.p.Goal == Latency) {
		r, err = balance.Solve(ctx, p)
	}
	if err != nil {
		m.p.reason("the tables of %s are left alone: %v", devices(all), err)
		return
	}
	m.elephants(all, p, r)
	moved := len(r.Moves)
	for _, s := range all {
		if !slices.Equal(s.was, s.table) {
			moved++
		}
	}
	if moved == 0 || (r.Before-r.Hottest < coolest*r.Before && !unreachable(all)) {
		m.p.reason("%s of %s: no table does noticeably better than the present one (the hottest CPU does %.0f %% of what it may with it, at best %.0f %%); %s",
			words(all[0].ids), devices(all), 100*r.Before, 100*r.Hottest, all[0].known)
		return
	}
	for i, s := range all {
		m.fit(s, p.Devices[i], r, i)
	}
}

// unreachable reports whether a table names queues that are not there.
func unreachable(all []*steered) bool {
	return slices.ContainsFunc(all, func(s *steered) bool { return !slices.Equal(s.was, s.table) })
}

func devices(all []*steered) string {
	var names []string
	for _, s := range all {
		names = append(names, s.dev)
	}
	return strings.Join(names, ", ")
}

// hottest is the load of the hottest CPU that has work of the devices, background included.
func hottest(p balance.Problem, r *balance.Result) (h float64) {
	load := map[int]float64{}
	for i, a := range r.Assignments {
		for b, q := range a.Table {
			if c := a.IRQ[q]; c != balance.Unused && p.Devices[i].Buckets[b] > 0 {
				load[c] += p.Devices[i].Buckets[b]
			}
		}
	}
	for _, c := range p.CPUs {
		if l, ok := load[c.ID]; ok {
			h = max(h, l+c.Background)
		}
	}
	return h
}

// movable is the vectors of a device that may be moved together with its table, nil where no finding
// wants that or nobody can.
func (m *maker) movable(s *steered) map[int]int {
	if !slices.Contains(s.ids, "RX102") || !m.in.Policy.allows(knob.IRQAffinity) {
		return nil
	}
	out := map[int]int{}
	for _, q := range m.nic(s.dev).Queues {
		if q.RX < 0 || q.IRQ < 0 || q.Thread != 0 {
			continue
		}
		var managed bool
		target := knob.On(s.dev, "irq-%d", q.IRQ)
		if q.KnownBy == nic.ByOrder || q.KnownBy == nic.Unknown ||
			m.in.Snapshot.Get(knob.Ref{Knob: knob.IRQManaged, Target: target}).Decode(&managed) == nil && managed ||
			!m.in.Snapshot.Get(knob.Ref{Knob: knob.IRQAffinity, Target: target}).Known() {
			return nil
		}
		out[q.RX] = q.IRQ
	}
	return out
}

// fit adds the changes of one device.
func (m *maker) fit(s *steered, d balance.Device, r *balance.Result, device int) {
	a := r.Assignments[device]
	expect := fmt.Sprintf("the hottest CPU spends %s of its time on this now and %s then; no table does better than %s", percent(r.Before), percent(r.Hottest), percent(r.Bound))
	for q, c := range a.IRQ {
		irq, ok := s.irqs[q]
		if !ok || c == d.IRQ[q] {
			continue
		}
		ref := knob.Ref{Knob: knob.IRQAffinity, Target: knob.On(s.dev, "irq-%d", irq)}
		m.add(Change{Knob: ref.Knob, Target: ref.Target, From: m.in.Snapshot.Get(ref), To: knob.Set(cpuset.Of(c)), Findings: s.ids, Risk: Reorder,
			Why: fmt.Sprintf("%s; vectors and table are placed together, cpu %d has room", s.why, c), Expect: expect})
	}
	var moved int
	from, to := make([]int, len(d.IRQ)), make([]int, len(d.IRQ))
	for b, q := range a.Table {
		if q != s.was[b] {
			moved++
		}
		if s.was[b] >= 0 && s.was[b] < len(from) {
			from[s.was[b]]++
		}
		to[q]++
	}
	if moved == 0 {
		return
	}
	gained := m.add(Change{Knob: knob.RSSTable, Target: knob.Target(s.dev), From: s.from, To: knob.List(a.Table), Findings: s.ids, Risk: Reorder,
		Why: fmt.Sprintf("%s; %d of %d buckets move (%s); %s", s.why, moved, len(s.was), shares(from, to), s.known), Expect: expect})
	if !gained {
		return
	}
	for b, q := range a.Table {
		if c := s.cpus[s.table[b]]; c != balance.Unused {
			m.background[c] = max(0, m.background[c]-s.buckets[b])
		}
		if c := a.IRQ[q]; c != balance.Unused {
			m.background[c] += s.buckets[b]
		}
	}
}

// shares says how many buckets the queues get that get other than they had.
func shares(from, to []int) string {
	var out []string
	for q := range from {
		if from[q] != to[q] {
			out = append(out, fmt.Sprintf("rx-%d %d→%d", q, from[q], to[q]))
		}
	}
	if len(out) > 8 {
		out = append(out[:8], fmt.Sprintf("and %d more", len(out)-8))
	}
	if len(out) == 0 {
		return "as many for each queue as before"
	}
	return strings.Join(out, ", ")
}

func percent(x float64) string {
	if x > 0 && x < 0.1 {
		return fmt.Sprintf("%.1f %%", 100*x)
	}
	return fmt.Sprintf("%.0f %%", 100*x)
}

// elephants says what no table can do.
func (m *maker) elephants(all []*steered, p balance.Problem, r *balance.Result) {
	for _, e := range r.Elephants {
		s := all[e.Device]
		if !s.counted || m.rehashed[s.dev] || e.Load < r.Hottest*(1-slack) || r.Hottest < math.SmallestNonzeroFloat64 {
			continue // the hottest CPU is not hot because of it
		}
		m.alone(s, e.Bucket, e.Load)
	}
}

// alone is the honest sentence about a flow that nothing spreads; bucket −1 not known.
func (m *maker) alone(s *steered, bucket int, load float64) {
	what := "its busiest flow"
	if bucket >= 0 {
		what = fmt.Sprintf("bucket %d", bucket)
		if f := m.flows(s.dev, bucket); len(f) > 0 {
			what = fmt.Sprintf("%s (%.0f %% of it is one flow, %s)", what, 100*f[0].share, f[0].text())
		}
		what += fmt.Sprintf(" alone takes %s of a CPU", percent(load))
	} else {
		what += " is one flow"
	}
	m.p.reason("%s: %s, and one flow stays on one queue: no table, key, vector or further queue makes that CPU cooler. What is left: RPS or RFS move the protocol part to another CPU, GRO and coalescing make a packet cheaper, and the application can use more than one flow", s.dev, what)
}

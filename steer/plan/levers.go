package plan

import (
	"fmt"
	"math"
	"slices"

	"github.com/rxsteer/rxsteer/collector"
	"github.com/rxsteer/rxsteer/internal/cpuset"
	"github.com/rxsteer/rxsteer/internal/host/knob"
	"github.com/rxsteer/rxsteer/internal/host/nic"
	"github.com/rxsteer/rxsteer/steer/diagnose"
)

const (
	// shortWait and fairWait are the µs between interrupts that goals latency and balanced aim at where a timer
	// makes dense packets wait.
	shortWait = 50
	fairWait  = 100
	// mergeWait is the rx-usecs by goal where there is an interrupt for nearly every packet.
	mergeWait, bulkWait = 20, 50
	// deferred is how many empty polls, a timer apart, come before an interrupt is armed again where the device
	// has no moderation of its own (Documentation/networking/napi.rst, "Software IRQ coalescing").
	deferred = 2
	// noRoom is the receive softirq of a CPU above which a longer queue only delays the drop.
	noRoom = 0.85
	// ringBusy is the same of a polling CPU and its ring.
	ringBusy = 0.7
	// ringGrowth is how many times as long a ring becomes in one plan.
	ringGrowth = 4
	// buffer is about what a ring entry holds in memory, bytes: a page for a frame and its head.
	buffer = 4096
)

// fact is a number of a finding's evidence; false where it has none.
func fact(f diagnose.Finding, name string) (float64, bool) {
	switch x := f.Evidence.Get(name).(type) {
	case float64:
		return x, true
	case int:
		return float64(x), true
	case int64:
		return float64(x), true
	case uint64:
		return float64(x), true
	}
	return 0, false
}

// group is some attributes of a group setting as they are, nil where one is not known.
func (m *maker) group(k knob.Kind, t knob.Target, names ...string) map[string]any {
	var all map[string]any
	if m.in.Snapshot.Get(knob.Ref{Knob: k, Target: t}).Decode(&all) != nil {
		return nil
	}
	out := map[string]any{}
	for _, n := range names {
		v, ok := all[n]
		if !ok {
			return nil
		}
		out[n] = v
	}
	return out
}

// risk is what a change of a driver's setting does to the link.
func (m *maker) risk(dev string, k knob.Kind, otherwise Risk) Risk {
	n := m.nic(dev)
	if n != nil && slices.ContainsFunc(nic.Facts(n.Driver), func(f nic.Fact) bool { return f.Kind == nic.Flaps && f.Text == string(k) }) {
		return Flap
	}
	return otherwise
}

// noEffect reports whether a driver takes a setting and does nothing with it.
func (m *maker) noEffect(dev string, k knob.Kind) bool {
	n := m.nic(dev)
	return n != nil && slices.ContainsFunc(nic.Facts(n.Driver), func(f nic.Fact) bool { return f.Kind == nic.NoEffect && f.Text == string(k) })
}

// moderationOf is the settings that moderate a finding's queues: each its own where the device has that, else the device's.
func (m *maker) moderationOf(f diagnose.Finding) []knob.Ref {
	dev := f.Site.Device
	var out []knob.Ref
	for _, q := range f.Site.Queues {
		ref := knob.Ref{Knob: knob.QueueCoal, Target: knob.On(dev, "queue-%d", q)}
		if m.group(ref.Knob, ref.Target, "rx-usecs") != nil && !m.noEffect(dev, knob.QueueCoal) && m.in.Policy.allows(knob.QueueCoal) {
			out = append(out, ref)
		}
	}
	if len(out) == 0 || len(out) < len(f.Site.Queues) {
		return []knob.Ref{{Knob: knob.Coalesce, Target: knob.Target(dev)}}
	}
	return out
}

// sooner shortens a timer that makes packets wait (RX501), as far as the goal asks for it.
func (m *maker) sooner(f diagnose.Finding) {
	gap, ok1 := fact(f, "irq_gap_us")
	k, ok2 := fact(f, "factor_k")
	wait := float64(shortWait)
	switch {
	case !ok1 || !ok2 || k <= 0:
		m.advise(f)
		return
	case m.p.Goal == Throughput:
		m.p.reason("%s of %s: goal throughput leaves it: %.0f µs between interrupts cost latency and save interrupts", f.ID, f.Subject, gap)
		return
	case m.p.Goal == Balanced && f.Severity < diagnose.Warning:
		m.p.reason("%s of %s: goal balanced leaves it at %.0f µs between interrupts; --goal latency shortens it", f.ID, f.Subject, gap)
		return
	case m.p.Goal == Balanced:
		wait = fairWait
	}
	for _, ref := range m.moderationOf(f) {
		was := m.group(ref.Knob, ref.Target, "rx-usecs")
		old, ok := integer(was["rx-usecs"])
		if !ok {
			m.p.reason("%s is not known: left alone", ref)
			continue
		}
		to := m.in.Policy.clamp(ref.Knob, "rx-usecs", m.staticUsecs(f.Site.Device, int64(math.Round(wait/k))))
		if to >= old {
			m.p.reason("%s of %s: rx-usecs %d cannot be shorter", f.ID, f.Subject, old)
			continue
		}
		m.add(Change{Knob: ref.Knob, Target: ref.Target, From: knob.Fields(was), To: knob.Fields(map[string]any{"rx-usecs": to}), Findings: []diagnose.ID{f.ID}, Risk: NoRisk,
			Why:    fmt.Sprintf("%s; goal %s wants about %.0f µs, which is rx-usecs %d with the factor of %.2g that was measured", f.Summary, m.p.Goal, wait, to, k),
			Expect: fmt.Sprintf("interrupts of a busy queue come every %.0f µs instead of every %.0f µs: %.1f times as many, and packets wait that much less", float64(to)*k, gap, gap/(float64(to)*k))})
	}
}

// staticUsecs is the rx-usecs next to n, from n up, that a driver takes for a number of µs and not for a word.
func (m *maker) staticUsecs(dev string, n int64) int64 {
	n = max(n, 1)
	if d := m.nic(dev); d != nil {
		for _, f := range nic.Facts(d.Driver) {
			switch f.Kind {
			case nic.DynamicUsecs: // 1 to 3 are words there, 4 to 9 refused (igb_set_coalesce, e1000_set_coalesce)
				n = max(n, 10)
			case nic.MaxUsecs:
				n = min(n, int64(f.N))
			}
		}
	}
	return n
}

// steady takes the delay from adaptive moderation where it makes dense packets wait (RX503) and latency is the goal.
func (m *maker) steady(f diagnose.Finding) {
	gap, measured := fact(f, "irq_gap_us")
	t := knob.Target(f.Site.Device)
	was := m.group(knob.Coalesce, t, "adaptive-rx", "rx-usecs")
	if m.p.Goal != Latency || !measured || was["adaptive-rx"] != true {
		m.advise(f)
		return
	}
	to := m.in.Policy.clamp(knob.Coalesce, "rx-usecs", m.staticUsecs(f.Site.Device, shortWait))
	if old, ok := integer(was["rx-usecs"]); ok && old > 0 && old < to {
		to = old // somebody's own choice, which adaptive moderation ignores
	}
	m.add(Change{Knob: knob.Coalesce, Target: t, From: knob.Fields(was), To: knob.Fields(map[string]any{"adaptive-rx": false, "rx-usecs": to}), Findings: []diagnose.ID{f.ID}, Risk: NoRisk,
		Why:    fmt.Sprintf("%s; goal latency wants a delay that stays short", f.Summary),
		Expect: fmt.Sprintf("interrupts of a busy queue come every %d µs, or what the card makes of that, instead of every %.0f µs", to, gap)})
}

// merge moderates interrupts that come for nearly every packet (RX502), unless latency is the goal: by the
// driver's own adaptive moderation, else by a fixed delay, else by the kernel's.
func (m *maker) merge(f diagnose.Finding) {
	dev := f.Site.Device
	rate, _ := fact(f, "irqs_per_s")
	cost, _ := fact(f, "cost_of_cpu_ratio")
	if m.p.Goal == Latency {
		m.p.reason("%s of %s: goal latency leaves it: an interrupt for each packet is what keeps it from waiting (%s of a CPU)", f.ID, f.Subject, percent(cost))
		return
	}
	wait := int64(mergeWait)
	if m.p.Goal == Throughput {
		wait = bulkWait
	}
	expect := func(us int64) string {
		return fmt.Sprintf("at most %.0f interrupts/s of a queue instead of %.0f on the CPU with most, of which about %s was the cost; up to %d µs more delay", 1e6/float64(us), rate, percent(cost), us)
	}
	t := knob.Target(dev)
	c := Change{Knob: knob.Coalesce, Target: t, Findings: []diagnose.ID{f.ID}, Risk: NoRisk}
	if was := m.group(knob.Coalesce, t, "adaptive-rx"); was["adaptive-rx"] == false {
		want := map[string]any{"adaptive-rx": true}
		if tx := m.group(knob.Coalesce, t, "adaptive-tx"); tx["adaptive-tx"] == false && m.completes(dev) {
			was["adaptive-tx"], want["adaptive-tx"] = false, true
		}
		c.From, c.To = knob.Fields(was), knob.Fields(want)
		c.Why = f.Summary + "; the driver's adaptive moderation merges them under load and lets single packets through" + bothSides(want, "adaptive-tx")
		c.Expect = fmt.Sprintf("fewer than the %.0f interrupts/s of now on the CPU with most, which cost about %s of it", rate, percent(cost))
		m.add(c)
		return
	}
	if was := m.group(knob.Coalesce, t, "rx-usecs"); was != nil {
		old, _ := integer(was["rx-usecs"])
		to := m.in.Policy.clamp(knob.Coalesce, "rx-usecs", m.staticUsecs(dev, wait))
		if old >= to {
			m.p.reason("%s of %s: rx-usecs %d is as long as goal %s wants it", f.ID, f.Subject, old, m.p.Goal)
			return
		}
		want := map[string]any{"rx-usecs": to}
		if tx := m.group(knob.Coalesce, t, "tx-usecs"); tx != nil && m.completes(dev) {
			if old, ok := integer(tx["tx-usecs"]); ok && old < to && m.in.Policy.clamp(knob.Coalesce, "tx-usecs", to) == to {
				was["tx-usecs"], want["tx-usecs"] = tx["tx-usecs"], to
			}
		}
		c.From, c.To = knob.Fields(was), knob.Fields(want)
		c.Why, c.Expect = fmt.Sprintf("%s; goal %s lets packets wait %d µs for each other%s", f.Summary, m.p.Goal, to, bothSides(want, "tx-usecs")), expect(to)
		m.add(c)
		return
	}
	// The kernel's own, for devices without.
	for _, x := range []struct {
		k  knob.Kind
		to int64
	}{{knob.DeferHardIRQs, deferred}, {knob.GROFlushTimeout, wait * 1000}} {
		ref := knob.Ref{Knob: x.k, Target: t}
		from := m.in.Snapshot.Get(ref)
		var old int64
		if from.Decode(&old) != nil || old > 0 {
			m.p.reason("%s of %s: %s is %s already", f.ID, f.Subject, ref, from)
			return
		}
	}
	for _, x := range []struct {
		k  knob.Kind
		to int64
	}{{knob.DeferHardIRQs, deferred}, {knob.GROFlushTimeout, wait * 1000}} {
		m.add(Change{Knob: x.k, Target: t, From: m.in.Snapshot.Get(knob.Ref{Knob: x.k, Target: t}), To: knob.Int(m.in.Policy.clamp(x.k, "", x.to)), Findings: []diagnose.ID{f.ID}, Risk: NoRisk,
			Why:    f.Summary + "; the device has no moderation of its own: the kernel polls again after a timer before it arms the interrupt",
			Expect: expect(wait)})
	}
}

// completes reports whether completions of what a device sends raise the interrupts of its receive queues too, and can
// be moderated apart: merging those of receive alone would leave them.
func (m *maker) completes(dev string) bool {
	n := m.nic(dev)
	if n == nil || m.in.Sample == nil || m.in.Sample.Interval <= 0 || !slices.ContainsFunc(n.Queues, func(q nic.Queue) bool { return q.RX >= 0 && q.TX >= 0 }) {
		return false
	}
	if _, tied := nic.Has(n.Driver, nic.TiedUsecs); tied {
		return false // rx-usecs is that of both
	}
	return slices.ContainsFunc(m.in.Sample.Devices, func(d collector.Device) bool {
		return d.Name == dev && float64(d.TXPackets)/m.in.Sample.Interval.Seconds() >= sends
	})
}

// bothSides says why the transmit side is in a change of moderation.
func bothSides(want map[string]any, name string) string {
	if want[name] == nil {
		return ""
	}
	return "; its vectors serve transmit too, whose completions would else go on interrupting"
}

// features fits offloads to the role and the traffic of a device (RX601, RX604).
func (m *maker) features(f diagnose.Finding) {
	t := knob.Target(f.Site.Device)
	name, on, risk, expect := "", true, Pause, ""
	_, lro := f.Evidence.Get("rx_lro").(bool)
	_, gro := f.Evidence.Get("rx_gro").(bool)
	_, vlan := f.Evidence.Get("vlan").(string)
	pps, _ := fact(f, "packets_per_s")
	size, _ := fact(f, "average_packet_bytes")
	sent, tso := fact(f, "sent_packets_per_s")
	load, sum := fact(f, "its_receive_softirq_ratio")
	switch {
	case lro:
		name, on, expect = "rx-lro", false, "forwarded packets keep their sizes; GRO still merges what the host itself reads"
	case gro:
		if m.p.Goal == Latency {
			m.p.reason("%s of %s: goal latency leaves GRO off", f.ID, f.Subject)
			return
		}
		name, risk = "rx-gro", NoRisk
		expect = fmt.Sprintf("up to %.0f of %.0f packets/s of %.0f bytes pass the stack merged; the hottest CPU, %s in receive softirq, cools", pps*(1-size/65536), pps, size, percent(load))
	case tso:
		name, expect = "tx-tcp-segmentation", fmt.Sprintf("the stack sends up to 44 segments at a time instead of %.0f packets/s one by one", sent)
	case vlan:
		n, _ := fact(f, "vlan_packets_per_s")
		name, expect = "rx-vlan-hw-parse", fmt.Sprintf("the card takes off the tags of %.0f packets/s", n)
	case sum:
		name, expect = "rx-checksum", fmt.Sprintf("the card sums %.0f packets/s of %.0f bytes, and GRO can merge them", pps, size)
	default:
		m.advise(f)
		return
	}
	was := m.group(knob.Features, t, name)
	if was == nil || was[name] == on || m.group(knob.FeaturesWanted, t, name) != nil {
		m.advise(f) // fixed, or asked for already: no plan changes that
		return
	}
	m.add(Change{Knob: knob.Features, Target: t, From: knob.Fields(was), To: knob.Fields(map[string]any{name: on}), Findings: []diagnose.ID{f.ID}, Risk: m.risk(f.Site.Device, knob.Features, risk),
		Why: f.Summary, Expect: expect})
}

// ring gives a device more receive descriptors (RX402), where its CPUs have time to empty them.
func (m *maker) ring(f diagnose.Finding) {
	dev, t := f.Site.Device, knob.Target(f.Site.Device)
	was := m.group(knob.Rings, t, "rx")
	most, ok := integer(m.group(knob.RingsMax, t, "rx")["rx"])
	now, ok2 := integer(was["rx"])
	load, _ := fact(f, "its_receive_softirq_ratio")
	drops, live := fact(f, "ring_drops_per_s") // a single look since boot tells no rate
	_, memory := fact(f, "buffers_not_allocated_per_s")
	switch {
	case !ok || !ok2 || now >= most || load >= ringBusy || memory || !live:
		m.advise(f)
		return
	}
	to := m.in.Policy.clamp(knob.Rings, "rx", min(most, now*ringGrowth))
	if to <= now {
		m.p.reason("%s of %s: the policy allows no ring longer than %d", f.ID, f.Subject, now)
		return
	}
	queues := 1
	if n := m.nic(dev); n != nil {
		queues, _ = n.QueueCount()
	}
	m.add(Change{Knob: knob.Rings, Target: t, From: knob.Fields(was), To: knob.Fields(map[string]any{"rx": to}), Findings: []diagnose.ID{f.ID}, Risk: m.risk(dev, knob.Rings, Pause),
		Why: fmt.Sprintf("%s; the CPUs that poll it have time (the hottest spends %s in receive softirq), so bursts overran the ring", f.Summary, percent(load)),
		Expect: fmt.Sprintf("bursts of up to %d packets instead of %d wait for the CPU; %.0f drops/s fall; about %d MiB more memory (%d queues × %d entries)",
			to, now, drops, (to-now)*int64(queues)*buffer>>20, queues, to-now)})
}

// budget lets a receive run go on longer where runs end with work left (RX401), by the limit that ends them.
func (m *maker) budget(f diagnose.Finding) {
	filled, told := fact(f, "full_polls_ratio")
	rate, _ := fact(f, "squeezes_per_run_ratio")
	if !told || m.softirq(f.Site.CPU) >= noRoom {
		m.advise(f)
		return
	}
	if m.p.Goal == Latency {
		m.p.reason("%s of %s: goal latency leaves the budget: longer receive runs keep other work of the CPU waiting", f.ID, f.Subject)
		return
	}
	k, limit := knob.NetdevBudgetUsecs, "the time limit ends them: few polls fill their budget"
	if filled >= 0.5 {
		k, limit = knob.NetdevBudget, "the packet limit ends them: most polls fill their budget"
	}
	m.grow(f, k, fmt.Sprintf("%s; %s", f.Summary, limit), fmt.Sprintf("fewer than the %s of receive runs of now end with work left", percent(rate)), 2)
}

// backlog lengthens the queue of RPS where bursts overrun it (RX403).
func (m *maker) backlog(f diagnose.Finding) {
	drops, _ := fact(f, "backlog_drops_per_s")
	cut, _ := fact(f, "flow_limit_per_s")
	if load := m.softirq(f.Site.CPU); load >= noRoom || cut*2 > drops {
		m.advise(f)
		return
	}
	m.grow(f, knob.NetdevMaxBacklog, f.Summary+fmt.Sprintf("; cpu %d has time (%s in receive softirq): bursts overran its queue", f.Site.CPU, percent(m.softirq(f.Site.CPU))),
		fmt.Sprintf("fewer than the %.0f drops/s of now", drops), 4)
}

// softirq is the part of a CPU in receive softirq.
func (m *maker) softirq(cpu int) float64 {
	for _, l := range m.in.Report.Loads {
		if l.CPU == cpu {
			return l.NetRX
		}
	}
	return 0
}

// grow multiplies a number of the host.
func (m *maker) grow(f diagnose.Finding, k knob.Kind, why, expect string, times int64) {
	ref := knob.Ref{Knob: k, Target: knob.Host}
	from := m.in.Snapshot.Get(ref)
	var now int64
	if from.Decode(&now) != nil || now <= 0 {
		m.p.reason("%s is %s (%s): left alone", ref, from, from.Reason())
		return
	}
	to := m.in.Policy.clamp(k, "", now*times)
	if to <= now {
		m.p.reason("%s of %s: %s is at %d, the highest that is allowed", f.ID, f.Subject, k, now)
		return
	}
	m.add(Change{Knob: k, Target: knob.Host, From: from, To: knob.Int(to), Findings: []diagnose.ID{f.ID}, Risk: NoRisk, Why: why, Expect: expect + fmt.Sprintf(" (%d→%d)", now, to)})
}

// flowTables completes RFS where half of it is set (RX304).
func (m *maker) flowTables(f diagnose.Finding) {
	global := knob.Ref{Knob: knob.RPSSockFlowEntries, Target: knob.Host}
	was := m.in.Snapshot.Get(global)
	var entries int64
	if was.Decode(&entries) != nil {
		m.advise(f)
		return
	}
	if len(f.Site.Queues) > 0 {
		per := int64(nextPow2(int(entries) / len(f.Site.Queues)))
		for _, q := range f.Site.Queues {
			ref := knob.Ref{Knob: knob.RPSFlowCnt, Target: knob.On(f.Site.Device, "rx-%d", q)}
			var n int64
			if from := m.in.Snapshot.Get(ref); from.Decode(&n) == nil && n == 0 {
				m.add(Change{Knob: ref.Knob, Target: ref.Target, From: from, To: knob.Int(per), Findings: []diagnose.ID{f.ID}, Risk: NoRisk, Why: f.Summary,
					Expect: fmt.Sprintf("flows of rx-%d follow their readers, %d at a time", q, per)})
			}
		}
		return
	}
	tables, _ := fact(f, "rps_flow_cnt_sum")
	flows, _ := fact(f, "established_tcp")
	want := int64(nextPow2(int(min(max(tables, flows), maxFlows))))
	if want <= entries {
		m.advise(f)
		return
	}
	m.add(Change{Knob: global.Knob, Target: global.Target, From: was, To: knob.Int(m.in.Policy.clamp(global.Knob, "", want)), Findings: []diagnose.ID{f.ID}, Risk: NoRisk, Why: f.Summary,
		Expect: fmt.Sprintf("room for %d flows where there was room for %d", want, entries)})
}

// unthread gives polls back to the vectors where NAPI threads crowd on one CPU that has no time
// left (RX505), and the vectors are on several.
func (m *maker) unthread(f diagnose.Finding) {
	ref := knob.Ref{Knob: knob.Threaded, Target: knob.Target(f.Site.Device)}
	from := m.in.Snapshot.Get(ref)
	var on int64
	var at cpuset.Set
	if n := m.nic(f.Site.Device); n != nil {
		for _, q := range n.Queues {
			if q.RX >= 0 && q.Effective.Len() == 1 {
				at = at.Union(q.Effective)
			}
		}
	}
	share, _ := fact(f, "share_of_packets_ratio")
	if f.Severity < diagnose.Warning || from.Decode(&on) != nil || on == 0 || at.Len() < 2 {
		m.advise(f)
		return
	}
	m.add(Change{Knob: ref.Knob, Target: ref.Target, From: from, To: knob.Int(0), Findings: []diagnose.ID{f.ID}, Risk: Reorder,
		Why:    fmt.Sprintf("%s, which has no time left, while the vectors are on cpus %s. Where the threads are wanted, spread them instead (%s)", f.Summary, at, f.Remedy),
		Expect: fmt.Sprintf("%s of the packets leave one CPU for %d", percent(share), at.Len())})
}

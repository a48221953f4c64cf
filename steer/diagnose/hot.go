package diagnose

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/rxsteer/rxsteer/collector"
	"github.com/rxsteer/rxsteer/internal/cpuset"
	"github.com/rxsteer/rxsteer/internal/host/nic"
)

// own is a part of the interval as a part of the time the CPU really had.
func (l Load) own(ratio float64) float64 {
	if l.Steal >= 1 {
		return 0
	}
	return ratio / (1 - l.Steal)
}

// concentrated reports each hot CPU by its cause: one finding for each device, with what else the
// cause explains (RX101, RX102, RX301, RX303).
func (v *view) concentrated(r *Report) {
	done := map[string]bool{} // devices that have a root cause
	for _, c := range v.hot(r) {
		f, ok := v.cause(c)
		switch {
		case !ok:
			r.checked("cpu %d spends %s in receive softirq of loopback traffic: it belongs to the sender, no queue or mask places it", c, percent(v.load[c].NetRX))
			continue
		case !v.wanted(f.Site.Device):
			r.checked("cpu %d spends %s in receive softirq because of %s, which was not asked for", c, percent(v.load[c].NetRX), f.Site.Device)
			continue
		case f.Site.Device != "" && done[f.Site.Device]:
			continue // the same cause, seen on another CPU
		case r.chain(f):
			done[f.Site.Device] = true
			continue
		}
		done[f.Site.Device] = f.Site.Device != ""
		r.Findings = append(r.Findings, f)
	}
}

// chain makes a hot CPU part of an earlier finding that names it and the device as its cause.
func (r *Report) chain(hot Finding) bool {
	i := slices.IndexFunc(r.Findings, func(f Finding) bool {
		return f.Site.CPU == hot.Site.CPU && f.Site.Device == hot.Site.Device && f.Site.Device != ""
	})
	if i < 0 {
		return false
	}
	f := &r.Findings[i]
	f.Severity = max(f.Severity, hot.Severity)
	if !slices.ContainsFunc(hot.Explains, func(s Symptom) bool { return s.ID == "RX101" }) {
		f.Explains = append(f.Explains, Symptom{ID: "RX101", Subject: fmt.Sprintf("cpu %d", hot.Site.CPU), Summary: hot.Summary, Evidence: hot.Evidence})
	}
	f.Explains = append(f.Explains, hot.Explains...)
	return true
}

// hot returns the CPUs on which receive softirq is concentrated while others
// are free, hottest first, and reports what was checked.
func (v *view) hot(r *Report) []int {
	var out []int
	total, top, topCPU := 0.0, -1.0, -1
	for _, l := range v.loads {
		total += l.NetRX
		if l.NetRX > top {
			top, topCPU = l.NetRX, l.CPU
		}
	}
	for _, l := range v.loads {
		if l.own(l.NetRX) < hotRatio {
			continue
		}
		switch {
		case v.packets(l.CPU) < minPackets:
			r.checked("cpu %d spends %s in receive softirq for %.0f packets/s: too little traffic to judge", l.CPU, percent(l.NetRX), v.packets(l.CPU))
		case l.Steal >= maxSteal:
			r.checked("cpu %d is hot, but the hypervisor took %s of it: the host is short of CPU, no steering cures that", l.CPU, percent(l.Steal))
		case l.NetRX < concentration*v.othersMean(l.CPU):
			r.checked("cpu %d spends %s in receive softirq, and so do the others: spread, not concentrated", l.CPU, percent(l.NetRX))
		case v.free(l.CPU).IsEmpty():
			r.checked("cpu %d spends %s in receive softirq and no other usable CPU is free: there is nowhere to steer to", l.CPU, percent(l.NetRX))
		case !v.persistent(l.CPU):
			r.checked("cpu %d was hot in too few of %d windows: a burst, not a state", l.CPU, len(v.in.Windows))
		default:
			out = append(out, l.CPU)
		}
	}
	slices.SortStableFunc(out, func(a, b int) int { return -cmp.Compare(v.load[a].NetRX, v.load[b].NetRX) })
	if len(out) == 0 && topCPU >= 0 && v.loadTold(topCPU) {
		r.checked("receive softirq per CPU: the most is %s of cpu %d, %.2f CPUs in all", percent(top), topCPU, total)
	}
	return out
}

func percent(ratio float64) string { return fmt.Sprintf("%.0f %%", ratio*100) }

// packets is the packets per second a CPU handled: through its stack, or polled there.
func (v *view) packets(cpu int) float64 {
	return float64(max(v.cpus[cpu].Processed, v.polls[cpu])) / v.seconds
}

func (v *view) othersMean(cpu int) float64 {
	var sum float64
	n := 0
	for c := range v.usable.All() {
		if l, ok := v.load[c]; ok && c != cpu {
			sum += l.NetRX
			n++
		}
	}
	if n == 0 {
		return 0
	}
	return sum / float64(n)
}

// free is the usable CPUs that could take work from the hot one.
func (v *view) free(hot int) cpuset.Set {
	var out cpuset.Set
	for c := range v.usable.All() {
		l, ok := v.load[c]
		if ok && c != hot && l.Idle >= freeIdle && l.NetRX <= freeNetRX*v.load[hot].NetRX {
			out = out.Union(cpuset.Of(c))
		}
	}
	return out
}

// persistent reports whether the CPU is hot in most sub-windows.
func (v *view) persistent(cpu int) bool {
	if len(v.in.Windows) < 3 {
		return true
	}
	n := 0
	for _, w := range v.in.Windows {
		for _, l := range loads(w) {
			if l.CPU == cpu && l.own(l.NetRX) >= hotRatio {
				n++
			}
		}
	}
	return float64(n) >= persistence*float64(len(v.in.Windows))
}

// source is what a CPU's polls were for.
type source struct {
	device  string // "" for the backlog
	ifindex int
	netns   uint64
	seenAs  string // its name in a foreign namespace
	time    uint64
	packets uint64
	queues  []int
}

// sources is who was polled on a CPU, most time first (level ≥ 1).
func (v *view) sources(cpu int) []source {
	type key struct {
		netns   uint64
		ifindex int
	}
	m := map[key]*source{}
	for _, p := range v.s.NAPIs {
		if p.CPU != cpu {
			continue
		}
		k := key{p.Netns, p.IfIndex}
		s := m[k]
		if s == nil {
			s = &source{ifindex: p.IfIndex, netns: p.Netns, seenAs: p.SeenAs}
			if p.IfIndex != 0 {
				s.device = p.Device
			}
			m[k] = s
		}
		s.time += p.Time
		s.packets += p.Packets
		if q := v.queueOf(p); q >= 0 && p.Packets > 0 {
			s.queues = append(s.queues, q)
		}
	}
	var out []source
	for _, s := range m {
		slices.Sort(s.queues)
		s.queues = slices.Compact(s.queues)
		out = append(out, *s)
	}
	slices.SortFunc(out, func(a, b source) int {
		return cmp.Or(-cmp.Compare(a.time, b.time), cmp.Compare(a.ifindex, b.ifindex), cmp.Compare(a.netns, b.netns))
	})
	return out
}

// queueOf is the receive queue of a NAPI by the sample, else by the map.
func (v *view) queueOf(p collector.NAPI) int {
	if p.RXQueue >= 0 || p.ID == 0 {
		return p.RXQueue
	}
	for _, q := range v.nics[p.Device].Queues {
		if q.NAPI == p.ID && q.RX >= 0 {
			return q.RX
		}
	}
	return -1
}

// cause finds why a hot CPU is hot: one finding whose symptoms are chained to
// it. False when the load belongs to something steering does not reach.
func (v *view) cause(cpu int) (Finding, bool) {
	if v.s.Level == 0 {
		return v.causeLevel0(cpu)
	}
	var total, backlog uint64
	src := v.sources(cpu)
	for _, s := range src {
		total += s.time
		if s.ifindex == 0 {
			backlog += s.time
		}
	}
	if total > 0 && float64(backlog) >= dominant*float64(total) {
		return v.backlogCause(cpu, float64(backlog)/float64(total))
	}
	for _, s := range src {
		if s.ifindex == 0 || float64(s.time) < dominant*float64(total) {
			continue
		}
		if s.netns != 0 && v.netns != 0 && s.netns != v.netns {
			f := v.finding("RX101", cpu, "", fmt.Sprintf("cpu %d", cpu))
			f.Summary = fmt.Sprintf("%s of cpu %d goes to receive softirq of %s in another network namespace (inode %d) while %s", percent(v.load[cpu].NetRX), cpu, cmp.Or(s.seenAs, s.device), s.netns, v.freeText(cpu))
			f.Remedy = "run rxsteer inside that namespace (nsenter --net): its queues and masks cannot be seen or set from here"
			return f, true
		}
		return v.pollCause(cpu, s.device, s.queues, float64(s.time)/float64(total)), true
	}
	if f, ok := v.several(cpu, src, total); ok {
		return f, true
	}
	f := v.finding("RX101", cpu, "", fmt.Sprintf("cpu %d", cpu))
	f.Summary = fmt.Sprintf("%s of cpu %d goes to receive softirq while %s; no single device causes it", percent(v.load[cpu].NetRX), cpu, v.freeText(cpu))
	f.Remedy = "spread the vectors of the devices polled on this CPU over free CPUs of their node"
	for _, s := range src {
		f.Evidence = append(f.Evidence, Fact{"polls_of_" + cmp.Or(s.device, "backlog") + "_ratio", part(s.time, total)})
	}
	return f, true
}

// causeLevel0 infers the cause from settings and interrupts, for want of poll times.
func (v *view) causeLevel0(cpu int) (Finding, bool) {
	irqs := map[string]uint64{}
	queues := map[string][]int{}
	busy := map[string][]int{}
	for name := range v.nics {
		busy[name] = v.queueLoad(name).busy()
	}
	for _, i := range v.s.IRQs {
		if i.CPU != cpu || i.Count == 0 {
			continue
		}
		for _, n := range v.nics {
			for _, q := range n.Queues {
				if q.IRQ == i.IRQ && q.RX >= 0 && slices.Contains(busy[n.Name], q.RX) {
					irqs[n.Name] += i.Count
					queues[n.Name] = append(queues[n.Name], q.RX)
				}
			}
		}
	}
	var device string
	for _, n := range slices.Sorted(maps.Keys(irqs)) {
		if device == "" || irqs[n] > irqs[device] {
			device = n
		}
	}
	if f, ok := v.backlogCause(cpu, 0); ok && (device == "" || v.cpus[cpu].ReceivedRPS > irqs[device]) {
		return f, true
	}
	if device == "" {
		f := v.finding("RX101", cpu, "", fmt.Sprintf("cpu %d", cpu))
		f.Summary = fmt.Sprintf("%s of cpu %d goes to softirq while %s; which device causes it cannot be told from kernel counters", percent(v.load[cpu].NetRX), cpu, v.freeText(cpu))
		f.Remedy = "run with the privileges for the per-poll measurement (rxsteer doctor says which)"
		return f, true
	}
	slices.Sort(queues[device])
	return v.pollCause(cpu, device, slices.Compact(queues[device]), 0), true
}

// freeText is "cpu 2-5 are free (least busy 3 %)".
func (v *view) freeText(hot int) string {
	free := v.free(hot)
	best := -1
	for c := range free.All() {
		if best < 0 || v.load[c].Idle > v.load[best].Idle {
			best = c
		}
	}
	if best < 0 {
		return "no other usable CPU is free"
	}
	if free.Len() == 1 {
		return fmt.Sprintf("cpu %d is %s idle", best, percent(v.load[best].Idle))
	}
	return fmt.Sprintf("cpus %s are free (cpu %d %s idle)", free, best, percent(v.load[best].Idle))
}

// finding starts a finding about a hot CPU with the numbers that show it hot and
// the symptoms seen on it.
func (v *view) finding(id ID, cpu int, device, subject string) Finding {
	l := v.load[cpu]
	c := v.cpus[cpu]
	var total float64
	for _, x := range v.loads {
		total += x.NetRX
	}
	f := Finding{ID: id, Severity: Warning, Subject: subject, Site: Site{Device: device, CPU: cpu, Demand: v.demand(cpu), Sends: v.sends(device)}}
	f.Evidence = Evidence{
		{"cpu", cpu},
		{"cpu_receive_softirq_ratio", l.NetRX},
		{"share_of_all_receive_softirq_ratio", ratio(l.NetRX, total)},
		{"cpu_idle_ratio", l.Idle},
		{"packets_per_s", v.packets(cpu)},
		{"free_cpus", v.free(cpu).String()},
	}
	if l.Steal > 0 {
		f.Evidence = append(f.Evidence, Fact{"cpu_steal_ratio", l.Steal})
	}
	if v.s.Level >= 1 {
		f.Evidence = append(f.Evidence, Fact{"in_ksoftirqd_ratio", part(c.TimeIn[collector.InKsoftirqd], c.SoftirqTime[collector.NetRX])})
	}
	if c.Dropped > 0 {
		f.Evidence = append(f.Evidence, Fact{"backlog_drops_per_s", float64(c.Dropped) / v.seconds})
	}
	if l.own(l.NetRX) >= saturatedRatio && (c.Dropped > 0 || v.missed(device) > 0) {
		f.Severity = Critical
	}
	if id != "RX101" {
		f.Explains = append(f.Explains, Symptom{ID: "RX101", Subject: fmt.Sprintf("cpu %d", cpu),
			Summary:  fmt.Sprintf("%s of cpu %d goes to receive softirq, %s of all there is, while %s", percent(l.NetRX), cpu, percent(ratio(l.NetRX, total)), v.freeText(cpu)),
			Evidence: Evidence{{"cpu_receive_softirq_ratio", l.NetRX}, {"share_of_all_receive_softirq_ratio", ratio(l.NetRX, total)}}})
	}
	for _, look := range symptoms {
		if s, ok := look(v, cpu, device); ok {
			f.Explains = append(f.Explains, s)
		}
	}
	for _, w := range v.loads {
		if w.CPU == cpu && w.Steal < maxSteal/4 {
			f.RuledOut = append(f.RuledOut, fmt.Sprintf("stolen time: %s of cpu %d", percent(w.Steal), cpu))
		}
	}
	return f
}

// demand is how much more was offered than handled on a CPU, ≥ 1.
func (v *view) demand(cpu int) float64 {
	c := v.cpus[cpu]
	if c.Processed == 0 {
		return 1
	}
	return min(4, float64(c.Processed+c.Dropped)/float64(c.Processed))
}

func (v *view) sends(device string) float64 {
	for _, d := range v.s.Devices {
		if d.Name == device {
			return float64(d.TXPackets) / v.seconds
		}
	}
	return 0
}

func (v *view) missed(device string) uint64 {
	for _, d := range v.s.Devices {
		if d.Name == device {
			return d.RXMissed
		}
	}
	return 0
}

func part(a, b uint64) float64 { return ratio(float64(a), float64(b)) }

func ratio(a, b float64) float64 {
	if b == 0 {
		return 0
	}
	return a / b
}

// backlogCause explains a CPU whose time goes to the per-CPU backlog: RPS put
// it there, or a device without NAPI was sent to from this CPU. share is the
// backlog's part of the poll time, 0 not known.
func (v *view) backlogCause(cpu int, share float64) (Finding, bool) {
	var byMask, inline []string
	for _, d := range v.backlogDevices() {
		if m := v.union(d); m.Contains(cpu) {
			byMask = append(byMask, d)
		} else if m.IsEmpty() && v.nics[d].Kind == nic.Virtual && !v.polled(d) {
			inline = append(inline, d)
		}
	}
	switch {
	case len(byMask) > 0:
		return v.rpsCause(cpu, byMask[0], byMask[1:], share), true
	case len(inline) > 0 && (v.s.Level >= 1 || v.received(inline[0]) >= mostly*v.packets(cpu)):
		return v.inlineCause(cpu, inline[0], share), true
	case share == 0 || v.received("lo") >= dominant*v.packets(cpu):
		return Finding{}, false
	}
	f := v.finding("RX101", cpu, "", fmt.Sprintf("cpu %d", cpu))
	f.Summary = fmt.Sprintf("%s of cpu %d goes to packets handed to its backlog while %s, and no device of this network namespace hands them over", percent(v.load[cpu].NetRX), cpu, v.freeText(cpu))
	f.Evidence = append(f.Evidence, Fact{"backlog_share_of_polls_ratio", share}, Fact{"loopback_packets_per_s", v.received("lo")})
	f.Remedy = "look for veth devices and RPS masks in the other network namespaces: run rxsteer there (nsenter --net)"
	f.RuledOut = append(f.RuledOut, "loopback: it carries too little", "an RPS mask of a device here that carries traffic")
	return f, true
}

// received is the packets per second of a device.
func (v *view) received(device string) float64 {
	for _, d := range v.s.Devices {
		if d.Name == device {
			return float64(d.RXPackets) / v.seconds
		}
	}
	return 0
}

// backlogDevices is the devices that may fill backlogs, busiest first.
func (v *view) backlogDevices() []string {
	var out []string
	for _, d := range v.traffic() {
		out = append(out, d.Name)
	}
	if len(v.s.Devices) == 0 { // a sample without device counters: by settings alone
		out = slices.Sorted(maps.Keys(v.nics))
	}
	return out
}

// union is the CPUs of all RPS masks of a device.
func (v *view) union(device string) cpuset.Set {
	var out cpuset.Set
	for _, q := range v.rxQueues(device) {
		m, _ := v.mask(device, q)
		out = out.Union(m)
	}
	return out
}

// polled reports whether a device had polls of its own.
func (v *view) polled(device string) bool {
	return slices.ContainsFunc(v.s.NAPIs, func(p collector.NAPI) bool {
		return p.IfIndex != 0 && p.Device == device && p.Packets > 0 && (p.Netns == 0 || v.netns == 0 || p.Netns == v.netns)
	})
}

// backlogTime is the backlog's poll time per CPU, in CPUs.
func (v *view) backlogTime(on cpuset.Set) map[int]float64 {
	out := map[int]float64{}
	for _, p := range v.s.NAPIs {
		if p.IfIndex == 0 && on.Contains(p.CPU) {
			out[p.CPU] += float64(p.Time) / float64(v.s.Interval)
		}
	}
	if v.s.Level == 0 {
		for c := range on.All() {
			out[c] = v.load[c].NetRX
		}
	}
	return out
}

// rpsCause explains a hot RPS target.
func (v *view) rpsCause(cpu int, device string, others []string, share float64) Finding {
	var queues []int
	var masks []string
	single := true
	var all cpuset.Set
	for _, q := range v.rxQueues(device) {
		m, _ := v.mask(device, q)
		if !m.Contains(cpu) {
			continue
		}
		queues = append(queues, q)
		masks = append(masks, m.String())
		all = all.Union(m)
		if m.Intersect(v.online).Len() > 1 {
			single = false
		}
	}
	site := func(f *Finding) {
		f.Site.Queues = queues
		f.Site.Movable = v.backlogTime(all)
		f.Site.PollCPUs = v.pollCPUs(device)
		f.Evidence = append(f.Evidence, Fact{"rps_queues", cpuset.Of(queues...).String()}, Fact{"rps_cpus", strings.Join(slices.Compact(masks), " ")})
		if share > 0 {
			f.Evidence = append(f.Evidence, Fact{"backlog_share_of_polls_ratio", share})
		}
		if len(others) > 0 {
			f.RuledOut = append(f.RuledOut, fmt.Sprintf("less traffic than %s: %s", device, strings.Join(others, ", ")))
		}
	}
	target := fmt.Sprintf("cpu %d", cpu)
	why := ""
	switch {
	case single:
		why = fmt.Sprintf("the RPS mask of %s names cpu %d alone, so all its protocol work queues there", device, cpu)
	case all.Intersect(v.online).SubsetOf(v.siblings(cpuset.Of(cpu))):
		why = fmt.Sprintf("the RPS mask of %s (%s) holds only hardware threads of one core", device, all)
		target = "core of cpu " + fmt.Sprint(cpu)
	case all.Intersect(v.usable).Len() <= 1:
		why = fmt.Sprintf("all but one CPU of the RPS mask of %s (%s) are isolated or offline", device, all)
	}
	if why == "" {
		f := v.finding("RX101", cpu, device, device)
		f.Summary = fmt.Sprintf("%s of cpu %d goes to receive softirq although RPS of %s spreads over %s, while %s: few flows, or one much larger than the rest", percent(v.load[cpu].NetRX), cpu, device, all, v.freeText(cpu))
		f.Remedy = "RPS places whole flows: it cannot split one. Look at the flows; RFS helps when the reader of the large one is pinned to another CPU"
		f.RuledOut = append(f.RuledOut, fmt.Sprintf("a narrow RPS mask: it holds %d online CPUs", all.Intersect(v.online).Len()))
		site(&f)
		f.Site.Movable = nil
		return f
	}
	f := v.finding("RX303", cpu, device, device)
	f.Summary = fmt.Sprintf("%s: %s of %s goes to receive softirq while %s", why, percent(v.load[cpu].NetRX), target, v.freeText(cpu))
	f.Remedy = fmt.Sprintf("widen rps_cpus of %s over free physical cores of its node", device)
	f.RuledOut = append(f.RuledOut, fmt.Sprintf("too few CPUs: %s free", v.free(cpu)))
	site(&f)
	return f
}

// inlineCause explains a CPU that runs the receive side of a device without
// NAPI because the sender runs there (netif_rx queues to the local backlog).
func (v *view) inlineCause(cpu int, device string, share float64) Finding {
	f := v.finding("RX301", cpu, device, device)
	q := v.rxQueues(device)
	f.Summary = fmt.Sprintf("%s has no interrupt of its own and RPS is off, so cpu %d, where packets are sent to it, does all its receive work: %s of it, while %s",
		device, cpu, percent(v.load[cpu].NetRX), v.freeText(cpu))
	f.Remedy = fmt.Sprintf("set rps_cpus of %s to free physical cores", device)
	f.Evidence = append(f.Evidence, Fact{"rx_queues", len(q)}, Fact{"rps_cpus", ""}, Fact{"backlog_share_of_polls_ratio", share})
	f.Site.Queues, f.Site.Movable = q, v.backlogTime(cpuset.Of(cpu))
	return f
}

// pollCPUs is where a device is polled.
func (v *view) pollCPUs(device string) []int {
	var out []int
	for _, p := range v.s.NAPIs {
		if p.IfIndex != 0 && p.Device == device && p.Packets > 0 && p.CPU >= 0 {
			out = append(out, p.CPU)
		}
	}
	for _, q := range v.nics[device].Queues {
		if len(out) == 0 || v.s.Level == 0 {
			out = append(out, q.Effective.Slice()...)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// pollCause explains a CPU whose time goes to polling one device. share is its
// part of the poll time, 0 not known.
func (v *view) pollCause(cpu int, device string, queues []int, share float64) Finding {
	if len(queues) == 0 { // drivers that do not tell which NAPI serves which queue: by interrupts
		queues = v.placesOn(device, cpu)
	}
	all := v.rxQueues(device)
	busy, where := v.busyQueues(device)
	n := v.nics[device]
	rps := v.union(device)
	usable := v.usable
	if local, ok := v.node(device); ok && local.Intersects(usable) {
		usable = usable.Intersect(local)
	}
	site := func(f *Finding, movable bool) {
		f.Site.Queues = queues
		f.Site.PollCPUs = v.pollCPUs(device)
		f.Evidence = append(f.Evidence, Fact{"rx_queues", len(all)}, Fact{"busy_queues", len(busy)}, Fact{"rps_cpus", rps.String()}, Fact{"usable_cpus", usable.Len()})
		if share > 0 {
			f.Evidence = append(f.Evidence, Fact{"device_share_of_polls_ratio", share})
		}
		if movable {
			f.Site.Movable = v.pollTime(device, cpu)
		}
	}
	load := percent(v.load[cpu].NetRX)
	virtual := n.Kind == nic.Virtual
	on := rps.Intersect(v.online)
	if !on.IsEmpty() && on.SubsetOf(v.siblings(cpuset.Of(cpu))) {
		return v.rpsCause(cpu, device, nil, 0) // RPS hands the work back to the core that polls
	}
	switch {
	case !rps.IsEmpty() && on.IsEmpty():
		f := v.finding("RX303", cpu, device, device)
		f.Summary = fmt.Sprintf("the RPS mask of %s (%s) holds only CPUs that are offline, so RPS does nothing: cpu %d spends %s in its receive softirq while %s", device, rps, cpu, load, v.freeText(cpu))
		f.Remedy = fmt.Sprintf("set rps_cpus of %s to free physical cores that are online", device)
		site(&f, true)
		return f
	case len(all) > 0 && rps.IsEmpty() && (virtual || len(all) <= 1 || len(all) < usable.Len() && len(busy)*4 >= len(all)*3 && spread(where)):
		f := v.finding("RX301", cpu, device, device)
		switch {
		case virtual && len(all) > 1:
			f.Summary = fmt.Sprintf("%s has no interrupt to move and RPS is off: its receive work stays on cpu %d, %s of it, while %s", device, cpu, load, v.freeText(cpu))
		default:
			f.Summary = fmt.Sprintf("%s has %s for %d usable CPUs and RPS is off: cpu %d spends %s in its receive softirq while %s", device, count(len(all), "receive queue"), usable.Len(), cpu, load, v.freeText(cpu))
			f.RuledOut = append(f.RuledOut, fmt.Sprintf("queues left idle: %d of %d carry traffic", max(len(busy), 1), len(all)))
		}
		f.Remedy = fmt.Sprintf("more channels where the driver has them; else rps_cpus of %s on free physical cores of its node", device)
		site(&f, true)
		if len(all) > 1 {
			f.Site.Queues = all
		}
		return f
	case len(queues) > 1 && n.Kind == nic.Physical && !v.threadedNAPI(device):
		f := v.finding("RX102", cpu, device, device)
		f.Summary = fmt.Sprintf("vectors of %s of %s are handled on cpu %d: %s of it goes to receive softirq while %s", count(len(queues), "busy queue"), device, cpu, load, v.freeText(cpu))
		f.Remedy = "give each busy queue's vector a CPU of its own on the device's node (smp_affinity), first of all; RPS over enough queues costs more than it gives"
		var irqs []int
		for _, q := range n.Queues {
			if q.IRQ >= 0 && slices.Contains(queues, q.RX) {
				irqs = append(irqs, q.IRQ)
			}
		}
		site(&f, false)
		f.Evidence = append(f.Evidence, Fact{"queues", cpuset.Of(queues...).String()}, Fact{"irqs", joinInts(irqs)})
		f.Site.IRQs = irqs
		f.RuledOut = append(f.RuledOut, fmt.Sprintf("too few queues: %d for %d usable CPUs", len(all), usable.Len()))
		if wide := v.wide(device, queues); wide > 0 {
			f.Explains = append(f.Explains, v.wideMasks(cpu, wide, len(queues)))
		}
		return f
	}
	f := v.finding("RX101", cpu, device, device)
	switch {
	case !rps.IsEmpty():
		f.Summary = fmt.Sprintf("%s of cpu %d goes to polling %s itself although RPS (%s) takes the protocol work, while %s", load, cpu, device, rps, v.freeText(cpu))
		f.Remedy = "the driver's part of the work cannot be moved by RPS: spread it over more queues (channels), or make it cheaper (GRO, coalescing)"
		f.RuledOut = append(f.RuledOut, fmt.Sprintf("RPS off: it is on over %s", rps))
	case len(busy) == 1 && len(all) > 1:
		f.Summary = fmt.Sprintf("queue imbalance, not interrupt imbalance: 1 of %d queues of %s carries its traffic, so cpu %d spends %s in receive softirq while %s", len(all), device, cpu, load, v.freeText(cpu))
		f.Remedy = v.sees(device, &f)
		f.RuledOut = append(f.RuledOut, fmt.Sprintf("several busy vectors on cpu %d", cpu), fmt.Sprintf("too few queues: %d", len(all)))
	default:
		f.Summary = fmt.Sprintf("%s of cpu %d goes to receive softirq of %s while %s", load, cpu, device, v.freeText(cpu))
		f.Remedy = "compare the load of the queues: fit the indirection table to it"
	}
	site(&f, false)
	return f
}

func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

func joinInts(v []int) string {
	var b strings.Builder
	for i, n := range v {
		if i > 0 {
			b.WriteByte(' ')
		}
		fmt.Fprint(&b, n)
	}
	return b.String()
}

// spread reports whether no two busy queues share a CPU.
func spread(where map[int]int) bool {
	seen := map[int]bool{}
	for _, c := range where {
		if seen[c] {
			return false
		}
		seen[c] = true
	}
	return true
}

// busyQueues is the receive queues that carry a device's packets, and the CPU that
// polls each most.
func (v *view) busyQueues(device string) ([]int, map[int]int) {
	load := v.queueLoad(device)
	where := map[int]int{}
	for _, q := range load.busy() {
		where[q] = load.cpu(q)
	}
	return load.busy(), where
}

// pollTime is the part of a device's poll time that RPS can move, by CPU, in CPUs.
func (v *view) pollTime(device string, hot int) map[int]float64 {
	out := map[int]float64{}
	for _, p := range v.s.NAPIs {
		if p.IfIndex != 0 && p.Device == device {
			out[p.CPU] += (1 - driverPart) * float64(p.Time) / float64(v.s.Interval)
		}
	}
	if v.s.Level == 0 && hot >= 0 {
		out[hot] = (1 - driverPart) * v.load[hot].NetRX
	}
	return out
}

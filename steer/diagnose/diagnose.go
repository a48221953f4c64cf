package diagnose

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/rxsteer/rxsteer/collector"
	"github.com/rxsteer/rxsteer/internal/cpuset"
	"github.com/rxsteer/rxsteer/internal/host/knob"
	"github.com/rxsteer/rxsteer/internal/host/nic"
	"github.com/rxsteer/rxsteer/internal/host/topo"
)

// What must be true before anything is said. A trigger below these is noise: it would
// be seen on healthy hosts.
const (
	// minInterval is the shortest interval judged, seconds: /proc/stat counts in ticks of 10 ms.
	minInterval = 0.5
	// minPackets is the least traffic on a CPU or device worth steering, packets/s.
	minPackets = 1000
	// hotRatio is the part of a CPU's own (not stolen) time in receive softirq that
	// makes it hot; saturatedRatio leaves it no room for a burst.
	hotRatio       = 0.5
	saturatedRatio = 0.85
	// concentration is how much more receive softirq than the average other
	// usable CPU the hot one does.
	concentration = 2.0
	// freeIdle is the idle part that makes a CPU free to take work, and
	// freeNetRX how much receive softirq of the hot CPU's it may already do.
	freeIdle  = 0.2
	freeNetRX = 0.5
	// maxSteal is the stolen part above which a CPU's figures speak of the
	// hypervisor, not of the queues.
	maxSteal = 0.2
	// persistence is the part of the sub-windows in which a CPU must be hot.
	persistence = 2.0 / 3
	// dominant is the part of a CPU's poll time that makes one source its cause.
	dominant = 0.5
	// mostly is the part of a CPU's packets that one device must bring to be its cause where
	// only counters tell.
	mostly = 0.8
	// busyQueue is the part of a device's packets that makes a queue busy.
	busyQueue = 0.05
	// driverPart is the part of a poll that stays where the vector is when RPS
	// takes the rest: descriptors, buffers, GRO. Order of magnitude only; the
	// judge of apply measures what it really was.
	driverPart = 0.3
	// squeezeRatio (per NET_RX run) and squeezePerS are what time squeezes must
	// exceed; a handful per second is normal (net_rx_action in net/core/dev.c
	// counts each run that ends with work left).
	squeezeRatio = 0.1
	squeezePerS  = 20
	// dropRatio (of offered packets) and dropPerS are what backlog drops must exceed.
	dropRatio = 1e-4
	dropPerS  = 5
)

// Input is what a diagnosis is made from.
type Input struct {
	Snapshot *knob.Snapshot
	NICs     []nic.NIC
	Topology *topo.Topology
	Sample   *collector.Sample
	// Windows are sub-intervals of Sample, oldest first, when there are any:
	// what they do not bear out is not persistent.
	Windows []*collector.Sample
	// Baseline is what should be set (RX801); nil when none was given. FirstSeen tells when a difference
	// from it was seen first; nil where nobody watched.
	Baseline  *knob.Snapshot
	FirstSeen func(knob.Ref) (time.Time, bool)
	// Events are messages of the kernel log.
	Events []Event
	// Captured says that the input was read from texts or a bundle, not from this host.
	Captured bool
	// Remarks are what was not understood of a capture, or contradicts itself, as sentences.
	Remarks []string
	// Devices limits the report to these interfaces and the physical ones they stand on; empty means every
	// one that carries traffic.
	Devices []string
}

// Remarked is Unmeasured.What of a remark about a capture.
const Remarked = "capture"

// Event is a message of the kernel log, by what it means: "affinity-broken".
type Event struct{ Kind, Text string }

// Diagnose says what is wrong, what was checked, and what could not be seen.
func Diagnose(in Input) *Report {
	v := newView(in)
	r := &Report{Named: v.in.Devices, Findings: []Finding{}, Checked: []string{}, Unmeasured: []Unmeasured{}}
	r.IntervalS, r.Level, r.Loads = v.seconds, v.s.Level, append([]Load{}, v.loads...)
	r.SinceBoot, r.Untimed = v.s.SinceBoot, v.s.Untimed
	measured := true
	switch {
	case in.Sample == nil:
		measured = false
		r.unmeasured("receive load", "no sample was taken", "all")
	case v.seconds < minInterval:
		measured = false
		v.gaps(r)
		r.unmeasured("receive load", fmt.Sprintf("the interval of %.2f s is shorter than %.1f s", v.seconds, minInterval), "all")
	default:
		v.gaps(r)
	}
	for _, text := range in.Remarks {
		r.unmeasured(Remarked, text, "")
	}
	for _, n := range v.inventory() {
		if vf := v.pairVF(n.Name); vf != "" && (v.wanted(n.Name) || v.wanted(vf)) {
			r.checked("%s and %s are one interface: its packets arrive on the virtual function %s, and there they are judged", n.Name, vf, vf)
		}
	}
	for _, rule := range rules {
		if measured || rule.settings {
			rule.look(v, r)
		}
	}
	v.shares(r)
	v.note901(r)
	v.levels(r)
	v.order(r.Findings)
	return r
}

func (r *Report) unmeasured(what, why, weakens string) {
	r.Unmeasured = append(r.Unmeasured, Unmeasured{What: what, Why: why, Weakens: weakens})
}

func (r *Report) checked(format string, args ...any) {
	r.Checked = append(r.Checked, fmt.Sprintf(format, args...))
}

// shares adds to findings about how a device spreads its packets what each queue got.
func (v *view) shares(r *Report) {
	for i := range r.Findings {
		f := &r.Findings[i]
		if !slices.Contains([]ID{"RX101", "RX201", "RX202", "RX203", "RX204", "RX205", "RX206", "RX208", "RX602", "RX701"}, f.ID) || f.Site.Device == "" && len(f.Site.Queues) == 0 {
			continue
		}
		queues, load := v.rxQueues(f.Site.Device), v.queueLoad(f.Site.Device)
		if len(queues) < 2 || load.total == 0 || queues[len(queues)-1] != len(queues)-1 {
			continue
		}
		f.Queues = make([]float64, len(queues))
		for q := range f.Queues {
			f.Queues[q] = math.Round(1e4*part(load.counts[q], load.total)) / 1e4
		}
	}
}

// note901 adds RX901 when a gap weakens a conclusion.
func (v *view) note901(r *Report) {
	var what, weak []string
	for _, u := range r.Unmeasured {
		if u.Weakens == "" {
			continue
		}
		what = append(what, u.What)
		for w := range strings.SplitSeq(u.Weakens, ", ") {
			if !slices.Contains(weak, w) {
				weak = append(weak, w)
			}
		}
	}
	if len(what) == 0 {
		return
	}
	slices.Sort(weak)
	remedy := "run with the privileges and on the kernel that rxsteer doctor asks for; each gap says why under unmeasured"
	if v.in.Captured {
		remedy = "add the missing texts at two points in time (interrupts.0 and .1, stat, softnet_stat, with time.0 and .1), or take a bundle on the host: rxsteer bundle"
	}
	r.Findings = append(r.Findings, Finding{
		ID: "RX901", Severity: Info, Subject: "host",
		Summary:  fmt.Sprintf("not measured: %s; weaker for it: %s", strings.Join(what, "; "), strings.Join(weak, ", ")),
		Evidence: Evidence{{"gaps", len(what)}, {"weakens", strings.Join(weak, " ")}, {"level", r.Level}},
		Remedy:   remedy,
		Site:     Site{CPU: -1},
	})
}

// view is the input made easy to ask.
type view struct {
	in      Input
	s       *collector.Sample
	seconds float64
	cpus    map[int]collector.CPU
	loads   []Load
	load    map[int]Load
	polls   map[int]uint64 // packets polled on each CPU
	usable  cpuset.Set     // online and not kept free of other work
	online  cpuset.Set
	topo    map[int]topo.CPU
	nics    map[string]nic.NIC
	netns   uint64
}

func newView(in Input) *view {
	if in.Sample == nil {
		in.Sample = &collector.Sample{} // settings alone may tell something
	}
	in.Devices = nic.Under(in.NICs, in.Devices)
	v := &view{in: in, s: in.Sample, seconds: in.Sample.Interval.Seconds(),
		cpus: map[int]collector.CPU{}, load: map[int]Load{}, polls: map[int]uint64{}, topo: map[int]topo.CPU{}, nics: map[string]nic.NIC{}}
	for _, c := range v.s.CPUs {
		v.cpus[c.CPU] = c
	}
	for _, p := range v.s.NAPIs {
		if p.CPU >= 0 {
			v.polls[p.CPU] += p.Packets
		}
	}
	v.loads = loads(v.s)
	for _, l := range v.loads {
		v.load[l.CPU] = l
	}
	if t := in.Topology; t != nil {
		for _, c := range t.CPUs {
			v.topo[c.ID] = c
		}
		v.online = t.Online
		v.usable = Usable(t)
	}
	if v.online.IsEmpty() {
		for id := range v.cpus {
			v.online = v.online.Union(cpuset.Of(id))
		}
		v.usable = v.online
	}
	for _, n := range in.NICs {
		v.nics[n.Name] = n
		v.netns = n.Netns
	}
	if in.Snapshot != nil && in.Snapshot.Host.Netns != 0 {
		v.netns = in.Snapshot.Host.Netns
	}
	return v
}

// Usable is the CPUs receive work may be placed on: online, not isolated, not nohz_full. The kernel
// itself refuses both to RPS (rps_cpumask_housekeeping in net/core/net-sysfs.c:
// HK_TYPE_DOMAIN and HK_TYPE_WQ, the latter set by nohz_full=).
func Usable(t *topo.Topology) cpuset.Set {
	return t.Online.Minus(t.Isolated).Minus(t.NoHzFull).Minus(t.Partitions)
}

// loads turns CPU times into parts of the interval.
func loads(s *collector.Sample) []Load {
	ns := float64(s.Interval)
	if ns <= 0 {
		return nil
	}
	ratio := func(n uint64) float64 { return min(float64(n)/ns, 1) }
	told := statTold(s)
	out := make([]Load, 0, len(s.CPUs))
	for _, c := range s.CPUs {
		l := Load{CPU: c.CPU, Steal: ratio(c.Steal), Packets: float64(c.Processed) / s.Interval.Seconds()}
		if s.Level >= 1 {
			l.NetRX = ratio(c.SoftirqTime[collector.NetRX])
		} else {
			l.NetRX = ratio(c.Softirq)
		}
		if told {
			l.Idle = min(ratio(c.Idle), 1-l.NetRX)
		} else {
			l.Idle = 1 - l.NetRX
		}
		l.Other = max(0, 1-l.NetRX-l.Idle-l.Steal)
		out = append(out, l)
	}
	slices.SortFunc(out, func(a, b Load) int { return cmp.Compare(a.CPU, b.CPU) })
	return out
}

// statTold reports whether the sample holds /proc/stat times. Pasted texts may
// lack them without a word; a live sample says when it could not read them, and
// one without any idle or softirq tick is of a host that is busy to the last.
func statTold(s *collector.Sample) bool {
	if s.Level >= 1 {
		return !slices.ContainsFunc(s.Unmeasured, func(u collector.Unmeasured) bool { return u.What == collector.StatTimes })
	}
	return slices.ContainsFunc(s.CPUs, func(c collector.CPU) bool { return c.Idle+c.Softirq+c.Irq+c.Steal > 0 })
}

// pairVF is the virtual function that carries the packets of a synthetic device, "" where that carries its own: its
// counters hold those of the function too (netvsc_get_stats64 in drivers/net/hyperv/netvsc_drv.c), its queues do not.
func (v *view) pairVF(device string) string {
	n := v.nics[device]
	if n.Kind != nic.Physical {
		return ""
	}
	for _, l := range n.Lower {
		if v.nics[l].Up && v.nics[l].Kind == nic.Physical && v.queueLoad(l).total > v.queueLoad(device).total {
			return l
		}
	}
	return ""
}

// wanted reports whether the report is about a device ("" is no device).
func (v *view) wanted(device string) bool {
	return len(v.in.Devices) == 0 || device == "" || slices.Contains(v.in.Devices, device)
}

// gaps lists what the sample and the host did not tell.
func (v *view) gaps(r *Report) {
	if v.s.Level == 0 {
		r.unmeasured("receive softirq time per queue", "kernel counters only (level 0): the softirq time of /proc/stat holds every vector and names no device", "RX101, RX301, RX303")
	}
	if !statTold(v.s) {
		r.unmeasured("idle time per CPU", "the sample holds no /proc/stat times, a CPU counts as free when it does no receive work", "RX101, RX301, RX303")
	}
	lost := v.s.Lost[collector.LostPolls]
	var polls uint64
	for _, n := range v.s.NAPIs {
		polls += n.Polls
	}
	if lost > 0 && lost*100 > polls {
		r.unmeasured("part of the polls", fmt.Sprintf("%d events were lost beside %d recorded polls", lost, polls), "RX101, RX301, RX303")
	}
	for _, u := range v.s.Unmeasured {
		r.unmeasured(u.What, u.Why, "")
	}
	if v.in.Topology == nil {
		r.unmeasured("CPU topology", "not read: siblings, nodes and isolated CPUs are not known", "RX303")
	} else {
		for _, u := range v.in.Topology.Unmeasured {
			r.unmeasured("CPU topology", u, "")
		}
	}
	for _, n := range v.in.NICs {
		if n.Kind == nic.Physical && n.Up && v.wanted(n.Name) {
			v.mapGaps(r, n)
		}
	}
	for _, d := range v.traffic() {
		if !v.wanted(d.Name) {
			continue
		}
		for _, q := range v.rxQueues(d.Name) {
			if val := v.rpsValue(d.Name, q); !val.Known() && !val.IsAbsent() {
				r.unmeasured(knob.Ref{Knob: knob.RPSCPUs, Target: knob.On(d.Name, "rx-%d", q)}.String(), cmp.Or(val.Reason(), "not read"), "RX301, RX303")
				break
			}
		}
	}
}

// maxMapGaps bounds how many problems of one interface's map are listed.
const maxMapGaps = 3

// mapGaps tells where the sources of a queue map contradict each other or leave
// a hole: an interrupt on the wrong queue is worse than none.
func (v *view) mapGaps(r *Report, n nic.NIC) {
	what, weakens := "queue map of "+n.Name, "RX102, RX103, RX107"
	for i, problem := range n.Problems {
		if i == maxMapGaps {
			r.unmeasured(what, fmt.Sprintf("and %d more: see rxsteer status %s", len(n.Problems)-i, n.Name), weakens)
			return
		}
		r.unmeasured(what, problem, weakens)
	}
}

// traffic is the devices of this namespace that carry enough packets, and those
// that are named, busiest first; never the loopback unless named, and never a
// bond, bridge or VLAN unless named, whose packets are those of its lower devices; nor the half of a VF pair
// that gets none.
func (v *view) traffic() []collector.Device {
	var out []collector.Device
	for _, d := range v.s.Devices {
		named := slices.Contains(v.in.Devices, d.Name)
		if !named && (float64(d.RXPackets)/v.seconds < minPackets || d.Name == "lo" || v.nics[d.Name].Kind == nic.Stack) || v.pairVF(d.Name) != "" {
			continue
		}
		out = append(out, d)
	}
	slices.SortFunc(out, func(a, b collector.Device) int {
		return cmp.Or(-cmp.Compare(a.RXPackets, b.RXPackets), cmp.Compare(a.Name, b.Name))
	})
	return out
}

// rxQueues is the receive queues of a device.
func (v *view) rxQueues(device string) []int {
	var out []int
	for _, q := range v.nics[device].Queues {
		if q.RX >= 0 && !q.XSK {
			out = append(out, q.RX)
		}
	}
	if len(out) == 0 && v.in.Snapshot != nil {
		for _, d := range v.in.Snapshot.Devices {
			if d.Name == device {
				for q := range d.RXQueues {
					out = append(out, q)
				}
			}
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

func (v *view) rpsValue(device string, queue int) knob.Value {
	if v.in.Snapshot == nil {
		return knob.Unknown("no snapshot")
	}
	return v.in.Snapshot.Get(knob.Ref{Knob: knob.RPSCPUs, Target: knob.On(device, "rx-%d", queue)})
}

// mask is the RPS mask of a queue; false when it is not known.
func (v *view) mask(device string, queue int) (cpuset.Set, bool) {
	val := v.rpsValue(device, queue)
	if val.IsAbsent() {
		return cpuset.Set{}, true
	}
	var text string
	if val.Decode(&text) != nil {
		return cpuset.Set{}, false
	}
	s, err := cpuset.ParseList(text)
	return s, err == nil
}

// siblings is the CPUs that share a core with any of the given ones, themselves included.
func (v *view) siblings(of cpuset.Set) cpuset.Set {
	out := of
	for c := range of.All() {
		t, ok := v.topo[c]
		if !ok {
			continue
		}
		for id, o := range v.topo {
			if o.Core == t.Core {
				out = out.Union(cpuset.Of(id))
			}
		}
	}
	return out
}

// node is the CPUs of a device's NUMA node; false when the device or the host has none.
func (v *view) node(device string) (cpuset.Set, bool) {
	n, ok := v.nics[device]
	if !ok || n.Node < 0 || n.Kind != nic.Physical {
		return cpuset.Set{}, false
	}
	var out cpuset.Set
	for id, c := range v.topo {
		if c.Node == n.Node {
			out = out.Union(cpuset.Of(id))
		}
	}
	return out, !out.IsEmpty()
}

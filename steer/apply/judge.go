package apply

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/rxsteer/rxsteer/collector"
	"github.com/rxsteer/rxsteer/internal/cpuset"
	"github.com/rxsteer/rxsteer/internal/host/knob"
	"github.com/rxsteer/rxsteer/steer/plan"
)

// Word is a verdict in one word.
type Word string

const (
	Better    Word = "better"
	Same      Word = "no difference"
	Worse     Word = "worse"
	NotJudged Word = "not judged"
)

// Measure is one figure before and after, as means over windows.
type Measure struct {
	Name   string  `json:"name"` // ends in its unit: _ratio, _per_s, _ns, _cpus; background_… is of others
	Before float64 `json:"before"`
	After  float64 `json:"after"`
	// Significant: the difference is larger than the windows' scatter explains (Welch's t, 95 %).
	Significant bool `json:"significant"`
}

// Verdict compares what was measured before with what was measured after.
type Verdict struct {
	Word     Word      `json:"verdict"`
	Why      string    `json:"why"`
	Devices  []string  `json:"devices,omitempty"` // whose traffic was judged; none: the whole host's
	Windows  int       `json:"windows"`           // on each side
	Measures []Measure `json:"measures"`
}

// The differences that count: below these even a significant one is no reason to act.
const (
	hottestPoints = 0.05 // of a CPU's time
	worsePoints   = 0.10
	deliveredGain = 0.02
	deliveredLoss = 0.05
	// loadLoss is the loss up to which fewer packets with a cooler CPU and no drops are the load's own
	// change: nothing on this host held them back.
	loadLoss     = 0.15
	dropPoints   = 0.001 // of packets offered
	leastTraffic = 100   // packets/s, below which there is nothing to judge
	// Latencies come from log2 histograms: less than half a bucket is no difference.
	latencyTimes   = 1.5
	latencyLeast   = 20e3 // ns
	leastTimed     = 100  // packets or polls in a window, below which it has no p99
	disorderPoints = 0.01 // of the TCP segments received
	leastWindows   = 3
	// sparePoints is what of a CPU may go to receive softirq where interrupts that come sooner were asked for.
	sparePoints = 0.50
	// moreBackground is how many CPUs' time others must have taken or freed to explain a difference of ours.
	moreBackground = 0.1
)

// Scope is whose traffic a verdict is about. All else on the host is background: it is reported, and
// where it changed enough to explain a difference, that difference proves nothing.
type Scope struct {
	Devices []string // by name; none is the whole host
	// Before and After are the CPUs to whose backlogs RPS (and RFS) may bring packets of the
	// devices on either side; empty where it is off.
	Before, After cpuset.Set
	// Sooner: interrupts are to come sooner. They cost CPU time, which is the price and no harm while the CPU has room;
	// what it buys, the wait for the interrupt, ends before a packet can be seen here.
	Sooner bool
}

// scopeOf is what changes concern: their devices, or the host when they are only of that.
func scopeOf(changes []plan.Change, before, after *knob.Snapshot) Scope {
	sc := Scope{Devices: devicesOf(changes), Sooner: slices.ContainsFunc(changes, sooner)}
	sc.Before, sc.After = rpsReach(before, sc.Devices), rpsReach(after, sc.Devices)
	return sc
}

// sooner says of a change that it shortens a time a card waits before it interrupts.
func sooner(c plan.Change) bool {
	var from, to map[string]any
	if c.Knob != knob.Coalesce && c.Knob != knob.QueueCoal || c.From.Decode(&from) != nil || c.To.Decode(&to) != nil {
		return false
	}
	for name := range to {
		was, before := from[name].(json.Number)
		is, after := to[name].(json.Number)
		if !strings.HasSuffix(name, "-usecs") || !before || !after {
			continue
		}
		w, err := was.Int64()
		n, err2 := is.Int64()
		if err == nil && err2 == nil && n < w {
			return true
		}
	}
	return false
}

// devicesOf names the devices of changes, sorted.
func devicesOf(changes []plan.Change) []string {
	var out []string
	for _, c := range changes {
		if d := c.Target.Device(); d != "" {
			out = append(out, d)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// rpsReach is the CPUs to which RPS takes packets of the devices; with RFS that is any (get_rps_cpu in
// net/core/dev.c).
func rpsReach(s *knob.Snapshot, devices []string) cpuset.Set {
	var masks cpuset.Set
	rfs := false
	for _, x := range s.Settings {
		if !slices.Contains(devices, x.Target.Device()) {
			continue
		}
		var n int64
		switch x.Knob {
		case knob.RPSCPUs:
			if m, ok := set(x.Value); ok {
				masks = masks.Union(m)
			}
		case knob.RPSFlowCnt:
			rfs = rfs || x.Value.Decode(&n) == nil && n > 0
		}
	}
	var entries int64
	if rfs && s.Get(knob.Ref{Knob: knob.RPSSockFlowEntries, Target: knob.Host}).Decode(&entries) == nil && entries > 0 {
		if all, err := cpuset.ParseList(s.Host.CPUs); err == nil {
			return all
		}
	}
	return masks
}

// Judge compares windows before and after a change by what is in scope: receive softirq time of the
// CPU that spends most on it, packets delivered to the stack, and packets dropped in the host before it.
func Judge(sc Scope, before, after []*collector.Sample) *Verdict {
	v := &Verdict{Word: NotJudged, Devices: sc.Devices, Windows: min(len(before), len(after)), Measures: []Measure{}}
	if v.Windows < leastWindows {
		v.Why = fmt.Sprintf("%d windows on the shorter side, %d are needed", v.Windows, leastWindows)
		return v
	}
	was, is := accounts(before, sc.Devices, sc.Before), accounts(after, sc.Devices, sc.After)
	m := func(name string, of func(account) float64) Measure {
		a, b := series(was, of), series(is, of)
		x := Measure{Name: name, Before: mean(a), After: mean(b), Significant: welch(a, b)}
		v.Measures = append(v.Measures, x)
		return x
	}
	hot := m("hottest_cpu_receive_softirq_ratio", account.hottest)
	delivered := m("packets_delivered_per_s", func(a account) float64 { return a.delivered })
	drops := m("dropped_of_offered_ratio", account.dropRatio)
	m("receive_softirq_per_packet_ns", account.cost)
	// Figures that not every Sample holds are compared where both sides do.
	optional := func(name string, of func(*collector.Sample) (float64, bool)) Measure {
		a, b := told(before, of), told(after, of)
		if len(a) < leastWindows || len(b) < leastWindows {
			return Measure{Name: name}
		}
		x := Measure{Name: name, Before: mean(a), After: mean(b), Significant: welch(a, b)}
		v.Measures = append(v.Measures, x)
		return x
	}
	latency := optional("latency_p99_ns", func(s *collector.Sample) (float64, bool) { return latencyP99(s, sc.Devices) })
	optional("poll_p99_ns", func(s *collector.Sample) (float64, bool) { return pollP99(s, sc.Devices) })
	disorder := optional("tcp_out_of_order_ratio", outOfOrder)
	background := m("background_busy_cpus", account.background)
	if len(sc.Devices) > 0 {
		m("background_packets_per_s", func(a account) float64 { return a.others })
	}
	of := ""
	if len(sc.Devices) > 0 {
		of = " of " + strings.Join(sc.Devices, ", ")
	}
	if delivered.Before < leastTraffic && delivered.After < leastTraffic {
		v.Why = fmt.Sprintf("%.0f packets/s%s before, %.0f after: too little traffic", delivered.Before, of, delivered.After)
		return v
	}
	gain := 0.0
	if delivered.Before > 0 {
		gain = delivered.After/delivered.Before - 1
	}
	more := delivered.Significant && gain >= deliveredGain
	less := delivered.Significant && gain <= -deliveredLoss
	fewerDrops := drops.Significant && drops.Before-drops.After >= dropPoints
	moreDrops := drops.Significant && drops.After-drops.Before >= dropPoints
	// Where others' packets wait in the same backlogs the part that is ours is known only within bounds:
	// what counts is a difference that is there at their nearest.
	wasLow, wasHigh := mean(series(was, account.coolest)), mean(series(was, account.mostly))
	isLow, isHigh := mean(series(is, account.coolest)), mean(series(is, account.mostly))
	cooler := hot.Significant && wasLow-isHigh >= hottestPoints
	hotter := hot.Significant && isLow-wasHigh >= worsePoints && !(sc.Sooner && hot.After < sparePoints)
	slower := latency.Significant && latency.After >= latencyTimes*latency.Before && latency.After-latency.Before >= latencyLeast
	faster := latency.Significant && latency.Before >= latencyTimes*latency.After && latency.Before-latency.After >= latencyLeast
	reordered := disorder.Significant && disorder.After-disorder.Before >= disorderPoints

	// Others' part of the CPUs can also grow because we left them more, or shrink because we took
	// it: only what the CPUs were busy more or less in all is their own doing.
	busy := mean(series(is, account.busyCPUs)) - mean(series(was, account.busyCPUs))
	rise := min(background.After-background.Before, busy)
	fall := min(background.Before-background.After, -busy)
	disturbed := background.Significant && rise >= moreBackground
	relieved := background.Significant && fall >= moreBackground

	deliveredText := fmt.Sprintf("packets delivered%s %.0f → %.0f per second (%+.1f %%)", of, delivered.Before, delivered.After, gain*100)
	dropText := fmt.Sprintf("dropped %.2f → %.2f %% of those offered", drops.Before*100, drops.After*100)
	hotText := fmt.Sprintf("receive softirq%s on the hottest CPU %.0f → %.0f %%", of, hot.Before*100, hot.After*100)
	othersText := fmt.Sprintf("everything else on this host took %.2f → %.2f CPUs meanwhile", background.Before, background.After)
	latencyText := fmt.Sprintf("99 of 100 packets%s waited at most %.0f → %.0f µs", of, latency.Before/1e3, latency.After/1e3)
	disorderText := fmt.Sprintf("TCP segments out of order %.2f → %.2f %%", disorder.Before*100, disorder.After*100)
	say := func(w Word, why string) *Verdict {
		switch {
		case w == Worse && disturbed, w == Better && relieved:
			w, why = NotJudged, why+", but "+othersText+", which explains as much"
		case disturbed || relieved:
			why += "; " + othersText
		}
		v.Word, v.Why = w, why
		return v
	}
	switch {
	case less && cooler && gain > -loadLoss && drops.After < dropPoints:
		return say(Same, deliveredText+" with nothing dropped and the hottest CPU cooler: the load changed")
	case less:
		return say(Worse, deliveredText)
	case moreDrops:
		return say(Worse, dropText)
	case reordered:
		return say(Worse, disorderText)
	case slower && !more && !fewerDrops:
		return say(Worse, latencyText)
	case hotter && !more && !fewerDrops && !faster:
		return say(Worse, hotText)
	case more && fewerDrops:
		return say(Better, deliveredText+", "+dropText)
	case more:
		return say(Better, deliveredText)
	case fewerDrops:
		return say(Better, dropText)
	case cooler:
		return say(Better, hotText)
	case faster:
		return say(Better, latencyText)
	}
	return say(Same, hotText+", "+deliveredText+", "+dropText+": within the scatter of the windows or too small to matter")
}

// told is the figure of the windows that hold it.
func told(windows []*collector.Sample, of func(*collector.Sample) (float64, bool)) []float64 {
	var out []float64
	for _, s := range windows {
		if x, ok := of(s); ok {
			out = append(out, x)
		}
	}
	return out
}

// latencyP99 is what 99 of 100 packets in scope waited at most, ns: from the driver to the application,
// or where nobody reads here (a router) to the protocol layer. Level 2 measures it.
func latencyP99(s *collector.Sample, devices []string) (float64, bool) {
	for _, stages := range [][]collector.StageName{{collector.Total}, {collector.GROToStack, collector.GROToStackRPS}} {
		var h collector.Histogram
		for _, x := range s.Stages {
			if slices.Contains(stages, x.Stage) && (len(devices) == 0 || slices.Contains(devices, x.Device)) {
				for i, n := range x.Hist {
					h[i] += n
				}
			}
		}
		if p, ok := p99(h); ok {
			return p, true
		}
	}
	return 0, false
}

// pollP99 is what 99 of 100 polls in scope took at most, ns.
func pollP99(s *collector.Sample, devices []string) (float64, bool) {
	var h collector.Histogram
	for _, x := range s.NAPIs {
		if len(devices) == 0 || slices.Contains(devices, x.Device) {
			for i, n := range x.TimeHist {
				h[i] += n
			}
		}
	}
	return p99(h)
}

// p99 interpolates on the logarithm within a bucket.
func p99(h collector.Histogram) (float64, bool) {
	var all, below float64
	for _, n := range h {
		all += float64(n)
	}
	if all < leastTimed {
		return 0, false
	}
	want := all * 0.99
	for i, n := range h {
		if below+float64(n) >= want && i > 0 {
			return math.Exp2(float64(i-1) + (want-below)/float64(n)), true
		}
		below += float64(n)
	}
	return 0, true
}

// outOfOrder is the TCP segments that came before their turn, of all received in this network
// namespace (TCP_INC_STATS of tcp_data_queue_ofo in net/ipv4/tcp_input.c).
func outOfOrder(s *collector.Sample) (float64, bool) {
	in := s.Protocols["TcpInSegs"]
	if in < leastTimed {
		return 0, false
	}
	return float64(s.Protocols["TcpExtTCPOFOQueue"]) / float64(in), true
}

// account is one window, split into what is in scope and what is not.
type account struct {
	own  []float64 // of each CPU: the part of its time that is receive softirq in scope,
	low  []float64 // at least
	high []float64 // and at most
	busy []float64 // of each CPU: the part of its time it was not idle
	// Packets per second: in scope, in scope and dropped by ring or backlog, and out of scope.
	delivered, dropped, others float64
}

func accounts(windows []*collector.Sample, devices []string, reach cpuset.Set) []account {
	out := make([]account, len(windows))
	for i, s := range windows {
		out[i] = accountOf(s, devices, reach)
	}
	return out
}

func accountOf(s *collector.Sample, devices []string, reach cpuset.Set) account {
	var a account
	if s.Interval <= 0 {
		return a
	}
	interval := float64(s.Interval)
	var processed, backlogDrops, allDrops, missed float64
	for _, c := range s.CPUs {
		processed += float64(c.Processed)
		allDrops += float64(c.Dropped)
		if reach.IsEmpty() || reach.Contains(c.CPU) {
			backlogDrops += float64(c.Dropped)
		}
		a.busy = append(a.busy, clamp(1-float64(c.Idle)/interval))
	}
	var own times
	if len(devices) == 0 {
		for _, d := range s.Devices {
			missed += float64(d.RXMissed)
		}
		a.delivered, a.dropped = processed, allDrops+missed
		for _, c := range s.CPUs {
			t := receiveTime(s, c)
			own = append(own, [3]float64{t, t, t})
		}
	} else {
		var packets, dropped float64
		for _, d := range s.Devices {
			if slices.Contains(devices, d.Name) {
				packets += float64(d.RXPackets)
				dropped += float64(d.RXDropped)
				missed += float64(d.RXMissed)
			}
		}
		// A packet that found its backlog full was received by its device, and is counted as
		// dropped both there and on the CPU (enqueue_to_backlog in net/core/dev.c).
		a.delivered = max(0, packets-min(dropped, backlogDrops))
		a.dropped = dropped + missed
		a.others = max(0, processed-a.delivered)
		own = ownTime(s, devices, reach, packets)
	}
	for _, t := range own {
		a.own = append(a.own, clamp(t[0]/interval))
		a.low = append(a.low, clamp(t[1]/interval))
		a.high = append(a.high, clamp(t[2]/interval))
	}
	seconds := s.Interval.Seconds()
	a.delivered, a.dropped, a.others = a.delivered/seconds, a.dropped/seconds, a.others/seconds
	return a
}

// receiveTime is what a CPU spent in receive softirq, ns; at level 0 in all softirqs.
func receiveTime(s *collector.Sample, c collector.CPU) float64 {
	if s.Level >= 1 {
		return float64(c.SoftirqTime[collector.NetRX])
	}
	return float64(c.Softirq)
}

// times are, of each CPU, a time as estimated, at least and at most, ns.
type times [][3]float64

// ownTime is the receive softirq time that each CPU spent on packets of the devices: their NAPIs'
// polls, their packets' part of the backlog, and the tail of those. At level 0 all is like backlog.
func ownTime(s *collector.Sample, devices []string, reach cpuset.Set, packets float64) times {
	n := len(s.CPUs)
	at := map[int]int{}
	for i, c := range s.CPUs {
		at[c.CPU] = i
	}
	polled, backlog, ours := make([]float64, n), make([]float64, n), make([]float64, n) // ns
	waiting := make([]float64, n)                                                       // packets
	naps := map[string]bool{}                                                           // devices with polls of their own
	for _, p := range s.NAPIs {
		i, ok := at[p.CPU]
		if !ok {
			continue
		}
		polled[i] += float64(p.Time)
		if p.Device == collector.Backlog {
			backlog[i] += float64(p.Time)
			waiting[i] += float64(p.Packets)
			continue
		}
		naps[p.Device] = naps[p.Device] || p.Packets > 0
		if slices.Contains(devices, p.Device) {
			ours[i] += float64(p.Time)
		}
	}
	direct := reach.IsEmpty() && !slices.ContainsFunc(devices, func(d string) bool { return !naps[d] })
	if s.Level < 1 {
		for i, c := range s.CPUs {
			backlog[i], waiting[i] = float64(c.Softirq), float64(c.Processed)
		}
		direct, reach = false, cpuset.Set{}
	}
	var within, beyond, loops float64
	for i, c := range s.CPUs {
		if direct || !reach.IsEmpty() && !reach.Contains(c.CPU) { // no packet of ours comes here
			beyond += waiting[i]
			waiting[i] = 0
		}
		within += waiting[i]
	}
	for _, d := range s.Devices {
		if d.IfIndex == loopback && !slices.Contains(devices, d.Name) {
			loops += float64(d.RXPackets)
		}
	}
	// Packets merged by GRO wait as one: ours are at most those received, and not those that
	// loopback must have put there.
	most := min(packets, within)
	share := fill(waiting, min(most, max(0, within-max(0, loops-beyond))))
	mixed := most < mixedPackets*within || loops-beyond > (1-mixedPackets)*within
	out := make(times, n)
	for i, c := range s.CPUs {
		t := [3]float64{ours[i], ours[i], ours[i]}
		if waiting[i] > 0 {
			part := backlog[i] * share[i] / waiting[i]
			t[0] += part
			t[2] += backlog[i]
			if !mixed {
				t[1], t[2] = t[0], t[0]
			}
		}
		if polled[i] > 0 {
			for k := range t {
				t[k] += float64(c.Tail) * t[k] / polled[i]
			}
		}
		out[i] = t
	}
	return out
}

// loopback is LOOPBACK_IFINDEX of include/net/flow.h: the same in every network namespace.
const loopback = 1

// mixedPackets is the part of the packets in the backlogs that must be ours for the time there to be ours.
const mixedPackets = 0.9

// fill spreads n packets over queues that hold room for so many each, evenly as a flow hash does, what
// does not fit in one over the others.
func fill(room []float64, n float64) []float64 {
	out := make([]float64, len(room))
	order := make([]int, len(room))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int { return cmp.Compare(room[a], room[b]) })
	for k, i := range order {
		out[i] = min(room[i], n/float64(len(order)-k))
		n -= out[i]
	}
	return out
}

func clamp(ratio float64) float64 { return max(0, min(ratio, 1)) }

func sum(v []float64) (t float64) {
	for _, x := range v {
		t += x
	}
	return t
}

// hottest is receive softirq in scope on the CPU that has most, coolest and mostly its bounds.
func (a account) hottest() float64 { return highest(a.own) }
func (a account) coolest() float64 { return highest(a.low) }
func (a account) mostly() float64  { return highest(a.high) }

func highest(v []float64) float64 {
	if len(v) == 0 {
		return 0
	}
	return slices.Max(v)
}

func (a account) busyCPUs() float64 { return sum(a.busy) }

// background is the time of CPUs that went to anything else.
func (a account) background() float64 { return max(0, sum(a.busy)-sum(a.own)) }

func (a account) dropRatio() float64 {
	if a.dropped == 0 {
		return 0
	}
	return a.dropped / (a.dropped + a.delivered)
}

// cost is receive softirq time per packet, ns.
func (a account) cost() float64 {
	if a.delivered == 0 {
		return 0
	}
	return sum(a.own) * 1e9 / a.delivered
}

func series(s []account, of func(account) float64) []float64 {
	out := make([]float64, len(s))
	for i, x := range s {
		out[i] = of(x)
	}
	return out
}

func mean(v []float64) float64 { return sum(v) / float64(len(v)) }

func variance(v []float64) float64 {
	m := mean(v)
	var t float64
	for _, x := range v {
		t += (x - m) * (x - m)
	}
	return t / float64(len(v)-1)
}

// student is the two-sided 95 % quantile of Student's t for 1…30 degrees of freedom.
var student = [...]float64{12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228,
	2.201, 2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086,
	2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042}

// welch reports whether two series of at least two values differ at 95 % (Welch's t test).
func welch(a, b []float64) bool {
	va, vb := variance(a)/float64(len(a)), variance(b)/float64(len(b))
	d := math.Abs(mean(a) - mean(b))
	if va+vb == 0 {
		return d > 0
	}
	df := (va + vb) * (va + vb) / (va*va/float64(len(a)-1) + vb*vb/float64(len(b)-1))
	i := max(1, int(df)) - 1
	t := 1.96
	if i < len(student) {
		t = student[i]
	}
	return d/math.Sqrt(va+vb) > t
}

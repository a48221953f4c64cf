package diagnose

import (
	"fmt"
	"maps"
	"slices"

	"github.com/rxsteer/rxsteer/internal/cpuset"
	"github.com/rxsteer/rxsteer/internal/host/knob"
	"github.com/rxsteer/rxsteer/internal/host/nic"
)

const (
	// needless is the backlog work (CPUs) from which RPS over enough queues is worth a word, and much
	// that from which it is a warning.
	needless = 0.05
	much     = 0.25
	// sendsMuch is the packets/s a device must send for its transmit queues to matter.
	sendsMuch = 50_000
	// crossing is the part of the transmit queues that must cross the vectors' layout.
	crossing = 0.5
)

// needlessRPS reports RX302: RPS on a device whose queues already reach every CPU it may use.
func (v *view) needlessRPS(r *Report) {
	for _, d := range v.steered() {
		mask := v.union(d)
		usable := v.usable
		if local, ok := v.node(d); ok && local.Intersects(usable) {
			usable = usable.Intersect(local)
		}
		cores := map[int]bool{}
		for c := range usable.All() {
			if t, ok := v.topo[c]; ok {
				cores[t.Core] = true
			}
		}
		busy, where := v.busyQueues(d)
		load := v.queueLoad(d)
		_, share := load.busiest()
		if mask.IsEmpty() || v.followsReaders(d) || len(cores) < 2 || len(busy) < len(cores) || !spread(where) || share >= 2/float64(len(busy)) {
			continue
		}
		cpus, packets := v.backlogWork()
		var ipis uint64
		for _, c := range v.s.CPUs {
			ipis += c.ReceivedRPS
		}
		// Loopback and veth use the backlog, too: only what cannot be theirs counts.
		others := v.received("lo") * v.seconds
		for _, x := range v.s.Devices {
			if v.nics[x.Name].Kind == nic.Virtual {
				others += float64(x.RXPackets)
			}
		}
		own := 1 - min(1, ratio(others, float64(packets)))
		if v.s.Level >= 1 && (cpus*own < needless || packets == 0) || v.s.Level == 0 && ratio(float64(ipis), v.seconds) < minPackets {
			r.checked("RPS of %s (%s) on top of %d queues: next to no work goes through it", d, mask, len(busy))
			continue
		}
		f := Finding{ID: "RX302", Severity: Info, Subject: d,
			Summary: fmt.Sprintf("%s has %d busy queues on %d CPUs of their own, one for each of %d cores, and RPS over cpus %s on top: each packet pays an interrupt between CPUs and a cache miss for no CPU more", d, len(busy), len(busy), len(cores), mask),
			Evidence: Evidence{{"busy_queues", len(busy)}, {"usable_cores", len(cores)}, {"rps_cpus", mask.String()}, {"rps_interrupts_per_s", float64(ipis) / v.seconds},
				{"backlog_work_cpus", cpus * own}, {"busiest_queue_share_ratio", share}},
			Remedy:   fmt.Sprintf("RPS off: for q in /sys/class/net/%s/queues/rx-*; do echo 0 > $q/rps_cpus; done; then compare receive time per packet", d),
			RuledOut: []string{"RFS, which needs RPS to follow readers: off", "one queue that needs help: the load is spread"},
			Site:     Site{Device: d, Queues: v.masked(d), CPU: -1}}
		if cpus*own >= much {
			f.Severity = Warning
		}
		r.Findings = append(r.Findings, f)
	}
}

// followsReaders reports whether RFS is on for a device.
func (v *view) followsReaders(device string) bool {
	var entries int64
	if v.setting(knob.RPSSockFlowEntries, knob.Host).Decode(&entries) != nil || entries == 0 {
		return false
	}
	return v.flowTables(device) > 0
}

// flowTables is the sum of a device's RFS tables.
func (v *view) flowTables(device string) (sum int64) {
	for _, q := range v.rxQueues(device) {
		var n int64
		if v.setting(knob.RPSFlowCnt, knob.On(device, "rx-%d", q)).Decode(&n) == nil {
			sum += n
		}
	}
	return sum
}

// halfRFS reports RX304: one of the two tables of RFS without the other, or a global one too small for the
// flows there are.
func (v *view) halfRFS(r *Report) {
	var entries int64
	global := v.setting(knob.RPSSockFlowEntries, knob.Host)
	if global.Decode(&entries) != nil {
		return
	}
	var with, without []string // devices with RPS, with and without flow tables
	var most int64
	for _, n := range v.inventory() {
		if n.Kind == nic.Stack || n.Kind == nic.Loopback || !v.wanted(n.Name) {
			continue
		}
		flows := v.flowTables(n.Name)
		most = max(most, flows)
		switch {
		case flows > 0:
			with = append(with, n.Name)
		case entries > 0 && !v.union(n.Name).IsEmpty() && v.enough(n.Name) && v.flowsKnown(n.Name):
			without = append(without, n.Name)
		}
	}
	add := func(subject, summary, remedy string, queues []int) {
		r.Findings = append(r.Findings, Finding{ID: "RX304", Severity: Info, Subject: subject, Summary: summary, Remedy: remedy,
			Evidence: Evidence{{"rps_sock_flow_entries", entries}, {"rps_flow_cnt_sum", v.flowTables(subject)}, {"established_tcp", v.s.Established}},
			Site:     Site{Device: subject, Queues: queues, CPU: -1}})
	}
	switch {
	case entries == 0 && len(with) > 0:
		add(with[0], fmt.Sprintf("the queues of %s have RFS tables (%d entries) and rps_sock_flow_entries is 0: without the global table RFS does nothing", with[0], v.flowTables(with[0])),
			fmt.Sprintf("sysctl net.core.rps_sock_flow_entries=%d, or rps_flow_cnt 0 on the queues", pow2(v.flowTables(with[0]))), nil)
	case entries > 0 && len(with) == 0 && len(without) > 0:
		d := without[0]
		queues := v.rxQueues(d)
		add(d, fmt.Sprintf("rps_sock_flow_entries is %d and no queue of %s, which uses RPS, has a flow table: its flows do not follow their readers", entries, d),
			fmt.Sprintf("rps_flow_cnt of each rx queue of %s: %d (the entries divided by its %s)", d, pow2(entries/int64(max(len(queues), 1))), count(len(queues), "queue")), queues)
	case entries > 0 && len(with) > 0 && int64(v.s.Established) > entries:
		add("host", fmt.Sprintf("rps_sock_flow_entries is %d for %d established TCP connections: entries are overwritten by each other and RFS sends packets after the wrong reader", entries, v.s.Established),
			fmt.Sprintf("sysctl net.core.rps_sock_flow_entries=%d, and rps_flow_cnt that divided by the queues", pow2(int64(v.s.Established))), nil)
	case entries > 0 && len(with) > 0:
		r.checked("RFS: both its tables are there (%d entries in all, %d on the largest device)", entries, most)
	}
}

// flowsKnown reports whether rps_flow_cnt of a device was read.
func (v *view) flowsKnown(device string) bool {
	for _, q := range v.rxQueues(device) {
		if v.setting(knob.RPSFlowCnt, knob.On(device, "rx-%d", q)).Known() {
			return true
		}
	}
	return false
}

// pow2 is the next power of two.
func pow2(n int64) int64 {
	p := int64(1)
	for p < n && p < 1<<40 {
		p <<= 1
	}
	return p
}

// transmit reports RX305: transmit queues whose CPUs are not those that complete them.
func (v *view) transmit(r *Report) {
	for _, n := range v.inventory() {
		if n.Kind != nic.Physical || !v.wanted(n.Name) || v.sends(n.Name) < sendsMuch {
			continue
		}
		masks := map[int]cpuset.Set{}
		at := map[int]cpuset.Set{} // where completions of a queue run
		told := true
		for _, q := range n.Queues {
			if q.TX < 0 || q.XSK {
				continue
			}
			var text string
			if v.setting(knob.XPSCPUs, knob.On(n.Name, "tx-%d", q.TX)).Decode(&text) != nil {
				told = false
				break
			}
			set, err := cpuset.ParseList(text)
			told = told && err == nil
			masks[q.TX] = set
			if e, ok := v.irqSet(knob.IRQEffective, n.Name, q.IRQ); ok {
				at[q.TX] = e
			} else if !q.Effective.IsEmpty() {
				at[q.TX] = q.Effective
			}
		}
		if !told || len(masks) < 2 {
			continue
		}
		empty, crossed, judged := 0, []int{}, 0
		for q, m := range masks {
			if m.IsEmpty() {
				empty++
				continue
			}
			e, ok := at[q]
			if !ok {
				continue
			}
			judged++
			if !e.Intersects(m) && slices.ContainsFunc(slices.Collect(maps.Keys(masks)), func(o int) bool { return o != q && masks[o].Intersects(e) }) {
				crossed = append(crossed, q)
			}
		}
		slices.Sort(crossed)
		f := Finding{ID: "RX305", Severity: Info, Subject: n.Name, Site: Site{Device: n.Name, CPU: -1, Queues: crossed},
			Evidence: Evidence{{"tx_queues", len(masks)}, {"unmapped_queues", empty}, {"crossed_queues", cpuset.Of(crossed...).String()}, {"sent_packets_per_s", v.sends(n.Name)}}}
		switch {
		case judged > 0 && float64(len(crossed)) >= crossing*float64(judged):
			q := crossed[0]
			f.Summary = fmt.Sprintf("%d of %d transmit queues of %s are used by other CPUs than complete them (tx-%d: sent from cpus %s, completed on cpu %s): the map was not moved with the vectors", len(crossed), judged, n.Name, q, masks[q], at[q])
			f.Remedy = fmt.Sprintf("xps_cpus of each queue of %s: the CPU of its vector", n.Name)
		case empty == len(masks) && len(masks) >= v.usable.Len():
			f.Summary = fmt.Sprintf("%s sends %.0f packets/s over %d transmit queues and no queue is mapped to CPUs: which one a CPU uses is left to a hash, so CPUs share locks of queues", n.Name, v.sends(n.Name), len(masks))
			f.Remedy = fmt.Sprintf("xps_cpus of each queue of %s: one CPU each, that of its vector", n.Name)
		default:
			continue
		}
		r.Findings = append(r.Findings, f)
	}
}

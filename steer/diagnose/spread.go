package diagnose

import (
	"cmp"
	"fmt"
	"math"
	"net/netip"
	"slices"
	"strings"

	"github.com/rxsteer/rxsteer/collector"
	"github.com/rxsteer/rxsteer/internal/host/knob"
	"github.com/rxsteer/rxsteer/internal/host/nic"
)

const (
	// leastSeen is the packets looked at from which shares of buckets and classes mean something: a share of a
	// tenth is then known to within 2 % of all, in 95 of 100 cases.
	leastSeen = 1000
	// unfit is how much more than it must the hottest queue has before the table is called unfit.
	unfit = 1.25
	// someLoad is the receive softirq of the hottest queue's CPU below which an unfit table harms nobody.
	someLoad = 0.1
	// elephant is how much of a fair share of a queue a bucket must exceed, and bigFlow the part of its bucket, or of
	// its queue, that makes a flow its filler.
	elephant = 1.1
	bigFlow  = 0.2
	oneFlow  = 0.6
	// fewFlowsOf is the part of a device's packets that the known flows must be to count them.
	fewFlowsOf = 0.9
)

// buckets is the measured load of a device's table entries, nil where it was not measured well enough.
func (v *view) buckets(device string) *collector.DeviceBuckets {
	for i := range v.s.Buckets {
		b := &v.s.Buckets[i]
		if b.Device == device && (b.Netns == 0 || v.netns == 0 || b.Netns == v.netns) && b.Seen >= leastSeen {
			return b
		}
	}
	return nil
}

// fit is how a device's table fits the load of its buckets, in parts of all packets: receive time would understate what
// a busy queue carries, for its polls take more packets each, and that goes with the load wherever it moves. What a
// CPU spends is told by its time (view.pressure).
type fit struct {
	b       *collector.DeviceBuckets
	queues  map[int]float64 // load of each queue of the table
	hottest int             // queue
	bucket  int             // that carries most
	biggest float64         // its load
	fair    float64         // of a queue
}

// margin is half of the 95 % interval of a share p of the packets seen.
func (f *fit) margin(p float64) float64 {
	return 1.96 * math.Sqrt(p*(1-p)/float64(f.b.Seen))
}

// fits measures the table of a device against its buckets; false where either is not known, or the packets
// do not follow the table.
func (v *view) fits(device string) (fit, bool) {
	f := fit{b: v.buckets(device), queues: map[int]float64{}, hottest: -1}
	table := v.table(device)
	if f.b == nil || len(table) == 0 || len(f.b.Packets) != len(table) {
		return fit{}, false
	}
	if f.b.Compared >= leastSeen && part(f.b.Agreed, f.b.Compared) < 1-stray {
		return fit{}, false
	}
	var total uint64
	for _, n := range f.b.Packets {
		total += n
	}
	if total == 0 {
		return fit{}, false
	}
	for i, q := range table {
		w := part(f.b.Packets[i], total)
		f.queues[q] += w
		if w > f.biggest {
			f.biggest, f.bucket = w, i
		}
	}
	for _, q := range sortedInts(f.queues) {
		if f.hottest < 0 || f.queues[q] > f.queues[f.hottest] {
			f.hottest = q
		}
	}
	f.fair = 1 / float64(len(f.queues))
	return f, len(f.queues) > 1
}

func sortedInts[T any](m map[int]T) []int {
	var out []int
	for k := range m {
		out = append(out, k)
	}
	slices.Sort(out)
	return out
}

// flowsOf is the known big flows of a device in a bucket or (bucket −1) a queue, biggest first.
func (v *view) flowsOf(device string, bucket, queue int) []collector.Flow {
	var out []collector.Flow
	for _, f := range v.s.Flows {
		if f.Device == device && (f.Netns == 0 || v.netns == 0 || f.Netns == v.netns) && (bucket >= 0 && f.Bucket == bucket || bucket < 0 && f.RXQueue == queue) {
			out = append(out, f)
		}
	}
	slices.SortStableFunc(out, func(a, b collector.Flow) int { return -cmp.Compare(a.Packets, b.Packets) })
	return out
}

// flowText is a flow for people.
func flowText(f collector.Flow) string {
	s := fmt.Sprintf("%s %s → %s", f.Protocol, endText(f.Source), endText(f.Destination))
	if f.Process != "" {
		s += fmt.Sprintf(" (%s)", f.Process)
	}
	return s
}

func endText(a netip.AddrPort) string {
	switch {
	case !a.IsValid():
		return "?"
	case a.Port() == 0:
		return a.Addr().Unmap().String()
	}
	return netip.AddrPortFrom(a.Addr().Unmap(), a.Port()).String()
}

// elephants is RX205: a flow, or several in one bucket, that no table can split. Without buckets a flow's part of
// its queue tells as much.
func (v *view) elephants(r *Report, device string) (Finding, bool) {
	load := v.queueLoad(device)
	f, measured := v.fits(device)
	queue, share, bucket, fair := -1, 0.0, -1, 0.0
	if measured {
		queue, share, bucket, fair = v.table(device)[f.bucket], f.biggest, f.bucket, f.fair
		if share-f.margin(share) <= elephant*fair {
			return Finding{}, false
		}
	} else {
		shares := v.tableShares(device)
		if queue, share = load.busiest(); queue < 0 || len(shares) < 2 {
			return Finding{}, false
		}
		fair = 1 / float64(len(shares))
	}
	big := v.flowsOf(device, bucket, queue)
	var of float64 // what the flows are a part of
	if measured {
		of = float64(f.b.Packets[f.bucket])
	} else {
		of = float64(load.counts[queue])
		if load.unit != "packets" {
			of = share * v.rate(device) * v.seconds
		}
	}
	n := 0
	var together float64
	for _, x := range big {
		if p := ratio(float64(x.Packets), of); p >= bigFlow {
			n++
			together += p
		}
	}
	if n == 0 || together < oneFlow {
		return Finding{}, false // many small flows: not this
	}
	first := min(1, ratio(float64(big[0].Packets), of))
	if share*first <= elephant*fair && n == 1 || !measured && share*first <= elephant*fair {
		return Finding{}, false
	}
	cpu := load.cpu(queue)
	if v.pressure(cpu) < hotRatio {
		r.checked("%s: one flow is more than a queue's fair share (%s, %s of all), and cpu %d has room: %s of its time in receive softirq", device, flowText(big[0]), percent(share*first), cpu, percent(v.pressure(cpu)))
		return Finding{}, false
	}
	x := Finding{ID: "RX205", Severity: Warning, Subject: device, Site: Site{Device: device, Queues: []int{queue}, CPU: cpu},
		Evidence: Evidence{{"flow", flowText(big[0])}, {"flow_share_of_device_ratio", share * first}, {"flow_share_error_ratio", ratio(float64(big[0].Error), float64(max(1, big[0].Packets)))},
			{"big_flows_there", n}, {"queue", queue}, {"bucket", bucket}, {"bucket_share_ratio", share}, {"fair_share_ratio", fair}, v.carried(device),
			{"cpu", cpu}, {"cpu_receive_softirq_ratio", v.load[cpu].NetRX}, {"reader_cpu", big[0].ConsumerCPU}}}
	mice := 0.0
	if measured {
		mice = f.queues[queue] - share
		x.Evidence = append(x.Evidence, Fact{"others_in_its_queue_ratio", mice}, Fact{"packets_seen", f.b.Seen}, Fact{"hash", f.b.Hash})
	} else {
		x.RuledOut = append(x.RuledOut, "not ruled out: which buckets share its queue, for their loads were not measured")
	}
	where := fmt.Sprintf("rx-%d", queue)
	if bucket >= 0 {
		where = fmt.Sprintf("bucket %d (rx-%d)", bucket, queue)
	}
	if n > 1 {
		x.Summary = fmt.Sprintf("%d big flows fill %s of %s with %s of its packets, where a fair share of a queue is %s: no table parts flows of one bucket. The biggest is %s", n, where, device, percent(share*min(1, together)), percent(fair), flowText(big[0]))
		x.Remedy = fmt.Sprintf("a rule for one of them (ethtool -N %s flow-type %s src-ip … dst-ip … src-port … dst-port … action QUEUE), or another hash key: rxsteer plan looks for either", device, flowType(big[1]))
		if !measured {
			x.Summary = strings.Replace(x.Summary, "no table parts flows of one bucket", "whether they share a bucket was not measured", 1)
		}
	} else {
		x.Summary = fmt.Sprintf("one flow, %s, is %s of the packets of %s, where a fair share of a queue is %s: no table, key or rule splits a flow, and cpu %d spends %s of its time on it and its queue", flowText(big[0]), percent(share*first), device, percent(fair), cpu, percent(v.pressure(cpu)))
		x.Remedy = fmt.Sprintf("what can be done: RPS or RFS to move its protocol work to another CPU than cpu %d, GRO and coalescing to make a packet cheaper, more connections where the application can", cpu)
		if mice >= busyQueue {
			x.Remedy = fmt.Sprintf("first the other flows of rx-%d (%s of all) to other queues by the table; then ", queue, percent(mice)) + strings.TrimPrefix(x.Remedy, "what can be done: ")
		}
	}
	if big[0].ConsumerCPU == cpu && cpu >= 0 {
		x.Remedy += fmt.Sprintf(". Its reader runs on cpu %d, too: another core of the same cache is faster for either", cpu)
	}
	return x, true
}

// flowType is a flow's type as ethtool takes it.
func flowType(f collector.Flow) string {
	if f.Source.Addr().Unmap().Is4() {
		return f.Protocol + "4"
	}
	return f.Protocol + "6"
}

// tableLoad is RX201 by the measured load of buckets.
func (v *view) tableLoad(r *Report, device string) (Finding, bool) {
	f, ok := v.fits(device)
	if !ok {
		return Finding{}, false
	}
	best := max(f.biggest, f.fair) // of the hottest queue, whatever the table
	hot := f.queues[f.hottest]
	cpu := v.queueLoad(device).cpu(f.hottest)
	if hot-f.margin(hot) < unfit*best {
		r.checked("indirection table of %s fits its buckets: the hottest queue, rx-%d, has %s of the packets, and could not have less than %s", device, f.hottest, percent(hot), percent(best))
		return Finding{}, false
	}
	if v.pressure(cpu) < someLoad {
		r.checked("indirection table of %s: rx-%d has %s of the packets where %s would do, and cpu %d has room (%s in receive softirq)", device, f.hottest, percent(hot), percent(best), cpu, percent(v.pressure(cpu)))
		return Finding{}, false
	}
	x := Finding{ID: "RX201", Severity: v.bySeverity(cpu), Subject: device, Site: Site{Device: device, Queues: []int{f.hottest}, CPU: cpu},
		Summary: fmt.Sprintf("the indirection table of %s fits what its buckets carry badly: rx-%d has %s of the packets, and by moving buckets no queue would need more than %s", device, f.hottest, percent(hot), percent(best)),
		Evidence: Evidence{{"busiest_queue", f.hottest}, {"busiest_queue_load_ratio", hot}, {"error_ratio", f.margin(hot)}, {"best_possible_ratio", best}, {"biggest_bucket", f.bucket}, {"biggest_bucket_load_ratio", f.biggest},
			{"table_queues", len(f.queues)}, {"table_size", len(v.table(device))}, {"packets_seen", f.b.Seen}, {"hash", f.b.Hash}, v.carried(device), {"estimated", f.b.Hash == collector.HashEstimated}},
		Remedy:   fmt.Sprintf("a table that levels the load with few moves: rxsteer plan %s", device),
		RuledOut: []string{fmt.Sprintf("a flow that no table splits: the biggest bucket has %s", percent(f.biggest))}}
	if f.b.Compared > 0 {
		x.RuledOut = append(x.RuledOut, fmt.Sprintf("a device that ignores its table: %s of the packets came where it sends them", percent(part(f.b.Agreed, f.b.Compared))))
	}
	return x, true
}

// unhashed are classes of packets of which the hash sees no flow, and what they are called.
var unhashed = []struct{ class, what, remedy string }{
	{"gre", "GRE", ""}, {"ipip", "IPIP", ""}, {"pppoe", "PPPoE", ""},
	{"fragment", "fragments, which carry no ports,", "datagrams that fit the MTU are the cure: ports in the hash would part the first fragment from the rest"},
	{"other", "not IP", "RPS spreads what its dissector knows; most else is one stream by its nature"},
}

// classes is the packets of a device by class, and their sum; nil where they were not told apart.
func (v *view) classes(device string) (map[string]uint64, uint64) {
	b := v.buckets(device)
	if b == nil || len(b.Classes) == 0 {
		return nil, 0
	}
	out := map[string]uint64{}
	var all uint64
	for _, c := range b.Classes {
		out[c.Class] += c.Packets
		all += c.Packets
	}
	return out, all
}

// oneClass is RX204 by the classes of a device's packets.
func (v *view) oneClass(r *Report, device string, queue int, share float64, fair float64, load queueLoad) bool {
	classes, all := v.classes(device)
	if all == 0 {
		return false
	}
	for _, u := range unhashed {
		n := classes[u.class]
		least := 1 - ratio(1-part(n, all), share)
		if n == 0 || least < surely {
			continue
		}
		cpu := load.cpu(queue)
		f := Finding{ID: "RX204", Severity: v.bySeverity(cpu), Subject: device,
			Summary: fmt.Sprintf("%s of the packets of %s are %s: the hash sees no flows in them, and rx-%d gets %s of the %s", percent(part(n, all)), device, u.what, queue, percent(share), load.unit),
			Evidence: Evidence{{"class", u.class}, {"class_ratio", part(n, all)}, {"busiest_queue", queue}, {"busiest_queue_share_ratio", share},
				{"class_of_busiest_queue_at_least_ratio", least}, {"packets_seen", v.buckets(device).Seen}, v.carried(device)},
			Remedy:   cmp.Or(u.remedy, fmt.Sprintf("RPS on rx-%d of %s: the kernel's dissector sees the inner headers (not those of encrypted tunnels, which are decrypted in parallel anyhow). Or a tunnel with entropy outside: VXLAN, Geneve, GRE in UDP (FOU), with ports in the hash; moving the vector is no cure", queue, device)),
			RuledOut: []string{fmt.Sprintf("an uneven table: rx-%d has %s of its buckets", queue, percent(fair))},
			Site:     Site{Device: device, Queues: []int{queue}, CPU: cpu, Movable: v.pollTime(device, cpu), Demand: 1, PollCPUs: v.pollCPUs(device), Sends: v.sends(device)}}
		if u.class == "fragment" {
			f.Site.Movable = nil
		}
		r.Findings = append(r.Findings, f)
		return true
	}
	return true
}

// knownFlows is how many flows carry nearly all of a device's packets; false where they are not known.
func (v *view) knownFlows(device string) (n int, covered float64, ok bool) {
	var sum uint64
	for _, f := range v.s.Flows {
		if f.Device == device {
			n++
			sum += f.Packets
		}
	}
	covered = min(1, ratio(float64(sum), v.rate(device)*v.seconds))
	return n, covered, n > 0 && covered >= fewFlowsOf
}

// longFlows reports RX304 where RPS places flows by hash that live long and are read on one CPU each.
func (v *view) longFlows(r *Report) {
	var entries int64
	var watched []*collector.Sample // others do not know flows
	for _, w := range v.in.Windows {
		if w.Flows != nil {
			watched = append(watched, w)
		}
	}
	if v.setting(knob.RPSSockFlowEntries, knob.Host).Decode(&entries) != nil || entries > 0 || len(watched) < 3 {
		return
	}
	type key struct {
		device, protocol string
		from, to         netip.AddrPort
	}
	for _, n := range v.inventory() {
		if n.Kind == nic.Stack || n.Kind == nic.Loopback || !v.wanted(n.Name) || v.union(n.Name).IsEmpty() {
			continue
		}
		seen, reader := map[key]int{}, map[key]int{}
		var carried uint64
		for _, w := range watched {
			for _, f := range w.Flows {
				if f.Device != n.Name || f.ConsumerCPU < 0 {
					continue
				}
				k := key{f.Device, f.Protocol, f.Source, f.Destination}
				if c, ok := reader[k]; ok && c != f.ConsumerCPU {
					continue
				}
				reader[k] = f.ConsumerCPU
				seen[k]++
			}
		}
		long := 0
		for _, w := range watched {
			for _, f := range w.Flows {
				if k := (key{f.Device, f.Protocol, f.Source, f.Destination}); seen[k] == len(watched) {
					carried += f.Packets
				}
			}
		}
		for _, n := range seen {
			if n == len(watched) {
				long++
			}
		}
		if share := ratio(float64(carried), v.rate(n.Name)*v.seconds); long == 0 || share < surely || float64(carried)/v.seconds < farPackets {
			continue
		}
		queues := v.rxQueues(n.Name)
		want := pow2(max(int64(v.s.Established), 1024))
		r.Findings = append(r.Findings, Finding{ID: "RX304", Severity: Info, Subject: n.Name,
			Summary:  fmt.Sprintf("RPS places the flows of %s by hash, and %s that %s of its packets belong to live long and are read on one CPU each: RFS would do their protocol work where they are read", n.Name, count(long, "flow"), percent(ratio(float64(carried), v.rate(n.Name)*v.seconds))),
			Evidence: Evidence{{"long_flows", long}, {"watched_windows", len(watched)}, {"long_flow_packets_per_s", float64(carried) / v.seconds}, {"rps_sock_flow_entries", entries}},
			Remedy:   fmt.Sprintf("sysctl net.core.rps_sock_flow_entries=%d, and rps_flow_cnt of each rx queue of %s: %d", want, n.Name, pow2(want/int64(max(len(queues), 1)))),
			Site:     Site{Device: n.Name, Queues: queues, CPU: -1}})
	}
}

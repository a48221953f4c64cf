package diagnose

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/rxsteer/rxsteer/collector"
	"github.com/rxsteer/rxsteer/internal/cpuset"
	"github.com/rxsteer/rxsteer/internal/host/knob"
	"github.com/rxsteer/rxsteer/internal/host/nic"
)

const (
	// oddTable is how many times the buckets of the least named queue the most named one has,
	// before the table counts as uneven.
	oddTable = 1.5
	// follows is how much above its fair part a queue must receive to say that it suffers from the table.
	follows = 1.25
	// oneQueueOnly is the part of the packets that makes the others strays (ARP, other protocols).
	oneQueueOnly = 0.97
	// stray is the part of the packets that may arrive on queues the table does not name.
	stray = 0.2
	// sinceBoot is how many packets must have come without one for a queue that the table names, before
	// the table is called ignored: no host has a single flow that long.
	sinceBoot = 1_000_000
)

// tables reports what is wrong with how a device spreads packets over queues: RX206, RX202, RX701, RX205,
// RX201, the first that holds.
func (v *view) tables(r *Report) {
	looked := 0
	for _, n := range v.inventory() {
		if n.Kind != nic.Physical || !v.wanted(n.Name) || !v.enough(n.Name) {
			continue
		}
		found := false
		for _, look := range []func(*Report, string) (Finding, bool){v.tableIgnored, v.tableReach, v.hostChooses, v.elephants, v.tableLoad, v.tableWeights} {
			if f, ok := look(r, n.Name); ok {
				r.Findings = append(r.Findings, f)
				found = true
				break
			}
		}
		if !found && len(v.table(n.Name)) > 0 {
			looked++
		}
	}
	if looked > 0 {
		r.checked("%s: every queue reached, none missing, as even as its size allows", count(looked, "indirection table"))
	}
}

// inventory is all interfaces, by name.
func (v *view) inventory() []nic.NIC {
	out := slices.Collect(maps.Values(v.nics))
	slices.SortFunc(out, func(a, b nic.NIC) int { return strings.Compare(a.Name, b.Name) })
	return out
}

// enough reports whether a device carries what is worth steering, or nothing tells what it carries.
func (v *view) enough(device string) bool {
	if v.pairVF(device) != "" {
		return false
	}
	told := v.queueLoad(device).total > 0
	for _, d := range v.s.Devices {
		told = told || d.Name == device
	}
	return !told || v.rate(device) >= minPackets
}

// owned is the queues that filters, RSS contexts or AF_XDP sockets use, and whose they are.
func (v *view) owned(device string) (queues cpuset.Set, whose []string) {
	for _, q := range v.nics[device].Queues {
		if q.XSK && q.RX >= 0 {
			queues = queues.Union(cpuset.Of(q.RX))
			whose = append(whose, "AF_XDP")
		}
	}
	if v.in.Snapshot != nil {
		for _, s := range v.in.Snapshot.Settings {
			part := s.Target.Part()
			switch {
			case s.Target.Device() != device:
			case s.Knob == knob.RSSTable && strings.HasPrefix(part, "context-"):
				var t []int
				if s.Value.Decode(&t) == nil {
					queues = queues.Union(cpuset.Of(t...))
					whose = append(whose, "RSS "+part)
				}
			case s.Knob == knob.NtupleRule:
				var m map[string]any
				if s.Value.Decode(&m) == nil {
					if q, ok := number(m["queue"]); ok && q >= 0 {
						queues = queues.Union(cpuset.Of(q))
						whose = append(whose, "ntuple "+part)
					}
				}
			}
		}
		for _, o := range v.in.Snapshot.Owners {
			if o.Device == device && (o.Name == "AF_XDP" || o.Name == "RSS context") {
				whose = append(whose, o.Name+" ("+o.Detail+")")
			}
		}
	}
	slices.Sort(whose)
	return queues, slices.Compact(whose)
}

// tableReach is RX202.
func (v *view) tableReach(r *Report, device string) (Finding, bool) {
	table := v.table(device)
	if len(table) == 0 {
		if val := v.setting(knob.RSSTable, knob.Target(device)); val.IsAbsent() && len(v.rxQueues(device)) > 1 {
			r.checked("indirection table of %s: the device has none it would tell (%s); which queue gets which flow is not predicted", device, val.Reason())
		}
		return Finding{}, false
	}
	if v.in.Baseline != nil && v.in.Baseline.Get(knob.Ref{Knob: knob.RSSTable, Target: knob.Target(device)}).Equal(v.setting(knob.RSSTable, knob.Target(device))) {
		r.checked("indirection table of %s: as the baseline has it", device)
		return Finding{}, false
	}
	var all, own []int // receive queues; those that are not AF_XDP's alone
	for _, q := range v.nics[device].Queues {
		if q.RX >= 0 {
			all = append(all, q.RX)
			if !q.XSK {
				own = append(own, q.RX)
			}
		}
	}
	if len(all) == 0 {
		all = v.rxQueues(device)
		own = all
	}
	exist, named := cpuset.Of(all...), cpuset.Of(table...)
	owned, whose := v.owned(device)
	load := v.queueLoad(device)
	busy := load.busy()
	hottest := -1
	for _, q := range busy {
		if c := load.cpu(q); hottest < 0 || v.pressure(c) > v.pressure(hottest) {
			hottest = c
		}
	}
	f := Finding{ID: "RX202", Severity: v.bySeverity(hottest), Subject: device, Site: Site{Device: device, CPU: -1},
		Evidence: Evidence{{"rx_queues", len(own)}, {"table_queues", named.Intersect(exist).Len()}, {"table_size", len(table)}}}
	unreached := cpuset.Of(own...).Minus(named).Minus(owned)
	zero := named == cpuset.Of(0)
	var elsewhere uint64
	for q := range unreached.All() {
		elsewhere += load.counts[q]
	}
	switch {
	case len(own) < 2:
		return Finding{}, false
	case !named.Minus(exist).IsEmpty():
		f.Severity = Warning
		f.Summary = fmt.Sprintf("the indirection table of %s names rx-%s, which it does not have (%d receive queues): packets of those buckets are lost or land elsewhere", device, named.Minus(exist), len(all))
		f.Remedy = fmt.Sprintf("put the table back to the driver's default, which fits the queues there are: ethtool -X %s default; read it again", device)
		f.Evidence = append(f.Evidence, Fact{"missing_queues", named.Minus(exist).String()})
		return f, true
	case zero && part(elsewhere, load.total) >= stray && load.unit == "packets":
		r.unmeasured("indirection table of "+device, fmt.Sprintf("the driver tells zeros only, though rx-%s get %s of the packets: it does not report its table", unreached, percent(part(elsewhere, load.total))), "RX201, RX202")
		return Finding{}, false
	case zero && v.keyless(device) && load.total == 0:
		f.Severity = Info
		f.Summary = fmt.Sprintf("the indirection table of %s is all zero: either receive hashing is off and rx-0 of %d queues gets everything, or the driver does not report its table; packets by queue would tell", device, len(own))
		f.Remedy = fmt.Sprintf("compare the queues' counters (ethtool -S %s) under load; where only rx-0 grows: ethtool -X %s default, else RPS. Nothing is to be computed from a table or key of zeros", device, device)
		return f, true
	case unreached.IsEmpty():
		return v.tableSize(f, table, device)
	}
	f.Evidence = append(f.Evidence, Fact{"unreached_queues", unreached.String()})
	also := ""
	if load.total > 0 {
		f.Evidence = append(f.Evidence, Fact{"share_of_unreached_queues_ratio", part(elsewhere, load.total)})
		also = fmt.Sprintf("; rx-%s get %s of the %s all the same, from filters or the driver's flow director", unreached, percent(part(elsewhere, load.total)), load.unit)
		if elsewhere == 0 {
			also = ""
		}
	}
	reach := named.Intersect(exist).Len()
	if limit, ok := nic.Has(v.driver(device), nic.TableLimit); ok && reach == limit.N && reach < len(own) {
		f.Summary = fmt.Sprintf("the indirection table of %s reaches %d of its %d receive queues, the hardware's limit (%s)%s", device, reach, len(own), limit.Text, also)
		f.Remedy = fmt.Sprintf("as many channels as the table reaches, on CPUs of the device's node: ethtool -L %s combined %d (drops the link for a moment)", device, reach)
		f.Evidence = append(f.Evidence, Fact{"hardware_limit_queues", limit.N})
		return f, true
	}
	f.Summary = fmt.Sprintf("the indirection table of %s names %d of its %d receive queues: rx-%s get nothing from the hash%s", device, reach, len(own), unreached, also)
	f.Remedy = fmt.Sprintf("ethtool -X %s default (a table set by hand is kept when queues are added, and blocks removing them), unless those queues are kept free on purpose; read the table again", device)
	if v.roundRobin(table, reach) && v.driver(device) == "" && reach == 16 {
		f.Remedy = fmt.Sprintf("where the hardware cannot name more than 16 (ixgbe; ethtool -i %s tells the driver): as many channels, on CPUs of the device's node: ethtool -L %s combined 16. Else %s", device, device, f.Remedy)
	}
	if len(whose) > 0 {
		f.RuledOut = append(f.RuledOut, fmt.Sprintf("queues kept for %s: rx-%s", strings.Join(whose, ", "), owned))
	}
	return f, true
}

// roundRobin reports whether a table is a driver's default over the first n queues.
func (v *view) roundRobin(table []int, n int) bool {
	for i, q := range table {
		if q != i%n {
			return false
		}
	}
	return n > 0
}

// keyless reports whether the hash key is not told either.
func (v *view) keyless(device string) bool {
	return !v.setting(knob.RSSKey, knob.Target(device)).Known()
}

// tableSize is RX202 where the default table is too short for the queues.
func (v *view) tableSize(f Finding, table []int, device string) (Finding, bool) {
	buckets := map[int]int{}
	queues := len(v.tableShares(device))
	for i, q := range table {
		buckets[q]++
		if q != i%queues {
			return Finding{}, false // not the driver's round robin
		}
	}
	most, least := 0, len(table)
	for _, n := range buckets {
		most, least = max(most, n), min(least, n)
	}
	if float64(most) < oddTable*float64(least) {
		return Finding{}, false
	}
	f.Severity = Info
	f.Summary = fmt.Sprintf("%d buckets do not divide by the %d queues of %s: some get %d buckets, others %d", len(table), queues, device, most, least)
	f.Remedy = fmt.Sprintf("a number of queues that divides %d: ethtool -L %s combined %d (drops the link for a moment)", len(table), device, dividing(len(table), queues))
	f.Evidence = append(f.Evidence, Fact{"most_buckets", most}, Fact{"least_buckets", least})
	return f, true
}

// dividing is the largest number up to n that divides size.
func dividing(size, n int) int {
	for ; n > 1; n-- {
		if size%n == 0 {
			return n
		}
	}
	return 1
}

// tableIgnored is RX206.
func (v *view) tableIgnored(_ *Report, device string) (Finding, bool) {
	shares, load := v.tableShares(device), v.queueLoad(device)
	queue, share := load.busiest()
	if len(v.table(device)) == 0 || load.unit != "packets" || queue < 0 || len(shares) == 1 && shares[0] > 0 {
		return Finding{}, false
	}
	owned, _ := v.owned(device)
	cpu := load.cpu(queue)
	f := Finding{ID: "RX206", Severity: max(Info, v.bySeverity(cpu)), Subject: device,
		Evidence: Evidence{{"busiest_queue", queue}, {"busiest_queue_share_ratio", share}, {"busiest_queue_of_table_ratio", shares[queue]}, {"table_queues", len(shares)}, {"packets", load.total}},
		Remedy:   fmt.Sprintf("put the table back (ethtool -X %s default) and spread in software: RPS on rx-%d", device, queue),
		RuledOut: []string{"filters, RSS contexts or AF_XDP sockets that place packets"},
		Site:     Site{Device: device, Queues: []int{queue}, CPU: cpu, Movable: v.pollTime(device, cpu), Demand: 1, PollCPUs: v.pollCPUs(device)}}
	var against uint64
	for q, n := range load.counts {
		if shares[q] == 0 {
			against += n
		}
	}
	silent := cpuset.Set{}
	for q, s := range shares {
		if s >= 1.0/8 && load.counts[q] == 0 {
			silent = silent.Union(cpuset.Of(q))
		}
	}
	quirk, known := nic.Has(v.driver(device), nic.TableIgnored)
	b := v.buckets(device)
	switch {
	case !owned.IsEmpty():
		return Finding{}, false
	case b != nil && b.Hash != collector.HashEstimated && b.Compared >= leastSeen && part(b.Agreed, b.Compared) < 1-stray && !v.placesFlows(device):
		f.Severity = Warning
		f.Summary = fmt.Sprintf("%s does not follow its indirection table: of %d packets looked at, %s arrived where the table does not send their bucket (rx-%d gets %s of all)", device, b.Compared, percent(1-part(b.Agreed, b.Compared)), queue, percent(share))
		f.Evidence = append(f.Evidence, Fact{"against_table_ratio", 1 - part(b.Agreed, b.Compared)}, Fact{"packets_compared", b.Compared}, Fact{"hash", b.Hash})
	case known && share >= oneQueueOnly && len(shares) > 1:
		f.Summary = fmt.Sprintf("%s takes a table of %d queues and receives on rx-%d all the same (%s of its packets): %s", device, len(shares), queue, percent(share), quirk.Text)
	case part(against, load.total) >= stray && !v.placesFlows(device):
		f.Severity = Warning
		f.Summary = fmt.Sprintf("%s does not follow its indirection table: %s of its packets arrive on queues the table does not name (rx-%d alone %s)", device, percent(part(against, load.total)), queue, percent(share))
		f.Evidence = append(f.Evidence, Fact{"against_table_ratio", part(against, load.total)})
	case v.s.SinceBoot && load.total >= sinceBoot && !silent.IsEmpty():
		f.Severity = Warning
		f.Summary = fmt.Sprintf("%s does not follow its indirection table: since boot rx-%s got none of %d packets, though the table names it for %s of the buckets", device, silent, load.total, percent(v.sumShares(shares, silent)))
		f.Evidence = append(f.Evidence, Fact{"silent_queues", silent.String()})
	default:
		return Finding{}, false
	}
	return f, true
}

func (v *view) sumShares(shares map[int]float64, of cpuset.Set) (sum float64) {
	for q := range of.All() {
		sum += shares[q]
	}
	return sum
}

// placesFlows reports whether the driver itself may steer flows past the table: the flow director of ixgbe and
// i40e samples what is sent (ATR), and accelerated RFS follows the readers.
func (v *view) placesFlows(device string) bool {
	driver := v.driver(device)
	if driver == "ixgbe" || driver == "i40e" {
		return true
	}
	for _, q := range v.rxQueues(device) {
		var n int64
		if v.setting(knob.RPSFlowCnt, knob.On(device, "rx-%d", q)).Decode(&n) == nil && n > 0 {
			return true
		}
	}
	return false
}

// hostChooses is RX701.
func (v *view) hostChooses(_ *Report, device string) (Finding, bool) {
	quirk, ok := nic.Has(v.driver(device), nic.HostChooses)
	queues, load := v.rxQueues(device), v.queueLoad(device)
	queue, share := load.busiest()
	if !ok || len(queues) < 2 || v.table(device) != nil || queue < 0 || !uneven(share, 1/float64(len(queues))) {
		return Finding{}, false
	}
	if val := v.setting(knob.RSSTable, knob.Target(device)); val.Known() {
		return Finding{}, false
	}
	idle := 0
	for _, q := range queues {
		if float64(load.counts[q]) < float64(load.total)/1000 {
			idle++
		}
	}
	cpu := load.cpu(queue)
	none := ""
	if idle > 0 {
		none = fmt.Sprintf(", %d of %d next to none", idle, len(queues))
	}
	return Finding{ID: "RX701", Severity: v.bySeverity(cpu), Subject: device,
		Summary: fmt.Sprintf("the host chooses the receive queue of %s, not the guest (%s): rx-%d gets %s of its %s%s; idle queues are no fault of the guest", device, quirk.Text, queue, percent(share), load.unit, none),
		Evidence: Evidence{{"driver", v.driver(device)}, {"rx_queues", len(queues)}, {"idle_queues", idle}, {"busiest_queue", queue}, {"busiest_queue_share_ratio", share},
			v.carried(device), {"cpu_receive_softirq_ratio", v.load[cpu].NetRX}},
		Remedy:   fmt.Sprintf("in the guest only RPS on rx-%d, where its CPU is short of time; on the host more backend threads (vhost, OVS poll-mode threads) or a device that offers RSS", queue),
		RuledOut: []string{"an indirection table: the device has none"},
		Site:     Site{Device: device, Queues: []int{queue}, CPU: cpu, Movable: v.pollTime(device, cpu), Demand: 1, PollCPUs: v.pollCPUs(device)}}, true
}

// tableWeights is RX201 where the table itself is uneven and the traffic follows it.
func (v *view) tableWeights(_ *Report, device string) (Finding, bool) {
	shares, load := v.tableShares(device), v.queueLoad(device)
	queue, share := load.busiest()
	if len(v.table(device)) == 0 || len(shares) < 2 || queue < 0 || load.total == 0 {
		return Finding{}, false
	}
	fair := 1 / float64(len(shares))
	heaviest, least := queue, 1.0
	for q, s := range shares {
		least = min(least, s)
		if s > shares[heaviest] {
			heaviest = q
		}
	}
	if shares[heaviest] < oddTable*least || shares[heaviest] < follows*fair || queue != heaviest || share < follows*fair {
		return Finding{}, false
	}
	cpu := load.cpu(queue)
	bound := "which bucket carries how much was not measured: the load of the queues is taken as spread evenly over their buckets"
	return Finding{ID: "RX201", Severity: v.bySeverity(cpu), Subject: device,
		Summary: fmt.Sprintf("the indirection table of %s gives rx-%d %s of the buckets, and it gets %s of the %s where an even table would give each of %d queues %s", device, queue, percent(shares[queue]), percent(share), load.unit, len(shares), percent(fair)),
		Evidence: Evidence{{"busiest_queue", queue}, {"busiest_queue_share_ratio", share}, {"busiest_queue_of_table_ratio", shares[queue]}, {"even_share_ratio", fair},
			{"table_queues", len(shares)}, {"table_size", len(v.table(device))}, v.carried(device), {"estimated", true}},
		Remedy:   fmt.Sprintf("level it: ethtool -X %s equal %d, or weights where one CPU has other work (%s)", device, len(shares), bound),
		RuledOut: []string{"a device that ignores its table: the packets follow it"},
		Site:     Site{Device: device, Queues: []int{queue}, CPU: cpu}}, true
}

// takenQueues reports RX207: queues that somebody owns, where a finding asks to move what they depend on.
func (v *view) takenQueues(r *Report) {
	touched := map[string]ID{}
	for _, f := range r.Findings {
		if slices.Contains([]ID{"RX201", "RX202", "RX203", "RX206"}, f.ID) && touched[f.Site.Device] == "" {
			touched[f.Site.Device] = f.ID
		}
	}
	for _, n := range v.inventory() {
		queues, whose := v.owned(n.Name)
		if len(whose) == 0 || !v.wanted(n.Name) {
			continue
		}
		id := touched[n.Name]
		if id == "" {
			r.checked("rx-%s of %s belong to %s: to be left alone", queues, n.Name, strings.Join(whose, ", "))
			continue
		}
		r.Findings = append(r.Findings, Finding{ID: "RX207", Severity: Info, Subject: n.Name,
			Summary:  fmt.Sprintf("rx-%s of %s belong to %s: channel and table changes are refused or break them", queues, n.Name, strings.Join(whose, ", ")),
			Evidence: Evidence{{"owned_queues", queues.String()}, {"owners", strings.Join(whose, ", ")}},
			Remedy:   fmt.Sprintf("for %s steer among the other queues only, and stop the owner first where the number of channels must change", id),
			Site:     Site{Device: n.Name, CPU: -1}})
	}
}

package diagnose

import (
	"fmt"
	"slices"
	"strings"

	"github.com/rxsteer/rxsteer/internal/host/knob"
	"github.com/rxsteer/rxsteer/internal/host/nic"
)

const (
	// surely is the part of a queue's packets that must be of a protocol, whatever the rest of the host's
	// packets were, to name the protocol's hash fields as cause.
	surely = 0.5
	// family is the part of a protocol's packets that makes IPv4 or IPv6 worth a change.
	family = 0.1
	// fragmented is the part of IP packets that are fragments above which ports are no help:
	// a fragment has none (all but the first), and with ports in the hash parts ways with the first.
	fragmented = 0.05
	// nearlyAll is the part of the packets that must be TCP for its connections to be the flows.
	nearlyAll = 0.95
)

// hashFields reports RX203: a queue full of flows that the hash could tell apart by their ports.
func (v *view) hashFields(r *Report) {
	for _, d := range v.traffic() {
		if !v.wanted(d.Name) || v.nics[d.Name].Kind != nic.Physical {
			continue
		}
		load, shares := v.queueLoad(d.Name), v.tableShares(d.Name)
		queue, share := load.busiest()
		if len(shares) < 2 || !uneven(share, shares[queue]) || v.rate(d.Name) < minPackets || r.tells(d.Name, queue) {
			continue
		}
		for _, proto := range []string{"udp", "tcp"} {
			if f, ok := v.portless(r, d.Name, proto, queue, share, load); ok {
				r.Findings = append(r.Findings, f)
				break
			}
		}
	}
}

// portless judges one protocol of a device whose busiest queue stands out.
func (v *view) portless(r *Report, device, proto string, queue int, share float64, load queueLoad) (Finding, bool) {
	var flows, fields []string
	for _, ip := range []string{"4", "6"} {
		var letters string
		if v.setting(knob.RSSHashFields, knob.On(device, "%s", proto+ip)).Decode(&letters) != nil ||
			!strings.ContainsAny(letters, "sd") || strings.ContainsAny(letters, "fn") {
			continue
		}
		flows, fields = append(flows, proto+ip), append(fields, letters)
	}
	if len(flows) == 0 {
		return Finding{}, false
	}
	classes, seen := v.classes(device)
	if v.s.Protocols == nil && seen == 0 {
		r.unmeasured("share of "+strings.ToUpper(proto)+" in the traffic", fmt.Sprintf("the protocol counters (snmp) are not at hand; rx-%d of %s got %s of its %s and hashing of %s is by addresses only", queue, device, percent(share), load.unit, strings.Join(flows, " and ")), "RX203")
		return Finding{}, false
	}
	v4, v6 := v.protocol(proto)
	all := v4 + v6
	// Loopback datagrams are counted, too, and never came from a device.
	all = max(0, all-v.received("lo")*v.seconds)
	var others float64
	for _, d := range v.s.Devices {
		if d.Name != "lo" && v.nics[d.Name].Kind != nic.Stack {
			others += float64(d.RXPackets)
		}
	}
	others = max(0, others-all)
	packets := float64(load.counts[queue])
	if load.unit != "packets" {
		packets = share * v.rate(device) * v.seconds
	}
	least := max(0, 1-others/packets)
	if seen > 0 { // what this device received, forwarded or not
		v4, v6 = float64(classes[proto+"4"]), float64(classes[proto+"6"])
		least = max(0, 1-ratio(1-(v4+v6)/float64(seen), share))
		all = (v4 + v6) / float64(seen) * v.rate(device) * v.seconds
	}
	if least < surely {
		r.checked("rx-%d of %s got %s of its %s and hashing of %s is by addresses only, but %s explains no more than %.0f of %.0f packets/s there", queue, device, percent(share), load.unit, strings.Join(flows, " and "), strings.ToUpper(proto), all/v.seconds, packets/v.seconds)
		return Finding{}, false
	}
	// One family of addresses may be rare.
	if v4+v6 > 0 {
		for i := len(flows) - 1; i >= 0; i-- {
			n := v4
			if strings.HasSuffix(flows[i], "6") {
				n = v6
			}
			if n < family*(v4+v6) {
				flows, fields = slices.Delete(flows, i, i+1), slices.Delete(fields, i, i+1)
			}
		}
	}
	if len(flows) == 0 {
		return Finding{}, false
	}
	fragments := v.fragments()
	if fragments >= fragmented {
		r.checked("rx-%d of %s got %s of its %s, but %s of the IP packets are fragments, which have no ports: hashing %s by ports could not spread them", queue, device, percent(share), load.unit, percent(fragments), flows[0])
		return Finding{}, false
	}
	reach := len(v.tableShares(device))
	cpu := load.cpu(queue)
	pair := 0 // flows there between the same two hosts
	if known := v.flowsOf(device, -1, queue); len(known) > 0 {
		if part := float64(known[0].Packets) / packets; part >= oneFlow {
			r.checked("rx-%d of %s got %s of its %s, and one flow is %s of that: hashing %s by ports would not spread it", queue, device, percent(share), load.unit, percent(part), flows[0])
			return Finding{}, false
		}
		for _, x := range known {
			if x.Protocol == proto && x.Source.Addr() == known[0].Source.Addr() && x.Destination.Addr() == known[0].Destination.Addr() {
				pair++
			}
		}
	}
	name := strings.ToUpper(proto)
	var commands []string
	for _, f := range flows {
		commands = append(commands, fmt.Sprintf("ethtool -N %s rx-flow-hash %s sdfn", device, f))
	}
	warn := "Fragments carry no ports: large datagrams could then arrive out of order; none are reassembled here now."
	if fragments > 0 {
		warn = fmt.Sprintf("Fragments carry no ports: large datagrams could then arrive out of order; %.2f %% of the IP packets here are fragments.", 100*fragments)
	}
	f := Finding{ID: "RX203", Severity: v.bySeverity(cpu), Subject: device,
		Summary: fmt.Sprintf("the hash of %s leaves out ports for %s, so that all %s flows of a host pair land in one queue: rx-%d got %s of the %s, and the table has %d queues", device, strings.Join(flows, " and "), name, queue, percent(share), load.unit, reach),
		Evidence: Evidence{{"flow_types", strings.Join(flows, " ")}, {"hash_fields", strings.Join(fields, " ")}, {"busiest_queue", queue},
			{"busiest_queue_share_ratio", share}, {"rx_queues", len(v.rxQueues(device))}, {"table_queues", reach}, v.carried(device),
			{proto + "_of_busiest_queue_at_least_ratio", least}, {"fragments_of_ip_ratio", fragments}},
		Remedy:   strings.Join(commands, "; ") + ". " + warn + " A single flow stays in one queue whatever the fields.",
		RuledOut: []string{fmt.Sprintf("an uneven table: rx-%d has %s of its buckets", queue, percent(v.tableShares(device)[queue])), fmt.Sprintf("fragments: %.2f %% of the IP packets", 100*fragments)},
		Site:     Site{Device: device, Queues: []int{queue}, CPU: cpu, Flows: flows},
	}
	if pair > 1 {
		f.Evidence = append(f.Evidence, Fact{"big_flows_of_one_pair_there", pair})
		f.RuledOut = append(f.RuledOut, fmt.Sprintf("one large flow: at least %d between the same two hosts are in rx-%d", pair, queue))
	}
	if cpu >= 0 {
		f.Evidence = append(f.Evidence, Fact{"cpu", cpu}, Fact{"cpu_receive_softirq_ratio", v.load[cpu].NetRX})
	}
	return f, true
}

// protocol is the packets of a protocol that reached this namespace's IP in the interval, over IPv4 and
// IPv6. UDP counts a datagram when it is read or lost: udp_recvmsg and udp_queue_rcv_one_skb,
// net/ipv4/udp.c. TCP does not tell the families apart: they are weighed by the packets of each.
func (v *view) protocol(proto string) (v4, v6 float64) {
	p := v.s.Protocols
	if proto == "udp" {
		return float64(p["UdpInDatagrams"] + p["UdpNoPorts"] + p["UdpInErrors"]), float64(p["Udp6InDatagrams"] + p["Udp6NoPorts"] + p["Udp6InErrors"])
	}
	six := ratio(float64(p["Ip6InReceives"]), float64(p["IpInReceives"]+p["Ip6InReceives"]))
	return float64(p["TcpInSegs"]) * (1 - six), float64(p["TcpInSegs"]) * six
}

// fragments is the part of the received IP packets that needed reassembly.
func (v *view) fragments() float64 {
	p := v.s.Protocols
	return part(p["IpReasmReqds"]+p["Ip6ReasmReqds"], p["IpInReceives"]+p["Ip6InReceives"])
}

// fewFlows is RX208: idle queues of a device that has fewer flows than queues. The number of flows is known
// where nearly all is TCP: no more than the connections open now and those opened meanwhile.
func (v *view) fewFlows(r *Report) {
	opened := v.s.Protocols["TcpActiveOpens"] + v.s.Protocols["TcpPassiveOpens"]
	established := v.s.Established + opened
	var all float64
	for _, d := range v.s.Devices {
		if d.Name != "lo" && v.nics[d.Name].Kind != nic.Stack {
			all += float64(d.RXPackets)
		}
	}
	tcp := float64(v.s.Protocols["TcpInSegs"]) - v.received("lo")*v.seconds
	for _, name := range v.steered() {
		load, queues := v.queueLoad(name), v.rxQueues(name)
		queue, share := load.busiest()
		idle := len(queues) - len(load.busy())
		flows, how := established, "at most "
		n, covered, known := v.knownFlows(name)
		switch {
		case known:
			flows, how = uint64(n), ""
		case v.s.Established == 0 || tcp < nearlyAll*all:
			continue
		}
		if idle == 0 || len(queues) < 2 || float64(flows) >= float64(len(queues)) || !uneven(share, 1/float64(len(queues))) || r.tells(name, queue) && !v.hotOnly(r, name) {
			continue
		}
		if !slices.Contains(v.in.Devices, name) && !v.hotOnly(r, name) {
			r.checked("%s: %d of %d queues idle, for there are %s%d flows", name, idle, len(queues), how, flows)
			continue
		}
		f := Finding{ID: "RX208", Severity: Info, Subject: name,
			Summary:  fmt.Sprintf("%s has %d queues for %s%d flows: a flow uses one queue, so %d idle queues are no fault", name, len(queues), how, flows, idle),
			Evidence: Evidence{{"rx_queues", len(queues)}, {"idle_queues", idle}, {"flows_at_most", flows}, {"established_tcp", v.s.Established}, {"busiest_queue_share_ratio", share}},
			Remedy:   "nothing to steer; more flows (connections) would use more queues, RFS moves the protocol work of a large one to its reader",
			Site:     Site{Device: name, CPU: -1}}
		if known {
			f.Evidence = append(f.Evidence, Fact{"known_flows_of_packets_ratio", covered})
		}
		r.Findings = append(r.Findings, f)
	}
}

// hotOnly reports whether all that was found about a device is that its CPU is hot.
func (v *view) hotOnly(r *Report, device string) bool {
	found := false
	for _, f := range r.Findings {
		if f.Site.Device == device {
			if f.ID != "RX101" {
				return false
			}
			found = true
		}
	}
	return found
}

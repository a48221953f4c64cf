package diagnose

import (
	"fmt"
	"slices"
	"strings"

	"github.com/rxsteer/rxsteer/collector"
	"github.com/rxsteer/rxsteer/internal/host/nic"
)

// tunnels are link kinds whose packets have the same outer addresses and no ports that differ by flow. VXLAN
// and Geneve are not among them: they put a hash of the inner flow into the source port.
var tunnels = map[string]string{
	"gre": "GRE", "gretap": "GRE", "ip6gre": "GRE", "ip6gretap": "GRE", "erspan": "ERSPAN", "ipip": "IPIP", "sit": "SIT", "ip6tnl": "IPv6 tunnel",
	"vti": "IPsec", "vti6": "IPsec", "xfrm": "IPsec", "wireguard": "WireGuard", "ppp": "PPPoE or L2TP", "pppoe": "PPPoE", "l2tpeth": "L2TP", "ip_gre": "GRE",
}

// tunnel is what a device's packets are wrapped in, "" in nothing. The driver name of such a device is its link
// kind (dev_ethtool falls back to rtnl_link_ops, net/ethtool/ioctl.c); PPP has none and a fixed name.
func tunnel(n nic.NIC) string {
	if what := tunnels[n.Driver]; what != "" {
		return what
	}
	if strings.HasPrefix(n.Name, "ppp") && n.Kind != nic.Physical {
		return tunnels["ppp"]
	}
	return ""
}

// unhashable reports RX204: a queue full of tunnelled packets that no hash of the NIC tells apart.
func (v *view) unhashable(r *Report) {
	var inside []string
	var what []string
	var packets, bytes, allPackets, allBytes float64
	for _, d := range v.s.Devices {
		n := v.nics[d.Name]
		switch {
		case d.Name == "lo" || n.Kind == nic.Stack:
		case tunnel(n) != "" && d.RXPackets > 0:
			inside = append(inside, d.Name)
			what = append(what, tunnel(n))
			packets, bytes = packets+float64(d.RXPackets), bytes+float64(d.RXBytes)
		case n.Kind == nic.Physical:
			allPackets, allBytes = allPackets+float64(d.RXPackets), allBytes+float64(d.RXBytes)
		}
	}
	// GRO merges inner packets, bytes stay: whichever shows more.
	wrapped := min(1, max(ratio(packets, allPackets), ratio(bytes, allBytes)))
	slices.Sort(what)
	what = slices.Compact(what)
	for _, d := range v.traffic() {
		if !v.wanted(d.Name) || v.nics[d.Name].Kind != nic.Physical {
			continue
		}
		load, shares := v.queueLoad(d.Name), v.tableShares(d.Name)
		queue, share := load.busiest()
		if len(shares) < 2 || queue < 0 || !uneven(share, shares[queue]) || r.tells(d.Name, queue) {
			continue
		}
		if v.oneClass(r, d.Name, queue, share, shares[queue], load) || len(inside) == 0 {
			continue
		}
		wrapped, allPackets := wrapped, allPackets
		if only := v.carrier(packets, bytes); only == d.Name {
			wrapped, allPackets = min(1, max(ratio(packets, float64(d.RXPackets)), ratio(bytes, float64(d.RXBytes)))), float64(d.RXPackets)
		}
		// What was not wrapped may all have gone to that queue, and what came by other devices
		// may all have been wrapped.
		least := 1 - ratio((1-wrapped)*allPackets, share*float64(d.RXPackets))
		if least < surely {
			r.checked("rx-%d of %s got %s of its %s; tunnels (%s) explain too little of them", queue, d.Name, percent(share), load.unit, strings.Join(inside, ", "))
			continue
		}
		cpu := load.cpu(queue)
		r.Findings = append(r.Findings, Finding{ID: "RX204", Severity: v.bySeverity(cpu), Subject: d.Name,
			Summary: fmt.Sprintf("%s of what %s receives is %s (%s) with constant outer addresses: the hash sees one flow, and rx-%d gets %s of the %s", percent(wrapped), d.Name, strings.Join(what, ", "), strings.Join(inside, ", "), queue, percent(share), load.unit),
			Evidence: Evidence{{"tunnels", strings.Join(inside, " ")}, {"tunnelled_ratio", wrapped}, {"busiest_queue", queue}, {"busiest_queue_share_ratio", share},
				{"tunnelled_of_busiest_queue_at_least_ratio", least}, {"table_queues", len(shares)}, v.carried(d.Name)},
			Remedy:   fmt.Sprintf("RPS on rx-%d of %s: the kernel's dissector sees the inner headers (not those of encrypted tunnels, which are decrypted in parallel anyhow). Or a tunnel with entropy outside: VXLAN, Geneve, GRE in UDP (FOU), with ports in the hash; moving the vector is no cure", queue, d.Name),
			RuledOut: []string{fmt.Sprintf("an uneven table: rx-%d has %s of its buckets", queue, percent(shares[queue]))},
			Site: Site{Device: d.Name, Queues: []int{queue}, CPU: cpu, Movable: v.pollTime(d.Name, cpu), Demand: 1,
				PollCPUs: v.pollCPUs(d.Name), Sends: v.sends(d.Name)}})
	}
}

// carrier is the one physical device that can have brought all the packets and bytes of the tunnels, "" where
// none or several can.
func (v *view) carrier(packets, bytes float64) string {
	var out []string
	for _, d := range v.s.Devices {
		if d.Name != "lo" && v.nics[d.Name].Kind == nic.Physical && float64(d.RXPackets) >= packets && float64(d.RXBytes) >= bytes {
			out = append(out, d.Name)
		}
	}
	if len(out) != 1 {
		return ""
	}
	return out[0]
}

// backlogWork is the CPUs' worth of receive work in the backlog: what RPS moved, and loopback and veth.
func (v *view) backlogWork() (cpus float64, packets uint64) {
	for _, p := range v.s.NAPIs {
		if p.IfIndex == 0 && p.Device == collector.Backlog {
			cpus += float64(p.Time) / float64(v.s.Interval)
			packets += p.Packets
		}
	}
	return cpus, packets
}

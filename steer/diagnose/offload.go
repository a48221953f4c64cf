package diagnose

import (
	"fmt"
	"slices"
	"strings"

	"github.com/rxsteer/rxsteer/collector"
	"github.com/rxsteer/rxsteer/internal/host/knob"
	"github.com/rxsteer/rxsteer/internal/host/nic"
)

const (
	// forwards is the part of the received IP packets that must be forwarded to call a host a router.
	forwards = 0.1
	// bulk is the average packet from which merging pays, bytes; full is that of segments.
	bulk = 800
	full = 1400
	// offloadPackets is the packets/s from which an offload is worth a word.
	offloadPackets = 10e3
)

// role is why a device must hand on packets as they came, "" where it need not: the host forwards IP, or the
// device is a port of a bridge.
func (v *view) role(device string) string {
	if m := v.nics[device].Master; m != "" && v.nics[m].Driver == "bridge" {
		return fmt.Sprintf("%s is a port of the bridge %s", device, m)
	}
	p := v.s.Protocols
	n, all := p["IpForwDatagrams"]+p["Ip6OutForwDatagrams"], p["IpInReceives"]+p["Ip6InReceives"]
	if v.beyond(n, float64(all), forwards, minPackets/10) {
		return fmt.Sprintf("the host forwards %s of the IP packets it receives", percent(part(n, all)))
	}
	return ""
}

// average is the mean size of received and sent packets of a device in bytes, 0 where there are none.
func average(d collector.Device) (rx, tx float64) {
	return part(d.RXBytes, d.RXPackets), part(d.TXBytes, d.TXPackets)
}

// offloads reports RX601 and RX604.
func (v *view) offloads(r *Report) {
	var fine []string
	for _, n := range v.in.NICs {
		if n.Kind != nic.Physical || !v.wanted(n.Name) {
			continue
		}
		if !v.setting(knob.Features, knob.Target(n.Name)).Known() {
			continue
		}
		i := slices.IndexFunc(v.s.Devices, func(d collector.Device) bool { return d.Name == n.Name })
		d := collector.Device{Name: n.Name}
		if i >= 0 {
			d = v.s.Devices[i]
		}
		before := len(r.Findings)
		v.lro(r, n.Name)
		v.refusedFeatures(r, n.Name)
		if v.seconds >= minInterval && !v.s.Untimed && !v.s.SinceBoot {
			v.gro(r, d)
			v.offloadsByTraffic(r, d)
		}
		if len(r.Findings) == before {
			fine = append(fine, n.Name)
		}
	}
	if len(fine) > 0 {
		r.checked("offloads of %s: they fit what is known of the traffic", strings.Join(fine, ", "))
	}
}

func (v *view) lro(r *Report, device string) {
	on, fixed, _ := v.feature(device, "rx-lro")
	role := v.role(device)
	asked, told := v.switched(knob.FeaturesWanted, knob.Target(device), "rx-lro")
	still := told && !asked
	if !on || role == "" && !still {
		return
	}
	f := Finding{ID: "RX601", Severity: Warning, Subject: device, Evidence: Evidence{{"rx_lro", on}, {"fixed", fixed}}, Site: Site{Device: device, CPU: -1},
		Remedy: fmt.Sprintf("ethtool -K %s lro off, and read back what else changed (GRO stays on: it can be undone packet by packet)", device)}
	switch {
	case role != "" && still:
		f.Summary = fmt.Sprintf("LRO of %s was turned off and is still on, while %s: what is forwarded must not be merged for good", device, role)
	case role != "":
		f.Summary = fmt.Sprintf("LRO of %s is on while %s: what is forwarded must not be merged for good", device, role)
	default:
		f.Severity = Info
		f.Summary = fmt.Sprintf("LRO of %s was turned off and is still on: the driver keeps it", device)
	}
	if role != "" {
		f.Evidence = append(f.Evidence, Fact{"role", role})
	}
	if fixed || still {
		f.Remedy = fmt.Sprintf("the driver does not let go of LRO: a newer driver, its private flags (ethtool --show-priv-flags %s), or no forwarding over %s", device, device)
	}
	r.Findings = append(r.Findings, f)
}

// refusedFeatures reports receive features that were asked for and are not in effect.
func (v *view) refusedFeatures(r *Report, device string) {
	var off []string
	for _, name := range []string{"rx-checksum", "rx-gro", "rx-hashing"} {
		asked, told := v.switched(knob.FeaturesWanted, knob.Target(device), name)
		if on, fixed, known := v.feature(device, name); told && asked && known && !on && !fixed {
			off = append(off, name)
		}
	}
	if len(off) == 0 {
		return
	}
	r.Findings = append(r.Findings, Finding{ID: "RX601", Severity: Info, Subject: device, Site: Site{Device: device, CPU: -1},
		Summary:  fmt.Sprintf("%s of %s was asked for and is off: another setting, or the driver, holds it back", strings.Join(off, " and "), device),
		Evidence: Evidence{{"asked_for_and_off", strings.Join(off, " ")}},
		Remedy:   fmt.Sprintf("find what excludes it (an XDP program, a private flag, a feature it depends on): ethtool -k %s shows [requested on]", device)})
}

func (v *view) gro(r *Report, d collector.Device) {
	on, fixed, known := v.feature(d.Name, "rx-gro")
	rx, _ := average(d)
	cpu, load := v.hottest(d.Name)
	if !known || on || fixed || rx < bulk || v.rate(d.Name) < offloadPackets || cpu < 0 || load < hotRatio/2 {
		return
	}
	f := Finding{ID: "RX601", Severity: Warning, Subject: d.Name, Site: Site{Device: d.Name, CPU: -1},
		Summary: fmt.Sprintf("GRO of %s is off for bulk: %.0f packets/s of %.0f bytes pass the stack one by one, and cpu %d spends %s in receive softirq", d.Name, v.rate(d.Name), rx, cpu, percent(load)),
		Evidence: Evidence{{"rx_gro", false}, {"average_packet_bytes", rx}, v.carried(d.Name), {"hottest_polling_cpu", cpu},
			{"its_receive_softirq_ratio", load}},
		Remedy: fmt.Sprintf("ethtool -K %s gro on, and read back what else changed; leave it off where a packet capture must see what was on the wire", d.Name)}
	r.Findings = append(r.Findings, f)
}

func (v *view) offloadsByTraffic(r *Report, d collector.Device) {
	rx, tx := average(d)
	cpu, load := v.hottest(d.Name)
	add := func(what, why, remedy string, ev ...Fact) {
		r.Findings = append(r.Findings, Finding{ID: "RX604", Severity: Info, Subject: d.Name, Site: Site{Device: d.Name, CPU: -1},
			Summary: fmt.Sprintf("%s of %s is off: %s", what, d.Name, why), Evidence: ev, Remedy: remedy})
	}
	if on, fixed, known := v.feature(d.Name, "rx-checksum"); known && !on && !fixed && v.rate(d.Name) >= offloadPackets && cpu >= 0 && load >= hotRatio/2 {
		add("receive check sum offload", fmt.Sprintf("the CPU sums each of %.0f packets/s of %.0f bytes, and GRO merges none of them", v.rate(d.Name), rx),
			fmt.Sprintf("ethtool -K %s rx on", d.Name), v.carried(d.Name), Fact{"average_packet_bytes", rx}, Fact{"its_receive_softirq_ratio", load})
	}
	if on, fixed, known := v.feature(d.Name, "tx-tcp-segmentation"); known && !on && !fixed && tx >= full && v.sends(d.Name) >= offloadPackets && v.role(d.Name) == "" {
		add("TCP segmentation offload", fmt.Sprintf("%.0f packets/s of %.0f bytes on average are sent one by one", v.sends(d.Name), tx),
			fmt.Sprintf("ethtool -K %s tso on", d.Name), Fact{"sent_packets_per_s", v.sends(d.Name)}, Fact{"average_sent_packet_bytes", tx})
	}
	// Forwarded UDP in bulk (QUIC, tunnels) is merged only where this is asked for.
	if on, fixed, known := v.feature(d.Name, "rx-udp-gro-forwarding"); known && !on && !fixed && v.role(d.Name) != "" && cpu >= 0 && load >= hotRatio/2 {
		if udp, size, ok := v.udpBulk(d.Name); ok && udp*v.rate(d.Name) >= offloadPackets {
			add("GRO of forwarded UDP", fmt.Sprintf("%s of its packets are UDP of %.0f bytes on average and pass the stack one by one, while %s", percent(udp), size, v.role(d.Name)),
				fmt.Sprintf("ethtool -K %s rx-udp-gro-forwarding on (GRO must be on, too); compare CPU per byte", d.Name), Fact{"udp_ratio", udp}, Fact{"average_udp_bytes", size}, Fact{"its_receive_softirq_ratio", load}, v.carried(d.Name))
		}
	}
	if on, fixed, known := v.feature(d.Name, "rx-vlan-hw-parse"); known && !on && !fixed {
		for _, n := range v.in.NICs {
			if n.Driver == "vlan" && slices.Contains(n.Lower, d.Name) && v.received(n.Name) >= offloadPackets {
				add("VLAN offload", fmt.Sprintf("the tags of %s, %.0f packets/s, are taken off in software", n.Name, v.received(n.Name)),
					fmt.Sprintf("ethtool -K %s rxvlan on", d.Name), Fact{"vlan", n.Name}, Fact{"vlan_packets_per_s", v.received(n.Name)})
				break
			}
		}
	}
}

// udpBulk is the part of a device's packets that is UDP and their average size, false where classes were not told or
// they are small.
func (v *view) udpBulk(device string) (part, bytes float64, ok bool) {
	b := v.buckets(device)
	if b == nil {
		return 0, 0, false
	}
	var all, udp, octets uint64
	for _, c := range b.Classes {
		all += c.Packets
		if c.Class == "udp4" || c.Class == "udp6" || c.Class == "vxlan" || c.Class == "geneve" {
			udp, octets = udp+c.Packets, octets+c.Bytes
		}
	}
	part, bytes = ratio(float64(udp), float64(all)), ratio(float64(octets), float64(udp))
	return part, bytes, part >= noticed && bytes >= bulk
}

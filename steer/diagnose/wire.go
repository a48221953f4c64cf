package diagnose

import (
	"fmt"
	"strings"

	"github.com/rxsteer/rxsteer/internal/host/nic"
)

const (
	// A cable in order loses less than one frame in 10^7 (a bit error ratio of 1e-12 at 1500 bytes is one in 10^8).
	wireRatio = 1e-6
	wirePerS  = 0.5
	// An MTU that does not fit shows in frames of one peer at least.
	lengthRatio = 1e-5
	lengthPerS  = 0.5
	// errorRatio is for the kernel's sum of all errors, which some drivers feed with what is none.
	errorRatio = 1e-4
	// fragmentPerS is the least fragments that explain anything.
	fragmentPerS = 100
)

// wireKinds are the signs of a bad link or path, the surest first.
var wireKinds = []struct {
	kind             nic.FactKind
	event, fact      string
	ratio, perSecond float64
	means, remedy    string
}{
	{nic.FECUncorrected, "blocks", "fec_uncorrected_blocks", 0, wirePerS, "that forward error correction could not mend", "clean or replace optics and cable, and see that both ends use the same FEC (ethtool --show-fec)"},
	{nic.CRCErrors, "frames", "crc_errors", wireRatio, wirePerS, "with a bad check sum", "cable, optics or the port of the switch: the frames were damaged on the way, and no queue setting helps"},
	{nic.SymbolErrors, "symbols", "symbol_errors", wireRatio, wirePerS, "of the line code damaged", "cable, optics or the port of the switch"},
	{nic.LengthErrors, "frames", "length_errors", lengthRatio, lengthPerS, "longer than it takes", "the MTU of a peer is larger than this device's (ip link, ping -M do -s): set both alike"},
}

// wire reports RX602: the link or the path explains it, not queues.
func (v *view) wire(r *Report) {
	var fine []string
	for _, d := range v.devices() {
		told, found := false, false
		for _, k := range wireKinds {
			told = told || v.tells(d.Name, k.kind)
			c := v.counted(d.Name, k.kind)
			of := v.offered(d.Name, c.n)
			if found || !v.beyond(c.n, of, k.ratio, k.perSecond) {
				continue
			}
			found = true
			f := Finding{ID: "RX602", Severity: v.now(Warning), Subject: d.Name, Remedy: k.remedy, Site: Site{Device: d.Name, CPU: -1},
				Summary:  fmt.Sprintf("the link of %s, not its queues: %s %s", d.Name, v.often(c.n, k.event), k.means),
				Evidence: Evidence{v.howOften(k.fact, c.n), {"of_packets_ratio", ratio(float64(c.n), of)}, {"counter", c.name}}}
			for _, o := range wireKinds {
				if x := v.counted(d.Name, o.kind); o.kind != k.kind && x.n > 0 {
					f.Evidence = append(f.Evidence, v.howOften(o.fact, x.n))
				}
			}
			if x := v.counted(d.Name, nic.FECCorrected); x.n > 0 {
				f.Evidence = append(f.Evidence, v.howOften("fec_corrected_blocks", x.n))
			}
			if ratio(float64(c.n), of) >= badly && k.kind != nic.FECUncorrected && k.kind != nic.SymbolErrors {
				f.Severity = v.now(Critical)
			}
			r.Findings = append(r.Findings, f)
		}
		if c := v.counted(d.Name, nic.LinkDowns); c.n > 0 && !v.s.SinceBoot {
			found = true
			f := Finding{ID: "RX602", Severity: Info, Subject: d.Name, Site: Site{Device: d.Name, CPU: -1},
				Summary:  fmt.Sprintf("the link of %s was lost %s while measured", d.Name, times(c.n)),
				Evidence: Evidence{{"link_losses", c.n}, {"counter", c.name}},
				Remedy:   "the kernel's log (dmesg) and the switch tell who took it down: a change of settings does so once, a bad cable again and again"}
			if c.n > 1 {
				f.Severity = Warning
			}
			r.Findings = append(r.Findings, f)
		}
		of := v.offered(d.Name, d.RXErrors)
		if !told && !found && v.beyond(d.RXErrors, of, errorRatio, dropPerS) {
			found = true
			r.Findings = append(r.Findings, Finding{ID: "RX602", Severity: v.now(Warning), Subject: d.Name, Site: Site{Device: d.Name, CPU: -1},
				Summary:  fmt.Sprintf("%s counts %s of %s as damaged", d.Name, v.often(d.RXErrors, "packets"), d.Name),
				Evidence: Evidence{v.howOften("rx_errors", d.RXErrors), {"of_packets_ratio", ratio(float64(d.RXErrors), of)}},
				Remedy:   fmt.Sprintf("ethtool -S %s tells which errors they are: check sums are the cable's, lengths the MTU's", d.Name)})
		}
		if told && !found {
			fine = append(fine, d.Name)
		}
	}
	if len(fine) > 0 {
		r.checked("link errors of %s: none beyond noise", strings.Join(fine, ", "))
	}
	v.fragmentation(r)
}

func times(n uint64) string {
	if n == 1 {
		return "once"
	}
	return fmt.Sprintf("%d times", n)
}

// fragmentation reports RX602 where so many packets are fragments that they decide which queue is busy.
func (v *view) fragmentation(r *Report) {
	p := v.s.Protocols
	n, all := p["IpReasmReqds"]+p["Ip6ReasmReqds"], p["IpInReceives"]+p["Ip6InReceives"]
	if !v.beyond(n, float64(all), fragmented, fragmentPerS) {
		return
	}
	failed := p["IpReasmFails"] + p["Ip6ReasmFails"]
	f := Finding{ID: "RX602", Severity: v.now(Warning), Subject: "host", Site: Site{CPU: -1},
		Summary: fmt.Sprintf("%s of the received IP packets are fragments: they carry no ports, so all of a host pair's land in one queue whatever the hash fields", percent(part(n, all))),
		Evidence: Evidence{v.howOften("fragments", n), {"fragments_of_ip_ratio", part(n, all)}, v.howOften("reassembled", p["IpReasmOKs"]+p["Ip6ReasmOKs"]),
			v.howOften("reassembly_failed", failed), v.howOften("fragments_made", p["IpFragCreates"]+p["Ip6FragCreates"])},
		Remedy: "datagrams that fit the MTU (a smaller payload, or a larger MTU on the whole path). Not udp4 sdfn: the first fragment would then part from the rest, which is reordering"}
	if v.s.Untimed || v.s.SinceBoot {
		f.Severity = Info
	}
	// The queue that is full of them is no finding of its own, nor its CPU.
	r.absorb(&f, func(x Finding) bool {
		if x.ID != "RX101" || len(x.Site.Queues) != 1 || x.Site.Device == "" {
			return false
		}
		_, share := v.queueLoad(x.Site.Device).busiest()
		return 1-ratio(float64(all-min(n, all)), share*v.rate(x.Site.Device)*v.seconds) >= surely
	})
	r.Findings = append(r.Findings, f)
}

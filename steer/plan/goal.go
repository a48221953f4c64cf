package plan

import (
	"fmt"
	"slices"

	"github.com/rxsteer/rxsteer/collector"
	"github.com/rxsteer/rxsteer/steer/diagnose"
)

const (
	// bulk is the average packet, bytes, from which a device is said to carry bulk, and few below which requests
	// and answers; telling is the packets/s from which an average says something.
	bulk    = 800
	few     = 300
	telling = 1000
	// forwards is the part of the received IP packets that must be forwarded to call a host a router.
	forwards = 0.1
	// busyPolls is the polls/s from process context that show an application to whom microseconds matter.
	busyPolls = 1000
)

// workload chooses the goal from what was measured, and says why.
func (m *maker) workload() (Goal, string) {
	s := m.in.Sample
	if s == nil || s.Interval <= 0 {
		return Balanced, "nothing was measured that would tell bulk from requests"
	}
	seconds := s.Interval.Seconds()
	var polls uint64
	for _, n := range s.NAPIs {
		if n.IfIndex != 0 {
			polls += n.BusyPolls
		}
	}
	if found := slices.ContainsFunc(m.in.Report.Findings, func(f diagnose.Finding) bool { return f.ID == "RX504" }); found || !m.threadedAnywhere() && float64(polls)/seconds >= busyPolls {
		return Latency, fmt.Sprintf("applications poll the network themselves, %.0f times/s: microseconds matter to them", float64(polls)/seconds)
	}
	p := s.Protocols
	if n, all := p["IpForwDatagrams"]+p["Ip6OutForwDatagrams"], p["IpInReceives"]+p["Ip6InReceives"]; float64(n)/seconds >= telling/10 && float64(n) >= forwards*float64(all) {
		return Throughput, fmt.Sprintf("the host forwards %.0f %% of the IP packets it receives: packets/s count, nobody here waits for them", 100*float64(n)/float64(all))
	}
	var d collector.Device // busiest
	for _, x := range s.Devices {
		if x.RXPackets > d.RXPackets && x.Name != "lo" && (len(m.in.Report.Named) == 0 || slices.Contains(m.in.Report.Named, x.Name)) {
			d = x
		}
	}
	if float64(d.RXPackets)/seconds < telling {
		return Balanced, "there is too little traffic to tell what it is for"
	}
	size := float64(d.RXBytes) / float64(d.RXPackets)
	flows := ""
	if s.Established > 0 {
		flows = fmt.Sprintf(" over %d TCP connections", s.Established)
	}
	switch {
	case size >= bulk:
		return Throughput, fmt.Sprintf("packets of %s have %.0f bytes on average%s: bulk", d.Name, size, flows)
	case size < few:
		return Balanced, fmt.Sprintf("packets of %s have %.0f bytes on average%s: requests and answers; nothing shows that microseconds matter (no busy polling), else ask for --goal latency", d.Name, size, flows)
	}
	return Balanced, fmt.Sprintf("packets of %s have %.0f bytes on average%s: neither bulk nor small", d.Name, size, flows)
}

// threadedAnywhere reports whether NAPI threads run, whose polls are in process context too.
func (m *maker) threadedAnywhere() bool {
	for _, n := range m.in.NICs {
		for _, q := range n.Queues {
			if q.Thread != 0 {
				return true
			}
		}
	}
	return false
}

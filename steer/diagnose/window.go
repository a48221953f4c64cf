package diagnose

import (
	"fmt"
	"net/netip"
	"time"

	"github.com/rxsteer/rxsteer/collector"
)

const (
	// flowRate is the least payload of a connection worth a word, bytes/s.
	flowRate = 1e6
	// farRTT is the round trip from which windows bound a connection of that rate.
	farRTT = 2 * time.Millisecond
	// heldBack is the part of the time with something to send in which a window or buffer held it back.
	heldBack = 0.5
	// filled is the part of the window that must be in flight to call a receiver bound by it, and atMost the part
	// of the largest buffer that counts as all of it.
	filled = 0.7
	atMost = 0.95
	// unscaled is the largest window without window scaling (RFC 7323).
	unscaled = 65535
	// lossy is the retransmitted part of the segments that bounds a connection, of at least fewSegs.
	lossy   = 0.02
	fewSegs = 1000
	// mostFlows is how many connections are reported.
	mostFlows = 3
)

// windows reports RX603: connections bound by a window or by losses on the path, as the kernel accounts for it.
func (v *view) windows(r *Report) {
	t := v.s.TCP
	if t == nil {
		return
	}
	n, looked := 0, 0
	for _, f := range t.Flows {
		if float64(f.Received+f.Acked)/v.seconds < flowRate {
			continue
		}
		looked++
		if x, ok := v.bound(t, f); ok && n < mostFlows {
			r.Findings = append(r.Findings, x)
			n++
		}
	}
	if n == 0 && looked > 0 {
		r.checked("the %s of TCP: none is bound by a window, a buffer or retransmissions", count(looked, "busiest connection"))
	}
}

// bound judges one connection.
func (v *view) bound(t *collector.TCP, f collector.TCPFlow) (Finding, bool) {
	in, out := float64(f.Received)/v.seconds, float64(f.Acked)/v.seconds
	x := Finding{ID: "RX603", Severity: Info, Subject: f.Remote, Site: Site{CPU: -1},
		RuledOut: []string{"the NIC and its queues: the kernel counts this wait as the connection's own"}}
	base := Evidence{{"local", f.Local}, {"remote", f.Remote}, {"received_bytes_per_s", in}, {"sent_bytes_per_s", out}, {"congestion_control", f.Congestion}}
	sending := out >= flowRate && f.RTT >= farRTT
	receiving := in >= flowRate && f.ReceiveRTT >= farRTT && f.Timestamps && f.ReceiveQueue < f.ReceiveBuffer/4
	need := in * f.ReceiveRTT.Seconds() // bytes in flight
	host, port := f.Remote, "the other end"
	if a, err := netip.ParseAddrPort(f.Remote); err == nil {
		host, port = a.Addr().String(), fmt.Sprintf("%s port %d", a.Addr(), a.Port())
	}
	switch {
	case sending && part(uint64(f.SendBuffer), uint64(f.Busy)) >= heldBack:
		x.Severity = Warning
		bdp := 2 * out * f.RTT.Seconds()
		x.Summary = fmt.Sprintf("sending to %s waits for the socket's own send buffer %s of the time: %.1f MB/s at a round trip of %v", port, percent(part(uint64(f.SendBuffer), uint64(f.Busy))), out/1e6, f.RTT.Round(100*time.Microsecond))
		x.Evidence = append(base, Fact{"held_by_send_buffer_ratio", part(uint64(f.SendBuffer), uint64(f.Busy))}, Fact{"rtt_ms", f.RTT.Seconds() * 1e3}, Fact{"tcp_wmem_max", t.WriteMax})
		x.Remedy = fmt.Sprintf("sysctl -w net.ipv4.tcp_wmem=\"4096 16384 %d\" (twice what is in flight at twice this rate), unless the application sets SO_SNDBUF itself; never applied by rxsteer", roundUp(2*bdp, t.WriteMax))
	case sending && part(uint64(f.PeerWindow), uint64(f.Busy)) >= heldBack:
		x.Summary = fmt.Sprintf("sending to %s waits for its receive window %s of the time: %.1f MB/s at a round trip of %v", port, percent(part(uint64(f.PeerWindow), uint64(f.Busy))), out/1e6, f.RTT.Round(100*time.Microsecond))
		x.Evidence = append(base, Fact{"held_by_peer_window_ratio", part(uint64(f.PeerWindow), uint64(f.Busy))}, Fact{"rtt_ms", f.RTT.Seconds() * 1e3}, Fact{"window_scaling", f.WindowScaling})
		x.Remedy = fmt.Sprintf("at %s: a reader that keeps up, or a larger tcp_rmem there; nothing on this host cures it", host)
	case sending && f.SegsOut >= fewSegs && part(f.Retransmits, f.SegsOut) >= lossy:
		x.Summary = fmt.Sprintf("%.1f %% of the segments to %s are sent again: losses on the path bound it, not this host", 100*part(f.Retransmits, f.SegsOut), port)
		x.Evidence = append(base, Fact{"retransmitted_ratio", part(f.Retransmits, f.SegsOut)}, Fact{"rtt_ms", f.RTT.Seconds() * 1e3})
		x.Remedy = "find where the path loses (link errors here and at the switch, policers); congestion control bbr suffers less from losses that are no congestion (sysctl net.ipv4.tcp_congestion_control)"
	case receiving && !f.WindowScaling && need >= filled*unscaled:
		x.Severity = Warning
		x.Summary = fmt.Sprintf("receiving from %s is bound by a window without scaling: at most 64 KiB are in flight, %.1f MB/s at a round trip of %v", port, in/1e6, f.ReceiveRTT.Round(100*time.Microsecond))
		x.Evidence = append(base, Fact{"window_scaling", false}, Fact{"receive_rtt_ms", f.ReceiveRTT.Seconds() * 1e3}, Fact{"in_flight_bytes", need})
		x.Remedy = "sysctl net.ipv4.tcp_window_scaling=1 at both ends, and no middle box that strips the option; then connect again"
	case receiving && t.ReadMax > 0 && float64(f.ReceiveBuffer) >= atMost*float64(t.ReadMax) && need >= filled*float64(f.ReceiveBuffer)/2:
		// Half of the buffer is offered as window: tcp_win_from_space, include/net/tcp.h.
		x.Severity = Warning
		x.Summary = fmt.Sprintf("receiving from %s is bound by its window: the buffer has grown to the most tcp_rmem allows and is full of what is in flight, %.1f MB/s at a round trip of %v", port, in/1e6, f.ReceiveRTT.Round(100*time.Microsecond))
		x.Evidence = append(base, Fact{"receive_buffer_bytes", int(f.ReceiveBuffer)}, Fact{"tcp_rmem_max", t.ReadMax}, Fact{"receive_rtt_ms", f.ReceiveRTT.Seconds() * 1e3}, Fact{"in_flight_bytes", need})
		x.Remedy = fmt.Sprintf("sysctl -w net.ipv4.tcp_rmem=\"4096 131072 %d\" (room for twice this rate); never applied by rxsteer", roundUp(4*need, t.ReadMax))
	default:
		return Finding{}, false
	}
	return x, true
}

// roundUp is the next power of two from n, at least twice the present limit and at most 1 GiB.
func roundUp(n float64, limit uint64) uint64 {
	out := uint64(1 << 20)
	for out < 1<<30 && (float64(out) < n || out < 2*limit) {
		out *= 2
	}
	return out
}

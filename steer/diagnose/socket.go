package diagnose

import "fmt"

const (
	// socketRatio and socketPerS are what losses at sockets must exceed.
	socketRatio = 1e-3
	socketPerS  = 5
	// acceptPerS is what refused connections must exceed.
	acceptPerS = 1
)

// sockets reports RX406: packets that came all the way to their socket and found no room.
func (v *view) sockets(r *Report) {
	p := v.s.Protocols
	if p == nil {
		return
	}
	found := len(r.Findings)
	report := func(lost uint64, of float64, leastPerS float64, what, remedy string, ev Evidence) {
		if !v.beyond(lost, of, socketRatio, leastPerS) {
			return
		}
		r.Findings = append(r.Findings, Finding{ID: "RX406", Severity: v.now(Warning), Subject: "host",
			Summary:  fmt.Sprintf("%s (%.2g %%): the application is the bottleneck, not the NIC", what, 100*ratio(float64(lost), of)),
			Evidence: append(ev, Fact{"lost_of_offered_ratio", ratio(float64(lost), of)}),
			Remedy:   remedy,
			RuledOut: []string{"queues, rings and backlog: these packets had passed them all"}, Site: Site{CPU: -1}})
	}
	v4, v6 := v.protocol("udp")
	full, memory := p["UdpRcvbufErrors"]+p["Udp6RcvbufErrors"], p["UdpMemErrors"]+p["Udp6MemErrors"]
	remedy := "a reader that keeps up (more of them with SO_REUSEPORT), or for bursts a larger buffer: SO_RCVBUF of the application, bounded by sysctl net.core.rmem_max"
	if memory > full {
		remedy = "all of UDP has used up its memory: sysctl net.ipv4.udp_mem, and who holds it (ss -uam)"
	}
	report(full+memory, v4+v6, socketPerS, "no room in UDP sockets for "+v.often(full+memory, "datagrams"), remedy,
		Evidence{v.howOften("udp_receive_buffer_full", full), v.howOften("udp_memory_exhausted", memory)})

	overflow := p["TcpExtListenOverflows"]
	report(overflow, float64(p["TcpPassiveOpens"]+overflow), acceptPerS, "full accept queues refuse "+v.often(overflow, "connections"),
		"accept() more often, or a longer queue: the backlog of listen(), bounded by sysctl net.core.somaxconn; ss -ltn shows which socket is full",
		Evidence{v.howOften("listen_overflows", overflow), v.howOften("listen_drops", p["TcpExtListenDrops"])})

	// TCPRcvQDrop, RcvPruned: the receive queue was over its limit; TCPBacklogDrop: the owner held the
	// socket too long (Documentation/networking/snmp_counter.rst).
	queue, backlog := p["TcpExtRcvPruned"]+p["TcpExtTCPRcvQDrop"], p["TcpExtTCPBacklogDrop"]
	report(queue+backlog, float64(p["TcpInSegs"]), socketPerS, "no room in TCP sockets for "+v.often(queue+backlog, "segments"),
		"a reader that keeps up; for bursts a larger sysctl net.ipv4.tcp_rmem, or net.ipv4.tcp_mem where all of TCP is short of memory",
		Evidence{v.howOften("tcp_receive_queue_full", queue), v.howOften("tcp_backlog_drops", backlog), v.howOften("tcp_pruned", p["TcpExtPruneCalled"])})
	if len(r.Findings) == found {
		r.checked("socket buffers and accept queues: no loss beyond noise")
	}
}

package collector

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/rxsteer/rxsteer/internal/host"
	"github.com/rxsteer/rxsteer/internal/sockdiag"
)

// TCP is the busiest TCP connections of the reader's own network namespace, loopback left out.
type TCP struct {
	Flows []TCPFlow `json:"flows"` // most bytes first, at most topFlows
	// ReadMax and WriteMax are the largest buffers the kernel gives by itself, bytes
	// (sysctl net.ipv4.tcp_rmem, tcp_wmem), 0 not known.
	ReadMax  uint64 `json:"read_max"`
	WriteMax uint64 `json:"write_max"`
}

// TCPFlow is what a connection did in the interval. One that was not among the busiest all the time
// may have done more.
type TCPFlow struct {
	Local  string `json:"local"` // address:port
	Remote string `json:"remote"`
	// Received and Acked are bytes of payload that came, and that the peer acknowledged.
	Received    uint64 `json:"received"`
	Acked       uint64 `json:"acked"`
	SegsOut     uint64 `json:"segs_out"`
	Retransmits uint64 `json:"retransmits"`
	// Busy is how long there was something to send; PeerWindow and SendBuffer the parts of it in which
	// the peer's window or the own buffer held it back.
	Busy       time.Duration `json:"busy_ns"`
	PeerWindow time.Duration `json:"peer_window_ns"`
	SendBuffer time.Duration `json:"send_buffer_ns"`
	// As at the end of the interval; ReceiveRTT is the receiver's estimate, 0 not known.
	RTT           time.Duration `json:"rtt_ns"`
	ReceiveRTT    time.Duration `json:"receive_rtt_ns"`
	WindowScaling bool          `json:"window_scaling"`
	Timestamps    bool          `json:"timestamps"`
	ReceiveQueue  uint32        `json:"receive_queue"`  // bytes of memory that wait for the reader
	ReceiveBuffer uint32        `json:"receive_buffer"` // its limit
	Congestion    string        `json:"congestion,omitempty"`
}

const (
	topFlows       = 16
	maxConnections = 1 << 14 // a host with more is not asked: a dump costs about a microsecond each
)

// tcpReading is one look at the connections, cumulative.
type tcpReading struct {
	flows             []sockdiag.Flow
	readMax, writeMax uint64
}

// tcpSource keeps what was read last, and reads again as driverSource does.
type tcpSource struct {
	last *tcpReading
	next time.Time
}

// read adds the connections to a reading; from is sockdiag.TCP, nil reads none.
func (s *tcpSource) read(r *Reading, fsys host.FS, from func(limit int) ([]sockdiag.Flow, error), now func() time.Time) {
	if from == nil {
		return
	}
	start := now()
	if !start.Before(s.next) {
		flows, err := from(maxConnections)
		if err != nil {
			r.unmeasured("TCP connections", err)
		}
		s.last = nil
		if err == nil {
			s.last = &tcpReading{flows, bufferMax(fsys, "tcp_rmem"), bufferMax(fsys, "tcp_wmem")}
		}
		end := now()
		s.next = end.Add(driverShare * end.Sub(start))
	}
	r.tcp = s.last
}

// bufferMax is the last of the three numbers of tcp_rmem or tcp_wmem.
func bufferMax(fsys host.FS, name string) uint64 {
	text, err := fsys.ReadFile("/proc/sys/net/ipv4/" + name)
	if fields := strings.Fields(string(text)); err == nil && len(fields) == 3 {
		if n, err := strconv.ParseUint(fields[2], 10, 63); err == nil {
			return n
		}
	}
	return 0
}

// tcp lists what the busiest connections did. One that is new has counted from 0.
func (d *difference) tcp() {
	if d.prev.tcp == nil || d.cur.tcp == nil {
		return
	}
	before := make(map[uint64]*sockdiag.Flow, len(d.prev.tcp.flows))
	for i := range d.prev.tcp.flows {
		before[d.prev.tcp.flows[i].Cookie] = &d.prev.tcp.flows[i]
	}
	t := &TCP{Flows: []TCPFlow{}, ReadMax: d.cur.tcp.readMax, WriteMax: d.cur.tcp.writeMax}
	for i := range d.cur.tcp.flows {
		now := &d.cur.tcp.flows[i]
		was := before[now.Cookie]
		if was == nil {
			was = &sockdiag.Flow{}
		}
		f := TCPFlow{Received: now.BytesReceived - was.BytesReceived, Acked: now.BytesAcked - was.BytesAcked}
		if f.Received+f.Acked == 0 || now.Remote.Addr().Unmap().IsLoopback() || now.Remote.Addr() == now.Local.Addr() {
			continue
		}
		f.Local, f.Remote = now.Local.String(), now.Remote.String()
		f.SegsOut, f.Retransmits = now.SegsOut-was.SegsOut, now.Retransmits-was.Retransmits
		f.Busy, f.PeerWindow, f.SendBuffer = now.Busy-was.Busy, now.PeerWindow-was.PeerWindow, now.SendBuffer-was.SendBuffer
		f.RTT, f.ReceiveRTT, f.WindowScaling, f.Timestamps = now.RTT, now.ReceiveRTT, now.WindowScaling, now.Timestamps
		f.ReceiveQueue, f.ReceiveBuffer, f.Congestion = now.ReceiveQueue, now.ReceiveBuffer, now.Congestion
		t.Flows = append(t.Flows, f)
	}
	t.top()
	d.s.TCP = t
}

// top keeps the busiest.
func (t *TCP) top() {
	slices.SortFunc(t.Flows, func(a, b TCPFlow) int {
		return cmp.Or(-cmp.Compare(a.Received+a.Acked, b.Received+b.Acked), cmp.Compare(a.Local, b.Local), cmp.Compare(a.Remote, b.Remote))
	})
	t.Flows = t.Flows[:min(len(t.Flows), topFlows)]
}

// add adds the next interval's.
func (t *TCP) add(o *TCP) {
	t.ReadMax, t.WriteMax = o.ReadMax, o.WriteMax
	for _, f := range o.Flows {
		i := slices.IndexFunc(t.Flows, func(x TCPFlow) bool { return x.Local == f.Local && x.Remote == f.Remote })
		if i < 0 {
			t.Flows = append(t.Flows, f)
			continue
		}
		was := t.Flows[i]
		f.Received, f.Acked = f.Received+was.Received, f.Acked+was.Acked
		f.SegsOut, f.Retransmits = f.SegsOut+was.SegsOut, f.Retransmits+was.Retransmits
		f.Busy, f.PeerWindow, f.SendBuffer = f.Busy+was.Busy, f.PeerWindow+was.PeerWindow, f.SendBuffer+was.SendBuffer
		t.Flows[i] = f
	}
}

package traffic

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"runtime"
	"slices"
	"sync"
	"time"
	"unsafe"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"
)

// RecvReport is what arrived in an interval.
type RecvReport struct {
	Seconds  float64 `json:"seconds"`
	Received uint64  `json:"received"`
	Bytes    uint64  `json:"bytes"` // of payload
	Lost     uint64  `json:"lost"`  // gaps in the sequence numbers; what is missing at the end of a run only the sender knows
	Late     uint64  `json:"late"`  // overtaken by a later packet of its flow, or doubled
	Foreign  uint64  `json:"foreign"`
	// Latency is one-way over the packets that are no probes, Probe over the
	// probes (from when they were due). Both only hold between processes of
	// one machine; OtherClock counts stamps that cannot be of this clock.
	Latency    Summary    `json:"latency"`
	Probe      Summary    `json:"probe"`
	OtherClock uint64     `json:"other_clock"`
	Flows      []FlowRecv `json:"flows"` // by flow number
}

// Rate is packets per second.
func (r RecvReport) Rate() float64 { return float64(r.Received) / r.Seconds }

// FlowRecv is one flow of a RecvReport.
type FlowRecv struct {
	Flow     uint32  `json:"flow"`
	Probe    bool    `json:"probe,omitempty"`
	Received uint64  `json:"received"`
	Bytes    uint64  `json:"bytes"`
	Lost     uint64  `json:"lost"`
	Late     uint64  `json:"late"`
	Latency  Summary `json:"latency"`
}

// flow is the state of one flow; the counters are since the last Take.
type flow struct {
	probe    bool
	next     uint64 // sequence number expected
	base     uint64 // next at the last Take
	received uint64
	bytes    uint64
	late     uint64
	latency  Histogram
}

// tally counts packets; safe for several receivers at once.
type tally struct {
	mu         sync.Mutex
	since      time.Duration
	flows      map[uint32]*flow
	foreign    uint64
	otherClock uint64
}

func newTally() *tally {
	return &tally{since: Now(), flows: map[uint32]*flow{}}
}

// count takes one packet that came at now; the caller holds mu.
func (t *tally) count(h Header, size int, now time.Duration) {
	f := t.flows[h.Flow]
	if f == nil {
		if len(t.flows) >= maxFlows {
			t.foreign++
			return
		}
		f = &flow{}
		t.flows[h.Flow] = f
	}
	f.probe = h.Flags&FlagProbe != 0
	f.received++
	f.bytes += uint64(size)
	if h.Seq >= f.next {
		f.next = h.Seq + 1
	} else {
		f.late++
	}
	if d := now - h.Stamp; d >= 0 && d < time.Hour {
		f.latency.Add(d)
	} else {
		t.otherClock++
	}
}

// Take returns what was counted since the last Take (or the start) and begins
// a new interval.
func (t *tally) Take() RecvReport {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := Now()
	r := RecvReport{Seconds: (now - t.since).Seconds(), Foreign: t.foreign, OtherClock: t.otherClock, Flows: []FlowRecv{}}
	var bulk, probe Histogram
	for _, id := range slices.Sorted(maps.Keys(t.flows)) {
		f := t.flows[id]
		fr := FlowRecv{Flow: id, Probe: f.probe, Received: f.received, Bytes: f.bytes, Late: f.late, Latency: f.latency.Summary()}
		// A late packet of the last interval can make more arrive than are new.
		if expected := f.next - f.base; expected > f.received {
			fr.Lost = expected - f.received
		}
		r.Received += fr.Received
		r.Bytes += fr.Bytes
		r.Lost += fr.Lost
		r.Late += fr.Late
		r.Flows = append(r.Flows, fr)
		if f.probe {
			probe.Merge(&f.latency)
		} else {
			bulk.Merge(&f.latency)
		}
		*f = flow{probe: f.probe, next: f.next, base: f.next}
	}
	r.Latency, r.Probe = bulk.Summary(), probe.Summary()
	t.since, t.foreign, t.otherClock = now, 0, 0
	return r
}

// Total is how many packets were counted since the last Take.
func (t *tally) Total() (n uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, f := range t.flows {
		n += f.received
	}
	return n
}

// Receiver counts the packets that reach UDP sockets.
type Receiver struct {
	*tally
	config ReceiveConfig
	fds    []int
}

// ReceiveConfig says where to listen.
type ReceiveConfig struct {
	Listen  netip.AddrPort
	Ports   int  // consecutive ports from Listen's; 1 when 0
	Sockets int  // sockets per port, sharing its flows by SO_REUSEPORT; 1 when 0
	Buffer  int  // bytes of socket buffer; 4 MiB when 0, so that losses happen below
	CPU     *int // pins the reading threads
	// Every is how often to read; 0 is as soon as packets come. A rare reader is
	// woken by its timer, not by each packet, which costs the receive path less;
	// latencies then include the wait.
	Every time.Duration
}

// receiveSize is the largest payload read in full; of larger ones only the
// header matters.
const receiveSize = 2048

// Listen opens the sockets in the calling thread's network namespace: from
// then on packets queue up for Run.
func Listen(c ReceiveConfig) (*Receiver, error) {
	if c.Buffer == 0 {
		c.Buffer = 4 << 20
	}
	r := &Receiver{tally: newTally(), config: c}
	for p := range max(c.Ports, 1) {
		addr := netip.AddrPortFrom(c.Listen.Addr(), c.Listen.Port()+uint16(p))
		for range max(c.Sockets, 1) {
			fd, err := listen(addr, c.Buffer)
			if err != nil {
				return nil, errors.Join(fmt.Errorf("listen on udp %v: %w", addr, err), r.Close())
			}
			r.fds = append(r.fds, fd)
		}
	}
	return r, nil
}

func listen(addr netip.AddrPort, buffer int) (fd int, err error) {
	domain := unix.AF_INET
	if addr.Addr().Is6() {
		domain = unix.AF_INET6
	}
	fd, err = unix.Socket(domain, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return 0, err
	}
	defer func() {
		if err != nil {
			unix.Close(fd)
		}
	}()
	if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEPORT, 1); err != nil {
		return 0, err
	}
	// Without CAP_NET_ADMIN the buffer is what net.core.rmem_max allows.
	if unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, buffer) != nil {
		if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUF, buffer); err != nil {
			return 0, err
		}
	}
	if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Usec: 50_000}); err != nil {
		return 0, err
	}
	return fd, unix.Bind(fd, sockaddr(addr))
}

// Addr is where the first socket listens.
func (r *Receiver) Addr() (netip.AddrPort, error) {
	sa, err := unix.Getsockname(r.fds[0])
	if err != nil {
		return netip.AddrPort{}, fmt.Errorf("read address of receiver: %w", err)
	}
	return addrPort(sa), nil
}

// Run reads until ctx ends, which is no error. Packets with FlagEcho go back to
// where they came from.
func (r *Receiver) Run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	for _, fd := range r.fds {
		g.Go(func() error {
			runtime.LockOSThread() // never unlocked: the thread may be pinned
			if err := pin(r.config.CPU); err != nil {
				return fmt.Errorf("pin receiver: %w", err)
			}
			msgs := newMessages(burst, receiveSize)
			full := false // more may wait
			call := unix.Syscall6
			if len(r.fds) == 1 && runtime.GOMAXPROCS(0) > 1 {
				call = unix.RawSyscall6 // one thread may keep its P; see sleep
			}
			var names [burst]unix.RawSockaddrAny
			for i := range names {
				msgs.hdrs[i].hdr.Name = (*byte)(unsafe.Pointer(&names[i]))
			}
			for ctx.Err() == nil {
				if r.config.Every > 0 && !full {
					sleep(r.config.Every)
				}
				for i := range names {
					msgs.hdrs[i].hdr.Namelen = unix.SizeofSockaddrAny
				}
				n, err := msgs.receiveBy(call, fd)
				if err != nil {
					return fmt.Errorf("receive: %w", err)
				}
				full = n == burst
				if n > 0 {
					r.take(fd, msgs, n)
				}
			}
			return nil
		})
	}
	return g.Wait()
}

// take counts the n packets of a batch and answers echo requests.
func (r *Receiver) take(fd int, msgs *messages, n int) {
	now := Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := range n {
		size := int(msgs.hdrs[i].n)
		h, ok := parseHeader(msgs.bufs[i][:min(size, receiveSize)])
		if !ok || h.Flags&FlagReply != 0 {
			r.foreign++
			continue
		}
		r.count(h, size, now)
		if h.Flags&FlagEcho != 0 {
			h.Flags ^= FlagEcho | FlagReply
			h.put(msgs.bufs[i])
			msgs.reply(fd, i, size)
		}
	}
}

// reply sends message i back to its sender; one that cannot be sent is lost, as
// on the wire.
func (m *messages) reply(fd, i, size int) {
	iov := unix.Iovec{Base: &m.bufs[i][0]}
	iov.SetLen(min(size, len(m.bufs[i])))
	msg := unix.Msghdr{Name: m.hdrs[i].hdr.Name, Namelen: m.hdrs[i].hdr.Namelen, Iov: &iov}
	msg.SetIovlen(1)
	_, _, _ = unix.Syscall(unix.SYS_SENDMSG, uintptr(fd), uintptr(unsafe.Pointer(&msg)), unix.MSG_DONTWAIT)
}

// Close closes the sockets; Run must have ended.
func (r *Receiver) Close() error {
	var err error
	for _, fd := range r.fds {
		err = errors.Join(err, unix.Close(fd))
	}
	r.fds = nil
	return err
}

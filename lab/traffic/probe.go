package traffic

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"runtime"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// ProbeReport is the round trips of a probe flow, each from when its packet
// was due. Lost probes are in Lost, not in RTT.
type ProbeReport struct {
	Send     SendReport `json:"send"`
	Received uint64     `json:"received"`
	Lost     uint64     `json:"lost"`
	Late     uint64     `json:"late"`
	RTT      Summary    `json:"rtt"`
}

// ProbeConn sends probes to a Receiver, which echoes them.
type ProbeConn struct {
	udp *UDP
}

// DialProbe opens the probe's socket in the calling thread's network namespace; ports has its
// source port, or none to leave that to the kernel.
func DialProbe(to netip.AddrPort, ports ...uint16) (*ProbeConn, error) {
	u, err := DialUDP(FlowConfig{To: []netip.AddrPort{to}, Ports: ports}, receiveSize)
	if err != nil {
		return nil, fmt.Errorf("dial probe: %w", err)
	}
	if err := unix.SetsockoptTimeval(u.fds[0], unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Usec: 20_000}); err != nil {
		return nil, errors.Join(fmt.Errorf("dial probe: %w", err), u.Close())
	}
	return &ProbeConn{u}, nil
}

// Run sends plan's packets (of one flow) and collects the echoes until wait
// after the last.
func (c *ProbeConn) Run(ctx context.Context, plan Plan, wait time.Duration) (ProbeReport, error) {
	plan.Flags = FlagProbe | FlagEcho
	plan.Flows = 1
	t := newTally()
	var stop atomic.Bool
	received := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread may be pinned
		received <- c.collect(t, plan, &stop)
	}()
	sent, err := Send(ctx, plan, c.udp)
	deadline := time.Now().Add(wait)
	for err == nil && ctx.Err() == nil && time.Now().Before(deadline) && t.Total() < sent.Sent {
		time.Sleep(time.Millisecond)
	}
	stop.Store(true)
	err = errors.Join(err, <-received)
	r := t.Take()
	rep := ProbeReport{Send: sent, Received: r.Received, Late: r.Late, RTT: r.Probe}
	if sent.Sent > r.Received {
		rep.Lost = sent.Sent - r.Received
	}
	return rep, err
}

func (c *ProbeConn) collect(t *tally, plan Plan, stop *atomic.Bool) error {
	if err := pin(plan.CPU); err != nil {
		return fmt.Errorf("pin probe: %w", err)
	}
	msgs := newMessages(burst, receiveSize)
	for !stop.Load() {
		n, err := msgs.receive(c.udp.fds[0])
		if err != nil {
			return fmt.Errorf("receive echo: %w", err)
		}
		now := Now()
		t.mu.Lock()
		for i := range n {
			size := int(msgs.hdrs[i].n)
			if h, ok := parseHeader(msgs.bufs[i][:min(size, receiveSize)]); ok && h.Flags&FlagReply != 0 {
				t.count(h, size, now)
			} else {
				t.foreign++
			}
		}
		t.mu.Unlock()
	}
	return nil
}

// Close closes the socket.
func (c *ProbeConn) Close() error { return c.udp.Close() }

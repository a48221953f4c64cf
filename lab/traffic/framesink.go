package traffic

import (
	"errors"
	"fmt"
	"net"

	"golang.org/x/sys/unix"
)

// PacketSocket is a Sink of ready-made frames on a device, around the
// protocol stack of the sender.
type PacketSocket struct {
	fd    int
	flows []*Template
	msgs  *messages
}

// OpenPacketSocket sends flow i as flows[i] out of the device named dev in the
// calling thread's network namespace.
func OpenPacketSocket(dev string, flows []*Template) (*PacketSocket, error) {
	nic, err := net.InterfaceByName(dev)
	if err != nil {
		return nil, fmt.Errorf("open packet socket on %s: %w", dev, err)
	}
	// Protocol 0: it only sends.
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open packet socket on %s: %w", dev, err)
	}
	if err := unix.Bind(fd, &unix.SockaddrLinklayer{Ifindex: nic.Index}); err != nil {
		return nil, errors.Join(fmt.Errorf("open packet socket on %s: %w", dev, err), unix.Close(fd))
	}
	size, frames := 0, 1
	for _, t := range flows {
		frames = max(frames, len(t.Frames))
		for _, f := range t.Frames {
			size = max(size, len(f))
		}
	}
	return &PacketSocket{fd: fd, flows: flows, msgs: newMessages(max(burst, frames), size)}, nil
}

// Send implements Sink. Fragments of a packet count as one; a packet of which
// the device took only some counts as taken, for what arrives of it is lost.
func (p *PacketSocket) Send(flow int, h Header, n int) (int, error) {
	t := p.flows[flow]
	per := len(t.Frames)
	for taken := 0; taken < n; {
		k := min(n-taken, len(p.msgs.bufs)/per)
		for i := range k {
			t.Stamp(h)
			h.Seq++
			for j, frame := range t.Frames {
				copy(p.msgs.bufs[i*per+j], frame)
				p.msgs.iovs[i*per+j].SetLen(len(frame))
			}
		}
		sent, err := p.msgs.send(p.fd, k*per)
		if err != nil {
			return taken, err
		}
		taken += (sent + per - 1) / per
		if sent < k*per {
			return taken, nil
		}
	}
	return n, nil
}

// Close closes the socket.
func (p *PacketSocket) Close() error { return unix.Close(p.fd) }

// Injector is a device into which received frames are put queue by queue
// (testnet.TAP).
type Injector interface {
	Inject(queue int, frame []byte) error
}

// Injection is a Sink that has a device receive the flows, flow i on queue
// Queue(i).
type Injection struct {
	Into  Injector
	Flows []*Template
	Queue func(flow int) int
}

// Send implements Sink.
func (in Injection) Send(flow int, h Header, n int) (int, error) {
	t := in.Flows[flow]
	for i := range n {
		t.Stamp(h)
		h.Seq++
		for _, frame := range t.Frames {
			if err := in.Into.Inject(in.Queue(flow), frame); err != nil {
				if errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.ENOBUFS) {
					return i, nil
				}
				return i, err
			}
		}
	}
	return n, nil
}

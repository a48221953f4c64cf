package traffic

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// TCP is a Sink of one connection per flow; a packet is a message in the stream.
// A connection that takes no more refuses, as the others do.
type TCP struct {
	fds  []int
	rest [][]byte // what is left of a flow's last message
	buf  []byte
}

// DialTCP connects a socket per flow in the calling thread's network
// namespace; FlowConfig means the same here.
func DialTCP(c FlowConfig, maxSize int) (*TCP, error) {
	if len(c.To) == 0 {
		return nil, errors.New("dial tcp: no destination")
	}
	if len(c.Ports) > 0 && len(c.Ports) < c.Flows {
		return nil, fmt.Errorf("dial tcp: %d source ports for %d flows", len(c.Ports), c.Flows)
	}
	t := &TCP{buf: make([]byte, burst*max(maxSize, HeaderSize))}
	for i := range max(c.Flows, 1) {
		to := c.To[i%len(c.To)]
		fd, err := socket(unix.SOCK_STREAM, c.local(i))
		if err != nil {
			return nil, errors.Join(fmt.Errorf("dial tcp flow %d: %w", i, err), t.Close())
		}
		t.fds = append(t.fds, fd)
		t.rest = append(t.rest, nil)
		// A SYN that is lost is sent again after 1 s: do not wait for minutes.
		err = unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_SYNCNT, 3)
		if err == nil {
			err = unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1)
		}
		if err == nil {
			err = unix.Connect(fd, sockaddr(to))
		}
		if err != nil {
			return nil, errors.Join(fmt.Errorf("dial tcp flow %d to %v: %w", i, to, err), t.Close())
		}
	}
	return t, nil
}

// Send implements Sink.
func (t *TCP) Send(flow int, h Header, n int) (int, error) {
	if ok, err := t.write(flow, t.rest[flow]); !ok {
		return 0, err
	}
	size := int(h.Size)
	for i := range n {
		h.put(t.buf[i*size:])
		h.Seq++
	}
	todo := t.buf[:n*size]
	taken := 0
	for len(todo) > 0 {
		k, err := t.send(flow, todo)
		if err != nil || k == 0 {
			return taken, err
		}
		taken += (k + size - 1) / size
		todo = todo[k:]
		if part := k % size; part != 0 {
			// The message that was begun has to be ended before any other.
			t.rest[flow] = append([]byte(nil), todo[:size-part]...)
			return taken, nil
		}
	}
	return taken, nil
}

// write sends the rest of a message; false when the connection does not take it all.
func (t *TCP) write(flow int, rest []byte) (bool, error) {
	for len(rest) > 0 {
		k, err := t.send(flow, rest)
		if err != nil {
			return false, err
		}
		rest = rest[k:]
		t.rest[flow] = rest
		if k == 0 {
			return false, nil
		}
	}
	return true, nil
}

// send writes without blocking; 0 when the connection takes nothing now.
func (t *TCP) send(flow int, b []byte) (int, error) {
	for {
		k, err := unix.SendmsgN(t.fds[flow], b, nil, nil, unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL)
		switch {
		case errors.Is(err, unix.EINTR):
		case errors.Is(err, unix.EAGAIN):
			return 0, nil
		default:
			return k, err
		}
	}
}

// Close closes the connections.
func (t *TCP) Close() error {
	var err error
	for _, fd := range t.fds {
		err = errors.Join(err, unix.Close(fd))
	}
	t.fds = nil
	return err
}

// TCPReceiver counts the messages that come over TCP connections. A message
// cannot be lost, only late.
type TCPReceiver struct {
	*tally
	listener *net.TCPListener
}

// ListenTCP opens the socket in the calling thread's network namespace.
func ListenTCP(addr netip.AddrPort) (*TCPReceiver, error) {
	l, err := net.ListenTCP("tcp", net.TCPAddrFromAddrPort(addr))
	if err != nil {
		return nil, err
	}
	return &TCPReceiver{tally: newTally(), listener: l}, nil
}

// Addr is where it listens.
func (r *TCPReceiver) Addr() netip.AddrPort {
	return r.listener.Addr().(*net.TCPAddr).AddrPort()
}

// Run accepts and reads until ctx ends, which is no error; it closes the listener.
func (r *TCPReceiver) Run(ctx context.Context) error {
	var conns sync.WaitGroup
	defer conns.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stop := context.AfterFunc(ctx, func() { r.listener.Close() })
	defer stop()
	for {
		c, err := r.listener.AcceptTCP()
		if err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return fmt.Errorf("accept: %w", err)
		}
		conns.Go(func() {
			stop := context.AfterFunc(ctx, func() { c.SetReadDeadline(time.Now()) })
			defer stop()
			defer c.Close()
			r.read(c)
		})
	}
}

// read counts the messages of a connection until its end; a connection that
// does not speak Header is foreign and closed.
func (r *TCPReceiver) read(c io.Reader) {
	buf := make([]byte, 256<<10)
	fill := 0
	for {
		n, err := c.Read(buf[fill:])
		fill += n
		now := Now()
		r.mu.Lock()
		used := 0
		for fill-used >= HeaderSize {
			h, ok := parseHeader(buf[used:fill])
			if !ok || h.Size < HeaderSize || int(h.Size) > len(buf) {
				r.foreign++
				r.mu.Unlock()
				return
			}
			if fill-used < int(h.Size) {
				break
			}
			r.count(h, int(h.Size), now)
			used += int(h.Size)
		}
		r.mu.Unlock()
		if err != nil {
			return
		}
		fill = copy(buf, buf[used:fill])
	}
}

// Close closes the listener of a receiver that never ran.
func (r *TCPReceiver) Close() error {
	if err := r.listener.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
		return err
	}
	return nil
}

package traffic

import (
	"errors"
	"fmt"
	"net/netip"

	"golang.org/x/sys/unix"
)

// UDP is a Sink of UDP sockets, one per flow.
type UDP struct {
	fds     []int
	msgs    *messages
	segment bool
	buf     []byte // of a train, when the kernel cuts it
	sizes   []int  // of the segments each socket is set to
}

// FlowConfig says between which addresses and ports UDP or TCP flows run.
type FlowConfig struct {
	To    []netip.AddrPort // flow i goes to To[i mod len]
	From  []netip.Addr     // flow i leaves from From[i mod len]; the kernel's choice when empty
	Flows int
	// Ports are the source ports, flow i uses Ports[i]; the kernel's choice
	// when empty. To choose them is to choose the flows' hashes.
	Ports []uint16
	// Segment hands the kernel (UDP only, 4.18 and later) a train of packets in
	// one piece to cut (UDP_SEGMENT, udp(7)): far cheaper for the sender. A
	// device that cuts by itself has to be told not to where its peer is to see
	// packets (veth: ethtool -K tx-udp-segmentation off).
	Segment bool
}

// DialUDP opens a socket per flow in the calling thread's network namespace;
// sizes are the payload sizes that will be sent.
func DialUDP(c FlowConfig, maxSize int) (*UDP, error) {
	if len(c.To) == 0 {
		return nil, errors.New("dial udp: no destination")
	}
	if len(c.Ports) > 0 && len(c.Ports) < c.Flows {
		return nil, fmt.Errorf("dial udp: %d source ports for %d flows", len(c.Ports), c.Flows)
	}
	u := &UDP{msgs: newMessages(burst, max(maxSize, HeaderSize)), segment: c.Segment, sizes: make([]int, max(c.Flows, 1))}
	if c.Segment {
		u.buf = make([]byte, burst*max(maxSize, HeaderSize))
	}
	for i := range max(c.Flows, 1) {
		to := c.To[i%len(c.To)]
		from := c.local(i)
		fd, err := socket(unix.SOCK_DGRAM, from)
		if err != nil {
			return nil, errors.Join(fmt.Errorf("dial udp flow %d from %v: %w", i, from, err), u.Close())
		}
		u.fds = append(u.fds, fd)
		if err := unix.Connect(fd, sockaddr(to)); err != nil {
			return nil, errors.Join(fmt.Errorf("dial udp flow %d to %v: %w", i, to, err), u.Close())
		}
	}
	return u, nil
}

// local is the address and port flow i leaves from, zero where the kernel chooses.
func (c FlowConfig) local(i int) netip.AddrPort {
	from := netip.IPv4Unspecified()
	if c.To[i%len(c.To)].Addr().Is6() {
		from = netip.IPv6Unspecified()
	}
	if len(c.From) > 0 {
		from = c.From[i%len(c.From)]
	}
	var port uint16
	if len(c.Ports) > 0 {
		port = c.Ports[i]
	}
	return netip.AddrPortFrom(from, port)
}

// Send implements Sink.
func (u *UDP) Send(flow int, h Header, n int) (int, error) {
	if u.segment && n > 1 {
		return u.sendTrain(flow, h, n)
	}
	for i := range n {
		h.put(u.msgs.bufs[i])
		u.msgs.iovs[i].SetLen(int(h.Size))
		h.Seq++
	}
	sent := 0
	for sent < n {
		k, err := u.msgs.send(u.fds[flow], n-sent)
		if err != nil || k == 0 {
			return sent, err
		}
		sent += k
		if sent < n {
			// sendmmsg stopped early: what follows moves to the front.
			for i := range n - sent {
				copy(u.msgs.bufs[i][:HeaderSize], u.msgs.bufs[i+k][:HeaderSize])
			}
		}
	}
	return sent, nil
}

// maxDatagram bounds what is handed over to be cut (IPv4's total length).
const maxDatagram = 65507

// sendTrain sends n packets in as few pieces as the kernel takes.
func (u *UDP) sendTrain(flow int, h Header, n int) (int, error) {
	size := int(h.Size)
	if u.sizes[flow] != size {
		if err := unix.SetsockoptInt(u.fds[flow], unix.IPPROTO_UDP, unix.UDP_SEGMENT, size); err != nil {
			return 0, fmt.Errorf("set segment size: %w", err)
		}
		u.sizes[flow] = size
	}
	for sent := 0; sent < n; {
		k := min(n-sent, maxDatagram/size)
		for i := range k {
			h.put(u.buf[i*size:])
			h.Seq++
		}
		_, err := unix.SendmsgN(u.fds[flow], u.buf[:k*size], nil, nil, unix.MSG_DONTWAIT)
		switch {
		case err == nil:
			sent += k
		case errors.Is(err, unix.EINTR), errors.Is(err, unix.ECONNREFUSED):
			h.Seq -= uint64(k) // an earlier packet's error, now read: again
		case errors.Is(err, unix.EAGAIN), errors.Is(err, unix.ENOBUFS):
			return sent, nil
		default:
			return sent, err
		}
	}
	return n, nil
}

// Ports are the source ports of the flows.
func (u *UDP) Ports() ([]uint16, error) {
	ports := make([]uint16, len(u.fds))
	for i, fd := range u.fds {
		sa, err := unix.Getsockname(fd)
		if err != nil {
			return nil, fmt.Errorf("read source port of flow %d: %w", i, err)
		}
		ports[i] = addrPort(sa).Port()
	}
	return ports, nil
}

// Close closes the sockets.
func (u *UDP) Close() error {
	var err error
	for _, fd := range u.fds {
		err = errors.Join(err, unix.Close(fd))
	}
	u.fds = nil
	return err
}

// socket opens and binds a socket.
func socket(typ int, local netip.AddrPort) (int, error) {
	domain := unix.AF_INET
	if local.Addr().Is6() {
		domain = unix.AF_INET6
	}
	fd, err := unix.Socket(domain, typ|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return 0, err
	}
	if err := unix.Bind(fd, sockaddr(local)); err != nil {
		return 0, errors.Join(err, unix.Close(fd))
	}
	return fd, nil
}

func sockaddr(a netip.AddrPort) unix.Sockaddr {
	if a.Addr().Is4() {
		return &unix.SockaddrInet4{Port: int(a.Port()), Addr: a.Addr().As4()}
	}
	return &unix.SockaddrInet6{Port: int(a.Port()), Addr: a.Addr().As16()}
}

func addrPort(sa unix.Sockaddr) netip.AddrPort {
	switch sa := sa.(type) {
	case *unix.SockaddrInet4:
		return netip.AddrPortFrom(netip.AddrFrom4(sa.Addr), uint16(sa.Port))
	case *unix.SockaddrInet6:
		return netip.AddrPortFrom(netip.AddrFrom16(sa.Addr), uint16(sa.Port))
	}
	return netip.AddrPort{}
}

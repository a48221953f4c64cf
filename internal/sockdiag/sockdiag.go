package sockdiag

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"runtime"
	"time"

	"golang.org/x/sys/unix"
)

// Flow is an established TCP connection. Counters are cumulative.
type Flow struct {
	Cookie        uint64 // identity while the connection lives
	Local, Remote netip.AddrPort
	// BytesReceived and BytesAcked are payload that arrived in order, and that the peer acknowledged.
	BytesReceived, BytesAcked uint64
	SegsOut, Retransmits      uint64
	// RTT is the sender's round trip, ReceiveRTT the receiver's estimate, 0 not known.
	RTT, ReceiveRTT time.Duration
	// Busy is the time there was something to send; PeerWindow and SendBuffer the parts of it in which the
	// peer's window or the own buffer held it back (Linux 4.10).
	Busy, PeerWindow, SendBuffer time.Duration
	// WindowScaling and Timestamps are what both ends agreed on.
	WindowScaling, Timestamps bool
	// ReceiveQueue is bytes of memory that data waits in for the reader, ReceiveBuffer its limit.
	ReceiveQueue, ReceiveBuffer uint32
	Congestion                  string // "cubic", "" not told
}

// ErrTooMany is that there are more connections than asked for: nothing is returned of them.
var ErrTooMany = errors.New("too many connections")

// Constants of linux/inet_diag.h, linux/sock_diag.h, linux/tcp.h.
const (
	byFamily    = 20 // SOCK_DIAG_BY_FAMILY
	reqSize     = 56 // struct inet_diag_req_v2
	msgSize     = 72 // struct inet_diag_msg
	diagInfo    = 2  // INET_DIAG_INFO: struct tcp_info
	diagCong    = 4  // INET_DIAG_CONG
	diagMemInfo = 7  // INET_DIAG_SKMEMINFO: u32 of SK_MEMINFO_*
	established = 1  // TCP_ESTABLISHED
	closed      = 7  // TCP_CLOSE
	optTS       = 1  // TCPI_OPT_TIMESTAMPS
	optWScale   = 4  // TCPI_OPT_WSCALE
)

// TCP lists the established connections over IPv4 and IPv6, at most limit of them. Any user may.
func TCP(limit int) ([]Flow, error) {
	var out []Flow
	for _, family := range []uint8{unix.AF_INET, unix.AF_INET6} {
		extensions := uint8(1<<(diagInfo-1) | 1<<(diagCong-1) | 1<<(diagMemInfo-1))
		var err error
		if out, err = dump(out, request(family, unix.IPPROTO_TCP, extensions, 1<<established), parseFlow, limit); err != nil {
			return nil, fmt.Errorf("list TCP connections: %w", err)
		}
	}
	return out, nil
}

// Socket is a TCP connection or a UDP socket.
type Socket struct {
	Protocol      string         // "tcp" or "udp"
	Local, Remote netip.AddrPort // of an unconnected UDP socket Remote is the unspecified address and port 0
	Inode         uint64         // as in /proc/PID/fd: "socket:[INODE]"
}

// Sockets lists established TCP connections and UDP sockets over IPv4 and IPv6, at most limit of
// them. Any user may.
func Sockets(limit int) ([]Socket, error) {
	var out []Socket
	for _, p := range []struct {
		name   string
		number uint8
		states uint32 // a UDP socket is "established" when connected, else "closed"
	}{{"tcp", unix.IPPROTO_TCP, 1 << established}, {"udp", unix.IPPROTO_UDP, 1<<established | 1<<closed}} {
		for _, family := range []uint8{unix.AF_INET, unix.AF_INET6} {
			parse := func(b []byte) (Socket, error) {
				s, err := parseSocket(b)
				s.Protocol = p.name
				return s, err
			}
			var err error
			if out, err = dump(out, request(family, p.number, 0, p.states), parse, limit); err != nil {
				return nil, fmt.Errorf("list %s sockets: %w", p.name, err)
			}
		}
	}
	return out, nil
}

// In runs list in the network namespace of a file such as /proc/PID/ns/net, on a thread of its own that ends with it. It
// needs CAP_SYS_ADMIN.
func In(netns string, list func() error) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // for good: no other goroutine may run in that namespace
		f, err := os.Open(netns)
		if err == nil {
			err = unix.Setns(int(f.Fd()), unix.CLONE_NEWNET)
			f.Close() //nolint:errcheck // nothing was written
		}
		if err != nil {
			done <- fmt.Errorf("enter network namespace: %w", err)
			return
		}
		done <- list()
	}()
	return <-done
}

// dump adds what a request lists. A socket of its own lets a dump be broken off.
func dump[T any](out []T, request []byte, parseOne func([]byte) (T, error), limit int) ([]T, error) {
	s, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_SOCK_DIAG)
	if err != nil {
		return nil, err
	}
	defer unix.Close(s)
	if err := unix.SetsockoptTimeval(s, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: 2}); err != nil {
		return nil, err
	}
	if err := unix.Sendto(s, request, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return nil, err
	}
	buf := make([]byte, 64<<10)
	for {
		n, _, err := unix.Recvfrom(s, buf, 0)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return nil, err
		}
		flows, done, err := parse(buf[:n], parseOne)
		if err != nil {
			return nil, err
		}
		if out = append(out, flows...); len(out) > limit {
			return nil, fmt.Errorf("%w: more than %d", ErrTooMany, limit)
		}
		if done {
			return out, nil
		}
	}
}

// request is a dump of a family's sockets of a protocol in some states (bit 1 << TCP_…).
func request(family, protocol, extensions uint8, states uint32) []byte {
	b := make([]byte, unix.NLMSG_HDRLEN+reqSize)
	e := binary.NativeEndian
	e.PutUint32(b, uint32(len(b)))
	e.PutUint16(b[4:], byFamily)
	e.PutUint16(b[6:], unix.NLM_F_REQUEST|unix.NLM_F_DUMP)
	r := b[unix.NLMSG_HDRLEN:]
	r[0], r[1], r[2] = family, protocol, extensions
	e.PutUint32(r[4:], states)
	return b
}

var errMalformed = errors.New("malformed answer")

// parse takes the messages of one datagram apart; done says that the dump has ended.
func parse[T any](b []byte, parseOne func([]byte) (T, error)) (flows []T, done bool, err error) {
	e := binary.NativeEndian
	for len(b) >= unix.NLMSG_HDRLEN {
		size := int(e.Uint32(b))
		if size < unix.NLMSG_HDRLEN || size > len(b) {
			return nil, false, errMalformed
		}
		body := b[unix.NLMSG_HDRLEN:size]
		switch e.Uint16(b[4:]) {
		case unix.NLMSG_DONE:
			return flows, true, nil
		case unix.NLMSG_ERROR:
			if len(body) < 4 {
				return nil, false, errMalformed
			}
			return nil, false, unix.Errno(-int32(e.Uint32(body)))
		case byFamily:
			f, err := parseOne(body)
			if err != nil {
				return nil, false, err
			}
			flows = append(flows, f)
		}
		b = b[min(align(size), len(b)):]
	}
	return flows, false, nil
}

func align(n int) int { return (n + 3) &^ 3 }

// parseSocket reads struct inet_diag_msg.
func parseSocket(b []byte) (Socket, error) {
	if len(b) < msgSize {
		return Socket{}, errMalformed
	}
	return Socket{Local: address(b[0], b[8:24], b[4:6]), Remote: address(b[0], b[24:40], b[6:8]), Inode: uint64(binary.NativeEndian.Uint32(b[68:]))}, nil
}

// parseFlow reads struct inet_diag_msg and its attributes.
func parseFlow(b []byte) (Flow, error) {
	if len(b) < msgSize {
		return Flow{}, errMalformed
	}
	e := binary.NativeEndian
	f := Flow{Local: address(b[0], b[8:24], b[4:6]), Remote: address(b[0], b[24:40], b[6:8]),
		Cookie: uint64(e.Uint32(b[48:]))<<32 | uint64(e.Uint32(b[44:]))}
	for b = b[msgSize:]; len(b) >= 4; {
		size := int(e.Uint16(b))
		if size < 4 || size > len(b) {
			return Flow{}, errMalformed
		}
		v := b[4:size]
		switch e.Uint16(b[2:]) &^ (unix.NLA_F_NESTED | unix.NLA_F_NET_BYTEORDER) {
		case diagInfo:
			f.info(v)
		case diagMemInfo: // SK_MEMINFO_RMEM_ALLOC, SK_MEMINFO_RCVBUF
			if len(v) >= 8 {
				f.ReceiveQueue, f.ReceiveBuffer = e.Uint32(v), e.Uint32(v[4:])
			}
		case diagCong:
			for i, c := range v {
				if c == 0 {
					v = v[:i]
					break
				}
			}
			f.Congestion = string(v)
		}
		b = b[min(align(size), len(b)):]
	}
	return f, nil
}

func address(family uint8, addr, port []byte) netip.AddrPort {
	a := netip.AddrFrom4([4]byte(addr[:4]))
	if family == unix.AF_INET6 {
		a = netip.AddrFrom16([16]byte(addr))
	}
	return netip.AddrPortFrom(a, binary.BigEndian.Uint16(port))
}

// info reads struct tcp_info, of which older kernels know only the beginning.
func (f *Flow) info(v []byte) {
	word := func(at int) uint64 {
		if len(v) < at+4 {
			return 0
		}
		return uint64(binary.NativeEndian.Uint32(v[at:]))
	}
	long := func(at int) uint64 {
		if len(v) < at+8 {
			return 0
		}
		return binary.NativeEndian.Uint64(v[at:])
	}
	us := func(n uint64) time.Duration { return time.Duration(min(n, 1<<40)) * time.Microsecond }
	if len(v) > 5 {
		f.Timestamps, f.WindowScaling = v[5]&optTS != 0, v[5]&optWScale != 0
	}
	f.RTT, f.ReceiveRTT = us(word(68)), us(word(92))
	f.Retransmits = word(100)
	f.BytesAcked, f.BytesReceived = long(120), long(128)
	f.SegsOut = word(136)
	f.Busy, f.PeerWindow, f.SendBuffer = us(long(168)), us(long(176)), us(long(184))
}

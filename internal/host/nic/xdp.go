package nic

import (
	"encoding/binary"
	"errors"
	"fmt"
	"syscall"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// XDP is an XDP program on an interface.
type XDP struct {
	IfIndex int
	Program uint32 // BPF program id
	Mode    string // "driver", "generic", "offload", "several"
}

// XSK is an AF_XDP socket bound to a queue.
type XSK struct {
	IfIndex int
	Queue   int
	Inode   uint32
}

// Attachments tells who has taken receive queues by XDP. *Netlink is one.
type Attachments interface {
	Programs() ([]XDP, error)
	Sockets() ([]XSK, error)
}

// Netlink asks the kernel over rtnetlink and sock_diag, in the network
// namespace of the calling thread.
type Netlink struct {
	Path func(string) string // where a file of the host is in this process's tree; nil: as it is
}

// dumpLinks returns a RTM_NEWLINK message of each interface: struct ifinfomsg, then attributes.
func dumpLinks() ([]netlink.Message, error) {
	c, err := netlink.Dial(unix.NETLINK_ROUTE, nil)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	return c.Execute(netlink.Message{
		Header: netlink.Header{Type: unix.RTM_GETLINK, Flags: netlink.Request | netlink.Dump},
		Data:   make([]byte, unix.SizeofIfInfomsg),
	})
}

// Programs dumps the links and returns those with an XDP program (IFLA_XDP,
// include/uapi/linux/if_link.h).
func (Netlink) Programs() ([]XDP, error) {
	msgs, err := dumpLinks()
	if err != nil {
		return nil, fmt.Errorf("list XDP programs: %w", err)
	}
	var out []XDP
	for _, m := range msgs {
		x, ok, err := parseXDP(m.Data)
		if err != nil {
			return nil, fmt.Errorf("list XDP programs: %w", err)
		}
		if ok {
			out = append(out, x)
		}
	}
	return out, nil
}

// parseXDP reads a RTM_NEWLINK message: struct ifinfomsg, then attributes.
func parseXDP(b []byte) (x XDP, ok bool, err error) {
	if len(b) < unix.SizeofIfInfomsg {
		return XDP{}, false, errors.New("parse link: message cut short")
	}
	x.IfIndex = int(int32(binary.NativeEndian.Uint32(b[4:])))
	ad, err := netlink.NewAttributeDecoder(b[unix.SizeofIfInfomsg:])
	if err != nil {
		return XDP{}, false, fmt.Errorf("parse link: %w", err)
	}
	for ad.Next() {
		if ad.Type() != unix.IFLA_XDP {
			continue
		}
		ad.Nested(func(n *netlink.AttributeDecoder) error {
			for n.Next() {
				switch t := n.Type(); {
				case t == xdpAttached:
					x.Mode = attachModes[n.Uint8()]
				case t == xdpProgID:
					x.Program = n.Uint32()
				case t >= xdpDrvProgID && t <= xdpHWProgID: // drv, skb, hw
					if x.Program == 0 { // several programs have no single id
						x.Program = n.Uint32()
					}
				}
			}
			return nil
		})
	}
	if err := ad.Err(); err != nil {
		return XDP{}, false, fmt.Errorf("parse link: %w", err)
	}
	return x, x.Mode != "", nil
}

// attachModes is XDP_ATTACHED_* of include/uapi/linux/if_link.h.
var attachModes = map[uint8]string{1: "driver", 2: "generic", 3: "offload", 4: "several"}

// Attributes within IFLA_XDP, same header.
const (
	xdpAttached  = 2
	xdpProgID    = 4
	xdpDrvProgID = 5
	xdpHWProgID  = 7
)

// Sizes and numbers of include/uapi/linux/{sock_diag,xdp_diag}.h.
const (
	sockDiagByFamily = 20
	afXDP            = 44
	xdpShowInfo      = 1
	xdpDiagInfo      = 1
	sizeofXDPDiagMsg = 16
)

// Sockets dumps the AF_XDP sockets of the namespace; a kernel without xsk_diag has
// none to tell, which is no error.
func (Netlink) Sockets() ([]XSK, error) {
	c, err := netlink.Dial(unix.NETLINK_SOCK_DIAG, nil)
	if err != nil {
		return nil, fmt.Errorf("list AF_XDP sockets: %w", err)
	}
	defer c.Close()
	req := make([]byte, 20) // struct xdp_diag_req
	req[0] = afXDP
	binary.NativeEndian.PutUint32(req[8:], xdpShowInfo)
	binary.NativeEndian.PutUint64(req[12:], ^uint64(0)) // INET_DIAG_NOCOOKIE
	msgs, err := c.Execute(netlink.Message{
		Header: netlink.Header{Type: sockDiagByFamily, Flags: netlink.Request | netlink.Dump},
		Data:   req,
	})
	switch {
	case errors.Is(err, syscall.ENOENT) || errors.Is(err, syscall.EINVAL) || errors.Is(err, syscall.EOPNOTSUPP):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("list AF_XDP sockets: %w", err)
	}
	var out []XSK
	for _, m := range msgs {
		x, ok, err := parseXSK(m.Data)
		if err != nil {
			return nil, fmt.Errorf("list AF_XDP sockets: %w", err)
		}
		if ok {
			out = append(out, x)
		}
	}
	return out, nil
}

// parseXSK reads struct xdp_diag_msg and its attributes; ok is false for a socket that
// is not bound.
func parseXSK(b []byte) (x XSK, ok bool, err error) {
	if len(b) < sizeofXDPDiagMsg {
		return XSK{}, false, errors.New("parse AF_XDP socket: message cut short")
	}
	x.Inode = binary.NativeEndian.Uint32(b[4:])
	ad, err := netlink.NewAttributeDecoder(b[sizeofXDPDiagMsg:])
	if err != nil {
		return XSK{}, false, fmt.Errorf("parse AF_XDP socket: %w", err)
	}
	for ad.Next() {
		if d := ad.Bytes(); ad.Type() == xdpDiagInfo && len(d) >= 8 { // struct xdp_diag_info: ifindex, queue_id
			x.IfIndex = int(binary.NativeEndian.Uint32(d))
			x.Queue = int(binary.NativeEndian.Uint32(d[4:]))
		}
	}
	if err := ad.Err(); err != nil {
		return XSK{}, false, fmt.Errorf("parse AF_XDP socket: %w", err)
	}
	return x, x.IfIndex != 0, nil
}

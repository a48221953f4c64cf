package ethtool

import (
	"errors"
	"fmt"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// socket does SIOCETHTOOL on an AF_INET datagram socket, which stays in the network
// namespace it was opened in.
type socket struct{ fd int }

func openSocket() (*socket, error) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	return &socket{fd}, nil
}

func (s *socket) Close() error { return unix.Close(s.fd) }

// ifreq is struct ifreq of linux/if.h with ifr_data; the union is 24 bytes long.
type ifreq struct {
	name [unix.IFNAMSIZ]byte
	data unsafe.Pointer
	_    [24 - unsafe.Sizeof(uintptr(0))]byte
}

func (s *socket) ethtool(dev string, data []byte) error {
	if len(dev) >= unix.IFNAMSIZ {
		return unix.ENODEV
	}
	r := ifreq{data: unsafe.Pointer(unsafe.SliceData(data))}
	copy(r.name[:], dev)
	_, _, no := unix.Syscall(unix.SYS_IOCTL, uintptr(s.fd), unix.SIOCETHTOOL, uintptr(unsafe.Pointer(&r)))
	runtime.KeepAlive(data)
	if no != 0 {
		return no
	}
	return nil
}

// ioctl is one command about dev; op is what it does ("get channels").
func (c *Client) ioctl(op, dev string, data []byte) error {
	if err := c.io.ethtool(dev, data); err != nil {
		var no unix.Errno
		if errors.As(err, &no) {
			return &Error{Op: op + " of " + dev, Errno: no}
		}
		return fmt.Errorf("%s of %s: %w", op, dev, err)
	}
	return nil
}

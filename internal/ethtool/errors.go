package ethtool

import (
	"errors"
	"fmt"
	"syscall"

	"github.com/mdlayher/netlink"
)

// What the kernel's refusals mean. Use errors.Is; the errno itself and the extended
// acknowledgement are in Error.
var (
	ErrNotSupported = errors.New("not supported")          // EOPNOTSUPP: not this device; ENOSYS: this kernel has no such message
	ErrNoDevice     = errors.New("no such device")         // ENODEV
	ErrNotFound     = errors.New("no such object")         // ENOENT: an RSS context or rule
	ErrPermission   = errors.New("not permitted")          // EPERM, EACCES
	ErrBusy         = errors.New("in use")                 // EBUSY
	ErrInvalid      = errors.New("refused as invalid")     // EINVAL, ERANGE
	ErrNoSpace      = errors.New("no space left")          // ENOSPC
	ErrDown         = errors.New("device is down")         // ENETDOWN
	ErrMalformed    = errors.New("malformed kernel reply") // cut short or of the wrong size
)

// sentinel is the one place where an errno gets its meaning.
func sentinel(e syscall.Errno) error {
	switch e {
	case syscall.EOPNOTSUPP, syscall.ENOSYS, syscall.ENOTTY:
		return ErrNotSupported
	case syscall.ENODEV, syscall.ENXIO:
		return ErrNoDevice
	case syscall.ENOENT:
		return ErrNotFound
	case syscall.EPERM, syscall.EACCES:
		return ErrPermission
	case syscall.EBUSY:
		return ErrBusy
	case syscall.EINVAL, syscall.ERANGE:
		return ErrInvalid
	case syscall.ENOSPC:
		return ErrNoSpace
	case syscall.ENETDOWN:
		return ErrDown
	}
	return nil
}

// Error is a refusal of the kernel.
type Error struct {
	Op      string        // "get channels of eth0"
	Errno   syscall.Errno // what the kernel returned
	Message string        // extended acknowledgement, "" when none came
}

func (e *Error) Error() string {
	if e.Message != "" {
		return fmt.Sprintf("%s: %v (%s)", e.Op, e.Errno, e.Message)
	}
	return fmt.Sprintf("%s: %v", e.Op, e.Errno)
}

// Unwrap gives the errno.
func (e *Error) Unwrap() error { return e.Errno }

// Is matches the sentinels above.
func (e *Error) Is(target error) bool { return target != nil && target == sentinel(e.Errno) }

// Wrap turns an error of a netlink request or an ioctl into an *Error when the
// kernel gave an errno, else into one that starts with op. It also serves
// package netdev, so that both families speak of the same sentinels.
func Wrap(op string, err error) error {
	if err == nil {
		return nil
	}
	var done *Error
	if errors.As(err, &done) {
		return err
	}
	var msg string
	var oe *netlink.OpError
	if errors.As(err, &oe) {
		msg = oe.Message
	}
	var no syscall.Errno
	if errors.As(err, &no) {
		return &Error{Op: op, Errno: no, Message: msg}
	}
	return fmt.Errorf("%s: %w", op, err)
}

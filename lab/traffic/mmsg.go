package traffic

import (
	"errors"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// mmsghdr is struct mmsghdr of recvmmsg(2): a message and how many bytes it took.
type mmsghdr struct {
	hdr unix.Msghdr
	n   uint32
	_   [unsafe.Sizeof(uintptr(0)) - 4]byte
}

// messages is a batch of packets for sendmmsg or recvmmsg with buffers of its own.
type messages struct {
	hdrs []mmsghdr
	iovs []unix.Iovec
	bufs [][]byte
}

func newMessages(n, size int) *messages {
	m := &messages{hdrs: make([]mmsghdr, n), iovs: make([]unix.Iovec, n), bufs: make([][]byte, n)}
	for i := range n {
		m.bufs[i] = make([]byte, size)
		m.iovs[i].Base = &m.bufs[i][0]
		m.iovs[i].SetLen(size)
		m.hdrs[i].hdr.Iov = &m.iovs[i]
		m.hdrs[i].hdr.SetIovlen(1)
	}
	return m
}

// send sends the first n messages without blocking and returns how many left.
// A full socket or device (EAGAIN, ENOBUFS) is not an error, nor is an ICMP
// error of an earlier packet (ECONNREFUSED), which reading it clears.
func (m *messages) send(fd, n int) (int, error) {
	for {
		sent, _, errno := unix.Syscall6(unix.SYS_SENDMMSG, uintptr(fd), uintptr(unsafe.Pointer(&m.hdrs[0])), uintptr(n), unix.MSG_DONTWAIT, 0, 0)
		switch {
		case errno == 0:
			return int(sent), nil
		case errors.Is(errno, unix.EINTR), errors.Is(errno, unix.ECONNREFUSED):
		case errors.Is(errno, unix.EAGAIN), errors.Is(errno, unix.ENOBUFS):
			return 0, nil
		default:
			return 0, errno
		}
	}
}

// receive waits for packets until the socket's SO_RCVTIMEO and returns how many
// came; 0 on timeout. Message i is bufs[i][:hdrs[i].n].
func (m *messages) receive(fd int) (int, error) {
	return m.receiveBy(unix.Syscall6, fd)
}

// receiveBy is receive by one of Syscall6 and RawSyscall6, see sleep.
func (m *messages) receiveBy(call func(trap, a1, a2, a3, a4, a5, a6 uintptr) (r1, r2 uintptr, err syscall.Errno), fd int) (int, error) {
	n, _, errno := call(unix.SYS_RECVMMSG, uintptr(fd), uintptr(unsafe.Pointer(&m.hdrs[0])), uintptr(len(m.hdrs)), unix.MSG_WAITFORONE, 0, 0)
	switch {
	case errno == 0:
		return int(n), nil
	case errors.Is(errno, unix.EINTR), errors.Is(errno, unix.EAGAIN), errors.Is(errno, unix.ECONNREFUSED):
		return 0, nil
	default:
		return 0, errno
	}
}

// sleep ends after d, or earlier by a signal. It does not tell Go's scheduler,
// whose monitor would otherwise look 50,000 times a second whether a sleeping
// thread has to be replaced and burn a tenth of a CPU; the scheduler's
// preemption signal ends the sleep.
func sleep(d time.Duration) {
	ts := unix.NsecToTimespec(int64(d))
	_, _, _ = unix.RawSyscall(unix.SYS_NANOSLEEP, uintptr(unsafe.Pointer(&ts)), 0, 0) // EINTR: early is fine
}

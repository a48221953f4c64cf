package traffic

import (
	"encoding/binary"
	"time"

	"golang.org/x/sys/unix"
)

// HeaderSize is the smallest payload a packet can have.
const HeaderSize = 32

const magic = 0x72787431 // "rxt1"

// Flags of a Header.
const (
	FlagProbe = 1 << iota // latency probe: Stamp is when it was due
	FlagEcho              // the receiver is to send it back
	FlagReply             // it was sent back
)

// Header starts each payload, big-endian: magic, flow, sequence (8 bytes),
// stamp (8), size, flags.
type Header struct {
	Flow  uint32
	Seq   uint64
	Stamp time.Duration // CLOCK_MONOTONIC; see Now
	Size  uint32        // bytes of the message, header included
	Flags uint32
}

func (h Header) put(b []byte) {
	binary.BigEndian.PutUint32(b[0:], magic)
	binary.BigEndian.PutUint32(b[4:], h.Flow)
	binary.BigEndian.PutUint64(b[8:], h.Seq)
	binary.BigEndian.PutUint64(b[16:], uint64(h.Stamp))
	binary.BigEndian.PutUint32(b[24:], h.Size)
	binary.BigEndian.PutUint32(b[28:], h.Flags)
}

func parseHeader(b []byte) (Header, bool) {
	if len(b) < HeaderSize || binary.BigEndian.Uint32(b) != magic {
		return Header{}, false
	}
	return Header{
		Flow:  binary.BigEndian.Uint32(b[4:]),
		Seq:   binary.BigEndian.Uint64(b[8:]),
		Stamp: time.Duration(binary.BigEndian.Uint64(b[16:])),
		Size:  binary.BigEndian.Uint32(b[24:]),
		Flags: binary.BigEndian.Uint32(b[28:]),
	}, true
}

// Now is CLOCK_MONOTONIC, the same for all processes of a machine.
func Now() time.Duration {
	var ts unix.Timespec
	// Cannot fail for this clock (clock_gettime(2)).
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts)
	return time.Duration(ts.Nano())
}

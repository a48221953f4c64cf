// Package toeplitz is the receive-side scaling hash of network cards: which bucket of the
// indirection table a flow falls into, given key and hash fields. Definition: Microsoft,
// "RSS Hashing Functions"; Linux: drivers' ETH_RSS_HASH_TOP.
//
// It refuses to know what a card is set to; see knob's rss-key, rss-function,
// rss-input-xfrm and rss-hash-fields.
package toeplitz

import (
	"encoding/binary"
	"net/netip"
)

// MicrosoftKey is the key of Microsoft's verification suite, which several drivers have as default.
var MicrosoftKey = []byte{
	0x6d, 0x5a, 0x56, 0xda, 0x25, 0x5b, 0x0e, 0xc2, 0x41, 0x67, 0x25, 0x3d, 0x43, 0xa3, 0x8f, 0xb0, 0xd0, 0xca, 0x2b, 0xcb,
	0xae, 0x7b, 0x30, 0xb4, 0x77, 0xcb, 0x2d, 0xa3, 0x80, 0x30, 0xf2, 0x0c, 0x6a, 0x42, 0xb7, 0x3b, 0xbe, 0xac, 0x01, 0xfa,
}

// Sum hashes data with key: for each bit of data that is set, most significant first, the
// 32 bits of key that begin at that bit's position are added (xor). Bits beyond the
// end of key count as 0, as cards with short keys have it.
func Sum(key, data []byte) uint32 {
	var hash uint32
	window := uint64(at(key, 0))<<56 | uint64(at(key, 1))<<48 | uint64(at(key, 2))<<40 | uint64(at(key, 3))<<32
	for i, b := range data {
		// The upper 32 bits of window are the key from bit 8*i on.
		window |= uint64(at(key, i+4)) << 24
		for bit := 7; bit >= 0; bit-- {
			if b>>bit&1 == 1 {
				hash ^= uint32(window >> 32)
			}
			window <<= 1
		}
	}
	return hash
}

func at(key []byte, i int) byte {
	if i < len(key) {
		return key[i]
	}
	return 0
}

// Flow is what a hash covers. Ports that are both 0 are left out, as for flow types hashed by
// address only ("sd") and for fragments.
type Flow struct {
	Src, Dst         netip.Addr // both IPv4 or both IPv6
	SrcPort, DstPort uint16
}

// Transform is what a card does to the fields before it hashes them (RXH_XFRM_* in
// include/uapi/linux/ethtool.h); knob's rss-input-xfrm.
type Transform string

const (
	None           Transform = "none"
	SymmetricXOR   Transform = "symmetric-xor"    // src xor dst in place of each
	SymmetricORXOR Transform = "symmetric-or-xor" // src or dst in place of src, src xor dst in place of dst
)

// Hash is the hash of a flow: source address, destination address and, unless both are 0, source and
// destination port, each in network byte order. ok is false when the addresses are not of one family.
func Hash(key []byte, f Flow, x Transform) (hash uint32, ok bool) {
	var buf [36]byte
	n, ok := f.input(&buf, x)
	if !ok {
		return 0, false
	}
	return Sum(key, buf[:n]), true
}

// input writes what is hashed and returns its length.
func (f Flow) input(buf *[36]byte, x Transform) (int, bool) {
	src, dst := f.Src.Unmap(), f.Dst.Unmap()
	var size int
	switch {
	case src.Is4() && dst.Is4():
		a, b := src.As4(), dst.As4()
		size = copy(buf[:], a[:])
		copy(buf[4:], b[:])
	case src.Is6() && dst.Is6():
		a, b := src.As16(), dst.As16()
		size = copy(buf[:], a[:])
		copy(buf[16:], b[:])
	default:
		return 0, false
	}
	transform(buf[:size], buf[size:2*size], x)
	n := 2 * size
	if f.SrcPort != 0 || f.DstPort != 0 {
		binary.BigEndian.PutUint16(buf[n:], f.SrcPort)
		binary.BigEndian.PutUint16(buf[n+2:], f.DstPort)
		transform(buf[n:n+2], buf[n+2:n+4], x)
		n += 4
	}
	return n, true
}

// transform changes a source and destination field of equal length in place.
func transform(src, dst []byte, x Transform) {
	for i := range src {
		s, d := src[i], dst[i]
		switch x {
		case SymmetricXOR:
			src[i], dst[i] = s^d, s^d
		case SymmetricORXOR:
			src[i], dst[i] = s|d, s^d
		}
	}
}

// Bucket is the entry of a table of size entries that a hash falls into: the remainder, for
// powers of two the low bits. size is positive.
func Bucket(hash uint32, size int) int { return int(hash % uint32(size)) }

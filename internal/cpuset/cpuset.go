// Package cpuset is sets of CPUs and their two kernel texts: masks
// ("00000000,0000000f", bitmap_parse in lib/bitmap-str.c) and lists
// ("0-3,8", bitmap_parselist in the same file).
//
// It refuses to know which CPUs exist: that is package topo's.
package cpuset

import (
	"encoding/binary"
	"errors"
	"fmt"
	"iter"
	"math/bits"
	"strconv"
	"strings"
)

// Limit bounds CPU numbers: 0 ≤ cpu < Limit. It is eight times the largest
// NR_CPUS of any architecture (8192, arch/x86/Kconfig), so text above it is not
// about CPUs.
const Limit = 1 << 16

// ErrSyntax and ErrRange are what every parse error wraps.
var (
	ErrSyntax = errors.New("not a CPU set")
	ErrRange  = errors.New("CPU number too large")
)

// Set is an immutable set of CPU numbers; the zero Set is empty. Sets of the
// same CPUs are == and work as map keys.
//
// Bit i of the little-endian 64-bit word j is CPU 64*j+i; the last word is never 0.
type Set struct{ words string }

const word = 8 // bytes in a word

func (s Set) len() int { return len(s.words) / word }

func (s Set) word(j int) uint64 {
	if j >= s.len() {
		return 0
	}
	w := s.words[j*word : j*word+word]
	return uint64(w[0]) | uint64(w[1])<<8 | uint64(w[2])<<16 | uint64(w[3])<<24 |
		uint64(w[4])<<32 | uint64(w[5])<<40 | uint64(w[6])<<48 | uint64(w[7])<<56
}

func fromWords(w []uint64) Set {
	for len(w) > 0 && w[len(w)-1] == 0 {
		w = w[:len(w)-1]
	}
	if len(w) == 0 {
		return Set{}
	}
	var b strings.Builder
	b.Grow(len(w) * word)
	var buf [word]byte
	for _, x := range w {
		binary.LittleEndian.PutUint64(buf[:], x)
		b.Write(buf[:])
	}
	return Set{b.String()}
}

// builder collects bits in words that grow as needed.
type builder []uint64

func (b *builder) add(cpu int) {
	for cpu/64 >= len(*b) {
		*b = append(*b, 0)
	}
	(*b)[cpu/64] |= 1 << (cpu % 64)
}

// Of is the set of the given CPUs. It panics on one outside [0, Limit): the
// numbers are the program's own; text from outside comes through the parsers.
func Of(cpus ...int) Set {
	var b builder
	for _, c := range cpus {
		if c < 0 || c >= Limit {
			panic(fmt.Sprintf("cpuset.Of: CPU %d out of range", c))
		}
		b.add(c)
	}
	return fromWords(b)
}

// Range is the set first…last, empty when last < first. It panics like Of.
func Range(first, last int) Set {
	if last < first {
		return Set{}
	}
	if first < 0 || last >= Limit {
		panic(fmt.Sprintf("cpuset.Range: CPUs %d-%d out of range", first, last))
	}
	var b builder
	for c := first; c <= last; c++ {
		b.add(c)
	}
	return fromWords(b)
}

// Collect is the set of the CPUs seq yields. It panics like Of.
func Collect(seq iter.Seq[int]) Set {
	var b builder
	for c := range seq {
		if c < 0 || c >= Limit {
			panic(fmt.Sprintf("cpuset.Collect: CPU %d out of range", c))
		}
		b.add(c)
	}
	return fromWords(b)
}

// Union is s ∪ t.
func (s Set) Union(t Set) Set { return s.combine(t, func(a, b uint64) uint64 { return a | b }) }

// Intersect is s ∩ t.
func (s Set) Intersect(t Set) Set { return s.combine(t, func(a, b uint64) uint64 { return a & b }) }

// Minus is s without the members of t.
func (s Set) Minus(t Set) Set { return s.combine(t, func(a, b uint64) uint64 { return a &^ b }) }

func (s Set) combine(t Set, op func(a, b uint64) uint64) Set {
	w := make([]uint64, max(s.len(), t.len()))
	for j := range w {
		w[j] = op(s.word(j), t.word(j))
	}
	return fromWords(w)
}

// Contains reports whether cpu is a member.
func (s Set) Contains(cpu int) bool {
	return cpu >= 0 && s.word(cpu/64)>>(cpu%64)&1 == 1
}

// Len is the number of members.
func (s Set) Len() int {
	n := 0
	for j := range s.len() {
		n += bits.OnesCount64(s.word(j))
	}
	return n
}

// IsEmpty reports whether the set has no members.
func (s Set) IsEmpty() bool { return s.words == "" }

// Equal is ==, for callers such as go-cmp.
func (s Set) Equal(t Set) bool { return s == t }

// SubsetOf reports whether every member of s is one of t.
func (s Set) SubsetOf(t Set) bool {
	for j := range s.len() {
		if s.word(j)&^t.word(j) != 0 {
			return false
		}
	}
	return true
}

// Intersects reports whether s and t share a member.
func (s Set) Intersects(t Set) bool {
	for j := range min(s.len(), t.len()) {
		if s.word(j)&t.word(j) != 0 {
			return true
		}
	}
	return false
}

// First is the lowest member, -1 in the empty set.
func (s Set) First() int { return s.Next(-1) }

// Next is the lowest member above cpu, -1 when there is none.
func (s Set) Next(cpu int) int {
	from := max(cpu+1, 0)
	for j := from / 64; j < s.len(); j++ {
		w := s.word(j)
		if j == from/64 {
			w = w >> (from % 64) << (from % 64)
		}
		if w != 0 {
			return 64*j + bits.TrailingZeros64(w)
		}
	}
	return -1
}

// Last is the highest member, -1 in the empty set.
func (s Set) Last() int {
	if s.IsEmpty() {
		return -1
	}
	j := s.len() - 1
	return 64*j + bits.Len64(s.word(j)) - 1
}

// All yields the members in ascending order.
func (s Set) All() iter.Seq[int] {
	return func(yield func(int) bool) {
		for c := s.First(); c >= 0; c = s.Next(c) {
			if !yield(c) {
				return
			}
		}
	}
}

// Slice is the members in ascending order.
func (s Set) Slice() []int {
	out := make([]int, 0, s.Len())
	for c := range s.All() {
		out = append(out, c)
	}
	return out
}

// String is the list text of the kernel ("0-3,8", "%*pbl"), "" when empty.
func (s Set) String() string { return string(s.appendList(nil)) }

func (s Set) appendList(b []byte) []byte {
	for c := s.First(); c >= 0; c = s.Next(c) {
		if len(b) > 0 {
			b = append(b, ',')
		}
		b = strconv.AppendInt(b, int64(c), 10)
		first := c
		for s.Contains(c + 1) {
			c++
		}
		if c > first {
			b = append(b, '-')
			b = strconv.AppendInt(b, int64(c), 10)
		}
	}
	return b
}

// Mask is the mask text of the kernel for a bitmap of nbits bits ("%*pb": groups
// of 32 bits, highest first, the first group as short as nbits allows):
// Of(0).Mask(40) is "00,00000001". Members ≥ nbits widen the text rather than
// being lost; nbits ≤ 0 gives the shortest text.
func (s Set) Mask(nbits int) string {
	nbits = max(nbits, s.Last()+1, 1)
	groups := (nbits + 31) / 32
	var b strings.Builder
	b.Grow(groups * 9)
	for g := groups - 1; g >= 0; g-- {
		width := 8
		if g == groups-1 {
			width = ((nbits-1)%32)/4 + 1
		} else {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, "%0*x", width, uint32(s.word(g/2)>>(g%2*32)))
	}
	return b.String()
}

// MarshalText is String.
func (s Set) MarshalText() ([]byte, error) { return s.appendList(nil), nil }

// UnmarshalText is ParseList.
func (s *Set) UnmarshalText(b []byte) error {
	v, err := ParseList(string(b))
	if err != nil {
		return err
	}
	*s = v
	return nil
}

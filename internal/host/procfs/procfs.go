// Package procfs reads the kernel's text counters: /proc/interrupts,
// /proc/softirqs, /proc/net/softnet_stat and /proc/stat; and its symbols, /proc/kallsyms.
//
// Its functions are pure: bytes in, values out. Memory stays within a small multiple
// of the input whatever it holds. They refuse to guess: what a line does not
// say (which CPU a row is of, which device an interrupt serves) is marked None or left
// to the packages above (vector, nic).
package procfs

import (
	"bytes"
	"encoding/binary"
	"fmt"

	"github.com/rxsteer/rxsteer/internal/cpuset"
)

// None marks a number the text does not tell.
const None = -1

// maxProblems bounds the list of lines that were not understood.
const maxProblems = 32

// Error is a line that was not understood.
type Error struct {
	File  string
	Line  int // from 1; 0 means the file as a whole
	Cause string
}

func (e *Error) Error() string {
	if e.Line == 0 {
		return fmt.Sprintf("parse %s: %s", e.File, e.Cause)
	}
	return fmt.Sprintf("parse %s:%d: %s", e.File, e.Line, e.Cause)
}

// reader walks the lines of a file.
type reader struct {
	file string
	rest []byte
	line int
}

// next returns the following line without its end; ok is false after the last.
func (r *reader) next() (line []byte, ok bool) {
	if len(r.rest) == 0 {
		return nil, false
	}
	r.line++
	i := bytes.IndexByte(r.rest, '\n')
	if i < 0 {
		i = len(r.rest)
	}
	line, r.rest = r.rest[:i], r.rest[min(i+1, len(r.rest)):]
	if n := len(line); n > 0 && line[n-1] == '\r' {
		line = line[:n-1]
	}
	return line, true
}

func (r *reader) errorf(format string, args ...any) *Error {
	return &Error{File: r.file, Line: r.line, Cause: fmt.Sprintf(format, args...)}
}

func blank(c byte) bool { return c == ' ' || c == '\t' }

const eightBlanks = 0x2020202020202020

// skipBlanks returns the index of the first byte from i on that is no blank. Count columns
// are 10 wide and mostly blank, hence the step of eight.
func skipBlanks(b []byte, i int) int {
	for i+8 <= len(b) && binary.LittleEndian.Uint64(b[i:]) == eightBlanks {
		i += 8
	}
	for i < len(b) && blank(b[i]) {
		i++
	}
	return i
}

// trimBlanks removes blanks and NULs around b.
func trimBlanks(b []byte) []byte {
	for len(b) > 0 && (blank(b[0]) || b[0] == 0) {
		b = b[1:]
	}
	for n := len(b); n > 0 && (blank(b[n-1]) || b[n-1] == 0); n = len(b) {
		b = b[:n-1]
	}
	return b
}

// counts appends the decimal numbers at the start of b to dst, at most limit of
// them, and returns what follows. A number ends at a blank or at the end of b, so that the
// digits of "2400000.ipu" or "524288-edge" are left alone. ok is false when a number does
// not fit 64 bits.
func counts(dst []uint64, b []byte, limit int) (_ []uint64, rest []byte, ok bool) {
	for i := 0; ; {
		i = skipBlanks(b, i)
		if limit == 0 {
			return dst, b[i:], true
		}
		start := i
		var n uint64
		for i < len(b) && b[i]-'0' < 10 {
			n = n*10 + uint64(b[i]-'0')
			i++
		}
		if i == start || i < len(b) && !blank(b[i]) {
			return dst, b[start:], true
		}
		if i-start > 19 { // 20 digits may overflow; counters are at most 64 bits wide
			return dst, b[start:], false
		}
		dst = append(dst, n)
		limit--
	}
}

// header reads "CPU0 CPU2 …". It returns nil without an error when the line is something else.
func header(r *reader, line []byte) ([]int, error) {
	var cpus []int
	for i := skipBlanks(line, 0); i < len(line); i = skipBlanks(line, i) {
		if len(line)-i < 4 || string(line[i:i+3]) != "CPU" || line[i+3]-'0' > 9 {
			if cpus == nil {
				return nil, nil
			}
			return nil, r.errorf("header holds something other than CPU columns")
		}
		n := 0
		for i += 3; i < len(line) && line[i]-'0' < 10; i++ {
			if n = n*10 + int(line[i]-'0'); n >= cpuset.Limit {
				return nil, r.errorf("CPU number too large in the header")
			}
		}
		if i < len(line) && !blank(line[i]) {
			return nil, r.errorf("header holds something other than CPU columns")
		}
		if len(cpus) > 0 && n <= cpus[len(cpus)-1] {
			return nil, r.errorf("CPU columns are not in ascending order")
		}
		cpus = append(cpus, n)
	}
	return cpus, nil
}

// label splits a row at its first colon; ok is false when there is none or no name before it.
func label(line []byte) (name, rest []byte, ok bool) {
	for i, c := range line {
		if c == ':' {
			name = trimBlanks(line[:i])
			return name, line[i+1:], len(name) > 0
		}
	}
	return nil, nil, false
}

// slab hands out slices of one growing piece of memory, so that a table of counts is
// not one allocation per row.
type slab struct{ free []uint64 }

// take returns an empty slice with room for n, keep returns a filled one to its length.
func (s *slab) take(n int) []uint64 {
	if cap(s.free) < n {
		s.free = make([]uint64, 0, max(n, slabSize))
	}
	return s.free[:0]
}

func (s *slab) keep(filled []uint64) []uint64 {
	s.free = s.free[len(filled):cap(s.free)][:0]
	return filled[:len(filled):len(filled)]
}

const slabSize = 8192

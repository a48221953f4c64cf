package procfs

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"slices"
	"sort"
)

// Symbols are functions of a kernel by address: those around the addresses they were read for.
type Symbols struct {
	symbols []symbol // sorted by address
	// Hidden says that the file shows no addresses to this reader (kernel.kptr_restrict,
	// kallsyms_show_value in kernel/ksyms_common.c): nothing can be found.
	Hidden bool
}

type symbol struct {
	address      uint64
	name, module []byte
}

// ReadKallsyms reads /proc/kallsyms, "address type name [module]" a line, for the functions that hold these addresses. Only
// text symbols (t, T, w, W) count. JITed BPF programs are of module "bpf", named bpf_prog_<tag>_<name>
// (bpf_get_prog_name in kernel/bpf/core.c). The file has 100,000 lines and more, in no order, and whoever asks wants the
// names of some hundred addresses: one line is held at a time, and one symbol for each address. The error is r's or an *Error.
func ReadKallsyms(file string, r io.Reader, addresses []uint64) (*Symbols, error) {
	wanted := slices.Compact(slices.Sorted(slices.Values(addresses)))
	// Of the symbols behind wanted[i-1] and up to wanted[i] the last, and where names share an address the first of
	// them: that is the one the kernel's own traces print.
	best := make([]symbol, len(wanted))
	seen, shown := false, false
	lines := bufio.NewScanner(r)
	n := 0
	for lines.Scan() {
		n++
		rest := lines.Bytes()
		var f [4][]byte
		for i := range f {
			rest = rest[skipBlanks(rest, 0):]
			end := bytes.IndexAny(rest, " \t\r")
			if end < 0 {
				end = len(rest)
			}
			f[i], rest = rest[:end], rest[end:]
		}
		if len(f[0]) == 0 {
			continue
		}
		fail := func(format string, args ...any) (*Symbols, error) {
			return nil, &Error{File: file, Line: n, Cause: fmt.Sprintf(format, args...)}
		}
		if len(f[1]) != 1 || len(f[2]) == 0 {
			return fail("want an address, a type of one letter and a name")
		}
		address, ok := hex64(f[0])
		if !ok {
			return fail("%q is not an address", f[0])
		}
		seen = true
		if address == 0 || bytes.IndexByte([]byte("tTwW"), f[1][0]) < 0 {
			continue
		}
		shown = true
		i, _ := slices.BinarySearch(wanted, address)
		if i == len(wanted) || best[i].address >= address {
			continue
		}
		b := &best[i]
		b.address, b.name, b.module = address, append(b.name[:0], f[2]...), append(b.module[:0], bytes.Trim(f[3], "[]")...)
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("read %s: %w", file, err)
	}
	return &Symbols{symbols: slices.DeleteFunc(best, func(s symbol) bool { return s.address == 0 }), Hidden: seen && !shown}, nil
}

// hex64 is a number of 1 to 16 hexadecimal digits.
func hex64(text []byte) (uint64, bool) {
	if len(text) == 0 || len(text) > 16 {
		return 0, false
	}
	var v uint64
	for _, c := range text {
		switch {
		case c >= '0' && c <= '9':
			c -= '0'
		case c >= 'a' && c <= 'f':
			c -= 'a' - 10
		case c >= 'A' && c <= 'F':
			c -= 'A' - 10
		default:
			return 0, false
		}
		v = v<<4 | uint64(c)
	}
	return v, true
}

// longest is more than any function is long. The file has no sizes: an address that far behind
// the function before it is in none.
const longest = 64 << 10

// Find is the function that holds an address they were read for, its start, and the module it is of ("" the kernel proper).
func (s *Symbols) Find(address uint64) (name, module string, start uint64, ok bool) {
	i := sort.Search(len(s.symbols), func(i int) bool { return s.symbols[i].address > address })
	if i == 0 {
		return "", "", 0, false
	}
	f := s.symbols[i-1]
	if address-f.address >= longest {
		return "", "", 0, false
	}
	return string(f.name), string(f.module), f.address, true
}

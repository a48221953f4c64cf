package procfs

import (
	"bytes"
	"cmp"
	"slices"
	"sort"
)

// Symbols are a kernel's functions by address.
type Symbols struct {
	symbols []symbol // sorted by address
	// Hidden says that the file shows no addresses to this reader (kernel.kptr_restrict,
	// kallsyms_show_value in kernel/ksyms_common.c): nothing can be found.
	Hidden bool
}

type symbol struct {
	address uint64
	name    string
	module  string
}

// ParseKallsyms reads /proc/kallsyms: "address type name [module]" a line. Only text
// symbols (t, T, w, W) are kept. JITed BPF programs are of module "bpf", named
// bpf_prog_<tag>_<name> (bpf_get_prog_name in kernel/bpf/core.c). The error is an *Error.
func ParseKallsyms(file string, text []byte) (*Symbols, error) {
	s := &Symbols{}
	r := &reader{file: file, rest: text}
	s.symbols = make([]symbol, 0, bytes.Count(text, []byte{'\n'}))
	seen := false
	for {
		line, ok := r.next()
		if !ok {
			break
		}
		fields := bytes.Fields(line)
		if len(fields) == 0 {
			continue
		}
		if len(fields) < 3 || len(fields[1]) != 1 {
			return nil, r.errorf("want an address, a type of one letter and a name")
		}
		address, ok := hex64(fields[0])
		if !ok {
			return nil, r.errorf("%q is not an address", fields[0])
		}
		seen = true
		if address == 0 || !bytes.ContainsAny(fields[1], "tTwW") {
			continue
		}
		sym := symbol{address: address, name: string(fields[2])}
		if len(fields) > 3 {
			sym.module = string(bytes.Trim(fields[3], "[]"))
		}
		s.symbols = append(s.symbols, sym)
	}
	s.Hidden = seen && len(s.symbols) == 0
	slices.SortStableFunc(s.symbols, func(a, b symbol) int { return cmp.Compare(a.address, b.address) })
	return s, nil
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

// Find is the function that holds an address, its start, and the module it is of ("" the kernel proper).
func (s *Symbols) Find(address uint64) (name, module string, start uint64, ok bool) {
	i := sort.Search(len(s.symbols), func(i int) bool { return s.symbols[i].address > address })
	if i == 0 {
		return "", "", 0, false
	}
	// Of several names of an address the first: that is the one the kernel's own traces print.
	f := s.symbols[i-1]
	for i >= 2 && s.symbols[i-2].address == f.address {
		i--
		f = s.symbols[i-1]
	}
	if address-f.address >= longest {
		return "", "", 0, false
	}
	return f.name, f.module, f.address, true
}

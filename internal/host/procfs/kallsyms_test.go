package procfs

import (
	"bytes"
	"errors"
	"io"
	"os"
	"strings"
	"testing"
	"testing/iotest"
)

const someSymbols = `ffffffff81000000 T _text
ffffffff81000000 T _stext
ffffffff81001000 t __napi_poll
ffffffff81000800 T net_rx_action
ffffffff82000000 D a_variable
ffffffffc0100000 t veth_poll	[veth]
ffffffffc0200000 t bpf_prog_0123456789abcdef_burn	[bpf]
`

func TestKallsymsFindsTheFunctionAround(t *testing.T) {
	type want struct {
		address      uint64
		name, module string
	}
	tests := []want{
		{0xffffffff81000000, "_text", ""}, // the first of two
		{0xffffffff810007ff, "_text", ""},
		{0xffffffff81000800, "net_rx_action", ""},
		{0xffffffff81001fff, "__napi_poll", ""},
		{0xffffffffc0100001, "veth_poll", "veth"},
		{0xffffffffc0200000, "bpf_prog_0123456789abcdef_burn", "bpf"},
		{0xffffffff80ffffff, "", ""}, // before the first
		{0xffffffff81011000, "", ""}, // 64 KiB behind the last of the kernel
		{0xffffffff82000001, "", ""}, // no function
		{0xffffffffffffffff, "", ""},
	}
	var all []uint64
	for _, tt := range tests {
		all = append(all, tt.address, tt.address)
	}
	for _, tt := range tests {
		for _, asked := range [][]uint64{all, {tt.address}} { // whatever else is asked for
			s, err := ReadKallsyms("/proc/kallsyms", strings.NewReader(someSymbols), asked)
			if err != nil {
				t.Fatal(err)
			}
			name, module, _, ok := s.Find(tt.address)
			if name != tt.name || module != tt.module || ok != (tt.name != "") {
				t.Errorf("%#x: %q of %q, %v; want %q of %q", tt.address, name, module, ok, tt.name, tt.module)
			}
		}
	}
}

func TestKallsymsThatHidesIsToldFromEmpty(t *testing.T) {
	for _, asked := range [][]uint64{nil, {1}} {
		hidden, err := ReadKallsyms("f", strings.NewReader("0000000000000000 T _text\n0000000000000000 t veth_poll\t[veth]\n"), asked)
		if err != nil || !hidden.Hidden {
			t.Errorf("%+v, %v: want hidden", hidden, err)
		}
		shown, err := ReadKallsyms("f", strings.NewReader(someSymbols), asked)
		if err != nil || shown.Hidden {
			t.Errorf("%+v, %v: want shown", shown, err)
		}
		empty, err := ReadKallsyms("f", strings.NewReader(""), asked)
		if err != nil || empty.Hidden {
			t.Errorf("%+v, %v: want empty", empty, err)
		}
		if _, _, _, ok := empty.Find(1); ok {
			t.Error("found something in nothing")
		}
	}
}

func TestKallsymsRefusesOtherText(t *testing.T) {
	for _, text := range []string{"ffffffff81000000 T\n", "xyz T name\n", "ffffffff81000000 TT name\n", "11112222333344445 T name\n"} {
		_, err := ReadKallsyms("f", strings.NewReader("ffffffff81000000 T ok\n"+text), nil)
		var e *Error
		if !errors.As(err, &e) || e.Line != 2 {
			t.Errorf("%q: %v, want an error in line 2", text, err)
		}
	}
	broken := errors.New("cable cut")
	if _, err := ReadKallsyms("f", io.MultiReader(strings.NewReader("ffffffff81000000 T ok\n"), iotest.ErrReader(broken)), nil); !errors.Is(err, broken) {
		t.Errorf("%v, want %v", err, broken)
	}
}

func FuzzKallsyms(f *testing.F) {
	f.Add([]byte(someSymbols), uint64(0xffffffff81000001))
	f.Fuzz(func(t *testing.T, text []byte, address uint64) {
		s, err := ReadKallsyms("f", bytes.NewReader(text), []uint64{address})
		if err != nil {
			return
		}
		if name, _, start, ok := s.Find(address); ok && (name == "" || start > address || address-start >= longest) {
			t.Errorf("%#x is in %q from %#x", address, name, start)
		}
	})
}

// BenchmarkKallsyms is what naming the functions of a profile of 500 addresses costs.
func BenchmarkKallsyms(b *testing.B) {
	text, err := os.ReadFile("/proc/kallsyms")
	if err != nil {
		b.Skipf("needs /proc/kallsyms: %v", err)
	}
	var asked []uint64
	for i := range 500 {
		asked = append(asked, 0xffffffff81000000+uint64(i)*20011)
	}
	b.SetBytes(int64(len(text)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := ReadKallsyms("f", bytes.NewReader(text), asked); err != nil {
			b.Fatal(err)
		}
	}
}

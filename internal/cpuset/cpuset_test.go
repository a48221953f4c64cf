package cpuset

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestParseList(t *testing.T) {
	tests := []struct {
		text string
		want string
		err  error
	}{
		{"", "", nil},
		{"\n", "", nil},
		{"\x00\n", "", nil},
		{"(null)\n", "", nil},
		{"0\n", "0", nil},
		{" 5 \n", "5", nil},
		{"0-3,8", "0-3,8", nil},
		{"0,1,2,4-4", "0-2,4", nil},
		{"3,2,1", "1-3", nil},
		{"0-31:1/2", "0,2,4,6,8,10,12,14,16,18,20,22,24,26,28,30", nil},
		{"0-1023:2/512", "0-1,512-513", nil},
		{"0-7:0/4", "", nil},
		{"0 2\t4", "0,2,4", nil},
		{"0,,2", "0,2", nil},
		{"63-64,127-128,255-256,2047", "63-64,127-128,255-256,2047", nil},
		{"65535", "65535", nil},
		{"65536", "", ErrRange},
		{"0-4294967295", "", ErrRange},
		{"99999999999999999999999999", "", ErrRange},
		{"3-1", "", ErrSyntax},
		{"-1", "", ErrSyntax},
		{"1-", "", ErrSyntax},
		{"0x3", "", ErrSyntax},
		{"5:1/2", "", ErrSyntax},
		{"0-7:5/4", "", ErrSyntax},
		{"0-7:1/0", "", ErrSyntax},
		{"0-7:1", "", ErrSyntax},
		{"0-3,N", "", ErrSyntax},
		{"all", "", ErrSyntax},
		{"\xff\xfe", "", ErrSyntax},
	}
	for _, tt := range tests {
		got, err := ParseList(tt.text)
		if !errors.Is(err, tt.err) || (err == nil) != (tt.err == nil) {
			t.Errorf("ParseList(%q) error = %v, want %v", tt.text, err, tt.err)
		}
		if got.String() != tt.want {
			t.Errorf("ParseList(%q) = %q, want %q", tt.text, got, tt.want)
		}
	}
}

func TestParseListOf(t *testing.T) {
	tests := []struct {
		text string
		want string
		err  error
	}{
		{"4-N", "4-11", nil},
		{"N", "11", nil},
		{"all", "0-11", nil},
		{"All:1/3", "0,3,6,9", nil},
		{"0-N:2/6", "0-1,6-7", nil},
		{"12", "", ErrRange},
		{"N-2", "", ErrSyntax},
	}
	for _, tt := range tests {
		got, err := ParseListOf(tt.text, 12)
		if !errors.Is(err, tt.err) || (err == nil) != (tt.err == nil) {
			t.Errorf("ParseListOf(%q, 12) error = %v, want %v", tt.text, err, tt.err)
		}
		if got.String() != tt.want {
			t.Errorf("ParseListOf(%q, 12) = %q, want %q", tt.text, got, tt.want)
		}
	}
}

func TestParseMask(t *testing.T) {
	tests := []struct {
		text string
		want string
		err  error
	}{
		{"", "", nil},
		{"0\n", "", nil},
		{"00000000,00000000", "", nil},
		{"f", "0-3", nil},
		{"0x3", "0-1", nil},
		{"FF\n", "0-7", nil},
		{"00000001,00000000", "32", nil},
		{"1,0", "32", nil}, // a short group still counts 32 bits
		{"3,00000000,00000000", "64-65", nil},
		{"0008,00000000,00000001", "0,67", nil},
		{"ffffffffffffffffff", "0-71", nil},
		{"80000000,00000000,00000000,00000000,00000000,00000000,00000000,00000000,00000000,00000001", "0,319", nil},
		{"g", "", ErrSyntax},
		{"1,,1", "", ErrSyntax},
		{",1", "", ErrSyntax},
		{"123456789,00000000", "", ErrSyntax},
		{"0-3", "", ErrSyntax},
	}
	for _, tt := range tests {
		got, err := ParseMask(tt.text)
		if !errors.Is(err, tt.err) || (err == nil) != (tt.err == nil) {
			t.Errorf("ParseMask(%q) error = %v, want %v", tt.text, err, tt.err)
		}
		if got.String() != tt.want {
			t.Errorf("ParseMask(%q) = %q, want %q", tt.text, got, tt.want)
		}
	}
	huge := make([]byte, 1<<20)
	for i := range huge {
		huge[i] = 'f'
	}
	if _, err := ParseMask(string(huge)); !errors.Is(err, ErrRange) {
		t.Errorf("ParseMask(1 MiB of f) error = %v, want %v", err, ErrRange)
	}
}

func TestParseListBoundsItsWork(t *testing.T) {
	if _, err := ParseList(strings.Repeat("0-65535:1/2,", 1<<20)); !errors.Is(err, ErrRange) {
		t.Errorf("ParseList(12 MiB) error = %v, want %v", err, ErrRange)
	}
	var every builder
	for c := 0; c < Limit; c += 2 {
		every.add(c)
	}
	roundTrip(t, fromWords(every))
}

func TestMask(t *testing.T) {
	tests := []struct {
		set   Set
		nbits int
		want  string
	}{
		{Set{}, 0, "0"},
		{Set{}, 40, "00,00000000"},
		{Of(0), 4, "1"},
		{Of(0), 5, "01"},
		{Of(0), 40, "00,00000001"},
		{Of(39), 40, "80,00000000"},
		{Of(0, 32, 64), 0, "1,00000001,00000001"},
		{Range(8, 15), 8, "ff00"}, // never loses a member
		{Of(300), 512, "00000000,00000000,00000000,00000000,00000000,00000000,00001000,00000000,00000000,00000000,00000000,00000000,00000000,00000000,00000000,00000000"},
	}
	for _, tt := range tests {
		if got := tt.set.Mask(tt.nbits); got != tt.want {
			t.Errorf("{%v}.Mask(%d) = %q, want %q", tt.set, tt.nbits, got, tt.want)
		}
	}
}

func TestAlgebra(t *testing.T) {
	a, b := Of(0, 1, 2, 3, 200), Of(2, 3, 4, 70)
	got := map[string]Set{
		"union":       a.Union(b),
		"intersect":   a.Intersect(b),
		"minus":       a.Minus(b),
		"minus self":  a.Minus(a),
		"range":       Range(62, 65),
		"empty range": Range(3, 2),
		"collect":     Collect(slices.Values([]int{9, 1})),
	}
	want := map[string]Set{
		"union":       Of(0, 1, 2, 3, 4, 70, 200),
		"intersect":   Of(2, 3),
		"minus":       Of(0, 1, 200),
		"minus self":  {},
		"range":       Of(65, 64, 63, 62),
		"empty range": {},
		"collect":     Of(1, 9),
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("set algebra (-want +got):\n%s", d)
	}
	for name, ok := range map[string]bool{
		"subset":          Of(1, 200).SubsetOf(a),
		"not subset":      !b.SubsetOf(a),
		"empty subset":    Set{}.SubsetOf(Set{}),
		"intersects":      a.Intersects(b),
		"not intersects":  !a.Intersects(Of(64)),
		"contains":        a.Contains(200),
		"not contains":    !a.Contains(201) && !a.Contains(-1) && !a.Contains(1<<40),
		"len":             a.Len() == 5,
		"first":           b.First() == 2 && Set{}.First() == -1,
		"last":            b.Last() == 70 && Set{}.Last() == -1,
		"next":            a.Next(3) == 200 && a.Next(200) == -1 && a.Next(-7) == 0,
		"map key":         a == Of(200, 3, 2, 1, 0),
		"empty":           Set{}.IsEmpty() && !a.IsEmpty(),
		"canonical minus": Of(1, 100).Minus(Of(100)) == Of(1),
		"slice":           slices.Equal(a.Slice(), []int{0, 1, 2, 3, 200}),
	} {
		if !ok {
			t.Errorf("%s does not hold", name)
		}
	}
}

func TestJSONIsListText(t *testing.T) {
	type row struct {
		CPUs Set `json:"cpus"`
	}
	in := row{Range(0, 3).Union(Of(8))}
	b, err := json.Marshal(in)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := string(b), `{"cpus":"0-3,8"}`; got != want {
		t.Errorf("marshal = %s, want %s", got, want)
	}
	var out row
	if err := json.Unmarshal(b, &out); err != nil {
		t.Fatal(err)
	}
	if out != in {
		t.Errorf("unmarshal = %v, want %v", out, in)
	}
	if err := json.Unmarshal([]byte(`{"cpus":"0-"}`), &out); !errors.Is(err, ErrSyntax) {
		t.Errorf("unmarshal of a broken list: error = %v, want %v", err, ErrSyntax)
	}
}

func FuzzParse(f *testing.F) {
	for _, s := range []string{"", "0-3,8", "0-31:1/2", "00000000,0000000f", "ff", "(null)\n", "0-4294967295", "1,,1", "0x0"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if a, err := ParseList(s); err == nil {
			roundTrip(t, a)
		}
		if a, err := ParseListOf(s, 1024); err == nil {
			roundTrip(t, a)
			if a.Last() >= 1024 {
				t.Errorf("ParseListOf(%q, 1024) has CPU %d", s, a.Last())
			}
		}
		if a, err := ParseMask(s); err == nil {
			roundTrip(t, a)
		}
	})
}

// roundTrip checks that both texts of a set give that set again.
func roundTrip(t *testing.T, a Set) {
	t.Helper()
	if b, err := ParseList(a.String()); err != nil || a != b {
		t.Errorf("list text %q gives %v, %v", a, b, err)
	}
	for _, nbits := range []int{0, 64, 1000} {
		if b, err := ParseMask(a.Mask(nbits)); err != nil || a != b {
			t.Errorf("mask text %q of %v gives %v, %v", a.Mask(nbits), a, b, err)
		}
	}
	if n := len(a.Slice()); n != a.Len() {
		t.Errorf("All yields %d CPUs, Len is %d", n, a.Len())
	}
	if Of(a.Slice()...) != a {
		t.Errorf("Of(%v) is another set", a)
	}
}

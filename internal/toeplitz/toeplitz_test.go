package toeplitz

import (
	"bufio"
	"bytes"
	"math/bits"
	"math/rand/v2"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// Two of Microsoft's published vectors of each family ("Verifying the RSS Hash Calculation");
// the whole suite is read from ../shared/cases where that is.
func TestHashOfPublishedVectors(t *testing.T) {
	tests := []struct {
		src, dst     string
		sport, dport uint16
		ip, ports    uint32
	}{
		{"66.9.149.187", "161.142.100.80", 2794, 1766, 0x323e8fc2, 0x51ccc178},
		{"153.39.163.191", "202.188.127.2", 44251, 1303, 0x5d1809c5, 0x10e828a2},
		{"3ffe:2501:200:1fff::7", "3ffe:2501:200:3::1", 2794, 1766, 0x2cc18cd5, 0x40207d3d},
		{"3ffe:1900:4545:3:200:f8ff:fe21:67cf", "fe80::200:f8ff:fe21:67cf", 44251, 38024, 0x4b61e985, 0x02d1feef},
	}
	for _, tt := range tests {
		check(t, tt.src, tt.dst, tt.sport, tt.dport, tt.ip, tt.ports)
	}
}

func check(t *testing.T, src, dst string, sport, dport uint16, ip, ports uint32) {
	t.Helper()
	f := Flow{Src: netip.MustParseAddr(src), Dst: netip.MustParseAddr(dst)}
	if got, ok := Hash(MicrosoftKey, f, None); !ok || got != ip {
		t.Errorf("hash of %s > %s = %08x, %v, want %08x", src, dst, got, ok, ip)
	}
	f.SrcPort, f.DstPort = sport, dport
	if got, ok := Hash(MicrosoftKey, f, None); !ok || got != ports {
		t.Errorf("hash of %s:%d > %s:%d = %08x, %v, want %08x", src, sport, dst, dport, got, ok, ports)
	}
}

func TestHashOfTheWholeSuite(t *testing.T) {
	b, err := os.ReadFile(filepath.Join("..", "..", "..", "shared", "cases", "rss-vectors", "toeplitz_ms.tsv"))
	if err != nil {
		t.Skip("needs ../shared/cases: ", err)
	}
	n := 0
	for s := bufio.NewScanner(bytes.NewReader(b)); s.Scan(); {
		w := strings.Fields(s.Text())
		if len(w) != 6 || w[0][0] == '#' {
			continue
		}
		num := func(s string, base int) uint64 {
			v, err := strconv.ParseUint(s, base, 32)
			if err != nil {
				t.Fatal(err)
			}
			return v
		}
		check(t, w[2], w[0], uint16(num(w[3], 10)), uint16(num(w[1], 10)), uint32(num(w[4], 16)), uint32(num(w[5], 16)))
		n++
	}
	if n < 8 {
		t.Errorf("%d vectors, want at least 8", n)
	}
}

// slow is the definition, bit by bit.
func slow(key, data []byte) uint32 {
	bit := func(b []byte, i int) uint32 {
		if i/8 >= len(b) {
			return 0
		}
		return uint32(b[i/8] >> (7 - i%8) & 1)
	}
	var hash uint32
	for i := range 8 * len(data) {
		if bit(data, i) == 1 {
			for j := range 32 {
				hash ^= bit(key, i+j) << (31 - j)
			}
		}
	}
	return hash
}

func TestSumIsTheDefinition(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		key, data := make([]byte, r.IntN(60)), make([]byte, r.IntN(40))
		for i := range key {
			key[i] = byte(r.Uint32())
		}
		for i := range data {
			data[i] = byte(r.Uint32())
		}
		if got, want := Sum(key, data), slow(key, data); got != want {
			t.Fatalf("Sum(%x, %x) = %08x, want %08x", key, data, got, want)
		}
	}
}

func TestSymmetry(t *testing.T) {
	f := Flow{netip.MustParseAddr("10.1.2.3"), netip.MustParseAddr("192.0.2.7"), 1024, 443}
	back := Flow{f.Dst, f.Src, f.DstPort, f.SrcPort}
	repeated := bytes.Repeat([]byte{0x6d, 0x5a}, 20)
	tests := []struct {
		name string
		key  []byte
		x    Transform
		same bool
	}{
		{"plain", MicrosoftKey, None, false},
		{"repeated key", repeated, None, true},
		{"xor", MicrosoftKey, SymmetricXOR, true},
		{"or-xor", MicrosoftKey, SymmetricORXOR, true},
	}
	seen := map[uint32]string{}
	for _, tt := range tests {
		a, ok1 := Hash(tt.key, f, tt.x)
		b, ok2 := Hash(tt.key, back, tt.x)
		if !ok1 || !ok2 || (a == b) != tt.same {
			t.Errorf("%s: %08x and %08x, same should be %v", tt.name, a, b, tt.same)
		}
		if other, twice := seen[a]; twice {
			t.Errorf("%s hashes as %s does", tt.name, other)
		}
		seen[a] = tt.name
	}
}

func TestMixedFamilies(t *testing.T) {
	v4, v6 := netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("2001:db8::1")
	for _, f := range []Flow{{Src: v4, Dst: v6}, {Src: v6, Dst: v4}, {}} {
		if h, ok := Hash(MicrosoftKey, f, None); ok {
			t.Errorf("hash of %v = %08x, want none", f, h)
		}
	}
	mapped := netip.MustParseAddr("::ffff:10.0.0.1")
	a, _ := Hash(MicrosoftKey, Flow{Src: mapped, Dst: v4}, None)
	b, _ := Hash(MicrosoftKey, Flow{Src: v4, Dst: v4}, None)
	if a != b {
		t.Errorf("an IPv4 address mapped into IPv6 hashes to %08x, want %08x", a, b)
	}
}

func TestBucket(t *testing.T) {
	for _, tt := range []struct {
		hash uint32
		size int
		want int
	}{{0xffffffff, 128, 127}, {0xffffffff, 1, 0}, {300, 72, 12}, {1 << 31, 4096, 0}} {
		if got := Bucket(tt.hash, tt.size); got != tt.want {
			t.Errorf("Bucket(%#x, %d) = %d, want %d", tt.hash, tt.size, got, tt.want)
		}
	}
	// A good key spreads: of 1000 flows none of 16 buckets gets a third.
	var n [16]int
	for p := range uint16(1000) {
		h, _ := Hash(MicrosoftKey, Flow{netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("10.0.0.2"), 1024 + p, 443}, None)
		n[Bucket(h, 16)]++
		if bits.OnesCount32(h) == 0 {
			t.Errorf("port %d hashes to 0", 1024+p)
		}
	}
	for b, k := range n {
		if k > 333 {
			t.Errorf("bucket %d has %d of 1000 flows", b, k)
		}
	}
}

func BenchmarkHash(b *testing.B) {
	f := Flow{netip.MustParseAddr("2001:db8::1"), netip.MustParseAddr("2001:db8::2"), 1024, 443}
	for b.Loop() {
		Hash(MicrosoftKey, f, None)
	}
}

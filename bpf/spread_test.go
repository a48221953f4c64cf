package bpf

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rxsteer/rxsteer/internal/testnet"
	"github.com/rxsteer/rxsteer/internal/toeplitz"
	"github.com/rxsteer/rxsteer/lab/traffic"
)

// spreading loads and attaches the bucket programs until the test ends.
func spreading(t testing.TB, opts SpreadOptions) *Spread {
	t.Helper()
	testnet.NeedTun(t)
	s, err := LoadSpread(opts)
	if err != nil {
		t.Fatalf("%+v", err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	if err := s.Attach(); err != nil {
		t.Fatal(err)
	}
	return s
}

func (s *Spread) counters(t testing.TB) *SpreadCounters {
	t.Helper()
	var c SpreadCounters
	if err := s.Read(&c); err != nil {
		t.Fatal(err)
	}
	return &c
}

// watch has s count for one device.
func (s *Spread) watch(t testing.TB, ns *testnet.NS, dev string, rate int, d SpreadDevice) {
	t.Helper()
	index, err := ns.IfIndex(dev)
	if err != nil {
		t.Fatal(err)
	}
	d.Netns, d.IfIndex = uint32(ns.Inode()), uint32(index)
	if err := s.Configure([]SpreadDevice{d}); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(s.SetRate(rate), s.SetOn(true)); err != nil {
		t.Fatal(err)
	}
}

// turns is a table of the queues in turn.
func turns(size, queues int) []int {
	table := make([]int, size)
	for i := range table {
		table[i] = i % queues
	}
	return table
}

var allFields = [8]string{"sdfn", "sdfn", "sdfn", "sd", "sdfn", "sdfn", "sdfn", "sd"}

var (
	macA = net.HardwareAddr{2, 0, 0, 0, 0, 1}
	macB = net.HardwareAddr{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}
)

// frames builds f, of MAC addresses that matter to nobody.
func frames(t testing.TB, f traffic.Frame) [][]byte {
	t.Helper()
	f.SrcMAC, f.DstMAC = macA, macB
	if f.Size == 0 {
		f.Size = 64
	}
	tpl, err := f.Build()
	if err != nil {
		t.Fatal(err)
	}
	return tpl.Frames
}

func udp(src, dst string) traffic.Frame {
	return traffic.Frame{Src: netip.MustParseAddrPort(src), Dst: netip.MustParseAddrPort(dst)}
}

// bucketOf is where the reference puts a flow.
func bucketOf(t testing.TB, key []byte, src, dst netip.AddrPort, x toeplitz.Transform, size int) int {
	t.Helper()
	h, ok := toeplitz.Hash(key, toeplitz.Flow{Src: src.Addr(), Dst: dst.Addr(), SrcPort: src.Port(), DstPort: dst.Port()}, x)
	if !ok {
		t.Fatalf("no hash of %v > %v", src, dst)
	}
	return toeplitz.Bucket(h, size)
}

// TestSpreadHashesAsMicrosoftDoes sends each published vector as a frame: over a table longer than
// any packet count each names its own entry, so the programs' hash is seen in full.
func TestSpreadHashesAsMicrosoftDoes(t *testing.T) {
	type vector struct{ src, dst netip.AddrPort }
	vectors := []vector{
		{netip.MustParseAddrPort("66.9.149.187:2794"), netip.MustParseAddrPort("161.142.100.80:1766")},
		{netip.MustParseAddrPort("[3ffe:2501:200:1fff::7]:2794"), netip.MustParseAddrPort("[3ffe:2501:200:3::1]:1766")},
	}
	if b, err := os.ReadFile(filepath.Join("..", "..", "shared", "cases", "rss-vectors", "toeplitz_ms.tsv")); err == nil {
		for sc := bufio.NewScanner(bytes.NewReader(b)); sc.Scan(); {
			w := strings.Fields(sc.Text())
			if len(w) != 6 || w[0][0] == '#' {
				continue
			}
			port := func(s string) uint16 {
				n, err := strconv.ParseUint(s, 10, 16)
				if err != nil {
					t.Fatal(err)
				}
				return uint16(n)
			}
			vectors = append(vectors, vector{netip.AddrPortFrom(netip.MustParseAddr(w[2]), port(w[3])), netip.AddrPortFrom(netip.MustParseAddr(w[0]), port(w[1]))})
		}
	}
	const size = 8191 // a prime: the remainder tells all bits apart
	s := spreading(t, SpreadOptions{Entries: size})
	ns := testnet.New(t)
	dev := tap(t, ns, 1)
	for _, x := range []toeplitz.Transform{toeplitz.None, toeplitz.SymmetricXOR, toeplitz.SymmetricORXOR} {
		for _, fields := range []string{"sdfn", "sd"} {
			t.Run(fmt.Sprintf("%s/%s", x, fields), func(t *testing.T) {
				d := SpreadDevice{Table: turns(size, 1), Key: toeplitz.MicrosoftKey, Transform: x}
				for i := range d.Fields {
					d.Fields[i] = fields
				}
				s.watch(t, ns, "rx0", 0, d)
				want := make([]uint64, size)
				for i, v := range vectors {
					inject(t, dev, frames(t, traffic.Frame{Src: v.src, Dst: v.dst, TCP: i%2 == 0})...)
					src, dst := v.src, v.dst
					if fields == "sd" {
						src, dst = netip.AddrPortFrom(src.Addr(), 0), netip.AddrPortFrom(dst.Addr(), 0)
					}
					want[bucketOf(t, d.Key, src, dst, x, size)]++
				}
				got := make([]uint64, size)
				for i, l := range s.counters(t).Buckets[0] {
					got[i] = l.Packets
				}
				if diff := cmp.Diff(want, got); diff != "" {
					t.Errorf("packets by entry, -want +got:\n%s", diff)
				}
			})
		}
	}
}

func inject(t testing.TB, dev *testnet.TAP, frames ...[]byte) {
	t.Helper()
	for _, f := range frames {
		if err := dev.Inject(0, f); err != nil {
			t.Fatal(err)
		}
	}
}

func TestSpreadNamesEveryClass(t *testing.T) {
	s := spreading(t, SpreadOptions{})
	ns := testnet.New(t)
	dev := tap(t, ns, 1)
	const a4, b4, a6, b6 = "10.9.0.1:4000", "10.9.1.1:5000", "[fd00::1]:4000", "[fd00::2]:5000"
	outer4 := [2]netip.Addr{netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("192.0.2.2")}
	outer6 := [2]netip.Addr{netip.MustParseAddr("fd01::1"), netip.MustParseAddr("fd01::2")}
	in := func(f traffic.Frame, e traffic.Encap, outer [2]netip.Addr) traffic.Frame {
		f.Encap, f.OuterSrc, f.OuterDst, f.ID = e, outer[0], outer[1], 7
		return f
	}
	with := func(f traffic.Frame, change func(*traffic.Frame)) traffic.Frame { change(&f); return f }
	tests := []struct {
		name, class string
		vlan        bool
		frame       traffic.Frame
		// hashed is the flow that decides the bucket, zero: none does.
		src, dst string
	}{
		{"tcp4", "tcp4", false, with(udp(a4, b4), func(f *traffic.Frame) { f.TCP = true }), a4, b4},
		{"udp4", "udp4", false, udp(a4, b4), a4, b4},
		{"tcp6", "tcp6", false, with(udp(a6, b6), func(f *traffic.Frame) { f.TCP = true }), a6, b6},
		{"udp6", "udp6", false, udp(a6, b6), a6, b6},
		{"vlan", "udp4", true, with(udp(a4, b4), func(f *traffic.Frame) { f.VLANs = []uint16{5} }), a4, b4},
		{"qinq", "udp6", true, with(udp(a6, b6), func(f *traffic.Frame) { f.VLANs = []uint16{5, 6} }), a6, b6},
		{"fragments4", "fragment", false, with(udp(a4, b4), func(f *traffic.Frame) { f.Size, f.Fragment = 400, 200 }), "10.9.0.1:0", "10.9.1.1:0"},
		{"fragments6", "fragment", false, with(udp(a6, b6), func(f *traffic.Frame) { f.Size, f.Fragment = 400, 200 }), "[fd00::1]:0", "[fd00::2]:0"},
		{"gre4", "gre", false, in(udp(a4, b4), traffic.GRE, outer4), "192.0.2.1:0", "192.0.2.2:0"},
		{"gre6", "gre", false, in(udp(a4, b4), traffic.GRE, outer6), "[fd01::1]:0", "[fd01::2]:0"},
		{"ipip", "ipip", false, in(udp(a4, b4), traffic.IPIP, outer4), "192.0.2.1:0", "192.0.2.2:0"},
		{"ip6-in-ip4", "ipip", false, in(udp(a6, b6), traffic.IPIP, outer4), "192.0.2.1:0", "192.0.2.2:0"},
		{"vxlan", "vxlan", false, in(udp(a4, b4), traffic.VXLAN, outer4), "", ""},
		{"pppoe", "pppoe", false, in(udp(a4, b4), traffic.PPPoE, outer4), "", ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s.watch(t, ns, "rx0", 1, SpreadDevice{Table: turns(128, 1), Key: toeplitz.MicrosoftKey, Fields: allFields})
			all := frames(t, tt.frame)
			inject(t, dev, all...)
			c := s.counters(t)
			got := map[string]uint64{}
			for i, l := range c.Stats[0].Classes {
				for vlan, l := range l {
					if l.Packets > 0 {
						got[fmt.Sprint(ClassNames[i], " ", vlan == 1)] = l.Packets
					}
				}
			}
			want := map[string]uint64{fmt.Sprint(tt.class, " ", tt.vlan): uint64(len(all))}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("classes, -want +got:\n%s", diff)
			}
			var bytes uint64
			for _, f := range all {
				bytes += uint64(len(f))
			}
			if st := c.Stats[0]; st.Seen.Packets != uint64(len(all)) || st.Seen.Bytes != bytes || st.Unseen != 0 {
				t.Errorf("seen %+v, unseen %d, want %d packets of %d bytes", st.Seen, st.Unseen, len(all), bytes)
			}
			for i, l := range c.Buckets[0] {
				want := uint64(0)
				if tt.src != "" && i == bucketOf(t, toeplitz.MicrosoftKey, netip.MustParseAddrPort(tt.src), netip.MustParseAddrPort(tt.dst), toeplitz.None, 128) {
					want = uint64(len(all))
				}
				if tt.class == "vxlan" {
					continue // its source port is the encapsulator's
				}
				if l.Packets != want {
					t.Errorf("entry %d has %d packets, want %d", i, l.Packets, want)
				}
			}
		})
	}
}

// rawIPv4 is a frame of an IPv4 header with options and what follows it.
func rawIPv4(options, protocol byte, frag uint16, rest []byte) []byte {
	f := append(append([]byte{}, macB...), macA...)
	f = append(f, 0x08, 0)
	h := make([]byte, 20+4*int(options))
	h[0] = 0x40 | 5 + options
	binary.BigEndian.PutUint16(h[2:], uint16(len(h)+len(rest)))
	binary.BigEndian.PutUint16(h[6:], frag)
	h[8], h[9] = 64, protocol
	copy(h[12:], []byte{10, 9, 0, 1, 10, 9, 1, 1})
	for i := 20; i < len(h); i++ {
		h[i] = 1 // no operation
	}
	return append(append(f, h...), rest...)
}

// rawIPv6 is a frame of an IPv6 header and what follows it.
func rawIPv6(next byte, rest []byte) []byte {
	f := append(append([]byte{}, macB...), macA...)
	f = append(f, 0x86, 0xdd)
	h := make([]byte, 40)
	h[0] = 0x60
	binary.BigEndian.PutUint16(h[4:], uint16(len(rest)))
	h[6], h[7] = next, 64
	src, dst := netip.MustParseAddr("fd00::1").As16(), netip.MustParseAddr("fd00::2").As16()
	copy(h[8:], src[:])
	copy(h[24:], dst[:])
	return append(append(f, h...), rest...)
}

// TestSpreadOfHostileHeaders: what cannot be read is counted as unseen and in no class;
// what is odd but legal is read to the end.
func TestSpreadOfHostileHeaders(t *testing.T) {
	s := spreading(t, SpreadOptions{})
	ns := testnet.New(t)
	dev := tap(t, ns, 1)
	ports := []byte{0x0f, 0xa0, 0x13, 0x88, 0, 12, 0, 0, 1, 2, 3, 4}
	// An extension header of 8 bytes, then the next.
	ext := func(next byte, rest ...byte) []byte { return append([]byte{next, 0, 1, 4, 0, 0, 0, 0}, rest...) }
	tests := []struct {
		name   string
		frame  []byte
		class  string // "": unseen
		src    string
		dst    string
		bucket bool
	}{
		{"IP options", rawIPv4(10, 17, 0, ports), "udp4", "10.9.0.1:4000", "10.9.1.1:5000", true},
		{"header length below 20", func() []byte { f := rawIPv4(0, 17, 0, ports); f[14] = 0x43; return f }(), "", "", "", false},
		{"options beyond the packet", func() []byte { f := rawIPv4(0, 17, 0, nil); f[14] = 0x4f; return f }(), "", "", "", false},
		{"version 6 as IPv4", func() []byte { f := rawIPv4(0, 17, 0, ports); f[14] = 0x65; return f }(), "", "", "", false},
		{"IPv4 header cut short", rawIPv4(0, 17, 0, ports)[:14+12], "", "", "", false},
		{"UDP header cut short", rawIPv4(0, 17, 0, ports[:2]), "", "", "", false},
		{"last fragment", rawIPv4(0, 17, 185, ports), "fragment", "10.9.0.1:0", "10.9.1.1:0", true},
		{"ICMP", rawIPv4(0, 1, 0, ports), "ip4", "10.9.0.1:0", "10.9.1.1:0", true},
		{"SCTP", rawIPv4(0, 132, 0, ports), "ip4", "10.9.0.1:4000", "10.9.1.1:5000", true},
		{"IPv6 hop-by-hop and destination options", rawIPv6(0, ext(60, ext(17, ports...)...)), "udp6", "[fd00::1]:4000", "[fd00::2]:5000", true},
		{"IPv6 chain of four", rawIPv6(0, ext(60, ext(43, ext(60, ext(6, append(ports, 0, 0, 0, 0, 0, 0, 0, 0)...)...)...)...)), "tcp6", "[fd00::1]:4000", "[fd00::2]:5000", true},
		{"IPv6 chain without end", rawIPv6(60, bytes.Repeat(ext(60), 40)), "ip6", "[fd00::1]:0", "[fd00::2]:0", true},
		{"IPv6 chain cut short", rawIPv6(0, ext(60, ext(60)[:1]...)), "", "", "", false},
		{"IPv6 fragment", rawIPv6(44, ext(17, ports...)), "fragment", "[fd00::1]:0", "[fd00::2]:0", true},
		{"IPv6 header cut short", rawIPv6(17, nil)[:14+30], "", "", "", false},
		{"VLAN tag cut short", append(append(append([]byte{}, macB...), macA...), 0x81, 0, 0, 5, 8), "", "", "", false},
		{"three tags", append(append(append([]byte{}, macB...), macA...), 0x88, 0xa8, 0, 5, 0x81, 0, 0, 6, 0x81, 0, 0, 7, 8, 0), "other", "", "", false},
		{"not IP", append(append(append([]byte{}, macB...), macA...), append([]byte{0x88, 0xb5}, make([]byte, 46)...)...), "other", "", "", false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s.watch(t, ns, "rx0", 1, SpreadDevice{Table: turns(128, 1), Key: toeplitz.MicrosoftKey, Fields: allFields})
			inject(t, dev, tt.frame)
			c := s.counters(t)
			st := &c.Stats[0]
			if st.Seen.Packets != 1 || st.Seen.Bytes != uint64(len(tt.frame)) {
				t.Fatalf("seen %+v, want 1 packet of %d bytes", st.Seen, len(tt.frame))
			}
			class := ""
			for i, l := range st.Classes {
				if l[0].Packets+l[1].Packets > 0 {
					class += ClassNames[i]
				}
			}
			if class != tt.class || (st.Unseen == 1) != (tt.class == "") {
				t.Errorf("class %q, unseen %d, want class %q", class, st.Unseen, tt.class)
			}
			entry := -1
			for i, l := range c.Buckets[0] {
				if l.Packets > 0 {
					entry = i
				}
			}
			want := -1
			if tt.bucket {
				want = bucketOf(t, toeplitz.MicrosoftKey, netip.MustParseAddrPort(tt.src), netip.MustParseAddrPort(tt.dst), toeplitz.None, 128)
			}
			if entry != want {
				t.Errorf("in entry %d, want %d", entry, want)
			}
		})
	}
}

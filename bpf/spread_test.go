package bpf

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/rxsteer/rxsteer/internal/capture"
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
	if err := errors.Join(s.SetRates(1, rate), s.SetOn(true)); err != nil {
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

// TestSpreadIsItsTwin: of frames cut, bent and made up, class and bucket are those of package capture.
func TestSpreadIsItsTwin(t *testing.T) {
	s := spreading(t, SpreadOptions{Flows: 16})
	ns := testnet.New(t)
	dev := tap(t, ns, 1)
	s.watch(t, ns, "rx0", 0, SpreadDevice{Table: turns(127, 1), Key: toeplitz.MicrosoftKey, Fields: allFields})
	var corpus [][]byte
	for _, change := range []func(*traffic.Frame){
		func(*traffic.Frame) {},
		func(f *traffic.Frame) { f.TCP, f.VLANs = true, []uint16{5, 6} },
		func(f *traffic.Frame) { f.Size, f.Fragment = 400, 200 },
		func(f *traffic.Frame) {
			f.Src, f.Dst = netip.MustParseAddrPort("[fd00::1]:4000"), netip.MustParseAddrPort("[fd00::2]:5000")
		},
		func(f *traffic.Frame) {
			f.Encap, f.OuterSrc, f.OuterDst = traffic.VXLAN, netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("192.0.2.2")
		},
	} {
		f := udp("10.9.0.1:4000", "10.9.1.1:5000")
		change(&f)
		corpus = append(corpus, frames(t, f)...)
	}
	ext := []byte{17, 0, 1, 4, 0, 0, 0, 0}
	corpus = append(corpus, rawIPv4(5, 132, 0, make([]byte, 20)), rawIPv6(0, append([]byte{51, 0, 1, 4, 0, 0, 0, 0}, ext...)), rawIPv6(44, append(ext, 1, 2, 3, 4)))
	rnd := rand.New(rand.NewPCG(7, 8))
	protocols := []byte{0, 4, 6, 17, 41, 43, 44, 47, 51, 60, 132, 135}
	before := s.counters(t)
	differ, classes := 0, map[string]int{}
	for range 2000 {
		f := bytes.Clone(corpus[rnd.IntN(len(corpus))])
		for range rnd.IntN(4) {
			if i := 12 + rnd.IntN(min(len(f)-12, 60)); rnd.IntN(2) == 0 {
				f[i] = byte(rnd.Uint32())
			} else {
				f[i] = protocols[rnd.IntN(len(protocols))]
			}
		}
		if rnd.IntN(3) == 0 {
			f = f[:14+rnd.IntN(len(f)-13)]
		}
		inject(t, dev, f)
		after := s.counters(t)
		want := capture.Ethernet(f)
		classes[want.Class]++
		got := ""
		for i, l := range after.Stats[0].Classes {
			for vlan := range l {
				if l[vlan].Packets != before.Stats[0].Classes[i][vlan].Packets {
					got += fmt.Sprint(ClassNames[i], " ", vlan == 1)
				}
			}
		}
		is := ""
		if want.Class != "" {
			is = fmt.Sprint(want.Class, " ", want.VLAN)
		}
		bucket, expected := -1, -1
		for i := range after.Buckets[0] {
			if after.Buckets[0][i].Packets != before.Buckets[0][i].Packets {
				bucket = i
			}
		}
		if want.FlowType != "" {
			src, dst := want.Src, want.Dst
			expected = bucketOf(t, toeplitz.MicrosoftKey, src, dst, toeplitz.None, 127)
		}
		if got != is || bucket != expected {
			t.Errorf("%x: %q in bucket %d, want %q in %d", f, got, bucket, is, expected)
			if differ++; differ > 5 {
				t.FailNow()
			}
		}
		before = after
	}
	for _, class := range []string{"", "udp4", "tcp4", "udp6", "ip4", "ip6", "fragment", "vxlan", "other"} {
		if classes[class] == 0 {
			t.Errorf("no frame of class %q was among them: %v", class, classes)
		}
	}
}

// openTAP makes a tap of other flags than testnet's.
func openTAP(t testing.TB, ns *testnet.NS, flags uint16) int {
	t.Helper()
	var fd int
	err := ns.Do(func() (err error) {
		if fd, err = unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_CLOEXEC, 0); err != nil {
			return err
		}
		ifr, err := unix.NewIfreq("rx0")
		if err != nil {
			return err
		}
		ifr.SetUint16(unix.IFF_TAP | unix.IFF_NO_PI | flags)
		return unix.IoctlIfreq(fd, unix.TUNSETIFF, ifr)
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(fd) })
	if err := ns.IP("link", "set", "rx0", "up"); err != nil {
		t.Fatal(err)
	}
	return fd
}

// TestSpreadReadsHeadersInPages: napi_gro_frags() hands over packets with nothing but pages.
func TestSpreadReadsHeadersInPages(t *testing.T) {
	f := frames(t, udp("[fd00::1]:4000", "[fd00::2]:5000"))[0]
	want := bucketOf(t, toeplitz.MicrosoftKey, netip.MustParseAddrPort("[fd00::1]:4000"), netip.MustParseAddrPort("[fd00::2]:5000"), toeplitz.None, 128)
	for _, pages := range []bool{true, false} {
		t.Run(fmt.Sprintf("pages=%v", pages), func(t *testing.T) {
			testnet.NeedTun(t)
			s, err := loadSpreadWith(SpreadOptions{}, pages)
			if pages && err != nil {
				t.Skip("needs bpf_dynptr_from_skb in tracepoints (Linux 6.12): ", err)
			}
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			if err := s.Attach(); err != nil {
				t.Fatal(err)
			}
			ns := testnet.New(t)
			fd := openTAP(t, ns, unix.IFF_NAPI|unix.IFF_NAPI_FRAGS)
			s.watch(t, ns, "rx0", 1, SpreadDevice{Table: turns(128, 1), Key: toeplitz.MicrosoftKey, Fields: allFields})
			for range 10 {
				if _, err := unix.Writev(fd, [][]byte{f[:14], f[14:70], f[70:]}); err != nil {
					t.Fatal(err)
				}
			}
			c := s.counters(t)
			st := c.Stats[0]
			if st.Seen.Packets != 10 || st.Seen.Bytes != uint64(10*len(f)) {
				t.Fatalf("seen %+v, want 10 packets of %d bytes", st.Seen, len(f))
			}
			if !pages {
				if st.Unseen != 10 || st.BySum != 0 {
					t.Errorf("%d unseen, %d in buckets; want all 10 unseen", st.Unseen, st.BySum)
				}
				return
			}
			if st.Unseen != 0 || c.Buckets[0][want].Packets != 10 || st.Classes[spreadClassCLASS_UDP6][0].Packets != 10 {
				t.Errorf("%d unseen, %d in bucket %d, %d of class udp6; want 0, 10, 10", st.Unseen, c.Buckets[0][want].Packets, want, st.Classes[spreadClassCLASS_UDP6][0].Packets)
			}
		})
	}
}

// TestSpreadSeesEveryWayIn: each packet once, whatever way its device hands it over.
func TestSpreadSeesEveryWayIn(t *testing.T) {
	s := spreading(t, SpreadOptions{})
	device := SpreadDevice{Table: turns(128, 1), Key: toeplitz.MicrosoftKey, Fields: allFields}
	check := func(t *testing.T, packets uint64) {
		t.Helper()
		var st DeviceStat
		await(t, "the packets", func() bool {
			st = s.counters(t).Stats[0]
			return st.Classes[spreadClassCLASS_UDP4][0].Packets >= packets
		})
		if n := st.Classes[spreadClassCLASS_UDP4][0].Packets; n != packets {
			t.Errorf("%d datagrams, want %d", n, packets)
		}
	}
	t.Run("tap without NAPI", func(t *testing.T) {
		ns := testnet.New(t)
		fd := openTAP(t, ns, 0)
		s.watch(t, ns, "rx0", 0, device)
		for range 20 {
			if _, err := unix.Write(fd, frames(t, udp("10.9.0.1:4000", "10.9.1.1:5000"))[0]); err != nil {
				t.Fatal(err)
			}
		}
		check(t, 20)
	})
	datagrams := func(t *testing.T, ns *testnet.NS, to string, n int) {
		t.Helper()
		err := ns.Do(func() error {
			c, err := net.ListenPacket("udp4", ":0")
			if err != nil {
				return err
			}
			defer c.Close()
			for range n {
				if _, err := c.WriteTo(make([]byte, 100), net.UDPAddrFromAddrPort(netip.MustParseAddrPort(to))); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	t.Run("loopback", func(t *testing.T) {
		ns := testnet.New(t)
		s.watch(t, ns, "lo", 0, device)
		datagrams(t, ns, "127.0.0.1:9", 20)
		check(t, 20)
	})
	for _, napi := range []bool{true, false} {
		t.Run(fmt.Sprintf("veth NAPI=%v", napi), func(t *testing.T) {
			a, b := testnet.New(t), testnet.New(t)
			if err := testnet.Connect(a, b, testnet.Veth{AddrA: "10.9.0.1/24", AddrB: "10.9.0.2/24", NAPI: napi, StaticNeigh: true}); err != nil {
				t.Fatal(err)
			}
			s.watch(t, b, "b0", 0, device)
			datagrams(t, a, "10.9.0.2:9", 20)
			check(t, 20)
		})
	}
}

// TestSpreadTellsDevicesApart: two devices are told apart, a third that nobody asked for is not counted, and more than
// there is room for are refused.
func TestSpreadTellsDevicesApart(t *testing.T) { testnet.Undisturbed(t, spreadTellsDevicesApart) }

func spreadTellsDevicesApart(t testing.TB) {
	s := spreading(t, SpreadOptions{Devices: 2, Entries: 256})
	ns, other := testnet.New(t), testnet.New(t)
	devs := []*testnet.TAP{tap(t, ns, 1), tap(t, other, 1)}
	third, err := ns.NewTAP("rx1", 1)
	if err != nil {
		t.Fatal(err)
	}
	defer third.Close()
	var watch []SpreadDevice
	for i, n := range []*testnet.NS{ns, other} {
		index, err := n.IfIndex("rx0")
		if err != nil {
			t.Fatal(err)
		}
		watch = append(watch, SpreadDevice{Netns: uint32(n.Inode()), IfIndex: uint32(index), Table: turns(128>>i, 1), Key: toeplitz.MicrosoftKey, Fields: allFields})
	}
	if err := s.Configure(append(watch, watch[0])); !errors.Is(err, ErrSpreadSize) {
		t.Errorf("three devices: %v, want ErrSpreadSize", err)
	}
	if err := errors.Join(s.Configure(watch), s.SetOn(true)); err != nil {
		t.Fatal(err)
	}
	f := frames(t, udp("10.9.0.1:4000", "10.9.1.1:5000"))[0]
	for i := range 30 {
		inject(t, devs[i%2], f)
		inject(t, third, f)
	}
	inject(t, devs[1], f)
	c := s.counters(t)
	if a, b := c.Stats[0].Classes[spreadClassCLASS_UDP4][0].Packets, c.Stats[1].Classes[spreadClassCLASS_UDP4][0].Packets; a != 15 || b != 16 {
		t.Errorf("%d and %d datagrams, want 15 and 16", a, b)
	}
	if len(c.Buckets[0]) != 128 || len(c.Buckets[1]) != 64 {
		t.Errorf("%d and %d buckets, want 128 and 64", len(c.Buckets[0]), len(c.Buckets[1]))
	}
}

// TestSpreadLooksAtOneInSoMany: what is looked at is a random sample of all packets.
func TestSpreadLooksAtOneInSoMany(t *testing.T) { testnet.Undisturbed(t, spreadLooksAtOneInSoMany) }

func spreadLooksAtOneInSoMany(t testing.TB) {
	s := spreading(t, SpreadOptions{})
	ns := testnet.New(t)
	dev := tap(t, ns, 1)
	s.watch(t, ns, "rx0", 1, SpreadDevice{Table: turns(128, 1), Key: toeplitz.MicrosoftKey, Fields: allFields})
	if err := errors.Join(s.SetOn(false), s.SetRates(16, 1), s.SetOn(true)); err != nil {
		t.Fatal(err)
	}
	// Flows in turn, by a period that a fixed distance would fall in step with.
	const flows, rounds = 16, 2000
	var all [flows][]byte
	for i := range all {
		all[i] = frames(t, udp(fmt.Sprint("10.9.0.1:", 4000+i), "10.9.1.1:5000"))[0]
	}
	for range rounds {
		for i := range all {
			inject(t, dev, all[i])
		}
	}
	c := s.counters(t)
	seen := float64(c.Stats[0].Seen.Packets) * 16
	if off := seen - flows*rounds; off > 0.08*flows*rounds || off < -0.08*flows*rounds { // 4 standard deviations: 16·√2000 at most
		t.Errorf("%v packets looked at, standing for %v of %d", c.Stats[0].Seen.Packets, seen, flows*rounds)
	}
	looked := map[FlowKey]uint64{}
	for i, k := range c.FlowKeys {
		k.Cpu = 0 // wherever this thread ran
		looked[k] += c.Flows[i].Packets
	}
	if len(looked) != flows {
		t.Errorf("%d flows, want %d", len(looked), flows)
	}
	for k, n := range looked {
		if n < 75 || n > 185 { // 125 expected, ± 5 standard deviations
			t.Errorf("flow %+v: %d of %d packets looked at, want about %d", k, n, rounds, rounds/16)
		}
	}
}

package traffic

import (
	"context"
	"encoding/binary"
	"errors"
	"net"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/ip4defrag"
	"github.com/gopacket/gopacket/layers"

	"github.com/rxsteer/rxsteer/internal/testnet"
)

var (
	macA = net.HardwareAddr{2, 0, 0, 0, 0, 1}
	macB = net.HardwareAddr{2, 0, 0, 0, 0, 2}
)

func frame4() Frame {
	return Frame{SrcMAC: macA, DstMAC: macB, Size: 100,
		Src: netip.MustParseAddrPort("10.1.0.1:41000"), Dst: netip.MustParseAddrPort("10.1.0.2:42000")}
}

func frame6() Frame {
	f := frame4()
	f.Src, f.Dst = netip.MustParseAddrPort("[fd01::1]:41000"), netip.MustParseAddrPort("[fd01::2]:42000")
	return f
}

// layerNames is what a frame decodes to; undecodable parts fail the test.
func layerNames(t *testing.T, frame []byte) ([]string, gopacket.Packet) {
	t.Helper()
	p := gopacket.NewPacket(frame, layers.LayerTypeEthernet, gopacket.Default)
	if e := p.ErrorLayer(); e != nil {
		t.Fatalf("decode: %v", e.Error())
	}
	var names []string
	for _, l := range p.Layers() {
		names = append(names, l.LayerType().String())
	}
	return names, p
}

func TestFramesDecodeAndKeepTheirChecksums(t *testing.T) {
	outer4 := func(f *Frame) {
		f.OuterSrc, f.OuterDst = netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("192.0.2.2")
	}
	outer6 := func(f *Frame) {
		f.OuterSrc, f.OuterDst = netip.MustParseAddr("fd09::1"), netip.MustParseAddr("fd09::2")
	}
	for name, tc := range map[string]struct {
		base Frame
		edit func(*Frame)
		want string
	}{
		"udp4":         {frame4(), func(*Frame) {}, "Ethernet IPv4 UDP Payload"},
		"odd size":     {frame4(), func(f *Frame) { f.Size = 101 }, "Ethernet IPv4 UDP Payload"},
		"udp6":         {frame6(), func(*Frame) {}, "Ethernet IPv6 UDP Payload"},
		"tcp4":         {frame4(), func(f *Frame) { f.TCP = true }, "Ethernet IPv4 TCP Payload"},
		"tcp6":         {frame6(), func(f *Frame) { f.TCP = true }, "Ethernet IPv6 TCP Payload"},
		"vlan":         {frame4(), func(f *Frame) { f.VLANs = []uint16{7} }, "Ethernet Dot1Q IPv4 UDP Payload"},
		"qinq":         {frame4(), func(f *Frame) { f.VLANs = []uint16{7, 8} }, "Ethernet Dot1Q Dot1Q IPv4 UDP Payload"},
		"vxlan":        {frame4(), func(f *Frame) { outer4(f); f.Encap, f.ID = VXLAN, 42 }, "Ethernet IPv4 UDP VXLAN Ethernet IPv4 UDP Payload"},
		"vxlan over 6": {frame6(), func(f *Frame) { outer6(f); f.Encap = VXLAN }, "Ethernet IPv6 UDP VXLAN Ethernet IPv6 UDP Payload"},
		"gre":          {frame4(), func(f *Frame) { outer4(f); f.Encap = GRE }, "Ethernet IPv4 GRE IPv4 UDP Payload"},
		"gre key":      {frame6(), func(f *Frame) { outer4(f); f.Encap, f.ID = GRE, 9 }, "Ethernet IPv4 GRE IPv6 UDP Payload"},
		"ipip":         {frame4(), func(f *Frame) { outer4(f); f.Encap = IPIP }, "Ethernet IPv4 IPv4 UDP Payload"},
		"6 in 4":       {frame6(), func(f *Frame) { outer4(f); f.Encap = IPIP }, "Ethernet IPv4 IPv6 UDP Payload"},
		"pppoe":        {frame4(), func(f *Frame) { f.Encap, f.ID = PPPoE, 5 }, "Ethernet PPPoE PPP IPv4 UDP Payload"},
	} {
		t.Run(name, func(t *testing.T) {
			tc.edit(&tc.base)
			tmpl, err := tc.base.Build()
			if err != nil {
				t.Fatal(err)
			}
			h := Header{Flow: 3, Seq: 0xfedcba9876543210, Stamp: 0x123456789abcdef, Size: uint32(tc.base.Size), Flags: FlagProbe}
			tmpl.Stamp(h)
			names, p := layerNames(t, tmpl.Frames[0])
			if diff := cmp.Diff(strings.Fields(tc.want), names); diff != "" {
				t.Errorf("layers (-want +got):\n%s", diff)
			}
			if got, ok := parseHeader(p.ApplicationLayer().Payload()); !ok || got != h {
				t.Errorf("header in the frame: %+v, %v; want %+v", got, ok, h)
			}
			if n := len(p.ApplicationLayer().Payload()); n != tc.base.Size {
				t.Errorf("payload of %d bytes, want %d", n, tc.base.Size)
			}
			checkSums(t, p)
		})
	}
}

// checkSums verifies each IPv4 header and the innermost transport checksum
// (RFC 1071, RFC 8200 8.1).
func checkSums(t *testing.T, p gopacket.Packet) {
	t.Helper()
	var pseudo, segment []byte
	for _, l := range p.Layers() {
		switch ip := l.(type) {
		case *layers.IPv4:
			if fold(wordSum(ip.Contents)) != 0xffff {
				t.Errorf("IPv4 header checksum is wrong: %x", ip.Contents)
			}
			pseudo = append(append([]byte{}, ip.SrcIP.To4()...), ip.DstIP.To4()...)
			pseudo = append(pseudo, 0, byte(ip.Protocol))
			segment = ip.Payload
		case *layers.IPv6:
			pseudo = append(append([]byte{}, ip.SrcIP...), ip.DstIP...)
			pseudo = append(pseudo, 0, byte(ip.NextHeader))
			segment = ip.Payload
		}
	}
	padded := append(append([]byte{}, segment...), 0)[:len(segment)+len(segment)%2]
	if sum := fold(wordSum(pseudo) + wordSum(padded) + uint32(len(segment))); sum != 0xffff {
		t.Errorf("transport checksum is wrong: sum %#x", sum)
	}
}

func TestFragmentsReassemble(t *testing.T) {
	f := frame4()
	f.Size, f.Fragment = 500, 136
	tmpl, err := f.Build()
	if err != nil {
		t.Fatal(err)
	}
	if want := (500 + 8 + 135) / 136; len(tmpl.Frames) != want {
		t.Errorf("%d fragments, want %d", len(tmpl.Frames), want)
	}
	ids := map[uint16]bool{}
	for seq := range uint64(3) {
		tmpl.Stamp(Header{Flow: 1, Seq: seq, Size: 500})
		d := ip4defrag.NewIPv4Defragmenter()
		var whole *layers.IPv4
		for _, b := range tmpl.Frames {
			_, p := layerNames(t, b)
			ip := p.Layer(layers.LayerTypeIPv4).(*layers.IPv4)
			ids[ip.Id] = true
			if fold(wordSum(b[14:34])) != 0xffff {
				t.Errorf("fragment at %d: IPv4 header checksum is wrong", ip.FragOffset)
			}
			if whole, err = d.DefragIPv4(ip); err != nil {
				t.Fatal(err)
			}
		}
		if whole == nil {
			t.Fatal("the fragments do not make a packet")
		}
		h, ok := parseHeader(whole.Payload[8:])
		if !ok || h.Seq != seq || len(whole.Payload) != 508 {
			t.Errorf("reassembled: header %+v %v, %d bytes", h, ok, len(whole.Payload))
		}
	}
	if len(ids) != 3 {
		t.Errorf("3 packets used identifications %v", ids)
	}
}

func TestBadFramesAreRefused(t *testing.T) {
	for name, edit := range map[string]func(*Frame){
		"no mac":         func(f *Frame) { f.DstMAC = nil },
		"mixed families": func(f *Frame) { f.Dst = frame6().Dst },
		"no outer":       func(f *Frame) { f.Encap = VXLAN },
		"mixed outer":    func(f *Frame) { f.Encap, f.OuterSrc, f.OuterDst = GRE, f.Src.Addr(), frame6().Dst.Addr() },
		"unknown encap":  func(f *Frame) { f.Encap = "geneve" },
		"small":          func(f *Frame) { f.Size = HeaderSize - 1 },
		"odd fragment":   func(f *Frame) { f.Fragment = 100 },
		"three tags":     func(f *Frame) { f.VLANs = []uint16{1, 2, 3} },
	} {
		f := frame4()
		edit(&f)
		if _, err := f.Build(); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

// The kernel is the judge: what it delivers to a socket had right checksums,
// lengths and fragments.
func TestFramesReachASocket(t *testing.T) {
	testnet.NeedTun(t)
	ns := testnet.New(t)
	tap, err := ns.NewTAP("t0", 2)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { tap.Close() })
	mac, err := ns.MAC("t0")
	if err != nil {
		t.Fatal(err)
	}
	peer := testnet.New(t)
	if err := testnet.Connect(peer, ns, testnet.Veth{AddrA: "10.2.0.1/24 fd02::1/64", AddrB: "10.2.0.2/24 fd02::2/64"}); err != nil {
		t.Fatal(err)
	}
	peerMAC, err := ns.MAC("b0")
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range []string{"10.1.0.2/24", "fd01::2/64"} {
		if err := ns.Addr("t0", a); err != nil {
			t.Fatal(err)
		}
	}
	over := func(f Frame, src, dst string, mac net.HardwareAddr) Frame {
		f.Src, f.Dst, f.DstMAC = netip.MustParseAddrPort(src), netip.MustParseAddrPort(dst), mac
		return f
	}
	frag4, frag6 := frame4(), frame6()
	frag4.Fragment, frag6.Fragment = 64, 64
	for _, tc := range []struct {
		name   string
		listen string
		frame  Frame
		packet bool // over a packet socket and veth, else into the tap
	}{
		{"tap ipv4", "10.1.0.2:2000", over(frame4(), "10.1.0.1:1000", "10.1.0.2:2000", mac), false},
		{"tap ipv6", "[fd01::2]:2000", over(frame6(), "[fd01::1]:1000", "[fd01::2]:2000", mac), false},
		{"tap fragments ipv4", "10.1.0.2:2001", over(frag4, "10.1.0.1:1000", "10.1.0.2:2001", mac), false},
		{"tap fragments ipv6", "[fd01::2]:2001", over(frag6, "[fd01::1]:1000", "[fd01::2]:2001", mac), false},
		{"packet ipv4", "10.2.0.2:2000", over(frame4(), "10.2.0.1:1000", "10.2.0.2:2000", peerMAC), true},
		{"packet fragments ipv6", "[fd02::2]:2001", over(frag6, "[fd02::1]:1000", "[fd02::2]:2001", peerMAC), true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var r *Receiver
			if err := ns.Do(func() (err error) {
				r, err = Listen(ReceiveConfig{Listen: netip.MustParseAddrPort(tc.listen)})
				return err
			}); err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithCancel(context.Background())
			var wg sync.WaitGroup
			wg.Go(func() {
				if err := r.Run(ctx); err != nil {
					t.Error(err)
				}
			})
			defer func() { cancel(); wg.Wait(); r.Close() }()
			var flows []*Template
			for range 2 {
				tmpl, err := tc.frame.Build()
				if err != nil {
					t.Fatal(err)
				}
				flows = append(flows, tmpl)
			}
			var sink Sink = Injection{Into: tap, Flows: flows, Queue: func(f int) int { return f }}
			if tc.packet {
				if err := peer.Do(func() error {
					p, err := OpenPacketSocket("a0", flows)
					sink = p
					return err
				}); err != nil {
					t.Fatal(err)
				}
				defer sink.(*PacketSocket).Close()
			}
			sent, err := Send(ctx, Plan{Rate: 2000, Count: 100, Flows: 2, Sizes: []int{100}, MaxLag: time.Minute}, sink)
			if err != nil {
				t.Fatal(err)
			}
			awaitTotal(t, r.tally, sent.Sent)
			if rep := r.Take(); sent.Sent != 100 || rep.Received != 100 || rep.Lost != 0 || rep.Foreign != 0 || len(rep.Flows) != 2 || rep.Bytes != 100*100 {
				t.Errorf("sent %+v, received %+v", sent, rep)
			}
		})
	}
}

type brokenDevice struct{ err error }

func (b brokenDevice) Inject(int, []byte) error { return b.err }

func TestInjectionErrors(t *testing.T) {
	tmpl, err := frame4().Build()
	if err != nil {
		t.Fatal(err)
	}
	gone := errors.New("device gone")
	in := Injection{Into: brokenDevice{gone}, Flows: []*Template{tmpl}, Queue: func(int) int { return 0 }}
	if _, err := Send(context.Background(), Plan{Rate: 100, For: time.Second}, in); !errors.Is(err, gone) {
		t.Errorf("injecting into a dead device: got %v", err)
	}
}

func BenchmarkStamp(b *testing.B) {
	tmpl, err := frame4().Build()
	if err != nil {
		b.Fatal(err)
	}
	for i := 0; b.Loop(); i++ {
		tmpl.Stamp(Header{Seq: uint64(i)})
	}
	if binary.BigEndian.Uint16(tmpl.Frames[0][tmpl.sum:]) == 0 {
		b.Error("no checksum")
	}
}

package capture

import (
	"bytes"
	"encoding/binary"
	"errors"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"github.com/gopacket/gopacket/pcapgo"

	"github.com/rxsteer/rxsteer/lab/traffic"
)

// frame is one UDP datagram.
func frame(t testing.TB, change func(*traffic.Frame)) [][]byte {
	t.Helper()
	f := traffic.Frame{SrcMAC: net.HardwareAddr{2, 0, 0, 0, 0, 1}, DstMAC: net.HardwareAddr{2, 0, 0, 0, 0, 2}, Size: 400,
		Src: netip.MustParseAddrPort("10.9.0.1:4000"), Dst: netip.MustParseAddrPort("10.9.1.1:5000")}
	change(&f)
	tpl, err := f.Build()
	if err != nil {
		t.Fatal(err)
	}
	return tpl.Frames
}

func TestEthernet(t *testing.T) {
	a6, b6 := netip.MustParseAddrPort("[fd00::1]:4000"), netip.MustParseAddrPort("[fd00::2]:5000")
	in := func(e traffic.Encap) func(*traffic.Frame) {
		return func(f *traffic.Frame) {
			f.Encap, f.ID = e, 7
			f.OuterSrc, f.OuterDst = netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("192.0.2.2")
		}
	}
	tests := []struct {
		name     string
		change   func(*traffic.Frame)
		class    string
		vlan     bool
		flow     string
		protocol uint8
		src, dst string
	}{
		{"udp4", func(*traffic.Frame) {}, "udp4", false, "udp4", 17, "10.9.0.1:4000", "10.9.1.1:5000"},
		{"tcp6", func(f *traffic.Frame) { f.Src, f.Dst, f.TCP = a6, b6, true }, "tcp6", false, "tcp6", 6, "[fd00::1]:4000", "[fd00::2]:5000"},
		{"qinq", func(f *traffic.Frame) { f.VLANs = []uint16{5, 6} }, "udp4", true, "udp4", 17, "10.9.0.1:4000", "10.9.1.1:5000"},
		{"fragment4", func(f *traffic.Frame) { f.Fragment = 200 }, "fragment", false, "ip4", 17, "10.9.0.1:0", "10.9.1.1:0"},
		{"fragment6", func(f *traffic.Frame) { f.Src, f.Dst, f.Fragment = a6, b6, 200 }, "fragment", false, "ip6", 17, "[fd00::1]:0", "[fd00::2]:0"},
		{"gre", in(traffic.GRE), "gre", false, "ip4", 47, "192.0.2.1:0", "192.0.2.2:0"},
		{"ipip", in(traffic.IPIP), "ipip", false, "ip4", 4, "192.0.2.1:0", "192.0.2.2:0"},
		{"pppoe", in(traffic.PPPoE), "pppoe", false, "", 0, "", ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			want := Packet{Class: tt.class, VLAN: tt.vlan, FlowType: tt.flow, Protocol: tt.protocol}
			if tt.src != "" {
				want.Src, want.Dst = netip.MustParseAddrPort(tt.src), netip.MustParseAddrPort(tt.dst)
			}
			for _, f := range frame(t, tt.change) {
				if got := Ethernet(f); got != want {
					t.Errorf("got  %+v\nwant %+v", got, want)
				}
			}
		})
	}
	if got := Ethernet(frame(t, in(traffic.VXLAN))[0]); got.Class != "vxlan" || got.FlowType != "udp4" || got.Src.Addr().String() != "192.0.2.1" {
		t.Errorf("vxlan: %+v", got)
	}
}

func pcap(t testing.TB, link layers.LinkType, packets ...[]byte) []byte {
	t.Helper()
	var b bytes.Buffer
	w := pcapgo.NewWriter(&b)
	if err := w.WriteFileHeader(65536, link); err != nil {
		t.Fatal(err)
	}
	for i, p := range packets {
		if err := w.WritePacket(gopacket.CaptureInfo{Timestamp: time.Unix(int64(i), 0), CaptureLength: len(p), Length: len(p) + 100}, p); err != nil {
			t.Fatal(err)
		}
	}
	return b.Bytes()
}

func pcapng(t testing.TB, packets ...[]byte) []byte {
	t.Helper()
	var b bytes.Buffer
	w, err := pcapgo.NewNgWriter(&b, layers.LinkTypeEthernet)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := w.AddInterface(pcapgo.NgInterface{LinkType: layers.LinkTypeRaw})
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range packets {
		for i, data := range map[int][]byte{0: p, raw: p[14:]} {
			if err := w.WritePacket(gopacket.CaptureInfo{Timestamp: time.Unix(1, 0), CaptureLength: len(data), Length: len(data), InterfaceIndex: i}, data); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := w.Flush(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func read(b []byte) (packets []Packet, bytesSeen int, err error) {
	err = Read(bytes.NewReader(b), func(p Packet, i Info) { packets = append(packets, p); bytesSeen += i.Length })
	return packets, bytesSeen, err
}

func TestReadEveryFormatAndLinkType(t *testing.T) {
	f := frame(t, func(*traffic.Frame) {})[0]
	want, ip := Ethernet(f), f[14:]
	head := func(n int, at int, value uint16) []byte {
		h := make([]byte, n)
		binary.BigEndian.PutUint16(h[at:], value)
		return append(h, ip...)
	}
	for name, capture := range map[string][]byte{
		"ethernet": pcap(t, layers.LinkTypeEthernet, f),
		"raw":      pcap(t, layers.LinkTypeRaw, ip),
		"ipv4":     pcap(t, linkIPv4, ip),
		"null":     pcap(t, layers.LinkTypeNull, append([]byte{2, 0, 0, 0}, ip...)),
		"cooked":   pcap(t, layers.LinkTypeLinuxSLL, head(16, 14, 0x0800)),
		"cooked2":  pcap(t, linkSLL2, head(20, 0, 0x0800)),
		"pcapng":   pcapng(t, f),
	} {
		got, size, err := read(capture)
		if err != nil || len(got) == 0 || size < 442 {
			t.Errorf("%s: %d packets of %d bytes, %v", name, len(got), size, err)
			continue
		}
		for _, p := range got {
			if p != want {
				t.Errorf("%s: %+v, want %+v", name, p, want)
			}
		}
	}
}

func TestReadOfWhatIsNoCapture(t *testing.T) {
	f := frame(t, func(*traffic.Frame) {})[0]
	whole := pcap(t, layers.LinkTypeEthernet, f, f, f)
	for name, tt := range map[string]struct {
		in      []byte
		packets int
		short   bool
		say     string
	}{
		"nothing":                {nil, 0, false, "shorter than any capture"},
		"text":                   {[]byte("this is a text, not a capture at all"), 0, false, "neither pcap nor pcapng"},
		"header cut":             {whole[:20], 0, false, "its header is cut off"},
		"no packets":             {whole[:24], 0, false, ""},
		"cut in a packet":        {whole[:len(whole)-5], 2, true, "packet 3"},
		"cut in a packet header": {whole[:24+16+len(f)+7], 1, true, "packet 2"},
		"cut before data":        {whole[:24+16+len(f)+16], 1, true, "packet 2"},
		"pcapng cut":             {pcapng(t, f)[:200], 0, true, "packet 1"},
		"unknown link type":      {pcap(t, layers.LinkTypeIEEE802_11, f), 0, false, "link type 105"},
	} {
		got, _, err := read(tt.in)
		if len(got) != tt.packets || errors.Is(err, ErrCutShort) != tt.short || (err != nil) != (tt.say != "") || err != nil && !strings.Contains(err.Error(), tt.say) {
			t.Errorf("%s: %d packets, error %v; want %d, cut short %v, %q", name, len(got), err, tt.packets, tt.short, tt.say)
		}
	}
}

func FuzzRead(f *testing.F) {
	one := frame(f, func(*traffic.Frame) {})[0]
	f.Add(pcap(f, layers.LinkTypeEthernet, one))
	f.Add(pcapng(f, one))
	f.Fuzz(func(t *testing.T, b []byte) { read(b) })
}

// FuzzEthernet: a packet has a class, or nothing; what it is hashed by belongs to its addresses.
func FuzzEthernet(f *testing.F) {
	for _, change := range []func(*traffic.Frame){
		func(*traffic.Frame) {}, func(f *traffic.Frame) { f.Fragment = 200 }, func(f *traffic.Frame) { f.VLANs = []uint16{1, 2} },
		func(f *traffic.Frame) {
			f.Src, f.Dst = netip.MustParseAddrPort("[fd00::1]:1"), netip.MustParseAddrPort("[fd00::2]:2")
		},
	} {
		for _, b := range frame(f, change) {
			f.Add(b)
		}
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		p := Ethernet(b)
		if (p.FlowType != "") != p.Src.IsValid() || p.FlowType != "" && (p.Src.Addr().Is4() != strings.HasSuffix(p.FlowType, "4") || p.Class == "") {
			t.Errorf("%x: %+v", b, p)
		}
	})
}

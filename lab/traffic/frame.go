package traffic

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
)

// Encap is how a frame's packet is wrapped.
type Encap string

// The encapsulations that can be built.
const (
	Plain Encap = ""
	VXLAN Encap = "vxlan" // Ethernet in UDP port 4789
	GRE   Encap = "gre"   // IP in IP protocol 47
	IPIP  Encap = "ipip"  // IP in IP: protocol 4, or 41 for IPv6 inside
	PPPoE Encap = "pppoe" // IP in a PPPoE session
)

// Frame describes the Ethernet frames of one flow; Frames are for packet
// sockets and taps, which need no socket on the way.
type Frame struct {
	SrcMAC, DstMAC net.HardwareAddr
	VLANs          []uint16 // outermost first
	Src, Dst       netip.AddrPort
	TCP            bool // a TCP data segment of no connection, else UDP
	TTL            uint8
	Size           int // payload bytes

	Encap              Encap
	OuterSrc, OuterDst netip.Addr // of VXLAN, GRE and IPIP; IPv4 or IPv6
	ID                 uint32     // VXLAN network, GRE key (0 is none) or PPPoE session
	// Fragment splits the packet (the inner one, not the wrapping) into IP
	// fragments of at most that many payload bytes, a multiple of 8; 0 does not.
	Fragment int
}

// Template is a Frame built once and stamped for each packet sent.
type Template struct {
	Frames [][]byte // one, or the fragments in order
	header int      // offset of the Header in Frames[0]
	sum    int      // offset of the UDP or TCP checksum in Frames[0]
	base   uint32   // that checksum's sum without the Header
	udp    bool
	ip     int // offset of the IP header in each of Frames, if they are fragments
}

// Build makes a template.
func (f Frame) Build() (*Template, error) {
	if err := f.check(); err != nil {
		return nil, fmt.Errorf("build frame: %w", err)
	}
	payload := make([]byte, f.Size)
	Header{Size: uint32(f.Size)}.put(payload)
	network, transport, err := f.inner()
	if err != nil {
		return nil, fmt.Errorf("build frame: %w", err)
	}
	segment, err := serialize(transport, gopacket.Payload(payload))
	if err != nil {
		return nil, fmt.Errorf("build frame: %w", err)
	}
	headerSize := len(segment) - f.Size
	t := &Template{udp: !f.TCP}
	packets, err := f.packets(network, segment)
	if err != nil {
		return nil, fmt.Errorf("build frame: %w", err)
	}
	for _, p := range packets {
		frame, err := f.wrap(p)
		if err != nil {
			return nil, fmt.Errorf("build frame: %w", err)
		}
		t.Frames = append(t.Frames, frame)
	}
	// Everything up to the segment has a fixed length: count from the end.
	inFirst := len(packets[0]) - ipHeaderSize(packets[0], f.Fragment > 0)
	start := len(t.Frames[0]) - inFirst
	if f.Fragment > 0 {
		t.ip = len(t.Frames[0]) - len(packets[0])
	}
	t.header = start + headerSize
	if f.TCP {
		t.sum = start + 16
	} else {
		t.sum = start + 6
	}
	// The sum that is there covers a Header of known content: take that out.
	// (RFC 1624: the one's complement sum is linear.)
	b := t.Frames[0]
	t.base = uint32(^binary.BigEndian.Uint16(b[t.sum:])) + negate(wordSum(b[t.header:t.header+HeaderSize]))
	return t, nil
}

func (f Frame) check() error {
	switch {
	case len(f.SrcMAC) != 6 || len(f.DstMAC) != 6:
		return errors.New("needs the MAC addresses of both ends")
	case !f.Src.IsValid() || !f.Dst.IsValid() || f.Src.Addr().Is4() != f.Dst.Addr().Is4():
		return fmt.Errorf("from %v to %v: want two addresses of one family", f.Src, f.Dst)
	case f.Size < HeaderSize || f.Size > 9000:
		return fmt.Errorf("payload of %d bytes, want %d…9000", f.Size, HeaderSize)
	case f.Fragment%8 != 0 || f.Fragment < 0 || f.Fragment > 0 && f.Fragment < HeaderSize+24:
		return fmt.Errorf("fragments of %d bytes, want a multiple of 8, at least %d", f.Fragment, HeaderSize+24)
	case len(f.VLANs) > 2:
		return fmt.Errorf("%d VLAN tags, want at most 2", len(f.VLANs))
	}
	switch f.Encap {
	case Plain, PPPoE:
	case VXLAN, GRE, IPIP:
		if !f.OuterSrc.IsValid() || !f.OuterDst.IsValid() || f.OuterSrc.Is4() != f.OuterDst.Is4() {
			return fmt.Errorf("%s from %v to %v: want two outer addresses of one family", f.Encap, f.OuterSrc, f.OuterDst)
		}
	default:
		return fmt.Errorf("encapsulation %q: want vxlan, gre, ipip or pppoe", f.Encap)
	}
	return nil
}

// inner makes the packet's own network and transport layer.
func (f Frame) inner() (gopacket.SerializableLayer, gopacket.SerializableLayer, error) {
	proto := layers.IPProtocolUDP
	if f.TCP {
		proto = layers.IPProtocolTCP
	}
	network := f.ip(f.Src.Addr(), f.Dst.Addr(), proto)
	if f.TCP {
		tcp := &layers.TCP{SrcPort: layers.TCPPort(f.Src.Port()), DstPort: layers.TCPPort(f.Dst.Port()), Seq: 1, Ack: 1, PSH: true, ACK: true, Window: 65535}
		return network, tcp, tcp.SetNetworkLayerForChecksum(network.(gopacket.NetworkLayer))
	}
	udp := &layers.UDP{SrcPort: layers.UDPPort(f.Src.Port()), DstPort: layers.UDPPort(f.Dst.Port())}
	return network, udp, udp.SetNetworkLayerForChecksum(network.(gopacket.NetworkLayer))
}

func (f Frame) ip(src, dst netip.Addr, proto layers.IPProtocol) gopacket.SerializableLayer {
	ttl := f.TTL
	if ttl == 0 {
		ttl = 64
	}
	if src.Is4() {
		return &layers.IPv4{Version: 4, IHL: 5, TTL: ttl, Protocol: proto, SrcIP: src.AsSlice(), DstIP: dst.AsSlice()}
	}
	return &layers.IPv6{Version: 6, HopLimit: ttl, NextHeader: proto, SrcIP: src.AsSlice(), DstIP: dst.AsSlice()}
}

// packets puts the segment into one IP packet or into fragments.
func (f Frame) packets(network gopacket.SerializableLayer, segment []byte) ([][]byte, error) {
	if f.Fragment == 0 {
		p, err := serialize(network, gopacket.Payload(segment))
		return [][]byte{p}, err
	}
	var out [][]byte
	for off := 0; off < len(segment); off += f.Fragment {
		part := segment[off:min(off+f.Fragment, len(segment))]
		more := off+f.Fragment < len(segment)
		var p []byte
		var err error
		switch ip := network.(type) {
		case *layers.IPv4:
			frag := *ip
			frag.FragOffset, frag.Id = uint16(off/8), 1
			if more {
				frag.Flags = layers.IPv4MoreFragments
			}
			p, err = serialize(&frag, gopacket.Payload(part))
		case *layers.IPv6:
			// gopacket cannot serialise a fragment header (RFC 8200, 4.5).
			frag := *ip
			frag.NextHeader = layers.IPProtocolIPv6Fragment
			ext := make([]byte, 8, 8+len(part))
			ext[0] = byte(ip.NextHeader)
			word := uint16(off) // in units of 8 bytes, shifted by 3: the same number
			if more {
				word |= 1
			}
			binary.BigEndian.PutUint16(ext[2:], word)
			binary.BigEndian.PutUint32(ext[4:], 1)
			p, err = serialize(&frag, gopacket.Payload(append(ext, part...)))
		}
		if err != nil {
			return nil, err
		}
		out = append(out, p)
	}
	return out, nil
}

// ipHeaderSize is the length of the headers before the segment.
func ipHeaderSize(packet []byte, fragment bool) int {
	switch {
	case packet[0]>>4 == 4:
		return 20
	case fragment:
		return 48
	default:
		return 40
	}
}

// wrap puts an IP packet into its encapsulation and an Ethernet frame.
func (f Frame) wrap(packet []byte) ([]byte, error) {
	inner4 := packet[0]>>4 == 4
	etherType, ppp, protocol := layers.EthernetTypeIPv6, layers.PPPTypeIPv6, layers.IPProtocolIPv6
	if inner4 {
		etherType, ppp, protocol = layers.EthernetTypeIPv4, layers.PPPTypeIPv4, layers.IPProtocolIPv4
	}
	outerType := layers.EthernetTypeIPv6
	if f.OuterSrc.Is4() {
		outerType = layers.EthernetTypeIPv4
	}
	var stack []gopacket.SerializableLayer
	switch f.Encap {
	case Plain:
		stack = f.ethernet(etherType)
	case PPPoE:
		stack = append(f.ethernet(layers.EthernetTypePPPoESession),
			&layers.PPPoE{Version: 1, Type: 1, SessionId: uint16(f.ID), Length: uint16(len(packet) + 2)}, &layers.PPP{PPPType: ppp})
	case IPIP:
		stack = append(f.ethernet(outerType), f.ip(f.OuterSrc, f.OuterDst, protocol))
	case GRE:
		gre := &layers.GRE{Protocol: etherType, KeyPresent: f.ID != 0, Key: f.ID}
		stack = append(f.ethernet(outerType), f.ip(f.OuterSrc, f.OuterDst, layers.IPProtocolGRE), gre)
	case VXLAN:
		outer := f.ip(f.OuterSrc, f.OuterDst, layers.IPProtocolUDP)
		// The source port is the flow's entropy (RFC 7348, 5); any mix of the
		// inner ports does.
		udp := &layers.UDP{SrcPort: layers.UDPPort(49152 | (f.Src.Port()^f.Dst.Port()*31)&0x3fff), DstPort: 4789}
		if err := udp.SetNetworkLayerForChecksum(outer.(gopacket.NetworkLayer)); err != nil {
			return nil, err
		}
		stack = append(f.ethernet(outerType), outer, udp, &layers.VXLAN{ValidIDFlag: true, VNI: f.ID},
			&layers.Ethernet{SrcMAC: f.SrcMAC, DstMAC: f.DstMAC, EthernetType: etherType})
	}
	frame, err := serialize(append(stack, gopacket.Payload(packet))...)
	if err == nil && f.Encap == VXLAN {
		// A stamp changes the inner packet: no outer checksum (RFC 7348, 4.1).
		off := len(frame) - len(packet) - 14 - 8 - 2
		frame[off], frame[off+1] = 0, 0
	}
	return frame, err
}

func (f Frame) ethernet(inner layers.EthernetType) []gopacket.SerializableLayer {
	typ := inner
	if len(f.VLANs) > 0 {
		typ = layers.EthernetTypeDot1Q
	}
	if len(f.VLANs) == 2 {
		typ = layers.EthernetTypeQinQ
	}
	out := []gopacket.SerializableLayer{&layers.Ethernet{SrcMAC: f.SrcMAC, DstMAC: f.DstMAC, EthernetType: typ}}
	for i, id := range f.VLANs {
		typ = layers.EthernetTypeDot1Q
		if i == len(f.VLANs)-1 {
			typ = inner
		}
		out = append(out, &layers.Dot1Q{VLANIdentifier: id, Type: typ})
	}
	return out
}

func serialize(l ...gopacket.SerializableLayer) ([]byte, error) {
	buf := gopacket.NewSerializeBuffer()
	if err := gopacket.SerializeLayers(buf, gopacket.SerializeOptions{FixLengths: true, ComputeChecksums: true}, l...); err != nil {
		return nil, err
	}
	return buf.Bytes(), nil
}

// Stamp writes h into the frame and corrects the checksum. Fragments get an IP
// identification of their own for each packet.
func (t *Template) Stamp(h Header) {
	b := t.Frames[0]
	h.put(b[t.header:])
	sum := ^fold(t.base + wordSum(b[t.header:t.header+HeaderSize]))
	if sum == 0 && t.udp {
		sum = 0xffff // zero would mean no checksum (RFC 768)
	}
	binary.BigEndian.PutUint16(b[t.sum:], sum)
	if t.ip == 0 {
		return
	}
	id := uint32(h.Seq)*1021 + h.Flow // 1021: prime, so that flows share few of the 2^16
	for _, frame := range t.Frames {
		ip := frame[t.ip:]
		if ip[0]>>4 == 6 {
			binary.BigEndian.PutUint32(ip[44:], id)
			continue
		}
		binary.BigEndian.PutUint16(ip[4:], uint16(id))
		binary.BigEndian.PutUint16(ip[10:], 0)
		binary.BigEndian.PutUint16(ip[10:], ^fold(wordSum(ip[:20])))
	}
}

// wordSum is the one's complement sum of big-endian words, folded.
func wordSum(b []byte) uint32 {
	var s uint32
	for i := 0; i+1 < len(b); i += 2 {
		s += uint32(binary.BigEndian.Uint16(b[i:]))
	}
	return uint32(fold(s))
}

func negate(s uint32) uint32 { return uint32(^fold(s)) }

func fold(s uint32) uint16 {
	for s > 0xffff {
		s = s>>16 + s&0xffff
	}
	return uint16(s)
}

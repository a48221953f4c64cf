package capture

import (
	"encoding/binary"
	"net/netip"
	"strconv"
)

// Packet is what the headers tell.
type Packet struct {
	// Class is "tcp4", "udp4", "tcp6", "udp6", "ip4", "ip6", "fragment", "gre", "vxlan", "geneve",
	// "ipip", "pppoe", "other" (not IP), or "" where the headers are cut off or contradict themselves.
	Class string
	VLAN  bool
	// FlowType is the name ethtool -n has for its hash fields: "tcp4", "udp4", "sctp4", "ip4" and the same of
	// 6; "" where there is nothing to hash.
	FlowType string
	Protocol uint8 // of IP, the last one of a chain
	// Src and Dst are the outermost IP header's; ports 0 where there are none.
	Src, Dst netip.AddrPort
}

// EtherTypes and protocols, of the IANA's registries.
const (
	etherIPv4  = 0x0800
	etherIPv6  = 0x86dd
	etherVLAN  = 0x8100
	etherQinQ  = 0x88a8
	etherPPPoE = 0x8864

	hopByHop    = 0
	ipip        = 4
	tcp         = 6
	udp         = 17
	ipv6        = 41
	routing     = 43
	fragment    = 44
	gre         = 47
	auth        = 51
	destOptions = 60
	sctp        = 132
	mobility    = 135

	vxlanPort, oldVXLANPort, genevePort = 4789, 8472, 6081
)

// Ethernet says what a frame is.
func Ethernet(frame []byte) Packet {
	if len(frame) < 14 {
		return Packet{}
	}
	return Network(binary.BigEndian.Uint16(frame[12:]), frame[14:])
}

// Network says what a packet of an EtherType is.
func Network(etherType uint16, b []byte) Packet {
	var p Packet
	for range 2 {
		if etherType != etherVLAN && etherType != etherQinQ {
			break
		}
		if len(b) < 4 {
			return Packet{VLAN: p.VLAN}
		}
		etherType, b, p.VLAN = binary.BigEndian.Uint16(b[2:]), b[4:], true
	}
	ok := true
	switch etherType {
	case etherIPv4:
		ok = p.ipv4(b)
	case etherIPv6:
		ok = p.ipv6(b)
	case etherPPPoE:
		p.Class = "pppoe"
	default:
		p.Class = "other"
	}
	if !ok {
		return Packet{VLAN: p.VLAN}
	}
	return p
}

func (p *Packet) ipv4(b []byte) bool {
	if len(b) < 20 || b[0]>>4 != 4 || b[0]&15 < 5 {
		return false
	}
	p.Protocol = b[9]
	p.Src = netip.AddrPortFrom(netip.AddrFrom4([4]byte(b[12:16])), 0)
	p.Dst = netip.AddrPortFrom(netip.AddrFrom4([4]byte(b[16:20])), 0)
	if binary.BigEndian.Uint16(b[6:])&0x3fff != 0 { // more fragments, or an offset
		p.Class, p.FlowType = "fragment", "ip4"
		return true
	}
	return p.transport(b, int(b[0]&15)*4, "4")
}

func (p *Packet) ipv6(b []byte) bool {
	if len(b) < 40 || b[0]>>4 != 6 {
		return false
	}
	p.Src = netip.AddrPortFrom(netip.AddrFrom16([16]byte(b[8:24])), 0)
	p.Dst = netip.AddrPortFrom(netip.AddrFrom16([16]byte(b[24:40])), 0)
	next, off := b[6], 40
	for range 4 { // as many as spread.bpf.c follows
		if next != hopByHop && next != routing && next != destOptions && next != mobility && next != auth {
			break
		}
		if len(b) < off+2 {
			return false
		}
		size := (int(b[off+1]) + 1) * 8
		if next == auth {
			size = (int(b[off+1]) + 2) * 4
		}
		next, off = b[off], off+size
	}
	p.Protocol = next
	if next == fragment {
		if len(b) < off+2 {
			return false
		}
		p.Protocol, p.Class, p.FlowType = b[off], "fragment", "ip6"
		return true
	}
	return p.transport(b, off, "6")
}

func (p *Packet) transport(b []byte, off int, family string) bool {
	p.Class, p.FlowType = "ip"+family, "ip"+family
	switch p.Protocol {
	case tcp:
		p.Class, p.FlowType = "tcp"+family, "tcp"+family
	case udp:
		p.Class, p.FlowType = "udp"+family, "udp"+family
	case sctp:
		p.FlowType = "sctp" + family
	case gre:
		p.Class = "gre"
		return true
	case ipip, ipv6:
		p.Class = "ipip"
		return true
	default:
		return true
	}
	if len(b) < off+4 {
		return false
	}
	src, dst := binary.BigEndian.Uint16(b[off:]), binary.BigEndian.Uint16(b[off+2:])
	p.Src, p.Dst = netip.AddrPortFrom(p.Src.Addr(), src), netip.AddrPortFrom(p.Dst.Addr(), dst)
	if p.Protocol == udp {
		switch dst {
		case vxlanPort, oldVXLANPort:
			p.Class = "vxlan"
		case genevePort:
			p.Class = "geneve"
		}
	}
	return true
}

// ProtocolName is the usual name of a protocol of IP, or its number.
func ProtocolName(p uint8) string {
	switch p {
	case 1:
		return "icmp"
	case 4:
		return "ipip"
	case 6:
		return "tcp"
	case 17:
		return "udp"
	case 41:
		return "ip6ip"
	case 47:
		return "gre"
	case 50:
		return "esp"
	case 51:
		return "ah"
	case 58:
		return "icmp6"
	case 132:
		return "sctp"
	}
	return strconv.Itoa(int(p))
}

package ethtool

import (
	"encoding/binary"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// Ntuple rules are ioctl only: struct ethtool_rx_flow_spec of linux/ethtool.h within
// struct ethtool_rxnfc.
const (
	getRuleCount = 0x2e // ETHTOOL_GRXCLSRLCNT
	getRule      = 0x2f // ETHTOOL_GRXCLSRULE
	getRules     = 0x30 // ETHTOOL_GRXCLSRLALL
	deleteRule   = 0x31 // ETHTOOL_SRXCLSRLDEL
	insertRule   = 0x32 // ETHTOOL_SRXCLSRLINS

	flowExt    = 0x80000000 // FLOW_EXT: VLAN and user data are valid
	flowMACExt = 0x40000000 // FLOW_MAC_EXT: the destination MAC is
	flowMask   = 0x1fffffff
	discard    = ^uint64(0)   // RX_CLS_FLOW_DISC
	specAt     = 16           // of the rule in ethtool_rxnfc
	valueAt    = specAt + 4   // union of 52 bytes
	extAt      = valueAt + 52 // struct ethtool_flow_ext, 20 bytes
	maskAt     = extAt + 20   // the same again for the mask
	maskExtAt  = maskAt + 52  //
	cookieAt   = specAt + 152 // 64 bits: ring, VF in bits 32–39
	locationAt = cookieAt + 8 //
	countAt    = specAt + 168 // rule_cnt or rss_context
	maxRules   = 1 << 16      // bounds what is believed of a driver
)

// field is one thing a rule can match: its place in the value (and mask) union or, with
// ext, in the extension.
type field struct {
	name string
	at   int
	size int
	form form
	ext  uint32 // flag that makes it valid, 0 for fields of the union
}

type form uint8

const (
	decimal form = iota
	hexadecimal
	address // IPv4 or IPv6
	mac
)

var extFields = []field{
	{"dst-mac", 2, 6, mac, flowMACExt},
	{"vlan-etype", 8, 2, hexadecimal, flowExt},
	{"vlan", 10, 2, decimal, flowExt},
	{"user-def", 12, 8, hexadecimal, flowExt},
}

// ruleFlow is a flow type of rules: struct ethtool_{tcpip4,ah_espip4,usrip4,tcpip6,
// usrip6}_spec and struct ethhdr.
type ruleFlow struct {
	name   string
	no     uint32
	fields []field
}

var (
	ports4 = []field{{"src-ip", 0, 4, address, 0}, {"dst-ip", 4, 4, address, 0}, {"src-port", 8, 2, decimal, 0}, {"dst-port", 10, 2, decimal, 0}, {"tos", 12, 1, decimal, 0}}
	spi4   = []field{{"src-ip", 0, 4, address, 0}, {"dst-ip", 4, 4, address, 0}, {"spi", 8, 4, hexadecimal, 0}, {"tos", 12, 1, decimal, 0}}
	user4  = []field{{"src-ip", 0, 4, address, 0}, {"dst-ip", 4, 4, address, 0}, {"l4data", 8, 4, hexadecimal, 0}, {"tos", 12, 1, decimal, 0}, {"l4proto", 14, 1, decimal, 0}}
	ports6 = []field{{"src-ip", 0, 16, address, 0}, {"dst-ip", 16, 16, address, 0}, {"src-port", 32, 2, decimal, 0}, {"dst-port", 34, 2, decimal, 0}, {"tclass", 36, 1, decimal, 0}}
	spi6   = []field{{"src-ip", 0, 16, address, 0}, {"dst-ip", 16, 16, address, 0}, {"spi", 32, 4, hexadecimal, 0}, {"tclass", 36, 1, decimal, 0}}
	user6  = []field{{"src-ip", 0, 16, address, 0}, {"dst-ip", 16, 16, address, 0}, {"l4data", 32, 4, hexadecimal, 0}, {"tclass", 36, 1, decimal, 0}, {"l4proto", 37, 1, decimal, 0}}
	ether  = []field{{"dst", 0, 6, mac, 0}, {"src", 6, 6, mac, 0}, {"proto", 12, 2, hexadecimal, 0}}
)

var ruleFlows = []ruleFlow{
	{"tcp4", 0x01, ports4}, {"udp4", 0x02, ports4}, {"sctp4", 0x03, ports4},
	{"ah4", 0x09, spi4}, {"esp4", 0x0a, spi4}, {"ip4", 0x0d, user4},
	{"tcp6", 0x05, ports6}, {"udp6", 0x06, ports6}, {"sctp6", 0x07, ports6},
	{"ah6", 0x0b, spi6}, {"esp6", 0x0c, spi6}, {"ip6", 0x0e, user6},
	{"ether", 0x12, ether},
}

func ruleFlowOf(match func(ruleFlow) bool) (ruleFlow, bool) {
	i := slices.IndexFunc(ruleFlows, match)
	if i < 0 {
		return ruleFlow{}, false
	}
	return ruleFlows[i], true
}

// print is a field's text; it is in network byte order.
func (f field) print(b []byte) string {
	switch f.form {
	case address:
		a, _ := netip.AddrFromSlice(b)
		return a.String()
	case mac:
		return fmt.Sprintf("%02x:%02x:%02x:%02x:%02x:%02x", b[0], b[1], b[2], b[3], b[4], b[5])
	case hexadecimal:
		return fmt.Sprintf("0x%x", number(b))
	default:
		return strconv.FormatUint(number(b), 10)
	}
}

func number(b []byte) uint64 {
	var n uint64
	for _, c := range b {
		n = n<<8 | uint64(c)
	}
	return n
}

// parse stores a text in b.
func (f field) parse(s string, b []byte) error {
	switch f.form {
	case address:
		a, err := netip.ParseAddr(s)
		if err != nil || len(a.AsSlice()) != f.size || a.Zone() != "" {
			return fmt.Errorf("%s %q is no address of this flow type: %w", f.name, s, ErrInvalid)
		}
		copy(b, a.AsSlice())
	case mac:
		parts := strings.Split(s, ":")
		if len(parts) != 6 {
			return fmt.Errorf("%s %q is no MAC address: %w", f.name, s, ErrInvalid)
		}
		for i, p := range parts {
			n, err := strconv.ParseUint(p, 16, 8)
			if err != nil {
				return fmt.Errorf("%s %q is no MAC address: %w", f.name, s, ErrInvalid)
			}
			b[i] = byte(n)
		}
	default:
		n, err := strconv.ParseUint(s, 0, 8*f.size)
		if err != nil {
			return fmt.Errorf("%s %q is no number of %d bytes: %w", f.name, s, f.size, ErrInvalid)
		}
		for i := range f.size {
			b[i] = byte(n >> (8 * (f.size - 1 - i)))
		}
	}
	return nil
}

// InvertMask is the complement of a mask, in the notation of the field called name:
// Rule's masks have the bits that are compared, ethtool(8)'s m those that are not.
func InvertMask(name, mask string) string {
	for _, rf := range ruleFlows {
		for _, f := range slices.Concat(rf.fields, extFields) {
			b := make([]byte, f.size)
			if f.name != name || f.parse(mask, b) != nil {
				continue
			}
			for i := range b {
				b[i] = ^b[i]
			}
			return f.print(b)
		}
	}
	return mask
}

// parseRule reads struct ethtool_rxnfc with a rule. A flow type or a masked byte that is
// not in the tables above is kept as hexadecimal under "flow-N" and "raw", so that a rule is
// never taken for a simpler one.
func parseRule(b []byte) (Rule, error) {
	if len(b) < rxnfcSize {
		return Rule{}, fmt.Errorf("get rule: %w: %d bytes", ErrMalformed, len(b))
	}
	flow := binary.NativeEndian.Uint32(b[specAt:])
	r := Rule{Location: binary.NativeEndian.Uint32(b[locationAt:]), Match: map[string]string{}}
	rf, ok := ruleFlowOf(func(x ruleFlow) bool { return x.no == flow&flowMask })
	r.Flow = rf.name
	if !ok {
		r.Flow = fmt.Sprintf("flow-%d", flow&flowMask)
	}
	rest := slices.Clone(b[maskAt : maskAt+52])
	for _, f := range rf.fields {
		r.match(f, b[valueAt+f.at:][:f.size], b[maskAt+f.at:][:f.size])
		clear(rest[f.at : f.at+f.size])
	}
	if rf.name == "ip4" && rest[13] == 0xff && b[valueAt+13] == 1 {
		rest[13] = 0 // ip_ver = ETH_RX_NFC_IP4, which is all it can be
	}
	if slices.ContainsFunc(rest, func(c byte) bool { return c != 0 }) {
		r.Match["raw"] = fmt.Sprintf("%x/%x", b[valueAt:valueAt+52], b[maskAt:maskAt+52])
	}
	for _, f := range extFields {
		if flow&f.ext != 0 {
			r.match(f, b[extAt+f.at:][:f.size], b[maskExtAt+f.at:][:f.size])
		}
	}
	switch cookie := binary.NativeEndian.Uint64(b[cookieAt:]); cookie {
	case discard:
		r.Queue = -1
	default:
		r.Queue = int(uint32(cookie))
		r.VF = uint32(cookie >> 32 & 0xff)
	}
	if flow&flowRSS != 0 {
		r.Context = binary.NativeEndian.Uint32(b[countAt:])
	}
	return r, nil
}

func (r *Rule) match(f field, value, mask []byte) {
	any, all := false, true
	for _, c := range mask {
		any = any || c != 0
		all = all && c == 0xff
	}
	switch {
	case all:
		r.Match[f.name] = f.print(value)
	case any:
		r.Match[f.name] = f.print(value) + "/" + f.print(mask)
	}
}

// encode builds the request that inserts r.
func (r Rule) encode() ([]byte, error) {
	rf, ok := ruleFlowOf(func(x ruleFlow) bool { return x.name == r.Flow })
	if !ok {
		return nil, fmt.Errorf("flow type %q: %w", r.Flow, ErrInvalid)
	}
	b := make([]byte, rxnfcSize)
	putWord(b, 0, insertRule)
	flow := rf.no
	for _, name := range slices.Sorted(maps.Keys(r.Match)) {
		f, value, mask, err := place(rf, name, b)
		if err != nil {
			return nil, err
		}
		flow |= f.ext
		v, m, masked := strings.Cut(r.Match[name], "/")
		if err := f.parse(v, value); err != nil {
			return nil, err
		}
		if !masked {
			for i := range mask {
				mask[i] = 0xff
			}
		} else if err := f.parse(m, mask); err != nil {
			return nil, err
		}
	}
	if rf.name == "ip4" { // ip_ver has to be ETH_RX_NFC_IP4
		b[valueAt+13] = 1
	}
	cookie := uint64(uint32(r.Queue)) | uint64(r.VF)<<32
	if r.Queue < 0 {
		cookie = discard
	}
	if r.Context != 0 {
		flow |= flowRSS
		binary.NativeEndian.PutUint32(b[countAt:], r.Context)
	}
	binary.NativeEndian.PutUint32(b[specAt:], flow)
	binary.NativeEndian.PutUint64(b[cookieAt:], cookie)
	binary.NativeEndian.PutUint32(b[locationAt:], r.Location)
	return b, nil
}

func place(rf ruleFlow, name string, b []byte) (f field, value, mask []byte, err error) {
	for _, f := range rf.fields {
		if f.name == name {
			return f, b[valueAt+f.at:][:f.size], b[maskAt+f.at:][:f.size], nil
		}
	}
	for _, f := range extFields {
		if f.name == name {
			return f, b[extAt+f.at:][:f.size], b[maskExtAt+f.at:][:f.size], nil
		}
	}
	return field{}, nil, nil, fmt.Errorf("%s cannot be matched for %s: %w", name, rf.name, ErrInvalid)
}

// Rules lists the rules, by location.
func (c *Client) Rules(dev string) ([]Rule, error) {
	b := make([]byte, rxnfcSize)
	putWord(b, 0, getRuleCount)
	if err := c.ioctl("count rules", dev, b); err != nil {
		return nil, err
	}
	n := binary.NativeEndian.Uint32(b[countAt:])
	if n == 0 {
		return nil, nil
	}
	if n > maxRules {
		return nil, fmt.Errorf("count rules of %s: %w: %d", dev, ErrMalformed, n)
	}
	all := make([]byte, rxnfcLocs+4*n+4)
	putWord(all, 0, getRules)
	binary.NativeEndian.PutUint32(all[countAt:], n)
	if err := c.ioctl("list rules", dev, all); err != nil {
		return nil, err
	}
	n = min(n, binary.NativeEndian.Uint32(all[countAt:]))
	out := make([]Rule, 0, n)
	for i := range n {
		one := make([]byte, rxnfcSize)
		putWord(one, 0, getRule)
		copy(one[locationAt:locationAt+4], all[rxnfcLocs+4*i:])
		if err := c.ioctl("get rule", dev, one); err != nil {
			return nil, err
		}
		r, err := parseRule(one)
		if err != nil {
			return nil, fmt.Errorf("list rules of %s: %w", dev, err)
		}
		out = append(out, r)
	}
	slices.SortFunc(out, func(a, b Rule) int { return int(int64(a.Location) - int64(b.Location)) })
	return out, nil
}

// InsertRule adds a rule at its location.
func (c *Client) InsertRule(dev string, r Rule) error {
	b, err := r.encode()
	if err != nil {
		return fmt.Errorf("insert rule of %s: %w", dev, err)
	}
	return c.ioctl("insert rule", dev, b)
}

// DeleteRule removes the rule at a location.
func (c *Client) DeleteRule(dev string, location uint32) error {
	b := make([]byte, rxnfcSize)
	putWord(b, 0, deleteRule)
	binary.NativeEndian.PutUint32(b[locationAt:], location)
	return c.ioctl("delete rule", dev, b)
}

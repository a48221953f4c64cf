package ethtool

import "strings"

// flow is a flow type of the hash field settings, in the order of ETHTOOL_A_FLOW_*
// (linux/ethtool_netlink_generated.h, 6.17), with its number for the ioctl
// (linux/ethtool.h) and ethtool(8)'s name.
type flow struct {
	name string
	nl   uint16
	no   uint32
}

var flows = [...]flow{
	{"ether", 1, 0x12},
	{"ip4", 2, 0x10}, {"ip6", 3, 0x11},
	{"tcp4", 4, 0x01}, {"tcp6", 5, 0x05},
	{"udp4", 6, 0x02}, {"udp6", 7, 0x06},
	{"sctp4", 8, 0x03}, {"sctp6", 9, 0x07},
	{"ah4", 10, 0x09}, {"ah6", 11, 0x0b},
	{"esp4", 12, 0x0a}, {"esp6", 13, 0x0c},
	{"ah-esp4", 14, 0x04}, {"ah-esp6", 15, 0x08},
	{"gtpu4", 16, 0x13}, {"gtpu6", 17, 0x14},
	{"gtpc4", 18, 0x15}, {"gtpc6", 19, 0x16},
	{"gtpc4t", 20, 0x17}, {"gtpc6t", 21, 0x18},
	{"gtpu4e", 22, 0x19}, {"gtpu6e", 23, 0x1a},
	{"gtpu4u", 24, 0x1b}, {"gtpu6u", 25, 0x1c},
	{"gtpu4d", 26, 0x1d}, {"gtpu6d", 27, 0x1e},
}

func flowNamed(name string) (flow, bool) {
	for _, f := range flows {
		if f.name == name {
			return f, true
		}
	}
	return flow{}, false
}

// IsFlow reports whether name is a flow type whose hash fields can be asked.
func IsFlow(name string) bool {
	_, ok := flowNamed(name)
	return ok
}

// Hash field bits (RXH_* of linux/ethtool.h) and ethtool(8)'s letters for them.
var hashLetters = [...]struct {
	bit    uint32
	letter byte
}{
	{1 << 1, 'm'},  // L2DA
	{1 << 2, 'v'},  // VLAN
	{1 << 3, 't'},  // L3_PROTO
	{1 << 4, 's'},  // IP_SRC
	{1 << 5, 'd'},  // IP_DST
	{1 << 6, 'f'},  // L4_B_0_1, source port
	{1 << 7, 'n'},  // L4_B_2_3, destination port
	{1 << 8, 'e'},  // GTP_TEID
	{1 << 9, 'l'},  // IP6_FL
	{1 << 31, 'r'}, // DISCARD
}

// hashText is the letters of a set of hash fields.
func hashText(bits uint32) string {
	var b strings.Builder
	for _, l := range hashLetters {
		if bits&l.bit != 0 {
			b.WriteByte(l.letter)
		}
	}
	return b.String()
}

func hashBits(text string) (uint32, bool) {
	var bits uint32
next:
	for i := range len(text) {
		for _, l := range hashLetters {
			if l.letter == text[i] {
				bits |= l.bit
				continue next
			}
		}
		return 0, false
	}
	return bits, true
}

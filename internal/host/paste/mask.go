package paste

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"net/netip"
	"regexp"
	"strings"
)

// Masker replaces IP addresses, MAC addresses and host names in texts by stand-ins: the same address
// by the same stand-in throughout, so that flows can still be told apart, in the documentation
// ranges of RFC 5737 and RFC 3849. Addresses that identify nobody (loopback, unspecified,
// masks, multicast groups below 224.0.1.0) stay. The zero Masker hides addresses only.
type Masker struct {
	// Hosts are names to hide, as `uname -n` and /etc/hostname tell them.
	Hosts []string
	// Key makes stand-ins that cannot be guessed back; the same key gives the same ones.
	Key []byte
}

// Candidates; what they match is looked at more closely.
var (
	macText  = regexp.MustCompile(`\b(?:[0-9A-Fa-f]{2}[:-]){5}[0-9A-Fa-f]{2}\b`)
	ipv4Text = regexp.MustCompile(`\b\d{1,3}(?:\.\d{1,3}){3}\b`)
	// At least two colons, and not a part of something longer such as a hash key.
	ipv6Text = regexp.MustCompile(`(?:[0-9A-Fa-f]{0,4}:){2,7}(?:[0-9A-Fa-f]{1,4}|:)?(?:(?:\d{1,3}\.){3}\d{1,3})?`)
)

// Mask returns text with its addresses and host names replaced.
func (m Masker) Mask(text []byte) []byte {
	var out strings.Builder
	for line := range strings.Lines(string(text)) {
		// Versions of four numbers look like addresses.
		if strings.Contains(line, "version") || strings.Contains(line, "firmware") {
			out.WriteString(line)
		} else {
			out.WriteString(m.line(line))
		}
	}
	return []byte(out.String())
}

func (m Masker) line(s string) string {
	s = replaceAlone(macText, s, ":-", m.mac)
	s = replaceAlone(ipv6Text, s, ":.", m.ip)
	s = replaceAlone(ipv4Text, s, ".", m.ip)
	for i, h := range m.Hosts {
		if h == "" || h == "localhost" {
			continue
		}
		s = replaceWord(s, h, fmt.Sprintf("host%d", i+1))
		if short, _, ok := strings.Cut(h, "."); ok && short != "" && short != "localhost" {
			s = replaceWord(s, short, fmt.Sprintf("host%d", i+1))
		}
	}
	return s
}

// replaceAlone replaces the matches that are not parts of longer runs of hexadecimal
// digits and the given separators (an RSS key is no list of MAC addresses).
func replaceAlone(re *regexp.Regexp, s, separators string, f func(string) string) string {
	joins := func(c byte) bool {
		return c >= '0' && c <= '9' || c|0x20 >= 'a' && c|0x20 <= 'z' || c == '_' || strings.IndexByte(separators, c) >= 0
	}
	var b strings.Builder
	at := 0
	for _, loc := range re.FindAllStringIndex(s, -1) {
		start, end := loc[0], loc[1]
		before := start > 0 && joins(s[start-1])
		// A full stop or colon may also end a sentence or label.
		behind := end < len(s) && joins(s[end]) && (strings.IndexByte(separators, s[end]) < 0 || end+1 < len(s) && joins(s[end+1]))
		if before || behind {
			continue
		}
		b.WriteString(s[at:start])
		b.WriteString(f(s[start:end]))
		at = end
	}
	b.WriteString(s[at:])
	return b.String()
}

func replaceWord(s, word, by string) string {
	re := regexp.MustCompile(`(?i)(^|[^0-9A-Za-z_.-])` + regexp.QuoteMeta(word) + `($|[^0-9A-Za-z_-])`)
	return re.ReplaceAllString(s, "${1}"+by+"${2}")
}

func (m Masker) digest(s string) uint64 {
	h := sha256.New()
	h.Write(m.Key)
	h.Write([]byte(s))
	return binary.BigEndian.Uint64(h.Sum(nil))
}

// mac keeps broadcast and all-zero, and the bits that make an address multicast.
func (m Masker) mac(s string) string {
	plain := strings.ToLower(strings.ReplaceAll(s, "-", ":"))
	if plain == "ff:ff:ff:ff:ff:ff" || plain == "00:00:00:00:00:00" || strings.HasPrefix(plain, "01:00:5e") || strings.HasPrefix(plain, "33:33") {
		return s
	}
	d := m.digest(plain)
	return fmt.Sprintf("02:00:%02x:%02x:%02x:%02x", byte(d>>24), byte(d>>16), byte(d>>8), byte(d))
}

func (m Masker) ip(s string) string {
	a, err := netip.ParseAddr(s)
	if err != nil || a.IsLoopback() || a.IsUnspecified() || a.IsLinkLocalMulticast() || isNetmask(a) {
		return s
	}
	d := m.digest(a.String())
	if a.Is4() {
		// 192.0.2.0/24, 198.51.100.0/24 and 203.0.113.0/24 would collide soon: 198.18.0.0/15,
		// set aside for benchmarks (RFC 2544), has room.
		return netip.AddrFrom4([4]byte{198, 18 + byte(d>>16&1), byte(d >> 8), byte(d)}).String()
	}
	b := [16]byte{0x20, 0x01, 0x0d, 0xb8}
	binary.BigEndian.PutUint64(b[8:], d)
	return netip.AddrFrom16(b).String()
}

// isNetmask reports whether an address is a run of ones and then zeros, or the reverse.
func isNetmask(a netip.Addr) bool {
	var n uint32
	if a.Is4() {
		b := a.As4()
		n = binary.BigEndian.Uint32(b[:])
		inv := ^n
		return inv&(inv+1) == 0 && n>>24 == 255 || n&(n+1) == 0 && n>>24 == 0
	}
	s := a.StringExpanded()
	return strings.Trim(s, "f0:") == "" && strings.HasPrefix(s, "ffff")
}

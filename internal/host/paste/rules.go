package paste

import (
	"strconv"
	"strings"

	"github.com/rxsteer/rxsteer/internal/ethtool"
)

// maxRules bounds the filters of one device.
const maxRules = 1 << 15

// Classification is `ethtool -n`: filters, and hash fields of the flow types
// that `ethtool -n eth0 rx-flow-hash udp4` was asked for, one answer after another.
type Classification struct {
	Rings int // "N RX rings available", 0 not told
	Rules []ethtool.Rule
	// Fields are letters in ethtool's order mvtsdfnelr by flow type ("udp4": "sdfn").
	Fields  map[string]string
	Refused *Refusal
}

// flowNames are what ethtool calls flow types in answers (rxclass.c, ethtool.c).
var flowNames = map[string]string{
	"TCP over IPV4": "tcp4", "UDP over IPV4": "udp4", "SCTP over IPV4": "sctp4", "IPSEC AH over IPV4": "ah4",
	"IPSEC ESP over IPV4": "esp4", "IPSEC AH/ESP over IPV4": "ah4", "TCP over IPV6": "tcp6", "UDP over IPV6": "udp6", "SCTP over IPV6": "sctp6",
	"IPSEC AH over IPV6": "ah6", "IPSEC ESP over IPV6": "esp6", "IPSEC AH/ESP over IPV6": "ah6",
	"IPV4": "ip4", "IPV6": "ip6", "RAW IPV4": "ip4", "RAW IPV6": "ip6", "RAW ETHERNET": "ether",
	"GTP-C over IPV4": "gtpc4", "GTP-C over IPV6": "gtpc6", "GTP-U over IPV4": "gtpu4", "GTP-U over IPV6": "gtpu6",
}

// hashLetters by the words of unparse_rxfhashopts in ethtool.c, in the letters' order.
var hashLetters = []struct{ text, letter string }{
	{"L2DA", "m"}, {"VLAN tag", "v"}, {"L3 proto", "t"}, {"IP SA", "s"}, {"IP DA", "d"},
	{"L4 bytes 0 & 1", "f"}, {"L4 bytes 2 & 3", "n"}, {"GTP TEID", "e"}, {"IPv6 Flow Label", "l"},
	{"All matching flows discarded on RX", "r"},
}

// matchNames are the fields of rxclass.c's answers by ethtool's options.
var matchNames = map[string]string{
	"Src IP addr": "src-ip", "Dest IP addr": "dst-ip", "Src port": "src-port", "Dest port": "dst-port",
	"TOS": "tos", "Traffic Class": "tclass", "Protocol": "l4proto", "SPI": "spi", "L4 bytes": "l4data",
	"Src MAC addr": "src", "Dest MAC addr": "dst", "Ethertype": "proto",
	"VLAN EtherType": "vlan-etype", "VLAN": "vlan", "User-defined": "user-def", "Dst MAC addr": "dst-mac",
}

// ParseClassification reads `ethtool -n`.
func ParseClassification(file string, text []byte) (*Classification, []error) {
	c := &Classification{Fields: map[string]string{}}
	l := newLines(file, text)
	flow := ""                  // of the hash fields being read
	var rule *ethtool.Rule      // being read
	var letters map[string]bool // of flow
	finish := func() {
		if flow != "" {
			s := ""
			for _, h := range hashLetters {
				if letters[h.letter] {
					s += h.letter
				}
			}
			c.Fields[flow] = s
		}
		flow, letters = "", nil
	}
	for {
		line, ok := l.next()
		if !ok {
			break
		}
		s := strings.TrimSpace(line)
		if s == "" {
			continue
		}
		if no := refusal(s); no != nil {
			c.Refused = no
			continue
		}
		if name, ok := strings.CutSuffix(s, "use these fields for computing Hash flow key:"); ok {
			finish()
			rule = nil
			name = strings.TrimSuffix(strings.TrimSuffix(strings.TrimSpace(name), "flows"), " ")
			if flow, ok = flowNames[strings.Replace(name, "IPv", "IPV", 1)]; !ok {
				l.errorf("flow type %s is not known", clip(name))
			}
			letters = map[string]bool{}
			continue
		}
		if flow != "" {
			found := s == "None" || strings.HasPrefix(s, "RSS Context")
			for _, h := range hashLetters {
				if strings.HasPrefix(s, h.text) {
					letters[h.letter], found = true, true
				}
			}
			if found {
				continue
			}
			finish()
		}
		if n, ok := strings.CutSuffix(s, " RX rings available"); ok {
			c.Rings, _ = strconv.Atoi(n)
			continue
		}
		if strings.HasPrefix(s, "Total ") || s == "Filter(s):" || strings.HasSuffix(s, "flows use these fields for computing Hash flow key:") {
			continue
		}
		key, value, ok := field(s)
		if key == "Filter" && ok {
			n, err := strconv.ParseUint(value, 10, 32)
			if err != nil || len(c.Rules) == maxRules {
				l.errorf("filter is %s", clip(value))
				rule = nil
				continue
			}
			c.Rules = append(c.Rules, ethtool.Rule{Location: uint32(n), Match: map[string]string{}})
			rule = &c.Rules[len(c.Rules)-1]
			continue
		}
		if rule == nil || !ok {
			l.errorf("not a line of ethtool -n: %s", clip(s))
			continue
		}
		ruleLine(l, rule, key, value)
	}
	finish()
	return c, l.errs
}

func ruleLine(l *lines, rule *ethtool.Rule, key, value string) {
	switch key {
	case "Rule Type":
		name := strings.ToUpper(value)
		for text, flow := range flowNames {
			if strings.ToUpper(text) == name {
				rule.Flow = flow
				return
			}
		}
		l.errorf("rule type %s is not known", clip(value))
	case "Action":
		switch {
		case value == "Drop":
			rule.Queue = -1
		case strings.HasPrefix(value, "Direct to queue "):
			n, err := strconv.Atoi(strings.TrimPrefix(value, "Direct to queue "))
			if err != nil {
				l.errorf("action is %s", clip(value))
			}
			rule.Queue = n
		case strings.HasPrefix(value, "Direct to VF "): // "Direct to VF 0 queue 2": VFs count from 0 here
			f := strings.Fields(strings.TrimPrefix(value, "Direct to VF "))
			if len(f) != 3 {
				l.errorf("action is %s", clip(value))
				return
			}
			vf, err1 := strconv.ParseUint(f[0], 10, 31)
			q, err2 := strconv.Atoi(f[2])
			if err1 != nil || err2 != nil {
				l.errorf("action is %s", clip(value))
				return
			}
			rule.VF, rule.Queue = uint32(vf)+1, q
		default:
			l.errorf("action is %s", clip(value))
		}
	case "RSS Context ID":
		n, err := strconv.ParseUint(value, 10, 32)
		if err != nil {
			l.errorf("RSS context is %s", clip(value))
			return
		}
		rule.Context = uint32(n)
	default:
		name, ok := matchNames[key]
		v, mask, masked := strings.Cut(value, " mask: ")
		if !ok || !masked {
			return // "IP Version", and what tools to come print
		}
		// Bits that are set in the printed mask are not compared.
		switch mask = strings.TrimSpace(mask); {
		case allZero(mask):
			rule.Match[name] = plain(name, v)
		case allOnes(mask):
		default:
			rule.Match[name] = plain(name, v) + "/" + ethtool.InvertMask(name, mask)
		}
	}
}

func allZero(mask string) bool {
	return mask != "" && strings.Trim(strings.TrimPrefix(mask, "0x"), "0.:") == ""
}

func allOnes(mask string) bool {
	return mask == "255.255.255.255" || mask != "" && strings.Trim(strings.TrimPrefix(strings.ToLower(mask), "0x"), "f:") == ""
}

// plain writes numbers that ethtool prints in hexadecimal as the options take them.
func plain(name, v string) string {
	if name == "tos" || name == "tclass" || name == "l4proto" {
		if n, err := strconv.ParseUint(v, 0, 32); err == nil {
			return strconv.FormatUint(n, 10)
		}
	}
	return v
}

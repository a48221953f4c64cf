package paste

import (
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/rxsteer/rxsteer/internal/cpuset"

	"github.com/rxsteer/rxsteer/internal/host/nic"
)

// Link is one interface of `ip -s link`, with or without -d.
type Link struct {
	Index  int
	Name   string
	Peer   string // what follows the @: the lower device of a VLAN, the peer of a veth
	Flags  []string
	MTU    int
	State  string // "UP", "DOWN", "UNKNOWN", …
	Master string
	// Type is the link type ("ether", "loopback"), Kind the word of -d ("vlan", "bond", "veth"), "" not told.
	Type, Kind string
	RX, TX     map[string]uint64 // counters by their column heads: bytes packets errors dropped missed mcast overrun carrier collsns
}

// Up reports whether the interface is up and has a carrier.
func (l *Link) Up() bool {
	return slices.Contains(l.Flags, "UP") && (l.State == "UP" || slices.Contains(l.Flags, "LOWER_UP"))
}

// maxLinks bounds the interfaces of one text.
const maxLinks = 1 << 13

// linkKinds are the words with which -d says what a virtual device is.
var linkKinds = []string{"bond", "bridge", "dummy", "ifb", "ipvlan", "macsec", "macvlan", "macvtap", "netkit", "team", "tun", "veth", "vlan", "vrf", "vxlan", "geneve", "gre", "gretap", "ipip", "sit", "wireguard", "dsa", "hsr", "netdevsim", "can", "ipoib"}

// ParseIPLink reads `ip -s link`.
func ParseIPLink(file string, text []byte) ([]Link, []error) {
	var out []Link
	l := newLines(file, text)
	var heads []string // of the counters on the next line
	var into map[string]uint64
	for {
		line, ok := l.next()
		if !ok {
			break
		}
		words := strings.Fields(line)
		if len(words) == 0 {
			continue
		}
		if heads != nil {
			for i, w := range words {
				n, ok := humanNumber(w)
				if i >= len(heads) || !ok {
					l.errorf("counter %d is %s", i+1, clip(w))
					break
				}
				into[heads[i]] = n
			}
			heads = nil
			continue
		}
		if line[0] >= '0' && line[0] <= '9' {
			if len(out) == maxLinks {
				l.errorf("more than %d interfaces", maxLinks)
				return out, l.errs
			}
			link, ok := linkHead(words)
			if !ok {
				l.errorf("not an interface: %s", clip(line))
				continue
			}
			out = append(out, link)
			continue
		}
		if len(out) == 0 {
			l.errorf("not a line of ip link: %s", clip(line))
			continue
		}
		link := &out[len(out)-1]
		switch {
		case strings.HasPrefix(words[0], "link/"):
			link.Type = strings.TrimPrefix(words[0], "link/")
		case words[0] == "RX:" || words[0] == "TX:":
			heads = words[1:]
			if into = link.RX; words[0] == "TX:" {
				into = link.TX
			}
		case len(words) > 1 && (words[0] == "RX" || words[0] == "TX") && words[1] == "errors:":
			heads, into = words[2:], map[string]uint64{}
		case link.Kind == "" && slices.Contains(linkKinds, words[0]):
			link.Kind = words[0]
		}
	}
	if len(out) == 0 {
		l.errorf("no interfaces")
	}
	return out, l.errs
}

// linkHead reads "2: eth0@if3: <FLAGS> mtu 1500 … state UP …".
func linkHead(words []string) (Link, bool) {
	k := Link{RX: map[string]uint64{}, TX: map[string]uint64{}}
	if len(words) < 3 {
		return k, false
	}
	index, err := strconv.Atoi(strings.TrimSuffix(words[0], ":"))
	name, ok := strings.CutSuffix(words[1], ":")
	k.Name, k.Peer, _ = strings.Cut(name, "@")
	if err != nil || index <= 0 || !ok || k.Name == "" || len(k.Name) > 15 || strings.Contains(k.Name, "/") {
		return k, false
	}
	k.Index = index
	if f, ok := strings.CutPrefix(words[2], "<"); ok {
		k.Flags = strings.Split(strings.TrimSuffix(f, ">"), ",")
	}
	for i := 3; i+1 < len(words); i += 2 {
		switch words[i] {
		case "mtu":
			k.MTU, _ = strconv.Atoi(words[i+1])
		case "state":
			k.State = words[i+1]
		case "master":
			k.Master = words[i+1]
		}
	}
	return k, true
}

// humanNumber reads a counter, also as `ip -h` shortens it ("1.2G").
func humanNumber(s string) (uint64, bool) {
	if n, err := strconv.ParseUint(s, 10, 64); err == nil {
		return n, true
	}
	if s == "" {
		return 0, false
	}
	scale := map[byte]float64{'k': 1e3, 'K': 1e3, 'M': 1e6, 'G': 1e9, 'T': 1e12}[s[len(s)-1]]
	f, err := strconv.ParseFloat(s[:len(s)-1], 64)
	if scale == 0 || err != nil || math.IsNaN(f) || f < 0 || f*scale > 1e18 {
		return 0, false
	}
	return uint64(f * scale), true
}

// IRQ is one line of proc_irq.txt.
type IRQ struct {
	IRQ    int
	Action string
	// Affinity is wanted, Effective in effect; Known says which of them the line tells.
	Affinity, Effective           cpuset.Set
	AffinityKnown, EffectiveKnown bool
}

// ParseIRQs reads proc_irq.txt: per vector its number, action (which may hold blanks),
// smp_affinity_list and effective_affinity_list, "-" where not known; a line with one list
// tells the wanted one. A file of smp_affinity masks instead is told by values that can be no lists.
func ParseIRQs(file string, text []byte) ([]IRQ, []error) {
	var out []IRQ
	l := newLines(file, text)
	parse := cpuset.ParseList
	if holdsMasks(text) {
		parse = cpuset.ParseMask
		l.errorf("the CPUs are masks (smp_affinity), not lists: read as such")
	}
	for {
		line, ok := l.next()
		if !ok {
			break
		}
		words := strings.Fields(line)
		if len(words) == 0 || words[0][0] == '#' {
			continue
		}
		n, err := strconv.Atoi(words[0])
		if err != nil || n < 0 || len(words) < 2 || len(out) == 1<<16 {
			l.errorf("not a vector: %s", clip(line))
			continue
		}
		var sets []cpuset.Set
		var known []bool
		rest := words[1:]
		for len(rest) > 1 && len(sets) < 2 {
			w := rest[len(rest)-1]
			s, err := parse(w)
			if w != "-" && err != nil {
				break
			}
			sets, known, rest = append(sets, s), append(known, w != "-"), rest[:len(rest)-1]
		}
		i := IRQ{IRQ: n, Action: strings.Join(rest, " ")}
		switch len(sets) {
		case 0:
			l.errorf("no CPU list: %s", clip(line))
		case 1:
			i.Affinity, i.AffinityKnown = sets[0], known[0]
		case 2:
			i.Affinity, i.AffinityKnown = sets[1], known[1]
			i.Effective, i.EffectiveKnown = sets[0], known[0]
		}
		out = append(out, i)
	}
	return out, l.errs
}

// holdsMasks reports whether the last words of lines are masks as the kernel prints them: hexadecimal digits, in
// groups of eight where there are several; and none is a range.
func holdsMasks(text []byte) bool {
	masks := false
	for line := range strings.Lines(string(text)) {
		words := strings.Fields(line)
		if len(words) > 0 && words[0][0] == '#' {
			continue
		}
		for i := len(words) - 1; i >= 2 && i >= len(words)-2; i-- {
			w := words[i]
			if w == "-" {
				continue
			}
			if strings.Trim(w, "0123456789abcdef,-") != "" {
				break
			}
			if strings.Contains(w, "-") {
				return false
			}
			// A list of single CPUs has no group of eight digits, and no letter.
			groups := strings.Split(w, ",")
			masks = masks || strings.ContainsAny(w, "abcdef") || len(groups[len(groups)-1]) == 8
		}
	}
	return masks
}

// QueueMask is one line of rps_cpus.txt or xps_cpus.txt.
type QueueMask struct {
	Device string // "" where the name has only the queue
	TX     bool
	Queue  int
	CPUs   cpuset.Set
}

// ParseQueueMasks reads rps_cpus.txt or xps_cpus.txt: per queue its name and a mask or list
// ("rx-0 00000000,0000000f", ".../eth0/queues/rx-0/rps_cpus:f", "rx-1 0-3"). Where a value
// could be either, it is what other lines show the file to hold, a mask (what the kernel
// prints) in the last resort.
func ParseQueueMasks(file string, text []byte) ([]QueueMask, []error) {
	type row struct {
		QueueMask
		line  int
		value string
	}
	var rows []row
	l := newLines(file, text)
	lists := false
	for {
		line, ok := l.next()
		if !ok {
			break
		}
		s := strings.TrimSpace(line)
		if s == "" || s[0] == '#' {
			continue
		}
		i := strings.LastIndexAny(s, " \t:=")
		if i < 0 {
			i = len(s)
		}
		q, ok := queueName(s[:i])
		if !ok || len(rows) == 1<<16 {
			l.errorf("not a queue: %s", clip(s))
			continue
		}
		value := strings.TrimLeft(s[i:], " \t:=")
		lists = lists || onlyList(value)
		rows = append(rows, row{q, l.n, value})
	}
	var out []QueueMask
	for _, r := range rows {
		parse := cpuset.ParseMask
		if lists {
			parse = cpuset.ParseList
		}
		set, err := parse(r.value)
		if err != nil {
			l.n = r.line
			l.errorf("%v", err)
			continue
		}
		r.CPUs = set
		out = append(out, r.QueueMask)
	}
	return out, l.errs
}

// onlyList reports whether a value cannot be a mask as the kernel prints it: groups but the
// first have eight digits.
func onlyList(s string) bool {
	groups := strings.Split(s, ",")
	for i, g := range groups {
		if strings.Contains(g, "-") || i > 0 && len(g) != 8 {
			return true
		}
	}
	return false
}

// queueName finds "rx-3" or "tx-3" in a path or name, and the interface before it.
func queueName(s string) (QueueMask, bool) {
	parts := strings.FieldsFunc(s, func(r rune) bool { return r == '/' || r == ' ' || r == '\t' || r == ':' })
	for i, p := range parts {
		dir, n, ok := strings.Cut(p, "-")
		if !ok || dir != "rx" && dir != "tx" {
			continue
		}
		q, ok := nic.QueueNumber(n)
		if !ok {
			continue
		}
		m := QueueMask{TX: dir == "tx", Queue: q}
		if i > 0 && parts[i-1] == "queues" {
			i--
		}
		if i > 0 && len(parts[i-1]) <= 15 {
			m.Device = parts[i-1]
		}
		return m, true
	}
	return QueueMask{}, false
}

// Event is a kernel message that concerns receive.
type Event struct {
	Line int
	Kind string // "affinity-broken", "nobody-cared", "tx-timeout", "link", "memory", "conntrack-full", "backlog", "rx-ring"
	Text string
}

// events are what to look for in a kernel log.
var events = []struct{ text, kind string }{
	{"Affinity broken due to vector space exhaustion", "affinity-broken"}, // arch/x86/kernel/apic/vector.c
	{"nobody cared", "nobody-cared"},                                      // kernel/irq/spurious.c
	{"NETDEV WATCHDOG", "tx-timeout"},                                     // net/sched/sch_generic.c
	{"transmit queue", "tx-timeout"},
	{"Link is Down", "link"}, {"Link is Up", "link"}, {"Link is up", "link"}, {"link becomes ready", "link"},
	{"page allocation failure", "memory"},
	{"table full, dropping packet", "conntrack-full"}, // net/netfilter/nf_conntrack_core.c
	{"possible SYN flooding", "backlog"},              // net/ipv4/tcp_input.c
	{"rx ring", "rx-ring"}, {"Rx ring", "rx-ring"}, {"RX ring", "rx-ring"}, {"out of memory", "memory"},
}

// maxEvents bounds what is kept of a kernel log.
const maxEvents = 1000

// ParseDmesg picks the lines of a kernel log that concern receive.
func ParseDmesg(text []byte) []Event {
	var out []Event
	l := newLines("", text)
	for len(out) < maxEvents {
		line, ok := l.next()
		if !ok {
			break
		}
		for _, e := range events {
			if strings.Contains(line, e.text) {
				out = append(out, Event{l.n, e.kind, strings.ToValidUTF8(line[:min(len(line), 512)], "\uFFFD")})
				break
			}
		}
	}
	return out
}

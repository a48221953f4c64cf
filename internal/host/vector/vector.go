// Package vector reads what the names of interrupt actions say: which device an
// interrupt belongs to, whether it serves receive, transmit, both or neither, and which queue.
//
// Every driver names its vectors its own way; all of them are rows of one table (see
// grammar). A name alone often says too little: a bare "eth0" is the only vector of one NIC and
// the link vector of another. Table therefore looks at all rows together. What is
// concluded rather than read is marked Inferred. The package refuses to read the host:
// package nic checks its answers against sysfs and netlink.
package vector

import (
	"slices"
	"strconv"
	"strings"
)

// None marks a queue index that is not known.
const None = -1

// Kind is what a vector serves.
type Kind string

const (
	RX      Kind = "rx"
	TX      Kind = "tx"
	TXRX    Kind = "txrx"    // both
	Control Kind = "control" // a vector of a NIC that serves no queue: link, mailbox, events, …
	Other   Kind = "other"   // not a NIC's, or not known
)

// Confidence is how sure a Vector is.
type Confidence string

const (
	Exact    Confidence = "exact"    // the name says it
	Inferred Confidence = "inferred" // concluded from other rows, from an order or a convention that has exceptions
	Unsure   Confidence = "none"     // the name says nothing on it
)

// Interface is what the caller knows of one network interface; all but Name may be zero.
type Interface struct {
	Name   string
	Driver string
	// Bus are the names of the devices it hangs on, as action names spell them: its own
	// ("0000:03:00.0", "virtio0", "30be0000.ethernet", "vif0") and, for USB, the
	// root hub's ("usb1").
	Bus []string
	// RX and TX are how many queues it has, 0 where not known.
	RX, TX int
}

// Vector is what an action name says.
type Vector struct {
	// Device is the interface; where the caller's interfaces do not tell it, the device
	// as the name spells it ("virtio0", "19000000.eth"), or "".
	Device string
	BDF    string // PCI address domain:bus:device.function, "" where not told
	Kind   Kind
	// RXQueue and TXQueue are the queues it serves, None where it serves none or they are
	// not known. They differ where one vector serves two (qlcnic's "eth0-tx-0-rx-3").
	RXQueue, TXQueue int
	Confidence       Confidence
}

// Queue is the index of the queue served: the receive queue's unless it serves transmit only.
func (v Vector) Queue() int {
	if v.RXQueue != None {
		return v.RXQueue
	}
	return v.TXQueue
}

// Parse reads one action name. With interfaces given, those in the name must be among
// them for the answer to be Exact; a name may be older than a rename, or belong to
// another network namespace, and is Inferred then. A bare interface name gives Other: only
// Table can tell more.
func Parse(action string, known []Interface) Vector {
	v, _ := newIndex(known).parse(action)
	return v
}

// index finds interfaces by what action names say.
type index struct {
	name map[string]*Interface
	bus  map[string]*Interface // nil where several hang on one device
	enic []*Interface          // whose names may be cut
}

func newIndex(known []Interface) *index {
	x := &index{name: make(map[string]*Interface, len(known)), bus: map[string]*Interface{}}
	for i := range known {
		k := &known[i]
		x.name[k.Name] = k
		for _, id := range k.Bus {
			if was, twice := x.bus[id]; twice && was != k {
				x.bus[id] = nil
			} else {
				x.bus[id] = k
			}
		}
		if k.Driver == "enic" {
			x.enic = append(x.enic, k)
		}
	}
	return x
}

// maxName bounds the work on a hostile name; drivers' buffers hold at most 80 bytes.
const maxName = 128

func (x *index) parse(action string) (Vector, *form) {
	none := Vector{Kind: Other, RXQueue: None, TXQueue: None, Confidence: Unsure}
	if len(action) > maxName {
		return none, nil
	}
	// First with the interfaces that exist, then with any name.
	for _, strict := range []bool{true, false} {
		if strict && len(x.name) == 0 {
			continue
		}
		for i := range grammar {
			f := &grammar[i]
			if f.length != 0 && len(action) != f.length {
				continue
			}
			m := matcher{form: f, known: x, strict: strict, n: None, t: None}
			if m.match(f.pattern, action) && (!f.only || m.iface != nil && slices.Contains(f.drivers, m.iface.Driver)) {
				return m.vector(), f
			}
		}
	}
	return none, nil
}

// matcher holds what one form matched.
type matcher struct {
	form   *form
	known  *index
	strict bool // {if} must be one of known

	device  string     // as the name spells it
	iface   *Interface // the known interface, if any
	cut     bool       // device is the truncated name of iface
	bdf     string
	n, t    int  // {n} and {t}
	foreign bool // {vif} is a backend's
}

// match reports whether s is pattern, all of it.
func (m *matcher) match(pattern, s string) bool {
	open := strings.IndexByte(pattern, '{')
	if open < 0 {
		return pattern == s
	}
	if !strings.HasPrefix(s, pattern[:open]) {
		return false
	}
	s, pattern = s[open:], pattern[open:]
	end := strings.IndexByte(pattern, '}')
	element, pattern := pattern[1:end], pattern[end+1:]
	// What follows the element literally is where it can end.
	literal := pattern
	if i := strings.IndexByte(pattern, '{'); i >= 0 {
		literal = pattern[:i]
	}
	for at := 1; at <= len(s); at++ {
		switch {
		case pattern == "":
			at = len(s)
		case literal != "":
			i := strings.Index(s[at:], literal)
			if i < 0 {
				return false
			}
			at += i
		}
		if m.take(element, s[:at]) && m.match(pattern, s[at:]) {
			return true
		}
	}
	return false
}

// take reports whether text can be the element, and notes it.
func (m *matcher) take(element, text string) bool {
	switch element {
	case "n":
		return number(text, &m.n)
	case "t":
		return number(text, &m.t)
	case "d":
		var any int
		return number(text, &any)
	case "w":
		return !strings.ContainsAny(text, " \t")
	case "bdf":
		if !isBDF(text) {
			return false
		}
		m.bdf = text
		m.bus(text)
		return true
	case "if":
		return m.interfaceName(text)
	case "virtio", "usb":
		digits, ok := strings.CutPrefix(text, element)
		var any int
		if !ok || !number(digits, &any) {
			return false
		}
	case "vif": // vif0 in a guest, vif3.0 in the driver domain
		digits, ok := strings.CutPrefix(text, "vif")
		a, b, dot := strings.Cut(digits, ".")
		var any int
		if !ok || !number(a, &any) || dot && !number(b, &any) {
			return false
		}
		m.foreign = dot
	case "addr": // a platform device of a devicetree: "30be0000.ethernet"
		a, b, ok := strings.Cut(text, ".")
		if !ok || !isHex(a) || !netdevWord(b) {
			return false
		}
	default:
		panic("vector grammar: unknown element " + element)
	}
	m.device = text
	m.bus(text)
	return true
}

// bus finds the one interface that hangs on a bus device.
func (m *matcher) bus(id string) {
	if m.iface = m.known.bus[id]; m.iface == nil {
		m.iface = m.known.name[id] // netback names the interface itself
	}
}

func (m *matcher) interfaceName(text string) bool {
	if len(text) > 15 || strings.ContainsAny(text, "/ \t:") || text[0]-'0' < 10 { // dev_valid_name
		return false
	}
	m.device, m.iface, m.cut = text, m.known.name[text], false
	if m.iface != nil {
		return true
	}
	if !m.strict {
		return !m.form.plain || wellKnown(text)
	}
	// enic prints "%.11s-rx-%u".
	if len(text) != 11 {
		return false
	}
	for _, k := range m.known.enic {
		if strings.HasPrefix(k.Name, text) {
			if m.iface != nil {
				return false
			}
			m.iface, m.cut = k, true
		}
	}
	return m.iface != nil
}

func (m *matcher) vector() Vector {
	f := m.form
	v := Vector{Device: m.device, BDF: m.bdf, Kind: f.kind, RXQueue: None, TXQueue: None, Confidence: f.sure}
	if v.Confidence == "" {
		v.Confidence = Exact
	}
	switch {
	case m.iface != nil:
		v.Device = m.iface.Name
		if m.cut {
			v.Confidence = Inferred
		}
		if f.sure == Inferred && slices.Contains(f.exactFor, m.iface.Driver) {
			v.Confidence = Exact
		}
	case len(m.known.name) > 0 && m.device != "" && v.Confidence == Exact && v.Kind != Control:
		v.Confidence = Inferred
	}
	if m.foreign { // netback names its vectors from the guest's point of view
		switch v.Kind {
		case RX:
			v.Kind = TX
		case TX:
			v.Kind = RX
		}
	}
	n := m.n
	switch {
	case f.zero:
		n = 0
	case n != None:
		n -= f.first
		if n < 0 {
			v.Kind, n = Control, None
		}
	}
	switch v.Kind {
	case RX:
		v.RXQueue = n
	case TX:
		v.TXQueue = n
	case TXRX:
		v.RXQueue, v.TXQueue = n, n
		if m.t != None {
			v.TXQueue = m.t
		}
	}
	if m.iface != nil && f.whole && v.Kind == Other { // a device with one vector for everything
		v.Kind, v.Confidence = TXRX, Inferred
		v.RXQueue, v.TXQueue = only(m.iface.RX), only(m.iface.TX)
	}
	return v
}

// only is the index of the queue of a device that has n, when that is one; n 0 is not known and
// taken as one.
func only(n int) int {
	if n <= 1 {
		return 0
	}
	return None
}

// number reads a queue or bus number.
func number(s string, n *int) bool {
	if len(s) == 0 || len(s) > 6 || strings.Trim(s, "0123456789") != "" {
		return false
	}
	v, err := strconv.Atoi(s)
	*n = v
	return err == nil
}

func isHex(s string) bool { return s != "" && strings.Trim(s, "0123456789abcdef") == "" }

// isBDF reports whether s is a PCI address: 4 or more digits of domain, bus, device.function.
func isBDF(s string) bool {
	n := len(s)
	return n >= 12 && n <= 16 && s[n-2] == '.' && s[n-5] == ':' && s[n-8] == ':' &&
		isHex(s[:n-8]) && isHex(s[n-7:n-5]) && isHex(s[n-4:n-2]) && s[n-1] >= '0' && s[n-1] <= '7'
}

// netdevWord reports whether a devicetree node name is that of a network device
// (Devicetree Specification 2.2.2, generic names).
func netdevWord(s string) bool {
	return slices.Contains([]string{"ethernet", "eth", "gmac", "mac", "emac", "fec", "nic", "ess", "edma", "switch"}, s)
}

// wellKnown reports whether a name is one that interfaces are given by the kernel,
// by udev (net_id of systemd) or by common router firmware. Asked only when
// the host's own interfaces are not known and nothing else in the name tells a NIC.
func wellKnown(s string) bool {
	for _, p := range []string{"eth", "lan", "wan", "em", "ib", "net", "usb", "wlan", "sfp", "rename", "swp", "eno", "ens", "end", "enP", "enp", "enx", "wlp", "wls", "wlx", "wwan", "vif", "p"} {
		rest, ok := strings.CutPrefix(s, p)
		if !ok {
			continue
		}
		switch {
		case p == "lan" || p == "wan":
			return rest == "" || rest[0]-'0' < 10
		case p == "p": // biosdevname: p3p1
			slot, port, ok := strings.Cut(rest, "p")
			var any int
			return ok && number(slot, &any) && number(strings.SplitN(port, "_", 2)[0], &any)
		case p == "enx" || p == "wlx":
			return isHex(rest)
		case rest != "" && rest[0]-'0' < 10:
			return !strings.Contains(rest, "-")
		}
	}
	return false
}

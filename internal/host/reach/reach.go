// Package reach reads what a host needs to stay reachable while it is changed: memory to
// grow into, carrier, addresses and routes of its interfaces, the state of bonds, and over which
// interface the operator is connected.
//
// It refuses to decide what a loss means: that is the business of steer/apply.
package reach

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"net"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/rxsteer/rxsteer/internal/host"
)

// Host reads one host, in the network namespace of the calling thread.
type Host struct {
	FS host.FS
	// Addresses of an interface as "10.0.0.1/24"; nil asks the kernel.
	Addresses func(device string) ([]string, error)
}

// State is one look.
type State struct {
	// Available is memory for new allocations without swapping, bytes: MemAvailable of
	// /proc/meminfo; 0 not told.
	Available uint64
	Links     map[string]Link // of the devices asked for that are there
}

// Link is how one interface is connected.
type Link struct {
	Carrier   bool
	Addresses []string // sorted
	Routes    []string // sorted: "0.0.0.0/0 via 10.0.0.1"
	Bond      string   // the bond it is a member of
	// Active: the bond uses it (its MII status is up, and with 802.3ad it collects and distributes).
	// Without a bond it is false.
	Active bool
}

// State looks at some devices.
func (h Host) State(devices ...string) (*State, error) {
	s := &State{Available: h.available(), Links: map[string]Link{}}
	routes, err := h.routes()
	if err != nil {
		return nil, err
	}
	for _, d := range devices {
		dir := "/sys/class/net/" + d
		if _, err := h.FS.ReadDir(dir); err != nil {
			continue // not there: a missing Link says so
		}
		l := Link{Carrier: h.text(dir+"/carrier") == "1", Routes: routes[d]}
		if l.Addresses, err = h.addresses(d); err != nil {
			return nil, fmt.Errorf("read addresses of %s: %w", d, err)
		}
		slices.Sort(l.Addresses)
		if master, err := h.FS.Readlink(dir + "/master"); err == nil && h.text(dir+"/bonding_slave/state") != "" {
			l.Bond, l.Active = path.Base(master), h.active(dir)
		}
		s.Links[d] = l
	}
	return s, nil
}

// The bits of an 802.3ad port that are set when it carries traffic (AD_STATE_* in
// drivers/net/bonding/bond_3ad.c).
const collecting, distributing = 0x10, 0x20

func (h Host) active(dir string) bool {
	if h.text(dir+"/bonding_slave/mii_status") != "up" {
		return false
	}
	state := h.text(dir + "/bonding_slave/ad_actor_oper_port_state")
	if state == "" { // no 802.3ad
		return true
	}
	n, err := strconv.Atoi(state)
	return err == nil && n&collecting != 0 && n&distributing != 0
}

func (h Host) text(file string) string {
	b, err := h.FS.ReadFile(file)
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}

func (h Host) addresses(device string) ([]string, error) {
	if h.Addresses != nil {
		return h.Addresses(device)
	}
	i, err := net.InterfaceByName(device)
	if err != nil {
		return nil, err
	}
	all, err := i.Addrs()
	var out []string
	for _, a := range all {
		out = append(out, a.String())
	}
	return out, err
}

func (h Host) available() uint64 {
	for line := range strings.Lines(h.text("/proc/meminfo")) {
		if kb, ok := strings.CutPrefix(line, "MemAvailable:"); ok {
			n, err := strconv.ParseUint(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(kb), "kB")), 10, 50)
			if err == nil {
				return n << 10
			}
		}
	}
	return 0
}

// Lost is what was there before and is not after, in words, of a device; "" for nothing. What was down or
// absent before is not missed.
func Lost(before, after *State, device string) string {
	was, ok := before.Links[device]
	if !ok {
		return ""
	}
	is, ok := after.Links[device]
	var lost []string
	missing := func(what string, was, is []string) {
		for _, x := range was {
			if !slices.Contains(is, x) {
				lost = append(lost, what+" "+x)
			}
		}
	}
	if !ok {
		return device + " is gone"
	}
	if was.Carrier && !is.Carrier {
		lost = append(lost, "its carrier")
	}
	missing("address", was.Addresses, is.Addresses)
	missing("route", was.Routes, is.Routes)
	if was.Active && !is.Active {
		lost = append(lost, "its place in "+was.Bond)
	}
	if len(lost) == 0 {
		return ""
	}
	return device + " lost " + strings.Join(lost, ", ")
}

// routes reads the main table, by device.
func (h Host) routes() (map[string][]string, error) {
	out := map[string][]string{}
	if b, err := h.FS.ReadFile("/proc/net/route"); err == nil {
		for _, r := range parseRoutes4(string(b)) {
			out[r.device] = append(out[r.device], r.text)
		}
	}
	if b, err := h.FS.ReadFile("/proc/net/ipv6_route"); err == nil {
		for _, r := range parseRoutes6(string(b)) {
			out[r.device] = append(out[r.device], r.text)
		}
	}
	for d := range out {
		slices.Sort(out[d])
		out[d] = slices.Compact(out[d])
	}
	return out, nil
}

type route struct {
	device, text string
	isDefault    bool
}

const routeUp = 1 // RTF_UP of include/uapi/linux/route.h

// parseRoutes4 reads /proc/net/route (fib_route_seq_show in net/ipv4/fib_trie.c): numbers are in
// the host's byte order as hexadecimal. Lines it does not understand are left out.
func parseRoutes4(text string) []route {
	var out []route
	for line := range strings.Lines(text) {
		f := strings.Fields(line)
		if len(f) < 8 {
			continue
		}
		dest, ok1 := addr4(f[1])
		gate, ok2 := addr4(f[2])
		mask, ok3 := addr4(f[7])
		flags, err := strconv.ParseUint(f[3], 16, 16)
		if !ok1 || !ok2 || !ok3 || err != nil || flags&routeUp == 0 {
			continue
		}
		ones, _ := net.IPMask(mask).Size()
		r := route{device: f[0], text: fmt.Sprintf("%s/%d", dest, ones), isDefault: ones == 0}
		if !gate.Equal(net.IPv4zero) {
			r.text += " via " + gate.String()
		}
		out = append(out, r)
	}
	return out
}

func addr4(hex string) (net.IP, bool) {
	n, err := strconv.ParseUint(hex, 16, 32)
	if err != nil {
		return nil, false
	}
	b := make(net.IP, 4)
	binary.NativeEndian.PutUint32(b, uint32(n)) // printed as the number the bytes make in memory
	return b, true
}

// parseRoutes6 reads /proc/net/ipv6_route (rt6_info_route of net/ipv6/ip6_fib.c): destination, its prefix,
// source, its prefix, next hop, metric, references, uses, flags, device. Multicast and the local
// table's loopback are left out.
func parseRoutes6(text string) []route {
	var out []route
	for line := range strings.Lines(text) {
		f := strings.Fields(line)
		if len(f) < 10 || f[9] == "lo" || strings.HasPrefix(f[0], "ff") {
			continue
		}
		dest, ok1 := addr6(f[0])
		next, ok2 := addr6(f[4])
		prefix, err := strconv.ParseUint(f[1], 16, 8)
		flags, err2 := strconv.ParseUint(f[8], 16, 32)
		if !ok1 || !ok2 || err != nil || err2 != nil || flags&routeUp == 0 {
			continue
		}
		r := route{device: f[9], text: fmt.Sprintf("%s/%d", dest, prefix), isDefault: prefix == 0}
		if !next.IsUnspecified() {
			r.text += " via " + next.String()
		}
		out = append(out, r)
	}
	return out
}

func addr6(hex string) (net.IP, bool) {
	if len(hex) != 32 {
		return nil, false
	}
	b := make(net.IP, 16)
	for i := range b {
		n, err := strconv.ParseUint(hex[2*i:2*i+2], 16, 8)
		if err != nil {
			return nil, false
		}
		b[i] = byte(n)
	}
	return b, true
}

// Lifeline is why an interface matters to whoever is at work here.
type Lifeline struct {
	Device string // the interface itself, or one below it
	Why    string // "your SSH connection (10.0.0.5)", "the default route"
}

// Lifelines are the interfaces that carry the operator's SSH connection and the default route, and
// those below them (members of a bond or bridge, the device of a VLAN). ssh is the value of SSH_CONNECTION;
// where it is empty, as under sudo, the parents of this process are asked.
func (h Host) Lifelines(ssh string) []Lifeline {
	var out []Lifeline
	add := func(device, why string) {
		for _, d := range append([]string{device}, h.below(device, 8)...) {
			l := Lifeline{d, why}
			if d != device {
				l.Why += " through " + device
			}
			if !slices.Contains(out, l) {
				out = append(out, l)
			}
		}
	}
	if f := strings.Fields(cmp.Or(ssh, h.parentsSSH())); len(f) == 4 {
		server, _, _ := strings.Cut(f[2], "%")
		if d := h.holder(net.ParseIP(server)); d != "" {
			add(d, fmt.Sprintf("your SSH connection from %s", f[0]))
		}
	}
	var routes []route
	if b, err := h.FS.ReadFile("/proc/net/route"); err == nil {
		routes = parseRoutes4(string(b))
	}
	if b, err := h.FS.ReadFile("/proc/net/ipv6_route"); err == nil {
		routes = append(routes, parseRoutes6(string(b))...)
	}
	for _, r := range routes {
		if r.isDefault {
			add(r.device, "the default route")
		}
	}
	return out
}

// holder is the interface that has an address.
func (h Host) holder(ip net.IP) string {
	es, err := h.FS.ReadDir("/sys/class/net")
	if err != nil || ip == nil {
		return ""
	}
	for _, e := range es {
		all, err := h.addresses(e.Name())
		if err != nil {
			continue // bonding_masters, or gone
		}
		for _, a := range all {
			if own, _, err := net.ParseCIDR(a); err == nil && own.Equal(ip) {
				return e.Name()
			}
		}
	}
	return ""
}

// below are the interfaces that a stacked one stands on.
func (h Host) below(device string, depth int) []string {
	es, err := h.FS.ReadDir("/sys/class/net/" + device)
	if err != nil || depth == 0 {
		return nil
	}
	var out []string
	for _, e := range es {
		if lower, ok := strings.CutPrefix(e.Name(), "lower_"); ok {
			out = append(out, lower)
			out = append(out, h.below(lower, depth-1)...)
		}
	}
	return out
}

// parentsSSH looks for SSH_CONNECTION in the environments of the processes above this one.
func (h Host) parentsSSH() string {
	pid := "self"
	for range 16 {
		for kv := range strings.SplitSeq(h.text("/proc/"+pid+"/environ"), "\x00") {
			if v, ok := strings.CutPrefix(kv, "SSH_CONNECTION="); ok {
				return v
			}
		}
		parent := ""
		for line := range strings.Lines(h.text("/proc/" + pid + "/status")) {
			if v, ok := strings.CutPrefix(line, "PPid:"); ok {
				parent = strings.TrimSpace(v)
			}
		}
		if parent == "" || parent == "0" {
			return ""
		}
		pid = parent
	}
	return ""
}

// Epoch is a text that changes when an interface is created again, loses or gains its link, or gets
// another number of queues; "" while it is not there.
func (h Host) Epoch(device string) string {
	dir := "/sys/class/net/" + device
	index := h.text(dir + "/ifindex")
	if index == "" {
		return ""
	}
	queues, err := h.FS.ReadDir(dir + "/queues")
	if err != nil {
		queues = nil
	}
	return fmt.Sprintf("index %s, %s carrier changes, %d queues", index, h.text(dir+"/carrier_changes"), len(queues))
}

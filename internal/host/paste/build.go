package paste

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/rxsteer/rxsteer/collector"
	"github.com/rxsteer/rxsteer/internal/cpuset"
	"github.com/rxsteer/rxsteer/internal/ethtool"
	"github.com/rxsteer/rxsteer/internal/host/knob"
	"github.com/rxsteer/rxsteer/internal/host/nic"
	"github.com/rxsteer/rxsteer/internal/host/procfs"
	"github.com/rxsteer/rxsteer/internal/host/topo"
	"github.com/rxsteer/rxsteer/internal/host/vector"
)

// Topology is the CPUs the texts name; cores, caches and nodes are not in them, unless a bundle's
// own file tells.
func (h *Host) Topology() *topo.Topology {
	if h.Saved.Topology != nil {
		return h.Saved.Topology
	}
	return topo.FromSets(h.Possible, h.Online, h.Isolated, h.NoHzFull)
}

// interrupts is the last table there is; without one, the vectors of proc_irq.txt.
func (h *Host) interrupts() *procfs.Interrupts {
	for _, i := range []int{1, 0} {
		if t := h.Points[i].Interrupts; t != nil {
			return t
		}
	}
	t := &procfs.Interrupts{CPUs: h.Online.Slice()}
	for _, i := range h.IRQs {
		t.Rows = append(t.Rows, procfs.Interrupt{IRQ: i.IRQ, Actions: []string{i.Action}})
	}
	return t
}

// Interfaces is what the texts tell of each interface that vectors can be named after.
func (h *Host) Interfaces() []vector.Interface {
	var out []vector.Interface
	for _, d := range h.Devices {
		i := vector.Interface{Name: d.Name}
		if d.Info != nil {
			i.Driver = nic.CanonicalDriver(d.Info.Driver)
			if d.Info.Bus != "" {
				i.Bus = []string{d.Info.Bus}
			}
		}
		i.RX, i.TX = h.queues(d)
		out = append(out, i)
	}
	have := map[string]bool{}
	for _, i := range out {
		have[i.Name] = true
	}
	for _, l := range h.Points[1].Links {
		if !have[l.Name] {
			out = append(out, vector.Interface{Name: l.Name})
		}
	}
	h.adopt(out)
	h.adoptUSB(out)
	return out
}

// hubs are the root hubs ("usb1") that interrupts of host controllers name.
func (h *Host) hubs() []string {
	var out []string
	for _, r := range vector.Table(h.interrupts(), nil) {
		for _, a := range r.Actions {
			if strings.HasPrefix(a.Device, "usb") && a.Queue() == vector.None && !slices.Contains(out, a.Device) {
				out = append(out, a.Device)
			}
		}
	}
	return out
}

// adoptUSB gives interfaces on USB the interrupt of the host controller, where there is only one. Their
// bus-info is usb-BUS-PATH (usb_make_path), which does not tell the number of the root hub.
func (h *Host) adoptUSB(known []vector.Interface) {
	hubs := h.hubs()
	if len(hubs) != 1 {
		return
	}
	for i := range known {
		if slices.ContainsFunc(known[i].Bus, func(b string) bool { return strings.HasPrefix(b, "usb-") }) {
			known[i].Bus = append(known[i].Bus, hubs[0])
		}
	}
}

// adopt gives the one interface that no vector names the one device that vectors name by
// its bus only (virtio0, a PCI address): they can only be the same.
func (h *Host) adopt(known []vector.Interface) {
	named := make(map[string]bool, len(known)) // by a vector
	for _, k := range known {
		named[k.Name] = false
	}
	buses := map[string]bool{}
	for _, r := range vector.Table(h.interrupts(), known) {
		for _, a := range r.Actions {
			_, isInterface := named[a.Device]
			switch id := cmp.Or(a.Device, a.BDF); {
			case isInterface:
				named[a.Device] = true
			case id != "" && a.Queue() != vector.None:
				buses[id] = true
			}
		}
	}
	if len(buses) != 1 {
		return
	}
	for id := range buses {
		virtio := strings.HasPrefix(id, "virtio")
		var told, untold []int // by driver
		for i, k := range known {
			switch {
			case named[k.Name] || h.kind(k.Name) != nic.Physical:
			case k.Driver == "":
				untold = append(untold, i)
			case virtio == (k.Driver == "virtio_net"):
				told = append(told, i)
			}
		}
		if len(told) == 0 {
			told = untold
		}
		if len(told) == 1 {
			known[told[0]].Bus = append(known[told[0]].Bus, id)
		}
	}
}

// queues is how many queues a device has, 0 not told.
func (h *Host) queues(d *Device) (rx, tx int) {
	if c := d.Channels; c != nil && c.Refused == nil {
		rx, tx = int(c.Now["combined"]+c.Now["rx"]), int(c.Now["combined"]+c.Now["tx"])
	}
	if rx == 0 && d.RSS != nil {
		rx = d.RSS.Rings
	}
	if rx == 0 && d.Classification != nil {
		rx = d.Classification.Rings
	}
	for _, q := range h.RPS {
		if q.Device == d.Name && !q.TX && (d.Channels == nil || d.Channels.Refused != nil) {
			rx = max(rx, q.Queue+1)
		}
	}
	for _, q := range h.XPS {
		if q.Device == d.Name && q.TX && (d.Channels == nil || d.Channels.Refused != nil) {
			tx = max(tx, q.Queue+1)
		}
	}
	if st := h.Points[1].Stats[d.Name]; st != nil && rx == 0 { // as the last resort: those a driver once had may be among them
		for _, q := range st.Queues() {
			if !q.TX {
				rx = max(rx, q.Queue+1)
			}
		}
	}
	return min(rx, maxQueues), min(tx, maxQueues)
}

// Vectors is the table of interrupts, understood with all that the other texts tell.
func (h *Host) Vectors() []vector.Row { return vector.Table(h.interrupts(), h.Interfaces()) }

// vectorDevices are the devices that vectors of queues name, whatever else is known.
func (h *Host) vectorDevices() map[string]bool {
	out := map[string]bool{}
	for _, r := range vector.Table(h.interrupts(), nil) {
		for _, a := range r.Actions {
			if a.Device != "" && a.Queue() != vector.None {
				out[a.Device] = true
			}
		}
	}
	return out
}

// names are all interfaces, sorted.
func (h *Host) names() []string {
	all := map[string]bool{}
	for _, d := range h.Devices {
		all[d.Name] = true
	}
	for _, l := range h.Points[1].Links {
		all[l.Name] = true
	}
	for _, q := range slices.Concat(h.RPS, h.XPS) {
		if q.Device != "" {
			all[q.Device] = true
		}
	}
	for _, r := range h.Vectors() {
		for _, a := range r.Actions {
			if a.Device != "" && a.Queue() != vector.None {
				all[a.Device] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(all))
}

// Bounds on what is built up.
const (
	maxNames  = 1 << 12 // interfaces
	maxQueues = 1 << 11 // queues of one interface
	maxUnseen = 1 << 16 // queues of all interfaces that are known by their number only
)

func (h *Host) find(name string) *Device {
	for _, d := range h.Devices {
		if d.Name == name {
			return d
		}
	}
	return &Device{Name: name}
}

func (h *Host) link(name string) *Link {
	for i := range h.Points[1].Links {
		if l := &h.Points[1].Links[i]; l.Name == name {
			return l
		}
	}
	return nil
}

// ifindex is the interface's number; texts that do not tell it get one above all others.
func (h *Host) ifindex(names []string) map[string]int {
	out := map[string]int{}
	top := 1
	for _, l := range h.Points[1].Links {
		out[l.Name], top = l.Index, max(top, l.Index)
	}
	for _, n := range names {
		if out[n] == 0 {
			top++
			out[n] = top
		}
	}
	return out
}

// NICs are the interfaces the texts name, by name, with their queues as the vectors' names tell them;
// in a bundle those that were mapped on the host.
func (h *Host) NICs() []nic.NIC {
	if h.Saved.NICs != nil {
		return h.Saved.NICs
	}
	names := h.names()
	names = names[:min(len(names), maxNames)]
	index := h.ifindex(names)
	vectors := map[string][]vectorOf{}
	for _, r := range h.Vectors() {
		for _, a := range r.Actions {
			if a.Device != "" && r.Number != vector.None {
				vectors[a.Device] = append(vectors[a.Device], vectorOf{r.Number, a})
			}
		}
	}
	wanted := h.irqsByNumber()
	masks := h.masks()
	unseen := maxUnseen
	var out []nic.NIC
	for _, name := range names {
		d, l := h.find(name), h.link(name)
		n := nic.NIC{Name: name, IfIndex: index[name], Kind: h.kind(name), Node: nic.None, Up: true, Queues: []nic.Queue{}}
		if d.Info != nil {
			n.Driver, n.Bus, n.Version, n.Firmware = d.Info.Driver, d.Info.Bus, d.Info.Version, d.Info.Firmware
		}
		if l != nil {
			n.Up, n.MTU, n.Master = l.Up(), l.MTU, l.Master
			n.Driver = cmp.Or(n.Driver, l.Kind, tunnelTypes[l.Type]) // as the kernel's own DEVTYPE names it
			if n.Kind == nic.Stack && l.Peer != "" {
				n.Lower = []string{l.Peer}
			}
		}
		for _, o := range h.Points[1].Links { // members of a bond or bridge
			if o.Master == name {
				n.Lower = append(n.Lower, o.Name)
			}
		}
		slices.Sort(n.Lower)
		// Of the channels there are vectors, too, that back none any more.
		rx, tx := 0, 0
		if d.Channels != nil {
			rx, tx = h.queues(d)
		}
		idle := 0
		for _, v := range vectors[name] {
			if rx > 0 && v.RXQueue >= rx || tx > 0 && v.TXQueue >= tx {
				n.Control = append(n.Control, nic.Vector{IRQ: v.irq, Name: v.Name})
				idle++
				continue
			}
			addVector(&n, v, wanted)
		}
		if idle > 0 {
			n.Notes = append(n.Notes, fmt.Sprintf("%d vectors of %s back no active queue", idle, name))
		}
		h.addUnseen(&n, d, &unseen)
		finish(&n, masks)
		if len(vectors[name]) == 0 && n.Kind == nic.Physical && n.Up {
			n.Problems = append(n.Problems, h.unnamed(&n))
		}
		if strings.HasPrefix(n.Bus, "usb-") {
			n.Notes = append(n.Notes, "its interrupt is the USB host controller's, shared with every device there")
		}
		out = append(out, n)
	}
	return out
}

// kind is what sort of device an interface is; without `ip link` a physical one.
func (h *Host) kind(name string) nic.Kind {
	k := nic.Physical
	for i := range h.Points[1].Links {
		switch l := &h.Points[1].Links[i]; {
		case l.Master == name: // a bond or bridge
			return nic.Stack
		case l.Name == name:
			k = l.kind()
		}
	}
	return k
}

// tunnelTypes are the types of devices without Ethernet (link/ppp; ll_type_n2a of iproute2) that carry packets inside
// others', by the kind that `ip -d link` would tell.
var tunnelTypes = map[string]string{"ppp": "ppp", "gre": "gre", "gre6": "ip6gre", "ipip": "ipip", "sit": "sit", "tunnel6": "ip6tnl"}

func (l *Link) kind() nic.Kind {
	switch l.Kind {
	case "bond", "bridge", "team", "vlan", "macvlan", "macvtap", "ipvlan", "macsec", "dsa", "hsr":
		return nic.Stack
	case "":
		switch {
		case l.Type == "loopback" || l.Name == "lo":
			return nic.Loopback
		case tunnelTypes[l.Type] != "" || l.Type == "none":
			return nic.Virtual
		case l.Peer != "" && strings.HasPrefix(l.Name, "veth"):
			return nic.Virtual
		case l.Peer != "": // eth0.5@eth0, lan1@eth0
			return nic.Stack
		}
		return nic.Physical
	}
	return nic.Virtual
}

// vectorOf is one action on an interrupt.
type vectorOf struct {
	irq int
	vector.Action
}

// addVector adds a queue, or a vector that serves none.
func addVector(n *nic.NIC, v vectorOf, wanted map[int]IRQ) {
	if v.Queue() == vector.None {
		n.Control = append(n.Control, nic.Vector{IRQ: v.irq, Name: v.Name})
		return
	}
	q := nic.Queue{RX: v.RXQueue, TX: v.TXQueue, IRQ: v.irq, Vector: v.Name, Node: nic.None, KnownBy: nic.ByName}
	if v.Confidence == vector.Inferred {
		q.KnownBy = nic.ByOrder
	}
	i := wanted[v.irq]
	q.Affinity, q.Effective = i.Affinity, i.Effective
	n.Queues = append(n.Queues, q)
}

// addUnseen adds the queues that no vector names, as long as left allows.
func (h *Host) addUnseen(n *nic.NIC, d *Device, left *int) {
	haveRX, haveTX := map[int]bool{}, map[int]bool{}
	for _, q := range n.Queues {
		haveRX[q.RX], haveTX[q.TX] = true, true
	}
	rx, tx := h.queues(d)
	for i := range max(rx, tx) {
		q := nic.Queue{RX: nic.None, TX: nic.None, IRQ: nic.None, Node: nic.None}
		if i < rx && !haveRX[i] {
			q.RX = i
		}
		if i < tx && !haveTX[i] {
			q.TX = i
		}
		if (q.RX != nic.None || q.TX != nic.None) && *left > 0 {
			*left--
			n.Queues = append(n.Queues, q)
		}
	}
}

// finish fills in the masks and orders the queues.
func finish(n *nic.NIC, masks map[queueKey]cpuset.Set) {
	for i := range n.Queues {
		q := &n.Queues[i]
		q.RPS = masks[queueKey{n.Name, false, q.RX}]
		q.XPS = masks[queueKey{n.Name, true, q.TX}]
	}
	slices.SortStableFunc(n.Queues, func(a, b nic.Queue) int {
		first := func(q nic.Queue) int { return max(q.RX, q.TX) }
		return cmp.Or(cmp.Compare(first(a), first(b)), cmp.Compare(b.RX, a.RX))
	})
}

// unnamed says why no interrupt is known to be an interface's.
func (h *Host) unnamed(n *nic.NIC) string {
	if f, ok := nic.Has(n.Driver, nic.NoIRQ); ok {
		return f.Text + ": which CPU takes which queue is not in these texts"
	}
	if h.Points[1].Interrupts == nil && h.Points[0].Interrupts == nil && len(h.IRQs) == 0 {
		return "which interrupt serves which queue is not known: interrupts is " + notPasted
	}
	if hubs := h.hubs(); strings.HasPrefix(n.Bus, "usb-") && len(hubs) > 0 {
		return fmt.Sprintf("its interrupt is that of a USB host controller, shared with every device there, and there are several (%s): readlink -f /sys/class/net/%s/device tells which", strings.Join(hubs, ", "), n.Name)
	}
	if ids := h.ownerless(); len(ids) > 0 {
		return fmt.Sprintf("no interrupt names this interface; those of %s have no owner: readlink -f /sys/class/net/%s/device, or ethtool-i.%s.txt, tells whether they are its own", strings.Join(ids, ", "), n.Name, n.Name)
	}
	return "no interrupt names this interface: its queues are not known"
}

// ownerless are the devices (a PCI address, virtio0) that vectors of queues name and no interface is known to be.
func (h *Host) ownerless() []string {
	var out []string
	for _, r := range h.Vectors() {
		for _, a := range r.Actions {
			id := cmp.Or(a.Device, a.BDF)
			if id != "" && a.Queue() != vector.None && h.link(id) == nil && h.find(id).Info == nil && !slices.Contains(out, id) {
				out = append(out, id)
			}
		}
	}
	slices.Sort(out)
	return out[:min(len(out), 8)]
}

// queueKey names a queue.
type queueKey struct {
	device string
	tx     bool
	queue  int
}

// masks are the RPS masks of receive and the XPS masks of transmit queues.
func (h *Host) masks() map[queueKey]cpuset.Set {
	out := map[queueKey]cpuset.Set{}
	for _, m := range h.RPS {
		if !m.TX {
			out[queueKey{m.Device, false, m.Queue}] = m.CPUs
		}
	}
	for _, m := range h.XPS {
		if m.TX {
			out[queueKey{m.Device, true, m.Queue}] = m.CPUs
		}
	}
	return out
}

func (h *Host) irqsByNumber() map[int]IRQ {
	out := map[int]IRQ{}
	for _, i := range h.IRQs {
		out[i.IRQ] = i
	}
	return out
}

const notPasted = "not among the pasted texts"

// Snapshot is what is set, as far as the texts show it; all else is unknown. In a bundle it is the one
// taken on the host.
func (h *Host) Snapshot() *knob.Snapshot {
	if h.Saved.Snapshot != nil {
		return h.Saved.Snapshot
	}
	s := &knob.Snapshot{
		Version: knob.SnapshotVersion, Taken: h.Points[1].Time, Devices: []knob.Device{}, Settings: []knob.Setting{},
		Host: knob.Identity{Kernel: h.Kernel, CPUs: h.Online.String()},
	}
	set := func(k knob.Kind, t knob.Target, v knob.Value) {
		s.Settings = append(s.Settings, knob.Setting{Ref: knob.Ref{Knob: k, Target: t}, Value: v})
	}
	wanted := h.irqsByNumber()
	for _, n := range h.NICs() {
		d := h.find(n.Name)
		t := knob.Target(n.Name)
		dev := knob.Device{Name: n.Name, IfIndex: n.IfIndex, Bus: n.Bus, Driver: n.Driver, Version: n.Version, Firmware: n.Firmware}
		dev.RXQueues, dev.TXQueues = n.QueueCount()
		if rx, tx := h.queues(d); rx > 0 || tx > 0 {
			dev.RXQueues, dev.TXQueues = rx, tx
		}
		if n.MTU > 0 {
			set(knob.MTU, t, knob.Int(int64(n.MTU)))
		}
		groups(set, t, d.Channels, knob.Channels, knob.ChannelsMax)
		groups(set, t, d.Rings, knob.Rings, knob.RingsMax)
		if c := d.Coalesce; c != nil {
			set(knob.Coalesce, t, refusedOr(c.Refused, func() knob.Value { return fields(c.Group) }))
		}
		if p := d.Pause; p != nil {
			set(knob.Pause, t, refusedOr(p.Refused, func() knob.Value {
				return knob.Fields(map[string]any{"autoneg": p.Autoneg, "rx": p.RX, "tx": p.TX})
			}))
		}
		if r := d.RSS; r != nil {
			dev.Table = rss(set, t, r)
		}
		if f := d.Features; f != nil {
			features(set, t, f)
		}
		if c := d.Classification; c != nil {
			for flow, letters := range c.Fields {
				set(knob.RSSHashFields, knob.On(n.Name, "%s", flow), knob.Text(letters))
			}
			for _, r := range c.Rules {
				set(knob.NtupleRule, knob.On(n.Name, "rule-%d", r.Location), rule(r))
			}
		}
		for _, q := range n.Queues {
			if i, ok := wanted[q.IRQ]; ok {
				affinities(set, i, n.Name)
			}
		}
		s.Devices = append(s.Devices, dev)
	}
	for _, m := range h.RPS {
		if m.Device != "" && !m.TX {
			set(knob.RPSCPUs, knob.On(m.Device, "rx-%d", m.Queue), knob.Set(m.CPUs))
		}
	}
	for _, m := range h.XPS {
		if m.Device != "" && m.TX {
			set(knob.XPSCPUs, knob.On(m.Device, "tx-%d", m.Queue), knob.Set(m.CPUs))
		}
	}
	s.Sort()
	s.Settings = slices.CompactFunc(s.Settings, func(a, b knob.Setting) bool { return a.Ref == b.Ref })
	return s
}

func refusedOr(r *Refusal, v func() knob.Value) knob.Value {
	switch {
	case r == nil:
		return v()
	case r.Absent:
		return knob.Absent(r.Text)
	}
	return knob.Unknown(r.Text)
}

// flags are the attributes that are on or off.
var flags = []string{"adaptive-rx", "adaptive-tx", "cqe-mode-rx", "cqe-mode-tx", "tx-push", "rx-push"}

func fields(g ethtool.Group) knob.Value {
	m := make(map[string]any, len(g))
	for k, n := range g {
		if slices.Contains(flags, k) {
			m[k] = n != 0
		} else {
			m[k] = n
		}
	}
	return knob.Fields(m)
}

type setter func(knob.Kind, knob.Target, knob.Value)

func groups(set setter, t knob.Target, g *Groups, now, limit knob.Kind) {
	if g == nil {
		return
	}
	set(now, t, refusedOr(g.Refused, func() knob.Value { return fields(g.Now) }))
	set(limit, t, refusedOr(g.Refused, func() knob.Value { return fields(g.Max) }))
}

// rss returns the size of the table, 0 not told.
func rss(set setter, t knob.Target, r *RSS) int {
	switch {
	case r.TableRefused != nil:
		set(knob.RSSTable, t, refusedOr(r.TableRefused, nil))
	case r.Cut:
		set(knob.RSSTable, t, knob.Unknown("the pasted table is cut"))
	case len(r.Table) == 0:
		set(knob.RSSTable, t, knob.Absent("the device has no indirection table"))
	default:
		set(knob.RSSTable, t, knob.List(r.Table))
	}
	switch {
	case r.KeyRefused != nil:
		set(knob.RSSKey, t, refusedOr(r.KeyRefused, nil))
	case r.Key == "":
		set(knob.RSSKey, t, knob.Unknown(notPasted))
	case strings.Trim(r.Key, "0:") == "":
		set(knob.RSSKey, t, knob.Unknown("the driver tells a key of zeros only"))
	default:
		set(knob.RSSKey, t, knob.Text(r.Key))
	}
	if r.Function != "" {
		set(knob.RSSFunction, t, knob.Text(r.Function))
	}
	if r.Xfrm != "" {
		set(knob.RSSXfrm, t, knob.Text(r.Xfrm))
	}
	if r.Cut {
		return 0
	}
	return len(r.Table)
}

func features(set setter, t knob.Target, f *Features) {
	if f.Refused != nil {
		set(knob.Features, t, refusedOr(f.Refused, nil))
		return
	}
	can, fixed, wanted := map[string]any{}, map[string]any{}, map[string]any{}
	for name, on := range f.On {
		if f.Fixed[name] {
			fixed[name] = on
		} else {
			can[name] = on
		}
	}
	for name, on := range f.Wanted {
		wanted[name] = on
	}
	set(knob.Features, t, knob.Fields(can))
	set(knob.FeaturesFixed, t, knob.Fields(fixed))
	set(knob.FeaturesWanted, t, knob.Fields(wanted))
}

func rule(r ethtool.Rule) knob.Value {
	m := map[string]any{"flow": r.Flow, "queue": r.Queue}
	for k, v := range r.Match {
		m[k] = v
	}
	if r.Context != 0 {
		m["context"] = r.Context
	}
	if r.VF != 0 {
		m["vf"] = r.VF
	}
	return knob.Fields(m)
}

func affinities(set setter, i IRQ, device string) {
	t := knob.On(device, "irq-%d", i.IRQ)
	if i.AffinityKnown {
		set(knob.IRQAffinity, t, knob.Set(i.Affinity))
	}
	if i.EffectiveKnown {
		set(knob.IRQEffective, t, knob.Set(i.Effective))
	}
}

// nominal is the interval of a Sample whose length is not told.
const nominal = time.Second

// Sample is what the counters show between the two points, or since boot where
// there is only one; nil where there are no counters. Where the texts tell no times the interval
// is taken from /proc/stat, else it is one second by definition and only ratios mean something
// (Unmeasured says so). Per-queue packets of `ethtool -S` are NAPI entries without
// polls, on the CPU that took most of the queue's interrupts, collector.NoCPU where that is not told.
func (h *Host) Sample() *collector.Sample {
	was, is := h.Points[0], h.Points[1]
	two := was.Interrupts != nil || was.Softirqs != nil || was.Softnet != nil || was.Stat != nil || len(was.Links) > 0 || len(was.Stats) > 0 || was.Protocols != nil
	var notes []collector.Unmeasured
	if !two {
		was = zero(is)
	} else {
		// A source that has one point only cannot be set against the others.
		if was.Softirqs == nil {
			is.Softirqs = nil
		}
		if was.Interrupts == nil {
			is.Interrupts = nil
		}
		if was.Softnet == nil {
			is.Softnet = nil
		}
		if was.Stat == nil {
			is.Stat = nil
		}
		if len(was.Links) == 0 {
			is.Links = nil
		}
		if was.Protocols == nil {
			is.Protocols = nil
		}
		is.Stats = maps.Clone(is.Stats)
		maps.DeleteFunc(is.Stats, func(dev string, _ *Stats) bool { return was.Stats[dev] == nil })
	}
	if is.Interrupts == nil && is.Softirqs == nil && is.Softnet == nil && is.Stat == nil && len(is.Links) == 0 && len(is.Stats) == 0 && is.Protocols == nil {
		return nil
	}
	for _, x := range []struct {
		what   string
		absent bool
	}{
		{"softirq runs (softirqs)", is.Softirqs == nil}, {"interrupts", is.Interrupts == nil},
		{"packets, drops and squeezes of CPUs (softnet_stat)", is.Softnet == nil}, {"idle, softirq and stolen time of CPUs (stat)", is.Stat == nil},
		{"device counters (ip-link.txt)", len(is.Links) == 0},
		{"counters of drivers (ethtool-S.txt)", len(is.Stats) == 0}, {"counters of IP, TCP and UDP (snmp, netstat)", is.Protocols == nil},
	} {
		if x.absent {
			notes = append(notes, collector.Unmeasured{What: x.what, Why: notPasted})
		}
	}
	end := is.Time
	interval, told := h.interval(was, is, two)
	if end.IsZero() {
		end = time.Unix(0, 0).UTC().Add(interval)
	}
	if !told {
		notes = append(notes, collector.Unmeasured{What: "rates", Why: "the texts tell no times: an interval of one second is assumed, only ratios mean something"})
	}
	if !two {
		notes = append(notes, collector.Unmeasured{What: "what happens now", Why: "one point in time only: the counters are those since boot"})
	}
	index := h.ifindex(h.names())
	s := collector.Between(h.reading(was, end.Add(-interval), index), h.reading(is, end, index), nil)
	s.SinceBoot, s.Untimed = !two, !told
	s.Unmeasured = append(s.Unmeasured, notes...)
	s.NAPIs = append(s.NAPIs, h.queuePackets(was, is, s, index)...)
	return s
}

// zero is the counters of p at boot.
func zero(p Point) Point {
	z := Point{Stats: map[string]*Stats{}}
	if t := p.Interrupts; t != nil {
		c := &procfs.Interrupts{CPUs: t.CPUs, Rows: slices.Clone(t.Rows)}
		for i := range c.Rows {
			c.Rows[i].Counts = make([]uint64, len(c.Rows[i].Counts))
		}
		z.Interrupts = c
	}
	if t := p.Softirqs; t != nil {
		c := &procfs.Softirqs{CPUs: t.CPUs, Rows: slices.Clone(t.Rows)}
		for i := range c.Rows {
			c.Rows[i].Counts = make([]uint64, len(c.Rows[i].Counts))
		}
		z.Softirqs = c
	}
	for _, r := range p.Softnet {
		z.Softnet = append(z.Softnet, procfs.Softnet{CPU: r.CPU, Columns: r.Columns})
	}
	if p.Protocols != nil {
		z.Protocols = map[string]uint64{}
	}
	if p.Stat != nil {
		z.Stat = &procfs.Stat{}
		for _, c := range p.Stat.CPUs {
			z.Stat.CPUs = append(z.Stat.CPUs, procfs.CPUTime{CPU: c.CPU})
		}
	}
	return z
}

// interval is how long the counters ran.
func (h *Host) interval(was, is Point, two bool) (time.Duration, bool) {
	if two && h.Timed {
		return is.Time.Sub(was.Time), true
	}
	if !two && is.Stat != nil && is.Stat.BootTime > 0 && !is.Time.IsZero() {
		if d := is.Time.Sub(time.Unix(is.Stat.BootTime, 0)); d > 0 {
			return d, true
		}
	}
	if was.Stat == nil || is.Stat == nil {
		return nominal, false
	}
	// All of a CPU's time is accounted to something: the longest sum is the time that passed.
	before := map[int]uint64{}
	for _, c := range was.Stat.CPUs {
		before[c.CPU] = ticks(c)
	}
	var most uint64
	for _, c := range is.Stat.CPUs {
		if t := ticks(c); t > before[c.CPU] {
			most = max(most, t-before[c.CPU])
		}
	}
	if most == 0 || most > 1<<40 {
		return nominal, false
	}
	return time.Duration(most) * 10 * time.Millisecond, true
}

func ticks(c procfs.CPUTime) uint64 {
	return c.User + c.Nice + c.System + c.Idle + c.IOWait + c.IRQ + c.SoftIRQ + c.Steal
}

func (h *Host) reading(p Point, at time.Time, index map[string]int) *collector.Reading {
	r := &collector.Reading{At: at, Interrupts: p.Interrupts, Softirqs: p.Softirqs, Softnet: p.Softnet, Stat: p.Stat, Protocols: p.Protocols, Drivers: []collector.Driver{}}
	for _, name := range slices.Sorted(maps.Keys(p.Stats)) {
		if st := p.Stats[name]; st != nil && st.Refused == nil {
			driver := ""
			if d := h.find(name); d.Info != nil {
				driver = d.Info.Driver
			}
			r.Drivers = append(r.Drivers, collector.NewDriver(name, index[name], driver, st.Counters))
		}
	}
	for _, l := range p.Links {
		missed := l.RX["missed"]
		r.Devices = append(r.Devices, collector.Device{
			Name: l.Name, IfIndex: index[l.Name],
			RXPackets: l.RX["packets"], RXBytes: l.RX["bytes"], RXDropped: l.RX["dropped"], RXErrors: l.RX["errors"], RXMissed: missed,
			TXPackets: l.TX["packets"], TXBytes: l.TX["bytes"], TXDropped: l.TX["dropped"],
		})
	}
	if len(p.Links) > 0 {
		return r
	}
	for _, name := range slices.Sorted(maps.Keys(p.Stats)) { // else what the driver counts
		r.Devices = append(r.Devices, p.Stats[name].device(name, index[name]))
	}
	return r
}

// device sums a driver's statistics up to the counters of an interface.
func (s *Stats) device(name string, index int) collector.Device {
	d := collector.Device{Name: name, IfIndex: index}
	for _, q := range s.Queues() {
		if q.TX {
			d.TXPackets, d.TXBytes = d.TXPackets+q.Packets, d.TXBytes+q.Bytes
		} else {
			d.RXPackets, d.RXBytes = d.RXPackets+q.Packets, d.RXBytes+q.Bytes
		}
	}
	for name, into := range map[string]*uint64{
		"rx_packets": &d.RXPackets, "rx_bytes": &d.RXBytes, "tx_packets": &d.TXPackets, "tx_bytes": &d.TXBytes,
		"rx_dropped": &d.RXDropped, "rx_errors": &d.RXErrors, "rx_missed_errors": &d.RXMissed, "tx_dropped": &d.TXDropped,
	} {
		if n, ok := s.Get(name); ok {
			*into = n
		}
	}
	return d
}

// queuePackets are the receive queues' packets by `ethtool -S`.
func (h *Host) queuePackets(was, is Point, s *collector.Sample, index map[string]int) []collector.NAPI {
	most := map[int]collector.IRQ{} // by interrupt: the CPU that took most
	for _, i := range s.IRQs {
		if m, ok := most[i.IRQ]; !ok || i.Count > m.Count {
			most[i.IRQ] = i
		}
	}
	queueIRQ := map[string]map[int]int{}
	for _, n := range h.NICs() {
		queueIRQ[n.Name] = map[int]int{}
		for _, q := range n.Queues {
			if q.RX != nic.None && q.IRQ != nic.None {
				queueIRQ[n.Name][q.RX] = q.IRQ
			}
		}
	}
	var out []collector.NAPI
	for _, name := range slices.Sorted(maps.Keys(is.Stats)) {
		before := map[int]uint64{}
		if b := was.Stats[name]; b != nil {
			for _, q := range b.Queues() {
				if !q.TX {
					before[q.Queue] = q.Packets
				}
			}
		} else if len(was.Stats) > 0 {
			continue
		}
		for _, q := range is.Stats[name].Queues() {
			if q.TX || q.Packets < before[q.Queue] {
				continue
			}
			cpu := collector.NoCPU
			if irq, ok := queueIRQ[name][q.Queue]; ok {
				if on, fired := most[irq]; fired {
					cpu = on.CPU
				}
			}
			out = append(out, collector.NAPI{
				IfIndex: index[name], Device: name, RXQueue: q.Queue, CPU: cpu, Packets: q.Packets - before[q.Queue],
			})
		}
	}
	return out
}

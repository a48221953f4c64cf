package nic

import (
	"cmp"
	"fmt"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/rxsteer/rxsteer/internal/cpuset"
	"github.com/rxsteer/rxsteer/internal/netdev"
)

// link is what serves one queue, and who says so.
type link struct {
	irq      int
	napi     uint32
	thread   int
	vector   string
	function string
	xsk      bool
	cpu      cpuset.Set // of a vmbus channel, which has no IRQ
	by       Source
}

// candidate is an interrupt that may belong to a device.
type candidate struct {
	*line
	labels []label // only of the actions that are this device's
	name   string  // the action that is this device's
	msi    bool    // the device's own folder names it, not only a text
	shared bool    // other devices have handlers on the same line
}

// mapQueues fills Queues, Control, Problems and Notes of d.
func (s *scan) mapQueues(d *device) {
	m := &mapping{scan: s, device: d, links: make(map[role]*link)}
	m.readNetlink()
	switch {
	case d.Kind != Physical:
	case fact(d.Driver, VmbusChannels) != nil:
		m.readChannels()
	default:
		m.candidates()
		m.reread()
		m.byName()
		m.byOrder()
	}
	m.crossCheck()
	m.rows()
	m.unlinked()
	m.gaps()
}

// mapping is the map of one device in the making.
type mapping struct {
	*scan
	*device
	links   map[role]*link
	found   []candidate // not yet placed
	names   map[string]int
	seen    int // vectors found, placed or not
	control []candidate
	napis   []netdev.NAPI // by id
}

// at returns the link of a queue that exists, nil for another.
func (m *mapping) at(r role) *link {
	have := m.device.rx
	if r.tx {
		have = m.device.tx
	}
	if _, ok := slices.BinarySearch(have, r.queue); !ok {
		return nil
	}
	l := m.links[r]
	if l == nil {
		l = &link{irq: None}
		m.links[r] = l
	}
	return l
}

// readNetlink takes queues and NAPIs of the netdev family. It also gives the
// queues of a kernel whose sysfs has none.
func (m *mapping) readNetlink() {
	if m.Netdev == nil {
		return
	}
	queues, err := m.Netdev.Queues(m.IfIndex)
	if err != nil {
		if !absent(err) {
			m.problem("netdev netlink does not tell the queues of %s: %v", m.Name, err)
		}
		return
	}
	napis, err := m.Netdev.NAPIs(m.IfIndex)
	if err != nil && !absent(err) {
		m.problem("netdev netlink does not tell the NAPIs of %s: %v", m.Name, err)
	}
	m.napis = napis
	byID := make(map[uint32]netdev.NAPI, len(napis))
	for _, n := range napis {
		byID[n.ID] = n
	}
	if len(m.device.rx)+len(m.device.tx) == 0 {
		for _, q := range queues {
			if q.Type == netdev.TX {
				m.device.tx = append(m.device.tx, q.ID)
			} else {
				m.device.rx = append(m.device.rx, q.ID)
			}
		}
		slices.Sort(m.device.rx)
		slices.Sort(m.device.tx)
	}
	for _, q := range queues {
		r := role{q.Type == netdev.TX, q.ID}
		l := m.at(r)
		if l == nil {
			// The two are read one after the other; a channel change in between
			// shows here.
			m.problem("netdev netlink tells of %s of %s, which sysfs does not have", r, m.Name)
			continue
		}
		l.napi, l.xsk = q.NAPI, q.XSK
		n, ok := byID[q.NAPI]
		if q.NAPI != 0 && !ok && len(napis) > 0 {
			m.problem("%s of %s has NAPI %d, which napi-get does not know", r, m.Name, q.NAPI)
		}
		if n.PID != nil {
			l.thread = *n.PID
		}
		if n.IRQ != nil && *n.IRQ > 0 {
			l.irq, l.by = *n.IRQ, ByNetlink
		}
	}
}

// candidates collects the interrupts that belong to the device: named by its
// own folder (msi_irqs, irq), or by an action name that holds its interface or bus
// address. A name alone loses against another device's msi_irqs.
func (m *mapping) candidates() {
	own := make(map[int]bool)  // named by the device's msi_irqs
	wire := make(map[int]bool) // the device's interrupt pin, which others may share
	usb := ""                  // root hub, "usb1"
	var controller []int       // interrupts of the USB host controller
	for _, p := range m.parents {
		irqs := p.msi
		if len(irqs) == 0 && p.irq != None {
			irqs = []int{p.irq}
		}
		switch {
		case p.subsystem == "usb":
			if strings.HasPrefix(p.name, "usb") {
				usb = p.name
			}
			continue
		case usb != "":
			controller = append(controller, irqs...)
		default:
			for _, i := range irqs {
				own[i], wire[i] = p.irq == None, p.irq != None
			}
		}
		if p.msiEmpty {
			m.note("%s/msi_irqs is an empty folder: vectors are known by name only", p.path)
		}
	}
	neighbours := m.sameFunction()
	for _, irq := range slices.Sorted(maps.Keys(m.irqs.lines)) {
		l := m.irqs.lines[irq]
		c := candidate{line: l, msi: own[irq] || wire[irq]}
		take := func(own bool) {
			for i, lab := range l.labels {
				if m.mine(lab, l.actions[i], own, usb, neighbours) {
					c.labels = append(c.labels, lab)
					if c.name == "" {
						c.name = l.actions[i]
					}
				}
			}
		}
		take(own[irq])
		if len(c.labels) == 0 && wire[irq] {
			take(true) // on its pin, under a name that tells nothing
		}
		if usb != "" && len(c.labels) == 0 && slices.Contains(controller, irq) && len(m.usbCandidates()) == 0 {
			c.labels, c.name, c.msi = []label{{}}, strings.Join(l.actions, ", "), true
		}
		if len(c.labels) == 0 {
			continue
		}
		c.shared = len(c.labels) < len(l.actions)
		if f := m.irqs.function[irq]; !c.msi && f != "" && !m.hasParent(f) && usb == "" && !slices.ContainsFunc(c.labels, func(lab label) bool { return lab.bus == f }) {
			m.problem("IRQ %d is called %q but belongs to %s, not to %s of %s: left out", irq, c.name, f, m.Bus, m.Name)
			continue
		}
		m.found = append(m.found, c)
	}
	if usb != "" && len(m.found) > 0 {
		m.note("%s is on the USB bus %s: its interrupt is that of the host controller and is shared with every device there", m.Name, usb)
	}
}

func (m *mapping) usbCandidates() []candidate {
	return slices.DeleteFunc(slices.Clone(m.found), func(c candidate) bool { return !strings.Contains(c.name, ":usb") })
}

// mine decides whether one action is the device's.
func (m *mapping) mine(lab label, action string, own bool, usb string, neighbours []string) bool {
	switch {
	case usb != "":
		// "xhci-hcd:usb1", usb_add_hcd in drivers/usb/core/hcd.c.
		_, bus, ok := strings.Cut(action, ":")
		return ok && bus == usb
	case lab.device == m.Name:
		return true
	case lab.device != "" && slices.Contains(neighbours, lab.device):
		return false // the other port of the same function
	case lab.device != "" && !own && !m.hasParent(lab.bus):
		return false
	case own:
		if lab.device != "" && len(neighbours) == 0 {
			if m.exists(lab.device) {
				m.problem("%q is an interrupt of %s by its folder, though its name is that of %s", action, m.Name, lab.device)
			} else {
				m.note("interrupts of %s are still called %s: it was renamed after they were requested", m.Name, lab.device)
			}
		}
		return true
	default:
		return lab.bus != "" && m.hasParent(lab.bus) || slices.ContainsFunc(m.parents, func(p parent) bool { return p.subsystem == "platform" && boundary(action, p.name) })
	}
}

// boundary reports that text starts with name as a whole word.
func boundary(text, name string) bool {
	rest, ok := strings.CutPrefix(text, name)
	return ok && (rest == "" || strings.ContainsRune("-:@ ,", rune(rest[0])))
}

func (m *mapping) exists(name string) bool {
	return slices.ContainsFunc(m.devices, func(d *device) bool { return d.Name == name })
}

// hasParent reports whether a bus address of an action name is this device's.
func (m *mapping) hasParent(bus string) bool {
	if bus == "" {
		return false
	}
	return slices.ContainsFunc(m.parents, func(p parent) bool {
		return p.spelled() == bus
	})
}

// sameFunction lists the other interfaces on the same bus device (the ports of
// an mlx4 function, the MACs of a mtk_eth_soc, the vports of MANA).
func (m *mapping) sameFunction() []string {
	if len(m.parents) == 0 {
		return nil
	}
	var out []string
	for _, d := range m.devices {
		if d != m.device && len(d.parents) > 0 && d.parents[0].path == m.parents[0].path {
			out = append(out, d.Name)
		}
	}
	return out
}

// reread asks the grammar once more about the vectors that the device's folder
// names, when some of them did not tell what they serve.
func (m *mapping) reread() {
	var own []int
	silent := false
	for _, c := range m.found {
		if c.msi && !c.shared {
			own = append(own, c.irq)
			silent = silent || !c.told()
		}
	}
	if !silent {
		return
	}
	lines := m.irqs.again(own)
	for i, c := range m.found {
		if l := lines[c.irq]; l != nil && c.msi && !c.shared {
			m.found[i].labels = l.labels
		}
	}
}

// told reports whether a name says which queue it serves, or that it serves none.
func (c candidate) told() bool {
	return slices.ContainsFunc(c.labels, func(l label) bool { return l.control || len(l.roles) > 0 })
}

// byName links the queues that action names tell.
func (m *mapping) byName() {
	m.names, m.seen = make(map[string]int), len(m.found)
	for _, c := range m.found {
		m.names[c.name]++
	}
	rest := m.found[:0:0]
	idle, byOrder := 0, false
	for _, c := range m.found {
		told, used := false, false
		for _, lab := range c.labels {
			for _, r := range lab.roles {
				told = true
				l := m.at(r)
				if l == nil {
					continue
				}
				used = true
				if m.names[c.name] > 1 {
					byOrder = true
					m.claim(r, l, c, ByOrder)
				} else {
					m.claim(r, l, c, ByName)
				}
			}
		}
		switch {
		case used:
		case told:
			idle++
			m.control = append(m.control, c)
		case !slices.ContainsFunc(c.labels, func(l label) bool { return !l.control }):
			m.control = append(m.control, c)
		default:
			rest = append(rest, c)
		}
	}
	if byOrder {
		m.problem("several vectors of %s have the same name: queues are inferred by MSI-X order", m.Name)
	}
	if idle > 0 {
		m.note("%d vectors of %s back no active queue: the driver keeps them from a larger queue count", idle, m.Name)
	}
	m.found = rest // what has no index
}

// claim joins one source's word on a queue to what is already known.
func (m *mapping) claim(r role, l *link, c candidate, by Source) {
	if by == ByName && c.msi {
		by = ByMSI
	}
	switch {
	case l.irq == None:
		l.irq, l.by, l.vector = c.irq, by, c.name
	case l.irq == c.irq:
		l.vector = c.name
	case l.by == ByNetlink:
		m.conflict(r, l, c)
	case l.vector != c.name || by != l.by:
		m.problem("%s of %s is claimed by IRQ %d (%s) and IRQ %d (%s): kept the first", r, m.Name, l.irq, l.vector, c.irq, c.name)
	}
}

// conflict reports that netlink and a name disagree, unless the device spans
// several functions, whose numbers restart at each.
func (m *mapping) conflict(r role, l *link, c candidate) {
	if f := fact(m.Driver, IndexPerFunction); f != nil && m.spans() {
		m.note("%s spans several PCI functions; %s", m.Name, f.Text)
		return
	}
	m.problem("netlink says IRQ %d serves %s of %s, the name of IRQ %d (%s) says it does: netlink is taken", l.irq, r, m.Name, c.irq, c.name)
}

// spans reports whether netlink names interrupts of more than one PCI function.
func (m *mapping) spans() bool {
	seen := ""
	for _, r := range m.queues() {
		l := m.at(r)
		if l.by != ByNetlink {
			continue
		}
		f := m.functionOf(l.irq)
		if f != "" && seen != "" && f != seen {
			return true
		}
		seen = cmp.Or(f, seen)
	}
	return false
}

func (m *mapping) functionOf(irq int) string {
	if f := m.irqs.function[irq]; f != "" {
		return f
	}
	if l := m.irqs.lines[irq]; l != nil {
		for _, lab := range l.labels {
			if lab.bus != "" {
				return lab.bus
			}
		}
	}
	return ""
}

// byOrder links vectors whose names tell no queue: one vector serves all, a
// driver fact may tell the order, and otherwise as many vectors as queues are
// taken in MSI-X order, which is a guess and said to be one.
func (m *mapping) byOrder() {
	var rest []candidate
	served := make(map[int]bool)
	for _, l := range m.links {
		if l.irq != None {
			served[l.irq] = true
		}
	}
	for _, c := range m.found {
		switch {
		case served[c.irq]:
		case len(served) > 0 && m.names[c.name] == 1:
			// Beside vectors whose queues are known, one that tells none is the link,
			// mailbox or admin vector.
			m.control = append(m.control, c)
		default:
			rest = append(rest, c)
		}
	}
	m.found = nil
	if len(rest) == 0 {
		return
	}
	open := m.open()
	if len(open) == 0 {
		m.control = append(m.control, rest...)
		return
	}
	slices.SortFunc(rest, func(a, b candidate) int { return compareLines(rest, a, b) })
	if len(rest) == 1 {
		for _, r := range open {
			by := ByName
			if rest[0].msi {
				by = ByMSI
			}
			m.claim(r, m.at(r), rest[0], by)
		}
		return
	}
	if len(served) > 0 || len(rest) < len(m.device.rx) {
		m.problem("%d vectors of %s have no queue in their names and there are %d rx queues: which serves which is not known", len(rest), m.Name, len(m.device.rx))
		return
	}
	for i, c := range rest {
		used := false
		for _, r := range []role{{false, i}, {true, i}} {
			if slices.Contains(open, r) {
				m.claim(r, m.at(r), c, ByOrder)
				used = true
			}
		}
		if !used {
			m.control = append(m.control, c)
		}
	}
	m.problem("vectors of %s have no queue in their names: queues are inferred by MSI-X order", m.Name)
}

func compareLines(all []candidate, a, b candidate) int {
	hw := !slices.ContainsFunc(all, func(c candidate) bool { return !c.hasHW })
	if hw && a.hwirq != b.hwirq {
		return cmp.Compare(a.hwirq, b.hwirq)
	}
	return cmp.Compare(a.irq, b.irq)
}

// queues lists the queues that exist, receive first.
func (m *mapping) queues() []role {
	out := make([]role, 0, len(m.device.rx)+len(m.device.tx))
	for _, q := range m.device.rx {
		out = append(out, role{false, q})
	}
	for _, q := range m.device.tx {
		out = append(out, role{true, q})
	}
	return out
}

// open lists the queues whose interrupt nobody has told yet.
func (m *mapping) open() []role {
	return slices.DeleteFunc(m.queues(), func(r role) bool { return m.at(r).irq != None })
}

// readChannels takes the channels of a vmbus device: they have a CPU and no
// IRQ; interrupts are counted in the HYP row of /proc/interrupts. Channel i of a
// device (subchannel_id) is its queue i
// (Documentation/ABI/stable/sysfs-bus-vmbus; netvsc_open: nvscdev->chan_table).
func (m *mapping) readChannels() {
	if len(m.parents) == 0 {
		return
	}
	dir := path.Join(m.parents[0].path, "channels")
	list, err := m.FS.ReadDir(dir)
	if err != nil {
		m.problem("read vmbus channels of %s: %v", m.Name, err)
		return
	}
	for _, e := range list {
		sub, err := readInt(m.FS, path.Join(dir, e.Name(), "subchannel_id"))
		if err != nil {
			m.problem("read vmbus channel %s of %s: %v", e.Name(), m.Name, err)
			continue
		}
		cpu, err := readInt(m.FS, path.Join(dir, e.Name(), "cpu"))
		for _, r := range []role{{false, sub}, {true, sub}} {
			l := m.at(r)
			if l == nil {
				continue
			}
			l.vector = "vmbus channel " + e.Name()
			l.by = ByMSI
			if err == nil {
				l.cpu = cpuset.Of(cpu)
			}
		}
	}
	m.note("queues of %s are vmbus channels: they have a CPU and no IRQ, their interrupts count in the HYP row", m.Name)
}

// crossCheck compares netlink's IRQs with the folder and with the names.
func (m *mapping) crossCheck() {
	spans := m.spans()
	own := make(map[int]bool)
	for _, p := range m.parents {
		for _, i := range p.msi {
			own[i] = true
		}
	}
	for _, r := range m.queues() {
		l := m.at(r)
		if l.irq == None {
			continue
		}
		n := m.irqs.lines[l.irq]
		if n == nil {
			if l.by == ByNetlink {
				m.problem("netlink says IRQ %d serves %s of %s, but no handler sits on it", l.irq, r, m.Name)
			}
			continue
		}
		if l.vector == "" {
			l.vector = strings.Join(n.actions, ", ")
		}
		if spans {
			l.function = m.functionOf(l.irq)
		}
		if l.by != ByNetlink || spans {
			continue
		}
		if len(own) > 0 && !own[l.irq] {
			m.problem("netlink says IRQ %d serves %s of %s, but msi_irqs of %s does not hold it", l.irq, r, m.Name, m.Bus)
		}
	}
	if spans {
		f := fact(m.Driver, IndexPerFunction)
		if f != nil {
			m.note("%s spans several PCI functions; %s", m.Name, f.Text)
		} else {
			m.problem("netlink names interrupts of several PCI functions for %s, which driver %q is not known to do", m.Name, m.Driver)
		}
	}
}

// rows builds Queues and Control.
func (m *mapping) rows() {
	extra := m.xskFrom()
	type served struct {
		affinity, effective cpuset.Set
		node                int
	}
	cache := make(map[int]served)
	serve := func(irq int) served {
		if x, ok := cache[irq]; ok {
			return x
		}
		x := served{node: None}
		dir := path.Join(procIRQ, strconv.Itoa(irq))
		x.affinity, _ = readList(m.FS, path.Join(dir, "smp_affinity_list"))
		x.effective, _ = readList(m.FS, path.Join(dir, "effective_affinity_list"))
		if n, err := readInt(m.FS, path.Join(dir, "node")); err == nil && n >= 0 {
			x.node = n
		}
		cache[irq] = x
		return x
	}
	row := func(l *link, rx, tx int) Queue {
		q := Queue{RX: rx, TX: tx, NAPI: l.napi, IRQ: l.irq, Vector: l.vector, Node: None, XSK: l.xsk, Thread: l.thread, KnownBy: l.by, Function: l.function, Effective: l.cpu}
		if l.irq != None {
			x := serve(l.irq)
			q.Affinity, q.Effective, q.Node = x.affinity, x.effective, x.node
		}
		dir := path.Join(classNet, m.Name, "queues")
		if rx != None {
			q.RPS, _ = readMask(m.FS, path.Join(dir, fmt.Sprintf("rx-%d/rps_cpus", rx)))
			q.XSK = q.XSK || extra > 0 && rx >= extra
		}
		if tx != None {
			q.XPS, _ = readMask(m.FS, path.Join(dir, fmt.Sprintf("tx-%d/xps_cpus", tx)))
		}
		return q
	}
	paired := make(map[int]bool)
	m.Queues = []Queue{}
	for _, i := range m.device.rx {
		l := m.at(role{false, i})
		tx := None
		if t := m.at(role{true, i}); t != nil && l.irq == t.irq && (l.napi == t.napi || l.napi == 0 || t.napi == 0) {
			tx, paired[i] = i, true
			if l.napi == 0 {
				l.napi = t.napi
			}
		}
		m.Queues = append(m.Queues, row(l, i, tx))
	}
	for _, i := range m.device.tx {
		if !paired[i] {
			m.Queues = append(m.Queues, row(m.at(role{true, i}), None, i))
		}
	}
	slices.SortFunc(m.control, func(a, b candidate) int { return cmp.Compare(a.irq, b.irq) })
	for _, c := range m.control {
		m.Control = append(m.Control, Vector{IRQ: c.irq, Name: c.name})
	}
}

// unlinked takes NAPIs that netlink tells without their queues, as of igb in Linux 6.12. Its
// list is complete, of a device that is up.
func (m *mapping) unlinked() {
	if len(m.napis) == 0 || m.told() {
		return
	}
	var ids []uint32
	for _, n := range m.napis {
		ids = append(ids, n.ID)
	}
	slices.Sort(ids)
	m.linkInOrder(ids, true)
	for i, q := range m.Queues {
		k := slices.IndexFunc(m.napis, func(n netdev.NAPI) bool { return q.NAPI != 0 && n.ID == q.NAPI && n.PID != nil })
		if k >= 0 {
			m.Queues[i].Thread = *m.napis[k].PID
		}
	}
}

// xskFrom returns the first rx queue that exists for AF_XDP only, 0 none:
// mlx5 of 5.3–6.0 shows 2N rx queues in sysfs for N channels.
func (m *mapping) xskFrom() int {
	rx := m.channels
	if rx == 0 || rx >= len(m.device.rx) {
		return 0
	}
	if f := fact(m.Driver, XSKDoubles); f != nil && len(m.device.rx) == 2*rx {
		m.note("%s has %d channels and %d rx queues in sysfs: %s", m.Name, rx, len(m.device.rx), f.Text)
		return rx
	}
	m.problem("%s has %d rx channels by ethtool and %d rx queues in sysfs", m.Name, rx, len(m.device.rx))
	return 0
}

// gaps says what the map lacks.
func (m *mapping) gaps() {
	if m.Kind != Physical {
		return
	}
	none := fact(m.Driver, NoIRQ)
	var open []string
	linked := 0
	for _, q := range m.Queues {
		switch {
		case q.IRQ != None || q.KnownBy != Unknown:
			linked++
		case q.RX != None && !q.XSK:
			open = append(open, strconv.Itoa(q.RX))
		}
	}
	switch {
	case none != nil:
		m.note("%s: %s", m.Name, none.Text)
	case linked == 0 && m.seen == 0 && m.Up:
		m.problem("%s is up and no interrupt of it was found, neither in %s nor in /proc/interrupts", m.Name, m.looked())
	case linked == 0 && !m.Up:
		m.note("%s is down: its driver may request interrupts only when it comes up", m.Name)
	case len(open) > 0:
		m.problem("which interrupt serves rx %s of %s is not known", strings.Join(open, ","), m.Name)
	}
	for _, p := range m.irqs.problems {
		m.problem("%s", p)
	}
}

func (m *mapping) looked() string {
	if len(m.parents) == 0 {
		return "sysfs (no bus device)"
	}
	return m.parents[len(m.parents)-1].path
}

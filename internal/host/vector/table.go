package vector

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math/bits"
	"slices"
	"strconv"
	"strings"

	"github.com/rxsteer/rxsteer/internal/host/procfs"
)

// Row is one row of /proc/interrupts, understood; its JSON is that of `rxsteer irqs -o json`.
type Row struct {
	IRQ     string   `json:"irq"` // "28", "NMI"
	Chip    string   `json:"chip"`
	HWIRQ   string   `json:"hwirq"`
	Trigger string   `json:"trigger"`
	Counts  Counts   `json:"counts"`
	Total   uint64   `json:"total"`
	Actions []Action `json:"actions"`

	Number int `json:"-"` // the Linux interrupt number, None in architecture rows
	Line   int `json:"-"` // of the text
}

// Action is one of those who share an interrupt.
type Action struct {
	Name string `json:"name"`
	Vector
}

// MarshalJSON writes queue as null where it is not known; a vector of two different queues
// shows the receive queue.
func (a Action) MarshalJSON() ([]byte, error) {
	var queue *int
	if q := a.Queue(); q != None {
		queue = &q
	}
	return json.Marshal(struct {
		Name       string     `json:"name"`
		Device     string     `json:"device"`
		BDF        string     `json:"bdf"`
		Kind       Kind       `json:"kind"`
		Queue      *int       `json:"queue"`
		Confidence Confidence `json:"confidence"`
	}{a.Name, a.Device, a.BDF, a.Kind, queue, a.Confidence})
}

// Counts are the interrupts by CPU. In JSON they are an object {"0":1,"2":5}; rows that
// have one figure for the whole machine, or none, are {}.
type Counts struct {
	CPUs   []int
	Values []uint64 // one for each of CPUs, or none
}

// MarshalJSON writes the object in the order of the CPUs.
func (c Counts) MarshalJSON() ([]byte, error) {
	b := []byte{'{'}
	for i, v := range c.Values {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, '"')
		b = strconv.AppendInt(b, int64(c.CPUs[i]), 10)
		b = append(b, '"', ':')
		b = strconv.AppendUint(b, v, 10)
	}
	return append(b, '}'), nil
}

// entry is an action on its way through Table.
type entry struct {
	row    *Row
	action *Action
	form   *form // nil where no form fits
	msi    int   // index of the MSI or MSI-X entry within the function, None unknown
}

func (e *entry) bare() bool { return e.form != nil && e.form.bare }

func (e *entry) gve() bool {
	return e.form != nil && strings.Contains(e.form.pattern, "ntfy-bl")
}

// order sorts vectors of one device as the driver made them: by MSI entry where
// all tell it, else by interrupt number.
func order(a, b *entry) int {
	if a.msi != None && b.msi != None {
		return cmp.Or(cmp.Compare(a.msi, b.msi), cmp.Compare(a.row.Number, b.row.Number))
	}
	return cmp.Compare(a.row.Number, b.row.Number)
}

// Table tells what every interrupt is for, all rows in the order of the text.
// known are the host's interfaces, empty where only the text is at hand. Beyond the
// names it uses the device's address in chip and hwirq, and the other rows of
// the device; what it concludes from those is Inferred.
func Table(t *procfs.Interrupts, known []Interface) []Row {
	rows := make([]Row, len(t.Rows))
	index := newIndex(known)
	var entries []*entry
	for i := range t.Rows {
		r := &t.Rows[i]
		rows[i] = Row{
			IRQ: valid(r.Name()), Chip: valid(r.Chip), HWIRQ: r.HWIRQ, Trigger: valid(r.Trigger),
			Total: r.Total(), Actions: []Action{}, Number: r.IRQ, Line: r.Line,
		}
		row := &rows[i]
		if len(r.Counts) == len(t.CPUs) {
			row.Counts = Counts{t.CPUs, r.Counts}
		}
		if r.IRQ == procfs.None {
			if r.Text != "" {
				row.Actions = append(row.Actions, Action{valid(r.Text), Vector{Kind: Other, RXQueue: None, TXQueue: None, Confidence: Unsure}})
			}
			continue
		}
		bdf, msi := address(r.Chip, r.HWIRQ)
		for _, name := range r.Actions {
			v, f := index.parse(name)
			if v.BDF == "" {
				v.BDF = bdf
			}
			row.Actions = append(row.Actions, Action{valid(name), v})
			entries = append(entries, &entry{row: row, form: f, msi: msi})
		}
		for j := range row.Actions {
			entries[len(entries)-len(row.Actions)+j].action = &row.Actions[j]
		}
	}
	linkByAddress(entries, known)
	gveBlocks(entries)
	for _, group := range byDevice(entries) {
		d := device{entries: group, cpus: len(t.CPUs), known: index.name[group[0].action.Device]}
		d.notNetwork()
		d.bareNames()
		d.oddNumbers()
		d.repeatedNames()
		d.beyondCPUs()
	}
	return rows
}

func valid(s string) string { return strings.ToValidUTF8(s, "\uFFFD") }

// address takes the PCI address and MSI entry out of an interrupt's chip and hwirq:
//   - "PCI-MSIX-0000:00:08.0", since 6.2 on x86, hwirq is the entry
//     (msi_create_device_irq_domain in kernel/irq/msi.c);
//   - before, and on other architectures, hwirq is entry | devfn<<11 | bus<<19 | domain<<27
//     (pci_msi_domain_calc_hwirq in drivers/pci/msi/irqdomain.c).
//
// Devices number 0 cannot be told from other schemes and are left out.
func address(chip, hwirq string) (bdf string, msi int) {
	hw, err := strconv.ParseUint(hwirq, 10, 64)
	if err != nil || !strings.Contains(chip, "MSI") {
		return "", None
	}
	if i := len(chip) - len("0000:00:00.0"); i > 0 && isBDF(chip[i:]) {
		return chip[i:], int(hw & 0x7ff)
	}
	if !slices.Contains([]string{"PCI-MSI", "IR-PCI-MSI", "ITS-MSI", "Hyper-V PCIe MSI"}, chip) {
		return "", None
	}
	dev, domain := hw>>11&0xffff, hw>>27
	if dev == 0 && domain == 0 || domain > 0xffff {
		return "", int(hw & 0x7ff)
	}
	return fmt.Sprintf("%04x:%02x:%02x.%x", domain, dev>>8, dev>>3&0x1f, dev&7), int(hw & 0x7ff)
}

// linkByAddress names the device of vectors that tell only its address, when another
// vector of that address names it: "ice-0000:17:00.0:misc" beside "ice-ens1-TxRx-0".
func linkByAddress(entries []*entry, known []Interface) {
	device := map[string]string{} // "" where two interfaces share the function
	for _, i := range known {
		for _, id := range i.Bus {
			if isBDF(id) {
				note(device, id, i.Name)
			}
		}
	}
	for _, e := range entries {
		if v := e.action.Vector; v.BDF != "" && v.Device != "" && e.form != nil && strings.Contains(e.form.pattern, "{if}") {
			note(device, v.BDF, v.Device)
		}
	}
	for _, e := range entries {
		if v := &e.action.Vector; v.Device == "" && e.form != nil {
			v.Device = device[v.BDF]
		}
	}
}

func note(m map[string]string, key, value string) {
	if was, ok := m[key]; ok && was != value {
		value = ""
	}
	m[key] = value
}

// gveBlocks: of a gve device's notify blocks the lower half serve transmit, the upper half
// receive (gve_tx_idx_to_ntfy, gve_rx_idx_to_ntfy in google/gve/gve.h); the
// vector after the last block is the management one, which tells how many there are
// when the text lacks some. Blocks beyond the queues in use stay allocated.
func gveBlocks(entries []*entry) {
	type owner struct{ bdf, device string }
	of := func(e *entry) owner { return owner{e.action.BDF, e.action.Device} }
	groups := map[owner][]*entry{}
	mgmt := map[owner]int{} // MSI entry of the management vector
	for _, e := range entries {
		switch {
		case e.gve():
			groups[of(e)] = append(groups[of(e)], e)
		case e.form != nil && e.form.kind == Control && e.msi != None && strings.Contains(e.form.pattern, "mgmnt"):
			mgmt[of(e)] = e.msi
		}
	}
	for who, group := range groups {
		total, base, high := len(group), None, 0
		seen := map[int]bool{}
		for _, e := range group {
			n := block(e.action.Name)
			seen[n] = true
			high = max(high, n)
			if e.msi != None {
				base = e.msi - n
			}
		}
		if len(seen) != len(group) { // several devices under one name: "eth%d-ntfy-block.0" twice
			continue
		}
		if last, ok := mgmt[who]; ok && base != None {
			total = last - base
		}
		if total%2 != 0 || total <= high {
			continue
		}
		for _, e := range group {
			v := &e.action.Vector
			v.Confidence = Inferred
			if n := block(e.action.Name); n < total/2 {
				v.Kind, v.TXQueue = TX, n
			} else {
				v.Kind, v.RXQueue = RX, n-total/2
			}
		}
	}
}

// block is the number in "gve-ntfy-blk3@pci:…" and "eth%d-ntfy-block.3".
func block(name string) int {
	_, s, _ := strings.Cut(name, "ntfy-bl")
	s = strings.TrimLeft(s, "ock.")
	end := 0
	for end < len(s) && s[end]-'0' < 10 {
		end++
	}
	n := None
	number(s[:end], &n)
	return n
}

// byDevice groups the entries that name a device, each in the order its driver made them.
func byDevice(entries []*entry) [][]*entry {
	groups := map[string][]*entry{}
	var names []string
	for _, e := range entries {
		if d := e.action.Device; d != "" && e.form != nil {
			if groups[d] == nil {
				names = append(names, d)
			}
			groups[d] = append(groups[d], e)
		}
	}
	out := make([][]*entry, 0, len(names))
	for _, d := range names {
		slices.SortStableFunc(groups[d], order)
		out = append(out, groups[d])
	}
	return out
}

// device is the vectors of one device in their order.
type device struct {
	entries []*entry
	known   *Interface // nil unknown
	cpus    int
}

func (d *device) driver() string {
	if d.known == nil {
		return ""
	}
	return d.known.Driver
}

func (d *device) queues() (rx, tx int) {
	if d.known == nil {
		return 0, 0
	}
	return d.known.RX, d.known.TX
}

func (e *entry) serves(k Kind, rx, tx int) {
	e.action.Kind, e.action.RXQueue, e.action.TXQueue = k, rx, tx
	e.action.Confidence = Inferred
}

// notNetwork: a virtio device with queues of other names ("virtio1-req.0") is a disk or console,
// and its config vector no NIC's.
func (d *device) notNetwork() {
	others := false
	for _, e := range d.entries {
		if e.action.Kind == RX || e.action.Kind == TX || d.known != nil {
			return
		}
		others = others || e.form.pattern == "{virtio}-{w}"
	}
	for _, e := range d.entries {
		if others && e.form.pattern == "{virtio}-config" {
			e.action.Kind, e.action.Confidence = Other, Unsure
		}
	}
}

// bareNames decides on vectors that are called like the interface or platform device.
func (d *device) bareNames() {
	var bare []*entry
	named := false // another vector tells its queue
	txOnly := true
	for _, e := range d.entries {
		switch {
		case e.bare():
			bare = append(bare, e)
		case e.action.Kind == RX || e.action.Kind == TXRX:
			named, txOnly = true, false
		case e.action.Kind == TX:
			named = true
		}
	}
	rx, tx := d.queues()
	switch {
	case len(bare) == 0:
	case named && txOnly && len(bare) == 1: // am65-cpsw: "…-tx0" and a bare receive vector
		bare[0].serves(RX, 0, None)
	case named:
		for _, e := range bare {
			e.serves(Control, None, None)
			e.action.Confidence = Exact
		}
	case len(bare) == 1:
		bare[0].serves(TXRX, only(rx), only(tx))
		if rx == 1 && tx == 1 {
			bare[0].action.Confidence = Exact
		}
	default:
		d.repeatedBare(bare)
	}
}

// repeatedBare decides on several vectors of one name by the order in which
// the driver asks for them.
func (d *device) repeatedBare(bare []*entry) {
	n := len(bare)
	rx, _ := d.queues()
	pci := strings.Contains(bare[0].row.Chip, "MSI")
	switch driver := d.driver(); {
	case driver == "mtk_eth_soc" && n == 2, driver == "" && n == 2 && strings.HasSuffix(bare[0].action.Name, ".ethernet"):
		// mtk_eth_soc: irq[1] transmit, irq[2] receive.
		bare[0].serves(TX, None, 0)
		bare[1].serves(RX, 0, None)
	case driver == "fec", driver == "" && n == 4 && strings.HasSuffix(bare[0].action.Name, ".ethernet"):
		// fec: int0…int2 are queues 0…2 (the first also does the rest), then PPS.
		for i, e := range bare {
			if i < 3 {
				e.serves(TXRX, i, i)
			} else {
				e.serves(Control, None, None)
			}
		}
	case driver == "bcmgenet" && n == 2, driver == "" && n == 2 && !pci:
		// bcmgenet: irq0 the default ring, irq1 all priority rings.
		bare[0].serves(TXRX, 0, 0)
		bare[1].serves(TXRX, None, None)
	case driver == "stmmac", strings.HasPrefix(driver, "dwmac"), driver == "" && n == 3 && !pci:
		// stmmac: the MAC's interrupt does all, then wake-up and low-power idle.
		bare[0].serves(TXRX, 0, 0)
		for _, e := range bare[1:] {
			e.serves(Control, None, None)
		}
	case pci && n > 1:
		// atlantic: min(8, online CPUs, vectors − 1) queues, rounded down to a power of
		// two (aq_nic_cfg_update_num_vecs), then PTP and link.
		if rx == 0 {
			rx = 1 << (bits.Len(uint(min(8, d.cpus, n-1))) - 1)
		}
		for i, e := range bare {
			if i < rx {
				e.serves(TXRX, i, i)
			} else {
				e.serves(Control, None, None)
			}
		}
	}
}

// oddNumbers decides on drivers that count vectors rather than queues, where the interface's
// driver is not known.
func (d *device) oddNumbers() {
	if d.driver() != "" {
		return
	}
	var tx0, rx0, rx1, vector0 *entry
	var plain, both []*entry
	for _, e := range d.entries {
		if e.form == nil {
			continue
		}
		v := &e.action.Vector
		switch e.form.pattern {
		case "{if}-rx-{n}":
			plain = append(plain, e)
			if v.RXQueue == 0 {
				rx0 = e
			} else if v.RXQueue == 1 {
				rx1 = e
			}
		case "{if}-tx-{n}":
			if v.TXQueue == 0 {
				tx0 = e
			}
		case "{if}-txrx-{n}":
			both = append(both, e)
			if v.RXQueue == 0 {
				rx0 = e
			} else if v.RXQueue == 1 {
				rx1 = e
			}
		case "{if}-tx-{t}-rx-{n}":
			return // qlcnic
		case "{if}-{n}":
			if v.RXQueue == 0 {
				vector0 = e
			}
		}
	}
	if rx0 != nil || rx1 == nil {
		return
	}
	switch {
	case len(plain) > 0 && tx0 != nil && vector0 == nil && len(both) == 0:
		// be2net: "tx-0" is transmit and the default receive queue. (tg3 looks the same, where
		// "rx-1" is receive queue 0; with the driver known the grammar knows better.)
		tx0.serves(TXRX, 0, 0)
		for _, e := range plain {
			e.action.Confidence = Inferred
		}
	case vector0 != nil || tx0 != nil:
		// tg3: vector 0 has no receive ring.
		if vector0 != nil {
			vector0.serves(Control, None, None)
		}
		for _, e := range slices.Concat(plain, both) {
			v := &e.action.Vector
			v.RXQueue--
			if v.TXQueue != None {
				v.TXQueue--
			}
			v.Confidence = Inferred
		}
	}
}

// repeatedNames numbers queues whose names were cut short, so that several read the same,
// by their order among the device's queues of that kind.
func (d *device) repeatedNames() {
	for _, kind := range []Kind{TXRX, RX, TX} {
		var group []*entry
		times := map[string]int{}
		broken := false
		for _, e := range d.entries {
			if e.action.Kind != kind || e.bare() || e.gve() || e.form.whole || e.form.kind != kind {
				continue
			}
			group = append(group, e)
			times[e.action.Name]++
			if times[e.action.Name] > 1 && strings.Contains(e.form.pattern, "{n}") || e.form.length != 0 {
				broken = true
			}
		}
		if !broken {
			continue
		}
		for i, e := range group {
			switch kind {
			case TXRX:
				e.serves(kind, i, i)
			case RX:
				e.serves(kind, i, None)
			case TX:
				e.serves(kind, None, i)
			}
		}
	}
}

// beyondCPUs: drivers that name all their vectors "eth0-N" may have more of them than queues
// (r8125: 32 whatever the number of queues).
func (d *device) beyondCPUs() {
	rx, tx := d.queues()
	limit := max(rx, tx)
	if limit == 0 {
		limit = d.cpus
	}
	for _, e := range d.entries {
		if e.form.pattern == "{if}-{n}" && e.action.Confidence == Inferred && e.action.RXQueue >= limit {
			e.action.Vector = Vector{Device: e.action.Device, BDF: e.action.BDF, Kind: Other, RXQueue: None, TXQueue: None, Confidence: Unsure}
		}
	}
}

package nic

import (
	"fmt"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/rxsteer/rxsteer/internal/host"
	"github.com/rxsteer/rxsteer/internal/host/procfs"
	"github.com/rxsteer/rxsteer/internal/host/vector"
)

// line is one interrupt of the host that a handler sits on.
type line struct {
	irq     int
	hwirq   uint64
	hasHW   bool
	actions []string
	labels  []label // what each action name says, same order
}

// label is what one action name says by the drivers' grammars.
type label struct {
	device  string // interface name, "" none
	bus     string // bus address or bus id: PCI address, virtio2, vif0, 30be0000.ethernet; "" none
	roles   []role // queues it serves; empty: not told
	control bool   // serves no queue
}

// role is one queue of one direction.
type role struct {
	tx    bool
	queue int
}

func (r role) String() string {
	if r.tx {
		return "tx " + strconv.Itoa(r.queue)
	}
	return "rx " + strconv.Itoa(r.queue)
}

// irqTable is all interrupts of the host and which PCI function each belongs to.
type irqTable struct {
	text     *procfs.Interrupts
	known    []vector.Interface
	lines    map[int]*line
	function map[int]string // IRQ → PCI function whose msi_irqs holds it
	problems []string       // what could not be read
}

// procIRQFiles are the files that are no action folders
// (register_irq_proc in kernel/irq/proc.c).
var procIRQFiles = []string{
	"affinity_hint", "effective_affinity", "effective_affinity_list", "node",
	"smp_affinity", "smp_affinity_list", "spurious",
}

// readActionDirs returns the actions that have a folder below /proc/irq/N: each
// name once, and none that holds a slash (register_handler_proc).
func readActionDirs(f host.FS, irq int) ([]string, error) {
	list, err := f.ReadDir(path.Join(procIRQ, strconv.Itoa(irq)))
	if err != nil {
		return nil, err
	}
	var out []string
	for _, e := range list {
		if !slices.Contains(procIRQFiles, e.Name()) {
			out = append(out, e.Name())
		}
	}
	return out, nil
}

// readIRQs reads /proc/interrupts and, where that tells nothing of an interrupt
// that a device's own folder names, the action folders below /proc/irq.
func readIRQs(f host.FS, devices []*device) *irqTable {
	t := &irqTable{lines: make(map[int]*line), function: make(map[int]string)}
	named := make(map[int]bool)
	for _, d := range devices {
		for _, p := range d.parents {
			for _, irq := range p.msi {
				named[irq] = true
				if p.subsystem == "pci" {
					t.function[irq] = p.name
				}
			}
			if p.irq != None {
				named[p.irq] = true
			}
		}
	}
	const file = "/proc/interrupts"
	table := &procfs.Interrupts{}
	text, err := f.ReadFile(file)
	if err != nil {
		t.problems = append(t.problems, fmt.Sprintf("%s cannot be read (%v): vectors are known by their folders only", file, err))
	} else if parsed, err := procfs.ParseInterrupts(file, text); err != nil {
		t.problems = append(t.problems, err.Error())
	} else {
		table = parsed
	}
	listed := make(map[int]bool)
	for _, r := range table.Rows {
		if len(r.Actions) > 0 {
			listed[r.IRQ] = true
		}
	}
	if len(listed) == 0 { // no table at all: every folder
		list, err := f.ReadDir(procIRQ)
		if err != nil {
			t.problems = append(t.problems, fmt.Sprintf("%s cannot be read: %v", procIRQ, err))
		}
		for _, e := range list {
			if n, err := strconv.Atoi(e.Name()); err == nil {
				named[n] = true
			}
		}
	}
	for _, irq := range slices.Sorted(maps.Keys(named)) {
		if listed[irq] {
			continue
		}
		if actions, err := readActionDirs(f, irq); err == nil && len(actions) > 0 {
			table.Rows = append(table.Rows, procfs.Interrupt{IRQ: irq, Actions: actions})
		}
	}
	t.text, t.known = table, interfaces(devices)
	for _, r := range vector.Table(table, t.known) {
		if l := lineOf(r); l != nil {
			t.lines[l.irq] = l
			for _, a := range r.Actions {
				if a.BDF != "" && t.function[l.irq] == "" {
					t.function[l.irq] = a.BDF
				}
			}
		}
	}
	return t
}

// lineOf returns nil for rows that are no interrupt with a handler.
func lineOf(r vector.Row) *line {
	if r.Number == vector.None || len(r.Actions) == 0 {
		return nil
	}
	l := &line{irq: r.Number}
	if n, err := strconv.ParseUint(r.HWIRQ, 10, 64); err == nil {
		l.hwirq, l.hasHW = n, true
	}
	for _, a := range r.Actions {
		l.actions = append(l.actions, a.Name)
		l.labels = append(l.labels, labelOf(a.Vector))
	}
	return l
}

// again reads the names of some interrupts without regard to the others: those
// of one device, known by its own folder, may tell more alone than among
// devices of the same names (gve before 6.3: every device has "eth%d-ntfy-block.0").
func (t *irqTable) again(irqs []int) map[int]*line {
	part := &procfs.Interrupts{CPUs: t.text.CPUs}
	for _, r := range t.text.Rows {
		if slices.Contains(irqs, r.IRQ) {
			part.Rows = append(part.Rows, r)
		}
	}
	out := make(map[int]*line)
	for _, r := range vector.Table(part, t.known) {
		if l := lineOf(r); l != nil {
			out[l.irq] = l
		}
	}
	return out
}

// interfaces is what the grammar of action names wants to know of the host.
func interfaces(devices []*device) []vector.Interface {
	var out []vector.Interface
	for _, d := range devices {
		i := vector.Interface{Name: d.Name, Driver: CanonicalDriver(d.Driver), RX: len(d.rx), TX: len(d.tx)}
		for _, p := range d.parents {
			i.Bus = append(i.Bus, p.spelled())
		}
		out = append(out, i)
	}
	return out
}

// spelled is a bus device as action names spell it: xen-netfront writes "vif0" for
// the xenbus device "vif-0" (setup_netfront_split in drivers/net/xen-netfront.c).
func (p parent) spelled() string {
	if p.subsystem == "xen" {
		return strings.Replace(p.name, "-", "", 1)
	}
	return p.name
}

func labelOf(v vector.Vector) label {
	l := label{device: v.Device, bus: v.BDF, control: v.Kind == vector.Control}
	if l.bus == "" {
		l.bus = v.Device
	}
	if v.RXQueue != vector.None {
		l.roles = append(l.roles, role{false, v.RXQueue})
	}
	if v.TXQueue != vector.None {
		l.roles = append(l.roles, role{true, v.TXQueue})
	}
	return l
}

package nic

import (
	"fmt"
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
	chip    string
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
	text, err := f.ReadFile(file)
	switch {
	case err != nil:
		t.problems = append(t.problems, fmt.Sprintf("%s cannot be read (%v): vectors are known by their folders only", file, err))
	default:
		table, err := procfs.ParseInterrupts(file, text)
		if err != nil {
			t.problems = append(t.problems, err.Error())
			break
		}
		for _, r := range table.Rows {
			if r.IRQ == procfs.None || len(r.Actions) == 0 {
				continue
			}
			l := &line{irq: r.IRQ, chip: r.Chip, actions: r.Actions}
			if n, err := strconv.ParseUint(r.HWIRQ, 10, 64); err == nil {
				l.hwirq, l.hasHW = n, true
			}
			t.lines[r.IRQ] = l
		}
	}
	if len(t.lines) == 0 { // no table at all: every folder
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
	for irq := range named {
		if t.lines[irq] != nil {
			continue
		}
		if actions, err := readActionDirs(f, irq); err == nil && len(actions) > 0 {
			t.lines[irq] = &line{irq: irq, actions: actions}
		}
	}
	known := interfaces(devices)
	for _, l := range t.lines {
		for _, a := range l.actions {
			l.labels = append(l.labels, labelOf(vector.Parse(a, known)))
		}
		// Per-device MSI domains print the function in the chip's name:
		// "PCI-MSIX-0000:00:08.0" (x86 since 6.2, msi_create_device_irq_domain).
		if _, bdf, ok := strings.Cut(l.chip, "PCI-MSIX-"); ok && t.function[l.irq] == "" {
			t.function[l.irq] = bdf
		}
		if _, bdf, ok := strings.Cut(l.chip, "PCI-MSI-"); ok && t.function[l.irq] == "" {
			t.function[l.irq] = bdf
		}
	}
	return t
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

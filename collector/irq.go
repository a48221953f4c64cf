package collector

import (
	"slices"
	"strings"

	"github.com/rxsteer/rxsteer/bpf"
	"github.com/rxsteer/rxsteer/internal/host"
	"github.com/rxsteer/rxsteer/internal/host/procfs"
)

func (r *Reading) readInterrupts(fsys host.FS) {
	const what = "interrupt counts"
	r.Interrupts = read(r, fsys, what, "/proc/interrupts", procfs.ParseInterrupts)
	if r.Interrupts != nil && len(r.Interrupts.Problems) > 0 {
		r.unmeasured(what, r.Interrupts.Problems[0])
	}
}

// irqs lists the lines that fired. Counts are /proc/interrupts', 32 bits wide
// and exact for shared lines too; times are the BPF programs'.
func (d *difference) irqs() {
	told := d.prev.Interrupts != nil && d.cur.Interrupts != nil
	if told {
		d.irqCounts()
	}
	if !slices.IsSortedFunc(d.s.IRQs, compareIRQs) { // the kernel lists them so
		slices.SortFunc(d.s.IRQs, compareIRQs)
	}
	if d.prev.BPF != nil && d.cur.BPF != nil {
		d.irqTimes(told)
	}
	if told {
		d.irqActions()
	}
}

// irqTimes adds what the programs know of lines that fired.
func (d *difference) irqTimes(told bool) {
	was := make(map[bpf.IRQKey]*bpf.IRQStat, len(d.prev.BPF.IRQKeys))
	for i, k := range d.prev.BPF.IRQKeys {
		was[k] = &d.prev.BPF.IRQs[i]
	}
	known := d.s.IRQs // sorted
	for i, k := range d.cur.BPF.IRQKeys {
		now, before := &d.cur.BPF.IRQs[i], was[k]
		if before == nil {
			before = &bpf.IRQStat{}
		}
		if now.Count == before.Count {
			continue
		}
		fired := IRQ{IRQ: int(k.Irq), CPU: int(k.Cpu)}
		at, listed := slices.BinarySearchFunc(known, fired, compareIRQs)
		q := &fired
		if listed {
			q = &known[at]
		}
		q.Time = now.Time - before.Time
		looked := now.Count - before.Count
		if d.cur.thin != nil && d.cur.thin.thinned && looked < q.Count {
			q.Time = scaled(q.Time, float64(q.Count)/float64(looked))
		}
		if !told {
			q.Count = looked
		}
		if !listed {
			d.s.IRQs = append(d.s.IRQs, fired)
		}
	}
	if len(d.s.IRQs) > len(known) {
		slices.SortFunc(d.s.IRQs, compareIRQs)
	}
}

func (d *difference) irqCounts() {
	// The column in prev of each CPU of cur, -1: it came online (noted by stat).
	columns := make([]int, len(d.cur.Interrupts.CPUs))
	for j, id := range d.cur.Interrupts.CPUs {
		columns[j] = slices.Index(d.prev.Interrupts.CPUs, id)
	}
	before := make(map[int][]uint64, len(d.prev.Interrupts.Rows))
	for i := range d.prev.Interrupts.Rows {
		row := &d.prev.Interrupts.Rows[i]
		if row.IRQ != procfs.None {
			before[row.IRQ] = row.Counts
		}
	}
	for i := range d.cur.Interrupts.Rows {
		row := &d.cur.Interrupts.Rows[i]
		if row.IRQ == procfs.None || len(row.Counts) != len(d.cur.Interrupts.CPUs) {
			continue // not a line, or noted as a problem
		}
		was, listed := before[row.IRQ]
		for j, now := range row.Counts {
			// A line that was not listed had never fired (show_interrupts, kernel/irq/proc.c).
			var from uint64
			if k := columns[j]; k < 0 || listed && k >= len(was) {
				continue // or prev's row was broken
			} else if listed {
				from = was[k]
			}
			if now == from {
				continue
			}
			if n := d.up32(irqSubject(row.IRQ), from, now); n > 0 {
				d.s.IRQs = append(d.s.IRQs, IRQ{IRQ: row.IRQ, CPU: d.cur.Interrupts.CPUs[j], Count: n})
			}
		}
	}
}

// irqActions names the lines; one that is gone at the end has its former name.
func (d *difference) irqActions() {
	names := map[int]string{}
	for _, t := range []*procfs.Interrupts{d.prev.Interrupts, d.cur.Interrupts} {
		for i := range t.Rows {
			if row := &t.Rows[i]; row.IRQ != procfs.None && len(row.Actions) > 0 {
				names[row.IRQ] = strings.Join(row.Actions, ", ")
			}
		}
	}
	for i := range d.s.IRQs {
		d.s.IRQs[i].Action = names[d.s.IRQs[i].IRQ]
	}
}

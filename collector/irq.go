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
	fired := map[bpf.IRQKey]*IRQ{}
	at := func(irq, cpu int) *IRQ {
		k := bpf.IRQKey{Irq: uint32(irq), Cpu: uint32(cpu)}
		if fired[k] == nil {
			fired[k] = &IRQ{IRQ: irq, CPU: cpu}
		}
		return fired[k]
	}
	told := d.prev.Interrupts != nil && d.cur.Interrupts != nil
	if told {
		d.irqCounts(at)
	}
	if d.prev.BPF != nil && d.cur.BPF != nil {
		was := make(map[bpf.IRQKey]bpf.IRQStat, len(d.prev.BPF.IRQKeys))
		for i, k := range d.prev.BPF.IRQKeys {
			was[k] = d.prev.BPF.IRQs[i]
		}
		for i, k := range d.cur.BPF.IRQKeys {
			now := d.cur.BPF.IRQs[i]
			if now.Count == was[k].Count {
				continue
			}
			q := at(int(k.Irq), int(k.Cpu))
			q.Time = now.Time - was[k].Time
			if looked := now.Count - was[k].Count; d.cur.thin != nil && d.cur.thin.thinned && looked < q.Count {
				q.Time = scaled(q.Time, float64(q.Count)/float64(looked))
			}
			if !told {
				q.Count = now.Count - was[k].Count
			}
		}
	}
	for _, q := range fired {
		d.s.IRQs = append(d.s.IRQs, *q)
	}
	if told {
		d.irqActions()
	}
	slices.SortFunc(d.s.IRQs, compareIRQs)
}

func (d *difference) irqCounts(at func(irq, cpu int) *IRQ) {
	columns := map[int]int{} // of a CPU in prev
	for i, id := range d.prev.Interrupts.CPUs {
		columns[id] = i
	}
	before := map[int][]uint64{}
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
		for j, id := range d.cur.Interrupts.CPUs {
			k, online := columns[id]
			if !online || listed && k >= len(was) {
				continue // the CPU came online (noted by stat) or prev's row was broken
			}
			// A line that was not listed had never fired (show_interrupts, kernel/irq/proc.c).
			var from uint64
			if listed {
				from = was[k]
			}
			if n := d.up32(irqSubject(row.IRQ), from, row.Counts[j]); n > 0 {
				at(row.IRQ, id).Count = n
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

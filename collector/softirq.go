package collector

import (
	"fmt"
	"math"

	"github.com/rxsteer/rxsteer/bpf"
	"github.com/rxsteer/rxsteer/internal/host"
	"github.com/rxsteer/rxsteer/internal/host/procfs"
)

func (r *Reading) readSoftirqs(fsys host.FS) {
	r.Softirqs = read(r, fsys, "softirq runs", "/proc/softirqs", procfs.ParseSoftirqs)
}

// softirqs adds runs from /proc/softirqs, exact at every level and 32 bits wide
// (kstat_softirqs_cpu), and what the BPF programs know of the CPUs.
func (d *difference) softirqs() {
	if d.prev.Softirqs != nil && d.cur.Softirqs != nil {
		d.softirqRuns()
	}
	if d.prev.BPF != nil && d.cur.BPF != nil {
		d.softirqTimes()
	}
}

func (d *difference) softirqRuns() {
	was := map[int]int{} // column of a CPU
	for i, id := range d.prev.Softirqs.CPUs {
		was[id] = i
	}
	for v, name := range SoftirqNames {
		before, now := d.prev.Softirqs.Row(name), d.cur.Softirqs.Row(name)
		for i, id := range d.cur.Softirqs.CPUs {
			j, ok := was[id]
			if !ok || before == nil || now == nil {
				continue // no such vector on this kernel
			}
			// Columns are all possible CPUs: those never online stay out of the Sample.
			if n := d.up32(cpuSubject(id), before[j], now[i]); n > 0 {
				d.cpu(id).SoftirqRuns[v] = n
			}
		}
	}
}

func (d *difference) softirqTimes() {
	for id := range d.cur.BPF.CPUs {
		if id >= len(d.prev.BPF.CPUs) {
			break
		}
		was, now := &d.prev.BPF.CPUs[id], &d.cur.BPF.CPUs[id]
		if was.Runs == now.Runs {
			if c := d.cpus[id]; c != nil {
				d.untraced(c, 0)
			}
			continue
		}
		c := d.cpu(id)
		for v := range c.SoftirqTime {
			c.SoftirqTime[v] = now.Time[v] - was.Time[v]
		}
		c.Tail = now.Tail - was.Tail
		for to, from := range contexts {
			c.RunsIn[to] = now.RunsIn[from] - was.RunsIn[from]
			c.TimeIn[to] = now.TimeIn[from] - was.TimeIn[from]
		}
		if d.cur.Softirqs == nil || d.prev.Softirqs == nil {
			for v := range c.SoftirqRuns {
				c.SoftirqRuns[v] = now.Runs[v] - was.Runs[v]
			}
		}
		d.untraced(c, now.Runs[NetRX]-was.Runs[NetRX])
		if d.cur.thin != nil && d.cur.thin.thinned {
			for v := range c.SoftirqTime {
				if looked, ran := now.Runs[v]-was.Runs[v], c.SoftirqRuns[v]; v != NetRX && looked > 0 && looked < ran {
					c.SoftirqTime[v] = scaled(c.SoftirqTime[v], float64(ran)/float64(looked))
				}
			}
		}
	}
}

// A CPU with more than 1/untracedPart of its NET_RX runs untraced, and more than
// untracedRuns of them, has figures too low to pass in silence: they are scaled.
const (
	untracedPart = 20
	untracedRuns = 50
)

// untraced compares the NET_RX runs of the kernel's count with those traced.
func (d *difference) untraced(c *CPU, traced uint64) {
	if ran := c.SoftirqRuns[NetRX]; traced < ran {
		c.Untraced = ran - traced
	}
}

// unwatched is an interval in which no program was attached: what they measure is 0 in it, and said to be unseen.
func (d *difference) unwatched() {
	for _, c := range d.cpus {
		c.Unseen = c.SoftirqRuns[NetRX]
	}
	d.noteThinned()
}

// noteThinned says what stands for more than itself.
func (d *difference) noteThinned() {
	d.note("part of the softirq runs, polls and interrupts", "passed by to stay inside the overhead budget: what was looked at is scaled up to all, with the error that cost shows")
}

func scaled(n uint64, factor float64) uint64 { return uint64(math.Round(float64(n) * factor)) }

// scale makes up for untraced runs: which runs the kernel leaves out does not
// depend on what they do, so the traced ones stand for all. Polls and tail of a
// CPU grow alike: their sum stays its NET_RX time. So do those that the budget passes by.
func (d *difference) scale() {
	thinned := d.cur.thin != nil && d.cur.thin.thinned
	if thinned {
		d.noteThinned()
		d.scaleBusy()
	}
	for _, c := range d.cpus {
		ran := c.SoftirqRuns[NetRX]
		switch {
		case thinned && ran > 0 && c.Untraced >= ran:
			c.Unseen = ran
			continue
		case thinned && c.Untraced > 0:
		case c.Untraced <= untracedRuns || c.Untraced <= ran/untracedPart || c.Untraced >= ran:
			continue
		default:
			d.note(fmt.Sprintf("part of the polls and receive softirq time of CPU %d", c.CPU),
				"the kernel did not call the BPF programs in every NET_RX run it counted: the rest is scaled up to all (docs/known-issues.md)")
		}
		factor := float64(ran) / float64(ran-c.Untraced)
		c.scaleRX(factor)
		for i := range d.s.NAPIs {
			if n := &d.s.NAPIs[i]; n.CPU == c.CPU && n.Polls > 0 {
				n.scaleRX(factor)
			}
		}
	}
}

// scaleRX scales what NET_RX runs tell of a CPU.
func (c *CPU) scaleRX(factor float64) {
	for _, n := range [...]*uint64{&c.SoftirqTime[NetRX], &c.Tail} {
		*n = scaled(*n, factor)
	}
	for i := range c.TimeIn {
		c.RunsIn[i], c.TimeIn[i] = scaled(c.RunsIn[i], factor), scaled(c.TimeIn[i], factor)
	}
}

// scaleRX scales what NET_RX runs tell of a NAPI.
func (n *NAPI) scaleRX(factor float64) {
	for _, v := range [...]*uint64{&n.Polls, &n.Packets, &n.Time, &n.FullBudget, &n.Empty} {
		*v = scaled(*v, factor)
	}
	for b := range n.TimeHist {
		n.TimeHist[b], n.WorkHist[b] = scaled(n.TimeHist[b], factor), scaled(n.WorkHist[b], factor)
	}
}

// scaleBusy makes up for polls outside NET_RX that were passed by: the programs count all of a CPU's.
func (d *difference) scaleBusy() {
	looked := map[int]uint64{}
	for i := range d.s.NAPIs {
		looked[d.s.NAPIs[i].CPU] += d.s.NAPIs[i].BusyPolls
	}
	for i := range d.s.NAPIs {
		n := &d.s.NAPIs[i]
		if n.BusyPolls == 0 || n.CPU >= len(d.prev.BPF.CPUs) || n.CPU >= len(d.cur.BPF.CPUs) {
			continue
		}
		all := d.cur.BPF.CPUs[n.CPU].BusyPolls - d.prev.BPF.CPUs[n.CPU].BusyPolls
		if all <= looked[n.CPU] {
			continue
		}
		factor := float64(all) / float64(looked[n.CPU])
		n.BusyPolls = scaled(n.BusyPolls, factor)
		if n.Polls == 0 { // else its packets are scaled as its polls in NET_RX are
			n.Packets = scaled(n.Packets, factor)
		}
	}
}

// contexts are the programs' names of ours.
var contexts = [Contexts]bpf.Context{OverTask: bpf.OverTask, OverIdle: bpf.OverIdle, InKsoftirqd: bpf.InKsoftirqd}

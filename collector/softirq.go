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

// scale makes up for untraced runs: which runs the kernel leaves out does not
// depend on what they do, so the traced ones stand for all. Polls and tail of a
// CPU grow alike: their sum stays its NET_RX time.
func (d *difference) scale() {
	for _, c := range d.cpus {
		ran := c.SoftirqRuns[NetRX]
		if c.Untraced <= untracedRuns || c.Untraced <= ran/untracedPart || c.Untraced >= ran {
			continue
		}
		d.note(fmt.Sprintf("part of the polls and receive softirq time of CPU %d", c.CPU),
			"the kernel did not call the BPF programs in every NET_RX run it counted: the rest is scaled up to all (docs/known-issues.md)")
		up := func(counts ...*uint64) {
			factor := float64(ran) / float64(ran-c.Untraced)
			for _, n := range counts {
				*n = uint64(math.Round(float64(*n) * factor))
			}
		}
		up(&c.SoftirqTime[NetRX], &c.Tail)
		for i := range c.TimeIn {
			up(&c.RunsIn[i], &c.TimeIn[i])
		}
		for i := range d.s.NAPIs {
			if n := &d.s.NAPIs[i]; n.CPU == c.CPU {
				up(&n.Polls, &n.Packets, &n.Time, &n.FullBudget, &n.Empty)
				for b := range n.TimeHist {
					up(&n.TimeHist[b], &n.WorkHist[b])
				}
			}
		}
	}
}

// contexts are the programs' names of ours.
var contexts = [Contexts]bpf.Context{OverTask: bpf.OverTask, OverIdle: bpf.OverIdle, InKsoftirqd: bpf.InKsoftirqd}

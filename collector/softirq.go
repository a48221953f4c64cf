package collector

import (
	"fmt"

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
// untracedRuns of them, has figures that are too low to pass in silence.
const (
	untracedPart = 20
	untracedRuns = 50
)

// untraced compares the NET_RX runs of the kernel's count with those traced.
func (d *difference) untraced(c *CPU, traced uint64) {
	ran := c.SoftirqRuns[NetRX]
	if traced >= ran {
		return
	}
	c.Untraced = ran - traced
	if c.Untraced > untracedRuns && c.Untraced > ran/untracedPart {
		d.note(fmt.Sprintf("part of the polls and receive softirq time of CPU %d", c.CPU),
			"the kernel did not call the BPF programs in every NET_RX run it counted: figures of this CPU are too low")
	}
}

// contexts are the programs' names of ours.
var contexts = [Contexts]bpf.Context{OverTask: bpf.OverTask, OverIdle: bpf.OverIdle, InKsoftirqd: bpf.InKsoftirqd}

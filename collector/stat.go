package collector

import (
	"time"

	"github.com/rxsteer/rxsteer/internal/host"
	"github.com/rxsteer/rxsteer/internal/host/procfs"
)

// tick is USER_HZ, the unit of /proc/stat: 1/100 s wherever rxsteer runs.
const tick = uint64(10 * time.Millisecond)

// StatTimes is what Unmeasured calls the times of /proc/stat.
const StatTimes = "idle, softirq and stolen time of CPUs"

func (r *Reading) readStat(fsys host.FS) {
	r.Stat = read(r, fsys, StatTimes, "/proc/stat", procfs.ParseStat)
}

// stat adds the CPUs' idle, softirq, irq and stolen time. Its rows are the
// online CPUs, so it also tells which came and went.
func (d *difference) stat() {
	if d.prev.Stat == nil || d.cur.Stat == nil {
		return
	}
	before := map[int]*procfs.CPUTime{}
	for i := range d.prev.Stat.CPUs {
		before[d.prev.Stat.CPUs[i].CPU] = &d.prev.Stat.CPUs[i]
	}
	for i := range d.cur.Stat.CPUs {
		now := &d.cur.Stat.CPUs[i]
		was := before[now.CPU]
		delete(before, now.CPU)
		c := d.cpu(now.CPU)
		if was == nil {
			d.note(cpuSubject(now.CPU).String(), "came online during the interval: its idle time, softnet and interrupt counts are not known")
			continue
		}
		c.Idle = d.ticks(was.Idle+was.IOWait, now.Idle+now.IOWait)
		c.Softirq = d.ticks(was.SoftIRQ, now.SoftIRQ)
		c.Irq = d.ticks(was.IRQ, now.IRQ)
		c.Steal = d.ticks(was.Steal, now.Steal)
	}
	for id := range before {
		d.note(cpuSubject(id).String(), "went offline during the interval: its idle time, softnet and interrupt counts are not known")
	}
}

// ticks is a difference in ns, within the interval: coarse ticks may say a little
// more, and idle time may go back a little (get_idle_time, fs/proc/stat.c).
func (d *difference) ticks(prev, cur uint64) uint64 {
	if cur < prev {
		return 0
	}
	return min((cur-prev)*tick, uint64(d.interval))
}

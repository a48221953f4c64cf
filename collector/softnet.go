package collector

import (
	"errors"

	"github.com/rxsteer/rxsteer/internal/cpuset"
	"github.com/rxsteer/rxsteer/internal/host"
	"github.com/rxsteer/rxsteer/internal/host/procfs"
)

// readSoftnet must follow readStat: before Linux 5.10 rows do not tell their CPU
// and are the online CPUs in order.
func (r *Reading) readSoftnet(fsys host.FS) {
	const what = "packets, drops and squeezes of CPUs"
	rows := read(r, fsys, what, "/proc/net/softnet_stat", procfs.ParseSoftnet)
	var online []int
	if r.Stat != nil {
		for _, c := range r.Stat.CPUs {
			online = append(online, c.CPU)
		}
	}
	if !procfs.AssignCPUs(rows, cpuset.Of(online...)) {
		r.unmeasured(what, errors.New("/proc/net/softnet_stat does not tell its CPUs and has another number of rows than CPUs are online"))
		rows = nil
	}
	r.Softnet = rows
}

// softnet adds the per-CPU packet counters, all 32 bits wide.
func (d *difference) softnet() {
	before := map[int]*procfs.Softnet{}
	for i := range d.prev.Softnet {
		before[d.prev.Softnet[i].CPU] = &d.prev.Softnet[i]
	}
	for i := range d.cur.Softnet {
		now := &d.cur.Softnet[i]
		was := before[now.CPU]
		if was == nil {
			continue // came online: noted by stat
		}
		c := d.cpu(now.CPU)
		up := func(prev, cur uint32) uint64 { return d.up32(cpuSubject(now.CPU), uint64(prev), uint64(cur)) }
		c.Processed = up(was.Processed, now.Processed)
		c.Dropped = up(was.Dropped, now.Dropped)
		c.Squeezed = up(was.Squeezed, now.Squeezed)
		c.ReceivedRPS = up(was.ReceivedRPS, now.ReceivedRPS)
		c.FlowLimit = up(was.FlowLimit, now.FlowLimit)
		c.Backlog = uint64(now.Backlog)
	}
}

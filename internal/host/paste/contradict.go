package paste

import (
	"fmt"
	"slices"
	"strings"

	"github.com/rxsteer/rxsteer/internal/cpuset"
	"github.com/rxsteer/rxsteer/internal/host/procfs"
)

// order puts the two points right where the first is the later one: by their times, else by the counters,
// of which most would have gone back. It runs before anything is concluded from the points.
func (h *Host) order() {
	a, b := &h.Points[0], &h.Points[1]
	why := ""
	back, all := wentBack(a, b)
	timed := !a.Time.IsZero() && !b.Time.IsZero()
	switch {
	case timed && a.Time.After(b.Time):
		why = fmt.Sprintf("time.0 is %v after time.1", a.Time.Sub(b.Time))
	case all == 0 || back*2 <= all:
	case timed:
		h.note(fmt.Errorf("read two points in time: %d of %d counters went back though time.0 is before time.1: the host was started anew, or the points are of different hosts", back, all))
	default:
		why = fmt.Sprintf("%d of %d counters would have gone back", back, all)
	}
	if why == "" {
		return
	}
	h.note(fmt.Errorf("read two points in time: %s: they are taken the other way round", why))
	*a, *b = *b, *a
}

// wentBack counts the totals that both points tell, and those that are smaller at the second.
func wentBack(a, b *Point) (back, all int) {
	add := func(was, is uint64) {
		if was == is {
			return
		}
		all++
		if is < was {
			back++
		}
	}
	if a.Interrupts != nil && b.Interrupts != nil {
		was := map[int]uint64{}
		for i := range a.Interrupts.Rows {
			was[a.Interrupts.Rows[i].IRQ] = a.Interrupts.Rows[i].Total()
		}
		for i := range b.Interrupts.Rows {
			r := &b.Interrupts.Rows[i]
			if n, ok := was[r.IRQ]; ok && r.IRQ != procfs.None {
				add(n, r.Total())
			}
		}
	}
	if a.Stat != nil && b.Stat != nil {
		for i := range min(len(a.Stat.CPUs), len(b.Stat.CPUs)) {
			add(ticks(a.Stat.CPUs[i]), ticks(b.Stat.CPUs[i]))
		}
	}
	for i := range min(len(a.Softnet), len(b.Softnet)) {
		add(uint64(a.Softnet[i].Processed), uint64(b.Softnet[i].Processed))
	}
	for name, was := range a.Protocols {
		if is, ok := b.Protocols[name]; ok {
			add(was, is)
		}
	}
	for i := range min(len(a.Links), len(b.Links)) {
		if a.Links[i].Name == b.Links[i].Name {
			add(a.Links[i].RX["packets"], b.Links[i].RX["packets"])
		}
	}
	for dev, was := range a.Stats {
		if is := b.Stats[dev]; is != nil {
			for i := range min(len(was.Counters), len(is.Counters)) {
				if was.Counters[i].Name == is.Counters[i].Name {
					add(was.Counters[i].Value, is.Counters[i].Value)
				}
			}
		}
	}
	return back, all
}

// contradictions notes texts that cannot be of one host at one time: their rows or columns are of other CPUs.
func (h *Host) contradictions() {
	for _, d := range h.Devices {
		if d.RSS == nil || d.Channels == nil || d.Channels.Refused != nil || d.RSS.Rings == 0 {
			continue
		}
		if n := int(d.Channels.Now["combined"] + d.Channels.Now["rx"]); n > 0 && n != d.RSS.Rings {
			h.note(fmt.Errorf("compare the texts of %s: ethtool-x tells %d rings and ethtool-l %d receive channels: they are of different times or hosts", d.Name, d.RSS.Rings, n))
		}
	}
	for i, p := range h.Points {
		type told struct {
			text string
			cpus cpuset.Set
		}
		var all []told
		if p.Interrupts != nil {
			all = append(all, told{"interrupts", cpuset.Of(p.Interrupts.CPUs...)})
		}
		if p.Stat != nil {
			var s []int
			for _, c := range p.Stat.CPUs {
				s = append(s, c.CPU)
			}
			all = append(all, told{"stat", cpuset.Of(s...)})
		}
		var rows []int
		for _, r := range p.Softnet {
			if r.CPU != procfs.None {
				rows = append(rows, r.CPU)
			}
		}
		if len(rows) > 0 {
			all = append(all, told{"softnet_stat", cpuset.Of(rows...)})
		}
		if i == 1 && !h.Online.IsEmpty() {
			all = append(all, told{"online", h.Online})
		}
		if len(all) < 2 || !slices.ContainsFunc(all, func(t told) bool { return t.cpus != all[0].cpus }) {
			continue
		}
		var parts []string
		for _, t := range all {
			parts = append(parts, fmt.Sprintf("%s is of cpus %s", t.text, t.cpus))
		}
		h.note(fmt.Errorf("compare the texts of point %d: %s: they are of different hosts, or a CPU came or went", i, strings.Join(parts, ", ")))
	}
}

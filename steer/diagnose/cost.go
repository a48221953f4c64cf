package diagnose

import (
	"cmp"
	"slices"
)

// cost is what a finding costs, as far as it was measured.
type cost struct {
	lost float64 // packets or connections, per second where there are times, else of the whole capture
	time float64 // of receiving that is at stake, in CPUs
}

// losses are the facts that count what was lost for good, or had to be sent again.
var losses = []string{"ring_drops", "backlog_drops", "packets_over_allowance", "udp_receive_buffer_full", "udp_memory_exhausted", "listen_overflows",
	"tcp_receive_queue_full", "tcp_backlog_drops", "rx_errors", "crc_errors", "length_errors", "fec_uncorrected_blocks", "reassembly_failed"}

// stake estimates what a finding costs, the symptoms that it explains included.
func (v *view) stake(f *Finding) cost {
	c := cost{lost: f.Evidence.lost()}
	for _, s := range f.Explains {
		c.lost += s.Evidence.lost()
	}
	switch {
	case f.Site.CPU >= 0:
		c.time = v.load[f.Site.CPU].NetRX
	case len(f.Site.Movable) > 0:
		for _, t := range f.Site.Movable {
			c.time += t
		}
	case f.Site.Device != "" && v.s.Interval > 0:
		for _, p := range v.s.NAPIs {
			if v.ours(p, f.Site.Device) {
				c.time += float64(p.Time) / float64(v.s.Interval)
			}
		}
	}
	return c
}

func (e Evidence) lost() (sum float64) {
	for _, name := range losses {
		if rate, ok := e.Get(name + "_per_s").(float64); ok {
			sum += rate
		} else if n, ok := e.Get(name).(uint64); ok {
			sum += float64(n)
		}
	}
	return sum
}

// order puts what is worst first; of one severity what loses packets before what takes time only, each by how much;
// what is left by ID and subject, so that the order is always the same.
func (v *view) order(findings []Finding) {
	costs := map[*Finding]cost{}
	sorted := make([]*Finding, len(findings))
	for i := range findings {
		sorted[i] = &findings[i]
		costs[sorted[i]] = v.stake(sorted[i])
	}
	slices.SortStableFunc(sorted, func(a, b *Finding) int {
		x, y := costs[a], costs[b]
		return cmp.Or(-cmp.Compare(a.Severity, b.Severity), -cmp.Compare(x.lost, y.lost), -cmp.Compare(x.time, y.time), cmp.Compare(a.ID, b.ID), cmp.Compare(a.Subject, b.Subject))
	})
	out := make([]Finding, 0, len(findings))
	for _, f := range sorted {
		out = append(out, *f)
	}
	copy(findings, out)
}

package diagnose

import (
	"fmt"
	"slices"

	"github.com/rxsteer/rxsteer/internal/cpuset"
	"github.com/rxsteer/rxsteer/internal/host/topo"
)

// farPackets is the packets/s across a cache boundary worth a word: at some 200 ns for each line that has to
// cross (core to core, measured between two halves of one package), 20,000 are 0.4 % of a CPU, and a packet
// takes several.
const farPackets = 20_000

// farReaders reports RX103 where queues are handled on the device's memory node, and in another last-level
// cache than those who read the data.
func (v *view) farReaders(r *Report) {
	for _, d := range v.steered() {
		if v.threadedNAPI(d) || slices.ContainsFunc(r.Findings, func(f Finding) bool { return f.ID == "RX103" && f.Site.Device == d }) {
			continue
		}
		type side struct{ near, far, same float64 }
		var all float64
		at := map[int]*side{}
		readers := map[int]cpuset.Set{}
		from := cpuset.Set{}
		for _, f := range v.s.Flows {
			if f.Device != d || f.RXQueue < 0 || f.CPU < 0 || f.ConsumerCPU < 0 {
				continue
			}
			a, b := v.topo[f.CPU], v.topo[f.ConsumerCPU]
			if a.LLC == topo.None || b.LLC == topo.None || v.topo == nil {
				continue
			}
			if at[f.RXQueue] == nil {
				at[f.RXQueue] = &side{}
			}
			n := float64(f.Packets) / v.seconds
			all += n
			switch {
			case f.CPU == f.ConsumerCPU:
				at[f.RXQueue].same += n
			case a.LLC == b.LLC:
				at[f.RXQueue].near += n
			default:
				at[f.RXQueue].far += n
				readers[f.RXQueue] = readers[f.RXQueue].Union(cpuset.Of(f.ConsumerCPU))
				from = from.Union(cpuset.Of(f.CPU))
			}
		}
		var queues, irqs []int
		var far float64
		var where cpuset.Set
		for q, s := range at {
			if s.far > s.near+s.same {
				queues = append(queues, q)
				far += s.far
				where = where.Union(readers[q])
			}
		}
		slices.Sort(queues)
		if len(at) > 0 && far < max(farPackets, noticed*v.rate(d)) {
			r.checked("%s: of %.0f packets/s whose readers are known, %.0f/s cross from one last-level cache to another", d, all, far)
		}
		if far < max(farPackets, noticed*v.rate(d)) {
			continue
		}
		near := cpuset.Set{}
		for c := range where.All() {
			near = near.Union(v.sharing(c))
		}
		near = near.Intersect(v.usable)
		for _, q := range v.nics[d].Queues {
			if slices.Contains(queues, q.RX) && q.IRQ >= 0 {
				irqs = append(irqs, q.IRQ)
			}
		}
		site := Site{Device: d, CPU: -1, IRQs: irqs}
		if site.Near = near.Minus(where); !site.Near.IsEmpty() {
			site.Queues = queues // else there is nowhere to move them to
		}
		r.Findings = append(r.Findings, Finding{ID: "RX103", Severity: Info, Subject: d,
			Summary: fmt.Sprintf("%.0f packets/s of %s are handled on cpus %s and read on cpus %s, in another last-level cache: each packet's lines cross between them", far, d, from, where),
			Evidence: Evidence{{"queues", cpuset.Of(queues...).String()}, {"poll_cpus", from.String()}, {"reader_cpus", where.String()}, {"near_cpus", near.Minus(where).String()},
				{"far_packets_per_s", far}, {"far_of_known_ratio", ratio(far, all)}, v.carried(d)},
			Remedy: fmt.Sprintf("give the vectors of rx-%s CPUs that share the readers' cache and are not theirs: %s; or move the readers (taskset, advice only). Receive on the reader's own CPU is slower than on a neighbour's where both are busy",
				cpuset.Of(queues...), near.Minus(where)),
			RuledOut: []string{fmt.Sprintf("another memory node: the queues are handled on node %d of the device or no node is told", v.nics[d].Node)},
			Site:     site})
	}
}

// sharing is the CPUs of a CPU's last-level cache, itself included.
func (v *view) sharing(cpu int) cpuset.Set {
	var out cpuset.Set
	for id, c := range v.topo {
		if c.LLC == v.topo[cpu].LLC {
			out = out.Union(cpuset.Of(id))
		}
	}
	return out
}

package diagnose

import (
	"fmt"
	"slices"

	"github.com/rxsteer/rxsteer/collector"
	"github.com/rxsteer/rxsteer/internal/host/nic"
)

// slowPoll is the 99th percentile of a queue's polls, ns, from which packets wait long: netdev_budget_usecs, 2 ms, is what
// the kernel lets a whole run of them take.
const slowPoll = 1e6

// CloserLook tells why packets should be looked at (level 2), by a sample that may be short and of level 1: a CPU that is
// hot, a queue that has more than its part, packets lost, polls that are slow. "" where nothing asks for it: what buckets
// and flows would tell then changes nothing. It asks sooner than a finding is made, so as to know in time.
func CloserLook(s *collector.Sample, nics []nic.NIC, devices []string) string {
	v := newView(Input{Sample: s, NICs: nics, Devices: devices})
	if v.seconds <= 0 {
		return ""
	}
	for _, d := range v.devices() {
		if n := v.missed(d.Name); v.beyond(n, v.offered(d.Name, n), dropRatio, dropPerS) {
			return fmt.Sprintf("%s lost %s", d.Name, v.often(n, "packets"))
		}
	}
	for _, l := range v.loads {
		switch c := v.cpus[l.CPU]; {
		case v.beyond(c.Dropped, float64(c.Processed+c.Dropped), dropRatio, dropPerS):
			return fmt.Sprintf("cpu %d dropped %s of its backlog", l.CPU, v.often(c.Dropped, "packets"))
		case v.pressure(l.CPU) >= hotRatio/2:
			return fmt.Sprintf("cpu %d spent %s of its time in receive softirq", l.CPU, percent(v.pressure(l.CPU)))
		}
		if squeezed, ok := v.squeeze(l.CPU, ""); ok {
			return squeezed.Summary
		}
	}
	for _, d := range v.traffic() {
		load := v.queueLoad(d.Name)
		queue, share := load.busiest()
		if n := len(v.rxQueues(d.Name)); n > 1 && queue >= 0 && share >= unfit/float64(n) && v.pressure(load.cpu(queue)) >= someLoad {
			return fmt.Sprintf("rx-%d of %s had %s of its %s", queue, d.Name, percent(share), load.unit)
		}
	}
	for i := range v.s.NAPIs {
		p := &v.s.NAPIs[i]
		if _, least, _ := p.TimeHist.Quantile(0.99); p.TimeHist.Count() >= 100 && least >= slowPoll && v.wanted(p.Device) && float64(p.Packets) >= minPackets*v.seconds {
			return fmt.Sprintf("one poll in a hundred of %s on cpu %d took more than %.1f ms", p.Device, p.CPU, least/1e6)
		}
	}
	return ""
}

// ofPackets are the facts that only packets tell.
var ofPackets = []string{"packets_seen", "packets_compared", "flow", "long_flows"}

// levels tells which findings rest on packets that were looked at.
func (v *view) levels(r *Report) {
	r.Closer = v.s.Closer
	for _, w := range v.in.Windows {
		if r.Closer != "" && w.Level >= 2 {
			r.CloserS += w.Interval.Seconds()
		}
	}
	for i := range r.Findings {
		if slices.ContainsFunc(ofPackets, func(name string) bool { return r.Findings[i].Evidence.Get(name) != nil }) {
			r.Findings[i].Level = 2
		}
	}
}

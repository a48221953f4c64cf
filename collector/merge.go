package collector

import (
	"cmp"
	"math"
	"slices"
	"time"
)

// Merge adds consecutive samples, oldest first, up to one window: sums of all
// counters, names and levels of the last that has them, Interval the sum of the
// intervals, Level the lowest. It returns nil for none.
func Merge(samples ...*Sample) *Sample {
	if len(samples) == 0 {
		return nil
	}
	first, last := samples[0], samples[len(samples)-1]
	m := &Sample{
		Version: SampleVersion, Start: first.Start, End: last.End, Level: first.Level,
		CPUs: []CPU{}, NAPIs: []NAPI{}, IRQs: []IRQ{}, Devices: []Device{},
	}
	type irqKey struct{ irq, cpu int }
	type napiKey struct {
		netns, pointer uint64
		ifindex, cpu   int
		id             uint32
		queue          int // where nothing else tells NAPIs apart: a driver's counters by queue
	}
	cpus := index[int, CPU]{}
	napis := index[napiKey, NAPI]{}
	irqs := index[irqKey, IRQ]{}
	devices := index[int, Device]{}
	drivers := index[int, Driver]{}
	stages := index[stageKey, Stage]{}
	xdps := index[xdpKey, XDP]{}
	drops := index[dropKey, Drop]{}
	pacing := index[int, Pacing]{}
	learned := index[linkKey, Link]{}
	buckets := index[costKey, DeviceBuckets]{}
	covered := map[costKey]time.Duration{}
	noted := map[Unmeasured]bool{}
	m.Level = mergedLevel(samples)
	m.Cost = mergeCosts(samples)
	for _, s := range samples {
		m.Interval += s.Interval
		m.Closer = cmp.Or(m.Closer, s.Closer)
		m.SinceBoot, m.Untimed = m.SinceBoot || s.SinceBoot, m.Untimed || s.Untimed
		for i := range s.CPUs {
			cpus.at(s.CPUs[i].CPU).add(&s.CPUs[i])
		}
		for i := range s.NAPIs {
			n := &s.NAPIs[i]
			k := napiKey{netns: n.Netns, pointer: n.Pointer, ifindex: n.IfIndex, cpu: n.CPU, id: n.ID}
			if n.ID == 0 && n.Pointer == 0 {
				k.queue = n.RXQueue
			}
			napis.at(k).add(n)
		}
		for i := range s.IRQs {
			irqs.at(irqKey{s.IRQs[i].IRQ, s.IRQs[i].CPU}).add(&s.IRQs[i])
		}
		for i := range s.Devices {
			devices.at(s.Devices[i].IfIndex).add(&s.Devices[i])
		}
		for i := range s.Drivers {
			drivers.at(s.Drivers[i].IfIndex).add(&s.Drivers[i])
		}
		for i := range s.Stages {
			stages.at(s.Stages[i].key()).add(&s.Stages[i])
		}
		for i := range s.XDP {
			xdps.at(s.XDP[i].key()).add(&s.XDP[i])
		}
		for i := range s.Drops {
			drops.at(s.Drops[i].key()).add(&s.Drops[i])
		}
		for i := range s.Pacing {
			pacing.at(s.Pacing[i].IRQ).add(&s.Pacing[i])
		}
		for _, l := range s.Learned {
			*learned.at(l.key()) = l
		}
		for i := range s.Buckets {
			b := &s.Buckets[i]
			if m.Buckets == nil {
				m.Buckets = []DeviceBuckets{}
			}
			k := costKey{b.Netns, b.IfIndex, 0}
			covered[k] += s.Interval
			if buckets.at(k).add(b) {
				continue
			}
			covered[k] = s.Interval
			if u := (Unmeasured{"buckets of " + b.Device, "its RSS settings changed: those before are left out"}); !noted[u] {
				noted[u] = true
				m.Unmeasured = append(m.Unmeasured, u)
			}
		}
		m.Established = s.Established
		if s.TCP != nil {
			if m.TCP == nil {
				m.TCP = &TCP{Flows: []TCPFlow{}}
			}
			m.TCP.add(s.TCP)
		}
		for name, n := range s.Protocols {
			if m.Protocols == nil {
				m.Protocols = map[string]uint64{}
			}
			m.Protocols[name] += n
		}
		for _, u := range s.Unmeasured {
			if !noted[u] {
				noted[u] = true
				m.Unmeasured = append(m.Unmeasured, u)
			}
		}
		for cause, n := range s.Lost {
			if m.Lost == nil {
				m.Lost = map[string]uint64{}
			}
			m.Lost[cause] += n
		}
	}
	if m.TCP != nil {
		m.TCP.top()
	}
	m.CPUs = cpus.sorted(compareCPUs)
	m.NAPIs = napis.sorted(compareNAPIs)
	m.scaleUnseen()
	m.addWindowError(samples)
	m.IRQs = irqs.sorted(compareIRQs)
	m.Devices = devices.sorted(compareDevices)
	if len(drivers) > 0 {
		m.Drivers = drivers.sorted(func(a, b Driver) int { return cmp.Compare(a.IfIndex, b.IfIndex) })
	}
	for k, b := range buckets {
		// Of the samples in which it was watched; those between had no window.
		if t := covered[k]; t > 0 && t < m.Interval {
			b.grow(float64(m.Interval) / float64(t))
		}
	}
	if m.Buckets != nil {
		m.Buckets = buckets.sorted(compareBuckets)
	}
	m.Flows = mergeFlows(samples)
	if len(stages) > 0 {
		m.Stages = stages.sorted(compareStages)
	}
	if len(xdps) > 0 {
		m.XDP = xdps.sorted(compareXDPs)
	}
	if len(drops) > 0 {
		m.Drops = drops.sorted(compareDrops)
	}
	if len(pacing) > 0 {
		m.Pacing = pacing.sorted(func(a, b Pacing) int { return cmp.Compare(a.IRQ, b.IRQ) })
	}
	if len(learned) > 0 {
		m.Learned = learned.sorted(compareLinks)
	}
	return m
}

// unwatched says that the overhead budget had nothing attached in the interval.
func (s *Sample) unwatched() bool { return s.Level == 0 && s.Cost != nil && s.Cost.Duty == 0 }

// mergedLevel is the lowest of those that were watched: these stand for the rest.
func mergedLevel(samples []*Sample) int {
	level, watched := 0, false
	for _, s := range samples {
		if s.unwatched() {
			continue
		}
		if !watched || s.Level < level {
			level = s.Level
		}
		watched = true
	}
	return level
}

// scaleUnseen lets a CPU's runs that were looked at stand for those in intervals when none was.
func (s *Sample) scaleUnseen() {
	if s.Level == 0 {
		return
	}
	for i := range s.CPUs {
		c := &s.CPUs[i]
		ran := c.SoftirqRuns[NetRX]
		if c.Unseen == 0 || c.Unseen >= ran || c.SoftirqTime[NetRX] == 0 {
			continue
		}
		factor := float64(ran) / float64(ran-c.Unseen)
		c.Unseen = 0
		c.scaleRX(factor)
		for j := range s.NAPIs {
			if n := &s.NAPIs[j]; n.CPU == c.CPU && n.Polls > 0 {
				n.scaleRX(factor)
			}
		}
	}
}

// addWindowError widens the error by how much the traffic in intervals that were watched and in those that were not
// differed: in packets per NET_RX run, which the kernel counts in both.
func (s *Sample) addWindowError(samples []*Sample) {
	if s.Cost == nil || s.Level == 0 {
		return
	}
	type traffic struct{ runs, packets float64 }
	var unseen map[int]traffic
	for _, x := range samples {
		if !x.unwatched() {
			continue
		}
		if unseen == nil {
			unseen = map[int]traffic{}
		}
		for i := range x.CPUs {
			c := &x.CPUs[i]
			t := unseen[c.CPU]
			unseen[c.CPU] = traffic{t.runs + float64(c.SoftirqRuns[NetRX]), t.packets + float64(c.Processed)}
		}
	}
	if unseen == nil {
		return
	}
	var total, off float64
	for i := range s.CPUs {
		c := &s.CPUs[i]
		t := float64(c.SoftirqTime[NetRX])
		total += t
		u := unseen[c.CPU]
		seen := traffic{float64(c.SoftirqRuns[NetRX]) - u.runs, float64(c.Processed) - u.packets}
		if u.runs == 0 || seen.runs <= 0 || u.packets == 0 && seen.packets == 0 {
			continue
		}
		a, b := seen.packets/seen.runs, u.packets/u.runs
		off += t * u.runs / (u.runs + seen.runs) * math.Abs(a-b) / max(a, b)
	}
	if total > 0 {
		s.Cost.Error = math.Hypot(s.Cost.Error, off/total)
	}
}

// mergeCosts weighs by time; the error is that of a sum of independent parts.
func mergeCosts(samples []*Sample) *Cost {
	var m *Cost
	var total, watched, square float64
	hottest := map[int]float64{}
	said := map[string]bool{}
	for _, s := range samples {
		if s.Cost == nil {
			continue
		}
		if m == nil {
			m = &Cost{}
		}
		t, c := float64(s.Interval), s.Cost
		total += t
		m.Budget, m.Rate, m.PerEvent = c.Budget, max(m.Rate, c.Rate), c.PerEvent
		hottest[c.CPU] += t * c.Hottest
		m.Mean += t * c.Mean
		m.Reader += t * c.Reader
		m.Duty += t * c.Duty
		m.DutyPackets += t * c.DutyPackets
		if c.Duty > 0 {
			watched += t
			square += t * t * c.Error * c.Error
		}
		for _, text := range c.Thinned {
			if !said[text] && len(m.Thinned) < 16 {
				said[text] = true
				m.Thinned = append(m.Thinned, text)
			}
		}
	}
	if m == nil || total == 0 {
		return m
	}
	for cpu, ns := range hottest {
		if share := ns / total; share > m.Hottest || share == m.Hottest && cpu < m.CPU {
			m.Hottest, m.CPU = share, cpu
		}
	}
	m.Mean, m.Reader, m.Duty, m.DutyPackets = m.Mean/total, m.Reader/total, m.Duty/total, m.DutyPackets/total
	if watched > 0 {
		m.Error = math.Sqrt(square) / watched
	}
	return m
}

// index finds the sum for a key.
type index[K comparable, T any] map[K]*T

func (x index[K, T]) at(k K) *T {
	v := x[k]
	if v == nil {
		v = new(T)
		x[k] = v
	}
	return v
}

func (x index[K, T]) sorted(compare func(a, b T) int) []T {
	all := make([]T, 0, len(x))
	for _, v := range x {
		all = append(all, *v)
	}
	slices.SortFunc(all, compare)
	return all
}

func (c *CPU) add(o *CPU) {
	c.CPU = o.CPU
	for v := range c.SoftirqTime {
		c.SoftirqTime[v] += o.SoftirqTime[v]
		c.SoftirqRuns[v] += o.SoftirqRuns[v]
	}
	c.Untraced += o.Untraced
	c.Unseen += o.Unseen
	c.Tail += o.Tail
	for i := range c.RunsIn {
		c.RunsIn[i] += o.RunsIn[i]
		c.TimeIn[i] += o.TimeIn[i]
	}
	c.Idle += o.Idle
	c.Softirq += o.Softirq
	c.Irq += o.Irq
	c.Steal += o.Steal
	c.Processed += o.Processed
	c.Dropped += o.Dropped
	c.Squeezed += o.Squeezed
	c.ReceivedRPS += o.ReceivedRPS
	c.FlowLimit += o.FlowLimit
	c.Backlog = o.Backlog
}

func (n *NAPI) add(o *NAPI) {
	n.Netns, n.IfIndex, n.ID, n.Pointer, n.CPU = o.Netns, o.IfIndex, o.ID, o.Pointer, o.CPU
	n.Device, n.SeenAs, n.RXQueue = o.Device, o.SeenAs, o.RXQueue
	n.Polls += o.Polls
	n.Packets += o.Packets
	n.Time += o.Time
	n.FullBudget += o.FullBudget
	n.Empty += o.Empty
	n.BusyPolls += o.BusyPolls
	n.Thread = cmp.Or(o.Thread, n.Thread)
	n.ThreadPolls += o.ThreadPolls
	n.ThreadTime += o.ThreadTime
	n.TimeHist.Add(&o.TimeHist)
	n.WorkHist.Add(&o.WorkHist)
}

func (q *IRQ) add(o *IRQ) {
	q.IRQ, q.CPU, q.Action = o.IRQ, o.CPU, cmp.Or(o.Action, q.Action)
	q.Count += o.Count
	q.Time += o.Time
}

func (d *Device) add(o *Device) {
	d.Name, d.IfIndex = o.Name, o.IfIndex
	d.RXPackets += o.RXPackets
	d.RXBytes += o.RXBytes
	d.RXDropped += o.RXDropped
	d.RXMissed += o.RXMissed
	d.RXErrors += o.RXErrors
	d.TXPackets += o.TXPackets
	d.TXBytes += o.TXBytes
	d.TXDropped += o.TXDropped
}

// Add adds another histogram to h.
func (h *Histogram) Add(o *Histogram) {
	for i := range h {
		h[i] += o[i]
	}
}

// The orders that Sample promises.
func compareCPUs(a, b CPU) int { return cmp.Compare(a.CPU, b.CPU) }

func compareNAPIs(a, b NAPI) int {
	return cmp.Or(cmp.Compare(a.Netns, b.Netns), cmp.Compare(a.IfIndex, b.IfIndex), cmp.Compare(a.ID, b.ID),
		cmp.Compare(a.Pointer, b.Pointer), cmp.Compare(a.CPU, b.CPU), cmp.Compare(a.RXQueue, b.RXQueue))
}

func compareIRQs(a, b IRQ) int { return cmp.Or(cmp.Compare(a.IRQ, b.IRQ), cmp.Compare(a.CPU, b.CPU)) }

func compareDevices(a, b Device) int { return cmp.Compare(a.IfIndex, b.IfIndex) }

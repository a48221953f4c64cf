package exporter

import (
	"cmp"
	"maps"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/rxsteer/rxsteer/collector"
)

// Limits bound what is exported.
type Limits struct {
	// Series bounds the label sets {device, queue, cpu} and {irq, cpu} that are kept, each, and those of smaller
	// families. What comes after is added to one series labelled "overflow".
	Series    int
	Elephants int  // flows by name
	PerCPU    bool // NAPI figures by CPU, too; else their cpu label is empty
	Stages    bool // latency by stage
	Native    bool // native histograms beside the classic ones
}

// DefaultLimits are safe on 256 CPUs and 64 queues: 64 queues that each wandered over 32 CPUs.
var DefaultLimits = Limits{Series: 2048, Elephants: 16, PerCPU: true, Stages: true}

// Label values that name no device or queue of this network namespace.
const (
	OtherNetns = "other-netns" // devices of other network namespaces, together
	Overflow   = "overflow"    // label sets beyond Limits.Series, together
)

const noQueue = -1

type napiKey struct {
	device string
	queue  int // −1 not known
	cpu    int // −1 in the overflow series
}

type queueKey struct {
	device string
	queue  int
}

type irqKey struct {
	irq, cpu int
	action   string
}

// Exporter adds Samples up and is a prometheus.Collector of the totals. It is safe for
// concurrent use.
type Exporter struct {
	netns  uint64
	only   []string // interfaces; empty: all
	limits Limits

	mu      sync.Mutex
	napis   map[napiKey]*napiTotals
	hists   map[queueKey]*histTotals
	cpus    map[int]*cpuTotals
	irqs    map[irqKey]*irqTotals
	devices map[string]*collector.Device
	sampled map[int]uint64 // ns, by level
	timed   bool           // a sample of level ≥ 1 was seen
	lost    map[string]uint64
	missing []collector.Unmeasured
	self    selfTotals
	packets packets

	textSize atomic.Int64 // bytes of the last scrape in text
}

// New makes an Exporter for Samples read in the network namespace with this inode.
// Devices of other namespaces may bear the same names, so they are counted
// together as OtherNetns. With names, only these interfaces are exported.
func New(netns uint64, limits Limits, only ...string) *Exporter {
	return &Exporter{
		netns:   netns,
		only:    only,
		limits:  limits,
		packets: newPackets(),
		napis:   map[napiKey]*napiTotals{},
		hists:   map[queueKey]*histTotals{},
		cpus:    map[int]*cpuTotals{},
		irqs:    map[irqKey]*irqTotals{},
		devices: map[string]*collector.Device{},
		sampled: map[int]uint64{},
		lost:    map[string]uint64{},
	}
}

// Add takes the deltas of one Sample into the totals. Series of devices that are
// gone are forgotten; the counters of a device that comes back restart at 0, which
// Prometheus' rate() understands.
func (e *Exporter) Add(s *collector.Sample) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.self.samples++
	e.sampled[s.Level] += uint64(s.Interval)
	e.timed = e.timed || s.Level >= 1
	e.self.level = s.Level
	e.self.last = float64(s.End.UnixMilli()) / 1e3
	e.missing = slices.Clone(s.Unmeasured)
	for cause, n := range s.Lost {
		e.lost[cause] += n
	}
	e.addDevices(s.Devices)
	for i := range s.NAPIs {
		e.addNAPI(&s.NAPIs[i])
	}
	for i := range s.CPUs {
		e.addCPU(&s.CPUs[i])
	}
	for i := range s.IRQs {
		e.addIRQ(&s.IRQs[i])
	}
	e.addPackets(s)
}

func (e *Exporter) addDevices(devs []collector.Device) {
	if len(devs) == 0 {
		return // not read this time: nothing can be said about who is gone
	}
	there := make(map[string]bool, len(devs))
	for i := range devs {
		d := &devs[i]
		if !e.wanted(d.Name) {
			continue
		}
		there[d.Name] = true
		t := e.devices[d.Name]
		if t == nil && len(e.devices) >= e.limits.Series {
			if t = e.devices[Overflow]; t == nil {
				t = &collector.Device{Name: Overflow}
				e.devices[Overflow] = t
			}
			there[Overflow] = true
			e.self.overflow++
		} else if t == nil || t.IfIndex != d.IfIndex {
			e.forget(d.Name)
			t = &collector.Device{Name: d.Name, IfIndex: d.IfIndex}
			e.devices[d.Name] = t
		}
		t.RXPackets += d.RXPackets
		t.RXBytes += d.RXBytes
		t.RXDropped += d.RXDropped
		t.RXMissed += d.RXMissed
		t.RXErrors += d.RXErrors
		t.TXPackets += d.TXPackets
		t.TXBytes += d.TXBytes
		t.TXDropped += d.TXDropped
	}
	for name := range e.devices {
		if !there[name] {
			e.forget(name)
		}
	}
}

func (e *Exporter) wanted(device string) bool {
	return len(e.only) == 0 || slices.Contains(e.only, device)
}

// kept is a device that has series of its own, Overflow where there are too many, and "" for one that is gone.
func (e *Exporter) kept(device string) string {
	switch {
	case e.devices[device] != nil:
		return device
	case len(e.devices) >= e.limits.Series:
		return Overflow
	}
	return ""
}

func (e *Exporter) forget(device string) {
	delete(e.devices, device)
	e.forgetPackets(device)
	maps.DeleteFunc(e.napis, func(k napiKey, _ *napiTotals) bool { return k.device == device })
	maps.DeleteFunc(e.hists, func(k queueKey, _ *histTotals) bool { return k.device == device })
}

func (e *Exporter) addNAPI(n *collector.NAPI) {
	k := napiKey{n.Device, n.RXQueue, n.CPU}
	if n.Netns != 0 && n.Netns != e.netns {
		k.device, k.queue = OtherNetns, noQueue
	}
	if !e.wanted(k.device) {
		return
	}
	if !e.limits.PerCPU {
		k.cpu = -1
	}
	t, ok := e.napis[k]
	if !ok {
		if len(e.napis) >= e.limits.Series {
			k = napiKey{Overflow, noQueue, -1}
			e.self.overflow++
		}
		t = entry(e.napis, k)
	}
	t.polls += n.Polls
	t.packets += n.Packets
	t.ns += n.Time
	t.full += n.FullBudget
	t.empty += n.Empty
	t.busy += n.BusyPolls
	h := entry(e.hists, queueKey{k.device, k.queue})
	h.ns += n.Time
	h.packets += n.Packets
	for i := range h.duration {
		h.duration[i] += n.TimeHist[i]
		h.work[i] += n.WorkHist[i]
	}
}

func (e *Exporter) addCPU(c *collector.CPU) {
	t := entry(e.cpus, c.CPU)
	for v := range t.SoftirqTime {
		t.SoftirqTime[v] += c.SoftirqTime[v]
		t.SoftirqRuns[v] += c.SoftirqRuns[v]
	}
	for i := range t.TimeIn {
		t.TimeIn[i] += c.TimeIn[i]
		t.RunsIn[i] += c.RunsIn[i]
	}
	t.Tail += c.Tail
	t.Idle += c.Idle
	t.Softirq += c.Softirq
	t.Irq += c.Irq
	t.Steal += c.Steal
	t.Processed += c.Processed
	t.Dropped += c.Dropped
	t.Squeezed += c.Squeezed
	t.ReceivedRPS += c.ReceivedRPS
	t.FlowLimit += c.FlowLimit
	t.Backlog = c.Backlog
}

func (e *Exporter) addIRQ(i *collector.IRQ) {
	k := irqKey{i.IRQ, i.CPU, i.Action}
	if _, ok := e.irqs[k]; !ok && len(e.irqs) >= e.limits.Series {
		k = irqKey{-1, -1, Overflow}
		e.self.overflow++
	}
	t := entry(e.irqs, k)
	t.count += i.Count
	t.ns += i.Time
}

func entry[K comparable, T any](m map[K]*T, k K) *T {
	t := m[k]
	if t == nil {
		t = new(T)
		m[k] = t
	}
	return t
}

// Describe implements prometheus.Collector.
func (e *Exporter) Describe(ch chan<- *prometheus.Desc) {
	bulk{e}.Describe(ch)
	rest{e}.Describe(ch)
}

// Describe implements prometheus.Collector.
func (bulk) Describe(ch chan<- *prometheus.Desc) {
	describe(ch, napiFamilies)
	describe(ch, cpuFamilies)
	describe(ch, irqFamilies)
	for _, f := range cpuSplits {
		ch <- f.desc()
	}
}

// Describe implements prometheus.Collector.
func (rest) Describe(ch chan<- *prometheus.Desc) {
	describe(ch, deviceFamilies)
	describe(ch, selfFamilies)
	for _, f := range histogramFamilies {
		ch <- f.desc()
	}
	ch <- sampledDesc
	ch <- lostDesc
	ch <- unmeasuredDesc
	for _, d := range packetDescs() {
		ch <- d
	}
}

func describe[T any](ch chan<- *prometheus.Desc, fs []family[T]) {
	for _, f := range fs {
		ch <- f.desc()
	}
}

// Collect implements prometheus.Collector.
func (e *Exporter) Collect(ch chan<- prometheus.Metric) {
	bulk{e}.Collect(ch)
	rest{e}.Collect(ch)
}

// Label values of the families that grow with the host, in the order of their names.
func napiValues(k napiKey) []string { return []string{k.device, number(k.queue), number(k.cpu)} }
func cpuValues(cpu int) []string    { return []string{number(cpu)} }
func irqValues(k irqKey) []string   { return []string{number(k.irq), k.action, number(k.cpu)} }

// Collect implements prometheus.Collector.
func (b bulk) Collect(ch chan<- prometheus.Metric) {
	e := b.e
	e.mu.Lock()
	defer e.mu.Unlock()
	collect(ch, e.timed, napiFamilies, e.napis, napiValues)
	collect(ch, e.timed, cpuFamilies, e.cpus, cpuValues)
	for _, f := range cpuSplits {
		if f.timed && !e.timed {
			continue
		}
		desc := f.desc()
		for cpu, t := range e.cpus {
			for _, p := range f.parts {
				ch <- prometheus.MustNewConstMetric(desc, prometheus.CounterValue, p.value(t), number(cpu), p.label)
			}
		}
	}
	collect(ch, e.timed, irqFamilies, e.irqs, irqValues)
}

// Collect implements prometheus.Collector.
func (r rest) Collect(ch chan<- prometheus.Metric) {
	e := r.e
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, f := range histogramFamilies {
		desc := f.desc()
		for k, t := range e.hists {
			m := f.metric(desc, k, t)
			if e.limits.Native && f.scale != 1 {
				h, _ := f.value(t)
				m = nativeToo{m, h}
			}
			ch <- m
		}
	}
	collect(ch, e.timed, deviceFamilies, e.devices, func(name string) []string { return []string{name} })
	collect(ch, e.timed, selfFamilies, map[struct{}]*selfTotals{{}: &e.self}, func(struct{}) []string { return nil })
	e.collectPackets(ch)
	for level, ns := range e.sampled {
		ch <- prometheus.MustNewConstMetric(sampledDesc, prometheus.CounterValue, seconds(ns), number(level))
	}
	for cause, n := range e.lost {
		ch <- prometheus.MustNewConstMetric(lostDesc, prometheus.CounterValue, float64(n), cause)
	}
	sortedMissing := slices.SortedFunc(slices.Values(e.missing), func(a, b collector.Unmeasured) int {
		return cmp.Or(cmp.Compare(a.What, b.What), cmp.Compare(a.Why, b.Why))
	})
	for _, m := range slices.Compact(sortedMissing) {
		ch <- prometheus.MustNewConstMetric(unmeasuredDesc, prometheus.GaugeValue, 1, m.What, m.Why)
	}
}

func collect[K comparable, T any](ch chan<- prometheus.Metric, timed bool, fs []family[T], totals map[K]*T, labels func(K) []string) {
	for _, f := range fs {
		if f.timed && !timed {
			continue
		}
		desc, kind := f.desc(), f.kind()
		for k, t := range totals {
			ch <- prometheus.MustNewConstMetric(desc, kind, f.value(t), labels(k)...)
		}
	}
}

// metric makes a classic histogram. Bucket i of the kernel's holds values below 2^i,
// so the sum of buckets 0…i is the count of values up to 2^i − 1.
func (f histogramFamily) metric(desc *prometheus.Desc, k queueKey, t *histTotals) prometheus.Metric {
	h, sum := f.value(t)
	buckets := make(map[float64]uint64, len(f.bounds))
	var count uint64
	next := 0
	for i, n := range h {
		count += n
		if next < len(f.bounds) && f.bounds[next] == i {
			buckets[f.bound(i)] = count
			next++
		}
	}
	return prometheus.MustNewConstHistogram(desc, count, float64(sum)*f.scale, buckets, k.device, number(k.queue))
}

// bound is the upper bound of bucket i in base units: inclusive and exact for
// packets; for durations 2^i ns, one nanosecond beyond the largest value in it.
func (f histogramFamily) bound(i int) float64 {
	if f.scale == 1 {
		return float64(uint64(1)<<i - 1)
	}
	return float64(uint64(1)<<i) / 1e9
}

// number is a label value; "" where not known.
func number(n int) string {
	if n < 0 {
		return ""
	}
	return strconv.Itoa(n)
}

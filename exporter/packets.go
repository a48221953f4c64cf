package exporter

import (
	"cmp"
	"math"
	"net/netip"
	"slices"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/rxsteer/rxsteer/collector"
	"github.com/rxsteer/rxsteer/internal/host/nic"
)

// What level 2 and the drivers tell: latency by stage, how even buckets and queues are, the busiest flows, drops by place.

type stageKey struct {
	stage  collector.StageName
	device string
}

type stageTotals struct {
	hist collector.Histogram
	ns   uint64
	n    uint64
}

// stageBounds are indices into collector.Histogram: powers of four of ns from 1 µs to 1 s.
var stageBounds = []int{10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30}

var (
	stageDesc = prometheus.NewDesc("rxsteer_stage_latency_seconds", "How long sampled packets (or softirq runs) took from one point of the receive path to the next, by stage (docs/json.md). "+
		"Classic bounds are powers of four of nanoseconds; with native_histograms there are native buckets of powers of two, too.", []string{"stage", "device"}, nil)
	queueSkewDesc  = prometheus.NewDesc("rxsteer_queue_hottest_per_mean_ratio", "Packets of the busiest receive queue per mean of all that a device has, in the last sample with packets: 1 is even.", deviceLabels, nil)
	bucketSkewDesc = prometheus.NewDesc("rxsteer_bucket_hottest_per_mean_ratio", "Packets of the busiest entry of the indirection table per mean of all, when they were last counted.", deviceLabels, nil)
	cpuSkewDesc    = prometheus.NewDesc("rxsteer_net_rx_hottest_per_mean_ratio", "Receive softirq time of the CPU that spends most on it per mean of all CPUs, in the last sample with any: 1 is even.", nil, nil)
	agreedDesc     = prometheus.NewDesc("rxsteer_table_followed_ratio", "Packets that arrived in the queue their table entry names, when buckets were last counted.", deviceLabels, nil)
	elephantDesc   = prometheus.NewDesc("rxsteer_elephant_packets_per_second", "The busiest flows of the last sample that saw flows, estimated from sampled packets; no more than metrics.elephants.",
		[]string{"device", "queue", "protocol", "source", "destination"}, nil)
	elephantShareDesc = prometheus.NewDesc("rxsteer_elephant_queue_share_ratio", "The part of its queue's packets that the busiest flow of a device is, in the last sample that saw flows.", deviceLabels, nil)
	droppedDesc       = prometheus.NewDesc("rxsteer_dropped_packets_total", "Packets dropped by place, as each counts them: ring (no free descriptor), memory (no buffer), shaping (by the provider), device (interface's own count), backlog, flow-limit, udp-socket, tcp-socket, listen-queue. "+
		"ring, memory, shaping, backlog and flow-limit may also be part of device, and flow-limit of backlog.", []string{"place", "device"}, nil)
	gapDesc = prometheus.NewDesc("rxsteer_interrupt_gap_median_seconds", "Median time between two interrupts of a line on one CPU, in the last sample with enough of them.", []string{"irq", "action"}, nil)
	costs   = []struct {
		desc  *prometheus.Desc
		value func(*collector.Cost) float64
	}{
		{costDesc("overhead_budget_ratio", "Share of each CPU's time that measuring may take (0: unlimited)."), func(c *collector.Cost) float64 { return c.Budget }},
		{costDesc("overhead_hottest_cpu_ratio", "Share that measuring took of the CPU that paid most, by events and their calibrated cost."), func(c *collector.Cost) float64 { return c.Hottest }},
		{costDesc("overhead_mean_cpu_ratio", "Share that measuring took of all online CPUs."), func(c *collector.Cost) float64 { return c.Mean }},
		{costDesc("overhead_reader_cpu_ratio", "CPU time of the agent itself, in CPUs."), func(c *collector.Cost) float64 { return c.Reader }},
		{costDesc("overhead_duty_ratio", "Part of the last sample in which polls were counted; what is scaled up by it has rxsteer_overhead_error_ratio."), func(c *collector.Cost) float64 { return c.Duty }},
		{costDesc("overhead_packet_duty_ratio", "Part of the last sample in which packets were looked at."), func(c *collector.Cost) float64 { return c.DutyPackets }},
		{costDesc("overhead_error_ratio", "Relative half-width of the 95 % interval of what was scaled up; 0 is exact."), func(c *collector.Cost) float64 { return c.Error }},
	}
)

func costDesc(name, help string) *prometheus.Desc {
	return prometheus.NewDesc("rxsteer_"+name, help, nil, nil)
}

// packetDescs is all of them.
func packetDescs() []*prometheus.Desc {
	out := []*prometheus.Desc{stageDesc, queueSkewDesc, bucketSkewDesc, cpuSkewDesc, agreedDesc, elephantDesc, elephantShareDesc, droppedDesc, gapDesc}
	for _, c := range costs {
		out = append(out, c.desc)
	}
	return out
}

type dropKey struct{ place, device string }

type gapKey struct {
	irq    int
	action string
}

// packets is what this file exports.
type packets struct {
	stages     map[stageKey]*stageTotals
	queueSkew  map[string]float64
	bucketSkew map[string]float64
	cpuSkew    float64
	agreed     map[string]float64
	flows      []collector.Flow
	flowTime   float64 // seconds they were counted in
	share      map[string]float64
	drops      map[dropKey]uint64
	gaps       map[gapKey]float64
	cost       *collector.Cost
}

func newPackets() packets {
	return packets{stages: map[stageKey]*stageTotals{}, queueSkew: map[string]float64{}, bucketSkew: map[string]float64{}, agreed: map[string]float64{},
		share: map[string]float64{}, drops: map[dropKey]uint64{}, gaps: map[gapKey]float64{}}
}

// places are the drivers' counters that are places.
var places = map[nic.FactKind]string{nic.RingDrops: "ring", nic.RingEmpty: "ring", nic.NoMemory: "memory", nic.Shaping: "shaping"}

// protocolDrops are the kernel's counters that are places, none of a device.
var protocolDrops = map[string]string{
	"UdpRcvbufErrors": "udp-socket", "Udp6RcvbufErrors": "udp-socket",
	"TcpExtTCPRcvQDrop": "tcp-socket", "TcpExtPruneCalled": "tcp-socket", "TcpExtRcvPruned": "tcp-socket", "TcpExtTCPBacklogDrop": "tcp-socket",
	"TcpExtListenDrops": "listen-queue",
}

func (e *Exporter) addPackets(s *collector.Sample) {
	p := &e.packets
	if s.Cost != nil {
		p.cost = s.Cost
	}
	e.addDrops(s)
	e.addSkew(s)
	if e.limits.Stages {
		for i := range s.Stages {
			st := &s.Stages[i]
			k := stageKey{st.Stage, st.Device}
			if st.Netns != 0 && st.Netns != e.netns {
				k.device = OtherNetns
			}
			if k.device != "" && !e.wanted(k.device) {
				continue
			}
			if k.device != "" && k.device != OtherNetns {
				if k.device = e.kept(k.device); k.device == "" {
					continue
				}
			}
			t := entry(p.stages, k)
			t.hist.Add(&st.Hist)
			t.ns += st.Sum
			t.n += st.Count
		}
	}
	for i := range s.Buckets {
		e.addBuckets(&s.Buckets[i])
	}
	if s.Flows != nil && e.limits.Elephants > 0 {
		e.addFlows(s)
	}
	action := map[int]string{}
	for _, q := range s.IRQs {
		action[q.IRQ] = q.Action
	}
	for i := range s.Pacing {
		g := &s.Pacing[i]
		k := gapKey{g.IRQ, action[g.IRQ]}
		if _, ok := p.gaps[k]; g.Hist.Count() < collector.LeastGaps || !ok && len(p.gaps) >= e.limits.Series {
			continue
		}
		v, _, _ := g.Hist.Quantile(0.5)
		p.gaps[k] = v / 1e9
	}
}

// AddBuckets takes what a window showed outside of samples.
func (e *Exporter) AddBuckets(b *collector.DeviceBuckets) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.addBuckets(b)
}

func (e *Exporter) addBuckets(b *collector.DeviceBuckets) {
	p := &e.packets
	if b.Netns != e.netns || !e.wanted(b.Device) || e.kept(b.Device) != b.Device {
		return
	}
	if r, ok := hottest(b.Packets); ok {
		p.bucketSkew[b.Device] = r
	}
	if b.Compared > 0 {
		p.agreed[b.Device] = float64(b.Agreed) / float64(b.Compared)
	}
}

// addFlows keeps the busiest ones.
func (e *Exporter) addFlows(s *collector.Sample) {
	p := &e.packets
	flows := slices.Clone(s.Flows)
	flows = slices.DeleteFunc(flows, func(f collector.Flow) bool {
		return f.Netns != e.netns || !e.wanted(f.Device) || e.kept(f.Device) != f.Device
	})
	slices.SortStableFunc(flows, func(a, b collector.Flow) int { return cmp.Compare(b.Packets, a.Packets) })
	clear(p.share)
	for _, f := range flows {
		p.share[f.Device] = max(p.share[f.Device], f.Share)
	}
	type id struct {
		device       string
		queue        int
		protocol     string
		source, dest netip.AddrPort
	}
	seen := map[id]bool{}
	p.flows, p.flowTime = nil, s.Interval.Seconds()
	for _, f := range flows {
		k := id{f.Device, f.RXQueue, f.Protocol, f.Source, f.Destination}
		if len(p.flows) < e.limits.Elephants && !seen[k] {
			seen[k] = true
			p.flows = append(p.flows, f)
		}
	}
}

func (e *Exporter) addDrops(s *collector.Sample) {
	p := &e.packets
	add := func(place, device string, n uint64) {
		if device != "" {
			if device = e.kept(device); device == "" {
				return
			}
		}
		p.drops[dropKey{place, device}] += n
	}
	for _, c := range s.CPUs {
		add("backlog", "", c.Dropped)
		add("flow-limit", "", c.FlowLimit)
	}
	for name, place := range protocolDrops {
		add(place, "", s.Protocols[name])
	}
	for _, d := range s.Devices {
		if e.wanted(d.Name) {
			add("device", d.Name, d.RXDropped+d.RXMissed)
		}
	}
	for _, d := range s.Drivers {
		if !e.wanted(d.Device) {
			continue
		}
		// Counters of different scope may count the same packets: the one that counted most is the best.
		by := map[string]map[nic.Scope]uint64{}
		for _, kind := range d.Told {
			if place := places[kind]; place != "" {
				by[place] = map[nic.Scope]uint64{"": 0}
			}
		}
		for _, c := range d.Counters {
			place := places[c.Kind]
			switch {
			case place == "":
				continue
			case by[place] == nil:
				by[place] = map[nic.Scope]uint64{}
			}
			if c.Scope == nic.ScopeQueue {
				by[place][c.Scope] += c.Count
			} else {
				by[place][c.Scope] = max(by[place][c.Scope], c.Count)
			}
		}
		for place, scopes := range by {
			most := uint64(0)
			for _, n := range scopes {
				most = max(most, n)
			}
			add(place, d.Device, most)
		}
	}
}

// addSkew is how uneven queues and CPUs were.
func (e *Exporter) addSkew(s *collector.Sample) {
	p := &e.packets
	queues := map[string]map[int]uint64{}
	for _, n := range s.NAPIs {
		if n.RXQueue < 0 || n.Netns != e.netns || !e.wanted(n.Device) || e.kept(n.Device) != n.Device {
			continue
		}
		if queues[n.Device] == nil {
			queues[n.Device] = map[int]uint64{}
		}
		queues[n.Device][n.RXQueue] += n.Packets
	}
	for dev, by := range queues {
		// Queues that were not polled have no entry: those up to the last one seen count.
		all := []uint64{}
		for q, n := range by {
			for len(all) <= q {
				all = append(all, 0)
			}
			all[q] = n
		}
		if r, ok := hottest(all); ok {
			p.queueSkew[dev] = r
		}
	}
	var times []uint64
	for _, c := range s.CPUs {
		times = append(times, c.SoftirqTime[collector.NetRX])
	}
	if r, ok := hottest(times); ok {
		p.cpuSkew = r
	}
}

// hottest is the largest per mean; ok is false where all are 0.
func hottest(v []uint64) (float64, bool) {
	var sum, most uint64
	for _, n := range v {
		sum += n
		most = max(most, n)
	}
	if sum == 0 {
		return 0, false
	}
	return float64(most) / (float64(sum) / float64(len(v))), true
}

func (e *Exporter) forgetPackets(device string) {
	p := &e.packets
	delete(p.queueSkew, device)
	delete(p.bucketSkew, device)
	delete(p.agreed, device)
	delete(p.share, device)
	for k := range p.stages {
		if k.device == device {
			delete(p.stages, k)
		}
	}
	for k := range p.drops {
		if k.device == device {
			delete(p.drops, k)
		}
	}
	p.flows = slices.DeleteFunc(slices.Clone(p.flows), func(f collector.Flow) bool { return f.Device == device })
}

func (e *Exporter) collectPackets(ch chan<- prometheus.Metric) {
	p := &e.packets
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	for k, t := range p.stages {
		m := t.metric(k)
		if e.limits.Native {
			m = nativeToo{m, &t.hist}
		}
		ch <- m
	}
	byDevice := func(d *prometheus.Desc, m map[string]float64) {
		for dev, v := range m {
			gauge(d, v, dev)
		}
	}
	byDevice(queueSkewDesc, p.queueSkew)
	byDevice(bucketSkewDesc, p.bucketSkew)
	byDevice(agreedDesc, p.agreed)
	byDevice(elephantShareDesc, p.share)
	if p.cpuSkew > 0 {
		gauge(cpuSkewDesc, p.cpuSkew)
	}
	for _, f := range p.flows {
		gauge(elephantDesc, float64(f.Packets)/max(p.flowTime, 1e-9), f.Device, number(f.RXQueue), f.Protocol, f.Source.String(), f.Destination.String())
	}
	for k, n := range p.drops {
		ch <- prometheus.MustNewConstMetric(droppedDesc, prometheus.CounterValue, float64(n), k.place, k.device)
	}
	for k, v := range p.gaps {
		gauge(gapDesc, v, number(k.irq), k.action)
	}
	if p.cost != nil {
		for _, c := range costs {
			gauge(c.desc, c.value(p.cost))
		}
	}
}

func (t *stageTotals) metric(k stageKey) prometheus.Metric {
	buckets := make(map[float64]uint64, len(stageBounds))
	var count uint64
	next := 0
	for i, n := range t.hist {
		count += n
		if next < len(stageBounds) && stageBounds[next] == i {
			buckets[math.Ldexp(1, i)/1e9] = count
			next++
		}
	}
	return prometheus.MustNewConstHistogram(stageDesc, count, float64(t.ns)/1e9, buckets, string(k.stage), k.device)
}

// nativeToo adds native buckets to a classic histogram, of powers of two of a second (schema 0). Those of the kernel side are of powers
// of two of a nanosecond: 2^30 ns is 7 % more than a second, and so much are the bounds off.
type nativeToo struct {
	prometheus.Metric
	hist *collector.Histogram
}

// Write implements prometheus.Metric.
func (n nativeToo) Write(out *dto.Metric) error {
	if err := n.Metric.Write(out); err != nil {
		return err
	}
	schema, threshold := int32(0), 0.0
	h := out.Histogram
	h.Schema, h.ZeroThreshold = &schema, &threshold
	zero := n.hist[0]
	h.ZeroCount = &zero
	next, last := 0, int64(0)
	var span *dto.BucketSpan
	for i := 1; i < len(n.hist); i++ {
		if n.hist[i] == 0 {
			continue
		}
		at := i - 30 // bucket j of schema 0 ends at 2^j s
		if span == nil || at != next {
			offset := int32(at - next)
			if span == nil {
				offset = int32(at)
			}
			length := uint32(0)
			span = &dto.BucketSpan{Offset: &offset, Length: &length}
			h.PositiveSpan = append(h.PositiveSpan, span)
		}
		*span.Length++
		next = at + 1
		h.PositiveDelta = append(h.PositiveDelta, int64(n.hist[i])-last)
		last = int64(n.hist[i])
	}
	if len(h.PositiveSpan) == 0 && zero == 0 { // tells a native histogram without observations
		offset, length := int32(0), uint32(0)
		h.PositiveSpan = []*dto.BucketSpan{{Offset: &offset, Length: &length}}
	}
	return nil
}

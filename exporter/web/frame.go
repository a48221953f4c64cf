package web

import (
	"cmp"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/rxsteer/rxsteer/collector"
)

// frame is a Sample as the page draws it. Shares are parts of one CPU's time, rates per second.
type frame struct {
	T       int64                  `json:"t"` // Unix ms of the end
	S       float64                `json:"s"` // seconds
	Level   int                    `json:"level"`
	RX      []float64              `json:"rx"`   // receive softirq by CPU, in the order of CPU
	Busy    []float64              `json:"busy"` // all that is not idle, likewise
	CPU     []int                  `json:"cpu"`
	Queues  map[string]row         `json:"q"`
	Stages  map[string]stage       `json:"stages,omitempty"`
	Flows   []flow                 `json:"flows,omitempty"`
	Drops   map[string]float64     `json:"drops,omitempty"` // packets/s lost, by place (Sample.Losses)
	Loads   map[string][]float64   `json:"loads,omitempty"` // packets/s by table entry, by device
	Packets float64                `json:"pps"`
	Cost    *collector.Cost        `json:"cost,omitempty"`
	Blind   []collector.Unmeasured `json:"blind,omitempty"`
}

// row is one queue's.
type row struct {
	Packets float64 `json:"pps"`
	Share   float64 `json:"share"`
	PerPkt  float64 `json:"ns"`   // ns per packet, 0 not known
	P99     float64 `json:"p99"`  // ns of a poll, upper bound of its bucket, 0 not known
	Full    float64 `json:"full"` // of polls that used their budget
	CPU     int     `json:"cpu"`  // that did most of it, -1 not known
}

// stage is the latency of one stage over all queues.
type stage struct {
	Count uint64   `json:"n"`
	P50   float64  `json:"p50"` // ns, upper bounds of buckets
	P90   float64  `json:"p90"`
	P99   float64  `json:"p99"`
	Hist  []uint64 `json:"h"` // log2 buckets without the empty ones at the end
}

// flow is one of the biggest.
type flow struct {
	Device  string  `json:"dev"`
	Queue   int     `json:"q"`
	CPU     int     `json:"cpu"`
	Name    string  `json:"name"`
	Packets float64 `json:"pps"`
	Error   float64 `json:"err"`  // ± packets/s
	Size    float64 `json:"size"` // bytes per packet
	Share   float64 `json:"share"`
	Bucket  int     `json:"bucket"`
	Reader  string  `json:"reader,omitempty"`
}

// maxFlows is how many flows a frame names.
const maxFlows = 20

// queueKey names a queue as the page does: "eth0 rx-3", "eth0 napi-257", "backlog cpu 1".
func queueKey(n *collector.NAPI) string {
	switch {
	case n.Device == collector.Backlog:
		return "backlog cpu " + strconv.Itoa(n.CPU)
	case n.Device == collector.Foreign:
		return cmp.Or(n.SeenAs, "?") + " in netns " + strconv.FormatUint(n.Netns, 10)
	case n.RXQueue >= 0:
		return n.Device + " rx-" + strconv.Itoa(n.RXQueue)
	case n.ID != 0:
		return n.Device + " napi-" + strconv.FormatUint(uint64(n.ID), 10)
	}
	return n.Device + " poll"
}

// frameOf draws a Sample up for the page.
func frameOf(s *collector.Sample) *frame {
	sec := max(s.Interval.Seconds(), 1e-9)
	f := &frame{T: s.End.UnixMilli(), S: round(sec, 3), Level: s.Level, Queues: map[string]row{}, Cost: s.Cost, Blind: s.Unmeasured, RX: []float64{}, Busy: []float64{}, CPU: []int{}}
	for i := range s.CPUs {
		c := &s.CPUs[i]
		rx := c.SoftirqTime[collector.NetRX]
		if s.Level < 1 {
			rx = c.Softirq // of /proc/stat: all softirqs together
		}
		f.CPU = append(f.CPU, c.CPU)
		f.RX = append(f.RX, round(min(float64(rx)/1e9/sec, 1), 3))
		f.Busy = append(f.Busy, round(min(max(1-float64(c.Idle+c.Steal)/1e9/sec, 0), 1), 3))
	}
	f.queues(s, sec)
	f.stages(s)
	f.flows(s, sec)
	for i := range s.Devices {
		d := &s.Devices[i]
		f.Packets += float64(d.RXPackets) / sec
	}
	for i := range s.Buckets {
		b := &s.Buckets[i]
		if f.Loads == nil {
			f.Loads = map[string][]float64{}
		}
		loads := make([]float64, len(b.Packets))
		for j, n := range b.Packets {
			loads[j] = round(float64(n)/sec, 1)
		}
		f.Loads[b.Device] = loads
	}
	f.Packets = math.Round(f.Packets)
	for _, l := range s.Losses() {
		if f.Drops == nil {
			f.Drops = map[string]float64{}
		}
		f.Drops[strings.TrimSpace(l.Device+" "+l.Place)] = float64(l.Packets) / sec
	}
	return f
}

func (f *frame) queues(s *collector.Sample, sec float64) {
	type total struct {
		packets, time, timed, polls, full uint64
		hist                              collector.Histogram
		cpu                               int
		most                              uint64
	}
	all := map[string]*total{}
	for i := range s.NAPIs {
		n := &s.NAPIs[i]
		k := queueKey(n)
		t := all[k]
		if t == nil {
			t = &total{cpu: -1}
			all[k] = t
		}
		t.packets += n.Packets
		t.time += n.Time
		if n.Time > 0 {
			t.timed += n.Packets
		}
		t.polls += n.Polls
		t.full += n.FullBudget
		t.hist.Add(&n.TimeHist)
		if w := max(n.Time, n.Packets); n.CPU >= 0 && (w > t.most || t.cpu < 0) {
			t.most, t.cpu = w, n.CPU
		}
	}
	for k, t := range all {
		r := row{Packets: math.Round(float64(t.packets) / sec), Share: round(float64(t.time)/1e9/sec, 4), CPU: t.cpu}
		if t.timed > 0 {
			r.PerPkt = math.Round(float64(t.time) / float64(t.timed))
		}
		if t.polls > 0 {
			r.P99, r.Full = above(&t.hist, 0.99), round(float64(t.full)/float64(t.polls), 3)
		}
		f.Queues[k] = r
	}
}

func (f *frame) stages(s *collector.Sample) {
	hists := map[collector.StageName]*collector.Histogram{}
	counts := map[collector.StageName]uint64{}
	for i := range s.Stages {
		x := &s.Stages[i]
		if hists[x.Stage] == nil {
			hists[x.Stage] = &collector.Histogram{}
		}
		hists[x.Stage].Add(&x.Hist)
		counts[x.Stage] += x.Count
	}
	for name, h := range hists {
		if f.Stages == nil {
			f.Stages = map[string]stage{}
		}
		n := len(h)
		for n > 0 && h[n-1] == 0 {
			n--
		}
		f.Stages[string(name)] = stage{Count: counts[name], P50: above(h, 0.5), P90: above(h, 0.9), P99: above(h, 0.99), Hist: slices.Clone(h[:n])}
	}
}

func (f *frame) flows(s *collector.Sample, sec float64) {
	list := slices.Clone(s.Flows)
	slices.SortStableFunc(list, func(a, b collector.Flow) int { return -cmp.Compare(a.Packets, b.Packets) })
	for i := range list[:min(len(list), maxFlows)] {
		x := &list[i]
		g := flow{
			Device: x.Device, Queue: x.RXQueue, CPU: x.CPU, Bucket: x.Bucket, Share: round(x.Share, 4),
			Name:    x.Protocol + " " + x.Source.String() + " → " + x.Destination.String(),
			Packets: math.Round(float64(x.Packets) / sec), Error: math.Round(float64(x.Error) / sec),
		}
		if x.Packets > 0 {
			g.Size = math.Round(float64(x.Bytes) / float64(x.Packets))
		}
		if x.Process != "" {
			g.Reader = x.Process + " (" + strconv.Itoa(x.PID) + ")"
		}
		if x.ConsumerCPU >= 0 {
			g.Reader += " on cpu " + strconv.Itoa(x.ConsumerCPU)
		}
		f.Flows = append(f.Flows, g)
	}
}

// above is the upper bound of the bucket in which the part q of a log2 histogram ends, 0 for an empty one.
func above(h *collector.Histogram, q float64) float64 {
	var all uint64
	for _, n := range h {
		all += n
	}
	if all == 0 {
		return 0
	}
	want, seen := uint64(math.Ceil(q*float64(all))), uint64(0)
	for i, n := range h {
		if seen += n; seen >= want {
			return math.Ldexp(1, i)
		}
	}
	return math.Ldexp(1, len(h))
}

func round(x float64, digits int) float64 {
	p := math.Pow10(digits)
	return math.Round(x*p) / p
}

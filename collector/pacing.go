package collector

import (
	"cmp"
	"fmt"
	"math"
)

// GapBuckets is the length of a GapHistogram.
const GapBuckets = 64

// GapHistogram counts gaps between interrupts, in quarters of an octave from 1 µs on: bucket 1+4·o+q
// counts gaps of 2^(10+o)·(1+q/4) ns and more up to the next one's, bucket 0 all below, the last all above
// (50 ms). Each is at most a quarter wide.
type GapHistogram [GapBuckets]uint64

// gapFrom is where bucket i of a GapHistogram begins, ns.
func gapFrom(i int) float64 {
	if i == 0 {
		return 0
	}
	return math.Ldexp(1+float64((i-1)%4)/4, 10+(i-1)/4)
}

// Quantile is the gap (ns) that a share q of all is no longer than: interpolated in a bucket, whose bounds are lo
// and hi, so that it is at most an eighth off on the mean and a quarter at worst. It is 0 for no gaps; hi is +Inf in the last bucket.
func (h *GapHistogram) Quantile(q float64) (gap, lo, hi float64) {
	i, part, ok := quantile(h[:], q)
	if !ok {
		return 0, 0, 0
	}
	lo = gapFrom(i)
	if i == GapBuckets-1 {
		return lo, lo, math.Inf(1)
	}
	hi = gapFrom(i + 1)
	return lo + part*(hi-lo), lo, hi
}

// Add adds another histogram to h.
func (h *GapHistogram) Add(o *GapHistogram) {
	for i := range h {
		h[i] += o[i]
	}
}

// Count is how many gaps there are.
func (h *GapHistogram) Count() uint64 { return count(h[:]) }

// Quantile is the value that a share q (0 to 1) of all counted ones is no greater than. It lies somewhere between lo
// and hi, the bounds of its bucket, which are a factor of two apart: v, interpolated between them, is at most
// twice or half of the truth. The last bucket has no upper bound: hi is +Inf and v its lower one. All are 0 for an empty histogram.
func (h *Histogram) Quantile(q float64) (v, lo, hi float64) {
	i, part, ok := quantile(h[:], q)
	switch {
	case !ok || i == 0:
		return 0, 0, 0
	case i == Buckets-1:
		lo = math.Ldexp(1, i-1)
		return lo, lo, math.Inf(1)
	}
	lo, hi = math.Ldexp(1, i-1), math.Ldexp(1, i)
	return lo + part*(hi-lo), lo, hi
}

// Count is how many values there are.
func (h *Histogram) Count() uint64 { return count(h[:]) }

func count(buckets []uint64) (n uint64) {
	for _, c := range buckets {
		n += c
	}
	return n
}

// quantile finds the bucket of a quantile and how far into it (0 to 1) it is; ok is false of no values.
func quantile(buckets []uint64, q float64) (bucket int, part float64, ok bool) {
	n := count(buckets)
	if n == 0 {
		return 0, 0, false
	}
	rank := min(max(q, 0), 1) * float64(n)
	var below float64
	for i, c := range buckets {
		if c == 0 {
			continue
		}
		bucket = i
		if below+float64(c) >= rank {
			return i, (rank - below) / float64(c), true
		}
		below += float64(c)
	}
	return bucket, 1, true
}

// Pacing is how the interrupts of a line followed one another.
type Pacing struct {
	IRQ int `json:"irq"`
	// Hist counts the gaps between beginnings of its handler on one CPU: one less than its interrupts, and one
	// less for each time the programs were switched off meanwhile.
	Hist GapHistogram `json:"gap_hist"`
	// Packets is what the NAPI that this line raises (see Link) polled, 0 not known.
	Packets uint64 `json:"packets,omitempty"`
}

// What it takes to tell a timer by the gaps.
const (
	// LeastGaps is the least gaps whose median means something.
	LeastGaps = 100
	// LeastClose is the least share of packets closer than the timer. With packets at random times the median gap is
	// longer than the timer by 0.69·(1−close)/close of it: here by 23 %.
	LeastClose = 0.75
)

// Close is the share of packets that came within the timer after another: those of an interrupt less one, given the packets
// per interrupt.
func Close(packetsPerIRQ float64) float64 {
	if packetsPerIRQ <= 1 {
		return 0
	}
	return 1 - 1/packetsPerIRQ
}

// Truth is what a card makes of its rx-usecs.
type Truth struct {
	// K is the median gap over rx-usecs; a quarter of the gaps is shorter than Low and a quarter longer than High, over rx-usecs, too.
	// A timer's gaps lie close together, but for some that a CPU which was kept from them cut short or drew out; where High
	// is many times Low the traffic's own pauses are in K.
	K, Low, High float64
	// Close is the share of packets closer than the timer.
	Close float64
	// Sparse says why K cannot be told, "" if it can: then only Close means something.
	Sparse string
}

// Truth states the factor k between a queue's interrupts and rx-usecs under its present traffic, or
// that this is too sparse to tell. packetsPerIRQ is of the same interval.
func (p *Pacing) Truth(rxUsecs int64, packetsPerIRQ float64) Truth {
	t := Truth{Close: Close(packetsPerIRQ)}
	gaps := p.Hist.Count()
	switch {
	case rxUsecs <= 0:
		t.Sparse = "rx-usecs is 0: there is no timer"
	case gaps < LeastGaps:
		t.Sparse = fmt.Sprintf("too few interrupts to tell: %d", gaps)
	case t.Close < LeastClose:
		t.Sparse = fmt.Sprintf("too sparse to tell: only %.0f %% of the packets come within the timer after another", 100*t.Close)
	}
	if t.Sparse != "" {
		return t
	}
	at := func(q float64) float64 {
		gap, _, _ := p.Hist.Quantile(q)
		return gap / (float64(rxUsecs) * 1e3)
	}
	t.K, t.Low, t.High = at(0.5), at(0.25), at(0.75)
	return t
}

// Link is what traffic has shown of a device's NAPI: which rx queue it fills and which interrupt raises it.
type Link struct {
	Netns   uint64 `json:"netns"`
	IfIndex int    `json:"ifindex"`
	NAPI    uint32 `json:"napi_id"`
	RXQueue int    `json:"rx_queue"` // -1 not seen
	IRQ     int    `json:"irq"`      // -1 not seen
}

type linkKey struct {
	netns   uint64
	ifindex int
	napi    uint32
}

func (l Link) key() linkKey { return linkKey{l.Netns, l.IfIndex, l.NAPI} }

func compareLinks(a, b Link) int {
	return cmp.Or(cmp.Compare(a.Netns, b.Netns), cmp.Compare(a.IfIndex, b.IfIndex), cmp.Compare(a.NAPI, b.NAPI))
}

func (p *Pacing) add(o *Pacing) {
	p.IRQ = o.IRQ
	p.Hist.Add(&o.Hist)
	p.Packets += o.Packets
}

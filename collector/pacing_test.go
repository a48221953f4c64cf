package collector

import (
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// gapBucket is the bucket of a gap by the histogram's own description.
func gapBucket(ns float64) int {
	for i := GapBuckets - 1; i > 0; i-- {
		if ns >= gapFrom(i) {
			return i
		}
	}
	return 0
}

func TestGapBucketsAreAQuarterWide(t *testing.T) {
	for i := 1; i < GapBuckets-1; i++ {
		if w := gapFrom(i+1) / gapFrom(i); w < 1.14 || w > 1.2501 {
			t.Errorf("bucket %d: %v to %v ns, a factor of %.3f", i, gapFrom(i), gapFrom(i+1), w)
		}
	}
	if gapFrom(1) != 1024 || gapFrom(GapBuckets-1) < 45e6 {
		t.Errorf("gaps from %v to %v ns, want 1 µs to 50 ms", gapFrom(1), gapFrom(GapBuckets-1))
	}
}

func TestQuantilesLieWithinTheirError(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 50 {
		var h Histogram
		var g GapHistogram
		values := make([]float64, 1+rng.IntN(3000))
		for i := range values {
			values[i] = math.Floor(math.Exp(8 + 2*rng.NormFloat64()))
			b := 0
			for v := uint64(values[i]); v > 0; v >>= 1 {
				b++
			}
			h[min(b, Buckets-1)]++
			g[gapBucket(values[i])]++
		}
		slices.Sort(values)
		for _, q := range []float64{0, 0.5, 0.9, 0.99, 0.999, 1} {
			truth := values[max(int(math.Ceil(q*float64(len(values))))-1, 0)]
			if v, lo, hi := h.Quantile(q); truth < lo || truth >= hi && truth > 0 || v < lo || v > hi || hi > 2*lo && lo > 0 {
				t.Errorf("q %v of %d: %v in [%v, %v), truth %v", q, len(values), v, lo, hi, truth)
			}
			if v, lo, hi := g.Quantile(q); truth < lo || truth >= hi || v < lo || v > hi {
				t.Errorf("gap q %v of %d: %v in [%v, %v), truth %v", q, len(values), v, lo, hi, truth)
			}
		}
	}
	var h Histogram
	if v, lo, hi := h.Quantile(0.5); v != 0 || lo != 0 || hi != 0 {
		t.Errorf("median of nothing: %v, %v, %v", v, lo, hi)
	}
	h[Buckets-1] = 1
	if v, lo, hi := h.Quantile(0.5); v != 1<<30 || lo != 1<<30 || !math.IsInf(hi, 1) {
		t.Errorf("median of the last bucket: %v, %v, %v", v, lo, hi)
	}
}

// arrivals simulates a card that holds an interrupt back until the timer has run since the last one.
func arrivals(rng *rand.Rand, timer, mean float64, n int) (p Pacing, perIRQ float64) {
	var last, at float64
	var irqs, packets int
	for ; irqs <= n; packets++ {
		at += mean * rng.ExpFloat64()
		if at < last+timer {
			continue // waits with those before it
		}
		// The first packet after the timer ran out interrupts at once; one that came before did so when it ran out.
		if irqs > 0 {
			p.Hist[gapBucket(at-last)]++
		}
		last = at
		irqs++
	}
	return p, float64(packets) / float64(irqs)
}

func TestCoalescingTruth(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	const usecs = 50
	for _, k := range []float64{1, 2.75, 3.7} {
		p, per := arrivals(rng, k*usecs*1e3, 2e3, 2000)
		got := p.Truth(usecs, per)
		if got.Sparse != "" || math.Abs(got.K/k-1) > 0.13 || got.Low > got.K || got.High < got.K {
			t.Errorf("a card that makes %v of it: %+v", k, got)
		}
	}
	p, per := arrivals(rng, usecs*1e3, 200e3, 2000)
	if got := p.Truth(usecs, per); !strings.HasPrefix(got.Sparse, "too sparse") || got.K != 0 || got.Close > 0.5 {
		t.Errorf("packets 200 µs apart with a timer of 50: %+v", got)
	}
	p, per = arrivals(rng, usecs*1e3, 2e3, 20)
	if got := p.Truth(usecs, per); !strings.HasPrefix(got.Sparse, "too few") {
		t.Errorf("20 interrupts: %+v", got)
	}
	if got := p.Truth(0, per); got.Sparse == "" {
		t.Errorf("no timer: %+v", got)
	}
}

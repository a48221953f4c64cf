package traffic

import (
	"math/bits"
	"time"
)

// subBits sets the resolution: 2^7 linear steps per power of two, so a value is
// known to better than 0.8 %.
const subBits = 7

// Histogram counts durations with bounded relative error and bounded memory
// (log-linear, as HdrHistogram). The zero value is empty.
type Histogram struct {
	counts   []uint64
	n        uint64
	sum      float64
	min, max int64 // ns
}

// index is the bucket of v: exact below 2^subBits, then 2^subBits buckets per octave.
func index(v uint64) int {
	if v < 1<<subBits {
		return int(v)
	}
	shift := bits.Len64(v) - 1 - subBits
	return shift<<subBits + int(v>>shift)
}

// upper is the largest value of bucket i.
func upper(i int) uint64 {
	if i < 1<<subBits {
		return uint64(i)
	}
	shift := i>>subBits - 1
	return (uint64(i-shift<<subBits)+1)<<shift - 1
}

// Add counts d; a negative d counts as zero.
func (h *Histogram) Add(d time.Duration) {
	v := max(int64(d), 0)
	i := index(uint64(v))
	if i >= len(h.counts) {
		h.counts = append(h.counts, make([]uint64, i+1-len(h.counts))...)
	}
	h.counts[i]++
	if h.n == 0 || v < h.min {
		h.min = v
	}
	h.max = max(h.max, v)
	h.n++
	h.sum += float64(v)
}

// Merge adds what o counted.
func (h *Histogram) Merge(o *Histogram) {
	if o.n == 0 {
		return
	}
	if len(o.counts) > len(h.counts) {
		h.counts = append(h.counts, make([]uint64, len(o.counts)-len(h.counts))...)
	}
	for i, c := range o.counts {
		h.counts[i] += c
	}
	if h.n == 0 || o.min < h.min {
		h.min = o.min
	}
	h.max = max(h.max, o.max)
	h.n += o.n
	h.sum += o.sum
}

// Count is how many durations were added.
func (h *Histogram) Count() uint64 { return h.n }

// Quantile is the smallest value that at least q (0…1) of the durations do not
// exceed, at most 0.8 % too high; 0 when empty.
func (h *Histogram) Quantile(q float64) time.Duration {
	if h.n == 0 {
		return 0
	}
	rank := uint64(q * float64(h.n))
	if float64(rank) < q*float64(h.n) {
		rank++
	}
	rank = max(rank, 1)
	var seen uint64
	for i, c := range h.counts {
		seen += c
		if seen >= rank {
			return time.Duration(min(max(int64(upper(i)), h.min), h.max))
		}
	}
	return time.Duration(h.max)
}

// Summary is a histogram in the figures people ask for; nanoseconds.
type Summary struct {
	Count uint64        `json:"count"`
	Min   time.Duration `json:"min_ns"`
	Mean  time.Duration `json:"mean_ns"`
	P50   time.Duration `json:"p50_ns"`
	P90   time.Duration `json:"p90_ns"`
	P99   time.Duration `json:"p99_ns"`
	P999  time.Duration `json:"p999_ns"`
	Max   time.Duration `json:"max_ns"`
}

// Summary computes the percentiles.
func (h *Histogram) Summary() Summary {
	if h.n == 0 {
		return Summary{}
	}
	return Summary{
		Count: h.n,
		Min:   time.Duration(h.min),
		Mean:  time.Duration(h.sum / float64(h.n)),
		P50:   h.Quantile(0.50),
		P90:   h.Quantile(0.90),
		P99:   h.Quantile(0.99),
		P999:  h.Quantile(0.999),
		Max:   time.Duration(h.max),
	}
}

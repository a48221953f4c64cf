package main

import (
	"math"
	"slices"
)

// median of values, which it sorts; NaN when empty.
func median(values []float64) float64 {
	if len(values) == 0 {
		return math.NaN()
	}
	slices.Sort(values)
	n := len(values)
	if n%2 == 1 {
		return values[n/2]
	}
	return (values[n/2-1] + values[n/2]) / 2
}

// interval is a median with its 95 % confidence interval.
type interval struct {
	Median float64
	Low    float64
	High   float64
}

// middle is the median of values with the interval that holds whatever their
// distribution is, from the binomial distribution of how many lie below the
// median: one round in which the machine did something else moves neither. It
// takes six values; with fewer the interval is everything.
func middle(values []float64) interval {
	v := slices.Sorted(slices.Values(values))
	k := tail(len(v))
	if k == 0 {
		return interval{median(v), math.Inf(-1), math.Inf(1)}
	}
	return interval{median(v), v[k-1], v[len(v)-k]}
}

// tail is the largest k for which fewer than k of n values lie below the
// median with a probability of at most 2.5 %: the k-th from either end bounds
// the interval.
func tail(n int) int {
	p := math.Pow(0.5, float64(n)) // of exactly i below
	sum := 0.0
	for i := range n {
		sum += p
		if sum > 0.025 {
			return i
		}
		p *= float64(n-i) / float64(i+1)
	}
	return 0
}

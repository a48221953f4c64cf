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

// interval is a mean with its 95 % confidence interval.
type interval struct {
	Mean float64 `json:"mean"`
	Low  float64 `json:"low"`
	High float64 `json:"high"`
	N    int     `json:"n"`
}

// ratio is the geometric mean of ratios with the t interval of their
// logarithms; fewer than two give no interval (±Inf).
func ratio(ratios []float64) interval {
	logs := make([]float64, len(ratios))
	for i, r := range ratios {
		logs[i] = math.Log(r)
	}
	m, half := meanHalf(logs)
	return interval{Mean: math.Exp(m), Low: math.Exp(m - half), High: math.Exp(m + half), N: len(ratios)}
}

// difference is the mean of differences with its t interval.
func difference(d []float64) interval {
	m, half := meanHalf(d)
	return interval{Mean: m, Low: m - half, High: m + half, N: len(d)}
}

// meanHalf is the mean and half the width of its 95 % interval.
func meanHalf(v []float64) (mean, half float64) {
	n := float64(len(v))
	for _, x := range v {
		mean += x / n
	}
	if n < 2 {
		return mean, math.Inf(1)
	}
	var ss float64
	for _, x := range v {
		ss += (x - mean) * (x - mean)
	}
	return mean, t95(len(v)-1) * math.Sqrt(ss/(n-1)/n)
}

// t95 is the 97.5 % point of Student's t with df degrees of freedom: the table
// up to 10, then Cornish-Fisher's expansion (Abramowitz and Stegun 26.7.5),
// right to 0.1 %.
func t95(df int) float64 {
	table := []float64{12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228}
	if df <= len(table) {
		return table[df-1]
	}
	const z = 1.959964
	n := float64(df)
	return z + (z*z*z+z)/(4*n) + (5*math.Pow(z, 5)+16*z*z*z+3*z)/(96*n*n)
}

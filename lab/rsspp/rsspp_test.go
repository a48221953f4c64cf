package rsspp_test

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rxsteer/rxsteer/lab/rsspp"
)

func TestSolve(t *testing.T) {
	for _, tt := range []struct {
		name       string
		loads      []float64
		background []float64
		table      []int
		want       []int
	}{
		{
			name:       "balanced: no move",
			loads:      []float64{.3, .3, .3},
			background: []float64{0, 0, 0},
			table:      []int{0, 1, 2},
			want:       []int{0, 1, 2},
		},
		{
			name:       "within the threshold of the mean: no move",
			loads:      []float64{.3, .01, .29},
			background: []float64{0, 0},
			table:      []int{0, 0, 1},
			want:       []int{0, 0, 1},
		},
		{
			// The first run moves only .2: .3 would overfill core 1. Its imbalance as allowance lets .3 go.
			name:       "the biggest bucket goes to the least loaded core, a later run allows more",
			loads:      []float64{.3, .2, .1, .1},
			background: []float64{0, 0, .1},
			table:      []int{0, 0, 0, 2},
			want:       []int{1, 0, 2, 2},
		},
		{
			name:       "a lone busy bucket is given up on",
			loads:      []float64{.9, 0, .1},
			background: []float64{0, 0},
			table:      []int{0, 0, 1},
			want:       []int{0, 0, 1},
		},
		{
			name:       "mice leave the elephant",
			loads:      []float64{.8, .05, .05, .05, .05},
			background: []float64{0, 0, 0},
			table:      []int{0, 0, 0, 0, 0},
			want:       []int{0, 1, 2, 1, 2},
		},
		{
			name:       "background counts as load of its core",
			loads:      []float64{.1, .1, .1, .1},
			background: []float64{.5, 0, .35},
			table:      []int{0, 0, 0, 0},
			want:       []int{1, 1, 1, 1},
		},
		{
			name:  "no queue, no bucket",
			table: []int{},
			want:  []int{},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := rsspp.Solve(tt.loads, tt.background, tt.table)
			if d := cmp.Diff(tt.want, got); d != "" {
				t.Errorf("table (-want +got):\n%s", d)
			}
		})
	}
}

// What the paper promises of a round: the imbalance falls and only overloaded cores lose buckets.
func TestSolveLessImbalance(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	improved := 0
	for range 300 {
		cores := 2 + r.IntN(15)
		loads, table := make([]float64, 128), make([]int, 128)
		for b := range loads {
			loads[b] = r.ExpFloat64() * float64(cores) * .4 / 128
			table[b] = r.IntN(cores) * r.IntN(2)
		}
		background := make([]float64, cores)
		before := table
		load := func(table []int) []float64 {
			l := slices.Clone(background)
			for b, q := range table {
				l[q] += loads[b]
			}
			return l
		}
		was := load(before)
		after := rsspp.Solve(loads, background, before)
		var mean float64
		for _, l := range was {
			mean += l / float64(cores)
		}
		square := func(l []float64) (s float64) {
			for _, x := range l {
				s += (x - mean) * (x - mean)
			}
			return s
		}
		if a, b := square(load(after)), square(was); a > b+1e-12 {
			t.Fatalf("squared imbalance rose from %g to %g\nloads %v\ntable %v", b, a, loads, table)
		} else if a < b/4 {
			improved++
		}
		for b := range after {
			if after[b] != before[b] && was[before[b]] <= mean {
				t.Fatalf("bucket %d left core %d, which was not overloaded", b, before[b])
			}
		}
	}
	if improved < 250 {
		t.Errorf("the imbalance fell to a quarter in %d of 300 instances, want 250", improved)
	}
}

func BenchmarkSolve128x16(b *testing.B) {
	r := rand.New(rand.NewPCG(1, 2))
	loads, table := make([]float64, 128), make([]int, 128)
	for i := range loads {
		loads[i], table[i] = r.ExpFloat64()*.05, r.IntN(16)
	}
	background := make([]float64, 16)
	for b.Loop() {
		rsspp.Solve(loads, background, table)
	}
}

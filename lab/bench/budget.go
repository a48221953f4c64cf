package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/rxsteer/rxsteer/collector"
	"github.com/rxsteer/rxsteer/internal/host"
)

// budgetWindow is a whole cycle of a collector that only attaches in windows (1 s in 11).
const budgetWindow = 12 * time.Second

// steady is how long doing nothing is measured before and after.
const steady = 2 * time.Second

// budgeted measures a sampler that runs with the default budget.
func budgeted(ctx context.Context, r *rig, n, rounds int, window time.Duration, progress io.Writer) (row, error) {
	out := row{Arm: armBudget}
	var ns, ratios, extra, said, duty []float64
	for round := range rounds {
		fmt.Fprintf(progress, "\r%d packets per poll, budget: round %d of %d ", n, round+1, rounds)
		before, err := r.mean(n, steady)
		if err != nil {
			return out, err
		}
		with, cost, err := underBudget(ctx, r, n, window)
		if err != nil {
			return out, err
		}
		after, err := r.mean(n, steady)
		if err != nil {
			return out, err
		}
		base := (before + after) / 2
		ns = append(ns, with)
		ratios = append(ratios, with/base)
		extra = append(extra, with-base)
		said = append(said, cost.Hottest)
		duty = append(duty, cost.Duty)
	}
	fmt.Fprintln(progress)
	out.Ns, out.Ratio, out.Extra = median(ns), middle(ratios), middle(extra)
	out.Note = fmt.Sprintf("it looked at %.1f %% of the events, and said it took %.2f %% of the CPU", 100*median(duty), 100*median(said))
	return out, nil
}

// underBudget sends while a sampler runs, and returns what that says it cost.
func underBudget(ctx context.Context, r *rig, n int, window time.Duration) (ns float64, cost *collector.Cost, err error) {
	ring := collector.NewRing(int(window/time.Second) + 2)
	s := collector.New(collector.Config{FS: host.OS{}, Level: 1, Overhead: collector.DefaultOverhead, Ring: ring})
	running, stop := context.WithCancel(ctx)
	defer stop()
	done := make(chan error, 1)
	// The traffic is there when the sampler comes, as on a host that somebody looks at.
	type outcome struct {
		ns  float64
		err error
	}
	sent := make(chan outcome, 1)
	go func() {
		ns, err := r.mean(n, window)
		sent <- outcome{ns, err}
	}()
	go func() { done <- s.Run(running) }()
	o := <-sent
	stop()
	if err := <-done; err != nil {
		return 0, nil, err
	}
	if err := s.Refused(); err != nil {
		return 0, nil, err
	}
	m := collector.Merge(ring.Window(time.Hour)...)
	if o.err != nil || m == nil || m.Cost == nil {
		return 0, nil, fmt.Errorf("measure the default budget: no sample: %w", o.err)
	}
	return o.ns, m.Cost, nil
}

// mean is the ns per packet of n-packet batches over d: what is lost in a short window counts by its length. A slice
// in which something else took the CPU counts for no more than half as much again as the median.
func (r *rig) mean(n int, d time.Duration) (float64, error) {
	values, err := r.slices(n, d, benchCPU())
	if err != nil {
		return 0, err
	}
	most := 1.5 * median(values)
	sum := 0.0
	for _, v := range values {
		sum += min(v, most)
	}
	return sum / float64(len(values)), nil
}

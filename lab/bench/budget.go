package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/rxsteer/rxsteer/collector"
	"github.com/rxsteer/rxsteer/internal/host"
	"github.com/rxsteer/rxsteer/internal/toeplitz"
)

// budgetWindow is a whole cycle of a collector that only attaches in windows (1 s in 11).
const budgetWindow = 12 * time.Second

// steady is how long doing nothing is measured before and after.
const steady = 2 * time.Second

// sampled is an arm that a sampler decides about itself: it takes whole cycles of its windows.
type sampled struct {
	name   string
	config collector.Config
	window time.Duration // a cycle at least
	// delivered is what its samples, merged, must hold, and says how much it was.
	delivered func(*collector.Sample) (string, error)
}

// detailWindow is a whole cycle of a collector that follows packets without a budget: it owes ten seconds at most.
const detailWindow = 14 * time.Second

// budgetArm is what rxsteer diagnose does unless something is wrong.
func budgetArm() sampled {
	return sampled{armBudget, collector.Config{Level: 1, Overhead: collector.DefaultOverhead}, budgetWindow, func(s *collector.Sample) (string, error) {
		return fmt.Sprintf("it looked at %.1f %% of the events", 100*s.Cost.Duty), nil
	}}
}

// detailArm is rxsteer diagnose --level 2 --overhead 0 of the rig's receiver.
func detailArm(r *rig) (sampled, error) {
	index, err := r.b.IfIndex("b0")
	if err != nil {
		return sampled{}, err
	}
	rss := collector.RSS{Netns: r.b.Inode(), IfIndex: index, Device: "b0", Table: make([]int, 128), Key: toeplitz.MicrosoftKey}
	config := collector.Config{Level: 2, RSS: func() []collector.RSS { return []collector.RSS{rss} }}
	return sampled{armDetail, config, detailWindow, func(s *collector.Sample) (string, error) {
		var buckets, stages, drops uint64
		for _, b := range s.Buckets {
			buckets += b.Seen
		}
		for i := range s.Stages {
			if s.Stages[i].Stage == collector.GROToStack && s.Stages[i].Netns == rss.Netns {
				stages += s.Stages[i].Count
			}
		}
		for _, d := range s.Drops {
			drops += d.Packets
		}
		if buckets == 0 || stages == 0 || drops == 0 || len(s.Flows) == 0 || s.Cost.Duty != 1 {
			return "", fmt.Errorf("%d packets of buckets, %d of stages, %d drops, %d flows, %.2f of the polls: that is not full detail", buckets, stages, drops, len(s.Flows), s.Cost.Duty)
		}
		return fmt.Sprintf("polls were counted all the time and packets followed in %.0f %% of it: %d timed from driver to stack, %d counted by bucket and flow, the reasons of %d drops",
			100*s.Cost.DutyPackets, stages, buckets, drops), nil
	}}, nil
}

// measure has the arm run beside the traffic, against nothing before and after.
func (a *sampled) measure(ctx context.Context, r *rig, n, rounds int, progress io.Writer) (row, error) {
	out := row{Arm: a.name}
	var ns, ratios, extra, said []float64
	for round := range rounds {
		fmt.Fprintf(progress, "\r%d packets per poll, %s: round %d of %d ", n, a.name, round+1, rounds)
		before, err := r.mean(n, steady)
		if err != nil {
			return out, err
		}
		with, sample, err := a.beside(ctx, r, n)
		if err != nil {
			return out, err
		}
		delivered, err := a.delivered(sample)
		if err != nil {
			return out, fmt.Errorf("measure %s: %w", a.name, err)
		}
		after, err := r.mean(n, steady)
		if err != nil {
			return out, err
		}
		base := (before + after) / 2
		ns = append(ns, with)
		ratios = append(ratios, with/base)
		extra = append(extra, with-base)
		said = append(said, sample.Cost.Hottest)
		out.Note = fmt.Sprintf("%s, and it said it took %.2f %% of the CPU", delivered, 100*median(said)) // delivered: of the last round
	}
	fmt.Fprintln(progress)
	out.Ns, out.Ratio, out.Extra = median(ns), middle(ratios), middle(extra)
	return out, nil
}

// beside sends while the sampler runs, and returns what that saw.
func (a *sampled) beside(ctx context.Context, r *rig, n int) (ns float64, seen *collector.Sample, err error) {
	ring := collector.NewRing(int(a.window/time.Second) + 2)
	config := a.config
	config.FS, config.Ring = host.OS{}, ring
	s := collector.New(config)
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
		ns, err := r.mean(n, a.window)
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
	if m == nil || m.Cost == nil {
		o.err = errors.Join(o.err, errors.New("no sample was made"))
	}
	if o.err != nil {
		return 0, nil, fmt.Errorf("measure %s: %w", a.name, o.err)
	}
	return o.ns, m, nil
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

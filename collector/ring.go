package collector

import (
	"slices"
	"sync"
	"time"
)

// Ring keeps the most recent samples for everyone who reads. It is safe for
// concurrent use; samples are shared and must not be changed.
type Ring struct {
	mu      sync.Mutex
	samples []*Sample // oldest first
	size    int
	subs    map[*subscriber]struct{}
}

type subscriber struct {
	ch     chan *Sample
	missed uint64
}

// NewRing keeps size samples, at least one.
func NewRing(size int) *Ring {
	return &Ring{size: max(size, 1), subs: map[*subscriber]struct{}{}}
}

// Add publishes s. It never waits for a reader.
func (r *Ring) Add(s *Sample) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.samples) == r.size {
		r.samples = slices.Delete(r.samples, 0, 1)
	}
	r.samples = append(r.samples, s)
	for sub := range r.subs {
		select {
		case sub.ch <- s:
		default:
			sub.missed++
		}
	}
}

// Latest is the newest sample, nil before the first.
func (r *Ring) Latest() *Sample {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.samples) == 0 {
		return nil
	}
	return r.samples[len(r.samples)-1]
}

// Window is the newest samples that together cover at least d, oldest first;
// fewer if the ring does not reach back that far.
func (r *Ring) Window(d time.Duration) []*Sample {
	r.mu.Lock()
	defer r.mu.Unlock()
	i := len(r.samples)
	for covered := time.Duration(0); i > 0 && covered < d; i-- {
		covered += r.samples[i-1].Interval
	}
	return slices.Clone(r.samples[i:])
}

// Subscribe delivers every sample added from now on until cancel, which
// returns how many this reader was too slow for. The channel holds a few, is
// closed by cancel, and a second cancel does nothing.
func (r *Ring) Subscribe() (samples <-chan *Sample, cancel func() (missed uint64)) {
	sub := &subscriber{ch: make(chan *Sample, 8)}
	r.mu.Lock()
	r.subs[sub] = struct{}{}
	r.mu.Unlock()
	return sub.ch, func() uint64 {
		r.mu.Lock()
		defer r.mu.Unlock()
		if _, ok := r.subs[sub]; ok {
			delete(r.subs, sub)
			close(sub.ch)
		}
		return sub.missed
	}
}

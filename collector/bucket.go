package collector

import (
	"context"
	"errors"
	"time"
)

// Buckets watches every packet of a device for d and returns the load of each entry of
// its indirection table. It begins at once (an attach is some milliseconds), whatever Run
// is doing, and may be called from another goroutine than Run's; calls wait for each other.
// Time needs the cost of a packet by queue and is nil until Run has made a sample of
// level 1 in which the device was polled. If ctx ends first, what was seen until then is
// returned with ctx's error. The programs stay loaded, detached, until Run ends, so that
// the next window is cheaper; without Run, until Close.
//
// Every packet then costs some 60 ns more (bpf/spread.bpf.c): a window of 100 ms each ten
// seconds is 1 % of that. What the caller may spend is for the caller to know.
//
//	r, _ := collector.RSSOf(snapshot, "eth0")
//	b, err := sampler.Buckets(ctx, r, 150*time.Millisecond)
//
// Errors of package bpf (ErrNoPrivilege, ErrNoBTF, ErrNoTracepoint) say that it is not possible here.
func (s *Sampler) Buckets(ctx context.Context, device RSS, d time.Duration) (*DeviceBuckets, error) {
	return nil, errors.New("watch buckets: not built in yet")
}

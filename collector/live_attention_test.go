package collector

import (
	"context"
	"testing"
	"time"

	"github.com/rxsteer/rxsteer/internal/host"
	"github.com/rxsteer/rxsteer/internal/testnet"
)

// Level 2 climbed to by Worth is that of the kernel: packets sent afterwards are counted in their buckets.
func TestLiveAttentionClimbs(t *testing.T) {
	ns := testnet.New(t)
	dev := newTAP(t, ns, 2)
	r := rss(t, ns, dev.Name, 128, 2)
	ring := NewRing(20)
	s := New(Config{FS: host.OS{}, Level: 2, Interval: 200 * time.Millisecond, Ring: ring, FlowRate: 1, RSS: func() []RSS { return []RSS{r} }, Worth: func(*Sample) string { return "a test asks for it" }})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	samples, stop := ring.Subscribe()
	defer stop()
	first, got := 0, uint64(0)
	for n := 0; n < 20 && got == 0; n++ {
		send(t, dev, 0, datagram(4000), 50)
		x := <-samples
		if x.Level == 1 {
			first++
		}
		if x.Closer != "" && len(x.Buckets) > 0 {
			got += x.Buckets[0].Seen
		}
	}
	cancel()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if first == 0 || got == 0 {
		t.Errorf("%d samples of level 1, %d packets seen in buckets: want the first at level 1, and packets after", first, got)
	}
}

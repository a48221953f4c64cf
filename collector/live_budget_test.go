package collector

import (
	"context"
	"errors"
	"math"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rxsteer/rxsteer/internal/testnet"
)

// shareOf is each NAPI's part of a device's receive time, and its 99th percentile's bucket of poll time.
func shareOf(s *Sample, netns uint64) (share map[uint64]float64, p99 map[uint64]int, polls uint64) {
	share, p99 = map[uint64]float64{}, map[uint64]int{}
	hists := map[uint64]*Histogram{}
	total := 0.0
	for i := range s.NAPIs {
		n := &s.NAPIs[i]
		if n.Netns != netns {
			continue
		}
		share[n.Pointer] += float64(n.Time)
		total += float64(n.Time)
		polls += n.Polls
		if hists[n.Pointer] == nil {
			hists[n.Pointer] = &Histogram{}
		}
		hists[n.Pointer].Add(&n.TimeHist)
	}
	for p := range share {
		share[p] /= total
		var all, sum uint64
		for _, n := range hists[p] {
			all += n
		}
		for b, n := range hists[p] {
			if sum += n; float64(sum) >= 0.99*float64(all) {
				p99[p] = b
				break
			}
		}
	}
	return share, p99, polls
}

// fullAndThin samples the same traffic twice at the same time, at full detail and within a budget.
func fullAndThin(t testing.TB, ns *testnet.NS, budget float64, seconds int) (full, thin *Sample) {
	t.Helper()
	var samples [2][]*Sample
	var running sync.WaitGroup
	for k, overhead := range []float64{0, budget} {
		running.Go(func() {
			ring := NewRing(seconds)
			s := New(Config{FS: ns.FS(), Level: 1, Overhead: overhead, Ring: ring})
			ctx, cancel := context.WithTimeout(context.Background(), time.Duration(seconds)*time.Second+900*time.Millisecond)
			defer cancel()
			if err := errors.Join(s.Run(ctx), s.Refused()); err != nil {
				t.Error(err)
			}
			samples[k] = ring.Window(time.Hour)
		})
	}
	running.Wait()
	if t.Failed() {
		t.FailNow()
	}
	return Merge(samples[0]...), Merge(samples[1]...)
}

// thinning is a budget and the traffic that is to be measured within it.
type thinning struct {
	name    string
	part    float64 // of what full detail costs
	samples int
	pause   func(i int) time.Duration // after each 30 frames
}

// TestLiveThinnedIsAccurate compares a thinned sampler with one at full detail, on the same traffic at the same time.
func TestLiveThinnedIsAccurate(t *testing.T) {
	testnet.NeedTun(t)
	for _, tc := range []thinning{
		{"steady", 0.6, 6, func(int) time.Duration { return 500 * time.Microsecond }},
		{"bursts", 0.6, 6, func(i int) time.Duration {
			if i%100 == 99 {
				return 150 * time.Millisecond
			}
			return 0
		}},
		// As fast as it goes, and so small a budget that windows it must be.
		{"storm", 0.1, 26, func(int) time.Duration { return 0 }},
	} {
		t.Run(tc.name, func(t *testing.T) { testnet.Undisturbed(t, tc.isAccurate) })
	}
}

func (tc thinning) isAccurate(t testing.TB) {
	ns := testnet.New(t)
	dev, err := ns.NewTAP("rx0", 3)
	if err != nil {
		t.Fatal(err)
	}
	defer dev.Close()
	var stop atomic.Bool
	var wg sync.WaitGroup
	wg.Go(func() {
		runtime.LockOSThread() // never unlocked: the thread ends with its affinity
		var set unix.CPUSet
		set.Set(runtime.NumCPU() - 1)
		_ = unix.SchedSetaffinity(0, &set)
		for i := 0; !stop.Load(); i++ {
			for j := range 30 {
				queue := 0
				switch {
				case j >= 27:
					queue = 2
				case j >= 18:
					queue = 1
				}
				if dev.Inject(queue, frame()) != nil {
					return
				}
			}
			if d := tc.pause(i); d > 0 {
				time.Sleep(d)
			}
		}
	})
	defer wg.Wait()
	defer stop.Store(true)
	first, err := New(Config{FS: ns.FS(), Level: 1}).Sample(t.Context(), 2*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	budget := tc.part * first.Cost.Hottest
	full, thin := fullAndThin(t, ns, budget, tc.samples)
	share, p99, polls := shareOf(full, ns.Inode())
	share2, p992, polls2 := shareOf(thin, ns.Inode())
	t.Logf("full: %d polls, cost %+v", polls, full.Cost)
	t.Logf("thin: %d polls, cost %+v", polls2, thin.Cost)
	if len(share) != 3 || len(share2) != 3 || polls < 20_000 {
		t.Fatalf("%d and %d queues, %d polls: the traffic is not what this is a test of", len(share), len(share2), polls)
	}
	if thin.Cost.Duty > 0.8 || full.Cost.Duty != 1 {
		t.Fatalf("duty %.2f at a budget of %.4f where full detail costs %.4f: nothing was thinned", thin.Cost.Duty, budget, full.Cost.Hottest)
	}
	windows := strings.Contains(strings.Join(thin.Cost.Thinned, "; "), "windows")
	may := 1.25 * budget
	if windows { // the last may not be saved yet
		may += full.Cost.Hottest * 1.25 / float64(tc.samples)
	}
	if thin.Cost.Hottest > may {
		t.Errorf("it cost %.4f of CPU %d, budget %.4f", thin.Cost.Hottest, thin.Cost.CPU, budget)
	}
	for p, want := range share {
		if got := share2[p]; math.Abs(got-want) > 0.03 {
			t.Errorf("a queue's share of time: %.3f thinned, %.3f in full", got, want)
		}
		if d := p992[p] - p99[p]; d < -1 || d > 1 {
			t.Errorf("a queue's p99: bucket %d thinned, %d in full", p992[p], p99[p])
		}
	}
	// Totals too, where runs were drawn at random all the time. A window may meet other work of this CPU than
	// the rest of the time: then only the queues' shares stand for it.
	if r := float64(polls2) / float64(polls); !windows && (r < 0.9 || r > 1.1) {
		t.Errorf("%d polls thinned, %d in full", polls2, polls)
	}
	// What the kernel counts is exact with or without.
	if i := slices.IndexFunc(thin.Devices, func(d Device) bool { return d.Name == "rx0" }); i < 0 || thin.Devices[i].RXPackets < polls/2 {
		t.Error("rx0's packets are not those of the kernel")
	}
}

// TestLiveLevel2InWindows: what looks at each packet is attached for a second, and then for none until that is paid.
func TestLiveLevel2InWindows(t *testing.T) {
	ns := testnet.New(t)
	dev := newTAP(t, ns, 2)
	r := rss(t, ns, "rx0", 64, 2)
	var stop atomic.Bool
	var wg sync.WaitGroup
	wg.Go(func() {
		for i := 0; !stop.Load(); i++ {
			if dev.Inject(i%2, datagram(uint16(i))) != nil {
				return
			}
		}
	})
	defer wg.Wait()
	defer stop.Store(true)
	ring := NewRing(100)
	s := New(Config{FS: ns.FS(), Level: 2, Overhead: 0.0005, Ring: ring, RSS: func() []RSS { return []RSS{r} }})
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute) // some 5 s, unless the machine is busy
	defer cancel()
	samples, unsubscribe := ring.Subscribe()
	defer unsubscribe()
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	var watched, not int
	for watched == 0 || not < 2 {
		var x *Sample
		select {
		case x = <-samples:
		case err := <-done:
			t.Fatalf("watched in %d samples and not in %d, want some of both: %v", watched, not, errors.Join(err, s.Refused()))
		}
		if x.Cost == nil {
			t.Fatalf("no cost: %+v", x)
		}
		switch {
		case len(x.Buckets) == 1 && x.Buckets[0].Seen > 0 && x.Cost.DutyPackets > 0:
			watched++
		case len(x.Buckets) == 0 && x.Cost.DutyPackets == 0 && said(x, "buckets and flows", "between two"):
			not++
		case len(x.Buckets) == 1 && x.Buckets[0].Window < x.Interval/4: // the end of a window, on a busy machine
		default:
			t.Errorf("%d devices' buckets at a duty of %v, unmeasured %v", len(x.Buckets), x.Cost.DutyPackets, x.Unmeasured)
		}
	}
	cancel()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
}

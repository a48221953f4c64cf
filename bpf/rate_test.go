package bpf

import (
	"math"
	"testing"
	"time"

	"github.com/rxsteer/rxsteer/internal/testnet"
)

// TestSampledRunsStandForAll: of 1 in n runs the figures fit together, and as many are
// looked at as are asked for.
func TestSampledRunsStandForAll(t *testing.T) { testnet.Undisturbed(t, sampledRunsStandForAll) }

func sampledRunsStandForAll(t testing.TB) {
	p := attached(t, Options{})
	ns := testnet.New(t)
	dev := tap(t, ns, 2)
	const rx = 3
	for _, rate := range []uint32{1, 8, 64} {
		if err := p.SetRate(rate); err != nil {
			t.Fatal(err)
		}
		onCPU(t, 0, func() error { // what is left of the skipping before
			for range 400 {
				if err := dev.Inject(0, frame(1)); err != nil {
					return err
				}
			}
			return nil
		})
		before := counters(t, p)
		const frames = 30_000
		onCPU(t, 0, func() error {
			for i := range frames {
				if err := dev.Inject(i%2, frame(1)); err != nil { // a pattern that a fixed step of 8 or 64 would see one half of
					return err
				}
			}
			return nil
		})
		after := counters(t, p)
		was, now := before.sum(of(ns)), after.sum(of(ns))
		packets, polls := now.Packets-was.Packets, now.Polls-was.Polls
		if packets != polls || now.BusyPolls != was.BusyPolls {
			t.Errorf("1 in %d: %d packets in %d polls and %d outside runs, want one packet in each poll", rate, packets, polls, now.BusyPolls-was.BusyPolls)
		}
		want := float64(frames) / float64(rate)
		if d := math.Abs(float64(packets) - want); rate == 1 && d != 0 || d > 6*math.Sqrt(want) {
			t.Errorf("1 in %d: %d of %d packets, want about %.0f", rate, packets, frames, want)
		}
		queues := map[uint64]bool{} // by NAPI
		for i, k := range after.NAPIKeys {
			if of(ns)(k) && after.NAPIs[i].Packets > before.sum(func(b NAPIKey) bool { return b == k }).Packets {
				queues[k.Napi] = true
			}
		}
		if len(queues) != 2 {
			t.Errorf("1 in %d: %d of the two queues were seen", rate, len(queues))
		}
		if runs := after.CPUs[0].Runs[rx] - before.CPUs[0].Runs[rx]; runs < polls || runs > polls+polls/2+100 {
			t.Errorf("1 in %d: %d runs of NET_RX with %d polls", rate, runs, polls)
		}
	}
}

// TestOffAndOnAgainBeginsAnew: what began before is never timed to an end after.
func TestOffAndOnAgainBeginsAnew(t *testing.T) { testnet.Undisturbed(t, offAndOnAgainBeginsAnew) }

func offAndOnAgainBeginsAnew(t testing.TB) {
	p := attached(t, Options{})
	ns := testnet.New(t)
	dev := tap(t, ns, 1)
	began := time.Now()
	for range 200 {
		onCPU(t, 0, func() error { return dev.Inject(0, frame(1)) })
		if err := p.SetOn(false); err != nil {
			t.Fatal(err)
		}
		before := counters(t, p)
		onCPU(t, 0, func() error { return dev.Inject(0, frame(1)) })
		if n := counters(t, p).sum(of(ns)).Packets - before.sum(of(ns)).Packets; n != 0 {
			t.Fatalf("%d packets counted while off", n)
		}
		time.Sleep(time.Millisecond)
		if err := p.SetOn(true); err != nil {
			t.Fatal(err)
		}
	}
	took := uint64(time.Since(began))
	for id, c := range counters(t, p).CPUs {
		var busy uint64
		for _, ns := range c.Time {
			busy += ns
		}
		// Off for a millisecond 200 times: a run counted across one would add as much.
		if busy > took*3/4 {
			t.Errorf("CPU %d: %d ns of softirq in %d ns", id, busy, took)
		}
	}
}

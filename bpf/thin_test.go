package bpf

import (
	"slices"
	"testing"
	"time"

	"github.com/rxsteer/rxsteer/internal/testnet"
)

// TestNothingIsMadeUpWhileSwitched switches in the middle of whatever runs: every time must
// have been possible, and everything switched off is not counted.
func TestNothingIsMadeUpWhileSwitched(t *testing.T) {
	testnet.Undisturbed(t, nothingIsMadeUpWhileSwitched)
}

func nothingIsMadeUpWhileSwitched(t testing.TB) {
	p := attached(t, Options{Detail: true})
	if err := p.SetDetail(true); err != nil {
		t.Fatal(err)
	}
	ns := testnet.New(t)
	dev := tap(t, ns, 1)
	attachBurn(t, ns, "rx0", 20_000, anyQueue)
	stop, done := make(chan struct{}), make(chan error)
	go func() {
		for {
			select {
			case <-stop:
				done <- nil
				return
			default:
			}
			if err := dev.Inject(0, frame(1)); err != nil {
				done <- err
				return
			}
		}
	}()
	const off = 20 * time.Millisecond
	for range 40 {
		time.Sleep(3 * time.Millisecond)
		if err := p.SetOn(false); err != nil {
			t.Fatal(err)
		}
		time.Sleep(off)
		if err := p.SetOn(true); err != nil {
			t.Fatal(err)
		}
	}
	if err := p.SetOn(false); err != nil {
		t.Fatal(err)
	}
	c := counters(t, p)
	time.Sleep(off)
	if later := counters(t, p); later.sum(of(ns)) != c.sum(of(ns)) || !slices.Equal(later.CPUs, c.CPUs) {
		t.Error("counters moved while switched off")
	}
	close(stop)
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	s := c.sum(of(ns))
	if s.Polls < 100 {
		t.Fatalf("%d polls: nothing to judge", s.Polls)
	}
	// Off for 20 ms: a time that spans it is in bucket 25 (2^24 ns = 17 ms) or above.
	for b, n := range s.TimeHist[25:] {
		if n > 0 {
			t.Errorf("%d polls of 2^%d ns: they span a time that was off", n, b+24)
		}
	}
	for i, k := range c.RunKeys {
		for b, n := range c.Runs[i].RingWait.Hist[25:] {
			if n > 0 && of(ns)(k) {
				t.Errorf("%d ring waits of 2^%d ns span a time that was off", n, b+24)
			}
		}
	}
	for id, cpu := range c.CPUs {
		polls := c.sum(func(k NAPIKey) bool { return k.Cpu == uint32(id) })
		const rx = 3
		// Runs cut short by switching off have polls and no end.
		if got, all := polls.Time+cpu.Tail, cpu.Time[rx]; got < all || got > all+40*1e6 {
			t.Errorf("CPU %d: polls and tail %d ns, NET_RX %d", id, got, all)
		}
	}
}

func TestPollsOfANAPIThreadAreTimed(t *testing.T) { testnet.Undisturbed(t, pollsOfANAPIThreadAreTimed) }

func pollsOfANAPIThreadAreTimed(t testing.TB) {
	p := attached(t, Options{})
	ns := testnet.New(t)
	dev := tap(t, ns, 1)
	if err := ns.FS().WriteFile("/sys/class/net/rx0/threaded", []byte("1")); err != nil {
		t.Fatal(err)
	}
	const spin, packets = 100_000, 300
	b := attachBurn(t, ns, "rx0", spin, anyQueue)
	inject := func(n int) {
		t.Helper()
		_, seen := b.read(t)
		for range n {
			if err := dev.Inject(0, frame(1)); err != nil {
				t.Fatal(err)
			}
		}
		b.await(t, seen+uint64(n))
	}
	thread := func() (pid uint32, polls, ns64 uint64) {
		c := counters(t, p)
		for i, k := range c.NAPIKeys {
			if of(ns)(k) {
				pid = max(pid, c.NAPIs[i].Thread)
				polls += c.NAPIs[i].ThreadPolls
				ns64 += c.NAPIs[i].ThreadTime
			}
		}
		return pid, polls, ns64
	}
	inject(1)
	var pid uint32
	await(t, "a thread known by its poll", func() bool { pid, _, _ = thread(); return pid != 0 })
	if _, polls, _ := thread(); polls != 0 {
		t.Errorf("%d polls timed before threads were asked for", polls)
	}
	if err := p.SetThreads(true); err != nil {
		t.Fatal(err)
	}
	// Where the thread runs right now its first poll is not timed: let it sleep and wake.
	inject(1)
	spunBefore, _ := b.read(t)
	_, _, timeBefore := thread()
	inject(packets)
	time.Sleep(10 * time.Millisecond)
	spun, _ := b.read(t)
	_, polls, took := thread()
	ratio := float64(took-timeBefore) / float64(spun-spunBefore)
	t.Logf("thread %d: %d polls, %d ns of %d burnt: ratio %.4f", pid, polls, took-timeBefore, spun-spunBefore, ratio)
	if ratio < 0.97 || ratio > 1.15 {
		t.Errorf("time of the thread's polls is %.4f of what was burnt", ratio)
	}
	s := counters(t, p).sum(of(ns))
	if s.Polls != 0 || s.Time != 0 {
		t.Errorf("%d polls and %d ns in softirq", s.Polls, s.Time)
	}
	if err := p.SetThreads(false); err != nil {
		t.Fatal(err)
	}
}

// TestGapsFollowInterrupts: with each interrupt looked at there is a gap less than there are interrupts.
func TestGapsFollowInterrupts(t *testing.T) { testnet.Undisturbed(t, gapsFollowInterrupts) }

func gapsFollowInterrupts(t testing.TB) {
	p := attached(t, Options{})
	interrupt := disk(t)
	await(t, "interrupts of a disk, by fsync", func() bool {
		interrupt()
		c := counters(t, p)
		return slices.ContainsFunc(c.IRQs, func(s IRQStat) bool { return s.Count > 20 })
	})
	if err := p.SetOn(false); err != nil {
		t.Fatal(err)
	}
	c := counters(t, p)
	for i, k := range c.IRQKeys {
		var gaps uint64
		for _, n := range c.IRQs[i].Gaps {
			gaps += uint64(n)
		}
		if gaps+1 != c.IRQs[i].Count {
			t.Errorf("IRQ %d on CPU %d: %d gaps of %d interrupts", k.Irq, k.Cpu, gaps, c.IRQs[i].Count)
		}
	}
}

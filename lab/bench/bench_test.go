package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/rxsteer/rxsteer/collector"
	"github.com/rxsteer/rxsteer/internal/testnet"
)

func TestStatistics(t *testing.T) {
	if got := median([]float64{5, 1, 3}); got != 3 {
		t.Errorf("median of three: %v", got)
	}
	if got := median([]float64{4, 1, 3, 2}); got != 2.5 {
		t.Errorf("median of four: %v", got)
	}
	if !math.IsNaN(median(nil)) {
		t.Error("median of none is a number")
	}
	// Ranks of the 95 % interval of a median, as in tables of the sign test.
	for n, want := range map[int]int{0: 0, 5: 0, 6: 1, 8: 1, 9: 2, 10: 2, 15: 4, 20: 6, 24: 7, 32: 10} {
		if got := tail(n); got != want {
			t.Errorf("tail(%d) = %d, want %d", n, got, want)
		}
	}
	values := []float64{9, 2, 5, 1e9, 4, 6, 3, 8, 1, 7} // one wild round
	if diff := cmp.Diff(interval{5.5, 2, 9}, middle(values)); diff != "" {
		t.Errorf("middle of ten (-want +got):\n%s", diff)
	}
	if values[0] != 9 {
		t.Error("middle sorted its argument")
	}
	if got := middle([]float64{1, 2, 3}); got.Median != 2 || !math.IsInf(got.Low, -1) || !math.IsInf(got.High, 1) {
		t.Errorf("middle of three: %+v, want no interval", got)
	}
}

func TestTheRigPollsTheWantedNumberOfPackets(t *testing.T) {
	testnet.NeedRoot(t)
	r, err := newRig()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	})
	for _, n := range perPollSizes {
		seen, err := perPollSeen(r, n, 20*time.Millisecond)
		if err != nil {
			t.Fatal(err)
		}
		if seen < 0.95*float64(n) || seen > 1.05*float64(n) {
			t.Errorf("%d packets per poll wanted, %.2f seen", n, seen)
		}
	}
}

func TestReadTimesFillsTheTable(t *testing.T) {
	testnet.NeedTun(t)
	seconds, entries, err := readTimes()
	if err != nil {
		t.Fatal(err)
	}
	if entries < 256 || len(seconds) != 200 || median(seconds) <= 0 {
		t.Errorf("%d entries, %d reads", entries, len(seconds))
	}
}

func TestToolsThatCannotRunAreUnavailable(t *testing.T) {
	for name, start := range map[string]func(context.Context) (func() error, error){
		"absent":        tool("ready", "no-such-program-of-ours"),
		"never ready":   tool("ready", "echo", "something else"),
		"ended at once": timed(time.Minute, "echo", "no tracefs"),
	} {
		if _, err := start(context.Background()); !errors.Is(err, errUnavailable) {
			t.Errorf("%s: got %v, want errUnavailable", name, err)
		}
	}
	stop, err := tool("ready", "sh", "-c", "echo ready; exec sleep 60")(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	if err := stop(); err != nil || time.Since(began) > 50*time.Second {
		t.Errorf("stop: %v after %v", err, time.Since(began))
	}
}

func TestReport(t *testing.T) {
	res := result{Conditions: "Linux x", Rounds: 2, Window: time.Second,
		Modes: []mode{{PerPoll: 60, Seen: 59.8, Rows: []row{
			{Arm: "nothing", Ns: 500, Ratio: interval{1, 1, 1}},
			{Arm: "rxsteer, per-poll set", Ns: 510, Ratio: interval{1.02, 1.01, 1.025}, Extra: interval{10, 5, 12}},
			{Arm: "bpftrace", Unavailable: "unavailable: bpftrace is not installed"},
		}}},
		Operations: []operation{{Name: "load", Goal: "≤ 200 ms", Time: times{0.05, 0.1}}, {Name: "idle", Goal: "≤ 0.5 %", Share: true, Time: times{0.001, 0.002}}, {Name: "heap", Goal: "≤ 40 MiB", Bytes: 3 << 20}}}
	var text, md bytes.Buffer
	if err := res.text(&text); err != nil {
		t.Fatal(err)
	}
	if err := res.markdown(&md); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"Linux x", "+10 (+5 … +12)", "1.020 (1.010 … 1.025)", "-2.0 %", "bpftrace is not installed", "50 ms (most 100 ms)", "2.0 % (95 %: 1.0 … 2.4): met.", "not measured", "0.10 % (most 0.20 %)", "3.0 MiB"} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("text lacks %q:\n%s", want, &text)
		}
		if !strings.Contains(md.String(), want) {
			t.Errorf("markdown lacks %q:\n%s", want, &md)
		}
	}
	for verdict, r := range map[string]interval{"MISSED": {1.10, 1.08, 1.12}, "not decided": {1.03, 1.01, 1.05}, "too few rounds": {1.01, math.Inf(-1), math.Inf(1)}} {
		res.Modes[0].Rows[1].Ratio = r
		if got := res.verdicts()[0]; !strings.Contains(got, verdict) {
			t.Errorf("ratio %+v: %q, want %q", r, got, verdict)
		}
	}
	if diff := cmp.Diff([]string{"500", "–", "1", "–"}, res.Modes[0].Rows[0].cells()); diff != "" {
		t.Errorf("baseline cells (-want +got):\n%s", diff)
	}
}

func TestPeersTakePartEvenly(t *testing.T) {
	for _, tc := range []struct{ rounds, peers, want int }{{24, 6, 6}, {10, 3, 3}, {5, 5, 5}, {7, 0, 0}} {
		n, gap, longest := 0, 0, 0
		for round := range tc.rounds {
			gap++
			if peersTakePart(round, tc.rounds, tc.peers) {
				n++
				gap = 0
			}
			longest = max(longest, gap)
		}
		if n != tc.want || tc.peers > 0 && longest > tc.rounds/tc.peers+1 {
			t.Errorf("%d of %d rounds: %d, longest gap %d", tc.peers, tc.rounds, n, longest)
		}
	}
}

func TestUsage(t *testing.T) {
	for _, args := range [][]string{{"-rounds", "1"}, {"stray"}, {"-window", "1ms"}, {"-nope"}} {
		if err := run(context.Background(), args, io.Discard, io.Discard); err == nil {
			t.Errorf("bench %v: accepted", args)
		}
	}
}

// TestBigHostIsCheap holds the limits of a host of 64 queues and 256 CPUs, by CPU time and with a margin of three for a
// machine that is slow or busy.
func TestBigHostIsCheap(t *testing.T) {
	if testing.Short() {
		t.Skip("short: it takes some seconds")
	}
	all := synthetic()
	// Level 0 and user space: of a CPU; a scrape: seconds.
	for i, limit := range []float64{0.005, 0.005, 0.005, 0.005} {
		o := all[i]
		if o.Time.Median > 3*limit || o.Time.Median <= 0 {
			t.Errorf("%s: %v, limit %v", o.Name, o, o.Goal)
		}
		t.Logf("%s: %v, goal %s", o.Name, o, o.Goal)
	}
}

func TestMemoryIsFlat(t *testing.T) {
	a := newAgentSide()
	scrape := a.scraper(false)
	for range 5 {
		a.interval()
		scrape()
	}
	before := heap()
	if before > 40<<20 {
		t.Errorf("%d MiB in use", before>>20)
	}
	for i := range 300 {
		a.interval()
		if i%15 == 0 {
			scrape()
		}
	}
	if after := heap(); after > before+before/20+1<<20 {
		t.Errorf("%d KiB in use, %d after 300 more intervals", before>>10, after>>10)
	}
	if s := a.ring.Latest(); len(s.NAPIs) != bigPairs || len(s.CPUs) != bigCPUs || len(s.IRQs) != bigQueues || s.NAPIs[0].RXQueue < 0 || len(s.Unmeasured) > 3 {
		t.Errorf("%d NAPIs, %d CPUs, %d interrupts, %v: not the big host", len(s.NAPIs), len(s.CPUs), len(s.IRQs), s.Unmeasured)
	}
	if n := scrape(); n < 100_000 {
		t.Errorf("a scrape of %d bytes", n)
	}
}

func TestSamplersAreMeasured(t *testing.T) {
	testnet.NeedRoot(t)
	r, err := newRig()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	})
	budget := budgetArm()
	budget.window = 3 * time.Second
	if ns, seen, err := budget.beside(t.Context(), r, 1); err != nil || ns <= 0 || seen.Cost.Budget != 0.01 || seen.Cost.Duty <= 0 || seen.Cost.Duty >= 1 || len(seen.Cost.PerEvent) == 0 {
		t.Errorf("%v ns, %+v, %v: want a sampler that thins itself", ns, seen, err)
	}
	detail, err := detailArm(r)
	if err != nil {
		t.Fatal(err)
	}
	detail.window = 3 * time.Second // its first window is as long
	_, seen, err := detail.beside(t.Context(), r, 60)
	if err != nil {
		t.Fatal(err)
	}
	if said, err := detail.delivered(seen); err != nil {
		t.Errorf("full detail: %v", err)
	} else {
		t.Log(said)
	}
	for _, lack := range []func(*collector.Sample){
		func(s *collector.Sample) { s.Buckets = nil }, func(s *collector.Sample) { s.Stages = nil },
		func(s *collector.Sample) { s.Drops = nil }, func(s *collector.Sample) { s.Flows = nil },
	} {
		less := *seen
		lack(&less)
		if said, err := detail.delivered(&less); err == nil {
			t.Errorf("less than full detail was taken for it: %s", said)
		}
	}
	stop, err := always(r)(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.cost(60, 20*time.Millisecond, benchCPU()); err != nil {
		t.Error(err)
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
}

func BenchmarkScrape(b *testing.B) {
	a := newAgentSide()
	a.interval()
	scrape := a.scraper(false)
	for b.Loop() {
		b.SetBytes(int64(scrape()))
	}
}

func BenchmarkUserSpace(b *testing.B) {
	a := newAgentSide()
	for b.Loop() {
		a.interval()
	}
}

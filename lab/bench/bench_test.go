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
	if err := stop(); err != nil || time.Since(began) > 10*time.Second {
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
		Operations: []operation{{"load", "≤ 200 ms", times{0.05, 0.1}}}}
	var text, md bytes.Buffer
	if err := res.text(&text); err != nil {
		t.Fatal(err)
	}
	if err := res.markdown(&md); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"Linux x", "+10 (+5 … +12)", "1.020 (1.010 … 1.025)", "-2.0 %", "bpftrace is not installed", "50 ms (most 100 ms)", "2.0 % (95 %: 1.0 … 2.4): met."} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("text lacks %q:\n%s", want, &text)
		}
		if !strings.Contains(md.String(), want) {
			t.Errorf("markdown lacks %q:\n%s", want, &md)
		}
	}
	for verdict, r := range map[string]interval{"MISSED": {1.10, 1.08, 1.12}, "not decided": {1.03, 1.01, 1.05}} {
		res.Modes[0].Rows[1].Ratio = r
		if got := res.verdict(); !strings.Contains(got, verdict) {
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

package control

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rxsteer/rxsteer/collector"
	"github.com/rxsteer/rxsteer/internal/host/knob"
	"github.com/rxsteer/rxsteer/steer/plan"
)

// fakeHands is a host with a table of 16 buckets, all of whose busy ones are in queue 0, in real time.
type fakeHands struct {
	mu     sync.Mutex
	table  []int
	did    []Verb
	looked int
	fail   map[string]error
	slow   time.Duration // of a tick
}

func newFakeHands() *fakeHands {
	h := &fakeHands{table: make([]int, 16)}
	for b := range h.table {
		h.table[b] = b % 4
	}
	return h
}

func (h *fakeHands) Tick() (*collector.Tick, map[string]error) {
	time.Sleep(h.slow)
	h.mu.Lock()
	defer h.mu.Unlock()
	d := collector.DeviceTick{Device: "eth0", IfIndex: 2, Packets: make([]uint64, 4), CPUs: []int{0, 1, 2, 3}}
	t := &collector.Tick{Interval: TickEvery}
	for b := range 4 { // buckets 0, 4, 8, 12
		d.Packets[h.table[4*b]] += 2000
	}
	for c := range 4 {
		load := float64(d.Packets[c]) / 10000
		t.CPUs = append(t.CPUs, collector.CPUTick{CPU: c, Busy: load, RX: load})
	}
	t.Devices = []collector.DeviceTick{d}
	return t, h.fail
}

func (h *fakeHands) Watch(context.Context, Action) *Window {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.did = append(h.did, Watch)
	w := &Window{Table: slices.Clone(h.table), Buckets: make([]uint64, 16), Cores: []int{0, 1, 2, 3}}
	for b := range 4 {
		w.Buckets[4*b] = 3000
	}
	return w
}

func (h *fakeHands) Look(context.Context) (*Look, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.looked++; h.looked == 1 {
		return nil, errors.New("read settings: not yet")
	}
	return &Look{Devices: []plan.Device{{Name: "eth0", IfIndex: 2, RXQueues: 4}}}, nil
}

func (h *fakeHands) Do(_ context.Context, a Action) *Done {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.did = append(h.did, a.Verb)
	r := &Done{TX: "1", Written: true, Waits: a.Verb == Write, Why: "kept"}
	for _, c := range a.Changes {
		if err := c.To.Decode(&h.table); err != nil {
			return &Done{Error: err.Error()}
		}
		r.Wrote = append(r.Wrote, knob.Setting{Ref: c.Ref(), Value: c.To})
	}
	return r
}

// TestLoop runs the machine in real time, on a host whose clock jumps: a skew is mended and kept; what fails is told once and
// taken back when it works; what was recorded decides the same again.
func TestLoop(t *testing.T) {
	h := newFakeHands()
	c := auto()
	c.Interval, c.Limits.FastJudge = 300*time.Millisecond, time.Second
	var log bytes.Buffer
	var mu sync.Mutex
	degraded := map[string]string{}
	var told []string
	jump := 0
	var events []Event
	l := &Loop{Hands: h, Config: c, Log: slog.New(slog.NewTextHandler(&log, nil)), Record: func(e Event) { events = append(events, clone(t, e)) },
		Degraded: func(what, why string) {
			mu.Lock()
			defer mu.Unlock()
			if degraded[what] != why {
				told = append(told, what)
			}
			degraded[what] = why
		},
		Now: func() time.Time { jump++; return time.Unix(1e9, 0).Add(time.Duration(jump%3-1) * 1000 * time.Hour) },
	}
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	began := time.Now()
	go func() { done <- l.Run(ctx) }()
	kept := func() bool {
		s := l.Status()
		return s != nil && s.Stats["eth0"].Decisions[Kept] == 1
	}
	for !kept() && time.Since(began) < time.Minute {
		time.Sleep(20 * time.Millisecond)
	}
	s := l.Status()
	stop()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if !kept() || !slices.Equal(h.did, []Verb{Watch, Write, Confirm}) || s.Stats["eth0"].Moves[knob.RSSTable] != 1 || s.Stats["eth0"].Buckets != 3 {
		t.Fatalf("did %v, stats %+v\n%s", h.did, s.Stats["eth0"], &log)
	}
	if r := s.Stats["eth0"].Last; r <= 0 || r > time.Since(began) { // 0.2 s on a machine that has nothing else to do
		t.Errorf("it took %v to react, %v after the start", r, time.Since(began))
	}
	if n := strings.Count(log.String(), "decision=write "); n != 1 {
		t.Errorf("the write was logged %d times\n%s", n, &log)
	}
	mu.Lock()
	defer mu.Unlock()
	if degraded["looking at settings"] != "" || !slices.Contains(told, "looking at settings") {
		t.Errorf("told %v, degraded %v", told, degraded)
	}
	again := Replay(c, events)
	words := func(ds []Decision) (out []string) {
		for _, d := range ds {
			out = append(out, d.What)
		}
		return out
	}
	if got := words(again); !slices.Equal(got, []string{Suspected, Wrote, WroteDone, JudgedFine, Kept}) {
		t.Errorf("the recording decides %v", got)
	}
}

// TestPace: where reading takes long the counters are read less often, and that is said.
func TestPace(t *testing.T) {
	said := ""
	l := &Loop{Degraded: func(_, why string) { said = why }}
	for _, tc := range []struct {
		per      time.Duration
		overhead float64
		want     time.Duration
	}{
		{500 * time.Microsecond, 0.01, 100 * time.Millisecond},
		{3 * time.Millisecond, 0.01, 400 * time.Millisecond},
		{50 * time.Millisecond, 0.01, time.Second},
		{50 * time.Millisecond, 0, 100 * time.Millisecond},
	} {
		if got := l.pace(tc.per, tc.overhead); got != tc.want || (said != "") != (tc.want > TickEvery) {
			t.Errorf("%v within %v: every %v, want %v; said %q", tc.per, tc.overhead, got, tc.want, said)
		}
	}
	c := Default()
	for took, want := range map[time.Duration]time.Duration{0: 10 * time.Second, 50 * time.Millisecond: 10 * time.Second, time.Second: 100 * time.Second, time.Minute: 5 * time.Minute} {
		if got := l.lookGap(took, c); got != want || (said != "") != (want > 20*time.Second) {
			t.Errorf("a look of %v: every %v, want %v; said %q", took, got, want, said)
		}
	}
}

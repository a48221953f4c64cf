package collector

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/rxsteer/rxsteer/bpf"
)

func fake(k *kernel, err error) func() (Programs, []Unmeasured, error) {
	return func() (Programs, []Unmeasured, error) {
		if err != nil {
			return nil, nil, err
		}
		return k, nil, nil
	}
}

// clock advances by step with each look at it.
func clock(step time.Duration) func() time.Time {
	now := epoch
	return func() time.Time { now = now.Add(step); return now }
}

func TestRefusedBPFFallsToLevel0AndSaysWhy(t *testing.T) {
	refusal := fmt.Errorf("load BPF programs: %w: needs CAP_BPF", bpf.ErrNoPrivilege)
	s := New(Config{FS: host2(), Level: 1, Attach: fake(nil, refusal), Now: clock(time.Second)})
	got, err := s.Sample(context.Background(), 0)
	if err != nil {
		t.Fatal(err)
	}
	if got.Level != 0 || !said(got, "polls, packets and time per NAPI", "needs CAP_BPF") {
		t.Errorf("level %d, unmeasured %v; want level 0 and the reason", got.Level, got.Unmeasured)
	}
	if !errors.Is(s.Refused(), bpf.ErrNoPrivilege) {
		t.Errorf("Refused = %v, want ErrNoPrivilege", s.Refused())
	}
	if len(got.CPUs) != 2 || got.Interval != time.Second {
		t.Errorf("%d CPUs in %v, want the kernel's own counters", len(got.CPUs), got.Interval)
	}
}

func TestLevel0AttachesNothing(t *testing.T) {
	s := New(Config{FS: host2(), Attach: func() (Programs, []Unmeasured, error) { t.Error("attached"); return nil, nil, nil }})
	got, err := s.Sample(context.Background(), 0)
	if err != nil || got.Level != 0 || s.Refused() != nil || !said(got, "time per interrupt", "level 0 was asked for") {
		t.Errorf("sample %+v, %v; refused %v", got, err, s.Refused())
	}
}

func TestProgramsThatCannotBeReadAreGivenUp(t *testing.T) {
	k := &kernel{max: 10}
	s := New(Config{FS: host2(), Level: 1, Attach: fake(k, nil), Now: clock(time.Second)})
	if err := s.start(); err != nil {
		t.Fatal(err)
	}
	if one, err := s.next(); err != nil || one.Level != 1 {
		t.Fatalf("first sample %+v, %v", one, err)
	}
	k.fail = errors.New("read NAPI counters: broken")
	for range 2 {
		got, err := s.next()
		if err != nil || got.Level != 0 || !said(got, "time per softirq and its context", "broken") {
			t.Fatalf("sample %+v, %v; want level 0 and the reason", got, err)
		}
	}
	if k.closed != 1 {
		t.Errorf("closed %d times, want once", k.closed)
	}
	if err := s.stop(); err != nil || k.closed != 1 {
		t.Errorf("stop: %v, closed %d times", err, k.closed)
	}
}

func TestHostWithoutCountersIsAnError(t *testing.T) {
	k := &kernel{fail: errors.New("broken")}
	s := New(Config{FS: files{}, Level: 1, Attach: fake(k, nil)})
	got, err := s.Sample(context.Background(), time.Hour)
	if got != nil || err == nil || !strings.Contains(err.Error(), "/proc/stat") {
		t.Errorf("Sample = %v, %v; want an error that names the files", got, err)
	}
	if k.closed != 1 {
		t.Errorf("closed %d times, want once", k.closed)
	}
}

func TestIdlePairsAreForgottenAndStartAnew(t *testing.T) {
	k := &kernel{max: 1000}
	key := bpf.NAPIKey{Napi: 1, Netns: ownInode, Ifindex: 2, Cpu: 1}
	busy := bpf.NAPIKey{Napi: 2, Netns: ownInode, Ifindex: 2, Cpu: 1}
	k.poll(key, "eth0", 100, 1, 10)
	s := New(Config{FS: host2(), Level: 1, Attach: fake(k, nil), Now: clock(time.Minute)})
	if err := s.start(); err != nil {
		t.Fatal(err)
	}
	for range 8 {
		k.poll(busy, "eth0", 1, 1, 10)
		if _, err := s.next(); err != nil {
			t.Fatal(err)
		}
	}
	if diff := cmp.Diff([]bpf.NAPIKey{key}, k.forgotten); diff != "" {
		t.Fatalf("forgotten -want +got:\n%s", diff)
	}
	// The device returns: all it polled is this interval's.
	k.poll(key, "eth0", 7, 1, 10)
	got, err := s.next()
	if err != nil {
		t.Fatal(err)
	}
	if len(got.NAPIs) != 1 || got.NAPIs[0].Polls != 7 {
		t.Errorf("NAPIs %+v, want 7 polls", got.NAPIs)
	}
}

func TestFullMapForgetsSooner(t *testing.T) {
	s := stale{}
	c := &bpf.Counters{NAPIKeys: make([]bpf.NAPIKey, 3), NAPIs: make([]bpf.NAPIStat, 3)}
	for i := range c.NAPIKeys {
		c.NAPIKeys[i].Napi = uint64(i)
	}
	for _, step := range []struct {
		after time.Duration
		size  int
		want  int
	}{{0, 4, 0}, {9 * time.Second, 4, 0}, {20 * time.Second, 100, 0}, {20 * time.Second, 4, 3}, {21 * time.Second, 4, 0}} {
		if got := s.forget(c, epoch.Add(step.after), step.size); len(got) != step.want {
			t.Errorf("after %v in a map of %d: %d forgotten, want %d", step.after, step.size, len(got), step.want)
		}
	}
}

func TestRunFillsTheRingUntilItsContextEnds(t *testing.T) {
	k := &kernel{max: 10}
	ring := NewRing(10)
	samples, cancel := ring.Subscribe()
	defer cancel()
	s := New(Config{FS: host2(), Level: 1, Interval: time.Millisecond, Ring: ring, Attach: fake(k, nil)})
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error)
	go func() { done <- s.Run(ctx) }()
	<-s.Ready()
	first, second := <-samples, <-samples
	if !second.Start.Equal(first.End) {
		t.Errorf("a gap between %v and %v", first.End, second.Start)
	}
	stop()
	if err := <-done; err != nil {
		t.Errorf("Run = %v, want nil at the end of its context", err)
	}
	if k.closed != 1 {
		t.Errorf("closed %d times, want once", k.closed)
	}
}

func TestSampleEndsWithItsContext(t *testing.T) {
	k := &kernel{}
	s := New(Config{FS: host2(), Level: 1, Attach: fake(k, nil)})
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	got, err := s.Sample(ctx, time.Hour)
	if !errors.Is(err, context.Canceled) || got == nil || k.closed != 1 {
		t.Errorf("Sample = %v, %v, closed %d; want what there is, the reason, and nothing attached", got, err, k.closed)
	}
}

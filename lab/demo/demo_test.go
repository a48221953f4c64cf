package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/rxsteer/rxsteer/internal/testnet"
	"github.com/rxsteer/rxsteer/lab/traffic"
)

func TestVerdict(t *testing.T) {
	r := func(delivered float64, p99 time.Duration) reading {
		return reading{Delivered: delivered, Probe: traffic.Summary{Count: 100, P99: p99}}
	}
	for _, tc := range []struct {
		name          string
		before, after reading
		want          verdict
	}{
		{"more and faster", r(1000, 50), r(1350, 5), better},
		{"more, as fast", r(1000, 50), r(1060, 50), better},
		{"more but slower", r(1000, 50), r(1350, 51), same},
		{"more but much slower", r(1000, 50), r(1060, 500), same},
		{"as many, faster", r(1000, 50), r(1000, 5), same},
		{"as many, slower", r(1000, 50), r(1000, 60), worse},
		{"fewer", r(1000, 50), r(960, 5), worse},
		{"no traffic", r(0, 0), r(0, 0), same},
		{"no probe came back after", r(1000, 50), reading{Delivered: 2000}, same},
	} {
		if got := judge(tc.before, tc.after); got != tc.want {
			t.Errorf("%s: %q, want %q", tc.name, got, tc.want)
		}
	}
}

func TestDifferences(t *testing.T) {
	a := map[string]string{"x": "1", "y": "2", "z": "3"}
	if diff := cmp.Diff([]string(nil), differences(a, a)); diff != "" {
		t.Errorf("of equals (-want +got):\n%s", diff)
	}
	want := []string{"x: 1 → 9", "z: 3 → gone"}
	if diff := cmp.Diff(want, differences(a, map[string]string{"x": "9", "y": "2"})); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestIndentKeepsPartialLines(t *testing.T) {
	var b bytes.Buffer
	i := &indent{w: &b, atStart: true}
	for _, s := range []string{"one\ntw", "o\n", "three"} {
		if n, err := io.WriteString(i, s); n != len(s) || err != nil {
			t.Fatalf("write %q: %d, %v", s, n, err)
		}
	}
	if want := "   │ one\n   │ two\n   │ three"; b.String() != want {
		t.Errorf("got %q, want %q", b.String(), want)
	}
}

func TestUsage(t *testing.T) {
	for _, args := range [][]string{{"--nope"}, {"stray"}, {"--burn", "0s"}, {"--load", "0"}, {"--window", "1h"}, {"--by-hand", "--picture", "p.png"}} {
		if code := run(context.Background(), args, io.Discard, io.Discard); code != 2 {
			t.Errorf("demo %v: exit %d, want 2", args, code)
		}
	}
	var help bytes.Buffer
	if code := run(context.Background(), []string{"--help"}, io.Discard, &help); code != 0 || !strings.Contains(help.String(), "-by-hand") {
		t.Errorf("--help: exit %d\n%s", code, &help)
	}
	if os.Geteuid() != 0 {
		var stderr bytes.Buffer
		if code := run(context.Background(), nil, io.Discard, &stderr); code != 1 || !strings.Contains(stderr.String(), "needs root") {
			t.Errorf("as ordinary user: exit %d, %s", code, &stderr)
		}
	}
}

func TestAMissingBinaryIsNamed(t *testing.T) {
	testnet.NeedRoot(t)
	var stderr bytes.Buffer
	if code := run(context.Background(), []string{"--rxsteer", "/nonexistent/rxsteer"}, io.Discard, &stderr); code != 1 || !strings.Contains(stderr.String(), "/nonexistent/rxsteer") {
		t.Errorf("exit %d: %s", code, &stderr)
	}
}

// leftovers are what this process has under /run: namespaces and state folders.
func leftovers(t *testing.T) []string {
	t.Helper()
	var out []string
	pid := strconv.Itoa(os.Getpid())
	for _, glob := range []string{"/run/netns/rxt-" + pid + "-*", "/run/rxsteer-demo-" + pid + "-*"} {
		m, err := filepath.Glob(glob)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, m...)
	}
	return out
}

func TestFoldersOfKilledDemosAreRemoved(t *testing.T) {
	testnet.NeedRoot(t)
	// No process has the largest number (PID_MAX_LIMIT, include/linux/threads.h).
	dead, alive := "/run/rxsteer-demo-4194304-1", "/run/rxsteer-demo-"+strconv.Itoa(os.Getpid())+"-1"
	for _, dir := range []string{dead, alive} {
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { os.RemoveAll(dir) })
	}
	if err := removeStale(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(dead); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the folder of a dead demo: %v", err)
	}
	if _, err := os.Stat(alive); err != nil {
		t.Errorf("the folder of a living demo: %v", err)
	}
}

func TestTheRigPutsReceiveWorkOnOneCPUAndIsRemoved(t *testing.T) {
	testnet.NeedRoot(t)
	r, err := newRig(5 * time.Microsecond)
	if err != nil {
		if strings.Contains(err.Error(), "needs two CPUs") {
			t.Skipf("needs two CPUs: %v", err)
		}
		t.Fatal(err)
	}
	closed := false
	t.Cleanup(func() {
		if !closed {
			r.Close()
		}
	})
	first, err := r.settings()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	loaded := make(chan error)
	go func() { loaded <- r.load(ctx, 5000, time.Minute, 0) }()
	before, err := r.read(ctx, time.Second)
	if err != nil {
		t.Fatal(err)
	}
	if err := r.setRPS([]int{r.senderCPU}); err != nil {
		t.Fatal(err)
	}
	if _, err := r.read(ctx, 200*time.Millisecond); err != nil { // what was under way
		t.Fatal(err)
	}
	after, err := r.read(ctx, 500*time.Millisecond)
	if err != nil {
		t.Fatal(err)
	}
	cancel()
	if err := <-loaded; err != nil {
		t.Fatal(err)
	}
	if before.Work[r.rxCPU] < 0.99 || before.Delivered < 500 || before.Probe.Count == 0 {
		t.Errorf("mask on CPU %d: %+v", r.rxCPU, before)
	}
	if after.Work[r.senderCPU] < 0.99 {
		t.Errorf("mask on CPU %d: %+v", r.senderCPU, after)
	}
	changed, err := r.settings()
	if err != nil {
		t.Fatal(err)
	}
	if d := differences(first, changed); len(d) != queues {
		t.Errorf("settings that differ: %v, want the %d masks", d, queues)
	}
	closed = true
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	for _, ns := range []*testnet.NS{r.sender, r.receiver} {
		if _, err := os.Stat("/run/netns/" + ns.Name); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s is still there: %v", ns.Name, err)
		}
	}
}

func TestAnInterruptLeavesNothing(t *testing.T) {
	testnet.NeedRoot(t)
	ctx, cancel := context.WithCancel(context.Background())
	// Interrupted when the load has begun.
	progress := writerFunc(func(p []byte) {
		if bytes.Contains(p, []byte("offering")) {
			cancel()
		}
	})
	if code := run(ctx, []string{"--by-hand", "--window", "1s"}, io.Discard, progress); code != 1 {
		t.Errorf("interrupted: exit %d, want 1", code)
	}
	cancel()
	if left := leftovers(t); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

// The demo's own reading of the settings decides what was changed and restored,
// whatever rxsteer says: here a script that pretends to be it.
func TestWhatRxsteerDidIsCheckedNotBelieved(t *testing.T) {
	testnet.NeedRoot(t)
	const masks = "/sys/class/net/b0/queues/rx-"
	for _, tc := range []struct {
		name, apply, rollback string
		changed, left         int
		restored              bool
		verdict               verdict // "" is any
	}{
		{"the rollback forgets a queue", "echo 1 > " + masks + "0/rps_cpus; echo 1 > " + masks + "1/rps_cpus",
			"echo 2 > " + masks + "0/rps_cpus", 2, 1, false, ""},
		{"apply takes its change back", "echo worse >&2; exit 4", "exit 1", 0, 0, true, unchanged},
	} {
		t.Run(tc.name, func(t *testing.T) {
			script := filepath.Join(t.TempDir(), "rxsteer")
			if err := os.WriteFile(script, []byte("#!/bin/sh\ncase $1 in\napply) "+tc.apply+";;\nrollback) "+tc.rollback+";;\nesac\n"), 0o755); err != nil {
				t.Fatal(err)
			}
			var out bytes.Buffer
			d := &demo{options: options{rxsteer: script, burn: 5 * time.Microsecond, load: 0.2, window: time.Second}, out: &out, progress: io.Discard}
			if err := d.run(context.Background()); err != nil {
				if strings.Contains(err.Error(), "needs two CPUs") {
					t.Skipf("needs two CPUs: %v", err)
				}
				t.Fatal(err)
			}
			res := d.result
			if len(res.CPUs) != 2 && tc.left > 0 {
				tc.left = len(res.Left) // the script's mask is the first one on two CPUs only
			}
			if len(res.Changed) != tc.changed || len(res.Left) != tc.left || res.Restored != tc.restored {
				t.Errorf("changed %v, not restored %v, restored %v", res.Changed, res.Left, res.Restored)
			}
			if tc.verdict != "" && res.Verdict != tc.verdict {
				t.Errorf("verdict %q, want %q", res.Verdict, tc.verdict)
			}
			if !tc.restored && !strings.Contains(out.String(), "NOT restored") {
				t.Errorf("the report hides it:\n%s", &out)
			}
		})
	}
	if left := leftovers(t); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

type writerFunc func([]byte)

func (f writerFunc) Write(p []byte) (int, error) { f(p); return len(p), nil }

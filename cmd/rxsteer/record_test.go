package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/rxsteer/rxsteer/collector"
	"github.com/rxsteer/rxsteer/collector/record"
	"github.com/rxsteer/rxsteer/internal/cpuset"
	"github.com/rxsteer/rxsteer/internal/host/knob"
	"github.com/rxsteer/rxsteer/internal/host/nic"
	"github.com/rxsteer/rxsteer/internal/host/topo"
	"github.com/rxsteer/rxsteer/steer/plan"
)

// answers are what the readers make of a look.
func answers(t *testing.T, s *seen) string {
	t.Helper()
	var b bytes.Buffer
	if err := printJSON(&b, s.report); err != nil {
		t.Fatal(err)
	}
	for _, g := range []plan.Goal{plan.Auto, plan.Latency, plan.Throughput} {
		text, err := makePlan(s, g, plan.Policy{}, false).YAML()
		if err != nil {
			t.Fatal(err)
		}
		b.Write(text)
	}
	return b.String()
}

// TestRecordingIsJudgedAsLive: what the readers say of a recording is what they say of the samples in memory.
func TestRecordingIsJudgedAsLive(t *testing.T) {
	var r *rig
	e, _, _ := testEnv()
	m := &measureFlags{duration: 2 * time.Second}
	if os.Geteuid() == 0 {
		r = newRig(t)
		m.level = 1
		e.fs = r.b.FS()
		stop := r.stream(t)
		defer stop()
	}
	live, err := e.look(t.Context(), m, nil)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "r")
	f, err := os.Create(file)
	if err != nil {
		t.Fatal(err)
	}
	w, err := record.NewWriter(f, record.Header{Started: live.sample.Start})
	if err != nil {
		t.Fatal(err)
	}
	if err := w.State(&record.State{NICs: live.nics, Topology: live.topology, Snapshot: live.snapshot}); err != nil {
		t.Fatal(err)
	}
	for _, s := range live.windows {
		if err := w.Sample(s); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	e2, _, stderr := testEnv()
	e2.fs = nil // nothing of this host is read
	read, err := e2.lookFrom(&measureFlags{from: file}, nil)
	if err != nil || stderr.Len() > 0 {
		t.Fatal(err, stderr)
	}
	if d := cmp.Diff(answers(t, live), answers(t, read)); d != "" {
		t.Errorf("-live +recording:\n%s", d)
	}
	if r != nil && len(live.sample.NAPIs) == 0 {
		t.Error("nothing was measured: the test shows nothing")
	}
}

// stream sends datagrams from a to b until stopped.
func (r *rig) stream(t *testing.T) (stop func()) {
	t.Helper()
	var conn net.Conn
	if err := r.a.Do(func() (err error) { conn, err = net.Dial("udp", "10.81.0.2:9"); return err }); err != nil {
		t.Fatal(err)
	}
	quit, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		tick := time.NewTicker(time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-quit:
				return
			case <-tick.C:
				for range 10 {
					_, _ = conn.Write([]byte("x")) // refused once b answered that nobody listens
				}
			}
		}
	}()
	return func() {
		close(quit)
		<-done
		conn.Close()
	}
}

func TestRecordReadsAnywhere(t *testing.T) {
	r := newRig(t)
	defer r.stream(t)()
	file := filepath.Join(t.TempDir(), "eth.rxrec")
	done := r.start("record", "-w", file, "--for", "3s")
	// A setting that changes meanwhile.
	await(t, "the first sample", func() bool {
		rec, err := record.Open(file)
		return err == nil && len(rec.Samples) > 0
	})
	if err := r.b.SetRPS("b0", 0, "1"); err != nil {
		t.Fatal(err)
	}
	o := finish(t, done).want(t, exitOK)
	rec, err := record.Open(file)
	if err != nil || rec.Cut != nil {
		t.Fatal(err, rec.Cut)
	}
	if n := len(rec.Samples); n < 2 || n > 3 || !strings.Contains(o.stdout, fmt.Sprint(n, " samples")) { // a busy machine may be late for one
		t.Errorf("%d samples in 3 s, said %q", n, o.stdout)
	}
	if len(rec.States) != 2 || rec.Header.Host.Netns != r.b.Inode() {
		t.Fatalf("%d states, %d samples of netns %d", len(rec.States), len(rec.Samples), rec.Header.Host.Netns)
	}
	diff := knob.Diff(rec.States[0].Snapshot, rec.States[1].Snapshot)
	if len(diff) == 0 || diff[0].Target != "b0 rx-0" {
		t.Errorf("settings that changed: %+v", diff)
	}
	var packets uint64
	for _, s := range rec.Samples {
		for _, n := range s.NAPIs {
			if n.Device == "b0" {
				packets += n.Packets
			}
		}
	}
	if packets < 1000 {
		t.Errorf("%d packets of b0 recorded", packets)
	}
	for _, args := range [][]string{{"diagnose", "-o", "json", "--fail-on", "never"}, {"plan", "-o", "json"}, {"status", "-o", "json"}} {
		e, stdout, stderr := testEnv(append(args, "--from", file)...)
		e.fs = nil
		if code := run(t.Context(), e); code != exitOK || !json.Valid(stdout.Bytes()) {
			t.Errorf("%v: exit %d\n%s%s", args, code, stdout, stderr)
		}
		if args[0] == "status" && !strings.Contains(stdout.String(), `"b0"`) {
			t.Errorf("status lacks b0:\n%s", stdout)
		}
	}
	// Cut off, it says so and reads what there is.
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, text[:len(text)-200], 0o600); err != nil {
		t.Fatal(err)
	}
	e, _, stderr := testEnv("diagnose", "--from", file, "--fail-on", "never")
	if code := run(t.Context(), e); code != exitOK || !strings.Contains(stderr.String(), "cut off after") {
		t.Errorf("cut: exit %d\n%s", code, stderr)
	}
	e, _, stderr = testEnv("diagnose", "--from", file, "nosuch0")
	if code := run(t.Context(), e); code == exitOK {
		t.Errorf("an interface that was not there: exit %d\n%s", code, stderr)
	}
}

func TestRecordStoppedEarlyOrKilled(t *testing.T) {
	r := newRig(t)
	for _, tc := range []struct {
		signal os.Signal
		whole  bool
	}{{unix.SIGINT, true}, {unix.SIGKILL, false}} {
		file := filepath.Join(t.TempDir(), "r")
		p := r.start("record", "-w", file, "--for", "1h", "--interval", "100ms", "--level", "0")
		deadline := time.Now().Add(time.Minute)
		for {
			if rec, err := record.Open(file); err == nil && len(rec.Samples) >= 3 {
				break
			}
			if time.Now().After(deadline) {
				t.Fatalf("no sample within 20 s: %s", &p.stderr)
			}
			time.Sleep(20 * time.Millisecond)
		}
		if err := p.Process.Signal(tc.signal); err != nil {
			t.Fatal(err)
		}
		_ = p.Wait() // killed
		rec, err := record.Open(file)
		if err != nil || len(rec.Samples) < 3 || (rec.Cut == nil) != tc.whole {
			t.Errorf("after %v: %v, cut %v", tc.signal, err, rec.Cut)
		}
		if tc.whole && (p.ProcessState.ExitCode() != exitOK || !strings.Contains(p.stdout.String(), "stopped early")) {
			t.Errorf("exit %d, %s%s", p.ProcessState.ExitCode(), &p.stdout, &p.stderr)
		}
	}
}

// TestReportOfARecording writes both forms of a real recording, alone and against another.
func TestReportOfARecording(t *testing.T) {
	dir := t.TempDir()
	rec := filepath.Join(dir, "r.rxrec")
	run1 := func(args ...string) string {
		t.Helper()
		e, stdout, stderr := testEnv(args...)
		if code := run(t.Context(), e); code != 0 {
			t.Fatalf("%v: exit %d: %s", args, code, stderr)
		}
		return stdout.String()
	}
	run1("record", "-w", rec, "--for", "1s", "--interval", "200ms", "--level", "0")
	for _, c := range []struct {
		args []string
		want []string
	}{
		{[]string{"-w", filepath.Join(dir, "a.html")}, []string{"<!doctype html>", `id="data"`, "Content-Security-Policy"}},
		{[]string{"-w", filepath.Join(dir, "b.html"), "--base", rec}, []string{`"compare":[`}},
		{[]string{"-w", filepath.Join(dir, "a.md")}, []string{"# Receive path", "| packets received per second |"}},
		{[]string{"-w", filepath.Join(dir, "b.txt"), "--base", rec, "--format", "md"}, []string{"| measure | before | after | change |"}},
	} {
		run1(append([]string{"report", "--from", rec}, c.args...)...)
		text, err := os.ReadFile(c.args[1])
		if err != nil {
			t.Fatal(err)
		}
		for _, w := range c.want {
			if !strings.Contains(string(text), w) {
				t.Errorf("report %v lacks %q", c.args, w)
			}
		}
	}
	e, _, stderr := testEnv("report", "--from", filepath.Join(dir, "none"), "-w", filepath.Join(dir, "x.html"))
	if code := run(t.Context(), e); code != exitFailed || !strings.Contains(stderr.String(), "none") {
		t.Errorf("of nothing: exit %d: %s", code, stderr)
	}
}

// BenchmarkDiagnoseTenMinutes is diagnose --from of ten minutes of a NIC of 64 queues on 64 CPUs, a sample a second (goal: 1 s).
func BenchmarkDiagnoseTenMinutes(b *testing.B) {
	const n = 64
	start := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	state := &record.State{At: start, Topology: &topo.Topology{Online: cpuset.Range(0, n-1), Possible: cpuset.Range(0, n-1)},
		Snapshot: &knob.Snapshot{Version: knob.SnapshotVersion, Taken: start, Host: knob.Identity{Netns: 5, CPUs: "0-63"}, Devices: []knob.Device{{Name: "eth0", IfIndex: 2, Driver: "mlx5_core", RXQueues: n, TXQueues: n}}}}
	eth := nic.NIC{Name: "eth0", IfIndex: 2, Netns: 5, Kind: nic.Physical, Driver: "mlx5_core", Up: true}
	for i := range n {
		state.Topology.CPUs = append(state.Topology.CPUs, topo.CPU{ID: i, Core: i, Online: true})
		eth.Queues = append(eth.Queues, nic.Queue{RX: i, TX: i, NAPI: uint32(8193 + i), IRQ: 40 + i, Vector: "eth0-" + strconv.Itoa(i), Affinity: cpuset.Of(i), Effective: cpuset.Of(i), KnownBy: nic.ByNetlink})
	}
	state.NICs = []nic.NIC{eth}
	file := filepath.Join(b.TempDir(), "r")
	f, err := os.Create(file)
	if err != nil {
		b.Fatal(err)
	}
	w, err := record.NewWriter(f, record.Header{Started: start})
	if err != nil {
		b.Fatal(err)
	}
	if err := w.State(state); err != nil {
		b.Fatal(err)
	}
	for i := range 600 {
		at := start.Add(time.Duration(i) * time.Second)
		s := &collector.Sample{Version: collector.SampleVersion, Start: at, End: at.Add(time.Second), Interval: time.Second, Level: 1,
			Devices: []collector.Device{{Name: "eth0", IfIndex: 2, RXPackets: 8_000_000, RXBytes: 1 << 33}}}
		for c := range uint64(n) {
			cpu := collector.CPU{CPU: int(c), Idle: 4e8, Softirq: 5e8, Processed: 125_000 + c}
			for v := range cpu.SoftirqRuns {
				cpu.SoftirqRuns[v], cpu.SoftirqTime[v] = 1000+c, 1_000_000+c
			}
			cpu.SoftirqTime[collector.NetRX] = 5e8 - c
			p := collector.NAPI{Netns: 5, IfIndex: 2, Device: "eth0", ID: uint32(8193 + c), Pointer: 1<<40 + c<<12, RXQueue: int(c), CPU: int(c), Polls: 20_000, Packets: 125_000 + c, Time: 4e8 + c}
			for x := 8; x < 20; x++ {
				p.TimeHist[x], p.WorkHist[x-8] = 1000*uint64(x)+c, 900*uint64(x)+c
			}
			s.CPUs, s.NAPIs = append(s.CPUs, cpu), append(s.NAPIs, p)
			s.IRQs = append(s.IRQs, collector.IRQ{IRQ: int(40 + c), CPU: int(c), Action: "eth0-" + strconv.Itoa(int(c)), Count: 20_000, Time: 2e7})
		}
		if err := w.Sample(s); err != nil {
			b.Fatal(err)
		}
	}
	if err := errors.Join(w.Close(), f.Close()); err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		e := newEnv()
		e.fs, e.stderr = nil, io.Discard
		s, err := e.lookFrom(&measureFlags{from: file}, nil)
		if err != nil || len(s.windows) != 600 || len(s.report.Loads) != n {
			b.Fatal(err)
		}
	}
}

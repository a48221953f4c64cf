package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode"

	"golang.org/x/sys/unix"

	"github.com/rxsteer/rxsteer/collector"
	"github.com/rxsteer/rxsteer/collector/record"
	"github.com/rxsteer/rxsteer/internal/cpuset"
	"github.com/rxsteer/rxsteer/internal/host/knob"
	"github.com/rxsteer/rxsteer/internal/host/nic"
	"github.com/rxsteer/rxsteer/internal/host/topo"
	"github.com/rxsteer/rxsteer/steer/apply"
)

// TestBadPlans: a plan that was edited into something else is refused with the place, and nothing is
// half-written.
func TestBadPlans(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	good, err := os.ReadFile(r.plan(nil))
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		name    string
		was, is string // in the plan's text; was "" replaces all
		code    int
		say     string
	}{
		{"unknown setting", "rps-cpus", "rps-cpu", exitFailed, `"rps-cpu" is not a setting a plan can hold`},
		{"unknown field", "  findings:", "  finding:", exitFailed, "finding"},
		{"number for a CPU list", `to: "0"`, "to: 0", exitFailed, "takes a CPU list in quotes"},
		{"list for a CPU list", `to: "0"`, "to: [0]", exitFailed, "takes a CPU list in quotes"},
		{"group for a CPU list", `to: "0"`, "to: {cpu: 0}", exitFailed, "takes a CPU list in quotes"},
		{"CPU that does not exist", `to: "0"`, `to: "0,4000"`, exitFailed, "this host has no cpu 4000 online"},
		{"CPU list backwards", `to: "0"`, `to: "3-0"`, exitFailed, "3-0"},
		{"no value", `to: "0"`, "to: ", exitFailed, "is missing"},
		{"unknown risk", "risk: reorder", "risk: harmless", exitFailed, `"harmless" is none of`},
		{"queue that does not exist", "b0 rx-0", "b0 rx-9", exitRolledBack, "settings changed since the plan was made"},
		{"other device", "target: b0 rx-0", "target: eth7 rx-0", exitFailed, "identity does not name device eth7"},
		{"way out of the tree", "target: b0 rx-0", "target: ../../../etc rx-0", exitFailed, "identity does not name device"},
		{"unknown goal", "goal: balanced", "goal: world-peace", exitFailed, "none of auto, throughput"},
		{"newer version", "version: 1", "version: 99", exitFailed, "newer than this rxsteer reads"},
		{"other boot", "boot_id: ", "boot_id: 0", exitRolledBack, "boot ID was 0"},
		{"older state: queues", "rx_queues: 2", "rx_queues: 4", exitRolledBack, "queues of b0 was 4 rx 2 tx and is 2 rx 2 tx"},
		{"older state: value", `from: ""`, `from: "1"`, exitRolledBack, "settings changed since the plan was made"},
		{"empty", "", "", exitFailed, "found 0"},
		{"not YAML", "", "]]] {{{", exitFailed, "plan.yaml"},
		{"a zero byte", "", "version: 1\x00", exitFailed, "zero byte"},
		{"a shell script", "", "#!/bin/sh\necho 1 > /sys/class/net/b0/queues/rx-0/rps_cpus\n", exitFailed, "plan.yaml"},
		{"cut off", "", string(good[:len(good)/2]), exitFailed, "plan.yaml"},
	} {
		t.Run(test.name, func(t *testing.T) {
			text := test.is
			if test.was != "" {
				if text = strings.Replace(string(good), test.was, test.is, 1); text == string(good) {
					t.Fatalf("no %q in\n%s", test.was, good)
				}
			}
			file := filepath.Join(t.TempDir(), "plan.yaml")
			if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
			r.rxsteer(r.apply(file)...).want(t, test.code, test.say)
			if r.rps() != "" {
				t.Errorf("mask %q", r.rps())
			}
			if txs := r.history(); len(txs) != 0 {
				t.Errorf("journal: %+v", txs)
			}
		})
	}
}

// TestBadState: what is wrong with the journal, the disk or the host is refused or repaired with a clear
// message, and the next run works.
func TestBadState(t *testing.T) {
	t.Parallel()
	journal := func(r *rig) string { return filepath.Join(r.dir, "journal.jsonl") }
	edit := func(r *rig, f func([]byte) []byte) {
		b, err := os.ReadFile(journal(r))
		if err == nil {
			err = os.WriteFile(journal(r), f(b), 0o644)
		}
		if err != nil {
			r.t.Fatal(err)
		}
	}
	t.Run("journal cut off in its last line", func(t *testing.T) {
		r := newRig(t)
		r.rxsteer(r.apply(r.plan(nil))...).want(t, exitOK)
		edit(r, func(b []byte) []byte { return b[:len(b)-9] }) // the line that says kept
		r.rxsteer("rollback", "--state-dir", r.dir).want(t, exitOK)
		if r.rps() != "" || r.history()[0].State != apply.RolledBack {
			t.Errorf("mask %q, %+v", r.rps(), r.history())
		}
		r.rxsteer(r.apply(r.plan(nil))...).want(t, exitOK)
	})
	t.Run("only what was interrupted", func(t *testing.T) {
		r := newRig(t)
		r.rxsteer("rollback", "--interrupted", "--state-dir", r.dir).want(t, exitOK)
		r.rxsteer(r.apply(r.plan(nil))...).want(t, exitOK)
		r.rxsteer("rollback", "--interrupted", "3", "--state-dir", r.dir).want(t, exitUsage, "takes no ID")
		r.rxsteer("rollback", "--interrupted", "--state-dir", r.dir).want(t, exitOK)
		if r.rps() != "1" || r.history()[0].State != apply.Kept {
			t.Errorf("what was kept: mask %q, %+v", r.rps(), r.history())
		}
		edit(r, func(b []byte) []byte { return b[:len(b)-9] })
		r.rxsteer("rollback", "--interrupted", "--state-dir", r.dir).want(t, exitOK)
		if r.rps() != "" || r.history()[0].State != apply.RolledBack {
			t.Errorf("what was killed: mask %q, %+v", r.rps(), r.history())
		}
	})
	t.Run("journal broken in the middle", func(t *testing.T) {
		r := newRig(t)
		r.rxsteer(r.apply(r.plan(nil))...).want(t, exitOK)
		edit(r, func(b []byte) []byte { return bytes.Replace(b, []byte("\n"), []byte("\nxxx\n"), 1) })
		for _, args := range [][]string{r.apply(r.plan(nil)), {"rollback", "--state-dir", r.dir}, {"history", "--state-dir", r.dir}} {
			r.rxsteer(args...).want(t, exitFailed, "journal.jsonl:2: not a journal line")
		}
		if r.rps() != "1" {
			t.Errorf("mask %q", r.rps())
		}
	})
	t.Run("journal of a newer version", func(t *testing.T) {
		r := newRig(t)
		r.rxsteer(r.apply(r.plan(nil))...).want(t, exitOK)
		edit(r, func(b []byte) []byte { return bytes.ReplaceAll(b, []byte(`{"v":1,`), []byte(`{"v":9,`)) })
		r.rxsteer("rollback", "--state-dir", r.dir).want(t, exitFailed, "format 9, this one reads up to 1", "use that one to finish or roll back")
		if r.rps() != "1" {
			t.Errorf("mask %q", r.rps())
		}
	})
	t.Run("two at once", func(t *testing.T) {
		r := newRig(t)
		p := r.start("apply", r.plan(nil), "--yes", "--level", "0", "--for", "3s", "--state-dir", r.dir)
		await(t, "the write", func() bool { return r.rps() == "1" })
		r.rxsteer(r.apply(r.plan(nil))...).want(t, exitFailed, fmt.Sprintf("another rxsteer is at work (pid %d)", p.Process.Pid))
		r.rxsteer("rollback", "--state-dir", r.dir).want(t, exitFailed, "another rxsteer is at work")
		finish(t, p).want(t, exitOK)
	})
	t.Run("full disk", func(t *testing.T) {
		r := newRig(t)
		r.dir = mounted(t, fmt.Sprintf("size=%d", 2*os.Getpagesize()))
		if err := os.WriteFile(filepath.Join(r.dir, "fill"), make([]byte, os.Getpagesize()), 0o644); err != nil {
			t.Fatal(err)
		}
		r.rxsteer(r.apply(r.plan(nil))...).want(t, exitFailed, "no space left on device")
		if r.rps() != "" {
			t.Errorf("mask %q", r.rps())
		}
		if err := os.Remove(filepath.Join(r.dir, "fill")); err != nil {
			t.Fatal(err)
		}
		if err := unix.Mount("none", r.dir, "tmpfs", unix.MS_REMOUNT, "size=1m"); err != nil {
			t.Fatal(err)
		}
		r.rxsteer(r.apply(r.plan(nil))...).want(t, exitOK)
	})
	t.Run("read-only /sys", func(t *testing.T) {
		r := newRig(t)
		args := append([]string{"-m", "sh", "-c", `mount -o remount,bind,ro /sys && exec rxsteer "$@"`, "sh"}, r.apply(r.plan(nil))...)
		out, err := r.b.Command(t.Context(), "unshare", args...).CombinedOutput()
		if err == nil || !strings.Contains(string(out), "read-only file system") {
			t.Errorf("%v: %s", err, out)
		}
		if txs := r.history(); r.rps() != "" || len(txs) != 1 || txs[0].State != apply.RolledBack {
			t.Errorf("mask %q, %+v", r.rps(), txs)
		}
		r.rxsteer(r.apply(r.plan(nil))...).want(t, exitOK)
	})
}

// mounted is a folder on a tmpfs of its own.
func mounted(t *testing.T, options string) string {
	t.Helper()
	dir := t.TempDir()
	if err := unix.Mount("none", dir, "tmpfs", 0, options); err != nil {
		t.Skipf("needs the right to mount: %v", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, 0); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// TestHostileNamesInWhatWasDone: the kernel lets an interface be called so, and headings of what apply and trial did hold its name.
func TestHostileNamesInWhatWasDone(t *testing.T) {
	const name = "a$(x)\x1b[31m\u009b"
	v := &apply.Verdict{Word: apply.Better, Why: name, Devices: []string{name}, Measures: []apply.Measure{{Name: "packets_delivered_per_s", Before: 1, After: 2}, {Name: "dropped_of_offered_ratio"}}}
	ref := knob.Ref{Knob: knob.Rings, Target: knob.Target(name)}
	for _, state := range []apply.State{apply.Kept, apply.Unconfirmed, apply.RolledBack, apply.Partial} {
		r := &apply.Result{ID: "9", State: state, Why: name, Verdict: v, Confirm: time.Minute,
			Steps: []apply.Step{{Ref: ref, Outcome: apply.Applied, Note: name}}, Unasked: []apply.Unasked{{Ref: ref, Note: name}}, Left: []apply.Left{{Ref: ref, Why: name}},
			Judged: []apply.Judged{{Device: name, Knob: knob.Rings, Verdict: v}, {Device: name, Knob: knob.RPSCPUs, Verdict: v}}}
		var b bytes.Buffer
		printResult(&b, &applyDoc{Result: r, Before: &loadDoc{}, After: &loadDoc{}}, palette{}, defaultWidth)
		arms := []apply.Arm{{Name: "baseline"}, {Name: "rings of " + name, Verdict: v}}
		printTrial(&b, &apply.TrialResult{Best: "rings of " + name, Why: name, Arms: arms, Full: arms, Kept: r}, palette{}, defaultWidth)
		said := b.String()
		if n := strings.Count(said, "a$(x)?[31m?"); n < 12 {
			t.Errorf("%s: the name is there %d times only:\n%s", state, n, said)
		}
		if i := strings.IndexFunc(said, func(r rune) bool { return r != '\n' && unicode.IsControl(r) }); i >= 0 {
			t.Errorf("%s: a control character after %q", state, said[max(0, i-60):i])
		}
	}
}

// TestHostileNamesInARecording: whoever made a recording chose the names in it; none of what is said of it moves the cursor of
// who reads it, and its Markdown and page hold no markup of theirs.
func TestHostileNamesInARecording(t *testing.T) {
	const name = "e\x1b[31m\u009b<b>|`"
	dir := t.TempDir()
	file := filepath.Join(dir, "hostile.rxrec")
	f, err := os.Create(file)
	if err != nil {
		t.Fatal(err)
	}
	start := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	w, err := record.NewWriter(f, record.Header{Started: start, Interval: time.Second, Level: 1})
	if err != nil {
		t.Fatal(err)
	}
	at := &topo.Topology{Online: cpuset.Range(0, 1), Possible: cpuset.Range(0, 1), CPUs: []topo.CPU{{ID: 0, Online: true}, {ID: 1, Core: 1, Online: true}}}
	card := nic.NIC{Name: name, Driver: name, IfIndex: 2, Kind: nic.Physical, Up: true, Node: nic.None, Queues: []nic.Queue{{RX: 0, TX: 0, IRQ: 30, Vector: name, NAPI: 7, KnownBy: nic.ByNetlink, Affinity: cpuset.Of(1), Effective: cpuset.Of(1)}}}
	snap := &knob.Snapshot{Version: knob.SnapshotVersion, Taken: start, Devices: []knob.Device{{Name: name, IfIndex: 2, RXQueues: 1, TXQueues: 1}}}
	if err := w.State(&record.State{At: start, NICs: []nic.NIC{card}, Topology: at, Snapshot: snap}); err != nil {
		t.Fatal(err)
	}
	for k := range 12 {
		s := &collector.Sample{Version: collector.SampleVersion, Start: start.Add(time.Duration(k) * time.Second), End: start.Add(time.Duration(k+1) * time.Second), Interval: time.Second, Level: 1,
			Devices: []collector.Device{{Name: name, IfIndex: 2, RXPackets: 90_000, RXMissed: 5000}},
			CPUs:    []collector.CPU{{CPU: 0, Idle: 1e9}, {CPU: 1, Softirq: 1e9}},
			NAPIs:   []collector.NAPI{{IfIndex: 2, Device: name, ID: 7, RXQueue: 0, CPU: 1, Polls: 2000, Packets: 90_000, Time: 9e8, FullBudget: 1500}}}
		s.CPUs[1].SoftirqTime[collector.NetRX] = 95e7
		if err := w.Sample(s); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(w.Close(), f.Close()); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"status"}, {"status", "eth9"}, {"irqs"}, {"diagnose", "--fail-on", "never"}, {"plan"}, {"top"}, {"top", "eth9"},
		{"report", "-w", filepath.Join(dir, "r.md")}, {"report", "-w", filepath.Join(dir, "r.html")}} {
		e, stdout, stderr := testEnv(append(args, "--from", file)...)
		run(t.Context(), e)
		said := stdout.String() + stderr.String()
		if args[0] == "report" {
			text, err := os.ReadFile(args[2])
			if err != nil {
				t.Fatal(err)
			}
			if strings.Contains(string(text), "<b>") {
				t.Errorf("%v: a name is markup", args)
			}
			if strings.HasSuffix(args[2], ".md") { // a browser shows the other
				said += string(text)
			}
		} else if args[0] != "irqs" && !strings.Contains(said, "31m") {
			t.Errorf("%v does not name the card, so nothing is tried:\n%s", args, said)
		}
		if i := strings.IndexFunc(said, func(r rune) bool { return r != '\n' && r != '\t' && unicode.IsControl(r) }); i >= 0 {
			t.Errorf("%v: a control character after %q", args, said[max(0, i-60):i])
		}
	}
}

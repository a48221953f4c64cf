package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rxsteer/rxsteer/internal/host/knob"
	"github.com/rxsteer/rxsteer/lab/traffic"
	"github.com/rxsteer/rxsteer/steer/apply"
	"github.com/rxsteer/rxsteer/steer/plan"
)

// flood is the load of these tests, a program of its own: flood ADDR:PORT RATE DIR sends packets of 8 flows for
// a minute and leaves a file named as its process in DIR.
func flood() {
	err := func() error {
		to, err := netip.ParseAddrPort(os.Args[1])
		if err != nil {
			return err
		}
		rate, err := strconv.ParseFloat(os.Args[2], 64)
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(os.Args[3], strconv.Itoa(os.Getpid())), nil, 0o644); err != nil {
			return err
		}
		u, err := traffic.DialUDP(traffic.FlowConfig{To: []netip.AddrPort{to}, Flows: 8}, 200)
		if err != nil {
			return err
		}
		_, err = traffic.Send(context.Background(), traffic.Plan{Rate: rate, For: time.Minute, Flows: 8, Sizes: []int{100}}, u)
		return err
	}()
	if err != nil {
		fmt.Fprintln(os.Stderr, "flood:", err)
		os.Exit(1)
	}
}

// trialPlan has two steps: the mask of rx-0, and its flow table, which does nothing by itself.
func (r *rig) trialPlan() string {
	return r.plan(func(p *plan.Plan) {
		p.Changes = append(p.Changes, plan.Change{Knob: knob.RPSFlowCnt, Target: knob.On("b0", "rx-0"), From: knob.Int(0), To: knob.Int(256), Risk: plan.NoRisk,
			Command: "echo 256 > /sys/class/net/b0/queues/rx-0/rps_flow_cnt", Undo: "echo 0 > /sys/class/net/b0/queues/rx-0/rps_flow_cnt", Why: "a test"})
	})
}

func (r *rig) trial(file, pids string, more ...string) []string {
	args := append([]string{"trial", file, "--yes", "--level", "0", "--for", "2s", "--rounds", "2", "--state-dir", r.dir}, more...)
	return append(args, "--", "ip", "netns", "exec", r.a.Name, "flood", "10.81.0.2:9", "5000", pids)
}

// gone waits until every load that left its name in a folder has ended.
func gone(t *testing.T, pids string) {
	t.Helper()
	files, err := os.ReadDir(pids)
	if err != nil || len(files) == 0 {
		t.Fatalf("no load ran: %v", err)
	}
	for _, f := range files {
		pid, err := strconv.Atoi(f.Name())
		if err != nil {
			t.Fatal(err)
		}
		await(t, "the end of load "+f.Name(), func() bool { return errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) })
	}
}

// TestTrialUnderLoad: every arm is measured under the command's load, and the host ends as the trial says.
func TestTrialUnderLoad(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	pids := t.TempDir()
	o := r.rxsteer(r.trial(r.trialPlan(), pids, "--copies", "2", "-o", "json")...)
	if o.code != exitOK && o.code != exitRolledBack {
		t.Fatalf("exit %d: %s%s", o.code, o.stdout, o.stderr)
	}
	var res apply.TrialResult
	if err := json.Unmarshal([]byte(o.stdout), &res); err != nil {
		t.Fatalf("%v: %s", err, o.stdout)
	}
	var names []string
	for _, a := range res.Arms {
		names = append(names, a.Name)
		if a.Windows < 6 {
			t.Errorf("%s: %d windows", a.Name, a.Windows)
		}
		if a.Name == "baseline" {
			continue
		}
		if a.Verdict == nil || a.Verdict.Word == apply.NotJudged && strings.Contains(a.Verdict.Why, "too little") || len(a.Verdict.Devices) != 1 {
			t.Fatalf("%s: %+v", a.Name, a.Verdict)
		}
		for _, m := range a.Verdict.Measures {
			if m.Name == "packets_delivered_per_s" && (m.Before < 2000 || m.After < 2000) {
				t.Errorf("%s: %.0f packets/s before, %.0f after, want about 5000", a.Name, m.Before, m.After)
			}
		}
	}
	if got := strings.Join(names, ", "); !strings.HasPrefix(got, "baseline, rps-cpus of b0, rps-flow-cnt of b0, all") {
		t.Errorf("arms: %s", got)
	}
	if len(res.Full) == 0 && res.FullWhy == "" {
		t.Error("nothing is said of full load")
	}
	want := ""
	for _, a := range res.Arms {
		if a.Name == res.Best && (a.Name == "rps-cpus of b0" || a.Name == "all") {
			want = "1"
		}
	}
	if (o.code == exitOK) != (res.Kept != nil && res.Kept.State == apply.Kept) || r.rps() != want {
		t.Errorf("exit %d, best %s, kept %+v, mask %q want %q: %s", o.code, res.Best, res.Kept, r.rps(), want, res.Why)
	}
	for _, x := range r.history() {
		if x.State != apply.RolledBack && (res.Kept == nil || x.ID != res.Kept.ID) {
			t.Errorf("transaction %s is %s: %s", x.ID, x.State, x.Why)
		}
	}
	gone(t, pids)
}

// TestKilledTrial: SIGKILL while a change is tried. The next run undoes it; with --confirm-within it is undone
// without one. The load dies with the trial.
func TestKilledTrial(t *testing.T) {
	t.Parallel()
	for _, within := range []bool{false, true} {
		t.Run(fmt.Sprintf("confirm-within %v", within), func(t *testing.T) {
			r := newRig(t)
			pids := t.TempDir()
			var more []string
			if within {
				more = []string{"--confirm-within", "1h"}
			}
			p := r.start(r.trial(r.trialPlan(), pids, more...)...)
			await(t, "the mask", func() bool { return r.rps() == "1" })
			if err := p.Process.Kill(); err != nil {
				t.Fatal(err)
			}
			p.Wait()
			gone(t, pids)
			if within {
				await(t, "the watcher's undo", func() bool { return r.rps() == "" })
			} else {
				if r.rps() != "1" {
					t.Fatal("somebody undid it")
				}
				r.rxsteer("rollback", "--state-dir", r.dir).want(t, exitOK)
			}
			await(t, "the journal", func() bool {
				txs := r.history()
				return r.rps() == "" && txs[len(txs)-1].State == apply.RolledBack
			})
		})
	}
}

func TestTrialRefuses(t *testing.T) {
	for _, test := range []struct {
		args []string
		code int
		say  string
	}{
		{[]string{"trial", "--for", "0"}, exitUsage, "nothing but measuring"},
		{[]string{"trial", "--rounds", "0"}, exitUsage, "--rounds 0"},
		{[]string{"trial", "--copies", "0"}, exitUsage, "--copies 0"},
		{[]string{"trial", "--"}, exitUsage, "the command that makes the load"},
		{[]string{"trial", "--", "no-such-program"}, exitUsage, "no-such-program"},
		{[]string{"trial", "a.yaml", "b.yaml"}, exitUsage, "one at most"},
	} {
		e, _, stderr := testEnv(test.args...)
		if code := run(t.Context(), e); code != test.code || !strings.Contains(stderr.String(), test.say) {
			t.Errorf("%s: exit %d, %s", strings.Join(test.args, " "), code, stderr)
		}
	}
}

// A load that fails says why, and nothing of it stays.
func TestCommandLoad(t *testing.T) {
	l, err := newCommandLoad([]string{"sh", "-c", "sleep 0.05; echo no route >&2; exit 3"})
	if err != nil {
		t.Fatal(err)
	}
	why := make(chan error, 3)
	stop, err := l.start(2, func(err error) { why <- err })
	if err != nil {
		t.Fatal(err)
	}
	if err := <-why; !strings.Contains(err.Error(), "exit status 3: no route") {
		t.Error(err)
	}
	stop()

	dir := t.TempDir()
	l, err = newCommandLoad([]string{"sh", "-c", "echo x >> " + dir + "/runs; sleep 100 & wait"}) // with a child that must not stay
	if err != nil {
		t.Fatal(err)
	}
	stop, err = l.start(3, func(err error) { t.Error(err) })
	if err != nil {
		t.Fatal(err)
	}
	await(t, "three runs", func() bool {
		b, err := os.ReadFile(dir + "/runs")
		return err == nil && bytes.Count(b, []byte("x")) == 3
	})
	begun := time.Now()
	stop()
	if d := time.Since(begun); d > 90*time.Second { // the child sleeps for 100
		t.Errorf("to stop took %v", d)
	}
}

func TestTrialText(t *testing.T) {
	v := func(w apply.Word, why string, a, b float64) *apply.Verdict {
		return &apply.Verdict{Word: w, Why: why, Devices: []string{"eth0"}, Windows: 15, Measures: []apply.Measure{
			{Name: "hottest_cpu_receive_softirq_ratio", Before: a, After: b, Significant: true}, {Name: "packets_delivered_per_s", Before: 50000, After: 50100},
			{Name: "dropped_of_offered_ratio"}, {Name: "receive_softirq_per_packet_ns", Before: 9000, After: 9500}, {Name: "latency_p99_ns", Before: 80e3, After: 60e3}}}
	}
	r := &apply.TrialResult{Rounds: 3, Copies: 4, Best: "rps-cpus of eth0", Why: "receive softirq of eth0 on the hottest CPU 60 → 20 %",
		Arms: []apply.Arm{{Name: "baseline", Windows: 15}, {Name: "rps-cpus of eth0", Changes: []int{0}, Windows: 15, Verdict: v(apply.Better, "receive softirq of eth0 on the hottest CPU 60 → 20 %", 0.6, 0.2)},
			{Name: "rps-flow-cnt of eth0", Changes: []int{1}, Windows: 15, Verdict: v(apply.Same, "within the scatter of the windows or too small to matter", 0.6, 0.6)}},
		Full: []apply.Arm{{Name: "baseline", Windows: 9}, {Name: "rps-cpus of eth0", Changes: []int{0}, Windows: 9, Verdict: v(apply.Better, "receive softirq of eth0 on the hottest CPU 98 → 70 %", 0.98, 0.7)}},
		Kept: &apply.Result{ID: "9", State: apply.Kept}}
	var b bytes.Buffer
	printTrial(&b, r, palette{}, defaultWidth)
	golden(t, "trial.txt", b.String())
	noLongLines(t, b.String())
	b.Reset()
	if err := printJSON(&b, r); err != nil {
		t.Fatal(err)
	}
	golden(t, "trial.json", b.String())
}

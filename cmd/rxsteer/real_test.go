package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rxsteer/rxsteer/bpf"
	"github.com/rxsteer/rxsteer/collector"
	"github.com/rxsteer/rxsteer/internal/host/knob"
	"github.com/rxsteer/rxsteer/internal/host/paste"
	"github.com/rxsteer/rxsteer/internal/testnet"
	"github.com/rxsteer/rxsteer/steer/apply"
	"github.com/rxsteer/rxsteer/steer/diagnose"
	"github.com/rxsteer/rxsteer/steer/plan"
)

// rig is a veth pair between two namespaces; rxsteer runs in the receiver's, where b0 is.
type rig struct {
	t    *testing.T
	a, b *testnet.NS
	dir  string // of the journal
}

func newRig(t *testing.T) *rig {
	t.Helper()
	r := &rig{t: t, a: testnet.New(t), b: testnet.New(t), dir: t.TempDir()}
	if err := testnet.Connect(r.a, r.b, testnet.Veth{Queues: 2, NAPI: true, AddrA: "10.81.0.1/24", AddrB: "10.81.0.2/24"}); err != nil {
		t.Fatal(err)
	}
	return r
}

// outcome of a run of the program.
type outcome struct {
	stdout, stderr string
	code           int
}

func (r *rig) rxsteer(args ...string) outcome {
	r.t.Helper()
	return finish(r.t, r.start(args...))
}

// process is a run that was started.
type process struct {
	*exec.Cmd
	stdout, stderr bytes.Buffer
}

func (r *rig) start(args ...string) *process {
	r.t.Helper()
	p := &process{Cmd: r.b.Command(r.t.Context(), "rxsteer", args...)}
	p.Cmd.Stdout, p.Cmd.Stderr = &p.stdout, &p.stderr
	if err := p.Start(); err != nil {
		r.t.Fatal(err)
	}
	return p
}

func finish(t *testing.T, p *process) outcome {
	t.Helper()
	err := p.Wait()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return outcome{p.stdout.String(), p.stderr.String(), p.ProcessState.ExitCode()}
}

func (o outcome) want(t *testing.T, code int, stderr ...string) outcome {
	t.Helper()
	if o.code != code {
		t.Fatalf("exit %d, want %d\nstdout: %s\nstderr: %s", o.code, code, o.stdout, o.stderr)
	}
	for _, s := range stderr {
		if !strings.Contains(o.stderr, s) {
			t.Errorf("stderr lacks %q:\n%s", s, o.stderr)
		}
	}
	return o
}

// rps is the mask of b0's receive queue 0 as a number in hexadecimal.
func (r *rig) rps() string {
	r.t.Helper()
	text, err := r.b.FS().ReadFile("/sys/class/net/b0/queues/rx-0/rps_cpus")
	if err != nil {
		r.t.Fatal(err)
	}
	return strings.TrimLeft(strings.ReplaceAll(strings.TrimSpace(string(text)), ",", ""), "0")
}

// await polls until done holds.
func await(t *testing.T, what string, done func() bool) {
	t.Helper()
	limit := time.After(time.Minute)
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for !done() {
		select {
		case <-limit:
			t.Fatalf("%s: not within a minute", what)
		case <-tick.C:
		}
	}
}

// plan writes a plan that sets the mask of b0 rx-0 to CPU 0; edit changes it before it is written.
func (r *rig) plan(edit func(*plan.Plan)) string {
	r.t.Helper()
	var doc statusDoc
	o := r.rxsteer("status", "b0", "-o", "json").want(r.t, exitOK)
	if err := json.Unmarshal([]byte(o.stdout), &doc); err != nil {
		r.t.Fatal(err)
	}
	p := &plan.Plan{
		Version: plan.Version, Goal: plan.Balanced,
		Identity: plan.Identity{BootID: doc.Host.BootID, Netns: doc.Host.Netns, Kernel: doc.Host.Kernel,
			Devices: []plan.Device{{Name: "b0", IfIndex: doc.NICs[0].IfIndex, Bus: doc.NICs[0].Bus, Driver: doc.NICs[0].Driver, RXQueues: 2, TXQueues: 2}}},
		Changes: []plan.Change{{
			Knob: knob.RPSCPUs, Target: knob.On("b0", "rx-0"), From: knob.Text(""), To: knob.Text("0"), Findings: []diagnose.ID{"RX301"}, Risk: plan.Reorder,
			Command: "echo 1 > /sys/class/net/b0/queues/rx-0/rps_cpus", Undo: "echo 0 > /sys/class/net/b0/queues/rx-0/rps_cpus", Why: "a test",
		}},
	}
	if edit != nil {
		edit(p)
	}
	text, err := p.YAML()
	if err != nil {
		r.t.Fatal(err)
	}
	file := filepath.Join(r.t.TempDir(), "plan.yaml")
	if err := os.WriteFile(file, text, 0o644); err != nil {
		r.t.Fatal(err)
	}
	return file
}

// apply is a command line of apply that judges nothing: other tests' traffic on this machine must not
// decide what becomes of it.
func (r *rig) apply(file string, more ...string) []string {
	return append([]string{"apply", file, "--yes", "--for", "0", "--state-dir", r.dir}, more...)
}

func (r *rig) history() []apply.Transaction {
	r.t.Helper()
	o := r.rxsteer("history", "-o", "json", "--state-dir", r.dir).want(r.t, exitOK)
	var txs []apply.Transaction
	if err := json.Unmarshal([]byte(o.stdout), &txs); err != nil {
		r.t.Fatal(err)
	}
	return txs
}

func TestStatusSeesItsNamespaceOnly(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	o := r.rxsteer("status").want(t, exitOK)
	if !strings.Contains(o.stdout, "b0  veth") || strings.Contains(o.stdout, "a0") {
		t.Errorf("status:\n%s", o.stdout)
	}
	r.rxsteer("status", "a0").want(t, exitFailed, `no interface "a0" in this network namespace; there are b0, lo`, "did you mean b0?", "ip netns exec")
	tap, err := r.b.NewTAP("tap0", 4)
	if err != nil {
		t.Fatal(err)
	}
	defer tap.Close()
	var doc statusDoc
	o = r.rxsteer("status", "-o", "json").want(t, exitOK)
	if err := json.Unmarshal([]byte(o.stdout), &doc); err != nil {
		t.Fatal(err)
	}
	queues := map[string]int{}
	for _, n := range doc.NICs {
		for _, q := range n.Queues {
			if q.RX != nil {
				queues[n.Name]++
			}
		}
		if n.Settings[knob.Rings].Known() && n.Driver == "tun" {
			t.Errorf("a tap has no rings, shown: %s", n.Settings[knob.Rings])
		}
	}
	if queues["b0"] != 2 || queues["tap0"] != 4 {
		t.Errorf("receive queues %v, want b0 2, tap0 4", queues)
	}
}

func TestApplyAndRollback(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	o := r.rxsteer(r.apply(r.plan(nil), "-o", "json")...).want(t, exitOK)
	var doc applyDoc
	if err := json.Unmarshal([]byte(o.stdout), &doc); err != nil {
		t.Fatal(err)
	}
	if doc.State != apply.Kept || doc.Steps[0].Outcome != apply.Applied || doc.Verdict != nil || r.rps() != "1" {
		t.Errorf("mask %q after:\n%s", r.rps(), o.stdout)
	}
	o = r.rxsteer("rollback", "--state-dir", r.dir).want(t, exitOK)
	if r.rps() != "" || !strings.Contains(o.stdout, "restored") {
		t.Errorf("mask %q after:\n%s", r.rps(), o.stdout)
	}
	if txs := r.history(); len(txs) != 1 || txs[0].State != apply.RolledBack {
		t.Errorf("history %+v", txs)
	}
	r.rxsteer("rollback", "--state-dir", r.dir).want(t, exitFailed, "no such transaction", "rxsteer history")
	r.rxsteer("rollback", "--original", "--state-dir", r.dir).want(t, exitOK)
}

// TestApplyJudges: what is shown of before and after is measured, and the verdict is about the device: it
// received nothing, whatever else goes on.
func TestApplyJudges(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	var conn net.Conn
	if err := r.b.Do(func() (err error) {
		conn, err = net.Dial("udp", "127.0.0.1:9")
		return err
	}); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	sent := make(chan struct{})
	go func() { // more and more of it
		defer close(sent)
		tick := time.NewTicker(time.Millisecond)
		defer tick.Stop()
		for n := 1; ; n++ {
			for range 1 + n/100 {
				conn.Write([]byte("x")) // refused: nobody listens
			}
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
		}
	}()
	o := r.rxsteer("apply", r.plan(nil), "--yes", "--level", "0", "--for", "1s", "--state-dir", r.dir, "-o", "json").want(t, exitOK)
	stop()
	<-sent
	if err := conn.Close(); err != nil {
		t.Error(err)
	}
	var doc applyDoc
	if err := json.Unmarshal([]byte(o.stdout), &doc); err != nil {
		t.Fatalf("%v: %s%s", err, o.stdout, o.stderr)
	}
	if doc.Before == nil || doc.After == nil || doc.Verdict == nil || doc.Verdict.Word != apply.NotJudged || !strings.Contains(doc.Verdict.Why, "of b0 before") || doc.State != apply.Kept {
		t.Fatalf("apply says:\n%s%s", o.stdout, o.stderr)
	}
	if doc.After.PacketsPS < 100 {
		t.Errorf("%.0f packets/s on loopback: the test tests nothing", doc.After.PacketsPS)
	}
	for _, side := range []*loadDoc{doc.Before, doc.After} {
		if side.IntervalS < 0.9 || side.IntervalS > 60 || len(side.CPUs) == 0 {
			t.Errorf("measured %.2f s of %d CPUs, want 1 s, or what a busy machine makes of it, of all", side.IntervalS, len(side.CPUs))
		}
	}
}

func TestApplyRefusesWhatItShould(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	for _, tc := range []struct {
		name   string
		edit   func(*plan.Plan)
		before func() error
		args   []string
		code   int
		stderr []string
	}{
		{"another boot", func(p *plan.Plan) { p.Identity.BootID = "00000000-0000-0000-0000-000000000000" }, nil, nil, exitRolledBack, []string{"boot ID", "make a new plan"}},
		{"another namespace", func(p *plan.Plan) { p.Identity.Netns = 1 }, nil, nil, exitRolledBack, []string{"network namespace", "make a new plan"}},
		{"another device of the name", func(p *plan.Plan) { p.Identity.Devices[0].IfIndex += 100 }, nil, nil, exitRolledBack, []string{"ifindex of b0"}},
		{"risk not granted", func(p *plan.Plan) { p.Changes[0].Risk = plan.Pause }, nil, nil, exitFailed, []string{"risk not allowed", "--allow pause"}},
		{"a CPU that is not there", func(p *plan.Plan) { p.Changes[0].To = knob.Text("4000") }, nil, nil, exitFailed, []string{"plan.yaml", "4000"}},
		{"somebody moved it", nil, func() error { return r.b.SetRPS("b0", 0, "2") }, nil, exitRolledBack, []string{"settings changed since the plan was made"}},
		{"no terminal to ask on", nil, nil, []string{"--yes=false"}, exitUsage, []string{"there is no terminal to ask on", "--yes"}},
		{"no such plan", nil, nil, []string{"other.yaml"}, exitUsage, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			file := r.plan(tc.edit)
			if tc.before != nil {
				if err := tc.before(); err != nil {
					t.Fatal(err)
				}
				defer r.b.SetRPS("b0", 0, "0")
			}
			was := r.rps()
			r.rxsteer(r.apply(file, tc.args...)...).want(t, tc.code, tc.stderr...)
			if is := r.rps(); is != was {
				t.Errorf("mask %q became %q", was, is)
			}
		})
	}
	r.rxsteer("apply", "nowhere.yaml", "--yes", "--state-dir", r.dir).want(t, exitFailed, "read plan: open nowhere.yaml: no such file")
}

func TestUnconfirmedChangeIsUndoneByItself(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	o := r.rxsteer(r.apply(r.plan(nil), "--confirm-within", "5s")...).want(t, exitOK)
	if !strings.Contains(o.stdout, "Undone by itself in 5s unless confirmed: rxsteer confirm 1") || r.rps() != "1" {
		t.Fatalf("mask %q after:\n%s", r.rps(), o.stdout)
	}
	await(t, "the watcher's rollback", func() bool { return r.rps() == "" })
	await(t, "its record", func() bool { return r.history()[0].State == apply.RolledBack })
	r.rxsteer("confirm", "--state-dir", r.dir).want(t, exitFailed, "no such transaction")
}

func TestConfirmedChangeStays(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.rxsteer(r.apply(r.plan(nil), "--confirm-within", "60s")...).want(t, exitOK)
	o := r.rxsteer("confirm", "--state-dir", r.dir).want(t, exitOK)
	if !strings.Contains(o.stdout, "Transaction 1 is kept") || r.rps() != "1" || r.history()[0].State != apply.Kept {
		t.Errorf("mask %q, history %+v:\n%s", r.rps(), r.history(), o.stdout)
	}
}

// TestWarnsOfTheOperatorsInterface: who is about to change the interface they are connected by is told, also
// under sudo, which drops the variable that says so.
func TestWarnsOfTheOperatorsInterface(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	const ssh = "10.81.0.1 50000 10.81.0.2 22"
	p := r.b.Command(t.Context(), "rxsteer", r.apply(r.plan(nil))...)
	p.Env = append(os.Environ(), "SSH_CONNECTION="+ssh)
	out, err := p.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "! b0 carries your SSH connection from 10.81.0.1\n") {
		t.Errorf("%v: %s", err, out)
	}
	if err := r.b.IP("route", "add", "default", "via", "10.81.0.1"); err != nil {
		t.Fatal(err)
	}
	r.rxsteer("rollback", "--state-dir", r.dir).want(t, exitOK)
	if by := r.history()[0].By; by != "root" {
		t.Errorf("the journal says it was %q", by)
	}
	args := append([]string{"-c", `env -u SSH_CONNECTION rxsteer "$@"`, "sh"}, r.apply(r.plan(nil))...)
	p = r.b.Command(t.Context(), "sh", args...)
	p.Env = append(os.Environ(), "SSH_CONNECTION="+ssh)
	out, err = p.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "! b0 carries your SSH connection from 10.81.0.1 and the default route\n") {
		t.Errorf("%v: %s", err, out)
	}
}

// TestApplyRefusesUntested: a setting that was never run on a driver needs a grant of its own.
func TestApplyRefusesUntested(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	file := r.plan(func(p *plan.Plan) {
		p.Changes = []plan.Change{{Knob: knob.RSSTable, Target: "b0", From: knob.List([]int{0, 1}), To: knob.List([]int{1, 0}), Risk: plan.Reorder, Why: "a test"}}
	})
	r.rxsteer(r.apply(file)...).want(t, exitFailed, "was never tried on driver veth", "--allow untested")
	if txs := r.history(); len(txs) != 0 {
		t.Errorf("journal: %+v", txs)
	}
	r.rxsteer(r.apply(file, "--allow", "reorder,untested")...).want(t, exitRolledBack, "settings changed since") // granted, and refused for another reason
}

// TestKilledApply: SIGKILL between write and verdict. What was written is undone by the next
// rollback, or by the watcher where one was asked for.
func TestKilledApply(t *testing.T) {
	for _, watched := range []bool{false, true} {
		t.Run(fmt.Sprintf("watched %v", watched), func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			args := []string{"apply", r.plan(nil), "--yes", "--level", "0", "--for", "3s", "--state-dir", r.dir}
			if watched {
				args = append(args, "--confirm-within", "60s")
			}
			p := r.start(args...)
			await(t, "the write", func() bool { return r.rps() == "1" })
			if err := p.Process.Kill(); err != nil {
				t.Fatal(err)
			}
			finish(t, p)
			if watched {
				await(t, "the watcher's rollback", func() bool { return r.rps() == "" })
				return
			}
			if txs := r.history(); txs[0].State != apply.Applying {
				t.Errorf("state %q, want applying", txs[0].State)
			}
			o := r.rxsteer("rollback", "--state-dir", r.dir).want(t, exitOK)
			if r.rps() != "" || !strings.Contains(o.stdout, "ended in the middle") {
				t.Errorf("mask %q after:\n%s", r.rps(), o.stdout)
			}
		})
	}
}

// TestHangupUndoes: the terminal goes away in the middle of apply.
func TestHangupUndoes(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	p := r.start("apply", r.plan(nil), "--yes", "--level", "0", "--for", "3s", "--state-dir", r.dir)
	await(t, "the write", func() bool { return r.rps() == "1" })
	if err := p.Process.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	if o := finish(t, p).want(t, exitRolledBack); r.rps() != "" {
		t.Errorf("mask %q after:\n%s", r.rps(), o.stdout)
	}
}

// trigger is a writer that calls f once it has seen text.
type trigger struct {
	bytes.Buffer
	text string
	f    func()
}

func (w *trigger) Write(b []byte) (int, error) {
	n, err := w.Buffer.Write(b)
	if w.f != nil && strings.Contains(w.String(), w.text) {
		w.f()
		w.f = nil
	}
	return n, err
}

func TestDeviceVanishesWhileMeasured(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	e, stdout, _ := testEnv("diagnose", "b0", "--for", "2s", "--level", "0")
	e.fs, e.stderrTTY = r.b.FS(), true
	stderr := &trigger{text: "measuring b0", f: func() {
		if err := r.b.Delete("b0"); err != nil {
			t.Error(err)
		}
	}}
	e.stderr = stderr
	var code int
	if err := r.b.Do(func() error { code = run(t.Context(), e); return nil }); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"b0 went away while it was measured", "nothing was changed"} {
		if !strings.Contains(stderr.String(), want) {
			t.Errorf("stderr lacks %q: %s", want, stderr)
		}
	}
	if code != exitFailed || stdout.Len() > 0 {
		t.Errorf("exit %d, want %d; stdout %s", code, exitFailed, stdout)
	}
}

func TestDeviceComesBackWhileMeasured(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	e, stdout, _ := testEnv("diagnose", "b0", "--for", "2s", "--level", "0", "-o", "json")
	e.fs, e.stderrTTY = r.b.FS(), true
	stderr := &trigger{text: "measuring b0", f: func() {
		if err := r.b.Delete("b0"); err != nil {
			t.Error(err)
		}
		if err := testnet.Connect(r.a, r.b, testnet.Veth{Queues: 2, NAPI: true, AddrA: "10.81.0.1/24", AddrB: "10.81.0.2/24"}); err != nil {
			t.Error(err)
		}
	}}
	e.stderr = stderr
	var code int
	if err := r.b.Do(func() error { code = run(t.Context(), e); return nil }); err != nil {
		t.Fatal(err)
	}
	if want := "packets of b0 before it came back"; code != exitOK && code != exitFindings || !strings.Contains(stdout.String(), want) {
		t.Errorf("exit %d, want a report with %q\nstdout %s\nstderr %s", code, want, stdout, stderr)
	}
}

func TestDeviceVanishesWhileApplied(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	p := r.start("apply", r.plan(nil), "--yes", "--level", "0", "--for", "2s", "--state-dir", r.dir)
	await(t, "the write", func() bool { return r.rps() == "1" })
	if err := r.b.Delete("b0"); err != nil {
		t.Fatal(err)
	}
	o := finish(t, p)
	if o.code == exitFailed || !strings.Contains(o.stdout, "b0 rx-0") || !strings.Contains(o.stdout, "somebody else") && !strings.Contains(o.stdout, "gone") {
		t.Errorf("exit %d\n%s%s", o.code, o.stdout, o.stderr)
	}
	r.rxsteer("rollback", "--state-dir", r.dir).want(t, exitRolledBack)
}

// TestKernelWithout: a kernel that lacks something is refused with what to do, and level 0 works.
func TestKernelWithout(t *testing.T) {
	for _, tc := range []struct {
		err  error
		want []string
	}{
		{fmt.Errorf("load BPF programs: %w: live measurement needs a kernel built with CONFIG_DEBUG_INFO_BTF", bpf.ErrNoBTF), []string{"kernel has no BTF", "CONFIG_DEBUG_INFO_BTF", "--level 0", "rxsteer doctor"}},
		{fmt.Errorf("load BPF programs: %w napi_poll", bpf.ErrNoTracepoint), []string{"kernel has no tracepoint napi_poll", "--level 0", "rxsteer doctor"}},
	} {
		for _, command := range [][]string{{"diagnose"}, {"plan"}, {"apply", "--yes"}, {"agent", "--level", "1", "--web.listen-address", "127.0.0.1:0"}} {
			t.Run(tc.err.Error()+" "+command[0], func(t *testing.T) {
				e, stdout, stderr := testEnv(command...)
				e.attach = func() (collector.Programs, []collector.Unmeasured, error) { return nil, nil, tc.err }
				if code := run(t.Context(), e); code != exitPrivilege {
					t.Errorf("exit %d, want %d", code, exitPrivilege)
				}
				for _, want := range tc.want {
					if !strings.Contains(stderr.String(), want) {
						t.Errorf("stderr lacks %q: %s", want, stderr)
					}
				}
				if stdout.Len() > 0 {
					t.Errorf("stdout: %s", stdout)
				}
			})
		}
	}
}

// TestOrdinaryUser runs the program as nobody, with no capability.
func TestOrdinaryUser(t *testing.T) {
	t.Parallel()
	run := func(args ...string) outcome {
		t.Helper()
		p := &process{Cmd: exec.CommandContext(t.Context(), "rxsteer", args...)}
		if os.Geteuid() == 0 {
			p.Cmd.Path = publicCopy(t)
			p.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
		}
		p.Dir, p.Cmd.Stdout, p.Cmd.Stderr = "/", &p.stdout, &p.stderr
		if err := p.Start(); err != nil {
			t.Fatal(err)
		}
		return finish(t, p)
	}
	run("status").want(t, exitOK)
	run("irqs").want(t, exitOK)
	run("diagnose", "--for", "1s").want(t, exitPrivilege, "not enough privilege for BPF", "CAP_BPF", "setcap", "--level 0")
	o := run("diagnose", "--for", "1s", "--level", "0", "--fail-on", "never").want(t, exitOK)
	if !strings.Contains(o.stdout, "kernel counters only") {
		t.Errorf("diagnose:\n%s", o.stdout)
	}
	o = run("doctor").want(t, exitOK)
	for _, want := range []string{"No live measurement here", "setcap cap_bpf,cap_perfmon=ep", "lost: all live measurement"} {
		if !strings.Contains(o.stdout, want) {
			t.Errorf("doctor lacks %q:\n%s", want, o.stdout)
		}
	}
	run("rollback").want(t, exitPrivilege, "needs root")
	if o := run("top", "--interval", "200ms").want(t, exitOK); !strings.Contains(o.stdout, "level 0") || !strings.Contains(o.stdout, "Without privilege for BPF") {
		t.Errorf("top:\n%s", o.stdout)
	}
	run("profile", "--for", "1s").want(t, exitPrivilege, "not enough privilege for BPF", "CAP_PERFMON", "sudo rxsteer profile")
}

// publicCopy is the program where any user may run it.
func publicCopy(t *testing.T) string {
	t.Helper()
	from, err := exec.LookPath("rxsteer")
	if err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp("", "rxsteer-public-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	in, err := os.Open(from)
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	out, err := os.OpenFile(filepath.Join(dir, "rxsteer"), os.O_CREATE|os.O_WRONLY, 0o755)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(out, in); err != nil {
		t.Fatal(err)
	}
	if err := out.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Name()
}

// TestInterruptedMeasurement ends at once and leaves nothing attached.
func TestInterruptedMeasurement(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	e, stdout, _ := testEnv("diagnose", "--for", "1h", "--level", "0")
	e.stderrTTY = true
	stderr := &trigger{text: "measuring all interfaces", f: cancel}
	e.stderr = stderr
	if code := run(ctx, e); code != exitFailed || !strings.Contains(stderr.String(), "rxsteer: interrupted") || stdout.Len() > 0 {
		t.Errorf("exit %d, stderr %q, stdout %q", code, stderr, stdout)
	}
}

func TestBaselineShowsDrift(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	file := filepath.Join(t.TempDir(), "good.json")
	r.rxsteer("baseline", "save", file).want(t, exitOK)
	if o := r.rxsteer("baseline", "check", file).want(t, exitOK); !strings.HasPrefix(o.stdout, "No difference") {
		t.Errorf("check says:\n%s", o.stdout)
	}
	if err := r.b.SetRPS("b0", 1, "3"); err != nil {
		t.Fatal(err)
	}
	if o := r.rxsteer("baseline", "check", file).want(t, exitFindings); !strings.Contains(o.stdout, "rps-cpus of b0 rx-1") {
		t.Errorf("check says:\n%s", o.stdout)
	}
	var diff []knob.Difference
	o := r.rxsteer("baseline", "check", file, "-o", "json").want(t, exitFindings)
	if err := json.Unmarshal([]byte(o.stdout), &diff); err != nil || len(diff) != 1 || diff[0].To.String() != "0-1" {
		t.Errorf("differences %+v, %v", diff, err)
	}
	if err := r.b.Delete("b0"); err != nil {
		t.Fatal(err)
	}
	if o := r.rxsteer("baseline", "check", file).want(t, exitFindings); !strings.Contains(o.stdout, "b0 is not there any more") {
		t.Errorf("check says:\n%s", o.stdout)
	}
}

// TestBundleTellsWhatTheHostTells: what is set survives the way through ethtool's words.
func TestBundleTellsWhatTheHostTells(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	if err := r.b.SetRPS("b0", 0, "2"); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "b.tar.gz")
	r.rxsteer("bundle", "-w", file, "--for", "1s", "--level", "0", "--mask").want(t, exitOK)
	h, err := paste.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range h.Notes {
		t.Errorf("note: %v", n)
	}
	var live knob.Snapshot
	base := filepath.Join(t.TempDir(), "live.json")
	r.rxsteer("baseline", "save", base, "b0").want(t, exitOK)
	text, err := os.ReadFile(base)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, &live); err != nil {
		t.Fatal(err)
	}
	packed := h.Snapshot()
	compared := 0
	for _, s := range live.Settings {
		if p := packed.Get(s.Ref); p.Known() && s.Value.Known() {
			compared++
			if !p.Equal(s.Value) {
				t.Errorf("%s is %s, packed as %s", s.Ref, s.Value, p)
			}
		}
	}
	if mask := packed.Get(knob.Ref{Knob: knob.RPSCPUs, Target: knob.On("b0", "rx-0")}); compared < 5 || mask.String() != "1" {
		t.Errorf("%d settings compared, mask %s", compared, mask)
	}
	if s := h.Sample(); s == nil || len(s.CPUs) == 0 || !h.Timed {
		t.Errorf("sample %+v, timed %v", s, h.Timed)
	}
	if w := h.Saved.Windows; len(w) < 3 || len(w) > 5 || w[0].Interval < 150*time.Millisecond || len(w[0].CPUs) == 0 {
		t.Errorf("%d windows measured, want 5 of 200 ms, fewer where it began late: %+v", len(w), w)
	}
	mac, err := r.b.MAC("b0")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if out, err := exec.Command("tar", "xzf", file, "-C", dir).CombinedOutput(); err != nil {
		t.Fatalf("tar: %v: %s", err, out)
	}
	err = filepath.WalkDir(dir, func(name string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := os.ReadFile(name)
		if bytes.Contains(text, []byte(mac.String())) {
			t.Errorf("%s holds the MAC address", name)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if o := r.rxsteer("diagnose", "--from", file, "--fail-on", "never").want(t, exitOK); !strings.HasPrefix(o.stdout, "Read from "+file) {
		t.Errorf("diagnose says:\n%s", o.stdout)
	}
}

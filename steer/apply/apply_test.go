package apply

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/rxsteer/rxsteer/collector"
	"github.com/rxsteer/rxsteer/internal/cpuset"
	"github.com/rxsteer/rxsteer/internal/host/knob"
	"github.com/rxsteer/rxsteer/steer/plan"
)

var ctx = context.Background()

// short makes the windows of fakes take no time.
var short = Options{Windows: 3, Window: time.Nanosecond}

func TestApplyKeepsAndRollsBack(t *testing.T) {
	h := newFake(t, 3)
	before := h.state()
	e := h.open(h.config(t.TempDir()))
	defer e.Close()
	res, err := e.Apply(ctx, h.plan(), short)
	if err != nil {
		t.Fatal(err)
	}
	if res.State != Kept || res.ID != "1" {
		t.Errorf("transaction %s is %s, want 1 kept: %s", res.ID, res.State, res.Why)
	}
	for _, s := range res.Steps {
		if s.Outcome != Applied || !s.Got.Equal(s.To) {
			t.Errorf("%s: %s, reads %s", s.Ref, s.Outcome, s.Got)
		}
	}
	want := before
	for r, v := range h.state() {
		if (r.Knob == knob.RPSCPUs && r.Target.Device() == "eth0") && v.String() != "0-3" {
			t.Errorf("%s is %s", r, v)
		}
	}
	back, err := e.Rollback("")
	if err != nil {
		t.Fatal(err)
	}
	if back.State != RolledBack || len(back.Left) > 0 {
		t.Errorf("rollback: %s, left %v", back.State, back.Left)
	}
	h.same("after rollback", want)
	if _, err := e.Rollback("1"); err == nil {
		t.Error("rolled back twice")
	}
	if _, err := e.Rollback(""); !errors.Is(err, ErrNoSuch) {
		t.Errorf("nothing left to roll back: %v", err)
	}
}

// Whatever the host and plan: apply then rollback restores exactly.
func TestRollbackRestoresAnyHost(t *testing.T) {
	for seed := range uint64(60) {
		r := rand.New(rand.NewPCG(seed, 1))
		h := newFake(t, 1+r.IntN(6))
		h.snap.Host.CPUs = "0-31"
		randomSet := func() knob.Value {
			s := cpuset.Set{}
			for range r.IntN(5) {
				s = s.Union(cpuset.Of(r.IntN(32)))
			}
			return knob.Set(s)
		}
		if r.IntN(2) == 0 {
			h.isolated = cpuset.Of(r.IntN(32))
		}
		p := h.plan()
		for i := range p.Changes {
			if p.Changes[i].Knob != knob.RPSCPUs {
				continue
			}
			v := randomSet()
			if s, _ := set(v); !h.isolated.IsEmpty() { // the host never holds isolated CPUs
				v = knob.Set(s.Minus(h.isolated))
			}
			h.settings[p.Changes[i].Ref()], p.Changes[i].From = v, v
			p.Changes[i].To = randomSet()
		}
		before := h.state()
		e := h.open(h.config(t.TempDir()))
		res, err := e.Apply(ctx, p, short)
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		if res.State == Kept {
			for _, s := range res.Steps {
				if s.Outcome == Failed || s.Outcome == Stale {
					t.Errorf("seed %d: kept with %s %s: %s", seed, s.Ref, s.Outcome, s.Note)
				}
			}
			if _, err := e.RollbackOriginal(); err != nil {
				t.Fatalf("seed %d: %v", seed, err)
			}
		}
		h.same(fmt.Sprintf("seed %d (%s: %s)", seed, res.State, res.Why), before)
		e.Close()
	}
}

// Each single operation fails or the process dies at it; afterwards the host is as before or as
// planned, and the journal tells which. The next run finishes what was left.
func TestEveryFault(t *testing.T) {
	kinds := []struct {
		name  string
		fault fault
	}{
		{"error", fault{err: errInjected}},
		{"death before", fault{before: true}},
		{"death after", fault{after: true}},
	}
	for _, kind := range kinds {
		t.Run(kind.name, func(t *testing.T) {
			for at := 0; ; at++ {
				dir := t.TempDir()
				h := newFake(t, 2).comings()
				old := h.state()
				f := kind.fault
				f.at = at
				h.fault = &f
				var e *Engine
				var err error
				var res *Result
				dead := dies(func() {
					e, err = Open(ctx, h.config(dir))
					if err == nil {
						res, err = e.Apply(ctx, h.plan(), short)
					}
				})
				if e != nil {
					e.Close()
				} else if dead { // the lock's file is closed by the process's end; here by the collector
					releaseLock(t, dir)
				}
				if f.seen <= at {
					if res == nil || res.State != Kept {
						t.Fatalf("without fault: %+v, %v", res, err)
					}
					t.Logf("%d operations: %s", f.seen, strings.Join(f.log, ", "))
					return
				}
				op := fmt.Sprintf("%s at operation %d (%s)", kind.name, at, f.log[at])
				h.fault = &fault{at: -1}
				next := h.open(h.config(dir))
				done, rerr := next.Recover()
				if rerr != nil {
					t.Errorf("%s: recover: %v", op, rerr)
				}
				state := State("")
				for _, x := range next.Transactions() {
					state = x.State
				}
				switch {
				case state == "" || state == RolledBack:
					h.same(op+": journal says "+string(state), old)
				case state == Kept:
					for _, c := range h.plan().Changes { // plan of the new state: nothing left to do
						if !c.From.Equal(c.To) {
							t.Errorf("%s: kept, but %s is %s", op, c.Ref(), c.From)
						}
					}
				default:
					t.Errorf("%s: journal ends as %q", op, state)
				}
				if res != nil && err == nil && !dead && res.State != state && res.State != Planned {
					t.Errorf("%s: the run said %s, the journal %s", op, res.State, state)
				}
				if again, err := next.Recover(); err != nil || len(again) > 0 {
					t.Errorf("%s: recovered twice: %v, %v", op, again, err)
				}
				// The next transaction works.
				if state != Kept {
					if r, err := next.Apply(ctx, h.plan(), short); err != nil || r.State != Kept {
						t.Errorf("%s: the next apply: %+v, %v", op, r, err)
					}
				}
				_ = done
				next.Close()
			}
		})
	}
}

// Death in the middle of a rollback, at every step, is finished by the next run.
func TestDeathDuringRollback(t *testing.T) {
	for _, kind := range []fault{{before: true}, {after: true}, {err: errInjected}} {
		for at := 0; ; at++ {
			dir := t.TempDir()
			h := newFake(t, 2).comings()
			old := h.state()
			e := h.open(h.config(dir))
			if _, err := e.Apply(ctx, h.plan(), short); err != nil {
				t.Fatal(err)
			}
			f := kind
			f.at = at
			h.fault = &f
			dies(func() { e.Rollback("") }) // its error is not the point here: the journal is
			e.Close()
			if f.seen <= at {
				break
			}
			h.fault = &fault{at: -1}
			next := h.open(h.config(dir))
			if _, err := next.Recover(); err != nil {
				t.Error(err)
			}
			if x := next.Transactions(); x[0].State == Kept { // nothing was announced yet
				if _, err := next.Rollback(""); err != nil {
					t.Error(err)
				}
			}
			if x := next.Transactions(); x[0].State != RolledBack {
				t.Errorf("operation %d (%s): ends as %s", at, f.log[at], x[0].State)
			}
			h.same(fmt.Sprintf("operation %d (%s)", at, f.log[at]), old)
			next.Close()
		}
	}
}

func TestRefusals(t *testing.T) {
	tests := []struct {
		name string
		do   func(*fakeHost, *plan.Plan, *Options)
		is   error
		say  string
	}{
		{"other boot", func(_ *fakeHost, p *plan.Plan, _ *Options) { p.Identity.BootID = "other" }, ErrIdentity, "boot ID"},
		{"other namespace", func(_ *fakeHost, p *plan.Plan, _ *Options) { p.Identity.Netns = 43 }, ErrIdentity, "network namespace was 43 and is 42"},
		{"device re-created", func(h *fakeHost, _ *plan.Plan, _ *Options) { h.snap.Devices[0].IfIndex = 9 }, ErrIdentity, "ifindex of eth0"},
		{"other driver", func(h *fakeHost, _ *plan.Plan, _ *Options) { h.snap.Devices[0].Driver = "x" }, ErrIdentity, "driver of eth0"},
		{"other slot", func(h *fakeHost, _ *plan.Plan, _ *Options) { h.snap.Devices[0].Bus = "x" }, ErrIdentity, "bus address"},
		{"channels changed", func(h *fakeHost, _ *plan.Plan, _ *Options) { h.snap.Devices[0].RXQueues = 4 }, ErrIdentity, "queues of eth0"},
		{"table changed", func(h *fakeHost, _ *plan.Plan, _ *Options) { h.snap.Devices[0].Table = 128 }, ErrIdentity, "table size"},
		{"device gone", func(h *fakeHost, _ *plan.Plan, _ *Options) { h.snap.Devices = h.snap.Devices[1:] }, ErrIdentity, "no device eth0"},
		{"identity without the device", func(_ *fakeHost, p *plan.Plan, _ *Options) { p.Identity.Devices = nil }, ErrIdentity, "does not name eth0"},
		{"reorder not granted", func(_ *fakeHost, _ *plan.Plan, o *Options) { o.Allow = []plan.Risk{} }, ErrRisk, "--allow reorder"},
		{"flap not granted", func(_ *fakeHost, p *plan.Plan, _ *Options) { p.Changes[0].Risk = plan.Flap }, ErrRisk, "--allow flap"},
		{"flap without confirmation", func(_ *fakeHost, p *plan.Plan, o *Options) {
			p.Changes[0].Risk, o.Allow = plan.Flap, []plan.Risk{plan.Reorder, plan.Flap}
		}, ErrRisk, "without --confirm-within"},
		{"flap under another name", func(h *fakeHost, p *plan.Plan, _ *Options) {
			h.snap.Devices[0].Driver = "igb"
			p.Identity.Devices[0].Driver = "igb"
			p.Changes[0] = plan.Change{Knob: knob.Channels, Target: "eth0", From: fields("combined", 2), To: fields("combined", 1), Risk: plan.NoRisk}
		}, ErrRisk, "--allow flap"},
		{"pause under another name", func(_ *fakeHost, p *plan.Plan, _ *Options) {
			p.Changes[0] = plan.Change{Knob: knob.Rings, Target: "eth0", From: fields("rx", 2), To: fields("rx", 1), Risk: plan.NoRisk}
		}, ErrRisk, "--allow pause"},
		{"CPU that is not online", func(_ *fakeHost, p *plan.Plan, _ *Options) { p.Changes[0].To = knob.Text("0-9") }, nil, "no cpu 4-9 online"},
		{"over the ceiling", func(_ *fakeHost, p *plan.Plan, _ *Options) { p.Changes[2].To = knob.Int(1 << 30) }, nil, "outside 0…"},
		{"twice the same", func(_ *fakeHost, p *plan.Plan, _ *Options) { p.Changes = append(p.Changes, p.Changes[0]) }, nil, "already changed"},
		{"all stale", func(h *fakeHost, _ *plan.Plan, _ *Options) {
			h.settings[rps(0)], h.settings[rps(1)], h.settings[entries] = knob.Text("2"), knob.Text("2"), knob.Int(8)
		}, ErrStale, "make a new plan"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			h := newFake(t, 2)
			p := h.plan()
			o := short
			test.do(h, p, &o)
			before := h.state()
			e := h.open(h.config(t.TempDir()))
			defer e.Close()
			_, err := e.Apply(ctx, p, o)
			if err == nil || test.is != nil && !errors.Is(err, test.is) || !strings.Contains(err.Error(), test.say) {
				t.Errorf("got %v, want %v with %q", err, test.is, test.say)
			}
			h.same("after refusal", before)
			if n := len(e.Transactions()); n != 0 {
				t.Errorf("%d transactions in the journal", n)
			}
		})
	}
}

func TestSomebodyElse(t *testing.T) {
	t.Run("moved one setting before", func(t *testing.T) {
		h := newFake(t, 3)
		p := h.plan()
		h.settings[rps(1)] = knob.Text("3")
		e := h.open(h.config(t.TempDir()))
		defer e.Close()
		res, err := e.Apply(ctx, p, short)
		if err != nil {
			t.Fatal(err)
		}
		if res.State != Kept || res.Steps[1].Outcome != Stale || res.Steps[0].Outcome != Applied || res.Steps[2].Outcome != Applied {
			t.Errorf("%s: %+v", res.State, res.Steps)
		}
		if h.settings[rps(1)].String() != "3" {
			t.Error("their value was overwritten")
		}
		if res, err = e.Rollback(""); err != nil || res.State != RolledBack {
			t.Errorf("rollback: %+v, %v", res, err)
		}
		if h.settings[rps(1)].String() != "3" {
			t.Error("their value was overwritten by the rollback")
		}
	})
	t.Run("moved one setting after", func(t *testing.T) {
		h := newFake(t, 2)
		e := h.open(h.config(t.TempDir()))
		defer e.Close()
		if _, err := e.Apply(ctx, h.plan(), short); err != nil {
			t.Fatal(err)
		}
		h.settings[rps(0)] = knob.Text("2")
		res, err := e.Rollback("")
		if err != nil {
			t.Fatal(err)
		}
		if res.State != Partial || len(res.Left) != 1 || res.Left[0].Ref != rps(0) || !strings.Contains(res.Left[0].Why, "somebody else") {
			t.Errorf("%s, left %+v", res.State, res.Left)
		}
		if h.settings[rps(0)].String() != "2" || h.settings[rps(1)].String() != "1" {
			t.Errorf("host: %v", texts(h.settings))
		}
		if x := e.Transactions()[0]; x.State != Partial || len(x.Left) != 1 {
			t.Errorf("journal: %+v", x)
		}
	})
	t.Run("removed the device after", func(t *testing.T) {
		h := newFake(t, 2)
		e := h.open(h.config(t.TempDir()))
		defer e.Close()
		if _, err := e.Apply(ctx, h.plan(), short); err != nil {
			t.Fatal(err)
		}
		delete(h.settings, rps(0))
		delete(h.settings, rps(1))
		res, err := e.Rollback("")
		if err != nil || res.State != Partial || len(res.Left) != 2 || !strings.Contains(res.Left[0].Why, "it is gone") {
			t.Errorf("%+v, %v", res, err)
		}
		if h.settings[entries].String() != "0" {
			t.Error("the host's setting was not restored")
		}
	})
	t.Run("created the device again after", func(t *testing.T) {
		h := newFake(t, 2)
		e := h.open(h.config(t.TempDir()))
		defer e.Close()
		if _, err := e.Apply(ctx, h.plan(), short); err != nil {
			t.Fatal(err)
		}
		h.snap.Devices[0].IfIndex = 9 // and its owner gave it the same masks
		res, err := e.Rollback("")
		if err != nil || res.State != Partial || len(res.Left) != 2 || !strings.Contains(res.Left[0].Why, "created again") {
			t.Errorf("%+v, %v", res, err)
		}
		if h.settings[rps(0)].String() != "0-3" || h.settings[entries].String() != "0" {
			t.Errorf("host: %v", texts(h.settings))
		}
	})
	t.Run("removes the device in the middle", func(t *testing.T) {
		h := newFake(t, 2)
		p := h.plan()
		p.Changes[0], p.Changes[2] = p.Changes[2], p.Changes[0] // the host's setting first
		h.onWrite = func(knob.Ref) { delete(h.settings, rps(1)); delete(h.settings, rps(0)); h.onWrite = nil }
		e := h.open(h.config(t.TempDir()))
		defer e.Close()
		res, err := e.Apply(ctx, p, short)
		if err != nil {
			t.Fatal(err)
		}
		if res.Steps[1].Outcome != Stale || res.Steps[2].Outcome != Stale {
			t.Errorf("%+v", res.Steps)
		}
	})
	t.Run("takes it back while we measure", func(t *testing.T) {
		h := newFake(t, 2)
		c := h.config(t.TempDir())
		n := 0
		c.Sample = func(context.Context, time.Duration) (*collector.Sample, error) {
			if n++; n == 5 {
				h.settings[rps(0)] = knob.Text("0")
				h.settings[features] = knob.Fields(map[string]any{"lro": true, "gro": true})
			}
			return sample(0.5, 1000, 0), nil
		}
		e := h.open(c)
		defer e.Close()
		res, err := e.Apply(ctx, h.plan(), short)
		if err != nil || res.State != Kept || res.Steps[0].Outcome != Stale {
			t.Errorf("%+v, %v", res, err)
		}
		if len(res.Unasked) != 1 || res.Unasked[0].Ref != features || res.Unasked[0].PutBack || !strings.Contains(res.Unasked[0].Note, "while we measured") {
			t.Errorf("unasked: %+v", res.Unasked)
		}
	})
}

// Who takes a setting is named with the line that settles it, before anything is written and while it is
// measured.
func TestOwnersAreNamed(t *testing.T) {
	owners := []knob.Owner{
		{Name: "irqbalance", Device: "eth0", Knobs: []knob.Kind{knob.IRQAffinity}, Detail: "pid 7", Settle: []string{`/etc/default/irqbalance: IRQBALANCE_ARGS="--banirq=1"`, "systemctl restart irqbalance"}},
		{Name: "tuned", Knobs: []knob.Kind{knob.NetdevBudget}},
		{Name: "other's irqbalance", Device: "eth1", Knobs: []knob.Kind{knob.IRQAffinity}},
	}
	asked := 0
	engine := func(h *fakeHost) *Engine {
		c := h.config(t.TempDir())
		c.Owners = func(context.Context) ([]knob.Owner, error) { asked++; return owners, nil }
		c.Sample = func(context.Context, time.Duration) (*collector.Sample, error) { return sample(0.5, 1000, 0), nil }
		e := h.open(c)
		t.Cleanup(func() { e.Close() })
		return e
	}
	t.Run("while it is measured", func(t *testing.T) {
		h := newFake(t, 3)
		p := h.vectors()
		h.onWrite = func(r knob.Ref) {
			if r == irq(2) {
				h.settings[irq(1)] = knob.Text("3")
			}
		}
		res, err := engine(h).Apply(ctx, p, short)
		if err != nil || res.State != Kept || res.Steps[1].Outcome != Stale || len(res.Owners) != 1 || res.Owners[0].Name != "irqbalance" {
			t.Errorf("%+v, %v", res, err)
		}
		if h.settings[irq(1)].String() != "3" {
			t.Error("it was taken back")
		}
	})
	t.Run("before", func(t *testing.T) {
		h := newFake(t, 3)
		p := h.vectors()
		for n := range 3 {
			h.settings[irq(n)] = knob.Text("3")
		}
		_, err := engine(h).Apply(ctx, p, short)
		if !errors.Is(err, ErrStale) || !strings.Contains(err.Error(), `irqbalance writes it too (pid 7); to settle it: /etc/default/irqbalance: IRQBALANCE_ARGS="--banirq=1"; systemctl restart irqbalance`) {
			t.Errorf("%v", err)
		}
	})
	t.Run("nobody took anything", func(t *testing.T) {
		h := newFake(t, 3)
		asked = 0
		if res, err := engine(h).Apply(ctx, h.vectors(), short); err != nil || res.State != Kept || len(res.Owners) > 0 || asked > 0 {
			t.Errorf("%+v, %v, asked %d times", res, err, asked)
		}
	})
}

func TestVectorNotInEffect(t *testing.T) {
	h := newFake(t, 1)
	aff, eff := knob.Ref{Knob: knob.IRQAffinity, Target: "eth0 irq-30"}, knob.Ref{Knob: knob.IRQEffective, Target: "eth0 irq-30"}
	h.settings[aff], h.settings[eff] = knob.Text("0"), knob.Text("0")
	p := h.plan()
	p.Changes = []plan.Change{{Knob: aff.Knob, Target: aff.Target, From: knob.Text("0"), To: knob.Text("2"), Risk: plan.Reorder}}
	c := h.config(t.TempDir())
	c.Sample = func(context.Context, time.Duration) (*collector.Sample, error) { return sample(0.5, 1000, 0), nil }
	e := h.open(c)
	defer e.Close()
	res, err := e.Apply(ctx, p, short)
	if err != nil || res.State != Kept || !strings.Contains(res.Steps[0].Note, "still go to cpu 0") {
		t.Errorf("%+v, %v", res, err)
	}
}

func irq(n int) knob.Ref {
	return knob.Ref{Knob: knob.IRQAffinity, Target: knob.On("eth0", "irq-%d", n)}
}

// vectors is a plan that moves three vectors of eth0 from CPU 0 to 1, 2 and 2.
func (h *fakeHost) vectors() *plan.Plan {
	p := h.plan()
	p.Changes = nil
	for n, to := range []string{"1", "2", "2"} {
		h.settings[irq(n)] = knob.Text("0")
		p.Changes = append(p.Changes, plan.Change{Knob: knob.IRQAffinity, Target: irq(n).Target, From: knob.Text("0"), To: knob.Text(to), Risk: plan.Reorder})
	}
	return p
}

// A CPU whose interrupt vectors are used up is no reason to give up while the plan names others.
func TestVectorsUsedUp(t *testing.T) {
	tests := []struct {
		name  string
		full  string // CPUs
		state State
		want  []string
		say   string
	}{
		{"one full", "2", Kept, []string{"1", "1", "1"}, "took cpu 1"},
		{"all full", "1-2", RolledBack, []string{"0", "0", "0"}, "transient, choose another CPU"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			full, err := cpuset.ParseList(test.full)
			if err != nil {
				t.Fatal(err)
			}
			for at := -1; ; at++ { // whole, then with its death after each operation
				h := newFake(t, 1)
				p, dir := h.vectors(), t.TempDir()
				before := h.state()
				h.refuse = func(r knob.Ref, to knob.Value) error {
					if s, _ := set(to); r.Knob == knob.IRQAffinity && s.SubsetOf(full) {
						return syscall.ENOSPC
					}
					return nil
				}
				e := h.open(h.config(dir))
				f := &fault{at: at, after: true}
				if at >= 0 {
					h.fault = f
				}
				var res *Result
				if !dies(func() { res, err = e.Apply(ctx, p, short) }) {
					e.Close()
					var got []string
					for n := range 3 {
						got = append(got, h.settings[irq(n)].String())
					}
					if err != nil || res.State != test.state || !cmp.Equal(test.want, got) || !strings.Contains(res.Why+res.Steps[1].Note, test.say) {
						t.Fatalf("%v: %s (%s), vectors on %v, want %v: %+v", err, res.State, res.Why, got, test.want, res.Steps)
					}
					if at >= 0 {
						return
					}
					continue
				}
				e.Close()
				h.fault = &fault{at: -1}
				next := h.open(h.config(dir))
				if _, err := next.Recover(); err != nil {
					t.Error(err)
				}
				if x := next.Transactions(); len(x) > 0 && x[0].State != Kept {
					h.same(fmt.Sprintf("died at operation %d (%s)", at, f.log[at]), before)
				}
				next.Close()
			}
		})
	}
}

// Every errno of a write: everything is put back, and what is told is what steering.md says it means.
func TestErrnoAnswers(t *testing.T) {
	rule := knob.Fields(map[string]any{"flow": "udp4", "queue": 1, "dst-port": "9000"})
	// One change of each setting that the table of docs/safety.md names.
	changes := map[string]plan.Change{
		"irq-affinity":    {Target: irq(0).Target, From: knob.Text("0"), To: knob.Text("1")},
		"rps-cpus":        {Target: rps(0).Target, From: knob.Text("0"), To: knob.Text("1")},
		"rss-hash-fields": {Target: "eth0 udp4", From: knob.Text("sd"), To: knob.Text("sdfn")},
		"rss-table":       {Target: "eth0 context-1", From: knob.Absent("no such RSS context"), To: knob.List([]int{0, 1})},
		"ntuple-rule":     {Target: "eth0 rule-1", From: knob.Absent("no rule there"), To: rule},
		"coalesce":        {Target: "eth0", From: fields("rx-usecs", 50), To: fields("rx-usecs", 20)},
	}
	doc, err := os.ReadFile("../../docs/safety.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(doc), "| error | setting |")
	seen := map[syscall.Errno]bool{}
	for line := range strings.Lines(table) {
		cells := strings.Split(line, " | ")
		if len(cells) != 4 {
			continue
		}
		name, setting, say := strings.TrimPrefix(cells[0], "| "), cells[1], cells[2]
		if name == "short write" {
			continue
		}
		var no syscall.Errno
		for n := range syscall.Errno(200) {
			if x := unix.ErrnoName(n); x == name || x == "ENOTSUP" && name == "EOPNOTSUPP" {
				no = n
			}
		}
		c, ok := changes[setting]
		if no == 0 || !ok {
			t.Errorf("docs/safety.md: %s: no such error or setting", line)
			continue
		}
		c.Knob, c.Risk = knob.Kind(setting), plan.Reorder
		seen[no] = true
		ref := c.Ref()
		t.Run(name+" of "+ref.String(), func(t *testing.T) {
			h := newFake(t, 1)
			p := h.plan()
			first := p.Changes[len(p.Changes)-1] // the host's: it succeeds and has to be undone
			h.settings[ref] = c.From
			p.Changes = []plan.Change{first, c}
			before := h.state()
			h.refuse = func(r knob.Ref, _ knob.Value) error {
				if r == ref {
					return no
				}
				return nil
			}
			e := h.open(h.config(t.TempDir()))
			defer e.Close()
			res, err := e.Apply(ctx, p, short)
			if err != nil || res.State != RolledBack || res.Steps[0].Outcome != Restored || res.Steps[1].Outcome != Failed {
				t.Fatalf("%+v, %v", res, err)
			}
			if !strings.Contains(res.Why, say) || !strings.Contains(res.Why, no.Error()) {
				t.Errorf("says %q, want %q and the kernel's own words", res.Why, say)
			}
			h.same("after refusal", before)
		})
	}
	for _, no := range []syscall.Errno{syscall.ENOSPC, syscall.EIO, syscall.EBUSY, syscall.EINVAL, syscall.EPERM, syscall.ENODEV} {
		if !seen[no] {
			t.Errorf("docs/safety.md has no answer to %v", no)
		}
	}
}

// A short write leaves neither the old value nor the new: it is ours, and is put back, also when the run
// dies right after it.
func TestShortWrite(t *testing.T) {
	for _, dies := range []bool{false, true} {
		h := newFake(t, 2)
		p := h.plan()
		p.Changes[1].To = knob.Text("2-3")
		before := h.state()
		short1 := false
		h.refuse = func(r knob.Ref, v knob.Value) error {
			if r == rps(1) && !short1 {
				short1 = true
				h.settings[r] = knob.Text("3") // half of the mask's text
				return io.ErrShortWrite
			}
			return nil
		}
		dir := t.TempDir()
		e := h.open(h.config(dir))
		if dies {
			f := &fault{at: -1}
			h.fault = f
			// the read after the short write is where it dies
			h.refuse = func(refuse func(knob.Ref, knob.Value) error) func(knob.Ref, knob.Value) error {
				return func(r knob.Ref, v knob.Value) error {
					err := refuse(r, v)
					if err != nil {
						f.at, f.before = f.seen+1, true
					}
					return err
				}
			}(h.refuse)
		}
		var res *Result
		dead := false
		func() {
			defer func() {
				if v := recover(); v != nil {
					dead = true
				}
			}()
			var err error
			if res, err = e.Apply(ctx, p, short); err != nil {
				t.Error(err)
			}
		}()
		e.Close()
		if dead {
			h.fault = &fault{at: -1}
			next := h.open(h.config(dir))
			all, err := next.Recover()
			if err != nil || len(all) != 1 {
				t.Fatalf("%+v, %v", all, err)
			}
			next.Close()
			if all[0].State != RolledBack { // part of the mask that was announced is ours
				t.Errorf("died: %+v", all[0])
			}
			h.same("died after a short write", before)
			continue
		}
		if dies {
			t.Fatal("it did not die")
		}
		if res.State != RolledBack || !strings.Contains(res.Why, "took only part") {
			t.Errorf("%s: %s", res.State, res.Why)
		}
		h.same("after a short write", before)
	}
}

func TestKernelTrims(t *testing.T) {
	h := newFake(t, 2)
	h.isolated = cpuset.Of(3)
	before := h.state()
	e := h.open(h.config(t.TempDir()))
	defer e.Close()
	res, err := e.Apply(ctx, h.plan(), short)
	if err != nil {
		t.Fatal(err)
	}
	if res.State != Kept || res.Steps[0].Outcome != Adjusted || !strings.Contains(res.Steps[0].Note, "the kernel took 0-2 of 0-3") {
		t.Errorf("%s: %+v", res.State, res.Steps[0])
	}
	if _, err := e.Rollback(""); err != nil {
		t.Fatal(err)
	}
	h.same("after rollback", before)
}

func TestKernelRefuses(t *testing.T) {
	h := newFake(t, 2)
	p := h.plan()
	p.Changes[1].To = knob.Text("3")
	h.isolated = cpuset.Of(3)
	before := h.state()
	e := h.open(h.config(t.TempDir()))
	defer e.Close()
	res, err := e.Apply(ctx, p, short)
	if err != nil {
		t.Fatal(err)
	}
	if res.State != RolledBack || res.Steps[1].Outcome != Failed || !strings.Contains(res.Why, "isolated") {
		t.Errorf("%s: %s: %+v", res.State, res.Why, res.Steps[1])
	}
	h.same("after refusal", before)
}

func TestUnaskedChanges(t *testing.T) {
	lro := knob.Fields(map[string]any{"lro": true, "gro": true})
	other := knob.Ref{Knob: knob.RPSCPUs, Target: "eth1 rx-0"}
	h := newFake(t, 1)
	before := h.state()
	h.onWrite = func(r knob.Ref) {
		if r == rps(0) {
			h.snap.Devices = append(slices.Clone(h.snap.Devices), knob.Device{Name: "veth7", IfIndex: 7, RXQueues: 1}) // a container starts
			h.settings[knob.Ref{Knob: knob.RPSCPUs, Target: "veth7 rx-0"}] = knob.Text("")
			h.settings[features] = lro         // a quirk of the same device
			h.settings[other] = knob.Text("1") // somebody else, elsewhere
			h.onWrite = func(r knob.Ref) {}
		}
	}
	e := h.open(h.config(t.TempDir()))
	defer e.Close()
	res, err := e.Apply(ctx, h.plan(), short)
	if err != nil {
		t.Fatal(err)
	}
	if res.State != Kept || len(res.Unasked) != 2 {
		t.Fatalf("%s, unasked %+v", res.State, res.Unasked)
	}
	for _, u := range res.Unasked {
		if u.PutBack != (u.Ref == features) {
			t.Errorf("%s put back: %v (%s)", u.Ref, u.PutBack, u.Note)
		}
	}
	if !h.settings[features].Equal(before[features]) {
		t.Error("the feature was not put back")
	}
	if h.settings[other].String() != "1" {
		t.Error("somebody else's setting was touched")
	}
}

// Writes of groups and of the default table, which no whole value equals afterwards, and settings that
// follow a write by design.
func TestUnaskedOfGroups(t *testing.T) {
	group := func(kv ...any) knob.Value {
		m := map[string]any{}
		for i := 0; i < len(kv); i += 2 {
			m[kv[i].(string)] = kv[i+1]
		}
		return knob.Fields(m)
	}
	ref := func(k knob.Kind, target string) knob.Ref { return knob.Ref{Knob: k, Target: knob.Target(target)} }
	coalesce, queue, table := ref(knob.Coalesce, "eth0"), ref(knob.QueueCoal, "eth0 queue-0"), ref(knob.RSSTable, "eth0")
	gro, groNAPI, affinity, effective := ref(knob.GROFlushTimeout, "eth0"), ref(knob.GROFlushTimeout, "eth0 napi-5"), ref(knob.IRQAffinity, "eth0 irq-9"), ref(knob.IRQEffective, "eth0 irq-9")
	tests := []struct {
		name     string
		ref      knob.Ref
		from, to knob.Value
		effect   func(h *fakeHost, undoing bool) // of each write
		unasked  []string                        // by the apply
		undone   []string                        // by the rollback
		other    bool                            // the rollback does not bring everything back
	}{
		{name: "part of a group", ref: coalesce, from: group("rx-usecs", 3), to: group("rx-usecs", 50)},
		{name: "whole group as from", ref: coalesce, from: group("rx-usecs", 3, "tx-usecs", 4, "adaptive-tx", false), to: group("rx-usecs", 50)},
		{name: "another attribute flips", ref: features, from: group("gro", true), to: group("gro", false), effect: func(h *fakeHost, undoing bool) {
			if !undoing {
				h.settings[features] = group("gro", false, "lro", true)
			}
		}, unasked: []string{"features of eth0: lro false → lro true"}},
		{name: "another attribute flips in the rollback", ref: features, from: group("gro", true), to: group("gro", false), effect: func(h *fakeHost, undoing bool) {
			if undoing {
				h.settings[features] = group("gro", true, "lro", true)
			}
		}, undone: []string{"features of eth0: lro false → lro true"}},
		{name: "queues follow the device", ref: coalesce, from: group("rx-usecs", 3), to: group("rx-usecs", 50), effect: func(h *fakeHost, undoing bool) {
			h.settings[queue] = h.settings[coalesce]
		}, other: true},
		{name: "NAPIs follow the device", ref: gro, from: knob.Int(0), to: knob.Int(1000), effect: func(h *fakeHost, undoing bool) {
			h.settings[groNAPI] = h.settings[gro]
		}},
		{name: "effective affinity is a fact", ref: affinity, from: knob.Text("0"), to: knob.Text("1"), effect: func(h *fakeHost, undoing bool) {
			h.settings[effective] = h.settings[affinity]
		}},
		{name: "default table", ref: table, from: knob.List([]int{1, 1, 1, 1}), to: knob.DefaultTable()},
		{name: "default table over a table that looks it", ref: table, from: knob.List([]int{1, 1, 1, 1}), to: knob.DefaultTable(), effect: func(h *fakeHost, undoing bool) {
			h.settings[table] = knob.List([]int{1, 1, 1, 1})
		}},
		{name: "adaptive moderation moves its own", ref: coalesce, from: group("tx-usecs", 4), to: group("tx-usecs", 8), effect: func(h *fakeHost, undoing bool) {
			h.settings[coalesce] = h.whole(h.settings[coalesce], group("rx-usecs", 77))
		}, other: true},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			h := newFake(t, 2)
			h.snap.Devices[0].Table = 4
			h.settings[coalesce], h.settings[queue] = group("rx-usecs", 3, "tx-usecs", 4, "adaptive-rx", strings.HasPrefix(test.name, "adaptive"), "adaptive-tx", false), group("rx-usecs", 3)
			h.settings[gro], h.settings[groNAPI], h.settings[affinity], h.settings[effective] = knob.Int(0), knob.Int(0), knob.Text("0"), knob.Text("0")
			h.settings[table] = knob.List([]int{1, 1, 1, 1})
			original := h.state()
			e := h.open(h.config(t.TempDir()))
			defer e.Close()
			p := h.plan()
			p.Changes = []plan.Change{{Knob: test.ref.Knob, Target: test.ref.Target, From: test.from, To: test.to}}
			if err := e.j.append(record{Type: recBegin, TX: "1", Plan: p}); err != nil {
				t.Fatal(err)
			}
			once := func(undoing bool) {
				h.onWrite = func(r knob.Ref) {
					if test.effect != nil && r == test.ref {
						h.onWrite = nil
						test.effect(h, undoing)
					}
				}
			}
			told := func(us []Unasked) (out []string) {
				for _, u := range us {
					if !u.PutBack {
						t.Errorf("%s was not put back: %s", u.Ref, u.Note)
					}
					out = append(out, fmt.Sprintf("%s: %s → %s", u.Ref, u.From, u.To))
				}
				return out
			}
			base, err := h.Snapshot(ctx)
			if err != nil {
				t.Fatal(err)
			}
			res := e.j.txs[0].result()
			once(false)
			if _, why := e.step(ctx, &running{t: e.j.txs[0], res: res, first: base, seen: base}, 0); why != "" || res.Steps[0].Outcome != Applied {
				t.Fatalf("%s: %+v", why, res.Steps[0])
			}
			if diff := cmp.Diff(test.unasked, told(res.Unasked)); diff != "" {
				t.Errorf("unasked (-want +got):\n%s", diff)
			}
			e.still(ctx, res)
			if res.Steps[0].Outcome != Applied {
				t.Errorf("after a while: %+v", res.Steps[0])
			}
			once(true)
			back, err := e.Rollback("")
			if err != nil || back.State != RolledBack {
				t.Errorf("%+v, %v", back, err)
			}
			if diff := cmp.Diff(test.undone, told(back.Unasked)); diff != "" {
				t.Errorf("unasked in the rollback (-want +got):\n%s", diff)
			}
			if !test.other {
				h.same("rolled back", original)
			}
		})
	}
}

// sample is one window: hottest CPU's receive softirq, packets delivered and dropped.
func sample(hot float64, packets, dropped uint64) *collector.Sample {
	return load{napi: hot, cpu: 0, packets: packets, dropped: dropped}.window()
}

// load is what happens in one window of one second on a host of four CPUs: eth0 receives packets, polled
// on CPU 0, and has dropped more; RPS takes the rest of the work to the CPUs of rps.
type load struct {
	napi             float64 // part of CPU cpu that polls of eth0 take
	cpu              int
	packets, dropped uint64
	rps              map[int]float64 // part of each CPU that eth0's packets in its backlog take

	storm       uint64          // loopback packets
	stormOn     map[int]float64 // part of each CPU they take in its backlog
	hog         map[int]float64 // part of each CPU a process takes
	level0      bool
	otherNetns  bool // the storm is in another network namespace
	stormPolled bool // the storm comes by the NAPI of eth1
}

func (l load) window() *collector.Sample {
	s := &collector.Sample{Level: 1, Interval: time.Second, CPUs: make([]collector.CPU, 4),
		Devices: []collector.Device{{Name: "lo", IfIndex: 1}, {Name: "eth0", IfIndex: 2, RXPackets: l.packets + l.dropped, RXDropped: l.dropped}, {Name: "eth1", IfIndex: 3}}}
	if l.level0 {
		s.Level = 0
	}
	ns := func(part float64) uint64 { return uint64(part * 1e9) }
	poll := func(device string, index, cpu int, packets uint64, part float64) {
		if s.Level > 0 {
			s.NAPIs = append(s.NAPIs, collector.NAPI{Device: device, IfIndex: index, CPU: cpu, Packets: packets, Time: ns(part * 0.8)})
			s.CPUs[cpu].Tail += ns(part) - ns(part*0.8)
			s.CPUs[cpu].SoftirqTime[collector.NetRX] += ns(part)
		}
		s.CPUs[cpu].Softirq += ns(part)
	}
	for i := range s.CPUs {
		c := &s.CPUs[i]
		c.CPU = i
		ours, theirs := uint64(0), uint64(0)
		if len(l.rps) == 0 && i == l.cpu {
			ours = l.packets
		} else if l.rps[i] > 0 {
			ours, c.Dropped = l.packets/uint64(len(l.rps)), l.dropped/uint64(len(l.rps))
		}
		if l.stormOn[i] > 0 {
			theirs = l.storm / uint64(len(l.stormOn))
		}
		c.Processed = ours + theirs
		if i == l.cpu {
			poll("eth0", 2, i, l.packets+l.dropped, l.napi)
			if len(l.rps) == 0 {
				c.Dropped = l.dropped
			}
		}
		if l.stormPolled {
			poll("eth1", 3, i, theirs, l.stormOn[i])
			theirs = 0
		}
		waiting := l.rps[i]
		if theirs > 0 {
			waiting += l.stormOn[i]
		}
		if len(l.rps) > 0 || theirs > 0 {
			n := theirs
			if l.rps[i] > 0 {
				n += ours
			}
			poll(collector.Backlog, 0, i, n, waiting)
		}
		busy := waiting + l.hog[i]
		if i == l.cpu {
			busy += l.napi
		}
		if l.stormPolled {
			busy += l.stormOn[i]
		}
		c.Idle = ns(max(0, 1-busy))
	}
	if len(l.stormOn) > 0 && !l.otherNetns && !l.stormPolled {
		s.Devices[0].RXPackets = l.storm
	}
	return s
}

// some is five windows of a load with the scatter of a quiet host.
func (l load) some() (out []*collector.Sample) {
	for i := range 5 {
		x, f := l, 1+float64(i%3)*0.004
		scale := func(m map[int]float64) map[int]float64 {
			c := map[int]float64{}
			for k, v := range m {
				c[k] = v * f
			}
			return c
		}
		x.napi, x.rps, x.stormOn, x.hog = l.napi*f, scale(l.rps), scale(l.stormOn), scale(l.hog)
		x.packets, x.dropped, x.storm = uint64(float64(l.packets)*f), uint64(float64(l.dropped)*f), uint64(float64(l.storm)*f)
		out = append(out, x.window())
	}
	return out
}

// One change, seen beside what else may happen on a host: only what it did itself counts.
func TestJudgeTellsOthersApart(t *testing.T) {
	on := cpuset.Of
	one := load{napi: 0.2, packets: 50000, rps: map[int]float64{1: 0.7}}
	two := load{napi: 0.2, packets: 50000, rps: map[int]float64{1: 0.35, 2: 0.35}}
	with := func(l load, edit func(*load)) load { edit(&l); return l }
	storm := func(cpus ...int) func(*load) {
		return func(l *load) {
			l.storm, l.stormOn = 1000000, map[int]float64{}
			for _, c := range cpus {
				l.stormOn[c] = 0.9 / float64(len(cpus))
			}
		}
	}
	hog := func(cpus ...int) func(*load) {
		return func(l *load) {
			l.hog = map[int]float64{}
			for _, c := range cpus {
				l.hog[c] = 0.6
			}
		}
	}
	both := func(f ...func(*load)) func(*load) {
		return func(l *load) {
			for _, f := range f {
				f(l)
			}
		}
	}
	loses := func(l *load) { l.packets, l.dropped = 35000, 15000 }
	suffers := func(l *load) { l.packets, l.dropped = 48000, 2000 }
	elsewhere := func(l *load) { l.otherNetns = true }
	polled := func(l *load) { l.stormPolled = true }
	level0 := func(l *load) { l.level0 = true }
	tests := []struct {
		name          string
		before, after load
		sc            Scope // Before and After; Devices are eth0
		want          Word
		say           string
	}{
		{"nothing else, better", one, two, Scope{Before: on(1), After: on(1, 2)}, Better, "of eth0 on the hottest CPU 70 → 35 %"},
		{"nothing else, worse", two, one, Scope{Before: on(1, 2), After: on(1)}, Worse, "hottest"},
		{"nothing else, loses packets", one, with(two, loses), Scope{Before: on(1), After: on(1, 2)}, Worse, "-30.0 %"},
		{"loopback storm starts elsewhere, better", one, with(two, storm(3)), Scope{Before: on(1), After: on(1, 2)}, Better, "everything else on this host took 0.00 → 0.9"},
		{"loopback storm starts on the same CPUs, no loss", one, with(two, storm(1, 2)), Scope{Before: on(1), After: on(1, 2)}, Same, "everything else"},
		{"loopback storm starts, no change of ours", one, with(one, storm(1)), Scope{Before: on(1), After: on(1)}, Same, "everything else"},
		{"loopback storm starts, RPS off", load{napi: 0.5, packets: 50000}, with(load{napi: 0.5, packets: 50000}, storm(0)), Scope{}, Same, "everything else"},
		{"loopback storm ends, no change of ours", with(one, storm(1)), one, Scope{Before: on(1), After: on(1)}, Same, "everything else"},
		{"loopback storm ends, better", with(one, storm(3)), two, Scope{Before: on(1), After: on(1, 2)}, NotJudged, "explains as much"},
		{"loopback storm all along, better", with(one, storm(3)), with(two, storm(3)), Scope{Before: on(1), After: on(1, 2)}, Better, "70 → 35 %"},
		{"loopback storm all along on our CPU, worse", with(two, storm(3)), with(with(one, loses), storm(3)), Scope{Before: on(1, 2), After: on(1)}, Worse, "delivered"},
		{"storm in another namespace starts", one, with(one, both(storm(3), elsewhere)), Scope{Before: on(1), After: on(1)}, Same, "everything else"},
		{"storm on another device starts", one, with(one, both(storm(1), polled)), Scope{Before: on(1), After: on(1)}, Same, "everything else"},
		{"storm starts and takes packets from us", one, with(two, both(storm(1, 2), suffers)), Scope{Before: on(1), After: on(1, 2)}, NotJudged, "explains as much"},
		{"worse while a storm ends", with(two, storm(3)), with(one, loses), Scope{Before: on(1, 2), After: on(1)}, Worse, "delivered"},
		{"hog starts elsewhere", one, with(one, hog(3)), Scope{Before: on(1), After: on(1)}, Same, "everything else on this host took 0.00 → 0.60 CPUs"},
		{"hog starts and takes packets from us", one, with(two, both(hog(1, 2), suffers)), Scope{Before: on(1), After: on(1, 2)}, NotJudged, "explains as much"},
		{"hog all along, worse", with(two, hog(3)), with(with(one, loses), hog(3)), Scope{Before: on(1, 2), After: on(1)}, Worse, "delivered"},
		{"hog takes what we leave it, worse", with(load{napi: 0.6, packets: 50000}, func(l *load) { l.hog = map[int]float64{0: 0.4} }),
			with(load{napi: 0.3, packets: 25000, dropped: 25000}, func(l *load) { l.hog = map[int]float64{0: 0.7} }), Scope{}, Worse, "delivered"},
		{"kernel counters only, better", with(load{napi: 0.9, packets: 50000}, level0), with(load{napi: 0.4, packets: 50000}, level0), Scope{}, Better, "90 → 40 %"},
		{"kernel counters only, storm starts", with(load{napi: 0.5, packets: 50000}, level0), with(load{napi: 0.5, packets: 50000}, both(level0, storm(3))), Scope{}, Same, "everything else"},
		{"interrupts sooner, room left", load{napi: 0.07, packets: 2500}, load{napi: 0.20, packets: 2500}, Scope{Sooner: true}, Same, "7 → 20 %"},
		{"interrupts sooner, little room left", load{napi: 0.40, packets: 2500}, load{napi: 0.55, packets: 2500}, Scope{Sooner: true}, Worse, "40 → 55 %"},
		{"hotter for nothing", load{napi: 0.07, packets: 2500}, load{napi: 0.20, packets: 2500}, Scope{}, Worse, "7 → 20 %"},
		{"only others have traffic", load{}, with(load{}, storm(3)), Scope{Before: on(1), After: on(1, 2)}, NotJudged, "0 packets/s of eth0 before, 0 after"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			test.sc.Devices = []string{"eth0"}
			v := Judge(test.sc, test.before.some(), test.after.some())
			if v.Word != test.want || !strings.Contains(v.Why, test.say) {
				t.Errorf("%s: %s, want %s with %q; %+v", v.Word, v.Why, test.want, test.say, v.Measures)
			}
		})
	}
}

// What a change of the host alone concerns is the whole host.
func TestScope(t *testing.T) {
	h := newFake(t, 2)
	p := h.plan()
	before, err := h.Snapshot(ctx)
	if err != nil {
		t.Fatal(err)
	}
	h.settings[rps(0)], h.settings[rps(1)] = knob.Text("2"), knob.Text("3")
	after, err := h.Snapshot(ctx)
	if err != nil {
		t.Fatal(err)
	}
	h.settings[entries], h.settings[knob.Ref{Knob: knob.RPSFlowCnt, Target: rps(0).Target}] = knob.Int(64), knob.Int(64)
	rfs, err := h.Snapshot(ctx)
	if err != nil {
		t.Fatal(err)
	}
	host := &plan.Plan{Changes: p.Changes[2:]}
	for _, test := range []struct {
		name  string
		p     *plan.Plan
		after *knob.Snapshot
		want  string
	}{
		{"masks", p, after, "[eth0] 0-1 2-3"},
		{"with RFS", p, rfs, "[eth0] 0-1 0-3"},
		{"host", host, after, "[]  "},
	} {
		sc := scopeOf(test.p.Changes, before, test.after)
		if got := fmt.Sprint(sc.Devices, " ", sc.Before, " ", sc.After); got != test.want {
			t.Errorf("%s: %s, want %s", test.name, got, test.want)
		}
	}
	wait := func(name string, from, to int) []plan.Change {
		return []plan.Change{{Knob: knob.Coalesce, Target: "eth0", From: knob.Fields(map[string]any{name: from}), To: knob.Fields(map[string]any{name: to})}}
	}
	for _, test := range []struct {
		changes []plan.Change
		want    bool
	}{
		{wait("rx-usecs", 1000, 21), true},
		{wait("rx-usecs", 21, 1000), false},
		{wait("rx-frames", 64, 8), false},
		{p.Changes, false},
	} {
		if got := scopeOf(test.changes, before, before).Sooner; got != test.want {
			t.Errorf("%v: sooner %v, want %v", test.changes, got, test.want)
		}
	}
}

func TestJudge(t *testing.T) {
	series := func(hot float64, packets, dropped uint64) (out []*collector.Sample) {
		for i := range 5 {
			out = append(out, sample(hot+float64(i%3)*0.01, packets+uint64(i%3)*packets/200, dropped+uint64(i%2)*dropped/20))
		}
		return out
	}
	tests := []struct {
		name          string
		before, after []*collector.Sample
		want          Word
		say           string
	}{
		{"cooler", series(0.9, 50000, 0), series(0.5, 50000, 0), Better, "hottest CPU 91 → 51 %"},
		{"more delivered, fewer dropped", series(0.98, 50000, 17000), series(0.7, 67000, 0), Better, "delivered"},
		{"fewer dropped", series(0.98, 50000, 1000), series(0.97, 50400, 100), Better, "dropped"},
		{"hotter but more delivered", series(0.5, 50000, 0), series(0.9, 70000, 0), Better, "delivered"},
		{"fewer offered", series(0.9, 50000, 0), series(0.5, 45000, 0), Same, "the load changed"},
		{"fewer delivered and dropped", series(0.9, 50000, 0), series(0.5, 45000, 500), Worse, "delivered"},
		{"fewer delivered", series(0.9, 50000, 0), series(0.5, 40000, 0), Worse, "-20.0 %"},
		{"more dropped", series(0.9, 50000, 0), series(0.5, 50000, 2000), Worse, "dropped"},
		{"hotter for nothing", series(0.5, 50000, 0), series(0.7, 50000, 0), Worse, "hottest"},
		{"the same", series(0.9, 50000, 0), series(0.9, 50000, 0), Same, "scatter"},
		{"within the scatter", []*collector.Sample{sample(0.5, 50000, 0), sample(0.9, 50000, 0), sample(0.7, 50000, 0)}, []*collector.Sample{sample(0.45, 50000, 0), sample(0.8, 50000, 0), sample(0.6, 50000, 0)}, Same, ""},
		{"significant but small", series(0.9, 50000, 0), series(0.88, 50300, 0), Same, ""},
		{"no traffic", series(0.01, 10, 0), series(0.01, 20, 0), NotJudged, "too little traffic"},
		{"too few windows", series(0.9, 50000, 0)[:2], series(0.5, 50000, 0), NotJudged, "2 windows"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			v := Judge(Scope{}, test.before, test.after)
			if v.Word != test.want || !strings.Contains(v.Why, test.say) {
				t.Errorf("%s: %s, want %s with %q", v.Word, v.Why, test.want, test.say)
			}
		})
	}
}

// What a packet waits, and the order of segments, count beside load, drops and throughput.
func TestJudgeWaits(t *testing.T) {
	// waits is five windows in which 1 of 50 packets waits 2^slow ns, the others 2^10, with some segments out of order.
	waits := func(l load, stage collector.StageName, slow int, disorder uint64) []*collector.Sample {
		out := l.some()
		for i, s := range out {
			x := collector.Stage{Stage: stage, Device: "eth0"}
			x.Hist[10], x.Hist[slow] = 980+uint64(i), 20
			other := collector.Stage{Stage: stage, Device: "eth1"} // not in scope
			other.Hist[30] = 1000
			s.Stages = []collector.Stage{x, other}
			s.Protocols = map[string]uint64{"TcpInSegs": 10000, "TcpExtTCPOFOQueue": disorder + uint64(i)}
		}
		return out
	}
	busy := load{napi: 0.3, packets: 50000}
	hot := load{napi: 0.6, packets: 50000}
	for _, test := range []struct {
		name          string
		before, after []*collector.Sample
		want          Word
		say           string
	}{
		{"longer", waits(busy, collector.Total, 17, 0), waits(busy, collector.Total, 20, 0), Worse, "waited at most"},
		{"shorter", waits(busy, collector.Total, 20, 0), waits(busy, collector.Total, 17, 0), Better, "waited at most"},
		{"shorter is worth CPU time", waits(busy, collector.Total, 20, 0), waits(hot, collector.Total, 17, 0), Better, "waited at most"},
		{"as long for more CPU time", waits(busy, collector.Total, 17, 0), waits(hot, collector.Total, 17, 0), Worse, "hottest CPU"},
		{"longer, where nobody reads", waits(busy, collector.GROToStackRPS, 17, 0), waits(busy, collector.GROToStackRPS, 20, 0), Worse, "waited at most"},
		{"longer by nanoseconds", waits(busy, collector.Total, 11, 0), waits(busy, collector.Total, 13, 0), Same, "within the scatter"},
		{"measured on one side only", waits(busy, collector.Total, 17, 0), waits(busy, collector.RingWait, 20, 0), Same, "within the scatter"},
		{"out of order", waits(busy, collector.Total, 17, 10), waits(busy, collector.Total, 17, 400), Worse, "out of order 0.12 → 4.02 %"},
		{"out of order, a little", waits(busy, collector.Total, 17, 10), waits(busy, collector.Total, 17, 60), Same, "within the scatter"},
	} {
		t.Run(test.name, func(t *testing.T) {
			v := Judge(Scope{Devices: []string{"eth0"}}, test.before, test.after)
			if v.Word != test.want || !strings.Contains(v.Why, test.say) {
				t.Errorf("%s: %s, want %s with %q; %+v", v.Word, v.Why, test.want, test.say, v.Measures)
			}
		})
	}
}

// Each step is judged against what was measured just before it: a harmful one is found, and named, also
// where the whole would look no worse.
func TestEachStepIsJudged(t *testing.T) {
	h := newFake(t, 2)
	old := h.state()
	p := h.plan()
	p.Changes = append(p.Changes, plan.Change{Knob: knob.NetdevBudget, Target: knob.Host, From: knob.Int(300), To: knob.Int(600), Risk: plan.NoRisk})
	budget := p.Changes[3].Ref()
	h.settings[budget] = knob.Int(300)
	old[budget] = knob.Int(300)
	cool := 0.9
	// RPS helps a lot, RFS does harm that the whole hides, the budget nothing.
	h.onWrite = func(r knob.Ref) {
		switch r.Knob {
		case knob.RPSCPUs:
			cool = 0.3
		case knob.RPSSockFlowEntries:
			cool = 0.6
		}
	}
	c := h.config(t.TempDir())
	c.Sample = func(context.Context, time.Duration) (*collector.Sample, error) { return sample(cool, 50000, 0), nil }
	e := h.open(c)
	defer e.Close()
	res, err := e.Apply(ctx, p, short)
	if err != nil {
		t.Fatal(err)
	}
	var words []string
	for _, j := range res.Judged {
		words = append(words, fmt.Sprintf("%s %s %d+%d %s", j.Knob, j.Device, j.First, j.Count, j.Verdict.Word))
	}
	if diff := cmp.Diff([]string{"rps-cpus eth0 0+2 better", "rps-sock-flow-entries  2+1 worse"}, words); diff != "" {
		t.Errorf("steps (-want +got):\n%s", diff)
	}
	if res.State != RolledBack || !strings.HasPrefix(res.Why, "worse after rps-sock-flow-entries of the host: receive softirq") {
		t.Errorf("%s: %s", res.State, res.Why)
	}
	h.same("after a harmful step", old)
}

// A caller that measures all the time writes now and is judged later.
func TestBeginAndKeep(t *testing.T) {
	was := load{napi: 0.9, packets: 50000}.some()
	for _, test := range []struct {
		name  string
		after load
		want  State
	}{
		{"better", load{napi: 0.4, packets: 50000}, Kept},
		{"worse", load{napi: 0.9, packets: 30000}, RolledBack},
	} {
		t.Run(test.name, func(t *testing.T) {
			h := newFake(t, 2)
			old := h.state()
			dir := t.TempDir()
			e := h.open(h.config(dir))
			defer e.Close()
			if _, err := e.Keep(ctx, was, was); !errors.Is(err, ErrNoSuch) {
				t.Errorf("keep nothing: %v", err)
			}
			res, err := e.Begin(ctx, h.plan(), Options{Near: true})
			if err != nil || res.State != Applying || res.Steps[0].Outcome != Applied {
				t.Fatalf("%+v, %v", res, err)
			}
			if _, err := e.Begin(ctx, h.plan(), Options{}); !errors.Is(err, ErrUnfinished) {
				t.Errorf("a second one meanwhile: %v", err)
			}
			if txs, _, err := History(dir); err != nil || txs[0].State != Applying {
				t.Errorf("journal between: %+v, %v", txs, err)
			}
			res, err = e.Keep(ctx, was, test.after.some())
			if err != nil || res.State != test.want || res.Verdict == nil {
				t.Fatalf("%+v, %v", res, err)
			}
			if test.want == RolledBack {
				h.same("worse", old)
			}
			if e.Transactions()[0].State != test.want {
				t.Errorf("journal: %s", e.Transactions()[0].State)
			}
		})
	}
	one := func(h *fakeHost) *plan.Plan { // step
		p := h.plan()
		p.Changes = p.Changes[:2]
		return p
	}
	// What else changes with a write in a hurry is put back by whichever comes first.
	for name, then := range map[string]func(*Engine) (*Result, error){
		"beside":    func(e *Engine) (*Result, error) { return e.Beside(ctx) },
		"kept":      func(e *Engine) (*Result, error) { return e.Keep(ctx, nil, nil) },
		"dropped":   func(e *Engine) (*Result, error) { return e.Drop("enough") },
		"roll back": func(e *Engine) (*Result, error) { return e.Rollback("") },
	} {
		t.Run("unasked, "+name, func(t *testing.T) {
			h := newFake(t, 2)
			old := h.state()
			e := h.open(h.config(t.TempDir()))
			defer e.Close()
			h.onWrite = func(ref knob.Ref) {
				if ref != features {
					h.settings[features] = knob.Fields(map[string]any{"lro": true, "gro": true})
				}
			}
			res, err := e.Begin(ctx, one(h), Options{Near: true})
			if err != nil || res.State != Applying || len(res.Unasked) != 0 {
				t.Fatalf("%+v, %v", res, err)
			}
			res, err = then(e)
			i := slices.IndexFunc(res.Unasked, func(u Unasked) bool { return u.Ref == features && u.PutBack })
			if err != nil || i < 0 || fmt.Sprint(h.settings[features]) != fmt.Sprint(knob.Fields(map[string]any{"lro": false, "gro": true})) {
				t.Errorf("%+v, %v: %v", res, err, h.settings[features])
			}
			if name == "dropped" || name == "roll back" {
				h.same(name, old)
			}
		})
	}
	t.Run("unasked, cannot be put back", func(t *testing.T) {
		h := newFake(t, 2)
		e := h.open(h.config(t.TempDir()))
		defer e.Close()
		h.onWrite = func(ref knob.Ref) {
			h.settings[features] = knob.Fields(map[string]any{"lro": true, "gro": true})
		}
		if _, err := e.Begin(ctx, one(h), Options{Near: true}); err != nil {
			t.Fatal(err)
		}
		res, err := e.Keep(ctx, nil, nil)
		if err != nil || res.State != Partial || h.settings[rps(0)] != knob.Text("0") {
			t.Errorf("%+v, %v", res, err)
		}
		if _, err := e.Keep(ctx, nil, nil); !errors.Is(err, ErrNoSuch) {
			t.Errorf("once more: %v", err)
		}
	})
	seen := func(t *testing.T) (*fakeHost, *Engine, *knob.Snapshot) { // a host, and a look of a moment ago
		t.Helper()
		h := newFake(t, 2)
		e := h.open(h.config(t.TempDir()))
		t.Cleanup(func() { e.Close() })
		s, err := h.Snapshot(ctx, "eth0")
		if err != nil {
			t.Fatal(err)
		}
		s.Taken = e.c.Now()
		return h, e, s
	}
	// Somebody who changed something since a look that is too old, or of another boot, is left alone.
	for name, base := range map[string]func(*knob.Snapshot){
		"old":           func(s *knob.Snapshot) { s.Taken = s.Taken.Add(-2 * freshFor) },
		"of the future": func(s *knob.Snapshot) { s.Taken = s.Taken.Add(time.Hour) },
		"another boot":  func(s *knob.Snapshot) { s.Host.BootID = "1-boot" },
	} {
		t.Run("a look that is "+name, func(t *testing.T) {
			h, e, s := seen(t)
			base(s)
			theirs := knob.Fields(map[string]any{"lro": true, "gro": false})
			h.settings[features] = theirs
			if _, err := e.Begin(ctx, one(h), Options{Near: true, Base: s}); err != nil {
				t.Fatal(err)
			}
			res, err := e.Keep(ctx, nil, nil)
			if err != nil || res.State != Kept || len(res.Unasked) != 0 || !h.settings[features].Equal(theirs) {
				t.Errorf("%+v, %v: %v", res, err, h.settings[features])
			}
		})
	}
	t.Run("a look of a moment ago is the one look before", func(t *testing.T) {
		h, e, s := seen(t)
		looks := h.looks
		if _, err := e.Begin(ctx, one(h), Options{Near: true, Base: s}); err != nil || h.looks != looks {
			t.Errorf("%d looks before it was written and read back, want none: %v", h.looks-looks, err)
		}
	})
	t.Run("dies between", func(t *testing.T) {
		h := newFake(t, 2)
		old := h.state()
		dir := t.TempDir()
		e := h.open(h.config(dir))
		if _, err := e.Begin(ctx, h.plan(), Options{}); err != nil {
			t.Fatal(err)
		}
		e.Close()
		next := h.open(h.config(dir))
		defer next.Close()
		if res, err := next.Recover(); err != nil || len(res) != 1 || res[0].State != RolledBack {
			t.Errorf("%+v, %v", res, err)
		}
		h.same("recovered", old)
	})
	t.Run("rolled back meanwhile", func(t *testing.T) {
		h := newFake(t, 2)
		e := h.open(h.config(t.TempDir()))
		defer e.Close()
		if _, err := e.Begin(ctx, h.plan(), Options{}); err != nil {
			t.Fatal(err)
		}
		if res, err := e.Rollback(""); err != nil || res.State != RolledBack {
			t.Fatalf("%+v, %v", res, err)
		}
		if _, err := e.Keep(ctx, was, was); !errors.Is(err, ErrNoSuch) {
			t.Errorf("keep after a rollback: %v", err)
		}
	})
}

// judged is a sampler that gives one series before and another after the first write.
func judged(h *fakeHost, before, after func() (*collector.Sample, error)) Sampler {
	written := false
	h.onWrite = func(knob.Ref) { written = true }
	return func(context.Context, time.Duration) (*collector.Sample, error) {
		if written {
			return after()
		}
		return before()
	}
}

func TestVerdictDecides(t *testing.T) {
	good := func() (*collector.Sample, error) { return sample(0.9, 50000, 0), nil }
	tests := []struct {
		name  string
		after func() (*collector.Sample, error)
		want  State
		why   string
	}{
		{"better is kept", func() (*collector.Sample, error) { return sample(0.4, 50000, 0), nil }, Kept, "better"},
		{"no difference is kept", good, Kept, "no difference"},
		{"worse is undone", func() (*collector.Sample, error) { return sample(0.9, 30000, 0), nil }, RolledBack, "worse after rps-cpus of eth0: packets delivered"},
		{"not measurable is undone", func() (*collector.Sample, error) { return nil, errInjected }, RolledBack, "could not be judged"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			h := newFake(t, 2)
			before := h.state()
			c := h.config(t.TempDir())
			c.Sample = judged(h, good, test.after)
			e := h.open(c)
			defer e.Close()
			res, err := e.Apply(ctx, h.plan(), short)
			if err != nil {
				t.Fatal(err)
			}
			if res.State != test.want || !strings.Contains(res.Why, test.why) {
				t.Errorf("%s: %s, want %s with %q", res.State, res.Why, test.want, test.why)
			}
			if test.want == RolledBack {
				h.same("after the verdict", before)
			}
		})
	}
}

func TestInterruptedIsUndone(t *testing.T) {
	h := newFake(t, 3)
	before := h.state()
	cancelled, cancel := context.WithCancel(ctx)
	defer cancel()
	h.onWrite = func(r knob.Ref) { cancel() }
	e := h.open(h.config(t.TempDir()))
	defer e.Close()
	res, err := e.Apply(cancelled, h.plan(), short)
	if err != nil || res.State != RolledBack || res.Why != "interrupted" {
		t.Errorf("%+v, %v", res, err)
	}
	h.same("after interruption", before)
}

func TestConfirmation(t *testing.T) {
	now := time.Hour
	setup := func(t *testing.T) (*fakeHost, Config, map[knob.Ref]knob.Value) {
		h := newFake(t, 2)
		before := h.state()
		c := h.config(t.TempDir())
		now = time.Hour
		c.Uptime = func() time.Duration { return now }
		e := h.open(c)
		defer e.Close()
		o := short
		o.ConfirmWithin = time.Minute
		res, err := e.Apply(ctx, h.plan(), o)
		if err != nil || res.State != Unconfirmed || res.Confirm != time.Minute {
			t.Fatalf("%+v, %v", res, err)
		}
		return h, c, before
	}
	t.Run("confirmed in time", func(t *testing.T) {
		h, c, _ := setup(t)
		now += 59 * time.Second
		e := h.open(c)
		defer e.Close()
		if done, err := e.Recover(); err != nil || len(done) != 0 {
			t.Errorf("recovered too early: %v, %v", done, err)
		}
		if _, err := e.Apply(ctx, h.plan(), short); !errors.Is(err, ErrUnfinished) {
			t.Errorf("a second transaction beside an unconfirmed one: %v", err)
		}
		if _, err := e.Confirm(""); err != nil {
			t.Fatal(err)
		}
		if x := e.Transactions()[0]; x.State != Kept {
			t.Errorf("it is %s", x.State)
		}
		if _, err := e.Confirm("1"); err == nil {
			t.Error("confirmed twice")
		}
	})
	t.Run("overdue at the next start", func(t *testing.T) {
		h, c, before := setup(t)
		now += time.Minute
		e := h.open(c)
		defer e.Close()
		if _, err := e.Confirm(""); err == nil || !strings.Contains(err.Error(), "ran out") {
			t.Errorf("confirmed too late: %v", err)
		}
		done, err := e.Recover()
		if err != nil || len(done) != 1 || done[0].State != RolledBack || done[0].Why != "not confirmed in time" {
			t.Errorf("%+v, %v", done, err)
		}
		h.same("overdue", before)
	})
	t.Run("the watcher undoes it", func(t *testing.T) {
		h, c, before := setup(t)
		now += time.Minute
		res, err := Watch(ctx, c, "1")
		if err != nil || res == nil || res.State != RolledBack {
			t.Errorf("%+v, %v", res, err)
		}
		h.same("overdue", before)
	})
	t.Run("the watcher leaves what is confirmed", func(t *testing.T) {
		h, c, _ := setup(t)
		e := h.open(c)
		if _, err := e.Confirm(""); err != nil {
			t.Fatal(err)
		}
		e.Close()
		now += time.Minute
		if res, err := Watch(ctx, c, "1"); err != nil || res != nil {
			t.Errorf("%+v, %v", res, err)
		}
		if _, err := Watch(ctx, c, "7"); !errors.Is(err, ErrNoSuch) {
			t.Errorf("watching nothing: %v", err)
		}
		_ = h
	})
	t.Run("asked back before it is confirmed", func(t *testing.T) {
		h, c, before := setup(t)
		e := h.open(c)
		defer e.Close()
		if res, err := e.Rollback(""); err != nil || res.State != RolledBack {
			t.Errorf("%+v, %v", res, err)
		}
		h.same("asked back", before)
	})
}

func TestSeveralTransactions(t *testing.T) {
	h := newFake(t, 2)
	original := h.state()
	dir := t.TempDir()
	e := h.open(h.config(dir))
	defer e.Close()
	if _, err := e.Apply(ctx, h.plan(), short); err != nil {
		t.Fatal(err)
	}
	second := h.plan()
	for i := range second.Changes {
		if second.Changes[i].Knob == knob.RPSCPUs {
			second.Changes[i].To = knob.Text("1-2")
		}
	}
	if res, err := e.Apply(ctx, second, short); err != nil || res.ID != "2" || res.Steps[2].Outcome != Already {
		t.Fatalf("%+v, %v", res, err)
	}
	if res, err := e.Rollback("1"); err != nil || res.State != Partial || len(res.Left) != 2 {
		t.Errorf("the first below the second: %+v, %v", res, err)
	}
	all, err := e.RollbackOriginal()
	if err != nil || len(all) != 2 || all[1].State != RolledBack {
		t.Errorf("%+v, %v", all, err)
	}
	h.same("original", original)
	txs, boot, err := History(dir)
	if err != nil || boot != "0-boot" || len(txs) != 2 || txs[0].State != RolledBack {
		t.Errorf("history: %+v, %s, %v", txs, boot, err)
	}
}

// A journal must not lie where the link it is about decides whether it can be read, or outlive the boot.
// The file system of this test's folder stands in for such a place.
func TestJournalOnNetworkStorage(t *testing.T) {
	dir := t.TempDir()
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		t.Fatal(err)
	}
	was, had := remote[int64(uint32(st.Type))]
	remote[int64(uint32(st.Type))] = "nfs"
	defer func() {
		delete(remote, int64(uint32(st.Type)))
		if had {
			remote[int64(uint32(st.Type))] = was
		}
	}()
	h := newFake(t, 1)
	_, err := Open(ctx, h.config(dir))
	if err == nil || !strings.Contains(err.Error(), "is on nfs: it must be on a local file system (/run/rxsteer)") {
		t.Errorf("%v", err)
	}
	if es, err := os.ReadDir(dir); err != nil || len(es) > 0 {
		t.Errorf("left there: %v, %v", es, err)
	}
}

func TestJournalFile(t *testing.T) {
	setup := func(t *testing.T) (*fakeHost, string) {
		h := newFake(t, 1)
		dir := t.TempDir()
		e := h.open(h.config(dir))
		defer e.Close()
		if _, err := e.Apply(ctx, h.plan(), short); err != nil {
			t.Fatal(err)
		}
		return h, dir
	}
	edit := func(t *testing.T, dir string, f func(string) string) {
		name := filepath.Join(dir, journalFile)
		b, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(f(string(b))), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	t.Run("cut anywhere", func(t *testing.T) {
		h, dir := setup(t)
		whole, err := os.ReadFile(filepath.Join(dir, journalFile))
		if err != nil {
			t.Fatal(err)
		}
		after := h.state()
		for n := range whole {
			if n%31 != 0 && !strings.Contains(string(whole[max(0, n-2):min(n+2, len(whole))]), "\n") {
				continue // around each end of a line, and some places between
			}
			h.settings = map[knob.Ref]knob.Value{}
			for r, v := range after {
				h.settings[r] = v
			}
			edit(t, dir, func(string) string { return string(whole[:n]) })
			e := h.open(h.config(dir))
			if _, err := e.Recover(); err != nil {
				t.Errorf("cut at %d: %v", n, err)
			}
			for _, x := range e.Transactions() {
				if x.State != RolledBack && x.State != Kept {
					t.Errorf("cut at %d: %s", n, x.State)
				}
			}
			e.Close()
			if txs, _, err := History(dir); err != nil || len(txs) > 1 {
				t.Errorf("cut at %d: read again: %v, %v", n, txs, err)
			}
		}
	})
	bad := []struct {
		name string
		edit func(string) string
		say  string
		is   error
	}{
		{"newer", func(s string) string { return s + `{"v":2,"type":"x"}` + "\n" }, "format 2", ErrNewer},
		{"garbage in the middle", func(s string) string { return strings.Replace(s, "\n", "\ngarbage\n", 1) }, ":2: not a journal line", nil},
		{"unknown type", func(s string) string { return s + `{"v":1,"type":"x","tx":"1"}` + "\n" }, `type "x"`, nil},
		{"unknown state", func(s string) string { return s + `{"v":1,"type":"state","tx":"1","state":"odd"}` + "\n" }, `state "odd"`, nil},
		{"unknown transaction", func(s string) string { return s + `{"v":1,"type":"write","tx":"9","index":0}` + "\n" }, `"9" never began`, nil},
		{"change outside the plan", func(s string) string { return s + `{"v":1,"type":"write","tx":"1","index":7}` + "\n" }, "names no change", nil},
		{"no boot", func(s string) string { _, rest, _ := strings.Cut(s, "\n"); return rest }, "which boot", nil},
	}
	for _, test := range bad {
		t.Run(test.name, func(t *testing.T) {
			h, dir := setup(t)
			edit(t, dir, test.edit)
			before := h.state()
			_, err := Open(ctx, h.config(dir))
			if err == nil || !strings.Contains(err.Error(), test.say) || test.is != nil && !errors.Is(err, test.is) {
				t.Errorf("open: %v, want %q", err, test.say)
			}
			h.same("refused journal", before)
		})
	}
	t.Run("of another boot is put aside", func(t *testing.T) {
		h, dir := setup(t)
		for i := range 5 {
			h.snap.Host.BootID = fmt.Sprintf("%d-next", i)
			e := h.open(h.config(dir))
			if n := len(e.Transactions()); n != 0 {
				t.Errorf("%d transactions of another boot", n)
			}
			e.Close()
		}
		old, err := filepath.Glob(filepath.Join(dir, "journal.*.old"))
		if err != nil || len(old) != archives {
			t.Errorf("archives: %v, %v", old, err)
		}
	})
	t.Run("of another user", func(t *testing.T) {
		if os.Geteuid() != 0 {
			t.Skip("needs root: to give a file away")
		}
		h, dir := setup(t)
		if err := os.Chown(filepath.Join(dir, journalFile), 65534, 65534); err != nil {
			t.Fatal(err)
		}
		if _, err := Open(ctx, h.config(dir)); err == nil || !strings.Contains(err.Error(), "belongs to uid 65534") {
			t.Errorf("open: %v", err)
		}
	})
	t.Run("locked", func(t *testing.T) {
		h, dir := setup(t)
		e := h.open(h.config(dir))
		_, err := Open(ctx, h.config(dir))
		if !errors.Is(err, ErrLocked) || !strings.Contains(err.Error(), fmt.Sprintf("pid %d", os.Getpid())) {
			t.Errorf("second open: %v", err)
		}
		if txs, _, err := History(dir); err != nil || len(txs) != 1 {
			t.Errorf("history beside the lock: %v, %v", txs, err)
		}
		e.Close()
		h.open(h.config(dir)).Close()
	})
	t.Run("other namespace's transaction is not touched", func(t *testing.T) {
		h, dir := setup(t)
		before := h.state()
		edit(t, dir, func(s string) string { return s[:strings.LastIndex(strings.TrimSuffix(s, "\n"), "\n")+1] }) // unfinished
		h.snap.Host.Netns = 7
		e := h.open(h.config(dir))
		defer e.Close()
		if res, err := e.Recover(); err != nil || len(res) > 0 {
			t.Errorf("recover: %v, %v", res, err)
		}
		if _, err := e.Rollback(""); !errors.Is(err, ErrNoSuch) {
			t.Errorf("rollback of the last one here: %v", err)
		}
		if _, err := e.Rollback("1"); !errors.Is(err, ErrIdentity) {
			t.Errorf("rollback: %v", err)
		}
		h.same("other namespace", before)
	})
	t.Run("no journal", func(t *testing.T) {
		if txs, boot, err := History(filepath.Join(t.TempDir(), "none")); err != nil || txs != nil || boot != "" {
			t.Errorf("%v, %s, %v", txs, boot, err)
		}
	})
}

func FuzzJournal(f *testing.F) {
	h := &fakeHost{settings: map[knob.Ref]knob.Value{}, fault: &fault{at: -1}}
	h.snap.Devices = []knob.Device{{Name: "eth0", RXQueues: 1}}
	h.settings[rps(0)], h.settings[entries] = knob.Text("1"), knob.Int(0)
	dir := f.TempDir()
	h.snap.Host.BootID, h.snap.Host.CPUs = "b", "0-3"
	e, err := Open(ctx, h.config(dir))
	if err != nil {
		f.Fatal(err)
	}
	if _, err := e.Apply(ctx, h.plan(), short); err != nil {
		f.Fatal(err)
	}
	e.Close()
	good, err := os.ReadFile(filepath.Join(dir, journalFile))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(good)
	f.Fuzz(func(t *testing.T, data []byte) {
		var j journal
		if _, err := j.parse("j", data); err != nil {
			return
		}
		if int(j.size) > len(data) || j.torn != (int(j.size) < len(data)) {
			t.Errorf("good part %d of %d, torn %v", j.size, len(data), j.torn)
		}
		for _, x := range j.txs {
			for i := range x.written {
				if i < 0 || i >= len(x.Plan.Changes) {
					t.Errorf("change %d of %d", i, len(x.Plan.Changes))
				}
			}
		}
	})
}

func TestNothingToDo(t *testing.T) {
	h := newFake(t, 1)
	p := h.plan()
	for i := range p.Changes {
		h.settings[p.Changes[i].Ref()] = p.Changes[i].To
	}
	e := h.open(h.config(t.TempDir()))
	defer e.Close()
	for _, p := range []*plan.Plan{p, {Identity: p.Identity}} {
		res, err := e.Apply(ctx, p, short)
		if err != nil || res.State != Planned || res.Why == "" {
			t.Errorf("%+v, %v", res, err)
		}
	}
	if diff := cmp.Diff(0, len(e.Transactions())); diff != "" {
		t.Error(diff)
	}
}

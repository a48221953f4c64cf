package apply

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/rxsteer/rxsteer/collector"
	"github.com/rxsteer/rxsteer/internal/host/knob"
	"github.com/rxsteer/rxsteer/steer/plan"
)

var budget = knob.Ref{Knob: knob.NetdevBudget, Target: knob.Host}

// tried is a host on which three steps can be tried, and how hot they make its hottest CPU.
type tried struct {
	*fakeHost
	heat   func(rps, rfs, budget bool) float64
	copies int // of the load
	n      int
}

func newTried(t *testing.T, heat func(rps, rfs, budget bool) float64) (*tried, *plan.Plan) {
	h := newFake(t, 2)
	h.settings[budget] = knob.Int(300)
	p := h.plan()
	p.Changes = append(p.Changes, plan.Change{Knob: knob.NetdevBudget, Target: knob.Host, From: knob.Int(300), To: knob.Int(600), Risk: plan.NoRisk})
	return &tried{fakeHost: h, heat: heat, copies: 1}, p
}

func (h *tried) sample(context.Context, time.Duration) (*collector.Sample, error) {
	hot := h.heat(h.settings[rps(0)].String() == "0-3", h.settings[entries].String() != "0", h.settings[budget].String() != "300")
	h.n++
	l := load{napi: min(1, hot*float64(h.copies)) * (1 + float64(h.n%3)*0.004), packets: uint64(50000 * h.copies)}
	if full := hot * float64(h.copies); full > 1 { // what does not fit is dropped
		l.packets, l.dropped = uint64(float64(l.packets)/full), uint64(float64(l.packets)*(1-1/full))
	}
	return l.window(), nil
}

func (h *tried) trial(t *testing.T, p *plan.Plan, o TrialOptions) (*TrialResult, *Engine, error) {
	t.Helper()
	c := h.config(t.TempDir())
	c.Sample = h.sample
	e := h.open(c)
	t.Cleanup(func() { e.Close() })
	o.Options = Options{Windows: 3, Window: time.Nanosecond, Settle: time.Nanosecond}
	res, err := e.Trial(ctx, p, o)
	return res, e, err
}

// words are the arms and their verdicts.
func words(arms []Arm) (out []string) {
	for _, a := range arms {
		w := "-"
		if a.Verdict != nil {
			w = string(a.Verdict.Word)
		}
		out = append(out, fmt.Sprintf("%s: %s, %d windows", a.Name, w, a.Windows))
	}
	return out
}

func TestTrial(t *testing.T) {
	tests := []struct {
		name string
		heat func(rps, rfs, budget bool) float64
		arms []string
		best string
		is   [3]string // rps of queue 0, entries, budget afterwards
	}{
		{"one step helps, one harms, one does nothing", func(rps, rfs, budget bool) float64 {
			h := 0.6
			if rps {
				h = 0.2
			}
			if rfs {
				h += 0.2
			}
			return h
		}, []string{"baseline: -, 9 windows", "rps-cpus of eth0: better, 9 windows", "rps-sock-flow-entries of the host: worse, 9 windows", "netdev-budget of the host: no difference, 9 windows",
			"all: better, 9 windows", "all but rps-sock-flow-entries of the host: better, 9 windows"},
			"rps-cpus of eth0", [3]string{"0-3", "0", "300"}},
		{"two help only together", func(rps, rfs, budget bool) float64 {
			if rps && rfs {
				return 0.2
			}
			return 0.6
		}, []string{"baseline: -, 9 windows", "rps-cpus of eth0: no difference, 9 windows", "rps-sock-flow-entries of the host: no difference, 9 windows", "netdev-budget of the host: no difference, 9 windows",
			"all: better, 9 windows"}, "all", [3]string{"0-3", "4096", "600"}},
		{"nothing helps", func(rps, rfs, budget bool) float64 {
			if rfs {
				return 0.8
			}
			return 0.6
		}, []string{"baseline: -, 9 windows", "rps-cpus of eth0: no difference, 9 windows", "rps-sock-flow-entries of the host: worse, 9 windows", "netdev-budget of the host: no difference, 9 windows",
			"all: worse, 9 windows", "all but rps-sock-flow-entries of the host: no difference, 9 windows"}, "baseline", [3]string{"0", "0", "300"}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			h, p := newTried(t, test.heat)
			res, e, err := h.trial(t, p, TrialOptions{})
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(test.arms, words(res.Arms)); diff != "" {
				t.Errorf("arms (-want +got):\n%s", diff)
			}
			is := [3]string{h.settings[rps(0)].String(), h.settings[entries].String(), h.settings[budget].String()}
			if res.Best != test.best || is != test.is {
				t.Errorf("best %s, host %v, want %s %v; %s", res.Best, is, test.best, test.is, res.Why)
			}
			kept := 0
			for _, x := range e.Transactions() {
				switch x.State {
				case Kept:
					kept++
				case RolledBack:
				default:
					t.Errorf("transaction %s ends as %s: %s", x.ID, x.State, x.Why)
				}
			}
			if (kept == 1) != (test.best != baseline) || kept > 1 {
				t.Errorf("%d transactions are kept", kept)
			}
			if res.FullWhy == "" || len(res.Full) > 0 {
				t.Errorf("full load without a load: %+v", res)
			}
		})
	}
}

func TestTrialNearFullLoad(t *testing.T) {
	// at a light load the step makes no difference that counts, near full load it does
	heat := func(rps, rfs, budget bool) float64 {
		if rps {
			return 0.16
		}
		return 0.2
	}
	h, p := newTried(t, heat)
	p.Changes = p.Changes[:2]
	running := 0
	load := func(copies int, _ func(error)) (func(), error) {
		h.copies = copies
		running++
		return func() { running--; h.copies = 0 }, nil
	}
	res, _, err := h.trial(t, p, TrialOptions{Load: load})
	if err != nil {
		t.Fatal(err)
	}
	if res.Arms[1].Verdict.Word != Same || res.Copies != 8 || len(res.Full) != 2 || res.Full[1].Verdict.Word != Better || res.Best != "rps-cpus of eth0" || res.Kept == nil {
		t.Errorf("%v, full %v with %d copies, best %s: %s", words(res.Arms), words(res.Full), res.Copies, res.Best, res.Why)
	}
	if running != 0 {
		t.Errorf("%d loads still run", running)
	}

	t.Run("worse there", func(t *testing.T) {
		h, p := newTried(t, nil)
		h.heat = func(rps, rfs, budget bool) float64 {
			switch {
			case rps && h.copies > 1:
				return 0.5
			case rps:
				return 0.2
			}
			return 0.3
		}
		old := h.state()
		p.Changes = p.Changes[:2]
		res, _, err := h.trial(t, p, TrialOptions{Load: func(copies int, _ func(error)) (func(), error) {
			h.copies = copies
			return func() {}, nil
		}})
		if err != nil {
			t.Fatal(err)
		}
		if res.Arms[1].Verdict.Word != Better || res.Best != baseline || !strings.Contains(res.Why, "worse near full load") || res.Kept != nil {
			t.Errorf("%v, full %v, best %s: %s", words(res.Arms), words(res.Full), res.Best, res.Why)
		}
		h.same("undone", old)
	})
	t.Run("copies fail", func(t *testing.T) {
		h, p := newTried(t, heat)
		res, _, err := h.trial(t, p, TrialOptions{Load: func(copies int, failed func(error)) (func(), error) {
			if copies > 1 {
				failed(errors.New("the server is busy"))
			}
			return func() {}, nil
		}})
		if err != nil || !strings.Contains(res.FullWhy, "2 copies of the load do not run at once: the load failed: the server is busy") {
			t.Errorf("%+v, %v", res, err)
		}
	})
	t.Run("the load fails", func(t *testing.T) {
		h, p := newTried(t, heat)
		old := h.state()
		n := 0
		res, e, err := h.trial(t, p, TrialOptions{Load: func(copies int, failed func(error)) (func(), error) {
			if n++; n == 1 {
				h.onWrite = func(knob.Ref) { failed(errors.New("exit status 1")) }
			}
			return func() {}, nil
		}})
		if err == nil || !strings.Contains(err.Error(), "the load failed: exit status 1") || res.Kept != nil {
			t.Errorf("%+v, %v", res, err)
		}
		h.same("the load failed", old)
		if x := e.Transactions(); x[len(x)-1].State != RolledBack {
			t.Errorf("%+v", x)
		}
	})
}

// A load that is another in each round, as of a sender that starves, makes no arm better: the windows of one
// round agree with each other and prove nothing.
func TestTrialOfAMovingLoad(t *testing.T) {
	h, p := newTried(t, func(rps, rfs, budget bool) float64 { return 0.1 })
	old := h.state()
	p.Changes = p.Changes[:2]
	n := 0
	c := h.config(t.TempDir())
	c.Sample = func(context.Context, time.Duration) (*collector.Sample, error) {
		// three windows to a round of an arm: 10, 17, 31, … thousand packets
		rate := []uint64{10, 17, 31, 24, 12, 28}[n/3%6] * 1000
		n++
		return load{napi: 0.02 + float64(n%3)*1e-4, packets: rate + uint64(n%3)}.window(), nil
	}
	e := h.open(c)
	defer e.Close()
	res, err := e.Trial(ctx, p, TrialOptions{Options: Options{Windows: 3, Window: time.Nanosecond, Settle: time.Nanosecond}})
	if err != nil || res.Best != baseline || res.Arms[1].Verdict.Word != Same {
		t.Errorf("%+v: %v, %v", res.Arms[1].Verdict, words(res.Arms), err)
	}
	if !welch([]float64{10, 10, 10.1, 24, 24, 24.1, 12, 12, 12.1}, []float64{17, 17, 17.1, 31, 31, 31.1, 28, 28, 28.1}) {
		t.Error("single windows would not have been fooled: the test tests nothing")
	}
	h.same("nothing kept", old)
}

// Death at any operation of a trial leaves what the next run undoes.
func TestTrialDies(t *testing.T) {
	for _, kind := range []fault{{before: true}, {after: true}, {err: errInjected}} {
		for at := 0; ; at++ {
			h, p := newTried(t, func(rps, _, _ bool) float64 {
				if rps {
					return 0.2
				}
				return 0.6
			})
			p.Changes = append(p.Changes[:1:1], p.Changes[3])
			old := h.state()
			dir := t.TempDir()
			f := kind
			f.at = at
			h.fault = &f
			c := h.config(dir)
			c.Sample = h.sample
			var e *Engine
			var res *TrialResult
			var err error
			dies(func() {
				if e, err = Open(ctx, c); err == nil {
					res, err = e.Trial(ctx, p, TrialOptions{Rounds: 2, Options: Options{Windows: 3, Window: time.Nanosecond, Settle: time.Nanosecond}})
				}
			})
			if e != nil {
				e.Close()
			} else {
				releaseLock(t, dir)
			}
			if f.seen <= at {
				if err != nil || res.Best != "rps-cpus of eth0" {
					t.Fatalf("without fault: %+v, %v", res, err)
				}
				t.Logf("%d operations", f.seen)
				break
			}
			op := fmt.Sprintf("operation %d (%s)", at, f.log[at])
			h.fault = &fault{at: -1}
			next := h.open(h.config(dir))
			if _, err := next.Recover(); err != nil {
				t.Errorf("%s: %v", op, err)
			}
			want := old
			for _, x := range next.Transactions() {
				switch x.State {
				case Kept:
					want = h.state()
					want[rps(0)], want[budget] = knob.Text("0-3"), knob.Int(300)
				case RolledBack:
				default:
					t.Errorf("%s: transaction %s ends as %s", op, x.ID, x.State)
				}
			}
			h.same(op, want)
			next.Close()
		}
	}
}

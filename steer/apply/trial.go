package apply

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/rxsteer/rxsteer/collector"
	"github.com/rxsteer/rxsteer/internal/host/knob"
	"github.com/rxsteer/rxsteer/steer/plan"
)

// Load starts the load that a trial measures under, as so many copies at once, and returns what ends it.
// A copy that fails meanwhile tells why.
type Load func(copies int, failed func(why error)) (stop func(), err error)

// TrialOptions are what the user grants a trial, and how long it measures: Rounds (0: 3) of Windows each
// for every arm.
type TrialOptions struct {
	Options
	Rounds int
	// Load, where one is given, runs while an arm is measured. Without it the host's own load is measured.
	Load Load
	// Copies is the most that are started at once to come near full load; 0 is 16, 1 does not try.
	Copies int
}

// Arm is one of the ways a trial set the host.
type Arm struct {
	Name string `json:"name"` // "baseline", "rps-cpus of eth0", "all", "all but …"
	// Changes are indices into the plan's; none is the baseline.
	Changes []int `json:"changes"`
	Windows int   `json:"windows"`
	// Verdict compares with the baseline of the same rounds; nil for that itself.
	Verdict *Verdict `json:"verdict,omitempty"`

	samples []*collector.Sample
	byRound []*collector.Sample // the same, each round as one
	seen    *knob.Snapshot      // after its last write
}

// evidence is what is compared. The windows of one round are not independent: the load may have been what
// it was for all of them. Where there are enough rounds each counts as one.
func (a *Arm) evidence() []*collector.Sample {
	if len(a.byRound) >= leastWindows {
		return a.byRound
	}
	return a.samples
}

// TrialResult is what a trial found and what became of the host.
type TrialResult struct {
	Rounds int   `json:"rounds"`
	Arms   []Arm `json:"arms"` // the baseline first
	// Full are the baseline and the best arm near full load, Copies how many of the load that took;
	// none: not tried, for FullWhy.
	Full    []Arm  `json:"full_load,omitempty"`
	Copies  int    `json:"copies,omitempty"`
	FullWhy string `json:"full_load_why,omitempty"`
	// Best is the name of the arm that is kept, "baseline" when none is.
	Best string `json:"best"`
	Why  string `json:"why"`
	// Kept is the transaction that keeps it; nil: everything was undone.
	Kept *Result `json:"kept,omitempty"`
}

const (
	baseline    = "baseline"
	trialRounds = 3
	trialCopies = 16
	fullLoad    = 0.9  // of a CPU's time in receive softirq: near full load
	growingPart = 0.05 // delivered packets that one more doubling of the load must bring
	rampWindows = 3
)

// Trial measures the baseline, each step of a plan alone and all together in interleaved rounds, then,
// where a load is given, the best of them near full load; it keeps the best as a transaction or leaves
// the host as it was. Every arm is a transaction of its own that is rolled back, so that a trial that
// dies is undone by the next run.
func (e *Engine) Trial(ctx context.Context, p *plan.Plan, o TrialOptions) (*TrialResult, error) {
	if e.c.Sample == nil {
		return nil, errors.New("trial: without measuring nothing can be tried")
	}
	o.Rounds, o.Copies = cmp.Or(o.Rounds, trialRounds), cmp.Or(o.Copies, trialCopies)
	o.Windows, o.Window = cmp.Or(o.Windows, 5), cmp.Or(o.Window, defaultWindow)
	o.Settle = cmp.Or(o.Settle, o.Window/2)
	if res, _, err := e.ready(ctx, p, o.Options); err != nil || res.Why != "" {
		if err == nil {
			err = fmt.Errorf("trial: nothing to try: %s", res.Why)
		}
		return nil, err
	}
	t := &trial{e: e, p: p, o: o, out: &TrialResult{Rounds: o.Rounds, Arms: arms(p)}}
	if err := t.rounds(ctx, t.out.Arms, 1, "round"); err != nil {
		return t.out, err
	}
	t.compare(t.out.Arms)
	if extra, ok := t.withoutHarm(); ok {
		// Measured as the others were, against a baseline of the same rounds.
		more := []Arm{{Name: baseline}, extra}
		if err := t.rounds(ctx, more, 1, "round without what did harm,"); err != nil {
			return t.out, err
		}
		t.compare(more)
		t.out.Arms = append(t.out.Arms, more[1])
	}
	best := t.best()
	if o.Load != nil && o.Copies > 1 {
		var err error
		if best, err = t.full(ctx, best); err != nil {
			return t.out, err
		}
	} else {
		t.out.FullWhy = "no load was given that could be made more"
	}
	return t.out, t.keep(ctx, best)
}

// arms are the baseline, each step alone and, when there are several, all.
func arms(p *plan.Plan) []Arm {
	out := []Arm{{Name: baseline}}
	all := Arm{Name: "all"}
	for i, c := range p.Changes {
		all.Changes = append(all.Changes, i)
		if i > 0 && c.Knob == p.Changes[i-1].Knob && c.Target.Device() == p.Changes[i-1].Target.Device() {
			last := &out[len(out)-1]
			last.Changes = append(last.Changes, i)
			continue
		}
		out = append(out, Arm{Name: stepName(c), Changes: []int{i}})
	}
	if len(out) > 2 {
		out = append(out, all)
	}
	return out
}

func stepName(c plan.Change) string {
	return fmt.Sprintf("%s of %s", c.Knob, cmp.Or(c.Target.Device(), "the host"))
}

type trial struct {
	e   *Engine
	p   *plan.Plan
	o   TrialOptions
	out *TrialResult
}

// rounds measures every arm in every round, each round beginning with another arm, so that a load
// that drifts drifts for all. The load runs on throughout: its flows stay the same ones.
func (t *trial) rounds(ctx context.Context, arms []Arm, copies int, what string) error {
	return t.under(ctx, copies, func(ctx context.Context) error {
		for r := range t.o.Rounds {
			for k := range arms {
				a := &arms[(r+k)%len(arms)]
				t.e.progress("%s %d of %d: %s", what, r+1, t.o.Rounds, a.Name)
				if err := t.measure(ctx, a); err != nil {
					return fmt.Errorf("trial: %s, round %d: %w", a.Name, r+1, err)
				}
			}
		}
		return nil
	})
}

// under runs do under copies of the load, and ends it early when the load fails.
func (t *trial) under(ctx context.Context, copies int, do func(context.Context) error) error {
	if t.o.Load == nil {
		return do(ctx)
	}
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	stop, err := t.o.Load(copies, fail)
	if err != nil {
		return fmt.Errorf("%w: %w", errLoad, err)
	}
	err = do(ctx)
	stop()
	if cause := context.Cause(ctx); cause != nil && !errors.Is(cause, context.Canceled) {
		return fmt.Errorf("%w: %w", errLoad, cause)
	}
	return err
}

var errLoad = errors.New("the load failed")

// measure sets the host as an arm says, measures and sets it back.
func (t *trial) measure(ctx context.Context, a *Arm) (err error) {
	if len(a.Changes) > 0 {
		if err := t.set(ctx, a); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, t.drop(a.Name)) }()
	} else if a.seen == nil {
		if a.seen, err = t.e.look(ctx, t.p, t.o.Options); err != nil {
			return err
		}
	}
	if !sleep(ctx, t.o.Settle) {
		return ctx.Err()
	}
	windows, err := t.e.windows(ctx, t.o.Options)
	if err != nil {
		return err
	}
	a.samples = append(a.samples, windows...)
	a.byRound = append(a.byRound, collector.Merge(windows...))
	a.Windows = len(a.samples)
	return nil
}

// drop puts back what set wrote. A trial does not go on from a host that is not as it was.
func (t *trial) drop(why string) error {
	res, err := t.e.Drop("trial: " + why)
	if err == nil && res.State != RolledBack {
		l := res.Left[0]
		err = fmt.Errorf("not everything could be put back: %s is %s, was %s: %s", l.Ref, text(l.Is), text(l.Want), l.Why)
	}
	return err
}

// set writes an arm's changes and leaves them to be dropped or kept.
func (t *trial) set(ctx context.Context, a *Arm) error {
	sub := *t.p
	sub.Changes = nil
	for _, i := range a.Changes {
		sub.Changes = append(sub.Changes, t.p.Changes[i])
	}
	res, err := t.e.Begin(ctx, &sub, t.o.Options)
	switch {
	case err != nil:
		return err
	case res.State != Applying:
		return fmt.Errorf("it was %s: %s", res.State, res.Why)
	}
	if i := slices.IndexFunc(res.Steps, func(s Step) bool { return s.Outcome == Stale }); i >= 0 {
		return errors.Join(fmt.Errorf("%s: %s", res.Steps[i].Ref, res.Steps[i].Note), t.drop("somebody else took a setting"))
	}
	a.seen = t.e.open.seen
	return nil
}

// scope of all arms is that of the whole plan, so that their figures compare.
func (t *trial) scope(before, after *Arm) Scope {
	return scopeOf(t.p.Changes, before.seen, after.seen)
}

func (t *trial) compare(arms []Arm) {
	for i := 1; i < len(arms); i++ {
		arms[i].Verdict = Judge(t.scope(&arms[0], &arms[i]), arms[0].evidence(), arms[i].evidence())
	}
}

// withoutHarm is all steps but those that alone did harm, where that is not an arm already.
func (t *trial) withoutHarm() (Arm, bool) {
	a := Arm{Name: "all but"}
	for _, x := range t.out.Arms[1:] {
		switch {
		case len(x.Changes) == len(t.p.Changes):
		case x.Verdict.Word == Worse:
			a.Name += " " + x.Name + ","
		default:
			a.Changes = append(a.Changes, x.Changes...)
		}
	}
	a.Name = a.Name[:len(a.Name)-1]
	slices.Sort(a.Changes)
	same := func(x Arm) bool { return slices.Equal(x.Changes, a.Changes) }
	return a, !slices.ContainsFunc(t.out.Arms, same) && len(a.Changes) > 0
}

// best is the arm that is better than the baseline and than every smaller arm that is; a bigger one that
// is no better is not worth its changes.
func (t *trial) best() *Arm {
	best := &t.out.Arms[0]
	order := make([]*Arm, 0, len(t.out.Arms))
	for i := range t.out.Arms[1:] {
		order = append(order, &t.out.Arms[i+1])
	}
	slices.SortStableFunc(order, func(a, b *Arm) int { return cmp.Compare(len(a.Changes), len(b.Changes)) })
	for _, a := range order {
		if a.Verdict.Word != Better {
			continue
		}
		if best.Name == baseline || Judge(t.scope(best, a), best.evidence(), a.evidence()).Word == Better {
			best = a
		}
	}
	return best
}

// full measures the best arm, or all steps when none was better, near full load, where differences show
// that a light load hides.
func (t *trial) full(ctx context.Context, best *Arm) (*Arm, error) {
	tried := best
	for i := range t.out.Arms {
		if a := &t.out.Arms[i]; best.Name == baseline && len(a.Changes) == len(t.p.Changes) {
			tried = a
		}
	}
	if best.Name == baseline && tried.Verdict.Word == Worse {
		t.out.FullWhy = "all together was worse already"
		return best, nil
	}
	copies, why, err := t.ramp(ctx)
	if err != nil || copies == 0 {
		t.out.FullWhy = why
		return best, err
	}
	t.out.Full, t.out.Copies = []Arm{{Name: baseline}, {Name: tried.Name, Changes: tried.Changes}}, copies
	if err := t.rounds(ctx, t.out.Full, copies, "near full load, round"); err != nil {
		return nil, err
	}
	t.compare(t.out.Full)
	switch w := t.out.Full[1].Verdict.Word; {
	case w == Worse:
		return &t.out.Arms[0], nil
	case w == Better:
		return tried, nil
	}
	return best, nil
}

// ramp finds how many copies of the load come near full load: a CPU busy with receiving, drops, or no
// more packets for more copies. 0 copies: not reached, and why.
func (t *trial) ramp(ctx context.Context) (copies int, why string, err error) {
	o := t.o.Options
	o.Windows = rampWindows
	devices := devicesOf(t.p.Changes)
	reach := rpsReach(t.out.Arms[0].seen, devices)
	delivered := 0.0
	for copies = 1; copies <= t.o.Copies; copies *= 2 {
		t.e.progress("towards full load: %d copies", copies)
		var windows []*collector.Sample
		err := t.under(ctx, copies, func(ctx context.Context) (err error) {
			if !sleep(ctx, o.Settle) {
				return ctx.Err()
			}
			windows, err = t.e.windows(ctx, o)
			return err
		})
		switch {
		case errors.Is(err, errLoad) && copies > 1:
			return 0, fmt.Sprintf("%d copies of the load do not run at once: %v", copies, err), nil
		case err != nil:
			return 0, "", fmt.Errorf("trial: towards full load: %w", err)
		}
		all := accounts(windows, devices, reach)
		now := mean(series(all, func(a account) float64 { return a.delivered }))
		switch {
		case mean(series(all, account.hottest)) >= fullLoad,
			mean(series(all, account.dropRatio)) >= dropPoints,
			copies > 1 && now < delivered*(1+growingPart):
			return copies, "", nil
		}
		delivered = now
	}
	return 0, fmt.Sprintf("%d copies of the load still leave room on every CPU", copies/2), nil
}

// keep makes the best arm a transaction that stays, judged once more against the baseline.
func (t *trial) keep(ctx context.Context, best *Arm) error {
	t.out.Best = best.Name
	if best.Name == baseline {
		t.out.Why = "no arm was better than the baseline: everything was put back"
		if len(t.out.Full) > 0 && t.out.Full[1].Verdict.Word == Worse {
			t.out.Why = fmt.Sprintf("%s was worse near full load: everything was put back", t.out.Full[1].Name)
		}
		return nil
	}
	t.e.progress("keep %s", best.Name)
	err := t.under(ctx, 1, func(ctx context.Context) error {
		if err := t.set(ctx, &Arm{Changes: best.Changes}); err != nil {
			return err
		}
		if !sleep(ctx, t.o.Settle) {
			return errors.Join(ctx.Err(), t.drop("interrupted"))
		}
		windows, err := t.e.windows(ctx, t.o.Options)
		if err != nil {
			return errors.Join(err, t.drop(err.Error()))
		}
		t.out.Kept, err = t.e.Keep(ctx, t.out.Arms[0].evidence(), windows)
		return err
	})
	stays := t.out.Kept != nil && (t.out.Kept.State == Kept || t.out.Kept.State == Unconfirmed)
	switch {
	case err != nil && !stays:
		t.out.Best, t.out.Why = baseline, "everything was put back: "+err.Error()
		return fmt.Errorf("trial: keep %s: %w", best.Name, err)
	case !stays:
		t.out.Best, t.out.Why = baseline, fmt.Sprintf("%s was better in the rounds and then was not: %s", best.Name, t.out.Kept.Why)
	default:
		t.out.Why = best.Verdict.Why
		if len(t.out.Full) > 0 && best.Verdict.Word != Better {
			t.out.Why = "near full load: " + t.out.Full[1].Verdict.Why
		}
	}
	return nil
}

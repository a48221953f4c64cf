package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/user"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/rxsteer/rxsteer/collector"
	"github.com/rxsteer/rxsteer/internal/host/nic"
	"github.com/rxsteer/rxsteer/internal/host/reach"
	"github.com/rxsteer/rxsteer/steer/apply"
	"github.com/rxsteer/rxsteer/steer/diagnose"
	"github.com/rxsteer/rxsteer/steer/plan"
)

// applyFlags are the command line of apply.
type applyFlags struct {
	measureFlags
	wish          *wish
	ifaces        []string
	confirmWithin time.Duration
	allow         []string
	yes           bool
	profile       bool
	stateDir      string
}

func applyCommand(e *env) *cobra.Command {
	c := &cobra.Command{
		Use:   "apply [PLAN]",
		Short: "Make the changes as one transaction, judged and undone if worse",
		Long: `Make the changes of a plan as one transaction: each is written down in a journal
before it is made, read back after, and everything that changed unasked is shown
and put back. What is measured after each step (the changes of one setting of one
device) is judged against what was measured before it; when it is worse, everything is
undone. So is everything when the run is interrupted or dies:
the next rxsteer finds it in the journal.

Risks that are not allowed stop it before anything is written: "reorder" (packets of
a flow may overtake each other for a moment), "pause" (the device stops for
milliseconds), "flap" (the link goes down for seconds), "untested" (the setting was
never run on this driver). pause and flap need --confirm-within.

Without PLAN it measures, makes a plan, shows it and asks.

With --profile it also samples where receiving spends its time before the first write
and after the last: "rxsteer profile --transaction ID" draws the difference.

With --confirm-within the change is undone by itself unless "rxsteer confirm" comes
in time, also when the terminal, the connection or this process is gone.

Exit status 4 says that the change was made and taken back, or could not be made
because the host moved on since the plan was made.`,
		Example: `  rxsteer apply
  rxsteer apply fix.yaml --confirm-within 60s && rxsteer confirm
  rxsteer apply fix.yaml --allow reorder,pause --yes`,
		GroupID: groupSteer,
		Args:    cobra.MaximumNArgs(1),
	}
	var f applyFlags
	out := addOutput(c, "json")
	c.Flags().DurationVar(&f.duration, "for", 5*time.Second, "measure for this `TIME` before and after each step; 0 judges nothing")
	c.Flags().BoolVar(&f.profile, "profile", false, "keep a profile of before and of after, for rxsteer profile --transaction")
	f.add(c, e)
	c.RunE = func(c *cobra.Command, args []string) error {
		if err := out.check(); err != nil {
			return err
		}
		if err := f.check(); err != nil {
			return err
		}
		return e.apply(c.Context(), &f, args, out.format == "json")
	}
	return c
}

// add adds the flags that apply and trial share.
func (f *applyFlags) add(c *cobra.Command, e *env) {
	addLevel(c, &f.level)
	addOverhead(c, &f.overhead)
	f.wish = addWish(c)
	c.Flags().StringSliceVar(&f.ifaces, "interface", nil, "without PLAN: look only at these `IFACES`")
	c.RegisterFlagCompletionFunc("interface", e.completeInterfaces)
	c.Flags().DurationVar(&f.confirmWithin, "confirm-within", 0, "undo unless confirmed within this `TIME`")
	c.Flags().StringSliceVar(&f.allow, "allow", []string{string(plan.Reorder)}, "grant these `RISKS`: reorder, pause, flap, untested")
	c.RegisterFlagCompletionFunc("allow", cobra.FixedCompletions(risks, cobra.ShellCompDirectiveNoFileComp))
	c.Flags().BoolVarP(&f.yes, "yes", "y", false, "do not ask")
	addStateDir(c, &f.stateDir)
}

// addStateDir hides the folder of the journal from the help: only tests and odd hosts move it.
func addStateDir(c *cobra.Command, dir *string) {
	c.Flags().StringVar(dir, "state-dir", apply.DefaultDir, "folder of the journal, on a local file system that is empty after a boot")
	if err := c.Flags().MarkHidden("state-dir"); err != nil {
		panic(err) // the flag is the line above
	}
}

// untested is the risk of a setting that was never run on a driver (docs/support.md).
const untested = "untested"

var risks = []string{string(plan.Reorder), string(plan.Pause), string(plan.Flap), untested}

// tried refuses changes of settings that were never run on the driver, unless they are allowed.
func (f *applyFlags) tried(pl *plan.Plan) error {
	if slices.Contains(f.allow, untested) {
		return nil
	}
	for _, c := range pl.Changes {
		driver := ""
		for _, d := range pl.Identity.Devices {
			if d.Name == c.Target.Device() {
				driver = d.Driver
			}
		}
		if !nic.Support(driver, c.Knob).Run() {
			return &failure{exitFailed, fmt.Errorf("%s: setting it was never tried on driver %s", c.Ref(), driver), []string{"grant it with --allow untested; docs/support.md lists what was tried"}}
		}
	}
	return nil
}

func (f *applyFlags) check() error {
	for _, a := range f.allow {
		if !slices.Contains(risks, a) {
			return usage("--allow %s: want any of %s", a, strings.Join(risks, ", "))
		}
	}
	if f.confirmWithin != 0 && (f.confirmWithin < 5*time.Second || f.confirmWithin > 24*time.Hour) {
		return usage("--confirm-within %v: want 5s … 24h", f.confirmWithin)
	}
	if f.profile && f.duration == 0 {
		return usage("--profile samples while it measures, and --for 0 does not")
	}
	if f.duration == 0 {
		return nil
	}
	return f.measureFlags.check()
}

func (f *applyFlags) options(e *env) apply.Options {
	o := apply.Options{Allow: []plan.Risk{}, ConfirmWithin: f.confirmWithin, Window: f.window(), By: e.operator()}
	for _, a := range f.allow {
		o.Allow = append(o.Allow, plan.Risk(a))
	}
	if f.confirmWithin > 0 {
		// The watcher is there before the first write, so that a change that takes this process or
		// its terminal away is undone too.
		o.Begun = func(id string) error { return e.startWatcher(f.stateDir, id) }
	}
	if f.duration == 0 {
		return o
	}
	o.Windows = int((f.duration + o.Window - 1) / o.Window)
	return o
}

// agree chooses the plan, shows it and asks; how says what is asked about its changes. Of a plan that has none it prints
// none in JSON, and returns no plan.
func (e *env) agree(ctx context.Context, h *hostRooms, f *applyFlags, args []string, asJSON bool, none any, how string) (*plan.Plan, *diagnose.Report, error) {
	h.overhead = f.overhead
	pl, report, err := e.choosePlan(ctx, h, f, args)
	if err != nil {
		return nil, nil, err
	}
	if len(pl.Changes) == 0 && asJSON {
		return nil, nil, printJSON(e.stdout, none)
	}
	if len(pl.Changes) > 0 {
		if err := f.tried(pl); err != nil {
			return nil, nil, err
		}
	}
	if !asJSON {
		printPlan(e.stdout, pl, report, e.palette(), e.textWidth())
	}
	if len(pl.Changes) == 0 {
		return nil, nil, nil
	}
	if !asJSON {
		fmt.Fprintln(e.stdout)
	}
	e.warn(ctx, h, pl)
	if !f.yes {
		if err := e.ask(plural(len(pl.Changes), "change") + how); err != nil {
			return nil, nil, err
		}
	}
	return pl, report, nil
}

func (e *env) apply(ctx context.Context, f *applyFlags, args []string, asJSON bool) error {
	h, err := e.openHost()
	if err != nil {
		return err
	}
	defer h.close()
	none := applyDoc{Result: &apply.Result{State: apply.Planned, Why: "the plan has no changes", Steps: []apply.Step{}, Unasked: []apply.Unasked{}, Left: []apply.Left{}}}
	pl, report, err := e.agree(ctx, h, f, args, asJSON, none, "")
	if err != nil || pl == nil {
		return err
	}
	m := &meter{ended: true}
	var profiled *around
	if f.profile {
		if profiled, err = e.newAround(ctx); err != nil {
			return err
		}
		defer profiled.close()
	}
	var sample apply.Sampler // nil: no verdict
	if f.duration > 0 {
		sample = func(ctx context.Context, d time.Duration) (*collector.Sample, error) { return m.sample(ctx, d) }
	}
	total := f.duration + time.Duration(steps(pl))*(f.duration+2*f.window())
	p := e.newProgress("starting", total)
	defer p.end()
	engine, err := e.openEngine(ctx, h, f.stateDir, func(text string) {
		if m.phase = text; text == "measure after" {
			m.after = nil // of the last step
		}
		if profiled != nil {
			profiled.phase(text)
		}
		p.say(text)
	}, sample)
	if err != nil {
		return err
	}
	// Who may not write need not measure; and what an earlier run left is put back before.
	if sample != nil {
		if m, err = e.openMeter(ctx, h, judging(f.level, report), f.window()); err != nil {
			return errors.Join(err, engine.Close())
		}
	}
	m.watch = p
	defer m.close()
	res, applyErr := engine.Apply(ctx, pl, f.options(e))
	p.end()
	if profiled != nil {
		id := ""
		if res != nil {
			id = res.ID
		}
		if err := profiled.save(f.stateDir, id); err != nil {
			fmt.Fprintf(e.stderr, "rxsteer: %v\n", err) // the change stands without its picture
		}
	}
	if err := m.close(); err != nil {
		applyErr = errors.Join(applyErr, err)
	}
	if err := engine.Close(); err != nil {
		applyErr = errors.Join(applyErr, err)
	}
	if res == nil {
		return applyFailure(applyErr)
	}
	doc := applyDoc{Result: res, Before: shares(m.before), After: shares(m.after)}
	if asJSON {
		if err := printJSON(e.stdout, doc); err != nil {
			return err
		}
	} else {
		printResult(e.stdout, &doc, e.palette(), e.textWidth())
	}
	if applyErr != nil {
		return applyFailure(applyErr)
	}
	return resultExit(res)
}

// operator is who runs this, for the journal: the account, and behind sudo the person.
func (e *env) operator() string {
	name := fmt.Sprintf("uid %d", os.Geteuid())
	if u, err := user.Current(); err == nil {
		name = u.Username
	}
	if person := e.getenv("SUDO_USER"); person != "" && person != name {
		name += " (" + person + ")"
	}
	return name
}

// choosePlan reads the plan, or makes one and returns the report it stands on.
func (e *env) choosePlan(ctx context.Context, h *hostRooms, f *applyFlags, args []string) (*plan.Plan, *diagnose.Report, error) {
	goal, policy, err := f.wish.read()
	if err != nil {
		return nil, nil, err
	}
	if len(args) == 1 {
		top, err := h.topology()
		if err != nil {
			return nil, nil, err
		}
		pl, err := readPlan(args[0], top.Online)
		if err != nil {
			return nil, nil, err
		}
		for i, c := range pl.Changes {
			if why := policy.Refuses(c); why != "" {
				return nil, nil, &failure{exitFailed, fmt.Errorf("change %d of %s (%s): %s", i+1, args[0], c.Ref(), why), []string{"take it out of the plan, or change the policy " + f.wish.policy}}
			}
		}
		return pl, nil, nil
	}
	if len(policy.Risks) == 0 { // what apply would refuse is not planned
		policy.Risks = append(f.options(e).Allow, plan.NoRisk)
	}
	if f.duration == 0 {
		return nil, nil, usage("--for 0 judges nothing, and without measuring no plan can be made: give a PLAN")
	}
	s, err := e.lookAt(ctx, h, &f.measureFlags, f.ifaces)
	if err != nil {
		return nil, nil, err
	}
	return makePlan(s, goal, policy, false), s.report, nil
}

// ask wants a yes from the terminal.
func (e *env) ask(what string) error {
	if !e.stdinTTY {
		return &failure{exitUsage, errors.New("apply asks before it writes, and there is no terminal to ask on"), []string{"--yes makes the changes without asking", "rxsteer plan shows them"}}
	}
	fmt.Fprintf(e.stderr, "Make %s on this host? [y/N] ", what)
	line, err := bufio.NewReader(e.stdin).ReadString('\n')
	if err != nil && !errors.Is(err, io.EOF) {
		return fmt.Errorf("read the answer: %w", err)
	}
	switch strings.ToLower(strings.TrimSpace(line)) {
	case "y", "yes":
		return nil
	}
	return &failure{code: exitFailed, err: errors.New("nothing was changed")}
}

// openEngine takes the lock and finishes what an earlier run left.
func (e *env) openEngine(ctx context.Context, h *hostRooms, dir string, progress func(string), sample apply.Sampler) (*apply.Engine, error) {
	c := apply.Config{Dir: dir, Host: h.machine, Now: e.now, Sample: sample, Progress: progress,
		Around: reach.Host{FS: e.fs}, Vectors: h.queueVectors, Owners: h.othersNow}
	engine, err := apply.Open(ctx, c)
	if err != nil {
		return nil, applyFailure(err)
	}
	// What an earlier run left in the middle is put back before anything new begins.
	results, err := engine.Recover()
	for _, r := range results {
		fmt.Fprintf(e.stderr, "rxsteer: transaction %s of an earlier run was %s: %s\n", r.ID, r.State, r.Why)
	}
	if err != nil {
		return nil, errors.Join(applyFailure(err), engine.Close())
	}
	return engine, nil
}

// applyFailure says what to do about an error of the transaction room.
func applyFailure(err error) error {
	if err == nil {
		return nil
	}
	f := &failure{code: exitFailed, err: err}
	switch {
	case errors.Is(err, os.ErrPermission):
		f.code, f.next = exitPrivilege, []string{"changing the host needs root: sudo rxsteer …"}
	case errors.Is(err, apply.ErrIdentity), errors.Is(err, apply.ErrStale):
		f.code, f.next = exitRolledBack, []string{"nothing was changed; make a new plan: rxsteer plan -w PLAN"}
	case errors.Is(err, apply.ErrUnfinished):
		f.next = []string{"rxsteer history shows it"}
	}
	return f
}

// resultExit is the exit code of a transaction's end.
func resultExit(r *apply.Result) error {
	if r.State == apply.RolledBack || r.State == apply.Partial {
		return exitWith(exitRolledBack)
	}
	if slices.ContainsFunc(r.Steps, func(s apply.Step) bool { return s.Outcome == apply.Stale }) {
		return exitWith(exitRolledBack)
	}
	return nil
}

// meter hands the samples of one running sampler to a transaction, so that programs are
// attached once and not for each window. It keeps what was measured before and after.
type meter struct {
	*sampling
	ended  bool
	err    error
	phase  string
	watch  *progress
	before []*collector.Sample
	after  []*collector.Sample
}

func (e *env) openMeter(ctx context.Context, h *hostRooms, level attention, window time.Duration) (*meter, error) {
	if h.nics == nil {
		if _, err := h.inventory(ctx); err != nil {
			return nil, err
		}
	}
	s, err := e.startSampler(context.WithoutCancel(ctx), h, level, window)
	if err != nil {
		return nil, err
	}
	if err := refused(s.sampler); err != nil && level > 0 {
		return nil, errors.Join(err, s.end())
	}
	return &meter{sampling: s}, nil
}

// judging is the level to judge at: one and the same before and after, or measuring itself would make the difference.
func judging(level attention, report *diagnose.Report) attention {
	switch {
	case level != auto:
		return level
	case report != nil && report.Closer != "":
		return 2
	}
	return 1
}

// close ends the sampler; a second close does nothing.
func (m *meter) close() error {
	if !m.ended {
		m.ended = true
		m.err = m.end()
	}
	return m.err
}

// sample waits for a window that began no earlier than now; windows that follow each other are
// delivered without a gap.
func (m *meter) sample(ctx context.Context, d time.Duration) (*collector.Sample, error) {
	from := time.Now().Add(-d / 4)
	for {
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("measure: %w", ctx.Err())
		case err := <-m.done:
			m.stop()
			m.ended = true
			return nil, errors.Join(errors.New("measure: the sampler stopped"), err)
		case s := <-m.samples:
			if m.watch != nil {
				m.watch.step(s)
			}
			if s.Start.Before(from) {
				continue
			}
			if m.phase == "measure after" {
				m.after = append(m.after, s)
			} else {
				m.before = append(m.before, s)
			}
			return s, nil
		}
	}
}

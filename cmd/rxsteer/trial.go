package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/rxsteer/rxsteer/collector"
	"github.com/rxsteer/rxsteer/steer/apply"
	"github.com/rxsteer/rxsteer/steer/plan"
)

func trialCommand(e *env) *cobra.Command {
	c := &cobra.Command{
		Use:   "trial [PLAN] [flags] [-- COMMAND …]",
		Short: "Try each change alone and all together; keep the best or nothing",
		Long: `Try a plan the staged way: measure as it is, with each step alone (the changes of
one setting of one device) and with all of them, in rounds that alternate, so that a
load that drifts drifts for all. What is better than the baseline beyond the scatter
of the measurements, and than every smaller choice, is kept as a transaction;
otherwise everything is put back. One verdict on a bundle of changes would hide a
harmful one in it.

The load is the host's own, or that of COMMAND, which runs while it is measured and is
started again when it ends. With COMMAND the best is measured once more near full
load: with as many copies of COMMAND as it takes for a CPU to be busy with receiving,
for drops, or until more copies bring no more packets.

Every try is a transaction that is rolled back: a trial that is interrupted or killed
leaves the host as it was, the latter when rxsteer runs next, or, with
--confirm-within, at once.

Exit status 4 says that nothing was kept.`,
		Example: `  rxsteer trial fix.yaml
  rxsteer trial fix.yaml --for 60s -- iperf3 -c 10.0.0.2 -R -P 8 -t 30
  rxsteer trial --interface eth0 --yes -o json`,
		GroupID: groupSteer,
	}
	var f applyFlags
	var rounds, copies int
	out := addOutput(c, "json")
	c.Flags().DurationVar(&f.duration, "for", 30*time.Second, "measure each choice for this `TIME`, all rounds together")
	c.Flags().IntVar(&rounds, "rounds", 3, "alternate this often; from 3 on whole rounds are compared, not the windows in them")
	c.Flags().IntVar(&copies, "copies", 16, "start at most this many copies of COMMAND to come near full load; 1 does not try")
	f.add(c, e)
	c.RunE = func(c *cobra.Command, args []string) error {
		var command []string
		if n := c.ArgsLenAtDash(); n >= 0 {
			args, command = args[:n], args[n:]
			if len(command) == 0 {
				return usage("after -- comes the command that makes the load")
			}
		}
		if len(args) > 1 {
			return usage("%d plans are given, want one at most; a command comes after --", len(args))
		}
		if err := out.check(); err != nil {
			return err
		}
		if err := f.check(); err != nil {
			return err
		}
		switch {
		case f.duration == 0:
			return usage("--for 0: a trial is nothing but measuring")
		case rounds < 1 || rounds > 100:
			return usage("--rounds %d: want 1 … 100", rounds)
		case copies < 1 || copies > 1024:
			return usage("--copies %d: want 1 … 1024", copies)
		}
		o := apply.TrialOptions{Options: f.options(e), Rounds: rounds, Copies: copies}
		o.By += ", trial"
		o.Windows = max((o.Windows+rounds-1)/rounds, 3)
		if len(command) > 0 {
			run, err := newCommandLoad(command)
			if err != nil {
				return err
			}
			o.Load = run.start
		}
		return e.trial(c.Context(), &f, o, args, out.format == "json")
	}
	return c
}

func (e *env) trial(ctx context.Context, f *applyFlags, o apply.TrialOptions, args []string, asJSON bool) error {
	h, err := e.openHost()
	if err != nil {
		return err
	}
	defer h.close()
	none := &apply.TrialResult{Arms: []apply.Arm{}, Best: "baseline", Why: "the plan has no changes"}
	pl, report, err := e.agree(ctx, h, f, args, asJSON, none, ", one after the other and together,")
	if err != nil || pl == nil {
		return err
	}
	each := time.Duration(o.Rounds) * (time.Duration(o.Windows)*o.Window + o.Window/2)
	p := e.newProgress("starting", time.Duration(steps(pl)+2)*each)
	defer p.end()
	m := &meter{ended: true}
	engine, err := e.openEngine(ctx, h, f.stateDir, p.say, func(ctx context.Context, d time.Duration) (*collector.Sample, error) { return m.sample(ctx, d) })
	if err != nil {
		return err
	}
	if m, err = e.openMeter(ctx, h, judging(f.level, report), f.window()); err != nil {
		return errors.Join(err, engine.Close())
	}
	m.watch = p
	defer m.close()
	res, err := engine.Trial(ctx, pl, o)
	p.end()
	err = errors.Join(err, m.close(), engine.Close())
	if res == nil {
		return applyFailure(err)
	}
	if asJSON {
		if perr := printJSON(e.stdout, res); perr != nil {
			return perr
		}
	} else {
		printTrial(e.stdout, res, e.palette(), e.textWidth())
	}
	switch {
	case err != nil:
		return applyFailure(err)
	case res.Kept == nil:
		return exitWith(exitRolledBack)
	}
	return resultExit(res.Kept)
}

func printTrial(w io.Writer, r *apply.TrialResult, p palette, width int) {
	printArms(w, r.Arms, p)
	for _, a := range r.Arms {
		if a.Verdict != nil {
			wrap(w, width, fmt.Sprintf("  %s: %s. ", printable(a.Name), p.word(a.Verdict.Word)), "    ", a.Verdict.Why)
		}
	}
	fmt.Fprintln(w)
	if len(r.Full) > 0 {
		fmt.Fprintln(w, p.bold(fmt.Sprintf("Near full load, with %s of the command", plural(r.Copies, "copy"))))
		printArms(w, r.Full, p)
		if v := r.Full[1].Verdict; v != nil {
			wrap(w, width, fmt.Sprintf("  %s: %s. ", printable(r.Full[1].Name), p.word(v.Word)), "    ", v.Why)
		}
		fmt.Fprintln(w)
	} else if r.FullWhy != "" {
		wrap(w, width, "Not measured near full load: ", "  ", r.FullWhy)
	}
	switch {
	case r.Best == "":
	case r.Kept != nil && r.Kept.State == apply.Unconfirmed:
		wrap(w, width, p.green("Best: "+printable(r.Best))+". ", "  ", r.Why)
		fmt.Fprintf(w, "Undone by itself in %s unless confirmed: rxsteer confirm %s\n", r.Kept.Confirm.Round(time.Second), r.Kept.ID)
	case r.Kept != nil && r.Kept.State == apply.Kept:
		wrap(w, width, p.green("Best: "+printable(r.Best))+". ", "  ", r.Why)
		fmt.Fprintf(w, "Kept as transaction %s; undo it with: rxsteer rollback %s\n", r.Kept.ID, r.Kept.ID)
	default:
		wrap(w, width, p.yellow("Nothing was kept")+": ", "  ", r.Why)
	}
}

// printArms is the figures of each arm; those of the baseline are what the others were compared with.
func printArms(w io.Writer, arms []apply.Arm, p palette) {
	t := newTable("  ", "", ">packets/s", ">dropped", ">hottest CPU", ">p99", ">ns/packet", "verdict")
	for i, a := range arms {
		v := a.Verdict
		after := true
		if i == 0 && len(arms) > 1 {
			v, after = arms[1].Verdict, false
		}
		if v == nil {
			t.row(a.Name, "", "", "", "", "", "")
			continue
		}
		figure := func(name, format string, scale float64) string {
			k := slices.IndexFunc(v.Measures, func(m apply.Measure) bool { return m.Name == name })
			if k < 0 {
				return ""
			}
			x := v.Measures[k].Before
			if after {
				x = v.Measures[k].After
			}
			return fmt.Sprintf(format, x*scale)
		}
		word := ""
		if a.Verdict != nil {
			word = string(v.Word)
		}
		t.row(a.Name, figure("packets_delivered_per_s", "%.0f", 1), figure("dropped_of_offered_ratio", "%.2f %%", 100),
			figure("hottest_cpu_receive_softirq_ratio", "%.1f %%", 100), figure("latency_p99_ns", "%.0f µs", 1e-3), figure("receive_softirq_per_packet_ns", "%.0f", 1), word)
	}
	t.print(w, p)
}

// steps is how often a transaction of a plan is judged.
func steps(pl *plan.Plan) int {
	n := 0
	for i, c := range pl.Changes {
		if i == 0 || c.Knob != pl.Changes[i-1].Knob || c.Target.Device() != pl.Changes[i-1].Target.Device() {
			n++
		}
	}
	return n
}

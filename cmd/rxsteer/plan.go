package main

import (
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/rxsteer/rxsteer/internal/cpuset"
	"github.com/rxsteer/rxsteer/internal/host/knob"
	"github.com/rxsteer/rxsteer/steer/diagnose"
	"github.com/rxsteer/rxsteer/steer/plan"
)

func planCommand(e *env) *cobra.Command {
	c := &cobra.Command{
		Use:   "plan [IFACE…]",
		Short: "Say what to change; nothing is written to the host",
		Long: `Measure, diagnose, and say what to change and in which order: each change with
the findings it serves, its risk to traffic, the command a person would type, and
its undo. Nothing is written to the host. "Nothing to do" is an answer, with its
reason.

Each change is shown as what is taken away (-) and what comes for it (+), under
what becomes of the setting: + where there was none, - where none is left, ~ where
another takes its place. The goal says what for: throughput, latency, balanced, or
auto, which reads it from the traffic and says why.

A policy file (--policy) bounds what a plan may hold, in YAML:

  devices: [eth0]               # nothing else is set
  cpus: 0-7                     # where work may be placed
  knobs: [rss-table, rps-cpus]  # nothing else is set
  never: [channels]             # not these
  risks: [reorder]              # none beside these
  ranges:
  - {knob: coalesce, field: rx-usecs, min: 3, max: 200}
  flows: 5000                   # that are open at a time, where you know it,
  long_flows: true              # and that they last: only then RFS follows RPS

As a script (-o shell) a table is one that ethtool has words for, which may fit
the load less well than the one that rxsteer apply writes.

The plan file (-w) is YAML; read it, edit it, then give it to rxsteer apply. It
holds for this boot, network namespace and device only.`,
		Example: `  rxsteer plan
  rxsteer plan eth0 --goal latency -w fix.yaml
  rxsteer plan -o shell > fix.sh      # the script a person would run: sh fix.sh, sh fix.sh undo`,
		GroupID:           groupLook,
		ValidArgsFunction: e.completeInterfaces,
	}
	out := addOutput(c, "json", "shell")
	m := addMeasure(c)
	addFrom(c, m)
	want := addWish(c)
	file := c.Flags().StringP("write", "w", "", "write the plan to `FILE` (YAML)")
	c.RunE = func(c *cobra.Command, names []string) error {
		if err := out.check(); err != nil {
			return err
		}
		goal, policy, err := want.read()
		if err != nil {
			return err
		}
		s, err := e.look(c.Context(), m, names)
		if err != nil {
			return err
		}
		pl := makePlan(s, goal, policy, out.format == "shell")
		if *file != "" {
			if err := writePlan(*file, pl); err != nil {
				return err
			}
		}
		switch out.format {
		case "json":
			return printJSON(e.stdout, pl)
		case "shell":
			_, err := io.WriteString(e.stdout, pl.Shell())
			return err
		}
		printPlan(e.stdout, pl, s.report, e.palette(), e.textWidth())
		if *file != "" {
			fmt.Fprintf(e.stdout, "\nWritten to %s; apply it with: rxsteer apply %s\n", *file, *file)
		}
		return nil
	}
	return c
}

var goals = []string{string(plan.Auto), string(plan.Throughput), string(plan.Latency), string(plan.Balanced)}

// wish is what a plan shall be for and may hold.
type wish struct{ goal, policy string }

func addWish(c *cobra.Command) *wish {
	w := &wish{}
	c.Flags().StringVar(&w.goal, "goal", string(plan.Auto), "plan for this `GOAL`: "+strings.Join(goals, ", "))
	c.RegisterFlagCompletionFunc("goal", cobra.FixedCompletions(goals, cobra.ShellCompDirectiveNoFileComp))
	c.Flags().StringVar(&w.policy, "policy", "", "plan within the bounds of this `FILE` (YAML)")
	return w
}

func (w *wish) read() (plan.Goal, plan.Policy, error) {
	if !slices.Contains(goals, w.goal) {
		return "", plan.Policy{}, usage("--goal %s: want one of %s", w.goal, strings.Join(goals, ", "))
	}
	if w.policy == "" {
		return plan.Goal(w.goal), plan.Policy{}, nil
	}
	text, err := os.ReadFile(w.policy)
	if err != nil {
		return "", plan.Policy{}, fmt.Errorf("read policy: %w", err)
	}
	p, err := plan.ParsePolicy(w.policy, text)
	if err != nil {
		return "", plan.Policy{}, fmt.Errorf("read policy: %w", err)
	}
	return plan.Goal(w.goal), *p, nil
}

// printPlan shows a plan; r is what it was made from, nil for a plan of a file.
func printPlan(w io.Writer, pl *plan.Plan, r *diagnose.Report, p palette, width int) {
	var added, changed, removed int
	for _, c := range pl.Changes {
		mark := p.yellow("~")
		switch {
		case nothing(c.From):
			added++
			mark = p.green("+")
		case nothing(c.To):
			removed++
			mark = p.red("-")
		default:
			changed++
		}
		risk := "risk: " + string(c.Risk)
		if c.Support != "" && !c.Support.Run() {
			risk += "; never tried on this driver"
		}
		fmt.Fprintf(w, "%s %s  %s\n", mark, p.bold(c.Ref().String()), p.dim("("+ids(c.Findings)+"; "+risk+")"))
		fmt.Fprintf(w, "    %s\n", p.red("- "+clip(shown(c.From), width-6)))
		fmt.Fprintf(w, "    %s\n", p.green("+ "+clip(shown(c.To), width-6)))
		wrap(w, width, "  why:  ", "        ", c.Why)
		if c.Expect != "" {
			wrap(w, width, "  then: ", "        ", c.Expect)
		}
		fmt.Fprintf(w, "  do:   %s\n", c.Command)
		fmt.Fprintf(w, "  undo: %s\n\n", c.Undo)
	}
	if len(pl.Changes) == 0 {
		fmt.Fprintln(w, p.green("Nothing to change."))
	} else {
		fmt.Fprintf(w, "%s: %d to add, %d to change, %d to remove; goal %s.\n", p.bold(plural(len(pl.Changes), "change")), added, changed, removed, pl.Goal)
		if g := grants(pl); g != "" {
			wrap(w, width, "", "", "rxsteer apply makes them only with "+g+".")
		}
	}
	reasons := pl.Reasons
	if len(pl.Changes) == 0 && r != nil { // why there is nothing to do
		for _, f := range r.Findings {
			reasons = append(reasons, string(f.ID)+" "+f.Subject+": "+f.Summary)
		}
		reasons = append(reasons, r.Checked...)
	}
	if len(reasons) > 0 {
		fmt.Fprintln(w)
	}
	for _, x := range reasons {
		wrap(w, width, "  · ", "    ", x)
	}
}

// grants are the flags without which apply refuses a plan, "" none.
func grants(pl *plan.Plan) string {
	has := func(f func(plan.Change) bool) bool { return slices.ContainsFunc(pl.Changes, f) }
	var allow []string
	for _, r := range []plan.Risk{plan.Pause, plan.Flap} {
		if has(func(c plan.Change) bool { return c.Risk == r }) {
			allow = append(allow, string(r))
		}
	}
	confirm := len(allow) > 0
	if has(func(c plan.Change) bool { return c.Support != "" && !c.Support.Run() }) {
		allow = append(allow, untested)
	}
	if len(allow) == 0 {
		return ""
	}
	flags := "--allow " + strings.Join(append([]string{string(plan.Reorder)}, allow...), ",")
	if confirm {
		flags += " --confirm-within 60s"
	}
	return flags
}

// nothing reports whether a value says that there is none: no rule, no CPUs, off.
func nothing(v knob.Value) bool {
	return v.IsAbsent() || v.Equal(knob.Text("")) || v.Equal(knob.Int(0))
}

// shown is a setting's value for people; an empty set of CPUs or text is "none", and of a list
// what repeats is counted.
func shown(v knob.Value) string {
	var list []int
	if v.Equal(knob.DefaultTable()) {
		return "the driver's own"
	} else if v.Decode(&list) == nil {
		return runs(list)
	}
	if s := v.String(); s != "" && s != "-" {
		return s
	}
	return "none"
}

// runs writes 0 0 0 1 2 2 as 0×3 1 2×2, and queues in turn as 0…3 in turn.
func runs(list []int) string {
	top := 0
	for _, q := range list {
		top = max(top, q)
	}
	turn := len(list) > top+1 && top > 0
	for i, q := range list {
		turn = turn && q == i%(top+1)
	}
	if turn {
		return fmt.Sprintf("0…%d in turn, %d buckets", top, len(list))
	}
	var out []string
	for i := 0; i < len(list); {
		n := 1
		for i+n < len(list) && list[i+n] == list[i] {
			n++
		}
		if n > 1 {
			out = append(out, fmt.Sprintf("%d×%d", list[i], n))
		} else {
			out = append(out, fmt.Sprint(list[i]))
		}
		i += n
	}
	return strings.Join(out, " ")
}

// clip shortens a long list (an indirection table) in the middle of a line.
func clip(s string, n int) string {
	r := []rune(s)
	if len(r) <= n {
		return s
	}
	return string(r[:n-1]) + "…"
}

func ids(list []diagnose.ID) string {
	out := make([]string, len(list))
	for i, id := range list {
		out[i] = string(id)
	}
	return strings.Join(out, " ")
}

func writePlan(file string, pl *plan.Plan) error {
	text, err := pl.YAML()
	if err != nil {
		return err
	}
	if err := os.WriteFile(file, text, 0o644); err != nil {
		return fmt.Errorf("write plan: %w", err)
	}
	return nil
}

// readPlan reads a plan file for the host with these CPUs online.
func readPlan(file string, online cpuset.Set) (*plan.Plan, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("read plan: %w", err)
	}
	pl, err := plan.Parse(file, text, online)
	if err != nil {
		return nil, fmt.Errorf("read plan: %w", err)
	}
	return pl, nil
}

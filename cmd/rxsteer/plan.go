package main

import (
	"fmt"
	"io"
	"os"
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
	goal := addGoal(c)
	file := c.Flags().StringP("write", "w", "", "write the plan to `FILE` (YAML)")
	c.RunE = func(c *cobra.Command, names []string) error {
		if err := out.check(); err != nil {
			return err
		}
		g, err := parseGoal(*goal)
		if err != nil {
			return err
		}
		s, err := e.look(c.Context(), m, names)
		if err != nil {
			return err
		}
		pl := makePlan(s, g)
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

func addGoal(c *cobra.Command) *string {
	goal := c.Flags().String("goal", string(plan.Auto), "plan for this `GOAL`: "+strings.Join(goals, ", "))
	c.RegisterFlagCompletionFunc("goal", cobra.FixedCompletions(goals, cobra.ShellCompDirectiveNoFileComp))
	return goal
}

func parseGoal(text string) (plan.Goal, error) {
	for _, g := range goals {
		if g == text {
			return plan.Goal(g), nil
		}
	}
	return "", usage("--goal %s: want one of %s", text, strings.Join(goals, ", "))
}

// printPlan shows a plan; r is what it was made from, nil for a plan of a file.
func printPlan(w io.Writer, pl *plan.Plan, r *diagnose.Report, p palette, width int) {
	if len(pl.Changes) == 0 {
		fmt.Fprintln(w, p.green("Nothing to change."))
	} else {
		fmt.Fprintf(w, "%s, goal %s\n", p.bold(plural(len(pl.Changes), "change")), pl.Goal)
	}
	for i, c := range pl.Changes {
		fmt.Fprintln(w)
		fmt.Fprintf(w, "%d. %s  %s → %s  %s\n", i+1, p.bold(c.Ref().String()),
			p.red(clip(shown(c.From), 30)), p.green(clip(shown(c.To), 30)), p.dim("("+ids(c.Findings)+"; risk: "+string(c.Risk)+")"))
		wrap(w, width, "   ", "   ", c.Why)
		if c.Expect != "" {
			wrap(w, width, "   then: ", "   ", c.Expect)
		}
		fmt.Fprintf(w, "   do:   %s\n", c.Command)
		fmt.Fprintf(w, "   undo: %s\n", c.Undo)
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

// shown is a setting's value for people; an empty set of CPUs or text is "none".
func shown(v knob.Value) string {
	if s := v.String(); s != "" {
		return s
	}
	return "none"
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

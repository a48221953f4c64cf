package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/rxsteer/rxsteer/steer/diagnose"
)

func diagnoseCommand(e *env) *cobra.Command {
	c := &cobra.Command{
		Use:   "diagnose [IFACE…]",
		Short: "Measure, and say what is wrong, worst first, with the numbers",
		Long: `Measure for a while and say what is wrong with the receive path, worst first:
each finding is one cause, with the numbers that prove it, what was ruled out and
the remedy. What could not be measured is listed with the conclusions that are
weaker for it. Nothing is written to the host.

With --from it reads a recording, a bundle, or a folder of what people paste
(interrupts, softnet_stat, ethtool-S.eth0.txt …; see docs/json.md), instead of this
host.

Exit status 3 says that there is a finding at or above --fail-on.`,
		Example: `  rxsteer diagnose
  rxsteer diagnose eth0 --for 30s
  rxsteer diagnose -o json | jq '.findings[] | {id, severity, summary}'
  rxsteer diagnose --from ticket-4711.tar.gz
  rxsteer diagnose --fail-on critical || echo "receive path needs attention"`,
		GroupID:           groupLook,
		ValidArgsFunction: e.completeInterfaces,
	}
	out := addOutput(c, "json")
	m := addMeasure(c)
	addFrom(c, m)
	baseline := c.Flags().String("baseline", "", "also say what differs from the settings saved in `FILE` (rxsteer baseline save)")
	failOn := c.Flags().String("fail-on", "warning", "exit 3 from this `SEVERITY` on: info, warning, critical, or never")
	c.RegisterFlagCompletionFunc("fail-on", cobra.FixedCompletions([]string{"info", "warning", "critical", "never"}, cobra.ShellCompDirectiveNoFileComp))
	c.RunE = func(c *cobra.Command, names []string) error {
		if err := out.check(); err != nil {
			return err
		}
		limit, err := parseFailOn(*failOn)
		if err != nil {
			return err
		}
		if *baseline != "" {
			if m.baseline, err = readBaseline(*baseline); err != nil {
				return err
			}
		}
		seen, err := e.look(c.Context(), m, names)
		if err != nil {
			return err
		}
		if out.format == "json" {
			err = printJSON(e.stdout, seen.report)
		} else {
			if seen.captured != "" {
				fmt.Fprintf(e.stdout, "Read from %s\n", seen.captured)
			}
			err = printReport(e.stdout, seen.report, e.palette(), e.textWidth())
		}
		if err != nil {
			return err
		}
		if worst, any := seen.report.Worst(); any && worst >= limit {
			return exitWith(exitFindings)
		}
		return nil
	}
	return c
}

// parseFailOn reads --fail-on; "never" is above every severity.
func parseFailOn(text string) (diagnose.Severity, error) {
	if text == "never" {
		return diagnose.Critical + 1, nil
	}
	s, err := diagnose.ParseSeverity(text)
	if err != nil {
		return 0, usage("--fail-on %s: want info, warning, critical or never", text)
	}
	return s, nil
}

func printReport(w io.Writer, r *diagnose.Report, p palette, width int) error {
	how := "kernel counters only (level 0)"
	if r.Level >= 1 {
		how = "per-poll programs (level 1)"
	}
	fmt.Fprintf(w, "Measured %.1f s with %s\n", r.IntervalS, how)
	printLoads(w, r.Loads, p)
	if len(r.Findings) == 0 {
		fmt.Fprintln(w, "\n"+p.green("No finding."))
	}
	for i := range r.Findings {
		fmt.Fprintln(w)
		printFinding(w, &r.Findings[i], p, width)
	}
	if len(r.Checked) > 0 {
		fmt.Fprintln(w, "\n"+p.bold("Checked, in order"))
		for _, c := range r.Checked {
			wrap(w, width, "  · ", "    ", c)
		}
	}
	if len(r.Unmeasured) > 0 {
		fmt.Fprintln(w, "\n"+p.bold("Not measured"))
		for _, u := range r.Unmeasured {
			text := u.What + ": " + u.Why
			if u.Weakens != "" {
				text += " (weakens " + u.Weakens + ")"
			}
			wrap(w, width, "  · ", "    ", text)
		}
	}
	return nil
}

// busyLoads is how many CPUs the table of loads shows.
const busyLoads = 16

func printLoads(w io.Writer, loads []diagnose.Load, p palette) {
	if len(loads) == 0 {
		return
	}
	shown, rest := loads, 0
	if len(loads) > busyLoads {
		shown = nil
		for _, l := range loads {
			if l.NetRX >= 0.01 && len(shown) < busyLoads {
				shown = append(shown, l)
			}
		}
		rest = len(loads) - len(shown)
	}
	fmt.Fprintln(w)
	t := newTable("  ", ">CPU", ">receive", ">other", ">idle", ">stolen", ">packets/s", "")
	for _, l := range shown {
		t.row(fmt.Sprint(l.CPU), percent(l.NetRX), percent(l.Other), percent(l.Idle), percent(l.Steal), fmt.Sprintf("%.0f", l.Packets), bar(l.NetRX))
	}
	t.print(w, p)
	if rest > 0 {
		fmt.Fprintf(w, "  and %d more below 1 %% receive\n", rest)
	}
}

func percent(ratio float64) string { return fmt.Sprintf("%.1f %%", 100*ratio) }

// bar is twenty characters wide at 1.
func bar(ratio float64) string {
	n := int(20*min(max(ratio, 0), 1) + 0.5)
	return strings.Repeat("█", n) + strings.Repeat("·", 20-n)
}

func printFinding(w io.Writer, f *diagnose.Finding, p palette, width int) {
	paint := map[diagnose.Severity]func(string) string{diagnose.Info: p.dim, diagnose.Warning: p.yellow, diagnose.Critical: p.red}[f.Severity]
	head := fmt.Sprintf("%s %s %s: ", f.ID, f.Severity, f.Subject)
	var b strings.Builder
	wrap(&b, width, head, "  ", f.Summary)
	fmt.Fprint(w, strings.Replace(b.String(), strings.TrimSpace(head), paint(strings.TrimSpace(head)), 1))
	printEvidence(w, f.Evidence, p)
	for _, s := range f.Explains {
		wrap(w, width, "  explains "+string(s.ID)+" "+s.Subject+": ", "    ", s.Summary)
	}
	for _, r := range f.RuledOut {
		wrap(w, width, "  ruled out: ", "    ", r)
	}
	wrap(w, width, "  "+p.bold("remedy")+": ", "    ", f.Remedy)
}

func printEvidence(w io.Writer, ev diagnose.Evidence, p palette) {
	name := 0
	for _, f := range ev {
		name = max(name, len(factName(f)))
	}
	for _, f := range ev {
		fmt.Fprintf(w, "    %s  %s\n", p.dim(fmt.Sprintf("%-*s", name, factName(f))), f.Text())
	}
}

// factName is the name for people: the unit is part of the value.
func factName(f diagnose.Fact) string {
	n := strings.TrimSuffix(strings.TrimSuffix(f.Name, "_ratio"), "_per_s")
	return strings.ReplaceAll(n, "_", " ")
}

package main

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/rxsteer/rxsteer/collector"
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
	addStateDir(c, &m.stateDir)
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
			if m.baseline, err = e.baseline(*baseline); err != nil {
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
			printThinned(e.stdout, seen.sample, e.textWidth())
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

// printThinned says what was left out to stay inside the overhead budget.
func printThinned(w io.Writer, s *collector.Sample, width int) {
	if s == nil || s.Cost == nil || len(s.Cost.Thinned) == 0 {
		return
	}
	c := s.Cost
	wrap(w, width, "", "  ", fmt.Sprintf("Measuring took %s of cpu %d (budget %s): %s of the events were looked at; receive times are within %s. %s",
		percent(c.Hottest), c.CPU, percent(c.Budget), percent(c.Duty), percent(c.Error), strings.Join(c.Thinned, "; ")))
}

// closerText says why and how long packets were looked at, and what is known by that.
func closerText(r *diagnose.Report) string {
	var ids []string
	for _, f := range r.Findings {
		if f.Level >= 2 && !slices.Contains(ids, string(f.ID)) {
			ids = append(ids, string(f.ID))
		}
	}
	by := "; no finding rests on that"
	if len(ids) > 0 {
		by = ": " + strings.Join(ids, ", ") + " by that, the rest by level 1"
	}
	return fmt.Sprintf("Packets were looked at (level 2) for %.1f s, because %s%s", r.CloserS, r.Closer, by)
}

func printReport(w io.Writer, r *diagnose.Report, p palette, width int) error {
	how := "kernel counters only (level 0)"
	switch {
	case r.Level >= 2 && r.Closer == "":
		how = "per-poll programs and sampled packets (level 2)"
	case r.Level == 1 || r.Closer != "":
		how = "per-poll programs (level 1)"
	}
	switch {
	case r.SinceBoot:
		fmt.Fprintln(w, "One look at counters since boot: what they show may be long past")
	case r.Untimed:
		fmt.Fprintln(w, "Two looks at counters without times: only ratios mean something")
	case r.IntervalS == 0:
		fmt.Fprintln(w, "Nothing was measured: settings alone are judged")
	default:
		fmt.Fprintf(w, "Measured %.1f s with %s\n", r.IntervalS, how)
	}
	if r.Closer != "" {
		wrap(w, width, "", "  ", closerText(r))
	}
	if !r.SinceBoot {
		printLoads(w, r.Loads, p)
	}
	weaker := ""
	found := 0
	for i := range r.Findings {
		if f := &r.Findings[i]; f.ID == "RX901" {
			weaker, _ = f.Evidence.Get("weakens").(string)
			continue
		}
		found++
		fmt.Fprintln(w)
		printFinding(w, &r.Findings[i], p, width)
	}
	if found == 0 {
		fmt.Fprintln(w, "\n"+p.green("No finding."))
	}
	if len(r.Checked) > 0 {
		fmt.Fprintln(w, "\n"+p.bold("Looked at besides"))
		for _, c := range r.Checked {
			wrap(w, width, "  · ", "    ", c)
		}
	}
	printUnmeasured(w, r, weaker, p, width)
	return nil
}

// printUnmeasured is RX901 for people: what is missing, by its reason, and what is weaker for it.
func printUnmeasured(w io.Writer, r *diagnose.Report, weaker string, p palette, width int) {
	if len(r.Unmeasured) == 0 {
		return
	}
	text := ""
	if weaker != "" {
		text = fmt.Sprintf("(RX901; weaker for it: %s)", strings.ReplaceAll(weaker, " ", ", "))
	}
	fmt.Fprintln(w)
	if text == "" {
		fmt.Fprintln(w, p.bold("Not measured"))
	} else {
		wrap(w, width, p.bold("Not measured")+" ", "  ", text)
	}
	var whys []string
	what := map[string][]string{}
	for _, u := range r.Unmeasured {
		if u.What == diagnose.Remarked {
			continue // said on stderr when it was read
		}
		if what[u.Why] == nil {
			whys = append(whys, u.Why)
		}
		what[u.Why] = append(what[u.Why], u.What)
	}
	for _, why := range whys {
		wrap(w, width, "  · ", "    ", strings.Join(what[why], ", ")+": "+why)
	}
	for _, f := range r.Findings {
		if f.ID == "RX901" {
			wrap(w, width, "  "+p.bold("next")+": ", "    ", f.Remedy)
		}
	}
}

const (
	// busyLoads is how many CPUs the table of loads shows, and fewCPUs up to how many are all in it.
	busyLoads = 8
	fewCPUs   = 8
	// shownLoad is the receive part from which a CPU of many is shown.
	shownLoad = 0.25
	// sparkWidth is the CPUs or queues of one line of sparks.
	sparkWidth = 64
)

func printLoads(w io.Writer, loads []diagnose.Load, p palette) {
	told := slices.ContainsFunc(loads, func(l diagnose.Load) bool { return l.NetRX > 0 || l.Other > 0 || l.Steal > 0 })
	if !told {
		return
	}
	fmt.Fprintln(w)
	shown := loads
	if len(loads) > fewCPUs {
		all := make([]float64, len(loads))
		top := 0
		shown = nil
		for i, l := range loads {
			all[i] = l.NetRX
			if l.NetRX > loads[top].NetRX {
				top = i
			}
			if l.NetRX >= shownLoad && len(shown) < busyLoads {
				shown = append(shown, l)
			}
		}
		for i := 0; i < len(all); i += sparkWidth {
			end := min(i+sparkWidth, len(all))
			fmt.Fprintf(w, "  cpu %-4d %s %d\n", loads[i].CPU, spark(all[i:end], 1), loads[end-1].CPU)
		}
		fmt.Fprintf(w, "  receive softirq of each CPU, the most %s of cpu %d\n", percent(loads[top].NetRX), loads[top].CPU)
		if len(shown) == 0 {
			return
		}
		fmt.Fprintln(w)
	}
	t := newTable("  ", ">CPU", ">receive", ">other", ">idle", ">stolen", ">packets/s", "")
	for _, l := range shown {
		t.row(fmt.Sprint(l.CPU), percent(l.NetRX), percent(l.Other), percent(l.Idle), percent(l.Steal), fmt.Sprintf("%.0f", l.Packets), bar(l.NetRX))
	}
	t.print(w, p)
	if len(loads) > fewCPUs && len(shown) == busyLoads {
		fmt.Fprintln(w, "  -o json has all")
	}
}

func percent(ratio float64) string { return fmt.Sprintf("%.1f %%", 100*ratio) }

// bar is twenty characters wide at 1.
func bar(ratio float64) string {
	n := int(20*min(max(ratio, 0), 1) + 0.5)
	return strings.Repeat("█", n) + strings.Repeat("·", 20-n)
}

// spark is one character for each value, full at most.
func spark(values []float64, most float64) string {
	var b strings.Builder
	for _, v := range values {
		switch n := int(8*v/most + 0.5); {
		case v <= 0 || most <= 0:
			b.WriteRune('·')
		default:
			b.WriteRune([]rune("▁▂▃▄▅▆▇█")[min(max(n-1, 0), 7)])
		}
	}
	return b.String()
}

func printFinding(w io.Writer, f *diagnose.Finding, p palette, width int) {
	paint := map[diagnose.Severity]func(string) string{diagnose.Info: p.dim, diagnose.Warning: p.yellow, diagnose.Critical: p.red}[f.Severity]
	head := fmt.Sprintf("%s %s %s: ", f.ID, f.Severity, printable(f.Subject))
	var b strings.Builder
	wrap(&b, width, head, "  ", f.Summary)
	fmt.Fprint(w, strings.Replace(b.String(), strings.TrimSpace(head), paint(strings.TrimSpace(head)), 1))
	if n := len(f.Queues); n > 1 && n <= sparkWidth {
		line := fmt.Sprintf("    rx-0 %s rx-%d", spark(f.Queues, 1), n-1)
		caption := "share of each receive queue"
		if utf8.RuneCountInString(line)+2+len(caption) > width {
			fmt.Fprintf(w, "    %s\n%s\n", caption, line)
		} else {
			fmt.Fprintf(w, "%s  %s\n", line, caption)
		}
	}
	printEvidence(w, f.Evidence, p, width)
	for _, s := range f.Explains {
		wrap(w, width, "  explains "+string(s.ID)+" "+printable(s.Subject)+": ", "    ", s.Summary)
	}
	for _, r := range f.RuledOut {
		wrap(w, width, "  ruled out: ", "    ", r)
	}
	wrap(w, width, "  "+p.bold("remedy")+": ", "    ", f.Remedy)
}

// printEvidence is the facts in two columns where they fit.
func printEvidence(w io.Writer, ev diagnose.Evidence, p palette, width int) {
	const indent = 4
	half := (width - indent) / 2
	type cell struct{ name, value string }
	var short, long []cell
	name, value := 0, 0
	for _, f := range ev {
		c := cell{factName(f), f.Text()}
		if c.value == "" {
			c.value = "none"
		}
		if utf8.RuneCountInString(c.name)+utf8.RuneCountInString(c.value)+4 > half || utf8.RuneCountInString(c.value) > maxCell {
			long = append(long, c)
			continue
		}
		short = append(short, c)
		name, value = max(name, utf8.RuneCountInString(c.name)), max(value, utf8.RuneCountInString(c.value))
	}
	pad := func(s string, n int) string { return s + strings.Repeat(" ", max(0, n-utf8.RuneCountInString(s))) }
	columns := 2
	if 2*(name+value+2)+2+indent > width || len(short) < 4 {
		columns = 1
	}
	rows := (len(short) + columns - 1) / columns
	for i := range rows {
		line := strings.Repeat(" ", indent) + p.dim(pad(short[i].name, name)) + "  " + short[i].value
		if j := i + rows; j < len(short) {
			line = strings.Repeat(" ", indent) + p.dim(pad(short[i].name, name)) + "  " + pad(short[i].value, value) + "  " + p.dim(pad(short[j].name, name)) + "  " + short[j].value
		}
		fmt.Fprintln(w, line)
	}
	for _, c := range long {
		wrap(w, width, "    "+p.dim(c.name)+"  ", "      ", c.value)
	}
}

// maxCell is how long a value may be in a column.
const maxCell = 20

// factName is the name for people: the unit is part of the value.
func factName(f diagnose.Fact) string {
	n := strings.TrimSuffix(strings.TrimSuffix(f.Name, "_ratio"), "_per_s")
	return strings.ReplaceAll(n, "_", " ")
}

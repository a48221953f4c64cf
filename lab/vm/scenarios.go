package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/rxsteer/rxsteer/lab/scenarios"
	"github.com/rxsteer/rxsteer/lab/vm/qemu"
)

// lab is an open cache with the programs built for guests.
type lab struct {
	cache *qemu.Cache
	bin   []string
	close func()
	out   string // keeps the guests' files, "" nowhere
}

// openLab builds the programs, or takes them from the folder $RXSTEER_LAB_BIN.
func openLab(ctx context.Context) (*lab, error) {
	cache, err := qemu.OpenCache()
	if err != nil {
		return nil, err
	}
	if built := os.Getenv("RXSTEER_LAB_BIN"); built != "" {
		bin, err := filepath.Glob(filepath.Join(built, "rx*"))
		if err != nil || len(bin) == 0 {
			return nil, &qemu.Failure{Code: qemu.ExitLab, Line: fmt.Sprintf("find programs in RXSTEER_LAB_BIN: %d there (%v)", len(bin), err)}
		}
		return &lab{cache: cache, bin: bin, close: func() {}}, nil
	}
	dir, release, err := cache.Folder() // not in /tmp: one that is killed leaves a hundred megabytes
	if err != nil {
		return nil, err
	}
	fmt.Println("building the guests' programs")
	l := &lab{cache: cache, close: release}
	if l.bin, err = scenarios.BuildPrograms(ctx, dir); err != nil {
		l.close()
		return nil, err
	}
	return l, nil
}

// withLab runs a part of the lab alone.
func withLab(ctx context.Context, part func(l *lab) ([]line, error)) error {
	l, err := openLab(ctx)
	if err != nil {
		return err
	}
	defer l.close()
	_, err = part(l)
	return err
}

func list(_ context.Context, _ []string) error {
	all, err := scenarios.All()
	if err != nil {
		return err
	}
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	for _, s := range all {
		fmt.Fprintf(w, "(%s)\t%s\t%s\t%s\n", s.Issue, s.Name, machine(s.Machine), s.What)
	}
	return w.Flush()
}

func machine(m qemu.Machine) string {
	if d, err := m.WithDefaults(); err == nil {
		m = d
	}
	return m.String()
}

func runScenarios(ctx context.Context, args []string) error {
	set := flag.NewFlagSet("run", flag.ContinueOnError)
	verbose := set.Bool("v", false, "print the guest's output while it runs")
	out := set.String("out", "", "keep the files that each guest left below `DIR`")
	lasts := set.Duration("lasts", 0, "`time` for a scenario that goes on as long as one likes (soak)")
	if err := set.Parse(args); err != nil || set.NArg() == 0 {
		return flag.ErrHelp
	}
	var chosen []scenarios.Scenario
	for _, name := range set.Args() {
		s, err := scenarios.Find(name)
		if err != nil {
			return &qemu.Failure{Code: 2, Line: err.Error()}
		}
		if *lasts > 0 && s.Lasts > 0 {
			s.Lasts = *lasts
		}
		chosen = append(chosen, s)
	}
	return withLab(ctx, func(l *lab) ([]line, error) {
		l.out = *out
		return l.run(ctx, chosen, *verbose)
	})
}

// run runs scenarios one after another and prints each as it ends and one table.
func (l *lab) run(ctx context.Context, chosen []scenarios.Scenario, verbose bool) ([]line, error) {
	var output io.Writer
	if verbose {
		output = os.Stdout
	}
	var outcomes []*scenarios.Outcome
	for _, s := range chosen {
		if ctx.Err() != nil {
			break
		}
		fmt.Printf("--- (%s) %s: %s [%s]\n", s.Issue, s.Name, s.What, machine(s.Machine))
		o := scenarios.Run(ctx, l.cache, l.bin, s, output)
		printOutcome(o, verbose)
		if err := l.keep(o); err != nil {
			return nil, err
		}
		outcomes = append(outcomes, o)
	}
	var lines []line
	for _, o := range outcomes {
		var parts []string
		for _, section := range []string{"facts", "found", "planned", "achieved"} {
			if v := o.Sections[section]; v != "" && v != scenarios.None {
				parts = append(parts, fmt.Sprintf("%s %s", section, v))
			}
		}
		lines = append(lines, line{"(" + o.Scenario.Issue + ") " + o.Scenario.Name, machine(o.Scenario.Machine), strings.Join(parts, ", "), string(o.Verdict), o.Took})
	}
	err := table(outcomes)
	if n := len(chosen) - len(outcomes); n > 0 && err == nil {
		err = &qemu.Failure{Code: qemu.ExitLab, Line: fmt.Sprintf("interrupted: %d scenarios were not run", n)}
	}
	return lines, err
}

// keep writes what a guest left to out/SCENARIO.
func (l *lab) keep(o *scenarios.Outcome) error {
	if l.out == "" {
		return nil
	}
	dir := filepath.Join(l.out, o.Scenario.Name)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	for name, data := range o.Files {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o644); err != nil {
			return err
		}
	}
	return nil
}

func printOutcome(o *scenarios.Outcome, verbose bool) {
	if o.Log != "" && (o.Err != nil || o.Code() != qemu.ExitPass && !verbose) { // an error's log holds the console too
		fmt.Printf("the guest's log:\n%s\n", strings.TrimRight(o.Log, "\n"))
	}
	for _, f := range o.Findings {
		fmt.Println("found", f)
	}
	for _, f := range o.Failed {
		fmt.Println("NOT SO", f)
	}
	if o.Err != nil {
		fmt.Println(o.Err)
	}
	fmt.Printf("%s after %.1f s\n", o.Verdict, o.Took.Seconds())
}

// table prints all outcomes and returns the worst as an error: what is wrong with
// rxsteer before what is wrong with the lab, and what is only unavailable is no failure.
func table(outcomes []*scenarios.Outcome) error {
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "\n\tscenario\tmachine\tfacts\tfound\tplanned\tachieved\ts\tverdict")
	var failed, broken []string
	code := 0
	for _, o := range outcomes {
		s := o.Scenario
		cell := func(section string) scenarios.Verdict {
			if v, ok := o.Sections[section]; ok {
				return v
			}
			return scenarios.None
		}
		fmt.Fprintf(w, "(%s)\t%s\t%s\t%s\t%s\t%s\t%s\t%.0f\t%s\n", s.Issue, s.Name, machine(s.Machine),
			cell("facts"), cell("found"), cell("planned"), cell("achieved"), o.Took.Seconds(), o.Verdict)
		switch o.Code() {
		case qemu.ExitPass, qemu.ExitUnavailable:
		case qemu.ExitAssertion:
			failed = append(failed, s.Name)
		default:
			broken = append(broken, s.Name)
			code = o.Code()
		}
	}
	if err := w.Flush(); err != nil {
		return err
	}
	switch {
	case len(failed) > 0:
		return &qemu.Failure{Code: qemu.ExitAssertion, Line: "failed: " + strings.Join(append(failed, broken...), ", ")}
	case len(broken) > 0:
		return &qemu.Failure{Code: code, Line: "the lab could not run: " + strings.Join(broken, ", ")}
	case len(outcomes) == 1 && outcomes[0].Code() == qemu.ExitUnavailable:
		return outcomes[0].Err
	}
	return nil
}

// runCI is two kernels, igb and virtio: scenarios that are marked ci, and the matrix.
func runCI(ctx context.Context, _ []string) error {
	return everything(ctx, func(s scenarios.Scenario) bool { return s.CI }, ciMatrix, ciTruth, ci)
}

func runAll(ctx context.Context, _ []string) error {
	return everything(ctx, func(scenarios.Scenario) bool { return true }, fullMatrix(), fullTruth(), full)
}

// extent is how much of the lab everything runs.
type extent int

const (
	ci   extent = iota // what make check has time for
	full               // also the tests of knobs on each driver, persist, the image, kill -9 and the package
)

// line is a row of the one table of everything.
type line struct {
	what, machine, result, verdict string
	took                           time.Duration
}

// begin says that a part begins; parts run side by side.
func begin(what, machine string) { fmt.Printf("--- %s [%s]\n", what, machine) }

// end says what came of it.
func (x line) end() {
	fmt.Printf("%s: %s [%s] after %.1f s: %s\n", x.verdict, x.what, x.machine, x.took.Seconds(), x.result)
}

// of is the line of a part that ended with an error or none; it says so, with the log that the error holds.
func (x line) of(err error) ([]line, error) {
	if err != nil {
		x.verdict = verdictOf(err)
	}
	if f, ok := errors.AsType[*qemu.Failure](err); ok && f.Log != "" {
		fmt.Println(strings.TrimRight(f.Log, "\n"))
		f.Log = ""
	}
	x.end()
	return []line{x}, err
}

// labelled writes whole lines to standard output, each with the name of the part that says it.
type labelled struct {
	name string
	rest []byte
}

func (w *labelled) Write(p []byte) (int, error) {
	w.rest = append(w.rest, p...)
	end := bytes.LastIndexByte(w.rest, '\n') + 1
	for l := range bytes.Lines(w.rest[:end]) {
		if _, err := fmt.Printf("%s: %s", w.name, l); err != nil {
			return 0, err
		}
	}
	w.rest = w.rest[end:]
	return len(p), nil
}

// verdictOf is the verdict of a run that ended with an error.
func verdictOf(err error) string {
	switch qemu.ExitCode(err) {
	case qemu.ExitAssertion:
		return string(scenarios.Fail)
	case qemu.ExitUnavailable:
		return string(scenarios.Unavailable)
	}
	return string(scenarios.Broken)
}

// step is a part of everything.
type step func() ([]line, error)

// beside runs steps two at a time, as the host has CPUs: none of them asserts what hangs on time. Its error is that of a
// failed assertion before others.
func beside(steps ...step) step {
	return func() ([]line, error) {
		lines, errs := make([][]line, len(steps)), make([]error, len(steps))
		var g errgroup.Group
		g.SetLimit(2)
		for i, s := range steps {
			g.Go(func() error { lines[i], errs[i] = s(); return nil })
		}
		_ = g.Wait() // each keeps its own
		slices.SortStableFunc(errs, func(a, b error) int {
			worse := func(err error) int {
				if qemu.ExitCode(err) == qemu.ExitAssertion {
					return 0
				}
				return 1
			}
			return worse(a) - worse(b)
		})
		return slices.Concat(lines...), errors.Join(errs...)
	}
}

// ciTries is how often a step of make check runs at most: guests are emulated, and a host that does other work too may
// be late with everything. A fault fails each time; the table tells which try passed. The whole lab tries once.
const ciTries = 3

// everything runs the matrix, the truth of the map and the chosen scenarios, in full also persist, the image, kill -9 and the package, and
// goes on after a failure. Its exit code is that of a failed assertion before that of a lab that could not run.
func everything(ctx context.Context, take func(scenarios.Scenario) bool, kernels, kinds []qemu.Machine, how extent) error {
	start := time.Now()
	all, err := scenarios.All()
	if err != nil {
		return err
	}
	l, err := openLab(ctx)
	if err != nil {
		return err
	}
	defer l.close()
	var chosen []scenarios.Scenario
	for _, s := range all {
		if take(s) {
			chosen = append(chosen, s)
		}
	}
	var worst error
	var lines []line
	maps := step(func() ([]line, error) { return l.truth(ctx, kinds, how == full, 2) })
	if how == full {
		igb := qemu.Machine{NIC: "igb"}
		maps = beside(
			func() ([]line, error) { return l.truth(ctx, kinds, true, 1) },
			func() ([]line, error) { return l.persist(ctx, igb) },
			func() ([]line, error) { return l.image(ctx) },
			func() ([]line, error) { return l.kill(ctx, igb, killRounds) })
	}
	steps := []step{
		func() ([]line, error) { return l.matrix(ctx, kernels) },
		maps,
		func() ([]line, error) { return l.run(ctx, chosen, false) },
	}
	if how == full {
		steps = append(steps, func() ([]line, error) { return l.packages(ctx, qemu.Machine{NIC: "igb"}) }) // alone: watchdogs run in it
	}
	for _, step := range steps {
		if ctx.Err() != nil {
			break // the table of what there is
		}
		more, err := step()
		for try := 2; how == ci && err != nil && qemu.ExitCode(err) != qemu.ExitUnavailable && ctx.Err() == nil && try <= ciTries; try++ {
			fmt.Fprintf(os.Stderr, "rxlab: %v: try %d of %d\n", err, try, ciTries)
			more, err = step()
			for i := range more {
				more[i].result += fmt.Sprintf(", try %d", try)
			}
		}
		lines = append(lines, more...)
		if qemu.ExitCode(err) == qemu.ExitUnavailable {
			continue // its line says so
		}
		if err != nil && (worst == nil || qemu.ExitCode(err) == qemu.ExitAssertion) {
			if worst != nil {
				fmt.Fprintln(os.Stderr, "rxlab:", worst)
			}
			worst = err
		} else if err != nil {
			fmt.Fprintln(os.Stderr, "rxlab:", err)
		}
	}
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "\nall\tmachine\tresult\ts\tverdict")
	for _, x := range lines {
		fmt.Fprintf(w, "%s\t%s\t%s\t%.0f\t%s\n", x.what, x.machine, x.result, x.took.Seconds(), x.verdict)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	fmt.Printf("\nthe lab took %.0f s\n", time.Since(start).Seconds())
	if worst == nil && ctx.Err() != nil {
		return &qemu.Failure{Code: qemu.ExitLab, Line: "interrupted: the table is of what was run"}
	}
	return worst
}

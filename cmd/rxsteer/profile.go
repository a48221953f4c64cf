package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/google/pprof/profile"
	"github.com/spf13/cobra"

	"github.com/rxsteer/rxsteer/bpf"
	"github.com/rxsteer/rxsteer/collector"
	"github.com/rxsteer/rxsteer/exporter/flame"
)

type profileFlags struct {
	duration               time.Duration
	hz                     int
	overhead               overhead
	write, svg, from, base string
	transaction, stateDir  string
}

func profileCommand(e *env) *cobra.Command {
	var f profileFlags
	c := &cobra.Command{
		Use:   "profile [-w FILE.pb.gz] [--flame FILE.svg]",
		Short: "Show which functions receiving spends its time in",
		Long: `Sample kernel stacks by a clock while CPUs receive (NET_RX softirq, ksoftirqd, NAPI
threads; nothing else), and show which queue, CPU and function the time went to.

-w writes a profile for "go tool pprof": its samples have the labels device, queue,
napi, cpu, context (task, idle, ksoftirqd, thread) and part (poll, tail). --flame draws
it; --base draws and prints it against a profile of before, and --from reads one
instead of measuring. --transaction compares what "rxsteer apply --profile", or the
agent minute by minute, kept of before and after a change. Functions have names where
kernel.kptr_restrict allows it.`,
		Example: `  rxsteer profile -w rx.pb.gz --flame rx.svg
  go tool pprof -top -tagfocus=queue=3 rx.pb.gz
  rxsteer profile --from after.pb.gz --base before.pb.gz --flame diff.svg
  rxsteer profile --transaction 3 --flame diff.svg`,
		GroupID: groupLook,
		Args:    cobra.NoArgs,
	}
	c.Flags().DurationVar(&f.duration, "for", 30*time.Second, "sample for this `TIME`")
	c.Flags().IntVar(&f.hz, "hz", bpf.DefaultHz, "`TICKS` per second and CPU")
	addOverhead(c, &f.overhead)
	c.Flags().StringVarP(&f.write, "write", "w", "", "write the profile (pprof) to `FILE`")
	c.Flags().StringVar(&f.svg, "flame", "", "draw a flame graph (SVG) to `FILE`")
	c.Flags().StringVar(&f.from, "from", "", "read the profile in `FILE` instead of sampling this host")
	c.Flags().StringVar(&f.base, "base", "", "compare with the profile in `FILE`")
	c.Flags().StringVar(&f.transaction, "transaction", "", "compare before and after the transaction `ID` of rxsteer history")
	addStateDir(c, &f.stateDir)
	c.RunE = func(c *cobra.Command, _ []string) error {
		switch {
		case f.transaction != "" && (f.from != "" || f.base != ""):
			return usage("--transaction names both profiles: --from and --base have no part in it")
		case f.duration < 100*time.Millisecond || f.duration > 24*time.Hour:
			return usage("--for %v: want 100ms … 24h", f.duration)
		case f.hz < 1 || f.hz > bpf.MaxHz:
			return usage("--hz %d: want 1 … %d", f.hz, bpf.MaxHz)
		case (f.from != "" || f.transaction != "") && (f.write != "" || c.Flags().Changed("for") || c.Flags().Changed("hz") || c.Flags().Changed("overhead")):
			return usage("--from and --transaction read profiles: --for, --hz, --overhead and -w have no part in it")
		}
		return e.profile(c.Context(), &f)
	}
	return c
}

func (e *env) profile(ctx context.Context, f *profileFlags) error {
	var base *profile.Profile
	var err error
	if f.base != "" { // before the time is spent
		if base, err = readProfile(f.base); err != nil {
			return err
		}
	}
	var p *profile.Profile
	switch {
	case f.transaction != "":
		base, p, err = e.readAround(f.stateDir, f.transaction)
	case f.from != "":
		p, err = readProfile(f.from)
	default:
		p, err = e.sampleProfile(ctx, f)
	}
	if err != nil {
		return err
	}
	if f.write != "" {
		if err := writeFile("profile", f.write, p.Write); err != nil {
			return err
		}
	}
	tree := flame.NewTree(p, base)
	if f.svg != "" {
		if err := writeFile("flame graph", f.svg, func(w io.Writer) error { return tree.WriteSVG(w, flameTitle(p, f.transaction)) }); err != nil {
			return err
		}
	}
	printProfile(e.stdout, p, tree, e.palette(), e.textWidth())
	return nil
}

// flameTitle says of when a profile is, and after which transaction.
func flameTitle(p *profile.Profile, transaction string) string {
	title := fmt.Sprintf("receive softirq, %.3g s from %s", time.Duration(p.DurationNanos).Seconds(), time.Unix(0, p.TimeNanos).UTC().Format("2006-01-02 15:04:05 UTC"))
	if transaction != "" {
		title += ", after transaction " + transaction
	}
	return title
}

// sampleProfile samples this host. Interrupted, it keeps what it has.
func (e *env) sampleProfile(ctx context.Context, f *profileFlags) (*profile.Profile, error) {
	h, err := e.openHost()
	if err != nil {
		return nil, err
	}
	defer h.close()
	if _, err := h.inventory(ctx); err != nil {
		return nil, err
	}
	type result struct {
		p   *profile.Profile
		err error
	}
	done := make(chan result, 1)
	go func() {
		p, err := collector.Profile(ctx, collector.ProfileConfig{FS: e.fs, Hz: f.hz, Overhead: float64(f.overhead), RXQueue: h.rxQueue}, f.duration)
		done <- result{p, err}
	}()
	bar := e.newProgress("sampling receive softirqs", f.duration)
	for {
		select {
		case <-bar.tick():
			bar.draw()
		case r := <-done:
			bar.end()
			switch {
			case r.p != nil && errors.Is(r.err, context.Canceled):
				fmt.Fprintf(e.stderr, "! stopped after %.1f s of %v\n", time.Duration(r.p.DurationNanos).Seconds(), f.duration)
			case errors.Is(r.err, bpf.ErrNoPrivilege), errors.Is(r.err, bpf.ErrNoBTF), errors.Is(r.err, bpf.ErrNoTracepoint):
				return nil, privilege(fmt.Errorf("profile: %w", r.err), "sudo rxsteer profile …", "rxsteer doctor says all that is missing")
			case r.err != nil:
				return nil, fmt.Errorf("profile: %w", r.err)
			}
			return r.p, nil
		}
	}
}

// readProfile reads what -w wrote.
func readProfile(name string) (*profile.Profile, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, fmt.Errorf("read profile: %w", err)
	}
	defer f.Close()
	p, err := profile.Parse(f)
	if err != nil {
		return nil, fmt.Errorf("read profile %s: %w", name, err)
	}
	if len(p.SampleType) != 2 || p.SampleType[1].Type != "cpu" || p.SampleType[1].Unit != "nanoseconds" || p.DurationNanos <= 0 {
		return nil, &failure{exitFailed, fmt.Errorf("read profile %s: no profile of rxsteer's: it lacks ticks, CPU time or its duration", name), []string{"rxsteer profile -w FILE writes one"}}
	}
	return p, nil
}

// writeFile creates or replaces a file.
func writeFile(what, name string, write func(io.Writer) error) error {
	f, err := os.Create(name)
	if err != nil {
		return fmt.Errorf("write %s: %w", what, err)
	}
	if err := write(f); err != nil {
		f.Close()
		return fmt.Errorf("write %s %s: %w", what, name, err)
	}
	if err := f.Close(); err != nil {
		return fmt.Errorf("write %s: %w", what, err)
	}
	return nil
}

func printProfile(w io.Writer, p *profile.Profile, t *flame.Tree, pal palette, width int) {
	seconds := time.Duration(p.DurationNanos).Seconds()
	fmt.Fprintf(w, "%.1f s, %d ticks of %v in receiving: %s of one CPU", seconds, t.Ticks, time.Duration(p.Period).Round(10*time.Microsecond), percent(t.Root.Share))
	if t.Against {
		fmt.Fprintf(w, ", before %s", percent(t.Root.Base))
	}
	fmt.Fprintln(w)
	for _, c := range p.Comments[min(1, len(p.Comments)):] {
		wrap(w, width, pal.yellow("! "), "  ", strings.TrimPrefix(c, "rxsteer: "))
	}
	if t.Ticks == 0 && !t.Against {
		fmt.Fprintln(w, "No tick met a CPU that receives: there was little traffic, or the time was short.")
		return
	}
	against := func(head ...string) []string {
		if t.Against {
			return append(head, ">before", ">change")
		}
		return head
	}
	cells := func(now, before float64, row ...string) []string {
		row = append(row, percent(now))
		if t.Against {
			row = append(row, percent(before), fmt.Sprintf("%+.1f", 100*(now-before)))
		}
		return row
	}
	fmt.Fprintln(w)
	queues := newTable("", against("receiving for", "on", ">of a CPU")...)
	for _, q := range t.Root.Children {
		for _, cpu := range q.Children {
			queues.row(cells(cpu.Share, cpu.Base, q.Name, cpu.Name)...)
		}
	}
	queues.print(w, pal)
	fmt.Fprintln(w)
	var over []string
	for _, c := range flame.By(p, collector.LabelContext) {
		over = append(over, fmt.Sprintf("%s %s", c.Value, percent(c.Ratio)))
	}
	fmt.Fprintln(w, "Over "+strings.Join(over, ", "))
	fmt.Fprintln(w)
	functions := newTable("", append(against("function", ">itself"), ">with what it calls")...)
	for _, f := range t.Top(15) {
		functions.row(append(cells(f.Self, f.BaseSelf, f.Name), percent(f.Total))...)
	}
	functions.print(w, pal)
}

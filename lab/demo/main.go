// Command demo shows the main job of rxsteer on real traffic: in namespaces of
// its own, receive work sits on one CPU and is offered 1.35 times what that CPU
// can do; rxsteer diagnoses, plans, applies; the same is measured before and
// after, then rolled back and compared with what was set at first. The verdict
// is computed from the two measurements, and a worse result is told as worse.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"
)

const usage = `Usage: demo [flags]

Runs diagnose, plan, apply and rollback of the rxsteer binary against real
traffic in network namespaces made for it, and prints what was measured before
and after. Needs root and two CPUs; ends within 90 s and leaves nothing behind.
Exit: 0 better and restored exactly, 1 failed, 2 usage, 3 not better.

`

// limit ends the demo whatever happens.
const limit = 88 * time.Second

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), unix.SIGINT, unix.SIGTERM)
	ctx, cancel := context.WithTimeout(ctx, limit)
	runtime.GOMAXPROCS(8) // a sender that woke up waits for no other goroutine
	code := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	cancel()
	stop()
	os.Exit(code)
}

// options are the command line.
type options struct {
	rxsteer string
	byHand  bool
	json    bool
	burn    time.Duration
	load    float64
	window  time.Duration
	picture string
}

func parse(args []string, stderr io.Writer) (options, error) {
	var o options
	fs := flag.NewFlagSet("demo", flag.ContinueOnError)
	fs.SetOutput(stderr)
	fs.Usage = func() {
		fmt.Fprint(stderr, usage)
		fs.PrintDefaults()
	}
	fs.StringVar(&o.rxsteer, "rxsteer", "bin/rxsteer", "the rxsteer `binary`")
	fs.BoolVar(&o.byHand, "by-hand", false, "write the RPS masks directly instead of running rxsteer: what the rig itself can win")
	fs.BoolVar(&o.json, "json", false, "print the result as JSON")
	fs.DurationVar(&o.burn, "burn", 20*time.Microsecond, "fixed CPU `time` per packet")
	fs.Float64Var(&o.load, "load", 1.35, "offered load, as a `multiple` of what one CPU receives")
	fs.StringVar(&o.picture, "picture", "", "draw what was seen before and after to this `file` (PNG; needs Chromium)")
	fs.DurationVar(&o.window, "window", 6*time.Second, "`time` of each measurement")
	if err := fs.Parse(args); err != nil {
		return o, err
	}
	if fs.NArg() > 0 || o.burn < time.Microsecond || o.load <= 0 || o.window < time.Second || o.window > 15*time.Second || o.byHand && o.picture != "" {
		fs.Usage()
		return o, errors.New("wrong usage")
	}
	return o, nil
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	o, err := parse(args, stderr)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return 0
	case err != nil:
		return 2
	}
	d := &demo{options: o, out: stdout, progress: stderr, patience: 12}
	if o.json {
		d.out = io.Discard
	}
	err = d.run(ctx)
	if o.json && err == nil {
		enc := json.NewEncoder(stdout)
		enc.SetIndent("", "  ")
		err = enc.Encode(d.result)
	}
	switch {
	case errors.Is(ctx.Err(), context.Canceled):
		fmt.Fprintln(stderr, "demo: interrupted; all that was made is removed")
		return 1
	case ctx.Err() != nil:
		fmt.Fprintf(stderr, "demo: not done within %v; all that was made is removed: %v\n", limit, err)
		return 1
	case err != nil:
		fmt.Fprintln(stderr, "demo:", err)
		return 1
	case d.result.Verdict != better || !d.result.Restored:
		return 3
	}
	return 0
}

// result is what --json prints.
type result struct {
	Kernel    string   `json:"kernel"`
	CPUs      []int    `json:"cpus"`
	SenderCPU int      `json:"sender_cpu"`
	RXCPU     int      `json:"rx_cpu"`
	BurnNs    int64    `json:"burn_ns"`
	OneCPU    float64  `json:"one_cpu_pps"` // measured capacity
	Offered   float64  `json:"offered_pps"`
	Busy      float64  `json:"busy_cpus"` // before the demo's own load
	Before    reading  `json:"before"`
	After     reading  `json:"after"`
	Undone    reading  `json:"after_rollback"`
	Changed   []string `json:"changed"` // settings that apply moved
	Restored  bool     `json:"restored"`
	Left      []string `json:"not_restored,omitempty"`
	Verdict   verdict  `json:"verdict"`
	Seconds   float64  `json:"seconds"`
}

// verdict is the outcome of comparing two readings.
type verdict string

const (
	better verdict = "better"
	same   verdict = "no better"
	worse  verdict = "worse"
	// unchanged is when rxsteer saw nothing to change, or took its change back.
	unchanged verdict = "nothing changed"
)

// judge compares: better is more delivered (at least 5 %) at no higher p99;
// worse is less delivered (by 3 %), or a p99 more than a tenth higher for
// nothing delivered in exchange.
func judge(before, after reading) verdict {
	delivered := after.Delivered / before.Delivered
	p99 := float64(after.Probe.P99) / float64(before.Probe.P99)
	switch {
	case before.Delivered == 0 || before.Probe.Count == 0 || after.Probe.Count == 0:
		return same // nothing to compare with
	case delivered >= 1.05 && p99 <= 1:
		return better
	case delivered < 0.97 || p99 > 1.1 && delivered < 1.05:
		return worse
	}
	return same
}

type demo struct {
	options
	out, progress io.Writer
	rig           *rig
	result        result
	dir           string // of the plan and rxsteer's journal
	patience      int    // seconds to wait for other work to end
}

func (d *demo) step(format string, args ...any) {
	fmt.Fprintf(d.progress, "── "+format+"\n", args...)
}

func (d *demo) run(ctx context.Context) (err error) {
	start := time.Now()
	if os.Geteuid() != 0 {
		return errors.New("needs root: network namespaces and BPF; run it with sudo")
	}
	if !d.byHand {
		if d.rxsteer, err = filepath.Abs(d.rxsteer); err != nil {
			return err
		}
		if _, err := os.Stat(d.rxsteer); err != nil {
			return fmt.Errorf("find rxsteer: %w (make build makes it)", err)
		}
	}
	if err := removeStale(); err != nil {
		return err
	}
	if d.dir, err = os.MkdirTemp("/run", fmt.Sprintf("rxsteer-demo-%d-", os.Getpid())); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(d.dir)) }()
	d.step("building two namespaces, a veth pair and a burn of %v per packet", d.burn)
	if d.rig, err = newRig(d.burn); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.rig.Close()) }()
	r := d.rig
	d.result = result{Kernel: kernel(), CPUs: r.cpus, SenderCPU: r.senderCPU, RXCPU: r.rxCPU, BurnNs: r.burn.Cost.PerPacket.Nanoseconds()}
	first, err := r.settings()
	if err != nil {
		return err
	}
	if d.result.Busy, err = d.awaitQuiet(ctx); err != nil {
		return err
	}
	var p *picture
	if d.picture != "" {
		if p, err = d.watch(ctx); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, p.stop()) }()
	}
	d.step("measuring what CPU %d alone can receive (3 s)", r.rxCPU)
	if d.result.OneCPU, err = r.capacity(ctx); err != nil {
		return err
	}
	d.result.Offered = d.load * d.result.OneCPU
	d.step("offering %.0f packets/s in %d flows, %.2f × the %.0f/s of one CPU, and a probe flow", d.result.Offered, flows, d.load, d.result.OneCPU)

	g, gctx := errgroup.WithContext(ctx)
	gctx, cancel := context.WithCancel(gctx)
	g.Go(func() error { return r.load(gctx, d.result.Offered, limit, 2*flows) })
	g.Go(func() error {
		defer cancel()
		return d.story(gctx, first)
	})
	err = g.Wait()
	cancel()
	if err != nil {
		return err
	}
	d.result.Seconds = time.Since(start).Seconds()
	d.print()
	if p == nil || d.result.Verdict != better {
		return nil // a picture of nothing gained is none
	}
	return d.draw(ctx, p)
}

// removeStale removes the folders of demos that were killed; testnet does the
// same for their namespaces.
func removeStale() error {
	dirs, err := filepath.Glob("/run/rxsteer-demo-*-*")
	for _, dir := range dirs {
		var pid int
		if _, serr := fmt.Sscanf(filepath.Base(dir), "rxsteer-demo-%d-", &pid); serr == nil && errors.Is(unix.Kill(pid, 0), unix.ESRCH) {
			err = errors.Join(err, os.RemoveAll(dir))
		}
	}
	return err
}

// awaitQuiet gives other work on this machine some time to end, for it would be
// in all figures, and returns how many CPUs it keeps busy.
func (d *demo) awaitQuiet(ctx context.Context) (busy float64, err error) {
	const enough = 0.3
	for try := range d.patience {
		if busy, err = busyCPUs(ctx, time.Second); err != nil || busy <= enough {
			return busy, err
		}
		if try == 0 {
			d.step("other work keeps %.1f CPUs busy: waiting up to %d s for it to end", busy, d.patience)
		}
	}
	d.step("WARNING: other work keeps %.1f CPUs busy: the figures will suffer, and rxsteer may find no CPU to steer to", busy)
	return busy, nil
}

// settle lets a change of the masks show before it is measured.
const settle = time.Second

// story is what happens while the traffic runs.
func (d *demo) story(ctx context.Context, first map[string]string) error {
	r := d.rig
	if !wait(ctx, settle) {
		return ctx.Err()
	}
	var err error
	if !d.byHand {
		if err := d.rxsteerRun(ctx, "diagnose", device, "--for", "4s", "--fail-on", "never"); err != nil {
			return err
		}
		if err := d.rxsteerRun(ctx, "plan", device, "--for", "4s", "-w", d.plan()); err != nil {
			return err
		}
	}
	d.step("measuring before (%v)", d.window)
	if d.result.Before, err = r.read(ctx, d.window); err != nil {
		return err
	}
	if err := d.keep(ctx, "before"); err != nil {
		return err
	}
	if d.byHand {
		err = r.setRPS(r.cpus)
	} else {
		err = d.rxsteerRun(ctx, "apply", d.plan(), "--yes", "--for", "3s", "--state-dir", d.dir)
		if took := (exitError{}); errors.As(err, &took) && took.code == tookBack {
			d.step("rxsteer took its change back: %v", err)
			err = nil
		}
	}
	if err != nil {
		return err
	}
	applied, err := r.settings()
	if err != nil {
		return err
	}
	d.result.Changed = differences(first, applied)
	if len(d.result.Changed) == 0 {
		d.result.Verdict, d.result.Restored = unchanged, true
		return nil
	}
	if !wait(ctx, settle) {
		return ctx.Err()
	}
	d.step("measuring after (%v)", d.window)
	if d.result.After, err = r.read(ctx, d.window); err != nil {
		return err
	}
	if err := d.keep(ctx, "after"); err != nil {
		return err
	}
	if d.byHand {
		err = r.setRPS([]int{r.rxCPU})
	} else {
		err = d.rxsteerRun(ctx, "rollback", "--state-dir", d.dir)
	}
	if err != nil {
		return err
	}
	last, err := r.settings()
	if err != nil {
		return err
	}
	d.result.Left = differences(first, last)
	d.result.Restored = len(d.result.Left) == 0
	if !wait(ctx, settle) {
		return ctx.Err()
	}
	d.step("measuring after the rollback (%v)", d.window/2)
	if d.result.Undone, err = r.read(ctx, d.window/2); err != nil {
		return err
	}
	d.result.Verdict = judge(d.result.Before, d.result.After)
	return nil
}

func (d *demo) plan() string { return filepath.Join(d.dir, "plan.yaml") }

// rxsteerRun runs a command of rxsteer in the receiver's namespace and shows
// what it prints.
func (d *demo) rxsteerRun(ctx context.Context, args ...string) error {
	d.step("rxsteer %s", strings.Join(args, " "))
	cmd := d.rig.receiver.Command(ctx, d.rxsteer, args...)
	// An interrupted rxsteer is to put things right itself.
	cmd.Cancel = func() error { return cmd.Process.Signal(unix.SIGTERM) }
	cmd.WaitDelay = 5 * time.Second
	var stderr bytes.Buffer
	out := &indent{w: d.out, atStart: true}
	cmd.Stdout, cmd.Stderr = out, &stderr
	if err := cmd.Run(); err != nil {
		var exit *exec.ExitError
		if errors.As(err, &exit) && ctx.Err() == nil {
			return exitError{args[0], exit.ExitCode(), string(bytes.TrimSpace(stderr.Bytes()))}
		}
		return fmt.Errorf("rxsteer %s: %w: %s", args[0], err, bytes.TrimSpace(stderr.Bytes()))
	}
	return nil
}

// exitError is an rxsteer command that did not end with 0.
type exitError struct {
	command string
	code    int
	stderr  string
}

func (e exitError) Error() string {
	return fmt.Sprintf("rxsteer %s: exit status %d: %s", e.command, e.code, e.stderr)
}

// tookBack is apply's exit status when it undid its own change.
const tookBack = 4

// indent sets off what another program prints.
type indent struct {
	w       io.Writer
	atStart bool
}

func (i *indent) Write(p []byte) (int, error) {
	for line := range bytes.Lines(p) {
		if i.atStart {
			if _, err := io.WriteString(i.w, "   │ "); err != nil {
				return 0, err
			}
		}
		if _, err := i.w.Write(line); err != nil {
			return 0, err
		}
		i.atStart = bytes.HasSuffix(line, []byte("\n"))
	}
	return len(p), nil
}

// differences lists the settings that differ, "path: a → b".
func differences(a, b map[string]string) []string {
	var out []string
	for _, p := range slices.Sorted(maps.Keys(a)) {
		switch v, ok := b[p]; {
		case !ok:
			out = append(out, fmt.Sprintf("%s: %s → gone", p, a[p]))
		case v != a[p]:
			out = append(out, fmt.Sprintf("%s: %s → %s", p, a[p], v))
		}
	}
	return out
}

func (d *demo) print() {
	res := d.result
	fmt.Fprintf(d.out, "\nLinux %s, %s, %d CPUs; veth with %d queues; %.1f µs burnt per packet; %.0f packets/s offered, one CPU does %.0f\n\n",
		res.Kernel, runtime.GOARCH, len(res.CPUs), queues, float64(res.BurnNs)/1000, res.Offered, res.OneCPU)
	if res.Verdict == unchanged {
		fmt.Fprintf(d.out, "  delivered %.0f packets/s, lost %s, probe p99 %s\n\n  verdict: NOTHING CHANGED: rxsteer found nothing to gain here, or took its change back; is the machine busy with other things?\n",
			res.Before.Delivered, percent(res.Before.LostShare), millis(res.Before.Probe.P99))
		return
	}
	row := func(name string, cell func(reading) string) {
		fmt.Fprintf(d.out, "  %-34s %12s %12s %12s\n", name, cell(res.Before), cell(res.After), cell(res.Undone))
	}
	fmt.Fprintf(d.out, "  %-34s %12s %12s %12s\n", "", "before", "after", "rolled back")
	for _, cpu := range res.CPUs {
		if res.Before.Softirq[cpu] < 0.01 && res.After.Softirq[cpu] < 0.01 {
			continue
		}
		role := ""
		if cpu == res.SenderCPU {
			role = " (sends too)"
		}
		row(fmt.Sprintf("CPU %d%s in softirq", cpu, role), func(r reading) string { return percent(r.Softirq[cpu]) })
		row(fmt.Sprintf("CPU %d share of packets", cpu), func(r reading) string { return percent(r.Work[cpu]) })
	}
	row("sent, packets/s", func(r reading) string { return fmt.Sprintf("%.0f", r.Sent) })
	row("delivered, packets/s", func(r reading) string { return fmt.Sprintf("%.0f", r.Delivered) })
	row("lost, packets/s", func(r reading) string { return fmt.Sprintf("%.0f", r.Lost) })
	row("lost", func(r reading) string { return percent(r.LostShare) })
	row("probe p50", func(r reading) string { return millis(r.Probe.P50) })
	row("probe p99", func(r reading) string { return millis(r.Probe.P99) })
	row("probes lost", func(r reading) string { return fmt.Sprintf("%d of %d", r.ProbeLost, r.ProbeLost+r.Probe.Count) })
	fmt.Fprintln(d.out)
	for _, c := range res.Changed {
		fmt.Fprintln(d.out, "  changed ", c)
	}
	if res.Restored {
		fmt.Fprintln(d.out, "  rollback: every setting is what it was before")
	} else {
		fmt.Fprintln(d.out, "  rollback: NOT restored:", strings.Join(res.Left, "; "))
	}
	fmt.Fprintf(d.out, "\n  verdict: %s: delivered × %.2f, lost %s → %s, probe p99 %s → %s (%.0f s in all)\n", strings.ToUpper(string(res.Verdict)),
		res.After.Delivered/res.Before.Delivered, percent(res.Before.LostShare), percent(res.After.LostShare),
		millis(res.Before.Probe.P99), millis(res.After.Probe.P99), res.Seconds)
}

func percent(v float64) string { return fmt.Sprintf("%.1f %%", 100*v) }

func millis(d time.Duration) string { return fmt.Sprintf("%.2f ms", d.Seconds()*1000) }

func kernel() string {
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		return "unknown"
	}
	return unix.ByteSliceToString(u.Release[:])
}

// Command guest runs the arms of the steering benchmark inside a lab guest and prints one JSON
// line per arm and state. It expects traffic on eth0, a probe echo on port 9001, the programs
// rxsteer and irqbalance, and the lab's request folder /share/req.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"time"

	"github.com/rxsteer/rxsteer/lab/bench/steering/outcome"
)

func main() {
	arms := flag.String("arms", "", "comma-separated `names`")
	scale := flag.Float64("scale", 1, "`factor` for the time that each arm is given")
	flag.Parse()
	if err := run(*arms, *scale); err != nil {
		fmt.Fprintln(os.Stderr, "guest:", err)
		os.Exit(1)
	}
}

// Times of an arm.
const (
	warm   = 1500 * time.Millisecond // after the state was set
	window = 4 * time.Second         // judged at the end, with probes
	sample = 500 * time.Millisecond
)

func run(names string, scale float64) error {
	h, err := openHost("eth0")
	if err != nil {
		return err
	}
	defer h.close()
	out := json.NewEncoder(os.Stdout)
	for _, state := range outcome.States {
		for _, name := range strings.Split(names, ",") {
			a, ok := arms[name]
			if !ok {
				return fmt.Errorf("arm %q: no such arm", name)
			}
			row, err := h.measure(state, name, a, time.Duration(float64(a.act)*scale))
			if err != nil {
				return fmt.Errorf("%s, %s: %w", state, name, err)
			}
			if err := out.Encode(row); err != nil {
				return err
			}
		}
	}
	return nil
}

// arm is one way to steer.
type arm struct {
	act time.Duration // how long it works before it is judged
	// ends: it is judged when it is done; act is the most it may take.
	ends bool
	// run works until it is done or ctx ends, and returns the CPU time that it took.
	run func(ctx context.Context, h *host) (time.Duration, error)
	// undo is for what the arm left behind, nil for nothing.
	undo func() error
}

var arms = map[string]arm{
	"nothing":            {act: 1 * time.Second, run: func(context.Context, *host) (time.Duration, error) { return 0, nil }},
	"irqbalance":         {act: 17 * time.Second, run: command("irqbalance", "--foreground")},
	"irqbalance-oneshot": {act: 20 * time.Second, ends: true, run: command("irqbalance", "--foreground", "--oneshot")},
	"static":             {act: 5 * time.Second, ends: true, run: static},
	"rsspp":              {act: 7 * time.Second, run: greedy},
	"auto":               {act: 55 * time.Second, run: auto, undo: func() error { _, err := tolerant(exec.Command("rxsteer", "rollback", "--original")); return err }},
	"rxsteer":            {act: 60 * time.Second, ends: true, run: rxsteer, undo: rollback},
}

// command runs a program until ctx ends.
func command(name string, args ...string) func(context.Context, *host) (time.Duration, error) {
	return func(ctx context.Context, _ *host) (time.Duration, error) {
		return child(ctx, name, args...)
	}
}

func child(ctx context.Context, name string, args ...string) (time.Duration, error) {
	var said strings.Builder
	c := exec.CommandContext(ctx, name, args...)
	c.Stdout, c.Stderr = &said, &said
	c.Cancel = func() error { return c.Process.Signal(os.Interrupt) }
	c.WaitDelay = 3 * time.Second
	err := c.Run()
	var cpu time.Duration
	if s := c.ProcessState; s != nil {
		cpu = s.UserTime() + s.SystemTime()
	}
	if ctx.Err() != nil {
		return cpu, nil // told to end
	}
	if err != nil {
		return cpu, fmt.Errorf("run %s: %w: %s", name, err, lastLine(said.String()))
	}
	return cpu, nil
}

func lastLine(s string) string {
	lines := strings.Split(strings.TrimSpace(s), "\n")
	return lines[len(lines)-1]
}

// static is the script of the drivers' READMEs: vector i to CPU i.
func static(_ context.Context, h *host) (time.Duration, error) {
	began, err := ownCPU()
	if err != nil {
		return 0, err
	}
	for q := range h.irqs {
		if err := h.pin(q, q%h.cpus); err != nil {
			return 0, err
		}
	}
	now, err := ownCPU()
	return now - began, err
}

// rxsteer plans for what it sees and applies the plan. What exit codes say (nothing to do, rolled back) is an
// answer, not a failure of the benchmark: the row shows what came of it.
func rxsteer(ctx context.Context, _ *host) (time.Duration, error) {
	plan := exec.CommandContext(ctx, "rxsteer", "plan", "--for", "4s", "--goal", "auto", "-w", "/tmp/plan.yaml", "eth0")
	os.Remove("/tmp/plan.yaml")
	cpu, err := tolerant(plan)
	if err != nil {
		return cpu, err
	}
	if _, err := os.Stat("/tmp/plan.yaml"); err != nil {
		return cpu, nil // nothing planned
	}
	more, err := tolerant(exec.CommandContext(ctx, "rxsteer", "apply", "--yes", "--for", "3s", "--allow", "reorder", "/tmp/plan.yaml"))
	return cpu + more, err
}

// auto is the agent's loop, started on a host that is already out of balance. Reading the counters of an emulated card takes a
// hundred times as long as a real one's: it may take half a CPU.
func auto(ctx context.Context, _ *host) (time.Duration, error) {
	const config = "mode: auto\noverhead: 50%\ninterval: 5s\nprofile: false\ndevices:\n- name: eth0\n"
	if err := os.WriteFile("/tmp/agent.yaml", []byte(config), 0o644); err != nil {
		return 0, err
	}
	return child(ctx, "rxsteer", "agent", "--config", "/tmp/agent.yaml", "--web.listen-address", "127.0.0.1:0")
}

func tolerant(c *exec.Cmd) (time.Duration, error) {
	text, err := c.CombinedOutput()
	fmt.Fprintf(os.Stderr, "$ %s\n%s", strings.Join(c.Args, " "), text)
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		return 0, err
	}
	return c.ProcessState.UserTime() + c.ProcessState.SystemTime(), nil
}

// rollback undoes what rxsteer applied, if anything.
func rollback() error {
	_, err := tolerant(exec.Command("rxsteer", "rollback"))
	return err
}

// measure sets the state, lets the arm work and judges what the host does at the end.
func (h *host) measure(state, name string, a arm, act time.Duration) (*outcome.Row, error) {
	if err := h.set(state); err != nil {
		return nil, err
	}
	time.Sleep(warm)
	first, err := h.settings()
	if err != nil {
		return nil, err
	}
	before, err := h.counters()
	if err != nil {
		return nil, err
	}
	row := &outcome.Row{State: state, Arm: name}
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	done := make(chan struct{})
	var acting sync.WaitGroup
	var actErr error
	began := time.Now()
	acting.Go(func() {
		defer close(done)
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		var cpu time.Duration
		cpu, actErr = a.run(ctx, h)
		row.OwnCPU = cpu
	})
	var probes chan probed
	var loads []outcome.Sample
	seen, was := first, before
	var judgedFrom *counters
	var until time.Time
	for now := range ticks(ctx, sample) {
		c, err := h.counters()
		if err != nil {
			return nil, err
		}
		loads = append(loads, outcome.Sample{At: now.Sub(began), Packets: c.minus(was)})
		was = c
		s, err := h.settings()
		if err != nil {
			return nil, err
		}
		buckets, vectors := seen.changed(s)
		row.BucketMoves += buckets
		row.VectorMoves += vectors
		seen = s
		if probes != nil && now.After(until) {
			stop()
		}
		finished := false
		select {
		case <-done:
			finished = a.ends
		default:
		}
		if probes == nil && (finished || now.Sub(began) >= act) {
			row.CutOff = a.ends && !finished
			judgedFrom, until = c, now.Add(window)
			probes = make(chan probed, 1)
			go func() { probes <- probe(window - time.Second) }()
		}
	}
	acting.Wait()
	if actErr != nil {
		return nil, actErr
	}
	end, err := h.counters()
	if err != nil {
		return nil, err
	}
	if judgedFrom == nil {
		return nil, errors.New("measure: the guest was too slow to reach its end")
	}
	row.Hottest, row.Mean = outcome.Shares(end.minus(judgedFrom))
	row.Balanced = outcome.BalancedAfter(loads)
	row.Packets = end.delivered - judgedFrom.delivered
	row.Drops = end.drops - judgedFrom.drops
	p := <-probes
	if p.err != nil {
		return nil, p.err
	}
	row.P50, row.P99, row.MiceLost = p.p50, p.p99, p.lost
	fmt.Fprintf(os.Stderr, "%+v\n", *row)
	if a.undo != nil {
		return row, a.undo()
	}
	return row, nil
}

// ticks yields the time every so often until ctx ends.
func ticks(ctx context.Context, every time.Duration) func(func(time.Time) bool) {
	return func(yield func(time.Time) bool) {
		t := time.NewTicker(every)
		defer t.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case now := <-t.C:
				if !yield(now) {
					return
				}
			}
		}
	}
}

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
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/rxsteer/rxsteer/lab/bench/steering/outcome"
)

func main() {
	arms := flag.String("arms", "", "comma-separated `names`")
	letter := flag.String("scenario", "", "`letter` for the rows")
	even := flag.Float64("even", 1.5, "the busiest CPU's `load` per mean up to which the load counts as even")
	left := flag.Duration("left", time.Minute, "`time` for all arms; an arm that does not fit any more is not run")
	flag.Parse()
	if err := run(*arms, *letter, *even, time.Now().Add(*left)); err != nil {
		fmt.Fprintln(os.Stderr, "guest:", err)
		os.Exit(1)
	}
}

// Times of an arm.
const (
	warm   = time.Second             // after the settings were restored
	window = 4500 * time.Millisecond // judged at the end, with probes
	sample = 500 * time.Millisecond
	// settled is for how long the load has to be even for an arm to be judged before its time is up.
	settled = 4 * time.Second
)

// run prints a row for each arm, whatever happens to it.
func run(names, letter string, even float64, until time.Time) error {
	h, err := openHost("eth0")
	if err != nil {
		return err
	}
	defer h.close()
	start, err := h.settings()
	if err != nil {
		return err
	}
	for _, name := range strings.Split(names, ",") {
		a, ok := arms[name]
		if !ok {
			return fmt.Errorf("arm %q: no such arm", name)
		}
		row := &outcome.Row{}
		var err error
		if left := time.Until(until); left < warm+a.least+window+3*time.Second {
			err = fmt.Errorf("%.0f s were left", max(left, 0).Seconds())
		} else {
			act := min(a.act, left-warm-window-3*time.Second)
			ctx, stop := context.WithTimeout(context.Background(), warm+act+window+10*time.Second)
			err = h.measure(ctx, row, start, a, act, even)
			stop()
		}
		row.Scenario, row.Arm = letter, name
		if err != nil {
			row.Failed = strings.Join(strings.Fields(err.Error()), " ")
		}
		text, err := json.Marshal(row)
		if err != nil {
			return err
		}
		fmt.Printf("\n%s%s\n", outcome.Mark, text) // whatever an arm printed last
	}
	return nil
}

// arm is one way to steer.
type arm struct {
	act   time.Duration // how long it works at most before it is judged; sooner once the load stays even
	least time.Duration // with less it is not worth a start
	// ends: it is judged when it is done, and not before.
	ends bool
	// run works until it is done or ctx ends, and returns the CPU time that it took.
	run func(ctx context.Context, h *host) (time.Duration, error)
	// undo is for what the arm left behind, nil for nothing.
	undo func() error
}

// irqbalance looks every ten seconds unless told otherwise; here it and what is compared with it get little more.
const irqbalanceInterval = "2"

var arms = map[string]arm{
	outcome.Nothing:      {act: time.Second, run: func(context.Context, *host) (time.Duration, error) { return 0, nil }},
	"irqbalance":         {act: 8 * time.Second, least: 6 * time.Second, run: command("irqbalance", "--foreground", "--interval="+irqbalanceInterval)},
	"irqbalance-oneshot": {act: 10 * time.Second, least: 6 * time.Second, ends: true, run: command("irqbalance", "--foreground", "--oneshot", "--interval="+irqbalanceInterval)},
	"static":             {act: 5 * time.Second, least: time.Second, ends: true, run: static},
	"rsspp":              {act: 7 * time.Second, least: 4 * time.Second, run: greedy},
	"rxsteer":            {act: 35 * time.Second, least: 12 * time.Second, ends: true, run: rxsteer, undo: forget},
	outcome.Auto:         {act: 14 * time.Second, least: 6 * time.Second, run: resident},
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

// journal is rxsteer's folder. Each arm has it empty: the benchmark itself puts the settings back.
const journal = "/tmp/rxsteer-journal"

func forget() error { return os.RemoveAll(journal) }

// rxsteer plans for what it sees and applies the plan. What exit codes say (nothing to do, rolled back) is an
// answer, not a failure of the benchmark: the row shows what came of it.
func rxsteer(ctx context.Context, _ *host) (time.Duration, error) {
	const file = "/tmp/plan.yaml"
	if err := os.RemoveAll(file); err != nil {
		return 0, err
	}
	cpu, err := tolerant(exec.CommandContext(ctx, "rxsteer", "plan", "--level", "2", "--for", "3s", "--overhead", "50%", "--goal", "auto", "-w", file, "eth0"))
	if err != nil {
		return cpu, err
	}
	if _, err := os.Stat(file); err != nil {
		return cpu, nil // nothing planned
	}
	more, err := tolerant(exec.CommandContext(ctx, "rxsteer", "apply", "--state-dir", journal, "--yes", "--for", "2s", "--overhead", "50%", "--allow", "reorder", file))
	return cpu + more, err
}

// resident has the agent steer that Prepare of package outcome left stopped.
func resident(ctx context.Context, _ *host) (spent time.Duration, err error) {
	text, err := os.ReadFile(outcome.AgentPID)
	if err != nil {
		return 0, err
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		return 0, err
	}
	used, err := cpuOf(pid)
	if err != nil {
		return 0, err
	}
	defer func() {
		said, rerr := os.ReadFile(outcome.AgentLog)
		fmt.Fprintf(os.Stderr, "%s", said)
		err = errors.Join(err, rerr)
	}()
	if err := os.WriteFile(outcome.AgentFile, []byte(outcome.AgentConfig("auto")), 0o644); err != nil {
		return 0, err
	}
	for _, s := range []syscall.Signal{syscall.SIGHUP, syscall.SIGCONT} {
		if err := syscall.Kill(pid, s); err != nil {
			return 0, fmt.Errorf("wake the agent: %w", err)
		}
	}
	<-ctx.Done()
	now, err := cpuOf(pid)
	if err != nil {
		return 0, fmt.Errorf("the agent has ended: %w", err)
	}
	if err := syscall.Kill(pid, syscall.SIGTERM); err != nil {
		return 0, fmt.Errorf("end the agent: %w", err)
	}
	for range 100 { // it is the shell's child, which does not wait for it
		if state, err := stat(pid); err != nil || state[0] == "Z" {
			return now - used, nil
		}
		time.Sleep(100 * time.Millisecond)
	}
	return now - used, errors.New("the agent does not end")
}

// stat is the fields of a process after its name.
func stat(pid int) ([]string, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return nil, err
	}
	_, rest, _ := strings.Cut(string(text), ") ")
	f := strings.Fields(rest)
	if len(f) < 13 {
		return nil, fmt.Errorf("parse stat of process %d: %q", pid, text)
	}
	return f, nil
}

// cpuOf is the CPU time of a process, in steps of 10 ms.
func cpuOf(pid int) (sum time.Duration, err error) {
	f, err := stat(pid)
	if err != nil {
		return 0, err
	}
	for _, t := range f[11:13] { // utime, stime
		n, err := strconv.Atoi(t)
		if err != nil {
			return 0, err
		}
		sum += time.Duration(n) * 10 * time.Millisecond
	}
	return sum, nil
}

func tolerant(c *exec.Cmd) (time.Duration, error) {
	text, err := c.CombinedOutput()
	fmt.Fprintf(os.Stderr, "$ %s\n%s", strings.Join(c.Args, " "), text)
	var exit *exec.ExitError
	switch {
	case err != nil && !errors.As(err, &exit):
		return 0, err
	case err != nil && exit.ExitCode() != 4: // 4: applied but rolled back, stale or yielded
		return 0, fmt.Errorf("run rxsteer %s: %w: %s", c.Args[1], err, lastLine(string(text)))
	}
	return c.ProcessState.UserTime() + c.ProcessState.SystemTime(), nil
}

// measure restores the settings, lets the arm work and judges what the host does at the end.
func (h *host) measure(ctx context.Context, row *outcome.Row, start *settings, a arm, act time.Duration, even float64) (err error) {
	if err := h.restore(start); err != nil {
		return err
	}
	if a.undo != nil {
		defer func() { err = errors.Join(err, a.undo()) }()
	}
	time.Sleep(warm)
	seen, err := h.settings()
	if err != nil {
		return err
	}
	was, err := h.counters()
	if err != nil {
		return err
	}
	work, stop := context.WithCancel(ctx)
	done := make(chan error, 1)
	began := time.Now()
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		cpu, err := a.run(work, h)
		row.OwnCPU = cpu // read after done
		done <- err
	}()
	probes := make(chan probed, 1)
	var loads []outcome.Sample
	var judgedFrom, end *counters
	var until time.Time
	var finished bool
	var actErr error
	for now := range ticks(ctx, sample) {
		if end, err = h.counters(); err != nil {
			break
		}
		loads = append(loads, outcome.Sample{At: now.Sub(began), Packets: end.minus(was)})
		was = end
		var s *settings
		if s, err = h.settings(); err != nil {
			break
		}
		buckets, vectors := seen.changed(s)
		row.BucketMoves += buckets
		row.VectorMoves += vectors
		seen = s
		if !finished {
			select {
			case actErr = <-done:
				finished = true
			default:
			}
		}
		if finished && actErr != nil || judgedFrom != nil && now.After(until) {
			break
		}
		if judgedFrom != nil {
			continue
		}
		evenFor := time.Duration(0)
		if at := outcome.BalancedAfter(loads, even); at >= 0 && !a.ends && now.Sub(began) >= a.least {
			evenFor = now.Sub(began) - at
		}
		if a.ends && finished || evenFor >= settled || now.Sub(began) >= act {
			row.CutOff = a.ends && !finished
			judgedFrom, until = end, now.Add(window)
			go func() { probes <- h.probe(ctx, window-time.Second) }()
		}
	}
	stop()
	if !finished {
		actErr = errors.Join(actErr, <-done)
	}
	switch {
	case err != nil || actErr != nil:
		return errors.Join(err, actErr)
	case judgedFrom == nil || ctx.Err() != nil:
		return errors.New("the guest was too slow to reach its end")
	}
	row.Hottest, row.Mean = outcome.Shares(end.minus(judgedFrom))
	row.Balanced = outcome.BalancedAfter(loads, even)
	p := <-probes
	row.Packets = uint64(p.delivered)
	row.Drops = uint64(max(0, p.offered-p.delivered))
	row.P50, row.P99, row.P999, row.MiceLost = p.p50, p.p99, p.p999, p.lost
	return p.err
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

// Command bench measures what rxsteer costs a host: the extra time per packet of
// its per-poll programs at about 60, 8 and 1 packets per NAPI poll beside an
// A/A control and peers, and the time of its own operations.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rxsteer/rxsteer/bpf"
	"github.com/rxsteer/rxsteer/internal/testnet"
)

const usage = `Usage: bench [flags]

Measures in namespaces of its own what rxsteer costs: arms take turns in random
order, each round compares every arm with doing nothing in that round; an A/A
control shows what the machine's noise amounts to. Peers (bpftrace,
libbpf-tools, linux-perf) that are not installed are reported as unavailable;
-install installs them by apt-get. Needs root.

`

// perPollSizes are the packets per NAPI poll of the modes.
var perPollSizes = []int{60, 8, 1}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), unix.SIGINT, unix.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	switch {
	case errors.Is(err, flag.ErrHelp):
	case err != nil:
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	fs := flag.NewFlagSet("bench", flag.ContinueOnError)
	fs.SetOutput(stderr)
	fs.Usage = func() {
		fmt.Fprint(stderr, usage)
		fs.PrintDefaults()
	}
	rxsteer := fs.String("rxsteer", "", "the rxsteer `binary` whose status is timed; without it that is left out")
	rounds := fs.Int("rounds", 20, "`rounds` of all arms at each packets per poll")
	peerRounds := fs.Int("peer-rounds", 6, "`rounds` in which the peers take part, which start slowly")
	sampledRounds := fs.Int("sampled-rounds", 7, "`rounds` of a sampler with the default budget (16 s each) and with none (18 s, at 60 packets per poll); 0 leaves both out")
	window := fs.Duration("window", 150*time.Millisecond, "`time` of one measurement")
	only := fs.String("arms", "", "run only arms whose name contains this `text` (the baseline and the control always run)")
	install := fs.Bool("install", false, "install the peers by apt-get first")
	file := fs.String("w", "", "also write the result as markdown to this `file`")
	if err := fs.Parse(args); err != nil {
		return err
	}
	if fs.NArg() > 0 || *rounds < 2 || *peerRounds < 0 || *window < 2*slice {
		return errors.New("wrong usage: no arguments, at least 2 rounds and two slices of time")
	}
	if os.Geteuid() != 0 {
		return errors.New("needs root: network namespaces and BPF")
	}
	if *install {
		if out, err := exec.CommandContext(ctx, "apt-get", "install", "-y", "bpftrace", "libbpf-tools", "linux-perf").CombinedOutput(); err != nil {
			fmt.Fprintf(stderr, "install peers: %v: %s\n", err, lastLine(out))
		}
	}
	res := result{Conditions: conditions(), Rounds: *rounds, PeerRounds: min(*peerRounds, *rounds), Window: *window}
	r, err := newRig()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	var chosen []arm
	for i, a := range arms(r) {
		if i < 2 || strings.Contains(a.name, *only) {
			chosen = append(chosen, a)
		}
	}
	budget := budgetArm()
	detail, err := detailArm(r)
	if err != nil {
		return err
	}
	for _, n := range perPollSizes {
		mode, err := measure(ctx, r, n, chosen, res, stderr)
		if err != nil {
			return err
		}
		for _, a := range []sampled{budget, detail} {
			if !strings.Contains(a.name, *only) || *sampledRounds == 0 || a.name == armDetail && n != 60 {
				continue
			}
			row, err := a.measure(ctx, r, n, *sampledRounds, stderr)
			if err != nil {
				return err
			}
			mode.Rows = append(mode.Rows, row)
		}
		res.Modes = append(res.Modes, mode)
	}
	fmt.Fprintln(stderr, "timing rxsteer's own operations")
	if res.Operations, err = operations(ctx, *rxsteer); err != nil {
		return err
	}
	fmt.Fprintln(stderr, "timing the user space of a big host")
	res.Operations = append(res.Operations, synthetic()...)
	if err := res.text(stdout); err != nil {
		return err
	}
	if *file == "" {
		return nil
	}
	var b strings.Builder
	if err := res.markdown(&b); err != nil {
		return err
	}
	return os.WriteFile(*file, []byte(b.String()), 0o644)
}

// benchCPU is where the traffic runs.
func benchCPU() int { return runtime.NumCPU() - 1 }

// measure runs all arms at n packets per poll.
func measure(ctx context.Context, r *rig, n int, arms []arm, res result, progress io.Writer) (mode, error) {
	m := mode{PerPoll: n}
	var err error
	if m.Seen, err = perPollSeen(r, n, res.Window); err != nil {
		return m, err
	}
	var costs []map[int]float64 // of each arm, by round
	for range arms {
		costs = append(costs, map[int]float64{})
	}
	why := make([]string, len(arms))
	for round := range res.Rounds {
		fmt.Fprintf(progress, "\r%d packets per poll: round %d of %d ", n, round+1, res.Rounds)
		for _, i := range rand.Perm(len(arms)) {
			switch {
			case ctx.Err() != nil:
				return m, ctx.Err()
			case why[i] != "", arms[i].peer && !peersTakePart(round, res.Rounds, res.PeerRounds):
				continue
			}
			ns, err := one(ctx, r, n, arms[i], res.Window)
			if errors.Is(err, errUnavailable) {
				why[i] = err.Error()
				continue
			}
			if err != nil {
				return m, fmt.Errorf("measure %s: %w", arms[i].name, err)
			}
			costs[i][round] = ns
		}
	}
	fmt.Fprintln(progress)
	for i, a := range arms {
		row := row{Arm: a.name, Unavailable: why[i]}
		if len(costs[i]) == 0 && row.Unavailable == "" {
			row.Unavailable = "not asked for"
		}
		if row.Unavailable == "" {
			var ns, ratios, extra []float64
			for round, c := range costs[i] {
				ns = append(ns, c)
				ratios = append(ratios, c/costs[0][round])
				extra = append(extra, c-costs[0][round])
			}
			row.Ns, row.Ratio, row.Extra = median(ns), middle(ratios), middle(extra)
		}
		m.Rows = append(m.Rows, row)
	}
	return m, nil
}

// peersTakePart spreads the peers' rounds evenly.
func peersTakePart(round, rounds, peerRounds int) bool {
	return (round+1)*peerRounds/rounds > round*peerRounds/rounds
}

// one measures one arm.
func one(ctx context.Context, r *rig, n int, a arm, window time.Duration) (ns float64, err error) {
	stop, err := a.start(ctx)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, stop()) }()
	// Warm up: caches, and the code patched at attach.
	if _, err := r.cost(n, 20*time.Millisecond, benchCPU()); err != nil {
		return 0, err
	}
	return r.cost(n, window, benchCPU())
}

// perPollSeen is how many packets a poll of the rig really had.
func perPollSeen(r *rig, n int, window time.Duration) (float64, error) {
	p, err := bpf.Load(bpf.Options{})
	if err != nil {
		return 0, err
	}
	defer p.Close()
	if err := p.Attach(); err != nil {
		return 0, err
	}
	if _, err := r.cost(n, window, benchCPU()); err != nil {
		return 0, err
	}
	var c bpf.Counters
	if err := p.Read(&c); err != nil {
		return 0, err
	}
	var polls, packets uint64
	for i, s := range c.NAPIs {
		if s.Device() == "b0" && uint64(c.NAPIKeys[i].Cpu) == uint64(benchCPU()) {
			polls += s.Polls
			packets += s.Packets
		}
	}
	if polls == 0 {
		return 0, errors.New("check packets per poll: b0 was never polled on the traffic's CPU")
	}
	return float64(packets) / float64(polls), nil
}

// operations times what rxsteer does besides counting.
func operations(ctx context.Context, rxsteer string) ([]operation, error) {
	var out []operation
	var load []float64
	for range 15 {
		start := time.Now()
		p, err := bpf.Load(bpf.Options{})
		if err != nil {
			return nil, err
		}
		if err := p.Attach(); err != nil {
			return nil, errors.Join(err, p.Close())
		}
		load = append(load, time.Since(start).Seconds())
		if err := p.Close(); err != nil {
			return nil, err
		}
	}
	out = append(out, operation{Name: "load and attach the per-poll set", Goal: "≤ 200 ms", Time: summarise(load)})
	read, entries, err := readTimes()
	if err != nil {
		return nil, err
	}
	out = append(out, operation{Name: fmt.Sprintf("read %d {NAPI, CPU} entries", entries), Goal: "≤ 0.2 ms at 512", Time: summarise(read)})
	if rxsteer == "" {
		return out, nil
	}
	path, err := filepath.Abs(rxsteer)
	if err != nil {
		return nil, err
	}
	var status []float64
	for range 15 {
		start := time.Now()
		if text, err := exec.CommandContext(ctx, path, "status").CombinedOutput(); err != nil {
			return nil, fmt.Errorf("run rxsteer status: %w: %s", err, lastLine(text))
		}
		status = append(status, time.Since(start).Seconds())
	}
	out = append(out, operation{Name: "rxsteer status, the process as a whole", Goal: "≤ 200 ms", Time: summarise(status)})
	for _, level := range []string{"1", "2", "auto"} {
		var beyond []float64
		for range 5 {
			start := time.Now()
			if text, err := exec.CommandContext(ctx, path, "diagnose", "--for", "1s", "--fail-on", "never", "--level", level).CombinedOutput(); err != nil {
				return nil, fmt.Errorf("run rxsteer diagnose: %w: %s", err, lastLine(text))
			}
			beyond = append(beyond, (time.Since(start) - time.Second).Seconds())
		}
		out = append(out, operation{Name: "rxsteer diagnose --level " + level + ", beyond the second it was asked to measure", Goal: "≤ 300 ms", Time: summarise(beyond)})
	}
	return out, nil
}

// readTimes fills the table with {NAPI, CPU} pairs by injecting a frame into
// each of a tap's 256 queues (tun's most) on two CPUs, and times reads in seconds.
func readTimes() (seconds []float64, entries int, err error) {
	ns, err := testnet.Create()
	if err != nil {
		return nil, 0, err
	}
	defer func() { err = errors.Join(err, ns.Close()) }()
	tap, err := ns.NewTAP("t0", 256)
	if err != nil {
		return nil, 0, err
	}
	defer func() { err = errors.Join(err, tap.Close()) }()
	p, err := bpf.Load(bpf.Options{})
	if err != nil {
		return nil, 0, err
	}
	defer func() { err = errors.Join(err, p.Close()) }()
	if err := p.Attach(); err != nil {
		return nil, 0, err
	}
	frame := make([]byte, 60) // to nobody's address: dropped after the poll
	frame[0] = 2
	for cpu := range min(runtime.NumCPU(), 2) {
		done := make(chan error)
		go func() {
			runtime.LockOSThread() // never unlocked: the thread ends with its affinity
			var set unix.CPUSet
			set.Set(cpu)
			err := unix.SchedSetaffinity(0, &set)
			for q := 0; q < 256 && err == nil; q++ {
				err = tap.Inject(q, frame)
			}
			done <- err
		}()
		if err := <-done; err != nil {
			return nil, 0, err
		}
	}
	var c bpf.Counters
	for range 200 {
		start := time.Now()
		if err := p.Read(&c); err != nil {
			return nil, 0, err
		}
		seconds = append(seconds, time.Since(start).Seconds())
	}
	return seconds, len(c.NAPIs), nil
}

func lastLine(b []byte) string {
	lines := strings.Split(strings.TrimSpace(string(b)), "\n")
	return lines[len(lines)-1]
}

// Command steering compares ways to spread receive work in booted lab guests with igb, in the lab's own scenarios: doing
// nothing, irqbalance (its loop and --oneshot), a static script of one vector per CPU, the published greedy of RSS++,
// rxsteer's plan and apply, and its agent in auto mode. One command gives the table and docs/benchmarks-steering.md.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rxsteer/rxsteer/lab/bench/steering/outcome"
	"github.com/rxsteer/rxsteer/lab/scenarios"
	"github.com/rxsteer/rxsteer/lab/vm/qemu"
)

const usage = `Usage: steering [flags]

Boots a guest of the lab per scenario (igb, four queues, four CPUs) and lets each arm work from the same settings in turn,
under the same traffic; takes at most --within. An arm without a result has a row that says why. Needs root; see
lab/README.md. Programs in the folder $RXSTEER_LAB_BIN are used instead of built.

`

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), unix.SIGINT, unix.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	switch {
	case err == nil, errors.Is(err, flag.ErrHelp):
	default:
		fmt.Fprintln(os.Stderr, "steering:", err)
		if f, ok := errors.AsType[*qemu.Failure](err); ok {
			fmt.Fprintln(os.Stderr, f.Log)
		}
		os.Exit(qemu.ExitCode(err))
	}
}

// bench is a scenario of lab/scenarios with what only the benchmark adds.
type bench struct {
	outcome.Scenario
	set  []string // further settings
	burn float64  // µs per packet
	// same are arms that are no other than another here, with that one.
	same map[string]string
}

// onePerCPU pins vector i to CPU i: what is wrong is then the table or the flows, not the vectors.
const onePerCPU = "n=0; for i in $(irqs eth0); do pin $n $i; n=$((n+1)); done"

// benches share the settings and the traffic of the lab's scenarios. Even: 1.5 of the mean, but an elephant of 40 % alone is
// 1.6 on four CPUs, and two of four flows on one CPU are 2.
var benches = []bench{
	{Scenario: outcome.Scenario{Letter: "c", Name: "skewed-table-auto", What: "Every vector has a CPU of its own, and 85 % of the table's buckets lead to queue 0.", Even: 1.5, Goal: true}, burn: 100},
	{Scenario: outcome.Scenario{Letter: "d", Name: "elephant-and-mice", What: "One elephant with 40 % of the packets shares its queue with a quarter of 63 mice.", Even: 1.8, Goal: true}, set: []string{onePerCPU}, burn: 100},
	{Scenario: outcome.Scenario{Letter: "e", Name: "two-elephants-two-buckets", What: "Two elephants with 40 % of the packets each share a queue, in two buckets.", Even: 1.8}, set: []string{onePerCPU}, burn: 120},
	{Scenario: outcome.Scenario{Letter: "g", Name: "alternating-load", What: "Two sets of four flows take turns of three seconds; at best nothing oscillates.", Even: 2.2}, set: []string{onePerCPU}, burn: 100},
	{Scenario: outcome.Scenario{Letter: "h", Name: "irqbalance-auto", What: "An irqbalance that looks each second rewrites vectors while every arm works; they all begin on CPU 1. *Moves* hold its own.", Even: 1.5}, burn: 100,
		same: map[string]string{"irqbalance": outcome.Nothing, "irqbalance-oneshot": outcome.Nothing}},
}

// programs run in the guest or its sender.
var programs = map[string]string{
	"rxsteer":        "./cmd/rxsteer",
	"rxtraffic":      "./lab/cmd/rxtraffic",
	"rxburn":         "./lab/cmd/rxburn",
	"rxhold":         "./lab/scenarios/rxhold",
	"rxbenchsteerer": "./lab/bench/steering/guest",
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	fs := flag.NewFlagSet("steering", flag.ContinueOnError)
	fs.SetOutput(stderr)
	fs.Usage = func() {
		fmt.Fprint(stderr, usage)
		fs.PrintDefaults()
	}
	kernel := fs.String("kernel", "6.12", "`version` of the guests' kernel; the greedy needs tcx (6.6)")
	arms := fs.String("arms", "nothing,irqbalance,irqbalance-oneshot,static,rsspp,rxsteer,auto", "comma-separated `names` of the arms")
	only := fs.String("scenarios", "c,d,e,g,h", "`letters` of the scenarios")
	within := fs.Duration("within", 11*time.Minute+15*time.Second, "`time` for all, shared among the scenarios")
	file := fs.String("markdown", "", "also write the document to `FILE`")
	verbose := fs.Bool("v", false, "show what the guests print")
	if err := fs.Parse(args); err != nil {
		return err
	}
	if fs.NArg() > 0 {
		return fmt.Errorf("unexpected argument %q", fs.Arg(0))
	}
	var list []bench
	for _, l := range strings.Split(*only, ",") {
		i := slices.IndexFunc(benches, func(b bench) bool { return b.Letter == l })
		if i < 0 {
			return fmt.Errorf("scenario %q: want some of c,d,e,g,h", l)
		}
		list = append(list, benches[i])
	}
	// The last has fewest arms: what it leaves of its time goes to the others.
	slices.Reverse(list)
	end := time.Now().Add(*within)
	cache, err := qemu.OpenCache()
	if err != nil {
		return err
	}
	dir, done, err := cache.Folder()
	if err != nil {
		return err
	}
	defer done()
	bin, err := build(ctx, dir)
	if err != nil {
		return err
	}
	if _, err := cache.Prepare(ctx, *kernel); err != nil {
		return err
	}
	var rows []outcome.Row
	var shown []outcome.Scenario
	release := "Linux " + *kernel
	for i, b := range list {
		s, err := scenarios.Find(b.Name)
		if err != nil {
			return err
		}
		s.Set, s.BurnUs, s.Machine.Kernel = append(s.Set, b.set...), b.burn, *kernel
		share := time.Until(end) / time.Duration(len(list)-i)
		of, r, err := b.boot(ctx, cache, s, bin, strings.Split(*arms, ","), share, *verbose, stderr)
		if ctx.Err() != nil {
			return errors.New("interrupted")
		}
		if err != nil {
			fmt.Fprintf(stderr, "(%s) %s: %v\n", b.Letter, b.Name, err)
			if f, ok := errors.AsType[*qemu.Failure](err); ok && *verbose {
				fmt.Fprintln(stderr, f.Log)
			}
		}
		if r != "" {
			release = "Linux " + r
		}
		rows, shown = append(rows, of...), append(shown, b.Scenario)
		if err := outcome.Text(stdout, of); err != nil {
			return err
		}
	}
	slices.Reverse(shown)
	for _, l := range outcome.Verdict(rows, shown) {
		fmt.Fprintln(stdout, l)
	}
	if !slices.ContainsFunc(rows, func(r outcome.Row) bool { return r.Failed == "" }) {
		return &qemu.Failure{Code: qemu.ExitLab, Line: "no arm has a result"}
	}
	if *file == "" {
		return nil
	}
	var b bytes.Buffer
	if err := outcome.Markdown(&b, rows, shown, conditions(release)); err != nil {
		return err
	}
	return os.WriteFile(*file, b.Bytes(), 0o644)
}

// build builds the programs into dir, or finds them.
func build(ctx context.Context, dir string) (bin []string, err error) {
	for name, pkg := range programs {
		file := filepath.Join(os.Getenv("RXSTEER_LAB_BIN"), name)
		if _, err := os.Stat(file); err == nil && filepath.IsAbs(file) {
			bin = append(bin, file)
			continue
		}
		file = filepath.Join(dir, name)
		cmd := exec.CommandContext(ctx, "go", "build", "-o", file, pkg)
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
		if log, err := cmd.CombinedOutput(); err != nil {
			return nil, fmt.Errorf("build %s: %w: %s", pkg, err, bytes.TrimSpace(log))
		}
		bin = append(bin, file)
	}
	return bin, nil
}

// startup is what a guest takes until its arms may begin, and to end.
const startup = 30 * time.Second

// last are the arms that others go before, in this order: those that are missed most when the time runs out go first.
var last = []string{outcome.Auto, "rsspp", "static", "irqbalance", "rxsteer", "irqbalance-oneshot"}

// boot runs the arms of a scenario in one guest that has so much time, and gives a row for each of them.
// An error says why some have no result; release is the guest's kernel.
func (b bench) boot(ctx context.Context, cache *qemu.Cache, s scenarios.Scenario, bin, arms []string, share time.Duration, verbose bool, stderr io.Writer) (rows []outcome.Row, release string, err error) {
	// A guest that broke down is booted again: both share the time.
	ctx, stop := context.WithTimeout(ctx, share)
	defer stop()
	run := slices.DeleteFunc(slices.Clone(arms), func(a string) bool { return b.same[a] != "" })
	slices.SortStableFunc(run, func(a, b string) int { return slices.Index(last, a) - slices.Index(last, b) })
	said := &lines{}
	job := qemu.Job{Script: b.script(s, run, share-startup), Bin: bin, Timeout: share, Output: said}
	if verbose {
		job.Output = io.MultiWriter(said, stderr)
	}
	res, err := cache.Boot(ctx, s.Machine, job)
	if err == nil && res.Status != 0 {
		err = &qemu.Failure{Code: qemu.ExitLab, Line: fmt.Sprintf("the guest's script ended with status %d", res.Status), Log: res.Output}
	}
	if res != nil {
		release = strings.TrimSpace(string(res.Files["kernel"]))
	}
	got := parse(said.text.String())
	for _, a := range arms {
		row, ok := got[a]
		switch {
		case ok:
		case b.same[a] != "":
			row.Failed = "is what " + b.same[a] + " is here"
		case err != nil:
			row.Failed = err.Error()
		default:
			row.Failed = "the guest left no row"
		}
		row.Scenario, row.Arm = b.Letter, a
		rows = append(rows, row)
	}
	return rows, release, err
}

// lines keeps what is written; the lab's own goroutine writes, and is done before it is read.
type lines struct{ text strings.Builder }

func (l *lines) Write(p []byte) (int, error) { return l.text.Write(p) }

// script sets the scenario up and runs the arms.
func (b bench) script(s scenarios.Scenario, arms []string, left time.Duration) string {
	before := ""
	if slices.Contains(arms, outcome.Auto) {
		before = outcome.Prepare()
	}
	return s.Setup(before) + fmt.Sprintf(`uname -r >kernel
rxtraffic recv --listen 0.0.0.0:9001 --for 10m >/dev/null 2>/tmp/echo &
n=100; until grep -qs ready /tmp/echo || [ $n = 0 ]; do usleep 50000; n=$((n-1)); done
grep -q ready /tmp/echo || { cat /tmp/echo; exit 70; }
rxbenchsteerer -arms %s -scenario %s -even %g -left %v
exit $?
`, strings.Join(arms, ","), b.Letter, b.Even, left.Round(time.Second))
}

// parse reads the rows out of what guests printed, the last of each arm: a guest that is booted again begins anew.
func parse(text string) map[string]outcome.Row {
	rows := map[string]outcome.Row{}
	for line := range strings.Lines(text) {
		var r outcome.Row
		if doc, ok := strings.CutPrefix(line, outcome.Mark); ok && json.Unmarshal([]byte(doc), &r) == nil {
			rows[r.Arm] = r
		}
	}
	return rows
}

// conditions are what the tables hold under.
func conditions(release string) []string {
	var even []string
	for _, b := range benches {
		even = append(even, fmt.Sprintf("%g (%s)", b.Even, b.Letter))
	}
	return []string{
		fmt.Sprintf("`make bench-steering`, %s: lab guests (QEMU without KVM on %d CPUs, four virtual CPUs, igb with four queues, %s),", time.Now().UTC().Format(time.DateOnly), runtime.NumCPU(), release),
		"one per scenario of `lab/scenarios`, whose settings and traffic they have; each packet costs a fixed 100 or 120 µs more.",
		"The CPUs of the guest are not real ones: compare rows, not milliseconds with other machines. Every arm starts from the same",
		"settings under the same traffic. *Even after*: from then on the busiest CPU handles at most a fixed multiple of the mean:",
		strings.Join(even, ", ") + ". *hottest/mean*, mice and drops are of the last seconds. *Mice*: round trips of eight",
		"probe flows, the same ports for each arm; the median of their medians, and the worst of their 99th and 99.9th percentiles (175",
		"probes each: the latter is the slowest). *Moves*: buckets + vectors, as seen in the table and in smp_affinity. *Own CPU* of",
		"what the arm runs, in the guest. *Drops*: of what the sender gave the emulated card, what no socket got. irqbalance looks",
		"every two seconds (its default is ten). *rxsteer* is `plan` for three seconds and `apply`. *auto* is an agent that was",
		"started before and may steer from then on; it may take half a CPU (an emulated card's counters take a hundred times as",
		"long to read as a real one's).",
		"RSS++ is the greedy of `lab/rsspp` every half second with a vector per CPU, as its program has it.",
	}
}

// Command steering compares ways to spread receive work in a booted lab guest with igb: doing
// nothing, irqbalance (its loop and --oneshot), a static script of one vector per CPU, the
// published greedy of RSS++, rxsteer's plan and apply, and its agent in auto mode. One command gives the table and the
// section of docs/benchmarks.md.
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
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rxsteer/rxsteer/lab/bench/steering/outcome"
	"github.com/rxsteer/rxsteer/lab/vm/qemu"
)

const usage = `Usage: steering [flags]

Boots one guest of the lab (igb, four queues, four CPUs) and lets each arm work from each start
in turn, under the same traffic; takes about six minutes. Needs root; see lab/README.md.
Programs in the folder $RXSTEER_LAB_BIN are used instead of built.

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

// The traffic, for the table's conditions and for the sender.
const (
	flows     = 64
	elephants = 4
	share     = 0.5
	rate      = 2000 // packets/s
	burnUs    = 60
)

// programs run in the guest or its sender.
var programs = map[string]string{
	"rxsteer":        "./cmd/rxsteer",
	"rxtraffic":      "./lab/cmd/rxtraffic",
	"rxburn":         "./lab/cmd/rxburn",
	"rxbenchsteerer": "./lab/bench/steering/guest",
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	fs := flag.NewFlagSet("steering", flag.ContinueOnError)
	fs.SetOutput(stderr)
	fs.Usage = func() {
		fmt.Fprint(stderr, usage)
		fs.PrintDefaults()
	}
	kernel := fs.String("kernel", "6.12", "`version` of the guest's kernel; the greedy needs tcx (6.6)")
	arms := fs.String("arms", "nothing,irqbalance,irqbalance-oneshot,static,rsspp,rxsteer,auto", "comma-separated `names` of the arms")
	section := fs.String("markdown", "", "also write the section of docs/benchmarks.md to `FILE`")
	verbose := fs.Bool("v", false, "show what the guest prints")
	if err := fs.Parse(args); err != nil {
		return err
	}
	if fs.NArg() > 0 {
		return fmt.Errorf("unexpected argument %q", fs.Arg(0))
	}
	cache, err := qemu.OpenCache()
	if err != nil {
		return err
	}
	dir, done, err := cache.Folder()
	if err != nil {
		return err
	}
	defer done()
	var bin []string
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
			return fmt.Errorf("build %s: %w: %s", pkg, err, bytes.TrimSpace(log))
		}
		bin = append(bin, file)
	}
	machine := qemu.Machine{Kernel: *kernel, NIC: "igb", Queues: 4, SMP: 4}
	job := qemu.Job{Script: script(*arms), Bin: bin, Timeout: 9 * time.Minute}
	if *verbose {
		job.Output = stderr
	}
	res, err := cache.Boot(ctx, machine, job)
	if err != nil {
		return err
	}
	if res.Status != 0 {
		return &qemu.Failure{Code: qemu.ExitLab, Line: fmt.Sprintf("the guest's script ended with status %d", res.Status), Log: res.Output}
	}
	rows, err := parse(res.Files["rows.json"])
	if err != nil {
		return err
	}
	if err := outcome.Text(stdout, rows); err != nil {
		return err
	}
	fmt.Fprintf(stdout, "\nthe guest took %.0f s\n", res.Took.Seconds())
	if *section == "" {
		return nil
	}
	var b bytes.Buffer
	if err := outcome.Markdown(&b, rows, conditions(machine, release(res.Files))); err != nil {
		return err
	}
	return os.WriteFile(*section, b.Bytes(), 0o644)
}

// script starts the sinks, the burn and the traffic, then the arms.
func script(arms string) string {
	return fmt.Sprintf(`set -e
cd /share
uname -r >kernel
ethtool -N eth0 rx-flow-hash udp4 sdfn
rxburn --us %d --for 10m eth0 2>/tmp/burn >/dev/null &
rxtraffic recv --listen 0.0.0.0:9000 --every 20ms --for 10m >/dev/null 2>/tmp/sink &
rxtraffic recv --listen 0.0.0.0:9001 --for 10m >/dev/null 2>/tmp/echo &
for f in /tmp/burn /tmp/sink /tmp/echo; do
  n=300; until grep -qs ready $f || [ $n = 0 ]; do usleep 100000; n=$((n-1)); done
  grep -q ready $f || { cat $f; exit 70; }
done
host_bg "rxtraffic send --to 10.77.0.2:9000 --flows %d --elephants %d --share %g --rate %d --size 200 --for 10m"
rxbenchsteerer -arms %s >rows.json
`, burnUs, flows, elephants, share, rate, arms)
}

func parse(text []byte) (rows []outcome.Row, err error) {
	d := json.NewDecoder(bytes.NewReader(text))
	for d.More() {
		var r outcome.Row
		if err := d.Decode(&r); err != nil {
			return nil, fmt.Errorf("read the guest's rows: %w", err)
		}
		rows = append(rows, r)
	}
	if len(rows) == 0 {
		return nil, errors.New("read the guest's rows: there are none")
	}
	return rows, nil
}

func release(files map[string][]byte) string {
	if k := strings.TrimSpace(string(files["kernel"])); k != "" {
		return k
	}
	return "unknown"
}

// conditions are what the table holds under.
func conditions(m qemu.Machine, kernel string) []string {
	return []string{
		fmt.Sprintf("A lab guest (QEMU without KVM on %d CPUs, %d virtual CPUs, igb with %d queues, Linux %s); %d UDP flows,",
			runtime.NumCPU(), m.SMP, m.Queues, kernel, flows),
		fmt.Sprintf("%d packets/s, half of them of %d elephants; each packet costs a fixed %d µs more. The CPUs of the guest are not",
			rate, elephants, burnUs),
		"real ones: compare rows, not milliseconds with other machines. Every arm starts from the same settings: all vectors on",
		"CPU 0 with an even table, or a vector per CPU with 85 % of the buckets in queue 0. *Even after*: the busiest CPU handles at",
		"most 1.5 × the mean from then on. *Mice*: round trips of four probe flows in the last three seconds, the median of their",
		"medians and the worst of their 99th percentiles. *Moves*: buckets + vectors, as seen in the table and in smp_affinity.",
		"*Own CPU* of irqbalance, rxsteer and the loop in the guest. irqbalance runs with its default interval of ten seconds;",
		"*auto* is a freshly started agent that may take half a CPU (an emulated card's counters are slow to read): its start and",
		"first look count in the time until even; a resident one reacts from its next tick on.",
		"RSS++ is the greedy of `lab/rsspp` every half second with a vector per CPU, as its program has it. Regenerate with",
		"`go run ./lab/bench/steering -markdown FILE`.",
	}
}

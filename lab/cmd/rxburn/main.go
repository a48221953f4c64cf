// Command rxburn makes each packet a device receives cost a fixed amount of
// CPU at tc ingress, and reports what it burnt.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rxsteer/rxsteer/lab/burn"
)

const usage = `Usage: rxburn [flags] DEVICE

Makes every packet DEVICE receives burn CPU at tc ingress, after RPS, until
interrupted or --for has passed; then prints what each CPU burnt. The work is
a fixed number of iterations, calibrated once to --us on this machine.
"rxburn: ready" on stderr says that packets pay from now on.

`

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), unix.SIGINT, unix.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	switch {
	case errors.Is(err, flag.ErrHelp):
	case errors.Is(err, errUsage):
		os.Exit(2)
	case err != nil:
		fmt.Fprintln(os.Stderr, "rxburn:", err)
		os.Exit(1)
	}
}

var errUsage = errors.New("wrong usage")

// result is what --json prints.
type result struct {
	Device      string   `json:"device"`
	Hook        string   `json:"hook"`
	Iterations  uint32   `json:"iterations"`
	NsPerPacket int64    `json:"ns_per_packet"` // calibrated; 0 with --iterations
	Seconds     float64  `json:"seconds"`
	Packets     []uint64 `json:"packets"` // element i is CPU i
	BurntNs     []int64  `json:"burnt_ns"`
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	fs := flag.NewFlagSet("rxburn", flag.ContinueOnError)
	fs.SetOutput(stderr)
	fs.Usage = func() {
		fmt.Fprint(stderr, usage)
		fs.PrintDefaults()
	}
	us := fs.Float64("us", 10, "`microseconds` of CPU per packet")
	iterations := fs.Uint("iterations", 0, "burn that many iterations instead of calibrating --us")
	limit := fs.Duration("for", 10*time.Minute, "stop after that `time`")
	asJSON := fs.Bool("json", false, "print the result as JSON")
	if err := fs.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return err
		}
		return errUsage
	}
	if fs.NArg() != 1 || *us <= 0 || *limit <= 0 || *iterations > burn.MaxIterations {
		fs.Usage()
		return errUsage
	}
	dev, err := net.InterfaceByName(fs.Arg(0))
	if err != nil {
		return fmt.Errorf("find device %s: %w", fs.Arg(0), err)
	}
	cost := burn.Cost{Iterations: uint32(*iterations)}
	if *iterations == 0 {
		if cost, err = burn.Calibrate(time.Duration(*us * float64(time.Microsecond))); err != nil {
			return err
		}
	}
	b, err := burn.Attach(dev.Index, cost)
	if err != nil {
		return err
	}
	start := time.Now()
	fmt.Fprintf(stderr, "rxburn: ready: %d iterations, %v per packet, %s at ingress of %s\n", cost.Iterations, cost.PerPacket, b.Hook, dev.Name)
	select {
	case <-ctx.Done():
	case <-time.After(*limit):
	}
	packets, err := b.Packets()
	if err := errors.Join(err, b.Close()); err != nil {
		return err
	}
	res := result{Device: dev.Name, Hook: b.Hook, Iterations: cost.Iterations, NsPerPacket: cost.PerPacket.Nanoseconds(),
		Seconds: time.Since(start).Seconds(), Packets: packets}
	for _, n := range packets {
		res.BurntNs = append(res.BurntNs, int64(n)*cost.PerPacket.Nanoseconds())
	}
	if *asJSON {
		return json.NewEncoder(stdout).Encode(res)
	}
	for cpu, n := range packets {
		if n > 0 {
			burnt := time.Duration(res.BurntNs[cpu])
			fmt.Fprintf(stdout, "CPU %d: %d packets, %v burnt, %.1f %% of the time\n", cpu, n, burnt.Round(time.Millisecond), 100*burnt.Seconds()/res.Seconds)
		}
	}
	return nil
}

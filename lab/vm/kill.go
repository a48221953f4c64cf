package main

import (
	"context"
	"flag"
	"fmt"
	"time"

	"github.com/rxsteer/rxsteer/lab/vm/qemu"
)

// killRounds is how often apply is killed.
const killRounds = 200

// runKill kills apply at random points on a real driver, all rounds within one boot: after each the host
// is as before or as planned, the journal tells which, and the next run ends it.
func runKill(ctx context.Context, args []string) error {
	set := flag.NewFlagSet("kill", flag.ContinueOnError)
	rounds := set.Int("rounds", killRounds, "how often")
	var m qemu.Machine
	set.StringVar(&m.NIC, "nic", "igb", "igb, virtio, vmxnet3 or e1000e")
	set.StringVar(&m.Kernel, "kernel", "6.12", "6.12, 6.1 or 5.10")
	if err := set.Parse(args); err != nil || set.NArg() > 0 {
		return flag.ErrHelp
	}
	return withLab(ctx, func(l *lab) ([]line, error) { return l.kill(ctx, m, *rounds) })
}

func (l *lab) kill(ctx context.Context, m qemu.Machine, rounds int) ([]line, error) {
	row := line{"kill -9", machine(m), fmt.Sprintf("%d rounds of apply", rounds), "pass", 0}
	begin(row.what, row.machine)
	script := fmt.Sprintf("rxapplytest -test.v -test.run '^TestKillOnTheDriver$' -kill-rounds %d\n", rounds)
	res, err := l.cache.Boot(ctx, m, qemu.Job{Script: script, Bin: l.bin, Timeout: 5*time.Minute + time.Duration(rounds)*3*time.Second, Output: &labelled{name: "kill"}})
	if err == nil {
		row.took = res.Took
		if res.Status != 0 {
			err = &qemu.Failure{Code: qemu.ExitAssertion, Line: "a killed apply left the host or its journal wrong"}
		}
	}
	return row.of(err)
}

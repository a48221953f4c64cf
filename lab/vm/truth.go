package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"text/tabwriter"

	"golang.org/x/sync/errgroup"

	"github.com/rxsteer/rxsteer/internal/host/knob"
	"github.com/rxsteer/rxsteer/internal/host/nic"
	"github.com/rxsteer/rxsteer/lab/vm/qemu"
	"github.com/rxsteer/rxsteer/lab/vm/truth"
)

// ciTruth is the machines of make check: two kernels, igb and virtio.
var ciTruth = []qemu.Machine{{Kernel: "6.12", NIC: "igb"}, {Kernel: "6.1", NIC: "virtio"}}

// fullTruth is every NIC on every kernel, and igb's other vector names and two nodes.
func fullTruth() []qemu.Machine {
	out := []qemu.Machine{{Kernel: "6.12", NIC: "igb", Queues: 8, SMP: 8, NUMA: true}, {Kernel: "6.12", NIC: "virtio", Queues: 2, NUMA: true}}
	for _, k := range qemu.Kernels {
		for _, n := range qemu.NICs {
			out = append(out, qemu.Machine{Kernel: k, NIC: n})
		}
	}
	return out
}

// runTruth takes NIC names and kernels in any order ("igb 6.12"), without any it does all;
// "map" leaves out the tests of knobs.
func runTruth(ctx context.Context, args []string) error {
	tests := true
	args = slices.DeleteFunc(args, func(a string) bool {
		if a == "map" {
			tests = false
		}
		return a == "map"
	})
	var machines []qemu.Machine
	for _, m := range fullTruth() {
		take := true
		for _, a := range args {
			take = take && (a == m.Kernel || a == m.NIC)
		}
		if take {
			machines = append(machines, m)
		}
	}
	return withLab(ctx, func(l *lab) ([]line, error) { return l.truth(ctx, machines, tests, 2) })
}

// truth compares rxsteer's map with the kernel's own words in each machine, and with tests runs
// those of the knobs and of the fake host on its driver, atOnce guests at a time: nothing here hangs on time.
func (l *lab) truth(ctx context.Context, machines []qemu.Machine, tests bool, atOnce int) ([]line, error) {
	var lines []line
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "\nmap of\tcompared\tdifferent\ts\tverdict")
	var wrong, broken []string
	code := qemu.ExitLab
	results, errs := make([]*qemu.Result, len(machines)), make([]error, len(machines))
	var boots errgroup.Group
	boots.SetLimit(atOnce)
	for i, m := range machines {
		run := truth.Tests{Knobs: tests}
		if d, err := m.WithDefaults(); err == nil && tests && d.Kernel == qemu.Kernels[0] && d.Queues == 4 && !d.NUMA {
			run.Scripts = d.NIC // they were written for this machine
		}
		boots.Go(func() error {
			begin("map", machine(m))
			results[i], errs[i] = l.cache.Boot(ctx, m, qemu.Job{Script: truth.Script(run), Bin: l.bin})
			return nil
		})
	}
	_ = boots.Wait() // each keeps its own
	for i, m := range machines {
		res, err := results[i], errs[i]
		if err != nil {
			verdict := "unavailable"
			if c := qemu.ExitCode(err); c != qemu.ExitUnavailable {
				verdict, code = "BROKEN", c
				broken = append(broken, err.Error())
				if f, ok := errors.AsType[*qemu.Failure](err); ok {
					fmt.Println(f.Log)
				}
			}
			fmt.Fprintf(w, "%s\t-\t-\t-\t%s\n", machine(m), verdict)
			lines = append(lines, line{"map", machine(m), "-", verdict, 0})
			continue
		}
		n, diffs, err := truth.Compare(res.Files)
		diffs = append(diffs, truth.TestFailures(res.Files)...)
		if tests {
			diffs = append(diffs, undocumented(res.Files)...)
		}
		verdict := "pass"
		switch {
		case err != nil:
			verdict = "FAIL"
			wrong = append(wrong, fmt.Sprintf("%s: %v", machine(m), err))
		case len(diffs) > 0:
			verdict = "FAIL"
			wrong = append(wrong, machine(m))
			fmt.Printf("%s\n  %s\n", machine(m), strings.Join(diffs, "\n  "))
		}
		fmt.Fprintf(w, "%s\t%d\t%d\t%.0f\t%s\n", machine(m), n, len(diffs), res.Took.Seconds(), verdict)
		lines = append(lines, line{"map", machine(m), fmt.Sprintf("%d compared, %d differ", n, len(diffs)), verdict, res.Took})
	}
	if err := w.Flush(); err != nil {
		return lines, err
	}
	switch {
	case len(wrong) > 0:
		return lines, &qemu.Failure{Code: qemu.ExitAssertion, Line: "status differs from the truth: " + strings.Join(wrong, "; ")}
	case len(broken) > 0:
		return lines, &qemu.Failure{Code: code, Line: strings.Join(broken, "; ")}
	}
	return lines, nil
}

// undocumented are settings that were written on the driver although the table behind docs/support.md does
// not call them run in the lab, and a run of the knobs' test that wrote nothing.
func undocumented(files map[string][]byte) []string {
	written := truth.Written(files)
	if len(written) == 0 {
		return []string{"the test of the knobs wrote nothing"}
	}
	driver := truth.Driver(files)
	var out []string
	for _, k := range written {
		if nic.Support(driver, knob.Kind(k)) != nic.Lab && nic.Support("", knob.Kind(k)) != nic.Lab {
			out = append(out, fmt.Sprintf("%s was written and undone on %s: add it to labRuns of internal/host/nic/support.go", k, driver))
		}
	}
	return out
}

// Command vm (installed as rxlab) boots guests with real drivers and runs the lab's scenarios in them.
//
//	rxlab prep [KERNEL…]                install tools, unpack kernels, build images
//	rxlab boot [flags] --cmd STR|--script FILE [--bin FILE]…
//	rxlab run [-v] [-lasts TIME] SCENARIO…   run scenarios (lab/scenarios/*.yaml)
//	rxlab list                      what there is
//	rxlab matrix [KERNEL…]          BPF and attribution on each kernel and on this host
//	rxlab truth [KERNEL NIC]        rxsteer status against ethtool and /proc in guests
//	rxlab kill [-rounds N] [-nic NIC]   kill -9 at random points of apply, in one guest
//	rxlab persist [-nic NIC]            persisted settings after a reboot and after ethtool -L
//	rxlab package [-nic NIC]            install, kill -9, upgrade and removal of the deb in a guest that systemd boots
//	rxlab image                     the Dockerfile built and run without a network, on this host
//	rxlab ci                        what make check runs
//	rxlab all                       everything, one table
//
// Exit codes: 0 pass, 1 an assertion or the job failed, 3 the kernel's package is gone,
// 124 the guest hung, 125 the lab itself failed.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/rxsteer/rxsteer/lab/vm/qemu"
)

const usage = `usage:
  rxlab prep [KERNEL…]   install tools, unpack kernels, build images
  rxlab boot [flags]     run a shell job in a guest (rxlab boot -h)
  rxlab list             the scenarios
  rxlab run [-v] [-lasts TIME] NAME…   run scenarios; TIME is for soak
  rxlab matrix [KERNEL…] BPF objects, hooks and attribution on each kernel and on this host
  rxlab truth            rxsteer status against ethtool and /proc, each NIC on each kernel
  rxlab kill             kill -9 at random points of apply, on a real driver
  rxlab persist          persisted settings after a reboot and after ethtool -L
  rxlab package          install, kill -9, upgrade and removal of the deb, under systemd
  rxlab image            the Dockerfile built and run without a network, on this host
  rxlab ci               what make check runs
  rxlab all              everything, one table
`

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	os.Exit(run(ctx, os.Args[1:]))
}

func run(ctx context.Context, args []string) int {
	if len(args) == 0 {
		fmt.Fprint(os.Stderr, usage)
		return 2
	}
	commands := map[string]func(context.Context, []string) error{
		"prep": prep, "boot": boot, "list": list, "run": runScenarios,
		"matrix": runMatrix, "truth": runTruth, "kill": runKill, "persist": runPersist, "package": runPackage, "image": runImage,
		"ci": runCI, "all": runAll,
	}
	cmd, ok := commands[args[0]]
	if !ok {
		fmt.Fprint(os.Stderr, usage)
		return 2
	}
	err := cmd(ctx, args[1:])
	if errors.Is(err, flag.ErrHelp) {
		return 2
	}
	return report(err)
}

// report prints an error as one line and the log that belongs to it.
func report(err error) int {
	if err == nil {
		return qemu.ExitPass
	}
	if f, ok := errors.AsType[*qemu.Failure](err); ok && f.Log != "" {
		fmt.Fprintln(os.Stderr, f.Log)
	}
	fmt.Fprintln(os.Stderr, "rxlab:", err)
	return qemu.ExitCode(err)
}

func prep(ctx context.Context, kernels []string) error {
	if len(kernels) == 0 {
		kernels = qemu.Kernels
	}
	cache, err := qemu.OpenCache()
	if err != nil {
		return err
	}
	for _, k := range kernels {
		image, err := cache.Prepare(ctx, k)
		if err != nil {
			return err
		}
		fmt.Println(k, image.Release)
	}
	return nil
}

// files is a flag that may be given several times.
type files []string

func (f *files) String() string     { return strings.Join(*f, " ") }
func (f *files) Set(s string) error { *f = append(*f, s); return nil }

func boot(ctx context.Context, args []string) error {
	var m qemu.Machine
	var bin files
	set := flag.NewFlagSet("boot", flag.ContinueOnError)
	set.StringVar(&m.Kernel, "kernel", "", "Debian kernel: 6.12, 6.1, 5.10 (6.12)")
	set.StringVar(&m.NIC, "nic", "", "igb, virtio, vmxnet3, e1000e or none (igb)")
	set.IntVar(&m.Ports, "ports", 0, "how many of that NIC (1)")
	set.IntVar(&m.Queues, "queues", 0, "queues of igb and virtio (4)")
	set.IntVar(&m.SMP, "smp", 0, "CPUs (4)")
	set.IntVar(&m.MemMB, "mem", 0, "memory in MiB (1024)")
	set.BoolVar(&m.NUMA, "numa", false, "two nodes, the NIC on node 1")
	set.BoolVar(&m.NoRSS, "no-rss", false, "virtio without RSS")
	set.StringVar(&m.Append, "append", "", "extra kernel command line")
	set.Var(&bin, "bin", "static program for the guest (may be repeated)")
	cmd := set.String("cmd", "", "what the guest runs")
	script := set.String("script", "", "file with what the guest runs")
	root := set.String("root", "", "tar archive of another system, which boots with its own init")
	timeout := set.Duration("timeout", 5*time.Minute, "when a guest counts as hung")
	if err := set.Parse(args); err != nil {
		return flag.ErrHelp
	}
	job := qemu.Job{Script: *cmd, Bin: bin, Root: *root, Timeout: *timeout, Output: os.Stdout}
	if *script != "" {
		b, err := os.ReadFile(*script)
		if err != nil {
			return err
		}
		job.Script = string(b)
	}
	cache, err := qemu.OpenCache()
	if err != nil {
		return err
	}
	res, err := cache.Boot(ctx, m, job)
	if err != nil {
		return err
	}
	if res.Status != 0 {
		return &qemu.Failure{Code: qemu.ExitAssertion, Line: fmt.Sprintf("the guest's job ended with status %d after %.1f s", res.Status, res.Took.Seconds())}
	}
	return nil
}

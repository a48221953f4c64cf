package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rxsteer/rxsteer/bpf"
)

// arm is something that runs beside the traffic. start returns when it is in
// effect, and what ends it; errUnavailable says that it cannot run here.
type arm struct {
	name  string
	peer  bool // starts slowly and takes part in fewer rounds
	start func(ctx context.Context) (stop func() error, err error)
}

// Names of our arms.
const (
	armNothing = "nothing"
	armPerPoll = "rxsteer, per-poll set"
	armDetail  = "rxsteer, full detail at 1/1024, no budget"
	armAlways  = "rxsteer, its programs of full detail all the time"
	// What no program can go below: here a packet is handed over, comes to the stack, and is dropped at its socket.
	armFloor      = "empty programs: handed over, to the stack"
	armFloorDrops = "empty programs: the same, dropped"
	armBudget     = "rxsteer, 1 % budget (default)"
)

var errUnavailable = errors.New("unavailable")

func nothing(context.Context) (func() error, error) { return func() error { return nil }, nil }

// perPoll is the set that rxsteer attaches at level 1.
func perPoll(context.Context) (func() error, error) {
	p, err := bpf.Load(bpf.Options{})
	if err != nil {
		return nil, err
	}
	if err := p.Attach(); err != nil {
		return nil, errors.Join(err, p.Close())
	}
	return p.Close, nil
}

// always is all of level 2 beside level 1, all the time, which is what a sampler does to slow traffic only: stages of one
// packet in 1024; buckets, classes and flows of one in 64.
func always(r *rig) func(context.Context) (func() error, error) {
	return func(context.Context) (stop func() error, err error) {
		var closers []func() error
		stop = func() error {
			var errs []error
			for _, c := range closers {
				errs = append(errs, c())
			}
			return errors.Join(errs...)
		}
		defer func() {
			if err != nil {
				err = errors.Join(err, stop())
			}
		}()
		polls, err := bpf.Load(bpf.Options{})
		if err != nil {
			return nil, err
		}
		closers = append(closers, polls.Close)
		packets, err := bpf.LoadPackets(bpf.Options{})
		if err != nil {
			return nil, err
		}
		closers = append(closers, packets.Close)
		spread, err := bpf.LoadSpread(bpf.SpreadOptions{})
		if err != nil {
			return nil, err
		}
		closers = append(closers, spread.Close)
		index, err := r.b.IfIndex("b0")
		if err != nil {
			return nil, err
		}
		device := bpf.SpreadDevice{Netns: uint32(r.b.Inode()), IfIndex: uint32(index), Table: make([]int, 128), Key: make([]byte, 40)}
		for i := range device.Key {
			device.Key[i] = byte(7*i + 1)
		}
		for i := range device.Fields {
			device.Fields[i] = "sdfn"
		}
		if err := spread.Configure([]bpf.SpreadDevice{device}); err != nil {
			return nil, err
		}
		return stop, errors.Join(spread.SetRates(64, 1), packets.SetRate(1024), polls.Attach(), packets.Attach(), spread.Attach())
	}
}

// Programs of peers that do comparable work.
const (
	// softirq and NAPI histograms, keyed as rxsteer keys them.
	bpftraceHistograms = `
tracepoint:irq:softirq_entry /args->vec == 3/ { @t[cpu] = nsecs; }
tracepoint:irq:softirq_exit /args->vec == 3 && @t[cpu]/ { @rx = hist(nsecs - @t[cpu]); delete(@t[cpu]); }
tracepoint:napi:napi_poll { @work[args->napi, cpu] = hist(args->work); @polls[args->napi, cpu] = count(); }
BEGIN { printf("ready\n"); }`
	// The same and what netqtop does: counts by queue for each packet.
	bpftracePackets = `
tracepoint:irq:softirq_entry /args->vec == 3/ { @t[cpu] = nsecs; }
tracepoint:irq:softirq_exit /args->vec == 3 && @t[cpu]/ { @rx = hist(nsecs - @t[cpu]); delete(@t[cpu]); }
tracepoint:napi:napi_poll { @work[args->napi, cpu] = hist(args->work); }
tracepoint:net:netif_receive_skb { @size[cpu] = hist(args->len); @packets[cpu] = count(); }
BEGIN { printf("ready\n"); }`
	// The same and the time from the driver to the protocol layer, of each packet.
	bpftraceLatency = `
tracepoint:irq:softirq_entry /args->vec == 3/ { @t[cpu] = nsecs; }
tracepoint:irq:softirq_exit /args->vec == 3 && @t[cpu]/ { @rx = hist(nsecs - @t[cpu]); delete(@t[cpu]); }
tracepoint:napi:napi_poll { @work[args->napi, cpu] = hist(args->work); }
tracepoint:net:napi_gro_receive_entry { @at[args->skbaddr] = nsecs; @bucket[args->hash % 128] = count(); }
tracepoint:net:netif_receive_skb /@at[args->skbaddr]/ { @latency = hist(nsecs - @at[args->skbaddr]); delete(@at[args->skbaddr]); }
BEGIN { printf("ready\n"); }`
)

// arms are rxsteer and its peers, the baseline first and the control second.
func arms(r *rig) []arm {
	return []arm{
		{armNothing, false, nothing},
		{"nothing (A/A control)", false, nothing},
		{armPerPoll, false, perPoll},
		{armAlways, false, always(r)},
		{armFloor, false, empty("napi_gro_receive_entry", "netif_receive_skb")},
		{armFloorDrops, false, empty("napi_gro_receive_entry", "netif_receive_skb", "kfree_skb")},
		{"bpftrace: softirq + NAPI histograms", true, tool("ready", "bpftrace", "-e", bpftraceHistograms)},
		{"bpftrace: the same + netqtop's work", true, tool("ready", "bpftrace", "-e", bpftracePackets)},
		{"bpftrace: the same + buckets, latency", true, tool("ready", "bpftrace", "-e", bpftraceLatency)},
		{"libbpf-tools softirqs", true, timed(time.Second, "softirqs", "-d")},
		{"perf trace: the same tracepoints", true, timed(time.Second, "perf", "trace", "-a", "-o", "/dev/null",
			"-e", "irq:softirq_entry,irq:softirq_exit,irq:softirq_raise,napi:napi_poll")},
	}
}

// tool is a program that says on its output when it is ready.
func tool(ready, name string, args ...string) func(context.Context) (func() error, error) {
	return func(ctx context.Context) (func() error, error) {
		p, err := startProcess(ctx, name, args)
		if err != nil {
			return nil, err
		}
		seen := make(chan bool, 1)
		var said strings.Builder // complete once seen has an answer
		go func() {
			sc := bufio.NewScanner(p.out)
			found := false
			for !found && sc.Scan() {
				found = strings.Contains(sc.Text(), ready)
				if said.Len() < 2000 {
					fmt.Fprintln(&said, sc.Text())
				}
			}
			seen <- found
			_, _ = io.Copy(io.Discard, p.out)
		}()
		select {
		case found := <-seen:
			if !found {
				return nil, errors.Join(fmt.Errorf("%w: %s: %s", errUnavailable, name, strings.TrimSpace(said.String())), p.stop())
			}
		case <-time.After(20 * time.Second):
			return nil, errors.Join(fmt.Errorf("%w: %s did not say %q within 20 s", errUnavailable, name, ready), p.stop())
		}
		return p.stop, nil
	}
}

// timed is a program that does not say when it is ready: it gets some time.
func timed(d time.Duration, name string, args ...string) func(context.Context) (func() error, error) {
	return func(ctx context.Context) (func() error, error) {
		p, err := startProcess(ctx, name, args)
		if err != nil {
			return nil, err
		}
		ended := make(chan string, 1)
		go func() {
			b, _ := io.ReadAll(io.LimitReader(p.out, 2000))
			ended <- string(b)
			_, _ = io.Copy(io.Discard, p.out)
		}()
		select {
		case said := <-ended:
			return nil, errors.Join(fmt.Errorf("%w: %s: %s", errUnavailable, name, strings.TrimSpace(said)), p.stop())
		case <-time.After(d):
			return p.stop, nil
		}
	}
}

// process is a peer that runs.
type process struct {
	cmd  *exec.Cmd
	out  io.Reader // stdout and stderr; ends with the process
	done chan struct{}
}

func startProcess(ctx context.Context, name string, args []string) (*process, error) {
	path, err := exec.LookPath(name)
	if err != nil {
		return nil, fmt.Errorf("%w: %s is not installed", errUnavailable, name)
	}
	p := &process{cmd: exec.CommandContext(ctx, path, args...), done: make(chan struct{})}
	p.cmd.WaitDelay = 5 * time.Second
	out, in := io.Pipe()
	p.out, p.cmd.Stdout, p.cmd.Stderr = out, in, in
	if err := p.cmd.Start(); err != nil {
		return nil, fmt.Errorf("%w: start %s: %w", errUnavailable, name, err)
	}
	go func() {
		defer close(p.done)
		_ = p.cmd.Wait() // an interrupted peer may end with any status
		in.Close()
	}()
	return p, nil
}

// stop interrupts the process and waits until it is gone. One that takes its
// time to print what it saw is killed: its cost has been measured.
func (p *process) stop() error {
	_ = p.cmd.Process.Signal(unix.SIGINT) // it may have ended by itself
	select {
	case <-p.done:
	case <-time.After(5 * time.Second):
		_ = p.cmd.Process.Kill()
		<-p.done
	}
	return nil
}

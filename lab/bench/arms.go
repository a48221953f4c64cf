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
)

// arms are rxsteer and its peers, the baseline first and the control second.
func arms() []arm {
	return []arm{
		{"nothing", false, nothing},
		{"nothing (A/A control)", false, nothing},
		{"rxsteer, per-poll set", false, perPoll},
		{"bpftrace: softirq + NAPI histograms", true, tool("ready", "bpftrace", "-e", bpftraceHistograms)},
		{"bpftrace: the same + each packet", true, tool("ready", "bpftrace", "-e", bpftracePackets)},
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

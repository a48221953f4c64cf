package main

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"
)

// commandLoad runs the command that the user gave rxsteer trial to make load. It is the one place that
// runs another program: this one is the user's, not a tool of ours.
type commandLoad struct {
	path string
	args []string
}

func newCommandLoad(command []string) (*commandLoad, error) {
	path, err := exec.LookPath(command[0])
	if err != nil {
		return nil, &failure{exitUsage, fmt.Errorf("find the command that makes the load: %w", err), nil}
	}
	return &commandLoad{path: path, args: command}, nil
}

const (
	loadGrace = 2 * time.Second        // after SIGTERM
	loadPause = 200 * time.Millisecond // between two runs of a command that ends at once
)

// start runs copies of the command until stop; each is started again when it ends. One that fails is told.
func (l *commandLoad) start(copies int, failed func(error)) (stop func(), err error) {
	ctx, cancel := context.WithCancel(context.Background())
	var all sync.WaitGroup
	started := make(chan error, copies)
	for range copies {
		all.Go(func() { l.loop(ctx, started, failed) })
	}
	for range copies {
		if serr := <-started; serr != nil && err == nil {
			err = serr
		}
	}
	stop = func() { cancel(); all.Wait() }
	if err != nil {
		stop()
		return nil, err
	}
	return stop, nil
}

// loop keeps one copy running. The thread stays its parent's, so that the copy dies with this process
// however that dies.
func (l *commandLoad) loop(ctx context.Context, started chan<- error, failed func(error)) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	for first := true; ; first = false {
		c := exec.CommandContext(ctx, l.path, l.args[1:]...)
		c.Args[0] = l.args[0]
		said := &lastWords{}
		c.Stderr = said
		c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
		c.Cancel = func() error { return syscall.Kill(-c.Process.Pid, syscall.SIGTERM) }
		c.WaitDelay = loadGrace
		begun := time.Now()
		err := c.Start()
		if first {
			started <- err
		}
		if err == nil {
			err = c.Wait()
			// What it started and left behind ends with it.
			if kerr := syscall.Kill(-c.Process.Pid, syscall.SIGKILL); kerr != nil && !errors.Is(kerr, syscall.ESRCH) && err == nil {
				err = kerr
			}
		}
		if ctx.Err() != nil {
			return
		}
		if err != nil {
			failed(fmt.Errorf("%s: %w%s", strings.Join(l.args, " "), err, said))
			return
		}
		if time.Since(begun) < loadPause {
			select {
			case <-ctx.Done():
				return
			case <-time.After(loadPause):
			}
		}
	}
}

// lastWords keeps the end of what a command says.
type lastWords struct{ text []byte }

func (w *lastWords) Write(b []byte) (int, error) {
	const most = 500
	w.text = append(w.text, b...)
	w.text = w.text[max(0, len(w.text)-most):]
	return len(b), nil
}

func (w *lastWords) String() string {
	if s := strings.TrimSpace(string(w.text)); s != "" {
		return ": " + s
	}
	return ""
}

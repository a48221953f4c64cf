package main

import (
	"io"
	"os"
	"strconv"
	"time"

	"golang.org/x/term"

	"github.com/rxsteer/rxsteer/bpf"
	"github.com/rxsteer/rxsteer/collector"
	"github.com/rxsteer/rxsteer/internal/host"
)

// env is everything a command gets from outside; tests make their own.
type env struct {
	args   []string
	stdin  io.Reader
	stdout io.Writer
	stderr io.Writer
	getenv func(string) string
	now    func() time.Time
	fs     host.FS
	// bpf and attach replace the kernel's types and the programs; nil in the real thing.
	bpf    bpf.Options
	attach func() (collector.Programs, []collector.Unmeasured, error)
	// What the streams are: colour and line editing only go to a terminal.
	stdinTTY, stdoutTTY, stderrTTY bool
	width                          int // columns of the terminal, 100 where there is none
}

const defaultWidth = 100

func newEnv() *env {
	e := &env{
		args:   os.Args[1:],
		stdin:  os.Stdin,
		stdout: os.Stdout,
		stderr: os.Stderr,
		getenv: os.Getenv,
		now:    time.Now,
		// In a container the host's own trees are mounted elsewhere: the runtime hides parts of the container's.
		fs:        host.OS{Proc: os.Getenv("RXSTEER_PROC"), Sys: os.Getenv("RXSTEER_SYS")},
		stdinTTY:  term.IsTerminal(int(os.Stdin.Fd())),
		stdoutTTY: term.IsTerminal(int(os.Stdout.Fd())),
		stderrTTY: term.IsTerminal(int(os.Stderr.Fd())),
		width:     defaultWidth,
	}
	if w, err := strconv.Atoi(e.getenv("COLUMNS")); err == nil && w >= 40 {
		e.width = w
	}
	if e.stdoutTTY {
		if w, _, err := term.GetSize(int(os.Stdout.Fd())); err == nil && w >= 40 {
			e.width = w
		}
	}
	return e
}

package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/rxsteer/rxsteer/steer/control"
)

// errTaken says that another agent steers this host.
var errTaken = errors.New("another agent steers this host")

// turn is held by the one agent of a host that steers: two would take each other's changes for somebody else's.
// Agents that only measure or advise need none.
type turn struct {
	dir  string // of the journal
	file *os.File
}

const lockFile = "agent.lock"

func steers(c *control.Config) bool {
	return c.Mode == control.Auto || slices.ContainsFunc(c.Devices, func(d control.Device) bool { return d.Mode == control.Auto })
}

// take takes the turn where the configuration steers. Once taken it is held to the end. It returns errTaken, or what
// keeps this host from having a journal.
func (t *turn) take(c *control.Config) error {
	if t.file != nil || !steers(c) {
		return nil
	}
	if err := os.MkdirAll(t.dir, 0o755); err != nil {
		return fmt.Errorf("take the turn to steer: %w", err)
	}
	f, err := os.OpenFile(filepath.Join(t.dir, lockFile), os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return fmt.Errorf("take the turn to steer: %w", err)
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		defer f.Close()
		if !errors.Is(err, unix.EWOULDBLOCK) {
			return fmt.Errorf("take the turn to steer: lock %s: %w", f.Name(), err)
		}
		var pid [20]byte
		n, _ := f.Read(pid[:]) // only for the message
		return fmt.Errorf("%w (pid %s)", errTaken, strings.TrimSpace(string(pid[:n])))
	}
	if err := errors.Join(f.Truncate(0), writeAt(f, fmt.Sprintln(os.Getpid()))); err != nil {
		f.Close()
		return fmt.Errorf("take the turn to steer: %w", err)
	}
	t.file = f
	return nil
}

func writeAt(f *os.File, text string) error {
	_, err := f.WriteAt([]byte(text), 0)
	return err
}

// agentChecks is what doctor says of the agent that has the turn.
func agentChecks(dir string) []check {
	var st unix.Stat_t
	if unix.Stat(filepath.Join(dir, lockFile), &st) != nil {
		return nil
	}
	locks, err := os.ReadFile("/proc/locks") // asking flock itself would for a moment take the turn
	if err != nil {
		return nil
	}
	for line := range strings.Lines(string(locks)) {
		// 1: FLOCK ADVISORY WRITE PID MAJOR:MINOR:INODE 0 EOF (proc_locks(5))
		f := strings.Fields(line)
		if len(f) >= 6 && f[1] == "FLOCK" && strings.HasSuffix(f[5], fmt.Sprintf(":%d", st.Ino)) {
			return []check{{Area: areaState, Name: "an agent steers this host (pid " + f[4] + "); another that would is refused", OK: true}}
		}
	}
	return nil
}

func (t *turn) release() {
	if t.file != nil {
		t.file.Close()
	}
}

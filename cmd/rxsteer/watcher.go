package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/rxsteer/rxsteer/internal/host/systemd"
	"github.com/rxsteer/rxsteer/steer/apply"
)

// startWatcher starts this program again so that it undoes an unconfirmed transaction in time whatever
// becomes of this process, its terminal, session or login: as a transient unit of systemd where that runs,
// else as a process of its own session.
func (e *env) startWatcher(dir, id string) error {
	exe, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find this program: %w", err)
	}
	if err := e.watchAsUnit(exe, dir, id); err == nil {
		return nil
	} else if !errors.Is(err, errNoUnit) {
		fmt.Fprintf(e.stderr, "rxsteer: watched by a process, not by a unit: %v\n", err)
	}
	return watchDetached(exe, dir, id)
}

var errNoUnit = errors.New("no unit can watch here")

// watchAsUnit cannot be had without systemd, nor in another network namespace than systemd's, where the
// names of a transaction mean other devices.
func (e *env) watchAsUnit(exe, dir, id string) error {
	ours, err1 := e.fs.Readlink("/proc/self/ns/net")
	theirs, err2 := e.fs.Readlink("/proc/1/ns/net")
	if !systemd.Running(e.fs) || err1 != nil || err2 != nil || ours != theirs {
		return errNoUnit
	}
	ctx, cancel := context.WithTimeout(context.Background(), systemdWait)
	defer cancel()
	m, err := systemd.Dial(ctx)
	if err != nil {
		return err
	}
	defer m.Close()
	unit := fmt.Sprintf("rxsteer-watch-%s-%d.service", id, os.Getpid())
	return m.Run(ctx, unit, "rxsteer: undo transaction "+id+" unless confirmed", []string{exe, "watch", "--state-dir", dir, id})
}

// watchDetached is the one place where rxsteer starts a process of its own, and only ever itself.
func watchDetached(exe, dir, id string) error {
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return fmt.Errorf("start watcher: %w", err)
	}
	defer null.Close()
	p, err := os.StartProcess(exe, []string{exe, "watch", "--state-dir", dir, id}, &os.ProcAttr{
		Dir:   "/",
		Env:   []string{},
		Files: []*os.File{null, null, null},
		// A new session: neither the terminal's hangup nor its Ctrl-C reaches it.
		Sys: &syscall.SysProcAttr{Setsid: true},
	})
	if err != nil {
		return fmt.Errorf("start watcher: %w", err)
	}
	if err := p.Release(); err != nil {
		return fmt.Errorf("start watcher: %w", err)
	}
	return nil
}

// watchCommand is what startWatcher runs. A signal does not end it before the time is up: an
// unconfirmed change must not stay because a session ended.
func watchCommand(e *env) *cobra.Command {
	var dir string
	c := &cobra.Command{
		Use:    "watch ID",
		Short:  "Undo an unconfirmed transaction when its time is up",
		Long:   "Undo an unconfirmed transaction when its time is up. apply --confirm-within starts this by itself.",
		Hidden: true,
		Args:   cobra.ExactArgs(1),
	}
	addStateDir(c, &dir)
	c.RunE = func(c *cobra.Command, args []string) error {
		h, err := e.openHost()
		if err != nil {
			return err
		}
		defer h.close()
		_, err = apply.Watch(context.WithoutCancel(c.Context()), apply.Config{Dir: dir, Host: h.machine}, args[0])
		return applyFailure(err)
	}
	return c
}

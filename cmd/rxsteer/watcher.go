package main

import (
	"context"
	"fmt"
	"os"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/rxsteer/rxsteer/steer/apply"
)

// startWatcher starts this program again as a process of its own session, without a
// terminal, that undoes an unconfirmed transaction in time. It is the one place
// where rxsteer starts a process, and only ever itself.
func startWatcher(dir, id string) error {
	exe, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find this program: %w", err)
	}
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

package main

import (
	"context"
	"fmt"
	"time"

	"github.com/rxsteer/rxsteer/internal/host/systemd"
)

const systemdWait = 20 * time.Second

// systemd makes the service manager take a unit that was just written, or forget one that was removed.
func (e *env) systemd(ctx context.Context, root, unit string, there bool) error {
	if root != "/" {
		return nil // of another system
	}
	if !systemd.Running(e.fs) {
		if there {
			fmt.Fprintln(e.stdout, "systemd does not run here: have your init start, after it has set up the network: rxsteer persist-run")
		}
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, systemdWait)
	defer cancel()
	err := func() error {
		m, err := systemd.Dial(ctx)
		if err != nil {
			return err
		}
		defer m.Close()
		if !there {
			if err := m.Stop(ctx, unit); err != nil {
				fmt.Fprintln(e.stderr, "rxsteer: "+err.Error())
			}
			return m.Reload(ctx)
		}
		if err := m.Reload(ctx); err != nil {
			return err
		}
		return m.Restart(ctx, unit)
	}()
	if err != nil {
		return &failure{exitFailed, fmt.Errorf("the files are as they should be, but: %w", err), []string{"systemctl daemon-reload", "systemctl restart " + unit}}
	}
	return nil
}

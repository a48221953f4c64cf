// Package systemd asks the service manager of this host for the few things rxsteer needs: to read its
// units again, to start or stop one, and to run a program as a transient unit, which no
// terminal, session or login takes down with it.
//
// It refuses to be needed: where systemd does not run, Running says so and the caller has another way.
package systemd

import (
	"context"
	"fmt"

	"github.com/coreos/go-systemd/v22/dbus"
	godbus "github.com/godbus/dbus/v5"

	"github.com/rxsteer/rxsteer/internal/host"
)

// Running reports whether systemd manages this host, as sd_booted(3) tells.
func Running(fs host.FS) bool {
	_, err := fs.ReadDir("/run/systemd/system")
	return err == nil
}

// Manager is a connection to it over the system bus.
type Manager struct{ c *dbus.Conn }

// Dial connects.
func Dial(ctx context.Context) (*Manager, error) {
	c, err := dbus.NewSystemConnectionContext(ctx)
	if err != nil {
		return nil, fmt.Errorf("reach systemd over D-Bus: %w", err)
	}
	return &Manager{c}, nil
}

func (m *Manager) Close() { m.c.Close() }

// Reload makes it read its units again.
func (m *Manager) Reload(ctx context.Context) error {
	if err := m.c.ReloadContext(ctx); err != nil {
		return fmt.Errorf("reload systemd: %w", err)
	}
	return nil
}

// Restart starts a unit, or starts it again.
func (m *Manager) Restart(ctx context.Context, unit string) error {
	return job("start "+unit, ctx, func(done chan<- string) (int, error) {
		return m.c.RestartUnitContext(ctx, unit, "replace", done)
	})
}

// Stop stops a unit.
func (m *Manager) Stop(ctx context.Context, unit string) error {
	return job("stop "+unit, ctx, func(done chan<- string) (int, error) {
		return m.c.StopUnitContext(ctx, unit, "replace", done)
	})
}

// Run starts a program as a transient unit that is forgotten when it ends (systemd-run(1)).
func (m *Manager) Run(ctx context.Context, unit, description string, command []string) error {
	return job("run "+unit, ctx, func(done chan<- string) (int, error) {
		return m.c.StartTransientUnitContext(ctx, unit, "fail", []dbus.Property{
			dbus.PropDescription(description),
			dbus.PropType("exec"), // the job is done when the program runs, not when systemd has forked
			dbus.PropExecStart(command, false),
			{Name: "CollectMode", Value: godbus.MakeVariant("inactive-or-failed")},
		}, done)
	})
}

// job waits for the end of what was asked for.
func job(what string, ctx context.Context, ask func(done chan<- string) (int, error)) error {
	done := make(chan string, 1)
	if _, err := ask(done); err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	select {
	case result := <-done:
		if result != "done" {
			return fmt.Errorf("%s: systemd says %q", what, result)
		}
		return nil
	case <-ctx.Done():
		return fmt.Errorf("%s: %w", what, ctx.Err())
	}
}

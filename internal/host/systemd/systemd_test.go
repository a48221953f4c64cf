package systemd

import (
	"bufio"
	"fmt"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	godbus "github.com/godbus/dbus/v5"

	"github.com/rxsteer/rxsteer/internal/host/hosttest"
)

const manager = "org.freedesktop.systemd1"

// fake is a systemd that answers as org.freedesktop.systemd1(5) says and notes what it is asked.
type fake struct {
	mu     sync.Mutex
	conn   *godbus.Conn
	asked  []string
	result string // of every job
	jobs   uint32
}

func (f *fake) note(format string, args ...any) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.asked = append(f.asked, fmt.Sprintf(format, args...))
}

// job ends a moment after it was given out.
func (f *fake) job(unit string) (godbus.ObjectPath, *godbus.Error) {
	f.mu.Lock()
	f.jobs++
	id, result := f.jobs, f.result
	f.mu.Unlock()
	path := godbus.ObjectPath(fmt.Sprintf("/org/freedesktop/systemd1/job/%d", id))
	go func() {
		time.Sleep(20 * time.Millisecond)
		f.conn.Emit("/org/freedesktop/systemd1", manager+".Manager.JobRemoved", id, path, unit, result)
	}()
	return path, nil
}

func (f *fake) Reload() *godbus.Error { f.note("reload"); return nil }

func (f *fake) Subscribe() *godbus.Error { return nil }

func (f *fake) RestartUnit(unit, mode string) (godbus.ObjectPath, *godbus.Error) {
	f.note("restart %s %s", unit, mode)
	return f.job(unit)
}

func (f *fake) StopUnit(unit, mode string) (godbus.ObjectPath, *godbus.Error) {
	f.note("stop %s %s", unit, mode)
	return f.job(unit)
}

type property struct {
	Name  string
	Value godbus.Variant
}

func (f *fake) StartTransientUnit(unit, mode string, properties []property, _ []struct {
	Name       string
	Properties []property
}) (godbus.ObjectPath, *godbus.Error) {
	text := fmt.Sprintf("run %s %s", unit, mode)
	for _, p := range properties {
		text += fmt.Sprintf(" %s=%v", p.Name, p.Value.Value())
	}
	f.note("%s", text)
	return f.job(unit)
}

// bus starts a bus of its own with a fake systemd on it, and makes it this process's system bus.
func bus(t *testing.T) *fake {
	t.Helper()
	daemon, err := exec.LookPath("dbus-daemon")
	if err != nil {
		t.Skip("dbus-daemon is not installed")
	}
	c := exec.Command(daemon, "--session", "--nofork", "--print-address", "--address=unix:path="+t.TempDir()+"/bus")
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Process.Kill(); c.Wait() })
	address, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("DBUS_SYSTEM_BUS_ADDRESS", strings.TrimSpace(address))
	conn, err := godbus.Connect(strings.TrimSpace(address))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	f := &fake{conn: conn, result: "done"}
	if err := conn.Export(f, "/org/freedesktop/systemd1", manager+".Manager"); err != nil {
		t.Fatal(err)
	}
	if reply, err := conn.RequestName(manager, godbus.NameFlagDoNotQueue); err != nil || reply != godbus.RequestNameReplyPrimaryOwner {
		t.Fatalf("%v, %v", reply, err)
	}
	return f
}

func TestManager(t *testing.T) {
	f := bus(t)
	m, err := Dial(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	for _, err := range []error{m.Reload(t.Context()), m.Restart(t.Context(), "a.service"), m.Stop(t.Context(), "a.service"),
		m.Run(t.Context(), "w.service", "a watcher", []string{"/bin/rxsteer", "watch", "3"})} {
		if err != nil {
			t.Error(err)
		}
	}
	f.mu.Lock()
	got := strings.Join(f.asked, "\n")
	f.mu.Unlock()
	if want := "reload\nrestart a.service replace\nstop a.service replace\nrun w.service fail Description=a watcher Type=exec ExecStart=[[/bin/rxsteer [/bin/rxsteer watch 3] false]] CollectMode=inactive-or-failed"; got != want {
		t.Errorf("asked\n%s\nwant\n%s", got, want)
	}
	f.mu.Lock()
	f.result = "failed"
	f.mu.Unlock()
	if err := m.Restart(t.Context(), "a.service"); err == nil || err.Error() != `start a.service: systemd says "failed"` {
		t.Error(err)
	}
}

func TestRunning(t *testing.T) {
	if !Running(hosttest.Static(t, map[string]string{"/run/systemd/system/": ""})) || Running(hosttest.Static(t, map[string]string{"/run/x": ""})) {
		t.Error("sd_booted(3) looks for /run/systemd/system")
	}
}

func TestNoBus(t *testing.T) {
	t.Setenv("DBUS_SYSTEM_BUS_ADDRESS", "unix:path="+t.TempDir()+"/none")
	if m, err := Dial(t.Context()); err == nil || !strings.HasPrefix(err.Error(), "reach systemd over D-Bus: ") {
		t.Errorf("%v, %v", m, err)
	}
}

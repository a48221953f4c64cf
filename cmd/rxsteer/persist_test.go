package main

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rxsteer/rxsteer/internal/testnet"
	"github.com/rxsteer/rxsteer/steer/persist"
)

// persisted applies the test's plan, keeps it and persists it below a folder.
func (r *rig) persisted() (root string) {
	r.t.Helper()
	root = r.t.TempDir()
	r.rxsteer(r.apply(r.plan(nil))...).want(r.t, exitOK)
	o := r.rxsteer("persist", "--state-dir", r.dir, "--root", root).want(r.t, exitOK)
	if !strings.Contains(o.stdout, "wrote "+persist.PlanFile) {
		r.t.Errorf("%s", o.stdout)
	}
	return root
}

// reboot is what a boot does to what is set here and to the journal.
func (r *rig) reboot() {
	r.t.Helper()
	if err := r.b.FS().WriteFile("/sys/class/net/b0/queues/rx-0/rps_cpus", []byte("0")); err != nil {
		r.t.Fatal(err)
	}
	r.dir = r.t.TempDir()
}

func (r *rig) persistRun(root string, more ...string) []string {
	return append([]string{"persist-run", "--state-dir", r.dir, "--root", root, "--healthy-after", "300ms"}, more...)
}

func (r *rig) health(root string) (h persist.Health) {
	r.t.Helper()
	b, err := os.ReadFile(filepath.Join(root, persist.HealthFile))
	if err == nil {
		err = json.Unmarshal(b, &h)
	}
	if err != nil {
		r.t.Fatal(err)
	}
	return h
}

func (r *rig) setHealth(root string, h persist.Health) {
	r.t.Helper()
	b, err := json.Marshal(h)
	if err == nil {
		err = os.WriteFile(filepath.Join(root, persist.HealthFile), b, 0o644)
	}
	if err != nil {
		r.t.Fatal(err)
	}
}

func (r *rig) editPersisted(root, was, is string) {
	r.t.Helper()
	name := filepath.Join(root, persist.PlanFile)
	b, err := os.ReadFile(name)
	if err != nil {
		r.t.Fatal(err)
	}
	text := strings.Replace(string(b), was, is, 1)
	if text == string(b) {
		r.t.Fatalf("no %s in %s", was, b)
	}
	if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
		r.t.Fatal(err)
	}
}

func TestPersistAppliesAgain(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.rxsteer("persist", "--state-dir", r.dir).want(t, exitFailed, "nothing to persist", "rxsteer apply PLAN")
	root := r.persisted()
	if h := r.health(root); !h.Healthy {
		t.Error("what this boot has confirmed is not healthy")
	}
	r.reboot()
	r.setHealth(root, persist.Health{BootID: "the boot before", Healthy: true})
	o := r.rxsteer(r.persistRun(root, "--once")...).want(t, exitOK)
	if r.rps() != "1" || !strings.Contains(o.stderr, "persist: rps-cpus of b0 rx-0: none → 0: applied") {
		t.Errorf("mask %q: %s", r.rps(), o.stderr)
	}
	if h := r.health(root); !h.Healthy || h.BootID == "the boot before" {
		t.Errorf("%+v", h)
	}
	if txs := r.history(); len(txs) != 1 || txs[0].State != "kept" || txs[0].Why != "confirmed" {
		t.Errorf("%+v", txs)
	}
	// Nothing to do is no transaction.
	r.rxsteer(r.persistRun(root, "--once")...).want(t, exitOK)
	if txs := r.history(); len(txs) != 1 {
		t.Errorf("%+v", txs)
	}
	// --remove leaves nothing.
	r.rxsteer("persist", "--remove", "--root", root).want(t, exitOK)
	if err := filepath.WalkDir(root, func(p string, d os.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			t.Errorf("left: %s", p)
		}
		return err
	}); err != nil {
		t.Error(err)
	}
	if o := r.rxsteer("persist", "--remove", "--root", root).want(t, exitOK); !strings.Contains(o.stdout, "Nothing is persisted here") {
		t.Error(o.stdout)
	}
	r.rxsteer(r.persistRun(root)...).want(t, exitFailed, "persist.json", "rxsteer persist writes it")
}

// kept reports whether n transactions were made and the last is kept.
func (r *rig) kept(n int) bool {
	txs := r.history()
	return len(txs) == n && txs[n-1].State == "kept"
}

// A device that is removed and created again, and one that is reconfigured, get their settings again.
func TestPersistFollowsTheDevice(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	root := r.persisted()
	r.reboot()
	p := r.start(r.persistRun(root)...)
	await(t, "the mask after the boot", func() bool { return r.kept(1) && r.rps() == "1" })

	if err := r.b.IP("link", "del", "b0"); err != nil {
		t.Fatal(err)
	}
	if err := testnet.Connect(r.a, r.b, testnet.Veth{Queues: 2, NAPI: true, AddrA: "10.81.0.1/24", AddrB: "10.81.0.2/24"}); err != nil {
		t.Fatal(err)
	}
	if r.rps() != "" {
		t.Fatal("the new device already has a mask: the test tests nothing")
	}
	defer func() {
		if t.Failed() {
			for _, x := range r.history() {
				t.Logf("transaction %s is %s: %s", x.ID, x.State, x.Why)
			}
			p.Process.Kill()
			t.Log(finish(t, p).stderr)
		}
	}()
	await(t, "the mask of the new device", func() bool { return r.kept(2) && r.rps() == "1" })

	// ethtool -L takes queues away, and what was set on them; back with as many as were confirmed all is set again.
	if err := r.b.Run("ethtool", "-L", "b0", "rx", "1", "tx", "1"); err != nil {
		t.Fatal(err)
	}
	if err := r.b.FS().WriteFile("/sys/class/net/b0/queues/rx-0/rps_cpus", []byte("0")); err != nil {
		t.Fatal(err)
	}
	// It refuses that, and goes on watching: a second of looking, two of calm.
	time.Sleep(persistLook + persistCalm + time.Second)
	if r.rps() != "" || !r.kept(2) {
		t.Errorf("with another queue count: mask %q, %d transactions", r.rps(), len(r.history()))
	}
	if err := r.b.Run("ethtool", "-L", "b0", "rx", "2", "tx", "2"); err != nil {
		t.Fatal(err)
	}
	await(t, "the mask after ethtool -L", func() bool { return r.kept(3) && r.rps() == "1" })
	if err := p.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if o := finish(t, p); o.code != exitOK || r.rps() != "1" {
		t.Errorf("exit %d, mask %q: %s", o.code, r.rps(), o.stderr)
	}
}

func TestPersistRefuses(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	root := r.persisted()
	r.reboot()
	r.setHealth(root, persist.Health{BootID: "the boot before"})
	r.rxsteer(r.persistRun(root, "--once")...).want(t, exitRolledBack, "never confirmed healthy", "rxsteer persist --remove")
	r.setHealth(root, persist.Health{BootID: "the boot before", Healthy: true})
	for _, edit := range [][3]string{
		{`"kernel": "`, `"kernel": "9.`, "was confirmed on 9."},
		{`"driver": "veth"`, `"driver": "igb"`, "b0 has driver veth, was confirmed with igb"},
		{`"rx_queues": 2`, `"rx_queues": 7`, "b0 has queues 2 rx 2 tx, was confirmed with 7 rx 2 tx"},
	} {
		if edit[0] == `"rx_queues": 2` { // what was there when it was confirmed counts too
			r.editPersisted(root, `"rx": 2`, `"rx": 7`)
		}
		r.editPersisted(root, edit[0], edit[1])
		r.setHealth(root, persist.Health{BootID: "the boot before", Healthy: true})
		r.rxsteer(r.persistRun(root, "--once")...).want(t, exitRolledBack, edit[2], "apply and confirm it here")
		if r.rps() != "" || len(r.history()) != 0 {
			t.Errorf("%s: mask %q, %d transactions", edit[2], r.rps(), len(r.history()))
		}
		r.editPersisted(root, edit[1], edit[0])
	}
}

func TestPersistPrints(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	root := t.TempDir()
	r.rxsteer(r.apply(r.plan(nil))...).want(t, exitOK)
	o := r.rxsteer("persist", "--print", "--state-dir", r.dir, "--root", root).want(t, exitOK)
	for _, s := range []string{"# " + persist.PlanFile, "# " + persist.UnitFile, "persist-run", "After=NetworkManager.service"} {
		if !strings.Contains(o.stdout, s) {
			t.Errorf("no %q in:\n%s", s, o.stdout)
		}
	}
	if es, err := os.ReadDir(root); err != nil || len(es) > 0 {
		t.Errorf("--print wrote %v, %v", es, err)
	}
}

// TestPersistUnit: the unit in deploy/ is the one that is written, and systemd finds no fault in it.
func TestPersistUnit(t *testing.T) {
	const file = "../../deploy/systemd/rxsteer-persist.service"
	text := persist.Unit("/usr/local/bin/rxsteer")
	if *update {
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	have, err := os.ReadFile(file)
	if err != nil || string(have) != text {
		t.Errorf("%s is not what rxsteer persist writes (go test -update): %v", file, err)
	}
	analyze, err := exec.LookPath("systemd-analyze")
	if err != nil {
		t.Skip("needs systemd-analyze (Debian: systemd)")
	}
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	unit := filepath.Join(t.TempDir(), persist.UnitName)
	if err := os.WriteFile(unit, []byte(persist.Unit(exe)), 0o644); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command(analyze, "verify", "--man=no", unit).CombinedOutput()
	if err != nil || strings.Contains(string(out), "rxsteer-persist") {
		t.Errorf("systemd-analyze verify: %v: %s", err, out)
	}
}

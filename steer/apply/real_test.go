package apply

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/rxsteer/rxsteer/internal/cpuset"
	"github.com/rxsteer/rxsteer/internal/ethtool"
	"github.com/rxsteer/rxsteer/internal/host"
	"github.com/rxsteer/rxsteer/internal/host/knob"
	"github.com/rxsteer/rxsteer/internal/testnet"
	"github.com/rxsteer/rxsteer/steer/plan"
)

// The real kernel is driven by children of this test binary that live in a namespace of the
// test's own: /proc/self then is theirs, and they can be killed like any rxsteer.
const (
	childDo    = "RXSTEER_TEST_DO"    // plan, apply, recover, rollback
	childDir   = "RXSTEER_TEST_DIR"   // of the journal
	childPlan  = "RXSTEER_TEST_PLAN"  // to apply; none: one is made
	childPause = "RXSTEER_TEST_PAUSE" // "before N" or "after N": stop for ever around the N-th write
)

func TestMain(m *testing.M) {
	do := os.Getenv(childDo)
	if do == "" {
		os.Exit(m.Run())
	}
	if err := child(do); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

const device = "b0" // testnet's name of a veth's receiving end

func child(do string) error {
	m, err := machine()
	if err != nil {
		return err
	}
	e, err := Open(context.Background(), Config{Dir: os.Getenv(childDir), Host: pausing{m, new(int)}})
	if err != nil {
		return err
	}
	defer e.Close()
	var res []*Result
	switch do {
	case "plan":
		s, err := m.Snapshot(context.Background())
		if err != nil {
			return err
		}
		p, err := masksPlan(s)
		if err != nil {
			return err
		}
		return json.NewEncoder(os.Stdout).Encode(p)
	case "apply":
		var p *plan.Plan
		if text := os.Getenv(childPlan); text != "" {
			p = &plan.Plan{}
			if err := json.Unmarshal([]byte(text), p); err != nil {
				return err
			}
		} else {
			s, err := m.Snapshot(context.Background())
			if err != nil {
				return err
			}
			if p, err = masksPlan(s); err != nil {
				return err
			}
		}
		r, err := e.Apply(context.Background(), p, short)
		if err != nil {
			return err
		}
		res = append(res, r)
	case "recover":
		if res, err = e.Recover(); err != nil {
			return err
		}
	case "rollback":
		r, err := e.Rollback("")
		if err != nil {
			return err
		}
		res = append(res, r)
	default:
		return errors.New("do " + do + "?")
	}
	return json.NewEncoder(os.Stdout).Encode(res)
}

// machine is this host; settings of drivers are part of it where netlink tells them.
func machine() (*knob.Machine, error) {
	c := knob.Config{FS: host.OS{}}
	if e, err := ethtool.New(); err == nil {
		c.Ethtool = e
	}
	return knob.Open(c)
}

// masksPlan sets the masks of all receive queues of the device to all CPUs.
func masksPlan(s *knob.Snapshot) (*plan.Plan, error) {
	p := &plan.Plan{Version: plan.Version, Goal: plan.Balanced, Identity: plan.Identity{BootID: s.Host.BootID, Netns: s.Host.Netns, Kernel: s.Host.Kernel}}
	online, err := cpuset.ParseList(s.Host.CPUs)
	if err != nil {
		return nil, err
	}
	for _, d := range s.Devices {
		if d.Name != device {
			continue
		}
		p.Identity.Devices = []plan.Device{plan.Of(d)}
		for q := range d.RXQueues {
			ref := knob.Ref{Knob: knob.RPSCPUs, Target: knob.On(device, "rx-%d", q)}
			p.Changes = append(p.Changes, plan.Change{Knob: ref.Knob, Target: ref.Target, From: s.Get(ref), To: knob.Set(online), Risk: plan.Reorder})
		}
	}
	return p, nil
}

// pausing stops around one write, so that the parent can kill this process there.
type pausing struct {
	*knob.Machine
	n *int
}

func (p pausing) Write(ctx context.Context, ref knob.Ref, from, to knob.Value) error {
	when, at, _ := strings.Cut(os.Getenv(childPause), " ")
	pause := func(now string) {
		if when == now && strconv.Itoa(*p.n) == at {
			fmt.Println("paused")
			time.Sleep(time.Hour)
		}
	}
	pause("before")
	err := p.Machine.Write(ctx, ref, from, to)
	pause("after")
	*p.n++
	return err
}

// rig is a veth pair of 3 queues between two namespaces, its masks set to 1, 0 and none.
func rig(t *testing.T) *testnet.NS {
	testnet.NeedRoot(t)
	a, b := testnet.New(t), testnet.New(t)
	if err := testnet.Connect(a, b, testnet.Veth{Queues: 3}); err != nil {
		t.Fatal(err)
	}
	for q, mask := range []string{"2", "1", "0"} {
		if err := b.SetRPS(device, q, mask); err != nil {
			if q == 0 {
				t.Skip("needs two CPUs: ", err)
			}
			t.Fatal(err)
		}
	}
	return b
}

func masks(t *testing.T, ns *testnet.NS) (out []string) {
	t.Helper()
	for q := range 3 {
		b, err := ns.FS().ReadFile(fmt.Sprintf("/sys/class/net/%s/queues/rx-%d/rps_cpus", device, q))
		if err != nil {
			t.Fatal(err)
		}
		s, err := cpuset.ParseMask(string(b))
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, s.String())
	}
	return out
}

func run(t *testing.T, ns *testnet.NS, dir, do string) []*Result {
	t.Helper()
	c := ns.Command(t.Context(), os.Args[0], "-test.run=^$")
	c.Env = append(os.Environ(), childDo+"="+do, childDir+"="+dir)
	c.Stderr = os.Stderr
	out, err := c.Output()
	if err != nil {
		t.Fatalf("%s: %v", do, err)
	}
	var res []*Result
	if err := json.Unmarshal(out, &res); err != nil {
		t.Fatalf("%s: %v\n%s", do, err, out)
	}
	return res
}

func TestRealMasks(t *testing.T) {
	ns, dir := rig(t), t.TempDir()
	before := masks(t, ns)
	b, err := os.ReadFile("/sys/devices/system/cpu/online")
	if err != nil {
		t.Fatal(err)
	}
	online := strings.TrimSpace(string(b))
	res := run(t, ns, dir, "apply")
	if res[0].State != Kept || len(res[0].Unasked) > 0 {
		t.Errorf("apply: %+v", res[0])
	}
	if diff := cmp.Diff([]string{online, online, online}, masks(t, ns)); diff != "" {
		t.Errorf("applied (-want +got):\n%s", diff)
	}
	if res = run(t, ns, dir, "rollback"); res[0].State != RolledBack {
		t.Errorf("rollback: %+v", res[0])
	}
	if diff := cmp.Diff(before, masks(t, ns)); diff != "" {
		t.Errorf("rolled back (-want +got):\n%s", diff)
	}
}

// SIGKILL around each write; the next run restores exactly.
func TestRealKill(t *testing.T) {
	ns := rig(t)
	before := masks(t, ns)
	for n := range 3 {
		for _, when := range []string{"before", "after"} {
			at := fmt.Sprintf("%s %d", when, n)
			t.Run(at, func(t *testing.T) {
				dir := t.TempDir()
				c := ns.Command(t.Context(), os.Args[0], "-test.run=^$")
				c.Env = append(os.Environ(), childDo+"=apply", childDir+"="+dir, childPause+"="+at)
				c.Stderr = os.Stderr
				out, err := c.StdoutPipe()
				if err != nil {
					t.Fatal(err)
				}
				if err := c.Start(); err != nil {
					t.Fatal(err)
				}
				line, err := bufio.NewReader(out).ReadString('\n')
				if err != nil || line != "paused\n" {
					t.Fatalf("child says %q, %v", line, err)
				}
				if err := c.Process.Kill(); err != nil {
					t.Fatal(err)
				}
				if err := c.Wait(); err == nil || !strings.Contains(err.Error(), "killed") {
					t.Fatalf("child ended with %v", err)
				}
				if when == "after" || n > 0 {
					if cmp.Equal(before, masks(t, ns)) {
						t.Error("the killed run changed nothing: the test tests nothing")
					}
				}
				res := run(t, ns, dir, "recover")
				if len(res) != 1 || res[0].State != RolledBack {
					t.Errorf("recover: %+v", res)
				}
				if diff := cmp.Diff(before, masks(t, ns)); diff != "" {
					t.Errorf("recovered (-want +got):\n%s", diff)
				}
				if again := run(t, ns, dir, "recover"); len(again) != 0 {
					t.Errorf("recovered twice: %+v", again)
				}
			})
		}
	}
}

// refused runs a child that must fail, and returns what it says.
func refused(t *testing.T, ns *testnet.NS, dir string, env ...string) string {
	t.Helper()
	c := ns.Command(t.Context(), os.Args[0], "-test.run=^$")
	c.Env = append(append(os.Environ(), childDo+"=apply", childDir+"="+dir), env...)
	var say strings.Builder
	c.Stderr = &say
	if err := c.Run(); err == nil {
		t.Errorf("%v was not refused", env)
	}
	return say.String()
}

// Two applies at once: the second is refused, and changes nothing while the first is at it.
func TestRealTwoAtOnce(t *testing.T) {
	ns, dir := rig(t), t.TempDir()
	before := masks(t, ns)
	c := ns.Command(t.Context(), os.Args[0], "-test.run=^$")
	c.Env = append(os.Environ(), childDo+"=apply", childDir+"="+dir, childPause+"=after 0")
	c.Stderr = os.Stderr
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil || line != "paused\n" {
		t.Fatalf("child says %q, %v", line, err)
	}
	middle := masks(t, ns)
	if say := refused(t, ns, dir); !strings.Contains(say, ErrLocked.Error()) || !strings.Contains(say, fmt.Sprintf("pid %d", c.Process.Pid)) {
		t.Errorf("the second says %q", say)
	}
	if diff := cmp.Diff(middle, masks(t, ns)); diff != "" {
		t.Errorf("changed by the second (-want +got):\n%s", diff)
	}
	if err := c.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	c.Wait() // killed
	if say := refused(t, ns, dir); !strings.Contains(say, ErrUnfinished.Error()) {
		t.Errorf("apply over an unfinished transaction says %q", say)
	}
	run(t, ns, dir, "recover")
	if diff := cmp.Diff(before, masks(t, ns)); diff != "" {
		t.Errorf("recovered (-want +got):\n%s", diff)
	}
}

// A journal that cannot be written, or only so far: nothing is changed, or it is put back.
func TestRealDisk(t *testing.T) {
	ns := rig(t)
	before := masks(t, ns)
	mount := func(t *testing.T, options string, flags uintptr) string {
		dir := t.TempDir()
		if err := unix.Mount("none", dir, "tmpfs", flags, options); err != nil {
			t.Skipf("needs the right to mount: %v", err)
		}
		t.Cleanup(func() {
			if err := unix.Unmount(dir, 0); err != nil {
				t.Error(err)
			}
		})
		return dir
	}
	t.Run("read-only", func(t *testing.T) {
		if say := refused(t, ns, mount(t, "size=64k", unix.MS_RDONLY)); !strings.Contains(say, "read-only file system") {
			t.Errorf("says %q", say)
		}
		if diff := cmp.Diff(before, masks(t, ns)); diff != "" {
			t.Errorf("changed (-want +got):\n%s", diff)
		}
	})
	p := plan.Plan{}
	c := ns.Command(t.Context(), os.Args[0], "-test.run=^$")
	c.Env = append(os.Environ(), childDo+"=plan", childDir+"="+t.TempDir())
	text, err := c.Output()
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, &p); err != nil {
		t.Fatal(err)
	}
	whole := t.TempDir()
	run(t, ns, whole, "apply")
	st, err := os.Stat(filepath.Join(whole, journalFile))
	if err != nil {
		t.Fatal(err)
	}
	run(t, ns, whole, "rollback")
	// tmpfs counts pages: the plan's explanation moves what follows over the edge of the last one,
	// piece by piece.
	page, size := os.Getpagesize(), int(st.Size())
	pages := size/page + 2
	full, pieces := 0, 12
	for n := range pieces {
		pad := pages*page - size + n*size/pieces
		p.Reasons = []string{strings.Repeat("x", pad)}
		text, err := json.Marshal(p)
		if err != nil {
			t.Fatal(err)
		}
		dir := mount(t, fmt.Sprintf("size=%d", (1+pages)*page), 0) // the lock's, and of the journal
		c := ns.Command(t.Context(), os.Args[0], "-test.run=^$")
		c.Env = append(os.Environ(), childDo+"=apply", childDir+"="+dir, childPlan+"="+string(text))
		out, err := c.CombinedOutput()
		kept := !strings.Contains(string(out), "no space left")
		if kept && err != nil {
			t.Errorf("%d: %v: %s", pad, err, out)
		}
		if diff := cmp.Diff(before, masks(t, ns)); !kept && diff != "" {
			t.Errorf("%d: %s: host (-want +got):\n%s", pad, out, diff)
		}
		if err := unix.Mount("none", dir, "tmpfs", unix.MS_REMOUNT, "size=1m"); err != nil {
			t.Fatal(err)
		}
		if kept {
			run(t, ns, dir, "rollback")
		} else {
			full++
			run(t, ns, dir, "recover")
		}
		if diff := cmp.Diff(before, masks(t, ns)); diff != "" {
			t.Errorf("%d: after recovery (-want +got):\n%s", pad, diff)
		}
	}
	if full < pieces/2 {
		t.Errorf("the disk was full %d times: the test tests too little", full)
	}
}

// A plan of another device of the name, or of another namespace, is refused.
func TestRealIdentity(t *testing.T) {
	ns, dir := rig(t), t.TempDir()
	c := ns.Command(t.Context(), os.Args[0], "-test.run=^$")
	c.Env = append(os.Environ(), childDo+"=plan", childDir+"="+dir)
	text, err := c.Output()
	if err != nil {
		t.Fatal(err)
	}
	other := rig(t)
	before := masks(t, other)
	if say := refused(t, other, t.TempDir(), childPlan+"="+string(text)); !strings.Contains(say, "network namespace was") {
		t.Errorf("in another namespace: %q", say)
	}
	if diff := cmp.Diff(before, masks(t, other)); diff != "" {
		t.Errorf("other namespace (-want +got):\n%s", diff)
	}
	before = masks(t, ns)
	ip := func(args ...string) {
		t.Helper()
		if err := ns.Run("ip", args...); err != nil {
			t.Fatal(err)
		}
	}
	ip("link", "set", device, "down")
	ip("link", "set", device, "name", "was0")
	if say := refused(t, ns, dir, childPlan+"="+string(text)); !strings.Contains(say, "there is no device "+device) {
		t.Errorf("after renaming: %q", say)
	}
	ip("link", "add", device, "numrxqueues", "3", "numtxqueues", "3", "type", "veth", "peer", "name", "a9")
	if say := refused(t, ns, dir, childPlan+"="+string(text)); !strings.Contains(say, "ifindex of "+device) {
		t.Errorf("after another took the name: %q", say)
	}
	ip("link", "del", device)
	ip("link", "set", "was0", "name", device)
	if diff := cmp.Diff(before, masks(t, ns)); diff != "" {
		t.Errorf("changed (-want +got):\n%s", diff)
	}
}

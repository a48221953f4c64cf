package apply

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/rxsteer/rxsteer/internal/cpuset"
	"github.com/rxsteer/rxsteer/internal/host"
	"github.com/rxsteer/rxsteer/internal/host/knob"
	"github.com/rxsteer/rxsteer/internal/testnet"
	"github.com/rxsteer/rxsteer/steer/plan"
)

// The real kernel is driven by children of this test binary that live in a namespace of the
// test's own: /proc/self then is theirs, and they can be killed like any rxsteer.
const (
	childDo    = "RXSTEER_TEST_DO"    // apply, recover, rollback
	childDir   = "RXSTEER_TEST_DIR"   // of the journal
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
	m, err := knob.Open(knob.Config{FS: host.OS{}})
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
	case "apply":
		s, err := m.Snapshot(context.Background())
		if err != nil {
			return err
		}
		p := &plan.Plan{Version: plan.Version, Goal: plan.Balanced, Identity: plan.Identity{BootID: s.Host.BootID, Netns: s.Host.Netns, Kernel: s.Host.Kernel}}
		online, err := cpuset.ParseList(s.Host.CPUs)
		if err != nil {
			return err
		}
		for _, d := range s.Devices {
			if d.Name == device {
				p.Identity.Devices = []plan.Device{plan.Of(d)}
				for q := range d.RXQueues {
					ref := knob.Ref{Knob: knob.RPSCPUs, Target: knob.On(device, "rx-%d", q)}
					p.Changes = append(p.Changes, plan.Change{Knob: ref.Knob, Target: ref.Target, From: s.Get(ref), To: knob.Set(online), Risk: plan.Reorder})
				}
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

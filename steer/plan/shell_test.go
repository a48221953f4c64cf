package plan

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/rxsteer/rxsteer/internal/ethtool"
	thishost "github.com/rxsteer/rxsteer/internal/host"
	"github.com/rxsteer/rxsteer/internal/host/knob"
	"github.com/rxsteer/rxsteer/internal/testnet"
	"github.com/rxsteer/rxsteer/steer/diagnose"
)

// The script of a plan makes every setting what the plan says, on a real kernel, and takes every one back.
func TestShellOnTheKernel(t *testing.T) {
	testnet.NeedRoot(t)
	a, b := testnet.New(t), testnet.New(t)
	if err := testnet.Connect(a, b, testnet.Veth{Queues: 2}); err != nil {
		t.Fatal(err)
	}
	look := func() (s *knob.Snapshot) {
		t.Helper()
		err := b.Do(func() error {
			e, err := ethtool.New()
			if err != nil {
				return err
			}
			defer e.Close()
			m, err := knob.Open(knob.Config{FS: thishost.OS{}, Ethtool: e})
			if err != nil {
				return err
			}
			s, err = m.Snapshot(t.Context())
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	before := look()
	const dev = "b0"
	p := &Plan{Version: Version, Goal: Balanced, Identity: Identity{BootID: before.Host.BootID}}
	group := func(name string, v any) knob.Value { return knob.Fields(map[string]any{name: v}) }
	for _, x := range []struct {
		k    knob.Kind
		t    knob.Target
		from knob.Value // of a group; else as it is
		to   knob.Value
	}{
		{knob.Channels, dev, group("rx", 2), group("rx", 1)},
		{knob.Features, dev, group("rx-gro", false), group("rx-gro", true)},
		{knob.RPSCPUs, dev + " rx-0", knob.Value{}, knob.Text("0-1")},
		{knob.RPSFlowCnt, dev + " rx-0", knob.Value{}, knob.Int(4096)},
		{knob.XPSCPUs, dev + " tx-1", knob.Value{}, knob.Text("1")},
		{knob.DeferHardIRQs, dev, knob.Value{}, knob.Int(2)},
		{knob.GROFlushTimeout, dev, knob.Value{}, knob.Int(20000)},
	} {
		c := Change{Knob: x.k, Target: x.t, From: x.from, To: x.to, Findings: []diagnose.ID{"RX301"}, Risk: NoRisk, Why: "it is `so` $(false) 'quoted'"}
		is := before.Get(c.Ref())
		if !x.from.Known() {
			c.From = is
		}
		if !knob.Holds(is, c.From) {
			t.Fatalf("%s is %s (%s), the test wants it %s before", c.Ref(), is, is.Reason(), c.From)
		}
		c.Command, c.Undo = knob.Command(c.Ref(), c.To), knob.Command(c.Ref(), c.From)
		p.Changes = append(p.Changes, c)
	}
	file := filepath.Join(t.TempDir(), "plan.sh")
	if err := os.WriteFile(file, []byte(p.Shell()), 0o644); err != nil {
		t.Fatal(err)
	}
	sh := func(args ...string) {
		t.Helper()
		if out, err := b.Command(context.Background(), "sh", append([]string{file}, args...)...).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s\n%s", err, out, p.Shell())
		}
	}
	sh()
	now := look()
	for _, c := range p.Changes {
		if got := now.Get(c.Ref()); !knob.Holds(got, c.To) {
			t.Errorf("%s is %s (%s) after the script, want %s", c.Ref(), got, got.Reason(), c.To)
		}
	}
	sh("undo")
	if left := knob.Diff(before, look()); len(left) > 0 {
		t.Errorf("the undo leaves %+v", left)
	}
}

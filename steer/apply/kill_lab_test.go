//go:build lab

package apply

import (
	"encoding/json"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/rxsteer/rxsteer/internal/cpuset"
	"github.com/rxsteer/rxsteer/internal/host/knob"
	"github.com/rxsteer/rxsteer/steer/plan"
)

// TestKillOnTheDriver kills apply at random points on a real driver: rxlab kill boots a guest for it.
func TestKillOnTheDriver(t *testing.T) {
	m, err := machine()
	if err != nil {
		t.Fatal(err)
	}
	s, err := m.Snapshot(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	p := everythingPlan(t, s, "eth0")
	text, err := json.Marshal(p)
	if err != nil {
		t.Fatal(err)
	}
	var kinds []string
	for _, c := range p.Changes {
		kinds = append(kinds, string(c.Knob))
	}
	t.Logf("%d changes of %s on %s", len(p.Changes), strings.Join(slices.Compact(kinds), ", "), p.Identity.Devices[0].Driver)
	killed{t: t, env: []string{childPlan + "=" + string(text)},
		command: func() *exec.Cmd { return exec.Command(os.Args[0], "-test.run=^$") },
		set: func() (out []string) {
			for _, c := range p.Changes {
				out = append(out, c.Ref().String()+" "+m.Read(t.Context(), c.Ref()).String())
			}
			return out
		}}.rounds(*killRounds)
}

// everythingPlan changes what a driver lets be changed without taking the link down: the table, moderation,
// every vector and every mask.
func everythingPlan(t *testing.T, s *knob.Snapshot, dev string) *plan.Plan {
	p := &plan.Plan{Version: plan.Version, Goal: plan.Balanced, Identity: plan.Identity{BootID: s.Host.BootID, Netns: s.Host.Netns, Kernel: s.Host.Kernel}}
	for _, d := range s.Devices {
		if d.Name == dev {
			p.Identity.Devices = []plan.Device{plan.Of(d)}
		}
	}
	online, err := cpuset.ParseList(s.Host.CPUs)
	if err != nil || len(p.Identity.Devices) == 0 || online.Len() < 2 {
		t.Fatalf("no %s, or too few CPUs: %v", dev, err)
	}
	var cpus []int
	for c := range online.All() {
		cpus = append(cpus, c)
	}
	n := 0
	for _, kind := range []knob.Kind{knob.RSSTable, knob.Coalesce, knob.IRQAffinity, knob.RPSCPUs} {
		for _, x := range s.Settings {
			if x.Knob != kind || x.Target.Device() != dev || !x.Value.Known() || strings.HasPrefix(x.Target.Part(), "context-") {
				continue
			}
			c := plan.Change{Knob: x.Knob, Target: x.Target, From: x.Value, Risk: plan.Reorder}
			switch kind {
			case knob.RSSTable:
				var table []int
				if err := x.Value.Decode(&table); err != nil {
					t.Fatal(err)
				}
				slices.Reverse(table)
				c.To = knob.List(table)
			case knob.Coalesce:
				// igb takes 1 and 3 for "dynamic"; 40 is an interval like any other.
				var group map[string]any
				if x.Value.Decode(&group) != nil || group["rx-usecs"] == nil {
					continue
				}
				was, err := strconv.Atoi(string(group["rx-usecs"].(json.Number)))
				if err != nil {
					t.Fatal(err)
				}
				c.From, c.To = knob.Fields(map[string]any{"rx-usecs": was}), knob.Fields(map[string]any{"rx-usecs": 40})
			case knob.IRQAffinity:
				c.To = knob.Set(cpuset.Of(cpus[n%len(cpus)]))
			case knob.RPSCPUs:
				c.To = knob.Set(cpuset.Of(cpus[(n+1)%len(cpus)]))
			}
			if n++; c.From.Equal(c.To) {
				continue
			}
			p.Changes = append(p.Changes, c)
		}
	}
	return p
}

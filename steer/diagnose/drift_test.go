package diagnose

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/rxsteer/rxsteer/internal/host/knob"
)

// snapshot is eth0 and the host as a baseline has them, after some changes.
func snapshot(change func(dev *knob.Device, host *knob.Identity, set map[knob.Ref]knob.Value)) *knob.Snapshot {
	s := &knob.Snapshot{Version: knob.SnapshotVersion, Taken: time.Date(2026, 5, 4, 3, 2, 1, 0, time.UTC),
		Host: knob.Identity{BootID: "b", Netns: here, Kernel: "6.12.9"}}
	dev := knob.Device{Name: "eth0", IfIndex: 2, Driver: "ixgbe", Version: "6.12.9", Firmware: "0x800003df", RXQueues: 4, TXQueues: 4}
	set := map[knob.Ref]knob.Value{
		ref(knob.Features, "eth0"):                     knob.Fields(map[string]any{"rx-gro": true, "rx-lro": false, "tx-checksumming": true}),
		ref(knob.RSSTable, "eth0"):                     knob.List([]int{0, 1, 2, 3, 0, 1, 2, 3}),
		ref(knob.Rings, "eth0"):                        knob.Fields(map[string]any{"rx": 2048, "tx": 512}),
		ref(knob.IRQAffinity, "eth0 irq-31"):           knob.Text("1"),
		ref(knob.IRQEffective, "eth0 irq-31"):          knob.Text("1"),
		ref(knob.NetdevBudget, knob.Host):              knob.Int(300),
		ref(knob.RSSHashFields, "eth0 udp4"):           knob.Text("sdfn"),
		ref(knob.RPSSockFlowEntries, knob.Host):        knob.Int(0),
		ref(knob.Coalesce, "eth0"):                     knob.Unknown("refused"),
		ref(knob.GROFlushTimeout, knob.Target("eth0")): knob.Int(0),
	}
	if change != nil {
		change(&dev, &s.Host, set)
	}
	s.Devices = []knob.Device{dev}
	for r, v := range set {
		s.Settings = append(s.Settings, knob.Setting{Ref: r, Value: v})
	}
	s.Sort()
	return s
}

func ref(k knob.Kind, t knob.Target) knob.Ref { return knob.Ref{Knob: k, Target: t} }

func TestDrift(t *testing.T) {
	type values = map[knob.Ref]knob.Value
	tests := []struct {
		name   string
		change func(*knob.Device, *knob.Identity, values)
		want   string // findings
		drift  string // severity and setting per line
		say    string
	}{
		{"nothing", nil, "", "", "against the baseline of 2026-05-04 03:02: no difference"},
		{"table lost when the interface restarted", func(_ *knob.Device, _ *knob.Identity, s values) {
			s[ref(knob.RSSTable, "eth0")] = knob.List([]int{0, 1, 0, 1, 0, 1, 0, 1})
		}, "RX801 critical eth0", "critical rss-table of eth0", "rss-table of eth0"},
		{"a firmware update flips features", func(d *knob.Device, _ *knob.Identity, s values) {
			d.Firmware = "0x80000528"
			s[ref(knob.Features, "eth0")] = knob.Fields(map[string]any{"rx-gro": true, "rx-lro": true, "tx-checksumming": true})
		}, "RX801 warning eth0", "warning features of eth0 [rx-lro false → true] by firmware 0x800003df → 0x80000528", "since then: firmware 0x800003df → 0x80000528"},
		{"a kernel update moves a default of the host", func(_ *knob.Device, h *knob.Identity, s values) {
			h.Kernel = "6.18.1"
			s[ref(knob.NetdevBudget, knob.Host)] = knob.Int(600)
		}, "RX801 info host", "info netdev-budget of host by kernel 6.12.9 → 6.18.1", "netdev-budget of host"},
		{"an update that changes no setting", func(d *knob.Device, h *knob.Identity, _ values) {
			d.Version, h.Kernel = "6.18.1", "6.18.1"
		}, "", "", "no difference"},
		{"several at once, worst first", func(_ *knob.Device, _ *knob.Identity, s values) {
			s[ref(knob.Rings, "eth0")] = knob.Fields(map[string]any{"rx": 512, "tx": 512})
			s[ref(knob.RSSTable, "eth0")] = knob.List([]int{0, 0, 0, 0, 0, 0, 0, 0})
			s[ref(knob.IRQAffinity, "eth0 irq-31")] = knob.Text("0")
			s[ref(knob.RSSHashFields, "eth0 udp4")] = knob.Text("sd")
			s[ref(knob.RPSSockFlowEntries, knob.Host)] = knob.Int(32768)
		}, "RX801 critical eth0\nRX801 info host",
			"critical rss-table of eth0\nwarning rings of eth0 [rx 2048 → 512]\nwarning irq-affinity of eth0 irq-31\nwarning rss-hash-fields of eth0 udp4\ninfo rps-sock-flow-entries of host", "1 more"},
		{"only transmit offloads", func(_ *knob.Device, _ *knob.Identity, s values) {
			s[ref(knob.Features, "eth0")] = knob.Fields(map[string]any{"rx-gro": true, "rx-lro": false, "tx-checksumming": false})
		}, "RX801 info eth0", "info features of eth0 [tx-checksumming true → false]", ""},
		{"the device is gone", func(d *knob.Device, _ *knob.Identity, s values) {
			d.Name = "eth9"
			for r := range s {
				if r.Target.Device() == "eth0" {
					delete(s, r)
				}
			}
		}, "RX801 critical eth0", "", "is not there any more"},

		// Near misses.
		{"unknown is no change", func(_ *knob.Device, _ *knob.Identity, s values) {
			s[ref(knob.RSSTable, "eth0")] = knob.Unknown("operation not permitted")
			s[ref(knob.Coalesce, "eth0")] = knob.Fields(map[string]any{"rx-usecs": 50})
		}, "", "", "no difference"},
		{"what nobody sets", func(_ *knob.Device, _ *knob.Identity, s values) {
			s[ref(knob.IRQEffective, "eth0 irq-31")] = knob.Text("3")
		}, "", "", "no difference"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			was, now := snapshot(nil), snapshot(test.change)
			r := Diagnose(Input{Snapshot: now, Baseline: was})
			var got []string
			said := strings.Join(r.Checked, "\n")
			for _, f := range without901(r) {
				got = append(got, fmt.Sprintf("%s %s %s", f.ID, f.Severity, f.Subject))
				said += "\n" + f.Summary
			}
			if diff := cmp.Diff(test.want, strings.Join(got, "\n")); diff != "" {
				t.Errorf("findings (-want +got):\n%s", diff)
			}
			if !strings.Contains(said, test.say) {
				t.Errorf("not said: %q in\n%s", test.say, said)
			}
			if test.name == "the device is gone" {
				return
			}
			got = nil
			for _, d := range Drifted(was, now, nil) {
				line := fmt.Sprintf("%s %s", d.Severity, d.Ref)
				if len(d.Changed) > 0 {
					line += fmt.Sprintf(" %v", d.Changed)
				}
				if d.By != "" {
					line += " by " + d.By
				}
				got = append(got, line)
				if d.Why == "" {
					t.Errorf("%s does not say why it matters", d.Ref)
				}
			}
			if diff := cmp.Diff(test.drift, strings.Join(got, "\n")); diff != "" {
				t.Errorf("drift (-want +got):\n%s", diff)
			}
		})
	}
}

func TestDriftTellsWhenItWasSeenFirst(t *testing.T) {
	at := time.Date(2026, 5, 5, 6, 7, 8, 0, time.UTC)
	in := Input{Baseline: snapshot(nil), FirstSeen: func(r knob.Ref) (time.Time, bool) { return at, r.Knob == knob.Rings },
		Snapshot: snapshot(func(_ *knob.Device, _ *knob.Identity, s map[knob.Ref]knob.Value) {
			s[ref(knob.Rings, "eth0")] = knob.Fields(map[string]any{"rx": 512, "tx": 512})
			s[ref(knob.RSSHashFields, "eth0 udp4")] = knob.Text("sd")
		})}
	r := Diagnose(in)
	if got := r.Findings[0].Evidence.Get("first_seen"); got != "2026-05-05T06:07:08Z" {
		t.Errorf("first_seen %v", got)
	}
	b, err := json.Marshal(Drifted(in.Baseline, in.Snapshot, in.FirstSeen))
	if err != nil {
		t.Fatal(err)
	}
	want := `[{"knob":"rings","target":"eth0","from":{"rx":2048,"tx":512},"to":{"rx":512,"tx":512},"severity":"warning","why":"shorter rings drop bursts, longer ones cost cache","changed":["rx 2048 → 512"],"first_seen":"2026-05-05T06:07:08Z"},` +
		`{"knob":"rss-hash-fields","target":"eth0 udp4","from":"sdfn","to":"sd","severity":"warning","why":"hash fields decide which flows can be told apart"}]`
	if diff := cmp.Diff(want, string(b)); diff != "" {
		t.Errorf("json (-want +got):\n%s", diff)
	}
}

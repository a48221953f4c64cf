package control

import (
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/rxsteer/rxsteer/internal/cpuset"
	"github.com/rxsteer/rxsteer/internal/host/knob"
	"github.com/rxsteer/rxsteer/steer/plan"
)

func TestParseRefuses(t *testing.T) {
	for name, tc := range map[string]struct{ text, want string }{
		"an unknown key":               {"mode: auto\nspeed: 3\n", "f.yaml:2:1: unknown field \"speed\""},
		"an unknown key of a device":   {"devices:\n- name: eth0\n  cpu: 1\n", "f.yaml:3:3: unknown field \"cpu\""},
		"a mode":                       {"mode: atuo\n", "f.yaml:1:7: mode \"atuo\": want off, advise or auto"},
		"a device's mode":              {"devices:\n- name: eth0\n  mode: on\n", "f.yaml:3:9: mode \"on\""},
		"a device twice":               {"devices:\n- name: eth0\n- name: eth0\n", "f.yaml:3:9: eth0 is already there"},
		"a device without a name":      {"devices:\n- mode: auto\n", "f.yaml:2:7: name \"\""},
		"a duration":                   {"interval: 10\n", "f.yaml:1:11"},
		"too short":                    {"interval: 1ms\n", "f.yaml:1:11: 1ms is outside 1s…1h0m0s"},
		"a share":                      {"overhead: 0.01\n", "f.yaml:1:11: \"0.01\": want a share like 1%"},
		"a setting":                    {"policy:\n  knobs: [rss-tabel]\n", "f.yaml:2:11: knobs[0]: \"rss-tabel\" is not a setting"},
		"CPUs":                         {"policy:\n  cpus: 0-x\n", "f.yaml:2:9"},
		"CPUs that are not here":       {"policy:\n  cpus: 100-101\n", "f.yaml:2:9: cpus 100-101: none of them is online here (0-3 are)"},
		"a range upside down":          {"policy:\n  ranges:\n  - {knob: netdev-budget, min: 600, max: 300}\n", "600 is above max 300"},
		"devices in a policy":          {"policy:\n  devices: [eth0]\n", "f.yaml:2:12: devices have a list of their own"},
		"a flap at any time":           {"allow: [reorder, flap]\n", "f.yaml:1:18: flap is only allowed within change_hours"},
		"a risk":                       {"allow: [anything]\n", "risk \"anything\": want reorder, pause or flap"},
		"a day":                        {"change_hours:\n- days: [mon, someday]\n", "f.yaml:2:15: day \"someday\""},
		"a clock":                      {"change_hours:\n- from: 25:00\n", "f.yaml:2:9: time \"25:00\""},
		"a zone":                       {"time_zone: Mars/Olympus\n", "f.yaml:1:12: time_zone: unknown time zone"},
		"a limit":                      {"limits:\n  changes_per_minute: 1000\n", "f.yaml:2:23: 1000 is outside 1…60"},
		"a back-off below a cool-down": {"limits:\n  cool_down: 1m\n  back_off: 10s\n", "f.yaml:3:13: back_off 10s is shorter than cool_down 1m0s"},
		"series":                       {"metrics:\n  series: 1\n", "f.yaml:2:11: 1 is outside"},
		"nothing":                      {"", "want one YAML document"},
		"two documents":                {"mode: off\n---\nmode: auto\n", "found 2"},
		"no YAML":                      {"mode: [\n", "f.yaml:1:"},
		"a list":                       {"- a\n", "f.yaml:1:1"},
		"on_stop":                      {"on_stop: leave\n", "f.yaml:1:10: on_stop \"leave\": want keep or restore"},
		"a goal":                       {"goal: fast\n", "f.yaml:1:7: goal \"fast\""},
		"a level":                      {"level: 3\n", "f.yaml:1:8: level 3"},
	} {
		t.Run(name, func(t *testing.T) {
			c, err := Parse("f.yaml", []byte(tc.text), cpuset.Range(0, 3))
			if err == nil {
				t.Fatalf("read as %+v", c)
			}
			if !strings.Contains(err.Error(), tc.want) {
				t.Errorf("said %q, want %q", err, tc.want)
			}
		})
	}
}

func TestParse(t *testing.T) {
	c, err := Parse("f.yaml", []byte(`mode: auto
interval: 5s
overhead: 0.5%
on_stop: restore
policy:
  cpus: 0-1
devices:
- name: eth0
  policy: {knobs: [rss-table]}
- name: eth1
  mode: advise
change_hours:
- {days: [fri], from: "22:00", to: "06:00", allow: [flap]}
critical_hours:
- {days: [mon], from: "08:00", to: "18:00"}
time_zone: UTC
limits: {yield: 0s, gain: 20%}
metrics: {native_histograms: true, stages: false}
profile: false
`), cpuset.Range(0, 3))
	if err != nil {
		t.Fatal(err)
	}
	eth0, _ := c.For("eth0")
	eth1, _ := c.For("eth1")
	eth2, named := c.For("eth2")
	switch {
	case eth0.Mode != Auto || eth1.Mode != Advise || eth2.Mode != Advise || named:
		t.Errorf("modes %s %s %s: what is not named is not written", eth0.Mode, eth1.Mode, eth2.Mode)
	case eth0.allows(knob.RPSCPUs) || !eth0.allows(knob.RSSTable) || !eth1.allows(knob.RPSCPUs):
		t.Error("settings of eth0, eth1")
	case !eth1.Policy.CPUs.Equal(cpuset.Range(0, 1)):
		t.Errorf("CPUs of eth1: %s", eth1.Policy.CPUs)
	case c.Interval != 5*time.Second || c.Overhead != 0.005 || c.OnStop != Restore || c.Limits.Yield != 0 || c.Limits.Gain != 0.2 || !c.Metrics.Native || c.Metrics.Stages || c.Profile:
		t.Errorf("%+v", c)
	}
	day := func(d, hour, minute int) time.Time { return time.Date(2026, 11, d, hour, minute, 0, 0, time.UTC) } // the 30th is a Monday
	for _, tc := range []struct {
		at       time.Time
		open     bool
		critical bool
	}{
		{day(27, 21, 59), false, false}, {day(27, 22, 0), true, false}, {day(28, 5, 59), true, false}, {day(28, 6, 0), false, false},
		{day(28, 23, 0), false, false}, {day(30, 8, 0), false, true}, {day(30, 18, 0), false, false},
	} {
		open, risks := c.Open(tc.at)
		if open != tc.open || c.IsCritical(tc.at) != tc.critical || open != (len(risks) == 1 && risks[0] == plan.Flap) {
			t.Errorf("%v: open %v %v, critical %v", tc.at, open, risks, c.IsCritical(tc.at))
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add("mode: auto\ndevices:\n- name: eth0\n  policy: {cpus: 0-3, ranges: [{knob: coalesce, field: rx-usecs, max: 3}]}\nchange_hours:\n- {days: [mon], from: \"1:00\"}\n")
	f.Add("limits: {yield: 1h}\nmetrics: {series: 100}\ntime_zone: Europe/Zurich\n")
	f.Fuzz(func(t *testing.T, text string) {
		c, err := Parse("f.yaml", []byte(text), cpuset.Range(0, 3))
		if err != nil {
			if !strings.HasPrefix(err.Error(), "f.yaml") {
				t.Errorf("no place in %q", err)
			}
			return
		}
		c.Open(time.Unix(1e9, 0))
		if d, _ := c.For("eth0"); len(d.Policy.Knobs) == 0 {
			t.Error("a policy without settings")
		}
	})
}

// TestTheShippedFile reads, does what its comments say, and each key it shows with its default has that default.
func TestTheShippedFile(t *testing.T) {
	text, err := os.ReadFile("../../deploy/rxsteer.minimal.yaml")
	if err != nil {
		t.Fatal(err)
	}
	c, err := Parse("rxsteer.minimal.yaml", text, cpuset.Set{})
	if err != nil {
		t.Fatal(err)
	}
	eth0, named := c.For("eth0")
	if c.Mode != Advise || !named || eth0.Mode != Advise {
		t.Errorf("mode %s, eth0 %+v", c.Mode, eth0)
	}
	// Uncomment what it says is default, except for examples.
	var all []string
	for line := range strings.Lines(string(text)) {
		rest, commented := strings.CutPrefix(strings.TrimRight(line, "\n"), "# ")
		if key, _, ok := strings.Cut(strings.TrimLeft(rest, " "), ": "); commented && ok && !strings.Contains(key, " ") &&
			!slices.Contains([]string{"baseline", "time_zone", "off", "change_hours", "critical_hours"}, key) {
			all = append(all, rest)
		} else if commented && (rest == "limits:" || rest == "metrics:") {
			all = append(all, rest)
		}
	}
	all = append([]string{"mode: off"}, all...)
	got, err := Parse("uncommented", []byte(strings.Join(all, "\n")), cpuset.Set{})
	if err != nil {
		t.Fatalf("%v\n%s", err, strings.Join(all, "\n"))
	}
	if len(all) < 20 {
		t.Fatalf("only %d lines were found: %v", len(all), all)
	}
	if diff := cmp.Diff(Default(), got, cmpopts.EquateComparable(cpuset.Set{}), cmp.Comparer(func(a, b *time.Location) bool { return a == b })); diff != "" {
		t.Errorf("the comments are not the defaults (-default +file)\n%s", diff)
	}
}

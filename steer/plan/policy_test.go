package plan

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/rxsteer/rxsteer/internal/cpuset"
	"github.com/rxsteer/rxsteer/internal/host/knob"
)

const policy = `cpus: "0-3"
devices: [eth0]
risks: [reorder]
knobs: [rps-cpus, coalesce, netdev-budget]
never: [rps-cpus]
ranges:
- {knob: coalesce, field: rx-usecs, min: 3, max: 200}
- knob: netdev-budget
  max: 600
flows: 5000
long_flows: true
`

func at[T any](x T) *T { return &x }

func TestParsePolicy(t *testing.T) {
	got, err := ParsePolicy("p", []byte(policy))
	if err != nil {
		t.Fatal(err)
	}
	want := &Policy{List: "0-3", CPUs: cpuset.Range(0, 3), Devices: []string{"eth0"}, Risks: []Risk{Reorder}, Knobs: []knob.Kind{knob.RPSCPUs, knob.Coalesce, knob.NetdevBudget}, Never: []knob.Kind{knob.RPSCPUs},
		Ranges: []Range{{knob.Coalesce, "rx-usecs", at(int64(3)), at(int64(200))}, {knob.NetdevBudget, "", nil, at(int64(600))}}, Flows: 5000, LongFlows: true}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(cpuset.Set{}), cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("policy (-want +got):\n%s", diff)
	}
	if got, err := ParsePolicy("p", []byte("devices: []")); err != nil || !got.allows(knob.RSSTable) || !got.device("eth0") {
		t.Errorf("a policy that says nothing: %v, %v", got, err)
	}
}

func TestParsePolicyRefuses(t *testing.T) {
	for _, test := range []struct{ name, old, new, want string }{
		{"unknown key", "devices:", "device:", `p:2:1: unknown field "device"`},
		{"CPU list", `"0-3"`, `"3-0"`, "p:1:7: cpus: "},
		{"unknown knob", "rps-cpus, coalesce", "rps-cpu, coalesce", `p:4:9: knobs[0]: "rps-cpu" is not a setting a plan can hold`},
		{"fact", "never: [rps-cpus]", "never: [irq-effective]", `p:5:9: never[0]: "irq-effective"`},
		{"field", "field: rx-usecs", "field: rx-usec", `p:7:27: ranges[0].field: coalesce has no number "rx-usec"`},
		{"flag", "field: rx-usecs", "field: adaptive-rx", `p:7:27: ranges[0].field: coalesce has no number "adaptive-rx"`},
		{"no field", "field: rx-usecs, ", "", `ranges[0]: coalesce is a group`},
		{"needless field", "- knob: netdev-budget", "- knob: netdev-budget\n  field: x", `p:9:10: ranges[1].field: netdev-budget is no group`},
		{"no number", "- knob: netdev-budget", "- knob: rss-table", `p:8:9: ranges[1].knob: rss-table is no number`},
		{"empty range", "  max: 600\n", "", `ranges[1]: has neither min nor max`},
		{"crossed", "min: 3", "min: 300", `p:7:42: ranges[0].min: 300 is above max 200`},
		{"risk", "[reorder]", "[some]", `p:3:9: risks[0]: "some" is none of none, reorder, pause, flap`},
		{"flows", "flows: 5000", "flows: -1", "p:10:8: flows: -1 flows cannot be"},
		{"word", "flows: 5000", "flows: many", "p:10:8: "},
		{"interface", "[eth0]", `["eth0 rx-0"]`, `p:2:11: devices[0]: "eth0 rx-0" is no interface name`},
		{"two documents", "flows: 5000", "---\nflows: 5000", "want one YAML document"},
		{"broken", "[eth0]", "[eth0", "p:"},
	} {
		t.Run(test.name, func(t *testing.T) {
			text := strings.Replace(policy, test.old, test.new, 1)
			if text == policy {
				t.Fatal("the test changes nothing")
			}
			if _, err := ParsePolicy("p", []byte(text)); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v\nwant %s", err, test.want)
			}
		})
	}
}

func TestPolicyRefuses(t *testing.T) {
	p, err := ParsePolicy("p", []byte(strings.Replace(policy, "never: [rps-cpus]\n", "", 1)))
	if err != nil {
		t.Fatal(err)
	}
	usecs := func(n int64) knob.Value { return knob.Fields(map[string]any{"rx-usecs": n}) }
	for _, test := range []struct {
		c    Change
		want string
	}{
		{Change{Knob: knob.RSSTable, Target: "eth0"}, "the policy does not allow rss-table"},
		{Change{Knob: knob.Coalesce, Target: "eth0", Risk: Flap}, "it takes risk flap, which was not granted"},
		{Change{Knob: knob.Coalesce, Target: "eth1"}, "the policy does not allow eth1 to be set"},
		{Change{Knob: knob.RPSCPUs, Target: "eth0 rx-0", To: knob.Text("2-5")}, "the policy does not allow cpu 4-5"},
		{Change{Knob: knob.RPSCPUs, Target: "eth0 rx-0", To: knob.Text("2-3")}, ""},
		{Change{Knob: knob.Coalesce, Target: "eth0", From: usecs(50), To: usecs(201)}, "201 is outside of what the policy allows for rx-usecs of coalesce (3…200)"},
		{Change{Knob: knob.Coalesce, Target: "eth0", From: usecs(50), To: usecs(200)}, ""},
		{Change{Knob: knob.Coalesce, Target: "eth0", From: usecs(500), To: usecs(500)}, ""},
		{Change{Knob: knob.Coalesce, Target: "eth0", To: knob.Fields(map[string]any{"adaptive-rx": true})}, ""},
		{Change{Knob: knob.NetdevBudget, Target: "host", From: knob.Int(300), To: knob.Int(601)}, "601 is outside of what the policy allows for netdev-budget (up to 600)"},
	} {
		if got := p.Refuses(test.c); got != test.want {
			t.Errorf("%s %s→%s: %q, want %q", test.c.Ref(), test.c.From, test.c.To, got, test.want)
		}
	}
	for _, test := range []struct {
		k       knob.Kind
		field   string
		n, want int64
	}{{knob.Coalesce, "rx-usecs", 1, 3}, {knob.Coalesce, "rx-usecs", 5000, 200}, {knob.Coalesce, "tx-usecs", 5000, 1000}, {knob.NetdevBudget, "", 5000, 600}, {knob.NetdevMaxBacklog, "", 1 << 20, 300000}} {
		if got := p.clamp(test.k, test.field, test.n); got != test.want {
			t.Errorf("%s %s: %d is clamped to %d, want %d", test.k, test.field, test.n, got, test.want)
		}
	}
}

func FuzzParsePolicy(f *testing.F) {
	f.Add([]byte(policy))
	f.Add([]byte("ranges: [{}]"))
	f.Fuzz(func(t *testing.T, data []byte) {
		if p, err := ParsePolicy("p", data); err == nil {
			if err := p.Check(); err != nil {
				t.Errorf("accepted: %v", err)
			}
		}
	})
}

func TestCheckGroups(t *testing.T) {
	group := func(kv ...any) knob.Value {
		m := map[string]any{}
		for i := 0; i < len(kv); i += 2 {
			m[kv[i].(string)] = kv[i+1]
		}
		return knob.Fields(m)
	}
	rule := group("flow", "udp4", "queue", 2, "dst-port", 9000)
	for _, test := range []struct {
		c    Change
		want string
	}{
		{Change{Knob: knob.Coalesce, Target: "eth0", From: group("rx-usecs", 3000), To: group("rx-usecs", 1000)}, ""},
		{Change{Knob: knob.Coalesce, Target: "eth0", From: group("rx-usecs", 50), To: group("rx-usecs", 1001)}, "to: coalesce rx-usecs 1001 is outside 0…1000"},
		{Change{Knob: knob.Coalesce, Target: "eth0", From: group("adaptive-rx", true), To: group("adaptive-rx", 1)}, "to: coalesce adaptive-rx takes true or false, not 1"},
		{Change{Knob: knob.QueueCoal, Target: "eth0 queue-3", From: group("rx-usecs", 5), To: group("rx-usecs", 6)}, ""},
		{Change{Knob: knob.QueueCoal, Target: "eth0", From: group("rx-usecs", 5), To: group("rx-usecs", 6)}, `target: queue-coalesce belongs to a target like "eth0 queue-0", not to "eth0"`},
		{Change{Knob: knob.Rings, Target: "eth0", From: group("rx", 256), To: group("rx", "lots")}, "to: rings rx takes a whole number, not lots"},
		{Change{Knob: knob.Rings, Target: "eth0", From: group("rx", 256), To: group("rx-buf-len", 1)}, `to: rings has no attribute "rx-buf-len" a plan can hold; those are rx, tx`},
		{Change{Knob: knob.Channels, Target: "eth0", From: group("combined", 1), To: group("combined", true)}, "to: channels combined takes a whole number, not true"},
		{Change{Knob: knob.Channels, Target: "eth0 rx-1", From: group("combined", 1), To: group("combined", 2)}, `target: channels belongs to a device like "eth0", not to "eth0 rx-1"`},
		{Change{Knob: knob.Features, Target: "eth0", From: group("rx-lro", true), To: group("rx-lro", false)}, ""},
		{Change{Knob: knob.Features, Target: "eth0", From: group("rx-lro", true), To: group("rx-lro", 0)}, "to: features rx-lro takes true or false, not 0"},
		{Change{Knob: knob.RSSKey, Target: "eth0", From: knob.Text("6d:5a"), To: knob.Text("6d:5b")}, ""},
		{Change{Knob: knob.RSSKey, Target: "eth0", From: knob.Text("6d:5a"), To: knob.Text("6d:5g")}, `to: rss-key takes bytes in hexadecimal ("6d:5a:…"), not "6d:5g"`},
		{Change{Knob: knob.RSSTable, Target: "eth0", From: knob.List([]int{0, 1}), To: knob.DefaultTable()}, ""},
		{Change{Knob: knob.RSSTable, Target: "eth0", From: knob.DefaultTable(), To: knob.List([]int{0, 1})}, "from: rss-table takes a list of receive queues, one for each bucket, not []"},
		{Change{Knob: knob.RSSTable, Target: "eth0 context-1", From: knob.Absent("no such RSS context"), To: knob.List([]int{2, 3})}, ""},
		{Change{Knob: knob.RSSTable, Target: "eth0", From: knob.List([]int{2, 3}), To: knob.Absent("x")}, "to: rss-table takes a list of receive queues, one for each bucket, not "},
		{Change{Knob: knob.NtupleRule, Target: "eth0 rule-9", From: knob.Absent("no rule there"), To: rule}, ""},
		{Change{Knob: knob.NtupleRule, Target: "eth0 rule-9", From: rule, To: knob.Absent("no rule there")}, ""},
		{Change{Knob: knob.NtupleRule, Target: "eth0 rule-9", From: knob.Unknown("x"), To: rule}, "from: the value before is unknown: without it nothing can be put back"},
		{Change{Knob: knob.NtupleRule, Target: "eth0 rule-9", From: knob.Absent("-"), To: group("flow", "udp4")}, "to: ntuple-rule names no receive queue (queue: 0)"},
		{Change{Knob: knob.RPSCPUs, Target: "eth0 rx-9", From: knob.Absent("-"), To: knob.Text("1")}, "from: the value before is -: without it nothing can be put back"},
		{Change{Knob: knob.Threaded, Target: "eth0", From: knob.Int(0), To: knob.Int(1)}, ""},
		{Change{Knob: knob.Threaded, Target: "eth0 napi-8", From: knob.Int(0), To: knob.Int(3)}, "to: threaded 3 is outside 0…2"},
		{Change{Knob: knob.GROFlushTimeout, Target: "host", From: knob.Int(0), To: knob.Int(3)}, `target: gro-flush-timeout belongs to a target like "eth0 napi-0", not to "host"`},
		{Change{Knob: knob.NetdevMaxBacklog, Target: "host", From: knob.Int(1000), To: knob.Int(300001)}, "to: netdev-max-backlog 300001 is outside 0…300000"},
	} {
		test.c.Risk = NoRisk
		got := ""
		if err := Check(test.c, cpuset.Set{}); err != nil {
			got = err.Error()
		}
		if got != test.want {
			t.Errorf("%s %s→%s:\n got %s\nwant %s", test.c.Ref(), test.c.From, test.c.To, got, test.want)
		}
	}
}

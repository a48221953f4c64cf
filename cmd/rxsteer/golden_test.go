package main

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/rxsteer/rxsteer/collector"
	"github.com/rxsteer/rxsteer/internal/host/knob"
	"github.com/rxsteer/rxsteer/internal/host/nic"
	"github.com/rxsteer/rxsteer/steer/apply"
	"github.com/rxsteer/rxsteer/steer/diagnose"
	"github.com/rxsteer/rxsteer/steer/plan"
)

var update = flag.Bool("update", false, "rewrite golden files")

// golden compares got with testdata/<name>.
func golden(t *testing.T, name, got string) {
	t.Helper()
	file := filepath.Join("testdata", name)
	if *update {
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(string(want), got); d != "" {
		t.Errorf("%s differs; go test ./cmd/rxsteer -update rewrites it (-want +got):\n%s", file, d)
	}
}

// testEnv is an env without a terminal, on the real host.
func testEnv(args ...string) (e *env, stdout, stderr *bytes.Buffer) {
	e = newEnv()
	stdout, stderr = new(bytes.Buffer), new(bytes.Buffer)
	e.args, e.stdout, e.stderr = args, stdout, stderr
	e.stdin = strings.NewReader("")
	e.stdinTTY, e.stdoutTTY, e.stderrTTY, e.width = false, false, false, defaultWidth
	e.getenv = func(string) string { return "" }
	return e, stdout, stderr
}

func TestHelp(t *testing.T) {
	e, _, _ := testEnv()
	root := newRoot(e)
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd()
	names := []string{""}
	for _, c := range root.Commands() {
		names = append(names, c.Name())
	}
	for _, name := range names {
		t.Run("rxsteer "+name, func(t *testing.T) {
			args := []string{"--help"}
			if name != "" {
				args = []string{name, "--help"}
			}
			e, stdout, stderr := testEnv(args...)
			if code := run(t.Context(), e); code != exitOK {
				t.Fatalf("exit %d: %s", code, stderr)
			}
			file := "help/rxsteer.txt"
			if name != "" {
				file = "help/rxsteer-" + name + ".txt"
			}
			golden(t, file, stdout.String())
			for line := range strings.Lines(stdout.String()) {
				if n := len([]rune(strings.TrimRight(line, "\n"))); n > defaultWidth {
					t.Errorf("line of %d columns: %s", n, line)
				}
			}
			if !slices.Contains([]string{"", "help", "version", "completion", "watch", "persist-run"}, name) && !strings.Contains(stdout.String(), "Examples:") {
				t.Error("help shows no example")
			}
		})
	}
}

func ptr[T any](v T) *T { return &v }

// fixedStatus is a NIC with much to show and a veth with little.
func fixedStatus() *statusDoc {
	yes := func(names ...string) map[string]any {
		m := map[string]any{}
		for _, n := range names {
			m[n] = true
		}
		return m
	}
	features := yes("rx-gro", "rx-checksum")
	features["rx-lro"], features["rx-hashing"] = false, false
	return &statusDoc{
		Host: knob.Identity{BootID: "6b0ad1ba-7d3c-4a77-8b6e-2f8f6a4f5f10", Netns: 4026531840, Kernel: "6.12.9", CPUs: "0-3"},
		CPUs: []statusCPU{
			{ID: 0, Node: ptr(0), Core: 0, LLC: ptr(0), Online: true}, {ID: 1, Node: ptr(0), Core: 0, LLC: ptr(0), Online: true},
			{ID: 2, Node: ptr(1), Core: 1, LLC: ptr(1), Online: true}, {ID: 3, Node: ptr(1), Core: 1, LLC: ptr(1), Online: true, Isolated: true},
		},
		Settings: map[knob.Kind]knob.Value{knob.RPSSockFlowEntries: knob.Int(0), knob.NetdevBudget: knob.Int(300)},
		Owners:   []knob.Owner{{Name: "irqbalance", Detail: "running as pid 612"}},
		Problems: []string{},
		NICs: []statusNIC{{
			Name: "enp4s0", IfIndex: 2, Kind: nic.Physical, Driver: "igb", Version: "6.12.9", Bus: "0000:04:00.0", Node: ptr(0), Up: true, MTU: 1500, SpeedMb: ptr(1000),
			Queues: []statusQueue{
				{RX: ptr(0), TX: ptr(0), NAPI: ptr(uint32(257)), IRQ: ptr(28), Vector: "enp4s0-TxRx-0", Affinity: "0-3", Effective: "2", RPS: "", XPS: "0-1", KnownBy: nic.ByNetlink},
				{RX: ptr(1), TX: ptr(1), NAPI: ptr(uint32(258)), IRQ: ptr(29), Vector: "enp4s0-TxRx-1", Affinity: "1", Effective: "1", RPS: "0,2", XPS: "2-3", KnownBy: nic.ByName, Thread: ptr(811)},
				{RX: ptr(2), Vector: "", KnownBy: nic.Unknown, XSK: true},
			},
			Control: []nic.Vector{{IRQ: 27, Name: "enp4s0"}},
			Table:   []int{0, 1, 0, 1, 0, 1, 0, 0},
			Settings: map[knob.Kind]knob.Value{
				knob.Channels: knob.Fields(map[string]any{"combined": 2, "other": 1, "rx": 0, "tx": 0}), knob.ChannelsMax: knob.Fields(map[string]any{"combined": 4, "other": 1, "rx": 0, "tx": 0}),
				knob.Rings: knob.Fields(map[string]any{"rx": 256, "tx": 256}), knob.RingsMax: knob.Fields(map[string]any{"rx": 4096, "tx": 4096}),
				knob.RSSTable: knob.List([]int{0, 1, 0, 1, 0, 1, 0, 0}), knob.RSSFunction: knob.Text("toeplitz"),
				knob.Coalesce: knob.Fields(map[string]any{"rx-usecs": 3, "tx-usecs": 3, "adaptive-rx": 0}),
				knob.Features: knob.Fields(features), knob.FeaturesFixed: knob.Fields(map[string]any{"rx-ntuple-filter": false}),
				knob.Pause: knob.Absent("the driver does not support it"), knob.Threaded: knob.Int(0), knob.GROFlushTimeout: knob.Unknown("permission denied"),
			},
			Parts: map[string]map[knob.Kind]knob.Value{
				"tcp4": {knob.RSSHashFields: knob.Text("sdfn")}, "udp4": {knob.RSSHashFields: knob.Text("sd")},
				"rx-0": {knob.RPSFlowCnt: knob.Int(4096)}, "rx-1": {knob.RPSFlowCnt: knob.Int(4096)}, "rx-2": {knob.RPSFlowCnt: knob.Int(4096)}, "rx-10": {knob.RPSFlowCnt: knob.Int(0)},
			},
			Problems: []string{"rx 2 has no interrupt that any source knows"}, Notes: []string{"vector 27 signals link changes only"}, Lower: []string{},
		}, {
			Name: "veth0", IfIndex: 5, Kind: nic.Virtual, Driver: "veth", Up: true, MTU: 1500, Master: "br0", Lower: []string{},
			Queues: []statusQueue{{RX: ptr(0), TX: ptr(0)}}, Control: []nic.Vector{}, Problems: []string{}, Notes: []string{},
			Settings: map[knob.Kind]knob.Value{
				knob.Channels: knob.Absent("the driver does not support it"), knob.Rings: knob.Absent("the driver does not support it"),
				knob.RSSTable: knob.Unknown("not permitted: needs CAP_NET_ADMIN"), knob.Threaded: knob.Int(0),
			},
			Parts: map[string]map[knob.Kind]knob.Value{},
		}},
		hidden: []string{"lo", "ifb0"},
	}
}

func TestStatusText(t *testing.T) {
	var b bytes.Buffer
	if err := printStatus(&b, fixedStatus(), palette{}, defaultWidth); err != nil {
		t.Fatal(err)
	}
	golden(t, "status.txt", b.String())
	noLongLines(t, b.String())
}

func TestStatusJSON(t *testing.T) {
	var b bytes.Buffer
	if err := printJSON(&b, fixedStatus()); err != nil {
		t.Fatal(err)
	}
	golden(t, "status.json", b.String())
}

func noLongLines(t *testing.T, text string) {
	t.Helper()
	for line := range strings.Lines(text) {
		if n := len([]rune(strings.TrimRight(line, "\n"))); n > defaultWidth {
			t.Errorf("line of %d columns: %s", n, line)
		}
	}
}

func fixedReport() *diagnose.Report {
	return &diagnose.Report{
		IntervalS: 10.02, Level: 1,
		Findings: []diagnose.Finding{{
			ID: "RX101", Severity: diagnose.Critical, Subject: "eth0",
			Summary:  "receive softirq takes 98 % of cpu 0 while cpus 1-3 are free: the one queue of eth0 is polled there and nothing spreads its packets",
			Evidence: diagnose.Evidence{{Name: "cpu_netrx_ratio", Value: 0.981}, {Name: "packets_per_s", Value: 41230.4}, {Name: "free_cpus", Value: "1-3"}},
			Remedy:   "spread the packets of rx-0 over cpus 1-3 with RPS",
			RuledOut: []string{"one flow: 48 flows were seen"},
			Explains: []diagnose.Symptom{{ID: "RX403", Subject: "cpu 0", Summary: "1200 packets/s dropped before protocol work on cpu 0", Evidence: diagnose.Evidence{}}},
		}, {
			ID: "RX901", Severity: diagnose.Info, Subject: "host", Summary: "not measured: time per interrupt; weaker for it: RX502",
			Evidence: diagnose.Evidence{{Name: "gaps", Value: 1}}, Remedy: "run on a kernel that rxsteer doctor accepts",
		}},
		Checked:    []string{"eth1: receive work is spread over 4 CPUs, the busiest has 21 % of it"},
		Unmeasured: []diagnose.Unmeasured{{What: "time per interrupt", Why: "kernel has no tracepoint irq_handler_entry", Weakens: "RX502"}},
		Loads: []diagnose.Load{
			{CPU: 0, NetRX: 0.981, Other: 0.01, Idle: 0.009, Packets: 41230}, {CPU: 1, NetRX: 0.002, Other: 0.2, Idle: 0.798, Packets: 12},
			{CPU: 2, Idle: 1}, {CPU: 3, Idle: 0.95, Steal: 0.05},
		},
	}
}

func TestDiagnoseText(t *testing.T) {
	var b bytes.Buffer
	if err := printReport(&b, fixedReport(), palette{}, defaultWidth); err != nil {
		t.Fatal(err)
	}
	golden(t, "diagnose.txt", b.String())
	noLongLines(t, b.String())
}

func TestDiagnoseJSON(t *testing.T) {
	var b bytes.Buffer
	if err := printJSON(&b, fixedReport()); err != nil {
		t.Fatal(err)
	}
	golden(t, "diagnose.json", b.String())
}

func fixedPlan() *plan.Plan {
	return &plan.Plan{
		Version: plan.Version, Goal: plan.Balanced,
		Identity: plan.Identity{BootID: "6b0ad1ba-7d3c-4a77-8b6e-2f8f6a4f5f10", Netns: 4026531840, Kernel: "6.12.9",
			Devices: []plan.Device{{Name: "eth0", IfIndex: 2, Bus: "0000:00:03.0", Driver: "virtio_net", RXQueues: 1, TXQueues: 1}}},
		Changes: []plan.Change{{
			Knob: knob.RPSCPUs, Target: knob.On("eth0", "rx-0"), From: knob.Text(""), To: knob.Text("1-3"), Findings: []diagnose.ID{"RX101", "RX301"}, Risk: plan.Reorder,
			Command: "echo e > /sys/class/net/eth0/queues/rx-0/rps_cpus", Undo: "echo 0 > /sys/class/net/eth0/queues/rx-0/rps_cpus",
			Why: "the one queue of eth0 keeps cpu 0 busy; cpus 1-3 are free and share its cache", Expect: "receive softirq of cpu 0 falls from 98 % to about 35 %",
		}, {
			Knob: knob.RSSTable, Target: "eth0", From: knob.List(make([]int, 128)), To: knob.List([]int{0, 1, 0, 1}), Findings: []diagnose.ID{"RX201"}, Risk: plan.NoRisk,
			Command: "ethtool -X eth0 equal 2", Undo: "ethtool -X eth0 equal 1", Why: "fits the load",
		}},
		Reasons: []string{"goal auto: balanced, for the samples hold no packet sizes or flows to tell bulk from requests"},
	}
}

func TestPlanText(t *testing.T) {
	var b bytes.Buffer
	printPlan(&b, fixedPlan(), nil, palette{}, defaultWidth)
	golden(t, "plan.txt", b.String())
	noLongLines(t, b.String())
	b.Reset()
	printPlan(&b, &plan.Plan{Reasons: []string{"nothing to do: no finding asks for a change"}},
		&diagnose.Report{Checked: []string{"receive softirq per CPU: the most is 3 % of cpu 1"}}, palette{}, defaultWidth)
	golden(t, "plan-empty.txt", b.String())
}

func TestPlanJSON(t *testing.T) {
	var b bytes.Buffer
	if err := printJSON(&b, fixedPlan()); err != nil {
		t.Fatal(err)
	}
	golden(t, "plan.json", b.String())
	if !json.Valid(b.Bytes()) {
		t.Error("not JSON")
	}
}

// TestColour: only a terminal gets escapes, and NO_COLOR is honoured.
func TestColour(t *testing.T) {
	for _, tc := range []struct {
		name string
		tty  bool
		vars map[string]string
		want bool
	}{
		{"terminal", true, map[string]string{"TERM": "xterm"}, true},
		{"pipe", false, map[string]string{"TERM": "xterm"}, false},
		{"NO_COLOR", true, map[string]string{"TERM": "xterm", "NO_COLOR": "1"}, false},
		{"dumb terminal", true, map[string]string{"TERM": "dumb"}, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			e := &env{stdoutTTY: tc.tty, getenv: func(k string) string { return tc.vars[k] }}
			var b bytes.Buffer
			if err := printReport(&b, fixedReport(), e.palette(), defaultWidth); err != nil {
				t.Fatal(err)
			}
			if got := strings.Contains(b.String(), "\x1b["); got != tc.want {
				t.Errorf("colour = %v, want %v", got, tc.want)
			}
		})
	}
}

func TestDoctorText(t *testing.T) {
	doc := &doctorDoc{Kernel: "6.1.0-28-amd64", UID: 1000, MissingCaps: []string{"CAP_BPF", "CAP_PERFMON"}, Lockdown: "none", Checks: []check{
		{Area: areaMeasure, Name: "BTF", OK: true},
		{Area: areaMeasure, Name: "softirq_entry", Why: "load BPF programs: not enough privilege for BPF: needs CAP_BPF and CAP_PERFMON", Lost: "all live measurement: a softirq's beginning",
			Grant: "run as root, or: setcap cap_bpf,cap_perfmon=ep /usr/bin/rxsteer"},
		{Area: areaNetlink, Name: "ethtool", OK: true},
		{Area: areaNetlink, Name: "netdev", Why: "find netdev family: this kernel has none (6.4 brought it): not supported", Lost: "the kernel's own map of queues, NAPIs and interrupts (since Linux 6.8); names are used instead"},
		{Area: areaFiles, Name: "/proc/interrupts", OK: true},
		{Area: areaSet, Name: "rss-key of eth0 and 1 more", Why: "not permitted", Lost: "this setting is not shown, compared or put back"},
		{Area: areaState, Name: "transaction 3", Why: "a run is at it, or died in the middle", Grant: "rxsteer rollback 3"},
	}}
	var b bytes.Buffer
	printDoctor(&b, doc, palette{}, defaultWidth)
	golden(t, "doctor.txt", b.String())
	noLongLines(t, b.String())
	b.Reset()
	if err := printJSON(&b, doc); err != nil {
		t.Fatal(err)
	}
	golden(t, "doctor.json", b.String())
}

// fixedResult is a transaction that was judged worse and could not be put back in full.
func fixedResult() *applyDoc {
	ref := func(n int) knob.Ref { return knob.Ref{Knob: knob.RPSCPUs, Target: knob.On("eth0", "rx-%d", n)} }
	return &applyDoc{
		Result: &apply.Result{
			ID: "2", State: apply.Partial, Why: "worse: packets delivered 41230 → 38000 per second (-7.8 %)",
			Steps: []apply.Step{
				{Ref: ref(0), From: knob.Text(""), To: knob.Text("1-3"), Got: knob.Text(""), Outcome: apply.Restored},
				{Ref: ref(1), From: knob.Text(""), To: knob.Text("1-3"), Got: knob.Text("2"), Outcome: apply.Lost, Note: "somebody else changed it: left alone"},
			},
			Unasked: []apply.Unasked{{Ref: knob.Ref{Knob: knob.Features, Target: "eth0"}, From: knob.Fields(map[string]any{"rx-lro": false}), To: knob.Fields(map[string]any{"rx-lro": true}), PutBack: true, Note: "changed with our write and was put back"}},
			Verdict: &apply.Verdict{Word: apply.Worse, Why: "packets delivered of eth0 41230 → 38000 per second (-7.8 %)", Devices: []string{"eth0"}, Windows: 5,
				Measures: []apply.Measure{{Name: "packets_delivered_per_s", Before: 41230, After: 38000, Significant: true}, {Name: "receive_softirq_per_packet_ns", Before: 23100, After: 25900, Significant: true}, {Name: "background_busy_cpus", Before: 0.5, After: 0.52}}},
			Left: []apply.Left{{Ref: ref(1), Want: knob.Text(""), Is: knob.Text("2"), Why: "somebody else changed it: left alone"}},
		},
		Before: &loadDoc{IntervalS: 5, CPUs: []cpuLoad{{0, 0.953, 0.99}, {1, 0.01, 0.01}, {2, 0, 0}}, PacketsPS: 41230, DroppedPS: 12000, SqueezesPS: 400},
		After:  &loadDoc{IntervalS: 5, CPUs: []cpuLoad{{0, 0.5, 0.34}, {1, 0.97, 0.66}, {2, 0, 0}}, PacketsPS: 38000, DroppedPS: 15000, SqueezesPS: 900},
	}
}

func TestResultText(t *testing.T) {
	var b bytes.Buffer
	printResult(&b, fixedResult(), palette{}, defaultWidth)
	golden(t, "result.txt", b.String())
	noLongLines(t, b.String())
	b.Reset()
	if err := printJSON(&b, fixedResult()); err != nil {
		t.Fatal(err)
	}
	golden(t, "result.json", b.String())
}

// TestDoctorShowsUnfinished: what a dead run left is shown where people look first, with the line that ends it.
func TestDoctorShowsUnfinished(t *testing.T) {
	one := func(state apply.State) string {
		out := stateChecks([]apply.Transaction{{ID: "4", State: state, Left: make([]apply.Left, 2)}})
		return out[0].Name + "|" + out[0].Why + "|" + out[0].Grant
	}
	for state, want := range map[apply.State]string{
		apply.Kept:        "no unfinished transaction||",
		apply.RolledBack:  "no unfinished transaction||",
		apply.Journalled:  "transaction 4|a run is at it, or died in the middle|rxsteer rollback 4",
		apply.Applying:    "transaction 4|a run is at it, or died in the middle|rxsteer rollback 4",
		apply.Unconfirmed: "transaction 4|it waits to be confirmed|rxsteer confirm 4, or: rxsteer rollback 4",
		apply.Partial:     "transaction 4|2 settings could not be put back|rxsteer history shows them",
	} {
		if got := one(state); got != want {
			t.Errorf("%s: %q, want %q", state, got, want)
		}
	}
}

func TestHistoryText(t *testing.T) {
	begun := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	r := fixedResult()
	txs := []apply.Transaction{
		{ID: "1", By: "root (alice), trial", Begun: begun, Ended: begun.Add(12 * time.Second), State: apply.Kept, Why: "better: receive softirq of the hottest CPU 98 → 41 %", Plan: fixedPlan()},
		{ID: "2", By: "persist", Begun: begun.Add(time.Hour), State: apply.Partial, Why: r.Why, Plan: fixedPlan(), Left: r.Left},
		{ID: "3", Begun: begun.Add(2 * time.Hour), State: apply.Unconfirmed, Plan: fixedPlan(), Deadline: 90 * time.Minute},
	}
	var b bytes.Buffer
	printHistory(&b, txs, begun.Add(2*time.Hour+30*time.Second), palette{}, defaultWidth)
	golden(t, "history.txt", b.String())
	b.Reset()
	printHistory(&b, nil, begun, palette{}, defaultWidth)
	if got := b.String(); got != "No change was made in this boot.\n" {
		t.Errorf("empty history: %q", got)
	}
}

func TestDriftText(t *testing.T) {
	taken := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	ref := knob.Ref{Knob: knob.RPSCPUs, Target: knob.On("eth0", "rx-0")}
	was := &knob.Snapshot{Taken: taken, Host: knob.Identity{Kernel: "6.12.9"}, Devices: []knob.Device{{Name: "eth0", Driver: "igb", Version: "6.12.9"}, {Name: "eth1"}},
		Settings: []knob.Setting{{Ref: ref, Value: knob.Text("1-3")}}}
	now := &knob.Snapshot{Host: knob.Identity{Kernel: "6.12.10"}, Devices: []knob.Device{{Name: "eth0", Driver: "igb", Version: "6.12.10"}},
		Settings: []knob.Setting{{Ref: ref, Value: knob.Text("")}}}
	var b bytes.Buffer
	seen := &diagnose.Sightings{}
	seen.Note(was, was, taken.Add(time.Hour))
	seen.Note(was, now, taken.Add(2*time.Hour))
	printDrift(&b, was, now, diagnose.Drifted(was, now, seen.First), seen)
	golden(t, "drift.txt", b.String())
}

func TestExplainText(t *testing.T) {
	x, ok := diagnose.Explain("RX301")
	if !ok {
		t.Fatal("no RX301")
	}
	var b bytes.Buffer
	printEntry(&b, &x, palette{}, defaultWidth)
	noLongLines(t, b.String())
	for _, part := range []string{"RX301 ", "\nCause\n", "\nEvidence\n", "\nRemedy\n", "\nReading\n"} {
		if !strings.Contains(b.String(), part) {
			t.Errorf("lacks %q:\n%s", part, b.String())
		}
	}
}

// TestProgress: a terminal sees one line that is redrawn and erased; a pipe sees nothing.
func TestProgress(t *testing.T) {
	start := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	now := start
	s := &collector.Sample{Level: 1, Interval: time.Second, CPUs: []collector.CPU{{CPU: 0, Processed: 40000}, {CPU: 1, Processed: 1230}}}
	s.CPUs[0].SoftirqTime[collector.NetRX] = 950e6
	for _, tc := range []struct {
		name string
		tty  bool
		want string
	}{
		{"terminal", true, "\r\x1b[Kmeasuring eth0  ·········· 10 s left" +
			"\r\x1b[Kmeasuring eth0  ████······  6 s left  41.2k packets/s  cpu0 95 %" + "\r\x1b[K"},
		{"pipe", false, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var b bytes.Buffer
			now = start
			e := &env{stderr: &b, stderrTTY: tc.tty, width: 100, now: func() time.Time { return now }}
			p := e.newProgress("measuring eth0", 10*time.Second)
			now = start.Add(4 * time.Second)
			p.step(s)
			p.end()
			if got := b.String(); got != tc.want {
				t.Errorf("got  %q\nwant %q", got, tc.want)
			}
		})
	}
}

func TestFamilyChecks(t *testing.T) {
	for _, tc := range []struct {
		name string
		has  map[string]bool
		lost map[string]string
		want []check
	}{
		{"all", map[string]bool{"b": true, "a": true}, nil, []check{{Area: areaNetlink, Name: "f: a, b", OK: true}}},
		{"some by ioctl", map[string]bool{"a": true, "b": false, "c": false}, nil, []check{{Area: areaNetlink, Name: "f: a", OK: true},
			{Area: areaNetlink, Name: "f: b, c", Why: "this kernel's family has no such message", Lost: "nothing where the driver answers the older ioctl"}}},
		{"none, and what is lost", map[string]bool{"a": false}, map[string]string{"a": "much"}, []check{
			{Area: areaNetlink, Name: "f: a", Why: "this kernel's family has no such command", Lost: "much"}}},
	} {
		if diff := cmp.Diff(tc.want, familyChecks("f", tc.has, tc.lost)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tc.name, diff)
		}
	}
}

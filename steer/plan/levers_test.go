package plan

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/goccy/go-yaml"
	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/txtar"

	"github.com/rxsteer/rxsteer/collector"
	"github.com/rxsteer/rxsteer/internal/cpuset"
	"github.com/rxsteer/rxsteer/internal/host/knob"
	"github.com/rxsteer/rxsteer/internal/host/nic"
	"github.com/rxsteer/rxsteer/internal/host/paste"
	"github.com/rxsteer/rxsteer/internal/host/topo"
	"github.com/rxsteer/rxsteer/steer/diagnose"
)

var update = flag.Bool("update", false, "rewrite the plans of testdata/levers")

// A case of testdata/levers is a host, what was found on it, and the plan that follows:
//
//	-- host --      "cpus N", "busy CPU NETRX OTHER" in parts of its time, "nic NAME DRIVER [queues=N] [master=M]", "named NAME"
//	-- settings --  "knob target = JSON", the target with its blank
//	-- findings --  YAML: id, severity, subject, summary, device, queues, cpu, movable, polls, flows, near, knobs, evidence
//	-- sample --    JSON of collector.Sample, where one is needed
//	-- policy --    YAML, and "-- goal --" a word
//	-- plan --      the answer
//
// Without findings the host is diagnosed.
type leverCase struct {
	in   Input
	want string
}

type foundYAML struct {
	ID       diagnose.ID     `yaml:"id"`
	Severity string          `yaml:"severity"`
	Subject  string          `yaml:"subject"`
	Summary  string          `yaml:"summary"`
	Device   string          `yaml:"device"`
	Queues   []int           `yaml:"queues"`
	CPU      *int            `yaml:"cpu"`
	Movable  map[int]float64 `yaml:"movable"`
	Polls    []int           `yaml:"polls"`
	Flows    []string        `yaml:"flows"`
	Near     []int           `yaml:"near"`
	Knobs    []knob.Kind     `yaml:"knobs"`
	Evidence map[string]any  `yaml:"evidence"`
}

func readLever(t *testing.T, a *txtar.Archive) leverCase {
	t.Helper()
	c := leverCase{in: Input{Goal: Balanced, Report: &diagnose.Report{}, Snapshot: &knob.Snapshot{Host: knob.Identity{BootID: "b", Netns: 1, Kernel: "6.12"}}, Topology: &topo.Topology{}}}
	diagnosed := true
	must := func(what string, err error) {
		t.Helper()
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
	}
	for _, f := range a.Files {
		switch text := string(f.Data); f.Name {
		case "host":
			for line := range strings.Lines(text) {
				hostLine(t, &c.in, strings.Fields(line))
			}
		case "settings":
			for line := range strings.Lines(text) {
				ref, v, _ := strings.Cut(strings.TrimSpace(line), " = ")
				k, target, _ := strings.Cut(ref, " ")
				var value knob.Value
				must(line, json.Unmarshal([]byte(v), &value))
				c.in.set(knob.Kind(k), knob.Target(target), value)
			}
		case "findings":
			diagnosed = false
			var all []foundYAML
			must(f.Name, yaml.UnmarshalWithOptions(f.Data, &all, yaml.Strict()))
			for _, x := range all {
				c.in.Report.Findings = append(c.in.Report.Findings, x.finding(t))
			}
		case "sample":
			c.in.Sample = &collector.Sample{}
			must(f.Name, json.Unmarshal(f.Data, c.in.Sample))
		case "policy":
			p, err := ParsePolicy("policy", f.Data)
			must(f.Name, err)
			c.in.Policy = *p
		case "goal":
			c.in.Goal = Goal(strings.TrimSpace(text))
		case "plan":
			c.want = text
		default:
			t.Fatalf("no such part: %s", f.Name)
		}
	}
	c.in.Report.Named = nic.Under(c.in.NICs, c.in.Report.Named)
	if diagnosed {
		c.in.Report = diagnose.Diagnose(diagnose.Input{Snapshot: c.in.Snapshot, NICs: c.in.NICs, Topology: c.in.Topology, Sample: c.in.Sample})
	}
	return c
}

func (x foundYAML) finding(t *testing.T) diagnose.Finding {
	t.Helper()
	f := diagnose.Finding{ID: x.ID, Subject: x.Subject, Summary: x.Summary, Remedy: "do it",
		Site: diagnose.Site{Device: x.Device, Queues: x.Queues, CPU: -1, Movable: x.Movable, Demand: 1, PollCPUs: x.Polls, Flows: x.Flows, Near: cpuset.Of(x.Near...), Knobs: x.Knobs}}
	if x.CPU != nil {
		f.Site.CPU = *x.CPU
	}
	if x.Severity != "" {
		var err error
		if f.Severity, err = diagnose.ParseSeverity(x.Severity); err != nil {
			t.Fatal(err)
		}
	}
	for k, v := range x.Evidence {
		if n, ok := v.(uint64); ok { // the YAML library's whole numbers
			v = int(n)
		}
		f.Evidence = append(f.Evidence, diagnose.Fact{Name: k, Value: v})
	}
	return f
}

func hostLine(t *testing.T, in *Input, w []string) {
	t.Helper()
	if len(w) == 0 {
		return
	}
	number := func(s string) float64 {
		x, err := strconv.ParseFloat(s, 64)
		if err != nil {
			t.Fatalf("%v: %v", w, err)
		}
		return x
	}
	switch w[0] {
	case "cpus":
		n := int(number(w[1]))
		in.Topology.Online = cpuset.Range(0, n-1)
		for i := range n {
			in.Topology.CPUs = append(in.Topology.CPUs, topo.CPU{ID: i, Core: i, Node: topo.None, LLC: topo.None, Online: true})
			in.Report.Loads = append(in.Report.Loads, diagnose.Load{CPU: i, Idle: 1})
		}
	case "busy":
		l := &in.Report.Loads[int(number(w[1]))]
		l.NetRX, l.Other = number(w[2]), number(w[3])
		l.Idle = 1 - l.NetRX - l.Other
	case "named":
		in.Report.Named = append(in.Report.Named, w[1])
	case "nic":
		n := nic.NIC{Name: w[1], Driver: w[2], Kind: nic.Physical, Node: topo.None, IfIndex: 2 + len(in.NICs), Up: true}
		d := knob.Device{Name: n.Name, IfIndex: n.IfIndex, Driver: n.Driver}
		for _, o := range w[3:] {
			switch k, v, _ := strings.Cut(o, "="); k {
			case "queues":
				for q := range int(number(v)) {
					n.Queues = append(n.Queues, nic.Queue{RX: q, TX: q, IRQ: 30 + 10*len(in.NICs) + q, KnownBy: nic.ByMSI, Effective: cpuset.Of(q)})
				}
				d.RXQueues, d.TXQueues = len(n.Queues), len(n.Queues)
			case "master":
				n.Master = v
			case "kind":
				n.Kind = nic.Kind(v)
			case "lower":
				n.Lower = strings.Split(v, ",")
			default:
				t.Fatalf("no such word: %s", o)
			}
		}
		in.NICs = append(in.NICs, n)
		in.Snapshot.Devices = append(in.Snapshot.Devices, d)
		in.Snapshot.Sort()
	default:
		t.Fatalf("no such line: %v", w)
	}
}

// text is a plan for golden files.
func text(p *Plan) string {
	var b strings.Builder
	fmt.Fprintf(&b, "goal %s\n", p.Goal)
	for _, c := range p.Changes {
		fmt.Fprintf(&b, "\n%s %s: %s → %s (%s; %s; %s)\n  why: %s\n  then: %s\n  do: %s\n  undo: %s\n", c.Knob, c.Target, word(c.From.String()), word(c.To.String()), ids(c), c.Risk, c.Support, c.Why, c.Expect, c.Command, c.Undo)
	}
	if len(p.Reasons) > 0 {
		b.WriteByte('\n')
	}
	for _, r := range p.Reasons {
		fmt.Fprintf(&b, "· %s\n", r)
	}
	return b.String()
}

// sound checks what holds of every plan.
func sound(t *testing.T, in Input, p *Plan) {
	t.Helper()
	for _, c := range p.Changes {
		if err := Check(c, cpuset.Set{}); err != nil {
			t.Errorf("the plan holds what no plan may hold: %s: %v", c.Ref(), err)
		}
		if c.Command == "" || c.Undo == "" || c.Why == "" || c.Expect == "" || len(c.Findings) == 0 || c.From.Equal(c.To) {
			t.Errorf("incomplete change: %+v", c)
		}
		if why := in.Policy.Refuses(c); why != "" {
			t.Errorf("against the policy: %s", why)
		}
		for _, id := range c.Findings {
			found := false
			for _, f := range in.Report.Findings {
				found = found || f.ID == id
			}
			if !found {
				t.Errorf("%s serves %s, which was not found", c.Ref(), id)
			}
		}
	}
	if len(p.Changes) == 0 && len(p.Reasons) == 0 {
		t.Error("no changes, and no reason")
	}
	y, err := p.YAML()
	if err != nil {
		t.Fatal(err)
	}
	again, err := Parse("plan", y, cpuset.Set{})
	if err != nil {
		t.Fatalf("the plan cannot be read back: %v\n%s", err, y)
	}
	a, _ := json.Marshal(p)
	b, _ := json.Marshal(again)
	if !bytes.Equal(a, b) {
		t.Errorf("plan read back:\n%s\n%s", a, b)
	}
	script(t, p)
}

// script checks the syntax of a plan's script.
func script(t *testing.T, p *Plan) {
	t.Helper()
	cmd := exec.Command("sh", "-n")
	cmd.Stdin = strings.NewReader(p.Shell())
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("the script is none: %v: %s\n%s", err, out, p.Shell())
	}
}

func TestLevers(t *testing.T) {
	files, err := filepath.Glob("testdata/levers/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatalf("no cases: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) {
			a, err := txtar.ParseFile(file)
			if err != nil {
				t.Fatal(err)
			}
			c := readLever(t, a)
			p := Make(c.in)
			sound(t, c.in, p)
			if near := strings.Contains(filepath.Base(file), "near-miss"); near && len(p.Changes) > 0 {
				t.Errorf("a near miss that changes something: %s", text(p))
			} else if !near && len(p.Changes) == 0 && !strings.Contains(file, "leaves") {
				t.Errorf("nothing is planned: %s", text(p))
			}
			got := text(p)
			if *update {
				kept := a.Files[:0]
				for _, f := range a.Files {
					if f.Name != "plan" {
						kept = append(kept, f)
					}
				}
				a.Files = append(kept, txtar.File{Name: "plan", Data: []byte(got)})
				if err := os.WriteFile(file, txtar.Format(a), 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("plan (-want +got):\n%s", diff)
			}
		})
	}
}

// Each setting a plan can hold is planned where evidence asks for it, by a case of testdata/levers or a named test, and
// each has a near miss: the same finding where the change would not help, cannot be made or is not known to.
func TestEveryLever(t *testing.T) {
	type seen struct{ planned, near string }
	// Those that need buckets and flows of a sample.
	got := map[knob.Kind]seen{
		knob.RSSKey:     {"TestKeyPartsTwoElephants", "TestNoKeyWithoutCause"},
		knob.NtupleRule: {"TestRulePartsTwoElephants", "TestNoKeyWithoutCause"},
	}
	tests, err := os.ReadFile("table_test.go")
	if err != nil {
		t.Fatal(err)
	}
	for k, x := range got {
		for _, name := range []string{x.planned, x.near} {
			if !bytes.Contains(tests, []byte("func "+name+"(")) {
				t.Errorf("%s: there is no %s", k, name)
			}
		}
	}
	// A near miss is about the settings that the cases of its name plan: "rings-near-miss-hot" about those of "rings".
	kinds := map[string]map[knob.Kind]bool{}
	var near []string
	files, err := filepath.Glob("testdata/levers/*.txtar")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".txtar")
		family, _, _ := strings.Cut(name, "-")
		if strings.Contains(name, "near-miss") {
			near = append(near, name)
			continue
		}
		a, err := txtar.ParseFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range Make(readLever(t, a).in).Changes {
			if kinds[family] == nil {
				kinds[family] = map[knob.Kind]bool{}
			}
			kinds[family][c.Knob] = true
			x := got[c.Knob]
			x.planned = name
			got[c.Knob] = x
		}
	}
	for _, name := range near {
		family, _, _ := strings.Cut(name, "-")
		for k := range kinds[family] {
			x := got[k]
			x.near = name
			got[k] = x
		}
	}
	for k := range rules {
		if x := got[k]; x.planned == "" || x.near == "" {
			t.Errorf("%s: planned by %q, near miss %q", k, x.planned, x.near)
		}
	}
}

// Every state of a host that people pasted gets a sound plan, and those in which nothing is wrong none.
func TestPlansOfPastedHosts(t *testing.T) {
	files, err := filepath.Glob("../diagnose/testdata/cases/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatalf("no cases: %v", err)
	}
	planned := 0
	for _, file := range files {
		a, err := txtar.ParseFile(file)
		if err != nil {
			t.Fatal(err)
		}
		texts := fstest.MapFS{}
		for _, f := range a.Files {
			if f.Name != "said" && !strings.HasPrefix(f.Name, "baseline/") {
				texts[f.Name] = &fstest.MapFile{Data: f.Data}
			}
		}
		h, err := paste.OpenFS(texts)
		if err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		in := Input{Snapshot: h.Snapshot(), NICs: h.NICs(), Topology: h.Topology(), Sample: h.Sample()}
		for _, goal := range []Goal{Auto, Throughput, Latency, Balanced} {
			t.Run(filepath.Base(file)+" "+string(goal), func(t *testing.T) {
				in.Goal = goal
				in.Report = diagnose.Diagnose(diagnose.Input{Snapshot: in.Snapshot, NICs: in.NICs, Topology: in.Topology, Sample: in.Sample, Captured: true})
				p := Make(in)
				sound(t, in, p)
				planned += len(p.Changes)
				if len(in.Report.Findings) == 0 && len(p.Changes) > 0 {
					t.Errorf("nothing is wrong, and the plan has %s", text(p))
				}
			})
		}
	}
	if planned == 0 {
		t.Error("no plan of any of them changes anything")
	}
	t.Logf("%d changes planned", planned)
}

// The policy that the help shows is one.
func TestPolicyOfTheHelp(t *testing.T) {
	help, err := os.ReadFile("../../cmd/rxsteer/testdata/help/rxsteer-plan.txt")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(help), "in YAML:\n\n")
	text, _, ok := strings.Cut(rest, "\n\n")
	if !ok {
		t.Fatalf("the help shows no policy:\n%s", help)
	}
	var b strings.Builder
	for line := range strings.Lines(text) {
		b.WriteString(strings.TrimPrefix(line, "  "))
	}
	p, err := ParsePolicy("help", []byte(b.String()))
	if err != nil {
		t.Fatal(err)
	}
	if p.CPUs != cpuset.Range(0, 7) || !p.LongFlows || len(p.Ranges) != 1 || p.allows(knob.Channels) || !p.allows(knob.RSSTable) {
		t.Errorf("read as %+v", p)
	}
}

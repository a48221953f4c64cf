package scenarios

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/rxsteer/rxsteer/lab/vm/qemu"
)

//go:embed guest.sh
var guestFunctions string

// programs are built static for guests and senders, by name.
var programs = map[string]string{
	"rxsteer":   "./cmd/rxsteer",
	"rxtraffic": "./lab/cmd/rxtraffic",
	"rxburn":    "./lab/cmd/rxburn",
	"rxfacts":   "./lab/scenarios/rxfacts",
	"rxbuckets": "./lab/scenarios/rxbuckets",
	"rxhold":    "./lab/scenarios/rxhold",
	"rxprobe":   "./lab/matrix/probe",
}

// tests are packages whose tests run in guests: what they say of the fake host and of every
// knob is held against real drivers.
var tests = map[string]string{
	"rxhosttest":  "./internal/host/hosttest",
	"rxknobtest":  "./internal/host/knob",
	"rxapplytest": "./steer/apply",
}

// BuildPrograms builds the module's programs for guests into dir. It runs in the module.
func BuildPrograms(ctx context.Context, dir string) ([]string, error) {
	var out []string
	for name, pkg := range programs {
		file := filepath.Join(dir, name)
		if err := build(ctx, "build", "-ldflags=-s -w", "-o", file, pkg); err != nil {
			return nil, err
		}
		out = append(out, file)
	}
	for name, pkg := range tests {
		file := filepath.Join(dir, name)
		if err := build(ctx, "test", "-c", "-tags", "lab", "-o", file, pkg); err != nil {
			return nil, err
		}
		out = append(out, file)
	}
	slices.Sort(out)
	return out, nil
}

// build runs the go command for static programs of the module.
func build(ctx context.Context, args ...string) error {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if log, err := cmd.CombinedOutput(); err != nil {
		return &qemu.Failure{Code: qemu.ExitLab, Line: fmt.Sprintf("go %s: %v", strings.Join(args, " "), err), Log: string(log)}
	}
	return nil
}

// overhead of rxsteer in guests: an emulated CPU pays for each look many times what a real one does. Within the 1 %
// that is usual it may look at too few of a busy CPU's runs in a window of 0.8 s to call it hot.
const overhead = "20%"

// Setup is the first part of what the guest runs: it ends when what is set is set and the traffic flows. look are lines
// that run between what is set and what costs CPU time.
func (s *Scenario) Setup(look string) string {
	var b strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	b.WriteString(guestFunctions)
	line("cd /share")
	line("LASTS=%d", int(s.Lasts.Seconds()))
	line("rxhold 2>/tmp/hold & n=300; until grep -qs ready /tmp/hold || [ $n = 0 ]; do usleep 100000; n=$((n-1)); done")
	line("grep -q ready /tmp/hold || { cat /tmp/hold; exit 75; }")
	line("say set")
	line("set -e")
	for _, l := range s.Set {
		line("%s", l)
	}
	line("set +e")
	line("%s", look)
	if s.BurnUs > 0 {
		line("rxburn --us %g --for 10m eth0 2>/tmp/burn >/dev/null & n=300; until grep -qs ready /tmp/burn || [ $n = 0 ]; do usleep 100000; n=$((n-1)); done", s.BurnUs)
		line("grep ready /tmp/burn || { cat /tmp/burn; exit 70; }")
	}
	sink := s.Sink
	if sink == "" {
		sink = "rxtraffic recv --listen 0.0.0.0:9000 --every 20ms --buffer 33554432 --for 10m"
	}
	line("%s >/dev/null 2>/tmp/sink &", sink)
	line("n=100; until grep -qs ready /tmp/sink || [ $n = 0 ]; do usleep 50000; n=$((n-1)); done")
	line("say traffic")
	for _, l := range s.Traffic {
		line("host_bg %s", quote(l))
	}
	if len(s.Traffic) > 0 {
		line("flowing eth0 || { cat /share/req/*.out; exit 71; }")
		line("sleep 1")
	}
	return b.String()
}

// script is what the guest runs.
func (s *Scenario) script() string {
	var b strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	b.WriteString(s.Setup("tool status status"))
	line("say measure")
	line("%s", s.facts("before")) // not beside diagnose, which sends itself datagrams to learn what its programs cost
	for _, l := range s.Meanwhile {
		line("( %s ) &", l)
	}
	line("tool diagnose report --for %v --overhead %s %s", s.Measure, overhead, s.Diagnose)
	line("tool status status_now")
	goal := s.Goal
	if goal == "" {
		goal = "auto"
	}
	if len(s.Act) > 0 {
		line("say act")
		for _, l := range s.Act {
			line("%s", l)
		}
	} else if len(s.Planned)+len(s.Achieved) > 0 {
		line("say plan")
		line("tool plan plan --for %v --overhead %s --goal %s -w plan.yaml %s", s.Measure, overhead, goal, s.Diagnose)
		if len(s.Achieved) > 0 {
			allow := s.Allow
			if allow == "" {
				allow = "reorder"
			}
			line("say apply")
			line("tool apply apply --yes --overhead %s --allow %s plan.yaml", overhead, allow)
			line("sleep 1")
			line("%s", s.facts("after"))
			line("tool status status_after")
			line("tool rollback rollback")
			line("tool status status_restored")
		}
	}
	line("say done")
	line("exit 0")
	return b.String()
}

// facts takes the facts of the traffic, and where a scenario wants it the round trips of a flow beside it.
func (s *Scenario) facts(name string) string {
	facts := fmt.Sprintf("rxfacts -for %v >%s.json || exit 72", s.Measure, name)
	if !s.Probe {
		return facts
	}
	return fmt.Sprintf("host_bg 'rxtraffic probe --to 10.77.0.2:9000 --rate 200 --for %v --json 2>/dev/null'; probe=$job\n%s\nhost_wait $probe >%s_probe.json || exit 74", s.Measure, facts, name)
}

func quote(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }

// Verdict is how a section or a whole scenario ended.
type Verdict string

const (
	Pass        Verdict = "pass"
	Fail        Verdict = "FAIL"
	Pending     Verdict = "pending" // fails as its issue says
	XPass       Verdict = "XPASS"   // pending and passes: the line must go
	Unavailable Verdict = "unavailable"
	Broken      Verdict = "BROKEN" // the lab failed or the guest hung
	None        Verdict = "-"      // nothing to judge
)

// Outcome is one scenario run.
type Outcome struct {
	Scenario Scenario
	Sections map[string]Verdict
	Verdict  Verdict
	Failed   []string          // assertions that failed, with what was seen
	Findings []string          // what diagnose found: "RX203 critical eth0: …"
	Err      error             // for Unavailable and Broken
	Log      string            // of the guest
	Files    map[string][]byte // that the guest left
	Took     time.Duration
}

// Code is the exit code of an outcome.
func (o *Outcome) Code() int {
	switch o.Verdict {
	case Pass, Pending:
		return qemu.ExitPass
	case Fail, XPass:
		return qemu.ExitAssertion
	}
	return qemu.ExitCode(o.Err)
}

// Run boots a scenario's machine and judges what came of it.
func Run(ctx context.Context, cache *qemu.Cache, bin []string, s Scenario, output io.Writer) *Outcome {
	o := &Outcome{Scenario: s, Sections: map[string]Verdict{}}
	start := time.Now()
	// A guest unpacks each program into memory before it starts.
	bin = slices.DeleteFunc(slices.Clone(bin), func(file string) bool { return tests[filepath.Base(file)] != "" || filepath.Base(file) == "rxprobe" })
	job := qemu.Job{Script: s.script(), Bin: bin, Timeout: s.Timeout + s.Lasts, Output: output}
	res, err := cache.Boot(ctx, s.Machine, job)
	o.Took = time.Since(start)
	if err != nil {
		o.Err, o.Verdict = err, Broken
		if qemu.ExitCode(err) == qemu.ExitUnavailable {
			o.Verdict = Unavailable
		}
		if f, ok := errors.AsType[*qemu.Failure](err); ok {
			o.Log = f.Log
		}
		return o
	}
	o.Log, o.Files = res.Output, res.Files
	if res.Status != 0 {
		o.Verdict = Broken
		o.Err = &qemu.Failure{Code: qemu.ExitLab, Line: fmt.Sprintf("scenario %s: its script ended with status %d before the measurement", s.Name, res.Status)}
		return o
	}
	judge(o, documents(res.Files), res.Files)
	return o
}

// documents decodes the JSON files of the share by name.
func documents(files map[string][]byte) map[string]any {
	docs := map[string]any{}
	for name, data := range files {
		base, ok := strings.CutSuffix(name, ".json")
		var v any
		if ok && json.Unmarshal(data, &v) == nil {
			docs[base] = v
		}
	}
	return docs
}

// judge fills an outcome from the documents; files are for the reasons why one is missing.
func judge(o *Outcome, docs map[string]any, files map[string][]byte) {
	o.Findings = findings(docs)
	o.Verdict = Pass
	for _, section := range sections {
		lines := o.Scenario.section(section)
		if len(lines) == 0 {
			o.Sections[section] = None
			continue
		}
		var failed []string
		for _, l := range lines {
			if err := check(l, docs); err != nil {
				failed = append(failed, err.Error())
			}
		}
		if section == "found" {
			failed = append(failed, o.Scenario.beyond(docs)...)
		}
		subject, pending := o.Scenario.Pending[section]
		switch {
		case pending && len(failed) == 0:
			o.Sections[section] = XPass
			o.Failed = append(o.Failed, fmt.Sprintf("%s passes, but is marked pending for %q: remove that line from lab/scenarios/%s.yaml", section, subject, o.Scenario.Name))
		case pending:
			o.Sections[section] = Pending
		case len(failed) > 0:
			o.Sections[section] = Fail
			for _, f := range failed {
				o.Failed = append(o.Failed, section+": "+f)
			}
		default:
			o.Sections[section] = Pass
		}
	}
	switch {
	case contains(o.Sections, Fail):
		o.Verdict = Fail
	case contains(o.Sections, XPass):
		o.Verdict = XPass
	case contains(o.Sections, Pending):
		o.Verdict = Pending
	}
	for _, name := range []string{"status", "report", "plan", "apply", "rollback"} {
		rc := strings.TrimSpace(string(files[name+".rc"]))
		if _, ok := docs[name]; !ok && rc != "" && o.Verdict == Fail {
			o.Failed = append(o.Failed, fmt.Sprintf("rxsteer gave no %s: exit %s: %s", name, rc, strings.TrimSpace(string(files[name+".err"]))))
		}
	}
}

func contains(m map[string]Verdict, v Verdict) bool {
	for _, x := range m {
		if x == v {
			return true
		}
	}
	return false
}

// check checks one line of a section: an assertion, a finding, or "no" and a finding.
func check(line string, docs map[string]any) error {
	absent, no := strings.CutPrefix(line, "no ")
	if no {
		line = absent
	}
	if !findingID.MatchString(line) {
		a, err := parseAssertion(line)
		if err != nil {
			return err
		}
		return a.check(docs)
	}
	id, subject, _ := strings.Cut(line, " ")
	report, ok := docs["report"].(map[string]any)
	if !ok {
		return fmt.Errorf("%s: there is no report", line)
	}
	list, _ := report["findings"].([]any)
	var seen []string
	found := false
	for _, f := range list {
		m, _ := f.(map[string]any)
		seen = append(seen, fmt.Sprint(m["id"], " ", m["subject"]))
		if m["id"] == id && (subject == "" || strings.HasPrefix(fmt.Sprint(m["subject"]), subject)) {
			found = true
		}
	}
	switch {
	case no && found:
		return fmt.Errorf("%s was found and must not be", line)
	case !no && !found:
		return fmt.Errorf("%s was not found: there are %s", line, short(seen))
	}
	return nil
}

// beyond is what diagnose found that the scenario does not name. One that names no finding is not judged.
func (s *Scenario) beyond(docs map[string]any) []string {
	named := slices.DeleteFunc(slices.Clone(s.Found), func(l string) bool { return !findingID.MatchString(l) })
	if len(named)+len(s.NotFound) == 0 {
		return nil
	}
	is := func(list []string, id, subject string) bool {
		return slices.ContainsFunc(list, func(l string) bool {
			want, of, _ := strings.Cut(l, " ")
			return want == id && strings.HasPrefix(subject, of)
		})
	}
	report, _ := docs["report"].(map[string]any)
	list, _ := report["findings"].([]any)
	var out []string
	for _, f := range list {
		m, _ := f.(map[string]any)
		id, severity, subject := fmt.Sprint(m["id"]), fmt.Sprint(m["severity"]), fmt.Sprint(m["subject"])
		if is(named, id, subject) || is(s.NotFound, id, subject) || severity == "info" && (id == "RX901" || is(s.Also, id, subject)) {
			continue
		}
		out = append(out, fmt.Sprintf("%s %s %s was found and is not expected: %v", id, severity, subject, m["summary"]))
	}
	return out
}

// findings is a line per finding.
func findings(docs map[string]any) []string {
	report, _ := docs["report"].(map[string]any)
	list, _ := report["findings"].([]any)
	var out []string
	for _, f := range list {
		m, _ := f.(map[string]any)
		out = append(out, fmt.Sprintf("%v %v %v: %v", m["id"], m["severity"], m["subject"], m["summary"]))
	}
	return out
}

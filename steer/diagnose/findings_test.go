package diagnose

import (
	"bytes"
	"cmp"
	"flag"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/txtar"

	"github.com/rxsteer/rxsteer/collector"
	"github.com/rxsteer/rxsteer/internal/host/nic"
	"github.com/rxsteer/rxsteer/internal/host/paste"
)

var update = flag.Bool("update", false, "rewrite docs/findings.md")

// casefile is one state of a host and what must be found in it: an archive of testdata/cases with what people
// paste, or a world of worlds_test.go.
//
//	case: 31 a line or more about it
//	want: RX202 info eth0 [RX101] rx_queues=63 text="two words"
//	map: eth0 rx=3 tx=- irq=45 known_by=order
//	queues: eth0 rx=8 tx=8
//	say: part of what is said anywhere in the report
//	note: part of what is said about the texts
//	-- ethtool-x.eth0.txt --
//
// Without a want nothing but RX901 may be found. Files below baseline/ are what was set before (RX801).
type casefile struct {
	name, number, about string
	wants               []want
	maps, says, notes   []string
	files               fstest.MapFS
	world               func() *world
}

type want struct {
	line     string // ID severity subject [symptoms]
	evidence map[string]string
}

// fields splits at blanks outside quotes and brackets.
var wantField = regexp.MustCompile(`\[[^]]*\]|[^\s="]+="[^"]*"|"[^"]*"|\S+`)

func parseWant(t *testing.T, text string) want {
	t.Helper()
	f := wantField.FindAllString(text, -1)
	w := want{evidence: map[string]string{}}
	if len(f) < 3 {
		t.Fatalf("want of %d fields: %s", len(f), text)
	}
	symptoms := "[]"
	for _, x := range f[3:] {
		if strings.HasPrefix(x, "[") {
			symptoms = x
			continue
		}
		k, v, ok := strings.Cut(x, "=")
		if !ok {
			t.Fatalf("%s is no evidence: %s", x, text)
		}
		w.evidence[k] = strings.Trim(v, `"`)
	}
	w.line = strings.Join([]string{f[0], f[1], strings.Trim(f[2], `"`), symptoms}, " ")
	return w
}

func (c *casefile) head(t *testing.T, text string) {
	t.Helper()
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		key, rest, _ := strings.Cut(line, ": ")
		switch key {
		case "case":
			c.number, c.about, _ = strings.Cut(rest, " ")
		case "want":
			c.wants = append(c.wants, parseWant(t, rest))
		case "map", "queues":
			c.maps = append(c.maps, line)
		case "say":
			c.says = append(c.says, rest)
		case "note":
			c.notes = append(c.notes, rest)
		default:
			c.about = strings.TrimSpace(c.about + " " + line)
		}
	}
	if c.number == "" {
		t.Fatalf("%s tells no case", c.name)
	}
}

func readCases(t *testing.T) []casefile {
	t.Helper()
	names, err := filepath.Glob("testdata/cases/*.txtar")
	if err != nil || len(names) == 0 {
		t.Fatalf("no cases: %v", err)
	}
	var out []casefile
	for _, name := range names {
		a, err := txtar.ParseFile(name)
		if err != nil {
			t.Fatal(err)
		}
		c := casefile{name: strings.TrimSuffix(filepath.Base(name), ".txtar"), files: fstest.MapFS{}}
		c.head(t, string(a.Comment))
		for _, f := range a.Files {
			c.files[f.Name] = &fstest.MapFile{Data: f.Data}
		}
		out = append(out, c)
	}
	for _, w := range worldCases {
		c := casefile{name: w.name, world: w.in}
		c.head(t, w.head)
		out = append(out, c)
	}
	slices.SortStableFunc(out, func(a, b casefile) int { return cmp.Compare(a.name, b.name) })
	return out
}

// input is what rxsteer diagnose --from makes of a case, and what it says about the texts.
func (c *casefile) input(t *testing.T) (Input, []error) {
	t.Helper()
	if c.world != nil {
		return c.world().Input, nil
	}
	now, was := fstest.MapFS{}, fstest.MapFS{}
	for name, f := range c.files {
		if old, ok := strings.CutPrefix(name, "baseline/"); ok {
			was[old] = f
		} else if name != "said" {
			now[name] = f
		}
	}
	h := openTexts(t, now)
	in := Input{Snapshot: h.Snapshot(), NICs: h.NICs(), Topology: h.Topology(), Captured: true}
	if w := h.Saved.Windows; len(w) > 0 {
		in.Sample, in.Windows = collector.Merge(w...), w
	} else if s := h.Sample(); s != nil {
		in.Sample = collector.Merge(s)
	}
	for _, e := range h.Events {
		in.Events = append(in.Events, Event{Kind: e.Kind, Text: e.Text})
	}
	if len(was) > 0 {
		in.Baseline = openTexts(t, was).Snapshot()
	}
	return in, h.Notes
}

func openTexts(t *testing.T, f fs.FS) *paste.Host {
	t.Helper()
	h, err := paste.OpenFS(f)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

func (f *Finding) line() string {
	var symptoms []string
	for _, s := range f.Explains {
		symptoms = append(symptoms, string(s.ID))
	}
	return fmt.Sprintf("%s %s %s [%s]", f.ID, f.Severity, f.Subject, strings.Join(symptoms, " "))
}

// all is every sentence of a report.
func (r *Report) all() string {
	var b strings.Builder
	for _, f := range r.Findings {
		fmt.Fprintln(&b, f.Summary)
		for _, s := range f.Explains {
			fmt.Fprintln(&b, s.Summary)
		}
		fmt.Fprintln(&b, strings.Join(f.RuledOut, "\n"))
		fmt.Fprintln(&b, f.Remedy)
	}
	fmt.Fprintln(&b, strings.Join(r.Checked, "\n"))
	for _, u := range r.Unmeasured {
		fmt.Fprintf(&b, "%s: %s\n", u.What, u.Why)
	}
	return b.String()
}

// mapped is the lines that map: and queues: of a case may ask for.
func mapped(nics []nic.NIC) []string {
	number := func(n int) string {
		if n == nic.None {
			return "-"
		}
		return fmt.Sprint(n)
	}
	var out []string
	for _, n := range nics {
		rx, tx := n.QueueCount()
		out = append(out, fmt.Sprintf("queues: %s rx=%d tx=%d", n.Name, rx, tx))
		for _, q := range n.Queues {
			out = append(out, fmt.Sprintf("map: %s rx=%s tx=%s irq=%s known_by=%s affinity=%s effective=%s rps=%s", n.Name, number(q.RX), number(q.TX), number(q.IRQ), q.KnownBy, q.Affinity, q.Effective, q.RPS))
		}
		for _, v := range n.Control {
			out = append(out, fmt.Sprintf("map: %s control irq=%d", n.Name, v.IRQ))
		}
	}
	return out
}

// verdict is what is wrong with the answer to a case, "" nothing.
func (c *casefile) verdict(t *testing.T) (r *Report, wrong string) {
	in, notes := c.input(t)
	r = Diagnose(in)
	var b strings.Builder
	var got, wanted []string
	for _, w := range c.wants {
		wanted = append(wanted, w.line)
	}
	for _, f := range without901(r) {
		line := f.line()
		got = append(got, line)
		for _, w := range c.wants {
			if w.line != line {
				continue
			}
			for _, k := range slices.Sorted(maps.Keys(w.evidence)) {
				if is := fmt.Sprint(f.Evidence.Get(k)); is != w.evidence[k] {
					fmt.Fprintf(&b, "%s: %s is %s, want %s\n", f.ID, k, is, w.evidence[k])
				}
			}
		}
		if f.Remedy == "" || len(f.Evidence) == 0 {
			fmt.Fprintf(&b, "%s has no remedy or no evidence\n", f.ID)
		}
	}
	if diff := gocmp.Diff(wanted, got); diff != "" {
		fmt.Fprintf(&b, "findings (-want +got):\n%s\n", diff)
	}
	said := r.all()
	for _, s := range c.says {
		if !strings.Contains(said, s) {
			fmt.Fprintf(&b, "not said: %q\n", s)
		}
	}
	have := mapped(in.NICs)
	for _, m := range c.maps {
		words := strings.Fields(m)
		if !slices.ContainsFunc(have, func(h string) bool {
			of := strings.Fields(h)
			return !slices.ContainsFunc(words, func(w string) bool { return !slices.Contains(of, w) })
		}) {
			fmt.Fprintf(&b, "not in the map: %s\n  %s\n", m, strings.Join(have, "\n  "))
		}
	}
	var noted []string
	for _, n := range notes {
		noted = append(noted, n.Error())
	}
	for _, n := range c.notes {
		if !strings.Contains(strings.Join(noted, "\n"), n) {
			fmt.Fprintf(&b, "not noted: %q of %q\n", n, noted)
		}
	}
	if len(r.Checked)+len(got)+len(r.Unmeasured) == 0 {
		fmt.Fprintln(&b, "nothing found, and nothing said to be checked")
	}
	if b.Len() > 0 {
		fmt.Fprintf(&b, "all that is said:\n%s", said)
	}
	return r, b.String()
}

func TestCases(t *testing.T) {
	for _, c := range readCases(t) {
		t.Run(c.name, func(t *testing.T) {
			if _, wrong := c.verdict(t); wrong != "" {
				t.Error(wrong)
			}
		})
	}
}

// answers is what the wants of a case say in short.
func (c *casefile) answers() string {
	var ids []string
	for _, w := range c.wants {
		f := wantField.FindAllString(w.line, -1)
		ids = append(ids, strings.Join(f[:2], " "))
	}
	switch {
	case len(ids) > 0:
		return strings.Join(ids, ", ")
	case len(c.maps) > 0:
		return "the map"
	}
	return "silent"
}

// problem is a row of testdata/problems: a field problem and, where no case of this package answers it, the tests of
// other rooms that do ("internal/cpuset TestMask").
type problem struct {
	number, title string
	tests         [][2]string
}

func readProblems(t *testing.T) []problem {
	t.Helper()
	b, err := os.ReadFile("testdata/problems")
	if err != nil {
		t.Fatal(err)
	}
	var out []problem
	for line := range strings.Lines(string(b)) {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		head, tests, _ := strings.Cut(line, "|")
		var p problem
		p.number, p.title, _ = strings.Cut(strings.TrimSpace(head), " ")
		for x := range strings.SplitSeq(tests, ",") {
			if where, name, ok := strings.Cut(strings.TrimSpace(x), " "); ok {
				p.tests = append(p.tests, [2]string{where, name})
			}
		}
		out = append(out, p)
	}
	return out
}

// Each field problem is answered: by cases with a finding or a map and what must be said, or by a test of the room
// whose business it is, which must exist. The table says which.
func TestProblems(t *testing.T) {
	cases := readCases(t)
	all := readProblems(t)
	var b strings.Builder
	fmt.Fprintf(&b, "%-4s %-40s %-34s %s\n", "case", "problem", "expected", "got")
	for _, p := range all {
		answered := false
		for i := range cases {
			c := &cases[i]
			if c.number != p.number {
				continue
			}
			r, wrong := c.verdict(t)
			got := "as expected"
			if wrong != "" {
				var ids []string
				for _, f := range without901(r) {
					ids = append(ids, f.line())
				}
				got = "WRONG: " + cmp.Or(strings.Join(ids, ", "), "silent")
				t.Errorf("problem %s, case %s is answered wrong", p.number, c.name)
			}
			answered = answered || len(c.wants)+len(c.maps)+len(c.says)+len(c.notes) > 0
			fmt.Fprintf(&b, "%-4s %-40.40s %-34.34s %s\n", p.number, c.name, c.answers(), got)
		}
		for _, x := range p.tests {
			answered = true
			got := "there"
			if !hasTest(t, x[0], x[1]) {
				got = "MISSING"
				t.Errorf("problem %s: %s has no %s", p.number, x[0], x[1])
			}
			fmt.Fprintf(&b, "%-4s %-40.40s %-34.34s %s\n", p.number, p.title, x[0]+" "+x[1], got)
		}
		if !answered {
			t.Errorf("problem %s (%s) is answered by nothing", p.number, p.title)
		}
	}
	t.Logf("\n%s", &b)
	for _, c := range cases {
		if !slices.ContainsFunc(all, func(p problem) bool { return p.number == c.number }) && c.number != "-" && !strings.HasPrefix(c.number, "lab-") {
			t.Errorf("case %s is of problem %s, which testdata/problems does not list", c.name, c.number)
		}
	}
}

// hasTest reports whether a package has a test of a name.
func hasTest(t *testing.T, pkg, name string) bool {
	t.Helper()
	files, err := filepath.Glob(filepath.Join("../..", pkg, "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	return slices.ContainsFunc(files, func(f string) bool {
		b, err := os.ReadFile(f)
		return err == nil && bytes.Contains(b, []byte("\nfunc "+name+"(t *testing.T)"))
	})
}

// The list of problems is that of the cases handed to the house.
func TestProblemsAreAll(t *testing.T) {
	names, err := filepath.Glob("../../../shared/cases/problems/*.md")
	if err != nil {
		t.Fatal(err)
	}
	if len(names) == 0 {
		t.Skip("needs ../shared/cases")
	}
	var want, got []string
	for _, name := range names {
		b, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		head, _, _ := strings.Cut(string(b), "\n")
		want = append(want, strings.TrimPrefix(strings.TrimSpace(head), "# "))
	}
	for _, p := range readProblems(t) {
		got = append(got, p.number+" "+p.title)
	}
	slices.Sort(want)
	slices.Sort(got)
	if diff := gocmp.Diff(want, got); diff != "" {
		t.Errorf("testdata/problems (-cases +listed):\n%s", diff)
	}
}

// docs/findings.md is the catalogue, and which case shows which finding.
func TestDocument(t *testing.T) {
	const file = "../../docs/findings.md"
	var b bytes.Buffer
	b.WriteString("# Findings\n\nWhat `rxsteer diagnose` may say; `rxsteer explain RXnnn` prints the same. IDs never change meaning.\nGenerated from `steer/diagnose` (`go test ./steer/diagnose -run TestDocument -update`).\n\n| ID | finding |\n|---|---|\n")
	for _, e := range Catalogue() {
		note := ""
		if !e.Detected {
			note = " (not looked for by this version)"
		}
		fmt.Fprintf(&b, "| [%s](#%s) | %s%s |\n", e.ID, strings.ToLower(string(e.ID)), e.Title, note)
	}
	for _, e := range Catalogue() {
		fmt.Fprintf(&b, "\n## %s\n\n%s.\n\n", e.ID, strings.ToUpper(e.Title[:1])+e.Title[1:])
		for _, part := range []struct{ head, text string }{{"Cause", e.Cause}, {"Evidence", e.Measured}, {"Remedy", e.Do}, {"Verify", e.Verify}} {
			if part.text != "" {
				fmt.Fprintf(&b, "- **%s**: %s\n", part.head, part.text)
			}
		}
		if len(e.Reading) > 0 {
			fmt.Fprintf(&b, "- **Reading** (kernel tree): %s\n", strings.Join(e.Reading, ", "))
		}
	}
	cases := readCases(t)
	b.WriteString("\n## Cases\n\nStates of hosts (`steer/diagnose/testdata/cases`, what people paste; `worlds_test.go`, what is measured live) and what is found in them. Those without a finding are near misses, or are answered by the map of queues.\n\n| case | found | what it shows |\n|---|---|---|\n")
	shown := map[string][]string{}
	near := map[string]int{}
	for _, c := range cases {
		for _, w := range c.wants {
			id, _, _ := strings.Cut(w.line, " ")
			if !slices.Contains(shown[id], c.number) && c.number != "-" {
				shown[id] = append(shown[id], c.number)
			} else if c.number == "-" {
				near[id]++
			}
		}
		fmt.Fprintf(&b, "| %s | %s | %s |\n", c.name, c.answers(), c.about)
	}
	b.WriteString("\nBy finding: the field problems that show it, and how many cases of no field problem do.\n\n| finding | problems | others |\n|---|---|---|\n")
	for _, e := range Catalogue() {
		fmt.Fprintf(&b, "| %s | %s | %d |\n", e.ID, cmp.Or(strings.Join(shown[string(e.ID)], " "), "-"), near[string(e.ID)])
	}
	b.WriteString("\nBy field problem: what must be answered, here or by the room whose business it is.\n\n| problem | | answer |\n|---|---|---|\n")
	for _, p := range readProblems(t) {
		var answers []string
		for _, c := range cases {
			if c.number == p.number && !slices.Contains(answers, c.answers()) {
				answers = append(answers, c.answers())
			}
		}
		for _, x := range p.tests {
			answers = append(answers, fmt.Sprintf("`%s` %s", x[0], x[1]))
		}
		fmt.Fprintf(&b, "| %s | %s | %s |\n", p.number, p.title, strings.Join(answers, "; "))
	}
	if *update {
		if err := os.WriteFile(file, b.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	have, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := gocmp.Diff(string(have), b.String()); diff != "" {
		t.Errorf("%s is not what the catalogue and the cases say; go test ./steer/diagnose -run TestDocument -update (-file +now):\n%s", file, diff)
	}
}

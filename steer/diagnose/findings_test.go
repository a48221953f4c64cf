package diagnose_test

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
	"github.com/rxsteer/rxsteer/internal/host/paste"
	"github.com/rxsteer/rxsteer/steer/diagnose"
)

var update = flag.Bool("update", false, "rewrite docs/findings.md")

// casefile is an archive of testdata/cases: what people paste, and what must be found in it.
//
//	case: 31 a line or more about it
//	want: RX202 info eth0 [RX101] rx_queues=63 text="two words"
//	-- ethtool-x.eth0.txt --
//
// Without a want nothing but RX901 may be found.
type casefile struct {
	name, number, about string
	wants               []want
	files               fstest.MapFS
}

type want struct {
	line     string // ID severity subject [symptoms]
	evidence map[string]string
}

// fields splits at blanks outside quotes and brackets.
var wantField = regexp.MustCompile(`\[[^]]*\]|[^\s="]+="[^"]*"|"[^"]*"|\S+`)

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
		for line := range strings.Lines(string(a.Comment)) {
			line = strings.TrimSpace(line)
			switch {
			case strings.HasPrefix(line, "case: "):
				c.number, c.about, _ = strings.Cut(strings.TrimPrefix(line, "case: "), " ")
			case strings.HasPrefix(line, "want: "):
				f := wantField.FindAllString(strings.TrimPrefix(line, "want: "), -1)
				w := want{evidence: map[string]string{}}
				if len(f) < 3 {
					t.Fatalf("%s: want of %d fields: %s", name, len(f), line)
				}
				symptoms := "[]"
				for _, x := range f[3:] {
					if strings.HasPrefix(x, "[") {
						symptoms = x
						continue
					}
					k, v, ok := strings.Cut(x, "=")
					if !ok {
						t.Fatalf("%s: %s is no evidence", name, x)
					}
					w.evidence[k] = strings.Trim(v, `"`)
				}
				w.line = strings.Join([]string{f[0], f[1], strings.Trim(f[2], `"`), symptoms}, " ")
				c.wants = append(c.wants, w)
			case line != "":
				c.about += " " + line
			}
		}
		if c.number == "" {
			t.Fatalf("%s tells no case", name)
		}
		for _, f := range a.Files {
			c.files[f.Name] = &fstest.MapFile{Data: f.Data}
		}
		out = append(out, c)
	}
	return out
}

// diagnoseFolder is rxsteer diagnose --from.
func diagnoseFolder(t *testing.T, f fs.FS) *diagnose.Report {
	t.Helper()
	h, err := paste.OpenFS(f)
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range h.Notes {
		t.Logf("note: %v", n)
	}
	in := diagnose.Input{Snapshot: h.Snapshot(), NICs: h.NICs(), Topology: h.Topology(), Sample: h.Sample()}
	if w := h.Saved.Windows; len(w) > 0 {
		in.Sample, in.Windows = collector.Merge(w...), w
	}
	for _, e := range h.Events {
		in.Events = append(in.Events, diagnose.Event{Kind: e.Kind, Text: e.Text})
	}
	return diagnose.Diagnose(in)
}

func TestCases(t *testing.T) {
	for _, c := range readCases(t) {
		t.Run(c.name, func(t *testing.T) {
			r := diagnoseFolder(t, c.files)
			var got, wanted []string
			for _, w := range c.wants {
				wanted = append(wanted, w.line)
			}
			for _, f := range r.Findings {
				if f.ID == "RX901" {
					continue
				}
				var symptoms []string
				for _, s := range f.Explains {
					symptoms = append(symptoms, string(s.ID))
				}
				line := fmt.Sprintf("%s %s %s [%s]", f.ID, f.Severity, f.Subject, strings.Join(symptoms, " "))
				got = append(got, line)
				t.Logf("%s: %s", line, f.Summary)
				for _, w := range c.wants {
					if w.line != line {
						continue
					}
					for _, k := range slices.Sorted(maps.Keys(w.evidence)) {
						if is := fmt.Sprint(f.Evidence.Get(k)); is != w.evidence[k] {
							t.Errorf("%s: %s is %s, want %s", f.ID, k, is, w.evidence[k])
						}
					}
				}
			}
			if diff := gocmp.Diff(wanted, got); diff != "" {
				t.Errorf("findings (-want +got):\n%s\nchecked:\n%s", diff, strings.Join(r.Checked, "\n"))
			}
			if len(r.Checked)+len(got)+len(r.Unmeasured) == 0 {
				t.Error("nothing found, and nothing said to be checked")
			}
		})
	}
}

// docs/findings.md is the catalogue, and which case shows which finding.
func TestDocument(t *testing.T) {
	const file = "../../docs/findings.md"
	var b bytes.Buffer
	b.WriteString("# Findings\n\nWhat `rxsteer diagnose` may say; `rxsteer explain RXnnn` prints the same. IDs never change meaning.\nGenerated from `steer/diagnose` (`go test ./steer/diagnose -run TestDocument -update`).\n\n| ID | finding |\n|---|---|\n")
	for _, e := range diagnose.Catalogue() {
		note := ""
		if !e.Detected {
			note = " (not looked for by this version)"
		}
		fmt.Fprintf(&b, "| [%s](#%s) | %s%s |\n", e.ID, strings.ToLower(string(e.ID)), e.Title, note)
	}
	for _, e := range diagnose.Catalogue() {
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
	b.WriteString("\n## Cases\n\nPasted texts in `steer/diagnose/testdata/cases` and what is found in them. Those without a finding are near misses.\n\n| case | finding | what it shows |\n|---|---|---|\n")
	cases := readCases(t)
	slices.SortStableFunc(cases, func(a, b casefile) int { return cmp.Compare(a.name, b.name) })
	shown := map[string][]string{}
	for _, c := range cases {
		var ids []string
		for _, w := range c.wants {
			id, _, _ := strings.Cut(w.line, " ")
			ids = append(ids, id)
			if !slices.Contains(shown[id], c.number) {
				shown[id] = append(shown[id], c.number)
			}
		}
		fmt.Fprintf(&b, "| %s | %s | %s |\n", c.name, cmp.Or(strings.Join(ids, " "), "-"), c.about)
	}
	b.WriteString("\n| finding | cases |\n|---|---|\n")
	for _, e := range diagnose.Catalogue() {
		fmt.Fprintf(&b, "| %s | %s |\n", e.ID, cmp.Or(strings.Join(shown[string(e.ID)], " "), "-"))
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

package diagnose

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/txtar"

	"github.com/rxsteer/rxsteer/internal/host/paste"
)

// Each archive of testdata/pasted is a folder as people paste it, and in its file "want" what is to be
// said: "RX402 warning eth0" per finding without RX901, and after it any of its facts as people read them; "~ text"
// is part of what is said about it, or with no finding of what was checked.
func TestPasted(t *testing.T) {
	files, err := filepath.Glob("testdata/pasted/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatalf("no cases: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) {
			want, r := diagnosePasted(t, file)
			var heads []string
			f := -1 // the finding that facts are of
			findings := without901(r)
			for line := range strings.Lines(want) {
				line = strings.TrimSpace(line)
				if strings.HasPrefix(line, "RX") {
					heads = append(heads, line)
					f++
					continue
				}
				if f >= len(findings) {
					break // told by the comparison of heads
				}
				said := strings.Join(r.Checked, "\n")
				if f >= 0 {
					said = strings.Join(append([]string{findings[f].Summary, findings[f].Remedy}, findings[f].RuledOut...), "\n")
				}
				if text, ok := strings.CutPrefix(line, "~ "); ok {
					if !strings.Contains(said, text) {
						t.Errorf("not said: %q in\n%s", text, said)
					}
					continue
				}
				name, value, _ := strings.Cut(line, " ")
				if got := factText(findings[f], name); got != value {
					t.Errorf("%s of %s is %s, want %s", name, findings[f].ID, got, value)
				}
			}
			var got []string
			for _, x := range findings {
				got = append(got, fmt.Sprintf("%s %s %s", x.ID, x.Severity, x.Subject))
				if x.Remedy == "" || len(x.Evidence) == 0 {
					t.Errorf("%s has no remedy or no evidence", x.ID)
				}
			}
			if diff := cmp.Diff(heads, got); diff != "" {
				t.Errorf("findings (-want +got):\n%s%s\nchecked:\n%s", diff, summaries(findings), strings.Join(r.Checked, "\n"))
			}
		})
	}
}

// diagnosePasted diagnoses an archive and returns its file "want".
func diagnosePasted(t *testing.T, file string) (want string, r *Report) {
	t.Helper()
	a, err := txtar.ParseFile(file)
	if err != nil {
		t.Fatal(err)
	}
	folder := fstest.MapFS{}
	for _, f := range a.Files {
		if f.Name == "want" {
			want = string(f.Data)
			continue
		}
		folder[f.Name] = &fstest.MapFile{Data: f.Data}
	}
	h, err := paste.OpenFS(folder)
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range h.Notes {
		t.Errorf("not understood: %v", n)
	}
	return want, Diagnose(Input{Snapshot: h.Snapshot(), NICs: h.NICs(), Topology: h.Topology(), Sample: h.Sample()})
}

func without901(r *Report) []Finding {
	var out []Finding
	for _, f := range r.Findings {
		if f.ID != "RX901" {
			out = append(out, f)
		}
	}
	return out
}

func factText(f Finding, name string) string {
	for _, e := range f.Evidence {
		if e.Name == name {
			return strings.TrimSuffix(e.Text(), "/s")
		}
	}
	return "not among the evidence"
}

func summaries(findings []Finding) string {
	var b strings.Builder
	for _, f := range findings {
		fmt.Fprintf(&b, "%s: %s\n", f.ID, f.Summary)
	}
	return b.String()
}

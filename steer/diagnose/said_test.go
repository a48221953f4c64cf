package diagnose

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/rogpeppe/go-internal/txtar"
)

// Cases of testdata/cases may say more of what is found than IDs and raw evidence, in a file "said": after
// the line of a finding its facts as people read them, and "~ text" that is part of what is said about it or,
// before any finding, of what was checked.
func TestCasesSay(t *testing.T) {
	files, err := filepath.Glob("testdata/cases/*.txtar")
	if err != nil {
		t.Fatal(err)
	}
	told := 0
	for _, file := range files {
		a, err := txtar.ParseFile(file)
		if err != nil {
			t.Fatal(err)
		}
		folder, want := fstest.MapFS{}, ""
		for _, f := range a.Files {
			if f.Name == "said" {
				want = string(f.Data)
			}
			folder[f.Name] = &fstest.MapFile{Data: f.Data}
		}
		if want == "" {
			continue
		}
		told++
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) {
			c := casefile{files: folder}
			in, notes := c.input(t)
			for _, n := range notes {
				t.Errorf("not understood: %v", n)
			}
			r := Diagnose(in)
			said, of := strings.Join(r.Checked, "\n"), Finding{}
			for line := range strings.Lines(want) {
				line = strings.TrimSpace(line)
				if strings.HasPrefix(line, "RX") {
					of = Finding{}
					for _, f := range without901(r) {
						if fmt.Sprintf("%s %s %s", f.ID, f.Severity, f.Subject) == line {
							of = f
						}
					}
					if of.ID == "" {
						t.Fatalf("not found: %s", line)
					}
					said = strings.Join(append([]string{of.Summary, of.Remedy}, of.RuledOut...), "\n")
					continue
				}
				if text, ok := strings.CutPrefix(line, "~ "); ok {
					if !strings.Contains(said, text) {
						t.Errorf("not said: %q in\n%s", text, said)
					}
					continue
				}
				name, value, _ := strings.Cut(line, " ")
				if got := factText(of, name); got != value {
					t.Errorf("%s of %s is %s, want %s", name, of.ID, got, value)
				}
			}
		})
	}
	if told == 0 {
		t.Error("no case says anything")
	}
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

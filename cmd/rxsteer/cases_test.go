package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/txtar"
)

// The program itself answers each pasted case of steer/diagnose as the package does: same findings, the exit
// status that goes with them, and a text that fits 80 columns.
func TestDiagnoseCases(t *testing.T) {
	files, err := filepath.Glob("../../steer/diagnose/testdata/cases/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatalf("no cases: %v", err)
	}
	want := regexp.MustCompile(`(?m)^want: (RX\d+) (\w+) ("[^"]*"|\S+)`)
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) {
			a, err := txtar.ParseFile(file)
			if err != nil {
				t.Fatal(err)
			}
			dir, baseline := t.TempDir(), ""
			for _, f := range a.Files {
				name := filepath.Join(dir, "now", f.Name)
				if old, ok := strings.CutPrefix(f.Name, "baseline/"); ok {
					baseline = filepath.Join(dir, "was")
					name = filepath.Join(baseline, old)
				}
				if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(name, f.Data, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			args := []string{"diagnose", "--from", filepath.Join(dir, "now")}
			if baseline != "" {
				args = append(args, "--baseline", baseline)
			}
			var wanted []string
			code := exitOK
			for _, m := range want.FindAllStringSubmatch(string(a.Comment), -1) {
				wanted = append(wanted, m[1]+" "+m[2]+" "+strings.Trim(m[3], `"`))
				if m[2] != "info" {
					code = exitFindings
				}
			}
			e, out, stderr := testEnv(append(args, "-o", "json")...)
			if got := run(t.Context(), e); got != code {
				t.Errorf("exit %d, want %d: %s", got, code, stderr)
			}
			var r struct {
				Findings []struct{ ID, Severity, Subject string }
			}
			if err := json.Unmarshal(out.Bytes(), &r); err != nil {
				t.Fatalf("%v: %s", err, out)
			}
			var got []string
			for _, f := range r.Findings {
				if f.ID != "RX901" {
					got = append(got, f.ID+" "+f.Severity+" "+f.Subject)
				}
			}
			slices.Sort(got)
			slices.Sort(wanted)
			if diff := cmp.Diff(wanted, got); diff != "" {
				t.Errorf("findings (-want +got):\n%s", diff)
			}
			e, out, _ = testEnv(args...)
			e.width = 80
			run(t.Context(), e)
			for line := range strings.Lines(out.String()) {
				if n := len([]rune(strings.TrimRight(line, "\n"))); n > 80 && strings.Contains(strings.TrimSpace(line), " ") && !strings.HasPrefix(line, "Read from") {
					t.Errorf("%d columns: %s", n, line)
				}
			}
		})
	}
}

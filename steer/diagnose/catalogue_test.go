package diagnose

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// Every ID that the code can report is in the catalogue and in the list of rules, and the reverse.
func TestCatalogueKnowsWhatIsReported(t *testing.T) {
	reported := map[ID]bool{}
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") || strings.HasPrefix(name, "catalogue") {
			continue
		}
		src, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range regexp.MustCompile(`(Symptom\{)?(?:\bID:\s+|finding\()"(RX\d{3})"`).FindAllSubmatch(src, -1) {
			if len(m[1]) == 0 {
				reported[ID(m[2])] = true
			}
		}
	}
	var last ID
	for _, e := range Catalogue() {
		if e.Detected != reported[e.ID] {
			t.Errorf("%s: detected %v, reported by the code %v (is the ID in the list of rules?)", e.ID, e.Detected, reported[e.ID])
		}
		if e.ID <= last || !regexp.MustCompile(`^RX[1-9]\d\d$`).MatchString(string(e.ID)) {
			t.Errorf("%s after %s: want ascending RXnnn", e.ID, last)
		}
		last = e.ID
		for field, text := range map[string]string{"title": e.Title, "cause": e.Cause, "measured": e.Measured, "do": e.Do} {
			if text == "" {
				t.Errorf("%s has no %s", e.ID, field)
			}
		}
		if e.Detected && (e.Verify == "" || e.ID != "RX901" && len(e.Reading) == 0) {
			t.Errorf("%s is detected and does not say how to verify or what to read", e.ID)
		}
		delete(reported, e.ID)
	}
	if len(reported) > 0 {
		t.Errorf("reported but not in the catalogue: %v", reported)
	}
	if e, ok := Explain("RX303"); !ok || e.ID != "RX303" {
		t.Errorf("explain RX303: %+v, %v", e, ok)
	}
	if _, ok := Explain("RX000"); ok {
		t.Error("RX000 is explained")
	}
	c := Catalogue()
	c[0].ID = "changed"
	if slices.ContainsFunc(Catalogue(), func(e Entry) bool { return e.ID == "changed" }) {
		t.Error("a caller can change the catalogue")
	}
}

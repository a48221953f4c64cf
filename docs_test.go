package house_test

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"
)

// TestIndexOfDocuments: docs/README.md leads to every document, and no document leads nowhere.
func TestIndexOfDocuments(t *testing.T) {
	files, err := filepath.Glob("docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	link := regexp.MustCompile(`\]\(([^)#:]+)(#[^)]*)?\)`)
	for _, file := range append(files, "README.md") {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		linked := map[string]bool{}
		for _, m := range link.FindAllStringSubmatch(string(text), -1) {
			to := filepath.Join(filepath.Dir(file), m[1])
			linked[to] = true
			if _, err := os.Stat(to); err != nil {
				t.Errorf("%s leads to %s: %v", file, m[1], err)
			}
		}
		if file != "docs/README.md" {
			continue
		}
		for _, f := range files {
			if f != file && !linked[f] {
				t.Errorf("docs/README.md does not lead to %s", f)
			}
		}
	}
}

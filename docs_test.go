package house_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestMakeTargetsInDocuments: what a document tells to make is a target.
func TestMakeTargetsInDocuments(t *testing.T) {
	makefile, err := os.ReadFile("Makefile")
	if err != nil {
		t.Fatal(err)
	}
	targets := map[string]bool{}
	for _, m := range regexp.MustCompile(`(?m)^([a-z][a-z -]*):`).FindAllStringSubmatch(string(makefile), -1) {
		for _, name := range strings.Fields(m[1]) {
			targets[name] = true
		}
	}
	scenario := regexp.MustCompile("^lab-([a-z0-9-]+)$")
	files, err := filepath.Glob("docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	said := 0
	for _, file := range append(files, "README.md", "CONTRIBUTING.md", "lab/README.md", "deploy/README.md") {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range regexp.MustCompile("(?m)(?:`|^    )make ([a-z][a-z0-9-]+)").FindAllStringSubmatch(string(text), -1) {
			said++
			if s := scenario.FindStringSubmatch(m[1]); s != nil && !targets[m[1]] {
				if _, err := os.Stat(filepath.Join("lab", "scenarios", s[1]+".yaml")); err != nil {
					t.Errorf("%s: make %s: no such scenario", file, m[1])
				}
			} else if !targets[m[1]] {
				t.Errorf("%s: make %s: no such target", file, m[1])
			}
		}
	}
	if said < 10 {
		t.Errorf("%d targets read: the reading is broken", said)
	}
}

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

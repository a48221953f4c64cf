package main

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"testing"
)

func TestTracepointsAreOfThePrograms(t *testing.T) {
	files, err := filepath.Glob("../../../bpf/*.bpf.c")
	if err != nil || len(files) == 0 {
		t.Fatalf("%d files, %v", len(files), err)
	}
	var used []string
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range regexp.MustCompile(`(?m)^SEC\("tp_btf/(\w+)"\)`).FindAllSubmatch(text, -1) {
			used = append(used, string(m[1]))
		}
	}
	for _, name := range tracepoints {
		if !slices.Contains(used, name) {
			t.Errorf("no program of package bpf uses %s: they use %q", name, used)
		}
	}
}

// Package house_test holds the rules of the house: which room may import which,
// and what only tests and the lab may do. See ARCHITECTURE.md.
package house_test

import (
	"errors"
	"go/build"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/rxsteer/rxsteer"

type pkg struct {
	ImportPath string
	Imports    []string
}

// packages reads the module's packages with their direct imports, without those of tests.
func packages(t *testing.T) []pkg {
	t.Helper()
	var all []pkg
	err := filepath.WalkDir(".", func(dir string, d fs.DirEntry, err error) error {
		if err != nil || !d.IsDir() {
			return err
		}
		if name := d.Name(); name != "." && (name[0] == '.' || name[0] == '_' || name == "testdata") {
			return filepath.SkipDir
		}
		p, err := build.ImportDir(dir, 0)
		var none *build.NoGoError
		if errors.As(err, &none) {
			return nil
		}
		if err != nil {
			return err
		}
		all = append(all, pkg{path.Join(module, filepath.ToSlash(dir)), p.Imports})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(all) < 10 {
		t.Fatalf("found %d packages, the walk is broken", len(all))
	}
	return all
}

// below reports whether a package lies in a room ("steer" holds "steer/plan").
func below(importPath, room string) bool {
	p := strings.TrimPrefix(importPath, module+"/")
	return p != importPath && (p == room || strings.HasPrefix(p, room+"/"))
}

// mayImport is the one-way rule: a room may import only the rooms listed and
// itself. cmd and lab wire things together and may import all.
var mayImport = map[string][]string{
	"bpf":       {"internal"},
	"collector": {"bpf", "internal"},
	"steer":     {"collector", "internal"},
	"exporter":  {"steer", "collector", "internal"},
	"internal":  {"internal"},
}

// Bundles become samples, so the reader of pasted texts knows the measured type.
var exceptions = map[string][]string{
	module + "/internal/host/paste": {module + "/collector"},
}

func TestRoomsDependOneWay(t *testing.T) {
	for _, p := range packages(t) {
		for room, allowed := range mayImport {
			if !below(p.ImportPath, room) {
				continue
			}
			for _, imp := range p.Imports {
				if !strings.HasPrefix(imp, module) || slices.Contains(exceptions[p.ImportPath], imp) {
					continue
				}
				if !slices.ContainsFunc(append(allowed, room), func(r string) bool { return below(imp, r) }) {
					t.Errorf("%s imports %s: %s may import only %v", p.ImportPath, imp, room, allowed)
				}
			}
		}
	}
}

// TestOnlyTheBoundaryTouchesTheKernel: netlink, BPF and raw system calls stay in
// bpf, internal/{ethtool,netdev} and internal/host.
func TestOnlyTheBoundaryTouchesTheKernel(t *testing.T) {
	guarded := []string{"github.com/cilium/ebpf", "github.com/mdlayher/netlink", "github.com/mdlayher/genetlink", "github.com/mdlayher/ethtool"}
	boundary := []string{"bpf", "internal/ethtool", "internal/netdev", "internal/sockdiag", "internal/host", "internal/testnet", "lab"}
	for _, p := range packages(t) {
		if slices.ContainsFunc(boundary, func(r string) bool { return below(p.ImportPath, r) }) {
			continue
		}
		for _, imp := range p.Imports {
			for _, g := range guarded {
				if imp == g || strings.HasPrefix(imp, g+"/") {
					t.Errorf("%s imports %s: only %v may", p.ImportPath, imp, boundary)
				}
			}
		}
	}
}

// TestNoShellingOut: other programs give no error codes and their formats drift. The one exception is
// the command that a user hands to rxsteer trial to make load: it is run because they asked for it, not
// for anything it says.
func TestNoShellingOut(t *testing.T) {
	const trial = "cmd/rxsteer/load.go"
	for _, p := range packages(t) {
		if below(p.ImportPath, "lab") || below(p.ImportPath, "internal/testnet") || !slices.Contains(p.Imports, "os/exec") {
			continue
		}
		dir := strings.TrimPrefix(p.ImportPath, module+"/")
		files, err := filepath.Glob(filepath.Join(dir, "*.go"))
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range files {
			text, err := os.ReadFile(f)
			if err != nil {
				t.Fatal(err)
			}
			if !strings.HasSuffix(f, "_test.go") && filepath.ToSlash(f) != trial && strings.Contains(string(text), `"os/exec"`) {
				t.Errorf("%s imports os/exec: only tests, the lab and %s may", f, trial)
			}
		}
	}
}

func TestPackageNamesAreNouns(t *testing.T) {
	banned := []string{"util", "utils", "common", "helper", "helpers", "manager", "misc", "shared"}
	for _, p := range packages(t) {
		if slices.Contains(banned, path.Base(p.ImportPath)) {
			t.Errorf("%s: say what it holds", p.ImportPath)
		}
	}
}

// TestSafetyNamesTests: every promise of docs/safety.md is held by tests that exist.
func TestSafetyNamesTests(t *testing.T) {
	text, err := os.ReadFile("docs/safety.md")
	if err != nil {
		t.Fatal(err)
	}
	name := regexp.MustCompile("`([a-z/]+): (Test[A-Za-z0-9]+)`")
	promises := 0
	never, _, _ := strings.Cut(string(text), "\n## ")
	for line := range strings.Lines(never) {
		if !strings.HasPrefix(line, "| ") || strings.HasPrefix(line, "| never") {
			continue
		}
		promises++
		named := name.FindAllStringSubmatch(line, -1)
		if len(named) == 0 {
			t.Errorf("no test holds: %s", strings.TrimSpace(line))
		}
		for _, n := range named {
			files, err := filepath.Glob(filepath.Join(filepath.FromSlash(n[1]), "*_test.go"))
			if err != nil {
				t.Fatal(err)
			}
			if !slices.ContainsFunc(files, func(f string) bool {
				text, err := os.ReadFile(f)
				return err == nil && strings.Contains(string(text), "\nfunc "+n[2]+"(t *testing.T)")
			}) {
				t.Errorf("docs/safety.md names %s of %s, which does not exist", n[2], n[1])
			}
		}
	}
	if promises < 15 {
		t.Errorf("%d promises read: the reading is broken", promises)
	}
}

// The planner reads a finding's numbers by name, and a name that diagnosis no longer gives reads as nothing.
func TestPlanReadsFactsThatDiagnoseGives(t *testing.T) {
	source := func(room string) string {
		files, err := filepath.Glob(filepath.Join(room, "*.go"))
		if err != nil {
			t.Fatal(err)
		}
		var all strings.Builder
		for _, f := range files {
			if strings.HasSuffix(f, "_test.go") {
				continue
			}
			b, err := os.ReadFile(f)
			if err != nil {
				t.Fatal(err)
			}
			all.Write(b)
		}
		return all.String()
	}
	given := source("steer/diagnose")
	reads := regexp.MustCompile(`(?:fact\(f, |Evidence\.Get\()"([a-z0-9_]+)"`).FindAllStringSubmatch(source("steer/plan"), -1)
	if len(reads) < 20 {
		t.Fatalf("found %d facts that the planner reads, the search is broken", len(reads))
	}
	for _, r := range reads {
		events := strings.TrimSuffix(r[1], "_per_s")
		if !strings.Contains(given, `{"`+r[1]+`"`) && !strings.Contains(given, `howOften("`+events+`"`) {
			t.Errorf("steer/plan reads the fact %q, which steer/diagnose does not give", r[1])
		}
	}
}

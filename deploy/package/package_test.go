package main

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/CycloneDX/cyclonedx-go"
)

// build links rxsteer and what is made from it into a new folder, as make package does.
func build(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	run := func(command ...string) []byte {
		c := exec.CommandContext(t.Context(), command[0], command[1:]...)
		c.Env = append(os.Environ(), "CGO_ENABLED=0")
		c.Dir = "../.."
		var stderr bytes.Buffer
		c.Stderr = &stderr
		out, err := c.Output()
		if err != nil {
			t.Fatalf("%s: %v\n%s", strings.Join(command, " "), err, &stderr)
		}
		return out
	}
	rxsteer := filepath.Join(dir, "rxsteer-"+runtime.GOARCH)
	run("go", "build", "-trimpath", "-ldflags", "-s -w -X main.version=v1.2.3 -X main.commit=0123456789abcdef", "-o", rxsteer, "./cmd/rxsteer")
	for _, d := range []string{"man", "completion"} {
		if err := os.Mkdir(filepath.Join(dir, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if v := string(run(rxsteer, "version")); !strings.HasPrefix(v, "rxsteer v1.2.3 (commit 0123456789ab, go") {
		t.Errorf("version %s", v)
	}
	run(rxsteer, "man", "-w", filepath.Join(dir, "man"))
	for _, shell := range []string{"bash", "zsh", "fish"} {
		if err := os.WriteFile(filepath.Join(dir, "completion", shell), run(rxsteer, "completion", shell), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestPackagesAreReproducible(t *testing.T) {
	at := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	var runs [2]map[string][]byte
	var first *input
	for i := range runs {
		in := &input{repo: "../..", built: build(t), out: t.TempDir(), arch: runtime.GOARCH, version: "v1.2.3", time: at}
		names, err := in.write()
		if err != nil {
			t.Fatal(err)
		}
		runs[i] = map[string][]byte{}
		for _, n := range names {
			if runs[i][filepath.Base(n)], err = os.ReadFile(n); err != nil {
				t.Fatal(err)
			}
		}
		if i == 0 {
			first = in
			// Two packages of different seconds, built in different folders.
			time.Sleep(1100 * time.Millisecond)
		}
	}
	if len(runs[0]) != 3 {
		t.Fatalf("made %d files, want a deb, an rpm and a bill of materials", len(runs[0]))
	}
	for name, b := range runs[0] {
		if !bytes.Equal(b, runs[1][name]) {
			t.Errorf("%s: a second build has other bytes", name)
		}
	}
	t.Run("bill of materials", func(t *testing.T) { checkBill(t, runs[0]["rxsteer-1.2.3-"+runtime.GOARCH+".cdx.json"]) })
	t.Run("rpm", func(t *testing.T) {
		names, err := filepath.Glob(filepath.Join(first.out, "*.rpm"))
		if err != nil || len(names) != 1 {
			t.Fatalf("%v %v", names, err)
		}
		checkRPM(t, names[0])
	})
	t.Run("deb", func(t *testing.T) { checkDeb(t, filepath.Join(first.out, "rxsteer_1.2.3_"+runtime.GOARCH+".deb")) })
}

func checkBill(t *testing.T, text []byte) {
	var bom cyclonedx.BOM
	if err := cyclonedx.NewBOMDecoder(bytes.NewReader(text), cyclonedx.BOMFileFormatJSON).Decode(&bom); err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	want := map[string]bool{"std": false, "github.com/cilium/ebpf": false, "github.com/spf13/cobra": false}
	for _, c := range *bom.Components {
		if _, ok := want[c.Name]; ok {
			want[c.Name] = true
		}
		if c.Version == "" || !strings.HasPrefix(c.PackageURL, "pkg:golang/") {
			t.Errorf("a part without a version or address: %+v", c)
		}
	}
	for name, there := range want {
		if !there {
			t.Errorf("%s is linked and not in the bill", name)
		}
	}
	if !json.Valid(text) || bom.Metadata.Component.Version != "v1.2.3" {
		t.Errorf("metadata %+v", bom.Metadata)
	}
}

func checkDeb(t *testing.T, file string) {
	dpkg, err := exec.LookPath("dpkg-deb")
	if err != nil {
		t.Skip("needs dpkg-deb (Debian: dpkg)")
	}
	list, err := exec.CommandContext(t.Context(), dpkg, "-c", file).Output()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range []string{"./usr/bin/rxsteer", "./etc/rxsteer/rxsteer.yaml", "./usr/lib/systemd/system/rxsteer-agent.service", "./usr/lib/systemd/system/rxsteer-agent.socket",
		"./usr/share/rxsteer/systemd/steer.conf", "./usr/share/man/man1/rxsteer-agent.1.gz", "./usr/share/bash-completion/completions/rxsteer", "./usr/share/doc/rxsteer/sbom.cdx.json"} {
		if !strings.Contains(string(list), " "+f+"\n") {
			t.Errorf("%s is not in the package", f)
		}
	}
	for line := range strings.Lines(string(list)) {
		if !strings.Contains(line, " root/root ") || !strings.Contains(line, " 2026-03-01 ") {
			t.Errorf("not root's, or not of the given time: %s", line)
		}
	}
}

// checkRPM installs the package into an empty root, where nothing of it is missing or other than it says, and takes it out.
func checkRPM(t *testing.T, file string) {
	rpm, err := exec.LookPath("rpm")
	if err != nil {
		t.Skip("needs rpm (Debian: rpm)")
	}
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
	root := t.TempDir()
	run := func(args ...string) {
		t.Helper()
		if out, err := exec.CommandContext(t.Context(), rpm, append([]string{"--root", root}, args...)...).CombinedOutput(); err != nil {
			t.Fatalf("rpm %s: %v\n%s", strings.Join(args, " "), err, out)
		}
	}
	run("--initdb")
	run("-i", "--nodeps", "--noscripts", file) // scripts need a shell in there
	run("-V", "--nodeps", "rxsteer")
	out, err := exec.CommandContext(t.Context(), filepath.Join(root, "usr/bin/rxsteer"), "version").Output()
	if err != nil || !strings.HasPrefix(string(out), "rxsteer v1.2.3 ") {
		t.Errorf("installed: %s %v", out, err)
	}
	run("-e", "--noscripts", "rxsteer")
	for _, d := range []string{"etc/rxsteer", "usr/bin/rxsteer", "usr/share/rxsteer", "usr/share/doc/rxsteer"} {
		if _, err := os.Lstat(filepath.Join(root, d)); !os.IsNotExist(err) {
			t.Errorf("removed, and /%s is left (%v)", d, err)
		}
	}
}

func TestPackageVersion(t *testing.T) {
	at := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	for in, want := range map[string]string{
		"v1.2.3":            "1.2.3",
		"v1.2.3-4-gabcdef0": "1.2.3.4.gabcdef0",
		"32cd785":           "0.0.0~git20260301120000.32cd785",
		"32cd785-dirty":     "0.0.0~git20260301120000.32cd785.dirty",
		"unknown":           "0.0.0~git20260301120000.unknown",
	} {
		if got := packageVersion(in, at); got != want {
			t.Errorf("%s: %s, want %s", in, got, want)
		}
	}
}

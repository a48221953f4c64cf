// Command package makes the deb and the rpm of rxsteer, and the bill of what is in its binary, from files that make
// has built. The same files, version and time give the same bytes.
package main

import (
	"bytes"
	"compress/gzip"
	"debug/buildinfo"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/CycloneDX/cyclonedx-go"
	"github.com/goreleaser/nfpm/v2"
	_ "github.com/goreleaser/nfpm/v2/deb"
	"github.com/goreleaser/nfpm/v2/files"
	_ "github.com/goreleaser/nfpm/v2/rpm"
)

// input is what a package is made from.
type input struct {
	repo    string // the sources
	built   string // rxsteer-ARCH, man/*.1, completion/{bash,zsh,fish}
	out     string
	arch    string // GOARCH
	version string
	time    time.Time
}

func main() {
	var in input
	flag.StringVar(&in.repo, "repo", "..", "the sources")
	flag.StringVar(&in.built, "built", "", "folder with rxsteer-ARCH, man/ and completion/")
	flag.StringVar(&in.out, "w", "", "write to this folder")
	flag.StringVar(&in.arch, "arch", "amd64", "GOARCH of the binary")
	flag.StringVar(&in.version, "version", "", "as git describe says it")
	epoch := flag.Int64("epoch", 0, "time of everything in the packages, in Unix seconds (SOURCE_DATE_EPOCH)")
	flag.Parse()
	in.time = time.Unix(*epoch, 0).UTC()
	names, err := in.write()
	for _, n := range names {
		fmt.Println("wrote " + n)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "package:", err)
		os.Exit(1)
	}
}

var release = regexp.MustCompile(`^v?[0-9]+\.[0-9]+\.[0-9]+`)

// packageVersion is a version that deb and rpm order: one that is no release comes before each release, by its time.
func packageVersion(version string, at time.Time) string {
	version = strings.TrimPrefix(version, "v")
	if !release.MatchString(version) {
		version = "0.0.0~git" + at.Format("20060102150405") + "." + version
	}
	return strings.ReplaceAll(version, "-", ".")
}

// write makes the packages and the bill, and returns their files.
func (in *input) write() (names []string, err error) {
	if in.version == "" || in.built == "" || in.out == "" {
		return nil, errors.New("-version, -built and -w must be given")
	}
	bill, err := in.bill()
	if err != nil {
		return nil, err
	}
	name := filepath.Join(in.out, fmt.Sprintf("rxsteer-%s-%s.cdx.json", packageVersion(in.version, in.time), in.arch))
	if err := os.WriteFile(name, bill, 0o644); err != nil {
		return nil, fmt.Errorf("write bill of materials: %w", err)
	}
	names = append(names, name)
	for _, format := range []string{"deb", "rpm"} {
		name, err := in.packed(format, name)
		if err != nil {
			return names, fmt.Errorf("make %s: %w", format, err)
		}
		names = append(names, name)
	}
	return names, nil
}

func (in *input) binary() string { return filepath.Join(in.built, "rxsteer-"+in.arch) }

// bill is the CycloneDX list of the modules that the linker put into the binary.
func (in *input) bill() ([]byte, error) {
	info, err := buildinfo.ReadFile(in.binary())
	if err != nil {
		return nil, fmt.Errorf("read what the binary is made of: %w", err)
	}
	purl := func(path, version string) string { return "pkg:golang/" + path + "@" + version }
	root := purl(info.Main.Path, in.version)
	parts := []cyclonedx.Component{{Type: cyclonedx.ComponentTypeLibrary, Name: "std", Version: info.GoVersion,
		BOMRef: purl("std", info.GoVersion), PackageURL: purl("std", info.GoVersion)}}
	for _, m := range info.Deps {
		if m.Replace != nil {
			m = m.Replace
		}
		parts = append(parts, cyclonedx.Component{Type: cyclonedx.ComponentTypeLibrary, Name: m.Path, Version: m.Version,
			BOMRef: purl(m.Path, m.Version), PackageURL: purl(m.Path, m.Version)})
	}
	var refs []string
	for _, p := range parts {
		refs = append(refs, p.BOMRef)
	}
	bom := cyclonedx.NewBOM()
	bom.Metadata = &cyclonedx.Metadata{
		Timestamp: in.time.Format(time.RFC3339),
		Component: &cyclonedx.Component{Type: cyclonedx.ComponentTypeApplication, Name: "rxsteer", Version: in.version, BOMRef: root, PackageURL: root,
			Licenses: &cyclonedx.Licenses{{Expression: "Apache-2.0 AND (GPL-2.0-only OR BSD-2-Clause)"}}},
	}
	bom.Components = &parts
	bom.Dependencies = &[]cyclonedx.Dependency{{Ref: root, Dependencies: &refs}}
	var out bytes.Buffer
	if err := cyclonedx.NewBOMEncoder(&out, cyclonedx.BOMFileFormatJSON).SetPretty(true).Encode(bom); err != nil {
		return nil, fmt.Errorf("write bill of materials: %w", err)
	}
	return out.Bytes(), nil
}

const description = `Finds where a host's receive path loses time, and fixes it
rxsteer finds the queue, interrupt, CPU or flow on which the receive path loses time, says why, and changes what is set as a
transaction: measured, explained, verified, undone if worse. The agent serves Prometheus and, as installed, changes nothing.`

// packed makes one package.
func (in *input) packed(format, bill string) (string, error) {
	temp, err := os.MkdirTemp("", "rxsteer-package")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(temp)
	var contents files.Contents
	add := func(source, destination, kind string, mode os.FileMode) {
		contents = append(contents, &files.Content{Source: source, Destination: destination, Type: kind,
			FileInfo: &files.ContentFileInfo{Mode: mode, MTime: in.time}})
	}
	deploy := func(name string) string { return filepath.Join(in.repo, "deploy", name) }
	for _, d := range []string{"/etc/rxsteer", "/usr/share/rxsteer", "/usr/share/rxsteer/systemd", "/usr/share/doc/rxsteer"} {
		add("", d, files.TypeDir, 0o755) // an rpm takes away only folders that are its own
	}
	add(in.binary(), "/usr/bin/rxsteer", "", 0o755)
	add(deploy("rxsteer.minimal.yaml"), "/etc/rxsteer/rxsteer.yaml", files.TypeConfigNoReplace, 0o644)
	for _, u := range []string{"rxsteer-agent.service", "rxsteer-agent.socket"} {
		add(deploy("systemd/"+u), "/usr/lib/systemd/system/"+u, "", 0o644)
	}
	for _, d := range []string{"steer.conf", "profile.conf"} {
		add(deploy("systemd/"+d), "/usr/share/rxsteer/systemd/"+d, "", 0o644)
	}
	add(filepath.Join(in.built, "completion/bash"), "/usr/share/bash-completion/completions/rxsteer", "", 0o644)
	zsh := "/usr/share/zsh/vendor-completions/_rxsteer"
	if format == "rpm" {
		zsh = "/usr/share/zsh/site-functions/_rxsteer"
	}
	add(filepath.Join(in.built, "completion/zsh"), zsh, "", 0o644)
	add(filepath.Join(in.built, "completion/fish"), "/usr/share/fish/vendor_completions.d/rxsteer.fish", "", 0o644)
	pages, err := filepath.Glob(filepath.Join(in.built, "man", "*.1"))
	if err != nil || len(pages) == 0 {
		return "", errors.Join(err, fmt.Errorf("no manual pages in %s", in.built))
	}
	slices.Sort(pages)
	for _, p := range pages {
		zipped := filepath.Join(temp, filepath.Base(p)+".gz")
		if err := zip(p, zipped); err != nil {
			return "", err
		}
		add(zipped, "/usr/share/man/man1/"+filepath.Base(zipped), "", 0o644)
	}
	add(filepath.Join(in.repo, "LICENSE"), "/usr/share/doc/rxsteer/copyright", "", 0o644)
	add(filepath.Join(in.repo, "CHANGELOG.md"), "/usr/share/doc/rxsteer/CHANGELOG.md", "", 0o644)
	add(bill, "/usr/share/doc/rxsteer/sbom.cdx.json", "", 0o644)
	script := func(name string) string { return deploy("package/scripts/" + name + ".sh") }
	info := nfpm.WithDefaults(&nfpm.Info{
		Name: "rxsteer", Arch: in.arch, Version: packageVersion(in.version, in.time), VersionSchema: "none", Section: "net", Priority: "optional",
		Maintainer: "rxsteer <rxsteer@localhost>", Vendor: "rxsteer", License: "Apache-2.0", Description: description, DisableGlobbing: true, MTime: in.time,
		Overridables: nfpm.Overridables{
			Contents: contents,
			Scripts:  nfpm.Scripts{PostInstall: script("postinst"), PreRemove: script("prerm"), PostRemove: script("postrm")},
			RPM:      nfpm.RPM{BuildHost: "localhost", Summary: strings.SplitN(description, "\n", 2)[0], Group: "System Environment/Daemons"},
		},
	})
	if err := nfpm.PrepareForPackager(info, format); err != nil {
		return "", err
	}
	p, err := nfpm.Get(format)
	if err != nil {
		return "", err
	}
	name := filepath.Join(in.out, p.ConventionalFileName(info))
	f, err := os.Create(name)
	if err != nil {
		return "", err
	}
	return name, errors.Join(p.Package(info, f), f.Close())
}

// zip compresses a file without a name or time in it.
func zip(from, to string) error {
	text, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	var b bytes.Buffer
	z, err := gzip.NewWriterLevel(&b, gzip.BestCompression)
	if err != nil {
		return err
	}
	if _, err := z.Write(text); err != nil {
		return err
	}
	return errors.Join(z.Close(), os.WriteFile(to, b.Bytes(), 0o644))
}

package qemu

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// source is where packages of one suite come from, and the key that signs it.
type source struct {
	uri      string
	suite    string
	signedBy string // "" for apt's own trust
}

// parseSources reads apt sources, deb822 stanzas (sources.list(5)) or one-line
// entries, and returns those with packages of component main.
func parseSources(text string) []source {
	var out []source
	for stanza := range strings.SplitSeq(text, "\n\n") {
		f := map[string]string{}
		for line := range strings.Lines(stanza) {
			line = strings.TrimSpace(line)
			if rest, ok := strings.CutPrefix(line, "deb "); ok {
				out = append(out, parseOneLine(rest)...)
				continue
			}
			if strings.HasPrefix(line, "#") {
				continue
			}
			if k, v, ok := strings.Cut(line, ":"); ok {
				f[strings.ToLower(k)] = strings.TrimSpace(v)
			}
		}
		if !slices.Contains(strings.Fields(f["types"]), "deb") || !slices.Contains(strings.Fields(f["components"]), "main") || f["enabled"] == "no" {
			continue
		}
		for _, uri := range strings.Fields(f["uris"]) {
			for _, suite := range strings.Fields(f["suites"]) {
				out = append(out, source{uri, suite, f["signed-by"]})
			}
		}
	}
	return out
}

// parseOneLine reads what follows "deb ": [options] uri suite components….
func parseOneLine(s string) []source {
	var signed string
	if rest, ok := strings.CutPrefix(s, "["); ok {
		options, after, ok := strings.Cut(rest, "]")
		if !ok {
			return nil
		}
		for o := range strings.FieldsSeq(options) {
			if v, ok := strings.CutPrefix(o, "signed-by="); ok {
				signed = v
			}
		}
		s = after
	}
	f := strings.Fields(s)
	if len(f) < 3 || !slices.Contains(f[2:], "main") {
		return nil
	}
	return []source{{f[0], f[1], signed}}
}

// derive makes the sources of other suites from the host's own: a suite name
// ends in -security exactly where the archive with the host's security suite is meant.
func derive(have []source, codename string, suites ...string) []source {
	var main, security *source
	for i, s := range have {
		switch s.suite {
		case codename:
			main = &have[i]
		case codename + "-security":
			security = &have[i]
		}
	}
	var out []source
	for _, suite := range suites {
		from := main
		if strings.HasSuffix(suite, "-security") {
			from = security
		}
		if from != nil {
			out = append(out, source{from.uri, suite, from.signedBy})
		}
	}
	return out
}

func formatSources(sources []source) string {
	var b strings.Builder
	for _, s := range sources {
		fmt.Fprintf(&b, "Types: deb\nURIs: %s\nSuites: %s\nComponents: main\n", s.uri, s.suite)
		if s.signedBy != "" {
			fmt.Fprintf(&b, "Signed-By: %s\n", s.signedBy)
		}
		b.WriteByte('\n')
	}
	return b.String()
}

// codename is VERSION_CODENAME of os-release(5).
func codename(osRelease string) string {
	for line := range strings.Lines(osRelease) {
		if v, ok := strings.CutPrefix(strings.TrimSpace(line), "VERSION_CODENAME="); ok {
			return strings.Trim(v, `"'`)
		}
	}
	return ""
}

// apt runs apt against private sources: the machine's own files stay as they are.
type apt struct {
	dir  string // sources and package lists, one folder a set of suites
	host []source
	code string
}

func newApt(dir string) (*apt, error) {
	release, err := os.ReadFile("/etc/os-release")
	if err != nil {
		return nil, labFailed("read the host's release: %v", err)
	}
	a := &apt{dir: dir, code: codename(string(release))}
	files, _ := filepath.Glob("/etc/apt/sources.list.d/*.sources") // the pattern is well formed
	lists, _ := filepath.Glob("/etc/apt/sources.list.d/*.list")
	for _, f := range append(append(files, lists...), "/etc/apt/sources.list") {
		b, err := os.ReadFile(f)
		if os.IsNotExist(err) {
			continue
		}
		if err != nil {
			return nil, labFailed("read apt sources: %v", err)
		}
		a.host = append(a.host, parseSources(string(b))...)
	}
	if len(derive(a.host, a.code, a.code)) == 0 {
		return nil, labFailed("find Debian's package sources: no entry for suite %q with component main under /etc/apt: the lab needs a Debian host", a.code)
	}
	return a, nil
}

// suites returns the sources of a set: "host" is this release with updates, security
// fixes and backports, any other name is that release with its security fixes.
func (a *apt) suites(set string) []source {
	if set == "host" {
		return derive(a.host, a.code, a.code, a.code+"-updates", a.code+"-security", a.code+"-backports")
	}
	return derive(a.host, a.code, set, set+"-security")
}

// command prepares an apt tool ("get", "cache") on a set.
func (a *apt) command(ctx context.Context, set, tool string, args ...string) *exec.Cmd {
	d := filepath.Join(a.dir, set)
	cmd := exec.CommandContext(ctx, "apt-"+tool, append([]string{"-qq",
		"-o", "APT::Sandbox::User=root",
		"-o", "Acquire::Retries=2", "-o", "Acquire::http::Timeout=30", "-o", "DPkg::Lock::Timeout=300",
		"-o", "Dir::Etc::sourcelist=/dev/null",
		"-o", "Dir::Etc::sourceparts=" + filepath.Join(d, "sources"),
		"-o", "Dir::State::lists=" + filepath.Join(d, "lists"),
		"-o", "Dir::Cache::pkgcache=" + filepath.Join(d, "pkgcache.bin"),
		"-o", "Dir::Cache::srcpkgcache=" + filepath.Join(d, "srcpkgcache.bin"),
	}, args...)...)
	cmd.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive", "LC_ALL=C")
	return cmd
}

// run runs an apt tool and returns its output, or an error that ends in the log's last lines.
func (a *apt) run(ctx context.Context, set, dir, tool string, args ...string) (string, error) {
	cmd := a.command(ctx, set, tool, args...)
	cmd.Dir = dir
	return output(cmd)
}

// output runs a command and returns its standard output, or a Failure with the end of its log.
func output(cmd *exec.Cmd) (string, error) {
	var out, log bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &log
	if err := cmd.Run(); err != nil {
		return "", &Failure{Code: ExitLab, Line: fmt.Sprintf("%s: %v", filepath.Base(cmd.Path), err), Log: lastLines(log.String(), 15)}
	}
	return out.String(), nil
}

// update fetches the lists of a set once; fresh asks for them again.
func (a *apt) update(ctx context.Context, set string, fresh bool) error {
	d := filepath.Join(a.dir, set)
	done := filepath.Join(d, "updated")
	if _, err := os.Stat(done); err == nil && !fresh {
		return nil
	}
	for _, sub := range []string{"sources", "lists/partial"} {
		if err := os.MkdirAll(filepath.Join(d, sub), 0o755); err != nil {
			return labFailed("make apt folder: %v", err)
		}
	}
	if err := os.WriteFile(filepath.Join(d, "sources", "lab.sources"), []byte(formatSources(a.suites(set))), 0o644); err != nil {
		return labFailed("write apt sources: %v", err)
	}
	_, err := a.run(ctx, set, "", "get", "update", "-o", "APT::Update::Error-Mode=any")
	if err != nil {
		return err
	}
	if err := os.WriteFile(done, nil, 0o644); err != nil {
		return labFailed("write %s: %v", done, err)
	}
	return nil
}

// suiteGone matches what apt says of a suite that the mirror no longer has.
var suiteGone = regexp.MustCompile(`does not have a Release file|404 +Not Found|no longer has a Release file`)

// kernelPackage matches the unsigned image packages of a version ("6.1.0-57",
// "6.12.117+deb12", "6.12.9+bpo"), not the -rt and -cloud flavours.
func kernelPackage(version string) *regexp.Regexp {
	return regexp.MustCompile(`^linux-image-` + regexp.QuoteMeta(version) + `\.[0-9]+([+-][0-9a-z.+~]+)?-amd64-unsigned$`)
}

// releases are the Debian releases that had a kernel as their own, by kernel version.
var releases = map[string]string{"5.10": "bullseye", "6.1": "bookworm", "6.12": "trixie"}

// fetchKernel downloads the newest package of a kernel version into dir and returns its file.
// A version that no suite has is a Failure with ExitUnavailable.
func (a *apt) fetchKernel(ctx context.Context, version, dir string) (string, error) {
	sets := []string{"host"}
	if r := releases[version]; r != "" && r != a.code {
		sets = append(sets, r)
	}
	for _, set := range sets {
		for _, fresh := range []bool{false, true} { // lists may be stale: the second try refreshes them
			err := a.update(ctx, set, fresh)
			if f, ok := err.(*Failure); ok && set != "host" && suiteGone.MatchString(f.Log) {
				break
			}
			if err != nil {
				return "", err
			}
			list, err := a.run(ctx, set, "", "cache", "pkgnames", "linux-image-"+version)
			if err != nil {
				return "", err
			}
			pkg := newestPackage(list, kernelPackage(version))
			if pkg == "" {
				break
			}
			if _, err := a.run(ctx, set, dir, "get", "download", pkg); err != nil {
				if fresh {
					return "", err
				}
				continue
			}
			debs, err := filepath.Glob(filepath.Join(dir, pkg+"_*.deb"))
			if err != nil || len(debs) != 1 {
				return "", labFailed("download %s: %d files came", pkg, len(debs))
			}
			return debs[0], nil
		}
	}
	var asked []string
	for _, set := range sets {
		for _, s := range a.suites(set) {
			asked = append(asked, s.suite)
		}
	}
	return "", &Failure{Code: ExitUnavailable, Line: fmt.Sprintf("kernel %s unavailable: no linux-image package of it in %s", version, strings.Join(asked, ", "))}
}

// install installs what is missing of the host's packages of these names.
func (a *apt) install(ctx context.Context, packages ...string) error {
	var need []string
	for _, p := range packages {
		out, _ := exec.CommandContext(ctx, "dpkg-query", "-W", "-f", "${Status}", p).Output() // fails for a package never seen
		if !strings.HasSuffix(string(out), " installed") {
			need = append(need, p)
		}
	}
	if len(need) == 0 {
		return nil
	}
	if err := a.update(ctx, "host", false); err != nil {
		return err
	}
	_, err := a.run(ctx, "host", "", "get", append([]string{"install", "-y", "--no-install-recommends"}, need...)...)
	return err
}

// newestPackage is the highest of the matching names, numbers compared as numbers.
func newestPackage(list string, want *regexp.Regexp) string {
	var best string
	for s := bufio.NewScanner(strings.NewReader(list)); s.Scan(); {
		if n := strings.TrimSpace(s.Text()); want.MatchString(n) && (best == "" || naturalLess(best, n)) {
			best = n
		}
	}
	return best
}

var digitsOrRest = regexp.MustCompile(`[0-9]+|[^0-9]+`)

func naturalLess(a, b string) bool {
	x, y := digitsOrRest.FindAllString(a, -1), digitsOrRest.FindAllString(b, -1)
	return slices.CompareFunc(x, y, func(p, q string) int {
		if p[0] >= '0' && p[0] <= '9' && q[0] >= '0' && q[0] <= '9' && len(p) != len(q) {
			return len(p) - len(q)
		}
		return strings.Compare(p, q)
	}) < 0
}

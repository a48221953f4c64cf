package main

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/rxsteer/rxsteer/bpf"
	"github.com/rxsteer/rxsteer/internal/host"
)

const capabilitiesHead = `# What rxsteer asks of a host, and what is lost without it

Made from the tables that ` + "`rxsteer doctor`" + ` goes by (` + "`go test ./cmd/rxsteer -run TestCapabilitiesDocument -update`" + `); do not edit. Nothing here is
a condition: what is missing is named in doctor, in a sample's *unmeasured*, and at the agent's /readyz, and the rest works. Each privilege is tried with that
one alone and without it by ` + "`cmd/rxsteer: TestPrivilegesAreAsTheDocumentSays`" + `.

## Privileges

| of the process | for | without it |
|---|---|---|
| none | status, irqs, explain, plan and diagnose with --from, simulate, report | |
| CAP_BPF, CAP_PERFMON | live measurement: the BPF programs on tracepoints | --level 0: the kernel's own counters, no times, no polls |
| CAP_SYS_ADMIN, or sysctl kernel.perf_event_paranoid at most 2 | profile and /profile on kernels of Debian and Ubuntu | all but profiles |
| CAP_SYSLOG | names of kernel functions in profile and /profile | shares per queue and CPU only |
| CAP_NET_ADMIN | apply, trial, rollback, mode auto: ethtool's settings, RPS, RFS, XPS | advice |
| root's files, writable /proc and /sys | sysctls, vectors; the journal in /run/rxsteer | advice |
| CAP_SYS_RESOURCE | Linux 5.10 only, which counts BPF memory as locked memory | --level 0 where the limit is low |

kprobes, kernel headers, a BPF file system, debugfs and a compiler are not needed.
`

// capabilities is the text of docs/capabilities.md.
func capabilities() string {
	var b strings.Builder
	b.WriteString(capabilitiesHead)
	table := func(title, what string) {
		fmt.Fprintf(&b, "\n## %s\n\n| %s | lost without it |\n|---|---|\n", title, what)
	}
	row := func(name, lost string) { fmt.Fprintf(&b, "| `%s` | %s |\n", name, lost) }
	s := bpf.Probe(host.OS{}, bpf.Options{})
	table(areaTitle(areaMeasure), "hook")
	for _, h := range slices.Concat([]bpf.Hook{s.BTF}, s.Hooks, []bpf.Hook{s.Profile}) {
		row(h.Name, h.Lost)
	}
	table(areaTitle(areaNetlink), "message")
	for _, m := range messages {
		row(string(m.kind), m.lost)
	}
	for _, name := range slices.Sorted(maps.Keys(netdevLost)) {
		row("netdev "+name, netdevLost[name])
	}
	table(areaTitle(areaFiles), "file")
	for _, f := range counterFiles {
		row(f.file, f.lost)
	}
	return b.String()
}

func areaTitle(area string) string {
	for _, a := range areaTitles {
		if a.area == area {
			return a.title
		}
	}
	return ""
}

func TestCapabilitiesDocument(t *testing.T) {
	const file = "../../docs/capabilities.md"
	want := capabilities()
	if *update {
		if err := os.WriteFile(file, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(file)
	if err != nil || string(got) != want {
		t.Errorf("docs/capabilities.md is not what doctor goes by (%v): go test ./cmd/rxsteer -run TestCapabilitiesDocument -update", err)
	}
	if strings.Count(want, "\n| `") < 30 || strings.Contains(want, "|  |\n|  |") {
		t.Errorf("rows are missing:\n%s", want)
	}
}

package nic

import (
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rxsteer/rxsteer/internal/host/knob"
)

var update = flag.Bool("update", false, "write docs/support.md")

const supportFile = "../../../docs/support.md"

func TestSupportDocument(t *testing.T) {
	got := supportDocument()
	if *update {
		if err := os.WriteFile(supportFile, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(supportFile)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(string(want), got); d != "" {
		t.Errorf("docs/support.md is not what the table says; go test ./internal/host/nic -update (-want +got):\n%s", d)
	}
}

func TestSupport(t *testing.T) {
	for _, c := range []struct {
		driver string
		kind   knob.Kind
		want   Level
	}{
		{"igb", knob.RSSTable, Lab}, {"ixgbe", knob.RSSTable, Fake}, {"igb", knob.RSSKey, NotOffered}, {"ionic", knob.RSSTable, Docs},
		{"ionic", knob.RPSCPUs, Fake}, {"", knob.NetdevBudget, Fake}, {"veth", knob.RPSCPUs, Lab}, {"mlx4_en", knob.Rings, Fake},
	} {
		if got := Support(c.driver, c.kind); got != c.want {
			t.Errorf("Support(%q, %s) = %s, want %s", c.driver, c.kind, got, c.want)
		}
	}
	// Every setting that can be written is in exactly one of the lists.
	for _, k := range slices.Concat(kernelKinds, sysctlKinds, driverKinds) {
		if !knob.Writable(k) {
			t.Errorf("%s is in the table and cannot be written", k)
		}
	}
}

// supportDocument prints the table.
func supportDocument() string {
	var b strings.Builder
	b.WriteString(`# What was run where

Made from the table of internal/host/nic/support.go by its test (` + "`go test ./internal/host/nic -update`" + `); do not edit.

- **lab**: written and read back on the real driver, in a virtual machine of lab/ or, for virtual devices, in a network namespace.
- fake: written and read back on the fake host (internal/host/hosttest), which behaves as the driver's source says.
- docs: from documentation and source only. Never run: ` + "`apply`" + ` asks for ` + "`--allow untested`" + `, and the agent does not touch it.
- -: the driver does not offer it.

## Settings of drivers

`)
	drivers := SupportedDrivers()
	header := append([]string{"setting"}, drivers...)
	header = append(header, "any other")
	row := func(cells []string) { b.WriteString("| " + strings.Join(cells, " | ") + " |\n") }
	rule := make([]string, len(header))
	for i := range rule {
		rule[i] = "---"
	}
	cell := func(l Level) string {
		if l == Lab {
			return "**lab**"
		}
		return string(l)
	}
	tableOf := func(kinds []knob.Kind) {
		row(header)
		row(rule)
		for _, k := range kinds {
			cells := []string{string(k)}
			for _, d := range drivers {
				cells = append(cells, cell(Support(d, k)))
			}
			row(append(cells, cell(Support("another", k))))
		}
	}
	tableOf(driverKinds)
	b.WriteString("\n## Settings of the kernel's core, on every device\n\n")
	tableOf(kernelKinds)
	b.WriteString("\n## Settings of the host\n\n")
	row([]string{"setting", "level"})
	row([]string{"---", "---"})
	for _, k := range sysctlKinds {
		row([]string{string(k), cell(Support("", k))})
	}
	b.WriteString("\n## What stands behind \"lab\"\n\n")
	for _, r := range labRuns {
		fmt.Fprintf(&b, "- %s: %s\n", r.driver, r.by)
	}
	b.WriteString("\n## What is known of drivers\n\nOne row per fact, from internal/host/nic/quirk.go.\n\n")
	row([]string{"driver", "fact", "what", "source"})
	row([]string{"---", "---", "---", "---"})
	sortedFacts := slices.Clone(facts)
	slices.SortStableFunc(sortedFacts, func(a, b Fact) int { return strings.Compare(a.Driver, b.Driver) })
	for _, f := range sortedFacts {
		what := f.Text
		if f.N != 0 {
			what = strings.TrimSpace(fmt.Sprintf("%d %s", f.N, what))
		}
		if f.Scope != "" {
			what += " (" + string(f.Scope) + ")"
		}
		row([]string{f.Driver, string(f.Kind), strings.ReplaceAll(what, "|", "\\|"), f.Source})
	}
	return b.String()
}

// TestFacts: every row has a source, a driver by its canonical name, and what its kind needs.
func TestFacts(t *testing.T) {
	for _, f := range facts {
		if f.Source == "" || f.Driver != CanonicalDriver(f.Driver) || f.Kind == "" {
			t.Errorf("incomplete row %+v", f)
		}
		switch f.Kind {
		case TableSize, TableLimit, DynamicUsecs, MaxUsecs:
			if f.N == 0 {
				t.Errorf("no number in %+v", f)
			}
		case RingDrops:
			if f.Text == "" || f.Scope == "" || strings.Contains(f.Text, "%d") != (f.Scope == ScopeQueue) && f.Driver != "vmxnet3" {
				t.Errorf("counter and scope do not fit: %+v", f)
			}
		}
	}
}

func TestRingDropScope(t *testing.T) {
	for _, c := range []struct {
		driver, counter string
		scope           Scope
		queue           int
		ok              bool
	}{
		{"igb", "rx_queue_3_drops", ScopeQueue, 3, true},
		{"igb", "rx_queue_x_drops", "", None, false},
		{"igb", "rx_no_buffer_count", ScopePort, None, true},
		{"bnxt_en", "[12]: rx_discards", ScopeQueue, 12, true},
		{"mlx4_en", "rx7_dropped", ScopeQueue, 7, true},
		{"i40e", "port.rx_dropped", ScopePort, None, true},
		{"ena", "bw_in_allowance_exceeded", ScopeProvider, None, true},
		{"igb", "rx_packets", "", None, false},
		{"nobody", "rx_missed_errors", "", None, false},
	} {
		scope, queue, ok := RingDropScope(c.driver, c.counter)
		if scope != c.scope || queue != c.queue || ok != c.ok {
			t.Errorf("RingDropScope(%q, %q) = %q %d %v, want %q %d %v", c.driver, c.counter, scope, queue, ok, c.scope, c.queue, c.ok)
		}
	}
}

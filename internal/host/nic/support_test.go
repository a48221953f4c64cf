package nic

import (
	cmpstd "cmp"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rxsteer/rxsteer/internal/ethtool"
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
		{"ionic", knob.RPSCPUs, Fake}, {"", knob.NetdevBudget, Lab}, {"igb", knob.XPSRXQs, Fake}, {"veth", knob.RPSCPUs, Lab}, {"mlx4_en", knob.Rings, Fake},
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
		fmt.Fprintf(&b, "- %s: %s\n", cmpstd.Or(r.driver, "the host"), r.by)
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
		row([]string{cmpstd.Or(f.Driver, "any"), string(f.Kind), strings.ReplaceAll(what, "|", "\\|"), f.Source})
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
		}
		if slices.Contains(counterKinds, f.Kind) && (f.Text == "" || f.Scope == "" || strings.Contains(f.Text, "%d") != (f.Scope == ScopeQueue)) {
			t.Errorf("counter and scope do not fit: %+v", f)
		}
	}
}

func TestCounters(t *testing.T) {
	type want struct {
		kind  FactKind
		scope Scope
		queue int
	}
	for _, c := range []struct {
		driver, counter string
		want            want
	}{
		{"igb", "rx_queue_3_drops", want{RingDrops, ScopeQueue, 3}},
		{"igb", "rx_queue_x_drops", want{}},
		{"igb", "rx_queue_+3_drops", want{}},
		{"igb", "rx_no_buffer_count", want{RingEmpty, ScopePort, None}},
		{"igb", "tx_flow_control_xoff", want{PauseSent, ScopePort, None}},
		{"bnxt_en", "[12]: rx_discards", want{RingDrops, ScopeQueue, 12}},
		{"mlx4_en", "rx7_dropped", want{RingDrops, ScopeQueue, 7}},
		{"mlx4_en", "rx_dropped", want{RingDrops, ScopePort, None}},
		{"i40e", "port.rx_dropped", want{RingDrops, ScopePort, None}},
		{"ena", "bw_in_allowance_exceeded", want{Shaping, ScopeProvider, None}},
		{"ice", "rx_crc_errors.nic", want{CRCErrors, ScopePort, None}},
		{"vmxnet3", "Rx Queue#3 pkts rx OOB", want{RingDrops, ScopeQueue, 3}},
		{"igb", "rx_packets", want{}},
		{"nobody", "rx_missed_errors", want{}}, // another driver's
		{"nobody", "rx_pause_frames", want{PauseReceived, ScopePort, None}},
		{"", "rx_missed_errors", want{RingDrops, ScopePort, None}},
		{"", "rx_dropped", want{}},
	} {
		var got want
		for _, x := range Counters(c.driver, []ethtool.Stat{{Name: c.counter, Value: 1}}) {
			got = want{x.Kind, x.Scope, x.Queue}
		}
		if got != c.want {
			t.Errorf("%q of %q is %+v, want %+v", c.counter, c.driver, got, c.want)
		}
	}
	// As the kernel tells them: the head is a statistic, whose value is the queue.
	live := []ethtool.Stat{{Name: "Tx Queue#", Value: 1}, {Name: "  drv dropped tx total"}, {Name: "Rx Queue#", Value: 1}, {Name: "  pkts rx OOB", Value: 7}, {Name: "tx timeout count"}}
	if diff := cmp.Diff([]Counter{{"Rx Queue#1 pkts rx OOB", RingDrops, ScopeQueue, 1, 7}}, Counters("vmxnet3", live)); diff != "" {
		t.Errorf("vmxnet3 (-want +got):\n%s", diff)
	}
}

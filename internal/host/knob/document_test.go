package knob

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/rxsteer/rxsteer/internal/cpuset"
)

// TestEveryKnobIsExplained: docs/knobs.md has each knob with the command, the risk and the order of lines of the program, and names each fact.
func TestEveryKnobIsExplained(t *testing.T) {
	examples := map[Kind]struct {
		target Target
		value  Value
	}{
		IRQAffinity: {"eth0 irq-28", Set(cpuset.Of(2))}, RPSCPUs: {"eth0 rx-3", Set(cpuset.Of(0, 1))}, RPSFlowCnt: {"eth0 rx-3", Int(4096)},
		RPSSockFlowEntries: {Host, Int(32768)}, RPSDefaultMask: {Host, Set(cpuset.Of(0))}, XPSCPUs: {"eth0 tx-0", Set(cpuset.Of(1))},
		XPSRXQs: {"eth0 tx-0", Text("0,2")}, Threaded: {"eth0", Int(1)}, RSSTable: {"eth0", List([]int{0, 0, 0, 1})}, RSSKey: {"eth0", Text("6d:5a")},
		RSSFunction: {"eth0", Text("xor")}, RSSHashFields: {"eth0 udp4", Text("sdfn")},
		NtupleRule: {"eth0 rule-9", Fields(map[string]any{"flow": "tcp4", "dst-port": "443", "queue": 2})},
		Channels:   {"eth0", Fields(map[string]any{"combined": 4})}, Rings: {"eth0", Fields(map[string]any{"rx": 4096})},
		Coalesce:  {"eth0", Fields(map[string]any{"adaptive-rx": false, "rx-usecs": 50})},
		QueueCoal: {"eth0 queue-5", Fields(map[string]any{"rx-usecs": 50})}, DeferHardIRQs: {"eth0", Int(2)}, GROFlushTimeout: {"eth0", Int(20000)},
		IRQSuspendTimeout: {"eth0 napi-257", Int(20_000_000)}, NetdevBudget: {Host, Int(600)}, NetdevBudgetUsecs: {Host, Int(8000)},
		NetdevMaxBacklog: {Host, Int(2000)}, DevWeight: {Host, Int(64)}, BusyPoll: {Host, Int(50)}, BusyRead: {Host, Int(50)},
		FlowLimitCPUs: {Host, Set(cpuset.Of(0))}, FlowLimitTableLen: {Host, Int(4096)}, Features: {"eth0", Fields(map[string]any{"rx-gro": false})},
		PrivateFlags: {"eth0", Fields(map[string]any{"legacy rx": true})}, Pause: {"eth0", Fields(map[string]any{"rx": false})},
		FEC: {"eth0", Fields(map[string]any{"auto": false, "modes": "rs"})}, MTU: {"eth0", Int(9000)},
	}
	text, err := os.ReadFile("../../../docs/knobs.md")
	if err != nil {
		t.Fatal(err)
	}
	source, err := os.ReadFile("kinds.go")
	if err != nil {
		t.Fatal(err)
	}
	said := map[Kind]string{}
	sections := regexp.MustCompile(`(?m)^### `).Split(string(text), -1)
	for _, s := range sections[1:] {
		name, body, _ := strings.Cut(s, "\n")
		said[Kind(name)] = body
	}
	kinds := regexp.MustCompile(`(?m)^\t\w+ +Kind = "([a-z-]+)"`).FindAllSubmatch(source, -1)
	if len(kinds) < 40 {
		t.Fatalf("only %d kinds in kinds.go", len(kinds))
	}
	for _, m := range kinds {
		k := Kind(m[1])
		if !Writable(k) {
			if !regexp.MustCompile(`(?m)^\| (?:[a-z-]+, )*` + string(k) + `(?:, [a-z-]+)* \|`).Match(text) {
				t.Errorf("docs/knobs.md lacks the fact %s", k)
			}
			continue
		}
		body, ok := said[k]
		if !ok {
			t.Errorf("docs/knobs.md lacks %s", k)
			continue
		}
		delete(said, k)
		e, ok := examples[k]
		if !ok {
			t.Errorf("no example of %s", k)
			continue
		}
		for _, want := range []string{
			"\n- Lives in ",
			"\n- Type: `" + Command(Ref{k, e.target}, e.value) + "`\n",
			"\n- Risk: " + string(RiskOf(k)) + "\n",
			"\n- Findings: ",
		} {
			if !strings.Contains(body, want) {
				t.Errorf("docs/knobs.md, %s: want a line %q", k, strings.TrimSpace(want))
			}
		}
	}
	for k := range said {
		t.Errorf("docs/knobs.md explains %s, which is no knob", k)
	}
}

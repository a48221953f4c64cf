package plan

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rxsteer/rxsteer/internal/cpuset"
	"github.com/rxsteer/rxsteer/internal/host/knob"
	"github.com/rxsteer/rxsteer/internal/host/nic"
	"github.com/rxsteer/rxsteer/internal/host/topo"
	"github.com/rxsteer/rxsteer/internal/strictyaml"
	"github.com/rxsteer/rxsteer/steer/diagnose"
)

// host is an input of n CPUs with one device eth0, and the busy part of each CPU.
func host(kind nic.Kind, queues int, mask string, busy ...float64) Input {
	n := len(busy)
	in := Input{Goal: Balanced, Report: &diagnose.Report{Named: []string{"eth0"}}, Snapshot: &knob.Snapshot{
		Host:    knob.Identity{BootID: "6b0ad1ba-7d3c-4a77-8b6e-2f8f6a4f5f10", Netns: 4026531840, Kernel: "6.12.9"},
		Devices: []knob.Device{{Name: "eth0", IfIndex: 2, Bus: "0000:00:03.0", Driver: "virtio_net", RXQueues: queues, TXQueues: queues}},
	}}
	in.Topology = &topo.Topology{Online: cpuset.Range(0, n-1)}
	for i, b := range busy {
		in.Topology.CPUs = append(in.Topology.CPUs, topo.CPU{ID: i, Core: i, Node: 0, Online: true})
		in.Report.Loads = append(in.Report.Loads, diagnose.Load{CPU: i, Idle: 1 - b})
	}
	d := nic.NIC{Name: "eth0", Kind: kind, Node: -1}
	for q := range queues {
		d.Queues = append(d.Queues, nic.Queue{RX: q, TX: q, IRQ: 30 + q, KnownBy: nic.ByMSI})
		set := func(k knob.Kind, target string, v knob.Value) {
			in.Snapshot.Settings = append(in.Snapshot.Settings, knob.Setting{Ref: knob.Ref{Knob: k, Target: knob.Target(target)}, Value: v})
		}
		set(knob.RPSCPUs, fmt.Sprintf("eth0 rx-%d", q), knob.Text(mask))
		set(knob.RPSFlowCnt, fmt.Sprintf("eth0 rx-%d", q), knob.Int(0))
		set(knob.XPSCPUs, fmt.Sprintf("eth0 tx-%d", q), knob.Text(""))
		set(knob.IRQAffinity, fmt.Sprintf("eth0 irq-%d", 30+q), knob.Text("0"))
	}
	in.Snapshot.Settings = append(in.Snapshot.Settings, knob.Setting{Ref: knob.Ref{Knob: knob.RPSSockFlowEntries, Target: knob.Host}, Value: knob.Int(0)})
	in.Snapshot.Sort()
	in.NICs = []nic.NIC{d}
	return in
}

func (in Input) find(id diagnose.ID, cpu int, movable map[int]float64, polls ...int) Input {
	var q []int
	for _, x := range in.NICs[0].Queues {
		q = append(q, x.RX)
	}
	in.Report.Findings = append(in.Report.Findings, diagnose.Finding{ID: id, Subject: "eth0", Summary: "it is so", Remedy: "do it",
		Site: diagnose.Site{Device: "eth0", Queues: q, CPU: cpu, Movable: movable, Demand: 1.35, PollCPUs: polls}})
	return in
}

func (in *Input) set(k knob.Kind, target knob.Target, v knob.Value) {
	in.Snapshot.Settings = append(in.Snapshot.Settings, knob.Setting{Ref: knob.Ref{Knob: k, Target: target}, Value: v})
	in.Snapshot.Sort()
}

func (in Input) but(f func(*Input)) Input { f(&in); return in }

func channels(now, most int64) func(*Input) {
	return func(in *Input) {
		in.set(knob.Channels, "eth0", knob.Fields(map[string]any{"combined": now}))
		in.set(knob.ChannelsMax, "eth0", knob.Fields(map[string]any{"combined": most}))
	}
}

func TestMake(t *testing.T) {
	tests := []struct {
		name   string
		in     Input
		want   string // changes, one per line: knob target from→to risk
		reason string
	}{
		{"no findings", host(nic.Physical, 1, "", 0, 0), "", "nothing to do: no finding asks for a change"},
		{"two CPUs, sender on one: both, for one alone cannot carry it",
			host(nic.Virtual, 1, "1", 0.45, 1).find("RX303", 1, map[int]float64{1: 0.95}),
			"rps-cpus eth0 rx-0 1→0-1 reorder", "RFS left off"},
		{"two CPUs, sender fills one: nothing gained",
			host(nic.Virtual, 1, "1", 0.98, 1).find("RX303", 1, map[int]float64{1: 0.5}),
			"", "no choice of CPUs lowers the hottest"},
		{"the polling CPU stays out while others are free",
			host(nic.Physical, 1, "", 0.9, 0, 0, 0).find("RX301", 0, map[int]float64{0: 0.6}, 0),
			"rps-cpus eth0 rx-0 off→1-2 reorder", ""},
		{"latency takes all that help",
			host(nic.Physical, 1, "", 0.9, 0, 0, 0).find("RX301", 0, map[int]float64{0: 0.6}, 0).but(func(in *Input) { in.Goal = Latency }),
			"rps-cpus eth0 rx-0 off→1-3 reorder", ""},
		{"busy CPUs stay out",
			host(nic.Physical, 1, "", 0.9, 0.8, 0, 0.7).find("RX301", 0, map[int]float64{0: 0.6}, 0),
			"rps-cpus eth0 rx-0 off→2 reorder", ""},
		{"the polling CPU helps where the others cannot carry it",
			host(nic.Physical, 1, "", 0.9, 0.3).find("RX301", 0, map[int]float64{0: 0.8}, 0),
			"rps-cpus eth0 rx-0 off→0-1 reorder", ""},
		{"one thread per core, never the poller's sibling", // 0+4, 1+5 … share cores
			host(nic.Physical, 1, "", 0.9, 0.3, 0, 0, 0, 0, 0, 0).find("RX301", 0, map[int]float64{0: 0.6}, 0).but(func(in *Input) {
				in.Goal = Latency
				for i := range in.Topology.CPUs {
					in.Topology.CPUs[i].Core = i % 4
				}
			}),
			"rps-cpus eth0 rx-0 off→2-3,5 reorder", ""},
		{"housekeeping CPUs only",
			host(nic.Physical, 1, "", 0.9, 0, 0, 0).find("RX301", 0, map[int]float64{0: 0.6}, 0).but(func(in *Input) {
				in.Topology.Isolated, in.Topology.NoHzFull, in.Goal = cpuset.Of(1), cpuset.Of(2), Latency
			}),
			"rps-cpus eth0 rx-0 off→3 reorder", ""},
		{"the device's node",
			host(nic.Physical, 1, "", 0.9, 0, 0, 0).find("RX301", 0, map[int]float64{0: 0.6}, 0).but(func(in *Input) {
				in.NICs[0].Node, in.Topology.CPUs[2].Node, in.Topology.CPUs[3].Node = 0, 1, 1
			}),
			"rps-cpus eth0 rx-0 off→1 reorder", ""},
		{"the policy's CPUs",
			host(nic.Physical, 1, "", 0.9, 0, 0, 0).find("RX301", 0, map[int]float64{0: 0.6}, 0).but(func(in *Input) { in.Policy.CPUs = cpuset.Of(3) }),
			"rps-cpus eth0 rx-0 off→3 reorder", ""},
		{"the policy's knobs",
			host(nic.Physical, 1, "", 0.9, 0, 0, 0).find("RX301", 0, map[int]float64{0: 0.6}, 0).but(func(in *Input) { in.Policy.Knobs = []knob.Kind{knob.IRQAffinity} }),
			"", "the policy does not allow rps-cpus"},
		{"a virtual device nobody named",
			host(nic.Virtual, 1, "1", 0.45, 1).find("RX303", 1, map[int]float64{1: 0.95}).but(func(in *Input) { in.Report.Named = nil }),
			"", "name it (rxsteer plan eth0)"},
		{"a physical device nobody named",
			host(nic.Physical, 1, "", 0.9, 0, 0, 0).find("RX301", 0, map[int]float64{0: 0.6}, 0).but(func(in *Input) { in.Report.Named = nil }),
			"rps-cpus eth0 rx-0 off→1-2 reorder", ""},
		{"without topology",
			host(nic.Physical, 1, "", 0.9, 0, 0, 0).find("RX301", 0, map[int]float64{0: 0.6}, 0).but(func(in *Input) { in.Topology = nil }),
			"rps-cpus eth0 rx-0 off→1-2 reorder", "topology is not known"},
		{"without settings",
			host(nic.Physical, 1, "", 0.9, 0, 0, 0).find("RX301", 0, map[int]float64{0: 0.6}, 0).but(func(in *Input) { in.Snapshot = nil }),
			"", "left alone"},
		{"every queue",
			host(nic.Virtual, 2, "0", 0.9, 0).find("RX303", 0, map[int]float64{0: 0.8}),
			"rps-cpus eth0 rx-0 0→0-1 reorder\nrps-cpus eth0 rx-1 0→0-1 reorder", ""},
		{"a mask that cannot be read is left alone",
			host(nic.Physical, 1, "", 0.9, 0, 0, 0).find("RX301", 0, map[int]float64{0: 0.6}, 0).but(func(in *Input) {
				for i, s := range in.Snapshot.Settings {
					if s.Knob == knob.RPSCPUs {
						in.Snapshot.Settings[i].Value = knob.Unknown("needs root")
					}
				}
			}),
			"", "needs root"},
		{"RFS follows where the host uses it",
			host(nic.Physical, 1, "", 0.9, 0, 0, 0).find("RX301", 0, map[int]float64{0: 0.6}, 0).but(func(in *Input) {
				for i, s := range in.Snapshot.Settings {
					if s.Knob == knob.RPSSockFlowEntries {
						in.Snapshot.Settings[i].Value = knob.Int(4096)
					}
				}
			}),
			"rps-cpus eth0 rx-0 off→1-2 reorder\nrps-flow-cnt eth0 rx-0 0→4096 none", ""},
		{"RFS for long flows",
			host(nic.Virtual, 2, "0", 0.9, 0).find("RX303", 0, map[int]float64{0: 0.8}).but(func(in *Input) { in.Policy.LongFlows, in.Policy.Flows = true, 5000 }),
			"rps-cpus eth0 rx-0 0→0-1 reorder\nrps-cpus eth0 rx-1 0→0-1 reorder\nrps-flow-cnt eth0 rx-0 0→4096 none\nrps-flow-cnt eth0 rx-1 0→4096 none\nrps-sock-flow-entries host 0→8192 none", ""},
		{"vectors apart, the hot CPU keeps one",
			host(nic.Physical, 3, "", 0.9, 0, 0.1, 0.8).find("RX102", 0, nil),
			"irq-affinity eth0 irq-31 0→1 reorder\nirq-affinity eth0 irq-32 0→2 reorder", ""},
		{"no vector on a guess",
			host(nic.Physical, 3, "", 0.9, 0, 0.1, 0.8).find("RX102", 0, nil).but(func(in *Input) { in.NICs[0].Queues[1].KnownBy = nic.ByOrder }),
			"", "is a guess"},
		{"the hash is not cured by a mask", host(nic.Physical, 8, "", 0.9, 0).find("RX101", 0, nil), "", "RX101 of eth0: do it"},
		{"transmit queues follow where the device answers",
			host(nic.Physical, 2, "", 0.9, 0, 0, 0).find("RX301", 0, map[int]float64{0: 0.6}, 0).but(func(in *Input) { in.Report.Findings[0].Site.Sends = 50000 }),
			"xps-cpus eth0 tx-0 off→1 none\nxps-cpus eth0 tx-1 off→2 none\nrps-cpus eth0 rx-0 off→1-2 reorder\nrps-cpus eth0 rx-1 off→1-2 reorder", ""},
		{"transmit queues of a virtual device do not",
			host(nic.Virtual, 2, "", 0.9, 0, 0, 0).find("RX301", 0, map[int]float64{0: 0.6}, 0).but(func(in *Input) { in.Report.Findings[0].Site.Sends = 50000 }),
			"rps-cpus eth0 rx-0 off→1-2 reorder\nrps-cpus eth0 rx-1 off→1-2 reorder", ""},
		{"transmit queues somebody mapped are left alone",
			host(nic.Physical, 2, "", 0.9, 0, 0, 0).find("RX301", 0, map[int]float64{0: 0.6}, 0).but(func(in *Input) {
				in.Report.Findings[0].Site.Sends = 50000
				for i, s := range in.Snapshot.Settings {
					if s.Target == "eth0 tx-1" {
						in.Snapshot.Settings[i].Value = knob.Text("3")
					}
				}
			}),
			"rps-cpus eth0 rx-0 off→1-2 reorder\nrps-cpus eth0 rx-1 off→1-2 reorder", ""},
		{"more channels than RPS",
			host(nic.Physical, 1, "", 0.9, 0, 0, 0).find("RX301", 0, map[int]float64{0: 0.6}, 0).but(channels(1, 8)),
			"channels eth0 combined 1→combined 2 pause", "plan again"},
		{"more channels, and the driver's own table again",
			host(nic.Physical, 2, "", 0.9, 0.5, 0, 0).find("RX301", 0, map[int]float64{0: 0.6}, 0).but(channels(2, 3)).but(func(in *Input) {
				in.Goal = Latency
				in.set(knob.RSSTable, "eth0", knob.List([]int{0, 0, 0, 1}))
			}),
			"rss-table eth0 0 0 0 1→off reorder\nchannels eth0 combined 2→combined 3 pause", "plan again"},
		{"more channels drop the link on this driver",
			host(nic.Physical, 1, "", 0.9, 0, 0, 0).find("RX301", 0, map[int]float64{0: 0.6}, 0).but(channels(1, 8)).but(func(in *Input) { in.NICs[0].Driver = "igb" }),
			"channels eth0 combined 1→combined 2 flap", ""},
		{"RPS where the link must not drop",
			host(nic.Physical, 1, "", 0.9, 0, 0, 0).find("RX301", 0, map[int]float64{0: 0.6}, 0).but(channels(1, 8)).but(func(in *Input) {
				in.NICs[0].Driver, in.Policy.Risks = "igb", []Risk{Reorder}
			}),
			"rps-cpus eth0 rx-0 off→1-2 reorder", "1 of 8 combined channels: more of them spread in hardware, better than RPS, but it takes risk flap"},
		{"no more channels than there are",
			host(nic.Physical, 1, "", 0.9, 0, 0, 0).find("RX301", 0, map[int]float64{0: 0.6}, 0).but(channels(1, 1)),
			"rps-cpus eth0 rx-0 off→1-2 reorder", ""},
		{"hash by ports", host(nic.Physical, 4, "", 0.1, 0, 0, 0).find("RX203", 0, nil).but(func(in *Input) {
			in.Report.Findings[0].Site.Flows = []string{"udp4", "udp6"}
			in.set(knob.RSSHashFields, "eth0 udp4", knob.Text("vsd"))
			in.set(knob.RSSHashFields, "eth0 udp6", knob.Unknown("busy"))
		}), "rss-hash-fields eth0 udp4 vsd→vsdfn reorder", "rss-hash-fields of eth0 udp6 is unknown (busy): left alone"},
		{"hash by ports, which the policy does not allow", host(nic.Physical, 4, "", 0.1, 0, 0, 0).find("RX203", 0, nil).but(func(in *Input) {
			in.Policy.Knobs = []knob.Kind{knob.RPSCPUs}
		}), "", "the policy does not allow rss-hash-fields"},
		{"a table to be levelled", host(nic.Physical, 4, "", 0.1, 0, 0, 0).find("RX201", 0, nil).but(func(in *Input) {
			in.set(knob.RSSTable, "eth0", knob.List([]int{0, 0, 0, 0, 0, 1, 2, 3}))
		}), "rss-table eth0 0 0 0 0 0 1 2 3→1 2 0 0 3 1 2 3 reorder", ""},
		{"a table that is even", host(nic.Physical, 4, "", 0.1, 0, 0, 0).find("RX201", 0, nil).but(func(in *Input) {
			in.set(knob.RSSTable, "eth0", knob.List([]int{0, 1, 2, 0, 1}))
		}), "", "no table does noticeably better"},
		{"RPS that costs", host(nic.Physical, 2, "0-1", 0.1, 0).find("RX302", -1, nil), "rps-cpus eth0 rx-0 0-1→off reorder\nrps-cpus eth0 rx-1 0-1→off reorder", ""},
		{"vectors on the other node", host(nic.Physical, 2, "", 0.1, 0, 0, 0).find("RX103", -1, nil).but(func(in *Input) {
			in.NICs[0].Node, in.Topology.CPUs[0].Node, in.Topology.CPUs[1].Node = 1, 0, 0
			in.Topology.CPUs[2].Node, in.Topology.CPUs[3].Node = 1, 1
		}), "irq-affinity eth0 irq-30 0→2 reorder\nirq-affinity eth0 irq-31 0→3 reorder", ""},
		{"vectors on isolated CPUs", host(nic.Physical, 2, "", 0.1, 0, 0, 0).find("RX107", -1, nil).but(func(in *Input) { in.Topology.Isolated = cpuset.Of(0) }),
			"irq-affinity eth0 irq-30 0→1 reorder\nirq-affinity eth0 irq-31 0→2 reorder", ""},
		{"managed vectors", host(nic.Physical, 2, "", 0.1, 0, 0, 0).find("RX107", -1, nil).but(func(in *Input) { in.set(knob.IRQManaged, "eth0 irq-30", knob.Bool(true)) }),
			"irq-affinity eth0 irq-31 0→1 reorder", "the kernel manages vector 30"},
		{"one member of a bond hashes ports", host(nic.Physical, 4, "", 0.1, 0, 0, 0).find("RX702", 0, nil).but(func(in *Input) {
			in.Report.Findings[0].Subject, in.Report.Findings[0].Site.Flows = "bond0", []string{"udp4"}
			in.set(knob.RSSHashFields, "eth0 udp4", knob.Text("sd"))
		}), "rss-hash-fields eth0 udp4 sd→sdfn reorder", ""},
		{"transmit queues cross the vectors", host(nic.Physical, 2, "", 0.1, 0).find("RX305", -1, nil).but(func(in *Input) {
			in.set(knob.IRQEffective, "eth0 irq-30", knob.Text("0"))
			in.set(knob.IRQEffective, "eth0 irq-31", knob.Text("1"))
		}), "xps-cpus eth0 tx-0 off→0 none\nxps-cpus eth0 tx-1 off→1 none", ""},
		{"advice only", host(nic.Physical, 2, "", 0.1, 0).find("RX202", -1, nil), "", "RX202 of eth0: do it"},
		{"another owner is named",
			host(nic.Physical, 1, "", 0.9, 0, 0, 0).find("RX301", 0, map[int]float64{0: 0.6}, 0).but(func(in *Input) {
				in.Snapshot.Owners = []knob.Owner{{Name: "tuned", Knobs: []knob.Kind{knob.RPSCPUs}, Settle: []string{"tuned-adm off"}}}
			}),
			"rps-cpus eth0 rx-0 off→1-2 reorder", "tuned also writes rps-cpus"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			p := Make(test.in)
			var got []string
			for _, c := range p.Changes {
				got = append(got, fmt.Sprintf("%s %s %s→%s %s", c.Knob, c.Target, word(c.From.String()), word(c.To.String()), c.Risk))
				if err := Check(c, cpuset.Range(0, 7)); err != nil {
					t.Errorf("the plan holds a change no plan may hold: %v", err)
				}
				if c.Command == "" || c.Undo == "" || c.Why == "" || len(c.Findings) == 0 {
					t.Errorf("incomplete change: %+v", c)
				}
			}
			if diff := cmp.Diff(test.want, strings.Join(got, "\n")); diff != "" {
				t.Errorf("changes (-want +got):\n%s\nreasons: %q", diff, p.Reasons)
			}
			if all := strings.Join(p.Reasons, "\n"); !strings.Contains(all, test.reason) || len(got) == 0 && all == "" {
				t.Errorf("reasons do not say %q:\n%s", test.reason, all)
			}
		})
	}
}

func TestCommandsAreWhatAPersonTypes(t *testing.T) {
	p := Make(host(nic.Virtual, 1, "1", 0.45, 1).find("RX303", 1, map[int]float64{1: 0.95}))
	if got, want := p.Changes[0].Command, "echo 3 > /sys/class/net/eth0/queues/rx-0/rps_cpus"; got != want {
		t.Errorf("command %q, want %q", got, want)
	}
	if got, want := p.Changes[0].Undo, "echo 2 > /sys/class/net/eth0/queues/rx-0/rps_cpus"; got != want {
		t.Errorf("undo %q, want %q", got, want)
	}
}

func TestFileRoundTrip(t *testing.T) {
	for _, in := range []Input{
		host(nic.Virtual, 2, "0", 0.9, 0).find("RX303", 0, map[int]float64{0: 0.8}).but(func(in *Input) { in.Policy.LongFlows = true }),
		host(nic.Physical, 1, "", 0, 0),
	} {
		p := Make(in)
		y, err := p.YAML()
		if err != nil {
			t.Fatal(err)
		}
		got, err := Parse("plan.yaml", y, in.Topology.Online)
		if err != nil {
			t.Fatalf("%v\n%s", err, y)
		}
		want, _ := json.Marshal(p)
		have, _ := json.Marshal(got)
		if diff := cmp.Diff(string(want), string(have)); diff != "" {
			t.Errorf("plan read back (-want +got):\n%s", diff)
		}
	}
}

const good = `version: 1
identity:
  boot_id: 6b0ad1ba
  netns: 4026531840
  kernel: 6.12.9
  devices:
  - name: eth0
    ifindex: 2
    rx_queues: 1
    tx_queues: 1
goal: balanced
changes:
- knob: rps-cpus
  target: eth0 rx-0
  from: ""
  to: "1-3"
  findings: [RX301]
  risk: reorder
  command: x
  undo: y
  why: z
`

func TestParseRefuses(t *testing.T) {
	if _, err := Parse("p", []byte(good), cpuset.Range(0, 3)); err != nil {
		t.Fatalf("the good plan: %v", err)
	}
	tests := []struct{ name, old, new, want string }{
		{"unknown key", "  why: z", "  whY: z", `p:21:3: unknown field "whY"`},
		{"unknown top key", "goal: balanced", "goals: balanced", `p:11:1: unknown field "goals"`},
		{"unknown knob", "rps-cpus", "rps-cpu", `p:13:9: knob: "rps-cpu" is not a setting a plan can hold`},
		{"knob of another target", "eth0 rx-0", "eth0 tx-0", `p:14:11: target: rps-cpus belongs to a target like "eth0 rx-0"`},
		{"queue without number", "eth0 rx-0", "eth0 rx-", "p:14:11: target"},
		{"device without identity", "eth0 rx-0", "eth1 rx-0", "p:14:11: target: identity does not name device eth1"},
		{"CPU that is not there", `"1-3"`, `"1-9"`, "p:16:7: to: this host has no cpu 4-9 online"},
		{"CPU list that is none", `"1-3"`, `"x"`, "p:16:7: to:"},
		{"mask instead of a list", `"1-3"`, `0x3`, "p:16:7: to: rps-cpus takes a CPU list in quotes"},
		{"number instead of a list", `"1-3"`, `3`, "p:16:7: to: rps-cpus takes a CPU list in quotes"},
		{"no value", `  to: "1-3"` + "\n", "", "p:13:"},
		{"null value", `"1-3"`, `null`, "p:16:7: to: is missing"},
		{"unknown value before", `from: ""`, `from: {unknown: needs root}`, "p:15:"},
		{"unknown risk", "risk: reorder", "risk: some", `p:18:9: risk: "some"`},
		{"unknown goal", "goal: balanced", "goal: fast", `p:11:7: goal "fast"`},
		{"newer version", "version: 1", "version: 2", "p:1:10: version 2 is newer"},
		{"no version", "version: 1\n", "", "version is missing"},
		{"word for a number", "ifindex: 2", "ifindex: two", "p:8:14:"},
		{"same setting twice", "changes:\n", "changes:\n- {knob: rps-cpus, target: eth0 rx-0, from: '', to: '1', risk: reorder}\n", "is already change 1"},
		{"over the ceiling", "knob: rps-cpus\n  target: eth0 rx-0\n  from: \"\"\n  to: \"1-3\"", "knob: netdev-budget\n  target: host\n  from: 300\n  to: 3001", "p:16:7: to: netdev-budget 3001 is outside 0…3000"},
		{"broken YAML", "risk: reorder", "risk: [", "p:"},
		{"duplicate key", "goal: balanced", "goal: balanced\ngoal: auto", "p:12:1:"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			text := strings.Replace(good, test.old, test.new, 1)
			if text == good {
				t.Fatal("the test changes nothing")
			}
			_, err := Parse("p", []byte(text), cpuset.Range(0, 3))
			if err == nil || !strings.HasPrefix(err.Error(), test.want) && !(strings.Contains(err.Error(), test.want) && strings.HasPrefix(err.Error(), "p:")) {
				t.Errorf("got %v\nwant %s", err, test.want)
			}
		})
	}
	for _, text := range []string{"", "# nothing\n", "---\na: 1\n---\nb: 1\n", "- 1", "\x00\xff",
		"version: 1\ngoal: auto\nchanges: !0 ", // panics inside the YAML library
		strings.Repeat("[", 100000), strings.Repeat("- ", 100000), strings.Repeat("{a: ", 1000), strings.Repeat("a", strictyaml.MaxFile+1)} {
		if p, err := Parse("p", []byte(text), cpuset.Set{}); err == nil {
			t.Errorf("%q reads as a plan: %+v", text, p)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(good))
	f.Add([]byte("version: 1\ngoal: auto\nchanges: []\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		p, err := Parse("p", data, cpuset.Range(0, 3))
		if err != nil {
			return
		}
		for _, c := range p.Changes {
			if err := Check(c, cpuset.Range(0, 3)); err != nil {
				t.Errorf("accepted: %v", err)
			}
		}
		y, err := p.YAML()
		if err != nil {
			t.Fatalf("a plan that was read cannot be written: %v", err)
		}
		if _, err := Parse("p", y, cpuset.Range(0, 3)); err != nil {
			t.Errorf("a plan that was written cannot be read: %v\n%s", err, y)
		}
	})
}

// The script does what the plan says and takes it back: run on a file tree of its own.
func TestShellRuns(t *testing.T) {
	p := Make(host(nic.Virtual, 2, "0", 0.9, 0).find("RX303", 0, map[int]float64{0: 0.8}))
	dir := t.TempDir()
	script := strings.ReplaceAll(p.Shell(), "/sys/class/net", dir)
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		t.Skip("needs /proc/sys/kernel/random/boot_id: ", err)
	}
	mine := strings.ReplaceAll(script, p.Identity.BootID, strings.TrimSpace(string(boot)))
	mask := func(q int) string { return filepath.Join(dir, "eth0/queues", fmt.Sprintf("rx-%d", q), "rps_cpus") }
	for q := range 2 {
		if err := os.MkdirAll(filepath.Dir(mask(q)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(mask(q), []byte("1\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	run := func(script string, args ...string) error {
		name := filepath.Join(dir, "plan.sh")
		if err := os.WriteFile(name, []byte(script), 0o644); err != nil {
			t.Fatal(err)
		}
		out, err := exec.Command("sh", append([]string{name}, args...)...).CombinedOutput()
		t.Logf("%s", out)
		return err
	}
	want := func(text string) {
		t.Helper()
		for q := range 2 {
			if b, err := os.ReadFile(mask(q)); err != nil || string(b) != text {
				t.Errorf("mask of rx-%d is %q, want %q (%v)", q, b, text, err)
			}
		}
	}
	if run(script) == nil {
		t.Error("a script of another boot ran")
	}
	want("1\n")
	if err := run(mine); err != nil {
		t.Fatal(err)
	}
	want("3\n")
	if err := run(mine, "undo"); err != nil {
		t.Fatal(err)
	}
	want("1\n")
	if s := Make(host(nic.Physical, 1, "", 0, 0)).Shell(); !strings.Contains(s, "# No changes.") {
		t.Errorf("script of an empty plan:\n%s", s)
	}
}

func TestCheckHashFields(t *testing.T) {
	for _, test := range []struct {
		target   knob.Target
		from, to knob.Value
		want     string
	}{
		{"eth0 udp4", knob.Text("sd"), knob.Text("sdfn"), ""},
		{"eth0 udp6", knob.Text("sdfn"), knob.Text(""), ""},
		{"eth0 udp4", knob.Text("sd"), knob.Text("fnsd"), `to: rss-hash-fields "fnsd": want some of "mvtsdfnelr", each once and in this order`},
		{"eth0 udp4", knob.Text("sd"), knob.Text("ssd"), `to: rss-hash-fields "ssd": want some of "mvtsdfnelr", each once and in this order`},
		{"eth0 udp4", knob.Text("sd"), knob.Int(3), `to: rss-hash-fields takes ethtool's letters in quotes ("sdfn"), not 3`},
		{"eth0 rx-0", knob.Text("sd"), knob.Text("sdfn"), `target: rss-hash-fields belongs to a target like "eth0 udp4", not to "eth0 rx-0"`},
		{"host", knob.Text("sd"), knob.Text("sdfn"), `target: rss-hash-fields belongs to a target like "eth0 udp4", not to "host"`},
		{"eth0 udp4", knob.Unknown("x"), knob.Text("sdfn"), "from: the value before is unknown: without it nothing can be put back"},
	} {
		got := ""
		if err := Check(Change{Knob: knob.RSSHashFields, Target: test.target, From: test.from, To: test.to, Risk: Reorder}, cpuset.Set{}); err != nil {
			got = err.Error()
		}
		if diff := cmp.Diff(test.want, got); diff != "" {
			t.Errorf("%s %s→%s (-want +got):\n%s", test.target, test.from, test.to, diff)
		}
	}
}

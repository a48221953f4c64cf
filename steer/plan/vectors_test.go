package plan

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/rxsteer/rxsteer/collector"
	"github.com/rxsteer/rxsteer/internal/host/knob"
	"github.com/rxsteer/rxsteer/internal/host/nic"
)

// polls adds what each queue of a device was polled on a CPU, in ms of a second; 0 is not seen.
func (in *Input) polls(dev string, cpu int, ms ...int) {
	if in.Sample == nil {
		in.Sample = &collector.Sample{Interval: time.Second}
	}
	for q, t := range ms {
		if t > 0 {
			in.Sample.NAPIs = append(in.Sample.NAPIs, collector.NAPI{Device: dev, RXQueue: q, CPU: cpu, Time: uint64(t) * 1e6, Packets: uint64(t) * 10})
		}
	}
}

// crowded is an input whose queues all have their vectors on CPU 0.
func crowded(queues int, busy ...float64) Input {
	return host(nic.Physical, queues, "", busy...).find("RX102", 0, nil)
}

func TestVectorsGetTheCPUWithRoom(t *testing.T) {
	tests := []struct {
		name   string
		in     Input
		want   string // queue→cpu of each vector moved
		reason string
	}{
		{"a CPU more than half busy that carries it is better than one that has a queue already",
			crowded(4, 0.98, 0.3, 0.55, 0.6).but(func(in *Input) { in.polls("eth0", 0, 240, 240, 240, 240) }), "1→1 2→2 3→3", ""},
		{"all CPUs half busy",
			crowded(4, 0.98, 0.55, 0.55, 0.55).but(func(in *Input) { in.polls("eth0", 0, 240, 240, 240, 240) }), "1→1 2→2 3→3", ""},
		{"one that does not carry it gets none, and none is doubled where to stay is as good",
			crowded(4, 0.96, 0.5, 0.1, 0.85).but(func(in *Input) { in.polls("eth0", 0, 240, 240, 240, 240) }), "1→2 2→1", "no other CPU is usable and has room"},
		{"the heaviest goes to the CPU with most room",
			crowded(3, 0.9, 0.3, 0, 0.8).but(func(in *Input) { in.polls("eth0", 0, 100, 200, 600) }), "2→2 1→1", ""},
		{"more queues than CPUs: two each",
			crowded(8, 0.96, 0, 0, 0).but(func(in *Input) { in.polls("eth0", 0, 120, 120, 120, 120, 120, 120, 120, 120) }), "1→1 2→2 3→3 4→1 5→2 6→3", "no other CPU is usable and has room"},
		{"more queues than CPUs, what they do is not known", crowded(8, 0.96, 0, 0, 0), "1→1 2→2 3→3 4→1 5→2 6→3", ""},
		{"nothing is known of times", crowded(4, 0, 0, 0, 0).but(func(in *Input) { in.Report.Loads = nil }), "1→1 2→2 3→3", ""},
		{"what is measured of it is what counts, not an even part",
			crowded(2, 0.9, 0.5).but(func(in *Input) { in.polls("eth0", 0, 600, 300) }), "1→1", ""},
		{"a busy queue that stays keeps its CPU to itself",
			host(nic.Physical, 4, "", 0.9, 0.1, 0.15, 0.16).find("RX102", 0, nil).but(func(in *Input) {
				in.polls("eth0", 0, 450, 450)
				in.polls("eth0", 1, 0, 0, 100)
				in.Report.Findings[0].Site.Queues = []int{0, 1}
			}), "1→2", ""},
		{"a queue of another device counts too",
			crowded(2, 0.9, 0, 0.1).but(func(in *Input) {
				in.NICs = append(in.NICs, nic.NIC{Name: "eth1", Kind: nic.Physical, Node: -1, Queues: []nic.Queue{{RX: 0, TX: 0, IRQ: 50, KnownBy: nic.ByMSI}}})
				in.polls("eth0", 0, 450, 450)
				in.polls("eth1", 1, 50)
			}), "1→2", ""},
		{"it would only heat another: all stay",
			crowded(2, 0.4, 0.7).but(func(in *Input) { in.polls("eth0", 0, 200, 200) }), "", "no other CPU is usable and has room"},
		{"from another node, more queues than CPUs there",
			host(nic.Physical, 4, "", 0.4, 0, 0.2, 0).find("RX103", -1, nil).but(func(in *Input) {
				in.NICs[0].Node, in.Topology.CPUs[2].Node, in.Topology.CPUs[3].Node = 1, 1, 1
				in.polls("eth0", 0, 100, 100, 100, 100)
			}), "0→3 1→2 2→3 3→3", ""},
		{"from another node, all of it full",
			host(nic.Physical, 2, "", 0.4, 0, 0.95, 0.85).find("RX103", -1, nil).but(func(in *Input) {
				in.NICs[0].Node, in.Topology.CPUs[2].Node, in.Topology.CPUs[3].Node = 1, 1, 1
				in.polls("eth0", 0, 200, 200)
			}), "", "no other CPU is usable and on node 1 and has room"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			p := Make(test.in)
			var got []string
			for _, c := range p.Changes {
				var irq int
				var cpu string
				if _, err := fmt.Sscanf(c.Target.Part(), "irq-%d", &irq); err != nil || c.Knob != knob.IRQAffinity || c.To.Decode(&cpu) != nil {
					t.Fatalf("unexpected change %s %s", c.Knob, c.Target)
				}
				got = append(got, fmt.Sprintf("%d→%s", irq-30, cpu))
			}
			if d := cmp.Diff(test.want, strings.Join(got, " ")); d != "" {
				t.Errorf("moves (-want +got):\n%s\nreasons: %q", d, p.Reasons)
			}
			if !strings.Contains(strings.Join(p.Reasons, "\n"), test.reason) {
				t.Errorf("reasons %q do not say %q", p.Reasons, test.reason)
			}
			if d := cmp.Diff(p, Make(test.in)); d != "" {
				t.Errorf("the second plan of the same differs:\n%s", d)
			}
		})
	}
}

package diagnose

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/rxsteer/rxsteer/collector"
	"github.com/rxsteer/rxsteer/internal/cpuset"
	"github.com/rxsteer/rxsteer/internal/host/knob"
	"github.com/rxsteer/rxsteer/internal/host/nic"
	"github.com/rxsteer/rxsteer/internal/host/topo"
)

const (
	second = uint64(time.Second)
	here   = 4026531840
)

// world is a host with one interval of 10 s, built up by small steps.
type world struct{ Input }

// newWorld has n idle CPUs, each a core of its own, on one node.
func newWorld(n int) *world {
	w := &world{}
	w.Topology = &topo.Topology{Online: cpuset.Range(0, n-1), Possible: cpuset.Range(0, n-1)}
	w.Snapshot = &knob.Snapshot{Host: knob.Identity{BootID: "b", Netns: here}}
	w.Sample = &collector.Sample{Level: 1, Interval: 10 * time.Second}
	for i := range n {
		w.Topology.CPUs = append(w.Topology.CPUs, topo.CPU{ID: i, Core: i, Node: 0, LLC: 0, Online: true})
		w.Sample.CPUs = append(w.Sample.CPUs, collector.CPU{CPU: i, Idle: 10 * second})
	}
	return w
}

func (w *world) smt() *world { // CPU i and i+n/2 share a core
	n := len(w.Topology.CPUs)
	for i := range w.Topology.CPUs {
		w.Topology.CPUs[i].Core = i % (n / 2)
	}
	return w
}

func (w *world) nodes() *world { // the upper half is node 1
	for i := range w.Topology.CPUs {
		w.Topology.CPUs[i].Node = i * 2 / len(w.Topology.CPUs)
	}
	return w
}

func (w *world) nic(name string, kind nic.Kind, queues int, rps ...string) *world {
	d := nic.NIC{Name: name, IfIndex: len(w.NICs) + 2, Netns: here, Kind: kind, Node: -1, Up: true}
	if kind == nic.Physical {
		d.Node = 0
	}
	for q := range queues {
		x := nic.Queue{RX: q, TX: q, IRQ: -1, NAPI: uint32(100*d.IfIndex + q), KnownBy: nic.ByNetlink}
		if kind == nic.Physical {
			x.IRQ = 10*d.IfIndex + q
		}
		d.Queues = append(d.Queues, x)
		m := ""
		if q < len(rps) {
			m = rps[q]
		}
		w.Snapshot.Settings = append(w.Snapshot.Settings, knob.Setting{Ref: knob.Ref{Knob: knob.RPSCPUs, Target: knob.On(name, "rx-%d", q)}, Value: knob.Text(m)})
	}
	w.NICs = append(w.NICs, d)
	w.Snapshot.Devices = append(w.Snapshot.Devices, knob.Device{Name: name, IfIndex: d.IfIndex, RXQueues: queues, TXQueues: queues})
	w.Snapshot.Sort()
	return w
}

func (w *world) carry(name string, packets uint64) *world {
	w.Sample.Devices = append(w.Sample.Devices, collector.Device{Name: name, RXPackets: packets})
	return w
}

// busy makes a CPU spend parts of the interval in receive softirq and otherwise.
func (w *world) busy(cpu int, netrx, other float64, packets uint64) *world {
	c := &w.Sample.CPUs[cpu]
	ns := func(f float64) uint64 { return uint64(f * float64(10*second)) }
	c.SoftirqTime[collector.NetRX] = ns(netrx)
	c.Softirq = ns(netrx)
	c.SoftirqRuns[collector.NetRX] = packets/32 + 1
	c.Idle = ns(max(0, 1-netrx-other))
	c.Processed = packets
	return w
}

// poll adds polls of a device's queue (queue -1, device "" are the backlog).
func (w *world) poll(device string, queue, cpu int, time float64, packets uint64) *world {
	p := collector.NAPI{Device: collector.Backlog, RXQueue: -1, CPU: cpu, Polls: packets/32 + 1, Packets: packets, Time: uint64(time * float64(10*second))}
	for _, n := range w.NICs {
		if n.Name == device {
			p.Device, p.IfIndex, p.Netns, p.ID = device, n.IfIndex, here, uint32(100*n.IfIndex+queue)
		}
	}
	w.Sample.NAPIs = append(w.Sample.NAPIs, p)
	return w
}

func (w *world) but(f func(*world)) *world { f(w); return w }

// judge diagnoses and compares the findings, "ID severity subject [symptoms]" each, without RX901; say
// is part of a summary, remedy, or of what was checked or not measured.
func (w *world) judge(t *testing.T, want, say string) *Report {
	t.Helper()
	r := Diagnose(w.Input)
	var got []string
	var said strings.Builder
	for _, f := range r.Findings {
		if f.ID == "RX901" {
			continue
		}
		var sym []string
		for _, s := range f.Explains {
			sym = append(sym, string(s.ID))
		}
		got = append(got, fmt.Sprintf("%s %s %s [%s]", f.ID, f.Severity, f.Subject, strings.Join(sym, " ")))
		fmt.Fprintln(&said, f.Summary)
		fmt.Fprintln(&said, f.Remedy)
		if f.Remedy == "" {
			t.Errorf("%s has no remedy", f.ID)
		}
		if len(f.Evidence) == 0 {
			t.Errorf("%s has no evidence", f.ID)
		}
	}
	if len(r.Checked) == 0 && len(got) == 0 {
		t.Error("nothing found and nothing said to be checked")
	}
	for _, c := range r.Checked {
		fmt.Fprintln(&said, "checked:", c)
	}
	for _, u := range r.Unmeasured {
		fmt.Fprintln(&said, "unmeasured:", u.What+": "+u.Why)
	}
	if diff := cmp.Diff(want, strings.Join(got, "\n")); diff != "" {
		t.Errorf("findings (-want +got):\n%s\n%s", diff, &said)
	}
	if !strings.Contains(said.String(), say) {
		t.Errorf("report does not say %q:\n%s", say, &said)
	}
	return r
}

func (w *world) set(k knob.Kind, target knob.Target, v knob.Value) *world {
	w.Snapshot.Settings = append(w.Snapshot.Settings, knob.Setting{Ref: knob.Ref{Knob: k, Target: target}, Value: v})
	w.Snapshot.Sort()
	return w
}

// table gives a device an indirection table of n buckets over queues 0 … queues-1.
func (w *world) table(device string, n, queues int) *world {
	t := make([]int, n)
	for i := range t {
		t[i] = i % queues
	}
	return w.set(knob.RSSTable, knob.Target(device), knob.List(t))
}

// count adds to the protocol counters: count("UdpInDatagrams", 5).
func (w *world) count(name string, n uint64) *world {
	if w.Sample.Protocols == nil {
		w.Sample.Protocols = map[string]uint64{}
	}
	w.Sample.Protocols[name] += n
	return w
}

// rpsOne is the state of the demonstration: RPS of a veth puts all its work on CPU 1.
func rpsOne() *world {
	return newWorld(4).nic("b0", nic.Virtual, 1, "1").carry("b0", 400000).
		busy(0, 0.1, 0.2, 1000).busy(1, 0.97, 0, 400000).poll("", -1, 1, 0.95, 400000)
}

// oneQueue is a physical NIC with a single queue polled on CPU 2 of 8.
func oneQueue() *world {
	return newWorld(8).nic("eth0", nic.Physical, 1).carry("eth0", 900000).
		busy(2, 0.9, 0, 900000).poll("eth0", 0, 2, 0.85, 900000)
}

func TestFindings(t *testing.T) {
	tests := []struct {
		name string
		in   *world
		want string // "ID severity subject [symptoms]" per line, without RX901
		say  string // part of the first summary, or of what was checked
	}{
		{"healthy host", newWorld(4).nic("eth0", nic.Physical, 4).carry("eth0", 900000).
			busy(0, 0.2, 0.1, 225000).busy(1, 0.21, 0.1, 225000).busy(2, 0.19, 0.1, 225000).busy(3, 0.2, 0.1, 225000), "", "the most is 21 % of cpu 1"},
		{"idle host", newWorld(2), "", "the most is 0 %"},
		{"RPS mask of one CPU", rpsOne(), "RX303 warning b0 [RX101]", "the RPS mask of b0 names cpu 1 alone"},
		{"and it drops", rpsOne().but(func(w *world) { w.Sample.CPUs[1].Dropped = 140000 }), "RX303 critical b0 [RX101 RX403]", ""},
		{"and it squeezes", rpsOne().but(func(w *world) { w.Sample.CPUs[1].Squeezed = 5000 }), "RX303 warning b0 [RX101 RX401]", ""},
		{"two CPUs, the other half busy", newWorld(2).nic("b0", nic.Virtual, 1, "1").carry("b0", 400000).
			busy(0, 0.05, 0.5, 1000).busy(1, 0.97, 0, 400000).poll("", -1, 1, 0.95, 400000), "RX303 warning b0 [RX101]", "cpu 0 is 45 % idle"},
		{"mask of one core's threads", newWorld(8).smt().nic("b0", nic.Virtual, 1, "1,5").carry("b0", 400000).
			busy(1, 0.9, 0, 300000).busy(5, 0.2, 0, 100000).poll("", -1, 1, 0.9, 300000), "RX303 warning b0 [RX101]", "hardware threads of one core"},
		{"wide mask, one flow", newWorld(4).nic("b0", nic.Virtual, 1, "0-3").carry("b0", 400000).
			busy(1, 0.9, 0, 400000).poll("", -1, 1, 0.9, 400000), "RX101 warning b0 []", "few flows"},
		{"single queue, RPS off", oneQueue(), "RX301 warning eth0 [RX101]", "eth0 has 1 receive queue for 8 usable CPUs and RPS is off"},
		{"two queues saturated of eight CPUs", newWorld(8).nic("eth0", nic.Physical, 2).carry("eth0", 900000).
			busy(0, 0.9, 0, 450000).busy(1, 0.88, 0, 450000).poll("eth0", 0, 0, 0.9, 450000).poll("eth0", 1, 1, 0.88, 450000), "RX301 warning eth0 [RX101]", "2 receive queues"},
		{"vectors of busy queues on one CPU", newWorld(4).nic("eth0", nic.Physical, 4).carry("eth0", 900000).
			busy(0, 0.9, 0, 900000).poll("eth0", 0, 0, 0.2, 200000).poll("eth0", 1, 0, 0.2, 200000).poll("eth0", 2, 0, 0.2, 200000).poll("eth0", 3, 0, 0.2, 200000), "RX102 warning eth0 [RX101]", "4 busy queues"},
		{"one queue of many busy: the hash, not the interrupt", newWorld(8).nic("eth0", nic.Physical, 8).carry("eth0", 900000).
			busy(3, 0.9, 0, 880000).poll("eth0", 3, 3, 0.9, 880000).poll("eth0", 4, 4, 0.01, 9000), "RX101 warning eth0 []", "queue imbalance, not interrupt imbalance"},
		{"polls themselves hot under RPS", newWorld(4).nic("eth0", nic.Physical, 1, "1-3").carry("eth0", 900000).
			busy(0, 0.9, 0, 900000).busy(1, 0.1, 0, 300000).poll("eth0", 0, 0, 0.9, 900000), "RX101 warning eth0 []", "to polling eth0 itself"},
		{"RPS hands the work back to the polling CPU", newWorld(4).nic("eth0", nic.Physical, 1, "0").carry("eth0", 900000).
			busy(0, 0.9, 0, 900000).poll("eth0", 0, 0, 0.5, 900000).poll("", -1, 0, 0.4, 900000), "RX303 warning eth0 [RX101]", "names cpu 0 alone"},
		{"hot under a mask of offline CPUs", newWorld(4).nic("eth0", nic.Physical, 1, "6-7").carry("eth0", 900000).
			busy(0, 0.9, 0, 900000).poll("eth0", 0, 0, 0.9, 900000), "RX303 warning eth0 [RX101]", "RPS does nothing"},
		{"veth without NAPI, RPS off", newWorld(4).nic("veth0", nic.Virtual, 1).carry("veth0", 400000).
			busy(1, 0.8, 0.1, 400000).poll("", -1, 1, 0.8, 400000), "RX301 warning veth0 [RX101]", "no interrupt of its own"},
		{"tap of several queues polled by one CPU", newWorld(4).nic("tap0", nic.Virtual, 4).carry("tap0", 400000).
			busy(1, 0.8, 0.1, 400000).poll("tap0", 0, 1, 0.4, 200000).poll("tap0", 1, 1, 0.4, 200000), "RX301 warning tap0 [RX101]", "no interrupt to move"},
		{"backlog filled from another namespace", newWorld(4).nic("eth0", nic.Physical, 4).carry("eth0", 90000).busy(1, 0.8, 0.1, 400000).poll("", -1, 1, 0.8, 400000), "RX101 warning cpu 1 []", "no device of this network namespace hands them over"},
		{"device of another namespace", oneQueue().but(func(w *world) { w.Sample.NAPIs[0].Netns = 7; w.Sample.NAPIs[0].SeenAs = "eth9" }), "RX101 warning cpu 2 []", "eth9 in another network namespace (inode 7)"},
		{"isolated CPU in the mask does work", newWorld(4).but(func(w *world) { w.Topology.Isolated = cpuset.Of(3) }).nic("b0", nic.Virtual, 1, "2-3").carry("b0", 90000).
			busy(3, 0.2, 0, 45000).busy(2, 0.2, 0, 45000).poll("", -1, 3, 0.2, 45000).poll("", -1, 2, 0.2, 45000), "RX303 warning b0 []", "isolated"},
		{"remote node in the mask does work", newWorld(8).nodes().nic("eth0", nic.Physical, 1, "4-7").carry("eth0", 90000).
			busy(0, 0.1, 0, 1).busy(4, 0.3, 0, 45000).busy(5, 0.3, 0, 45000).poll("eth0", 0, 0, 0.1, 90000).poll("", -1, 4, 0.3, 45000).poll("", -1, 5, 0.3, 45000), "RX303 warning eth0 []", "another memory node"},
		{"mask is the poller's sibling", newWorld(8).smt().nic("eth0", nic.Physical, 1, "4").carry("eth0", 90000).
			busy(0, 0.3, 0, 1).busy(4, 0.4, 0, 90000).poll("eth0", 0, 0, 0.3, 90000).poll("", -1, 4, 0.4, 90000), "RX303 warning eth0 []", "SMT siblings"},
		{"mask all offline", newWorld(4).nic("eth0", nic.Physical, 1, "6-7").carry("eth0", 90000).busy(0, 0.1, 0, 90000).poll("eth0", 0, 0, 0.1, 90000), "RX303 info eth0 []", "offline"},
		{"squeezes with work deferred", newWorld(2).nic("eth0", nic.Physical, 2).carry("eth0", 90000).busy(0, 0.4, 0, 45000).busy(1, 0.4, 0, 45000).
			but(func(w *world) {
				c := &w.Sample.CPUs[0]
				c.Squeezed, c.SoftirqRuns[collector.NetRX], c.TimeIn[collector.InKsoftirqd] = 500, 1000, 2*second
			}), "RX401 warning cpu 0 []", "50 % of the receive runs"},
		{"backlog drops without a hot CPU", newWorld(2).busy(0, 0.3, 0.5, 45000).but(func(w *world) { w.Sample.CPUs[0].Dropped = 100 }), "RX403 warning cpu 0 []", "backlog was full"},
		{"many backlog drops", newWorld(2).busy(0, 0.3, 0.5, 45000).but(func(w *world) { w.Sample.CPUs[0].Dropped, w.Sample.CPUs[0].FlowLimit = 1000, 900 }), "RX403 critical cpu 0 []", "flow limit"},

		// Near misses: nothing may be said.
		{"just not hot", oneQueue().busy(2, 0.49, 0, 900000), "", ""},
		{"hot with next to no traffic", oneQueue().busy(2, 0.9, 0, 9000).but(func(w *world) { w.Sample.NAPIs[0].Packets = 9000 }), "", "too little traffic"},
		{"all CPUs equally hot", newWorld(2).nic("eth0", nic.Physical, 2).carry("eth0", 900000).busy(0, 0.9, 0, 450000).busy(1, 0.85, 0, 450000).
			poll("eth0", 0, 0, 0.9, 450000).poll("eth0", 1, 1, 0.85, 450000), "", "spread, not concentrated"},
		{"hot, the others busy with work", newWorld(2).nic("eth0", nic.Physical, 1).carry("eth0", 900000).busy(0, 0.9, 0, 900000).busy(1, 0, 0.9, 0).
			poll("eth0", 0, 0, 0.9, 900000), "", "nowhere to steer to"},
		{"hot, the only free CPU is isolated", newWorld(2).but(func(w *world) { w.Topology.Isolated = cpuset.Of(1) }).nic("eth0", nic.Physical, 1).carry("eth0", 900000).
			busy(0, 0.9, 0, 900000).poll("eth0", 0, 0, 0.9, 900000), "", "nowhere to steer to"},
		{"stolen by the hypervisor", oneQueue().busy(2, 0.6, 0, 900000).but(func(w *world) { w.Sample.CPUs[2].Steal = 3 * second }), "", "hypervisor took 30 %"},
		{"a burst in one window of three", oneQueue().but(func(w *world) {
			for i := range 3 {
				x := oneQueue()
				if i > 0 {
					x.busy(2, 0.1, 0, 1000)
				}
				w.Windows = append(w.Windows, x.Sample)
			}
		}), "", "a burst, not a state"},
		{"single CPU mask without load", newWorld(4).nic("b0", nic.Virtual, 1, "1").carry("b0", 20000).busy(1, 0.1, 0, 20000).poll("", -1, 1, 0.1, 20000), "", ""},
		{"isolated CPU in the mask without work", newWorld(4).but(func(w *world) { w.Topology.Isolated = cpuset.Of(3) }).nic("b0", nic.Virtual, 1, "2-3").carry("b0", 90000).
			busy(2, 0.2, 0, 90000).poll("", -1, 2, 0.2, 90000), "", ""},
		{"a handful of squeezes", newWorld(2).busy(0, 0.4, 0, 45000).but(func(w *world) { w.Sample.CPUs[0].Squeezed, w.Sample.CPUs[0].SoftirqRuns[3] = 30, 1000 }), "", ""},
		{"squeezes without harm", newWorld(2).busy(0, 0.4, 0, 45000).but(func(w *world) { w.Sample.CPUs[0].Squeezed, w.Sample.CPUs[0].SoftirqRuns[3] = 500, 1000 }), "", "no harm seen"},
		{"squeezes of a stolen CPU", newWorld(2).busy(0, 0.4, 0, 45000).but(func(w *world) {
			c := &w.Sample.CPUs[0]
			c.Squeezed, c.SoftirqRuns[3], c.Steal, c.TimeIn[collector.InKsoftirqd] = 500, 1000, 4*second, 3*second
		}), "", "no budget cures that"},
		{"a few drops", newWorld(2).busy(0, 0.3, 0, 900000).but(func(w *world) { w.Sample.CPUs[0].Dropped = 40 }), "", ""},
		{"drops below the ratio", newWorld(2).busy(0, 0.3, 0, 9000000).but(func(w *world) { w.Sample.CPUs[0].Dropped = 600 }), "", ""},
		{"loopback only", newWorld(4).nic("lo", nic.Loopback, 1).carry("lo", 900000).busy(1, 0.4, 0.4, 900000).poll("", -1, 1, 0.4, 900000), "", ""},
		{"hot with loopback", newWorld(4).nic("lo", nic.Loopback, 1).carry("lo", 900000).busy(1, 0.7, 0.2, 900000).poll("", -1, 1, 0.7, 900000), "", "belongs to the sender"},
		{"another device was asked for", oneQueue().but(func(w *world) { w.Devices = []string{"eth7"} }), "", "which was not asked for"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) { test.in.judge(t, test.want, test.say) })
	}
}

// Without poll times the cause comes from settings and interrupts.
func TestLevel0(t *testing.T) {
	level0 := func(w *world) *world {
		w.Sample.Level = 0
		w.Sample.NAPIs = nil
		for i := range w.Sample.CPUs {
			w.Sample.CPUs[i].SoftirqTime = [10]uint64{}
		}
		return w
	}
	irqs := func(w *world, cpu int, counts ...uint64) *world {
		for i, n := range counts {
			w.Sample.IRQs = append(w.Sample.IRQs, collector.IRQ{IRQ: 20 + i, CPU: cpu, Count: n})
		}
		return w
	}
	tests := []struct {
		name string
		in   *world
		want string
	}{
		{"RPS mask of one CPU", level0(rpsOne()), "RX303 b0"},
		{"single queue", irqs(level0(oneQueue()), 2, 50000), "RX301 eth0"},
		{"vectors on one CPU", irqs(level0(newWorld(4).nic("eth0", nic.Physical, 4).carry("eth0", 900000).busy(0, 0.9, 0, 900000)), 0, 5000, 5000, 5000, 5000), "RX102 eth0"},
		{"veth, RPS off", level0(newWorld(4).nic("veth0", nic.Virtual, 1).carry("veth0", 400000).busy(1, 0.8, 0.1, 400000)), "RX301 veth0"},
		{"veth with little of it", level0(newWorld(4).nic("veth0", nic.Virtual, 1).carry("veth0", 100000).busy(1, 0.8, 0.1, 400000)), "RX101 cpu 1"},
		{"no interrupt seen", level0(oneQueue()), "RX101 cpu 2"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			r := Diagnose(test.in.Input)
			if len(r.Findings) != 2 || r.Findings[1].ID != "RX901" {
				t.Fatalf("want one finding and RX901, got %+v", r.Findings)
			}
			if got := fmt.Sprintf("%s %s", r.Findings[0].ID, r.Findings[0].Subject); got != test.want {
				t.Errorf("got %s, want %s: %s", got, test.want, r.Findings[0].Summary)
			}
		})
	}
}

func TestGapsAreRX901(t *testing.T) {
	tests := []struct {
		name string
		in   *world
		what string // of RX901's summary, "" no RX901
	}{
		{"all measured", oneQueue(), ""},
		{"a gap nobody needs", oneQueue().but(func(w *world) {
			w.Sample.Unmeasured = []collector.Unmeasured{{What: "latency", Why: "level 1"}}
		}), ""},
		{"no idle time", oneQueue().but(func(w *world) {
			w.Sample.Unmeasured = []collector.Unmeasured{{What: collector.StatTimes, Why: "permission denied"}}
			for i := range w.Sample.CPUs {
				w.Sample.CPUs[i].Idle, w.Sample.CPUs[i].Softirq = 0, 0
			}
		}), "idle time per CPU"},
		{"all busy to the last tick", oneQueue().but(func(w *world) {
			for i := range w.Sample.CPUs {
				w.Sample.CPUs[i].Idle, w.Sample.CPUs[i].Softirq = 0, 0
			}
		}), ""},
		{"polls lost", oneQueue().but(func(w *world) { w.Sample.Lost = map[string]uint64{collector.LostPolls: 1 << 20} }), "part of the polls"},
		{"a mask not readable", oneQueue().but(func(w *world) { w.Snapshot.Settings[0].Value = knob.Unknown("needs root") }), "rps-cpus of eth0 rx-0"},
		{"a conflict in the queue map", oneQueue().but(func(w *world) {
			w.NICs[0].Up, w.NICs[0].Problems = true, []string{"rx 2 has no interrupt that any source knows"}
		}), "queue map of eth0"},
		{"a conflict on an interface that is down", oneQueue().but(func(w *world) {
			w.NICs[0].Up, w.NICs[0].Problems = false, []string{"no interrupts"}
		}), ""},
		{"no topology", oneQueue().but(func(w *world) { w.Topology = nil }), "CPU topology"},
		{"too short", oneQueue().but(func(w *world) { w.Sample.Interval = 100 * time.Millisecond }), "receive load"},
		{"no sample", oneQueue().but(func(w *world) { w.Sample = nil }), "receive load"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			got := ""
			for _, f := range Diagnose(test.in.Input).Findings {
				if f.ID == "RX901" {
					got = f.Summary
				}
			}
			if (test.what == "") != (got == "") || !strings.Contains(got, test.what) {
				t.Errorf("RX901 says %q, want %q in it", got, test.what)
			}
		})
	}
}

func TestReportJSON(t *testing.T) {
	r := Diagnose(rpsOne().Input)
	b, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	var got struct {
		IntervalS float64 `json:"interval_s"`
		Findings  []struct {
			ID, Severity, Subject, Summary, Remedy string
			Evidence                               json.RawMessage
		}
		Unmeasured []any
	}
	if err := json.Unmarshal(b, &got); err != nil {
		t.Fatal(err)
	}
	want := `{"cpu":1,"cpu_receive_softirq_ratio":0.97,"share_of_all_receive_softirq_ratio":0.9065,"cpu_idle_ratio":0.03,"packets_per_s":40000,"free_cpus":"0,2-3","in_ksoftirqd_ratio":0,"rps_queues":"0","rps_cpus":"1","backlog_share_of_polls_ratio":1}`
	if diff := cmp.Diff(want, string(got.Findings[0].Evidence)); diff != "" {
		t.Errorf("evidence (-want +got):\n%s", diff)
	}
	if got.IntervalS != 10 || got.Unmeasured == nil || got.Findings[0].Severity != "warning" {
		t.Errorf("report: %s", b)
	}
	again, err := json.Marshal(Diagnose(rpsOne().Input))
	if err != nil || string(again) != string(b) {
		t.Errorf("the same input gave another report: %v\n%s\n%s", err, b, again)
	}
}

func TestSeverityText(t *testing.T) {
	for _, s := range []Severity{Info, Warning, Critical} {
		got, err := ParseSeverity(s.String())
		if err != nil || got != s {
			t.Errorf("%s reads as %v, %v", s, got, err)
		}
	}
	if _, err := ParseSeverity("bad"); err == nil {
		t.Error("bad is a severity")
	}
	if w, ok := Diagnose(rpsOne().Input).Worst(); !ok || w != Warning {
		t.Errorf("worst is %v, %v", w, ok)
	}
	if _, ok := (&Report{}).Worst(); ok {
		t.Error("an empty report has a worst finding")
	}
}

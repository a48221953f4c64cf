package diagnose

import (
	"testing"
	"time"

	"github.com/rxsteer/rxsteer/collector"
	"github.com/rxsteer/rxsteer/internal/cpuset"
	"github.com/rxsteer/rxsteer/internal/host/knob"
	"github.com/rxsteer/rxsteer/internal/host/nic"
)

// vector sets the masks of a queue's vector of the first NIC, and its interrupts on a CPU.
func (w *world) vector(queue int, wanted, effective string, cpu int, interrupts uint64) *world {
	q := &w.NICs[0].Queues[queue]
	var err error
	if q.Affinity, err = cpuset.ParseList(wanted); err != nil {
		panic(err)
	}
	if q.Effective, err = cpuset.ParseList(effective); err != nil {
		panic(err)
	}
	w.set(knob.IRQAffinity, knob.On("eth0", "irq-%d", q.IRQ), knob.Text(wanted))
	w.set(knob.IRQEffective, knob.On("eth0", "irq-%d", q.IRQ), knob.Text(effective))
	if interrupts > 0 {
		w.Sample.IRQs = append(w.Sample.IRQs, collector.IRQ{IRQ: q.IRQ, CPU: cpu, Count: interrupts})
	}
	return w
}

// counted leaves what a pasted table of interrupts tells.
func (w *world) counted() *world {
	w.Sample = &collector.Sample{Interval: time.Second, SinceBoot: true, Untimed: true, IRQs: w.Sample.IRQs}
	return w
}

// onOne is a device of four queues whose vectors all fire on CPU 0.
func onOne(mask string) *world {
	w := newWorld(8).nic("eth0", nic.Physical, 4)
	for q := range 4 {
		w.vector(q, mask, "0", 0, 500_000)
	}
	return w
}

// remote is a device on node 0 of 8 CPUs, whose four queues are handled on CPUs 4 … 7 of node 1.
func remote() *world {
	w := newWorld(8).nodes().nic("eth0", nic.Physical, 4).carry("eth0", 200000)
	for q := range 4 {
		w.busy(4+q, 0.1, 0, 50000).poll("eth0", q, 4+q, 0.1, 50000)
	}
	return w
}

func TestVectors(t *testing.T) {
	tests := []struct {
		name, want, say string
		in              *world
	}{
		// RX102 by counters alone
		{"all vectors on one CPU, interrupts pasted", "RX102 warning eth0 []", "vectors of 4 busy queues of eth0 all go to cpu 0, while cpus 1-7 take none", onOne("0").counted()},
		{"because their masks are wide", "RX102 warning eth0 [RX104]", "", onOne("0-7").counted()},
		{"half-way to hot", "RX102 warning eth0 []", "30 % of its time", onOne("0").carry("eth0", 900000).busy(0, 0.3, 0, 900000).
			poll("eth0", 0, 0, 0.1, 300000).poll("eth0", 1, 0, 0.1, 300000).poll("eth0", 2, 0, 0.1, 300000)},
		{"hot", "RX102 warning eth0 [RX101 RX104]", "", onOne("0-7").carry("eth0", 900000).busy(0, 0.9, 0, 900000).
			poll("eth0", 0, 0, 0.3, 300000).poll("eth0", 1, 0, 0.3, 300000).poll("eth0", 2, 0, 0.3, 300000)},
		{"hot, and the driver does not tell which NAPI serves which queue", "RX102 warning eth0 [RX101]", "vectors of 4 busy queues", onOne("0").carry("eth0", 900000).busy(0, 0.9, 0, 900000).
			poll("eth0", 0, 0, 0.9, 900000).but(func(w *world) {
			for i := range w.NICs[0].Queues {
				w.NICs[0].Queues[i].NAPI = 0
				w.Sample.IRQs[i].Count = 5000
			}
		})},
		{"two devices on a hot CPU", "RX102 warning cpu 0 [RX101]", "the vectors of eth1, eth0 all go to cpu 0", newWorld(4).nic("eth0", nic.Physical, 1).nic("eth1", nic.Physical, 1).
			carry("eth0", 400000).carry("eth1", 500000).busy(0, 0.9, 0, 900000).poll("eth0", 0, 0, 0.4, 400000).poll("eth1", 0, 0, 0.41, 500000).poll("", -1, 0, 0.1, 1000)},
		{"one CPU, not loaded", "", "no harm", onOne("0").carry("eth0", 900000).busy(0, 0.1, 0, 900000).
			poll("eth0", 0, 0, 0.05, 300000).poll("eth0", 1, 0, 0.05, 300000)},
		{"few interrupts pasted", "", "no harm", onOne("0").but(func(w *world) {
			for i := range w.Sample.IRQs {
				w.Sample.IRQs[i].Count = 2000
			}
		}).counted()},
		{"one vector to a CPU, interrupts pasted", "", "", func() *world {
			w := newWorld(4).nic("eth0", nic.Physical, 4)
			for q := range 4 {
				w.vector(q, "0-3", cpuset.Of(q).String(), q, 500_000)
			}
			return w.counted().set(knob.RSSTable, "eth0", buckets(0, 1, 2, 3))
		}()},
		{"kernel threads poll", "", "", onOne("0").set(knob.Threaded, "eth0", knob.Int(1)).set(knob.RSSTable, "eth0", buckets(0, 1, 2, 3)).counted()},

		// RX103
		{"handled on the other node", "RX103 info eth0 []", "100 % of its packets are handled on cpus 4-7 of another", remote()},
		{"and those CPUs have little room", "RX103 warning eth0 []", "give their vectors CPUs of node 0 (0-3)", remote().busy(5, 0.4, 0, 50000)},
		{"half of it", "RX103 info eth0 []", "50 % of its packets", remote().but(func(w *world) { w.Sample.NAPIs[0].CPU, w.Sample.NAPIs[1].CPU = 0, 1 })},
		{"a little of it", "", "on its own memory node", remote().but(func(w *world) {
			for i := range 3 {
				w.Sample.NAPIs[i].CPU = i
			}
			w.Sample.NAPIs[3].Packets = 20000
		})},
		{"one node", "", "", remote().but(func(w *world) {
			for i := range w.Topology.CPUs {
				w.Topology.CPUs[i].Node = 0
			}
		})},
		{"the device tells no node", "", "does not tell its memory node", remote().but(func(w *world) { w.NICs[0].Node = nic.None })},
		{"its node has no CPU", "", "", remote().but(func(w *world) { w.NICs[0].Node = 2 })},
		{"its node is all isolated", "", "", remote().but(func(w *world) { w.Topology.Isolated = cpuset.Range(0, 3) })},
		{"next to no traffic", "", "", remote().but(func(w *world) {
			w.Sample.Devices[0].RXPackets = 900
			for i := range w.Sample.NAPIs {
				w.Sample.NAPIs[i].Packets = 200
			}
		})},

		// RX104
		{"in effect outside the mask", "RX104 warning eth0 []", "vector 20 wants cpu 4-7 and is on cpu 0", even(2, "igb").vector(0, "4-7", "0", 0, 5000).vector(1, "1", "1", 1, 5000)},
		{"vectors ran out", "RX104 warning eth0 []", `the kernel log says "Affinity broken due to vector space exhaustion" of 2 interrupts`, even(2, "igb").vector(0, "4-7", "0", 0, 0).but(func(w *world) {
			w.Events = []Event{{"affinity-broken", "irq 749"}, {"affinity-broken", "irq 750"}, {"link", "x"}}
		})},
		{"vectors ran out, by the log alone", "RX104 warning host []", "vectors ran out", even(2, "igb").but(func(w *world) { w.Events = []Event{{"affinity-broken", "irq 749"}} })},
		{"a controller that ignores masks", "RX104 warning eth0 []", "delivers to its first CPU whatever the mask says", even(2, "bcmgenet").packets(10000, 10000).
			but(func(w *world) { w.Sample.NAPIs[1].CPU = 0 }).vector(0, "2", "0", 0, 5000).vector(1, "3", "0", 0, 5000)},
		{"the poll never lets go", "RX104 info eth0 []", "rx-0 of eth0 is still polled on cpu 0 though its vector 20 wants cpu 5", even(2, "igb").vector(0, "5", "5", 5, 2)},
		{"moved, not fired since", "", "", even(2, "igb").vector(0, "4-7", "0", 0, 3).but(func(w *world) { w.Sample.NAPIs[0].CPU = 4 })},
		{"moved during the measurement", "", "", even(2, "igb").vector(0, "5", "5", 5, 2000)},
		{"busy polling", "", "", even(2, "igb").vector(0, "5", "5", 5, 2).but(func(w *world) { w.Sample.NAPIs[0].BusyPolls = 5 })},
		{"wide masks, spread", "", "", even(2, "igb").vector(0, "0-7", "0", 0, 5000).vector(1, "0-7", "1", 1, 5000)},

		// RX105
		{"irqbalance moves a vector back", "RX105 warning eth0 []", "irqbalance moved 1 vector of eth0 within 10 s (vector 20 from cpu 3 to 0)", even(2, "igb").vector(0, "0", "0", 0, 5000).but(func(w *world) {
			w.NICs[0].Queues[0].Affinity = cpuset.Of(3)
			w.Snapshot.Owners = []knob.Owner{{Name: "irqbalance", Knobs: []knob.Kind{knob.IRQAffinity}, Detail: "pid 7", Settle: []string{"IRQBALANCE_ARGS=--banirq=20"}}}
		})},
		{"moved away and back within the measurement", "RX105 warning eth0 []", "vector 20 from cpu 6 to 0", even(2, "igb").vector(0, "0", "0", 0, 5000).but(func(w *world) {
			for _, cpu := range []int{0, 6, 0} {
				w.Windows = append(w.Windows, &collector.Sample{Interval: time.Second, IRQs: []collector.IRQ{{IRQ: 20, CPU: cpu, Count: 1500}}})
			}
		})},
		{"fires elsewhere to the end", "RX104 warning eth0 []", "", even(2, "igb").vector(0, "4-7", "0", 0, 5000).but(func(w *world) {
			for range 3 {
				w.Windows = append(w.Windows, &collector.Sample{Interval: time.Second, IRQs: []collector.IRQ{{IRQ: 20, CPU: 0, Count: 1500}}})
			}
		})},
		{"moved and not in effect yet", "RX105 warning eth0 []", "", even(2, "igb").vector(0, "4-7", "0", 0, 5000).but(func(w *world) { w.NICs[0].Queues[0].Affinity = cpuset.Of(0) })},
		{"somebody unknown", "RX105 warning eth0 []", "somebody moved 1 vector of eth0", even(2, "igb").vector(0, "0", "0", 0, 5000).but(func(w *world) { w.NICs[0].Queues[0].Affinity = cpuset.Of(3) })},
		{"irqbalance runs and moves nothing", "", "irqbalance may write the affinity of eth0", even(2, "igb").vector(0, "0", "0", 0, 5000).but(func(w *world) {
			w.Snapshot.Owners = []knob.Owner{{Name: "irqbalance", Knobs: []knob.Kind{knob.IRQAffinity}}}
		})},

		// RX106
		{"managed vectors on the other node", "RX103 info eth0 []\nRX106 info eth0 []", "the kernel manages 2 vectors of eth0", remote().set(knob.IRQManaged, "eth0 irq-20", knob.Bool(true)).set(knob.IRQManaged, "eth0 irq-21", knob.Bool(true))},
		{"managed vectors, nothing to move", "", "", even(2, "nvme").set(knob.IRQManaged, "eth0 irq-20", knob.Bool(true))},

		// RX107
		{"on isolated CPUs", "RX107 warning eth0 []", "2 queues of eth0 (50 % of its packets) are handled on cpus 2-3", even(4, "igb").but(func(w *world) { w.Topology.Isolated = cpuset.Range(2, 3) })},
		{"on nohz_full CPUs", "RX107 warning eth0 []", "", even(4, "igb").but(func(w *world) { w.Topology.NoHzFull = cpuset.Of(3) })},
		{"isolated CPUs elsewhere", "", "", even(4, "igb").but(func(w *world) { w.Topology.Isolated = cpuset.Range(4, 7) })},
		{"an AF_XDP socket on an isolated CPU", "", "", even(4, "igb").but(func(w *world) {
			w.Topology.Isolated = cpuset.Of(3)
			w.NICs[0].Queues[3].XSK = true
		})},
		{"two threads of one core", "RX107 info eth0 []", "two threads of one core, while the cores of cpus 1-3,5-7 take none", newWorld(8).smt().nic("eth0", nic.Physical, 2).carry("eth0", 600000).
			busy(0, 0.3, 0, 300000).busy(4, 0.3, 0, 300000).poll("eth0", 0, 0, 0.3, 300000).poll("eth0", 1, 4, 0.3, 300000)},
		{"two threads with little to do", "", "", newWorld(8).smt().nic("eth0", nic.Physical, 2).carry("eth0", 600000).
			busy(0, 0.1, 0, 300000).busy(4, 0.1, 0, 300000).poll("eth0", 0, 0, 0.1, 300000).poll("eth0", 1, 4, 0.1, 300000)},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) { test.in.judge(t, test.want, test.say) })
	}
}

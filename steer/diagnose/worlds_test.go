package diagnose

import (
	"github.com/rxsteer/rxsteer/collector"
	"github.com/rxsteer/rxsteer/internal/host/knob"
	"github.com/rxsteer/rxsteer/internal/host/nic"
)

// caches splits the CPUs into two last-level caches of one node.
func (w *world) caches() *world {
	for i := range w.Topology.CPUs {
		w.Topology.CPUs[i].LLC = i * 2 / len(w.Topology.CPUs)
	}
	return w
}

// flow adds one of a queue's biggest flows, polled on cpu and read on reader (-1 not known).
func (w *world) flow(device string, queue, cpu, reader int, packets uint64) *world {
	w.Sample.Level = 2
	w.Sample.Flows = append(w.Sample.Flows, collector.Flow{Netns: here, Device: device, RXQueue: queue, CPU: cpu, Protocol: "tcp", Bucket: -1, Packets: packets, Bytes: packets * 1448, ConsumerCPU: reader, Share: 1})
	return w
}

// threads is a device of seven queues polled by kernel threads, all on one CPU or each on its own.
func threads(cpu func(queue int) int) *world {
	w := newWorld(8).nic("wlan0", nic.Physical, 7).carry("wlan0", 1_400_000).set(knob.Threaded, "wlan0", knob.Int(1))
	for q := range 7 {
		w.poll("wlan0", q, cpu(q), 0, 200_000)
		if c := &w.Sample.CPUs[cpu(q)]; c.Processed == 0 {
			w.busy(cpu(q), 0, 0.9, 200_000)
		}
	}
	return w
}

// crowd is four busy queues of a device on cpu 0.
func crowd(w *world, device string) *world {
	w.busy(0, 0.9, 0, 900_000)
	for q := range 4 {
		w.poll(device, q, 0, 0.2, 225_000)
	}
	return w
}

// pair is a synthetic device over its virtual function, whose packets both count.
func pair(up bool) *world {
	w := newWorld(8).nic("eth0", nic.Physical, 4).nic("enP1", nic.Physical, 4).carry("eth0", 900_000)
	w.NICs[0].Driver, w.NICs[0].Lower, w.NICs[1].Driver, w.NICs[1].Master, w.NICs[1].Up = "hv_netvsc", []string{"enP1"}, "mlx5_core", "eth0", up
	if !up {
		return crowd(w, "eth0")
	}
	return crowd(w.carry("enP1", 900_000).poll("eth0", 0, 0, 0, 50), "enP1")
}

// worldCases are the states of hosts that are measured live, not pasted: built up by small steps.
var worldCases = []struct {
	name, head string
	in         func() *world
}{
	{"43-rps-on-the-bond", `case: 43 RPS on the bond device itself, above members that are set alike: a second stage, said
say: RPS is set on bond0 itself (cpus 2-3): a second stage of steering, after that of its members ten0, ten1`, func() *world {
		return newWorld(4).nic("ten0", nic.Physical, 2).nic("ten1", nic.Physical, 2).nic("bond0", nic.Stack, 1, "2-3").carry("ten0", 50_000).carry("ten1", 50_000).carry("bond0", 100_000).but(func(w *world) {
			w.NICs[0].Driver, w.NICs[1].Driver, w.NICs[2].Driver, w.NICs[2].Lower = "ixgbe", "ixgbe", "bond", []string{"ten0", "ten1"}
		})
	}},
	{"61-budget-limited", `case: 61 half of the receive runs end with work left, polls fill their budget and ksoftirqd works: harm, and which limit
want: RX401 warning "cpu 0"
say: budget-limited: most polls fill their budget
say: netdev_budget only where polls fill their budget`, func() *world {
		w := newWorld(2).nic("eth0", nic.Physical, 2).carry("eth0", 90000).busy(0, 0.4, 0, 45000).busy(1, 0.4, 0, 45000).poll("eth0", 0, 0, 0.4, 45000).poll("eth0", 1, 1, 0.4, 45000)
		c := &w.Sample.CPUs[0]
		c.Squeezed, c.SoftirqRuns[collector.NetRX], c.TimeIn[collector.InKsoftirqd] = 500, 1000, 2*second
		w.Sample.NAPIs[0].Polls, w.Sample.NAPIs[0].FullBudget = 1000, 700
		return w
	}},
	{"61-time-limited", `case: 61 the same, and polls are far from their budget: a larger netdev_budget would change nothing
want: RX401 warning "cpu 0"
say: time-limited (netdev_budget_usecs)`, func() *world {
		w := newWorld(2).nic("eth0", nic.Physical, 2).carry("eth0", 90000).busy(0, 0.4, 0, 45000).busy(1, 0.4, 0, 45000).poll("eth0", 0, 0, 0.4, 45000).poll("eth0", 1, 1, 0.4, 45000)
		c := &w.Sample.CPUs[0]
		c.Squeezed, c.SoftirqRuns[collector.NetRX], c.TimeIn[collector.InKsoftirqd] = 500, 1000, 2*second
		w.Sample.NAPIs[0].Polls, w.Sample.NAPIs[0].FullBudget = 1000, 7
		return w
	}},
	{"71-threads-on-one-cpu", `case: 71 seven NAPI threads on one CPU: threads, not vectors, decide
want: RX505 warning wlan0 cpu=3 queues_there=7 share_of_packets_ratio=1
say: moving smp_affinity changes nothing
say: PF_NO_SETAFFINITY`, func() *world { return threads(func(int) int { return 3 }) }},
	{"71-threads-spread", `case: 71 each thread on its own CPU: silent
say: threaded NAPI of wlan0: its threads spread`, func() *world { return threads(func(q int) int { return q }) }},
	{"83-reader-in-the-other-cache", `case: 83 one node, two caches: handled in one, read in the other
want: RX103 info eth0 poll_cpus=0 reader_cpus=7 near_cpus=6,8-11
say: not theirs`, func() *world {
		return newWorld(12).caches().nic("eth0", nic.Physical, 4).carry("eth0", 900_000).busy(0, 0.4, 0.1, 900_000).poll("eth0", 0, 0, 0.4, 900_000).flow("eth0", 0, 0, 7, 800_000)
	}},
	{"83-reader-next-door", `case: 83 another core of the same cache: as it should be, silent
say: 0/s cross`, func() *world {
		return newWorld(12).caches().nic("eth0", nic.Physical, 4).carry("eth0", 900_000).busy(0, 0.4, 0.1, 900_000).poll("eth0", 0, 0, 0.4, 900_000).flow("eth0", 0, 0, 2, 800_000)
	}},
	{"94-vf-carries", `case: 94 a synthetic device and its virtual function: the function polls all of what both count, four queues on one CPU
want: RX102 warning enP1 [RX101] cpu=0
say: eth0 and enP1 are one interface: its packets arrive on the virtual function enP1`, func() *world { return pair(true) }},
	{"94-vf-down", `case: 94 near miss. The function is down: the synthetic queues carry, and nothing is said of a pair
want: RX102 warning eth0 [RX101] cpu=0`, func() *world { return pair(false) }},
	{"43-vlan-named", `case: 43 a VLAN is asked for: what it stands on is judged
want: RX102 warning eth0 [RX101] cpu=0`, func() *world {
		w := crowd(newWorld(8).nic("eth0", nic.Physical, 4).nic("eth1", nic.Physical, 4).nic("vlan10", nic.Stack, 1).carry("eth0", 900_000), "eth0")
		w.NICs[2].Lower, w.NICs[2].Driver, w.Devices = []string{"eth0"}, "vlan", []string{"vlan10"}
		return w
	}},
	{"43-other-vlan-named", `case: 43 near miss. A VLAN of another device is asked for
say: because of eth0, which was not asked for`, func() *world {
		w := crowd(newWorld(8).nic("eth0", nic.Physical, 4).nic("eth1", nic.Physical, 4).nic("vlan10", nic.Stack, 1).carry("eth0", 900_000), "eth0")
		w.NICs[2].Lower, w.NICs[2].Driver, w.Devices = []string{"eth1"}, "vlan", []string{"vlan10"}
		return w
	}},
	{"83-a-few-packets-cross", `case: 83 near miss. A few packets cross
say: cross`, func() *world {
		return newWorld(12).caches().nic("eth0", nic.Physical, 4).carry("eth0", 900_000).busy(0, 0.4, 0.1, 900_000).poll("eth0", 0, 0, 0.4, 900_000).flow("eth0", 0, 0, 2, 800_000).flow("eth0", 0, 0, 7, 90_000)
	}},
}

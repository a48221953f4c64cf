package diagnose

import (
	"cmp"
	"slices"
)

// Entry is what `rxsteer explain` prints about a finding.
type Entry struct {
	ID       ID
	Title    string
	Detected bool   // this version looks for it
	Cause    string // what goes wrong in the kernel or device
	Measured string // which numbers show it
	Do       string
	Verify   string // how to see that it helped
	Reading  []string
}

const (
	scaling  = "Documentation/networking/scaling.rst"
	napi     = "Documentation/networking/napi.rst"
	affinity = "Documentation/core-api/irq/irq-affinity.rst"
	netSys   = "Documentation/admin-guide/sysctl/net.rst"
	ethNL    = "Documentation/networking/ethtool-netlink.rst"
	stats    = "Documentation/networking/statistics.rst"
)

// Catalogue is every finding by ID. IDs never change meaning.
func Catalogue() []Entry {
	all := slices.Concat(placement, load)
	slices.SortFunc(all, func(a, b Entry) int { return cmp.Compare(a.ID, b.ID) })
	for i := range all {
		all[i].Detected = all[i].ID == "RX901" || slices.ContainsFunc(rules, func(r rule) bool { return slices.Contains(r.ids, all[i].ID) })
	}
	return all
}

// Explain returns the entry of a finding.
func Explain(id ID) (Entry, bool) {
	for _, e := range Catalogue() {
		if e.ID == id {
			return e, true
		}
	}
	return Entry{}, false
}

// placement is RX1xx to RX3xx, RX7xx and RX9xx: where receive work runs and how it gets there.
var placement = []Entry{
	{ID: "RX101", Title: "receive softirq concentrated on one CPU",
		Cause:    "The kernel handles a received packet on the CPU that took the queue's interrupt, or on the one RPS names. When one CPU gets most packets it saturates while others idle: latency grows, then packets are dropped.",
		Measured: "NET_RX softirq time per CPU (softirq_entry/exit; at level 0 the softirq time of /proc/stat), the idle time of the others, packets per CPU, stolen time. Said only above 1000 packets/s, half a CPU, twice the average of the other CPUs, with a CPU at least 20 % idle, in most sub-windows.",
		Do:       "Follow the cause when one is named (RX102, RX301, RX303). Alone it means few flows, one large flow, or a hash that sees no difference: look at flows and hash fields before moving interrupts.",
		Verify:   "The hottest CPU's share of receive softirq falls, packets delivered do not; rxsteer apply computes both over several windows.",
		Reading:  []string{scaling}},
	{ID: "RX102", Title: "vectors of several busy queues on one CPU",
		Cause:    "Each queue's interrupt vector names a CPU. Several busy queues on one CPU undo what the NIC's hash spread; drivers, irqbalance with few allowed CPUs or a boot default leave them so.",
		Measured: "Which queues are polled on the CPU (napi_poll; at level 0 and in pasted texts the interrupt counts), of one device or of several, their vectors' masks. Said where the CPU is hot, or where it has more than a quarter of its time in receive softirq, or (interrupts only) has taken 100000, and other CPUs take none. Wide masks are named: a mask of several CPUs is no spreading.",
		Do:       "One busy queue per physical core on the device's node, off isolated CPUs: smp_affinity. Not RPS: over enough queues it costs more than it gives.",
		Verify:   "effective_affinity_list after the next interrupt, and polls of each queue on its own CPU.",
		Reading:  []string{affinity, scaling}},
	{ID: "RX103", Title: "queue handled on a remote NUMA node or another last-level cache than its consumers",
		Cause:    "Descriptors and buffers lie in the device's memory node; a CPU of another node misses its cache on each packet.",
		Measured: "The node of the device, the CPUs that handle its busy queues, cost per packet there and on local CPUs: said where a quarter of the packets are handled elsewhere, never where the device tells no node. With packets sampled (level 2) also the CPUs that read each big flow: said where queues are polled in one last-level cache and read in another, from 20,000 packets/s and a quarter of the device's on.",
		Do:       "Move vectors and RPS masks to CPUs of the device's node, or of the last-level cache of the readers.",
		Verify:   "Receive time per packet falls.", Reading: []string{scaling}},
	{ID: "RX104", Title: "wanted affinity not in effect",
		Cause:    "smp_affinity is a wish. x86 targets one CPU of a wide mask, a move waits for the next interrupt (under a NAPI that never idles: for ever), vectors of a CPU run out, some interrupt controllers only ever use the first CPU.",
		Measured: "smp_affinity_list beside effective_affinity_list, where interrupts fired and where napi_poll runs, the kernel log (\"Affinity broken due to vector space exhaustion\"), vectors per CPU. Never said of threaded NAPI or busy polling.",
		Do:       "Name single CPUs; where vectors ran out choose another CPU; where the platform ignores it use RPS.",
		Verify:   "effective_affinity_list and the polls.", Reading: []string{affinity}},
	{ID: "RX105", Title: "another owner rewrites settings",
		Cause:    "irqbalance, tuned, udev and .link policies, NetworkManager, cloud guest agents or the driver itself set the same values again.",
		Measured: "A vector whose mask differs between the beginning and the end of the measurement, and who is known to write masks here (irqbalance, tuned, agents). An owner that moves nothing is only mentioned.",
		Do:       "Settle who owns the setting: a ban, a policy line, or leave it to the other.",
		Verify:   "The value holds for two periods of the other owner (irqbalance: 10 s).", Reading: []string{affinity}},
	{ID: "RX106", Title: "managed vector: affinity cannot be changed",
		Cause:    "The driver let the kernel spread its vectors (managed interrupts); writes fail with EIO, from 6.12 with EPERM. It is permanent.",
		Measured: "The kernel's flag or the errno of a write; said only where another finding wants to move the vector.",
		Do:       "Change the queue count or the isolated CPUs (isolcpus=managed_irq), or steer above the vector with RPS.",
		Verify:   "Not a thing to verify: report it and choose another lever.", Reading: []string{affinity}},
	{ID: "RX107", Title: "isolated, offline or SMT-sibling CPUs used",
		Cause:    "Receive work on an isolated CPU disturbs what it was isolated for; on a sibling of a busy CPU it shares the core; offline CPUs do nothing.",
		Measured: "Where busy queues are handled, against cpu/isolated, nohz_full, isolated cpuset partitions and thread_siblings_list. Siblings count where both are busy (half a CPU together) and other cores of the node take no queue. Queues of AF_XDP sockets are left out.",
		Do:       "Take those CPUs out of the affinity.", Verify: "No receive softirq on them.", Reading: []string{affinity}},
	{ID: "RX201", Title: "indirection table fits the measured bucket load badly",
		Cause:    "The table maps hash buckets to queues evenly, but buckets are not equally loaded.",
		Measured: "With packets sampled (level 2) the receive time of each bucket: said where the hottest queue has 1.25 times what it must have, beyond the error of the sample (at least 1000 packets), and its CPU spends a tenth of its time on it. Else the buckets of each queue: said where one has 1.5 times those of another and the packets follow; the gain is then an estimate, and says so.",
		Do:       "A table that levels the measured load with few moves (ethtool -X).",
		Verify:   "Packets per queue follow the table; the hottest CPU cools.", Reading: []string{scaling, ethNL}},
	{ID: "RX202", Title: "table reaches fewer queues than exist, or missing ones",
		Cause:    "Some drivers limit the table to 16 queues, keep a table of an earlier queue count, or leave it all zero.",
		Measured: "The table read back, against the queues there are, the queues that receive, the driver's known limit, and who owns the rest (AF_XDP, RSS contexts, ntuple rules). A table of zeros is judged by counters only.",
		Do:       "Reset it (ethtool -X DEV default) or set as many channels as it reaches.",
		Verify:   "Every queue receives.", Reading: []string{scaling, ethNL}},
	{ID: "RX203", Title: "hash leaves out ports for a flow type that has them",
		Cause:    "The NIC hashes only addresses for that flow type (common default for UDP), so all flows of a host pair land in one queue.",
		Measured: "Hash fields of the flow type, the share of the busiest queue against its part of the table, and how much of it must be that protocol (the classes of sampled packets, else the counters of IP, UDP and TCP). Not said where one flow fills the queue, where 5 % of the IP packets are fragments, or where a tunnel or the device itself explains the queue.",
		Do:       "ethtool -N DEV rx-flow-hash udp4 sdfn, unless the traffic is fragmented: fragments have no ports and would be reordered.",
		Verify:   "Flows spread over buckets, no reordering.", Reading: []string{scaling}},
	{ID: "RX204", Title: "traffic that cannot be spread by hash sits in one queue",
		Cause:    "Tunnels with constant outer addresses, fragments, PPPoE and non-IP frames give the NIC's hash nothing to tell flows apart.",
		Measured: "The classes of sampled packets (level 2: GRE, IPIP, PPPoE, fragments, not IP), else packets or bytes of tunnel devices (GRE, IPIP, SIT, IPsec, WireGuard, PPP, L2TP) against those of the NICs, and the queue that stands out: said where at least half of it must be of that kind.",
		Do:       "RPS on that queue: the kernel's dissector sees the inner headers.",
		Verify:   "Receive work of that queue on several CPUs.", Reading: []string{scaling}},
	{ID: "RX205", Title: "elephant: one flow fills a bucket beyond a fair share",
		Cause:    "A flow is never split over queues, for that would reorder it.",
		Measured: "Packets of each bucket and of the biggest flows, sampled (level 2), against a queue's fair share: said where the bucket exceeds it by a tenth beyond the error of the sample, one to a few flows are most of it, and the CPU spends half of its time in receive softirq. Two flows of one bucket are told from one.",
		Do:       "Keep other flows away from its queue; two elephants in one bucket apart by an ntuple rule or another key; alone and too large: RFS to pipeline, GRO, coalescing.",
		Verify:   "The other flows' latency; the elephant's rate.", Reading: []string{scaling}},
	{ID: "RX206", Title: "NIC accepts a table but traffic does not follow it",
		Cause:    "Firmware, driver or hypervisor ignores the table though the command succeeds.",
		Measured: "Packets per queue against the table: a fifth of them on queues it does not name; a million since boot without one for a queue that it names; a fifth of sampled packets elsewhere than where the table sends their bucket; or a driver known for it, with 97 % in one queue. Not said where filters, the flow director or accelerated RFS place flows.",
		Do:       "Roll the table back, use RPS.", Verify: "Receive work per CPU.", Reading: []string{scaling}},
	{ID: "RX207", Title: "queues owned by someone",
		Cause:    "AF_XDP sockets, RSS contexts and ntuple rules bind queues; channel and table changes on them are refused or break them.",
		Measured: "AF_XDP sockets, contexts and rules of the device; said where another finding wants to change what they depend on.",
		Do:       "Leave those queues alone; steer among the rest.", Verify: "Their owner still receives.", Reading: []string{"Documentation/networking/af_xdp.rst"}},
	{ID: "RX208", Title: "fewer active flows than queues",
		Cause:    "Each flow uses one queue; idle queues with few flows are no fault.",
		Measured: "Busy queues, and the flows: those sampled where they are nine tenths of the packets, else as a bound the TCP connections open now and opened meanwhile, where nearly all packets are TCP. Reported where the interface was asked for or its CPU is hot.", Do: "Nothing to steer; RFS moves the protocol work of a large flow to its reader.", Verify: "More connections use more queues.", Reading: []string{scaling}},
	{ID: "RX301", Title: "too few queues for the load and RPS off",
		Cause:    "A single-queue device (or one with fewer queues than the load needs, or a virtual one with no interrupt of its own) has all receive work on the polling CPU unless RPS spreads its protocol part.",
		Measured: "Receive queues against usable CPUs, rps_cpus, which CPU polls and for how long, which others are free.",
		Do:       "More channels where the driver has them; else rps_cpus over free physical cores of the device's node. The driver's own part of the work stays where it is.",
		Verify:   "Backlog work appears on the CPUs of the mask, the polling CPU cools, packets delivered do not fall.",
		Reading:  []string{scaling}},
	{ID: "RX302", Title: "RPS on top of enough queues",
		Cause:    "With a queue per CPU, RPS only adds an interrupt between CPUs and a cache miss per packet.",
		Measured: "A busy queue for every core the device may use, each on a CPU of its own, RPS masks, and work in the backlog that is neither loopback's nor a virtual device's. Not said where RFS needs RPS.",
		Do:       "echo 0 > rps_cpus.", Verify: "Receive time per packet falls.", Reading: []string{scaling}},
	{ID: "RX303", Title: "RPS mask wrong: one CPU, remote, sibling, isolated or offline CPUs",
		Cause:    "rps_cpus names CPUs that cannot take the work: a single one, only threads of one core, another memory node, isolated ones. The kernel drops isolcpus= and nohz_full CPUs from a written mask without a word (rps_cpumask_housekeeping, net/core/net-sysfs.c) and refuses it with EINVAL when none is left.",
		Measured: "rps_cpus against the topology, and how much backlog work (napi_poll without a device) ran on those CPUs.",
		Do:       "A mask of free physical cores on the device's node, housekeeping CPUs only; the polling CPU only while it has room.",
		Verify:   "Read the mask back; backlog work on several CPUs; packets delivered, drops.",
		Reading:  []string{scaling}},
	{ID: "RX304", Title: "RFS table absent or mis-sized for long flows",
		Cause:    "RPS places flows by hash, away from the CPU that reads them; RFS follows the reader, if both its tables hold all flows.",
		Measured: "rps_sock_flow_entries and rps_flow_cnt: one without the other, or fewer entries than open TCP connections. With packets sampled also where RPS is on without RFS and most packets are of flows seen in every window, each read on one CPU.",
		Do:       "rps_sock_flow_entries at least the flows, next power of two; per queue that divided by the queues.",
		Verify:   "Protocol work on the readers' CPUs.", Reading: []string{scaling}},
	{ID: "RX305", Title: "XPS missing or crossing the IRQ layout",
		Cause:    "A CPU that sends through a queue whose completions run elsewhere shares its lock and cache lines.",
		Measured: "xps_cpus against the CPUs of the vectors, from 50000 sent packets/s on: half of the queues crossed, or none mapped with a queue for each CPU.",
		Do:       "xps_cpus of each queue to the CPUs of its vector.", Verify: "Transmit completions on the sending CPUs.", Reading: []string{scaling}},
	{ID: "RX701", Title: "the host or backend chooses queues",
		Cause:    "virtio without RSS and netvsc deliver to the queue the other side picks: idle queues are no fault of the guest.",
		Measured: "The device offers no table, its driver is one whose backend chooses, and one queue stands out.", Do: "RPS is what the guest can do; else the backend's threads.", Verify: "Receive work per CPU.", Reading: []string{scaling}},
	{ID: "RX702", Title: "only part of a bond, bridge or VLAN stack is tuned",
		Cause:    "Settings belong to lower devices; one was forgotten.",
		Measured: "Hash fields, channels, rings, coalescing, features, threading, RPS and table of the members of one driver side by side; values that adaptive moderation moves are left out. What a member suffers for want of another's setting is explained by it.", Do: "The same settings on each.", Verify: "status of each.", Reading: []string{"Documentation/networking/bonding.rst"}},
	{ID: "RX901", Title: "something could not be measured or read",
		Cause:    "A privilege, a kernel feature or a file is missing, events were lost, or the interval was too short.",
		Measured: "The list under unmeasured, each with its reason and the findings it weakens.",
		Do:       "rxsteer doctor says what would give it.", Verify: "The list is empty.", Reading: nil},
}

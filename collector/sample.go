package collector

import "time"

// SampleVersion is the schema of a serialised Sample.
const SampleVersion = 1

// Buckets is the length of the log2 histograms: bucket i counts values v with
// 2^(i-1) ≤ v < 2^i, bucket 0 counts v = 0, the last one everything above.
const Buckets = 32

// Histogram is a log2 histogram (see Buckets).
type Histogram [Buckets]uint64

// Context says over what a NET_RX run took the CPU.
type Context int

const (
	OverTask    Context = iota // at the end of an interrupt or in bh-enable, over a task
	OverIdle                   // over the idle task
	InKsoftirqd                // in ksoftirqd
	Contexts                   // how many there are
)

// Sample is everything measured in one interval: deltas of cumulative kernel and BPF
// counters. It is immutable once published. Times are nanoseconds.
type Sample struct {
	Version  int           `json:"version"`
	Start    time.Time     `json:"start"`
	End      time.Time     `json:"end"`
	Interval time.Duration `json:"interval_ns"` // monotonic
	// SinceBoot says that these are the counters of a single look at a host: what they show may be long past.
	// Untimed says that Interval is made up: only ratios between counters mean something.
	SinceBoot bool `json:"since_boot,omitempty"`
	Untimed   bool `json:"untimed,omitempty"`
	// Level is what was attached: 0 kernel counters only, 1 the per-poll programs, 2 packets.
	Level int `json:"level"`
	// Closer is why level 2 was climbed to, where that was decided by what was seen.
	Closer  string   `json:"closer_look,omitempty"`
	CPUs    []CPU    `json:"cpus"`    // by CPU
	NAPIs   []NAPI   `json:"napis"`   // by netns, ifindex, NAPI, CPU
	IRQs    []IRQ    `json:"irqs"`    // by IRQ, CPU
	Devices []Device `json:"devices"` // by ifindex; the reader's own network namespace
	// Drivers is what the drivers' own counters grew by, by ifindex; read less often than the rest
	// where a driver is slow to tell, so that a short Sample may show nothing and the next one more.
	Drivers []Driver `json:"drivers,omitzero"`
	// TCP is the busiest connections, nil where they were not read; read less often where there are many.
	TCP *TCP `json:"tcp,omitempty"`
	// Stages, Buckets and Flows are of level 2, nil below: by stage, device, queue, CPUs; by ifindex;
	// by device, queue, most packets first.
	Stages  []Stage         `json:"stages,omitzero"`
	Buckets []DeviceBuckets `json:"buckets,omitzero"`
	Flows   []Flow          `json:"flows,omitzero"`
	// XDP is what XDP did at level 2, by device, outcome, CPU, as far as the kernel has tracepoints for it.
	XDP []XDP `json:"xdp,omitempty"`
	// Drops is what the kernel threw away at level 2 and why, by reason, place, CPU; counted while packets are followed
	// (Cost.DutyPackets). Counters of devices, softnet and protocols count the same packets again.
	Drops []Drop `json:"drops,omitempty"`
	// Pacing is how interrupts followed one another, by IRQ; Learned what traffic has shown of the map, by device,
	// NAPI. nil: no programs.
	Pacing  []Pacing `json:"pacing,omitzero"`
	Learned []Link   `json:"learned,omitzero"`
	// Cost is what this Sample cost and what was thinned for it; nil where nothing was attached.
	Cost *Cost `json:"cost,omitempty"`
	// Protocols is what counters of IP, TCP and UDP grew by in the reader's own network
	// namespace, by their names in nstat(8) ("UdpInDatagrams", "TcpExtListenDrops"). One that stood
	// still is left out; nil: not read.
	Protocols map[string]uint64 `json:"protocols,omitzero"`
	// Established is the TCP connections open at the end, a level: TcpCurrEstab; 0 where not told.
	Established uint64 `json:"established,omitempty"`
	// Unmeasured names what this Sample could not see, and why.
	Unmeasured []Unmeasured `json:"unmeasured,omitempty"`
	// Lost counts events the BPF programs could not record, by cause.
	Lost map[string]uint64 `json:"lost,omitempty"`
}

// Unmeasured is one thing a Sample does not hold.
type Unmeasured struct {
	What string `json:"what"`
	Why  string `json:"why"`
}

// SoftirqNames are the kernel's vectors in order (include/linux/interrupt.h).
var SoftirqNames = [10]string{"HI", "TIMER", "NET_TX", "NET_RX", "BLOCK", "IRQ_POLL", "TASKLET", "SCHED", "HRTIMER", "RCU"}

// Indices into SoftirqNames.
const (
	NetTX = 2
	NetRX = 3
)

// CPU is one CPU's part of the interval.
type CPU struct {
	CPU int `json:"cpu"`
	// SoftirqTime is ns spent in each softirq vector (level ≥ 1), SoftirqRuns the runs. Runs
	// are the kernel's count; times are of the runs it called our programs in.
	SoftirqTime [10]uint64 `json:"softirq_ns"`
	SoftirqRuns [10]uint64 `json:"softirq_runs"`
	// Untraced are NET_RX runs the kernel counted but did not call our programs in
	// (docs/known-issues.md), or passed by
	// (see Cost). A few may be runs between the reading of one counter and of the
	// other. Where they are many, Unmeasured says so and NET_RX times, contexts and polls of
	// this CPU are scaled up to all runs.
	Untraced uint64 `json:"untraced_runs,omitempty"`
	// Unseen are NET_RX runs for which the times, polls and contexts of this CPU do not stand: none of the interval was
	// looked at. Merge lets those of other intervals stand for them.
	Unseen uint64 `json:"unseen_runs,omitempty"`
	// Tail is NET_RX time after the last poll of a run: GRO flush, deferred frees, RPS IPIs.
	Tail uint64 `json:"tail_ns"`
	// RunsIn and TimeIn split NET_RX by Context.
	RunsIn [Contexts]uint64 `json:"runs_in"`
	TimeIn [Contexts]uint64 `json:"time_in_ns"`
	// From /proc/stat: ns of the interval this CPU was idle (idle + iowait), in softirq,
	// in hard irq, and stolen by the hypervisor; USER_HZ resolution.
	Idle    uint64 `json:"idle_ns"`
	Softirq uint64 `json:"stat_softirq_ns"`
	Irq     uint64 `json:"stat_irq_ns"`
	Steal   uint64 `json:"steal_ns"`
	// From /proc/net/softnet_stat.
	Processed   uint64 `json:"processed"`    // packets through __netif_receive_skb_core on this CPU
	Dropped     uint64 `json:"dropped"`      // backlog full
	Squeezed    uint64 `json:"squeezed"`     // net_rx_action ended by budget or time with work left
	ReceivedRPS uint64 `json:"received_rps"` // IPIs received for RPS
	FlowLimit   uint64 `json:"flow_limit"`
	Backlog     uint64 `json:"backlog"` // queue length at the end of the interval (a level, not a delta); 0 where not told
}

// Names of NAPI.Device that are no device's.
const (
	Backlog = "backlog" // the per-CPU queue of RPS, loopback and netif_rx
	Foreign = "?"       // a device of another network namespace, known by NAPI.Netns
)

// NoCPU is the CPU of a NAPI of which none is told.
const NoCPU = -1

// NAPI is the polls of one NAPI instance on one CPU.
type NAPI struct {
	Netns   uint64 `json:"netns"`   // inode, 0 for the per-CPU backlog
	IfIndex int    `json:"ifindex"` // 0 for the per-CPU backlog
	Device  string `json:"device"`  // name when the interval ended, Backlog for RPS and netif_rx, Foreign in another namespace
	// SeenAs is the name a Foreign device had in its own namespace when first polled.
	SeenAs  string `json:"seen_as,omitempty"`
	ID      uint32 `json:"napi_id"`  // 0 for tun and the backlog
	Pointer uint64 `json:"-"`        // identity while the device lives
	RXQueue int    `json:"rx_queue"` // -1 not known
	CPU     int    `json:"cpu"`      // NoCPU not known: packets of a queue by its driver's counter, without polls

	Polls      uint64    `json:"polls"`
	Packets    uint64    `json:"packets"` // Σ work
	Time       uint64    `json:"time_ns"`
	FullBudget uint64    `json:"full_budget"` // polls with work == budget
	Empty      uint64    `json:"empty"`       // polls with work 0
	TimeHist   Histogram `json:"time_hist"`   // ns per poll
	WorkHist   Histogram `json:"work_hist"`   // packets per poll
	BusyPolls  uint64    `json:"busy_polls"`  // polls from process context: counted, not timed
	// Polls of its NAPI thread, timed since one was seen; Thread is its pid, 0 none seen. They are in TimeHist too.
	Thread      int    `json:"thread,omitempty"`
	ThreadPolls uint64 `json:"thread_polls,omitempty"`
	ThreadTime  uint64 `json:"thread_ns,omitempty"`
}

// IRQ is one interrupt line on one CPU.
type IRQ struct {
	IRQ    int    `json:"irq"`
	CPU    int    `json:"cpu"`
	Action string `json:"action"`
	Count  uint64 `json:"count"`
	Time   uint64 `json:"time_ns"` // 0 at level 0
}

// Device is the counters of one interface (struct rtnl_link_stats64).
type Device struct {
	Name      string `json:"name"`
	IfIndex   int    `json:"ifindex"`
	RXPackets uint64 `json:"rx_packets"`
	RXBytes   uint64 `json:"rx_bytes"`
	RXDropped uint64 `json:"rx_dropped"`
	RXMissed  uint64 `json:"rx_missed"`
	RXErrors  uint64 `json:"rx_errors"`
	TXPackets uint64 `json:"tx_packets"`
	TXBytes   uint64 `json:"tx_bytes"`
	TXDropped uint64 `json:"tx_dropped"`
}

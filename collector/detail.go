package collector

import (
	"net/netip"
	"time"
)

// What level 2 adds to a Sample: stages, buckets and flows of sampled packets. See
// bpf/packet.bpf.c for where each clock is read.

// StageName names a stretch of a packet's way, from one clock to the next.
type StageName string

// Stages, in the order a packet passes them.
const (
	IRQToRaise     StageName = "irq-raise"    // interrupt handler entered → NET_RX raised
	RaiseToSoftirq StageName = "raise-run"    // NET_RX raised → NET_RX running
	SoftirqToPoll  StageName = "run-poll"     // NET_RX running → first poll done
	RingWait       StageName = "ring-wait"    // the queue's last poll → this one: no packet of this poll waited longer in the ring
	GROToStack     StageName = "gro-stack"    // driver hands the packet over → protocol layer, same CPU
	GROToStackRPS  StageName = "gro-rps"      // the same, through another CPU's backlog
	StackToSocket  StageName = "stack-socket" // protocol layer → in the socket's queue
	SocketToRead   StageName = "socket-read"  // in the socket's queue → read by the application; from the protocol layer where the socket is not seen
	Total          StageName = "total"        // driver hands the packet over → read by the application
)

// StageNames is all of them in order.
var StageNames = []StageName{IRQToRaise, RaiseToSoftirq, SoftirqToPoll, RingWait, GROToStack, GROToStackRPS, StackToSocket, SocketToRead, Total}

// Stage is the latency of one stage of one queue between two CPUs.
type Stage struct {
	Stage   StageName `json:"stage"`
	Netns   uint64    `json:"netns"`   // of the device, 0 where the stage belongs to a CPU
	IfIndex int       `json:"ifindex"` // 0 likewise
	Device  string    `json:"device,omitempty"`
	RXQueue int       `json:"rx_queue"` // -1 not known
	CPU     int       `json:"cpu"`      // where the stage ended
	FromCPU int       `json:"from_cpu"` // where it began; equal to CPU unless the packet hopped
	Count   uint64    `json:"count"`    // packets or runs timed (exact, not scaled: Cost.Rate of them were looked at)
	Sum     uint64    `json:"sum_ns"`
	Hist    Histogram `json:"hist"` // ns
}

// How the bucket of a packet is known.
const (
	HashNIC       = "nic"       // the device's own hash came with the packet
	HashExact     = "exact"     // Toeplitz with the device's key and fields
	HashEstimated = "estimated" // of the tuple, with a key or fields that are a guess
)

// DeviceBuckets is the load of each entry of a device's indirection table.
type DeviceBuckets struct {
	Netns   uint64 `json:"netns"`
	IfIndex int    `json:"ifindex"`
	Device  string `json:"device"`
	Hash    string `json:"hash"` // HashNIC, HashExact or HashEstimated
	Key     string `json:"key,omitempty"`
	// Packets, Bytes and Time (ns of softirq, the queue's cost per packet × packets) have an element per table
	// entry. They are scaled to the interval; Seen is how many packets were looked at.
	Packets []uint64 `json:"packets"`
	Bytes   []uint64 `json:"bytes"`
	Time    []uint64 `json:"time_ns"`
	Seen    uint64   `json:"seen"`
	// Rate: one packet in so many was looked at. A count of n is then within ± 1.96·√(n·Rate) in 95 of 100 cases.
	Rate uint64 `json:"rate"`
	// Window is how much of the interval was watched.
	Window time.Duration `json:"window_ns"`
	// Agreed of Compared packets arrived in the queue that the table names for their bucket; Compared 0: no table known.
	Agreed   uint64 `json:"agreed"`
	Compared uint64 `json:"compared"`
	// Classes counts packets by what can be hashed of them.
	Classes []Class `json:"classes"`
	// Unseen are packets whose headers could not be read.
	Unseen uint64 `json:"unseen,omitempty"`
	// Unhashed are packets in no entry: nothing of them is hashed (see Classes), or there is no table. Cards put
	// them into one queue, mostly 0. Scaled, as Packets.
	Unhashed uint64 `json:"unhashed,omitempty"`

	table []int // bucket → queue while they were counted
}

// Class is packets of one kind: "tcp4", "udp4", "tcp6", "udp6", "ip4", "ip6", "fragment", "gre", "vxlan", "geneve",
// "ipip", "pppoe", "other" (not IP). Vlan tells those under a tag.
type Class struct {
	Class   string `json:"class"`
	VLAN    bool   `json:"vlan,omitempty"`
	Packets uint64 `json:"packets"`
	Bytes   uint64 `json:"bytes"`
}

// Flow is one of a queue's biggest flows.
type Flow struct {
	Netns       uint64         `json:"netns"`
	IfIndex     int            `json:"ifindex"`
	Device      string         `json:"device"`
	RXQueue     int            `json:"rx_queue"` // -1 not known
	CPU         int            `json:"cpu"`      // that polled most of it
	Protocol    string         `json:"protocol"` // "tcp", "udp", "gre", … or a number
	Source      netip.AddrPort `json:"source"`
	Destination netip.AddrPort `json:"destination"`
	Bucket      int            `json:"bucket"` // -1 not known
	// Packets and Bytes are estimates; the true number of packets is within ± Error in 95 of 100 cases.
	Packets uint64  `json:"packets"`
	Bytes   uint64  `json:"bytes"`
	Error   uint64  `json:"packets_error"`
	Share   float64 `json:"share"` // of its queue's packets
	// Where the data is read, where a socket is known.
	ConsumerCPU int    `json:"consumer_cpu"` // -1 not known
	Process     string `json:"process,omitempty"`
	PID         int    `json:"pid,omitempty"`
}

// Cost is what measuring itself took, and what was left out to keep it small.
type Cost struct {
	// Budget is the share of each CPU's time measuring may take (0.01 is 1 %), 0 unlimited.
	Budget float64 `json:"budget"`
	// Hottest is the share it took of the CPU that paid most, Mean of all online CPUs, by event counts × calibrated ns.
	Hottest float64 `json:"hottest"`
	CPU     int     `json:"cpu"`
	Mean    float64 `json:"mean"`
	Reader  float64 `json:"reader"` // CPU time of the reading process, in CPUs
	// Duty is the part of the interval the programs of level 1 counted, DutyPackets those of level 2.
	// What is scaled up by it carries Error: the relative half-width of its 95 % interval (0 exact).
	Duty        float64 `json:"duty"`
	DutyPackets float64 `json:"duty_packets"`
	Error       float64 `json:"error"`
	Rate        uint64  `json:"rate,omitempty"` // one packet in so many was timed
	// Thinned says in words what was left out.
	Thinned []string `json:"thinned,omitempty"`
	// PerEvent is the calibrated ns of one event by program.
	PerEvent map[string]float64 `json:"per_event_ns,omitempty"`
}

package knob

// The settings. Targets are as Target documents; a group is a Value made by
// Fields, whose attributes have the names of ethtool(8)'s command line.
const (
	Channels       Kind = "channels"        // device; group: rx tx other combined
	ChannelsMax    Kind = "channels-max"    // device; read-only group, as channels
	Rings          Kind = "rings"           // device; group: rx tx rx-mini rx-jumbo rx-buf-len …
	RingsMax       Kind = "rings-max"       // device; read-only group, as rings
	Coalesce       Kind = "coalesce"        // device; group: adaptive-rx rx-usecs rx-frames …
	QueueCoal      Kind = "queue-coalesce"  // "eth0 queue-3"; group, as coalesce
	RSSTable       Kind = "rss-table"       // device or "eth0 context-1"; list: rx queue of each bucket; absent: no such context
	RSSKey         Kind = "rss-key"         // device or context; text "6d:5a:…"
	RSSFunction    Kind = "rss-function"    // device or context; text "toeplitz"
	RSSXfrm        Kind = "rss-input-xfrm"  // device or context; read-only text "none", "symmetric-xor", "symmetric-or-xor"
	RSSHashFields  Kind = "rss-hash-fields" // "eth0 udp4"; text of ethtool -N's letters in the order mvtsdfnelr: "sdfn"
	NtupleRule     Kind = "ntuple-rule"     // "eth0 rule-1023"; group: flow queue dst-ip …; absent: no such rule
	Features       Kind = "features"        // device; group of bools by kernel name, only those that can be changed
	FeaturesFixed  Kind = "features-fixed"  // device; read-only group of bools: active state of the others
	FeaturesWanted Kind = "features-wanted" // device; read-only group: those asked for but not in effect, or the reverse
	Pause          Kind = "pause"           // device; group: autoneg rx tx
	PrivateFlags   Kind = "private-flags"   // device; group of bools by driver name
	FEC            Kind = "fec"             // device; group: auto modes
	LinkState      Kind = "link"            // device; read-only group: up, and where there is a wire speed (Mbit/s) duplex autoneg
	MTU            Kind = "mtu"             // device; int, bytes

	IRQAffinity  Kind = "irq-affinity"  // "eth0 irq-28"; CPU set wanted
	IRQEffective Kind = "irq-effective" // "eth0 irq-28"; read-only CPU set in effect
	IRQHint      Kind = "irq-hint"      // "eth0 irq-28"; read-only CPU set the driver proposes

	IRQManaged Kind = "irq-managed" // "eth0 irq-28"; read-only bool: users cannot move it

	RPSCPUs    Kind = "rps-cpus"     // "eth0 rx-3"; CPU set, "" off
	RPSFlowCnt Kind = "rps-flow-cnt" // "eth0 rx-3"; int, entries, 0 off
	XPSCPUs    Kind = "xps-cpus"     // "eth0 tx-3"; CPU set
	XPSRXQs    Kind = "xps-rxqs"     // "eth0 tx-3"; set of rx queues as list text

	Threaded          Kind = "threaded"             // device or "eth0 napi-257"; int 0 softirq, 1 threads, 2 busy-polling threads (6.18)
	DeferHardIRQs     Kind = "napi-defer-hard-irqs" // device or NAPI; int, empty polls before the interrupt is armed again
	GROFlushTimeout   Kind = "gro-flush-timeout"    // device or NAPI; int, ns
	IRQSuspendTimeout Kind = "irq-suspend-timeout"  // NAPI; int, ns

	// Sysctls under /proc/sys/net/core, target Host.
	RPSSockFlowEntries Kind = "rps-sock-flow-entries" // int, entries of the RFS table
	RPSDefaultMask     Kind = "rps-default-mask"      // CPU set of new rx queues (6.3)
	NetdevBudget       Kind = "netdev-budget"         // int, packets per NET_RX run
	NetdevBudgetUsecs  Kind = "netdev-budget-usecs"   // int, µs per NET_RX run
	NetdevMaxBacklog   Kind = "netdev-max-backlog"    // int, packets per CPU
	DevWeight          Kind = "dev-weight"            // int, packets per backlog poll
	BusyPoll           Kind = "busy-poll"             // int, µs
	BusyRead           Kind = "busy-read"             // int, µs
	FlowLimitCPUs      Kind = "flow-limit-cpus"       // CPU set
	FlowLimitTableLen  Kind = "flow-limit-table-len"  // int, buckets
)

// Risk is what a write may do to traffic while it happens, apart from its effect.
type Risk string

const (
	RiskNone    Risk = "none"
	RiskReorder Risk = "reorder" // packets of a flow may overtake each other
	RiskPause   Risk = "pause"   // the device may stop for a moment
	RiskFlap    Risk = "flap"    // the link may go down and up
)

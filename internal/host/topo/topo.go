// Package topo describes a host's CPUs: which exist, are online, share a core,
// a last-level cache or a memory node, and which are kept free of other work.
// Source: /sys/devices/system/cpu, /sys/devices/system/node
// (Documentation/ABI/testing/sysfs-devices-system-cpu).
package topo

import "github.com/rxsteer/rxsteer/internal/cpuset"

// None marks a number the host does not tell (node −1, no cache information).
const None = -1

// CPU is one logical CPU.
type CPU struct {
	ID       int  `json:"id"`
	Node     int  `json:"node"`    // NUMA node, None where the host has none or lies
	Package  int  `json:"package"` // physical_package_id, None unknown
	Core     int  `json:"core"`    // index of the physical core, unique on the host; SMT siblings share it
	LLC      int  `json:"llc"`     // index of the last-level cache group, unique on the host, None unknown
	Online   bool `json:"online"`
	Isolated bool `json:"isolated"` // isolcpus= (…/cpu/isolated): no RPS, no vectors by default
	NoHzFull bool `json:"nohz_full,omitempty"`
	Capacity int  `json:"capacity,omitempty"` // cpu_capacity of big.LITTLE, 0 where all are equal
}

// Topology is all CPUs, sorted by ID, and the sets made of them.
type Topology struct {
	CPUs     []CPU
	Possible cpuset.Set
	Online   cpuset.Set
	Isolated cpuset.Set // isolcpus
	NoHzFull cpuset.Set
	// Partitions are CPUs of isolated cgroup-v2 cpuset partitions, where visible.
	Partitions cpuset.Set
	// Unmeasured says which parts the host did not tell, and why.
	Unmeasured []string
}

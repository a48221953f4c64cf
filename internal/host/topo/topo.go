// Package topo describes a host's CPUs: which exist, are online, share a core,
// a last-level cache or a memory node, and which are kept free of other work.
// Source: /sys/devices/system/cpu, /sys/devices/system/node
// (Documentation/ABI/testing/sysfs-devices-system-cpu).
package topo

import (
	"slices"

	"github.com/rxsteer/rxsteer/internal/cpuset"
)

// None marks a number the host does not tell (node −1, no cache information).
const None = -1

// CPU is one logical CPU.
type CPU struct {
	ID       int  `json:"id"`
	Node     int  `json:"node"`    // NUMA node, None where the host has none or lies
	Package  int  `json:"package"` // physical_package_id, None unknown
	Core     int  `json:"core"`    // index of the physical core, unique on the host; SMT siblings share it; None for offline CPUs, which do not tell
	LLC      int  `json:"llc"`     // index of the last-level cache group, unique on the host, None unknown
	Online   bool `json:"online"`
	Isolated bool `json:"isolated"` // isolcpus= or an isolated cpuset partition: no RPS, no vectors by default
	NoHzFull bool `json:"nohz_full,omitempty"`
	Capacity int  `json:"capacity,omitempty"` // cpu_capacity of big.LITTLE, 0 where all are equal
}

// Node is one NUMA node.
type Node struct {
	ID   int        `json:"id"`
	CPUs cpuset.Set `json:"cpus"` // empty for memory-only nodes
	// Distance to each of Topology.Nodes, 10 for itself (ACPI SLIT), nil where not told.
	Distance []int `json:"distance,omitempty"`
}

// Topology is all CPUs, sorted by ID, and the sets made of them.
type Topology struct {
	CPUs     []CPU  // those present: possible CPUs without hardware are left out
	Nodes    []Node // by ID
	Possible cpuset.Set
	Online   cpuset.Set
	Isolated cpuset.Set // isolcpus
	NoHzFull cpuset.Set
	// Partitions are CPUs of isolated cgroup-v2 cpuset partitions, or what no cpuset of v1 balances, where visible.
	Partitions cpuset.Set
	// Unmeasured says which parts the host did not tell, and why.
	Unmeasured []string
}

// CPU returns the CPU of that number; ok is false when there is none.
func (t *Topology) CPU(id int) (c CPU, ok bool) {
	i, ok := slices.BinarySearchFunc(t.CPUs, id, func(c CPU, id int) int { return c.ID - id })
	if !ok {
		return CPU{}, false
	}
	return t.CPUs[i], true
}

// Where is the set of CPUs for which f holds.
func (t *Topology) Where(f func(CPU) bool) cpuset.Set {
	return cpuset.Collect(func(yield func(int) bool) {
		for _, c := range t.CPUs {
			if f(c) && !yield(c.ID) {
				return
			}
		}
	})
}

// Siblings are the CPUs of cpu's core, cpu included; empty for a CPU there is not.
func (t *Topology) Siblings(cpu int) cpuset.Set {
	c, ok := t.CPU(cpu)
	switch {
	case !ok:
		return cpuset.Set{}
	case c.Core == None:
		return cpuset.Of(cpu)
	}
	return t.Where(func(o CPU) bool { return o.Core == c.Core })
}

// SharingLLC are the CPUs that share cpu's last-level cache, cpu included; where caches are not
// told, those of its node.
func (t *Topology) SharingLLC(cpu int) cpuset.Set {
	c, ok := t.CPU(cpu)
	if !ok {
		return cpuset.Set{}
	}
	return t.Where(func(o CPU) bool { return sameLLC(c, o) })
}

func sameLLC(a, b CPU) bool {
	if a.LLC == None || b.LLC == None {
		return a.ID == b.ID || a.LLC == b.LLC && a.Node == b.Node
	}
	return a.LLC == b.LLC
}

// Local are the online CPUs of a node; all online CPUs where the node is None, is not known or
// has no online CPU.
func (t *Topology) Local(node int) cpuset.Set {
	s := t.Where(func(c CPU) bool { return c.Online && c.Node == node })
	if node == None || s.IsEmpty() {
		return t.Online
	}
	return s
}

// Housekeeping are the online CPUs that are not isolated and run with the tick: those
// the kernel itself puts unbound work on. Where that leaves none, all online CPUs.
func (t *Topology) Housekeeping() cpuset.Set {
	s := t.Online.Minus(t.Isolated).Minus(t.Partitions).Minus(t.NoHzFull)
	if s.IsEmpty() {
		return t.Online
	}
	return s
}

// Distances between two CPUs, nearest first.
const (
	SameCPU = iota
	SameCore
	SameLLC
	SameNode
	SamePackage
	Far
)

// Distance says how close two CPUs are; CPUs there are not are Far.
func (t *Topology) Distance(a, b int) int {
	x, ok := t.CPU(a)
	y, ok2 := t.CPU(b)
	switch {
	case !ok || !ok2:
		return Far
	case a == b:
		return SameCPU
	case x.Core != None && x.Core == y.Core:
		return SameCore
	case x.LLC != None && x.LLC == y.LLC:
		return SameLLC
	case x.Node == y.Node:
		return SameNode
	case x.Package != None && x.Package == y.Package:
		return SamePackage
	}
	return Far
}

// FromSets is the Topology of a host of which only these sets are known (pasted
// text). An empty online set means all of possible, and the other way round.
func FromSets(possible, online, isolated, nohzFull cpuset.Set) *Topology {
	if online.IsEmpty() {
		online = possible
	}
	possible = possible.Union(online)
	t := &Topology{
		Possible: possible, Online: online, Isolated: isolated, NoHzFull: nohzFull,
		Unmeasured: []string{"cores, caches and memory nodes: only lists of CPUs at hand"},
	}
	t.fill(possible)
	for i := range t.CPUs {
		t.CPUs[i].Core = i
	}
	return t
}

// fill makes the CPUs, knowing nothing but the sets.
func (t *Topology) fill(present cpuset.Set) {
	t.CPUs = make([]CPU, 0, present.Len())
	for id := range present.All() {
		t.CPUs = append(t.CPUs, CPU{
			ID: id, Node: None, Package: None, Core: None, LLC: None,
			Online:   t.Online.Contains(id),
			Isolated: t.Isolated.Contains(id) || t.Partitions.Contains(id),
			NoHzFull: t.NoHzFull.Contains(id),
		})
	}
}

// Package nic is the inventory of a host's network interfaces and the map
// rx/tx queue ↔ NAPI ↔ IRQ ↔ CPU ↔ node, put together from several sources
// that check each other. Where the map is not known it says so.
package nic

import (
	"github.com/rxsteer/rxsteer/internal/cpuset"
)

// Source says how a link of the map is known, best first.
type Source string

const (
	ByNetlink Source = "netlink" // netdev family: queue-get, napi-get (6.8+)
	ByMSI     Source = "msi"     // the device's msi_irqs folder names the vectors
	ByName    Source = "name"    // the action name, by the driver's grammar
	ByLearned Source = "learned" // seen in traffic
	ByOrder   Source = "order"   // MSI-X order only: a guess
	Unknown   Source = ""        // not known
)

// None marks an absent queue index, IRQ or node.
const None = -1

// Queue is one receive and/or transmit queue and what serves it.
type Queue struct {
	RX        int        `json:"rx"`   // rx queue index, None for tx-only
	TX        int        `json:"tx"`   // tx queue index, None for rx-only
	NAPI      uint32     `json:"napi"` // NAPI id, 0 unknown
	IRQ       int        `json:"irq"`  // Linux IRQ number, None unknown
	Vector    string     `json:"vector"`
	Affinity  cpuset.Set `json:"affinity"`  // wanted: smp_affinity_list
	Effective cpuset.Set `json:"effective"` // effective_affinity_list
	RPS       cpuset.Set `json:"rps"`
	XPS       cpuset.Set `json:"xps"`
	KnownBy   Source     `json:"known_by"`
}

// Kind is what sort of device an interface is.
type Kind string

const (
	Physical Kind = "physical" // has a bus device
	Virtual  Kind = "virtual"  // veth, tap, dummy, …: no bus device
	Loopback Kind = "loopback"
	Stack    Kind = "stack" // bond, team, bridge, VLAN, macvlan: see Lower
)

// NIC is one interface.
type NIC struct {
	Name    string `json:"name"`
	IfIndex int    `json:"ifindex"`
	Netns   uint64 `json:"netns"` // inode of the network namespace it was read in
	Kind    Kind   `json:"kind"`
	Driver  string `json:"driver"`
	Bus     string `json:"bus"`  // PCI address or bus id, "" for virtual devices
	Node    int    `json:"node"` // NUMA node, None
	Up      bool   `json:"up"`
	MTU     int    `json:"mtu"`
	SpeedMb int    `json:"speed_mbit"` // Mbit/s, 0 unknown
	// Lower are the devices a stack stands on, by name, sorted.
	Lower   []string `json:"lower,omitempty"`
	Queues  []Queue  `json:"queues"`
	Control []Vector `json:"control,omitempty"` // vectors that serve no queue
	// Problems are conflicts between sources and gaps of the map, as sentences.
	Problems []string `json:"problems,omitempty"`
}

// Vector is one interrupt of a device.
type Vector struct {
	IRQ  int    `json:"irq"`
	Name string `json:"name"`
}

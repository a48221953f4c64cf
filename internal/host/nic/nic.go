// Package nic is the inventory of a host's network interfaces and the map
// rx/tx queue ↔ NAPI ↔ IRQ ↔ CPU ↔ node, put together from several sources
// that check each other. Where the map is not known it says so.
//
// It also holds what is known of drivers (the quirk table), which settings
// were tried on which driver (the support table), and who else writes them
// (owners).
//
// It refuses to write, and to say what a good map would be.
package nic

import (
	"slices"

	"github.com/rxsteer/rxsteer/internal/cpuset"
)

// Source says how a link of the map is known, best first.
type Source string

const (
	ByNetlink Source = "netlink" // netdev family: queue-get, napi-get (6.8+)
	ByMSI     Source = "msi"     // the device's own folder (msi_irqs, vmbus channels) names the vectors
	ByName    Source = "name"    // the action name, by the driver's grammar
	ByLearned Source = "learned" // seen in traffic
	ByOrder   Source = "order"   // order of MSI-X vectors or NAPI ids only: a guess
	Unknown   Source = ""        // not known
)

// None marks an absent queue index, IRQ or node.
const None = -1

// Queue is one receive and/or transmit queue and what serves it. Queues that
// share a vector (shared INTx, be2net's tx-0) have the same IRQ.
type Queue struct {
	RX        int        `json:"rx"`   // rx queue index, None for tx-only
	TX        int        `json:"tx"`   // tx queue index, None for rx-only
	NAPI      uint32     `json:"napi"` // NAPI id, 0 unknown
	IRQ       int        `json:"irq"`  // Linux IRQ number, None unknown
	Vector    string     `json:"vector"`
	Node      int        `json:"node"`      // NUMA node the vector's device sits on (/proc/irq/N/node), None
	Affinity  cpuset.Set `json:"affinity"`  // wanted: smp_affinity_list
	Effective cpuset.Set `json:"effective"` // effective_affinity_list
	RPS       cpuset.Set `json:"rps"`
	XPS       cpuset.Set `json:"xps"`
	XSK       bool       `json:"xsk,omitempty"`    // an AF_XDP socket owns it, or it exists for one only
	Thread    int        `json:"thread,omitempty"` // pid of the NAPI thread, 0 where polls follow the interrupt
	KnownBy   Source     `json:"known_by"`
	NAPIBy    Source     `json:"napi_by,omitempty"` // how NAPI is known where the kernel does not tell it
	// Function is the PCI function of the vector where the interface spans
	// several (multi-PF), else "".
	Function string `json:"function,omitempty"`
}

// Kind is what sort of device an interface is.
type Kind string

const (
	Physical Kind = "physical" // has a bus device
	Virtual  Kind = "virtual"  // veth, tap, dummy, …: no bus device
	Loopback Kind = "loopback"
	Stack    Kind = "stack" // bond, team, bridge, VLAN, macvlan, DSA port: see Lower
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
	MAC     string `json:"mac,omitempty"`
	// Version and Firmware are as the driver tells ethtool, "" unknown.
	Version  string `json:"driver_version,omitempty"`
	Firmware string `json:"firmware,omitempty"`
	// Master is the bond, bridge or netvsc it belongs to, "" none.
	Master string `json:"master,omitempty"`
	// Lower are the devices a stack stands on, by name, sorted. A physical
	// device has one only as the synthetic half of a VF pair.
	Lower   []string `json:"lower,omitempty"`
	Queues  []Queue  `json:"queues"`
	Control []Vector `json:"control,omitempty"` // vectors that serve no queue
	// Problems are conflicts between sources and gaps of the map, as sentences.
	Problems []string `json:"problems,omitempty"`
	// Notes are facts that explain the map and are no fault, as sentences.
	Notes []string `json:"notes,omitempty"`
}

// Vector is one interrupt of a device.
type Vector struct {
	IRQ  int    `json:"irq"`
	Name string `json:"name"`
}

// QueueCount counts the receive and transmit queues of a NIC.
func (n *NIC) QueueCount() (rx, tx int) {
	for _, q := range n.Queues {
		if q.RX != None {
			rx++
		}
		if q.TX != None {
			tx++
		}
	}
	return rx, tx
}

// Under is names and the physical devices they stand on: of a VLAN, bond, bridge or macvlan, and of the
// synthetic half of a VF pair, what its packets arrive on. Virtual devices below (a bridge's taps and the like) belong to
// somebody else and are left out unless named.
func Under(all []NIC, names []string) []string {
	out := slices.Clone(names)
	for _, name := range names {
		for _, leaf := range Leaves(all, name) {
			if !slices.Contains(out, leaf) && slices.ContainsFunc(all, func(n NIC) bool { return n.Name == leaf && n.Kind == Physical }) {
				out = append(out, leaf)
			}
		}
	}
	return out
}

// Leaves expands a device to the physical or virtual devices its packets
// arrive on: itself, or recursively what a stack (and the synthetic half of a VF
// pair) stands on. Names that all does not hold are left out; a cycle ends.
func Leaves(all []NIC, name string) []string {
	byName := make(map[string]*NIC, len(all))
	for i := range all {
		byName[all[i].Name] = &all[i]
	}
	var out []string
	seen := make(map[string]bool)
	var walk func(string)
	walk = func(name string) {
		n := byName[name]
		if n == nil || seen[name] {
			return
		}
		seen[name] = true
		if n.Kind != Stack || len(n.Lower) == 0 {
			out = append(out, name)
		}
		for _, l := range n.Lower {
			walk(l)
		}
	}
	walk(name)
	return out
}

package main

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/rxsteer/rxsteer/collector"
	"github.com/rxsteer/rxsteer/internal/cpuset"
	"github.com/rxsteer/rxsteer/internal/ethtool"
	"github.com/rxsteer/rxsteer/internal/host"
	"github.com/rxsteer/rxsteer/internal/host/knob"
	"github.com/rxsteer/rxsteer/internal/host/nic"
	"github.com/rxsteer/rxsteer/internal/host/topo"
	"github.com/rxsteer/rxsteer/internal/netdev"
)

// hostRooms is the host as the rooms below cmd see it.
type hostRooms struct {
	fs      host.FS
	machine *knob.Machine
	sources nic.Sources
	vectors *vectorMap
	ethtool *ethtool.Client // nil: not here
	netlink []check         // what of netlink works, for doctor
	closers []func() error

	named  []string             // interfaces asked for, none: all
	nics   []nic.NIC            // the last inventory
	polled map[int][]nic.Polled // by ifindex: NAPIs that ran and that it did not name
	// refresh, when set, reads the map again for a NAPI it does not hold, at most that often:
	// for a process that outlives devices.
	refresh time.Duration
	read    time.Time // when the map was read
	// overhead is what samplers may take.
	overhead overhead
}

func (h *hostRooms) close() {
	for _, c := range h.closers {
		c() // read-only sockets: nothing is lost
	}
}

func (h *hostRooms) inventory(ctx context.Context) ([]nic.NIC, error) {
	nics, err := nic.Inventory(ctx, h.sources)
	if err != nil {
		return nil, err
	}
	h.vectors.have(nics)
	h.read = time.Now()
	h.nics = slices.Clone(nics) // of our own: they change while a sampler runs
	for i := range h.nics {
		h.nics[i].Queues = slices.Clone(nics[i].Queues)
		h.nics[i].LinkNAPIs(h.polled[h.nics[i].IfIndex], nil)
	}
	return nics, nil
}

// tenants are the pods and containers at the other ends of interfaces, by ifindex.
func (h *hostRooms) tenants() (map[int]nic.Tenant, error) {
	var peers nic.Netlink
	if o, ok := h.fs.(host.OS); ok {
		peers.Path = o.Path
	}
	return nic.Tenants(h.fs, peers)
}

// owners are others who write receive settings.
func (h *hostRooms) owners(ctx context.Context, nics []nic.NIC) ([]knob.Owner, error) {
	src := nic.OwnerSources{FS: h.fs, NICs: nics, Attachments: nic.Netlink{}}
	if h.ethtool != nil {
		src.RSS = h.ethtool
	}
	return nic.Owners(ctx, src)
}

// rxQueue is the rx queue of a NAPI that ran, by the last inventory and by the NAPIs that ran
// before; nic.None not known.
func (h *hostRooms) rxQueue(netns uint64, ifindex int, id uint32) int {
	if id == 0 || netns != h.netns() {
		return nic.None
	}
	if q := h.queueOf(ifindex, id); q != nic.None {
		return q
	}
	if h.refresh > 0 && time.Since(h.read) >= h.refresh {
		h.read = time.Now()
		if _, err := h.inventory(context.Background()); err != nil {
			return nic.None // the next sample tries again
		}
	}
	i := slices.IndexFunc(h.nics, func(n nic.NIC) bool { return n.IfIndex == ifindex })
	if i < 0 {
		return nic.None
	}
	ran := nic.Polled{NAPI: id, CPU: nic.None}
	if seen := h.polled[ifindex]; !slices.Contains(seen, ran) {
		if len(seen) >= len(h.nics[i].Queues) { // NAPIs of a channel change ago
			seen = nil
		}
		h.polled[ifindex] = append(seen, ran)
		h.nics[i].LinkNAPIs(h.polled[ifindex], nil)
	}
	return h.queueOf(ifindex, id)
}

func (h *hostRooms) queueOf(ifindex int, id uint32) int {
	for i := range h.nics {
		if h.nics[i].IfIndex == ifindex {
			return h.nics[i].NAPIAt(id)
		}
	}
	return nic.None
}

// linkNAPIs adds what traffic has shown to the map.
func linkNAPIs(nics []nic.NIC, s *collector.Sample) {
	if s == nil {
		return
	}
	var fired []nic.Fired
	for _, q := range s.IRQs {
		if q.Count > 0 {
			fired = append(fired, nic.Fired{IRQ: q.IRQ, CPU: q.CPU})
		}
	}
	for i := range nics {
		var polled []nic.Polled
		for _, p := range s.NAPIs {
			if p.IfIndex == nics[i].IfIndex && p.Netns == nics[i].Netns && p.Polls > 0 {
				polled = append(polled, nic.Polled{NAPI: p.ID, CPU: p.CPU})
			}
		}
		nics[i].LinkNAPIs(polled, fired)
		var links []nic.Learned
		for _, l := range s.Learned {
			if l.IfIndex == nics[i].IfIndex && l.Netns == nics[i].Netns {
				links = append(links, nic.Learned{RX: l.RXQueue, NAPI: l.NAPI, IRQ: l.IRQ})
			}
		}
		nics[i].Learn(links)
	}
}

// netns is the inode of this network namespace, 0 not known.
func (h *hostRooms) netns() uint64 {
	link, err := h.fs.Readlink("/proc/self/ns/net")
	if err != nil {
		return 0
	}
	var inode uint64
	if _, err := fmt.Sscanf(link, "net:[%d]", &inode); err != nil {
		return 0
	}
	return inode
}

// executable is the path of this program, for lines a person may type.
func executable() string {
	if exe, err := os.Executable(); err == nil {
		return exe
	}
	return "rxsteer"
}

func (h *hostRooms) topology() (*topo.Topology, error) {
	return topo.Read(h.fs)
}

// openHost opens what can be opened; what cannot makes settings unknown, with the reason.
func (e *env) openHost() (*hostRooms, error) {
	if _, err := e.fs.ReadDir("/sys/class/net"); err != nil {
		return nil, &failure{exitFailed, fmt.Errorf("list interfaces: %w", err), []string{"mount it: mount -t sysfs sysfs /sys", "in a container: mount the host's /proc and /sys and name them in RXSTEER_PROC and RXSTEER_SYS"}}
	}
	h := &hostRooms{fs: e.fs, overhead: collector.DefaultOverhead, sources: nic.Sources{FS: e.fs}}
	config := knob.Config{FS: e.fs, Now: e.now}
	if c, err := ethtool.New(); err == nil {
		h.closers = append(h.closers, c.Close)
		h.ethtool, h.sources.Ethtool, config.Ethtool = c, c, c
		h.netlink = append(h.netlink, familyChecks("ethtool", c.Messages(), nil)...)
	} else {
		config.EthtoolReason = err.Error()
		h.netlink = append(h.netlink, check{Area: areaNetlink, Name: "ethtool", Why: err.Error(),
			Lost: "channels, rings, indirection table, hash fields, coalescing, offloads"})
	}
	if c, err := netdev.New(); err == nil {
		h.closers = append(h.closers, c.Close)
		h.sources.Netdev, config.Netdev = c, c
		h.netlink = append(h.netlink, familyChecks("netdev", c.Commands(), netdevLost)...)
	} else {
		config.NetdevReason = err.Error()
		h.netlink = append(h.netlink, check{Area: areaNetlink, Name: "netdev", Why: err.Error(),
			Lost: "the kernel's own map of queues, NAPIs and interrupts (since Linux 6.8); names are used instead"})
	}
	h.polled = map[int][]nic.Polled{}
	h.vectors = &vectorMap{sources: h.sources}
	config.Vectors = h.vectors
	m, err := knob.Open(config)
	if err != nil {
		h.close()
		return nil, err
	}
	h.machine = m
	return h, nil
}

// vectorMap tells the interrupts of a device by the map of package nic. One reading of the
// map serves a whole snapshot, which asks for every device within milliseconds.
type vectorMap struct {
	sources nic.Sources
	mu      sync.Mutex
	nics    []nic.NIC
	read    time.Time
}

const mapAge = 250 * time.Millisecond

func (v *vectorMap) Vectors(device string) ([]int, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if time.Since(v.read) > mapAge {
		nics, err := nic.Inventory(context.Background(), v.sources)
		if err != nil {
			return nil, err
		}
		v.nics, v.read = nics, time.Now()
	}
	i := slices.IndexFunc(v.nics, func(n nic.NIC) bool { return n.Name == device })
	if i < 0 {
		return nil, fmt.Errorf("find vectors: no device %q", device)
	}
	var out []int
	for _, q := range v.nics[i].Queues {
		if q.IRQ != nic.None {
			out = append(out, q.IRQ)
		}
	}
	for _, c := range v.nics[i].Control {
		out = append(out, c.IRQ)
	}
	slices.Sort(out)
	return slices.Compact(out), nil
}

// have hands the map over that was just read.
func (v *vectorMap) have(nics []nic.NIC) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.nics, v.read = nics, time.Now()
}

func setOf(cpus []int) string { return cpuset.Of(cpus...).String() }

// checkInterfaces refuses names that are not there, and says which are.
func checkInterfaces(nics []nic.NIC, names []string) error {
	var there []string
	for _, n := range nics {
		there = append(there, n.Name)
	}
	slices.Sort(there)
	for _, name := range names {
		if slices.Contains(there, name) {
			continue
		}
		f := &failure{code: exitFailed, err: fmt.Errorf("no interface %q in this network namespace; there are %s", name, strings.Join(there, ", "))}
		if best := closest(name, there); best != "" {
			f.next = append(f.next, "did you mean "+best+"?")
		}
		f.next = append(f.next, "for one in another namespace: ip netns exec NAME rxsteer …")
		return f
	}
	return nil
}

// closest is the name that differs least, "" when all differ by more than two letters.
func closest(name string, from []string) string {
	best, dist := "", 3
	for _, f := range from {
		if d := distance(name, f); d < dist {
			best, dist = f, d
		}
	}
	return best
}

// distance is the Levenshtein distance.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diag := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := 1
			if a[i] == b[j] {
				cost = 0
			}
			diag, row[j+1] = row[j+1], min(row[j+1]+1, row[j]+1, diag+cost)
		}
	}
	return row[len(b)]
}

// completeInterfaces offers interface names to the shell.
func (e *env) completeInterfaces(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	entries, err := e.fs.ReadDir("/sys/class/net")
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	var names []string
	for _, d := range entries {
		if _, err := e.fs.Readlink("/sys/class/net/" + d.Name()); err == nil && !slices.Contains(args, d.Name()) {
			names = append(names, d.Name())
		}
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}

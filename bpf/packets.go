package bpf

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
)

// The types of packet.h, which documents their fields.
type (
	StageKey    = packetStageKey
	StageStat   = packetStageStat
	PacketStage = packetPacketStage
	PacketCPU   = packetPacketCpu
	XDPKey      = packetXdpKey
	XDPOutcome  = packetXdpOutcome
	DropKey     = packetDropKey
)

// Stages of a sampled packet's way: StageKey.Stage.
const (
	ToStack  = packetPacketStageTO_STACK
	ToSocket = packetPacketStageTO_SOCKET
	ToRead   = packetPacketStageTO_READ
	InAll    = packetPacketStageIN_ALL
)

// What XDP did: XDPKey.Outcome.
const (
	XDPRaised        = packetXdpOutcomeXDP_RAISED
	XDPRedirected    = packetXdpOutcomeXDP_REDIRECTED
	XDPNotRedirected = packetXdpOutcomeXDP_NOT_REDIRECTED
)

// DefaultStages is how many {stage, device, queue, CPU, from CPU} fit unless Options
// says otherwise. An entry is 312 bytes.
const DefaultStages = 4096

// DefaultRate is that one packet in so many is sampled.
const DefaultRate = 1024

// Packets are the programs of level 2 and their maps: packet.bpf.c. They are loaded,
// attached and switched apart from Programs. Its methods are not for concurrent use.
type Packets struct {
	set
	cpus    *ebpf.Map
	stages  *ebpf.Map
	xdps    *ebpf.Map
	drops   *ebpf.Map
	reasons map[uint32]string
	cpuKeys []uint32 // scratch of Read
}

// PacketCounters is everything counted since LoadPackets. StageKeys[i] names
// Stages[i], XDPKeys[i] XDPs[i] and DropKeys[i] Drops[i]; order means nothing. CPUs is indexed by CPU.
type PacketCounters struct {
	StageKeys []StageKey
	Stages    []StageStat
	XDPKeys   []XDPKey
	XDPs      []uint64 // packets
	DropKeys  []DropKey
	Drops     []uint64 // packets
	// Reasons are the running kernel's names of DropKey.Reason, as in enum skb_drop_reason without SKB_DROP_REASON_;
	// nil: it tells none.
	Reasons map[uint32]string
	CPUs    []PacketCPU
}

// LoadPackets loads the programs of level 2; nothing runs before Attach. Errors are as
// Load's.
func LoadPackets(opts Options) (*Packets, error) {
	p := &Packets{}
	kernel, spec, err := p.prepare(opts, packetHooks, loadPacket)
	if err != nil {
		return nil, err
	}
	if !freesLate(kernel) {
		// Not needed, and what they need besides may not be there.
		reader := func(name string) bool { return name == packetProgSkDataReady || name == packetProgSockRecvLength }
		maps.DeleteFunc(spec.Programs, func(name string, _ *ebpf.ProgramSpec) bool { return reader(name) })
		p.hooks = slices.DeleteFunc(p.hooks, func(h hook) bool { return reader(h.name) })
		p.missing = slices.DeleteFunc(p.missing, func(h Hook) bool { return reader(h.Name) })
		p.missing = append(p.missing, Hook{Name: packetProgSkDataReady, Level: 2, Lost: "stage stack-socket of UDP: socket-read begins at the stack",
			Why: "reads of UDP are told by consume_skb on this kernel, which is surer"})
	}
	if err := p.load(spec, opts, kernel); err != nil {
		return nil, err
	}
	return p, nil
}

func (p *Packets) load(spec *ebpf.CollectionSpec, opts Options, kernel *btf.Spec) error {
	cpus, err := ebpf.PossibleCPU()
	if err != nil {
		return fmt.Errorf("count CPUs: %w", err)
	}
	spec.Maps[packetMapPacketCpus].MaxEntries = uint32(cpus)
	spec.Maps[packetMapStages].MaxEntries = size(opts.Stages, DefaultStages)
	spec.Maps[packetMapDrops].MaxEntries = uint32(max(1024, 16*cpus)) // few reasons come up on one host
	if p.reasons = dropReasons(kernel); p.reasons != nil {
		if err := spec.Variables[packetVarReasons].Set(uint32(1)); err != nil {
			return fmt.Errorf("load BPF programs: %w", err)
		}
	} else if spec.Programs[packetProgKfreeSkb] != nil {
		p.missing = append(p.missing, Hook{Name: packetProgKfreeSkb, Level: 2, Lost: "why the kernel dropped packets",
			Why: "its tracepoint tells no reason on this kernel (Linux 5.17 does)"})
	}
	if err := p.set.load(spec, kernel); err != nil {
		return err
	}
	if freesLate(kernel) {
		if err := errors.Join(p.coll.Variables[packetVarByConsume].Set(uint32(0)), p.want(withReaders, true)); err != nil {
			return fmt.Errorf("set how reads of UDP are told: %w", err)
		}
	}
	p.cpus, p.stages = p.coll.Maps[packetMapPacketCpus], p.coll.Maps[packetMapStages]
	p.xdps, p.drops = p.coll.Maps[packetMapXdps], p.coll.Maps[packetMapDrops]
	p.cpuKeys = make([]uint32, cpus)
	return nil
}

// freesLate reports whether this kernel frees what a UDP socket was read of later, so that consume_skb tells no
// read: skb_consume_udp defers it (Linux 6.18, commit 6471658dc66c), which came together with udp_prod_queue (b650bf0977d3).
func freesLate(kernel *btf.Spec) bool {
	var udp *btf.Struct
	if kernel.TypeByName("udp_sock", &udp) != nil {
		return false
	}
	return slices.ContainsFunc(udp.Members, func(m btf.Member) bool { return m.Name == "udp_prod_queue" })
}

// dropReasons are the names of what kfree_skb gives as its third argument, nil where it gives none.
func dropReasons(kernel *btf.Spec) map[uint32]string {
	var trace *btf.Typedef
	var reasons *btf.Enum
	if kernel.TypeByName("btf_trace_"+packetProgKfreeSkb, &trace) != nil || kernel.TypeByName("skb_drop_reason", &reasons) != nil {
		return nil
	}
	pointer, _ := btf.UnderlyingType(trace).(*btf.Pointer)
	if pointer == nil {
		return nil
	}
	const reason = 3 // behind __data, skb, location
	f, ok := pointer.Target.(*btf.FuncProto)
	if !ok || len(f.Params) <= reason {
		return nil
	}
	if e, ok := btf.UnderlyingType(f.Params[reason].Type).(*btf.Enum); !ok || e.Name != reasons.Name {
		return nil // parameters of a pointed-to function have a type and no name
	}
	names := make(map[uint32]string, len(reasons.Values))
	for _, v := range reasons.Values {
		names[uint32(v.Value)] = strings.TrimPrefix(v.Name, "SKB_DROP_REASON_")
	}
	return names
}

// SetRate has one packet in n sampled from now on; 0 means DefaultRate.
func (p *Packets) SetRate(n uint32) error {
	if n == 0 {
		n = DefaultRate
	}
	if err := p.coll.Variables[packetVarRate].Set(n); err != nil {
		return fmt.Errorf("set sampling rate of packets: %w", err)
	}
	return nil
}

// Read reads all counters into c, reusing its slices; as Programs.Read.
func (p *Packets) Read(c *PacketCounters) (err error) {
	if c.CPUs, err = readCPUs(p.cpus, p.cpuKeys, c.CPUs); err != nil {
		return fmt.Errorf("read packet counters: %w", err)
	}
	if c.StageKeys, c.Stages, err = readHash(p.stages, c.StageKeys[:0], c.Stages[:0]); err != nil {
		return fmt.Errorf("read packet stages: %w", err)
	}
	if c.XDPKeys, c.XDPs, err = readHash(p.xdps, c.XDPKeys[:0], c.XDPs[:0]); err != nil {
		return fmt.Errorf("read XDP counters: %w", err)
	}
	if c.DropKeys, c.Drops, err = readHash(p.drops, c.DropKeys[:0], c.Drops[:0]); err != nil {
		return fmt.Errorf("read drop counters: %w", err)
	}
	c.Reasons = p.reasons
	return nil
}

// ForgetStages deletes entries, so that the map has room for others; one that comes
// back counts from 0.
func (p *Packets) ForgetStages(keys []StageKey) error {
	for _, k := range keys {
		if err := p.stages.Delete(k); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
			return fmt.Errorf("delete packet stages: %w", err)
		}
	}
	return nil
}

// MaxStages is how many entries fit.
func (p *Packets) MaxStages() int { return int(p.stages.MaxEntries()) }

// Ran is how often programs ran on a CPU.
func (c *PacketCPU) Ran() uint64 {
	e := &c.Events
	return e.Gro + e.NetifRx + e.Stack + e.Socket + e.Copy + e.Consume + e.Free + e.Ready + e.Recv + e.Xdp
}

// Device is the name the device had when the entry was made.
func (s *StageStat) Device() string { return name(s.Name[:]) }

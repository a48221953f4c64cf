package bpf

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/bits"
	"slices"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/btf"

	"github.com/rxsteer/rxsteer/internal/toeplitz"
)

// The types of spread.h, which documents their fields.
type (
	BucketLoad = spreadLoad
	DeviceStat = spreadDeviceStat
	FlowKey    = spreadFlowKey
	Flow       = spreadFlow
)

// NoBucket is Flow.Bucket of a packet that has none.
const NoBucket = ^uint32(0)

// ClassNames are the classes of DeviceStat.Classes in order.
var ClassNames = [spreadClassCLASSES]string{
	spreadClassCLASS_TCP4: "tcp4", spreadClassCLASS_UDP4: "udp4", spreadClassCLASS_TCP6: "tcp6", spreadClassCLASS_UDP6: "udp6",
	spreadClassCLASS_IP4: "ip4", spreadClassCLASS_IP6: "ip6", spreadClassCLASS_FRAGMENT: "fragment", spreadClassCLASS_GRE: "gre",
	spreadClassCLASS_VXLAN: "vxlan", spreadClassCLASS_GENEVE: "geneve", spreadClassCLASS_IPIP: "ipip", spreadClassCLASS_PPPOE: "pppoe",
	spreadClassCLASS_OTHER: "other",
}

// FlowTypeNames are the flow types of SpreadDevice.Fields in order.
var FlowTypeNames = [spreadFlowTypeFLOW_TYPES]string{
	spreadFlowTypeFLOW_TCP4: "tcp4", spreadFlowTypeFLOW_UDP4: "udp4", spreadFlowTypeFLOW_SCTP4: "sctp4", spreadFlowTypeFLOW_IP4: "ip4",
	spreadFlowTypeFLOW_TCP6: "tcp6", spreadFlowTypeFLOW_UDP6: "udp6", spreadFlowTypeFLOW_SCTP6: "sctp6", spreadFlowTypeFLOW_IP6: "ip6",
}

// SpreadDevice is a device to watch and how it hashes.
type SpreadDevice struct {
	Netns, IfIndex uint32
	Table          []int // bucket → rx queue, negative not known; empty: it has none, and buckets are not counted
	Key            []byte
	Transform      toeplitz.Transform
	// Fields are the letters s, d, f and n (ethtool -n) by FlowTypeNames; "" is not hashed, others have no effect.
	Fields [spreadFlowTypeFLOW_TYPES]string
	RXHash bool // what the driver leaves as hash in a packet is the device's
}

// Sizes of the maps of LoadSpread. A bucket is 16 bytes per CPU, a device some 5 KiB
// and 0.5 KiB per CPU, a flow 0.2 KiB.
const (
	defaultDevices = 16
	defaultEntries = 1024
	DefaultFlows   = 16384
)

// SpreadOptions of LoadSpread; the zero value is enough for a few devices.
type SpreadOptions struct {
	Devices int // most devices watched
	Entries int // most entries of their tables together
	Flows   int // most {flow, queue, CPU} triples remembered; the longest unused make room
	BTF     func() (*btf.Spec, error)
	Types   *Types // as Options.Types
}

// Spread is the programs of spread.bpf.c: load per bucket, classes and flows of chosen
// devices. Its methods are not for concurrent use.
type Spread struct {
	set
	cpus, slots, entries   int
	buckets, stats, states *ebpf.Memory
	flows                  *ebpf.Map
	devices                []SpreadDevice
	base                   []int // by device
	buf                    []byte
}

// spreadHooks are where drivers hand packets over; spread.bpf.c.
var spreadHooks = []hook{
	{level: 2, name: spreadProgNapiGroReceiveEntry, lost: "buckets, classes and flows"},
	{level: 2, name: spreadProgNapiGroFragsEntry, lost: "buckets, classes and flows of drivers that receive into pages", optional: true},
	{level: 2, name: spreadProgNetifReceiveSkbEntry, lost: "buckets, classes and flows of drivers without GRO", optional: true},
	{level: 2, name: spreadProgNetifReceiveSkbListEntry, lost: "buckets, classes and flows of drivers that hand over lists", optional: true},
	{level: 2, name: spreadProgNetifRxEntry, lost: "buckets, classes and flows of devices without NAPI", optional: true},
}

// ErrSpreadSize is that Configure was given more than LoadSpread made room for.
var ErrSpreadSize = errors.New("more devices or table entries than there is room for")

// LoadSpread loads the programs; nothing runs before Attach, and no device is watched before
// Configure. Errors are as Load's.
func LoadSpread(opts SpreadOptions) (*Spread, error) {
	s, err := loadSpreadWith(opts, true)
	if err == nil || errors.Is(err, ErrNoPrivilege) || errors.Is(err, ErrNoBTF) || errors.Is(err, ErrNoTracepoint) {
		return s, err
	}
	// Whether tracepoints may read packet pages only loading tells.
	s, without := loadSpreadWith(opts, false)
	if without != nil {
		return nil, err
	}
	s.missing = append(s.missing, Hook{Name: "bpf_dynptr_from_skb", Level: 2,
		Why: "the kernel does not let tracepoints read packet pages (Linux 6.12 does)", Lost: "buckets and flows of packets whose headers are in pages"})
	return s, nil
}

func loadSpreadWith(opts SpreadOptions, pages bool) (*Spread, error) {
	s := &Spread{slots: int(size(opts.Devices, defaultDevices)), entries: int(size(opts.Entries, defaultEntries))}
	kernel, spec, err := s.prepare(Options{BTF: opts.BTF, Types: opts.Types}, spreadHooks, loadSpread)
	if err != nil {
		return nil, err
	}
	if s.cpus, err = ebpf.PossibleCPU(); err != nil {
		return nil, fmt.Errorf("count CPUs: %w", err)
	}
	for name, n := range map[string]int{
		spreadMapDevices: s.slots, spreadMapConfigs: s.slots, spreadMapTables: s.entries, spreadMapBuckets: s.cpus * s.entries,
		spreadMapStats: s.cpus * s.slots, spreadMapSpreadCpus: s.cpus, spreadMapFlows: int(size(opts.Flows, DefaultFlows)),
	} {
		spec.Maps[name].MaxEntries = uint32(n)
	}
	for name, n := range map[string]int{spreadVarSlots: s.slots, spreadVarEntries: s.entries} {
		if err := spec.Variables[name].Set(uint32(n)); err != nil {
			return nil, fmt.Errorf("load BPF programs: %w", err)
		}
	}
	if !pages {
		withoutKfuncs(spec)
	}
	if err := s.load(spec, kernel); err != nil {
		return nil, err
	}
	s.flows = s.coll.Maps[spreadMapFlows]
	for name, m := range map[string]**ebpf.Memory{spreadMapBuckets: &s.buckets, spreadMapStats: &s.stats, spreadMapSpreadCpus: &s.states} {
		if *m, err = s.coll.Maps[name].Memory(); err != nil {
			return nil, errors.Join(fmt.Errorf("load BPF programs: map %s: %w", name, err), s.Close())
		}
	}
	return s, nil
}

// withoutKfuncs has every call of a kernel function fail.
func withoutKfuncs(spec *ebpf.CollectionSpec) {
	for _, p := range spec.Programs {
		for i := range p.Instructions {
			if p.Instructions[i].IsKfuncCall() {
				p.Instructions[i] = asm.Mov.Imm(asm.R0, -1)
			}
		}
	}
}

// Configure says which devices to watch and zeroes all counters but those of flows. It
// switches counting off. ErrSpreadSize: there is no room, load anew with more.
func (s *Spread) Configure(devices []SpreadDevice) error {
	if err := s.configure(devices); err != nil {
		return fmt.Errorf("configure bucket counting: %w", err)
	}
	return nil
}

func (s *Spread) configure(devices []SpreadDevice) error {
	if err := s.SetOn(false); err != nil {
		return err
	}
	need := 0
	for _, d := range devices {
		need += len(d.Table)
	}
	if len(devices) > s.slots || need > s.entries {
		return fmt.Errorf("%w: %d devices with %d entries in all", ErrSpreadSize, len(devices), need)
	}
	known := s.coll.Maps[spreadMapDevices]
	for _, d := range s.devices {
		if err := known.Delete(d.key()); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
			return err
		}
	}
	s.devices, s.base = slices.Clone(devices), nil
	base := 0
	for slot, d := range devices {
		for i, queue := range d.Table {
			if queue < 0 {
				queue = -1 // NO_QUEUE
			}
			if err := s.coll.Maps[spreadMapTables].Put(uint32(base+i), uint32(queue)); err != nil {
				return err
			}
		}
		if err := s.coll.Maps[spreadMapConfigs].Put(uint32(slot), d.config(base)); err != nil {
			return err
		}
		if err := known.Put(d.key(), uint32(slot)); err != nil {
			return err
		}
		s.base = append(s.base, base)
		base += len(d.Table)
	}
	for _, m := range []*ebpf.Memory{s.buckets, s.stats} {
		if _, err := m.WriteAt(make([]byte, m.Size()), 0); err != nil {
			return err
		}
	}
	return nil
}

func (d *SpreadDevice) key() spreadDeviceKey {
	return spreadDeviceKey{Netns: d.Netns, Ifindex: d.IfIndex}
}

func (d *SpreadDevice) config(base int) *spreadConfig {
	c := &spreadConfig{Base: uint32(base), Size: uint32(len(d.Table))}
	if bits.OnesCount(uint(len(d.Table))) == 1 {
		c.Mask = c.Size - 1
	}
	if d.RXHash {
		c.Rxhash = 1
	}
	switch d.Transform {
	case toeplitz.SymmetricXOR:
		c.Xfrm = spreadXfrmXFRM_SYMMETRIC_XOR
	case toeplitz.SymmetricORXOR:
		c.Xfrm = spreadXfrmXFRM_SYMMETRIC_OR_XOR
	}
	for i, letters := range d.Fields {
		for bit, letter := range "sdfn" { // HASH_SRC and so on: in this order
			if strings.ContainsRune(letters, letter) {
				c.Fields[i] |= 1 << bit
			}
		}
	}
	input := make([]byte, len(c.Toeplitz)/2)
	for nibble := range c.Toeplitz {
		for v := range c.Toeplitz[nibble] {
			input[nibble/2] = byte(v) << (4 * (1 - nibble%2))
			c.Toeplitz[nibble][v] = toeplitz.Sum(d.Key, input)
		}
		input[nibble/2] = 0
	}
	return c
}

// SetRates has one packet in every looked at (at least 1), drawn at random, and one of flows of these sampled for
// flows, 0 none. Counters are of what was looked at.
func (s *Spread) SetRates(every, flows int) error {
	const most = 1 << 20
	for name, n := range map[string]int{spreadVarEvery: min(max(every, 1), most), spreadVarRate: min(max(flows, 0), most)} {
		if err := s.coll.Variables[name].Set(uint32(n)); err != nil {
			return fmt.Errorf("set sampling rate of packets: %w", err)
		}
	}
	return nil
}

// SpreadCounters is everything counted since Configure, of all CPUs together, and the flows
// remembered. Stats and Buckets are by device, as given to Configure; Buckets by entry of its table.
// FlowKeys[i] names Flows[i].
type SpreadCounters struct {
	Stats    []DeviceStat
	Buckets  [][]BucketLoad
	FlowKeys []FlowKey
	Flows    []Flow
	Sampled  uint64 // packets, since load
	Lost     uint64 // of these, for which there was no room
}

// Read reads all counters into c, reusing its slices.
func (s *Spread) Read(c *SpreadCounters) error {
	if err := s.read(c); err != nil {
		return fmt.Errorf("read bucket counters: %w", err)
	}
	return nil
}

func (s *Spread) read(c *SpreadCounters) error {
	statSize, loadSize := binary.Size(DeviceStat{}), binary.Size(BucketLoad{})
	c.Stats = slices.Grow(c.Stats[:0], len(s.devices))[:len(s.devices)]
	c.Buckets = slices.Grow(c.Buckets[:0], len(s.devices))[:len(s.devices)]
	for slot, d := range s.devices {
		// Both are 64-bit counters and nothing else, which add up as such.
		if err := s.sum(s.stats, statSize, s.slots, slot, 1, &c.Stats[slot]); err != nil {
			return err
		}
		c.Buckets[slot] = slices.Grow(c.Buckets[slot][:0], len(d.Table))[:len(d.Table)]
		if err := s.sum(s.buckets, loadSize, s.entries, s.base[slot], len(d.Table), c.Buckets[slot]); err != nil {
			return err
		}
	}
	c.Sampled, c.Lost = 0, 0
	stateSize := binary.Size(spreadSpreadCpu{})
	for cpu := range s.cpus {
		var state spreadSpreadCpu
		b := s.scratch(stateSize)
		if _, err := s.states.ReadAt(b, int64(cpu*stateSize)); err != nil {
			return err
		}
		if _, err := binary.Decode(b, binary.NativeEndian, &state); err != nil {
			return err
		}
		c.Sampled += state.Sampled
		c.Lost += state.Lost
	}
	var err error
	c.FlowKeys, c.Flows, err = readHash(s.flows, c.FlowKeys[:0], c.Flows[:0])
	return err
}

func (s *Spread) scratch(n int) []byte {
	s.buf = slices.Grow(s.buf[:0], n)[:n]
	return s.buf
}

// sum adds up, over CPUs, n values from at on out of stride values per CPU, and decodes them into dst.
func (s *Spread) sum(m *ebpf.Memory, size, stride, at, n int, dst any) error {
	if n == 0 {
		return nil
	}
	all := s.scratch(2 * size * n)
	total, one := all[:size*n], all[size*n:]
	clear(total)
	for cpu := range s.cpus {
		if _, err := m.ReadAt(one, int64(size)*int64(cpu*stride+at)); err != nil {
			return err
		}
		for i := 0; i < len(one); i += 8 {
			if v := binary.NativeEndian.Uint64(one[i:]); v != 0 {
				binary.NativeEndian.PutUint64(total[i:], binary.NativeEndian.Uint64(total[i:])+v)
			}
		}
	}
	_, err := binary.Decode(total, binary.NativeEndian, dst)
	return err
}

package bpf

import (
	"fmt"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
)

// Sizes of the maps unless Options says otherwise. An entry of NAPIs is 520
// bytes (and 1112 more with Detail) and one of IRQs 296; the kernel allocates them all at load.
const (
	DefaultNAPIs = 4096
	DefaultIRQs  = 8192
)

// Options of Load; the zero value is what a host wants.
type Options struct {
	NAPIs int // most {NAPI, CPU} pairs counted; 0 means DefaultNAPIs
	IRQs  int // most {IRQ, CPU} pairs counted; 0 means DefaultIRQs
	// Detail has Load make room for how runs came about: what SetDetail needs.
	Detail bool
	// Stages is the most entries of LoadPackets' stages; 0 means DefaultStages.
	Stages int
	// BTF is the source of the kernel's types; nil means the running kernel's.
	BTF func() (*btf.Spec, error)
	// Types are shared with other loads; nil: decoded for this one. Without effect where BTF is given.
	Types *Types
}

// Programs are the loaded programs of level 1 and their maps: rx.bpf.c. Its methods are
// not for concurrent use.
type Programs struct {
	set
	cpus    *ebpf.Map
	napis   *ebpf.Map
	irqs    *ebpf.Map
	runs    *ebpf.Map
	cpuKeys []uint32 // scratch of Read
	costs   Costs
}

// Load loads the programs; nothing runs before Attach. The error is
// ErrNoPrivilege, ErrNoBTF or ErrNoTracepoint where it is one of these; a
// missing tracepoint that the rest can do without is told by Missing instead.
func Load(opts Options) (*Programs, error) {
	p := &Programs{}
	kernel, spec, err := p.prepare(opts, hooks, loadRx)
	if err != nil {
		return nil, err
	}
	if err := p.load(spec, opts, kernel); err != nil {
		return nil, err
	}
	return p, nil
}

func (p *Programs) load(spec *ebpf.CollectionSpec, opts Options, kernel *btf.Spec) error {
	cpus, err := ebpf.PossibleCPU()
	if err != nil {
		return fmt.Errorf("count CPUs: %w", err)
	}
	spec.Maps[rxMapCpus].MaxEntries = uint32(cpus)
	spec.Maps[rxMapNapis].MaxEntries = size(opts.NAPIs, DefaultNAPIs)
	spec.Maps[rxMapIrqs].MaxEntries = size(opts.IRQs, DefaultIRQs)
	if opts.Detail {
		spec.Maps[rxMapRuns].MaxEntries = size(opts.NAPIs, DefaultNAPIs)
	}
	if err := p.set.load(spec, kernel); err != nil {
		return err
	}
	p.cpus, p.napis, p.irqs = p.coll.Maps[rxMapCpus], p.coll.Maps[rxMapNapis], p.coll.Maps[rxMapIrqs]
	p.runs = p.coll.Maps[rxMapRuns]
	p.cpuKeys = make([]uint32, cpus)
	return nil
}

// SetDetail has runs recorded too: how long they waited, and which interrupt raised them.
// It needs Options.Detail, and one more program.
func (p *Programs) SetDetail(on bool) error {
	if err := p.want(withDetail, on); err != nil {
		return err
	}
	var value uint32
	if on {
		value = 1
	}
	if err := p.coll.Variables[rxVarDetail].Set(value); err != nil {
		return fmt.Errorf("switch detail of BPF programs: %w", err)
	}
	return nil
}

// SetThreads has the polls of NAPI threads timed, by a program that each switch of tasks
// runs: for hosts that have such threads (NAPIStat.Thread tells). It may be called again.
func (p *Programs) SetThreads(on bool) error {
	return p.want(withThreads, on)
}

// SetRate has one softirq run, interrupt and poll outside NET_RX in n looked at from now on, as a whole; 0 means each.
func (p *Programs) SetRate(n uint32) error {
	if err := p.coll.Variables[rxVarRate].Set(max(n, 1)); err != nil {
		return fmt.Errorf("set sampling rate of softirq runs: %w", err)
	}
	return nil
}

func size(n, def int) uint32 {
	if n <= 0 {
		n = def
	}
	return uint32(n)
}

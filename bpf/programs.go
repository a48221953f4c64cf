package bpf

import (
	"errors"
	"fmt"
	"slices"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
	"github.com/cilium/ebpf/link"
	"github.com/cilium/ebpf/rlimit"
)

// Sizes of the maps unless Options says otherwise. An entry of NAPIs is 448
// bytes and one of IRQs 24; the kernel allocates them all at load.
const (
	DefaultNAPIs = 4096
	DefaultIRQs  = 8192
)

// Options of Load; the zero value is what a host wants.
type Options struct {
	NAPIs int // most {NAPI, CPU} pairs counted; 0 means DefaultNAPIs
	IRQs  int // most {IRQ, CPU} pairs counted; 0 means DefaultIRQs
	// BTF is the source of the kernel's types; nil means the running kernel's.
	BTF func() (*btf.Spec, error)
}

// Programs are the loaded programs and their maps. Its methods are not for
// concurrent use.
type Programs struct {
	coll    *ebpf.Collection
	cpus    *ebpf.Map
	napis   *ebpf.Map
	irqs    *ebpf.Map
	links   []link.Link
	missing []Hook
	cpuKeys []uint32 // scratch of Read
}

// Load loads the programs; nothing runs before Attach. The error is
// ErrNoPrivilege, ErrNoBTF or ErrNoTracepoint where it is one of these; a
// missing tracepoint that the rest can do without is told by Missing instead.
func Load(opts Options) (*Programs, error) {
	kernel, err := kernelTypes(opts.BTF)
	if err != nil {
		return nil, fmt.Errorf("load BPF programs: %w", err)
	}
	spec, err := loadRx()
	if err != nil {
		return nil, fmt.Errorf("load BPF programs: %w", err)
	}
	p := &Programs{}
	for _, h := range hooks {
		err := h.find(kernel)
		if err == nil {
			continue
		}
		if !h.optional || !errors.Is(err, ErrNoTracepoint) {
			return nil, fmt.Errorf("load BPF programs: %w", err)
		}
		delete(spec.Programs, h.name)
		p.missing = append(p.missing, Hook{Name: h.name, Why: err.Error(), Lost: h.lost})
	}
	missing, err := missingCaps()
	if err != nil {
		return nil, fmt.Errorf("load BPF programs: %w", err)
	}
	if len(missing) > 0 {
		return nil, noCaps("load BPF programs", missing)
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

	// Before Linux 5.11 maps count against RLIMIT_MEMLOCK. Where it cannot be
	// lifted, loading tells whether that mattered.
	memlock := rlimit.RemoveMemlock()
	p.coll, err = ebpf.NewCollectionWithOptions(spec, ebpf.CollectionOptions{
		Programs: ebpf.ProgramOptions{KernelTypes: kernel},
	})
	if err != nil {
		err = explain("load BPF programs", err)
		if memlock != nil && errors.Is(err, ErrNoPrivilege) {
			err = fmt.Errorf("%w; or, before Linux 5.11, RLIMIT_MEMLOCK is too low: raise it, or grant CAP_SYS_RESOURCE", err)
		}
		return err
	}
	p.cpus, p.napis, p.irqs = p.coll.Maps[rxMapCpus], p.coll.Maps[rxMapNapis], p.coll.Maps[rxMapIrqs]
	p.cpuKeys = make([]uint32, cpus)
	return nil
}

func size(n, def int) uint32 {
	if n <= 0 {
		n = def
	}
	return uint32(n)
}

// Attach attaches every program and then lets them count. On an error none is
// left attached.
func (p *Programs) Attach() error {
	for _, h := range hooks {
		prog := p.coll.Programs[h.name]
		if prog == nil {
			continue // in missing
		}
		l, err := link.AttachTracing(link.TracingOptions{Program: prog, AttachType: ebpf.AttachTraceRawTp})
		if err != nil {
			return errors.Join(explain("attach to tracepoint "+h.name, err), p.detach())
		}
		p.links = append(p.links, l)
	}
	if err := p.coll.Variables[rxVarOn].Set(uint32(1)); err != nil {
		return errors.Join(fmt.Errorf("switch BPF programs on: %w", err), p.detach())
	}
	return nil
}

func (p *Programs) detach() error {
	var errs []error
	for _, l := range p.links {
		errs = append(errs, l.Close())
	}
	p.links = nil
	return errors.Join(errs...)
}

// Close detaches and unloads everything. A second Close does nothing.
func (p *Programs) Close() error {
	err := p.detach()
	if p.coll != nil {
		p.coll.Close()
	}
	p.coll = nil
	if err != nil {
		return fmt.Errorf("detach BPF programs: %w", err)
	}
	return nil
}

// Missing lists the hooks this kernel does not have.
func (p *Programs) Missing() []Hook { return slices.Clone(p.missing) }

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

// set is the programs of one object. It has a variable named on: 0 is off, and a
// greater number each time it is switched on, by which the programs know marks of an
// earlier time.
type set struct {
	hooks   []hook
	coll    *ebpf.Collection
	links   map[string]link.Link // by hook
	missing []Hook
	wanted  map[when]bool // beside always
	times   uint32        // switched on so often
	types   *Types        // until loaded
}

// Types are the kernel's types as they were last decoded, which takes some 50 ms: loads that follow each other share
// them. Not for concurrent use.
type Types struct{ cache *btf.Cache }

// NewTypes returns Types that are decoded when first needed.
func NewTypes() *Types { return &Types{btf.NewCache()} }

// prepare looks for what the hooks need and leaves out the programs of those missing.
func (s *set) prepare(opts Options, hooks []hook, object func() (*ebpf.CollectionSpec, error)) (*btf.Spec, *ebpf.CollectionSpec, error) {
	source := opts.BTF
	if source == nil {
		if s.types = opts.Types; s.types == nil {
			s.types = NewTypes()
		}
		source = s.types.cache.Kernel
	}
	kernel, err := kernelTypes(source)
	if err != nil {
		return nil, nil, fmt.Errorf("load BPF programs: %w", err)
	}
	spec, err := object()
	if err != nil {
		return nil, nil, fmt.Errorf("load BPF programs: %w", err)
	}
	for _, h := range hooks {
		err := h.find(kernel)
		if err == nil {
			s.hooks = append(s.hooks, h)
			continue
		}
		if !h.optional || !errors.Is(err, ErrNoTracepoint) {
			return nil, nil, fmt.Errorf("load BPF programs: %w", err)
		}
		delete(spec.Programs, h.name)
		s.missing = append(s.missing, Hook{Name: h.name, Level: h.level, Why: err.Error(), Lost: h.lost})
	}
	missing, err := missingCaps()
	if err != nil {
		return nil, nil, fmt.Errorf("load BPF programs: %w", err)
	}
	if len(missing) > 0 {
		return nil, nil, noCaps("load BPF programs", missing)
	}
	return kernel, spec, nil
}

func (s *set) load(spec *ebpf.CollectionSpec, kernel *btf.Spec) (err error) {
	// Before Linux 5.11 maps count against RLIMIT_MEMLOCK. Where it cannot be
	// lifted, loading tells whether that mattered.
	memlock := rlimit.RemoveMemlock()
	opts := ebpf.CollectionOptions{Programs: ebpf.ProgramOptions{KernelTypes: kernel}}
	if s.types != nil {
		opts.Cache, s.types = s.types.cache, nil
	}
	s.coll, err = ebpf.NewCollectionWithOptions(spec, opts)
	if err != nil {
		err = explain("load BPF programs", err)
		if memlock != nil && errors.Is(err, ErrNoPrivilege) {
			err = fmt.Errorf("%w; or, before Linux 5.11, RLIMIT_MEMLOCK is too low: raise it, or grant CAP_SYS_RESOURCE", err)
		}
		return err
	}
	return nil
}

// Attach attaches every program and then lets them count. On an error none is
// left attached.
func (s *set) Attach() error {
	for _, w := range []when{always, withDetail, withThreads, withReaders} {
		if w != always && !s.wanted[w] {
			continue
		}
		if err := s.attach(w); err != nil {
			return err
		}
	}
	if err := s.SetOn(true); err != nil {
		return errors.Join(err, s.detach())
	}
	return nil
}

// attach attaches those programs. On an error no program of the set is left attached.
func (s *set) attach(w when) error {
	for _, h := range s.hooks {
		if h.when != w || s.links[h.name] != nil {
			continue
		}
		l, err := link.AttachTracing(link.TracingOptions{Program: s.coll.Programs[h.name], AttachType: ebpf.AttachTraceRawTp})
		if err != nil {
			return errors.Join(explain("attach to tracepoint "+h.name, err), s.detach())
		}
		if s.links == nil {
			s.links = map[string]link.Link{}
		}
		s.links[h.name] = l
	}
	return nil
}

// Detach has no program attached any more; what was counted can still be read, and
// Attach called again. One that was attached and counts again costs the host
// interprocessor calls to every CPU, so do it no more often than every 10 s, and use
// SetOn for what is shorter.
func (s *set) Detach() error {
	if err := errors.Join(s.SetOn(false), s.detach()); err != nil {
		return fmt.Errorf("detach BPF programs: %w", err)
	}
	return nil
}

// SetOn has the attached programs count or return at once (which costs 20 ns still).
// Nothing that began before it was switched on is ever counted.
func (s *set) SetOn(on bool) error {
	var value uint32
	if on {
		s.times++
		value = s.times
	}
	if err := s.coll.Variables["on"].Set(value); err != nil {
		return fmt.Errorf("switch BPF programs: %w", err)
	}
	return nil
}

// want attaches the programs of w, or detaches them, now or at the next Attach.
func (s *set) want(w when, wanted bool) error {
	if s.wanted == nil {
		s.wanted = map[when]bool{}
	}
	s.wanted[w] = wanted
	if len(s.links) == 0 {
		return nil
	}
	if wanted {
		return s.attach(w)
	}
	var names []string
	for _, h := range s.hooks {
		if h.when == w {
			names = append(names, h.name)
		}
	}
	return s.detach(names...)
}

// detach detaches the named programs, all if none is named.
func (s *set) detach(names ...string) error {
	var errs []error
	for name, l := range s.links {
		if len(names) == 0 || slices.Contains(names, name) {
			errs = append(errs, l.Close())
			delete(s.links, name)
		}
	}
	return errors.Join(errs...)
}

// Close detaches and unloads everything. A second Close does nothing.
func (s *set) Close() error {
	err := s.detach()
	if s.coll != nil {
		s.coll.Close()
	}
	s.coll = nil
	if err != nil {
		return fmt.Errorf("detach BPF programs: %w", err)
	}
	return nil
}

// Missing lists the hooks this kernel does not have.
func (s *set) Missing() []Hook { return slices.Clone(s.missing) }

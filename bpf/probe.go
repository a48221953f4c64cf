package bpf

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"

	"github.com/rxsteer/rxsteer/internal/host"
)

// Hook is one thing live measurement asks of the kernel.
type Hook struct {
	Name  string `json:"name"`
	Level int    `json:"level,omitempty"` // of attention that needs it: 1 polls, 2 packets
	Live  bool   `json:"live"`
	Why   string `json:"why,omitempty"`  // it is missing
	Lost  string `json:"lost,omitempty"` // what cannot be measured without it
}

// Support is what this kernel and this process's privilege allow.
type Support struct {
	UID         int      `json:"uid"`
	MissingCaps []string `json:"missing_capabilities"` // for BPF; empty: all there
	BTF         Hook     `json:"btf"`
	// Lockdown is the kernel's lockdown mode: none, integrity, confidentiality, or
	// "unknown" where securityfs does not tell.
	Lockdown string `json:"lockdown"`
	// Kprobes says whether the kernel has kprobes at all. Nothing of rxsteer needs
	// them; other tools do.
	Kprobes bool   `json:"kprobes"`
	Hooks   []Hook `json:"hooks"` // each was loaded and attached to find out
	// Profile is what rxsteer profile needs beside them; nothing else does.
	Profile Hook `json:"profile"`
	// Err is why live measurement is not possible, nil if it is: what Load and
	// Attach would return.
	Err error `json:"-"`
}

// Probe tries each hook by itself: load, attach, detach. It leaves nothing
// behind and never fails; what it cannot find out it reports as missing.
// Netlink is not its business: internal/ethtool and internal/netdev know that.
func Probe(fsys host.FS, opts Options) Support {
	s := Support{UID: os.Geteuid(), Lockdown: lockdown(fsys), Kprobes: kprobes(fsys)}
	s.BTF = Hook{Name: "BTF", Lost: "all live measurement"}
	kernel, btfErr := kernelTypes(opts.BTF)
	if btfErr != nil {
		s.BTF.Why = btfErr.Error()
	} else {
		s.BTF.Live = true
	}
	missing, err := missingCaps()
	s.MissingCaps = missing
	switch {
	case err != nil:
		s.Err = err
	case len(missing) > 0:
		s.Err = noCaps("load BPF programs", missing)
	default:
		s.Err = btfErr
	}
	for _, h := range slices.Concat(hooks, packetHooks) {
		err := s.Err
		if btfErr == nil {
			if missing := h.find(kernel); missing != nil {
				err = missing
			}
		}
		if err == nil {
			err = h.try(kernel)
		}
		r := Hook{Name: h.name, Level: h.level, Live: err == nil, Lost: h.lost}
		if err != nil {
			r.Why = err.Error()
			if s.Err == nil && !h.optional && h.level == 1 {
				s.Err = err
			}
		}
		s.Hooks = append(s.Hooks, r)
	}
	s.Hooks = append(s.Hooks, probeSpread(opts, s.Err)...)
	s.Profile = probeProfiler(opts)
	return s
}

// probeSpread tries the hooks of LoadSpread, together: what they may read of a packet only loading them all tells. Some
// have the name of a hook that follows packets.
func probeSpread(opts Options, refused error) []Hook {
	missing := map[string]string{}
	var more []Hook // that are no tracepoint
	if refused == nil {
		var s *Spread
		if s, refused = LoadSpread(SpreadOptions{BTF: opts.BTF, Types: opts.Types}); refused == nil {
			for _, h := range s.Missing() {
				missing[h.Name] = h.Why
				if !slices.ContainsFunc(spreadHooks, func(x hook) bool { return x.name == h.Name }) {
					more = append(more, h)
				}
			}
			refused = errors.Join(s.Attach(), s.Close())
		}
	}
	var out []Hook
	for _, h := range spreadHooks {
		r := Hook{Name: h.name, Level: h.level, Lost: h.lost, Why: missing[h.name]}
		if refused != nil {
			r.Why = refused.Error()
		}
		r.Live = r.Why == ""
		out = append(out, r)
	}
	return append(out, more...)
}

// try loads and attaches the hook's program alone.
func (h hook) try(kernel *btf.Spec) error {
	object := loadRx
	if slices.Contains(packetHooks, h) {
		object = loadPacket
	}
	h.when = always // here alone
	spec, err := object()
	if err != nil {
		return fmt.Errorf("load BPF programs: %w", err)
	}
	for name := range spec.Programs {
		if name != h.name {
			delete(spec.Programs, name)
		}
	}
	for _, m := range spec.Maps {
		if m.Type == ebpf.Hash {
			m.MaxEntries = 1
		}
	}
	s := set{hooks: []hook{h}}
	if err := s.load(spec, kernel); err != nil {
		return err
	}
	return errors.Join(s.Attach(), s.Close())
}

// lockdown reads the chosen one of "none [integrity] confidentiality"
// (security/lockdown/lockdown.c).
func lockdown(fsys host.FS) string {
	text, err := fsys.ReadFile("/sys/kernel/security/lockdown")
	if err != nil {
		return "unknown"
	}
	_, rest, ok := strings.Cut(string(text), "[")
	mode, _, closed := strings.Cut(rest, "]")
	if !ok || !closed {
		return "unknown"
	}
	return mode
}

// kprobes reports whether the kernel was built with them: the event source is
// there (kernel/events/core.c perf_kprobe).
func kprobes(fsys host.FS) bool {
	_, err := fsys.ReadFile("/sys/bus/event_source/devices/kprobe/type")
	return err == nil
}

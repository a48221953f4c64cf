package bpf

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf/btf"
)

// hook is a tracepoint and the program for it, which has its name.
type hook struct {
	name string
	lost string // what no Sample holds without it
	// optional: the rest is right without it.
	optional bool
}

// hooks in order of attachment.
var hooks = []hook{
	{name: rxProgSoftirqEntry, lost: "all live measurement: a softirq's beginning"},
	{name: rxProgSoftirqExit, lost: "all live measurement: a softirq's end"},
	{name: rxProgNapiPoll, lost: "all live measurement: which NAPI a NET_RX run polled"},
	{name: rxProgIrqHandlerEntry, lost: "time per interrupt", optional: true},
	{name: rxProgIrqHandlerExit, lost: "time per interrupt", optional: true},
}

// find reports whether kernel has the tracepoint: nil, ErrNoTracepoint, or
// that it could not be told. Every tracepoint a program can bind to by BTF is
// described by a typedef (include/trace/bpf_probe.h).
func (h hook) find(kernel *btf.Spec) error {
	var t *btf.Typedef
	err := kernel.TypeByName("btf_trace_"+h.name, &t)
	if errors.Is(err, btf.ErrNotFound) {
		return fmt.Errorf("%w %s", ErrNoTracepoint, h.name)
	}
	if err != nil {
		return fmt.Errorf("find tracepoint %s: %w", h.name, err)
	}
	return nil
}

// kernelTypes calls the options' source of BTF.
func kernelTypes(source func() (*btf.Spec, error)) (*btf.Spec, error) {
	if source == nil {
		source = btf.LoadKernelSpec
	}
	spec, err := source()
	if err != nil {
		return nil, fmt.Errorf("%w: live measurement needs a kernel built with CONFIG_DEBUG_INFO_BTF: %w", ErrNoBTF, err)
	}
	return spec, nil
}

package main

import (
	"context"
	"errors"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
)

// empty attaches a program that does nothing to each tracepoint named, once for each time it is named: the least that
// measuring there can cost.
func empty(tracepoints ...string) func(context.Context) (func() error, error) {
	return func(context.Context) (stop func() error, err error) {
		var closers []func() error
		stop = func() error {
			var errs []error
			for _, c := range closers {
				errs = append(errs, c())
			}
			return errors.Join(errs...)
		}
		for _, name := range tracepoints {
			p, err := ebpf.NewProgram(&ebpf.ProgramSpec{Name: "empty", Type: ebpf.Tracing, AttachType: ebpf.AttachTraceRawTp, AttachTo: name,
				License: "Dual BSD/GPL", Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, 0), asm.Return()}})
			if err != nil {
				return nil, errors.Join(err, stop())
			}
			closers = append(closers, p.Close)
			l, err := link.AttachTracing(link.TracingOptions{Program: p, AttachType: ebpf.AttachTraceRawTp})
			if err != nil {
				return nil, errors.Join(err, stop())
			}
			closers = append(closers, l.Close)
		}
		return stop, nil
	}
}

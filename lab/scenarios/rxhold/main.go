// Command rxhold keeps the busiest tracepoints that rxsteer's programs use switched on in a guest, by two programs each that
// do nothing, until it is killed: "rxhold: ready" on stderr says so.
//
// A tracepoint that goes on or off, or from one program to two, has the kernel rewrite its code while CPUs run it. With
// multi-threaded TCG a CPU may run an old translation of it and panic in an int3 that is gone (lab/README.md); with two
// programs there already only a list changes (tracepoint_add_func, kernel/tracepoint.c).
package main

import (
	"errors"
	"fmt"
	"os"
	"os/signal"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/btf"
	"github.com/cilium/ebpf/link"
	"github.com/cilium/ebpf/rlimit"
	"golang.org/x/sys/unix"
)

// tracepoints are those whose code runs most often: the oopses seen were in handle_softirqs. Each takes an emulated kernel
// a second.
var tracepoints = []string{"irq_handler_entry", "irq_handler_exit", "napi_poll", "softirq_entry", "softirq_exit", "softirq_raise"}

func main() {
	if err := hold(); err != nil {
		fmt.Fprintln(os.Stderr, "rxhold:", err)
		os.Exit(1)
	}
	fmt.Fprintln(os.Stderr, "rxhold: ready")
	end := make(chan os.Signal, 1)
	signal.Notify(end, unix.SIGINT, unix.SIGTERM)
	<-end
}

// hold attaches; what is attached stays until the process ends.
func hold() error {
	if err := rlimit.RemoveMemlock(); err != nil {
		return fmt.Errorf("raise the memory lock limit: %w", err)
	}
	kernel, err := btf.LoadKernelSpec()
	if err != nil {
		return fmt.Errorf("read the kernel's types: %w", err)
	}
	for _, name := range tracepoints {
		var t *btf.Typedef
		if err := kernel.TypeByName("btf_trace_"+name, &t); errors.Is(err, btf.ErrNotFound) {
			continue // an older kernel
		}
		for range 2 {
			p, err := ebpf.NewProgram(&ebpf.ProgramSpec{Type: ebpf.Tracing, AttachType: ebpf.AttachTraceRawTp, AttachTo: name, License: "GPL",
				Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, 0), asm.Return()}})
			if err != nil {
				return fmt.Errorf("load a program for %s: %w", name, err)
			}
			l, err := link.AttachTracing(link.TracingOptions{Program: p, AttachType: ebpf.AttachTraceRawTp})
			if err != nil {
				return fmt.Errorf("attach to %s: %w", name, err)
			}
			held = append(held, l)
		}
	}
	return nil
}

var held []link.Link // so that none is collected

package main

import (
	"context"

	"github.com/rxsteer/rxsteer/lab/matrix"
	"github.com/rxsteer/rxsteer/lab/vm/qemu"
)

// ciMatrix is the two kernels of make check.
var ciMatrix = []qemu.Machine{{Kernel: "6.12", NIC: "igb", Queues: 2, SMP: 2}, {Kernel: "6.1", NIC: "virtio", Queues: 2, SMP: 2}}

func fullMatrix() []qemu.Machine {
	var out []qemu.Machine
	for _, k := range qemu.Kernels {
		out = append(out, qemu.Machine{Kernel: k, NIC: "igb", Queues: 2, SMP: 2})
	}
	return out
}

func runMatrix(ctx context.Context, kernels []string) error {
	machines := fullMatrix()
	if len(kernels) > 0 {
		machines = nil
		for _, k := range kernels {
			machines = append(machines, qemu.Machine{Kernel: k, NIC: "igb", Queues: 2, SMP: 2})
		}
	}
	return withLab(ctx, func(l *lab) ([]line, error) { return l.matrix(ctx, machines) })
}

func (l *lab) matrix(ctx context.Context, machines []qemu.Machine) ([]line, error) {
	rows, err := matrix.Run(ctx, l.cache, l.bin, machines)
	var lines []line
	for _, r := range rows {
		lines = append(lines, line{"matrix", r.Machine, r.Result, r.Verdict, r.Took})
	}
	return lines, err
}

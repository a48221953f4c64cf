package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"

	"github.com/rxsteer/rxsteer/lab/rsspp"
)

// greedyPeriod is how often the greedy looks.
const greedyPeriod = 500 * time.Millisecond

// greedy is RSS++ as published: a queue per core, packets counted per bucket by a BPF program,
// each core's load shared out to its buckets by packets, the table rewritten each period.
func greedy(ctx context.Context, h *host) (time.Duration, error) {
	began, err := ownCPU()
	if err != nil {
		return 0, err
	}
	own := func(err error) (time.Duration, error) {
		now, err2 := ownCPU()
		return now - began, errors.Join(err, err2)
	}
	for q := range h.irqs {
		if err := h.pin(q, q%h.cpus); err != nil {
			return own(err)
		}
	}
	count, err := countBuckets(h.dev, h.sizes)
	if err != nil {
		return own(err)
	}
	defer count.Close()
	packets, err := count.read()
	if err != nil {
		return own(err)
	}
	busy, err := busyTimes(h.cpus)
	if err != nil {
		return own(err)
	}
	for range ticks(ctx, greedyPeriod) {
		p, err := count.read()
		if err != nil {
			return own(err)
		}
		b, err := busyTimes(h.cpus)
		if err != nil {
			return own(err)
		}
		table, err := h.table()
		if err != nil {
			return own(err)
		}
		byQueue := make([]float64, len(h.irqs))
		for i, q := range table {
			byQueue[q] += float64(p[i] - packets[i])
		}
		loads := make([]float64, len(table))
		for i, q := range table {
			if byQueue[q] > 0 {
				loads[i] = float64(p[i]-packets[i]) / byQueue[q] * b.share(busy, q%h.cpus)
			}
		}
		// A core without packets keeps its load.
		rest := make([]float64, len(h.irqs))
		for q := range rest {
			if byQueue[q] == 0 {
				rest[q] = b.share(busy, q%h.cpus)
			}
		}
		packets, busy = p, b
		if next := rsspp.Solve(loads, rest, table); !slices.Equal(next, table) {
			if err := h.setTable(next); err != nil {
				return own(err)
			}
		}
	}
	return own(nil)
}

// jiffies are by CPU, of /proc/stat.
type jiffies struct{ busy, all []float64 }

func (j jiffies) share(o jiffies, cpu int) float64 {
	if d := j.all[cpu] - o.all[cpu]; d > 0 {
		return (j.busy[cpu] - o.busy[cpu]) / d
	}
	return 0
}

func busyTimes(cpus int) (jiffies, error) {
	j := jiffies{make([]float64, cpus), make([]float64, cpus)}
	text, err := os.ReadFile("/proc/stat")
	if err != nil {
		return j, err
	}
	for line := range strings.Lines(string(text)) {
		f := strings.Fields(line)
		if len(f) < 9 || !strings.HasPrefix(f[0], "cpu") || f[0] == "cpu" {
			continue
		}
		c, err := strconv.Atoi(f[0][3:])
		if err != nil || c >= cpus {
			return j, fmt.Errorf("parse /proc/stat: %q", f[0])
		}
		for i, s := range f[1:9] {
			v, err := strconv.ParseFloat(s, 64)
			if err != nil {
				return j, err
			}
			j.all[c] += v
			if i != 3 && i != 4 { // idle, iowait
				j.busy[c] += v
			}
		}
	}
	return j, nil
}

// bucketCount counts packets by bucket: the hash that the device gave, modulo the table's size.
type bucketCount struct {
	m    *ebpf.Map
	prog *ebpf.Program
	link link.Link
	size int
}

// hashOffset is that of hash in struct __sk_buff (include/uapi/linux/bpf.h).
const hashOffset = 68

func countBuckets(dev string, size int) (*bucketCount, error) {
	i, err := net.InterfaceByName(dev)
	if err != nil {
		return nil, err
	}
	c := &bucketCount{size: size}
	if c.m, err = ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.Array, KeySize: 4, ValueSize: 8, MaxEntries: uint32(size)}); err != nil {
		return nil, fmt.Errorf("make map: %w", err)
	}
	c.prog, err = ebpf.NewProgram(&ebpf.ProgramSpec{Type: ebpf.SchedCLS, License: "GPL", Instructions: asm.Instructions{
		asm.LoadMem(asm.R2, asm.R1, hashOffset, asm.Word),
		asm.And.Imm(asm.R2, int32(size-1)),
		asm.StoreMem(asm.RFP, -4, asm.R2, asm.Word),
		asm.Mov.Reg(asm.R2, asm.RFP),
		asm.Add.Imm(asm.R2, -4),
		asm.LoadMapPtr(asm.R1, c.m.FD()),
		asm.FnMapLookupElem.Call(),
		asm.JEq.Imm(asm.R0, 0, "next"),
		asm.Mov.Imm(asm.R1, 1),
		asm.StoreXAdd(asm.R0, asm.R1, asm.DWord),
		asm.Mov.Imm(asm.R0, -1).WithSymbol("next"), // TCX_NEXT: whoever else is attached comes next
		asm.Return(),
	}})
	if err != nil {
		c.Close()
		return nil, fmt.Errorf("load program: %w", err)
	}
	if c.link, err = link.AttachTCX(link.TCXOptions{Interface: i.Index, Program: c.prog, Attach: ebpf.AttachTCXIngress, Anchor: link.Head()}); err != nil {
		c.Close()
		return nil, fmt.Errorf("attach to %s: %w", dev, err)
	}
	return c, nil
}

func (c *bucketCount) read() ([]uint64, error) {
	keys, out := make([]uint32, c.size), make([]uint64, c.size)
	var cursor ebpf.MapBatchCursor
	if n, err := c.m.BatchLookup(&cursor, keys, out, nil); n != c.size && err != nil {
		return nil, fmt.Errorf("read buckets: %d of %d: %w", n, c.size, err)
	}
	return out, nil
}

func (c *bucketCount) Close() error {
	var errs []error
	if c.link != nil {
		errs = append(errs, c.link.Close())
	}
	if c.prog != nil {
		errs = append(errs, c.prog.Close())
	}
	return errors.Join(append(errs, c.m.Close())...)
}

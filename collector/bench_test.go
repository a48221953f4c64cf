package collector

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/rxsteer/rxsteer/bpf"
	"github.com/rxsteer/rxsteer/internal/host"
)

// bigHost is a host of so many CPUs and so many {NAPI, CPU} pairs at count n.
func bigHost(cpus, pairs int, n uint64) (files, *bpf.Counters) {
	f := files{"/proc/thread-self/ns/net": fmt.Sprintf("net:[%d]", ownInode), "/proc/net/dev": devHeader}
	head, soft := "", "NET_RX:"
	for c := range cpus {
		head += fmt.Sprintf(" CPU%d", c)
		soft += fmt.Sprintf(" %10d", n)
		f["/proc/stat"] += fmt.Sprintf("cpu%d 0 0 0 %d 0 0 %d 0 0 0\n", c, n, n)
		f["/proc/net/softnet_stat"] += softnetRow(c, uint32(n), 0, 0)
	}
	f["/proc/softirqs"] = head + "\n" + soft + "\n"
	f["/proc/interrupts"] = head + "\n"
	for irq := range 64 {
		row := "" // each fires on a CPU of its own, and once did on all
		for c := range cpus {
			count := uint64(1000)
			if c == irq%cpus {
				count = n
			}
			row += fmt.Sprintf(" %10d", count)
		}
		f["/proc/interrupts"] += fmt.Sprintf("%d: %s  PCI-MSI %d-edge  eth0-rx-%d\n", irq+30, row, irq, irq)
	}
	f.device("eth0", 2, n, n, 0, 0, n, n, 0)
	c := &bpf.Counters{CPUs: make([]bpf.CPUStat, cpus)}
	for i := range pairs {
		c.NAPIKeys = append(c.NAPIKeys, bpf.NAPIKey{Napi: uint64(i), Netns: ownInode, Ifindex: 2, NapiId: uint32(i), Cpu: uint32(i % cpus)})
		c.NAPIs = append(c.NAPIs, bpf.NAPIStat{Polls: n, Packets: n, Time: n})
	}
	return f, c
}

// BenchmarkInterval is all user space does per interval, the kernel's text aside.
func BenchmarkInterval(b *testing.B) {
	for _, size := range []struct{ cpus, pairs int }{{2, 8}, {64, 512}, {256, 4096}} {
		b.Run(fmt.Sprintf("cpus=%d/pairs=%d", size.cpus, size.pairs), func(b *testing.B) {
			f, c := bigHost(size.cpus, size.pairs, 1000)
			before := ReadHost(f, epoch)
			before.BPF = c
			f, c = bigHost(size.cpus, size.pairs, 3000)
			b.ReportAllocs()
			for b.Loop() {
				after := ReadHost(f, epoch.Add(time.Second))
				after.BPF = c
				if s := Between(before, after, nil); len(s.NAPIs) != size.pairs || len(s.CPUs) != size.cpus {
					b.Fatalf("%d NAPIs, %d CPUs", len(s.NAPIs), len(s.CPUs))
				}
			}
		})
	}
}

// BenchmarkLevel0 is one interval on this very host without BPF.
func BenchmarkLevel0(b *testing.B) {
	s := New(Config{FS: host.OS{}})
	b.ReportAllocs()
	for b.Loop() {
		if _, err := s.Sample(context.Background(), 0); err != nil {
			b.Fatal(err)
		}
	}
}

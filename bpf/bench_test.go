package bpf

import (
	"fmt"
	"testing"

	"github.com/rxsteer/rxsteer/internal/testnet"
)

// BenchmarkLoadAttach is what a command waits for before it measures (goal 0.2 s).
func BenchmarkLoadAttach(b *testing.B) {
	testnet.NeedRoot(b)
	for b.Loop() {
		p, err := Load(Options{})
		if err != nil {
			b.Fatal(err)
		}
		if err := p.Attach(); err != nil {
			b.Fatal(err)
		}
		b.StopTimer()
		if err := p.Close(); err != nil {
			b.Fatal(err)
		}
		b.StartTimer()
	}
}

// BenchmarkRead reads so many {NAPI, CPU} pairs (goal for 512: 0.2 ms).
func BenchmarkRead(b *testing.B) {
	testnet.NeedRoot(b)
	for _, pairs := range []int{8, 512, 4096} {
		b.Run(fmt.Sprint(pairs), func(b *testing.B) {
			p, err := Load(Options{})
			if err != nil {
				b.Fatal(err)
			}
			defer p.Close()
			for i := range pairs {
				k := NAPIKey{Napi: 0xffff888000000000 + uint64(i)<<10, Netns: 1, Ifindex: 2, NapiId: uint32(i), Cpu: uint32(i % 64)}
				if err := p.napis.Put(k, NAPIStat{Polls: uint64(i)}); err != nil {
					b.Fatal(err)
				}
			}
			var c Counters
			for b.Loop() {
				if err := p.Read(&c); err != nil {
					b.Fatal(err)
				}
			}
			if len(c.NAPIs) != pairs {
				b.Fatalf("%d pairs, want %d", len(c.NAPIs), pairs)
			}
		})
	}
}

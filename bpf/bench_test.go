package bpf

import (
	"errors"
	"fmt"
	"testing"

	"github.com/rxsteer/rxsteer/internal/testnet"
	"github.com/rxsteer/rxsteer/internal/toeplitz"
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

// BenchmarkSpread receives a packet on a tap without and with the bucket programs: what they
// cost is the difference to detached. Run it on a quiet machine, with -count 10.
func BenchmarkSpread(b *testing.B) {
	testnet.NeedTun(b)
	s, err := LoadSpread(SpreadOptions{})
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	ns := testnet.New(b)
	dev, err := ns.NewTAP("rx0", 1)
	if err != nil {
		b.Fatal(err)
	}
	defer dev.Close()
	v4, v6 := frames(b, udp("10.9.0.1:4000", "10.9.1.1:5000"))[0], frames(b, udp("[fd00::1]:4000", "[fd00::2]:5000"))[0]
	run := func(name string, frame []byte, rate int, d *SpreadDevice) {
		b.Run(name, func(b *testing.B) {
			if d != nil {
				if err := s.Attach(); err != nil {
					b.Fatal(err)
				}
				defer s.Detach()
				s.watch(b, ns, "rx0", rate, *d)
			}
			b.ResetTimer()
			for b.Loop() {
				if err := dev.Inject(0, frame); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
	full := &SpreadDevice{Table: turns(128, 1), Key: toeplitz.MicrosoftKey, Fields: allFields}
	run("detached/udp4", v4, 0, nil)
	run("classes/udp4", v4, 0, &SpreadDevice{})
	run("buckets/udp4", v4, 0, full)
	run("buckets+flows/udp4", v4, 64, full)
	b.Run("sampled+flows/udp4", func(b *testing.B) {
		if err := s.Attach(); err != nil {
			b.Fatal(err)
		}
		defer s.Detach()
		s.watch(b, ns, "rx0", 1, *full)
		if err := s.SetRates(64, 1); err != nil {
			b.Fatal(err)
		}
		b.ResetTimer()
		for b.Loop() {
			if err := dev.Inject(0, v4); err != nil {
				b.Fatal(err)
			}
		}
	})
	run("detached/udp6", v6, 0, nil)
	run("buckets/udp6", v6, 0, full)
}

// BenchmarkSpreadWindow is what a bucket window takes besides its own length.
func BenchmarkSpreadWindow(b *testing.B) {
	testnet.NeedTun(b)
	b.Run("load", func(b *testing.B) {
		for b.Loop() {
			s, err := LoadSpread(SpreadOptions{})
			if err != nil {
				b.Fatal(err)
			}
			s.Close()
		}
	})
	s, err := LoadSpread(SpreadOptions{})
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	devices := []SpreadDevice{{Netns: 1, IfIndex: 1, Table: turns(128, 1), Key: toeplitz.MicrosoftKey, Fields: allFields}}
	var c SpreadCounters
	b.Run("configure+attach+read+detach", func(b *testing.B) {
		for b.Loop() {
			if err := errors.Join(s.Configure(devices), s.Attach(), s.Read(&c), s.Detach()); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("read", func(b *testing.B) {
		for b.Loop() {
			if err := s.Read(&c); err != nil {
				b.Fatal(err)
			}
		}
	})
}

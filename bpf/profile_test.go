package bpf

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/rxsteer/rxsteer/internal/host"
	"github.com/rxsteer/rxsteer/internal/testnet"
)

// profiled samples for d while frames come in on CPU 0.
func profiled(t testing.TB, opts ProfileOptions, d time.Duration) *ProfileCounts {
	t.Helper()
	testnet.NeedTun(t)
	ns := testnet.New(t)
	tap, err := ns.NewTAP("rx0", 1)
	if err != nil {
		t.Fatal(err)
	}
	defer tap.Close()
	p, err := LoadProfiler(opts)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	onCPU(t, 0, func() error {
		for until := time.Now().Add(d); time.Now().Before(until); {
			if err := tap.Inject(0, frame(1)); err != nil {
				return err
			}
		}
		return nil
	})
	if err := p.Stop(); err != nil {
		t.Fatal(err)
	}
	c, err := p.Read()
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestProfilerNamesTheDeviceAndTheCPU(t *testing.T) {
	c := profiled(t, ProfileOptions{Hz: MaxHz}, 500*time.Millisecond)
	var all, ours uint64
	for _, s := range c.Samples {
		all += s.Count
		if s.Device == "rx0" && s.IfIndex != 0 && s.Netns != 0 && s.NAPI != 0 {
			ours += s.Count
			if s.CPU != 0 || s.Context != ProfileTask || len(s.Stack) < 3 {
				t.Errorf("%+v: want CPU 0, over the task that injects, with callers", s)
			}
			for _, a := range s.Stack {
				if a>>63 == 0 {
					t.Fatalf("%#x is no kernel address", a)
				}
			}
		}
	}
	if ours < 10 || all+c.Lost > c.Taken || c.CPUs == 0 {
		t.Errorf("%d ticks of the device, %d in all, %d lost of %d taken on %d CPUs", ours, all, c.Lost, c.Taken, c.CPUs)
	}
}

// TestProfilerCountsWhatDoesNotFit: stacks that find no room are lost and counted.
func TestProfilerCountsWhatDoesNotFit(t *testing.T) {
	c := profiled(t, ProfileOptions{Hz: MaxHz, Stacks: 1}, 500*time.Millisecond)
	if c.Lost == 0 || c.Taken < c.Lost {
		t.Errorf("%d of %d ticks are lost with room for one stack", c.Lost, c.Taken)
	}
}

func TestProfilerRefusesOtherRates(t *testing.T) {
	for _, hz := range []int{-1, MaxHz + 1} {
		if p, err := LoadProfiler(ProfileOptions{Hz: hz}); err == nil {
			p.Close()
			t.Errorf("%d ticks per second were accepted", hz)
		}
	}
}

func TestProfilerWithoutATracepoint(t *testing.T) {
	p, err := LoadProfiler(ProfileOptions{BTF: kernelWithout(t, "napi_poll")})
	if p != nil || !errors.Is(err, ErrNoTracepoint) || !strings.HasSuffix(err.Error(), " napi_poll") {
		t.Errorf("LoadProfiler = %v, %v; want ErrNoTracepoint that names it", p, err)
	}
}

func TestProbeFindsTheClock(t *testing.T) {
	testnet.NeedRoot(t)
	if h := Probe(host.OS{}, Options{}).Profile; !h.Live || h.Why != "" || h.Lost == "" {
		t.Errorf("%+v, want it live", h)
	}
}

// BenchmarkProfile is a frame's way through a tap with and without a profile at 99 Hz:
// the difference is what profiling costs a packet that is alone in its softirq (the worst case).
func BenchmarkProfile(b *testing.B) {
	testnet.NeedTun(b)
	ns := testnet.New(b)
	tap, err := ns.NewTAP("rx0", 1)
	if err != nil {
		b.Fatal(err)
	}
	defer tap.Close()
	run := func(b *testing.B) {
		for b.Loop() {
			if err := tap.Inject(0, frame(1)); err != nil {
				b.Fatal(err)
			}
		}
	}
	b.Run("off", run)
	b.Run("on", func(b *testing.B) {
		p, err := LoadProfiler(ProfileOptions{})
		if err != nil {
			b.Fatal(err)
		}
		defer p.Close()
		if err := p.Start(); err != nil {
			b.Fatal(err)
		}
		run(b)
	})
	b.Run("off-again", run)
}

// TestRefusedTicks: Debian's default refuses what CAP_PERFMON allows elsewhere, and is named with what to do.
func TestRefusedTicks(t *testing.T) {
	for setting, want := range map[string]string{"3\n": "sysctl -w kernel.perf_event_paranoid=2", "4\n": "is 4,", "2\n": "seccomp or a security module", "-1\n": "seccomp", "": "seccomp"} {
		if got := refusedTicks(setting); !strings.Contains(got, want) {
			t.Errorf("%q: %s", setting, got)
		}
	}
}

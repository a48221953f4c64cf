package collector

import (
	"errors"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/rxsteer/rxsteer/bpf"
	"github.com/rxsteer/rxsteer/internal/host/hosttest"
)

// pretender are programs of a host with so many NET_RX runs of one poll a second and CPU.
type pretender struct {
	runs     []float64 // a second, by CPU
	attached bool
	rate     uint32
	c        bpf.Counters
	all      []float64
	paid     []float64 // ns
	attaches []time.Duration
	detaches []time.Duration
	now      time.Duration
	fail     error
}

var priced = bpf.Costs{Run: bpf.Cost{Looked: 150, Passed: 40}, Poll: bpf.Cost{Looked: 120, Passed: 20}, IRQ: bpf.Cost{Looked: 160, Passed: 40}, Measured: true}

func newPretender(runs ...float64) *pretender {
	p := &pretender{runs: runs, attached: true, rate: 1, all: make([]float64, len(runs)), paid: make([]float64, len(runs))}
	p.c.CPUs = make([]bpf.CPUStat, len(runs))
	for cpu := range runs {
		p.c.NAPIKeys = append(p.c.NAPIKeys, bpf.NAPIKey{Napi: 1 + uint64(cpu), Ifindex: 2, Cpu: uint32(cpu)})
		p.c.NAPIs = append(p.c.NAPIs, bpf.NAPIStat{})
	}
	return p
}

// pass lets time pass.
func (p *pretender) pass(dt time.Duration) {
	p.now += dt
	for cpu, r := range p.runs {
		n := r * dt.Seconds()
		p.all[cpu] += n
		if !p.attached {
			continue
		}
		looked := n / float64(p.rate)
		p.c.CPUs[cpu].Runs[NetRX] += uint64(looked)
		p.c.NAPIs[cpu].Polls += uint64(looked)
		p.paid[cpu] += looked*270 + (n-looked)*60
	}
}

func (p *pretender) SetRate(n uint32) error { p.rate = n; return p.fail }
func (p *pretender) Costs() bpf.Costs       { return priced }
func (p *pretender) Attach() error {
	p.attached = true
	p.attaches = append(p.attaches, p.now)
	return p.fail
}
func (p *pretender) Detach() error {
	p.attached = false
	p.detaches = append(p.detaches, p.now)
	return p.fail
}

var epochOfBudget = time.Unix(1000, 0)

// run lets a budget keep house for d, a reading each quarter of a second, and returns the costs of its samples, one a second.
func (p *pretender) run(t testing.TB, b *budget, d time.Duration) (costs []*Cost) {
	t.Helper()
	for i := range int(d / (250 * time.Millisecond)) {
		p.pass(250 * time.Millisecond)
		now := epochOfBudget.Add(p.now)
		loads := b.account(now, &p.c)
		sampled := i%4 == 3
		if sampled {
			costs = append(costs, b.cost(&Sample{Interval: time.Second}))
		}
		if err := b.decide(now, loads, sampled); err != nil {
			t.Fatal(err)
		}
	}
	return costs
}

func (p *pretender) budget(share float64, files map[string]string, t testing.TB) *budget {
	return newBudget(share, p, hosttest.Static(t, files), len(p.runs), epochOfBudget)
}

func TestBudgetIsKept(t *testing.T) {
	for name, tc := range map[string]struct {
		runs    []float64
		rate    uint32 // at the end; 0: any
		windows bool
	}{
		"idle":                    {[]float64{100, 0}, 1, false},
		"just inside":             {[]float64{36_000, 1000}, 1, false},    // 0.97 %
		"looked at in part":       {[]float64{100, 60_000}, 0, false},     // full 1.6 %, passing by 0.36 %
		"passing by costs enough": {[]float64{300_000, 300_000}, 0, true}, // 1.8 %
		"a million runs":          {[]float64{1_000_000, 5}, 0, true},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPretender(tc.runs...)
			b := p.budget(0.01, nil, t)
			const d = 60 * time.Second
			costs := p.run(t, b, d)
			for cpu, ns := range p.paid {
				// The first quarter of a second is at full detail, and is saved afterwards.
				if share := ns / float64(d); share > 0.0103 {
					t.Errorf("CPU %d paid %.2f %% of its time", cpu, 100*share)
				}
			}
			if tc.rate != 0 && b.rate != tc.rate {
				t.Errorf("rate %d, want %d", b.rate, tc.rate)
			}
			if got := len(p.detaches) > 0; got != tc.windows {
				t.Errorf("detached %d times, windows wanted: %v", len(p.detaches), tc.windows)
			}
			for i, at := range p.attaches {
				if gap := at - p.detaches[i]; gap < windowsApart {
					t.Errorf("attached %v after it was detached", gap)
				}
				if i+1 < len(p.detaches) && p.detaches[i+1]-at < shortestWindow {
					t.Errorf("a window of %v", p.detaches[i+1]-at)
				}
			}
			// What it says it paid is what it paid.
			var said float64
			for _, c := range costs {
				said += c.Hottest * float64(time.Second)
			}
			if most := max(p.paid[0], p.paid[1]); said < 0.98*most || said > 1.02*most {
				t.Errorf("said %.0f ns, paid %.0f", said, most)
			}
			if tc.windows && (len(p.attaches) < 2 || costs[len(costs)-1].Duty > 0.5) {
				t.Errorf("attached %d times in %v, duty %v", len(p.attaches), d, costs[len(costs)-1].Duty)
			}
		})
	}
}

func TestBudgetFollowsTraffic(t *testing.T) {
	p := newPretender(1000)
	b := p.budget(0.01, nil, t)
	p.run(t, b, 10*time.Second)
	if b.rate != 1 {
		t.Fatalf("rate %d of an idle CPU", b.rate)
	}
	p.runs[0] = 70_000
	p.run(t, b, 500*time.Millisecond)
	if b.rate < 2 {
		t.Errorf("rate %d half a second after traffic came", b.rate)
	}
	p.runs[0] = 1000
	p.run(t, b, 12*time.Second)
	if b.rate != 1 || !p.attached {
		t.Errorf("rate %d, attached %v after it went", b.rate, p.attached)
	}
	p.runs[0] = 900_000
	p.run(t, b, 3*time.Second)
	if p.attached {
		t.Error("attached under a storm")
	}
	b.climb = epochOfBudget.Add(p.now + 2*time.Second)
	p.run(t, b, time.Second)
	if !p.attached || b.rate != 1 {
		t.Errorf("asked for detail: attached %v, rate %d", p.attached, b.rate)
	}
	p.run(t, b, 5*time.Second)
	if p.attached {
		t.Error("still attached 4 s after the detail asked for")
	}
	before := p.paid[0]
	p.run(t, b, 10*time.Second)
	if p.paid[0] != before {
		t.Error("what was paid above the budget is not saved afterwards")
	}
}

func TestIsolatedCPUsAreNotCalledOut(t *testing.T) {
	for _, tc := range []struct {
		files  map[string]string
		runs   float64
		pinned bool
		gone   bool
	}{
		{map[string]string{"/sys/devices/system/cpu/isolated": "2-3\n"}, 900_000, true, true},
		{map[string]string{"/sys/devices/system/cpu/isolated": "2-3\n"}, 120_000, true, false}, // passing by: 0.72 %
		{map[string]string{"/sys/devices/system/cpu/isolated": "\n", "/sys/devices/system/cpu/nohz_full": "4\n"}, 900_000, true, true},
		{map[string]string{"/sys/devices/system/cpu/isolated": "\n", "/sys/devices/system/cpu/nohz_full": "(null)\n"}, 900_000, false, false},
	} {
		p := newPretender(tc.runs)
		b := p.budget(0.01, tc.files, t)
		costs := p.run(t, b, 30*time.Second)
		if b.pinned != tc.pinned || b.gone != tc.gone || tc.gone != (len(p.detaches) == 1 && len(p.attaches) == 0) {
			t.Errorf("%v: pinned %v, gone %v, %d detaches, %d attaches", tc.files, b.pinned, b.gone, len(p.detaches), len(p.attaches))
		}
		if last := costs[len(costs)-1]; tc.gone && (last.Duty != 0 || len(last.Thinned) == 0) {
			t.Errorf("%+v: detached for good and no word", last)
		}
	}
}

func TestNoBudgetNoThinning(t *testing.T) {
	p := newPretender(1_000_000)
	b := p.budget(0, nil, t)
	costs := p.run(t, b, 5*time.Second)
	if c := costs[4]; c.Duty != 1 || len(c.Thinned) != 0 || c.Hottest < 0.26 || c.Hottest > 0.28 || p.rate != 1 {
		t.Errorf("unlimited: %+v", c)
	}
}

func TestThinningThatFailsGivesUp(t *testing.T) {
	p := newPretender(900_000)
	b := p.budget(0.01, nil, t)
	p.pass(time.Second)
	p.fail = errors.New("no")
	if err := b.decide(epochOfBudget.Add(time.Second), b.account(epochOfBudget.Add(time.Second), &p.c), true); err == nil {
		t.Error("an error was swallowed")
	}
}

// thinReading is a reading of one CPU: NET_RX runs by the kernel's count and those looked at, a poll of 1000 ns in each.
func thinReading(at time.Duration, ran, looked uint64, thin *thinness) *Reading {
	r := readingOf(epoch.Add(at), ran)
	c := &bpf.Counters{CPUs: make([]bpf.CPUStat, 1)}
	c.CPUs[0].Runs[NetRX], c.CPUs[0].Time[NetRX], c.CPUs[0].Tail = looked, looked*1200, looked*200
	c.NAPIKeys = []bpf.NAPIKey{{Napi: 1, Ifindex: 2, Netns: ownInode}}
	s := bpf.NAPIStat{Polls: looked, Packets: 3 * looked, Time: looked * 1000}
	s.TimeHist[10] = looked
	c.NAPIs = []bpf.NAPIStat{s}
	r.BPF, r.thin = c, thin
	return r
}

func readingOf(at time.Time, ran uint64) *Reading {
	f, _ := bigHost(1, 0, ran)
	return ReadHost(f, at)
}

func TestThinnedFiguresStandForAll(t *testing.T) {
	a := thinReading(0, 1000, 100, nil)
	b := thinReading(time.Second, 9000, 1100, &thinness{thinned: true}) // 8000 runs, 1000 looked at
	c := thinReading(2*time.Second, 13000, 1100, &thinness{thinned: true, none: true})
	s1, s2 := Between(a, b, nil), Between(b, c, nil)
	if n := s1.NAPIs[0]; n.Polls != 8000 || n.Packets != 24000 || n.Time != 8_000_000 || n.TimeHist[10] != 8000 || s1.CPUs[0].SoftirqTime[NetRX] != 9_600_000 || s1.CPUs[0].Tail != 1_600_000 {
		t.Errorf("scaled: %+v of %+v", n, s1.CPUs[0])
	}
	if s1.CPUs[0].SoftirqRuns[NetRX] != 8000 || s1.CPUs[0].Unseen != 0 || !said(s1, "part of the softirq runs, polls and interrupts", "overhead budget") {
		t.Errorf("runs %+v, unmeasured %+v", s1.CPUs[0], s1.Unmeasured)
	}
	if e := s1.scaledError(); e < 0.01 || e > 0.06 {
		t.Errorf("error %v of 1000 runs of 8000", e)
	}
	if s2.Level != 0 || s2.CPUs[0].Unseen != 4000 || s2.CPUs[0].SoftirqRuns[NetRX] != 4000 || len(s2.NAPIs) != 0 {
		t.Errorf("nothing attached: level %d, %+v", s2.Level, s2.CPUs[0])
	}
	s1.Cost, s2.Cost = &Cost{Duty: 1.0 / 8, Error: 0.03, Hottest: 0.01}, &Cost{Thinned: []string{"x"}}
	m := Merge(s1, s2)
	if n := m.NAPIs[0]; m.Level != 1 || n.Polls != 12000 || n.Time != 12_000_000 || m.CPUs[0].SoftirqTime[NetRX] != 14_400_000 || m.CPUs[0].Unseen != 0 {
		t.Errorf("merged: level %d, %+v of %+v", m.Level, n, m.CPUs[0])
	}
	if c := m.Cost; c.Duty != 1.0/16 || c.Error != 0.03 || c.Hottest != 0.005 || len(c.Thinned) != 1 {
		t.Errorf("merged cost %+v", c)
	}
	if m := Merge(s2, s2); m.Level != 0 || m.CPUs[0].Unseen != 8000 {
		t.Errorf("two that saw nothing: level %d, %+v", m.Level, m.CPUs[0])
	}
	// A CPU whose few runs were all passed by has no time, and says for how many runs.
	d := thinReading(3*time.Second, 13005, 1100, &thinness{thinned: true})
	if s := Between(c, d, nil); s.Level != 1 || s.CPUs[0].Unseen != 5 {
		t.Errorf("all passed by: level %d, %+v", s.Level, s.CPUs[0])
	}
}

// TestRandomPassingByIsWhatTheErrorSays: of many thinned samples 95 in 100 hold the truth within their error.
func TestRandomPassingByIsWhatTheErrorSays(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	const trials, runs, rate = 300, 20_000, 40
	inside := 0
	for range trials {
		var truth, seen float64
		var looked uint64
		s := &Sample{CPUs: []CPU{{}}, NAPIs: []NAPI{{Polls: 1}}}
		for range runs {
			ns := 500 * (1 + 30*rng.ExpFloat64()*float64(rng.IntN(2))) // long and short ones
			truth += ns
			if rng.IntN(rate) != 0 {
				continue
			}
			looked++
			seen += ns
			b := 0
			for v := uint64(ns); v > 0; v >>= 1 {
				b++
			}
			s.NAPIs[0].TimeHist[b]++
		}
		estimate := seen * runs / float64(looked)
		s.CPUs[0].SoftirqRuns[NetRX], s.CPUs[0].Untraced = runs, runs-looked
		s.CPUs[0].SoftirqTime[NetRX] = uint64(estimate)
		if e := s.scaledError(); truth >= estimate*(1-e) && truth <= estimate*(1+e) {
			inside++
		}
	}
	if inside < trials*92/100 {
		t.Errorf("%d of %d within the error told", inside, trials)
	}
}

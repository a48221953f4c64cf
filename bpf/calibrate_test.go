package bpf

import (
	"math"
	"os"
	"testing"
	"time"

	"github.com/rxsteer/rxsteer/internal/testnet"
)

// TestCalibrationIsPlausible: lab/bench compares it with what traffic loses.
func TestCalibrationIsPlausible(t *testing.T) {
	testnet.NeedRoot(t)
	p, err := Load(Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	was, err := os.Readlink("/proc/thread-self/ns/net")
	if err != nil {
		t.Fatal(err)
	}
	start := time.Now()
	costs, err := p.AttachCalibrated()
	took := time.Since(start)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%+v in %v", costs, took)
	if !costs.Measured {
		t.Errorf("%+v in %v, want it measured", costs, took)
	}
	if c := costs; c.Run.Looked < c.Run.Passed || c.Poll.Looked < c.Poll.Passed || c.IRQ.Looked < c.IRQ.Passed || c.Run.Looked > 20_000 {
		t.Errorf("costs %+v", c)
	}
	now, err := os.Readlink("/proc/thread-self/ns/net")
	if err != nil || now != was {
		t.Errorf("namespace %s, then %s, %v", was, now, err)
	}
	if c := counters(t, p); len(c.CPUs) == 0 {
		t.Error("no counters")
	}
}

// TestPacketCalibrationIsPlausible: it is measured, in bounds, and what measured it is left attached.
func TestPacketCalibrationIsPlausible(t *testing.T) {
	testnet.NeedRoot(t)
	p, err := LoadPackets(Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	start := time.Now()
	cost, err := p.AttachCalibrated()
	took := time.Since(start)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%+v in %v", cost, took)
	if !cost.Measured || cost.Event < fastEvent || cost.Event > 5000 {
		t.Errorf("%+v in %v, want it measured", cost, took)
	}
	ran := func() (n uint64) {
		var c PacketCounters
		if err := p.Read(&c); err != nil {
			t.Fatal(err)
		}
		for i := range c.CPUs {
			n += c.CPUs[i].Ran()
		}
		return n
	}
	before := ran()
	inLoop(func(l *loop) {
		if _, err := l.batch(); err != nil {
			t.Error(err)
		}
	}, func(err error) { t.Error(err) })
	if n := ran() - before; n < sends/10 { // some kernels do not call them each time
		t.Errorf("programs ran %d times for %d datagrams: they are not left attached", n, sends)
	}
}

type nothing struct{}

func (nothing) Attach() error { return nil }
func (nothing) Detach() error { return nil }

// TestCalibrationStandsSlowTimes: a machine that is slower for a while, or interrupted, gives the same costs.
func TestCalibrationStandsSlowTimes(t *testing.T) {
	for name, pace := range map[string]func(batch int) (factor, add float64){
		"even":                      func(int) (float64, float64) { return 1, 0 },
		"slower every other time":   func(i int) (float64, float64) { return 1 + float64(i/50%2), 0 },
		"slower and slower":         func(i int) (float64, float64) { return 1 + float64(i)/500, 0 },
		"interrupted mostly":        func(i int) (float64, float64) { return 1, float64(i%5) * 5000 },
		"slower to begin with":      func(i int) (float64, float64) { return 1 + float64(max(0, 10-i)), 0 },
		"slower from the middle on": func(i int) (float64, float64) { return 1 + float64(i/80), 0 },
	} {
		t.Run(name, func(t *testing.T) {
			i := 0
			send := func(ns float64) way {
				return func() (float64, error) {
					factor, add := pace(i)
					i++
					return ns*factor + add, nil
				}
			}
			got, err := compare(nothing{}, rounds, send(1000), send(1070), send(1200))
			if err != nil {
				t.Fatal(err)
			}
			if math.Abs(got[0]-70) > 70 || math.Abs(got[1]-130) > 30 {
				t.Errorf("it takes %.0f and %.0f ns more, want about 70 and 130", got[0], got[1])
			}
		})
	}
}

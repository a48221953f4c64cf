package bpf

import (
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
	if !costs.Measured || took > 5*time.Second {
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
	if !cost.Measured || took > 5*time.Second || cost.Event < fastEvent || cost.Event > 5000 {
		t.Errorf("%+v in %v, want it measured", cost, took)
	}
	var c PacketCounters
	if err := p.Read(&c); err != nil {
		t.Fatal(err)
	}
	var ran uint64
	for i := range c.CPUs {
		ran += c.CPUs[i].Ran()
	}
	if ran < batches*sends {
		t.Errorf("programs ran %d times, want once for each of %d datagrams at least: it is left attached", ran, batches*sends)
	}
}

package collector

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/rxsteer/rxsteer/internal/ethtool"
	"github.com/rxsteer/rxsteer/internal/host/nic"
)

// statistics of devices, one reading after the other; an entry of nil refuses.
type statistics struct {
	of    map[string][][]ethtool.Stat
	asked map[string]int
	cost  func()
}

func (s *statistics) Driver(string) (ethtool.Driver, error) { return ethtool.Driver{Name: "veth"}, nil }

var errRefused = errors.New("refused")

func (s *statistics) Stats(dev string) ([]ethtool.Stat, error) {
	if s.cost != nil {
		s.cost()
	}
	all, ok := s.of[dev]
	if !ok {
		return nil, fmt.Errorf("count statistics of %s: %w", dev, ethtool.ErrNotSupported)
	}
	i := min(s.asked[dev], len(all)-1)
	s.asked[dev]++
	if all[i] == nil {
		return nil, errRefused
	}
	return all[i], nil
}

func stats(v ...any) []ethtool.Stat {
	out := []ethtool.Stat{}
	for i := 0; i < len(v); i += 2 {
		out = append(out, ethtool.Stat{Name: v[i].(string), Value: uint64(v[i+1].(int))})
	}
	return out
}

func withDriver(f files, dev, driver string) files {
	return f.with("/sys/class/net/"+dev+"/device/driver", "../../../../bus/pci/drivers/"+driver)
}

func TestDriverCountersGrow(t *testing.T) {
	h := withDriver(host2().device("eth1", 5, 0, 0, 0, 0, 0, 0, 0).device("tap9", 6, 0, 0, 0, 0, 0, 0, 0), "eth1", "igb").
		with("/sys/class/net/eth1/carrier_down_count", "3\n")
	st := &statistics{asked: map[string]int{}, of: map[string][][]ethtool.Stat{"eth1": {
		stats("rx_packets", 10, "rx_missed_errors", 100, "rx_queue_0_drops", 7, "rx_queue_1_drops", 4294967290, "tx_flow_control_xoff", 5),
		stats("rx_packets", 90, "rx_missed_errors", 130, "rx_queue_0_drops", 7, "rx_queue_1_drops", 10, "tx_flow_control_xoff", 2),
	}}}
	now := epoch
	s := New(Config{FS: h, Statistics: st, Now: func() time.Time { return now }})
	if err := s.start(); err != nil {
		t.Fatal(err)
	}
	now = now.Add(time.Second)
	got, err := s.next()
	if err != nil {
		t.Fatal(err)
	}
	want := []Driver{{
		Device: "eth1", IfIndex: 5, Name: "igb", Told: []nic.FactKind{nic.LinkDowns, nic.PauseSent, nic.RingDrops},
		Counters: []DriverCounter{
			{"rx_missed_errors", nic.RingDrops, nic.ScopePort, nic.None, 30},
			{"rx_queue_1_drops", nic.RingDrops, nic.ScopeQueue, 1, 16}, // 32 bits wrapped
		},
	}}
	if diff := cmp.Diff(want, got.Drivers); diff != "" {
		t.Errorf("drivers (-want +got):\n%s", diff)
	}
	if !said(got, "eth1", "went back") {
		t.Errorf("the reset of tx_flow_control_xoff is not told: %v", got.Unmeasured)
	}
	sum := Merge(got, got)
	if n := sum.Drivers[0].Counters[0].Count; n != 60 {
		t.Errorf("merged rx_missed_errors %d, want 60", n)
	}
	if n := got.Drivers[0].Counters[0].Count; n != 30 {
		t.Errorf("merging changed a sample: %d", n)
	}
}

// A device whose statistics were refused at first has no beginning to count from; one that is new
// has counted from 0.
func TestDriverCountersWithoutBeginning(t *testing.T) {
	dev := func(i int) Device { return Device{Name: fmt.Sprint("eth", i), IfIndex: i} }
	missed := func(i int) Driver {
		return NewDriver(fmt.Sprint("eth", i), i, "igb", stats("rx_missed_errors", 9))
	}
	d := Between(&Reading{At: epoch, Devices: []Device{dev(1)}, Drivers: []Driver{}},
		&Reading{At: epoch.Add(time.Second), Devices: []Device{dev(1), dev(2)}, Drivers: []Driver{missed(1), missed(2)}}, nil)
	if diff := cmp.Diff([]Driver{missed(2)}, d.Drivers); diff != "" {
		t.Errorf("drivers (-want +got):\n%s", diff)
	}
}

func TestDriverCountersRefused(t *testing.T) {
	h := withDriver(withDriver(host2().device("eth1", 5, 0, 0, 0, 0, 0, 0, 0).device("eth2", 6, 0, 0, 0, 0, 0, 0, 0), "eth1", "igb"), "eth2", "none")
	st := &statistics{asked: map[string]int{}, of: map[string][][]ethtool.Stat{"eth1": {nil}}}
	got, err := New(Config{FS: h, Statistics: st, Now: clock(time.Second)}).Sample(context.Background(), 0)
	if err != nil {
		t.Fatal(err)
	}
	if !said(got, "driver counters of eth1", "refused") {
		t.Errorf("unmeasured %v, want the refusal", got.Unmeasured)
	}
	if len(got.Drivers) != 1 || got.Drivers[0].Device != "eth2" || len(got.Drivers[0].Told) != 0 {
		t.Errorf("drivers %+v, want eth2 that tells nothing", got.Drivers)
	}
}

// A driver that takes 10 ms is asked every five seconds.
func TestSlowDriversAreReadLessOften(t *testing.T) {
	now := epoch
	st := &statistics{asked: map[string]int{}, of: map[string][][]ethtool.Stat{"eth1": {stats("rx_missed_errors", 1)}},
		cost: func() { now = now.Add(10 * time.Millisecond) }}
	h := withDriver(host2().device("eth1", 5, 0, 0, 0, 0, 0, 0, 0), "eth1", "igb")
	s := New(Config{FS: h, Statistics: st, Now: func() time.Time { return now }})
	if err := s.start(); err != nil {
		t.Fatal(err)
	}
	for range 120 {
		now = now.Add(100 * time.Millisecond)
		if _, err := s.next(); err != nil {
			t.Fatal(err)
		}
	}
	if n := st.asked["eth1"]; n != 3 {
		t.Errorf("asked %d times in 12 s, want at once and every 5 s", n)
	}
}

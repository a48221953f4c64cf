package collector

import (
	"testing"
	"time"

	"github.com/rxsteer/rxsteer/bpf"
)

// stream is programs of level 2 beside traffic that has them run so often a second on its CPU, while attached.
type stream struct {
	followed
	perSecond float64
	ran       float64
}

const streamEvent = 30 // ns

func (f *stream) AttachCalibrated() (bpf.PacketCost, error) {
	return bpf.PacketCost{Event: streamEvent, Measured: true}, f.Attach()
}

func (f *stream) Read(c *bpf.PacketCounters) error {
	c.CPUs = make([]bpf.PacketCPU, 1)
	c.CPUs[0].Events.Stack = uint64(f.ran)
	return nil
}

func (f *stream) pass(d time.Duration) {
	if f.attached > 0 {
		f.ran += f.perSecond * d.Seconds()
	}
}

// Where attaching again would call isolated CPUs out of what they do, packets are followed until the budget is spent,
// and all the time without one.
func TestPacketsAreFollowedBesideIsolatedCPUs(t *testing.T) {
	for overhead, attached := range map[float64]int{0: 1, 0.01: 0} {
		f := &stream{perSecond: 0.16 * 1e9 / streamEvent}
		now := time.Unix(1e9, 0)
		fs := host2()
		fs["/sys/devices/system/cpu/isolated"] = "1\n"
		s := New(Config{FS: fs, Level: 2, Overhead: overhead, Attach: fake(&kernel{max: 10}, nil), Now: func() time.Time { return now },
			LoadPackets: func() (PacketPrograms, error) { return f, nil }})
		if err := s.start(); err != nil {
			t.Fatal(err)
		}
		changes := 0
		for range 600 {
			before := f.attached
			f.pass(time.Second)
			now = now.Add(time.Second)
			s.packets.tick(now)
			if f.attached != before {
				changes++
			}
		}
		if f.attached != attached || changes != 1-attached {
			t.Errorf("budget %v: %d attached after %d changes, want %d", overhead, f.attached, changes, attached)
		}
		if err := s.stop(); err != nil {
			t.Fatal(err)
		}
	}
}

// Without a budget packets are followed all the time as long as that is cheap, else for windows, as long as they may be.
func TestPacketsAreFollowedInWindows(t *testing.T) {
	const step = 250 * time.Millisecond
	for _, tc := range []struct {
		name            string
		overhead, cores float64 // what they cost while attached, in CPUs
		share           float64 // that they may take
		duty, less      float64
	}{
		{"slow traffic, no budget", 0, 0.02, unlimitedPackets, 1, 1},
		{"fast traffic, no budget", 0, 0.16, unlimitedPackets, 0.12, 0.25},
		{"fast traffic, one percent", 0.01, 0.16, 0.005, 0.02, 0.04},
	} {
		f := &stream{perSecond: tc.cores * 1e9 / streamEvent}
		now := time.Unix(1e9, 0)
		s := New(Config{FS: host2(), Level: 2, Overhead: tc.overhead, Attach: fake(&kernel{max: 10}, nil), Now: func() time.Time { return now },
			LoadPackets: func() (PacketPrograms, error) { return f, nil }})
		if err := s.start(); err != nil {
			t.Fatal(err)
		}
		var on, all, window, gap, longest time.Duration
		for all < 5*time.Minute {
			before := f.attached
			f.pass(step)
			now = now.Add(step)
			s.packets.tick(now)
			all += step
			if before == 0 {
				gap += step
			} else {
				on += step
				window += step
				longest = max(longest, window)
			}
			switch {
			case before == 1 && f.attached == 0:
				if window < shortestWindow {
					t.Errorf("%s: a window of %v", tc.name, window)
				}
				window = 0
			case before == 0 && f.attached == 1:
				if gap < windowsApart {
					t.Errorf("%s: %v between two windows", tc.name, gap)
				}
				gap = 0
			}
		}
		if duty := float64(on) / float64(all); duty < tc.duty || duty > tc.less {
			t.Errorf("%s: followed %.3f of the time, longest window %v: want %v to %v", tc.name, duty, longest, tc.duty, tc.less)
		}
		took := f.ran * streamEvent / float64(all)
		if may := tc.share * 1.1; took > may {
			t.Errorf("%s: they took %.4f of a CPU, may take %.4f", tc.name, took, tc.share)
		}
		if err := s.stop(); err != nil {
			t.Fatal(err)
		}
	}
}

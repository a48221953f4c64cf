package diagnose

import (
	"testing"
	"time"

	"github.com/rxsteer/rxsteer/collector"
	"github.com/rxsteer/rxsteer/internal/host/knob"
	"github.com/rxsteer/rxsteer/internal/host/nic"
)

// paced is a device whose first queue interrupts every so often, with packets per interrupt, and rx-usecs.
func paced(gap time.Duration, packets uint64, usecs int) *world {
	n := uint64(10 * time.Second / gap)
	return newWorld(4).nic("eth0", nic.Physical, 1).carry("eth0", n*packets).busy(0, 0.2, 0, n*packets).poll("eth0", 0, 0, 0.2, n*packets).but(func(w *world) {
		w.Sample.NAPIs[0].Polls = n
		w.Sample.IRQs = []collector.IRQ{{IRQ: 20, CPU: 0, Count: n}}
	}).set(knob.Coalesce, "eth0", knob.Fields(map[string]any{"rx-usecs": usecs, "adaptive-rx": false}))
}

// gaps adds the measured gaps of the interrupts: n of bucket i.
func (w *world) gaps(n map[int]uint64) *world {
	p := collector.Pacing{IRQ: 20}
	for i, k := range n {
		p.Hist[i] = k
	}
	w.Sample.Pacing = []collector.Pacing{p}
	return w
}

func TestModeration(t *testing.T) {
	const at275 = 1 + 4*8 + 0 // gaps of 262 to 327 µs
	tests := []struct {
		name, want, say string
		in              *world
	}{
		{"k by the mean", "RX501 info eth0 []", "the card makes 2.8 × of its rx-usecs 100", paced(275*time.Microsecond, 20, 100)},
		{"k by the gaps", "RX501 info eth0 []", "the card makes 2.9 × of its rx-usecs 100", paced(275*time.Microsecond, 20, 100).gaps(map[int]uint64{at275: 36000})},
		{"gaps of a CPU that another kept", "RX501 info eth0 []", "the card makes 2.9 × of its rx-usecs 100", paced(275*time.Microsecond, 20, 100).gaps(map[int]uint64{at275 - 12: 6000, at275: 24000, at275 + 4: 6000})},
		{"gaps of pauses", "", "the traffic's own pauses are in them", paced(275*time.Microsecond, 20, 100).gaps(map[int]uint64{at275 - 8: 20000, at275 + 8: 16000})},
		{"too few gaps", "", "too few interrupts to tell", paced(275*time.Microsecond, 20, 100).gaps(map[int]uint64{at275: 60})},
		{"dense by the mean, short gaps as measured", "", "no delay worth a change", paced(275*time.Microsecond, 20, 100).gaps(map[int]uint64{at275 - 4: 36000})},
		{"sparse packets", "", "too sparse to tell", paced(275*time.Microsecond, 2, 100).gaps(map[int]uint64{at275: 36000})},

		{"an interrupt for each packet, handler not timed", "RX502 info eth0 []", "estimated at 700 ns each", paced(10*time.Microsecond, 1, 0)},
		{"the handler is timed", "RX502 info eth0 []", "about 12 % of it (their handler alone takes 1200 ns each)", paced(10*time.Microsecond, 1, 0).but(func(w *world) { w.Sample.IRQs[0].Time = 1200 * w.Sample.IRQs[0].Count })},
		{"the handler is cheap", "", "", paced(10*time.Microsecond, 1, 0).but(func(w *world) { w.Sample.IRQs[0].Time = 300 * w.Sample.IRQs[0].Count })},
		{"several packets for each", "", "", paced(10*time.Microsecond, 3, 0)},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) { test.in.judge(t, test.want, test.say) })
	}
}

func TestUDPOfARouter(t *testing.T) {
	router := func() *world {
		return four(0.3, 0.3, 0.3, 0.3).but(func(w *world) { w.Sample.Devices[0].RXPackets, w.Sample.Devices[0].RXBytes = 2_000_000, 2_400_000_000 }).
			class("udp4", 15000).class("tcp4", 5000).but(func(w *world) { w.Sample.Buckets[0].Classes[0].Bytes = 15000 * 1300 }).
			set(knob.Features, "eth0", knob.Fields(map[string]any{"rx-gro": true, "rx-udp-gro-forwarding": false})).count("IpInReceives", 2_000_000).count("IpForwDatagrams", 1_900_000)
	}
	router().judge(t, "RX604 info eth0 []", "75 % of its packets are UDP of 1300 bytes")
	router().but(func(w *world) { w.Sample.Buckets[0].Classes[0].Bytes = 15000 * 200 }).judge(t, "", "")
	router().but(func(w *world) { w.Sample.Protocols = nil }).judge(t, "", "")
}

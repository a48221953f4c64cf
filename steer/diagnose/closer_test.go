package diagnose

import (
	"strings"
	"testing"

	"github.com/rxsteer/rxsteer/internal/host/nic"
)

func TestCloserLook(t *testing.T) {
	quiet := func() *world { return four(0.05, 0.05, 0.05, 0.05) }
	tests := []struct {
		name, want string
		in         *world
	}{
		{"nothing to see", "", quiet()},
		{"a hot CPU", "cpu 2 spent 30 % of its time in receive softirq", four(0.05, 0.05, 0.3, 0.05)},
		{"a queue with more than its part", "rx-1 of eth0 had 48 % of its packets", four(0.06, 0.12, 0.03, 0.04)},
		{"that costs next to nothing", "", four(0.02, 0.08, 0.02, 0.02)},
		{"one queue is always all of it", "", newWorld(4).nic("eth0", nic.Physical, 1).carry("eth0", 100_000).busy(0, 0.15, 0, 1e5).poll("eth0", 0, 0, 0.15, 1e5)},
		{"lost packets", "eth0 lost 50 packets/s", quiet().but(func(w *world) { w.Sample.Devices[0].RXMissed = 500 })},
		{"a handful of them", "", quiet().but(func(w *world) { w.Sample.Devices[0].RXMissed = 5 })},
		{"of another device than asked for", "", quiet().but(func(w *world) { w.Sample.Devices[0].RXMissed, w.Devices = 500, []string{"eth1"} })},
		{"backlog drops", "cpu 3 dropped 60 packets/s of its backlog", quiet().but(func(w *world) { w.Sample.CPUs[3].Dropped = 600 })},
		{"squeezes", "50 % of the receive runs of cpu 1 end with work left", quiet().but(func(w *world) { w.Sample.CPUs[1].Squeezed, w.Sample.CPUs[1].SoftirqRuns[3] = 2000, 4000 })},
		{"slow polls", "one poll in a hundred of eth0 on cpu 0 took more than", quiet().but(func(w *world) { w.Sample.NAPIs[0].TimeHist[22], w.Sample.NAPIs[0].Packets = 200, 20_000 })},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			got := CloserLook(tc.in.Sample, tc.in.NICs, tc.in.Devices)
			if tc.want == "" && got != "" || !strings.Contains(got, tc.want) {
				t.Errorf("%q, want %q", got, tc.want)
			}
		})
	}
}

// What packets tell is marked, and why they were looked at is said.
func TestLevelsOfFindings(t *testing.T) {
	w := four(0.9, 0.05, 0.05, 0.05).loads(func(i int) float64 { return map[bool]float64{true: 0.8, false: 0.2 / 127}[i == 4] }).big(4, 1, 78_000, 6)
	w.Sample.Closer = "cpu 0 spent 90 %"
	first := *w.Sample
	first.Level, first.Interval = 1, w.Sample.Interval/5
	rest := *w.Sample
	rest.Interval -= first.Interval
	w.Windows = append(w.Windows, &first, &rest)
	r := Diagnose(w.Input)
	if r.Closer != w.Sample.Closer || r.CloserS != 8 {
		t.Errorf("closer look for %v s because %q, want 8 s and why", r.CloserS, r.Closer)
	}
	levels := map[ID]int{}
	for _, f := range r.Findings {
		levels[f.ID] = f.Level
	}
	if levels["RX205"] != 2 || levels["RX901"] != 0 {
		t.Errorf("levels %v: want RX205 to rest on packets", levels)
	}
}

package collector

import (
	"context"
	"testing"
	"time"

	"github.com/rxsteer/rxsteer/internal/host/hosttest"
	"github.com/rxsteer/rxsteer/internal/host/procfs"
)

// switched counts how often a profile was started and stopped.
type switched struct{ starts, stops int }

func (s *switched) Start() error { s.starts++; return nil }
func (s *switched) Stop() error  { s.stops++; return nil }

func softirqsOf(t testing.TB, text string) *procfs.Softirqs {
	t.Helper()
	s, err := procfs.ParseSoftirqs("/proc/softirqs", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

const header = "                    CPU0       CPU1\n"

func TestProfileChargesWhatTheKernelCounted(t *testing.T) {
	b := profileBudget{share: 0.01, period: 10 * time.Millisecond, debt: map[int]float64{}}
	b.charge(softirqsOf(t, header+"       TIMER:          0          0\n      NET_RX:          0 4294967290\n"), 0, true)
	// 25 ticks of 3 µs, 1000 runs of TIMER, 100010 of NET_RX (past 32 bits) on CPU 1; it may take 2.5 ms.
	owed := b.charge(softirqsOf(t, header+"       TIMER:          0       1000\n      NET_RX:          0     100004\n"), 250*time.Millisecond, true)
	const want = 25*3000 + 1000*40 + 100010*60 - 2_500_000
	if !owed || b.debt[0] != 0 || b.debt[1] != want {
		t.Errorf("owed %v, debt %v, want %d of CPU 1", owed, b.debt, want)
	}
	// Not attached it costs nothing, whatever happens, and pays back.
	if owed = b.charge(softirqsOf(t, header+"       TIMER:          0       1000\n      NET_RX:          0    9100000\n"), time.Second, false); owed {
		t.Errorf("debt %v a second later", b.debt)
	}
}

func TestProfileStopsWhereItCostsTooMuch(t *testing.T) {
	const quiet = header + "      NET_RX:          0          0\n"
	for name, c := range map[string]struct {
		share   float64
		stopped bool
	}{
		"inside the budget": {0.01, false}, // the ticks alone take 0.03 %
		"outside":           {0.0001, true},
		"no limit":          {0, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := profileBudget{share: c.share, period: time.Second / 99}
			var s switched
			d := 1800 * time.Millisecond
			watched, of, err := b.run(context.Background(), &s, hosttest.Static(t, map[string]string{"/proc/softirqs": quiet}), d)
			if err != nil || s.starts != 1 || (watched < of) != c.stopped || of < d || watched < shortestWindow {
				t.Errorf("watched %v of %v, %d starts, %v; want it to stop early: %v", watched, of, s.starts, err, c.stopped)
			}
		})
	}
}

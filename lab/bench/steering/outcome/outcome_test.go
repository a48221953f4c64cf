package outcome

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// series makes a sample a second, each of one CPU's packets per letter: "a" is even, "h" is hot.
func series(s string) []Sample {
	var out []Sample
	for i, c := range s {
		p := []uint64{100, 100, 100, 100}
		switch c {
		case 'h':
			p[0] = 500
		case '0':
			p = make([]uint64, 4)
		}
		out = append(out, Sample{At: time.Duration(i+1) * time.Second, Packets: p})
	}
	return out
}

func TestBalancedAfter(t *testing.T) {
	for _, tt := range []struct {
		samples string
		want    time.Duration
	}{
		{"", -1},
		{"hhhhhh", -1},
		{"aaaaaa", time.Second}, // no earlier than it was looked at
		{"hhaaaa", 2 * time.Second},
		{"aaahhh", -1},
		{"hahaaaaa", 3 * time.Second},
		{"hhaaa0", 2 * time.Second}, // a pause in the traffic is within two seconds
		{"000000", -1},
	} {
		if got := BalancedAfter(series(tt.samples)); got != tt.want {
			t.Errorf("%s: even after %v, want %v", tt.samples, got, tt.want)
		}
	}
}

func TestTables(t *testing.T) {
	rows := []Row{
		{State: OneCPU, Arm: "nothing", Balanced: -1, Hottest: 1, Mean: .25, P50: 2 * time.Millisecond, P99: 31500 * time.Microsecond, Packets: 900, Drops: 100},
		{State: Skewed, Arm: "rsspp", Balanced: 1250 * time.Millisecond, Hottest: .3, Mean: .25, P50: 1500 * time.Microsecond, MiceLost: 1, Packets: 10, BucketMoves: 41, VectorMoves: 4, OwnCPU: 12 * time.Millisecond},
	}
	var text, md strings.Builder
	if err := Text(&text, rows); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(`start    arm      even after  hottest/mean  mice p50  mice p99   drops   moves  own CPU
one CPU  nothing  never       4.00          2.0 ms    31.5 ms    10.0 %  0+0    0 ms
skewed   rsspp    1.2 s       1.20          1.5 ms    1 starved  0.0 %   41+4   12 ms
`, text.String()); d != "" {
		t.Errorf("text (-want +got):\n%s", d)
	}
	if err := Markdown(&md, rows[1:], []string{"On a machine."}); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(`## Steering

On a machine.

| start | arm | even after | hottest/mean | mice p50 | mice p99 | drops | moves | own CPU |
|---|---|---|---|---|---|---|---|---|
| skewed | rsspp | 1.2 s | 1.20 | 1.5 ms | 1 starved | 0.0 % | 41+4 | 12 ms |
`, md.String()); d != "" {
		t.Errorf("markdown (-want +got):\n%s", d)
	}
}

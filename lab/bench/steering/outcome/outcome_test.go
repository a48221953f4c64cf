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
		if got := BalancedAfter(series(tt.samples), 1.5); got != tt.want {
			t.Errorf("%s: even after %v, want %v", tt.samples, got, tt.want)
		}
	}
}

// figures are of scenario c: the loop beats an untouched host, and RSS++ moves more to be nearer.
var figures = []Row{
	{Scenario: "c", Arm: Nothing, Balanced: -1, Hottest: .8, Mean: .25, P50: 2 * time.Millisecond, P99: 315 * time.Millisecond, P999: 500 * time.Millisecond, Packets: 900, Drops: 100},
	{Scenario: "c", Arm: "irqbalance", Failed: "3 s were left"},
	{Scenario: "c", Arm: "rsspp", Balanced: 1250 * time.Millisecond, Hottest: .26, Mean: .25, P50: time.Millisecond, P99: 30 * time.Millisecond, P999: 40 * time.Millisecond, Packets: 10, BucketMoves: 41, VectorMoves: 4, OwnCPU: 120 * time.Millisecond},
	{Scenario: "c", Arm: Auto, Balanced: 9 * time.Second, Hottest: .3, Mean: .25, P50: time.Millisecond, P99: 31 * time.Millisecond, P999: 40 * time.Millisecond, Packets: 10, BucketMoves: 10, OwnCPU: 3 * time.Second},
}

var skewed = []Scenario{{Letter: "c", Name: "skewed", What: "A table.", Even: 1.5, Goal: true}}

func TestText(t *testing.T) {
	var text strings.Builder
	if err := Text(&text, figures[:3]); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(`   arm         even after  hottest/mean  mice p50  p99       p99.9     drops   moves  own CPU  note
c  nothing     never       3.20          2.0 ms    315.0 ms  500.0 ms  10.0 %  0+0    0 ms     
c  irqbalance  -           -             -         -         -         -       -      -        3 s were left
c  rsspp       1.2 s       1.04          1.0 ms    30.0 ms   40.0 ms   0.0 %   41+4   120 ms   
`, text.String()); d != "" {
		t.Errorf("text (-want +got):\n%s", d)
	}
}

func TestMarkdown(t *testing.T) {
	var md strings.Builder
	if err := Markdown(&md, figures[1:3], skewed, []string{"On a machine."}); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(`# Steering beside its peers

On a machine.

## (c) skewed

A table.

| arm | even after | hottest/mean | mice p50 | p99 | p99.9 | drops | moves | own CPU | note |
|---|--:|--:|--:|--:|--:|--:|--:|--:|---|
| irqbalance | - | - | - | - | - | - | - | - | 3 s were left |
| rsspp | 1.2 s | 1.04 | 1.0 ms | 30.0 ms | 40.0 ms | 0.0 % | 41+4 | 120 ms |  |

## The goal

- (c) not judged: the loop or the untouched host has no result
`, md.String()); d != "" {
		t.Errorf("markdown (-want +got):\n%s", d)
	}
}

func TestVerdict(t *testing.T) {
	moved := func(change func(auto *Row)) []Row {
		rows := append([]Row(nil), figures...)
		change(&rows[3])
		return rows
	}
	for _, tt := range []struct {
		name string
		rows []Row
		want []string
	}{
		{"as measured", figures, []string{
			"(c) **met**: the mice's p99 is 315.0 ms untouched and 31.0 ms with auto: 10.2 times better, 5 wanted",
			"(c) time until even: 9.0 s with auto, 1.2 s with rsspp. Explained: the best moved at least twice as many buckets and vectors; the loop stops where the load counts as even.",
			"(c) hottest/mean: 1.20 with auto, 1.04 with rsspp. Explained: the best moved at least twice as many buckets and vectors; the loop stops where the load counts as even.",
			"(c) moves: 10 with auto, 0 with nothing. Explained: the best changed nothing, and its load or its mice are worse off for it.",
			"(c) own CPU: 3.00 s with auto, 0.00 s with nothing. Explained: the best changed nothing, and its load or its mice are worse off for it.",
		}},
		{"slow mice that no reason covers", moved(func(r *Row) { r.P99 = 200 * time.Millisecond; r.BucketMoves = 30 })[:4], []string{
			"(c) **not met**: the mice's p99 is 315.0 ms untouched and 200.0 ms with auto: 1.6 times better, 5 wanted",
			"(c) time until even: 9.0 s with auto, 1.2 s with rsspp. Unexplained.",
			"(c) hottest/mean: 1.20 with auto, 1.04 with rsspp. Unexplained.",
			"(c) mice p99: 200.0 ms with auto, 30.0 ms with rsspp. Unexplained.",
			"(c) moves: 30 with auto, 0 with nothing. Explained: the best changed nothing, and its load or its mice are worse off for it.",
			"(c) own CPU: 3.00 s with auto, 0.00 s with nothing. Explained: the best changed nothing, and its load or its mice are worse off for it.",
		}},
		{"a loop without a result", moved(func(r *Row) { *r = Row{Scenario: "c", Arm: Auto, Failed: "x"} }), []string{"(c) not judged: the loop or the untouched host has no result"}},
	} {
		if d := cmp.Diff(tt.want, Verdict(tt.rows, skewed)); d != "" {
			t.Errorf("%s (-want +got):\n%s", tt.name, d)
		}
	}
	rows := moved(func(r *Row) { r.MiceLost = 1 })
	if got := Verdict(rows, skewed)[0]; got != "(c) **not met**: mice starve with auto" {
		t.Errorf("with a starved mouse: %q", got)
	}
}

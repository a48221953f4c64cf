package outcome

import (
	"fmt"
	"math"
	"strings"
	"time"
)

// Scenario is what rows are grouped by.
type Scenario struct {
	Letter, Name string
	What         string  // a sentence
	Even         float64 // the busiest CPU's load per mean up to which the load counts as even
	Goal         bool    // the mice's p99 must fall by minGain
}

// The arms that others are judged beside.
const (
	Nothing = "nothing"
	Auto    = "auto"
)

// minGain is the goal: the mice's p99 of an untouched host per that with the loop.
const minGain = 5

// near is how far from the best a figure may be and count as best too: what two runs of the same arm differ by.
const near = 0.1

// column is one that arms compete in; less is better. floor is what counts as the same in any case.
type column struct {
	name  string
	of    func(Row) float64
	floor float64
	shown func(float64) string
	// why explains an arm that is not the best: the first reason that holds. Each is checked against the rows.
	why []reason
}

type reason struct {
	holds func(auto, best, nothing Row) bool
	text  string
}

func starved(r Row, d time.Duration) float64 {
	if r.MiceLost > 0 || d == 0 {
		return math.Inf(1)
	}
	return float64(d.Microseconds()) / 1000
}

func ratio(r Row) float64 {
	if r.Mean == 0 {
		return math.Inf(1)
	}
	return r.Hottest / r.Mean
}

func lost(r Row) float64 {
	if r.Packets+r.Drops == 0 {
		return 1
	}
	return float64(r.Drops) / float64(r.Packets+r.Drops)
}

func moves(r Row) float64 { return float64(r.BucketMoves + r.VectorMoves) }

var (
	inMs      = func(v float64) string { return fmt.Sprintf("%.1f ms", v) }
	unchanged = reason{func(a, b, n Row) bool { return moves(a) == 0 && moves(b) == 0 && a.Balanced >= 0 },
		"neither changed anything, and the load was even: two runs of the same settings differ by that much"}
	// A greedy that never stops moving is nearer to even at each moment; every move may reorder a flow.
	paid = reason{func(a, b, _ Row) bool { return a.Balanced >= 0 && moves(b) >= 2*max(moves(a), 1) },
		"the best moved at least twice as many buckets and vectors; the loop stops where the load counts as even"}
	// The loop measures before it writes; those that look at nothing write at once.
	looks = reason{func(a, b, _ Row) bool { return a.Balanced >= 0 && b.OwnCPU < 100*time.Millisecond },
		"the best measures next to nothing (under 100 ms of own CPU); the agent's counting counts in its time"}
	// An untouched host that is worse off has no moves and no cost to show.
	idle = reason{func(a, b, _ Row) bool {
		return moves(b) == 0 && (ratio(a) < ratio(b) || starved(a, a.P99) < starved(b, b.P99))
	},
		"the best changed nothing, and its load or its mice are worse off for it"}
	// Load that comes and goes is what the loop declines to chase.
	declined = reason{func(a, b, _ Row) bool { return moves(a) == 0 && moves(b) > 0 },
		"the loop changed nothing: it saw no move that was worth it, or another owner had the setting"}
)

var columns = []column{
	{"time until even", func(r Row) float64 {
		if r.Balanced < 0 {
			return math.Inf(1)
		}
		return r.Balanced.Seconds()
	}, 0.5, func(v float64) string { return fmt.Sprintf("%.1f s", v) }, []reason{unchanged, declined, looks, paid}},
	{"hottest/mean", ratio, 0.05, func(v float64) string { return fmt.Sprintf("%.2f", v) }, []reason{unchanged, declined, paid}},
	{"mice p50", func(r Row) float64 { return starved(r, r.P50) }, 0.2, inMs, []reason{unchanged, declined, paid}},
	{"mice p99", func(r Row) float64 { return starved(r, r.P99) }, 1, inMs, []reason{unchanged, declined, paid}},
	{"mice p99.9", func(r Row) float64 { return starved(r, r.P999) }, 1, inMs, []reason{unchanged, declined, paid}},
	{"drops", lost, 0.02, func(v float64) string { return fmt.Sprintf("%.1f %%", 100*v) }, []reason{unchanged, declined, paid}},
	{"moves", moves, 0, func(v float64) string { return fmt.Sprintf("%.0f", v) }, []reason{idle}},
	{"own CPU", func(r Row) float64 { return r.OwnCPU.Seconds() }, 0.05, func(v float64) string { return fmt.Sprintf("%.2f s", v) }, []reason{idle,
		{func(a, _, _ Row) bool { return a.OwnCPU > time.Second },
			"it holds reading an emulated card's counters ten times a second, which take a hundred times as long as a real one's"}}},
}

// Verdict says per scenario whether the mice gained what they should, and each column in which the loop is not the
// best, with the reason that the rows bear out or none.
func Verdict(rows []Row, scenarios []Scenario) []string {
	var out []string
	for _, s := range scenarios {
		var valid []Row
		var auto, nothing *Row
		for _, r := range rows {
			if r.Scenario != s.Letter || r.Failed != "" {
				continue
			}
			valid = append(valid, r)
			switch r.Arm {
			case Auto:
				auto = &valid[len(valid)-1]
			case Nothing:
				nothing = &valid[len(valid)-1]
			}
		}
		if auto == nil || nothing == nil {
			out = append(out, fmt.Sprintf("(%s) not judged: the loop or the untouched host has no result", s.Letter))
			continue
		}
		if s.Goal {
			out = append(out, gain(s, *auto, *nothing))
		}
		best := true
		for _, c := range columns {
			lead := valid[0]
			for _, r := range valid {
				if c.of(r) < c.of(lead) {
					lead = r
				}
			}
			mine, theirs := c.of(*auto), c.of(lead)
			if mine <= theirs*(1+near) || mine-theirs <= c.floor || math.IsInf(mine, 1) && math.IsInf(theirs, 1) {
				continue
			}
			best = false
			why := "unexplained"
			for _, r := range c.why {
				if r.holds(*auto, lead, *nothing) {
					why = "explained: " + r.text
					break
				}
			}
			shown := "never"
			if !math.IsInf(mine, 1) {
				shown = c.shown(mine)
			}
			out = append(out, fmt.Sprintf("(%s) %s: %s with auto, %s with %s. %s", s.Letter, c.name, shown, c.shown(theirs), lead.Arm, strings.ToUpper(why[:1])+why[1:]+"."))
		}
		if best {
			out = append(out, fmt.Sprintf("(%s) auto is the best in every column, or within %.0f %% of it.", s.Letter, 100*near))
		}
	}
	return out
}

// gain is the verdict on the mice.
func gain(s Scenario, auto, nothing Row) string {
	was, is := starved(nothing, nothing.P99), starved(auto, auto.P99)
	switch {
	case math.IsInf(is, 1):
		return fmt.Sprintf("(%s) **not met**: mice starve with auto", s.Letter)
	case math.IsInf(was, 1):
		return fmt.Sprintf("(%s) **met**: mice starve untouched, and their p99 is %.1f ms with auto", s.Letter, is)
	}
	word := "not met"
	if was >= minGain*is {
		word = "met"
	}
	return fmt.Sprintf("(%s) **%s**: the mice's p99 is %.1f ms untouched and %.1f ms with auto: %.1f times better, %d wanted", s.Letter, word, was, is, was/is, minGain)
}

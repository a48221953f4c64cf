package apply

import (
	"fmt"
	"math"

	"github.com/rxsteer/rxsteer/collector"
)

// Word is a verdict in one word.
type Word string

const (
	Better    Word = "better"
	Same      Word = "no difference"
	Worse     Word = "worse"
	NotJudged Word = "not judged"
)

// Measure is one figure before and after, as means over windows.
type Measure struct {
	Name   string  `json:"name"` // ends in its unit: _ratio, _per_s, _ns
	Before float64 `json:"before"`
	After  float64 `json:"after"`
	// Significant: the difference is larger than the windows' scatter explains (Welch's t, 95 %).
	Significant bool `json:"significant"`
}

// Verdict compares what was measured before with what was measured after.
type Verdict struct {
	Word     Word      `json:"verdict"`
	Why      string    `json:"why"`
	Windows  int       `json:"windows"` // on each side
	Measures []Measure `json:"measures"`
}

// The differences that count: below these even a significant one is no reason to act.
const (
	hottestPoints = 0.05 // of a CPU's time
	worsePoints   = 0.10
	deliveredGain = 0.02
	deliveredLoss = 0.05
	// loadLoss is the loss up to which fewer packets with a cooler CPU and no drops are the load's own
	// change: nothing on this host held them back.
	loadLoss     = 0.15
	dropPoints   = 0.001 // of packets offered
	leastTraffic = 100   // packets/s, below which there is nothing to judge
	leastWindows = 3
)

// Judge compares windows before and after a change: receive softirq time of the hottest CPU,
// packets delivered to the stack, and packets dropped in the host before it.
func Judge(before, after []*collector.Sample) *Verdict {
	v := &Verdict{Word: NotJudged, Windows: min(len(before), len(after)), Measures: []Measure{}}
	if v.Windows < leastWindows {
		v.Why = fmt.Sprintf("%d windows on the shorter side, %d are needed", v.Windows, leastWindows)
		return v
	}
	m := func(name string, of func(*collector.Sample) float64) Measure {
		a, b := series(before, of), series(after, of)
		x := Measure{Name: name, Before: mean(a), After: mean(b), Significant: welch(a, b)}
		v.Measures = append(v.Measures, x)
		return x
	}
	hot := m("hottest_cpu_receive_softirq_ratio", hottest)
	delivered := m("packets_delivered_per_s", deliveredRate)
	drops := m("dropped_of_offered_ratio", dropRatio)
	m("receive_softirq_per_packet_ns", cost)
	if delivered.Before < leastTraffic && delivered.After < leastTraffic {
		v.Why = fmt.Sprintf("%.0f packets/s before, %.0f after: too little traffic", delivered.Before, delivered.After)
		return v
	}
	gain := 0.0
	if delivered.Before > 0 {
		gain = delivered.After/delivered.Before - 1
	}
	more := delivered.Significant && gain >= deliveredGain
	less := delivered.Significant && gain <= -deliveredLoss
	fewerDrops := drops.Significant && drops.Before-drops.After >= dropPoints
	moreDrops := drops.Significant && drops.After-drops.Before >= dropPoints
	cooler := hot.Significant && hot.Before-hot.After >= hottestPoints
	hotter := hot.Significant && hot.After-hot.Before >= worsePoints
	say := func(w Word, why string) *Verdict { v.Word, v.Why = w, why; return v }
	deliveredText := fmt.Sprintf("packets delivered %.0f → %.0f per second (%+.1f %%)", delivered.Before, delivered.After, gain*100)
	dropText := fmt.Sprintf("dropped %.2f → %.2f %% of those offered", drops.Before*100, drops.After*100)
	hotText := fmt.Sprintf("receive softirq of the hottest CPU %.0f → %.0f %%", hot.Before*100, hot.After*100)
	switch {
	case less && cooler && gain > -loadLoss && drops.After < dropPoints:
		return say(Same, deliveredText+" with nothing dropped and the hottest CPU cooler: the load changed")
	case less:
		return say(Worse, deliveredText)
	case moreDrops:
		return say(Worse, dropText)
	case hotter && !more && !fewerDrops:
		return say(Worse, hotText)
	case more && fewerDrops:
		return say(Better, deliveredText+", "+dropText)
	case more:
		return say(Better, deliveredText)
	case fewerDrops:
		return say(Better, dropText)
	case cooler:
		return say(Better, hotText)
	}
	return say(Same, hotText+", "+deliveredText+", "+dropText+": within the scatter of the windows or too small to matter")
}

func hottest(s *collector.Sample) float64 {
	var top uint64
	for _, c := range s.CPUs {
		t := c.Softirq
		if s.Level >= 1 {
			t = c.SoftirqTime[collector.NetRX]
		}
		top = max(top, t)
	}
	if s.Interval <= 0 {
		return 0
	}
	return min(float64(top)/float64(s.Interval), 1)
}

func processed(s *collector.Sample) (n uint64) {
	for _, c := range s.CPUs {
		n += c.Processed
	}
	return n
}

func deliveredRate(s *collector.Sample) float64 {
	if s.Interval <= 0 {
		return 0
	}
	return float64(processed(s)) / s.Interval.Seconds()
}

// dropRatio is backlog and ring drops of all that was offered.
func dropRatio(s *collector.Sample) float64 {
	var n uint64
	for _, c := range s.CPUs {
		n += c.Dropped
	}
	for _, d := range s.Devices {
		n += d.RXMissed
	}
	if n == 0 {
		return 0
	}
	return float64(n) / float64(n+processed(s))
}

func cost(s *collector.Sample) float64 {
	var t uint64
	for _, c := range s.CPUs {
		if s.Level >= 1 {
			t += c.SoftirqTime[collector.NetRX]
		} else {
			t += c.Softirq
		}
	}
	n := processed(s)
	if n == 0 {
		return 0
	}
	return float64(t) / float64(n)
}

func series(s []*collector.Sample, of func(*collector.Sample) float64) []float64 {
	out := make([]float64, len(s))
	for i, x := range s {
		out[i] = of(x)
	}
	return out
}

func mean(v []float64) float64 {
	var t float64
	for _, x := range v {
		t += x
	}
	return t / float64(len(v))
}

func variance(v []float64) float64 {
	m := mean(v)
	var t float64
	for _, x := range v {
		t += (x - m) * (x - m)
	}
	return t / float64(len(v)-1)
}

// student is the two-sided 95 % quantile of Student's t for 1…30 degrees of freedom.
var student = [...]float64{12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228,
	2.201, 2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086,
	2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042}

// welch reports whether two series of at least two values differ at 95 % (Welch's t test).
func welch(a, b []float64) bool {
	va, vb := variance(a)/float64(len(a)), variance(b)/float64(len(b))
	d := math.Abs(mean(a) - mean(b))
	if va+vb == 0 {
		return d > 0
	}
	df := (va + vb) * (va + vb) / (va*va/float64(len(a)-1) + vb*vb/float64(len(b)-1))
	i := max(1, int(df)) - 1
	t := 1.96
	if i < len(student) {
		t = student[i]
	}
	return d/math.Sqrt(va+vb) > t
}

package control

import (
	"fmt"
	"maps"
	"math"
	"slices"

	"github.com/rxsteer/rxsteer/steer/diagnose"
)

// Words of a judgement.
const (
	JudgedFine  = "judged no worse"
	JudgedWorse = "judged worse"
)

const (
	// hotter is how much more of its time the hottest CPU may spend on receive, lossy the part of the packets that may be
	// dropped more, disorder the part of the packets TCP may get out of order more.
	hotter   = 0.05
	lossy    = 0.001
	disorder = 0.02
	// another is how much the number of packets may differ for the two sides to be compared.
	another = 0.3
)

// side is the ticks before or after a write.
type side struct {
	hottest  []float64 // receive time of the CPU that spends most of the whole side on it, by tick
	packets  []float64 // per second
	dropped  []float64
	disorder []float64
	sum      []uint64 // by queue
}

func sideOf(ticks []look) side {
	var s side
	rx := map[int]float64{}
	for _, l := range ticks {
		for q, cpu := range l.d.CPUs {
			if cpu >= 0 && q < len(l.d.Packets) {
				rx[cpu] += 0
			}
		}
	}
	for _, l := range ticks {
		for c := range rx {
			rx[c] += l.rx[c]
		}
	}
	hot := -1
	for _, c := range slices.Sorted(maps.Keys(rx)) {
		if hot < 0 || rx[c] > rx[hot] {
			hot = c
		}
	}
	for _, l := range ticks {
		seconds := l.interval.Seconds()
		total := uint64(0)
		for q, n := range l.d.Packets {
			total += n
			for len(s.sum) <= q {
				s.sum = append(s.sum, 0)
			}
			s.sum[q] += n
		}
		s.hottest = append(s.hottest, l.rx[hot])
		s.packets = append(s.packets, float64(total)/seconds)
		s.dropped = append(s.dropped, float64(l.d.Dropped)/seconds)
		s.disorder = append(s.disorder, float64(l.ooo)/seconds)
	}
	return s
}

// judge compares the ticks before a write with those after: worse is what chance and another load do not explain.
func judge(d *device) (worse bool, why string, numbers []diagnose.Fact) {
	before, after := sideOf(d.before), sideOf(d.after)
	b, a := mean(before.hottest), mean(after.hottest)
	pb, pa := mean(before.packets), mean(after.packets)
	db, da := mean(before.dropped), mean(after.dropped)
	ob, oa := mean(before.disorder), mean(after.disorder)
	was, is := shares(before.sum), shares(after.sum)
	missed, stayed := is.distance(d.predicted), is.distance(was)
	numbers = []diagnose.Fact{fact("hottest_before_ratio", b), fact("hottest_after_ratio", a), fact("packets_before_per_s", math.Round(pb)), fact("packets_after_per_s", math.Round(pa)),
		fact("dropped_before_per_s", math.Round(db)), fact("dropped_after_per_s", math.Round(da)), fact("missed_ratio", missed), fact("ticks", len(after.hottest))}
	moved := d.predicted.distance(was)
	same := pb > 0 && math.Abs(pa-pb) <= another*pb
	switch {
	case pa == 0:
		return false, "no packets came after it: nothing to compare", numbers
	case same && moved > differs && stayed < moved/4 && missed > moved/2:
		return true, "the device took the table and its traffic does not follow it (RX206)", numbers
	case significant(before.dropped, after.dropped) && da-db > lossy*pa:
		return true, fmt.Sprintf("more packets are dropped: %.0f → %.0f per second", db, da), numbers
	case same && significant(before.disorder, after.disorder) && oa-ob > disorder*pa:
		return true, fmt.Sprintf("TCP gets more segments out of order: %.0f → %.0f per second", ob, oa), numbers
	case same && significant(before.hottest, after.hottest) && a-b > hotter && missed < differs:
		return true, fmt.Sprintf("the hottest CPU got hotter: %.0f %% → %.0f %%", 100*b, 100*a), numbers
	case !same || missed >= differs:
		return false, "the load is another one since: what was measured before does not compare", numbers
	case a < b && significant(before.hottest, after.hottest):
		return false, fmt.Sprintf("the hottest CPU cooled: %.0f %% → %.0f %%", 100*b, 100*a), numbers
	default:
		return false, "no difference that chance does not explain", numbers
	}
}

func mean(x []float64) float64 {
	if len(x) == 0 {
		return 0
	}
	sum := 0.0
	for _, v := range x {
		sum += v
	}
	return sum / float64(len(x))
}

// significant is Welch's t beyond 3: more than 95 % sure with the three ticks of the shorter side.
func significant(x, y []float64) bool {
	if len(x) < 2 || len(y) < 2 {
		return false
	}
	mx, my := mean(x), mean(y)
	v := variance(x, mx)/float64(len(x)) + variance(y, my)/float64(len(y))
	if v == 0 {
		return mx != my
	}
	return math.Abs(mx-my)/math.Sqrt(v) > 3
}

func variance(x []float64, m float64) float64 {
	sum := 0.0
	for _, v := range x {
		sum += (v - m) * (v - m)
	}
	return sum / float64(len(x)-1)
}

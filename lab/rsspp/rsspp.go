// Package rsspp is the published greedy of RSS++, written anew as the peer that steer/balance is
// measured against. It is no part of what rxsteer ships.
//
// The algorithm: T. Barbette, G. P. Katsikas, G. Q. Maguire Jr., D. Kostić, "RSS++: load and
// state-aware receive side scaling", CoNEXT 2019 (doi 10.1145/3359989.3365412), and its program,
// repository rsspp/fastclick: MethodRSSPP::rebalance for which cores take part and
// BucketMapTargetProblem::solve (solver.hh) for the moves. A core is overloaded (underloaded)
// when its load is more than a threshold above (below) the mean. The biggest bucket of the most
// loaded core goes to the least loaded core it fits into; where it fits none it stays. What
// "fits" means is loosened by an allowance, searched over at most ten runs by the square of the
// imbalance that each leaves.
//
// Kept out: adding and removing cores, NUMA rounds, and the pause of one round for a core that
// has just received buckets; a caller that loops has the last one by its period. One difference
// favours the peer: the published program means to end with the allowances of its best run but
// never stores that run's imbalance, so ends with those of its last; here the best run is kept.
package rsspp

import "math"

// The constants of the published program, in parts of one CPU's time.
const (
	Threshold = 0.02  // IMBALANCE_THRESHOLD of its README: nearer to the mean a core takes no part
	allowance = -0.01 // of the first run: take and give a little less than the imbalance
	enough    = 0.01  // squared imbalance that needs no further run
	runs      = 10
)

// Solve returns a new table, bucket → core. loads are the buckets' and background the cores'
// immovable loads in parts of one CPU's time; table is the present table. A core is a queue
// with a CPU of its own. Buckets without load and cores with one busy bucket are left alone.
func Solve(loads, background []float64, table []int) []int {
	cores := make([]float64, len(background))
	copy(cores, background)
	busy := make([]int, len(cores))
	var mean float64
	for b, q := range table {
		cores[q] += loads[b]
		if loads[b] > 0 {
			busy[q]++
		}
	}
	for _, l := range cores {
		mean += l / float64(len(cores))
	}
	p := problem{loads: loads}
	for q, l := range cores {
		switch d := l - mean; {
		case d > Threshold && busy[q] > 1:
			p.over = append(p.over, core{id: q, need: d})
		case d < -Threshold:
			p.under = append(p.under, core{id: q, need: -d})
		}
	}
	out := make([]int, len(table))
	copy(out, table)
	if len(p.over) == 0 || len(p.under) == 0 {
		return out
	}
	p.buckets = make([][]int, len(cores))
	for b, q := range table {
		if loads[b] > 0 {
			p.buckets[q] = append(p.buckets[q], b)
		}
	}
	for b, q := range p.search() {
		out[b] = q
	}
	return out
}

// core is one that takes part; need is what is left to take from it or to give to it.
type core struct {
	id   int
	need float64
}

type problem struct {
	loads       []float64
	over, under []core
	buckets     [][]int // by core
}

// search runs with changing allowances and returns the moves (bucket → core) of the run that
// left the least squared imbalance.
func (p *problem) search() map[int]int {
	var best map[int]int
	least := math.Inf(1)
	over, under := allowance, allowance
	lowO, lowU, topO, topU := over, under, 0.0, 0.0
	lowSq, topSq := math.Inf(1), math.Inf(1)
	last, m := math.Inf(1), 0.0
	const (
		widen = iota + 1 // until the imbalance grows
		left             // between the narrowest and the widest
		right
	)
	phase := widen
	for run := 1; ; run++ {
		moves, o, u, square := p.run(over, under)
		if square < least {
			least, best = square, moves
		}
		if run == runs || square < enough {
			return best
		}
		between := func() {
			over, under = lowO+(topO-lowO)*m, lowU+(topU-lowU)*m
		}
		switch grew := square > last; {
		case run == 1:
			over, under = o, u
		case phase == widen && !grew:
			over, under = over*1.5, under*1.5
		case phase == widen:
			phase, topO, topU, m = left, over, under, 0.5
			over, under = over/2, under/2
		case phase == left && !grew:
			if m /= 2; m < 0.01 {
				return best
			}
			between()
		case phase == left:
			phase, lowO, lowU, lowSq, m = right, over, under, square, 0.5
			between()
		case phase == right && !grew:
			if m = (1 + m) / 2; m > 0.99 {
				return best
			}
			between()
		default:
			phase, topO, topU, topSq, m = left, over, under, square, 0.5
			between()
		}
		if topSq == lowSq && lowSq == square {
			return best
		}
		last = square
	}
}

// run is one pass: from each overloaded core at most its need plus the allowance is taken, into
// an underloaded one goes at most its need plus the allowance. It returns the moves and the
// imbalance left on overloaded and underloaded cores, summed and squared.
func (p *problem) run(overAllowed, underAllowed float64) (moves map[int]int, o, u, square float64) {
	moves = map[int]int{}
	over, under := append([]core(nil), p.over...), append([]core(nil), p.under...)
	left := map[int][]int{}
	for _, c := range over {
		left[c.id] = append([]int(nil), p.buckets[c.id]...)
	}
	settle := func(list *[]core, i int, sum *float64) {
		*sum += math.Abs((*list)[i].need)
		square += (*list)[i].need * (*list)[i].need
		*list = append((*list)[:i], (*list)[i+1:]...)
	}
	for len(over) > 0 && len(under) > 0 {
		from := neediest(over)
		id := over[from].id
		var bucket int
		bucket, left[id] = biggest(p.loads, left[id])
		load := p.loads[bucket]
		// The least loaded core is the only one to ask: where it has no room, none has.
		if to := neediest(under); load < under[to].need+underAllowed {
			moves[bucket] = under[to].id
			under[to].need -= load
			over[from].need -= load
			if under[to].need <= enough {
				settle(&under, to, &u)
			}
		}
		if over[from].need <= -overAllowed || len(left[id]) == 0 {
			settle(&over, from, &o)
		}
	}
	for len(over) > 0 {
		settle(&over, 0, &o)
	}
	for len(under) > 0 {
		settle(&under, 0, &u)
	}
	return moves, o, u, square
}

// neediest is the index of the core with the greatest need, the lowest id of several.
func neediest(list []core) int {
	best := 0
	for i, c := range list {
		if b := list[best]; c.need > b.need || c.need == b.need && c.id < b.id {
			best = i
		}
	}
	return best
}

// biggest takes the bucket of the greatest load, the lowest of several, out of a list.
func biggest(loads []float64, list []int) (int, []int) {
	best := 0
	for i, b := range list {
		if loads[b] > loads[list[best]] {
			best = i
		}
	}
	b := list[best]
	return b, append(list[:best], list[best+1:]...)
}

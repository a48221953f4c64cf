package balance

import "math"

// The constants of the published greedy, in parts of one CPU's time; lab/rsspp has the
// algorithm written out with its source, the tests hold the two against each other.
const (
	greedyThreshold = 0.02
	greedyAllowance = -0.01
	greedyEnough    = 0.01
	greedyRuns      = 10
)

// greedy makes cur what the published greedy of RSS++ makes of the items at home. It knows no
// siblings, no cost by queue and no unreachable bins: false where there are such.
func (p *packing) greedy(cur *state) bool {
	if !p.uniform || len(p.mates) > 0 {
		return false
	}
	m := len(p.back)
	cur.first = nil
	cur.set(p.home)
	var mean float64
	for _, l := range cur.load {
		mean += l / float64(m)
	}
	g := rsspp{p: p, need: p.float64s(m), sign: make([]int, m), over: p.newMinTree(m), under: p.newMinTree(m), left: p.int32s(m + 1)}
	nOver, nUnder := 0, 0
	for c, l := range cur.load {
		switch d := l - mean; {
		case d > greedyThreshold && cur.n[c] > 1:
			g.need[c], g.sign[c] = d, 1
			nOver++
		case d < -greedyThreshold:
			g.need[c], g.sign[c] = -d, -1
			nUnder++
		}
	}
	if nOver == 0 || nUnder == 0 {
		return true
	}
	g.items, g.from = p.byHome()
	g.bin, g.best = p.int32s(len(p.w)), p.int32s(len(p.w))
	g.search()
	cur.set(g.best)
	return true
}

type rsspp struct {
	p           *packing
	need        []float64 // to take from or to give to each bin
	sign        []int     // 1 overloaded, −1 underloaded, 0 takes no part
	over, under *minTree  // by −need, +Inf when settled
	items       []int32   // by bin, biggest first: items[from[c]:from[c+1]]
	from, left  []int32
	bin, best   []int32
}

func (g *rsspp) search() {
	least := math.Inf(1)
	over, under := greedyAllowance, greedyAllowance
	lowO, lowU, topO, topU := over, under, 0.0, 0.0
	lowSq, topSq := math.Inf(1), math.Inf(1)
	last, m := math.Inf(1), 0.0
	phase := 1 // 1 widen until the imbalance grows, then between: 2 to the left, 3 to the right
	for run := 1; ; run++ {
		o, u, square := g.run(over, under)
		if square < least {
			least = square
			copy(g.best, g.bin)
		}
		if run == greedyRuns || square < greedyEnough {
			return
		}
		grew := square > last
		switch {
		case run == 1:
			over, under = o, u
		case phase == 1 && !grew:
			over, under = over*1.5, under*1.5
		case phase == 1:
			phase, topO, topU, m = 2, over, under, .5
			over, under = over/2, under/2
		default:
			switch {
			case phase == 2 && !grew:
				m /= 2
			case phase == 2:
				phase, lowO, lowU, lowSq, m = 3, over, under, square, .5
			case !grew:
				m = (1 + m) / 2
			default:
				phase, topO, topU, topSq, m = 2, over, under, square, .5
			}
			if m < .01 || m > .99 {
				return
			}
			over, under = lowO+(topO-lowO)*m, lowU+(topU-lowU)*m
		}
		if topSq == lowSq && lowSq == square {
			return
		}
		last = square
	}
}

// run is one pass into g.bin, with the imbalance left on overloaded and underloaded bins, summed and squared.
func (g *rsspp) run(overAllowed, underAllowed float64) (o, u, square float64) {
	copy(g.bin, g.p.home)
	copy(g.left, g.from)
	key := func(sign int) func(int) float64 {
		return func(c int) float64 {
			if g.sign[c] != sign {
				return math.Inf(1)
			}
			return -g.need[c]
		}
	}
	g.over.build(len(g.need), key(1))
	g.under.build(len(g.need), key(-1))
	settle := func(t *minTree, c int32, need float64, sum *float64) {
		*sum += math.Abs(need)
		square += need * need
		t.set(c, math.Inf(1))
	}
	for {
		from, to := g.over.min(), g.under.min()
		take, give := -g.over.key[from], -g.under.key[to]
		if math.IsInf(take, -1) || math.IsInf(give, -1) {
			break
		}
		i := g.items[g.left[from]]
		g.left[from]++
		w := g.p.w[i]
		if w < give+underAllowed {
			g.bin[i] = to
			give -= w
			take -= w
			if give <= greedyEnough {
				settle(g.under, to, give, &u)
			} else {
				g.under.set(to, -give)
			}
		}
		if take <= -overAllowed || g.left[from] == g.from[from+1] {
			settle(g.over, from, take, &o)
		} else {
			g.over.set(from, -take)
		}
	}
	for c := range g.need {
		for _, t := range []*minTree{g.over, g.under} {
			if n := -t.key[c]; !math.IsInf(n, -1) {
				sum := &o
				if t == g.under {
					sum = &u
				}
				*sum += math.Abs(n)
				square += n * n
			}
		}
	}
	return o, u, square
}

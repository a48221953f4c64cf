package balance

import "math"

// Which items leave a bin that is above the level.
type eviction int

const (
	fewest eviction = iota // as few as possible, the last no bigger than needed
	small                  // from the smallest on: more moves, a finer fit
	mice                   // fewest, but none above half the level: the elephant stays
	all                    // everything: packed anew
)

// solve returns bins by item, at least as good as every item at home; proven: there is none better.
func (p *packing) solve() (bin []int32, proven bool) {
	n, m := len(p.w), len(p.back)
	best, cur := p.newState(), p.newState()
	best.set(p.home)
	if n == 0 || m < 2 {
		return best.bin, true
	}
	bs := best.score()
	start := bs
	offer := func() {
		if sc := cur.score(); sc.better(bs, p.floor) {
			bs = sc
			best.copy(cur)
		}
	}
	good := func() bool { return bs.hot <= p.floor*(1+eps) }
	tree := p.newMinTree(m)
	target := max(p.floor, p.bound)
	// Levels from the target up: what has to leave shrinks, and with it the moves.
	for _, above := range []float64{0, .004, .015, .05, .15} {
		level := target * (1 + above)
		if level >= start.hot || p.spent() {
			break
		}
		p.fill(cur, tree, level, fewest)
		offer()
		if above == 0 && p.floor > p.bound && !good() {
			// Nearly there with the fewest moves: a few swaps get there with fewer than another choice would.
			p.improve(cur, tree)
			if offer(); good() {
				break
			}
		}
		if above <= .004 && !good() {
			p.fill(cur, tree, level, small)
			offer()
			p.fill(cur, tree, level, mice)
			offer()
		}
		if good() {
			break
		}
	}
	if !good() && !p.spent() {
		p.fill(cur, tree, target, all)
		offer()
	}
	if !good() {
		p.improve(best, tree)
	}
	least := p.other + p.mustMove(target)
	if !good() || bs.moves > least {
		p.reduce(best)
		bs = best.score()
	}
	if good() && bs.moves == least {
		return best.bin, true // no cooler counts, and fewer moves do not get there
	}
	if p.greedy(cur) {
		offer()
		// Taking moves back cools nothing: only what is as cool as the best may become better than it.
		if max(cur.score().hot, p.floor) <= max(bs.hot, p.floor)*(1+eps) {
			p.reduce(cur)
			offer()
		}
	}
	// Small enough to look at all of them: each costs a few looks.
	leaves := math.Pow(float64(m), float64(n))
	if leaves > exhaustive && (!p.asked || p.spent()) {
		return best.bin, false
	}
	e := exact{packing: p, cur: cur, best: best, score: bs, limit: p.left, small: leaves <= exhaustive}
	if e.small {
		e.limit = 4 * exhaustive
	}
	return best.bin, e.run()
}

// exhaustive is the number of assignments up to which all are searched whatever the budget.
const exhaustive = 20_000

// mustMove is how many items at least have to leave their homes for a hottest bin of no more than level.
func (p *packing) mustMove(level float64) (n int) {
	over := p.float64s(len(p.back))
	copy(over, p.back)
	for i, w := range p.w {
		over[p.home[i]] += w
	}
	limit := level * (1 + eps)
	// The biggest first frees most: fewer cannot do.
	for i, w := range p.w {
		if h := p.home[i]; over[h] > limit {
			over[h] -= w
			n++
		}
	}
	return n
}

// fill makes cur: bins above the level lose items, which go to the coolest bins, biggest first.
func (p *packing) fill(cur *state, tree *minTree, level float64, how eviction) {
	n, m := len(p.w), len(p.back)
	cur.first = nil
	cur.set(p.home)
	if how == all {
		for i := range n {
			cur.take(int32(i))
		}
	} else {
		p.evict(cur, level, how)
	}
	tree.build(m, func(c int) float64 { return cur.with(int32(c), 0) })
	for i := range int32(n) {
		if cur.bin[i] != nowhere {
			continue
		}
		c := p.coolest(cur, tree, i)
		cur.put(i, c)
		p.refresh(cur, tree, c)
		p.spend(4)
	}
}

// refresh renews the keys of a bin and its siblings.
func (p *packing) refresh(cur *state, tree *minTree, c int32) {
	g := p.core[c]
	if g < 0 {
		tree.set(c, cur.load[c])
		return
	}
	for _, c := range p.mates[g] {
		tree.set(c, cur.with(c, 0))
	}
}

// coolest is the bin that is coolest with item i in it; of equals its home, then the first.
func (p *packing) coolest(cur *state, tree *minTree, i int32) int32 {
	home := p.home[i]
	if p.uniform {
		c := tree.min()
		if tree.key[c] == tree.key[home] {
			return home
		}
		return c
	}
	best, least := home, cur.with(home, p.w[i])
	for c, to := range p.to[p.kind[i]] {
		if to < math.Inf(1) && int32(c) != home {
			if h := cur.with(int32(c), p.base[i]*to); h < least {
				best, least = int32(c), h
			}
		}
	}
	p.spend(len(p.back))
	return best
}

// evict takes items out of the bins above the level.
func (p *packing) evict(cur *state, level float64, how eviction) {
	// An item above this fits nowhere below the level.
	room := math.Inf(1)
	for _, b := range p.back {
		room = min(room, b)
	}
	room = (level - room) * (1 + eps)
	if how == mice {
		room = min(room, level/2)
	}
	items, from := p.byHome()
	for c := range int32(len(p.back)) {
		excess := cur.load[c] - level
		if g := p.core[c]; g >= 0 {
			excess = max(excess, cur.sum[g]-level*p.smt)
		}
		if excess <= level*eps {
			continue
		}
		list := items[from[c]:from[c+1]]
		for len(list) > 0 && p.w[list[0]] > room {
			list = list[1:]
		}
		if how == small {
			for k := len(list) - 1; k >= 0 && excess > level*eps; k-- {
				excess -= p.w[list[k]]
				cur.take(list[k])
			}
			continue
		}
		for k, i := range list {
			if excess <= level*eps {
				break
			}
			if p.w[i] < excess*(1-eps) || k+1 == len(list) || p.w[list[k+1]] < excess*(1-eps) {
				excess -= p.w[i]
				cur.take(i)
			} // else a smaller one is enough
		}
	}
}

// improve cools the hottest bin by moving one of its items or swapping it for a smaller one,
// until nothing helps, the target is reached or the budget is spent.
func (p *packing) improve(cur *state, tree *minTree) {
	cur.link()
	tree.build(len(p.back), func(c int) float64 { return cur.with(int32(c), 0) })
	target := max(p.floor, p.bound) * (1 + eps)
	for !p.spent() {
		h, hot := cur.hot()
		if h == nowhere || hot <= target || cur.n[h] == 0 {
			return
		}
		best := hot * (1 - eps)
		var item, other, to int32 = nowhere, nowhere, nowhere
		for i := cur.first[h]; i != nowhere; i = cur.next[i] {
			c := p.coolest(cur, tree, i)
			if c == h {
				continue
			}
			if v := max(cur.with(c, p.at(i, c)), cur.with(h, -p.at(i, h))); v < best && !p.mate(c, h) {
				best, item, other, to = v, i, nowhere, c
			}
			p.spend(1)
		}
		// Start at another bin each time: the same few would be drained.
		m := int32(len(p.back))
		for k, c := int32(0), h; k < m && best > target && !p.spent(); k++ {
			if c++; c == m {
				c = 0
			}
			if c == h || cur.n[c] == 0 || p.mate(c, h) || cur.with(c, 0) >= best {
				continue
			}
			for i := cur.first[h]; i != nowhere; i = cur.next[i] {
				wi, onC := p.at(i, h), p.at(i, c)
				if math.IsInf(onC, 1) {
					continue
				}
				for j := cur.first[c]; j != nowhere; j = cur.next[j] {
					p.spend(1)
					wj := p.at(j, h)
					if wj >= wi {
						continue
					}
					if v := max(cur.with(h, wj-wi), cur.with(c, onC-p.at(j, c))); v < best {
						best, item, other, to = v, i, j, c
					}
				}
			}
		}
		if item == nowhere {
			return
		}
		cur.move(item, to)
		if other != nowhere {
			cur.move(other, h)
		}
		p.refresh(cur, tree, h)
		p.refresh(cur, tree, to)
	}
}

// mate reports bins of the same core.
func (p *packing) mate(a, b int32) bool { return p.core[a] >= 0 && p.core[a] == p.core[b] }

// reduce takes back moves while no bin gets hotter than the hottest is, or the floor.
func (p *packing) reduce(cur *state) {
	if cur.moved == 0 {
		return
	}
	cur.link()
	_, hot := cur.hot()
	limit := max(hot, p.floor) * (1 + eps/8)
	for changed := true; changed && !p.spent(); {
		changed = false
		for i, home := range p.home {
			if i := int32(i); cur.bin[i] != home && p.tryHome(cur, i, limit) {
				changed = true
			}
		}
		if !changed {
			changed = p.tryPairs(cur, limit)
		}
	}
}

// tryHome sends an item home, alone or for one that makes room and does not stay more moved for it.
func (p *packing) tryHome(cur *state, i int32, limit float64) bool {
	h, c, w := p.home[i], cur.bin[i], p.w[i]
	p.spend(1)
	apart := !p.mate(h, c)
	if (apart && cur.with(h, w) <= limit) || (!apart && p.fits(cur, limit, i, h, nowhere, nowhere)) {
		cur.move(i, h)
		return true
	}
	if !apart {
		return false
	}
	for j := cur.first[h]; j != nowhere; j = cur.next[j] {
		p.spend(1)
		if p.home[j] == h { // it would be moved for i
			continue
		}
		wj := p.at(j, c)
		if cur.with(h, w-p.at(j, h)) <= limit && cur.with(c, wj-p.at(i, c)) <= limit {
			cur.move(j, c)
			cur.move(i, h)
			return true
		}
	}
	return false
}

// fits tries moves of i to a and of j (or nowhere) to b, and takes them back.
func (p *packing) fits(cur *state, limit float64, i, a, j, b int32) bool {
	ci := cur.bin[i]
	cur.move(i, a)
	ok := false
	if j == nowhere {
		ok = cur.with(a, 0) <= limit && cur.with(ci, 0) <= limit
	} else {
		cj := cur.bin[j]
		cur.move(j, b)
		ok = cur.with(a, 0) <= limit && cur.with(b, 0) <= limit
		cur.move(j, cj)
	}
	cur.move(i, ci)
	return ok
}

// tryPairs sends two items home for one bigger that leaves, once for each bin where that goes.
func (p *packing) tryPairs(cur *state, limit float64) (changed bool) {
	// The biggest items that are away from each bin: more pairs are not worth their time.
	const most = 4
	away, n := make([][most]int32, len(p.back)), make([]int, len(p.back))
	for i, h := range p.home {
		if cur.bin[i] != h && n[h] < most {
			away[h][n[h]] = int32(i)
			n[h]++
		}
	}
	for h := range int32(len(p.back)) {
		if p.spent() {
			return changed
		}
		changed = p.tryPair(cur, h, away[h][:n[h]], limit) || changed
	}
	return changed
}

func (p *packing) tryPair(cur *state, h int32, away []int32, limit float64) bool {
	for x, a := range away {
		for _, b := range away[x+1:] {
			excess := cur.with(h, p.w[a]+p.w[b]) - limit
			for i := cur.first[h]; i != nowhere; i = cur.next[i] {
				p.spend(1)
				if p.home[i] != h || p.w[i] < excess || p.w[i] >= p.w[a]+p.w[b] {
					continue
				}
				for _, c := range [2]int32{cur.bin[a], cur.bin[b]} {
					left := p.at(a, c)
					if cur.bin[a] == cur.bin[b] {
						left += p.at(b, c)
					} else if c == cur.bin[b] {
						left = p.at(b, c)
					}
					if w := p.at(i, c); w <= maxCost && !p.mate(c, h) && cur.with(c, w-left) <= limit && cur.with(h, p.w[a]+p.w[b]-p.w[i]) <= limit {
						cur.move(a, h)
						cur.move(b, h)
						cur.move(i, c)
						return true
					}
				}
			}
		}
	}
	return false
}

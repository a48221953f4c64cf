package balance

// exact is a depth-first search over all assignments, biggest items first, that skips what
// cannot beat the best.
type exact struct {
	*packing
	cur   *state
	best  *state
	score score
	limit int  // looks left
	small bool // to be searched to the end whatever the budget
}

// run leaves the best in e.best and reports whether the search came to its end.
func (e *exact) run() (proven bool) {
	if n := len(e.w); n > 4096 {
		return false // the recursion's depth
	}
	none := make([]int32, len(e.w))
	for i := range none {
		none[i] = nowhere
	}
	e.cur.first = nil
	e.cur.set(none)
	hot := 0.0
	for c := range e.back {
		if e.held[c] {
			hot = max(hot, e.cur.with(int32(c), 0))
		}
	}
	e.search(0, hot)
	return e.limit > 0
}

// search places the items from i on; hot is the heat of the bins that have some.
func (e *exact) search(i int32, hot float64) {
	e.limit--
	if e.small {
		e.used++ // bounded by limit, and not at the expense of other placements
	} else if e.spend(1); e.spent() {
		e.limit = 0
	}
	lb := score{hot: max(hot, e.bound), moves: e.cur.moved + e.other}
	if e.limit <= 0 || !lb.better(e.score, e.floor) {
		return
	}
	if int(i) == len(e.w) {
		// Sums that were added and taken away are off by a little: judged anew.
		s := e.newState()
		s.set(e.cur.bin)
		if sc := s.score(); sc.better(e.score, e.floor) {
			e.score = sc
			e.best.copy(s)
		}
		return
	}
	home := e.home[i]
	e.place(i, home, hot)
	for c := range int32(len(e.back)) {
		if c != home && (e.uniform || e.to[e.kind[i]][c] <= maxCost) {
			e.place(i, c, hot)
		}
	}
}

func (e *exact) place(i, c int32, hot float64) {
	e.cur.put(i, c)
	if h := e.cur.with(c, 0); h > hot {
		hot = h
	}
	// Siblings that were busy before are as hot as their core.
	if g := e.core[c]; g >= 0 {
		for _, m := range e.mates[g] {
			if e.cur.n[m] > 0 || e.held[m] {
				hot = max(hot, e.cur.with(m, 0))
			}
		}
	}
	e.search(i+1, hot)
	e.cur.take(i)
}

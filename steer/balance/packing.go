package balance

import (
	"context"
	"math"
	"math/bits"
	"slices"
	"sync"
)

// budget counts looks.
type budget struct {
	ctx   context.Context
	left  int
	used  int
	since int  // looks since the context was asked
	asked bool // the caller set it: to be used up
}

func (b *budget) spend(n int) {
	b.left -= n
	b.used += n
	if b.since += n; b.since > 8192 {
		b.since = 0
		if b.ctx.Err() != nil {
			b.left = 0
		}
	}
}

func (b *budget) spent() bool { return b.left <= 0 }

// memory hands out zeroed slices that are good until the end of a Solve; the next one gets the same memory. A table is
// fitted within tens of microseconds, a fifth of which the allocator would take.
type memory struct {
	floats []float64
	ints   []int32
}

var memories = sync.Pool{New: func() any { return new(memory) }}

// rewind makes all of it free again.
func (m *memory) rewind() { m.floats, m.ints = m.floats[:0], m.ints[:0] }

func (m *memory) float64s(n int) []float64 { return carve(&m.floats, n) }
func (m *memory) int32s(n int) []int32     { return carve(&m.ints, n) }

func carve[T any](from *[]T, n int) []T {
	at := len(*from)
	if at+n > cap(*from) {
		at, *from = 0, make([]T, 0, max(2*cap(*from), 4*n))
	}
	*from = (*from)[:at+n]
	out := (*from)[at : at+n : at+n]
	clear(out)
	return out
}

// packing is items to be put on bins. Items are sorted by load at home, biggest first; a bin
// is a CPU that is the home of an item or can be reached by one.
type packing struct {
	*budget
	*memory
	// Items.
	w    []float64 // load at home
	base []float64 // load by cost 1
	home []int32   // bin
	kind []int32   // row of to
	id   []int32   // whose it is: for who made the packing
	// Bins.
	cpu   []int
	back  []float64 // load that stays
	held  []bool    // movable load of others stays there
	core  []int32   // −1 alone
	mates [][]int32 // core → bins of it
	sum   []float64 // core → load of all its CPUs that stays
	smt   float64
	// to is the cost in a bin for each kind of item, +Inf where it cannot go.
	to [][]float64
	// uniform: every item can go to every bin and weighs w there.
	uniform bool

	items, from []int32 // of byHome

	bound, floor float64 // of the whole problem
	other        int     // moves already made
	rough        bool    // the packing leaves something out: what is best in it need not be best
}

const nowhere = -1

// maxCost is above every cost and below what means unreachable.
const maxCost = math.MaxFloat64

// at is the load of item i on bin c.
func (p *packing) at(i, c int32) float64 {
	if p.uniform || c == p.home[i] {
		return p.w[i]
	}
	return p.base[i] * p.to[p.kind[i]][c]
}

// sort orders the items, biggest first. A key is a load's bits, whose order is that of loads ≥ 0, with the lowest
// given to the index: loads that differ by less than 2^-32 of themselves, which is below eps, for a million items count as equal.
func (p *packing) sort() {
	n := len(p.w)
	low := uint64(1)<<bits.Len(uint(n)) - 1
	order := make([]uint64, n)
	for i, w := range p.w {
		order[i] = ^math.Float64bits(w)&^low | uint64(i)
	}
	slices.Sort(order)
	floats, ints := p.float64s(2*n), p.int32s(3*n)
	w, base, home, kind, id := floats[:n], floats[n:], ints[:n], ints[n:2*n], ints[2*n:]
	for to, k := range order {
		i := k & low
		w[to], base[to], home[to], kind[to], id[to] = p.w[i], p.base[i], p.home[i], p.kind[i], p.id[i]
	}
	p.w, p.base, p.home, p.kind, p.id = w, base, home, kind, id
}

// byHome lists the items of each bin, biggest first: items[from[c]:from[c+1]].
func (p *packing) byHome() (items, from []int32) {
	if p.items != nil {
		return p.items, p.from
	}
	n, m := len(p.w), len(p.back)
	ints := p.int32s(n + 2*m + 1)
	items, from = ints[:n], ints[n:n+m+1]
	next := ints[n+m+1:]
	for _, h := range p.home {
		from[h+1]++
	}
	for c := range m {
		from[c+1] += from[c]
	}
	copy(next, from)
	for i, h := range p.home {
		items[next[h]] = int32(i)
		next[h]++
	}
	p.items, p.from = items, from
	return items, from
}

// state is an assignment of items with the sums that follow from it.
type state struct {
	p     *packing
	bin   []int32
	load  []float64
	sum   []float64 // by core
	n     []int32   // items by bin
	moved int
	// Lists of items by bin, built by link.
	first, next, prev []int32
}

func (p *packing) newState() *state {
	n, m := len(p.w), len(p.back)
	ints := p.int32s(n + m)
	floats := p.float64s(m + len(p.sum))
	return &state{p: p, bin: ints[:n], n: ints[n:], load: floats[:m], sum: floats[m:]}
}

// copy makes s the same assignment as o; lists are not kept.
func (s *state) copy(o *state) {
	copy(s.bin, o.bin)
	copy(s.load, o.load)
	copy(s.sum, o.sum)
	copy(s.n, o.n)
	s.moved = o.moved
	s.first = nil
}

// set makes s the assignment bin; an item in nowhere is not counted.
func (s *state) set(bin []int32) {
	p := s.p
	copy(s.load, p.back)
	copy(s.sum, p.sum)
	clear(s.n)
	s.moved = 0
	for i, c := range bin {
		s.bin[i] = nowhere
		if c != nowhere {
			s.put(int32(i), c)
		}
	}
}

func (s *state) put(i, c int32) {
	p := s.p
	w := p.at(i, c)
	s.bin[i] = c
	s.load[c] += w
	s.n[c]++
	if g := p.core[c]; g >= 0 {
		s.sum[g] += w
	}
	if c != p.home[i] {
		s.moved++
	}
	if s.first != nil {
		s.insert(i, c)
	}
}

func (s *state) take(i int32) {
	p, c := s.p, s.bin[i]
	w := p.at(i, c)
	s.bin[i] = nowhere
	s.load[c] -= w
	s.n[c]--
	if g := p.core[c]; g >= 0 {
		s.sum[g] -= w
	}
	if c != p.home[i] {
		s.moved--
	}
	if s.first != nil {
		s.remove(i, c)
	}
}

func (s *state) move(i, c int32) {
	s.take(i)
	s.put(i, c)
}

// link builds the lists.
func (s *state) link() {
	n, m := len(s.bin), len(s.load)
	ints := s.p.int32s(2*n + m)
	s.next, s.prev, s.first = ints[:n], ints[n:2*n], ints[2*n:]
	for c := range s.first {
		s.first[c] = nowhere
	}
	for i := n - 1; i >= 0; i-- {
		s.insert(int32(i), s.bin[i])
	}
}

func (s *state) insert(i, c int32) {
	f := s.first[c]
	s.next[i], s.prev[i], s.first[c] = f, nowhere, i
	if f != nowhere {
		s.prev[f] = i
	}
}

func (s *state) remove(i, c int32) {
	n, v := s.next[i], s.prev[i]
	if v == nowhere {
		s.first[c] = n
	} else {
		s.next[v] = n
	}
	if n != nowhere {
		s.prev[n] = v
	}
}

// with is the heat of bin c with d more load.
func (s *state) with(c int32, d float64) float64 {
	h := s.load[c] + d
	if g := s.p.core[c]; g >= 0 {
		h = max(h, (s.sum[g]+d)/s.p.smt)
	}
	return h
}

// hot is the hottest bin with movable load and its heat.
func (s *state) hot() (bin int32, heat float64) {
	bin = nowhere
	for c, l := range s.load {
		if s.n[c] == 0 && !s.p.held[c] {
			continue
		}
		if g := s.p.core[c]; g >= 0 {
			l = max(l, s.sum[g]/s.p.smt)
		}
		if bin == nowhere || l > heat {
			bin, heat = int32(c), l
		}
	}
	return bin, heat
}

func (s *state) score() score {
	_, h := s.hot()
	return score{hot: h, moves: s.moved + s.p.other}
}

// minTree is a winner tree: the index of the least key, the lowest of several.
type minTree struct {
	key  []float64
	win  []int32 // win[1] is the winner, leaves from base on
	base int
}

func (p *packing) newMinTree(n int) *minTree {
	base := 1
	for base < n {
		base *= 2
	}
	t := &minTree{key: p.float64s(base), win: p.int32s(2 * base), base: base}
	for i := range base {
		t.win[base+i] = int32(i)
	}
	return t
}

// build takes keys by index; indices from len(keys) on never win against one of them.
func (t *minTree) build(n int, key func(int) float64) {
	for i := range t.base {
		t.key[i] = math.Inf(1)
		if i < n {
			t.key[i] = key(i)
		}
	}
	for i := t.base - 1; i > 0; i-- {
		t.win[i] = t.winner(i)
	}
}

func (t *minTree) winner(i int) int32 {
	a, b := t.win[2*i], t.win[2*i+1]
	if t.key[b] < t.key[a] {
		return b
	}
	return a
}

func (t *minTree) set(i int32, key float64) {
	t.key[i] = key
	for n := (t.base + int(i)) / 2; n > 0; n /= 2 {
		t.win[n] = t.winner(n)
	}
}

func (t *minTree) min() int32 {
	if t.base == 1 {
		return 0
	}
	return t.win[1]
}

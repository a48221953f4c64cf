package balance

import "slices"

// weights finds runs of consecutive buckets, in the order of queues, whose hottest CPU is
// coolest, and among those the ones with the fewest buckets moved; the rest of as stays.
func (s *solver) weights(device int, as []Assignment) Assignment {
	d := &s.Devices[device]
	out := Assignment{Table: as[device].Table, IRQ: as[device].IRQ}
	rest := slices.Clone(as)
	rest[device] = Assignment{}
	load, _ := s.loads(rest)
	w := runs{d: d, irq: out.IRQ, at: make([]int, len(out.IRQ)), load: slices.Clone(load), s: s, alone: true}
	seen := map[int]bool{}
	for q, id := range out.IRQ {
		w.at[q] = -1
		if id == Unused {
			continue
		}
		c := s.cpu(id)
		w.at[q] = c
		key := -1 - c
		if g := s.core[c]; g >= 0 {
			key = g
		}
		w.alone = w.alone && !seen[key]
		seen[key] = true
	}
	if len(seen) == 0 || len(d.Buckets) == 0 {
		return out
	}
	low, high := s.bound, s.heat(as)
	if _, ok := w.fill(high); !ok {
		// The present table is no set of runs: the level may have to be higher, where it is never taken.
		return out
	}
	for range 40 {
		mid := (low + high) / 2
		if _, ok := w.fill(mid); ok {
			high = mid
		} else {
			low = mid
		}
	}
	high = max(high, s.floor) * (1 + eps/8)
	ends, ok := w.fill(high)
	if !ok {
		return out
	}
	if w.alone {
		ends = w.fewest(high, ends)
	}
	out.Table = make([]int, len(d.Buckets))
	out.Weights = make([]int, len(out.IRQ))
	from := 0
	for q, end := range ends {
		for b := from; b < end; b++ {
			out.Table[b] = q
		}
		out.Weights[q] = end - from
		from = end
	}
	s.spend(40 * len(d.Buckets))
	return out
}

// runs is the choice of where each queue's run ends.
type runs struct {
	s     *solver
	d     *Device
	irq   []int
	at    []int // queue → CPU, −1 unused
	load  []float64
	alone bool // no two queues share a core
}

// room is what CPU c can take at a level, in CPU time, with added already there.
func (r *runs) room(level float64, c int, added []float64) float64 {
	room := level - r.load[c] - added[c]
	if g := r.s.core[c]; g >= 0 {
		left := level * r.s.SMT
		for _, m := range r.s.cores[g] {
			left -= r.load[m] + added[m]
		}
		room = min(room, left)
	}
	return room
}

// fill gives each queue as many buckets as go below the level; ok when none is left over. It is
// exact where no two queues share a core.
func (r *runs) fill(level float64) (ends []int, ok bool) {
	added := make([]float64, len(r.load))
	ends = make([]int, len(r.at))
	b := 0
	for q, c := range r.at {
		if c >= 0 {
			room := r.room(level, c, added)
			var sum float64
			for b < len(r.d.Buckets) && (sum+r.d.Buckets[b]*r.d.cost(q) <= room || r.d.Buckets[b] == 0) {
				sum += r.d.Buckets[b] * r.d.cost(q)
				b++
			}
			added[c] += sum
		}
		ends[q] = b
	}
	return ends, b == len(r.d.Buckets)
}

// need is, for each queue, how many of the first buckets it and those before it have to take
// for the rest to go below the level; the counterpart of fill.
func (r *runs) need(level float64) []int {
	none := make([]float64, len(r.load))
	ends := make([]int, len(r.at))
	b := len(r.d.Buckets)
	for q := len(r.at) - 1; q >= 0; q-- {
		ends[q] = b
		if c := r.at[q]; c >= 0 {
			room := r.room(level, c, none)
			var sum float64
			for b > 0 && (sum+r.d.Buckets[b-1]*r.d.cost(q) <= room || r.d.Buckets[b-1] == 0) {
				b--
				sum += r.d.Buckets[b] * r.d.cost(q)
			}
		}
	}
	return ends
}

// fewest are the runs below the level that leave most buckets where they are; no two queues share a
// core. By dynamic programming: best[b] is the fewest moves with b buckets given to the queues
// so far, b between need and most (fill). The run of a queue may begin anywhere in a window
// that only slides forward, whose least is kept in a deque.
func (r *runs) fewest(level float64, most []int) []int {
	const never = 1 << 30
	n := len(r.d.Buckets)
	low := r.need(level)
	none := make([]float64, len(r.load))
	best, first := []int{0}, 0 // best[k] is for first+k buckets
	begin := make([][]int32, len(r.at))
	own := make([]int, n+1) // own[b] − own[a]: buckets in [a,b) that are of another queue
	for q, c := range r.at {
		from, to := max(low[q], first), most[q]
		if c < 0 {
			from, to = first, first+len(best)-1
		}
		begin[q] = make([]int32, max(0, to-from+1))
		if c < 0 {
			for k := range begin[q] {
				begin[q][k] = int32(from + k)
			}
			continue
		}
		own[first] = 0
		for b := first; b < to; b++ {
			own[b+1] = own[b]
			if r.d.Table[b] != q {
				own[b+1]++
			}
		}
		room, cost := r.room(level, c, none), r.d.cost(q)
		next := make([]int, len(begin[q]))
		value := func(b int) int { return best[b-first] - own[b] }
		var deque []int
		head, left := 0, first
		var sum float64
		for b := first; b <= to; b++ {
			if b > first {
				sum += r.d.Buckets[b-1] * cost
			}
			for left < b && sum > room {
				sum -= r.d.Buckets[left] * cost
				left++
			}
			if left == b {
				sum = 0
			}
			if b-first < len(best) {
				for len(deque) > head && value(deque[len(deque)-1]) > value(b) {
					deque = deque[:len(deque)-1]
				}
				deque = append(deque, b)
			}
			for head < len(deque) && deque[head] < left {
				head++
			}
			if b < from {
				continue
			}
			next[b-from] = never
			if head < len(deque) {
				next[b-from] = min(never, value(deque[head])+own[b])
				begin[q][b-from] = int32(deque[head])
			}
		}
		r.s.spend(to - first)
		best, first = next, from
	}
	if len(best) == 0 || best[len(best)-1] >= never {
		return most // sums that round differently from both ends
	}
	ends := make([]int, len(r.at))
	firsts := make([]int, len(r.at))
	first = 0
	for q, c := range r.at {
		if c >= 0 {
			first = max(low[q], first)
		}
		firsts[q] = first
	}
	b := n
	for q := len(r.at) - 1; q >= 0; q-- {
		ends[q] = b
		b = int(begin[q][b-firsts[q]])
	}
	return ends
}

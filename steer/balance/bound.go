package balance

import (
	"math"
	"slices"
)

var inf = math.Inf(1)

// lowerBound is a heat that no assignment goes below; it sets s.fair. Three reasons:
// the work poured over the CPUs that can be reached as if it could be cut; the
// biggest bucket on the coolest CPU; and of one bucket more than there are CPUs, two share one.
func (s *solver) lowerBound() float64 {
	still := slices.Clone(s.start)
	for i := range s.Devices {
		if s.Devices[i].May != 0 {
			still[i] = Assignment{}
		}
	}
	load, _ := s.loads(still)
	union := make([]bool, len(s.CPUs))
	n := 0
	for _, d := range s.Devices {
		n += len(d.Buckets) + len(d.IRQ)
	}
	items := make([]float64, 0, n)
	var total, bound, level float64
	queues := 0
	for i := range s.Devices {
		d := &s.Devices[i]
		if d.May == 0 {
			continue
		}
		reach := make([]bool, len(s.CPUs))
		usable := 0
		cheapest := math.Inf(1)
		for q, id := range d.IRQ {
			if id == Unused {
				continue
			}
			usable++
			cheapest = min(cheapest, d.cost(q))
			reach[s.cpu(id)] = true
		}
		if usable == 0 {
			continue
		}
		if d.May&IRQ != 0 {
			for _, id := range s.allowed(i) {
				reach[s.cpu(id)] = true
			}
		}
		var sum, biggest float64
		from := len(items)
		if d.May&Table != 0 {
			for b, q := range d.Table {
				if w := d.Buckets[b] * cheapest; w > 0 && d.IRQ[q] != Unused {
					items = append(items, w)
				}
			}
		} else {
			byQueue := make([]float64, len(d.IRQ))
			for b, q := range d.Table {
				if d.IRQ[q] != Unused {
					byQueue[q] += d.Buckets[b] * d.cost(q)
				}
			}
			for _, w := range byQueue {
				if w > 0 {
					items = append(items, w)
				}
			}
		}
		for _, w := range items[from:] {
			sum += w
			biggest = max(biggest, w)
		}
		if sum == 0 {
			continue
		}
		level = s.water(load, reach, usable, sum)
		bound = max(bound, level, s.coolestWith(load, reach, biggest))
		total += sum
		queues += usable
		for c := range reach {
			union[c] = union[c] || reach[c]
		}
	}
	if total == 0 {
		return 0
	}
	if len(s.Devices) == 1 {
		s.fair = level
	} else {
		s.fair = s.water(load, union, queues, total)
	}
	bound = max(bound, s.fair)
	reachable, coolest := 0, math.Inf(1)
	for c, ok := range union {
		if ok {
			reachable++
			coolest = min(coolest, load[c])
		}
	}
	if m := min(reachable, queues); len(items) > m {
		a, b := upper(items, m)
		bound = max(bound, a+b+coolest)
	}
	return bound
}

// upper are the m-th and (m+1)-th greatest, m ≥ 1.
func upper(items []float64, m int) (a, b float64) {
	// The greatest m+1, the least of them at the root.
	h := slices.Clone(items[:m+1])
	down := func(i int) {
		for {
			k := 2*i + 1
			if k >= len(h) {
				return
			}
			if k+1 < len(h) && h[k+1] < h[k] {
				k++
			}
			if h[i] <= h[k] {
				return
			}
			h[i], h[k] = h[k], h[i]
			i = k
		}
	}
	for i := len(h)/2 - 1; i >= 0; i-- {
		down(i)
	}
	for _, w := range items[m+1:] {
		if w > h[0] {
			h[0] = w
			down(0)
		}
	}
	b = h[0]
	a = h[1]
	if len(h) > 2 {
		a = min(a, h[2])
	}
	return a, b
}

// coolestWith is the heat of the CPU that is coolest with w on it.
func (s *solver) coolestWith(load []float64, reach []bool, w float64) float64 {
	least := math.Inf(1)
	for c, ok := range reach {
		if !ok {
			continue
		}
		h := load[c] + w
		if g := s.core[c]; g >= 0 {
			sum := w
			for _, m := range s.cores[g] {
				sum += load[m]
			}
			h = max(h, sum/s.SMT)
		}
		least = min(least, h)
	}
	return least
}

// water is the level that work reaches when poured over at most n of the CPUs in reach.
func (s *solver) water(load []float64, reach []bool, n int, work float64) float64 {
	var levels []float64
	siblings := false
	for c, ok := range reach {
		if ok {
			levels = append(levels, load[c])
			siblings = siblings || s.core[c] >= 0
		}
	}
	if !siblings {
		slices.Sort(levels)
		levels = levels[:min(n, len(levels))]
		level := work
		for i, l := range levels {
			// All of the first i+1 rise to the same level.
			work += l
			level = work / float64(i+1)
			if i+1 == len(levels) || level <= levels[i+1] {
				break
			}
		}
		return level
	}
	// A core takes what its CPUs in reach have room for, and no more than its capacity.
	type group struct {
		cpus []float64
		sum  float64 // of all its CPUs
	}
	by := map[int]int{}
	var groups []group
	for c, ok := range reach {
		if !ok {
			continue
		}
		g := s.core[c]
		k, seen := by[g]
		if g < 0 || !seen {
			k = len(groups)
			groups = append(groups, group{})
			if g >= 0 {
				by[g] = k
				for _, m := range s.cores[g] {
					groups[k].sum += load[m]
				}
			}
		}
		groups[k].cpus = append(groups[k].cpus, load[c])
		if g < 0 {
			groups[k].sum = -1
		}
	}
	rooms := make([]float64, len(groups))
	takes := func(level float64) (t float64) {
		for k, g := range groups {
			r := 0.0
			for _, l := range g.cpus {
				r += max(0, level-l)
			}
			if g.sum >= 0 {
				r = min(r, max(0, level*s.SMT-g.sum))
			}
			rooms[k] = r
		}
		if n < len(rooms) {
			slices.Sort(rooms)
			for _, r := range rooms[len(rooms)-n:] {
				t += r
			}
			return t
		}
		for _, r := range rooms {
			t += r
		}
		return t
	}
	low, high := 0.0, work
	for takes(high) < work {
		low, high = high, high*2
	}
	for range 60 {
		mid := (low + high) / 2
		if takes(mid) < work {
			low = mid
		} else {
			high = mid
		}
	}
	return low
}

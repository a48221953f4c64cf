package balance

import (
	"cmp"
	"slices"
)

// fewPlacements is how many placements of interrupts are all tried.
const fewPlacements = 64

// placements are the interrupts to solve the tables for: placement, device, queue → CPU.ID,
// the present one first; every is set when there are no others.
func (s *solver) placements() (list [][][]int, every bool) {
	start := make([][]int, len(s.Devices))
	for i, d := range s.Devices {
		start[i] = d.IRQ
	}
	list = append(list, start)
	type slot struct{ device, queue int }
	var slots []slot
	total := 1
	for i, d := range s.Devices {
		if d.May&IRQ == 0 {
			continue
		}
		for q, id := range d.IRQ {
			if id != Unused {
				slots = append(slots, slot{i, q})
				if total <= fewPlacements {
					total *= len(s.options(i, q))
				}
			}
		}
	}
	if len(slots) == 0 {
		return list, true
	}
	if total > fewPlacements {
		only := s.placeQueues()
		return append(list, only, s.spread()), false
	}
	irq := clonePlacement(start)
	var each func(k int)
	each = func(k int) {
		if k == len(slots) {
			if !slices.EqualFunc(irq, start, slices.Equal[[]int]) {
				list = append(list, clonePlacement(irq))
			}
			return
		}
		at := slots[k]
		for _, id := range s.options(at.device, at.queue) {
			irq[at.device][at.queue] = id
			each(k + 1)
		}
	}
	each(0)
	return list, true
}

func clonePlacement(irq [][]int) [][]int {
	out := make([][]int, len(irq))
	for i := range irq {
		out[i] = slices.Clone(irq[i])
	}
	return out
}

// allowed are the CPU.IDs that vectors of a device may go to.
func (s *solver) allowed(device int) []int {
	d := &s.Devices[device]
	if d.CPUs != nil {
		return d.CPUs
	}
	ids := make([]int, len(s.CPUs))
	for i, c := range s.CPUs {
		ids[i] = c.ID
	}
	return ids
}

// options are where a queue may be: where it is and where it may go.
func (s *solver) options(device, queue int) []int {
	ids := s.allowed(device)
	if now := s.Devices[device].IRQ[queue]; !slices.Contains(ids, now) {
		ids = append(slices.Clone(ids), now)
	}
	return ids
}

// placeQueues is the best placement found with the tables as they are.
func (s *solver) placeQueues() [][]int {
	rest := slices.Clone(s.start)
	n := 0
	for i, d := range s.Devices {
		if d.May&IRQ != 0 {
			rest[i] = Assignment{}
			n += len(d.IRQ)
		}
	}
	load, busy := s.loads(rest)
	p := s.newPacking(n)
	bins := s.bins(p, load, busy, func(use func(c int)) {
		for i, d := range s.Devices {
			if d.May&IRQ == 0 {
				continue
			}
			for _, id := range s.allowed(i) {
				use(s.cpu(id))
			}
			for _, id := range d.IRQ {
				if id != Unused {
					use(s.cpu(id))
				}
			}
		}
	})
	p.uniform = true
	p.to = make([][]float64, len(s.Devices))
	var refs []bucketRef // of a queue
	for i := range s.Devices {
		d := &s.Devices[i]
		if d.May&IRQ == 0 {
			continue
		}
		to := make([]float64, len(p.back))
		for c := range to {
			to[c] = inf
		}
		for _, id := range s.allowed(i) {
			to[bins[s.cpu(id)]] = 1
		}
		p.uniform = p.uniform && !slices.Contains(to, inf)
		p.to[i] = to
		queues := make([]float64, len(d.IRQ))
		for b, q := range d.Table {
			queues[q] += d.Buckets[b] * d.cost(q)
		}
		for q, w := range queues {
			if id := d.IRQ[q]; id != Unused && w > 0 {
				p.add(len(refs), w, w, bins[s.cpu(id)], i)
				refs = append(refs, bucketRef{i, q})
			}
		}
	}
	p.trim(len(refs))
	at, _ := p.solve()
	out := make([][]int, len(s.Devices))
	for i, d := range s.Devices {
		out[i] = slices.Clone(d.IRQ)
	}
	for i, c := range at {
		if c != p.home[i] {
			r := refs[p.id[i]]
			out[r.device][r.bucket] = s.CPUs[p.cpu[c]].ID
		}
	}
	return out
}

// spread gives each queue a core of its own, those with the least background, as far as there
// are enough; a queue that sits on one of them alone stays.
func (s *solver) spread() [][]int {
	out := make([][]int, len(s.Devices))
	rest := slices.Clone(s.start)
	queues := 0
	for i, d := range s.Devices {
		out[i] = slices.Clone(d.IRQ)
		if d.May&IRQ != 0 {
			rest[i] = Assignment{}
			for _, id := range d.IRQ {
				if id != Unused {
					queues++
				}
			}
		}
	}
	load, _ := s.loads(rest)
	// heat of what stays, by CPU; a sibling's work counts.
	heat := slices.Clone(load)
	for _, g := range s.cores {
		var sum float64
		for _, c := range g {
			sum += load[c]
		}
		for _, c := range g {
			heat[c] = max(heat[c], sum/s.SMT)
		}
	}
	taken := make([]int, len(s.CPUs)) // queues on the CPU's core
	take := func(c int) {
		taken[c]++
		if g := s.core[c]; g >= 0 {
			for _, m := range s.cores[g] {
				if m != c {
					taken[m]++
				}
			}
		}
	}
	for _, d := range s.Devices {
		if d.May&IRQ == 0 {
			for _, id := range d.IRQ {
				if id != Unused {
					take(s.cpu(id))
				}
			}
		}
	}
	coolest := func(a, b int) int {
		return cmp.Or(cmp.Compare(taken[a], taken[b]), cmp.Compare(heat[a], heat[b]), cmp.Compare(a, b))
	}
	// The level up to which a CPU is among the coolest that are needed.
	sorted := slices.Sorted(slices.Values(heat))
	level := sorted[min(queues, len(sorted))-1]
	type slot struct{ device, queue int }
	var seek []slot
	for i, d := range s.Devices {
		if d.May&IRQ == 0 {
			continue
		}
		allowed := s.allowed(i)
		for q, id := range d.IRQ {
			if id == Unused {
				continue
			}
			if c := s.cpu(id); taken[c] == 0 && heat[c] <= level && slices.Contains(allowed, id) {
				take(c)
				continue
			}
			seek = append(seek, slot{i, q})
		}
	}
	for _, at := range seek {
		allowed := s.allowed(at.device)
		if len(allowed) == 0 {
			continue
		}
		best := s.cpu(allowed[0])
		for _, id := range allowed[1:] {
			if c := s.cpu(id); coolest(c, best) < 0 {
				best = c
			}
		}
		if now := s.cpu(out[at.device][at.queue]); taken[now] == taken[best] && heat[now] <= heat[best] {
			best = now
		}
		take(best)
		out[at.device][at.queue] = s.CPUs[best].ID
	}
	return out
}

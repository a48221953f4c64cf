package balance

import (
	"cmp"
	"math"
	"slices"
)

// bucketRef is a bucket of a device.
type bucketRef struct{ device, bucket int }

// steers reports whether single buckets of the device can be moved.
func (d *Device) steers() bool { return d.May&Table != 0 && !d.WeightsOnly }

// tables is a packing of buckets.
type tables struct {
	*packing
	refs []bucketRef
	via  [][]int // device, bin → queue, −1 none
}

// tablePacking makes a packing of the busy buckets for the placement of as; nil without any.
func (s *solver) tablePacking(as []Assignment) *tables {
	rest := slices.Clone(as)
	n := 0
	for i := range s.Devices {
		if d := &s.Devices[i]; d.steers() {
			rest[i] = Assignment{}
			n += len(d.Buckets)
		}
	}
	if n == 0 {
		return nil
	}
	load, busy := s.loads(rest)
	t := &tables{packing: s.newPacking(n), refs: make([]bucketRef, 0, n), via: make([][]int, len(s.Devices))}
	p := t.packing
	bins := s.bins(p, load, busy, func(use func(c int)) {
		for i := range s.Devices {
			if s.Devices[i].steers() {
				for _, id := range as[i].IRQ {
					if id != Unused {
						use(s.cpu(id))
					}
				}
			}
		}
	})
	p.uniform = true
	p.to = make([][]float64, len(s.Devices))
	for i := range s.Devices {
		d := &s.Devices[i]
		if !d.steers() {
			continue
		}
		to, via := make([]float64, len(p.back)), make([]int, len(p.back))
		for c := range to {
			to[c], via[c] = math.Inf(1), -1
		}
		first := -1
		at := s.at(as[i].IRQ)
		for q, cpu := range at {
			if cpu < 0 {
				continue
			}
			if first < 0 {
				first = q
			}
			p.uniform = p.uniform && d.cost(q) == d.cost(first)
			c := bins[cpu]
			p.rough = p.rough || via[c] >= 0 && d.cost(q) != to[c] // an item stays in its queue or goes to the cheapest
			if d.cost(q) < to[c] {
				to[c], via[c] = d.cost(q), q
			}
		}
		for _, q := range via {
			p.uniform = p.uniform && q >= 0
		}
		p.to[i], t.via[i] = to, via
		for b, q := range d.Table { // homes are those of the start
			if cpu := at[q]; cpu >= 0 && d.Buckets[b] > 0 {
				p.add(len(t.refs), d.Buckets[b]*d.cost(q), d.Buckets[b], bins[cpu], i)
				t.refs = append(t.refs, bucketRef{i, b})
			}
		}
	}
	for i, a := range as {
		p.other += len(s.irqMoves(i, a.IRQ))
		if d := &s.Devices[i]; !d.steers() {
			for b, q := range a.Table {
				if q != d.Table[b] {
					p.other++
				}
			}
		}
	}
	p.trim(len(t.refs))
	return t
}

// irqMoves are the queues of a device that are elsewhere than at the start.
func (s *solver) irqMoves(device int, irq []int) (queues []int) {
	for q, c := range irq {
		if c != s.Devices[device].IRQ[q] {
			queues = append(queues, q)
		}
	}
	return queues
}

// tablesOf is as with the tables that follow from bins by item.
func (s *solver) tablesOf(t *tables, as []Assignment, bin []int32) []Assignment {
	as = slices.Clone(as)
	for i := range as {
		if s.Devices[i].steers() {
			as[i].Table = slices.Clone(s.Devices[i].Table)
		}
	}
	for i, c := range bin {
		if c != t.home[i] {
			r := t.refs[t.id[i]]
			as[r.device].Table[r.bucket] = t.via[r.device][c]
		}
	}
	return as
}

// newPacking makes a packing of up to n items; those that add puts in are counted by trim.
func (s *solver) newPacking(n int) *packing {
	floats, ints := s.float64s(2*n), s.int32s(3*n)
	return &packing{
		budget: &s.budget, memory: s.memory, smt: s.SMT, bound: s.bound, floor: s.floor,
		w: floats[:n], base: floats[n:], home: ints[:n], kind: ints[n : 2*n], id: ints[2*n:],
	}
}

// add puts item i in; indices are given from 0 up.
func (p *packing) add(i int, w, base float64, home, kind int) {
	p.w[i], p.base[i], p.home[i], p.kind[i], p.id[i] = w, base, int32(home), int32(kind), int32(i)
}

// trim leaves the first n items and sorts them.
func (p *packing) trim(n int) {
	p.w, p.base, p.home, p.kind, p.id = p.w[:n], p.base[:n], p.home[:n], p.kind[:n], p.id[:n]
	p.sort()
}

// bins makes bins of the CPUs that each calls use with; load and busy are what stays on CPUs.
// It returns CPU → bin.
func (s *solver) bins(p *packing, load []float64, busy []bool, each func(use func(c int))) []int {
	bins := make([]int, len(s.CPUs))
	used := make([]bool, len(s.CPUs))
	each(func(c int) { used[c] = true })
	core := make([]int32, len(s.cores))
	for g := range core {
		core[g] = -1
	}
	for c := range s.CPUs {
		bins[c] = -1
		if !used[c] {
			continue
		}
		bin := len(p.cpu)
		bins[c] = bin
		if bin == 0 {
			n := len(s.CPUs)
			p.cpu, p.back, p.held, p.core = make([]int, 0, n), make([]float64, 0, n), make([]bool, 0, n), make([]int32, 0, n)
		}
		p.cpu = append(p.cpu, c)
		p.back = append(p.back, load[c])
		p.held = append(p.held, busy[c])
		g := int32(-1)
		if k := s.core[c]; k >= 0 {
			if core[k] < 0 {
				core[k] = int32(len(p.mates))
				var sum float64
				for _, m := range s.cores[k] {
					sum += load[m]
				}
				p.mates, p.sum = append(p.mates, nil), append(p.sum, sum)
			}
			g = core[k]
			p.mates[g] = append(p.mates[g], int32(bin))
		}
		p.core = append(p.core, g)
	}
	// What stays busy elsewhere is no cooler for any packing.
	for c, l := range load {
		if busy[c] && !used[c] {
			p.floor = max(p.floor, l)
			p.rough = p.rough || s.core[c] >= 0 && core[s.core[c]] >= 0
		}
	}
	return bins
}

// elephants lists buckets no smaller than the fair share, biggest first.
func (s *solver) elephants(as []Assignment) []Elephant {
	var out []Elephant
	n := make([]int, len(s.CPUs))
	for i := range s.Devices {
		d := &s.Devices[i]
		for b, q := range as[i].Table {
			id := as[i].IRQ[q]
			if id == Unused || d.Buckets[b] == 0 {
				continue
			}
			n[s.cpu(id)]++
			if w := d.Buckets[b] * d.cost(q); d.May != 0 && w > s.fair*(1+eps) {
				out = append(out, Elephant{Device: i, Bucket: b, Load: w, CPU: id})
			}
		}
	}
	for k := range out {
		out[k].Alone = n[s.cpu(out[k].CPU)] == 1
	}
	slices.SortFunc(out, func(a, b Elephant) int {
		return cmp.Or(cmp.Compare(b.Load, a.Load), cmp.Compare(a.Device, b.Device), cmp.Compare(a.Bucket, b.Bucket))
	})
	return out
}

// isolate moves busy buckets off the CPUs of elephants while the hottest CPU stays as it is.
func (s *solver) isolate() {
	elephants := s.elephants(s.best)
	as := slices.Clone(s.best)
	big := map[bucketRef]bool{}
	den := map[int]bool{} // CPU.ID
	for _, e := range elephants {
		big[bucketRef{e.Device, e.Bucket}] = true
		den[e.CPU] = true
	}
	limit := max(s.score.hot, s.floor) * (1 + eps/8)
	load, busy := s.loads(as)
	for i := range s.Devices {
		d := &s.Devices[i]
		if !d.steers() || len(den) == 0 {
			continue
		}
		as[i].Table = slices.Clone(as[i].Table)
		table, irq := as[i].Table, as[i].IRQ
		for b, q := range table {
			if d.Buckets[b] == 0 || !den[irq[q]] || big[bucketRef{i, b}] {
				continue
			}
			best, least := -1, math.Inf(1)
			from := s.cpu(irq[q])
			for to, id := range irq {
				if id == Unused || den[id] {
					continue
				}
				c := s.cpu(id)
				w := d.Buckets[b] * d.cost(to)
				load[c] += w
				load[from] -= d.Buckets[b] * d.cost(q)
				was := busy[c]
				busy[c] = true
				if _, h := s.hottest(load, busy); h <= limit && load[c] < least {
					best, least = to, load[c]
				}
				busy[c] = was
				load[c] -= w
				load[from] += d.Buckets[b] * d.cost(q)
			}
			if best >= 0 {
				c := s.cpu(irq[best])
				load[from] -= d.Buckets[b] * d.cost(q)
				load[c] += d.Buckets[b] * d.cost(best)
				busy[c] = true
				table[b] = best
			}
		}
	}
	if n := s.count(as); n != s.score.moves {
		if h := s.heat(as); h <= max(s.score.hot, s.floor)*(1+eps) {
			s.best, s.score, s.proven = as, score{hot: h, moves: n}, false
		}
	}
}

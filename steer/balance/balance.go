package balance

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
)

// Unused is the CPU of a queue that is not ours to use (AF_XDP, an RSS context, interrupt
// unknown): nothing moves to or from it and its load is not counted.
const Unused = -1

// DefaultSMT is how much the two threads of a core do together compared with one alone.
// Hyper-threading gains about a fifth to a third for independent work; 1 would be no gain, 2 two cores.
const DefaultSMT = 1.25

// Problem is an instance.
type Problem struct {
	CPUs    []CPU
	Devices []Device
	// SMT is the capacity of all threads of a core together in parts of one thread alone;
	// 0 means DefaultSMT. Only CPUs that share a Core are affected.
	SMT float64
	// Slack is how far above the lower bound, in parts of it, a hottest CPU is good enough: up to there
	// fewer moves are preferred. 0: the hottest CPU comes first, however many moves.
	Slack float64
	// Isolate moves busy buckets away from the queue of every elephant also where the hottest
	// CPU does not ask for it (the biggest elephant is alone anyhow when it is the bound).
	Isolate bool
	// Steps bounds the search: about that many item × CPU looks, some nanoseconds each. 0 is a
	// budget by size, within which small instances are solved to the end. The result is
	// a function of Problem alone unless the context ends first.
	Steps int
}

// CPU is one that has, or may get, receive work.
type CPU struct {
	ID int
	// Core is the physical core; CPUs of the same core ≥ 0 are SMT siblings. Negative: not told,
	// a core of its own.
	Core int
	// Background is work that is not the devices', in parts of the CPU's time.
	Background float64
}

// Knob is what may be moved.
type Knob int

const (
	Table Knob = 1 << iota // buckets among queues
	IRQ                    // queues among CPUs
)

// Device is one NIC.
type Device struct {
	Name string
	// Buckets is the load of each bucket: packets/s with Cost, else parts of a CPU's time.
	Buckets []float64
	// Cost is the CPU time of a packet by queue in seconds; nil where Buckets are CPU time.
	Cost []float64
	// Table is bucket → queue, IRQ is queue → CPU.ID or Unused, as they are now.
	Table []int
	IRQ   []int
	// May says what of this device may move. With none it is background.
	May Knob
	// CPUs are the IDs that vectors may go to, nil all.
	CPUs []int
	// WeightsOnly: the hardware takes no table but weights by queue, from which
	// consecutive runs of buckets follow (fill_indir_table of ethtool.c).
	WeightsOnly bool
}

// Assignment is what a device's settings become.
type Assignment struct {
	Table []int
	IRQ   []int
	// Weights by queue, only of a WeightsOnly device whose table moves; they add up to the
	// table's size, so that no rounding is left to the writer.
	Weights []int
}

// Move is one bucket to another queue, or (Bucket −1) one queue to another CPU.
type Move struct {
	Device   int // index into Problem.Devices
	Bucket   int
	Queue    int // only of a queue's move
	From, To int // queues, or CPU IDs
}

// Elephant is a bucket above the fair share of a CPU: no table makes its CPU cooler than itself.
type Elephant struct {
	Device, Bucket int
	Load           float64 // parts of a CPU's time, where it is put
	CPU            int     // CPU.ID, where it is put
	Alone          bool    // no other busy bucket shares its CPU
}

// Result is the assignment found. Heat is the load of a CPU in parts of its time, background
// included, or that of its core divided by SMT where that is more; CPUs without movable load have no part in it.
type Result struct {
	Assignments []Assignment // by device
	Moves       []Move       // by device, queues first
	Before      float64      // hottest CPU at the start
	Hottest     float64      // and predicted
	CPU         int          // ID of the predicted hottest CPU, −1 without any load
	Bound       float64      // no assignment is cooler than this
	Gap         float64      // Hottest/Bound − 1, 0 where nothing is busy
	Elephants   []Elephant   // biggest first
	Optimal     bool         // proven: none is cooler (below Slack all are equal), none as cool has fewer moves
	Steps       int          // spent
}

// eps is the relative difference of loads that counts as none: sums of floats differ by order.
const eps = 1e-9

// score orders assignments.
type score struct {
	hot   float64
	moves int
}

// better reports a strictly better than b; below floor all hot are equal.
func (a score) better(b score, floor float64) bool {
	x, y := max(a.hot, floor), max(b.hot, floor)
	if x < y*(1-eps) || y < x*(1-eps) {
		return x < y
	}
	return a.moves < b.moves
}

// Solve finds an assignment that is no worse than the start. When ctx ends it returns
// the best found until then. An error names the first thing wrong in p.
func Solve(ctx context.Context, p Problem) (*Result, error) {
	s, err := newSolver(ctx, p)
	if err != nil {
		return nil, err
	}
	defer memories.Put(s.memory)
	s.run()
	return s.result(), nil
}

// solver holds the instance with CPUs as indices.
type solver struct {
	Problem
	budget
	*memory
	index  []int32     // CPU.ID → index + 1, 0 none, of IDs that are not far above the number of CPUs
	far    map[int]int // of the others
	core   []int       // CPU → dense core, −1 alone
	cores  [][]int     // core → CPUs
	start  []Assignment
	before score
	best   []Assignment
	score  score
	bound  float64
	floor  float64
	proven bool
	fair   float64 // level of all CPUs if buckets could be cut

	scratch []int // of at
	load    []float64
	busy    []bool // of loads
}

func newSolver(ctx context.Context, p Problem) (*solver, error) {
	s := &solver{Problem: p, index: make([]int32, 4*len(p.CPUs)+64)}
	if p.SMT == 0 {
		s.SMT = DefaultSMT
	}
	if !(s.SMT >= 1 && s.SMT <= 64) || !(p.Slack >= 0) || p.Steps < 0 {
		return nil, fmt.Errorf("balance: SMT %v, slack %v or steps %d out of range", p.SMT, p.Slack, p.Steps)
	}
	for i, c := range p.CPUs {
		if c.ID < 0 || s.cpu(c.ID) >= 0 || !finite(c.Background) {
			return nil, fmt.Errorf("balance CPU %d: given twice, negative or background %v not a load", c.ID, c.Background)
		}
		if c.ID < len(s.index) {
			s.index[c.ID] = int32(i) + 1
		} else {
			if s.far == nil {
				s.far = map[int]int{}
			}
			s.far[c.ID] = i
		}
	}
	items := 0
	for i := range p.Devices {
		if err := s.check(&s.Devices[i]); err != nil {
			return nil, fmt.Errorf("balance %s: %w", cmp.Or(p.Devices[i].Name, fmt.Sprint("device ", i)), err)
		}
		items += len(p.Devices[i].Buckets)
	}
	s.memory = memories.Get().(*memory)
	s.rewind()
	s.group()
	s.budget = budget{ctx: ctx, left: p.Steps, asked: p.Steps > 0}
	if p.Steps == 0 {
		s.left = max(items*len(p.CPUs)/12, 1500)
		if items*len(p.CPUs) <= 512 {
			s.left = 20_000 // nothing is saved by less
		}
	}
	s.start = make([]Assignment, len(p.Devices))
	for i, d := range p.Devices {
		s.start[i] = Assignment{Table: d.Table, IRQ: d.IRQ}
	}
	s.best = s.start
	s.before = score{hot: s.heat(s.start)}
	s.score = s.before
	s.bound = min(s.lowerBound(), s.before.hot)
	s.floor = s.bound * (1 + p.Slack)
	return s, nil
}

// cpu is the index of a CPU by its ID, −1 where there is none.
func (s *solver) cpu(id int) int {
	if id >= 0 && id < len(s.index) {
		return int(s.index[id]) - 1
	}
	if i, ok := s.far[id]; ok {
		return i
	}
	return -1
}

func finite(x float64) bool { return x >= 0 && !math.IsInf(x, 1) }

func (s *solver) check(d *Device) error {
	if len(d.Table) != len(d.Buckets) {
		return fmt.Errorf("table of %d buckets, loads of %d", len(d.Table), len(d.Buckets))
	}
	if d.Cost != nil && len(d.Cost) != len(d.IRQ) {
		return fmt.Errorf("costs of %d queues, %d queues", len(d.Cost), len(d.IRQ))
	}
	for q, c := range d.IRQ {
		if c != Unused && s.cpu(c) < 0 {
			return fmt.Errorf("queue %d on CPU %d: no such CPU", q, c)
		}
	}
	for q, c := range d.Cost {
		if !(c > 0) || !finite(c) {
			return fmt.Errorf("cost %v of queue %d: not above 0", c, q)
		}
	}
	for b, q := range d.Table {
		if q < 0 || q >= len(d.IRQ) {
			return fmt.Errorf("bucket %d in queue %d: of %d", b, q, len(d.IRQ))
		}
		if !finite(d.Buckets[b]) {
			return fmt.Errorf("bucket %d: %v is not a load", b, d.Buckets[b])
		}
	}
	for _, c := range d.CPUs {
		if s.cpu(c) < 0 {
			return fmt.Errorf("allowed CPU %d: no such CPU", c)
		}
	}
	return nil
}

// group finds SMT siblings.
func (s *solver) group() {
	n := len(s.CPUs)
	ints := make([]int, 2*n)
	s.core = ints[:n]
	order := ints[n:]
	for i := range order {
		order[i], s.core[i] = i, -1
	}
	slices.SortFunc(order, func(a, b int) int { return cmp.Or(cmp.Compare(s.CPUs[a].Core, s.CPUs[b].Core), a-b) })
	for i := 0; i < n; {
		j := i + 1
		for j < n && s.CPUs[order[j]].Core == s.CPUs[order[i]].Core {
			j++
		}
		if j-i > 1 && s.CPUs[order[i]].Core >= 0 {
			for _, c := range order[i:j] {
				s.core[c] = len(s.cores)
			}
			s.cores = append(s.cores, order[i:j])
		}
		i = j
	}
}

// at is the CPU of each queue, −1 for the unused. The next call overwrites it.
func (s *solver) at(irq []int) []int {
	s.scratch = s.scratch[:0]
	for _, id := range irq {
		s.scratch = append(s.scratch, s.cpu(id)) // of Unused there is none
	}
	return s.scratch
}

// cost of a packet in a queue.
func (d *Device) cost(q int) float64 {
	if d.Cost == nil {
		return 1
	}
	return d.Cost[q]
}

// loads is the load of each CPU with an assignment, and whether movable load is in it. The next call overwrites both.
func (s *solver) loads(as []Assignment) (load []float64, busy []bool) {
	if s.load == nil {
		s.load, s.busy = make([]float64, len(s.CPUs)), make([]bool, len(s.CPUs))
	}
	load, busy = s.load, s.busy
	clear(busy)
	for i, c := range s.CPUs {
		load[i] = c.Background
	}
	for i := range s.Devices {
		d, a := &s.Devices[i], &as[i]
		at := s.at(a.IRQ)
		for b, q := range a.Table {
			if c := at[q]; c >= 0 && d.Buckets[b] > 0 {
				load[c] += d.Buckets[b] * d.cost(q)
				busy[c] = busy[c] || d.May != 0
			}
		}
	}
	return load, busy
}

// hottest is the hottest busy CPU and its heat, −1 and 0 when none is busy.
func (s *solver) hottest(load []float64, busy []bool) (cpu int, heat float64) {
	cpu = -1
	sum := make([]float64, len(s.cores))
	for i, g := range s.cores {
		for _, c := range g {
			sum[i] += load[c]
		}
	}
	for c, l := range load {
		if !busy[c] {
			continue
		}
		if g := s.core[c]; g >= 0 {
			l = max(l, sum[g]/s.SMT)
		}
		if cpu < 0 || l > heat {
			cpu, heat = c, l
		}
	}
	return cpu, heat
}

func (s *solver) heat(as []Assignment) float64 {
	load, busy := s.loads(as)
	_, h := s.hottest(load, busy)
	return h
}

// moves lists what differs from the start.
func (s *solver) moves(as []Assignment) []Move {
	n := s.count(as)
	if n == 0 {
		return nil
	}
	out := make([]Move, 0, n)
	for i, a := range as {
		d := &s.Devices[i]
		for q, c := range a.IRQ {
			if c != d.IRQ[q] {
				out = append(out, Move{Device: i, Bucket: -1, Queue: q, From: d.IRQ[q], To: c})
			}
		}
		for b, q := range a.Table {
			if q != d.Table[b] {
				out = append(out, Move{Device: i, Bucket: b, From: d.Table[b], To: q})
			}
		}
	}
	return out
}

func (s *solver) count(as []Assignment) (n int) {
	for i, a := range as {
		d := &s.Devices[i]
		for q, c := range a.IRQ {
			if c != d.IRQ[q] {
				n++
			}
		}
		for b, q := range a.Table {
			if q != d.Table[b] {
				n++
			}
		}
	}
	return n
}

// offer keeps an assignment that is better than the best so far.
func (s *solver) offer(as []Assignment) {
	if sc := (score{hot: s.heat(as), moves: s.count(as)}); sc.better(s.score, s.floor) {
		s.best, s.score = as, sc
	}
}

// done reports that nothing better is needed or there is no budget left to find it.
func (s *solver) done() bool {
	return s.score.moves == 0 && s.score.hot <= s.floor*(1+eps) || s.spent()
}

// run tries the placements of interrupts, the present one first, and solves the tables for each.
func (s *solver) run() {
	if s.before.hot <= s.floor*(1+eps) {
		s.proven = true
	} else {
		placements, all := s.placements()
		s.proven = true
		for _, irq := range placements {
			if s.done() {
				s.proven = s.proven && s.score.moves == 0
				break
			}
			s.proven = s.tables(irq) && s.proven
		}
		s.proven = s.proven && all
	}
	if s.Isolate {
		s.isolate()
	}
}

// with is the start with other interrupts.
func (s *solver) with(irq [][]int) []Assignment {
	as := slices.Clone(s.start)
	for i := range as {
		as[i].IRQ = irq[i]
	}
	return as
}

// tables solves the tables for a placement and offers the outcome; proven: it is the best with it.
func (s *solver) tables(irq [][]int) (proven bool) {
	as := s.with(irq)
	s.offer(as)
	weights := false
	proven = true
	solve := func() {
		if p := s.tablePacking(as); p != nil {
			at, ok := p.solve()
			as = s.tablesOf(p, as, at)
			s.offer(as)
			proven = proven && ok && !p.rough
		}
	}
	solve()
	for i := range s.Devices {
		if d := &s.Devices[i]; d.WeightsOnly && d.May&Table != 0 {
			weights, proven = true, false
			as = slices.Clone(as)
			as[i] = s.weights(i, as)
			s.offer(as)
		}
	}
	if weights && len(s.Devices) > 1 { // the others once more, around the weights
		solve()
	}
	return proven
}

func (s *solver) result() *Result {
	load, busy := s.loads(s.best)
	r := &Result{
		Assignments: make([]Assignment, len(s.best)),
		Moves:       s.moves(s.best),
		Before:      s.before.hot,
		CPU:         -1,
		Bound:       s.bound,
		Optimal:     s.proven,
		Steps:       s.used,
	}
	for i, a := range s.best {
		r.Assignments[i] = Assignment{Table: slices.Clone(a.Table), IRQ: slices.Clone(a.IRQ), Weights: slices.Clone(a.Weights)}
	}
	c, h := s.hottest(load, busy)
	r.Hottest = h
	if c >= 0 {
		r.CPU = s.CPUs[c].ID
		if s.bound > 0 {
			r.Gap = max(0, h/s.bound-1)
		}
	}
	r.Elephants = s.elephants(s.best)
	return r
}

package control

import (
	"encoding/json"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/rxsteer/rxsteer/collector"
	"github.com/rxsteer/rxsteer/internal/host/knob"
	"github.com/rxsteer/rxsteer/steer/plan"
)

// sim is a host with one device under a virtual clock: what it receives follows from the flows and the table, and
// counts scatter as packets that come in bursts do.
type sim struct {
	t       *testing.T
	m       *Machine
	now     time.Duration
	rng     *rand.Rand
	name    string
	ifindex int
	table   []int
	queues  []int                                   // CPU by queue
	cores   []int                                   // by CPU
	flows   func(now time.Duration) map[int]float64 // packets/s by bucket
	cost    float64                                 // seconds per packet
	after   func(s *sim)                            // after a table was written
	ignore  bool                                    // the device takes a table and keeps spreading as before
	real    []int                                   // the table traffic follows
	dropped float64                                 // parts of the packets
	every   time.Duration                           // between ticks
	open    bool

	events    []Event
	decisions []Decision
	todo      []due
	actions   []Action
	tx        int
	old       map[string][]int
}

type due struct {
	at time.Duration
	e  func() Event
}

func newSim(t *testing.T, c *Config, queues, buckets int) *sim {
	s := &sim{t: t, m: New(c), rng: rand.New(rand.NewPCG(1, 2)), name: "eth0", ifindex: 2, cost: 5e-6, open: true, every: TickEvery, old: map[string][]int{}}
	for q := range queues {
		s.queues = append(s.queues, q)
		s.cores = append(s.cores, q)
	}
	for b := range buckets {
		s.table = append(s.table, b%queues)
	}
	s.real = slices.Clone(s.table)
	return s
}

func auto() *Config {
	c := Default()
	c.Mode, c.Device.Mode = Auto, Auto
	for _, name := range []string{"eth0", "lan0"} {
		d := c.Device
		d.Name = name
		c.Devices = append(c.Devices, d)
	}
	return c
}

func (s *sim) step(e Event) {
	e.At, e.Open = s.now, s.open
	s.events = append(s.events, clone(s.t, e))
	acts, out := s.m.Step(e)
	s.decisions = append(s.decisions, out...)
	for _, a := range acts {
		s.do(a)
	}
}

func clone(t *testing.T, e Event) Event {
	b, err := json.Marshal(e)
	if err != nil {
		t.Fatal(err)
	}
	var out Event
	if err := json.Unmarshal(b, &out); err != nil {
		t.Fatal(err)
	}
	return out
}

func (s *sim) do(a Action) {
	s.actions = append(s.actions, a)
	switch a.Verb {
	case Watch:
		s.todo = append(s.todo, due{s.now + a.For + 10*time.Millisecond, func() Event {
			w := &Window{Device: s.name, IfIndex: a.IfIndex, Table: slices.Clone(s.table), Cores: s.cores}
			for b := range s.table {
				w.Buckets = append(w.Buckets, s.scatter(s.flows(s.now)[b]*a.For.Seconds()))
			}
			return Event{Window: w}
		}})
	case Write:
		s.todo = append(s.todo, due{s.now + 30*time.Millisecond, func() Event {
			s.tx++
			tx := string(rune('0' + s.tx%10))
			r := &Done{IfIndex: a.IfIndex, TX: tx, Took: 30 * time.Millisecond}
			for _, c := range a.Changes {
				if c.Knob == knob.RSSTable {
					if !c.From.Equal(knob.List(s.table)) {
						r.Moved, r.Error = append(r.Moved, c.Ref()), "stale"
						return Event{Done: r}
					}
					s.old[tx] = slices.Clone(s.table)
					if err := c.To.Decode(&s.table); err != nil {
						s.t.Fatal(err)
					}
					if !s.ignore {
						s.real = slices.Clone(s.table)
					}
				}
				r.Wrote = append(r.Wrote, knob.Setting{Ref: c.Ref(), Value: c.To})
			}
			if s.after != nil {
				s.after(s)
			}
			r.Written, r.Waits = true, a.Fast
			return Event{Done: r}
		}})
	case Confirm, Undo:
		s.todo = append(s.todo, due{s.now + 20*time.Millisecond, func() Event {
			r := &Done{IfIndex: a.IfIndex, TX: a.TX, Written: a.Verb == Confirm, Undone: a.Verb == Undo, Why: string(a.Verb)}
			if r.Undone {
				s.table = s.old[a.TX]
				s.real = slices.Clone(s.table)
			}
			return Event{Done: r}
		}})
	}
}

func (s *sim) scatter(n float64) uint64 {
	const together = 8
	return uint64(max(0, math.Round(n+s.rng.NormFloat64()*math.Sqrt(n*together))))
}

func (s *sim) tick() Event {
	t := &collector.Tick{Interval: s.every}
	d := collector.DeviceTick{Device: s.name, IfIndex: s.ifindex, Packets: make([]uint64, len(s.queues)), CPUs: s.queues}
	load := make([]float64, len(s.cores))
	total := 0.0
	flows := s.flows(s.now)
	for b, q := range s.real {
		n := s.scatter(flows[b] * s.every.Seconds())
		d.Packets[q] += n
		total += float64(n)
		load[s.queues[q]] += float64(n) * s.cost / s.every.Seconds()
	}
	d.Dropped = uint64(total * s.dropped)
	for c, l := range load {
		// /proc/stat counts in ticks of 10 ms.
		l = min(1, math.Round(10*min(1, l)+0.3*s.rng.NormFloat64())/10)
		t.CPUs = append(t.CPUs, collector.CPUTick{CPU: c, Busy: max(0, l), RX: max(0, l)})
	}
	t.Devices = []collector.DeviceTick{d}
	return Event{Tick: t}
}

// run lets virtual time pass.
func (s *sim) run(d time.Duration) {
	end := s.now + d
	next := s.now + s.every
	for s.now < end {
		i := -1
		for j := range s.todo {
			if i < 0 || s.todo[j].at < s.todo[i].at {
				i = j
			}
		}
		if i >= 0 && s.todo[i].at <= next {
			x := s.todo[i]
			s.todo = slices.Delete(s.todo, i, i+1)
			s.now = x.at
			s.step(x.e())
			continue
		}
		s.now = next
		next += s.every
		s.step(s.tick())
	}
}

func (s *sim) count(what string) (n int) {
	for _, d := range s.decisions {
		if d.What == what {
			n++
		}
	}
	return n
}

func (s *sim) writes() (at []time.Duration) {
	for _, d := range s.decisions {
		if d.What == Wrote {
			at = append(at, d.At)
		}
	}
	return at
}

func (s *sim) say() {
	for _, d := range s.decisions {
		s.t.Logf("%8.2fs %s %-16s %s %v", d.At.Seconds(), d.Device, d.What, d.Why, d.Numbers)
	}
}

// even is so many packets/s in each bucket.
func even(buckets int, pps float64) func(time.Duration) map[int]float64 {
	return func(time.Duration) map[int]float64 {
		out := map[int]float64{}
		for b := range buckets {
			out[b] = pps / float64(buckets)
		}
		return out
	}
}

// skew is busy buckets that all belong to queue 0 of a table of four queues.
func skew(time.Duration) map[int]float64 {
	out := map[int]float64{}
	for i := range 8 {
		out[4*i] = 20000
	}
	return out
}

func look1(s *sim, changes ...plan.Change) Event {
	l := &Look{Devices: []plan.Device{{Name: s.name, IfIndex: s.ifindex, RXQueues: len(s.queues)}}, Changes: changes}
	l.Settings = []knob.Setting{{Ref: knob.Ref{Knob: knob.RSSTable, Target: knob.Target(s.name)}, Value: knob.List(s.table)}}
	return Event{Look: l}
}

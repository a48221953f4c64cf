package control

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rxsteer/rxsteer/collector"
	"github.com/rxsteer/rxsteer/internal/host/knob"
)

// Hands are how a Loop reaches the host. Tick and Look are called by one goroutine each; Watch and Do one at a time for a
// device.
type Hands interface {
	// Tick reads what grew since the last call, nil for the first, and the devices it could not read.
	Tick() (*collector.Tick, map[string]error)
	Watch(ctx context.Context, a Action) *Window
	// Look reads what is set and plans.
	Look(ctx context.Context) (*Look, error)
	// Do carries out Write, Confirm and Undo. It is not interrupted half-way by ctx.
	Do(ctx context.Context, a Action) *Done
}

// Loop runs a Machine on a host.
type Loop struct {
	Hands  Hands
	Log    *slog.Logger
	Config *Config
	// Reload delivers new configurations; nil never does.
	Reload <-chan *Config
	// Record, when set, is given each event before it is decided on.
	Record func(Event)
	// Degraded is told what does not work and why, "" that it does again.
	Degraded func(what, why string)
	// Now is the wall clock, for the hours; nil is time.Now.
	Now func() time.Time

	status atomic.Pointer[Status]
}

// Status is a copy of the loop's state, for those who show it.
type Status struct {
	Mode     Mode
	Open     bool // changes are allowed at this hour
	Critical bool
	Tick     time.Duration // between two readings of the counters, 0: none
	TickCost float64       // CPUs that takes
	Devices  []DeviceStatus
	Stats    map[string]Stats // by device; "" what belongs to none
}

// DeviceStatus is one device's.
type DeviceStatus struct {
	Name    string
	Mode    Mode
	Phase   Phase
	Off     string // why there is no fast path, "" there is
	Yielded []knob.Kind
	Wait    time.Duration // the cool-down after the next change
}

// Status is the state after the last event; nil before the first.
func (l *Loop) Status() *Status { return l.status.Load() }

// Slowest and how often the interval between ticks is thought over.
const (
	slowestTick = time.Second
	rethink     = 10
)

// Run steers until ctx ends, and waits for what is on its way.
func (l *Loop) Run(ctx context.Context) error {
	if l.Now == nil {
		l.Now = time.Now
	}
	c := l.Config
	m := New(c)
	begun := time.Now() // carries the monotonic clock: steps of the wall clock do not matter
	events := make(chan Event)
	var wait sync.WaitGroup
	defer wait.Wait()
	looks := make(chan struct{}, 1)
	var looked atomic.Int64 // ns the last one took
	every := TickEvery
	var cost float64
	step := func(e Event) {
		e.At = time.Since(begun)
		e.Open, e.Risks = m.c.Open(l.Now())
		if l.Record != nil {
			l.Record(e)
		}
		acts, decisions := m.Step(e)
		for _, d := range decisions {
			l.say(d)
		}
		st := m.Status()
		st.Open, st.Critical = e.Open, m.c.IsCritical(l.Now())
		st.Tick, st.TickCost = every, cost
		l.status.Store(st)
		for _, a := range acts {
			wait.Go(func() { l.do(ctx, a, events) })
		}
	}
	step(Event{})
	wait.Go(func() { // looks take long: they are not to hold up a tick
		for {
			select {
			case <-ctx.Done():
				return
			case <-looks:
			}
			start := time.Now()
			look, err := l.Hands.Look(ctx)
			looked.Store(int64(time.Since(start)))
			if ctx.Err() != nil {
				return
			}
			if err != nil {
				l.Degraded("looking at settings", err.Error())
				continue
			}
			l.Degraded("looking at settings", "")
			send(ctx, events, Event{Look: look})
		}
	})
	tick := time.NewTicker(every)
	defer tick.Stop()
	nextLook := begun
	ticks := 0
	var spent time.Duration
	failing := map[string]bool{}
	for {
		select {
		case <-ctx.Done():
			return nil
		case e := <-events:
			step(e)
		case c, ok := <-l.Reload:
			if !ok {
				l.Reload = nil
				continue
			}
			step(Event{Config: c})
			nextLook = time.Now()
		case <-tick.C:
			if now := time.Now(); !now.Before(nextLook) {
				nextLook = now.Add(l.lookGap(time.Duration(looked.Load()), m.c))
				select {
				case looks <- struct{}{}:
				default: // the last one is not done yet
				}
			}
			if m.c.idle() {
				step(Event{})
				continue
			}
			start := time.Now()
			t, failed := l.Hands.Tick()
			spent += time.Since(start)
			l.failures(failing, failed)
			if t != nil {
				step(Event{Tick: t})
			}
			if ticks++; ticks == rethink {
				per := spent / rethink
				ticks, spent = 0, 0
				if next := l.pace(per, m.c.Overhead); next != every {
					every = next
					tick.Reset(every)
				}
				cost = per.Seconds() / every.Seconds()
			}
		}
	}
}

// pace is how often counters may be looked at when once takes so long: all of it within the overhead of one CPU.
func (l *Loop) pace(per time.Duration, overhead float64) time.Duration {
	every := TickEvery
	if overhead > 0 {
		// In steps of two: it need not follow every scatter.
		for every < slowestTick && per.Seconds()/every.Seconds() > overhead {
			every *= 2
		}
	}
	every = min(every, slowestTick)
	why := ""
	if every > TickEvery {
		why = fmt.Sprintf("reading the counters takes %v: to stay within the overhead they are read every %v, and a skew is answered that much later", per.Round(10*time.Microsecond), every)
	}
	l.Degraded("reacting within half a second", why)
	return every
}

// seldomLook is the longest time between two looks that their cost leads to.
const seldomLook = 5 * time.Minute

// lookGap is the time to the next look when one takes so long: on hosts of many interfaces reading all settings is work.
func (l *Loop) lookGap(took time.Duration, c *Config) time.Duration {
	gap := c.Interval
	if c.Overhead > 0 {
		gap = max(gap, min(time.Duration(took.Seconds()/c.Overhead*float64(time.Second)), seldomLook))
	}
	why := ""
	if gap > 2*c.Interval {
		why = fmt.Sprintf("it takes %v: to stay within the overhead it is done every %v", took.Round(time.Millisecond), gap.Round(time.Second))
	}
	l.Degraded("looking at settings every "+c.Interval.String(), why)
	return gap
}

// failures says which devices have no fast path.
func (l *Loop) failures(failing map[string]bool, failed map[string]error) {
	for _, name := range slices.Sorted(maps.Keys(failed)) {
		failing[name] = true
		l.Degraded("packets by queue of "+name, failed[name].Error())
	}
	for name := range failing {
		if failed[name] == nil {
			delete(failing, name)
			l.Degraded("packets by queue of "+name, "")
		}
	}
}

func send(ctx context.Context, to chan<- Event, e Event) {
	select {
	case to <- e:
	case <-ctx.Done():
	}
}

func (l *Loop) do(ctx context.Context, a Action, events chan<- Event) {
	if a.Verb == Watch {
		w := l.Hands.Watch(ctx, a)
		w.Device, w.IfIndex = a.Device, a.IfIndex
		send(ctx, events, Event{Window: w})
		return
	}
	r := l.Hands.Do(context.WithoutCancel(ctx), a)
	r.IfIndex = a.IfIndex
	send(ctx, events, Event{Done: r})
}

func (l *Loop) say(d Decision) {
	attrs := []slog.Attr{slog.String("decision", d.What)}
	if d.Device != "" {
		attrs = append(attrs, slog.String("device", d.Device))
	}
	attrs = append(attrs, slog.String("why", d.Why))
	for _, f := range d.Numbers {
		attrs = append(attrs, slog.Any(f.Name, f.Value))
	}
	level := slog.LevelInfo
	switch d.What {
	case Failed, Degraded, JudgedWorse, Reverted:
		level = slog.LevelWarn
	}
	l.Log.LogAttrs(context.Background(), level, "loop", attrs...)
	if d.What == Degraded {
		l.Degraded("fast path of "+d.Device, d.Why)
	}
}

// idle reports whether nothing is steered or advised about.
func (c *Config) idle() bool {
	return c.Mode == Off && !slices.ContainsFunc(c.Devices, func(d Device) bool { return d.Mode != Off })
}

// Status copies the machine's state.
func (m *Machine) Status() *Status {
	st := &Status{Mode: m.c.Mode, Stats: make(map[string]Stats, len(m.stats))}
	for _, d := range m.sorted() {
		st.Devices = append(st.Devices, DeviceStatus{Name: d.name, Mode: d.policy.Mode, Phase: d.phase, Off: d.off, Wait: d.cool,
			Yielded: slices.Sorted(maps.Keys(d.yielded))})
	}
	for name, s := range m.stats {
		c := *s
		c.Decisions, c.Moves, c.Parts = maps.Clone(s.Decisions), maps.Clone(s.Moves), maps.Clone(s.Parts)
		st.Stats[name] = c
	}
	return st
}

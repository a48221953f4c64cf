package control

import (
	"encoding/json"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/rxsteer/rxsteer/internal/host/knob"
	"github.com/rxsteer/rxsteer/steer/plan"
)

// TestASkewIsMendedWithinHalfASecond: from the onset of a skew that a table can mend to the table read back,
// and the judgement within three seconds more.
func TestASkewIsMendedWithinHalfASecond(t *testing.T) {
	s := newSim(t, auto(), 4, 128)
	const onset = 5 * time.Second
	s.flows = func(now time.Duration) map[int]float64 {
		if now <= onset {
			return even(128, 160000)(now)
		}
		return skew(now)
	}
	s.run(20 * time.Second)
	var written, judged time.Duration
	for _, d := range s.decisions {
		switch d.What {
		case WroteDone:
			written = d.At
		case JudgedFine:
			judged = d.At
		}
	}
	if written == 0 || written-onset > 500*time.Millisecond || judged == 0 || judged-written > 3*time.Second || s.count(Kept) != 1 || s.count(Wrote) != 1 {
		s.say()
		t.Errorf("onset %v, written %v, judged %v, kept %d times, written %d times", onset, written, judged, s.count(Kept), s.count(Wrote))
	}
	perQueue := map[int]int{}
	for b := range skew(0) {
		perQueue[s.table[b]]++
	}
	if len(perQueue) != 4 {
		t.Errorf("busy buckets by queue: %v", perQueue)
	}
}

// TestSteadyLoadIsLeftAlone for ten minutes, however it scatters.
func TestSteadyLoadIsLeftAlone(t *testing.T) {
	for name, flows := range map[string]func(time.Duration) map[int]float64{
		"even":       even(128, 300000),
		"even, idle": even(128, 3000),
		"few buckets": func(time.Duration) map[int]float64 {
			return map[int]float64{0: 30000, 1: 30000, 2: 30000, 3: 30000, 4: 9000, 9: 9000}
		},
		"nothing":       func(time.Duration) map[int]float64 { return nil },
		"lone elephant": func(time.Duration) map[int]float64 { return map[int]float64{7: 180000} },
		"elephant and mice spread as well as can be": func(time.Duration) map[int]float64 {
			return map[int]float64{0: 150000, 1: 20000, 2: 20000, 3: 20000}
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSim(t, auto(), 4, 128)
			s.flows = flows
			s.run(10 * time.Minute)
			if s.count(Wrote) != 0 {
				s.say()
			}
			if n := s.count(Wrote); n != 0 {
				t.Errorf("%d moves", n)
			}
			windows := 0
			for _, a := range s.actions {
				if a.Verb == Watch {
					windows++
				}
			}
			if windows > 12 {
				t.Errorf("%d windows were opened: each costs", windows)
			}
		})
	}
}

// TestMiceAndElephantPart: whichever way takes fewer moves.
func TestMiceAndElephantPart(t *testing.T) {
	s := newSim(t, auto(), 4, 128)
	s.flows = func(time.Duration) map[int]float64 {
		f := map[int]float64{0: 120000}
		for i := 1; i < 9; i++ {
			f[4*i] = 8000
		}
		return f
	}
	s.run(30 * time.Second)
	if s.count(Wrote) != 1 {
		s.say()
		t.Errorf("%d writes", s.count(Wrote))
	}
	for i := 1; i < 9; i++ {
		if s.table[4*i] == s.table[0] {
			t.Errorf("bucket %d still shares the elephant's queue", 4*i)
		}
	}
}

// TestAlternatingLoadDoesNotOscillate: two sets of flows take turns; moves are bounded and get rarer.
func TestAlternatingLoadDoesNotOscillate(t *testing.T) {
	s := newSim(t, auto(), 4, 128)
	s.flows = func(now time.Duration) map[int]float64 {
		out := map[int]float64{}
		for i := range 4 {
			out[4*(i+1+8*(int(now/(3*time.Second))%2))] = 35000
		}
		for i := range 128 {
			out[i] += 200
		}
		return out
	}
	s.run(10 * time.Minute)
	at := s.writes()
	first, last := 0, 0
	for _, w := range at {
		if w < time.Minute {
			first++
		}
		if w > 5*time.Minute {
			last++
		}
	}
	if first > 6 || last > 2 {
		s.say()
		t.Errorf("%d moves in the first minute, %d in the last five: %v", first, last, at)
	}
}

// TestAWorseChangeIsTakenBackAndNotRetried until the load is another one.
func TestAWorseChangeIsTakenBackAndNotRetried(t *testing.T) {
	for name, tc := range map[string]struct {
		after func(*sim)
		undo  func(*sim)
	}{
		"the hottest CPU gets hotter": {func(s *sim) { s.cost *= 8 }, func(s *sim) { s.cost /= 8 }},
		"packets are dropped":         {func(s *sim) { s.dropped = 0.1 }, func(s *sim) { s.dropped = 0 }},
		"traffic does not follow":     {func(s *sim) { s.ignore = true; s.real = slices.Clone(s.old[string(rune('0'+s.tx))]) }, func(*sim) {}},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSim(t, auto(), 4, 128)
			other := false
			s.flows = func(now time.Duration) map[int]float64 {
				if other {
					return map[int]float64{1: 40000, 5: 40000, 9: 40000, 13: 40000}
				}
				return skew(now)
			}
			if name == "the hottest CPU gets hotter" {
				s.cost = 1.2e-6 // 19 % of a CPU: there is room above
				s.m.c.Limits.Busy = 0.1
			}
			s.after = tc.after
			s.run(10 * time.Second)
			if s.count(Wrote) != 1 || s.count(JudgedWorse) != 1 || s.count(Reverted) != 1 {
				s.say()
				t.Fatalf("%d written, %d judged worse, %d reverted", s.count(Wrote), s.count(JudgedWorse), s.count(Reverted))
			}
			tc.undo(s)
			s.after, s.ignore = nil, false
			s.run(10 * time.Minute)
			if s.count(Wrote) != 1 {
				s.say()
				t.Fatalf("the same was tried again: %d writes", s.count(Wrote))
			}
			other = true
			s.run(10 * time.Second)
			if s.count(Wrote) != 2 || s.count(Kept) != 1 {
				s.say()
				t.Errorf("another load: %d writes, %d kept", s.count(Wrote), s.count(Kept))
			}
		})
	}
}

// TestOthersWin: a table somebody else sets is left alone until the policy's time is over.
func TestOthersWin(t *testing.T) {
	for name, interfere := range map[string]func(s *sim){
		"seen by a look":         func(s *sim) { s.step(look1(s)) },
		"seen before the window": func(s *sim) {},
	} {
		t.Run(name, func(t *testing.T) {
			c := auto()
			c.Limits.Yield = time.Minute
			s := newSim(t, c, 4, 128)
			s.flows = skew
			s.step(look1(s))
			s.run(10 * time.Second)
			if s.count(Kept) != 1 {
				s.say()
				t.Fatal("nothing was done to interfere with")
			}
			for i := range s.table { // an admin's table: all in queue 1
				s.table[i] = 1
			}
			s.real = slices.Clone(s.table)
			interfere(s)
			s.run(30 * time.Second)
			if s.count(Yielded) != 1 || s.count(Wrote) != 1 {
				s.say()
				t.Fatalf("%d yields, %d writes", s.count(Yielded), s.count(Wrote))
			}
			s.run(time.Minute)
			if s.count(Resumed) != 1 || s.count(Wrote) != 2 {
				s.say()
				t.Errorf("after its time: %d resumed, %d writes", s.count(Resumed), s.count(Wrote))
			}
		})
	}
	t.Run("moved between window and write", func(t *testing.T) {
		s := newSim(t, auto(), 4, 128)
		s.flows = skew
		for s.count(Wrote) == 0 {
			s.run(10 * time.Millisecond)
		}
		s.table[5] = 3
		s.run(time.Minute)
		if s.count(Yielded) != 1 || s.count(WroteDone) != 0 {
			s.say()
			t.Errorf("%d yields, %d written", s.count(Yielded), s.count(WroteDone))
		}
	})
	t.Run("an owner that runs", func(t *testing.T) {
		s := newSim(t, auto(), 4, 128)
		s.flows = skew
		e := look1(s)
		e.Look.Owners = []knob.Owner{{Name: "tuned", Knobs: []knob.Kind{knob.RSSTable}}}
		s.step(e)
		s.run(time.Minute)
		if s.count(Yielded) != 1 || s.count(Wrote) != 0 {
			t.Errorf("%d yields, %d writes", s.count(Yielded), s.count(Wrote))
		}
	})
}

// TestModesAndHours: advise says and writes nothing, off does neither, and closed hours refuse.
func TestModesAndHours(t *testing.T) {
	for name, tc := range map[string]struct {
		mode    Mode
		open    bool
		what    string
		windows bool
	}{
		"off":               {Off, true, "", false},
		"advise":            {Advise, true, Advised, true},
		"outside the hours": {Auto, false, Refused, true},
	} {
		t.Run(name, func(t *testing.T) {
			c := auto()
			c.Devices[0].Mode = tc.mode
			s := newSim(t, c, 4, 128)
			s.flows, s.open = skew, tc.open
			s.run(time.Minute)
			if s.count(Wrote) != 0 || len(s.actions) > 0 != tc.windows || tc.what != "" && s.count(tc.what) == 0 {
				s.say()
				t.Errorf("%d writes, actions %v", s.count(Wrote), s.actions)
			}
		})
	}
}

func rps(from, to string) plan.Change {
	return plan.Change{Knob: knob.RPSCPUs, Target: knob.On("eth0", "rx-0"), From: knob.Text(from), To: knob.Text(to), Risk: plan.Reorder}
}

// TestTheSlowPathWantsSeveralLooks, and does not try again what was taken back.
func TestTheSlowPathWantsSeveralLooks(t *testing.T) {
	s := newSim(t, auto(), 1, 8)
	s.flows = even(8, 1000)
	s.step(look1(s, rps("", "1-3")))
	s.step(look1(s)) // not persistent
	for range 2 {
		s.run(time.Second)
		s.step(look1(s, rps("", "1-3")))
	}
	if s.count(Wrote) != 0 {
		t.Fatal("two looks convinced it")
	}
	s.run(time.Second)
	s.step(look1(s, rps("", "1-3")))
	s.run(time.Second)
	if s.count(Wrote) != 1 || s.count(Kept) != 1 {
		s.say()
		t.Fatalf("%d writes, %d kept", s.count(Wrote), s.count(Kept))
	}
	// The next one is worse.
	s.run(time.Minute)
	for range 20 {
		s.step(look1(s, rps("1-3", "1-2")))
		if s.count(Wrote) == 2 && s.count(Reverted) == 0 {
			s.todo = []due{{s.now + 10*time.Second, func() Event {
				return Event{Done: &Done{IfIndex: s.ifindex, TX: "2", Undone: true, Why: "worse"}}
			}}}
		}
		s.run(20 * time.Second)
	}
	if s.count(Wrote) != 2 || s.count(Reverted) != 1 {
		s.say()
		t.Errorf("%d writes, %d reverted", s.count(Wrote), s.count(Reverted))
	}
	// A risk that is not granted.
	flap := rps("1-3", "1")
	flap.Risk = plan.Flap
	s.run(10 * time.Minute)
	for range 5 {
		s.step(look1(s, flap))
	}
	if s.count(Wrote) != 2 || s.count(Refused) != 1 {
		s.say()
		t.Errorf("a flap: %d writes, %d refusals", s.count(Wrote), s.count(Refused))
	}
}

// TestDevicesComeAndGo: queues rebuilt, a rename, a device that comes back, a suspend: none leads to a move, and the
// loop works afterwards.
func TestDevicesComeAndGo(t *testing.T) {
	s := newSim(t, auto(), 4, 128)
	s.flows = even(128, 160000)
	s.run(5 * time.Second)
	// ethtool -L eth0 combined 2: the driver makes a new table.
	s.queues = s.queues[:2]
	for i := range s.table {
		s.table[i] = i % 2
	}
	s.real = slices.Clone(s.table)
	s.run(5 * time.Second)
	s.step(look1(s))
	s.name = "lan0"
	s.run(5 * time.Second)
	s.ifindex = 9
	s.run(5 * time.Second)
	s.now += time.Hour // suspend: one tick of an hour
	e := s.tick()
	e.Tick.Interval = time.Hour
	e.Tick.Devices[0].Packets = []uint64{1 << 30, 0}
	s.step(e)
	s.run(time.Minute)
	if s.count(Wrote) != 0 || s.count(Changed) != 3 || s.count(Yielded) != 0 {
		s.say()
		t.Errorf("%d writes, %d changes of the device, %d yields", s.count(Wrote), s.count(Changed), s.count(Yielded))
	}
	s.flows = func(time.Duration) map[int]float64 { return map[int]float64{0: 40000, 2: 40000, 4: 40000} }
	s.run(5 * time.Second)
	if s.count(Kept) != 1 {
		s.say()
		t.Error("a skew afterwards was not mended")
	}
	e = look1(s)
	e.Look.Devices = nil
	s.step(e)
	if len(s.m.devices) != 0 {
		t.Error("a device that is gone is remembered")
	}
}

// TestWithoutWindowsTheFastPathIsOff and says so once.
func TestWithoutWindowsTheFastPathIsOff(t *testing.T) {
	s := newSim(t, auto(), 4, 128)
	s.flows = skew
	for s.now < time.Minute {
		s.now += TickEvery
		acts, out := s.m.Step(Event{At: s.now, Open: true, Tick: s.tick().Tick})
		s.decisions = append(s.decisions, out...)
		for _, a := range acts {
			_, out := s.m.Step(Event{At: s.now, Open: true, Window: &Window{IfIndex: a.IfIndex, Error: "no BPF", Off: true}})
			s.decisions = append(s.decisions, out...)
		}
	}
	if s.count(Degraded) != 1 || s.count(Suspected) != 0 {
		s.say()
		t.Errorf("said %d times, suspected %d times", s.count(Degraded), s.count(Suspected))
	}
}

// TestReplayDecidesTheSame: a recording gives the same decisions bit for bit.
func TestReplayDecidesTheSame(t *testing.T) {
	s := newSim(t, auto(), 4, 128)
	s.flows = func(now time.Duration) map[int]float64 {
		if now/(20*time.Second)%2 == 1 {
			return skew(now)
		}
		return map[int]float64{1: 30000, 5: 30000, 9: 30000, 2: 5000}
	}
	s.step(look1(s))
	s.run(2 * time.Minute)
	if s.count(Wrote) == 0 {
		t.Fatal("nothing was decided")
	}
	want, err := json.Marshal(s.decisions)
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		var b []byte
		if b, err = json.Marshal(Replay(auto(), s.events)); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(string(want), string(b)); diff != "" {
			t.Fatalf("-recorded +replayed\n%s", diff)
		}
	}
}

// TestReload takes a new policy without losing what is known.
func TestReload(t *testing.T) {
	s := newSim(t, auto(), 4, 128)
	s.flows = even(128, 160000)
	s.run(5 * time.Second)
	c := auto()
	c.Devices[0].Mode = Advise
	s.step(Event{Config: c})
	s.flows = skew
	s.run(5 * time.Second)
	if s.count(Reloaded) != 1 || s.count(Wrote) != 0 || s.count(Advised) == 0 {
		s.say()
		t.Errorf("%d reloads, %d writes, %d pieces of advice", s.count(Reloaded), s.count(Wrote), s.count(Advised))
	}
}

// TestSlowTicksAreEnough: where reading the counters is dear they are read every second, and a skew is mended that much later.
func TestSlowTicksAreEnough(t *testing.T) {
	s := newSim(t, auto(), 4, 128)
	s.flows, s.every = skew, slowestTick
	s.run(30 * time.Second)
	if s.count(Kept) != 1 || s.count(Wrote) != 1 {
		s.say()
		t.Errorf("%d written, %d kept", s.count(Wrote), s.count(Kept))
	}
}

// TestABlipIsNotActedUpon: ticks that show a skew one at a time, as short bursts do, lead to no decision, and few of them
// to counting.
func TestABlipIsNotActedUpon(t *testing.T) {
	s := newSim(t, auto(), 4, 128)
	s.flows = func(now time.Duration) map[int]float64 {
		if int(now/TickEvery)%7 == 0 {
			return skew(now)
		}
		return even(128, 160000)(now)
	}
	s.run(time.Minute)
	watched := 0
	for _, a := range s.actions {
		if a.Verb == Watch {
			watched++
		}
	}
	if len(s.decisions) != 0 || watched == 0 || watched > 7 {
		s.say()
		t.Errorf("%d decisions, %d windows", len(s.decisions), watched)
	}
}

// TestAWindowWaitsForItsTick: one that is there before the ticks that bear it out is used with the last of them, and
// dropped when no tick comes.
func TestAWindowWaitsForItsTick(t *testing.T) {
	for name, ticks := range map[string]int{"they come": 2, "none comes": 0} {
		t.Run(name, func(t *testing.T) {
			s := newSim(t, auto(), 4, 128)
			s.flows = skew
			s.now = TickEvery
			s.step(s.tick())
			if len(s.actions) != 1 || s.actions[0].Verb != Watch {
				t.Fatalf("after a tick: %+v", s.actions)
			}
			w := s.todo[0].e()
			s.todo = nil
			s.step(w)
			for range ticks {
				s.now += TickEvery
				s.step(s.tick())
			}
			if got := s.count(Wrote); got != ticks/2 {
				s.say()
				t.Fatalf("%d writes after %d more ticks", got, ticks)
			}
			if ticks > 0 {
				return
			}
			s.now += 2 * heldFor
			s.step(Event{})
			s.actions = nil
			s.now += TickEvery
			s.step(s.tick())
			if len(s.actions) != 1 || s.count(Wrote) != 0 {
				t.Errorf("it is still waiting: %+v", s.actions)
			}
		})
	}
}

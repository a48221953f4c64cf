package control

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/rxsteer/rxsteer/collector"
	"github.com/rxsteer/rxsteer/internal/cpuset"
	"github.com/rxsteer/rxsteer/internal/host/knob"
	"github.com/rxsteer/rxsteer/steer/balance"
	"github.com/rxsteer/rxsteer/steer/diagnose"
	"github.com/rxsteer/rxsteer/steer/plan"
)

// Phase of a device in the loop.
type Phase string

const (
	Observing Phase = "observe"
	Watching  Phase = "watch"
	Applying  Phase = "apply"
	Judging   Phase = "judge"
	Cooling   Phase = "cool down"
)

// Phases is all of them in order.
var Phases = []Phase{Observing, Watching, Applying, Judging, Cooling}

const (
	// TickEvery is how often the kernel's counters are looked at, and watchFor how long buckets are counted, meanwhile: with
	// three ticks of suspicion and the write that is within half a second of a skew's onset.
	TickEvery = 100 * time.Millisecond
	watchFor  = 150 * time.Millisecond
	// watchLong is the most for a second window, at once after a first that saw a gain which its few packets do not bear out, and
	// watchBurst the burst (see below) of one bucket's packets.
	watchLong  = time.Second
	watchBurst = 4
	// suspicions is how many ticks in a row must show a skew, which is also what a change is judged by. The first may be
	// cut by the onset. Buckets are counted from the first on, for the next come meanwhile. After one that was not borne
	// out nothing is counted so early for blipWait; a window waits for the tick that decides about it at most heldFor.
	suspicions = 3
	blipWait   = 10 * time.Second
	heldFor    = 2 * lateTick
	// lateTick: after a suspend, or where the machine was starved, the counters of a tick cover too much.
	lateTick = 3 * time.Second
	// burst is how many packets tend to arrive together: counts scatter by √(n × burst).
	burst = 16
	// watchCost is what a packet costs more while buckets are counted (collector.Sampler.Buckets). Half of the overhead may go
	// into windows; where that makes them rarer than rarest there is no fast path.
	watchCost = 60 * time.Nanosecond
	rarest    = time.Minute
	// least is the packets of a tick below which no skew is looked for.
	least = 100
	// excess is how far the busiest CPU must be above the mean, in parts of it.
	excess = 0.25
	// differs is how much of the packets must come in other queues for a situation to be another one.
	differs = 0.15
	// firstWait is how long nothing is looked for after a window that showed no gain.
	firstWait = 2 * time.Second
	// settle is left out after a write: packets in flight and moved interrupts.
	settle = 200 * time.Millisecond
	// solveSteps bounds the optimiser by work, not by time: the same window gives the same table.
	solveSteps = 400_000
	// forgetful: a change so many cool-downs after the last one starts over with the shortest.
	forgetful = 12
)

// situation is what a device's traffic looks like: parts of the packets by queue.
type situation []float64

// distance is the part of the packets that would have to move to make one situation the other; 1 for different
// numbers of queues.
func (s situation) distance(o situation) float64 {
	if len(s) != len(o) {
		return 1
	}
	sum := 0.0
	for i := range s {
		sum += math.Abs(s[i] - o[i])
	}
	return sum / 2
}

func shares(packets []uint64) situation {
	total := 0.0
	for _, n := range packets {
		total += float64(n)
	}
	out := make(situation, len(packets))
	for i, n := range packets {
		if total > 0 {
			out[i] = float64(n) / total
		}
	}
	return out
}

// look is a tick of one device with the CPUs' state.
type look struct {
	d        collector.DeviceTick
	interval time.Duration
	rx, busy map[int]float64 // by CPU
	ooo      uint64
}

// device is the loop's state of one device.
type device struct {
	name    string
	ifindex int
	policy  Device
	queues  int // as last looked at, 0 not yet
	phase   Phase
	recent  []look // the last ticks, oldest first
	suspect int
	onset   time.Duration
	borne   time.Duration // when enough ticks had shown it
	asked   time.Duration // when the last write was asked for
	// Nothing is looked for until then, unless the situation differs.
	calm      situation
	calmUntil time.Duration
	calmWait  time.Duration
	undone    []situation // in which a change was taken back
	cool      time.Duration
	coolUntil time.Duration
	changed   time.Duration // when the last change ended
	writes    []time.Duration
	off       string        // why there is no fast path
	watched   time.Duration // when buckets were counted last
	poor      bool          // the budget leaves no room for windows
	early     time.Duration // from then on one tick is enough to begin counting
	held      *Window       // came before the tick that decides whether it is wanted
	heldAt    time.Duration
	blip      bool // the window under way is not wanted any more
	longer    bool // the window under way is a second one
	// The change on its way.
	tx        string
	fast      bool
	pending   []plan.Change
	wroteAt   time.Duration
	predicted situation // by queue, if packets follow the new table
	before    []look
	after     []look
	// What others must not be fought over.
	yielded map[knob.Kind]time.Duration // until, 0 for good
	ours    map[knob.Ref]knob.Value
	seen    map[knob.Ref]knob.Value
	// The slow path.
	wanted string // signature of the plan
	agreed int
	said   string
	failed map[string]bool // signatures that were taken back
}

// Machine is the loop as a pure function of events.
type Machine struct {
	c       *Config
	now     time.Duration
	open    bool
	granted []plan.Risk
	devices map[int]*device
	stats   map[string]*Stats
	said    map[string]bool // reasons told
	out     []Decision
	acts    []Action
}

// Stats is what the loop did with a device since it began.
type Stats struct {
	Decisions map[string]uint64    // by Decision.What
	Moves     map[knob.Kind]uint64 // settings written
	Buckets   uint64               // entries of tables moved
	// Reaction is the sum and number of times from the onset of a skew to the table read back.
	Reaction  time.Duration
	Reactions uint64
	Last      time.Duration            // the last of them
	Parts     map[string]time.Duration // sums, by ReactionParts
	Rollbacks uint64
}

// New begins with nothing known.
func New(c *Config) *Machine {
	return &Machine{c: c, devices: map[int]*device{}, stats: map[string]*Stats{}, said: map[string]bool{}}
}

// Step takes an event and returns what is to be done and what was decided.
func (m *Machine) Step(e Event) ([]Action, []Decision) {
	m.now = max(m.now, e.At)
	m.open, m.granted = e.Open, e.Risks
	m.out, m.acts = nil, nil
	switch {
	case e.Tick != nil:
		m.tick(e.Tick)
	case e.Window != nil:
		m.window(e.Window)
	case e.Look != nil:
		m.look(e.Look)
	case e.Done != nil:
		m.done(e.Done)
	case e.Config != nil:
		m.reload(e.Config)
	}
	for _, d := range m.sorted() {
		m.wake(d)
	}
	return m.acts, m.out
}

func (m *Machine) sorted() []*device {
	return slices.SortedFunc(maps.Values(m.devices), func(a, b *device) int { return cmp.Compare(a.ifindex, b.ifindex) })
}

func (m *Machine) stat(name string) *Stats {
	s := m.stats[name]
	if s == nil {
		s = &Stats{Decisions: map[string]uint64{}, Moves: map[knob.Kind]uint64{}, Parts: map[string]time.Duration{}}
		m.stats[name] = s
	}
	return s
}

func (m *Machine) decide(d *device, what, why string, numbers ...diagnose.Fact) {
	name := ""
	if d != nil {
		name = d.name
	}
	m.out = append(m.out, Decision{At: m.now, Device: name, What: what, Why: why, Numbers: numbers})
	m.stat(name).Decisions[what]++
}

func (m *Machine) act(a Action) { m.acts = append(m.acts, a) }

// reload takes a new policy; what is on its way ends as it began.
func (m *Machine) reload(c *Config) {
	m.c = c
	for _, d := range m.sorted() {
		d.policy, _ = c.For(d.name)
		d.said, d.agreed, d.calmUntil = "", 0, 0
	}
	m.decide(nil, Reloaded, "the configuration was read again", fact("mode", string(c.Mode)))
}

// device finds or begins one. A device that was renamed is the same; one that came back under its name is not.
func (m *Machine) device(name string, ifindex int) *device {
	d := m.devices[ifindex]
	if d == nil {
		for _, o := range m.devices {
			if o.name == name {
				m.decide(o, Changed, fmt.Sprintf("%s was removed and came back", name), fact("ifindex_before", o.ifindex), fact("ifindex", ifindex))
				delete(m.devices, o.ifindex)
			}
		}
		d = &device{name: name, ifindex: ifindex, phase: Observing, yielded: map[knob.Kind]time.Duration{}, ours: map[knob.Ref]knob.Value{}, failed: map[string]bool{}}
		d.policy, _ = m.c.For(name)
		m.devices[ifindex] = d
		m.stat(name).Moves[knob.RSSTable] += 0 // shown from the start
	}
	if d.name != name {
		m.decide(d, Changed, fmt.Sprintf("%s is called %s now", d.name, name))
		d.name = name
		d.policy, _ = m.c.For(name)
		d.ours, d.seen = map[knob.Ref]knob.Value{}, nil // named by the device
	}
	return d
}

// wake lets time pass for a device.
func (m *Machine) wake(d *device) {
	if d.phase == Cooling && m.now >= d.coolUntil {
		d.phase = Observing
		d.suspect = 0
	}
	if d.held != nil && m.now-d.heldAt > heldFor { // no tick comes
		d.held, d.phase, d.suspect = nil, Observing, 0
	}
	for _, k := range slices.Sorted(maps.Keys(d.yielded)) {
		if until := d.yielded[k]; until > 0 && m.now >= until {
			delete(d.yielded, k)
			m.decide(d, Resumed, fmt.Sprintf("nobody was to be disturbed over %s any longer, by the policy", k), fact("knob", string(k)))
		}
	}
}

func (m *Machine) yield(d *device, k knob.Kind, why string) {
	until := m.now + m.c.Limits.Yield
	if m.c.Limits.Yield == 0 {
		until = 0
	}
	_, already := d.yielded[k]
	d.yielded[k] = until
	for r := range d.ours {
		if r.Knob == k {
			delete(d.ours, r)
		}
	}
	if !already {
		m.decide(d, Yielded, why, fact("knob", string(k)), fact("for_s", m.c.Limits.Yield.Seconds()))
	}
}

// mayTable reports whether the loop may look for a better table at all.
func (m *Machine) mayTable(d *device) bool {
	_, yielded := d.yielded[knob.RSSTable]
	return d.policy.Mode != Off && !yielded && d.policy.allows(knob.RSSTable) && slices.Contains(d.policy.Risks, plan.Reorder)
}

func (m *Machine) tick(t *collector.Tick) {
	rx, busy := map[int]float64{}, map[int]float64{}
	for _, c := range t.CPUs {
		rx[c.CPU], busy[c.CPU] = c.RX, c.Busy
	}
	for _, dt := range t.Devices {
		d := m.device(dt.Device, dt.IfIndex)
		if t.Interval > lateTick || t.Interval <= 0 {
			d.recent, d.suspect = nil, 0 // a suspend, or nobody let us run
			continue
		}
		if n := len(d.recent); n > 0 && len(d.recent[n-1].d.Packets) != len(dt.Packets) {
			m.forget(d, fmt.Sprintf("it has %d receive queues now, not %d", len(dt.Packets), len(d.recent[n-1].d.Packets)))
		}
		l := look{dt, t.Interval, rx, busy, t.OutOfOrder}
		if d.recent = append(d.recent, l); len(d.recent) > 10 {
			d.recent = d.recent[1:]
		}
		switch d.phase {
		case Judging:
			m.watchAfter(d, l)
		case Watching:
			m.bearOut(d, l)
		case Observing:
			m.suspectSkew(d, l)
		}
	}
}

// forget starts over with a device whose queues were rebuilt.
func (m *Machine) forget(d *device, why string) {
	m.decide(d, Changed, why)
	d.recent, d.suspect, d.calm, d.calmUntil, d.calmWait, d.undone, d.seen = nil, 0, nil, 0, 0, nil, nil
	d.early = 0
	d.ours = map[knob.Ref]knob.Value{}
	d.failed, d.wanted, d.agreed, d.said = map[string]bool{}, "", 0, ""
}

// byCPU is packets by the CPU of their queue; ok is false where a busy queue's CPU is not known.
func (l *look) byCPU() (out map[int]float64, ok bool) {
	out = map[int]float64{}
	for q, n := range l.d.Packets {
		cpu := -1
		if q < len(l.d.CPUs) {
			cpu = l.d.CPUs[q]
		}
		if cpu < 0 {
			if n > 0 {
				return nil, false
			}
			continue
		}
		out[cpu] += float64(n)
	}
	return out, true
}

// skewed measures how uneven a tick is: the packets of the busiest CPU and their mean.
func (l *look) skewed(limits *Limits) (cpu int, hottest, mean float64, yes bool) {
	by, ok := l.byCPU()
	if !ok || len(by) < 2 {
		return 0, 0, 0, false
	}
	total := 0.0
	cpu = -1
	for _, c := range slices.Sorted(maps.Keys(by)) {
		total += by[c]
		if cpu < 0 || by[c] > by[cpu] {
			cpu = c
		}
	}
	mean, hottest = total/float64(len(by)), by[cpu]
	yes = total >= least && l.busy[cpu] >= limits.Busy &&
		hottest-mean > excess*mean && hottest-mean > 4*math.Sqrt(mean*burst)
	return cpu, hottest, mean, yes
}

// suspectSkew asks for a window when the counters show a skew that a table might mend.
func (m *Machine) suspectSkew(d *device, l look) {
	if !m.mayTable(d) || d.off != "" {
		return
	}
	_, hottest, _, yes := l.skewed(&m.c.Limits)
	if !yes {
		d.suspect = 0
		return
	}
	m.suspects(d, l)
	if d.suspect < suspicions && m.now < d.early {
		return
	}
	now := d.situation(d.suspect)
	if m.now < d.calmUntil && now.distance(d.calm) < differs {
		return
	}
	if slices.ContainsFunc(d.undone, func(s situation) bool { return s.distance(now) < differs }) {
		return
	}
	if d.calm != nil && now.distance(d.calm) >= differs {
		d.calmWait = 0
	}
	if !m.mayWriteSoon(d) || !m.affordable(d, hottest/l.interval.Seconds()) {
		return
	}
	d.phase, d.blip, d.longer = Watching, false, false
	m.watch(d, watchFor)
	if d.suspect >= suspicions {
		m.suspected(d, l)
	}
}

func (m *Machine) watch(d *device, long time.Duration) {
	d.watched = m.now
	m.act(Action{Verb: Watch, Device: d.name, IfIndex: d.ifindex, For: long})
}

// suspects counts a tick that shows a skew.
func (m *Machine) suspects(d *device, l look) {
	if d.suspect++; d.suspect == 1 {
		d.onset = m.now - l.interval
	}
}

func (m *Machine) suspected(d *device, l look) {
	d.borne = m.now
	cpu, hottest, mean, _ := l.skewed(&m.c.Limits)
	m.decide(d, Suspected, "one CPU receives more than its share", fact("cpu", cpu), fact("hottest_per_mean", hottest/mean),
		fact("packets_per_s", math.Round(hottest/l.interval.Seconds())), fact("busy_ratio", l.busy[cpu]), fact("ticks", d.suspect))
}

// bearOut looks at the ticks that come while buckets are counted, until enough of them show the skew.
func (m *Machine) bearOut(d *device, l look) {
	switch {
	case d.blip:
		return
	case d.suspect >= suspicions:
		d.suspect++ // for the ticks before a write
		return
	}
	if _, _, _, yes := l.skewed(&m.c.Limits); !yes {
		d.suspect, d.early, d.blip = 0, m.now+blipWait, true
		if d.held != nil {
			d.held, d.phase = nil, Observing
		}
		return
	}
	if m.suspects(d, l); d.suspect < suspicions {
		return
	}
	m.suspected(d, l)
	if w := d.held; w != nil {
		d.held = nil
		m.window(w)
	}
}

// affordable reports whether the overhead allows for a window now, with so many packets per second on the hottest CPU.
func (m *Machine) affordable(d *device, pps float64) bool {
	if m.c.Overhead == 0 {
		return true
	}
	gap := time.Duration(pps * float64(watchCost) * watchFor.Seconds() / (m.c.Overhead / 2))
	if poor := gap > rarest; poor != d.poor {
		d.poor = poor
		if poor {
			m.decide(d, Degraded, "the overhead leaves no room for counting buckets: there is no fast path", fact("overhead_ratio", m.c.Overhead), fact("packets_per_s", math.Round(pps)))
		}
	}
	return !d.poor && (d.watched == 0 || m.now-d.watched >= gap)
}

// mayWriteSoon keeps within the changes of a minute. In advise mode nothing is written.
func (m *Machine) mayWriteSoon(d *device) bool {
	d.writes = slices.DeleteFunc(d.writes, func(t time.Duration) bool { return m.now-t >= time.Minute })
	return d.policy.Mode != Auto || len(d.writes) < m.c.Limits.Changes
}

// situation is the packets by queue of the last n ticks.
func (d *device) situation(n int) situation {
	recent := d.recent[max(0, len(d.recent)-n):]
	if len(recent) == 0 {
		return nil
	}
	sum := make([]uint64, len(recent[0].d.Packets))
	for _, l := range recent {
		for q, n := range l.d.Packets {
			sum[q] += n
		}
	}
	return shares(sum)
}

// calmDown leaves a situation alone for a while, longer each time.
func (m *Machine) calmDown(d *device) {
	d.calm = d.situation(suspicions)
	d.calmWait = min(max(2*d.calmWait, firstWait), m.c.Limits.BackOff)
	d.calmUntil = m.now + d.calmWait
	d.phase, d.suspect = Observing, 0
}

// window decides about a table with the loads of its buckets.
func (m *Machine) window(w *Window) {
	d := m.devices[w.IfIndex]
	if d == nil || d.phase != Watching {
		return
	}
	if w.Error != "" {
		if w.Off {
			d.off = w.Error
			m.decide(d, Degraded, "tables are not watched here: "+w.Error)
		} else {
			m.decide(d, Failed, "the window was not seen: "+w.Error)
		}
		m.calmDown(d)
		return
	}
	switch {
	case d.blip:
		d.blip, d.phase, d.suspect = false, Observing, 0
		return
	case d.suspect < suspicions:
		d.held, d.heldAt = w, m.now
		return
	}
	ref := knob.Ref{Knob: knob.RSSTable, Target: knob.Target(d.name)}
	if ours, ok := d.ours[ref]; ok && !ours.Equal(knob.List(w.Table)) {
		m.yield(d, knob.RSSTable, fmt.Sprintf("somebody else set %s after us", ref))
		m.calmDown(d)
		return
	}
	p, packets := m.problem(d, w)
	if p == nil {
		m.decide(d, Settled, "too few packets came in the window, or the CPUs of the queues are not known", fact("packets", packets))
		m.calmDown(d)
		return
	}
	r, err := balance.Solve(context.Background(), *p)
	if err != nil {
		m.decide(d, Failed, "no table was found: "+err.Error())
		m.calmDown(d)
		return
	}
	numbers := []diagnose.Fact{fact("hottest_now_ratio", r.Before), fact("hottest_then_ratio", r.Hottest), fact("bound_ratio", r.Bound),
		fact("buckets", len(r.Moves)), fact("packets", packets), fact("elephants", len(r.Elephants))}
	// What the window shows of the hottest CPU scatters by its packets.
	noise := 0.0
	if packets > 0 {
		noise = 3 * r.Before * math.Sqrt(watchBurst/float64(packets))
	}
	gain := r.Before - r.Hottest
	if gain < m.c.Limits.Gain || gain < noise || len(r.Moves) == 0 {
		numbers = append(numbers, fact("noise_ratio", noise))
		why := "no table is enough better"
		switch {
		case gain >= m.c.Limits.Gain && gain < noise && !d.longer:
			// Noise falls with the root of the packets.
			long := min(max(time.Duration(float64(watchFor)*(noise/gain)*(noise/gain)), watchFor), watchLong)
			m.decide(d, Settled, "too few packets came in the window to be sure of the gain: a longer one follows", append(numbers, fact("longer_ms", long.Milliseconds()))...)
			d.longer = true
			m.watch(d, long)
			return
		case len(r.Elephants) > 0:
			why = "the load is in few flows: no table makes the hottest CPU much cooler"
		case gain >= m.c.Limits.Gain && gain < noise:
			why = "too few packets come to be sure of the gain"
		}
		m.decide(d, Settled, why, numbers...)
		m.calmDown(d)
		return
	}
	to := r.Assignments[0].Table
	why := fmt.Sprintf("the hottest CPU falls from %.0f %% to %.0f %% when %d of %d buckets move", 100*r.Before, 100*r.Hottest, len(r.Moves), len(to))
	if d.policy.Mode == Advise {
		m.decide(d, Advised, why, numbers...)
		m.calmDown(d)
		return
	}
	if !m.open {
		m.decide(d, Refused, "nothing is changed at this hour: "+why, numbers...)
		m.calmDown(d)
		return
	}
	m.decide(d, Wrote, why, append(numbers, fact("window_ms", (m.now-d.watched).Milliseconds()))...)
	d.predicted = predict(w, to, len(d.recent[len(d.recent)-1].d.Packets))
	// As it was since the onset, which may have cut the first tick.
	d.before = slices.Clone(d.recent[max(0, len(d.recent)-d.suspect):])
	if len(d.before) > suspicions {
		d.before = d.before[1:]
	}
	from := knob.List(w.Table)
	c := plan.Change{Knob: ref.Knob, Target: ref.Target, From: from, To: knob.List(to), Findings: []diagnose.ID{"RX201"}, Risk: plan.Reorder,
		Command: knob.Command(ref, knob.List(to)), Undo: knob.Command(ref, from), Why: why, Expect: "packets per queue follow the table; the hottest CPU cools"}
	m.write(d, true, []plan.Change{c})
}

// problem makes the optimiser's instance of a window. Costs and background are of the ticks around it.
func (m *Machine) problem(d *device, w *Window) (*balance.Problem, int) {
	packets := 0
	for _, n := range w.Buckets {
		packets += int(n)
	}
	if len(d.recent) == 0 || packets < least || len(w.Table) == 0 || len(w.Table) != len(w.Buckets) {
		return nil, packets
	}
	last := d.recent[len(d.recent)-1].d
	recent := d.recent[max(0, len(d.recent)-3):]
	var seconds, total float64
	perCPU, rx, busy := map[int]float64{}, map[int]float64{}, map[int]float64{}
	for _, l := range recent {
		by, ok := l.byCPU()
		if !ok {
			return nil, packets
		}
		seconds += l.interval.Seconds()
		for c, n := range by {
			perCPU[c] += n
		}
		for c := range l.busy {
			rx[c] += l.rx[c] / float64(len(recent))
			busy[c] += l.busy[c] / float64(len(recent))
		}
	}
	all := 0.0
	for _, c := range slices.Sorted(maps.Keys(perCPU)) {
		total += perCPU[c] / seconds
		all += rx[c]
	}
	if total == 0 {
		return nil, packets
	}
	// The receive time of the queues' CPUs is spread over their packets alike: what one tick shows of a single CPU is
	// coarser than the difference between two CPUs.
	cost := all / total
	p := &balance.Problem{Steps: solveSteps, Slack: 0.05}
	irq := make([]int, len(last.Packets))
	costs := make([]float64, len(irq))
	never := cpuset.Of(w.Never...)
	for q := range irq {
		irq[q], costs[q] = balance.Unused, cost
		if q < len(last.CPUs) && last.CPUs[q] >= 0 {
			irq[q] = last.CPUs[q]
		}
		if irq[q] >= 0 && (never.Contains(irq[q]) || !d.policy.Policy.CPUs.IsEmpty() && !d.policy.Policy.CPUs.Contains(irq[q])) {
			irq[q] = balance.Unused
		}
	}
	for _, q := range w.Table {
		if q < 0 || q >= len(irq) {
			return nil, packets
		}
	}
	for _, c := range slices.Sorted(maps.Keys(busy)) {
		core := -1
		if c >= 0 && c < len(w.Cores) {
			core = w.Cores[c]
		}
		background := busy[c] - cost*perCPU[c]/seconds
		p.CPUs = append(p.CPUs, balance.CPU{ID: c, Core: core, Background: max(0, background)})
	}
	loads := make([]float64, len(w.Buckets))
	for i, n := range w.Buckets {
		loads[i] = float64(n) / float64(packets) * total
	}
	p.Devices = []balance.Device{{Name: d.name, Buckets: loads, Cost: costs, Table: slices.Clone(w.Table), IRQ: irq, May: balance.Table}}
	return p, packets
}

// predict is the parts of the packets by queue under a table.
func predict(w *Window, table []int, queues int) situation {
	sum := make([]uint64, queues)
	for i, n := range w.Buckets {
		if table[i] < queues {
			sum[table[i]] += n
		}
	}
	return shares(sum)
}

func (m *Machine) write(d *device, fast bool, changes []plan.Change) {
	d.phase, d.fast, d.pending, d.asked = Applying, fast, changes, m.now
	d.writes = append(d.writes, m.now)
	m.act(Action{Verb: Write, Device: d.name, IfIndex: d.ifindex, Changes: changes, Fast: fast})
}

// done takes what became of an action.
func (m *Machine) done(r *Done) {
	d := m.devices[r.IfIndex]
	if d == nil || d.phase != Applying && d.phase != Judging {
		return
	}
	for _, ref := range r.Moved {
		m.yield(d, ref.Knob, fmt.Sprintf("somebody else set %s in between", ref))
	}
	for _, s := range r.Wrote {
		d.ours[s.Ref] = s.Value
	}
	st := m.stat(d.name)
	switch {
	case r.Error != "" && !r.Written && !r.Undone:
		what := Failed
		if r.Locked {
			what = Yielded
		}
		m.decide(d, what, r.Error)
		m.coolDown(d)
	case r.Waits: // for our judgement
		m.count(d)
		d.tx, d.phase, d.wroteAt, d.after = r.TX, Judging, m.now, nil
		reaction := m.now - d.onset
		st.Reaction, st.Reactions, st.Last = st.Reaction+reaction, st.Reactions+1, reaction
		m.decide(d, WroteDone, "the table was written and read back", append([]diagnose.Fact{fact("tx", r.TX), fact("since_onset_ms", reaction.Milliseconds())},
			m.parts(d, st, r)...)...)
	case r.Undone:
		st.Rollbacks++
		if !d.fast {
			m.count(d)
			d.failed[d.wanted] = true
		}
		for _, c := range d.pending {
			delete(d.ours, c.Ref())
			d.seenNow(c.Ref(), c.From)
		}
		m.decide(d, Reverted, cmp.Or(r.Why, r.Error), fact("tx", r.TX))
		m.coolDown(d)
	default:
		if !d.fast && r.Written {
			m.count(d)
		}
		for _, s := range r.Wrote {
			d.seenNow(s.Ref, s.Value)
		}
		m.decide(d, Kept, cmp.Or(r.Why, "kept"), fact("tx", r.TX))
		m.coolDown(d)
	}
}

// parts adds up what a reaction was made of, and tells it in ms.
func (m *Machine) parts(d *device, st *Stats, r *Done) (out []diagnose.Fact) {
	took := map[string]time.Duration{PartSuspect: d.borne - d.onset, PartWindow: d.asked - d.borne, PartDecide: m.now - d.asked - r.Took}
	maps.Copy(took, r.Parts)
	for _, p := range ReactionParts {
		st.Parts[p] += took[p]
		out = append(out, fact(p+"_ms", took[p].Milliseconds()))
	}
	return out
}

func (d *device) seenNow(r knob.Ref, v knob.Value) {
	if d.seen != nil {
		d.seen[r] = v
	}
}

// count adds what was written to the figures.
func (m *Machine) count(d *device) {
	st := m.stat(d.name)
	for _, c := range d.pending {
		st.Moves[c.Knob]++
		var from, to []int
		if c.Knob == knob.RSSTable && c.From.Decode(&from) == nil && c.To.Decode(&to) == nil && len(from) == len(to) {
			for i := range from {
				if from[i] != to[i] {
					st.Buckets++
				}
			}
		}
	}
}

// coolDown rests after a change, longer when changes follow each other.
func (m *Machine) coolDown(d *device) {
	l := &m.c.Limits
	switch {
	case d.cool == 0 || d.changed > 0 && m.now-d.changed > forgetful*d.cool:
		d.cool = l.CoolDown
	default:
		d.cool = min(2*d.cool, l.BackOff)
	}
	d.phase, d.suspect, d.changed, d.coolUntil = Cooling, 0, m.now, m.now+d.cool
	d.pending, d.tx, d.agreed = nil, "", 0
	d.calmUntil, d.calmWait = 0, 0
}

// watchAfter collects ticks after a write of the fast path and judges when there are enough.
func (m *Machine) watchAfter(d *device, l look) {
	if m.now-d.wroteAt < settle+l.interval {
		return
	}
	d.after = append(d.after, l)
	if m.now-d.wroteAt < m.c.Limits.FastJudge {
		return
	}
	worse, why, numbers := judge(d)
	numbers = append(numbers, fact("tx", d.tx))
	m.decide(d, Judged(worse), why, numbers...)
	a := Action{Verb: Confirm, Device: d.name, IfIndex: d.ifindex, TX: d.tx, Fast: true}
	if worse {
		a.Verb = Undo
		d.undone = append(d.undone, d.before[len(d.before)-1].situation())
		if len(d.undone) > 8 {
			d.undone = d.undone[1:]
		}
	}
	d.phase = Applying
	m.act(a)
}

// Judged is the word of a judgement's decision.
func Judged(worse bool) string {
	if worse {
		return JudgedWorse
	}
	return JudgedFine
}

func (l *look) situation() situation { return shares(l.d.Packets) }

// look takes what is set: who else wrote, and what a plan would change.
func (m *Machine) look(l *Look) {
	for _, r := range l.Reasons {
		if !m.said[r] && len(m.said) < 1000 {
			m.said[r] = true
			m.decide(nil, Advised, r)
		}
	}
	there := map[int]bool{}
	for _, id := range l.Devices {
		there[id.IfIndex] = true
		d := m.device(id.Name, id.IfIndex)
		if d.queues != 0 && d.queues != id.RXQueues {
			m.forget(d, fmt.Sprintf("it has %d receive queues now, not %d", id.RXQueues, d.queues))
		}
		d.queues = id.RXQueues
		m.owners(d, l)
		m.slow(d, l.Changes)
	}
	for _, d := range m.sorted() {
		if !there[d.ifindex] && d.phase != Applying {
			m.decide(d, Changed, d.name+" is gone")
			delete(m.devices, d.ifindex)
		}
	}
}

// owners yields what somebody else is known or seen to write.
func (m *Machine) owners(d *device, l *Look) {
	now := map[knob.Ref]knob.Value{}
	for _, s := range l.Settings {
		if s.Target.Device() == d.name {
			now[s.Ref] = s.Value
		}
	}
	if d.phase == Applying || d.phase == Judging {
		return // ours are on their way
	}
	for _, o := range l.Owners {
		if o.Device != "" && o.Device != d.name {
			continue
		}
		for _, k := range o.Knobs {
			if d.policy.allows(k) {
				m.yield(d, k, fmt.Sprintf("%s writes %s (%s)", o.Name, k, cmp.Or(o.Detail, "seen running")))
			}
		}
	}
	refs := slices.SortedFunc(maps.Keys(now), func(a, b knob.Ref) int { return strings.Compare(a.String(), b.String()) })
	for _, r := range refs {
		was, ok := d.seen[r]
		if ours, mine := d.ours[r]; mine {
			was, ok = ours, true
		}
		if ok && was.Known() && now[r].Known() && !was.Equal(now[r]) && d.policy.allows(r.Knob) {
			m.yield(d, r.Knob, fmt.Sprintf("somebody else set %s from %s to %s", r, clip(was.String()), clip(now[r].String())))
		}
	}
	d.seen = now
}

func clip(s string) string {
	if len(s) > 60 {
		return s[:57] + "…"
	}
	return s
}

// slow follows what a plan would change until it is convinced.
func (m *Machine) slow(d *device, all []plan.Change) {
	if d.policy.Mode == Off || d.phase != Observing {
		return
	}
	var changes []plan.Change
	var refused []string
	for _, c := range all {
		if c.Target.Device() != d.name {
			continue
		}
		if _, yielded := d.yielded[c.Knob]; yielded || !d.policy.allows(c.Knob) {
			continue
		}
		if c.Risk != plan.NoRisk && !slices.Contains(d.policy.Risks, c.Risk) && !slices.Contains(m.granted, c.Risk) {
			refused = append(refused, fmt.Sprintf("%s needs %s, which is not allowed now", c.Ref(), c.Risk))
			continue
		}
		changes = append(changes, c)
	}
	sign := signature(changes)
	if len(changes) == 0 {
		d.wanted, d.agreed = "", 0
		if text := strings.Join(refused, "; "); text != "" && d.said != text {
			d.said = text
			m.decide(d, Refused, text)
		}
		return
	}
	if sign != d.wanted {
		d.wanted, d.agreed = sign, 0
	}
	d.agreed++
	if d.agreed < m.c.Limits.Persist || d.failed[sign] || !m.mayWriteSoon(d) {
		return
	}
	why := describe(changes)
	numbers := []diagnose.Fact{fact("looks", d.agreed), fact("changes", len(changes))}
	switch {
	case d.policy.Mode == Advise:
		if d.said != sign {
			d.said = sign
			m.decide(d, Advised, why, numbers...)
		}
	case !m.open:
		if d.said != "hour "+sign {
			d.said = "hour " + sign
			m.decide(d, Refused, "nothing is changed at this hour: "+why, numbers...)
		}
	default:
		m.decide(d, Wrote, why, numbers...)
		d.onset = m.now
		m.write(d, false, changes)
	}
}

func signature(changes []plan.Change) string {
	var b strings.Builder
	for _, c := range changes {
		fmt.Fprintf(&b, "%s=%s\n", c.Ref(), c.To.JSON())
	}
	return b.String()
}

func describe(changes []plan.Change) string {
	parts := make([]string, 0, len(changes))
	for i, c := range changes {
		if i == 3 {
			parts = append(parts, fmt.Sprintf("and %d more", len(changes)-i))
			break
		}
		parts = append(parts, fmt.Sprintf("%s: %s → %s", c.Ref(), clip(c.From.String()), clip(c.To.String())))
	}
	return strings.Join(parts, "; ")
}

func fact(name string, v any) diagnose.Fact {
	if f, ok := v.(float64); ok {
		v = math.Round(f*1e4) / 1e4
	}
	if n, ok := v.(int64); ok {
		v = int(n)
	}
	return diagnose.Fact{Name: name, Value: v}
}

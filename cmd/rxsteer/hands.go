package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/rxsteer/rxsteer/bpf"
	"github.com/rxsteer/rxsteer/collector"
	"github.com/rxsteer/rxsteer/exporter"
	"github.com/rxsteer/rxsteer/internal/host/knob"
	"github.com/rxsteer/rxsteer/internal/host/nic"
	"github.com/rxsteer/rxsteer/internal/host/topo"
	"github.com/rxsteer/rxsteer/steer/apply"
	"github.com/rxsteer/rxsteer/steer/control"
	"github.com/rxsteer/rxsteer/steer/diagnose"
	"github.com/rxsteer/rxsteer/steer/plan"
)

// hands are how the loop reaches this host.
type hands struct {
	e        *env
	h        *hostRooms // of its own: looks and samples do not wait for each other
	config   atomic.Pointer[control.Config]
	ring     *collector.Ring
	sampler  *collector.Sampler
	state    *agentState
	stateDir string
	baseline *knob.Snapshot
	ticker   *collector.Ticker
	buckets  func(*collector.DeviceBuckets) // is told what windows show

	mu       sync.Mutex
	lookTook time.Duration // the last look ahead
	devices  []collector.TickDevice
	cores    []int
	never    []int
	snapshot *knob.Snapshot
	warm     map[int]bool // by ifindex: windows were tried, which loads what they need
	kept     []string     // transactions of this run, oldest first

	// ahead is a look at a device's settings while its buckets are counted: what its write will be compared with.
	ahead *ahead

	writing sync.Mutex    // one transaction at a time
	engine  *apply.Engine // open while a fast transaction waits for its judgement
	pending string        // that transaction
	ended   *control.Done // what became of it, where that is known before its judgement
	wrote   time.Time     // when the first write of the one under way began
}

func (e *env) newHands(f *agentFlags, c *control.Config, ring *collector.Ring, s *collector.Sampler, state *agentState) (*hands, error) {
	h, err := e.openHost()
	if err != nil {
		return nil, err
	}
	out := &hands{e: e, h: h, ring: ring, sampler: s, state: state, stateDir: f.stateDir, warm: map[int]bool{}}
	out.config.Store(c)
	out.ticker = &collector.Ticker{FS: e.fs, Now: time.Now}
	if h.ethtool != nil {
		out.ticker.Drivers = h.ethtool
	}
	if q, ok := h.sources.Netdev.(collector.QueueCounters); ok {
		out.ticker.Queues = q
	}
	if c.Baseline != "" {
		if out.baseline, err = readBaseline(c.Baseline); err != nil {
			h.close()
			return nil, err
		}
	}
	return out, nil
}

func (x *hands) close() { x.h.close() }

// recover undoes what an earlier agent was in the middle of when it was killed.
func (x *hands) recover(ctx context.Context) {
	txs, _, err := apply.History(x.stateDir)
	if err != nil {
		x.state.degrade("the journal", err.Error())
		return
	}
	if !slices.ContainsFunc(txs, func(t apply.Transaction) bool { return t.State == apply.Applying || t.State == apply.Journalled }) {
		return
	}
	engine, err := apply.Open(ctx, apply.Config{Dir: x.stateDir, Host: x.h.machine, Now: x.e.now})
	if err != nil {
		x.state.degrade("undoing what an earlier run left", err.Error())
		return
	}
	results, err := engine.Recover()
	for _, r := range results {
		x.state.log.Warn("loop", "decision", control.Reverted, "why", "an earlier run died in it", "tx", r.ID, "state", string(r.State))
	}
	if err := errors.Join(err, engine.Close()); err != nil {
		x.state.degrade("undoing what an earlier run left", err.Error())
	}
}

// Tick implements control.Hands.
func (x *hands) Tick() (*collector.Tick, map[string]error) {
	x.mu.Lock()
	devices := x.devices
	x.mu.Unlock()
	return x.ticker.Tick(devices)
}

// Look implements control.Hands.
func (x *hands) Look(ctx context.Context) (*control.Look, error) {
	c := x.config.Load()
	nics, err := x.h.inventory(ctx)
	if err != nil {
		return nil, err
	}
	top, err := x.h.topology()
	if err != nil {
		return nil, err
	}
	sample := collector.Merge(x.ring.Window(c.Interval)...)
	linkNAPIs(nics, sample)
	snap, err := x.h.machine.Snapshot(ctx)
	if err != nil {
		return nil, fmt.Errorf("read settings: %w", err)
	}
	if snap.Owners, err = x.h.owners(ctx, nics); err != nil {
		return nil, err
	}
	look := &control.Look{Owners: snap.Owners, Changes: []plan.Change{}, Settings: []knob.Setting{}, Devices: []plan.Device{}}
	var fast []collector.TickDevice
	var steered []string
	for _, n := range nics {
		d, named := c.For(n.Name)
		i := slices.IndexFunc(snap.Devices, func(s knob.Device) bool { return s.IfIndex == n.IfIndex })
		if d.Mode == control.Off || !n.Up && !named || i < 0 || !named && n.Kind != nic.Physical {
			continue
		}
		look.Devices = append(look.Devices, plan.Of(snap.Devices[i]))
		if !n.Up {
			continue // it may flap: who owns which setting and what was taken back is remembered
		}
		steered = append(steered, n.Name)
		if snap.Get(knob.Ref{Knob: knob.RSSTable, Target: knob.Target(n.Name)}).Known() {
			fast = append(fast, collector.TickDevice{Name: n.Name, IfIndex: n.IfIndex, Driver: n.Driver, CPUs: queueCPUs(&n)})
		}
	}
	for _, s := range snap.Settings {
		if knob.Writable(s.Knob) && slices.Contains(steered, s.Target.Device()) {
			look.Settings = append(look.Settings, s)
		}
	}
	x.warmUp(ctx, snap, fast)
	x.mu.Lock()
	x.snapshot, x.devices = snap, fast
	x.cores, x.never = cpus(top)
	x.mu.Unlock()
	told := exporter.Told{Transactions: x.transactions()}
	var first func(knob.Ref) (time.Time, bool)
	if x.baseline != nil {
		seen, why := sight(x.stateDir, x.baseline, snap, x.e.now())
		x.state.degrade("remembering when drift was seen first", why)
		first = seen.First
		told.Baseline, told.Drift = true, diagnose.Drifted(x.baseline, snap, first)
	}
	if sample != nil {
		x.countBuckets(ctx, c, snap, fast, sample)
		told.Coalescing = coalescing(nics, snap, sample)
		report := diagnose.Diagnose(diagnose.Input{Snapshot: snap, NICs: nics, Topology: top, Sample: sample, Windows: x.ring.Window(c.Interval), Devices: steered, Baseline: x.baseline, FirstSeen: first})
		told.Findings = report.Findings
		for _, name := range steered {
			x.plan(look, c, name, plan.Input{Report: report, Snapshot: snap, Topology: top, NICs: nics, Sample: sample})
		}
	}
	x.state.tell(told)
	return look, nil
}

// warmUp has the programs for windows loaded before one is needed at once.
func (x *hands) warmUp(ctx context.Context, snap *knob.Snapshot, fast []collector.TickDevice) {
	for _, d := range fast {
		rss, ok := collector.RSSOf(snap, d.Name)
		if !ok || x.warm[d.IfIndex] || x.config.Load().Level == 0 {
			continue
		}
		x.warm[d.IfIndex] = true
		if _, err := x.sampler.Buckets(ctx, rss, 0); err != nil {
			x.state.degrade("counting buckets of "+d.Name, err.Error())
		}
	}
}

// perLook is how long buckets are counted for each look: 1.5 % of the time at the default interval, or some 0.1 % of a CPU
// for a million packets a second.
const perLook = 150 * time.Millisecond

// countBuckets adds a window of each device to a sample that has none, so that plans and metrics know what entries carry.
func (x *hands) countBuckets(ctx context.Context, c *control.Config, snap *knob.Snapshot, fast []collector.TickDevice, sample *collector.Sample) {
	if c.Level < 2 || sample.Buckets != nil || c.Interval < 10*time.Second {
		return
	}
	for _, d := range fast {
		rss, ok := collector.RSSOf(snap, d.Name)
		if !ok {
			continue
		}
		b, err := x.sampler.Buckets(ctx, rss, perLook)
		if err != nil {
			continue // warmUp said so
		}
		x.buckets(b)
		sample.Buckets = append(sample.Buckets, *b)
	}
}

// plan adds what would be changed of one device.
func (x *hands) plan(look *control.Look, c *control.Config, name string, in plan.Input) {
	d, _ := c.For(name)
	in.Goal, in.Policy = d.Goal, d.Policy
	in.Policy.Devices = []string{name}
	driver := ""
	if i := slices.IndexFunc(in.NICs, func(n nic.NIC) bool { return n.Name == name }); i >= 0 {
		driver = in.NICs[i].Driver
	}
	for _, ch := range plan.Make(in).Changes {
		switch {
		case ch.Target.Device() != name:
		case d.Mode == control.Auto && !nic.Support(driver, ch.Knob).Run():
			look.Reasons = append(look.Reasons, fmt.Sprintf("%s: left to a person, for it was never tried on driver %s (docs/support.md)", ch.Ref(), driver))
		default:
			look.Changes = append(look.Changes, ch)
		}
	}
}

// coalescing is the median interval between a device's interrupts per rx-usecs, where both are known.
func coalescing(nics []nic.NIC, snap *knob.Snapshot, sample *collector.Sample) map[string]float64 {
	out := map[string]float64{}
	for _, n := range nics {
		var set map[string]any
		if snap.Get(knob.Ref{Knob: knob.Coalesce, Target: knob.Target(n.Name)}).Decode(&set) != nil {
			continue
		}
		usecs, ok := set["rx-usecs"].(float64)
		if adaptive, _ := set["adaptive-rx"].(bool); !ok || usecs <= 0 || adaptive {
			continue
		}
		var gaps collector.GapHistogram
		for _, q := range n.Queues {
			for i := range sample.Pacing {
				if q.IRQ == sample.Pacing[i].IRQ && q.IRQ >= 0 {
					gaps.Add(&sample.Pacing[i].Hist)
				}
			}
		}
		if gaps.Count() >= collector.LeastGaps {
			median, _, _ := gaps.Quantile(0.5)
			out[n.Name] = median / 1e3 / usecs
		}
	}
	return out
}

// queueCPUs is where the interrupt of each rx queue goes, -1 not known.
func queueCPUs(n *nic.NIC) []int {
	rx, _ := n.QueueCount()
	out := make([]int, rx)
	for i := range out {
		out[i] = -1
	}
	for _, q := range n.Queues {
		if q.RX < 0 || q.RX >= rx {
			continue
		}
		at := q.Effective
		if at.IsEmpty() {
			at = q.Affinity
		}
		if at.Len() == 1 {
			out[q.RX] = at.First()
		}
	}
	return out
}

// cpus is the physical core of each CPU, -1 not told, and the CPUs that no work may go to.
func cpus(t *topo.Topology) (cores, never []int) {
	for _, c := range t.CPUs {
		for len(cores) <= c.ID {
			cores = append(cores, -1)
		}
		cores[c.ID] = c.Core
	}
	return cores, t.Online.Minus(diagnose.Usable(t)).Slice()
}

func (x *hands) transactions() map[apply.State]int {
	out := map[apply.State]int{apply.Kept: 0, apply.RolledBack: 0, apply.Partial: 0, apply.Unconfirmed: 0, apply.Applying: 0}
	txs, _, err := apply.History(x.stateDir)
	if err != nil {
		x.state.degrade("the journal", err.Error())
		return nil
	}
	x.state.degrade("the journal", "")
	for _, t := range txs {
		out[t.State]++
	}
	return out
}

// Watch implements control.Hands.
func (x *hands) Watch(ctx context.Context, a control.Action) *control.Window {
	x.mu.Lock()
	snap := x.snapshot
	w := &control.Window{Cores: x.cores, Never: x.never}
	x.mu.Unlock()
	if snap == nil {
		w.Error = "settings were not read yet"
		return w
	}
	rss, ok := collector.RSSOf(snap, a.Device)
	if !ok {
		w.Error = "the device is gone"
		return w
	}
	table := x.h.machine.Read(ctx, knob.Ref{Knob: knob.RSSTable, Target: knob.Target(a.Device)})
	if err := table.Decode(&w.Table); err != nil || len(w.Table) == 0 {
		w.Error = "its table cannot be read: " + table.Reason()
		return w
	}
	rss.Table = w.Table
	if d, _ := x.config.Load().For(a.Device); d.Mode == control.Auto {
		x.lookAhead(ctx, a)
	}
	b, err := x.sampler.Buckets(ctx, rss, a.For)
	if err != nil {
		w.Error = err.Error()
		w.Off = errors.Is(err, bpf.ErrNoPrivilege) || errors.Is(err, bpf.ErrNoBTF) || errors.Is(err, bpf.ErrNoTracepoint)
		return w
	}
	w.Buckets = b.Packets
	x.buckets(b)
	return w
}

// ahead is a look at a device that is under way or was taken.
type ahead struct {
	ifindex int
	done    chan struct{} // closed when it was taken
	seen    *knob.Snapshot
}

// lookAhead looks at a device so that it is done when its window is, by how long that took the last time.
func (x *hands) lookAhead(ctx context.Context, a control.Action) {
	l := &ahead{ifindex: a.IfIndex, done: make(chan struct{})}
	x.mu.Lock()
	x.ahead = l
	wait := a.For - x.lookTook
	x.mu.Unlock()
	go func() {
		defer close(l.done)
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait):
		}
		start := time.Now()
		s, err := x.h.machine.Snapshot(ctx, a.Device)
		if err != nil {
			return // the write looks itself
		}
		x.mu.Lock()
		x.lookTook = time.Since(start)
		x.mu.Unlock()
		l.seen = s
	}()
}

// looked is what was seen ahead of a device, nil nothing.
func (x *hands) looked(ifindex int) *knob.Snapshot {
	x.mu.Lock()
	l := x.ahead
	x.ahead = nil
	x.mu.Unlock()
	if l == nil || l.ifindex != ifindex {
		return nil
	}
	<-l.done
	return l.seen
}

// open takes the journal's lock, and puts right what somebody left.
func (x *hands) open(sample apply.Sampler) error {
	engine, err := apply.Open(context.Background(), apply.Config{Dir: x.stateDir, Host: x.h.machine, Now: x.e.now, Sample: sample,
		Progress: func(string) {
			if x.wrote.IsZero() {
				x.wrote = time.Now()
			}
		}})
	if err != nil {
		return err
	}
	if _, err := engine.Recover(); err != nil {
		return errors.Join(err, engine.Close())
	}
	x.engine = engine
	return nil
}

// shut gives the journal's lock back.
func (x *hands) shut() {
	if x.engine != nil {
		if err := x.engine.Close(); err != nil {
			x.state.degrade("the journal", err.Error())
		}
		x.engine = nil
	}
	x.pending, x.ended = "", nil
}

// Do implements control.Hands.
func (x *hands) Do(ctx context.Context, a control.Action) *control.Done {
	x.writing.Lock()
	defer x.writing.Unlock()
	if a.Verb == control.Write && x.pending != "" { // its transaction stays open
		return doneOf(nil, errors.New("another device's change is being judged"))
	}
	if x.ended != nil && x.pending == a.TX {
		done := x.ended
		x.shut()
		return done
	}
	start := time.Now()
	var res *apply.Result
	var parts map[string]time.Duration
	var err error
	switch {
	case a.Verb == control.Write && a.Fast:
		res, parts, err = x.begin(ctx, a)
	case a.Verb == control.Write:
		res, err = x.apply(ctx, a)
	case x.engine == nil:
		err = errors.New("the transaction is not open any more")
	case a.Verb == control.Confirm:
		res, err = x.engine.Keep(ctx, nil, nil)
	default:
		res, err = x.engine.Rollback(a.TX)
	}
	done := doneOf(res, err)
	if why := refusal(res, err); why != "" {
		x.state.degrade("writing settings of "+a.Device, why)
	} else if done.Written {
		x.state.degrade("writing settings of "+a.Device, "")
	}
	done.Took, done.Parts = time.Since(start), parts
	if done.Waits {
		x.pending = done.TX
		go x.beside(done.TX)
	} else {
		x.shut()
	}
	if res != nil && res.State == apply.Kept {
		x.mu.Lock()
		x.kept = append(x.kept, res.ID)
		x.mu.Unlock()
	}
	return done
}

// beside looks at what else changed with a write once the loop knows that it is done.
func (x *hands) beside(tx string) {
	x.writing.Lock()
	defer x.writing.Unlock()
	if x.pending != tx {
		return
	}
	if res, err := x.engine.Beside(context.Background()); err != nil || res.State != apply.Applying {
		x.ended = doneOf(res, err)
	}
}

// begin makes a change of the fast path; parts is what took how long.
func (x *hands) begin(ctx context.Context, a control.Action) (res *apply.Result, parts map[string]time.Duration, err error) {
	start := time.Now()
	if err := x.open(nil); err != nil {
		return nil, nil, err
	}
	opened := time.Now()
	x.wrote = time.Time{}
	res, err = x.engine.Begin(ctx, x.planOf(a), apply.Options{Near: true, Base: x.looked(a.IfIndex), Allow: x.granted(a)})
	if !x.wrote.IsZero() {
		parts = map[string]time.Duration{control.PartOpen: opened.Sub(start), control.PartCheck: x.wrote.Sub(opened), control.PartWrite: time.Since(x.wrote)}
	}
	return res, parts, err
}

// apply makes a change of the slow path, which the transaction judges by samples of its own.
func (x *hands) apply(ctx context.Context, a control.Action) (*apply.Result, error) {
	samples, cancel := x.ring.Subscribe()
	defer cancel()
	m := &meter{sampling: &sampling{samples: samples}, ended: true}
	if err := x.open(m.sample); err != nil {
		return nil, err
	}
	c := x.config.Load()
	return x.engine.Apply(ctx, x.planOf(a), apply.Options{Allow: x.granted(a), Window: beat, Windows: max(3, int(c.Limits.Judge/beat))})
}

func (x *hands) granted(a control.Action) []plan.Risk {
	c := x.config.Load()
	d, _ := c.For(a.Device)
	_, hour := c.Open(x.e.now())
	return slices.Concat(d.Risks, hour)
}

// planOf is the changes with what they were made for.
func (x *hands) planOf(a control.Action) *plan.Plan {
	x.mu.Lock()
	snap := x.snapshot
	x.mu.Unlock()
	p := &plan.Plan{Version: plan.Version, Goal: plan.Balanced, Changes: a.Changes, Reasons: []string{"made by rxsteer agent"},
		Identity: plan.Identity{BootID: snap.Host.BootID, Netns: snap.Host.Netns, Kernel: snap.Host.Kernel, Devices: []plan.Device{}}}
	for _, d := range snap.Devices {
		if d.IfIndex == a.IfIndex {
			p.Identity.Devices = append(p.Identity.Devices, plan.Of(d))
		}
	}
	return p
}

// doneOf is a transaction's result in the loop's words.
func doneOf(res *apply.Result, err error) *control.Done {
	done := &control.Done{}
	if err != nil {
		done.Error = err.Error()
		done.Locked = errors.Is(err, apply.ErrLocked)
		if errors.Is(err, os.ErrPermission) {
			done.Error += " (changing the host needs root)"
		}
	}
	if res == nil {
		return done
	}
	done.TX, done.Why = res.ID, res.Why
	done.Waits = err == nil && res.State == apply.Applying
	done.Undone = res.State == apply.RolledBack || res.State == apply.Partial
	for _, s := range res.Steps {
		switch s.Outcome {
		case apply.Stale:
			done.Moved = append(done.Moved, s.Ref)
		case apply.Applied, apply.Adjusted:
			done.Written = true
			done.Wrote = append(done.Wrote, knob.Setting{Ref: s.Ref, Value: s.Got})
		}
	}
	if done.Error == "" && !done.Written && !done.Undone && len(done.Moved) > 0 {
		done.Error = res.Why
	}
	if done.Undone {
		done.Wrote = nil
	}
	return done
}

// refusal is why this host lets nobody write, as a container or a read-only /sys does; "" where it is none of that.
func refusal(res *apply.Result, err error) string {
	for _, refused := range []error{syscall.EROFS, os.ErrPermission} {
		if errors.Is(err, refused) {
			return err.Error()
		}
		if res == nil {
			continue
		}
		for _, s := range res.Steps {
			if s.Outcome == apply.Failed && (strings.Contains(s.Note, syscall.EROFS.Error()) || strings.Contains(s.Note, syscall.EACCES.Error()) || strings.Contains(s.Note, syscall.EPERM.Error())) {
				return s.Note
			}
		}
	}
	return ""
}

// finish ends what is under way and, where the policy says so, puts back what this run changed, newest first.
func (x *hands) finish() error {
	x.writing.Lock()
	defer x.writing.Unlock()
	var errs []error
	if x.pending != "" && x.ended == nil { // not judged yet
		res, err := x.engine.Rollback(x.pending)
		if err != nil {
			errs = append(errs, err)
		} else {
			x.state.log.Info("loop", "decision", control.Reverted, "why", "the agent stops before it was judged", "tx", res.ID)
		}
	}
	x.shut()
	if x.config.Load().OnStop != control.Restore || len(x.kept) == 0 {
		return errors.Join(errs...)
	}
	if err := x.open(nil); err != nil {
		return errors.Join(append(errs, err)...)
	}
	for _, id := range slices.Backward(x.kept) {
		res, err := x.engine.Rollback(id)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		x.state.log.Info("loop", "decision", control.Reverted, "why", "the policy is to restore", "tx", id, "state", string(res.State))
	}
	x.shut()
	return errors.Join(errs...)
}

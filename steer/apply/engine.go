package apply

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/bits"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rxsteer/rxsteer/collector"
	"github.com/rxsteer/rxsteer/internal/cpuset"
	"github.com/rxsteer/rxsteer/internal/host/knob"
	"github.com/rxsteer/rxsteer/internal/host/nic"
	"github.com/rxsteer/rxsteer/internal/host/reach"
	"github.com/rxsteer/rxsteer/steer/plan"
)

// Engine runs transactions on one host. It holds the lock of its journal
// until Close. It is not safe for concurrent use.
type Engine struct {
	c      Config
	j      *journal
	unlock func() error
	host   knob.Identity
	open   *running // begun and not judged yet
}

// Open takes the lock and reads the journal of this boot. Errors wrap ErrLocked and ErrNewer.
// Call Recover before anything else that writes.
func Open(ctx context.Context, c Config) (*Engine, error) {
	c.Dir = cmp.Or(c.Dir, DefaultDir)
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Uptime == nil {
		c.Uptime = uptime
	}
	host, err := c.Host.Identity(ctx)
	if err != nil {
		return nil, fmt.Errorf("identify host: %w", err)
	}
	if host.BootID == "" {
		return nil, errors.New("identify host: it does not tell its boot ID, without which a journal cannot be trusted")
	}
	j, unlock, err := openJournal(c.Dir, host.BootID, c.Now, c.wrap)
	if err != nil {
		return nil, err
	}
	return &Engine{c: c, j: j, unlock: unlock, host: host}, nil
}

// uptime is the time since boot, suspend included.
func uptime() time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts); err != nil {
		return 0 // cannot fail for a clock every kernel since 2.6.39 has
	}
	return time.Duration(ts.Nano())
}

// Close gives the lock back.
func (e *Engine) Close() error { return e.unlock() }

// Transactions lists those of this boot, oldest first.
func (e *Engine) Transactions() []Transaction {
	var out []Transaction
	for _, t := range e.j.txs {
		out = append(out, *t)
	}
	return out
}

func (e *Engine) progress(format string, args ...any) {
	if e.c.Progress != nil {
		e.c.Progress(fmt.Sprintf(format, args...))
	}
}

const defaultWindow = time.Second

// running is a transaction between its begin and its verdict.
type running struct {
	t   *Transaction
	res *Result
	o   Options
	// first is the host before the first write, seen the last look around.
	first, seen *knob.Snapshot
	// unseen: the last step was written, and nobody has looked yet at what else changed with it.
	unseen bool
	// Before the first write: what the devices that may be rebuilt are connected to, and which queue each
	// of their vectors serves.
	around  *reach.State
	vectors map[string]map[int]string
	pins    map[string][]pin
	moved   map[int]string // why a change of a vector is not made, by index
}

// Apply makes a plan true as one transaction, and judges each step and the whole by what is measured
// around it. A step is the changes of one setting of one device. Errors before the first write
// (ErrIdentity, ErrRisk, ErrUnfinished, ErrStale, a bad change) leave the host as it was and the
// journal without an entry; afterwards a Result always comes back, with an error only when the
// journal could not be written.
func (e *Engine) Apply(ctx context.Context, p *plan.Plan, o Options) (*Result, error) {
	o.Windows, o.Window = cmp.Or(o.Windows, 5), cmp.Or(o.Window, defaultWindow)
	o.Settle = cmp.Or(o.Settle, o.Window/2)
	res, now, err := e.ready(ctx, p, o)
	if err != nil || res.Why != "" {
		return res, err
	}
	var before, last []*collector.Sample
	if e.c.Sample != nil {
		e.progress("measure before")
		if before, err = e.windows(ctx, o); err != nil {
			return nil, fmt.Errorf("apply: measure before: %w", err)
		}
		last, now = before, nil // the host may have changed meanwhile
	}
	r, err := e.begin(ctx, p, res, o, now)
	if err != nil {
		return nil, err
	}
	for i := 0; i < len(res.Steps); {
		was, from := r.seen, i
		var why string
		if i, why = e.step(ctx, r, i); why != "" {
			return e.undo(r.t, res, why)
		}
		if e.c.Sample == nil || !wrote(res.Steps[from:i]) {
			continue
		}
		e.progress("settle")
		if !sleep(ctx, o.Settle) {
			return e.undo(r.t, res, "interrupted")
		}
		e.progress("measure after")
		after, err := e.windows(ctx, o)
		if err != nil {
			return e.undo(r.t, res, fmt.Sprintf("could not be judged: %v", err))
		}
		v := Judge(scopeOf(p.Changes[from:i], was, r.seen), last, after)
		res.Judged = append(res.Judged, Judged{Knob: res.Steps[from].Knob, Device: res.Steps[from].Target.Device(), First: from, Count: i - from, Verdict: v})
		if v.Word == Worse {
			return e.undo(r.t, res, worse(res, v))
		}
		last = after
		// What changed while we measured is not the next step's doing.
		if i < len(res.Steps) {
			if err := e.later(ctx, r); err != nil {
				return e.undo(r.t, res, err.Error())
			}
		}
	}
	return e.keep(ctx, r, before, last)
}

// worse says which step was.
func worse(res *Result, v *Verdict) string {
	j := res.Judged[len(res.Judged)-1]
	if j.Count == len(res.Steps) {
		return "worse: " + v.Why
	}
	return fmt.Sprintf("worse after %s of %s: %s; rxsteer trial measures each change alone", j.Knob, cmp.Or(j.Device, "the host"), v.Why)
}

// wrote reports whether any of these steps changed the host.
func wrote(steps []Step) bool {
	return slices.ContainsFunc(steps, func(s Step) bool { return s.Outcome == Applied || s.Outcome == Adjusted })
}

// Begin makes a plan true and does not wait for a verdict: for a caller that measures all the time and
// must act within milliseconds. Everything Apply checks before and between its writes is checked;
// with Options.Near only the plan's own devices are looked at for that, which on hosts with many others is
// most of the time, and what else changed with the last write is not looked at before Beside, which is
// to be called at once. A Result whose State is Applying waits for Keep, which judges it, or
// Drop; until then no other transaction begins, and should the process die the next run undoes
// it. Any other State is an end: nothing to do, or already undone.
func (e *Engine) Begin(ctx context.Context, p *plan.Plan, o Options) (*Result, error) {
	res, now, err := e.ready(ctx, p, o)
	if err != nil || res.Why != "" {
		return res, err
	}
	r, err := e.begin(ctx, p, res, o, now)
	if err != nil {
		return nil, err
	}
	for i := 0; i < len(res.Steps); {
		var why string
		if i, why = e.step(ctx, r, i); why != "" {
			return e.undo(r.t, res, why)
		}
	}
	res.State = Applying
	e.open = r
	return res, nil
}

// Beside looks at what else changed with the last write of Begin with Options.Near, and puts that back. A State other
// than Applying is an end: it could not, and all was undone. It is called once at most; Keep does it where nobody has.
func (e *Engine) Beside(ctx context.Context) (*Result, error) {
	r := e.open
	if r == nil || r.t.State != Applying {
		return nil, fmt.Errorf("look beside: %w: none was begun", ErrNoSuch)
	}
	if !r.unseen {
		return r.res, nil
	}
	if why := e.beside(ctx, r, r.res.Steps[len(r.res.Steps)-1].Target.Device()); why != "" {
		e.open = nil
		return e.undo(r.t, r.res, why)
	}
	return r.res, nil
}

// Keep judges what Begin wrote by samples the caller took before it and after it (at least three on
// each side, no younger than the last write plus the time the load needs to settle; nil keeps without a
// verdict), and keeps it or, when it is worse, puts it back.
func (e *Engine) Keep(ctx context.Context, before, after []*collector.Sample) (*Result, error) {
	r := e.open
	if r == nil || r.t.State != Applying {
		return nil, fmt.Errorf("keep: %w: none was begun", ErrNoSuch)
	}
	if res, err := e.Beside(ctx); e.open == nil {
		return res, err
	}
	e.open = nil
	return e.keep(ctx, r, before, after)
}

// Drop puts back what Begin wrote.
func (e *Engine) Drop(why string) (*Result, error) {
	r := e.open
	if r == nil || r.t.State != Applying {
		return nil, fmt.Errorf("drop: %w: none was begun", ErrNoSuch)
	}
	if res, err := e.Beside(context.Background()); e.open == nil {
		return res, err
	}
	e.open = nil
	return e.undo(r.t, r.res, why)
}

// keep judges the whole and ends a transaction.
func (e *Engine) keep(ctx context.Context, r *running, before, after []*collector.Sample) (*Result, error) {
	res := r.res
	if before != nil && after != nil {
		res.Verdict = Judge(scopeOf(r.t.Plan.Changes, r.first, r.seen), before, after)
		if res.Verdict.Word == Worse {
			return e.undo(r.t, res, "worse: "+res.Verdict.Why)
		}
	}
	e.still(ctx, res)
	if err := e.later(ctx, r); err != nil {
		return e.undo(r.t, res, err.Error())
	}
	e.others(ctx, res)
	if ctx.Err() != nil {
		return e.undo(r.t, res, "interrupted")
	}
	state := record{Type: recState, TX: r.t.ID, State: Kept, Why: "applied", Verdict: res.Verdict}
	if res.Verdict != nil {
		state.Why = string(res.Verdict.Word) + ": " + res.Verdict.Why
	}
	if r.o.ConfirmWithin > 0 {
		state.State, state.Deadline = Unconfirmed, e.c.Uptime()+r.o.ConfirmWithin
		res.Confirm = r.o.ConfirmWithin
	}
	if err := e.j.append(state); err != nil {
		// A change nobody can take back later is no change to keep.
		return e.undo(r.t, res, err.Error())
	}
	res.State, res.Why = state.State, state.Why
	return res, nil
}

// ready checks everything that can be checked before the journal has an entry. A Result with a Why
// has nothing to do.
func (e *Engine) ready(ctx context.Context, p *plan.Plan, o Options) (*Result, *knob.Snapshot, error) {
	for _, t := range e.j.txs {
		if !t.finished() && e.ours(t) {
			return nil, nil, fmt.Errorf("apply: %w: %s is %s; confirm it or roll it back", ErrUnfinished, t.ID, t.State)
		}
	}
	if err := allowed(p, o); err != nil {
		return nil, nil, fmt.Errorf("apply: %w", err)
	}
	snap := e.recent(o)
	if snap == nil {
		var err error
		if snap, err = e.look(ctx, p, o); err != nil {
			return nil, nil, fmt.Errorf("apply: %w", err)
		}
	}
	if err := e.check(p, snap); err != nil {
		return nil, nil, fmt.Errorf("apply: %w", err)
	}
	if err := limits(p, snap); err != nil {
		return nil, nil, fmt.Errorf("apply: %w", err)
	}
	if err := e.memory(p, snap); err != nil {
		return nil, nil, fmt.Errorf("apply: %w", err)
	}
	res := &Result{State: Planned, Steps: make([]Step, len(p.Changes)), Unasked: []Unasked{}, Left: []Left{}}
	for i, c := range p.Changes {
		res.Steps[i] = Step{Ref: c.Ref(), From: c.From, To: c.To, Outcome: Skipped}
	}
	if len(p.Changes) == 0 {
		res.Why = "the plan has no changes"
		return res, snap, nil
	}
	if todo, stale := e.todo(ctx, res); todo == 0 {
		if stale > 0 {
			e.others(ctx, res)
			by := ""
			for _, o := range res.Owners {
				by += fmt.Sprintf("; %s writes it too (%s); to settle it: %s", o.Name, o.Detail, strings.Join(o.Settle, "; "))
			}
			return res, snap, fmt.Errorf("apply: %w: %d of %d; make a new plan%s", ErrStale, stale, len(res.Steps), by)
		}
		res.Why = "every setting already has the value planned"
	}
	return res, snap, nil
}

// begin journals a transaction; nothing is written to the host yet. base is the host as ready saw it a
// moment ago, nil when that is longer ago.
func (e *Engine) begin(ctx context.Context, p *plan.Plan, res *Result, o Options, base *knob.Snapshot) (*running, error) {
	if base == nil {
		var err error
		if base, err = e.look(ctx, p, o); err != nil {
			return nil, fmt.Errorf("apply: %w", err)
		}
		if err := e.check(p, base); err != nil {
			return nil, fmt.Errorf("apply: %w", err)
		}
	}
	r := &running{res: res, o: o, first: base, seen: base}
	if err := e.surroundings(ctx, r, p); err != nil {
		return nil, fmt.Errorf("apply: %w", err)
	}
	res.ID = strconv.Itoa(len(e.j.txs) + 1)
	if err := e.j.append(record{Type: recBegin, TX: res.ID, Plan: p, By: o.By, Pins: r.pins}); err != nil {
		return nil, fmt.Errorf("apply: %w; nothing was changed", err)
	}
	r.t = e.j.find(res.ID)
	if o.Begun != nil {
		if err := o.Begun(res.ID); err != nil {
			_, uerr := e.undo(r.t, res, err.Error())
			return nil, errors.Join(fmt.Errorf("apply: %w", err), uerr)
		}
	}
	return r, nil
}

// freshFor is how old what a write is compared with may be: what others do meanwhile would count as done by the write.
const freshFor = time.Second

// recent is the caller's look at the plan's devices, nil where it is too old or of another host.
func (e *Engine) recent(o Options) *knob.Snapshot {
	if o.Base == nil || o.Base.Host != e.host {
		return nil
	}
	if age := e.c.Now().Sub(o.Base.Taken); age < 0 || age > freshFor {
		return nil
	}
	return o.Base
}

// look reads everything that is set, or with Near what is set on the plan's own devices.
func (e *Engine) look(ctx context.Context, p *plan.Plan, o Options) (*knob.Snapshot, error) {
	if o.Near {
		if near := devicesOf(p.Changes); len(near) > 0 {
			return e.c.Host.Snapshot(ctx, near...)
		}
	}
	return e.c.Host.Snapshot(ctx)
}

func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}

// allowed refuses changes no plan may hold and risks that were not granted.
func allowed(p *plan.Plan, o Options) error {
	grants := o.Allow
	if grants == nil {
		grants = []plan.Risk{plan.Reorder}
	}
	seen := map[knob.Ref]bool{}
	for i, c := range p.Changes {
		if err := plan.Check(c, cpuset.Set{}); err != nil {
			return fmt.Errorf("change %d (%s): %w", i+1, c.Ref(), err)
		}
		if seen[c.Ref()] {
			return fmt.Errorf("change %d: %s is already changed by this plan", i+1, c.Ref())
		}
		seen[c.Ref()] = true
		risk := riskOf(p, c)
		if risk != plan.NoRisk && !slices.Contains(grants, risk) {
			return fmt.Errorf("change %d (%s): %w: %s; grant it with --allow %s", i+1, c.Ref(), ErrRisk, risk, risk)
		}
		if (risk == plan.Pause || risk == plan.Flap) && o.ConfirmWithin <= 0 {
			return fmt.Errorf("change %d (%s): %w: %s without --confirm-within", i+1, c.Ref(), ErrRisk, risk)
		}
	}
	return nil
}

// riskOf is what a change may do to traffic: what the plan says, but never less than what is known of
// the driver. Plans are edited by hand.
func riskOf(p *plan.Plan, c plan.Change) plan.Risk {
	least := plan.NoRisk
	i := slices.IndexFunc(p.Identity.Devices, func(d plan.Device) bool { return d.Name == c.Target.Device() })
	if i >= 0 {
		d := p.Identity.Devices[i]
		if d.Bus != "" && (c.Knob == knob.Channels || c.Knob == knob.Rings) { // of hardware, not of a veth
			least = plan.Pause
		}
		if slices.ContainsFunc(nic.Facts(d.Driver), func(f nic.Fact) bool { return f.Kind == nic.Flaps && f.Text == string(c.Knob) }) {
			least = plan.Flap
		}
	}
	order := []plan.Risk{plan.NoRisk, plan.Reorder, plan.Pause, plan.Flap}
	return order[max(slices.Index(order, least), slices.Index(order, c.Risk))]
}

// check refuses a plan made for another boot, namespace or device.
func (e *Engine) check(p *plan.Plan, s *knob.Snapshot) error {
	differs := func(what string, want, is any) error {
		return fmt.Errorf("%w: %s was %v and is %v; make a new plan", ErrIdentity, what, want, is)
	}
	id := p.Identity
	switch {
	case id.BootID != s.Host.BootID:
		return differs("boot ID", id.BootID, s.Host.BootID)
	case id.Netns != s.Host.Netns:
		return differs("network namespace", id.Netns, s.Host.Netns)
	}
	online, err := cpuset.ParseList(s.Host.CPUs)
	if err != nil {
		return fmt.Errorf("identify host: online CPUs: %w", err)
	}
	want := map[string]plan.Device{}
	for _, d := range id.Devices {
		want[d.Name] = d
	}
	is := map[string]plan.Device{}
	for _, d := range s.Devices {
		is[d.Name] = plan.Of(d)
	}
	for i, c := range p.Changes {
		if err := plan.Check(c, online); err != nil {
			return fmt.Errorf("change %d (%s): %w", i+1, c.Ref(), err)
		}
		dev := c.Target.Device()
		if dev == "" {
			continue
		}
		w, ok := want[dev]
		if !ok {
			return fmt.Errorf("%w: its identity does not name %s; make a new plan", ErrIdentity, dev)
		}
		d, ok := is[dev]
		switch {
		case !ok:
			return fmt.Errorf("%w: there is no device %s here", ErrIdentity, dev)
		case d.IfIndex != w.IfIndex:
			return differs("ifindex of "+dev, w.IfIndex, d.IfIndex)
		case d.Bus != w.Bus:
			return differs("bus address of "+dev, w.Bus, d.Bus)
		case d.Driver != w.Driver:
			return differs("driver of "+dev, w.Driver, d.Driver)
		case d.RXQueues != w.RXQueues || d.TXQueues != w.TXQueues:
			return differs("queues of "+dev, fmt.Sprintf("%d rx %d tx", w.RXQueues, w.TXQueues), fmt.Sprintf("%d rx %d tx", d.RXQueues, d.TXQueues))
		case d.Table != w.Table:
			return differs("table size of "+dev, w.Table, d.Table)
		}
	}
	return nil
}

// todo reads every setting and counts those to write and those that moved.
func (e *Engine) todo(ctx context.Context, res *Result) (todo, stale int) {
	for i := range res.Steps {
		s := &res.Steps[i]
		s.Got = e.c.Host.Read(ctx, s.Ref)
		switch {
		case knob.Done(s.Got, s.To):
			s.Outcome = Already
		case !knob.Unmoved(s.Got, s.From, s.To):
			s.Outcome, s.Note = Stale, moved(s.From, s.Got)
			stale++
		default:
			s.Outcome = Skipped
			todo++
		}
	}
	return todo, stale
}

func moved(from, is knob.Value) string {
	if !is.Known() {
		return fmt.Sprintf("planned on %s, now %s: %s", text(from), text(is), is.Reason())
	}
	return fmt.Sprintf("planned on %s, now %s: somebody else changed it, left alone", text(from), text(is))
}

// text shows a value; the empty CPU set as "off".
func text(v knob.Value) string {
	if s := v.String(); s != "" {
		return s
	}
	return "off"
}

// windows measures the windows of one side; none without a sampler.
func (e *Engine) windows(ctx context.Context, o Options) ([]*collector.Sample, error) {
	if e.c.Sample == nil {
		return nil, nil
	}
	var out []*collector.Sample
	for range o.Windows {
		s, err := e.c.Sample(ctx, o.Window)
		if err != nil {
			return nil, err
		}
		out = append(out, s)
	}
	return out, nil
}

// step makes the changes from index i to the end of their step, looks around after them, and returns
// the index of the next step, or why the transaction must be undone.
func (e *Engine) step(ctx context.Context, r *running, i int) (next int, why string) {
	if r.t.State == Journalled {
		if err := e.j.append(record{Type: recState, TX: r.t.ID, State: Applying}); err != nil {
			return i, err.Error()
		}
	}
	first, begin := r.res.Steps[i], i
	for ; i < len(r.res.Steps); i++ {
		s := &r.res.Steps[i]
		if s.Knob != first.Knob || s.Target.Device() != first.Target.Device() {
			break
		}
		if ctx.Err() != nil {
			return i, "interrupted"
		}
		if why, ok := r.moved[i]; ok {
			s.Outcome, s.Note = Stale, why
			continue
		}
		if why := e.writeOne(ctx, r.t, i, s); why != "" {
			return i, why
		}
	}
	if slices.ContainsFunc(r.t.Plan.Changes[begin:i], rebuilds) && wrote(r.res.Steps[begin:i]) {
		device := first.Target.Device()
		if why := e.back(ctx, r, device); why != "" {
			return i, why
		}
		if err := e.renumbered(ctx, r, i, device); err != nil {
			return i, err.Error()
		}
		planned := func(p pin) bool {
			return slices.ContainsFunc(r.t.Plan.Changes, func(c plan.Change) bool {
				return c.Knob == knob.IRQAffinity && c.Target == knob.On(device, "irq-%d", p.IRQ)
			})
		}
		if _, err := e.repin(ctx, r.t, r.res, device, planned); err != nil {
			return i, err.Error()
		}
	}
	if r.o.Near && i == len(r.res.Steps) {
		r.unseen = true
		return i, ""
	}
	return i, e.beside(ctx, r, first.Target.Device())
}

// beside looks around after a step on a device and puts back what changed with it; or says why the transaction must be
// undone.
func (e *Engine) beside(ctx context.Context, r *running, device string) string {
	r.unseen = false
	now, err := e.look(ctx, r.t.Plan, r.o)
	if err != nil {
		return fmt.Sprintf("cannot see what else changed: %v", err)
	}
	n := len(r.t.putBacks)
	if why := e.unasked(ctx, r.t, r.res, r.seen, now, device); why != "" {
		return why
	}
	if len(r.t.putBacks) > n { // our own putting back is nobody's change
		if now, err = e.look(ctx, r.t.Plan, r.o); err != nil {
			return fmt.Sprintf("cannot see what else changed: %v", err)
		}
	}
	r.seen = now
	return ""
}

func (e *Engine) writeOne(ctx context.Context, t *Transaction, i int, s *Step) string {
	s.Got = e.c.Host.Read(ctx, s.Ref)
	switch {
	case knob.Done(s.Got, s.To):
		s.Outcome = Already
		return ""
	case !s.Got.Known() && !s.Got.IsAbsent():
		s.Outcome, s.Note = Failed, fmt.Sprintf("%s cannot be read: %s", s.Ref, s.Got.Reason())
		return s.Note
	case !knob.Unmoved(s.Got, s.From, s.To):
		s.Outcome, s.Note = Stale, moved(s.From, s.Got)
		return ""
	}
	e.progress("write %s: %s → %s", s.Ref, text(s.From), text(s.To))
	if err := e.j.append(record{Type: recWrite, TX: t.ID, Index: &i}); err != nil {
		return err.Error()
	}
	err := e.c.Host.Write(ctx, s.Ref, s.From, s.To)
	if s.Knob == knob.IRQAffinity && errors.Is(err, unix.ENOSPC) {
		if done, why := e.elsewhere(ctx, t, i, s); done || why != "" {
			return why
		}
	}
	s.Got = e.c.Host.Read(ctx, s.Ref)
	// A vector that is being moved reads as before for a moment: irq_move_masked_irq takes the pending mask away before it
	// sets the mask (kernel/irq/migration.c), and puts it back where the last move is not over.
	for n := 0; n < 20 && err == nil && s.Knob == knob.IRQAffinity && !knob.Holds(s.Got, s.To) && knob.Unmoved(s.Got, s.From, s.To) && sleep(ctx, 5*time.Millisecond); n++ {
		s.Got = e.c.Host.Read(ctx, s.Ref)
	}
	if errors.Is(err, io.ErrShortWrite) { // whatever it holds now came from us
		s.Outcome, s.Note = Failed, fmt.Sprintf("%s: the kernel took only part of %s and reads %s", s.Ref, text(s.To), text(s.Got))
		if jerr := e.j.append(record{Type: recWrote, TX: t.ID, Index: &i, Value: &s.Got}); jerr != nil {
			return jerr.Error()
		}
		return s.Note
	}
	if err != nil {
		s.Outcome, s.Note = Failed, e.explain(s.Ref, err)
		if s.Got.Known() && !knob.Holds(s.Got, s.To) {
			if jerr := e.j.append(record{Type: recSkip, TX: t.ID, Index: &i}); jerr != nil {
				return jerr.Error()
			}
			if !knob.Unmoved(s.Got, s.From, s.To) {
				s.Outcome, s.Note = Stale, moved(s.From, s.Got)
				return ""
			}
		}
		return s.Note
	}
	if err := e.j.append(record{Type: recWrote, TX: t.ID, Index: &i, Value: &s.Got}); err != nil {
		return err.Error()
	}
	switch note, ok := adjusted(s.Ref, s.To, s.Got); {
	case knob.Holds(s.Got, s.To):
		s.Outcome = Applied
	case ok:
		s.Outcome, s.Note = Adjusted, note
	case knob.Unmoved(s.Got, s.From, s.To):
		s.Outcome, s.Note = Failed, fmt.Sprintf("%s: the write was accepted and changed nothing", s.Ref)
		return s.Note
	default:
		s.Outcome, s.Note = Failed, fmt.Sprintf("%s: wrote %s, reads %s", s.Ref, text(s.To), text(s.Got))
		return s.Note
	}
	return ""
}

// elsewhere gives a vector whose CPUs have no free one to another CPU that the plan gives vectors of
// the same device, the one with the fewest first. It reports whether one took it, or why the transaction
// must be undone.
func (e *Engine) elsewhere(ctx context.Context, t *Transaction, i int, s *Step) (done bool, why string) {
	full, ok := set(s.To)
	if !ok {
		return false, ""
	}
	vectors := map[int]int{}
	for _, c := range t.Plan.Changes {
		if to, ok := set(c.To); ok && c.Knob == s.Knob && c.Target.Device() == s.Target.Device() {
			for cpu := range to.Minus(full).All() {
				vectors[cpu]++
			}
		}
	}
	cpus := slices.Sorted(maps.Keys(vectors))
	slices.SortStableFunc(cpus, func(a, b int) int { return cmp.Compare(vectors[a], vectors[b]) })
	for _, cpu := range cpus {
		to := knob.Set(cpuset.Of(cpu))
		if to.Equal(s.From) {
			continue
		}
		if err := e.j.append(record{Type: recWrite, TX: t.ID, Index: &i, Value: &to}); err != nil {
			return false, err.Error()
		}
		err := e.c.Host.Write(ctx, s.Ref, s.From, to)
		if errors.Is(err, unix.ENOSPC) {
			continue
		}
		if err != nil {
			return false, ""
		}
		s.Got = e.c.Host.Read(ctx, s.Ref)
		if err := e.j.append(record{Type: recWrote, TX: t.ID, Index: &i, Value: &s.Got}); err != nil {
			return false, err.Error()
		}
		if !s.Got.Equal(to) {
			s.Outcome, s.Note = Failed, fmt.Sprintf("%s: wrote %s, reads %s", s.Ref, text(to), text(s.Got))
			return false, s.Note
		}
		s.Outcome, s.Note = Adjusted, fmt.Sprintf("cpu %s has no free interrupt vector: took cpu %d, which the plan gives the device too", full, cpu)
		return true, ""
	}
	return false, ""
}

// explain is an error of a write with what it means.
func (e *Engine) explain(ref knob.Ref, err error) string {
	if m := knob.Meaning(ref, err); m != "" {
		return err.Error() + ": " + m
	}
	return err.Error()
}

// adjusted reports whether a setting that was set to want and reads got was taken as the kernel
// takes it: CPU sets without isolated CPUs (rps_cpumask_housekeeping in
// net/core/net-sysfs.c; interrupts without offline ones), flow tables rounded up to a power of two
// (store_rps_dev_flow_table_cnt, rps_sock_flow_sysctl).
func adjusted(ref knob.Ref, want, got knob.Value) (string, bool) {
	switch ref.Knob {
	case knob.RPSCPUs, knob.XPSCPUs, knob.IRQAffinity:
		w, ok1 := set(want)
		g, ok2 := set(got)
		if ok1 && ok2 && !g.IsEmpty() && g.SubsetOf(w) && g != w {
			return fmt.Sprintf("the kernel took %s of %s: the others are isolated or offline", g, w), true
		}
	case knob.RPSFlowCnt, knob.RPSSockFlowEntries:
		var w, g int64
		if want.Decode(&w) == nil && got.Decode(&g) == nil && w > 1 && g == 1<<bits.Len64(uint64(w-1)) && g != w {
			return fmt.Sprintf("the kernel rounded %d up to %d", w, g), true
		}
	}
	return "", false
}

func set(v knob.Value) (cpuset.Set, bool) {
	var text string
	if v.Decode(&text) != nil {
		return cpuset.Set{}, false
	}
	s, err := cpuset.ParseList(text)
	return s, err == nil
}

// unasked finds what changed around a step without being asked for, and puts it back where it is
// on the device just written.
func (e *Engine) unasked(ctx context.Context, t *Transaction, res *Result, before, after *knob.Snapshot, device string) string {
	for _, d := range unaskedSince(res, before, after) {
		u := Unasked{Ref: d.Ref, From: d.From, To: d.To}
		switch {
		case device == "" || d.Target.Device() != device:
			u.Note = "not on the device just written: left alone"
		case !d.From.Known() || !d.To.Known():
			u.Note = "came or went with the change"
		default:
			e.progress("put back %s: %s → %s", d.Ref, text(d.To), text(d.From))
			if err := e.j.append(record{Type: recPutBack, TX: t.ID, Ref: &d.Ref, From: &d.To, Value: &d.From}); err != nil {
				res.Unasked = append(res.Unasked, u)
				return err.Error()
			}
			if l := e.restore(ctx, d.Ref, d.From, func(v knob.Value) bool { return knob.Holds(v, d.To) }); l != nil {
				u.Note = l.Why
				res.Unasked = append(res.Unasked, u)
				return fmt.Sprintf("%s changed unasked and cannot be put back: %s", d.Ref, l.Why)
			}
			u.PutBack, u.Note = true, "changed with our write and was put back"
		}
		res.Unasked = append(res.Unasked, u)
	}
	return ""
}

// later reports what else changed since the last write, while we measured: that is somebody else's.
func (e *Engine) later(ctx context.Context, r *running) error {
	now, err := e.look(ctx, r.t.Plan, r.o)
	if err != nil {
		return fmt.Errorf("cannot see what else changed: %w", err)
	}
	for _, d := range unaskedSince(r.res, r.seen, now) {
		r.res.Unasked = append(r.res.Unasked, Unasked{Ref: d.Ref, From: d.From, To: d.To, Note: "changed while we measured: left alone"})
	}
	r.seen = now
	return nil
}

// unaskedSince is what differs between two snapshots and was not asked for. Devices that came or
// went, as those of containers do all the time, are no changes of settings.
func unaskedSince(res *Result, before, after *knob.Snapshot) []knob.Difference {
	has := func(s *knob.Snapshot, device string) bool {
		return slices.ContainsFunc(s.Devices, func(d knob.Device) bool { return d.Name == device })
	}
	var out []knob.Difference
	for _, d := range knob.Diff(before, after) {
		if dev := d.Target.Device(); dev != "" && (!has(before, dev) || !has(after, dev)) || !knob.Writable(d.Knob) {
			continue
		}
		if slices.ContainsFunc(res.Steps, func(s Step) bool { return s.Outcome != Skipped && knob.Follows(s.Ref, d.Ref) }) {
			continue
		}
		unasked := true
		if i := slices.IndexFunc(res.Steps, func(s Step) bool { return s.Ref == d.Ref }); i >= 0 {
			d, unasked = knob.Beside(d, res.Steps[i].To)
		}
		if unasked {
			out = append(out, d)
		}
	}
	return out
}

// still notes settings that somebody else took during the measurement.
func (e *Engine) still(ctx context.Context, res *Result) {
	for i := range res.Steps {
		s := &res.Steps[i]
		if s.Outcome != Applied && s.Outcome != Adjusted {
			continue
		}
		now := e.c.Host.Read(ctx, s.Ref)
		if s.Knob == knob.IRQAffinity {
			s.Note = e.effect(ctx, s)
		}
		// A table that was given back to the driver follows the number of channels that we set after it.
		follows := knob.Holds(now, s.To) && slices.ContainsFunc(res.Steps[i+1:], func(x Step) bool { return wrote([]Step{x}) && knob.Follows(x.Ref, s.Ref) })
		if !now.Equal(s.Got) && !knob.Done(now, s.To) && !follows {
			s.Outcome, s.Note = Stale, fmt.Sprintf("written as %s, now %s: somebody else changed it since, left alone", text(s.Got), text(now))
			s.Got = now
		}
	}
}

// others names who is known to write the settings that somebody else took.
func (e *Engine) others(ctx context.Context, res *Result) {
	var taken []knob.Ref
	for _, s := range res.Steps {
		if s.Outcome == Stale {
			taken = append(taken, s.Ref)
		}
	}
	for _, u := range res.Unasked {
		if !u.PutBack {
			taken = append(taken, u.Ref)
		}
	}
	for _, l := range res.Left {
		taken = append(taken, l.Ref)
	}
	if len(taken) == 0 || e.c.Owners == nil {
		return
	}
	all, err := e.c.Owners(ctx)
	if err != nil {
		return // that it was taken is told all the same
	}
	for _, o := range all {
		if slices.ContainsFunc(taken, func(r knob.Ref) bool {
			return slices.Contains(o.Knobs, r.Knob) && (o.Device == "" || o.Device == r.Target.Device())
		}) {
			res.Owners = append(res.Owners, o)
		}
	}
}

// effect says where a vector's interrupts really go, when not where they should: smp_affinity is a
// wish, which takes effect at the next interrupt (irq_set_affinity_locked and the move-pending flag in
// kernel/irq/).
func (e *Engine) effect(ctx context.Context, s *Step) string {
	eff := e.c.Host.Read(ctx, knob.Ref{Knob: knob.IRQEffective, Target: s.Target})
	is, ok1 := set(eff)
	want, ok2 := set(s.Got)
	if !ok1 || !ok2 || is.SubsetOf(want) {
		return s.Note
	}
	return fmt.Sprintf("written, not in effect: interrupts still go to cpu %s", is)
}

// restore puts a setting back to want if it holds a value that is ours. It returns what is left
// when that is not possible, nil when the setting holds want.
func (e *Engine) restore(ctx context.Context, ref knob.Ref, want knob.Value, ours func(knob.Value) bool) *Left {
	const tries = 3 // transient refusals: no vector free, device busy
	var why string
	for range tries {
		now := e.c.Host.Read(ctx, ref)
		switch {
		case knob.Holds(now, want):
			return nil
		case now.IsAbsent():
			return &Left{ref, want, now, "it is gone: " + now.Reason()}
		case !now.Known():
			why = "cannot be read: " + now.Reason()
			continue
		case !ours(now):
			return &Left{ref, want, now, "somebody else changed it: left alone"}
		}
		if err := e.c.Host.Write(ctx, ref, now, want); err != nil {
			why = e.explain(ref, err)
		} else {
			why = "the write back was accepted and changed nothing"
		}
	}
	now := e.c.Host.Read(ctx, ref)
	if knob.Holds(now, want) {
		return nil
	}
	return &Left{ref, want, now, why}
}

// undo puts everything a transaction wrote back in reverse order, each only while it still is
// ours, and ends it as rolled back or partial. Interruption does not stop it.
func (e *Engine) undo(t *Transaction, res *Result, why string) (*Result, error) {
	ctx := context.Background()
	e.progress("roll back: %s", why)
	// Putting back comes before writing about it: a full disk must not keep the host changed.
	jerr := e.j.append(record{Type: recUndo, TX: t.ID, Why: why})
	res.Left = []Left{}
	base, serr := e.c.Host.Snapshot(ctx) // without it compare-and-set still guards each value
	renewed := renewed(t.Plan, base)
	// Putting one back may need another that follows (a table that names queues which only the old
	// channels have): what is refused is tried again as long as that helps.
	again := slices.Sorted(maps.Keys(t.written))
	slices.Reverse(again)
	for last := len(again) + 1; len(again) > 0 && len(again) < last; {
		last = len(again)
		again = slices.DeleteFunc(again, func(i int) bool {
			return e.putBackStep(ctx, &res.Steps[i], t.written[i], renewed) == nil
		})
	}
	for _, i := range again {
		s := &res.Steps[i]
		if l := e.putBackStep(ctx, s, t.written[i], renewed); l != nil {
			s.Outcome, s.Got, s.Note = Lost, l.Is, l.Why
			res.Left = append(res.Left, *l)
		}
	}
	for i := len(t.putBacks) - 1; i >= 0; i-- {
		p := t.putBacks[i]
		if l := e.restore(ctx, p.ref, p.to, func(now knob.Value) bool { return knob.Holds(now, p.from) }); l != nil {
			res.Left = append(res.Left, *l)
		}
	}
	if serr == nil && len(t.written) > 0 {
		e.besides(ctx, t, res, base)
	}
	e.repinAll(ctx, t, res)
	e.others(ctx, res)
	res.State, res.Why = RolledBack, why
	if len(res.Left) > 0 {
		res.State = Partial
	}
	err := e.j.append(record{Type: recState, TX: t.ID, State: res.State, Why: why, Left: res.Left, Verdict: res.Verdict})
	if err != nil {
		return res, fmt.Errorf("roll back of transaction %s is done but not recorded: %w", t.ID, errors.Join(jerr, err))
	}
	return res, nil
}

// putBackStep puts one change back; achieved is what it was read as, nil when the run died before. It
// returns what is left when that is not possible.
func (e *Engine) putBackStep(ctx context.Context, s *Step, achieved *knob.Value, renewed map[string]bool) *Left {
	if dev := s.Target.Device(); renewed[dev] {
		return &Left{s.Ref, s.From, e.c.Host.Read(ctx, s.Ref), dev + " was removed and created again: what we set went with it"}
	}
	l := e.restore(ctx, s.Ref, knob.Undo(s.From, s.To), func(now knob.Value) bool {
		if achieved != nil && now.Equal(*achieved) || knob.Done(now, s.To) {
			return true
		}
		if achieved != nil {
			return false
		}
		// Died between the write and reading it back.
		_, ok := adjusted(s.Ref, s.To, now)
		return ok || knob.Holds(now, s.To)
	})
	if l != nil {
		return l
	}
	if s.Outcome != Failed && s.Outcome != Stale {
		s.Outcome = Restored
	}
	s.Got = s.From
	return nil
}

// besides finds what changed around a rollback without belonging to it, as after a write; what
// cannot be put back is left.
func (e *Engine) besides(ctx context.Context, t *Transaction, res *Result, before *knob.Snapshot) {
	after, err := e.c.Host.Snapshot(ctx)
	if err != nil {
		return // what was written is back; others' settings were not ours to begin with
	}
	wrote := map[string]bool{}
	for i := range t.written {
		wrote[res.Steps[i].Target.Device()] = true
	}
	for _, d := range unaskedSince(res, before, after) {
		if slices.ContainsFunc(t.putBacks, func(p putBack) bool { return p.ref == d.Ref }) {
			continue // part of the rollback
		}
		u := Unasked{Ref: d.Ref, From: d.From, To: d.To, Note: "changed during the rollback, not on a device just written: left alone"}
		if dev := d.Target.Device(); dev != "" && wrote[dev] && d.From.Known() && d.To.Known() {
			// Should this run die here, the next one finds it announced; a journal that cannot be
			// written keeps nothing from being put back.
			_ = e.j.append(record{Type: recPutBack, TX: t.ID, Ref: &d.Ref, From: &d.To, Value: &d.From})
			l := e.restore(ctx, d.Ref, d.From, func(v knob.Value) bool { return knob.Holds(v, d.To) })
			u.PutBack, u.Note = l == nil, "changed with the rollback and was put back"
			if l != nil {
				u.Note = l.Why
				res.Left = append(res.Left, *l)
			}
		}
		res.Unasked = append(res.Unasked, u)
	}
}

// renewed is the devices of a plan that are not those it was made for any more.
func renewed(p *plan.Plan, s *knob.Snapshot) map[string]bool {
	out := map[string]bool{}
	if s == nil {
		return out
	}
	for _, was := range p.Identity.Devices {
		for _, is := range s.Devices {
			if is.Name == was.Name && (is.IfIndex != was.IfIndex || is.Bus != was.Bus || is.Driver != was.Driver) {
				out[was.Name] = true
			}
		}
	}
	return out
}

// result starts the account of a transaction read from the journal.
func (t *Transaction) result() *Result {
	res := &Result{ID: t.ID, State: t.State, Why: t.Why, Steps: make([]Step, len(t.Plan.Changes)), Unasked: []Unasked{}, Left: []Left{}}
	for i, c := range t.Plan.Changes {
		res.Steps[i] = Step{Ref: c.Ref(), From: c.From, To: c.To, Outcome: Skipped}
	}
	return res
}

// Recover finishes what an earlier run left: transactions it died in, and unconfirmed ones whose time
// ran out, are rolled back. An unconfirmed one with time left is not touched, nor are those of other
// network namespaces, which may be gone for good.
func (e *Engine) Recover() ([]*Result, error) {
	var out []*Result
	var errs []error
	for i := len(e.j.txs) - 1; i >= 0; i-- {
		t := e.j.txs[i]
		why := ""
		switch {
		case t.finished(), !e.ours(t):
			continue
		case t.State == Unconfirmed && e.c.Uptime() < t.Deadline:
			continue
		case t.State == Unconfirmed:
			why = "not confirmed in time"
		default:
			why = "the run that made it ended in the middle"
		}
		res, err := e.undo(t, t.result(), why)
		out = append(out, res)
		if err != nil {
			errs = append(errs, fmt.Errorf("recover: %w", err))
		}
	}
	return out, errors.Join(errs...)
}

// ours reports whether a transaction belongs to this network namespace: elsewhere the same names
// mean other devices.
func (e *Engine) ours(t *Transaction) bool { return t.Plan.Identity.Netns == e.host.Netns }

func (e *Engine) sameNetns(t *Transaction) error {
	if !e.ours(t) {
		return fmt.Errorf("transaction %s: %w: it belongs to network namespace %d, this is %d; run rxsteer there", t.ID, ErrIdentity, t.Plan.Identity.Netns, e.host.Netns)
	}
	return nil
}

// last is the newest transaction of this namespace in one of the states, nil when there is none.
func (e *Engine) last(states ...State) *Transaction {
	for i := len(e.j.txs) - 1; i >= 0; i-- {
		if slices.Contains(states, e.j.txs[i].State) && e.ours(e.j.txs[i]) {
			return e.j.txs[i]
		}
	}
	return nil
}

// Confirm keeps an unconfirmed transaction; id "" is the last one.
func (e *Engine) Confirm(id string) (*Result, error) {
	t := e.last(Unconfirmed)
	if id != "" {
		t = e.j.find(id)
	}
	switch {
	case t == nil:
		return nil, fmt.Errorf("confirm %s: %w", cmp.Or(id, "the last transaction"), ErrNoSuch)
	case t.State != Unconfirmed:
		return nil, fmt.Errorf("confirm %s: it is %s, there is nothing to confirm", t.ID, t.State)
	case e.c.Uptime() >= t.Deadline:
		return nil, fmt.Errorf("confirm %s: its time ran out %s ago: it is being rolled back", t.ID, (e.c.Uptime() - t.Deadline).Round(time.Second))
	}
	if err := e.j.append(record{Type: recState, TX: t.ID, State: Kept, Why: "confirmed"}); err != nil {
		return nil, fmt.Errorf("confirm %s: %w", t.ID, err)
	}
	return t.result(), nil
}

// Rollback undoes one transaction; id "" is the last that changed something.
func (e *Engine) Rollback(id string) (*Result, error) {
	t := e.last(Kept, Unconfirmed, Applying, Journalled, Partial)
	if id != "" {
		t = e.j.find(id)
	}
	switch {
	case t == nil:
		return nil, fmt.Errorf("roll back %s: %w", cmp.Or(id, "the last transaction"), ErrNoSuch)
	case t.State == RolledBack:
		return nil, fmt.Errorf("roll back %s: it already is", t.ID)
	}
	if err := e.sameNetns(t); err != nil {
		return nil, fmt.Errorf("roll back: %w", err)
	}
	if e.open != nil && e.open.t == t {
		return e.Drop("asked for")
	}
	return e.undo(t, t.result(), "asked for")
}

// RollbackOriginal undoes every transaction of this boot and network namespace, newest first.
func (e *Engine) RollbackOriginal() ([]*Result, error) {
	var out []*Result
	var errs []error
	for i := len(e.j.txs) - 1; i >= 0; i-- {
		t := e.j.txs[i]
		if t.State == RolledBack || !e.ours(t) {
			continue
		}
		res, err := e.undo(t, t.result(), "asked for: back to the original")
		out = append(out, res)
		if err != nil {
			errs = append(errs, err)
		}
	}
	return out, errors.Join(errs...)
}

// Watch waits until an unconfirmed transaction is confirmed, rolled back or overdue, and rolls it back
// in the last case. It is what the detached process of apply --confirm-within runs; nil means there was
// nothing to do. It holds the lock only while rolling back.
func Watch(ctx context.Context, c Config, id string) (*Result, error) {
	clock := c.Uptime
	if clock == nil {
		clock = uptime
	}
	const again = 200 * time.Millisecond // between looks while somebody else holds the lock
	for {
		txs, _, err := History(c.Dir)
		if err != nil {
			return nil, fmt.Errorf("watch %s: %w", id, err)
		}
		i := slices.IndexFunc(txs, func(t Transaction) bool { return t.ID == id })
		if i < 0 {
			return nil, fmt.Errorf("watch %s: %w", id, ErrNoSuch)
		}
		if txs[i].finished() {
			return nil, nil
		}
		// Look at least every second: a confirmation ends the watch early.
		wait := again
		if left := txs[i].Deadline - clock(); txs[i].State == Unconfirmed && left > 0 {
			wait = min(left, time.Second)
		} else {
			res, err := overdue(ctx, c, id)
			if !errors.Is(err, ErrLocked) {
				return res, err
			}
		}
		if !sleep(ctx, wait) {
			return nil, ctx.Err()
		}
	}
}

func overdue(ctx context.Context, c Config, id string) (*Result, error) {
	// To open reads the whole host: not while somebody is at work.
	lock, err := acquire(filepath.Join(cmp.Or(c.Dir, DefaultDir), lockFile))
	if err != nil {
		return nil, fmt.Errorf("watch %s: %w", id, err)
	}
	if err := lock.Close(); err != nil {
		return nil, fmt.Errorf("watch %s: %w", id, err)
	}
	e, err := Open(ctx, c)
	if err != nil {
		return nil, fmt.Errorf("watch %s: %w", id, err)
	}
	defer e.Close()
	all, err := e.Recover()
	for _, r := range all {
		if r.ID == id {
			return r, err
		}
	}
	return nil, err
}

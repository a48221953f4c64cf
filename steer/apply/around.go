package apply

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/rxsteer/rxsteer/internal/host/knob"
	"github.com/rxsteer/rxsteer/internal/host/reach"
	"github.com/rxsteer/rxsteer/steer/plan"
)

// Surroundings tell what keeps a host reachable; reach.Host is one.
type Surroundings interface {
	State(devices ...string) (*reach.State, error)
}

// Vectors tells which queue each interrupt vector of a device serves ("rx-3", "rx-3 tx-3"), read anew.
type Vectors func(ctx context.Context, device string) (map[int]string, error)

// rebuilds reports whether a change may take queues down and build them again, and the link with them.
func rebuilds(c plan.Change) bool {
	switch c.Knob {
	case knob.Channels, knob.Rings, knob.Features:
		return true
	}
	return c.Risk == plan.Pause || c.Risk == plan.Flap
}

// Memory that growing may take: a receive descriptor holds a buffer of a page (more with jumbo frames on
// some drivers, which the reserve is for), a transmit descriptor 64 bytes of bookkeeping.
const (
	perReceive  = 4096 + 64 // bytes
	perTransmit = 64
	reserve     = 64 << 20 // bytes that must stay available
)

// memory refuses to grow rings and channels beyond what the host can give: the driver frees the old ones
// first, and a device that gets no new ones stays down.
func (e *Engine) memory(p *plan.Plan, s *knob.Snapshot) error {
	if e.c.Around == nil {
		return nil
	}
	after := map[knob.Ref]knob.Value{}
	var devices []string
	for _, c := range p.Changes {
		if c.Knob == knob.Rings || c.Knob == knob.Channels {
			after[c.Ref()] = c.To
			devices = append(devices, c.Target.Device())
		}
	}
	slices.Sort(devices)
	for _, d := range slices.Compact(devices) {
		rings, channels := knob.Ref{Knob: knob.Rings, Target: knob.Target(d)}, knob.Ref{Knob: knob.Channels, Target: knob.Target(d)}
		size := func(of map[knob.Ref]knob.Value) float64 {
			n := func(ref knob.Ref, key string) float64 { return number(of[ref], key, number(s.Get(ref), key, 0)) }
			both := n(channels, "combined")
			return n(rings, "rx")*max(1, both+n(channels, "rx"))*perReceive + n(rings, "tx")*max(1, both+n(channels, "tx"))*perTransmit
		}
		more := size(after) - size(nil)
		if more <= 0 {
			continue
		}
		around, err := e.c.Around.State()
		if err != nil {
			return fmt.Errorf("see how much memory is free: %w", err)
		}
		if around.Available > 0 && float64(around.Available) < more+reserve {
			return fmt.Errorf("%w: rings and channels of %s would take about %.0f MiB more and %d MiB are available: a device that gets no memory stays down; free some or choose smaller rings",
				ErrRisk, d, more/(1<<20), around.Available>>20)
		}
	}
	return nil
}

// number is one attribute of a group.
func number(v knob.Value, key string, none float64) float64 {
	var m map[string]any
	if v.Decode(&m) != nil {
		return none
	}
	x, err := strconv.ParseFloat(fmt.Sprint(m[key]), 64)
	if err != nil {
		return none
	}
	return x
}

// limits refuses more than the driver says it can, which some take as a wish and some as an order.
func limits(p *plan.Plan, s *knob.Snapshot) error {
	most := map[knob.Kind]knob.Kind{knob.Rings: knob.RingsMax, knob.Channels: knob.ChannelsMax}
	for i, c := range p.Changes {
		max, ok := most[c.Knob]
		if !ok {
			continue
		}
		var want map[string]any
		if c.To.Decode(&want) != nil {
			continue
		}
		limit := s.Get(knob.Ref{Knob: max, Target: c.Target})
		for _, key := range slices.Sorted(maps.Keys(want)) {
			if n, m := number(c.To, key, 0), number(limit, key, n0); m != n0 && n > m {
				return fmt.Errorf("change %d (%s): %w: %s %.0f is beyond the driver's maximum %.0f", i+1, c.Ref(), ErrRisk, key, n, m)
			}
		}
	}
	return nil
}

const n0 = -1 // a limit that is not told

// backWithin is how long a link and its bond may take to come back: 802.3ad with the slow rate
// hears of its partner every 30 s, but is asked at once after a flap; forwarding of a switch port takes as long.
const backWithin = 30 * time.Second

// back waits until a device that was rebuilt has its carrier, addresses, routes and place in its bond
// again, so that the next step never takes a second member down. It returns what stays lost.
func (e *Engine) back(ctx context.Context, r *running, device string) string {
	if e.c.Around == nil || device == "" {
		return ""
	}
	within := cmp.Or(r.o.BackWithin, backWithin)
	deadline := e.c.Uptime() + within
	e.progress("wait for carrier and addresses of %s", device)
	for wait := 10 * time.Millisecond; ; wait = min(2*wait, time.Second) {
		now, err := e.c.Around.State(device)
		lost := ""
		if err != nil {
			lost = fmt.Sprintf("%s cannot be seen: %v", device, err)
		} else if lost = reach.Lost(r.around, now, device); lost == "" {
			return ""
		}
		if e.c.Uptime() >= deadline {
			return fmt.Sprintf("%s and did not get it back in %v", lost, within)
		}
		if !sleep(ctx, wait) {
			return "interrupted"
		}
	}
}

// renumbered marks the changes of vectors that, after a rebuild, serve another queue or are gone: to write
// them would move somebody else's interrupt.
func (e *Engine) renumbered(ctx context.Context, r *running, from int, device string) error {
	was, ok := r.vectors[device]
	if !ok {
		return nil
	}
	now, err := e.c.Vectors(ctx, device)
	if err != nil {
		return fmt.Errorf("read the vectors of %s again: %w", device, err)
	}
	for i := from; i < len(r.res.Steps); i++ {
		s := &r.res.Steps[i]
		if s.Knob != knob.IRQAffinity || s.Target.Device() != device {
			continue
		}
		n, err := strconv.Atoi(strings.TrimPrefix(s.Target.Part(), "irq-"))
		if err != nil || was[n] == now[n] && was[n] != "" {
			continue
		}
		r.moved[i] = fmt.Sprintf("vector %d served %s and now serves %s: left alone; make a new plan for the vectors", n, cmp.Or(was[n], "nothing known"), cmp.Or(now[n], "nothing"))
	}
	return nil
}

// surroundings are looked at before the first write.
func (e *Engine) surroundings(ctx context.Context, r *running, p *plan.Plan) (err error) {
	var rebuilt []string
	for _, c := range p.Changes {
		if rebuilds(c) && c.Target.Device() != "" {
			rebuilt = append(rebuilt, c.Target.Device())
		}
	}
	slices.Sort(rebuilt)
	rebuilt = slices.Compact(rebuilt)
	if len(rebuilt) > 0 && e.c.Around != nil {
		if r.around, err = e.c.Around.State(rebuilt...); err != nil {
			return fmt.Errorf("see carrier and addresses: %w", err)
		}
	}
	r.pins = map[string][]pin{}
	r.vectors, r.moved = map[string]map[int]string{}, map[int]string{}
	for _, d := range rebuilt {
		if e.c.Vectors == nil {
			continue
		}
		if r.vectors[d], err = e.c.Vectors(ctx, d); err != nil {
			return fmt.Errorf("read the vectors of %s: %w", d, err)
		}
		if all := pins(r.vectors[d], r.first, d); len(all) > 0 {
			r.pins[d] = all
		}
	}
	return nil
}

// pin is where the vector of a queue was before a transaction. Numbers change when a driver requests its
// vectors anew, and most drivers forget what users set.
type pin struct {
	IRQ   int        `json:"irq"`
	Queue string     `json:"queue"`
	CPUs  knob.Value `json:"cpus"`
}

// pins are those of a device that can be put back: known, and not the kernel's own.
func pins(serves map[int]string, s *knob.Snapshot, device string) []pin {
	var out []pin
	for _, n := range slices.Sorted(maps.Keys(serves)) {
		t := knob.On(device, "irq-%d", n)
		v := s.Get(knob.Ref{Knob: knob.IRQAffinity, Target: t})
		if serves[n] != "" && v.Known() && !managed(s, t) {
			out = append(out, pin{n, serves[n], v})
		}
	}
	return out
}

func managed(s *knob.Snapshot, t knob.Target) bool {
	var m bool
	return s.Get(knob.Ref{Knob: knob.IRQManaged, Target: t}).Decode(&m) == nil && m
}

// repin gives the vectors of a device that was just rebuilt back to the CPUs they were on, by the queue
// they serve; those of skip are the plan's. It returns which pins hold.
func (e *Engine) repin(ctx context.Context, t *Transaction, res *Result, device string, skip func(pin) bool) (held map[int]bool, err error) {
	held = map[int]bool{}
	if e.c.Vectors == nil || len(t.pins[device]) == 0 {
		return held, nil
	}
	now, err := e.c.Vectors(ctx, device)
	if err != nil {
		return held, fmt.Errorf("read the vectors of %s again: %w", device, err)
	}
	for _, p := range t.pins[device] {
		if skip(p) {
			continue
		}
		for _, n := range slices.Sorted(maps.Keys(now)) {
			if now[n] != p.Queue {
				continue
			}
			ref := knob.Ref{Knob: knob.IRQAffinity, Target: knob.On(device, "irq-%d", n)}
			is := e.c.Host.Read(ctx, ref)
			if is.Equal(p.CPUs) {
				held[p.IRQ] = true
				break
			}
			u := Unasked{Ref: ref, From: p.CPUs, To: is, Note: fmt.Sprintf("the driver requested the vector of %s anew and forgot its CPUs; they were put back", p.Queue)}
			l := e.restore(ctx, ref, p.CPUs, func(v knob.Value) bool { return v.Equal(is) })
			if u.PutBack = l == nil; l != nil {
				u.Note = l.Why
			}
			held[p.IRQ] = u.PutBack
			res.Unasked = append(res.Unasked, u)
			break
		}
	}
	return held, nil
}

// repinAll is repin after a rollback, for every device that was rebuilt; what it puts back is not left.
func (e *Engine) repinAll(ctx context.Context, t *Transaction, res *Result) {
	var rebuilt []string
	for i := range t.written {
		if c := t.Plan.Changes[i]; rebuilds(c) && c.Target.Device() != "" {
			rebuilt = append(rebuilt, c.Target.Device())
		}
	}
	slices.Sort(rebuilt)
	for _, d := range slices.Compact(rebuilt) {
		held, err := e.repin(ctx, t, res, d, func(pin) bool { return false })
		if err != nil {
			continue // what is left is told as it is
		}
		res.Left = slices.DeleteFunc(res.Left, func(l Left) bool {
			n, err := strconv.Atoi(strings.TrimPrefix(l.Target.Part(), "irq-"))
			return err == nil && l.Knob == knob.IRQAffinity && l.Target.Device() == d && held[n]
		})
	}
}

package persist

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/rxsteer/rxsteer/internal/cpuset"
	"github.com/rxsteer/rxsteer/internal/host/knob"
	"github.com/rxsteer/rxsteer/steer/apply"
	"github.com/rxsteer/rxsteer/steer/plan"
)

// Version is the format of the file; readers refuse newer ones.
const Version = 1

// File is what is applied again at every boot.
type File struct {
	Version   int       `json:"version"`
	Confirmed time.Time `json:"confirmed"` // when it was made from what was kept
	// Plan holds what was before and after on the boot it was confirmed on; the identity of that boot
	// is what later ones are compared with.
	Plan *plan.Plan `json:"plan"`
	// Queues is what each device had when all changes were made; a plan's identity has what was before.
	Queues map[string]Queues `json:"queues"`
	// Vectors is which queue each vector of the plan served: numbers change with every boot.
	Vectors map[knob.Target]string `json:"vectors,omitempty"`
}

// Queues is the live queues of a device.
type Queues struct {
	RX int `json:"rx"`
	TX int `json:"tx"`
}

// Errors a caller may act on.
var (
	// ErrNothing: nothing was changed and kept in this boot.
	ErrNothing = errors.New("nothing to persist: no change of this boot is kept")
	// ErrUnconfirmed: what should be kept was not applied and kept in this boot.
	ErrUnconfirmed = errors.New("not confirmed in this boot")
	// ErrDiffers: the host is not the one it was confirmed on.
	ErrDiffers = errors.New("not what it was confirmed on")
	// ErrUnhealthy: the last boot with it was not confirmed healthy.
	ErrUnhealthy = errors.New("the last boot with it was never confirmed healthy")
	// ErrAbsent: a device is not there (yet).
	ErrAbsent = errors.New("no such device yet")
)

// Vectors tells which queue each vector of a device serves, as apply.Vectors.
type Vectors func(device string) (map[int]string, error)

// Make collects what was changed and kept in this boot, and is still set. want, when given, limits it to
// the changes of a plan, each of which must have been kept.
func Make(txs []apply.Transaction, now *knob.Snapshot, want *plan.Plan, vectors Vectors, at time.Time) (*File, error) {
	kept, devices, err := merge(txs, now.Host.Netns)
	if err != nil {
		return nil, err
	}
	if want != nil {
		var chosen []plan.Change
		for _, c := range want.Changes {
			i := slices.IndexFunc(kept, func(k plan.Change) bool { return k.Ref() == c.Ref() && k.To.Equal(c.To) })
			if i < 0 {
				return nil, fmt.Errorf("%s: %w: apply the plan first, and confirm it", c.Ref(), ErrUnconfirmed)
			}
			chosen = append(chosen, kept[i])
		}
		kept = chosen
	}
	if len(kept) == 0 {
		return nil, ErrNothing
	}
	f := &File{Version: Version, Confirmed: at.UTC(), Queues: map[string]Queues{}, Vectors: map[knob.Target]string{},
		Plan: &plan.Plan{Version: plan.Version, Goal: plan.Balanced, Changes: kept,
			Identity: plan.Identity{BootID: now.Host.BootID, Netns: now.Host.Netns, Kernel: now.Host.Kernel, Devices: []plan.Device{}}}}
	for _, c := range kept {
		if is := now.Get(c.Ref()); !knob.Holds(is, c.To) {
			return nil, fmt.Errorf("%s is %s, was kept as %s: %w: somebody else changed it since", c.Ref(), is, c.To, ErrUnconfirmed)
		}
		d := c.Target.Device()
		if d == "" {
			continue
		}
		if _, known := f.Queues[d]; !known {
			f.Plan.Identity.Devices = append(f.Plan.Identity.Devices, devices[d])
			i := slices.IndexFunc(now.Devices, func(x knob.Device) bool { return x.Name == d })
			if i < 0 {
				return nil, fmt.Errorf("%s: %w", d, ErrAbsent)
			}
			f.Queues[d] = Queues{now.Devices[i].RXQueues, now.Devices[i].TXQueues}
		}
		if c.Knob == knob.IRQAffinity {
			serves, err := vectors(d)
			if err != nil {
				return nil, fmt.Errorf("read the vectors of %s: %w", d, err)
			}
			n, ok := irq(c.Target)
			if !ok || serves[n] == "" {
				return nil, fmt.Errorf("which queue of %s vector %d serves is not known: it cannot be found again after a boot", d, n)
			}
			f.Vectors[c.Target] = serves[n]
		}
	}
	return f, nil
}

// merge is the net effect of what is kept: of each setting what it was first and what it is last, in the
// order of the last writes, and each device as it was first.
func merge(txs []apply.Transaction, netns uint64) ([]plan.Change, map[string]plan.Device, error) {
	var out []plan.Change
	devices := map[string]plan.Device{}
	for _, t := range txs {
		if t.Plan.Identity.Netns != netns {
			continue
		}
		switch t.State {
		case apply.Kept:
		case apply.RolledBack:
			continue
		default:
			return nil, nil, fmt.Errorf("transaction %s is %s: %w: end it first (rxsteer history)", t.ID, t.State, ErrUnconfirmed)
		}
		for _, d := range t.Plan.Identity.Devices {
			if _, seen := devices[d.Name]; !seen {
				devices[d.Name] = d
			}
		}
		for _, c := range t.Plan.Changes {
			if i := slices.IndexFunc(out, func(x plan.Change) bool { return x.Ref() == c.Ref() }); i >= 0 {
				c.From = out[i].From
				out = slices.Delete(out, i, i+1)
			}
			out = append(out, c)
		}
	}
	// Put back by hand since: nothing to keep.
	return slices.DeleteFunc(out, func(c plan.Change) bool { return knob.Holds(c.From, c.To) }), devices, nil
}

func irq(t knob.Target) (n int, ok bool) {
	_, err := fmt.Sscanf(t.Part(), "irq-%d", &n)
	return n, err == nil
}

// Marshal is the file's text.
func (f *File) Marshal() ([]byte, error) {
	b, err := json.MarshalIndent(f, "", "  ")
	return append(b, '\n'), err
}

// Parse reads the file strictly.
func Parse(name string, text []byte) (*File, error) {
	var f File
	var head struct{ Version int }
	if json.Unmarshal(text, &head) == nil && head.Version > Version { // before its fields, of which it may have more
		return nil, fmt.Errorf("read %s: format %d, this one reads up to %d: %w", name, head.Version, Version, apply.ErrNewer)
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(&f); err != nil {
		return nil, fmt.Errorf("read %s: %w", name, err)
	}
	switch {
	case f.Version < 1 || f.Plan == nil || len(f.Plan.Changes) == 0:
		return nil, fmt.Errorf("read %s: not what rxsteer persist writes", name)
	}
	for i, c := range f.Plan.Changes {
		if err := plan.Check(c, cpuset.Set{}); err != nil {
			return nil, fmt.Errorf("read %s: change %d: %w", name, i+1, err)
		}
		if c.Knob == knob.IRQAffinity && f.Vectors[c.Target] == "" {
			return nil, fmt.Errorf("read %s: change %d: which queue %s serves is missing", name, i+1, c.Target)
		}
	}
	return &f, nil
}

// Again is the plan that makes the file's changes true on this boot: only what differs, of the devices that
// are there. An empty plan: all is as it should be. Devices that are missing or differ are left out; their
// reasons wrap ErrAbsent and ErrDiffers. Another kernel release leaves everything out.
func (f *File) Again(now *knob.Snapshot, vectors Vectors) (*plan.Plan, []error) {
	p := &plan.Plan{Version: plan.Version, Goal: f.Plan.Goal, Changes: []plan.Change{},
		Identity: plan.Identity{BootID: now.Host.BootID, Netns: now.Host.Netns, Kernel: now.Host.Kernel, Devices: []plan.Device{}}}
	if was, is := f.Plan.Identity.Kernel, now.Host.Kernel; was != is {
		return p, []error{fmt.Errorf("kernel %s, was confirmed on %s: %w", is, was, ErrDiffers)}
	}
	var left []error
	same := map[string]bool{"": true}
	for _, was := range f.Plan.Identity.Devices {
		d, err := f.match(was, now)
		if err != nil {
			left = append(left, err)
			continue
		}
		same[was.Name] = true
		p.Identity.Devices = append(p.Identity.Devices, d)
	}
	serves := map[string]map[int]string{}
	for _, c := range f.Plan.Changes {
		d := c.Target.Device()
		if !same[d] {
			continue
		}
		if c.Knob == knob.IRQAffinity {
			if serves[d] == nil {
				m, err := vectors(d)
				if err != nil {
					left = append(left, fmt.Errorf("read the vectors of %s: %w", d, err))
					continue
				}
				serves[d] = m
			}
			n, ok := serving(serves[d], f.Vectors[c.Target])
			if !ok {
				left = append(left, fmt.Errorf("no one vector of %s serves %s: %w", d, f.Vectors[c.Target], ErrDiffers))
				continue
			}
			c.Target = knob.On(d, "irq-%d", n)
		}
		is := now.Get(c.Ref())
		switch {
		case knob.Done(is, c.To):
			continue
		case !is.Known():
			left = append(left, fmt.Errorf("%s is %s (%s): left alone", c.Ref(), is, is.Reason()))
			continue
		}
		c.From = is
		c.Command, c.Undo = knob.Command(c.Ref(), c.To), knob.Command(c.Ref(), c.From)
		p.Changes = append(p.Changes, c)
	}
	return p, left
}

// serving is the one vector that serves a queue.
func serving(all map[int]string, queue string) (n int, ok bool) {
	for _, v := range slices.Sorted(maps.Keys(all)) {
		if all[v] == queue {
			if ok {
				return 0, false
			}
			n, ok = v, true
		}
	}
	return n, ok
}

// match finds a device and refuses another one under its name.
func (f *File) match(was plan.Device, now *knob.Snapshot) (plan.Device, error) {
	i := slices.IndexFunc(now.Devices, func(d knob.Device) bool { return d.Name == was.Name })
	if i < 0 {
		return plan.Device{}, fmt.Errorf("%s: %w", was.Name, ErrAbsent)
	}
	is := plan.Of(now.Devices[i])
	want := f.Queues[was.Name]
	differs := func(what string, confirmed, is any) error {
		return fmt.Errorf("%s has %s %v, was confirmed with %v: %w", was.Name, what, is, confirmed, ErrDiffers)
	}
	switch {
	case is.Driver != was.Driver:
		return is, differs("driver", was.Driver, is.Driver)
	case is.Bus != was.Bus:
		return is, differs("bus address", was.Bus, is.Bus)
	case (is.RXQueues != was.RXQueues || is.TXQueues != was.TXQueues) && (Queues{is.RXQueues, is.TXQueues}) != want:
		return is, differs("queues", fmt.Sprintf("%d rx %d tx", want.RX, want.TX), fmt.Sprintf("%d rx %d tx", is.RXQueues, is.TXQueues))
	}
	return is, nil
}

// Health is the note beside the file of how the last boot with it went.
type Health struct {
	BootID  string    `json:"boot_id"`
	Healthy bool      `json:"healthy"`
	Since   time.Time `json:"since"`
}

// May refuses to apply on this boot when the one before was not confirmed healthy. none means there was none.
func (h *Health) May(boot string) error {
	if h == nil || h.Healthy || h.BootID == boot {
		return nil
	}
	return fmt.Errorf("%w (boot %s, %s): nothing is applied; see what happened, then: rxsteer persist, to confirm it again, or rxsteer persist --remove", ErrUnhealthy, h.BootID, h.Since.Format(time.RFC3339))
}

package knob

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/rxsteer/rxsteer/internal/host"
)

// ErrMoved: the setting no longer holds the value the write was planned on;
// nothing was written.
var ErrMoved = errors.New("changed by someone else since it was read")

// ErrReadOnly: the setting is a fact, not a knob.
var ErrReadOnly = errors.New("cannot be written")

// Config is what a Machine stands on.
type Config struct {
	FS host.FS
	// Ethtool and Netdev may be nil: their knobs are then unknown, for the reasons below.
	Ethtool       Ethtool
	EthtoolReason string // "" means "no ethtool access"
	Netdev        Netdev
	NetdevReason  string
	Vectors       Vectors          // nil: found in FS
	Now           func() time.Time // nil: time.Now
}

// Machine reads and writes the settings of one host in one network namespace.
// It keeps no values: every read asks the kernel. It is safe for concurrent
// reads; writes must not overlap.
type Machine struct {
	c Config
}

// Open checks and completes a configuration.
func Open(c Config) (*Machine, error) {
	if c.FS == nil {
		return nil, errors.New("open machine: no file system")
	}
	if c.EthtoolReason == "" {
		c.EthtoolReason = "no ethtool access"
	}
	if c.NetdevReason == "" {
		c.NetdevReason = "no netdev netlink access"
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Vectors == nil {
		c.Vectors = sysVectors{c.FS}
	}
	return &Machine{c: c}, nil
}

// Read reads one setting.
func (m *Machine) Read(_ context.Context, r Ref) Value {
	f, ok := familyOf(r.Knob)
	if !ok {
		return Absent("no such setting: " + string(r.Knob))
	}
	return f.read(m, r)
}

// Write is compare-and-set: it re-reads the setting, refuses with ErrMoved
// unless it still Holds from (but for what adaptive moderation moves), and then sends only what differs in to (for
// a group, to may name just the attributes to change, and from those it relies on).
// Errors read "write rps-cpus of eth0 rx-3: cause" and wrap the kernel's.
func (m *Machine) Write(_ context.Context, r Ref, from, to Value) error {
	if err := m.write(r, from, to); err != nil {
		return fmt.Errorf("write %s: %w", r, err)
	}
	return nil
}

func (m *Machine) write(r Ref, from, to Value) error {
	f, ok := familyOf(r.Knob)
	if !ok {
		return errors.New("no such setting")
	}
	if f.write == nil || !Writable(r.Knob) {
		return ErrReadOnly
	}
	if to.state == unknown {
		return errors.New("the value to write is unknown")
	}
	now := f.read(m, r)
	if now.state == unknown {
		return fmt.Errorf("not readable: %s", now.reason)
	}
	if !Unmoved(now, from, to) {
		return fmt.Errorf("%w: planned on %s, is %s", ErrMoved, from, now)
	}
	if Done(now, to) {
		return nil
	}
	return f.write(m, r, now, to)
}

// Holds reports whether a setting that reads now is as want says: equal, or,
// for a group, equal in every attribute that want names. Two absent values hold
// each other; unknown never does. Every table holds DefaultTable: the kernel does not
// tell whose it is.
func Holds(now, want Value) bool {
	if now.Equal(want) || isDefaultTable(want) && strings.HasPrefix(now.json, "[") {
		return true
	}
	n, ok1 := now.fields()
	w, ok2 := want.fields()
	if !ok1 || !ok2 || len(w) == 0 {
		return false
	}
	for k, v := range w {
		if n[k] != v {
			return false
		}
	}
	return true
}

// Unmoved reports whether a setting that reads now is as a change from → to was planned on: it Holds
// from, but for what adaptive moderation moves by itself.
func Unmoved(now, from, to Value) bool {
	return Holds(now, from) || Holds(now, settled(now, from, to))
}

// Done reports whether a setting that reads now needs no write to be as to says. Giving the
// table back to the driver always needs one.
func Done(now, to Value) bool { return Holds(now, to) && !isDefaultTable(to) }

// settled is v without the attributes that the device moves by itself: while adaptive
// moderation is on in now, virtio_net and hns3 tell the interval of the moment. What to
// sets on top of it stays.
func settled(now, v, to Value) Value {
	n, ok1 := now.fields()
	f, ok2 := v.fields()
	if !ok1 || !ok2 {
		return v
	}
	w, _ := to.fields()
	for _, side := range [...]string{"rx", "tx"} {
		if n["adaptive-"+side] != true {
			continue
		}
		for _, k := range [...]string{side + "-usecs", side + "-frames"} {
			if _, set := w[k]; !set || w["adaptive-"+side] == false {
				delete(f, k)
			}
		}
	}
	return Fields(f)
}

// Delta is what differs from now in to: for groups only the attributes that
// change, else to.
func Delta(now, to Value) Value {
	n, ok1 := now.fields()
	w, ok2 := to.fields()
	if !ok1 || !ok2 {
		return to
	}
	d := map[string]any{}
	for k, v := range w {
		if n[k] != v {
			d[k] = v
		}
	}
	return Fields(d)
}

// Undo is the value that takes a write of to back to from: for groups only the
// attributes that to changes.
func Undo(from, to Value) Value {
	f, ok1 := from.fields()
	w, ok2 := to.fields()
	if !ok1 || !ok2 {
		return from
	}
	d := map[string]any{}
	for k, v := range w {
		if old, ok := f[k]; ok && old != v {
			d[k] = old
		}
	}
	return Fields(d)
}

// Follows reports whether a write of written is meant to move other too: a device's NAPI
// setting sets that of each instance (netdev_set_defer_hard_irqs and kin in
// net/core/dev.c), its moderation that of each queue, its channels the table that nobody set
// (ethtool_rxfh_indir_default). Facts (not Writable) may move at any time.
func Follows(written, other Ref) bool {
	if written.Target.Device() != other.Target.Device() {
		return false
	}
	switch written.Knob {
	case Threaded, DeferHardIRQs, GROFlushTimeout:
		return written.Knob == other.Knob && written.Target.Part() == "" && strings.HasPrefix(other.Target.Part(), "napi-")
	case Coalesce: // the device's moderation is every queue's (mlx5, ice, ena)
		return other.Knob == QueueCoal && written.Target.Part() == ""
	case Channels:
		return other.Knob == RSSTable && other.Target.Part() == ""
	}
	return false
}

// Beside is the part of a difference that a write of to did not ask for: for a group the attributes
// that to does not name, without those that adaptive moderation moves. false: nothing.
func Beside(d Difference, to Value) (Difference, bool) {
	w, ok := to.fields()
	f, ok1 := settled(d.From, d.From, Value{}).fields()
	t, ok2 := settled(d.To, d.To, Value{}).fields()
	if !ok || !ok1 || !ok2 {
		return Difference{}, false
	}
	from, is := map[string]any{}, map[string]any{}
	for k, old := range f {
		now, both := t[k]
		if _, asked := w[k]; asked || !both || now == old {
			continue
		}
		from[k], is[k] = old, now
	}
	return Difference{Ref: d.Ref, From: Fields(from), To: Fields(is)}, len(from) > 0
}

// fields decodes a group; numbers are json.Number, so that values compare with ==.
func (v Value) fields() (map[string]any, bool) {
	if v.state != known || len(v.json) == 0 || v.json[0] != '{' {
		return nil, false
	}
	var m map[string]any
	if err := v.Decode(&m); err != nil {
		return nil, false
	}
	return m, true
}

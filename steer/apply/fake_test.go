package apply

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"runtime"
	"slices"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rxsteer/rxsteer/internal/cpuset"
	"github.com/rxsteer/rxsteer/internal/host/knob"
	"github.com/rxsteer/rxsteer/steer/plan"
)

// died is what a simulated kill panics with.
type died struct{ at string }

// fault decides what happens at the n-th operation: nothing, an error, or death before or after it.
type fault struct {
	at     int
	err    error
	before bool // die before the operation takes effect
	after  bool // die right after it
	seen   int
	log    []string
}

func (f *fault) step(op string, do func() error) error {
	f.log = append(f.log, op)
	n := f.seen
	f.seen++
	if f.at < 0 || n != f.at {
		return do()
	}
	switch {
	case f.before:
		panic(died{op})
	case f.after:
		var refused syscall.Errno
		if err := do(); err != nil && !errors.As(err, &refused) {
			panic(fmt.Sprintf("%s failed before its death: %v", op, err))
		}
		panic(died{op})
	}
	return f.err
}

// fakeHost is a strict host: it knows its settings, refuses others, and writes with
// compare-and-set as the kernel and knob.Machine do.
type fakeHost struct {
	t        *testing.T
	snap     knob.Snapshot // identity and devices
	settings map[knob.Ref]knob.Value
	isolated cpuset.Set // dropped from every written mask, EINVAL when none is left
	fault    *fault
	// refuse, when set, is the kernel's answer to a write.
	refuse func(knob.Ref, knob.Value) error
	// onWrite runs after each successful write: other effects, other owners.
	onWrite func(knob.Ref)
	looks   int // at everything
}

func newFake(t *testing.T, queues int) *fakeHost {
	h := &fakeHost{t: t, settings: map[knob.Ref]knob.Value{}, fault: &fault{at: -1}}
	h.snap = knob.Snapshot{Version: knob.SnapshotVersion,
		Host:    knob.Identity{BootID: "0-boot", Netns: 42, Kernel: "6.12", CPUs: "0-3"},
		Devices: []knob.Device{{Name: "eth0", IfIndex: 2, Driver: "drv", Bus: "0000:00:03.0", RXQueues: queues, TXQueues: queues}, {Name: "eth1", IfIndex: 3, RXQueues: 1, TXQueues: 1}}}
	for q := range queues {
		h.settings[rps(q)] = knob.Text(fmt.Sprint(q % 4))
	}
	h.settings[features] = knob.Fields(map[string]any{"lro": false, "gro": true})
	h.settings[knob.Ref{Knob: knob.RPSCPUs, Target: "eth1 rx-0"}] = knob.Text("")
	h.settings[entries] = knob.Int(0)
	return h
}

var (
	features = knob.Ref{Knob: knob.Features, Target: "eth0"}
	entries  = knob.Ref{Knob: knob.RPSSockFlowEntries, Target: knob.Host}
	context1 = knob.Ref{Knob: knob.RSSTable, Target: "eth0 context-1"}
	rule1    = knob.Ref{Knob: knob.NtupleRule, Target: "eth0 rule-1"}
)

func rps(q int) knob.Ref { return knob.Ref{Knob: knob.RPSCPUs, Target: knob.On("eth0", "rx-%d", q)} }

func (h *fakeHost) Identity(context.Context) (id knob.Identity, err error) {
	err = h.fault.step("identity", func() error { id = h.snap.Host; return nil })
	return id, err
}

func (h *fakeHost) Snapshot(ctx context.Context, devices ...string) (*knob.Snapshot, error) {
	var out *knob.Snapshot
	err := h.fault.step("snapshot", func() error {
		h.looks++
		s := h.snap
		s.Devices = slices.Clone(h.snap.Devices)
		for r, v := range h.settings {
			s.Settings = append(s.Settings, knob.Setting{Ref: r, Value: v})
		}
		s.Sort()
		out = &s
		return nil
	})
	return out, err
}

func (h *fakeHost) Read(ctx context.Context, ref knob.Ref) knob.Value {
	out := knob.Unknown("read failed")
	if err := h.fault.step("read", func() error {
		v, ok := h.settings[ref]
		if !ok {
			v = knob.Absent("no such setting")
		}
		out = v
		return nil
	}); err != nil {
		return knob.Unknown(err.Error())
	}
	return out
}

func (h *fakeHost) Write(ctx context.Context, ref knob.Ref, from, to knob.Value) error {
	return h.fault.step("write", func() error {
		now, ok := h.settings[ref]
		if !ok {
			return fmt.Errorf("write %s: %w", ref, syscall.ENOENT)
		}
		if !knob.Unmoved(now, from, to) {
			return fmt.Errorf("write %s: %w", ref, knob.ErrMoved)
		}
		if h.refuse != nil {
			if err := h.refuse(ref, to); err != nil {
				return fmt.Errorf("write %s: %w", ref, err)
			}
		}
		to = h.whole(now, to)
		if s, isSet := set(to); isSet && !h.isolated.IsEmpty() && !s.IsEmpty() {
			if s = s.Minus(h.isolated); s.IsEmpty() {
				return fmt.Errorf("write %s: %w", ref, syscall.EINVAL)
			}
			to = knob.Set(s)
		}
		h.settings[ref] = to
		if h.onWrite != nil {
			h.onWrite(ref)
		}
		return nil
	})
}

// whole is what a setting holds after a write of to: a group keeps what to does not name, the default table
// is one queue after the other.
func (h *fakeHost) whole(now, to knob.Value) knob.Value {
	if to.Equal(knob.DefaultTable()) {
		table := make([]int, h.snap.Devices[0].Table)
		for i := range table {
			table[i] = i % h.snap.Devices[0].RXQueues
		}
		return knob.List(table)
	}
	var all, some map[string]any
	if now.Decode(&all) != nil || to.Decode(&some) != nil {
		return to
	}
	maps.Copy(all, some)
	return knob.Fields(all)
}

// faultyDisk puts the journal's file under the same fault.
type faultyDisk struct {
	disk
	f *fault
}

func (d faultyDisk) Write(b []byte) (n int, err error) {
	err = d.f.step("journal write", func() error { n, err = d.disk.Write(b); return err })
	if err != nil && n == 0 {
		n, _ = d.disk.Write(b[:len(b)/2]) // a torn line
	}
	return n, err
}
func (d faultyDisk) Sync() error { return d.f.step("journal fsync", d.disk.Sync) }
func (d faultyDisk) Truncate(n int64) error {
	return d.f.step("journal truncate", func() error { return d.disk.Truncate(n) })
}

func (h *fakeHost) config(dir string) Config {
	return Config{Dir: dir, Host: h, wrap: func(d disk) disk { return faultyDisk{d, h.fault} }}
}

// comings gives the host a place for an RSS context and for a rule, which the plan then fills.
func (h *fakeHost) comings() *fakeHost {
	h.settings[context1], h.settings[rule1] = knob.Absent("no such RSS context"), knob.Absent("no rule there")
	return h
}

// plan wants masks 0-3 on every queue of eth0 and an RFS table, and with comings a context and a rule into it.
func (h *fakeHost) plan() *plan.Plan {
	p := &plan.Plan{Version: plan.Version, Goal: plan.Balanced, Identity: plan.Identity{BootID: h.snap.Host.BootID, Netns: h.snap.Host.Netns, Kernel: h.snap.Host.Kernel,
		Devices: []plan.Device{plan.Of(h.snap.Devices[0])}}}
	for q := range h.snap.Devices[0].RXQueues {
		p.Changes = append(p.Changes, plan.Change{Knob: knob.RPSCPUs, Target: rps(q).Target, From: h.settings[rps(q)], To: knob.Text("0-3"), Risk: plan.Reorder})
	}
	if v, ok := h.settings[rule1]; ok {
		p.Changes = append(p.Changes,
			plan.Change{Knob: context1.Knob, Target: context1.Target, From: h.settings[context1], To: knob.List([]int{0, 1}), Risk: plan.Reorder},
			plan.Change{Knob: rule1.Knob, Target: rule1.Target, From: v, Risk: plan.Reorder,
				To: knob.Fields(map[string]any{"flow": "udp4", "queue": 0, "context": 1, "dst-port": "9000"})})
	}
	p.Changes = append(p.Changes, plan.Change{Knob: entries.Knob, Target: entries.Target, From: h.settings[entries], To: knob.Int(4096), Risk: plan.NoRisk})
	return p
}

func (h *fakeHost) state() map[knob.Ref]knob.Value { return maps.Clone(h.settings) }

// same fails the test unless the host holds exactly want.
func (h *fakeHost) same(what string, want map[knob.Ref]knob.Value) {
	h.t.Helper()
	if diff := cmp.Diff(texts(want), texts(h.settings)); diff != "" {
		h.t.Errorf("%s: host (-want +got):\n%s", what, diff)
	}
}

func texts(m map[knob.Ref]knob.Value) map[string]string {
	out := map[string]string{}
	for r, v := range m {
		out[r.String()] = v.JSON()
	}
	return out
}

// open opens an engine that is closed, as by its death, at the end of the test.
func (h *fakeHost) open(c Config) *Engine {
	h.t.Helper()
	e, err := Open(context.Background(), c)
	if err != nil {
		h.t.Fatal(err)
	}
	return e
}

// dies runs f and reports whether it died by the fault.
func dies(f func()) (dead bool) {
	defer func() {
		if v := recover(); v != nil {
			if _, ok := v.(died); !ok {
				panic(v)
			}
			dead = true
		}
	}()
	f()
	return false
}

var errInjected = errors.New("injected fault")

// releaseLock lets go of a lock whose owner died inside Open: a real process's end closes the file.
func releaseLock(t *testing.T, dir string) {
	t.Helper()
	for range 100 {
		runtime.GC()
		f, err := acquire(filepath.Join(dir, lockFile))
		if err == nil {
			f.Close()
			return
		}
	}
	t.Fatal("the lock of a dead run is still held")
}

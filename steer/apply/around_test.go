package apply

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/rxsteer/rxsteer/internal/host/hosttest"
	"github.com/rxsteer/rxsteer/internal/host/knob"
	"github.com/rxsteer/rxsteer/internal/host/nic"
	"github.com/rxsteer/rxsteer/internal/host/reach"
	"github.com/rxsteer/rxsteer/steer/plan"
)

// around is what a fake host is connected to.
type around struct {
	now  reach.State
	fail error
	// looks counts; onLook runs before each.
	looks  int
	onLook func(n int)
}

func (a *around) State(devices ...string) (*reach.State, error) {
	a.looks++
	if a.onLook != nil {
		a.onLook(a.looks)
	}
	s := reach.State{Available: a.now.Available, Links: map[string]reach.Link{}}
	for _, d := range devices {
		if l, ok := a.now.Links[d]; ok {
			s.Links[d] = l
		}
	}
	return &s, a.fail
}

var (
	rings    = knob.Ref{Knob: knob.Rings, Target: "eth0"}
	channels = knob.Ref{Knob: knob.Channels, Target: "eth0"}
	table    = knob.Ref{Knob: knob.RSSTable, Target: "eth0"}
)

func fields(kv ...any) knob.Value {
	m := map[string]any{}
	for i := 0; i < len(kv); i += 2 {
		m[kv[i].(string)] = kv[i+1]
	}
	return knob.Fields(m)
}

// newFlapping is a host whose rings and channels can be changed, and a plan to.
func newFlapping(t *testing.T) (*fakeHost, *around, *plan.Plan) {
	h := newFake(t, 4)
	h.settings[rings], h.settings[knob.Ref{Knob: knob.RingsMax, Target: "eth0"}] = fields("rx", 256, "tx", 256), fields("rx", 4096, "tx", 4096)
	h.settings[channels], h.settings[knob.Ref{Knob: knob.ChannelsMax, Target: "eth0"}] = fields("combined", 4), fields("combined", 8)
	a := &around{now: reach.State{Available: 1 << 30, Links: map[string]reach.Link{"eth0": {Carrier: true, Addresses: []string{"10.0.0.5/24"}, Routes: []string{"0.0.0.0/0 via 10.0.0.1"}, Bond: "bond0", Active: true}}}}
	p := h.plan()
	p.Changes = []plan.Change{{Knob: knob.Rings, Target: "eth0", From: fields("rx", 256), To: fields("rx", 4096), Risk: plan.Flap}}
	return h, a, p
}

var flapAllowed = Options{Allow: []plan.Risk{plan.Reorder, plan.Flap}, ConfirmWithin: time.Minute, BackWithin: 50 * time.Millisecond, Windows: 3, Window: time.Nanosecond, Settle: time.Nanosecond}

func (h *fakeHost) apply(t *testing.T, a *around, p *plan.Plan, o Options) (*Result, error) {
	t.Helper()
	c := h.config(t.TempDir())
	if a != nil {
		c.Around = a
		c.Uptime = func() time.Duration { return time.Duration(a.looks) * 15 * time.Millisecond } // busy machines wait no longer
	}
	e := h.open(c)
	defer e.Close()
	return e.Apply(ctx, p, o)
}

func TestMemoryBeforeGrowing(t *testing.T) {
	for _, test := range []struct {
		name      string
		available uint64 // bytes
		change    func(*plan.Plan)
		refused   string
	}{
		// (4096 − 256) descriptors × 4 queues × 4160 bytes are 61 MiB, and 64 stay.
		{"enough", 128 << 20, nil, ""},
		{"too little for rings", 120 << 20, nil, "about 61 MiB more and 120 MiB are available"},
		{"not told", 0, nil, ""},
		{"to shrink takes none", 1 << 20, func(p *plan.Plan) { p.Changes[0].To = fields("rx", 128) }, ""},
		{"too little for channels and rings together", 160 << 20, func(p *plan.Plan) {
			p.Changes = append([]plan.Change{{Knob: knob.Channels, Target: "eth0", From: fields("combined", 4), To: fields("combined", 8), Risk: plan.Flap}}, p.Changes...)
		}, "about 126 MiB more"},
		{"beyond the driver's rings", 1 << 30, func(p *plan.Plan) { p.Changes[0].To = fields("rx", 8192) }, "rx 8192 is beyond the driver's maximum 4096"},
		{"beyond the driver's channels", 1 << 30, func(p *plan.Plan) {
			p.Changes = []plan.Change{{Knob: knob.Channels, Target: "eth0", From: fields("combined", 4), To: fields("combined", 16), Risk: plan.Flap}}
		}, "combined 16 is beyond the driver's maximum 8"},
	} {
		t.Run(test.name, func(t *testing.T) {
			h, a, p := newFlapping(t)
			old := h.state()
			a.now.Available = test.available
			if test.change != nil {
				test.change(p)
			}
			res, err := h.apply(t, a, p, flapAllowed)
			if test.refused == "" {
				if err != nil || res.State != Unconfirmed {
					t.Errorf("%+v, %v", res, err)
				}
				return
			}
			if !errors.Is(err, ErrRisk) || !strings.Contains(err.Error(), test.refused) {
				t.Errorf("%v, want %q", err, test.refused)
			}
			h.same("refused", old)
		})
	}
}

// After a flap everything that was there must come back, or the change is undone.
func TestReachableAfter(t *testing.T) {
	whole := reach.Link{Carrier: true, Addresses: []string{"10.0.0.5/24"}, Routes: []string{"0.0.0.0/0 via 10.0.0.1"}, Bond: "bond0", Active: true}
	for _, test := range []struct {
		name string
		is   func(reach.Link) reach.Link // after the write
		back bool                        // comes back after some looks
		want string
	}{
		{"comes back", func(l reach.Link) reach.Link { l.Carrier, l.Active = false, false; return l }, true, ""},
		{"carrier stays away", func(l reach.Link) reach.Link { l.Carrier = false; return l }, false, "eth0 lost its carrier and did not get it back in 50ms"},
		{"address is gone", func(l reach.Link) reach.Link { l.Addresses = nil; return l }, false, "eth0 lost address 10.0.0.5/24"},
		{"route is gone", func(l reach.Link) reach.Link { l.Routes = nil; return l }, false, "eth0 lost route 0.0.0.0/0 via 10.0.0.1"},
		{"LACP does not come back", func(l reach.Link) reach.Link { l.Active = false; return l }, false, "eth0 lost its place in bond0"},
	} {
		t.Run(test.name, func(t *testing.T) {
			h, a, p := newFlapping(t)
			old := h.state()
			written := -1
			h.onWrite = func(knob.Ref) {
				if written < 0 {
					written, a.now.Links["eth0"] = a.looks, test.is(whole)
				}
			}
			a.onLook = func(n int) {
				if test.back && written >= 0 && n > written+2 {
					a.now.Links["eth0"] = whole
				}
			}
			res, err := h.apply(t, a, p, flapAllowed)
			if err != nil {
				t.Fatal(err)
			}
			if test.want == "" {
				if res.State != Unconfirmed || a.looks < written+3 {
					t.Errorf("%s: %s, %d looks", res.State, res.Why, a.looks-written)
				}
				return
			}
			if res.State != RolledBack || !strings.HasPrefix(res.Why, test.want) {
				t.Errorf("%s: %q, want %q", res.State, res.Why, test.want)
			}
			h.same("undone", old)
		})
	}
	t.Run("a change that cannot take the link down does not wait", func(t *testing.T) {
		h, a, _ := newFlapping(t)
		if res, err := h.apply(t, a, h.plan(), short); err != nil || res.State != Kept || a.looks != 0 {
			t.Errorf("%+v, %v, %d looks", res, err, a.looks)
		}
	})
}

// The second member of a bond is not touched before the first is back.
func TestBondMembersOneByOne(t *testing.T) {
	h, a, p := newFlapping(t)
	h.snap.Devices[1].Driver = "drv"
	other := knob.Ref{Knob: knob.Rings, Target: "eth1"}
	h.settings[other], h.settings[knob.Ref{Knob: knob.RingsMax, Target: "eth1"}] = fields("rx", 256, "tx", 256), fields("rx", 4096, "tx", 4096)
	a.now.Links["eth1"] = reach.Link{Carrier: true, Bond: "bond0", Active: true}
	p.Identity.Devices = append(p.Identity.Devices, plan.Of(h.snap.Devices[1]))
	p.Changes = append(p.Changes, plan.Change{Knob: knob.Rings, Target: "eth1", From: fields("rx", 256), To: fields("rx", 512), Risk: plan.Flap})
	var order []string
	down := 0
	h.onWrite = func(r knob.Ref) {
		d := r.Target.Device()
		order = append(order, "write "+d)
		for name, l := range a.now.Links {
			if name != d && !l.Active {
				t.Errorf("%s is written while %s is out of the bond", d, name)
			}
		}
		l := a.now.Links[d]
		l.Active = false
		a.now.Links[d], down = l, a.looks
	}
	a.onLook = func(n int) {
		for name, l := range a.now.Links {
			if !l.Active && n > down+2 {
				l.Active = true
				a.now.Links[name] = l
				order = append(order, "back "+name)
			}
		}
	}
	res, err := h.apply(t, a, p, flapAllowed)
	if err != nil || res.State != Unconfirmed {
		t.Fatalf("%+v, %v", res, err)
	}
	if got := strings.Join(order, ", "); got != "write eth0, back eth0, write eth1, back eth1" {
		t.Error(got)
	}
	// When the first does not come back the second is never written.
	h2, a2, p2 := newFlapping(t)
	h2.snap.Devices[1].Driver = "drv"
	h2.settings[other] = fields("rx", 256, "tx", 256)
	p2.Identity.Devices, p2.Changes = p.Identity.Devices, p.Changes
	h2.onWrite = func(r knob.Ref) {
		if r == other {
			t.Error("the second member was written")
		}
		a2.now.Links["eth0"] = reach.Link{Carrier: true, Bond: "bond0"}
	}
	if res, err := h2.apply(t, a2, p2, flapAllowed); err != nil || res.State != RolledBack {
		t.Errorf("%+v, %v", res, err)
	}
}

// A rebuild gives vectors other numbers: a change of one that now serves another queue is left out.
func TestVectorsRenumbered(t *testing.T) {
	h, a, p := newFlapping(t)
	p.Changes[0] = plan.Change{Knob: knob.Channels, Target: "eth0", From: fields("combined", 4), To: fields("combined", 2), Risk: plan.Flap}
	for n := range 4 {
		h.settings[irq(n)] = knob.Text("0")
	}
	for n, to := range []string{"1", "2", "3"} {
		p.Changes = append(p.Changes, plan.Change{Knob: knob.IRQAffinity, Target: irq(n).Target, From: knob.Text("0"), To: knob.Text(to), Risk: plan.Reorder})
	}
	number := func(i int) int {
		var n int
		if _, err := fmt.Sscanf(irq(i).Target.Part(), "irq-%d", &n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	serves := map[int]string{number(0): "rx-0", number(1): "rx-1", number(2): "rx-2", number(3): "rx-3"}
	h.onWrite = func(r knob.Ref) {
		if r == channels {
			serves = map[int]string{number(0): "rx-0", number(1): "rx-3"} // and the third is gone
			delete(h.settings, irq(2))
		}
	}
	c := h.config(t.TempDir())
	c.Around = a
	c.Vectors = func(context.Context, string) (map[int]string, error) { return serves, nil }
	e := h.open(c)
	defer e.Close()
	res, err := e.Apply(ctx, p, flapAllowed)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, s := range res.Steps {
		got = append(got, string(s.Outcome))
	}
	if strings.Join(got, " ") != "applied applied stale stale" || h.settings[irq(1)].String() != "0" {
		t.Errorf("%v; %+v", got, res.Steps)
	}
	if n := res.Steps[2].Note; !strings.Contains(n, "served rx-1 and now serves rx-3") {
		t.Error(n)
	}
	if n := res.Steps[3].Note; !strings.Contains(n, "served rx-2 and now serves nothing") {
		t.Error(n)
	}
}

// A table that names queues which only the old channels have can be put back after them, though it was
// written later.
func TestRollbackInNeed(t *testing.T) {
	h, a, p := newFlapping(t)
	h.settings[table] = knob.List([]int{0, 1, 2, 3})
	h.snap.Devices[0].Table = 4
	p.Identity.Devices = []plan.Device{plan.Of(h.snap.Devices[0])}
	old := h.state()
	p.Changes = []plan.Change{
		{Knob: knob.RSSTable, Target: "eth0", From: knob.List([]int{0, 1, 2, 3}), To: knob.List([]int{0, 1, 0, 1}), Risk: plan.Reorder},
		{Knob: knob.Channels, Target: "eth0", From: fields("combined", 4), To: fields("combined", 2), Risk: plan.Flap},
	}
	// The order that the plan has is one that works; the rollback's reverse is tried, and so is the other.
	for _, swap := range []bool{false, true} {
		h.refuse = func(r knob.Ref, v knob.Value) error {
			var queues []int
			var n map[string]any
			if r == table && v.Decode(&queues) == nil && h.settings[channels].Equal(fields("combined", 2)) {
				for _, q := range queues {
					if q > 1 {
						return syscall.EINVAL
					}
				}
			}
			if r == channels && v.Decode(&n) == nil && fmt.Sprint(n["combined"]) == "2" && h.settings[table].Equal(knob.List([]int{0, 1, 2, 3})) && !swap {
				return syscall.EINVAL
			}
			return nil
		}
		if swap {
			p.Changes[0], p.Changes[1] = p.Changes[1], p.Changes[0]
		}
		c := h.config(t.TempDir())
		c.Around = a
		e := h.open(c)
		res, err := e.Apply(ctx, p, flapAllowed)
		if err != nil || res.State != Unconfirmed {
			t.Fatalf("%+v, %v", res, err)
		}
		if res, err = e.Rollback(""); err != nil || res.State != RolledBack {
			t.Errorf("swap %v: %+v, %v", swap, res, err)
		}
		h.same(fmt.Sprintf("swap %v", swap), old)
		e.Close()
	}
}

// A driver that requests its vectors anew forgets what users set: their CPUs come back by queue, after
// the change and after its rollback, whatever numbers the vectors have by then.
func TestAffinityResetsArePutRight(t *testing.T) {
	for _, dies := range []bool{false, true} {
		t.Run(fmt.Sprintf("dies %v", dies), func(t *testing.T) {
			fake := hosttest.New(t, hosttest.Spec{CPUs: hosttest.Small(4), NICs: []hosttest.NIC{hosttest.IGB("eth0", 4)}})
			m, err := knob.Open(knob.Config{FS: fake, Ethtool: fake.Ethtool()})
			if err != nil {
				t.Fatal(err)
			}
			vectors := func(_ context.Context, d string) (map[int]string, error) {
				nics, err := nic.Inventory(ctx, nic.Sources{FS: fake, Ethtool: fake.Ethtool()})
				if err != nil {
					return nil, err
				}
				out := map[int]string{}
				for _, n := range nics {
					for _, q := range n.Queues {
						if n.Name == d && q.IRQ != nic.None && q.RX != nic.None {
							out[q.IRQ] = fmt.Sprintf("rx-%d", q.RX)
						}
					}
				}
				return out, nil
			}
			cpus := func() (out []string) {
				now, err := vectors(ctx, "eth0")
				if err != nil {
					t.Fatal(err)
				}
				for n, q := range now {
					out = append(out, q+" on "+m.Read(ctx, irq(n)).String())
				}
				slices.Sort(out)
				return out
			}
			serves, err := vectors(ctx, "eth0")
			if err != nil || len(serves) != 4 {
				t.Fatal(serves, err)
			}
			for n, q := range serves { // queue 0 on CPU 3, 1 on 2, …
				if err := m.Write(ctx, irq(n), m.Read(ctx, irq(n)), knob.Text(fmt.Sprint(3-int(q[3]-'0')))); err != nil {
					t.Fatal(err)
				}
			}
			before := cpus()
			s, err := m.Snapshot(ctx)
			if err != nil {
				t.Fatal(err)
			}
			p := &plan.Plan{Version: plan.Version, Goal: plan.Balanced, Identity: plan.Identity{BootID: s.Host.BootID, Netns: s.Host.Netns, Devices: []plan.Device{plan.Of(s.Devices[slices.IndexFunc(s.Devices, func(d knob.Device) bool { return d.Name == "eth0" })])}},
				Changes: []plan.Change{{Knob: knob.Channels, Target: "eth0", From: fields("combined", 4), To: fields("combined", 2), Risk: plan.Flap}}}
			c := Config{Dir: t.TempDir(), Host: m, Vectors: vectors}
			e, err := Open(ctx, c)
			if err != nil {
				t.Fatal(err)
			}
			res, err := e.Begin(ctx, p, flapAllowed)
			if err != nil || res.State != Applying {
				t.Fatalf("%+v, %v", res, err)
			}
			if diff := cmp.Diff(before[:2], cpus()); diff != "" {
				t.Errorf("two channels (-want +got):\n%s; %+v", diff, res.Unasked)
			}
			if dies {
				e.Close()
				if e, err = Open(ctx, c); err != nil {
					t.Fatal(err)
				}
				all, rerr := e.Recover()
				if rerr != nil || len(all) != 1 {
					t.Fatalf("%+v, %v", all, rerr)
				}
				res = all[0]
			} else if res, err = e.Drop("enough"); err != nil {
				t.Fatal(err)
			}
			defer e.Close()
			if res.State != RolledBack {
				t.Errorf("%s: %+v", res.State, res.Left)
			}
			if diff := cmp.Diff(before, cpus()); diff != "" {
				t.Errorf("rolled back (-want +got):\n%s; %+v", diff, res.Unasked)
			}
		})
	}
}

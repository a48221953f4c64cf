package hosttest

import (
	"errors"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/rxsteer/rxsteer/internal/cpuset"
	"github.com/rxsteer/rxsteer/internal/ethtool"
	"github.com/rxsteer/rxsteer/internal/host/knob"
	"github.com/rxsteer/rxsteer/internal/host/nic"
)

// TestSupportTableIsTrue writes, through the knobs, every setting that the support
// table says was run on the fake, reads it back and puts it back; and finds absent what
// the table says a driver does not offer.
func TestSupportTableIsTrue(t *testing.T) {
	presets := map[string]func() []NIC{
		"igb":        func() []NIC { return []NIC{IGB("eth0", 4)} },
		"ixgbe":      func() []NIC { return []NIC{IXGBE("eth0", 8)} },
		"mlx5_core":  func() []NIC { return []NIC{MLX5("eth0", 8)} },
		"mlx4_core":  func() []NIC { return []NIC{MLX4("eth0", 8)} },
		"virtio_net": func() []NIC { return []NIC{Virtio("eth0", "virtio0", 4)} },
		"ena":        func() []NIC { return []NIC{ENA("eth0", 4)} },
		"vmxnet3":    func() []NIC { return []NIC{VMXNET3("eth0", 4)} },
		"e1000e":     func() []NIC { return []NIC{E1000E("eth0")} },
		"bnxt_en":    func() []NIC { return []NIC{BNXT("eth0", 8)} },
		"hv_netvsc":  func() []NIC { return NetVSC("eth0", "enP1s1", 4) },
		"veth":       func() []NIC { return []NIC{Veth("eth0", 2, 4)} },
	}
	for _, driver := range nic.SupportedDrivers() {
		preset := presets[driver]
		if preset == nil {
			t.Errorf("driver %s has a column and no preset", driver)
			continue
		}
		h := New(t, Spec{Kernel: "6.18.0", CPUs: Small(8), NICs: preset()})
		m, err := knob.Open(knob.Config{FS: h, Ethtool: h.Ethtool(), Netdev: h.Netdev()})
		if err != nil {
			t.Fatal(err)
		}
		for _, k := range nic.DriverKinds() {
			r := knob.Ref{Knob: k, Target: "eth0"}
			switch k {
			case knob.QueueCoal:
				r.Target = "eth0 queue-1"
			case knob.RSSHashFields:
				r.Target = "eth0 udp4"
			case knob.NtupleRule:
				r.Target = "eth0 rule-7"
			}
			level := nic.Support(driver, k)
			t.Run(driver+"/"+string(k), func(t *testing.T) {
				from := m.Read(t.Context(), r)
				if k == knob.NtupleRule {
					testRule(t, h, m, level)
					return
				}
				if !from.Known() {
					if level.Run() {
						t.Errorf("the table says %s, it reads %s (%s)", level, from, from.Reason())
					}
					return
				}
				to := another(t, h, k, from)
				before := h.Dump()
				err := m.Write(t.Context(), r, from, to)
				got := m.Read(t.Context(), r)
				done := err == nil && knob.Holds(got, to)
				if want := level.Run(); done != want {
					t.Fatalf("the table says %s; write %s → %s: %v, reads %s", level, from, to, err, got)
				}
				if !done {
					return
				}
				back := from
				if k == knob.RSSTable {
					back = knob.DefaultTable()
				}
				if err := m.Write(t.Context(), r, got, back); err != nil {
					t.Fatalf("put back: %v", err)
				}
				if k != knob.RSSTable { // the driver's own table is not ethtool's default everywhere
					if after := settings(h.Dump()); after != settings(before) {
						t.Errorf("not as before:\n%s", changes(before, h.Dump()))
					}
				}
			})
		}
	}
}

var flaps = regexp.MustCompile(`link-flaps \d+`)

// TestKernelSettingsOnTheFake does the same for what belongs to the kernel's core and
// to the host.
func TestKernelSettingsOnTheFake(t *testing.T) {
	h := New(t, Spec{Kernel: "6.18.0", CPUs: Small(8), Remapping: true, NICs: []NIC{MLX5("eth0", 4)}})
	m, err := knob.Open(knob.Config{FS: h, Ethtool: h.Ethtool(), Netdev: h.Netdev()})
	if err != nil {
		t.Fatal(err)
	}
	list, err := h.Netdev().NAPIs(2)
	if err != nil {
		t.Fatal(err)
	}
	napi := knob.On("eth0", "napi-%d", list[1].ID)
	set := func(cpus ...int) knob.Value { return knob.Set(cpuset.Of(cpus...)) }
	targets := map[knob.Kind]struct {
		target knob.Target
		to     knob.Value
	}{
		knob.IRQAffinity:        {knob.On("eth0", "irq-%d", h.IRQs("eth0")[1]), set(3)},
		knob.RPSCPUs:            {"eth0 rx-1", set(2, 3)},
		knob.RPSFlowCnt:         {"eth0 rx-1", knob.Int(4096)},
		knob.XPSCPUs:            {"eth0 tx-1", set(1)},
		knob.XPSRXQs:            {"eth0 tx-1", set(1)},
		knob.Threaded:           {napi, knob.Int(1)},
		knob.DeferHardIRQs:      {napi, knob.Int(2)},
		knob.GROFlushTimeout:    {"eth0", knob.Int(20000)},
		knob.IRQSuspendTimeout:  {napi, knob.Int(1000000)},
		knob.MTU:                {"eth0", knob.Int(9000)},
		knob.RPSSockFlowEntries: {knob.Host, knob.Int(32768)},
		knob.RPSDefaultMask:     {knob.Host, set(1)},
		knob.NetdevBudget:       {knob.Host, knob.Int(600)},
		knob.NetdevBudgetUsecs:  {knob.Host, knob.Int(4000)},
		knob.NetdevMaxBacklog:   {knob.Host, knob.Int(2000)},
		knob.DevWeight:          {knob.Host, knob.Int(128)},
		knob.BusyPoll:           {knob.Host, knob.Int(50)},
		knob.BusyRead:           {knob.Host, knob.Int(50)},
		knob.FlowLimitCPUs:      {knob.Host, set(0, 1)},
		knob.FlowLimitTableLen:  {knob.Host, knob.Int(8192)},
	}
	for _, k := range nic.KernelKinds() {
		c, ok := targets[k]
		if !ok {
			t.Errorf("%s is in the support table and not tried here", k)
			continue
		}
		r := knob.Ref{Knob: k, Target: c.target}
		from := m.Read(t.Context(), r)
		before := h.Dump()
		if err := m.Write(t.Context(), r, from, c.to); err != nil {
			t.Errorf("%s from %s (%s): %v", r, from, from.Reason(), err)
			continue
		}
		if got := m.Read(t.Context(), r); !got.Equal(c.to) {
			t.Errorf("%s: wrote %s, reads %s", r, c.to, got)
		}
		if err := m.Write(t.Context(), r, c.to, from); err != nil {
			t.Errorf("put %s back: %v", r, err)
		}
		if d := changes(before, h.Dump()); d != "" && k != knob.IRQAffinity { // the vector may stay on another CPU of the old mask
			t.Errorf("%s is not as before:\n%s", r, d)
		}
	}
}

// settings is a dump without the count of link flaps.
func settings(dump string) string { return flaps.ReplaceAllString(dump, "") }

// another is a value that the setting can be changed to.
func another(t *testing.T, h *Host, k knob.Kind, from knob.Value) knob.Value {
	t.Helper()
	n := h.nics[0]
	change := func(name string, v any) knob.Value { return knob.Fields(map[string]any{name: v}) }
	switch k {
	case knob.Channels:
		for _, name := range []string{"combined", "rx"} {
			if v := n.channels[name]; v > 1 {
				return change(name, int64(v-1))
			}
		}
	case knob.Rings:
		return change("rx", int64(n.rings["rx"]/2))
	case knob.Coalesce, knob.QueueCoal:
		for _, name := range []string{"rx-usecs", "rx-frames"} {
			if v, ok := n.coalesce[name]; ok {
				return change(name, int64(v+2))
			}
		}
	case knob.RSSTable:
		return knob.List(slices.Repeat([]int{0}, len(n.table)))
	case knob.RSSKey:
		return knob.Text("01" + from.String()[2:])
	case knob.RSSFunction:
		return knob.Text("xor")
	case knob.RSSHashFields:
		if from.String() == "sdfn" {
			return knob.Text("sd")
		}
		return knob.Text("sdfn")
	case knob.Features:
		return change("rx-gro", !n.features["rx-gro"])
	case knob.Pause:
		return change("tx", n.pause["tx"] == 0)
	case knob.PrivateFlags:
		name := sortedKeys(n.flags)[0]
		return change(name, !n.flags[name])
	case knob.FEC:
		return change("modes", "baser")
	}
	t.Fatalf("no other value of %s than %s", k, from)
	return from
}

// TestRSSContextsOnTheFake makes, changes and deletes a context, each with its undo.
func TestRSSContextsOnTheFake(t *testing.T) {
	h := New(t, Spec{Kernel: "6.18.0", CPUs: Small(8), NICs: []NIC{MLX5("eth0", 8), IGB("eth1", 4)}})
	m, err := knob.Open(knob.Config{FS: h, Ethtool: h.Ethtool(), Netdev: h.Netdev()})
	if err != nil {
		t.Fatal(err)
	}
	table := func(q ...int) knob.Value { return knob.List(repeat(q, 256)) }
	r := knob.Ref{Knob: knob.RSSTable, Target: "eth0 context-2"}
	none := m.Read(t.Context(), r)
	if !none.IsAbsent() {
		t.Fatalf("a context nobody made reads %s", none)
	}
	before := h.Dump()
	step := func(from, to knob.Value) {
		t.Helper()
		if err := m.Write(t.Context(), r, from, to); err != nil {
			t.Fatal(err)
		}
		if now := m.Read(t.Context(), r); !knob.Holds(now, to) {
			t.Fatalf("wrote %s, reads %s", to, now)
		}
	}
	step(none, table(4, 5))
	step(table(4, 5), table(6, 7))
	if s, err := m.Snapshot(t.Context(), "eth0"); err != nil || !s.Get(r).Equal(table(6, 7)) {
		t.Errorf("in the snapshot: %s, %v", s.Get(r), err)
	}
	if err := m.Write(t.Context(), r, table(4, 5), none); !errors.Is(err, knob.ErrMoved) {
		t.Errorf("deleting a context that was changed: %v", err)
	}
	e := h.Ethtool()
	if err := errors.Join(e.SetFeatures("eth0", map[string]bool{"rx-ntuple-filter": true}),
		e.InsertRule("eth0", ethtool.Rule{Location: 7, Flow: "tcp4", Match: map[string]string{"dst-port": "443"}, Context: 2})); err != nil {
		t.Fatal(err)
	}
	if err := m.Write(t.Context(), r, table(6, 7), none); !errors.Is(err, ethtool.ErrBusy) || !strings.Contains(knob.Meaning(r, err), "rule") {
		t.Errorf("deleting a context that a rule uses: %v (%s)", err, knob.Meaning(r, err))
	}
	if err := errors.Join(e.DeleteRule("eth0", 7), e.SetFeatures("eth0", map[string]bool{"rx-ntuple-filter": false})); err != nil {
		t.Fatal(err)
	}
	step(table(6, 7), none)
	if after := h.Dump(); settings(after) != settings(before) {
		t.Errorf("not as before:\n%s", changes(before, after))
	}
	// A queue that does not exist, and a driver without contexts.
	if err := m.Write(t.Context(), r, none, table(8)); !errors.Is(err, ethtool.ErrInvalid) {
		t.Errorf("a table with queue 8 of 8: %v", err)
	}
	igb := knob.Ref{Knob: knob.RSSTable, Target: "eth1 context-1"}
	if err := m.Write(t.Context(), igb, m.Read(t.Context(), igb), knob.List(repeat([]int{0}, 128))); !errors.Is(err, ethtool.ErrNotSupported) {
		t.Errorf("igb has no contexts: %v", err)
	}
	for v, want := range map[knob.Value]string{
		none:                   "ethtool -X eth0 context 2 delete",
		knob.List([]int{0, 1}): "ethtool -X eth0 equal 2 context 2",
	} {
		if got := knob.Command(r, v); got != want {
			t.Errorf("command for %s: %q, want %q", v, got, want)
		}
	}
}

// testRule switches ntuple on, and inserts and deletes a rule.
func testRule(t *testing.T, h *Host, m *knob.Machine, level nic.Level) {
	e := h.Ethtool()
	err := e.SetFeatures("eth0", map[string]bool{"rx-ntuple-filter": true})
	if err == nil {
		err = e.InsertRule("eth0", ethtool.Rule{Location: 7, Flow: "tcp4", Match: map[string]string{"dst-port": "443"}, Queue: 0})
	}
	r := knob.Ref{Knob: knob.NtupleRule, Target: "eth0 rule-7"}
	got := m.Read(t.Context(), r)
	if done := err == nil && got.Known(); level != nic.Docs && done != level.Run() {
		t.Fatalf("the table says %s; insert: %v, reads %s (%s)", level, err, got, got.Reason())
	}
	if !got.Known() {
		return
	}
	if err := m.Write(t.Context(), r, got, knob.Absent("gone")); err != nil {
		t.Errorf("delete: %v", err)
	}
	if got := m.Read(t.Context(), r); got.Known() {
		t.Errorf("still there: %s", got)
	}
}

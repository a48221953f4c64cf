package knob_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/fstest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/rxsteer/rxsteer/internal/cpuset"
	"github.com/rxsteer/rxsteer/internal/ethtool"
	"github.com/rxsteer/rxsteer/internal/host/hosttest"
	"github.com/rxsteer/rxsteer/internal/host/knob"
)

func machine(t testing.TB, h *hosttest.Host) *knob.Machine {
	t.Helper()
	m, err := knob.Open(knob.Config{FS: h, Ethtool: h.Ethtool(), Netdev: h.Netdev(), Now: func() time.Time { return time.Unix(1700000000, 0) }})
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func snapshot(t testing.TB, m *knob.Machine, devices ...string) *knob.Snapshot {
	t.Helper()
	s, err := m.Snapshot(t.Context(), devices...)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// other is another value that a setting of a fake NIC can have; ok false where the test
// leaves it alone.
func other(r knob.Ref, v knob.Value) (knob.Value, bool) {
	part := func(k string, x any) (knob.Value, bool) { return knob.Fields(map[string]any{k: x}), true }
	switch r.Knob {
	case knob.Coalesce, knob.QueueCoal:
		if !strings.Contains(v.JSON(), `"rx-usecs"`) { // tun; virtnet_set_coalesce before Linux 6.1 takes 1 only
			return knob.Fields(map[string]any{"rx-frames": 16}), !strings.Contains(v.JSON(), `"rx-frames":1,`) && !strings.Contains(v.JSON(), `"rx-frames":1}`)
		}
		return part("rx-usecs", 77)
	case knob.Rings:
		return part("rx", 1024)
	case knob.Channels:
		return part("combined", 2)
	case knob.Features:
		return part("rx-gro", false)
	case knob.RSSTable:
		var table []int
		if v.Decode(&table) != nil {
			return v, false
		}
		table = slices.Clone(table)
		table[0], table[len(table)-1] = 1, 0
		return knob.List(table), true
	case knob.RPSCPUs, knob.XPSCPUs, knob.IRQAffinity, knob.RPSDefaultMask, knob.FlowLimitCPUs:
		return knob.Set(cpuset.Of(1)), true
	case knob.RPSFlowCnt, knob.RPSSockFlowEntries, knob.FlowLimitTableLen:
		return knob.Int(8192), true
	case knob.Threaded:
		return knob.Int(1), true
	case knob.DeferHardIRQs, knob.GROFlushTimeout, knob.IRQSuspendTimeout, knob.NetdevBudget,
		knob.NetdevMaxBacklog, knob.DevWeight, knob.BusyPoll, knob.BusyRead:
		return knob.Int(2000), true
	case knob.RSSKey:
		if key := v.String(); key[:2] != "a5" {
			return knob.Text("a5" + key[2:]), true
		}
		return v, false
	case knob.RSSHashFields:
		if r.Target.Part() == "udp4" && v.String() == "sd" {
			return knob.Text("sdfn"), true
		}
		return knob.Text("sd"), r.Target.Part() == "udp4"
	case knob.NetdevBudgetUsecs:
		return knob.Int(20000), true // Debian's 6.12 refuses less than 2/HZ s
	case knob.MTU:
		return knob.Int(1400), true
	}
	return v, false
}

// moved is what of the knobs differs.
func moved(a, b *knob.Snapshot) []knob.Difference {
	return slices.DeleteFunc(knob.Diff(a, b), func(d knob.Difference) bool { return !knob.Writable(d.Knob) })
}

// Every knob that a machine shows is written, reads back, and is undone exactly, without
// moving anything that does not follow it. A driver may show what it does not let be set:
// refused counts those, which must stay as they are. Facts are left out: an effective affinity
// moves with an interrupt, the link with an MTU.
func everyKnob(t *testing.T, m *knob.Machine, skip func(knob.Ref) bool, devices ...string) (written, refused map[knob.Kind]int) {
	t.Helper()
	written, refused = map[knob.Kind]int{}, map[knob.Kind]int{}
	before := snapshot(t, m, devices...)
	if len(before.Devices) != len(devices) {
		t.Fatalf("devices %v", before.Devices)
	}
	for _, s := range before.Settings {
		if !knob.Writable(s.Knob) || !s.Value.Known() || skip(s.Ref) {
			continue
		}
		to, ok := other(s.Ref, s.Value)
		if !ok || knob.Holds(s.Value, to) {
			continue
		}
		switch err := m.Write(t.Context(), s.Ref, s.Value, to); {
		case errors.Is(err, ethtool.ErrNotSupported) && strings.Contains(knob.Meaning(s.Ref, err), "permanent"):
			refused[s.Knob]++
			if d := knob.DiffText(moved(before, snapshot(t, m, devices...))); d != "" {
				t.Errorf("a refused write of %s moved:\n%s", s.Ref, d)
			}
			continue
		case err != nil:
			t.Errorf("%v (%s)", err, knob.Meaning(s.Ref, err))
			continue
		}
		written[s.Knob]++
		now := m.Read(t.Context(), s.Ref)
		if !knob.Holds(now, to) {
			t.Errorf("%s: wrote %s, reads %s (%s)", s.Ref, to, now, now.Reason())
		}
		for _, d := range moved(before, snapshot(t, m, devices...)) {
			if d.Ref != s.Ref && !knob.Follows(s.Ref, d.Ref) {
				t.Errorf("a write of %s moved %s", s.Ref, d.Text())
			}
		}
		// Somebody with an old view is refused.
		if err := m.Write(t.Context(), s.Ref, s.Value, to); !errors.Is(err, knob.ErrMoved) {
			t.Errorf("%s: a write on an old view gives %v, want ErrMoved", s.Ref, err)
		}
		if err := m.Write(t.Context(), s.Ref, to, knob.Undo(s.Value, to)); err != nil {
			t.Errorf("undo: %v", err)
		}
		if d := knob.DiffText(moved(before, snapshot(t, m, devices...))); d != "" {
			t.Errorf("after the undo of %s:\n%s", s.Ref, d)
		}
	}
	return written, refused
}

func TestEveryKnobOfAFakeNIC(t *testing.T) {
	nic := hosttest.MLX5("eth0", 4)
	h := hosttest.New(t, hosttest.Spec{Kernel: "6.18.0", CPUs: hosttest.Small(4), NICs: []hosttest.NIC{nic}})
	m := machine(t, h)
	// Channels rebuild queues and with them other settings; an affinity takes effect with
	// an interrupt. Both have their own tests.
	written, refused := everyKnob(t, m, func(r knob.Ref) bool { return r.Knob == knob.Channels || r.Knob == knob.Rings }, "eth0")
	if len(refused) > 0 {
		t.Errorf("refused: %v", refused)
	}
	for _, k := range []knob.Kind{knob.Coalesce, knob.QueueCoal, knob.RSSTable, knob.RSSKey, knob.Features, knob.RPSCPUs, knob.RPSFlowCnt, knob.XPSCPUs,
		knob.IRQAffinity, knob.Threaded, knob.DeferHardIRQs, knob.NetdevBudget, knob.MTU, knob.RPSSockFlowEntries} {
		if written[k] == 0 {
			t.Errorf("%s was not written at all", k)
		}
	}
}

func TestChannelsMoveWhatHangsOnThem(t *testing.T) {
	h := hosttest.New(t, hosttest.Spec{CPUs: hosttest.Small(8), NICs: []hosttest.NIC{hosttest.MLX5("eth0", 8)}})
	m := machine(t, h)
	r := knob.Ref{Knob: knob.Channels, Target: "eth0"}
	table := knob.Ref{Knob: knob.RSSTable, Target: "eth0"}
	was := m.Read(t.Context(), table)
	var q []int
	if err := was.Decode(&q); err != nil {
		t.Fatal(err)
	}
	q[0] = 7
	if err := m.Write(t.Context(), table, was, knob.List(q)); err != nil {
		t.Fatal(err)
	}
	from := m.Read(t.Context(), r)
	err := m.Write(t.Context(), r, from, knob.Fields(map[string]any{"combined": 4}))
	if no := syscall.EINVAL; !errors.Is(err, no) || !strings.Contains(knob.Meaning(r, err), "table to default first") {
		t.Fatalf("shrinking below a user-set table: %v", err)
	}
	if err := m.Write(t.Context(), table, knob.List(q), knob.DefaultTable()); err != nil {
		t.Fatal(err)
	}
	if err := m.Write(t.Context(), r, from, knob.Fields(map[string]any{"combined": 4})); err != nil {
		t.Fatal(err)
	}
	if s := snapshot(t, m, "eth0"); s.Devices[0].RXQueues != 4 {
		t.Errorf("rx queues: %d, want 4", s.Devices[0].RXQueues)
	}
	if v := m.Read(t.Context(), knob.Ref{Knob: knob.RPSCPUs, Target: "eth0 rx-5"}); !v.IsAbsent() {
		t.Errorf("a queue that went reads %v", v)
	}
}

// Undoing a table gives it back to the driver, else it would stay the user's and block
// shrinking channels for good: seen on igb, whose own table cannot be had by asking.
func TestAnUndoneTableIsTheDriversAgain(t *testing.T) {
	h := hosttest.New(t, hosttest.Spec{CPUs: hosttest.Small(8), NICs: []hosttest.NIC{hosttest.MLX5("eth0", 8)}})
	m := machine(t, h)
	table := knob.Ref{Knob: knob.RSSTable, Target: "eth0"}
	channels := knob.Ref{Knob: knob.Channels, Target: "eth0"}
	was := m.Read(t.Context(), table)
	mine, _ := other(table, was)
	if err := m.Write(t.Context(), table, was, mine); err != nil {
		t.Fatal(err)
	}
	few := knob.Fields(map[string]any{"combined": 4})
	if err := m.Write(t.Context(), channels, m.Read(t.Context(), channels), few); !errors.Is(err, syscall.EINVAL) {
		t.Errorf("shrinking below a user's table: %v", err)
	}
	if err := m.Write(t.Context(), table, mine, was); err != nil {
		t.Fatal(err)
	}
	if now := m.Read(t.Context(), table); !now.Equal(was) {
		t.Errorf("put back %s, reads %s", was, now)
	}
	if err := m.Write(t.Context(), channels, m.Read(t.Context(), channels), few); err != nil {
		t.Errorf("after the undo: %v", err)
	}
}

// A vector number that another device got since must not be written.
func TestAffinityOfAForeignVectorIsNotWritten(t *testing.T) {
	h := hosttest.New(t, hosttest.Spec{CPUs: hosttest.Small(4), NICs: []hosttest.NIC{hosttest.IGB("eth0", 4), hosttest.MLX5("eth1", 2)}})
	m := machine(t, h)
	foreign := h.IRQs("eth1")[0]
	r := knob.Ref{Knob: knob.IRQAffinity, Target: knob.On("eth0", "irq-%d", foreign)}
	err := m.Write(t.Context(), r, m.Read(t.Context(), r), knob.Set(cpuset.Of(1)))
	if err == nil || !strings.HasPrefix(err.Error(), "write irq-affinity of eth0 irq-") || !strings.Contains(knob.Meaning(r, err), "read the map again") {
		t.Errorf("%v", err)
	}
	for _, w := range h.Writes() {
		if strings.Contains(w, "smp_affinity") {
			t.Errorf("written all the same: %s", w)
		}
	}
}

func TestManagedVectorsMeanWhatTheyAre(t *testing.T) {
	h := hosttest.New(t, hosttest.Spec{Kernel: "6.1.0", CPUs: hosttest.Small(4), NICs: []hosttest.NIC{hosttest.MLX5("eth0", 4)}})
	m := machine(t, h)
	irq := h.IRQs("eth0")[0]
	h.Manage(irq, true)
	r := knob.Ref{Knob: knob.IRQAffinity, Target: knob.On("eth0", "irq-%d", irq)}
	now := m.Read(t.Context(), r)
	err := m.Write(t.Context(), r, now, knob.Set(cpuset.Of(3)))
	if !errors.Is(err, syscall.EIO) || !strings.Contains(knob.Meaning(r, err), "permanent") {
		t.Errorf("%v", err)
	}
}

func TestIsolatedCPUsInAnRPSMask(t *testing.T) {
	h := hosttest.New(t, hosttest.Spec{Kernel: "6.1.0", CPUs: hosttest.CPUs{Cores: 8, Isolated: cpuset.Range(4, 7)}, NICs: []hosttest.NIC{hosttest.Veth("eth0", 1, 1)}})
	m := machine(t, h)
	r := knob.Ref{Knob: knob.RPSCPUs, Target: "eth0 rx-0"}
	off := knob.Set(cpuset.Set{})
	if err := m.Write(t.Context(), r, off, knob.Set(cpuset.Range(0, 7))); err != nil {
		t.Fatal(err)
	}
	got := m.Read(t.Context(), r)
	if got.String() != "0-3" {
		t.Errorf("reads back %q, want the housekeeping CPUs 0-3", got)
	}
	err := m.Write(t.Context(), r, got, knob.Set(cpuset.Range(4, 7)))
	if !errors.Is(err, syscall.EINVAL) || !strings.Contains(knob.Meaning(r, err), "isolated") {
		t.Errorf("%v", err)
	}
	if err := m.Write(t.Context(), r, got, off); err != nil {
		t.Errorf("switching off: %v", err)
	}
}

func TestRulesAreWrittenReplacedAndDeleted(t *testing.T) {
	h := hosttest.New(t, hosttest.Spec{CPUs: hosttest.Small(4), NICs: []hosttest.NIC{hosttest.MLX5("eth0", 4)}})
	m := machine(t, h)
	features := knob.Ref{Knob: knob.Features, Target: "eth0"}
	r := knob.Ref{Knob: knob.NtupleRule, Target: "eth0 rule-7"}
	one := knob.Fields(map[string]any{"flow": "tcp4", "dst-port": "443", "queue": 1})
	two := knob.Fields(map[string]any{"flow": "tcp4", "dst-port": "443", "queue": 2})
	if err := m.Write(t.Context(), r, m.Read(t.Context(), r), one); !errors.Is(err, ethtool.ErrNotSupported) || !strings.Contains(knob.Meaning(r, err), "ntuple on") {
		t.Errorf("with the filter off: %v", err)
	}
	if err := m.Write(t.Context(), features, m.Read(t.Context(), features), knob.Fields(map[string]any{"rx-ntuple-filter": true})); err != nil {
		t.Fatal(err)
	}
	none := m.Read(t.Context(), r)
	if !none.IsAbsent() {
		t.Fatalf("%v", none)
	}
	for _, step := range []struct{ from, to knob.Value }{{none, one}, {one, two}, {two, none}} {
		if err := m.Write(t.Context(), r, step.from, step.to); err != nil {
			t.Fatal(err)
		}
		if now := m.Read(t.Context(), r); !knob.Holds(now, step.to) {
			t.Errorf("wrote %s, reads %s", step.to, now)
		}
	}
}

func TestAbsentAndUnknownAreTold(t *testing.T) {
	h := hosttest.New(t, hosttest.Spec{CPUs: hosttest.Small(2), NICs: []hosttest.NIC{hosttest.E1000E("eth0")}})
	bare, err := knob.Open(knob.Config{FS: h, EthtoolReason: "no socket in this namespace"})
	if err != nil {
		t.Fatal(err)
	}
	m := machine(t, h)
	for _, tt := range []struct {
		m      *knob.Machine
		ref    knob.Ref
		absent bool
		reason string
	}{
		{m, knob.Ref{Knob: knob.RSSTable, Target: "eth0"}, true, "e1000e"},
		{m, knob.Ref{Knob: knob.Channels, Target: "eth9"}, true, "no such device eth9"},
		{m, knob.Ref{Knob: knob.RPSCPUs, Target: "eth0 rx-9"}, true, "no such setting"},
		{m, knob.Ref{Knob: knob.RPSCPUs, Target: "eth0/../lo rx-0"}, true, "no setting"},
		{m, knob.Ref{Knob: knob.RPSCPUs, Target: "eth0 rx--1"}, true, "no setting"},
		{m, knob.Ref{Knob: knob.NetdevBudget, Target: "eth0"}, true, "no setting"},
		{m, knob.Ref{Knob: "colour", Target: "eth0"}, true, "no such setting"},
		{bare, knob.Ref{Knob: knob.Channels, Target: "eth0"}, false, "no socket in this namespace"},
		{bare, knob.Ref{Knob: knob.Threaded, Target: "eth0 napi-1"}, false, "no netdev netlink access"},
	} {
		v := tt.m.Read(t.Context(), tt.ref)
		if v.Known() || v.IsAbsent() != tt.absent || !strings.Contains(v.Reason(), tt.reason) {
			t.Errorf("%s: %s, %q; want absent %v because %q", tt.ref, v, v.Reason(), tt.absent, tt.reason)
		}
	}
	s := snapshot(t, bare)
	if v := s.Get(knob.Ref{Knob: knob.RSSTable, Target: "eth0"}); v.Known() || v.IsAbsent() {
		t.Errorf("without ethtool the table is %v, want unknown", v)
	}
}

// moded gives one file the mode it has on 6.12 for a managed vector, and another the text of
// debugfs.
type moded struct{ fstest.MapFS }

func (m moded) name(p string) string                    { return strings.TrimPrefix(p, "/") }
func (m moded) ReadFile(p string) ([]byte, error)       { return m.MapFS.ReadFile(m.name(p)) }
func (m moded) ReadDir(p string) ([]fs.DirEntry, error) { return m.MapFS.ReadDir(m.name(p)) }
func (m moded) Readlink(p string) (string, error) {
	return "", &fs.PathError{Op: "readlink", Path: p, Err: fs.ErrNotExist}
}
func (m moded) WriteFile(string, []byte) error { return fs.ErrPermission }

func TestManagedVectorsAreTold(t *testing.T) {
	m, err := knob.Open(knob.Config{FS: moded{fstest.MapFS{
		"proc/irq/30/smp_affinity":     {Mode: 0o444},
		"proc/irq/31/smp_affinity":     {Mode: 0o644},
		"proc/irq/32/smp_affinity":     {Mode: 0o644},
		"sys/kernel/debug/irq/irqs/32": {Data: []byte("dstate: 0x31600200\n            IRQD_AFFINITY_MANAGED\n")},
		"proc/irq/33/smp_affinity":     {Mode: 0o644},
		"sys/kernel/debug/irq/irqs/33": {Data: []byte("dstate: 0x31600200\n            IRQD_AFFINITY_SET\n")},
	}}})
	if err != nil {
		t.Fatal(err)
	}
	for part, want := range map[string]string{"irq-30": "true", "irq-31": "unknown", "irq-32": "true", "irq-33": "false", "irq-34": "-"} {
		if got := m.Read(t.Context(), knob.Ref{Knob: knob.IRQManaged, Target: knob.On("eth0", "%s", part)}).String(); got != want {
			t.Errorf("%s: %s, want %s", part, got, want)
		}
	}
}

// denied refuses what an ordinary user may not read or write.
type denied struct{ *hosttest.Host }

func (d denied) ReadFile(p string) ([]byte, error) {
	if strings.HasSuffix(p, "flow_limit_cpu_bitmap") {
		return nil, &fs.PathError{Op: "open", Path: p, Err: syscall.EACCES}
	}
	return d.Host.ReadFile(p)
}

func (d denied) WriteFile(p string, _ []byte) error {
	return &fs.PathError{Op: "open", Path: p, Err: syscall.EACCES}
}

func TestAnOrdinaryUser(t *testing.T) {
	h := hosttest.New(t, hosttest.Spec{CPUs: hosttest.Small(2), NICs: []hosttest.NIC{hosttest.Veth("eth0", 1, 1)}})
	m, err := knob.Open(knob.Config{FS: denied{h}})
	if err != nil {
		t.Fatal(err)
	}
	if v := m.Read(t.Context(), knob.Ref{Knob: knob.FlowLimitCPUs, Target: knob.Host}); v.Known() || v.IsAbsent() || v.Reason() != "needs root" {
		t.Errorf("%v %q", v, v.Reason())
	}
	r := knob.Ref{Knob: knob.RPSCPUs, Target: "eth0 rx-0"}
	err = m.Write(t.Context(), r, m.Read(t.Context(), r), knob.Set(cpuset.Of(0)))
	if !errors.Is(err, fs.ErrPermission) || !strings.Contains(knob.Meaning(r, err), "needs root") {
		t.Errorf("%v", err)
	}
}

// counting is an ethtool client that notes what is written.
type counting struct {
	knob.Ethtool
	coalesce []ethtool.Group
}

func (c *counting) SetCoalesce(_ string, g ethtool.Group) error {
	c.coalesce = append(c.coalesce, g)
	return nil
}

func TestWritesSendOnlyWhatDiffers(t *testing.T) {
	h := hosttest.New(t, hosttest.Spec{CPUs: hosttest.Small(2), NICs: []hosttest.NIC{hosttest.MLX5("eth0", 2)}})
	c := &counting{Ethtool: h.Ethtool()}
	m, err := knob.Open(knob.Config{FS: h, Ethtool: c})
	if err != nil {
		t.Fatal(err)
	}
	r := knob.Ref{Knob: knob.Coalesce, Target: "eth0"}
	now := m.Read(t.Context(), r)
	to := knob.Fields(map[string]any{"adaptive-rx": false, "rx-usecs": 8, "tx-usecs": 9})
	if err := m.Write(t.Context(), r, now, to); err != nil {
		t.Fatal(err)
	}
	if err := m.Write(t.Context(), r, now, now); err != nil { // nothing to do
		t.Fatal(err)
	}
	want := []ethtool.Group{{"adaptive-rx": 0, "tx-usecs": 9}}
	if diff := cmp.Diff(want, c.coalesce); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	for _, bad := range []knob.Value{
		knob.Fields(map[string]any{"rx-usec": 8}), knob.Fields(map[string]any{"rx-usecs": -1}), knob.Fields(map[string]any{"rx-usecs": "x"}),
		knob.Fields(map[string]any{"rx-usecs": int64(1) << 32}), knob.Int(3), knob.Unknown("x"),
	} {
		if err := m.Write(t.Context(), r, now, bad); err == nil {
			t.Errorf("%s was written", bad)
		}
	}
	if len(c.coalesce) != 1 {
		t.Errorf("sent %v", c.coalesce)
	}
}

func TestFactsAreNotWritten(t *testing.T) {
	h := hosttest.New(t, hosttest.Spec{CPUs: hosttest.Small(2), NICs: []hosttest.NIC{hosttest.MLX5("eth0", 2)}})
	m := machine(t, h)
	r := knob.Ref{Knob: knob.ChannelsMax, Target: "eth0"}
	v := m.Read(t.Context(), r)
	if err := m.Write(t.Context(), r, v, v); !errors.Is(err, knob.ErrReadOnly) {
		t.Errorf("%v", err)
	}
	if err := m.Write(t.Context(), knob.Ref{Knob: "colour", Target: "eth0"}, v, v); err == nil {
		t.Error("a setting that does not exist was written")
	}
}

func TestSnapshotErrors(t *testing.T) {
	h := hosttest.New(t, hosttest.Spec{CPUs: hosttest.Small(2), NICs: []hosttest.NIC{hosttest.MLX5("eth0", 2)}})
	m := machine(t, h)
	if _, err := m.Snapshot(t.Context(), "eth0", "eth7"); !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), "take snapshot of eth7") {
		t.Errorf("%v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := m.Snapshot(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
	if _, err := knob.Open(knob.Config{}); err == nil {
		t.Error("a machine without files")
	}
}

// The limit is 20 ms of CPU for 64 queues.
func BenchmarkSnapshot64Queues(b *testing.B) {
	h := hosttest.New(b, hosttest.Spec{CPUs: hosttest.Large(), NICs: []hosttest.NIC{hosttest.MLX5("eth0", 64)}})
	m := machine(b, h)
	if n := len(snapshot(b, m).Settings); n < 64*9 {
		b.Fatalf("only %d settings", n)
	}
	for b.Loop() {
		snapshot(b, m)
	}
}

// Without the map of package nic the vectors of a device come from its msi_irqs, virtio's
// from the PCI device above it.
func TestVectorsFoundInFiles(t *testing.T) {
	for _, nic := range []hosttest.NIC{
		hosttest.IGB("eth0", 4), hosttest.IXGBE("eth0", 4), hosttest.MLX5("eth0", 4), hosttest.Virtio("eth0", "virtio2", 4),
		hosttest.VMXNET3("eth0", 4), hosttest.ENA("eth0", 4), hosttest.E1000E("eth0"), hosttest.Veth("eth0", 2, 2),
	} {
		h := hosttest.New(t, hosttest.Spec{CPUs: hosttest.Small(4), NICs: []hosttest.NIC{nic}})
		var got []int
		for _, x := range snapshot(t, machine(t, h), "eth0").Settings {
			var n int
			if x.Knob == knob.IRQAffinity {
				if _, err := fmt.Sscanf(x.Target.Part(), "irq-%d", &n); err != nil {
					t.Fatal(err)
				}
				got = append(got, n)
			}
		}
		want := h.IRQs("eth0")
		if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("%s (-want +got)\n%s", nic.Driver, diff)
		}
	}
}

package knob_test

import (
	"errors"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rxsteer/rxsteer/internal/cpuset"
	"github.com/rxsteer/rxsteer/internal/ethtool"
	"github.com/rxsteer/rxsteer/internal/host"
	"github.com/rxsteer/rxsteer/internal/host/knob"
	"github.com/rxsteer/rxsteer/internal/netdev"
	"github.com/rxsteer/rxsteer/internal/testnet"
)

// inside opens a machine on the real kernel in a namespace of the test's own.
func inside(t testing.TB, ns *testnet.NS) *knob.Machine {
	t.Helper()
	var e *ethtool.Client
	var n *netdev.Client
	if err := ns.Do(func() (err error) {
		if e, err = ethtool.New(); err != nil {
			return err
		}
		n, err = netdev.New()
		return err
	}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { e.Close(); n.Close() })
	m, err := knob.Open(knob.Config{FS: ns.FS(), Ethtool: e, Netdev: n})
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func pair(t *testing.T, queues int) (*testnet.NS, *knob.Machine) {
	t.Helper()
	testnet.NeedRoot(t)
	a, b := testnet.New(t), testnet.New(t)
	if err := testnet.Connect(a, b, testnet.Veth{Queues: queues}); err != nil {
		t.Fatal(err)
	}
	return b, inside(t, b)
}

// What Spreading reads is what a Snapshot says of the same settings.
func TestSpreadingIsPartOfASnapshot(t *testing.T) {
	_, m := pair(t, 2)
	all, err := m.Snapshot(t.Context(), "b0")
	if err != nil {
		t.Fatal(err)
	}
	part, err := m.Spreading(t.Context(), "b0")
	if err != nil {
		t.Fatal(err)
	}
	if part.Host != all.Host || len(part.Devices) != 1 || part.Devices[0].IfIndex != all.Devices[0].IfIndex {
		t.Errorf("host %+v and devices %+v, want %+v and %+v", part.Host, part.Devices, all.Host, all.Devices)
	}
	if !part.Get(knob.Ref{Knob: knob.Features, Target: "b0"}).Known() {
		t.Error("features are not known")
	}
	for _, s := range part.Settings {
		if want := all.Get(s.Ref); !want.Equal(s.Value) && want.Known() {
			t.Errorf("%s is %s, want %s", s.Ref, s.Value, want)
		}
	}
	if _, err := m.Spreading(t.Context(), "none0"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("of no device: %v", err)
	}
}

func BenchmarkSpreading(b *testing.B) {
	testnet.NeedRoot(b)
	x, y := testnet.New(b), testnet.New(b)
	if err := testnet.Connect(x, y, testnet.Veth{Queues: 64}); err != nil {
		b.Fatal(err)
	}
	m := inside(b, y)
	for name, read := range map[string]func() error{
		"snapshot":  func() error { _, err := m.Snapshot(b.Context(), "b0"); return err },
		"spreading": func() error { _, err := m.Spreading(b.Context(), "b0"); return err },
	} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				if err := read(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

var nic = flag.String("nic", "", "a device of this host: write each of its knobs and undo it (in a guest of the lab)")

// TestEveryKnobOfANIC runs on real drivers in the lab's guests with -nic eth0, else on
// a veth of its own.
func TestEveryKnobOfANIC(t *testing.T) {
	if *nic == "" {
		everyKnobOfAVeth(t)
		return
	}
	e, err := ethtool.New()
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	c := knob.Config{FS: host.OS{}, Ethtool: e}
	if n, err := netdev.New(); err == nil {
		defer n.Close()
		c.Netdev = n
	} else if !errors.Is(err, netdev.ErrNotSupported) {
		t.Fatal(err)
	}
	m, err := knob.Open(c)
	if err != nil {
		t.Fatal(err)
	}
	for _, x := range snapshot(t, m, *nic).Settings {
		t.Logf("%s: %s %s", x.Ref, x.Value, x.Value.Reason())
	}
	written, refused := everyKnob(t, m, func(r knob.Ref) bool {
		return r.Knob == knob.Channels || r.Knob == knob.Rings || r.Knob == knob.Threaded
	}, *nic)
	t.Logf("written and undone: %v\nrefused: %v", written, refused)
	if len(written) == 0 {
		t.Error("nothing was written")
	}
	// These rebuild queues, so that other settings may move. The table is the driver's again
	// first: igb's was written above.
	table := knob.Ref{Knob: knob.RSSTable, Target: knob.Target(*nic)}
	if was := m.Read(t.Context(), table); was.Known() {
		if err := m.Write(t.Context(), table, was, knob.DefaultTable()); err != nil {
			t.Error(err)
		}
	}
	for _, k := range []knob.Kind{knob.Channels, knob.Rings} {
		r := knob.Ref{Knob: k, Target: knob.Target(*nic)}
		was := m.Read(t.Context(), r)
		to, _ := other(r, was)
		if !was.Known() || knob.Holds(was, to) {
			continue
		}
		err := m.Write(t.Context(), r, was, to)
		if err != nil {
			t.Logf("%v (%s)", err, knob.Meaning(r, err))
			if now := m.Read(t.Context(), r); !now.Equal(was) {
				t.Errorf("a refused write of %s moved it: %s → %s", r, was, now)
			}
			continue
		}
		if now := m.Read(t.Context(), r); !knob.Holds(now, to) {
			t.Errorf("%s: wrote %s, reads %s", r, to, now)
		}
		if err := m.Write(t.Context(), r, to, knob.Undo(was, to)); err != nil {
			t.Error(err)
		}
		if now := m.Read(t.Context(), r); !now.Equal(was) {
			t.Errorf("%s: put back %s, reads %s", r, was, now)
		}
	}
	if s := snapshot(t, m, *nic); s.Devices[0].RXQueues == 0 {
		t.Errorf("no queue is left: %+v", s.Devices[0])
	}
}

func everyKnobOfAVeth(t *testing.T) {
	ns, m := pair(t, 4)
	// Channels and GRO rebuild NAPI instances: below.
	written, refused := everyKnob(t, m, func(r knob.Ref) bool {
		return r.Knob == knob.Channels || r.Knob == knob.Features || r.Knob == knob.Threaded
	}, "b0")
	if len(refused) > 0 {
		t.Errorf("refused: %v", refused)
	}
	for k, n := range map[knob.Kind]int{knob.RPSCPUs: 4, knob.RPSFlowCnt: 4, knob.XPSCPUs: 4, knob.MTU: 1, knob.DeferHardIRQs: 1, knob.GROFlushTimeout: 1, knob.RPSDefaultMask: 1} {
		if written[k] != n {
			t.Errorf("%s: %d written, want %d", k, written[k], n)
		}
	}
	s := snapshot(t, m)
	if s.Host.Netns != ns.Inode() {
		t.Errorf("namespace %d, want %d", s.Host.Netns, ns.Inode())
	}
	for _, d := range s.Devices {
		if d.Name == "eth0" {
			t.Error("a device of another namespace is in the snapshot")
		}
		if d.Name == "b0" && (d.Driver != "veth" || d.RXQueues != 4 || d.TXQueues != 4) {
			t.Errorf("%+v", d)
		}
	}
	// Most sysctls of net.core exist in the first namespace only.
	if v := s.Get(knob.Ref{Knob: knob.NetdevBudget, Target: knob.Host}); !v.IsAbsent() {
		t.Errorf("netdev_budget in a namespace: %v", v)
	}
}

func TestChannelsOfAVeth(t *testing.T) {
	_, m := pair(t, 4)
	r := knob.Ref{Knob: knob.Channels, Target: "b0"}
	was := m.Read(t.Context(), r)
	if err := m.Write(t.Context(), r, was, knob.Fields(map[string]any{"rx": 2, "tx": 2})); err != nil {
		t.Fatal(err)
	}
	if s := snapshot(t, m, "b0"); s.Devices[0].RXQueues != 2 || s.Devices[0].TXQueues != 2 {
		t.Errorf("after ethtool -L: %+v", s.Devices[0])
	}
	if v := m.Read(t.Context(), knob.Ref{Knob: knob.RPSCPUs, Target: "b0 rx-3"}); !v.IsAbsent() {
		t.Errorf("a queue that went reads %v", v)
	}
	err := m.Write(t.Context(), r, m.Read(t.Context(), r), knob.Fields(map[string]any{"rx": 64}))
	if err == nil || !strings.Contains(knob.Meaning(r, err), "more than the maximum") || !strings.Contains(err.Error(), "(") {
		t.Errorf("above the maximum: %v", err)
	}
	if err := m.Write(t.Context(), r, m.Read(t.Context(), r), was); err != nil {
		t.Fatal(err)
	}
	if now := m.Read(t.Context(), r); !now.Equal(was) {
		t.Errorf("put back %s, reads %s", was, now)
	}
}

func TestNAPISettingsOfAVeth(t *testing.T) {
	_, m := pair(t, 2)
	features := knob.Ref{Knob: knob.Features, Target: "b0"}
	threaded := knob.Ref{Knob: knob.Threaded, Target: "b0"}
	off := m.Read(t.Context(), threaded)
	if err := m.Write(t.Context(), features, m.Read(t.Context(), features), knob.Fields(map[string]any{"rx-gro": true})); err != nil {
		t.Fatal(err)
	}
	before := snapshot(t, m, "b0")
	if err := m.Write(t.Context(), threaded, off, knob.Int(1)); err != nil {
		t.Fatal(err)
	}
	for _, d := range moved(before, snapshot(t, m, "b0")) {
		if d.Ref != threaded && !knob.Follows(threaded, d.Ref) {
			t.Errorf("threads moved %s", d.Text())
		}
	}
	if err := m.Write(t.Context(), threaded, knob.Int(1), off); err != nil {
		t.Fatal(err)
	}
	if d := knob.DiffText(moved(before, snapshot(t, m, "b0"))); d != "" {
		t.Errorf("after the undo:\n%s", d)
	}
}

// TestOneNAPIOfAVeth sets one instance and not its neighbour (netdev netlink's napi-set, 6.13).
func TestOneNAPIOfAVeth(t *testing.T) {
	_, m := pair(t, 2)
	features := knob.Ref{Knob: knob.Features, Target: "b0"}
	if err := m.Write(t.Context(), features, m.Read(t.Context(), features), knob.Fields(map[string]any{"rx-gro": true})); err != nil {
		t.Fatal(err)
	}
	before := snapshot(t, m, "b0")
	var target knob.Target
	for _, s := range before.Settings {
		if s.Knob == knob.DeferHardIRQs && strings.HasPrefix(s.Target.Part(), "napi-") {
			target = s.Target
			break
		}
	}
	if target == "" {
		t.Skip("needs a kernel that tells settings per NAPI instance (6.13)")
	}
	n := 0
	for _, c := range []struct {
		kind knob.Kind
		to   int64
	}{{knob.DeferHardIRQs, 7}, {knob.GROFlushTimeout, 25000}, {knob.IRQSuspendTimeout, 5_000_000_000}, {knob.Threaded, 1}} {
		r := knob.Ref{Knob: c.kind, Target: target}
		from := m.Read(t.Context(), r)
		if !from.Known() {
			t.Logf("%s: %s", r, from.Reason())
			continue
		}
		n++
		if err := m.Write(t.Context(), r, from, knob.Int(c.to)); err != nil {
			t.Fatal(err)
		}
		for _, d := range moved(before, snapshot(t, m, "b0")) {
			if d.Ref != r {
				t.Errorf("%s moved %s", r, d.Text())
			} else if !d.To.Equal(knob.Int(c.to)) {
				t.Errorf("%s: wrote %d, reads %s", r, c.to, d.To)
			}
		}
		if now := m.Read(t.Context(), r); !now.Equal(knob.Int(c.to)) {
			t.Errorf("%s: wrote %d, reads %s", r, c.to, now)
		}
		if err := m.Write(t.Context(), r, knob.Int(c.to), from); err != nil {
			t.Fatal(err)
		}
	}
	if d := knob.DiffText(moved(before, snapshot(t, m, "b0"))); d != "" {
		t.Errorf("after the undo:\n%s", d)
	}
	if n < 3 {
		t.Errorf("%d settings of a NAPI instance were written, want at least 3", n)
	}
	r := knob.Ref{Knob: knob.DeferHardIRQs, Target: target}
	if err := m.Write(t.Context(), r, m.Read(t.Context(), r), knob.Int(1<<31)); err == nil || !strings.Contains(knob.Meaning(r, err), "range") {
		t.Errorf("beyond the kernel's limit: %v (%s)", err, knob.Meaning(r, err))
	}
	if now := m.Read(t.Context(), r); !now.Equal(before.Get(r)) {
		t.Errorf("a refused write moved it to %s", now)
	}
}

func TestAVethAgainstEthtool(t *testing.T) {
	ns, m := pair(t, 3)
	if _, err := exec.LookPath("ethtool"); err != nil {
		t.Skip("needs ethtool")
	}
	out, err := ns.Command(t.Context(), "ethtool", "-l", "b0").CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	s := snapshot(t, m, "b0")
	if !strings.Contains(string(out), "RX:\t\t3") || s.Get(knob.Ref{Knob: knob.Channels, Target: "b0"}).String() != "rx 3 tx 3" {
		t.Errorf("channels %s; ethtool:\n%s", s.Get(knob.Ref{Knob: knob.Channels, Target: "b0"}), out)
	}
	// What Command says has the effect that Write has.
	r := knob.Ref{Knob: knob.RPSCPUs, Target: "b0 rx-1"}
	for _, c := range []struct {
		ref   knob.Ref
		value knob.Value
	}{
		{r, knob.Set(cpuset.Of(0, 1))},
		{r, knob.Set(cpuset.Set{})},
		{knob.Ref{Knob: knob.XPSCPUs, Target: "b0 tx-2"}, knob.Set(cpuset.Of(1))},
		{knob.Ref{Knob: knob.RPSFlowCnt, Target: "b0 rx-0"}, knob.Int(1024)},
		{knob.Ref{Knob: knob.Channels, Target: "b0"}, knob.Fields(map[string]any{"rx": 2})},
		{knob.Ref{Knob: knob.Features, Target: "b0"}, knob.Fields(map[string]any{"rx-gro": true})},
		{knob.Ref{Knob: knob.MTU, Target: "b0"}, knob.Int(1300)},
		{knob.Ref{Knob: knob.DeferHardIRQs, Target: "b0"}, knob.Int(3)},
		{knob.Ref{Knob: knob.RPSDefaultMask, Target: knob.Host}, knob.Set(cpuset.Of(0))},
	} {
		line := knob.Command(c.ref, c.value)
		if out, err := ns.Command(t.Context(), "sh", "-c", line).CombinedOutput(); err != nil {
			t.Errorf("%s: %v\n%s", line, err, out)
		}
		if now := m.Read(t.Context(), c.ref); !knob.Holds(now, c.value) {
			t.Errorf("%s: then %s reads %s", line, c.ref, now)
		}
	}
}

func TestQueuesOfATAP(t *testing.T) {
	testnet.NeedTun(t)
	ns := testnet.New(t)
	tap, err := ns.NewTAP("tap0", 4)
	if err != nil {
		t.Fatal(err)
	}
	defer tap.Close()
	m := inside(t, ns)
	written, refused := everyKnob(t, m, func(r knob.Ref) bool {
		return r.Knob == knob.Features || r.Knob == knob.Threaded || r.Knob == knob.Channels // tun only tells channels
	}, "tap0")
	if written[knob.RPSCPUs] != 4 || len(refused) > 0 {
		t.Errorf("written %v, refused %v", written, refused)
	}
}

// Reads of this host's own devices, as whoever runs the test.
func TestThisHostIsReadAsItIs(t *testing.T) {
	m, err := knob.Open(knob.Config{FS: host.OS{}})
	if err != nil {
		t.Fatal(err)
	}
	s := snapshot(t, m)
	if s.Host.BootID == "" || s.Host.CPUs == "" || s.Host.Netns == 0 || len(s.Devices) == 0 {
		t.Fatalf("%+v", s)
	}
	seen := 0
	for _, x := range s.Settings {
		var file string
		switch dev, part := x.Target.Device(), x.Target.Part(); {
		case x.Knob == knob.RPSCPUs:
			file = "/sys/class/net/" + dev + "/queues/" + part + "/rps_cpus"
		case x.Knob == knob.IRQAffinity:
			file = "/proc/irq/" + strings.TrimPrefix(part, "irq-") + "/smp_affinity"
		default:
			continue
		}
		b, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		want, err := cpuset.ParseMask(string(b))
		if err != nil {
			t.Fatal(err)
		}
		if got, err := x.Value.CPUs(); err != nil || got != want {
			t.Errorf("%s is %s, the kernel's mask is %s", x.Ref, x.Value, b)
		}
		seen++
	}
	if seen == 0 {
		t.Error("nothing was compared")
	}
	// Each vector that this program calls a device's sits in its msi_irqs.
	for _, d := range s.Devices {
		dir, err := filepath.EvalSymlinks("/sys/class/net/" + d.Name + "/device")
		if err != nil {
			continue
		}
		for _, x := range s.Settings {
			if x.Knob != knob.IRQAffinity || x.Target.Device() != d.Name {
				continue
			}
			irq := strings.TrimPrefix(x.Target.Part(), "irq-")
			_, err1 := os.Stat(filepath.Join(dir, "msi_irqs", irq))
			_, err2 := os.Stat(filepath.Join(filepath.Dir(dir), "msi_irqs", irq))
			if err1 != nil && err2 != nil {
				t.Errorf("irq %s is not of %s", irq, d.Name)
			}
		}
	}
}

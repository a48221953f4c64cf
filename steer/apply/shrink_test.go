package apply

import (
	"slices"
	"testing"

	"github.com/rxsteer/rxsteer/internal/cpuset"
	"github.com/rxsteer/rxsteer/internal/ethtool"
	"github.com/rxsteer/rxsteer/internal/host/hosttest"
	"github.com/rxsteer/rxsteer/internal/host/knob"
	"github.com/rxsteer/rxsteer/internal/host/nic"
	"github.com/rxsteer/rxsteer/internal/host/topo"
	"github.com/rxsteer/rxsteer/steer/diagnose"
	"github.com/rxsteer/rxsteer/steer/plan"
)

// A plan of fewer channels under a table that somebody set runs through on the strict fake, which refuses fewer channels
// than such a table names, and its rollback brings the table back.
func TestFewerChannelsUnderATable(t *testing.T) {
	h := hosttest.New(t, hosttest.Spec{CPUs: hosttest.Large(), NICs: []hosttest.NIC{hosttest.MLX5("eth0", 8)}})
	m, err := knob.Open(knob.Config{FS: h, Ethtool: h.Ethtool()})
	if err != nil {
		t.Fatal(err)
	}
	table := knob.Ref{Knob: knob.RSSTable, Target: "eth0"}
	var old []int
	if err := m.Read(ctx, table).Decode(&old); err != nil {
		t.Fatal(err)
	}
	slices.Reverse(old)
	if err := h.Ethtool().SetRSS("eth0", 0, ethtool.RSSChange{Table: old}); err != nil {
		t.Fatal(err)
	}
	if err := h.Ethtool().SetChannels("eth0", ethtool.Group{"combined": 4}); err == nil {
		t.Fatal("the fake takes fewer channels than the table names")
	}
	s, err := m.Snapshot(ctx)
	if err != nil {
		t.Fatal(err)
	}
	n := nic.NIC{Name: "eth0", Driver: "mlx5_core", Kind: nic.Physical, Node: topo.None, Up: true}
	for q := range 8 {
		n.Queues = append(n.Queues, nic.Queue{RX: q, TX: q, IRQ: nic.None, KnownBy: nic.ByNetlink})
	}
	p := plan.Make(plan.Input{Snapshot: s, NICs: []nic.NIC{n}, Goal: plan.Balanced, Policy: plan.Policy{CPUs: cpuset.Range(0, 3)},
		Report: &diagnose.Report{Loads: []diagnose.Load{{CPU: 0, Idle: 1}, {CPU: 1, Idle: 1}, {CPU: 2, Idle: 1}, {CPU: 3, Idle: 1}, {CPU: 4, Idle: 1}},
			Findings: []diagnose.Finding{{ID: "RX107", Subject: "eth0", Summary: "queues on kept cpus", Site: diagnose.Site{Device: "eth0", CPU: -1, Queues: []int{4}}}}}})
	if len(p.Changes) != 2 {
		t.Fatalf("planned %+v, %q", p.Changes, p.Reasons)
	}
	e, err := Open(ctx, Config{Dir: t.TempDir(), Host: m})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	o := short
	o.Allow, o.ConfirmWithin = []plan.Risk{plan.Reorder, plan.Pause, plan.Flap}, 60e9
	res, err := e.Apply(ctx, p, o)
	if err != nil || res.State != Unconfirmed || slices.ContainsFunc(res.Steps, func(s Step) bool { return s.Outcome != Applied }) {
		t.Fatalf("%+v, %v", res, err)
	}
	if now, _, _ := h.Ethtool().Channels("eth0"); now["combined"] != 4 {
		t.Errorf("channels %v", now)
	}
	if res, err = e.Rollback(""); err != nil || res.State != RolledBack {
		t.Fatalf("%+v, %v", res, err)
	}
	now, _, _ := h.Ethtool().Channels("eth0")
	if is := m.Read(ctx, table); now["combined"] != 8 || !is.Equal(knob.List(old)) {
		t.Errorf("after the rollback: channels %v, table %s, want %v", now, is, old)
	}
}

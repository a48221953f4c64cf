package apply

import (
	"os"
	"slices"
	"testing"
	"time"

	"github.com/rxsteer/rxsteer/internal/cpuset"
	"github.com/rxsteer/rxsteer/internal/host/hosttest"
	"github.com/rxsteer/rxsteer/internal/host/knob"
	"github.com/rxsteer/rxsteer/steer/plan"
)

// big is a host with 64 queues on 256 CPUs, and a plan that sets its table, moderation, and the CPUs of every vector,
// receive and transmit queue.
func big(t testing.TB) (*knob.Machine, *plan.Plan) {
	t.Helper()
	h := hosttest.New(t, hosttest.Spec{CPUs: hosttest.Large(), NICs: []hosttest.NIC{hosttest.MLX5("eth0", 64), hosttest.MLX5("eth1", 64)}})
	m, err := knob.Open(knob.Config{FS: h, Ethtool: h.Ethtool()})
	if err != nil {
		t.Fatal(err)
	}
	s, err := m.Snapshot(ctx)
	if err != nil {
		t.Fatal(err)
	}
	p := &plan.Plan{Version: plan.Version, Goal: plan.Balanced, Identity: plan.Identity{BootID: s.Host.BootID, Netns: s.Host.Netns, Kernel: s.Host.Kernel}}
	for _, d := range s.Devices {
		if d.Name == "eth0" {
			p.Identity.Devices = append(p.Identity.Devices, plan.Of(d))
		}
	}
	add := func(ref knob.Ref, from, to knob.Value) {
		p.Changes = append(p.Changes, plan.Change{Knob: ref.Knob, Target: ref.Target, From: from, To: to, Risk: plan.Reorder})
	}
	for _, kind := range []knob.Kind{knob.RSSTable, knob.Coalesce, knob.IRQAffinity, knob.XPSCPUs, knob.RPSCPUs} {
		n := 0
		for _, x := range s.Settings {
			if x.Knob != kind || x.Target.Device() != "eth0" || !x.Value.Known() {
				continue
			}
			to := knob.Set(cpuset.Of(1+n%63, 128+n%64))
			switch kind {
			case knob.RSSTable:
				var table []int
				if err := x.Value.Decode(&table); err != nil {
					t.Fatal(err)
				}
				slices.Reverse(table)
				to = knob.List(table)
			case knob.Coalesce:
				x.Value, to = fields("rx-frames", 128), fields("rx-frames", 64)
			}
			add(x.Ref, x.Value, to)
			n++
		}
	}
	if len(p.Changes) < 2+3*64 {
		t.Fatalf("%d changes", len(p.Changes))
	}
	return m, p
}

// memoryDir is where the journal lies: in memory, as /run is.
func memoryDir(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("/dev/shm", "rxsteer")
	if err != nil {
		return t.TempDir()
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

// once applies the plan and rolls it back, and returns what each took.
func once(t testing.TB, m *knob.Machine, p *plan.Plan) (apply, back time.Duration) {
	t.Helper()
	e, err := Open(ctx, Config{Dir: memoryDir(t), Host: m})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	start := time.Now()
	res, err := e.Apply(ctx, p, short)
	apply = time.Since(start)
	if err != nil || res.State != Kept || slices.ContainsFunc(res.Steps, func(s Step) bool { return s.Outcome != Applied }) {
		t.Fatalf("%+v, %v", res, err)
	}
	start = time.Now()
	res, err = e.Rollback("")
	back = time.Since(start)
	if err != nil || res.State != RolledBack {
		t.Fatalf("%+v, %v", res, err)
	}
	return apply, back
}

// BenchmarkApply64Queues is our own time of a transaction of some 200 changes with everything read back, and
// of its rollback; the goal is 100 ms each.
func BenchmarkApply64Queues(b *testing.B) {
	m, p := big(b)
	var there, back time.Duration
	n := 0
	for b.Loop() {
		x, y := once(b, m, p)
		there, back, n = there+x, back+y, n+1
	}
	b.ReportMetric(float64(there.Microseconds())/float64(n)/1e3, "ms/apply")
	b.ReportMetric(float64(back.Microseconds())/float64(n)/1e3, "ms/rollback")
	b.ReportMetric(float64(len(p.Changes)), "changes")
}

// TestApplyTimeGrowsWithThePlan: how long it takes depends on the machine and what else it does; against a quarter of the
// plan, in turns with the whole, it tells whether each change looks at all others.
func TestApplyTimeGrowsWithThePlan(t *testing.T) {
	m, p := big(t)
	quarter := *p
	quarter.Changes = p.Changes[:len(p.Changes)/4]
	there, back, quarterThere, quarterBack := time.Hour, time.Hour, time.Hour, time.Hour
	for range 4 {
		x, y := once(t, m, p)
		there, back = min(there, x), min(back, y)
		x, y = once(t, m, &quarter)
		quarterThere, quarterBack = min(quarterThere, x), min(quarterBack, y)
	}
	t.Logf("%d changes took %v, their rollback %v; a quarter of them %v and %v", len(p.Changes), there, back, quarterThere, quarterBack)
	if there > 10*quarterThere || back > 10*quarterBack {
		t.Errorf("%d changes took %v, their rollback %v; a quarter of them %v and %v", len(p.Changes), there, back, quarterThere, quarterBack)
	}
}

// BenchmarkTableOfTheLoop is the agent's part of a skew's answer after its buckets were counted: the journal opened, one table
// checked, written and read back, on a host with 64 queues; all else of its device was read while buckets were counted, and is after. With BenchmarkSpreadWindow (package
// bpf) and BenchmarkSolve128x16 (steer/balance) it is what three ticks of 100 ms leave 200 ms for.
func BenchmarkTableOfTheLoop(b *testing.B) {
	m, p := big(b)
	p.Changes = p.Changes[:1]
	var took time.Duration
	n := 0
	for b.Loop() {
		base, err := m.Snapshot(ctx, "eth0") // while buckets are counted
		if err != nil {
			b.Fatal(err)
		}
		dir := memoryDir(b)
		start := time.Now()
		e, err := Open(ctx, Config{Dir: dir, Host: m})
		if err != nil {
			b.Fatal(err)
		}
		res, err := e.Begin(ctx, p, Options{Near: true, Base: base})
		took, n = took+time.Since(start), n+1
		if err != nil || res.State != Applying || res.Steps[0].Outcome != Applied {
			b.Fatalf("%+v, %v", res, err)
		}
		if _, err := e.Drop("the benchmark is over"); err != nil {
			b.Fatal(err)
		}
		if err := e.Close(); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(took.Microseconds())/float64(n)/1e3, "ms/write")
}

package plan

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rxsteer/rxsteer/collector"
	"github.com/rxsteer/rxsteer/internal/cpuset"
	"github.com/rxsteer/rxsteer/internal/host/knob"
	"github.com/rxsteer/rxsteer/internal/host/nic"
	"github.com/rxsteer/rxsteer/internal/toeplitz"
	"github.com/rxsteer/rxsteer/steer/diagnose"
)

// ms of a second that queue q of eth0 was polled on the CPU of the same number.
func polls(ms ...float64) *collector.Sample {
	s := &collector.Sample{Level: 1, Interval: time.Second}
	for q, t := range ms {
		s.NAPIs = append(s.NAPIs, collector.NAPI{Device: "eth0", IfIndex: 2, RXQueue: q, CPU: q, Polls: 100, Packets: uint64(1000 * t), Time: uint64(t * 1e6)})
	}
	return s
}

// loaded is a host of as many CPUs as queues; ms is each queue's poll time, and busy what else its CPU does.
func loaded(table []int, ms []float64, id diagnose.ID, other ...float64) Input {
	busy := make([]float64, len(ms))
	for i := range busy {
		busy[i] = ms[i] / 1000
		if i < len(other) {
			busy[i] += other[i]
		}
	}
	in := host(nic.Physical, len(ms), "", busy...).find(id, 0, nil)
	in.Sample = polls(ms...)
	in.set(knob.RSSTable, "eth0", knob.List(table))
	return in
}

// bucketLoads puts measured buckets into a sample, in ms.
func bucketLoads(s *collector.Sample, ms ...float64) {
	d := collector.DeviceBuckets{Device: "eth0", IfIndex: 2, Hash: collector.HashExact, Seen: 5000}
	for _, t := range ms {
		d.Packets, d.Bytes, d.Time = append(d.Packets, uint64(t*1000)), append(d.Bytes, uint64(t*100000)), append(d.Time, uint64(t*1e6))
	}
	s.Buckets = append(s.Buckets, d)
}

func tableOf(t *testing.T, p *Plan, dev string) []int {
	t.Helper()
	for _, c := range p.Changes {
		if c.Knob == knob.RSSTable && c.Target == knob.Target(dev) {
			var out []int
			if err := c.To.Decode(&out); err != nil {
				t.Fatal(err)
			}
			return out
		}
	}
	return nil
}

// queueLoads adds buckets up.
func queueLoads(table []int, buckets []float64, queues int) []float64 {
	out := make([]float64, queues)
	for b, q := range table {
		out[q] += buckets[b]
	}
	return out
}

func TestTableFollowsMeasuredBuckets(t *testing.T) {
	// The table is even, what its buckets carry is not: two big ones in queue 0.
	buckets := []float64{300, 10, 10, 20, 280, 10, 10, 20}
	table := []int{0, 1, 2, 3, 0, 1, 2, 3}
	in := loaded(table, queueLoads(table, buckets, 4), "RX201")
	if p := Make(in); len(p.Changes) != 0 { // every bucket of queue 0 alike: half of it to others
		t.Logf("estimated: %v", p.Changes[0].Why)
		if !strings.Contains(p.Changes[0].Why, "was not measured: each queue's load is taken as even over its buckets") {
			t.Errorf("an estimate is not called one: %s", p.Changes[0].Why)
		}
	}
	bucketLoads(in.Sample, buckets...)
	p := Make(in)
	got := tableOf(t, p, "eth0")
	if got == nil {
		t.Fatalf("no table: %q", p.Reasons)
	}
	if l := queueLoads(got, buckets, 4); slices.Max(l) > 300*(1+slack) {
		t.Errorf("queues take %v ms, want at most the biggest bucket, 300", l)
	}
	c := p.Changes[0]
	for _, want := range []string{"the load of each bucket was measured (5000 packets, hashed with the NIC's key)", "buckets move (rx-0"} {
		if !strings.Contains(c.Why, want) {
			t.Errorf("why does not say %q: %s", want, c.Why)
		}
	}
	if want := "the hottest CPU spends 58 % of its time on this now and 30 % then; no table does better than 30 %"; c.Expect != want {
		t.Errorf("expect:\n got %s\nwant %s", c.Expect, want)
	}
	if !slices.ContainsFunc(p.Reasons, func(r string) bool {
		return strings.Contains(r, "bucket 0 alone takes 30 % of a CPU, and one flow stays")
	}) {
		t.Errorf("nothing is said of the bucket that is the bound: %q", p.Reasons)
	}
}

func TestBucketsThatAreNotBelieved(t *testing.T) {
	for name, but := range map[string]func(d *collector.DeviceBuckets){
		"a guessed key":              func(d *collector.DeviceBuckets) { d.Hash = collector.HashEstimated },
		"packets came elsewhere":     func(d *collector.DeviceBuckets) { d.Agreed, d.Compared = 700, 1000 },
		"a table of another size":    func(d *collector.DeviceBuckets) { d.Packets = d.Packets[1:] },
		"nothing seen in the window": func(d *collector.DeviceBuckets) { d.Seen = 0 },
	} {
		in := loaded([]int{0, 0, 0, 0, 0, 0, 0, 1}, []float64{700, 100}, "RX201")
		bucketLoads(in.Sample, 700, 0, 0, 0, 0, 0, 0, 100)
		but(&in.Sample.Buckets[0])
		p := Make(in)
		if len(p.Changes) != 1 || !strings.Contains(p.Changes[0].Why, "was not measured") {
			t.Errorf("%s: %+v %q", name, p.Changes, p.Reasons)
		}
	}
}

func TestTableMakesWayForOtherWorkOnlyWhereTimeIsShort(t *testing.T) {
	table := []int{0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1}
	even := Make(loaded(table, []float64{180, 60}, "RX201", 0, 0.15))
	if got := queueLoads(tableOf(t, even, "eth0"), slices.Repeat([]float64{20}, 12), 2); got[0] != 120 || got[1] != 120 {
		t.Errorf("two CPUs with time: queues take %v ms, want as much each", got)
	}
	short := Make(loaded(append(slices.Repeat([]int{0}, 11), 1), []float64{880, 80}, "RX201", 0, 0.6))
	if got := queueLoads(tableOf(t, short, "eth0"), slices.Repeat([]float64{80}, 12), 2); got[0]-got[1] < 400 {
		t.Errorf("cpu 1 does 60 %% of other work: queues take %v ms, want less on it", got)
	}
}

func TestTablesOfDevicesThatShareCPUs(t *testing.T) {
	table := []int{0, 0, 0, 1}
	in := loaded(table, []float64{300, 100}, "RX201")
	// eth1 is the mirror image on the same CPUs: each alone is skewed, together they are even.
	d := in.NICs[0]
	d.Name, d.IfIndex, d.Queues = "eth1", 3, slices.Clone(d.Queues)
	in.NICs = append(in.NICs, d)
	in.Report.Named = append(in.Report.Named, "eth1")
	in.set(knob.RSSTable, "eth1", knob.List([]int{0, 1, 1, 1}))
	for q, ms := range []uint64{100, 300} {
		in.Sample.NAPIs = append(in.Sample.NAPIs, collector.NAPI{Device: "eth1", IfIndex: 3, RXQueue: q, CPU: q, Polls: 1, Packets: 1000, Time: ms * 1e6})
		in.Report.Loads[q].Idle -= float64(ms) / 1000
	}
	f := in.Report.Findings[0]
	f.Subject, f.Site.Device = "eth1", "eth1"
	in.Report.Findings = append(in.Report.Findings, f)
	if p := Make(in); len(p.Changes) != 0 || !strings.Contains(strings.Join(p.Reasons, "\n"), "eth0, eth1: no table does noticeably better") {
		t.Errorf("two skewed tables that make even CPUs: %d changes, %q", len(p.Changes), p.Reasons)
	}
}

func TestTableAndVectorsTogether(t *testing.T) {
	// Both queues on cpu 0; nearly all of the table in queue 0.
	in := loaded([]int{0, 0, 0, 0, 0, 0, 0, 1}, []float64{700, 100, 0, 0}, "RX201")
	for i := range in.Sample.NAPIs {
		in.Sample.NAPIs[i].CPU = 0
	}
	for i, busy := range []float64{0.8, 0, 0, 0} {
		in.Report.Loads[i].Idle = 1 - busy
	}
	p := Make(in.find("RX102", 0, nil))
	irqs := map[int]bool{}
	for _, c := range p.Changes {
		if c.Knob == knob.IRQAffinity {
			irqs[len(irqs)] = true
		}
	}
	got := tableOf(t, p, "eth0")
	if got == nil || len(irqs) < 3 {
		t.Fatalf("want a table and three vectors moved, got %d changes: %q", len(p.Changes), p.Reasons)
	}
	if l := queueLoads(got, slices.Repeat([]float64{100}, 8), 4); slices.Max(l) > 200 {
		t.Errorf("queues take %v ms, want 200 each", l)
	}
}

func TestTableOfOwnedQueues(t *testing.T) {
	in := loaded([]int{0, 0, 0, 1, 2, 3}, []float64{600, 200, 200, 200}, "RX201")
	in.NICs[0].Queues[2].XSK = true
	in.set(knob.NtupleRule, "eth0 rule-7", knob.Fields(map[string]any{"flow": "udp4", "queue": 3, "dst-port": "53"}))
	got := tableOf(t, Make(in), "eth0")
	if got == nil || got[4] != 2 || got[5] != 3 || slices.Contains(got[:4], 2) || slices.Contains(got[:4], 3) {
		t.Errorf("table %v: queues 2 (AF_XDP) and 3 (a rule) are not ours", got)
	}
}

func TestTableStaysOffCPUsThatTakeNone(t *testing.T) {
	for name, but := range map[string]func(in *Input){
		"an isolated CPU":  func(in *Input) { in.Topology.Isolated = cpuset.Of(2) },
		"the policy's own": func(in *Input) { in.Policy.CPUs = cpuset.Of(0, 1, 3) },
	} {
		in := loaded([]int{0, 0, 0, 0, 0, 1, 2, 3}, []float64{500, 100, 100, 100}, "RX201")
		but(&in)
		got := tableOf(t, Make(in), "eth0")
		if got == nil || got[6] != 2 || slices.Contains(got[:6], 2) {
			t.Errorf("%s: table %v, want queue 2 left alone", name, got)
		}
	}
}

func TestTableOfMissingQueues(t *testing.T) {
	in := loaded([]int{0, 1, 6, 7}, []float64{100, 100}, "RX202")
	if got := tableOf(t, Make(in), "eth0"); !slices.Equal(got, []int{0, 1, 0, 1}) {
		t.Errorf("table %v, want queues that are there", got)
	}
}

func TestTableForTheShellCanBeTyped(t *testing.T) {
	in := loaded([]int{0, 0, 0, 0, 0, 0, 1, 1}, []float64{600, 200}, "RX201")
	in.Typed = true
	p := Make(in)
	if got := tableOf(t, p, "eth0"); !slices.Equal(got, []int{0, 0, 0, 0, 1, 1, 1, 1}) || !knob.Typable(p.Changes[0].To) {
		t.Errorf("table %v, want one that ethtool can be told", got)
	}
	in = loaded([]int{0, 0, 0, 1, 0, 0, 1, 0}, []float64{600, 200}, "RX201")
	in.Typed = true
	if p := Make(in); len(p.Changes) != 0 || !strings.Contains(strings.Join(p.Reasons, "\n"), "a script could not put it back") {
		t.Errorf("a table that cannot be typed back: %d changes, %q", len(p.Changes), p.Reasons)
	}
}

func TestTableAfterTheHashChanges(t *testing.T) {
	in := loaded([]int{0, 0, 0, 1}, []float64{900, 5}, "RX203")
	in.Report.Findings[0].Site.Flows = []string{"udp4"}
	in.set(knob.RSSHashFields, "eth0 udp4", knob.Text("sd"))
	bucketLoads(in.Sample, 900, 0, 0, 5)
	p := Make(in.find("RX201", 0, nil))
	if got := tableOf(t, p, "eth0"); !slices.Equal(queueLoads(got, []float64{1, 1, 1, 1}, 2), []float64{2, 2}) {
		t.Errorf("table %v: what the buckets carry now says nothing of what they will", got)
	}
}

// lone is a single flow that fills queue 1.
func lone() Input {
	in := loaded([]int{0, 1, 0, 1}, []float64{5, 800}, "RX205")
	in.set(knob.RSSKey, "eth0", knob.Text(keyText(toeplitz.MicrosoftKey)))
	return in
}

func TestLoneElephant(t *testing.T) {
	for _, measured := range []bool{false, true} {
		in := lone()
		if measured {
			bucketLoads(in.Sample, 3, 800, 2, 0)
		}
		p := Make(in)
		if len(p.Changes) != 0 || !strings.Contains(strings.Join(p.Reasons, "\n"), "one flow stays on one queue: no table, key, vector or further queue") {
			t.Errorf("measured %v: %d changes, %q", measured, len(p.Changes), p.Reasons)
		}
	}
}

func TestMiceLeaveTheElephant(t *testing.T) {
	buckets := []float64{400, 50, 50, 50, 50, 50, 50, 50, 50}
	table := []int{0, 0, 0, 0, 1, 1, 1, 1, 1}
	in := loaded(table, queueLoads(table, buckets, 2), "RX205")
	bucketLoads(in.Sample, buckets...)
	got := tableOf(t, Make(in), "eth0")
	if l := queueLoads(got, buckets, 2); len(got) == 0 || l[0] != 400 {
		t.Errorf("queues take %v ms, want the elephant alone", l)
	}
}

// pair is two big flows in one bucket of a device whose driver tells its key.
func pair(driver string, t *testing.T) Input {
	t.Helper()
	table := make([]int, 64)
	for b := range table {
		table[b] = b % 4
	}
	in := loaded(table, []float64{20, 20, 20, 20}, "RX205")
	in.NICs[0].Driver, in.Snapshot.Devices[0].Driver = driver, driver
	in.set(knob.RSSKey, "eth0", knob.Text(keyText(toeplitz.MicrosoftKey)))
	in.set(knob.RSSFunction, "eth0", knob.Text("toeplitz"))
	in.set(knob.RSSHashFields, "eth0 udp4", knob.Text("sdfn"))
	rss, _ := collector.RSSOf(in.Snapshot, "eth0")
	f := func(port uint16) collector.Flow {
		return collector.Flow{Device: "eth0", IfIndex: 2, Protocol: "udp", Bucket: -1, Packets: 300_000,
			Source: netip.AddrPortFrom(netip.MustParseAddr("10.0.0.1"), port), Destination: netip.MustParseAddrPort("10.0.0.2:9000")}
	}
	ms := slices.Repeat([]float64{1}, 64)
	want := -1
	for port := uint16(1000); len(in.Sample.Flows) < 2; port++ {
		b := bucketOf(flow{Flow: f(port)}, rss, rss.Key)
		if want < 0 {
			want = b
		}
		if b == want {
			in.Sample.Flows = append(in.Sample.Flows, f(port))
		}
	}
	ms[want] = 600
	bucketLoads(in.Sample, ms...)
	in.Sample.NAPIs[table[want]].Time += 600e6
	in.Report.Loads[table[want]].Idle -= 0.6
	return in
}

func TestKeyPartsTwoElephants(t *testing.T) {
	in := pair("virtio_net", t)
	p := Make(in)
	if len(p.Changes) != 1 || p.Changes[0].Knob != knob.RSSKey {
		t.Fatalf("changes %+v, reasons %q", p.Changes, p.Reasons)
	}
	c := p.Changes[0]
	if err := Check(c, cpuset.Set{}); err != nil {
		t.Error(err)
	}
	after := *in.Snapshot
	after.Settings = slices.Clone(after.Settings)
	for i := range after.Settings {
		if after.Settings[i].Knob == knob.RSSKey {
			after.Settings[i].Value = c.To
		}
	}
	rss, _ := collector.RSSOf(&after, "eth0")
	var q []int
	for _, f := range in.Sample.Flows {
		q = append(q, rss.Table[bucketOf(flow{Flow: f}, rss, rss.Key)])
	}
	if q[0] == q[1] {
		t.Errorf("with the new key both flows go to queue %d", q[0])
	}
	if again := Make(in); !again.Changes[0].To.Equal(c.To) {
		t.Error("the same flows get another key")
	}
	if want := "the hottest queue takes 6"; !strings.HasPrefix(c.Expect, want) {
		t.Errorf("expect %q, want it to begin with %q", c.Expect, want)
	}
}

func TestRulePartsTwoElephants(t *testing.T) {
	in := pair("mlx5_core", t)
	in.set(knob.Features, "eth0", knob.Fields(map[string]any{"rx-ntuple-filter": true}))
	in.set(knob.NtupleRule, "eth0 rule-0", knob.Fields(map[string]any{"flow": "udp4", "queue": -1, "dst-port": "53"}))
	p := Make(in)
	if len(p.Changes) != 1 || p.Changes[0].Ref() != (knob.Ref{Knob: knob.NtupleRule, Target: "eth0 rule-1"}) {
		t.Fatalf("changes %+v, reasons %q", p.Changes, p.Reasons)
	}
	c := p.Changes[0]
	if want := fmt.Sprintf("ethtool -N eth0 flow-type udp4 dst-ip 10.0.0.2 dst-port 9000 src-ip 10.0.0.1 src-port %d action", in.Sample.Flows[1].Source.Port()); !strings.HasPrefix(c.Command, want) {
		t.Errorf("command %q, want %q", c.Command, want)
	}
	if want := "ethtool -N eth0 delete 1"; c.Undo != want {
		t.Errorf("undo %q, want %q", c.Undo, want)
	}
}

func TestNoKeyWithoutCause(t *testing.T) {
	for name, but := range map[string]func(in *Input){
		"a driver that takes none": func(in *Input) { in.NICs[0].Driver = "igb" },
		"a key that is not told": func(in *Input) {
			for i, s := range in.Snapshot.Settings {
				if s.Knob == knob.RSSKey {
					in.Snapshot.Settings[i].Value = knob.Absent("the device does not tell its hash key")
				}
			}
			for i := range in.Sample.Flows {
				in.Sample.Flows[i].Bucket = slices.Index(in.Sample.Buckets[0].Packets, slices.Max(in.Sample.Buckets[0].Packets))
			}
		},
		"one big flow": func(in *Input) { in.Sample.Flows = in.Sample.Flows[:1] },
		"a policy":     func(in *Input) { in.Policy.Never = []knob.Kind{knob.RSSKey} },
		"hashed otherwise than is told": func(in *Input) {
			for i := range in.Sample.Flows {
				in.Sample.Flows[i].Bucket = slices.Index(in.Sample.Buckets[0].Packets, slices.Max(in.Sample.Buckets[0].Packets))
			}
			in.set(knob.RSSXfrm, "eth0", knob.Text("symmetric-xor"))
		},
	} {
		in := pair("virtio_net", t)
		but(&in)
		if p := Make(in); slices.ContainsFunc(p.Changes, func(c Change) bool { return c.Knob == knob.RSSKey }) || len(p.Reasons) == 0 {
			t.Errorf("%s: %+v", name, p.Changes)
		}
	}
}

package exporter

import (
	"bytes"
	"flag"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"

	"github.com/rxsteer/rxsteer/collector"
	"github.com/rxsteer/rxsteer/internal/host/knob"
	"github.com/rxsteer/rxsteer/internal/host/nic"
	"github.com/rxsteer/rxsteer/steer/apply"
	"github.com/rxsteer/rxsteer/steer/control"
	"github.com/rxsteer/rxsteer/steer/diagnose"
)

var update = flag.Bool("update", false, "rewrite golden files and docs/metrics.md")

const ownNetns, otherNetns = 4026531840, 4026532999

// sample is one second of a two-CPU host: eth0 with two queues (one served by both CPUs),
// a device of another namespace with the same name, and RPS backlog.
func sample() *collector.Sample {
	start := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	s := &collector.Sample{
		Version: collector.SampleVersion, Start: start, End: start.Add(time.Second), Interval: time.Second, Level: 1,
		CPUs: []collector.CPU{
			{CPU: 0, Tail: 30e6, Idle: 200e6, Softirq: 790e6, Irq: 10e6, Processed: 1000, Dropped: 5, Squeezed: 2, ReceivedRPS: 1, Backlog: 40},
			{CPU: 1, Idle: 990e6, Steal: 10e6, Processed: 900, FlowLimit: 3},
		},
		NAPIs: []collector.NAPI{
			{Netns: ownNetns, IfIndex: 2, Device: "eth0", ID: 257, RXQueue: 0, CPU: 0, Polls: 100, Packets: 1000, Time: 700e6, FullBudget: 4, Empty: 3},
			{Netns: ownNetns, IfIndex: 2, Device: "eth0", ID: 257, RXQueue: 0, CPU: 1, Polls: 1, Packets: 2, Time: 3000},
			{Netns: ownNetns, IfIndex: 2, Device: "eth0", ID: 258, RXQueue: -1, CPU: 0, Polls: 10, Packets: 20, Time: 60e6, BusyPolls: 7},
			{Netns: otherNetns, IfIndex: 9, Device: "eth0", ID: 300, RXQueue: 3, CPU: 0, Polls: 5, Packets: 50, Time: 5e6},
			{Device: "backlog", RXQueue: -1, CPU: 1, Polls: 9, Packets: 900, Time: 8e6},
		},
		IRQs: []collector.IRQ{
			{IRQ: 28, CPU: 0, Action: "eth0-rx-0", Count: 12, Time: 24000},
			{IRQ: 29, CPU: 1, Action: "eth0-rx-1", Count: 3, Time: 9000},
		},
		Devices: []collector.Device{
			{Name: "eth0", IfIndex: 2, RXPackets: 1022, RXBytes: 1e6, RXDropped: 1, RXMissed: 2, RXErrors: 3, TXPackets: 11, TXBytes: 2200, TXDropped: 4},
			{Name: "lo", IfIndex: 1},
		},
		Unmeasured: []collector.Unmeasured{{What: "threaded NAPI", Why: "fexit refused: operation not permitted"}},
		Lost:       map[string]uint64{"map full": 2},
	}
	s.CPUs[0].SoftirqTime[collector.NetRX], s.CPUs[0].SoftirqRuns[collector.NetRX] = 790e6, 111
	s.CPUs[0].SoftirqTime[collector.NetTX], s.CPUs[0].SoftirqRuns[collector.NetTX] = 2e6, 8
	s.CPUs[0].TimeIn, s.CPUs[0].RunsIn = [3]uint64{90e6, 100e6, 600e6}, [3]uint64{10, 1, 100}
	s.NAPIs[0].TimeHist[9], s.NAPIs[0].TimeHist[10], s.NAPIs[0].TimeHist[23], s.NAPIs[0].TimeHist[31] = 1, 1, 97, 1
	s.NAPIs[0].WorkHist[0], s.NAPIs[0].WorkHist[4], s.NAPIs[0].WorkHist[7] = 3, 93, 4
	s.NAPIs[1].TimeHist[12], s.NAPIs[1].WorkHist[2] = 1, 1
	s.Level = 2
	s.Stages = []collector.Stage{
		{Stage: collector.GROToStack, Netns: ownNetns, IfIndex: 2, Device: "eth0", RXQueue: 0, CPU: 0, Count: 10, Sum: 50000},
		{Stage: collector.GROToStack, Netns: ownNetns, IfIndex: 2, Device: "eth0", RXQueue: 1, CPU: 1, Count: 1, Sum: 3e6},
		{Stage: collector.IRQToRaise, RXQueue: -1, CPU: 0, Count: 2, Sum: 900},
	}
	s.Stages[0].Hist[13], s.Stages[1].Hist[22], s.Stages[2].Hist[9] = 10, 1, 2
	s.Buckets = []collector.DeviceBuckets{{Netns: ownNetns, IfIndex: 2, Device: "eth0", Packets: []uint64{30, 10, 0, 0}, Agreed: 39, Compared: 40}}
	flow := func(port string, packets uint64, share float64) collector.Flow {
		return collector.Flow{Netns: ownNetns, IfIndex: 2, Device: "eth0", RXQueue: 0, Protocol: "udp", Source: netip.MustParseAddrPort("192.0.2.1:" + port),
			Destination: netip.MustParseAddrPort("[2001:db8::1]:53"), Packets: packets, Share: share}
	}
	s.Flows = []collector.Flow{flow("1000", 500, 0.5), flow("1001", 900, 0.9)}
	s.Drivers = []collector.Driver{{Device: "eth0", IfIndex: 2, Told: []nic.FactKind{nic.NoMemory, nic.RingDrops}, Counters: []collector.DriverCounter{
		{Kind: nic.RingDrops, Scope: nic.ScopeQueue, Queue: 0, Count: 3}, {Kind: nic.RingDrops, Scope: nic.ScopeQueue, Queue: 1, Count: 4}, {Kind: nic.RingDrops, Scope: nic.ScopePort, Queue: -1, Count: 5}}}}
	s.Protocols = map[string]uint64{"UdpRcvbufErrors": 6, "TcpExtListenDrops": 1}
	s.Pacing = []collector.Pacing{{IRQ: 28}, {IRQ: 29}}
	s.Pacing[0].Hist[24] = 200
	s.Cost = &collector.Cost{Budget: 0.01, Hottest: 0.004, Mean: 0.001, Reader: 0.002, Duty: 0.5, DutyPackets: 0.1, Error: 0.03}
	return s
}

// loopView is an agent in the middle of everything.
func loopView() LoopView {
	early, late := time.Unix(1772366400, 5e8), time.Unix(1772370000, 0)
	return LoopView{
		Status: &control.Status{Mode: control.Auto, Open: true, Tick: 100 * time.Millisecond, TickCost: 0.002,
			Devices: []control.DeviceStatus{{Name: "eth0", Mode: control.Auto, Phase: control.Judging, Yielded: []knob.Kind{knob.RPSCPUs}, Wait: 5 * time.Second}},
			Stats: map[string]control.Stats{
				"":     {Decisions: map[string]uint64{control.Reloaded: 1}},
				"eth0": {Decisions: map[string]uint64{control.Wrote: 2}, Moves: map[knob.Kind]uint64{knob.RSSTable: 2}, Buckets: 9, Reaction: 700 * time.Millisecond, Reactions: 2, Rollbacks: 1},
			}},
		Degraded: map[string]string{"writing": "read-only file system"},
		ReloadOK: true, Reloaded: time.Unix(1772366400, 0),
		Told: Told{Findings: []diagnose.Finding{{ID: "RX201", Severity: diagnose.Warning, Subject: "eth0"}, {ID: "RX201", Severity: diagnose.Warning, Subject: "eth0"}, {ID: "RX101", Severity: diagnose.Critical, Subject: "cpu 3"}},
			Baseline: true, Drift: []diagnose.Drift{
				{Severity: diagnose.Warning, FirstSeen: &late, Difference: knob.Difference{Ref: knob.Ref{Knob: knob.RSSTable, Target: "eth0"}}},
				{Severity: diagnose.Warning, FirstSeen: &early, Difference: knob.Difference{Ref: knob.Ref{Knob: knob.RSSKey, Target: "eth0"}}},
				{Severity: diagnose.Info, Difference: knob.Difference{Ref: knob.Ref{Knob: knob.NetdevMaxBacklog, Target: knob.Host}}},
			},
			Transactions: map[apply.State]int{apply.Kept: 2, apply.RolledBack: 1}, Coalescing: map[string]float64{"eth0": 2.75}},
	}
}

func scrape(t *testing.T, e *Exporter, more ...prometheus.Collector) string {
	t.Helper()
	reg := prometheus.NewPedanticRegistry()
	for _, c := range append(more, e) {
		if err := reg.Register(c); err != nil {
			t.Fatal(err)
		}
	}
	mfs, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	for _, mf := range mfs {
		if _, err := expfmt.MetricFamilyToText(&b, mf); err != nil {
			t.Fatal(err)
		}
	}
	return b.String()
}

func golden(t *testing.T, file string, got []byte) {
	t.Helper()
	if *update {
		if err := os.WriteFile(file, got, 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(string(want), string(got)); d != "" {
		t.Errorf("%s differs; go test ./exporter -update rewrites it (-want +got):\n%s", file, d)
	}
}

func TestFullScrape(t *testing.T) {
	e := New(ownNetns, DefaultLimits)
	e.Add(sample())
	golden(t, "testdata/scrape.txt", []byte(scrape(t, e, NewLoop(loopView))))
}

func TestLint(t *testing.T) {
	e := New(ownNetns, DefaultLimits)
	e.Add(sample())
	problems, err := testutil.CollectAndLint(e)
	if err != nil {
		t.Fatal(err)
	}
	more, err := testutil.CollectAndLint(NewLoop(loopView))
	if err != nil {
		t.Fatal(err)
	}
	problems = append(problems, more...)
	for _, p := range problems {
		t.Errorf("%s: %s", p.Metric, p.Text)
	}
}

func TestEmptyScrapeIsValid(t *testing.T) {
	if got := scrape(t, New(ownNetns, DefaultLimits)); !strings.Contains(got, "rxsteer_samples_total 0") {
		t.Errorf("scrape before the first sample:\n%s", got)
	}
}

// TestLevel0HasNoTimes: without BPF the time in softirq is not known, which is not 0.
func TestLevel0HasNoTimes(t *testing.T) {
	e := New(ownNetns, DefaultLimits)
	s := sample()
	s.Level, s.NAPIs = 0, nil
	e.Add(s)
	got := scrape(t, e)
	for _, name := range []string{"rxsteer_softirq_seconds_total", "rxsteer_net_rx_tail_seconds_total", "rxsteer_interrupt_seconds_total", "rxsteer_napi_polls_total"} {
		if strings.Contains(got, name) {
			t.Errorf("%s is exported at level 0", name)
		}
	}
	if v := value(t, got, `rxsteer_interrupts_total{action="eth0-rx-0",cpu="0",irq="28"}`); v != "12" {
		t.Errorf("interrupts at level 0 = %s, want 12", v)
	}
}

// value finds one series of a scrape by its exact text.
func value(t *testing.T, text, series string) string {
	t.Helper()
	for line := range strings.Lines(text) {
		if rest, ok := strings.CutPrefix(line, series+" "); ok {
			return strings.TrimSpace(rest)
		}
	}
	return "absent"
}

func TestDeltasAddUpToCounters(t *testing.T) {
	e := New(ownNetns, DefaultLimits)
	for range 3 {
		e.Add(sample())
	}
	got := scrape(t, e)
	for series, want := range map[string]string{
		`rxsteer_napi_seconds_total{cpu="0",device="eth0",queue="0"}`:                           "2.1",
		`rxsteer_napi_seconds_total{cpu="0",device="other-netns",queue=""}`:                     "0.015",
		`rxsteer_softirq_seconds_total{cpu="0",vector="NET_RX"}`:                                "2.37",
		`rxsteer_device_receive_packets_total{device="eth0"}`:                                   "3066",
		`rxsteer_interrupts_total{action="eth0-rx-0",cpu="0",irq="28"}`:                         "36",
		`rxsteer_lost_events_total{cause="map full"}`:                                           "6",
		`rxsteer_sampled_seconds_total{level="2"}`:                                              "3",
		`rxsteer_softnet_backlog_packets{cpu="0"}`:                                              "40", // a level
		`rxsteer_unmeasured{what="threaded NAPI",why="fexit refused: operation not permitted"}`: "1",
		`rxsteer_napi_poll_duration_seconds_count{device="eth0",queue="0"}`:                     "303",
	} {
		if v := value(t, got, series); v != want {
			t.Errorf("%s = %s, want %s", series, v, want)
		}
	}
}

// TestHistogramsLoseNothing: coarse buckets are sums of the kernel's, and the last value
// lies beyond the last bound.
func TestHistogramsLoseNothing(t *testing.T) {
	e := New(ownNetns, DefaultLimits)
	e.Add(sample())
	got := scrape(t, e)
	for series, want := range map[string]string{
		`rxsteer_napi_poll_duration_seconds_bucket{device="eth0",queue="0",le="1.024e-06"}`:   "2",
		`rxsteer_napi_poll_duration_seconds_bucket{device="eth0",queue="0",le="4.096e-06"}`:   "3",
		`rxsteer_napi_poll_duration_seconds_bucket{device="eth0",queue="0",le="0.016777216"}`: "100",
		`rxsteer_napi_poll_duration_seconds_bucket{device="eth0",queue="0",le="+Inf"}`:        "101",
		`rxsteer_napi_poll_packets_bucket{device="eth0",queue="0",le="0"}`:                    "3",
		`rxsteer_napi_poll_packets_bucket{device="eth0",queue="0",le="3"}`:                    "4",
		`rxsteer_napi_poll_packets_bucket{device="eth0",queue="0",le="+Inf"}`:                 "101",
	} {
		if v := value(t, got, series); v != want {
			t.Errorf("%s = %s, want %s", series, v, want)
		}
	}
}

func TestSeriesOfGoneDevicesAreForgotten(t *testing.T) {
	e := New(ownNetns, DefaultLimits)
	e.Add(sample())
	s := sample()
	s.Devices, s.NAPIs = s.Devices[1:], nil
	e.Add(s)
	if got := scrape(t, e); strings.Contains(got, `device="eth0"`) {
		t.Errorf("eth0 is gone but still exported:\n%s", got)
	}
	s = sample()
	s.Devices[0].IfIndex = 12 // back, as another device
	e.Add(s)
	if v := value(t, scrape(t, e), `rxsteer_device_receive_packets_total{device="eth0"}`); v != "1022" {
		t.Errorf("packets of the new eth0 = %s, want 1022", v)
	}
	s = sample()
	s.Devices = nil // could not be read: no news is not bad news
	e.Add(s)
	if v := value(t, scrape(t, e), `rxsteer_device_receive_packets_total{device="eth0"}`); v != "1022" {
		t.Errorf("packets of eth0 after a sample without devices = %s, want 1022", v)
	}
}

// TestOnlyNamedInterfaces: a device of another namespace with the same name is not it.
func TestOnlyNamedInterfaces(t *testing.T) {
	e := New(ownNetns, DefaultLimits, "eth0")
	e.Add(sample())
	got := scrape(t, e)
	for _, device := range []string{"lo", "backlog", OtherNetns} {
		if strings.Contains(got, `device="`+device+`"`) {
			t.Errorf("%s is exported though only eth0 was asked for", device)
		}
	}
	if v := value(t, got, `rxsteer_napi_packets_total{cpu="0",device="eth0",queue="0"}`); v != "1000" {
		t.Errorf("packets of eth0 = %s, want 1000", v)
	}
}

func TestSeriesAreBounded(t *testing.T) {
	e := New(ownNetns, DefaultLimits)
	e.limits.Series = 3
	var polls uint64
	for cpu := range 10 {
		s := sample()
		s.NAPIs = []collector.NAPI{{Netns: ownNetns, Device: "eth0", RXQueue: 0, CPU: cpu, Polls: 1}}
		s.IRQs = []collector.IRQ{{IRQ: cpu, CPU: cpu, Action: "x", Count: 1}}
		e.Add(s)
		polls++
	}
	got := scrape(t, e)
	for series, want := range map[string]string{
		`rxsteer_napi_polls_total{cpu="",device="overflow",queue=""}`: "7",
		`rxsteer_interrupts_total{action="overflow",cpu="",irq=""}`:   "7",
		`rxsteer_overflow_entries_total`:                              "14",
	} {
		if v := value(t, got, series); v != want {
			t.Errorf("%s = %s, want %s", series, v, want)
		}
	}
}

// TestDocument writes docs/metrics.md from what the Exporter really exports.
func TestDocument(t *testing.T) {
	e := New(ownNetns, DefaultLimits)
	e.Add(sample())
	reg := prometheus.NewPedanticRegistry()
	loop := NewLoop(loopView)
	reg.MustRegister(e, loop)
	mfs, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	b.WriteString(`# Metrics

Generated by ` + "`go test ./exporter -update`" + ` from what ` + "`rxsteer agent`" + ` serves at ` + "`/metrics`" + `; beside these it serves
the standard ` + "`go_*` and `process_*`" + ` metrics, which are its own cost.

Base units (seconds, bytes, packets). Counters start at 0 with the agent and restart at 0 when a device is replaced.
` + "`device`" + ` is an interface of the agent's network namespace, ` + "`backlog`" + ` for packets queued by RPS or netif_rx,
` + "`" + OtherNetns + "`" + ` for the interfaces of all other namespaces together. ` + "`queue`" + ` is the receive queue, empty where it is
not known. Unless metrics.series says otherwise at most ` + fmt.Sprint(DefaultLimits.Series) + ` label sets of {device, queue, cpu} and as many of {irq, cpu} are kept; what
comes after is added to one series labelled ` + "`" + Overflow + "`" + `.

Shares of a CPU: ` + "`rate(rxsteer_softirq_seconds_total{vector=\"NET_RX\"}[5m])`" + `.
Shares of one queue: ` + "`sum by (device, queue) (rate(rxsteer_napi_seconds_total[5m]))`" + `.

| metric | type | labels | what |
|---|---|---|---|
`)
	for _, mf := range mfs {
		var labels []string
		for _, l := range mf.Metric[len(mf.Metric)-1].Label {
			labels = append(labels, "`"+l.GetName()+"`")
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", mf.GetName(), strings.ToLower(mf.GetType().String()), strings.Join(labels, ", "), mf.GetHelp())
	}
	golden(t, "../docs/metrics.md", b.Bytes())

	// Nothing is described that the document does not hold.
	ch := make(chan *prometheus.Desc, 200)
	e.Describe(ch)
	loop.Describe(ch)
	close(ch)
	n := 0
	for range ch {
		n++
	}
	if n != len(mfs) {
		names := slices.Collect(func(yield func(string) bool) {
			for _, mf := range mfs {
				if !yield(mf.GetName()) {
					return
				}
			}
		})
		t.Errorf("%d metrics described, %d documented: %v", n, len(mfs), names)
	}
}

// TestSeriesOfALargeHost: a host of 256 CPUs and two cards of 64 queues, in its ordinary state and when everything wandered everywhere.
func TestSeriesOfALargeHost(t *testing.T) {
	const cpus, queues = 256, 64
	count := func(e *Exporter) (n int) {
		ch := make(chan prometheus.Metric, 1024)
		go func() { e.Collect(ch); close(ch) }()
		for m := range ch {
			var d dto.Metric
			if err := m.Write(&d); err != nil {
				t.Error(err)
			}
			n++
			if d.Histogram != nil {
				n += len(d.Histogram.Bucket) + 2 // +Inf and the sum
			}
		}
		return n
	}
	for name, tc := range map[string]struct {
		wander int // how many CPUs serve each queue
		most   int
	}{"ordinary": {1, 16000}, "everything wandered": {cpus, 45000}} {
		t.Run(name, func(t *testing.T) {
			s := &collector.Sample{Level: 2, Interval: time.Second}
			for c := range cpus {
				s.CPUs = append(s.CPUs, collector.CPU{CPU: c})
			}
			for i, dev := range []string{"eth0", "eth1"} {
				s.Devices = append(s.Devices, collector.Device{Name: dev, IfIndex: i + 2})
				for q := range queues {
					for w := range tc.wander {
						s.NAPIs = append(s.NAPIs, collector.NAPI{Netns: ownNetns, IfIndex: i + 2, Device: dev, RXQueue: q, CPU: (q + w) % cpus, Polls: 1, Packets: 1})
						s.IRQs = append(s.IRQs, collector.IRQ{IRQ: 100*i + q, CPU: (q + w) % cpus, Action: fmt.Sprintf("%s-%d", dev, q), Count: 1})
					}
					for _, st := range collector.StageNames {
						s.Stages = append(s.Stages, collector.Stage{Stage: st, Netns: ownNetns, Device: dev, RXQueue: q, CPU: q, Count: 1})
					}
					for f := range 100 {
						s.Flows = append(s.Flows, collector.Flow{Netns: ownNetns, Device: dev, RXQueue: q, Source: netip.AddrPortFrom(netip.MustParseAddr("192.0.2.1"), uint16(f)), Packets: 1})
					}
				}
			}
			e := New(ownNetns, DefaultLimits)
			e.Add(s)
			n := count(e)
			t.Logf("%d series", n)
			if n > tc.most || n < tc.most/4 {
				t.Errorf("%d series, want at most %d (and the bound to mean something)", n, tc.most)
			}
		})
	}
}

// TestNativeHistograms: with the limit, the classic buckets are there as ever and the native ones hold as many observations.
func TestNativeHistograms(t *testing.T) {
	limits := DefaultLimits
	limits.Native = true
	e := New(ownNetns, limits)
	e.Add(sample())
	reg := prometheus.NewPedanticRegistry()
	reg.MustRegister(e)
	mfs, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	seen := 0
	for _, mf := range mfs {
		if mf.GetName() != "rxsteer_stage_latency_seconds" && mf.GetName() != "rxsteer_napi_poll_duration_seconds" {
			continue
		}
		for _, m := range mf.Metric {
			h := m.Histogram
			var native, n int64
			for _, d := range h.PositiveDelta {
				n += d
				native += n
			}
			if uint64(native)+h.GetZeroCount() != h.GetSampleCount() || len(h.Bucket) < 8 || h.GetSchema() != 0 {
				t.Errorf("%v: %d of %d observations are in native buckets, %d classic ones", m.Label, native, h.GetSampleCount(), len(h.Bucket))
			}
			seen++
		}
	}
	if seen < 6 {
		t.Errorf("%d histograms", seen)
	}
}

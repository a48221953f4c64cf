package exporter

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/prometheus/common/expfmt"

	"github.com/rxsteer/rxsteer/collector"
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
	return s
}

func scrape(t *testing.T, e *Exporter) string {
	t.Helper()
	reg := prometheus.NewPedanticRegistry()
	if err := reg.Register(e); err != nil {
		t.Fatal(err)
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
	e := New(ownNetns)
	e.Add(sample())
	golden(t, "testdata/scrape.txt", []byte(scrape(t, e)))
}

func TestLint(t *testing.T) {
	e := New(ownNetns)
	e.Add(sample())
	problems, err := testutil.CollectAndLint(e)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		t.Errorf("%s: %s", p.Metric, p.Text)
	}
}

func TestEmptyScrapeIsValid(t *testing.T) {
	if got := scrape(t, New(ownNetns)); !strings.Contains(got, "rxsteer_samples_total 0") {
		t.Errorf("scrape before the first sample:\n%s", got)
	}
}

// TestLevel0HasNoTimes: without BPF the time in softirq is not known, which is not 0.
func TestLevel0HasNoTimes(t *testing.T) {
	e := New(ownNetns)
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
	e := New(ownNetns)
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
		`rxsteer_sampled_seconds_total{level="1"}`:                                              "3",
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
	e := New(ownNetns)
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
	e := New(ownNetns)
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
	e := New(ownNetns, "eth0")
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
	e := New(ownNetns)
	e.limit = 3
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
	e := New(ownNetns)
	e.Add(sample())
	reg := prometheus.NewPedanticRegistry()
	reg.MustRegister(e)
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
not known. At most ` + fmt.Sprint(MaxSeries) + ` label sets of {device, queue, cpu} and as many of {irq, cpu} are kept; what
comes after is added to one series labelled ` + "`" + Overflow + "`" + `.

Shares of a CPU: ` + "`rate(rxsteer_softirq_seconds_total{vector=\"NET_RX\"}[5m])`" + `.
Shares of one queue: ` + "`sum by (device, queue) (rate(rxsteer_napi_seconds_total[5m]))`" + `.

| metric | type | labels | what |
|---|---|---|---|
`)
	for _, mf := range mfs {
		var labels []string
		for _, l := range mf.Metric[0].Label {
			labels = append(labels, "`"+l.GetName()+"`")
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", mf.GetName(), strings.ToLower(mf.GetType().String()), strings.Join(labels, ", "), mf.GetHelp())
	}
	golden(t, "../docs/metrics.md", b.Bytes())

	// Nothing is described that the document does not hold.
	ch := make(chan *prometheus.Desc, 100)
	e.Describe(ch)
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

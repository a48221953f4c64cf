package exporter

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/rxsteer/rxsteer/collector"
)

// A family is one metric and where its value is found in T, the totals of one label
// set. The tables below are the only place a metric is named: Describe, Collect
// and docs/metrics.md are all made from them.
type family[T any] struct {
	name   string // without the rxsteer_ prefix
	help   string
	gauge  bool
	labels []string
	value  func(*T) float64
	// timed families are only known from level 1 on: absent, not 0, before.
	timed bool
}

func (f family[T]) desc() *prometheus.Desc {
	return prometheus.NewDesc("rxsteer_"+f.name, f.help, f.labels, nil)
}

func (f family[T]) kind() prometheus.ValueType {
	if f.gauge {
		return prometheus.GaugeValue
	}
	return prometheus.CounterValue
}

var (
	napiLabels   = []string{"device", "queue", "cpu"}
	queueLabels  = []string{"device", "queue"}
	cpuLabels    = []string{"cpu"}
	irqLabels    = []string{"irq", "action", "cpu"}
	deviceLabels = []string{"device"}
)

// napiTotals is everything polled for one device and queue on one CPU.
type napiTotals struct {
	polls, packets, ns, full, empty, busy uint64
	labels                                string // as text, once made; see text.go
}

var napiFamilies = []family[napiTotals]{
	{"napi_seconds_total", "Time spent in NAPI polls, from softirq entry or the previous poll to the end of the poll.", false, napiLabels,
		func(t *napiTotals) float64 { return seconds(t.ns) }, false},
	{"napi_polls_total", "NAPI polls from softirq.", false, napiLabels,
		func(t *napiTotals) float64 { return float64(t.polls) }, false},
	{"napi_packets_total", "Work done by NAPI polls: packets before GRO merges them.", false, napiLabels,
		func(t *napiTotals) float64 { return float64(t.packets) }, false},
	{"napi_full_budget_polls_total", "NAPI polls that used up their budget: more was waiting.", false, napiLabels,
		func(t *napiTotals) float64 { return float64(t.full) }, false},
	{"napi_empty_polls_total", "NAPI polls that found nothing to do.", false, napiLabels,
		func(t *napiTotals) float64 { return float64(t.empty) }, false},
	{"napi_busy_polls_total", "NAPI polls from process context (busy polling): counted, not timed.", false, napiLabels,
		func(t *napiTotals) float64 { return float64(t.busy) }, false},
}

// histTotals are the histograms of one device and queue over all CPUs.
type histTotals struct {
	duration collector.Histogram
	ns       uint64
	work     collector.Histogram
	packets  uint64
}

// A histogramFamily coarsens a log2 histogram of the kernel side to classic
// buckets: every bound is one of the kernel's own, so nothing is interpolated.
type histogramFamily struct {
	name   string
	help   string
	bounds []int   // indices i into collector.Histogram: the bound is 2^i − 1
	scale  float64 // one unit of the kernel's value in base units
	value  func(*histTotals) (h *collector.Histogram, sum uint64)
}

var histogramFamilies = []histogramFamily{
	{"napi_poll_duration_seconds", "Duration of NAPI polls. Bounds are powers of two of nanoseconds.",
		[]int{10, 12, 14, 16, 18, 20, 22, 24}, 1e-9,
		func(t *histTotals) (*collector.Histogram, uint64) { return &t.duration, t.ns }},
	{"napi_poll_packets", "Packets per NAPI poll.",
		[]int{0, 1, 2, 3, 4, 5, 6, 7}, 1,
		func(t *histTotals) (*collector.Histogram, uint64) { return &t.work, t.packets }},
}

func (f histogramFamily) desc() *prometheus.Desc {
	return prometheus.NewDesc("rxsteer_"+f.name, f.help, queueLabels, nil)
}

// cpuTotals is what one CPU did. Backlog is a level.
type cpuTotals struct {
	collector.CPU
	labels string
}

var cpuFamilies = []family[cpuTotals]{
	{"net_rx_tail_seconds_total", "NET_RX softirq time after the last poll of a run: GRO flush, deferred frees, RPS interrupts to other CPUs.", false, cpuLabels,
		func(t *cpuTotals) float64 { return seconds(t.Tail) }, true},
	{"softnet_processed_packets_total", "Packets taken through the stack on this CPU (softnet_stat column 1).", false, cpuLabels,
		func(t *cpuTotals) float64 { return float64(t.Processed) }, false},
	{"softnet_dropped_packets_total", "Packets dropped because the per-CPU backlog was full (softnet_stat column 2).", false, cpuLabels,
		func(t *cpuTotals) float64 { return float64(t.Dropped) }, false},
	{"softnet_time_squeezed_total", "NET_RX runs ended by budget or time with work left (softnet_stat column 3).", false, cpuLabels,
		func(t *cpuTotals) float64 { return float64(t.Squeezed) }, false},
	{"softnet_received_rps_total", "Interrupts received from other CPUs for RPS (softnet_stat column 10).", false, cpuLabels,
		func(t *cpuTotals) float64 { return float64(t.ReceivedRPS) }, false},
	{"softnet_flow_limit_packets_total", "Packets dropped by the flow limit (softnet_stat column 11).", false, cpuLabels,
		func(t *cpuTotals) float64 { return float64(t.FlowLimit) }, false},
	{"softnet_backlog_packets", "Packets in the per-CPU backlog when the last sample ended.", true, cpuLabels,
		func(t *cpuTotals) float64 { return float64(t.Backlog) }, false},
}

// cpuPart is one series of a CPU figure that is split by a second label.
type cpuPart struct {
	label string
	value func(*cpuTotals) float64
}

// cpuSplit is a CPU metric with a second label.
type cpuSplit struct {
	name, help, label string
	timed             bool // see family
	parts             []cpuPart
}

func (f cpuSplit) desc() *prometheus.Desc {
	return prometheus.NewDesc("rxsteer_"+f.name, f.help, []string{"cpu", f.label}, nil)
}

// ContextNames are the label values of collector.Context.
var ContextNames = [collector.Contexts]string{"task", "idle", "ksoftirqd"}

var cpuSplits = []cpuSplit{
	{"softirq_seconds_total", "Time in softirq handlers by vector.", "vector", true, perVector(func(t *cpuTotals, v int) float64 { return seconds(t.SoftirqTime[v]) })},
	{"softirq_runs_total", "Runs of softirq handlers by vector.", "vector", false, perVector(func(t *cpuTotals, v int) float64 { return float64(t.SoftirqRuns[v]) })},
	{"net_rx_context_seconds_total", "NET_RX softirq time by what it ran over: a task, the idle CPU, or in ksoftirqd.", "context", true, perContext(func(t *cpuTotals, c int) float64 { return seconds(t.TimeIn[c]) })},
	{"net_rx_context_runs_total", "NET_RX softirq runs by what they ran over: a task, the idle CPU, or in ksoftirqd.", "context", true, perContext(func(t *cpuTotals, c int) float64 { return float64(t.RunsIn[c]) })},
	{"cpu_seconds_total", "CPU time by /proc/stat in the sampled intervals (USER_HZ resolution).", "mode", false, []cpuPart{
		{"idle", func(t *cpuTotals) float64 { return seconds(t.Idle) }},
		{"irq", func(t *cpuTotals) float64 { return seconds(t.Irq) }},
		{"softirq", func(t *cpuTotals) float64 { return seconds(t.Softirq) }},
		{"steal", func(t *cpuTotals) float64 { return seconds(t.Steal) }},
	}},
}

func perVector(value func(*cpuTotals, int) float64) []cpuPart {
	parts := make([]cpuPart, len(collector.SoftirqNames))
	for v, name := range collector.SoftirqNames {
		parts[v] = cpuPart{name, func(t *cpuTotals) float64 { return value(t, v) }}
	}
	return parts
}

func perContext(value func(*cpuTotals, int) float64) []cpuPart {
	parts := make([]cpuPart, len(ContextNames))
	for c, name := range ContextNames {
		parts[c] = cpuPart{name, func(t *cpuTotals) float64 { return value(t, c) }}
	}
	return parts
}

// irqTotals is one interrupt line on one CPU.
type irqTotals struct {
	count, ns uint64
	labels    string
}

var irqFamilies = []family[irqTotals]{
	{"interrupts_total", "Interrupts handled.", false, irqLabels,
		func(t *irqTotals) float64 { return float64(t.count) }, false},
	{"interrupt_seconds_total", "Time in the handlers of interrupts.", false, irqLabels,
		func(t *irqTotals) float64 { return seconds(t.ns) }, true},
}

var deviceFamilies = []family[collector.Device]{
	{"device_receive_packets_total", "Packets received, by the device's counter.", false, deviceLabels,
		func(t *collector.Device) float64 { return float64(t.RXPackets) }, false},
	{"device_receive_bytes_total", "Bytes received, by the device's counter.", false, deviceLabels,
		func(t *collector.Device) float64 { return float64(t.RXBytes) }, false},
	{"device_receive_dropped_packets_total", "Packets received but dropped before the stack took them.", false, deviceLabels,
		func(t *collector.Device) float64 { return float64(t.RXDropped) }, false},
	{"device_receive_missed_packets_total", "Packets the device had no room for (rx_missed_errors).", false, deviceLabels,
		func(t *collector.Device) float64 { return float64(t.RXMissed) }, false},
	{"device_receive_errors_total", "Receive errors, by the device's counter.", false, deviceLabels,
		func(t *collector.Device) float64 { return float64(t.RXErrors) }, false},
	{"device_transmit_packets_total", "Packets sent, by the device's counter.", false, deviceLabels,
		func(t *collector.Device) float64 { return float64(t.TXPackets) }, false},
	{"device_transmit_bytes_total", "Bytes sent, by the device's counter.", false, deviceLabels,
		func(t *collector.Device) float64 { return float64(t.TXBytes) }, false},
	{"device_transmit_dropped_packets_total", "Packets to send that were dropped.", false, deviceLabels,
		func(t *collector.Device) float64 { return float64(t.TXDropped) }, false},
}

// selfTotals is what the exporter knows of the measurement itself.
type selfTotals struct {
	samples  uint64
	level    int     // of the last sample
	last     float64 // Unix seconds, end of the last sample
	overflow uint64  // polls, interrupts and CPUs' figures added to an overflow series
}

var selfFamilies = []family[selfTotals]{
	{"samples_total", "Samples taken.", false, nil,
		func(t *selfTotals) float64 { return float64(t.samples) }, false},
	{"sample_end_timestamp_seconds", "When the last sample ended.", true, nil,
		func(t *selfTotals) float64 { return t.last }, false},
	{"attention_level", "What was attached for the last sample: 0 kernel counters only, 1 the per-poll programs, 2 packets.", true, nil,
		func(t *selfTotals) float64 { return float64(t.level) }, false},
	{"overflow_entries_total", "Sample entries added to a series labelled overflow because the limit on series was reached.", false, nil,
		func(t *selfTotals) float64 { return float64(t.overflow) }, false},
}

var (
	sampledDesc    = prometheus.NewDesc("rxsteer_sampled_seconds_total", "Time covered by samples, by attention level: times and polls are only seen at level 1.", []string{"level"}, nil)
	lostDesc       = prometheus.NewDesc("rxsteer_lost_events_total", "Events that the kernel side could not record, by cause.", []string{"cause"}, nil)
	unmeasuredDesc = prometheus.NewDesc("rxsteer_unmeasured", "1 for each thing the last sample could not see.", []string{"what", "why"}, nil)
)

func seconds(ns uint64) float64 { return float64(ns) / 1e9 }

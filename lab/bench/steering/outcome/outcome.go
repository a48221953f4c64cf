// Package outcome is what an arm of the steering benchmark came to, how it is judged and how it is shown.
package outcome

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"
)

// The states that arms start from.
const (
	OneCPU = "one CPU" // every vector on CPU 0, the table even
	Skewed = "skewed"  // a vector per CPU, 85 % of the buckets in queue 0
)

// States are in the order of the table.
var States = []string{OneCPU, Skewed}

// Row is one arm from one state.
type Row struct {
	State       string        `json:"state"`
	Arm         string        `json:"arm"`
	CutOff      bool          `json:"cut_off"`      // it was not done in its time: the rest of the row is not its result
	Balanced    time.Duration `json:"balanced_ns"`  // from its start until the load was even, −1 never
	Hottest     float64       `json:"hottest"`      // share of the packets that the busiest CPU handles, at the end
	Mean        float64       `json:"mean"`         // of all CPUs
	P50         time.Duration `json:"p50_ns"`       // round trip of mice at the end, 0 without any
	P99         time.Duration `json:"p99_ns"`       // of the slowest mouse
	MiceLost    int           `json:"mice_lost"`    // of which no probe came back
	Packets     uint64        `json:"packets"`      // delivered at the end
	Drops       uint64        `json:"drops"`        // at the end: device, backlog, sockets
	BucketMoves int           `json:"bucket_moves"` // seen in the table
	VectorMoves int           `json:"vector_moves"` // seen in smp_affinity
	OwnCPU      time.Duration `json:"own_cpu_ns"`
}

// Sample is what each CPU handled since the sample before.
type Sample struct {
	At      time.Duration // its end, from the start of the arm
	Packets []uint64
}

const (
	// even is how far the busiest CPU may be above the mean for the load to count as even.
	even = 1.5
	// steady is for how long it has to be so.
	steady = 2 * time.Second
)

// Shares are those of the busiest CPU and of the mean.
func Shares(packets []uint64) (hottest, mean float64) {
	var sum, most uint64
	for _, n := range packets {
		sum += n
		most = max(most, n)
	}
	if sum == 0 {
		return 0, 0
	}
	return float64(most) / float64(sum), 1 / float64(len(packets))
}

// BalancedAfter is when the load became even for good: from then on the sum of every stretch of
// two seconds is. −1: it is not even at the end.
func BalancedAfter(samples []Sample) time.Duration {
	at := time.Duration(-1)
	for end := len(samples) - 1; end >= 0; end-- {
		sum := make([]uint64, len(samples[end].Packets))
		first := end
		for ; first >= 0 && samples[end].At-samples[first].At < steady; first-- {
			for c, n := range samples[first].Packets {
				sum[c] += n
			}
		}
		if first < 0 {
			// Less than two seconds of history: even from the first sample on, if it is even here.
			if h, m := Shares(sum); h > 0 && h <= even*m && at >= 0 {
				at = samples[0].At
			}
			break
		}
		if h, m := Shares(sum); h == 0 || h > even*m {
			break
		}
		at = samples[first].At
	}
	return at
}

var header = []string{"start", "arm", "even after", "hottest/mean", "mice p50", "mice p99", "drops", "moves", "own CPU"}

func (r Row) cells() []string {
	after := "never"
	if r.Balanced >= 0 {
		after = fmt.Sprintf("%.1f s", r.Balanced.Seconds())
	}
	if r.CutOff {
		after = "cut off"
	}
	ratio := "-"
	if r.Mean > 0 {
		ratio = fmt.Sprintf("%.2f", r.Hottest/r.Mean)
	}
	drops := "-"
	if n := r.Packets + r.Drops; n > 0 {
		drops = fmt.Sprintf("%.1f %%", 100*float64(r.Drops)/float64(n))
	}
	ms := func(d time.Duration) string { return fmt.Sprintf("%.1f ms", float64(d.Microseconds())/1000) }
	p50, p99 := ms(r.P50), ms(r.P99)
	if r.MiceLost > 0 {
		p99 = fmt.Sprintf("%d starved", r.MiceLost)
	}
	if r.P50 == 0 {
		p50 = "-"
	}
	return []string{r.State, r.Arm, after, ratio, p50, p99, drops,
		fmt.Sprintf("%d+%d", r.BucketMoves, r.VectorMoves), fmt.Sprintf("%d ms", r.OwnCPU.Milliseconds())}
}

// Text writes the table for a terminal.
func Text(w io.Writer, rows []Row) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, strings.Join(header, "\t"))
	for _, r := range rows {
		fmt.Fprintln(t, strings.Join(r.cells(), "\t"))
	}
	return t.Flush()
}

// Markdown writes the section for docs/benchmarks.md; conditions are sentences.
func Markdown(w io.Writer, rows []Row, conditions []string) error {
	var b strings.Builder
	b.WriteString("## Steering\n\n")
	for _, c := range conditions {
		b.WriteString(c + "\n")
	}
	b.WriteString("\n| " + strings.Join(header, " | ") + " |\n|" + strings.Repeat("---|", len(header)) + "\n")
	for _, r := range rows {
		b.WriteString("| " + strings.Join(r.cells(), " | ") + " |\n")
	}
	_, err := io.WriteString(w, b.String())
	return err
}

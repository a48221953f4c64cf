// Package outcome is what an arm of the steering benchmark came to, how it is judged and how it is shown.
package outcome

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"
)

// Mark begins a line of the guest's output that is a Row as JSON.
const Mark = "row: "

// Row is one arm in one scenario.
type Row struct {
	Scenario    string        `json:"scenario"` // its letter
	Arm         string        `json:"arm"`
	Failed      string        `json:"failed"`       // why there is no result, "" where there is one
	CutOff      bool          `json:"cut_off"`      // it was not done in its time: the rest of the row is not its result
	Balanced    time.Duration `json:"balanced_ns"`  // from its start until the load was even, −1 never
	Hottest     float64       `json:"hottest"`      // share of the packets that the busiest CPU handles, at the end
	Mean        float64       `json:"mean"`         // of all CPUs
	P50         time.Duration `json:"p50_ns"`       // round trip of mice at the end, 0 without any
	P99         time.Duration `json:"p99_ns"`       // of the slowest mouse
	P999        time.Duration `json:"p999_ns"`      // of the slowest mouse
	MiceLost    int           `json:"mice_lost"`    // of which no probe came back
	Packets     uint64        `json:"packets"`      // delivered per second at the end
	Drops       uint64        `json:"drops"`        // of those offered, per second: of the card, the device, backlog, sockets
	BucketMoves int           `json:"bucket_moves"` // seen in the table
	VectorMoves int           `json:"vector_moves"` // seen in smp_affinity
	OwnCPU      time.Duration `json:"own_cpu_ns"`
}

// Sample is what each CPU handled since the sample before.
type Sample struct {
	At      time.Duration // its end, from the start of the arm
	Packets []uint64
}

// steady is for how long the load has to be even.
const steady = 2 * time.Second

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
// two seconds is. Even is how far the busiest CPU may be above the mean, as a ratio. −1: it is not even at the end.
func BalancedAfter(samples []Sample, even float64) time.Duration {
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

var header = []string{"", "arm", "even after", "hottest/mean", "mice p50", "p99", "p99.9", "drops", "moves", "own CPU", "note"}

func (r Row) cells() []string {
	if r.Failed != "" {
		return []string{r.Scenario, r.Arm, "-", "-", "-", "-", "-", "-", "-", "-", r.Failed}
	}
	note := ""
	after := "never"
	if r.Balanced >= 0 {
		after = fmt.Sprintf("%.1f s", r.Balanced.Seconds())
	}
	if r.CutOff {
		after, note = "-", "cut off: it was not done in its time"
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
	p50, p99, p999 := ms(r.P50), ms(r.P99), ms(r.P999)
	if r.MiceLost > 0 {
		p99 = fmt.Sprintf("%d starved", r.MiceLost)
		p999 = "-"
	}
	if r.P50 == 0 {
		p50 = "-"
	}
	return []string{r.Scenario, r.Arm, after, ratio, p50, p99, p999, drops,
		fmt.Sprintf("%d+%d", r.BucketMoves, r.VectorMoves), fmt.Sprintf("%d ms", r.OwnCPU.Milliseconds()), note}
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

// Markdown writes the document: conditions (sentences), a table per scenario, the verdict on the goal.
func Markdown(w io.Writer, rows []Row, scenarios []Scenario, conditions []string) error {
	var b strings.Builder
	b.WriteString("# Steering beside its peers\n\n" + strings.Join(conditions, "\n") + "\n")
	for _, s := range scenarios {
		fmt.Fprintf(&b, "\n## (%s) %s\n\n%s\n\n", s.Letter, s.Name, s.What)
		b.WriteString("| " + strings.Join(header[1:], " | ") + " |\n|---|" + strings.Repeat("--:|", len(header)-3) + "---|\n")
		for _, r := range rows {
			if r.Scenario != s.Letter {
				continue
			}
			b.WriteString("| " + strings.Join(r.cells()[1:], " | ") + " |\n")
		}
	}
	b.WriteString("\n## The goal\n\n")
	for _, l := range Verdict(rows, scenarios) {
		b.WriteString("- " + l + "\n")
	}
	_, err := io.WriteString(w, b.String())
	return err
}

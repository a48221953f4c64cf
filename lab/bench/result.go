package main

import (
	"fmt"
	"io"
	"math"
	"os"
	"runtime"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"golang.org/x/sys/unix"
)

// result is everything a run measured.
type result struct {
	Conditions string
	Rounds     int
	PeerRounds int
	Window     time.Duration
	Modes      []mode
	Operations []operation
}

// mode is all arms at one number of packets per poll.
type mode struct {
	PerPoll int
	Seen    float64 // packets per poll that were really there
	Rows    []row
}

// row is one arm; Ratio and Extra are against doing nothing in the same round.
type row struct {
	Arm         string
	Unavailable string // why, when it could not run
	Ns          float64
	Ratio       interval // cost per packet; the packet rate is its inverse
	Extra       interval // ns per packet
	Note        string   // beside it
}

// operation is how long something takes.
type operation struct {
	Name, Goal string
	Time       times
	Share      bool   // Time is per second: a share of a CPU
	Bytes      uint64 // it is a size, and Time means nothing
}

func (o operation) String() string {
	switch {
	case o.Bytes > 0:
		return fmt.Sprintf("%.1f MiB", float64(o.Bytes)/(1<<20))
	case o.Share:
		return fmt.Sprintf("%.2f %% (most %.2f %%)", 100*o.Time.Median, 100*o.Time.Max)
	}
	return o.Time.String()
}

// times are seconds.
type times struct{ Median, Max float64 }

func summarise(seconds []float64) times {
	return times{median(seconds), slices.Max(seconds)}
}

// goals are what our arms may lose of the packet rate, by arm and packets per poll; the upper bound of the interval counts.
var goals = []struct {
	arm     string
	perPoll int
	loss    float64
}{
	{armPerPoll, 60, 0.03},
	{armBudget, 60, 0.015},
	{armBudget, 1, 0.02},
	{armDetail, 60, 1 - 1/1.06}, // a cost of 6 %
}

// conditions say on what and when it was measured.
func conditions() string {
	var u unix.Utsname
	release := "unknown"
	if err := unix.Uname(&u); err == nil {
		release = unix.ByteSliceToString(u.Release[:])
	}
	model := "unknown CPU"
	if b, err := os.ReadFile("/proc/cpuinfo"); err == nil {
		for line := range strings.Lines(string(b)) {
			if name, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(name) == "model name" {
				model = strings.TrimSpace(value)
				break
			}
		}
	}
	load := ""
	if b, err := os.ReadFile("/proc/loadavg"); err == nil {
		load = ", load average at the start " + strings.Fields(string(b))[0]
	}
	return fmt.Sprintf("Linux %s %s, %d CPUs (%s)%s, %s", release, runtime.GOARCH, runtime.NumCPU(), model, load, time.Now().UTC().Format("2006-01-02"))
}

// cells are the columns of a row after its name.
func (r row) cells() []string {
	if r.Unavailable != "" {
		return []string{"–", "–", "–", "–"}
	}
	if r.Arm == armNothing {
		return []string{fmt.Sprintf("%.0f", r.Ns), "–", "1", "–"}
	}
	return []string{
		fmt.Sprintf("%.0f", r.Ns),
		fmt.Sprintf("%+.0f (%+.0f … %+.0f)", r.Extra.Median, r.Extra.Low, r.Extra.High),
		fmt.Sprintf("%.3f (%.3f … %.3f)", r.Ratio.Median, r.Ratio.Low, r.Ratio.High),
		fmt.Sprintf("%+.1f %%", 100*(1/r.Ratio.Median-1)),
	}
}

var columns = []string{"arm", "ns/packet", "extra ns/packet (95 %)", "cost ratio (95 %)", "packet rate"}

func (t times) String() string {
	return fmt.Sprintf("%.3g ms (most %.3g ms)", 1000*t.Median, 1000*t.Max)
}

// verdicts say which goals were met.
func (res result) verdicts() []string {
	var out []string
	for _, g := range goals {
		what := fmt.Sprintf("%s, at most %.1f %% of the packet rate at %d packets per poll", g.arm, 100*g.loss, g.perPoll)
		i := slices.IndexFunc(res.Modes, func(m mode) bool { return m.PerPoll == g.perPoll })
		j := -1
		if i >= 0 {
			j = slices.IndexFunc(res.Modes[i].Rows, func(r row) bool { return r.Arm == g.arm && r.Unavailable == "" })
		}
		if j < 0 {
			out = append(out, what+": not measured.")
			continue
		}
		r := res.Modes[i].Rows[j].Ratio
		loss, low, high := 1-1/r.Median, 1-1/r.Low, 1-1/r.High
		met := "met"
		switch {
		case math.IsInf(r.Low, 0):
			out = append(out, fmt.Sprintf("%s: %.1f %%, of too few rounds to decide.", what, 100*loss))
			continue
		case low > g.loss:
			met = "MISSED"
		case !(high <= g.loss):
			met = "not decided by this run"
		}
		out = append(out, fmt.Sprintf("%s: %.1f %% (95 %%: %.1f … %.1f): %s.", what, 100*loss, 100*low, 100*high, met))
	}
	return out
}

func (res result) text(w io.Writer) error {
	fmt.Fprintf(w, "%s\n%d rounds of %v (%d with the peers), arms in random order, medians of %v slices\n", res.Conditions, res.Rounds, res.Window, res.PeerRounds, slice)
	for _, m := range res.Modes {
		fmt.Fprintf(w, "\n%d packets per poll (%.1f seen)\n", m.PerPoll, m.Seen)
		t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
		fmt.Fprintln(t, "  "+strings.Join(columns, "\t"))
		for _, r := range m.Rows {
			fmt.Fprintln(t, "  "+r.Arm+"\t"+strings.Join(r.cells(), "\t"))
		}
		if err := t.Flush(); err != nil {
			return err
		}
	}
	res.unavailable(w, "  ")
	res.notes(w, "  ")
	fmt.Fprintf(w, "\nGoals\n  %s\n\n", strings.Join(res.verdicts(), "\n  "))
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, o := range res.Operations {
		fmt.Fprintf(t, "  %s\t%s\tgoal %s\n", o.Name, o, o.Goal)
	}
	return t.Flush()
}

// unavailable lists once each arm that could not run.
func (res result) unavailable(w io.Writer, bullet string) {
	seen := map[string]bool{}
	for _, m := range res.Modes {
		for _, r := range m.Rows {
			if r.Unavailable != "" && !seen[r.Arm] {
				seen[r.Arm] = true
				fmt.Fprintf(w, "%s%s: %s\n", bullet, r.Arm, strings.ReplaceAll(r.Unavailable, "\n", " "))
			}
		}
	}
}

// notes are what stands beside rows.
func (res result) notes(w io.Writer, bullet string) {
	for _, m := range res.Modes {
		for _, r := range m.Rows {
			if r.Note != "" {
				fmt.Fprintf(w, "%s%s at %d packets per poll: %s\n", bullet, r.Arm, m.PerPoll, r.Note)
			}
		}
	}
}

func (res result) markdown(w io.Writer) error {
	fmt.Fprintf(w, `# Benchmarks

What rxsteer costs, measured by `+"`make bench`"+` (lab/bench), which rewrites this file with -w.

%s. %d rounds of %v at each number of packets per poll (%d with the peers), arms in random
order within a round, each compared with doing nothing in the same round: medians of the rounds, with the
interval that needs no assumption about their distribution. A measurement is the median
of %v slices. The rig: a veth pair on one CPU, the sender's call runs the receive softirq
inline; one UDP send is cut into the packets of one NAPI poll; they end in a UDP socket
nobody reads. The A/A control is doing nothing again: what it shows is noise. The rows of the budget and of
full detail are of rounds of their own: %v and %v with a sampler that runs as in rxsteer diagnose, from its first moment, against nothing
before and after; means of slices, none counted for more than 1.5 times the median.
`, res.Conditions, res.Rounds, res.Window, res.PeerRounds, slice, budgetWindow, detailWindow)
	for _, m := range res.Modes {
		fmt.Fprintf(w, "\n## %d packets per poll (%.1f seen)\n\n| %s |\n|---|%s\n", m.PerPoll, m.Seen, strings.Join(columns, " | "), strings.Repeat("--:|", len(columns)-1))
		for _, r := range m.Rows {
			fmt.Fprintf(w, "| %s | %s |\n", r.Arm, strings.Join(r.cells(), " | "))
		}
	}
	fmt.Fprintln(w)
	res.unavailable(w, "- ")
	res.notes(w, "- ")
	fmt.Fprintf(w, "\n## Goals\n\n- %s\n\n## Operations\n\n| what | median (most) | goal |\n|---|--:|--:|\n", strings.Join(res.verdicts(), "\n- "))
	for _, o := range res.Operations {
		fmt.Fprintf(w, "| %s | %s | %s |\n", o.Name, o, o.Goal)
	}
	return nil
}

package main

import (
	"fmt"
	"io"
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
}

// operation is how long something takes.
type operation struct {
	Name, Goal string
	Time       times
}

// times are seconds.
type times struct{ Median, Max float64 }

func summarise(seconds []float64) times {
	return times{median(seconds), slices.Max(seconds)}
}

// goalPerPoll is what the per-poll set may cost of the packet rate at 60
// packets per poll.
const goalPerPoll = 0.03

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
	if r.Arm == arms()[0].name {
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

// verdict says whether the per-poll set met its goal in the mode of 60.
func (res result) verdict() string {
	for _, m := range res.Modes {
		if m.PerPoll != 60 {
			continue
		}
		for _, r := range m.Rows {
			if !strings.HasPrefix(r.Arm, "rxsteer") || r.Unavailable != "" {
				continue
			}
			loss, low, high := 1-1/r.Ratio.Median, 1-1/r.Ratio.Low, 1-1/r.Ratio.High
			met := "met"
			switch {
			case low > goalPerPoll:
				met = "MISSED"
			case high > goalPerPoll:
				met = "not decided by this run"
			}
			return fmt.Sprintf("Goal of at most %.0f %% of the packet rate at 60 packets per poll: %.1f %% (95 %%: %.1f … %.1f): %s.",
				100*goalPerPoll, 100*loss, 100*low, 100*high, met)
		}
	}
	return "The per-poll set was not measured at 60 packets per poll."
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
	fmt.Fprintf(w, "\n%s\n\n", res.verdict())
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, o := range res.Operations {
		fmt.Fprintf(t, "  %s\t%s\tgoal %s\n", o.Name, o.Time, o.Goal)
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

func (res result) markdown(w io.Writer) error {
	fmt.Fprintf(w, `# Benchmarks

What rxsteer costs, measured by `+"`make bench`"+` (lab/bench), which rewrites this file with -w.

%s. %d rounds of %v at each number of packets per poll (%d with the peers), arms in random
order within a round, each compared with doing nothing in the same round: medians of the rounds, with the
interval that needs no assumption about their distribution. A measurement is the median
of %v slices. The rig: a veth pair on one CPU, the sender's call runs the receive softirq
inline; one UDP send is cut into the packets of one NAPI poll; they end in a UDP socket
nobody reads. The A/A control is doing nothing again: what it shows is noise.
`, res.Conditions, res.Rounds, res.Window, res.PeerRounds, slice)
	for _, m := range res.Modes {
		fmt.Fprintf(w, "\n## %d packets per poll (%.1f seen)\n\n| %s |\n|---|%s\n", m.PerPoll, m.Seen, strings.Join(columns, " | "), strings.Repeat("--:|", len(columns)-1))
		for _, r := range m.Rows {
			fmt.Fprintf(w, "| %s | %s |\n", r.Arm, strings.Join(r.cells(), " | "))
		}
	}
	fmt.Fprintln(w)
	res.unavailable(w, "- ")
	fmt.Fprintf(w, "\n%s\n\n## Operations\n\n| what | median (most) | goal |\n|---|--:|--:|\n", res.verdict())
	for _, o := range res.Operations {
		fmt.Fprintf(w, "| %s | %s | %s |\n", o.Name, o.Time, o.Goal)
	}
	return nil
}

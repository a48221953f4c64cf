package top

import (
	"fmt"
	"slices"
	"strings"

	"github.com/rxsteer/rxsteer/collector"
)

// A queue that takes hot of a CPU, or a CPU that receives for that share of its time, has nothing to spare; at warm
// it will not take a burst. worn is the share of polls that end by their budget from which on it counts.
const (
	hot  = 0.85
	warm = 0.6
	worn = 0.1
)

// state of a row: plain, near its limit or bad.
func (q *Queue) state() paint {
	switch {
	case q.Drops > 0, q.Time >= hot, q.Fills > 0:
		return bad
	case q.Time >= warm, q.Full >= worn && q.Time >= 0.1:
		return near
	}
	return plain
}

func (c *CPU) state() paint {
	switch {
	case c.Receive >= hot, c.Dropped > 0:
		return bad
	case c.Receive >= warm:
		return near
	}
	return plain
}

// mark is what a state looks like without colour.
func mark(p paint) string {
	switch p {
	case bad:
		return "!"
	case near:
		return "*"
	}
	return " "
}

// verdict is the one line to read first: which queue on which CPU hurts, and how it shows.
func (s *Shot) verdict(queues []Queue) (paint, string) {
	var worst *Queue
	for i := range queues {
		q := &queues[i]
		if worst == nil || severity(q.state()) > severity(worst.state()) || severity(q.state()) == severity(worst.state()) && hurts(q) > hurts(worst) {
			worst = q
		}
	}
	var cpu *CPU
	for i := range s.CPUs {
		if cpu == nil || s.CPUs[i].Receive > cpu.Receive {
			cpu = &s.CPUs[i]
		}
	}
	switch {
	case worst != nil && worst.state() == bad:
		return bad, worst.where() + " HURTS: " + worst.signs(s)
	case cpu != nil && cpu.state() == bad && cpu.Receive >= hot:
		return bad, fmt.Sprintf("cpu %d is FULL of receiving: %s%s", cpu.ID, percent(cpu.Receive), s.sharers(queues, cpu))
	case worst != nil && worst.state() == near:
		return near, worst.where() + " is near its limit: " + worst.signs(s)
	case cpu != nil && cpu.state() == near:
		return near, fmt.Sprintf("cpu %d is near its limit: %s of its time goes to receiving%s", cpu.ID, percent(cpu.Receive), s.sharers(queues, cpu))
	case worst == nil || worst.PPS == 0:
		return good, "Nothing hurts: nothing is received here"
	case worst.PPS < 0:
		return good, "No CPU is near its limit. What each queue does is not seen now"
	}
	return good, "Nothing hurts. Busiest: " + worst.where() + ", " + worst.signs(s)
}

func severity(p paint) int { return slices.Index([]paint{plain, near, bad}, p) }

// hurts orders rows of one state.
func hurts(q *Queue) float64 {
	if q.Time >= 0 {
		return q.Time + max(q.Drops, 0)
	}
	return q.PPS/1e9 + max(q.Drops, 0)
}

func (q *Queue) where() string {
	if q.CPU < 0 || q.Device == collector.Backlog {
		return q.name()
	}
	t := fmt.Sprintf("%s on cpu %d", q.name(), q.CPU)
	if q.CPUs > 1 {
		t += fmt.Sprintf(" and %d more", q.CPUs-1)
	}
	return t
}

// signs are a row's figures in words.
func (q *Queue) signs(s *Shot) string {
	var out []string
	if q.Drops > 0 {
		out = append(out, count(q.Drops)+" dropped/s")
	}
	switch {
	case q.Fills > 0 && q.Fills-q.Time > 0.02:
		out = append(out, fmt.Sprintf("%s of a CPU that is %s full of receiving", percent(q.Time), percent(q.Fills)))
	case q.Time >= 0:
		out = append(out, percent(q.Time)+" of a CPU")
	}
	if q.Full >= worn {
		out = append(out, percent(q.Full)+" of polls end by their budget")
	}
	if q.PPS >= 0 {
		out = append(out, count(q.PPS)+" packets/s")
	}
	return strings.Join(out, ", ")
}

// sharers names the queues that a CPU polls, the busiest first.
func (s *Shot) sharers(queues []Queue, c *CPU) string {
	var on []*Queue
	for i := range queues {
		if q := &queues[i]; q.CPU == c.ID && q.Time > 0.01 {
			on = append(on, q)
		}
	}
	if c.Estimated {
		return "; which queue is not seen at level 0"
	}
	if len(on) == 0 {
		return ""
	}
	slices.SortStableFunc(on, func(a, b *Queue) int { return orders[0].less(a, b) })
	var names []string
	for _, q := range on[:min(len(on), 3)] {
		names = append(names, q.name()+" "+percent(q.Time))
	}
	t := "; " + strings.Join(names, ", ")
	if len(on) > 3 {
		t += fmt.Sprintf(" and %d more", len(on)-3)
	}
	return t
}

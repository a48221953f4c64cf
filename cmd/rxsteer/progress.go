package main

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/rxsteer/rxsteer/collector"
)

// progress is one line on a terminal's stderr that is redrawn: what is being done, how long it
// will take, and live figures. Elsewhere it draws nothing.
type progress struct {
	w      io.Writer // nil: no terminal
	width  int
	now    func() time.Time
	start  time.Time
	total  time.Duration
	what   string
	live   string
	ticker *time.Ticker
}

func (e *env) newProgress(what string, total time.Duration) *progress {
	p := &progress{width: e.width, now: e.now, start: e.now(), total: total, what: what}
	if e.stderrTTY && total > time.Second {
		p.w = e.stderr
		p.ticker = time.NewTicker(250 * time.Millisecond)
		p.draw()
	}
	return p
}

// newOpenProgress is for what takes nobody knows how long: it shows after a moment.
func (e *env) newOpenProgress(what string) *progress {
	p := &progress{width: e.width, now: e.now, start: e.now(), what: what}
	if e.stderrTTY {
		p.w = e.stderr
		p.ticker = time.NewTicker(250 * time.Millisecond)
	}
	return p
}

// tick fires when the line wants to be redrawn; never without a terminal.
func (p *progress) tick() <-chan time.Time {
	if p.ticker == nil {
		return nil
	}
	return p.ticker.C
}

// step takes the live figures of a sample.
func (p *progress) step(s *collector.Sample) {
	p.live = liveText(s)
	p.draw()
}

// say replaces what is being done.
func (p *progress) say(what string) {
	p.what = what
	p.draw()
}

func (p *progress) draw() {
	if p.w == nil {
		return
	}
	line := p.what
	if left := p.total - p.now().Sub(p.start); left > 0 {
		done := 1 - float64(left)/float64(p.total)
		n := int(10 * done)
		line = fmt.Sprintf("%s  %s%s %2.0f s left", p.what, strings.Repeat("█", n), strings.Repeat("·", 10-n), left.Seconds())
	}
	if p.live != "" {
		line += "  " + p.live
	}
	fmt.Fprint(p.w, "\r\x1b[K"+clip(line, max(p.width-1, 20)))
}

// end erases the line.
func (p *progress) end() {
	if p.w == nil {
		return
	}
	p.ticker.Stop()
	fmt.Fprint(p.w, "\r\x1b[K")
	p.w = nil
}

// liveText is the packets per second and the CPUs that receive most.
func liveText(s *collector.Sample) string {
	if s.Interval <= 0 {
		return ""
	}
	type load struct {
		cpu   int
		ratio float64
	}
	var loads []load
	var packets uint64
	for _, c := range s.CPUs {
		t := c.Softirq
		if s.Level >= 1 {
			t = c.SoftirqTime[collector.NetRX]
		}
		packets += c.Processed
		if r := float64(t) / float64(s.Interval); r >= 0.005 {
			loads = append(loads, load{c.CPU, r})
		}
	}
	slices.SortStableFunc(loads, func(a, b load) int {
		switch {
		case a.ratio > b.ratio:
			return -1
		case a.ratio < b.ratio:
			return 1
		}
		return a.cpu - b.cpu
	})
	text := short(float64(packets)/s.Interval.Seconds()) + " packets/s"
	for _, l := range loads[:min(len(loads), 4)] {
		text += fmt.Sprintf("  cpu%d %.0f %%", l.cpu, 100*l.ratio)
	}
	return text
}

// short is a number in at most four digits: 950, 12.3k, 1.20M.
func short(v float64) string {
	switch {
	case v >= 1e6:
		return fmt.Sprintf("%.2fM", v/1e6)
	case v >= 1e4:
		return fmt.Sprintf("%.1fk", v/1e3)
	default:
		return fmt.Sprintf("%.0f", v)
	}
}

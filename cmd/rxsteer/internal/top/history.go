package top

import (
	"github.com/rxsteer/rxsteer/collector"
	"github.com/rxsteer/rxsteer/steer/diagnose"
)

// History is shots by number; numbers only grow.
type History interface {
	// Bounds are the numbers of the oldest and the newest shot; newest < oldest: there is none.
	Bounds() (oldest, newest int)
	// At is a shot within the bounds.
	At(n int) *Shot
	// Heat is the receive share of the shot's hottest CPU.
	Heat(n int) float64
	// Report is what diagnose said of the last seconds up to a shot, nil: it was not asked.
	Report(n int) *diagnose.Report
}

// Recent is the last minutes of a live host.
type Recent struct {
	kept []moment // a ring
	next int
}

type moment struct {
	shot   *Shot
	heat   float64
	report *diagnose.Report
}

// NewRecent keeps that many shots.
func NewRecent(size int) *Recent { return &Recent{kept: make([]moment, size)} }

// Add appends a shot with its Heat and what diagnose said.
func (r *Recent) Add(s *Shot, heat float64, report *diagnose.Report) {
	r.kept[r.next%len(r.kept)] = moment{s, heat, report}
	r.next++
}

func (r *Recent) Bounds() (oldest, newest int) {
	return max(0, r.next-len(r.kept)), r.next - 1
}

func (r *Recent) at(n int) *moment              { return &r.kept[n%len(r.kept)] }
func (r *Recent) At(n int) *Shot                { return r.at(n).shot }
func (r *Recent) Heat(n int) float64            { return r.at(n).heat }
func (r *Recent) Report(n int) *diagnose.Report { return r.at(n).report }

// Recorded is the samples of a recording; shots are made when they are looked at.
type Recorded struct {
	heats  []float64
	take   func(n int) *Shot
	kept   map[int]*Shot
	judge  func(n int) *diagnose.Report
	judged int // the last shot asked about, its answer follows
	report *diagnose.Report
}

// keptShots bounds what Recorded remembers: more than a screen's spark lines reach back.
const keptShots = 512

// NewRecorded is samples that take turns into shots, and judge into reports.
func NewRecorded(samples []*collector.Sample, take func(n int) *Shot, judge func(n int) *diagnose.Report) *Recorded {
	r := &Recorded{take: take, kept: map[int]*Shot{}, judge: judge, judged: -1}
	for _, s := range samples {
		r.heats = append(r.heats, Heat(s))
	}
	return r
}

func (r *Recorded) Bounds() (oldest, newest int) { return 0, len(r.heats) - 1 }

func (r *Recorded) At(n int) *Shot {
	s := r.kept[n]
	if s == nil {
		if len(r.kept) >= keptShots {
			clear(r.kept)
		}
		s = r.take(n)
		r.kept[n] = s
	}
	return s
}

func (r *Recorded) Heat(n int) float64 { return r.heats[n] }

func (r *Recorded) Report(n int) *diagnose.Report {
	if r.judged != n {
		r.judged, r.report = n, r.judge(n)
	}
	return r.report
}

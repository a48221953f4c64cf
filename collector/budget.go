package collector

import (
	"bytes"
	"math"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rxsteer/rxsteer/bpf"
	"github.com/rxsteer/rxsteer/internal/host"
)

// DefaultOverhead is the share of each CPU's time that measuring may take.
const DefaultOverhead = 0.01

// thinner are Programs that can do less, as bpf.Programs.
type thinner interface {
	SetRate(n uint32) error
	Attach() error
	Detach() error
	Costs() bpf.Costs
}

// Windows in which programs are attached, where even passing by costs too much: each attach and detach calls every CPU
// out of what it does.
const (
	shortestWindow = time.Second
	windowsApart   = 10 * time.Second
)

// reaction is how soon the budget answers to a change of traffic, unless reading takes long: it may take 1/driverShare
// of a CPU.
const reaction = 250 * time.Millisecond

// mostPassed is the highest rate: less than one event in so many is not worth a program.
const mostPassed = 4096

// budget keeps the cost of the programs below a share of each CPU's time. Per event it is known (see
// bpf.AttachCalibrated); how many there are is seen in those looked at, each of which stands for `rate`. What a CPU paid
// too much it is owed, and paid back within ten seconds.
//
// It has two means. As long as passing an event by is cheap, one softirq run in so many is looked at, drawn at random:
// nothing is missed but detail. Where passing by costs too much as well (a million runs a second), the programs are
// attached for windows of a second, as seldom as it takes.
type budget struct {
	share    float64 // 0: unlimited
	programs thinner
	costs    bpf.Costs
	pinned   bool // no windows: some CPUs must not be called out of what they do

	attached bool
	gone     bool // detached for good
	rate     uint32
	since    time.Time // attached or detached
	at       time.Time // of last
	last     []events  // by CPU, looked at since the programs were loaded
	debt     []float64 // by CPU, ns
	climb    time.Time // all detail until then
	start    time.Time
	usage    time.Duration // CPU time of this process at start

	// Since the last sample.
	spent   []float64     // by CPU, ns
	watched time.Duration // attached
	looked  float64       // Σ ns attached / rate
	thinned bool
}

// events are counts of one CPU.
type events struct{ runs, polls, irqs, busy, busyAll, others float64 } // others: never looked at

func newBudget(share float64, p thinner, fsys host.FS, cpus int, now time.Time) *budget {
	b := &budget{share: share, programs: p, costs: p.Costs(), attached: true, rate: 1, since: now, at: now, start: now, pinned: pinned(fsys),
		last: make([]events, cpus), debt: make([]float64, cpus), spent: make([]float64, cpus), usage: cpuTime()}
	return b
}

// pinned reports whether some CPUs must not be called out of what they do, as attaching and detaching does.
func pinned(fsys host.FS) bool {
	for _, file := range [...]string{"isolated", "nohz_full"} {
		text, err := fsys.ReadFile("/sys/devices/system/cpu/" + file)
		text = bytes.TrimSpace(text)
		// nohz_full prints "(null)" where no CPU is (print_cpus_nohz_full, drivers/base/cpu.c, %*pbl of none).
		if err == nil && len(text) > 0 && !bytes.HasPrefix(text, []byte("(null)")) {
			return true
		}
	}
	return false
}

func cpuTime() time.Duration {
	var u unix.Rusage
	if unix.Getrusage(unix.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// eventsOf adds up what was looked at by CPU.
func eventsOf(c *bpf.Counters) []events {
	out := make([]events, len(c.CPUs))
	for i := range c.CPUs {
		for _, n := range c.CPUs[i].Runs {
			out[i].runs += float64(n)
		}
		out[i].busyAll = float64(c.CPUs[i].BusyPolls)
		out[i].others = float64(c.CPUs[i].Raises + c.CPUs[i].Switches)
		out[i].polls = float64(c.CPUs[i].LostPolls)
		out[i].irqs = float64(c.CPUs[i].LostIrqs)
	}
	for i, k := range c.NAPIKeys {
		if int(k.Cpu) < len(out) {
			out[k.Cpu].polls += float64(c.NAPIs[i].Polls)
			out[k.Cpu].busy += float64(c.NAPIs[i].BusyPolls)
		}
	}
	for i, k := range c.IRQKeys {
		if int(k.Cpu) < len(out) {
			out[k.Cpu].irqs += float64(c.IRQs[i].Count)
		}
	}
	return out
}

// load is what a CPU's events cost, as a share of its time.
type load struct {
	full  float64 // each looked at
	floor float64 // each passed by
}

// at prices events, all of them counted.
func (b *budget) price(runs, polls, irqs, busy, seconds float64) load {
	c := &b.costs
	if seconds <= 0 {
		return load{}
	}
	ns := seconds * 1e9
	return load{
		full:  (runs*c.Run.Looked + (polls+busy)*c.Poll.Looked + irqs*c.IRQ.Looked) / ns,
		floor: (runs*c.Run.Passed + (polls+busy)*c.Poll.Passed + irqs*c.IRQ.Passed) / ns,
	}
}

// account charges what happened until now and tells what it would cost without thinning, by CPU; nil where nothing was attached.
func (b *budget) account(now time.Time, c *bpf.Counters) []load {
	dt := now.Sub(b.at)
	b.at = now
	for i := range b.debt {
		b.debt[i] = max(0, b.debt[i]-b.share*float64(dt))
	}
	seen := eventsOf(c)
	was := b.last
	b.last = seen
	if !b.attached {
		b.thinned = b.thinned || dt > 0
		return nil
	}
	b.watched += dt
	b.looked += float64(dt) / float64(b.rate)
	b.thinned = b.thinned || b.rate > 1
	loads := make([]load, len(seen))
	for i := range seen {
		if i >= len(was) || i >= len(b.debt) {
			break
		}
		// A NAPI that was forgotten takes its polls along.
		up := func(is, was float64) float64 { return max(0, is-was) }
		runs, polls, irqs := up(seen[i].runs, was[i].runs), up(seen[i].polls, was[i].polls), up(seen[i].irqs, was[i].irqs)
		busy, busyAll := up(seen[i].busy, was[i].busy), up(seen[i].busyAll, was[i].busyAll)
		n := float64(b.rate)
		loads[i] = b.price(runs*n, polls*n, irqs*n, max(busyAll, busy), dt.Seconds())
		others := up(seen[i].others, was[i].others) * b.costs.Poll.Passed / float64(dt)
		loads[i].full += others
		loads[i].floor += others
		looked := b.price(runs, polls, irqs, busy, dt.Seconds())
		ns := (looked.full + loads[i].floor - looked.floor) * float64(dt)
		b.spent[i] += ns
		b.debt[i] += ns
	}
	return loads
}

// payback is how long a debt may last.
const payback = 10 * time.Second

// plan is the rate that keeps all CPUs inside the budget, and whether only windows do.
func (b *budget) plan(loads []load) (rate uint32, windows bool) {
	rate = 1
	for i, l := range loads {
		if l.full <= 0 {
			continue
		}
		may := b.share
		if i < len(b.debt) {
			may = max(b.share/4, b.share-b.debt[i]/float64(payback))
		}
		want := uint32(1)
		switch {
		case l.full <= may:
		case l.floor > b.share*7/10:
			// In a window looking may cost as much again as passing by.
			windows = true
			want = uint32(min(max(math.Ceil((l.full-l.floor)/l.floor), 1), 64))
		default:
			want = uint32(min(math.Ceil((l.full-l.floor)/max(may-l.floor, b.share/8)), mostPassed))
		}
		rate = max(rate, want)
	}
	return rate, windows
}

// decide thins, or no longer. Looking closer waits for the beginning of a sample, so that a sample's events stand for
// the same number as far as possible; thinning does not wait.
func (b *budget) decide(now time.Time, loads []load, sampled bool) error {
	switch {
	case b.share <= 0 || b.gone:
		return nil
	case now.Before(b.climb):
		return b.look(now, 1)
	case !b.attached:
		owed := false
		for _, d := range b.debt {
			owed = owed || d > 0
		}
		if owed || now.Sub(b.since) < windowsApart {
			return nil
		}
		return b.look(now, b.rate)
	case len(loads) == 0:
		return nil
	}
	rate, windows := b.plan(loads)
	if rate > b.rate || sampled && rate < b.rate {
		if err := b.look(now, rate); err != nil {
			return err
		}
	}
	if !windows || now.Sub(b.since) < shortestWindow {
		return nil
	}
	if b.pinned {
		// As long as passing by is inside the budget, stay.
		over := false
		for _, l := range loads {
			over = over || l.floor > b.share
		}
		if !over {
			return nil
		}
		b.gone = true
	}
	b.attached, b.since = false, now
	return b.programs.Detach()
}

// look attaches if need be, and looks at one event in rate.
func (b *budget) look(now time.Time, rate uint32) error {
	if rate != b.rate {
		if err := b.programs.SetRate(rate); err != nil {
			return err
		}
		b.rate = rate
	}
	if b.attached {
		return nil
	}
	if err := b.programs.Attach(); err != nil {
		return err
	}
	b.attached, b.since = true, now
	return nil
}

// thinness is how much of an interval was looked at.
type thinness struct {
	thinned bool // not all of it
	none    bool // nothing
}

func (b *budget) thinness() *thinness {
	return &thinness{thinned: b.thinned, none: b.watched == 0 && b.thinned}
}

// cost tells what a sample's interval cost, and begins the next.
func (b *budget) cost(s *Sample) *Cost {
	c := &Cost{Budget: b.share, PerEvent: map[string]float64{
		"run": b.costs.Run.Looked, "run, passed by": b.costs.Run.Passed, "poll": b.costs.Poll.Looked, "poll, passed by": b.costs.Poll.Passed,
		"interrupt": b.costs.IRQ.Looked, "interrupt, passed by": b.costs.IRQ.Passed,
	}}
	ns := float64(s.Interval)
	if ns <= 0 {
		return c
	}
	online := 0
	for i := range b.spent {
		share := b.spent[i] / ns
		if share > c.Hottest {
			c.Hottest, c.CPU = share, i
		}
		c.Mean += share
	}
	for _, cpu := range s.CPUs {
		if cpu.Idle+cpu.Softirq+cpu.Irq+cpu.Steal > 0 || cpu.SoftirqRuns != [10]uint64{} {
			online++
		}
	}
	c.Mean /= float64(max(online, 1))
	used := cpuTime()
	c.Reader = float64(used-b.usage) / ns
	b.usage = used
	c.Duty = min(b.looked/ns, 1)
	if !b.thinned {
		c.Duty = 1
	}
	c.Error = s.scaledError()
	if b.share > 0 && !b.costs.Measured {
		c.Thinned = append(c.Thinned, "what an event costs could not be measured, taken is what a slow machine takes: "+b.costs.Why)
	}
	if b.thinned && b.rate > 1 && b.watched > 0 {
		c.Thinned = append(c.Thinned, "softirq runs and interrupts were passed by; those looked at stand for all")
	}
	switch {
	case b.gone && b.watched == 0:
		c.Thinned = append(c.Thinned, "the programs are detached for good: even passing by costs more than the budget, and attaching again would disturb isolated CPUs")
	case b.watched < time.Duration(ns*0.98):
		c.Thinned = append(c.Thinned, "the programs were attached in windows, for even passing by costs too much; what was seen in them stands for all")
	}
	clear(b.spent)
	b.watched, b.looked, b.thinned = 0, 0, false
	return c
}

// scaledError is the relative half-width of the 95 % interval of the receive time of all CPUs: that of a random
// sample of runs whose times vary as those of the polls looked at. It knows nothing of traffic that was
// another while nothing was attached.
func (s *Sample) scaledError() float64 {
	hists := map[int]*Histogram{}
	for i := range s.NAPIs {
		n := &s.NAPIs[i]
		if hists[n.CPU] == nil {
			hists[n.CPU] = &Histogram{}
		}
		hists[n.CPU].Add(&n.TimeHist)
	}
	var total, variance float64
	for i := range s.CPUs {
		c := &s.CPUs[i]
		ran, looked := float64(c.SoftirqRuns[NetRX]), float64(c.SoftirqRuns[NetRX])-float64(c.Untraced)
		t := float64(c.SoftirqTime[NetRX])
		total += t
		h := hists[c.CPU]
		if h == nil || looked <= 0 || looked >= ran {
			continue
		}
		var n, sum, squares float64
		for b, count := range h {
			mid := 0.75 * math.Exp2(float64(b)) // of 2^(b-1) … 2^b
			n += float64(count)
			sum += mid * float64(count)
			squares += mid * mid * float64(count)
		}
		if sum == 0 {
			continue
		}
		cv2 := max(n*squares/(sum*sum)-1, 0)
		variance += t * t * (cv2 + 1.0/3) * (1/looked - 1/ran) // a third: the width of a bucket
	}
	if total == 0 {
		return 0
	}
	return 1.96 * math.Sqrt(variance) / total
}

// kernelLoads prices what the kernel counted between two readings, before any program told of polls: one in each run.
func (b *budget) kernelLoads(prev, cur *Reading) []load {
	s := Between(prev, cur, nil)
	loads := make([]load, len(b.debt))
	irqs := make([]float64, len(b.debt))
	for _, q := range s.IRQs {
		if q.CPU >= 0 && q.CPU < len(irqs) {
			irqs[q.CPU] += float64(q.Count)
		}
	}
	for _, c := range s.CPUs {
		if c.CPU >= len(loads) {
			continue
		}
		var runs float64
		for _, n := range c.SoftirqRuns {
			runs += float64(n)
		}
		loads[c.CPU] = b.price(runs, float64(c.SoftirqRuns[NetRX]), irqs[c.CPU], 0, s.Interval.Seconds())
	}
	return loads
}

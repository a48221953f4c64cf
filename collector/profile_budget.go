package collector

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/rxsteer/rxsteer/internal/host"
	"github.com/rxsteer/rxsteer/internal/host/procfs"
)

// What a profile takes of a CPU, ns: of each program that runs, and of a tick that takes a stack. (An empty
// program at a tracepoint takes 20 on a guest of 2 CPUs, 6.18; ticks at 99 Hz took 0.03 % of a CPU there.)
const (
	profileEvent = 20
	profileTick  = 3000
)

// ticker is what a profile starts and stops, as bpf.Profiler.
type ticker interface {
	Start() error
	Stop() error
}

// profileBudget keeps a profile below a share of each CPU's time. Softirq runs are counted by the kernel; in one of
// NET_RX at least one poll ends.
type profileBudget struct {
	share  float64 // 0: unlimited
	period time.Duration
	last   *procfs.Softirqs
	debt   map[int]float64 // by CPU, ns
}

// charge tells whether a CPU paid more than its share, dt after the last time.
func (b *profileBudget) charge(now *procfs.Softirqs, dt time.Duration, attached bool) (owed bool) {
	was := map[int]int{}
	if b.last != nil {
		for i, id := range b.last.CPUs {
			was[id] = i
		}
	}
	for i, id := range now.CPUs {
		j, ok := was[id]
		if !ok {
			continue
		}
		var ns float64
		if attached {
			ns = float64(dt) / float64(b.period) * profileTick
			for v, name := range SoftirqNames {
				before, runs := b.last.Row(name), now.Row(name)
				if before == nil || runs == nil {
					continue
				}
				n := float64(uint32(runs[i] - before[j])) // 32 bits wide in the kernel
				ns += n * 2 * profileEvent                // entry and exit of any vector
				if v == NetRX {
					ns += n * profileEvent
				}
			}
		}
		b.debt[id] = max(0, b.debt[id]+ns-b.share*float64(dt))
		owed = owed || b.debt[id] > 0
	}
	b.last = now
	return owed
}

// run has p sample for d, or until ctx ends, in as many windows as the budget allows: how long they were together, and
// of what time. These are the same where the budget was never spent.
func (b *profileBudget) run(ctx context.Context, p ticker, fsys host.FS, d time.Duration) (watched, of time.Duration, err error) {
	if err := p.Start(); err != nil {
		return 0, 0, err
	}
	attached := true
	begun := time.Now()
	since, at := begun, begun
	end := time.NewTimer(d)
	defer end.Stop()
	look := time.NewTicker(reaction)
	defer look.Stop()
	b.debt = map[int]float64{}
	for over := false; !over; {
		select {
		case <-end.C:
			over = true
		case <-ctx.Done():
			over = true
		case <-look.C:
		}
		now := time.Now()
		if over {
			break
		}
		if b.share <= 0 {
			continue
		}
		const file = "/proc/softirqs"
		text, err := fsys.ReadFile(file)
		if err != nil {
			return 0, 0, errors.Join(fmt.Errorf("count what a profile costs: %w", err), p.Stop())
		}
		softirqs, err := procfs.ParseSoftirqs(file, text)
		if err != nil {
			return 0, 0, errors.Join(fmt.Errorf("count what a profile costs: %w", err), p.Stop())
		}
		owed := b.charge(softirqs, now.Sub(at), attached)
		at = now
		switch {
		case attached && owed && now.Sub(since) >= shortestWindow:
			watched += now.Sub(since)
			attached, since = false, now
			err = p.Stop()
		case !attached && !owed && now.Sub(since) >= windowsApart:
			attached, since = true, now
			err = p.Start()
		}
		if err != nil {
			return 0, 0, err
		}
	}
	ended := time.Now()
	if attached {
		watched += ended.Sub(since)
	}
	return watched, ended.Sub(begun), p.Stop()
}

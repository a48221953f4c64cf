package traffic

import (
	"context"
	"fmt"
	"runtime"
	"time"

	"golang.org/x/sys/unix"
)

// Sink carries the packets of a run's flows, numbered from 0.
type Sink interface {
	// Send sends n packets of a flow; packet i has h with sequence number
	// h.Seq + i. It never blocks: it returns how many were taken, and an
	// error only when the run cannot go on.
	Send(flow int, h Header, n int) (taken int, err error)
}

// SendReport is what a run sent. Offered = Sent + Refused + Skipped.
type SendReport struct {
	Seconds float64       `json:"seconds"`
	Offered uint64        `json:"offered"` // packets that were due
	Sent    uint64        `json:"sent"`
	Refused uint64        `json:"refused"` // the socket or device took no more
	Skipped uint64        `json:"skipped"` // the sender was too late by more than MaxLag
	MaxLag  time.Duration `json:"max_lag_ns"`
	Flows   []uint64      `json:"flows"` // sent of each flow
}

// OfferedRate and SentRate are packets per second.
func (r SendReport) OfferedRate() float64 { return float64(r.Offered) / r.Seconds }
func (r SendReport) SentRate() float64    { return float64(r.Sent) / r.Seconds }

// burst bounds what goes to a sink in one call.
const burst = 64

// Send runs plan over sink until its end or ctx's; ending early is no error.
func Send(ctx context.Context, plan Plan, sink Sink) (SendReport, error) {
	p, err := plan.withDefaults()
	if err != nil {
		return SendReport{}, err
	}
	s := sender{Plan: p, ctx: ctx, sink: sink, turns: make([]uint64, p.Flows), seq: make([]uint64, p.Flows)}
	if p.Alternate > 0 {
		s.mixes = []*mix{p.newMix(func(f int) bool { return f%2 == 0 }), p.newMix(func(f int) bool { return f%2 == 1 })}
	} else {
		s.mixes = []*mix{p.newMix(func(int) bool { return true })}
	}
	// A thread of its own: it may be pinned, and its sleeps are precise.
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with its settings
		done <- s.run()
	}()
	err = <-done
	s.report.Flows = s.seq
	return s.report, err
}

type sender struct {
	Plan
	ctx    context.Context
	sink   Sink
	mixes  []*mix
	turns  []uint64 // of this wake-up, by flow
	seq    []uint64 // next sequence number by flow
	report SendReport
}

func (s *sender) run() error {
	if err := pin(s.CPU); err != nil {
		return fmt.Errorf("pin sender: %w", err)
	}
	if s.RealTime {
		// Without CAP_SYS_NICE it stays an ordinary thread; MaxLag tells what that cost.
		_ = unix.SchedSetAttr(0, &unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: unix.SCHED_FIFO, Priority: 1}, 0)
	}
	// Sleeps end within microseconds instead of the default slack of 50.
	if err := unix.Prctl(unix.PR_SET_TIMERSLACK, 1000, 0, 0, 0); err != nil {
		return fmt.Errorf("set timer slack of sender: %w", err)
	}
	start := Now()
	defer func() { s.report.Seconds = (Now() - start).Seconds() }()
	if s.Rate == 0 {
		return s.flood(start)
	}
	end := s.due(1<<62 - 1)
	if s.For == 0 {
		end = s.Count
	}
	for s.report.Offered < end && s.ctx.Err() == nil {
		elapsed := Now() - start
		due := s.due(elapsed) - s.report.Offered
		train := min(uint64(s.Train), end-s.report.Offered)
		if due < train {
			s.sleep(start + s.when(s.report.Offered+train-1))
			continue
		}
		lag := elapsed - s.when(s.report.Offered)
		s.report.MaxLag = max(s.report.MaxLag, lag)
		if lag > s.MaxLag {
			if kept := s.due(elapsed - s.MaxLag); kept > s.report.Offered {
				old := kept - s.report.Offered
				s.report.Skipped += old
				s.report.Offered += old
				continue
			}
		}
		if s.Flags&FlagProbe != 0 {
			due = 1 // each has its own due time
		} else if s.report.Offered+due < end {
			due -= due % train
		}
		stamp := Now()
		if s.Flags&FlagProbe != 0 {
			stamp = start + s.when(s.report.Offered)
		}
		if err := s.send(elapsed, due, stamp); err != nil {
			return err
		}
		if s.Flags&FlagProbe == 0 {
			// What becomes due within a tick leaves together.
			s.sleep(start + elapsed + s.Tick)
		}
	}
	if s.For > 0 && s.ctx.Err() == nil && s.Count == 0 {
		s.sleep(start + s.For) // the silence at the end belongs to the run
	}
	return nil
}

// flood sends as fast as the sink takes packets.
func (s *sender) flood(start time.Duration) error {
	for s.ctx.Err() == nil {
		elapsed := Now() - start
		if s.For > 0 && elapsed >= s.For {
			return nil
		}
		n := uint64(burst)
		if s.Count > 0 {
			n = min(n, s.Count-s.report.Offered)
			if n == 0 {
				return nil
			}
		}
		before := s.report.Sent
		if err := s.send(elapsed, n, Now()); err != nil {
			return err
		}
		// Nothing was offered that was not taken: there is no rate to miss.
		s.report.Offered = s.report.Sent
		s.report.Refused = 0
		if s.report.Sent == before {
			s.sleep(start + elapsed + 100*time.Microsecond)
		}
	}
	return nil
}

// send sends n packets, divided among the flows whose turn it is.
func (s *sender) send(elapsed time.Duration, n uint64, stamp time.Duration) error {
	m := s.mixes[0]
	if s.Alternate > 0 {
		m = s.mixes[elapsed/s.Alternate%2]
	}
	clear(s.turns)
	train := uint64(s.Train)
	m.pick((n+train-1)/train, s.turns)
	for f, turns := range s.turns {
		left := min(turns*train, n) // the last train of a run may be short
		n -= left
		for left > 0 {
			k := min(left, burst)
			taken, err := s.sink.Send(f, Header{
				Flow: s.FirstFlow + uint32(f), Seq: s.seq[f], Stamp: stamp,
				Size: uint32(s.Sizes[f%len(s.Sizes)]), Flags: s.Flags,
			}, int(k))
			if err != nil {
				return fmt.Errorf("send flow %d: %w", f, err)
			}
			s.seq[f] += uint64(taken)
			s.report.Offered += k
			s.report.Sent += uint64(taken)
			s.report.Refused += k - uint64(taken)
			left -= k
		}
	}
	return nil
}

// sleep returns at the time until, at the end of the run or soon after ctx ends.
func (s *sender) sleep(until time.Duration) {
	for s.ctx.Err() == nil {
		left := until - Now()
		if left <= 0 {
			return
		}
		sleep(min(left, 50*time.Millisecond))
	}
}

// pin binds the calling thread to a CPU; nil leaves it free.
func pin(cpu *int) error {
	if cpu == nil {
		return nil
	}
	var set unix.CPUSet
	set.Set(*cpu)
	if err := unix.SchedSetaffinity(0, &set); err != nil {
		return fmt.Errorf("set affinity to CPU %d: %w", *cpu, err)
	}
	return nil
}

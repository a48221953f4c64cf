package traffic

import (
	"errors"
	"fmt"
	"math"
	"time"
)

// Plan says what to send and when. The zero value of a field is its default.
type Plan struct {
	Rate  float64       // packets per second of all flows together; 0 is as fast as the sink takes them
	For   time.Duration // ends the run
	Count uint64        // ends the run after so many packets were due; 0 is no such bound

	Flows     int    // 1 when 0
	FirstFlow uint32 // number of the first flow in the headers
	Sizes     []int  // payload bytes: flow i sends Sizes[i mod len]; HeaderSize when empty

	// The first Elephants flows together send Share (0…1) of the packets, the
	// others the rest; evenly among each. No elephants: all alike.
	Elephants int
	Share     float64

	// On and Off alternate sending and silence; Rate holds while on.
	On, Off time.Duration
	// Alternate has the even-numbered and the odd-numbered flows take turns of
	// that length, at the full Rate.
	Alternate time.Duration

	// Train is how many packets of a flow leave back to back, as segmentation
	// offload makes them; it also saves the sender system calls. 1 when 0.
	Train int

	// Tick is the shortest sleep: packets due within it leave together. 500 µs when 0.
	Tick time.Duration
	// MaxLag is how far behind the sender may catch up; older packets are
	// skipped. 100 ms when 0.
	MaxLag time.Duration

	Flags uint32 // of each header; FlagProbe stamps packets with when they were due
	CPU   *int   // pins the sending thread
	// RealTime runs the sending thread before all ordinary ones (SCHED_FIFO),
	// where that is allowed: a sender that stands for another machine does not
	// wait for the receiver's CPU.
	RealTime bool
}

// maxFlows bounds the memory of a run.
const maxFlows = 1 << 16

// Check says what is wrong with the plan, as Send would.
func (p Plan) Check() error {
	_, err := p.withDefaults()
	return err
}

func (p Plan) withDefaults() (Plan, error) {
	if p.Flows == 0 {
		p.Flows = 1
	}
	if len(p.Sizes) == 0 {
		p.Sizes = []int{HeaderSize}
	}
	if p.Train == 0 {
		p.Train = 1
	}
	if p.Tick == 0 {
		p.Tick = 500 * time.Microsecond
	}
	if p.MaxLag == 0 {
		p.MaxLag = 100 * time.Millisecond
	}
	switch {
	case p.For <= 0 && p.Count == 0:
		return p, errors.New("plan traffic: neither a time nor a count bounds the run")
	case p.Rate < 0 || math.IsNaN(p.Rate) || p.Rate > 1e8:
		return p, fmt.Errorf("plan traffic: rate %v is not 0…1e8 packets per second", p.Rate)
	case p.Flows < 1 || p.Flows > maxFlows:
		return p, fmt.Errorf("plan traffic: %d flows, want 1…%d", p.Flows, maxFlows)
	case p.Train < 1 || p.Train > burst:
		return p, fmt.Errorf("plan traffic: trains of %d packets, want 1…%d", p.Train, burst)
	case p.Elephants < 0 || p.Elephants > p.Flows:
		return p, fmt.Errorf("plan traffic: %d elephants among %d flows", p.Elephants, p.Flows)
	case p.Share < 0 || p.Share > 1 || math.IsNaN(p.Share):
		return p, fmt.Errorf("plan traffic: share %v is not 0…1", p.Share)
	case (p.Elephants == 0) != (p.Share == 0):
		return p, errors.New("plan traffic: elephants and their share go together")
	case (p.On > 0) != (p.Off > 0) || p.On < 0 || p.Off < 0:
		return p, errors.New("plan traffic: on and off go together")
	case p.Alternate < 0 || p.Tick < 0 || p.MaxLag < 0 || p.For < 0:
		return p, errors.New("plan traffic: a negative time")
	case p.Alternate > 0 && p.Flows < 2:
		return p, errors.New("plan traffic: to take turns needs two flows")
	}
	for _, s := range p.Sizes {
		if s < HeaderSize || s > 65000 {
			return p, fmt.Errorf("plan traffic: payload of %d bytes, want %d…65000", s, HeaderSize)
		}
	}
	return p, nil
}

// active is how much of the first elapsed time was on.
func (p Plan) active(elapsed time.Duration) time.Duration {
	if p.On == 0 {
		return elapsed
	}
	cycle := p.On + p.Off
	return elapsed/cycle*p.On + min(elapsed%cycle, p.On)
}

// due is how many packets are due elapsed after the start.
func (p Plan) due(elapsed time.Duration) uint64 {
	if p.For > 0 {
		elapsed = min(elapsed, p.For)
	}
	n := uint64(p.Rate * p.active(elapsed).Seconds())
	if p.Count > 0 {
		n = min(n, p.Count)
	}
	return n
}

// when is the time after the start at which packet n (from 0) is due: the
// inverse of due.
func (p Plan) when(n uint64) time.Duration {
	active := time.Duration(math.Ceil(float64(n+1) / p.Rate * float64(time.Second)))
	if p.On == 0 {
		return active
	}
	// The last packet of an on phase is due at its end, not after the silence.
	cycles := (active - 1) / p.On
	return cycles*(p.On+p.Off) + active - cycles*p.On
}

// mix decides whose turn it is: each flow comes up in proportion to its weight
// and as evenly as possible.
type mix struct {
	weight []float64 // sums to 1
	credit []float64
	round  []int // the order of one whole round when all weigh the same
	next   int
}

// newMix makes a mix of flows; members are the flows that take part.
func (p Plan) newMix(takesPart func(flow int) bool) *mix {
	m := &mix{}
	var members, elephants int
	for f := range p.Flows {
		if takesPart(f) {
			members++
			if f < p.Elephants {
				elephants++
			}
		}
	}
	if elephants == 0 || elephants == members {
		for f := range p.Flows {
			if takesPart(f) {
				m.round = append(m.round, f)
			}
		}
		return m
	}
	m.weight = make([]float64, p.Flows)
	m.credit = make([]float64, p.Flows)
	for f := range p.Flows {
		switch {
		case !takesPart(f):
		case f < p.Elephants:
			m.weight[f] = p.Share / float64(elephants)
		default:
			m.weight[f] = (1 - p.Share) / float64(members-elephants)
		}
	}
	return m
}

// pick adds n turns to turns[flow].
func (m *mix) pick(n uint64, turns []uint64) {
	if m.round != nil {
		size := uint64(len(m.round))
		for _, f := range m.round {
			turns[f] += n / size
		}
		for range n % size {
			turns[m.round[m.next]]++
			m.next = (m.next + 1) % len(m.round)
		}
		return
	}
	// All get their share of n; whole packets leave, fractions stay as credit
	// and the flows with most credit get the packets left over.
	left := n
	for f, w := range m.weight {
		m.credit[f] += w * float64(n)
		if whole := math.Floor(m.credit[f]); whole > 0 {
			k := min(uint64(whole), left)
			turns[f] += k
			m.credit[f] -= float64(k)
			left -= k
		}
	}
	for ; left > 0; left-- {
		best := 0
		for f := range m.credit {
			if m.credit[f] > m.credit[best] {
				best = f
			}
		}
		turns[best]++
		m.credit[best]--
	}
}

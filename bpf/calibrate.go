package bpf

import (
	"errors"
	"fmt"
	"math"
	"runtime"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Cost is what the programs of level 1 take of a CPU for one event of a kind, in ns.
type Cost struct {
	Looked float64 // at: timed and counted
	Passed float64 // by: see Programs.SetRate
}

// Costs are per kind of event.
type Costs struct {
	Run  Cost // softirq_entry + softirq_exit
	Poll Cost // napi_poll
	IRQ  Cost // irq_handler_entry + irq_handler_exit
	// Measured says that they were measured on this CPU, else Why not: then they are those of a slow machine.
	Measured bool
	Why      string
}

// slow is what a machine that is slow at it takes (a guest of 2 CPUs, 6.18: 590 ns for a run of one poll), so that a
// host that does not let it be measured is rather spared than taxed.
var slow = Costs{Run: Cost{330, 100}, Poll: Cost{260, 50}, IRQ: Cost{360, 100}}

// What a run with one poll takes is measured as one; its parts are known from their programs, at 20 ns for the
// tracepoint, 27 ns for a clock, 35 ns for a look-up in a hash, 10 ns for the rest.
const (
	runLooked  = 114.0 / 204 // two tracepoints, two clocks, the context
	pollLooked = 90.0 / 204  // one, one, a look-up, two histograms
	irqLooked  = 130.0 / 204 // two, two, a look-up
	runPassed  = 2.0 / 3     // two tracepoints of three
	pollPassed = 1.0 / 3
)

// PacketCost is what the programs of level 2 take of a CPU, in ns.
type PacketCost struct {
	Event float64 // one of them running, for a packet that is not sampled
	// Measured and Why as of Costs.
	Measured bool
	Why      string
}

// slowEvent is what a program of level 2 takes on a machine that is slow at it: 20 ns for the tracepoint, twice what a
// guest of 2 CPUs, 6.18, took for the rest; fastEvent is an empty program's, where what interrupted left less of it.
const (
	slowEvent = 34
	fastEvent = 17
)

// The self-test: in each round so many batches of each kind, each some 0.1 ms.
const (
	sends   = 150
	batches = 6
	rounds  = 7
	// A datagram passes some seven programs of level 2, which share an error; and what is attached again waits for every
	// CPU, longer the more programs there are.
	packetRounds = 3
)

// AttachCalibrated attaches as Attach does, and measures what each event costs on this CPU: by datagrams of its own on
// the loopback device of a network namespace of its own, which is gone when it returns. It takes some 50 ms, and has attached and detached some times. Where that
// is not allowed the costs say why.
func (p *Programs) AttachCalibrated() (Costs, error) {
	costs, err := slow, error(nil)
	inLoop(func(l *loop) { costs, err = p.calibrate(l) }, func(why error) { costs.Why, err = why.Error(), p.Attach() })
	p.costs = costs
	return costs, err
}

// calibrating is held by who measures: programs that another attaches meanwhile would count as one's own.
var calibrating sync.Mutex

// inLoop runs measure on a thread and in a network namespace of its own, or tells why that is not allowed.
func inLoop(measure func(*loop), refused func(error)) {
	calibrating.Lock()
	defer calibrating.Unlock()
	done := make(chan struct{})
	go func() {
		defer close(done)
		// Never unlocked: the thread ends here, and with it its namespace.
		runtime.LockOSThread()
		l, err := newLoop()
		if err != nil {
			refused(err)
			return
		}
		defer l.close()
		measure(l)
	}()
	<-done
}

// Costs are those AttachCalibrated found; before it those of a slow machine.
func (p *Programs) Costs() Costs {
	if p.costs == (Costs{}) {
		costs := slow
		costs.Why = "it was not tried"
		return costs
	}
	return p.costs
}

func (p *Programs) calibrate(l *loop) (Costs, error) {
	at := func(rate uint32) way {
		return func() (float64, error) {
			if err := p.SetRate(rate); err != nil {
				return 0, err
			}
			return l.batch()
		}
	}
	const all = 1 << 24 // passes by
	took, err := compare(p, rounds, l.batch, at(all), at(1))
	if err != nil {
		costs := slow
		costs.Why = err.Error()
		return costs, errors.Join(p.SetRate(1), p.Attach())
	}
	if err := p.SetRate(1); err != nil {
		return Costs{}, err
	}
	// What looking takes above passing by is seen well, for these take turns all the time; passing by may be lost in
	// noise. It is three empty programs and some look-ups, looking is that and three clocks: a third of the rest at
	// least and as much at most. And no machine is faster than this.
	rest := max(took[1], 40)
	least := min(max(took[0], rest/3), rest)
	full := least + rest
	return Costs{
		Run:      Cost{full * runLooked, least * runPassed},
		Poll:     Cost{full * pollLooked, least * pollPassed},
		IRQ:      Cost{full * irqLooked, least * runPassed},
		Measured: true,
	}, nil
}

// AttachCalibrated attaches as Attach does, and measures what a program takes, as Programs.AttachCalibrated does: a
// datagram on the loopback device passes some of them, and how many is counted.
func (p *Packets) AttachCalibrated() (PacketCost, error) {
	cost, err := PacketCost{Event: slowEvent}, error(nil)
	inLoop(func(l *loop) { cost, err = p.calibrate(l) }, func(why error) { cost.Why, err = why.Error(), p.Attach() })
	return cost, err
}

func (p *Packets) calibrate(l *loop) (PacketCost, error) {
	failed := func(err error) (PacketCost, error) {
		return PacketCost{Event: slowEvent, Why: err.Error()}, p.Attach()
	}
	var cpus []PacketCPU
	ran := func() (n uint64, err error) {
		cpus, err = readCPUs(p.cpus, p.cpuKeys, cpus)
		for i := range cpus {
			n += cpus[i].Ran()
		}
		return n, err
	}
	var events []float64
	took, err := compare(p, packetRounds, l.batch, func() (float64, error) {
		before, err := ran()
		if err != nil {
			return 0, err
		}
		ns, err := l.batch()
		if err != nil {
			return 0, err
		}
		after, err := ran()
		events = append(events, float64(after-before)/sends)
		return ns, err
	})
	if err != nil {
		return failed(err)
	}
	slices.Sort(events)
	each := events[len(events)/10] // others' packets only ever add
	if each < 1 {
		return failed(errors.New("a datagram on the loopback device passed no program"))
	}
	return PacketCost{Event: max(took[0]/each, fastEvent), Measured: true}, nil
}

// way is one of several ways to send a batch, in ns a send.
type way func() (float64, error)

// compare returns how many ns a send takes more with the programs attached, which it leaves so: in the first way than
// bare, and in each way than in the one before. What interrupts a batch only ever adds: of a round the least counts. A
// machine is also slower or faster for milliseconds (another guest beside it, its clock), so that the ways take turns,
// nothing is attached before and after each round, and the median of the rounds stands when this happened within some.
func compare(p interface {
	Attach() error
	Detach() error
}, rounds int, bare way, ways ...way) ([]float64, error) {
	least := func(ways []way) ([]float64, error) {
		out := slices.Repeat([]float64{math.Inf(1)}, len(ways))
		for range batches {
			for i, send := range ways {
				ns, err := send()
				if err != nil {
					return nil, err
				}
				out[i] = min(out[i], ns)
			}
		}
		return out, nil
	}
	before, err := least([]way{bare})
	if err != nil {
		return nil, err
	}
	more := make([][]float64, len(ways))
	for range rounds {
		if err := p.Attach(); err != nil {
			return nil, err
		}
		with, err := least(ways)
		if err != nil {
			return nil, err
		}
		if err := p.Detach(); err != nil {
			return nil, err
		}
		after, err := least([]way{bare})
		if err != nil {
			return nil, err
		}
		than := (before[0] + after[0]) / 2
		for i, ns := range with {
			more[i] = append(more[i], ns-than)
			than = ns
		}
		before = after
	}
	medians := make([]float64, len(ways))
	for i := range more {
		slices.Sort(more[i])
		medians[i] = more[i][rounds/2]
	}
	return medians, p.Attach()
}

// loop is a socket that sends to itself: each send runs one NET_RX softirq with one poll within the call.
type loop struct{ fd int }

// newLoop moves the calling thread to a network namespace of its own.
func newLoop() (*loop, error) {
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		return nil, fmt.Errorf("make a network namespace to calibrate in: %w", err)
	}
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open a socket to calibrate with: %w", err)
	}
	l := &loop{fd}
	if err := l.connect(); err != nil {
		l.close()
		return nil, fmt.Errorf("connect a socket to calibrate with: %w", err)
	}
	return l, nil
}

func (l *loop) close() { unix.Close(l.fd) }

func (l *loop) connect() error {
	up, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	up.SetUint16(unix.IFF_UP | unix.IFF_RUNNING | unix.IFF_LOOPBACK)
	to := unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}
	err = errors.Join(
		unix.IoctlIfreq(l.fd, unix.SIOCSIFFLAGS, up),
		unix.SetsockoptInt(l.fd, unix.SOL_SOCKET, unix.SO_RCVBUF, 1), // nobody reads: after a few each is dropped at the socket
		unix.Bind(l.fd, &to),
	)
	if err != nil {
		return err
	}
	own, err := unix.Getsockname(l.fd)
	if err != nil {
		return err
	}
	return unix.Connect(l.fd, own)
}

// batch is the ns of one send.
func (l *loop) batch() (float64, error) {
	one := []byte{0}
	start := time.Now()
	for range sends {
		if _, err := unix.Write(l.fd, one); err != nil {
			return 0, fmt.Errorf("send to calibrate: %w", err)
		}
	}
	return float64(time.Since(start)) / sends, nil
}

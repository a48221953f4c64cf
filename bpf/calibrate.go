package bpf

import (
	"errors"
	"fmt"
	"runtime"
	"slices"
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

// Batches of the self-test: each some 0.1 ms, of each kind so many.
const (
	sends   = 150
	batches = 40
)

// AttachCalibrated attaches as Attach does, and measures what each event costs on this CPU: by datagrams of its own on
// the loopback device of a network namespace of its own, which is gone when it returns. It takes some 30 ms. Where that
// is not allowed the costs say why.
func (p *Programs) AttachCalibrated() (Costs, error) {
	costs, err := slow, error(nil)
	inLoop(func(l *loop) { costs, err = p.calibrate(l) }, func(why error) { costs.Why, err = why.Error(), p.Attach() })
	p.costs = costs
	return costs, err
}

// inLoop runs measure on a thread and in a network namespace of its own, or tells why that is not allowed.
func inLoop(measure func(*loop), refused func(error)) {
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
	var off, looked, passed []float64
	failed := func(err error) (Costs, error) {
		costs := slow
		costs.Why = err.Error()
		return costs, nil
	}
	for i := range batches {
		ns, err := l.batch()
		if err != nil {
			costs, _ := failed(err)
			return costs, p.Attach()
		}
		if i > 0 { // the first warms up
			off = append(off, ns)
		}
	}
	if err := p.Attach(); err != nil {
		return Costs{}, err
	}
	const all = 1 << 24 // passes by
	for i := range batches {
		for rate, into := range map[uint32]*[]float64{1: &looked, all: &passed} {
			if err := p.SetRate(rate); err != nil {
				return Costs{}, err
			}
			ns, err := l.batch()
			if err != nil {
				return failed(err)
			}
			if i > 0 {
				*into = append(*into, ns)
			}
		}
	}
	if err := p.SetRate(1); err != nil {
		return Costs{}, err
	}
	base := quiet(off)
	full, least := quiet(looked)-base, quiet(passed)-base
	// On a machine that was interrupted all the time the differences may be anything: at least what a fast one takes,
	// and passing by is at most half of looking, for it is half of the work.
	full = max(full, least, 60)
	least = min(max(least, full/8), full/2)
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
	failed := func(err error) PacketCost { return PacketCost{Event: slowEvent, Why: err.Error()} }
	var off, on, events []float64
	for i := range batches {
		ns, err := l.batch()
		if err != nil {
			return failed(err), p.Attach()
		}
		if i > 0 { // the first warms up
			off = append(off, ns)
		}
	}
	if err := p.Attach(); err != nil {
		return PacketCost{}, err
	}
	var c PacketCounters
	before := uint64(0)
	for i := range batches {
		ns, err := l.batch()
		if err != nil {
			return failed(err), nil
		}
		if err := p.Read(&c); err != nil {
			return PacketCost{}, err
		}
		ran := uint64(0)
		for cpu := range c.CPUs {
			ran += c.CPUs[cpu].Ran()
		}
		if i > 0 {
			on, events = append(on, ns), append(events, float64(ran-before)/sends)
		}
		before = ran
	}
	each := quiet(events) // others' packets only ever add
	if each < 1 {
		return failed(errors.New("a datagram on the loopback device passed no program")), nil
	}
	return PacketCost{Event: max((quiet(on)-quiet(off))/each, fastEvent), Measured: true}, nil
}

// quiet is the least of ten: what interrupted a batch only ever adds.
func quiet(ns []float64) float64 {
	slices.Sort(ns)
	return ns[len(ns)/10]
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

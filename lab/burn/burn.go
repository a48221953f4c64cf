package burn

import (
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/cilium/ebpf/rlimit"
)

// MaxIterations is what the verifier's limit of a million instructions allows
// (BPF_COMPLEXITY_LIMIT_INSNS; it walks the loop of 38 instructions in full).
const MaxIterations = 26000

// Cost is a number of iterations and what they take on this machine.
type Cost struct {
	Iterations uint32
	PerPacket  time.Duration // of the whole program, measured without contention
}

// Calibrate finds the iterations that take target per packet here. It takes
// the fastest of several runs, so that preemption does not count; a machine
// that changes its clock speed changes the result.
func Calibrate(target time.Duration) (Cost, error) {
	// Two lengths give the slope without the fixed part of a run.
	const short, long = 200, 2200
	s, err := measure(short)
	if err != nil {
		return Cost{}, fmt.Errorf("calibrate burn: %w", err)
	}
	l, err := measure(long)
	if err != nil {
		return Cost{}, fmt.Errorf("calibrate burn: %w", err)
	}
	perIteration := float64(l-s) / (long - short)
	if perIteration <= 0 {
		return Cost{}, fmt.Errorf("calibrate burn: %d iterations took %v, %d took %v", short, s, long, l)
	}
	fixed := math.Max(float64(s)-short*perIteration, 0)
	n := math.Round(math.Max(float64(target)-fixed, 0) / perIteration)
	if n > MaxIterations {
		return Cost{}, fmt.Errorf("calibrate burn: %v per packet needs %.0f iterations, the verifier allows %d", target, n, MaxIterations)
	}
	return Cost{Iterations: uint32(n), PerPacket: time.Duration(fixed + n*perIteration)}, nil
}

// measure is the time of one run of n iterations, the fastest of a few batches.
func measure(n uint32) (time.Duration, error) {
	objs, err := load(n)
	if err != nil {
		return 0, err
	}
	defer objs.Close()
	frame := make([]byte, 64)
	best := time.Duration(math.MaxInt64)
	for range 15 {
		const repeat = 40
		_, d, err := objs.Burn.Benchmark(frame, repeat, nil)
		if err != nil {
			return 0, err
		}
		best = min(best, d)
	}
	return best, nil
}

func load(iterations uint32) (*burnObjects, error) {
	if iterations > MaxIterations {
		return nil, fmt.Errorf("load burn: %d iterations, the verifier allows %d", iterations, MaxIterations)
	}
	// Before 5.11 maps and programs are charged to RLIMIT_MEMLOCK.
	if err := rlimit.RemoveMemlock(); err != nil {
		return nil, fmt.Errorf("load burn: %w", err)
	}
	spec, err := loadBurn()
	if err != nil {
		return nil, fmt.Errorf("load burn: %w", err)
	}
	if err := spec.Variables["iterations"].Set(iterations); err != nil {
		return nil, fmt.Errorf("load burn: %w", err)
	}
	var objs burnObjects
	if err := spec.LoadAndAssign(&objs, nil); err != nil {
		return nil, fmt.Errorf("load burn: %w", err)
	}
	return &objs, nil
}

// Burn is the program at a device's ingress.
type Burn struct {
	Cost Cost
	// Hook is how it was attached: "tcx" (6.6 and later) or "cls_bpf".
	Hook string

	objs   *burnObjects
	detach func() error
}

// Attach has every packet that ifindex of the calling thread's network
// namespace receives pay cost until Close. A tcx program ends with its process;
// a cls_bpf filter stays until Close or the end of the device.
func Attach(ifindex int, cost Cost) (*Burn, error) {
	return attach(ifindex, cost, true)
}

func attach(ifindex int, cost Cost, tcx bool) (*Burn, error) {
	objs, err := load(cost.Iterations)
	if err != nil {
		return nil, err
	}
	b := &Burn{Cost: cost, objs: objs}
	if tcx {
		l, err := link.AttachTCX(link.TCXOptions{Interface: ifindex, Program: objs.Burn, Attach: ebpf.AttachTCXIngress})
		if err == nil {
			b.Hook, b.detach = "tcx", l.Close
			return b, nil
		}
		if !errors.Is(err, ebpf.ErrNotSupported) {
			return nil, errors.Join(fmt.Errorf("attach burn to ifindex %d: %w", ifindex, err), objs.Close())
		}
	}
	f, err := addFilter(ifindex, objs.Burn.FD())
	if err != nil {
		return nil, errors.Join(fmt.Errorf("attach burn to ifindex %d: %w", ifindex, err), objs.Close())
	}
	b.Hook, b.detach = "cls_bpf", f.Close
	return b, nil
}

// Packets is how many packets each CPU has burnt for: element i is CPU i.
func (b *Burn) Packets() ([]uint64, error) {
	var counts []burnCount
	if err := b.objs.Counts.Lookup(uint32(0), &counts); err != nil {
		return nil, fmt.Errorf("read burn counts: %w", err)
	}
	packets := make([]uint64, len(counts))
	for i, c := range counts {
		packets[i] = c.Packets
	}
	return packets, nil
}

// Close detaches the program.
func (b *Burn) Close() error {
	return errors.Join(b.detach(), b.objs.Close())
}

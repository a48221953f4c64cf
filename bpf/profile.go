package bpf

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
	"unsafe"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
	"github.com/cilium/ebpf/link"
	"github.com/cilium/ebpf/rlimit"
	"golang.org/x/sys/unix"
)

// Ticks per second of a profile: DefaultHz is no divisor of the kernel's own ticks, so that
// it does not march in step with them.
const (
	DefaultHz = 99
	MaxHz     = 999
)

// Over what a receive poll had the CPU when it was sampled: ProfileSample.Context.
const (
	ProfileTask      = profileProfileContextPROFILE_TASK
	ProfileIdle      = profileProfileContextPROFILE_IDLE
	ProfileKsoftirqd = profileProfileContextPROFILE_KSOFTIRQD
	ProfileThread    = profileProfileContextPROFILE_THREAD
)

// ProfileContext is one of these.
type ProfileContext = profileProfileContext

// ProfileOptions of LoadProfiler; the zero value is what a host wants.
type ProfileOptions struct {
	Hz     int // ticks per second and CPU; 0 means DefaultHz
	Stacks int // room for different stacks; 0 means 16384, of 1 KiB each. It is a table without chains: fill a few % of it
	// BTF is the source of the kernel's types; nil means the running kernel's.
	BTF func() (*btf.Spec, error)
}

// ProfileSample is a stack and how often a tick met it.
type ProfileSample struct {
	Count   uint64
	CPU     int
	Context ProfileContext
	// Tail says that the tick came after the last poll of a NET_RX run: all below is zero.
	Tail    bool
	NAPI    uint64 // address of the napi_struct
	NAPIID  uint32 // 0 for the backlog and tun
	Netns   uint32 // inode of the device's network namespace, 0 for the backlog
	IfIndex int    // 0 for the backlog
	Device  string // in its own namespace; "" for the backlog
	// Stack is kernel addresses, innermost first; all but the first are return addresses.
	Stack []uint64
}

// ProfileCounts is all that was sampled since Start.
type ProfileCounts struct {
	Samples []ProfileSample
	Taken   uint64 // ticks that met the CPU receiving
	Lost    uint64 // of these: no room for the stack or its key
	CPUs    int    // that were sampled
}

// Profiler samples kernel stacks while CPUs receive. Its methods are not for concurrent use.
type Profiler struct {
	coll   *ebpf.Collection
	events []int // perf event descriptors
	cpus   int   // sampled
	links  []link.Link
	period time.Duration
}

// profileHooks attach before the ticks begin: a tick counts only between its CPU's marks.
var profileHooks = []struct{ tracepoint, program string }{
	{rxProgSoftirqEntry, profileProgProfileSoftirqEntry},
	{rxProgSoftirqExit, profileProgProfileSoftirqExit},
	{rxProgNapiPoll, profileProgProfileNapiPoll},
}

// LoadProfiler loads the programs; nothing runs before Start. Errors as Load's.
func LoadProfiler(opts ProfileOptions) (*Profiler, error) {
	const what = "load profiler"
	if opts.Hz == 0 {
		opts.Hz = DefaultHz
	}
	if opts.Hz < 1 || opts.Hz > MaxHz {
		return nil, fmt.Errorf("%s: %d ticks per second: want 1 … %d", what, opts.Hz, MaxHz)
	}
	kernel, err := kernelTypes(opts.BTF)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", what, err)
	}
	for _, h := range profileHooks {
		if err := (hook{name: h.tracepoint}).find(kernel); err != nil {
			return nil, fmt.Errorf("%s: %w", what, err)
		}
	}
	missing, err := missingCaps()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", what, err)
	}
	if len(missing) > 0 {
		return nil, noCaps(what, missing)
	}
	spec, err := loadProfile()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", what, err)
	}
	if opts.Stacks > 0 {
		spec.Maps[profileMapStacks].MaxEntries = uint32(opts.Stacks)
	}
	p := &Profiler{period: time.Second / time.Duration(opts.Hz)}
	memlock := rlimit.RemoveMemlock() // see Programs.load
	p.coll, err = ebpf.NewCollectionWithOptions(spec, ebpf.CollectionOptions{Programs: ebpf.ProgramOptions{KernelTypes: kernel}})
	if err != nil {
		return nil, errors.Join(explain(what, err), memlock)
	}
	return p, nil
}

// Period is the time between two ticks of a CPU.
func (p *Profiler) Period() time.Duration { return p.period }

// Start begins to sample on every online CPU, and goes on after Stop. On an error nothing is left attached.
func (p *Profiler) Start() error {
	if err := p.forgetRuns(); err != nil {
		return err
	}
	for _, h := range profileHooks {
		l, err := link.AttachTracing(link.TracingOptions{Program: p.coll.Programs[h.program], AttachType: ebpf.AttachTraceRawTp})
		if err != nil {
			return errors.Join(explain("attach to tracepoint "+h.tracepoint, err), p.Stop())
		}
		p.links = append(p.links, l)
	}
	cpus, err := ebpf.PossibleCPU()
	if err != nil {
		return errors.Join(fmt.Errorf("count CPUs: %w", err), p.Stop())
	}
	for cpu := range cpus {
		fd, err := openTicks(cpu, p.period)
		if errors.Is(err, unix.ENODEV) {
			continue // offline
		}
		if err != nil {
			return errors.Join(explainTicks(err), p.Stop())
		}
		p.events = append(p.events, fd)
		p.cpus = len(p.events)
		if err := unix.IoctlSetInt(fd, unix.PERF_EVENT_IOC_SET_BPF, p.coll.Programs[profileProgProfileTick].FD()); err != nil {
			return errors.Join(explain("attach to the clock of CPU "+fmt.Sprint(cpu), err), p.Stop())
		}
		if err := unix.IoctlSetInt(fd, unix.PERF_EVENT_IOC_ENABLE, 0); err != nil {
			return errors.Join(fmt.Errorf("start the clock of CPU %d: %w", cpu, err), p.Stop())
		}
	}
	return nil
}

// forgetRuns clears the marks of runs that Stop cut short: their CPUs would seem to receive still.
func (p *Profiler) forgetRuns() error {
	var cpus []profileProfileCpu
	if err := p.coll.Maps[profileMapState].Lookup(uint32(0), &cpus); err != nil {
		return fmt.Errorf("begin profile: %w", err)
	}
	for i := range cpus {
		cpus[i].In, cpus[i].Pending = 0, [4]uint64{}
	}
	if err := p.coll.Maps[profileMapState].Put(uint32(0), cpus); err != nil {
		return fmt.Errorf("begin profile: %w", err)
	}
	return nil
}

// openTicks opens the software clock of a CPU; it stands still until it is enabled.
func openTicks(cpu int, period time.Duration) (int, error) {
	attr := unix.PerfEventAttr{
		Type:   unix.PERF_TYPE_SOFTWARE,
		Size:   uint32(unsafe.Sizeof(unix.PerfEventAttr{})),
		Config: unix.PERF_COUNT_SW_CPU_CLOCK,
		Sample: uint64(period), // ns of this clock
		Bits:   unix.PerfBitDisabled | unix.PerfBitExcludeUser,
	}
	return unix.PerfEventOpen(&attr, -1, cpu, -1, unix.PERF_FLAG_FD_CLOEXEC)
}

// refusedTicks says what refuses perf_event_open(2) to a holder of CAP_PERFMON, by the text of kernel.perf_event_paranoid. Linux
// knows values up to 2; from 3 (Debian) or 4 (Ubuntu) on those kernels ask for CAP_SYS_ADMIN (their patches of
// kernel/events/core.c: perf_paranoid_any).
func refusedTicks(paranoid string) string {
	if n, err := strconv.Atoi(strings.TrimSpace(paranoid)); err == nil && n > 2 {
		return fmt.Sprintf("kernel.perf_event_paranoid is %d, at which kernels of Debian and Ubuntu ask for CAP_SYS_ADMIN: sysctl -w kernel.perf_event_paranoid=2", n)
	}
	return "kernel.perf_event_paranoid, seccomp or a security module stands in the way: run on the host, outside a container"
}

// explainTicks says who refuses perf_event_open(2).
func explainTicks(err error) error {
	const what = "open the clock of a CPU (perf_event_open)"
	switch {
	case errors.Is(err, unix.EACCES), errors.Is(err, unix.EPERM):
		missing, capErr := missingCaps()
		if capErr == nil && len(missing) > 0 {
			return noCaps(what, missing)
		}
		setting, _ := os.ReadFile("/proc/sys/kernel/perf_event_paranoid") // hidden: the other words fit
		return fmt.Errorf("%s: %w: %s", what, ErrNoPrivilege, refusedTicks(string(setting)))
	case errors.Is(err, unix.ENOSYS):
		return fmt.Errorf("%s: the kernel was built without CONFIG_PERF_EVENTS: %w", what, err)
	}
	return fmt.Errorf("%s: %w", what, err)
}

// Stop ends sampling; what was counted can still be read.
func (p *Profiler) Stop() error {
	var errs []error
	for _, fd := range p.events {
		errs = append(errs, unix.Close(fd))
	}
	p.events = nil
	for _, l := range p.links {
		errs = append(errs, l.Close())
	}
	p.links = nil
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("stop profiler: %w", err)
	}
	return nil
}

// Close stops and unloads everything. A second Close does nothing.
func (p *Profiler) Close() error {
	err := p.Stop()
	if p.coll != nil {
		p.coll.Close()
	}
	p.coll = nil
	return err
}

// Read returns what was counted since Start. Samples of a poll that has not ended are not in it.
func (p *Profiler) Read() (*ProfileCounts, error) {
	out := &ProfileCounts{CPUs: p.cpus}
	var cpus []profileProfileCpu
	if err := p.coll.Maps[profileMapState].Lookup(uint32(0), &cpus); err != nil {
		return nil, fmt.Errorf("read profile: %w", err)
	}
	for _, c := range cpus {
		out.Taken += c.Samples
		out.Lost += c.LostStacks + c.LostPending + c.LostKeys
	}
	keys, counts, err := readHash[profileProfileKey, uint64](p.coll.Maps[profileMapCounts], nil, nil)
	if err != nil {
		return nil, fmt.Errorf("read profile: %w", err)
	}
	stacks := map[uint32][]uint64{}
	for i, k := range keys {
		stack, ok := stacks[k.Stack]
		if !ok {
			var frames [127]uint64
			if err := p.coll.Maps[profileMapStacks].Lookup(k.Stack, &frames); err != nil {
				return nil, fmt.Errorf("read stack %d of the profile: %w", k.Stack, err)
			}
			n := 0
			for n < len(frames) && frames[n] != 0 {
				n++
			}
			stack = append([]uint64(nil), frames[:n]...)
			stacks[k.Stack] = stack
		}
		name := unsafe.Slice((*byte)(unsafe.Pointer(&k.Name[0])), len(k.Name))
		if end := bytes.IndexByte(name, 0); end >= 0 {
			name = name[:end]
		}
		out.Samples = append(out.Samples, ProfileSample{
			Count: counts[i], CPU: int(k.Cpu), Context: k.Context, Tail: k.Napi == 0,
			NAPI: k.Napi, NAPIID: k.NapiId, Netns: k.Netns, IfIndex: int(k.Ifindex), Device: string(name), Stack: stack,
		})
	}
	return out, nil
}

// probeProfiler loads, starts and stops a profiler.
func probeProfiler(opts Options) Hook {
	h := Hook{Name: "perf_event cpu-clock", Lost: "rxsteer profile: which functions receiving spends its time in"}
	p, err := LoadProfiler(ProfileOptions{Stacks: 1, BTF: opts.BTF})
	if err == nil {
		err = errors.Join(p.Start(), p.Close())
	}
	if h.Live = err == nil; !h.Live {
		h.Why = err.Error()
	}
	return h
}

package collector

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/pprof/profile"

	"github.com/rxsteer/rxsteer/bpf"
	"github.com/rxsteer/rxsteer/internal/host"
	"github.com/rxsteer/rxsteer/internal/host/procfs"
)

// Labels of a profile's samples. Each has one value; a label that is not known is left out.
const (
	LabelCPU     = "cpu"     // number
	LabelDevice  = "device"  // name in its own namespace, Backlog; none in the tail of a run
	LabelQueue   = "queue"   // rx queue
	LabelNAPI    = "napi"    // id; "#1", "#2" … among those of a device that have none
	LabelNetns   = "netns"   // inode, of a device in another namespace
	LabelContext = "context" // "task", "idle", "ksoftirqd", "thread"
	LabelPart    = "part"    // "poll", "tail": after the last poll of a run (GRO flush, RPS, frees)
)

// ProfileConfig of a Profile.
type ProfileConfig struct {
	FS host.FS
	Hz int // ticks per second and CPU; 0 means bpf.DefaultHz
	// Overhead is the share of each CPU's time it may take: where softirqs are so many that looking at them takes more,
	// it samples in windows of a second or more. 0 sets no limit.
	Overhead float64
	// RXQueue tells the rx queue of a NAPI, -1 not known; nil knows none.
	RXQueue func(netns uint64, ifindex int, napiID uint32) int
}

// Profile samples where receiving spends its time: kernel stacks at cfg.Hz for d, taken
// only while a CPU is in NET_RX or polls in a NAPI thread. Values are ticks and ns of CPU time; labels
// say where. Stacks are outermost at net_rx_action or the thread's function: what it interrupted
// is its context, not its caller. Comments tell what was lost. Nothing is left attached.
//
// If ctx ends first it returns what was sampled until then together with ctx's error. Other errors are
// those of package bpf.
func Profile(ctx context.Context, cfg ProfileConfig, d time.Duration) (_ *profile.Profile, err error) {
	p, err := bpf.LoadProfiler(bpf.ProfileOptions{Hz: cfg.Hz})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, p.Close()) }()
	began := time.Now()
	budget := profileBudget{share: cfg.Overhead, period: p.Period()}
	took, all, err := budget.run(ctx, p, cfg.FS, d)
	if err != nil {
		return nil, err
	}
	counts, err := p.Read()
	if err != nil {
		return nil, err
	}
	// While the BPF programs that it may have met are still loaded.
	symbols, why := readSymbols(cfg.FS, addresses(counts.Samples))
	prof := buildProfile(counts, symbols, profileFacts{
		began: began, took: took, period: p.Period(), own: ownNetns(cfg.FS), rxQueue: cfg.RXQueue, noSymbols: why, kernel: kernelRelease(cfg.FS),
	})
	if took < all {
		prof.Comments = append(prof.Comments, fmt.Sprintf("rxsteer: sampled in %.1f of %.1f s: there are so many softirqs that more would take above %.3g %% of a CPU", took.Seconds(), all.Seconds(), 100*cfg.Overhead))
	}
	return prof, ctx.Err()
}

// addresses are those whose functions are named: where each frame of a stack is.
func addresses(samples []bpf.ProfileSample) (all []uint64) {
	for _, s := range samples {
		for i, a := range s.Stack {
			all = append(all, within(i, a))
		}
	}
	return all
}

// within is an address in the function of a stack's frame i, 0 the innermost: a return address may be the first byte of
// the next function.
func within(i int, address uint64) uint64 {
	if i > 0 {
		return address - 1
	}
	return address
}

// readSymbols returns what it found, and why that is nothing.
func readSymbols(fsys host.FS, addresses []uint64) (*procfs.Symbols, string) {
	const file = "/proc/kallsyms"
	r, err := host.Open(fsys, file)
	if err != nil {
		return &procfs.Symbols{}, err.Error()
	}
	defer r.Close()
	s, err := procfs.ReadKallsyms(file, r, addresses)
	if err != nil {
		return &procfs.Symbols{}, err.Error()
	}
	if s.Hidden {
		return s, file + " shows no addresses: sysctl kernel.kptr_restrict=1 lets root and CAP_SYSLOG see them"
	}
	return s, ""
}

func kernelRelease(fsys host.FS) string {
	text, err := fsys.ReadFile("/proc/sys/kernel/osrelease")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(text))
}

// profileFacts is what a profile's counts do not tell themselves.
type profileFacts struct {
	began     time.Time
	took      time.Duration
	period    time.Duration
	own       uint64 // network namespace
	kernel    string
	noSymbols string // why, "" there are
	rxQueue   func(netns uint64, ifindex int, napiID uint32) int
}

var profileContexts = map[bpf.ProfileContext]string{
	bpf.ProfileTask: "task", bpf.ProfileIdle: "idle", bpf.ProfileKsoftirqd: "ksoftirqd", bpf.ProfileThread: "thread",
}

// outermost are the functions at which a stack of receiving begins.
// The others are of ticks at the very beginning and end of a run; __do_softirq is the name until 6.10.
var outermost = []string{"net_rx_action", "napi_threaded_poll", "napi_threaded_poll_loop", "handle_softirqs", "__do_softirq"}

func buildProfile(counts *bpf.ProfileCounts, symbols *procfs.Symbols, f profileFacts) *profile.Profile {
	cpu := &profile.ValueType{Type: "cpu", Unit: "nanoseconds"}
	p := &profile.Profile{
		SampleType: []*profile.ValueType{{Type: "samples", Unit: "count"}, cpu}, DefaultSampleType: "cpu",
		PeriodType: cpu, Period: f.period.Nanoseconds(), TimeNanos: f.began.UnixNano(), DurationNanos: f.took.Nanoseconds(),
		// HasFunctions keeps readers from looking for a file to take names from.
		Mapping: []*profile.Mapping{{ID: 1, Start: 1 << 63, Limit: ^uint64(0), File: "[kernel.kallsyms]", KernelRelocationSymbol: "_text", HasFunctions: true}},
		Comments: []string{
			fmt.Sprintf("rxsteer: receive softirq of kernel %s, %d ticks on %d CPUs, one in %v each", f.kernel, counts.Taken, counts.CPUs, f.period),
		},
	}
	if counts.Lost > 0 {
		p.Comments = append(p.Comments, fmt.Sprintf("rxsteer: %d of %d ticks were lost: no room", counts.Lost, counts.Taken))
	}
	if f.noSymbols != "" {
		p.Comments = append(p.Comments, "rxsteer: functions have no names: "+f.noSymbols)
	}
	b := profileBuilder{p: p, symbols: symbols, locations: map[uint64]*profile.Location{}, functions: map[string]*profile.Function{}, samples: map[string]*profile.Sample{}}
	napis := nameNAPIs(counts.Samples)
	for i := range counts.Samples { // some are known only once all of a device have been seen
		f.queue(&counts.Samples[i])
	}
	for i := range counts.Samples {
		s := &counts.Samples[i]
		b.add(b.stack(s.Stack), f.labels(s, napis), int64(s.Count))
	}
	slices.SortStableFunc(p.Sample, func(a, b *profile.Sample) int { return cmp.Compare(b.Value[0], a.Value[0]) })
	return p
}

// nameNAPIs numbers those that have no id, by device, in the order of their addresses.
func nameNAPIs(samples []bpf.ProfileSample) map[uint64]string {
	type device struct {
		netns   uint32
		ifindex int
	}
	of := map[device][]uint64{}
	for _, s := range samples {
		if d := (device{s.Netns, s.IfIndex}); s.NAPI != 0 && s.NAPIID == 0 && s.IfIndex != 0 && !slices.Contains(of[d], s.NAPI) {
			of[d] = append(of[d], s.NAPI)
		}
	}
	names := map[uint64]string{}
	for _, addresses := range of {
		slices.Sort(addresses)
		for i, a := range addresses {
			names[a] = "#" + strconv.Itoa(i+1)
		}
	}
	return names
}

func (f *profileFacts) labels(s *bpf.ProfileSample, napis map[uint64]string) map[string][]string {
	l := map[string][]string{LabelCPU: {strconv.Itoa(s.CPU)}, LabelPart: {"poll"}}
	if c, ok := profileContexts[s.Context]; ok {
		l[LabelContext] = []string{c}
	}
	if s.Tail {
		l[LabelPart] = []string{"tail"}
		return l
	}
	if s.IfIndex == 0 {
		l[LabelDevice] = []string{Backlog}
		return l
	}
	l[LabelDevice] = []string{s.Device}
	if uint64(s.Netns) != f.own {
		l[LabelNetns] = []string{strconv.FormatUint(uint64(s.Netns), 10)}
	}
	if s.NAPIID != 0 {
		l[LabelNAPI] = []string{strconv.FormatUint(uint64(s.NAPIID), 10)}
	} else if n, ok := napis[s.NAPI]; ok {
		l[LabelNAPI] = []string{n}
	}
	if q := f.queue(s); q >= 0 {
		l[LabelQueue] = []string{strconv.Itoa(q)}
	}
	return l
}

// queue is a sample's rx queue, -1 not known.
func (f *profileFacts) queue(s *bpf.ProfileSample) int {
	if f.rxQueue == nil || s.Tail || s.IfIndex == 0 {
		return -1
	}
	return f.rxQueue(uint64(s.Netns), s.IfIndex, s.NAPIID)
}

// profileBuilder shares locations, functions and equal samples.
type profileBuilder struct {
	p         *profile.Profile
	symbols   *procfs.Symbols
	locations map[uint64]*profile.Location
	functions map[string]*profile.Function
	samples   map[string]*profile.Sample
}

// stack turns addresses, innermost first, into locations up to the outermost function of receiving.
func (b *profileBuilder) stack(addresses []uint64) []*profile.Location {
	var out []*profile.Location
	for i, a := range addresses {
		l := b.location(within(i, a))
		out = append(out, l)
		if len(l.Line) > 0 && slices.Contains(outermost, l.Line[0].Function.Name) {
			break
		}
	}
	return out
}

// location is one per function, for offsets within it say nothing to a reader, or per address that is in none.
// Where there is a name the address is left out: a file for a ticket need not tell where the kernel lies.
func (b *profileBuilder) location(address uint64) *profile.Location {
	name, module, start, ok := b.symbols.Find(address)
	if ok {
		address = start
	}
	if l := b.locations[address]; l != nil {
		return l
	}
	l := &profile.Location{ID: uint64(len(b.p.Location) + 1), Mapping: b.p.Mapping[0], Address: address}
	if ok {
		l.Address = 0
		l.Line = []profile.Line{{Function: b.function(name, module)}}
	}
	b.p.Location = append(b.p.Location, l)
	b.locations[address] = l
	return l
}

func (b *profileBuilder) function(symbol, module string) *profile.Function {
	key := module + " " + symbol
	if f := b.functions[key]; f != nil {
		return f
	}
	f := &profile.Function{ID: uint64(len(b.p.Function) + 1), Name: functionName(symbol), SystemName: symbol, Filename: "vmlinux"}
	if module != "" {
		f.Filename = "[" + module + "]"
	}
	b.p.Function = append(b.p.Function, f)
	b.functions[key] = f
	return f
}

// functionName takes off what the compiler appends (".isra.0") and names a BPF program as its author did:
// bpf_prog_<16 digits>_<name>.
func functionName(symbol string) string {
	if rest, ok := strings.CutPrefix(symbol, "bpf_prog_"); ok {
		if tag, name, ok := strings.Cut(rest, "_"); ok && len(tag) == 16 && name != "" {
			return "bpf:" + name
		}
		return "bpf:" + rest
	}
	if i := strings.IndexByte(symbol, '.'); i > 0 {
		return symbol[:i]
	}
	return symbol
}

func (b *profileBuilder) add(stack []*profile.Location, labels map[string][]string, count int64) {
	var key strings.Builder
	for _, l := range stack {
		key.WriteString(strconv.FormatUint(l.ID, 36) + ",")
	}
	for _, name := range []string{LabelCPU, LabelDevice, LabelQueue, LabelNAPI, LabelNetns, LabelContext, LabelPart} {
		for _, v := range labels[name] {
			key.WriteString("\x00" + v)
		}
		key.WriteByte('\x01')
	}
	s := b.samples[key.String()]
	if s == nil {
		s = &profile.Sample{Location: stack, Label: labels, Value: []int64{0, 0}}
		b.samples[key.String()] = s
		b.p.Sample = append(b.p.Sample, s)
	}
	s.Value[0] += count
	s.Value[1] += count * b.p.Period
}

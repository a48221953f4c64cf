package collector

import (
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/rxsteer/rxsteer/bpf"
	"github.com/rxsteer/rxsteer/internal/host"
	"github.com/rxsteer/rxsteer/internal/host/procfs"
)

// Reading is one look at all cumulative counters. A source that could not be
// read is nil and listed in Unmeasured. Two of them make a Sample: see Between.
type Reading struct {
	At         time.Time // when the reading began
	Softirqs   *procfs.Softirqs
	Interrupts *procfs.Interrupts
	Softnet    []procfs.Softnet // CPU is always told
	Stat       *procfs.Stat
	Devices    []Device // cumulative, by IfIndex
	Drivers    []Driver // cumulative, by IfIndex
	tcp        *tcpReading
	Protocols  map[string]uint64 // as Sample.Protocols, cumulative
	Netns      uint64            // inode of the namespace that Devices are in, 0 not known
	BPF        *bpf.Counters
	napis      []int32 // the order of BPF's NAPIs in a Sample, once one was made
	packets    *bpf.PacketCounters
	thin       *thinness // of BPF since the reading before; nil: all was looked at
	Unmeasured []Unmeasured
}

// ReadHost reads the kernel's own counters: all a Sample of level 0 needs.
func ReadHost(fsys host.FS, now time.Time) *Reading {
	r := &Reading{At: now}
	r.readStat(fsys)
	r.readSoftirqs(fsys)
	r.readSoftnet(fsys)
	r.readInterrupts(fsys)
	r.readDevices(fsys)
	r.readProtocols(fsys)
	return r
}

// read reads one source: file, parsed. What it could not read is noted as what.
func read[T any](r *Reading, fsys host.FS, what, file string, parse func(file string, text []byte) (T, error)) (v T) {
	text, err := fsys.ReadFile(file)
	if err != nil {
		r.unmeasured(what, err)
		return v
	}
	v, err = parse(file, text)
	if err != nil {
		r.unmeasured(what, err)
		var none T
		return none
	}
	return v
}

func (r *Reading) unmeasured(what string, why error) {
	r.Unmeasured = append(r.Unmeasured, Unmeasured{What: what, Why: why.Error()})
}

// Between takes the difference of two readings of the same host. rxQueue gives
// the rx queue of a NAPI, -1 not known; nil knows none.
//
// A counter that went back is a restart or a wrap of 32 bits, told apart by what
// can happen in the interval; a restarted one gives 0 and is noted, never a
// guess. CPUs that came or went give what is known of both ends.
func Between(prev, cur *Reading, rxQueue func(netns uint64, ifindex int, napiID uint32) int) *Sample {
	d := &difference{
		prev: prev, cur: cur, rxQueue: rxQueue,
		interval: max(cur.At.Sub(prev.At), 0),
		cpus:     map[int]*CPU{},
		noted:    map[Unmeasured]bool{},
	}
	d.s = &Sample{
		Version: SampleVersion, Start: wall(prev.At), End: wall(cur.At), Interval: d.interval,
		CPUs: []CPU{}, NAPIs: []NAPI{}, IRQs: []IRQ{}, Devices: []Device{},
	}
	for _, r := range []*Reading{prev, cur} {
		for _, u := range r.Unmeasured {
			d.note(u.What, u.Why)
		}
	}
	d.stat()
	d.softirqs()
	d.softnet()
	d.irqs()
	d.devices()
	d.drivers()
	d.tcp()
	d.protocols()
	switch {
	case prev.BPF == nil || cur.BPF == nil:
	case cur.thin != nil && cur.thin.none:
		d.unwatched()
	default:
		d.s.Level = 1
		d.napis()
		d.lost()
		d.scale()
		d.learned()
		d.pacing()
		if prev.packets != nil && cur.packets != nil {
			d.s.Level = 2
			d.stages()
			d.xdp()
			d.drops()
		}
	}
	for _, c := range d.cpus {
		d.s.CPUs = append(d.s.CPUs, *c)
	}
	slices.SortFunc(d.s.CPUs, compareCPUs)
	return d.s
}

// wall drops the monotonic clock, which JSON cannot carry.
func wall(t time.Time) time.Time { return t.Round(0).UTC() }

// difference is the work of one Between; each source's file has its part.
type difference struct {
	prev, cur *Reading
	rxQueue   func(netns uint64, ifindex int, napiID uint32) int
	interval  time.Duration
	s         *Sample
	cpus      map[int]*CPU
	noted     map[Unmeasured]bool
}

func (d *difference) cpu(id int) *CPU {
	c := d.cpus[id]
	if c == nil {
		c = &CPU{CPU: id}
		d.cpus[id] = c
	}
	return c
}

func (d *difference) note(what, why string) {
	u := Unmeasured{What: what, Why: why}
	if !d.noted[u] {
		d.noted[u] = true
		d.s.Unmeasured = append(d.s.Unmeasured, u)
	}
}

// restarted is the note of a counter that went back.
const restarted = "its counter went back during the interval: 0 is shown"

// subject is whose counter it is: a device by name, or a CPU or an IRQ by number.
type subject struct {
	name   string
	number int
}

func cpuSubject(id int) subject         { return subject{"CPU", id} }
func irqSubject(irq int) subject        { return subject{"IRQ", irq} }
func deviceSubject(name string) subject { return subject{name, -1} }

func (s subject) String() string {
	if s.number < 0 {
		return s.name
	}
	return s.name + " " + strconv.Itoa(s.number)
}

// up64 is the difference of a 64-bit counter; 0 if it restarted.
func (d *difference) up64(of subject, prev, cur uint64) uint64 {
	if cur < prev {
		d.note(of.String(), restarted)
		return 0
	}
	return cur - prev
}

// fastest is more events than one CPU can count in a second (10 ns each).
const fastest = 1e8

// up32 is the same of a 32-bit counter, which wraps.
func (d *difference) up32(of subject, prev, cur uint64) uint64 {
	if cur >= prev {
		return cur - prev
	}
	wrapped := uint64(uint32(cur) - uint32(prev))
	if prev > math.MaxUint32 || float64(wrapped) > fastest*math.Max(d.interval.Seconds(), 1) {
		d.note(of.String(), restarted)
		return 0
	}
	return wrapped
}

package collector

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/rxsteer/rxsteer/internal/ethtool"
	"github.com/rxsteer/rxsteer/internal/host"
	"github.com/rxsteer/rxsteer/internal/host/nic"
	"github.com/rxsteer/rxsteer/internal/host/procfs"
	"github.com/rxsteer/rxsteer/internal/netdev"
)

// Tick is the few of the kernel's own counters that show a skew at once, over some 100 ms.
type Tick struct {
	Interval time.Duration `json:"interval_ns"`
	CPUs     []CPUTick     `json:"cpus"`
	Devices  []DeviceTick  `json:"devices"`
	// OutOfOrder is TCP segments of the namespace that arrived out of order (TcpExt TCPOFOQueue).
	OutOfOrder uint64 `json:"out_of_order,omitempty"`
}

// CPUTick is what a CPU did, as parts of its time (of /proc/stat: steps of 10 ms).
type CPUTick struct {
	CPU  int     `json:"cpu"`
	Busy float64 `json:"busy"`    // not idle
	RX   float64 `json:"receive"` // in softirqs and interrupt handlers
}

// DeviceTick is what a device received.
type DeviceTick struct {
	Device  string   `json:"device"`
	IfIndex int      `json:"ifindex"`
	Packets []uint64 `json:"packets"` // by rx queue
	// CPUs is where each rx queue's interrupt goes, -1 not known: TickDevice.CPUs.
	CPUs    []int  `json:"cpus"`
	Dropped uint64 `json:"dropped,omitempty"` // in rings, by the queues' and the interface's counters
}

// TickDevice is a device to be looked at.
type TickDevice struct {
	Name    string
	IfIndex int
	Driver  string
	CPUs    []int // by rx queue, -1 not known
}

// QueueCounters are the kernel's counters by queue, as netdev.Client has them.
type QueueCounters interface {
	QueueStats(ifindex int) ([]netdev.QueueStats, error)
}

// Ticker reads Ticks. It keeps what it read last and is for one goroutine. It needs no privilege.
type Ticker struct {
	FS      host.FS
	Queues  QueueCounters // nil: not on this kernel
	Drivers Statistics    // nil: not here
	Now     func() time.Time

	at      time.Time
	cpus    map[int]procfs.CPUTime
	devices map[int]tickState
	named   map[int][]meaning // by ifindex, as its statistics
	ooo     uint64
}

type tickState struct {
	source  tickSource
	packets []uint64
	dropped uint64
}

type tickSource int

const (
	untried tickSource = iota
	byNetlink
	byDriver
	byNobody
)

// ErrNoQueueCounters: neither the kernel nor the driver counts packets by queue.
var ErrNoQueueCounters = errors.New("its driver tells no packets by receive queue")

// Tick reads the counters and returns what grew since the last call; nil for the first. A device that is new, was
// rebuilt or cannot be read is left out, in the last case with its error.
func (t *Ticker) Tick(devices []TickDevice) (*Tick, map[string]error) {
	now := t.Now()
	failed := map[string]error{}
	out := &Tick{Interval: now.Sub(t.at)}
	first := t.at.IsZero()
	t.at = now
	t.readCPUs(out, failed)
	states := make(map[int]tickState, len(devices))
	for _, d := range devices {
		was, known := t.devices[d.IfIndex]
		st, err := t.readDevice(d, was.source)
		if err != nil {
			failed[d.Name] = err
			states[d.IfIndex] = tickState{source: st.source}
			continue
		}
		states[d.IfIndex] = st
		if !known || len(was.packets) != len(st.packets) {
			continue
		}
		dt := DeviceTick{Device: d.Name, IfIndex: d.IfIndex, CPUs: d.CPUs, Packets: make([]uint64, len(st.packets))}
		for q := range st.packets {
			dt.Packets[q] = grown(was.packets[q], st.packets[q])
		}
		dt.Dropped = grown(was.dropped, st.dropped)
		out.Devices = append(out.Devices, dt)
	}
	t.devices = states
	if text, err := t.FS.ReadFile("/proc/net/netstat"); err == nil {
		if n, ok := outOfOrder(text); ok {
			out.OutOfOrder, t.ooo = grown(t.ooo, n), n
		}
	}
	if first {
		return nil, failed
	}
	return out, failed
}

// outOfOrder finds TCPOFOQueue in /proc/net/netstat: a line of names and one of numbers for each protocol.
func outOfOrder(text []byte) (n uint64, ok bool) {
	names, rest, found := bytes.Cut(text, []byte("\n"))
	values, _, _ := bytes.Cut(rest, []byte("\n"))
	at := bytes.Index(names, []byte(" TCPOFOQueue "))
	if !found || at < 0 {
		return 0, false
	}
	skip := bytes.Count(names[:at+1], []byte(" "))
	for range skip {
		i := bytes.IndexByte(values, ' ')
		if i < 0 {
			return 0, false
		}
		values = values[i+1:]
	}
	word, _, _ := bytes.Cut(values, []byte(" "))
	n, err := strconv.ParseUint(string(word), 10, 64)
	return n, err == nil
}

// grown is how much a counter grew; one that fell began anew.
func grown(was, is uint64) uint64 {
	if is < was {
		return 0
	}
	return is - was
}

func (t *Ticker) readCPUs(out *Tick, failed map[string]error) {
	text, err := t.FS.ReadFile("/proc/stat")
	var st *procfs.Stat
	if err == nil {
		st, err = procfs.ParseStat("/proc/stat", text)
	}
	if err != nil {
		failed["/proc/stat"] = err
		return
	}
	cpus := make(map[int]procfs.CPUTime, len(st.CPUs))
	for _, c := range st.CPUs {
		cpus[c.CPU] = c
		was, ok := t.cpus[c.CPU]
		if !ok {
			continue
		}
		part := func(was, is uint64) float64 {
			return min(1, float64(grown(was, is)*tick)/float64(max(out.Interval, 1)))
		}
		rx := part(was.SoftIRQ+was.IRQ, c.SoftIRQ+c.IRQ)
		// Idle time stands still over some ticks and then jumps: what was counted as work is at least work.
		busy := part(was.User+was.Nice+was.System+was.SoftIRQ+was.IRQ+was.Steal, c.User+c.Nice+c.System+c.SoftIRQ+c.IRQ+c.Steal)
		out.CPUs = append(out.CPUs, CPUTick{CPU: c.CPU, Busy: busy, RX: rx})
	}
	t.cpus = cpus
}

// readDevice reads a device's queues from the source that worked, or finds it.
func (t *Ticker) readDevice(d TickDevice, from tickSource) (tickState, error) {
	if from == byNobody {
		return tickState{source: from}, ErrNoQueueCounters
	}
	if t.Queues != nil && from != byDriver {
		stats, err := t.Queues.QueueStats(d.IfIndex)
		if err == nil {
			if st, ok := kernelQueues(stats); ok {
				return st, nil
			}
		} else if !errors.Is(err, netdev.ErrNotSupported) {
			return tickState{}, fmt.Errorf("read the queues of %s: %w", d.Name, err)
		}
	}
	if t.Drivers == nil {
		return tickState{source: byNobody}, ErrNoQueueCounters
	}
	stats, err := t.Drivers.Stats(d.Name)
	switch {
	case errors.Is(err, ethtool.ErrNotSupported):
		return tickState{source: byNobody}, ErrNoQueueCounters
	case err != nil:
		return tickState{}, fmt.Errorf("read the statistics of %s: %w", d.Name, err)
	}
	st := tickState{source: byDriver}
	for i, m := range t.meanings(d, stats) {
		switch {
		case m.drops:
			st.dropped += stats[i].Value
		case m.packets:
			for len(st.packets) <= m.queue {
				st.packets = append(st.packets, 0)
			}
			st.packets[m.queue] += stats[i].Value
		}
	}
	if len(st.packets) == 0 {
		return tickState{source: byNobody}, ErrNoQueueCounters
	}
	return st, nil
}

// meaning is what a driver's counter counts.
type meaning struct {
	queue          int
	packets, drops bool
}

// meanings takes the names of a driver's counters apart, once for as long as they are as many.
func (t *Ticker) meanings(d TickDevice, stats []ethtool.Stat) []meaning {
	if m := t.named[d.IfIndex]; len(m) == len(stats) {
		return m
	}
	m := make([]meaning, len(stats))
	port := map[string]bool{}
	for _, c := range nic.Counters(d.Driver, stats) {
		// Some count what finds no descriptor by port only; where both do, these are the same packets seen twice, which no
		// comparison of two ticks is hurt by.
		port[c.Name] = c.Kind == nic.RingDrops && c.Scope != nic.ScopeQueue
	}
	for i, s := range stats {
		tx, q, what, ok := nic.PerQueue(s.Name)
		m[i] = meaning{queue: q, packets: ok && !tx && what == nic.QueuePackets, drops: port[s.Name] || ok && !tx && what == nic.QueueDrops}
	}
	if t.named == nil {
		t.named = map[int][]meaning{}
	}
	t.named[d.IfIndex] = m
	return m
}

// kernelQueues takes packets by rx queue out of the kernel's list; ok is false where they are not told.
func kernelQueues(stats []netdev.QueueStats) (tickState, bool) {
	st := tickState{source: byNetlink}
	for _, q := range stats {
		n, told := q.Counters["rx-packets"]
		if q.Type != netdev.RX || !told || q.ID < 0 || q.ID > 1<<12 {
			continue
		}
		for len(st.packets) <= q.ID {
			st.packets = append(st.packets, 0)
		}
		st.packets[q.ID] = n
		st.dropped += q.Counters["rx-hw-drops"] + q.Counters["rx-alloc-fail"]
	}
	return st, len(st.packets) > 0
}

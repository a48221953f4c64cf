package top

import (
	"cmp"
	"slices"
	"time"

	"github.com/rxsteer/rxsteer/collector"
	"github.com/rxsteer/rxsteer/internal/host/nic"
	"github.com/rxsteer/rxsteer/internal/host/topo"
)

// Unknown marks a figure that was not measured.
const Unknown = -1

// Shot is one interval, reduced to what the view shows.
type Shot struct {
	Start, End time.Time
	Interval   time.Duration
	Level      int
	Reduced    string // why it shows less than could be, "" it does not
	Cost       *collector.Cost
	Seen       time.Time // when Queues were seen, where that is before this shot (Carry); else zero
	CPUs       []CPU     // by number
	Queues     []Queue   // by device and queue
	Flows      []Flow    // most first
	Sockets    bool      // Flows are what TCP sockets tell: below level 2
	Lost       uint64    // events the programs could not record
}

// CPU is a processor's part of the interval: ratios of its time.
type CPU struct {
	ID, Node            int // Node nic.None not known
	Receive             float64
	Interrupt           float64 // hard interrupts and other softirqs
	Busy                float64 // everything else that is not idle
	Steal               float64
	Ksoftirqd           float64 // of Receive, 0…1
	Packets             float64 // per second through its stack
	Dropped, Squeezed   float64 // per second
	Isolated, Estimated bool    // Estimated: Receive is all softirq time, by the kernel's ticks (level 0)
}

// Queue is a receive queue, or a NAPI whose queue is not known, or a CPU's backlog.
type Queue struct {
	Netns     uint64 // 0 for the backlog
	Foreign   bool   // of another network namespace
	Device    string // collector.Backlog for RPS and netif_rx
	RX        int    // Unknown
	NAPI      uint32 // 0 not known
	Nth       int    // among a device's rows of which neither is known, from 1; else 0
	IRQ, Node int    // Unknown; Node is the device's
	CPU       int    // that polled most, or where its interrupt goes; Unknown
	CPUs      int    // how many polled
	CPUNode   int    // node of that CPU, Unknown
	Wanted    string // the interrupt's affinity, a set

	PPS       float64
	Time      float64 // of one CPU, 0…; Unknown
	PerPacket float64 // ns; Unknown
	P99       float64 // ns: of a packet's whole way where Stage, else of a poll; Unknown
	Stage     bool
	Full      float64 // of polls used up their budget, 0…1; Unknown
	Drops     float64 // per second; Unknown: the driver does not count them by queue
	BusyPolls float64 // per second
	Thread    bool
	Fills     float64 // what its CPU receives for, of its time, where it is hot and this is most of that; else 0
}

// Flow is an elephant.
type Flow struct {
	Name     string // "tcp 10.0.0.1:40000 → 10.0.0.2:443"
	Device   string
	RX, CPU  int // Unknown
	PPS      float64
	Bits     float64 // per second
	Share    float64 // of its queue, Unknown
	Consumer int     // CPU that reads it, Unknown
	Process  string
}

// Map is what a host is, to name what was measured.
type Map struct {
	Netns    uint64 // the reader's own
	NICs     []nic.NIC
	Topology *topo.Topology // nil not known
}

const topFlows = 32

// level is what was attached in a sample: 0 where the budget had the programs of level 1 detached all the time,
// though those of level 2 may have looked.
func level(s *collector.Sample) int {
	if s.Cost != nil && s.Cost.Duty == 0 {
		return 0
	}
	return s.Level
}

// Take reduces a sample.
func Take(s *collector.Sample, m *Map) *Shot {
	shot := &Shot{Start: s.Start, End: s.End, Interval: s.Interval, Level: level(s), Cost: s.Cost}
	for _, n := range s.Lost {
		shot.Lost += n
	}
	seconds := s.Interval.Seconds()
	if seconds <= 0 {
		return shot
	}
	for i := range s.CPUs {
		shot.CPUs = append(shot.CPUs, takeCPU(&s.CPUs[i], s, m.Topology))
	}
	shot.Queues = takeQueues(s, m, seconds)
	shot.fill()
	shot.Flows = takeFlows(s, seconds)
	shot.Sockets = s.Flows == nil && len(shot.Flows) > 0
	return shot
}

// Carried is how long what was seen of queues is shown where the budget lets them be looked at in windows only.
const Carried = 15 * time.Second

// Carry has a shot of level 0 show the queues of the last one that saw them, with the packets and drops that are
// counted at level 0 too. One that is too old, or of before, it leaves out.
func (s *Shot) Carry(last *Shot) {
	if age := s.End.Sub(last.End); s.Level > 0 || last.Level == 0 || age < 0 || age > Carried {
		return
	}
	now := map[identity]*Queue{}
	for i := range s.Queues {
		now[s.Queues[i].identity()] = &s.Queues[i]
	}
	queues := slices.Clone(last.Queues)
	for i := range queues {
		q := &queues[i]
		q.Fills = 0
		if n := now[q.identity()]; n != nil {
			if n.PPS >= 0 {
				q.PPS = n.PPS
			}
			q.Drops = n.Drops
		}
	}
	s.Queues, s.Seen = queues, last.End
	if len(s.Flows) == 0 || s.Sockets && !last.Sockets {
		s.Flows, s.Sockets = last.Flows, last.Sockets
	}
}

// fill marks the queues that are most of what a hot CPU does.
func (s *Shot) fill() {
	for i := range s.CPUs {
		c := &s.CPUs[i]
		for j := range s.Queues {
			if q := &s.Queues[j]; c.Receive >= hot && q.CPU == c.ID && q.Time >= c.Receive/2 {
				q.Fills = c.Receive
			}
		}
	}
}

func takeCPU(c *collector.CPU, s *collector.Sample, t *topo.Topology) CPU {
	ns, seconds := float64(s.Interval), s.Interval.Seconds()
	ratio := func(v uint64) float64 { return min(float64(v)/ns, 1) }
	out := CPU{ID: c.CPU, Node: nic.None, Steal: ratio(c.Steal), Packets: float64(c.Processed) / seconds,
		Dropped: float64(c.Dropped) / seconds, Squeezed: float64(c.Squeezed) / seconds}
	if t != nil {
		if at, ok := t.CPU(c.CPU); ok {
			out.Node, out.Isolated = at.Node, at.Isolated
		}
	}
	if level(s) >= 1 {
		out.Receive = ratio(c.SoftirqTime[collector.NetRX])
		var other uint64
		for v, t := range c.SoftirqTime {
			if v != collector.NetRX {
				other += t
			}
		}
		out.Interrupt = ratio(other + c.Irq)
		if all := c.SoftirqTime[collector.NetRX]; all > 0 {
			out.Ksoftirqd = min(float64(c.TimeIn[collector.InKsoftirqd])/float64(all), 1)
		}
	} else {
		out.Receive, out.Estimated = ratio(c.Softirq), true
		out.Interrupt = ratio(c.Irq)
	}
	out.Interrupt = min(out.Interrupt, 1-out.Receive)
	out.Busy = max(0, 1-out.Receive-out.Interrupt-out.Steal-ratio(c.Idle))
	return out
}

// key of a row: a queue where it is known, else the NAPI.
type queueKey struct {
	netns   uint64
	ifindex int
	rx      int
	napi    uint32
	pointer uint64
	cpu     int // of a backlog
}

type building struct {
	Queue
	times         map[int]uint64 // by CPU
	packets, time uint64
	polls, full   uint64
	busy, timed   uint64
	hist          collector.Histogram
	backlog       bool
}

func takeQueues(s *collector.Sample, m *Map, seconds float64) []Queue {
	rows := map[queueKey]*building{}
	var order []queueKey
	at := func(k queueKey) *building {
		b := rows[k]
		if b == nil {
			b = &building{Queue: Queue{RX: Unknown, IRQ: Unknown, Node: Unknown, CPU: Unknown, CPUNode: Unknown}, times: map[int]uint64{}}
			rows[k] = b
			order = append(order, k)
		}
		return b
	}
	unnamed := map[queueKey]bool{} // devices of which a NAPI's queue is not known
	told := map[queueKey]bool{}    // devices of which anything is known by queue
	for i := range s.NAPIs {
		n := &s.NAPIs[i]
		rx := n.RXQueue
		if rx < 0 {
			rx = m.queueOf(n)
		}
		k := queueKey{netns: n.Netns, ifindex: n.IfIndex, rx: rx, napi: n.ID, pointer: n.Pointer}
		switch {
		case n.Device == collector.Backlog:
			k = queueKey{rx: Unknown, cpu: n.CPU}
		case rx >= 0:
			k.napi, k.pointer = 0, 0
		default:
			unnamed[queueKey{netns: n.Netns, ifindex: n.IfIndex}] = true
			if n.ID != 0 {
				k.pointer = 0
			}
		}
		told[queueKey{netns: n.Netns, ifindex: n.IfIndex}] = true
		b := at(k)
		b.Netns, b.Device, b.RX, b.backlog = n.Netns, n.Device, rx, n.Device == collector.Backlog
		if n.ID != 0 {
			b.NAPI = n.ID
		}
		if n.Device == collector.Foreign {
			b.Foreign, b.Device = true, n.SeenAs
		}
		b.packets += n.Packets
		b.polls += n.Polls
		b.full += n.FullBudget
		b.time += n.Time
		b.busy += n.BusyPolls
		if n.Polls > 0 {
			b.timed += n.Packets
		}
		b.hist.Add(&n.TimeHist)
		if n.CPU != collector.NoCPU {
			b.times[n.CPU] += max(n.Time, n.Polls, n.Packets)
		}
	}
	// Queues that rested are shown too: that one of eight does nothing is news. Where a NAPI may be of
	// any of them, nothing is known of that.
	for i := range m.NICs {
		d := &m.NICs[i]
		if !d.Up || d.Kind == nic.Loopback || d.Kind == nic.Stack || unnamed[queueKey{netns: d.Netns, ifindex: d.IfIndex}] {
			continue
		}
		for j := range d.Queues {
			if q := &d.Queues[j]; q.RX != nic.None {
				k := queueKey{netns: d.Netns, ifindex: d.IfIndex, rx: q.RX}
				b := at(k)
				b.Netns, b.Device, b.RX = d.Netns, d.Name, q.RX
			}
		}
	}
	waits := totals(s)
	drops, counted := queueDrops(s)
	out := make([]Queue, 0, len(order))
	for _, k := range order {
		b := rows[k]
		b.place(m, k.ifindex)
		if m.Topology != nil && b.CPU != Unknown {
			if c, ok := m.Topology.CPU(b.CPU); ok {
				b.CPUNode = c.Node
			}
		}
		b.figure(s, seconds)
		if level(s) == 0 && !told[queueKey{netns: k.netns, ifindex: k.ifindex}] {
			b.PPS = Unknown // that nothing tells is no rest
		}
		if h := waits[queueKey{netns: k.netns, ifindex: k.ifindex, rx: k.rx}]; h != nil && k.rx >= 0 {
			b.P99, _, _ = h.Quantile(0.99)
			b.Stage = true
		}
		b.Drops = Unknown
		if counted[k.ifindex] && k.netns == m.Netns && b.RX >= 0 {
			b.Drops = float64(drops[queueKey{ifindex: k.ifindex, rx: b.RX}]) / seconds
		}
		if b.backlog {
			for i := range s.CPUs {
				if s.CPUs[i].CPU == b.CPU {
					b.Drops = float64(s.CPUs[i].Dropped) / seconds
				}
			}
		}
		out = append(out, b.Queue)
	}
	slices.SortStableFunc(out, byName)
	for i := range out {
		if q := &out[i]; q.RX < 0 && q.NAPI == 0 && q.Device != collector.Backlog {
			q.Nth = 1
			if i > 0 && out[i-1].Netns == q.Netns && out[i-1].Device == q.Device {
				q.Nth += out[i-1].Nth
			}
		}
	}
	return out
}

// queueOf is the rx queue of a NAPI by the map, Unknown.
func (m *Map) queueOf(n *collector.NAPI) int {
	for i := range m.NICs {
		if d := &m.NICs[i]; d.IfIndex == n.IfIndex && d.Netns == n.Netns {
			return d.NAPIAt(n.ID)
		}
	}
	return Unknown
}

func byName(a, b Queue) int {
	return cmp.Or(cmp.Compare(rank(a), rank(b)), cmp.Compare(a.Netns, b.Netns), cmp.Compare(a.Device, b.Device), cmp.Compare(a.RX, b.RX), cmp.Compare(a.NAPI, b.NAPI), cmp.Compare(a.Nth, b.Nth), cmp.Compare(a.backlogCPU(), b.backlogCPU()))
}

// backlogCPU tells backlogs apart; a queue keeps its place wherever it is polled.
func (q *Queue) backlogCPU() int {
	if q.Device == collector.Backlog {
		return q.CPU
	}
	return 0
}

// rank puts own devices before foreign ones, and backlogs last.
func rank(q Queue) int {
	switch {
	case q.Device == collector.Backlog:
		return 2
	case q.Foreign:
		return 1
	}
	return 0
}

// place says which CPU, interrupt and node serve the row.
func (b *building) place(m *Map, ifindex int) {
	var most uint64
	for cpu, t := range b.times {
		if t > most || t == most && (b.CPU == Unknown || cpu < b.CPU) {
			b.CPU, most = cpu, t
		}
	}
	b.CPUs = len(b.times)
	for i := range m.NICs {
		d := &m.NICs[i]
		if d.IfIndex != ifindex || d.Netns != b.Netns {
			continue
		}
		b.Node = d.Node
		for j := range d.Queues {
			q := &d.Queues[j]
			if q.RX != b.RX || b.RX < 0 {
				continue
			}
			b.IRQ, b.Wanted, b.Thread = q.IRQ, q.Affinity.String(), q.Thread != 0
			if q.NAPI != 0 {
				b.NAPI = q.NAPI
			}
			if b.CPU == Unknown {
				b.CPU = q.Effective.First() // Unknown where there is none
			}
		}
	}
}

func (b *building) figure(s *collector.Sample, seconds float64) {
	b.PPS = float64(b.packets) / seconds
	b.BusyPolls = float64(b.busy) / seconds
	b.Time, b.PerPacket, b.P99, b.Full = Unknown, Unknown, Unknown, Unknown
	if level(s) < 1 {
		return
	}
	b.Time = float64(b.time) / float64(s.Interval)
	if b.timed > 0 {
		b.PerPacket = float64(b.time) / float64(b.timed)
	}
	if b.polls > 0 {
		b.Full = float64(b.full) / float64(b.polls)
	}
	if b.hist.Count() > 0 {
		b.P99, _, _ = b.hist.Quantile(0.99)
	}
}

// totals is the distribution of packets' whole way by queue.
func totals(s *collector.Sample) map[queueKey]*collector.Histogram {
	out := map[queueKey]*collector.Histogram{}
	for i := range s.Stages {
		if st := &s.Stages[i]; st.Stage == collector.Total && st.RXQueue >= 0 && st.Count > 0 {
			k := queueKey{netns: st.Netns, ifindex: st.IfIndex, rx: st.RXQueue}
			if out[k] == nil {
				out[k] = &collector.Histogram{}
			}
			out[k].Add(&st.Hist)
		}
	}
	return out
}

// queueDrops is what drivers say each queue lost for want of a descriptor, and which devices' drivers
// would have said it (by ifindex).
func queueDrops(s *collector.Sample) (drops map[queueKey]uint64, counted map[int]bool) {
	drops, counted = map[queueKey]uint64{}, map[int]bool{}
	for i := range s.Drivers {
		d := &s.Drivers[i]
		other := false
		for _, c := range d.Counters {
			if c.Kind == nic.RingDrops && c.Scope == nic.ScopeQueue {
				drops[queueKey{ifindex: d.IfIndex, rx: c.Queue}] += c.Count
			}
			other = other || c.Kind == nic.RingDrops && c.Scope != nic.ScopeQueue
		}
		counted[d.IfIndex] = slices.Contains(d.Told, nic.RingDrops) && !other
	}
	return drops, counted
}

func takeFlows(s *collector.Sample, seconds float64) []Flow {
	var out []Flow
	for i := range s.Flows {
		f := &s.Flows[i]
		out = append(out, Flow{
			Name: f.Protocol + " " + f.Source.String() + " → " + f.Destination.String(), Device: f.Device, RX: f.RXQueue, CPU: f.CPU,
			PPS: float64(f.Packets) / seconds, Bits: 8 * float64(f.Bytes) / seconds, Share: f.Share, Consumer: f.ConsumerCPU, Process: f.Process,
		})
	}
	if s.Flows == nil && s.TCP != nil { // below level 2: what the kernel's sockets tell
		for i := range s.TCP.Flows {
			f := &s.TCP.Flows[i]
			out = append(out, Flow{Name: "tcp " + f.Remote + " → " + f.Local, RX: Unknown, CPU: Unknown, Consumer: Unknown, PPS: Unknown, Share: Unknown,
				Bits: 8 * float64(f.Received) / seconds})
		}
	}
	slices.SortStableFunc(out, func(a, b Flow) int { return cmp.Or(cmp.Compare(b.Bits, a.Bits), cmp.Compare(b.PPS, a.PPS)) })
	return out[:min(len(out), topFlows)]
}

// Heat is the share of receive on the CPU that has most of it: one number for a whole sample.
func Heat(s *collector.Sample) float64 {
	var most float64
	for i := range s.CPUs {
		t := s.CPUs[i].Softirq
		if level(s) >= 1 {
			t = s.CPUs[i].SoftirqTime[collector.NetRX]
		}
		if s.Interval > 0 {
			most = max(most, float64(t)/float64(s.Interval))
		}
	}
	return min(most, 1)
}

// Package simulate tells what a card would do with given traffic under given RSS settings,
// and which indirection table would be best for it.
//
// It refuses to know where the traffic comes from, and to guess what the card of a host is
// set to: the settings are the caller's.
package simulate

import (
	"cmp"
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/rxsteer/rxsteer/internal/capture"
	"github.com/rxsteer/rxsteer/internal/toeplitz"
	"github.com/rxsteer/rxsteer/steer/balance"
)

// Setting is how the card hashes and spreads.
type Setting struct {
	Queues int
	Table  int    // entries; they name the queues in turn, as drivers' default
	Key    []byte // of Toeplitz
	Fields string // of TCP, UDP and SCTP, ethtool -N's letters: s, d, f, n; other IP packets are hashed by those of s and d
}

// Limits of a Setting: no card has more.
const (
	MaxQueues = 4096
	MaxTable  = 65536
)

// Check names what is wrong.
func (s Setting) Check() error {
	switch {
	case s.Queues < 1 || s.Queues > MaxQueues:
		return fmt.Errorf("%d queues: want 1…%d", s.Queues, MaxQueues)
	case s.Table < s.Queues || s.Table > MaxTable:
		return fmt.Errorf("a table of %d entries: want %d (the queues)…%d", s.Table, s.Queues, MaxTable)
	case len(s.Key) < 4:
		return fmt.Errorf("a key of %d bytes: want at least 4, most cards have 40 or 52", len(s.Key))
	}
	for i, c := range s.Fields {
		if !strings.ContainsRune("sdfn", c) || strings.ContainsRune(s.Fields[:i], c) {
			return fmt.Errorf("hash fields %q: want letters of sdfn, each once", s.Fields)
		}
	}
	return nil
}

// Simulation adds up traffic. A flow is a tuple of addresses, ports and protocol.
type Simulation struct {
	setting Setting
	packets []uint64 // by bucket
	bytes   []uint64
	classes map[capture.Packet]*Class // of Class and VLAN only
	flows   map[tuple]*flow
	many    bool // flows were left out
	result  Result
}

type tuple struct {
	src, dst netip.AddrPort
	protocol uint8
}

type flow struct {
	packets, bytes uint64
	bucket         int
}

// mostFlows bounds memory; packets of further flows count, but are not told apart.
const mostFlows = 1 << 20

// New begins a simulation of no packets; the setting must pass Check.
func New(s Setting) *Simulation {
	return &Simulation{setting: s, packets: make([]uint64, s.Table), bytes: make([]uint64, s.Table),
		classes: map[capture.Packet]*Class{}, flows: map[tuple]*flow{}}
}

// Add counts a packet of so many bytes.
func (s *Simulation) Add(p capture.Packet, length int) {
	s.result.Packets++
	s.result.Bytes += uint64(length)
	k := capture.Packet{Class: cmp.Or(p.Class, "unreadable"), VLAN: p.VLAN}
	c := s.classes[k]
	if c == nil {
		c = &Class{Class: k.Class, VLAN: k.VLAN}
		s.classes[k] = c
	}
	c.Packets++
	c.Bytes += uint64(length)
	bucket, ok := s.bucket(p)
	if !ok {
		s.result.Unhashed++
		return
	}
	s.packets[bucket]++
	s.bytes[bucket] += uint64(length)
	t := tuple{p.Src, p.Dst, p.Protocol}
	f := s.flows[t]
	if f == nil {
		if len(s.flows) >= mostFlows {
			s.many = true
			return
		}
		f = &flow{bucket: bucket}
		s.flows[t] = f
	}
	f.packets++
	f.bytes += uint64(length)
}

func (s *Simulation) bucket(p capture.Packet) (int, bool) {
	fields := s.setting.Fields
	if strings.HasPrefix(p.FlowType, "ip") {
		fields = strings.NewReplacer("f", "", "n", "").Replace(fields)
	}
	if p.FlowType == "" || fields == "" {
		return 0, false
	}
	f := toeplitz.Flow{Src: p.Src.Addr(), Dst: p.Dst.Addr()}
	none := netip.IPv4Unspecified()
	if f.Src.Is6() {
		none = netip.IPv6Unspecified()
	}
	// A field left out counts as 0, which adds nothing to the hash.
	if !strings.Contains(fields, "s") {
		f.Src = none
	}
	if !strings.Contains(fields, "d") {
		f.Dst = none
	}
	if strings.Contains(fields, "f") {
		f.SrcPort = p.Src.Port()
	}
	if strings.Contains(fields, "n") {
		f.DstPort = p.Dst.Port()
	}
	h, ok := toeplitz.Hash(s.setting.Key, f, toeplitz.None)
	return toeplitz.Bucket(h, s.setting.Table), ok
}

// Result is what the traffic does.
type Result struct {
	Packets uint64 `json:"packets"`
	Bytes   uint64 `json:"bytes"`
	// Unhashed packets have no entry; cards put them into one queue, mostly 0, as Load has them.
	Unhashed uint64  `json:"unhashed"`
	Classes  []Class `json:"classes"` // most packets first
	// Flows are different tuples; FlowsLeftOut says that there are more.
	Flows        int  `json:"flows"`
	FlowsLeftOut bool `json:"flows_left_out,omitempty"`
	// Default is the table that names the queues in turn, Best the one found. Bound is the
	// share of packets below which no table can bring the busiest queue.
	Default Load    `json:"default"`
	Best    Load    `json:"best"`
	Bound   float64 `json:"bound_ratio"`
	Optimal bool    `json:"optimal"` // no table has a smaller share of the busiest queue than Best
	Moves   int     `json:"moves"`   // entries that differ
	// Top is the biggest flows, biggest first.
	Top []Flow `json:"top"`
}

// Class is packets of one kind (capture.Packet.Class, or "unreadable").
type Class struct {
	Class   string `json:"class"`
	VLAN    bool   `json:"vlan,omitempty"`
	Packets uint64 `json:"packets"`
	Bytes   uint64 `json:"bytes"`
}

// Load is what falls on each queue under a table.
type Load struct {
	Table   []int    `json:"table"`
	Packets []uint64 `json:"packets"` // by queue
	Bytes   []uint64 `json:"bytes"`
	Busiest int      `json:"busiest_queue"`
	Share   float64  `json:"busiest_ratio"` // of all packets
}

// Flow is one of the biggest.
type Flow struct {
	Protocol    string         `json:"protocol"` // "tcp", "udp", … or a number
	Source      netip.AddrPort `json:"source"`
	Destination netip.AddrPort `json:"destination"`
	Packets     uint64         `json:"packets"`
	Bytes       uint64         `json:"bytes"`
	Share       float64        `json:"share_ratio"` // of all packets
	Bucket      int            `json:"bucket"`
	Elephant    bool           `json:"elephant,omitempty"` // more than a queue's fair share: no table helps
}

// topFlows is how many flows a Result names.
const topFlows = 10

// Result searches the best table; when ctx ends it is the best found until then.
func (s *Simulation) Result(ctx context.Context) (*Result, error) {
	r := s.result
	r.Classes, r.Top = []Class{}, []Flow{}
	for _, c := range s.classes {
		r.Classes = append(r.Classes, *c)
	}
	slices.SortFunc(r.Classes, func(a, b Class) int {
		return cmp.Or(cmp.Compare(b.Packets, a.Packets), cmp.Compare(a.Class, b.Class), compareBool(a.VLAN, b.VLAN))
	})
	r.Flows, r.FlowsLeftOut = len(s.flows), s.many
	r.Default.Table = make([]int, s.setting.Table)
	for i := range r.Default.Table {
		r.Default.Table[i] = i % s.setting.Queues
	}
	s.load(&r.Default)
	r.Best = r.Default
	if r.Packets > 0 {
		if err := s.best(ctx, &r); err != nil {
			return nil, err
		}
	}
	s.top(&r)
	return &r, nil
}

func compareBool(a, b bool) int {
	switch {
	case a == b:
		return 0
	case b:
		return -1
	}
	return 1
}

// load spreads the counts over the queues of a table.
func (s *Simulation) load(l *Load) {
	l.Packets, l.Bytes = make([]uint64, s.setting.Queues), make([]uint64, s.setting.Queues)
	for i, q := range l.Table {
		l.Packets[q] += s.packets[i]
		l.Bytes[q] += s.bytes[i]
	}
	l.Packets[0] += s.result.Unhashed
	l.Busiest = slices.Index(l.Packets, slices.Max(l.Packets))
	if s.result.Packets > 0 {
		l.Share = float64(l.Packets[l.Busiest]) / float64(s.result.Packets)
	}
}

// best asks the optimiser, with a CPU to each queue and a load in parts of all packets. What cannot be
// hashed is the background of queue 0.
func (s *Simulation) best(ctx context.Context, r *Result) error {
	all := float64(r.Packets)
	p := balance.Problem{}
	d := balance.Device{Name: "capture", Table: r.Default.Table, May: balance.Table}
	for q := range s.setting.Queues {
		p.CPUs = append(p.CPUs, balance.CPU{ID: q, Core: -1})
		d.IRQ = append(d.IRQ, q)
	}
	p.CPUs[0].Background = float64(r.Unhashed) / all
	for _, n := range s.packets {
		d.Buckets = append(d.Buckets, float64(n)/all)
	}
	p.Devices = []balance.Device{d}
	solved, err := balance.Solve(ctx, p)
	if err != nil {
		return fmt.Errorf("search the best table: %w", err)
	}
	r.Best = Load{Table: solved.Assignments[0].Table}
	s.load(&r.Best)
	r.Bound, r.Moves = max(solved.Bound, p.CPUs[0].Background), len(solved.Moves)
	r.Optimal = solved.Optimal || r.Best.Share <= r.Bound*(1+1e-9)
	return nil
}

func (s *Simulation) top(r *Result) {
	for t, f := range s.flows {
		r.Top = append(r.Top, Flow{Protocol: capture.ProtocolName(t.protocol), Source: t.src, Destination: t.dst, Packets: f.packets, Bytes: f.bytes, Bucket: f.bucket,
			Share: float64(f.packets) / float64(r.Packets), Elephant: f.packets*uint64(s.setting.Queues) > r.Packets})
	}
	slices.SortFunc(r.Top, func(a, b Flow) int {
		return cmp.Or(cmp.Compare(b.Packets, a.Packets), cmp.Compare(a.Protocol, b.Protocol), a.Source.Compare(b.Source), a.Destination.Compare(b.Destination))
	})
	r.Top = slices.Clip(r.Top[:min(topFlows, len(r.Top))])
}

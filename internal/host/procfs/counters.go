package procfs

import (
	"strings"

	"github.com/rxsteer/rxsteer/internal/cpuset"
)

// Softirqs is /proc/softirqs. Its columns are all *possible* CPUs
// (show_softirqs in fs/proc/softirqs.c), not only the online ones as in /proc/interrupts.
type Softirqs struct {
	CPUs []int
	Rows []Softirq
}

// Softirq is the runs of one softirq vector, by Softirqs.CPUs.
type Softirq struct {
	Name   string // "NET_RX"; "IRQ_POLL" also where an old kernel prints BLOCK_IOPOLL
	Counts []uint64
}

// Row returns the counts of a vector, nil when the file has none.
func (s *Softirqs) Row(name string) []uint64 {
	for _, r := range s.Rows {
		if r.Name == name {
			return r.Counts
		}
	}
	return nil
}

// ParseSoftirqs reads /proc/softirqs. The error is an *Error.
func ParseSoftirqs(file string, text []byte) (*Softirqs, error) {
	s := &Softirqs{}
	r := &reader{file: file, rest: text}
	var mem slab
	for {
		line, ok := r.next()
		if !ok {
			break
		}
		if len(trimBlanks(line)) == 0 {
			continue
		}
		if s.CPUs == nil {
			cpus, err := header(r, line)
			if err != nil {
				return nil, err
			}
			if cpus == nil {
				return nil, r.errorf("no header line of CPU columns")
			}
			s.CPUs = cpus
			continue
		}
		name, rest, ok := label(line)
		if !ok {
			return nil, r.errorf("row without a label")
		}
		figures, rest, fits := counts(mem.take(len(s.CPUs)), rest, len(s.CPUs))
		if !fits || len(figures) != len(s.CPUs) || len(trimBlanks(rest)) > 0 {
			return nil, r.errorf("not one count for each of the %d CPUs of the header", len(s.CPUs))
		}
		row := Softirq{Name: string(name), Counts: mem.keep(figures)}
		if row.Name == "BLOCK_IOPOLL" { // renamed in 4.5
			row.Name = "IRQ_POLL"
		}
		s.Rows = append(s.Rows, row)
	}
	if s.CPUs == nil {
		return nil, &Error{File: file, Cause: "empty"}
	}
	return s, nil
}

// Softnet is one row of /proc/net/softnet_stat: softnet_seq_show in
// net/core/net-procfs.c (net/core/dev.c before 3.11). All figures are 32 bits and wrap;
// figures a kernel does not print are 0, and Columns says how many it did.
type Softnet struct {
	// CPU is the row's CPU where the kernel tells it (13 columns, since 5.10),
	// else None: rows are the online CPUs in order; see AssignCPUs.
	CPU         int
	Columns     int
	Processed   uint32 // packets through __netif_receive_skb_core
	Dropped     uint32 // backlog queue full
	Squeezed    uint32 // net_rx_action ended by budget or time with work left
	Collision   uint32 // transmit lock contention, 0 since 4.7
	ReceivedRPS uint32 // IPIs received for RPS, ≥ 10 columns (2.6.35)
	FlowLimit   uint32 // dropped by flow limits, ≥ 11 columns (3.11)
	Backlog     uint32 // packets now queued, ≥ 12 columns
	InputQueue  uint32 // part of Backlog not yet taken up, ≥ 14 columns (6.4)
	ProcessQ    uint32 // part of Backlog being worked on, 15 columns
}

// maxSoftnetColumns leaves room for figures that kernels to come append.
const maxSoftnetColumns = 32

// ParseSoftnet reads /proc/net/softnet_stat of 9 to 15 columns; further columns are ignored. The
// error is an *Error.
func ParseSoftnet(file string, text []byte) ([]Softnet, error) {
	var out []Softnet
	r := &reader{file: file, rest: text}
	for {
		line, ok := r.next()
		if !ok {
			break
		}
		if len(trimBlanks(line)) == 0 {
			continue
		}
		if len(out) == cpuset.Limit {
			return nil, r.errorf("more than %d rows", cpuset.Limit)
		}
		var v [maxSoftnetColumns]uint32
		n := 0
		for i := skipBlanks(line, 0); i < len(line); i = skipBlanks(line, i) {
			if n == len(v) {
				return nil, r.errorf("more than %d columns", len(v))
			}
			start := i
			for ; i < len(line) && !blank(line[i]); i++ {
				d, ok := unhex(line[i])
				if !ok || i-start >= 8 {
					return nil, r.errorf("column %d is not a 32-bit hexadecimal number", n+1)
				}
				v[n] = v[n]<<4 | d
			}
			n++
		}
		if n < 9 {
			return nil, r.errorf("%d columns, at least 9 are expected", n)
		}
		row := Softnet{
			CPU: None, Columns: n, Processed: v[0], Dropped: v[1], Squeezed: v[2], Collision: v[8],
			ReceivedRPS: v[9], FlowLimit: v[10], Backlog: v[11], InputQueue: v[13], ProcessQ: v[14],
		}
		if n >= 13 {
			if v[12] >= cpuset.Limit {
				return nil, r.errorf("CPU number %d is too large", v[12])
			}
			row.CPU = int(v[12])
		}
		out = append(out, row)
	}
	if out == nil {
		return nil, &Error{File: file, Cause: "empty"}
	}
	return out, nil
}

// AssignCPUs fills in the CPU of rows that do not tell it: the rows are the online CPUs in
// ascending order. It reports false, and leaves the rows alone, when their
// number is another.
func AssignCPUs(rows []Softnet, online cpuset.Set) bool {
	if len(rows) != online.Len() {
		for _, r := range rows {
			if r.CPU == None {
				return false
			}
		}
		return true
	}
	c := -1
	for i := range rows {
		if c = online.Next(c); rows[i].CPU == None {
			rows[i].CPU = c
		}
	}
	return true
}

func unhex(c byte) (uint32, bool) {
	switch {
	case c-'0' < 10:
		return uint32(c - '0'), true
	case c|0x20 >= 'a' && c|0x20 <= 'f':
		return uint32(c|0x20-'a') + 10, true
	}
	return 0, false
}

// Stat is what rxsteer uses of /proc/stat (fs/proc/stat.c).
type Stat struct {
	CPUs     []CPUTime // online CPUs, ascending
	BootTime int64     // Unix seconds, 0 where not told
}

// CPUTime is where a CPU's time went since boot, in ticks of USER_HZ (1/100 s on every
// architecture Linux has but alpha and ia64). Idle and IOWait of a CPU can go backwards.
type CPUTime struct {
	CPU                                                   int
	User, Nice, System, Idle, IOWait, IRQ, SoftIRQ, Steal uint64
	Guest, GuestNice                                      uint64 // parts of User and Nice
}

// ParseStat reads /proc/stat. The error is an *Error.
func ParseStat(file string, text []byte) (*Stat, error) {
	s := &Stat{}
	r := &reader{file: file, rest: text}
	var buf [16]uint64
	for {
		line, ok := r.next()
		if !ok {
			break
		}
		switch {
		case len(line) > 3 && string(line[:3]) == "cpu" && digit(line[3]):
			i := 3
			n := 0
			for ; i < len(line) && digit(line[i]); i++ {
				if n = n*10 + int(line[i]-'0'); n >= cpuset.Limit {
					return nil, r.errorf("CPU number too large")
				}
			}
			v, rest, fits := counts(buf[:0], line[i:], len(buf))
			if !fits || len(v) < 4 || len(rest) > 0 || i == len(line) || !blank(line[i]) {
				return nil, r.errorf("cpu%d has no 4 to %d numbers", n, len(buf))
			}
			if k := len(s.CPUs); k > 0 && s.CPUs[k-1].CPU >= n {
				return nil, r.errorf("CPUs are not in ascending order")
			}
			clear(buf[len(v):])
			s.CPUs = append(s.CPUs, CPUTime{
				CPU: n, User: buf[0], Nice: buf[1], System: buf[2], Idle: buf[3], IOWait: buf[4],
				IRQ: buf[5], SoftIRQ: buf[6], Steal: buf[7], Guest: buf[8], GuestNice: buf[9],
			})
		case strings.HasPrefix(string(line[:min(len(line), 6)]), "btime "):
			v, rest, fits := counts(buf[:0], line[6:], 1)
			if !fits || len(v) != 1 || len(rest) > 0 {
				return nil, r.errorf("btime is not a number")
			}
			s.BootTime = int64(v[0])
		}
	}
	if s.CPUs == nil {
		return nil, &Error{File: file, Cause: "no cpu lines"}
	}
	return s, nil
}

package procfs

import (
	"fmt"
	"strings"
)

// Interrupts is /proc/interrupts.
type Interrupts struct {
	// CPUs are the columns: the CPUs that were online, ascending, with gaps where some were not.
	CPUs []int
	Rows []Interrupt
	// Problems are the lines that were not understood, at most 32; the rest of the table holds.
	Problems []*Error
}

// Interrupt is one row. Shapes, from show_interrupts in kernel/irq/proc.c and
// arch_show_interrupts of each architecture:
//
//	 28:   1   2   PCI-MSI 524288-edge      eth0-TxRx-0      x86 since 4.x
//	 28:   1   2   PCI-MSI-edge      eth0                    x86 before: no hwirq
//	 28:   1   2   xen-dyn    -event     vif0-q0-tx          no irq domain: blanks for the hwirq
//	 28:   1   2   GICv3 150 Level     30be0000.ethernet     CONFIG_GENERIC_IRQ_SHOW_LEVEL
//	 28:   1   2   GIC  29  twd                              neither type nor name
//	NMI:   1   2   Non-maskable interrupts                   architecture rows
//	ERR:   0                                                 one figure for the machine
type Interrupt struct {
	Line int
	// IRQ is the Linux interrupt number, None in architecture rows.
	IRQ int
	// Label is what stands before the colon in architecture rows ("NMI", "IPI0", "I/O"), "" in others.
	Label string
	// Counts has one figure for each of Interrupts.CPUs; one for all of them in
	// rows such as ERR; none where the row's figures could not be told apart
	// (Problems says so).
	Counts []uint64
	Chip   string // may hold blanks ("Hyper-V PCIe MSI")
	HWIRQ  string // decimal, "" where not printed
	// Trigger is the flow type: "edge", "Level", "fasteoi", "event", …, "" where not printed.
	Trigger string
	// Actions are the names of those who share the interrupt, none when it is free.
	Actions []string
	// Text is the description of an architecture row, "" in others.
	Text string
}

// maxRows is far more interrupts than any host has.
const maxRows = 1 << 16

// Name is the row's label as printed: the number or the architecture's word.
func (r *Interrupt) Name() string {
	if r.IRQ == None {
		return r.Label
	}
	return fmt.Sprint(r.IRQ)
}

// Total is the sum of Counts.
func (r *Interrupt) Total() uint64 {
	var n uint64
	for _, c := range r.Counts {
		n += c
	}
	return n
}

// ParseInterrupts reads /proc/interrupts of any architecture; file is its name
// in errors. Text without the header line (a person's grep) is taken as
// CPUs 0…n-1 and noted in Problems. Single lines that make no sense land in
// Problems; the error is non-nil only when there is no table at all, and then an *Error.
func ParseInterrupts(file string, text []byte) (*Interrupts, error) {
	t := &Interrupts{}
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
		if t.CPUs == nil {
			cpus, err := header(r, line)
			if err != nil {
				return nil, err
			}
			if t.CPUs = cpus; cpus != nil {
				continue
			}
			if t.CPUs = columns(line); t.CPUs == nil {
				return nil, r.errorf("no header line of CPU columns")
			}
			t.problem(r, "no header line: CPUs 0-%d assumed", len(t.CPUs)-1)
		}
		name, rest, ok := label(line)
		if !ok {
			t.problem(r, "row without a label")
			continue
		}
		if len(t.Rows) == maxRows {
			t.problem(r, "more than %d rows, the rest is left out", maxRows)
			break
		}
		row := Interrupt{Line: r.line, IRQ: number(name)}
		if row.IRQ == None {
			row.Label = string(name)
		}
		figures, rest, fits := counts(mem.take(len(t.CPUs)), rest, len(t.CPUs))
		switch {
		case !fits:
			t.problem(r, "a count does not fit 64 bits")
			rest = nil
		case len(figures) < len(t.CPUs) && (row.IRQ != None || len(figures) > 1):
			t.problem(r, "%d counts, the header has %d CPUs", len(figures), len(t.CPUs))
		case row.IRQ != None && startsWithNumber(rest):
			t.problem(r, "more counts than the %d CPUs of the header", len(t.CPUs))
			_, rest, _ = counts(nil, rest, len(rest))
		default:
			row.Counts = mem.keep(figures)
		}
		tail := string(trimBlanks(rest))
		switch {
		case row.IRQ == None:
			row.Text = tail
		case tail != "":
			row.describe(tail)
		case fits && row.Counts != nil: // even a free interrupt has a chip, if only "-" or "None"
			t.problem(r, "cut off after the counts")
		}
		t.Rows = append(t.Rows, row)
	}
	if t.CPUs == nil {
		return nil, &Error{File: file, Cause: "empty"}
	}
	return t, nil
}

func (t *Interrupts) problem(r *reader, format string, args ...any) {
	if len(t.Problems) < maxProblems {
		t.Problems = append(t.Problems, r.errorf(format, args...))
	}
}

// columns guesses the CPUs of a table without a header from one interrupt row.
func columns(line []byte) []int {
	name, rest, ok := label(line)
	if !ok || number(name) == None {
		return nil
	}
	figures, _, ok := counts(nil, rest, len(rest))
	if !ok || len(figures) == 0 {
		return nil
	}
	cpus := make([]int, len(figures))
	for i := range cpus {
		cpus[i] = i
	}
	return cpus
}

// number is a decimal interrupt number, or None.
func number(b []byte) int {
	if len(b) == 0 || len(b) > 9 {
		return None
	}
	n := 0
	for _, c := range b {
		if c-'0' > 9 {
			return None
		}
		n = n*10 + int(c-'0')
	}
	return n
}

func startsWithNumber(b []byte) bool {
	figures, _, ok := counts(make([]uint64, 0, 1), b, 1)
	return !ok || len(figures) == 1
}

// describe takes apart what follows the counts: " %8s" chip, " %*lu" hwirq or blanks,
// " %-8s" Level|Edge, "-%-8s" flow name, "  %s" actions joined with ", ". Chips and
// actions may hold single blanks, every part may be absent, and pasted text may
// have lost the double blanks.
func (r *Interrupt) describe(tail string) {
	rest := tail // what is not yet looked at
	for end := 0; rest != ""; {
		// One token, and the gap before it.
		gap := len(rest) - len(strings.TrimLeft(rest, " \t"))
		rest = rest[gap:]
		token := rest
		if i := strings.IndexAny(rest, " \t"); i >= 0 {
			token = rest[:i]
		}
		at := len(tail) - len(rest) // of the token in tail
		rest = rest[len(token):]
		first := at == 0

		if !first {
			hw, flow, ok := strings.Cut(token, "-")
			switch {
			case hw == "" && ok && flow != "" && !digit(flow[0]): // "-event"
				r.Chip, r.Trigger = tail[:end], flow
			case isNumber(hw) && !ok: // "48 Level", "29"
				r.Chip, r.HWIRQ = tail[:end], hw
				rest = r.level(rest)
			case isNumber(hw) && flow != "" && !digit(flow[0]): // "524288-edge"
				r.Chip, r.HWIRQ, r.Trigger = tail[:end], hw, flow
			}
			if r.Chip != "" {
				r.act(rest)
				return
			}
			if gap > 1 { // the kernel's two blanks before the actions: no hwirq, no type
				break
			}
		}
		if chip, flow := cutFlow(token); flow != "" && !hardware(rest) { // "IO-APIC-edge"
			r.Chip, r.Trigger = tail[:at]+chip, flow
			r.act(rest)
			return
		}
		end = at + len(token)
	}
	// A chip alone, or a chip and actions with nothing between.
	if i := strings.Index(tail, "  "); i >= 0 {
		r.Chip = tail[:i]
		r.act(tail[i:])
		return
	}
	chip, actions, _ := strings.Cut(tail, " ")
	r.Chip = chip
	r.act(actions)
}

// level takes "Level" or "Edge" and a flow name behind it from the front of s.
func (r *Interrupt) level(s string) string {
	t := strings.TrimLeft(s, " \t")
	for _, w := range []string{"Level", "Edge"} {
		if after, ok := strings.CutPrefix(t, w); ok && (after == "" || blank(after[0]) || after[0] == '-') {
			r.Trigger = w
			t = strings.TrimLeft(after, " \t")
			if strings.HasPrefix(t, "-") { // " %-8s" followed by "-%-8s"
				name, rest, _ := strings.Cut(t, " ")
				r.Trigger += name
				return rest
			}
			return after
		}
	}
	return s
}

func (r *Interrupt) act(s string) {
	s = strings.TrimLeft(s, " \t")
	if s == "" {
		return
	}
	n := strings.Count(s, ", ") + 1
	r.Actions = make([]string, 0, n)
	for {
		name, rest, more := strings.Cut(s, ", ")
		r.Actions = append(r.Actions, name)
		if !more {
			return
		}
		s = rest
	}
}

// flows are the flow names that irq_set_chip_and_handler_name and
// __irq_set_handler are given where the chip prints no hwirq before them:
// arch/x86/kernel/apic, drivers/xen/events, arch/mips/alchemy. Longer ones first.
var flows = []string{
	"ioapic-level", "ioapic-edge", "bothedge", "riseedge", "falledge", "hilevel", "lowlevel",
	"fasteoi", "percpu", "msi-x", "event", "level", "edge", "virq", "pirq", "ipi", "msi",
}

// cutFlow parts "IO-APIC-edge" into chip and flow; flow is "" when token holds none.
func cutFlow(token string) (chip, flow string) {
	for _, f := range flows {
		if c, ok := strings.CutSuffix(token, f); ok && len(c) > 1 && c[len(c)-1] == '-' {
			return c[:len(c)-1], f
		}
	}
	return token, ""
}

// hardware reports whether s begins with what follows a chip name printed alone: a
// hwirq or "-flow", so that the chips "xen-percpu" and "brcm-msi" are whole.
func hardware(s string) bool {
	s = strings.TrimLeft(s, " \t")
	if i := strings.IndexAny(s, " \t"); i >= 0 {
		s = s[:i]
	}
	hw, flow, dash := strings.Cut(s, "-")
	return isNumber(hw) || hw == "" && dash && flow != "" && !digit(flow[0])
}

func digit(c byte) bool { return c-'0' < 10 }

func isNumber(s string) bool {
	for i := range len(s) {
		if !digit(s[i]) {
			return false
		}
	}
	return s != ""
}

package top

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/rxsteer/rxsteer/steer/diagnose"
)

// The least terminal that shows more than the verdict.
const (
	leastWidth  = 50
	leastHeight = 10
)

// Render is the screen: at most height lines of at most width columns.
func (m *Model) Render() string {
	d := m.drawing()
	switch {
	case m.width < 1 || m.height < 1:
		return ""
	case m.help:
		d.helpScreen()
	case m.width < leastWidth || m.height < leastHeight:
		d.small()
	case m.zoom:
		d.header()
		d.panelFull()
		d.keys()
	default:
		d.screen()
	}
	if len(d.lines) > m.height {
		d.lines = d.lines[:m.height]
	}
	return strings.Join(d.lines, "\n")
}

// Plain is everything in one frame of that width and as many lines as it takes, for where there is no terminal.
func (m *Model) Plain(width int) string {
	whole := *m
	whole.width, whole.height = max(width, leastWidth), math.MaxInt
	d := whole.drawing()
	s := d.Shot()
	if s == nil {
		return ""
	}
	d.header()
	d.verdict(s)
	if s.Reduced != "" {
		d.line(d.paint(near, d.clean(s.Reduced)))
	}
	d.cpus(s)
	d.queues(s, len(s.Queues)+2)
	for d.panel = range panels {
		d.ruled(d.panelHeading(s), "")
		d.lines = append(d.lines, d.panelLines(s, d.panel != Findings)...)
	}
	return strings.Join(d.lines, "\n") + "\n"
}

// small is what fits into a terminal that is too small for the rest.
func (d *drawing) small() {
	if s := d.Shot(); s != nil {
		p, text := s.verdict(d.everything(s))
		for _, l := range d.wrap("", d.clean(text), "", max(d.width, 10)) {
			d.line(d.paint(p, l))
		}
		for _, q := range d.rows() {
			if len(d.lines) < d.height-1 {
				d.line(d.paint(q.state(), mark(q.state())+" "+d.clean(q.where()+": ")+percent(q.Time)+", "+count(q.PPS)+"/s"))
			}
		}
	}
	d.line(d.paint(faint, fmt.Sprintf("%dx%d; needs %dx%d", d.width, d.height, leastWidth, leastHeight)))
}

// verdict is the line to read first. Where no queue hurts, what diagnose found does.
func (d *drawing) verdict(s *Shot) {
	p, text := s.verdict(d.everything(s))
	if r := d.history.Report(d.position()); r != nil && p == good && len(r.Findings) > 0 && r.Findings[0].Severity >= diagnose.Warning {
		f := &r.Findings[0]
		p, text = severityPaint[f.Severity], fmt.Sprintf("%s %s: %s", f.ID, f.Subject, f.Summary)
	}
	d.line(d.paint(p, d.clean(text)))
}

// everything is a shot's rows without the filters that a person set.
func (d *drawing) everything(s *Shot) []Queue {
	var out []Queue
	for i := range s.Queues {
		if d.shown(&s.Queues[i]) {
			out = append(out, s.Queues[i])
		}
	}
	return out
}

func (d *drawing) screen() {
	s := d.Shot()
	d.header()
	if s == nil {
		d.line(d.paint(faint, "waiting for the first sample"))
		d.fill(d.height - 1)
		d.keys()
		return
	}
	d.verdict(s)
	if s.Reduced != "" {
		d.line(d.paint(near, d.clean(s.Reduced)))
	}
	d.cpus(s)
	// What is left is for the queues and, below them, the panel, the time line and the keys.
	panel := min(len(d.panelLines(s, true))+1, max(4, (d.height-len(d.lines))/3))
	room := d.height - len(d.lines) - panel - 2
	d.queues(s, max(room, 3))
	d.panelShort(s, d.height-len(d.lines)-2)
	d.fill(d.height - 2)
	d.timeline()
	d.keys()
}

// fill adds empty lines up to a number of lines.
func (d *drawing) fill(to int) {
	for len(d.lines) < to {
		d.lines = append(d.lines, "")
	}
}

func (d *drawing) header() {
	s := d.Shot()
	state, p := "LIVE", good
	oldest, newest := d.history.Bounds()
	switch {
	case s == nil:
		state, p = "", plain
	case d.opts.Recording:
		state, p = fmt.Sprintf("RECORDED %d of %d", d.position()-oldest+1, newest-oldest+1), title
		if d.playing {
			state += ", playing"
		}
	case !d.follow:
		state, p = "PAUSED, "+ago(d.history.At(newest).End.Sub(s.End)), near
	}
	left := d.paint(strong, "rxsteer top")
	plainLeft := "rxsteer top"
	if s != nil {
		facts := []string{}
		if d.opts.Host != "" {
			facts = append(facts, d.clean(d.opts.Host))
		}
		facts = append(facts, s.End.In(d.opts.Zone).Format(time.TimeOnly), fmt.Sprintf("level %d", s.Level), fmt.Sprintf("every %.2gs", s.Interval.Seconds()))
		if c := s.Cost; c != nil {
			cost := "costs " + percent(c.Hottest)
			if len(c.Thinned) > 0 {
				cost += " (thinned)"
			}
			facts = append(facts, cost)
		}
		if s.Lost > 0 {
			facts = append(facts, fmt.Sprintf("%d events lost", s.Lost))
		}
		text := d.fit("  "+strings.Join(facts, "  "), d.width-len(plainLeft)-len(state)-2)
		left += text
		plainLeft += text
	}
	gap := max(1, d.width-len([]rune(plainLeft))-len(state))
	d.line(left + strings.Repeat(" ", gap) + d.paint(p, state))
}

func ago(t time.Duration) string {
	if t < 500*time.Millisecond {
		return "now"
	}
	return fmt.Sprintf("%.0f s ago", t.Seconds())
}

// cpuCell is the least width of a CPU's cell.
const cpuCell = 38

// cpus is a grid, column by column; where not all fit, those that receive most.
func (d *drawing) cpus(s *Shot) {
	cols := max(1, min(d.width/cpuCell, len(s.CPUs)))
	rows := min((len(s.CPUs)+cols-1)/cols, max(3, d.height/6))
	list := slices.Clone(s.CPUs)
	what := "CPUs"
	if len(list) > rows*cols {
		slices.SortStableFunc(list, func(a, b CPU) int {
			return int(math.Round(100*b.Receive)) - int(math.Round(100*a.Receive))
		})
		list = list[:rows*cols]
		what = fmt.Sprintf("busiest %d of %d CPUs", len(list), len(s.CPUs))
	}
	legend := d.receive + " receive " + d.interrupt + " interrupts " + d.busy + " other"
	if len(list) > 0 && list[0].Estimated {
		legend = d.receive + " softirq (ticks) " + d.busy + " other"
	}
	d.ruled(what, legend)
	width := d.width/cols - 1
	sparks := min(max(8, width/3), 40)
	histories := d.cpuHistory(list, sparks)
	for r := range rows {
		var line []string
		for c := range cols {
			i := c*rows + r
			if i >= len(list) {
				continue
			}
			cpu := &list[i]
			bar := width - 4 - 5 - 1 - sparks - 3
			line = append(line, d.paint(cpu.state(), d.right(number(cpu.ID), 4)+d.right(fmt.Sprintf("%.0f%%", 100*cpu.Receive), 5))+" "+
				d.bar(cpu, bar)+" "+d.paint(heat(cpu.Receive), d.spark(histories[i]))+" "+d.paint(cpu.state(), d.left(cpu.flag(), 1)))
		}
		d.line(strings.Join(line, " "))
	}
}

// flag is a letter of what is special about a CPU now: drops, ksoftirqd, isolated.
func (c *CPU) flag() string {
	switch {
	case c.Dropped > 0:
		return "d"
	case c.Ksoftirqd > 0.5 && c.Receive > 0.05:
		return "k"
	case c.Isolated:
		return "i"
	}
	return mark(c.state())
}

// cpuHistory is the receive shares of CPUs in the last shots, oldest first; -1 before there were any.
func (d *drawing) cpuHistory(list []CPU, width int) [][]float64 {
	oldest, _ := d.history.Bounds()
	at := d.position()
	row := map[int]int{}
	out := make([][]float64, len(list))
	for i := range list {
		row[list[i].ID] = i
		out[i] = make([]float64, width)
	}
	for x := range width {
		for i := range out {
			out[i][x] = Unknown
		}
		n := at - (width - 1 - x)
		if n < oldest {
			continue
		}
		shot := d.history.At(n)
		for i := range shot.CPUs {
			if r, ok := row[shot.CPUs[i].ID]; ok {
				out[r][x] = shot.CPUs[i].Receive
			}
		}
	}
	return out
}

// column of the queues' table.
type column struct {
	head  string
	width int
	from  int // least width of the screen
	left  bool
	text  func(d *drawing, q *Queue) string
}

const (
	barHead  = "\x00bar"
	nameHead = "queue"
)

var columns = []column{
	{nameHead, 0, 0, true, func(d *drawing, q *Queue) string { return d.queueName(q) }},
	{"irq", 4, 0, false, func(d *drawing, q *Queue) string { return number(q.IRQ) }},
	{"irq on", 9, 120, false, func(d *drawing, q *Queue) string { return orDash(q.Wanted) }},
	{"cpu", 5, 0, false, func(d *drawing, q *Queue) string { return q.cpuText() }},
	{"node", 4, 0, false, func(d *drawing, q *Queue) string { return d.nodeText(q) }},
	{"pkt/s", 6, 0, false, func(d *drawing, q *Queue) string { return count(q.PPS) }},
	{"time", 5, 0, false, func(d *drawing, q *Queue) string { return percent(q.Time) }},
	{barHead, 16, 100, true, nil},
	{"ns/pkt", 6, 0, false, func(d *drawing, q *Queue) string { return count(q.PerPacket) }},
	{"p99", 6, 0, false, func(d *drawing, q *Queue) string { return d.duration(q.P99) }},
	{"full", 5, 0, false, func(d *drawing, q *Queue) string { return percent(q.Full) }},
	{"drop/s", 6, 0, false, func(d *drawing, q *Queue) string { return count(q.Drops) }},
	{"busy/s", 6, 120, false, func(d *drawing, q *Queue) string { return count(q.BusyPolls) }},
	{"napi", 6, 120, false, func(d *drawing, q *Queue) string {
		if q.NAPI == 0 {
			return "-"
		}
		return fmt.Sprint(q.NAPI)
	}},
}

func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

// cpuText is the CPU that polled most, with a plus where others did too.
func (q *Queue) cpuText() string {
	if q.CPUs > 1 {
		return number(q.CPU) + "+" + fmt.Sprint(min(q.CPUs-1, 99))
	}
	return number(q.CPU)
}

// nodeText is the device's node, and that of the CPU where it is another: packets cross over.
func (d *drawing) nodeText(q *Queue) string {
	if q.Node >= 0 && q.CPUNode >= 0 && q.Node != q.CPUNode {
		return number(q.Node) + d.differs + number(q.CPUNode)
	}
	return number(q.Node)
}

func (d *drawing) queueName(q *Queue) string {
	name := q.name()
	if q.Foreign {
		name = fmt.Sprintf("%d:", q.Netns%100000) + name
	}
	if q.Thread {
		name += " (thread)"
	}
	return d.clean(name)
}

func (d *drawing) queues(s *Shot, room int) {
	rows := d.rows()
	heading := "queues by " + orders[d.order].name
	if d.reverse {
		heading += ", least first"
	}
	for _, f := range []struct{ what, is string }{{"device ", d.device}, {"/", d.filter}} {
		if f.is != "" || f.what == "/" && d.typing {
			heading += "  " + f.what + d.clean(f.is)
		}
	}
	if d.typing {
		heading += "_"
	}
	if d.netns != 0 {
		heading += fmt.Sprintf("  netns %d", d.netns)
	}
	room -= 2 // the rule and the heads
	first := 0
	if d.chosen {
		first = max(0, d.cursor(rows)-room+1)
	}
	note := ""
	if !s.Seen.IsZero() {
		note = "seen " + ago(s.End.Sub(s.Seen)) + " (--overhead)"
	}
	if len(rows) > room {
		note = strings.TrimLeft(note+fmt.Sprintf("  %d-%d of %d", first+1, min(first+room, len(rows)), len(rows)), " ")
	}
	d.ruled(heading, note)
	show := d.columns()
	var heads []string
	for _, c := range show {
		h := c.head
		if h == barHead {
			h = ""
		}
		if h == "p99" && slices.ContainsFunc(rows, func(q Queue) bool { return q.Stage }) {
			h = "p99way" // of packets' whole way, where they were followed
		}
		if c.left {
			heads = append(heads, d.left(h, c.width))
		} else {
			heads = append(heads, d.right(h, c.width))
		}
	}
	d.line(d.paint(faint, "  "+strings.Join(heads, " ")))
	if len(rows) == 0 {
		d.line(d.paint(faint, "  no queue matches; esc shows all"))
	}
	for i := first; i < min(first+room, len(rows)); i++ {
		d.queueRow(&rows[i], show)
	}
}

func (d *drawing) queueRow(q *Queue, show []column) {
	p := q.state()
	here := d.chosen && q.identity() == d.selected
	lead := mark(p)
	if here {
		lead = d.pointer
	}
	cells := []string{}
	for _, c := range show {
		switch {
		case c.head == barHead && here:
			cells = append(cells, d.plainMeter(q.Time, c.width))
		case c.head == barHead:
			cells = append(cells, d.meter(q.Time, c.width))
		case c.left:
			cells = append(cells, d.paintCell(p, here, d.left(c.text(d, q), c.width)))
		default:
			cells = append(cells, d.paintCell(p, here, d.right(c.text(d, q), c.width)))
		}
	}
	line := d.paintCell(p, here, lead) + " " + strings.Join(cells, " ")
	if here {
		line = d.paint(chosen, d.left(line, d.width))
	}
	d.line(line)
}

// paintCell leaves the row under the cursor to be painted as a whole.
func (d *drawing) paintCell(p paint, here bool, s string) string {
	if here {
		return s
	}
	return d.paint(p, s)
}

func (d *drawing) plainMeter(ratio float64, width int) string {
	n := int(math.Round(min(max(ratio, 0), 1) * float64(width)))
	return strings.Repeat(d.receive, n) + strings.Repeat(d.rest, width-n)
}

// columns are those that the screen is wide enough for; the name takes what is left, and bars share it.
func (d *drawing) columns() []column {
	var out []column
	left := d.width - 2
	for _, c := range columns {
		if d.width < c.from {
			continue
		}
		out = append(out, c)
		left -= c.width + 1
	}
	left++ // no blank after the last
	for i := range out {
		switch out[i].head {
		case nameHead:
			out[i].width = min(max(left, 8), 40)
			left -= out[i].width
		case barHead:
			out[i].width += max(0, min(left, 40))
		}
	}
	return out
}

func (d *drawing) timeline() {
	oldest, newest := d.history.Bounds()
	if newest < oldest {
		d.line("")
		return
	}
	zone := d.opts.Zone
	from, to := d.history.At(oldest).End.In(zone).Format(time.TimeOnly), d.history.At(newest).End.In(zone).Format(time.TimeOnly)
	width := d.width - len(from) - len(to) - 2
	n := newest - oldest + 1
	cells := min(n, width)
	values := make([]float64, cells)
	column := func(i int) int { return (i - oldest) * cells / n }
	for i := oldest; i <= newest; i++ {
		c := column(i)
		values[c] = max(values[c], d.history.Heat(i))
	}
	at := column(d.position())
	before, after := values[:at], values[at+1:]
	line := d.paint(faint, from) + " " + d.heatLine(before)
	if d.follow {
		line += d.heatLine(values[at : at+1])
	} else {
		line += d.paint(chosen, d.mark)
	}
	d.line(line + d.heatLine(after) + strings.Repeat(" ", width-cells) + " " + d.paint(faint, to))
}

// heatLine is a spark line whose hot parts are painted.
func (d *drawing) heatLine(values []float64) string {
	var b strings.Builder
	for i := 0; i < len(values); {
		j := i
		for j < len(values) && heat(values[j]) == heat(values[i]) {
			j++
		}
		b.WriteString(d.paint(heat(values[i]), d.spark(values[i:j])))
		i = j
	}
	return b.String()
}

func (d *drawing) keys() {
	keys := "? help  q quit  space pause  ←→ time  s sort  / filter  d device  tab panel  enter zoom  ↑↓ select"
	switch {
	case d.typing:
		keys = "type to filter  enter keep  esc clear"
	case d.zoom:
		keys = "↑↓ scroll  tab next panel  enter back  q back  ? help"
	case d.opts.Recording:
		keys = "? help  q quit  space play  ←→ [] step  home end  s sort  / filter  d device  tab panel  enter zoom  ↑↓ select"
	}
	if !d.opts.UTF8 {
		keys = strings.NewReplacer("←→", "arrows", "↑↓", "arrows").Replace(keys)
	}
	for width(keys) > d.width { // whole hints only; help names all
		keys = keys[:max(0, strings.LastIndex(keys, "  "))]
	}
	d.fill(d.height - 1)
	d.line(d.paint(faint, keys))
}

const helpText = `What you see
  line 2    the queue and CPU that hurt most, or that none does
  CPUs      share of each CPU's time in receive softirq: now, and before
            d backlog drops, k in ksoftirqd, i isolated
  queues    ! has nothing to spare or drops, * is near its limit
  irq cpu   its interrupt; the CPU that polled most, +N others did too
  node      of the device; 0≠1: it is polled on another node
  time      of one CPU; ns/pkt: cost per packet
  p99       99 of 100 polls are shorter; p99way: packets, driver to reader
  full      polls that ended because their budget was used up
  drop/s    lost for want of a descriptor; - not counted by queue
  last line heat of the hottest CPU over the time kept, and where you are

Keys
  space     pause, play          ← → [ ]    step by 1, by 10
  home end  oldest, newest       ↑ ↓        select, scroll
  s S r     sort, back, reverse  tab enter  next panel, zoom it
  d n       device, namespace    / esc      filter: name, cpu 3, irq 28; clear
  q         quit

any key closes this`

func (d *drawing) helpScreen() {
	text := helpText
	if !d.opts.UTF8 {
		text = ascii.Replace(text)
	}
	for l := range strings.Lines(text) {
		l = strings.TrimRight(l, "\n")
		if l != "" && !strings.HasPrefix(l, " ") {
			l = d.paint(title, l)
		}
		d.line(l)
	}
}

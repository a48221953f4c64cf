package top

import (
	"fmt"
	"strings"

	"github.com/rxsteer/rxsteer/steer/diagnose"
)

// panelShort is the panel in so many lines, its rule included.
func (d *drawing) panelShort(s *Shot, room int) {
	if room < 2 {
		return
	}
	lines := d.panelLines(s, true)
	note := "tab: " + panelNames[(d.panel+1)%panels]
	if len(lines) > room-1 {
		note = fmt.Sprintf("%d more: enter  ", len(lines)-room+1) + note
	}
	d.ruled(d.panelHeading(s), note)
	for _, l := range lines[:min(len(lines), room-1)] {
		d.line(l)
	}
}

// panelFull is the panel on the whole screen.
func (d *drawing) panelFull() {
	s := d.Shot()
	if s == nil {
		return
	}
	lines := d.panelLines(s, false)
	room := d.height - len(d.lines) - 2
	first := min(d.scroll, max(0, len(lines)-room))
	d.Model.scroll = first
	note := ""
	if len(lines) > room {
		note = fmt.Sprintf("lines %d-%d of %d", first+1, min(first+room, len(lines)), len(lines))
	}
	d.ruled(d.panelHeading(s), note)
	for _, l := range lines[first:min(first+room, len(lines))] {
		d.line(l)
	}
}

func (d *drawing) panelHeading(s *Shot) string {
	switch d.panel {
	case Findings:
		if r := d.history.Report(d.position()); r != nil && len(r.Findings) > 0 {
			return fmt.Sprintf("findings (%d)", len(r.Findings))
		}
	case Elephants:
		if s.Sockets {
			return "busiest TCP connections (all flows: level 2)"
		}
	}
	return panelNames[d.panel]
}

func (d *drawing) panelLines(s *Shot, short bool) []string {
	switch d.panel {
	case Elephants:
		return d.elephants(s)
	case Set:
		return d.sideBySide(short)
	}
	return d.findings(d.history.Report(d.position()), short)
}

var severityPaint = map[diagnose.Severity]paint{diagnose.Info: faint, diagnose.Warning: near, diagnose.Critical: bad}

func (d *drawing) findings(r *diagnose.Report, short bool) []string {
	if r == nil {
		return []string{d.paint(faint, "not judged yet: that takes a few seconds")}
	}
	var out []string
	if len(r.Findings) == 0 {
		out = append(out, d.paint(good, "none. Looked at:"))
	}
	for i := range r.Findings {
		f := &r.Findings[i]
		p := severityPaint[f.Severity]
		head := fmt.Sprintf("%s %-8s %s: ", f.ID, f.Severity, d.clean(f.Subject))
		if short {
			out = append(out, d.paint(p, head)+d.fit(d.clean(f.Summary), d.width-width(head)))
			continue
		}
		for j, l := range d.wrap("", d.clean(head+f.Summary), "  ", d.width) {
			if j == 0 {
				l = d.paint(p, l)
			}
			out = append(out, l)
		}
		for _, fact := range f.Evidence {
			out = append(out, d.paint(faint, "    "+d.clean(strings.ReplaceAll(fact.Name, "_", " ")+"  "))+d.clean(fact.Text()))
		}
		if f.Remedy != "" {
			out = append(out, d.wrap("  ", d.clean("remedy: "+f.Remedy), "    ", d.width)...)
		}
		out = append(out, d.paint(faint, fmt.Sprintf("  more: rxsteer explain %s", f.ID)), "")
	}
	if len(r.Findings) > 0 && !short && len(r.Checked) > 0 {
		out = append(out, d.paint(title, "looked at besides"))
	}
	for _, c := range r.Checked {
		switch {
		case !short:
			out = append(out, d.wrap("  ", d.clean(c), "    ", d.width)...)
		case len(r.Findings) == 0:
			out = append(out, d.fit("  "+d.clean(c), d.width))
		}
	}
	return out
}

func (d *drawing) elephants(s *Shot) []string {
	if len(s.Flows) == 0 {
		if s.Level < 2 {
			return []string{d.paint(faint, "flows are seen at level 2; no busy TCP connection ends here")}
		}
		return []string{d.paint(faint, "none; followed are flows of hardware, or of the interfaces named: rxsteer top IFACE")}
	}
	out := []string{d.paint(faint, "  "+d.right("bit/s", 6)+" "+d.right("pkt/s", 6)+" "+d.right("share", 5)+" "+d.left("queue", 16)+" "+d.right("cpu", 4)+" "+d.right("read", 4)+"  "+d.left("process", 10)+" flow")}
	var all float64
	for i := range s.Flows {
		all += s.Flows[i].PPS
	}
	for i := range s.Flows {
		f := &s.Flows[i]
		p := plain
		if f.Share >= 0.5 && f.PPS >= all/10 { // alone in a queue that does little is no elephant
			p = near
		}
		queue := "-"
		if f.Device != "" {
			queue = f.Device
			if f.RX >= 0 {
				queue += fmt.Sprintf(" rx %d", f.RX)
			}
		}
		out = append(out, d.paint(p, d.left(mark(p), 2)+d.right(count(f.Bits), 6)+" "+d.right(count(f.PPS), 6)+" "+d.right(percent(f.Share), 5)+" "+
			d.left(d.clean(queue), 16)+" "+d.right(number(f.CPU), 4)+" "+d.right(number(f.Consumer), 4))+"  "+d.left(orDash(d.clean(f.Process)), 10)+" "+d.clean(f.Name))
	}
	return out
}

// sideBySide is a column per device; a row whose values differ is marked.
func (d *drawing) sideBySide(short bool) []string {
	set := &d.settings
	if len(set.Devices) == 0 {
		return []string{d.paint(faint, "not read")}
	}
	show := []int{}
	for j, dev := range set.Devices {
		if d.device == "" || d.device == dev {
			show = append(show, j)
		}
	}
	const label = 12
	least := 24
	if !short {
		least = 30
	}
	fits := max(1, (d.width-label-3)/least)
	hidden := max(0, len(show)-fits)
	show = show[:min(len(show), fits)]
	if len(show) == 0 {
		return []string{d.paint(faint, "nothing is known of "+d.clean(d.device))}
	}
	width := (d.width-label-3)/len(show) - 1
	head := "   " + d.left("", label)
	for _, j := range show {
		head += " " + d.left(d.clean(set.Devices[j]), width)
	}
	if hidden > 0 {
		head = d.fit(head, d.width-14) + fmt.Sprintf(" +%d more (d)", hidden)
	}
	out := []string{d.paint(faint, head)}
	for i, l := range set.Labels {
		differs := false
		lines := make([][]string, len(show))
		rows := 1
		for x, j := range show {
			v := set.Values[i][j]
			differs = differs || v != set.Values[i][show[0]]
			lines[x] = []string{d.fit(orDash(d.clean(v)), width)}
			if !short {
				lines[x] = d.wrap("", orDash(d.clean(v)), "", width)
			}
			rows = max(rows, len(lines[x]))
		}
		for r := range rows {
			lead, name := "   ", ""
			if r == 0 {
				name = l
				if differs {
					lead = d.left(d.differs, 2) + " "
				}
			}
			line := d.paint(near, lead) + d.paint(title, d.left(name, label))
			for x := range show {
				cell := ""
				if r < len(lines[x]) {
					cell = lines[x][r]
				}
				line += " " + d.left(cell, width)
			}
			out = append(out, strings.TrimRight(line, " "))
		}
	}
	return out
}

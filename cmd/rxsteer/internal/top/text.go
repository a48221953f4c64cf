package top

import (
	"fmt"
	"math"
	"strings"
	"unicode"
	"unicode/utf8"

	"charm.land/lipgloss/v2"
	"github.com/charmbracelet/x/ansi"
)

// glyphs are what bars and lines are drawn with.
type glyphs struct {
	receive, interrupt, busy, rest string
	eighths                        []string // of a receive bar's last cell, without 0 and 8
	spark                          []string // from nothing to full
	rule, pointer, mark            string
	micro, cut, differs            string
}

var unicodeGlyphs = glyphs{
	receive: "█", interrupt: "▒", busy: "░", rest: "·",
	eighths: []string{"▏", "▎", "▍", "▌", "▋", "▊", "▉"},
	spark:   []string{"▁", "▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"},
	rule:    "─", pointer: "▶", mark: "┃", micro: "µs", cut: "…", differs: "≠",
}

var asciiGlyphs = glyphs{
	receive: "#", interrupt: "=", busy: "-", rest: ".",
	spark: []string{"_", "_", ".", ":", "-", "=", "+", "*", "#"},
	rule:  "-", pointer: ">", mark: "|", micro: "us", cut: "~", differs: "!=",
}

// width of a text in columns.
func width(s string) int {
	n := 0
	for i, painting := 0, false; i < len(s); {
		r, size := rune(s[i]), 1
		if r >= utf8.RuneSelf {
			r, size = utf8.DecodeRuneInString(s[i:])
		}
		switch {
		case painting: // of a style, "\x1b[…m"
			painting = r != 'm'
		case r == '\x1b':
			painting = true
		case r >= ' ' && r < 0x7f, r == '·', r == 'µ', r == '…', r == '≠', r >= '─' && r <= '▟':
			n++ // as nearly all are
		default:
			return ansi.StringWidth(s)
		}
		i += size
	}
	return n
}

// paint is a role of text; without colour all are plain.
type paint int

const (
	plain paint = iota
	bad
	near
	good
	faint
	strong
	title
	chosen
	accent
)

// styles are what a role's text is put between; a frame has hundreds of them, so they are rendered once.
var styles = func() (out [accent + 1][2]string) {
	for p, s := range roles {
		out[p][0], out[p][1], _ = strings.Cut(s.Render("x"), "x")
	}
	return out
}()

var roles = [...]lipgloss.Style{
	plain:  lipgloss.NewStyle(),
	bad:    lipgloss.NewStyle().Bold(true).Foreground(lipgloss.Red),
	near:   lipgloss.NewStyle().Foreground(lipgloss.Yellow),
	good:   lipgloss.NewStyle().Foreground(lipgloss.Green),
	faint:  lipgloss.NewStyle().Foreground(lipgloss.BrightBlack),
	strong: lipgloss.NewStyle().Bold(true),
	title:  lipgloss.NewStyle().Foreground(lipgloss.Cyan),
	chosen: lipgloss.NewStyle().Reverse(true),
	accent: lipgloss.NewStyle().Foreground(lipgloss.Blue),
}

// drawing is one frame being made.
type drawing struct {
	*Model
	glyphs
	lines []string
}

func (m *Model) drawing() *drawing {
	d := &drawing{Model: m, glyphs: asciiGlyphs}
	if m.opts.UTF8 {
		d.glyphs = unicodeGlyphs
	}
	return d
}

func (d *drawing) paint(p paint, s string) string {
	if !d.opts.Color || p == plain || s == "" {
		return s
	}
	return styles[p][0] + s + styles[p][1]
}

// line appends a line, cut to the screen.
func (d *drawing) line(s string) {
	if width(s) > d.width {
		s = ansi.Truncate(s, d.width, d.cut)
	}
	d.lines = append(d.lines, s)
}

// ruled is a line across the screen with a heading in it, and a note at its right end.
func (d *drawing) ruled(heading, note string) {
	left := strings.Repeat(d.rule, 2) + " "
	room := d.width - len([]rune(left)) - 1
	heading = d.fit(heading, room)
	room -= width(heading)
	if note = d.fit(note, room-4); note != "" {
		note = " " + note + " " + d.rule
	}
	fill := strings.Repeat(d.rule, max(0, room-width(note)))
	d.line(d.paint(faint, left) + d.paint(title, heading) + d.paint(faint, " "+fill+note))
}

// ascii spells the signs that our own texts use.
var ascii = strings.NewReplacer("→", "->", "←", "<-", "↑", "up", "↓", "down", "…", "...", "≠", "!=", "µ", "u", "×", "x", "≥", ">=", "≤", "<=", "–", "-", "·", ".", "±", "+-", "↔", "<->")

// clean makes a text safe that holds names of others: control characters, and those that turn the direction
// of text or have no width, become "?"; without UTF-8 all that is not ASCII does.
func (d *drawing) clean(s string) string {
	if !d.opts.UTF8 {
		s = ascii.Replace(s)
	}
	return strings.Map(func(r rune) rune {
		if r == unicode.ReplacementChar || !unicode.IsPrint(r) || !d.opts.UTF8 && r > 0x7e {
			return '?'
		}
		return r
	}, s)
}

// fit cuts to a width; nothing fits into none.
func (d *drawing) fit(s string, cols int) string {
	if cols <= 0 {
		return ""
	}
	if width(s) <= cols {
		return s
	}
	return ansi.Truncate(s, cols, d.cut)
}

func (d *drawing) left(s string, cols int) string {
	s = d.fit(s, cols)
	return s + strings.Repeat(" ", max(0, cols-width(s)))
}

func (d *drawing) right(s string, cols int) string {
	s = d.fit(s, cols)
	return strings.Repeat(" ", max(0, cols-width(s))) + s
}

// bar is receive, then interrupts, then other work, of a width that is 1.
func (d *drawing) bar(c *CPU, width int) string {
	cells := c.Receive * float64(width)
	full := int(cells)
	receive := strings.Repeat(d.receive, full)
	if n := len(d.eighths); n > 0 && full < width {
		if e := int((cells - float64(full)) * float64(n+1)); e > 0 {
			receive += d.eighths[e-1]
		}
	} else if n == 0 && cells-float64(full) >= 0.5 {
		receive += d.receive
	}
	used := len([]rune(receive))
	part := func(ratio float64, glyph string) string {
		n := min(int(math.Round(ratio*float64(width))), width-used)
		used += n
		return strings.Repeat(glyph, n)
	}
	interrupt := part(c.Interrupt, d.interrupt)
	busy := part(c.Busy+c.Steal, d.busy)
	return d.paint(heat(c.Receive), receive) + d.paint(accent, interrupt) + d.paint(faint, busy+strings.Repeat(d.rest, width-used))
}

// meter is a ratio as a bar.
func (d *drawing) meter(ratio float64, width int) string {
	if ratio < 0 {
		return strings.Repeat(" ", width)
	}
	return d.bar(&CPU{Receive: min(ratio, 1)}, width)
}

// spark is values 0…1 as a line of that width, the newest at the right; less than nothing is a gap.
func (d *drawing) spark(values []float64) string {
	var b strings.Builder
	for _, v := range values {
		if v < 0 {
			b.WriteString(" ")
			continue
		}
		b.WriteString(d.glyphs.spark[min(int(math.Ceil(v*8-0.05)), 8)])
	}
	return b.String()
}

// heat is how a share of a CPU is painted.
func heat(ratio float64) paint {
	switch {
	case ratio >= hot:
		return bad
	case ratio >= warm:
		return near
	}
	return good
}

// count is a number in five columns: 950, 12.3k, 1.20M, "-" unknown.
func count(v float64) string {
	switch {
	case v < 0:
		return "-"
	case v >= 9.995e8:
		return fmt.Sprintf("%.2fG", v/1e9)
	case v >= 9.995e5:
		return fmt.Sprintf("%.2fM", v/1e6)
	case v >= 99950:
		return fmt.Sprintf("%.0fk", v/1e3)
	case v >= 9999.5:
		return fmt.Sprintf("%.1fk", v/1e3)
	case v > 0 && v < 0.95:
		return fmt.Sprintf("%.1f", v)
	}
	return fmt.Sprintf("%.0f", v)
}

// duration of so many ns in six columns.
func (d *drawing) duration(ns float64) string {
	switch {
	case ns < 0:
		return "-"
	case ns >= 9.995e8:
		return fmt.Sprintf("%.1fs", ns/1e9)
	case ns >= 9.995e5:
		return fmt.Sprintf("%.1fms", ns/1e6)
	case ns >= 999.5:
		return fmt.Sprintf("%.0f%s", ns/1e3, d.micro)
	}
	return fmt.Sprintf("%.0fns", ns)
}

func percent(ratio float64) string {
	switch {
	case ratio < 0:
		return "-"
	case ratio > 0 && ratio < 0.0995:
		return fmt.Sprintf("%.1f%%", 100*ratio)
	}
	return fmt.Sprintf("%.0f%%", 100*ratio)
}

func number(n int) string {
	if n < 0 {
		return "-"
	}
	return fmt.Sprint(n)
}

// wrap breaks prose at blanks; the first line begins with first, the others with indent.
func (d *drawing) wrap(first, text, indent string, cols int) []string {
	var out []string
	line := ""
	for _, word := range strings.Fields(text) {
		switch {
		case line == "":
			line = first + word
		case width(line)+1+width(word) > cols:
			out = append(out, line)
			line = indent + word
		default:
			line += " " + word
		}
	}
	return append(out, line)
}

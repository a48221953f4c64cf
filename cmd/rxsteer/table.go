package main

import (
	"fmt"
	"io"
	"strings"
	"unicode/utf8"
)

// table is aligned text. A heading that begins with ">" makes its column
// right-aligned. Empty cells show as "-".
type table struct {
	indent string
	head   []string
	rows   [][]string
}

func newTable(indent string, head ...string) *table { return &table{indent: indent, head: head} }

func (t *table) row(cells ...string) {
	for i := range cells {
		cells[i] = printable(cells[i])
	}
	t.rows = append(t.rows, cells)
}

func (t *table) print(w io.Writer, p palette) {
	width := make([]int, len(t.head))
	right := make([]bool, len(t.head))
	head := make([]string, len(t.head))
	for i, h := range t.head {
		head[i], right[i] = strings.CutPrefix(h, ">")
		width[i] = utf8.RuneCountInString(head[i])
	}
	for _, r := range t.rows {
		for i, c := range r {
			if c == "" {
				r[i] = "-"
			}
			width[i] = max(width[i], utf8.RuneCountInString(r[i]))
		}
	}
	line := func(cells []string, paint func(string) string) {
		var b strings.Builder
		for i, c := range cells {
			pad := strings.Repeat(" ", width[i]-utf8.RuneCountInString(c))
			if i > 0 {
				b.WriteString("  ")
			}
			switch {
			case right[i]:
				b.WriteString(pad + c)
			case i == len(cells)-1:
				b.WriteString(c)
			default:
				b.WriteString(c + pad)
			}
		}
		fmt.Fprintln(w, t.indent+paint(strings.TrimRight(b.String(), " ")))
	}
	line(head, p.dim)
	for _, r := range t.rows {
		line(r, func(s string) string { return s })
	}
}

// palette paints text for a terminal; the zero palette paints nothing.
type palette struct{ on bool }

// palette paints only on a terminal, and not when NO_COLOR is set (no-color.org).
func (e *env) palette() palette {
	return palette{on: e.stdoutTTY && e.getenv("NO_COLOR") == "" && e.getenv("TERM") != "dumb"}
}

func (p palette) paint(code, s string) string {
	if s = printable(s); !p.on || s == "" {
		return s
	}
	return "\x1b[" + code + "m" + s + "\x1b[0m"
}

func (p palette) bold(s string) string   { return p.paint("1", s) }
func (p palette) dim(s string) string    { return p.paint("2", s) }
func (p palette) red(s string) string    { return p.paint("31", s) }
func (p palette) yellow(s string) string { return p.paint("33", s) }
func (p palette) green(s string) string  { return p.paint("32", s) }

// wrap breaks text at blanks so that no line is wider than width; the first line begins with
// first, the others with rest.
func wrap(w io.Writer, width int, first, rest, text string) {
	line, n := first, utf8.RuneCountInString(first)
	empty := true
	for _, word := range strings.Fields(text) {
		word = printable(word)
		l := utf8.RuneCountInString(word)
		if !empty && n+1+l > width {
			fmt.Fprintln(w, line)
			line, n, empty = rest, utf8.RuneCountInString(rest), true
		}
		if !empty {
			line += " "
			n++
		}
		line += word
		n += l
		empty = false
	}
	fmt.Fprintln(w, line)
}

// printable replaces control characters: names come from others.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r >= 0x7f && r < 0xa0 {
			return '?'
		}
		return r
	}, s)
}

// textWidth is how wide prose may be: readable, and inside the terminal.
func (e *env) textWidth() int { return min(e.width, defaultWidth) }

package flame

import (
	"bufio"
	_ "embed"
	"encoding/xml"
	"fmt"
	"hash/fnv"
	"io"
	"math"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// script zooms and searches; see flame.js.
//
//go:embed flame.js
var script string

//go:embed flame.css
var style string

// Geometry in pixels.
const (
	svgWidth  = 1200
	margin    = 10
	header    = 54
	rowHeight = 17
	letter    = 7.2 // of the 12 px monospace font
	tooThin   = 0.15
)

type box struct {
	x, w  float64
	depth int
	node  *Node
}

// WriteSVG draws the tree as a flame graph: a box is as wide as its function's share, its callers are
// below. Against a base red boxes grew and blue ones shrank, the more the deeper their colour. Clicking a box
// zooms, "/" searches. The file refers to nothing outside it, and names in it are escaped.
func (t *Tree) WriteSVG(w io.Writer, title string) error {
	boxes, depth := t.layout()
	height := header + (depth+1)*rowHeight + 2*margin + rowHeight
	b := bufio.NewWriter(w)
	fmt.Fprintf(b, `<?xml version="1.0" encoding="UTF-8"?>
<svg xmlns="http://www.w3.org/2000/svg" version="1.1" width="%d" height="%d" viewBox="0 0 %d %d" role="img" aria-label="%s">
<style>%s</style>
<rect class="back" width="100%%" height="100%%"/>
<text class="title" x="%d" y="24">%s</text>
<text class="sub" x="%d" y="42">%s</text>
<text class="link" id="reset" x="%d" y="24">reset zoom</text>
<text class="link" id="search" x="%d" y="24">search (/)</text>
<text class="sub" id="matched" x="%d" y="42"></text>
<g id="boxes">
`, svgWidth, height, svgWidth, height, escape(title), cdata(style), margin, escape(title), margin, escape(t.subtitle()), svgWidth-200, svgWidth-90, svgWidth-200)
	for _, x := range boxes {
		t.writeBox(b, x, depth)
	}
	fmt.Fprintf(b, "</g>\n<text class=\"sub\" id=\"detail\" x=\"%d\" y=\"%d\"></text>\n<script>%s</script>\n</svg>\n", margin, height-margin, cdata(script))
	if err := b.Flush(); err != nil {
		return fmt.Errorf("write flame graph: %w", err)
	}
	return nil
}

func (t *Tree) subtitle() string {
	if t.Ticks == 0 {
		return "no tick met a CPU that receives"
	}
	s := fmt.Sprintf("%s of one CPU, %d ticks", percent(t.Root.Share), t.Ticks)
	if t.Against {
		s += fmt.Sprintf("; before: %s. Red grew, blue shrank; what vanished has no width.", percent(t.Root.Base))
	}
	return s
}

func (t *Tree) layout() (boxes []box, depth int) {
	if t.Root.Share <= 0 {
		return nil, 0
	}
	scale := (svgWidth - 2*margin) / t.Root.Share
	var walk func(n *Node, x float64, d int)
	walk = func(n *Node, x float64, d int) {
		w := n.Share * scale
		if w < tooThin {
			return
		}
		depth = max(depth, d)
		boxes = append(boxes, box{x, w, d, n})
		for _, c := range n.Children {
			walk(c, x, d+1)
			x += c.Share * scale
		}
	}
	walk(t.Root, margin, 0)
	return boxes, depth
}

func (t *Tree) writeBox(w io.Writer, x box, depth int) {
	n := x.node
	y := header + (depth-x.depth)*rowHeight
	text := fmt.Sprintf("%s: %s of one CPU, %s of all", n.Name, percent(n.Share), percent(n.Share/t.Root.Share))
	fill := warm(n.Name)
	if t.Against {
		text += fmt.Sprintf("; before %s of one CPU (%+.1f points)", percent(n.Base), 100*(n.Share-n.Base))
		fill = change(n.Share-n.Base, t.Root.Share)
	}
	fmt.Fprintf(w, `<g class="f" tabindex="0"><title>%s</title><rect x="%.2f" y="%d" width="%.2f" height="%d" fill="%s" rx="1"/><text x="%.2f" y="%d" data-n="%s">%s</text></g>`+"\n",
		escape(text), x.x, y, max(x.w-0.4, tooThin), rowHeight-1, fill, x.x+3, y+12, escape(n.Name), escape(fit(n.Name, x.w)))
}

// fit cuts a name to what a box of that width shows.
func fit(name string, width float64) string {
	letters := int((width - 6) / letter)
	switch {
	case utf8.RuneCountInString(name) <= letters:
		return name
	case letters < 3:
		return ""
	}
	return string([]rune(name)[:letters-1]) + "…"
}

// warm is a colour between yellow and red that depends on the name; BPF programs are green, queues and CPUs grey.
func warm(name string) string {
	h := fnv.New32a()
	io.WriteString(h, name)
	v := h.Sum32()
	switch {
	case strings.HasPrefix(name, "bpf:"):
		return fmt.Sprintf("hsl(%d,55%%,62%%)", 110+v%30)
	case strings.ContainsRune(name, ' ') || slices.Contains([]string{"receiving", "backlog"}, name):
		return "hsl(215,14%,74%)"
	}
	return fmt.Sprintf("hsl(%d,%d%%,%d%%)", 12+v%38, 72+v/64%16, 62+v/1024%10)
}

// change is red for growth and blue for the opposite, full at a tenth of all.
func change(by, all float64) string {
	strength := math.Min(math.Abs(by)/(0.1*all), 1)
	if strength < 0.02 {
		return "hsl(0,0%,85%)"
	}
	hue := 4
	if by < 0 {
		hue = 216
	}
	return fmt.Sprintf("hsl(%d,80%%,%.0f%%)", hue, 88-30*strength)
}

func percent(ratio float64) string { return fmt.Sprintf("%.1f %%", 100*ratio) }

// visible has what turns the direction of text or has no width seen.
func visible(r rune) rune {
	if unicode.Is(unicode.Cf, r) {
		return unicode.ReplacementChar
	}
	return r
}

func escape(s string) string {
	var b strings.Builder
	xml.EscapeText(&b, []byte(strings.Map(visible, s))) // a Builder does not fail
	return b.String()
}

// cdata wraps what holds < and & of its own; neither file contains "]]>".
func cdata(s string) string { return "<![CDATA[\n" + s + "]]>" }

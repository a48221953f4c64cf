package top

import (
	"bytes"
	"errors"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/charmbracelet/x/ansi"
)

// TestCanvasWritesWhatDiffers: the lines that changed and no others; all of them when the screen was wiped or has another
// size; none while the screen is not ours.
func TestCanvasWritesWhatDiffers(t *testing.T) {
	var out bytes.Buffer
	c := &canvas{out: &out}
	type step struct {
		what  string
		do    func() error
		lines string // that are written, by number; "" none
		wipes bool
	}
	frame := func(text string) func() error { return func() error { return c.Show(text) } }
	write := func(text string) func() error { return func() error { _, err := c.Write([]byte(text)); return err } }
	for _, s := range []step{
		{"before the screen is ours", frame("a\nb\nc"), "", false},
		{"bubbletea takes the screen", write(ansi.SetModeAltScreenSaveCursor + "\x1b[?25l"), "1a 2b 3c", true},
		{"the same again", frame("a\nb\nc"), "", false},
		{"one line", frame("a\nB\nc"), "2B", false},
		{"fewer lines", frame("a\nB"), "", true},
		{"more lines", frame("a\nB\nx\ny"), "3x 4y", false},
		{"bubbletea wipes", write("\x1b[2J"), "1a 2B 3x 4y", true},
		{"another size", func() error { c.Clear(); return c.Show("p\nq") }, "1p 2q", true},
		{"bubbletea gives the screen back", write("bye" + ansi.ResetModeAltScreenSaveCursor), "", false},
		{"after that", frame("z"), "", false},
		{"and takes it again", write(ansi.SetModeAltScreenSaveCursor), "1z", true},
	} {
		t.Run(s.what, func(t *testing.T) {
			out.Reset()
			if err := s.do(); err != nil {
				t.Fatal(err)
			}
			var lines []string
			for _, m := range regexp.MustCompile(`\x1b\[(\d+);1H\x1b\[K([a-zA-Z]*)`).FindAllStringSubmatch(out.String(), -1) {
				lines = append(lines, m[1]+m[2])
			}
			if got := strings.Join(lines, " "); got != s.lines {
				t.Errorf("wrote %q, want %q: %q", got, s.lines, out.String())
			}
			if wiped := strings.Contains(out.String(), ansi.EraseEntireScreen) || strings.Contains(out.String(), ansi.EraseScreenBelow); wiped != s.wipes {
				t.Errorf("wiped: %v, want %v: %q", wiped, s.wipes, out.String())
			}
		})
	}
	if c.out = (*os.File)(nil); !errors.Is(c.Show("lost"), os.ErrInvalid) {
		t.Error("a terminal that is gone takes a frame")
	}
}

// TestWidth: what is counted here is what the library counts.
func TestWidth(t *testing.T) {
	for _, s := range []string{"", "plain", "\x1b[1;31mred\x1b[m", "▁▂▃█▒░·─▶┃µ…≠", "eth0→", "日本", "é", "e\u0301", "👩‍👩‍👧", "\x1b[31", "a\tb", "\x9b31m", "\xff"} {
		if got, want := width(s), ansi.StringWidth(s); got != want {
			t.Errorf("%q is %d wide, want %d", s, got, want)
		}
	}
}

// TestATinyTerminalNamesTheQueues: where the tables do not fit, what hurts and what is busiest does.
func TestATinyTerminalNamesTheQueues(t *testing.T) {
	m := watched(Options{UTF8: true}, 4, 4, 40)
	m.Resize(40, 10)
	for _, want := range []string{"eth0 rx 3 on cpu 3 HURTS", "! eth0 rx 3 on cpu 3", "needs 50x10"} {
		if !strings.Contains(m.Render(), want) {
			t.Errorf("lacks %q:\n%s", want, m.Render())
		}
	}
	fits(t, m, "40x10")
}

package top

import (
	"bytes"
	"fmt"
	"io"
	"strings"
	"sync"

	"github.com/charmbracelet/x/ansi"
)

// canvas puts frames on a terminal of which bubbletea does the rest: modes, size, suspending, giving it back. bubbletea's
// own renderer takes a frame apart into cells and hashes each, 4.4 ms of CPU time at 200x60: more than measuring and
// drawing together. A canvas writes the lines that differ. bubbletea is handed an empty view and writes through the
// canvas, which so knows when the screen is ours and when something has cleared it.
type canvas struct {
	out io.Writer

	mu    sync.Mutex
	ours  bool     // the alternate screen is on
	shown []string // what the lines hold, nil not known
	frame []string // what they should
}

// Show has the screen show a frame.
func (c *canvas) Show(frame string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.frame = strings.Split(frame, "\n")
	return c.paint(nil)
}

// Clear forgets what the screen holds: another size, or somebody else wrote on it.
func (c *canvas) Clear() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.shown = nil
}

// Write takes what bubbletea writes; what it may have wiped is painted again with it.
func (c *canvas) Write(b []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	on, off := bytes.LastIndex(b, []byte(ansi.SetModeAltScreenSaveCursor)), bytes.LastIndex(b, []byte(ansi.ResetModeAltScreenSaveCursor))
	if on >= 0 || off >= 0 {
		c.ours = on > off
	}
	c.shown = nil
	if err := c.paint(b); err != nil {
		return 0, err
	}
	return len(b), nil
}

// paint writes first, and then the lines that differ. A line longer than the screen is cut at its edge.
func (c *canvas) paint(first []byte) error {
	b := bytes.NewBuffer(first[:len(first):len(first)])
	if c.ours && c.frame != nil {
		b.WriteString(ansi.ResetModeAutoWrap)
		if c.shown == nil {
			b.WriteString(ansi.EraseEntireScreen)
		}
		for i, line := range c.frame {
			if i >= len(c.shown) || c.shown[i] != line {
				fmt.Fprintf(b, "\x1b[%d;1H%s%s", i+1, ansi.EraseLineRight, line)
			}
		}
		if len(c.frame) < len(c.shown) {
			fmt.Fprintf(b, "\x1b[%d;1H%s", len(c.frame)+1, ansi.EraseScreenBelow)
		}
		b.WriteString(ansi.SetModeAutoWrap)
		c.shown = c.frame
	}
	if b.Len() == 0 {
		return nil
	}
	_, err := c.out.Write(b.Bytes())
	return err
}

// Fd is what bubbletea asks the terminal's size of.
func (c *canvas) Fd() uintptr {
	if f, ok := c.out.(interface{ Fd() uintptr }); ok {
		return f.Fd()
	}
	return ^uintptr(0) // no terminal
}

// Read and Close make it a file to bubbletea, which does neither with what it writes to.
func (c *canvas) Read([]byte) (int, error) { return 0, io.EOF }
func (c *canvas) Close() error             { return nil }

package main

import (
	"io"
	"os"
	"sync/atomic"
	"testing"

	"github.com/rxsteer/rxsteer/lab/vm/qemu"
)

// Of steps side by side each keeps its lines, in order, and a failed assertion decides.
func TestBesideKeepsLinesAndTheWorstError(t *testing.T) {
	var running, most atomic.Int64
	part := func(what string, code int) step {
		return func() ([]line, error) {
			most.Store(max(most.Load(), running.Add(1)))
			defer running.Add(-1)
			if code == 0 {
				return []line{{what: what}}, nil
			}
			return []line{{what: what}}, &qemu.Failure{Code: code, Line: what}
		}
	}
	for _, tt := range []struct{ maps, kill, want int }{{0, 0, 0}, {0, qemu.ExitTimeout, qemu.ExitTimeout}, {qemu.ExitLab, qemu.ExitAssertion, qemu.ExitAssertion}} {
		lines, err := beside(part("maps", tt.maps), part("persist", 0), part("kill", tt.kill))()
		if got := qemu.ExitCode(err); got != tt.want {
			t.Errorf("exit code %d (%v), want %d", got, err, tt.want)
		}
		if len(lines) != 3 || lines[0].what != "maps" || lines[2].what != "kill" {
			t.Errorf("lines %+v", lines)
		}
	}
	if most.Load() > 2 {
		t.Errorf("%d at once", most.Load())
	}
}

func TestLabelledWritesWholeLines(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout := os.Stdout
	os.Stdout = w
	l := &labelled{name: "kill"}
	for _, part := range []string{"one\ntw", "o\n", "", "cut off"} {
		if n, err := l.Write([]byte(part)); n != len(part) || err != nil {
			t.Errorf("write %q: %d, %v", part, n, err)
		}
	}
	os.Stdout = stdout
	w.Close()
	got, err := io.ReadAll(r)
	if want := "kill: one\nkill: two\n"; err != nil || string(got) != want {
		t.Errorf("got %q (%v), want %q", got, err, want)
	}
}

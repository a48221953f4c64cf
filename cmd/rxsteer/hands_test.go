package main

import (
	"strings"
	"testing"

	"github.com/rxsteer/rxsteer/steer/apply"
	"github.com/rxsteer/rxsteer/steer/control"
)

// TestOneChangeIsJudgedAtATime: a device's write while another's change waits for its judgement is refused, and that one
// can still be kept or undone.
func TestOneChangeIsJudgedAtATime(t *testing.T) {
	open := &apply.Engine{}
	x := &hands{state: newAgentState(nil), pending: "7", engine: open}
	done := x.Do(t.Context(), control.Action{Verb: control.Write, Device: "eth1", Fast: true})
	if done.Written || done.Waits || !strings.Contains(done.Error, "another device") {
		t.Errorf("%+v", done)
	}
	if x.pending != "7" || x.engine != open {
		t.Errorf("pending %q, the engine is closed: %v", x.pending, x.engine != open)
	}
}

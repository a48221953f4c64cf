package collector

import (
	"testing"
	"time"

	"github.com/rxsteer/rxsteer/bpf"
)

// followed is programs of level 2 that count how often they were loaded and are attached.
type followed struct{ loaded, open, attached int }

func (f *followed) Attach() error                             { f.attached++; return nil }
func (f *followed) Detach() error                             { f.attached--; return nil }
func (f *followed) AttachCalibrated() (bpf.PacketCost, error) { return bpf.PacketCost{}, f.Attach() }
func (f *followed) SetRate(uint32) error                      { return nil }
func (f *followed) Read(c *bpf.PacketCounters) error          { *c = bpf.PacketCounters{}; return nil }
func (f *followed) ForgetStages([]bpf.StageKey) error         { return nil }
func (f *followed) MaxStages() int                            { return 1 }
func (f *followed) Missing() []bpf.Hook {
	return []bpf.Hook{{Name: "x", Lost: "stage x", Why: "not here"}}
}
func (f *followed) Close() error                  { f.open--; f.attached = 0; return nil }
func (f *followed) load() (PacketPrograms, error) { f.loaded++; f.open++; return f, nil }

// With Worth packets are looked at from when something asks for it until a minute after nothing does any more.
func TestAttentionClimbsAndLeaves(t *testing.T) {
	f := &followed{}
	why := ""
	s := New(Config{FS: host2(), Level: 2, Attach: fake(&kernel{max: 10}, nil), Now: clock(10 * time.Second), LoadPackets: f.load, Worth: func(*Sample) string { return why }})
	if err := s.start(); err != nil {
		t.Fatal(err)
	}
	next := func() *Sample {
		t.Helper()
		got, err := s.next()
		if err != nil {
			t.Fatal(err)
		}
		got.Closer = s.why
		s.attend(got)
		return got
	}
	if got := next(); got.Level != 1 || f.loaded != 0 || said(got, "stage x", "not here") {
		t.Errorf("level %d, loaded %d times: want level 1 while nothing asks for more", got.Level, f.loaded)
	}
	why = "cpu 3 is hot"
	if got := next(); got.Level != 1 || got.Closer != "" || f.attached != 1 {
		t.Errorf("level %d because %q, attached %d: want it attached after the sample that asks for it", got.Level, got.Closer, f.attached)
	}
	why = "something else"
	if got := next(); got.Level != 2 || got.Closer != "cpu 3 is hot" || f.loaded != 1 || !said(got, "stage x", "not here") {
		t.Errorf("level %d because %q, loaded %d times: want level 2, once, and why", got.Level, got.Closer, f.loaded)
	}
	why = ""
	levels := 0
	for range 12 {
		if got := next(); got.Level == 2 {
			levels++
		}
	}
	if f.open != 0 || f.attached != 0 || levels == 0 || levels == 12 {
		t.Errorf("%d of 12 quiet samples at level 2, %d left open: want it left after %v", levels, f.open, calm)
	}
	if got := next(); got.Level != 1 || got.Closer != "" || said(got, "stage x", "not here") {
		t.Errorf("level %d because %q afterwards", got.Level, got.Closer)
	}
	why = "again"
	next()
	if got := next(); got.Level != 2 || got.Closer != "again" || f.loaded != 2 {
		t.Errorf("level %d because %q, loaded %d times: want it climbed to again", got.Level, got.Closer, f.loaded)
	}
	if err := s.stop(); err != nil || f.open != 0 {
		t.Errorf("stop: %v, %d open", err, f.open)
	}
}

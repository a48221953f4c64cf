package diagnose

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/rxsteer/rxsteer/internal/host/knob"
)

func TestSightings(t *testing.T) {
	start := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	at := func(minute int) time.Time { return start.Add(time.Duration(minute) * time.Minute) }
	ring := knob.Ref{Knob: knob.RPSCPUs, Target: knob.On("eth0", "rx-0")}
	host := func(boot string, v knob.Value) *knob.Snapshot {
		return &knob.Snapshot{Taken: start, Host: knob.Identity{BootID: boot}, Devices: []knob.Device{{Name: "eth0"}}, Settings: []knob.Setting{{Ref: ring, Value: v}}}
	}
	was := host("a", knob.Text("1-3"))
	// Each look at the host, and what is known of the difference after it.
	s := &Sightings{}
	for _, look := range []struct {
		minute int
		now    *knob.Snapshot
		want   string
	}{
		{1, host("a", knob.Text("1-3")), ""},
		{2, host("a", knob.Text("")), "first seen 2026-03-01 12:02:00, not there yet at 2026-03-01 12:01:00"},
		{3, host("a", knob.Text("")), "first seen 2026-03-01 12:02:00, not there yet at 2026-03-01 12:01:00"},
		{4, host("a", knob.Text("2")), "first seen 2026-03-01 12:02:00, not there yet at 2026-03-01 12:01:00"},
		{5, host("a", knob.Unknown("needs root")), "first seen 2026-03-01 12:02:00, not there yet at 2026-03-01 12:01:00"},
		{6, host("a", knob.Text("2")), "first seen 2026-03-01 12:02:00, not there yet at 2026-03-01 12:01:00"},
		{7, host("a", knob.Text("1-3")), ""},
		{8, host("a", knob.Text("2")), "first seen 2026-03-01 12:08:00, not there yet at 2026-03-01 12:07:00"},
		{9, host("b", knob.Text("2")), "first seen 2026-03-01 12:09:00"},
	} {
		s.Note(was, look.now, at(look.minute))
		if got := s.Since(ring); got != look.want {
			t.Errorf("minute %d: %q, want %q", look.minute, got, look.want)
		}
		var b bytes.Buffer
		if _, err := s.WriteTo(&b); err != nil {
			t.Fatal(err)
		}
		var err error
		if s, err = ReadSightings(&b); err != nil { // the next watcher is another process
			t.Fatal(err)
		}
	}
	other := host("b", knob.Text("1-3"))
	other.Taken = at(-60)
	s.Note(other, host("b", knob.Text("2")), at(10))
	if got := s.Since(ring); got != "first seen 2026-03-01 12:10:00" {
		t.Errorf("another baseline: %q", got)
	}
	if first, ok := s.First(ring); !ok || !first.Equal(at(10)) {
		t.Errorf("first %v, %v", first, ok)
	}
	for _, bad := range []string{"", "{", `{"version":99}`} {
		if _, err := ReadSightings(strings.NewReader(bad)); err == nil {
			t.Errorf("%q is read", bad)
		}
	}
}

func FuzzReadSightings(f *testing.F) {
	f.Add([]byte(`{"version":1,"baseline":"x","seen":[{"knob":"rps-cpus","target":"eth0 rx-0","first":"2026-03-01T12:00:00Z"}]}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		s, err := ReadSightings(bytes.NewReader(b))
		if err != nil {
			return
		}
		s.Note(&knob.Snapshot{}, &knob.Snapshot{}, time.Unix(0, 0))
		if _, err := s.WriteTo(&bytes.Buffer{}); err != nil {
			t.Fatal(err)
		}
	})
}

package paste

import (
	"maps"
	"strings"
	"testing"
	"time"
)

// swapped exchanges the two points of a folder.
func swapped(f map[string]string) map[string]string {
	out := map[string]string{}
	for name, text := range f {
		if s, ok := strings.CutSuffix(name, ".0"); ok {
			name = s + ".1"
		} else if s, ok := strings.CutSuffix(name, ".1"); ok {
			name = s + ".0"
		}
		out[name] = text
	}
	return out
}

func TestPointsInTheWrongOrder(t *testing.T) {
	untimed := func(f map[string]string) map[string]string {
		maps.DeleteFunc(f, func(name, _ string) bool { return strings.HasPrefix(name, "time.") })
		return f
	}
	back := folder(4, 1)
	back["time.0"], back["time.1"] = back["time.1"], back["time.0"]
	for _, c := range []struct {
		name, note string
		f          map[string]string
		interval   time.Duration
		processed  uint64 // on CPU 3, 0 not looked at
	}{
		{"as pasted", "", folder(4, 1), 20 * time.Second, 1000},
		{"the other way round", "time.0 is 20s after time.1: they are taken the other way round", swapped(folder(4, 1)), 20 * time.Second, 1000},
		{"without times", "counters would have gone back: they are taken the other way round", untimed(swapped(folder(4, 1))), 20 * time.Second, 1000},
		{"times right, counters back", "though time.0 is before time.1", swapped(back), 20 * time.Second, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := open(t, c.f)
			var notes []string
			for _, n := range h.Notes {
				notes = append(notes, n.Error())
			}
			got := strings.Join(notes, "\n")
			if c.note == "" && got != "" || !strings.Contains(got, c.note) {
				t.Errorf("notes %q, want %q", got, c.note)
			}
			s := h.Sample()
			if s.Interval != c.interval || c.processed != 0 && s.CPUs[3].Processed != c.processed {
				t.Errorf("interval %v, %d packets on CPU 3; want %v, %d", s.Interval, s.CPUs[3].Processed, c.interval, c.processed)
			}
		})
	}
}

func TestTextsOfDifferentHosts(t *testing.T) {
	f, other := folder(4, 1), folder(8, 1)
	f["stat.0"], f["stat.1"] = other["stat.0"], other["stat.1"]
	h := open(t, f)
	if len(h.Notes) == 0 || !strings.Contains(h.Notes[len(h.Notes)-1].Error(), "interrupts is of cpus 0-3, stat is of cpus 0-7, softnet_stat is of cpus 0-3, online is of cpus 0-3: they are of different hosts") {
		t.Errorf("notes = %v", h.Notes)
	}
	if h.Sample() == nil {
		t.Error("the rest is not told")
	}
}

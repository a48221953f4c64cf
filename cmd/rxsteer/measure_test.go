package main

import (
	"testing"
	"time"
)

func TestSlowSetupShortensTheMeasurement(t *testing.T) {
	const (
		window = 200 * time.Millisecond
		after  = 20 * time.Millisecond
		late   = mostLate - after // no window ends later than that after the second asked for
	)
	windows := func(duration, window, setup time.Duration) int {
		w := &patience{after: after}
		for n := 1; ; n++ {
			if w.enough(n, duration, window, setup+time.Duration(n)*window) {
				return n
			}
		}
	}
	for setup, want := range map[time.Duration]int{
		0: 5, late: 5, late + 1: 4, late + window: 4, late + 2*window: 3, time.Hour: 3, // half of it at least
	} {
		if got := windows(time.Second, window, setup); got != want {
			t.Errorf("setup of %v: %d windows of %v, want %d", setup, got, window, want)
		}
	}
	if got := windows(time.Second, 300*time.Millisecond, 0); got != 4 {
		t.Errorf("%d windows that do not divide the duration, want 4", got)
	}
	var nobody *patience
	if nobody.enough(4, time.Second, window, time.Hour) {
		t.Error("a recording is cut short though nobody waits")
	}
	// Slow loading on the way ends it as a slow start does.
	if w := (patience{after: after}); !w.enough(3, time.Second, window, 1100*time.Millisecond) || w.enough(3, time.Second, window, 900*time.Millisecond) {
		t.Error("time lost between windows is not made up for")
	}
}

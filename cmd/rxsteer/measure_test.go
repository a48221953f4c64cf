package main

import (
	"testing"
	"time"
)

func TestSlowSetupShortensTheMeasurement(t *testing.T) {
	const window = 200 * time.Millisecond
	for setup, want := range map[time.Duration]int{
		0: 5, mostSetup: 5, mostSetup + 1: 4, mostSetup + window: 4, mostSetup + 2*window: 3, time.Hour: 3, // half of it at least
	} {
		if got := windowsLeft(time.Second, window, setup); got != want {
			t.Errorf("setup of %v: %d windows of %v, want %d", setup, got, window, want)
		}
	}
	if got := windowsLeft(time.Second, 300*time.Millisecond, 0); got != 4 {
		t.Errorf("%d windows that do not divide the duration, want 4", got)
	}
}

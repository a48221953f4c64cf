package main

import (
	"os"
	"testing"
	"time"
)

// A live diagnosis takes no longer than the interval asked for and 300 ms: loading programs, reading settings and judging. The
// bound is held where the machine is quiet (RXSTEER_QUIET=1); elsewhere the best of three is logged.
func TestLiveDiagnosisIsPrompt(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: it attaches the programs")
	}
	if testing.Short() {
		t.Skip("needs some seconds: not in -short")
	}
	const interval = time.Second
	best := time.Hour
	for range 3 {
		e, out, stderr := testEnv("diagnose", "--for", interval.String(), "--fail-on", "never", "-o", "json")
		begin := time.Now()
		if code := run(t.Context(), e); code != exitOK {
			t.Fatalf("exit %d: %s", code, stderr)
		}
		best = min(best, time.Since(begin))
		if out.Len() == 0 {
			t.Fatal("no report")
		}
	}
	t.Logf("a live diagnosis of %v takes %v", interval, best)
	if bound := interval + 300*time.Millisecond; best < interval || best > bound && os.Getenv("RXSTEER_QUIET") != "" {
		t.Errorf("it takes %v, want %v to %v", best, interval, bound)
	}
}

package main

import (
	"strings"
	"testing"
	"time"
)

// answer is what the sender's side prints: mice that lost everything but the last.
func answer(mice int, sent ...string) []byte {
	lines := append([]string{}, sent[:len(sent)/2]...)
	for i := range mice {
		if i == mice-1 {
			lines = append(lines, `{"rtt":{"count":175,"p50_ns":2000000,"p99_ns":9000000,"p999_ns":11000000}}`)
			break
		}
		lines = append(lines, `{"rtt":{"count":0}}`)
	}
	return []byte(strings.Join(append(lines, sent[len(sent)/2:]...), "\n") + "\n")
}

func TestSummary(t *testing.T) {
	p := summary(answer(mice, "sent 1796091846.250000000 1000", "sent 1796091850.250000000 21000"))
	if p.err != nil || p.offered != 5000 || p.lost != mice-1 || p.p99 != 9*time.Millisecond {
		t.Errorf("%+v", p)
	}
	for name, text := range map[string][]byte{
		"a mouse is missing":    answer(mice-1, "sent 1.5 10", "sent 2.5 20"),
		"one line of sent":      answer(mice, "sent 1.5 10"),
		"sent is no number":     answer(mice, "sent 1.5 x", "sent 2.5 20"),
		"time stands still":     answer(mice, "sent 1.5 10", "sent 1.5 20"),
		"something else":        []byte("rxtraffic: probe: no route\n"),
		"the second mouse said": append(answer(mice, "sent 1.5 10", "sent 2.5 20"), "killed\n"...),
	} {
		if p := summary(text); p.err == nil {
			t.Errorf("%s: %+v", name, p)
		}
	}
}

package diagnose

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rxsteer/rxsteer/internal/host/nic"
)

// Of one severity what loses more comes first, then what takes more time, whatever the IDs.
func TestOrder(t *testing.T) {
	w := newWorld(8).nic("eth0", nic.Physical, 2).busy(1, 0.2, 0, 1000).busy(2, 0.7, 0, 1000).poll("eth0", 0, 3, 0.4, 1000)
	v := newView(w.Input)
	at := func(id ID, s Severity, cpu int, facts ...Fact) Finding {
		return Finding{ID: id, Severity: s, Subject: "eth0", Evidence: facts, Site: Site{CPU: cpu}}
	}
	device := at("RX203", Warning, -1)
	device.Site.Device = "eth0"
	movable := at("RX303", Warning, -1)
	movable.Site.Movable = map[int]float64{0: 0.3, 1: 0.2}
	chain := at("RX102", Warning, 1)
	chain.Explains = []Symptom{{ID: "RX402", Evidence: Evidence{{"ring_drops_per_s", 40.0}}}, {ID: "RX403", Evidence: Evidence{{"backlog_drops_per_s", 70.0}}}}
	findings := []Finding{
		at("RX901", Info, -1), at("RX101", Warning, 1), device, movable, chain,
		at("RX104", Warning, 2), at("RX406", Warning, -1, Fact{"udp_receive_buffer_full_per_s", 100.0}), at("RX402", Warning, -1, Fact{"ring_drops", uint64(120)}),
		at("RX602", Critical, -1), at("RX107", Info, 2),
	}
	v.order(findings)
	var got []string
	for i := range findings {
		f := &findings[i]
		c := v.stake(f)
		got = append(got, fmt.Sprintf("%s %s %.0f %.1f", f.ID, f.Severity, c.lost, c.time))
	}
	want := []string{
		"RX602 critical 0 0.0",
		"RX402 warning 120 0.0", "RX102 warning 110 0.2", "RX406 warning 100 0.0",
		"RX104 warning 0 0.7", "RX303 warning 0 0.5", "RX203 warning 0 0.4", "RX101 warning 0 0.2",
		"RX107 info 0 0.7", "RX901 info 0 0.0",
	}
	if diff := cmp.Diff(strings.Join(want, "\n"), strings.Join(got, "\n")); diff != "" {
		t.Errorf("order (-want +got):\n%s", diff)
	}
}

package exporter

import (
	"fmt"
	"net/netip"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/rxsteer/rxsteer/collector"
	"github.com/rxsteer/rxsteer/internal/host/nic"
)

// shape is a host whose series are counted: every queue is served by one CPU, and each has been seen by some others since.
type shape struct {
	name               string
	cpus, cards, queue int
	wander             int // CPUs that have served each queue
}

// seriesOf counts the lines of a scrape, which are the series a Prometheus keeps of a host that drops those of one beginning.
func seriesOf(t *testing.T, h shape, limits Limits, dropped string) int {
	t.Helper()
	s := &collector.Sample{Level: 2, Interval: time.Second, Lost: map[string]uint64{"map full": 1}, Cost: &collector.Cost{}, Protocols: map[string]uint64{"UdpRcvbufErrors": 1, "TcpExtListenDrops": 1}}
	for c := range h.cpus {
		s.CPUs = append(s.CPUs, collector.CPU{CPU: c})
	}
	for i := range h.cards {
		dev := fmt.Sprintf("eth%d", i)
		s.Devices = append(s.Devices, collector.Device{Name: dev, IfIndex: i + 2})
		s.Drivers = append(s.Drivers, collector.Driver{Device: dev, IfIndex: i + 2, Told: []nic.FactKind{nic.NoMemory, nic.RingDrops}})
		for q := range h.queue {
			for w := range h.wander {
				s.NAPIs = append(s.NAPIs, collector.NAPI{Netns: ownNetns, IfIndex: i + 2, Device: dev, RXQueue: q, CPU: (q + w) % h.cpus, Polls: 1, Packets: 1})
				s.IRQs = append(s.IRQs, collector.IRQ{IRQ: 1000*i + q, CPU: (q + w) % h.cpus, Action: fmt.Sprintf("%s-%d", dev, q), Count: 1})
			}
			for _, st := range collector.StageNames {
				s.Stages = append(s.Stages, collector.Stage{Stage: st, Netns: ownNetns, Device: dev, RXQueue: q, CPU: q % h.cpus, Count: 1})
			}
		}
		for f := range 32 {
			s.Flows = append(s.Flows, collector.Flow{Netns: ownNetns, Device: dev, Source: netip.AddrPortFrom(netip.MustParseAddr("192.0.2.1"), uint16(f)), Packets: 1})
		}
	}
	e := New(ownNetns, limits)
	e.Add(s)
	n := 0
	for line := range strings.Lines(scrape(t, e, NewLoop(loopView))) {
		if !strings.HasPrefix(line, "#") && (dropped == "" || !strings.HasPrefix(line, dropped)) {
			n++
		}
	}
	return n
}

// counted is the part of docs/fleet.md that TestSeriesOfAFleet writes.
var counted = regexp.MustCompile(`(?s)(<!-- counted by exporter: TestSeriesOfAFleet -->\n\n)(.*?)(\n<!-- end -->)`)

// TestSeriesOfAFleet: docs/fleet.md says how many series a thousand hosts are, as they are counted here.
func TestSeriesOfAFleet(t *testing.T) {
	lean := DefaultLimits
	lean.PerCPU, lean.Stages, lean.Elephants = false, false, 0
	const hosts, scrapeEvery = 1000, 15
	var b strings.Builder
	b.WriteString("| host | series of one | of 1,000 | samples/s, every 15 s | lean: of one | of 1,000 | samples/s |\n|---|--:|--:|--:|--:|--:|--:|\n")
	for _, h := range []shape{
		{"4 CPUs, 1 card of 4 queues", 4, 1, 4, 1},
		{"64 CPUs, 2 cards of 32 queues", 64, 2, 32, 1},
		{"the same, each queue seen on 8 CPUs since the start", 64, 2, 32, 8},
		{"256 CPUs, 2 cards of 64 queues", 256, 2, 64, 1},
		{"the same, every queue seen on every CPU: the bound", 256, 2, 64, 256},
	} {
		fmt.Fprintf(&b, "| %s |", h.name)
		for i, limits := range []Limits{DefaultLimits, lean} {
			n := seriesOf(t, h, limits, []string{"", "rxsteer_napi_poll_"}[i])
			if n < 100 {
				t.Errorf("%s: %d series", h.name, n)
			}
			fmt.Fprintf(&b, " %d | %.1f M | %d k |", n, float64(n*hosts)/1e6, n*hosts/scrapeEvery/1000)
		}
		b.WriteString("\n")
	}
	const file = "../docs/fleet.md"
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	m := counted.FindStringSubmatch(string(text))
	if m == nil {
		t.Fatalf("%s has no place for the table", file)
	}
	if m[2] == b.String() {
		return
	}
	if !*update {
		t.Fatalf("%s says\n%s, counted\n%s(go test ./exporter -update rewrites it)", file, m[2], b.String())
	}
	out := strings.Replace(string(text), m[0], m[1]+b.String()+m[3], 1)
	if err := os.WriteFile(file, []byte(out), 0o644); err != nil {
		t.Fatal(err)
	}
}

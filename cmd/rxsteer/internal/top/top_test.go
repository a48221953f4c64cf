package top

import (
	"flag"
	"fmt"
	"io"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/x/ansi"
	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/rxsteer/rxsteer/collector"
	"github.com/rxsteer/rxsteer/internal/cpuset"
	"github.com/rxsteer/rxsteer/internal/host/nic"
	"github.com/rxsteer/rxsteer/internal/host/topo"
	"github.com/rxsteer/rxsteer/steer/diagnose"
)

var update = flag.Bool("update", false, "rewrite golden files")

func golden(t *testing.T, name, got string) {
	t.Helper()
	file := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(string(want), got); d != "" {
		t.Errorf("%s differs; -update rewrites it (-want +got):\n%s", file, d)
	}
}

const (
	ownNetns   = 4026531840
	otherNetns = 4026532777
	second     = uint64(time.Second)
)

var epoch = time.Date(2026, 11, 30, 3, 0, 0, 0, time.UTC)

// bigMap is a host of two nodes with so many CPUs and two cards of so many queues.
func bigMap(cpus, queues int) *Map {
	m := &Map{Netns: ownNetns, Topology: &topo.Topology{}}
	for c := range cpus {
		m.Topology.CPUs = append(m.Topology.CPUs, topo.CPU{ID: c, Node: 2 * c / cpus, Online: true, Isolated: c == cpus-1})
	}
	for i, name := range []string{"eth0", "eth1"} {
		d := nic.NIC{Name: name, IfIndex: 2 + i, Netns: ownNetns, Kind: nic.Physical, Driver: "ice", Node: i, Up: true}
		for q := range queues {
			d.Queues = append(d.Queues, nic.Queue{RX: q, TX: q, NAPI: uint32(1000*(i+1) + q), IRQ: 100*(i+1) + q, Affinity: cpuset.Of(q % cpus), Effective: cpuset.Of(q % cpus)})
		}
		m.NICs = append(m.NICs, d)
	}
	return m
}

// bigSample is second n of that host: queue 3 of eth0 drowns its CPU more and more.
func bigSample(cpus, queues, n int) *collector.Sample {
	s := &collector.Sample{Version: collector.SampleVersion, Start: epoch.Add(time.Duration(n) * time.Second), Interval: time.Second, Level: 1}
	s.End = s.Start.Add(time.Second)
	s.Cost = &collector.Cost{Budget: 0.01, Hottest: 0.0042, Duty: 1}
	for c := range cpus {
		s.CPUs = append(s.CPUs, collector.CPU{CPU: c, Idle: second * 7 / 10, Irq: second / 100})
	}
	hot := second * uint64(min(10+3*n, 97)) / 100
	for i := range 2 {
		for q := range queues {
			if i == 1 && q%2 == 1 {
				continue // every other queue of eth1 rests
			}
			p := collector.NAPI{Netns: ownNetns, IfIndex: 2 + i, Device: fmt.Sprintf("eth%d", i), ID: uint32(1000*(i+1) + q), RXQueue: q, CPU: q % cpus,
				Polls: 1000, Packets: uint64(20000 + 137*q), Time: second * uint64(2+q%5) / 100, FullBudget: 3}
			if i == 0 && q == 3 {
				p.Time, p.Packets, p.FullBudget = hot, 40000+uint64(9000*n), uint64(min(20*n, 970))
			}
			p.TimeHist[15] = p.Polls - 20 // 16 … 33 µs
			p.TimeHist[20] = 20
			s.NAPIs = append(s.NAPIs, p)
			c := &s.CPUs[p.CPU]
			c.SoftirqTime[collector.NetRX] += p.Time
			c.Idle -= min(c.Idle, p.Time)
			c.Processed += p.Packets
		}
	}
	s.CPUs[3%cpus].TimeIn[collector.InKsoftirqd] = hot * 9 / 10
	s.NAPIs = append(s.NAPIs,
		collector.NAPI{Device: collector.Backlog, RXQueue: -1, CPU: 1, Polls: 10, Packets: 500, Time: second / 1000},
		collector.NAPI{Netns: otherNetns, IfIndex: 7, Device: collector.Foreign, SeenAs: "veth9", ID: 77, RXQueue: -1, CPU: 0, Polls: 10, Packets: 900, Time: second / 500})
	drops := uint64(0)
	if n > 25 {
		drops = uint64(100 * (n - 25))
	}
	s.Drivers = []collector.Driver{{Device: "eth0", IfIndex: 2, Name: "ice", Told: []nic.FactKind{nic.RingDrops}, Counters: []collector.DriverCounter{
		{Name: "rx_queue_3_drops", Kind: nic.RingDrops, Scope: nic.ScopeQueue, Queue: 3, Count: drops}}}}
	s.Flows = []collector.Flow{
		{Netns: ownNetns, IfIndex: 2, Device: "eth0", RXQueue: 3, CPU: 3, Protocol: "udp", Source: netip.MustParseAddrPort("10.0.0.1:40000"), Destination: netip.MustParseAddrPort("10.0.0.2:4789"),
			Packets: 180000, Bytes: 180000 * 1400, Share: 0.91, ConsumerCPU: 17, Process: "vpnd"},
		{Netns: ownNetns, IfIndex: 2, Device: "eth0", RXQueue: 5, CPU: 5, Protocol: "tcp", Source: netip.MustParseAddrPort("[2001:db8::1]:443"), Destination: netip.MustParseAddrPort("[2001:db8::2]:51000"),
			Packets: 900, Bytes: 900 * 1400, Share: 0.04, ConsumerCPU: -1},
	}
	return s
}

var someReport = &diagnose.Report{Checked: []string{"socket buffers and accept queues: no loss beyond noise"}, Findings: []diagnose.Finding{
	{ID: "RX201", Severity: diagnose.Critical, Subject: "eth0", Summary: "queue 3 takes 97 % of CPU 3 while 31 others rest: one flow of 1.9 Gbit/s carries 91 % of it",
		Evidence: diagnose.Evidence{{Name: "share_ratio", Value: 0.91}, {Name: "packets_per_s", Value: 180000.0}}, Remedy: "spread by the inner header: ethtool -N eth0 rx-flow-hash udp4 sdfn"},
	{ID: "RX105", Severity: diagnose.Warning, Subject: "host", Summary: "irqbalance moves vectors of eth0", Remedy: "ban them"},
}}

var someSettings = Settings{
	Devices: []string{"eth0", "eth1"},
	Labels:  []string{"driver", "channels", "rings", "coalesce"},
	Values:  [][]string{{"ice", "ice"}, {"combined 32 of 64", "combined 32 of 64"}, {"rx 512 of 8160, tx 512 of 8160", "rx 4096 of 8160, tx 4096 of 8160"}, {"adaptive-rx on, rx-usecs 50", ""}},
}

// watched is a live view of so many seconds.
func watched(opts Options, cpus, queues, seconds int) *Model {
	opts.Zone, opts.Host = time.UTC, "db-17"
	r := NewRecent(600)
	m := New(opts, r)
	for n := range seconds {
		s := bigSample(cpus, queues, n)
		r.Add(Take(s, bigMap(cpus, queues)), Heat(s), someReport)
	}
	m.Set(someSettings)
	return m
}

func keys(m *Model, names ...string) *Model {
	for _, k := range names {
		m.Key(k)
	}
	return m
}

func TestGoldenFrames(t *testing.T) {
	for _, size := range []struct{ w, h int }{{80, 24}, {120, 40}, {200, 60}} {
		for _, mode := range []struct {
			name string
			opts Options
		}{{"color", Options{Color: true, UTF8: true}}, {"plain", Options{UTF8: true}}, {"ascii", Options{}}} {
			m := watched(mode.opts, 32, 16, 40)
			m.Resize(size.w, size.h)
			golden(t, fmt.Sprintf("frame-%dx%d-%s.txt", size.w, size.h, mode.name), m.Render()+"\n")
		}
	}
	calm := watched(Options{UTF8: true}, 2, 4, 3)
	calm.history.(*Recent).at(2).report = &diagnose.Report{Checked: someReport.Checked}
	golden(t, "frame-calm.txt", calm.Render()+"\n")
	empty := New(Options{UTF8: true, Zone: time.UTC}, NewRecent(3))
	golden(t, "frame-empty.txt", empty.Render()+"\n")
	for name, press := range map[string][]string{
		"paused": {"space", "left", "left", "["}, "elephants": {"tab", "enter"}, "findings": {"enter"}, "settings": {"shift+tab", "enter"},
		"help": {"?"}, "filter": {"/", "e", "t", "h", "1", "enter", "s", "r"}, "selected": {"down", "down", "down"}, "device": {"d", "d"}, "netns": {"n", "n"},
	} {
		golden(t, "frame-"+name+".txt", keys(watched(Options{UTF8: true}, 32, 16, 40), press...).Render()+"\n")
	}
	golden(t, "plain.txt", watched(Options{}, 4, 2, 12).Plain(100))
}

// fits checks what holds for every frame: its size, and that nothing but our own colours is in it.
func fits(t *testing.T, m *Model, what string) {
	t.Helper()
	frame := m.Render()
	lines := strings.Split(frame, "\n")
	if len(lines) > m.height {
		t.Errorf("%s: %d lines of %d", what, len(lines), m.height)
	}
	for _, l := range lines {
		if w := ansi.StringWidth(l); w > m.width {
			t.Errorf("%s: %d columns of %d: %q", what, w, m.width, l)
		}
	}
	for _, r := range ansi.Strip(frame) {
		if r != '\n' && !unicode.IsPrint(r) || !m.opts.UTF8 && r > 0x7e {
			t.Fatalf("%s: %U in the frame:\n%s", what, r, frame)
		}
	}
	if !m.opts.Color && strings.Contains(frame, "\x1b") {
		t.Errorf("%s: colour without colour", what)
	}
}

// TestEveryKeyAtEverySize: whatever is pressed, a frame fits its terminal.
func TestEveryKeyAtEverySize(t *testing.T) {
	all := []string{"?", "x", "space", "left", "[", "home", "right", "end", "up", "down", "pgup", "pgdown", "s", "r", "S", "d", "n", "tab", "enter", "down", "esc",
		"/", "z", "e", "backspace", "0", "enter", "shift+tab", "z", "pgdown", "q", "esc"}
	for _, size := range []struct{ w, h int }{{1, 1}, {10, 3}, {49, 9}, {50, 10}, {51, 11}, {80, 24}, {97, 25}, {120, 40}, {300, 100}} {
		for _, opts := range []Options{{}, {UTF8: true}, {Color: true, UTF8: true}, {UTF8: true, Recording: true}} {
			m := watched(opts, 32, 16, 40)
			m.Resize(size.w, size.h)
			for _, k := range all {
				m.Key(k)
				fits(t, m, fmt.Sprintf("%dx%d after %s", size.w, size.h, k))
			}
		}
	}
}

// TestHostileNames: interfaces and processes are named by others.
func TestHostileNames(t *testing.T) {
	for _, name := range []string{"\x1b[2J", "a\nb", "\x9b31m", "\u202egnirts", "\xff\xfe", "e\u0301th", "\u200b", "日本語日本語日本語", strings.Repeat("x", 500)} {
		for _, opts := range []Options{{}, {UTF8: true}, {UTF8: true, Color: true}} {
			s := bigSample(2, 2, 40)
			for i := range s.NAPIs {
				s.NAPIs[i].Device, s.NAPIs[i].SeenAs = name, name
			}
			s.Flows[0].Process, s.Flows[0].Device, s.Flows[0].Protocol = name, name, name
			mp := bigMap(2, 2)
			mp.NICs[0].Name = name
			r := NewRecent(5)
			r.Add(Take(s, mp), 1, &diagnose.Report{Checked: []string{name}, Findings: []diagnose.Finding{{ID: "RX201", Subject: name, Summary: name, Remedy: name, Evidence: diagnose.Evidence{{Name: name, Value: name}}}}})
			opts.Host = name
			m := New(opts, r)
			m.Set(Settings{Devices: []string{name}, Labels: []string{"driver"}, Values: [][]string{{name}}})
			for _, k := range []string{"x", "tab", "tab", "tab", "enter", "tab", "tab", "esc", "d", "down"} {
				m.Key(k)
				fits(t, m, fmt.Sprintf("%q after %s", name, k))
			}
		}
	}
}

func FuzzKeys(f *testing.F) {
	f.Add("space left / e t h enter tab enter q", 80, 24, "eth0")
	f.Fuzz(func(t *testing.T, press string, width, height int, name string) {
		r := NewRecent(5)
		for n := range 8 {
			s := bigSample(3, 2, n)
			s.NAPIs[0].Device = name
			r.Add(Take(s, bigMap(3, 2)), Heat(s), someReport)
		}
		m := New(Options{UTF8: true}, r)
		m.Resize(1+int(uint(width)%400), 1+int(uint(height)%200)) // a terminal has at least one cell
		for _, k := range strings.Fields(press) {
			m.Key(k)
			fits(t, m, k)
		}
	})
}

func TestVerdictNamesTheQueueAndTheCPU(t *testing.T) {
	for _, tt := range []struct {
		name string
		edit func(*collector.Sample)
		want string
	}{
		{"a hot queue", func(*collector.Sample) {}, "eth0 rx 3 on cpu 3 HURTS: 1500 dropped/s, 97% of a CPU, 80% of polls end by their budget"},
		{"many small queues on one CPU", func(s *collector.Sample) {
			s.Drivers = nil
			for i := range s.CPUs {
				s.CPUs[i].SoftirqTime[collector.NetRX] = second / 100
			}
			s.CPUs[2].SoftirqTime[collector.NetRX] = second * 99 / 100
			for i := range s.NAPIs {
				s.NAPIs[i].CPU, s.NAPIs[i].Time, s.NAPIs[i].FullBudget = 2, second/20, 0
			}
		}, "cpu 2 is FULL of receiving: 99%; eth0 rx 3 5.0%"},
		{"most of a hot CPU", func(s *collector.Sample) {
			s.Drivers = nil
			for i := range s.NAPIs {
				s.NAPIs[i].FullBudget, s.NAPIs[i].Time = 0, second/100
			}
			s.NAPIs[3].Time = second * 70 / 100
			s.CPUs[3].SoftirqTime[collector.NetRX] = second * 94 / 100
		}, "eth0 rx 3 on cpu 3 HURTS: 70% of a CPU that is 94% full of receiving"},
		{"calm", func(s *collector.Sample) {
			s.Drivers = nil
			for i := range s.CPUs {
				s.CPUs[i].SoftirqTime[collector.NetRX] = second / 100
			}
			for i := range s.NAPIs {
				s.NAPIs[i].Time, s.NAPIs[i].FullBudget = second/100, 0
			}
		}, "Nothing hurts. Busiest: "},
		{"level 0", func(s *collector.Sample) {
			s.Level, s.Drivers = 0, nil
			for i := range s.CPUs {
				s.CPUs[i].Softirq = 0
			}
			s.CPUs[2].Softirq = second * 95 / 100
		}, "cpu 2 is FULL of receiving: 95%; which queue is not seen at level 0"},
		{"nothing", func(s *collector.Sample) { s.NAPIs, s.CPUs, s.Drivers = nil, nil, nil }, "Nothing hurts: nothing is received here"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := bigSample(8, 8, 40)
			tt.edit(s)
			shot := Take(s, bigMap(8, 8))
			if _, got := shot.verdict(shot.Queues); !strings.HasPrefix(got, tt.want) {
				t.Errorf("%q, want %q …", got, tt.want)
			}
		})
	}
}

func TestTakeOfAQueue(t *testing.T) {
	s := bigSample(4, 4, 40)
	// The same queue was polled elsewhere too, for less.
	s.NAPIs = append(s.NAPIs, collector.NAPI{Netns: ownNetns, IfIndex: 2, Device: "eth0", ID: 1003, RXQueue: -1, CPU: 0, Polls: 10, Packets: 100, Time: 1000})
	shot := Take(s, bigMap(4, 4))
	var got *Queue
	rested := 0
	for i := range shot.Queues {
		q := &shot.Queues[i]
		if q.Device == "eth0" && q.RX == 3 {
			got = q
		}
		if q.Device == "eth1" && q.PPS == 0 {
			rested++
		}
	}
	if got == nil || got.CPU != 3 || got.CPUs != 2 || got.CPUNode != 1 || got.IRQ != 103 || got.Node != 0 || got.NAPI != 1003 || got.Drops != 1500 || got.PPS != 400100 || got.P99 < 500e3 {
		t.Errorf("%+v", got)
	}
	if rested != 2 {
		t.Errorf("%d resting queues of eth1 are shown, want 2", rested)
	}
	if q := shot.Queues[len(shot.Queues)-1]; q.Device != collector.Backlog || q.CPU != 1 {
		t.Errorf("last is %+v, want the backlog", q)
	}
	// A packet's whole way takes the place of a poll's time where it was followed.
	st := collector.Stage{Stage: collector.Total, Netns: ownNetns, IfIndex: 2, RXQueue: 3, Count: 100}
	st.Hist[21] = 100 // 1 … 2 ms
	s.Stages = []collector.Stage{st}
	shot = Take(s, bigMap(4, 4))
	for _, q := range shot.Queues {
		if q.Device == "eth0" && q.RX == 3 && (!q.Stage || q.P99 < 1<<20 || q.P99 > 1<<21) {
			t.Errorf("p99 is %v of a packet %v, want 1 … 2 ms", q.P99, q.Stage)
		}
	}
}

// TestNothingIsInventedAtLevel0: what was not measured shows as "-".
func TestNothingIsInventedAtLevel0(t *testing.T) {
	s := bigSample(2, 2, 5)
	s.Level = 0
	for _, q := range Take(s, bigMap(2, 2)).Queues {
		if q.Time != Unknown || q.PerPacket != Unknown || q.P99 != Unknown || q.Full != Unknown {
			t.Errorf("%+v", q)
		}
	}
}

// TestWindowsShowWhatWasSeenLast: where the budget attaches in windows only, between them the queues stay.
func TestWindowsShowWhatWasSeenLast(t *testing.T) {
	seen := Take(bigSample(4, 4, 30), bigMap(4, 4))
	bare := func(n int) *Shot {
		s := bigSample(4, 4, n)
		s.NAPIs, s.Flows, s.Level = nil, nil, 2 // packets are looked at, polls are not
		s.Cost = &collector.Cost{Budget: 0.01, Thinned: []string{"windows"}}
		return Take(s, bigMap(4, 4))
	}
	between := bare(37)
	for _, q := range between.Queues {
		if q.PPS != Unknown {
			t.Errorf("%s is said to receive %v packets/s, which nothing tells", q.name(), q.PPS)
		}
	}
	between.Carry(seen)
	r := NewRecent(5)
	r.Add(between, 1, nil)
	m := New(Options{UTF8: true, Zone: time.UTC}, r)
	m.Resize(80, 24)
	frame := m.Render()
	for _, want := range []string{"seen 7 s ago", "eth0 rx 3 on cpu 3 HURTS: 1200 dropped/s, 97% of a CPU"} {
		if !strings.Contains(frame, want) {
			t.Errorf("lacks %q:\n%s", want, frame)
		}
	}
	old := bare(50)
	if old.Carry(seen); !old.Seen.IsZero() {
		t.Error("what was seen 20 s ago is shown as if it were now")
	}
	now := Take(bigSample(4, 4, 31), bigMap(4, 4))
	if now.Carry(seen); !now.Seen.IsZero() {
		t.Error("a shot that saw the queues shows older ones")
	}
}

func TestStepsBackAndForth(t *testing.T) {
	m := watched(Options{UTF8: true}, 2, 2, 40)
	shown := func() int { return int(m.Shot().Start.Sub(epoch).Seconds()) }
	for _, tt := range []struct {
		key  string
		want int
	}{{"left", 38}, {"left", 37}, {"right", 38}, {"[", 28}, {"]", 38}, {"]", 39}, {"home", 0}, {"left", 0}, {"end", 39}} {
		if m.Key(tt.key); shown() != tt.want {
			t.Errorf("after %s second %d, want %d", tt.key, shown(), tt.want)
		}
	}
	add := func(n int) {
		s := bigSample(2, 2, n)
		m.history.(*Recent).Add(Take(s, bigMap(2, 2)), Heat(s), nil)
	}
	if add(40); shown() != 40 {
		t.Errorf("live shows second %d, want the newest", shown())
	}
	m.Key("space")
	if add(41); shown() != 40 {
		t.Errorf("paused shows second %d, want 40", shown())
	}
	for n := range 700 { // what is shown falls out of what is kept
		add(42 + n)
	}
	if oldest, _ := m.history.Bounds(); shown() != oldest || oldest != 142 {
		t.Errorf("shows second %d of %d …, want the oldest kept, 142", shown(), oldest)
	}
	if m.Key("space"); shown() != 741 {
		t.Errorf("resumed shows second %d, want 741", shown())
	}
}

func TestARecordingPlaysAndStops(t *testing.T) {
	var samples []*collector.Sample
	for n := range 5 {
		samples = append(samples, bigSample(2, 2, n))
	}
	judged := 0
	m := New(Options{Recording: true, UTF8: true, Zone: time.UTC}, NewRecorded(samples,
		func(n int) *Shot { return Take(samples[n], bigMap(2, 2)) },
		func(n int) *diagnose.Report { judged++; return someReport }))
	if !strings.Contains(m.Render(), "RECORDED 5 of 5") {
		t.Errorf("it does not begin at the end:\n%s", m.Render())
	}
	m.Render()
	if judged != 1 {
		t.Errorf("one shot was judged %d times", judged)
	}
	m.Key("space")
	for want := 1; want <= 5; want++ {
		if text := fmt.Sprintf("RECORDED %d of 5, playing", want); !strings.Contains(m.Render(), text) {
			t.Errorf("want %s:\n%s", text, m.Render())
		}
		m.Step()
	}
	if m.Playing() {
		t.Error("it plays on after its end")
	}
}

func TestTheCursorFollowsItsQueue(t *testing.T) {
	m := watched(Options{UTF8: true}, 32, 16, 40)
	m.Resize(120, 40)
	keys(m, "down", "down")
	was := m.selected
	for range orders {
		m.Key("s")
		if rows := m.rows(); rows[m.cursor(rows)].identity() != was {
			t.Fatalf("sorted by %s the cursor is on %v, was on %v", orders[m.order].name, rows[m.cursor(rows)].identity(), was)
		}
		if !strings.Contains(m.Render(), "▶") {
			t.Errorf("sorted by %s the cursor is not on the screen", orders[m.order].name)
		}
	}
}

func TestQuitting(t *testing.T) {
	m := watched(Options{}, 2, 2, 2)
	if m.Key("enter"); m.Key("q") || m.zoom {
		t.Error("q in a zoomed panel leaves more than the panel")
	}
	if m.Key("/"); m.Key("q") || m.filter != "q" {
		t.Error("q does not go into the filter")
	}
	if !m.Key("ctrl+c") {
		t.Error("ctrl+c does not quit while typing")
	}
	if m.Key("esc"); !m.Key("q") {
		t.Error("q does not quit")
	}
}

// BenchmarkSecond is all a live view costs per second beside measuring: a shot, and a frame.
func BenchmarkSecond(b *testing.B) {
	for _, size := range []struct{ cpus, queues int }{{32, 32}, {256, 64}} {
		b.Run(fmt.Sprintf("cpus=%d/queues=%d", size.cpus, 2*size.queues), func(b *testing.B) {
			m := watched(Options{UTF8: true, Color: true}, size.cpus, size.queues, 60)
			m.Resize(200, 60)
			s, mp := bigSample(size.cpus, size.queues, 40), bigMap(size.cpus, size.queues)
			b.ReportAllocs()
			for b.Loop() {
				m.history.(*Recent).Add(Take(s, mp), Heat(s), someReport)
				m.Render()
			}
		})
	}
}

// BenchmarkTerminal is CPU time per second of a live view of 64 queues at 200x60 with all that bubbletea does for
// it: a millisecond is 0.1 % of a core. Frames are sent faster than once a second; each is drawn.
func BenchmarkTerminal(b *testing.B) {
	m := watched(Options{UTF8: true, Color: true}, 32, 32, 60)
	p := newProgram(m, io.Discard, time.Second, tea.WithInput(nil), tea.WithWindowSize(200, 60), tea.WithContext(b.Context()))
	done := make(chan error, 1)
	go func() {
		_, err := p.Run()
		done <- err
	}()
	n := 0
	cpu := func() time.Duration {
		var u unix.Rusage
		if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
			b.Fatal(err)
		}
		return time.Duration(u.Utime.Nano() + u.Stime.Nano())
	}
	began := cpu()
	for b.Loop() {
		s := bigSample(32, 32, n%40)
		shot := Take(s, bigMap(32, 32))
		p.Send(Fed{func() { m.history.(*Recent).Add(shot, Heat(s), someReport) }})
		n++
		time.Sleep(10 * time.Millisecond)
	}
	b.ReportMetric(float64((cpu()-began).Microseconds())/1000/float64(n), "cpu-ms/frame")
	p.Quit()
	if err := <-done; err != nil {
		b.Fatal(err)
	}
}

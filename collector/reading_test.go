package collector

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/rxsteer/rxsteer/bpf"
	"github.com/rxsteer/rxsteer/internal/host/procfs"
)

func TestBetweenTakesDifferences(t *testing.T) {
	before := reading(t, host2().device("eth0", 2, 1000, 10, 1, 7, 500, 5, 2).with("/sys/class/net/eth0/statistics/rx_missed_errors", "3\n"), 0)
	after := reading(t, host2().
		with("/proc/stat", "cpu0 0 0 0 150 20 2 12 0 0 0\ncpu1 0 0 0 230 20 2 4 8 0 0\n").
		with("/proc/softirqs", "   CPU0  CPU1\n  HI: 1 0\n  NET_RX: 110 25\n").
		with("/proc/net/softnet_stat", softnetRow(0, 150, 1, 5)+softnetRow(1, 200, 9, 4)).
		with("/proc/interrupts", "   CPU0  CPU1\n 28: 10 120  PCI-MSI 524288-edge  eth0-rx-0\n 29: 0 3  PCI-MSI 524289-edge  eth0-rx-1\n").
		device("eth0", 2, 4000, 30, 1, 17, 900, 9, 2).with("/sys/class/net/eth0/statistics/rx_missed_errors", "5\n"), 2)
	want := &Sample{
		Version: 1, Start: epoch, End: epoch.Add(2 * time.Second), Interval: 2 * time.Second,
		CPUs: []CPU{
			{CPU: 0, SoftirqRuns: [10]uint64{0: 1, 3: 100}, Idle: 600e6, Softirq: 100e6, Irq: 10e6, Processed: 50, Squeezed: 3},
			{CPU: 1, SoftirqRuns: [10]uint64{3: 5}, Idle: 300e6, Steal: 50e6, Dropped: 6},
		},
		NAPIs: []NAPI{},
		IRQs: []IRQ{
			{IRQ: 28, CPU: 1, Action: "eth0-rx-0", Count: 100},
			{IRQ: 29, CPU: 1, Action: "eth0-rx-1", Count: 3},
		},
		Devices: []Device{{Name: "eth0", IfIndex: 2, RXBytes: 3000, RXPackets: 20, RXDropped: 8, RXMissed: 2, TXBytes: 400, TXPackets: 4}},
	}
	if diff := cmp.Diff(want, Between(before, after, nil)); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func TestWrapsAndRestarts(t *testing.T) {
	const top = math.MaxUint32
	d := func(seconds float64) *difference {
		return &difference{interval: time.Duration(seconds * float64(time.Second)), s: &Sample{}, noted: map[Unmeasured]bool{}}
	}
	for _, c := range []struct {
		name      string
		prev, cur uint64
		seconds   float64
		want      uint64
		restarted bool
	}{
		{"grows", 5, 9, 1, 4, false},
		{"stands", 5, 5, 1, 0, false},
		{"wraps by little", top - 9, 20, 1, 30, false},
		{"wraps by much in a long interval", top - 9, 900e6, 10, 900e6 + 10, false},
		{"would have to be faster than any CPU", top - 9, 900e6, 1, 0, true},
		{"restarts low", 1000, 0, 1, 0, true},
		{"restarts high", 3e9, 100, 1, 0, true},
		{"was wider than 32 bits", 5e9, 10, 1, 0, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			diff := d(c.seconds)
			if got := diff.up32(irqSubject(1), c.prev, c.cur); got != c.want || len(diff.s.Unmeasured) > 0 != c.restarted {
				t.Errorf("up32(%d, %d) in %v s = %d, noted %v; want %d, noted %v", c.prev, c.cur, c.seconds, got, diff.s.Unmeasured, c.want, c.restarted)
			}
		})
	}
	diff := d(1)
	if got := diff.up64(deviceSubject("eth0"), 9, 4); got != 0 || len(diff.s.Unmeasured) != 1 || diff.s.Unmeasured[0].What != "eth0" {
		t.Errorf("a 64-bit counter that went back gives %d, noted %v", got, diff.s.Unmeasured)
	}
	diff = d(1)
	if got := diff.upDevice("eth0", top-1, 3); got != 5 || len(diff.s.Unmeasured) != 0 {
		t.Errorf("a driver's 32-bit counter that wrapped gives %d, noted %v", got, diff.s.Unmeasured)
	}
}

// said reports whether the sample has a note on what that holds words.
func said(s *Sample, what, words string) bool {
	for _, u := range s.Unmeasured {
		if u.What == what && strings.Contains(u.Why, words) {
			return true
		}
	}
	return false
}

func TestCPUsThatComeAndGo(t *testing.T) {
	only0 := host2().
		with("/proc/stat", "cpu0 0 0 0 100 10 1 2 0 0 0\n").
		with("/proc/net/softnet_stat", softnetRow(0, 100, 1, 2)).
		with("/proc/interrupts", "   CPU0\n 28: 10  PCI-MSI 524288-edge  eth0-rx-0\n")
	both := host2()

	came := Between(reading(t, only0, 0), reading(t, both, 1), nil)
	if !said(came, "CPU 1", "came online") {
		t.Errorf("unmeasured %v, want CPU 1 named", came.Unmeasured)
	}
	if diff := cmp.Diff([]CPU{{CPU: 0}, {CPU: 1}}, came.CPUs); diff != "" {
		t.Errorf("counters since boot taken for this interval's, -want +got:\n%s", diff)
	}
	if len(came.IRQs) != 0 {
		t.Errorf("interrupts since boot taken for this interval's: %v", came.IRQs)
	}
	went := Between(reading(t, both, 0), reading(t, only0, 1), nil)
	if !said(went, "CPU 1", "went offline") {
		t.Errorf("unmeasured %v, want CPU 1 named", went.Unmeasured)
	}
	if diff := cmp.Diff([]CPU{{CPU: 0}}, went.CPUs); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func TestOldSoftnetRowsAreTheOnlineCPUs(t *testing.T) {
	rows := "00000064 00000000 00000001 00000000 00000000 00000000 00000000 00000000 00000000 00000002 00000003\n"
	f := host2().with("/proc/stat", "cpu0 1 1 1 1\ncpu5 1 1 1 1\n").with("/proc/net/softnet_stat", rows+strings.ReplaceAll(rows, "64", "ff"))
	r := reading(t, f, 0)
	if len(r.Softnet) != 2 || r.Softnet[1].CPU != 5 || r.Softnet[1].Processed != 255 || r.Softnet[1].FlowLimit != 3 {
		t.Errorf("rows %+v, want the second to be CPU 5's", r.Softnet)
	}
	r = reading(t, f.with("/proc/net/softnet_stat", rows), 0)
	if r.Softnet != nil || len(r.Unmeasured) != 1 || !strings.Contains(r.Unmeasured[0].Why, "does not tell its CPUs") {
		t.Errorf("rows %+v, unmeasured %v; want none guessed", r.Softnet, r.Unmeasured)
	}
}

func TestSourcesThatCannotBeReadAreNamed(t *testing.T) {
	bad := host2().with("/proc/interrupts", "!").without("/proc/softirqs").with("/proc/net/softnet_stat", "zz\n").
		with("/proc/net/dev", devHeader+"  eth0: 1 2 three 4 0 0 0 0 0 0 0 0 0 0 0 0\n")
	s := Between(reading(t, host2(), 0), reading(t, bad, 1), nil)
	for what, words := range map[string]string{
		"interrupt counts":                    "permission denied",
		"softirq runs":                        "not exist",
		"packets, drops and squeezes of CPUs": "/proc/net/softnet_stat:1",
		"device counters":                     "/proc/net/dev:3",
	} {
		if !said(s, what, words) {
			t.Errorf("unmeasured %v, want %q because of %q", s.Unmeasured, what, words)
		}
	}
	if len(s.CPUs) != 2 {
		t.Errorf("CPUs %v, want both from /proc/stat", s.CPUs)
	}
}

func TestDevicesThatVanishAppearAndAreRenamed(t *testing.T) {
	before := reading(t, host2().device("eth0", 2, 100, 1, 0, 0, 0, 0, 0).device("gone", 3, 5, 5, 0, 0, 0, 0, 0), 0)
	f := host2().device("lan0", 2, 300, 3, 0, 0, 0, 0, 0).device("new", 4, 70, 7, 0, 0, 0, 0, 0).device("racing", 9, 1, 1, 0, 0, 0, 0, 0)
	after := reading(t, f.without("/sys/class/net/racing/ifindex"), 1)
	s := Between(before, after, nil)
	want := []Device{{Name: "lan0", IfIndex: 2, RXBytes: 200, RXPackets: 2}, {Name: "new", IfIndex: 4, RXBytes: 70, RXPackets: 7}}
	if diff := cmp.Diff(want, s.Devices); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if !said(s, "gone", "vanished") {
		t.Errorf("unmeasured %v, want the device named", s.Unmeasured)
	}

	reborn := reading(t, host2().device("eth0", 2, 10, 1, 0, 0, 0, 0, 0), 1)
	s = Between(before, reborn, nil)
	if s.Devices[0].RXBytes != 0 || !said(s, "eth0", "went back") {
		t.Errorf("devices %v, unmeasured %v; want a restart, no giant", s.Devices, s.Unmeasured)
	}
}

func TestNAPIsAreNamedByWhoseTheyAre(t *testing.T) {
	own := bpf.NAPIKey{Napi: 0x1000, Netns: ownInode, Ifindex: 2, NapiId: 257, Cpu: 1}
	vanished := bpf.NAPIKey{Napi: 0x2000, Netns: ownInode, Ifindex: 9, NapiId: 258, Cpu: 1}
	foreign := bpf.NAPIKey{Napi: 0x3000, Netns: ownInode + 1, Ifindex: 2, NapiId: 300, Cpu: 0}
	backlog := bpf.NAPIKey{Napi: 0x4000, Cpu: 0}
	quiet := bpf.NAPIKey{Napi: 0x5000, Netns: ownInode, Ifindex: 2, NapiId: 259, Cpu: 0}
	k := &kernel{}
	k.poll(own, "old", 10, 2, 100)
	k.poll(quiet, "eth0", 10, 2, 100)
	k.now.CPUs = make([]bpf.CPUStat, 2)
	f := host2().device("eth0", 2, 0, 0, 0, 0, 0, 0, 0)
	before := reading(t, f, 0)
	before.BPF = &bpf.Counters{}
	if err := k.Read(before.BPF); err != nil {
		t.Fatal(err)
	}
	k.poll(own, "old", 5, 3, 200)
	k.poll(vanished, "eth9", 1, 64, 900)
	k.poll(foreign, "eth0", 2, 1, 50)
	k.poll(backlog, "", 4, 1, 70)
	k.now.CPUs[0].Runs[NetRX], k.now.CPUs[0].Time[NetRX], k.now.CPUs[0].Tail = 6, 700, 20
	k.now.CPUs[0].RunsIn[bpf.OverIdle], k.now.CPUs[0].TimeIn[bpf.InKsoftirqd] = 4, 300
	k.now.CPUs[1].LostPolls, k.now.CPUs[1].LostPollTime = 3, 33
	k.now.IRQKeys, k.now.IRQs = []bpf.IRQKey{{Irq: 28, Cpu: 1}}, []bpf.IRQStat{{Count: 7, Time: 7000}}
	after := reading(t, f, 1)
	after.BPF = &k.now
	rxQueue := func(netns uint64, ifindex int, id uint32) int {
		if netns == ownInode && ifindex == 2 && id == 257 {
			return 4
		}
		return -1
	}
	s := Between(before, after, rxQueue)
	want := []NAPI{
		{Device: Backlog, Pointer: 0x4000, RXQueue: -1, CPU: 0, Polls: 4, Packets: 4, Time: 280},
		{Netns: ownInode, IfIndex: 2, Device: "eth0", ID: 257, Pointer: 0x1000, RXQueue: 4, CPU: 1, Polls: 5, Packets: 15, Time: 1000},
		{Netns: ownInode, IfIndex: 9, Device: "eth9", ID: 258, Pointer: 0x2000, RXQueue: -1, CPU: 1, Polls: 1, Packets: 64, Time: 900},
		{Netns: ownInode + 1, IfIndex: 2, Device: Foreign, SeenAs: "eth0", ID: 300, Pointer: 0x3000, RXQueue: -1, CPU: 0, Polls: 2, Packets: 2, Time: 100},
	}
	if diff := cmp.Diff(want, s.NAPIs); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if c := s.CPUs[0]; s.Level != 1 || c.SoftirqTime[NetRX] != 700 || c.Tail != 20 || c.RunsIn[OverIdle] != 4 || c.TimeIn[InKsoftirqd] != 300 {
		t.Errorf("level %d, CPU 0 %+v", s.Level, c)
	}
	if diff := cmp.Diff(map[string]uint64{LostPolls: 3, LostPollTime: 33}, s.Lost); diff != "" {
		t.Errorf("lost -want +got:\n%s", diff)
	}
	// /proc/interrupts counted none of IRQ 28: the count is its, the time is ours.
	if diff := cmp.Diff([]IRQ{{IRQ: 28, CPU: 1, Action: "eth0-rx-0", Time: 7000}}, s.IRQs); diff != "" {
		t.Errorf("IRQs -want +got:\n%s", diff)
	}
}

func TestUntracedRunsAreCountedAndMadeUpForWhenMany(t *testing.T) {
	for _, tt := range []struct {
		name           string
		counted        uint64
		traced         uint64
		untraced       uint64
		wantUnmeasured bool
		wantTime       uint64 // of 800 ns traced, 600 of them in polls
	}{
		{"all traced", 1000, 1000, 0, false, 800},
		{"read later than counted", 1000, 1003, 0, false, 800},
		{"a few between the two readings", 1000, 960, 40, false, 800},
		{"a small part of many", 10000, 9900, 100, false, 800},
		{"half", 1000, 500, 500, true, 1600},
		{"all but some", 1000, 100, 900, true, 8000},
		{"none traced, nothing to scale", 1000, 0, 1000, false, 800},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var prev, cur bpf.Counters
			prev.CPUs, cur.CPUs = make([]bpf.CPUStat, 1), make([]bpf.CPUStat, 1)
			cur.CPUs[0].Runs[NetRX], cur.CPUs[0].Runs[0] = tt.traced, 1
			cur.CPUs[0].Time[NetRX], cur.CPUs[0].Tail, cur.CPUs[0].TimeIn[bpf.OverTask] = 800, 200, 800
			cur.NAPIKeys, cur.NAPIs = []bpf.NAPIKey{{Napi: 1}}, []bpf.NAPIStat{{Polls: 6, Packets: 6, Time: 600}}
			softirqs := func(n uint64) *procfs.Softirqs {
				s, err := procfs.ParseSoftirqs("softirqs", []byte(fmt.Sprintf("  CPU0\nNET_RX: %d\n", n)))
				if err != nil {
					t.Fatal(err)
				}
				return s
			}
			s := Between(&Reading{Softirqs: softirqs(5), BPF: &prev}, &Reading{At: time.Unix(1, 0), Softirqs: softirqs(5 + tt.counted), BPF: &cur}, nil)
			if got := s.CPUs[0].Untraced; got != tt.untraced {
				t.Errorf("untraced %d, want %d", got, tt.untraced)
			}
			c, n := s.CPUs[0], s.NAPIs[0]
			if c.SoftirqTime[NetRX] != tt.wantTime || c.TimeIn[OverTask] != tt.wantTime || n.Time+c.Tail != tt.wantTime || n.Polls*100 != n.Time {
				t.Errorf("NET_RX %d ns, in context %d, tail %d, NAPI %d ns in %d polls; want %d ns in all", c.SoftirqTime[NetRX], c.TimeIn[OverTask], c.Tail, n.Time, n.Polls, tt.wantTime)
			}
			if got := len(s.Unmeasured) > 0; got != tt.wantUnmeasured {
				t.Errorf("unmeasured %v, want any: %v", s.Unmeasured, tt.wantUnmeasured)
			}
		})
	}
}

// The kernel lists the pairs of a map in any order, and in another where some came and went.
func TestNAPIsDoNotDependOnTheOrderOfTheMap(t *testing.T) {
	reading := func(at int64, n uint64, pairs ...uint32) *Reading {
		c := &bpf.Counters{}
		for _, id := range pairs {
			c.NAPIKeys = append(c.NAPIKeys, bpf.NAPIKey{Napi: uint64(100 - id), Netns: ownInode, Ifindex: 2, NapiId: id})
			c.NAPIs = append(c.NAPIs, bpf.NAPIStat{Polls: n * uint64(id)})
		}
		return &Reading{At: time.Unix(at, 0), Netns: ownInode, BPF: c}
	}
	polls := func(s *Sample) (got []uint64) {
		for _, n := range s.NAPIs {
			got = append(got, uint64(n.ID), n.Polls)
		}
		return got
	}
	prev := reading(1, 10, 3, 1, 2)
	for i, tc := range []struct {
		cur  *Reading
		want []uint64
	}{
		{reading(2, 11, 3, 1, 2), []uint64{1, 1, 2, 2, 3, 3}},
		{reading(3, 13, 3, 1, 2), []uint64{1, 2, 2, 4, 3, 6}}, // the order is known by now
		{reading(4, 14, 2, 3, 1), []uint64{1, 1, 2, 2, 3, 3}},
		{reading(5, 15, 2, 4, 1), []uint64{1, 1, 2, 2, 4, 60}}, // one went, one came
		{reading(6, 16, 1, 2), []uint64{1, 1, 2, 2}},
	} {
		if diff := cmp.Diff(tc.want, polls(Between(prev, tc.cur, nil))); diff != "" {
			t.Errorf("reading %d: NAPIs and polls (-want +got):\n%s", i, diff)
		}
		prev = tc.cur
	}
}

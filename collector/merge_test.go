package collector

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

func full(at int) *Sample {
	n := uint64(at + 1)
	return &Sample{
		Version: 1, Start: epoch.Add(time.Duration(at) * time.Second), End: epoch.Add(time.Duration(at+1) * time.Second),
		Interval: time.Second, Level: 1,
		CPUs: []CPU{{
			CPU: 1, SoftirqTime: [10]uint64{3: 100 * n}, SoftirqRuns: [10]uint64{3: n}, Untraced: n, Tail: n,
			RunsIn: [Contexts]uint64{1, 2, 3}, TimeIn: [Contexts]uint64{4, 5, 6}, Idle: 7, Softirq: 8, Irq: 9, Steal: 10,
			Processed: 11, Dropped: 12, Squeezed: 13, ReceivedRPS: 14, FlowLimit: 15, Backlog: n,
		}},
		NAPIs: []NAPI{{
			Netns: 7, IfIndex: 2, Device: "eth0", ID: 5, Pointer: 9, RXQueue: 3, CPU: 1, Polls: n, Packets: 10 * n, Time: 100 * n,
			FullBudget: 1, Empty: 2, BusyPolls: 3, TimeHist: Histogram{4: n}, WorkHist: Histogram{5: n},
		}},
		IRQs:       []IRQ{{IRQ: 28, CPU: 1, Action: "eth0-rx-3", Count: n, Time: 50 * n}},
		Devices:    []Device{{Name: "eth0", IfIndex: 2, RXPackets: n, RXBytes: 2, RXDropped: 3, RXMissed: 4, RXErrors: 5, TXPackets: 6, TXBytes: 7, TXDropped: 8}},
		Protocols:  map[string]uint64{"UdpInDatagrams": n},
		Unmeasured: []Unmeasured{{What: "x", Why: "y"}},
		Lost:       map[string]uint64{LostPolls: n},
	}
}

func TestMergeSums(t *testing.T) {
	a, b := full(0), full(1)
	b.Level = 0
	b.NAPIs[0].Device = "lan0"
	b.Unmeasured = append(b.Unmeasured, Unmeasured{What: "z", Why: "y"})
	b.NAPIs = append(b.NAPIs, NAPI{Netns: 7, IfIndex: 2, Device: "lan0", ID: 5, Pointer: 10, CPU: 1, Polls: 1})
	want := &Sample{
		Version: 1, Start: a.Start, End: b.End, Interval: 2 * time.Second, Level: 0,
		CPUs: []CPU{{
			CPU: 1, SoftirqTime: [10]uint64{3: 300}, SoftirqRuns: [10]uint64{3: 3}, Untraced: 3, Tail: 3,
			RunsIn: [Contexts]uint64{2, 4, 6}, TimeIn: [Contexts]uint64{8, 10, 12}, Idle: 14, Softirq: 16, Irq: 18, Steal: 20,
			Processed: 22, Dropped: 24, Squeezed: 26, ReceivedRPS: 28, FlowLimit: 30, Backlog: 2,
		}},
		NAPIs: []NAPI{{
			Netns: 7, IfIndex: 2, Device: "lan0", ID: 5, Pointer: 9, RXQueue: 3, CPU: 1, Polls: 3, Packets: 30, Time: 300,
			FullBudget: 2, Empty: 4, BusyPolls: 6, TimeHist: Histogram{4: 3}, WorkHist: Histogram{5: 3},
		}, {Netns: 7, IfIndex: 2, Device: "lan0", ID: 5, Pointer: 10, CPU: 1, Polls: 1}},
		IRQs:       []IRQ{{IRQ: 28, CPU: 1, Action: "eth0-rx-3", Count: 3, Time: 150}},
		Devices:    []Device{{Name: "eth0", IfIndex: 2, RXPackets: 3, RXBytes: 4, RXDropped: 6, RXMissed: 8, RXErrors: 10, TXPackets: 12, TXBytes: 14, TXDropped: 16}},
		Protocols:  map[string]uint64{"UdpInDatagrams": 3},
		Unmeasured: []Unmeasured{{What: "x", Why: "y"}, {What: "z", Why: "y"}},
		Lost:       map[string]uint64{LostPolls: 3},
	}
	if diff := cmp.Diff(want, Merge(a, b)); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if diff := cmp.Diff(full(0), a); diff != "" {
		t.Errorf("Merge changed its argument:\n%s", diff)
	}
	if diff := cmp.Diff(full(0), Merge(full(0))); diff != "" {
		t.Errorf("one sample alone, -want +got:\n%s", diff)
	}
	if Merge() != nil {
		t.Error("Merge of nothing is not nil")
	}
}

func TestSampleSurvivesJSON(t *testing.T) {
	want := full(0)
	text, err := json.Marshal(want)
	if err != nil {
		t.Fatal(err)
	}
	got := &Sample{}
	if err := json.Unmarshal(text, got); err != nil {
		t.Fatal(err)
	}
	// The address of a kernel object stays in the process.
	if diff := cmp.Diff(want, got, cmpopts.IgnoreFields(NAPI{}, "Pointer")); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	again, err := json.Marshal(got)
	if err != nil {
		t.Fatal(err)
	}
	if string(again) != string(text) {
		t.Errorf("JSON changed on the way:\n%s\n%s", text, again)
	}
}

func TestRingKeepsTheLatest(t *testing.T) {
	r := NewRing(3)
	if r.Latest() != nil || len(r.Window(time.Hour)) != 0 {
		t.Error("an empty ring holds something")
	}
	live, cancel := r.Subscribe()
	all := make([]*Sample, 12)
	for i := range all {
		all[i] = full(i)
		r.Add(all[i])
	}
	if r.Latest() != all[11] {
		t.Errorf("latest is not the last")
	}
	for _, c := range []struct {
		d    time.Duration
		want []*Sample
	}{
		{0, all[12:]},
		{time.Second, all[11:]},
		{1500 * time.Millisecond, all[10:]},
		{time.Hour, all[9:]},
	} {
		if got := r.Window(c.d); len(got) != len(c.want) || len(got) > 0 && got[0] != c.want[0] {
			t.Errorf("window of %v holds %d samples, want %d", c.d, len(got), len(c.want))
		}
	}
	// Nobody read: the channel holds the first eight, four were missed.
	if missed := cancel(); missed != 4 {
		t.Errorf("%d samples missed, want 4", missed)
	}
	cancel()
	n := 0
	for s := range live {
		if s != all[n] {
			t.Errorf("sample %d is another", n)
		}
		n++
	}
	if n != 8 {
		t.Errorf("%d samples delivered, want 8", n)
	}
	r.Add(full(12)) // nobody left to send to
}

// Packets that a driver counts by queue have no NAPI: they stay those of their queue.
func TestMergeKeepsQueuesOfDriverCounters(t *testing.T) {
	one := &Sample{NAPIs: []NAPI{{IfIndex: 2, Device: "eth0", RXQueue: 0, CPU: NoCPU, Packets: 5}, {IfIndex: 2, Device: "eth0", RXQueue: 1, CPU: NoCPU, Packets: 7}}}
	m := Merge(one, one)
	if len(m.NAPIs) != 2 || m.NAPIs[0].RXQueue != 0 || m.NAPIs[0].Packets != 10 || m.NAPIs[1].RXQueue != 1 || m.NAPIs[1].Packets != 14 {
		t.Errorf("merged: %+v", m.NAPIs)
	}
}

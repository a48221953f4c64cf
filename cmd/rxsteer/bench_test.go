package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/rxsteer/rxsteer/collector"
	"github.com/rxsteer/rxsteer/collector/record"
	"github.com/rxsteer/rxsteer/internal/cpuset"
	"github.com/rxsteer/rxsteer/internal/host/knob"
	"github.com/rxsteer/rxsteer/internal/host/nic"
	"github.com/rxsteer/rxsteer/internal/host/topo"
)

// tenMinutes writes a recording of 600 samples of a host of 64 queues and CPUs, of which CPU 7 is hot.
func tenMinutes(tb testing.TB) string {
	tb.Helper()
	const n = 64
	name := filepath.Join(tb.TempDir(), "night.rxrec")
	f, err := os.Create(name)
	if err != nil {
		tb.Fatal(err)
	}
	defer f.Close()
	start := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	w, err := record.NewWriter(f, record.Header{Started: start, Interval: time.Second, Level: 1})
	if err != nil {
		tb.Fatal(err)
	}
	t := &topo.Topology{Online: cpuset.Range(0, n-1), Possible: cpuset.Range(0, n-1)}
	eth0 := nic.NIC{Name: "eth0", IfIndex: 2, Kind: nic.Physical, Up: true, Node: 0}
	snap := &knob.Snapshot{Version: knob.SnapshotVersion, Taken: start, Devices: []knob.Device{{Name: "eth0", IfIndex: 2, RXQueues: n, TXQueues: n}}}
	var table []int
	for i := range n {
		t.CPUs = append(t.CPUs, topo.CPU{ID: i, Core: i, Online: true})
		eth0.Queues = append(eth0.Queues, nic.Queue{RX: i, TX: i, IRQ: 100 + i, NAPI: uint32(500 + i), KnownBy: nic.ByNetlink, Affinity: cpuset.Of(i), Effective: cpuset.Of(i)})
	}
	for i := range 512 {
		table = append(table, i%n)
	}
	snap.Settings = append(snap.Settings, knob.Setting{Ref: knob.Ref{Knob: knob.RSSTable, Target: "eth0"}, Value: knob.List(table)})
	snap.Sort()
	if err := w.State(&record.State{At: start, NICs: []nic.NIC{eth0}, Topology: t, Snapshot: snap}); err != nil {
		tb.Fatal(err)
	}
	for k := range 600 {
		s := &collector.Sample{Version: collector.SampleVersion, Start: start.Add(time.Duration(k) * time.Second), End: start.Add(time.Duration(k+1) * time.Second), Interval: time.Second, Level: 1,
			Devices: []collector.Device{{Name: "eth0", IfIndex: 2, RXPackets: 6_400_000, RXBytes: 6_400_000 * 700}}}
		for i := range n {
			netrx := uint64(3e8) + uint64(k*i)
			if i == 7 {
				netrx = 9e8
			}
			c := collector.CPU{CPU: i, Idle: 1e9 - netrx, Softirq: netrx, Processed: 100_000 + uint64(k)}
			c.SoftirqTime[collector.NetRX], c.SoftirqRuns[collector.NetRX] = netrx, 20_000
			s.CPUs = append(s.CPUs, c)
			p := collector.NAPI{IfIndex: 2, Device: "eth0", ID: uint32(500 + i), RXQueue: i, CPU: i, Polls: 20_000, Packets: 100_000 + uint64(k), Time: netrx}
			for b := range 12 {
				p.TimeHist[8+b], p.WorkHist[b%7] = uint64(1000+k), uint64(3000+k)
			}
			s.NAPIs = append(s.NAPIs, p)
			s.IRQs = append(s.IRQs, collector.IRQ{IRQ: 100 + i, CPU: i, Action: "eth0-TxRx", Count: 20_000, Time: 1e7})
		}
		if err := w.Sample(s); err != nil {
			tb.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		tb.Fatal(err)
	}
	return name
}

// rxsteer diagnose --from of ten minutes of a host of 64 queues, from the file to the JSON: 1 s is allowed.
func BenchmarkDiagnoseRecording(b *testing.B) {
	file := tenMinutes(b)
	for b.Loop() {
		e, out, stderr := testEnv("diagnose", "--from", file, "-o", "json", "--fail-on", "never")
		if code := run(b.Context(), e); code != exitOK {
			b.Fatalf("exit %d: %s", code, stderr)
		}
		var r struct{ Findings []struct{ ID string } }
		if err := json.Unmarshal(out.Bytes(), &r); err != nil || len(r.Findings) == 0 || r.Findings[0].ID != "RX101" {
			b.Fatalf("the hot CPU is not found: %s", out)
		}
	}
}

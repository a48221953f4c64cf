package diagnose

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/rxsteer/rxsteer/collector"
	"github.com/rxsteer/rxsteer/internal/cpuset"
	"github.com/rxsteer/rxsteer/internal/host/knob"
	"github.com/rxsteer/rxsteer/internal/host/nic"
)

// recording is ten minutes of a host of 64 queues and CPUs with everything measured, in windows of a second: CPU 7
// is hot, every window has its own figures, the biggest flows of each queue and the load of 512 buckets.
func recording() Input {
	const n = 64
	w := newWorld(n).nic("eth0", nic.Physical, n).table("eth0", 512, n).carry("eth0", 1e5*n)
	for q := range n {
		w.busy(q, 0.3, 0.1, 1e5).poll("eth0", q, q, 0.25, 1e5).vector(q, fmt.Sprint(q), cpuset.Of(q).String(), q, 1e4)
		w.set(knob.XPSCPUs, knob.On("eth0", "tx-%d", q), knob.Text(fmt.Sprint(q)))
		for i := range 8 {
			w.Sample.Flows = append(w.Sample.Flows, collector.Flow{Netns: here, IfIndex: 2, Device: "eth0", RXQueue: q, CPU: q, Protocol: "tcp", Bucket: q + 64*i, Packets: 2000, ConsumerCPU: (q + 1) % n,
				Source: netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, byte(q), byte(i)}), 40000), Destination: netip.MustParseAddrPort("192.0.2.1:80")})
		}
		for c := range 8 {
			w.counts("eth0", collector.DriverCounter{Name: fmt.Sprintf("rx_queue_%d_%d", q, c), Kind: nic.RingDrops, Scope: nic.ScopeQueue, Queue: q, Count: 1})
		}
	}
	w.busy(7, 0.9, 0, 1e5).loads(func(int) float64 { return 1.0 / 512 })
	one := *w.Sample
	for i := range 600 {
		s := one
		s.Interval = time.Second
		s.NAPIs = append([]collector.NAPI{}, one.NAPIs...)
		for k := range s.NAPIs {
			s.NAPIs[k].Packets, s.NAPIs[k].Time = s.NAPIs[k].Packets/10+uint64(i), s.NAPIs[k].Time/10
		}
		s.CPUs = append([]collector.CPU{}, one.CPUs...)
		for k := range s.CPUs {
			c := &s.CPUs[k]
			c.Idle, c.Softirq, c.SoftirqTime[collector.NetRX], c.Processed = c.Idle/10, c.Softirq/10, c.SoftirqTime[collector.NetRX]/10, c.Processed/10
		}
		w.Windows = append(w.Windows, &s)
	}
	return w.Input
}

// A recording of ten minutes is to be diagnosed within a second; reading the file is collector/record's, and
// BenchmarkDiagnoseRecording of cmd/rxsteer is both.
func BenchmarkDiagnoseTenMinutes(b *testing.B) {
	in := recording()
	for b.Loop() {
		in.Sample = collector.Merge(in.Windows...)
		Diagnose(in)
	}
}

// Ten minutes take some 0.1 s. How long on this machine depends on what else it does; against one minute, measured in
// turns with it, it tells whether the time grows with the recording or faster.
func TestTimeGrowsWithTheRecording(t *testing.T) {
	in := recording()
	all := in.Windows
	diagnose := func(windows []*collector.Sample) time.Duration {
		begin := time.Now()
		in.Windows, in.Sample = windows, collector.Merge(windows...)
		r := Diagnose(in)
		took := time.Since(begin)
		if f := without901(r); len(f) == 0 || f[0].ID != "RX101" {
			t.Fatalf("the hot CPU is not found: %v", r.Findings)
		}
		return took
	}
	minute, ten := time.Hour, time.Hour
	for range 5 {
		minute, ten = min(minute, diagnose(all[:60])), min(ten, diagnose(all))
	}
	t.Logf("64 queues, merged and diagnosed: a minute in %v, ten in %v", minute, ten)
	if ten > 40*minute {
		t.Errorf("ten minutes take %v, one %v", ten, minute)
	}
}

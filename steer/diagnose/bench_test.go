package diagnose

import (
	"fmt"
	"testing"
	"time"

	"github.com/rxsteer/rxsteer/collector"
	"github.com/rxsteer/rxsteer/internal/cpuset"
	"github.com/rxsteer/rxsteer/internal/host/knob"
	"github.com/rxsteer/rxsteer/internal/host/nic"
)

// recording is ten minutes of a host of 64 queues and CPUs, in windows of a second.
func recording() Input {
	const n = 64
	w := newWorld(n).nic("eth0", nic.Physical, n).table("eth0", 512, n).carry("eth0", 1e6*n)
	for q := range n {
		w.busy(q, 0.3, 0.1, 1e6).poll("eth0", q, q, 0.25, 1e6).vector(q, fmt.Sprint(q), cpuset.Of(q).String(), q, 1e5)
	}
	for q := range n {
		w.set(knob.XPSCPUs, knob.On("eth0", "tx-%d", q), knob.Text(fmt.Sprint(q)))
	}
	w.busy(7, 0.9, 0, 1e6)
	one := w.Sample
	one.Interval = time.Second
	for range 600 {
		w.Windows = append(w.Windows, one)
	}
	w.Sample = collector.Merge(w.Windows...)
	return w.Input
}

// A recording of ten minutes is to be diagnosed within a second.
func BenchmarkDiagnoseTenMinutes(b *testing.B) {
	in := recording()
	for b.Loop() {
		Diagnose(in)
	}
}

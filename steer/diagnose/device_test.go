package diagnose

import (
	"testing"

	"github.com/rxsteer/rxsteer/collector"
	"github.com/rxsteer/rxsteer/internal/host/knob"
	"github.com/rxsteer/rxsteer/internal/host/nic"
)

// counts adds a counter of a device's driver.
func (w *world) counts(device string, c collector.DriverCounter) *world {
	for i := range w.Sample.Drivers {
		if d := &w.Sample.Drivers[i]; d.Device == device {
			d.Told, d.Counters = append(d.Told, c.Kind), append(d.Counters, c)
			return w
		}
	}
	w.Sample.Drivers = append(w.Sample.Drivers, collector.Driver{Device: device, Told: []nic.FactKind{c.Kind}, Counters: []collector.DriverCounter{c}})
	return w
}

func port(name string, kind nic.FactKind, n uint64) collector.DriverCounter {
	return collector.DriverCounter{Name: name, Kind: kind, Scope: nic.ScopePort, Queue: nic.None, Count: n}
}

// fourQueues is a device whose four queues are polled on those CPUs in turn, crowdedThreads one whose NAPI
// threads do it.
func fourQueues(cpus ...int) *world {
	w := newWorld(8).nic("eth0", nic.Physical, 4).carry("eth0", 160000)
	for q := range 4 {
		w.poll("eth0", q, cpus[q%len(cpus)], 0.01, 40000)
	}
	return w
}

func crowdedThreads(cpus ...int) *world {
	return fourQueues(cpus...).set(knob.Threaded, "eth0", knob.Int(1))
}

// What only a live measurement or its chain of causes shows; what pasted texts show is in testdata/pasted.
func TestDeviceFindings(t *testing.T) {
	busy := func(n uint64) func(*world) {
		return func(w *world) { w.Sample.NAPIs[0].BusyPolls = n }
	}
	tests := []struct {
		name string
		in   *world
		want string
		say  string
	}{
		{"one cause explains its ring drops", oneQueue().counts("eth0", port("rx_missed_errors", nic.RingDrops, 90000)), "RX301 warning eth0 [RX101 RX402]", ""},
		{"and its pause frames", oneQueue().counts("eth0", port("tx_flow_control_xoff", nic.PauseSent, 9000)), "RX301 warning eth0 [RX101 RX404]", ""},
		{"another device's drops stay its own", oneQueue().nic("eth1", nic.Physical, 4).carry("eth1", 900000).counts("eth1", port("rx_missed_errors", nic.RingDrops, 5000)),
			"RX402 warning eth1 []\nRX301 warning eth0 [RX101]", ""},
		{"drops by the kernel's own counter", newWorld(4).nic("eth0", nic.Physical, 4).carry("eth0", 900000).but(func(w *world) { w.Sample.Devices[0].RXMissed = 5000 }),
			"RX402 warning eth0 []", "rx_missed_errors"},
		{"not asked for", newWorld(4).nic("eth0", nic.Physical, 4).carry("eth0", 900000).counts("eth0", port("rx_missed_errors", nic.RingDrops, 5000)).but(func(w *world) { w.Devices = []string{"eth7"} }), "", ""},
		{"a bond repeats its members' drops", newWorld(4).nic("bond0", nic.Stack, 4).carry("bond0", 900000).but(func(w *world) { w.Sample.Devices[0].RXMissed = 5000 }), "", ""},
		{"no memory for buffers", newWorld(4).nic("eth0", nic.Physical, 4).carry("eth0", 900000).counts("eth0", port("rx_missed_errors", nic.RingDrops, 5000)).counts("eth0", port("rx_buff_alloc_err", nic.NoMemory, 4000)),
			"RX402 warning eth0 []", "min_free_kbytes"},
		{"busy polling", fourQueues(0, 1, 2, 3).but(busy(3e6)), "RX504 info eth0 []", "300000 times/s"},
		{"a little busy polling", fourQueues(0, 1, 2, 3).but(busy(500)), "", ""},
		{"threads poll in process context too", crowdedThreads(0, 1, 2, 3).but(busy(3e6)), "", ""},
		{"threads crowd on one CPU", crowdedThreads(0), "RX505 info eth0 []", "100 % of its packets, of 4 queues, on cpu 0"},
		{"and it has no time left", crowdedThreads(0).busy(0, 0, 0.95, 160000), "RX505 warning eth0 []", ""},
		{"threads spread", crowdedThreads(0, 1, 2, 3), "", "its threads spread over 4 CPUs"},
		{"one busy thread", newWorld(8).nic("eth0", nic.Physical, 4).carry("eth0", 160000).poll("eth0", 1, 0, 0.01, 160000).set(knob.Threaded, "eth0", knob.Int(1)), "", ""},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			test.in.judge(t, test.want, test.say)
		})
	}
}

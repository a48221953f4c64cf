package collector

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/rxsteer/rxsteer/internal/ethtool"
	"github.com/rxsteer/rxsteer/internal/host"
	"github.com/rxsteer/rxsteer/internal/host/procfs"
	"github.com/rxsteer/rxsteer/internal/netdev"
)

// counters is what the kernel (by ifindex) and drivers (by name) count.
type queueCounts struct {
	kernel map[int][]uint64
	driver map[string][]ethtool.Stat
	asked  int // drivers
}

func (*queueCounts) Driver(string) (ethtool.Driver, error) { return ethtool.Driver{}, nil }

func (q *queueCounts) QueueStats(ifindex int) ([]netdev.QueueStats, error) {
	packets, ok := q.kernel[ifindex]
	if !ok {
		return nil, netdev.ErrNotSupported
	}
	var out []netdev.QueueStats
	for i, n := range packets {
		out = append(out, netdev.QueueStats{IfIndex: ifindex, Type: netdev.RX, ID: i, Counters: map[string]uint64{"rx-packets": n, "rx-hw-drops": n / 10}},
			netdev.QueueStats{IfIndex: ifindex, Type: netdev.TX, ID: i, Counters: map[string]uint64{"tx-packets": 1e6}})
	}
	return out, nil
}

func (q *queueCounts) Stats(device string) ([]ethtool.Stat, error) {
	q.asked++
	s, ok := q.driver[device]
	if !ok {
		return nil, ethtool.ErrNotSupported
	}
	return s, nil
}

func igb(packets ...uint64) []ethtool.Stat {
	s := []ethtool.Stat{{Name: "rx_packets", Value: 1e9}}
	for i, n := range packets {
		s = append(s, ethtool.Stat{Name: fmt.Sprintf("rx_queue_%d_packets", i), Value: n}, ethtool.Stat{Name: fmt.Sprintf("tx_queue_%d_packets", i), Value: 7},
			ethtool.Stat{Name: fmt.Sprintf("rx_queue_%d_drops", i), Value: n / 100})
	}
	return s
}

func TestTicker(t *testing.T) {
	f := host2()
	q := &queueCounts{kernel: map[int][]uint64{3: {100, 200}}, driver: map[string][]ethtool.Stat{"eth0": igb(1000, 2000)}}
	now := epoch
	tk := &Ticker{FS: f, Queues: q, Drivers: q, Now: func() time.Time { return now }}
	devices := []TickDevice{{Name: "eth0", IfIndex: 2, Driver: "igb", CPUs: []int{0, 1}}, {Name: "eth1", IfIndex: 3, CPUs: []int{1, -1}}, {Name: "dummy0", IfIndex: 4}}
	first, failed := tk.Tick(devices)
	if first != nil || len(failed) != 1 || !errors.Is(failed["dummy0"], ErrNoQueueCounters) {
		t.Fatalf("the first: %+v, failed %v", first, failed)
	}
	now = now.Add(100 * time.Millisecond)
	q.kernel[3], q.driver["eth0"] = []uint64{150, 200}, igb(1500, 1000) // queue 1 of eth0 began anew
	f["/proc/stat"] = "cpu  0 0 0 0\ncpu0 2 0 0 103 10 1 6 1 0 0\ncpu1 0 0 0 210 20 2 4 3 0 0\nbtime 1\n"
	got, failed := tk.Tick(devices)
	if len(failed) != 1 || got == nil || len(got.Devices) != 2 || got.Interval != 100*time.Millisecond {
		t.Fatalf("%+v, failed %v", got, failed)
	}
	if d := got.Devices[0]; d.Device != "eth0" || !slices.Equal(d.Packets, []uint64{500, 0}) || d.Dropped != 0 || !slices.Equal(d.CPUs, []int{0, 1}) {
		t.Errorf("eth0: %+v", d)
	}
	if d := got.Devices[1]; !slices.Equal(d.Packets, []uint64{50, 0}) || d.Dropped != 5 {
		t.Errorf("eth1: %+v", d)
	}
	if want := []CPUTick{{0, 0.7, 0.4}, {1, 0, 0}}; !slices.EqualFunc(got.CPUs, want, func(a, b CPUTick) bool {
		return a.CPU == b.CPU && a.Busy-b.Busy < 1e-9 && b.Busy-a.Busy < 1e-9 && a.RX-b.RX < 1e-9 && b.RX-a.RX < 1e-9
	}) {
		t.Errorf("CPUs %+v, want %+v", got.CPUs, want)
	}
	// dummy0 is not asked again, eth1 never was.
	if q.asked != 3 {
		t.Errorf("drivers were asked %d times, want 3", q.asked)
	}
	// A device with other queues than before is left out once.
	q.driver["eth0"] = igb(1, 2, 3, 4)
	if got, _ := tk.Tick(devices); len(got.Devices) != 1 {
		t.Errorf("rebuilt: %+v", got.Devices)
	}
	if got, _ := tk.Tick(devices); len(got.Devices) != 2 || len(got.Devices[0].Packets) != 4 {
		t.Errorf("afterwards: %+v", got.Devices)
	}
	f["/proc/stat"] = "!"
	if got, failed := tk.Tick(devices); failed["/proc/stat"] == nil || len(got.CPUs) != 0 {
		t.Errorf("unreadable: %+v %v", got, failed)
	}
}

func TestOutOfOrder(t *testing.T) {
	text, err := host.OS{}.ReadFile("/proc/net/netstat")
	if err != nil {
		t.Skip("needs /proc/net/netstat")
	}
	all, err := procfs.ParseSNMP("/proc/net/netstat", text)
	if err != nil {
		t.Fatal(err)
	}
	if n, ok := outOfOrder(text); !ok || n != all["TcpExtTCPOFOQueue"] {
		t.Errorf("%d %v, want %d", n, ok, all["TcpExtTCPOFOQueue"])
	}
	if n, ok := outOfOrder([]byte("TcpExt: A TCPOFOQueue B\nTcpExt: 1 23 4\n")); !ok || n != 23 {
		t.Errorf("%d %v, want 23", n, ok)
	}
	for _, bad := range []string{"", "TcpExt: A B\nTcpExt: 1 2\n", "TcpExt: A TCPOFOQueue B", "TcpExt: A TCPOFOQueue B\nTcpExt: 1\n", "TcpExt: TCPOFOQueue B\nTcpExt: x 1\n"} {
		if n, ok := outOfOrder([]byte(bad)); ok {
			t.Errorf("%q: %d", bad, n)
		}
	}
}

// BenchmarkTick is what ten looks a second cost ten times over, on this machine.
func BenchmarkTick(b *testing.B) {
	q := &queueCounts{driver: map[string][]ethtool.Stat{"eth0": igb(make([]uint64, 64)...)}}
	tk := &Ticker{FS: host.OS{}, Queues: q, Drivers: q, Now: time.Now}
	for b.Loop() {
		tk.Tick([]TickDevice{{Name: "eth0", IfIndex: 2, Driver: "igb"}})
	}
}

package diagnose

import (
	"testing"
	"time"

	"github.com/rxsteer/rxsteer/collector"
)

func TestWindows(t *testing.T) {
	const s = time.Second
	// sends 4 MB/s over 50 ms, always busy; receives 40 MB/s over 80 ms into the largest buffer.
	sends := collector.TCPFlow{Local: "10.0.0.1:5000", Remote: "192.0.2.7:443", Acked: 40e6, SegsOut: 28000, Busy: 10 * s, RTT: 50 * time.Millisecond, WindowScaling: true, Timestamps: true, Congestion: "cubic"}
	receives := collector.TCPFlow{Local: "10.0.0.1:5000", Remote: "192.0.2.8:443", Received: 400e6, ReceiveRTT: 80 * time.Millisecond, WindowScaling: true, Timestamps: true, ReceiveBuffer: 6 << 20}
	with := func(f collector.TCPFlow, change func(*collector.TCPFlow)) *world {
		if change != nil {
			change(&f)
		}
		return newWorld(2).but(func(w *world) {
			w.Sample.TCP = &collector.TCP{Flows: []collector.TCPFlow{f}, ReadMax: 6 << 20, WriteMax: 4 << 20}
		})
	}
	tests := []struct {
		name string
		in   *world
		want string
		say  string
	}{
		{"own send buffer", with(sends, func(f *collector.TCPFlow) { f.SendBuffer = 8 * s }), "RX603 warning 192.0.2.7:443 []", "net.ipv4.tcp_wmem=\"4096 16384 8388608\""},
		{"peer's window", with(sends, func(f *collector.TCPFlow) { f.PeerWindow = 6 * s }), "RX603 info 192.0.2.7:443 []", "at 192.0.2.7: a reader that keeps up"},
		{"losses", with(sends, func(f *collector.TCPFlow) { f.Retransmits = 900 }), "RX603 info 192.0.2.7:443 []", "3.2 % of the segments"},
		{"own window at its limit", with(receives, nil), "RX603 warning 192.0.2.8:443 []", "net.ipv4.tcp_rmem=\"4096 131072 16777216\""},
		{"no window scaling", with(receives, func(f *collector.TCPFlow) {
			f.WindowScaling, f.Received, f.ReceiveBuffer = false, 11e6, 131072
			f.ReceiveRTT = 50 * time.Millisecond
		}),
			"RX603 warning 192.0.2.8:443 []", "at most 64 KiB are in flight"},

		// Near misses.
		{"nothing holds it back", with(sends, nil), "", "none is bound by a window"},
		{"a near peer", with(sends, func(f *collector.TCPFlow) { f.SendBuffer, f.RTT = 8*s, 200*time.Microsecond }), "", "none is bound by a window"},
		{"a slow connection", with(sends, func(f *collector.TCPFlow) { f.SendBuffer, f.Acked = 8*s, 5e6 }), "", ""},
		{"held back now and then", with(sends, func(f *collector.TCPFlow) { f.SendBuffer, f.PeerWindow = 4*s, 4*s }), "", ""},
		{"few losses", with(sends, func(f *collector.TCPFlow) { f.Retransmits = 200 }), "", ""},
		{"a buffer that may still grow", with(receives, func(f *collector.TCPFlow) { f.ReceiveBuffer = 3 << 20 }), "", ""},
		{"a reader that sleeps", with(receives, func(f *collector.TCPFlow) { f.ReceiveQueue = 5 << 20 }), "", ""},
		{"an estimate without time stamps", with(receives, func(f *collector.TCPFlow) { f.Timestamps = false }), "", ""},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) { test.in.judge(t, test.want, test.say) })
	}
}

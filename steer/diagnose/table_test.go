package diagnose

import (
	"testing"

	"github.com/rxsteer/rxsteer/collector"
	"github.com/rxsteer/rxsteer/internal/host/knob"
	"github.com/rxsteer/rxsteer/internal/host/nic"
)

// even is a device of so many queues, each with the same load on a CPU of its own.
func even(queues int, driver string) *world {
	w := newWorld(8).nic("eth0", nic.Physical, queues).carry("eth0", uint64(10000*queues))
	w.NICs[0].Driver = driver
	for q := range min(queues, 8) {
		w.busy(q, 0.1, 0, 10000).poll("eth0", q, q, 0.1, 10000)
	}
	return w
}

// packets sets how many packets each queue got.
func (w *world) packets(n ...uint64) *world {
	w.Sample.NAPIs = nil
	var all uint64
	for q, k := range n {
		w.poll("eth0", q, q%len(w.Sample.CPUs), float64(k)/1e6, k)
		all += k
	}
	w.Sample.Devices = []collector.Device{{Name: "eth0", RXPackets: all}}
	return w
}

func (w *world) unmeasured() *world {
	w.Sample = nil
	return w
}

func buckets(of ...int) knob.Value { return knob.List(of) }

func TestTables(t *testing.T) {
	repeat := func(n int, of ...int) knob.Value {
		var t []int
		for i := range n {
			t = append(t, of[i%len(of)])
		}
		return knob.List(t)
	}
	tests := []struct {
		name, want, say string
		in              *world
	}{
		// RX202
		{"hardware limit", "RX202 info eth0 []", "reaches 16 of its 63 receive queues, the hardware's limit", even(63, "ixgbe").table("eth0", 128, 16)},
		{"hardware limit, nothing measured", "RX202 info eth0 []", "ethtool -L eth0 combined 16", even(63, "ixgbe").table("eth0", 128, 16).unmeasured()},
		{"and the flow director uses the others", "RX202 info eth0 []", "rx-16-19 get 20 % of the packets all the same", func() *world {
			w := even(20, "ixgbe").table("eth0", 128, 16)
			n := make([]uint64, 20)
			for i := range n {
				n[i] = 5000
			}
			return w.packets(n...)
		}()},
		{"a table of fewer queues kept by hand", "RX202 info eth0 []", "names 2 of its 8 receive queues: rx-2-7 get nothing", even(8, "i40e").table("eth0", 128, 2).packets(30000, 30000)},
		{"and its CPU saturates", "RX202 warning eth0 []", "", even(8, "i40e").table("eth0", 128, 2).packets(30000, 30000).busy(1, 0.3, 0, 30000)},
		{"a missing queue", "RX202 warning eth0 []", "names rx-4-5, which it does not have", even(4, "igb").table("eth0", 128, 6)},
		{"zeros, nothing measured", "RX202 info eth0 []", "either receive hashing is off", even(4, "sfc").table("eth0", 128, 1).unmeasured()},
		{"zeros, and only queue 0 receives", "RX202 info eth0 []", "names 1 of its 4 receive queues", even(4, "sfc").table("eth0", 128, 1).packets(40000)},
		{"a table too short for its queues", "RX202 info eth0 []", "8 buckets do not divide by the 6 queues", even(6, "igb").table("eth0", 8, 6)},
		{"zeros, but queues receive", "", "it does not report its table", even(4, "sfc").table("eth0", 128, 1)},
		{"all reached", "", "every queue reached", even(4, "igb").table("eth0", 128, 4)},
		{"nearly even", "", "every queue reached", even(6, "igb").table("eth0", 128, 6)},
		{"the others belong to a context", "", "rx-2-3 of eth0 belong to RSS context-1", even(4, "bnxt_en").table("eth0", 128, 2).packets(20000, 20000).set(knob.RSSTable, "eth0 context-1", buckets(2, 3))},
		{"the others belong to filters", "", "belong to ntuple rule-1, ntuple rule-2", even(4, "ice").table("eth0", 128, 2).packets(20000, 20000).
			set(knob.NtupleRule, "eth0 rule-1", knob.Fields(map[string]any{"queue": 2})).set(knob.NtupleRule, "eth0 rule-2", knob.Fields(map[string]any{"queue": 3}))},
		{"the others exist for AF_XDP only", "", "", even(4, "mlx5_core").table("eth0", 128, 2).packets(20000, 20000).but(func(w *world) {
			w.NICs[0].Queues[2].XSK, w.NICs[0].Queues[3].XSK = true, true
		})},
		{"next to no traffic", "", "", even(8, "i40e").table("eth0", 128, 2).packets(300, 300).but(func(w *world) { w.Devices = []string{"eth0"} })},
		{"one queue", "", "", even(1, "igb").table("eth0", 128, 1)},
		{"table not readable", "", "", even(4, "igb").set(knob.RSSTable, "eth0", knob.Unknown("no"))},
		{"some filters own one of the rest", "RX202 info eth0 []\nRX207 info eth0 []", "belong to ntuple rule-1: channel and table changes", even(4, "ice").table("eth0", 128, 2).packets(20000, 20000).
			set(knob.NtupleRule, "eth0 rule-1", knob.Fields(map[string]any{"queue": 2}))},

		// RX206
		{"a device known to ignore its table", "RX206 info eth0 []", "receives on rx-0 all the same", even(4, "vmxnet3").table("eth0", 32, 4).packets(50000)},
		{"packets on queues the table does not name", "RX206 warning eth0 []", "100 % of its packets arrive on queues the table does not name", even(2, "igb").set(knob.RSSTable, "eth0", repeat(128, 1)).packets(50000)},
		{"not one packet since boot", "RX206 warning eth0 []", "since boot rx-1 got none of 16630368 packets", even(2, "igb").table("eth0", 128, 2).packets(16630368).but(func(w *world) { w.Sample.SinceBoot = true })},
		{"not one packet of ten seconds", "", "", even(2, "igb").table("eth0", 128, 2).packets(1663036)},
		{"few packets since boot", "", "", even(2, "igb").table("eth0", 128, 2).packets(50000).but(func(w *world) { w.Sample.SinceBoot = true })},
		{"a known one that follows", "", "", even(4, "vmxnet3").table("eth0", 32, 4)},
		{"filters place them", "RX202 info eth0 []\nRX207 info eth0 []", "", even(2, "igb").set(knob.RSSTable, "eth0", repeat(128, 1)).packets(50000).set(knob.NtupleRule, "eth0 rule-1", knob.Fields(map[string]any{"queue": 7}))},
		{"the driver samples flows", "RX202 info eth0 []", "", even(4, "i40e").set(knob.RSSTable, "eth0", repeat(128, 1, 2, 3)).packets(50000, 1000, 1000, 1000)},

		// RX701
		{"virtio without RSS", "RX701 info eth0 []", "the host chooses the receive queue of eth0", even(4, "virtio_net").set(knob.RSSTable, "eth0", knob.Absent("no")).packets(1000, 45000, 2000)},
		{"and its CPU is hot", "RX701 warning eth0 [RX101]", "only RPS on rx-1", even(4, "virtio_net").set(knob.RSSTable, "eth0", knob.Absent("no")).packets(1000, 450000, 2000).
			busy(0, 0, 0, 1000).busy(1, 0.9, 0, 450000).busy(2, 0, 0, 2000).busy(3, 0, 0, 0)},
		{"virtio with RSS", "", "", even(4, "virtio_net").table("eth0", 128, 4).packets(1000, 45000, 2000)},
		{"spread by the host", "", "", even(4, "virtio_net").set(knob.RSSTable, "eth0", knob.Absent("no"))},
		{"another driver without a table", "", "", even(4, "tg3").set(knob.RSSTable, "eth0", knob.Absent("no")).packets(1000, 45000, 2000)},

		// RX201
		{"weights", "RX201 info eth0 []", "gives rx-0 75 % of the buckets, and it gets 72 % of the packets", even(2, "igb").set(knob.RSSTable, "eth0", repeat(128, 0, 0, 0, 1)).packets(36000, 14000)},
		{"weights, and its CPU has no room", "RX201 warning eth0 []", "ethtool -X eth0 equal 2", even(2, "igb").set(knob.RSSTable, "eth0", repeat(128, 0, 0, 0, 1)).packets(36000, 14000).busy(0, 0.4, 0, 36000)},
		{"weights the traffic does not show", "", "", even(2, "igb").set(knob.RSSTable, "eth0", repeat(128, 0, 0, 0, 1)).packets(25000, 25000)},
		{"an even table, one queue has more", "", "", even(4, "igb").table("eth0", 128, 4).packets(30000, 9000, 8000, 9000)},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) { test.in.judge(t, test.want, test.say) })
	}
}

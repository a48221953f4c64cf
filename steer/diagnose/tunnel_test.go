package diagnose

import (
	"testing"

	"github.com/rxsteer/rxsteer/internal/cpuset"
	"github.com/rxsteer/rxsteer/internal/host/knob"
	"github.com/rxsteer/rxsteer/internal/host/nic"
)

// tunnelled is a device of four queues that receives a GRE tunnel on queue 2.
func tunnelled() *world {
	w := newWorld(4).nic("eth0", nic.Physical, 4).table("eth0", 128, 4).nic("gre1", nic.Virtual, 1).carry("eth0", 60000).carry("gre1", 58000).
		busy(2, 0.2, 0, 59000).poll("eth0", 2, 2, 0.2, 59000).poll("eth0", 1, 1, 0.001, 1000)
	w.NICs[1].Driver = "gre"
	return w
}

func TestUnhashable(t *testing.T) {
	tests := []struct {
		name, want, say string
		in              *world
	}{
		{"a GRE tunnel", "RX204 info eth0 []", "97 % of what eth0 receives is GRE (gre1)", tunnelled()},
		{"and its CPU saturates", "RX204 warning eth0 [RX101]", "RPS on rx-2 of eth0", tunnelled().busy(2, 0.9, 0, 59000)},
		{"merged by GRO, told by bytes", "RX204 info eth0 []", "", tunnelled().but(func(w *world) {
			w.Sample.Devices[0].RXBytes, w.Sample.Devices[1].RXBytes, w.Sample.Devices[1].RXPackets = 90e6, 86e6, 4000
		})},
		{"PPP over Ethernet", "RX204 info eth0 []", "is PPPoE or L2TP (ppp0)", tunnelled().but(func(w *world) {
			w.NICs[1].Name, w.NICs[1].Driver, w.Sample.Devices[1].Name = "ppp0", "", "ppp0"
		})},
		{"the hash would leave out ports, too", "RX204 info eth0 []", "", tunnelled().set(knob.RSSHashFields, "eth0 udp4", knob.Text("sd")).but(func(w *world) { w.NICs[1].Driver = "wireguard" }).count("UdpInDatagrams", 59000)},
		{"little in the tunnel", "", "explain too little", tunnelled().but(func(w *world) { w.Sample.Devices[1].RXPackets = 20000 })},
		{"the tunnel is spread", "", "", tunnelled().poll("eth0", 0, 0, 0.2, 30000).poll("eth0", 3, 3, 0.2, 30000)},
		{"VXLAN, whose ports tell flows", "", "", tunnelled().but(func(w *world) { w.NICs[1].Driver = "vxlan" })},
		{"the tunnel may be another device's", "", "explain too little", tunnelled().nic("eth1", nic.Physical, 4).carry("eth1", 60000)},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) { test.in.judge(t, test.want, test.say) })
	}
}

func TestFewFlows(t *testing.T) {
	few := func() *world {
		w := newWorld(8).nic("eth0", nic.Physical, 8).table("eth0", 128, 8).carry("eth0", 60000).
			busy(2, 0.2, 0, 58000).poll("eth0", 2, 2, 0.2, 58000).poll("eth0", 1, 1, 0.001, 2000).count("TcpInSegs", 59800)
		w.Sample.Established = 3
		return w
	}
	named := func(w *world) { w.Devices = []string{"eth0"} }
	tests := []struct {
		name, want, say string
		in              *world
	}{
		{"three connections, asked for", "RX208 info eth0 []", "8 queues for at most 3 flows", few().but(named)},
		{"three connections", "", "7 of 8 queues idle, for there are at most 3 flows", few()},
		{"and one heats a CPU", "RX101 warning eth0 []\nRX208 info eth0 []", "", few().busy(2, 0.9, 0, 59000)},
		{"connections come and go", "", "", few().count("TcpPassiveOpens", 500).but(named)},
		{"much is no TCP", "", "", few().but(named).but(func(w *world) { w.Sample.Protocols["TcpInSegs"] = 30000 })},
		{"many connections", "", "", few().but(named).but(func(w *world) { w.Sample.Established = 40 })},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) { test.in.judge(t, test.want, test.say) })
	}
}

// rpsOver is a device of four busy queues on four CPUs, with RPS over all of them.
func rpsOver() *world {
	w := newWorld(4).nic("eth0", nic.Physical, 4, "0-3", "0-3", "0-3", "0-3").carry("eth0", 400000)
	for q := range 4 {
		w.busy(q, 0.3, 0, 100000).poll("eth0", q, q, 0.15, 100000).poll("", -1, q, 0.1, 75000)
		w.Sample.CPUs[q].ReceivedRPS = 20000
	}
	return w
}

func TestRPSAndXPS(t *testing.T) {
	few := func(w *world) { w.Sample.CPUs[0].ReceivedRPS = 0 }
	level0 := func(w *world) {
		w.Sample.Level = 0
		for i := range w.Sample.NAPIs {
			w.Sample.NAPIs[i].Time = 0
		}
	}
	sending := func(masks ...string) *world {
		w := even(4, "ixgbe").but(func(w *world) { w.Sample.Devices[0].TXPackets = 900_000 })
		for q, m := range masks {
			w.vector(q, cpuset.Of(q).String(), cpuset.Of(q).String(), q, 5000).set(knob.XPSCPUs, knob.On("eth0", "tx-%d", q), knob.Text(m))
		}
		return w
	}
	tests := []struct {
		name, want, say string
		in              *world
	}{
		{"RPS over enough queues", "RX302 warning eth0 []", "4 busy queues on 4 CPUs of their own", rpsOver()},
		{"told by interrupts between CPUs", "RX302 info eth0 []", "", rpsOver().but(level0).but(few)},
		{"RPS on, nothing goes through it", "", "next to no work", rpsOver().but(func(w *world) {
			for i := range w.Sample.NAPIs {
				if w.Sample.NAPIs[i].IfIndex == 0 {
					w.Sample.NAPIs[i].Time = 1e7
				}
			}
		})},
		{"the backlog is loopback's", "", "next to no work", rpsOver().carry("lo", 300000)},
		{"RPS for RFS", "", "both its tables are there", rpsOver().set(knob.RPSSockFlowEntries, "host", knob.Int(32768)).set(knob.RPSFlowCnt, "eth0 rx-0", knob.Int(8192))},
		{"fewer queues than cores", "", "", rpsOver().but(func(w *world) {
			for i := range 4 {
				w.Topology.CPUs = append(w.Topology.CPUs, w.Topology.CPUs[0])
				w.Topology.CPUs[4+i].ID, w.Topology.CPUs[4+i].Core = 4+i, 4+i
			}
			w.Topology.Online = cpuset.Range(0, 7)
		})},

		{"queues have flow tables, the host has none", "RX304 info eth0 []", "without the global table RFS does nothing", even(2, "igb").set(knob.RPSSockFlowEntries, "host", knob.Int(0)).set(knob.RPSFlowCnt, "eth0 rx-0", knob.Int(4096))},
		{"the host has one, the queues have none", "RX304 info eth0 []", "rps_flow_cnt of each rx queue of eth0: 16384", newWorld(4).nic("eth0", nic.Physical, 2, "2-3", "2-3").
			set(knob.RPSSockFlowEntries, "host", knob.Int(32768)).set(knob.RPSFlowCnt, "eth0 rx-0", knob.Int(0)).set(knob.RPSFlowCnt, "eth0 rx-1", knob.Int(0))},
		{"more connections than entries", "RX304 info host []", "sysctl net.core.rps_sock_flow_entries=8192", even(2, "igb").set(knob.RPSSockFlowEntries, "host", knob.Int(4096)).set(knob.RPSFlowCnt, "eth0 rx-0", knob.Int(2048)).
			but(func(w *world) { w.Sample.Established = 6000 })},
		{"entries without RPS", "", "", even(2, "igb").set(knob.RPSSockFlowEntries, "host", knob.Int(4096)).set(knob.RPSFlowCnt, "eth0 rx-0", knob.Int(0))},
		{"no RFS", "", "", even(2, "igb").set(knob.RPSSockFlowEntries, "host", knob.Int(0)).set(knob.RPSFlowCnt, "eth0 rx-0", knob.Int(0))},

		{"the map crosses the vectors", "RX305 info eth0 []", "tx-0: sent from cpus 3, completed on cpu 0", sending("3", "2", "1", "0")},
		{"no map, as many queues as CPUs", "RX305 info eth0 []", "no queue is mapped", sending("", "", "", "").but(func(w *world) { w.Topology.Online = cpuset.Range(0, 3) })},
		{"no map, fewer queues than CPUs", "", "", sending("", "", "", "")},
		{"the map follows the vectors", "", "", sending("0", "1", "2", "3")},
		{"one of four crosses", "", "", sending("0", "1", "3", "2-3")},
		{"next to nothing sent", "", "", sending("3", "2", "1", "0").but(func(w *world) { w.Sample.Devices[0].TXPackets = 9000 })},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) { test.in.judge(t, test.want, test.say) })
	}
}

// bonded is a bond of two igb of four queues.
func bonded() *world {
	w := newWorld(4).nic("eth0", nic.Physical, 4).nic("eth1", nic.Physical, 4).carry("eth0", 30000).carry("eth1", 30000).carry("bond0", 60000)
	for i := range w.NICs {
		w.NICs[i].Driver, w.NICs[i].Master = "igb", "bond0"
	}
	w.NICs = append(w.NICs, nic.NIC{Name: "bond0", IfIndex: 9, Kind: nic.Stack, Lower: []string{"eth0", "eth1"}, Up: true})
	for q := range 4 {
		w.busy(q, 0.1, 0, 15000).poll("eth0", q, q, 0.05, 7500)
	}
	return w.poll("eth1", 0, 0, 0.05, 29000).poll("eth1", 1, 1, 0.01, 1000).
		set(knob.RSSHashFields, "eth0 udp4", knob.Text("sdfn")).set(knob.RSSHashFields, "eth1 udp4", knob.Text("sd")).count("UdpInDatagrams", 59000)
}

func TestHalfTuned(t *testing.T) {
	same := func(w *world) {
		w.Snapshot.Settings = nil
		w.set(knob.RSSHashFields, "eth0 udp4", knob.Text("sdfn")).set(knob.RSSHashFields, "eth1 udp4", knob.Text("sdfn"))
	}
	tests := []struct {
		name, want, say string
		in              *world
	}{
		{"one member hashes ports", "RX702 info bond0 [RX203]", "rss-hash-fields udp4: eth0 has sdfn, eth1 has sd", bonded()},
		{"and the other's CPU is hot", "RX702 warning bond0 [RX203 RX101]", "", bonded().busy(0, 0.9, 0, 30000).but(func(w *world) { w.Sample.NAPIs[4].Time *= 10 })},
		{"one member has RPS", "RX702 info bond0 []", "rps-cpus: eth0 has off, eth1 has 2", bonded().but(same).set(knob.RPSCPUs, "eth0 rx-0", knob.Text("")).set(knob.RPSCPUs, "eth1 rx-0", knob.Text("2"))},
		{"rings", "RX702 info bond0 []", "rings: eth0 has rx 256, eth1 has rx 4096", bonded().but(same).
			set(knob.Rings, "eth0", knob.Fields(map[string]any{"rx": 256, "tx": 256})).set(knob.Rings, "eth1", knob.Fields(map[string]any{"rx": 4096, "tx": 256}))},
		{"set alike", "", "its members eth0, eth1 are set alike", bonded().but(same)},
		{"drivers differ", "", "", bonded().but(same).set(knob.Rings, "eth0", knob.Fields(map[string]any{"rx": 256})).set(knob.Rings, "eth1", knob.Fields(map[string]any{"rx": 4096})).but(func(w *world) { w.NICs[1].Driver = "ixgbe" })},
		{"one member down", "", "", bonded().but(same).set(knob.Rings, "eth0", knob.Fields(map[string]any{"rx": 256})).set(knob.Rings, "eth1", knob.Fields(map[string]any{"rx": 4096})).but(func(w *world) { w.NICs[1].Up = false })},
		{"one member's value not readable", "", "set alike", bonded().but(same).set(knob.Rings, "eth0", knob.Fields(map[string]any{"rx": 256})).set(knob.Rings, "eth1", knob.Unknown("no"))},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) { test.in.judge(t, test.want, test.say) })
	}
}

func TestDiffering(t *testing.T) {
	group := func(adaptive bool, usecs, frames int) knob.Value {
		return knob.Fields(map[string]any{"adaptive-rx": adaptive, "rx-usecs": usecs, "tx-frames": frames})
	}
	for _, c := range []struct {
		a, b knob.Value
		x, y string
	}{
		{group(true, 8, 1), group(true, 64, 1), "", ""}, // moderation moves its own values
		{group(true, 8, 1), group(true, 64, 2), "tx-frames 1", "tx-frames 2"},
		{group(false, 8, 1), group(false, 64, 1), "rx-usecs 8", "rx-usecs 64"},
		{group(true, 8, 1), group(false, 8, 1), "adaptive-rx true", "adaptive-rx false"},
		{knob.Text(""), knob.Text("0-3"), "off", "0-3"},
	} {
		x, y := differing(c.a, c.b)
		if x != c.x || y != c.y {
			t.Errorf("%v and %v differ in %q, %q; want %q, %q", c.a, c.b, x, y, c.x, c.y)
		}
	}
}

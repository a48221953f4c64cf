package diagnose

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rxsteer/rxsteer/collector"
	"github.com/rxsteer/rxsteer/internal/host/knob"
	"github.com/rxsteer/rxsteer/internal/host/nic"
)

// portless is an igb as it comes: four queues, UDP hashed by addresses, one host that sends.
func portless() *world {
	return newWorld(4).nic("eth0", nic.Physical, 4).carry("eth0", 60000).table("eth0", 128, 4).
		set(knob.RSSHashFields, "eth0 udp4", knob.Text("sd")).set(knob.RSSHashFields, "eth0 udp6", knob.Text("sd")).
		set(knob.RSSHashFields, "eth0 tcp4", knob.Text("sdfn")).
		busy(2, 0.12, 0, 59000).poll("eth0", 2, 2, 0.1, 59000).poll("eth0", 1, 1, 0.001, 400).
		count("UdpNoPorts", 50000).count("UdpInDatagrams", 8000).count("TcpInSegs", 400).count("IpInReceives", 59500)
}

func TestHashFields(t *testing.T) {
	level0 := func(w *world, interrupts ...uint64) *world {
		w.Sample.Level, w.Sample.NAPIs = 0, nil
		for i, n := range interrupts {
			w.Sample.IRQs = append(w.Sample.IRQs, collector.IRQ{IRQ: 20 + i, CPU: i, Count: n})
		}
		return w
	}
	tests := []struct {
		name, want, say string
		in              *world
	}{
		{"64 UDP flows of one host pair", "RX203 info eth0 []", "rx-2 got 99 % of the packets", portless()},
		{"and they saturate a CPU", "RX203 warning eth0 [RX101]", "ethtool -N eth0 rx-flow-hash udp4 sdfn.",
			portless().busy(2, 0.9, 0, 59000)},
		{"and it squeezes", "RX203 warning eth0 [RX101 RX401]", "", portless().busy(2, 0.9, 0, 59000).but(func(w *world) { w.Sample.CPUs[2].Squeezed = 1000 })},
		{"from interrupts alone", "RX203 info eth0 []", "rx-2 got 98 % of the interrupts", level0(portless(), 30, 80, 9000, 120)},
		{"over IPv6", "RX203 info eth0 []", "rx-flow-hash udp6 sdfn", portless().but(func(w *world) {
			w.Sample.Protocols = map[string]uint64{"Udp6InDatagrams": 58000, "Ip6InReceives": 59000}
		})},
		{"without a table that can be read", "RX203 info eth0 []", "", portless().set(knob.RSSTable, "eth0", knob.Absent("no")).but(func(w *world) { w.Snapshot.Settings = nil }).
			set(knob.RSSHashFields, "eth0 udp4", knob.Text("sd"))},

		{"what UDP is, is not told", "", "share of UDP in the traffic", portless().but(func(w *world) { w.Sample.Protocols = nil })},
		{"the queue is full of TCP", "", "UDP explains no more than 100 of 5900 packets/s", portless().but(func(w *world) {
			w.Sample.Protocols = map[string]uint64{"UdpInDatagrams": 1000, "TcpInSegs": 57000}
		})},
		{"the datagrams came over loopback", "", "UDP explains no more than 0 of", portless().carry("lo", 90000)},
		{"forwarded, of an unknown protocol", "", "UDP explains no more than 0 of", portless().but(func(w *world) { w.Sample.Protocols = map[string]uint64{"IpForwDatagrams": 1} })},
		{"fragments", "RX602 warning host []", "have no ports", portless().count("IpReasmReqds", 30000)},
		{"ports are hashed", "", "", portless().but(func(w *world) { w.Snapshot.Settings = nil }).set(knob.RSSHashFields, "eth0 udp4", knob.Text("sdfn"))},
		{"only the destination port is left out", "", "", portless().but(func(w *world) { w.Snapshot.Settings = nil }).set(knob.RSSHashFields, "eth0 udp4", knob.Text("sdf"))},
		{"fields not readable", "", "", portless().but(func(w *world) { w.Snapshot.Settings = nil }).set(knob.RSSHashFields, "eth0 udp4", knob.Unknown("no"))},
		{"spread over the queues all the same", "", "", portless().poll("eth0", 0, 0, 0.1, 59000).poll("eth0", 3, 3, 0.1, 59000).poll("eth0", 1, 1, 0.1, 59000)},
		{"half of two queues and a bit", "", "", newWorld(2).nic("eth0", nic.Physical, 2).carry("eth0", 60000).set(knob.RSSHashFields, "eth0 udp4", knob.Text("sd")).
			poll("eth0", 0, 0, 0.1, 40000).poll("eth0", 1, 1, 0.1, 20000).count("UdpInDatagrams", 60000)},
		{"one queue", "", "", newWorld(2).nic("eth0", nic.Physical, 1).carry("eth0", 60000).set(knob.RSSHashFields, "eth0 udp4", knob.Text("sd")).
			poll("eth0", 0, 0, 0.1, 60000).count("UdpInDatagrams", 60000)},
		{"a table of one queue", "", "", portless().but(func(w *world) { w.Snapshot.Settings = nil }).set(knob.RSSHashFields, "eth0 udp4", knob.Text("sd")).table("eth0", 128, 1)},
		{"hardly any traffic", "", "", portless().but(func(w *world) {
			w.Sample.Devices[0].RXPackets = 900
			w.Sample.NAPIs[0].Packets = 900
			w.Devices = []string{"eth0"}
		})},
		{"another device was asked for", "", "", portless().nic("eth1", nic.Physical, 4).but(func(w *world) { w.Devices = []string{"eth1"} })},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) { test.in.judge(t, test.want, test.say) })
	}
}

func TestHashFieldsEvidence(t *testing.T) {
	f := portless().judge(t, "RX203 info eth0 []", "").Findings[0]
	b, err := f.Evidence.MarshalJSON()
	if err != nil {
		t.Fatal(err)
	}
	want := `{"flow_types":"udp4","hash_fields":"sd","busiest_queue":2,"busiest_queue_share_ratio":0.9933,"rx_queues":4,"table_queues":4,"packets_per_s":6000,"udp_of_busiest_queue_at_least_ratio":0.9661,"fragments_of_ip_ratio":0,"cpu":2,"cpu_receive_softirq_ratio":0.12}`
	if diff := cmp.Diff(want, string(b)); diff != "" {
		t.Errorf("evidence (-want +got):\n%s", diff)
	}
}

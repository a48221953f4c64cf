package diagnose

import (
	"net/netip"
	"testing"

	"github.com/rxsteer/rxsteer/collector"
	"github.com/rxsteer/rxsteer/internal/host/knob"
	"github.com/rxsteer/rxsteer/internal/host/nic"
)

// loads sets what the table's entries carry: part(i) of 100,000 packets, and of the receive time.
func (w *world) loads(part func(bucket int) float64) *world {
	n := len(w.tableOf("eth0"))
	b := collector.DeviceBuckets{Netns: here, IfIndex: 2, Device: "eth0", Hash: collector.HashNIC, Packets: make([]uint64, n), Bytes: make([]uint64, n), Time: make([]uint64, n),
		Seen: 20_000, Compared: 20_000, Agreed: 19_900}
	for i := range n {
		b.Packets[i], b.Time[i] = uint64(part(i)*1e5), uint64(part(i)*1e9)
	}
	w.Sample.Buckets, w.Sample.Level = []collector.DeviceBuckets{b}, 2
	return w
}

func (w *world) tableOf(device string) (t []int) {
	_ = w.Snapshot.Get(knob.Ref{Knob: knob.RSSTable, Target: knob.Target(device)}).Decode(&t)
	return t
}

// class tells what part of the packets is of a class.
func (w *world) class(name string, packets uint64) *world {
	if len(w.Sample.Buckets) == 0 {
		w.loads(func(int) float64 { return 1 / float64(len(w.tableOf("eth0"))) })
	}
	b := &w.Sample.Buckets[0]
	b.Classes = append(b.Classes, collector.Class{Class: name, Packets: packets, Bytes: packets * 500})
	return w
}

// big adds a flow of the bucket and its queue.
func (w *world) big(bucket, source int, packets uint64, reader int) *world {
	queue := w.tableOf("eth0")[bucket]
	w.Sample.Level = 2
	w.Sample.Flows = append(w.Sample.Flows, collector.Flow{Netns: here, IfIndex: 2, Device: "eth0", RXQueue: queue, CPU: queue, Protocol: "tcp", Bucket: bucket, Packets: packets,
		Source: netip.AddrPortFrom(netip.MustParseAddr("192.0.2.7"), uint16(40000+source)), Destination: netip.MustParseAddrPort("192.0.2.1:5201"), ConsumerCPU: reader, Error: packets / 50})
	return w
}

// four is an igb of four queues, of which each has a CPU, with the receive time and packets given.
func four(parts ...float64) *world {
	w := newWorld(8).nic("eth0", nic.Physical, 4).carry("eth0", 100_000).table("eth0", 128, 4)
	for q, p := range parts {
		w.busy(q, p, 0.05, uint64(p*1e5)).poll("eth0", q, q, p, uint64(p*1e5))
	}
	return w
}

func TestSpread(t *testing.T) {
	// skew puts a half more of the load into the buckets of queue 0 than table says, spread over them.
	skew := func(most float64) func(int) float64 {
		return func(i int) float64 {
			if i%4 == 0 {
				return most / 32
			}
			return (1 - most) / 96
		}
	}
	one := func(bucket int, most float64) func(int) float64 {
		return func(i int) float64 {
			if i == bucket {
				return most
			}
			return (1 - most) / 127
		}
	}
	tests := []struct {
		name, want, say string
		in              *world
	}{
		// RX201
		{"buckets that could be levelled", "RX201 warning eth0 []", "rx-0 has 55 % of the packets, and by moving buckets no queue would need more than 25 %", four(0.45, 0.12, 0.12, 0.12).loads(skew(0.55))},
		// The queue's polls batch, so that its half of the packets takes a quarter of the receive time.
		{"of which the time says little, for busy polls are cheaper", "RX201 warning eth0 []", "rx-0 has 50 % of the packets", four(0.45, 0.45, 0.45, 0.45).loads(skew(0.5)).but(func(w *world) {
			for i := range w.Sample.Buckets[0].Time {
				w.Sample.Buckets[0].Time[i] = 1e6
			}
		})},
		{"and its CPU is hot", "RX201 warning eth0 [RX101]", "rxsteer plan eth0", four(0.8, 0.2, 0.2, 0.2).loads(skew(0.55))},
		{"its CPU has some room", "RX201 info eth0 []", "", four(0.15, 0.05, 0.05, 0.05).loads(skew(0.55))},
		{"its CPU has all room", "", "and cpu 0 has room", four(0.08, 0.02, 0.02, 0.02).loads(skew(0.55))},
		{"even buckets", "", "fits its buckets", four(0.45, 0.44, 0.45, 0.46).loads(skew(0.25))},
		{"uneven within what was seen", "", "fits its buckets", four(0.45, 0.44, 0.45, 0.46).loads(skew(0.315)).but(func(w *world) { w.Sample.Buckets[0].Seen = 1000 })},
		{"too few packets seen", "", "", four(0.45, 0.44, 0.45, 0.46).loads(skew(0.55)).but(func(w *world) { w.Sample.Buckets[0].Seen = 900 })},
		{"loads of another table", "", "", four(0.45, 0.44, 0.45, 0.46).loads(skew(0.55)).but(func(w *world) { w.Sample.Buckets[0].Packets = w.Sample.Buckets[0].Packets[:64] })},

		// RX206
		{"packets that arrive elsewhere", "RX206 warning eth0 [RX101]", "60 % arrived where the table does not send their bucket", four(0.9, 0.01, 0.01, 0.01).loads(skew(0.25)).but(func(w *world) { w.Sample.Buckets[0].Agreed = 8000 })},
		{"elsewhere by a hash that is a guess", "RX101 warning eth0 []", "queue imbalance", four(0.9, 0.01, 0.01, 0.01).loads(skew(0.25)).but(func(w *world) {
			w.Sample.Buckets[0].Agreed, w.Sample.Buckets[0].Hash = 8000, collector.HashEstimated
		})},

		// RX205
		{"a lone elephant", "RX205 warning eth0 [RX101]", "no table, key or rule splits a flow", four(0.9, 0.05, 0.05, 0.05).loads(one(4, 0.8)).big(4, 1, 78_000, 6)},
		{"of which the time says little", "RX205 warning eth0 [RX101]", "is 34 % of the packets of eth0", four(0.9, 0.9, 0.9, 0.9).loads(one(4, 0.35)).big(4, 1, 34_000, 6).but(func(w *world) {
			for i := range w.Sample.Buckets[0].Time {
				w.Sample.Buckets[0].Time[i] = 1e6
			}
		})},
		{"and mice in its queue", "RX205 warning eth0 [RX101]", "first the other flows of rx-0", four(0.9, 0.1, 0.1, 0.1).loads(one(4, 0.6)).big(4, 1, 58_000, 6)},
		{"its reader is where it is polled", "RX205 warning eth0 [RX101]", "Its reader runs on cpu 0, too", four(0.9, 0.05, 0.05, 0.05).loads(one(4, 0.8)).big(4, 1, 78_000, 0)},
		{"two in one bucket", "RX205 warning eth0 [RX101]", "a rule for one of them (ethtool -N eth0 flow-type tcp4", four(0.9, 0.05, 0.05, 0.05).loads(one(4, 0.8)).big(4, 1, 40_000, 6).big(4, 2, 39_000, 6)},
		{"two in one queue, in two buckets: the table parts them", "RX201 warning eth0 [RX101]", "", four(0.9, 0.05, 0.05, 0.05).loads(func(i int) float64 {
			if i == 4 || i == 8 {
				return 0.2
			}
			return 0.6 / 126
		}).big(4, 1, 20_000, 6).big(8, 2, 20_000, 6)},
		{"a full bucket of many flows", "RX201 warning eth0 [RX101]", "", four(0.9, 0.05, 0.05, 0.05).loads(func(i int) float64 {
			if i == 4 {
				return 0.27
			}
			return map[bool]float64{true: 0.33 / 31, false: 0.4 / 96}[i%4 == 0]
		}).big(4, 1, 2000, 6)},
		{"an elephant whose CPU has room", "", "has room", four(0.3, 0.02, 0.02, 0.02).loads(one(4, 0.8)).big(4, 1, 78_000, 6)},
		{"without buckets, by its part of the queue", "RX205 warning eth0 [RX101]", "is 84 % of the packets", four(0.9, 0.05, 0.05, 0.05).big(4, 1, 88_000, 6).but(func(w *world) { w.Sample.Flows[0].Bucket = -1 })},

		// RX204
		{"PPPoE by class", "RX204 warning eth0 [RX101]", "are PPPoE: the hash sees no flows in them", four(0.9, 0.02, 0.02, 0.02).class("pppoe", 19000).class("tcp4", 1000)},
		{"GRE by class, low load", "RX204 info eth0 []", "are GRE", four(0.15, 0.001, 0.001, 0.001).class("gre", 19000)},
		{"fragments that are only forwarded", "RX204 warning eth0 [RX101]", "datagrams that fit the MTU", four(0.9, 0.02, 0.02, 0.02).class("fragment", 19000)},
		{"not IP", "RX204 warning eth0 [RX101]", "are not IP", four(0.9, 0.02, 0.02, 0.02).class("other", 19000)},
		{"VXLAN has ports", "RX101 warning eth0 []", "", four(0.9, 0.02, 0.02, 0.02).class("vxlan", 19000)},
		{"a little GRE", "RX101 warning eth0 []", "", four(0.9, 0.02, 0.02, 0.02).class("gre", 4000).class("tcp4", 16000)},

		// RX203
		{"forwarded UDP, told by class", "RX203 warning eth0 [RX101]", "UDP flows of a host pair", four(0.9, 0.02, 0.02, 0.02).class("udp4", 19500).class("tcp4", 500).set(knob.RSSHashFields, "eth0 udp4", knob.Text("sd"))},
		{"one flow fills it", "RX205 warning eth0 [RX101]", "", four(0.9, 0.02, 0.02, 0.02).class("udp4", 19500).set(knob.RSSHashFields, "eth0 udp4", knob.Text("sd")).big(0, 1, 88_000, 6).but(func(w *world) {
			w.Sample.Flows[0].Protocol = "udp"
			w.Sample.Buckets[0].Time = nil
			for i := range w.Sample.Buckets[0].Packets {
				w.Sample.Buckets[0].Packets[i] = 10
			}
			w.Sample.Buckets[0].Packets[0] = 90_000
		})},
		{"TCP, which hashes ports, by class", "RX101 warning eth0 []", "UDP explains no more than", four(0.9, 0.02, 0.02, 0.02).class("tcp4", 19500).set(knob.RSSHashFields, "eth0 udp4", knob.Text("sd"))},

		// RX208
		{"three flows on four queues", "RX208 info eth0 []", "4 queues for 2 flows", four(0.4, 0.001, 0.001, 0.001).big(0, 1, 60_000, 6).big(8, 2, 39_000, 6).but(func(w *world) { w.Devices = []string{"eth0"} })},
		{"most flows are not known", "", "", four(0.4, 0.001, 0.001, 0.001).big(0, 1, 30_000, 6).but(func(w *world) { w.Devices = []string{"eth0"} })},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) { test.in.judge(t, test.want, test.say) })
	}
}

// Flows that live long and are read on one CPU each are worth RFS where RPS is on; others are not.
func TestLongFlows(t *testing.T) {
	build := func(reader func(window int) int) *world {
		w := newWorld(4).nic("veth0", nic.Virtual, 1, "1-3").carry("veth0", 900_000).set(knob.RPSSockFlowEntries, knob.Host, knob.Int(0)).busy(0, 0.2, 0, 900_000)
		for i := range 4 {
			s := *w.Sample
			s.Flows = []collector.Flow{{Device: "veth0", RXQueue: 0, CPU: 0, Protocol: "tcp", Source: netip.MustParseAddrPort("192.0.2.7:4000"), Destination: netip.MustParseAddrPort("192.0.2.1:80"),
				Packets: 200_000, ConsumerCPU: reader(i), Bucket: -1}}
			w.Windows = append(w.Windows, &s)
		}
		return w
	}
	build(func(int) int { return 2 }).judge(t, "RX304 info veth0 []", "1 flow that 89 % of its packets belong to live long")
	build(func(i int) int { return i }).judge(t, "", "")
	build(func(int) int { return 2 }).but(func(w *world) { w.Windows = w.Windows[:2] }).judge(t, "", "")
}

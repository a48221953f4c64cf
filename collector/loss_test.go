package collector

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestALostPacketIsAtOnePlace(t *testing.T) {
	for _, tt := range []struct {
		name string
		s    Sample
		want []Loss
	}{
		{"nothing", Sample{CPUs: []CPU{{}}, Devices: []Device{{Name: "eth0", RXPackets: 5}}}, nil},
		{"a full backlog counts on the CPU and on the device", Sample{CPUs: []CPU{{Dropped: 15400}, {CPU: 1, Dropped: 1200}},
			Devices: []Device{{Name: "b0", RXDropped: 16600}}}, []Loss{{LossBacklog, "", 16600}}},
		{"the flow limit a third time", Sample{CPUs: []CPU{{Dropped: 100, FlowLimit: 80}}, Devices: []Device{{Name: "b0", RXDropped: 100}}},
			[]Loss{{LossFlowLimit, "", 80}, {LossBacklog, "", 20}}},
		{"what the device dropped besides", Sample{CPUs: []CPU{{Dropped: 100}}, Devices: []Device{{Name: "lo", RXDropped: 3}, {Name: "b0", RXDropped: 130, RXMissed: 7}}},
			[]Loss{{LossMissed, "b0", 7}, {LossDropped, "b0", 30}, {LossDropped, "lo", 3}, {LossBacklog, "", 100}}},
		{"the backlog of another network namespace", Sample{CPUs: []CPU{{Dropped: 100}}, Devices: []Device{{Name: "b0"}}}, []Loss{{LossBacklog, "", 100}}},
		{"sockets", Sample{Protocols: map[string]uint64{"UdpRcvbufErrors": 5, "Udp6MemErrors": 2, "UdpInErrors": 7}}, []Loss{{LossSocket, "", 7}}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, tt.s.Losses()); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

package main

import (
	"encoding/hex"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestQueuePackets(t *testing.T) {
	for name, c := range map[string]struct {
		text string
		want []float64
	}{
		"igb":         {"NIC statistics:\n     rx_packets: 9\n     tx_queue_0_packets: 7\n     rx_queue_0_packets: 1\n     rx_queue_0_bytes: 60\n     rx_queue_1_packets: 8\n", []float64{1, 8}},
		"virtio 6.12": {"     rx0_packets: 4\n     rx0_bytes: 5\n     rx1_packets: 6\n     tx0_packets: 1\n", []float64{4, 6}},
		"vmxnet3":     {"     Tx Queue#: 0\n       ucast pkts tx: 5\n     Rx Queue#: 0\n       LRO pkts rx: 0\n       ucast pkts rx: 20\n       mcast pkts rx: 1\n       bcast pkts rx: 2\n     Rx Queue#: 1\n       ucast pkts rx: 3\n", []float64{23, 3}},
		"e1000e":      {"     rx_packets: 9\n     rx_bytes: 1\n", nil},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(c.want, queuePackets(c.text)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestProcTexts(t *testing.T) {
	if diff := cmp.Diff([]float64{5, 0, 7}, netRX("                    CPU0       CPU2\n      NET_TX:  1 2\n      NET_RX:  5 7\n")); diff != "" {
		t.Errorf("softirqs (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]float64{0.5, 2}, softirqSeconds("cpu  1 1 1 1 1 1 250 0 0 0\ncpu0 1 1 1 1 1 1 50 0 0 0\ncpu1 1 1 1 1 1 1 200 0 0 0\nintr 5\n")); diff != "" {
		t.Errorf("stat (-want +got):\n%s", diff)
	}
	row := func(processed, dropped, squeezed, cpu string) string {
		return strings.Join([]string{processed, dropped, squeezed, "0", "0", "0", "0", "0", "0", "0", "0", "0", cpu}, " ") + "\n"
	}
	processed, dropped, squeezed := softnet(row("0000000a", "1", "2", "00000000") + row("ff", "0", "1", "00000002"))
	if diff := cmp.Diff([]any{[]float64{10, 0, 255}, uint64(1), uint64(3)}, []any{processed, dropped, squeezed}); diff != "" {
		t.Errorf("softnet_stat (-want +got):\n%s", diff)
	}
	in, noPort, errors := udp("Ip: A\nIp: 1\nUdp: InDatagrams NoPorts InErrors OutDatagrams RcvbufErrors\nUdp: 4 5 6 7 8\n")
	if diff := cmp.Diff([]uint64{4, 5, 8}, []uint64{in, noPort, errors}); diff != "" {
		t.Errorf("snmp (-want +got):\n%s", diff)
	}
	by, vectors := interrupts("           CPU0       CPU1\n 28:          3          4  PCI-MSIX-0000:01:00.0   1-edge      eth0-rx-0\n 29:          1          1  PCI-MSIX-0000:01:00.0   1-edge      other\nNMI: 1 1 x\n", map[int]bool{28: true})
	if diff := cmp.Diff([]any{[]float64{3, 4}, map[int]Vector{28: {IRQ: 28, Name: "eth0-rx-0", Count: 7}}}, []any{by, vectors}); diff != "" {
		t.Errorf("interrupts (-want +got):\n%s", diff)
	}
}

// The vectors and key are the published ones of Microsoft's verification suite.
func TestToeplitz(t *testing.T) {
	key, err := hex.DecodeString("6d5a56da255b0ec24167253d43a38fb0d0ca2bcbae7b30b477cb2da38030f20c6a42b73bbeac01fa")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		from, to string
		want     uint32
	}{
		{"66.9.149.187:2794", "161.142.100.80:1766", 0x51ccc178},
		{"199.92.111.2:14230", "65.69.140.83:4739", 0xc626b0ea},
	} {
		if got := hash4(key, netip.MustParseAddrPort(c.from), netip.MustParseAddrPort(c.to)); got != c.want {
			t.Errorf("%s → %s: %08x, want %08x", c.from, c.to, got, c.want)
		}
	}
}

func TestSplit(t *testing.T) {
	got := split([]float64{1, 97, 2, 0}, 2)
	if diff := cmp.Diff(Split{Total: 100, PerS: 50, By: []float64{1, 97, 2, 0}, MaxShare: 0.97, MaxIndex: 1, Used: 2}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

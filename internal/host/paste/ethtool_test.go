package paste

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rxsteer/rxsteer/internal/cpuset"
	"github.com/rxsteer/rxsteer/internal/ethtool"
)

// texts are the messages of errors.
func texts(errs []error) []string {
	var out []string
	for _, e := range errs {
		out = append(out, e.Error())
	}
	return out
}

// indirection is `ethtool -x` of a table over rings queues, as the tool lays it out.
func indirection(dev string, size, rings, over int) string {
	var b strings.Builder
	fmt.Fprintf(&b, "RX flow hash indirection table for %s with %d RX ring(s):\n", dev, rings)
	for i := 0; i < size; i += 8 {
		fmt.Fprintf(&b, "%5d:  ", i)
		for j := i; j < min(i+8, size); j++ {
			fmt.Fprintf(&b, " %5d", j%over)
		}
		b.WriteByte('\n')
	}
	return b.String()
}

func upTo(n, mod int) []int {
	var out []int
	for i := range n {
		out = append(out, i%mod)
	}
	return out
}

func TestParseRSS(t *testing.T) {
	const key = "6d:5a:56:da:25:5b:0e:c2:41:67:25:3d:43:a3:8f:b0:d0:ca:2b:cb:ae:7b:30:b4:77:cb:2d:a3:80:30:f2:0c:6a:42:b7:3b:be:ac:01:fa"
	refused := &Refusal{Text: "Operation not supported", Absent: true}
	tests := []struct {
		name, text string
		want       *RSS
		errs       []string
	}{
		{"full answer", indirection("ens1", 16, 4, 4) + "RSS hash key:\n" + key + "\nRSS hash function:\n    toeplitz: on\n    xor: off\n    crc32: off\n",
			&RSS{Device: "ens1", Rings: 4, Table: upTo(16, 4), Key: key, Function: "toeplitz"}, nil},
		{"input transformation", indirection("ens1", 8, 2, 2) + "RSS hash key:\n" + strings.ToUpper(key) + "\nRSS hash function:\n    toeplitz: off\n    xor: on\nRSS input transformation:\n    symmetric-xor: on\n    symmetric-or-xor: off\n",
			&RSS{Device: "ens1", Rings: 2, Table: upTo(8, 2), Key: key, Function: "xor", Xfrm: "symmetric-xor"}, nil},
		{"table of 4096 entries, 300 rings", indirection("ens1", 4096, 300, 300),
			&RSS{Device: "ens1", Rings: 300, Table: upTo(4096, 300)}, nil},
		{"refusals inside the sections", "RX flow hash indirection table for eth0 with 1 RX ring(s):\nOperation not supported\nRSS hash key:\nOperation not supported\nRSS hash function:\n    toeplitz: on\n",
			&RSS{Device: "eth0", Rings: 1, Function: "toeplitz", TableRefused: refused, KeyRefused: refused}, nil},
		{"refused", "Cannot get RX ring count: Operation not supported\n",
			&RSS{TableRefused: &Refusal{"Cannot get RX ring count: Operation not supported", true}, KeyRefused: &Refusal{"Cannot get RX ring count: Operation not supported", true}}, nil},
		{"forbidden", "Cannot get RX flow hash indir size and/or key size: Operation not permitted\n",
			&RSS{TableRefused: &Refusal{"Cannot get RX flow hash indir size and/or key size: Operation not permitted", true}, KeyRefused: &Refusal{"Cannot get RX flow hash indir size and/or key size: Operation not permitted", true}}, nil},
		{"no table, zero key", "RX flow hash indirection table for eth0 with 4 RX ring(s):\nRSS hash key:\n00:00:00:00\n",
			&RSS{Device: "eth0", Rings: 4, Key: "00:00:00:00", Remarks: []string{"the hash key is all zero: the driver does not tell the one in use"}}, nil},
		{"older than the channels", indirection("eth0", 16, 3, 8),
			&RSS{Device: "eth0", Rings: 3, Table: upTo(16, 8), Remarks: []string{"the table refers to queue 7 but there are 3 rings: it is older than the last change of channels"}}, nil},
		{"cut short", indirection("eth0", 24, 64, 20),
			&RSS{Device: "eth0", Rings: 64, Table: upTo(24, 20), Cut: true, Remarks: []string{"the table has 24 entries, no power of two: the text is likely cut"}}, nil},
		{"a row is missing", strings.Replace(indirection("eth0", 32, 4, 4), "    8:       0     1     2     3     0     1     2     3\n", "", 1),
			&RSS{Device: "eth0", Rings: 4, Table: upTo(8, 4), Cut: true}, []string{"parse f:3: row begins at entry 16, expected 8", "parse f:4: row begins at entry 24, expected 8"}},
		{"nonsense", "RX flow hash indirection table for eth0 with x RX ring(s):\n    0:  0 -1\nRSS hash key:\nxx\nRSS hash function:\n    Unknown hash function: 0x8\nRSS input transformation:\n    Unknown bits in RSS input transformation: 0xfc\n",
			&RSS{Device: "eth0", Table: []int{0}, Cut: true, Xfrm: "none"},
			[]string{`parse f:1: number of rings is "x"`, `parse f:2: entry 1 is "-1"`, `parse f:4: hash key is "xx"`, "parse f:6: Unknown hash function: 0x8", "parse f:8: Unknown bits in RSS input transformation: 0xfc"}},
		{"something else", "hello\n", &RSS{}, []string{`parse f:1: not a line of ethtool -x: "hello"`}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, errs := ParseRSS("f", []byte(tt.text))
			if d := cmp.Diff(tt.want, got); d != "" {
				t.Errorf("RSS (-want +got):\n%s", d)
			}
			if d := cmp.Diff(tt.errs, texts(errs)); d != "" {
				t.Errorf("errors (-want +got):\n%s", d)
			}
		})
	}
}

func TestParseChannelsAndRings(t *testing.T) {
	tests := []struct {
		name, text string
		parse      func(string, []byte) (*Groups, []error)
		want       *Groups
		errs       []string
	}{
		{"old tool prints 0 for what is not there", "Channel parameters for eth4:\nPre-set maximums:\nRX:\t\t0\nTX:\t\t0\nOther:\t\t1\nCombined:\t40\nCurrent hardware settings:\nRX:\t\t0\nTX:\t\t0\nOther:\t\t1\nCombined:\t24\n\n", ParseChannels,
			&Groups{Device: "eth4", Max: ethtool.Group{"other": 1, "combined": 40}, Now: ethtool.Group{"other": 1, "combined": 24}}, nil},
		{"new tool prints n/a", "Channel parameters for eno1:\nPre-set maximums:\nRX:\t\t4\nTX:\t\t4\nOther:\t\tn/a\nCombined:\tn/a\nCurrent hardware settings:\nRX:\t\t3\nTX:\t\t1\nOther:\t\tn/a\nCombined:\tn/a\n", ParseChannels,
			&Groups{Device: "eno1", Max: ethtool.Group{"rx": 4, "tx": 4}, Now: ethtool.Group{"rx": 3, "tx": 1}}, nil},
		{"off but possible", "Channel parameters for e:\nPre-set maximums:\nRX: 8\nTX: 8\nCombined: 8\nCurrent hardware settings:\nRX: 0\nTX: 0\nCombined: 8\n", ParseChannels,
			&Groups{Device: "e", Max: ethtool.Group{"rx": 8, "tx": 8, "combined": 8}, Now: ethtool.Group{"rx": 0, "tx": 0, "combined": 8}}, nil},
		{"not supported", "Channel parameters for eth1:\nCannot get device channel parameters: Not supported\n", ParseChannels,
			&Groups{Device: "eth1", Max: ethtool.Group{}, Now: ethtool.Group{}, Refused: &Refusal{"Cannot get device channel parameters: Not supported", true}}, nil},
		{"netlink error", "netlink error: Operation not supported\n", ParseChannels,
			&Groups{Max: ethtool.Group{}, Now: ethtool.Group{}, Refused: &Refusal{"netlink error: Operation not supported", true}}, nil},
		{"nonsense", "Channel parameters for e:\nPre-set maximums:\nRX: many\nhello\n", ParseChannels,
			&Groups{Device: "e", Max: ethtool.Group{}, Now: ethtool.Group{}}, []string{`parse f:3: RX is "many"`, `parse f:4: not a line of this answer: "hello"`, "parse f:4: no current settings"}},
		{"rings, old", "Ring parameters for eth0:\nPre-set maximums:\nRX:\t\t4096\nRX Mini:\t0\nRX Jumbo:\t0\nTX:\t\t4096\nCurrent hardware settings:\nRX:\t\t512\nRX Mini:\t0\nRX Jumbo:\t0\nTX:\t\t256\n", ParseRings,
			&Groups{Device: "eth0", Max: ethtool.Group{"rx": 4096, "tx": 4096}, Now: ethtool.Group{"rx": 512, "tx": 256}}, nil},
		{"rings, new", "Ring parameters for eth0:\nPre-set maximums:\nRX:\t\t\t8192\nRX Mini:\t\tn/a\nRX Jumbo:\t\t16384\nTX:\t\t\t8192\nTX push buff len:\tn/a\nCurrent hardware settings:\nRX:\t\t\t1024\nRX Mini:\t\tn/a\nRX Jumbo:\t\t2048\nTX:\t\t\t1024\nRX Buf Len:\t\t2048\nCQE Size:\t\tn/a\nTX Push:\ton\nRX Push:\toff\nTX push buff len:\tn/a\nTCP data split:\tauto\n", ParseRings,
			&Groups{Device: "eth0", Max: ethtool.Group{"rx": 8192, "rx-jumbo": 16384, "tx": 8192}, Now: ethtool.Group{"rx": 1024, "rx-jumbo": 2048, "tx": 1024, "rx-buf-len": 2048, "tx-push": 1, "rx-push": 0}}, nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, errs := tt.parse("f", []byte(tt.text))
			if d := cmp.Diff(tt.want, got); d != "" {
				t.Errorf("groups (-want +got):\n%s", d)
			}
			if d := cmp.Diff(tt.errs, texts(errs)); d != "" {
				t.Errorf("errors (-want +got):\n%s", d)
			}
		})
	}
}

func TestParseCoalesce(t *testing.T) {
	tests := []struct {
		name, text string
		want       *Coalesce
		errs       []string
	}{
		{"old: all fields, adaptive", "Coalesce parameters for eth2:\nAdaptive RX: on  TX: off\nstats-block-usecs: 0\npkt-rate-low: 400000\n\nrx-usecs: 12\nrx-frames: 80\nrx-frame-low: 3\ntx-usecs-high: 0\n",
			&Coalesce{Device: "eth2", Group: ethtool.Group{"adaptive-rx": 1, "adaptive-tx": 0, "stats-block-usecs": 0, "pkt-rate-low": 400000, "rx-usecs": 12, "rx-frames": 80, "rx-frames-low": 3, "tx-usecs-high": 0}}, nil},
		{"new: tabs, n/a, CQE mode", "Coalesce parameters for eth2:\nAdaptive RX: n/a  TX: n/a\nstats-block-usecs:\tn/a\nrx-usecs:\t8\nrx-frames:\tn/a\n\nCQE mode RX: off  TX: on\n\ntx-aggr-max-bytes:\tn/a\n",
			&Coalesce{Device: "eth2", Group: ethtool.Group{"rx-usecs": 8, "cqe-mode-rx": 0, "cqe-mode-tx": 1}}, nil},
		{"not supported", "netlink error: Operation not supported\n", &Coalesce{Group: ethtool.Group{}, Refused: &Refusal{"netlink error: Operation not supported", true}}, nil},
		{"nonsense", "Adaptive RX: maybe  TX: off\nrx-usecs: soon\nhello\n", &Coalesce{Group: ethtool.Group{"adaptive-tx": 0}},
			[]string{`parse f:1: adaptive-rx is "maybe"`, `parse f:2: "rx-usecs" is "soon"`, `parse f:3: not a line of ethtool -c: "hello"`}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, errs := ParseCoalesce("f", []byte(tt.text))
			if d := cmp.Diff(tt.want, got); d != "" {
				t.Errorf("coalesce (-want +got):\n%s", d)
			}
			if d := cmp.Diff(tt.errs, texts(errs)); d != "" {
				t.Errorf("errors (-want +got):\n%s", d)
			}
		})
	}
}

func TestParseFeatures(t *testing.T) {
	got, errs := ParseFeatures("f", []byte(`Features for eth0:
rx-checksumming: on
tx-checksumming: on
	tx-checksum-ipv4: off [fixed]
	tx-checksum-ip-generic: on
scatter-gather: on
	tx-scatter-gather: on
generic-receive-offload: off
large-receive-offload: off [fixed]
ntuple-filters: off [requested on]
receive-hashing: on
rx-gro-hw: off [requested on]
hello
rx-all: perhaps
`))
	want := &Features{
		Device: "eth0",
		On: map[string]bool{"rx-checksum": true, "tx-checksum-ipv4": false, "tx-checksum-ip-generic": true, "tx-scatter-gather": true,
			"rx-gro": false, "rx-lro": false, "rx-ntuple-filter": false, "rx-hashing": true, "rx-gro-hw": false},
		Fixed:  map[string]bool{"tx-checksum-ipv4": true, "rx-lro": true},
		Wanted: map[string]bool{"rx-ntuple-filter": true, "rx-gro-hw": true},
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("features (-want +got):\n%s", d)
	}
	if d := cmp.Diff([]string{`parse f:13: not a line of ethtool -k: "hello"`, `parse f:14: "rx-all" is "perhaps"`}, texts(errs)); d != "" {
		t.Errorf("errors (-want +got):\n%s", d)
	}
}

func TestParsePauseAndInfo(t *testing.T) {
	p, errs := ParsePause("f", []byte("Pause parameters for eth0:\nAutonegotiate:\ton\nRX:\t\toff\nTX:\t\ton\nRX negotiated: on\nTX negotiated: off\n"))
	if d := cmp.Diff(&Pause{Device: "eth0", Autoneg: true, TX: true}, p); d != "" || errs != nil {
		t.Errorf("pause (-want +got):\n%s%v", d, errs)
	}
	p, errs = ParsePause("f", []byte("netlink error: Operation not supported\n"))
	if d := cmp.Diff(&Pause{Refused: &Refusal{"netlink error: Operation not supported", true}}, p); d != "" || errs != nil {
		t.Errorf("refused pause (-want +got):\n%s%v", d, errs)
	}
	i, errs := ParseInfo("f", []byte("driver: bnxt_en\nversion: 6.1.0-21\nfirmware-version: 218.0.152.0/pkg 218.0.169.2\nexpansion-rom-version: \nbus-info: 0000:3b:00.0\nsupports-statistics: yes\n"))
	if d := cmp.Diff(&Info{Driver: "bnxt_en", Version: "6.1.0-21", Firmware: "218.0.152.0/pkg 218.0.169.2", Bus: "0000:3b:00.0"}, i); d != "" || errs != nil {
		t.Errorf("info (-want +got):\n%s%v", d, errs)
	}
	if _, errs = ParseInfo("f", []byte("hello\n")); len(errs) != 1 {
		t.Errorf("errors of nonsense = %v, want one", errs)
	}
}

func TestParseStatsKnowsEveryDriversQueues(t *testing.T) {
	tests := []struct {
		name, text string
		want       []QueueStat
	}{
		{"igb", "NIC statistics:\n     rx_packets: 9\n     rx_queue_0_packets: 5\n     rx_queue_0_bytes: 50\n     rx_queue_0_drops: 1\n     rx_queue_0_alloc_failed: 2\n     tx_queue_1_packets: 7\n     tx_queue_1_restart: 3\n",
			[]QueueStat{{false, 0, 5, 50, 3}, {true, 1, 7, 0, 0}}},
		{"i40e", "rx-3.packets: 5\nrx-3.bytes: 50\ntx-3.packets: 7\nport.rx_dropped: 4\nveb.tc_0_rx_packets: 8\n",
			[]QueueStat{{false, 3, 5, 50, 0}, {true, 3, 7, 0, 0}}},
		{"i40e old, sfc", "rx-10.rx_packets: 5\ntx-10.tx_packets: 7\n", []QueueStat{{false, 10, 5, 0, 0}, {true, 10, 7, 0, 0}}},
		{"ena", "queue_2_tx_cnt: 7\nqueue_2_rx_cnt: 5\nqueue_2_rx_bytes: 50\nqueue_2_rx_page_alloc_fail: 1\nbw_in_allowance_exceeded: 9\n",
			[]QueueStat{{false, 2, 5, 50, 1}, {true, 2, 7, 0, 0}}},
		{"mlx5", "rx_out_of_buffer: 3\nrx_prio0_packets: 8\nch2_events: 4\nrx300_packets: 5\nrx300_bytes: 50\nrx300_xdp_drop: 9\nrx300_lro_packets: 9\nrx300_buff_alloc_err: 1\ntx0_packets: 7\ntx1_0_packets: 8\n",
			[]QueueStat{{false, 300, 5, 50, 1}, {true, 0, 7, 0, 0}, {true, 1, 8, 0, 0}}},
		{"bnxt_en", "     [0]: rx_ucast_packets: 5\n     [0]: rx_mcast_packets: 1\n     [0]: rx_bcast_packets: 2\n     [0]: rx_discards: 4\n     [0]: rx_ucast_bytes: 50\n     [0]: tx_ucast_packets: 7\n     [0]: missed_irqs: 0\n     rx_total_discard_pkts: 9\n",
			[]QueueStat{{false, 0, 8, 50, 4}, {true, 0, 7, 0, 0}}},
		{"be2net", "     rxq1: rx_bytes: 50\n     rxq1: rx_pkts: 5\n     rxq1: rx_drops_no_skbs: 2\n     txq1: tx_pkts: 7\n", []QueueStat{{false, 1, 5, 50, 2}, {true, 1, 7, 0, 0}}},
		{"vmxnet3", "NIC statistics:\n  Tx Queue#: 0\n    ucast pkts tx: 7\n    drv dropped tx total: 1\n  Rx Queue#: 0\n    ucast pkts rx: 5\n    mcast pkts rx: 1\n    ucast bytes rx: 50\n    pkts rx OOB: 3\n    drv dropped rx total: 2\n  Rx Queue#: 1\n    ucast pkts rx: 6\n  tx timeout count: 0\n",
			[]QueueStat{{false, 0, 6, 50, 5}, {false, 1, 6, 0, 0}, {true, 0, 7, 0, 1}}},
		{"without queues", "rx_packets: 9\nrx_64_byte_packets: 3\n[hw] rx nobuffer discards: 1\nrx_1024_to_1522_byte_packets: 7\n", nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s, errs := ParseStats("f", []byte(tt.text))
			if errs != nil {
				t.Errorf("errors: %v", errs)
			}
			if d := cmp.Diff(tt.want, s.Queues()); d != "" {
				t.Errorf("queues (-want +got):\n%s", d)
			}
		})
	}
	s, errs := ParseStats("f", []byte("NIC statistics:\nrx_packets: 7\nhello\nrx_bytes: many\n"))
	if n, ok := s.Get("rx_packets"); !ok || n != 7 {
		t.Errorf("rx_packets = %d, %v, want 7", n, ok)
	}
	if d := cmp.Diff([]string{`parse f:3: not a counter: "hello"`, `parse f:4: "rx_bytes" is "many"`}, texts(errs)); d != "" {
		t.Errorf("errors (-want +got):\n%s", d)
	}
	if s, errs = ParseStats("f", []byte("no stats available\n")); errs != nil || s.Refused == nil || !s.Refused.Absent {
		t.Errorf("no statistics = %+v, %v", s.Refused, errs)
	}
}

func TestParseClassification(t *testing.T) {
	got, errs := ParseClassification("f", []byte(`4 RX rings available
Total 3 rules

Filter: 4094
	Rule Type: TCP over IPv4
	Src IP addr: 0.0.0.0 mask: 255.255.255.255
	Dest IP addr: 192.0.2.0 mask: 0.0.0.255
	TOS: 0x0 mask: 0xff
	Src port: 0 mask: 0xffff
	Dest port: 5001 mask: 0x0
	Action: Direct to queue 2

Filter: 12
	Rule Type: UDP over IPv6
	Src IP addr: 2001:db8::1 mask: ::
	Dest IP addr: :: mask: ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff
	Traffic Class: 0x8 mask: 0x0
	RSS Context ID: 3
	Action: Direct to queue 0

Filter: 1
	Rule Type: Raw IPv4
	Action: Drop

UDP over IPV4 flows use these fields for computing Hash flow key:
IP SA
IP DA

TCP over IPV4 flows use these fields for computing Hash flow key:
IP SA
IP DA
L4 bytes 0 & 1 [TCP/UDP src port]
L4 bytes 2 & 3 [TCP/UDP dst port]

SCTP over IPV6 flows use these fields for computing Hash flow key:
None
`))
	want := &Classification{
		Rings: 4,
		Rules: []ethtool.Rule{
			{Location: 4094, Flow: "tcp4", Queue: 2, Match: map[string]string{"dst-ip": "192.0.2.0/255.255.255.0", "dst-port": "5001"}},
			{Location: 12, Flow: "udp6", Context: 3, Match: map[string]string{"src-ip": "2001:db8::1", "tclass": "8"}},
			{Location: 1, Flow: "ip4", Queue: -1, Match: map[string]string{}},
		},
		Fields: map[string]string{"udp4": "sd", "tcp4": "sdfn", "sctp6": ""},
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("classification (-want +got):\n%s", d)
	}
	if errs != nil {
		t.Errorf("errors: %v", errs)
	}
	got, errs = ParseClassification("f", []byte("Cannot get RX rings: Operation not supported\nrxclass: Cannot get RX class rule count: Operation not supported\nRX classification rule retrieval failed\n"))
	if got.Refused == nil || errs != nil {
		t.Errorf("refusal = %+v, %v", got.Refused, errs)
	}
	_, errs = ParseClassification("f", []byte("hello\nFilter: x\nFilter: 1\nAction: Dance\nRule Type: FDDI\nIPX flows use these fields for computing Hash flow key:\n"))
	if d := cmp.Diff([]string{`parse f:1: not a line of ethtool -n: "hello"`, `parse f:2: filter is "x"`, `parse f:4: action is "Dance"`, `parse f:5: rule type "FDDI" is not known`, `parse f:6: flow type "IPX" is not known`}, texts(errs)); d != "" {
		t.Errorf("errors (-want +got):\n%s", d)
	}
}

func TestParseIPLink(t *testing.T) {
	got, errs := ParseIPLink("f", []byte(`1: lo: <LOOPBACK,UP,LOWER_UP> mtu 65536 qdisc noqueue state UNKNOWN mode DEFAULT group default qlen 1000
    link/loopback 00:00:00:00:00:00 brd 00:00:00:00:00:00
    RX:  bytes packets errors dropped  missed   mcast
          1200      12      0       0       0       0
    TX:  bytes packets errors dropped carrier collsns
          1200      12      0       0       0       0
7: eth0: <BROADCAST,MULTICAST,SLAVE,UP,LOWER_UP> mtu 9000 qdisc mq master bond0 state UP mode DEFAULT group default qlen 1000
    link/ether 02:00:00:00:00:01 brd ff:ff:ff:ff:ff:ff promiscuity 0
    bond_slave state ACTIVE mii_status UP
    RX: bytes  packets  errors  dropped overrun mcast
    99000      1000     1       2       3       4
    TX: bytes  packets  errors  dropped carrier collsns
    1.5G       2.5M     0       5       0       0
    TX errors: aborted   fifo  window heartbt transns
                     9      9       9       9       1
8: eth0.5@eth0: <BROADCAST,MULTICAST> mtu 1500 qdisc noop state DOWN
    vlan protocol 802.1Q id 5 <REORDER_HDR>
`))
	if errs != nil {
		t.Errorf("errors: %v", errs)
	}
	want := []Link{
		{Index: 1, Name: "lo", Flags: []string{"LOOPBACK", "UP", "LOWER_UP"}, MTU: 65536, State: "UNKNOWN", Type: "loopback",
			RX: map[string]uint64{"bytes": 1200, "packets": 12, "errors": 0, "dropped": 0, "missed": 0, "mcast": 0},
			TX: map[string]uint64{"bytes": 1200, "packets": 12, "errors": 0, "dropped": 0, "carrier": 0, "collsns": 0}},
		{Index: 7, Name: "eth0", Flags: []string{"BROADCAST", "MULTICAST", "SLAVE", "UP", "LOWER_UP"}, MTU: 9000, State: "UP", Master: "bond0", Type: "ether",
			RX: map[string]uint64{"bytes": 99000, "packets": 1000, "errors": 1, "dropped": 2, "overrun": 3, "mcast": 4},
			TX: map[string]uint64{"bytes": 1500000000, "packets": 2500000, "errors": 0, "dropped": 5, "carrier": 0, "collsns": 0}},
		{Index: 8, Name: "eth0.5", Peer: "eth0", Flags: []string{"BROADCAST", "MULTICAST"}, MTU: 1500, State: "DOWN", Kind: "vlan",
			RX: map[string]uint64{}, TX: map[string]uint64{}},
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("links (-want +got):\n%s", d)
	}
	if !got[1].Up() || got[2].Up() {
		t.Errorf("up: eth0 %v, eth0.5 %v, want true, false", got[1].Up(), got[2].Up())
	}
	_, errs = ParseIPLink("f", []byte("hello\n2: eth0: <UP>\n    RX: bytes packets\n    many 3\n3 x\n"))
	if d := cmp.Diff([]string{`parse f:1: not a line of ip link: "hello"`, `parse f:4: counter 1 is "many"`, `parse f:5: not an interface: "3 x"`}, texts(errs)); d != "" {
		t.Errorf("errors (-want +got):\n%s", d)
	}
}

func TestParseIRQs(t *testing.T) {
	got, errs := ParseIRQs("f", []byte("# comment\n240 iavf-ens1f1v3-TxRx-0 0\n33 eth0 (queue 3) 0-3,300 300\n34 eth1-TxRx-0 - -\n35 i2c 0-1 -\nx y\n36 lonely\n"))
	want := []IRQ{
		{IRQ: 240, Action: "iavf-ens1f1v3-TxRx-0", Affinity: cpuset.Of(0), AffinityKnown: true},
		{IRQ: 33, Action: "eth0 (queue 3)", Affinity: cpuset.Of(0, 1, 2, 3, 300), AffinityKnown: true, Effective: cpuset.Of(300), EffectiveKnown: true},
		{IRQ: 34, Action: "eth1-TxRx-0"},
		{IRQ: 35, Action: "i2c", Affinity: cpuset.Of(0, 1), AffinityKnown: true},
		{IRQ: 36, Action: "lonely"},
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("vectors (-want +got):\n%s", d)
	}
	if d := cmp.Diff([]string{`parse f:6: not a vector: "x y"`, `parse f:7: no CPU list: "36 lonely"`}, texts(errs)); d != "" {
		t.Errorf("errors (-want +got):\n%s", d)
	}
}

func TestParseQueueMasks(t *testing.T) {
	tests := []struct {
		name, text string
		want       []QueueMask
	}{
		{"masks", "rx-0 00000000,0000000f\nrx-1 10\n", []QueueMask{{Queue: 0, CPUs: cpuset.Range(0, 3)}, {Queue: 1, CPUs: cpuset.Of(4)}}},
		{"lists, told by one line", "rx-0 0-3\nrx-1 10\n", []QueueMask{{Queue: 0, CPUs: cpuset.Range(0, 3)}, {Queue: 1, CPUs: cpuset.Of(10)}}},
		{"lists of single CPUs", "rx-0 1,3,5\n", []QueueMask{{Queue: 0, CPUs: cpuset.Of(1, 3, 5)}}},
		{"grep output", "/sys/class/net/eth1/queues/rx-12/rps_cpus:00000000\neth1/queues/tx-0/xps_cpus:2\n# x\n", []QueueMask{{Device: "eth1", Queue: 12}, {Device: "eth1", TX: true, CPUs: cpuset.Of(1)}}},
		{"device and queue", "eth0 rx-3 ff\neth0/rx-4 = 3\n", []QueueMask{{Device: "eth0", Queue: 3, CPUs: cpuset.Range(0, 7)}, {Device: "eth0", Queue: 4, CPUs: cpuset.Of(0, 1)}}},
		{"wide", "rx-0 1,00000000,00000000,00000000,00000000,00000000,00000000,00000000,00000000,00000000\n", []QueueMask{{CPUs: cpuset.Of(288)}}},
		{"empty", "rx-0 \nrx-1\n", []QueueMask{{}, {Queue: 1}}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, errs := ParseQueueMasks("f", []byte(tt.text))
			if errs != nil {
				t.Errorf("errors: %v", errs)
			}
			if d := cmp.Diff(tt.want, got); d != "" {
				t.Errorf("queues (-want +got):\n%s", d)
			}
		})
	}
	_, errs := ParseQueueMasks("f", []byte("rx-0 zz\nhello there\n"))
	if len(errs) != 2 || !strings.HasPrefix(errs[0].Error(), `parse f:2: not a queue`) || !strings.HasPrefix(errs[1].Error(), "parse f:1: parse CPU mask") {
		t.Errorf("errors = %v", errs)
	}
}

func TestParseDmesg(t *testing.T) {
	got := ParseDmesg([]byte("[ 1.0] Linux version 6.1\n[ 2.0] irq 749: Affinity broken due to vector space exhaustion.\n[ 3.0] NETDEV WATCHDOG: eth0 (r8169): transmit queue 0 timed out\n[ 4.0] igb 0000:01:00.0 eth0: igb: eth0 NIC Link is Down\n[ 5.0] nf_conntrack: nf_conntrack: table full, dropping packet\n"))
	var kinds []string
	for _, e := range got {
		kinds = append(kinds, fmt.Sprintf("%d %s", e.Line, e.Kind))
	}
	if d := cmp.Diff([]string{"2 affinity-broken", "3 tx-timeout", "4 link", "5 conntrack-full"}, kinds); d != "" {
		t.Errorf("events (-want +got):\n%s", d)
	}
}

func TestMask(t *testing.T) {
	m := Masker{Hosts: []string{"db7.example.org"}, Key: []byte("k")}
	in := `    link/ether 52:54:00:ab:cd:ef brd ff:ff:ff:ff:ff:ff
    Src IP addr: 203.0.113.9 mask: 255.255.255.255
    Dest IP addr: 2001:db8:1::7 mask: ::
    inet 127.0.0.1/8 gateway 203.0.113.9.
Linux db7 6.1.0 on DB7.example.org, not db77
RSS hash key: 6d:5a:56:da:25:5b:0e:c2:41:67
 30: 1 2 PCI-MSI 1-edge mlx5_comp0@pci:0000:08:00.0
firmware-version: 218.0.152.0
time 12:34:56, bus-info: 0000:3b:00.0
`
	got := string(m.Mask([]byte(in)))
	for _, gone := range []string{"52:54:00", "203.0.113.9", "2001:db8:1::7", "Linux db7 ", "DB7.example"} {
		if strings.Contains(got, gone) {
			t.Errorf("%q is still there:\n%s", gone, got)
		}
	}
	for _, kept := range []string{"ff:ff:ff:ff:ff:ff", "mask: 255.255.255.255", "127.0.0.1/8", "mask: ::", "Linux host1 6.1.0 on host1, not db77", "6d:5a:56:da:25:5b:0e:c2:41:67", "mlx5_comp0@pci:0000:08:00.0", "218.0.152.0", "12:34:56", "0000:3b:00.0"} {
		if !strings.Contains(got, kept) {
			t.Errorf("%q is gone:\n%s", kept, got)
		}
	}
	if again := string(m.Mask([]byte(in))); again != got {
		t.Errorf("the same key gives other stand-ins")
	}
	addr := got[strings.Index(got, "Src IP addr: ")+13:]
	addr = addr[:strings.Index(addr, " ")]
	if strings.Count(got, addr) != 2 {
		t.Errorf("the same address has not the same stand-in %s:\n%s", addr, got)
	}
	if other := string(Masker{Key: []byte("other")}.Mask([]byte(in))); strings.Contains(other, addr) {
		t.Errorf("another key gives the same stand-in %s", addr)
	}
	if twice := string(m.Mask([]byte("a 10.0.0.1 b 10.0.0.2"))); twice == "" || strings.Fields(twice)[1] == strings.Fields(twice)[3] {
		t.Errorf("two addresses have one stand-in: %s", twice)
	}
}

func TestParseIRQsTellsMasksFromLists(t *testing.T) {
	got, errs := ParseIRQs("f", []byte("103 eth0-rx-0 00,00000000,00000000,00000400 -\n104 eth0-rx-1 ffff 0001\n"))
	want := []IRQ{
		{IRQ: 103, Action: "eth0-rx-0", Affinity: cpuset.Of(10), AffinityKnown: true},
		{IRQ: 104, Action: "eth0-rx-1", Affinity: cpuset.Range(0, 15), AffinityKnown: true, Effective: cpuset.Of(0), EffectiveKnown: true},
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("vectors (-want +got):\n%s", d)
	}
	if len(errs) != 1 || !strings.Contains(errs[0].Error(), "masks (smp_affinity), not lists") {
		t.Errorf("errors: %v", errs)
	}
}

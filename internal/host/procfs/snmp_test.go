package procfs

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestParseSNMP(t *testing.T) {
	for _, c := range []struct {
		name, text string
		want       map[string]uint64
		fails      string
	}{
		{"snmp", "Ip: Forwarding InReceives\nIp: 1 900\nTcp: RtoMin MaxConn InSegs\nTcp: 200 -1 700\nUdp: InDatagrams RcvbufErrors\nUdp: 18446744073709551615 0\n",
			map[string]uint64{"IpInReceives": 900, "TcpInSegs": 700, "UdpInDatagrams": 1<<64 - 1, "UdpRcvbufErrors": 0}, ""},
		{"netstat", "TcpExt: ListenOverflows ListenDrops\nTcpExt: 3 4\n", map[string]uint64{"TcpExtListenOverflows": 3, "TcpExtListenDrops": 4}, ""},
		{"snmp6", "Ip6InReceives                   \t17\nUdp6InDatagrams                 \t5\n", map[string]uint64{"Ip6InReceives": 17, "Udp6InDatagrams": 5}, ""},
		{"IPv6 is off", "", map[string]uint64{}, ""},
		{"numbers missing", "Udp: InDatagrams\n", nil, "parse snmp:1: no numbers follow the names of Udp"},
		{"fewer numbers than names", "Udp: InDatagrams NoPorts\nUdp: 1\n", nil, "parse snmp:2: 1 numbers for the 2 names of Udp"},
		{"numbers of another block", "Udp: InDatagrams\nTcp: 1\n", nil, "parse snmp:2: 1 numbers for the 1 names of Udp"},
		{"a word for a number", "Udp: InDatagrams\nUdp: many\n", nil, "parse snmp:2: UdpInDatagrams is not a number"},
		{"snmp6 with a word", "Udp6InDatagrams x\n", nil, "parse snmp:1: counter is not a number"},
		{"prose", "no such file or directory\n", nil, "parse snmp:1: neither a name and a number nor a line that begins with a label"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := ParseSNMP("snmp", []byte(c.text))
			text := ""
			if err != nil {
				text = err.Error()
			}
			if diff := cmp.Diff(c.fails, text); diff != "" {
				t.Errorf("error (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("counters (-want +got):\n%s", diff)
			}
		})
	}
}

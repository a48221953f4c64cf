package collector

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestProtocols(t *testing.T) {
	snmp := func(f files, udp, tcp string) files {
		return f.with("/proc/net/snmp", "Tcp: RtoMin CurrEstab InSegs\nTcp: 200 12 "+tcp+"\nUdp: InDatagrams NoPorts\nUdp: "+udp+" 5\n")
	}
	before := reading(t, snmp(host2(), "10", "7").with("/proc/net/netstat", "TcpExt: ListenDrops\nTcpExt: 1\n").with("/proc/net/snmp6", "Udp6InDatagrams 3\n"), 0)
	after := reading(t, snmp(host2(), "17", "6").with("/proc/net/netstat", "TcpExt: ListenDrops New\nTcpExt: 4 9\n").with("/proc/net/snmp6", "Udp6InDatagrams 8\n"), 1)
	s := Between(before, after, nil)
	want := map[string]uint64{"UdpInDatagrams": 7, "TcpExtListenDrops": 3, "TcpExtNew": 9, "Udp6InDatagrams": 5}
	if diff := cmp.Diff(want, s.Protocols); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if s.Established != 12 {
		t.Errorf("%d connections established, want 12", s.Established)
	}
	if diff := cmp.Diff([]Unmeasured{{"TcpInSegs", restarted}}, s.Unmeasured); diff != "" {
		t.Errorf("notes (-want +got):\n%s", diff)
	}

	if s := Between(reading(t, host2(), 0), reading(t, host2(), 1), nil); s.Protocols != nil || len(s.Unmeasured) > 0 {
		t.Errorf("no file: %v, %v", s.Protocols, s.Unmeasured)
	}
	bad := reading(t, snmp(host2(), "many", "7").with("/proc/net/netstat", "!"), 0)
	if diff := cmp.Diff([]Unmeasured{
		{"counters of IP, TCP and UDP", "parse /proc/net/snmp:4: UdpInDatagrams is not a number"},
		{"counters of IP, TCP and UDP", "open /proc/net/netstat: permission denied"},
	}, bad.Unmeasured); diff != "" {
		t.Errorf("unreadable (-want +got):\n%s", diff)
	}
}

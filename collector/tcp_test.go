package collector

import (
	"errors"
	"net/netip"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/rxsteer/rxsteer/internal/sockdiag"
)

func connection(cookie uint64, remote string, received, acked uint64) sockdiag.Flow {
	return sockdiag.Flow{Cookie: cookie, Local: netip.MustParseAddrPort("10.0.0.1:40000"), Remote: netip.MustParseAddrPort(remote),
		BytesReceived: received, BytesAcked: acked, SegsOut: acked / 1000, Retransmits: acked / 50000,
		Busy: time.Duration(acked), PeerWindow: time.Duration(acked / 2), RTT: 30 * time.Millisecond}
}

func TestBusiestConnections(t *testing.T) {
	now := epoch
	looks := [][]sockdiag.Flow{
		{connection(1, "10.0.0.2:443", 100, 1_000_000), connection(2, "10.0.0.3:443", 5, 5), connection(4, "127.0.0.1:9", 0, 0)},
		{connection(1, "10.0.0.2:443", 100, 3_000_000), connection(2, "10.0.0.3:443", 5, 5), connection(3, "[2001:db8::1]:22", 9_000_000, 0), connection(4, "127.0.0.1:9", 1<<40, 0)},
	}
	asked := 0
	list := func(int) ([]sockdiag.Flow, error) { asked++; return looks[min(asked, len(looks))-1], nil }
	h := host2().with("/proc/sys/net/ipv4/tcp_rmem", "4096\t131072\t6291456\n").with("/proc/sys/net/ipv4/tcp_wmem", "4096 16384 4194304\n")
	s := New(Config{FS: h, Connections: list, Now: func() time.Time { return now }})
	if err := s.start(); err != nil {
		t.Fatal(err)
	}
	now = now.Add(time.Second)
	got, err := s.next()
	if err != nil {
		t.Fatal(err)
	}
	want := &TCP{ReadMax: 6291456, WriteMax: 4194304, Flows: []TCPFlow{
		{Local: "10.0.0.1:40000", Remote: "[2001:db8::1]:22", Received: 9_000_000, RTT: 30 * time.Millisecond}, // new: from 0
		{Local: "10.0.0.1:40000", Remote: "10.0.0.2:443", Acked: 2_000_000, SegsOut: 2000, Retransmits: 40, Busy: 2_000_000, PeerWindow: 1_000_000, RTT: 30 * time.Millisecond},
	}}
	if diff := cmp.Diff(want, got.TCP); diff != "" {
		t.Errorf("TCP (-want +got):\n%s", diff)
	}
	sum := Merge(got, got)
	if f := sum.TCP.Flows[0]; f.Received != 18_000_000 || got.TCP.Flows[0].Received != 9_000_000 {
		t.Errorf("merged %+v, the sample is now %+v", f, got.TCP.Flows[0])
	}
}

func TestConnectionsRefused(t *testing.T) {
	s := New(Config{FS: host2(), Connections: func(int) ([]sockdiag.Flow, error) { return nil, errors.New("refused") }, Now: func() time.Time { return epoch }})
	if err := s.start(); err != nil {
		t.Fatal(err)
	}
	got, err := s.next()
	if err != nil || got.TCP != nil || !said(got, "TCP connections", "refused") {
		t.Errorf("TCP %v, unmeasured %v, %v; want the refusal", got.TCP, got.Unmeasured, err)
	}
}

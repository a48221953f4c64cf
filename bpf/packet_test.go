package bpf

import (
	"errors"
	"net"
	"slices"
	"testing"
	"time"

	"github.com/rxsteer/rxsteer/internal/testnet"
)

// packets loads and attaches the programs of level 2 until the test ends; every packet is sampled.
func packets(t *testing.T, opts Options) *Packets {
	t.Helper()
	testnet.NeedTun(t)
	p, err := LoadPackets(opts)
	if err != nil {
		t.Fatalf("%+v", err)
	}
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
	if err := errors.Join(p.SetRate(1), p.Attach()); err != nil {
		t.Fatal(err)
	}
	return p
}

func packetCounters(t *testing.T, p *Packets) *PacketCounters {
	t.Helper()
	var c PacketCounters
	if err := p.Read(&c); err != nil {
		t.Fatal(err)
	}
	return &c
}

// of sums a stage of what a namespace's devices received.
func (c *PacketCounters) of(ns *testnet.NS, stage PacketStage, also func(StageKey) bool) (s StageStat) {
	for i, k := range c.StageKeys {
		if k.Netns != uint32(ns.Inode()) || k.Stage != stage || also != nil && !also(k) {
			continue
		}
		s.Count += c.Stages[i].Count
		s.Sum += c.Stages[i].Sum
		for b := range s.Hist {
			s.Hist[b] += c.Stages[i].Hist[b]
		}
	}
	return s
}

func (c *PacketCounters) cpu() (s PacketCPU) {
	for i := range c.CPUs {
		o := &c.CPUs[i]
		s.Sampled += o.Sampled
		s.Overwritten += o.Overwritten
		s.Reused += o.Reused
		s.Dropped += o.Dropped
		s.Unread += o.Unread
		s.Lost += o.Lost
	}
	return s
}

// pair is two namespaces joined by a veth whose far end receives through NAPI.
func pair(t *testing.T) (a, b *testnet.NS) {
	t.Helper()
	a, b = testnet.New(t), testnet.New(t)
	if err := testnet.Connect(a, b, testnet.Veth{AddrA: "10.9.0.1/24", AddrB: "10.9.0.2/24", NAPI: true, StaticNeigh: true}); err != nil {
		t.Fatal(err)
	}
	return a, b
}

// halfSecond is the bucket of 0.5 s: 2^28 ≤ 5·10^8 ns < 2^29. A reader that is late may end in the next.
const halfSecond = 29

func wantDelay(t *testing.T, what string, s StageStat, n uint64, bucket int) {
	t.Helper()
	if got := s.Hist[bucket] + s.Hist[bucket+1]; got != n || s.Count != n {
		t.Errorf("%s: %d of %d in bucket %d (2^%d ns), want all %d: %v", what, got, s.Count, bucket, bucket-1, n, s.Hist)
	}
}

func TestStoppedUDPReaderIsSeen(t *testing.T) {
	p := packets(t, Options{})
	a, b := pair(t)
	var sender net.Conn
	var receiver net.PacketConn
	if err := b.Do(func() (err error) { receiver, err = net.ListenPacket("udp", "10.9.0.2:9"); return err }); err != nil {
		t.Fatal(err)
	}
	defer receiver.Close()
	if err := a.Do(func() (err error) { sender, err = net.Dial("udp", "10.9.0.2:9"); return err }); err != nil {
		t.Fatal(err)
	}
	defer sender.Close()
	const n = 12
	for range n {
		if _, err := sender.Write(make([]byte, 100)); err != nil {
			t.Fatal(err)
		}
	}
	time.Sleep(500 * time.Millisecond)
	buf := make([]byte, 2000)
	for range n {
		if _, _, err := receiver.ReadFrom(buf); err != nil {
			t.Fatal(err)
		}
	}
	c := packetCounters(t, p)
	t.Logf("%+v", c.cpu())
	wantDelay(t, "read", c.of(b, ToRead, nil), n, halfSecond)
	wantDelay(t, "total", c.of(b, InAll, nil), n, halfSecond)
	if s := c.of(b, ToStack, nil); s.Count < n || slices.Max(s.Hist[halfSecond-4:]) > 0 {
		t.Errorf("to the stack: %d, %v", s.Count, s.Hist)
	}
}

func TestStoppedTCPReaderIsSeen(t *testing.T) {
	p := packets(t, Options{})
	a, b := pair(t)
	var listener net.Listener
	if err := b.Do(func() (err error) { listener, err = net.Listen("tcp", "10.9.0.2:9"); return err }); err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	var sender net.Conn
	if err := a.Do(func() (err error) { sender, err = net.Dial("tcp", "10.9.0.2:9"); return err }); err != nil {
		t.Fatal(err)
	}
	defer sender.Close()
	receiver, err := listener.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer receiver.Close()
	// One at a time: what comes behind another may be merged with it in the queue.
	const n = 3
	buf := make([]byte, 2000)
	for range n {
		if _, err := sender.Write(make([]byte, 100)); err != nil {
			t.Fatal(err)
		}
		time.Sleep(500 * time.Millisecond)
		if _, err := receiver.Read(buf); err != nil {
			t.Fatal(err)
		}
	}
	c := packetCounters(t, p)
	t.Logf("%+v", c.cpu())
	wantDelay(t, "read", c.of(b, ToRead, nil), n, halfSecond)
	wantDelay(t, "total", c.of(b, InAll, nil), n, halfSecond)
	if s := c.of(b, ToSocket, nil); s.Count < n || slices.Max(s.Hist[halfSecond-4:]) > 0 {
		t.Errorf("to the socket: %d, %v", s.Count, s.Hist)
	}
}

package main

import (
	"strings"
	"testing"

	"github.com/rxsteer/rxsteer/collector"
	"github.com/rxsteer/rxsteer/internal/host/hosttest"
	"github.com/rxsteer/rxsteer/internal/host/nic"
)

// twoQueues is a NIC whose kernel tells no NAPI of a queue.
func twoQueues() nic.NIC {
	return nic.NIC{Name: "eth0", IfIndex: 2, Netns: 5, Driver: "igb", Queues: []nic.Queue{{RX: 0, TX: 0, IRQ: 30}, {RX: 1, TX: 1, IRQ: 31}}}
}

func TestQueueOfANAPIThatRan(t *testing.T) {
	h := &hostRooms{fs: hosttest.Static(t, map[string]string{"/proc/self/ns/net": "-> net:[5]"}), nics: []nic.NIC{twoQueues()}, polled: map[int][]nic.Polled{}}
	for i, c := range []struct {
		netns   uint64
		ifindex int
		id      uint32
		want    int
	}{
		{5, 2, 9, nic.None}, // one of two: it may be either
		{5, 2, 8, 0},        // now both ran
		{5, 2, 9, 1},
		{5, 2, 0, nic.None},
		{6, 2, 9, nic.None},  // another namespace's
		{5, 3, 9, nic.None},  // no such device
		{5, 2, 12, nic.None}, // the channels changed: new NAPIs
		{5, 2, 13, 1},
		{5, 2, 12, 0},
		{5, 2, 9, nic.None}, // an old one
	} {
		if got := h.rxQueue(c.netns, c.ifindex, c.id); got != c.want {
			t.Errorf("%d: rx %d of NAPI %d, want %d", i, got, c.id, c.want)
		}
	}
}

func TestMapByLearnedLinks(t *testing.T) {
	for name, c := range map[string]struct {
		link collector.Link
		want [2]uint32
	}{
		"the queue by its packets":  {collector.Link{Netns: 5, IfIndex: 2, NAPI: 9, RXQueue: 0, IRQ: -1}, [2]uint32{9, 0}},
		"the queue by its vector":   {collector.Link{Netns: 5, IfIndex: 2, NAPI: 9, RXQueue: -1, IRQ: 31}, [2]uint32{0, 9}},
		"of another namespace":      {collector.Link{Netns: 6, IfIndex: 2, NAPI: 9, RXQueue: 0, IRQ: -1}, [2]uint32{0, 0}},
		"of a queue it has not got": {collector.Link{Netns: 5, IfIndex: 2, NAPI: 9, RXQueue: 7, IRQ: -1}, [2]uint32{0, 0}},
	} {
		nics := []nic.NIC{twoQueues()}
		linkNAPIs(nics, &collector.Sample{Learned: []collector.Link{c.link}})
		q := nics[0].Queues
		if got := [2]uint32{q[0].NAPI, q[1].NAPI}; got != c.want {
			t.Errorf("%s: NAPIs %v, want %v", name, got, c.want)
		}
		for i := range q {
			if (q[i].NAPI != 0) != (q[i].NAPIBy == nic.ByLearned) {
				t.Errorf("%s: %+v is not said to be learned", name, q[i])
			}
		}
	}
}

// TestMapAgainstTraffic: an interrupt that traffic came by and the map gives another queue is said once; a link
// that agrees is not.
func TestMapAgainstTraffic(t *testing.T) {
	nics := []nic.NIC{twoQueues()}
	s := &collector.Sample{Learned: []collector.Link{{Netns: 5, IfIndex: 2, NAPI: 9, RXQueue: 0, IRQ: 31}, {Netns: 5, IfIndex: 2, NAPI: 10, RXQueue: 1, IRQ: 31}}}
	linkNAPIs(nics, s)
	linkNAPIs(nics, s)
	if p := nics[0].Problems; len(p) != 1 || !strings.Contains(p[0], "rx 0 of eth0 is served by IRQ 30") || !strings.Contains(p[0], "traffic came by IRQ 31") {
		t.Errorf("problems %q, want one of rx 0", p)
	}
	if q := nics[0].Queues; q[0].IRQ != 30 || q[0].NAPI != 9 || q[1].NAPI != 10 {
		t.Errorf("queues %+v, want the vectors as they were and the NAPIs of the packets", q)
	}
}

func TestMapByTraffic(t *testing.T) {
	nics := []nic.NIC{twoQueues()}
	linkNAPIs(nics, &collector.Sample{
		NAPIs: []collector.NAPI{{Netns: 5, IfIndex: 2, ID: 9, CPU: 3, Polls: 1}, {Netns: 6, IfIndex: 2, ID: 8, CPU: 1, Polls: 1}, {Netns: 5, IfIndex: 2, ID: 7, CPU: 1, BusyPolls: 1}},
		IRQs:  []collector.IRQ{{IRQ: 31, CPU: 3, Count: 1}, {IRQ: 30, CPU: 3}},
	})
	if q := nics[0].Queues; q[0].NAPI != 0 || q[1].NAPI != 9 || q[1].NAPIBy != nic.ByLearned {
		t.Errorf("queues %+v, want NAPI 9 of rx 1 only", q)
	}
}

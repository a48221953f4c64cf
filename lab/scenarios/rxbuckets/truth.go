package main

import (
	"errors"
	"regexp"
	"strconv"

	"github.com/rxsteer/rxsteer/collector"
	"github.com/rxsteer/rxsteer/internal/host"
	"github.com/rxsteer/rxsteer/internal/netdev"
)

// receiveVector is how drivers of the lab name the vector of a receive queue: not taken from rxsteer.
var receiveVector = regexp.MustCompile(`^(?:eth0-(?:rx|TxRx|rxtx)-|virtio[0-9]+-input\.)([0-9]+)$`)

// receiveVectors are the receive queues of the interrupts whose handler is named so, by IRQ. The lab's guests have one NIC.
func receiveVectors(fs host.FS, dev string) (map[int]int, error) {
	lines, err := fs.ReadDir("/proc/irq")
	if err != nil {
		return nil, err
	}
	out := map[int]int{}
	for _, l := range lines {
		irq, err := strconv.Atoi(l.Name())
		if err != nil {
			continue
		}
		actions, err := fs.ReadDir("/proc/irq/" + l.Name())
		if err != nil {
			return nil, err
		}
		for _, a := range actions {
			if m := receiveVector.FindStringSubmatch(a.Name()); m != nil {
				if out[irq], err = strconv.Atoi(m[1]); err != nil {
					return nil, err
				}
			}
		}
	}
	if len(out) == 0 {
		return nil, errors.New("no vector of " + dev + " has a name the lab knows")
	}
	return out, nil
}

// Links is what traffic has shown of the interface, held against two sources.
type Links struct {
	Learned []collector.Link `json:"learned"`
	// ByName: links of an interrupt with a queue, and how many name the queue that the vector's name does.
	ByName     int `json:"by_name"`
	NameAgreed int `json:"by_name_agreed"`
	// ByNetlink: links of a NAPI with a queue that netlink tells the NAPI of, and how many agree.
	ByNetlink     int `json:"by_netlink"`
	NetlinkAgreed int `json:"by_netlink_agreed"`
}

func compareLinks(s *collector.Sample, ifindex int, vectors map[int]int) (Links, error) {
	var l Links
	told := map[int]uint32{} // queue → NAPI
	c, err := netdev.New()
	if err != nil && !errors.Is(err, netdev.ErrNotSupported) {
		return l, err
	}
	if err == nil {
		queues, err := c.Queues(ifindex)
		if err = errors.Join(err, c.Close()); err != nil && !errors.Is(err, netdev.ErrNotSupported) {
			return l, err
		}
		for _, q := range queues {
			if q.Type == netdev.RX && q.NAPI != 0 {
				told[int(q.ID)] = q.NAPI
			}
		}
	}
	for _, x := range s.Learned {
		if x.IfIndex != ifindex {
			continue
		}
		l.Learned = append(l.Learned, x)
		if x.RXQueue < 0 {
			continue
		}
		if queue, ok := vectors[x.IRQ]; x.IRQ >= 0 {
			l.ByName++
			if ok && queue == x.RXQueue {
				l.NameAgreed++
			}
		}
		if napi, ok := told[x.RXQueue]; ok {
			l.ByNetlink++
			if napi == x.NAPI {
				l.NetlinkAgreed++
			}
		}
	}
	return l, nil
}

// Pacing is the interrupts of all receive queues together, in ns.
type Pacing struct {
	Kernel   float64 `json:"kernel_gap_ns"` // mean, by the kernel's count of interrupts
	Gap      float64 `json:"gap_ns"`        // median, measured
	RingWait float64 `json:"ring_wait_ns"`  // median of the stage
	Low      float64 `json:"ring_wait_low_ns"`
	High     float64 `json:"ring_wait_high_ns"` // its bucket
	K        float64 `json:"k"`
	Sparse   string  `json:"sparse,omitempty"`
}

func pacingOf(s *collector.Sample, ifindex int, vectors map[int]int, usecs int64) Pacing {
	var p Pacing
	var all collector.Pacing
	var interrupts, packets uint64
	for _, q := range s.IRQs {
		if _, ok := vectors[q.IRQ]; ok {
			interrupts += q.Count
		}
	}
	for i := range s.Pacing {
		if _, ok := vectors[s.Pacing[i].IRQ]; ok {
			all.Hist.Add(&s.Pacing[i].Hist)
		}
	}
	for i := range s.NAPIs {
		if s.NAPIs[i].IfIndex == ifindex {
			packets += s.NAPIs[i].Packets
		}
	}
	var wait collector.Histogram
	for i := range s.Stages {
		if st := &s.Stages[i]; st.Stage == collector.RingWait && st.IfIndex == ifindex {
			wait.Add(&st.Hist)
		}
	}
	p.RingWait, p.Low, p.High = wait.Quantile(0.5)
	p.Gap, _, _ = all.Hist.Quantile(0.5)
	if interrupts > 0 {
		p.Kernel = float64(s.Interval) * float64(len(vectors)) / float64(interrupts)
		truth := all.Truth(usecs, float64(packets)/float64(interrupts))
		p.K, p.Sparse = truth.K, truth.Sparse
	}
	return p
}

func stagesOf(s *collector.Sample, ifindex int) map[string]uint64 {
	out := map[string]uint64{}
	for i := range s.Stages {
		if st := &s.Stages[i]; st.IfIndex == ifindex {
			out[string(st.Stage)] += st.Count
		}
	}
	return out
}

package collector

import (
	"cmp"
	"slices"
)

// Where a packet was lost, in the order of its way.
const (
	LossMissed    = "missed"     // the device had no room for it (rx_missed_errors)
	LossDropped   = "dropped"    // by the device or for want of a protocol (rx_dropped), less what the backlog dropped
	LossFlowLimit = "flow limit" // a CPU's backlog was half full of its flow
	LossBacklog   = "backlog"    // a CPU's backlog was full
	LossSocket    = "UDP socket" // no room at its reader
)

// Loss is packets lost at one place.
type Loss struct {
	Place   string
	Device  string // of LossMissed and LossDropped, else ""
	Packets uint64
}

// Losses are the packets lost in the interval, by place; a lost packet is at one place, so that the sum is what was lost.
// The kernel counts some twice: enqueue_to_backlog in net/core/dev.c counts a packet that found a CPU's backlog full
// on the CPU and in rx_dropped of its device, and one that the flow limit took a third time. Which device's they were is
// not told: they are taken from the devices that dropped most. Drops of a backlog that belong to another network
// namespace's devices may so hide some of this one's. What drivers count beside is in their devices' counters
// already. A bond's counters repeat those of its members (bond_get_stats), which is not seen here.
func (s *Sample) Losses() []Loss {
	var backlog, limit uint64
	for i := range s.CPUs {
		backlog += s.CPUs[i].Dropped
		limit += s.CPUs[i].FlowLimit
	}
	limit = min(limit, backlog)
	var out []Loss
	lose := func(place, device string, n uint64) {
		if n > 0 {
			out = append(out, Loss{place, device, n})
		}
	}
	most := make([]*Device, 0, len(s.Devices))
	for i := range s.Devices {
		d := &s.Devices[i]
		lose(LossMissed, d.Name, d.RXMissed)
		most = append(most, d)
	}
	slices.SortStableFunc(most, func(a, b *Device) int { return cmp.Compare(b.RXDropped, a.RXDropped) })
	again := backlog
	for _, d := range most {
		n := min(again, d.RXDropped)
		again -= n
		lose(LossDropped, d.Name, d.RXDropped-n)
	}
	lose(LossFlowLimit, "", limit)
	lose(LossBacklog, "", backlog-limit)
	p := s.Protocols
	lose(LossSocket, "", p["UdpRcvbufErrors"]+p["Udp6RcvbufErrors"]+p["UdpMemErrors"]+p["Udp6MemErrors"])
	return out
}

package diagnose

import (
	"cmp"
	"encoding/json"
	"maps"
	"slices"

	"github.com/rxsteer/rxsteer/collector"
	"github.com/rxsteer/rxsteer/internal/host/knob"
)

// queueLoad is what the receive queues of a device got in the interval.
type queueLoad struct {
	counts map[int]uint64         // by queue
	on     map[int]map[int]uint64 // by queue, then CPU
	total  uint64
	unit   string // "packets", or "interrupts" where packets are not told by queue
}

// queueLoad is by the packets polled from each queue or counted by the driver; where neither is told, by
// the interrupts of vectors that serve one receive queue, which understate a queue under load.
func (v *view) queueLoad(device string) queueLoad {
	l := queueLoad{counts: map[int]uint64{}, on: map[int]map[int]uint64{}, unit: "packets"}
	add := func(queue, cpu int, n uint64) {
		if queue < 0 || n == 0 {
			return
		}
		l.counts[queue] += n
		l.total += n
		if cpu < 0 {
			return
		}
		if l.on[queue] == nil {
			l.on[queue] = map[int]uint64{}
		}
		l.on[queue][cpu] += n
	}
	for _, p := range v.s.NAPIs {
		if v.ours(p, device) {
			add(v.queueOf(p), p.CPU, p.Packets)
		}
	}
	if l.total > 0 {
		return l
	}
	l.unit = "interrupts"
	rows := map[int][]collector.IRQ{}
	for _, i := range v.s.IRQs {
		rows[i.IRQ] = append(rows[i.IRQ], i)
	}
	for _, q := range v.nics[device].Queues {
		if q.IRQ < 0 {
			continue
		}
		for _, i := range rows[q.IRQ] {
			add(q.RX, i.CPU, i.Count)
		}
	}
	return l
}

// ours reports whether polls are those of a device of this namespace.
func (v *view) ours(p collector.NAPI, device string) bool {
	return p.IfIndex != 0 && p.Device == device && (p.Netns == 0 || v.netns == 0 || p.Netns == v.netns)
}

// busiest is the queue that got most, and its part of all; -1 where nothing arrived.
func (l queueLoad) busiest() (queue int, share float64) {
	queue = -1
	for _, q := range slices.Sorted(maps.Keys(l.counts)) {
		if queue < 0 || l.counts[q] > l.counts[queue] {
			queue = q
		}
	}
	if queue < 0 {
		return -1, 0
	}
	return queue, part(l.counts[queue], l.total)
}

// busy is the queues that carry a noticeable part of the device's packets.
func (l queueLoad) busy() []int {
	var out []int
	for q, n := range l.counts {
		if float64(n) >= busyQueue*float64(l.total) {
			out = append(out, q)
		}
	}
	slices.Sort(out)
	return out
}

// cpu is the CPU that handled most of a queue, -1 not known.
func (l queueLoad) cpu(queue int) int {
	best := -1
	for _, c := range slices.Sorted(maps.Keys(l.on[queue])) {
		if best < 0 || l.on[queue][c] > l.on[queue][best] {
			best = c
		}
	}
	return best
}

// rate is the packets per second of a device, by its own counters, its polls, or at least its interrupts.
func (v *view) rate(device string) float64 {
	return max(v.received(device), ratio(float64(v.queueLoad(device).total), v.seconds))
}

// setting is a setting of a device or one of its parts.
func (v *view) setting(k knob.Kind, t knob.Target) knob.Value {
	if v.in.Snapshot == nil {
		return knob.Unknown("no snapshot")
	}
	return v.in.Snapshot.Get(knob.Ref{Knob: k, Target: t})
}

// table is the indirection table of a device: the queue of each bucket; nil where there is none or it
// is not known.
func (v *view) table(device string) []int {
	var t []int
	if v.setting(knob.RSSTable, knob.Target(device)).Decode(&t) != nil {
		return nil
	}
	return t
}

// tableShares is the part of the buckets that name each queue; without a table all queues alike.
func (v *view) tableShares(device string) map[int]float64 {
	out := map[int]float64{}
	if t := v.table(device); len(t) > 0 {
		for _, q := range t {
			out[q] += 1 / float64(len(t))
		}
		return out
	}
	all := v.rxQueues(device)
	for _, q := range all {
		out[q] = 1 / float64(len(all))
	}
	return out
}

// uneven reports whether a queue's part of the packets is nearer to all of them than to its part
// of the table.
func uneven(share, fair float64) bool { return share >= fair+(1-fair)/2 }

// pressure is how much of its own time a CPU spends in receive softirq, 0 where the CPU is not known.
func (v *view) pressure(cpu int) float64 {
	l, ok := v.load[cpu]
	if !ok {
		return 0
	}
	return l.own(l.NetRX)
}

// bySeverity is Warning where the CPU that does the work has little room left, else Info.
func (v *view) bySeverity(cpu int) Severity {
	if v.pressure(cpu) >= hotRatio/2 {
		return Warning
	}
	return Info
}

// driver is the driver of a device.
func (v *view) driver(device string) string {
	if d := v.nics[device].Driver; d != "" {
		return d
	}
	if v.in.Snapshot != nil {
		for _, d := range v.in.Snapshot.Devices {
			if d.Name == device {
				return cmp.Or(d.Driver, "")
			}
		}
	}
	return ""
}

// number is an attribute of a group (knob.Fields) that counts.
func number(v any) (int, bool) {
	switch n := v.(type) {
	case json.Number:
		i, err := n.Int64()
		return int(i), err == nil
	case float64:
		return int(n), true
	}
	return 0, false
}

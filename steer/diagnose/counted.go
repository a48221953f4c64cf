package diagnose

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"github.com/rxsteer/rxsteer/collector"
	"github.com/rxsteer/rxsteer/internal/host/knob"
	"github.com/rxsteer/rxsteer/internal/host/nic"
)

const (
	// pastRatio is how much more of the packets than now must be hit in the counters since boot, of which
	// nobody knows when they grew, and pastEvents the least number.
	pastRatio  = 10
	pastEvents = 1000
	// fewEvents is the least number where no times are told.
	fewEvents = 100
)

// counted is what a driver counts of one kind, in the scope that counted most: counters of
// different scope, and several of one port, may count the same packets.
type counted struct {
	kind   nic.FactKind
	n      uint64
	name   string // the counter, or a queue's as an example
	scope  nic.Scope
	queues map[int]uint64 // by rx queue, where that is the scope
}

// counted is the driver's counters of a kind; n is 0 where there is none or it stood still.
func (v *view) counted(device string, kind nic.FactKind) counted {
	c := counted{kind: kind}
	q := counted{kind: kind, scope: nic.ScopeQueue, queues: map[int]uint64{}}
	for _, d := range v.s.Drivers {
		if d.Device != device {
			continue
		}
		for _, x := range d.Counters {
			switch {
			case x.Kind != kind:
			case x.Scope == nic.ScopeQueue:
				if q.n += x.Count; x.Count > q.queues[q.busiest()] {
					q.name = x.Name
				}
				q.queues[x.Queue] += x.Count
			case x.Count > c.n:
				c.n, c.name, c.scope = x.Count, x.Name, x.Scope
			}
		}
	}
	if q.n >= c.n && q.n > 0 {
		return q
	}
	return c
}

// busiest is the queue that was hit most, -1 none.
func (c counted) busiest() int {
	best := -1
	for _, q := range slices.Sorted(maps.Keys(c.queues)) {
		if best < 0 || c.queues[q] > c.queues[best] {
			best = q
		}
	}
	return best
}

// tells reports whether the driver of a device has a counter of a kind at all.
func (v *view) tells(device string, kind nic.FactKind) bool {
	return slices.ContainsFunc(v.s.Drivers, func(d collector.Driver) bool {
		return d.Device == device && slices.Contains(d.Told, kind)
	})
}

// beyond reports whether n events among so many packets are more than noise: by their rate and their
// part of the packets, whatever the counters have been before.
func (v *view) beyond(n uint64, of, leastRatio, leastPerS float64) bool {
	switch {
	case n == 0:
		return false
	case v.s.SinceBoot:
		return n >= pastEvents && ratio(float64(n), of) >= pastRatio*leastRatio
	case v.s.Untimed:
		return n >= fewEvents && ratio(float64(n), of) >= leastRatio
	}
	return float64(n)/v.seconds >= leastPerS && ratio(float64(n), of) >= leastRatio
}

// now lowers the severity of what may be long past.
func (v *view) now(s Severity) Severity {
	if v.s.SinceBoot {
		return Info
	}
	return s
}

// often is a number of events as text: as a rate where there are times.
func (v *view) often(n uint64, what string) string {
	switch {
	case v.s.SinceBoot:
		return fmt.Sprintf("%d %s since boot", n, what)
	case v.s.Untimed:
		return fmt.Sprintf("%d %s between the two points", n, what)
	}
	return fmt.Sprintf("%.0f %s/s", float64(n)/v.seconds, what)
}

// howOften is the same as evidence: name is the events' ("ring_drops").
func (v *view) howOften(name string, n uint64) Fact {
	if v.s.SinceBoot || v.s.Untimed {
		return Fact{name, n}
	}
	return Fact{name + "_per_s", float64(n) / v.seconds}
}

// carried is what a device received as evidence: a rate only where there are times.
func (v *view) carried(device string) Fact {
	return v.howOften("packets", uint64(v.rate(device)*v.seconds+0.5))
}

// devices is the interfaces that counters are of and that were asked for, but no bond, bridge or VLAN: its
// counters are those of its members.
func (v *view) devices() []collector.Device {
	var out []collector.Device
	for _, d := range v.s.Devices {
		if v.wanted(d.Name) && d.Name != "lo" && v.nics[d.Name].Kind != nic.Stack {
			out = append(out, d)
		}
	}
	return out
}

// offered is the packets that came to a device: received and lost.
func (v *view) offered(device string, lost uint64) float64 {
	return max(v.received(device), v.rate(device))*v.seconds + float64(lost)
}

// hottest is the most receive softirq among the CPUs that poll a device, as a part of their own
// time, and that CPU; -1 where none is known.
func (v *view) hottest(device string) (cpu int, load float64) {
	cpu = -1
	for _, on := range v.queueLoad(device).on {
		for c := range on {
			if l := v.pressure(c); cpu < 0 || l > load || l == load && c < cpu {
				cpu, load = c, l
			}
		}
	}
	return cpu, load
}

// number is an attribute of a group, false where it is not known.
func (v *view) number(k knob.Kind, t knob.Target, attribute string) (int64, bool) {
	var group map[string]any
	if v.setting(k, t).Decode(&group) != nil {
		return 0, false
	}
	n, ok := group[attribute].(json.Number)
	if !ok {
		return 0, false
	}
	i, err := n.Int64()
	return i, err == nil
}

// switched is an attribute of a group that is on or off, known false where it is not told.
func (v *view) switched(k knob.Kind, t knob.Target, attribute string) (on, known bool) {
	var group map[string]any
	if v.setting(k, t).Decode(&group) != nil {
		return false, false
	}
	on, known = group[attribute].(bool)
	return on, known
}

// feature is an offload of a device, and whether it can be changed.
func (v *view) feature(device, name string) (on, fixed, known bool) {
	if on, known = v.switched(knob.Features, knob.Target(device), name); known {
		return on, false, true
	}
	on, known = v.switched(knob.FeaturesFixed, knob.Target(device), name)
	return on, true, known
}

package plan

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/rxsteer/rxsteer/internal/host/knob"
	"github.com/rxsteer/rxsteer/steer/diagnose"
)

// hashLetters are those of ethtool -N, in the order of a knob.RSSHashFields value.
const hashLetters = "mvtsdfnelr"

// hash lets the NIC tell flows apart by their ports (RX203).
func (m *maker) hash(f diagnose.Finding) {
	dev := f.Site.Device
	if !m.in.Policy.allows(knob.RSSHashFields) {
		m.p.reason("%s of %s: the policy does not allow %s", f.ID, dev, knob.RSSHashFields)
		return
	}
	for _, flow := range f.Site.Flows {
		ref := knob.Ref{Knob: knob.RSSHashFields, Target: knob.On(dev, "%s", flow)}
		from := m.in.Snapshot.Get(ref)
		var letters string
		if from.Decode(&letters) != nil {
			m.p.reason("%s is %s (%s): left alone", ref, from, from.Reason())
			continue
		}
		var to strings.Builder
		for _, c := range hashLetters {
			if strings.ContainsRune(letters+"sdfn", c) {
				to.WriteRune(c)
			}
		}
		if m.add(Change{Knob: ref.Knob, Target: ref.Target, From: from, To: knob.Text(to.String()), Findings: []diagnose.ID{f.ID}, Risk: Reorder,
			Why:    f.Summary + ". Fragments have no ports: fragmented datagrams could arrive out of order, and a provider may have left ports out for that reason",
			Expect: "the flows of a host pair arrive on several queues, and nothing is reassembled out of order" + m.evenly(dev)}) {
			m.rehashed[dev] = true
		}
	}
}

// evenly is what an even spread would make of the receive work of a device's busiest queue, "" where that is not known.
func (m *maker) evenly(dev string) string {
	n := m.nic(dev)
	if n == nil {
		return ""
	}
	total, most, busiest := 0.0, 0.0, -1
	on := m.polled(*n)
	for _, q := range slices.Sorted(maps.Keys(on)) {
		l := sum(on[q])
		total += l
		if l > most {
			most, busiest = l, q
		}
	}
	queues, _ := n.QueueCount()
	if total == 0 || queues < 2 {
		return ""
	}
	return fmt.Sprintf("; rx-%d does %s of the receive work of %s now (%s of a CPU), an even share is %s", busiest, percent(most/total), dev, percent(most), percent(1/float64(queues)))
}

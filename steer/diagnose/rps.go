package diagnose

import (
	"fmt"

	"github.com/rxsteer/rxsteer/internal/cpuset"
)

// masks reports RPS masks that hold wrong CPUs and carry load, where no root
// cause was found for the device yet (RX303).
func (v *view) masks(r *Report) {
	looked := 0
	for _, d := range v.traffic() {
		if r.caused(d.Name) || !v.wanted(d.Name) {
			continue
		}
		for _, q := range v.rxQueues(d.Name) {
			m, ok := v.mask(d.Name, q)
			if !ok || m.IsEmpty() {
				continue
			}
			looked++
			if f, ok := v.wrongMask(d.Name, q, m); ok {
				r.Findings = append(r.Findings, f)
				break // one finding per device: plan sets all its queues
			}
		}
	}
	if looked > 0 {
		r.checked("%s: CPUs online, not isolated, on the device's node", count(looked, "RPS mask"))
	}
}

// wrongMask judges one mask by where its work was really done: a CPU of the
// mask that did nothing is no fault.
func (v *view) wrongMask(device string, queue int, m cpuset.Set) (Finding, bool) {
	done := v.backlogTime(m)
	work := func(on cpuset.Set) (t float64) {
		for c := range on.Intersect(m).All() {
			t += done[c]
		}
		return t
	}
	const noticeable = 0.05 // CPUs
	poll := cpuset.Of(v.pollCPUs(device)...)
	var what, remedy string
	sev := Warning
	local, hasNode := v.node(device)
	switch offline, kept := m.Minus(v.online), m.Intersect(v.online).Minus(v.usable); {
	case !kept.IsEmpty() && work(kept) >= noticeable:
		what = fmt.Sprintf("holds cpus %s, which are isolated (isolcpus, nohz_full or a cpuset partition), and %.2f CPUs of receive work ran there", kept, work(kept))
		remedy = "take the isolated CPUs out of the mask"
	case hasNode && !m.Minus(local).IsEmpty() && work(m.Minus(local)) >= noticeable && local.Intersects(v.usable):
		what = fmt.Sprintf("holds cpus %s of another memory node than the device, and %.2f CPUs of receive work ran there", m.Minus(local), work(m.Minus(local)))
		remedy = fmt.Sprintf("keep to the device's node: cpus %s", local.Intersect(v.usable))
	case poll.Len() > 0 && !m.Intersect(v.online).IsEmpty() && m.Intersect(v.online).SubsetOf(v.siblings(poll).Minus(poll)) && work(m) >= 4*noticeable && v.topo != nil:
		what = fmt.Sprintf("holds only SMT siblings (%s) of the polling cpu %s: they share its core", m, poll)
		remedy = "use other physical cores of the same node"
	case !offline.IsEmpty() && m.Intersect(v.online).IsEmpty():
		what = fmt.Sprintf("holds only CPUs that are offline (%s): RPS does nothing", offline)
		remedy = "set it to CPUs that are online"
		sev = Info
	default:
		return Finding{}, false
	}
	return Finding{ID: "RX303", Severity: sev, Subject: device,
		Summary:  fmt.Sprintf("the RPS mask of %s rx-%d (%s) %s", device, queue, m, what),
		Evidence: Evidence{{"queue", queue}, {"rps_cpus", m.String()}, {"usable_cpus", v.usable.String()}, {"poll_cpus", poll.String()}, {"backlog_work_cpus", work(m)}},
		Remedy:   remedy,
		Site:     Site{Device: device, Queues: v.masked(device), CPU: -1, Movable: v.backlogTime(v.union(device)), Demand: 1, PollCPUs: v.pollCPUs(device)}}, true
}

// masked is the receive queues of a device that have an RPS mask.
func (v *view) masked(device string) []int {
	var out []int
	for _, q := range v.rxQueues(device) {
		if m, _ := v.mask(device, q); !m.IsEmpty() {
			out = append(out, q)
		}
	}
	return out
}

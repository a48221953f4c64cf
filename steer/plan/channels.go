package plan

import (
	"fmt"
	"slices"

	"github.com/rxsteer/rxsteer/internal/cpuset"
	"github.com/rxsteer/rxsteer/internal/host/knob"
	"github.com/rxsteer/rxsteer/internal/host/nic"
	"github.com/rxsteer/rxsteer/steer/diagnose"
)

// moreQueues gives a device that has too few queues for its load (RX301) more channels, which spread in hardware
// what RPS would spread in software. It reports whether the plan holds that.
func (m *maker) moreQueues(f diagnose.Finding) bool {
	dev := f.Site.Device
	kind, was, now, most := m.channels(dev, func(now, most int64) bool { return now < most })
	n := m.nic(dev)
	if was == nil || n == nil || n.Kind != nic.Physical || sum(f.Site.Movable) == 0 {
		return false
	}
	c := Change{Knob: knob.Channels, Target: knob.Target(dev), From: knob.Fields(was), Findings: []diagnose.ID{f.ID}, Risk: m.risk(dev, knob.Channels, Pause)}
	candidates, where := m.candidates(dev, f.Site.PollCPUs)
	pl := m.place(candidates, f.Site.Movable, f.Site.Demand)
	to := m.in.Policy.clamp(knob.Channels, kind, min(most, max(now+1, int64(pl.cpus.Len()))))
	if to <= now || pl.now-pl.then < minGain {
		return false
	}
	c.To = knob.Fields(map[string]any{kind: to})
	if why := m.in.Policy.Refuses(c); why != "" {
		m.p.reason("%s has %d of %d %s channels: more of them spread in hardware, better than RPS, but %s", dev, now, most, kind, why)
		return false
	}
	c.Why = fmt.Sprintf("%s; %s has %d of %d %s channels, and %d CPUs that are %s have room", f.Summary, dev, now, most, kind, pl.cpus.Len(), where)
	c.Expect = fmt.Sprintf("%d queues spread in hardware what 1 CPU does now: the hottest is asked for %s of its time now and for about %s then. The link %s", to, percent(pl.now), percent(pl.then),
		map[Risk]string{Flap: "goes down for a second or two", Pause: "may pause"}[c.Risk])
	if !m.add(c) {
		return false
	}
	m.rebuilt[dev] = true
	m.ownTable(f, dev, now, to)
	m.p.reason("%s: when its new queues have carried traffic, plan again: where their vectors are and what their buckets carry is not known before. Where the link must not drop, a policy with \"never: [channels]\" makes RPS of it", dev)
	return true
}

// fewerQueues takes channels from devices that have more of them than there are CPUs to handle them (RX107, RX104 where
// vectors ran out): of two vectors on one CPU the second only adds interrupts. It reports whether the plan holds that.
func (m *maker) fewerQueues(f diagnose.Finding) bool {
	done := false
	for _, n := range m.in.NICs {
		if n.Kind != nic.Physical || n.Name != f.Site.Device && (f.Site.Device != "" || !m.in.Policy.device(n.Name)) {
			continue
		}
		cpus, where := m.placeable(n.Name)
		kind, was, now, _ := m.channels(n.Name, func(now, _ int64) bool { return now > int64(cpus.Len()) })
		limit := m.in.Policy.clamp(knob.Channels, kind, int64(cpus.Len()))
		if was == nil || limit < 1 || limit >= now {
			continue
		}
		c := Change{Knob: knob.Channels, Target: knob.Target(n.Name), From: knob.Fields(was), To: knob.Fields(map[string]any{kind: limit}), Findings: []diagnose.ID{f.ID}, Risk: m.risk(n.Name, knob.Channels, Pause),
			Why:    fmt.Sprintf("%s; %s has %d %s channels for %d CPUs that are %s (%s)", f.Summary, n.Name, now, kind, cpus.Len(), where, cpus),
			Expect: fmt.Sprintf("one queue for each of those CPUs: %d vectors are given back", now-limit)}
		if owned := m.owned(n).Union(sockets(n)); !owned.IsEmpty() && owned.Last() >= int(limit) {
			m.p.reason("%s of %s: %d channels would be enough, but rx-%s belong to rules, RSS contexts or AF_XDP sockets, without which the driver refuses fewer", f.ID, n.Name, limit, owned)
			continue
		}
		if why := m.in.Policy.Refuses(c); why != "" {
			m.p.reason("%s of %s: %d channels would be enough, but %s", f.ID, n.Name, limit, why)
			continue
		}
		if !m.add(c) {
			continue
		}
		done, m.rebuilt[n.Name] = true, true
		m.ownTable(f, n.Name, now, limit)
		m.p.reason("%s: plan again after it: which CPUs the kernel gives the vectors that stay is not known before. Where the link must not drop, a policy with \"never: [channels]\" leaves it", n.Name)
	}
	return done
}

// sockets is the queues that AF_XDP sockets own.
func sockets(n nic.NIC) (out cpuset.Set) {
	for _, q := range n.Queues {
		if q.XSK && q.RX >= 0 {
			out = out.Union(cpuset.Of(q.RX))
		}
	}
	return out
}

// channels is the count of a device's receive channels as its driver names them, and the highest; was is nil where none of
// them is known and fits.
func (m *maker) channels(dev string, fits func(now, most int64) bool) (kind string, was map[string]any, now, most int64) {
	t := knob.Target(dev)
	for _, kind = range []string{"combined", "rx"} {
		if was = m.group(knob.Channels, t, kind); was == nil {
			continue
		}
		now, _ = integer(was[kind])
		most, _ = integer(m.group(knob.ChannelsMax, t, kind)[kind])
		if now > 0 && fits(now, most) {
			return kind, was, now, most
		}
	}
	return "", nil, 0, 0
}

// ownTable gives a table that somebody set back to the driver where the number of its queues changes: it names only those
// of before, and forbids fewer.
func (m *maker) ownTable(f diagnose.Finding, dev string, now, to int64) {
	t := knob.Target(dev)
	var table []int
	from := m.in.Snapshot.Get(knob.Ref{Knob: knob.RSSTable, Target: t})
	if from.Decode(&table) == nil && slices.ContainsFunc(table, func(q int) bool { return q != 0 }) && !inTurn(table, int(now)) {
		m.add(Change{Knob: knob.RSSTable, Target: t, From: from, To: knob.DefaultTable(), Findings: []diagnose.ID{f.ID}, Risk: Reorder,
			Why: "somebody's table names only the queues of before; the driver's own spreads over those that will be there", Expect: fmt.Sprintf("each of %d queues gets its share", to)})
	}
}

// inTurn reports whether a table names its queues in turn, as the kernel does by itself (ethtool_rxfh_indir_default).
func inTurn(table []int, queues int) bool {
	for b, q := range table {
		if q != b%queues {
			return false
		}
	}
	return true
}

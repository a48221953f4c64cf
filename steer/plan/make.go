package plan

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/rxsteer/rxsteer/collector"
	"github.com/rxsteer/rxsteer/internal/cpuset"
	"github.com/rxsteer/rxsteer/internal/host/knob"
	"github.com/rxsteer/rxsteer/internal/host/nic"
	"github.com/rxsteer/rxsteer/internal/host/topo"
	"github.com/rxsteer/rxsteer/steer/diagnose"
)

// Input is what a plan is made from.
type Input struct {
	Report   *diagnose.Report
	Snapshot *knob.Snapshot
	Topology *topo.Topology
	NICs     []nic.NIC
	// Sample is what Report was made from; nil: nothing is known of single queues, buckets and flows.
	Sample *collector.Sample
	Goal   Goal
	Policy Policy
	// Typed says that the plan is to be typed by a person: a table that ethtool has no words for is no answer.
	Typed bool
}

const (
	// minGain is the least fall of the hottest CPU, in parts of its time, for which
	// a change is worth its risk.
	minGain = 0.1
	// fewer is how much better more CPUs must make the hottest one to be used:
	// each one more costs interrupts and cache misses.
	fewer = 0.02
	// full is the predicted load above which a CPU is no target.
	full = 0.9
	// sends is the packets/s a device must transmit for its transmit queues to matter.
	sends = 10000
)

// headroom is the load of the hottest CPU with which a goal is content:
// fewer CPUs for the same work cost less (Documentation/networking/scaling.rst, "the
// smallest number of receive queues where no receive queue overflows").
var headroom = map[Goal]float64{Throughput: 0.7, Balanced: 0.5, Latency: 0}

// Make chooses the changes. An empty plan says why there is nothing to do.
func Make(in Input) *Plan {
	p := &Plan{Version: Version, Goal: in.Goal, Changes: []Change{}}
	if in.Snapshot == nil {
		in.Snapshot = &knob.Snapshot{}
	}
	if in.Topology == nil {
		in.Topology = flat(in.Report.Loads)
		p.reason("the CPU topology is not known: siblings, nodes and isolated CPUs were not avoided")
	}
	m := maker{in: in, p: p, background: map[int]float64{}, rehashed: map[string]bool{}, rebuilt: map[string]bool{}}
	chosen := ""
	if p.Goal == "" || p.Goal == Auto {
		p.Goal, chosen = m.workload()
	}
	for _, l := range in.Report.Loads {
		m.background[l.CPU] = 1 - l.Idle
	}
	work := slices.Clone(in.Report.Findings)
	slices.SortStableFunc(work, func(a, b diagnose.Finding) int {
		return -cmp.Compare(sum(a.Site.Movable), sum(b.Site.Movable))
	})
	var tables []diagnose.Finding
	for _, f := range work {
		if m.mine(f) && !m.serve(f) {
			tables = append(tables, f)
		}
	}
	m.tables(tables)
	m.members()
	m.standing()
	slices.SortStableFunc(p.Changes, order)
	for _, o := range in.Snapshot.Owners {
		if i := slices.IndexFunc(p.Changes, func(c Change) bool {
			return slices.Contains(o.Knobs, c.Knob) && (o.Device == "" || o.Device == c.Target.Device())
		}); i >= 0 {
			p.reason("%s also writes %s (%s): it may take it back", o.Name, p.Changes[i].Knob, cmp.Or(o.Detail, "seen running"))
			for _, s := range o.Settle {
				p.reason("to settle it: %s", s)
			}
		}
	}
	switch {
	case len(p.Changes) == 0 && len(p.Reasons) == 0:
		p.reason("nothing to do: no finding asks for a change")
	case chosen != "" && (len(p.Changes) > 0 || p.Goal != Balanced):
		p.reason("goal auto: %s, for %s", p.Goal, chosen)
	}
	p.Identity = identity(in.Snapshot, p.Changes)
	return p
}

// flat is the topology of a host that tells none: the CPUs measured, each its own core.
func flat(loads []diagnose.Load) *topo.Topology {
	t := &topo.Topology{}
	for _, l := range loads {
		t.CPUs = append(t.CPUs, topo.CPU{ID: l.CPU, Core: l.CPU, Node: topo.None, LLC: topo.None, Online: true})
		t.Online = t.Online.Union(cpuset.Of(l.CPU))
	}
	return t
}

func (p *Plan) reason(format string, args ...any) {
	if s := fmt.Sprintf(format, args...); !slices.Contains(p.Reasons, s) {
		p.Reasons = append(p.Reasons, s)
	}
}

// order is the safe order of writes: device by device, so that of two members of a bond one is whole before the
// other is touched; of a device what rebuilds queues first, what hangs on queues later; what is of the host last.
func order(a, b Change) int {
	x, y := a.Target.Device(), b.Target.Device()
	switch {
	case x != y && x == "":
		return 1
	case x != y && y == "":
		return -1
	}
	return cmp.Or(cmp.Compare(x, y), cmp.Compare(rank(a), rank(b)))
}

func rank(c Change) int {
	if c.Knob == knob.RSSTable && c.To.Equal(knob.DefaultTable()) {
		return -1 // somebody's table blocks fewer channels, and outlives more (ethtool_check_max_channel in net/ethtool/common.c)
	}
	order := []knob.Kind{knob.Channels, knob.Rings, knob.Features, knob.RSSHashFields, knob.RSSKey, knob.RSSTable, knob.NtupleRule,
		knob.Coalesce, knob.QueueCoal, knob.IRQAffinity, knob.XPSCPUs, knob.RPSCPUs, knob.RPSFlowCnt, knob.Threaded, knob.DeferHardIRQs, knob.GROFlushTimeout}
	if i := slices.Index(order, c.Knob); i >= 0 {
		return i
	}
	return len(order)
}

func identity(s *knob.Snapshot, changes []Change) Identity {
	id := Identity{BootID: s.Host.BootID, Netns: s.Host.Netns, Kernel: s.Host.Kernel, Devices: []Device{}}
	for _, d := range s.Devices {
		if slices.ContainsFunc(changes, func(c Change) bool { return c.Target.Device() == d.Name }) {
			id.Devices = append(id.Devices, Of(d))
		}
	}
	return id
}

// Of is the identity of a device as a snapshot knows it.
func Of(d knob.Device) Device {
	return Device{Name: d.Name, IfIndex: d.IfIndex, Bus: d.Bus, Driver: d.Driver, RXQueues: d.RXQueues, TXQueues: d.TXQueues, Table: d.Table}
}

type maker struct {
	in         Input
	p          *Plan
	background map[int]float64 // busy part of each CPU, as planned so far
	rebuilt    map[string]bool // devices whose queues the plan rebuilds: what is set on them is void
	rehashed   map[string]bool // devices whose hash the plan changes: what their buckets carried is void
}

// mine reports whether the device of a finding is to be steered.
func (m *maker) mine(f diagnose.Finding) bool {
	dev := f.Site.Device
	n := m.nic(dev)
	switch {
	case n != nil && n.Kind != nic.Physical && !slices.Contains(m.in.Report.Named, dev):
		m.p.reason("%s of %s: it is a virtual device; name it (rxsteer plan %s) to have it steered", f.ID, dev, dev)
		return false
	case dev != "" && !m.in.Policy.device(dev):
		m.p.reason("%s of %s: the policy does not allow %s to be set", f.ID, f.Subject, dev)
		return false
	}
	return true
}

// serve does for a finding what can be done; false: its table is to be fitted when all else is placed.
func (m *maker) serve(f diagnose.Finding) bool {
	switch f.ID {
	case "RX301":
		if !m.moreQueues(f) {
			m.rps(f)
		}
	case "RX303", "RX204", "RX206", "RX701":
		m.rps(f)
	case "RX302":
		m.rpsOff(f)
	case "RX102":
		if m.fitted(f.Site.Device) {
			return false // vectors and table together
		}
		m.vectors(f)
	case "RX103":
		if len(f.Site.Queues) == 0 {
			m.advise(f)
			break
		}
		m.vectors(f)
	case "RX104":
		if !slices.Contains(f.Site.Knobs, knob.Channels) || !m.fewerQueues(f) {
			m.advise(f)
		}
	case "RX107":
		if !m.fewerQueues(f) {
			m.vectors(f)
		}
	case "RX201", "RX202", "RX205":
		return false
	case "RX203":
		m.hash(f)
	case "RX304":
		m.flowTables(f)
	case "RX305":
		m.crossed(f)
	case "RX401":
		m.budget(f)
	case "RX402":
		m.ring(f)
	case "RX403":
		m.backlog(f)
	case "RX501":
		m.sooner(f)
	case "RX502":
		m.merge(f)
	case "RX503":
		m.steady(f)
	case "RX505":
		m.unthread(f)
	case "RX601", "RX604":
		m.features(f)
	case "RX702":
		if len(f.Site.Flows) > 0 {
			m.hash(f)
		}
		m.alike(f)
	case "RX207", "RX208", "RX901": // nothing to do, or said by those they stand beside
	default:
		m.advise(f)
	}
	return true
}

// fitted reports whether the table of a device is to be fitted.
func (m *maker) fitted(dev string) bool {
	return slices.ContainsFunc(m.in.Report.Findings, func(f diagnose.Finding) bool {
		return f.Site.Device == dev && (f.ID == "RX201" || f.ID == "RX202" || f.ID == "RX205")
	})
}

// advise passes on what a person may do and no plan does.
func (m *maker) advise(f diagnose.Finding) { m.p.reason("%s of %s: %s", f.ID, f.Subject, f.Remedy) }

func sum(by map[int]float64) (t float64) {
	for _, c := range slices.Sorted(maps.Keys(by)) {
		t += by[c]
	}
	return t
}

// add puts a change into the plan unless it holds one of that setting already or the policy forbids it; it
// reports whether it did.
func (m *maker) add(c Change) bool {
	ref := c.Ref()
	if slices.ContainsFunc(m.p.Changes, func(o Change) bool { return o.Ref() == ref }) {
		return false // another finding's
	}
	if why := m.in.Policy.Refuses(c); why != "" {
		m.p.reason("%s of %s: %s", words(c.Findings), c.Target, why)
		return false
	}
	if d := c.Target.Device(); m.rebuilt[d] && c.Target.Part() != "" {
		m.p.reason("%s of %s: its queues are rebuilt by this plan; plan again after it", words(c.Findings), c.Target)
		return false
	}
	c.Command, c.Undo = knob.Command(ref, c.To), knob.Command(ref, c.From)
	driver := ""
	if n := m.nic(c.Target.Device()); n != nil {
		driver = n.Driver
	}
	c.Support = nic.Support(driver, c.Knob)
	m.p.Changes = append(m.p.Changes, c)
	return true
}

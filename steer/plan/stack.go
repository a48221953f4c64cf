package plan

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/rxsteer/rxsteer/internal/host/knob"
	"github.com/rxsteer/rxsteer/internal/host/nic"
	"github.com/rxsteer/rxsteer/steer/diagnose"
)

// members gives the other members of a bond what one of them gets: the same setting where it is the same now.
// Links of one bond serve the same flows, and which of them carries them changes.
func (m *maker) members() {
	alike := map[knob.Kind]bool{knob.RSSHashFields: true, knob.Coalesce: true, knob.Rings: true, knob.Features: true, knob.Channels: true}
	for _, c := range slices.Clone(m.p.Changes) {
		n := m.nic(c.Target.Device())
		if !alike[c.Knob] || n == nil || n.Master == "" {
			continue
		}
		if master := m.nic(n.Master); master == nil || master.Driver != "bonding" && master.Driver != "team" {
			continue
		}
		for _, o := range m.in.NICs {
			if o.Master != n.Master || o.Name == n.Name || o.Kind != nic.Physical || o.Driver != n.Driver || !m.in.Policy.device(o.Name) {
				continue
			}
			t := knob.Target(o.Name)
			if p := c.Target.Part(); p != "" {
				t = knob.On(o.Name, "%s", p)
			}
			if !knob.Holds(m.in.Snapshot.Get(knob.Ref{Knob: c.Knob, Target: t}), c.From) {
				continue // set otherwise by somebody: RX702 tells
			}
			m.add(Change{Knob: c.Knob, Target: t, From: c.From, To: c.To, Findings: c.Findings, Risk: c.Risk,
				Why: fmt.Sprintf("as for %s: both are members of %s, which may put the same flows on either", n.Name, n.Master), Expect: c.Expect})
		}
	}
}

// alike gives a member of a bond what most others of its driver have, where they differ in more than the hash (RX702). Of
// two that differ neither is known to be the right one.
func (m *maker) alike(f diagnose.Finding) {
	var members []nic.NIC
	odd := m.nic(f.Site.Device)
	for _, n := range m.in.NICs {
		if odd != nil && n.Master == f.Subject && n.Kind == nic.Physical && n.Driver == odd.Driver {
			members = append(members, n)
		}
	}
	if len(members) < 2 || len(f.Site.Knobs) == 0 {
		m.advise(f)
		return
	}
	chosen := map[knob.Kind]bool{}
	for _, k := range f.Site.Knobs {
		r, ok := rules[k]
		if chosen[k] || !ok || k == knob.RSSHashFields {
			continue // the hash has a lever of its own
		}
		chosen[k] = true
		if m.most(f, k, r, members) {
			continue
		}
		var ways []string
		for i, n := range members {
			from := m.in.Snapshot.Get(knob.Ref{Knob: k, Target: knob.Target(n.Name)})
			o := members[(i+1)%len(members)]
			if v, ok := m.partOf(k, r, n, o); ok && !from.Equal(m.in.Snapshot.Get(knob.Ref{Knob: k, Target: knob.Target(o.Name)})) {
				ways = append(ways, knob.Command(knob.Ref{Knob: k, Target: knob.Target(o.Name)}, v))
			}
		}
		if len(ways) > 0 {
			m.p.reason("RX702 of %s: %s differs, and which member is set as it was meant to be nothing tells: %s", f.Subject, k, strings.Join(ways, ", or "))
		}
	}
}

// partOf is what of a member's setting another lacks, in the shape a plan may hold.
func (m *maker) partOf(k knob.Kind, r rule, of, lacks nic.NIC) (knob.Value, bool) {
	a, b := m.in.Snapshot.Get(knob.Ref{Knob: k, Target: knob.Target(of.Name)}), m.in.Snapshot.Get(knob.Ref{Knob: k, Target: knob.Target(lacks.Name)})
	var x, y map[string]any
	if a.Decode(&x) != nil || b.Decode(&y) != nil {
		return a, a.Known() && b.Known() && r.number()
	}
	out := map[string]any{}
	for name, v := range x {
		if _, may := r.fields[name]; (may || r.flags) && y[name] != nil && fmt.Sprint(v) != fmt.Sprint(y[name]) {
			out[name] = v
		}
	}
	return knob.Fields(out), len(out) > 0
}

// most sets the members whose value of a setting is not that of most of them. It reports whether there is such a one.
func (m *maker) most(f diagnose.Finding, k knob.Kind, r rule, members []nic.NIC) bool {
	if len(members) < 3 {
		return false
	}
	count, first := map[string]int{}, map[string]nic.NIC{}
	for _, n := range members {
		v := m.in.Snapshot.Get(knob.Ref{Knob: k, Target: knob.Target(n.Name)})
		if !v.Known() {
			return false
		}
		if count[v.JSON()]++; count[v.JSON()] == 1 {
			first[v.JSON()] = n
		}
	}
	best := slices.MaxFunc(slices.Sorted(maps.Keys(count)), func(a, b string) int { return cmp.Compare(count[a], count[b]) })
	if 2*count[best] <= len(members) {
		return false
	}
	for _, n := range members {
		ref := knob.Ref{Knob: k, Target: knob.Target(n.Name)}
		to, ok := m.partOf(k, r, first[best], n)
		from, known := m.partOf(k, r, n, first[best])
		if !ok || !known || from.Equal(to) {
			continue
		}
		risk := NoRisk
		if k == knob.Channels || k == knob.Rings || k == knob.Features {
			risk = m.risk(n.Name, k, Pause)
		}
		m.add(Change{Knob: k, Target: ref.Target, From: from, To: to, Findings: []diagnose.ID{f.ID}, Risk: risk,
			Why:    fmt.Sprintf("%d of %d members of %s have %s; %s is the one that was left out, and the bond may put the same flows on any", count[best], len(members), f.Subject, to, n.Name),
			Expect: fmt.Sprintf("flows fare alike on every member of %s", f.Subject)})
	}
	return true
}

// standing says of what was named, and of VF pairs, on which device the packets arrive: there the plan sets what
// spreads, moves and moderates them.
func (m *maker) standing() {
	for _, n := range m.in.NICs {
		var below []string
		for _, d := range nic.Under(m.in.NICs, []string{n.Name}) {
			if d != n.Name {
				below = append(below, d)
			}
		}
		named := slices.Contains(m.in.Report.Named, n.Name)
		touched := slices.ContainsFunc(m.p.Changes, func(c Change) bool { return slices.Contains(below, c.Target.Device()) })
		switch {
		case len(n.Lower) == 0:
		case n.Kind == nic.Physical && (named || touched):
			m.p.reason("%s and its virtual function %s are one: packets arrive on %s while it is up, so that is what is set; when the function goes (a migration of the guest), so does what was set on it", n.Name, strings.Join(below, ", "), strings.Join(below, ", "))
		case n.Kind == nic.Stack && named && len(below) > 0:
			m.p.reason("%s stands on %s: its packets arrive there, and there they are spread and moved; RPS or XPS on %s itself would be a second stage, no substitute", n.Name, strings.Join(below, ", "), n.Name)
		case n.Kind == nic.Stack && named:
			m.p.reason("%s stands on %s, virtual: name what is to be steered", n.Name, strings.Join(n.Lower, ", "))
		}
	}
}

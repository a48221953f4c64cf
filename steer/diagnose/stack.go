package diagnose

import (
	"fmt"
	"slices"
	"strings"

	"github.com/rxsteer/rxsteer/internal/host/knob"
	"github.com/rxsteer/rxsteer/internal/host/nic"
)

// memberKnobs are the settings that members of one stack should share, in the order of their weight, and the
// part of the device they belong to ("" the device).
var memberKnobs = []struct {
	knob knob.Kind
	part string
}{
	{knob.RSSHashFields, "udp4"}, {knob.RSSHashFields, "udp6"}, {knob.RSSHashFields, "tcp4"}, {knob.RSSHashFields, "tcp6"},
	{knob.Channels, ""}, {knob.Rings, ""}, {knob.Coalesce, ""}, {knob.Features, ""}, {knob.Threaded, ""},
}

// halfTuned reports RX702: members of a bond, team or bridge of the same driver whose settings differ. What
// follows from a setting that one member lacks is explained by it.
func (v *view) halfTuned(r *Report) {
	for _, s := range v.inventory() {
		if s.Kind != nic.Stack || len(s.Lower) < 2 || !v.wantedStack(s) {
			continue
		}
		if m := v.union(s.Name); !m.IsEmpty() {
			r.checked("RPS is set on %s itself (cpus %s): a second stage of steering, after that of its members %s, where packets are received", s.Name, m, strings.Join(s.Lower, ", "))
		}
		byDriver := map[string][]nic.NIC{}
		for _, name := range s.Lower {
			if n, ok := v.nics[name]; ok && n.Kind == nic.Physical && n.Up && n.Driver != "" {
				byDriver[n.Driver] = append(byDriver[n.Driver], n)
			}
		}
		for _, n := range v.inventory() { // drivers in a fixed order
			if m := byDriver[n.Driver]; len(m) > 1 {
				v.compareMembers(r, s, m)
				delete(byDriver, n.Driver)
			}
		}
	}
}

// wantedStack reports whether the report is about a stack or one of its members, and it carries enough.
func (v *view) wantedStack(s nic.NIC) bool {
	if v.received(s.Name) > 0 && v.received(s.Name) < minPackets {
		return false
	}
	return v.wanted(s.Name) || slices.ContainsFunc(s.Lower, v.wanted)
}

// compareMembers compares members of one driver.
func (v *view) compareMembers(r *Report, stack nic.NIC, members []nic.NIC) {
	first := members[0].Name
	var differ []string
	var other string
	f := Finding{ID: "RX702", Severity: Info, Subject: stack.Name, Site: Site{CPU: -1}, Evidence: Evidence{{"members", strings.Join(names(members), " ")}}}
	note := func(what, device string, a, b string) {
		if other == "" || other == device {
			other = device
			differ = append(differ, fmt.Sprintf("%s: %s has %s, %s has %s", what, first, a, device, b))
			f.Evidence = append(f.Evidence, Fact{strings.ReplaceAll(what, " ", "_"), fmt.Sprintf("%s %s / %s %s", first, a, device, b)})
		}
	}
	for _, m := range members[1:] {
		for _, k := range memberKnobs {
			on := func(d string) knob.Target {
				if k.part == "" {
					return knob.Target(d)
				}
				return knob.On(d, "%s", k.part)
			}
			a, b := v.setting(k.knob, on(first)), v.setting(k.knob, on(m.Name))
			if !a.Known() || !b.Known() || a.Equal(b) {
				continue
			}
			what := string(k.knob)
			if k.part != "" {
				what += " " + k.part
			}
			x, y := differing(a, b)
			if x == y {
				continue // only what moderation moves by itself
			}
			note(what, m.Name, x, y)
			f.Site.Device, f.Site.Knobs = m.Name, append(f.Site.Knobs, k.knob)
			if k.knob == knob.RSSHashFields {
				// The member without ports is the one forgotten.
				f.Site.Device, f.Site.Flows = m.Name, append(f.Site.Flows, k.part)
				if strings.ContainsAny(b.String(), "fn") {
					f.Site.Device = first
				}
			}
		}
		if a, b := v.union(first), v.union(m.Name); a.IsEmpty() != b.IsEmpty() && v.masksKnown(first) && v.masksKnown(m.Name) {
			note("rps-cpus", m.Name, offOr(a.String()), offOr(b.String()))
		}
		if a, b := len(v.tableShares(first)), len(v.tableShares(m.Name)); len(v.table(first)) > 0 && len(v.table(m.Name)) > 0 && a != b {
			note("table queues", m.Name, fmt.Sprint(a), fmt.Sprint(b))
		}
	}
	if len(differ) == 0 {
		r.checked("%s: its members %s are set alike", stack.Name, strings.Join(names(members), ", "))
		return
	}
	f.Summary = fmt.Sprintf("only a part of %s is tuned: %s", stack.Name, strings.Join(differ, "; "))
	f.Remedy = "the same settings on each member, one member at a time, the next one only after carrier and LACP are back; their queues on CPUs that do not collide"
	// What one member suffers for want of the other's setting is no finding of its own.
	r.absorb(&f, func(x Finding) bool {
		return x.ID == "RX203" && x.Site.Device == f.Site.Device && len(f.Site.Flows) > 0
	})
	r.Findings = append(r.Findings, f)
}

func names(members []nic.NIC) []string {
	var out []string
	for _, m := range members {
		out = append(out, m.Name)
	}
	return out
}

func offOr(s string) string {
	if s == "" {
		return "off"
	}
	return s
}

// masksKnown reports whether the RPS masks of a device were read.
func (v *view) masksKnown(device string) bool {
	for _, q := range v.rxQueues(device) {
		if v.rpsValue(device, q).Known() {
			return true
		}
	}
	return false
}

// differing is what two values differ in: of groups the attributes, without those that adaptive moderation
// moves while it is on.
func differing(a, b knob.Value) (x, y string) {
	var m, n map[string]any
	if a.Decode(&m) != nil || b.Decode(&n) != nil {
		return offOr(a.String()), offOr(b.String())
	}
	adaptive := m["adaptive-rx"] == true && n["adaptive-rx"] == true
	var p, q []string
	for _, k := range sortedNames(m, n) {
		if fmt.Sprint(m[k]) == fmt.Sprint(n[k]) || adaptive && strings.HasPrefix(k, "rx-") {
			continue
		}
		p, q = append(p, fmt.Sprintf("%s %v", k, m[k])), append(q, fmt.Sprintf("%s %v", k, n[k]))
	}
	return strings.Join(p, " "), strings.Join(q, " ")
}

func sortedNames(m, n map[string]any) []string {
	var out []string
	for k := range m {
		out = append(out, k)
	}
	for k := range n {
		if _, ok := m[k]; !ok {
			out = append(out, k)
		}
	}
	slices.Sort(out)
	return out
}

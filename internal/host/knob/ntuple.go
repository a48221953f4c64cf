package knob

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/rxsteer/rxsteer/internal/ethtool"
)

// Ntuple rules (ethtool -n, -N), one setting per location: a group of flow, queue
// (−1 drops), context and vf where set, and what is matched by ethtool(8)'s names.
// Absent is no rule there. A rule is replaced by deleting it first: not every driver
// overwrites.
var rulesFamily = family{read: readRule, write: writeRule, command: commandRule, meaning: meaningRule}

// noRule is the value of a location without one.
var noRule = Absent("no rule there")

func readRule(m *Machine, r Ref) Value {
	loc, ok := part(r.Target, "rule-")
	switch {
	case !ok:
		return noSuch(r)
	case m.c.Ethtool == nil:
		return Unknown(m.c.EthtoolReason)
	}
	all, err := m.c.Ethtool.Rules(r.Target.Device())
	if err != nil {
		return m.unread(r.Target.Device(), err)
	}
	for _, x := range all {
		if x.Location == uint32(loc) {
			return ruleValue(x)
		}
	}
	return noRule
}

func (m *Machine) listRules(dev string) []Setting {
	all, err := m.c.Ethtool.Rules(dev)
	if err != nil {
		return nil
	}
	var out []Setting
	for _, x := range all {
		out = append(out, settings(On(dev, "rule-%d", x.Location), NtupleRule, ruleValue(x))...)
	}
	return out
}

func ruleValue(x ethtool.Rule) Value {
	f := map[string]any{"flow": x.Flow, "queue": x.Queue}
	for k, v := range x.Match {
		f[k] = v
	}
	if x.Context != 0 {
		f["context"] = x.Context
	}
	if x.VF != 0 {
		f["vf"] = x.VF
	}
	return Fields(f)
}

func ruleOf(r Ref, v Value) (ethtool.Rule, error) {
	loc, ok := part(r.Target, "rule-")
	f, ok2 := v.fields()
	if !ok || !ok2 {
		return ethtool.Rule{}, fmt.Errorf("%s is no rule", v)
	}
	x := ethtool.Rule{Location: uint32(loc), Match: map[string]string{}}
	for k, v := range f {
		s := fmt.Sprint(v)
		var err error
		switch k {
		case "flow":
			x.Flow = s
		case "queue":
			x.Queue, err = strconv.Atoi(s)
		case "context":
			x.Context, err = u32(s)
		case "vf":
			x.VF, err = u32(s)
		default:
			x.Match[k] = s
		}
		if err != nil {
			return ethtool.Rule{}, fmt.Errorf("%s of the rule: %w", k, err)
		}
	}
	return x, nil
}

func u32(s string) (uint32, error) {
	n, err := strconv.ParseUint(s, 10, 32)
	return uint32(n), err
}

func writeRule(m *Machine, r Ref, now, to Value) error {
	loc, _ := part(r.Target, "rule-")
	dev := r.Target.Device()
	if to.IsAbsent() {
		return m.c.Ethtool.DeleteRule(dev, uint32(loc))
	}
	x, err := ruleOf(r, to)
	if err != nil {
		return err
	}
	if now.Known() {
		if err := m.c.Ethtool.DeleteRule(dev, uint32(loc)); err != nil {
			return err
		}
	}
	err = m.c.Ethtool.InsertRule(dev, x)
	if err != nil && now.Known() {
		if old, e := ruleOf(r, now); e == nil {
			if e = m.c.Ethtool.InsertRule(dev, old); e != nil {
				return fmt.Errorf("%w; and the rule before could not be put back: %v", err, e)
			}
		}
	}
	return err
}

func commandRule(r Ref, v Value) string {
	loc, ok := part(r.Target, "rule-")
	if !ok {
		return ""
	}
	dev := r.Target.Device()
	if v.IsAbsent() {
		return fmt.Sprintf("ethtool -N %s delete %d", dev, loc)
	}
	x, err := ruleOf(r, v)
	if err != nil {
		return ""
	}
	var b strings.Builder
	fmt.Fprintf(&b, "ethtool -N %s flow-type %s", dev, quote(x.Flow))
	for _, k := range slices.Sorted(maps.Keys(x.Match)) {
		val, mask, masked := strings.Cut(x.Match[k], "/")
		fmt.Fprintf(&b, " %s %s", quote(k), quote(val))
		if masked {
			// ethtool's m is the complement: set bits are ignored.
			fmt.Fprintf(&b, " m %s", quote(ethtool.InvertMask(k, mask)))
		}
	}
	switch {
	case x.Context != 0:
		fmt.Fprintf(&b, " context %d", x.Context)
	case x.VF != 0:
		fmt.Fprintf(&b, " vf %d queue %d", x.VF-1, x.Queue)
	default:
		fmt.Fprintf(&b, " action %d", x.Queue)
	}
	fmt.Fprintf(&b, " loc %d", loc)
	return b.String()
}

func meaningRule(_ Ref, no syscall.Errno) string {
	switch no {
	case syscall.ENOSPC:
		return "the device's rule table is full, or has no such location"
	case syscall.EINVAL:
		return "the device cannot match these fields, or the queue does not exist"
	case syscall.EEXIST:
		return "the device has this rule at another location"
	case syscall.EOPNOTSUPP:
		return "the driver takes no ntuple rules, or they are off (ethtool -K … ntuple on)"
	case syscall.ENOENT:
		return "no rule at that location any more"
	}
	return ""
}

package knob

import (
	"strings"
	"syscall"
)

// family is a tight group of settings that are read, written and explained
// by the same code; each has a file of its own.
type family struct {
	read func(m *Machine, r Ref) Value
	// write sets r to to; now is its value a moment ago. nil: only facts.
	write func(m *Machine, r Ref, now, to Value) error
	// command is what a person would type to set r to v.
	command func(r Ref, v Value) string
	// meaning explains an errno of write, "" when the general meaning fits. May be nil.
	meaning func(r Ref, no syscall.Errno) string
}

func familyOf(k Kind) (family, bool) {
	switch k {
	case Channels, ChannelsMax:
		return channelsFamily, true
	case Rings, RingsMax:
		return ringsFamily, true
	case Coalesce, QueueCoal:
		return coalesceFamily, true
	case RSSTable, RSSKey, RSSFunction, RSSXfrm:
		return rssFamily, true
	case RSSHashFields:
		return hashFieldsFamily, true
	case NtupleRule:
		return rulesFamily, true
	case Features, FeaturesFixed, FeaturesWanted:
		return featuresFamily, true
	case Pause:
		return pauseFamily, true
	case PrivateFlags:
		return flagsFamily, true
	case FEC:
		return fecFamily, true
	case LinkState:
		return linkFamily, true
	case MTU:
		return mtuFamily, true
	case IRQAffinity, IRQEffective, IRQHint, IRQManaged:
		return irqFamily, true
	case RPSCPUs, RPSFlowCnt:
		return rpsFamily, true
	case XPSCPUs, XPSRXQs:
		return xpsFamily, true
	case Threaded, DeferHardIRQs, GROFlushTimeout, IRQSuspendTimeout:
		return napiFamily, true
	}
	if _, ok := sysctls[k]; ok {
		return sysctlFamily, true
	}
	return family{}, false
}

// Writable reports whether a kind is a knob; the others are facts.
func Writable(k Kind) bool {
	switch k {
	case ChannelsMax, RingsMax, LinkState, RSSXfrm, FeaturesFixed, FeaturesWanted, IRQEffective, IRQHint, IRQManaged:
		return false
	}
	_, ok := familyOf(k)
	return ok
}

// RiskOf is what a write of a kind may do to traffic on the worst driver; quirks of
// a driver may make it worse or better (internal/host/nic).
func RiskOf(k Kind) Risk {
	switch k {
	case Channels, Rings, MTU, Pause, FEC, PrivateFlags:
		return RiskFlap
	case Features:
		return RiskPause
	case RSSTable, RSSKey, RSSFunction, RSSHashFields, NtupleRule, RPSCPUs, RPSFlowCnt, RPSSockFlowEntries, XPSCPUs, XPSRXQs:
		return RiskReorder
	}
	return RiskNone
}

// Command is what a person would type to set r to v ("ethtool -L eth0
// combined 4"), "" for facts and values that are not known. For a group it sets
// the attributes that v names: pass Delta(now, to) for the shortest.
func Command(r Ref, v Value) string {
	f, ok := familyOf(r.Knob)
	if !ok || f.command == nil || !Writable(r.Knob) || v.state == unknown || v.state == absent && !Creatable(r) {
		return ""
	}
	return f.command(r, v)
}

// Creatable reports whether the target of a setting comes and goes with it: an ntuple rule and the table of
// an RSS context. Writing a value to the absent one creates it, writing the absent value deletes it.
func Creatable(r Ref) bool {
	c, ok := rssContext(r.Target)
	return r.Knob == NtupleRule || r.Knob == RSSTable && ok && c != 0
}

// validDevice reports whether the kernel takes the name (dev_valid_name in
// net/core/dev.c: shorter than IFNAMSIZ, no slash, colon or blank).
func validDevice(s string) bool {
	return s != "" && len(s) < 16 && s != "." && s != ".." && !strings.ContainsAny(s, "/: \t\n\v\f\r")
}

// quote makes a word safe for a shell.
func quote(s string) string {
	if s != "" && strings.Trim(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.,:/@%+=") == "" {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}

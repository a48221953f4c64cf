package plan

import (
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/rxsteer/rxsteer/internal/cpuset"
	"github.com/rxsteer/rxsteer/internal/host/knob"
)

// rule is what a plan may say about one kind of setting: where it belongs and the one shape its value has.
type rule struct {
	part    string           // what the target names after the device: "rx-", "irq-"; "" is the host, or the device with device
	device  bool             // the whole device, beside part where there is one
	set     bool             // value is a CPU set
	empty   bool             // the set may be empty ("off")
	list    bool             // value is a list of rx queues
	letters string           // value is some of these letters, each once and in this order; the target names a flow type
	key     bool             // value is a hash key, "6d:5a:…"
	flags   bool             // value is a group of bools with the driver's names
	flow    bool             // value is an ntuple rule
	comes   bool             // the part comes and goes (rules, RSS contexts): absent is a value there
	fields  map[string]field // value is a group of some of these
	ceiling int64            // value is an integer, this the highest, whatever a policy says
}

// field is one attribute of a group.
type field struct {
	flag    bool  // on or off; else an integer
	ceiling int64 // highest, as of a rule
}

func (r rule) number() bool {
	return !r.set && !r.list && r.letters == "" && !r.key && !r.flags && !r.flow && r.fields == nil
}

// Ceilings of interrupt moderation: a packet that waits a millisecond was held back for nothing
// (steering.md); frames are a second limit beside the timer.
const (
	maxUsecs  = 1000
	maxFrames = 1024
)

var coalesceFields = map[string]field{
	"rx-usecs": {ceiling: maxUsecs}, "tx-usecs": {ceiling: maxUsecs}, "rx-frames": {ceiling: maxFrames}, "tx-frames": {ceiling: maxFrames},
	"adaptive-rx": {flag: true}, "adaptive-tx": {flag: true}, "cqe-mode-rx": {flag: true}, "cqe-mode-tx": {flag: true},
}

// rules are the settings a plan may hold; ceilings are those of the kernel or,
// where it has none, what no host needs more of.
var rules = map[knob.Kind]rule{
	knob.Channels:           {device: true, fields: map[string]field{"rx": {ceiling: maxQueues}, "tx": {ceiling: maxQueues}, "combined": {ceiling: maxQueues}}},
	knob.Rings:              {device: true, fields: map[string]field{"rx": {ceiling: maxRing}, "tx": {ceiling: maxRing}}},
	knob.Coalesce:           {device: true, fields: coalesceFields},
	knob.QueueCoal:          {part: "queue-", fields: coalesceFields},
	knob.Features:           {device: true, flags: true},
	knob.RSSTable:           {part: "context-", device: true, list: true, comes: true},
	knob.RSSKey:             {device: true, key: true},
	knob.RSSHashFields:      {letters: hashLetters},
	knob.NtupleRule:         {part: "rule-", flow: true, comes: true},
	knob.IRQAffinity:        {part: "irq-", set: true},
	knob.RPSCPUs:            {part: "rx-", set: true, empty: true},
	knob.XPSCPUs:            {part: "tx-", set: true, empty: true},
	knob.RPSFlowCnt:         {part: "rx-", ceiling: maxFlows},
	knob.RPSSockFlowEntries: {ceiling: maxFlows},
	knob.Threaded:           {part: "napi-", device: true, ceiling: 2},
	knob.DeferHardIRQs:      {part: "napi-", device: true, ceiling: 1000},
	knob.GROFlushTimeout:    {part: "napi-", device: true, ceiling: 10_000_000},
	knob.NetdevBudget:       {ceiling: 3000},
	knob.NetdevBudgetUsecs:  {ceiling: 20000},
	knob.NetdevMaxBacklog:   {ceiling: 300000},
}

// FieldError is what is wrong with one field of a change.
type FieldError struct {
	Field string // "knob", "target", "from", "to", "risk"
	Err   error
}

func (e *FieldError) Error() string { return e.Field + ": " + e.Err.Error() }
func (e *FieldError) Unwrap() error { return e.Err }

func wrong(field, format string, args ...any) error {
	return &FieldError{field, fmt.Errorf(format, args...)}
}

// Check refuses a change that no plan may hold: an unknown setting, a target or value of another
// shape, a CPU that cannot take the work, a number beyond the ceilings. The error is a
// *FieldError. cpus are the CPUs that exist online; empty does not check them.
func Check(c Change, cpus cpuset.Set) error {
	r, ok := rules[c.Knob]
	if !ok {
		return wrong("knob", "%q is not a setting a plan can hold; those are %s", c.Knob, settable())
	}
	if err := r.target(c.Knob, c.Target); err != nil {
		return &FieldError{"target", err}
	}
	gone := func(v knob.Value) bool { return r.comes && c.Target.Part() != "" && v.IsAbsent() }
	if !c.From.Known() && !gone(c.From) {
		return wrong("from", "the value before is %s: without it nothing can be put back", c.From)
	}
	for _, v := range []struct {
		field string
		value knob.Value
	}{{"from", c.From}, {"to", c.To}} {
		if gone(v.value) {
			continue
		}
		if err := r.check(c.Knob, v.value, v.field == "to", cpus); err != nil {
			return &FieldError{v.field, err}
		}
	}
	switch c.Risk {
	case NoRisk, Reorder, Pause, Flap:
	default:
		return wrong("risk", "%q is none of none, reorder, pause, flap", c.Risk)
	}
	return nil
}

// flowTypes are those that have ports.
var flowTypes = map[string]bool{"tcp4": true, "udp4": true, "sctp4": true, "tcp6": true, "udp6": true, "sctp6": true}

// target checks what a setting belongs to.
func (r rule) target(k knob.Kind, t knob.Target) error {
	switch {
	case r.letters != "":
		if t.Device() == "" || !flowTypes[t.Part()] {
			return fmt.Errorf("%s belongs to a target like \"eth0 udp4\", not to %q", k, t)
		}
		return nil
	case r.part == "" && !r.device:
		if t != knob.Host {
			return fmt.Errorf("%s belongs to the host, not to %q", k, t)
		}
		return nil
	case r.device && t.Device() != "" && t.Part() == "":
		return nil
	case r.part == "":
		return fmt.Errorf("%s belongs to a device like \"eth0\", not to %q", k, t)
	}
	n, found := strings.CutPrefix(t.Part(), r.part)
	if _, err := strconv.ParseUint(n, 10, 31); !found || err != nil || t.Device() == "" {
		return fmt.Errorf("%s belongs to a target like %q, not to %q", k, "eth0 "+r.part+"0", t)
	}
	return nil
}

func (r rule) check(k knob.Kind, v knob.Value, wanted bool, cpus cpuset.Set) error {
	switch {
	case r.letters != "":
		return checkLetters(k, v, r.letters)
	case r.list:
		return checkTable(k, v, wanted)
	case r.key:
		return checkKey(k, v)
	case r.flow:
		return checkFlow(k, v)
	case r.flags, r.fields != nil:
		return r.checkGroup(k, v, wanted)
	case !r.set:
		var n json.Number
		if err := v.Decode(&n); err != nil || !strings.Contains("-0123456789", v.JSON()[:1]) {
			return fmt.Errorf("%s takes a whole number, not %s", k, v.JSON())
		}
		return inside(string(k), n, r.ceiling, wanted)
	}
	var text string
	if err := v.Decode(&text); err != nil {
		return fmt.Errorf("%s takes a CPU list in quotes (\"0-3,8\"), not %s", k, v.JSON())
	}
	s, err := cpuset.ParseList(text)
	if err != nil {
		return err
	}
	if !wanted {
		return nil
	}
	if s.IsEmpty() && !r.empty {
		return fmt.Errorf("%s cannot be empty", k)
	}
	if off := s.Minus(cpus); !cpus.IsEmpty() && !off.IsEmpty() {
		return fmt.Errorf("this host has no cpu %s online (it has %s)", off, cpus)
	}
	return nil
}

// inside checks a number; what is wanted must be below the ceiling.
func inside(what string, x any, ceiling int64, wanted bool) error {
	n, ok := integer(x)
	if !ok {
		return fmt.Errorf("%s takes a whole number, not %v", what, x)
	}
	if wanted && (n < 0 || n > ceiling) {
		return fmt.Errorf("%s %d is outside 0…%d", what, n, ceiling)
	}
	return nil
}

func integer(x any) (int64, bool) {
	n, ok := x.(json.Number)
	if !ok {
		return 0, false
	}
	i, err := n.Int64()
	return i, err == nil
}

func (r rule) checkGroup(k knob.Kind, v knob.Value, wanted bool) error {
	var g map[string]any
	if err := v.Decode(&g); err != nil || len(g) == 0 {
		return fmt.Errorf("%s takes attributes with values, not %s", k, v.JSON())
	}
	for _, name := range slices.Sorted(maps.Keys(g)) {
		f, ok := r.fields[name]
		if !ok && !r.flags {
			return fmt.Errorf("%s has no attribute %q a plan can hold; those are %s", k, name, words(slices.Sorted(maps.Keys(r.fields))))
		}
		what := string(k) + " " + name
		if _, isBool := g[name].(bool); (r.flags || f.flag) != isBool {
			if isBool {
				return fmt.Errorf("%s takes a whole number, not %v", what, g[name])
			}
			return fmt.Errorf("%s takes true or false, not %v", what, g[name])
		} else if isBool {
			continue
		}
		if err := inside(what, g[name], f.ceiling, wanted); err != nil {
			return err
		}
	}
	return nil
}

func checkKey(k knob.Kind, v knob.Value) error {
	var text string
	if err := v.Decode(&text); err == nil {
		if b, err := hex.DecodeString(strings.ReplaceAll(text, ":", "")); err == nil && len(b) > 0 && len(b) <= maxKey {
			return nil
		}
	}
	return fmt.Errorf("%s takes bytes in hexadecimal (\"6d:5a:…\"), not %s", k, v.JSON())
}

// checkFlow checks an ntuple rule: a flow type, a queue and what is matched.
func checkFlow(k knob.Kind, v knob.Value) error {
	var g map[string]any
	if err := v.Decode(&g); err != nil {
		return fmt.Errorf("%s takes a flow, a queue and what is matched, not %s", k, v.JSON())
	}
	if f, ok := g["flow"].(string); !ok || f == "" {
		return fmt.Errorf("%s names no flow type (flow: udp4)", k)
	}
	if q, ok := integer(g["queue"]); !ok || q < -1 || q > maxQueues {
		return fmt.Errorf("%s names no receive queue (queue: 0)", k)
	}
	for _, name := range slices.Sorted(maps.Keys(g)) {
		switch g[name].(type) {
		case string, json.Number:
		default:
			return fmt.Errorf("%s %s takes text or a number, not %v", k, name, g[name])
		}
	}
	return nil
}

func checkLetters(k knob.Kind, v knob.Value, letters string) error {
	var text string
	if err := v.Decode(&text); err != nil {
		return fmt.Errorf("%s takes ethtool's letters in quotes (\"sdfn\"), not %s", k, v.JSON())
	}
	rest := letters
	for _, c := range text {
		i := strings.IndexRune(rest, c)
		if i < 0 {
			return fmt.Errorf("%s %q: want some of %q, each once and in this order", k, text, letters)
		}
		rest = rest[i+1:]
	}
	return nil
}

// Bounds of an indirection table: no driver has more entries or queues.
const (
	maxTable  = 1 << 14
	maxQueues = 1 << 11
	maxKey    = 256
	maxRing   = 1 << 16 // apply and the driver know its own maximum
)

// checkTable checks an indirection table; a wanted one may be empty, which gives it back to the driver.
func checkTable(k knob.Kind, v knob.Value, wanted bool) error {
	var t []int
	if err := v.Decode(&t); err == nil && wanted && v.Equal(knob.DefaultTable()) {
		return nil
	} else if err != nil || len(t) == 0 {
		return fmt.Errorf("%s takes a list of receive queues, one for each bucket, not %s", k, v.JSON())
	}
	if len(t) > maxTable {
		return fmt.Errorf("%s of %d buckets is longer than %d", k, len(t), maxTable)
	}
	for i, q := range t {
		if q < 0 || q > maxQueues {
			return fmt.Errorf("%s names queue %d in bucket %d", k, q, i)
		}
	}
	return nil
}

package plan

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/rxsteer/rxsteer/internal/cpuset"
	"github.com/rxsteer/rxsteer/internal/host/knob"
)

// rule is what a plan may say about one kind of setting.
type rule struct {
	part    string // what the target names after the device: "rx-", "irq-"; "" is the host, or the device where there is a list, a flow type where there are letters
	set     bool   // value is a CPU set
	list    bool   // value is a list of rx queues
	letters string // value is some of these letters, each once and in this order; else an integer
	empty   bool   // the set may be empty ("off")
	ceiling int64  // highest integer, whatever a policy says
}

// rules are the settings a plan may hold; ceilings are those of the kernel or,
// where it has none, what no host needs more of.
var rules = map[knob.Kind]rule{
	knob.RPSCPUs:            {part: "rx-", set: true, empty: true},
	knob.XPSCPUs:            {part: "tx-", set: true, empty: true},
	knob.IRQAffinity:        {part: "irq-", set: true},
	knob.RSSTable:           {list: true},
	knob.RSSHashFields:      {letters: hashLetters},
	knob.RPSFlowCnt:         {part: "rx-", ceiling: maxFlows},
	knob.RPSSockFlowEntries: {ceiling: maxFlows},
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
		known := make([]string, 0, len(rules))
		for k := range rules {
			known = append(known, string(k))
		}
		slices.Sort(known)
		return wrong("knob", "%q is not a setting a plan can hold; those are %s", c.Knob, strings.Join(known, ", "))
	}
	switch {
	case r.letters != "":
		if c.Target.Device() == "" || !flowTypes[c.Target.Part()] {
			return wrong("target", "%s belongs to a target like \"eth0 udp4\", not to %q", c.Knob, c.Target)
		}
	case r.list:
		if c.Target.Device() == "" || c.Target.Part() != "" {
			return wrong("target", "%s belongs to a device like \"eth0\", not to %q", c.Knob, c.Target)
		}
	case r.part == "":
		if c.Target != knob.Host {
			return wrong("target", "%s belongs to the host, not to %q", c.Knob, c.Target)
		}
	default:
		n, found := strings.CutPrefix(c.Target.Part(), r.part)
		if _, err := strconv.ParseUint(n, 10, 31); !found || err != nil || c.Target.Device() == "" {
			return wrong("target", "%s belongs to a target like %q, not to %q", c.Knob, "eth0 "+r.part+"0", c.Target)
		}
	}
	if !c.From.Known() {
		return wrong("from", "the value before is %s: without it nothing can be put back", c.From)
	}
	for _, v := range []struct {
		field string
		value knob.Value
	}{{"from", c.From}, {"to", c.To}} {
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

func (r rule) check(k knob.Kind, v knob.Value, wanted bool, cpus cpuset.Set) error {
	switch {
	case r.letters != "":
		return checkLetters(k, v, r.letters)
	case r.list:
		return checkTable(k, v)
	}
	if !r.set {
		var n int64
		if err := v.Decode(&n); err != nil || !strings.Contains("-0123456789", v.JSON()[:1]) {
			return fmt.Errorf("%s takes a whole number, not %s", k, v.JSON())
		}
		if wanted && (n < 0 || n > r.ceiling) {
			return fmt.Errorf("%s %d is outside 0…%d", k, n, r.ceiling)
		}
		return nil
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
)

func checkTable(k knob.Kind, v knob.Value) error {
	var t []int
	if err := v.Decode(&t); err != nil || len(t) == 0 {
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

package knob

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"syscall"

	"github.com/rxsteer/rxsteer/internal/ethtool"
)

// Groups that cross to package ethtool as numbers; flags are bools in a Value.

// flags are the attributes of ethtool groups that are on or off.
var flags = map[string]bool{
	"adaptive-rx": true, "adaptive-tx": true, "cqe-mode-rx": true, "cqe-mode-tx": true,
	"tx-push": true, "rx-push": true,
	"autoneg": true, // pause; rx and tx there are flags too, see pauseValue
}

func groupValue(g ethtool.Group) Value {
	m := make(map[string]any, len(g))
	for k, n := range g {
		if flags[k] {
			m[k] = n != 0
		} else {
			m[k] = n
		}
	}
	return Fields(m)
}

// changed is what a write of to has to send, given the value a moment ago.
func changed(now, to Value) (ethtool.Group, error) {
	n, ok1 := now.fields()
	w, ok2 := to.fields()
	if !ok1 || !ok2 {
		return nil, fmt.Errorf("%s is no group of attributes", to)
	}
	g := ethtool.Group{}
	for k, v := range w {
		old, ok := n[k]
		if !ok {
			return nil, fmt.Errorf("attribute %s: %w", k, syscall.EOPNOTSUPP)
		}
		if old == v {
			continue
		}
		x, err := number(v)
		if err != nil {
			return nil, fmt.Errorf("attribute %s: %w", k, err)
		}
		g[k] = x
	}
	return g, nil
}

// number is a group attribute as the kernel takes it.
func number(v any) (uint32, error) {
	switch v := v.(type) {
	case bool:
		if v {
			return 1, nil
		}
		return 0, nil
	case interface{ Int64() (int64, error) }: // json.Number
		n, err := v.Int64()
		if err != nil || n < 0 || n > 1<<32-1 {
			return 0, fmt.Errorf("%v: %w", v, syscall.ERANGE)
		}
		return uint32(n), nil
	}
	return 0, fmt.Errorf("%v is neither number nor bool", v)
}

// arguments prints a group as ethtool(8) takes it: "rx-usecs 10 adaptive-rx off".
func arguments(v Value) (string, bool) {
	f, ok := v.fields()
	if !ok || len(f) == 0 {
		return "", false
	}
	var parts []string
	for _, k := range slices.Sorted(maps.Keys(f)) {
		parts = append(parts, quote(k), word(f[k]))
	}
	return strings.Join(parts, " "), true
}

func word(v any) string {
	switch v {
	case true:
		return "on"
	case false:
		return "off"
	}
	return quote(fmt.Sprint(v))
}

// onDevice is a command of ethtool with a group's arguments, for a whole device.
func onDevice(option string) func(Ref, Value) string {
	return func(r Ref, v Value) string {
		args, ok := arguments(v)
		if !ok || r.Target.Part() != "" || !validDevice(r.Target.Device()) {
			return ""
		}
		return "ethtool " + option + " " + r.Target.Device() + " " + args
	}
}

// ethtoolDevice checks that r is of a whole device and that ethtool is there; v says why not.
func (m *Machine) ethtoolDevice(r Ref) (dev string, v Value, ok bool) {
	switch dev = r.Target.Device(); {
	case !validDevice(dev) || r.Target.Part() != "":
		return "", noSuch(r), false
	case m.c.Ethtool == nil:
		return "", Unknown(m.c.EthtoolReason), false
	}
	return dev, Value{}, true
}

func settings(t Target, kv ...any) []Setting {
	var out []Setting
	for i := 0; i < len(kv); i += 2 {
		out = append(out, Setting{Ref: Ref{Knob: kv[i].(Kind), Target: t}, Value: kv[i+1].(Value)})
	}
	return out
}

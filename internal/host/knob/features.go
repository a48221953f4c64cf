package knob

import (
	"fmt"
	"syscall"

	"github.com/rxsteer/rxsteer/internal/ethtool"
)

// Offloads (ethtool -k, -K) by the kernel's names. A change of one may flip others: GRO
// off turned LRO on, on one card; so apply compares everything afterwards.
var featuresFamily = family{read: readFeatures, write: writeFeatures, command: onDevice("-K"), meaning: meaningFeatures}

func readFeatures(m *Machine, r Ref) Value {
	dev, v, ok := m.ethtoolDevice(r)
	if !ok {
		return v
	}
	for _, s := range m.listFeatures(dev) {
		if s.Knob == r.Knob {
			return s.Value
		}
	}
	return noSuch(r)
}

func (m *Machine) listFeatures(dev string) []Setting {
	f, err := m.c.Ethtool.Features(dev)
	if err != nil {
		v := m.unread(dev, err)
		return settings(Target(dev), Features, v, FeaturesFixed, v, FeaturesWanted, v)
	}
	return featureSettings(dev, f)
}

func featureSettings(dev string, f ethtool.Features) []Setting {
	can, fixed, wanted := map[string]any{}, map[string]any{}, map[string]any{}
	for name, on := range f.Active {
		if f.Fixed[name] {
			fixed[name] = on
			continue
		}
		can[name] = on
		if f.Wanted[name] != on {
			wanted[name] = f.Wanted[name]
		}
	}
	return settings(Target(dev), Features, Fields(can), FeaturesFixed, Fields(fixed), FeaturesWanted, Fields(wanted))
}

func boolChanges(now, to Value) (map[string]bool, error) {
	n, ok1 := now.fields()
	w, ok2 := to.fields()
	if !ok1 || !ok2 {
		return nil, fmt.Errorf("%s is no group of flags", to)
	}
	out := map[string]bool{}
	for k, v := range w {
		on, isBool := v.(bool)
		old, ok := n[k]
		if !ok || !isBool {
			return nil, fmt.Errorf("%s: %w", k, syscall.EOPNOTSUPP)
		}
		if old != v {
			out[k] = on
		}
	}
	return out, nil
}

func writeFeatures(m *Machine, r Ref, now, to Value) error {
	c, err := boolChanges(now, to)
	if err != nil {
		return err
	}
	return m.c.Ethtool.SetFeatures(r.Target.Device(), c)
}

func meaningFeatures(_ Ref, no syscall.Errno) string {
	switch no {
	case syscall.EOPNOTSUPP:
		return "the device cannot change this offload (fixed): permanent"
	case syscall.EINVAL:
		return "the offload is refused in this state: another one, an XDP program or the MTU forbids it"
	}
	return ""
}

// Driver-private flags (ethtool --show-priv-flags, --set-priv-flags).
var flagsFamily = family{read: readFlags, write: writeFlags, command: onDevice("--set-priv-flags")}

func readFlags(m *Machine, r Ref) Value {
	dev, v, ok := m.ethtoolDevice(r)
	if !ok {
		return v
	}
	f, err := m.c.Ethtool.PrivateFlags(dev)
	if err != nil {
		return m.unread(dev, err)
	}
	if len(f) == 0 {
		return Absent("the driver has no private flags")
	}
	g := make(map[string]any, len(f))
	for k, on := range f {
		g[k] = on
	}
	return Fields(g)
}

func writeFlags(m *Machine, r Ref, now, to Value) error {
	c, err := boolChanges(now, to)
	if err != nil {
		return err
	}
	return m.c.Ethtool.SetPrivateFlags(r.Target.Device(), c)
}

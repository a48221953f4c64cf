package knob

import (
	"fmt"
	"syscall"
)

// Ring sizes (ethtool -g, -G). Changing them re-allocates rings on most drivers: the
// link may flap.
var ringsFamily = family{read: readRings, write: writeRings, command: commandRings, meaning: meaningRings}

func (m *Machine) rings(dev string) (now, limit Value) {
	n, x, err := m.c.Ethtool.Rings(dev)
	if err != nil {
		v := m.unread(dev, err)
		return v, v
	}
	return groupValue(n), groupValue(x)
}

func readRings(m *Machine, r Ref) Value {
	dev, v, ok := m.ethtoolDevice(r)
	if !ok {
		return v
	}
	now, limit := m.rings(dev)
	if r.Knob == RingsMax {
		return limit
	}
	return now
}

func writeRings(m *Machine, r Ref, now, to Value) error {
	g, err := changed(now, to)
	if err != nil {
		return err
	}
	return m.c.Ethtool.SetRings(r.Target.Device(), g)
}

// commandRings spells tcp-data-split, a number in the kernel (enum ethtool_tcp_data_split).
func commandRings(r Ref, v Value) string {
	f, ok := v.fields()
	if !ok {
		return ""
	}
	if n, ok := f["tcp-data-split"]; ok {
		switch fmt.Sprint(n) {
		case "0":
			f["tcp-data-split"] = "auto"
		case "1":
			f["tcp-data-split"] = "off"
		case "2":
			f["tcp-data-split"] = "on"
		}
	}
	return onDevice("-G")(r, Fields(f))
}

func meaningRings(_ Ref, no syscall.Errno) string {
	switch no {
	case syscall.EINVAL, syscall.ERANGE:
		return "above the maximum, or not a size this device can have"
	case syscall.ENOMEM:
		return "no memory for rings of that size: the old ones may be gone until the link is cycled"
	}
	return ""
}

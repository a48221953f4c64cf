package knob

import (
	"strings"
	"syscall"

	"github.com/rxsteer/rxsteer/internal/ethtool"
)

// The state of the wire, a fact: a later difference is a renegotiation.
var linkFamily = family{read: readLink}

func readLink(m *Machine, r Ref) Value {
	dev, v, ok := m.ethtoolDevice(r)
	if !ok {
		return v
	}
	l, err := m.c.Ethtool.Link(dev)
	if err != nil {
		return m.unread(dev, err)
	}
	return linkValue(l)
}

func linkValue(l ethtool.Link) Value {
	f := map[string]any{"up": l.Up}
	if l.HasModes {
		f["duplex"], f["autoneg"] = l.Duplex, l.Autoneg
		if l.SpeedMb > 0 {
			f["speed"] = l.SpeedMb
		}
	}
	return Fields(f)
}

// Pause frames (ethtool -a, -A): a group of the flags autoneg, rx and tx.
var pauseFamily = family{read: readPause, write: writePause, command: onDevice("-A")}

func readPause(m *Machine, r Ref) Value {
	dev, v, ok := m.ethtoolDevice(r)
	if !ok {
		return v
	}
	g, err := m.c.Ethtool.Pause(dev)
	if err != nil {
		return m.unread(dev, err)
	}
	f := make(map[string]any, len(g))
	for k, n := range g {
		f[k] = n != 0
	}
	return Fields(f)
}

func writePause(m *Machine, r Ref, now, to Value) error {
	g, err := changed(now, to)
	if err != nil {
		return err
	}
	return m.c.Ethtool.SetPause(r.Target.Device(), g)
}

// Forward error correction (ethtool --show-fec, --set-fec): a group of auto (flag) and
// modes ("rs baser").
var fecFamily = family{read: readFEC, write: writeFEC, command: commandFEC}

func readFEC(m *Machine, r Ref) Value {
	dev, v, ok := m.ethtoolDevice(r)
	if !ok {
		return v
	}
	f, err := m.c.Ethtool.FEC(dev)
	if err != nil {
		return m.unread(dev, err)
	}
	return Fields(map[string]any{"auto": f.Auto, "modes": f.Modes})
}

func fecOf(now, to Value) (ethtool.FEC, error) {
	var f struct {
		Auto  bool
		Modes string
	}
	if now.Known() {
		if err := now.Decode(&f); err != nil {
			return ethtool.FEC{}, err
		}
	}
	err := to.Decode(&f) // what to does not name stays
	return ethtool.FEC{Auto: f.Auto, Modes: f.Modes}, err
}

func writeFEC(m *Machine, r Ref, now, to Value) error {
	f, err := fecOf(now, to)
	if err != nil {
		return err
	}
	return m.c.Ethtool.SetFEC(r.Target.Device(), f)
}

func commandFEC(r Ref, v Value) string {
	f, err := fecOf(Value{}, v)
	if err != nil || !validDevice(r.Target.Device()) {
		return ""
	}
	var words []string
	if f.Auto {
		words = append(words, "auto")
	}
	words = append(words, strings.Fields(f.Modes)...)
	if len(words) == 0 {
		words = []string{"off"}
	}
	return "ethtool --set-fec " + r.Target.Device() + " encoding " + strings.Join(words, " ")
}

// The MTU in bytes. Writing it through sysfs is ip link set's RTM_SETLINK in effect
// (mtu_store in net/core/net-sysfs.c).
var mtuFamily = family{read: readMTU, write: writeMTU, command: commandMTU, meaning: meaningMTU}

func mtuPath(dev string) string { return "/sys/class/net/" + dev + "/mtu" }

func readMTU(m *Machine, r Ref) Value {
	dev := r.Target.Device()
	if !validDevice(dev) || r.Target.Part() != "" {
		return noSuch(r)
	}
	return m.readInt(dev, mtuPath(dev))
}

func writeMTU(m *Machine, r Ref, _, to Value) error {
	s, err := intText(to)
	if err != nil {
		return err
	}
	return m.writeText(mtuPath(r.Target.Device()), s)
}

func commandMTU(r Ref, v Value) string {
	s, err := intText(v)
	if err != nil || !validDevice(r.Target.Device()) || r.Target.Part() != "" {
		return ""
	}
	return "ip link set dev " + r.Target.Device() + " mtu " + s
}

func meaningMTU(_ Ref, no syscall.Errno) string {
	switch no {
	case syscall.EINVAL, syscall.ERANGE:
		return "outside the device's limits, or too large for the attached XDP program"
	}
	return ""
}

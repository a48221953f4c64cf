package knob

import (
	"strconv"
	"syscall"
)

// Transmit packet steering, per tx queue:
// /sys/class/net/<if>/queues/tx-N/{xps_cpus,xps_rxqs}. A device with a single tx queue
// has the files, but reading them is ENOENT (netif_is_multiqueue in xps_cpus_show).
var xpsFamily = family{read: readXPS, write: writeXPS, command: commandXPS, meaning: meaningXPS}

func xpsPath(r Ref) (string, bool) {
	q, ok := part(r.Target, "tx-")
	if !ok {
		return "", false
	}
	file := "xps_cpus"
	if r.Knob == XPSRXQs {
		file = "xps_rxqs"
	}
	return "/sys/class/net/" + r.Target.Device() + "/queues/tx-" + strconv.Itoa(q) + "/" + file, true
}

func readXPS(m *Machine, r Ref) Value {
	p, ok := xpsPath(r)
	if !ok {
		return noSuch(r)
	}
	v := m.readMask(r.Target.Device(), p)
	if v.IsAbsent() && v.reason == noSetting {
		return Absent("needs a kernel with XPS and more than one tx queue")
	}
	return v
}

func writeXPS(m *Machine, r Ref, _, to Value) error {
	p, _ := xpsPath(r)
	s, err := maskText(to)
	if err != nil {
		return err
	}
	return m.writeText(p, s)
}

func commandXPS(r Ref, v Value) string {
	p, ok := xpsPath(r)
	s, err := maskText(v)
	if !ok || err != nil {
		return ""
	}
	return echo(s, p)
}

func meaningXPS(r Ref, no syscall.Errno) string {
	switch no {
	case syscall.EINVAL:
		return "the mask names CPUs or queues that do not exist, or the device hands its tx queues to a subordinate device"
	case syscall.ENOENT:
		return "the device has a single tx queue: there is nothing to choose"
	}
	return ""
}

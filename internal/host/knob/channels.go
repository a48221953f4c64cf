package knob

import "syscall"

// Queue counts (ethtool -l, -L). Changing them rebuilds queues on most drivers: the
// link may flap, and the RSS table, affinities and NAPI ids may change.
var channelsFamily = family{read: readChannels, write: writeChannels, command: onDevice("-L"), meaning: meaningChannels}

func (m *Machine) channels(dev string) (now, limit Value) {
	n, x, err := m.c.Ethtool.Channels(dev)
	if err != nil {
		v := m.unread(dev, err)
		return v, v
	}
	return groupValue(n), groupValue(x)
}

func readChannels(m *Machine, r Ref) Value {
	dev, v, ok := m.ethtoolDevice(r)
	if !ok {
		return v
	}
	now, limit := m.channels(dev)
	if r.Knob == ChannelsMax {
		return limit
	}
	return now
}

func writeChannels(m *Machine, r Ref, now, to Value) error {
	g, err := changed(now, to)
	if err != nil {
		return err
	}
	return m.c.Ethtool.SetChannels(r.Target.Device(), g)
}

// See ethnl_set_channels in net/ethtool/channels.c.
func meaningChannels(_ Ref, no syscall.Errno) string {
	switch no {
	case syscall.EINVAL, syscall.ERANGE:
		return "more than the maximum, fewer than a user-set RSS table or an ntuple rule refers to (set the table to default first), or no rx or no tx channel left"
	case syscall.EBUSY:
		return "an AF_XDP socket or an RSS context uses a queue that would go"
	}
	return ""
}

package knob

import (
	"strings"
	"syscall"

	"github.com/rxsteer/rxsteer/internal/ethtool"
)

// Which header fields go into the hash, per flow type (ethtool -n eth0 rx-flow-hash
// udp4, ethtool -N eth0 rx-flow-hash udp4 sdfn).
var hashFieldsFamily = family{read: readHashFields, write: writeHashFields, command: commandHashFields, meaning: meaningHashFields}

func readHashFields(m *Machine, r Ref) Value {
	dev, flow := r.Target.Device(), r.Target.Part()
	switch {
	case !validDevice(dev) || !ethtool.IsFlow(flow):
		return noSuch(r)
	case m.c.Ethtool == nil:
		return Unknown(m.c.EthtoolReason)
	}
	s, err := m.c.Ethtool.HashFields(dev, flow)
	return m.hashFieldsValue(dev, s, err)
}

func (m *Machine) hashFieldsValue(dev, s string, err error) Value {
	if err == nil {
		return Text(s)
	}
	if no, _ := errnoOf(err); no == syscall.EINVAL { // drivers' answer for a flow type they do not know
		return Absent("the device does not hash this flow type")
	}
	return m.unread(dev, err)
}

// listHashFields is the hash fields of the flow types that matter for receive; told
// are those the kernel reported with the table, nil when it did not.
func (m *Machine) listHashFields(dev string, told map[string]string) []Setting {
	var out []Setting
	for _, flow := range [...]string{"tcp4", "udp4", "tcp6", "udp6", "sctp4", "sctp6", "ah4", "ah6", "esp4", "esp6", "ip4", "ip6"} {
		var v Value
		if told != nil {
			s, ok := told[flow]
			if v = Text(s); !ok {
				continue
			}
		} else {
			s, err := m.c.Ethtool.HashFields(dev, flow)
			v = m.hashFieldsValue(dev, s, err)
			if no, _ := errnoOf(err); no == syscall.EOPNOTSUPP && len(out) == 0 {
				return nil // no driver lets one flow type be asked and refuses the first
			}
			if v.IsAbsent() {
				continue
			}
		}
		out = append(out, settings(On(dev, "%s", flow), RSSHashFields, v)...)
	}
	return out
}

func writeHashFields(m *Machine, r Ref, _, to Value) error {
	var s string
	if err := to.Decode(&s); err != nil {
		return err
	}
	return m.c.Ethtool.SetHashFields(r.Target.Device(), r.Target.Part(), s)
}

func commandHashFields(r Ref, v Value) string {
	flow := r.Target.Part()
	if !ethtool.IsFlow(flow) || !validDevice(r.Target.Device()) || strings.ContainsAny(flow, " '") {
		return ""
	}
	s := v.String()
	if s == "" {
		return "" // ethtool cannot type the empty set
	}
	return "ethtool -N " + r.Target.Device() + " rx-flow-hash " + flow + " " + quote(s)
}

func meaningHashFields(_ Ref, no syscall.Errno) string {
	switch no {
	case syscall.EINVAL:
		return "the device cannot hash this flow type by these fields"
	case syscall.EOPNOTSUPP:
		return "the driver does not let hash fields be set: permanent"
	}
	return ""
}

package knob

import (
	"maps"
	"slices"
	"syscall"
)

// Sysctls of net.core (Documentation/admin-guide/sysctl/net.rst), target Host.
// rps_sock_flow_entries is rounded up to a power of two (rps_sock_flow_sysctl).
// In a network namespace other than the first most of the files do not exist.
var sysctlFamily = family{read: readSysctl, write: writeSysctl, command: commandSysctl, meaning: meaningSysctl}

type sysctl struct {
	name string // below /proc/sys/net/core
	mask bool   // a CPU mask, else a decimal number
}

var sysctls = map[Kind]sysctl{
	RPSSockFlowEntries: {name: "rps_sock_flow_entries"},
	RPSDefaultMask:     {name: "rps_default_mask", mask: true},
	NetdevBudget:       {name: "netdev_budget"},
	NetdevBudgetUsecs:  {name: "netdev_budget_usecs"},
	NetdevMaxBacklog:   {name: "netdev_max_backlog"},
	DevWeight:          {name: "dev_weight"},
	BusyPoll:           {name: "busy_poll"},
	BusyRead:           {name: "busy_read"},
	FlowLimitCPUs:      {name: "flow_limit_cpu_bitmap", mask: true},
	FlowLimitTableLen:  {name: "flow_limit_table_len"},
}

func (m *Machine) listSysctls() []Setting {
	var out []Setting
	for _, k := range slices.Sorted(maps.Keys(sysctls)) {
		r := Ref{Knob: k, Target: Host}
		out = append(out, Setting{Ref: r, Value: readSysctl(m, r)})
	}
	return out
}

func (s sysctl) path() string { return "/proc/sys/net/core/" + s.name }

func (s sysctl) text(v Value) (string, error) {
	if s.mask {
		return maskText(v)
	}
	return intText(v)
}

func readSysctl(m *Machine, r Ref) Value {
	s := sysctls[r.Knob]
	switch {
	case r.Target != Host:
		return noSuch(r)
	case r.Knob == FlowLimitCPUs:
		return m.readFlowLimitCPUs(s.path())
	case s.mask:
		return m.readMask("", s.path())
	default:
		return m.readInt("", s.path())
	}
}

// readFlowLimitCPUs: older kernels print this mask through a buffer of 127 bytes
// (flow_limit_cpu_sysctl), and no whole mask is 126 digits and commas long.
func (m *Machine) readFlowLimitCPUs(p string) Value {
	if s, err := m.readText(p); err == nil && len(s) == 126 {
		return Unknown("this kernel cuts the mask off on hosts with so many CPUs")
	}
	return m.readMask("", p)
}

func writeSysctl(m *Machine, r Ref, _, to Value) error {
	s := sysctls[r.Knob]
	text, err := s.text(to)
	if err != nil {
		return err
	}
	return m.writeText(s.path(), text)
}

func commandSysctl(r Ref, v Value) string {
	s := sysctls[r.Knob]
	text, err := s.text(v)
	if err != nil || r.Target != Host {
		return ""
	}
	return "sysctl -w net.core." + s.name + "=" + quote(text)
}

func meaningSysctl(r Ref, no syscall.Errno) string {
	switch {
	case no == syscall.EINVAL && r.Knob == FlowLimitTableLen:
		return "the length must be a power of two"
	case no == syscall.EINVAL && r.Knob == RPSSockFlowEntries:
		return "more than 2^29 entries"
	case no == syscall.EINVAL && r.Knob == NetdevBudgetUsecs:
		return "below the kernel's minimum: two timer ticks (8000 at 250 Hz) on Debian's 6.12, as tried there"
	case no == syscall.EINVAL && r.Knob == RPSDefaultMask:
		return "no CPU of the mask may do network work: all of them are isolated"
	case no == syscall.ENOENT || no == syscall.EACCES || no == syscall.EPERM:
		return "needs root in the host's first network namespace"
	}
	return ""
}

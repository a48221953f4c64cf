package knob

import (
	"strconv"
	"syscall"

	"github.com/rxsteer/rxsteer/internal/netdev"
)

// NAPI settings: of one instance over netdev netlink (6.13), of a whole device in
// /sys/class/net/<if>/{threaded,napi_defer_hard_irqs,gro_flush_timeout}
// (Documentation/networking/napi.rst). Writing the device's value writes all instances'.
var napiFamily = family{read: readNAPI, write: writeNAPI, command: commandNAPI, meaning: meaningNAPI}

func napiPath(r Ref) (string, bool) {
	if r.Target.Part() != "" || !validDevice(r.Target.Device()) {
		return "", false
	}
	file := map[Kind]string{Threaded: "threaded", DeferHardIRQs: "napi_defer_hard_irqs", GROFlushTimeout: "gro_flush_timeout"}[r.Knob]
	return "/sys/class/net/" + r.Target.Device() + "/" + file, file != ""
}

func readNAPI(m *Machine, r Ref) Value {
	if p, ok := napiPath(r); ok {
		return m.readInt(r.Target.Device(), p)
	}
	id, ok := part(r.Target, "napi-")
	if !ok {
		return noSuch(r)
	}
	all, v := m.napis(r.Target.Device())
	if all == nil {
		return v
	}
	for _, n := range all {
		if n.ID == uint32(id) {
			return napiValue(n, r.Knob)
		}
	}
	return Absent("no such NAPI instance")
}

// napis lists a device's instances, or says why not.
func (m *Machine) napis(dev string) ([]netdev.NAPI, Value) {
	if m.c.Netdev == nil {
		return nil, Unknown(m.c.NetdevReason)
	}
	index, v := m.ifIndex(dev)
	if index == 0 {
		return nil, v
	}
	all, err := m.c.Netdev.NAPIs(index)
	if err != nil {
		return nil, m.unread(dev, err)
	}
	if all == nil {
		all = []netdev.NAPI{}
	}
	return all, Value{}
}

func (m *Machine) ifIndex(dev string) (int, Value) {
	if !validDevice(dev) {
		return 0, Absent("no such device " + dev)
	}
	v := m.readInt(dev, "/sys/class/net/"+dev+"/ifindex")
	var n int64
	if err := v.Decode(&n); err != nil {
		return 0, v
	}
	return int(n), v
}

func napiValue(n netdev.NAPI, k Kind) Value {
	switch k {
	case Threaded:
		return optional(n.Threaded)
	case DeferHardIRQs:
		return optional(n.DeferHardIRQs)
	case GROFlushTimeout:
		return optional(n.GROFlushTimeout)
	default:
		return optional(n.IRQSuspendTimeout)
	}
}

func optional[T uint32 | uint64](p *T) Value {
	if p == nil {
		return Absent("this kernel does not tell it per NAPI instance")
	}
	return Int(int64(*p))
}

func writeNAPI(m *Machine, r Ref, _, to Value) error {
	if p, ok := napiPath(r); ok {
		s, err := intText(to)
		if err != nil {
			return err
		}
		return m.writeText(p, s)
	}
	id, _ := part(r.Target, "napi-")
	var n uint64
	if err := to.Decode(&n); err != nil {
		return err
	}
	var c netdev.NAPIChange
	n32 := uint32(n)
	if (r.Knob == Threaded || r.Knob == DeferHardIRQs) && uint64(n32) != n {
		return syscall.ERANGE
	}
	switch r.Knob {
	case Threaded:
		c.Threaded = &n32
	case DeferHardIRQs:
		c.DeferHardIRQs = &n32
	case GROFlushTimeout:
		c.GROFlushTimeout = &n
	default:
		c.IRQSuspendTimeout = &n
	}
	return m.c.Netdev.SetNAPI(uint32(id), c)
}

func commandNAPI(r Ref, v Value) string {
	s, err := intText(v)
	if err != nil {
		return ""
	}
	if p, ok := napiPath(r); ok {
		return echo(s, p)
	}
	id, ok := part(r.Target, "napi-")
	if !ok {
		return ""
	}
	attr := map[Kind]string{Threaded: "threaded", DeferHardIRQs: "defer-hard-irqs", GROFlushTimeout: "gro-flush-timeout", IRQSuspendTimeout: "irq-suspend-timeout"}[r.Knob]
	return "ynl --family netdev --do napi-set --json '{\"id\": " + strconv.Itoa(id) + ", \"" + attr + "\": " + s + "}'"
}

func meaningNAPI(r Ref, no syscall.Errno) string {
	switch {
	case no == syscall.EOPNOTSUPP && r.Target.Part() == "":
		return "the device has no NAPI instances to put on threads"
	case no == syscall.ERANGE || no == syscall.EINVAL:
		return "the value is out of range: the number of deferred interrupts and both timeouts have the kernel's signed 32- and 64-bit limits"
	}
	return ""
}

// listNAPI is the NAPI settings of a device and, where the kernel tells, of each instance.
func (m *Machine) listNAPI(dev string) []Setting {
	var out []Setting
	for _, k := range [...]Kind{Threaded, DeferHardIRQs, GROFlushTimeout} {
		r := Ref{Knob: k, Target: Target(dev)}
		out = append(out, Setting{Ref: r, Value: readNAPI(m, r)})
	}
	all, _ := m.napis(dev)
	for _, n := range all {
		t := On(dev, "napi-%d", n.ID)
		for _, k := range [...]Kind{Threaded, DeferHardIRQs, GROFlushTimeout, IRQSuspendTimeout} {
			if v := napiValue(n, k); v.Known() {
				out = append(out, Setting{Ref: Ref{Knob: k, Target: t}, Value: v})
			}
		}
	}
	return out
}

package knob

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/rxsteer/rxsteer/internal/host"
)

// Interrupt affinity: /proc/irq/N/smp_affinity_list is a wish,
// effective_affinity_list what the interrupt controller does, which moves only with
// the next interrupt (Documentation/core-api/irq/irq-affinity.rst); affinity_hint
// is the driver's proposal, as a mask.
var irqFamily = family{read: readIRQ, write: writeIRQ, command: commandIRQ, meaning: meaningIRQ}

// errNotOurs: the interrupt number was given to another device in between.
var errNotOurs = errors.New("the interrupt does not belong to the device")

func irqDir(n int) string { return "/proc/irq/" + strconv.Itoa(n) }

func readIRQ(m *Machine, r Ref) Value {
	n, ok := part(r.Target, "irq-")
	if !ok {
		return noSuch(r)
	}
	dev := r.Target.Device()
	switch r.Knob {
	case IRQAffinity:
		return m.readList(dev, irqDir(n)+"/smp_affinity_list")
	case IRQEffective:
		v := m.readList(dev, irqDir(n)+"/effective_affinity_list")
		if v.IsAbsent() {
			return Absent("this platform does not tell effective affinities")
		}
		return v
	case IRQManaged:
		return m.readManaged(n)
	default:
		return m.readMask(dev, irqDir(n)+"/affinity_hint")
	}
}

// readManaged: from 6.12 on the file of a vector that users cannot move is not writable to
// anybody (register_irq_proc in kernel/irq/proc.c); before, only debugfs tells.
func (m *Machine) readManaged(n int) Value {
	es, err := m.c.FS.ReadDir(irqDir(n))
	if err != nil {
		return m.unread("", err)
	}
	for _, e := range es {
		if e.Name() != "smp_affinity" {
			continue
		}
		if i, err := e.Info(); err == nil && i.Mode().Perm()&0o222 == 0 {
			return Bool(true)
		}
	}
	if b, err := m.c.FS.ReadFile("/sys/kernel/debug/irq/irqs/" + strconv.Itoa(n)); err == nil {
		return Bool(strings.Contains(string(b), "IRQD_AFFINITY_MANAGED"))
	}
	return Unknown("this kernel tells only by refusing a write")
}

func writeIRQ(m *Machine, r Ref, _, to Value) error {
	n, _ := part(r.Target, "irq-")
	vectors, err := m.c.Vectors.Vectors(r.Target.Device())
	if err != nil {
		return fmt.Errorf("verify the owner of irq %d: %w", n, err)
	}
	if !slices.Contains(vectors, n) {
		return errNotOurs
	}
	set, err := to.CPUs()
	if err != nil {
		return err
	}
	return m.writeText(irqDir(n)+"/smp_affinity_list", set.String())
}

func commandIRQ(r Ref, v Value) string {
	n, ok := part(r.Target, "irq-")
	set, err := v.CPUs()
	if !ok || err != nil {
		return ""
	}
	return echo(set.String(), irqDir(n)+"/smp_affinity_list")
}

// See write_irq_affinity and irq_set_affinity in kernel/irq/{proc,manage}.c, and
// assign_irq_vector in arch/x86/kernel/apic/vector.c.
func meaningIRQ(_ Ref, no syscall.Errno) string {
	switch no {
	case syscall.ENOSPC:
		return "the interrupt vectors of those CPUs are used up: transient, choose another CPU"
	case syscall.EIO:
		return "managed by the driver (or fixed by the platform): its affinity cannot be changed, permanent"
	case syscall.EPERM:
		return "managed by the driver: its affinity cannot be changed, permanent (6.12 and later say EPERM); without root it means no privilege"
	case syscall.EACCES:
		return "needs root"
	case syscall.EINVAL:
		return "no CPU of the list is online and allowed"
	case syscall.EBUSY:
		return "the move before is still pending: the interrupt has to fire first"
	case syscall.EOVERFLOW, syscall.ERANGE:
		return "the list names CPUs this kernel cannot have"
	case syscall.ENOENT:
		return "the vector is not there any more: read the map again"
	}
	return ""
}

// listIRQs is the settings of a device's vectors.
func (m *Machine) listIRQs(dev string) []Setting {
	vectors, err := m.c.Vectors.Vectors(dev)
	if err != nil {
		return nil
	}
	var out []Setting
	for _, n := range vectors {
		t := On(dev, "irq-%d", n)
		for _, k := range [...]Kind{IRQAffinity, IRQEffective, IRQHint, IRQManaged} {
			r := Ref{Knob: k, Target: t}
			out = append(out, Setting{Ref: r, Value: readIRQ(m, r)})
		}
	}
	return out
}

// sysVectors finds a device's vectors in sysfs and procfs: the msi_irqs folder of
// its bus device, for virtio of the PCI device above it, else the irq file, else
// the actions under /proc/irq that hold the interface name as a word. Virtual devices
// have none.
type sysVectors struct{ fs host.FS }

func (s sysVectors) Vectors(dev string) ([]int, error) {
	if !validDevice(dev) {
		return nil, fmt.Errorf("find vectors: no device %q", dev)
	}
	dir, ok := s.busDevice(dev)
	if !ok {
		return nil, nil
	}
	var found []int
	es, err := s.fs.ReadDir(dir + "/msi_irqs")
	if err == nil {
		for _, e := range es {
			if n, err := strconv.Atoi(e.Name()); err == nil && n > 0 && s.requested(n) {
				found = append(found, n)
			}
		}
	}
	if len(found) == 0 {
		if b, err := s.fs.ReadFile(dir + "/irq"); err == nil {
			if n, err := strconv.Atoi(strings.TrimSpace(string(b))); err == nil && n > 0 && s.requested(n) {
				found = append(found, n)
			}
		}
	}
	if len(found) == 0 {
		if found, err = s.byName(dev); err != nil {
			return nil, err
		}
	}
	slices.Sort(found)
	return slices.Compact(found), nil
}

// busDevice is the real folder of the device that has the interrupts. The folders
// are resolved link by link: ".." of a link is not its parent to every FS.
func (s sysVectors) busDevice(dev string) (string, bool) {
	iface, err := s.fs.Readlink("/sys/class/net/" + dev)
	if err != nil {
		return "/sys/class/net/" + dev + "/device", s.exists("/sys/class/net/" + dev + "/device")
	}
	real := path.Join("/sys/class/net", iface)
	l, err := s.fs.Readlink(real + "/device")
	if err != nil {
		return "", false
	}
	dir := path.Join(real, l)
	if sub, err := s.fs.Readlink(dir + "/subsystem"); err == nil && path.Base(sub) == "virtio" {
		return path.Dir(dir), true
	}
	return dir, true
}

func (s sysVectors) exists(dir string) bool {
	_, err := s.fs.ReadDir(dir)
	return err == nil
}

// requested reports whether somebody handles interrupt n: its folder in /proc/irq
// holds one folder per action.
func (s sysVectors) requested(n int) bool {
	return len(s.actions(n)) > 0
}

func (s sysVectors) actions(n int) []string {
	es, err := s.fs.ReadDir(irqDir(n))
	if err != nil {
		return nil
	}
	var out []string
	for _, e := range es {
		if e.IsDir() {
			out = append(out, e.Name())
		}
	}
	return out
}

func (s sysVectors) byName(dev string) ([]int, error) {
	es, err := s.fs.ReadDir("/proc/irq")
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var out []int
	for _, e := range es {
		n, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		for _, a := range s.actions(n) {
			if hasWord(a, dev) {
				out = append(out, n)
				break
			}
		}
	}
	return out, nil
}

// hasWord reports whether name stands in s between characters that no interface
// name would go on with: "eth1" is in "mlx-eth1-rx-0", not in "eth10-rx-0".
func hasWord(s, name string) bool {
	for i := 0; ; {
		j := strings.Index(s[i:], name)
		if j < 0 {
			return false
		}
		j += i
		end := j + len(name)
		if (j == 0 || !wordByte(s[j-1])) && (end == len(s) || !wordByte(s[end])) {
			return true
		}
		i = j + 1
	}
}

func wordByte(c byte) bool {
	return c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c == '.'
}

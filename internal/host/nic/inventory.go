package nic

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/rxsteer/rxsteer/internal/cpuset"
	"github.com/rxsteer/rxsteer/internal/ethtool"
	"github.com/rxsteer/rxsteer/internal/host"
	"github.com/rxsteer/rxsteer/internal/netdev"
)

const (
	classNet = "/sys/class/net"
	procIRQ  = "/proc/irq"
)

// Sources is where the inventory reads. Only FS is needed; each other source
// makes the map surer.
type Sources struct {
	FS      host.FS
	Netdev  Netdev  // queues and NAPIs by netlink; nil where the kernel has no netdev family
	Ethtool Ethtool // driver identity and channel counts; nil unknown
}

// Netdev is the part of the netdev netlink family that the map needs;
// *netdev.Client is one. An error that is netdev.ErrNotSupported or
// ErrNoDevice means that there is nothing to tell.
type Netdev interface {
	Queues(ifindex int) ([]netdev.Queue, error)
	NAPIs(ifindex int) ([]netdev.NAPI, error)
}

// Ethtool is what the inventory asks a driver; *ethtool.Client is one.
type Ethtool interface {
	Driver(dev string) (ethtool.Driver, error)
	Channels(dev string) (now, limit ethtool.Group, err error)
}

// Inventory reads every interface of the reader's network namespace and maps
// its queues, sorted by ifindex. An interface that vanishes while it is read
// stays in the list with what was read and a Problem. The error is that of a
// host whose interfaces cannot be listed at all, or of ctx.
func Inventory(ctx context.Context, src Sources) ([]NIC, error) {
	entries, err := src.FS.ReadDir(classNet)
	if err != nil {
		return nil, fmt.Errorf("list interfaces: %w", err)
	}
	s := scan{Sources: src, netns: readNetns(src.FS)}
	for _, e := range entries {
		if err := ctx.Err(); err != nil {
			return nil, fmt.Errorf("list interfaces: %w", err)
		}
		// bonding_masters is a plain file of the same folder.
		if _, err := src.FS.Readlink(path.Join(classNet, e.Name())); err != nil {
			continue
		}
		if d := s.device(e.Name()); d != nil {
			s.devices = append(s.devices, d)
		}
	}
	slices.SortFunc(s.devices, func(a, b *device) int { return a.IfIndex - b.IfIndex })
	s.pairVFs()
	s.irqs = readIRQs(src.FS, s.devices)
	out := make([]NIC, 0, len(s.devices))
	for _, d := range s.devices {
		if err := ctx.Err(); err != nil {
			return nil, fmt.Errorf("map queues: %w", err)
		}
		s.mapQueues(d)
		s.recheck(d)
		out = append(out, d.NIC)
	}
	return out, nil
}

// scan is one inventory in the making.
type scan struct {
	Sources
	netns   uint64
	devices []*device
	irqs    *irqTable
}

// device is an interface and what is only needed while mapping.
type device struct {
	NIC
	real     string // its folder below /sys/devices
	parents  []parent
	rx, tx   []int // queue folders
	channels int   // rx channels by ethtool, 0 unknown
	identity identity
}

// parent is one bus device above an interface, nearest first.
type parent struct {
	path      string
	name      string // last element: 0000:00:03.0, virtio2, 1-1:1.0, 30be0000.ethernet
	subsystem string // pci, virtio, usb, platform, vmbus, xen, …
	msi       []int  // IRQs of msi_irqs
	msiEmpty  bool   // the folder exists and holds nothing
	irq       int    // the irq file, None where absent or meaningless
}

// identity is what an interface name means at one moment; a rename or a
// re-plug in between changes it.
type identity struct {
	ifindex int
	real    string
}

// device reads one interface; nil when it has gone before anything was read.
func (s *scan) device(name string) *device {
	dir := path.Join(classNet, name)
	real, err := resolve(s.FS, dir)
	if err != nil {
		return nil
	}
	d := &device{NIC: NIC{Name: name, Netns: s.netns, Node: None}, real: real}
	if d.IfIndex, err = readInt(s.FS, path.Join(dir, "ifindex")); err != nil {
		return nil
	}
	d.identity = identity{d.IfIndex, real}
	d.MTU, _ = readInt(s.FS, path.Join(dir, "mtu"))
	d.MAC, _ = readText(s.FS, path.Join(dir, "address"))
	if n, err := readInt(s.FS, path.Join(dir, "speed")); err == nil && n > 0 {
		d.SpeedMb = n // −1 and EINVAL mean unknown, net/core/net-sysfs.c speed_show
	}
	flags, _ := readText(s.FS, path.Join(dir, "flags"))
	if f, err := strconv.ParseUint(flags, 0, 32); err == nil {
		d.Up = f&1 != 0 // IFF_UP
	}
	if link, err := s.FS.Readlink(path.Join(dir, "master")); err == nil {
		d.Master = path.Base(link)
	}
	if list, err := s.FS.ReadDir(dir); err == nil {
		for _, e := range list {
			if l, ok := strings.CutPrefix(e.Name(), "lower_"); ok {
				d.Lower = append(d.Lower, l)
			}
		}
		slices.Sort(d.Lower)
	}
	s.classify(dir, d)
	s.readQueues(dir, d)
	s.identify(d)
	return d
}

// classify finds the bus device, the kind and a driver name from sysfs.
func (s *scan) classify(dir string, d *device) {
	uevent, _ := readText(s.FS, path.Join(dir, "uevent"))
	devtype := ""
	for line := range strings.Lines(uevent) {
		if v, ok := strings.CutPrefix(strings.TrimSpace(line), "DEVTYPE="); ok {
			devtype = v
		}
	}
	hardware, _ := readText(s.FS, path.Join(dir, "type"))
	link, err := s.FS.Readlink(path.Join(dir, "device"))
	switch {
	case hardware == "772": // ARPHRD_LOOPBACK
		d.Kind = Loopback
	case devtype == "dsa":
		// A DSA user port has the switch as its device, but its packets arrive
		// at the conduit (net/dsa/user.c: SET_NETDEV_DEV(user_dev, port->ds->dev)).
		d.Kind = Stack
	case err == nil:
		d.Kind = Physical
		s.readParents(d, path.Join(d.real, link))
	case len(d.Lower) > 0 || slices.Contains(stackTypes, devtype):
		d.Kind = Stack
	default:
		d.Kind = Virtual
	}
	if d.Driver == "" {
		d.Driver = devtype
	}
	if _, err := s.FS.ReadFile(path.Join(dir, "tun_flags")); err == nil {
		d.Driver = "tun" // tun and tap set no DEVTYPE
	}
}

// stackTypes are DEVTYPEs of devices that stand on others even when they have
// none yet (an empty bond). Source: SET_NETDEV_DEVTYPE in drivers/net, net/8021q, net/bridge.
var stackTypes = []string{"bond", "team", "bridge", "vlan", "macvlan", "ipvlan", "dsa"}

// readParents follows the bus devices above an interface up to the first that
// can hold interrupts: its own PCI function, virtio's parent, the USB host
// controller.
func (s *scan) readParents(d *device, at string) {
	for at = path.Clean(at); strings.HasPrefix(at, "/sys/devices/"); at = path.Dir(at) {
		p := parent{path: at, name: path.Base(at), irq: None}
		if link, err := s.FS.Readlink(path.Join(at, "subsystem")); err == nil {
			p.subsystem = path.Base(link)
		}
		if p.subsystem == "" && len(d.parents) > 0 {
			break // a bus root such as pci0000:00 is no device
		}
		if link, err := s.FS.Readlink(path.Join(at, "driver")); err == nil && d.Driver == "" && p.subsystem != "usb_device" {
			d.Driver = path.Base(link)
		}
		if n, err := readInt(s.FS, path.Join(at, "numa_node")); err == nil && n >= 0 && d.Node == None {
			d.Node = n
		}
		if list, err := s.FS.ReadDir(path.Join(at, "msi_irqs")); err == nil {
			p.msiEmpty = len(list) == 0
			for _, e := range list {
				if n, err := strconv.Atoi(e.Name()); err == nil {
					p.msi = append(p.msi, n)
				}
			}
			slices.Sort(p.msi)
		}
		// The interrupt line of PCI is meaningless with MSI, and 0 and 255 mean
		// not connected (PCI Local Bus Specification 3.0, 6.2.4).
		if n, err := readInt(s.FS, path.Join(at, "irq")); err == nil && n > 0 && n != 255 && len(p.msi) == 0 {
			p.irq = n
		}
		d.parents = append(d.parents, p)
		if p.subsystem == "pci" || len(p.msi) > 0 {
			break
		}
	}
	if len(d.parents) == 0 {
		return
	}
	d.Bus = d.parents[0].name
	if last := d.parents[len(d.parents)-1]; d.parents[0].subsystem == "virtio" && last.subsystem == "pci" {
		d.Bus = last.name // as virtio_bus_name of drivers/virtio/virtio_pci_common.c
	}
}

func (s *scan) readQueues(dir string, d *device) {
	list, err := s.FS.ReadDir(path.Join(dir, "queues"))
	if err != nil {
		return // a kernel without CONFIG_RPS and CONFIG_XPS has no such folder
	}
	for _, e := range list {
		if n, ok := numbered(e.Name(), "rx-"); ok {
			d.rx = append(d.rx, n)
		}
		if n, ok := numbered(e.Name(), "tx-"); ok {
			d.tx = append(d.tx, n)
		}
	}
	slices.Sort(d.rx)
	slices.Sort(d.tx)
}

// identify asks the driver itself.
func (s *scan) identify(d *device) {
	if s.Ethtool == nil || d.Kind == Loopback {
		return
	}
	if info, err := s.Ethtool.Driver(d.Name); err == nil {
		d.Version, d.Firmware = info.Version, info.Firmware
		if info.Name != "" {
			d.Driver = info.Name
		}
		if d.Bus == "" && d.Kind == Physical {
			d.Bus = info.Bus
		}
	}
	if now, _, err := s.Ethtool.Channels(d.Name); err == nil {
		d.channels = int(now["rx"] + now["combined"])
	}
}

// recheck notes an interface that went away, was renamed or was replaced
// while it was read: its map may mix two devices.
func (s *scan) recheck(d *device) {
	dir := path.Join(classNet, d.Name)
	real, err := resolve(s.FS, dir)
	if err != nil {
		d.problem("%s went away or was renamed while it was read", d.Name)
		return
	}
	n, err := readInt(s.FS, path.Join(dir, "ifindex"))
	switch {
	case err != nil:
		d.problem("%s went away while it was read", d.Name)
	case (identity{n, real}) != d.identity:
		d.problem("%s was replaced while it was read: ifindex %d became %d", d.Name, d.identity.ifindex, n)
	}
}

// pairVFs joins a synthetic device to the virtual function that carries its
// traffic: hv_netvsc makes the VF its lower device (netvsc_vf_join in
// drivers/net/hyperv/netvsc_drv.c); without that link the pair is known by the
// same MAC address, the rule Hyper-V itself uses (get_netvsc_byslot, netvsc_register_vf).
func (s *scan) pairVFs() {
	for _, d := range s.devices {
		if fact(d.Driver, PairsWithVF) == nil {
			continue
		}
		for _, v := range s.devices {
			if v == d || v.Kind != Physical || v.MAC == "" || v.MAC != d.MAC {
				continue
			}
			if !slices.Contains(d.Lower, v.Name) {
				d.Lower = append(d.Lower, v.Name)
				slices.Sort(d.Lower)
			}
			if v.Master == "" {
				v.Master = d.Name
			}
			d.note("packets of %s arrive on its virtual function %s while that is up; the synthetic queues carry the rest", d.Name, v.Name)
		}
	}
}

func (d *device) problem(format string, args ...any) {
	if p := fmt.Sprintf(format, args...); !slices.Contains(d.Problems, p) {
		d.Problems = append(d.Problems, p)
	}
}

func (d *device) note(format string, args ...any) {
	if n := fmt.Sprintf(format, args...); !slices.Contains(d.Notes, n) {
		d.Notes = append(d.Notes, n)
	}
}

// readNetns returns the inode of the reader's network namespace, 0 unknown.
func readNetns(f host.FS) uint64 {
	link, err := f.Readlink("/proc/thread-self/ns/net") // net:[4026531840], of the reading thread
	if err != nil {
		if link, err = f.Readlink("/proc/self/ns/net"); err != nil {
			return 0
		}
	}
	_, n, _ := strings.Cut(strings.TrimSuffix(link, "]"), "[")
	inode, _ := strconv.ParseUint(n, 10, 64)
	return inode
}

// resolve returns the folder a link stands for.
func resolve(f host.FS, link string) (string, error) {
	to, err := f.Readlink(link)
	if err != nil {
		return "", err
	}
	if path.IsAbs(to) {
		return path.Clean(to), nil
	}
	return path.Join(path.Dir(link), to), nil
}

func readText(f host.FS, p string) (string, error) {
	b, err := f.ReadFile(p)
	return strings.TrimSpace(strings.Trim(string(b), "\x00")), err
}

func readInt(f host.FS, p string) (int, error) {
	t, err := readText(f, p)
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(t)
}

func readMask(f host.FS, p string) (cpuset.Set, error) {
	t, err := readText(f, p)
	if err != nil {
		return cpuset.Set{}, err
	}
	return cpuset.ParseMask(t)
}

func readList(f host.FS, p string) (cpuset.Set, error) {
	t, err := readText(f, p)
	if err != nil {
		return cpuset.Set{}, err
	}
	return cpuset.ParseList(t)
}

func numbered(s, prefix string) (int, bool) {
	t, ok := strings.CutPrefix(s, prefix)
	if !ok {
		return 0, false
	}
	n, err := strconv.Atoi(t)
	return n, err == nil && n >= 0
}

// absent reports an error that means "there is none" rather than "failed".
func absent(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, ethtool.ErrNotSupported) || errors.Is(err, ethtool.ErrNoDevice)
}

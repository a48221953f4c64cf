package knob

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strconv"
	"strings"
)

// Snapshot reads every setting of the host and of the named devices (all of this network
// namespace when none is named). It fails only when the host cannot be identified,
// a named device does not exist or ctx ends; what cannot be read is unknown.
func (m *Machine) Snapshot(ctx context.Context, devices ...string) (*Snapshot, error) {
	return m.take(ctx, devices, m.listSysctls(), m.device)
}

// Spreading is a Snapshot of nothing but how devices spread packets over their queues: RSS, hash fields and features. It
// takes a small part of the time, for who asks every second.
func (m *Machine) Spreading(ctx context.Context, devices ...string) (*Snapshot, error) {
	return m.take(ctx, devices, nil, func(name string) (Device, []Setting, error) {
		d, err := m.identify(name)
		if err != nil || m.c.Ethtool == nil {
			return d, nil, err
		}
		rss, size := m.listRSS(name)
		d.Table = size
		return d, append(rss, m.listFeatures(name)...), nil
	})
}

func (m *Machine) take(ctx context.Context, devices []string, settings []Setting, read func(device string) (Device, []Setting, error)) (*Snapshot, error) {
	id, err := m.Identity(ctx)
	if err != nil {
		return nil, fmt.Errorf("take snapshot: %w", err)
	}
	names := devices
	if len(names) == 0 {
		if names, err = m.deviceNames(); err != nil {
			return nil, fmt.Errorf("take snapshot: %w", err)
		}
	}
	s := &Snapshot{Version: SnapshotVersion, Taken: m.c.Now().UTC(), Host: id, Settings: settings}
	names = slices.Clone(names)
	slices.Sort(names)
	for _, name := range slices.Compact(names) {
		if err := ctx.Err(); err != nil {
			return nil, fmt.Errorf("take snapshot: %w", err)
		}
		d, set, err := read(name)
		switch {
		case errors.Is(err, fs.ErrNotExist) && len(devices) == 0:
			continue // gone since the listing
		case err != nil:
			return nil, fmt.Errorf("take snapshot of %s: %w", name, err)
		}
		s.Devices = append(s.Devices, d)
		s.Settings = append(s.Settings, set...)
	}
	s.Sort()
	return s, nil
}

// Identity tells which host this is, in which boot and network namespace.
func (m *Machine) Identity(context.Context) (Identity, error) {
	var id Identity
	var err error
	// Captured files may lack either.
	if id.BootID, err = m.readText("/proc/sys/kernel/random/boot_id"); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return id, err
	}
	if id.Kernel, err = m.readText("/proc/sys/kernel/osrelease"); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return id, err
	}
	// The thread's namespace, which is the process's unless somebody entered another.
	// A bundle has no link: 0.
	for _, p := range [...]string{"/proc/thread-self/ns/net", "/proc/self/ns/net"} {
		if l, err := m.c.FS.Readlink(p); err == nil {
			n := strings.TrimSuffix(strings.TrimPrefix(l, "net:["), "]")
			id.Netns, _ = strconv.ParseUint(n, 10, 64)
			break
		}
	}
	if v := m.readList("", "/sys/devices/system/cpu/online"); v.Known() {
		id.CPUs = v.String()
	}
	return id, nil
}

// deviceNames lists /sys/class/net without plain files (bonding_masters).
func (m *Machine) deviceNames() ([]string, error) {
	es, err := m.c.FS.ReadDir("/sys/class/net")
	if err != nil {
		return nil, err
	}
	var out []string
	for _, e := range es {
		if e.Type().IsRegular() {
			continue
		}
		out = append(out, e.Name())
	}
	return out, nil
}

// identify tells which device a name is.
func (m *Machine) identify(name string) (Device, error) {
	d := Device{Name: name}
	if !validDevice(name) {
		return d, fmt.Errorf("no such device: %w", fs.ErrNotExist)
	}
	index, err := m.readText("/sys/class/net/" + name + "/ifindex")
	if err != nil {
		return d, fmt.Errorf("no such device: %w", err)
	}
	d.Driver = m.driver(name)
	d.IfIndex, _ = strconv.Atoi(index)
	return d, nil
}

func (m *Machine) device(name string) (Device, []Setting, error) {
	d, err := m.identify(name)
	if err != nil {
		return d, nil, err
	}
	if l, err := m.c.FS.Readlink("/sys/class/net/" + name + "/device"); err == nil {
		d.Bus = l[strings.LastIndexByte(l, '/')+1:]
	}
	rx, tx := m.queues(name)
	d.RXQueues, d.TXQueues = len(rx), len(tx)

	t := Target(name)
	set := settings(t, MTU, readMTU(m, Ref{MTU, t}))
	set = append(set, m.listEthtool(&d)...)
	for _, q := range rx {
		t := On(name, "rx-%d", q)
		set = append(set, settings(t, RPSCPUs, readRPS(m, Ref{RPSCPUs, t}), RPSFlowCnt, readRPS(m, Ref{RPSFlowCnt, t}))...)
	}
	for _, q := range tx {
		t := On(name, "tx-%d", q)
		set = append(set, settings(t, XPSCPUs, readXPS(m, Ref{XPSCPUs, t}), XPSRXQs, readXPS(m, Ref{XPSRXQs, t}))...)
	}
	set = append(set, m.listIRQs(name)...)
	set = append(set, m.listNAPI(name)...)
	return d, set, nil
}

// queues lists the live queues of /sys/class/net/<if>/queues.
func (m *Machine) queues(name string) (rx, tx []int) {
	es, err := m.c.FS.ReadDir("/sys/class/net/" + name + "/queues")
	if err != nil {
		return nil, nil
	}
	for _, e := range es {
		kind, num, _ := strings.Cut(e.Name(), "-")
		n, err := strconv.Atoi(num)
		if err != nil || n < 0 {
			continue
		}
		switch kind {
		case "rx":
			rx = append(rx, n)
		case "tx":
			tx = append(tx, n)
		}
	}
	slices.Sort(rx)
	slices.Sort(tx)
	return rx, tx
}

// listEthtool reads all of a device's ethtool settings, each message once, and
// completes d.
func (m *Machine) listEthtool(d *Device) []Setting {
	t := Target(d.Name)
	if m.c.Ethtool == nil {
		v := Unknown(m.c.EthtoolReason)
		return settings(t, Channels, v, ChannelsMax, v, Rings, v, RingsMax, v, Coalesce, v,
			RSSTable, v, RSSKey, v, RSSFunction, v, Features, v, Pause, v, PrivateFlags, v, FEC, v)
	}
	if info, err := m.c.Ethtool.Driver(d.Name); err == nil {
		d.Driver, d.Version, d.Firmware = info.Name, info.Version, info.Firmware
		if info.Bus != "" && d.Bus != "" {
			d.Bus = info.Bus // virtio tells the PCI address of its parent
		}
	}
	var link Value
	if l, err := m.c.Ethtool.Link(d.Name); err == nil {
		d.SpeedMb, link = l.SpeedMb, linkValue(l)
	} else {
		link = m.unread(d.Name, err)
	}
	ch, chMax := m.channels(d.Name)
	rings, ringsMax := m.rings(d.Name)
	set := settings(t,
		Channels, ch, ChannelsMax, chMax,
		Rings, rings, RingsMax, ringsMax,
		Coalesce, m.coalesce(d.Name),
		LinkState, link,
		Pause, readPause(m, Ref{Pause, t}),
		PrivateFlags, readFlags(m, Ref{PrivateFlags, t}),
		FEC, readFEC(m, Ref{FEC, t}))
	if n := min(d.RXQueues, d.TXQueues); n > 0 {
		set = append(set, m.listQueueCoalesce(d.Name, n)...)
	}
	rss, size := m.listRSS(d.Name)
	d.Table = size
	set = append(set, rss...)
	set = append(set, m.listRules(d.Name)...)
	return append(set, m.listFeatures(d.Name)...)
}

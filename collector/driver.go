package collector

import (
	"bytes"
	"errors"
	"path"
	"slices"
	"strconv"
	"time"

	"github.com/rxsteer/rxsteer/internal/ethtool"
	"github.com/rxsteer/rxsteer/internal/host"
	"github.com/rxsteer/rxsteer/internal/host/nic"
)

// Driver is what a device's driver counts beside the kernel: drops of the ring, pauses,
// errors of the link. A device that is not listed was not read, or has no driver.
type Driver struct {
	Device  string `json:"device"`
	IfIndex int    `json:"ifindex"`
	Name    string `json:"driver"` // "" not known
	// Told are the kinds of counters this driver has, sorted: one that is told and not among
	// Counters stood still.
	Told     []nic.FactKind  `json:"told"`
	Counters []DriverCounter `json:"counters"` // what grew, in the driver's order
}

// DriverCounter is one statistic whose meaning the quirk table of package nic knows. Different counters
// of one kind may count the same packets: do not add up those of different scope.
type DriverCounter struct {
	Name  string       `json:"name"` // as ethtool -S prints it, or a file of /sys/class/net/IF
	Kind  nic.FactKind `json:"kind"`
	Scope nic.Scope    `json:"scope"`
	Queue int          `json:"queue"` // rx queue where Scope is nic.ScopeQueue, else -1
	Count uint64       `json:"count"`
}

// NewDriver is the reading of a device's statistics, names as ethtool -S prints them.
func NewDriver(device string, ifindex int, driver string, stats []ethtool.Stat) Driver {
	d := Driver{Device: device, IfIndex: ifindex, Name: driver, Told: []nic.FactKind{}, Counters: []DriverCounter{}}
	for _, c := range nic.Counters(driver, stats) {
		d.Told = append(d.Told, c.Kind)
		d.Counters = append(d.Counters, DriverCounter{Name: c.Name, Kind: c.Kind, Scope: c.Scope, Queue: c.Queue, Count: c.Value})
	}
	slices.Sort(d.Told)
	d.Told = slices.Compact(d.Told)
	return d
}

// Statistics reads what drivers count, as ethtool.Client does: with its errors.
type Statistics interface {
	Stats(device string) ([]ethtool.Stat, error)
	Driver(device string) (ethtool.Driver, error)
}

// driverShare bounds the time spent on the statistics of drivers: drivers ask their device for
// them, some for milliseconds. They are read again when 500 times as long as that took has passed:
// 0.2 % of a CPU.
const driverShare = 500

// driverSource keeps what was read last.
type driverSource struct {
	drivers []Driver
	missing []Unmeasured
	next    time.Time // not to be read before
}

// read adds the drivers' statistics to a reading.
func (s *driverSource) read(r *Reading, c *Config) {
	from, now := c.Statistics, c.Now
	if from == nil {
		return
	}
	start := now()
	if s.drivers != nil && start.Before(s.next) {
		r.Drivers = s.drivers // as they were: what grew since shows in a later sample
		r.Unmeasured = append(r.Unmeasured, s.missing...)
		return
	}
	had := len(r.Unmeasured)
	r.readDrivers(c)
	s.missing = slices.Clone(r.Unmeasured[had:])
	end := now()
	s.drivers, s.next = r.Drivers, end.Add(driverShare*end.Sub(start))
}

// xdp is the devices that have an XDP program, by ifindex.
func (r *Reading) xdp(list func() ([]nic.XDP, error)) map[int]bool {
	if list == nil {
		return nil
	}
	all, err := list()
	if err != nil {
		r.unmeasured("which devices have an XDP program", err)
	}
	on := map[int]bool{}
	for _, x := range all {
		on[x.IfIndex] = true
	}
	return on
}

// readDrivers reads the statistics of every device that has a driver of its own, and of those that XDP programs run on.
func (r *Reading) readDrivers(c *Config) {
	fsys, from := c.FS, c.Statistics
	r.Drivers = []Driver{}
	xdp := r.xdp(c.XDP)
	for _, dev := range r.Devices {
		dir := "/sys/class/net/" + dev.Name
		name := ""
		switch link, err := fsys.Readlink(dir + "/device/driver"); {
		case err == nil:
			name = path.Base(link)
		case !xdp[dev.IfIndex]:
			continue // a virtual device, or gone
		default:
			d, _ := from.Driver(dev.Name) // some have none
			name = d.Name
		}
		stats, err := from.Stats(dev.Name)
		if err != nil && !errors.Is(err, ethtool.ErrNotSupported) {
			if errors.Is(err, ethtool.ErrNoDevice) {
				continue
			}
			r.unmeasured("driver counters of "+dev.Name, err)
			continue
		}
		if n, err := carrierDowns(fsys, dir); err == nil {
			stats = append(stats, n)
		}
		d := NewDriver(dev.Name, dev.IfIndex, name, stats)
		r.Drivers = append(r.Drivers, d)
		if xdp[dev.IfIndex] && !slices.Contains(d.Told, nic.XDPDropped) {
			r.unmeasured("what XDP does on "+dev.Name, errors.New("its driver does not count it, and the kernel tells of errors and redirected packets only"))
		}
	}
}

// carrierDowns is how often the link was lost since the device is there.
func carrierDowns(fsys host.FS, dir string) (ethtool.Stat, error) {
	const name = "carrier_down_count"
	text, err := fsys.ReadFile(dir + "/" + name)
	if err != nil {
		return ethtool.Stat{}, err
	}
	n, err := strconv.ParseUint(string(bytes.TrimSpace(text)), 10, 64)
	return ethtool.Stat{Name: name, Value: n}, err
}

// drivers lists what grew. A device that is new has counted from 0; one whose statistics were not
// read at the beginning is left out.
func (d *difference) drivers() {
	if d.cur.Drivers == nil {
		return
	}
	d.s.Drivers = []Driver{}
	for _, now := range d.cur.Drivers {
		was := slices.IndexFunc(d.prev.Drivers, func(x Driver) bool { return x.IfIndex == now.IfIndex })
		if was < 0 && slices.ContainsFunc(d.prev.Devices, func(x Device) bool { return x.IfIndex == now.IfIndex }) {
			continue
		}
		before := map[string]uint64{}
		if was >= 0 {
			for _, c := range d.prev.Drivers[was].Counters {
				before[c.Name] = c.Count
			}
		}
		grew := now
		grew.Counters = []DriverCounter{}
		for _, c := range now.Counters {
			if c.Count = d.upDevice(now.Device, before[c.Name], c.Count); c.Count > 0 {
				grew.Counters = append(grew.Counters, c)
			}
		}
		d.s.Drivers = append(d.s.Drivers, grew)
	}
}

func (d *Driver) add(o *Driver) {
	d.Device, d.IfIndex, d.Name, d.Told = o.Device, o.IfIndex, o.Name, o.Told
	if d.Counters == nil {
		d.Counters = []DriverCounter{}
	}
	next := 0 // drivers tell them in one order, of which those that grew are here
	for _, c := range o.Counters {
		same := func(x DriverCounter) bool { return x.Name == c.Name }
		i := slices.IndexFunc(d.Counters[next:], same) + next
		if i < next {
			i = slices.IndexFunc(d.Counters[:next], same)
		}
		if i < 0 {
			d.Counters = append(d.Counters, c)
			continue
		}
		d.Counters[i].Count += c.Count
		next = i + 1
	}
}

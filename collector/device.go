package collector

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/rxsteer/rxsteer/internal/host"
)

// readDevices reads the counters of the reader's own network namespace:
// /proc/net/dev prints those of rtnl_link_stats64, and sysfs what it adds up.
func (r *Reading) readDevices(fsys host.FS) {
	const what = "device counters"
	r.Devices = read(r, fsys, what, "/proc/net/dev", parseNetDev)
	listed := r.Devices[:0]
	for _, dev := range r.Devices {
		dir := "/sys/class/net/" + dev.Name
		index, err := readNumber(fsys, dir+"/ifindex")
		if errors.Is(err, fs.ErrNotExist) {
			continue // it vanished meanwhile
		}
		if err != nil {
			r.unmeasured(what, err)
			continue
		}
		dev.IfIndex = int(index)
		if dev.RXDropped > 0 {
			// /proc/net/dev shows rx_dropped + rx_missed_errors (dev_seq_printf_stats,
			// net/core/net-procfs.c).
			missed, err := readNumber(fsys, dir+"/statistics/rx_missed_errors")
			if err != nil && !errors.Is(err, fs.ErrNotExist) {
				r.unmeasured(what, err)
			}
			dev.RXMissed = min(missed, dev.RXDropped)
			dev.RXDropped -= dev.RXMissed
		}
		listed = append(listed, dev)
	}
	r.Devices = listed
	slices.SortFunc(r.Devices, compareDevices)
	r.Netns = ownNetns(fsys)
}

// parseNetDev reads /proc/net/dev: after two lines of header, per device
// "name: bytes packets errs drop fifo frame compressed multicast" of
// reception and "bytes packets errs drop …" of transmission.
func parseNetDev(file string, text []byte) ([]Device, error) {
	devices := []Device{}
	for n, line := range strings.Split(string(text), "\n") {
		if n < 2 || strings.TrimSpace(line) == "" {
			continue
		}
		i := strings.LastIndexByte(line, ':')
		if i < 0 {
			return nil, fmt.Errorf("parse %s:%d: no device name", file, n+1)
		}
		fields := strings.Fields(line[i+1:])
		if len(fields) < 16 {
			return nil, fmt.Errorf("parse %s:%d: %d counters, 16 are expected", file, n+1, len(fields))
		}
		var v [12]uint64
		for j := range v {
			var err error
			if v[j], err = strconv.ParseUint(fields[j], 10, 64); err != nil {
				return nil, fmt.Errorf("parse %s:%d: counter %d is not a number", file, n+1, j+1)
			}
		}
		devices = append(devices, Device{
			Name:    strings.TrimSpace(line[:i]),
			RXBytes: v[0], RXPackets: v[1], RXErrors: v[2], RXDropped: v[3],
			TXBytes: v[8], TXPackets: v[9], TXDropped: v[11],
		})
	}
	return devices, nil
}

func readNumber(fsys host.FS, path string) (uint64, error) {
	text, err := fsys.ReadFile(path)
	if err != nil {
		return 0, err
	}
	v, err := strconv.ParseUint(string(bytes.TrimSpace(text)), 10, 64)
	if err != nil {
		return 0, fmt.Errorf("parse %s: not a number", path)
	}
	return v, nil
}

// ownNetns is the inode in the link "net:[4026531840]", 0 not known.
func ownNetns(fsys host.FS) uint64 { return netnsOf(fsys, "/proc/thread-self/ns/net") }

// netnsOf is the inode of the network namespace that a file of /proc stands for, 0 not known.
func netnsOf(fsys host.FS, file string) uint64 {
	link, err := fsys.Readlink(file)
	if err != nil {
		return 0
	}
	text, ok := strings.CutPrefix(link, "net:[")
	if !ok {
		return 0
	}
	inode, err := strconv.ParseUint(strings.TrimSuffix(text, "]"), 10, 64)
	if err != nil {
		return 0
	}
	return inode
}

// devices lists the devices there at the end. One that was renamed keeps its
// ifindex; one that is new has counted from 0.
func (d *difference) devices() {
	before := map[int]*Device{}
	for i := range d.prev.Devices {
		before[d.prev.Devices[i].IfIndex] = &d.prev.Devices[i]
	}
	for _, now := range d.cur.Devices {
		was := before[now.IfIndex]
		delete(before, now.IfIndex)
		if was == nil {
			was = &Device{}
		}
		up := func(prev, cur uint64) uint64 { return d.upDevice(now.Name, prev, cur) }
		d.s.Devices = append(d.s.Devices, Device{
			Name: now.Name, IfIndex: now.IfIndex,
			RXPackets: up(was.RXPackets, now.RXPackets),
			RXBytes:   up(was.RXBytes, now.RXBytes),
			RXDropped: up(was.RXDropped, now.RXDropped),
			RXMissed:  up(was.RXMissed, now.RXMissed),
			RXErrors:  up(was.RXErrors, now.RXErrors),
			TXPackets: up(was.TXPackets, now.TXPackets),
			TXBytes:   up(was.TXBytes, now.TXBytes),
			TXDropped: up(was.TXDropped, now.TXDropped),
		})
	}
	if d.cur.Devices == nil {
		return // not read: noted
	}
	for _, gone := range before {
		d.note(gone.Name, "the device vanished during the interval: what it counted last is not known")
	}
}

// upDevice is the difference of a device's counter: drivers keep 32 or 64 bits.
// Bytes of 100 Gbit/s take 0.3 s to wrap 32 bits, but drivers that fast keep 64.
func (d *difference) upDevice(name string, prev, cur uint64) uint64 {
	if cur < prev && prev <= math.MaxUint32 {
		return d.up32(deviceSubject(name), prev, cur)
	}
	return d.up64(deviceSubject(name), prev, cur)
}

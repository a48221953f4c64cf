package knob

import (
	"errors"
	"io/fs"
	"path"
	"syscall"

	"github.com/rxsteer/rxsteer/internal/ethtool"
)

// unread is the value of a setting whose read failed with err: absent where the
// device or kernel has no such setting, unknown where it may have one.
func (m *Machine) unread(dev string, err error) Value {
	switch no, _ := errnoOf(err); no {
	case syscall.ENOSYS:
		return Absent("this kernel does not offer it")
	case syscall.EOPNOTSUPP, syscall.ENOTTY:
		if d := m.driver(dev); d != "" {
			return Absent("driver " + d + " does not offer it")
		}
		return Absent("the device does not offer it")
	case syscall.ENODEV, syscall.ENXIO:
		return Absent("no such device " + dev)
	case syscall.ENOENT, syscall.ENOTDIR:
		return Absent(noSetting)
	case syscall.EACCES, syscall.EPERM:
		return Unknown("needs root")
	}
	return Unknown(err.Error())
}

// noSetting is the reason when the file of a setting is not there.
const noSetting = "this kernel or device has no such setting"

// errnoOf finds the errno in an error of a file, an ioctl, netlink or a sentinel.
func errnoOf(err error) (syscall.Errno, bool) {
	var no syscall.Errno
	if errors.As(err, &no) {
		return no, true
	}
	for _, s := range [...]struct {
		is error
		no syscall.Errno
	}{
		{ethtool.ErrNotSupported, syscall.EOPNOTSUPP},
		{ethtool.ErrNoDevice, syscall.ENODEV},
		{ethtool.ErrNotFound, syscall.ENOENT},
		{ethtool.ErrPermission, syscall.EPERM},
		{ethtool.ErrBusy, syscall.EBUSY},
		{ethtool.ErrInvalid, syscall.EINVAL},
		{ethtool.ErrNoSpace, syscall.ENOSPC},
		{ethtool.ErrDown, syscall.ENETDOWN},
		{fs.ErrNotExist, syscall.ENOENT},
		{fs.ErrPermission, syscall.EACCES},
	} {
		if errors.Is(err, s.is) {
			return s.no, true
		}
	}
	return 0, false
}

// driver is the name of a device's driver, "" for virtual devices.
func (m *Machine) driver(dev string) string {
	if !validDevice(dev) {
		return ""
	}
	l, err := m.c.FS.Readlink("/sys/class/net/" + dev + "/device/driver")
	if err != nil {
		return ""
	}
	return path.Base(l)
}

// Meaning says in one sentence what an error of Write means for this setting, or ""
// when the errno says nothing beyond its text.
func Meaning(r Ref, err error) string {
	switch {
	case err == nil:
		return ""
	case errors.Is(err, ErrMoved):
		return "someone else changed it since it was read: left alone"
	case errors.Is(err, ErrReadOnly):
		return "this is reported by the kernel and cannot be set"
	case errors.Is(err, errNotOurs):
		return "the vector does not belong to the device any more: read the map again"
	}
	no, ok := errnoOf(err)
	if !ok {
		return ""
	}
	if f, ok := familyOf(r.Knob); ok && f.meaning != nil {
		if s := f.meaning(r, no); s != "" {
			return s
		}
	}
	switch no {
	case syscall.EOPNOTSUPP, syscall.ENOTTY, syscall.ENOSYS:
		return "this device or kernel does not offer the operation: permanent"
	case syscall.EACCES, syscall.EPERM:
		return "needs root in the device's network namespace"
	case syscall.EROFS:
		return "/sys or /proc is mounted read-only here, as in most containers: run where they are writable"
	case syscall.EBUSY:
		return "in use: an AF_XDP socket, an RSS context, an XDP program or a rule holds it"
	case syscall.ENODEV, syscall.ENXIO, syscall.ENOENT:
		return "the device, queue or vector is not there any more"
	case syscall.ENETDOWN:
		return "the device is down: bring it up first"
	case syscall.ENOMEM:
		return "the kernel could not allocate memory for it"
	case syscall.EINVAL, syscall.ERANGE:
		return "the driver or kernel refuses this value"
	case syscall.ENOSPC:
		return "no room left for it on the device"
	}
	return ""
}

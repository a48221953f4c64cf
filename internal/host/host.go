// Package host is the operating-system boundary of rxsteer: it reads and
// writes the kernel text interfaces (/proc, /sys, /run, /etc) through one small
// interface, so that the same code runs on this machine, on a folder of
// captured files (a bundle) and on the strict fake host of
// internal/host/hosttest.
//
// It refuses to interpret what it reads: meaning lives in the packages below
// (procfs: text formats, topo: CPUs, nic: the queue map, knob: settings).
package host

import (
	"bytes"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// FS is the file tree of a host. Paths are absolute as the host itself sees
// them ("/proc/interrupts", "/sys/class/net/eth0/mtu"). Errors wrap the
// usual fs.ErrNotExist, fs.ErrPermission and syscall.Errno values.
type FS interface {
	ReadFile(path string) ([]byte, error)
	// WriteFile writes data in one write(2) to an existing file, as sysfs and
	// procfs require; it never creates, truncates or renames.
	WriteFile(path string, data []byte) error
	ReadDir(path string) ([]fs.DirEntry, error)
	Readlink(path string) (string, error)
}

// Open is a file of a tree to be read bit by bit, for what is megabytes long; a tree that has no such reading hands over the whole.
func Open(fsys FS, path string) (io.ReadCloser, error) {
	if o, ok := fsys.(interface {
		Open(string) (io.ReadCloser, error)
	}); ok {
		return o.Open(path)
	}
	text, err := fsys.ReadFile(path)
	return io.NopCloser(bytes.NewReader(text)), err
}

// OS is the real file tree, optionally below another root ("/host" in a
// container that mounts the host there). Proc and Sys replace those two
// mount points when set; Root prefixes everything else.
type OS struct {
	Root string // "" means "/"
	Proc string // "" means Root + "/proc"
	Sys  string // "" means Root + "/sys"
}

// Path is where a path of the host is in this process's tree.
func (o OS) Path(p string) string {
	p = filepath.Join("/", p) // no way out of the roots by ".."
	switch {
	case o.Proc != "" && (p == "/proc" || strings.HasPrefix(p, "/proc/")):
		return filepath.Join(o.Proc, strings.TrimPrefix(p, "/proc"))
	case o.Sys != "" && (p == "/sys" || strings.HasPrefix(p, "/sys/")):
		return filepath.Join(o.Sys, strings.TrimPrefix(p, "/sys"))
	default:
		return filepath.Join("/", o.Root, p)
	}
}

func (o OS) ReadFile(p string) ([]byte, error)       { return os.ReadFile(o.Path(p)) }
func (o OS) Open(p string) (io.ReadCloser, error)    { return os.Open(o.Path(p)) }
func (o OS) ReadDir(p string) ([]fs.DirEntry, error) { return os.ReadDir(o.Path(p)) }
func (o OS) Readlink(p string) (string, error)       { return os.Readlink(o.Path(p)) }
func (o OS) WriteFile(p string, data []byte) (err error) {
	f, err := os.OpenFile(o.Path(p), os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	defer func() {
		if cerr := f.Close(); err == nil {
			err = cerr
		}
	}()
	// Not f.Write, which goes on after a short write: a second write(2) to such a file is a second value.
	for {
		n, err := syscall.Write(int(f.Fd()), data)
		switch {
		case err == syscall.EINTR && n <= 0:
			continue
		case err != nil:
			return &fs.PathError{Op: "write", Path: o.Path(p), Err: err}
		case n < len(data):
			return &fs.PathError{Op: "write", Path: o.Path(p), Err: io.ErrShortWrite}
		}
		return nil
	}
}

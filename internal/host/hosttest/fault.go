package hosttest

import (
	"errors"
	"io/fs"
	"sync"
	"syscall"

	"github.com/rxsteer/rxsteer/internal/ethtool"
	"github.com/rxsteer/rxsteer/internal/host"
)

// Faulty is a file tree whose n-th read or write fails, to prove that each single
// failure leaves a host that can be put back. Counting starts at 1; 0 never fails.
type Faulty struct {
	host.FS
	FailWrite int
	FailRead  int
	Err       error
	// After is called after a write that was done, with its number and its path or what
	// it sets: to change the host in between.
	After func(n int, what string)

	mu     sync.Mutex
	writes int
	reads  int
}

// Counts tells how many reads and writes there were.
func (f *Faulty) Counts() (reads, writes int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.reads, f.writes
}

func (f *Faulty) read(op, path string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.reads++; f.reads == f.FailRead {
		return pathError(op, path, f.Err)
	}
	return nil
}

// ReadFile implements host.FS.
func (f *Faulty) ReadFile(path string) ([]byte, error) {
	if err := f.read("read", path); err != nil {
		return nil, err
	}
	return f.FS.ReadFile(path)
}

// ReadDir implements host.FS.
func (f *Faulty) ReadDir(path string) ([]fs.DirEntry, error) {
	if err := f.read("readdir", path); err != nil {
		return nil, err
	}
	return f.FS.ReadDir(path)
}

// Readlink implements host.FS.
func (f *Faulty) Readlink(path string) (string, error) {
	if err := f.read("readlink", path); err != nil {
		return "", err
	}
	return f.FS.Readlink(path)
}

// WriteFile implements host.FS.
func (f *Faulty) WriteFile(path string, data []byte) error {
	return f.write(pathError("write", path, f.Err), path, func() error { return f.FS.WriteFile(path, data) })
}

// write counts one write of any kind; the one that shall fail returns failure and
// does nothing.
func (f *Faulty) write(failure error, what string, do func() error) error {
	f.mu.Lock()
	f.writes++
	n := f.writes
	f.mu.Unlock()
	if n == f.FailWrite {
		return failure
	}
	err := do()
	if err == nil && f.After != nil {
		f.After(n, what)
	}
	return err
}

// Ethtool is a client whose writes count and fail with those of the file tree.
// Its Err must be a syscall.Errno.
func (f *Faulty) Ethtool(e *Ethtool) *FaultyEthtool { return &FaultyEthtool{e, f} }

// FaultyEthtool is an Ethtool with the faults of a Faulty.
type FaultyEthtool struct {
	*Ethtool
	f *Faulty
}

func (e *FaultyEthtool) write(op, dev string, do func() error) error {
	var no syscall.Errno
	if !errors.As(e.f.Err, &no) {
		no = syscall.EIO
	}
	return e.f.write(refuse(op, dev, no, ""), op+" of "+dev, do)
}

// SetChannels and the others count as one write each.
func (e *FaultyEthtool) SetChannels(dev string, g ethtool.Group) error {
	return e.write("set channels", dev, func() error { return e.Ethtool.SetChannels(dev, g) })
}

func (e *FaultyEthtool) SetRings(dev string, g ethtool.Group) error {
	return e.write("set rings", dev, func() error { return e.Ethtool.SetRings(dev, g) })
}

func (e *FaultyEthtool) SetCoalesce(dev string, g ethtool.Group) error {
	return e.write("set coalesce", dev, func() error { return e.Ethtool.SetCoalesce(dev, g) })
}

func (e *FaultyEthtool) SetQueueCoalesce(dev string, queue int, g ethtool.Group) error {
	return e.write("set queue coalesce", dev, func() error { return e.Ethtool.SetQueueCoalesce(dev, queue, g) })
}

func (e *FaultyEthtool) CreateRSS(dev string, context uint32, table []int) error {
	return e.write("create rss context", dev, func() error { return e.Ethtool.CreateRSS(dev, context, table) })
}

func (e *FaultyEthtool) DeleteRSS(dev string, context uint32) error {
	return e.write("delete rss context", dev, func() error { return e.Ethtool.DeleteRSS(dev, context) })
}

func (e *FaultyEthtool) SetRSS(dev string, context uint32, change ethtool.RSSChange) error {
	return e.write("set rss", dev, func() error { return e.Ethtool.SetRSS(dev, context, change) })
}

func (e *FaultyEthtool) SetHashFields(dev, flow, fields string) error {
	return e.write("set hash fields", dev, func() error { return e.Ethtool.SetHashFields(dev, flow, fields) })
}

func (e *FaultyEthtool) InsertRule(dev string, r ethtool.Rule) error {
	return e.write("insert rule", dev, func() error { return e.Ethtool.InsertRule(dev, r) })
}

func (e *FaultyEthtool) DeleteRule(dev string, location uint32) error {
	return e.write("delete rule", dev, func() error { return e.Ethtool.DeleteRule(dev, location) })
}

func (e *FaultyEthtool) SetFeatures(dev string, change map[string]bool) error {
	return e.write("set features", dev, func() error { return e.Ethtool.SetFeatures(dev, change) })
}

func (e *FaultyEthtool) SetPause(dev string, g ethtool.Group) error {
	return e.write("set pause", dev, func() error { return e.Ethtool.SetPause(dev, g) })
}

func (e *FaultyEthtool) SetFEC(dev string, x ethtool.FEC) error {
	return e.write("set fec", dev, func() error { return e.Ethtool.SetFEC(dev, x) })
}

func (e *FaultyEthtool) SetPrivateFlags(dev string, change map[string]bool) error {
	return e.write("set private flags", dev, func() error { return e.Ethtool.SetPrivateFlags(dev, change) })
}

package hosttest

import (
	"io/fs"
	"sync"

	"github.com/rxsteer/rxsteer/internal/host"
)

// Faulty is a file tree whose n-th read or write fails, to prove that each single
// failure leaves a host that can be put back. Counting starts at 1; 0 never fails.
type Faulty struct {
	host.FS
	FailWrite int
	FailRead  int
	Err       error
	// After is called after a write that was done, with its number: to change the host in between.
	After func(n int, path string)

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
	f.mu.Lock()
	f.writes++
	n := f.writes
	f.mu.Unlock()
	if n == f.FailWrite {
		return pathError("write", path, f.Err)
	}
	err := f.FS.WriteFile(path, data)
	if err == nil && f.After != nil {
		f.After(n, path)
	}
	return err
}

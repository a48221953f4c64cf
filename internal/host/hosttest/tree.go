package hosttest

import (
	"io/fs"
	"path"
	"slices"
	"strings"
	"syscall"
	"time"
)

// node is one entry of the file tree: a folder, a link, or a file whose text is made
// when it is read.
type node struct {
	dir   map[string]*node
	link  string
	read  func() (string, error)
	write func(string) error
}

// add puts an entry at an absolute path and makes the folders above it.
func (n *node) add(p string, x *node) {
	parts := strings.Split(strings.Trim(p, "/"), "/")
	for _, s := range parts[:len(parts)-1] {
		c := n.dir[s]
		if c == nil {
			c = &node{dir: map[string]*node{}}
			n.dir[s] = c
		}
		n = c
	}
	n.dir[parts[len(parts)-1]] = x
}

func (n *node) text(p, text string) { n.file(p, func() string { return text + "\n" }, nil) }

func (n *node) folder(p string) { n.add(p, &node{dir: map[string]*node{}}) }

func (n *node) symlink(p, to string) { n.add(p, &node{link: to}) }

func (n *node) file(p string, read func() string, write func(string) error) {
	n.add(p, &node{read: func() (string, error) { return read(), nil }, write: write})
}

const maxLinks = 40 // MAXSYMLINKS, include/linux/namei.h

// find walks to a path. The last element is followed only when follow is set.
func (n *node) find(p string, follow bool) (*node, error) {
	links := 0
	at := []*node{n} // where we are, and the folders above
	for rest := p; rest != ""; {
		var s string
		s, rest, _ = strings.Cut(rest, "/")
		switch s {
		case "", ".":
			continue
		case "..":
			at = at[:max(len(at)-1, 1)]
			continue
		}
		cur := at[len(at)-1]
		if cur.dir == nil {
			return nil, syscall.ENOTDIR
		}
		next := cur.dir[s]
		if next == nil {
			return nil, syscall.ENOENT
		}
		if next.link == "" || rest == "" && !follow {
			at = append(at, next)
			continue
		}
		if links++; links > maxLinks {
			return nil, syscall.ELOOP
		}
		if path.IsAbs(next.link) {
			at = at[:1]
		}
		rest = next.link + "/" + rest
	}
	return at[len(at)-1], nil
}

func pathError(op, p string, err error) error {
	if err == nil {
		return nil
	}
	return &fs.PathError{Op: op, Path: p, Err: err}
}

// ReadFile implements host.FS.
func (h *Host) ReadFile(p string) ([]byte, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	n, err := h.root.find(p, true)
	if err == nil && n.dir != nil {
		err = syscall.EISDIR
	}
	if err != nil {
		return nil, pathError("read", p, err)
	}
	s, err := n.read()
	return []byte(s), pathError("read", p, err)
}

// WriteFile implements host.FS. Unknown and read-only paths fail the test too.
func (h *Host) WriteFile(p string, data []byte) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	n, err := h.root.find(p, true)
	switch {
	case err != nil:
		h.t.Errorf("fake host: write %q to %s: no such file", data, p)
	case n.dir != nil || n.write == nil:
		h.t.Errorf("fake host: write %q to %s, which cannot be written", data, p)
		err = syscall.EACCES
	default:
		h.writes = append(h.writes, p+" = "+strings.TrimSpace(string(data)))
		err = n.write(strings.TrimSpace(string(data)))
	}
	return pathError("write", p, err)
}

// ReadDir implements host.FS.
func (h *Host) ReadDir(p string) ([]fs.DirEntry, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	n, err := h.root.find(p, true)
	if err == nil && n.dir == nil {
		err = syscall.ENOTDIR
	}
	if err != nil {
		return nil, pathError("readdir", p, err)
	}
	out := make([]fs.DirEntry, 0, len(n.dir))
	for name, c := range n.dir {
		out = append(out, entry{name, c})
	}
	slices.SortFunc(out, func(a, b fs.DirEntry) int { return strings.Compare(a.Name(), b.Name()) })
	return out, nil
}

// Readlink implements host.FS.
func (h *Host) Readlink(p string) (string, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	n, err := h.root.find(p, false)
	if err == nil && n.link == "" {
		err = syscall.EINVAL
	}
	if err != nil {
		return "", pathError("readlink", p, err)
	}
	return n.link, nil
}

// entry is a fs.DirEntry and its own fs.FileInfo.
type entry struct {
	name string
	n    *node
}

func (e entry) Name() string               { return e.name }
func (e entry) IsDir() bool                { return e.n.dir != nil }
func (e entry) Type() fs.FileMode          { return e.Mode().Type() }
func (e entry) Info() (fs.FileInfo, error) { return e, nil }
func (e entry) Size() int64                { return 0 } // as procfs and most of sysfs say
func (e entry) ModTime() time.Time         { return time.Time{} }
func (e entry) Sys() any                   { return nil }
func (e entry) Mode() fs.FileMode {
	switch {
	case e.n.dir != nil:
		return fs.ModeDir | 0o555
	case e.n.link != "":
		return fs.ModeSymlink | 0o777
	case e.n.write != nil:
		return 0o644
	default:
		return 0o444
	}
}

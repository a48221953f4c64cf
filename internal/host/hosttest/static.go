package hosttest

import (
	"io/fs"
	"strings"
	"testing"

	"github.com/rxsteer/rxsteer/internal/host"
)

// Static is a read-only tree of files by absolute path; a text that starts with
// "-> " is a link, a path that ends with a slash an empty folder. Writing to it fails
// the test.
func Static(t testing.TB, files map[string]string) host.FS {
	root := &node{dir: map[string]*node{}}
	for _, p := range sortedKeys(files) {
		text := files[p]
		to, isLink := strings.CutPrefix(text, "-> ")
		switch {
		case strings.HasSuffix(p, "/"):
			if _, err := root.find(p, false); err != nil {
				root.folder(p)
			}
		case isLink:
			root.symlink(p, to)
		default:
			root.add(p, &node{read: func() (string, error) { return text, nil }})
		}
	}
	return static{&Host{t: t, root: root}}
}

type static struct{ h *Host }

func (s static) ReadFile(p string) ([]byte, error)       { return s.h.ReadFile(p) }
func (s static) WriteFile(p string, data []byte) error   { return s.h.WriteFile(p, data) }
func (s static) ReadDir(p string) ([]fs.DirEntry, error) { return s.h.ReadDir(p) }
func (s static) Readlink(p string) (string, error)       { return s.h.Readlink(p) }

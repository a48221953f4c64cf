package collector

import (
	"fmt"
	"io/fs"
	"strings"
	"testing"
	"time"

	"github.com/rxsteer/rxsteer/bpf"
)

// files is a host of so many files; a value of "!" is refused.
type files map[string]string

func (f files) ReadFile(path string) ([]byte, error) {
	text, ok := f[path]
	switch {
	case !ok:
		return nil, &fs.PathError{Op: "open", Path: path, Err: fs.ErrNotExist}
	case text == "!":
		return nil, &fs.PathError{Op: "open", Path: path, Err: fs.ErrPermission}
	}
	return []byte(text), nil
}

func (f files) Readlink(path string) (string, error) {
	b, err := f.ReadFile(path)
	return string(b), err
}

func (f files) ReadDir(path string) ([]fs.DirEntry, error) { return nil, fs.ErrNotExist }
func (f files) WriteFile(path string, data []byte) error   { return fs.ErrPermission }
func (f files) with(path, text string) files               { f[path] = text; return f }
func (f files) without(path string) files                  { delete(f, path); return f }
func (f files) device(name string, index int, v ...uint64) files {
	f[fmt.Sprintf("/sys/class/net/%s/ifindex", name)] = fmt.Sprintln(index)
	f["/proc/net/dev"] += fmt.Sprintf("%6s: %d %d %d %d 0 0 0 0 %d %d 0 %d 0 0 0 0\n",
		name, v[0], v[1], v[2], v[3], v[4], v[5], v[6])
	return f
}

const devHeader = "Inter-|   Receive                                                |  Transmit\n" +
	" face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo colls carrier compressed\n"

// ownInode is the namespace of every files host.
const ownInode = 4026531840

// host2 is a host of two CPUs with all counters at rest.
func host2() files {
	return files{
		"/proc/stat":               "cpu  0 0 0 0\ncpu0 0 0 0 100 10 1 2 0 0 0\ncpu1 0 0 0 200 20 2 4 3 0 0\nbtime 1\n",
		"/proc/softirqs":           "                    CPU0       CPU1\n          HI:          0          0\n      NET_RX:         10         20\n",
		"/proc/net/softnet_stat":   softnetRow(0, 100, 1, 2) + softnetRow(1, 200, 3, 4),
		"/proc/interrupts":         "           CPU0       CPU1\n 28:         10         20  PCI-MSI 524288-edge      eth0-rx-0\nNMI:   1   2   Non-maskable interrupts\n",
		"/proc/net/dev":            devHeader,
		"/proc/thread-self/ns/net": fmt.Sprintf("net:[%d]", ownInode),
	}
}

// softnetRow is a row of 15 columns, as Linux 6.4 and later print it.
func softnetRow(cpu int, processed, dropped, squeezed uint32) string {
	v := [15]uint32{0: processed, 1: dropped, 2: squeezed, 12: uint32(cpu)}
	var b strings.Builder
	for i, n := range v {
		if i > 0 {
			b.WriteByte(' ')
		}
		fmt.Fprintf(&b, "%08x", n)
	}
	return b.String() + "\n"
}

var epoch = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// reading is one of f at so many seconds after epoch.
func reading(t testing.TB, f files, seconds float64) *Reading {
	t.Helper()
	return ReadHost(f, epoch.Add(time.Duration(seconds*float64(time.Second))))
}

// name is a device's, as the programs record it.
func name(s string) (n [16]int8) {
	for i := range s {
		n[i] = int8(s[i])
	}
	return n
}

// kernel is a fake of the attached programs.
type kernel struct {
	now       bpf.Counters
	fail      error
	forgotten []bpf.NAPIKey
	max       int
	closed    int
}

func (k *kernel) Read(c *bpf.Counters) error {
	if k.fail != nil {
		return k.fail
	}
	c.CPUs = append(c.CPUs[:0], k.now.CPUs...)
	c.NAPIKeys, c.NAPIs = append(c.NAPIKeys[:0], k.now.NAPIKeys...), append(c.NAPIs[:0], k.now.NAPIs...)
	c.IRQKeys, c.IRQs = append(c.IRQKeys[:0], k.now.IRQKeys...), append(c.IRQs[:0], k.now.IRQs...)
	return nil
}

func (k *kernel) Forget(keys []bpf.NAPIKey) error {
	k.forgotten = append(k.forgotten, keys...)
	for _, key := range keys {
		for i := range k.now.NAPIKeys {
			if k.now.NAPIKeys[i] == key {
				k.now.NAPIKeys = append(k.now.NAPIKeys[:i], k.now.NAPIKeys[i+1:]...)
				k.now.NAPIs = append(k.now.NAPIs[:i], k.now.NAPIs[i+1:]...)
				break
			}
		}
	}
	return nil
}

func (k *kernel) MaxNAPIs() int { return k.max }
func (k *kernel) Close() error  { k.closed++; return nil }

// poll counts polls of so many packets and ns each.
func (k *kernel) poll(key bpf.NAPIKey, device string, polls, packets, ns uint64) {
	for i := range k.now.NAPIKeys {
		if k.now.NAPIKeys[i] == key {
			s := &k.now.NAPIs[i]
			s.Polls += polls
			s.Packets += polls * packets
			s.Time += polls * ns
			return
		}
	}
	k.now.NAPIKeys = append(k.now.NAPIKeys, key)
	k.now.NAPIs = append(k.now.NAPIs, bpf.NAPIStat{Polls: polls, Packets: polls * packets, Time: polls * ns, Name: name(device)})
}

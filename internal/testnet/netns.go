package testnet

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rxsteer/rxsteer/internal/host"
)

// runDir is where ip-netns(8) binds the namespaces it knows by name.
const runDir = "/run/netns"

// prefix starts the name of every namespace of ours; Reap looks at no other.
const prefix = "rxt-"

var serial atomic.Uint64

// NeedRoot skips t unless it runs as root with network namespaces allowed.
func NeedRoot(t testing.TB) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root: network namespaces and BPF")
	}
	if _, err := exec.LookPath("ip"); err != nil {
		t.Skip("needs iproute2: the ip command is not installed")
	}
}

// NeedTun skips t unless /dev/net/tun can be opened.
func NeedTun(t testing.TB) {
	t.Helper()
	NeedRoot(t)
	fd, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Skipf("needs /dev/net/tun: %v", err)
	}
	unix.Close(fd)
}

// NS is a network namespace of our own, known to ip-netns(8) by Name, with
// loopback up and a private mount of sysfs that shows its devices.
type NS struct {
	Name string

	net, mnt *os.File
	jobs     chan func()
	stop     sync.Once
	stopped  chan struct{} // closed when the worker has ended
}

// New makes a namespace for t and deletes it when t ends. It skips t as
// NeedRoot does.
func New(t testing.TB) *NS {
	t.Helper()
	NeedRoot(t)
	ns, err := Create()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := ns.Close(); err != nil {
			t.Error(err)
		}
	})
	return ns
}

// Create makes a namespace; the caller closes it. Namespaces of dead owners
// are reaped first.
func Create() (*NS, error) {
	if err := Reap(); err != nil {
		return nil, err
	}
	start, err := startTime(os.Getpid())
	if err != nil {
		return nil, fmt.Errorf("create namespace: %w", err)
	}
	name := fmt.Sprintf("%s%d-%s-%d", prefix, os.Getpid(), start, serial.Add(1))
	if err := run("ip", "netns", "add", name); err != nil {
		return nil, err
	}
	ns := &NS{Name: name, jobs: make(chan func()), stopped: make(chan struct{})}
	ns.net, err = os.Open(filepath.Join(runDir, name))
	if err != nil {
		return nil, errors.Join(fmt.Errorf("create namespace: %w", err), run("ip", "netns", "del", name))
	}
	ready := make(chan error)
	go ns.work(ready)
	if err := <-ready; err != nil {
		return nil, errors.Join(fmt.Errorf("create namespace %s: %w", name, err), ns.Close())
	}
	if err := ns.IP("link", "set", "lo", "up"); err != nil {
		return nil, errors.Join(err, ns.Close())
	}
	return ns, nil
}

// Close deletes the namespace and with it all its devices. A second Close does
// nothing.
func (ns *NS) Close() error {
	var err error
	ns.stop.Do(func() {
		close(ns.jobs)
		<-ns.stopped
		err = errors.Join(ns.net.Close(), run("ip", "netns", "del", ns.Name))
		if ns.mnt != nil {
			err = errors.Join(err, ns.mnt.Close())
		}
	})
	return err
}

// work owns a thread inside the namespace, mounts sysfs there and then runs
// the file operations of FS, so that they see what a process inside would.
func (ns *NS) work(ready chan<- error) {
	defer close(ns.stopped)
	offMainThread(func() {
		err := ns.mount()
		ready <- err
		if err != nil {
			return
		}
		for job := range ns.jobs {
			job()
		}
	})
}

// mount moves the thread into the network namespace and a new mount namespace
// with that network namespace's sysfs on /sys, as netns_switch of
// iproute2 lib/namespace.c does for `ip netns exec`.
func (ns *NS) mount() error {
	if err := unix.Setns(int(ns.net.Fd()), unix.CLONE_NEWNET); err != nil {
		return fmt.Errorf("enter network namespace: %w", err)
	}
	if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
		return fmt.Errorf("unshare mounts: %w", err)
	}
	if err := unix.Mount("", "/", "none", unix.MS_SLAVE|unix.MS_REC, ""); err != nil {
		return fmt.Errorf("make mounts slave: %w", err)
	}
	// EINVAL: /sys was not mounted, which is fine.
	if err := unix.Unmount("/sys", unix.MNT_DETACH); err != nil && !errors.Is(err, unix.EINVAL) {
		return fmt.Errorf("unmount /sys: %w", err)
	}
	if err := unix.Mount(ns.Name, "/sys", "sysfs", 0, ""); err != nil {
		return fmt.Errorf("mount sysfs: %w", err)
	}
	f, err := os.Open("/proc/thread-self/ns/mnt")
	if err != nil {
		return fmt.Errorf("hold mount namespace: %w", err)
	}
	ns.mnt = f
	return nil
}

// Do runs fn on an OS thread of its own inside the namespace: sockets, netlink
// connections and /sys are those of the namespace, /proc/net is not
// (read /proc/thread-self/net, or use FS). Sockets opened in fn stay in the
// namespace and may be used outside. fn must not call t.Fatal, and goroutines
// it starts are outside. Do nests.
func (ns *NS) Do(fn func() error) error {
	err := fmt.Errorf("run in namespace %s: the function ended its goroutine", ns.Name)
	offMainThread(func() {
		if e := ns.enter(); e != nil {
			err = fmt.Errorf("enter namespace %s: %w", ns.Name, e)
			return
		}
		err = fn()
	})
	return err
}

func (ns *NS) enter() error {
	// setns to a mount namespace is refused while fs_struct is shared.
	if err := unix.Unshare(unix.CLONE_FS); err != nil {
		return err
	}
	if err := unix.Setns(int(ns.net.Fd()), unix.CLONE_NEWNET); err != nil {
		return err
	}
	return unix.Setns(int(ns.mnt.Fd()), unix.CLONE_NEWNS)
}

// offMainThread runs fn on a thread that ends with it and waits for it. The
// main thread is never used: it cannot end, and /proc/self is its view.
func offMainThread(fn func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // never unlocked: the thread ends here
		if unix.Gettid() == os.Getpid() {
			// Hold the main thread meanwhile, so that the next goroutine gets another.
			defer runtime.UnlockOSThread()
			offMainThread(fn)
			return
		}
		fn()
	}()
	<-done
}

// FS is the file tree as a process inside the namespace sees it: /sys/class/net
// shows its devices, /proc/net and /proc/sys/net are its own. Valid until Close.
func (ns *NS) FS() host.FS { return nsFS{ns} }

type nsFS struct{ ns *NS }

// on runs op on the namespace's thread with the path as that thread must spell
// it: /proc/net is a link to the main thread's.
func (f nsFS) on(path string, op func(path string)) {
	if rest, ok := strings.CutPrefix(path, "/proc/net"); ok && (rest == "" || rest[0] == '/') {
		path = "/proc/thread-self/net" + rest
	}
	done := make(chan struct{})
	f.ns.jobs <- func() { defer close(done); op(path) }
	<-done
}

func (f nsFS) ReadFile(path string) (b []byte, err error) {
	f.on(path, func(p string) { b, err = host.OS{}.ReadFile(p) })
	return b, err
}

func (f nsFS) WriteFile(path string, data []byte) (err error) {
	f.on(path, func(p string) { err = host.OS{}.WriteFile(p, data) })
	return err
}

func (f nsFS) ReadDir(path string) (e []fs.DirEntry, err error) {
	f.on(path, func(p string) { e, err = host.OS{}.ReadDir(p) })
	return e, err
}

func (f nsFS) Readlink(path string) (s string, err error) {
	f.on(path, func(p string) { s, err = host.OS{}.Readlink(p) })
	return s, err
}

// Inode is the namespace's identity as the kernel's net->ns.inum shows it.
func (ns *NS) Inode() uint64 {
	var st unix.Stat_t
	if err := unix.Fstat(int(ns.net.Fd()), &st); err != nil {
		return 0
	}
	return st.Ino
}

// Forward listens on the loopback address outside, and each connection goes on to one inside: for a browser that
// is outside. A connection that the inside refuses is closed.
func (ns *NS) Forward(to string) (net.Listener, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("forward to %s of %s: %w", to, ns.Name, err)
	}
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				var d net.Conn
				if err := ns.Do(func() (err error) { d, err = net.Dial("tcp", to); return err }); err != nil {
					return
				}
				defer d.Close()
				go func() { defer d.Close(); _, _ = io.Copy(d, c) }()
				_, _ = io.Copy(c, d)
			}()
		}
	}()
	return l, nil
}

// Command is a program to run inside the namespace, with its /sys and /proc/net.
func (ns *NS) Command(ctx context.Context, name string, args ...string) *exec.Cmd {
	return exec.CommandContext(ctx, "ip", append([]string{"netns", "exec", ns.Name, name}, args...)...)
}

// Run runs a program inside the namespace; its output is in the error.
func (ns *NS) Run(name string, args ...string) error {
	return run("ip", append([]string{"netns", "exec", ns.Name, name}, args...)...)
}

// IP runs `ip -n NAME args…`.
func (ns *NS) IP(args ...string) error {
	return run("ip", append([]string{"-n", ns.Name}, args...)...)
}

func run(name string, args ...string) error {
	out, err := exec.Command(name, args...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("run %s %s: %w: %s", name, strings.Join(args, " "), err, bytes.TrimSpace(out))
	}
	return nil
}

// Reap deletes the namespaces whose owner is dead.
func Reap() error {
	entries, err := os.ReadDir(runDir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("reap namespaces: %w", err)
	}
	for _, e := range entries {
		pid, start, ok := owner(e.Name())
		if !ok {
			continue
		}
		if now, err := startTime(pid); err == nil && now == start {
			continue
		}
		// Another run may reap the same one: only a survivor is an error.
		if err := run("ip", "netns", "del", e.Name()); err != nil {
			if _, serr := os.Stat(filepath.Join(runDir, e.Name())); serr == nil {
				return err
			}
		}
	}
	return nil
}

// owner parses rxt-PID-STARTTIME-SERIAL.
func owner(name string) (pid int, start string, ok bool) {
	rest, ok := strings.CutPrefix(name, prefix)
	if !ok {
		return 0, "", false
	}
	f := strings.Split(rest, "-")
	if len(f) != 3 {
		return 0, "", false
	}
	pid, err := strconv.Atoi(f[0])
	return pid, f[1], err == nil
}

// startTime is field 22 of /proc/PID/stat: clock ticks since boot.
func startTime(pid int) (string, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return "", err
	}
	// The command name in field 2 may hold blanks and brackets: count from the last ')'.
	f := strings.Fields(string(b[bytes.LastIndexByte(b, ')')+1:]))
	if len(f) < 20 {
		return "", fmt.Errorf("parse /proc/%d/stat: %d fields", pid, len(f)+2)
	}
	return f[19], nil
}

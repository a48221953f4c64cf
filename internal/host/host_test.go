package host

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

func TestOSPaths(t *testing.T) {
	tests := []struct {
		os   OS
		path string
		want string
	}{
		{OS{}, "/proc/interrupts", "/proc/interrupts"},
		{OS{Root: "/host"}, "/proc/irq/3", "/host/proc/irq/3"},
		{OS{Root: "/host"}, "/../../etc/passwd", "/host/etc/passwd"},
		{OS{Root: "/host", Proc: "/p"}, "/proc", "/p"},
		{OS{Root: "/host", Proc: "/p"}, "/proc/stat", "/p/stat"},
		{OS{Root: "/host", Proc: "/p"}, "/process", "/host/process"},
		{OS{Sys: "/s"}, "/sys/class/net", "/s/class/net"},
		{OS{Sys: "/s"}, "/system", "/system"},
		{OS{Sys: "/s"}, "/sys/../etc/passwd", "/etc/passwd"},
		{OS{Proc: "/p"}, "/proc/../../etc/passwd", "/etc/passwd"},
	}
	for _, tt := range tests {
		if got := tt.os.Path(tt.path); got != tt.want {
			t.Errorf("%+v.Path(%q) = %q, want %q", tt.os, tt.path, got, tt.want)
		}
	}
}

func TestOSReadsAndWritesBelowItsRoot(t *testing.T) {
	root := t.TempDir()
	dir := filepath.Join(root, "sys", "class")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "mtu"), []byte("1500\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("mtu", filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	o := OS{Root: root}
	if err := o.WriteFile("/sys/class/mtu", []byte("9000\n")); err != nil {
		t.Fatal(err)
	}
	if b, err := o.ReadFile("/sys/class/mtu"); err != nil || string(b) != "9000\n" {
		t.Errorf("read = %q, %v, want 9000", b, err)
	}
	// In sysfs and procfs a write never makes or shortens a file.
	if err := o.WriteFile("/sys/class/mtu", []byte("1")); err != nil {
		t.Fatal(err)
	}
	if b, err := o.ReadFile("/sys/class/mtu"); err != nil || string(b) != "1000\n" {
		t.Errorf("read after a short write = %q, %v, want 1000", b, err)
	}
	if err := o.WriteFile("/sys/class/none", []byte("1")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("write of an absent file: error = %v, want %v", err, fs.ErrNotExist)
	}
	if l, err := o.Readlink("/sys/class/link"); err != nil || l != "mtu" {
		t.Errorf("link = %q, %v, want mtu", l, err)
	}
	if es, err := o.ReadDir("/sys/class"); err != nil || len(es) != 2 {
		t.Errorf("folder = %v, %v, want 2 entries", es, err)
	}
	if _, err := o.ReadDir("/sys/class/mtu"); !errors.Is(err, syscall.ENOTDIR) {
		t.Errorf("folder of a file: error = %v, want %v", err, syscall.ENOTDIR)
	}
}

// A write that the kernel takes in part is an error and is not gone on with: to a file of sysfs the rest
// would be a second value.
func TestShortWriteIsAnError(t *testing.T) {
	dir := t.TempDir()
	page := os.Getpagesize()
	if err := syscall.Mount("none", dir, "tmpfs", 0, fmt.Sprintf("size=%d", page)); err != nil {
		t.Skipf("needs the right to mount: %v", err)
	}
	defer syscall.Unmount(dir, 0)
	if err := os.WriteFile(filepath.Join(dir, "f"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	err := OS{Root: dir}.WriteFile("/f", make([]byte, 2*page))
	if !errors.Is(err, io.ErrShortWrite) {
		t.Errorf("%v, want a short write", err)
	}
	if st, err := os.Stat(filepath.Join(dir, "f")); err != nil || st.Size() != int64(page) {
		t.Errorf("%v, %v", st.Size(), err)
	}
}

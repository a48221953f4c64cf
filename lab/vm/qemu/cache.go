package qemu

import (
	"context"
	"crypto/sha256"
	_ "embed"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

//go:embed guest_init.sh
var guestInit string

//go:embed guest_lib.sh
var guestLib string

// hostPackages are the tools that build a guest, and those that go into it.
var hostPackages = []string{"kmod", "cpio", "xz-utils", "busybox-static", "ethtool", "iproute2",
	"libglib2.0-0", "libcap-ng0", "libnuma1"} // the last three for irqbalance

// guestTools are the host's programs that every guest has, beside busybox.
var guestTools = []string{"bash", "ethtool", "ip", "tc", "ss"}

// guestModules are loaded or loadable in a guest. Which exist depends on the kernel.
var guestModules = []string{"virtio_pci", "virtio_net", "igb", "vmxnet3", "e1000e", "9p", "9pnet_virtio",
	"veth", "dummy", "tun", "ifb", "bonding", "bridge", "8021q", "vxlan", "ip_gre",
	"sch_ingress", "sch_fq", "sch_mqprio", "cls_bpf", "act_bpf", "inet_diag", "tcp_diag", "udp_diag"}

// Cache is the folder that holds package lists, unpacked kernels, initramfs images
// and the folders of running guests.
type Cache struct{ dir string }

// OpenCache returns the cache in $RXSTEER_LAB_DIR, by default the user's cache folder,
// after removing what dead owners left in it. It needs root and /dev/net/tun.
func OpenCache() (*Cache, error) {
	if os.Geteuid() != 0 {
		return nil, labFailed("boot guests: needs root (network namespaces, taps, package installation)")
	}
	tun, err := os.OpenFile("/dev/net/tun", os.O_RDWR, 0)
	if err == nil {
		_, err = unix.IoctlGetUint32(int(tun.Fd()), unix.TUNGETFEATURES) // a wrong device answers too
		tun.Close()
	}
	if err != nil {
		return nil, labFailed("open /dev/net/tun: %v: the lab connects guests through taps (modprobe tun, or pass the device into the container)", err)
	}
	dir := os.Getenv("RXSTEER_LAB_DIR")
	if dir == "" {
		base, err := os.UserCacheDir()
		if err != nil {
			return nil, labFailed("find a cache folder: %v: set RXSTEER_LAB_DIR", err)
		}
		dir = filepath.Join(base, "rxsteer-lab")
	}
	if err := os.MkdirAll(filepath.Join(dir, "run"), 0o755); err != nil {
		return nil, labFailed("make the cache: %v", err)
	}
	c := &Cache{dir: dir}
	unlock, err := c.lock()
	if err != nil {
		return nil, err
	}
	defer unlock()
	return c, c.reap()
}

// lock serialises changes of the cache between processes.
func (c *Cache) lock() (unlock func(), err error) {
	f, err := os.OpenFile(filepath.Join(c.dir, "lock"), os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, labFailed("lock the cache: %v", err)
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX); err != nil {
		f.Close()
		return nil, labFailed("lock the cache: %v", err)
	}
	return func() { f.Close() }, nil
}

// reap removes run folders whose owner died and what was being unpacked, which needs the lock. Called under lock.
func (c *Cache) reap() error {
	halves, _ := filepath.Glob(filepath.Join(c.dir, "unpack.*")) // the pattern is well formed
	for _, dir := range halves {
		if err := os.RemoveAll(dir); err != nil {
			return labFailed("remove what a dead run unpacked: %v", err)
		}
	}
	owners, _ := filepath.Glob(filepath.Join(c.dir, "run", "*", "owner")) // the pattern is well formed
	for _, o := range owners {
		f, err := os.Open(o)
		if err != nil {
			continue // its owner is just removing it
		}
		if unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB) == nil {
			err = os.RemoveAll(filepath.Dir(o))
		}
		f.Close()
		if err != nil {
			return labFailed("remove a dead run: %v", err)
		}
	}
	return nil
}

// Folder makes a folder in the cache; it lives until release, or until its owner dies
// and the next OpenCache sees that.
func (c *Cache) Folder() (dir string, release func(), err error) {
	unlock, err := c.lock()
	if err != nil {
		return "", nil, err
	}
	defer unlock()
	dir, err = os.MkdirTemp(filepath.Join(c.dir, "run"), fmt.Sprintf("%d.", os.Getpid()))
	if err != nil {
		return "", nil, labFailed("make a run's folder: %v", err)
	}
	owner, err := os.Create(filepath.Join(dir, "owner"))
	if err == nil {
		err = unix.Flock(int(owner.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	}
	if err != nil {
		os.RemoveAll(dir)
		return "", nil, labFailed("make a run's folder: %v", err)
	}
	return dir, func() { os.RemoveAll(dir); owner.Close() }, nil
}

// newRun makes a guest's folder.
func (c *Cache) newRun() (dir string, release func(), err error) {
	dir, release, err = c.Folder()
	if err != nil {
		return "", nil, err
	}
	for _, sub := range []string{"bin", "share/req"} {
		if err := os.MkdirAll(filepath.Join(dir, sub), 0o755); err != nil {
			release()
			return "", nil, labFailed("make a run's folder: %v", err)
		}
	}
	return dir, release, nil
}

// Image is what a guest of one kernel boots from.
type Image struct {
	Kernel  string // vmlinuz
	Initrd  string
	Release string // uname -r
}

// Prepare installs what is missing and returns the image of a kernel version.
func (c *Cache) Prepare(ctx context.Context, version string) (Image, error) {
	unlock, err := c.lock()
	if err != nil {
		return Image{}, err
	}
	defer unlock()
	a, err := newApt(filepath.Join(c.dir, "apt"))
	if err != nil {
		return Image{}, err
	}
	if err := c.installTools(ctx, a); err != nil {
		return Image{}, err
	}
	k := filepath.Join(c.dir, "kernel-"+version)
	if err := c.unpackKernel(ctx, a, version, k); err != nil {
		return Image{}, err
	}
	mods, err := os.ReadDir(filepath.Join(k, "lib/modules"))
	if err != nil || len(mods) != 1 {
		return Image{}, labFailed("read kernel %s in the cache: %d module folders (%v): remove %s", version, len(mods), err, k)
	}
	release := mods[0].Name()
	initrd, err := c.initramfs(ctx, k, release)
	if err != nil {
		return Image{}, err
	}
	return Image{Kernel: filepath.Join(k, "boot", "vmlinuz-"+release), Initrd: initrd, Release: release}, nil
}

// Install installs the host packages of these names that are missing.
func (c *Cache) Install(ctx context.Context, packages ...string) error {
	unlock, err := c.lock()
	if err != nil {
		return err
	}
	defer unlock()
	a, err := newApt(filepath.Join(c.dir, "apt"))
	if err != nil {
		return err
	}
	return a.install(ctx, packages...)
}

// installTools installs the missing host packages, a QEMU that knows igb (≥ 8; from
// backports on Debian 12), and unpacks irqbalance without installing its service.
func (c *Cache) installTools(ctx context.Context, a *apt) error {
	if err := a.install(ctx, hostPackages...); err != nil {
		return err
	}
	if !qemuKnowsIGB(ctx) {
		if err := a.update(ctx, "host", false); err != nil {
			return err
		}
		if _, err := a.run(ctx, "host", "", "get", "install", "-y", "--no-install-recommends", "-t", a.code+"-backports", "qemu-system-x86"); err != nil {
			return err
		}
		if !qemuKnowsIGB(ctx) {
			return labFailed("install QEMU: the one that %s has does not know the igb device (needs QEMU ≥ 8)", a.code)
		}
	}
	irqbalance := filepath.Join(c.dir, "irqbalance")
	if _, err := os.Stat(irqbalance); err == nil {
		return nil
	}
	return c.unpack(irqbalance, func(tmp string) error {
		if err := a.update(ctx, "host", false); err != nil {
			return err
		}
		if _, err := a.run(ctx, "host", tmp, "get", "download", "irqbalance"); err != nil {
			return err
		}
		debs, _ := filepath.Glob(filepath.Join(tmp, "irqbalance_*.deb")) // the pattern is well formed
		if len(debs) != 1 {
			return labFailed("download irqbalance: %d files came", len(debs))
		}
		return unpackDeb(ctx, debs[0], tmp)
	})
}

// rootPackages make a Debian that systemd boots and a package can be installed in.
const rootPackages = "systemd,systemd-sysv,dbus,iproute2,ethtool,curl,procps"

// Root returns a tar archive of a small Debian of the host's suite, for Job.Root.
func (c *Cache) Root(ctx context.Context) (string, error) {
	unlock, err := c.lock()
	if err != nil {
		return "", err
	}
	defer unlock()
	a, err := newApt(filepath.Join(c.dir, "apt"))
	if err != nil {
		return "", err
	}
	file := filepath.Join(c.dir, "root-"+a.code+".tar")
	if _, err := os.Stat(file); err == nil {
		return file, nil
	}
	if err := a.install(ctx, "mmdebstrap"); err != nil {
		return "", err
	}
	if _, err := output(exec.CommandContext(ctx, "mmdebstrap", "--variant=minbase", "--include="+rootPackages, a.code, file+".new.tar")); err != nil {
		return "", err
	}
	if err := os.Rename(file+".new.tar", file); err != nil {
		return "", labFailed("fill the cache: %v", err)
	}
	return file, nil
}

func qemuKnowsIGB(ctx context.Context) bool {
	out, _ := exec.CommandContext(ctx, "qemu-system-x86_64", "-device", "help").Output() // fails where QEMU is not installed
	return strings.Contains(string(out), `"igb"`)
}

// unpack makes the folder dir by filling a temporary one beside it and renaming that,
// so that a folder in the cache is always whole.
func (c *Cache) unpack(dir string, fill func(tmp string) error) error {
	tmp, err := os.MkdirTemp(c.dir, "unpack.")
	if err != nil {
		return labFailed("make a folder in the cache: %v", err)
	}
	defer os.RemoveAll(tmp)
	if err := fill(tmp); err != nil {
		return err
	}
	if err := os.Rename(tmp, dir); err != nil {
		return labFailed("fill the cache: %v", err)
	}
	return nil
}

func unpackDeb(ctx context.Context, deb, dir string) error {
	if _, err := output(exec.CommandContext(ctx, "dpkg-deb", "-x", deb, dir)); err != nil {
		return err
	}
	if err := os.Remove(deb); err != nil {
		return labFailed("remove %s: %v", deb, err)
	}
	return nil
}

func (c *Cache) unpackKernel(ctx context.Context, a *apt, version, dir string) error {
	if _, err := os.Stat(dir); err == nil {
		return nil
	}
	return c.unpack(dir, func(tmp string) error {
		deb, err := a.fetchKernel(ctx, version, tmp)
		if err != nil {
			return err
		}
		if err := unpackDeb(ctx, deb, tmp); err != nil {
			return err
		}
		mods, err := os.ReadDir(filepath.Join(tmp, "lib/modules"))
		if err != nil || len(mods) != 1 {
			return labFailed("unpack kernel %s: %d module folders (%v)", version, len(mods), err)
		}
		_, err = output(exec.CommandContext(ctx, "depmod", "-b", tmp, mods[0].Name()))
		return err
	})
}

// initramfs packs busybox, the guest's tools with their libraries and its modules.
// The file's name holds a digest of what it is made from.
func (c *Cache) initramfs(ctx context.Context, kernel, release string) (string, error) {
	h := sha256.New()
	fmt.Fprintln(h, guestInit, guestLib, guestTools, guestModules)
	file := filepath.Join(c.dir, fmt.Sprintf("initrd-%s-%x.gz", release, h.Sum(nil)[:6]))
	if _, err := os.Stat(file); err == nil {
		return file, nil
	}
	old, _ := filepath.Glob(filepath.Join(c.dir, "initrd-"+release+"-*.gz")) // the pattern is well formed
	for _, f := range old {
		os.Remove(f) // a running QEMU has read it already
	}
	root, err := os.MkdirTemp(c.dir, "unpack.")
	if err != nil {
		return "", labFailed("make a folder in the cache: %v", err)
	}
	defer os.RemoveAll(root)
	for name, text := range map[string]string{"init": guestInit, "lib.sh": guestLib} {
		if err := os.WriteFile(filepath.Join(root, name), []byte(text), 0o755); err != nil {
			return "", labFailed("write the initramfs: %v", err)
		}
	}
	cmd := exec.CommandContext(ctx, "bash", "-c", packInitramfs, "pack", root, kernel, release, file,
		strings.Join(guestTools, " "), strings.Join(guestModules, " "), filepath.Join(c.dir, "irqbalance/usr/sbin/irqbalance"))
	if _, err := output(cmd); err != nil {
		return "", err
	}
	return file, nil
}

// packInitramfs is the part of the work that is easier said in shell: root kernel
// release file tools modules irqbalance.
const packInitramfs = `set -euo pipefail
root=$1 kernel=$2 release=$3 file=$4
PATH=$PATH:/usr/sbin:/sbin
mkdir -p "$root"/{bin,usr/sbin,proc,sys,dev,run,tmp,root,share} "$root/lib/modules/$release"
cp /bin/busybox "$root/bin/"
add() { # program name
  cp "$1" "$root/usr/sbin/$2"
  ldd "$1" | { grep -o '/[^ ]*' || true; } | while read -r f; do mkdir -p "$root${f%/*}"; cp -nL "$f" "$root$f"; done
}
for t in $5; do add "$(readlink -f "$(command -v "$t")")" "$t"; done
add "$7" irqbalance
for m in $6; do modprobe -d "$kernel" -S "$release" --show-depends "$m" 2>/dev/null | awk '/^insmod/{print $2}' || true
done | sort -u | while read -r f; do
  p=$root/${f#"$kernel"/}; mkdir -p "${p%/*}"
  case $f in *.xz) xz -dc "$f" >"${p%.xz}";; *) cp "$f" "$p";; esac
done
cp "$kernel/lib/modules/$release"/modules.{order,builtin,builtin.modinfo} "$root/lib/modules/$release/"
depmod -b "$root" "$release"
cd "$root"; find . | cpio -o -H newc -R 0:0 --quiet | gzip -1 >"$file.new"; mv "$file.new" "$file"
`

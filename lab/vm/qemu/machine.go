package qemu

import (
	"fmt"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
)

// Kernels are the Debian kernels of the lab, newest first. 5.10 comes from an old
// suite, which may go away.
var Kernels = []string{"6.12", "6.1", "5.10"}

// NICs are the drivers of the lab.
var NICs = []string{"igb", "virtio", "vmxnet3", "e1000e"}

// Addresses of the two ends of port n (0 or 1): 10.77.n.1 is the sender's tap
// "labtap" ("labtap1"), 10.77.n.2 the guest's eth0 (eth1).
const (
	SenderIP = "10.77.0.1"
	GuestIP  = "10.77.0.2"
)

// Machine is what to boot. The zero value of a field means its default.
type Machine struct {
	Kernel string `yaml:"kernel"` // "6.12" (default), "6.1", "5.10", or any X.Y that Debian has
	NIC    string `yaml:"nic"`    // igb (default), virtio, vmxnet3, e1000e, none
	Ports  int    `yaml:"ports"`  // how many of that NIC: 1 (default) or 2
	// Queues is how many queues eth0 gets (4): igb `ethtool -L combined N`; virtio N tap
	// queues; vmxnet3 always takes min(8, CPUs) rounded down to a power of two; e1000e has one.
	Queues int    `yaml:"queues"`
	SMP    int    `yaml:"smp"`    // CPUs (4)
	MemMB  int    `yaml:"mem_mb"` // 1024
	NUMA   bool   `yaml:"numa"`   // two nodes, CPUs split in half, NIC on node 1
	NoRSS  bool   `yaml:"no_rss"` // virtio without rss=on: the host chooses the queue
	Append string `yaml:"append"` // extra kernel command line
}

var kernelVersion = regexp.MustCompile(`^[0-9]+\.[0-9]+$`)

// WithDefaults fills the zero fields and checks the rest.
func (m Machine) WithDefaults() (Machine, error) {
	if m.Kernel == "" {
		m.Kernel = Kernels[0]
	}
	if !kernelVersion.MatchString(m.Kernel) {
		return m, labFailed("kernel %q: not a version like 6.12", m.Kernel)
	}
	if m.NIC == "" {
		m.NIC = "igb"
	}
	switch m.NIC {
	case "igb", "virtio", "vmxnet3", "e1000e", "none":
	default:
		return m, labFailed("nic %q: not one of igb, virtio, vmxnet3, e1000e, none", m.NIC)
	}
	set := func(name string, p *int, def, max int) error {
		if *p == 0 {
			*p = def
		}
		if *p < 1 || *p > max {
			return labFailed("%s %d: not within 1…%d", name, *p, max)
		}
		return nil
	}
	for _, err := range []error{
		set("ports", &m.Ports, 1, 2),
		set("queues", &m.Queues, 4, 8),
		set("smp", &m.SMP, 4, 16),
		set("mem_mb", &m.MemMB, 1024, 8192),
	} {
		if err != nil {
			return m, err
		}
	}
	if m.NUMA && m.SMP%2 != 0 {
		return m, labFailed("smp %d: two nodes need an even number", m.SMP)
	}
	return m, nil
}

func (m Machine) String() string {
	s := fmt.Sprintf("%s %s %dq smp%d", m.Kernel, m.NIC, m.Queues, m.SMP)
	if m.NUMA {
		s += " numa"
	}
	return s
}

func tapName(port int) string {
	if port == 0 {
		return "labtap"
	}
	return "labtap" + strconv.Itoa(port)
}

// mac is the guest's address on a port.
func mac(port int) string { return fmt.Sprintf("52:54:00:77:%02x:02", port) }

// multiQueue reports whether the port's tap has several queues.
func (m Machine) multiQueue() bool { return m.NIC == "virtio" && m.Queues > 1 }

// qemuArgs is QEMU's command line. kernel and initrd are files, dir is the run's folder.
//
// virtio: rss=on but not hash=on, with which QEMU 10 loses packets that arrive on tap
// queues above 0 (seen in the lab). The NIC sits behind a PCIe root port, which under
// NUMA hangs on a bridge of node 1.
func (m Machine) qemuArgs(kernel, initrd, dir string) []string {
	// Warnings and the traces of lockups belong in the log of a guest that hung.
	cmdline := "console=ttyS0 loglevel=5 panic=-1 net.ifnames=0 mitigations=off nokaslr no_timer_check tsc=reliable"
	if m.NIC != "none" {
		cmdline += fmt.Sprintf(" lab.ports=%d lab.queues=%d", m.Ports, m.Queues)
	}
	if m.Append != "" {
		cmdline += " " + m.Append
	}
	a := []string{
		"-machine", "q35", "-accel", "tcg,thread=multi", "-cpu", "Nehalem",
		"-nodefaults", "-no-user-config", "-display", "none", "-no-reboot",
		"-serial", "file:" + filepath.Join(dir, "console"),
		"-kernel", kernel, "-initrd", initrd, "-append", cmdline,
		"-fsdev", "local,id=fs,security_model=none,path=" + filepath.Join(dir, "share"),
		"-device", "virtio-9p-pci,bus=pcie.0,fsdev=fs,mount_tag=share",
		"-m", strconv.Itoa(m.MemMB),
	}
	bus := "pcie.0"
	if m.NUMA {
		h := m.SMP / 2
		a = append(a, "-smp", fmt.Sprintf("%d,sockets=2,cores=%d,threads=1", m.SMP, h),
			"-object", fmt.Sprintf("memory-backend-ram,id=m0,size=%dM", m.MemMB/2),
			"-object", fmt.Sprintf("memory-backend-ram,id=m1,size=%dM", m.MemMB-m.MemMB/2),
			"-numa", fmt.Sprintf("node,nodeid=0,cpus=0-%d,memdev=m0", h-1),
			"-numa", fmt.Sprintf("node,nodeid=1,cpus=%d-%d,memdev=m1", h, m.SMP-1),
			"-device", "pxb-pcie,id=pxb1,bus=pcie.0,bus_nr=0x40,numa_node=1")
		bus = "pxb1"
	} else {
		a = append(a, "-smp", strconv.Itoa(m.SMP))
	}
	if m.NIC == "none" {
		return a
	}
	for p := range m.Ports {
		tap := fmt.Sprintf("tap,id=n%d,ifname=%s,script=no,downscript=no", p, tapName(p))
		dev := m.NIC
		if m.NIC == "virtio" {
			dev = fmt.Sprintf("virtio-net-pci,mq=on,vectors=%d", 2*m.Queues+2)
			if !m.NoRSS {
				dev += ",rss=on"
			}
			if m.multiQueue() {
				tap += fmt.Sprintf(",queues=%d", m.Queues)
			}
		}
		a = append(a,
			"-netdev", tap,
			"-device", fmt.Sprintf("pcie-root-port,id=rp%d,bus=%s,chassis=%d", p, bus, p+1),
			"-device", fmt.Sprintf("%s,netdev=n%d,mac=%s,bus=rp%d", dev, p, mac(p), p))
	}
	return a
}

// lastLines is the end of a log, at most n lines.
func lastLines(log string, n int) string {
	lines := strings.Split(strings.TrimRight(strings.ReplaceAll(log, "\r", ""), "\n"), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}

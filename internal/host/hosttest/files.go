package hosttest

import (
	"fmt"
	"path"
	"strconv"
	"strings"
	"syscall"

	"github.com/rxsteer/rxsteer/internal/cpuset"
)

// rebuild makes the file tree anew after a change of structure.
func (h *Host) rebuild() {
	h.root = &node{dir: map[string]*node{}}
	h.procFiles()
	h.cpuFiles()
	h.root.folder("/sys/class/net")
	h.loopback()
	for _, n := range h.nics {
		h.nicFiles(n)
	}
	h.root.folder("/proc/irq")
	h.root.file("/proc/irq/default_smp_affinity", func() string { return h.mask(h.all) + "\n" }, func(string) error { return nil })
	for _, num := range sortedKeys(h.irqs) {
		h.irqFiles(h.irqs[num])
	}
	for _, p := range sortedKeys(h.spec.Files) {
		text := h.spec.Files[p]
		h.root.add(p, &node{read: func() (string, error) { return text, nil }})
	}
}

func (h *Host) procFiles() {
	r := h.root
	r.text("/proc/sys/kernel/osrelease", h.spec.Kernel)
	r.text("/proc/sys/kernel/random/boot_id", "5a1d3d1e-0b7c-4a55-9d0f-6f1c2b3a4d5e")
	r.symlink("/proc/self/ns/net", "net:[4026531840]")
	cmdline := "BOOT_IMAGE=/vmlinuz root=/dev/vda1"
	if iso := h.spec.CPUs.Isolated; !iso.IsEmpty() {
		cmdline += " isolcpus=" + iso.String()
	}
	r.text("/proc/cmdline", cmdline)
	r.file("/proc/interrupts", h.interrupts, nil)
	r.file("/proc/softirqs", h.softirqs, nil)
	r.file("/proc/net/softnet_stat", h.softnet, nil)
	r.file("/proc/stat", h.stat, nil)
	for name := range h.sysctl {
		if name == "rps_default_mask" && !h.since(6, 3) {
			continue // net.core.rps_default_mask came with 6.3
		}
		r.file("/proc/sys/net/core/"+name, func() string { return h.sysctl[name] + "\n" },
			func(s string) error { return h.setSysctl(name, s) })
	}
}

// interrupts prints the table as show_interrupts in kernel/irq/proc.c does: one
// column per online CPU.
func (h *Host) interrupts() string {
	var b strings.Builder
	b.WriteString(strings.Repeat(" ", 11))
	for cpu := range h.online.All() {
		fmt.Fprintf(&b, "CPU%-8d", cpu)
	}
	b.WriteByte('\n')
	for _, num := range sortedKeys(h.irqs) {
		i := h.irqs[num]
		fmt.Fprintf(&b, "%3d: ", num)
		for cpu := range h.online.All() {
			fmt.Fprintf(&b, "%10d ", i.count[cpu])
		}
		fmt.Fprintf(&b, " %8s %4d-edge      %s\n", i.chip, i.hwirq, i.name)
	}
	b.WriteString("NMI: ")
	for range h.online.All() {
		fmt.Fprintf(&b, "%10d ", 0)
	}
	b.WriteString("  Non-maskable interrupts\nERR:          0\nMIS:          0\n")
	return b.String()
}

// softirqs has a column for every possible CPU (show_softirqs in fs/proc/softirqs.c).
func (h *Host) softirqs() string {
	var b strings.Builder
	b.WriteString(strings.Repeat(" ", 20))
	for cpu := range h.all.All() {
		fmt.Fprintf(&b, "%-11s", fmt.Sprintf("CPU%d", cpu))
	}
	b.WriteByte('\n')
	for _, name := range []string{"HI", "TIMER", "NET_TX", "NET_RX", "BLOCK", "IRQ_POLL", "TASKLET", "SCHED", "HRTIMER", "RCU"} {
		fmt.Fprintf(&b, "%12s:", name)
		for range h.all.All() {
			fmt.Fprintf(&b, " %10d", 0)
		}
		b.WriteByte('\n')
	}
	return b.String()
}

// softnet has a row for every online CPU and 15 columns (softnet_seq_show in
// net/core/net-procfs.c).
func (h *Host) softnet() string {
	var b strings.Builder
	for cpu := range h.online.All() {
		b.WriteString(strings.Repeat("00000000 ", 12))
		fmt.Fprintf(&b, "%08x 00000000 00000000\n", cpu)
	}
	return b.String()
}

func (h *Host) stat() string {
	var b strings.Builder
	fmt.Fprintf(&b, "cpu  0 0 0 %d 0 0 0 0 0 0\n", 1000*h.online.Len())
	for cpu := range h.online.All() {
		fmt.Fprintf(&b, "cpu%d 0 0 0 1000 0 0 0 0 0 0\n", cpu)
	}
	b.WriteString("intr 0\nctxt 0\nbtime 1700000000\nprocesses 1\nprocs_running 1\nprocs_blocked 0\nsoftirq 0 0 0 0 0 0 0 0 0 0 0\n")
	return b.String()
}

func (h *Host) cpuFiles() {
	r, c := h.root, h.spec.CPUs
	const dir = "/sys/devices/system/cpu"
	r.text(dir+"/possible", h.all.String())
	r.text(dir+"/present", h.all.String())
	r.text(dir+"/online", h.online.String())
	r.text(dir+"/offline", h.all.Minus(h.online).String())
	r.text(dir+"/isolated", c.Isolated.String())
	r.text(dir+"/nohz_full", "")
	r.text(dir+"/kernel_max", "8191")
	cores := c.Nodes * c.Cores
	perLLC := (c.Cores + c.LLCs - 1) / c.LLCs
	for cpu := range h.all.All() {
		at := fmt.Sprintf("%s/cpu%d", dir, cpu)
		r.folder(at)
		if cpu != 0 {
			state := "1"
			if !h.online.Contains(cpu) {
				state = "0"
			}
			r.text(at+"/online", state)
		}
		node := h.nodeOf(cpu)
		r.symlink(fmt.Sprintf("%s/node%d", at, node), fmt.Sprintf("../../node/node%d", node))
		if !h.online.Contains(cpu) {
			continue // topology and cache vanish with the CPU
		}
		var siblings, llc, pkg []int
		for x := range h.online.All() {
			if x%cores == cpu%cores {
				siblings = append(siblings, x)
			}
			if h.nodeOf(x) == node {
				pkg = append(pkg, x)
				if x%cores%c.Cores/perLLC == cpu%cores%c.Cores/perLLC {
					llc = append(llc, x)
				}
			}
		}
		r.text(at+"/topology/core_id", strconv.Itoa(cpu%cores%c.Cores))
		r.text(at+"/topology/physical_package_id", strconv.Itoa(node))
		for _, f := range []string{"thread_siblings_list", "core_cpus_list"} {
			r.text(at+"/topology/"+f, cpuset.Of(siblings...).String())
		}
		for _, f := range []string{"core_siblings_list", "package_cpus_list"} {
			r.text(at+"/topology/"+f, cpuset.Of(pkg...).String())
		}
		for i, x := range []struct {
			level, kind string
			cpus        []int
		}{{"1", "Data", siblings}, {"1", "Instruction", siblings}, {"2", "Unified", siblings}, {"3", "Unified", llc}} {
			cache := fmt.Sprintf("%s/cache/index%d", at, i)
			r.text(cache+"/level", x.level)
			r.text(cache+"/type", x.kind)
			r.text(cache+"/shared_cpu_list", cpuset.Of(x.cpus...).String())
		}
	}
	const nodes = "/sys/devices/system/node"
	all := cpuset.Range(0, c.Nodes-1).String()
	for _, f := range []string{"online", "possible", "has_cpu", "has_memory"} {
		r.text(nodes+"/"+f, all)
	}
	for n := range c.Nodes {
		var distance []string
		for m := range c.Nodes {
			if m == n {
				distance = append(distance, "10")
			} else {
				distance = append(distance, "21")
			}
		}
		r.text(fmt.Sprintf("%s/node%d/distance", nodes, n), strings.Join(distance, " "))
		r.text(fmt.Sprintf("%s/node%d/cpulist", nodes, n), h.cpusOfNode(n).Intersect(h.online).String())
	}
}

func (h *Host) loopback() {
	const real = "/sys/devices/virtual/net/lo"
	h.root.symlink("/sys/class/net/lo", "../../devices/virtual/net/lo")
	for k, v := range map[string]string{"ifindex": "1", "mtu": "65536", "flags": "0x9", "type": "772", "address": "00:00:00:00:00:00", "operstate": "unknown", "uevent": "INTERFACE=lo\nIFINDEX=1"} {
		h.root.text(real+"/"+k, v)
	}
	h.root.folder(real + "/queues/rx-0")
	h.root.text(real+"/queues/rx-0/rps_cpus", h.mask(cpuset.Set{}))
	h.root.folder(real + "/queues/tx-0")
}

func (h *Host) irqFiles(i *irq) {
	dir := fmt.Sprintf("/proc/irq/%d", i.num)
	h.root.file(dir+"/smp_affinity", func() string { return h.mask(i.wanted) + "\n" }, func(s string) error {
		set, err := h.parseMask(s)
		if err != nil {
			return err
		}
		return h.setAffinity(i, set)
	})
	h.root.file(dir+"/smp_affinity_list", func() string { return i.wanted.String() + "\n" }, func(s string) error {
		set, err := h.parseList(s)
		if err != nil {
			return err
		}
		return h.setAffinity(i, set)
	})
	h.root.file(dir+"/effective_affinity", func() string { return h.mask(i.effective) + "\n" }, nil)
	h.root.file(dir+"/effective_affinity_list", func() string { return i.effective.String() + "\n" }, nil)
	h.root.file(dir+"/affinity_hint", func() string { return h.mask(i.hint) + "\n" }, nil)
	h.root.text(dir+"/node", strconv.Itoa(i.node))
	h.root.text(dir+"/spurious", "count 0\nunhandled 0\nlast_unhandled 0 ms")
	h.root.folder(dir + "/" + i.name)
}

func (h *Host) nicFiles(n *device) {
	r, s := h.root, n.spec
	parent, dir := "", ""
	switch {
	case s.Bus == "":
		dir = "/sys/devices/virtual/net/" + s.Name
	case s.Vmbus:
		parent = "/sys/devices/LNXSYSTM:00/LNXSYBUS:00/ACPI0004:00/VMBUS:00/" + s.Bus
		h.busDevice(parent, "vmbus", s.Driver, s.Node)
		rx, _ := n.queues()
		for q := range rx {
			ch := fmt.Sprintf("%s/channels/%d", parent, 14+q)
			r.text(ch+"/subchannel_id", strconv.Itoa(q))
			r.text(ch+"/cpu", strconv.Itoa(q%h.online.Len()))
		}
	default:
		root := "/sys/devices/pci" + s.Bus[:7]
		parent = root + "/" + s.Bus
		pciDriver := s.Driver
		if s.Virtio != "" {
			pciDriver = "virtio-pci"
		}
		h.busDevice(parent, "pci", pciDriver, s.Node)
		r.text(parent+"/irq", "11")
		r.folder(parent + "/msi_irqs")
		for _, v := range n.vectors {
			r.text(fmt.Sprintf("%s/msi_irqs/%d", parent, v.irq.num), "msix")
		}
		if s.Virtio != "" {
			parent += "/" + s.Virtio
			h.busDevice(parent, "virtio", s.Driver, -2)
		}
	}
	if dir == "" {
		dir = parent + "/net/" + s.Name
		r.symlink(dir+"/device", up(dir, parent))
	}
	r.symlink("/sys/class/net/"+s.Name, "../../"+strings.TrimPrefix(dir, "/sys/"))
	flags := "0x1003"
	if s.Down {
		flags = "0x1002"
	}
	uevent := fmt.Sprintf("INTERFACE=%s\nIFINDEX=%d", s.Name, n.index)
	if s.Devtype != "" {
		uevent = "DEVTYPE=" + s.Devtype + "\n" + uevent
	}
	mac := s.MAC
	if mac == "" {
		mac = fmt.Sprintf("02:00:00:00:00:%02x", n.index)
	}
	for k, v := range map[string]string{"ifindex": strconv.Itoa(n.index), "flags": flags, "type": "1", "address": mac, "uevent": uevent, "operstate": "up"} {
		r.text(dir+"/"+k, v)
	}
	r.add(dir+"/speed", &node{read: func() (string, error) {
		if s.SpeedMb == 0 || s.Down {
			return "", syscall.EINVAL // speed_show
		}
		return strconv.Itoa(s.SpeedMb) + "\n", nil
	}})
	number := func(name string, value *uint64, limit uint64) {
		r.file(dir+"/"+name, func() string { return strconv.FormatUint(*value, 10) + "\n" }, func(t string) error {
			v, err := parseUint(t, limit)
			if err != nil {
				return err
			}
			*value = v
			for i := range n.napis { // napi_defer_hard_irqs and the timeout of a device are written to its instances
				n.napis[i].deferIRQ, n.napis[i].flush = uint32(n.deferIRQ), n.flush
			}
			return nil
		})
	}
	number("napi_defer_hard_irqs", &n.deferIRQ, 1<<31-1)
	number("gro_flush_timeout", &n.flush, 1<<63-1)
	r.file(dir+"/threaded", func() string { return strconv.Itoa(int(n.threaded)) + "\n" }, func(t string) error {
		v, err := parseUint(t, 2)
		if err != nil || v == 2 && !h.since(6, 18) {
			return syscall.EINVAL // modify_napi_threaded in net/core/net-sysfs.c
		}
		if len(n.napis) == 0 {
			return syscall.EOPNOTSUPP
		}
		n.threaded = uint32(v)
		for i := range n.napis {
			n.napis[i].threaded = n.threaded
		}
		return nil
	})
	r.file(dir+"/mtu", func() string { return strconv.Itoa(n.mtu) + "\n" }, func(t string) error {
		v, err := parseUint(t, 9710)
		if err != nil || v < 68 {
			return syscall.EINVAL // dev_validate_mtu
		}
		n.mtu = int(v)
		return nil
	})
	for _, l := range s.Lower {
		r.symlink(dir+"/lower_"+l, "../"+l)
		if m := h.nic(l); m != nil {
			h.linkUpper(l, s.Name)
		}
	}
	r.folder(dir + "/queues")
	rx, tx := n.queues()
	for q := range rx {
		at := fmt.Sprintf("%s/queues/rx-%d", dir, q)
		r.file(at+"/rps_cpus", func() string { return h.mask(n.rps[q]) + "\n" }, func(t string) error { return n.setRPS(h, q, t) })
		r.file(at+"/rps_flow_cnt", func() string { return strconv.FormatUint(n.flows[q], 10) + "\n" }, func(t string) error { return n.setFlowCount(q, t) })
	}
	for q := range tx {
		at := fmt.Sprintf("%s/queues/tx-%d", dir, q)
		// A device with one tx queue has the file and answers ENOENT
		// (xps_cpus_show: !netif_is_multiqueue).
		single := n.mostTX() <= 1
		set := func(name string, sets []cpuset.Set, parse func(string) (cpuset.Set, error), show func(cpuset.Set) string) {
			r.add(at+"/"+name, &node{
				read: func() (string, error) {
					if single {
						return "", syscall.ENOENT
					}
					return show(sets[q]) + "\n", nil
				},
				write: func(t string) error {
					if single {
						return syscall.ENOENT
					}
					v, err := parse(t)
					if err == nil {
						sets[q] = v
					}
					return err
				},
			})
		}
		set("xps_cpus", n.xps, h.parseMask, h.mask)
		set("xps_rxqs", n.xpsRXQs, func(t string) (cpuset.Set, error) {
			v, err := cpuset.ParseMask(t)
			if err != nil || v.Last() >= rx {
				return cpuset.Set{}, syscall.EINVAL
			}
			return v, nil
		}, func(v cpuset.Set) string { return v.Mask(rx) })
	}
}

// mostTX is num_tx_queues, what the device was allocated with.
func (n *device) mostTX() int {
	_, tx := n.queues()
	return max(tx, int(n.spec.MaxChannels["combined"]+n.spec.MaxChannels["tx"]))
}

// linkUpper gives a lower device its master link; it may be built before or after.
func (h *Host) linkUpper(lower, upper string) {
	if at, err := h.root.find("/sys/class/net/"+lower, true); err == nil {
		at.dir["upper_"+upper] = &node{link: "../" + upper}
		at.dir["master"] = &node{link: "../" + upper}
	}
}

func (h *Host) busDevice(dir, subsystem, driver string, node int) {
	h.root.symlink(dir+"/subsystem", up(dir, "/sys/bus/"+subsystem))
	h.root.symlink(dir+"/driver", up(dir, "/sys/bus/"+subsystem+"/drivers/"+driver))
	h.root.folder("/sys/bus/" + subsystem + "/drivers/" + driver)
	if node > -2 {
		h.root.text(dir+"/numa_node", strconv.Itoa(node))
	}
}

// up is a relative link from a folder to a path below the same root.
func up(from, to string) string {
	depth := strings.Count(strings.Trim(from, "/"), "/") + 1
	return path.Join(strings.Repeat("../", depth) + strings.TrimPrefix(to, "/"))
}

package hosttest

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/rxsteer/rxsteer/internal/cpuset"
	"github.com/rxsteer/rxsteer/internal/ethtool"
)

// Spec is what a fake host is made of.
type Spec struct {
	Kernel string // uname -r, "" means 6.12.0
	CPUs   CPUs
	NICs   []NIC
	// VectorsPerCPU is how many device interrupts one CPU can take, 0 means 200
	// (x86 has 256 vectors, those of exceptions and the system taken off).
	VectorsPerCPU int
	// Remapping: interrupt remapping lets an affinity change take effect in
	// process context instead of with the next interrupt.
	Remapping bool
	// Files are further files by absolute path, read-only: configuration of owners,
	// processes.
	Files map[string]string
}

// CPUs is a regular topology. CPU numbers count cores of node 0, node 1, … and then
// their SMT siblings, as Linux does on x86. Zero counts mean one.
type CPUs struct {
	Nodes    int
	Cores    int // per node
	Threads  int // per core
	LLCs     int // last-level caches per node
	Offline  cpuset.Set
	Isolated cpuset.Set // isolcpus=
}

// NIC is one network device and what its driver does.
type NIC struct {
	Name    string
	Driver  string
	Version string // driver version, "" the kernel's
	Bus     string // PCI address, vmbus GUID, or "" for a virtual device
	Virtio  string // "virtio0": the device sits on a virtio device below Bus
	Vmbus   bool   // Bus is a vmbus device: queues are channels without IRQ
	Devtype string // DEVTYPE of uevent: bond, vlan, …
	Lower   []string
	Node    int // NUMA node; −1 is written as −1
	MAC     string
	SpeedMb int
	Down    bool

	// Channels and MaxChannels in ethtool's words; both nil: not supported. Queues
	// is then the number of rx and tx queues (0 means one).
	Channels, MaxChannels ethtool.Group
	Queues                int
	FixedChannels         bool // they are told and cannot be set
	Vectors               []Vector
	// Few are the vectors of at most FewMax channels, where a driver then gives each
	// direction its own; nil: Vectors always.
	Few    []Vector
	FewMax int
	// Managed vectors: spread by the kernel (PCI_IRQ_AFFINITY), never by users.
	Managed bool
	NAPI    bool // netdev netlink knows a NAPI of each queue
	NAPIIRQ bool // and the IRQ of each NAPI

	Table int // entries of the indirection table, 0 none
	// LosesUserTable: a channel change overwrites even a table the user has set.
	LosesUserTable bool
	// Blocks: the driver's own table gives runs of buckets to each queue instead of
	// bucket i to queue i mod n.
	Blocks      bool
	Key         []byte
	Function    string
	HashFields  map[string]string // by flow type
	HashChoices []string          // what can be set; nil: everything
	FixedHash   bool              // the key and function cannot be set
	Contexts    bool              // RSS contexts can be created (ethtool_ops.create_rxfh_context)

	Rings, MaxRings ethtool.Group
	RingStep        uint32 // sizes are rounded up to a multiple
	Coalesce        ethtool.Group
	// PairedUsecs: where receive and transmit share vectors (more than FewMax channels),
	// tx-usecs reads 0, cannot be set and follows rx-usecs.
	PairedUsecs   bool
	QueueCoalesce bool // per-queue moderation
	QueueNoEffect bool // …is accepted and does nothing
	Features      map[string]bool
	Fixed         []string // features that cannot be changed
	// Flips are features that change along: Flips["rx-gro=off"] = "rx-lro=on".
	Flips map[string]string
	Pause ethtool.Group
	Flags map[string]bool
	FEC   *ethtool.FEC
	XSK   []int // rx queues with an AF_XDP socket in zero-copy mode
}

// Vector is one kind of interrupt of a device. Name may hold {if}, {bdf}, {virtio}
// and {n}, the queue or pair number.
type Vector struct {
	Name string
	For  string // "combined", "rx", "tx": one per channel of that kind; "control": one
	From int    // first number
}

// Host is a fake host. Its methods may be called concurrently.
type Host struct {
	t      testing.TB
	mu     sync.Mutex
	spec   Spec
	root   *node
	online cpuset.Set
	all    cpuset.Set
	irqs   map[int]*irq
	nics   []*device
	sysctl map[string]string
	writes []string
	napi   uint32 // last id given
}

// New builds a host; t is told of writes that no real host would take.
func New(t testing.TB, spec Spec) *Host {
	t.Helper()
	if spec.Kernel == "" {
		spec.Kernel = "6.12.0"
	}
	if spec.VectorsPerCPU == 0 {
		spec.VectorsPerCPU = 200
	}
	c := &spec.CPUs
	c.Nodes, c.Cores, c.Threads, c.LLCs = max(c.Nodes, 1), max(c.Cores, 1), max(c.Threads, 1), max(c.LLCs, 1)
	h := &Host{t: t, spec: spec, irqs: map[int]*irq{}, napi: 8192}
	h.all = cpuset.Range(0, c.Nodes*c.Cores*c.Threads-1)
	h.online = h.all.Minus(c.Offline)
	h.sysctl = map[string]string{
		"rps_sock_flow_entries": "0", "netdev_budget": "300", "netdev_budget_usecs": "8000",
		"netdev_max_backlog": "1000", "dev_weight": "64", "busy_poll": "0", "busy_read": "0",
		"flow_limit_table_len": "4096", "flow_limit_cpu_bitmap": h.mask(cpuset.Set{}), "rps_default_mask": h.mask(cpuset.Set{}),
	}
	for i, s := range spec.NICs {
		h.nics = append(h.nics, newNIC(h, s, i+2)) // 1 is lo
	}
	h.rebuild()
	return h
}

// nodeOf is the NUMA node of a CPU.
func (h *Host) nodeOf(cpu int) int {
	c := h.spec.CPUs
	return cpu % (c.Nodes * c.Cores) / c.Cores
}

func (h *Host) cpusOfNode(node int) cpuset.Set {
	var s []int
	for cpu := range h.all.All() {
		if h.nodeOf(cpu) == node {
			s = append(s, cpu)
		}
	}
	return cpuset.Of(s...)
}

// since reports whether the fake's kernel is at least major.minor.
func (h *Host) since(major, minor int) bool {
	var a, b int
	// The patch level and what distributions append do not matter here.
	if _, err := fmt.Sscanf(h.spec.Kernel, "%d.%d", &a, &b); err != nil {
		h.t.Fatalf("fake host: kernel %q is not like 6.12.0", h.spec.Kernel)
	}
	return a > major || a == major && b >= minor
}

// SetOnline takes a CPU on- or offline; its interrupts move away
// (irq_migrate_all_off_this_cpu in kernel/irq/cpuhotplug.c).
func (h *Host) SetOnline(cpu int, online bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if online {
		h.online = h.online.Union(cpuset.Of(cpu))
	} else {
		h.online = h.online.Minus(cpuset.Of(cpu))
	}
	for _, i := range h.irqs {
		if !online && i.effective.Contains(cpu) {
			i.effective = cpuset.Set{}
			if to := h.pick(i.wanted.Intersect(h.online)); to >= 0 {
				i.effective = cpuset.Of(to)
			} else {
				i.effective = cpuset.Of(h.pick(h.online))
			}
		}
	}
	h.rebuild()
}

// Remove unplugs a device: its folder and interrupts vanish.
func (h *Host) Remove(name string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	n := h.nic(name)
	n.freeVectors(h)
	h.nics = slices.DeleteFunc(h.nics, func(x *device) bool { return x == n })
	h.rebuild()
}

// Plug adds a device.
func (h *Host) Plug(s NIC) {
	h.mu.Lock()
	defer h.mu.Unlock()
	last := 1
	for _, n := range h.nics {
		last = max(last, n.index)
	}
	h.nics = append(h.nics, newNIC(h, s, last+1))
	h.rebuild()
}

// Rename gives a device another name. Its interrupts keep theirs until they are
// requested again (request_irq stores the pointer to a name formatted at open).
func (h *Host) Rename(from, to string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.nic(from).spec.Name = to
	h.rebuild()
}

// SetFile sets the text of a further file, or removes it when text is "".
func (h *Host) SetFile(path, text string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	files := map[string]string{}
	for k, v := range h.spec.Files {
		files[k] = v
	}
	files[path] = text
	if text == "" {
		delete(files, path)
	}
	h.spec.Files = files
	h.rebuild()
}

// Writes lists the file writes so far as "path = text", and forgets them.
func (h *Host) Writes() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	w := h.writes
	h.writes = nil
	return w
}

func (h *Host) nic(name string) *device {
	for _, n := range h.nics {
		if n.spec.Name == name {
			return n
		}
	}
	return nil
}

// parseMask reads what a mask file is given; CPUs the kernel cannot have are
// EOVERFLOW, and so are more groups of 32 bits than it has CPUs for, even empty ones
// (bitmap_parse in lib/bitmap-str.c with nr_cpumask_bits).
func (h *Host) parseMask(text string) (cpuset.Set, error) {
	groups := strings.Split(text, ",")
	if len(groups) > (h.all.Len()+31)/32 || slices.ContainsFunc(groups, func(g string) bool { return len(g) > 8 }) {
		return cpuset.Set{}, syscall.EOVERFLOW
	}
	s, err := cpuset.ParseMask(text)
	if err != nil {
		return cpuset.Set{}, syscall.EINVAL
	}
	if !s.SubsetOf(h.all) {
		return cpuset.Set{}, syscall.EOVERFLOW
	}
	return s, nil
}

// parseList reads what a list file is given; CPUs the kernel cannot have are ERANGE
// (bitmap_parselist).
func (h *Host) parseList(text string) (cpuset.Set, error) {
	s, err := cpuset.ParseList(text)
	if err != nil {
		return cpuset.Set{}, syscall.EINVAL
	}
	if !s.SubsetOf(h.all) {
		return cpuset.Set{}, syscall.ERANGE
	}
	return s, nil
}

func (h *Host) mask(s cpuset.Set) string { return s.Mask(h.all.Len()) }

func parseUint(text string, limit uint64) (uint64, error) {
	n, err := strconv.ParseUint(text, 0, 64)
	if err != nil {
		return 0, syscall.EINVAL
	}
	if n > limit {
		return 0, syscall.ERANGE
	}
	return n, nil
}

// Dump is the whole state as text: what is set, and what is in effect. Two dumps
// are equal exactly when no setting differs.
func (h *Host) Dump() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	var b strings.Builder
	fmt.Fprintf(&b, "host kernel %s online %s", h.spec.Kernel, h.online)
	if !h.spec.CPUs.Isolated.IsEmpty() {
		fmt.Fprintf(&b, " isolated %s", h.spec.CPUs.Isolated)
	}
	b.WriteByte('\n')
	for _, k := range sortedKeys(h.sysctl) {
		fmt.Fprintf(&b, "sysctl %s %s\n", k, h.sysctl[k])
	}
	for _, n := range h.nics {
		n.dump(h, &b)
	}
	return b.String()
}

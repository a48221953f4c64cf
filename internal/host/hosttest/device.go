package hosttest

import (
	"cmp"
	"fmt"
	"maps"
	"math/bits"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/rxsteer/rxsteer/internal/cpuset"
	"github.com/rxsteer/rxsteer/internal/ethtool"
)

// device is a network device and its state.
type device struct {
	spec     NIC
	index    int
	channels ethtool.Group
	rings    ethtool.Group
	coalesce ethtool.Group
	perQueue []ethtool.Group
	table    []int
	user     bool // netif_is_rxfh_configured: the table was set by the user
	key      []byte
	function string
	contexts map[uint32][]int
	fields   map[string]string
	features map[string]bool
	pause    ethtool.Group
	flags    map[string]bool
	fec      ethtool.FEC
	rules    []ethtool.Rule
	mtu      int
	flaps    int // how often the link went down for a change
	vectors  []vector
	rps      []cpuset.Set
	flows    []uint64 // rps_flow_cnt
	xps      []cpuset.Set
	xpsRXQs  []cpuset.Set
	napis    []napiState
	threaded uint32
	deferIRQ uint64
	flush    uint64 // ns
}

type vector struct {
	irq    *irq
	kind   string // combined, rx, tx, control
	number int    // of the pair or queue
}

type napiState struct {
	id       uint32
	rx, tx   int // −1 none
	irq      int // −1 none
	threaded uint32
	deferIRQ uint32
	flush    uint64
	suspend  uint64
}

func newNIC(h *Host, s NIC, index int) *device {
	n := &device{
		spec: s, index: index, mtu: 1500,
		channels: maps.Clone(s.Channels), rings: maps.Clone(s.Rings), coalesce: maps.Clone(s.Coalesce),
		key: slices.Clone(s.Key), function: s.Function, fields: maps.Clone(s.HashFields),
		features: maps.Clone(s.Features), pause: maps.Clone(s.Pause), flags: maps.Clone(s.Flags),
		contexts: map[uint32][]int{},
	}
	if s.FEC != nil {
		n.fec = *s.FEC
	}
	n.driverTable()
	n.build(h)
	return n
}

// queues returns how many rx and tx queues are real.
func (n *device) queues() (rx, tx int) {
	if n.channels == nil {
		q := max(n.spec.Queues, 1)
		return q, q
	}
	return int(n.channels["combined"] + n.channels["rx"]), int(n.channels["combined"] + n.channels["tx"])
}

// driverTable is what the driver fills in by itself.
func (n *device) driverTable() {
	n.defaultTable()
	if rx, _ := n.queues(); n.spec.Blocks {
		for i := range n.table {
			n.table[i] = i * rx / len(n.table)
		}
	}
}

// defaultTable is what ethtool -X default sets: bucket i to queue i mod n
// (ethtool_rxfh_indir_default, include/linux/ethtool.h).
func (n *device) defaultTable() {
	rx, _ := n.queues()
	n.table, n.user = make([]int, n.spec.Table), false
	for i := range n.table {
		n.table[i] = i % rx
	}
}

// build makes queues, vectors and NAPIs for the current channels. Settings of queues
// that stay survive (netif_set_real_num_rx_queues only adds and removes kobjects),
// those of vectors do not: they are requested anew.
func (n *device) build(h *Host) {
	n.freeVectors(h)
	rx, tx := n.queues()
	n.rps, n.xps = resize(n.rps, rx), resize(n.xps, tx)
	n.xpsRXQs, n.flows = resize(n.xpsRXQs, tx), resize(n.flows, rx)
	if n.spec.QueueCoalesce {
		old := len(n.perQueue)
		n.perQueue = resize(n.perQueue, max(rx, tx))
		for i := old; i < len(n.perQueue); i++ {
			n.perQueue[i] = maps.Clone(n.coalesce)
		}
	}
	n.requestVectors(h)
	n.napis = nil
	if !n.spec.NAPI || n.spec.Down {
		return
	}
	for q := range max(rx, tx) {
		h.napi++
		s := napiState{id: h.napi, rx: -1, tx: -1, irq: -1, threaded: n.threaded, deferIRQ: uint32(n.deferIRQ), flush: n.flush}
		if q < rx {
			s.rx = q
		}
		if q < tx {
			s.tx = q
		}
		for _, v := range n.vectors {
			if n.spec.NAPIIRQ && v.number == q && v.kind != "control" && v.kind != "tx" {
				s.irq = v.irq.num
			}
		}
		n.napis = append(n.napis, s)
	}
}

func resize[T any](s []T, n int) []T {
	if n <= len(s) {
		return s[:n:n]
	}
	return append(s, make([]T, n-len(s))...)
}

func (n *device) freeVectors(h *Host) {
	for _, v := range n.vectors {
		delete(h.irqs, v.irq.num)
	}
	n.vectors = nil
}

func (n *device) requestVectors(h *Host) {
	rx, tx := n.queues()
	hwirq := 0
	vectors := n.spec.Vectors
	if n.spec.Few != nil && max(rx, tx) <= n.spec.FewMax {
		vectors = n.spec.Few
	}
	for _, v := range vectors {
		count := 1
		switch v.For {
		case "combined":
			count = max(rx, tx)
		case "rx":
			count = rx
		case "tx":
			count = tx
		}
		for i := range count {
			name := strings.NewReplacer("{if}", n.spec.Name, "{bdf}", n.spec.Bus, "{virtio}", n.spec.Virtio, "{n}", strconv.Itoa(v.From+i)).Replace(v.Name)
			x := h.request(name, "PCI-MSIX-"+n.spec.Bus, hwirq, n.spec.Node, n.spec.Managed && v.For != "control", i)
			n.vectors = append(n.vectors, vector{x, v.For, i})
			hwirq++
		}
	}
}

// setRPS is a write to rps_cpus (store_rps_map in net/core/net-sysfs.c).
func (n *device) setRPS(h *Host, q int, text string) error {
	mask, err := h.parseMask(text)
	if err != nil {
		return err
	}
	// rps_cpumask_housekeeping, commit 07bbecb34106 (5.9): cut to the CPUs that
	// isolcpus= leaves; nothing left is EINVAL; an empty mask is always taken.
	if !mask.IsEmpty() && h.since(5, 9) {
		if mask = mask.Minus(h.spec.CPUs.Isolated); mask.IsEmpty() {
			return syscall.EINVAL
		}
	}
	// netdev_rx_queue_set_rps_mask keeps online CPUs only.
	n.rps[q] = mask.Intersect(h.online)
	return nil
}

// setFlowCount is a write to rps_flow_cnt: rounded up to a power of two
// (store_rps_dev_flow_table_cnt in net/core/net-sysfs.c).
func (n *device) setFlowCount(q int, text string) error {
	v, err := parseUint(text, 1<<31-1)
	if err != nil {
		return syscall.EINVAL
	}
	n.flows[q] = roundUp(v)
	return nil
}

func roundUp(v uint64) uint64 {
	if v <= 1 {
		return v
	}
	return 1 << bits.Len64(v-1)
}

// maxSockFlows bounds rps_sock_flow_entries (rps_sock_flow_sysctl in
// net/core/sysctl_net_core.c: size > 1<<29 is EINVAL).
const maxSockFlows = 1 << 29

// setSysctl is a write below /proc/sys/net/core (net/core/sysctl_net_core.c).
func (h *Host) setSysctl(name, text string) error {
	switch name {
	case "flow_limit_cpu_bitmap", "rps_default_mask":
		m, err := h.parseMask(text)
		if err != nil {
			return err
		}
		if name == "rps_default_mask" && !m.IsEmpty() {
			if m = m.Minus(h.spec.CPUs.Isolated); m.IsEmpty() {
				return syscall.EINVAL
			}
		}
		h.sysctl[name] = h.mask(m)
		return nil
	}
	v, err := parseUint(text, 1<<31-1)
	if err != nil {
		return syscall.EINVAL
	}
	switch name {
	case "rps_sock_flow_entries":
		if v > maxSockFlows {
			return syscall.EINVAL
		}
		v = roundUp(v)
	case "flow_limit_table_len":
		if v != roundUp(v) { // flow_limit_table_len_sysctl: must be a power of two
			return syscall.EINVAL
		}
	case "dev_weight":
		if v == 0 {
			return syscall.EINVAL
		}
	}
	h.sysctl[name] = strconv.FormatUint(v, 10)
	return nil
}

func (n *device) dump(h *Host, b *strings.Builder) {
	s := n.spec
	rx, tx := n.queues()
	fmt.Fprintf(b, "%s driver %s rx-queues %d tx-queues %d mtu %d link-flaps %d\n", s.Name, s.Driver, rx, tx, n.mtu, n.flaps)
	group := func(word string, g ethtool.Group) {
		if g == nil {
			return
		}
		fmt.Fprintf(b, "%s %s", s.Name, word)
		for _, k := range sortedKeys(g) {
			fmt.Fprintf(b, " %s %d", k, g[k])
		}
		b.WriteByte('\n')
	}
	group("channels", n.channels)
	group("rings", n.rings)
	group("coalesce", n.coalesce)
	for q, g := range n.perQueue {
		group(fmt.Sprintf("queue-%d", q), g)
	}
	group("pause", n.pause)
	if len(n.table) > 0 {
		who := "default"
		if n.user {
			who = "user"
		}
		fmt.Fprintf(b, "%s table %s %v\n", s.Name, who, n.table)
		fmt.Fprintf(b, "%s hash %s key %x\n", s.Name, cmp.Or(n.function, "-"), n.key)
	}
	for _, c := range sortedKeys(n.contexts) {
		fmt.Fprintf(b, "%s context %d %v\n", s.Name, c, n.contexts[c])
	}
	for _, f := range sortedKeys(n.fields) {
		fmt.Fprintf(b, "%s hash-fields %s %s\n", s.Name, f, n.fields[f])
	}
	for _, r := range n.rules {
		fmt.Fprintf(b, "%s rule %d %s queue %d\n", s.Name, r.Location, r.Flow, r.Queue)
	}
	for _, set := range []struct {
		word string
		m    map[string]bool
	}{{"feature", n.features}, {"flag", n.flags}} {
		for _, k := range sortedKeys(set.m) {
			fmt.Fprintf(b, "%s %s %s %v\n", s.Name, set.word, k, set.m[k])
		}
	}
	if s.FEC != nil {
		fmt.Fprintf(b, "%s fec %s auto %v\n", s.Name, n.fec.Modes, n.fec.Auto)
	}
	for q := range n.rps {
		fmt.Fprintf(b, "%s rx-%d rps %q flows %d\n", s.Name, q, n.rps[q], n.flows[q])
	}
	for q := range n.xps {
		fmt.Fprintf(b, "%s tx-%d xps %q rxqs %q\n", s.Name, q, n.xps[q], n.xpsRXQs[q])
	}
	fmt.Fprintf(b, "%s napi threaded %d defer-hard-irqs %d gro-flush-timeout %d\n", s.Name, n.threaded, n.deferIRQ, n.flush)
	for _, x := range n.napis {
		fmt.Fprintf(b, "%s napi rx %d tx %d threaded %d defer-hard-irqs %d gro-flush-timeout %d irq-suspend-timeout %d\n", s.Name, x.rx, x.tx, x.threaded, x.deferIRQ, x.flush, x.suspend)
	}
	for _, v := range n.vectors {
		i := v.irq
		fmt.Fprintf(b, "%s irq %s wanted %s effective %s", s.Name, i.name, i.wanted, i.effective)
		if i.managed {
			b.WriteString(" managed")
		}
		if i.pending {
			b.WriteString(" pending")
		}
		b.WriteByte('\n')
	}
}

func sortedKeys[K cmp.Ordered, V any](m map[K]V) []K { return slices.Sorted(maps.Keys(m)) }

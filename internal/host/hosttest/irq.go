package hosttest

import (
	"syscall"

	"github.com/rxsteer/rxsteer/internal/cpuset"
)

// irq is one interrupt of a device.
type irq struct {
	num       int
	name      string
	chip      string
	hwirq     int
	node      int
	managed   bool
	wanted    cpuset.Set // what smp_affinity reads: the pending mask while a move is pending
	effective cpuset.Set
	pending   bool
	hint      cpuset.Set
	count     map[int]uint64 // interrupts by CPU
}

// firstIRQ is the first dynamic IRQ number on a small x86 machine (after the IO-APIC).
const firstIRQ = 24

// request allocates the lowest free IRQ number and a vector on the least loaded
// CPU of the device's node (matrix_find_best_cpu in kernel/irq/matrix.c picks the CPU with the
// most free vectors, the lowest number among equals).
func (h *Host) request(name, chip string, hwirq, node int, managed bool, nth int) *irq {
	num := firstIRQ
	for h.irqs[num] != nil {
		num++
	}
	i := &irq{num: num, name: name, chip: chip, hwirq: hwirq, node: node, managed: managed, count: map[int]uint64{}}
	local := h.cpusOfNode(max(node, 0)).Intersect(h.online)
	if local.IsEmpty() {
		local = h.online
	}
	i.wanted = h.all // irq_default_affinity
	if managed {
		// irq_create_affinity_masks spreads managed vectors over all CPUs.
		cpus := h.all.Slice()
		i.wanted = cpuset.Of(cpus[nth%len(cpus)])
		if i.wanted.Intersects(h.online) {
			local = i.wanted
		}
	}
	if cpu := h.pick(local); cpu >= 0 {
		i.effective = cpuset.Of(cpu)
	}
	h.irqs[num] = i
	return i
}

// pick returns the CPU of a set with the most free vectors, −1 when all are full.
func (h *Host) pick(set cpuset.Set) int {
	used := map[int]int{}
	for _, i := range h.irqs {
		for cpu := range i.effective.All() {
			used[cpu]++
		}
	}
	best := -1
	for cpu := range set.All() {
		if used[cpu] < h.spec.VectorsPerCPU && (best < 0 || used[cpu] < used[best]) {
			best = cpu
		}
	}
	return best
}

// setAffinity is a write to smp_affinity or smp_affinity_list
// (write_irq_affinity in kernel/irq/proc.c, irq_set_affinity_locked in
// kernel/irq/manage.c, apic_set_affinity in arch/x86/kernel/apic/vector.c).
func (h *Host) setAffinity(i *irq, set cpuset.Set) error {
	if i.managed {
		// irq_can_set_affinity_usr; EPERM since commit eb29369fa543 (6.12), EIO before.
		if h.since(6, 12) {
			return syscall.EPERM
		}
		return syscall.EIO
	}
	target := set.Intersect(h.online)
	if target.IsEmpty() {
		return syscall.EINVAL // no online CPU left: irq_select_affinity_usr has no answer on x86
	}
	if !h.spec.Remapping {
		// Without IRQCHIP_MOVE support in process context the mask is pending until
		// the next interrupt (irq_copy_pending; irq_affinity_proc_show prints the pending mask).
		i.wanted, i.pending = set, true
		return nil
	}
	was := i.effective
	i.effective = cpuset.Set{} // its own vector may stay where it is
	cpu := h.pick(target)
	if cpu < 0 {
		i.effective = was
		return syscall.ENOSPC // irq_matrix_alloc
	}
	i.wanted, i.effective = set, cpuset.Of(cpu)
	return nil
}

// fire is one interrupt: it counts where it arrives, then a pending move is done
// (irq_move_masked_irq in kernel/irq/migration.c). A move into full CPUs is
// lost and the interrupt stays where it was.
func (h *Host) fire(i *irq) {
	for cpu := range i.effective.All() {
		i.count[cpu]++
	}
	if !i.pending {
		return
	}
	i.pending = false
	was := i.effective
	i.effective = cpuset.Set{}
	if cpu := h.pick(i.wanted.Intersect(h.online)); cpu >= 0 {
		i.effective = cpuset.Of(cpu)
	} else {
		i.effective = was
	}
}

// Interrupt raises one interrupt; an unknown number fails the test.
func (h *Host) Interrupt(num int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	i := h.irqs[num]
	if i == nil {
		h.t.Errorf("fake host: no interrupt %d", num)
		return
	}
	h.fire(i)
}

// Tick raises every interrupt once.
func (h *Host) Tick() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, n := range sortedKeys(h.irqs) {
		h.fire(h.irqs[n])
	}
}

// IRQs lists the interrupts of a device in vector order.
func (h *Host) IRQs(device string) []int {
	h.mu.Lock()
	defer h.mu.Unlock()
	n := h.nic(device)
	if n == nil {
		return nil
	}
	var out []int
	for _, v := range n.vectors {
		out = append(out, v.irq.num)
	}
	return out
}

// Manage makes an interrupt kernel-managed or not.
func (h *Host) Manage(num int, managed bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.irqs[num].managed = managed
}

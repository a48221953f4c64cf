package nic

import (
	"cmp"
	"fmt"
	"slices"
)

// Before Linux 6.8, and of many drivers after it, the kernel tells no link between a queue and
// its NAPI. Ids help: napi_hash_add (net/core/dev.c) gives each NAPI the next free number, and
// drivers add their NAPIs in queue order (igb_alloc_q_vectors, virtnet_alloc_queues,
// vmxnet3_probe_device, ixgbe_alloc_q_vectors). Those added for transmit only
// (netif_napi_add_tx) have no id.

// Polled is that a NAPI was polled in softirq on a CPU, None where that is not known.
type Polled struct {
	NAPI uint32
	CPU  int
}

// Fired is that an interrupt was delivered to a CPU.
type Fired struct{ IRQ, CPU int }

// LinkNAPIs fills Queue.NAPI by what was seen of the device's NAPIs in a while in which it kept
// them, where the kernel does not tell it: one rx queue has all NAPIs of the device, otherwise
// as many NAPIs with consecutive ids as vectors are those of the vectors in order (ByOrder),
// otherwise a NAPI is that of the one vector that fires where it runs (ByLearned). What traffic
// speaks against is taken back.
func (n *NIC) LinkNAPIs(polled []Polled, fired []Fired) {
	if n.told() {
		return
	}
	ids := idsOf(polled)
	if rx := n.receiving(); len(rx) == 1 {
		if len(ids) > 0 {
			n.link(rx[0], ids[0], ByOrder)
		}
		return
	}
	if len(ids) > 0 && int(ids[len(ids)-1]-ids[0]) == len(ids)-1 && n.NAPIAt(ids[0]) == None {
		n.linkInOrder(ids, false)
	}
	if n.contradicted(ids, polled, fired) {
		for i := range n.Queues {
			n.Queues[i].NAPI, n.Queues[i].NAPIBy = 0, Unknown
		}
	}
	n.linkLearned(ids, polled, fired)
}

// Learned is one link of the map that traffic has shown.
type Learned struct {
	RX   int // rx queue, None where only the interrupt is known
	NAPI uint32
	IRQ  int // None not seen
}

// Learn takes what traffic has shown beyond doubt: the NAPI of a queue by the packets it handed over, else by the
// interrupt that raised it. Order gives way to it, what the kernel tells does not. An interrupt that the map gives another
// queue is a problem.
func (n *NIC) Learn(links []Learned) {
	told := n.told()
	for _, l := range links {
		for _, row := range n.receiving() {
			q := &n.Queues[row]
			if l.NAPI == 0 || q.RX != l.RX && (l.RX != None || l.IRQ == None || q.IRQ != l.IRQ) {
				continue
			}
			if l.IRQ != None && q.IRQ != None && q.IRQ != l.IRQ {
				problem := fmt.Sprintf("rx %d of %s is served by IRQ %d by %s, but traffic came by IRQ %d", q.RX, n.Name, q.IRQ, cmp.Or(q.KnownBy, "an unknown source"), l.IRQ)
				if !slices.Contains(n.Problems, problem) {
					n.Problems = append(n.Problems, problem)
				}
			}
			if told {
				continue
			}
			for other := range n.Queues {
				if o := &n.Queues[other]; other != row && o.NAPI == l.NAPI {
					o.NAPI, o.NAPIBy = 0, Unknown // of a guess
				}
			}
			n.link(row, l.NAPI, ByLearned)
			if l.RX != None && l.IRQ != None && q.IRQ == None {
				q.IRQ, q.KnownBy = l.IRQ, ByLearned
			}
		}
	}
}

// NAPIAt is the rx queue of a NAPI, None not known. All NAPIs of a device with one rx queue
// are that queue's.
func (n *NIC) NAPIAt(id uint32) int {
	if id == 0 {
		return None
	}
	rx := n.receiving()
	for _, i := range rx {
		if q := n.Queues[i]; q.NAPI == id || len(rx) == 1 && !n.told() {
			return q.RX
		}
	}
	return None
}

// told reports whether the kernel tells the NAPI of a queue.
func (n *NIC) told() bool {
	return slices.ContainsFunc(n.Queues, func(q Queue) bool { return q.NAPI != 0 && q.NAPIBy == Unknown })
}

// receiving lists the rows with an rx queue, in its order.
func (n *NIC) receiving() []int {
	var out []int
	for i, q := range n.Queues {
		if q.RX != None {
			out = append(out, i)
		}
	}
	slices.SortFunc(out, func(a, b int) int { return cmp.Compare(n.Queues[a].RX, n.Queues[b].RX) })
	return out
}

func (n *NIC) link(row int, id uint32, by Source) {
	n.Queues[row].NAPI, n.Queues[row].NAPIBy = id, by
}

// polling lists the rows whose vector has a NAPI with an id, in the order in which the driver adds them;
// nil where rx queues share vectors or have none.
func (n *NIC) polling() []int {
	rows := n.receiving()
	irqs := make(map[int]bool)
	for _, i := range rows {
		if n.Queues[i].IRQ == None || irqs[n.Queues[i].IRQ] {
			return nil
		}
		irqs[n.Queues[i].IRQ] = true
	}
	if fact(n.Driver, ReceiveNAPIs) != nil {
		return rows
	}
	split := false
	for i, q := range n.Queues {
		if q.RX == None && q.IRQ != None && !irqs[q.IRQ] {
			irqs[q.IRQ], split = true, true
			rows = append(rows, i)
		}
	}
	if split { // igb with vectors enough: rx first
		slices.SortFunc(rows, func(a, b int) int { return cmp.Compare(n.Queues[a].IRQ, n.Queues[b].IRQ) })
	}
	return rows
}

// linkInOrder gives ascending ids to the vectors in order when there are as many. A list that is complete may be
// longer where the driver keeps receive NAPIs for queues not in use: those come last.
func (n *NIC) linkInOrder(ids []uint32, complete bool) {
	if rx := n.receiving(); len(rx) == 1 && len(ids) == 1 {
		n.link(rx[0], ids[0], ByOrder)
		return
	}
	rows := n.polling()
	more := complete && fact(n.Driver, ReceiveNAPIs) != nil
	if len(rows) == 0 || len(ids) < len(rows) || len(ids) > len(rows) && !more {
		return
	}
	for i, row := range rows {
		n.link(row, ids[i], ByOrder)
	}
}

// contradicted reports whether a NAPI ran that no link names though all vectors have one, or ran
// on no CPU that its vector fired on.
func (n *NIC) contradicted(ids []uint32, polled []Polled, fired []Fired) bool {
	linked := make(map[uint32]int)
	for _, q := range n.Queues {
		if q.NAPI != 0 {
			linked[q.NAPI] = q.IRQ
		}
	}
	if len(linked) == 0 {
		return false
	}
	rows := n.polling()
	full := !slices.ContainsFunc(rows, func(i int) bool { return n.Queues[i].NAPI == 0 })
	for _, id := range ids {
		irq, ok := linked[id]
		if !ok && full {
			return true
		}
		on, ran := firedOn(irq, fired), false
		for _, p := range polled {
			ran = ran || p.NAPI == id && (p.CPU == None || on[p.CPU])
		}
		if ok && len(on) > 0 && !ran {
			return true
		}
	}
	return false
}

// linkLearned links a NAPI with the only vector that fired on its CPUs, when that fired on no other NAPI's.
func (n *NIC) linkLearned(ids []uint32, polled []Polled, fired []Fired) {
	rows := n.polling()
	perNAPI, perRow := make(map[uint32][]int), make(map[int]int)
	for _, id := range ids {
		for _, row := range rows {
			on := firedOn(n.Queues[row].IRQ, fired)
			if slices.ContainsFunc(polled, func(p Polled) bool { return p.NAPI == id && on[p.CPU] }) {
				perNAPI[id] = append(perNAPI[id], row)
				perRow[row]++
			}
		}
	}
	for _, id := range ids {
		if c := perNAPI[id]; len(c) == 1 && perRow[c[0]] == 1 && n.Queues[c[0]].NAPI == 0 {
			n.link(c[0], id, ByLearned)
		}
	}
}

func firedOn(irq int, fired []Fired) map[int]bool {
	on := make(map[int]bool)
	for _, f := range fired {
		if f.IRQ == irq && irq != None {
			on[f.CPU] = true
		}
	}
	return on
}

func idsOf(polled []Polled) []uint32 {
	var ids []uint32
	for _, p := range polled {
		if p.NAPI != 0 {
			ids = append(ids, p.NAPI)
		}
	}
	slices.Sort(ids)
	return slices.Compact(ids)
}

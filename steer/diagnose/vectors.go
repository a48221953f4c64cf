package diagnose

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/rxsteer/rxsteer/collector"
	"github.com/rxsteer/rxsteer/internal/cpuset"
	"github.com/rxsteer/rxsteer/internal/host/knob"
	"github.com/rxsteer/rxsteer/internal/host/nic"
	"github.com/rxsteer/rxsteer/internal/host/topo"
)

const (
	// noticed is the part of a device's packets handled in the wrong place that makes it worth a move.
	noticed = 0.25
	// elsewhere is the part of a queue's polls away from its vector that says a move has not taken place.
	elsewhere = 0.8
	// fired is the interrupts of a vector in the interval below which nothing is said about where they go.
	fired = 10
	// manyInterrupts is how many interrupts a single look must show before their places are judged.
	manyInterrupts = 100_000
	// vectorsPerCPU is what one x86 CPU has for devices: 256 less exceptions and system vectors
	// (FIRST_SYSTEM_VECTOR, arch/x86/include/asm/irq_vectors.h).
	vectorsPerCPU = 200
	// nearlyAllVectors is the part of them from which the next device may find none.
	nearlyAllVectors = 0.9
)

// place is where one receive queue is handled.
type place struct {
	queue, irq, cpu    int // irq and cpu -1 not known
	count              uint64
	share              float64 // of the device's packets
	affinity, effect   cpuset.Set
	managed, threaded  bool
	wantTold, isTold   bool
	interruptsThisTime uint64
}

// places is the busy queues of a device, by queue.
func (v *view) places(device string) []place {
	load := v.queueLoad(device)
	var out []place
	for _, q := range v.nics[device].Queues {
		if !slices.Contains(load.busy(), q.RX) {
			continue
		}
		p := place{queue: q.RX, irq: q.IRQ, cpu: load.cpu(q.RX), count: load.counts[q.RX], share: part(load.counts[q.RX], load.total), threaded: q.Thread > 0}
		p.affinity, p.wantTold = v.irqSet(knob.IRQAffinity, device, q.IRQ)
		if !p.wantTold {
			p.affinity, p.wantTold = q.Affinity, !q.Affinity.IsEmpty()
		}
		p.effect, p.isTold = v.irqSet(knob.IRQEffective, device, q.IRQ)
		if !p.isTold {
			p.effect, p.isTold = q.Effective, !q.Effective.IsEmpty()
		}
		if p.cpu < 0 && p.effect.Len() == 1 {
			p.cpu = p.effect.Slice()[0]
		}
		p.managed = v.flag(knob.IRQManaged, device, q.IRQ)
		for _, i := range v.s.IRQs {
			if i.IRQ == q.IRQ {
				p.interruptsThisTime += i.Count
			}
		}
		out = append(out, p)
	}
	slices.SortFunc(out, func(a, b place) int { return a.queue - b.queue })
	return out
}

func (v *view) irqSet(k knob.Kind, device string, irq int) (cpuset.Set, bool) {
	var text string
	if irq < 0 || v.setting(k, knob.On(device, "irq-%d", irq)).Decode(&text) != nil {
		return cpuset.Set{}, false
	}
	s, err := cpuset.ParseList(text)
	return s, err == nil && !s.IsEmpty()
}

func (v *view) flag(k knob.Kind, device string, irq int) bool {
	var on bool
	return irq >= 0 && v.setting(k, knob.On(device, "irq-%d", irq)).Decode(&on) == nil && on
}

// threaded reports whether kernel threads poll a device: then vectors do not decide where.
func (v *view) threadedNAPI(device string) bool {
	var n int64
	if v.setting(knob.Threaded, knob.Target(device)).Decode(&n) == nil && n > 0 {
		return true
	}
	return slices.ContainsFunc(v.nics[device].Queues, func(q nic.Queue) bool { return q.Thread > 0 })
}

// steered is the physical devices asked for that carry enough, in order.
func (v *view) steered() []string {
	var out []string
	for _, n := range v.inventory() {
		if n.Kind == nic.Physical && v.wanted(n.Name) && v.queueLoad(n.Name).total > 0 && v.enough(n.Name) {
			out = append(out, n.Name)
		}
	}
	return out
}

// crowded reports RX102 where counters alone show that the vectors of several busy queues, of one device
// or of several, go to one CPU while others get none: a pasted table of interrupts, or a CPU that is not
// hot yet but half-way there.
func (v *view) crowded(r *Report) {
	type vector struct {
		device string
		place
	}
	on := map[int][]vector{}
	total := map[int]uint64{}
	var all uint64
	taken := cpuset.Set{}
	for _, d := range v.steered() {
		if v.threadedNAPI(d) {
			r.checked("kernel threads poll %s: its vectors do not decide where", d)
			continue
		}
		for _, p := range v.places(d) {
			if p.cpu >= 0 && p.irq >= 0 {
				on[p.cpu] = append(on[p.cpu], vector{d, p})
				total[p.cpu] += p.count
				all += p.count
				taken = taken.Union(cpuset.Of(p.cpu))
			}
		}
	}
	free := v.usable.Minus(taken)
	if len(on) > 1 {
		r.checked("busy queues are handled on cpus %s", taken)
	}
	for _, cpu := range slices.Sorted(maps.Keys(on)) {
		here := on[cpu]
		if len(here) < 2 || part(total[cpu], all) < dominant || free.IsEmpty() || v.crowdKnown(r, cpu) {
			continue
		}
		told := v.loadTold(cpu)
		if told && v.pressure(cpu) < hotRatio/2 || !told && total[cpu] < manyInterrupts {
			harm := fmt.Sprintf("%s of its time in receive softirq", percent(v.pressure(cpu)))
			if !told {
				harm = fmt.Sprintf("%d interrupts", total[cpu])
			}
			r.checked("cpu %d takes the vectors of %d busy queues: %s, no harm", cpu, len(here), harm)
			continue
		}
		byDevice := map[string][]int{}
		var wide int
		for _, x := range here {
			byDevice[x.device] = append(byDevice[x.device], x.queue)
			if x.affinity.Len() > 1 {
				wide++
			}
		}
		names := slices.Sorted(maps.Keys(byDevice))
		f := Finding{ID: "RX102", Severity: Warning, Subject: names[0], Site: Site{Device: names[0], Queues: byDevice[names[0]], CPU: cpu},
			Evidence: Evidence{{"cpu", cpu}, {"queues_there", len(here)}, {"share_of_busy_queues_ratio", part(total[cpu], all)}, {"free_cpus", free.String()}}}
		if len(names) > 1 {
			f.Subject = fmt.Sprintf("cpu %d", cpu)
			f.Evidence = append(f.Evidence, Fact{"devices", strings.Join(names, " ")})
			if len(byDevice[names[0]]) == 1 {
				f.Site.Device, f.Site.Queues = names[len(names)-1], byDevice[names[len(names)-1]]
			}
		}
		busy := ""
		if told {
			busy = fmt.Sprintf("; %s of its time is receive softirq", percent(v.pressure(cpu)))
			f.Evidence = append(f.Evidence, Fact{"cpu_receive_softirq_ratio", v.load[cpu].NetRX})
		}
		f.Summary = fmt.Sprintf("vectors of %s of %s all go to cpu %d, while cpus %s take none%s", count(len(here), "busy queue"), strings.Join(names, ", "), cpu, free, busy)
		f.Remedy = "give each busy queue's vector a CPU of its own on the device's node (smp_affinity), first of all; RPS over enough queues costs more than it gives"
		// Masks that name other CPUs and are not followed are the cause, not the masks.
		if i := slices.IndexFunc(r.Findings, func(x Finding) bool {
			return x.ID == "RX104" && len(names) == 1 && x.Site.Device == names[0] && subset(byDevice[names[0]], x.Site.Queues)
		}); i >= 0 {
			r.Findings[i].Explains = append(r.Findings[i].Explains, Symptom{ID: f.ID, Subject: f.Subject, Summary: f.Summary, Evidence: f.Evidence})
			continue
		}
		if wide > 0 {
			f.Explains = append(f.Explains, v.wideMasks(cpu, wide, len(here)))
		}
		r.Findings = append(r.Findings, f)
	}
}

// several is RX102 for a hot CPU that the vectors of several devices share.
func (v *view) several(cpu int, src []source, total uint64) (Finding, bool) {
	var names []string
	for _, s := range src {
		if s.device != "" && v.nics[s.device].Kind == nic.Physical && !v.threadedNAPI(s.device) && part(s.time, total) >= noticed/2 && len(v.placesOn(s.device, cpu)) > 0 {
			names = append(names, s.device)
		}
	}
	if len(names) < 2 {
		return Finding{}, false
	}
	last := names[len(names)-1] // the first device stays, the one with least work moves
	f := v.finding("RX102", cpu, last, fmt.Sprintf("cpu %d", cpu))
	f.Summary = fmt.Sprintf("the vectors of %s all go to cpu %d: %s of it is receive softirq while %s", strings.Join(names, ", "), cpu, percent(v.load[cpu].NetRX), v.freeText(cpu))
	f.Remedy = "first of all give each device's vector a CPU of its own (smp_affinity)"
	f.Site.Queues = v.placesOn(last, cpu)
	for _, s := range src {
		if slices.Contains(names, s.device) {
			f.Evidence = append(f.Evidence, Fact{"polls_of_" + s.device + "_ratio", part(s.time, total)})
		}
	}
	f.RuledOut = append(f.RuledOut, "one device alone: none has half of the poll time")
	return f, true
}

// placesOn is the busy queues of a device whose vector fires on a CPU.
func (v *view) placesOn(device string, cpu int) []int {
	var out []int
	for _, p := range v.places(device) {
		if p.cpu == cpu && p.irq >= 0 {
			out = append(out, p.queue)
		}
	}
	return out
}

// wide is how many vectors of the queues allow several CPUs.
func (v *view) wide(device string, queues []int) int {
	n := 0
	for _, p := range v.places(device) {
		if slices.Contains(queues, p.queue) && p.affinity.Len() > 1 {
			n++
		}
	}
	return n
}

func subset(a, of []int) bool {
	return !slices.ContainsFunc(a, func(x int) bool { return !slices.Contains(of, x) })
}

// wideMasks is RX104 as part of RX102: a mask of several CPUs does not spread.
func (v *view) wideMasks(cpu, wide, of int) Symptom {
	return Symptom{ID: "RX104", Subject: fmt.Sprintf("cpu %d", cpu), Evidence: Evidence{{"vectors", of}, {"wide_masks", wide}},
		Summary: fmt.Sprintf("%d of %d vectors allow several CPUs and have one in effect: interrupts go to one CPU of a mask, a wide mask is no spreading", wide, of)}
}

// loadTold reports whether the sample tells what a CPU does with its time.
func (v *view) loadTold(cpu int) bool {
	c := v.cpus[cpu]
	return c.Idle+c.Softirq+c.Irq+c.Steal > 0 || c.SoftirqTime[collector.NetRX] > 0
}

// crowdKnown reports whether a finding already has the vectors on a CPU as cause.
func (v *view) crowdKnown(r *Report, cpu int) bool {
	return slices.ContainsFunc(r.Findings, func(f Finding) bool {
		return f.Site.CPU == cpu && slices.Contains([]ID{"RX102", "RX101", "RX301", "RX203"}, f.ID)
	})
}

// remote reports RX103: busy queues handled away from the device's memory node.
func (v *view) remote(r *Report) {
	for _, d := range v.steered() {
		local, ok := v.node(d)
		if !ok {
			if v.nodes() > 1 {
				r.checked("%s does not tell its memory node: where its queues are handled cannot be judged", d)
			}
			continue
		}
		if v.nodes() < 2 || !local.Intersects(v.usable) {
			continue
		}
		var queues, irqs []int
		var where cpuset.Set
		var share, worst float64
		hot := -1
		for _, p := range v.places(d) {
			if p.cpu < 0 || local.Contains(p.cpu) {
				continue
			}
			if t, ok := v.topo[p.cpu]; !ok || t.Node < 0 {
				continue
			}
			queues, irqs, where, share = append(queues, p.queue), append(irqs, p.irq), where.Union(cpuset.Of(p.cpu)), share+p.share
			if x := v.pressure(p.cpu); hot < 0 || x > worst {
				hot, worst = p.cpu, x
			}
		}
		if share < noticed {
			if v.nodes() > 1 {
				r.checked("%s: its busy queues are handled on its own memory node", d)
			}
			continue
		}
		f := Finding{ID: "RX103", Severity: v.bySeverity(hot), Subject: d,
			Summary: fmt.Sprintf("%s sits on memory node %d and %s of its packets are handled on cpus %s of another: each misses the cache that holds its descriptors and data", d, v.nics[d].Node, percent(share), where),
			Evidence: Evidence{{"node", v.nics[d].Node}, {"local_cpus", local.Intersect(v.usable).String()}, {"remote_cpus", where.String()}, {"queues", cpuset.Of(queues...).String()},
				{"remote_share_ratio", share}, v.carried(d)},
			Remedy: fmt.Sprintf("give their vectors CPUs of node %d (%s), one each (smp_affinity); then the readers, too, run best there", v.nics[d].Node, local.Intersect(v.usable)),
			Site:   Site{Device: d, Queues: queues, CPU: -1, IRQs: irqs}}
		near, far := v.cost(d, local)
		if near > 0 && far > 0 {
			f.Evidence = append(f.Evidence, Fact{"local_ns_per_packet", near}, Fact{"remote_ns_per_packet", far})
		}
		r.Findings = append(r.Findings, f)
	}
}

// nodes is how many memory nodes with CPUs the host has.
func (v *view) nodes() int {
	seen := map[int]bool{}
	for _, c := range v.topo {
		if c.Node != topo.None && c.Online {
			seen[c.Node] = true
		}
	}
	return len(seen)
}

// cost is the poll time per packet of a device on the given CPUs and on others, ns, 0 not known.
func (v *view) cost(device string, local cpuset.Set) (near, far float64) {
	var time, packets [2]uint64
	for _, p := range v.s.NAPIs {
		if v.ours(p, device) && p.Time > 0 {
			i := 0
			if !local.Contains(p.CPU) {
				i = 1
			}
			time[i] += p.Time
			packets[i] += p.Packets
		}
	}
	return part(time[0], packets[0]), part(time[1], packets[1])
}

// notInEffect reports RX104: interrupts or polls that are not where smp_affinity wants them.
func (v *view) notInEffect(r *Report) {
	broken := 0
	for _, e := range v.in.Events {
		if e.Kind == "affinity-broken" {
			broken++
		}
	}
	for _, n := range v.inventory() {
		if n.Kind != nic.Physical || !v.wanted(n.Name) {
			continue
		}
		var out, pending []place
		var where cpuset.Set
		for _, p := range v.vectorsOf(n) {
			switch {
			case v.rewrote(n, p):
				// moved while it was watched: RX105, and where it will fire is not known yet
			case !p.wantTold || p.threaded || v.threadedNAPI(n.Name):
			case p.isTold && !p.effect.SubsetOf(p.affinity) && (p.interruptsThisTime >= fired || broken > 0):
				out = append(out, p)
				where = where.Union(p.effect)
			case v.s.Level >= 1 && p.cpu >= 0 && !p.affinity.Contains(p.cpu) && v.stayed(n.Name, p):
				pending = append(pending, p)
			}
		}
		if len(out) > 0 {
			r.Findings = append(r.Findings, v.outside(n.Name, out, where, broken))
		} else if len(v.s.IRQs) == 0 {
			v.wideAlone(r, n)
		}
		if len(pending) > 0 {
			p := pending[0]
			r.Findings = append(r.Findings, Finding{ID: "RX104", Severity: v.bySeverity(p.cpu), Subject: n.Name,
				Summary:  fmt.Sprintf("rx-%d of %s is still polled on cpu %d though its vector %d wants cpu %s: a poll that never finds its ring empty raises no interrupt, so the move waits for the next idle moment", p.queue, n.Name, p.cpu, p.irq, p.affinity),
				Evidence: Evidence{{"queue", p.queue}, {"irq", p.irq}, {"wanted_cpus", p.affinity.String()}, {"effective_cpus", p.effect.String()}, {"polled_on_cpu", p.cpu}, {"interrupts", p.interruptsThisTime}, {"queues", len(pending)}},
				Remedy:   "it moves by itself at the next idle moment; if that never comes, a pause of the traffic or a change of the channel count (ethtool -L, drops the link) makes one",
				RuledOut: []string{"threaded NAPI: no kernel thread polls it", "busy polling"},
				Site:     Site{Device: n.Name, Queues: []int{p.queue}, CPU: -1, IRQs: []int{p.irq}}})
		}
	}
	if !slices.ContainsFunc(r.Findings, func(f Finding) bool { return f.ID == "RX104" && (f.Subject == "host" || broken > 0) }) {
		if broken > 0 {
			r.Findings = append(r.Findings, v.outside("", nil, cpuset.Set{}, broken))
		} else {
			v.nearlyFull(r)
		}
	}
}

// wideAlone is RX104 where nothing but settings is at hand: masks of several CPUs that all have one and the
// same in effect.
func (v *view) wideAlone(r *Report, n nic.NIC) {
	var irqs []int
	var one, widest cpuset.Set
	for _, p := range v.vectorsOf(n) {
		if !p.wantTold || !p.isTold || p.threaded || p.effect.Len() != 1 || !one.IsEmpty() && p.effect != one {
			return
		}
		one = p.effect
		if p.affinity.Len() > 1 {
			irqs = append(irqs, p.irq)
			widest = widest.Union(p.affinity)
		}
	}
	if len(irqs) < 2 || v.threadedNAPI(n.Name) {
		return
	}
	r.Findings = append(r.Findings, Finding{ID: "RX104", Severity: Info, Subject: n.Name, Site: Site{Device: n.Name, CPU: -1, IRQs: irqs},
		Summary:  fmt.Sprintf("%d vectors of %s allow cpus %s and every one of them is in effect on cpu %s: an interrupt goes to one CPU of its mask, a wide mask is no spreading", len(irqs), n.Name, widest, one),
		Evidence: Evidence{{"irqs", joinInts(irqs)}, {"wanted_cpus", widest.String()}, {"effective_cpus", one.String()}, {"wide_masks", len(irqs)}},
		Remedy:   "name one CPU for each vector (smp_affinity_list), another for each busy queue, on the device's node; which queues are busy was not told"})
}

// nearlyFull is RX104 before the fact: a CPU whose vectors are nearly used up.
func (v *view) nearlyFull(r *Report) {
	most, vectors := -1, 0
	for c, n := range v.vectorCount() {
		if n > vectors || n == vectors && c < most {
			most, vectors = c, n
		}
	}
	if float64(vectors) < nearlyAllVectors*vectorsPerCPU {
		return
	}
	var full cpuset.Set
	for c, n := range v.vectorCount() {
		if float64(n) >= nearlyAllVectors*vectorsPerCPU {
			full = full.Union(cpuset.Of(c))
		}
	}
	r.Findings = append(r.Findings, Finding{ID: "RX104", Severity: Warning, Subject: "host", Site: Site{CPU: -1, Knobs: []knob.Kind{knob.Channels}},
		Summary:  fmt.Sprintf("cpus %s are nearly out of vectors (%d on cpu %d, of about %d): the kernel accepts further masks and places the interrupts elsewhere", full, vectors, most, vectorsPerCPU),
		Evidence: Evidence{{"full_cpus", full.String()}, {"most_vectors_on_cpu", most}, {"vectors_there", vectors}, {"vectors_per_cpu", vectorsPerCPU}, {"usable_cpus", v.usable.Len()}},
		Remedy:   fmt.Sprintf("fewer queues first: as many channels as there are CPUs for them (ethtool -L … combined %d), or more CPUs in the masks; look again once the links are up, for vectors are given out then", v.usable.Len())})
}

// vectorsOf is the queues of a device that have a vector, busy or not.
func (v *view) vectorsOf(n nic.NIC) []place {
	busy := v.places(n.Name)
	var out []place
	for _, q := range n.Queues {
		if q.IRQ < 0 || q.RX < 0 {
			continue
		}
		if i := slices.IndexFunc(busy, func(p place) bool { return p.queue == q.RX }); i >= 0 {
			out = append(out, busy[i])
			continue
		}
		p := place{queue: q.RX, irq: q.IRQ, cpu: -1, threaded: q.Thread > 0}
		p.affinity, p.wantTold = v.irqSet(knob.IRQAffinity, n.Name, q.IRQ)
		p.effect, p.isTold = v.irqSet(knob.IRQEffective, n.Name, q.IRQ)
		out = append(out, p)
	}
	return out
}

// rewrote reports whether somebody changed the mask of a vector between the beginning and the end.
func (v *view) rewrote(n nic.NIC, p place) bool {
	now, ok := v.irqSet(knob.IRQAffinity, n.Name, p.irq)
	return ok && slices.ContainsFunc(n.Queues, func(q nic.Queue) bool { return q.IRQ == p.irq && !q.Affinity.IsEmpty() && q.Affinity != now })
}

// stayed reports whether the last window still shows a queue polled away from its vector, and no interrupt
// where it is wanted.
func (v *view) stayed(device string, p place) bool {
	s := v.s
	if n := len(v.in.Windows); n >= 3 {
		s = v.in.Windows[n-1]
	}
	var there, all uint64
	for _, x := range s.NAPIs {
		if v.ours(x, device) && v.queueOf(x) == p.queue {
			all += x.Packets
			if !p.affinity.Contains(x.CPU) {
				there += x.Packets
			}
			if x.BusyPolls > 0 {
				return false
			}
		}
	}
	var interrupts uint64
	for _, i := range s.IRQs {
		if i.IRQ == p.irq && p.affinity.Contains(i.CPU) {
			interrupts += i.Count
		}
	}
	return all > 0 && part(there, all) >= elsewhere && interrupts < fired
}

// outside is RX104 for vectors in effect outside their masks.
func (v *view) outside(device string, out []place, where cpuset.Set, broken int) Finding {
	f := Finding{ID: "RX104", Severity: Warning, Subject: device, Site: Site{Device: device, CPU: -1}}
	log := ""
	if broken > 0 {
		f.Site.Knobs = []knob.Kind{knob.Channels}
		log = fmt.Sprintf("; the kernel log says %q of %s", "Affinity broken due to vector space exhaustion", count(broken, "interrupt"))
	}
	if len(out) == 0 {
		f.Subject = "host"
		f.Summary = fmt.Sprintf("vectors ran out: %s could not stay in their masks, as the kernel log says (%q)", count(broken, "interrupt"), "Affinity broken due to vector space exhaustion")
		f.Evidence = Evidence{{"affinity_broken_events", broken}}
		f.Remedy = fmt.Sprintf("fewer queues, or more CPUs in the masks: a CPU has about %d vectors; look again once the links are up, for vectors are given out then", vectorsPerCPU)
		return f
	}
	p := out[0]
	most, vectors := -1, 0
	for c, n := range v.vectorCount() {
		if n > vectors || n == vectors && c < most {
			most, vectors = c, n
		}
	}
	for _, x := range out {
		f.Site.Queues, f.Site.IRQs = append(f.Site.Queues, x.queue), append(f.Site.IRQs, x.irq)
	}
	f.Summary = fmt.Sprintf("%s of %s %s in effect outside of what was asked for (vector %d wants cpu %s and is on cpu %s): the wish was accepted and not followed%s", count(len(out), "vector"), device, areOr(len(out)), p.irq, p.affinity, p.effect, log)
	f.Evidence = Evidence{{"irqs", joinInts(f.Site.IRQs)}, {"wanted_cpus", p.affinity.String()}, {"effective_cpus", where.String()}, {"affinity_broken_events", broken}, {"most_vectors_on_cpu", most}, {"vectors_there", vectors}}
	f.Remedy = fmt.Sprintf("where vectors ran out (about %d for each CPU): fewer queues or more CPUs in the masks, and look again once the links are up, for vectors are given out then; where the interrupt controller ignores masks: RPS", vectorsPerCPU)
	if one := where; one.Len() == 1 && one == cpuset.Of(v.first()) && broken == 0 && (len(out) > 1 || len(v.rxQueues(device)) == 1) {
		f.Remedy = fmt.Sprintf("an interrupt controller that delivers to its first CPU whatever the mask says (GICv2 and the like) leaves RPS: over the other cores, without cpu %d, which keeps the interrupts", v.first())
	}
	return f
}

// first is the lowest online CPU.
func (v *view) first() int {
	for c := range v.online.All() {
		return c
	}
	return -1
}

// vectorCount is how many vectors are in effect on each CPU, as far as told.
func (v *view) vectorCount() map[int]int {
	out := map[int]int{}
	if v.in.Snapshot == nil {
		return out
	}
	for _, s := range v.in.Snapshot.Settings {
		if s.Knob != knob.IRQEffective {
			continue
		}
		var text string
		if s.Value.Decode(&text) != nil {
			continue
		}
		if set, err := cpuset.ParseList(text); err == nil {
			for c := range set.All() {
				out[c]++
			}
		}
	}
	return out
}

// rewritten reports RX105: vectors that somebody moved while they were watched.
func (v *view) rewritten(r *Report) {
	for _, n := range v.inventory() {
		if !v.wanted(n.Name) {
			continue
		}
		var moved []int
		var example string
		for _, q := range n.Queues {
			if q.IRQ < 0 {
				continue
			}
			// The map was read before the measurement, the settings after it.
			now, ok := v.irqSet(knob.IRQAffinity, n.Name, q.IRQ)
			from := q.Affinity
			switch was := v.firedElsewhere(q.IRQ, now); {
			case !ok || q.Thread > 0:
				continue
			case !from.IsEmpty() && from != now:
			case was >= 0: // and back, or before the map was read
				from = cpuset.Of(was)
			default:
				continue
			}
			moved = append(moved, q.IRQ)
			if example == "" {
				example = fmt.Sprintf("vector %d from cpu %s to %s", q.IRQ, from, now)
			}
		}
		slices.Sort(moved)
		moved = slices.Compact(moved)
		who, detail, settle := v.writers(n.Name, knob.IRQAffinity)
		if len(moved) == 0 {
			if who != "" {
				r.checked("%s may write the affinity of %s (%s): nothing moved while it was watched", who, n.Name, detail)
			}
			continue
		}
		f := Finding{ID: "RX105", Severity: Warning, Subject: n.Name,
			Evidence: Evidence{{"vectors_moved", len(moved)}, {"irqs", joinInts(moved)}, {"owner", who}, {"watched_s", v.seconds}},
			Site:     Site{Device: n.Name, CPU: -1, IRQs: moved}}
		if who == "" {
			f.Summary = fmt.Sprintf("somebody moved %s of %s within %.0f s (%s); no known owner of affinities runs here", count(len(moved), "vector"), n.Name, v.seconds, example)
			f.Remedy = "find who writes /proc/irq/*/smp_affinity (a script, another agent, a driver's reset) before setting them: the other wins"
		} else {
			f.Summary = fmt.Sprintf("%s moved %s of %s within %.0f s (%s): what is set by hand does not last", who, count(len(moved), "vector"), n.Name, v.seconds, example)
			f.Remedy = fmt.Sprintf("settle who owns the affinity (%s): %s", detail, strings.Join(settle, "; "))
			if len(settle) == 0 {
				f.Remedy = fmt.Sprintf("settle who owns the affinity (%s): stop it, or ban these vectors there", detail)
			}
		}
		r.Findings = append(r.Findings, f)
	}
}

// firedElsewhere is the CPU that took nearly all interrupts of a vector in a window and is not in its mask as
// it is now, while a later window shows it inside; -1 none.
func (v *view) firedElsewhere(irq int, now cpuset.Set) int {
	was, inside := -1, false
	for i := len(v.in.Windows) - 1; i >= 0; i-- {
		var all, most uint64
		cpu := -1
		for _, x := range v.in.Windows[i].IRQs {
			if x.IRQ == irq {
				all += x.Count
				if x.Count > most {
					most, cpu = x.Count, x.CPU
				}
			}
		}
		if most < fired || part(most, all) < nearlyAll {
			continue
		}
		if now.Contains(cpu) {
			inside = true
		} else if inside && was < 0 {
			was = cpu
		}
	}
	return was
}

// writers is who else is known to write a setting of a device.
func (v *view) writers(device string, k knob.Kind) (who, detail string, settle []string) {
	if v.in.Snapshot == nil {
		return "", "", nil
	}
	var names, details []string
	for _, o := range v.in.Snapshot.Owners {
		if slices.Contains(o.Knobs, k) && (o.Device == "" || o.Device == device) {
			names, details, settle = append(names, o.Name), append(details, o.Detail), append(settle, o.Settle...)
		}
	}
	return strings.Join(names, " or "), strings.Join(details, "; "), settle
}

// misplaced reports RX107: queues handled on CPUs kept for other work, or on threads of one core.
func (v *view) misplaced(r *Report) {
	if v.in.Topology == nil {
		return
	}
	kept := v.online.Minus(v.usable)
	for _, d := range v.steered() {
		var queues, irqs []int
		var where cpuset.Set
		var share float64
		for _, p := range v.places(d) {
			if p.cpu >= 0 && kept.Contains(p.cpu) && !v.ownedQueue(d, p.queue) {
				queues, irqs, where, share = append(queues, p.queue), append(irqs, p.irq), where.Union(cpuset.Of(p.cpu)), share+p.share
			}
		}
		if len(queues) > 0 && !v.usable.IsEmpty() {
			r.Findings = append(r.Findings, Finding{ID: "RX107", Severity: Warning, Subject: d,
				Summary:  fmt.Sprintf("%s of %s (%s of its packets) are handled on cpus %s, which are kept free of other work (isolcpus, nohz_full or a cpuset partition): receive softirq disturbs what runs there", count(len(queues), "queue"), d, percent(share), where),
				Evidence: Evidence{{"queues", cpuset.Of(queues...).String()}, {"isolated_cpus_used", where.String()}, {"share_ratio", share}, {"usable_cpus", v.usable.String()}, v.carried(d)},
				Remedy:   fmt.Sprintf("take those CPUs out: vectors on cpus %s (smp_affinity); as many channels as there are housekeeping CPUs", v.usable),
				Site:     Site{Device: d, Queues: queues, CPU: -1, IRQs: irqs}})
			continue
		}
		v.sharedCore(r, d)
	}
}

// ownedQueue reports whether an AF_XDP socket, a context or a filter owns a queue.
func (v *view) ownedQueue(device string, queue int) bool {
	owned, _ := v.owned(device)
	return owned.Contains(queue)
}

// sharedCore is RX107 for busy queues on two threads of one core while other cores have none.
func (v *view) sharedCore(r *Report, device string) {
	cores := map[int][]place{}
	used := cpuset.Set{}
	for _, p := range v.places(device) {
		if t, ok := v.topo[p.cpu]; ok && t.Core != topo.None {
			cores[t.Core] = append(cores[t.Core], p)
			used = used.Union(v.siblings(cpuset.Of(p.cpu)))
		}
	}
	free := v.usable.Minus(used)
	if local, ok := v.node(device); ok && local.Intersects(v.usable) {
		free = free.Intersect(local)
	}
	for _, core := range slices.Sorted(maps.Keys(cores)) {
		here := cores[core]
		var where cpuset.Set
		var queues, irqs []int
		for _, p := range here {
			where, queues, irqs = where.Union(cpuset.Of(p.cpu)), append(queues, p.queue), append(irqs, p.irq)
		}
		var load float64
		for c := range where.All() {
			load += v.pressure(c)
		}
		if where.Len() < 2 || load < hotRatio || free.IsEmpty() {
			continue
		}
		r.Findings = append(r.Findings, Finding{ID: "RX107", Severity: Info, Subject: device,
			Summary:  fmt.Sprintf("%s of %s run on cpus %s, two threads of one core, while the cores of cpus %s take none", count(len(queues), "busy queue"), device, where, free),
			Evidence: Evidence{{"queues", cpuset.Of(queues...).String()}, {"sibling_cpus", where.String()}, {"core_receive_softirq_cpus", load}, {"free_cpus", free.String()}},
			Remedy:   "one busy queue for each physical core: move all but one of these vectors",
			Site:     Site{Device: device, Queues: queues[1:], CPU: -1, IRQs: irqs[1:]}})
		return
	}
}

// managed reports RX106 once for a device whose vectors a finding wants to move and nobody can.
func (v *view) managed(r *Report) {
	for _, n := range v.inventory() {
		var wants []ID
		var irqs []int
		for _, f := range r.Findings {
			if f.Site.Device != n.Name || !slices.Contains([]ID{"RX102", "RX103", "RX107"}, f.ID) {
				continue
			}
			for _, q := range n.Queues {
				if slices.Contains(f.Site.Queues, q.RX) && v.flag(knob.IRQManaged, n.Name, q.IRQ) {
					irqs = append(irqs, q.IRQ)
					if !slices.Contains(wants, f.ID) {
						wants = append(wants, f.ID)
					}
				}
			}
		}
		if len(irqs) == 0 {
			continue
		}
		slices.Sort(irqs)
		irqs = slices.Compact(irqs)
		r.Findings = append(r.Findings, Finding{ID: "RX106", Severity: Info, Subject: n.Name,
			Summary:  fmt.Sprintf("the kernel manages %s of %s: a write of smp_affinity fails with EIO, from Linux 6.12 with EPERM, for good", count(len(irqs), "vector"), n.Name),
			Evidence: Evidence{{"irqs", joinInts(irqs)}, {"stands_in_the_way_of", fmt.Sprint(wants[0])}},
			Remedy:   "another number of queues (ethtool -L) or isolcpus=managed_irq at boot changes where the kernel puts them; else RPS above them",
			Site:     Site{Device: n.Name, CPU: -1, IRQs: irqs}})
	}
}

func areOr(n int) string {
	if n == 1 {
		return "is"
	}
	return "are"
}

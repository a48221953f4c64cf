package diagnose

import (
	"fmt"
	"slices"

	"github.com/rxsteer/rxsteer/collector"
	"github.com/rxsteer/rxsteer/internal/cpuset"
	"github.com/rxsteer/rxsteer/internal/host/knob"
	"github.com/rxsteer/rxsteer/internal/host/nic"
)

const (
	// longGap (ns) between the interrupts of a busy queue is a delay somebody may feel; longWait most will.
	longGap  = 150e3
	longWait = 500e3
	// dense is the packets per interrupt from which interrupts come by the timer, not by the packets:
	// the mean gap then tells the timer to within 1/dense.
	dense = 3
	// fewIRQs is the least interrupts of a vector whose mean gap means something.
	fewIRQs = 50
	// leastFactor and mostFactor bound the k that a card may make of its rx-usecs (2.75 was seen, 3.7 of
	// an emulated igb);
	// beyond them it is the traffic's own bursts that make the gap.
	leastFactor = 0.5
	mostFactor  = 5
	// wideGaps is how much longer than a gap of the shortest quarter one of the longest may be before the gaps are not a timer's. Those
	// of packets at random times are 4.8 times as long (their ln 4 / ln 4⁄3), and a histogram's bucket is a quarter wide.
	wideGaps = 2
	// repolled is the polls per interrupt above which NAPI went on without waiting for one.
	repolled = 1.5
	// irqCost (ns) is what an interrupt costs beside its packet, where its handler was not timed: the difference
	// between one and 60 packets per poll on the machines measured.
	irqCost = 700
	// irqShare is the part of a CPU in interrupts that is worth moderation, and perIRQ the packets
	// per interrupt below which moderation would merge them; with fewer than leastPerIRQ the interrupts
	// are not for received packets.
	irqShare    = 0.05
	perIRQ      = 2
	leastPerIRQ = 0.8
	// busyPollPerS is what polls from process context must exceed.
	busyPollPerS = 1000
	// oneThread is the part of a device's polls that one CPU does for several of its queues.
	oneThread = 0.8
)

// pacing is how the interrupts of a device's busiest vector come.
type pacing struct {
	irq, queue int
	cpu        int     // that took most of them
	count      uint64  // interrupts in the interval
	gap        float64 // ns, mean
	packets    float64 // per interrupt
	polls      float64 // per interrupt, 0 not known
	// measured are the gaps themselves, nil where only their mean is known.
	measured *collector.Pacing
}

// pace returns the busiest vector of a device that serves receive queues; false where none fired.
func (v *view) pace(device string) (pacing, bool) {
	load := v.queueLoad(device)
	all := map[int]*pacing{} // by irq
	on := map[int]map[int]uint64{}
	got := map[int]uint64{} // packets, by irq
	var irqs uint64
	for _, q := range v.nics[device].Queues {
		if q.IRQ < 0 || q.RX < 0 {
			continue
		}
		got[q.IRQ] += load.counts[q.RX]
		if all[q.IRQ] == nil {
			all[q.IRQ] = &pacing{irq: q.IRQ, queue: q.RX, cpu: -1}
		}
	}
	for _, i := range v.s.IRQs {
		if p := all[i.IRQ]; p != nil {
			p.count += i.Count
			irqs += i.Count
			if on[i.IRQ] == nil {
				on[i.IRQ] = map[int]uint64{}
			}
			if on[i.IRQ][i.CPU] += i.Count; p.cpu < 0 || on[i.IRQ][i.CPU] > on[i.IRQ][p.cpu] {
				p.cpu = i.CPU
			}
		}
	}
	best := pacing{}
	for irq, p := range all {
		if p.count == 0 {
			continue
		}
		p.gap = float64(v.s.Interval) / float64(p.count)
		if load.unit == "packets" {
			p.packets = part(got[irq], p.count)
		} else {
			p.packets = ratio(v.received(device)*v.seconds, float64(irqs))
		}
		if a, b := p.packets*float64(p.count), best.packets*float64(best.count); best.count == 0 || a > b || a == b && p.irq < best.irq {
			best = *p
		}
	}
	if best.count == 0 {
		return best, false
	}
	var polls uint64
	for _, p := range v.s.NAPIs {
		if v.ours(p, device) && v.queueOf(p) == best.queue {
			polls += p.Polls
		}
	}
	best.polls = part(polls, best.count)
	for i := range v.s.Pacing {
		if v.s.Pacing[i].IRQ == best.irq {
			best.measured = &v.s.Pacing[i]
		}
	}
	return best, true
}

// usecs is the rx-usecs of a queue, and whether adaptive moderation is on.
func (v *view) usecs(device string, queue int) (usecs int64, adaptive, known bool) {
	for _, at := range []struct {
		k knob.Kind
		t knob.Target
	}{{knob.QueueCoal, knob.On(device, "queue-%d", queue)}, {knob.Coalesce, knob.Target(device)}} {
		if usecs, known = v.number(at.k, at.t, "rx-usecs"); known {
			adaptive, _ = v.switched(at.k, at.t, "adaptive-rx")
			return usecs, adaptive, true
		}
	}
	return 0, false, false
}

// moderation reports RX501, RX502 and RX503.
func (v *view) moderation(r *Report) {
	for _, n := range v.in.NICs {
		if n.Kind != nic.Physical || !v.wanted(n.Name) {
			continue
		}
		p, fired := v.pace(n.Name)
		if !fired || v.seconds < minInterval || v.s.Untimed || v.s.SinceBoot {
			if len(v.s.IRQs) == 0 {
				v.dynamic(r, n.Name, nil)
			}
			continue
		}
		switch {
		case v.dynamic(r, n.Name, &p):
		case v.delayed(r, n.Name, p):
		default:
			v.costly(r, n.Name, p)
		}
	}
}

// dynamic reports RX503 where rx-usecs is not what is in effect and that matters: interrupts are far apart, or
// nothing was measured and somebody asks about the setting. p is nil without interrupts.
func (v *view) dynamic(r *Report, device string, p *pacing) bool {
	usecs, adaptive, known := v.usecs(device, max(0, v.firstQueue(p)))
	if !known || usecs == 0 {
		return false
	}
	ev := Evidence{{"rx_usecs", usecs}, {"adaptive_rx", adaptive}}
	if p != nil {
		ev = append(ev, Fact{"irq_gap_us", p.gap / 1e3}, Fact{"packets_per_irq", p.packets}, Fact{"queue", p.queue})
	}
	f := Finding{ID: "RX503", Severity: Info, Subject: device, Evidence: ev, Site: Site{Device: device, CPU: -1}}
	switch {
	case adaptive:
		if p != nil && !v.waits(*p) {
			r.checked("interrupts of %s: adaptive moderation is on and ignores its rx-usecs %d; the busiest queue's come every %.0f µs", device, usecs, p.gap/1e3)
			return true
		}
		f.Summary = fmt.Sprintf("adaptive-rx is on for %s: its rx-usecs %d is ignored, the driver chooses the delay", device, usecs)
		if p != nil {
			f.Summary += fmt.Sprintf("; interrupts of rx-%d come every %.0f µs", p.queue, p.gap/1e3)
		}
		f.Remedy = fmt.Sprintf("for a delay that stays what was set: ethtool -C %s adaptive-rx off, which leaves rx-usecs as shown; else leave it to the driver", device)
		r.Findings = append(r.Findings, f)
		return true
	}
	for _, fact := range nic.Facts(v.driver(device)) {
		switch {
		case fact.Kind == nic.DynamicUsecs && int64(fact.N) == usecs && fact.Text != nic.DefaultUsecs:
			f.Summary = fmt.Sprintf("rx-usecs %d of %s does not mean %d µs: this driver takes it for dynamic moderation", usecs, device, usecs)
			f.Remedy = fmt.Sprintf("for a fixed delay: ethtool -C %s rx-usecs 10 or more; 0 for none", device)
		case fact.Kind == nic.MaxUsecs && int64(fact.N) < usecs:
			f.Summary = fmt.Sprintf("rx-usecs %d of %s acts like %d: more has no effect with this driver", usecs, device, fact.N)
			f.Remedy = fmt.Sprintf("ethtool -C %s rx-usecs %d; fewer interrupts only by fewer queues, or napi_defer_hard_irqs with gro_flush_timeout", device, fact.N)
		default:
			continue
		}
		r.Findings = append(r.Findings, f)
		return p == nil || !v.waits(*p)
	}
	return false
}

func (v *view) firstQueue(p *pacing) int {
	if p == nil {
		return 0
	}
	return p.queue
}

// waits reports whether the timer makes packets wait long: interrupts are far apart, packets dense, and
// NAPI stood idle between.
func (v *view) waits(p pacing) bool {
	return p.count >= fewIRQs && p.gap >= longGap && p.packets >= dense && p.polls <= repolled && v.pressure(p.cpu) < hotRatio
}

// delayed reports RX501: the time between interrupts is the timer's, and long.
func (v *view) delayed(r *Report, device string, p pacing) bool {
	usecs, _, known := v.usecs(device, p.queue)
	if !known || usecs == 0 || nicDynamic(v.driver(device), usecs) {
		return false
	}
	k := p.gap / 1e3 / float64(usecs)
	how := Evidence{{"factor_k", k}, {"factor_k_error_ratio", 1 / p.packets}}
	if p.measured != nil {
		truth := p.measured.Truth(usecs, p.packets)
		switch {
		case truth.Sparse != "":
			r.checked("interrupts of %s against rx-usecs %d: %s", device, usecs, truth.Sparse)
			return false
		case truth.High > wideGaps*truth.Low:
			r.checked("interrupts of rx-%d of %s against rx-usecs %d: their gaps reach from %.2g to %.2g times that (a quarter is shorter, a quarter longer): the traffic's own pauses are in them", p.queue, device, usecs, truth.Low, truth.High)
			return false
		}
		k = truth.K
		p.gap = k * float64(usecs) * 1e3
		how = Evidence{{"factor_k", k}, {"factor_k_low", truth.Low}, {"factor_k_high", truth.High}, {"gaps_measured", p.measured.Hist.Count()}}
	}
	switch {
	case p.count < fewIRQs || p.packets < dense:
		r.checked("interrupts of %s against rx-usecs %d: %.1f packets per interrupt, too sparse to tell what the card makes of it", device, usecs, p.packets)
		return false
	case p.polls > repolled || v.pressure(p.cpu) >= hotRatio:
		r.checked("interrupts of %s against rx-usecs %d: NAPI goes on polling (%.1f polls per interrupt, cpu %d %s in receive softirq), so that the timer does not bound the wait", device, usecs, p.polls, p.cpu, percent(v.pressure(p.cpu)))
		return false
	case k < leastFactor || k > mostFactor:
		r.checked("interrupts of rx-%d of %s come every %.0f µs with rx-usecs %d: bursts or another timer make the gap, not this setting", p.queue, device, p.gap/1e3, usecs)
		return false
	case p.gap < longGap:
		r.checked("interrupts of rx-%d of %s come every %.0f µs, %.2g × rx-usecs: no delay worth a change", p.queue, device, p.gap/1e3, k)
		return false
	}
	f := Finding{ID: "RX501", Severity: Info, Subject: device, Site: Site{Device: device, Queues: []int{p.queue}, CPU: -1},
		Summary: fmt.Sprintf("packets of rx-%d of %s wait up to %.0f µs for an interrupt: the card makes %.2g × of its rx-usecs %d, and %s of the packets come closer together than that", p.queue, device, p.gap/1e3, k, usecs, percent(1-1/p.packets)),
		Evidence: slices.Concat(Evidence{{"irq_gap_us", p.gap / 1e3}, {"rx_usecs", usecs}}, how,
			Evidence{{"packets_per_irq", p.packets}, {"packets_behind_timer_ratio", collector.Close(p.packets)}, {"irqs_per_s", float64(p.count) / v.seconds}, {"queue", p.queue}}),
		Remedy:   fmt.Sprintf("for latency: ethtool -C %s rx-usecs %d (about 50 µs with this factor); for throughput leave it", device, max(1, int(50/k))),
		RuledOut: []string{fmt.Sprintf("a polling CPU without time: cpu %d spends %s in receive softirq", p.cpu, percent(v.pressure(p.cpu)))}}
	if p.polls == 0 {
		f.RuledOut = append(f.RuledOut, "not ruled out without per-poll measurement: NAPI that went on polling between interrupts")
	}
	if p.gap >= longWait {
		f.Severity = Warning
	}
	r.Findings = append(r.Findings, f)
	return true
}

// nicDynamic reports whether a driver takes a value of rx-usecs for dynamic moderation.
func nicDynamic(driver string, usecs int64) bool {
	return slices.ContainsFunc(nic.Facts(driver), func(f nic.Fact) bool { return f.Kind == nic.DynamicUsecs && int64(f.N) == usecs })
}

// costly reports RX502: an interrupt for nearly every packet.
func (v *view) costly(r *Report, device string, p pacing) {
	byCPU, spent := map[int]uint64{}, map[int]uint64{}
	var all uint64
	seen := map[int]bool{}
	for _, q := range v.nics[device].Queues {
		if q.IRQ < 0 || q.RX < 0 || seen[q.IRQ] {
			continue
		}
		seen[q.IRQ] = true
		for _, i := range v.s.IRQs {
			if i.IRQ == q.IRQ {
				byCPU[i.CPU] += i.Count
				spent[i.CPU] += i.Time
				all += i.Count
			}
		}
	}
	worst := -1
	for c, n := range byCPU {
		if worst < 0 || n > byCPU[worst] || n == byCPU[worst] && c < worst {
			worst = c
		}
	}
	packets := v.rate(device) * v.seconds / float64(max(1, all))
	// The handler's own time where it was measured: what entering and leaving it costs comes on top.
	price, priced := float64(irqCost), "estimated at"
	if spent[worst] > 0 {
		price, priced = part(spent[worst], byCPU[worst]), "their handler alone takes"
	}
	cost := ratio(float64(byCPU[worst])*price, float64(v.s.Interval))
	if packets < leastPerIRQ || packets > perIRQ || cost < irqShare {
		return
	}
	usecs, adaptive, known := v.usecs(device, p.queue)
	f := Finding{ID: "RX502", Severity: Info, Subject: device, Site: Site{Device: device, CPU: -1},
		Summary: fmt.Sprintf("%s interrupts for every %.1f packets: %.0f times/s on cpu %d cost about %s of it (%s %.0f ns each)", device, packets, float64(byCPU[worst])/v.seconds, worst, percent(cost), priced, price),
		Evidence: Evidence{{"irqs_per_s", float64(byCPU[worst]) / v.seconds}, {"packets_per_irq", packets}, {"cpu", worst},
			{"cost_of_cpu_ratio", cost}, {"ns_per_irq", price}, {"estimated", spent[worst] == 0}, {"cpu_receive_softirq_ratio", v.pressure(worst)}},
		Remedy: fmt.Sprintf("ethtool -C %s adaptive-rx on, or rx-usecs 20: a few µs of delay for one interrupt in several packets. Leave it where every µs of latency counts", device)}
	if known {
		f.Evidence = append(f.Evidence, Fact{"rx_usecs", usecs}, Fact{"adaptive_rx", adaptive})
	} else if v.setting(knob.Coalesce, knob.Target(device)).IsAbsent() {
		f.Remedy = fmt.Sprintf("the device has no moderation to set: napi_defer_hard_irqs and gro_flush_timeout of %s make the kernel wait instead; leave it where every µs of latency counts", device)
	}
	if v.pressure(worst) >= hotRatio {
		f.Severity = Warning
	}
	r.Findings = append(r.Findings, f)
}

// busyPolling reports RX504. Polls of NAPI threads are in process context too, and none of an application's.
func (v *view) busyPolling(r *Report) {
	for _, n := range v.in.NICs {
		if !v.wanted(n.Name) || v.threadedNAPI(n.Name) {
			continue
		}
		var busy, polls uint64
		for _, p := range v.s.NAPIs {
			if v.ours(p, n.Name) {
				busy += p.BusyPolls
				polls += p.Polls
			}
		}
		if float64(busy)/v.seconds < busyPollPerS {
			continue
		}
		f := Finding{ID: "RX504", Severity: Info, Subject: n.Name, Site: Site{Device: n.Name, CPU: -1},
			Summary:  fmt.Sprintf("applications poll %s themselves, %.0f times/s: neither its interrupts nor its coalescing bound their latency", n.Name, float64(busy)/v.seconds),
			Evidence: Evidence{{"busy_polls_per_s", float64(busy) / v.seconds}, {"softirq_polls_per_s", float64(polls) / v.seconds}},
			Remedy:   "nothing about interrupts: the time of these polls is the application's own and is not in receive softirq. Idle-looking queues of this device are no fault"}
		for _, k := range []knob.Kind{knob.BusyPoll, knob.BusyRead} {
			var us int64
			if v.setting(k, knob.Host).Decode(&us) == nil {
				f.Evidence = append(f.Evidence, Fact{"net_core_" + map[knob.Kind]string{knob.BusyPoll: "busy_poll", knob.BusyRead: "busy_read"}[k] + "_us", us})
			}
		}
		r.Findings = append(r.Findings, f)
	}
}

// threads reports RX505: polls of several queues crowd on one CPU, and kernel threads put them there.
func (v *view) threads(r *Report) {
	for _, d := range v.traffic() {
		if !v.wanted(d.Name) || !v.threadedNAPI(d.Name) {
			continue
		}
		byCPU, total := map[int]uint64{}, uint64(0)
		for _, p := range v.s.NAPIs {
			if v.ours(p, d.Name) && p.CPU >= 0 {
				byCPU[p.CPU] += p.Packets
				total += p.Packets
			}
		}
		worst := -1
		for c, n := range byCPU {
			if worst < 0 || n > byCPU[worst] || n == byCPU[worst] && c < worst {
				worst = c
			}
		}
		if worst < 0 || float64(total)/v.seconds < minPackets {
			continue
		}
		share := part(byCPU[worst], total)
		queues := map[int]bool{} // that carry a noticeable part there
		for _, p := range v.s.NAPIs {
			if q := v.queueOf(p); v.ours(p, d.Name) && p.CPU == worst && q >= 0 && float64(p.Packets) >= busyQueue*float64(total) {
				queues[q] = true
			}
		}
		if share < oneThread || len(queues) < 2 || v.usable.Minus(cpuset.Of(worst)).IsEmpty() {
			r.checked("threaded NAPI of %s: its threads spread over %s, %s on cpu %d", d.Name, count(len(byCPU), "CPU"), percent(share), worst)
			continue
		}
		f := Finding{ID: "RX505", Severity: Info, Subject: d.Name, Site: Site{Device: d.Name, CPU: -1},
			Summary: fmt.Sprintf("the NAPI threads of %s do %s of its packets, of %s, on cpu %d: threads, not interrupt vectors, decide the CPU", d.Name, percent(share), count(len(queues), "queue"), worst),
			Evidence: Evidence{{"cpu", worst}, {"share_of_packets_ratio", share}, {"queues_there", len(queues)}, {"packets_per_s", float64(total) / v.seconds},
				{"cpu_idle_ratio", v.load[worst].Idle}},
			Remedy:   fmt.Sprintf("taskset -pc CPU of each napi/%s-… thread (a thread may refuse: EINVAL where it has PF_NO_SETAFFINITY); moving smp_affinity changes nothing", d.Name),
			RuledOut: []string{"vectors of several queues on one CPU: with threaded NAPI an interrupt only wakes the thread"}}
		var pids []int
		for _, q := range v.nics[d.Name].Queues {
			if q.Thread > 0 && queues[q.RX] {
				pids = append(pids, q.Thread)
			}
		}
		if len(pids) > 0 {
			f.Evidence = append(f.Evidence, Fact{"threads", joinInts(pids)})
			f.Remedy = fmt.Sprintf("taskset -pc CPU for each of %s, another CPU each (a thread may refuse: EINVAL where it has PF_NO_SETAFFINITY); moving smp_affinity changes nothing", joinInts(pids))
		}
		if l, ok := v.load[worst]; ok && l.Idle < freeIdle {
			f.Severity = Warning
		}
		r.Findings = append(r.Findings, f)
	}
}

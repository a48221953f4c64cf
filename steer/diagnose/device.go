package diagnose

import (
	"fmt"
	"slices"
	"strings"

	"github.com/rxsteer/rxsteer/internal/host/knob"
	"github.com/rxsteer/rxsteer/internal/host/nic"
)

const (
	// badly is the part of the packets whose loss is critical.
	badly = 0.01
	// ringBusy is the receive softirq of the polling CPU above which a larger ring only delays the drop.
	ringBusy = 0.7
	// pausePerS is what pause frames must exceed: each XOFF stops a 10 Gbit/s link for up to 3 ms
	// (65535 quanta of 512 bits), so that ten a second may cost 3 % of it.
	pausePerS = 10
	// shapedPerS and shapedRatio are what the provider's allowances must be exceeded by.
	shapedPerS  = 5
	shapedRatio = 1e-5
)

// ringLoss is RX402 as seen on a device; false below what bursts cost healthy hosts.
func (v *view) ringLoss(_ int, device string) (Symptom, bool) {
	if device == "" {
		return Symptom{}, false
	}
	c := v.counted(device, nic.RingDrops)
	if n := v.missed(device); n > c.n {
		// rtnl_link_stats64.rx_missed_errors: packets the host had no buffer for.
		c = counted{kind: nic.RingDrops, n: n, name: "rx_missed_errors", scope: nic.ScopePort}
	}
	of := v.offered(device, c.n)
	if !v.beyond(c.n, of, dropRatio, dropPerS) {
		return Symptom{}, false
	}
	lost := ratio(float64(c.n), of)
	whose := fmt.Sprintf("counted for the whole port (%s): which queue lost them is not told", c.name)
	ev := Evidence{v.howOften("ring_drops", c.n), {"dropped_of_offered_ratio", lost}, {"counter", c.name}, {"scope", string(c.scope)}}
	if c.scope == nic.ScopeQueue {
		worst := c.busiest()
		whose = fmt.Sprintf("%s of them in rx-%d", percent(part(c.queues[worst], c.n)), worst)
		ev = append(ev, Fact{"worst_queue", worst}, Fact{"worst_queue_share_ratio", part(c.queues[worst], c.n)})
	}
	if n := v.counted(device, nic.NoMemory); n.n > 0 {
		ev = append(ev, v.howOften("buffers_not_allocated", n.n))
	}
	return Symptom{ID: "RX402", Subject: device, Evidence: ev,
		Summary: fmt.Sprintf("%s lost for want of a free receive descriptor of %s (%.2g %% of those offered), %s", v.often(c.n, "packets"), device, 100*lost, whose)}, true
}

// ringDrops reports RX402 where no finding explains it.
func (v *view) ringDrops(r *Report) {
	var silent, fine []string
	for _, d := range v.devices() {
		s, ok := v.ringLoss(-1, d.Name)
		if !ok {
			switch {
			case v.tells(d.Name, nic.RingDrops):
				fine = append(fine, d.Name)
			case v.nics[d.Name].Kind == nic.Physical && v.rate(d.Name) >= minPackets && d.RXMissed == 0:
				silent = append(silent, d.Name)
			}
			continue
		}
		if r.explained(s) {
			continue
		}
		f := Finding{ID: "RX402", Severity: v.now(Warning), Subject: d.Name, Summary: s.Summary, Evidence: s.Evidence, Site: Site{Device: d.Name, CPU: -1}}
		if lost, _ := s.Evidence.Get("dropped_of_offered_ratio").(float64); lost >= badly {
			f.Severity = v.now(Critical)
		}
		f.Remedy = v.ringRemedy(d.Name, &f)
		r.Findings = append(r.Findings, f)
	}
	if len(fine) > 0 {
		r.checked("ring drops of %s: none beyond noise, by the driver's counters", strings.Join(fine, ", "))
	}
	if len(silent) > 0 {
		r.checked("ring drops of %s: the kernel's rx_missed_errors stood still; no counter of the driver is known or was read", strings.Join(silent, ", "))
	}
}

// ringRemedy says what helps against ring drops, and adds the numbers that decide it.
func (v *view) ringRemedy(device string, f *Finding) string {
	cpu, load := v.hottest(device)
	if cpu >= 0 {
		f.Evidence = append(f.Evidence, Fact{"hottest_polling_cpu", cpu}, Fact{"its_receive_softirq_ratio", load})
	}
	now, ok := v.number(knob.Rings, knob.Target(device), "rx")
	most, okMost := v.number(knob.RingsMax, knob.Target(device), "rx")
	if ok {
		f.Evidence = append(f.Evidence, Fact{"rx_ring", now})
	}
	if okMost {
		f.Evidence = append(f.Evidence, Fact{"rx_ring_max", most})
	}
	if drops, memory := v.counted(device, nic.RingDrops).n, v.counted(device, nic.NoMemory).n; memory > 0 && memory*2 >= drops {
		return "the driver gets no memory for receive buffers: look at free memory and vm.min_free_kbytes first, a larger ring needs more of it"
	}
	switch {
	case cpu >= 0 && load >= ringBusy:
		return fmt.Sprintf("relieve cpu %d first, which spends %s in receive softirq: a larger ring only delays the drop", cpu, percent(load))
	case ok && okMost && now >= most:
		return fmt.Sprintf("the ring is at its maximum of %d: more queues or shorter interrupt moderation (ethtool -C %s rx-usecs), for the host fetches bursts too late", most, device)
	case ok && okMost:
		if cpu >= 0 {
			f.RuledOut = append(f.RuledOut, fmt.Sprintf("a polling CPU without time: cpu %d, the hottest, spends %s in receive softirq", cpu, percent(load)))
		}
		return fmt.Sprintf("ethtool -G %s rx %d (now %d, at most %d): twice as long a ring takes bursts twice as long; the link goes down for a moment on many drivers", device, min(2*now, most), now, most)
	}
	return fmt.Sprintf("a longer ring (ethtool -g %s tells its size; -G sets it and takes the link down on many drivers), unless a polling CPU has no time left", device)
}

// pausing is RX404 as seen on a device: frames by which it stops its peer.
func (v *view) pausing(_ int, device string) (Symptom, bool) {
	if device == "" {
		return Symptom{}, false
	}
	c := v.counted(device, nic.PauseSent)
	if !v.beyond(c.n, v.offered(device, 0), 0, pausePerS) {
		return Symptom{}, false
	}
	ev := Evidence{v.howOften("pause_frames_sent", c.n), {"counter", c.name}}
	if p := v.counted(device, nic.PauseReceived); p.n > 0 {
		ev = append(ev, v.howOften("pause_frames_received", p.n))
	}
	drops := max(v.counted(device, nic.RingDrops).n, v.missed(device))
	ev = append(ev, v.howOften("ring_drops", drops))
	return Symptom{ID: "RX404", Subject: device, Evidence: ev,
		Summary: fmt.Sprintf("%s sends %s: its receive path is behind and stops the sender instead of dropping", device, v.often(c.n, "pause frames"))}, true
}

// pauses reports RX404, in both directions.
func (v *view) pauses(r *Report) {
	var told []string
	for _, d := range v.devices() {
		s, sent := v.pausing(-1, d.Name)
		in := v.counted(d.Name, nic.PauseReceived)
		switch {
		case sent && r.explained(s):
		case sent:
			f := Finding{ID: "RX404", Severity: v.now(Warning), Subject: d.Name, Summary: s.Summary, Evidence: s.Evidence, Site: Site{Device: d.Name, CPU: -1},
				Remedy: "find why the host is late before anything else: the hottest queue's CPU, a short ring, memory bandwidth of the slot. One slow queue can stop all of a port. Pause off (ethtool -A) only where a drop is better than a wait"}
			if cpu, load := v.hottest(d.Name); cpu >= 0 {
				f.Evidence = append(f.Evidence, Fact{"hottest_polling_cpu", cpu}, Fact{"its_receive_softirq_ratio", load})
				if load < ringBusy {
					f.RuledOut = append(f.RuledOut, fmt.Sprintf("a polling CPU without time: cpu %d, the hottest, spends %s in receive softirq", cpu, percent(load)))
				}
			}
			r.Findings = append(r.Findings, f)
		case v.beyond(in.n, v.offered(d.Name, 0), 0, pausePerS):
			r.Findings = append(r.Findings, Finding{ID: "RX404", Severity: v.now(Warning), Subject: d.Name, Site: Site{Device: d.Name, CPU: -1},
				Summary:  fmt.Sprintf("%s is asked to pause by its peer, %s: what it sends waits, and no counter shows a drop", d.Name, v.often(in.n, "pause frames")),
				Evidence: Evidence{v.howOften("pause_frames_received", in.n), {"counter", in.name}},
				Remedy:   "the switch or the host behind it is the bottleneck: look there; nothing about queues of this host cures it"})
		case v.tells(d.Name, nic.PauseSent):
			told = append(told, d.Name)
		}
	}
	if len(told) > 0 {
		r.checked("pause frames of %s: none beyond noise", strings.Join(told, ", "))
	}
}

// allowances are what a cloud provider limits, by counter (Documentation/networking/device_drivers/ethernet/amazon/ena.rst).
var allowances = map[string]string{
	"bw_in_allowance_exceeded":     "inbound bandwidth",
	"pps_allowance_exceeded":       "packets per second",
	"conntrack_allowance_exceeded": "tracked connections",
}

// shaped reports RX405.
func (v *view) shaped(r *Report) {
	var told []string
	for _, d := range v.devices() {
		var what, names []string
		var n uint64
		for _, x := range v.s.Drivers {
			for _, c := range x.Counters {
				if x.Device == d.Name && c.Kind == nic.Shaping && v.beyond(c.Count, v.offered(d.Name, c.Count), shapedRatio, shapedPerS) {
					n += c.Count
					names = append(names, c.Name)
					what = append(what, allowances[c.Name])
				}
			}
		}
		switch {
		case n > 0:
			slices.Sort(names)
			r.Findings = append(r.Findings, Finding{ID: "RX405", Severity: v.now(Warning), Subject: d.Name, Site: Site{Device: d.Name, CPU: -1},
				Summary:  fmt.Sprintf("the cloud provider limits this instance's %s: %s of %s were queued or dropped outside the host", strings.Join(what, " and "), v.often(n, "packets"), d.Name),
				Evidence: Evidence{v.howOften("packets_over_allowance", n), {"counters", strings.Join(names, " ")}},
				Remedy:   "a larger instance, or less traffic: no queue, interrupt or ring of this host changes what the provider allows",
				RuledOut: []string{"a queue problem: these packets never reached a ring of this host"}})
		case v.tells(d.Name, nic.Shaping):
			told = append(told, d.Name)
		}
	}
	if len(told) > 0 {
		r.checked("allowances of the cloud provider on %s: not exceeded", strings.Join(told, ", "))
	}
}

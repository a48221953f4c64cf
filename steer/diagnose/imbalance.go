package diagnose

import (
	"fmt"
	"strings"

	"github.com/rxsteer/rxsteer/internal/cpuset"
	"github.com/rxsteer/rxsteer/internal/host/knob"
	"github.com/rxsteer/rxsteer/internal/host/nic"
)

// imbalance reports RX101 where counters of queues alone are at hand and one queue stands out: what its CPU
// suffers is not told, that the interrupts are not the cause is. A device that uses one of its vectors only,
// as its driver is known to, is RX301.
func (v *view) imbalance(r *Report) {
	for _, d := range v.steered() {
		load, queues := v.queueLoad(d), v.rxQueues(d)
		queue, share := load.busiest()
		cpu := load.cpu(queue)
		shares := v.tableShares(d)
		fair := shares[queue]
		if len(shares) < 2 || !uneven(share, fair) || cpu >= 0 && v.loadTold(cpu) || !v.plenty(load.total) || r.tells(d, queue) {
			continue
		}
		silent := cpuset.Of(queues...)
		for q := range load.counts {
			silent = silent.Minus(cpuset.Of(q))
		}
		f := Finding{ID: "RX101", Severity: Info, Subject: d, Site: Site{Device: d, Queues: []int{queue}, CPU: -1},
			Evidence: Evidence{{"busiest_queue", queue}, {"busiest_queue_share_ratio", share}, {"rx_queues", len(queues)}, {load.unit, load.total}, {"silent_queues", silent.String()}}}
		if cpu >= 0 {
			f.Evidence = append(f.Evidence, Fact{"cpu", cpu})
		}
		if one, ok := nic.Has(v.driver(d), nic.OneQueue); ok && silent.Len() == len(queues)-1 {
			f.ID, f.Severity = "RX301", v.now(Warning)
			f.Summary = fmt.Sprintf("only rx-%d of the %d queues of %s receives, all of %d %s: %s", queue, len(queues), d, load.total, load.unit, one.Text)
			f.Remedy = fmt.Sprintf("RPS on rx-%d over the other physical cores; a driver built with receive hashing, where there is one", queue)
			f.RuledOut = []string{"interrupts on the wrong CPU: those of the other vectors never fire"}
			r.Findings = append(r.Findings, f)
			continue
		}
		f.Summary = fmt.Sprintf("queue imbalance, not interrupt imbalance: rx-%d of %s got %s of its %s, and it has %d queues", queue, d, percent(share), load.unit, len(shares))
		if v.s.SinceBoot && load.total >= sinceBoot && !silent.IsEmpty() {
			f.Summary += fmt.Sprintf("; rx-%s got not one of %d since boot: the table names them for nothing, or the device does not follow it", silent, load.total)
		}
		f.Remedy = v.sees(d, &f) + ". How busy its CPU is was not told: /proc/stat at two points in time would"
		if len(v.table(d)) == 0 {
			f.Remedy += fmt.Sprintf("; ethtool -x %s tells where the table sends the rest", d)
		}
		f.RuledOut = append(f.RuledOut, fmt.Sprintf("vectors of several busy queues on one CPU: rx-%d alone is busy", queue))
		r.Findings = append(r.Findings, f)
	}
}

// plenty reports whether a queue's counter says enough without any other.
func (v *view) plenty(n uint64) bool {
	if v.s.SinceBoot || v.s.Untimed {
		return n >= manyInterrupts
	}
	return float64(n)/v.seconds >= minPackets
}

// sees is the advice on a device one queue of which gets nearly everything, and its hash fields as evidence.
func (v *view) sees(device string, f *Finding) string {
	fields := fmt.Sprintf("its fields (ethtool -n %s rx-flow-hash udp4)", device)
	var letters string
	if v.setting(knob.RSSHashFields, knob.On(device, "udp4")).Decode(&letters) == nil {
		f.Evidence = append(f.Evidence, Fact{"udp4_hash_fields", letters})
		if !strings.ContainsAny(letters, "fn") {
			fields = fmt.Sprintf("udp4 is hashed by addresses only (%s), sdfn also by ports", letters)
		}
	}
	return fmt.Sprintf("moving the interrupt is no cure. Look at what the hash sees: %s; tunnels with constant outer addresses, PPPoE, one large flow. When the NIC cannot spread it, RPS on that queue can", fields)
}

// realtime says what a kernel with PREEMPT_RT changes: the softirq runs in the interrupt's thread.
func (v *view) realtime(r *Report) {
	if v.in.Snapshot == nil {
		return
	}
	k := v.in.Snapshot.Host.Kernel
	if !strings.Contains(k, "PREEMPT_RT") && !strings.Contains(k, "-rt") {
		return
	}
	r.unmeasured("priorities of the interrupt threads", fmt.Sprintf("this is a real-time kernel (%s): interrupts run in threads (irq/N-…, found by N: the rest of the name is cut), with priority 50 unless changed, and receive softirq in them. "+
		"Where they run follows smp_affinity; a task of higher real-time priority on that CPU starves the NIC, which no queue setting cures: ps -eLo rtprio,psr,comm | sort -rn", k), "RX101, RX401")
}

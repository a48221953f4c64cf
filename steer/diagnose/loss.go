package diagnose

import (
	"fmt"

	"github.com/rxsteer/rxsteer/collector"
)

// squeeze is RX401 as seen on one CPU; false below what healthy hosts show.
func (v *view) squeeze(cpu int, _ string) (Symptom, bool) {
	c := v.cpus[cpu]
	runs := c.SoftirqRuns[collector.NetRX]
	rate := part(c.Squeezed, runs)
	if !v.beyond(c.Squeezed, float64(runs), squeezeRatio, squeezePerS) || rate < squeezeRatio {
		return Symptom{}, false
	}
	var full, polls uint64
	for _, p := range v.s.NAPIs {
		if p.CPU == cpu {
			full += p.FullBudget
			polls += p.Polls
		}
	}
	limit := "limit not known at level 0"
	ev := Evidence{{"cpu", cpu}, v.howOften("squeezes", c.Squeezed), {"squeezes_per_run_ratio", rate}, {"cpu_steal_ratio", v.load[cpu].Steal}}
	if polls > 0 {
		ev = append(ev, Fact{"full_polls_ratio", part(full, polls)})
		limit = "time-limited (netdev_budget_usecs): few polls fill their budget"
		if part(full, polls) >= 0.5 {
			limit = "budget-limited: most polls fill their budget"
		}
	}
	return Symptom{ID: "RX401", Subject: fmt.Sprintf("cpu %d", cpu), Evidence: ev,
		Summary: fmt.Sprintf("%s of the receive runs of cpu %d end with work left; %s", percent(rate), cpu, limit)}, true
}

// drops is RX403 as seen on one CPU.
func (v *view) drops(cpu int, _ string) (Symptom, bool) {
	c := v.cpus[cpu]
	offered := c.Processed + c.Dropped
	if !v.beyond(c.Dropped, float64(offered), dropRatio, dropPerS) {
		return Symptom{}, false
	}
	// enqueue_to_backlog in net/core/dev.c counts a flow-limit drop in both columns.
	what := "the backlog was full (netdev_max_backlog)"
	if c.FlowLimit*2 > c.Dropped {
		what = "the flow limit cut large flows"
	}
	return Symptom{ID: "RX403", Subject: fmt.Sprintf("cpu %d", cpu),
		Summary: fmt.Sprintf("%s (%.1f %% of those offered) dropped before protocol work on cpu %d: %s", v.often(c.Dropped, "packets"), 100*part(c.Dropped, offered), cpu, what),
		Evidence: Evidence{{"cpu", cpu}, v.howOften("backlog_drops", c.Dropped), {"dropped_of_offered_ratio", part(c.Dropped, offered)},
			v.howOften("flow_limit", c.FlowLimit), {"backlog_length", c.Backlog}}}, true
}

// squeezes reports RX401 where no finding explains it and it does harm: the
// CPU had to defer to ksoftirqd or dropped.
func (v *view) squeezes(r *Report) {
	for _, l := range v.loads {
		s, ok := v.squeeze(l.CPU, "")
		c := v.cpus[l.CPU]
		if !ok || r.explained(s) || len(v.in.Devices) > 0 {
			continue
		}
		if l.Steal >= maxSteal {
			r.checked("time squeezes on cpu %d: the hypervisor took %s of it, no budget cures that", l.CPU, percent(l.Steal))
			continue
		}
		deferred := part(c.TimeIn[collector.InKsoftirqd], c.SoftirqTime[collector.NetRX])
		if deferred < 0.2 && c.Dropped == 0 {
			r.checked("time squeezes on cpu %d: no packet dropped, %s of the work deferred to ksoftirqd: no harm seen", l.CPU, percent(deferred))
			continue
		}
		r.Findings = append(r.Findings, Finding{ID: "RX401", Severity: Warning, Subject: s.Subject, Summary: s.Summary,
			Evidence: append(s.Evidence, Fact{"in_ksoftirqd_ratio", deferred}),
			Remedy:   "less work per CPU first (more queues, RPS); netdev_budget only where polls fill their budget, netdev_budget_usecs only where time ends the run",
			RuledOut: []string{fmt.Sprintf("receive work concentrated while others are free: cpu %d spends %s in it", l.CPU, percent(l.NetRX)), fmt.Sprintf("stolen time: %s", percent(l.Steal))},
			Site:     Site{CPU: l.CPU}})
	}
}

// backlogDrops reports RX403 where no finding explains it.
func (v *view) backlogDrops(r *Report) {
	for _, l := range v.loads {
		s, ok := v.drops(l.CPU, "")
		if !ok || r.explained(s) || len(v.in.Devices) > 0 {
			continue
		}
		sev := Warning
		if x, _ := s.Evidence.Get("dropped_of_offered_ratio").(float64); x >= 0.01 {
			sev = Critical
		}
		r.Findings = append(r.Findings, Finding{ID: "RX403", Severity: v.now(sev), Subject: s.Subject, Summary: s.Summary, Evidence: s.Evidence,
			Remedy:   "bursts: a longer netdev_max_backlog; steady overload: other RPS targets, for a longer queue only delays the drop",
			RuledOut: v.notConcentrated(l),
			Site:     Site{CPU: l.CPU}})
	}
}

// notConcentrated is what rules out a CPU that does the receive work of others, where its load is told.
func (v *view) notConcentrated(l Load) []string {
	if !v.loadTold(l.CPU) {
		return nil
	}
	return []string{fmt.Sprintf("receive work concentrated while others are free: cpu %d spends %s in it", l.CPU, percent(l.NetRX))}
}

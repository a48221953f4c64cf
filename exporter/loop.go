package exporter

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/rxsteer/rxsteer/steer/apply"
	"github.com/rxsteer/rxsteer/steer/control"
	"github.com/rxsteer/rxsteer/steer/diagnose"
)

// LoopView is what the agent knows besides samples.
type LoopView struct {
	Status   *control.Status // nil before the loop began
	Degraded map[string]string
	Told     Told
	ReloadOK bool
	Reloaded time.Time // the last time the configuration was read well
}

// Told is what the last look at settings found out.
type Told struct {
	Findings []diagnose.Finding
	Baseline bool // there is one to drift from
	Drift    []diagnose.Drift
	// Coalescing is the measured interval between interrupts per rx-usecs by device, where both are known.
	Coalescing   map[string]float64
	Transactions map[apply.State]int // of this boot; nil: the journal cannot be read
}

// Loop exports the closed loop, findings, drift and transactions.
type Loop struct{ view func() LoopView }

// NewLoop makes the collector; view is called for every scrape and must not wait.
func NewLoop(view func() LoopView) *Loop { return &Loop{view} }

// maxFindings bounds rxsteer_finding and rxsteer_degraded; the rest is counted by rxsteer_findings.
const maxFindings = 256

// A gauge or counter of the loop: its name, help and labels.
type loopFamily struct {
	name, help string
	gauge      bool
	labels     []string
}

func (f loopFamily) desc() *prometheus.Desc {
	return prometheus.NewDesc("rxsteer_"+f.name, f.help, f.labels, nil)
}

var (
	famMode      = loopFamily{"loop_mode", "1 for the mode the configuration sets for a device (off, advise, auto); the empty device is the whole host's.", true, []string{"device", "mode"}}
	famPhase     = loopFamily{"loop_phase", "1 for the phase a device is in: observe, watch, apply, judge, cool down.", true, []string{"device", "phase"}}
	famDecisions = loopFamily{"loop_decisions_total", "Decisions of the loop by word; each is one line of its log.", false, []string{"device", "decision"}}
	famMoves     = loopFamily{"moves_total", "Settings the loop has written, by kind. A whole table is one.", false, []string{"device", "knob"}}
	famBuckets   = loopFamily{"moved_buckets_total", "Entries of indirection tables the loop has moved to other queues.", false, []string{"device"}}
	famRollbacks = loopFamily{"rollbacks_total", "Changes of the loop that were taken back because they made things worse.", false, []string{"device"}}
	famReaction  = loopFamily{"loop_reaction_seconds", "From the onset of a skew to the better table read back.", false, []string{"device"}}
	famParts     = loopFamily{"loop_reaction_part_seconds", "What rxsteer_loop_reaction_seconds is made of: suspect (ticks that bear the skew out), window (what is left of counting buckets), decide (the best table), open (the journal), check, write (and read back).", false, []string{"device", "part"}}
	famYielded   = loopFamily{"loop_yielded", "1 for each setting the loop leaves to somebody else who writes it.", true, []string{"device", "knob"}}
	famWait      = loopFamily{"loop_cool_down_seconds", "How long a device rests after a change; it grows while changes follow each other.", true, []string{"device"}}
	famAllowed   = loopFamily{"loop_changes_allowed", "1 within the configuration's change_hours (always, where it has none).", true, nil}
	famCritical  = loopFamily{"loop_critical", "1 within the configuration's critical_hours, in which a dropped packet is worth waking somebody.", true, nil}
	famTick      = loopFamily{"loop_tick_seconds", "How often the kernel's counters are looked at.", true, nil}
	famTickCost  = loopFamily{"loop_tick_cpu_ratio", "What looking at them takes of one CPU.", true, nil}
	famDegraded  = loopFamily{"degraded", "1 for each thing that does not work on this host as it should, with the reason.", true, []string{"what", "why"}}
	famReloadOK  = loopFamily{"config_last_reload_successful", "1 if the last reading of the configuration succeeded; if not, the one before is in force.", true, nil}
	famReloaded  = loopFamily{"config_last_reload_success_timestamp_seconds", "When the configuration was last read well.", true, nil}
	famFinding   = loopFamily{"finding", "1 for each finding of the last look (rxsteer explain ID), by the device, CPU or host it is about.", true, []string{"id", "device", "severity"}}
	famFindings  = loopFamily{"findings", "Findings of the last look by severity.", true, []string{"severity"}}
	famDriftSeen = loopFamily{"drift_first_seen_timestamp_seconds", "When the oldest of the differences from the baseline that are there was seen first. Only while there are any.", true, []string{"device"}}
	famDrift     = loopFamily{"drift_settings", "Settings that differ from the baseline, by severity. Only with a baseline in the configuration.", true, []string{"device", "severity"}}
	famTx        = loopFamily{"transactions", "Transactions of this boot, made by anybody, by state.", true, []string{"state"}}
	famCoalesce  = loopFamily{"coalescing_ratio", "Median interval between a device's interrupts per rx-usecs: how far the card's timer is from what is set.", true, []string{"device"}}
)

var loopFamilies = []loopFamily{famMode, famPhase, famDecisions, famMoves, famBuckets, famRollbacks, famReaction, famParts, famYielded, famWait, famAllowed, famCritical,
	famTick, famTickCost, famDegraded, famReloadOK, famReloaded, famFinding, famFindings, famDrift, famDriftSeen, famTx, famCoalesce}

// Describe implements prometheus.Collector.
func (l *Loop) Describe(ch chan<- *prometheus.Desc) {
	for _, f := range loopFamilies {
		ch <- f.desc()
	}
}

func (f loopFamily) put(ch chan<- prometheus.Metric, v float64, labels ...string) {
	kind := prometheus.CounterValue
	if f.gauge {
		kind = prometheus.GaugeValue
	}
	ch <- prometheus.MustNewConstMetric(f.desc(), kind, v, labels...)
}

// Collect implements prometheus.Collector.
func (l *Loop) Collect(ch chan<- prometheus.Metric) {
	v := l.view()
	famReloadOK.put(ch, one(v.ReloadOK))
	if !v.Reloaded.IsZero() {
		famReloaded.put(ch, float64(v.Reloaded.UnixMilli())/1e3)
	}
	for _, what := range slices.Sorted(maps.Keys(v.Degraded))[:min(maxFindings, len(v.Degraded))] {
		famDegraded.put(ch, 1, what, v.Degraded[what])
	}
	l.told(ch, &v.Told)
	if v.Status != nil {
		l.status(ch, v.Status)
	}
}

func one(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

func (l *Loop) told(ch chan<- prometheus.Metric, t *Told) {
	count := map[diagnose.Severity]float64{diagnose.Info: 0, diagnose.Warning: 0, diagnose.Critical: 0}
	type key struct {
		id       diagnose.ID
		subject  string
		severity diagnose.Severity
	}
	seen := map[key]bool{}
	for _, f := range t.Findings {
		count[f.Severity]++
		k := key{f.ID, cmp.Or(f.Site.Device, f.Subject), f.Severity}
		if !seen[k] && len(seen) < maxFindings {
			seen[k] = true
			famFinding.put(ch, 1, string(k.id), k.subject, k.severity.String())
		}
	}
	for s, n := range count {
		famFindings.put(ch, n, s.String())
	}
	for s, n := range t.Transactions {
		famTx.put(ch, float64(n), string(s))
	}
	for dev, v := range t.Coalescing {
		famCoalesce.put(ch, v, dev)
	}
	if !t.Baseline {
		return
	}
	first := map[string]time.Time{}
	drift := map[[2]string]float64{{"", diagnose.Info.String()}: 0}
	for _, d := range t.Drift {
		drift[[2]string{d.Target.Device(), d.Severity.String()}]++
		if at, known := first[d.Target.Device()]; d.FirstSeen != nil && (!known || d.FirstSeen.Before(at)) {
			first[d.Target.Device()] = *d.FirstSeen
		}
	}
	for device, at := range first {
		famDriftSeen.put(ch, float64(at.UnixMilli())/1e3, device)
	}
	for k, n := range drift {
		famDrift.put(ch, n, k[0], k[1])
	}
}

func (l *Loop) status(ch chan<- prometheus.Metric, s *control.Status) {
	famAllowed.put(ch, one(s.Open))
	famCritical.put(ch, one(s.Critical))
	famTick.put(ch, s.Tick.Seconds())
	famTickCost.put(ch, s.TickCost)
	modes := func(device string, mode control.Mode) {
		for _, m := range []control.Mode{control.Off, control.Advise, control.Auto} {
			famMode.put(ch, one(m == mode), device, string(m))
		}
	}
	modes("", s.Mode)
	there := map[string]bool{}
	for _, d := range s.Devices {
		if there[d.Name] {
			continue // a name just taken over
		}
		there[d.Name] = true
		modes(d.Name, d.Mode)
		for _, p := range control.Phases {
			famPhase.put(ch, one(p == d.Phase), d.Name, string(p))
		}
		for _, k := range d.Yielded {
			famYielded.put(ch, 1, d.Name, string(k))
		}
		famWait.put(ch, d.Wait.Seconds(), d.Name)
	}
	for _, what := range control.Verdicts { // there from the start, so that the first one is an increase
		if s.Stats[""].Decisions[what] == 0 {
			famDecisions.put(ch, 0, "", what)
		}
	}
	for name, x := range s.Stats {
		for what, n := range x.Decisions {
			famDecisions.put(ch, float64(n), name, what)
		}
		if name == "" || !there[name] {
			continue
		}
		for k, n := range x.Moves {
			famMoves.put(ch, float64(n), name, string(k))
		}
		famBuckets.put(ch, float64(x.Buckets), name)
		famRollbacks.put(ch, float64(x.Rollbacks), name)
		ch <- prometheus.MustNewConstSummary(famReaction.desc(), x.Reactions, x.Reaction.Seconds(), nil, name)
		for _, p := range control.ReactionParts {
			ch <- prometheus.MustNewConstSummary(famParts.desc(), x.Reactions, x.Parts[p].Seconds(), nil, name, p)
		}
	}
}

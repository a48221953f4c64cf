package diagnose

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/rxsteer/rxsteer/internal/host/knob"
	"github.com/rxsteer/rxsteer/internal/host/nic"
)

// Drift is one setting that is not what the baseline says.
type Drift struct {
	knob.Difference
	Severity Severity `json:"severity"`
	Why      string   `json:"why"` // what it does to receive
	// Changed are the attributes of a group that differ ("rx-lro false → true").
	Changed []string `json:"changed,omitempty"`
	// By is a driver, firmware or kernel update of the device that may have done it, "" none.
	By string `json:"by,omitempty"`
	// FirstSeen is when it was seen first, where somebody watched.
	FirstSeen *time.Time `json:"first_seen,omitempty"`
}

// weights say what a change of a setting may do. What is not here matters little.
var weights = map[knob.Kind]struct {
	severity Severity
	why      string
}{
	knob.Channels:           {Critical, "the number of queues decides how many CPUs can receive"},
	knob.RSSTable:           {Critical, "the table decides which queue gets which flows"},
	knob.RSSHashFields:      {Warning, "hash fields decide which flows can be told apart"},
	knob.RSSKey:             {Warning, "another key moves flows to other queues"},
	knob.RSSFunction:        {Warning, "another hash function moves flows to other queues"},
	knob.RSSXfrm:            {Info, "symmetric hashing puts both directions into one queue"},
	knob.NtupleRule:         {Warning, "rules take flows out of the hash"},
	knob.IRQAffinity:        {Warning, "the vector's CPU does the receive work"},
	knob.RPSCPUs:            {Warning, "RPS hands receive work to these CPUs"},
	knob.RPSFlowCnt:         {Info, "without flow entries RFS does nothing"},
	knob.XPSCPUs:            {Info, "XPS picks the transmit queue"},
	knob.XPSRXQs:            {Info, "XPS picks the transmit queue"},
	knob.Features:           {Warning, "offloads decide what the stack gets to see"},
	knob.Rings:              {Warning, "shorter rings drop bursts, longer ones cost cache"},
	knob.Coalesce:           {Warning, "moderation decides how long packets wait and what interrupts cost"},
	knob.QueueCoal:          {Warning, "moderation decides how long packets wait and what interrupts cost"},
	knob.Pause:              {Warning, "with pause frames the sender waits instead of packets being dropped"},
	knob.FEC:                {Warning, "both ends must use the same error correction"},
	knob.MTU:                {Warning, "frames larger than the MTU are lost"},
	knob.PrivateFlags:       {Info, "flags of the driver"},
	knob.Threaded:           {Warning, "threads or softirq do the receive work"},
	knob.DeferHardIRQs:      {Info, "decides how long NAPI goes on without interrupts"},
	knob.GROFlushTimeout:    {Info, "decides how long packets wait to be merged"},
	knob.IRQSuspendTimeout:  {Info, "decides how long interrupts stay off under busy polling"},
	knob.RPSSockFlowEntries: {Info, "without entries RFS does nothing"},
	knob.RPSDefaultMask:     {Info, "the RPS mask of new interfaces"},
	knob.NetdevBudget:       {Info, "work of one receive run"},
	knob.NetdevBudgetUsecs:  {Info, "time of one receive run"},
	knob.NetdevMaxBacklog:   {Warning, "the length of the per-CPU queue"},
	knob.BusyPoll:           {Info, "applications poll queues themselves"},
	knob.BusyRead:           {Info, "applications poll queues themselves"},
}

// Drifted lists what differs between a baseline and now, on the host and the devices of the
// baseline: settings that can be written, worst first. seen tells when a difference was seen first; nil where nobody watched.
func Drifted(was, now *knob.Snapshot, seen func(knob.Ref) (time.Time, bool)) []Drift {
	out := []Drift{}
	if was == nil || now == nil {
		return out
	}
	updates := updated(was, now)
	for _, d := range knob.Diff(was, now) {
		dev := d.Target.Device()
		if !knob.Writable(d.Knob) || dev != "" && !has(was, dev) {
			continue
		}
		w := weights[d.Knob]
		x := Drift{Difference: d, Severity: w.severity, Why: cmp.Or(w.why, "it belongs to the receive path"), Changed: changed(d), By: updates[dev]}
		if d.Knob == knob.Features && !slices.ContainsFunc(x.Changed, func(s string) bool { return strings.HasPrefix(s, "rx-") || strings.HasPrefix(s, "large-") }) {
			x.Severity, x.Why = Info, "offloads of transmit"
		}
		if seen != nil {
			if at, ok := seen(d.Ref); ok {
				x.FirstSeen = &at
			}
		}
		out = append(out, x)
	}
	slices.SortStableFunc(out, func(a, b Drift) int { return -cmp.Compare(a.Severity, b.Severity) })
	return out
}

func has(s *knob.Snapshot, device string) bool {
	return slices.ContainsFunc(s.Devices, func(d knob.Device) bool { return d.Name == device })
}

// updated tells of each device ("" the host) what became of its driver, firmware and kernel.
func updated(was, now *knob.Snapshot) map[string]string {
	out := map[string]string{}
	kernel := change("kernel", was.Host.Kernel, now.Host.Kernel)
	if kernel != "" {
		out[""] = kernel
	}
	for _, d := range was.Devices {
		for _, n := range now.Devices {
			if n.Name != d.Name {
				continue
			}
			var all []string
			for _, c := range []string{kernel, change("driver", d.Driver, n.Driver), change("driver version", d.Version, n.Version), change("firmware", d.Firmware, n.Firmware)} {
				if c != "" {
					all = append(all, c)
				}
			}
			if len(all) > 0 {
				out[d.Name] = strings.Join(all, ", ")
			}
		}
	}
	return out
}

// change is "firmware 3.1 → 3.2", "" where it is the same or not told.
func change(what, from, to string) string {
	if from == to || from == "" || to == "" {
		return ""
	}
	return fmt.Sprintf("%s %s → %s", what, from, to)
}

// changed are the attributes of a group that differ; nil where the value is no group.
func changed(d knob.Difference) []string {
	var from, to map[string]any
	if d.From.Decode(&from) != nil || d.To.Decode(&to) != nil {
		return nil
	}
	all := maps.Clone(from)
	maps.Copy(all, to)
	var out []string
	for _, k := range slices.Sorted(maps.Keys(all)) {
		a, b := text(from, k), text(to, k)
		if a != b {
			out = append(out, fmt.Sprintf("%s %s → %s", k, a, b))
		}
	}
	return out
}

func text(m map[string]any, k string) string {
	v, ok := m[k]
	if !ok {
		return "-"
	}
	b, err := json.Marshal(v)
	if err != nil {
		return fmt.Sprint(v)
	}
	return string(b)
}

// reset says of a device whose driver put its own values back that it did, and which link events may have been when.
func (v *view) reset(f *Finding, device string, all []Drift) {
	again, affinity := false, false
	for _, d := range all {
		switch d.Knob {
		case knob.RSSTable:
			again = again || d.Target.Part() == "" && v.roundRobin(v.table(device), len(v.rxQueues(device)))
		case knob.IRQAffinity:
			affinity = true
		}
	}
	if again {
		f.Summary += "; the table is the driver's default again, as after a restart of the interface"
		f.Evidence = append(f.Evidence, Fact{"reset_to_default", true})
		f.Remedy += ". A table set once does not survive: set it whenever the link comes up (rxsteer persist)"
	}
	if _, ok := nic.Has(v.driver(device), nic.ResetsAffinity); ok && affinity {
		f.Summary += "; this driver puts its own affinity back whenever it is reconfigured (channels, rings, MTU, down and up)"
		f.Remedy += ". Affinity last, after channels, rings and the table, and again after each of them"
	}
	events := 0
	last := ""
	for _, e := range v.in.Events {
		if e.Kind == "link" && (strings.Contains(e.Text, " "+device+":") || strings.Contains(e.Text, "("+device+")")) {
			events++
			last = e.Text
		}
	}
	if events > 0 && (again || affinity) {
		f.Summary += fmt.Sprintf("; link events in the kernel log: %d", events)
		f.Evidence = append(f.Evidence, Fact{"link_events", events}, Fact{"last_link_event", strings.TrimSpace(last)})
	}
}

// mostChanges is how many differences a summary names.
const mostChanges = 3

// drift reports RX801, one finding for each device that drifted: one change of a driver brings many.
func (v *view) drift(r *Report) {
	if v.in.Baseline == nil || v.in.Snapshot == nil {
		return
	}
	was := v.in.Baseline
	of := map[string][]Drift{}
	total := 0
	for _, d := range Drifted(was, v.in.Snapshot, v.in.FirstSeen) {
		if v.wanted(d.Target.Device()) {
			of[d.Target.Device()] = append(of[d.Target.Device()], d)
			total++
		}
	}
	saved, of1 := "", ""
	if !was.Taken.IsZero() {
		saved = was.Taken.UTC().Format("2006-01-02 15:04")
		of1 = " of " + saved
	}
	if total == 0 {
		r.checked("settings against the baseline%s: no difference", of1)
		return
	}
	for _, device := range slices.Sorted(maps.Keys(of)) {
		all := of[device]
		if device != "" && !has(v.in.Snapshot, device) {
			r.Findings = append(r.Findings, Finding{ID: "RX801", Severity: Critical, Subject: device, Site: Site{CPU: -1},
				Summary:  fmt.Sprintf("%s of the baseline%s is not there any more", device, of1),
				Evidence: Evidence{{"differences", len(all)}, {"baseline_taken", saved}},
				Remedy:   "renamed, removed, moved to another network namespace, or its driver failed: the kernel's log tells; then save a new baseline"})
			continue
		}
		subject := cmp.Or(device, "host")
		f := Finding{ID: "RX801", Severity: all[0].Severity, Subject: subject, Evidence: Evidence{{"differences", len(all)}, {"baseline_taken", saved}}, Site: Site{Device: device, CPU: -1}}
		var names []string
		var first *time.Time
		for i, d := range all {
			name, value := d.Ref.String(), fmt.Sprintf("%s → %s", d.From, d.To)
			if len(d.Changed) > 0 {
				value = strings.Join(d.Changed, ", ")
			}
			f.Evidence = append(f.Evidence, Fact{name, fmt.Sprintf("%s (%s)", value, d.Severity)})
			if i < mostChanges {
				names = append(names, name)
			}
			if d.FirstSeen != nil && (first == nil || d.FirstSeen.Before(*first)) {
				first = d.FirstSeen
			}
		}
		if len(all) > mostChanges {
			names = append(names, fmt.Sprintf("%d more", len(all)-mostChanges))
		}
		f.Summary = fmt.Sprintf("%s of %s %s from the baseline%s: %s", count(len(all), "setting"), subject, map[bool]string{true: "differs", false: "differ"}[len(all) == 1], of1, strings.Join(names, ", "))
		f.Remedy = fmt.Sprintf("find who changed it (rxsteer history, rxsteer doctor: owners), then put it back or save a new baseline; %s", all[0].Why)
		if all[0].By != "" {
			f.Summary += fmt.Sprintf("; since then: %s", all[0].By)
			f.Evidence = append(f.Evidence, Fact{"updated", all[0].By})
			f.Remedy = "an update changed what the driver sets by itself: put back what was asked for, and save a baseline of the new version; " + all[0].Why
		}
		v.reset(&f, device, all)
		if first != nil {
			f.Evidence = append(f.Evidence, Fact{"first_seen", first.UTC().Format(time.RFC3339)})
		}
		r.Findings = append(r.Findings, f)
	}
}

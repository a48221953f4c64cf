package diagnose

import "slices"

// rule looks for one family of findings. doc.go says how one is added.
type rule struct {
	ids []ID // what it may report as findings
	// settings says that settings alone can tell: it also runs where nothing, or for too short a time, was
	// measured. Its findings must then hold without a sample.
	settings bool
	look     func(*view, *Report)
}

// rules run in this order, causes before what they explain. Each appends to r.Findings, and to
// r.Checked what it looked at and found in order.
var rules = []rule{
	{ids: []ID{"RX201", "RX202", "RX205", "RX206", "RX701"}, settings: true, look: (*view).tables},
	{ids: []ID{"RX204"}, look: (*view).unhashable},
	{ids: []ID{"RX203"}, look: (*view).hashFields},
	{ids: []ID{"RX702"}, settings: true, look: (*view).halfTuned},
	{ids: []ID{"RX101", "RX102", "RX301", "RX303"}, look: (*view).concentrated},
	{ids: []ID{"RX104"}, settings: true, look: (*view).notInEffect},
	{ids: []ID{"RX102"}, look: (*view).crowded},
	{ids: []ID{"RX101", "RX301"}, look: (*view).imbalance},
	{ids: []ID{"RX103"}, look: (*view).remote},
	{ids: []ID{"RX103"}, look: (*view).farReaders},
	{ids: []ID{"RX105"}, look: (*view).rewritten},
	{ids: []ID{"RX107"}, look: (*view).misplaced},
	{ids: []ID{"RX106"}, look: (*view).managed},
	{ids: []ID{"RX303"}, look: (*view).masks},
	{ids: []ID{"RX302"}, look: (*view).needlessRPS},
	{ids: []ID{"RX304"}, settings: true, look: (*view).halfRFS},
	{ids: []ID{"RX304"}, look: (*view).longFlows},
	{ids: []ID{"RX305"}, look: (*view).transmit},
	{ids: []ID{"RX208"}, look: (*view).fewFlows},
	{ids: []ID{"RX207"}, settings: true, look: (*view).takenQueues},
	{ids: []ID{"RX401"}, look: (*view).squeezes},
	{ids: []ID{"RX403"}, look: (*view).backlogDrops},
	{ids: []ID{"RX402"}, look: (*view).ringDrops},
	{ids: []ID{"RX404"}, look: (*view).pauses},
	{ids: []ID{"RX405"}, look: (*view).shaped},
	{ids: []ID{"RX406"}, look: (*view).sockets},
	{ids: []ID{"RX501", "RX502", "RX503"}, settings: true, look: (*view).moderation},
	{ids: []ID{"RX504"}, look: (*view).busyPolling},
	{ids: []ID{"RX505"}, look: (*view).threads},
	{settings: true, look: (*view).realtime},
	{ids: []ID{"RX601", "RX604"}, settings: true, look: (*view).offloads},
	{ids: []ID{"RX602"}, look: (*view).wire},
	{ids: []ID{"RX603"}, look: (*view).windows},
	{ids: []ID{"RX801"}, settings: true, look: (*view).drift},
}

// symptoms are what a CPU (and the device whose packets heat it, "" none) may suffer from a cause; they
// become part of the cause's finding. The rule that reports the same thing alone asks r.explained.
var symptoms = []func(v *view, cpu int, device string) (Symptom, bool){
	(*view).squeeze,
	(*view).drops,
	(*view).ringLoss,
	(*view).pausing,
}

// absorb makes the findings that hold for is symptoms of a cause found later, and takes over where they are.
func (r *Report) absorb(cause *Finding, is func(Finding) bool) {
	keep := r.Findings[:0]
	for _, x := range r.Findings {
		if !is(x) {
			keep = append(keep, x)
			continue
		}
		cause.Severity = max(cause.Severity, x.Severity)
		cause.Explains = append(cause.Explains, Symptom{ID: x.ID, Subject: x.Subject, Summary: x.Summary, Evidence: x.Evidence})
		cause.Explains = append(cause.Explains, x.Explains...)
		if cause.Site.CPU < 0 {
			cause.Site.CPU, cause.Site.Queues = x.Site.CPU, x.Site.Queues
			if cause.Site.Device == "" {
				cause.Site.Device = x.Site.Device
			}
		}
	}
	r.Findings = keep
}

// explained reports whether a finding so far has this symptom.
func (r *Report) explained(s Symptom) bool {
	for _, f := range r.Findings {
		for _, x := range f.Explains {
			if x.ID == s.ID && x.Subject == s.Subject {
				return true
			}
		}
	}
	return false
}

// tells reports whether a finding so far names a queue of a device as where its load is.
func (r *Report) tells(device string, queue int) bool {
	return slices.ContainsFunc(r.Findings, func(f Finding) bool {
		return f.Site.Device == device && slices.Contains(f.Site.Queues, queue)
	})
}

// caused reports whether a cause was found for the load of a device.
func (r *Report) caused(device string) bool {
	for _, f := range r.Findings {
		if f.Site.Device == device && f.Site.CPU >= 0 {
			return true
		}
	}
	return false
}

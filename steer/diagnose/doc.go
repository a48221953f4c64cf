// Package diagnose turns what is set on a host (knob.Snapshot), what it is
// made of (topo, nic) and what was measured (collector.Sample) into findings:
// each one cause, with the numbers that prove it, what was ruled out and the
// remedy, or why there is none.
//
// It is a pure function of its input: it reads no file, no socket and no
// clock, and the same input gives the same report. It refuses to change
// anything and to choose settings; that is the business of plan.
//
// # Adding a rule
//
// A family of findings is one file with one function of the view and the report,
//
//	func (v *view) ringDrops(r *Report)
//
// and one line in the list of rules (rule.go) with the IDs it may report. It
//
//   - appends a Finding for each cause, its numbers as Evidence (names end in their unit), what was
//     ruled out, the remedy, and the Site for plan; Site.CPU is -1 unless it explains a hot CPU;
//   - says through r.checked what it looked at and found in order, and through
//     r.unmeasured what it could not see, with the IDs that are weaker for it;
//   - names thresholds as constants with the reason: rates against noise, a least traffic;
//   - leaves alone what v.wanted says was not asked for, and what r.explained says an earlier rule
//     has as symptom. What a hot CPU may suffer besides goes into the list of symptoms;
//   - has its text in the catalogue (placement in catalogue.go: RX1xx–RX3xx, RX7xx, RX9xx; load in
//     catalogue_load.go: RX4xx–RX6xx, RX8xx). Whether a finding is looked for follows from the list of rules.
//
// Its tests build a world (diagnose_test.go), change one thing, and compare "ID severity subject
// [symptoms]"; each has near misses that stay silent. What people paste is a case in testdata/cases (an archive with
// the findings it must show). docs/findings.md is generated from the catalogue and the cases:
// go test ./steer/diagnose -run TestDocument -update.
package diagnose

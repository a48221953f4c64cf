// Package diagnose turns what is set on a host (knob.Snapshot), what it is
// made of (topo, nic) and what was measured (collector.Sample) into findings:
// each one cause, with the numbers that prove it, what was ruled out and the
// remedy, or why there is none.
//
// It is a pure function of its input: it reads no file, no socket and no
// clock, and the same input gives the same report. It refuses to change
// anything and to choose settings; that is the business of plan.
package diagnose

// Package apply makes a plan true as a transaction: lock, check that the host
// is the one the plan was made for, journal, write step by step with
// compare-and-set, read back, judge what was measured before against after,
// and keep it or put back every value that is still ours. A process killed at any point
// leaves a journal from which the next run finishes the rollback.
//
// It refuses to choose settings and to touch a setting that somebody else
// moved in between. It reads and writes the host only through Host; the only files
// it knows itself are those of its journal.
package apply

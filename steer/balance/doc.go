// Package balance decides which bucket of an indirection table goes to which queue and which
// queue to which CPU, so that the hottest CPU is as cool as it can be, with as few moves as
// that takes. It is pure: loads in, assignment out; it reads and writes nothing of a host.
//
// How: a packing problem (buckets or queues are items, CPUs are bins) is solved for several
// levels that CPUs are unloaded to, by rehoming what is above the level on the coolest CPUs,
// biggest first; the best is refined by moves and swaps off the hottest CPU, then every move
// that the reached level does not need is taken back. The published greedy of RSS++ runs on the
// same instance and its answer competes, hence ours is never worse; what is small enough is
// searched to the end. Where interrupts may move too, tables are solved for several placements.
//
// It does not know what a move costs besides counting it, nor whether a gain is worth it: that
// is steer/plan's. Loads that no change can move are background.
package balance

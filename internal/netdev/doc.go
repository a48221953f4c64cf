// Package netdev speaks the kernel's netdev generic netlink family: queues, NAPI
// instances, per-queue counters (Documentation/netlink/specs/netdev.yaml).
//
// A kernel without the family (before 6.4) or without a command of it is
// ErrNotSupported, which is an answer and no failure.
package netdev

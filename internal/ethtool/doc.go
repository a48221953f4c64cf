// Package ethtool reads and writes network device settings over the kernel's
// ethtool generic netlink family, and over the older SIOCETHTOOL ioctl where a
// kernel or the family lacks the message (indirection tables before 6.17, flow
// hash fields before 6.17, ntuple rules, per-queue coalescing, statistics).
//
// Parsers are pure functions of bytes. Every error of the kernel becomes one of the
// sentinels of errors.go in one place, with the extended-ack text kept.
//
// It refuses to interpret what it reads (internal/host/knob names the settings)
// and never sends an attribute that the caller did not ask to change.
package ethtool

// Package testnet builds real receive paths for tests and the lab: network
// namespaces, veth pairs that run NAPI, and multi-queue TAP devices into which
// frames are injected queue by queue.
//
// Everything a test makes is deleted by t.Cleanup; what a killed run left
// behind is reaped by the next one, because each namespace's name carries the
// pid and start time of its owner.
//
// It refuses to touch the namespace it was started in: every device is made
// inside a namespace of its own. It execs ip(8) and ethtool(8), which the
// program itself never does.
package testnet

// Package hosttest is a strict fake host: a file tree, an ethtool client and
// a netdev client over one model of CPUs, interrupts and network devices, built
// from a Spec (topology × driver × kernel).
//
// It behaves as the kernel does where a tool can get it wrong, and each such
// behaviour names its source. What a driver does is in its Spec (see the
// presets), so that no code here asks for a driver by name. A write to a path
// that does not exist, or to a file that no kernel lets be written, fails the
// test as well as the write: a tool that pokes at wrong paths must not pass.
//
// The scripts of testdata run on it. Those of testdata/both run on a veth of this
// machine's kernel too, those of testdata/lab on real drivers in guests of the lab
// (lab_test.go), which proves that the fake does not lie there.
package hosttest

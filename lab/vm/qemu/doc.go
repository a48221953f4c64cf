// Package qemu boots throw-away QEMU guests with Debian kernels and real
// multi-queue NIC drivers, runs a shell script in them and hands back its exit
// status, its output and the files it left.
//
// It needs root, /dev/net/tun and Debian's package sources, and no KVM: TCG boots
// a guest in about ten seconds. Everything it installs or unpacks beyond tools from the
// host's own release lives in one cache folder; kernels are never installed.
//
// Nothing survives its owner, however it dies: QEMU and the sender's commands carry a
// parent-death signal, the sender's network namespace has no name and goes with its last
// process, and the run's folder is locked, so that the next start sees that its
// owner is gone and removes it.
//
// It refuses to measure or judge anything: lab/scenarios does.
package qemu

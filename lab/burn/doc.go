// Package burn adds a fixed cost to each packet a device receives, so that a
// CPU saturates at packet rates a small machine can offer: a BPF program at tc
// ingress, which runs after RPS and therefore on the CPU that RPS chose.
//
// The work is counted in iterations of a register-only loop, never by the
// clock: a burn by the clock lets a preempted CPU do less work and looks
// parallel where nothing is. Iterations are turned into time once, by Calibrate.
//
// It costs per skb: GRO'ed TCP pays once per merged packet, UDP once per packet.
package burn

// Package scenarios runs rxsteer in lab guests and judges it.
//
// A scenario is one YAML file of this folder: the machine, what is set on it, the traffic,
// then what is true (facts, by the kernel's own counters), and what rxsteer must
// find, plan and achieve. What needs a capability that is still to come is written
// all the same, under pending with the subject: it is run, may fail, and when it
// passes the lab fails until the line is removed.
package scenarios

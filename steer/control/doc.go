// Package control is the closed loop: observe → convinced → plan → apply → judge → keep or revert → cool down.
//
// Machine is pure: events in, actions and decisions out, time only from the events. A recording of events
// gives the same decisions bit for bit (Replay). Loop feeds it: it reads the counters, opens bucket windows,
// writes and undoes through steer/apply, and hands back what became of it.
//
// It refuses to choose settings (plan and balance do), to write (apply does), and to move anything outside its Config:
// modes, settings, ranges, CPUs, windows of time and moves per minute.
package control

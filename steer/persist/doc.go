// Package persist makes what was confirmed on a host survive a reboot: which changes of this boot may be
// kept, the file that holds them, and the plan that makes them true again on a later boot, where
// interrupts have other numbers and interfaces other indices.
//
// It refuses to re-apply where driver, kernel release or queue count differ from what was confirmed, and
// when the last boot with it was never confirmed healthy. It writes nothing to a host: steer/apply does.
package persist

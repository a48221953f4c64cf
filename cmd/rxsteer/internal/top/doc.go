// Package top is the live view: which queue on which CPU hurts.
//
// A Shot is what one interval showed, small enough to keep minutes of; Take makes it of a sample. A
// Model is the state of the view: Update takes keys and shots, Render turns it into
// text. All of it is pure: values in, values out, so that frames have golden files.
//
// Names come from others (interfaces, processes): whatever they hold, no control character reaches the
// terminal.
//
// It refuses to read the host, and to judge more than to mark what is near its limit: findings are
// steer/diagnose's.
package top

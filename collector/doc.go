// Package collector measures: it turns the cumulative counters of the BPF
// programs and of the kernel into an immutable Sample per interval, and
// keeps a ring of recent ones for everyone else. One file per source.
//
// It refuses to write to the kernel and to judge what it measured.
package collector

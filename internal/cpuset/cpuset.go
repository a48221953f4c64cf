// Package cpuset is sets of CPUs and their two kernel texts: masks
// ("00000000,0000000f", bitmap_parse in lib/bitmap.c) and lists
// ("0-3,8", bitmap_parselist).
package cpuset

// Set is an immutable set of CPU numbers. The zero Set is empty.
type Set struct{ words string }

// String is the list text, "" when empty.
func (s Set) String() string { return "" }

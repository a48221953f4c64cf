// Package flame sums up and draws profiles of receiving (collector.Profile): which functions the time of
// which queue went to, alone or against an earlier profile.
//
//	t := flame.NewTree(after, before)    // before may be nil
//	err := t.WriteSVG(w, "eth0, 30 s")   // self-contained; zooms and searches without a network
//	for _, f := range t.Top(10) { … }
//
// Values are shares of one CPU's time, so that profiles of different length and rate compare.
//
// It refuses to judge what it draws.
package flame

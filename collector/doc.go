// Package collector measures: it turns the cumulative counters of the BPF
// programs and of the kernel into an immutable Sample per interval, and
// keeps a ring of recent ones for everyone else. One file per source.
//
//	ring := collector.NewRing(120)
//	s := collector.New(collector.Config{FS: host.OS{}, Level: 1, Ring: ring})
//	go s.Run(ctx)                          // one sample a second into the ring
//	one, err := s.Sample(ctx, time.Second) // or a single one
//	ten := collector.Merge(ring.Window(10 * time.Second)...)
//
// Level 0 needs no privilege: where BPF is refused a Sample is of level 0 and
// its Unmeasured says why. What could not be read, restarted or was lost is
// always said, never guessed: see Between.
//
// It refuses to write to the kernel and to judge what it measured.
package collector

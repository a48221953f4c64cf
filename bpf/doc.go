// Package bpf measures the receive softirq with programs on BTF tracepoints:
// per {NAPI, CPU} polls, packets, time and histograms; per CPU the time of
// every softirq vector, NET_RX's tail and what it ran over; per {IRQ, CPU}
// count and time. rx.bpf.c says how time is attributed.
//
//	p, err := bpf.Load(bpf.Options{})   // nothing runs yet
//	err = p.Attach()                    // all at once: counting begins
//	err = p.Read(&c)                    // cumulative counters, one batch per map
//	err = p.Close()                     // nothing is left in the kernel
//
// That is level 1. Level 2, where sampled packets wait, is a set of programs of its own:
// LoadPackets, and packet.bpf.c. Both can be thinned: SetOn has attached programs return at
// once, SetRate has them look at fewer events.
//
// BTF tracepoints are all it asks of a kernel: they attach where lockdown
// refuses kprobes and fentry. Probe tells which of them this kernel has and what
// is lost without. Absence and lack of privilege are ErrNoBTF, ErrNoTracepoint
// and ErrNoPrivilege.
//
// It refuses policy: it knows no NIC, keeps no history and takes no
// differences; that is the collector's.
package bpf

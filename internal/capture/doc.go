// Package capture reads packet captures (pcap and pcapng) and says of each packet what a
// card could hash of it: the same rules as bpf/spread.bpf.c, in Go.
//
// It refuses to keep packets: a capture of any length takes the memory of one.
package capture

package bpf

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf/btf"
)

// hook is a tracepoint and the program for it, which has its name.
type hook struct {
	name  string
	level int    // of attention that needs it
	lost  string // what no Sample holds without it
	// optional: the rest is right without it.
	optional bool
	when     when
}

// when a program is attached.
type when int

const (
	always when = iota
	withDetail
	withThreads
	withReaders
)

// hooks in order of attachment.
var hooks = []hook{
	{level: 1, name: rxProgSoftirqEntry, lost: "all live measurement: a softirq's beginning"},
	{level: 1, name: rxProgSoftirqExit, lost: "all live measurement: a softirq's end"},
	{level: 1, name: rxProgNapiPoll, lost: "all live measurement: which NAPI a NET_RX run polled"},
	{level: 1, name: rxProgIrqHandlerEntry, lost: "time per interrupt", optional: true},
	{level: 1, name: rxProgIrqHandlerExit, lost: "time per interrupt and gaps between them", optional: true},
	{level: 2, name: rxProgSoftirqRaise, lost: "stages irq-raise and raise-run, and which interrupt raises which NAPI", optional: true, when: withDetail},
	{level: 1, name: rxProgSchedSwitch, lost: "time of NAPI threads", optional: true, when: withThreads},
}

// packetHooks are those of level 2: the programs of packet.bpf.c.
var packetHooks = []hook{
	{level: 2, name: packetProgNetifReceiveSkb, lost: "stages of packets: their coming to the protocol layer"},
	{level: 2, name: packetProgTcpProbe, lost: "stage stack-socket", optional: true},
	{level: 2, name: packetProgSkbCopyDatagramIovec, lost: "stages socket-read and total of TCP", optional: true},
	{level: 2, name: packetProgConsumeSkb, lost: "stages socket-read and total of UDP; which samples nobody read", optional: true},
	{level: 2, name: packetProgSkDataReady, lost: "stage stack-socket of UDP; from Linux 6.18 on socket-read and total too", optional: true, when: withReaders},
	{level: 2, name: packetProgSockRecvLength, lost: "stages socket-read and total of UDP from Linux 6.18 on", optional: true, when: withReaders},
	{level: 2, name: packetProgKfreeSkb, lost: "samples that were dropped: they count as under way", optional: true},
	{level: 2, name: packetProgNetifRx, lost: "stages of packets that pass no GRO: lo, tun and veth without NAPI", optional: true},
	{level: 2, name: packetProgNapiGroFragsEntry, lost: "stages of packets of drivers that hand over page fragments", optional: true},
	{level: 2, name: packetProgXdpException, lost: "packets that XDP aborted", optional: true},
	{level: 2, name: packetProgXdpRedirect, lost: "packets that XDP redirected", optional: true},
	{level: 2, name: packetProgXdpRedirectErr, lost: "packets that XDP could not redirect", optional: true},
	{level: 2, name: packetProgNapiGroReceiveEntry, lost: "stages of packets of most drivers", optional: true},
}

// find reports whether kernel has the tracepoint: nil, ErrNoTracepoint, or
// that it could not be told. Every tracepoint a program can bind to by BTF is
// described by a typedef (include/trace/bpf_probe.h).
func (h hook) find(kernel *btf.Spec) error {
	var t *btf.Typedef
	err := kernel.TypeByName("btf_trace_"+h.name, &t)
	if errors.Is(err, btf.ErrNotFound) {
		return fmt.Errorf("%w %s", ErrNoTracepoint, h.name)
	}
	if err != nil {
		return fmt.Errorf("find tracepoint %s: %w", h.name, err)
	}
	return nil
}

// kernelTypes calls the options' source of BTF.
func kernelTypes(source func() (*btf.Spec, error)) (*btf.Spec, error) {
	if source == nil {
		source = btf.LoadKernelSpec
	}
	spec, err := source()
	if err != nil {
		return nil, fmt.Errorf("%w: live measurement needs a kernel built with CONFIG_DEBUG_INFO_BTF: %w", ErrNoBTF, err)
	}
	return spec, nil
}

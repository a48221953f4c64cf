package nic

import (
	"slices"

	"github.com/rxsteer/rxsteer/internal/host/knob"
)

// The support table: for each driver and setting, how far a write has been
// tried. docs/support.md is made from it, and steering refuses by itself what was never
// run.

// Level is how far a setting was tried on a driver, best first.
type Level string

const (
	// Lab: written and read back on the real driver, in a virtual machine of lab/
	// or (for virtual devices) in a network namespace.
	Lab Level = "lab"
	// Fake: written and read back on the fake host, which behaves as the driver's source says.
	Fake Level = "fake"
	// Docs: known from documentation and source only; never run.
	Docs Level = "docs"
	// NotOffered: the driver has no such setting.
	NotOffered Level = "-"
)

// Run reports whether a setting was ever run at this level.
func (l Level) Run() bool { return l == Lab || l == Fake }

// kernelKinds belong to the kernel's core and work alike on every device.
var kernelKinds = []knob.Kind{
	knob.IRQAffinity, knob.RPSCPUs, knob.RPSFlowCnt, knob.XPSCPUs, knob.XPSRXQs,
	knob.Threaded, knob.DeferHardIRQs, knob.GROFlushTimeout, knob.IRQSuspendTimeout, knob.MTU,
}

// sysctlKinds belong to the host.
var sysctlKinds = []knob.Kind{
	knob.RPSSockFlowEntries, knob.RPSDefaultMask, knob.NetdevBudget, knob.NetdevBudgetUsecs,
	knob.NetdevMaxBacklog, knob.DevWeight, knob.BusyPoll, knob.BusyRead, knob.FlowLimitCPUs, knob.FlowLimitTableLen,
}

// driverKinds are up to the driver.
var driverKinds = []knob.Kind{
	knob.Channels, knob.Rings, knob.Coalesce, knob.QueueCoal,
	knob.RSSTable, knob.RSSKey, knob.RSSFunction, knob.RSSHashFields, knob.NtupleRule,
	knob.Features, knob.Pause, knob.PrivateFlags, knob.FEC,
}

// onFake lists what each driver's model in hosttest offers; a test there writes every one.
var onFake = map[string][]knob.Kind{
	"igb":        {knob.Channels, knob.Rings, knob.Coalesce, knob.RSSTable, knob.RSSHashFields, knob.Features, knob.Pause, knob.PrivateFlags},
	"ixgbe":      {knob.Channels, knob.Rings, knob.Coalesce, knob.RSSTable, knob.RSSKey, knob.RSSFunction, knob.RSSHashFields, knob.NtupleRule, knob.Features, knob.Pause},
	"mlx5_core":  {knob.Channels, knob.Rings, knob.Coalesce, knob.QueueCoal, knob.RSSTable, knob.RSSKey, knob.RSSFunction, knob.RSSHashFields, knob.NtupleRule, knob.Features, knob.Pause, knob.PrivateFlags, knob.FEC},
	"mlx4_core":  {knob.Channels, knob.Rings, knob.Coalesce, knob.RSSTable, knob.RSSKey, knob.RSSFunction, knob.NtupleRule, knob.Features},
	"virtio_net": {knob.Channels, knob.Rings, knob.Coalesce, knob.RSSTable, knob.RSSKey, knob.RSSFunction, knob.RSSHashFields, knob.Features},
	"ena":        {knob.Channels, knob.Rings, knob.Coalesce, knob.RSSTable, knob.Features},
	"vmxnet3":    {knob.Rings, knob.RSSTable, knob.Features},
	"e1000e":     {knob.Rings, knob.Coalesce, knob.Features, knob.Pause},
	"bnxt_en":    {knob.Channels, knob.Rings, knob.Coalesce, knob.RSSTable, knob.RSSKey, knob.RSSFunction, knob.RSSHashFields, knob.NtupleRule, knob.Features, knob.FEC},
	"hv_netvsc":  {knob.Channels, knob.Rings, knob.RSSTable, knob.RSSKey, knob.RSSFunction, knob.RSSHashFields, knob.Features},
	"veth":       {knob.Channels, knob.Features},
}

// onSome lists what only newer cards of a modelled driver offer.
var onSome = map[string][]knob.Kind{
	"igb":        {knob.NtupleRule}, // I210, I350; not the 82576
	"ena":        {knob.RSSKey, knob.RSSFunction, knob.RSSHashFields},
	"virtio_net": {knob.QueueCoal}, // VIRTIO_NET_F_VQ_NOTF_COAL
	"bnxt_en":    {knob.Pause, knob.PrivateFlags},
	"mlx4_core":  {knob.Pause, knob.PrivateFlags, knob.RSSHashFields},
	"hv_netvsc":  {knob.Coalesce},
}

// labRun is one real driver on which settings were written and read back.
type labRun struct {
	driver string
	kinds  []knob.Kind
	by     string // the test or scenario that does it
}

// everyKnob writes each setting of a device and of the host that reads as known to another value, reads
// everything back and undoes it. What a guest wrote that this table does not call run in the lab fails rxlab truth.
const everyKnob = "every setting it offers: TestEveryKnobOfANIC of internal/host/knob in a guest with kernel 6.12 (rxlab truth)"

// guestKinds are what everyKnob writes on every driver.
var guestKinds = []knob.Kind{
	knob.Features, knob.IRQAffinity, knob.RPSCPUs, knob.RPSFlowCnt, knob.XPSCPUs, knob.DeferHardIRQs, knob.GROFlushTimeout, knob.MTU,
}

// labRuns: a row is added only for what a committed test or lab scenario runs.
var labRuns = []labRun{
	{"igb", []knob.Kind{knob.Channels, knob.Rings, knob.Coalesce, knob.RSSTable, knob.RSSHashFields, knob.Features, knob.RPSCPUs, knob.IRQAffinity}, "82576 of QEMU, kernel 6.12: testdata/lab/igb.txtar of internal/host/hosttest (TestScriptOnTheDriver, build tag lab)"},
	{"virtio_net", []knob.Kind{knob.Channels, knob.RSSTable, knob.RSSHashFields, knob.RPSCPUs}, "QEMU with mq=on,rss=on, kernel 6.12: testdata/lab/virtio.txtar, same test"},
	{"vmxnet3", []knob.Kind{knob.Rings, knob.RSSTable, knob.Features, knob.IRQAffinity}, "QEMU, kernel 6.12: testdata/lab/vmxnet3.txtar, same test"},
	{"e1000e", []knob.Kind{knob.Rings, knob.Coalesce, knob.IRQAffinity}, "82574 of QEMU, kernel 6.12: testdata/lab/e1000e.txtar, same test"},
	{"igb", slices.Concat(guestKinds, []knob.Kind{knob.Coalesce, knob.RSSTable, knob.RSSHashFields}), everyKnob},
	{"virtio_net", slices.Concat(guestKinds, []knob.Kind{knob.RSSTable, knob.RSSKey, knob.RSSHashFields}), everyKnob},
	{"vmxnet3", slices.Concat(guestKinds, []knob.Kind{knob.RSSTable}), everyKnob},
	{"e1000e", slices.Concat(guestKinds, []knob.Kind{knob.Coalesce}), everyKnob},
	{"", sysctlKinds, everyKnob},
	{"veth", []knob.Kind{knob.Channels, knob.RPSCPUs, knob.RPSFlowCnt, knob.XPSCPUs, knob.DeferHardIRQs, knob.GROFlushTimeout, knob.MTU}, "TestScriptsOnTheKernel in internal/host/hosttest"},
	{"veth", []knob.Kind{knob.Features, knob.Threaded, knob.DeferHardIRQs, knob.GROFlushTimeout, knob.IRQSuspendTimeout}, "of the device and of one NAPI instance (napi-set): TestNAPISettingsOfAVeth and TestOneNAPIOfAVeth in internal/host/knob, kernel 6.18"},
}

// SupportedDrivers lists the drivers that the table has a column for, sorted.
func SupportedDrivers() []string {
	var out []string
	for d := range onFake {
		out = append(out, d)
	}
	for _, r := range labRuns {
		if r.driver != "" {
			out = append(out, r.driver)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// DriverKinds lists the settings that are up to the driver.
func DriverKinds() []knob.Kind { return slices.Clone(driverKinds) }

// KernelKinds lists the settings of the kernel's core and of the host.
func KernelKinds() []knob.Kind { return slices.Concat(kernelKinds, sysctlKinds) }

// Support tells how far a setting was tried on a driver ("" for settings of the
// host). Drivers without a column are known from documentation only, but for what
// belongs to the kernel's core.
func Support(driver string, k knob.Kind) Level {
	driver = CanonicalDriver(driver)
	for _, r := range labRuns {
		if r.driver == driver && slices.Contains(r.kinds, k) {
			return Lab
		}
	}
	if slices.Contains(kernelKinds, k) || slices.Contains(sysctlKinds, k) {
		return Fake
	}
	kinds, modelled := onFake[driver]
	switch {
	case slices.Contains(kinds, k):
		return Fake
	case modelled && !slices.Contains(onSome[driver], k):
		return NotOffered
	default:
		return Docs
	}
}

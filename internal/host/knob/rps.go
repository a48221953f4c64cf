package knob

import (
	"strconv"
	"syscall"
)

// Receive packet steering and its flow table, per rx queue:
// /sys/class/net/<if>/queues/rx-N/{rps_cpus,rps_flow_cnt} (net/core/net-sysfs.c). The kernel
// cuts a mask to the CPUs that may do network work and rounds a table size up to a
// power of two, so either may read back other than it was written.
var rpsFamily = family{read: readRPS, write: writeRPS, command: commandRPS, meaning: meaningRPS}

func rpsPath(r Ref) (string, bool) {
	q, ok := part(r.Target, "rx-")
	if !ok {
		return "", false
	}
	file := "rps_cpus"
	if r.Knob == RPSFlowCnt {
		file = "rps_flow_cnt"
	}
	return "/sys/class/net/" + r.Target.Device() + "/queues/rx-" + strconv.Itoa(q) + "/" + file, true
}

func readRPS(m *Machine, r Ref) Value {
	p, ok := rpsPath(r)
	if !ok {
		return noSuch(r)
	}
	if r.Knob == RPSFlowCnt {
		return m.readInt(r.Target.Device(), p)
	}
	return m.readMask(r.Target.Device(), p)
}

func rpsText(r Ref, v Value) (string, error) {
	if r.Knob == RPSFlowCnt {
		return intText(v)
	}
	return maskText(v)
}

func writeRPS(m *Machine, r Ref, _, to Value) error {
	p, _ := rpsPath(r) // readRPS, a moment ago, found it
	s, err := rpsText(r, to)
	if err != nil {
		return err
	}
	return m.writeText(p, s)
}

func commandRPS(r Ref, v Value) string {
	p, ok := rpsPath(r)
	s, err := rpsText(r, v)
	if !ok || err != nil {
		return ""
	}
	return echo(s, p)
}

// The mask is cut to the housekeeping CPUs of isolcpus= (rps_cpumask_housekeeping,
// since 5.9): nothing left is EINVAL, and between that commit and its fix of August 2020
// so was the empty mask.
func meaningRPS(r Ref, no syscall.Errno) string {
	switch {
	case no == syscall.EINVAL && r.Knob == RPSCPUs:
		return "no CPU of the mask may do network work: all of them are isolated (isolcpus=) or do not exist; early 5.9 kernels also refuse the empty mask"
	case no == syscall.EINVAL:
		return "the table size is out of range"
	case no == syscall.EOVERFLOW && r.Knob == RPSCPUs:
		return "the mask names CPUs this kernel cannot have"
	case no == syscall.ENOMEM && r.Knob == RPSFlowCnt:
		return "no memory for a flow table of that size"
	}
	return ""
}

package knob

import (
	"fmt"
	"strconv"
	"strings"
	"syscall"
)

// Interrupt moderation (ethtool -c, -C, -Q). Sending attributes that do not change
// would switch adaptive moderation off or on with some drivers, so never.
var coalesceFamily = family{read: readCoalesce, write: writeCoalesce, command: commandCoalesce, meaning: meaningCoalesce}

func (m *Machine) coalesce(dev string) Value {
	g, err := m.c.Ethtool.Coalesce(dev)
	if err != nil {
		return m.unread(dev, err)
	}
	return groupValue(g)
}

func readCoalesce(m *Machine, r Ref) Value {
	if r.Knob == Coalesce {
		dev, v, ok := m.ethtoolDevice(r)
		if !ok {
			return v
		}
		return m.coalesce(dev)
	}
	q, ok := part(r.Target, "queue-")
	switch {
	case !ok:
		return noSuch(r)
	case m.c.Ethtool == nil:
		return Unknown(m.c.EthtoolReason)
	}
	all, err := m.c.Ethtool.QueueCoalesce(r.Target.Device(), q+1)
	if err != nil {
		return m.unread(r.Target.Device(), err)
	}
	if q >= len(all) {
		return Absent("no such queue")
	}
	return groupValue(all[q])
}

// listQueueCoalesce is per-queue moderation where the driver has it, of n queues.
func (m *Machine) listQueueCoalesce(dev string, n int) []Setting {
	all, err := m.c.Ethtool.QueueCoalesce(dev, n)
	if err != nil {
		return nil
	}
	var out []Setting
	for q, g := range all {
		out = append(out, settings(On(dev, "queue-%d", q), QueueCoal, groupValue(g))...)
	}
	return out
}

func writeCoalesce(m *Machine, r Ref, now, to Value) error {
	g, err := changed(now, to)
	if err != nil {
		return err
	}
	if r.Knob == Coalesce {
		return m.c.Ethtool.SetCoalesce(r.Target.Device(), g)
	}
	q, _ := part(r.Target, "queue-")
	return m.c.Ethtool.SetQueueCoalesce(r.Target.Device(), q, g)
}

func commandCoalesce(r Ref, v Value) string {
	if r.Knob == Coalesce {
		return onDevice("-C")(r, spellProfiles(v))
	}
	q, ok := part(r.Target, "queue-")
	args, ok2 := arguments(v)
	if !ok || !ok2 || q > 4095 {
		return ""
	}
	// -Q takes a mask in hexadecimal.
	mask := strconv.FormatUint(1<<(q%4), 16)
	for range q / 4 {
		mask += "0"
	}
	return "ethtool -Q " + r.Target.Device() + " queue_mask 0x" + mask + " --coalesce " + args
}

// spellProfiles turns the steps of a DIM profile into ethtool(8)'s word: rx-profile
// with usecs,frames,comps of each step, n where it stays, parted by "_".
func spellProfiles(v Value) Value {
	f, ok := v.fields()
	if !ok {
		return v
	}
	for _, prefix := range [...]string{"rx-profile", "tx-profile"} {
		var steps []string
		found := false
		for i := range 5 { // NET_DIM_PARAMS_NUM_PROFILES of linux/dim.h
			var words []string
			for _, what := range [...]string{"usecs", "frames", "comps"} {
				k := fmt.Sprintf("%s-%d-%s", prefix, i, what)
				if n, ok := f[k]; ok {
					words, found = append(words, fmt.Sprint(n)), true
					delete(f, k)
				} else {
					words = append(words, "n")
				}
			}
			steps = append(steps, strings.Join(words, ","))
		}
		if found {
			f[prefix] = strings.Join(steps, "_")
		}
	}
	return Fields(f)
}

func meaningCoalesce(_ Ref, no syscall.Errno) string {
	switch no {
	case syscall.EOPNOTSUPP:
		return "the driver does not take this moderation attribute: permanent"
	case syscall.EINVAL, syscall.ERANGE:
		return "out of the driver's range, or in conflict with adaptive moderation"
	}
	return ""
}

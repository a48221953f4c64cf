package nic

import (
	"context"
	"fmt"
	"slices"
)

// Live answers questions about the map by reading it anew each time: after a
// channel change an older map names interrupts of others.
type Live struct{ Sources }

// Vectors lists the interrupts of a device, queues' and control vectors, ascending
// (knob.Vectors). A device that does not exist is an error; one without interrupts is not.
func (l Live) Vectors(device string) ([]int, error) {
	all, err := Inventory(context.Background(), l.Sources)
	if err != nil {
		return nil, err
	}
	i := slices.IndexFunc(all, func(n NIC) bool { return n.Name == device })
	if i < 0 {
		return nil, fmt.Errorf("find vectors: no device %q", device)
	}
	out := vectors(all[i])
	for _, c := range all[i].Control {
		out = append(out, c.IRQ)
	}
	slices.Sort(out)
	return slices.Compact(out), nil
}

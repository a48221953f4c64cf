package main

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/rxsteer/rxsteer/internal/host/nic"
	"github.com/rxsteer/rxsteer/internal/host/reach"
	"github.com/rxsteer/rxsteer/steer/plan"
)

// warn names the interfaces of a plan by which the operator is connected or the host reaches the rest of
// the world, before anything is written.
func (e *env) warn(pl *plan.Plan) {
	risky := slices.ContainsFunc(pl.Changes, func(c plan.Change) bool { return c.Risk == plan.Pause || c.Risk == plan.Flap })
	var devices []string
	why := map[string][]string{}
	for _, l := range (reach.Host{FS: e.fs}).Lifelines(e.getenv("SSH_CONNECTION")) {
		if slices.ContainsFunc(pl.Changes, func(c plan.Change) bool { return c.Target.Device() == l.Device }) {
			if !slices.Contains(devices, l.Device) {
				devices = append(devices, l.Device)
			}
			why[l.Device] = append(why[l.Device], l.Why)
		}
	}
	for _, d := range devices {
		text := fmt.Sprintf("%s carries %s", d, strings.Join(why[d], " and "))
		if risky {
			text += ", and a change of this plan may take it down for a moment: --confirm-within undoes by itself what cuts you off"
		}
		wrap(e.stderr, e.textWidth(), "! ", "  ", text)
	}
}

// queueVectors reads anew which queue each vector of a device serves.
func (h *hostRooms) queueVectors(ctx context.Context, device string) (map[int]string, error) {
	nics, err := h.inventory(ctx)
	if err != nil {
		return nil, err
	}
	out := map[int]string{}
	for _, n := range nics {
		if n.Name != device {
			continue
		}
		for _, q := range n.Queues {
			if q.IRQ == nic.None {
				continue
			}
			name := ""
			if q.RX != nic.None {
				name = fmt.Sprintf("rx-%d", q.RX)
			}
			if q.TX != nic.None {
				name = strings.TrimSpace(fmt.Sprintf("%s tx-%d", name, q.TX))
			}
			out[q.IRQ] = strings.TrimSpace(out[q.IRQ] + " " + name)
		}
	}
	return out, nil
}

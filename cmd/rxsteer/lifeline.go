package main

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/rxsteer/rxsteer/internal/host/knob"
	"github.com/rxsteer/rxsteer/internal/host/nic"
	"github.com/rxsteer/rxsteer/internal/host/reach"
	"github.com/rxsteer/rxsteer/steer/plan"
)

// warn names, before anything is written, the interfaces of a plan by which the operator is connected or
// the host reaches the rest of the world, and who else writes its settings.
func (e *env) warn(ctx context.Context, h *hostRooms, pl *plan.Plan) {
	others, err := h.othersNow(ctx)
	if err != nil {
		fmt.Fprintf(e.stderr, "rxsteer: who else writes settings here is not known: %v\n", err)
	}
	for _, o := range others {
		if slices.ContainsFunc(pl.Changes, func(c plan.Change) bool {
			return slices.Contains(o.Knobs, c.Knob) && (o.Device == "" || o.Device == c.Target.Device())
		}) {
			wrap(e.stderr, e.textWidth(), "! ", "  ", ownerText(o))
		}
	}
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

// ownerText names another owner and the lines that settle it.
func ownerText(o knob.Owner) string {
	kinds := make([]string, len(o.Knobs))
	for i, k := range o.Knobs {
		kinds[i] = string(k)
	}
	text := fmt.Sprintf("%s also writes %s", o.Name, strings.Join(kinds, ", "))
	if o.Detail != "" {
		text += " (" + o.Detail + ")"
	}
	text += " and may take it back: then it is left to it"
	if len(o.Settle) > 0 {
		text += ". To settle it: " + strings.Join(o.Settle, "; ")
	}
	return text
}

// othersNow is who else writes settings here.
func (h *hostRooms) othersNow(ctx context.Context) ([]knob.Owner, error) {
	nics, err := h.inventory(ctx)
	if err != nil {
		return nil, err
	}
	return h.owners(ctx, nics)
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
		for i, c := range n.Control {
			out[c.IRQ] = fmt.Sprintf("control-%d", i)
		}
	}
	return out, nil
}

package main

import (
	"context"
	"slices"

	"github.com/rxsteer/rxsteer/collector"
	"github.com/rxsteer/rxsteer/internal/host/nic"
	"github.com/rxsteer/rxsteer/internal/sockdiag"
)

// watched is how the devices whose packets are looked at spread them, as it is set now: those with
// hardware, and those named.
func (h *hostRooms) watched(named []string) []collector.RSS {
	var names []string
	for _, n := range h.nics {
		if n.Up && n.Kind == nic.Physical && len(named) == 0 || slices.Contains(named, n.Name) {
			names = append(names, n.Name)
		}
	}
	if len(names) == 0 {
		return nil
	}
	s, err := h.machine.Spreading(context.Background(), names...)
	if err != nil {
		return nil // one went away: the next interval is without it
	}
	var out []collector.RSS
	for _, n := range names {
		if r, ok := collector.RSSOf(s, n); ok {
			out = append(out, r)
		}
	}
	return out
}

// lookAtPackets makes a sampler of level 2 count the buckets and flows of devices.
func lookAtPackets(c *collector.Config, h *hostRooms) {
	if c.Level >= 2 {
		c.RSS = func() []collector.RSS { return h.watched(h.named) }
		c.Sockets = sockdiag.Sockets
		c.SocketsIn = func(netns string, limit int) (all []sockdiag.Socket, err error) {
			err = sockdiag.In(netns, func() error { all, err = sockdiag.Sockets(limit); return err })
			return all, err
		}
	}
}

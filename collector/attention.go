package collector

import (
	"errors"
	"slices"
	"time"
)

// calm is how long nothing must have been worth a closer look before level 2 is left again: attaching is dearer than staying.
const calm = time.Minute

// startDetail begins level 2: stages of packets, buckets and flows. last is the sample before, nil none.
func (s *Sampler) startDetail(last *Sample) {
	s.startSpread(last)
	s.startPackets()
	s.followPackets()
}

// attend climbs to level 2 and leaves it, as Config.Worth asks for. What it costs comes out of the same budget.
func (s *Sampler) attend(sample *Sample) {
	if s.cfg.Worth == nil || s.cfg.Level < 2 || s.programs == nil {
		return
	}
	why := s.cfg.Worth(sample)
	switch {
	case why != "":
		s.closer = s.prev.At.Add(calm)
		if s.why != "" {
			return
		}
		s.why, s.coarse = why, slices.Clone(s.missing)
		s.ahead = s.loadAhead()
		s.startDetail(sample)
		s.ahead.end()
		if s.spread.programs != nil {
			s.spread.gated = true // the next sample began before
		}
		s.prev.packets = s.packets.read()
	case s.why != "" && s.prev.At.After(s.closer):
		err := errors.Join(s.packets.close(), s.spread.close())
		s.why, s.missing, s.packets, s.prev.packets = "", s.coarse, packetSource{}, nil
		if err != nil { // what cannot be detached must not be forgotten
			s.giveUp(err)
			return
		}
	default:
		return
	}
	if s.budget != nil {
		s.budget.share = s.pollShare()
	}
}

// pollShare is the share of each CPU's time that is left to the programs of level 1, 0: unlimited.
func (s *Sampler) pollShare() float64 {
	return max(0, s.cfg.Overhead-s.packets.share)
}

package collector

import (
	"cmp"
	"slices"
)

type stageKey struct {
	stage          StageName
	netns          uint64
	ifindex, queue int
	cpu, from      int
}

func (s *Stage) key() stageKey {
	return stageKey{s.Stage, s.Netns, s.IfIndex, s.RXQueue, s.CPU, s.FromCPU}
}

func (s *Stage) add(o *Stage) {
	s.Stage, s.Netns, s.IfIndex, s.Device = o.Stage, o.Netns, o.IfIndex, o.Device
	s.RXQueue, s.CPU, s.FromCPU = o.RXQueue, o.CPU, o.FromCPU
	s.Count += o.Count
	s.Sum += o.Sum
	s.Hist.Add(&o.Hist)
}

func compareStages(a, b Stage) int {
	return cmp.Or(cmp.Compare(slices.Index(StageNames, a.Stage), slices.Index(StageNames, b.Stage)),
		cmp.Compare(a.Netns, b.Netns), cmp.Compare(a.IfIndex, b.IfIndex), cmp.Compare(a.RXQueue, b.RXQueue),
		cmp.Compare(a.CPU, b.CPU), cmp.Compare(a.FromCPU, b.FromCPU))
}

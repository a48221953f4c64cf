package collector

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rxsteer/rxsteer/bpf"
)

// readings is two looks at programs of level 2; the later counters are for the test to fill.
func readings() (prev, cur *Reading) {
	prev = &Reading{BPF: &bpf.Counters{}, packets: &bpf.PacketCounters{CPUs: make([]bpf.PacketCPU, 1)}, Netns: 1}
	cur = &Reading{BPF: &bpf.Counters{}, packets: &bpf.PacketCounters{CPUs: make([]bpf.PacketCPU, 1)}, Netns: 1,
		Devices: []Device{{Name: "eth0", IfIndex: 2}}}
	return prev, cur
}

func TestStagesAreDifferences(t *testing.T) {
	prev, cur := readings()
	hop := bpf.StageKey{Netns: 1, Ifindex: 2, Queue: 4, Stage: bpf.ToStack, Cpu: 1}
	here := bpf.StageKey{Netns: 1, Ifindex: 2, Queue: 4, Stage: bpf.ToStack, Cpu: 1, From: 1}
	forgotten := bpf.StageKey{Netns: 9, Ifindex: 2, Stage: bpf.InAll, Cpu: 1, From: 1}
	stat := func(n uint64) bpf.StageStat {
		s := bpf.StageStat{Count: n, Sum: 1000 * n}
		s.Hist[10] = n
		return s
	}
	prev.packets.StageKeys, prev.packets.Stages = []bpf.StageKey{hop, forgotten}, []bpf.StageStat{stat(5), stat(50)}
	cur.packets.StageKeys, cur.packets.Stages = []bpf.StageKey{forgotten, here, hop}, []bpf.StageStat{stat(3), stat(2), stat(12)}
	cur.packets.CPUs[0] = bpf.PacketCPU{Overwritten: 4, Lost: 1}
	raised := bpf.XDPKey{Netns: 1, Ifindex: 2, Outcome: bpf.XDPRaised, Cpu: 3}
	prev.packets.XDPKeys, prev.packets.XDPs = []bpf.XDPKey{raised}, []uint64{5}
	cur.packets.XDPKeys, cur.packets.XDPs = []bpf.XDPKey{raised}, []uint64{9}
	full, later := bpf.DropKey{Reason: 6, Received: 1, Cpu: 3}, bpf.DropKey{Reason: 1 << 16, Cpu: 2}
	prev.packets.DropKeys, prev.packets.Drops = []bpf.DropKey{full}, []uint64{5}
	cur.packets.DropKeys, cur.packets.Drops = []bpf.DropKey{later, full}, []uint64{2, 9}
	cur.packets.Reasons = map[uint32]string{6: "SOCKET_RCVBUFF"}
	s := Between(prev, cur, nil)
	if diff := cmp.Diff([]XDP{{Netns: 1, IfIndex: 2, Device: "eth0", Outcome: XDPRaised, CPU: 3, Packets: 4}}, s.XDP); diff != "" {
		t.Errorf("XDP -want +got:\n%s", diff)
	}
	wantDrops := []Drop{{Reason: "SOCKET_RCVBUFF", Received: true, CPU: 3, Packets: 4}, {Reason: "65536", CPU: 2, Packets: 2}}
	if diff := cmp.Diff(wantDrops, s.Drops); diff != "" {
		t.Errorf("drops -want +got:\n%s", diff)
	}
	want := []Stage{
		{Stage: GROToStack, Netns: 1, IfIndex: 2, Device: "eth0", RXQueue: 3, CPU: 1, FromCPU: 1, Count: 2, Sum: 2000},
		{Stage: GROToStackRPS, Netns: 1, IfIndex: 2, Device: "eth0", RXQueue: 3, CPU: 1, FromCPU: 0, Count: 7, Sum: 7000},
		{Stage: Total, Netns: 9, IfIndex: 2, Device: Foreign, RXQueue: -1, CPU: 1, FromCPU: 1, Count: 3, Sum: 3000},
	}
	for i, n := range []uint64{2, 7, 3} {
		want[i].Hist[10] = n
	}
	if diff := cmp.Diff(want, s.Stages); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if diff := cmp.Diff(map[string]uint64{LostOverwritten: 4, LostStages: 1}, s.Lost); diff != "" || s.Level != 2 {
		t.Errorf("level %d, lost -want +got:\n%s", s.Level, diff)
	}
	if m := Merge(s, s); len(m.Stages) != 3 || m.Stages[1].Count != 14 || m.Stages[1].Hist[10] != 14 || m.XDP[0].Packets != 8 || m.Drops[0].Packets != 8 {
		t.Errorf("merged %+v", m.Stages)
	}
}

func TestLinksAreBelievedOnlyByAMajority(t *testing.T) {
	prev, cur := readings()
	vote := func(napi, cpu, irq, votes, against uint32) {
		cur.BPF.NAPIKeys = append(cur.BPF.NAPIKeys, bpf.NAPIKey{Napi: uint64(napi), Netns: 1, Ifindex: 2, NapiId: napi, Cpu: cpu})
		cur.BPF.NAPIs = append(cur.BPF.NAPIs, bpf.NAPIStat{Polls: 1, Packets: 30, Irq: irq, IrqVotes: votes, IrqAgainst: against})
	}
	carry := func(napi, queue uint32, n uint64) {
		cur.packets.StageKeys = append(cur.packets.StageKeys, bpf.StageKey{Netns: 1, Ifindex: 2, NapiId: napi, Queue: queue + 1, Stage: bpf.ToStack})
		cur.packets.Stages = append(cur.packets.Stages, bpf.StageStat{Count: n})
	}
	vote(900, 0, 40, 100, 2)
	vote(900, 1, 40, 30, 0) // moved to another CPU
	carry(900, 0, 500)
	vote(901, 0, 41, 60, 40) // as often with another
	carry(901, 1, 20)
	vote(902, 0, 42, 7, 0) // too few
	vote(903, 0, 43, 50, 0)
	vote(903, 1, 44, 40, 0) // CPUs disagree
	vote(904, 0, 45, 90, 0)
	carry(904, 4, 10)
	carry(904, 5, 10) // the driver numbers something else
	key := bpf.IRQKey{Irq: 40}
	before, now := bpf.IRQStat{Count: 10}, bpf.IRQStat{Count: 20}
	before.Gaps[5], now.Gaps[5] = 1<<32-3, 4 // wrapped
	prev.BPF.IRQKeys, prev.BPF.IRQs = []bpf.IRQKey{key}, []bpf.IRQStat{before}
	cur.BPF.IRQKeys, cur.BPF.IRQs = []bpf.IRQKey{key}, []bpf.IRQStat{now}
	s := Between(prev, cur, nil)
	want := []Link{
		{Netns: 1, IfIndex: 2, NAPI: 900, RXQueue: 0, IRQ: 40},
		{Netns: 1, IfIndex: 2, NAPI: 901, RXQueue: 1, IRQ: -1},
		{Netns: 1, IfIndex: 2, NAPI: 904, RXQueue: -1, IRQ: 45},
	}
	if diff := cmp.Diff(want, s.Learned); diff != "" {
		t.Errorf("links -want +got:\n%s", diff)
	}
	pace := Pacing{IRQ: 40, Packets: 60}
	pace.Hist[5] = 7
	if diff := cmp.Diff([]Pacing{pace}, s.Pacing); diff != "" {
		t.Errorf("pacing -want +got:\n%s", diff)
	}
}

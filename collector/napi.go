package collector

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/rxsteer/rxsteer/bpf"
)

// napis lists the {NAPI, CPU} pairs that polled.
func (d *difference) napis() {
	names := d.names()
	var untimed uint64
	d.s.NAPIs = make([]NAPI, 0, len(d.cur.BPF.NAPIKeys))
	was := d.before()
	for _, i := range d.order() {
		k := d.cur.BPF.NAPIKeys[i]
		now, before := &d.cur.BPF.NAPIs[i], was(int(i))
		if before == nil || now.Polls < before.Polls || now.BusyPolls < before.BusyPolls || now.ThreadPolls < before.ThreadPolls {
			before = &bpf.NAPIStat{} // polled for the first time, at least since it was forgotten
		}
		if now.Polls == before.Polls && now.BusyPolls == before.BusyPolls && now.ThreadPolls == before.ThreadPolls {
			continue
		}
		n := NAPI{
			Netns: uint64(k.Netns), IfIndex: int(k.Ifindex), ID: k.NapiId, Pointer: k.Napi, CPU: int(k.Cpu),
			RXQueue:    -1,
			Polls:      now.Polls - before.Polls,
			Packets:    now.Packets - before.Packets,
			Time:       now.Time - before.Time,
			FullBudget: now.FullBudget - before.FullBudget,
			Empty:      now.Empty - before.Empty,
			BusyPolls:  now.BusyPolls - before.BusyPolls,

			Thread: int(now.Thread), ThreadPolls: now.ThreadPolls - before.ThreadPolls, ThreadTime: now.ThreadTime - before.ThreadTime,
		}
		for b := range now.TimeHist {
			n.TimeHist[b] = now.TimeHist[b] - before.TimeHist[b]
		}
		for b := range now.WorkHist {
			n.WorkHist[b] = now.WorkHist[b] - before.WorkHist[b]
		}
		n.Device, n.SeenAs = d.deviceOf(k, now, names)
		if d.rxQueue != nil && n.IfIndex != 0 {
			n.RXQueue = d.rxQueue(n.Netns, n.IfIndex, n.ID)
		}
		untimed += n.BusyPolls
		d.s.NAPIs = append(d.s.NAPIs, n)
	}
	if untimed > 0 {
		d.note("time of polls outside NET_RX", fmt.Sprintf("%d polls ran in process context (busy polling, threaded NAPI or netpoll): counted, not timed", untimed))
	}
}

// order is that which a Sample promises, as indices of the reading's pairs: entries are too big to be sorted themselves. A map
// that stays as it is is read in the same order again.
func (d *difference) order() []int32 {
	keys := d.cur.BPF.NAPIKeys
	if len(d.prev.napis) == len(keys) && slices.Equal(d.prev.BPF.NAPIKeys, keys) {
		d.cur.napis = d.prev.napis
		return d.cur.napis
	}
	order := make([]int32, len(keys))
	for i := range order {
		order[i] = int32(i)
	}
	slices.SortFunc(order, func(i, j int32) int {
		a, b := &keys[i], &keys[j]
		return cmp.Or(cmp.Compare(a.Netns, b.Netns), cmp.Compare(a.Ifindex, b.Ifindex), cmp.Compare(a.NapiId, b.NapiId),
			cmp.Compare(a.Napi, b.Napi), cmp.Compare(a.Cpu, b.Cpu))
	})
	d.cur.napis = order
	return order
}

// before returns what finds the i-th pair of this reading in the one before, nil where that does not have it.
func (d *difference) before() func(i int) *bpf.NAPIStat {
	now, was := d.cur.BPF, d.prev.BPF
	var elsewhere map[bpf.NAPIKey]*bpf.NAPIStat // made when one is not at the same place
	return func(i int) *bpf.NAPIStat {
		k := now.NAPIKeys[i]
		if i < len(was.NAPIKeys) && was.NAPIKeys[i] == k {
			return &was.NAPIs[i]
		}
		if elsewhere == nil {
			elsewhere = make(map[bpf.NAPIKey]*bpf.NAPIStat, len(was.NAPIKeys))
			for j, k := range was.NAPIKeys {
				elsewhere[k] = &was.NAPIs[j]
			}
		}
		return elsewhere[k]
	}
}

// deviceOf names the device of a NAPI. The name BPF saw may be old, so it is
// used only where no better is to be had.
func (d *difference) deviceOf(k bpf.NAPIKey, s *bpf.NAPIStat, names map[uint32]string) (device, seenAs string) {
	switch {
	case k.Ifindex == 0:
		return Backlog, ""
	case d.cur.Netns != 0 && uint64(k.Netns) != d.cur.Netns:
		return Foreign, s.Device()
	}
	if name, ok := names[k.Ifindex]; ok {
		return name, ""
	}
	return s.Device(), ""
}

// Causes of Sample.Lost.
const (
	LostPolls      = "polls: NAPI map full"
	LostPollTime   = "poll ns: NAPI map full"
	LostInterrupts = "interrupts: IRQ map full"
)

// lost adds up what the BPF programs had no room for.
func (d *difference) lost() {
	for id := range d.cur.BPF.CPUs {
		if id >= len(d.prev.BPF.CPUs) {
			break
		}
		was, now := &d.prev.BPF.CPUs[id], &d.cur.BPF.CPUs[id]
		for _, l := range []struct {
			cause string
			n     uint64
		}{
			{LostPolls, now.LostPolls - was.LostPolls},
			{LostPollTime, now.LostPollTime - was.LostPollTime},
			{LostInterrupts, now.LostIrqs - was.LostIrqs},
			{LostRuns, now.LostRuns - was.LostRuns},
		} {
			d.lose(l.cause, l.n)
		}
	}
}

// stale remembers when each {NAPI, CPU} pair last polled, so that the BPF map
// does not fill with those of devices that are gone.
type stale map[bpf.NAPIKey]poll

type poll struct {
	polls uint64
	at    time.Time
}

// Pairs are forgotten when idle for long, sooner while the map is rather full.
// A pair that polls again starts from 0, so nothing is lost by it.
const (
	idleLong  = 5 * time.Minute
	idleShort = 10 * time.Second
)

// forget returns the pairs of c that may be deleted from a map of that size.
func (s stale) forget(c *bpf.Counters, now time.Time, size int) []bpf.NAPIKey {
	limit := idleLong
	if len(c.NAPIKeys)*4 >= size*3 {
		limit = idleShort
	}
	var idle []bpf.NAPIKey
	for i, k := range c.NAPIKeys {
		n := c.NAPIs[i].Polls + c.NAPIs[i].BusyPolls + c.NAPIs[i].ThreadPolls
		last, ok := s[k]
		switch {
		case !ok || last.polls != n:
			s[k] = poll{n, now}
		case now.Sub(last.at) >= limit:
			idle = append(idle, k)
			delete(s, k)
		}
	}
	return idle
}

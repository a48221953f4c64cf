package collector

import (
	"cmp"
	"encoding/binary"
	"math"
	"net/netip"
	"slices"
	"time"

	"github.com/rxsteer/rxsteer/bpf"
	"github.com/rxsteer/rxsteer/internal/capture"
)

// flowsOfQueue is how many flows of a queue a Sample names.
const flowsOfQueue = 10

// LostFlows and ForgottenFlows are causes of Sample.Lost.
const (
	LostFlows      = "flow samples: map full"
	ForgottenFlows = "flow samples: more flows than are remembered"
)

// flowID is a flow of a queue, whatever CPU polled it.
type flowID struct {
	netns          uint64
	ifindex, queue int
	protocol       uint8
	src, dst       netip.AddrPort
}

// flowCount is what was sampled of one.
type flowCount struct {
	flowID
	packets, bytes uint64
	cpu            int    // that polled most of it
	onCPU          uint64 // so much
	bucket         int
}

// takeFlows adds up the flows that moved since the last take.
func (w *spreadSource) takeFlows(cur *bpf.SpreadCounters, out *spreadWindow) {
	seen := map[flowID]*flowCount{}
	next := make(map[bpf.FlowKey]bpf.Flow, len(cur.FlowKeys))
	for i, k := range cur.FlowKeys {
		f := cur.Flows[i]
		next[k] = f
		n, size := f.Packets, f.Bytes
		if was, ok := w.flows[k]; ok && was.Born == f.Born && was.Packets <= n {
			n, size = n-was.Packets, size-was.Bytes
		}
		if n == 0 {
			continue
		}
		w.found += n
		id := flowID{uint64(k.Netns), int(k.Ifindex), int(k.Queue) - 1, k.Protocol, endpoint(k.Family, k.Src, k.Sport), endpoint(k.Family, k.Dst, k.Dport)}
		c := seen[id]
		if c == nil {
			c = &flowCount{flowID: id, bucket: -1}
			seen[id] = c
		}
		c.packets += n
		c.bytes += size
		if n > c.onCPU {
			c.cpu, c.onCPU = int(k.Cpu), n
		}
		if f.Bucket != bpf.NoBucket {
			c.bucket = int(f.Bucket)
		}
	}
	w.flows = next
	w.sampled += cur.Sampled - w.prev.Sampled
	out.lost = cur.Lost - w.prev.Lost
	// Between the reading of one CPU's number and of the flows a few more may have come: they are not missing.
	if missing := w.sampled - min(w.sampled, w.found+out.lost); missing > w.forgotten {
		out.forgotten = missing - w.forgotten
		w.forgotten = missing
	}
	for _, c := range seen {
		out.flows = append(out.flows, *c)
	}
}

// endpoint reads an address and a port as they are in a packet.
func endpoint(family uint8, words [4]uint32, port uint16) netip.AddrPort {
	var b [16]byte
	for i, w := range words {
		binary.NativeEndian.PutUint32(b[4*i:], w)
	}
	var p [2]byte
	binary.NativeEndian.PutUint16(p[:], port)
	addr := netip.AddrFrom16(b)
	if family == 4 {
		addr = netip.AddrFrom4([4]byte(b[:4]))
	}
	return netip.AddrPortFrom(addr, binary.BigEndian.Uint16(p[:]))
}

// top names the biggest flows of each queue. A packet of the interval was sampled with probability
// 1/rate while the window was open.
func (w *spreadWindow) top(interval time.Duration, device func(netns uint64, ifindex int) string) []Flow {
	type queue struct {
		netns          uint64
		ifindex, queue int
	}
	sampled := map[queue]uint64{}
	for i := range w.flows {
		f := &w.flows[i]
		sampled[queue{f.netns, f.ifindex, f.queue}] += f.packets
	}
	scale := 1.0
	if w.window > 0 && w.window < interval {
		scale = float64(interval) / float64(w.window)
	}
	out := []Flow{}
	for i := range w.flows {
		f := &w.flows[i]
		each := float64(w.rate) * scale
		out = append(out, Flow{
			Netns: f.netns, IfIndex: f.ifindex, Device: device(f.netns, f.ifindex), RXQueue: f.queue, CPU: f.cpu,
			Protocol: capture.ProtocolName(f.protocol), Source: f.src, Destination: f.dst, Bucket: f.bucket,
			Packets: uint64(math.Round(float64(f.packets) * each)), Bytes: uint64(math.Round(float64(f.bytes) * each)),
			Error: uint64(math.Ceil(halfWidth(f.packets, w.rate) * each)),
			Share: float64(f.packets) / float64(sampled[queue{f.netns, f.ifindex, f.queue}]), ConsumerCPU: -1,
		})
	}
	return topOfQueues(out)
}

// halfWidth is that of the 95 % interval around k samples of a binomial number whose each packet was
// sampled with probability 1/rate, by the normal approximation with a variance of at least one sample.
func halfWidth(k uint64, rate int) float64 {
	return 1.96 * math.Sqrt(float64(max(k, 1))*(1-1/float64(max(rate, 1))))
}

// topOfQueues keeps the biggest flows of each queue, in the order a Sample promises.
func topOfQueues(all []Flow) []Flow {
	slices.SortFunc(all, func(a, b Flow) int {
		return cmp.Or(cmp.Compare(a.Netns, b.Netns), cmp.Compare(a.IfIndex, b.IfIndex), cmp.Compare(a.RXQueue, b.RXQueue),
			cmp.Compare(b.Packets, a.Packets), cmp.Compare(a.Protocol, b.Protocol), a.Source.Compare(b.Source), a.Destination.Compare(b.Destination))
	})
	kept, of := 0, 0
	for i, f := range all {
		if i > 0 && (f.Netns != all[i-1].Netns || f.IfIndex != all[i-1].IfIndex || f.RXQueue != all[i-1].RXQueue) {
			of = 0
		}
		if of++; of <= flowsOfQueue {
			all[kept] = f
			kept++
		}
	}
	return slices.Clip(all[:kept])
}

type flowKey struct {
	netns          uint64
	ifindex, queue int
	protocol       string
	src, dst       netip.AddrPort
}

// mergeFlows adds up the flows of samples. One that was not among the biggest of a sample counts
// there as 0, so that what is left out is at most that sample's smallest named flow.
func mergeFlows(samples []*Sample) []Flow {
	type queue struct {
		netns          uint64
		ifindex, queue int
	}
	var any bool
	sums := map[flowKey]*Flow{}
	most := map[flowKey]uint64{} // packets of the sample the CPU is from
	total := map[queue]float64{}
	var all, watched time.Duration
	for _, s := range samples {
		all += s.Interval
		if s.Flows != nil {
			any = true
			watched += s.Interval
		}
		counted := map[queue]bool{}
		for i := range s.Flows {
			f := &s.Flows[i]
			q := queue{f.Netns, f.IfIndex, f.RXQueue}
			if !counted[q] && f.Share > 0 {
				counted[q] = true
				total[q] += float64(f.Packets) / f.Share
			}
			k := flowKey{f.Netns, f.IfIndex, f.RXQueue, f.Protocol, f.Source, f.Destination}
			sum := sums[k]
			if sum == nil {
				c := *f
				sums[k], most[k] = &c, f.Packets
				continue
			}
			sum.Packets += f.Packets
			sum.Bytes += f.Bytes
			sum.Error = uint64(math.Ceil(math.Hypot(float64(sum.Error), float64(f.Error)))) // independent
			sum.Device = f.Device
			if f.Packets > most[k] {
				sum.CPU, most[k] = f.CPU, f.Packets
			}
			if f.Bucket >= 0 {
				sum.Bucket = f.Bucket
			}
			if f.PID != 0 {
				sum.PID, sum.Process, sum.ConsumerCPU = f.PID, f.Process, f.ConsumerCPU
			}
		}
	}
	if !any {
		return nil
	}
	scale := 1.0
	if watched > 0 && watched < all { // between windows nothing was watched
		scale = float64(all) / float64(watched)
	}
	out := make([]Flow, 0, len(sums))
	for _, f := range sums {
		if t := total[queue{f.Netns, f.IfIndex, f.RXQueue}]; t > 0 {
			f.Share = float64(f.Packets) / t
		}
		f.Packets, f.Bytes = uint64(math.Round(float64(f.Packets)*scale)), uint64(math.Round(float64(f.Bytes)*scale))
		f.Error = uint64(math.Ceil(float64(f.Error) * scale))
		out = append(out, *f)
	}
	return topOfQueues(out)
}

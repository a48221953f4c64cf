package paste

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	"github.com/rxsteer/rxsteer/internal/ethtool"
	"github.com/rxsteer/rxsteer/internal/host/nic"
)

// maxStats bounds `ethtool -S`: mlx5 on 256 CPUs prints 19338 lines.
const maxStats = 1 << 18

// Stats is `ethtool -S`: names as printed, except that vmxnet3's counters, which repeat for
// each queue under a "Rx Queue#: 3" line, are called "Rx Queue#3 pkts rx OOB".
type Stats struct {
	Counters []ethtool.Stat
	Refused  *Refusal
}

// Get returns a counter; ok is false when there is none of that name.
func (s *Stats) Get(name string) (n uint64, ok bool) {
	for _, c := range s.Counters {
		if c.Name == name {
			return c.Value, true
		}
	}
	return 0, false
}

// ParseStats reads `ethtool -S`, with or without its heading and indent.
func ParseStats(file string, text []byte) (*Stats, []error) {
	s := &Stats{}
	l := newLines(file, text)
	queue := ""
	for {
		line, ok := l.next()
		if !ok {
			break
		}
		line = strings.TrimSpace(line)
		if line == "" || line == "NIC statistics:" {
			continue
		}
		if no := refusal(line); no != nil {
			s.Refused = no
			continue
		}
		// The name may hold colons ("[0]: rx_bytes: 7", "rxq0: rx_pkts: 7").
		i := strings.LastIndexByte(line, ':')
		if i <= 0 || i > 256 {
			l.errorf("not a counter: %s", clip(line))
			continue
		}
		name, value := strings.TrimSpace(line[:i]), strings.TrimSpace(line[i+1:])
		if name == "Rx Queue#" || name == "Tx Queue#" {
			queue = name + value + " "
			continue
		}
		n, err := strconv.ParseUint(value, 10, 64)
		if err != nil {
			l.errorf("%s is %s", clip(name), clip(value))
			continue
		}
		if len(s.Counters) == maxStats {
			l.errorf("more than %d counters", maxStats)
			break
		}
		if queue != "" && !perQueueVMXNET3(name) {
			queue = ""
		}
		s.Counters = append(s.Counters, ethtool.Stat{Name: queue + name, Value: n})
	}
	if s.Refused == nil && len(s.Counters) == 0 {
		l.errorf("no counters")
	}
	return s, l.errs
}

// perQueueVMXNET3 reports whether a counter can be one of a queue's
// (vmxnet3_tq_dev_stats and kin in drivers/net/vmxnet3/vmxnet3_ethtool.c).
func perQueueVMXNET3(name string) bool {
	for _, w := range []string{"pkts tx", "bytes tx", "pkts rx", "bytes rx", "TSO", "LRO", "drv dropped", "too many frags", "giant hdr", "hdr err", "tso", "ring full", "pkts linearized", "hdr cloned", "err", "fcs", "rx buf alloc fail", "xdp", "XDP"} {
		if strings.Contains(name, w) {
			return true
		}
	}
	return false
}

// QueueStat is one queue's counters, summed over what the driver prints.
type QueueStat struct {
	TX      bool
	Queue   int
	Packets uint64
	Bytes   uint64
	Drops   uint64 // lost by the queue or for want of its buffers
}

// Queues takes the per-queue counters out, receive queues first. Drivers without any give nil.
// Each spells them its own way:
//
//	rx_queue_3_packets          igb ixgbe ice virtio_net gve
//	rx-3.packets, rx-3.rx_packets   i40e iavf sfc
//	queue_3_rx_cnt              ena
//	rx3_packets, tx3_0_packets  mlx5 mlx4 mana
//	[3]: rx_ucast_packets       bnxt_en bnx2x: sum of ucast, mcast and bcast
//	rxq3: rx_pkts               be2net
//	Rx Queue#3 ucast pkts rx    vmxnet3
func (s *Stats) Queues() []QueueStat {
	found := map[[2]int]*QueueStat{}
	for _, c := range s.Counters {
		tx, q, what, ok := nic.PerQueue(c.Name)
		if !ok {
			continue
		}
		key := [2]int{0, q}
		if tx {
			key[0] = 1
		}
		st := found[key]
		if st == nil {
			st = &QueueStat{TX: tx, Queue: q}
			found[key] = st
		}
		switch what {
		case nic.QueuePackets:
			st.Packets += c.Value
		case nic.QueueBytes:
			st.Bytes += c.Value
		case nic.QueueDrops:
			st.Drops += c.Value
		}
	}
	var out []QueueStat
	for _, st := range found {
		out = append(out, *st)
	}
	slices.SortFunc(out, func(a, b QueueStat) int {
		if a.TX != b.TX {
			if b.TX {
				return -1
			}
			return 1
		}
		return cmp.Compare(a.Queue, b.Queue)
	})
	return out
}

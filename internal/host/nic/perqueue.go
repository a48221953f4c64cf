package nic

import (
	"strconv"
	"strings"
)

// What a per-queue counter counts. A driver may count one thing in several (unicast, multicast, broadcast).
const (
	QueueOther = iota
	QueuePackets
	QueueBytes
	QueueDrops
)

// queueMeanings of the last part of the names, direction taken off.
var queueMeanings = map[string]int{
	"packets": QueuePackets, "pkts": QueuePackets, "cnt": QueuePackets,
	"ucast_packets": QueuePackets, "mcast_packets": QueuePackets, "bcast_packets": QueuePackets,
	"ucast pkts": QueuePackets, "mcast pkts": QueuePackets, "bcast pkts": QueuePackets,
	"bytes": QueueBytes, "ucast_bytes": QueueBytes, "mcast_bytes": QueueBytes, "bcast_bytes": QueueBytes,
	"ucast bytes": QueueBytes, "mcast bytes": QueueBytes, "bcast bytes": QueueBytes,
	"drops": QueueDrops, "drop": QueueDrops, "dropped": QueueDrops, "dropped_pkt": QueueDrops, "discards": QueueDrops,
	"hw_discards": QueueDrops, "alloc_failed": QueueDrops, "alloc_fail": QueueDrops, "page_alloc_fail": QueueDrops, "buff_alloc_err": QueueDrops,
	"refil_partial": QueueOther, "skb_alloc_discard": QueueDrops, "drops_no_skbs": QueueDrops, "drops_no_frags": QueueDrops,
	"pkts OOB": QueueDrops, "drv dropped total": QueueDrops,
}

// PerQueue takes the name of a per-queue counter apart: rx_queue_3_packets (igb ixgbe ice virtio_net gve), rx-3.packets
// (i40e iavf sfc), queue_3_rx_cnt (ena), rx3_packets (mlx5 mlx4 mana), [3]: rx_ucast_packets (bnxt_en bnx2x), rxq3: rx_pkts
// (be2net), Rx Queue#3 ucast pkts rx (vmxnet3).
func PerQueue(name string) (tx bool, queue, what int, ok bool) {
	if rest, found := strings.CutPrefix(name, "["); found { // [3]: rx_ucast_packets
		n, counter, _ := strings.Cut(rest, "]: ")
		return directed(n, counter)
	}
	if rest, found := strings.CutPrefix(name, "queue_"); found { // queue_3_rx_cnt
		n, counter, _ := strings.Cut(rest, "_")
		return directed(n, counter)
	}
	if dir, rest, found := strings.Cut(name, " Queue#"); found { // Rx Queue#3 ucast pkts rx
		n, counter, _ := strings.Cut(rest, " ")
		queue, ok = QueueNumber(n)
		counter = strings.Replace(strings.Replace(counter, " rx", "", 1), " tx", "", 1)
		return dir == "Tx", queue, queueMeanings[counter], ok
	}
	dir, rest := "", name
	switch {
	case strings.HasPrefix(name, "rx"):
		dir, rest = "rx", name[2:]
	case strings.HasPrefix(name, "tx"):
		dir, rest = "tx", name[2:]
	default:
		return false, 0, 0, false
	}
	for _, p := range []string{"_queue_", "q", "-", ""} { // the longest first
		after, found := strings.CutPrefix(rest, p)
		end := digits(after)
		if !found || end == 0 || end == len(after) {
			continue
		}
		queue, ok = QueueNumber(after[:end])
		counter := after[end:]
		switch {
		case strings.HasPrefix(counter, ": "), strings.HasPrefix(counter, "."), strings.HasPrefix(counter, "_"), strings.HasPrefix(counter, "["):
			counter = strings.TrimLeft(counter, ":. _")
		default:
			continue
		}
		if dir == "tx" && p == "" && digits(counter) > 0 { // tx3_0_packets: queue 3 of traffic class 0
			if tc := digits(counter); strings.HasPrefix(counter[tc:], "_") {
				counter = counter[tc+1:]
			}
		}
		counter = strings.TrimPrefix(counter, dir+"_")
		return dir == "tx", queue, queueMeanings[counter], ok
	}
	return false, 0, 0, false
}

// directed reads a counter whose direction follows the queue number.
func directed(number, counter string) (tx bool, queue, what int, ok bool) {
	queue, ok = QueueNumber(number)
	dir, rest, found := strings.Cut(counter, "_")
	if !ok || !found || dir != "rx" && dir != "tx" {
		return false, 0, 0, false
	}
	return dir == "tx", queue, queueMeanings[rest], true
}

func digits(s string) int {
	n := 0
	for n < len(s) && s[n] >= '0' && s[n] <= '9' {
		n++
	}
	return n
}

// QueueNumber reads the number of a queue.
func QueueNumber(s string) (int, bool) {
	if s == "" || len(s) > 5 || digits(s) != len(s) {
		return 0, false
	}
	n, err := strconv.Atoi(s)
	return n, err == nil
}

package main

import (
	"regexp"
	"strconv"
	"strings"
)

// igb and virtio: "rx_queue_N_packets: V" (virtio from 6.9 on: "rxN_packets"). vmxnet3
// heads each queue's block "Rx Queue#: N" and counts unicast, multicast and broadcast
// packets in it ("  ucast pkts rx: V").
var (
	queueCounter = regexp.MustCompile(`^rx_?(?:queue_)?([0-9]+)_packets$`)
	vmxnet3Queue = regexp.MustCompile(`^Rx Queue#$`)
	vmxnet3Count = regexp.MustCompile(`^[umb]cast pkts rx$`)
)

// queuePackets reads packets per receive queue from `ethtool -S`, nil where it has none.
func queuePackets(text string) []float64 {
	var out []float64
	add := func(q int, v float64) {
		for len(out) <= q {
			out = append(out, 0)
		}
		out[q] += v
	}
	queue := -1
	for line := range strings.Lines(text) {
		name, value, ok := strings.Cut(line, ":")
		if !ok {
			continue
		}
		name, value = strings.TrimSpace(name), strings.TrimSpace(value)
		if m := queueCounter.FindStringSubmatch(name); m != nil {
			q, err := strconv.Atoi(m[1])
			if err == nil {
				add(q, number(value))
			}
			continue
		}
		switch {
		case vmxnet3Queue.MatchString(name):
			queue = int(number(value))
		case strings.HasPrefix(name, "Tx Queue#"):
			queue = -1
		case queue >= 0 && vmxnet3Count.MatchString(name):
			add(queue, number(value))
		}
	}
	return out
}

// netRX reads NET_RX of /proc/softirqs by CPU.
func netRX(text string) []float64 {
	var cpus []int
	for line := range strings.Lines(text) {
		f := strings.Fields(line)
		if cpus == nil {
			for _, c := range f {
				cpus = append(cpus, int(number(strings.TrimPrefix(c, "CPU"))))
			}
			continue
		}
		if len(f) > 0 && f[0] == "NET_RX:" {
			return byCPU(cpus, f[1:])
		}
	}
	return nil
}

func byCPU(cpus []int, values []string) []float64 {
	var out []float64
	for i, c := range cpus {
		for len(out) <= c {
			out = append(out, 0)
		}
		if i < len(values) {
			out[c] = number(values[i])
		}
	}
	return out
}

// softirqSeconds reads the softirq column of /proc/stat by CPU (USER_HZ is 100).
func softirqSeconds(text string) []float64 {
	var out []float64
	for line := range strings.Lines(text) {
		f := strings.Fields(line)
		if len(f) < 8 || !strings.HasPrefix(f[0], "cpu") || f[0] == "cpu" {
			continue
		}
		c := int(number(strings.TrimPrefix(f[0], "cpu")))
		for len(out) <= c {
			out = append(out, 0)
		}
		out[c] = number(f[7]) / 100
	}
	return out
}

// softnet reads processed by CPU, and dropped and squeezed of all, from softnet_stat. The
// 13th column names the CPU (5.10 and later); rows stand for online CPUs only.
func softnet(text string) (processed []float64, dropped, squeezed uint64) {
	row := 0
	for line := range strings.Lines(text) {
		f := strings.Fields(line)
		if len(f) < 9 {
			continue
		}
		hex := func(i int) uint64 {
			v, err := strconv.ParseUint(f[i], 16, 32)
			if err != nil {
				return 0
			}
			return v
		}
		cpu := row
		if len(f) >= 13 {
			cpu = int(hex(12))
		}
		for len(processed) <= cpu {
			processed = append(processed, 0)
		}
		processed[cpu] = float64(hex(0))
		dropped += hex(1)
		squeezed += hex(2)
		row++
	}
	return processed, dropped, squeezed
}

// udp reads InDatagrams, NoPorts and RcvbufErrors of /proc/net/snmp.
func udp(text string) (in, noPort, errors uint64) {
	var names []string
	for line := range strings.Lines(text) {
		f := strings.Fields(line)
		if len(f) == 0 || f[0] != "Udp:" {
			continue
		}
		if names == nil {
			names = f
			continue
		}
		for i, n := range names {
			if i >= len(f) {
				break
			}
			v := uint64(number(f[i]))
			switch n {
			case "InDatagrams":
				in = v
			case "NoPorts":
				noPort = v
			case "RcvbufErrors":
				errors = v
			}
		}
	}
	return in, noPort, errors
}

// interrupts reads the device's rows of /proc/interrupts: sums by CPU, and each vector.
func interrupts(text string, mine map[int]bool) ([]float64, map[int]Vector) {
	var cpus []int
	var by []float64
	vectors := map[int]Vector{}
	for line := range strings.Lines(text) {
		f := strings.Fields(line)
		if cpus == nil {
			for _, c := range f {
				cpus = append(cpus, int(number(strings.TrimPrefix(c, "CPU"))))
			}
			by = byCPU(cpus, nil)
			continue
		}
		if len(f) < len(cpus)+2 {
			continue
		}
		irq, err := strconv.Atoi(strings.TrimSuffix(f[0], ":"))
		if err != nil || !mine[irq] {
			continue
		}
		v := Vector{IRQ: irq, Name: f[len(f)-1]}
		for c, n := range byCPU(cpus, f[1:1+len(cpus)]) {
			by[c] += n
			v.Count += uint64(n)
		}
		vectors[irq] = v
	}
	return by, vectors
}

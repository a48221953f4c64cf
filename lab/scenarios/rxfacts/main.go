// Command rxfacts measures, in a lab guest, what is true: packets per receive queue,
// softirq time per CPU, interrupts per vector, drops, by the kernel's and the
// driver's own counters over an interval. It prints one JSON object (Facts).
//
// It shares no parser with rxsteer on purpose: scenarios hold rxsteer against it.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

func main() {
	dev := flag.String("dev", "eth0", "interface")
	interval := flag.Duration("for", 4*time.Second, "how long to measure")
	tuple := flag.String("collide", "", "print two source ports from `ADDR:PORT,ADDR:PORT` on whose flows share a bucket of the device, and end")
	flag.Parse()
	var err error
	if *tuple != "" {
		err = collide(*dev, *tuple)
	} else {
		var f *Facts
		if f, err = measure(*dev, *interval); err == nil {
			err = json.NewEncoder(os.Stdout).Encode(f)
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "rxfacts:", err)
		os.Exit(1)
	}
}

// Facts is what happened in the interval.
type Facts struct {
	IntervalS float64  `json:"interval_s"`
	RX        Split    `json:"rx"`        // packets by receive queue, the driver's counters
	NetRX     Split    `json:"net_rx"`    // NET_RX softirqs by CPU, /proc/softirqs
	Softirq   Split    `json:"softirq"`   // seconds in softirq by CPU, /proc/stat
	Processed Split    `json:"processed"` // packets through the stack by CPU, softnet_stat (RPS: where they arrive twice)
	IRQs      Split    `json:"irqs"`      // interrupts of the device by CPU
	Vectors   []Vector `json:"vectors"`
	Dropped   uint64   `json:"backlog_drops"` // softnet_stat column 2
	Squeezed  uint64   `json:"squeezed"`      // softnet_stat column 3
	UDPIn     uint64   `json:"udp_in"`        // datagrams delivered, /proc/net/snmp
	UDPNoPort uint64   `json:"udp_no_port"`
	UDPErrors uint64   `json:"udp_rcvbuf_errors"`
}

// Split is how much of something fell on which index.
type Split struct {
	Total    float64   `json:"total"`
	PerS     float64   `json:"per_s"`
	By       []float64 `json:"by"`        // element i is queue or CPU i
	MaxShare float64   `json:"max_share"` // of the busiest
	MaxIndex int       `json:"max_index"`
	Used     int       `json:"used"` // with at least 2 % of the total
}

// Vector is one interrupt of the device.
type Vector struct {
	IRQ       int    `json:"irq"`
	Name      string `json:"name"`
	Count     uint64 `json:"count"`
	Affinity  string `json:"affinity"`
	Effective string `json:"effective"`
}

func split(by []float64, seconds float64) Split {
	s := Split{By: by}
	for i, v := range by {
		s.Total += v
		if v > by[s.MaxIndex] {
			s.MaxIndex = i
		}
	}
	if s.Total > 0 {
		s.MaxShare = by[s.MaxIndex] / s.Total
	}
	for _, v := range by {
		if s.Total > 0 && v/s.Total >= 0.02 {
			s.Used++
		}
	}
	s.PerS = s.Total / seconds
	return s
}

// reading is all cumulative counters at one moment.
type reading struct {
	at                      time.Time
	rx, netRX, soft, proc   []float64
	irqs                    []float64
	vectors                 map[int]Vector
	dropped, squeezed       uint64
	udpIn, noPort, udpError uint64
}

func measure(dev string, interval time.Duration) (*Facts, error) {
	a, err := read(dev)
	if err != nil {
		return nil, err
	}
	time.Sleep(interval)
	b, err := read(dev)
	if err != nil {
		return nil, err
	}
	s := b.at.Sub(a.at).Seconds()
	f := &Facts{
		IntervalS: s,
		RX:        split(minus(b.rx, a.rx), s), NetRX: split(minus(b.netRX, a.netRX), s), Softirq: split(minus(b.soft, a.soft), s),
		Processed: split(minus(b.proc, a.proc), s), IRQs: split(minus(b.irqs, a.irqs), s),
		Dropped: b.dropped - a.dropped, Squeezed: b.squeezed - a.squeezed,
		UDPIn: b.udpIn - a.udpIn, UDPNoPort: b.noPort - a.noPort, UDPErrors: b.udpError - a.udpError,
	}
	for irq, v := range b.vectors {
		v.Count -= a.vectors[irq].Count
		f.Vectors = append(f.Vectors, v)
	}
	return f, nil
}

// minus subtracts element by element; a list that grew counts from 0.
func minus(b, a []float64) []float64 {
	out := append([]float64{}, b...)
	for i := range out {
		if i < len(a) {
			out[i] = max(0, out[i]-a[i])
		}
	}
	return out
}

func read(dev string) (*reading, error) {
	r := &reading{at: time.Now()}
	stats, err := exec.Command("ethtool", "-S", dev).Output()
	if err != nil {
		stats = nil // a device without statistics has one queue
	}
	r.rx = queuePackets(string(stats))
	if len(r.rx) == 0 {
		n, err := readFile(filepath.Join("/sys/class/net", dev, "statistics/rx_packets"))
		if err != nil {
			return nil, err
		}
		r.rx = []float64{number(strings.TrimSpace(n))}
	}
	for _, p := range []struct {
		file  string
		parse func(string)
	}{
		{"/proc/softirqs", func(s string) { r.netRX = netRX(s) }},
		{"/proc/stat", func(s string) { r.soft = softirqSeconds(s) }},
		{"/proc/net/softnet_stat", func(s string) { r.proc, r.dropped, r.squeezed = softnet(s) }},
		{"/proc/net/snmp", func(s string) { r.udpIn, r.noPort, r.udpError = udp(s) }},
		{"/proc/interrupts", func(s string) { r.irqs, r.vectors = interrupts(s, deviceIRQs(dev)) }},
	} {
		text, err := readFile(p.file)
		if err != nil {
			return nil, err
		}
		p.parse(text)
	}
	for irq, v := range r.vectors {
		for name, dst := range map[string]*string{"smp_affinity_list": &v.Affinity, "effective_affinity_list": &v.Effective} {
			text, err := readFile(fmt.Sprintf("/proc/irq/%d/%s", irq, name))
			if err != nil {
				return nil, err
			}
			*dst = strings.TrimSpace(text)
		}
		r.vectors[irq] = v
	}
	return r, nil
}

func readFile(name string) (string, error) {
	b, err := os.ReadFile(name)
	return string(b), err
}

// deviceIRQs are the interrupts of the device: its msi_irqs folder, which virtio
// has on the parent, else irq.
func deviceIRQs(dev string) map[int]bool {
	out := map[int]bool{}
	base := filepath.Join("/sys/class/net", dev, "device")
	for _, d := range []string{base, filepath.Join(base, "..")} {
		entries, err := os.ReadDir(filepath.Join(d, "msi_irqs"))
		if err != nil {
			continue
		}
		for _, e := range entries {
			if n, err := strconv.Atoi(e.Name()); err == nil {
				out[n] = true
			}
		}
		if len(out) > 0 {
			return out
		}
	}
	if text, err := readFile(filepath.Join(base, "irq")); err == nil {
		if n, err := strconv.Atoi(strings.TrimSpace(text)); err == nil {
			out[n] = true
		}
	}
	return out
}

// number is a counter as text, 0 where it is none.
func number(s string) float64 {
	v, err := strconv.ParseFloat(s, 64)
	if err != nil {
		return 0
	}
	return v
}

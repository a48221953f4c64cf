package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/rxsteer/rxsteer/lab/traffic"
)

// host is the guest's device and its counters.
type host struct {
	dev   string
	cpus  int
	irqs  []int // by queue
	sock  int
	sizes int // of the table
}

var vector = regexp.MustCompile(`^eth0-(?:rx|TxRx|rxtx)-?([0-9]+)$`)

func openHost(dev string) (*host, error) {
	h := &host{dev: dev, cpus: runtime.NumCPU()}
	text, err := os.ReadFile("/proc/interrupts")
	if err != nil {
		return nil, err
	}
	byQueue := map[int]int{}
	for line := range strings.Lines(string(text)) {
		f := strings.Fields(line)
		if len(f) < 2 {
			continue
		}
		if m := vector.FindStringSubmatch(f[len(f)-1]); m != nil {
			q, err := strconv.Atoi(m[1])
			if err != nil {
				return nil, err
			}
			if byQueue[q], err = strconv.Atoi(strings.TrimSuffix(f[0], ":")); err != nil {
				return nil, err
			}
		}
	}
	for q := range len(byQueue) {
		irq, ok := byQueue[q]
		if !ok {
			return nil, fmt.Errorf("find vectors of %s: none of queue %d", dev, q)
		}
		h.irqs = append(h.irqs, irq)
	}
	if len(h.irqs) < 2 {
		return nil, fmt.Errorf("find vectors of %s: %d", dev, len(h.irqs))
	}
	if h.sock, err = unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0); err != nil {
		return nil, fmt.Errorf("open socket: %w", err)
	}
	if h.sizes, err = h.tableSize(); err != nil {
		return nil, err
	}
	return h, nil
}

func (h *host) close() { unix.Close(h.sock) }

// Of include/uapi/linux/ethtool.h: struct ethtool_rxfh_indir is u32 cmd, size, ring_index[size].
const (
	getTable = 0x38 // ETHTOOL_GRXFHINDIR
	setTable = 0x39 // ETHTOOL_SRXFHINDIR
)

func (h *host) ethtool(words []uint32) error {
	type ifreq struct {
		name [unix.IFNAMSIZ]byte
		data unsafe.Pointer
		_    [16]byte
	}
	r := ifreq{data: unsafe.Pointer(&words[0])}
	copy(r.name[:unix.IFNAMSIZ-1], h.dev)
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(h.sock), unix.SIOCETHTOOL, uintptr(unsafe.Pointer(&r)))
	runtime.KeepAlive(words)
	if errno != 0 {
		return fmt.Errorf("ethtool command %#x of %s: %w", words[0], h.dev, errno)
	}
	return nil
}

func (h *host) tableSize() (int, error) {
	w := []uint32{getTable, 0}
	err := h.ethtool(w)
	return int(w[1]), err
}

func (h *host) table() ([]int, error) {
	w := make([]uint32, 2+h.sizes)
	w[0], w[1] = getTable, uint32(h.sizes)
	if err := h.ethtool(w); err != nil {
		return nil, err
	}
	t := make([]int, h.sizes)
	for b := range t {
		t[b] = int(w[2+b])
	}
	return t, nil
}

func (h *host) setTable(t []int) error {
	w := []uint32{setTable, uint32(len(t))}
	for _, q := range t {
		w = append(w, uint32(q))
	}
	return h.ethtool(w)
}

func (h *host) pin(queue, cpu int) error { return h.write(queue, strconv.Itoa(cpu)) }

func (h *host) write(queue int, cpus string) error {
	return os.WriteFile(fmt.Sprintf("/proc/irq/%d/smp_affinity_list", h.irqs[queue]), []byte(cpus), 0)
}

// restore makes the settings that an arm starts from.
func (h *host) restore(s *settings) error {
	if err := h.setTable(s.table); err != nil {
		return err
	}
	for q, cpus := range s.affinity {
		if err := h.write(q, cpus); err != nil {
			return err
		}
	}
	return nil
}

// settings are what arms change.
type settings struct {
	table    []int
	affinity []string // by queue
}

func (h *host) settings() (*settings, error) {
	t, err := h.table()
	if err != nil {
		return nil, err
	}
	s := &settings{table: t}
	for _, irq := range h.irqs {
		text, err := os.ReadFile(fmt.Sprintf("/proc/irq/%d/smp_affinity_list", irq))
		if err != nil {
			return nil, err
		}
		s.affinity = append(s.affinity, strings.TrimSpace(string(text)))
	}
	return s, nil
}

func (s *settings) changed(o *settings) (buckets, vectors int) {
	for b := range s.table {
		if s.table[b] != o.table[b] {
			buckets++
		}
	}
	for q := range s.affinity {
		if s.affinity[q] != o.affinity[q] {
			vectors++
		}
	}
	return buckets, vectors
}

// counters are cumulative.
type counters struct {
	processed []uint64 // packets by CPU, softnet_stat
	delivered uint64   // UDP datagrams
}

func (c *counters) minus(o *counters) []uint64 {
	d := slices.Clone(c.processed)
	for i := range d {
		d[i] -= o.processed[i]
	}
	return d
}

func (h *host) counters() (*counters, error) {
	c := &counters{processed: make([]uint64, h.cpus)}
	text, err := os.ReadFile("/proc/net/softnet_stat")
	if err != nil {
		return nil, err
	}
	for line := range strings.Lines(string(text)) {
		f := strings.Fields(line)
		if len(f) < 13 {
			return nil, fmt.Errorf("parse softnet_stat: %d columns", len(f))
		}
		var v [2]uint64
		for i, k := range []int{0, 12} { // processed, CPU
			if v[i], err = strconv.ParseUint(f[k], 16, 32); err != nil {
				return nil, err
			}
		}
		if int(v[1]) < h.cpus {
			c.processed[v[1]] = v[0]
		}
	}
	if text, err = os.ReadFile("/proc/net/snmp"); err != nil {
		return nil, err
	}
	var names []string
	for line := range strings.Lines(string(text)) {
		f := strings.Fields(line)
		if len(f) == 0 || f[0] != "Udp:" {
			continue
		}
		if names == nil {
			names = f
			continue
		}
		for i, name := range names {
			if name != "InDatagrams" {
				continue
			}
			if c.delivered, err = strconv.ParseUint(f[i], 10, 64); err != nil {
				return nil, err
			}
		}
	}
	return c, nil
}

// ownCPU is the CPU time of this thread, which an arm within this process has to itself.
func ownCPU() (time.Duration, error) {
	var u unix.Rusage
	err := unix.Getrusage(unix.RUSAGE_THREAD, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano()), err
}

type probed struct {
	p50, p99, p999 time.Duration
	lost           int // mice of which nothing came back
	// Packets per second that the sender's side gave its device meanwhile, and that sockets got. What the emulated card has no
	// descriptor for is dropped before it, and counted by nobody in the guest.
	offered, delivered float64
	err                error
}

var requests = 1000 // above those of the lab's shell functions

// mice are probe flows; the same source ports for each arm, so that all look through the same buckets.
const (
	mice     = 8
	micePort = 30000 // of the first
	miceRate = 50    // packets/s of each
)

// probe sends mice from the sender's side and takes their round trips: the median of their medians and the worst of
// their 99th and 99.9th percentiles.
func (h *host) probe(ctx context.Context, d time.Duration) probed {
	was, err := h.counters()
	if err != nil {
		return probed{err: err}
	}
	began := time.Now()
	p := probe(ctx, d)
	is, err := h.counters()
	if err != nil {
		return probed{err: err}
	}
	p.delivered = float64(is.delivered-was.delivered) / time.Since(began).Seconds()
	return p
}

func probe(ctx context.Context, d time.Duration) probed {
	requests++
	base := fmt.Sprintf("/share/req/%d", requests)
	// Of /proc/net/dev: sent, and dropped because the guest took none.
	const sent = `sent() { echo "sent $(date +%s.%N) $(sed 's/:/ /' /proc/net/dev | awk 'NR > 2 && $1 != "lo" {n += $11 + $13} END {printf "%.0f\n", n}')"; }; sent; `
	cmd := sent + fmt.Sprintf("for i in $(seq 0 %d); do rxtraffic probe --to 10.77.0.2:9001 --src-port $((%d+i)) --rate %d --for %v --json & done; wait; sent\n", mice-1, micePort, miceRate, d)
	if err := os.WriteFile(base+".new", []byte(cmd), 0o644); err != nil {
		return probed{err: err}
	}
	if err := os.Rename(base+".new", base+".cmd"); err != nil {
		return probed{err: err}
	}
	until := time.Now().Add(d + 10*time.Second)
	for {
		if _, err := os.Stat(base + ".rc"); err == nil {
			break
		}
		if time.Now().After(until) || ctx.Err() != nil {
			return probed{err: errors.New("probe: no answer from the sender's side")}
		}
		time.Sleep(100 * time.Millisecond) // 9p brings no notifications
	}
	text, err := os.ReadFile(base + ".out")
	if err != nil {
		return probed{err: err}
	}
	return summary(text)
}

// summary reads a JSON document of rxtraffic probe per mouse between two lines of what was sent until when.
func summary(text []byte) probed {
	var p50 []time.Duration
	var out probed
	var at, sent []float64
	for line := range bytes.Lines(text) {
		if doc, ok := bytes.CutPrefix(line, []byte("sent ")); ok {
			var when, n float64
			if _, err := fmt.Sscan(string(doc), &when, &n); err != nil {
				return probed{err: fmt.Errorf("parse %q: %w", line, err)}
			}
			at, sent = append(at, when), append(sent, n)
			continue
		}
		var r struct {
			RTT traffic.Summary `json:"rtt"`
		}
		if err := json.Unmarshal(line, &r); err != nil {
			return probed{err: fmt.Errorf("parse probe %q: %w", line, err)}
		}
		if r.RTT.Count == 0 {
			out.lost++
			continue
		}
		p50 = append(p50, r.RTT.P50)
		out.p99, out.p999 = max(out.p99, r.RTT.P99), max(out.p999, r.RTT.P999)
	}
	if len(at) != 2 || at[1] <= at[0] {
		return probed{err: fmt.Errorf("probe: what was sent is not told: %s", text)}
	}
	out.offered = (sent[1] - sent[0]) / (at[1] - at[0])
	if n := len(p50) + out.lost; n != mice {
		return probed{err: fmt.Errorf("probe: %d mice reported, want %d: %s", n, mice, text)}
	}
	if len(p50) > 0 {
		slices.Sort(p50)
		out.p50 = p50[len(p50)/2]
	}
	return out
}

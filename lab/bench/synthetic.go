package main

import (
	"bytes"
	"fmt"
	"io/fs"
	"net/http/httptest"
	"runtime"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sys/unix"

	"github.com/rxsteer/rxsteer/bpf"
	"github.com/rxsteer/rxsteer/collector"
	"github.com/rxsteer/rxsteer/exporter"
	"github.com/rxsteer/rxsteer/internal/ethtool"
	"github.com/rxsteer/rxsteer/internal/netdev"
)

// The big host of which this machine is none: 64 queues, each served by a CPU of its own now and by others in
// the past, so that there are as many {NAPI, CPU} pairs as the programs have room for.
const (
	bigCPUs   = 256
	bigQueues = 64
	bigPairs  = bpf.DefaultNAPIs
	bigNetns  = 4026531840
)

// texts are the files of a host.
type texts map[string][]byte

func (t texts) ReadFile(path string) ([]byte, error) {
	if b, ok := t[path]; ok {
		return bytes.Clone(b), nil
	}
	return nil, &fs.PathError{Op: "open", Path: path, Err: fs.ErrNotExist}
}
func (t texts) WriteFile(path string, _ []byte) error {
	return &fs.PathError{Op: "write", Path: path, Err: fs.ErrPermission}
}
func (t texts) ReadDir(path string) ([]fs.DirEntry, error) {
	return nil, &fs.PathError{Op: "open", Path: path, Err: fs.ErrNotExist}
}
func (t texts) Readlink(path string) (string, error) {
	if path == "/proc/thread-self/ns/net" {
		return fmt.Sprintf("net:[%d]", bigNetns), nil
	}
	return "", &fs.PathError{Op: "readlink", Path: path, Err: fs.ErrNotExist}
}

// bigHost is that host when its counters stand at n.
func bigHost(n uint64) (texts, *bpf.Counters) {
	var stat, softirqs, softnet, interrupts, head strings.Builder
	for c := range bigCPUs {
		fmt.Fprintf(&head, " %10s", fmt.Sprintf("CPU%d", c))
		fmt.Fprintf(&stat, "cpu%d %d 0 %d %d 0 0 %d 0 0 0\n", c, n, n, n, n)
		fmt.Fprintf(&softnet, "%08x 00000000 %08x 00000000 00000000 00000000 00000000 00000000 00000000 %08x 00000000 00000000 %08x\n", n, n/9, n/7, c)
	}
	fmt.Fprintf(&softirqs, "    %s\n", head.String())
	for _, vector := range collector.SoftirqNames {
		fmt.Fprintf(&softirqs, "%12s", vector+":")
		for range bigCPUs {
			fmt.Fprintf(&softirqs, " %10d", n)
		}
		softirqs.WriteByte('\n')
	}
	fmt.Fprintf(&interrupts, "    %s\n", head.String())
	for q := range bigQueues {
		fmt.Fprintf(&interrupts, "%4d:", 40+q)
		for c := range bigCPUs {
			count := uint64(1000)
			if c == q {
				count = n
			}
			fmt.Fprintf(&interrupts, " %10d", count)
		}
		fmt.Fprintf(&interrupts, "  PCI-MSIX-0000:41:00.0 %d-edge      eth0-TxRx-%d\n", q, q)
	}
	dev := "Inter-|   Receive                                                |  Transmit\n face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo colls carrier compressed\n" +
		fmt.Sprintf("  eth0: %d %d 0 0 0 0 0 0 %d %d 0 0 0 0 0 0\n", 1000*n, n, 1000*n, n)
	f := texts{
		"/proc/stat": []byte(stat.String()), "/proc/softirqs": []byte(softirqs.String()), "/proc/net/softnet_stat": []byte(softnet.String()),
		"/proc/interrupts": []byte(interrupts.String()), "/proc/net/dev": []byte(dev), "/sys/class/net/eth0/ifindex": []byte("2\n"),
		"/proc/net/netstat": []byte(fmt.Sprintf("TcpExt: SyncookiesSent TCPOFOQueue\nTcpExt: 0 %d\n", n)),
	}
	c := &bpf.Counters{CPUs: make([]bpf.CPUStat, bigCPUs)}
	for i := range c.CPUs {
		c.CPUs[i].Runs[collector.NetRX], c.CPUs[i].Time[collector.NetRX] = n, 1000*n
	}
	for i := range bigPairs {
		c.NAPIKeys = append(c.NAPIKeys, bpf.NAPIKey{Napi: uint64(1+i%bigQueues) << 12, Netns: bigNetns, Ifindex: 2, NapiId: uint32(8193 + i%bigQueues), Cpu: uint32(i / bigQueues * 3 % bigCPUs)})
		s := bpf.NAPIStat{Polls: n, Packets: 9 * n, Time: 1000 * n}
		s.TimeHist[11], s.WorkHist[4] = n, n
		c.NAPIs = append(c.NAPIs, s)
	}
	for q := range bigQueues {
		c.IRQKeys = append(c.IRQKeys, bpf.IRQKey{Irq: uint32(40 + q), Cpu: uint32(q)})
		c.IRQs = append(c.IRQs, bpf.IRQStat{Count: n, Time: 700 * n})
	}
	return f, c
}

// queueOf is its map.
func queueOf(_ uint64, _ int, id uint32) int { return int(id) - 8193 }

// processTime is the CPU time of this process, in seconds.
func processTime() float64 {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano()).Seconds()
}

// each returns the CPU seconds of each of several batches of ten calls, per call.
func each(batches int, call func()) []float64 {
	const calls = 10
	call()
	var out []float64
	for range batches {
		runtime.GC()
		start := processTime()
		for range calls {
			call()
		}
		out = append(out, (processTime()-start)/calls)
	}
	return out
}

// agentSide is what the agent does in user space per interval on the big host, the reading of the kernel's files and
// maps aside.
type agentSide struct {
	before  *collector.Reading
	files   texts
	maps    *bpf.Counters
	ring    *collector.Ring
	metrics *exporter.Exporter
}

func newAgentSide() *agentSide {
	a := &agentSide{ring: collector.NewRing(1), metrics: exporter.New(bigNetns, exporter.DefaultLimits)}
	files, maps := bigHost(1000)
	a.before = collector.ReadHost(files, time.Unix(1e9, 0))
	a.before.BPF = maps
	collector.Between(a.before, a.before, queueOf) // as the interval before has left it
	a.files, a.maps = bigHost(3000)
	return a
}

// interval is one second of the agent's life.
func (a *agentSide) interval() {
	cur := collector.ReadHost(a.files, time.Unix(1e9+1, 0))
	cur.BPF = a.maps
	s := collector.Between(a.before, cur, queueOf)
	a.ring.Add(s)
	a.metrics.Add(s)
}

// scraper is what Prometheus gets, compressed or not.
func (a *agentSide) scraper(gzip bool) (scrape func() int) {
	reg := prometheus.NewRegistry()
	reg.MustRegister(a.metrics.Rest())
	h := (&exporter.Web{Gatherer: reg, Exporter: a.metrics}).Handler()
	return func() int {
		rec, req := httptest.NewRecorder(), httptest.NewRequest("GET", "/metrics", nil)
		if gzip {
			req.Header.Set("Accept-Encoding", "gzip")
		}
		h.ServeHTTP(rec, req)
		return rec.Body.Len()
	}
}

// heap is the bytes in use after a collection.
func heap() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// queueStats are the kernel's counters by queue of the big host.
type queueStats []netdev.QueueStats

func (q queueStats) QueueStats(int) ([]netdev.QueueStats, error) {
	for i := range q {
		q[i].Counters["rx-packets"] += 1000
	}
	return q, nil
}

func (queueStats) Stats(string) ([]ethtool.Stat, error) { return nil, ethtool.ErrNotSupported }

// ticking is level 0 as the closed loop reads it ten times a second.
func ticking() func() {
	files, _ := bigHost(1000)
	var q queueStats
	for i := range bigQueues {
		q = append(q, netdev.QueueStats{IfIndex: 2, Type: netdev.RX, ID: i, Counters: map[string]uint64{"rx-packets": 0, "rx-bytes": 0, "rx-hw-drops": 0}})
	}
	at := time.Unix(1e9, 0)
	t := &collector.Ticker{FS: files, Queues: q, Now: func() time.Time { at = at.Add(100 * time.Millisecond); return at }}
	devices := []collector.TickDevice{{Name: "eth0", IfIndex: 2, CPUs: make([]int, bigQueues)}}
	return func() { t.Tick(devices) }
}

// synthetic times the user space of a host of 64 queues × 256 CPUs. Shares are of one CPU.
func synthetic() []operation {
	a := newAgentSide()
	level0 := scale(each(20, ticking()), 10)
	second := each(20, a.interval)
	scrape, zipped := a.scraper(false), a.scraper(true)
	scraped := each(20, func() { scrape() })
	compressed := each(20, func() { zipped() })
	before := heap()
	for i := range 600 {
		a.interval()
		if i%15 == 0 { // as Prometheus does
			scrape()
		}
	}
	after := heap()
	runtime.KeepAlive(a)
	size := fmt.Sprintf("%d queues × %d CPUs, synthetic", bigQueues, bigCPUs)
	return []operation{
		{Name: "level 0 at 10 Hz, share of a CPU; " + size, Goal: "≤ 0.5 %", Share: true, Time: summarise(level0)},
		{Name: fmt.Sprintf("user space at 1 Hz, share of a CPU; %s, %d {NAPI, CPU} pairs", size, bigPairs), Goal: "≤ 0.5 %", Share: true, Time: summarise(second)},
		{Name: "one scrape; " + size, Goal: "≤ 5 ms", Time: summarise(scraped)},
		{Name: fmt.Sprintf("one scrape, compressed; %s, %d KiB", size, zipped()>>10), Goal: "≤ 5 ms", Time: summarise(compressed)},
		{Name: fmt.Sprintf("memory in use; %s (after ten minutes more %+.1f MiB)", size, float64(int64(after)-int64(before))/(1<<20)), Goal: "≤ 40 MiB", Bytes: after},
	}
}

func scale(values []float64, by float64) []float64 {
	for i := range values {
		values[i] *= by
	}
	return values
}

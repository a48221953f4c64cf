package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"runtime"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/rxsteer/rxsteer/internal/cpuset"
	"github.com/rxsteer/rxsteer/internal/testnet"
	"github.com/rxsteer/rxsteer/lab/burn"
	"github.com/rxsteer/rxsteer/lab/traffic"
)

const (
	device    = "b0" // the receiver's device
	flows     = 256  // many, so that their hashes spread them evenly
	queues    = 2
	probeRate = 200 // per second
)

var (
	probeAddr = netip.MustParseAddrPort("10.66.0.2:9001")
	sinkAddr  = netip.MustParseAddrPort("10.66.0.2:9000")
	sinkHost  = "10.66.0.2/24"
	senderNet = "10.66.0.1/24"
)

// rig is a sender and a receiver namespace joined by a veth pair whose receive
// work sits on one CPU that is not the sender's.
//
// A veth sender runs the receiver's softirq inline; with an RPS mask of one
// other CPU the poll hands each packet to that CPU's backlog, and overload
// fills a real queue that drops, instead of slowing the sender down.
type rig struct {
	sender, receiver *testnet.NS
	burn             *burn.Burn
	bulk, probe      *traffic.Receiver

	cpus      []int // allowed to us
	senderCPU int
	rxCPU     int // where all receive work sits at first
}

func newRig(cost time.Duration) (r *rig, err error) {
	r = &rig{}
	if r.cpus, err = allowedCPUs(); err != nil {
		return nil, err
	}
	if len(r.cpus) < 2 {
		return nil, fmt.Errorf("build rig: needs two CPUs, %d allowed", len(r.cpus))
	}
	r.senderCPU, r.rxCPU = r.cpus[0], r.cpus[len(r.cpus)-1]
	defer func() {
		if err != nil {
			err = errors.Join(err, r.Close())
		}
	}()
	if r.sender, err = testnet.Create(); err != nil {
		return r, err
	}
	if r.receiver, err = testnet.Create(); err != nil {
		return r, err
	}
	if err := testnet.Connect(r.sender, r.receiver, testnet.Veth{A: "a0", B: device, Queues: queues,
		AddrA: senderNet, AddrB: sinkHost, NAPI: true, StaticNeigh: true}); err != nil {
		return r, err
	}
	// The sender hands over trains to be cut in the kernel, for it is to cost
	// little; they have to be cut before they reach the receiver.
	if err := r.sender.Run("ethtool", "-K", "a0", "tx-udp-segmentation", "off"); err != nil {
		return r, err
	}
	if err := r.setRPS([]int{r.rxCPU}); err != nil {
		return r, err
	}
	c, err := burn.Calibrate(cost)
	if err != nil {
		return r, err
	}
	index, err := r.receiver.IfIndex(device)
	if err != nil {
		return r, err
	}
	if err := r.receiver.Do(func() (err error) {
		if r.burn, err = burn.Attach(index, c); err != nil {
			return err
		}
		// The bulk is read every millisecond, so that its wake-ups do not become
		// the load; the probe at once.
		if r.bulk, err = traffic.Listen(traffic.ReceiveConfig{Listen: sinkAddr, Every: time.Millisecond}); err != nil {
			return err
		}
		r.probe, err = traffic.Listen(traffic.ReceiveConfig{Listen: probeAddr})
		return err
	}); err != nil {
		return r, err
	}
	return r, nil
}

// Close removes all that newRig made.
func (r *rig) Close() error {
	var err error
	for _, recv := range []*traffic.Receiver{r.bulk, r.probe} {
		if recv != nil {
			err = errors.Join(err, recv.Close())
		}
	}
	if r.burn != nil {
		err = errors.Join(err, r.burn.Close())
	}
	for _, ns := range []*testnet.NS{r.sender, r.receiver} {
		if ns != nil {
			err = errors.Join(err, ns.Close())
		}
	}
	return err
}

// setRPS writes the same mask to every receive queue.
func (r *rig) setRPS(cpus []int) error {
	mask := cpuset.Of(cpus...).Mask(0)
	for q := range queues {
		if err := r.receiver.SetRPS(device, q, mask); err != nil {
			return err
		}
	}
	return nil
}

// settings reads every setting of the receive path that a plan may change, by
// path: what a rollback has to restore.
func (r *rig) settings() (map[string]string, error) {
	fs := r.receiver.FS()
	var paths []string
	for q := range queues {
		for _, f := range []string{"rx-%d/rps_cpus", "rx-%d/rps_flow_cnt", "tx-%d/xps_cpus", "tx-%d/xps_rxqs"} {
			paths = append(paths, "/sys/class/net/"+device+"/queues/"+fmt.Sprintf(f, q))
		}
	}
	for _, f := range []string{"threaded", "napi_defer_hard_irqs", "gro_flush_timeout"} {
		paths = append(paths, "/sys/class/net/"+device+"/"+f)
	}
	for _, f := range []string{"rps_sock_flow_entries", "netdev_max_backlog", "netdev_budget", "netdev_budget_usecs"} {
		paths = append(paths, "/proc/sys/net/core/"+f)
	}
	values := map[string]string{}
	for _, p := range paths {
		b, err := fs.ReadFile(p)
		if err != nil {
			continue // not on this kernel, or not in a namespace
		}
		values[p] = string(bytes.TrimSpace(b))
	}
	if len(values) < queues {
		return nil, fmt.Errorf("read settings of %s: none of %d can be read", device, len(paths))
	}
	return values, nil
}

// capacity is the packets per second one CPU of receive work gets through when
// twice that is offered.
func (r *rig) capacity(ctx context.Context) (float64, error) {
	rate := 2 / r.burn.Cost.PerPacket.Seconds()
	g, ctx := errgroup.WithContext(ctx)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	g.Go(func() error { return r.load(ctx, rate, time.Minute, 0) })
	var n float64
	g.Go(func() error {
		defer cancel()
		if !wait(ctx, 500*time.Millisecond) {
			return ctx.Err()
		}
		before, err := r.burn.Packets()
		if err != nil {
			return err
		}
		start := time.Now()
		if !wait(ctx, 2*time.Second) {
			return ctx.Err()
		}
		after, err := r.burn.Packets()
		n = float64(after[r.rxCPU]-before[r.rxCPU]) / time.Since(start).Seconds()
		return err
	})
	if err := g.Wait(); err != nil && !errors.Is(err, context.Canceled) {
		return 0, err
	}
	if n == 0 {
		return 0, fmt.Errorf("measure one CPU: no packet arrived on CPU %d", r.rxCPU)
	}
	return n, nil
}

// load sends and receives the flows, numbered from firstFlow, and the probe
// until ctx ends.
func (r *rig) load(ctx context.Context, rate float64, limit time.Duration, firstFlow uint32) error {
	var bulk, probe *traffic.UDP
	err := r.sender.Do(func() (err error) {
		// Fixed source ports: every run has the same flows.
		ports := make([]uint16, flows)
		for i := range ports {
			ports[i] = uint16(20000 + i)
		}
		if bulk, err = traffic.DialUDP(traffic.FlowConfig{To: []netip.AddrPort{sinkAddr}, Flows: flows, Ports: ports, Segment: true}, 128); err != nil {
			return err
		}
		probe, err = traffic.DialUDP(traffic.FlowConfig{To: []netip.AddrPort{probeAddr}}, 128)
		return err
	})
	if err != nil {
		return err
	}
	defer bulk.Close()
	defer probe.Close()
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return r.bulk.Run(ctx) })
	g.Go(func() error { return r.probe.Run(ctx) })
	g.Go(func() error {
		_, err := traffic.Send(ctx, traffic.Plan{Rate: rate, For: limit, Flows: flows, FirstFlow: firstFlow, Sizes: []int{128}, Train: 8, Tick: time.Millisecond, CPU: &r.senderCPU, RealTime: true}, bulk)
		return err
	})
	g.Go(func() error {
		_, err := traffic.Send(ctx, traffic.Plan{Rate: probeRate, For: limit, FirstFlow: firstFlow + flows, Flags: traffic.FlagProbe, CPU: &r.senderCPU, RealTime: true}, probe)
		return err
	})
	return g.Wait()
}

// reading is what was seen in a window.
type reading struct {
	Seconds   float64         `json:"seconds"`
	Sent      float64         `json:"sent_pps"` // by the flows and the probe
	Delivered float64         `json:"delivered_pps"`
	Lost      float64         `json:"lost_pps"`
	LostShare float64         `json:"lost_share"`
	Probe     traffic.Summary `json:"probe"`
	ProbeLost uint64          `json:"probe_lost"`
	// Softirq is the share of the time of each CPU spent in softirq
	// (/proc/stat), Work each CPU's share of the packets.
	Softirq map[int]float64 `json:"softirq_share"`
	Work    map[int]float64 `json:"work_share"`
}

// read measures for that long; load must be running.
func (r *rig) read(ctx context.Context, d time.Duration) (reading, error) {
	before, err := r.count()
	if err != nil {
		return reading{}, err
	}
	r.bulk.Take()
	r.probe.Take()
	if !wait(ctx, d) {
		return reading{}, ctx.Err()
	}
	bulk, probe := r.bulk.Take(), r.probe.Take()
	after, err := r.count()
	if err != nil {
		return reading{}, err
	}
	seconds := after.at.Sub(before.at).Seconds()
	out := reading{Seconds: seconds, Sent: float64(after.sent-before.sent) / seconds,
		Probe: probe.Probe, ProbeLost: probe.Lost, Softirq: map[int]float64{}, Work: map[int]float64{}}
	out.Delivered, out.Lost = bulk.Rate(), float64(bulk.Lost)/bulk.Seconds
	if n := bulk.Received + bulk.Lost; n > 0 {
		out.LostShare = float64(bulk.Lost) / float64(n)
	}
	var packets uint64
	for cpu := range after.packets {
		packets += after.packets[cpu] - before.packets[cpu]
	}
	for _, cpu := range r.cpus {
		out.Softirq[cpu] = float64(after.softirq[cpu]-before.softirq[cpu]) / userHZ / seconds
		if packets > 0 {
			out.Work[cpu] = float64(after.packets[cpu]-before.packets[cpu]) / float64(packets)
		}
	}
	return out, nil
}

// counts are the counters a reading is the difference of.
type counts struct {
	at      time.Time
	packets []uint64 // burnt for, by CPU
	sent    uint64   // transmitted by the sender's device
	softirq map[int]uint64
}

func (r *rig) count() (counts, error) {
	c := counts{at: time.Now()}
	var err error
	if c.packets, err = r.burn.Packets(); err != nil {
		return c, err
	}
	b, err := r.sender.FS().ReadFile("/sys/class/net/a0/statistics/tx_packets")
	if err != nil {
		return c, fmt.Errorf("read packets sent: %w", err)
	}
	if c.sent, err = strconv.ParseUint(string(bytes.TrimSpace(b)), 10, 64); err != nil {
		return c, fmt.Errorf("read packets sent: %w", err)
	}
	c.softirq, err = softirqTicks()
	return c, err
}

// wait returns false when ctx ended first.
func wait(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}

const userHZ = 100 // ticks per second of /proc/stat, proc(5)

// softirqTicks is the softirq column of each CPU in /proc/stat.
func softirqTicks() (map[int]uint64, error) {
	b, err := os.ReadFile("/proc/stat")
	if err != nil {
		return nil, fmt.Errorf("read softirq time: %w", err)
	}
	ticks := map[int]uint64{}
	for line := range strings.Lines(string(b)) {
		f := strings.Fields(line)
		if len(f) < 8 || !strings.HasPrefix(f[0], "cpu") || f[0] == "cpu" {
			continue
		}
		cpu, err := strconv.Atoi(f[0][3:])
		if err != nil {
			return nil, fmt.Errorf("parse /proc/stat: %w", err)
		}
		if ticks[cpu], err = strconv.ParseUint(f[7], 10, 64); err != nil {
			return nil, fmt.Errorf("parse /proc/stat: %w", err)
		}
	}
	return ticks, nil
}

// busyCPUs is how many CPUs' worth of time is not idle, seen for that long.
func busyCPUs(ctx context.Context, d time.Duration) (float64, error) {
	idle := func() (n float64, cpus int, err error) {
		b, err := os.ReadFile("/proc/stat")
		if err != nil {
			return 0, 0, fmt.Errorf("read idle time: %w", err)
		}
		for line := range strings.Lines(string(b)) {
			f := strings.Fields(line)
			if len(f) < 6 || !strings.HasPrefix(f[0], "cpu") || f[0] == "cpu" {
				continue
			}
			cpus++
			for _, text := range f[4:6] { // idle, iowait
				v, err := strconv.ParseFloat(text, 64)
				if err != nil {
					return 0, 0, fmt.Errorf("parse /proc/stat: %w", err)
				}
				n += v / userHZ
			}
		}
		return n, cpus, nil
	}
	before, cpus, err := idle()
	if err != nil {
		return 0, err
	}
	start := time.Now()
	if !wait(ctx, d) {
		return 0, ctx.Err()
	}
	after, _, err := idle()
	return max(float64(cpus)-(after-before)/time.Since(start).Seconds(), 0), err
}

// allowedCPUs are the CPUs this process may run on.
func allowedCPUs() ([]int, error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	b, err := os.ReadFile("/proc/thread-self/status")
	if err != nil {
		return nil, fmt.Errorf("read allowed CPUs: %w", err)
	}
	for line := range strings.Lines(string(b)) {
		if list, ok := strings.CutPrefix(line, "Cpus_allowed_list:"); ok {
			set, err := cpuset.ParseList(strings.TrimSpace(list))
			if err != nil {
				return nil, fmt.Errorf("read allowed CPUs: %w", err)
			}
			return set.Slice(), nil
		}
	}
	return nil, errors.New("read allowed CPUs: /proc/thread-self/status has no Cpus_allowed_list")
}

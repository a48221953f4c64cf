package collector

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/rxsteer/rxsteer/bpf"
	"github.com/rxsteer/rxsteer/internal/host/knob"
	"github.com/rxsteer/rxsteer/internal/sockdiag"
	"github.com/rxsteer/rxsteer/internal/testnet"
	"github.com/rxsteer/rxsteer/internal/toeplitz"
)

// datagram is a UDP datagram over IPv4 and Ethernet to everyone, from port to port 5000.
func datagram(port uint16) []byte {
	f := make([]byte, 60)
	copy(f, []byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2, 0, 0, 0, 0, 1, 0x08, 0x00})
	copy(f[14:], []byte{0x45, 0, 0, 46, 0, 0, 0, 0, 64, 17, 0, 0, 10, 9, 0, 1, 10, 9, 1, 1})
	binary.BigEndian.PutUint16(f[34:], port)
	copy(f[36:], []byte{0x13, 0x88, 0, 26, 0, 0})
	var sum uint32
	for i := 14; i < 34; i += 2 {
		sum += uint32(binary.BigEndian.Uint16(f[i:]))
	}
	for sum>>16 > 0 {
		sum = sum&0xffff + sum>>16
	}
	binary.BigEndian.PutUint16(f[24:], ^uint16(sum))
	return f
}

func source(port uint16) netip.AddrPort {
	return netip.AddrPortFrom(netip.MustParseAddr("10.9.0.1"), port)
}

var destination = netip.MustParseAddrPort("10.9.1.1:5000")

// bucketOf is where the reference puts datagram(port).
func bucketOf(port uint16, size int) int {
	h, _ := toeplitz.Hash(toeplitz.MicrosoftKey, toeplitz.Flow{Src: source(port).Addr(), Dst: destination.Addr(), SrcPort: port, DstPort: 5000}, toeplitz.None)
	return toeplitz.Bucket(h, size)
}

// rss describes a tap as a device that hashes by addresses and ports.
func rss(t testing.TB, ns *testnet.NS, device string, size, queues int) RSS {
	t.Helper()
	index, err := ns.IfIndex(device)
	if err != nil {
		t.Fatal(err)
	}
	r := RSS{Netns: ns.Inode(), IfIndex: index, Device: device, Key: toeplitz.MicrosoftKey, Function: "toeplitz",
		Fields: map[string]string{"tcp4": "sdfn", "udp4": "sdfn", "tcp6": "sdfn", "udp6": "sdfn"}}
	for i := range size {
		r.Table = append(r.Table, i%queues)
	}
	return r
}

func newTAP(t testing.TB, ns *testnet.NS, queues int) *testnet.TAP {
	t.Helper()
	testnet.NeedTun(t)
	dev, err := ns.NewTAP("rx0", queues)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { dev.Close() })
	return dev
}

func send(t testing.TB, dev *testnet.TAP, queue int, frame []byte, n int) {
	t.Helper()
	for range n {
		if err := dev.Inject(queue, frame); err != nil {
			t.Error(err)
			return
		}
	}
}

// meanwhile sends while samples are read: a ring's reader that is slow misses some.
func meanwhile(t testing.TB, traffic func()) {
	done := make(chan struct{})
	go func() { defer close(done); traffic() }()
	t.Cleanup(func() { <-done })
}

func seen(s *Sample, n uint64) bool { return len(s.Buckets) > 0 && s.Buckets[0].Seen >= n }

func TestLiveBucketsAreTheReference(t *testing.T) {
	ns := testnet.New(t)
	dev := newTAP(t, ns, 4)
	r := rss(t, ns, "rx0", 128, 4)
	samples := running(t, Config{FS: ns.FS(), Level: 2, RSS: func() []RSS { return []RSS{r} }, FlowRate: 1,
		RXQueue: func(uint64, int, uint32) int { return -1 }})
	want, agreed, sent := make([]uint64, 128), uint64(0), uint64(0)
	rnd := rand.New(rand.NewPCG(1, 2))
	var traffic []func()
	for range 300 {
		port, n := uint16(1024+rnd.IntN(60000)), 1+rnd.IntN(20)
		b := bucketOf(port, 128)
		queue := r.Table[b]
		if rnd.IntN(10) == 0 {
			queue = (queue + 1) % 4 // against its table
		} else {
			agreed += uint64(n)
		}
		want[b] += uint64(n)
		sent += uint64(n)
		traffic = append(traffic, func() { send(t, dev, queue, datagram(port), n) })
	}
	meanwhile(t, func() {
		for _, f := range traffic {
			f()
		}
	})
	s := until(t, samples, "all packets", func(s *Sample) bool { return seen(s, sent) })
	b := s.Buckets[0]
	if diff := cmp.Diff(want, b.Packets); diff != "" {
		t.Errorf("packets by bucket, -want +got:\n%s", diff)
	}
	if b.Hash != HashExact || b.Seen != sent || b.Compared != sent || b.Agreed != agreed || b.Unhashed != 0 {
		t.Errorf("%s, %d seen, %d of %d agreed, %d unhashed; want exact, %d of %d, 0", b.Hash, b.Seen, b.Agreed, b.Compared, b.Unhashed, agreed, sent)
	}
	if diff := cmp.Diff([]Class{{Class: "udp4", Packets: sent, Bytes: 60 * sent}}, b.Classes); diff != "" {
		t.Errorf("classes, -want +got:\n%s", diff)
	}
	// The taps' NAPIs have no id, so a packet costs what the device's mean is: the time of all buckets is
	// the time of all its polls, but for packets counted in one interval and polled in the next.
	var ns64, polls uint64
	for i, n := range b.Time {
		if (n > 0) != (want[i] > 0) {
			t.Errorf("bucket %d: %d ns for %d packets", i, n, want[i])
		}
		ns64 += n
	}
	for i := range s.NAPIs {
		if s.NAPIs[i].Netns == ns.Inode() {
			polls += s.NAPIs[i].Time
		}
	}
	if low, high := float64(polls)*0.7, float64(polls)*1.3; float64(ns64) < low || float64(ns64) > high {
		t.Errorf("%d ns in buckets, %d ns in polls", ns64, polls)
	}
}

// TestLiveElephant: a flow of known share among many is named with a share within its stated error,
// and the number of packets, too.
func TestLiveElephant(t *testing.T) {
	ns := testnet.New(t)
	dev := newTAP(t, ns, 2)
	r := rss(t, ns, "rx0", 128, 2)
	samples := running(t, Config{FS: ns.FS(), Level: 2, RSS: func() []RSS { return []RSS{r} }, FlowRate: 16})
	const elephant, mice = 20000, 10000
	const sent = elephant + mice
	meanwhile(t, func() {
		rnd := rand.New(rand.NewPCG(3, 4))
		for e, m := elephant, mice; e+m > 0; {
			if rnd.IntN(e+m) < e {
				send(t, dev, 1, datagram(7777), 1)
				e--
			} else {
				send(t, dev, 1, datagram(uint16(10000+rnd.IntN(3000))), 1)
				m--
			}
		}
		send(t, dev, 0, datagram(8888), 1000)
	})
	received := func(s *Sample) (n uint64) {
		for _, d := range s.Devices {
			if d.Name == "rx0" {
				n += d.RXPackets
			}
		}
		return n
	}
	s := until(t, samples, "all packets", func(s *Sample) bool { return received(s) >= sent+1000 })
	if b := s.Buckets[0]; b.Rate != 16 || math64(int64(slices.Max(b.Packets))-elephant) > 1500 { // 1.96·√(20000·16), and some mice
		t.Errorf("1 in %d, biggest bucket %d packets, want 1 in 16 and about %d", b.Rate, slices.Max(b.Packets), elephant)
	}
	if len(s.Flows) < 2 || s.Flows[0].RXQueue != 0 {
		t.Fatalf("flows %+v, want some of both queues", s.Flows)
	}
	i := slices.IndexFunc(s.Flows, func(f Flow) bool { return f.RXQueue == 1 })
	f := s.Flows[i]
	if f.Source != source(7777) || f.Destination != destination || f.Protocol != "udp" || f.Device != "rx0" || f.Bucket != bucketOf(7777, 128) {
		t.Errorf("biggest flow %+v, want udp %v > %v in bucket %d", f, source(7777), destination, bucketOf(7777, 128))
	}
	if off := math64(int64(f.Packets) - elephant); off > f.Error || f.Error > elephant/10 {
		t.Errorf("%d ± %d packets of %d sent", f.Packets, f.Error, elephant)
	}
	if f.Share < 0.62 || f.Share > 0.72 {
		t.Errorf("share %.3f of %.3f", f.Share, float64(elephant)/(elephant+mice))
	}
	if got := float64(f.Bytes) / float64(f.Packets); got != 60 {
		t.Errorf("%.1f bytes per packet, want 60", got)
	}
	if n := len(s.Flows) - i; n > flowsOfQueue {
		t.Errorf("%d flows of a queue, want at most %d", n, flowsOfQueue)
	}
	t.Logf("%d ± %d of %d packets, share %.3f", f.Packets, f.Error, elephant, f.Share)
}

func math64(n int64) uint64 { return uint64(max(n, -n)) }

// TestLiveMoreFlowsThanRoom: memory is bounded, what was forgotten is counted.
func TestLiveMoreFlowsThanRoom(t *testing.T) {
	ns := testnet.New(t)
	dev := newTAP(t, ns, 1)
	r := rss(t, ns, "rx0", 128, 1)
	samples := running(t, Config{FS: ns.FS(), Level: 2, RSS: func() []RSS { return []RSS{r} }, FlowRate: 1,
		LoadSpread: func(o bpf.SpreadOptions) (SpreadPrograms, error) { o.Flows = 256; return loadSpread(o) }})
	meanwhile(t, func() {
		for port := range 5000 {
			send(t, dev, 0, datagram(uint16(1024+port)), 2)
		}
	})
	s := until(t, samples, "all packets and what was forgotten", func(s *Sample) bool { return seen(s, 10000) && s.Lost[ForgottenFlows] > 0 })
	if len(s.Flows) == 0 || len(s.Flows) > flowsOfQueue {
		t.Errorf("%d flows, want 1…%d", len(s.Flows), flowsOfQueue)
	}
	if lost := s.Lost[ForgottenFlows] + s.Lost[LostFlows]; lost > 10000 {
		t.Errorf("%d of 10000 samples lost", lost)
	}
}

// bounded knows how many packets a window saw at least and at most: how many were sent is read within it and around it.
type bounded struct {
	SpreadPrograms
	sent         *atomic.Int64
	before, from int64 // it began
	to, after    int64 // it was read last
}

func (p *bounded) begin(begin func() error) error {
	before := p.sent.Load()
	err := begin()
	p.before, p.from = before, p.sent.Load()
	return err
}

func (p *bounded) Attach() error { return p.begin(p.SpreadPrograms.Attach) }

func (p *bounded) SetOn(on bool) error {
	if !on {
		return p.SpreadPrograms.SetOn(on)
	}
	return p.begin(func() error { return p.SpreadPrograms.SetOn(on) })
}

func (p *bounded) Read(c *bpf.SpreadCounters) error {
	p.to = p.sent.Load()
	err := p.SpreadPrograms.Read(c)
	p.after = p.sent.Load()
	return err
}

// TestLiveWindowOfBuckets asks for a window while Run is at it, as the closed loop does.
func TestLiveWindowOfBuckets(t *testing.T) { testnet.Undisturbed(t, liveWindowOfBuckets) }

func liveWindowOfBuckets(t testing.TB) {
	ns := testnet.New(t)
	dev := newTAP(t, ns, 2)
	r := rss(t, ns, "rx0", 64, 2)
	ring := NewRing(10)
	var sent atomic.Int64
	var programs *bounded
	s := New(Config{FS: ns.FS(), Level: 1, Interval: 20 * time.Millisecond, Ring: ring, LoadSpread: func(o bpf.SpreadOptions) (SpreadPrograms, error) {
		p, err := loadSpread(o)
		programs = &bounded{SpreadPrograms: p, sent: &sent}
		return programs, err
	}})
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	defer func() {
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}()
	<-s.Ready()
	over := make(chan struct{})
	sender := make(chan error, 1)
	go func() {
		for port := uint16(1024); ; port++ {
			select {
			case <-over:
				sender <- nil
				return
			default:
			}
			if err := dev.Inject(int(port%2), datagram(1024+port%200)); err != nil {
				sender <- err
				return
			}
			sent.Add(1)
		}
	}()
	known := func() bool {
		c := s.costs.Load()
		return c != nil && (*c)[costKey{r.Netns, r.IfIndex, -1}] > 0
	}
	for deadline := time.Now().Add(time.Minute); !known(); {
		if time.Now().After(deadline) {
			t.Fatal("no sample with polls of the device")
		}
		time.Sleep(time.Millisecond)
	}
	deadline := time.Now().Add(time.Minute)
	for i := 0; i < 3; {
		begun := time.Now()
		b, err := s.Buckets(ctx, r, 100*time.Millisecond)
		if err != nil {
			t.Fatal(err)
		}
		var sum, ns64 uint64
		for i := range b.Packets {
			sum += b.Packets[i]
			ns64 += b.Time[i]
		}
		if b.Hash != HashExact || sum != b.Seen || b.Seen > 0 && ns64 == 0 || b.Unhashed != 0 || b.Window < 100*time.Millisecond || b.Window > time.Minute {
			t.Errorf("window %d: %s hash, %d packets in buckets of %d seen, %d ns, %v long", i, b.Hash, sum, b.Seen, ns64, b.Window)
		}
		t.Logf("window %d: %d packets, answered after %v", i, b.Seen, time.Since(begun))
		const underway = 64 // at each end: sent and not yet polled, or polled and not yet counted here
		if least, most := programs.to-programs.from-underway, programs.after-programs.before+underway; int64(b.Seen) < least || int64(b.Seen) > most {
			t.Errorf("window %d: %d packets seen, %d to %d were sent", i, b.Seen, least, most)
		}
		switch {
		case b.Seen > 0: // else none was sent: a busy machine did not let the sender run
			i++
		case time.Now().After(deadline):
			t.Fatalf("packets in %d windows only", i)
		}
	}
	short, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	b, err := s.Buckets(short, r, time.Minute)
	if !errors.Is(err, context.DeadlineExceeded) || b == nil || b.Seen == 0 {
		t.Errorf("cut off: %+v, %v; want what was seen until then and the context's error", b, err)
	}
	close(over)
	if err := <-sender; err != nil {
		t.Error(err)
	}
}

// TestLiveSettingsThatChange: what was counted by another rule than the card's is left out and said.
func TestLiveSettingsThatChange(t *testing.T) {
	ns := testnet.New(t)
	dev := newTAP(t, ns, 2)
	r := rss(t, ns, "rx0", 64, 2)
	var now atomic.Pointer[[]RSS]
	now.Store(&[]RSS{r})
	samples := running(t, Config{FS: ns.FS(), Level: 2, RSS: func() []RSS { return *now.Load() }, FlowRate: 1})
	until(t, samples, "the device", func(s *Sample) bool { return seen(s, 0) })

	bigger := rss(t, ns, "rx0", 4096, 2) // more than the maps have room for
	now.Store(&[]RSS{bigger})
	until(t, samples, "the change", func(s *Sample) bool { return said(s, "buckets of rx0", "its RSS settings changed") })
	send(t, dev, 0, datagram(2000), 50)
	s := until(t, samples, "packets in the bigger table", func(s *Sample) bool { return seen(s, 50) })
	if got := s.Buckets[0].Packets; len(got) != 4096 || got[bucketOf(2000, 4096)] != 50 {
		t.Errorf("%d buckets, %d packets in that of the flow, want 4096 and 50", len(got), got[bucketOf(2000, len(got))])
	}

	renamed := bigger
	renamed.Device, renamed.Table = "lan0", slices.Repeat([]int{1}, 4096)
	now.Store(&[]RSS{renamed})
	until(t, samples, "the new name", func(s *Sample) bool { return len(s.Buckets) > 0 && s.Buckets[0].Device == "lan0" })
	now.Store(&[]RSS{})
	s = until(t, samples, "its end", func(s *Sample) bool { return said(s, "buckets of lan0", "vanished") })
	if len(s.Buckets) == 0 {
		t.Error("what was counted before it vanished is lost")
	}
}

// TestLiveOwnerOfAFlow: the process at a flow's end is named.
func TestLiveOwnerOfAFlow(t *testing.T) {
	ns := testnet.New(t)
	dev := newTAP(t, ns, 1)
	if err := ns.Addr("rx0", "10.9.1.1/16"); err != nil {
		t.Fatal(err)
	}
	var conn net.PacketConn
	err := ns.Do(func() (err error) {
		conn, err = net.ListenPacket("udp", ":5000")
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	r := rss(t, ns, "rx0", 64, 1)
	samples := running(t, Config{FS: ns.FS(), Level: 2, RSS: func() []RSS { return []RSS{r} }, FlowRate: 1,
		Sockets: func(limit int) (all []sockdiag.Socket, err error) {
			err = ns.Do(func() error { all, err = sockdiag.Sockets(limit); return err })
			return all, err
		}})
	send(t, dev, 0, datagram(6000), 100)
	s := until(t, samples, "the flow", func(s *Sample) bool { return len(s.Flows) > 0 && s.Flows[0].Packets >= 100 })
	if f := s.Flows[0]; f.PID != os.Getpid() || f.Process == "" || f.ConsumerCPU != -1 {
		t.Errorf("owner %d %q on CPU %d, want this test, which has several threads", f.PID, f.Process, f.ConsumerCPU)
	}
}

// TestLiveOwnerInAnotherNamespace: a flow that is passed on to a container is that of the process there, over IPv4 and IPv6.
func TestLiveOwnerInAnotherNamespace(t *testing.T) {
	ns, container := testnet.New(t), testnet.New(t)
	if err := errors.Join(container.IP("link", "set", "lo", "up"), container.Addr("lo", "10.9.2.2/32"), container.Addr("lo", "fd00::2/128")); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := container.Command(ctx, exe, "-test.run", "^TestServesInAContainer$")
	cmd.Env = append(os.Environ(), "RXSTEER_TEST_SERVES=1")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { stop(); cmd.Wait() }() // it is killed
	if line, err := bufio.NewReader(out).ReadString('\n'); line != "ready\n" {
		t.Fatalf("the container says %q, %v", line, err)
	}
	flows := make([]Flow, 2)
	for i, to := range []string{"10.9.2.2:5000", "[fd00::2]:5000"} {
		dst := netip.MustParseAddrPort(to)
		flows[i] = Flow{Netns: ns.Inode(), Protocol: "udp", Source: netip.AddrPortFrom(dst.Addr().Prev(), 6000), Destination: dst, ConsumerCPU: -1}
	}
	c := New(Config{FS: ns.FS(),
		Sockets: func(limit int) (all []sockdiag.Socket, err error) {
			err = ns.Do(func() error { all, err = sockdiag.Sockets(limit); return err })
			return all, err
		},
		SocketsIn: func(netns string, limit int) (all []sockdiag.Socket, err error) {
			err = sockdiag.In(netns, func() error { all, err = sockdiag.Sockets(limit); return err })
			return all, err
		}}).cfg
	var o ownerSource
	o.tell(flows, &c)
	for _, f := range flows {
		if f.PID != cmd.Process.Pid || f.Process == "" {
			t.Errorf("%v: owner %d %q, want %d", f.Destination, f.PID, f.Process, cmd.Process.Pid)
		}
	}
	c.SocketsIn = nil
	o, flows[0].PID = ownerSource{}, 0
	if o.tell(flows[:1], &c); flows[0].PID != 0 {
		t.Errorf("owner %d, but no other namespace was looked into", flows[0].PID)
	}
}

// TestServesInAContainer is the process in the container of the test above.
func TestServesInAContainer(t *testing.T) {
	if os.Getenv("RXSTEER_TEST_SERVES") == "" {
		return
	}
	for _, at := range []string{"10.9.2.2:5000", "[fd00::2]:5000"} {
		conn, err := net.ListenPacket("udp", at)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
	}
	fmt.Println("ready")
	select {}
}

func TestOwnersCPUIsTakenOfSingleThreadsOnly(t *testing.T) {
	stat := func(threads, cpu int) files {
		return files{"/proc/7/stat": fmt.Sprintf("7 (a b) c) S 1 7 7 0 -1 0 0 0 0 0 0 0 0 0 20 0 %d 0 100 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 17 %d 0 0\n", threads, cpu)}
	}
	for _, tt := range []struct {
		threads, cpu int
		want         owner
	}{{1, 3, owner{7, "a b) c", 3}}, {2, 3, owner{7, "a b) c", -1}}} {
		if got := readOwner(stat(tt.threads, tt.cpu), "/proc/7", 7); got != tt.want {
			t.Errorf("%d threads: %+v, want %+v", tt.threads, got, tt.want)
		}
	}
	for _, text := range []string{"", "7", "7 (x", "7 (x) S 1", "7 )x( S"} {
		if got := readOwner(files{"/proc/7/stat": text}, "/proc/7", 7); got.cpu != -1 || got.pid != 7 {
			t.Errorf("of %q: %+v", text, got)
		}
	}
}

func TestMergeOfBucketsAndFlows(t *testing.T) {
	flow := func(port uint16, packets, e uint64, share float64) Flow {
		return Flow{Netns: 1, IfIndex: 2, Device: "eth0", RXQueue: 3, Protocol: "udp", Source: source(port), Destination: destination, Bucket: -1, Packets: packets, Bytes: 100 * packets, Error: e, Share: share, ConsumerCPU: -1}
	}
	buckets := func(n ...uint64) DeviceBuckets {
		b := DeviceBuckets{Netns: 1, IfIndex: 2, Device: "eth0", Hash: HashExact, Packets: n, Bytes: slices.Clone(n), Window: time.Second, Agreed: 3, Compared: 4, Classes: []Class{{Class: "udp4", Packets: 5}}}
		for _, p := range n {
			b.Seen += p
		}
		return b
	}
	a := &Sample{Buckets: []DeviceBuckets{buckets(1, 2)}, Flows: []Flow{flow(1, 600, 30, 0.6), flow(2, 100, 10, 0.1)}}
	b := &Sample{Buckets: []DeviceBuckets{buckets(10, 20)}, Flows: []Flow{flow(1, 200, 40, 0.2)}}
	m := Merge(a, b)
	want := buckets(11, 22)
	want.Window, want.Agreed, want.Compared, want.Classes[0].Packets = 2*time.Second, 6, 8, 10
	if diff := cmp.Diff([]DeviceBuckets{want}, m.Buckets, cmp.AllowUnexported(DeviceBuckets{})); diff != "" {
		t.Errorf("buckets, -want +got:\n%s", diff)
	}
	if diff := cmp.Diff([]Flow{flow(1, 800, 50, 0.4), flow(2, 100, 10, 0.05)}, m.Flows, cmp.Comparer(func(a, b netip.AddrPort) bool { return a == b })); diff != "" {
		t.Errorf("flows, -want +got:\n%s", diff)
	}
	if a.Buckets[0].Packets[0] != 1 || a.Buckets[0].Classes[0].Packets != 5 {
		t.Error("merging changed a sample")
	}
	c := &Sample{Buckets: []DeviceBuckets{buckets(1, 2, 3, 4)}}
	if m := Merge(a, b, c); len(m.Buckets[0].Packets) != 4 || m.Buckets[0].Seen != 10 || !said(m, "buckets of eth0", "settings changed") {
		t.Errorf("tables of 2 and 4 entries: %+v, %v", m.Buckets, m.Unmeasured)
	}
	watched := &Sample{Interval: time.Second, Buckets: []DeviceBuckets{buckets(10, 20)}, Flows: []Flow{flow(1, 600, 30, 0.6)}}
	if m := Merge(watched, &Sample{Interval: 2 * time.Second}); m.Flows[0].Packets != 1800 || m.Flows[0].Error != 90 || m.Flows[0].Share != 0.6 {
		t.Errorf("one second of three was watched: %+v", m.Flows[0])
	}
	if m := Merge(watched, &Sample{Interval: 2 * time.Second}); m.Buckets[0].Packets[0] != 30 || m.Buckets[0].Seen != 30 || m.Buckets[0].Classes[0].Packets != 15 {
		t.Errorf("one second of three was watched: %+v", m.Buckets[0])
	}
	if m := Merge(&Sample{}); m.Buckets != nil || m.Flows != nil {
		t.Errorf("level 1: buckets %v, flows %v, want none", m.Buckets, m.Flows)
	}
}

func TestCountsOfAWindowAreScaled(t *testing.T) {
	b := DeviceBuckets{Packets: []uint64{10, 0}, Bytes: []uint64{1000, 0}, Seen: 10, Window: 100 * time.Millisecond, Classes: []Class{{Packets: 10}}}
	b.scale(time.Second)
	if b.Packets[0] != 100 || b.Bytes[0] != 10000 || b.Seen != 10 || b.Classes[0].Packets != 100 {
		t.Errorf("scaled: %+v", b)
	}
	w := spreadWindow{rate: 10, window: 100 * time.Millisecond, flows: []flowCount{{flowID: flowID{protocol: 17}, packets: 100, bytes: 6000}}}
	f := w.top(time.Second, func(uint64, int) string { return "" })[0]
	if f.Packets != 10000 || f.Bytes != 600000 || f.Error < 1850 || f.Error > 1870 { // 1.96 · √(100 · 0.9) · 100
		t.Errorf("flow: %+v", f)
	}
}

func TestRSSOfASnapshot(t *testing.T) {
	set := func(k knob.Kind, target knob.Target, v knob.Value) knob.Setting {
		return knob.Setting{Ref: knob.Ref{Knob: k, Target: target}, Value: v}
	}
	s := &knob.Snapshot{Host: knob.Identity{Netns: 9}, Devices: []knob.Device{{Name: "eth0", IfIndex: 2}, {Name: "tap0", IfIndex: 3}}, Settings: []knob.Setting{
		set(knob.RSSTable, "eth0", knob.List([]int{0, 1})), set(knob.RSSKey, "eth0", knob.Text("6d:5a")), set(knob.RSSFunction, "eth0", knob.Text("toeplitz")),
		set(knob.RSSXfrm, "eth0", knob.Text("symmetric-xor")), set(knob.RSSHashFields, "eth0 udp4", knob.Text("sd")), set(knob.RSSHashFields, "eth0 tcp4", knob.Text("sdfn")),
		set(knob.FeaturesFixed, "eth0", knob.Fields(map[string]any{"rx-hashing": true})), set(knob.RSSTable, "tap0", knob.Absent("the device has no indirection table"))}}
	s.Sort()
	got, ok := RSSOf(s, "eth0")
	want := RSS{Netns: 9, IfIndex: 2, Device: "eth0", Table: []int{0, 1}, Key: []byte{0x6d, 0x5a}, Function: "toeplitz", Transform: toeplitz.SymmetricXOR,
		Fields: map[string]string{"udp4": "sd", "tcp4": "sdfn"}, RXHash: true}
	if diff := cmp.Diff(want, got); diff != "" || !ok {
		t.Errorf("%v, -want +got:\n%s", ok, diff)
	}
	if !got.exact() {
		t.Error("key, function and fields are told, but the hash is not taken for exact")
	}
	fields := map[string]string{}
	for _, flow := range bpf.FlowTypeNames {
		fields[flow] = got.fields(flow)
	}
	if want := map[string]string{"tcp4": "sdfn", "udp4": "sd", "sctp4": "sd", "ip4": "sd", "tcp6": "", "udp6": "", "sctp6": "", "ip6": ""}; !maps.Equal(want, fields) {
		t.Errorf("fields %v, want %v", fields, want)
	}
	if got, ok := RSSOf(s, "tap0"); !ok || got.Table != nil || got.exact() {
		t.Errorf("a device without a table: %+v, %v", got, ok)
	}
	if _, ok := RSSOf(s, "eth9"); ok {
		t.Error("a device that is not there was found")
	}
	for letters, exact := range map[string]bool{"sdfn": true, "s": false, "": true, "sdf": false} {
		r := want
		r.Fields = map[string]string{"udp4": letters, "tcp4": "sdfn"}
		if r.exact() != exact {
			t.Errorf("udp4 by %q: exact %v", letters, !exact)
		}
	}
}

// Where little comes each packet is looked at, so that a few seconds tell every bucket; where much does one in 64.
func TestFlowRateFollowsTheTraffic(t *testing.T) {
	perSecond := func(packets ...uint64) *Sample {
		s := &Sample{Interval: 2 * time.Second}
		for _, n := range packets {
			s.Devices = append(s.Devices, Device{RXPackets: 2 * n})
		}
		return s
	}
	for _, tt := range []struct {
		what string
		set  int
		last *Sample
		want int
	}{
		{"nothing known", 0, nil, 64},
		{"nothing received", 0, perSecond(), 1},
		{"a slow guest", 0, perSecond(6000, 100), 1},
		{"ten times as much as need be looked at", 0, perSecond(100, 100_000), 10},
		{"a fast card", 0, perSecond(5_000_000), 64},
		{"it is set", 16, perSecond(6000), 16},
	} {
		if got := New(Config{FlowRate: tt.set}).flowRate(tt.last); got != tt.want {
			t.Errorf("%s: one in %d, want one in %d", tt.what, got, tt.want)
		}
	}
}

// The programs are told a rate only when it changes.
func TestLookChangesTheRateOnce(t *testing.T) {
	p := &ratedPrograms{}
	w := spreadSource{programs: p, rate: 64}
	for _, rate := range []int{64, 4, 4, 1} {
		if err := w.look(rate); err != nil || w.rate != rate {
			t.Errorf("look %d: rate %d, %v", rate, w.rate, err)
		}
	}
	if want := []int{4, 1}; !slices.Equal(p.rates, want) {
		t.Errorf("the programs were set to %v, want %v", p.rates, want)
	}
}

type ratedPrograms struct {
	SpreadPrograms
	rates []int
}

func (p *ratedPrograms) SetRates(every, _ int) error { p.rates = append(p.rates, every); return nil }

// TestSharesOfFewPackets: of few packets the shares are nearer to the truth than the counts are, of many they are the counts,
// and a bucket that carries most of all stays that.
func TestSharesOfFewPackets(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	const buckets = 128
	truth := make([]float64, buckets)
	for i := range truth {
		truth[i] = (0.5 + float64(i%4)/3) / buckets // 0.5 to 1.5 times the mean
	}
	draw := func(truth []float64, n int) DeviceBuckets {
		b := DeviceBuckets{Packets: make([]uint64, len(truth)), Rate: 8, Seen: uint64(n)}
		for range n {
			x, i := r.Float64(), 0
			for ; i < len(truth)-1 && x >= truth[i]; i++ {
				x -= truth[i]
			}
			b.Packets[i] += 8
		}
		return b
	}
	off := func(got []float64) (sum float64) {
		for i := range got {
			sum += (got[i] - truth[i]) * (got[i] - truth[i])
		}
		return sum
	}
	for _, n := range []int{100, 300, 1000, 100000} {
		var raw, shrunk, trusted float64
		const rounds = 50
		for range rounds {
			b := draw(truth, n)
			counts := make([]float64, buckets)
			for i, p := range b.Packets {
				counts[i] = float64(p) / float64(8*n)
			}
			shares, trust := b.Shares()
			raw, shrunk, trusted = raw+off(counts), shrunk+off(shares), trusted+trust/rounds
		}
		if shrunk > raw || n <= 300 && shrunk > raw/2 {
			t.Errorf("%d packets: squares of errors %.3g of the shares, %.3g of the counts", n, shrunk, raw)
		}
		if n >= 100000 && trusted < 0.98 || n <= 100 && trusted > 0.5 {
			t.Errorf("%d packets: %.2f of the differences are trusted", n, trusted)
		}
	}
	elephant := make([]float64, buckets)
	for i := range elephant {
		elephant[i] = 0.3 / (buckets - 1)
	}
	elephant[7] = 0.7
	b := draw(elephant, 200)
	if shares, trust := b.Shares(); shares[7] < 0.6 || trust < 0.9 {
		t.Errorf("an elephant of 0.7 is taken for %.2f, trust %.2f", shares[7], trust)
	}
	if shares, trust := (&DeviceBuckets{Packets: make([]uint64, 4)}).Shares(); shares != nil || trust != 0 {
		t.Errorf("of no packets: %v, %v", shares, trust)
	}
}

// TestLiveDevicesThatMoveAreNamed: a device that is renamed and then moves to another namespace has its packets, stages,
// buckets and flows under the name it has; those of the new place are not counted for the old one, and the end is told.
func TestLiveDevicesThatMoveAreNamed(t *testing.T) { testnet.Undisturbed(t, devicesThatMoveAreNamed) }

func devicesThatMoveAreNamed(t testing.TB) {
	ns, other := testnet.New(t), testnet.New(t)
	dev := newTAP(t, ns, 1)
	r := rss(t, ns, "rx0", 64, 1)
	var name atomic.Pointer[string] // nil: it is gone
	is := "rx0"
	name.Store(&is)
	samples := running(t, Config{FS: ns.FS(), Level: 2, FlowRate: 1, PacketRate: 1, RSS: func() []RSS {
		now := name.Load()
		if now == nil {
			return nil
		}
		r := r
		r.Device = *now
		return []RSS{r}
	}})
	bucketsOf := func(s *Sample, device string) (n uint64) {
		for _, b := range s.Buckets {
			if b.Device == device {
				n += b.Seen
			}
		}
		return n
	}
	stagesOf := func(s *Sample, device string) (n uint64) {
		for _, x := range s.Stages {
			if x.Device == device && x.Stage == GROToStack {
				n += x.Count
			}
		}
		return n
	}
	const n = 60
	send(t, dev, 0, datagram(6000), n)
	until(t, samples, "its packets", func(s *Sample) bool { return bucketsOf(s, "rx0") >= n && stagesOf(s, "rx0") >= n })

	if err := errors.Join(ns.IP("link", "set", "rx0", "down"), ns.IP("link", "set", "rx0", "name", "lan0"), ns.IP("link", "set", "lan0", "up")); err != nil {
		t.Fatal(err)
	}
	renamed := "lan0"
	name.Store(&renamed)
	send(t, dev, 0, datagram(6000), n)
	s := until(t, samples, "its packets under the new name", func(s *Sample) bool {
		return bucketsOf(s, "lan0") >= n && stagesOf(s, "lan0") >= n && packets(s, func(x *NAPI) bool { return x.Device == "lan0" }) >= n
	})
	if got := bucketsOf(s, "lan0"); got > n+10 { // the kernel's own multicast beside ours
		t.Errorf("%d packets in buckets after it was renamed, want %d", got, n)
	}
	for _, f := range s.Flows {
		if f.Device != "lan0" {
			t.Errorf("flow of %q, want lan0's only", f.Device)
		}
	}

	if err := errors.Join(ns.IP("link", "set", "lan0", "netns", other.Name), other.IP("link", "set", "lan0", "up")); err != nil {
		t.Fatal(err)
	}
	name.Store(nil)
	until(t, samples, "its end", func(s *Sample) bool {
		return said(s, "lan0", "vanished") && said(s, "buckets of lan0", "vanished")
	})
	until(t, samples, "a sample without it", func(s *Sample) bool {
		return len(s.Devices) == 1 || !slices.ContainsFunc(s.Devices, func(d Device) bool { return d.Name == "lan0" })
	})
	send(t, dev, 0, datagram(6000), n)
	away := func(x *NAPI) bool { return x.Netns == other.Inode() && x.Device == Foreign }
	s = until(t, samples, "its packets in the other namespace", func(s *Sample) bool { return packets(s, away) >= n })
	if got := packets(s, func(x *NAPI) bool { return x.Netns == ns.Inode() && x.IfIndex == r.IfIndex }); got != 0 {
		t.Errorf("%d packets of it in the namespace that it left", got)
	}
	if got := bucketsOf(s, "lan0"); got != 0 {
		t.Errorf("%d packets in buckets of a device that nobody asked for", got)
	}
}

package bpf

import (
	"encoding/binary"
	"errors"
	"net"
	"slices"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"github.com/rxsteer/rxsteer/internal/testnet"
)

// packets loads and attaches the programs of level 2 until the test ends; every packet is sampled.
func packets(t testing.TB, opts Options) *Packets {
	t.Helper()
	testnet.NeedTun(t)
	p, err := LoadPackets(opts)
	if err != nil {
		t.Fatalf("%+v", err)
	}
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
	if err := errors.Join(p.SetRate(1), p.Attach()); err != nil {
		t.Fatal(err)
	}
	return p
}

func packetCounters(t testing.TB, p *Packets) *PacketCounters {
	t.Helper()
	var c PacketCounters
	if err := p.Read(&c); err != nil {
		t.Fatal(err)
	}
	return &c
}

// of sums a stage of what a namespace's devices received.
func (c *PacketCounters) of(ns *testnet.NS, stage PacketStage, also func(StageKey) bool) (s StageStat) {
	for i, k := range c.StageKeys {
		if k.Netns != uint32(ns.Inode()) || k.Stage != stage || also != nil && !also(k) {
			continue
		}
		s.Count += c.Stages[i].Count
		s.Sum += c.Stages[i].Sum
		for b := range s.Hist {
			s.Hist[b] += c.Stages[i].Hist[b]
		}
	}
	return s
}

func (c *PacketCounters) cpu() (s PacketCPU) {
	for i := range c.CPUs {
		o := &c.CPUs[i]
		s.Sampled += o.Sampled
		s.Overwritten += o.Overwritten
		s.Reused += o.Reused
		s.Dropped += o.Dropped
		s.Unread += o.Unread
		s.Lost += o.Lost
	}
	return s
}

// pair is two namespaces joined by a veth whose far end receives through NAPI.
func pair(t testing.TB) (a, b *testnet.NS) {
	t.Helper()
	a, b = testnet.New(t), testnet.New(t)
	if err := testnet.Connect(a, b, testnet.Veth{AddrA: "10.9.0.1/24", AddrB: "10.9.0.2/24", NAPI: true, StaticNeigh: true}); err != nil {
		t.Fatal(err)
	}
	return a, b
}

// halfSecond is the bucket of 0.5 s: 2^28 ≤ 5·10^8 ns < 2^29. A reader that is late may end in the next.
const halfSecond = 29

func wantDelay(t testing.TB, what string, s StageStat, n uint64, bucket int) {
	t.Helper()
	if got := s.Hist[bucket] + s.Hist[bucket+1]; got != s.Count || s.Count < n {
		t.Errorf("%s: %d of %d in bucket %d (2^%d ns), want all and at least %d: %v", what, got, s.Count, bucket, bucket-1, n, s.Hist)
	}
}

func TestStoppedUDPReaderIsSeen(t *testing.T) { testnet.Undisturbed(t, stoppedUDPReaderIsSeen) }

func stoppedUDPReaderIsSeen(t testing.TB) {
	p := packets(t, Options{})
	a, b := pair(t)
	var sender net.Conn
	var receiver net.PacketConn
	if err := b.Do(func() (err error) { receiver, err = net.ListenPacket("udp", "10.9.0.2:9"); return err }); err != nil {
		t.Fatal(err)
	}
	defer receiver.Close()
	if err := a.Do(func() (err error) { sender, err = net.Dial("udp", "10.9.0.2:9"); return err }); err != nil {
		t.Fatal(err)
	}
	defer sender.Close()
	// Others' packets take slots too, so that some samples are lost: what is seen must be right.
	const n = 12
	buf := make([]byte, 2000)
	var c *PacketCounters
	for try := 0; try < 10 && (c == nil || c.of(b, InAll, nil).Count < n); try++ {
		for range n {
			if _, err := sender.Write(make([]byte, 100)); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(500 * time.Millisecond)
		for range n {
			if _, _, err := receiver.ReadFrom(buf); err != nil {
				t.Fatal(err)
			}
		}
		c = packetCounters(t, p)
	}
	t.Logf("%+v", c.cpu())
	wantDelay(t, "read", c.of(b, ToRead, nil), n, halfSecond)
	wantDelay(t, "total", c.of(b, InAll, nil), n, halfSecond)
	if s := c.of(b, ToStack, nil); s.Count < n || slices.Max(s.Hist[halfSecond-4:]) > 0 {
		t.Errorf("to the stack: %d, %v", s.Count, s.Hist)
	}
}

func TestStoppedTCPReaderIsSeen(t *testing.T) { testnet.Undisturbed(t, stoppedTCPReaderIsSeen) }

func stoppedTCPReaderIsSeen(t testing.TB) {
	p := packets(t, Options{})
	a, b := pair(t)
	var listener net.Listener
	if err := b.Do(func() (err error) { listener, err = net.Listen("tcp", "10.9.0.2:9"); return err }); err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	var sender net.Conn
	if err := a.Do(func() (err error) { sender, err = net.Dial("tcp", "10.9.0.2:9"); return err }); err != nil {
		t.Fatal(err)
	}
	defer sender.Close()
	receiver, err := listener.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer receiver.Close()
	// One at a time: what comes behind another may be merged with it in the queue.
	const n = 3
	buf := make([]byte, 2000)
	var c *PacketCounters
	for try := 0; try < 8*n && (c == nil || c.of(b, InAll, nil).Count < n); try++ {
		if _, err := sender.Write(make([]byte, 100)); err != nil {
			t.Fatal(err)
		}
		time.Sleep(500 * time.Millisecond)
		if _, err := receiver.Read(buf); err != nil {
			t.Fatal(err)
		}
		c = packetCounters(t, p)
	}
	t.Logf("%+v", c.cpu())
	wantDelay(t, "read", c.of(b, ToRead, nil), n, halfSecond)
	wantDelay(t, "total", c.of(b, InAll, nil), n, halfSecond)
	if s := c.of(b, ToSocket, nil); s.Count < n || slices.Max(s.Hist[halfSecond-4:]) > 0 {
		t.Errorf("to the socket: %d, %v", s.Count, s.Hist)
	}
}

// segment is a TCP segment with data to everyone's Ethernet address that GRO holds on to for others of its flow.
func segment(seq uint32) []byte {
	f := make([]byte, 14+20+20+100)
	copy(f, []byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2, 0, 0, 0, 0, 1, 0x08, 0x00})
	ip, tcp := f[14:34], f[34:]
	copy(ip, []byte{0x45, 0, 0, 140, 0, 0, 0x40, 0, 64, 6, 0, 0, 10, 9, 0, 1, 10, 9, 1, 1})
	copy(tcp, []byte{0x10, 0, 0x20, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0x50, 0x10, 0x20, 0})
	binary.BigEndian.PutUint32(tcp[4:], seq)
	sum := func(b []byte, s uint32) uint16 {
		for i := 0; i < len(b); i += 2 {
			s += uint32(b[i])<<8 | uint32(b[i+1])
		}
		for s>>16 > 0 {
			s = s&0xffff + s>>16
		}
		return ^uint16(s)
	}
	binary.BigEndian.PutUint16(ip[10:], sum(ip, 0))
	pseudo := append(append([]byte{}, ip[12:20]...), 0, 6, 0, byte(len(tcp)))
	binary.BigEndian.PutUint16(tcp[16:], sum(append(pseudo, tcp...), 0))
	return f
}

func TestGROFlushTimeoutIsSeen(t *testing.T) { testnet.Undisturbed(t, gROFlushTimeoutIsSeen) }

func gROFlushTimeoutIsSeen(t testing.TB) {
	p := packets(t, Options{})
	ns := testnet.New(t)
	dev := tap(t, ns, 1)
	const n = 20
	inject := func() StageStat {
		t.Helper()
		was := packetCounters(t, p).of(ns, ToStack, nil)
		for i := range n {
			if err := dev.Inject(0, segment(uint32(1+1000*i))); err != nil { // not in sequence: none is merged
				t.Fatal(err)
			}
			time.Sleep(10 * time.Millisecond)
		}
		s := packetCounters(t, p).of(ns, ToStack, nil)
		s.Count -= was.Count
		for b := range s.Hist {
			s.Hist[b] -= was.Hist[b]
		}
		return s
	}
	if s := inject(); s.Count != n || slices.Max(s.Hist[20:]) > n/10 {
		t.Errorf("without a timeout %d arrived: %v", s.Count, s.Hist)
	}
	for file, value := range map[string]string{"gro_flush_timeout": "2000000", "napi_defer_hard_irqs": "2"} {
		if err := ns.FS().WriteFile("/sys/class/net/rx0/"+file, []byte(value)); err != nil {
			t.Fatal(err)
		}
	}
	// 2 ms is in the bucket of 2^20 ≤ ns < 2^21, with the timer's lateness in the next; deferred polls may flush after one or two more.
	s := inject()
	late := s.Hist[21] + s.Hist[22] + s.Hist[23]
	if s.Count != n || late < n*9/10 {
		t.Errorf("with 2 ms %d arrived, %d of them after 1 to 8 ms: %v", s.Count, late, s.Hist)
	}
}

func TestBusyRPSTargetIsSeenWithItsCPUs(t *testing.T) {
	testnet.Undisturbed(t, busyRPSTargetIsSeenWithItsCPUs)
}

func busyRPSTargetIsSeenWithItsCPUs(t testing.TB) {
	needCPUs(t, 2)
	p := packets(t, Options{})
	ns := testnet.New(t)
	dev := tap(t, ns, 1)
	if err := ns.SetRPS("rx0", 0, "2"); err != nil {
		t.Fatal(err)
	}
	const spin, burst, bursts = 100_000, 20, 5
	b := attachBurn(t, ns, "rx0", spin, anyQueue)
	for i := 1; i <= bursts; i++ {
		onCPU(t, 0, func() error {
			for range burst {
				if err := dev.Inject(0, frame(1)); err != nil {
					return err
				}
			}
			return nil
		})
		b.await(t, uint64(i*burst))
	}
	c := packetCounters(t, p)
	hops := c.of(ns, ToStack, func(k StageKey) bool { return k.Cpu == 1 && k.From == 0 })
	all := c.of(ns, ToStack, nil)
	if hops.Count != all.Count || all.Count != burst*bursts {
		t.Errorf("%d hops from CPU 0 to 1 of %d packets, want %d", hops.Count, all.Count, burst*bursts)
	}
	// The k-th of a burst waits for k−1 of 0.1 ms, less what sending took: from the 12th on above 2^20 ns.
	var long uint64
	for _, n := range hops.Hist[21:] {
		long += n
	}
	if long < bursts*(burst-14) || long > bursts*(burst-8) {
		t.Errorf("%d of %d waited 1 ms or more, want about %d: %v", long, hops.Count, bursts*(burst-11), hops.Hist)
	}
	mean := float64(hops.Sum) / float64(hops.Count)
	if mean < 0.7e6 || mean > 1.5e6 {
		t.Errorf("mean wait %.0f ns, want about %d", mean, spin*(burst-1)/2)
	}
}

func TestReusedAndOverwrittenSamplesAreCounted(t *testing.T) {
	testnet.Undisturbed(t, reusedAndOverwrittenSamplesAreCounted)
}

func reusedAndOverwrittenSamplesAreCounted(t testing.TB) {
	p := packets(t, Options{})
	ns := testnet.New(t)
	dev := tap(t, ns, 1)
	// Frames of nobody's are dropped at once: every sample ends as one, and none is taken for another.
	const n = 3000
	for i := range n {
		if err := dev.Inject(0, frame(byte(i))); err != nil {
			t.Fatal(err)
		}
	}
	c := packetCounters(t, p)
	s := c.of(ns, ToStack, nil)
	if s.Count != n || c.cpu().Dropped < n {
		t.Errorf("%d arrived and %d dropped, want %d of both", s.Count, c.cpu().Dropped, n)
	}
	if slices.Max(s.Hist[halfSecond-3:]) > 0 {
		t.Errorf("stages that long are not possible: %v", s.Hist)
	}
	if r := c.of(ns, ToRead, nil); r.Count != 0 {
		t.Errorf("%d reads of what nobody reads", r.Count)
	}
}

func TestFullStageMapIsCounted(t *testing.T) { testnet.Undisturbed(t, fullStageMapIsCounted) }

func fullStageMapIsCounted(t testing.TB) {
	p := packets(t, Options{Stages: 1})
	ns, other := testnet.New(t), testnet.New(t)
	for _, at := range []*testnet.NS{ns, other} {
		dev := tap(t, at, 1)
		for range 50 {
			if err := dev.Inject(0, frame(1)); err != nil {
				t.Fatal(err)
			}
		}
	}
	c := packetCounters(t, p)
	if c.cpu().Lost < 50 || len(c.StageKeys) > 1 {
		t.Errorf("%d lost, %d entries in a map of one", c.cpu().Lost, len(c.StageKeys))
	}
}

func TestOneInRateIsSampled(t *testing.T) { testnet.Undisturbed(t, oneInRateIsSampled) }

func oneInRateIsSampled(t testing.TB) {
	p := packets(t, Options{})
	if err := p.SetRate(16); err != nil {
		t.Fatal(err)
	}
	ns := testnet.New(t)
	dev := tap(t, ns, 1)
	const n = 16000
	onCPU(t, 0, func() error {
		for i := range n {
			if err := dev.Inject(0, frame(byte(i))); err != nil {
				return err
			}
		}
		return nil
	})
	if got := packetCounters(t, p).of(ns, ToStack, nil).Count; got < 850 || got > 1150 {
		t.Errorf("%d of %d sampled, want one in 16", got, n)
	}
	if err := p.SetOn(false); err != nil {
		t.Fatal(err)
	}
	was := packetCounters(t, p).cpu().Sampled
	for range 1000 {
		if err := dev.Inject(0, frame(1)); err != nil {
			t.Fatal(err)
		}
	}
	if now := packetCounters(t, p).cpu().Sampled; now != was {
		t.Errorf("%d sampled while off", now-was)
	}
}

func TestXDPOutcomesAreCounted(t *testing.T) { testnet.Undisturbed(t, xDPOutcomesAreCounted) }

func xDPOutcomesAreCounted(t testing.TB) {
	p := packets(t, Options{})
	ns := testnet.New(t)
	dev := tap(t, ns, 1)
	index, err := ns.IfIndex("rx0")
	if err != nil {
		t.Fatal(err)
	}
	const aborted = 0 // XDP_ABORTED
	prog, err := ebpf.NewProgram(&ebpf.ProgramSpec{Name: "abort", Type: ebpf.XDP, License: "GPL",
		Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, aborted), asm.Return()}})
	if err != nil {
		t.Fatal(err)
	}
	defer prog.Close()
	err = ns.Do(func() error {
		l, err := link.AttachXDP(link.XDPOptions{Program: prog, Interface: index})
		if err == nil {
			t.Cleanup(func() { l.Close() })
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	const n = 30
	for range n {
		if err := dev.Inject(0, frame(1)); err != nil && !errors.Is(err, unix.EINVAL) {
			t.Fatal(err)
		}
	}
	c := packetCounters(t, p)
	var got uint64
	for i, k := range c.XDPKeys {
		if k.Netns == uint32(ns.Inode()) && k.Ifindex == uint32(index) && k.Outcome == XDPRaised {
			got += c.XDPs[i]
		}
	}
	if got != n {
		t.Errorf("%d aborted, want %d: %+v %v", got, n, c.XDPKeys, c.XDPs)
	}
	if s := c.of(ns, ToStack, nil); s.Count != 0 {
		t.Errorf("%d reached the stack", s.Count)
	}
}

// A port that nobody listens on, and a socket that is full, are told apart by the running kernel's own names.
func TestDropsHaveTheKernelsReasons(t *testing.T) { testnet.Undisturbed(t, dropsHaveTheKernelsReasons) }

func dropsHaveTheKernelsReasons(t testing.TB) {
	p := packets(t, Options{})
	if p.reasons == nil {
		t.Skip("this kernel's kfree_skb tells no reason (Linux 5.17 does)")
	}
	ns := testnet.New(t)
	tap(t, ns, 1)
	const n = 40
	send := func(port int) {
		err := ns.Do(func() error {
			s, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM, 0)
			if err != nil {
				return err
			}
			defer unix.Close(s)
			for range n {
				// A port nobody listens on answers by ICMP, which the next send reports.
				err := unix.Sendto(s, make([]byte, 512), 0, &unix.SockaddrInet4{Port: port, Addr: [4]byte{127, 0, 0, 1}})
				if err != nil && !errors.Is(err, unix.ECONNREFUSED) {
					return err
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	var port, full int
	err := ns.Do(func() (err error) {
		if full, err = unix.Socket(unix.AF_INET, unix.SOCK_DGRAM, 0); err != nil {
			return err
		}
		t.Cleanup(func() { unix.Close(full) })
		if err = unix.SetsockoptInt(full, unix.SOL_SOCKET, unix.SO_RCVBUF, 1); err != nil { // the least there is: 2304 bytes
			return err
		}
		if err = unix.Bind(full, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
			return err
		}
		name, err := unix.Getsockname(full)
		if err == nil {
			port = name.(*unix.SockaddrInet4).Port
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	dropped := func(reason string) (sum uint64) {
		c := packetCounters(t, p)
		for i, k := range c.DropKeys {
			if c.Reasons[k.Reason] == reason && k.Received != 0 {
				sum += c.Drops[i]
			}
		}
		return sum
	}
	for _, tc := range []struct {
		reason string
		port   int
		least  uint64
	}{{"NO_SOCKET", port ^ 1, n}, {"SOCKET_RCVBUFF", port, n - 10}} {
		before := dropped(tc.reason)
		send(tc.port)
		// Others may drop as well: at least ours.
		got := dropped(tc.reason) - before
		if got < tc.least {
			c := packetCounters(t, p)
			t.Errorf("%d packets dropped for %s, want %d or more: %+v %v", got, tc.reason, tc.least, c.DropKeys, c.Drops)
		}
	}
}

package bpf

import (
	"errors"
	"fmt"
	"math"
	"net"
	"os"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/rxsteer/rxsteer/internal/host"
	"github.com/rxsteer/rxsteer/internal/host/procfs"
	"github.com/rxsteer/rxsteer/internal/testnet"
)

// attached loads and attaches the programs until the test ends.
func attached(t testing.TB, opts Options) *Programs {
	t.Helper()
	testnet.NeedTun(t)
	p, err := Load(opts)
	if err != nil {
		t.Fatalf("%+v", err)
	}
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
	if err := p.Attach(); err != nil {
		t.Fatal(err)
	}
	return p
}

func counters(t testing.TB, p *Programs) *Counters {
	t.Helper()
	var c Counters
	if err := p.Read(&c); err != nil {
		t.Fatal(err)
	}
	return &c
}

// sum adds up the counters of the pairs that match.
func (c *Counters) sum(match func(k NAPIKey) bool) (s NAPIStat) {
	for i, k := range c.NAPIKeys {
		if !match(k) {
			continue
		}
		n := &c.NAPIs[i]
		s.Polls += n.Polls
		s.Packets += n.Packets
		s.Time += n.Time
		s.FullBudget += n.FullBudget
		s.Empty += n.Empty
		s.BusyPolls += n.BusyPolls
		for b := range n.TimeHist {
			s.TimeHist[b] += n.TimeHist[b]
		}
		for b := range n.WorkHist {
			s.WorkHist[b] += n.WorkHist[b]
		}
	}
	return s
}

func of(ns *testnet.NS) func(NAPIKey) bool {
	inode := uint32(ns.Inode())
	return func(k NAPIKey) bool { return k.Netns == inode }
}

func backlog(cpu int) func(NAPIKey) bool {
	return func(k NAPIKey) bool { return k.Ifindex == 0 && k.Cpu == uint32(cpu) }
}

func tap(t testing.TB, ns *testnet.NS, queues int) *testnet.TAP {
	t.Helper()
	dev, err := ns.NewTAP("rx0", queues)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { dev.Close() })
	return dev
}

// await waits until the burn has seen that many packets in all.
func (b *burn) await(t testing.TB, packets uint64) {
	t.Helper()
	var seen uint64
	defer func() {
		if seen < packets {
			softnet, _ := os.ReadFile("/proc/net/softnet_stat")
			t.Logf("%d of %d packets came; softnet_stat:\n%s", seen, packets, softnet)
		}
	}()
	await(t, "the packets", func() bool {
		_, seen = b.read(t)
		return seen >= packets
	})
}

// await calls try until it reports true; the deadline is for a broken machine. It
// leaves the CPUs idle in between, as one test needs them.
func await(t testing.TB, what string, try func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !try(); {
		if time.Now().After(deadline) {
			t.Fatalf("never saw %s", what)
		}
		time.Sleep(100 * time.Microsecond)
	}
}

func TestBurnShowsOnTheRightNAPIAndOnlyThere(t *testing.T) {
	testnet.Undisturbed(t, burnShowsOnTheRightNAPIAndOnlyThere)
}

func burnShowsOnTheRightNAPIAndOnlyThere(t testing.TB) {
	p := attached(t, Options{})
	ns := testnet.New(t)
	dev := tap(t, ns, 3)
	const spin, burnt, idle, others = 40_000, 2000, 1500, 700
	b := attachBurn(t, ns, "rx0", spin, 1)
	const cpu = 0
	onCPU(t, cpu, func() error {
		for i := range burnt {
			for queue, n := range []int{idle, burnt, others} {
				if i >= n {
					continue
				}
				if err := dev.Inject(queue, frame(byte(i))); err != nil {
					return err
				}
			}
		}
		return nil
	})
	c := counters(t, p)
	spun, packets := b.read(t)
	if packets != burnt {
		t.Fatalf("the burn saw %d packets of its queue, want %d", packets, burnt)
	}

	queues := map[uint64]*NAPIStat{} // by packets, which tell the queues apart: tun has no NAPI IDs
	inside := of(ns)
	for i, k := range c.NAPIKeys {
		if !inside(k) {
			continue
		}
		s := &c.NAPIs[i]
		if k.Cpu != cpu {
			t.Errorf("CPU %d polled, the injecting CPU was %d", k.Cpu, cpu)
		}
		if s.Device() != "rx0" {
			t.Errorf("device of a NAPI is %q, want rx0", s.Device())
		}
		queues[s.Packets] = s
	}
	hot, cold, third := queues[burnt], queues[idle], queues[others]
	if hot == nil || cold == nil || third == nil || len(queues) != 3 {
		t.Fatalf("packets per NAPI are not %d, %d and %d: %+v", burnt, idle, others, queues)
	}
	// What a packet costs without the burn, from the queue that had none.
	plain := float64(cold.Time) / idle * burnt
	ratio := (float64(hot.Time) - plain) / float64(spun)
	t.Logf("burnt %d ns, its NAPI shows %d ns of which %.0f without the burn: ratio %.4f", spun, hot.Time, plain, ratio)
	if math.Abs(ratio-1) > 0.03 {
		t.Errorf("time on the burning NAPI is %.4f of what was burnt, want it within 3 %%", ratio)
	}
	if cold.Time+third.Time > spun/10 {
		t.Errorf("the other NAPIs have %d and %d ns of %d burnt", cold.Time, third.Time, spun)
	}
	// 2^15 ≤ 40,000 < 2^16 ns: bucket 16 and, where disturbed, above.
	var fast uint64
	for _, n := range hot.TimeHist[:16] {
		fast += n
	}
	if fast > 0 {
		t.Errorf("%d polls took less than their burn: %v", fast, hot.TimeHist)
	}
	if n := hot.WorkHist[1]; n != burnt {
		t.Errorf("%d polls of one packet, want %d: %v", n, burnt, hot.WorkHist)
	}
}

func TestRPSMovesTheBurnToTheBacklogOfItsCPU(t *testing.T) {
	needCPUs(t, 2)
	p := attached(t, Options{})
	ns := testnet.New(t)
	dev := tap(t, ns, 1)
	if err := ns.SetRPS("rx0", 0, "2"); err != nil {
		t.Fatal(err)
	}
	const packets, burst = 1600, 80 // a burst stays below net.core.netdev_max_backlog
	measure := func(t *testing.T, spin int32) (took, spun uint64, whole bool) {
		b := attachBurn(t, ns, "rx0", spin, anyQueue)
		before := counters(t, p).sum(backlog(1))
		for n := burst; n <= packets; n += burst {
			onCPU(t, 0, func() error {
				for range burst {
					if err := dev.Inject(0, frame(1)); err != nil {
						return err
					}
				}
				return nil
			})
			b.await(t, uint64(n))
		}
		var after NAPIStat
		await(t, "the end of the last run", func() bool {
			c := counters(t, p)
			after = c.sum(backlog(1))
			return c.CPUs[1].Mark == 0
		})
		n := after.Packets - before.Packets
		if n != packets {
			t.Logf("%d packets counted on the backlog of %d: a round of no use", n, packets)
		}
		spun, _ = b.read(t)
		return after.Time - before.Time, spun, n == packets
	}
	// Where CPU 1 is contended, 6.18 does not call the programs in some runs
	// (docs/known-issues.md), and others' traffic over lo shares the backlog.
	// The packets tell: only a round that counted just ours is judged.
	const rounds = 12
	for round := 1; ; round++ {
		var plain, plainSpun, took, spun uint64
		var whole, wholeSpun bool
		ok := t.Run("without", func(t *testing.T) { plain, plainSpun, whole = measure(t, 0) }) &&
			t.Run("with", func(t *testing.T) { took, spun, wholeSpun = measure(t, 40_000) })
		if !ok {
			return
		}
		if s := counters(t, p).sum(of(ns)); s.Packets != uint64(2*packets*round) || s.Time > uint64(round)*spun/4 {
			t.Errorf("the tap's NAPI has %d packets and %d ns, want %d packets and little of %d ns", s.Packets, s.Time, 2*packets*round, spun)
		}
		ratio := (float64(took) - float64(plain)) / float64(spun-plainSpun)
		t.Logf("burnt %d ns, the backlog of CPU 1 shows %d ns of which %d without the burn: ratio %.4f", spun, took, plain, ratio)
		switch {
		case whole && wholeSpun && math.Abs(ratio-1) <= 0.03:
			return
		case round == rounds:
			t.Fatalf("in no round of %d the packets sent and no others were counted, and within 3 %% of the time that they burnt", rounds)
		}
	}
}

func TestVethIsNamedByItsNAPI(t *testing.T) {
	p := attached(t, Options{})
	a, b := testnet.New(t), testnet.New(t)
	if err := testnet.Connect(a, b, testnet.Veth{AddrA: "10.9.0.1/24", AddrB: "10.9.0.2/24", NAPI: true, StaticNeigh: true}); err != nil {
		t.Fatal(err)
	}
	index, err := b.IfIndex("b0")
	if err != nil {
		t.Fatal(err)
	}
	var conn net.Conn
	if err := a.Do(func() (err error) { conn, err = net.Dial("udp", "10.9.0.2:9"); return err }); err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	inside := of(b)
	await(t, "packets through the veth's NAPI", func() bool {
		_, _ = conn.Write([]byte("x")) // refused once the answer to the first came
		c := counters(t, p)
		for i, k := range c.NAPIKeys {
			if !inside(k) {
				continue
			}
			if k.NapiId == 0 || k.Ifindex != uint32(index) || c.NAPIs[i].Device() != "b0" {
				t.Fatalf("key %+v of %q, want a NAPI ID, ifindex %d and b0", k, c.NAPIs[i].Device(), index)
			}
			return c.NAPIs[i].Packets > 10
		}
		return false
	})
}

func needCPUs(t testing.TB, n int) {
	t.Helper()
	if runtime.NumCPU() < n {
		t.Skipf("needs %d CPUs", n)
	}
}

// flood has more packets queue up on CPU 1 than a poll may take, until enough.
func flood(t testing.TB, p *Programs, enough func(before, after *Counters) bool) (before, after *Counters) {
	t.Helper()
	needCPUs(t, 2)
	ns := testnet.New(t)
	dev := tap(t, ns, 1)
	b := attachBurn(t, ns, "rx0", 50_000, anyQueue)
	if err := ns.SetRPS("rx0", 0, "2"); err != nil {
		t.Fatal(err)
	}
	before = counters(t, p)
	sent := 0
	await(t, "what the flood is for", func() bool {
		const burst = 900 // below net.core.netdev_max_backlog
		onCPU(t, 0, func() error {
			for range burst {
				if err := dev.Inject(0, frame(1)); err != nil {
					return err
				}
			}
			return nil
		})
		sent += burst
		b.await(t, uint64(sent))
		after = counters(t, p)
		return enough(before, after)
	})
	return before, after
}

func TestFullBudgetPollsAreCounted(t *testing.T) {
	p := attached(t, Options{})
	before, after := flood(t, p, func(before, after *Counters) bool {
		return after.sum(backlog(1)).FullBudget-before.sum(backlog(1)).FullBudget >= 10
	})
	was, now := before.sum(backlog(1)), after.sum(backlog(1))
	// 2^6 ≤ 64 < 2^7: a full poll (weight 64) is in bucket 7.
	if full, hist := now.FullBudget-was.FullBudget, now.WorkHist[7]-was.WorkHist[7]; full != hist {
		t.Errorf("%d full polls, but %d in the bucket of 64 packets", full, hist)
	}
	var polls, packets uint64
	for b := range now.WorkHist {
		polls += now.WorkHist[b] - was.WorkHist[b]
	}
	packets = now.Packets - was.Packets
	if polls != now.Polls-was.Polls {
		t.Errorf("%d polls, but %d in the histogram", now.Polls-was.Polls, polls)
	}
	if packets < (now.FullBudget-was.FullBudget)*64 {
		t.Errorf("%d packets in %d full polls of 64", packets, now.FullBudget-was.FullBudget)
	}
}

func TestEmptyPollsAreCounted(t *testing.T) {
	p := attached(t, Options{})
	ns := testnet.New(t)
	dev := tap(t, ns, 1)
	// napi_complete_done then polls again by a timer and finds nothing.
	for file, value := range map[string]string{"gro_flush_timeout": "50000", "napi_defer_hard_irqs": "2"} {
		if err := ns.FS().WriteFile("/sys/class/net/rx0/"+file, []byte(value)); err != nil {
			t.Fatal(err)
		}
	}
	var s NAPIStat
	await(t, "an empty poll", func() bool {
		onCPU(t, 0, func() error { return dev.Inject(0, frame(1)) })
		s = counters(t, p).sum(of(ns))
		return s.Empty > 10
	})
	if s.Empty != s.WorkHist[0] || s.FullBudget != 0 {
		t.Errorf("%d empty and %d full polls, %d in the bucket of no packets", s.Empty, s.FullBudget, s.WorkHist[0])
	}
}

func TestThreadedPollsAreCountedNotTimed(t *testing.T) {
	p := attached(t, Options{})
	ns := testnet.New(t)
	dev := tap(t, ns, 1)
	if err := ns.FS().WriteFile("/sys/class/net/rx0/threaded", []byte("1")); err != nil {
		t.Fatal(err)
	}
	var s NAPIStat
	await(t, "the thread's polls", func() bool {
		if err := dev.Inject(0, frame(1)); err != nil {
			t.Fatal(err)
		}
		s = counters(t, p).sum(of(ns))
		return s.Packets >= 50
	})
	if s.BusyPolls == 0 || s.Polls != 0 || s.Time != 0 {
		t.Errorf("%d busy polls, %d in softirq, %d ns: want only busy ones", s.BusyPolls, s.Polls, s.Time)
	}
}

// An application that polls its queue itself (SO_BUSY_POLL, SO_PREFER_BUSY_POLL) has its polls counted, and no clock is read.
func TestBusyPollsAreCountedNotTimed(t *testing.T) {
	p := attached(t, Options{})
	a, b := testnet.New(t), testnet.New(t)
	if err := testnet.Connect(a, b, testnet.Veth{AddrA: "10.9.0.1/24", AddrB: "10.9.0.2/24", NAPI: true, StaticNeigh: true}); err != nil {
		t.Fatal(err)
	}
	var reader int
	err := b.Do(func() (err error) {
		reader, err = unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(reader)
	const spin = 2000 // µs
	if err := errors.Join(unix.SetsockoptInt(reader, unix.SOL_SOCKET, unix.SO_BUSY_POLL, spin),
		unix.SetsockoptInt(reader, unix.SOL_SOCKET, unix.SO_PREFER_BUSY_POLL, 1),
		unix.SetsockoptTimeval(reader, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Usec: 10_000}),
		unix.Bind(reader, &unix.SockaddrInet4{Port: 9000, Addr: [4]byte{10, 9, 0, 2}})); err != nil {
		t.Fatal(err)
	}
	var conn net.Conn
	if err := a.Do(func() (err error) { conn, err = net.Dial("udp", "10.9.0.2:9000"); return err }); err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	var s NAPIStat
	await(t, "polls by the application", func() bool {
		if _, err := conn.Write([]byte("x")); err != nil { // tells the socket its NAPI
			t.Fatal(err)
		}
		for range 3 { // what came, then nothing: it spins
			if _, _, err := unix.Recvfrom(reader, make([]byte, 16), 0); err != nil && !errors.Is(err, unix.EAGAIN) && !errors.Is(err, unix.EINTR) {
				t.Fatal(err)
			}
		}
		s = counters(t, p).sum(of(b))
		return s.BusyPolls >= 100
	})
	var timed uint64
	for _, n := range s.TimeHist {
		timed += n
	}
	// A poll in softirq may be counted between the reading of one number and of the other.
	if timed > s.Polls+1 {
		t.Errorf("%d polls timed, %d in softirq, %d busy ones", timed, s.Polls, s.BusyPolls)
	}
}

func TestContextOfRuns(t *testing.T) {
	p := attached(t, Options{})
	runs := func(c *Counters, cpu int, in Context) uint64 { return c.CPUs[cpu].RunsIn[in] }

	testnet.Undisturbed(t, func(t testing.TB) { // over a task
		ns := testnet.New(t)
		dev := tap(t, ns, 1)
		before := counters(t, p)
		const packets = 500
		onCPU(t, 0, func() error {
			for range packets {
				if err := dev.Inject(0, frame(1)); err != nil {
					return err
				}
			}
			return nil
		})
		// A write to a tap polls in the writer's context (local_bh_enable in tun_get_user).
		if n := runs(counters(t, p), 0, OverTask) - runs(before, 0, OverTask); n < packets*9/10 {
			t.Errorf("%d of %d runs over the writing task", n, packets)
		}
	})

	t.Run("over idle", func(t *testing.T) {
		needCPUs(t, 2)
		ns := testnet.New(t)
		dev := tap(t, ns, 1)
		b := attachBurn(t, ns, "rx0", 1000, anyQueue)
		if err := ns.SetRPS("rx0", 0, "2"); err != nil {
			t.Fatal(err)
		}
		before := counters(t, p)
		sent := uint64(0)
		idle := func() int64 { // of CPU 1, in 1/100 s; it may go backwards
			text, err := os.ReadFile("/proc/stat")
			if err != nil {
				t.Fatal(err)
			}
			s, err := procfs.ParseStat("/proc/stat", text)
			if err != nil || len(s.CPUs) < 2 || s.CPUs[1].CPU != 1 {
				t.Fatalf("%+v, %v", s, err)
			}
			return int64(s.CPUs[1].Idle)
		}
		was := idle()
		for end := time.Now().Add(time.Minute); runs(counters(t, p), 1, OverIdle) == runs(before, 1, OverIdle); {
			if n := idle() - was; time.Now().After(end) && n > 100 {
				t.Fatalf("never saw CPU 1 interrupted while idle, though it was for %d ms", 10*n)
			} else if time.Now().After(end) {
				t.Logf("CPU 1 has so much else to do that it was idle for %d ms of a minute: nothing to see", 10*n)
				break
			}
			onCPU(t, 0, func() error { return dev.Inject(0, frame(1)) })
			sent++
			b.await(t, sent)
			time.Sleep(100 * time.Microsecond) // or it never is
		}
	})

	t.Run("in ksoftirqd", func(t *testing.T) {
		before, after := flood(t, p, func(before, after *Counters) bool {
			return runs(after, 1, InKsoftirqd) > runs(before, 1, InKsoftirqd)
		})
		cpu, was := &after.CPUs[1], &before.CPUs[1]
		if cpu.TimeIn[InKsoftirqd] == was.TimeIn[InKsoftirqd] {
			t.Error("runs but no time in ksoftirqd")
		}
	})

	for id, c := range counters(t, p).CPUs {
		var n, ns uint64
		for in := range c.RunsIn {
			n += c.RunsIn[in]
			ns += c.TimeIn[in]
		}
		const rx = 3
		if d := c.Runs[rx] - n; d != 0 {
			t.Errorf("CPU %d: %d NET_RX runs, %d by context", id, c.Runs[rx], n)
		}
		if c.Time[rx] != ns {
			t.Errorf("CPU %d: %d ns of NET_RX, %d by context", id, c.Time[rx], ns)
		}
	}
}

func TestPollsAndTailAreAllOfNetRX(t *testing.T) { testnet.Undisturbed(t, pollsAndTailAreAllOfNetRX) }

func pollsAndTailAreAllOfNetRX(t testing.TB) {
	p := attached(t, Options{})
	ns := testnet.New(t)
	dev := tap(t, ns, 2)
	for i := range 300 {
		if err := dev.Inject(i%2, frame(byte(i))); err != nil {
			t.Fatal(err)
		}
	}
	// A run may be under way while we read: read until two readings agree.
	var c *Counters
	await(t, "a moment without NET_RX", func() bool {
		a := counters(t, p)
		c = counters(t, p)
		return !slices.ContainsFunc(c.CPUs, func(s CPUStat) bool { return s.Mark != 0 }) &&
			a.sum(func(NAPIKey) bool { return true }) == c.sum(func(NAPIKey) bool { return true })
	})
	for id, cpu := range c.CPUs {
		s := c.sum(func(k NAPIKey) bool { return k.Cpu == uint32(id) })
		const rx = 3
		if got := s.Time + cpu.Tail + cpu.LostPollTime; got != cpu.Time[rx] {
			t.Errorf("CPU %d: polls %d + tail %d ns = %d, NET_RX %d", id, s.Time, cpu.Tail, got, cpu.Time[rx])
		}
	}
	if c.sum(of(ns)).Packets != 300 {
		t.Errorf("%d packets, want 300", c.sum(of(ns)).Packets)
	}
}

func softirqs(t testing.TB) *procfs.Softirqs {
	t.Helper()
	text, err := os.ReadFile("/proc/softirqs")
	if err != nil {
		t.Fatal(err)
	}
	s, err := procfs.ParseSoftirqs("/proc/softirqs", text)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestRunsOfAllVectorsMatchTheKernels(t *testing.T) {
	testnet.Undisturbed(t, runsOfAllVectorsMatchTheKernels)
}

func runsOfAllVectorsMatchTheKernels(t testing.TB) {
	p := attached(t, Options{})
	ns := testnet.New(t)
	dev := tap(t, ns, 1)
	const rx = 3
	names := []string{"HI", "TIMER", "NET_TX", "NET_RX", "BLOCK", "IRQ_POLL", "TASKLET", "SCHED", "HRTIMER", "RCU"}

	outer := softirqs(t)
	from := counters(t, p)
	inner := softirqs(t)
	await(t, "timer, scheduler and RCU softirqs", func() bool {
		if err := dev.Inject(0, frame(1)); err != nil {
			t.Fatal(err)
		}
		seen := map[int]bool{}
		for id, c := range counters(t, p).CPUs {
			for v := range c.Runs {
				if c.Runs[v]-from.CPUs[id].Runs[v] > 20 && c.Time[v] > from.CPUs[id].Time[v] {
					seen[v] = true
				}
			}
		}
		return seen[1] && seen[rx] && seen[7] && seen[9]
	})
	innerEnd := softirqs(t)
	to := counters(t, p)
	outerEnd := softirqs(t)
	for v, name := range names {
		for i, id := range outer.CPUs {
			got := to.CPUs[id].Runs[v] - from.CPUs[id].Runs[v]
			// One run may be counted by the kernel (at its beginning) and not yet by us.
			least := innerEnd.Row(name)[i] - inner.Row(name)[i]
			most := outerEnd.Row(name)[i] - outer.Row(name)[i]
			if v != rx {
				// On 6.18 the kernel counts some runs whose tracepoints it does not call, for
				// a bare raw_tp program as for ours: on idle and on contended CPUs.
				least = least / 2
			}
			if got+1 < least || got > most+1 {
				t.Errorf("%s on CPU %d: %d runs, the kernel counted %d to %d", name, id, got, least, most)
			}
		}
	}
}

func interrupts(t testing.TB) *procfs.Interrupts {
	t.Helper()
	text, err := os.ReadFile("/proc/interrupts")
	if err != nil {
		t.Fatal(err)
	}
	s, err := procfs.ParseInterrupts("/proc/interrupts", text)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// disk returns what has a disk interrupt, by fsync.
func disk(t testing.TB) (interrupt func()) {
	t.Helper()
	// Here and not in /tmp, which may be memory; without a name nothing is left behind.
	file, err := os.CreateTemp(".", "fsync")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { file.Close() })
	if err := os.Remove(file.Name()); err != nil {
		t.Fatal(err)
	}
	return func() {
		if _, err := file.WriteAt([]byte("x"), 0); err != nil {
			t.Fatal(err)
		}
		if err := file.Sync(); err != nil {
			t.Fatal(err)
		}
	}
}

func TestInterruptsMatchTheKernels(t *testing.T) { testnet.Undisturbed(t, interruptsMatchTheKernels) }

func interruptsMatchTheKernels(t testing.TB) {
	p := attached(t, Options{})
	count := func(in *procfs.Interrupts, irq, cpu int) uint64 {
		for _, r := range in.Rows {
			if r.IRQ == irq && len(r.Actions) == 1 { // a shared line runs several handlers
				return r.Counts[slices.Index(in.CPUs, cpu)]
			}
		}
		return 0
	}
	ours := func(c *Counters, k IRQKey) IRQStat {
		if i := slices.Index(c.IRQKeys, k); i >= 0 {
			return c.IRQs[i]
		}
		return IRQStat{}
	}
	outer := interrupts(t)
	from := counters(t, p)
	inner := interrupts(t)
	var live []IRQKey
	interrupt := disk(t)
	await(t, "an interrupt of a device (a disk's, by fsync)", func() bool {
		interrupt()
		now := counters(t, p)
		live = live[:0]
		for i, k := range now.IRQKeys {
			if now.IRQs[i].Count-ours(from, k).Count > 20 && count(outer, int(k.Irq), int(k.Cpu)) > 0 {
				live = append(live, k)
			}
		}
		return len(live) > 0
	})
	innerEnd := interrupts(t)
	to := counters(t, p)
	outerEnd := interrupts(t)
	for _, k := range live {
		irq, cpu := int(k.Irq), int(k.Cpu)
		was, now := ours(from, k), ours(to, k)
		got := now.Count - was.Count
		least := count(innerEnd, irq, cpu) - count(inner, irq, cpu)
		most := count(outerEnd, irq, cpu) - count(outer, irq, cpu)
		if got+1 < least || got > most+1 {
			t.Errorf("IRQ %d on CPU %d: %d, the kernel counted %d to %d", irq, cpu, got, least, most)
		}
		if now.Time == was.Time {
			t.Errorf("IRQ %d on CPU %d: no time", irq, cpu)
		}
		t.Logf("IRQ %d on CPU %d: %d times, %d ns", irq, cpu, got, now.Time-was.Time)
	}
}

func TestFullMapIsCounted(t *testing.T) { testnet.Undisturbed(t, fullMapIsCounted) }

func fullMapIsCounted(t testing.TB) {
	p := attached(t, Options{NAPIs: 1})
	ns := testnet.New(t)
	dev := tap(t, ns, 4)
	const packets = 50
	for i := range 4 * packets {
		if err := dev.Inject(i%4, frame(1)); err != nil {
			t.Fatal(err)
		}
	}
	c := counters(t, p)
	var polls, ns64 uint64
	for _, cpu := range c.CPUs {
		polls += cpu.LostPolls
		ns64 += cpu.LostPollTime
	}
	if polls < 3*packets || ns64 == 0 {
		t.Errorf("%d polls and %d ns lost with room for one NAPI of four, want at least %d", polls, ns64, 3*packets)
	}
	if len(c.NAPIKeys) > 1 {
		t.Errorf("%d pairs in a map of one", len(c.NAPIKeys))
	}
}

func TestReusedAddressNeverMixesDevices(t *testing.T) {
	testnet.Undisturbed(t, reusedAddressNeverMixesDevices)
}

func reusedAddressNeverMixesDevices(t testing.TB) {
	p := attached(t, Options{})
	// A namespace and tap after the other: the kernel likes to reuse addresses.
	const rounds = 8
	for round := range rounds {
		ns, err := testnet.Create()
		if err != nil {
			t.Fatal(err)
		}
		dev, err := ns.NewTAP(fmt.Sprintf("rx%d", round), 1)
		if err != nil {
			t.Fatal(err)
		}
		index, err := ns.IfIndex(dev.Name)
		if err != nil {
			t.Fatal(err)
		}
		for range round + 1 {
			if err := dev.Inject(0, frame(1)); err != nil {
				t.Fatal(err)
			}
		}
		inside := of(ns)
		mine := func(k NAPIKey) bool { return inside(k) && k.Ifindex == uint32(index) }
		c := counters(t, p)
		if n := c.sum(mine).Packets; n != uint64(round+1) {
			t.Errorf("round %d: %d packets, want %d", round, n, round+1)
		}
		if err := errors.Join(dev.Close(), ns.Close()); err != nil {
			t.Fatal(err)
		}
		// As the collector does with devices that are gone.
		if err := p.Forget(slices.DeleteFunc(c.NAPIKeys, func(k NAPIKey) bool { return !mine(k) })); err != nil {
			t.Fatal(err)
		}
		if n := len(slices.DeleteFunc(counters(t, p).NAPIKeys, func(k NAPIKey) bool { return !mine(k) })); n != 0 {
			t.Errorf("round %d: %d pairs left after Forget", round, n)
		}
	}
}

func TestReadIsComplete(t *testing.T) {
	testnet.NeedRoot(t)
	p, err := Load(Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	want := map[NAPIKey]uint64{}
	for i := range 3000 { // several batches
		k := NAPIKey{Napi: uint64(i) << 12, Ifindex: uint32(i % 7), Cpu: uint32(i % 64)}
		want[k] = uint64(i)
		if err := p.napis.Put(k, NAPIStat{Polls: uint64(i)}); err != nil {
			t.Fatal(err)
		}
	}
	c := counters(t, p)
	got := map[NAPIKey]uint64{}
	for i, k := range c.NAPIKeys {
		got[k] = c.NAPIs[i].Polls
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if len(c.NAPIKeys) != len(want) {
		t.Errorf("%d entries, want %d", len(c.NAPIKeys), len(want))
	}
}

func TestProbeFindsEveryHookLive(t *testing.T) {
	testnet.NeedRoot(t)
	s := Probe(host.OS{}, Options{})
	if s.Err != nil || !s.BTF.Live || len(s.MissingCaps) > 0 || len(s.Hooks) != len(hooks)+len(packetHooks)+len(spreadHooks) {
		t.Errorf("support: %+v", s)
	}
	for _, h := range s.Hooks {
		if !h.Live || h.Why != "" || h.Lost == "" {
			t.Errorf("hook %+v, want it live", h)
		}
	}
}

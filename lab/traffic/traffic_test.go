package traffic

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestHistogramAgreesWithSortedSamples(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	var h, a, b Histogram
	var samples []time.Duration
	for i := range 20000 {
		// Log-uniform from 1 ns to 10 s.
		d := time.Duration(math.Exp(rng.Float64() * math.Log(1e10)))
		samples = append(samples, d)
		h.Add(d)
		if i%2 == 0 {
			a.Add(d)
		} else {
			b.Add(d)
		}
	}
	slices.Sort(samples)
	for _, q := range []float64{0, 0.001, 0.5, 0.9, 0.99, 0.999, 1} {
		want := samples[max(int(math.Ceil(q*float64(len(samples))))-1, 0)]
		got := h.Quantile(q)
		if got < want || float64(got) > float64(want)*1.008 {
			t.Errorf("quantile %v: got %v, want %v…+0.8 %%", q, got, want)
		}
	}
	a.Merge(&b)
	if diff := cmp.Diff(h.Summary(), a.Summary()); diff != "" {
		t.Errorf("merged halves (-whole +merged):\n%s", diff)
	}
}

func TestHistogramBucketsHoldTheirValues(t *testing.T) {
	for _, v := range []uint64{0, 1, 127, 128, 129, 255, 256, 257, 1023, 1024, 1 << 20, 1<<40 + 12345, 1<<62 + 1} {
		i := index(v)
		if u := upper(i); u < v || float64(u) > float64(v)*1.008+1 {
			t.Errorf("value %d: bucket %d ends at %d", v, i, u)
		}
		if i > 0 && upper(i-1) >= v {
			t.Errorf("value %d belongs to bucket %d or lower, got %d", v, i-1, i)
		}
	}
	if diff := cmp.Diff(Summary{}, new(Histogram).Summary()); diff != "" {
		t.Errorf("empty histogram (-want +got):\n%s", diff)
	}
	var h Histogram
	h.Add(-time.Second)
	h.Add(100)
	if s := h.Summary(); s.Min != 0 || s.Max != 100 || s.Count != 2 {
		t.Errorf("summary of a negative and 100 ns: %+v", s)
	}
}

func TestHeaderRoundTrip(t *testing.T) {
	want := Header{Flow: 7, Seq: 1 << 40, Stamp: 12345 * time.Hour, Size: 60, Flags: FlagProbe | FlagEcho}
	b := make([]byte, HeaderSize)
	want.put(b)
	got, ok := parseHeader(b)
	if diff := cmp.Diff(want, got); !ok || diff != "" {
		t.Errorf("header ok %v (-want +got):\n%s", ok, diff)
	}
	if _, ok := parseHeader(b[:HeaderSize-1]); ok {
		t.Error("a short header was taken")
	}
	b[0] ^= 1
	if _, ok := parseHeader(b); ok {
		t.Error("foreign bytes were taken for a header")
	}
}

func TestPlanRefusesNonsense(t *testing.T) {
	good := Plan{Rate: 100, For: time.Second, Flows: 4}
	if _, err := good.withDefaults(); err != nil {
		t.Fatal(err)
	}
	for name, edit := range map[string]func(*Plan){
		"unbounded":            func(p *Plan) { p.For = 0 },
		"negative rate":        func(p *Plan) { p.Rate = -1 },
		"rate NaN":             func(p *Plan) { p.Rate = math.NaN() },
		"too many flows":       func(p *Plan) { p.Flows = 1 << 20 },
		"elephant no share":    func(p *Plan) { p.Elephants = 1 },
		"share no elephant":    func(p *Plan) { p.Share = 0.5 },
		"more elephants":       func(p *Plan) { p.Elephants, p.Share = 5, 0.5 },
		"share above one":      func(p *Plan) { p.Elephants, p.Share = 1, 1.5 },
		"on without off":       func(p *Plan) { p.On = time.Second },
		"size below header":    func(p *Plan) { p.Sizes = []int{HeaderSize - 1} },
		"alternate one flow":   func(p *Plan) { p.Flows, p.Alternate = 1, time.Second },
		"negative alternation": func(p *Plan) { p.Alternate = -1 },
	} {
		p := good
		edit(&p)
		if _, err := p.withDefaults(); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

func TestWhenIsTheInverseOfDue(t *testing.T) {
	for _, p := range []Plan{
		{Rate: 1000, For: time.Hour},
		{Rate: 333.3, For: time.Hour},
		{Rate: 1000, For: time.Hour, On: 100 * time.Millisecond, Off: 300 * time.Millisecond},
	} {
		for _, n := range []uint64{0, 1, 98, 99, 100, 101, 12345} {
			at := p.when(n)
			if got := p.due(at + time.Microsecond); got < n+1 {
				t.Errorf("rate %v on %v: packet %d is due at %v, but only %d are by then", p.Rate, p.On, n, at, got)
			}
			if got := p.due(at - time.Microsecond); got > n {
				t.Errorf("rate %v on %v: packet %d is due at %v, but %d are before", p.Rate, p.On, n, at, got)
			}
		}
	}
	p := Plan{Rate: 1000, For: time.Second, On: 100 * time.Millisecond, Off: 300 * time.Millisecond}
	if got := p.due(time.Minute); got != 300 {
		t.Errorf("1 s of 100 ms on, 300 ms off at 1000/s: %d packets, want 300", got)
	}
	p.Count = 120
	if got := p.due(time.Minute); got != 120 {
		t.Errorf("bounded by count: %d packets, want 120", got)
	}
}

func TestMixKeepsShares(t *testing.T) {
	for _, tc := range []struct {
		plan Plan
		want []uint64 // of 1000 turns
	}{
		{Plan{Flows: 4}, []uint64{250, 250, 250, 250}},
		{Plan{Flows: 3, Elephants: 1, Share: 0.8}, []uint64{800, 100, 100}},
		{Plan{Flows: 4, Elephants: 2, Share: 0.6}, []uint64{300, 300, 200, 200}},
		{Plan{Flows: 1, Elephants: 1, Share: 0.5}, []uint64{1000}},
	} {
		m := tc.plan.newMix(func(int) bool { return true })
		turns := make([]uint64, tc.plan.Flows)
		for left := uint64(1000); left > 0; {
			k := min(left, 7)
			m.pick(k, turns)
			left -= k
		}
		var sum uint64
		for f, want := range tc.want {
			sum += turns[f]
			if d := int64(turns[f]) - int64(want); d < -2 || d > 2 {
				t.Errorf("%+v: flow %d got %d turns, want %d", tc.plan, f, turns[f], want)
			}
		}
		if sum != 1000 {
			t.Errorf("%+v: %d turns given of 1000", tc.plan, sum)
		}
	}
}

// slowSink takes what take says and remembers when.
type slowSink struct {
	take  func(n int) int
	flows []uint64
	last  map[int]uint64
	err   error
}

func (s *slowSink) Send(f int, h Header, n int) (int, error) {
	if s.flows == nil {
		s.flows, s.last = make([]uint64, 64), map[int]uint64{}
	}
	if h.Seq != s.last[f] {
		s.err = fmt.Errorf("flow %d: sequence %d, want %d", f, h.Seq, s.last[f])
	}
	if s.take != nil {
		n = s.take(n)
	}
	s.last[f] += uint64(n)
	s.flows[f] += uint64(n)
	return n, nil
}

func TestPacing(t *testing.T) {
	for _, rate := range []float64{50, 2000, 40000} {
		var sink slowSink
		r, err := Send(context.Background(), Plan{Rate: rate, For: 300 * time.Millisecond, Flows: 8, MaxLag: time.Minute}, &sink)
		if err != nil || sink.err != nil {
			t.Fatal(err, sink.err)
		}
		want := uint64(rate * 0.3)
		if r.Offered != want || r.Sent != want || r.Skipped+r.Refused != 0 {
			t.Errorf("rate %v: offered %d, sent %d, skipped %d, refused %d; want %d", rate, r.Offered, r.Sent, r.Skipped, r.Refused, want)
		}
		if r.Seconds < 0.299 || r.Seconds > 60 {
			t.Errorf("rate %v: took %v s, want 0.3", rate, r.Seconds)
		}
		if got := sink.flows[3]; got < r.Sent/8-1 || got > r.Sent/8+1 {
			t.Errorf("rate %v: flow 3 sent %d of %d", rate, got, r.Sent)
		}
	}
}

func TestWhatIsRefusedIsReportedAndNotNumbered(t *testing.T) {
	sink := slowSink{take: func(n int) int { return n / 2 }}
	r, err := Send(context.Background(), Plan{Rate: 20000, For: 100 * time.Millisecond, Flows: 2, MaxLag: time.Minute}, &sink)
	if err != nil || sink.err != nil {
		t.Fatal(err, sink.err)
	}
	if r.Refused == 0 || r.Sent+r.Refused+r.Skipped != r.Offered || r.Offered != 2000 {
		t.Errorf("report %+v does not add up to 2000 offered", r)
	}
}

func TestALateSenderSkips(t *testing.T) {
	first := true
	sink := slowSink{take: func(n int) int {
		if first {
			time.Sleep(200 * time.Millisecond)
			first = false
		}
		return n
	}}
	r, err := Send(context.Background(), Plan{Rate: 1000, For: 300 * time.Millisecond, MaxLag: 50 * time.Millisecond}, &sink)
	if err != nil {
		t.Fatal(err)
	}
	if r.Skipped < 100 || r.Offered != 300 || r.MaxLag < 150*time.Millisecond {
		t.Errorf("a sink that hung 200 ms: %+v, want ≥ 100 skipped of 300", r)
	}
}

func TestTrainsAreWholeExceptTheLast(t *testing.T) {
	var sizes []int
	sink := slowSink{take: func(n int) int { sizes = append(sizes, n); return n }}
	r, err := Send(context.Background(), Plan{Rate: 5000, Count: 803, Flows: 5, Train: 8, MaxLag: time.Minute}, &sink)
	if err != nil || sink.err != nil {
		t.Fatal(err, sink.err)
	}
	if r.Offered != 803 || r.Sent+r.Skipped != 803 {
		t.Errorf("report %+v, want 803 offered and sent", r)
	}
	for i, n := range sizes {
		if n%8 != 0 && i < len(sizes)-1 {
			t.Errorf("send %d of %d has %d packets, want whole trains of 8", i, len(sizes), n)
		}
	}
	if f := sink.flows[:5]; r.Skipped == 0 && (slices.Max(f)-slices.Min(f) > 16) {
		t.Errorf("flows sent %v, want them even to two trains (the last is short)", f)
	}
}

func TestAlternationAndCountBound(t *testing.T) {
	var sink slowSink
	r, err := Send(context.Background(), Plan{Rate: 1000, For: 100 * time.Millisecond, Flows: 4, Alternate: time.Hour, MaxLag: time.Minute}, &sink)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]uint64{50, 0, 50, 0}, sink.flows[:4]); r.Skipped == 0 && diff != "" {
		t.Errorf("first turn (-want +got):\n%s", diff)
	}
	r, err = Send(context.Background(), Plan{Count: 1000, Flows: 2}, &slowSink{})
	if err != nil || r.Sent != 1000 {
		t.Errorf("flood of 1000: sent %d, %v", r.Sent, err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if r, err := Send(ctx, Plan{Rate: 10, For: time.Hour}, &slowSink{}); err != nil || r.Sent != 0 {
		t.Errorf("cancelled run: sent %d, %v", r.Sent, err)
	}
}

func TestUDPEndToEnd(t *testing.T) {
	for _, addr := range []string{"127.0.0.1:0", "[::1]:0"} {
		t.Run(addr, func(t *testing.T) {
			r, err := Listen(ReceiveConfig{Listen: netip.MustParseAddrPort(addr)})
			if err != nil {
				if addr[0] == '[' {
					t.Skipf("needs IPv6 loopback: %v", err)
				}
				t.Fatal(err)
			}
			ctx, cancel := context.WithCancel(context.Background())
			var wg sync.WaitGroup
			wg.Go(func() {
				if err := r.Run(ctx); err != nil {
					t.Error(err)
				}
			})
			defer func() {
				cancel()
				wg.Wait()
				if err := r.Close(); err != nil {
					t.Error(err)
				}
			}()
			to, err := r.Addr()
			if err != nil {
				t.Fatal(err)
			}
			u, err := DialUDP(FlowConfig{To: []netip.AddrPort{to}, Flows: 3}, 200)
			if err != nil {
				t.Fatal(err)
			}
			defer u.Close()
			if ports, err := u.Ports(); err != nil || len(ports) != 3 || ports[0] == 0 || ports[0] == ports[1] {
				t.Errorf("source ports %v, %v", ports, err)
			}
			sent, err := Send(ctx, Plan{Rate: 3000, For: 200 * time.Millisecond, Flows: 3, FirstFlow: 10, Sizes: []int{100, 200, 32}, MaxLag: time.Minute}, u)
			if err != nil {
				t.Fatal(err)
			}
			awaitTotal(t, r.tally, sent.Sent)
			rep := r.Take()
			if rep.Received != sent.Sent || rep.Lost != 0 || rep.Late != 0 || rep.OtherClock != 0 {
				t.Errorf("sent %d, report %+v", sent.Sent, rep)
			}
			if rep.Latency.Count != sent.Sent || rep.Latency.P50 <= 0 || rep.Latency.P50 > time.Minute {
				t.Errorf("latency %+v", rep.Latency)
			}
			if len(rep.Flows) != 3 || rep.Flows[1].Flow != 11 || rep.Flows[1].Bytes != 200*rep.Flows[1].Received {
				t.Errorf("flows %+v", rep.Flows)
			}
			p, err := DialProbe(to)
			if err != nil {
				t.Fatal(err)
			}
			defer p.Close()
			pr, err := p.Run(ctx, Plan{Rate: 200, For: 150 * time.Millisecond, FirstFlow: 99, MaxLag: time.Minute}, time.Minute)
			if err != nil {
				t.Fatal(err)
			}
			if pr.Lost != 0 || pr.Received != pr.Send.Sent || pr.Received != 30 || pr.RTT.P50 <= 0 || pr.RTT.P50 > time.Minute {
				t.Errorf("probe %+v", pr)
			}
			if rep := r.Take(); len(rep.Flows) != 4 || !rep.Flows[3].Probe || rep.Probe.Count != pr.Received {
				t.Errorf("receiver's view of the probe %+v", rep)
			}
		})
	}
}

func awaitTotal(t *testing.T, c *tally, want uint64) {
	t.Helper()
	deadline := time.Now().Add(time.Minute)
	for c.Total() < want {
		if time.Now().After(deadline) {
			t.Fatalf("%d packets came, want %d", c.Total(), want)
		}
		time.Sleep(time.Millisecond)
	}
}

func TestTrainsCutByTheKernelArriveAsPackets(t *testing.T) {
	r, err := Listen(ReceiveConfig{Listen: netip.MustParseAddrPort("127.0.0.1:0")})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	to, err := r.Addr()
	if err != nil {
		t.Fatal(err)
	}
	u, err := DialUDP(FlowConfig{To: []netip.AddrPort{to}, Flows: 2, Segment: true}, 1400)
	if err != nil {
		t.Fatal(err)
	}
	defer u.Close()
	// 64 × 1400 bytes are more than one datagram holds.
	sent, err := Send(context.Background(), Plan{Rate: 1e6, Count: 256, Flows: 2, Sizes: []int{1400, 100}, Train: 64, MaxLag: time.Minute}, u)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	go func() { done <- r.Run(ctx) }()
	awaitTotal(t, r.tally, sent.Sent)
	cancel()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if rep := r.Take(); sent.Sent != 256 || rep.Received != 256 || rep.Lost != 0 || rep.Late != 0 || rep.Bytes != 128*1400+128*100 {
		t.Errorf("sent %+v, received %+v", sent, rep)
	}
}

func TestTCPEndToEnd(t *testing.T) {
	r, err := ListenTCP(netip.MustParseAddrPort("127.0.0.1:0"))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := r.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	defer wg.Wait()
	defer cancel()
	c, err := DialTCP(FlowConfig{To: []netip.AddrPort{r.Addr()}, Flows: 2}, 9000)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	// A flood outruns the receiver: messages are cut and refused, none is lost.
	sent, err := Send(ctx, Plan{For: 200 * time.Millisecond, Flows: 2, Sizes: []int{9000, 100}}, c)
	if err != nil {
		t.Fatal(err)
	}
	for f := range 2 {
		for deadline := time.Now().Add(time.Minute); ; {
			if ok, err := c.write(f, c.rest[f]); err != nil {
				t.Fatal(err)
			} else if ok {
				break
			}
			if time.Now().After(deadline) {
				t.Fatal("the connection does not drain")
			}
			time.Sleep(time.Millisecond)
		}
	}
	awaitTotal(t, r.tally, sent.Sent)
	rep := r.Take()
	if rep.Received != sent.Sent || sent.Sent < 100 || rep.Lost != 0 || rep.Late != 0 || rep.Foreign != 0 {
		t.Errorf("sent %d, received %+v", sent.Sent, rep)
	}
	if want := 9000*rep.Flows[0].Received + 100*rep.Flows[1].Received; rep.Bytes != want {
		t.Errorf("%d bytes, want %d", rep.Bytes, want)
	}
}

func TestAForeignConnectionIsClosed(t *testing.T) {
	r := &TCPReceiver{tally: newTally()}
	r.read(strings.NewReader("GET / HTTP/1.1\r\nHost: example\r\n\r\n"))
	if rep := r.Take(); rep.Foreign != 1 || rep.Received != 0 {
		t.Errorf("report %+v, want one foreign", rep)
	}
}

func TestLossAndOvertaking(t *testing.T) {
	c := newTally()
	now := Now()
	for _, seq := range []uint64{0, 1, 5, 4, 6} {
		c.count(Header{Flow: 1, Seq: seq, Stamp: now - 1000}, 100, now)
	}
	c.count(Header{Flow: 2, Stamp: now + time.Minute}, 50, now)
	got := c.Take()
	want := []FlowRecv{
		{Flow: 1, Received: 5, Bytes: 500, Lost: 2, Late: 1, Latency: Summary{Count: 5, Min: 1000, Mean: 1000, P50: 1000, P90: 1000, P99: 1000, P999: 1000, Max: 1000}},
		{Flow: 2, Received: 1, Bytes: 50},
	}
	if diff := cmp.Diff(want, got.Flows); diff != "" {
		t.Errorf("flows (-want +got):\n%s", diff)
	}
	if got.OtherClock != 1 {
		t.Errorf("%d stamps of another clock, want 1", got.OtherClock)
	}
	// The next interval starts where this one ended.
	c.count(Header{Flow: 1, Seq: 8, Stamp: now}, 100, now)
	if got := c.Take().Flows[0]; got.Received != 1 || got.Lost != 1 {
		t.Errorf("next interval: %+v, want 1 received, 1 lost", got)
	}
}

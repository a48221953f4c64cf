package burn

import (
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/rxsteer/rxsteer/internal/testnet"
)

func TestCalibrationIsLinear(t *testing.T) { testnet.Undisturbed(t, calibrationIsLinear) }

func calibrationIsLinear(t testing.TB) {
	testnet.NeedRoot(t)
	c, err := Calibrate(10 * time.Microsecond)
	if err != nil {
		t.Fatal(err)
	}
	if off := c.PerPacket - 10*time.Microsecond; off < -100 || off > 100 {
		t.Errorf("cost is %v, asked for 10µs", c.PerPacket)
	}
	// Twice the iterations must take twice the time; wide, for a busy machine.
	d, err := measure(2 * c.Iterations)
	if err != nil {
		t.Fatal(err)
	}
	if ratio := float64(d) / float64(c.PerPacket); ratio < 1.6 || ratio > 2.6 {
		t.Errorf("%d iterations take %v, %d take %v: ratio %.2f, want 2", 2*c.Iterations, d, c.Iterations, c.PerPacket, ratio)
	}
}

func TestTooLongABurnIsRefused(t *testing.T) {
	if _, err := load(MaxIterations + 1); err == nil {
		t.Error("load accepted more iterations than the verifier allows")
	}
	testnet.NeedRoot(t)
	objs, err := load(MaxIterations)
	if err != nil {
		t.Fatalf("the verifier refused MaxIterations: %v", err)
	}
	objs.Close()
	if _, err := Calibrate(time.Second); err == nil {
		t.Error("Calibrate accepted a second per packet")
	}
}

func TestEveryPacketPays(t *testing.T) {
	for name, tcx := range map[string]bool{"tcx": true, "cls_bpf": false} {
		t.Run(name, func(t *testing.T) {
			a, b := testnet.New(t), testnet.New(t)
			if err := testnet.Connect(a, b, testnet.Veth{AddrA: "10.5.0.1/24", AddrB: "10.5.0.2/24", StaticNeigh: true}); err != nil {
				t.Fatal(err)
			}
			index, err := b.IfIndex("b0")
			if err != nil {
				t.Fatal(err)
			}
			var burn *Burn
			if err := b.Do(func() (err error) {
				burn, err = attach(index, Cost{Iterations: 100}, tcx)
				return err
			}); err != nil {
				t.Fatal(err)
			}
			closed := false
			t.Cleanup(func() {
				if !closed {
					burn.Close()
				}
			})
			if want := map[bool][]string{true: {"tcx", "cls_bpf"}, false: {"cls_bpf"}}[tcx]; burn.Hook != want[0] && burn.Hook != want[len(want)-1] {
				t.Errorf("hook %q, want one of %v", burn.Hook, want)
			}
			sum := func() (n uint64) {
				t.Helper()
				packets, err := burn.Packets()
				if err != nil {
					t.Fatal(err)
				}
				for _, p := range packets {
					n += p
				}
				return n
			}
			before := sum() // IPv6 autoconfiguration may have spoken already
			var c *net.UDPConn
			if err := a.Do(func() (err error) {
				c, err = net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(netip.MustParseAddrPort("10.5.0.2:9")))
				return err
			}); err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			const n = 500
			for range n {
				// The port is closed: each answer is an ICMP error, reported on the next write.
				_, _ = c.Write([]byte("x"))
			}
			deadline := time.Now().Add(time.Minute)
			for sum() < before+n/2 && time.Now().Before(deadline) {
				time.Sleep(time.Millisecond)
			}
			// A pending ICMP error eats a write; the rest must have paid.
			if got := sum() - before; got < n/2 || got > n+20 {
				t.Errorf("%d packets paid of %d", got, n)
			}
			if err := burn.Close(); err != nil {
				t.Fatal(err)
			}
			closed = true
			// Nothing is left: the same can be attached again.
			if err := b.Do(func() error {
				again, err := attach(index, Cost{Iterations: 1}, tcx)
				if err != nil {
					return err
				}
				return again.Close()
			}); err != nil {
				t.Errorf("attach after Close: %v", err)
			}
		})
	}
}

func TestAbsentDeviceIsAnError(t *testing.T) {
	testnet.NeedRoot(t)
	for _, tcx := range []bool{true, false} {
		if b, err := attach(1<<30, Cost{Iterations: 1}, tcx); err == nil {
			b.Close()
			t.Errorf("tcx %v: attached to an absent device", tcx)
		}
	}
}

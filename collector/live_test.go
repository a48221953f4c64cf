package collector

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/rxsteer/rxsteer/bpf"
	"github.com/rxsteer/rxsteer/internal/host"
	"github.com/rxsteer/rxsteer/internal/testnet"
)

// frame is a broadcast of an ethertype for experiments: received and dropped.
func frame() []byte {
	return append([]byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2, 0, 0, 0, 0, 1, 0x88, 0xb5}, make([]byte, 46)...)
}

func inject(t testing.TB, dev *testnet.TAP, queue, n int) {
	t.Helper()
	for range n {
		if err := dev.Inject(queue, frame()); err != nil {
			t.Fatal(err)
		}
	}
}

// running starts a Sampler that fills a ring until the test ends, and waits until it counts. However late the test reads,
// it misses no sample: what is added up is all that happened.
func running(t testing.TB, cfg Config) (samples <-chan *Sample) {
	t.Helper()
	ring := NewRing(1 << 14) // more than come in any test
	cfg.Ring, cfg.Level, cfg.Interval = ring, max(cfg.Level, 1), 20*time.Millisecond
	s := New(cfg)
	ctx, stop := context.WithCancel(context.Background())
	done, read := make(chan error, 1), make(chan *Sample)
	go func() { done <- s.Run(ctx) }()
	go func() {
		for taken := 0; ; time.Sleep(5 * time.Millisecond) {
			all := ring.Window(time.Hour)
			for _, s := range all[taken:] {
				select {
				case read <- s:
				case <-ctx.Done():
					return
				}
			}
			if taken = len(all); ctx.Err() != nil {
				return
			}
		}
	}()
	t.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	select {
	case <-s.Ready():
	case err := <-done:
		done <- nil
		t.Fatalf("run: %v", err)
	}
	if s.Refused() != nil {
		t.Fatal(s.Refused())
	}
	return read
}

// until adds up samples until enough of them came.
func until(t testing.TB, samples <-chan *Sample, what string, enough func(*Sample) bool) *Sample {
	t.Helper()
	var sum *Sample
	deadline := time.After(time.Minute)
	for {
		select {
		case s := <-samples:
			if sum == nil {
				sum = s
			} else {
				sum = Merge(sum, s)
			}
			if enough(sum) {
				return sum
			}
		case <-deadline:
			t.Fatalf("never saw %s: %+v", what, sum)
		}
	}
}

func packets(s *Sample, match func(n *NAPI) bool) (sum uint64) {
	for i := range s.NAPIs {
		if match(&s.NAPIs[i]) {
			sum += s.NAPIs[i].Packets
		}
	}
	return sum
}

func TestLiveTrafficInOwnAndForeignNamespace(t *testing.T) {
	testnet.NeedTun(t)
	own, other := testnet.New(t), testnet.New(t)
	dev, err := own.NewTAP("rx0", 2)
	if err != nil {
		t.Fatal(err)
	}
	defer dev.Close()
	far, err := other.NewTAP("far0", 1)
	if err != nil {
		t.Fatal(err)
	}
	defer far.Close()
	asked := map[int]bool{}
	samples := running(t, Config{FS: own.FS(), RXQueue: func(netns uint64, ifindex int, id uint32) int {
		if netns == own.Inode() {
			asked[ifindex] = true
			return 1
		}
		return -1
	}})
	inject(t, dev, 0, 300)
	inject(t, dev, 1, 200)
	inject(t, far, 0, 100)
	mine := func(n *NAPI) bool { return n.Netns == own.Inode() && n.Device == "rx0" && n.RXQueue == 1 }
	theirs := func(n *NAPI) bool {
		return n.Netns == other.Inode() && n.Device == Foreign && n.SeenAs == "far0" && n.RXQueue == -1
	}
	s := until(t, samples, "all packets", func(s *Sample) bool { return packets(s, mine) >= 500 && packets(s, theirs) >= 100 })
	if got := packets(s, mine); got != 500 {
		t.Errorf("%d packets of our own, want 500", got)
	}
	if got := packets(s, theirs); got != 100 {
		t.Errorf("%d packets of the other namespace, want 100", got)
	}
	index, err := own.IfIndex("rx0")
	if err != nil {
		t.Fatal(err)
	}
	if !asked[index] {
		t.Errorf("the queue of ifindex %d was never asked for", index)
	}
	i := slices.IndexFunc(s.Devices, func(d Device) bool { return d.Name == "rx0" })
	if i < 0 || s.Devices[i].IfIndex != index || s.Devices[i].RXPackets < 500 {
		t.Errorf("devices %+v, want rx0 with at least 500 packets", s.Devices)
	}
	var runs, ns uint64
	for _, c := range s.CPUs {
		runs += c.SoftirqRuns[NetRX]
		ns += c.SoftirqTime[NetRX]
	}
	if runs < 600 || ns == 0 {
		t.Errorf("%d NET_RX runs and %d ns, want at least 600 runs", runs, ns)
	}
}

func TestLiveDeviceVanishesAndIsRenamed(t *testing.T) {
	testnet.NeedTun(t)
	ns := testnet.New(t)
	gone, err := ns.NewTAP("gone0", 1)
	if err != nil {
		t.Fatal(err)
	}
	kept, err := ns.NewTAP("rx0", 1)
	if err != nil {
		t.Fatal(err)
	}
	defer kept.Close()
	samples := running(t, Config{FS: ns.FS()})
	inject(t, gone, 0, 50)
	if err := gone.Close(); err != nil {
		t.Fatal(err)
	}
	if err := ns.IP("link", "set", "rx0", "down"); err != nil {
		t.Fatal(err)
	}
	if err := ns.IP("link", "set", "rx0", "name", "lan0", "up"); err != nil {
		t.Fatal(err)
	}
	inject(t, kept, 0, 70)
	from := func(device string) func(*NAPI) bool {
		return func(n *NAPI) bool { return n.Netns == ns.Inode() && n.Device == device }
	}
	s := until(t, samples, "both devices' packets and the end of one", func(s *Sample) bool {
		return packets(s, from("gone0")) >= 50 && packets(s, from("lan0")) >= 70 && said(s, "gone0", "vanished")
	})
	if got := packets(s, from("gone0")); got != 50 {
		t.Errorf("%d packets of the device that went, want 50", got)
	}
	if got := packets(s, from("lan0")); got != 70 {
		t.Errorf("%d packets of the renamed device, want 70", got)
	}
}

// TestLiveLevel0AsOrdinaryUser runs as nobody, in a child when root.
func TestLiveLevel0AsOrdinaryUser(t *testing.T) {
	if os.Geteuid() == 0 {
		cmd := exec.Command("/proc/self/exe", "-test.run", "^"+t.Name()+"$", "-test.v")
		cmd.Dir = "/"
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
		out, err := cmd.CombinedOutput()
		if err != nil || !bytes.Contains(out, []byte("--- PASS: "+t.Name())) {
			t.Errorf("as nobody: %v\n%s", err, out)
		}
		return
	}
	s := New(Config{FS: host.OS{}, Level: 1})
	got, err := s.Sample(context.Background(), 50*time.Millisecond)
	if err != nil {
		t.Fatal(err)
	}
	if !errors.Is(s.Refused(), bpf.ErrNoPrivilege) && !errors.Is(s.Refused(), bpf.ErrNoBTF) {
		t.Errorf("Refused = %v, want ErrNoPrivilege (or ErrNoBTF)", s.Refused())
	}
	if got.Level != 0 || !said(got, "polls, packets and time per NAPI", s.Refused().Error()) {
		t.Errorf("level %d, unmeasured %v; want level 0 and the reason", got.Level, got.Unmeasured)
	}
	if len(got.CPUs) == 0 || len(got.Devices) == 0 {
		t.Errorf("%d CPUs and %d devices, want those of this host", len(got.CPUs), len(got.Devices))
	}
}

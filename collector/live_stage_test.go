package collector

import (
	"net"
	"testing"
	"time"

	"github.com/rxsteer/rxsteer/internal/testnet"
)

// stageOf adds up a stage of what a namespace's devices received.
func stageOf(s *Sample, netns uint64, name StageName) (sum Stage) {
	for i := range s.Stages {
		if st := &s.Stages[i]; st.Stage == name && st.Netns == netns {
			sum.add(st)
		}
	}
	return sum
}

func TestLiveStagesOfAStoppedReader(t *testing.T) {
	a, b := testnet.New(t), testnet.New(t)
	if err := testnet.Connect(a, b, testnet.Veth{AddrA: "10.9.0.1/24", AddrB: "10.9.0.2/24", NAPI: true, StaticNeigh: true}); err != nil {
		t.Fatal(err)
	}
	var receiver net.PacketConn
	if err := b.Do(func() (err error) { receiver, err = net.ListenPacket("udp", "10.9.0.2:9"); return err }); err != nil {
		t.Fatal(err)
	}
	defer receiver.Close()
	var sender net.Conn
	if err := a.Do(func() (err error) { sender, err = net.Dial("udp", "10.9.0.2:9"); return err }); err != nil {
		t.Fatal(err)
	}
	defer sender.Close()
	samples := running(t, Config{FS: b.FS(), Level: 2, PacketRate: 1})
	const n, sent, wait = 12, 60, 300 * time.Millisecond // 2^28 ns < 300 ms < 2^29 ns
	buf := make([]byte, 100)
	var longest time.Duration // this machine may have been late
	for range sent / n {      // others' packets take slots too: some samples are lost
		begun := time.Now()
		for range n {
			if _, err := sender.Write(make([]byte, 64)); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(wait)
		for range n {
			if _, _, err := receiver.ReadFrom(buf); err != nil {
				t.Fatal(err)
			}
		}
		longest = max(longest, time.Since(begun))
	}
	s := until(t, samples, "all reads", func(s *Sample) bool { return stageOf(s, b.Inode(), Total).Count >= n })
	if s.Level != 2 {
		t.Errorf("level %d", s.Level)
	}
	for _, name := range []StageName{SocketToRead, Total} {
		st := stageOf(s, b.Inode(), name)
		v, lo, hi := st.Hist.Quantile(0.5)
		if st.Count < n || lo > float64(longest) || hi < float64(wait) || st.Device != "b0" {
			t.Errorf("%s: %d of %s, median %.0f in [%.0f, %.0f): want %d of b0 that waited %v to %v", name, st.Count, st.Device, v, lo, hi, n, wait, longest)
		}
		if mean := time.Duration(float64(st.Sum) / float64(max(st.Count, 1))); mean < wait || mean > longest {
			t.Errorf("%s: mean %v, want %v to %v", name, mean, wait, longest)
		}
	}
	if st := stageOf(s, b.Inode(), GROToStack); st.Count < n {
		t.Errorf("%d reached the stack, want %d", st.Count, n)
	}
	for _, name := range []StageName{RaiseToSoftirq, SoftirqToPoll} {
		st := stageOf(s, b.Inode(), name)
		if st.Count == 0 || st.Sum == 0 {
			t.Errorf("no %s of the veth's NAPI", name)
		}
	}
}

// TestLiveStagesOfAForeignNamespace: what a namespace within another receives is seen from outside and not named by a
// device here that has its number.
func TestLiveStagesOfAForeignNamespace(t *testing.T) {
	testnet.NeedTun(t)
	own, far := testnet.New(t), testnet.New(t)
	dev, err := far.NewTAP("far0", 1)
	if err != nil {
		t.Fatal(err)
	}
	defer dev.Close()
	samples := running(t, Config{FS: own.FS(), Level: 2, PacketRate: 1})
	inject(t, dev, 0, 50)
	s := until(t, samples, "the packets", func(s *Sample) bool { return stageOf(s, far.Inode(), GROToStack).Count >= 50 })
	if st := stageOf(s, far.Inode(), GROToStack); st.Device != Foreign || st.Count != 50 {
		t.Errorf("%d of %q, want 50 of a foreign device", st.Count, st.Device)
	}
	if s.Lost[LostDropped] < 50 {
		t.Errorf("lost %v, want the 50 that nobody wanted among the dropped", s.Lost)
	}
}

func TestLiveNAPIThreadIsTimed(t *testing.T) {
	testnet.NeedTun(t)
	ns := testnet.New(t)
	dev, err := ns.NewTAP("rx0", 1)
	if err != nil {
		t.Fatal(err)
	}
	defer dev.Close()
	if err := ns.FS().WriteFile("/sys/class/net/rx0/threaded", []byte("1")); err != nil {
		t.Fatal(err)
	}
	samples := running(t, Config{FS: ns.FS(), Level: 1})
	inject(t, dev, 0, 1)
	var sum *Sample
	for deadline := time.Now().Add(time.Minute); ; {
		inject(t, dev, 0, 20)
		s := <-samples
		if sum == nil {
			sum = s
		} else {
			sum = Merge(sum, s)
		}
		for i := range sum.NAPIs {
			if n := &sum.NAPIs[i]; n.Netns == ns.Inode() && n.ThreadPolls > 5 {
				if n.Thread == 0 || n.ThreadTime == 0 || n.Polls != 0 {
					t.Errorf("%+v, want time of a thread and none of softirq", n)
				}
				return
			}
		}
		if time.Now().After(deadline) {
			t.Fatalf("no polls of a thread: %+v", sum.NAPIs)
		}
	}
}

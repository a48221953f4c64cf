package collector

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/pprof/profile"
	"golang.org/x/sys/unix"

	"github.com/rxsteer/rxsteer/bpf"
	"github.com/rxsteer/rxsteer/internal/host"
	"github.com/rxsteer/rxsteer/internal/host/procfs"
	"github.com/rxsteer/rxsteer/internal/testnet"
	"github.com/rxsteer/rxsteer/lab/burn"
)

const kallsyms = `ffffffff81000000 T _text
ffffffff81001000 T net_rx_action
ffffffff81002000 t __napi_poll.constprop.0
ffffffff81003000 T asm_common_interrupt
ffffffff81004000 D not_text
ffffffffc0100000 t veth_poll	[veth]
ffffffffc0200000 t bpf_prog_0123456789abcdef_burn	[bpf]
`

// labelled renders a profile: one line per sample, innermost frame first.
func labelled(p *profile.Profile) []string {
	var out []string
	for _, s := range p.Sample {
		var frames []string
		for _, l := range s.Location {
			if len(l.Line) > 0 {
				frames = append(frames, l.Line[0].Function.Filename+"/"+l.Line[0].Function.Name)
			} else {
				frames = append(frames, fmt.Sprintf("%#x", l.Address))
			}
		}
		var labels []string
		for _, k := range []string{LabelDevice, LabelQueue, LabelNAPI, LabelNetns, LabelCPU, LabelContext, LabelPart} {
			for _, v := range s.Label[k] {
				labels = append(labels, k+"="+v)
			}
		}
		out = append(out, fmt.Sprintf("%v %s %s", s.Value, strings.Join(frames, "<"), strings.Join(labels, " ")))
	}
	return out
}

func TestProfileIsBuiltOfCounts(t *testing.T) {
	stack := []uint64{0xffffffffc0200010, 0xffffffffc0100020, 0xffffffff81002040, 0xffffffff81001100, 0xffffffff81003000}
	// The same functions met elsewhere, over something else: one sample.
	again := []uint64{0xffffffffc0200044, 0xffffffffc0100020, 0xffffffff81002040, 0xffffffff81001100, 0xffffffff81003000, 0xffffffff81000000}
	counts := &bpf.ProfileCounts{Taken: 20, Lost: 3, CPUs: 2, Samples: []bpf.ProfileSample{
		{Count: 5, CPU: 1, Context: bpf.ProfileKsoftirqd, NAPI: 0xff00, NAPIID: 257, Netns: 7, IfIndex: 2, Device: "eth0", Stack: stack},
		{Count: 4, CPU: 1, Context: bpf.ProfileKsoftirqd, NAPI: 0xff00, NAPIID: 257, Netns: 7, IfIndex: 2, Device: "eth0", Stack: again},
		{Count: 3, CPU: 0, Context: bpf.ProfileThread, NAPI: 0xee20, Netns: 9, IfIndex: 3, Device: "tap0", Stack: []uint64{0xffffffffc0100000}},
		{Count: 2, CPU: 0, Context: bpf.ProfileTask, NAPI: 0xee10, Netns: 9, IfIndex: 3, Device: "tap0", Stack: []uint64{0xffffffffd0000000}},
		{Count: 1, CPU: 0, Context: bpf.ProfileIdle, NAPI: 0xdd00, Stack: []uint64{0xffffffff81001001}},
		{Count: 1, CPU: 0, Context: bpf.ProfileIdle, Tail: true, Stack: []uint64{0xffffffff81001001}},
	}}
	symbols, err := procfs.ReadKallsyms("kallsyms", strings.NewReader(kallsyms), addresses(counts.Samples))
	if err != nil {
		t.Fatal(err)
	}
	p := buildProfile(counts, symbols, profileFacts{
		took: time.Second, period: 10 * time.Millisecond, own: 7, kernel: "6.1",
		rxQueue: func(netns uint64, ifindex int, id uint32) int {
			if netns == 7 && ifindex == 2 && id == 257 {
				return 4
			}
			return -1
		},
	})
	if err := p.CheckValid(); err != nil {
		t.Fatal(err)
	}
	want := []string{
		"[9 90000000] [bpf]/bpf:burn<[veth]/veth_poll<vmlinux/__napi_poll<vmlinux/net_rx_action device=eth0 queue=4 napi=257 cpu=1 context=ksoftirqd part=poll",
		"[3 30000000] [veth]/veth_poll device=tap0 napi=#2 netns=9 cpu=0 context=thread part=poll",
		"[2 20000000] 0xffffffffd0000000 device=tap0 napi=#1 netns=9 cpu=0 context=task part=poll",
		"[1 10000000] vmlinux/net_rx_action device=backlog cpu=0 context=idle part=poll",
		"[1 10000000] vmlinux/net_rx_action cpu=0 context=idle part=tail",
	}
	if d := cmp.Diff(want, labelled(p)); d != "" {
		t.Errorf("samples (-want +got):\n%s", d)
	}
	if text := strings.Join(p.Comments, "\n"); !strings.Contains(text, "3 of 20 ticks were lost") || !strings.Contains(text, "kernel 6.1") {
		t.Errorf("comments: %s", text)
	}
}

// noKallsyms is a host whose kernel hides its addresses.
type noKallsyms struct{ host.FS }

func (f noKallsyms) ReadFile(path string) ([]byte, error) {
	if path == "/proc/kallsyms" {
		return []byte("0000000000000000 T net_rx_action\n0000000000000000 t veth_poll\t[veth]\n"), nil
	}
	return f.FS.ReadFile(path)
}

// flood injects frames into a queue from a thread bound to a CPU until stop is closed.
func flood(t testing.TB, dev *testnet.TAP, cpu, queue int, stop <-chan struct{}) <-chan error {
	t.Helper()
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends here
		var set unix.CPUSet
		set.Set(cpu)
		if err := unix.SchedSetaffinity(0, &set); err != nil {
			done <- err
			return
		}
		for {
			select {
			case <-stop:
				done <- nil
				return
			default:
			}
			if err := dev.Inject(queue, frame()); err != nil {
				done <- err
				return
			}
		}
	}()
	return done
}

// TestProfileFindsAKnownBurn: a program that spins at one device's ingress is where that device's
// time goes, on the CPU that receives for it, and nowhere else.
func TestProfileFindsAKnownBurn(t *testing.T) { testnet.Undisturbed(t, profileFindsAKnownBurn) }

func profileFindsAKnownBurn(t testing.TB) {
	testnet.NeedTun(t)
	ns := testnet.New(t)
	var taps [2]*testnet.TAP
	for i, name := range []string{"burnt", "plain"} {
		tap, err := ns.NewTAP(name, 2)
		if err != nil {
			t.Fatal(err)
		}
		defer tap.Close()
		taps[i] = tap
	}
	index, err := ns.IfIndex("burnt")
	if err != nil {
		t.Fatal(err)
	}
	cost, err := burn.Calibrate(20 * time.Microsecond)
	if err != nil {
		t.Fatal(err)
	}
	var b *burn.Burn
	if err := ns.Do(func() (err error) { b, err = burn.Attach(index, cost); return err }); err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	last := runtime.NumCPU() - 1
	stop := make(chan struct{})
	floods := []<-chan error{flood(t, taps[0], last, 1, stop), flood(t, taps[1], 0, 0, stop)}
	p, err := Profile(t.Context(), ProfileConfig{FS: ns.FS(), Hz: 499}, 1500*time.Millisecond)
	close(stop)
	for _, done := range floods {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	if err := p.CheckValid(); err != nil {
		t.Fatal(err)
	}
	var burnt, inBurn, elsewhere, plain int64
	for _, s := range p.Sample {
		spins := false
		for _, l := range s.Location {
			spins = spins || len(l.Line) > 0 && l.Line[0].Function.Name == "bpf:burn"
		}
		switch device := s.Label[LabelDevice]; {
		case len(device) == 1 && device[0] == "burnt" && s.Label[LabelCPU][0] == fmt.Sprint(last):
			burnt += s.Value[0]
			if spins {
				inBurn += s.Value[0]
			}
		case spins:
			elsewhere += s.Value[0]
		case len(device) == 1 && device[0] == "plain":
			plain += s.Value[0]
		}
	}
	t.Logf("burnt: %d ticks, %d in the program; plain: %d; the program elsewhere: %d; %v", burnt, inBurn, plain, elsewhere, p.Comments)
	if burnt < 50 || float64(inBurn) < 0.8*float64(burnt) {
		t.Errorf("%d of %d ticks of the burning device are in the program, want 80 %% of at least 50", inBurn, burnt)
	}
	if elsewhere > burnt/50 {
		t.Errorf("%d ticks of the program are said to be elsewhere", elsewhere)
	}
	if plain == 0 {
		t.Error("no tick in the device without the program")
	}
}

func TestProfileWithoutNamesKeepsAddresses(t *testing.T) {
	testnet.NeedTun(t)
	ns := testnet.New(t)
	tap, err := ns.NewTAP("rx0", 1)
	if err != nil {
		t.Fatal(err)
	}
	defer tap.Close()
	stop := make(chan struct{})
	done := flood(t, tap, 0, 0, stop)
	ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer cancel()
	p, err := Profile(ctx, ProfileConfig{FS: noKallsyms{ns.FS()}, Hz: 499}, time.Hour)
	close(stop)
	if err := <-done; err != nil {
		t.Error(err)
	}
	if !errors.Is(err, context.DeadlineExceeded) || p == nil {
		t.Fatalf("%v, %v: want what was sampled until the deadline", p, err)
	}
	if len(p.Sample) == 0 || p.CheckValid() != nil {
		t.Fatalf("%d samples: %v", len(p.Sample), p.CheckValid())
	}
	for _, s := range p.Sample {
		for _, l := range s.Location {
			if len(l.Line) > 0 || l.Address>>63 == 0 {
				t.Fatalf("location %+v: want a kernel address without a name", l)
			}
		}
	}
	if text := strings.Join(p.Comments, "\n"); !strings.Contains(text, "kptr_restrict") {
		t.Errorf("comments do not say why there are no names: %s", text)
	}
}

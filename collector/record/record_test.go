package record

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/rxsteer/rxsteer/collector"
	"github.com/rxsteer/rxsteer/internal/cpuset"
	"github.com/rxsteer/rxsteer/internal/host/knob"
	"github.com/rxsteer/rxsteer/internal/host/nic"
	"github.com/rxsteer/rxsteer/internal/host/topo"
)

var start = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)

func header() Header {
	return Header{Program: "v1", Host: knob.Identity{BootID: "b", Netns: 5, Kernel: "6.12.9", CPUs: "0-3"}, Name: "h", Started: start, Interval: time.Second, Level: 1}
}

func state(budget int64) *State {
	s := &knob.Snapshot{Version: knob.SnapshotVersion, Taken: start, Host: header().Host, Devices: []knob.Device{{Name: "eth0", IfIndex: 2}},
		Settings: []knob.Setting{{Ref: knob.Ref{Knob: knob.NetdevBudget, Target: knob.Host}, Value: knob.Int(budget)}}}
	return &State{At: start, Snapshot: s,
		NICs:     []nic.NIC{{Name: "eth0", IfIndex: 2, Netns: 5, Queues: []nic.Queue{{RX: 0, TX: 0, IRQ: 30, Affinity: cpuset.Of(1, 2)}}}},
		Topology: &topo.Topology{CPUs: []topo.CPU{{ID: 0, Online: true}, {ID: 1, Online: true}}, Online: cpuset.Range(0, 1), Possible: cpuset.Range(0, 3)}}
}

// sample is second i of a host with so many queues and CPUs.
func sample(i, queues, cpus int) *collector.Sample {
	at := start.Add(time.Duration(i) * time.Second)
	s := &collector.Sample{Version: collector.SampleVersion, Start: at, End: at.Add(time.Second), Interval: time.Second, Level: 1,
		CPUs: []collector.CPU{}, NAPIs: []collector.NAPI{}, IRQs: []collector.IRQ{},
		Devices:   []collector.Device{{Name: "eth0", IfIndex: 2, RXPackets: uint64(1e6 + i), RXBytes: 1 << 40}},
		Protocols: map[string]uint64{"UdpInDatagrams": uint64(i)}, Drivers: []collector.Driver{}}
	for c := range cpus {
		cpu := collector.CPU{CPU: c, Tail: 12345, Idle: 540_000_000, Softirq: 310_000_000, Processed: uint64(123456 + i*c)}
		for v := range cpu.SoftirqTime {
			cpu.SoftirqTime[v], cpu.SoftirqRuns[v] = uint64(1234567*v+i), uint64(321*v+c)
		}
		s.CPUs = append(s.CPUs, cpu)
	}
	for q := range queues {
		n := collector.NAPI{Netns: 5, IfIndex: 2, Device: "eth0", ID: uint32(8193 + q), Pointer: 0xffff888100000000 + uint64(q)<<9, RXQueue: q, CPU: q % max(cpus, 1),
			Polls: 20_000, Packets: uint64(123_456 + i), Time: 98_765_432}
		for b := 9; b < 18; b++ {
			n.TimeHist[b], n.WorkHist[b-8] = uint64(1000*b+i), uint64(999*b+q)
		}
		s.NAPIs = append(s.NAPIs, n)
		s.IRQs = append(s.IRQs, collector.IRQ{IRQ: 40 + q, CPU: n.CPU, Action: fmt.Sprintf("mlx5_comp%d", q), Count: 20_000, Time: 20_000_000})
	}
	return s
}

func write(t testing.TB, samples int, queues, cpus int) []byte {
	t.Helper()
	var b bytes.Buffer
	w, err := NewWriter(&b, header())
	if err != nil {
		t.Fatal(err)
	}
	if err := w.State(state(300)); err != nil {
		t.Fatal(err)
	}
	for i := range samples {
		if err := w.Sample(sample(i, queues, cpus)); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.State(state(600)); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// pointers are compared as the reader hands them out: only order and identity are kept.
func relative(s *collector.Sample) *collector.Sample {
	c := *s
	c.NAPIs = append([]collector.NAPI{}, s.NAPIs...)
	for i := range c.NAPIs {
		c.NAPIs[i].Pointer -= s.NAPIs[0].Pointer
	}
	return &c
}

func TestWhatIsReadIsWhatWasWritten(t *testing.T) {
	got, err := Read(bytes.NewReader(write(t, 5, 3, 2)))
	if err != nil || got.Cut != nil {
		t.Fatal(err, got.Cut)
	}
	want := header()
	want.Version = Version
	if d := cmp.Diff(want, got.Header); d != "" {
		t.Errorf("header (-want +got):\n%s", d)
	}
	if len(got.Samples) != 5 || len(got.States) != 2 {
		t.Fatalf("%d samples, %d states", len(got.Samples), len(got.States))
	}
	for i, s := range got.Samples {
		if d := cmp.Diff(relative(sample(i, 3, 2)), relative(s)); d != "" {
			t.Errorf("sample %d (-want +got):\n%s", i, d)
		}
		if s.NAPIs[0].Pointer>>62 != 1 {
			t.Errorf("an address of the kernel is in the file: %x", s.NAPIs[0].Pointer)
		}
	}
	sets := cmp.Comparer(func(a, b cpuset.Set) bool { return a.Equal(b) })
	values := cmp.Comparer(func(a, b knob.Value) bool { return a.Equal(b) })
	for i, budget := range []int64{300, 600} {
		if d := cmp.Diff(state(budget), got.States[i], sets, values, cmpopts.EquateEmpty()); d != "" {
			t.Errorf("state %d (-want +got):\n%s", i, d)
		}
	}
}

func TestTwoNAPIsWithoutIDStayTwo(t *testing.T) {
	s := sample(0, 2, 1)
	s.NAPIs[0].ID, s.NAPIs[1].ID = 0, 0
	s.NAPIs[0].Pointer, s.NAPIs[1].Pointer = s.NAPIs[1].Pointer, s.NAPIs[0].Pointer // the first is the higher
	var b bytes.Buffer
	w, _ := NewWriter(&b, header())
	if err := errors.Join(w.Sample(s), w.Sample(s), w.Close()); err != nil {
		t.Fatal(err)
	}
	got, err := Read(&b)
	if err != nil {
		t.Fatal(err)
	}
	live, read := collector.Merge(s, s), collector.Merge(got.Samples...)
	if len(read.NAPIs) != 2 || cmp.Diff(relative(live), relative(read)) != "" {
		t.Errorf("merged (-live +read):\n%s", cmp.Diff(relative(live), relative(read)))
	}
}

// TestCutAnywhere cuts a recording after every byte: what is read is a beginning of it, and that it
// was cut is said.
func TestCutAnywhere(t *testing.T) {
	whole := write(t, 4, 1, 1)
	most := 0
	for n := range whole {
		got, err := Read(bytes.NewReader(whole[:n]))
		if err != nil {
			if most > 0 {
				t.Fatalf("cut after %d of %d bytes: %v, but less was read before", n, len(whole), err)
			}
			continue
		}
		if got.Cut == nil || got.Cut.Samples != len(got.Samples) || got.Cut.Covered != time.Duration(len(got.Samples))*time.Second {
			t.Fatalf("cut after %d of %d bytes: %+v with %d samples", n, len(whole), got.Cut, len(got.Samples))
		}
		if len(got.Samples) < most {
			t.Fatalf("cut after %d bytes: %d samples, %d with less", n, len(got.Samples), most)
		}
		most = len(got.Samples)
		for i, s := range got.Samples {
			if d := cmp.Diff(relative(sample(i, 1, 1)), relative(s)); d != "" {
				t.Fatalf("cut after %d bytes: sample %d:\n%s", n, i, d)
			}
		}
	}
	if most != 4 {
		t.Errorf("%d samples of the recording less its last byte, want 4", most)
	}
	got, err := Read(bytes.NewReader(whole[:len(whole)-1]))
	if err != nil || !strings.Contains(got.Cut.Error(), "cut off after 4 samples (4s, until 2026-11-30T12:00:04Z)") {
		t.Errorf("%v, %v", err, got.Cut)
	}
}

// TestDamageIsNoticed flips a bit anywhere: no sample is ever another.
func TestDamageIsNoticed(t *testing.T) {
	whole := write(t, 3, 1, 1)
	for n := range whole {
		b := bytes.Clone(whole)
		b[n] ^= 1 << (n % 8)
		got, err := Read(bytes.NewReader(b))
		if err != nil {
			continue
		}
		for i, s := range got.Samples {
			if d := cmp.Diff(relative(sample(i, 1, 1)), relative(s)); d != "" {
				t.Fatalf("byte %d damaged: sample %d:\n%s", n, i, d)
			}
		}
		if got.Cut == nil && len(got.Samples) != 3 {
			t.Fatalf("byte %d damaged: %d samples and no word", n, len(got.Samples))
		}
	}
}

func member(t *testing.T, text string) []byte {
	t.Helper()
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	if _, err := io.WriteString(w, text); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func TestRefused(t *testing.T) {
	newSample, err := json.Marshal(frame{Sample: &collector.Sample{Version: collector.SampleVersion + 1, Interval: 1}})
	if err != nil {
		t.Fatal(err)
	}
	head := `{"format":"rxsteer recording","header":{"version":1}}`
	for name, tc := range map[string]struct {
		file []byte
		want error
		says string
	}{
		"empty":             {nil, ErrNot, ""},
		"text":              {[]byte("interrupts\n"), ErrNot, ""},
		"other gzip":        {member(t, "hello"), ErrNot, ""},
		"other JSON":        {member(t, `{"format":"x","header":{}}`), ErrNot, ""},
		"no header":         {member(t, `{"format":"rxsteer recording"}`), ErrNot, ""},
		"newer":             {member(t, `{"format":"rxsteer recording","header":{"version":2}}`), ErrNewer, "version 2, this program knows 1"},
		"newer and strange": {member(t, `{"format":"rxsteer recording","header":{"version":3,"started":7}}`), ErrNewer, "version 3"},
		"newer sample":      {append(member(t, head), member(t, string(newSample))...), ErrNewer, "a sample of version"},
	} {
		if _, err := Read(bytes.NewReader(tc.file)); !errors.Is(err, tc.want) || !strings.Contains(err.Error(), tc.says) {
			t.Errorf("%s: %v, want %v that says %q", name, err, tc.want, tc.says)
		}
	}
	if _, err := Open(t.TempDir()); !errors.Is(err, ErrNot) {
		t.Errorf("a folder: %v", err)
	}
	if _, err := Open(filepath.Join(t.TempDir(), "none")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no file: %v", err)
	}
	// A frame of a kind that a later program of the same version writes is passed over.
	later := append(member(t, head), member(t, `{"mood":"good"}`)...)
	got, err := Read(bytes.NewReader(append(later, member(t, `{"end":{"samples":0}}`)...)))
	if err != nil || got.Cut != nil {
		t.Errorf("a frame of an unknown kind: %v, %v", err, got.Cut)
	}
	got, err = Read(bytes.NewReader(append(later, member(t, `{"end":{"samples":9}}`)...)))
	if err != nil || got.Cut == nil || !strings.Contains(got.Cut.Why, "9 samples were written") {
		t.Errorf("an end that does not fit: %v, %v", err, got.Cut)
	}
}

type full struct{ left int }

func (f *full) Write(b []byte) (int, error) {
	if f.left -= len(b); f.left < 0 {
		return 0, errors.New("no space left on device")
	}
	return len(b), nil
}

func TestFullDisk(t *testing.T) {
	w, err := NewWriter(&full{3000}, header())
	if err != nil {
		t.Fatal(err)
	}
	for err == nil {
		err = w.Sample(sample(0, 8, 8))
	}
	if again := w.Close(); !strings.Contains(err.Error(), "no space left") || again == nil {
		t.Errorf("%v, then closing: %v", err, again)
	}
}

func TestLongRecordingsAreMergedNotLost(t *testing.T) {
	var b bytes.Buffer
	w, _ := NewWriter(&b, header())
	for i := range 2*maxSamples + 1 {
		s := sample(i, 0, 1)
		s.CPUs[0].Processed = 1
		if err := w.Sample(s); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	got, err := Read(&b)
	if err != nil {
		t.Fatal(err)
	}
	if m := collector.Merge(got.Samples...); len(got.Samples) > maxSamples+1 || m.CPUs[0].Processed != 2*maxSamples+1 || m.Interval != (2*maxSamples+1)*time.Second {
		t.Errorf("%d samples, %d packets in %v", len(got.Samples), m.CPUs[0].Processed, m.Interval)
	}
}

func FuzzRead(f *testing.F) {
	f.Add(write(f, 2, 1, 1))
	f.Add([]byte(`{"format":"rxsteer recording","header":{"version":1}}` + "\n" + `{"sample":{"version":1,"interval_ns":1,"napis":[{}]},"instances":[3,4]}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		_, _ = Read(bytes.NewReader(b))
		// Compressed text is seldom hit by chance: as lines too.
		var packed bytes.Buffer
		for line := range bytes.Lines(b) {
			w := gzip.NewWriter(&packed)
			_, _ = w.Write(line)
			_ = w.Close()
		}
		r, err := Read(&packed)
		if err == nil {
			collector.Merge(r.Samples...)
		}
	})
}

// BenchmarkRead10Minutes is ten minutes at one sample a second of 64 queues on 64 CPUs.
func BenchmarkRead10Minutes(b *testing.B) {
	file := write(b, 600, 64, 64)
	b.ReportMetric(float64(len(file)), "file-bytes")
	b.ReportAllocs()
	for b.Loop() {
		r, err := Read(bytes.NewReader(file))
		if err != nil || len(r.Samples) != 600 {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(len(file)), "file-bytes")
}

func BenchmarkWriteSample(b *testing.B) {
	w, err := NewWriter(io.Discard, header())
	if err != nil {
		b.Fatal(err)
	}
	s := sample(1, 64, 256)
	b.ReportAllocs()
	for b.Loop() {
		if err := w.Sample(s); err != nil {
			b.Fatal(err)
		}
	}
}

package paste

import (
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/fstest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/rxsteer/rxsteer/collector"
	"github.com/rxsteer/rxsteer/internal/cpuset"
	"github.com/rxsteer/rxsteer/internal/host"
	"github.com/rxsteer/rxsteer/internal/host/knob"
	"github.com/rxsteer/rxsteer/internal/host/nic"
	"github.com/rxsteer/rxsteer/internal/host/topo"
)

// files is a read-only host.FS.
type files struct{ fstest.MapFS }

func (f files) ReadFile(p string) ([]byte, error) {
	return f.MapFS.ReadFile(strings.TrimPrefix(p, "/"))
}
func (f files) ReadDir(p string) ([]fs.DirEntry, error) {
	return f.MapFS.ReadDir(strings.TrimPrefix(p, "/"))
}
func (f files) Readlink(p string) (string, error) {
	return f.MapFS.ReadLink(strings.TrimPrefix(p, "/"))
}
func (f files) WriteFile(p string, _ []byte) error {
	return &fs.PathError{Op: "write", Path: p, Err: syscall.EROFS}
}

// reopen writes a bundle to a file and opens it.
func reopen(t *testing.T, b Bundle) *Host {
	t.Helper()
	var first, second bytes.Buffer
	if err := b.Write(&first); err != nil {
		t.Fatal(err)
	}
	if err := b.Write(&second); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(first.Bytes(), second.Bytes()) {
		t.Errorf("writing the same bundle twice gives different bytes")
	}
	name := filepath.Join(t.TempDir(), "b.tar.gz")
	if err := os.WriteFile(name, first.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
	h, err := Open(name)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

func TestBundleOfAHost(t *testing.T) {
	at := func(point int) files {
		x := folder(6, 1)
		p := string(rune('0' + point))
		return files{mapFS(map[string]string{
			"proc/interrupts": x["interrupts."+p], "proc/softirqs": x["softirqs."+p], "proc/net/softnet_stat": x["softnet_stat."+p], "proc/stat": x["stat."+p],
			"proc/cmdline": "quiet\n", "proc/sys/kernel/hostname": "db7\n", "proc/sys/kernel/osrelease": "6.12.9\n",
			"sys/devices/system/cpu/online": "0-5\n", "sys/devices/system/cpu/possible": "0-7\n", "sys/devices/system/cpu/isolated": "\n",
			"proc/irq/31/smp_affinity_list": "0-5\n", "proc/irq/31/effective_affinity_list": "2\n",
			"sys/class/net/bonding_masters": "bond0\n",
			"sys/class/net/eth0/ifindex":    "9\n", "sys/class/net/eth0/flags": "0x1003\n", "sys/class/net/eth0/operstate": "up\n", "sys/class/net/eth0/carrier": "1\n",
			"sys/class/net/eth0/mtu": "9000\n", "sys/class/net/eth0/address": "52:54:00:ab:cd:ef\n",
			"sys/class/net/eth0/statistics/rx_packets": map[int]string{0: "10", 1: "60"}[point], "sys/class/net/eth0/statistics/rx_missed_errors": map[int]string{0: "1", 1: "4"}[point],
		})}
	}
	snapshot := &knob.Snapshot{
		Version: knob.SnapshotVersion, Taken: time.Unix(1700000000, 0).UTC(), Host: knob.Identity{Kernel: "6.12.9", CPUs: "0-5"},
		Devices: []knob.Device{{Name: "eth0", IfIndex: 9}},
		Settings: []knob.Setting{
			{Ref: knob.Ref{Knob: knob.RSSKey, Target: "eth0"}, Value: knob.Text("6d:5a:56:da:25:5b:0e:c2:41:67")},
			{Ref: knob.Ref{Knob: knob.RPSCPUs, Target: "eth0 rx-0"}, Value: knob.Unknown("why not")},
		},
	}
	snapshot.Sort()
	nics := []nic.NIC{{Name: "eth0", IfIndex: 9, Kind: nic.Physical, MAC: "52:54:00:ab:cd:ef", Queues: []nic.Queue{{RX: 0, IRQ: 31, RPS: cpuset.Of(1)}}}}
	tp := &topo.Topology{CPUs: []topo.CPU{{ID: 0, LLC: 3, Online: true}}, Online: cpuset.Of(0), Possible: cpuset.Of(0)}

	b := Bundle{}
	b.AddSettings(at(0))
	b.AddCounters(at(0), 0, time.Unix(1700000000, 0))
	b.AddCounters(at(1), 1, time.Unix(1700000020, 0))
	windows := []*collector.Sample{{Version: 1, Interval: time.Second, Level: 1, CPUs: []collector.CPU{{CPU: 5, Tail: 7}}, NAPIs: []collector.NAPI{{Device: "eth0", Polls: 3}}}, {Version: 1, Interval: 2 * time.Second}}
	if err := b.Save(Saved{Snapshot: snapshot, NICs: nics, Topology: tp, Windows: windows}); err != nil {
		t.Fatal(err)
	}
	b.Mask(Masker{Hosts: []string{"db7"}})
	h := reopen(t, b)
	if len(h.Notes) > 0 {
		t.Errorf("notes: %v", h.Notes)
	}
	if h.HostName != "host1" || h.Kernel != "6.12.9" || h.Online.String() != "0-5" || h.Possible.String() != "0-7" {
		t.Errorf("host %s, kernel %s, online %v, possible %v", h.HostName, h.Kernel, h.Online, h.Possible)
	}
	s := h.Sample()
	if s.Interval != 20*time.Second || len(s.CPUs) != 6 || s.CPUs[5].Processed != 1000 {
		t.Errorf("sample of %v: %+v", s.Interval, s.CPUs)
	}
	if d := cmp.Diff([]collector.Device{{Name: "eth0", IfIndex: 9, RXPackets: 50, RXMissed: 3}}, s.Devices); d != "" {
		t.Errorf("devices (-want +got):\n%s", d)
	}
	if len(h.IRQs) != 5 || h.IRQs[1].Effective != cpuset.Of(2) || h.IRQs[0].AffinityKnown {
		t.Errorf("vectors = %+v", h.IRQs)
	}
	var taken, got bytes.Buffer
	for w, v := range map[*bytes.Buffer]*knob.Snapshot{&taken: snapshot, &got: h.Snapshot()} {
		for _, x := range v.Settings {
			j, err := x.Value.MarshalJSON()
			if err != nil {
				t.Fatal(err)
			}
			w.WriteString(x.Ref.String() + " " + string(j) + "\n")
		}
	}
	if d := cmp.Diff(taken.String(), got.String()); d != "" {
		t.Errorf("snapshot (-want +got):\n%s", d)
	}
	if d := cmp.Diff(windows, h.Saved.Windows); d != "" {
		t.Errorf("windows (-want +got):\n%s", d)
	}
	if g := h.NICs(); len(g) != 1 || g[0].MAC == nics[0].MAC || g[0].Queues[0].RPS != cpuset.Of(1) {
		t.Errorf("NICs = %+v", g)
	}
	if d := cmp.Diff(tp, h.Topology()); d != "" {
		t.Errorf("topology (-want +got):\n%s", d)
	}
}

func TestBundleOfThisHost(t *testing.T) {
	b := Bundle{}
	b.AddSettings(host.OS{})
	b.AddCounters(host.OS{}, 0, time.Now())
	b.AddCounters(host.OS{}, 1, time.Now().Add(time.Second))
	h := reopen(t, b)
	if h.Kernel == "" || h.Kernel == "-" || h.Online.IsEmpty() || len(h.Points[1].Links) == 0 {
		t.Errorf("kernel %q, online %v, %d interfaces", h.Kernel, h.Online, len(h.Points[1].Links))
	}
	for _, n := range h.Notes {
		t.Errorf("note: %v", n)
	}
	if s := h.Sample(); s == nil || len(s.CPUs) < h.Online.Len() {
		t.Errorf("sample = %+v", s)
	}
}

func TestBundleWithBrokenTypes(t *testing.T) {
	h := open(t, map[string]string{
		"snapshot.json": "{\n \"version\": 99\n}", "nics.json": "[\n{,", "topology.json": "{\n\n\"CPUs\": 3}", "samples.json": "[null]", "online": "0\n",
	})
	want := []string{"parse nics.json:2: ", "parse samples.json: a sample of no time", "parse snapshot.json: version 99, this program knows ", "parse topology.json:3: "}
	if len(h.Notes) != len(want) {
		t.Fatalf("notes = %v, want %d", h.Notes, len(want))
	}
	for i, n := range texts(h.Notes) {
		if !strings.HasPrefix(n, want[i]) {
			t.Errorf("note %d = %s, want %s…", i, n, want[i])
		}
	}
	if h.Saved.Snapshot != nil || h.Saved.NICs != nil || h.Saved.Topology != nil {
		t.Errorf("broken types were taken: %+v", h.Saved)
	}
}

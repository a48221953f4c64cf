package paste

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/rxsteer/rxsteer/collector"
	"github.com/rxsteer/rxsteer/internal/cpuset"
	"github.com/rxsteer/rxsteer/internal/host/knob"
	"github.com/rxsteer/rxsteer/internal/host/nic"
)

// folder is a host of cpus CPUs with an igb of four queues, pasted twice 20 s apart: queue i
// is served by CPU i*step, which got 1000*(i+1) interrupts meanwhile.
func folder(cpus, step int) map[string]string {
	head := func() string {
		var b strings.Builder
		b.WriteString("     ")
		for c := range cpus {
			fmt.Fprintf(&b, " %10s", fmt.Sprintf("CPU%d", c))
		}
		return b.String() + "\n"
	}
	row := func(label string, n func(cpu int) int, tail string) string {
		var b strings.Builder
		fmt.Fprintf(&b, "%4s:", label)
		for c := range cpus {
			fmt.Fprintf(&b, "%10d ", n(c))
		}
		return b.String() + tail + "\n"
	}
	f := map[string]string{
		"online": fmt.Sprintf("0-%d\n", cpus-1), "possible": fmt.Sprintf("0-%d\n", cpus-1),
		"cmdline": fmt.Sprintf("ro isolcpus=managed_irq,domain,%d-N\n", cpus-1), "uname.txt": "Linux db7 6.1.0-21-amd64 #1 SMP Debian x86_64 GNU/Linux\n",
		"time.0": "1700000000\n", "time.1": "1700000020.0\n",
		"ethtool-i.txt":      "driver: igb\nversion: 6.1.0\nfirmware-version: 1.63\nbus-info: 0000:01:00.0\n",
		"ethtool-x.eth0.txt": indirection("eth0", 128, 4, 2), "ethtool-l.txt": "Channel parameters for eth0:\nPre-set maximums:\nRX: n/a\nTX: n/a\nOther: 1\nCombined: 8\nCurrent hardware settings:\nRX: n/a\nTX: n/a\nOther: 1\nCombined: 4\n",
		"ethtool-g.txt": "netlink error: Operation not permitted\n", "ethtool-c.txt": "netlink error: Operation not supported\n",
		"ethtool-k.txt": "Features for eth0:\ngeneric-receive-offload: on\nlarge-receive-offload: off [fixed]\n",
		"ethtool-a.txt": "Pause parameters for eth0:\nAutonegotiate: on\nRX: off\nTX: off\n",
		"ethtool-n.txt": "UDP over IPV4 flows use these fields for computing Hash flow key:\nIP SA\nIP DA\n",
		"rps_cpus.txt":  "rx-0 f\nrx-1 0\n", "xps_cpus.txt": "tx-3 8\n",
		"proc_irq.txt": fmt.Sprintf("31 eth0-TxRx-0 0-3 0\n32 eth0-TxRx-1 - %d\n", step),
		"dmesg.txt":    "irq 31: Affinity broken due to vector space exhaustion.\n",
	}
	for p := range 2 {
		s := head() + row("30", func(int) int { return p }, "  IR-PCI-MSI 524288-edge      eth0")
		for q := range 4 {
			s += row(fmt.Sprint(31+q), func(c int) int {
				if c == q*step {
					return 50 + 1000*(q+1)*p
				}
				return 1
			}, fmt.Sprintf("  IR-PCI-MSI %d-edge      eth0-TxRx-%d", 524289+q, q))
		}
		f[fmt.Sprintf("interrupts.%d", p)] = s
		f[fmt.Sprintf("softirqs.%d", p)] = head() + row("NET_RX", func(c int) int { return 10 + 100*p*c }, "")
		var net, stat, eth strings.Builder
		stat.WriteString("cpu 1 1 1 1\n")
		for c := range cpus {
			// 32-bit counters that wrap between the points.
			fmt.Fprintf(&net, "%08x 00000000 %08x 00000000 00000000 00000000 00000000 00000000 00000000 00000000 00000000 00000000 %08x 00000000 00000000\n", uint32(0xfffffff0+1000*p), 7*p, c)
			fmt.Fprintf(&stat, "cpu%d 0 0 0 %d 0 0 %d 0 0 0\n", c, 1000+1500*p, 200+500*p)
		}
		for q := range 4 {
			fmt.Fprintf(&eth, "     rx_queue_%d_packets: %d\n     tx_queue_%d_packets: 1\n", q, 100+5000*(q+1)*p, q)
		}
		f[fmt.Sprintf("softnet_stat.%d", p)] = net.String()
		f[fmt.Sprintf("stat.%d", p)] = stat.String()
		f[fmt.Sprintf("ethtool-S.txt.%d", p)] = "NIC statistics:\n" + eth.String()
		f[fmt.Sprintf("ip-link.txt.%d", p)] = fmt.Sprintf("2: eth0: <BROADCAST,UP,LOWER_UP> mtu 1500 state UP\n    link/ether 02:00:00:00:00:01\n    RX: bytes packets errors dropped missed mcast\n    %d %d 0 %d %d 0\n    TX: bytes packets errors dropped carrier collsns\n    0 0 0 0 0 0\n", 640*p, 10+50000*p, p, 2*p)
	}
	return f
}

func mapFS(files map[string]string) fstest.MapFS {
	m := fstest.MapFS{}
	for name, s := range files {
		m[name] = &fstest.MapFile{Data: []byte(s)}
	}
	return m
}

func open(t *testing.T, files map[string]string) *Host {
	t.Helper()
	h, err := OpenFS(mapFS(files))
	if err != nil {
		t.Fatal(err)
	}
	return h
}

func TestTwoPointsBecomeASample(t *testing.T) {
	for _, cpus := range []int{4, 70, 300} {
		t.Run(fmt.Sprintf("%d CPUs", cpus), func(t *testing.T) {
			step := (cpus - 1) / 3
			h := open(t, folder(cpus, step))
			if len(h.Notes) > 0 {
				t.Errorf("notes: %v", h.Notes)
			}
			s := h.Sample()
			if s.Interval != 20*time.Second || len(s.CPUs) != cpus {
				t.Fatalf("sample of %v, %d CPUs, want 20s, %d", s.Interval, len(s.CPUs), cpus)
			}
			last := s.CPUs[cpus-1]
			if last.Processed != 1000 || last.Squeezed != 7 || last.Softirq != uint64(5*time.Second) || last.Idle != uint64(15*time.Second) || last.SoftirqRuns[collector.NetRX] != uint64(100*(cpus-1)) {
				t.Errorf("last CPU = %+v", last)
			}
			if d := cmp.Diff([]collector.Device{{Name: "eth0", IfIndex: 2, RXPackets: 50000, RXBytes: 640, RXDropped: 1, RXMissed: 2}}, s.Devices); d != "" {
				t.Errorf("devices (-want +got):\n%s", d)
			}
			var queues []string
			for _, n := range s.NAPIs {
				queues = append(queues, fmt.Sprintf("%s %d cpu %d: %d", n.Device, n.RXQueue, n.CPU, n.Packets))
			}
			want := []string{"eth0 0 cpu 0: 5000", fmt.Sprintf("eth0 1 cpu %d: 10000", step), fmt.Sprintf("eth0 2 cpu %d: 15000", 2*step), fmt.Sprintf("eth0 3 cpu %d: 20000", 3*step)}
			if d := cmp.Diff(want, queues); d != "" {
				t.Errorf("queues (-want +got):\n%s", d)
			}
			for _, u := range s.Unmeasured {
				if u.What == "rates" {
					t.Errorf("unmeasured: %v", u)
				}
			}
			tp := h.Topology()
			if len(tp.CPUs) != cpus || tp.Isolated != cpuset.Of(cpus-1) {
				t.Errorf("topology of %d CPUs, isolated %v, want %d, %d", len(tp.CPUs), tp.Isolated, cpus, cpus-1)
			}
		})
	}
}

func TestNICsAndSnapshot(t *testing.T) {
	h := open(t, folder(8, 2))
	nics := h.NICs()
	if len(nics) != 1 {
		t.Fatalf("%d NICs, want 1", len(nics))
	}
	want := nic.NIC{
		Name: "eth0", IfIndex: 2, Kind: nic.Physical, Driver: "igb", Bus: "0000:01:00.0", Version: "6.1.0", Firmware: "1.63", Node: nic.None, Up: true, MTU: 1500,
		Control: []nic.Vector{{IRQ: 30, Name: "eth0"}},
		Queues: []nic.Queue{
			{RX: 0, TX: 0, IRQ: 31, Vector: "eth0-TxRx-0", Node: nic.None, KnownBy: nic.ByName, Affinity: cpuset.Range(0, 3), Effective: cpuset.Of(0), RPS: cpuset.Range(0, 3)},
			{RX: 1, TX: 1, IRQ: 32, Vector: "eth0-TxRx-1", Node: nic.None, KnownBy: nic.ByName, Effective: cpuset.Of(2)},
			{RX: 2, TX: 2, IRQ: 33, Vector: "eth0-TxRx-2", Node: nic.None, KnownBy: nic.ByName},
			{RX: 3, TX: 3, IRQ: 34, Vector: "eth0-TxRx-3", Node: nic.None, KnownBy: nic.ByName, XPS: cpuset.Of(3)},
		},
	}
	if d := cmp.Diff(want, nics[0]); d != "" {
		t.Errorf("NIC (-want +got):\n%s", d)
	}
	s := h.Snapshot()
	if s.Host.Kernel != "6.1.0-21-amd64" || s.Host.CPUs != "0-7" {
		t.Errorf("identity = %+v", s.Host)
	}
	if d := cmp.Diff([]knob.Device{{Name: "eth0", IfIndex: 2, Bus: "0000:01:00.0", Driver: "igb", Version: "6.1.0", Firmware: "1.63", RXQueues: 4, TXQueues: 4, Table: 128}}, s.Devices); d != "" {
		t.Errorf("devices (-want +got):\n%s", d)
	}
	got := map[string]string{}
	for _, x := range s.Settings {
		b, err := x.Value.MarshalJSON()
		if err != nil {
			t.Fatal(err)
		}
		if x.Knob != knob.RSSTable {
			got[x.Ref.String()] = string(b)
		}
	}
	wantSettings := map[string]string{
		"channels of eth0": `{"combined":4,"other":1}`, "channels-max of eth0": `{"combined":8,"other":1}`,
		"rings of eth0": `{"unknown":"netlink error: Operation not permitted"}`, "rings-max of eth0": `{"unknown":"netlink error: Operation not permitted"}`,
		"coalesce of eth0": `{"absent":"netlink error: Operation not supported"}`,
		"features of eth0": `{"rx-gro":true}`, "features-fixed of eth0": `{"rx-lro":false}`, "features-wanted of eth0": `{}`,
		"pause of eth0": `{"autoneg":true,"rx":false,"tx":false}`, "mtu of eth0": `1500`,
		"rss-key of eth0": `{"unknown":"not among the pasted texts"}`, "rss-hash-fields of eth0 udp4": `"sd"`,
		"rps-cpus of eth0 rx-0": `"0-3"`, "rps-cpus of eth0 rx-1": `""`, "xps-cpus of eth0 tx-3": `"3"`,
		"irq-affinity of eth0 irq-31": `"0-3"`, "irq-effective of eth0 irq-31": `"0"`, "irq-effective of eth0 irq-32": `"2"`,
	}
	if d := cmp.Diff(wantSettings, got); d != "" {
		t.Errorf("settings (-want +got):\n%s", d)
	}
	if v := s.Get(knob.Ref{Knob: knob.RSSTable, Target: "eth0"}); !v.Equal(knob.List(upTo(128, 2))) {
		t.Errorf("table = %v", v)
	}
	if len(h.Events) != 1 || h.Events[0].Kind != "affinity-broken" {
		t.Errorf("events = %v", h.Events)
	}
}

func TestOnePointCountsSinceBoot(t *testing.T) {
	f := folder(4, 1)
	one := map[string]string{"stat": f["stat.1"], "softnet_stat": f["softnet_stat.1"], "interrupts": f["interrupts.1"]}
	s := open(t, one).Sample()
	if s.Interval != 32*time.Second { // 2500 idle + 700 softirq ticks
		t.Errorf("interval = %v, want 32s", s.Interval)
	}
	if s.CPUs[3].Processed != 0x3d8 || s.CPUs[3].Softirq != uint64(7*time.Second) {
		t.Errorf("CPU 3 = %+v", s.CPUs[3])
	}
	var notes []string
	for _, u := range s.Unmeasured {
		notes = append(notes, u.What)
	}
	want := []string{"softirq runs (softirqs)", "device counters (ip-link.txt)", "counters of drivers (ethtool-S.txt)", "counters of IP, TCP and UDP (snmp, netstat)", "what happens now"}
	if d := cmp.Diff(want, notes); d != "" {
		t.Errorf("unmeasured (-want +got):\n%s", d)
	}
}

func TestDriversAndProtocolsBetweenPoints(t *testing.T) {
	files := map[string]string{
		"time.0": "1700000000\n", "time.1": "1700000010\n",
		"ethtool-i.ens6.txt":   "driver: i40e\nversion: 6.8\n",
		"ethtool-S.ens6.txt.0": "NIC statistics:\n     port.rx_dropped: 40\n     port.link_xoff_tx: 3\n     rx-0.packets: 1000\n",
		"ethtool-S.ens6.txt.1": "NIC statistics:\n     port.rx_dropped: 340\n     port.link_xoff_tx: 3\n     rx-0.packets: 91000\n",
		"ethtool-S.ens7.txt.1": "NIC statistics:\n     rx_missed_errors: 12345\n", // when it was so many is not told
		"snmp.0":               "Udp: InDatagrams NoPorts InErrors OutDatagrams RcvbufErrors SndbufErrors\nUdp: 900 0 1 5 1 0\n",
		"snmp.1":               "Udp: InDatagrams NoPorts InErrors OutDatagrams RcvbufErrors SndbufErrors\nUdp: 1800 0 61 5 61 0\n",
	}
	s := open(t, files).Sample()
	want := []collector.Driver{{Device: "ens6", IfIndex: s.Devices[0].IfIndex, Name: "i40e", Told: []nic.FactKind{nic.PauseSent, nic.RingDrops},
		Counters: []collector.DriverCounter{{Name: "port.rx_dropped", Kind: nic.RingDrops, Scope: nic.ScopePort, Queue: nic.None, Count: 300}}}}
	if d := cmp.Diff(want, s.Drivers); d != "" {
		t.Errorf("drivers (-want +got):\n%s", d)
	}
	if d := cmp.Diff(map[string]uint64{"UdpInDatagrams": 900, "UdpInErrors": 60, "UdpRcvbufErrors": 60}, s.Protocols); d != "" {
		t.Errorf("protocols (-want +got):\n%s", d)
	}
	if s.SinceBoot || s.Untimed || s.Interval != 10*time.Second {
		t.Errorf("since boot %v, untimed %v, interval %v; want 10 s between two points", s.SinceBoot, s.Untimed, s.Interval)
	}
	for name := range files {
		if strings.HasSuffix(name, ".0") {
			delete(files, name)
		}
	}
	s = open(t, files).Sample()
	if !s.SinceBoot || !s.Untimed || len(s.Drivers) != 2 || s.Drivers[0].Counters[0].Count != 340 || s.Protocols["UdpRcvbufErrors"] != 61 {
		t.Errorf("one point: since boot %v, untimed %v, drivers %+v, protocols %v", s.SinceBoot, s.Untimed, s.Drivers, s.Protocols)
	}
}

func TestWithoutTimesOnlyRatios(t *testing.T) {
	f := folder(4, 1)
	s := open(t, map[string]string{"softirqs.0": f["softirqs.0"], "softirqs.1": f["softirqs.1"], "interrupts": f["interrupts.1"]}).Sample()
	var notes []string
	for _, u := range s.Unmeasured {
		notes = append(notes, u.What)
	}
	want := []string{"interrupts", "packets, drops and squeezes of CPUs (softnet_stat)", "idle, softirq and stolen time of CPUs (stat)", "device counters (ip-link.txt)", "counters of drivers (ethtool-S.txt)", "counters of IP, TCP and UDP (snmp, netstat)", "rates"}
	if d := cmp.Diff(want, notes); d != "" {
		t.Errorf("unmeasured (-want +got):\n%s", d)
	}
	if last := s.CPUs[len(s.CPUs)-1]; last.CPU != 3 || last.SoftirqRuns[collector.NetRX] != 300 {
		t.Errorf("last CPU = %+v, want 300 runs on CPU 3", last)
	}
	if h := open(t, map[string]string{"online": "0-3\n"}); h.Sample() != nil {
		t.Errorf("a sample without counters")
	}
}

func TestSeveralNICs(t *testing.T) {
	h := open(t, map[string]string{
		"interrupts":         "CPU0 CPU1\n30: 1 2 PCI-MSI-edge  virtio0-input.0\n31: 1 2 PCI-MSI-edge  virtio0-output.0\n32: 1 2 PCI-MSI-edge  eth1-TxRx-0\n",
		"ethtool-i.ens3.txt": "driver: virtio_net\nbus-info: 0000:00:03.0\n", "ethtool-i.eth1.txt": "driver: igb\n",
		"ethtool-S.eth1.txt": "rx_queue_0_packets: 5\n", "ethtool-l.txt": "netlink error: Operation not supported\n",
		"rps_cpus.txt": "rx-0 3\n",
		"ip-link.txt":  "2: ens3: <UP,LOWER_UP> mtu 1500 state UP\n3: eth1: <UP> mtu 1500 master br0 state DOWN\n4: br0: <UP,LOWER_UP> mtu 1500 state UP\n5: ens3.7@ens3: <UP,LOWER_UP> mtu 1500 state UP\n    vlan protocol 802.1Q\n",
	})
	var got []string
	for _, n := range h.NICs() {
		got = append(got, fmt.Sprintf("%s %s %s up %v, %d queues, lower %v", n.Name, n.Kind, n.Driver, n.Up, len(n.Queues), n.Lower))
	}
	want := []string{
		"br0 stack  up true, 0 queues, lower [eth1]",
		"ens3 physical virtio_net up true, 2 queues, lower []",
		"ens3.7 stack vlan up true, 0 queues, lower [ens3]",
		"eth1 physical igb up false, 1 queues, lower []",
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("NICs (-want +got):\n%s", d)
	}
	notes := texts(h.Notes)
	if len(notes) != 2 || !strings.Contains(notes[0], "put the interface into the file name") || !strings.Contains(notes[1], "whose queues they are cannot be told") {
		t.Errorf("notes = %q", notes)
	}
}

func TestBrokenFilesAreNotes(t *testing.T) {
	h := open(t, map[string]string{
		"interrupts": "CPU0 CPU1\n30: 1", "softirqs": "\xff\xfe", "softnet_stat": "1 2 3\n", "stat": "", "online": "x", "time.1": "soon", "uname.txt": "hello",
		"ethtool-x.txt": "x", "a/interrupts": "CPU0\n", "a/b/stat": "cpu0 1 2 3 4\n", "notes.md": "hi",
	})
	want := []string{
		"parse interrupts:2: 1 counts, the header has 2 CPUs",
		`parse online:1: parse CPU list "x": not a CPU set: "x"`,
		"parse ethtool-x.txt:1: not a line of ethtool -x: \"x\"",
		"parse softirqs:1: no header line of CPU columns",
		"parse softnet_stat:1: 3 columns, at least 9 are expected",
		"parse stat: no cpu lines",
		`parse time.1:1: not Unix seconds: "soon"`,
		`parse uname.txt:1: no kernel release: "hello"`,
		"parse a/interrupts: left out, interrupts is taken",
	}
	got := texts(h.Notes)
	if d := cmp.Diff(sorted(want), sorted(got)); d != "" {
		t.Errorf("notes (-want +got):\n%s", d)
	}
}

func sorted(s []string) map[string]bool {
	m := map[string]bool{}
	for _, x := range s {
		m[x] = true
	}
	return m
}

// archive packs files as tar.gz below a folder.
func archive(t *testing.T, files map[string]string) []byte {
	t.Helper()
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	w := tar.NewWriter(z)
	for name, s := range files {
		if err := w.WriteHeader(&tar.Header{Name: "ticket/" + name, Mode: 0o644, Size: int64(len(s)), Typeflag: tar.TypeReg}); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write([]byte(s)); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func TestOpenFolderAndArchive(t *testing.T) {
	dir := t.TempDir()
	files := folder(4, 1)
	sub := filepath.Join(dir, "pasted")
	if err := os.Mkdir(sub, 0o755); err != nil {
		t.Fatal(err)
	}
	for name, s := range files {
		if err := os.WriteFile(filepath.Join(sub, name), []byte(s), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	packed := archive(t, files)
	whole, cut, plain := filepath.Join(dir, "t.tar.gz"), filepath.Join(dir, "cut.tar.gz"), filepath.Join(dir, "plain")
	for name, b := range map[string][]byte{whole: packed, cut: packed[:len(packed)*3/4], plain: []byte("hello")} {
		if err := os.WriteFile(name, b, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	a, err := Open(sub)
	if err != nil {
		t.Fatal(err)
	}
	b, err := Open(whole)
	if err != nil {
		t.Fatal(err)
	}
	of := func(h *Host) string {
		j, err := json.MarshalIndent(h.Snapshot(), "", " ")
		if err != nil {
			t.Fatal(err)
		}
		return string(j)
	}
	if d := cmp.Diff(of(a), of(b)); d != "" {
		t.Errorf("folder and archive differ (-folder +archive):\n%s", d)
	}
	if c, err := Open(cut); err != nil || len(c.Notes) == 0 {
		t.Errorf("cut archive: error %v, want a note", err)
	}
	for _, name := range []string{plain, filepath.Join(dir, "none"), t.TempDir()} {
		if _, err := Open(name); err == nil || !strings.HasPrefix(err.Error(), "open pasted texts") {
			t.Errorf("Open(%s) error = %v", filepath.Base(name), err)
		}
	}
}

func TestOpenBoundsWhatItReads(t *testing.T) {
	h := open(t, map[string]string{"dmesg.txt": strings.Repeat("x", MaxFile+1), "online": "0\n"})
	if len(h.Notes) != 1 || h.Notes[0].Error() != "parse dmesg.txt: larger than 64 MiB, left out" {
		t.Errorf("notes = %v", h.Notes)
	}
	var c collection
	var err error
	for i := 0; i <= maxFiles && err == nil; i++ {
		err = c.add(fmt.Sprintf("ethtool-x.e%d.txt", i), strings.NewReader(""))
	}
	if err == nil || len(c.files) != maxFiles {
		t.Errorf("%d files were taken, error %v", len(c.files), err)
	}
}

func TestNameOf(t *testing.T) {
	tests := []struct {
		base string
		want fileName
		ok   bool
	}{
		{"interrupts", fileName{"interrupts", "", 1, true}, true},
		{"interrupts.0", fileName{"interrupts", "", 0, false}, true},
		{"interrupts.txt.1", fileName{"interrupts", "", 1, false}, true},
		{"ethtool-S.txt.0", fileName{"ethtool-S", "", 0, false}, true},
		{"ethtool-S.eth0.100.txt", fileName{"ethtool-S", "eth0.100", 1, true}, true},
		{"rps_cpus.eth1.txt", fileName{"rps_cpus", "eth1", 1, true}, true},
		{"interrupts.bak", fileName{"interrupts", "bak", 1, true}, false},
		{"ethtool-Z.txt", fileName{"ethtool-Z", "", 1, true}, false},
		{"README", fileName{"README", "", 1, true}, false},
	}
	for _, tt := range tests {
		got, ok := nameOf(tt.base)
		if got != tt.want || ok != tt.ok {
			t.Errorf("nameOf(%q) = %+v, %v, want %+v, %v", tt.base, got, ok, tt.want, tt.ok)
		}
	}
}

func FuzzParsers(f *testing.F) {
	for _, s := range folder(2, 1) {
		f.Add([]byte(s))
	}
	f.Add([]byte("7 RX rings available\nFilter: 1\n\tRule Type: TCP over IPv4\n\tSrc port: 1 mask: 0xff\n\tAction: Direct to VF 0 queue 2\n"))
	f.Add([]byte("  Rx Queue#: 1\n  ucast pkts rx: 3\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		for name, parse := range map[string]func() []error{
			"x":    func() []error { _, e := ParseRSS("f", text); return e },
			"l":    func() []error { _, e := ParseChannels("f", text); return e },
			"g":    func() []error { _, e := ParseRings("f", text); return e },
			"c":    func() []error { _, e := ParseCoalesce("f", text); return e },
			"k":    func() []error { _, e := ParseFeatures("f", text); return e },
			"a":    func() []error { _, e := ParsePause("f", text); return e },
			"i":    func() []error { _, e := ParseInfo("f", text); return e },
			"n":    func() []error { _, e := ParseClassification("f", text); return e },
			"S":    func() []error { s, e := ParseStats("f", text); s.Queues(); return e },
			"link": func() []error { _, e := ParseIPLink("f", text); return e },
			"irq":  func() []error { _, e := ParseIRQs("f", text); return e },
			"rps":  func() []error { _, e := ParseQueueMasks("f", text); return e },
		} {
			for _, e := range parse() {
				if !strings.HasPrefix(e.Error(), "parse f") {
					t.Errorf("%s: error without file: %v", name, e)
				}
			}
		}
		ParseDmesg(text)
		Masker{}.Mask(text)
	})
}

// FuzzHost builds everything from whatever texts.
func FuzzHost(f *testing.F) {
	x := folder(2, 1)
	f.Add([]byte(x["interrupts.0"]), []byte(x["interrupts.1"]), []byte(x["softnet_stat.1"]), []byte(x["ethtool-x.eth0.txt"]), []byte(x["ethtool-S.txt.1"]), []byte(x["ip-link.txt.1"]))
	f.Fuzz(func(t *testing.T, a, b, c, d, e, g []byte) {
		h, err := OpenFS(fstest.MapFS{
			"interrupts.0": {Data: a}, "interrupts.1": {Data: b}, "softnet_stat": {Data: c}, "ethtool-x.txt": {Data: d}, "ethtool-l.txt": {Data: d},
			"ethtool-S.txt": {Data: e}, "ethtool-S.txt.0": {Data: b}, "ip-link.txt": {Data: g}, "proc_irq.txt": {Data: e}, "rps_cpus.txt": {Data: g},
			"stat": {Data: c}, "softirqs": {Data: a}, "cmdline": {Data: d}, "uname.txt": {Data: g}, "online": {Data: e},
		})
		if err != nil {
			t.Fatal(err)
		}
		h.Topology()
		h.Sample()
		s := h.Snapshot()
		for i := 1; i < len(s.Settings); i++ {
			if s.Settings[i].Ref == s.Settings[i-1].Ref {
				t.Errorf("%v is there twice", s.Settings[i].Ref)
			}
		}
	})
}

package paste

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/rxsteer/rxsteer/internal/cpuset"
	"github.com/rxsteer/rxsteer/internal/host/procfs"
	"github.com/rxsteer/rxsteer/internal/host/vector"
)

// cases is the folder of real inputs, neutralised; the same shapes with other
// values are in the tables of this package, procfs and vector.
func cases(t *testing.T) string {
	t.Helper()
	dir := filepath.Join("..", "..", "..", "..", "shared", "cases", "inputs")
	if _, err := os.Stat(dir); err != nil {
		t.Skip("needs ../shared/cases")
	}
	return dir
}

func readCase(t *testing.T, elem ...string) []byte {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(elem...))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// understood are the interrupts of each case as its README says: CPU columns, and for
// each vector that matters "action: device bdf kind rx/tx confidence".
var understood = map[string]struct {
	cpus int
	want []string
}{
	"arm-ipi-glued":          {8, nil},
	"atlantic-no-index":      {4, []string{"128 enp1s0: enp1s0 txrx 0/0 inferred", "131 enp1s0: enp1s0 txrx 3/3 inferred", "132 enp1s0: enp1s0 control -/- inferred", "134 enp1s0: enp1s0 control -/- inferred"}},
	"azure-mana":             {4, []string{"25 mana_q0@pci:7870:00:00.0:  txrx 0/0 inferred", "28 mana_q3@pci:7870:00:00.0:  txrx 3/3 inferred"}},
	"azure-mlx4":             {8, []string{"33 mlx4-async@pci:0001:00:02.0:  control -/- exact", "34 mlx4-1@0001:00:02.0:  txrx 0/0 inferred"}},
	"azure-mlx5-all-on-cpu0": {8, []string{"26 mlx5_async_eq@pci:8b76:00:02.0:  control -/- exact", "47 mlx5_comp7@pci:83a4:00:02.0:  txrx 7/7 inferred"}},
	"azure-mlx5-hyperv":      {2, []string{"33 mlx5_async0@pci:4ea0:00:02.0:  control -/- exact", "34 mlx5_comp0@pci:4ea0:00:02.0:  txrx 0/0 inferred"}},
	"bcmgenet-rpi4":          {4, []string{"48 eth0: eth0 txrx 0/0 inferred", "49 eth0: eth0 txrx -/- inferred", "55 VCHIQ doorbell:  other -/- none"}},
	"bnx2x-32cpu":            {32, []string{"148 eth0: eth0 control -/- exact", "157 eth0-fp-7: eth0 txrx 7/7 exact"}},
	"cxgb4-24cpu":            {24, []string{"57 enp5s0f4 (queue 17): enp5s0f4 txrx 17/17 inferred"}},
	"e1000e-atl1-shared":     {2, []string{"27 eth0: eth0 txrx 0/0 inferred", "28 eth1: eth1 txrx 0/0 inferred", "19 ata_piix:  other -/- none"}},
	"e1000e-laptop-iwlwifi":  {14, []string{"151 ELAN06DA:00:  other -/- none", "192 enp0s31f6: enp0s31f6 txrx 0/0 inferred", "196 iwlwifi:queue_2:  rx 2/- inferred", "209 iwlwifi:exception:  control -/- exact"}},
	"ena-2cpu":               {2, []string{"28 ena-mgmnt@pci:0000:00:05.0: eth0 control -/- exact", "30 eth0-Tx-Rx-1: eth0 txrx 1/1 exact"}},
	"ena-3eni-4cpu":          {4, []string{"32 ena-mgmnt@pci:0000:00:06.0: eth1 control -/- exact", "56 eth2-Tx-Rx-3: eth2 txrx 3/3 exact"}},
	"ena-xen-msi-irqs-empty": {16, []string{"212 eth0-Tx-Rx-1: eth0 txrx 1/1 exact"}},
	"fec-imx8":               {4, []string{"208 30be0000.ethernet: 30be0000.ethernet txrx 0/0 inferred", "210 30be0000.ethernet: 30be0000.ethernet txrx 2/2 inferred", "211 30be0000.ethernet: 30be0000.ethernet control -/- inferred"}},
	"gic-hwirq-no-type":      {4, []string{"37 2400000.ipu:  other -/- none", "41 galcore interrupt service:  other -/- none"}},
	"gve-msix-per-device-domain": {2, []string{
		"168 gve-ntfy-blk0@pci:0000:00:08.0:  tx -/0 inferred", "169 gve-ntfy-blk1@pci:0000:00:08.0:  rx 0/- inferred", "170 gve-mgmnt@pci:0000:00:08.0:  control -/- exact"}},
	"gve-old-naming-arm":      {2, []string{"26 eth%d-ntfy-block.0:  tx -/0 inferred", "58 eth%d-mgmnt:  control -/- exact"}},
	"hns3-names-only":         {1, []string{"329 hns3-0000:7d:00.1-TxRx-0:  txrx 0/0 exact"}},
	"hyperv-vmbus-synthetic":  {2, []string{"HYP Hypervisor callback interrupts:  other -/- none"}},
	"i40e-i217-igb":           {4, []string{"33 i40e-eth0-TxRx-0: eth0 txrx 0/0 exact", "37 i40e-0000:01:00.0:fdir-TxRx-0:  control -/- exact", "60 eth2: eth2 txrx 0/0 inferred", "61 eth3: eth3 control -/- exact"}},
	"ice-12cpu":               {12, []string{"58 ice-ens1f0-TxRx-11: ens1f0 txrx 11/11 exact"}},
	"ice-msix-bdf-4cpu":       {4, []string{"102 ice-0000:17:00.0:misc: enp23s0np0 control -/- exact", "104 ice-enp23s0np0-TxRx-0: enp23s0np0 txrx 0/0 exact"}},
	"igb-82576-8q":            {8, []string{"35 eth0: eth0 control -/- exact", "52 eth1-TxRx-7: eth1 txrx 7/7 exact"}},
	"igb-e1000e-msix":         {16, []string{"77 eth0-rx-0: eth0 rx 0/- exact", "78 eth0-tx-0: eth0 tx -/0 exact", "79 eth0: eth0 control -/- exact"}},
	"igb-i211-sep-rxtx":       {4, []string{"128 eth1: eth1 txrx 0/0 inferred", "129 eth0: eth0 control -/- exact", "133 eth0-tx-1: eth0 tx -/1 exact"}},
	"igb-many-ports-4cpu":     {4, []string{"88 eth3-rx-3: eth3 rx 3/- exact", "57 eth0: eth0 control -/- exact"}},
	"igb-sep-rxtx-4cpu":       {4, []string{"131 eth0-rx-3: eth0 rx 3/- exact", "146 eth2: eth2 txrx 0/0 inferred"}},
	"igc-4q-new":              {4, []string{"160 enp1s0-TxRx-3: enp1s0 txrx 3/3 exact"}},
	"ioapic-spread-all-cpus":  {8, []string{"59 eth0-TxRx-7: eth0 txrx 7/7 exact"}},
	"ipq806x-gic0":            {2, []string{"30 eth0: eth0 txrx 0/0 inferred", "34 mmci-pl18x (cmd):  other -/- none"}},
	"ixgbe-12cpu":             {12, []string{"82 eth1-TxRx-7: eth1 txrx 7/7 exact", "63 eth2: eth2 txrx 0/0 inferred"}},
	"ixgbe-igb-32cpu":         {32, []string{"99 eth0-TxRx-7: eth0 txrx 7/7 exact", "141 eth5: eth5 control -/- exact"}},
	"mips-alchemy":            {1, []string{"73 eth0: eth0 txrx 0/0 inferred"}},
	"mips-ar71xx-blank-chip":  {1, []string{"4 19000000.eth: 19000000.eth txrx 0/0 inferred", "12 ath9k:  other -/- none"}},
	"mlx4-be2net":             {16, []string{"109 mlx4-comp-0@pci:0000:04:00.0:  control -/- exact", "113 eth6-0: eth6 txrx 0/0 inferred", "128 eth7-7: eth7 txrx 7/7 inferred", "161 eth0-tx-0: eth0 txrx 0/0 inferred", "162 eth0-rx-1: eth0 rx 1/- inferred"}},
	"mlx5-2port-4cpu":         {4, []string{"27 mlx5_pages_eq@pci:0000:01:00.0:  control -/- exact", "40 mlx5_comp3@pci:0000:01:00.1:  txrx 3/3 inferred"}},
	"mtk-eth-soc-filogic":     {4, []string{"120 15100000.ethernet: 15100000.ethernet tx -/0 inferred", "121 15100000.ethernet: 15100000.ethernet rx 0/- inferred"}},
	"mvneta-wrt32x":           {2, []string{"36 eth1: eth1 txrx 0/0 inferred"}},
	"offline-cpus":            {4, []string{"34 i40e-eth0-TxRx-1: eth0 txrx 1/1 exact"}},
	"qlcnic-48cpu":            {48, []string{"91 eth0-tx-0-rx-3: eth0 txrx 3/0 exact", "88 eth0-rx-0: eth0 rx 0/- exact"}},
	"r8125-realtek-vendor":    {3, []string{"30 eth0-0: eth0 txrx 0/0 inferred", "36 eth0-6: eth0 other -/- none"}},
	"rk3328-eth1-on-usb":      {4, []string{"24 eth0: eth0 txrx 0/0 inferred", "25 xhci-hcd:usb1: usb1 other -/- none"}},
	"s390-irq-classes":        {2, []string{"QAI [I/O] QDIO Adapter Interrupt:  other -/- none"}},
	"stmmac-pci-multi-msi":    {4, []string{"131 eth0:rx-0: eth0 rx 0/- exact", "136 eth0:tx-2: eth0 tx -/2 exact"}},
	"thunderx-nicvf":          {4, []string{"73 enp5s0f1-rxtx-0: enp5s0f1 txrx 0/0 exact", "89 enp5s0f1-rbdr-0: enp5s0f1 control -/- exact", "92 enp5s0f1-qset-err-0: enp5s0f1 control -/- exact"}},
	"virtio-1cpu":             {1, []string{"26 virtio0-config: virtio0 control -/- exact", "27 virtio0-input.0: virtio0 rx 0/- exact", "28 virtio0-output.0: virtio0 tx -/0 exact", "25 virtio1-req.0: virtio1 other -/- none"}},
	"virtio-kvm-shared-intx":  {2, []string{"11 uhci_hcd:usb1: usb1 other -/- none", "11 eth0: eth0 txrx 0/0 inferred", "11 eth1: eth1 txrx 0/0 inferred"}},
	"vmxnet3-4cpu-old":        {4, []string{"59 eth0-rxtx-3: eth0 txrx 3/3 exact", "60 eth0-event-4: eth0 control -/- exact"}},
	"xen-netfront-8cpu":       {8, []string{"113 vif0-q6-rx: vif0 rx 6/- exact", "112 vif0-q6-tx: vif0 tx -/6 exact"}},
	"xen-netfront-split-chip": {4, []string{"70 vif0-q0-tx: vif0 tx -/0 exact", "77 vif0-q3-rx: vif0 rx 3/- exact"}},
}

func TestCasesInterrupts(t *testing.T) {
	dir := cases(t)
	files, err := filepath.Glob(filepath.Join(dir, "*", "interrupts"))
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for _, file := range files {
		name := filepath.Base(filepath.Dir(file))
		seen[name] = true
		t.Run(name, func(t *testing.T) {
			table, err := procfs.ParseInterrupts(name, readCase(t, file))
			if err != nil {
				t.Fatal(err)
			}
			for _, p := range table.Problems {
				t.Errorf("problem: %v", p)
			}
			rows := vector.Table(table, nil)
			var got []string
			for _, r := range rows {
				for _, a := range r.Actions {
					got = append(got, fmt.Sprintf("%s %s: %s %s %s/%s %s", r.IRQ, a.Name, a.Device, a.Kind, number(a.RXQueue), number(a.TXQueue), a.Confidence))
					if a.Kind != vector.Other {
						t.Logf("%5s  %-40s %-18s %-13s %-8s rx %-3s tx %-3s %s", r.IRQ, a.Name, a.Device, a.BDF, a.Kind, number(a.RXQueue), number(a.TXQueue), a.Confidence)
					}
				}
			}
			want, known := understood[name]
			if !known {
				t.Fatalf("no expectation: add what its README says")
			}
			if len(table.CPUs) != want.cpus {
				t.Errorf("%d CPUs, want %d", len(table.CPUs), want.cpus)
			}
			for _, w := range want.want {
				if !slices.Contains(got, w) {
					t.Errorf("no %q in\n%s", w, strings.Join(got, "\n"))
				}
			}
		})
	}
	for name := range understood {
		if !seen[name] {
			t.Errorf("case %s is not there", name)
		}
	}
}

func number(n int) string {
	if n == vector.None {
		return "-"
	}
	return fmt.Sprint(n)
}

func TestCasesCPUSets(t *testing.T) {
	dir := cases(t)
	check := func(file string, parse func(string) (cpuset.Set, error)) {
		for i, line := range strings.Split(string(readCase(t, dir, file)), "\n") {
			value, want, ok := strings.Cut(line, " | ")
			if !ok || strings.HasPrefix(line, "#") || strings.HasPrefix(want, "(isolcpus") || strings.HasPrefix(want, "(cmdline") {
				continue
			}
			value = strings.NewReplacer(`\n`, "\n", `\x00`, "\x00").Replace(value)
			got, err := parse(value)
			switch want {
			case "(none)":
				want = ""
			case "same":
				want = value
			case "even CPUs 0-62":
				want = "0-62:1/2"
			}
			w, err2 := cpuset.ParseList(want)
			if err != nil || err2 != nil || got != w {
				t.Errorf("%s:%d: %q = %v, %v, want %v, %v", file, i+1, value, got, err, w, err2)
			}
		}
	}
	check(filepath.Join("cpulists", "lists.txt"), cpuset.ParseList)
	check(filepath.Join("cpumasks", "masks.txt"), cpuset.ParseMask)
}

func TestCasesCounters(t *testing.T) {
	dir := cases(t)
	softnet := func(name string) []procfs.Softnet {
		rows, err := procfs.ParseSoftnet(name, readCase(t, dir, name, "softnet_stat"))
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		return rows
	}
	if rows := softnet("softnet-10col-rhel7"); len(rows) != 1 || rows[0].Processed != 0x29620 || rows[0].Squeezed != 2 || rows[0].Columns != 10 {
		t.Errorf("softnet-10col-rhel7 = %+v", rows)
	}
	if rows := softnet("softnet-mixed-widths"); len(rows) != 5 || rows[0].CPU != 0 || rows[1].CPU != 1 || rows[1].Backlog != 0xdc || rows[2].CPU != procfs.None || rows[3].Columns != 9 || rows[4].ReceivedRPS != 0x10 {
		t.Errorf("softnet-mixed-widths = %+v", rows)
	}
	if rows := softnet("ioapic-spread-all-cpus"); len(rows) != 8 || rows[0].Columns != 10 || rows[0].Squeezed == 0 {
		t.Errorf("ioapic-spread-all-cpus = %+v", rows)
	}
	if _, err := procfs.ParseSoftnet("softnet_stat", readCase(t, dir, "softnet-broken", "softnet_stat")); err == nil || !strings.HasPrefix(err.Error(), "parse softnet_stat:1: ") {
		t.Errorf("softnet-broken: error = %v, want one of line 1", err)
	}
	h, err := Open(filepath.Join(dir, "offline-cpus"))
	if err != nil {
		t.Fatal(err)
	}
	p := h.Points[1]
	if h.Online.String() != "0,2,4,6" || h.Possible.String() != "0-7" || len(p.Softirqs.CPUs) != 8 || p.Softnet[3].CPU != 6 || p.Softnet[3].Columns != 15 {
		t.Errorf("offline-cpus: online %v, possible %v, softirqs of %d, softnet %+v", h.Online, h.Possible, len(p.Softirqs.CPUs), p.Softnet)
	}
	if s := h.Sample(); len(s.CPUs) < 4 {
		t.Errorf("offline-cpus: %d CPUs in the sample", len(s.CPUs))
	}
}

func TestCasesEthtool(t *testing.T) {
	dir := cases(t)
	rss := func(name string) *RSS {
		v, errs := ParseRSS(name, readCase(t, dir, "ethtool-x", name+".txt"))
		if len(errs) > 0 {
			t.Errorf("%s: %v", name, errs)
		}
		return v
	}
	if v := rss("enetc-64entries"); v.Rings != 2 || len(v.Table) != 64 || v.Function != "toeplitz" || len(v.Key) != 119 {
		t.Errorf("enetc: %+v", v)
	}
	if v := rss("ixgbe-63rings-16rss"); v.Rings != 63 || len(v.Table) != 128 || slices.Max(v.Table) != 15 || v.Cut {
		t.Errorf("ixgbe: %+v", v)
	}
	if v := rss("i40e-64rings-stale-20"); v.Rings != 64 || !v.Cut || slices.Max(v.Table) != 19 {
		t.Errorf("i40e: %+v", v)
	}
	if v := rss("mtk-4rings-equal1"); v.Rings != 4 || slices.Max(v.Table) != 0 {
		t.Errorf("mtk: %+v", v)
	}
	if v := rss("new-input-xfrm"); v.Xfrm != "none" || len(v.Table) != 128 {
		t.Errorf("new: %+v", v)
	}
	if v := rss("stmmac-stale-after-L"); v.Rings != 3 || len(v.Remarks) != 1 {
		t.Errorf("stmmac: %+v", v)
	}
	if v := rss("virtio-unsupported"); v.TableRefused == nil || v.KeyRefused == nil || v.Function != "toeplitz" || v.Table != nil {
		t.Errorf("virtio: %+v", v)
	}
	for name, want := range map[string]string{
		"i350-combined": "map[combined:63 other:1] map[combined:32 other:1] true", "new-na": "map[combined:64 other:1] map[combined:1 other:1] true",
		"tg3-separate": "map[rx:4 tx:4] map[rx:4 tx:1] true", "unsupported": "map[] map[] false",
	} {
		v, errs := ParseChannels(name, readCase(t, dir, "ethtool-l", name+".txt"))
		if got := fmt.Sprint(v.Max, v.Now, v.Refused == nil); got != want || len(errs) > 0 {
			t.Errorf("%s = %s, %v, want %s", name, got, errs, want)
		}
	}
	for name, want := range map[string][2]uint32{ // rx-usecs, rx-frames
		"mlx-adaptive-old": {16, 88}, "mlx5-new": {8, 128}, "r8169-new-na": {0, 1}, "virtio-or-ixgbevf-old": {1, 0},
	} {
		v, errs := ParseCoalesce(name, readCase(t, dir, "ethtool-c", name+".txt"))
		if got := [2]uint32{v.Group["rx-usecs"], v.Group["rx-frames"]}; got != want || len(errs) > 0 {
			t.Errorf("%s = %v, %v, want %v", name, got, errs, want)
		}
	}
	for name, want := range map[string][2]int{ // receive and transmit queues
		"be2net": {9, 8}, "bnx2": {0, 0}, "bnx2x": {8, 8}, "bnxt_en": {12, 12}, "e1000e": {0, 0}, "fsl_dpaa2_eth": {0, 0},
		"i40e": {12, 12}, "i40e-v2.3.2k": {64, 64}, "iavf": {16, 16}, "mlx5_core": {16, 16}, "r8169": {0, 0}, "virtio_net": {2, 2},
	} {
		s, errs := ParseStats(name, readCase(t, dir, "ethtool-S", name+".txt"))
		var got [2]int
		for _, q := range s.Queues() {
			if q.TX {
				got[1]++
			} else {
				got[0]++
			}
		}
		if got != want || len(errs) > 0 {
			t.Errorf("%s: %v queues, %v, want %v", name, got, errs, want)
		}
	}
}

func TestCasesVectorLists(t *testing.T) {
	dir := cases(t)
	irqs, errs := ParseIRQs("proc_irq.txt", readCase(t, dir, "iavf-isolcpus", "proc_irq.txt"))
	if len(errs) > 0 || len(irqs) < 12 {
		t.Errorf("iavf-isolcpus: %d vectors, %v", len(irqs), errs)
	}
	for _, i := range irqs {
		if i.IRQ == 1424 && (i.Action != "iavf-0000:3b:0b.0:mbx" || i.Affinity.String() != "0,40,42") {
			t.Errorf("vector 1424 = %+v", i)
		}
	}
	masks, errs := ParseQueueMasks("xps", readCase(t, dir, "mlx5-multi-pf", "xps"))
	if len(errs) > 0 || len(masks) < 3 || masks[1].CPUs.String() != "12" || !masks[1].TX || masks[1].Queue != 1 {
		t.Errorf("mlx5-multi-pf: %+v, %v", masks, errs)
	}
}

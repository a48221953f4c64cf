package vector

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rxsteer/rxsteer/internal/host/procfs"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// short writes a Vector as "device bdf kind rx/tx confidence", "-" for what is not known.
func short(v Vector) string {
	dash := func(s string) string {
		if s == "" {
			return "-"
		}
		return s
	}
	num := func(n int) string {
		if n == None {
			return "-"
		}
		return fmt.Sprint(n)
	}
	return fmt.Sprintf("%s %s %s %s/%s %s", dash(v.Device), dash(v.BDF), v.Kind, num(v.RXQueue), num(v.TXQueue), v.Confidence)
}

func TestParseKnowsEveryDriversNames(t *testing.T) {
	tests := []struct{ action, want string }{
		{"eth7-TxRx-3", "eth7 - txrx 3/3 exact"},
		{"enp3s0-rx-12", "enp3s0 - rx 12/- exact"},
		{"enp3s0-tx-0", "enp3s0 - tx -/0 exact"},
		{"eth7-fdir-TxRx-0", "eth7 - control -/- exact"},
		{"eth7", "eth7 - other -/- none"},
		{"eth7:lsc", "eth7 - control -/- exact"},
		{"i40e-ens1f0-TxRx-31", "ens1f0 - txrx 31/31 exact"},
		{"i40e-0000:65:00.1:misc", "- 0000:65:00.1 control -/- exact"},
		{"i40e-0000:65:00.1:fdir-TxRx-0", "- 0000:65:00.1 control -/- exact"},
		{"i40e-ens1f0-fdir", "ens1f0 - control -/- exact"},
		{"iavf-ens1f0v2-TxRx-1", "ens1f0v2 - txrx 1/1 exact"},
		{"iavf-0000:65:02.2:mbx", "- 0000:65:02.2 control -/- exact"},
		{"ice-ens1f0np0-TxRx-100", "ens1f0np0 - txrx 100/100 exact"},
		{"ice-0000:65:00.0:ctrl-TxRx-0", "- 0000:65:00.0 control -/- exact"},
		{"idpf-ens1-TxRx-2", "ens1 - txrx 2/2 exact"},
		{"mlx5_comp31@pci:0000:81:00.1", "- 0000:81:00.1 txrx 31/31 inferred"},
		{"mlx5_async0@pci:0000:81:00.1", "- 0000:81:00.1 control -/- exact"},
		{"mlx5_pages_eq@pci:8b76:00:02.0", "- 8b76:00:02.0 control -/- exact"},
		{"mlx4-4@0001:00:02.0", "- 0001:00:02.0 txrx 3/3 inferred"},
		{"mlx4-comp-4@pci:0000:05:00.0", "- 0000:05:00.0 control -/- exact"},
		{"mlx4-async@pci:0000:05:00.0", "- 0000:05:00.0 control -/- exact"},
		{"eth7-5", "eth7 - txrx 5/5 inferred"},
		{"enp4s0f0np0-TxRx-", "enp4s0f0np0 - txrx -/- inferred"},
		{"eth7-fp-2", "eth7 - txrx 2/2 exact"},
		{"eth7-tx-0-rx-3", "eth7 - txrx 3/0 exact"},
		{"eth7-txrx-2", "eth7 - txrx 2/2 exact"},
		{"eth7-xdp-1", "eth7 - tx -/- exact"},
		{"enp5s0f4 (queue 9)", "enp5s0f4 - txrx 9/9 inferred"},
		{"eth7-err", "eth7 - control -/- exact"},
		{"eth7-notify", "eth7 - control -/- exact"},
		{"LiquidIO0-pf1-rxtx-6", "- - txrx 6/6 inferred"},
		{"LiquidIO0-pf1-aux", "- - control -/- exact"},
		{"ens5-Tx-Rx-7", "ens5 - txrx 7/7 exact"},
		{"ena-mgmnt@pci:0000:00:05.0", "- 0000:00:05.0 control -/- exact"},
		{"eth%d-ntfy-block.3", "- - other -/- none"},
		{"eth%d-mgmnt", "- - control -/- exact"},
		{"gve-ntfy-blk3@pci:0000:00:04.0", "- 0000:00:04.0 other -/- none"},
		{"gve-mgmnt@pci:0000:00:04.0", "- 0000:00:04.0 control -/- exact"},
		{"mana_hwc@pci:7870:00:00.0", "- 7870:00:00.0 control -/- exact"},
		{"mana_q12@pci:7870:00:00.0", "- 7870:00:00.0 txrx 12/12 inferred"},
		{"virtio3-config", "virtio3 - control -/- exact"},
		{"virtio3-input.2", "virtio3 - rx 2/- exact"},
		{"virtio3-output.2", "virtio3 - tx -/2 exact"},
		{"virtio3-virtqueues", "virtio3 - other -/- none"},
		{"virtio3-req.0", "virtio3 - other -/- none"},
		{"virtio3", "virtio3 - other -/- none"},
		{"eth7-rxtx-4", "eth7 - txrx 4/4 exact"},
		{"eth7-event-4", "eth7 - control -/- exact"},
		{"vif0-q3-rx", "vif0 - rx 3/- exact"},
		{"vif0-q3-tx", "vif0 - tx -/3 exact"},
		{"vif5.0-q3-tx", "vif5.0 - rx 3/- exact"}, // the guest's transmit is the host's receive
		{"eth7:rx-2", "eth7 - rx 2/- exact"},
		{"eth7:tx-2", "eth7 - tx -/2 exact"},
		{"eth7:sfty-ce", "eth7 - control -/- exact"},
		{"c080000.ethernet:txq3", "c080000.ethernet - tx -/3 exact"},
		{"8000000.ethernet-tx4", "8000000.ethernet - tx -/4 exact"},
		{"8000000.ethernet", "8000000.ethernet - other -/- none"},
		{"hns3-0000:7d:00.2-TxRx-5", "- 0000:7d:00.2 txrx 5/5 exact"},
		{"hns3-0000:7d:00.2-misc", "- 0000:7d:00.2 control -/- exact"},
		{"ibmvnic-30000003-rx2", "- - rx 2/- exact"},
		{"iwlwifi:default_queue", "- - rx 0/- inferred"},
		{"iwlwifi: queue 3", "- - rx 3/- inferred"},
		{"iwlwifi:exception", "- - control -/- exact"},
		{"ionic-ens6-L0-rx3", "ens6 - txrx 3/3 inferred"},
		{"ionic-ens6-L0-tx3", "ens6 - tx -/3 exact"},
		{"ionic-0000:b5:00.0-L0-adminq0", "- 0000:b5:00.0 control -/- exact"},
		{"eth7_g0_rx", "eth7 - rx -/- inferred"},
		{"eth7_qp3", "eth7 - txrx 3/3 exact"},
		{"enp5s0f1-rbdr-0", "enp5s0f1 - control -/- exact"},
		{"enp5s0f1-qset-err-0", "enp5s0f1 - control -/- exact"},
		{"eno2-rxtx7", "eno2 - txrx 7/7 exact"},
		{"xhci-hcd:usb2", "usb2 - other -/- none"},
		// Not network devices.
		{"timer", "- - other -/- none"},
		{"nvme0q3", "- - other -/- none"},
		{"hpsa0-msix3", "- - other -/- none"},
		{"2400000.ipu", "- - other -/- none"},
		{"ahci[0000:00:17.0]", "- - other -/- none"},
		{"PCIe PME", "- - other -/- none"},
		{"ttyS0", "- - other -/- none"},
		{"", "- - other -/- none"},
		{"eth7-rx-", "- - other -/- none"},
		{"eth7-rx-99999999", "- - other -/- none"},
		{"eth7-TxRx-3 ", "- - other -/- none"},
		{strings.Repeat("eth0-rx-", 100000), "- - other -/- none"},
	}
	for _, tt := range tests {
		if got := short(Parse(tt.action, nil)); got != tt.want {
			t.Errorf("Parse(%.40q) = %s, want %s", tt.action, got, tt.want)
		}
	}
}

func TestParseWithTheHostsInterfaces(t *testing.T) {
	known := []Interface{
		{Name: "eth1", Driver: "igb", Bus: []string{"0000:01:00.0"}},
		{Name: "eth10", Driver: "igb", Bus: []string{"0000:01:00.1"}},
		{Name: "eno1", Driver: "tg3", Bus: []string{"0000:02:00.0"}},
		{Name: "eth5", Driver: "be2net"},
		{Name: "enp216s0f0np0", Driver: "enic"},
		{Name: "ens8", Driver: "virtio_net", Bus: []string{"virtio2", "0000:00:03.0"}, RX: 1, TX: 1},
		{Name: "ens9", Driver: "virtio_net", Bus: []string{"virtio4"}, RX: 4, TX: 4},
		{Name: "p1", Driver: "mlx4_en", Bus: []string{"0000:05:00.0"}},
		{Name: "p2", Driver: "mlx4_en", Bus: []string{"0000:05:00.0"}},
		{Name: "ens1np0", Driver: "mlx5_core", Bus: []string{"0000:81:00.0"}},
		{Name: "enx1", Driver: "r8152", Bus: []string{"usb2"}},
		{Name: "lan", Driver: "cxgb4"},
		{Name: "my-nic", Driver: "ice"},
		{Name: "wan0", Driver: "ag71xx", Bus: []string{"19000000.eth"}},
	}
	tests := []struct{ action, want string }{
		{"eth1-TxRx-0", "eth1 - txrx 0/0 exact"},
		{"eth10-TxRx-0", "eth10 - txrx 0/0 exact"},
		{"eth100-TxRx-0", "eth100 - txrx 0/0 inferred"}, // not an interface here: an old name, or another namespace's
		{"ice-my-nic-TxRx-3", "my-nic - txrx 3/3 exact"},
		{"newdrv-eth10-TxRx-3", "eth10 - txrx 3/3 inferred"},
		{"eno1-rx-1", "eno1 - rx 0/- inferred"}, // tg3 numbers vectors, 0 is not a receive one
		{"eno1-txrx-4", "eno1 - txrx 3/3 inferred"},
		{"eno1-tx-0", "eno1 - tx -/0 exact"},
		{"eno1-0", "eno1 - control -/- exact"},
		{"eth5-tx-0", "eth5 - txrx 0/0 inferred"},
		{"eth5-rx-3", "eth5 - rx 3/- inferred"},
		{"enp216s0f0n-rx-2", "enp216s0f0np0 - rx 2/- inferred"}, // enic prints 11 characters of the name
		{"virtio2-input.0", "ens8 - rx 0/- exact"},
		{"virtio2-virtqueues", "ens8 - txrx 0/0 inferred"},
		{"virtio4", "ens9 - txrx -/- inferred"},
		{"virtio7-input.0", "virtio7 - rx 0/- inferred"},
		{"mlx5_comp3@pci:0000:81:00.0", "ens1np0 0000:81:00.0 txrx 3/3 inferred"},
		{"mlx4-3@0000:05:00.0", "- 0000:05:00.0 txrx 2/2 inferred"}, // two ports, one function
		{"xhci-hcd:usb2", "enx1 - txrx 0/0 inferred"},
		{"xhci-hcd:usb3", "usb3 - other -/- none"},
		{"lan (queue 2)", "lan - txrx 2/2 exact"},
		{"p1-3", "p1 - txrx 3/3 exact"},
		{"19000000.eth", "wan0 - other -/- none"},
	}
	for _, tt := range tests {
		if got := short(Parse(tt.action, known)); got != tt.want {
			t.Errorf("Parse(%q) = %s, want %s", tt.action, got, tt.want)
		}
	}
}

// rows makes a table of interrupts from "irq chip-and-type action" lines.
func rows(t *testing.T, cpus int, lines ...string) *procfs.Interrupts {
	t.Helper()
	var b strings.Builder
	for c := range cpus {
		fmt.Fprintf(&b, " CPU%d", c)
	}
	for _, l := range lines {
		irq, rest, _ := strings.Cut(l, " ")
		fmt.Fprintf(&b, "\n%s:%s   %s", irq, strings.Repeat(" 1", cpus), rest)
	}
	table, err := procfs.ParseInterrupts("interrupts", []byte(b.String()+"\n"))
	if err != nil {
		t.Fatal(err)
	}
	if len(table.Problems) > 0 {
		t.Fatal(table.Problems)
	}
	return table
}

func TestTableSettlesWhatNamesLeaveOpen(t *testing.T) {
	tests := []struct {
		name  string
		cpus  int
		lines []string
		known []Interface
		want  []string
	}{
		{
			"a bare name beside queues is the link vector, alone it is all there is", 4,
			[]string{"30 PCI-MSI-edge  eth0", "31 PCI-MSI-edge  eth0-TxRx-0", "32 PCI-MSI-edge  eth1", "33 IO-APIC-fasteoi   uhci_hcd:usb1, eth2"}, nil,
			[]string{"eth0 - control -/- exact", "eth0 - txrx 0/0 exact", "eth1 - txrx 0/0 inferred", "usb1 - other -/- none", "eth2 - txrx 0/0 inferred"},
		},
		{
			"with the number of queues known a single vector is exact, or of no one queue", 4,
			[]string{"30 PCI-MSI-edge  eth0", "31 MPIC 8 Level  eth1"}, []Interface{{Name: "eth0", RX: 1, TX: 1}, {Name: "eth1", RX: 8, TX: 8}},
			[]string{"eth0 - txrx 0/0 exact", "eth1 - txrx -/- inferred"},
		},
		{
			"the function's address links control vectors to the interface", 4,
			[]string{"30 PCI-MSI 81920-edge  ena-mgmnt@pci:0000:00:05.0", "31 PCI-MSI 81921-edge  eth0-Tx-Rx-0", "32 IR-PCI-MSIX-0000:17:00.0    0-edge  ice-0000:17:00.0:misc", "33 IR-PCI-MSIX-0000:17:00.0    2-edge  ice-ens1-TxRx-0"}, nil,
			[]string{"eth0 0000:00:05.0 control -/- exact", "eth0 0000:00:05.0 txrx 0/0 exact", "ens1 0000:17:00.0 control -/- exact", "ens1 0000:17:00.0 txrx 0/0 exact"},
		},
		{
			"the hwirq holds a PCI domain above 16 bits' worth of functions", 1,
			[]string{"30 Hyper-V PCIe MSI 134250497-edge  mlx4-1@0001:00:02.0", "31 ITS-MSI 65540097 Edge  eth9-TxRx-0", "32 ITS-MSI 3 Edge  eth8-TxRx-0"}, nil,
			[]string{"- 0001:00:02.0 txrx 0/0 inferred", "eth9 0000:7d:00.2 txrx 0/0 exact", "eth8 - txrx 0/0 exact"},
		},
		{
			"two ports of one function stay apart", 2,
			[]string{"30 PCI-MSI 2097152-edge  mlx4-async@pci:0000:04:00.0", "31 PCI-MSI 2097153-edge  eth6-0", "32 PCI-MSI 2097154-edge  eth7-0"}, nil,
			[]string{"- 0000:04:00.0 control -/- exact", "eth6 0000:04:00.0 txrx 0/0 inferred", "eth7 0000:04:00.0 txrx 0/0 inferred"},
		},
		{
			"vectors of one name are numbered by their MSI entries", 4,
			[]string{"40 PCI-MSI 1048578-edge  enp2s0", "41 PCI-MSI 1048577-edge  enp2s0", "42 PCI-MSI 1048576-edge  enp2s0", "43 PCI-MSI 1048579-edge  enp2s0", "44 PCI-MSI 1048580-edge  enp2s0"}, nil,
			[]string{"enp2s0 0000:02:00.0 txrx 2/2 inferred", "enp2s0 0000:02:00.0 txrx 1/1 inferred", "enp2s0 0000:02:00.0 txrx 0/0 inferred", "enp2s0 0000:02:00.0 txrx 3/3 inferred", "enp2s0 0000:02:00.0 control -/- inferred"},
		},
		{
			"the number of queues decides where it is known", 16,
			[]string{"40 PCI-MSI 1048576-edge  enp2s0", "41 PCI-MSI 1048577-edge  enp2s0", "42 PCI-MSI 1048578-edge  enp2s0"}, []Interface{{Name: "enp2s0", Driver: "atlantic", RX: 1, TX: 1}},
			[]string{"enp2s0 0000:02:00.0 txrx 0/0 inferred", "enp2s0 0000:02:00.0 control -/- inferred", "enp2s0 0000:02:00.0 control -/- inferred"},
		},
		{
			"platform devices: fec, mtk_eth_soc, bcmgenet, stmmac, am65-cpsw", 4,
			[]string{
				"20 GICv3 150 Level  30be0000.ethernet", "21 GICv3 151 Level  30be0000.ethernet", "22 GICv3 152 Level  30be0000.ethernet", "23 GICv3 153 Level  30be0000.ethernet",
				"24 GICv3 229 Level  15100000.ethernet", "25 GICv3 230 Level  15100000.ethernet",
				"26 GICv2 189 Level  eth0", "27 GICv2 190 Level  eth0",
				"28 GICv2 33 Level  eth1", "29 GICv2 34 Level  eth1", "30 GICv2 35 Level  eth1",
				"31 GICv3 5 Level  8000000.ethernet", "32 GICv3 6 Level  8000000.ethernet-tx0", "33 MIPS   4  19000000.eth",
			}, nil,
			[]string{
				"30be0000.ethernet - txrx 0/0 inferred", "30be0000.ethernet - txrx 1/1 inferred", "30be0000.ethernet - txrx 2/2 inferred", "30be0000.ethernet - control -/- inferred",
				"15100000.ethernet - tx -/0 inferred", "15100000.ethernet - rx 0/- inferred",
				"eth0 - txrx 0/0 inferred", "eth0 - txrx -/- inferred",
				"eth1 - txrx 0/0 inferred", "eth1 - control -/- inferred", "eth1 - control -/- inferred",
				"8000000.ethernet - rx 0/- inferred", "8000000.ethernet - tx -/0 exact", "19000000.eth - txrx 0/0 inferred",
			},
		},
		{
			"gve: lower half transmit, upper half receive", 4,
			[]string{"20 PCI-MSIX-0000:00:04.0 0-edge  gve-ntfy-blk0@pci:0000:00:04.0", "21 PCI-MSIX-0000:00:04.0 1-edge  gve-ntfy-blk1@pci:0000:00:04.0", "22 PCI-MSIX-0000:00:04.0 2-edge  gve-ntfy-blk2@pci:0000:00:04.0", "23 PCI-MSIX-0000:00:04.0 3-edge  gve-ntfy-blk3@pci:0000:00:04.0", "24 PCI-MSIX-0000:00:04.0 4-edge  gve-mgmnt@pci:0000:00:04.0"}, nil,
			[]string{"- 0000:00:04.0 tx -/0 inferred", "- 0000:00:04.0 tx -/1 inferred", "- 0000:00:04.0 rx 0/- inferred", "- 0000:00:04.0 rx 1/- inferred", "- 0000:00:04.0 control -/- exact"},
		},
		{
			"gve: the management entry tells how many blocks a cut text lacks", 4,
			[]string{"26 ITS-MSI   0 Edge  eth%d-ntfy-block.0", "42 ITS-MSI   16 Edge  eth%d-ntfy-block.16", "58 ITS-MSI  32 Edge  eth%d-mgmnt"}, nil,
			[]string{"- - tx -/0 inferred", "- - rx 0/- inferred", "- - control -/- exact"},
		},
		{
			"gve before 6.3: blocks of two devices cannot be told apart", 4,
			[]string{"26 ITS-MSI   0 Edge  eth%d-ntfy-block.0", "27 ITS-MSI   0 Edge  eth%d-ntfy-block.0"}, nil,
			[]string{"- - other -/- none", "- - other -/- none"},
		},
		{
			"names cut to nothing are numbered in order", 4,
			[]string{"20 PCI-MSI 2097154-edge  enp4s0f0np0-TxRx-", "21 PCI-MSI 2097155-edge  enp4s0f0np0-TxRx-", "22 PCI-MSI 2097153-edge  enp4s0f0np0-TxRx-"}, nil,
			[]string{"enp4s0f0np0 0000:04:00.0 txrx 1/1 inferred", "enp4s0f0np0 0000:04:00.0 txrx 2/2 inferred", "enp4s0f0np0 0000:04:00.0 txrx 0/0 inferred"},
		},
		{
			"names cut within the number repeat and are numbered in order", 16,
			[]string{"20 PCI-MSI-edge  enp4s0f0np-TxRx-0", "21 PCI-MSI-edge  enp4s0f0np-TxRx-1", "22 PCI-MSI-edge  enp4s0f0np-TxRx-1", "23 PCI-MSI-edge  enp4s0f0np-TxRx-1"}, nil,
			[]string{"enp4s0f0np - txrx 0/0 inferred", "enp4s0f0np - txrx 1/1 inferred", "enp4s0f0np - txrx 2/2 inferred", "enp4s0f0np - txrx 3/3 inferred"},
		},
		{
			"be2net: tx-0 serves the default receive queue", 8,
			[]string{"20 PCI-MSI-edge  eth0-tx-0", "21 PCI-MSI-edge  eth0-rx-1", "22 PCI-MSI-edge  eth0-rx-2"}, nil,
			[]string{"eth0 - txrx 0/0 inferred", "eth0 - rx 1/- inferred", "eth0 - rx 2/- inferred"},
		},
		{
			"tg3: vector 0 has no receive ring", 8,
			[]string{"20 PCI-MSI-edge  eth0-0", "21 PCI-MSI-edge  eth0-txrx-1", "22 PCI-MSI-edge  eth0-txrx-2"}, nil,
			[]string{"eth0 - control -/- inferred", "eth0 - txrx 0/0 inferred", "eth0 - txrx 1/1 inferred"},
		},
		{
			"qlcnic: rx-0 exists and one vector has two queues", 8,
			[]string{"20 PCI-MSI-edge  eth0-rx-0", "21 PCI-MSI-edge  eth0-rx-1", "22 PCI-MSI-edge  eth0-tx-0-rx-2"}, nil,
			[]string{"eth0 - rx 0/- exact", "eth0 - rx 1/- exact", "eth0 - txrx 2/0 exact"},
		},
		{
			"more numbered vectors than CPUs are not all queues", 2,
			[]string{"20 PCI-MSI 262144-edge  eth0-0", "21 PCI-MSI 262145-edge  eth0-1", "22 PCI-MSI 262146-edge  eth0-2"}, nil,
			[]string{"eth0 0000:00:10.0 txrx 0/0 inferred", "eth0 0000:00:10.0 txrx 1/1 inferred", "eth0 0000:00:10.0 other -/- none"},
		},
		{
			"a virtio disk's config vector is no NIC's", 1,
			[]string{"20 PCI-MSI-edge  virtio1-config", "21 PCI-MSI-edge  virtio1-req.0", "22 PCI-MSI-edge  virtio0-config", "23 PCI-MSI-edge  virtio0-input.0"}, nil,
			[]string{"virtio1 - other -/- none", "virtio1 - other -/- none", "virtio0 - control -/- exact", "virtio0 - rx 0/- exact"},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var got []string
			for _, r := range Table(rows(t, tt.cpus, tt.lines...), tt.known) {
				for _, a := range r.Actions {
					got = append(got, short(a.Vector))
				}
			}
			if d := cmp.Diff(tt.want, got); d != "" {
				t.Errorf("vectors (-want +got):\n%s", d)
			}
		})
	}
}

func TestTableJSON(t *testing.T) {
	table, err := procfs.ParseInterrupts("interrupts", []byte(`           CPU0       CPU2
 28:          1          5   PCI-MSI 524289-edge      eth0-rx-0
 29:          0          0   PCI-MSI 524288-edge      eth0
 16:          3          0   IO-APIC-fasteoi   uhci_hcd:usb3, e`+"\xff"+`h1
  7:         17          0   IO-APIC-edge
NMI:          2          4   Non-maskable interrupts
ERR:          9
`))
	if err != nil {
		t.Fatal(err)
	}
	got, err := json.MarshalIndent(Table(table, nil), "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	got = append(got, '\n')
	golden := filepath.Join("testdata", "table.json")
	if *update {
		if err := os.WriteFile(golden, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(string(want), string(got)); d != "" {
		t.Errorf("JSON (-want +got):\n%s", d)
	}
}

func TestTableOfAHugeHost(t *testing.T) {
	var lines []string
	for nic := range 16 {
		for q := range 64 {
			lines = append(lines, fmt.Sprintf("%d IR-PCI-MSIX-0000:%02x:00.0 %d-edge  eth%d-TxRx-%d", 100+nic*64+q, nic+1, q+1, nic, q))
		}
	}
	got := Table(rows(t, 320, lines...), nil)
	last := got[len(got)-1]
	if s := short(last.Actions[0].Vector); s != "eth15 0000:10:00.0 txrx 63/63 exact" {
		t.Errorf("last vector = %s", s)
	}
	if last.Total != 320 || len(last.Counts.Values) != 320 {
		t.Errorf("last row has total %d of %d CPUs, want 320 of 320", last.Total, len(last.Counts.Values))
	}
}

func BenchmarkTable(b *testing.B) {
	var text strings.Builder
	text.WriteString(" CPU0 CPU1\n")
	for i := range 1024 {
		fmt.Fprintf(&text, "%d: 1 2 IR-PCI-MSIX-0000:%02x:00.0 %d-edge  eth%d-TxRx-%d\n", 100+i, i/64+1, i%64+1, i/64, i%64)
	}
	table, err := procfs.ParseInterrupts("interrupts", []byte(text.String()))
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		Table(table, nil)
	}
}

func FuzzTable(f *testing.F) {
	for _, s := range []string{"eth0-TxRx-1", "mlx5_comp0@pci:0000:01:00.0", "eth%d-ntfy-block.3", "gve-ntfy-blk1@pci:0000:00:08.0", "enp4s0f0np0-TxRx-", "eth0, eth1", "virtio0-input.0", "30be0000.ethernet", "vif1.0-q3-tx", "lan (queue 2)"} {
		f.Add(s, s, "PCI-MSI 524288-edge")
	}
	known := []Interface{{Name: "eth0", Driver: "tg3", Bus: []string{"0000:01:00.0", "virtio0"}, RX: 2}, {Name: "lan"}}
	f.Fuzz(func(t *testing.T, a, b, chip string) {
		text := fmt.Sprintf("CPU0 CPU1\n1: 1 2  %s  %s\n2: 3 4  %s  %s\n", chip, a, chip, b)
		table, err := procfs.ParseInterrupts("interrupts", []byte(text))
		if err != nil {
			return
		}
		for _, ifaces := range [][]Interface{nil, known} {
			for _, r := range Table(table, ifaces) {
				if _, err := json.Marshal(r); err != nil {
					t.Error(err)
				}
				for _, v := range r.Actions {
					serves := v.RXQueue != None || v.TXQueue != None
					if serves && (v.Kind == Control || v.Kind == Other) || v.Kind == RX && v.TXQueue != None || v.Kind == TX && v.RXQueue != None {
						t.Errorf("%q: %s", v.Name, short(v.Vector))
					}
					if v.RXQueue < None || v.TXQueue < None {
						t.Errorf("%q: negative queue: %s", v.Name, short(v.Vector))
					}
				}
			}
		}
	})
}

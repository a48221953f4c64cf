package nic

import (
	"strconv"
	"strings"
	"testing"

	"github.com/rxsteer/rxsteer/internal/ethtool"
	"github.com/rxsteer/rxsteer/internal/netdev"
)

// TestSharedCases maps every input of ../shared/cases that holds a NIC's
// interrupts as its README says. What is not in the inputs (queue counts, bus
// devices) is what such a machine has.
func TestSharedCases(t *testing.T) {
	pci := func(bdf string) string { return "pci" + bdf[:7] + "/" + bdf }
	ena := func(name, bdf, msi string, q int) port {
		return port{name: name, driver: "ena", path: pci(bdf), msi: msi, rx: q, tx: q}
	}
	igb := func(name, bdf, msi string, q int) port {
		return port{name: name, driver: "igb", path: pci(bdf), msi: msi, rx: q, tx: q}
	}
	cases := []mapCase{
		{name: "atlantic-no-index", ports: []port{{name: "enp1s0", driver: "atlantic", path: pci("0000:01:00.0"), msi: "128-134", rx: 4, tx: 4}},
			want: `enp1s0: rx 0-3 tx 0-3 irq 128-131 order; control 132,133,134
			! inferred by MSI-X order`},
		{name: "azure-mana", ports: []port{{name: "eth1", driver: "mana", path: pci("7870:00:00.0"), rx: 4, tx: 4}},
			want: `eth1: rx 0-3 tx 0-3 irq 25-28 name`},
		{name: "azure-mlx4", ports: []port{{name: "eth1", driver: "mlx4_core", path: pci("0001:00:02.0"), msi: "33-41", rx: 6, tx: 6}},
			want: `eth1: rx 0-5 tx 0-5 irq 34-39 msi; control 33`},
		{name: "azure-mlx5-all-on-cpu0", ports: []port{
			{name: "eth1", driver: "mlx5_core", path: pci("8b76:00:02.0"), msi: "24-35", rx: 8, tx: 8},
			{name: "eth2", driver: "mlx5_core", path: pci("83a4:00:02.0"), msi: "36-47", rx: 8, tx: 8}},
			want: `eth1: rx 0-7 tx 0-7 irq 28-35 msi; control 24,25,26
			eth2: rx 0-7 tx 0-7 irq 40-47 msi; control 36,37,38`},
		{name: "azure-mlx5-hyperv", ports: []port{{name: "eth1", driver: "mlx5_core", path: pci("4ea0:00:02.0"), rx: 2, tx: 2}},
			want: `eth1: rx 0-1 tx 0-1 irq 34-35 name; control 33`},
		{name: "bcmgenet-rpi4", ports: []port{{name: "eth0", driver: "bcmgenet", path: "platform/scb/fd580000.ethernet", rx: 1, tx: 5}},
			want: `eth0: rx 0 tx 0 irq 48 order; tx 1-4 irq 49 name
			! have the same name`},
		{name: "bnx2x-32cpu", ports: []port{{name: "eth0", driver: "bnx2x", path: pci("0000:02:00.0"), msi: "148-157", rx: 8, tx: 8}},
			want: `eth0: rx 0-7 tx 0-7 irq 150-157 msi; control 148`},
		{name: "cxgb4-24cpu", ports: []port{{name: "enp5s0f4", driver: "cxgb4", path: pci("0000:05:00.4"), rx: 21, tx: 21}},
			want: `enp5s0f4: rx 0-16 tx 0-16 irq ?; rx 17-20 tx 17-20 irq 57-60 name
			! which interrupt serves rx 0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16 of enp5s0f4 is not known`},
		{name: "e1000e-atl1-shared", ports: []port{
			{name: "eth0", driver: "e1000e", path: pci("0000:01:00.0"), msi: "27"},
			{name: "eth1", driver: "e1000e", path: pci("0000:01:00.1"), msi: "28"},
			{name: "eth2", driver: "ATL1E", path: pci("0000:02:00.0"), msi: "30"}},
			want: `eth0: rx 0 tx 0 irq 27 msi
			eth1: rx 0 tx 0 irq 28 msi
			eth2: rx 0 tx 0 irq 30 msi`},
		{name: "e1000e-laptop-iwlwifi", ports: []port{
			{name: "enp0s31f6", driver: "e1000e", path: pci("0000:00:1f.6"), msi: "192"}},
			want: `enp0s31f6: rx 0 tx 0 irq 192 msi`},
		{name: "ena-2cpu", ports: []port{ena("eth0", "0000:00:05.0", "28-30", 2)},
			want: `eth0: rx 0-1 tx 0-1 irq 29-30 msi; control 28`},
		{name: "ena-3eni-4cpu", ports: []port{ena("eth0", "0000:00:05.0", "27-31", 4), ena("eth1", "0000:00:06.0", "32-36", 4), ena("eth2", "0000:00:07.0", "52-56", 4)},
			want: `eth0: rx 0-3 tx 0-3 irq 28-31 msi; control 27
			eth1: rx 0-3 tx 0-3 irq 33-36 msi; control 32
			eth2: rx 0-3 tx 0-3 irq 53-56 msi; control 52`},
		{name: "ena-xen-msi-irqs-empty", ports: []port{ena("eth0", "0000:00:03.0", "empty", 2)},
			want: `eth0: rx 0-1 tx 0-1 irq 211-212 name; control 210
			~ is an empty folder`},
		{name: "fec-imx8", ports: []port{{name: "eth0", driver: "fec", path: "platform/soc/30be0000.ethernet", rx: 3, tx: 3}},
			want: `eth0: rx 0-2 tx 0-2 irq 208-210 order; control 211
			! have the same name`},
		{name: "gve-msix-per-device-domain", ports: []port{{name: "ens8", driver: "gve", path: pci("0000:00:08.0"), msi: "168-170"}},
			want: `ens8: rx 0 irq 169 msi; tx 0 irq 168 msi; control 170`},
		// 32 blocks by the hwirq of the management vector; the rows of the receive half are cut off.
		{name: "gve-old-naming-arm", ports: []port{{name: "eth0", driver: "gve", path: pci("0000:00:04.0"), msi: "26-58", rx: 2, tx: 2}},
			want: `eth0: rx 0-1 irq ?; tx 0-1 irq 26-27 msi; control 58
			! which interrupt serves rx 0,1 of eth0 is not known`},
		{name: "hns3-names-only", ports: []port{
			{name: "eno1", driver: "hns3", path: pci("0000:7d:00.0"), rx: 2, tx: 2},
			{name: "eno2", driver: "hns3", path: pci("0000:7d:00.1")}},
			want: `eno1: rx 0 tx 0 irq 199 name; rx 1 tx 1 irq ?
			eno2: rx 0 tx 0 irq 329 name
			! which interrupt serves rx 1 of eno1 is not known`},
		{name: "hyperv-vmbus-synthetic", ports: []port{{name: "eth0", driver: "hv_netvsc", path: "LNXSYSTM:00/VMBUS:00/000d3a01-0203-000d-3a01-0203000d3a01", rx: 2, tx: 2,
			files: map[string]string{"channels/14/subchannel_id": "0\n", "channels/14/cpu": "0\n", "channels/17/subchannel_id": "1\n", "channels/17/cpu": "1\n"}}},
			want: `eth0: rx 0-1 tx 0-1 irq ? msi
			~ HYP row`},
		{name: "i40e-i217-igb", ports: []port{
			{name: "eth0", driver: "i40e", path: pci("0000:01:00.0"), msi: "32-45", rx: 4, tx: 4},
			{name: "eth1", driver: "i40e", path: pci("0000:01:00.1"), msi: "46-59", rx: 4, tx: 4, down: true},
			{name: "eth2", driver: "e1000e", path: pci("0000:00:19.0"), msi: "60"},
			igb("eth3", "0000:03:00.0", "61-65", 4)},
			want: `eth0: rx 0-3 tx 0-3 irq 33-36 msi; control 32,37
			eth1: rx 0-3 tx 0-3 irq ?; control 46,51
			eth2: rx 0 tx 0 irq 60 msi
			eth3: rx 0-3 tx 0-3 irq 62-65 msi; control 61
			~ eth1 is down`},
		{name: "ice-12cpu", ports: []port{{name: "ens1f0", driver: "ice", path: pci("0000:c4:00.0"), rx: 12, tx: 12}},
			want: `ens1f0: rx 0-11 tx 0-11 irq 47-58 name`},
		{name: "ice-msix-bdf-4cpu", ports: []port{{name: "enp23s0np0", driver: "ice", path: pci("0000:17:00.0"), msi: "102-104"}},
			want: `enp23s0np0: rx 0 tx 0 irq 104 msi; control 102`},
		{name: "igb-82576-8q", ports: []port{igb("eth0", "0000:05:00.0", "35-43", 8), igb("eth1", "0000:05:00.1", "44-52", 8),
			{name: "eth2", driver: "e1000e", path: pci("0000:06:00.0"), msi: "53-55"}, {name: "eth3", driver: "e1000e", path: pci("0000:07:00.0"), msi: "56-58"}},
			want: `eth0: rx 0-7 tx 0-7 irq 36-43 msi; control 35
			eth1: rx 0-7 tx 0-7 irq 45-52 msi; control 44
			eth2: rx 0 irq 53 msi; tx 0 irq 54 msi; control 55
			eth3: rx 0 irq 56 msi; tx 0 irq 57 msi; control 58`},
		{name: "igb-e1000e-msix", ports: []port{igb("eth3", "0000:05:00.0", "68-76", 8), {name: "eth0", driver: "e1000e", path: pci("0000:06:00.0"), msi: "77-79"}, {name: "eth1", driver: "e1000e", path: pci("0000:07:00.0"), msi: "80-82"}},
			want: `eth3: rx 0-7 tx 0-7 irq 69-76 msi; control 68
			eth0: rx 0 irq 77 msi; tx 0 irq 78 msi; control 79
			eth1: rx 0 irq 80 msi; tx 0 irq 81 msi; control 82`},
		{name: "igb-i211-sep-rxtx", ports: []port{igb("eth0", "0000:02:00.0", "129-133", 2), {name: "eth1", driver: "e1000e", path: pci("0000:00:1f.6"), msi: "128"}},
			want: `eth0: rx 0-1 irq 130-131 msi; tx 0-1 irq 132-133 msi; control 129
			eth1: rx 0 tx 0 irq 128 msi`},
		{name: "igb-many-ports-4cpu", ports: []port{igb("eth0", "0000:01:00.0", "57-65", 4), igb("eth5", "0000:04:00.1", "102-110", 4)},
			want: `eth0: rx 0-3 irq 58-61 msi; tx 0-3 irq 62-65 msi; control 57
			eth5: rx 0-3 irq 103-106 msi; tx 0-3 irq 107-110 msi; control 102`},
		{name: "igb-sep-rxtx-4cpu", ports: []port{igb("eth0", "0000:01:00.0", "127-135", 4), igb("eth1", "0000:01:00.1", "", 4), {name: "eth2", driver: "r8169", path: pci("0000:03:00.0"), msi: "146"}},
			want: `eth0: rx 0-3 irq 128-131 msi; tx 0-3 irq 132-135 msi; control 127
			eth1: rx 0-3 irq 137-140 name; tx 0-3 irq 141-144 name; control 136
			eth2: rx 0 tx 0 irq 146 msi`},
		{name: "igc-4q-new", ports: []port{{name: "enp1s0", driver: "igc", path: pci("0000:01:00.0"), rx: 4, tx: 4}},
			want: `enp1s0: rx 0-3 tx 0-3 irq 157-160 name`},
		{name: "ioapic-spread-all-cpus", ports: []port{igb("eth0", "0000:01:00.0", "51-59", 8), igb("eth1", "0000:01:00.1", "60-68", 8)},
			want: `eth0: rx 0-7 tx 0-7 irq 52-59 msi
			eth1: rx 0-7 tx 0-7 irq 61-68 msi`},
		{name: "ipq806x-gic0", ports: []port{{name: "eth0", driver: "ipq806x-gmac-dwmac", path: "platform/soc/37200000.ethernet"}, {name: "eth1", driver: "ipq806x-gmac-dwmac", path: "platform/soc/37400000.ethernet"}},
			want: `eth0: rx 0 tx 0 irq 30 name
			eth1: rx 0 tx 0 irq 31 name`},
		{name: "ixgbe-12cpu", ports: []port{igb("eth2", "0000:09:00.0", "63", 1), {name: "eth1", driver: "ixgbe", path: pci("0000:07:00.1"), msi: "74-82", rx: 8, tx: 8}},
			want: `eth2: rx 0 tx 0 irq 63 msi
			eth1: rx 0-7 tx 0-7 irq 75-82 msi; control 74`},
		{name: "ixgbe-igb-32cpu", ports: []port{igb("eth0", "0000:07:00.0", "91-99", 8), {name: "eth5", driver: "ixgbe", path: pci("0000:81:00.1"), msi: "109-141", rx: 32, tx: 32}},
			want: `eth0: rx 0-7 tx 0-7 irq 92-99 msi; control 91
			eth5: rx 0-31 tx 0-31 irq 109-140 msi; control 141`},
		{name: "mips-alchemy", ports: []port{{name: "eth0", driver: "smc91x", path: "platform/smc91x.0"}},
			want: `eth0: rx 0 tx 0 irq 73 name`},
		{name: "mips-ar71xx-blank-chip", ports: []port{{name: "eth0", driver: "ag71xx", path: "platform/ahb/19000000.eth"}, {name: "eth1", driver: "ag71xx", path: "platform/ahb/1a000000.eth"}},
			want: `eth0: rx 0 tx 0 irq 4 name
			eth1: rx 0 tx 0 irq 5 name`},
		{name: "mlx4-be2net", ports: []port{
			{name: "eth6", driver: "mlx4_core", path: pci("0000:04:00.0"), msi: "109-128", rx: 8, tx: 8},
			{name: "eth7", driver: "mlx4_core", path: pci("0000:04:00.0"), msi: "109-128", rx: 8, tx: 8},
			{name: "eth0", driver: "be2net", path: pci("0000:03:00.0"), msi: "161-165", rx: 5, tx: 1}},
			want: `eth6: rx 0-7 tx 0-7 irq 113-120 msi; control 109,110,111,112
			eth7: rx 0-7 tx 0-7 irq 121-128 msi; control 109,110,111,112
			eth0: rx 0 tx 0 irq 161 msi; rx 1-4 irq 162-165 msi`},
		{name: "mlx5-2port-4cpu", ports: []port{
			{name: "eth2", driver: "mlx5_core", path: pci("0000:01:00.0"), msi: "27-33", rx: 4, tx: 4},
			{name: "eth3", driver: "mlx5_core", path: pci("0000:01:00.1"), rx: 4, tx: 4},
			{name: "eth1", driver: "r8169", path: pci("0000:03:00.0"), irq: "17"}},
			want: `eth2: rx 0-3 tx 0-3 irq 30-33 msi; control 27,28,29
			eth3: rx 0-3 tx 0-3 irq 37-40 name; control 34,35,36
			eth1: rx 0 tx 0 irq 17 msi`},
		{name: "mtk-eth-soc-filogic", ports: []port{
			{name: "eth0", driver: "mtk_soc_eth", path: "platform/soc/15100000.ethernet"},
			{name: "eth1", driver: "mtk_soc_eth", path: "platform/soc/15100000.ethernet"},
			{name: "lan1", driver: "mt7530-mdio", path: "platform/soc/15100000.ethernet/mdio_bus/mdio-bus/mdio-bus:1f", devtype: "dsa", lower: []string{"eth0"}}},
			want: `eth0: rx 0 irq 121 order; tx 0 irq 120 order
			eth1: rx 0 irq 121 order; tx 0 irq 120 order
			lan1: rx 0 tx 0 irq ?
			! several vectors of eth0 have the same name
			! several vectors of eth1 have the same name`},
		{name: "mvneta-wrt32x", ports: []port{{name: "eth0", driver: "mvneta", path: "platform/soc/f1070000.ethernet", rx: 8, tx: 8}, {name: "eth1", driver: "mvneta", path: "platform/soc/f1030000.ethernet", rx: 8, tx: 8}},
			want: `eth0: rx 0-7 tx 0-7 irq 37 name
			eth1: rx 0-7 tx 0-7 irq 36 name`},
		{name: "offline-cpus", ports: []port{{name: "eth0", driver: "i40e", path: pci("0000:01:00.0"), rx: 2, tx: 2}},
			want: `eth0: rx 0-1 tx 0-1 irq 33-34 name`},
		{name: "qlcnic-48cpu", ports: []port{{name: "eth0", driver: "qlcnic", path: pci("0000:04:00.0"), msi: "88-92", rx: 4, tx: 1}, {name: "eth1", driver: "qlcnic", path: pci("0000:04:00.1"), rx: 4, tx: 1}},
			want: `eth0: rx 0-3 irq 88-91 msi; tx 0 irq 91 msi
			eth1: rx 0-3 irq 93-96 name; tx 0 irq 96 name`},
		{name: "r8125-realtek-vendor", ports: []port{{name: "eth0", driver: "r8125", path: pci("0000:01:00.0"), msi: "30-61", rx: 3, tx: 2}},
			want: `eth0: rx 0-1 tx 0-1 irq 30-31 msi; rx 2 irq 32 msi; control 33,34,35,36`},
		{name: "rk3328-eth1-on-usb", ports: []port{
			{name: "eth0", driver: "rk_gmac-dwmac", path: "platform/ff540000.ethernet"},
			{name: "eth1", driver: "r8152", path: "platform/ff600000.usb/xhci-hcd.0.auto/usb1/1-1/1-1:1.0"}},
			want: `eth0: rx 0 tx 0 irq 24 name
			eth1: rx 0 tx 0 irq 25 name
			~ shared with every device there`},
		{name: "s390-irq-classes", ports: []port{{name: "encF500", driver: "qeth", path: "qeth/0.0.f500", rx: 1, tx: 4}},
			want: `encF500: rx 0 tx 0 irq ?; tx 1-3 irq ?
			~ QAI row`},
		{name: "stmmac-pci-multi-msi", ports: []port{{name: "eth0", driver: "intel-eth-pci", path: pci("0000:00:1d.1"), msi: "128-137", rx: 3, tx: 3}},
			want: `eth0: rx 0-2 irq 131-135/2 msi; tx 0-2 irq 132-136/2 msi`},
		{name: "thunderx-nicvf", ports: []port{{name: "enp5s0f1", driver: "thunder-nicvf", path: pci("0000:05:00.1"), msi: "73-92", channels: ethtool.Group{"rx": 1, "tx": 1}}},
			want: `enp5s0f1: rx 0 tx 0 irq 73 msi; control 89,92`},
		{name: "virtio-1cpu", ports: []port{{name: "ens3", driver: "virtio_net", path: pci("0000:00:03.0") + "/virtio0", msi: "26-28"}},
			want: `ens3: rx 0 irq 27 msi; tx 0 irq 28 msi; control 26`},
		{name: "virtio-kvm-shared-intx", ports: []port{
			{name: "eth0", driver: "e1000", path: pci("0000:00:03.0"), irq: "11"},
			{name: "eth1", driver: "8139cp", path: pci("0000:00:04.0"), irq: "11"}},
			want: `eth0: rx 0 tx 0 irq 11 msi
			eth1: rx 0 tx 0 irq 11 msi`},
		{name: "vmxnet3-4cpu-old", ports: []port{{name: "eth0", driver: "vmxnet3", path: pci("0000:0b:00.0"), msi: "56-60", rx: 4, tx: 4}},
			want: `eth0: rx 0-3 tx 0-3 irq 56-59 msi; control 60`},
		{name: "xen-netfront-8cpu", ports: []port{{name: "eth0", driver: "vif", path: "vif-0", rx: 8, tx: 8}},
			want: `eth0: rx 0-3 irq 101-107/2 name; rx 4-5 tx 4-5 irq ?; rx 6 irq 113 name; rx 7 tx 7 irq ?; tx 0-3 irq 100-106/2 name; tx 6 irq 112 name
			! which interrupt serves rx 4,5,7 of eth0 is not known`},
		{name: "xen-netfront-split-chip", ports: []port{{name: "eth0", driver: "vif", path: "vif-0", rx: 4, tx: 4}},
			want: `eth0: rx 0-3 irq 71-77/2 name; tx 0-3 irq 70-76/2 name`},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			c.interrupts = caseFile(t, c.name+"/interrupts")
			c.run(t)
		})
	}

	// Only action folders: one line is "irq action cpus".
	t.Run("iavf-isolcpus", func(t *testing.T) {
		c := mapCase{actions: map[int]string{}, affinity: map[int]string{}, ports: []port{
			{name: "ens1f1v3", driver: "iavf", path: pci("0000:3b:0b.0"), rx: 4, tx: 4},
			{name: "ens1f1v15", driver: "iavf", path: pci("0000:3b:0a.0"), rx: 4, tx: 4},
		}, want: `ens1f1v3: rx 0 tx 0 irq 240 name; rx 1-2 tx 1-2 irq 248-249 name; rx 3 tx 3 irq 1423 name; control 1424
			ens1f1v15: rx 0-3 tx 0-3 irq 1475-1478 name; control 1479
			! /proc/interrupts cannot be read`}
		for line := range strings.Lines(caseFile(t, "iavf-isolcpus/proc_irq.txt")) {
			f := strings.Fields(line)
			if n, err := strconv.Atoi(f[0]); err == nil {
				c.actions[n], c.affinity[n] = f[1], f[2]
			}
		}
		c.run(t)
	})
	t.Run("mlx5-multi-pf", func(t *testing.T) {
		caseFile(t, "mlx5-multi-pf/README")
		multiPF().run(t)
	})
}

// multiPF is the netdev of Documentation/networking/multi-pf-netdev.rst: queue
// 2c+p is completion vector c of function p.
func multiPF() mapCase {
	c := mapCase{
		interrupts: `            CPU0       CPU1
 36:          5          0 IR-PCI-MSIX-0000:08:00.0    1-edge      mlx5_comp0@pci:0000:08:00.0
 39:          5          0 IR-PCI-MSIX-0000:09:00.0    1-edge      mlx5_comp0@pci:0000:09:00.0
 40:          5          0 IR-PCI-MSIX-0000:08:00.0    2-edge      mlx5_comp1@pci:0000:08:00.0
 41:          5          0 IR-PCI-MSIX-0000:09:00.0    2-edge      mlx5_comp1@pci:0000:09:00.0
 42:          5          0 IR-PCI-MSIX-0000:08:00.0    3-edge      mlx5_comp2@pci:0000:08:00.0
`,
		ports: []port{{name: "eth2", driver: "mlx5_core", path: "pci0000:00/0000:08:00.0", msi: "36,40,42", rx: 5, tx: 5}},
		want: `eth2: rx 0 tx 0 irq 36 netlink; rx 1-4 tx 1-4 irq 39-42 netlink
			~ spans several PCI functions`,
	}
	for i, irq := range []int{36, 39, 40, 41, 42} {
		id := uint32(539 + i)
		c.napis = append(c.napis, netdev.NAPI{ID: id, IfIndex: 2, IRQ: &irq})
		for _, typ := range []string{netdev.RX, netdev.TX} {
			c.queues = append(c.queues, netdev.Queue{ID: i, IfIndex: 2, Type: typ, NAPI: id})
		}
	}
	return c
}

package nic

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rxsteer/rxsteer/internal/cpuset"
	"github.com/rxsteer/rxsteer/internal/ethtool"
	"github.com/rxsteer/rxsteer/internal/netdev"
)

// table prints rows of /proc/interrupts: "28 PCI-MSIX-0000:03:00.0 0 eth0-TxRx-0".
func table(rows ...string) string {
	var b strings.Builder
	b.WriteString("           CPU0       CPU1\n")
	for _, r := range rows {
		f := strings.SplitN(r, " ", 4)
		fmt.Fprintf(&b, "%3s: %10d %10d %s %s-edge      %s\n", f[0], 7, 0, f[1], f[2], f[3])
	}
	return b.String()
}

func ptr(n int) *int { return &n }

// queuesOf are netlink's answers: queue i of both directions on NAPI 100+i, whose IRQ is given
// (0 not told).
func queuesOf(ifindex int, irqs ...int) (queues []netdev.Queue, napis []netdev.NAPI) {
	for i, irq := range irqs {
		n := netdev.NAPI{ID: uint32(100 + i), IfIndex: ifindex}
		if irq != 0 {
			n.IRQ = ptr(irq)
		}
		napis = append(napis, n)
		for _, typ := range []string{netdev.RX, netdev.TX} {
			queues = append(queues, netdev.Queue{ID: i, IfIndex: ifindex, Type: typ, NAPI: n.ID})
		}
	}
	return queues, napis
}

func TestMap(t *testing.T) {
	const dev = "pci0000:00/0000:03:00.0"
	withNetlink := func(c mapCase, irqs ...int) mapCase {
		c.queues, c.napis = queuesOf(2, irqs...)
		return c
	}
	combined := table("40 PCI-MSIX-0000:03:00.0 0 eth0", "41 PCI-MSIX-0000:03:00.0 1 eth0-TxRx-0", "42 PCI-MSIX-0000:03:00.0 2 eth0-TxRx-1")
	igb := port{name: "eth0", driver: "igb", path: dev, msi: "40-42", rx: 2, tx: 2}
	cases := []mapCase{
		{name: "combined vectors", interrupts: combined, ports: []port{igb},
			want: "eth0: rx 0-1 tx 0-1 irq 41-42 msi; control 40"},
		withNetlink(mapCase{name: "netlink agrees with names", interrupts: combined, ports: []port{igb},
			want: "eth0: rx 0-1 tx 0-1 irq 41-42 netlink; control 40"}, 41, 42),
		withNetlink(mapCase{name: "netlink without IRQs leaves them to the folder", interrupts: combined, ports: []port{igb},
			want: "eth0: rx 0-1 tx 0-1 irq 41-42 msi; control 40"}, 0, 0),
		withNetlink(mapCase{name: "netlink against names is a problem and wins", interrupts: combined, ports: []port{igb},
			want: `eth0: rx 0 tx 0 irq 42 netlink; rx 1 tx 1 irq 41 netlink; control 40
			! netlink says IRQ 42 serves rx 0 of eth0, the name of IRQ 41
			! netlink says IRQ 42 serves tx 0 of eth0
			! netlink says IRQ 41 serves rx 1 of eth0
			! netlink says IRQ 41 serves tx 1 of eth0`}, 42, 41),
		withNetlink(mapCase{name: "netlink against the folder is a problem", interrupts: table("50 PCI-MSIX-0000:04:00.0 0 other-0", "41 PCI-MSIX-0000:03:00.0 1 eth0-TxRx-0"),
			ports: []port{{name: "eth0", driver: "igb", path: dev, msi: "41"}},
			want: `eth0: rx 0 tx 0 irq 50 netlink
			! the name of IRQ 41 (eth0-TxRx-0) says it does
			! msi_irqs of 0000:03:00.0 does not hold it`}, 50),
		withNetlink(mapCase{name: "an IRQ nobody handles", interrupts: combined, ports: []port{igb},
			want: `eth0: rx 0 tx 0 irq 99 netlink; rx 1 tx 1 irq 42 netlink; control 40
			! netlink says IRQ 99 serves rx 0 of eth0, but no handler
			! netlink says IRQ 99 serves tx 0 of eth0, but no handler
			! the name of IRQ 41`}, 99, 42),
		withNetlink(mapCase{name: "netlink and names without a queue", interrupts: table("40 PCI-MSIX-0000:03:00.0 0 foo-admin", "41 PCI-MSIX-0000:03:00.0 1 foo", "42 PCI-MSIX-0000:03:00.0 2 foo"), ports: []port{igb},
			want: "eth0: rx 0-1 tx 0-1 irq 41-42 netlink; control 40"}, 41, 42),
		{name: "an unknown vector beside known ones, and tx queues without one", interrupts: table("40 PCI-MSI 0 admin", "41 PCI-MSI 1 eth0-TxRx-0", "42 PCI-MSI 2 eth0-TxRx-1"),
			ports: []port{{name: "eth0", driver: "igb", path: dev, msi: "40-42", rx: 2, tx: 4}},
			want:  "eth0: rx 0-1 tx 0-1 irq 41-42 msi; tx 2-3 irq ?; control 40"},
		{name: "separate vectors", interrupts: table("40 PCI-MSI 0 eth0", "41 PCI-MSI 1 eth0-rx-0", "42 PCI-MSI 2 eth0-rx-1", "43 PCI-MSI 3 eth0-tx-0", "44 PCI-MSI 4 eth0-tx-1"),
			ports: []port{{name: "eth0", driver: "igb", path: dev, msi: "40-44", rx: 2, tx: 2}},
			want:  "eth0: rx 0-1 irq 41-42 msi; tx 0-1 irq 43-44 msi; control 40"},
		{name: "virtio's vectors sit on its parent", interrupts: table("37 PCI-MSIX-0000:00:03.0 0 virtio2-config", "38 PCI-MSIX-0000:00:03.0 1 virtio2-input.0", "39 PCI-MSIX-0000:00:03.0 2 virtio2-output.0", "31 PCI-MSIX-0000:00:01.0 3 virtio0-input.0"),
			ports: []port{{name: "ens3", driver: "virtio_net", path: "pci0000:00/0000:00:03.0/virtio2", msi: "37-39"}},
			want:  "ens3: rx 0 irq 38 msi; tx 0 irq 39 msi; control 37"},
		{name: "one vector for all queues of virtio", interrupts: table("37 PCI-MSI 0 virtio2-config", "38 PCI-MSI 1 virtio2-virtqueues"),
			ports: []port{{name: "ens3", driver: "virtio_net", path: "pci0000:00/0000:00:03.0/virtio2", msi: "37-38", rx: 2, tx: 2}},
			want:  "ens3: rx 0-1 tx 0-1 irq 38 msi; control 37"},
		{name: "shared interrupt pin", interrupts: table("11 IO-APIC 11 uhci_hcd:usb1, eth0, eth1"),
			ports: []port{{name: "eth0", driver: "e1000", path: dev, irq: "11"}, {name: "eth1", driver: "8139cp", path: "pci0000:00/0000:04:00.0", irq: "11"}},
			want:  "eth0: rx 0 tx 0 irq 11 msi\neth1: rx 0 tx 0 irq 11 msi"},
		{name: "an unconnected pin is no interrupt", interrupts: table("255 PCI-MSI 0 sda"), ports: []port{{name: "eth0", driver: "e1000", path: dev, irq: "255"}},
			want: "eth0: rx 0 tx 0 irq ?\n! is up and no interrupt of it was found"},
		{name: "an interface's name within another's", interrupts: table("41 PCI-MSI 1 eth1-TxRx-0", "51 PCI-MSI 9 eth10-TxRx-0", "61 PCI-MSI 17 i40e-eth1-TxRx-0"),
			ports: []port{{name: "eth1", driver: "igb", path: dev, msi: "41"}, {name: "eth10", driver: "igb", path: "pci0000:00/0000:04:00.0", msi: "51"}},
			want:  "eth1: rx 0 tx 0 irq 41 msi\neth10: rx 0 tx 0 irq 51 msi\n! IRQ 61"},
		{name: "names of before a rename", interrupts: table("41 PCI-MSI 1 eth0-TxRx-0", "42 PCI-MSI 2 eth0-TxRx-1"),
			ports: []port{{name: "wan", driver: "igb", path: dev, msi: "41-42", rx: 2, tx: 2}},
			want:  "wan: rx 0-1 tx 0-1 irq 41-42 msi\n~ renamed after"},
		{name: "names swapped between two devices", interrupts: table("41 PCI-MSI 1 eth1-TxRx-0", "51 PCI-MSI 9 eth0-TxRx-0"),
			ports: []port{{name: "eth0", driver: "igb", path: dev, msi: "41"}, {name: "eth1", driver: "igb", path: "pci0000:00/0000:04:00.0", msi: "51"}},
			want: `eth0: rx 0 tx 0 irq 41 msi
			eth1: rx 0 tx 0 irq 51 msi
			! "eth1-TxRx-0" is an interrupt of eth0 by its folder
			! "eth0-TxRx-0" is an interrupt of eth1 by its folder
			! IRQ 51 is called
			! IRQ 41 is called`},
		{name: "no index in the names", interrupts: table("41 PCI-MSI 0 eth0", "42 PCI-MSI 1 eth0", "43 PCI-MSI 2 eth0"),
			ports: []port{{name: "eth0", driver: "atlantic", path: dev, msi: "41-43", rx: 2, tx: 2}},
			want:  "eth0: rx 0-1 tx 0-1 irq 41-42 order; control 43\n! inferred by MSI-X order"},
		{name: "names cut short", interrupts: table("41 PCI-MSIX-0000:03:00.0 0 enp4s0f0np0-TxRx-", "42 PCI-MSIX-0000:03:00.0 1 enp4s0f0np0-TxRx-", "43 PCI-MSIX-0000:03:00.0 2 enp4s0f0np0-TxRx-"),
			ports: []port{{name: "enp4s0f0np0", driver: "bnxt_en", path: dev, msi: "41-43", rx: 3, tx: 3}},
			want:  "enp4s0f0np0: rx 0-2 tx 0-2 irq 41-43 order\n! inferred by MSI-X order"},
		{name: "fewer vectors than queues", interrupts: table("41 PCI-MSI 0 foo", "42 PCI-MSI 1 bar"),
			ports: []port{{name: "eth0", driver: "new", path: dev, msi: "41-42", rx: 4, tx: 4}},
			want:  "eth0: rx 0-3 tx 0-3 irq ?\n! which serves which is not known\n! rx 0,1,2,3"},
		{name: "two gve devices of the old names", interrupts: table(
			"41 PCI-MSI 0 eth%d-ntfy-block.0", "42 PCI-MSI 1 eth%d-ntfy-block.1", "43 PCI-MSI 2 eth%d-mgmnt",
			"51 PCI-MSI 8 eth%d-ntfy-block.0", "52 PCI-MSI 9 eth%d-ntfy-block.1", "53 PCI-MSI 10 eth%d-mgmnt"),
			ports: []port{{name: "ens4", driver: "gve", path: dev, msi: "41-43"}, {name: "ens5", driver: "gve", path: "pci0000:00/0000:04:00.0", msi: "51-53"}},
			want:  "ens4: rx 0 irq 42 msi; tx 0 irq 41 msi; control 43\nens5: rx 0 irq 52 msi; tx 0 irq 51 msi; control 53"},
		{name: "vectors of queues given up", interrupts: table("40 PCI-MSI 0 mlx5_async0@pci:0000:03:00.0", "41 PCI-MSI 1 mlx5_comp0@pci:0000:03:00.0", "42 PCI-MSI 2 mlx5_comp1@pci:0000:03:00.0", "43 PCI-MSI 3 mlx5_comp2@pci:0000:03:00.0"),
			ports: []port{{name: "eth0", driver: "mlx5_core", path: dev, msi: "40-43", rx: 2, tx: 2}},
			want:  "eth0: rx 0-1 tx 0-1 irq 41-42 msi; control 40,43\n~ 1 vectors of eth0 back no active queue"},
		{name: "rx queues that exist for AF_XDP only", interrupts: table("41 PCI-MSI 1 mlx5_comp0@pci:0000:03:00.0", "42 PCI-MSI 2 mlx5_comp1@pci:0000:03:00.0"),
			ports: []port{{name: "eth0", driver: "mlx5_core", path: dev, msi: "41-42", rx: 4, tx: 2, channels: ethtool.Group{"combined": 2}}},
			want:  "eth0: rx 0-1 tx 0-1 irq 41-42 msi; rx 2-3 irq ?\n~ for AF_XDP"},
		{name: "more rx queues than channels on another driver", interrupts: combined, ports: []port{{name: "eth0", driver: "igb", path: dev, msi: "40-42", rx: 4, tx: 2, channels: ethtool.Group{"combined": 2}}},
			want: "eth0: rx 0-1 tx 0-1 irq 41-42 msi; rx 2-3 irq ?; control 40\n! 2 rx channels by ethtool and 4 rx queues\n! serves rx 2,3"},
		{name: "USB", interrupts: table("25 GICv2 99 xhci-hcd:usb1", "26 GICv2 48 ehci_hcd:usb3"),
			ports: []port{{name: "eth1", driver: "r8152", path: "platform/ff600000.usb/xhci-hcd.0.auto/usb1/1-1/1-1:1.0"}},
			want:  "eth1: rx 0 tx 0 irq 25 name\n~ shared with every device there"},
		{name: "USB behind a PCI controller whose vectors tell no bus", interrupts: table("125 PCI-MSI 327680 xhci_hcd"),
			ports: []port{{name: "enx00", driver: "r8152", path: "pci0000:00/0000:00:14.0/usb2/2-1/2-1:1.0", msi: "125"}},
			want:  "enx00: rx 0 tx 0 irq 125 msi\n~ shared with every device there"},
		{name: "synthetic device and its function", interrupts: table("33 Hyper-V_PCIe_MSI 1 mlx5_async0@pci:4ea0:00:02.0", "34 Hyper-V_PCIe_MSI 2 mlx5_comp0@pci:4ea0:00:02.0", "35 Hyper-V_PCIe_MSI 3 mlx5_comp1@pci:4ea0:00:02.0"),
			ports: []port{
				{name: "eth0", driver: "hv_netvsc", path: "LNXSYSTM:00/VMBUS:00/000d3a01-0203-000d-3a01-0203000d3a01", rx: 2, tx: 2, mac: "00:0d:3a:01:02:03",
					files: map[string]string{"channels/14/subchannel_id": "0\n", "channels/14/cpu": "1\n", "channels/15/subchannel_id": "1\n", "channels/15/cpu": "0\n"}},
				{name: "enP1s1", driver: "mlx5_core", path: "pci4ea0:00/4ea0:00:02.0", msi: "33-35", rx: 2, tx: 2, mac: "00:0d:3a:01:02:03"}},
			want: "eth0: rx 0-1 tx 0-1 irq ? msi\nenP1s1: rx 0-1 tx 0-1 irq 34-35 msi; control 33\n~ arrive on its virtual function enP1s1"},
		{name: "nothing found on a device that is up", interrupts: table("1 IO-APIC 1 i8042"), ports: []port{igb},
			want: "eth0: rx 0-1 tx 0-1 irq ?\n! eth0 is up and no interrupt of it was found"},
		{name: "nothing found on a device that is down", interrupts: table("1 IO-APIC 1 i8042"), ports: []port{{name: "eth0", driver: "igb", path: dev, down: true}},
			want: "eth0: rx 0 tx 0 irq ?\n~ is down"},
		{name: "virtual devices have no interrupt and no fault", interrupts: table("1 IO-APIC 1 i8042"), ports: []port{{name: "veth0", rx: 2, tx: 2}},
			want: "veth0: rx 0-1 tx 0-1 irq ?"},
		{name: "folders only", actions: map[int]string{40: "eth0", 41: "eth0-TxRx-0", 42: "eth0-TxRx-1"}, ports: []port{igb},
			want: "eth0: rx 0-1 tx 0-1 irq 41-42 msi; control 40\n! /proc/interrupts cannot be read"},
	}
	multi := multiPF()
	multi.name = "several functions under one interface"
	for _, c := range append(cases, multi) {
		t.Run(c.name, func(t *testing.T) { c.run(t) })
	}
}

func TestStacks(t *testing.T) {
	c := mapCase{interrupts: table("1 IO-APIC 1 i8042"), ports: []port{
		{name: "ten0", driver: "ixgbe", path: "pci0000:00/0000:03:00.0", down: true},
		{name: "ten1", driver: "ixgbe", path: "pci0000:00/0000:03:00.1", down: true},
		{name: "bond0", devtype: "bond", rx: 16, tx: 16, lower: []string{"ten0", "ten1"}},
		{name: "bond0.100", devtype: "vlan", lower: []string{"bond0"}},
		{name: "br0", devtype: "bridge", lower: []string{"bond0.100", "tap0"}},
		{name: "tap0"},
		{name: "mv0", devtype: "macvlan", lower: []string{"ten0"}},
		{name: "team0", lower: []string{"ten1"}},
		{name: "loopA", devtype: "vlan", lower: []string{"loopB"}},
		{name: "loopB", devtype: "vlan", lower: []string{"loopA"}},
		{name: "empty", devtype: "bond"},
		{name: "lan1", driver: "mt7530-mdio", path: "platform/mdio.0/mdio-bus:1f", devtype: "dsa", lower: []string{"ten1"}},
	}}
	all, err := Inventory(t.Context(), c.build(t))
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for _, n := range all {
		got[n.Name] = string(n.Kind) + ": " + strings.Join(Leaves(all, n.Name), " ")
	}
	want := map[string]string{
		"ten0": "physical: ten0", "ten1": "physical: ten1", "bond0": "stack: ten0 ten1", "bond0.100": "stack: ten0 ten1",
		"br0": "stack: ten0 ten1 tap0", "tap0": "virtual: tap0", "mv0": "stack: ten0", "team0": "stack: ten1",
		"loopA": "stack: ", "loopB": "stack: ", "empty": "stack: empty", "lan1": "stack: ten1",
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("leaves (-want +got):\n%s", d)
	}
}

// TestQueueDetails: what netlink and procfs say of each queue besides its interrupt.
func TestQueueDetails(t *testing.T) {
	c := mapCase{
		interrupts: table("41 PCI-MSIX-0000:03:00.0 1 eth0-TxRx-0", "42 PCI-MSIX-0000:03:00.0 2 eth0-TxRx-1"),
		ports:      []port{{name: "eth0", driver: "igb", path: "pci0000:00/0000:03:00.0", msi: "41-42", rx: 2, tx: 2, files: map[string]string{"numa_node": "1\n"}}},
		affinity:   map[int]string{41: "300", 42: "1023"},
	}
	c.queues, c.napis = queuesOf(2, 41, 42)
	c.queues[2].XSK = true
	c.napis[0].PID = ptr(812)
	all, err := Inventory(t.Context(), c.build(t))
	if err != nil {
		t.Fatal(err)
	}
	want := []Queue{
		{RX: 0, TX: 0, NAPI: 100, IRQ: 41, Vector: "eth0-TxRx-0", Node: None, Effective: cpuset.Of(300), Thread: 812, KnownBy: ByNetlink},
		{RX: 1, TX: 1, NAPI: 101, IRQ: 42, Vector: "eth0-TxRx-1", Node: None, Effective: cpuset.Of(1023), XSK: true, KnownBy: ByNetlink},
	}
	if d := cmp.Diff(want, all[0].Queues); d != "" {
		t.Errorf("queues (-want +got):\n%s", d)
	}
	if n := all[0]; n.Node != 1 || n.Bus != "0000:03:00.0" || n.Driver != "igb" || !n.Up || n.Netns != 4026531840 {
		t.Errorf("device %+v", n)
	}
}

// FuzzInventory: whatever /proc/interrupts holds, there is no panic, every queue has one row
// of each direction, and no control vector serves a queue.
func FuzzInventory(f *testing.F) {
	f.Add(table("40 PCI-MSIX-0000:03:00.0 0 eth0", "41 PCI-MSIX-0000:03:00.0 1 eth0-TxRx-0"))
	f.Add(table("41 PCI-MSI 0 eth%d-ntfy-block.0", "42 PCI-MSI 1 mlx5_comp7@pci:0000:03:00.0", "43 PCI-MSI 2 xhci_hcd:usb1, eth0"))
	f.Add("")
	f.Fuzz(func(t *testing.T, text string) {
		c := mapCase{interrupts: text + "\n", ports: []port{
			{name: "eth0", driver: "mlx5_core", path: "pci0000:00/0000:03:00.0", msi: "40-44", rx: 3, tx: 2},
			{name: "eth1", driver: "r8152", path: "platform/x/usb1/1-1/1-1:1.0"},
		}}
		all, err := Inventory(t.Context(), c.build(t))
		if err != nil {
			t.Fatal(err)
		}
		rx, tx := all[0].QueueCount()
		if rx != 3 || tx != 2 {
			t.Errorf("%d rx and %d tx queues, want 3 and 2", rx, tx)
		}
		for _, n := range all {
			for _, v := range n.Control {
				for _, q := range n.Queues {
					if q.IRQ == v.IRQ {
						t.Errorf("IRQ %d is a control vector and serves rx %d tx %d", v.IRQ, q.RX, q.TX)
					}
				}
			}
		}
	})
}

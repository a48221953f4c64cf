package hosttest

import (
	"fmt"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rxsteer/rxsteer/internal/ethtool"
	"github.com/rxsteer/rxsteer/internal/host"
	"github.com/rxsteer/rxsteer/internal/host/nic"
)

// describe is a map in a few words: "rx0=27/msi tx0=31/msi control 26".
func describe(n nic.NIC) string {
	var b strings.Builder
	for _, q := range n.Queues {
		if q.RX != nic.None {
			fmt.Fprintf(&b, "rx%d", q.RX)
		}
		if q.TX != nic.None {
			fmt.Fprintf(&b, "tx%d", q.TX)
		}
		fmt.Fprintf(&b, "=%d@%s/%s ", q.IRQ, q.Effective, q.KnownBy)
	}
	for _, c := range n.Control {
		fmt.Fprintf(&b, "control %s ", c.Name)
	}
	return strings.TrimSpace(b.String())
}

func inventory(t testing.TB, h *Host, f host.FS) []nic.NIC {
	t.Helper()
	all, err := nic.Inventory(t.Context(), nic.Sources{FS: f, Netdev: h.Netdev(), Ethtool: h.Ethtool()})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// TestPresetsAreMapped: the inventory understands every preset, and finds nothing wrong.
func TestPresetsAreMapped(t *testing.T) {
	cases := []struct {
		name string
		nics []NIC
		want map[string]string
		// problem is what the map must complain about, "" nothing.
		problem string
	}{
		{"igb with few queues", []NIC{IGB("eth0", 2)}, map[string]string{"eth0": "rx0=25@1/msi rx1=26@2/msi tx0=27@3/msi tx1=28@0/msi control eth0"}, ""},
		{"igb with many queues", []NIC{IGB("eth0", 5)}, map[string]string{"eth0": "rx0tx0=25@1/msi rx1tx1=26@2/msi rx2tx2=27@3/msi rx3tx3=28@0/msi rx4tx4=29@1/msi control eth0"}, ""},
		{"ixgbe", []NIC{IXGBE("eth0", 2)}, map[string]string{"eth0": "rx0tx0=24@0/netlink rx1tx1=25@1/netlink control eth0"}, ""},
		{"mlx5", []NIC{MLX5("eth0", 2)}, map[string]string{"eth0": "rx0tx0=25@1/netlink rx1tx1=26@2/netlink control mlx5_async0@pci:0000:81:00.0"}, ""},
		{"mlx4", []NIC{MLX4("eth0", 2)}, map[string]string{"eth0": "rx0tx0=25@1/msi rx1tx1=26@2/msi control mlx4-async@pci:0000:05:00.0"}, ""},
		{"virtio", []NIC{Virtio("ens3", "virtio0", 2)}, map[string]string{"ens3": "rx0=25@1/msi rx1=26@2/msi tx0=27@3/msi tx1=28@0/msi control virtio0-config"}, ""},
		{"ena", []NIC{ENA("eth0", 2)}, map[string]string{"eth0": "rx0tx0=25@1/netlink rx1tx1=26@2/netlink control ena-mgmnt@pci:0000:00:05.0"}, ""},
		{"vmxnet3", []NIC{VMXNET3("eth0", 2)}, map[string]string{"eth0": "rx0tx0=24@0/msi rx1tx1=25@1/msi control eth0-event-2"}, ""},
		{"e1000e", []NIC{E1000E("eth0")}, map[string]string{"eth0": "rx0=24@0/msi tx0=25@1/msi control eth0"}, ""},
		{"bnxt", []NIC{BNXT("eth0", 2)}, map[string]string{"eth0": "rx0tx0=24@0/msi rx1tx1=25@1/msi"}, ""},
		{"bnxt with names cut short", []NIC{BNXT("enp4s0f0np0", 2)}, map[string]string{"enp4s0f0np0": "rx0tx0=24@0/order rx1tx1=25@1/order"}, "inferred by MSI-X order"},
		{"netvsc and its function", NetVSC("eth0", "enP1s1", 2), map[string]string{"eth0": "rx0tx0=-1@0/msi rx1tx1=-1@1/msi", "enP1s1": "rx0tx0=25@1/netlink rx1tx1=26@2/netlink control mlx5_async0@pci:4ea0:00:02.0"}, ""},
		{"bond", Bond("bond0", IXGBE("ten0", 1), other(IXGBE("ten1", 1))), map[string]string{"ten0": "rx0tx0=24@0/netlink control ten0", "ten1": "rx0tx0=26@2/netlink control ten1"}, ""},
		{"veth", []NIC{Veth("v0", 2, 4)}, map[string]string{"v0": "rx0tx0=-1@/ rx1tx1=-1@/"}, ""},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			h := New(t, Spec{Kernel: "6.12.0", CPUs: Small(4), NICs: c.nics})
			all := inventory(t, h, h)
			got := map[string]string{}
			for _, n := range all {
				if _, ok := c.want[n.Name]; ok {
					got[n.Name] = describe(n)
				}
				for _, p := range n.Problems {
					if c.problem == "" || !strings.Contains(p, c.problem) {
						t.Errorf("%s: %s", n.Name, p)
					}
				}
			}
			if d := cmp.Diff(c.want, got); d != "" {
				t.Errorf("maps (-want +got):\n%s", d)
			}
		})
	}
}

func other(n NIC) NIC {
	n.Bus = n.Bus[:len(n.Bus)-1] + "1"
	return n
}

// vanishing removes a device after some reads, as unplugging in the middle does.
type vanishing struct {
	*Host
	reads int
	gone  func()
}

func (v *vanishing) ReadFile(p string) ([]byte, error) {
	if v.reads--; v.reads == 0 {
		v.gone()
	}
	return v.Host.ReadFile(p)
}

// TestUnplugWhileReading: at whatever moment a device goes away, is renamed or is
// replaced, the others are mapped and the map of that one is missing or says so.
func TestUnplugWhileReading(t *testing.T) {
	for what, change := range map[string]func(h *Host){
		"unplugged": func(h *Host) { h.Remove("eth1") },
		"renamed":   func(h *Host) { h.Rename("eth1", "wan") },
		"replaced":  func(h *Host) { h.Remove("eth1"); h.Plug(other(MLX5("eth1", 2))) },
	} {
		t.Run(what, func(t *testing.T) {
			for n := 1; ; n++ {
				h := New(t, Spec{CPUs: Small(4), NICs: []NIC{IGB("eth0", 2), MLX5("eth1", 4)}})
				v := &vanishing{Host: h, reads: n, gone: func() { change(h) }}
				all := inventory(t, h, v)
				var eth0 *nic.NIC
				for i := range all {
					if all[i].Name == "eth0" {
						eth0 = &all[i]
					}
					if all[i].Name != "eth1" || v.reads > 0 {
						continue
					}
					whole := len(all[i].Queues) == 4 && all[i].Queues[3].IRQ != nic.None || what == "replaced" && len(all[i].Queues) == 2 && all[i].Queues[1].IRQ != nic.None
					if !whole && len(all[i].Problems) == 0 {
						t.Errorf("after %d reads: eth1 is %s and nothing is said", n, describe(all[i]))
					}
				}
				if eth0 == nil || describe(*eth0) != "rx0=25@1/msi rx1=26@2/msi tx0=27@3/msi tx1=28@0/msi control eth0" {
					t.Errorf("after %d reads: eth0 is %+v", n, eth0)
				}
				if v.reads > 0 {
					if n < 20 {
						t.Errorf("only %d reads: the test is broken", n)
					}
					return
				}
			}
		})
	}
}

// TestFailedReads: no single failing read stops the inventory of the rest.
func TestFailedReads(t *testing.T) {
	for n := 2; ; n++ { // the first read lists the interfaces
		h := New(t, Spec{CPUs: Small(4), NICs: []NIC{IGB("eth0", 2), MLX5("eth1", 2)}})
		f := &Faulty{FS: h, FailRead: n, Err: syscall.EIO}
		all, err := nic.Inventory(t.Context(), nic.Sources{FS: f, Netdev: h.Netdev(), Ethtool: h.Ethtool()})
		if err != nil {
			t.Fatalf("read %d: %v", n, err)
		}
		if len(all) < 2 {
			t.Errorf("read %d: only %d devices left", n, len(all))
		}
		if reads, _ := f.Counts(); reads < n {
			if n < 50 {
				t.Errorf("only %d reads: the test is broken", n)
			}
			return
		}
	}
}

// TestMapAfterAChannelChange: the vectors are the new ones.
func TestMapAfterAChannelChange(t *testing.T) {
	h := New(t, Spec{CPUs: Small(8), NICs: []NIC{IGB("eth0", 2), MLX5("eth1", 4)}})
	for _, channels := range []uint32{2, 8, 3} {
		if err := h.Ethtool().SetChannels("eth0", ethtool.Group{"combined": channels}); err != nil {
			t.Fatal(err)
		}
		all := inventory(t, h, h)
		n := all[slices.IndexFunc(all, func(n nic.NIC) bool { return n.Name == "eth0" })]
		var got []int
		for _, q := range n.Queues {
			got = append(got, q.IRQ)
		}
		for _, c := range n.Control {
			got = append(got, c.IRQ)
		}
		slices.Sort(got)
		if d := cmp.Diff(h.IRQs("eth0"), slices.Compact(got)); d != "" {
			t.Errorf("%d channels (-want +got):\n%s", channels, d)
		}
	}
}

// BenchmarkInventory maps 4 NICs of 64 queues on 256 CPUs.
func BenchmarkInventory(b *testing.B) {
	spec := Spec{Kernel: "6.18.0", CPUs: Large(), VectorsPerCPU: 400}
	for i := range 4 {
		n := MLX5(fmt.Sprintf("eth%d", i), 64)
		n.Bus = fmt.Sprintf("0000:8%d:00.0", i)
		spec.NICs = append(spec.NICs, n)
	}
	h := New(b, spec)
	b.ReportAllocs()
	for b.Loop() {
		inventory(b, h, h)
	}
}

// TestLargeHost: 256 CPUs on two nodes; a device of node 1 is served by its CPUs.
func TestLargeHost(t *testing.T) {
	n := MLX5("eth0", 64)
	n.Node = 1
	h := New(t, Spec{Kernel: "6.12.0", CPUs: Large(), NICs: []NIC{n}})
	all := inventory(t, h, h)
	i := slices.IndexFunc(all, func(n nic.NIC) bool { return n.Name == "eth0" })
	seen := map[int]bool{}
	for _, q := range all[i].Queues {
		cpu := q.Effective.First()
		if q.Node != 1 || q.Effective.Len() != 1 || seen[cpu] || (cpu < 64 || cpu >= 128) && cpu < 192 {
			t.Errorf("rx %d on CPU %s of node %d", q.RX, q.Effective, q.Node)
		}
		if q.Affinity.String() != "0-255" {
			t.Errorf("rx %d wants %s", q.RX, q.Affinity)
		}
		seen[cpu] = true
	}
	if all[i].Node != 1 || len(seen) != 64 || len(all[i].Problems) > 0 {
		t.Errorf("node %d, %d CPUs, problems %q", all[i].Node, len(seen), all[i].Problems)
	}
}

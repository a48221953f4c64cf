package qemu

import (
	"slices"
	"strings"
	"testing"
)

func TestMachineRefusesWhatCannotBoot(t *testing.T) {
	for name, c := range map[string]struct {
		m    Machine
		want string
	}{
		"unknown nic":       {Machine{NIC: "mlx5"}, `nic "mlx5"`},
		"kernel no version": {Machine{Kernel: "newest"}, `kernel "newest"`},
		"too many queues":   {Machine{Queues: 16}, "queues 16"},
		"negative CPUs":     {Machine{SMP: -1}, "smp -1"},
		"three ports":       {Machine{Ports: 3}, "ports 3"},
		"odd CPUs, nodes":   {Machine{SMP: 3, NUMA: true}, "two nodes"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := c.m.WithDefaults()
			if err == nil || !strings.Contains(err.Error(), c.want) || ExitCode(err) != ExitLab {
				t.Errorf("got %v (exit %d), want %q and exit %d", err, ExitCode(err), c.want, ExitLab)
			}
		})
	}
}

func TestQemuArguments(t *testing.T) {
	args := func(m Machine) []string {
		t.Helper()
		m, err := m.WithDefaults()
		if err != nil {
			t.Fatal(err)
		}
		return m.qemuArgs("/k", "/i", "/run")
	}
	for name, c := range map[string]struct {
		m    Machine
		want []string
		not  string
	}{
		"igb": {Machine{}, []string{"igb,netdev=n0,mac=52:54:00:77:00:02,bus=rp0", "tap,id=n0,ifname=labtap,script=no,downscript=no"}, "numa_node"},
		"virtio queues": {Machine{NIC: "virtio", Queues: 8}, []string{"virtio-net-pci,mq=on,vectors=18,rss=on,netdev=n0,mac=52:54:00:77:00:02,bus=rp0",
			"tap,id=n0,ifname=labtap,script=no,downscript=no,queues=8"}, "hash=on"},
		"virtio without": {Machine{NIC: "virtio", NoRSS: true}, []string{"virtio-net-pci,mq=on,vectors=10,netdev=n0,mac=52:54:00:77:00:02,bus=rp0"}, "rss=on"},
		"two ports":      {Machine{Ports: 2}, []string{"igb,netdev=n1,mac=52:54:00:77:01:02,bus=rp1", "tap,id=n1,ifname=labtap1,script=no,downscript=no"}, ""},
		"nodes":          {Machine{SMP: 8, NUMA: true}, []string{"8,sockets=2,cores=4,threads=1", "node,nodeid=1,cpus=4-7,memdev=m1", "pxb-pcie,id=pxb1,bus=pcie.0,bus_nr=0x40,numa_node=1"}, ""},
		"no nic":         {Machine{NIC: "none"}, nil, "netdev"},
	} {
		t.Run(name, func(t *testing.T) {
			got := args(c.m)
			for _, w := range c.want {
				if !slices.Contains(got, w) {
					t.Errorf("lacks %q: %q", w, got)
				}
			}
			if all := strings.Join(got, " "); c.not != "" && strings.Contains(all, c.not) {
				t.Errorf("has %q: %s", c.not, all)
			}
		})
	}
}

func TestLastLines(t *testing.T) {
	if got := lastLines("a\r\nb\nc\n\n", 2); got != "b\nc" {
		t.Errorf("got %q", got)
	}
	if got := lastLines("", 2); got != "" {
		t.Errorf("empty: got %q", got)
	}
}

package nic

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rxsteer/rxsteer/internal/netdev"
)

// paired is a device of combined vectors 30, 31, …; split has rx vectors before tx vectors.
func paired(driver string, n int) *NIC {
	d := &NIC{Driver: driver}
	for i := range n {
		d.Queues = append(d.Queues, Queue{RX: i, TX: i, IRQ: 30 + i})
	}
	return d
}

func split(driver string, n int) *NIC {
	d := &NIC{Driver: driver}
	for i := range n {
		d.Queues = append(d.Queues, Queue{RX: i, TX: None, IRQ: 30 + i}, Queue{RX: None, TX: i, IRQ: 30 + n + i})
	}
	return d
}

// links is "rx=id" of every linked rx queue and by what.
func links(n *NIC) string {
	var out []string
	for _, q := range n.Queues {
		if q.RX != None && q.NAPI != 0 {
			out = append(out, strings.TrimSuffix(fmt.Sprintf("%d=%d %s", q.RX, q.NAPI, q.NAPIBy), " "))
		}
	}
	return strings.Join(out, ", ")
}

// on is NAPIs from an id on that ran, the first on the first CPU given and so on.
func on(first uint32, cpus ...int) (out []Polled) {
	for i, c := range cpus {
		out = append(out, Polled{first + uint32(i), c})
	}
	return out
}

func TestLinkNAPIs(t *testing.T) {
	shared := paired("be2net", 2)
	shared.Queues[1].IRQ = 30
	netlink := paired("mlx5_core", 2)
	netlink.Queues[0].NAPI = 70
	ordered := paired("igb", 2)
	ordered.LinkNAPIs(on(8, 0, 0), nil)
	changed, changing := paired("igb", 2), paired("igb", 2)
	changed.LinkNAPIs(on(8, 0, 0), nil)
	changing.LinkNAPIs(on(8, 0, 0), nil)
	for _, c := range []struct {
		name   string
		nic    *NIC
		polled []Polled
		fired  []Fired
		want   string
	}{
		{"one queue", paired("e1000e", 1), on(9, 0), nil, "0=9 order"},
		{"one queue and a transmit NAPI without id", split("e1000e", 1), append(on(9, 0), Polled{0, 1}), nil, "0=9 order"},
		{"all vectors on one CPU", paired("igb", 3), on(8, 0, 0, 0), []Fired{{30, 0}, {31, 0}, {32, 0}}, "0=8 order, 1=9 order, 2=10 order"},
		{"ids in any order and twice", paired("igb", 2), []Polled{{9, 1}, {8, 0}, {9, 0}}, nil, "0=8 order, 1=9 order"},
		{"receive vectors come before transmit vectors", split("igb", 2), on(8, 0, 0, 0, 0), nil, "0=8 order, 1=9 order"},
		{"NAPIs of receive only", split("virtio_net", 2), on(8, 0, 0), nil, "0=8 order, 1=9 order"},
		{"half of them may be any", split("igb", 2), on(8, 0, 0), nil, ""},
		{"one did not run", paired("igb", 3), on(8, 0, 0), []Fired{{30, 0}, {31, 0}}, ""},
		{"ids with a gap", paired("igb", 2), []Polled{{8, 0}, {10, 0}}, nil, ""},
		{"too many: NAPIs of before a channel change", paired("igb", 2), on(8, 0, 0, 0), nil, ""},
		{"shared vector", shared, on(8, 0, 0), nil, ""},
		{"the kernel tells", netlink, on(8, 0, 0), nil, "0=70"},
		{"the CPU tells", paired("igb", 3), on(9, 1), []Fired{{30, 0}, {31, 1}}, "1=9 learned"},
		{"two vectors fire there", paired("igb", 3), on(9, 1), []Fired{{30, 1}, {31, 1}}, ""},
		{"two NAPIs run there", paired("igb", 3), on(9, 1, 1), []Fired{{31, 1}}, ""},
		{"traffic against the order", paired("igb", 2), on(8, 0, 1), []Fired{{31, 0}, {30, 1}}, "0=9 learned, 1=8 learned"},
		{"an order that traffic confirms later", ordered, on(9, 3), []Fired{{31, 3}, {30, 2}}, "0=8 order, 1=9 order"},
		{"new NAPIs after a channel change", changed, on(10, 0, 0), nil, "0=10 order, 1=11 order"},
		{"old and new ones", changing, on(9, 0, 0), nil, ""},
		{"nothing ran", paired("igb", 2), nil, nil, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.nic.LinkNAPIs(c.polled, c.fired)
			if diff := cmp.Diff(c.want, links(c.nic)); diff != "" {
				t.Errorf("links (-want +got):\n%s", diff)
			}
		})
	}
}

func TestNAPIAt(t *testing.T) {
	one := paired("e1000e", 1)
	two := paired("igb", 2)
	two.LinkNAPIs(on(8, 0, 0), nil)
	told := paired("virtio_net", 1)
	told.Queues[0].NAPI = 7
	for _, c := range []struct {
		name string
		nic  *NIC
		id   uint32
		want int
	}{
		{"any of a single queue", one, 5, 0},
		{"no id", one, 0, None},
		{"the second", two, 9, 1},
		{"another", two, 10, None},
		{"not the one that the kernel tells", told, 8, None},
	} {
		if got := c.nic.NAPIAt(c.id); got != c.want {
			t.Errorf("%s: rx %d, want %d", c.name, got, c.want)
		}
	}
}

// Linux 6.8 to 6.12 list the NAPIs of igb, vmxnet3 and virtio without their queues.
func TestNAPIsWithoutQueues(t *testing.T) {
	const igb = "           CPU0       CPU1\n 30:  1  0  PCI-MSIX  1-edge  eth0-TxRx-0\n 31:  0  1  PCI-MSIX  2-edge  eth0-TxRx-1\n 32:  0  0  PCI-MSIX  0-edge  eth0\n"
	queues := []netdev.Queue{{IfIndex: 2, ID: 0}, {IfIndex: 2, ID: 1}, {IfIndex: 2, ID: 0, Type: netdev.TX}, {IfIndex: 2, ID: 1, Type: netdev.TX}}
	pid := 77
	for _, c := range []struct {
		name  string
		napis []netdev.NAPI
		want  string
	}{
		{"as many as vectors", []netdev.NAPI{{IfIndex: 2, ID: 9, PID: &pid}, {IfIndex: 2, ID: 8}}, "0=8 order, 1=9 order"},
		{"other devices came between", []netdev.NAPI{{IfIndex: 2, ID: 8}, {IfIndex: 2, ID: 12, PID: &pid}}, "0=8 order, 1=12 order"},
		{"one more", []netdev.NAPI{{IfIndex: 2, ID: 8}, {IfIndex: 2, ID: 9}, {IfIndex: 2, ID: 10}}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := mapCase{interrupts: igb, queues: queues, napis: c.napis, ports: []port{{name: "eth0", driver: "igb", path: "pci0000:00/0000:00:03.0", msi: "30-32", rx: 2, tx: 2}}}
			all, err := Inventory(t.Context(), m.build(t))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(c.want, links(&all[0])); diff != "" {
				t.Errorf("links (-want +got):\n%s", diff)
			}
			if c.want != "" && all[0].Queues[1].Thread != pid {
				t.Errorf("thread of the second is %d, want %d", all[0].Queues[1].Thread, pid)
			}
		})
	}
}

package nic

import (
	"encoding/binary"
	"errors"
	"os"
	"path"
	"slices"
	"strconv"
	"testing"
	"unsafe"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	bpflink "github.com/cilium/ebpf/link"
	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/rxsteer/rxsteer/internal/ethtool"
	"github.com/rxsteer/rxsteer/internal/host"
	"github.com/rxsteer/rxsteer/internal/host/knob"
	"github.com/rxsteer/rxsteer/internal/netdev"
	"github.com/rxsteer/rxsteer/internal/testnet"
)

// clients are what this kernel offers; nil where it does not.
func clients(t *testing.T) (n Netdev, e Ethtool) {
	t.Helper()
	if c, err := netdev.New(); err == nil {
		t.Cleanup(func() { c.Close() })
		n = c
	} else if !errors.Is(err, netdev.ErrNotSupported) {
		t.Fatal(err)
	}
	c, err := ethtool.New()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return n, c
}

// TestThisHost: every interrupt the map names exists under /proc/irq with that handler,
// and devices of the lab's drivers that are up have no gap.
func TestThisHost(t *testing.T) {
	src := Sources{FS: host.OS{}}
	src.Netdev, src.Ethtool = clients(t)
	all, err := Inventory(t.Context(), src)
	if err != nil {
		t.Fatal(err)
	}
	physical := 0
	for _, n := range all {
		t.Logf("%s (%s %s): %s problems %q notes %q", n.Name, n.Driver, n.Bus, summary(n), n.Problems, n.Notes)
		if n.Kind != Physical {
			continue
		}
		physical++
		if slices.Contains([]string{"virtio_net", "igb", "vmxnet3", "e1000e"}, n.Driver) && n.Up && len(n.Problems) > 0 {
			t.Errorf("%s: %q", n.Name, n.Problems) // other drivers may have gaps, which is what problems are for
		}
		for _, q := range n.Queues {
			if q.IRQ == None {
				continue
			}
			dir := path.Join("/proc/irq", strconv.Itoa(q.IRQ))
			if _, err := os.Stat(path.Join(dir, q.Vector)); err != nil {
				t.Errorf("%s rx %d tx %d: %v", n.Name, q.RX, q.TX, err)
			}
			if q.Effective.IsEmpty() {
				t.Errorf("%s irq %d: no effective CPU", n.Name, q.IRQ)
			}
		}
	}
	if physical == 0 {
		t.Skip("needs a network device on a bus")
	}
}

func TestNamespaceDevices(t *testing.T) {
	ns := testnet.New(t)
	for _, args := range [][]string{
		{"link", "add", "a0", "numrxqueues", "4", "numtxqueues", "4", "type", "veth", "peer", "name", "b0", "numrxqueues", "4", "numtxqueues", "4"},
		{"link", "add", "a1", "type", "veth", "peer", "name", "b1"},
		{"link", "add", "bond0", "type", "bond"},
		{"link", "add", "br0", "type", "bridge"},
		{"link", "set", "b1", "master", "br0"},
		{"link", "add", "link", "br0", "name", "br0.7", "type", "vlan", "id", "7"},
		{"link", "add", "link", "a1", "name", "mv0", "type", "macvlan"},
	} {
		if err := ns.IP(args...); err != nil {
			if args[len(args)-1] == "bond" || args[len(args)-1] == "macvlan" || args[1] == "add" && args[2] == "link" {
				t.Logf("this kernel has no %v: %v", args, err)
				continue
			}
			t.Fatal(err)
		}
	}
	testnet.NeedTun(t)
	tap, err := ns.NewTAP("tap0", 3)
	if err != nil {
		t.Fatal(err)
	}
	defer tap.Close()
	src := Sources{FS: ns.FS()}
	err = ns.Do(func() error {
		c, err := ethtool.New()
		if err != nil {
			return err
		}
		t.Cleanup(func() { c.Close() })
		src.Ethtool = c
		n, err := netdev.New()
		if err == nil {
			t.Cleanup(func() { n.Close() })
			src.Netdev = n
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := ns.SetRPS("tap0", 2, "1"); err != nil {
		t.Fatal(err)
	}
	all, err := Inventory(t.Context(), src)
	if err != nil {
		t.Fatal(err)
	}
	type row struct {
		Kind   Kind
		Driver string
		RX     int
		Leaves []string
	}
	got := map[string]row{}
	for _, n := range all {
		t.Logf("%s %s: %s %q %q", n.Name, n.Driver, summary(n), n.Problems, n.Notes)
		if n.Netns != ns.Inode() {
			t.Errorf("%s: namespace %d, want %d", n.Name, n.Netns, ns.Inode())
		}
		if len(n.Problems) > 0 {
			t.Errorf("%s: problems %q", n.Name, n.Problems)
		}
		rx, _ := n.QueueCount()
		got[n.Name] = row{n.Kind, n.Driver, rx, Leaves(all, n.Name)}
		if n.Name == "tap0" && (n.Queues[2].RPS.String() != "0" || !n.Queues[0].RPS.IsEmpty()) {
			t.Errorf("tap0: RPS of rx-2 is %q, of rx-0 %q", n.Queues[2].RPS, n.Queues[0].RPS)
		}
	}
	want := map[string]row{
		"lo":    {Loopback, "", 1, []string{"lo"}},
		"a0":    {Virtual, "veth", 4, []string{"a0"}},
		"b1":    {Virtual, "veth", 1, []string{"b1"}},
		"br0":   {Stack, "bridge", 1, []string{"b1"}},
		"br0.7": {Stack, "802.1Q VLAN Support", 1, []string{"b1"}},
		"mv0":   {Stack, "macvlan", 1, []string{"a1"}},
		"tap0":  {Virtual, "tun", 3, []string{"tap0"}},
		"bond0": {Stack, "bonding", 1, []string{"bond0"}},
	}
	for name, w := range want {
		g, ok := got[name]
		if !ok {
			continue // told above
		}
		if name == "bond0" || name == "a0" { // queues by kernel default
			g.RX, w.RX = 0, 0
		}
		if d := cmp.Diff(w, g); d != "" {
			t.Errorf("%s (-want +got):\n%s", name, d)
		}
	}

	t.Run("XDP", func(t *testing.T) { testAttachments(t, ns, all) })
}

// testAttachments attaches a program and binds an AF_XDP socket, and expects both to be found.
func testAttachments(t *testing.T, ns *testnet.NS, all []NIC) {
	index, err := ns.IfIndex("a0")
	if err != nil {
		t.Fatal(err)
	}
	prog, err := ebpf.NewProgram(&ebpf.ProgramSpec{Type: ebpf.XDP, License: "GPL", Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, 2), asm.Return()}})
	if err != nil {
		t.Fatal(err)
	}
	defer prog.Close()
	info, err := prog.Info()
	if err != nil {
		t.Fatal(err)
	}
	id, _ := info.ID()
	err = ns.Do(func() error {
		l, err := bpflink.AttachXDP(bpflink.XDPOptions{Program: prog, Interface: index})
		if err != nil {
			return err
		}
		defer l.Close()
		fd, err := bindXSK(index, 0)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		programs, err := Netlink{}.Programs()
		if err != nil {
			return err
		}
		if want := []XDP{{IfIndex: index, Program: uint32(id), Mode: "driver"}}; !slices.Equal(programs, want) {
			t.Errorf("programs %+v, want %+v", programs, want)
		}
		sockets, err := Netlink{}.Sockets()
		if err != nil {
			return err
		}
		if len(sockets) == 0 {
			t.Log("this kernel has no xsk_diag: AF_XDP sockets are told by netdev netlink only")
		} else if len(sockets) != 1 || sockets[0].IfIndex != index || sockets[0].Queue != 0 {
			t.Errorf("sockets %+v, want queue 0 of ifindex %d", sockets, index)
		}
		owners, err := Owners(t.Context(), OwnerSources{FS: ns.FS(), NICs: all, Attachments: attachments{programs, sockets}})
		if err != nil {
			return err
		}
		if !slices.ContainsFunc(owners, func(o knob.Owner) bool { return o.Name == "XDP program" && o.Device == "a0" }) {
			t.Errorf("no owner of a0 in %+v", owners)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// bindXSK binds an AF_XDP socket in copy mode (Documentation/networking/af_xdp.rst).
func bindXSK(ifindex, queue int) (int, error) {
	fd, err := unix.Socket(unix.AF_XDP, unix.SOCK_RAW, 0)
	if err != nil {
		return -1, err
	}
	const frames, size = 16, 2048
	umem, err := unix.Mmap(-1, 0, frames*size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANONYMOUS|unix.MAP_PRIVATE)
	if err != nil {
		unix.Close(fd)
		return -1, err
	}
	reg := make([]byte, 32) // struct xdp_umem_reg: addr, len, chunk_size, headroom, flags, tx_metadata_len
	binary.NativeEndian.PutUint64(reg, uint64(uintptr(unsafe.Pointer(&umem[0]))))
	binary.NativeEndian.PutUint64(reg[8:], frames*size)
	binary.NativeEndian.PutUint32(reg[16:], size)
	if err = unix.SetsockoptString(fd, unix.SOL_XDP, unix.XDP_UMEM_REG, string(reg)); err != nil {
		unix.Close(fd)
		return -1, err
	}
	for _, ring := range []int{unix.XDP_UMEM_FILL_RING, unix.XDP_UMEM_COMPLETION_RING, unix.XDP_RX_RING} {
		if err = unix.SetsockoptInt(fd, unix.SOL_XDP, ring, frames); err != nil {
			unix.Close(fd)
			return -1, err
		}
	}
	if err = unix.Bind(fd, &unix.SockaddrXDP{Flags: unix.XDP_COPY, Ifindex: uint32(ifindex), QueueID: uint32(queue)}); err != nil {
		unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

package collector

import (
	"errors"
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"github.com/rxsteer/rxsteer/internal/ethtool"
	"github.com/rxsteer/rxsteer/internal/host/nic"
	"github.com/rxsteer/rxsteer/internal/testnet"
)

// Actions of XDP programs (enum xdp_action of linux/bpf.h).
const (
	xdpDrop     = 1
	xdpPass     = 2
	xdpTX       = 3
	xdpRedirect = 4
)

// actor does with a frame what the byte behind its link layer header says.
func actor(ifindex int) *ebpf.ProgramSpec {
	const header = 14
	return &ebpf.ProgramSpec{Name: "actor", Type: ebpf.XDP, License: "GPL", Instructions: asm.Instructions{
		asm.LoadMem(asm.R2, asm.R1, 0, asm.Word), // data
		asm.LoadMem(asm.R3, asm.R1, 4, asm.Word), // data_end
		asm.Mov.Imm(asm.R0, xdpPass),
		asm.Mov.Reg(asm.R4, asm.R2),
		asm.Add.Imm(asm.R4, header+1),
		asm.JGT.Reg(asm.R4, asm.R3, "out"),
		asm.LoadMem(asm.R0, asm.R2, header, asm.Byte),
		asm.JNE.Imm(asm.R0, xdpRedirect, "out"),
		asm.Mov.Imm(asm.R1, int32(ifindex)),
		asm.Mov.Imm(asm.R2, 0),
		asm.FnRedirect.Call(),
		asm.Return().WithSymbol("out"),
	}}
}

// TestLiveXDPActions: what an XDP program does with packets is counted by queue, and a device whose driver does not count it
// is named.
func TestLiveXDPActions(t *testing.T) {
	testnet.NeedRoot(t)
	far, ns := testnet.New(t), testnet.New(t)
	if err := testnet.Connect(far, ns, testnet.Veth{Queues: 2, NAPI: true}); err != nil {
		t.Fatal(err)
	}
	if err := far.Run("ethtool", "-K", "a0", "gro", "on"); err != nil { // it takes what is sent back
		t.Fatal(err)
	}
	index, err := ns.IfIndex("b0")
	if err != nil {
		t.Fatal(err)
	}
	from, err := far.IfIndex("a0")
	if err != nil {
		t.Fatal(err)
	}
	prog, err := ebpf.NewProgram(actor(index))
	if err != nil {
		t.Fatal(err)
	}
	defer prog.Close()
	var client *ethtool.Client
	var programs []nic.XDP
	err = ns.Do(func() error {
		l, err := link.AttachXDP(link.XDPOptions{Program: prog, Interface: index})
		if err != nil {
			return err
		}
		t.Cleanup(func() { l.Close() })
		if programs, err = (nic.Netlink{}).Programs(); err != nil {
			return err
		}
		client, err = ethtool.New()
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	var raw int
	err = far.Do(func() error {
		raw, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(raw)

	now := epoch
	s := New(Config{FS: ns.FS(), Statistics: client, XDP: func() ([]nic.XDP, error) { return programs, nil }, Now: func() time.Time { return now }})
	if err := s.start(); err != nil {
		t.Fatal(err)
	}
	defer s.stop() //nolint:errcheck // nothing is attached
	all := fmt.Sprintf("%x", uint64(1)<<min(runtime.NumCPU(), 32)-1)
	want := map[string]uint64{}
	for queue, counts := range []map[byte]uint64{{xdpDrop: 30, xdpPass: 20, xdpTX: 10, xdpRedirect: 5}, {xdpDrop: 3, xdpPass: 2, xdpRedirect: 1}} {
		for tx, mask := range []string{"0", all} {
			file := fmt.Sprintf("/sys/class/net/a0/queues/tx-%d/xps_cpus", (queue+1+tx)%2)
			if err := far.FS().WriteFile(file, []byte(mask)); err != nil {
				t.Fatal(err)
			}
		}
		for action, n := range counts {
			f := frame()
			f[14] = action
			for range n {
				if err := unix.Sendto(raw, f, 0, &unix.SockaddrLinklayer{Ifindex: from}); err != nil {
					t.Fatal(err)
				}
			}
			kind := map[byte]nic.FactKind{xdpDrop: nic.XDPDropped, xdpTX: nic.XDPSent, xdpRedirect: nic.XDPRedirected}[action]
			if kind != "" {
				want[fmt.Sprint(kind, queue)] += n
			}
			want[fmt.Sprint(nic.XDPSeen, queue)] += n
		}
	}
	// The kernel itself sends a few frames (multicast listeners): they pass.
	var got map[string]uint64
	var sample *Sample
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		now = now.Add(time.Hour)
		next, err := s.next()
		if err != nil {
			t.Fatal(err)
		}
		if sample == nil {
			sample = next
		} else {
			sample = Merge(sample, next)
		}
		got = map[string]uint64{}
		for _, d := range sample.Drivers {
			for _, c := range d.Counters {
				got[fmt.Sprint(c.Kind, c.Queue)] += c.Count
			}
		}
		wrong := error(nil)
		for k, n := range want {
			if got[k] < n || got[k] > n && k[:len(k)-1] != string(nic.XDPSeen) {
				wrong = errors.Join(wrong, fmt.Errorf("%s: %d, want %d", k, got[k], n))
			}
		}
		if wrong == nil {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("%v\n%+v", wrong, sample.Drivers)
		}
	}
	if d := sample.Drivers; len(d) != 1 || d[0].Device != "b0" || d[0].Name != "veth" {
		t.Errorf("drivers %+v, want b0's alone", d)
	}
	if said(sample, "what XDP does on b0", "") {
		t.Errorf("said not to be counted: %v", sample.Unmeasured)
	}

	// lo runs generic XDP and its driver counts nothing.
	programs = append(programs, nic.XDP{IfIndex: 1, Mode: "generic"})
	now = now.Add(time.Hour)
	if sample, err = s.next(); err != nil {
		t.Fatal(err)
	}
	if !said(sample, "what XDP does on lo", "does not count it") {
		t.Errorf("lo is not named: %v", sample.Unmeasured)
	}
}

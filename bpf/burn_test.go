package bpf

import (
	"runtime"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"github.com/rxsteer/rxsteer/internal/testnet"
)

// burn is a tc ingress program that spins for ns per packet of one rx queue,
// sums what it really spun, and drops every packet.
type burn struct {
	sums *ebpf.Map // 0: ns spun, 1: packets
}

// anyQueue has burn spin for every packet.
const anyQueue = -1

// attachBurn attaches it to dev until the test ends.
func attachBurn(t testing.TB, ns *testnet.NS, dev string, ns64 int32, queue int) *burn {
	t.Helper()
	sums, err := ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.Array, KeySize: 4, ValueSize: 8, MaxEntries: 2})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { sums.Close() })

	// struct __sk_buff, include/uapi/linux/bpf.h; queue_mapping is the rx queue + 1
	// (skb_record_rx_queue).
	const queueMapping = 12
	// A clock read takes some 27 ns; the loop ends by the clock long before its bound.
	const bound = 4000
	insns := asm.Instructions{asm.LoadMem(asm.R8, asm.R1, queueMapping, asm.Word)}
	if queue != anyQueue {
		insns = append(insns, asm.JNE.Imm(asm.R8, int32(queue+1), "drop"))
	}
	insns = append(insns,
		asm.FnKtimeGetNs.Call(),
		asm.Mov.Reg(asm.R6, asm.R0), // began
		asm.Mov.Imm(asm.R7, 0),      // turns
		asm.FnKtimeGetNs.Call().WithSymbol("spin"),
		asm.Mov.Reg(asm.R9, asm.R0),
		asm.Sub.Reg(asm.R9, asm.R6), // spun
		asm.JGE.Imm(asm.R9, ns64, "done"),
		asm.Add.Imm(asm.R7, 1),
		asm.JLT.Imm(asm.R7, bound, "spin"),
		asm.Mov.Imm(asm.R1, 0).WithSymbol("done"),
	)
	add := func(key int64, done string) {
		insns = append(insns,
			asm.StoreImm(asm.RFP, -4, key, asm.Word),
			asm.LoadMapPtr(asm.R1, sums.FD()),
			asm.Mov.Reg(asm.R2, asm.RFP),
			asm.Add.Imm(asm.R2, -4),
			asm.FnMapLookupElem.Call(),
			asm.JEq.Imm(asm.R0, 0, "drop"),
			asm.AddAtomic.Mem(asm.R0, asm.R9, asm.DWord, 0),
			asm.Mov.Imm(asm.R9, 1).WithSymbol(done),
		)
	}
	add(0, "one")
	add(1, "added")
	const shot = 2 // TC_ACT_SHOT
	insns = append(insns, asm.Mov.Imm(asm.R0, shot).WithSymbol("drop"), asm.Return())

	prog, err := ebpf.NewProgram(&ebpf.ProgramSpec{Name: "burn", Type: ebpf.SchedCLS, Instructions: insns, License: "GPL"})
	if err != nil {
		t.Fatalf("%+v", err)
	}
	t.Cleanup(func() { prog.Close() })
	index, err := ns.IfIndex(dev)
	if err != nil {
		t.Fatal(err)
	}
	err = ns.Do(func() error {
		l, err := link.AttachTCX(link.TCXOptions{Interface: index, Program: prog, Attach: ebpf.AttachTCXIngress})
		if err == nil {
			t.Cleanup(func() { l.Close() })
		}
		return err
	})
	if err != nil {
		t.Fatalf("attach burn to %s: %v", dev, err)
	}
	return &burn{sums}
}

func (b *burn) read(t testing.TB) (ns, packets uint64) {
	t.Helper()
	if err := b.sums.Lookup(uint32(0), &ns); err != nil {
		t.Fatal(err)
	}
	if err := b.sums.Lookup(uint32(1), &packets); err != nil {
		t.Fatal(err)
	}
	return ns, packets
}

// frame is a UDP datagram over IPv4 and Ethernet to everyone, of a flow.
func frame(flow byte) []byte {
	f := make([]byte, 60)
	copy(f, []byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2, 0, 0, 0, 0, 1, 0x08, 0x00})
	copy(f[14:], []byte{0x45, 0, 0, 46, 0, 0, 0, 0, 64, 17, 0, 0, 10, 9, 0, flow, 10, 9, 1, 1})
	copy(f[34:], []byte{0x10, flow, 0x20, 0, 0, 26, 0, 0})
	var sum uint32
	for i := 14; i < 34; i += 2 {
		sum += uint32(f[i])<<8 | uint32(f[i+1])
	}
	for sum>>16 > 0 {
		sum = sum&0xffff + sum>>16
	}
	f[24], f[25] = ^byte(sum>>8), ^byte(sum)
	return f
}

// onCPU runs fn on a thread of its own that is bound to cpu.
func onCPU(t testing.TB, cpu int, fn func() error) {
	t.Helper()
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends here
		var set unix.CPUSet
		set.Set(cpu)
		if err := unix.SchedSetaffinity(0, &set); err != nil {
			done <- err
			return
		}
		done <- fn()
	}()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
}

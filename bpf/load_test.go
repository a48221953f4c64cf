package bpf

import (
	"bytes"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
	"github.com/cilium/ebpf/link"
	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/rxsteer/rxsteer/internal/host"
	"github.com/rxsteer/rxsteer/internal/testnet"
)

var update = flag.Bool("update", false, "rewrite golden files")

// TestInstructionCounts shows a program's growth in review: each instruction runs
// in every softirq, poll or interrupt.
func TestInstructionCounts(t *testing.T) {
	var got strings.Builder
	for _, object := range []func() (*ebpf.CollectionSpec, error){loadRx, loadPacket, loadSpread, loadProfile} {
		spec, err := object()
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range slices.Sorted(maps.Keys(spec.Programs)) {
			fmt.Fprintf(&got, "%-23s %d\n", name, len(spec.Programs[name].Instructions))
		}
	}
	golden := filepath.Join("testdata", "instructions.golden")
	if *update {
		if err := os.WriteFile(golden, []byte(got.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got.String()); diff != "" {
		t.Errorf("instructions per program, -want +got (go test ./bpf -update accepts them):\n%s", diff)
	}
}

// kernelWithout is the running kernel's BTF as far as the programs look, less
// some tracepoints.
func kernelWithout(t testing.TB, missing ...string) func() (*btf.Spec, error) {
	t.Helper()
	kernel, err := btf.LoadKernelSpec()
	if err != nil {
		t.Skipf("needs a kernel with BTF: %v", err)
	}
	var types []btf.Type
	for _, name := range []string{"napi_struct", "net_device", "net", "ns_common", "sk_buff", "task_struct", "sock", "udp_sock"} {
		s, err := structOf(kernel, name)
		if err != nil {
			t.Fatal(err)
		}
		types = append(types, s)
	}
	names := map[string]bool{} // two objects may hook the same
	for _, h := range slices.Concat(hooks, packetHooks, spreadHooks) {
		names[h.name] = !slices.Contains(missing, h.name)
	}
	for _, name := range slices.Sorted(maps.Keys(names)) {
		if names[name] {
			types = append(types, &btf.Typedef{Name: "btf_trace_" + name, Type: &btf.Int{Name: "int", Size: 4}})
		}
	}
	b, err := btf.NewBuilder(types, nil)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := b.Marshal(nil, &btf.MarshalOptions{Order: binary.NativeEndian})
	if err != nil {
		t.Fatal(err)
	}
	return func() (*btf.Spec, error) { return btf.LoadSpecFromReader(bytes.NewReader(raw)) }
}

func structOf(spec *btf.Spec, name string) (*btf.Struct, error) {
	all, err := spec.AnyTypesByName(name)
	if err != nil {
		return nil, err
	}
	for _, t := range all {
		if s, ok := t.(*btf.Struct); ok {
			return s, nil
		}
	}
	return nil, fmt.Errorf("no struct %s", name)
}

func TestLoadWithoutBTF(t *testing.T) {
	none := func() (*btf.Spec, error) {
		return nil, &fs.PathError{Op: "open", Path: "/sys/kernel/btf/vmlinux", Err: fs.ErrNotExist}
	}
	p, err := Load(Options{BTF: none})
	if p != nil || !errors.Is(err, ErrNoBTF) || !strings.Contains(err.Error(), "CONFIG_DEBUG_INFO_BTF") {
		t.Errorf("Load = %v, %v; want ErrNoBTF that says what the kernel needs", p, err)
	}
	s := Probe(host.OS{}, Options{BTF: none})
	if s.BTF.Live || s.BTF.Why == "" || s.Err == nil {
		t.Errorf("support %+v, want no BTF and why", s)
	}
	for _, h := range s.Hooks {
		if h.Live || h.Why == "" {
			t.Errorf("hook %+v live without BTF", h)
		}
	}
}

func TestLoadWithoutATracepointItNeeds(t *testing.T) {
	for _, name := range []string{"softirq_entry", "softirq_exit", "napi_poll"} {
		p, err := Load(Options{BTF: kernelWithout(t, name)})
		if p != nil || !errors.Is(err, ErrNoTracepoint) || !strings.HasSuffix(err.Error(), " "+name) {
			t.Errorf("Load without %s = %v, %v; want ErrNoTracepoint that names it", name, p, err)
		}
	}
}

func TestLoadWithoutATracepointItCanDoWithout(t *testing.T) {
	testnet.NeedRoot(t)
	source := kernelWithout(t, "irq_handler_exit")
	p, err := Load(Options{BTF: source})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	if err := p.Attach(); err != nil {
		t.Fatal(err)
	}
	want := []Hook{{Name: "irq_handler_exit", Level: 1, Why: "kernel has no tracepoint irq_handler_exit", Lost: "time per interrupt and gaps between them"}}
	if diff := cmp.Diff(want, p.Missing()); diff != "" {
		t.Errorf("missing -want +got:\n%s", diff)
	}
	if c := counters(t, p); len(c.CPUs) == 0 {
		t.Error("no CPU counters")
	}
	s := Probe(host.OS{}, Options{BTF: source})
	for _, h := range s.Hooks {
		if h.Name == packetProgSkDataReady {
			continue // needs the number of a type in the whole BTF
		}
		if h.Live == (h.Name == "irq_handler_exit") {
			t.Errorf("hook %+v", h)
		}
	}
	if s.Err != nil {
		t.Errorf("support says %v, want that measuring works without %s", s.Err, "irq_handler_exit")
	}
}

// TestOrdinaryUserIsToldWhatIsMissing runs as nobody, in a child when root.
func TestOrdinaryUserIsToldWhatIsMissing(t *testing.T) {
	if os.Geteuid() == 0 {
		asNobody(t)
		return
	}
	p, err := Load(Options{})
	if p != nil || !errors.Is(err, ErrNoPrivilege) {
		t.Fatalf("Load = %v, %v; want ErrNoPrivilege", p, err)
	}
	for _, word := range []string{"CAP_BPF", "CAP_PERFMON", "run as root", "setcap cap_bpf,cap_perfmon=ep"} {
		if !strings.Contains(err.Error(), word) {
			t.Errorf("error %q does not say %s", err, word)
		}
	}
	s := Probe(host.OS{}, Options{})
	if !errors.Is(s.Err, ErrNoPrivilege) || !slices.Equal(s.MissingCaps, []string{"CAP_BPF", "CAP_PERFMON"}) || s.UID != os.Geteuid() {
		t.Errorf("support %+v, want the missing capabilities", s)
	}
}

// asNobody runs this very test in a child without privilege.
func asNobody(t testing.TB) {
	t.Helper()
	again(t, &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}})
}

// again runs this very test in a child with other privileges.
func again(t testing.TB, attr *syscall.SysProcAttr, env ...string) {
	t.Helper()
	cmd := exec.Command("/proc/self/exe", "-test.run", "^"+t.Name()+"$", "-test.v")
	cmd.Dir = "/"
	cmd.SysProcAttr = attr
	cmd.Env = append(os.Environ(), env...)
	out, err := cmd.CombinedOutput()
	if err != nil || !bytes.Contains(out, []byte("--- PASS: "+t.Name())) {
		t.Errorf("in the child: %v\n%s", err, out)
	}
}

// TestRootOfAContainerIsToldSo: in a user namespace of its own a process holds
// every capability, and the kernel refuses all the same.
func TestRootOfAContainerIsToldSo(t *testing.T) {
	const inside = "RXSTEER_TEST_IN_USERNS"
	if os.Getenv(inside) == "" {
		testnet.NeedRoot(t)
		all := []syscall.SysProcIDMap{{ContainerID: 0, HostID: 0, Size: 65536}}
		again(t, &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWUSER, UidMappings: all, GidMappings: all}, inside+"=1")
		return
	}
	p, err := Load(Options{})
	if p != nil || !errors.Is(err, ErrNoPrivilege) || !strings.Contains(err.Error(), "outside a container") {
		t.Errorf("Load = %v, %v; want ErrNoPrivilege and where to run instead", p, err)
	}
	if strings.Contains(err.Error(), "consider rlimit") {
		t.Errorf("error %v gives a programmer's advice", err)
	}
	if s := Probe(host.OS{}, Options{}); !errors.Is(s.Err, ErrNoPrivilege) {
		t.Errorf("support says %v, want ErrNoPrivilege", s.Err)
	}
	t.Log(err)
}

func TestFailedAttachLeavesNothing(t *testing.T) {
	testnet.NeedRoot(t)
	p, err := Load(Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	if err := p.coll.Programs["irq_handler_exit"].Close(); err != nil {
		t.Fatal(err)
	}
	if err := p.Attach(); err == nil || !strings.Contains(err.Error(), "irq_handler_exit") {
		t.Errorf("Attach = %v, want an error that names the tracepoint", err)
	}
	if len(p.links) != 0 {
		t.Errorf("%d links left", len(p.links))
	}
}

// TestRefusalIsNotBlamedOnMemlock: on a locked-down kernel cilium/ebpf suggests a
// low RLIMIT_MEMLOCK; that hint must not reach the user.
func TestRefusalIsNotBlamedOnMemlock(t *testing.T) {
	refused := fmt.Errorf("program softirq_entry: load program: %w (MEMLOCK may be too low, consider rlimit.RemoveMemlock)", unix.EPERM)
	err := explain("load BPF programs", refused)
	if !errors.Is(err, ErrNoPrivilege) || strings.Contains(err.Error(), "MEMLOCK") {
		t.Errorf("explain = %v; want ErrNoPrivilege without a word of MEMLOCK", err)
	}
	if os.Geteuid() == 0 && !strings.Contains(err.Error(), "lockdown") {
		t.Errorf("explain with all capabilities = %v; want what else can refuse", err)
	}
	other := explain("load BPF programs", unix.ENOMEM)
	if errors.Is(other, ErrNoPrivilege) || !errors.Is(other, unix.ENOMEM) {
		t.Errorf("explain(ENOMEM) = %v, want it kept", other)
	}
}

func TestNothingIsLeftAttached(t *testing.T) {
	testnet.NeedRoot(t)
	p, err := Load(Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(p.SetDetail(true), p.Attach(), p.SetThreads(true)); err != nil {
		t.Fatal(err)
	}
	var progs []ebpf.ProgramID
	for name, prog := range p.coll.Programs {
		info, err := prog.Info()
		if err != nil {
			t.Fatal(err)
		}
		id, ok := info.ID()
		if !ok {
			t.Fatalf("program %s has no ID", name)
		}
		progs = append(progs, id)
	}
	var links []link.ID
	for _, l := range p.links {
		info, err := l.Info()
		if err != nil {
			t.Fatal(err)
		}
		links = append(links, info.ID)
	}
	if len(progs) != len(hooks) || len(links) != len(hooks) {
		t.Fatalf("%d programs and %d links, want %d of both", len(progs), len(links), len(hooks))
	}
	if err := p.Close(); err != nil {
		t.Fatal(err)
	}
	if err := p.Close(); err != nil {
		t.Errorf("second Close: %v", err)
	}
	// The kernel frees them after a grace period.
	await(t, "the links gone", func() bool {
		return !slices.ContainsFunc(links, func(id link.ID) bool {
			l, err := link.NewFromID(id)
			if err == nil {
				l.Close()
			}
			return !errors.Is(err, os.ErrNotExist)
		})
	})
	await(t, "the programs gone", func() bool {
		return !slices.ContainsFunc(progs, func(id ebpf.ProgramID) bool {
			prog, err := ebpf.NewProgramFromID(id)
			if err == nil {
				prog.Close()
			}
			return !errors.Is(err, os.ErrNotExist)
		})
	})
}

func TestLockdownMode(t *testing.T) {
	for text, want := range map[string]string{
		"none [integrity] confidentiality\n": "integrity",
		"[none] integrity confidentiality\n": "none",
		"":                                   "unknown",
		"none integrity":                     "unknown",
		"[none":                              "unknown",
	} {
		root := t.TempDir()
		dir := filepath.Join(root, "kernel", "security")
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "lockdown"), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		if got := lockdown(host.OS{Sys: root}); got != want {
			t.Errorf("lockdown of %q = %q, want %q", text, got, want)
		}
	}
	if got := lockdown(host.OS{Sys: t.TempDir()}); got != "unknown" {
		t.Errorf("lockdown without securityfs = %q, want unknown", got)
	}
}

// TestOlderKernelsNeedNoReaders: before Linux 6.18 consume_skb tells what UDP sockets were read of, and what the programs that
// count reads need may be missing.
func TestOlderKernelsNeedNoReaders(t *testing.T) {
	testnet.NeedRoot(t)
	// The tracepoints of reads are gone, and so is the field by which a kernel of 6.18 is known.
	source := kernelWithout(t, "sk_data_ready", "sock_recv_length")
	older := func() (*btf.Spec, error) {
		spec, err := source()
		if err != nil {
			return nil, err
		}
		udp, err := structOf(spec, "udp_sock")
		if err != nil {
			return nil, err
		}
		for i := range udp.Members {
			if udp.Members[i].Name == "udp_prod_queue" {
				udp.Members[i].Name = "was_not_there"
			}
		}
		return spec, nil
	}
	p, err := LoadPackets(Options{BTF: older})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	if err := p.Attach(); err != nil {
		t.Fatal(err)
	}
	// The tracepoints of kernelWithout have no arguments: kfree_skb's none for a reason.
	missing := slices.DeleteFunc(p.Missing(), func(h Hook) bool { return h.Name == "kfree_skb" })
	if len(missing) != 1 || missing[0].Name != "sk_data_ready" || !strings.Contains(missing[0].Lost, "stack-socket of UDP") {
		t.Errorf("missing %+v, want only where UDP's packets reach their sockets", missing)
	}
	var byConsume uint32
	if err := p.coll.Variables[packetVarByConsume].Get(&byConsume); err != nil || byConsume != 1 {
		t.Errorf("by consume_skb: %d, %v", byConsume, err)
	}
}

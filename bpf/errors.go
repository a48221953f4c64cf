package bpf

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/rxsteer/rxsteer/internal/host"
)

// What callers can act on; each is wrapped in a message that says what to do.
var (
	// ErrNoPrivilege: the process may not load tracing programs. The message
	// names the missing capability, or what else refused.
	ErrNoPrivilege = errors.New("not enough privilege for BPF")
	// ErrNoBTF: the kernel does not describe its types; no program of ours can load.
	ErrNoBTF = errors.New("kernel has no BTF")
	// ErrNoTracepoint: the kernel lacks a tracepoint; the message names it.
	ErrNoTracepoint = errors.New("kernel has no tracepoint")
)

// The capabilities that tracing programs need since Linux 5.8
// (include/uapi/linux/capability.h); before, and as their superset, CAP_SYS_ADMIN.
var needCaps = []struct {
	name string
	bit  uint
}{
	{"CAP_BPF", unix.CAP_BPF},
	{"CAP_PERFMON", unix.CAP_PERFMON},
}

// missingCaps lists the capabilities this thread lacks for tracing programs.
func missingCaps() ([]string, error) {
	if all, err := host.HasCap(unix.CAP_SYS_ADMIN); all || err != nil {
		return nil, err
	}
	var missing []string
	for _, c := range needCaps {
		has, err := host.HasCap(c.bit)
		if err != nil {
			return nil, err
		}
		if !has {
			missing = append(missing, c.name)
		}
	}
	return missing, nil
}

// explain turns the error of a bpf(2) call into one of the sentinels where it
// is one. EPERM has many fathers; a low RLIMIT_MEMLOCK, which cilium/ebpf
// always suggests, is the least likely, because Load lifts it first.
func explain(what string, err error) error {
	if err == nil {
		return nil
	}
	if errors.Is(err, ebpf.ErrNotSupported) && !errors.Is(err, unix.EPERM) {
		return fmt.Errorf("%s: this kernel does not support it: %w", what, err)
	}
	if !errors.Is(err, unix.EPERM) {
		return fmt.Errorf("%s: %w", what, err)
	}
	missing, capErr := missingCaps()
	switch {
	case capErr != nil:
		return fmt.Errorf("%s: %w: %w", what, ErrNoPrivilege, capErr)
	case len(missing) > 0:
		return noCaps(what, missing)
	}
	return fmt.Errorf("%s: %w: the kernel refuses although the capabilities are held: "+
		"lockdown, a security module, seccomp or a user namespace stands in the way: run on the host, outside a container", what, ErrNoPrivilege)
}

func noCaps(what string, missing []string) error {
	exe, err := os.Executable()
	if err != nil {
		exe = "rxsteer"
	}
	all := strings.Join(missing, " and ")
	return fmt.Errorf("%s: %w: needs %s: run as root, or grant it with: setcap %s=ep %s",
		what, ErrNoPrivilege, all, strings.ToLower(strings.Join(missing, ",")), exe)
}

package qemu

import (
	"errors"
	"strings"
	"testing"
)

func TestOnlyABrokenEmulationIsBootedAgain(t *testing.T) {
	const panicked = "Kernel panic - not syncing: Fatal exception in interrupt"
	for _, tt := range []struct {
		name    string
		console string
		exit    error
		want    bool
	}{
		{"QEMU's own assertion", "booting", errors.New("signal: aborted"), true},
		{"patched code, its oops long before the end", "Oops: int3: 0000 [#1]\n" + strings.Repeat("RSP: 0018\n", 100) + panicked, nil, true},
		{"a panic of the guest", "sysrq: Trigger a crash\n" + panicked, nil, false},
		{"a wrong option", "", errors.New("exit status 1"), false},
		{"power off too early", "reboot: Power down", nil, false},
	} {
		r := &run{machine: Machine{Kernel: "6.12", NIC: "igb"}}
		f := r.noStatus(t.Context(), &Result{Console: tt.console}, 0, tt.exit, "")
		if f.Code != ExitLab || f.emulation != tt.want {
			t.Errorf("%s: code %d, emulation %v, want %v", tt.name, f.Code, f.emulation, tt.want)
		}
	}
}

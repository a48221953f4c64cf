package qemu

import (
	"errors"
	"fmt"
)

// Exit codes of everything in the lab.
const (
	ExitPass        = 0
	ExitAssertion   = 1   // the guest ran and what it found is wrong
	ExitUnavailable = 3   // the kernel's package is gone: nothing was tested
	ExitTimeout     = 124 // the guest hung: killed at its time limit
	ExitLab         = 125 // the lab itself failed: no root, no tun, no QEMU, a guest that panicked
)

// Failure is why a guest gave no result: the exit code, one line that says what is
// wrong and what to do, and the end of the log that shows it.
type Failure struct {
	Code int
	Line string
	Log  string // "" where there is none
	// emulation: the emulated machine broke down, not the guest or the lab. See brokeDown.
	emulation bool
}

func (f *Failure) Error() string { return f.Line }

// labFailed is a Failure of the lab itself.
func labFailed(format string, args ...any) *Failure {
	return &Failure{Code: ExitLab, Line: fmt.Sprintf(format, args...)}
}

// ExitCode is the exit code that an error of this package stands for.
func ExitCode(err error) int {
	if err == nil {
		return ExitPass
	}
	if f, ok := errors.AsType[*Failure](err); ok {
		return f.Code
	}
	return ExitLab
}

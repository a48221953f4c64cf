package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strings"
	"syscall"
)

// Exit codes; they are part of the interface (docs/json.md).
const (
	exitOK         = 0
	exitFailed     = 1
	exitUsage      = 2
	exitFindings   = 3
	exitRolledBack = 4
	exitPrivilege  = 5
)

// failure is an error with its exit code and what to do next. A failure without
// an error says nothing: the command has already printed what there is to say.
type failure struct {
	code int
	err  error
	next []string // lines: what to do
}

func (f *failure) Error() string {
	if f.err == nil {
		return fmt.Sprintf("exit %d", f.code)
	}
	return f.err.Error()
}

func (f *failure) Unwrap() error { return f.err }

func usage(format string, args ...any) error {
	return &failure{code: exitUsage, err: fmt.Errorf(format, args...)}
}

// exitWith ends with a code and no message.
func exitWith(code int) error { return &failure{code: code} }

// privilege marks an error of missing privilege or kernel support and says the line
// that grants it.
func privilege(err error, next ...string) error {
	return &failure{code: exitPrivilege, err: err, next: next}
}

// report prints an error for people and returns the exit code.
func report(w io.Writer, err error) int {
	if err == nil {
		return exitOK
	}
	var f *failure
	if !errors.As(err, &f) {
		f = &failure{code: exitFailed, err: err}
		if errors.Is(err, fs.ErrPermission) || errors.Is(err, syscall.EPERM) {
			f.code, f.next = exitPrivilege, []string{"run it as root: sudo rxsteer …"}
		}
	}
	if f.err != nil {
		lines := strings.Split(strings.TrimSpace(err.Error()), "\n")
		for i := range lines {
			lines[i] = printable(lines[i])
		}
		fmt.Fprintln(w, "rxsteer: "+strings.Join(lines, "\n"))
	}
	for _, line := range f.next {
		fmt.Fprintln(w, "  → "+printable(line))
	}
	return f.code
}

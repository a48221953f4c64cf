package paste

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/rxsteer/rxsteer/internal/host/procfs"
)

// Error is a line that was not understood: parse FILE:LINE: cause.
type Error = procfs.Error

// lines walks a pasted text. Lines come without their end and trailing blanks; each
// parser below returns what it understood together with an error for each thing it did not.
type lines struct {
	file string
	rest string
	n    int
	errs []error
}

// maxErrors bounds what is said about one file.
const maxErrors = 16

func newLines(file string, text []byte) *lines {
	return &lines{file: file, rest: strings.TrimPrefix(string(text), "\uFEFF")}
}

func (l *lines) next() (string, bool) {
	if l.rest == "" {
		return "", false
	}
	l.n++
	line, rest, _ := strings.Cut(l.rest, "\n")
	l.rest = rest
	return strings.TrimRight(line, " \t\r\x00"), true
}

func (l *lines) errorf(format string, args ...any) {
	if len(l.errs) < maxErrors {
		l.errs = append(l.errs, &Error{File: l.file, Line: l.n, Cause: fmt.Sprintf(format, args...)})
	}
}

// clip shortens hostile text for a message.
func clip(s string) string {
	if len(s) > 60 {
		return strconv.Quote(s[:60]) + "…"
	}
	return strconv.Quote(s)
}

// Refusal is the tool's answer that the device or the caller cannot have something.
type Refusal struct {
	Text string
	// Absent: the device or driver has no such thing; otherwise it was forbidden or failed and
	// the setting is not known.
	Absent bool
}

// refusal recognises the lines that ethtool prints instead of values, also within
// sections of an otherwise good answer.
func refusal(line string) *Refusal {
	s := strings.TrimSpace(line)
	known := false
	for _, p := range []string{"netlink error: ", "Cannot ", "Operation not ", "Not supported", "No data available", "no stats available", "No such device", "rxclass: ", "RX classification rule retrieval failed"} {
		known = known || strings.HasPrefix(s, p)
	}
	if !known {
		return nil
	}
	// Anyone may ask for the table (dev_ethtool, net/ethtool/ioctl.c): a refusal is the driver's.
	driver := strings.Contains(s, "flow hash indir") && strings.Contains(s, "not permitted")
	return &Refusal{Text: s, Absent: driver || strings.Contains(s, "ot supported") || strings.HasPrefix(s, "no stats")}
}

// after takes the text between prefix and end ("for eth0:" gives eth0).
func after(line, prefix, end string) (string, bool) {
	s, ok := strings.CutPrefix(line, prefix)
	if !ok {
		return "", false
	}
	if end != "" {
		i := strings.Index(s, end)
		if i < 0 {
			return "", false
		}
		s = s[:i]
	}
	return strings.TrimSpace(s), true
}

// field parts "Key name:   value" at the first colon.
func field(line string) (key, value string, ok bool) {
	key, value, ok = strings.Cut(line, ":")
	return strings.TrimSpace(key), strings.TrimSpace(value), ok
}

// onOff reads a flag.
func onOff(s string) (on, ok bool) {
	return s == "on", s == "on" || s == "off"
}

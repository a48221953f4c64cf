package knob

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/rxsteer/rxsteer/internal/cpuset"
)

// Text files of sysfs and procfs that hold one number or one set.

func (m *Machine) readText(p string) (string, error) {
	b, err := m.c.FS.ReadFile(p)
	if err != nil {
		return "", err
	}
	return strings.TrimSpace(string(b)), nil
}

func (m *Machine) readInt(dev, p string) Value {
	s, err := m.readText(p)
	if err != nil {
		return m.unread(dev, err)
	}
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		return Unknown(fmt.Sprintf("%s holds %.40q, not a number", p, s))
	}
	return Int(n)
}

// readMask reads a hexadecimal bitmap, of CPUs or of queues.
func (m *Machine) readMask(dev, p string) Value {
	s, err := m.readText(p)
	if err != nil {
		return m.unread(dev, err)
	}
	set, err := cpuset.ParseMask(s)
	if err != nil {
		return Unknown(fmt.Sprintf("%s: %v", p, err))
	}
	return Set(set)
}

func (m *Machine) readList(dev, p string) Value {
	s, err := m.readText(p)
	if err != nil {
		return m.unread(dev, err)
	}
	set, err := cpuset.ParseList(s)
	if err != nil {
		return Unknown(fmt.Sprintf("%s: %v", p, err))
	}
	return Set(set)
}

func (m *Machine) writeText(p, s string) error {
	return m.c.FS.WriteFile(p, []byte(s))
}

// intText is decimal text.
func intText(v Value) (string, error) {
	var n int64
	if err := v.Decode(&n); err != nil {
		return "", err
	}
	return strconv.FormatInt(n, 10), nil
}

// maskText is mask text, "0" for the empty set: bitmap_parse takes fewer digits
// than the host has CPUs (lib/bitmap-str.c).
func maskText(v Value) (string, error) {
	set, err := v.CPUs()
	if err != nil {
		return "", err
	}
	return set.Mask(0), nil
}

// CPUs decodes a set.
func (v Value) CPUs() (cpuset.Set, error) {
	var s string
	if err := v.Decode(&s); err != nil {
		return cpuset.Set{}, err
	}
	set, err := cpuset.ParseList(s)
	if err != nil {
		return cpuset.Set{}, fmt.Errorf("decode value: %w", err)
	}
	return set, nil
}

// part reads the number of "rx-3" after prefix "rx-".
func part(t Target, prefix string) (int, bool) {
	s, ok := strings.CutPrefix(t.Part(), prefix)
	if !ok || !validDevice(t.Device()) {
		return 0, false
	}
	n, err := strconv.ParseUint(s, 10, 31)
	if err != nil || strconv.FormatUint(n, 10) != s {
		return 0, false
	}
	return int(n), true
}

// noSuch is the value of a target that cannot have the setting.
func noSuch(r Ref) Value { return Absent("no setting " + r.String()) }

func echo(text, p string) string { return "echo " + quote(text) + " > " + p }

// Package knob holds every receive setting rxsteer can read or write, one file
// per setting: how to read it, write it, what a person would type for the
// same effect and what each errno means there. A Snapshot is all of them.
//
// It refuses to decide anything: which value is right is the business of
// steer.
package knob

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/rxsteer/rxsteer/internal/cpuset"
)

// Kind names a setting ("rps-cpus", "rss-table"): the word plans, journals
// and JSON use. It never changes meaning.
type Kind string

// Target is what a setting belongs to, in words: "host" for sysctls, "eth0"
// for a device, "eth0 rx-3" or "eth0 tx-0" for a queue, "eth0 irq-28" for an
// interrupt vector, "eth0 napi-257" for a NAPI instance, "eth0 udp4" for a
// flow type, "eth0 context-1" for an RSS context. Interface names hold no blanks
// (dev_valid_name in net/core/dev.c), so the text splits at the first one.
type Target string

// Host is the target of settings that belong to no device.
const Host Target = "host"

// Device returns the interface name, or "" for Host.
func (t Target) Device() string {
	if t == Host {
		return ""
	}
	d, _, _ := strings.Cut(string(t), " ")
	return d
}

// Part returns what follows the interface name ("rx-3"), or "".
func (t Target) Part() string {
	_, p, _ := strings.Cut(string(t), " ")
	return p
}

// On builds the target of a part of a device: On("eth0", "rx-%d", 3).
func On(device, format string, args ...any) Target {
	return Target(device + " " + fmt.Sprintf(format, args...))
}

// Ref names one setting of one target.
type Ref struct {
	Knob   Kind   `json:"knob"`
	Target Target `json:"target"`
}

func (r Ref) String() string { return string(r.Knob) + " of " + string(r.Target) }

// Value is what a setting is set to, in a canonical form that compares with
// ==: a JSON text (number, string, bool, list of numbers, or a flat object with
// sorted keys); CPU sets are list text ("0-3,8"). A Value may also be
// unknown (not readable here; never equal to anything, itself included: use
// Equal) or absent (this device or kernel has no such setting), with the reason.
type Value struct {
	state  state
	json   string
	reason string
}

type state uint8

const (
	unknown state = iota // the zero Value is unknown, without a reason
	absent
	known
)

// Unknown is a setting that could not be read, and why.
func Unknown(reason string) Value { return Value{state: unknown, reason: reason} }

// Absent is a setting that does not exist here, and why.
func Absent(reason string) Value { return Value{state: absent, reason: reason} }

// Int, Bool, String, Set, List and Fields make known values.
func Int(n int64) Value   { return of(n) }
func Bool(b bool) Value   { return of(b) }
func Text(s string) Value { return of(s) }

// Set is a CPU set.
func Set(s cpuset.Set) Value { return of(s.String()) }

// List is a list of numbers (an indirection table: queue of each bucket).
func List(v []int) Value {
	if v == nil {
		v = []int{}
	}
	return of(v)
}

// Fields is a group of attributes that the kernel takes in one message
// (channels, rings, coalescing, features); values are int64, bool or string.
func Fields(m map[string]any) Value {
	if m == nil {
		m = map[string]any{}
	}
	return of(m)
}

func of(v any) Value {
	b, err := json.Marshal(v)
	if err != nil { // only unsupported Go types, a programming error
		panic(fmt.Sprintf("knob value %T: %v", v, err))
	}
	return Value{state: known, json: string(b)}
}

// Known reports whether the value was read.
func (v Value) Known() bool { return v.state == known }

// IsAbsent reports whether the host has no such setting.
func (v Value) IsAbsent() bool { return v.state == absent }

// Reason says why a value is unknown or absent.
func (v Value) Reason() string { return v.reason }

// Equal reports whether both are known and the same, or both absent.
// Unknown equals nothing.
func (v Value) Equal(w Value) bool {
	return v.state == w.state && v.state != unknown && v.json == w.json
}

// JSON is the canonical text of a known value.
func (v Value) JSON() string { return v.json }

// String is the value for people: no quotes, lists with blanks, attribute
// groups as "rx 4 tx 4".
func (v Value) String() string {
	switch v.state {
	case unknown:
		return "unknown"
	case absent:
		return "-"
	}
	var x any
	d := json.NewDecoder(strings.NewReader(v.json))
	d.UseNumber()
	if err := d.Decode(&x); err != nil {
		return v.json
	}
	switch x := x.(type) {
	case string:
		return x
	case []any:
		var b strings.Builder
		for i, e := range x {
			if i > 0 {
				b.WriteByte(' ')
			}
			fmt.Fprint(&b, e)
		}
		return b.String()
	case map[string]any:
		var parts []string
		for _, k := range sortedKeys(x) {
			parts = append(parts, fmt.Sprintf("%s %v", k, x[k]))
		}
		return strings.Join(parts, " ")
	default:
		return fmt.Sprint(x)
	}
}

// Decode stores a known value in dst (a pointer to int64, bool, string, []int
// or map[string]any whose numbers are json.Number).
func (v Value) Decode(dst any) error {
	if v.state != known {
		return fmt.Errorf("decode value: it is %s: %s", v, v.reason)
	}
	d := json.NewDecoder(strings.NewReader(v.json))
	d.UseNumber()
	if err := d.Decode(dst); err != nil {
		return fmt.Errorf("decode value %s: %w", v.json, err)
	}
	return nil
}

// MarshalJSON writes the bare value, {"unknown":"reason"} or {"absent":"reason"}.
func (v Value) MarshalJSON() ([]byte, error) {
	switch v.state {
	case known:
		return []byte(v.json), nil
	case absent:
		return json.Marshal(map[string]string{"absent": v.reason})
	default:
		return json.Marshal(map[string]string{"unknown": v.reason})
	}
}

// UnmarshalJSON is the inverse of MarshalJSON and canonicalises.
func (v *Value) UnmarshalJSON(b []byte) error {
	d := json.NewDecoder(bytes.NewReader(b))
	d.UseNumber()
	var x any
	if err := d.Decode(&x); err != nil {
		return err
	}
	if m, ok := x.(map[string]any); ok && len(m) == 1 {
		if r, ok := m["unknown"].(string); ok {
			*v = Unknown(r)
			return nil
		}
		if r, ok := m["absent"].(string); ok {
			*v = Absent(r)
			return nil
		}
	}
	if x == nil {
		return fmt.Errorf("parse value: null is not a setting")
	}
	*v = of(x)
	return nil
}

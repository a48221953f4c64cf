package knob

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
)

// maxSnapshot bounds a serialised Snapshot; 64 devices of 128 queues are about 10 MiB.
const maxSnapshot = 64 << 20

// ReadSnapshot reads a serialised Snapshot and puts it in canonical order. It refuses
// one of a newer schema, more than 64 MiB, and two values for one setting.
func ReadSnapshot(r io.Reader) (*Snapshot, error) {
	b, err := io.ReadAll(io.LimitReader(r, maxSnapshot+1))
	if err != nil {
		return nil, fmt.Errorf("read snapshot: %w", err)
	}
	if len(b) > maxSnapshot {
		return nil, fmt.Errorf("read snapshot: more than %d bytes", maxSnapshot)
	}
	var head struct {
		Version *int `json:"version"`
	}
	if err := json.Unmarshal(b, &head); err != nil {
		return nil, fmt.Errorf("read snapshot: %w", position(b, err))
	}
	switch {
	case head.Version == nil || *head.Version < 1:
		return nil, fmt.Errorf("read snapshot: no version: not a snapshot")
	case *head.Version > SnapshotVersion:
		return nil, fmt.Errorf("read snapshot: version %d is newer than %d, the newest this program knows", *head.Version, SnapshotVersion)
	}
	s := new(Snapshot)
	if err := json.Unmarshal(b, s); err != nil {
		return nil, fmt.Errorf("read snapshot: %w", position(b, err))
	}
	s.Sort()
	for i := 1; i < len(s.Settings); i++ {
		if s.Settings[i].Ref == s.Settings[i-1].Ref {
			return nil, fmt.Errorf("read snapshot: %s is there twice", s.Settings[i].Ref)
		}
	}
	return s, nil
}

// position names the line of a JSON error.
func position(b []byte, err error) error {
	var at int64
	switch e := err.(type) {
	case *json.SyntaxError:
		at = e.Offset
	case *json.UnmarshalTypeError:
		at = e.Offset
	default:
		return err
	}
	at = min(max(at, 0), int64(len(b)))
	return fmt.Errorf("line %d: %w", 1+strings.Count(string(b[:at]), "\n"), err)
}

// WriteTo writes the canonical text of a Snapshot: indented JSON, sorted, with a
// newline at the end. The same settings give the same bytes but for the time.
func (s *Snapshot) WriteTo(w io.Writer) (int64, error) {
	s.Sort()
	b, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return 0, fmt.Errorf("write snapshot: %w", err)
	}
	n, err := w.Write(append(b, '\n'))
	if err != nil {
		return int64(n), fmt.Errorf("write snapshot: %w", err)
	}
	return int64(n), nil
}

// Text prints a difference for people: one line, or for a group one per attribute
// that differs; long tables by what changed in them.
//
//	rps-cpus of eth0 rx-3: 0-3 → 2
//	coalesce of eth0: rx-usecs 3 → 50
//	rss-table of eth0: 12 of 128 buckets moved: 5: 1 → 3, 9: 1 → 3, …
func (d Difference) Text() string {
	from, ok1 := d.From.fields()
	to, ok2 := d.To.fields()
	if ok1 && ok2 {
		all := maps.Clone(from)
		maps.Copy(all, to)
		var b strings.Builder
		for _, k := range slices.Sorted(maps.Keys(all)) {
			if from[k] == to[k] {
				continue
			}
			if b.Len() > 0 {
				b.WriteByte('\n')
			}
			fmt.Fprintf(&b, "%s: %s %s → %s", d.Ref, k, attribute(from, k), attribute(to, k))
		}
		return b.String()
	}
	var was, is []int
	if d.From.Decode(&was) == nil && d.To.Decode(&is) == nil && len(was) == len(is) && len(was) > 8 {
		return d.Ref.String() + ": " + moves(was, is)
	}
	return fmt.Sprintf("%s: %s → %s", d.Ref, d.From.side(), d.To.side())
}

func attribute(f map[string]any, k string) string {
	v, ok := f[k]
	if !ok {
		return "-"
	}
	return strings.Trim(word(v), "'")
}

// side is a value in a difference: the empty set or text would be invisible.
func (v Value) side() string {
	if s := v.String(); s != "" {
		return s
	}
	return "none"
}

// shownMoves is how many buckets are named before "…".
const shownMoves = 8

func moves(was, is []int) string {
	var parts []string
	n := 0
	for i := range was {
		if was[i] == is[i] {
			continue
		}
		if n++; n <= shownMoves {
			parts = append(parts, fmt.Sprintf("%d: %d → %d", i, was[i], is[i]))
		}
	}
	if n > shownMoves {
		parts = append(parts, "…")
	}
	return fmt.Sprintf("%d of %d buckets moved: %s", n, len(was), strings.Join(parts, ", "))
}

// DiffText prints differences for people, one or more lines each; "" when there are none.
func DiffText(ds []Difference) string {
	var b strings.Builder
	for _, d := range ds {
		b.WriteString(d.Text())
		b.WriteByte('\n')
	}
	return b.String()
}

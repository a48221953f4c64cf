package diagnose

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/rxsteer/rxsteer/internal/host/knob"
)

// Sightings is what was seen of drift so far: when each difference from one baseline was seen first. Whoever
// watches (the agent, each baseline check) calls Note with what it sees and keeps the Sightings for the next one.
type Sightings struct {
	Version  int        `json:"version"`
	Baseline string     `json:"baseline"` // which baseline: its time and boot
	Boot     string     `json:"boot_id"`  // of the host at the last look
	Looked   time.Time  `json:"looked"`   // the last look
	Seen     []Sighting `json:"seen"`     // by target, then knob
}

// Sighting is one difference that is there.
type Sighting struct {
	knob.Ref
	First time.Time `json:"first"`
	// After is the last look that did not show it yet, zero where there was none: it came between After and First.
	After time.Time `json:"after,omitzero"`
}

// sightingsVersion is the format; readers refuse newer ones.
const sightingsVersion = 1

// ReadSightings reads what WriteTo wrote.
func ReadSightings(r io.Reader) (*Sightings, error) {
	var s Sightings
	if err := json.NewDecoder(r).Decode(&s); err != nil {
		return nil, fmt.Errorf("read sightings of drift: %w", err)
	}
	if s.Version > sightingsVersion {
		return nil, fmt.Errorf("read sightings of drift: version %d, this program knows %d", s.Version, sightingsVersion)
	}
	return &s, nil
}

// WriteTo writes them as JSON.
func (s *Sightings) WriteTo(w io.Writer) (int64, error) {
	b, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return 0, fmt.Errorf("write sightings of drift: %w", err)
	}
	n, err := w.Write(append(b, '\n'))
	return int64(n), err
}

// Note looks at a host at a moment and remembers what differs from the baseline. Another baseline, or another boot, which
// sets everything anew, begins from nothing; a difference that went away is forgotten. What could not be read now
// is taken to be as it was.
func (s *Sightings) Note(was, now *knob.Snapshot, at time.Time) {
	id := was.Taken.UTC().Format(time.RFC3339Nano) + " " + was.Host.BootID
	if s.Baseline != id || s.Boot != now.Host.BootID {
		*s = Sightings{Baseline: id, Boot: now.Host.BootID}
	}
	s.Version = sightingsVersion
	var seen []Sighting
	for _, d := range Drifted(was, now, nil) {
		x := Sighting{Ref: d.Ref, First: at, After: s.Looked}
		if i := s.index(d.Ref); i >= 0 {
			x = s.Seen[i]
		}
		seen = append(seen, x)
	}
	for _, x := range s.Seen {
		if v := now.Get(x.Ref); !v.Known() && !v.IsAbsent() && !slices.ContainsFunc(seen, func(y Sighting) bool { return y.Ref == x.Ref }) {
			seen = append(seen, x)
		}
	}
	slices.SortFunc(seen, func(a, b Sighting) int { return strings.Compare(a.Ref.String(), b.Ref.String()) })
	s.Seen, s.Looked = seen, at
}

func (s *Sightings) index(ref knob.Ref) int {
	return slices.IndexFunc(s.Seen, func(x Sighting) bool { return x.Ref == ref })
}

// First is when a difference was seen first (Input.FirstSeen).
func (s *Sightings) First(ref knob.Ref) (time.Time, bool) {
	if i := s.index(ref); i >= 0 {
		return s.Seen[i].First, true
	}
	return time.Time{}, false
}

// Since is a difference's time for people: "since 12:03, not yet at 12:01".
func (s *Sightings) Since(ref knob.Ref) string {
	i := s.index(ref)
	if i < 0 {
		return ""
	}
	x := s.Seen[i]
	text := "first seen " + x.First.UTC().Format("2006-01-02 15:04:05")
	if !x.After.IsZero() {
		text += ", not there yet at " + x.After.UTC().Format("2006-01-02 15:04:05")
	}
	return text
}

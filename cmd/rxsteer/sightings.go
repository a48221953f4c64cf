package main

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/rxsteer/rxsteer/internal/host/knob"
	"github.com/rxsteer/rxsteer/steer/diagnose"
)

// driftFile is beside the journal: what is set, and so what drifted, is of this boot.
const driftFile = "drift.json"

// sight notes what differs from a baseline now and remembers it in the folder of the journal for the next look. Who may
// not write there sees what others remembered, and leaves nothing. The second result says why nothing is
// remembered, "" it is.
func sight(dir string, was, now *knob.Snapshot, at time.Time) (*diagnose.Sightings, string) {
	s := &diagnose.Sightings{}
	name := filepath.Join(dir, driftFile)
	f, err := os.Open(name)
	if err == nil {
		if old, err := diagnose.ReadSightings(f); err == nil { // a torn or foreign file begins anew
			s = old
		}
		f.Close()
	}
	s.Note(was, now, at)
	if err := writeSightings(name, s); err != nil {
		return s, err.Error()
	}
	return s, ""
}

// writeSightings replaces the file as a whole.
func writeSightings(name string, s *diagnose.Sightings) error {
	dir := filepath.Dir(name)
	if err := os.MkdirAll(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	f, err := os.CreateTemp(dir, driftFile+".*")
	if err != nil {
		return err
	}
	_, err = s.WriteTo(f)
	err = errors.Join(err, f.Close())
	if err == nil {
		err = os.Rename(f.Name(), name)
	}
	if err != nil {
		os.Remove(f.Name())
	}
	return err
}

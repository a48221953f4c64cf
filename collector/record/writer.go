package record

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/rxsteer/rxsteer/collector"
)

// Writer writes a recording frame by frame; each is handed to the file in one write. After an
// error nothing more is written. It is not for concurrent use.
type Writer struct {
	to      io.Writer
	zip     *gzip.Writer
	buf     bytes.Buffer
	err     error
	base    uint64 // the first pointer seen
	samples int
	last    time.Time
}

// NewWriter begins a recording; h.Version is filled in.
func NewWriter(to io.Writer, h Header) (*Writer, error) {
	// The fastest level: a frame costs a host that may have no time to spare 3 ms instead of 10.
	zip, err := gzip.NewWriterLevel(nil, gzip.BestSpeed)
	if err != nil {
		return nil, err
	}
	w := &Writer{to: to, zip: zip}
	h.Version = Version
	w.last = h.Started
	return w, w.write(&frame{Format: Format, Header: &h})
}

// State writes what is set; the samples after it are of a host in that state until the next.
func (w *Writer) State(s *State) error { return w.write(&frame{State: s}) }

// offset keeps stand-ins of pointers positive: addresses of one kernel lie closer than that.
const offset = 1 << 62

// Sample writes one interval.
func (w *Writer) Sample(s *collector.Sample) error {
	f := &frame{Sample: s}
	for i := range s.NAPIs {
		p := s.NAPIs[i].Pointer
		if p == 0 {
			continue
		}
		if w.base == 0 {
			w.base = p
		}
		if f.Instances == nil {
			f.Instances = make([]uint64, len(s.NAPIs))
		}
		f.Instances[i] = p - w.base + offset
	}
	err := w.write(f)
	if err == nil {
		w.samples++
		w.last = s.End
	}
	return err
}

// Close ends the recording; the file is the caller's to close.
func (w *Writer) Close() error {
	if w.err != nil {
		return w.err
	}
	err := w.write(&frame{End: &End{At: w.last, Samples: w.samples}})
	if err == nil {
		w.err = errors.New("write recording: it is closed")
	}
	return err
}

func (w *Writer) write(f *frame) error {
	if w.err != nil {
		return w.err
	}
	text, err := json.Marshal(f)
	if err == nil {
		w.buf.Reset()
		w.zip.Reset(&w.buf)
		_, err = w.zip.Write(append(text, '\n'))
		err = errors.Join(err, w.zip.Close())
	}
	if err == nil {
		_, err = w.to.Write(w.buf.Bytes())
	}
	if err != nil {
		w.err = fmt.Errorf("write recording: %w", err)
	}
	return w.err
}

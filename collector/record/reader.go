package record

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"time"

	"github.com/rxsteer/rxsteer/collector"
	"github.com/rxsteer/rxsteer/internal/host/knob"
)

// ErrNewer says that a later rxsteer wrote the recording.
var ErrNewer = errors.New("written by a newer rxsteer")

// ErrNot says that a file is no recording.
var ErrNot = errors.New("not a recording")

// Cut is where a recording ends too early, and why. What came before is whole.
type Cut struct {
	Samples int           // read before it
	Covered time.Duration // Σ their intervals
	Until   time.Time     // end of the last, zero where there is none
	Why     string
}

func (c *Cut) Error() string {
	if c.Samples == 0 {
		return "the recording is cut off before its first sample: " + c.Why
	}
	return fmt.Sprintf("the recording is cut off after %d samples (%v, until %s): %s", c.Samples, c.Covered.Round(100*time.Millisecond), c.Until.Format(time.RFC3339), c.Why)
}

// maxFrame is the most bytes of a frame: a sample of 256 queues on 1024 CPUs has 8 MiB.
const maxFrame = 128 << 20

// Frame is a State or a Sample; the other is nil.
type Frame struct {
	State  *State
	Sample *collector.Sample
}

// Reader reads a recording frame by frame, as it was written.
type Reader struct {
	Header Header
	lines  lines
	sum    Cut
	done   error
}

// NewReader reads the header. The error is ErrNot or ErrNewer where it is one of these.
func NewReader(from io.Reader) (*Reader, error) {
	r := &Reader{lines: lines{from: bufio.NewReaderSize(from, 1<<16)}}
	line, err := r.lines.next()
	if err != nil && len(line) == 0 {
		return nil, fmt.Errorf("read recording: %w: %w", ErrNot, err)
	}
	var f frame
	if jerr := json.Unmarshal(line, &f); jerr != nil || f.Format != Format || f.Header == nil {
		// A newer one may have a header we cannot read, but not another version.
		var v struct {
			Format string
			Header struct{ Version int }
		}
		if json.Unmarshal(line, &v) == nil && v.Format == Format && v.Header.Version > Version {
			return nil, newer("", v.Header.Version, Version)
		}
		return nil, fmt.Errorf("read recording: %w", ErrNot)
	}
	if f.Header.Version > Version {
		return nil, newer("", f.Header.Version, Version)
	}
	if err != nil {
		return nil, fmt.Errorf("read recording: its header is cut off: %w", err)
	}
	r.Header = *f.Header
	return r, nil
}

func newer(what string, is, known int) error {
	return fmt.Errorf("read recording: %w: %sversion %d, this program knows %d", ErrNewer, what, is, known)
}

// Next returns the next frame; io.EOF at the end of a whole recording, a *Cut at the end of one that
// is not.
func (r *Reader) Next() (Frame, error) {
	for {
		if r.done != nil {
			return Frame{}, r.done
		}
		line, err := r.lines.next()
		if err != nil {
			return Frame{}, r.cut(err)
		}
		d := decode(line)
		f, err := r.take(&d)
		if err != nil || f.State != nil || f.Sample != nil {
			return f, err
		}
	}
}

// decoded is a frame out of its line.
type decoded struct {
	frame
	err error
}

// decode needs nothing but the line: several may be decoded at a time.
func decode(line []byte) (d decoded) {
	if d.err = json.Unmarshal(line, &d.frame); d.err != nil {
		d.err = fmt.Errorf("a damaged frame: %w", d.err)
		return d
	}
	switch {
	case d.Sample != nil:
		d.err = d.sample()
	case d.State != nil:
		switch s := d.State; {
		case s.Snapshot == nil || s.Topology == nil:
			d.err = errors.New("a damaged frame: a state without settings or topology")
		case s.Snapshot.Version > knob.SnapshotVersion:
			d.err = newer("settings of ", s.Snapshot.Version, knob.SnapshotVersion)
		default:
			s.Snapshot.Sort()
		}
	}
	return d
}

// sample checks a sample and gives its NAPIs what tells them apart.
func (f *frame) sample() error {
	s := f.Sample
	switch {
	case s.Version > collector.SampleVersion:
		return newer("a sample of ", s.Version, collector.SampleVersion)
	case s.Interval < 0:
		return errors.New("a damaged frame: a sample of negative time")
	case f.Instances != nil && len(f.Instances) != len(s.NAPIs):
		return fmt.Errorf("a damaged frame: %d instances of %d NAPIs", len(f.Instances), len(s.NAPIs))
	}
	for i, p := range f.Instances {
		s.NAPIs[i].Pointer = p
	}
	return nil
}

// take accounts for a frame, in order.
func (r *Reader) take(d *decoded) (Frame, error) {
	if errors.Is(d.err, ErrNewer) {
		r.done = d.err
		return Frame{}, d.err
	}
	if d.err != nil {
		return Frame{}, r.cut(d.err)
	}
	switch {
	case d.Sample != nil:
		r.sum.Samples++
		r.sum.Covered += d.Sample.Interval
		r.sum.Until = d.Sample.End
	case d.End != nil:
		r.done = io.EOF
		if d.End.Samples != r.sum.Samples {
			return Frame{}, r.cut(fmt.Errorf("%d samples were written", d.End.Samples))
		}
		return Frame{}, io.EOF
	}
	return Frame{d.State, d.Sample}, nil // of another kind: a later program's, which this one can do without
}

// cut ends the reading.
func (r *Reader) cut(why error) error {
	c := r.sum
	switch {
	case errors.Is(why, io.EOF):
		c.Why = "it was not finished (killed, or the machine stopped)"
	case errors.Is(why, io.ErrUnexpectedEOF):
		c.Why = "its last frame is not whole"
	default:
		c.Why = why.Error()
	}
	r.done = &c
	return r.done
}

// lines are the members of the file.
type lines struct {
	from *bufio.Reader
	zip  *gzip.Reader
}

// next is the next member's text: io.EOF where there is none. Of one that is cut off it is what
// there is, with the error.
func (l *lines) next() ([]byte, error) {
	if _, err := l.from.Peek(1); err != nil {
		return nil, err
	}
	var err error
	if l.zip == nil {
		l.zip, err = gzip.NewReader(l.from)
	} else {
		err = l.zip.Reset(l.from)
	}
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	if err != nil {
		l.zip = nil
		return nil, err
	}
	l.zip.Multistream(false)
	var b bytes.Buffer
	n, err := io.Copy(&b, io.LimitReader(l.zip, maxFrame+1))
	if n > maxFrame {
		return nil, fmt.Errorf("a frame of more than %d MiB", maxFrame>>20)
	}
	return b.Bytes(), err
}

// Recording is a whole file.
type Recording struct {
	Header  Header
	States  []*State // in order; none where it was cut off before the first
	Samples []*collector.Sample
	// Cut says that there was more, nil where there was not.
	Cut *Cut
}

// maxSamples is the most samples of a Recording: of a longer one neighbours are merged two by two, so that
// a day's does not fill the memory.
const maxSamples = 7200

// Read reads a whole recording. One that was cut off is no error: see Recording.Cut.
func Read(from io.Reader) (*Recording, error) {
	r, err := NewReader(from)
	if err != nil {
		return nil, err
	}
	out := &Recording{Header: r.Header}
	err = out.fill(r)
	var cut *Cut
	switch {
	case errors.Is(err, io.EOF):
		return out, nil
	case errors.As(err, &cut):
		out.Cut = cut
		return out, nil
	}
	return nil, err
}

// fill reads the frames. Lines are taken out of the file one after the other and decoded on all CPUs:
// decoding is nine tenths of the work.
func (out *Recording) fill(r *Reader) error {
	type job struct {
		line []byte
		err  error
		done chan decoded
	}
	jobs := make(chan *job, runtime.GOMAXPROCS(0))
	order := make(chan *job, 2*runtime.GOMAXPROCS(0))
	stop := make(chan struct{})
	defer close(stop)
	go func() {
		defer close(jobs)
		defer close(order)
		for {
			j := &job{done: make(chan decoded, 1)}
			j.line, j.err = r.lines.next()
			select {
			case order <- j:
			case <-stop:
				return
			}
			if j.err != nil {
				return
			}
			jobs <- j // the decoders below run until it is closed
		}
	}()
	for range runtime.GOMAXPROCS(0) {
		go func() {
			for j := range jobs {
				j.done <- decode(j.line)
			}
		}()
	}
	for j := range order {
		if j.err != nil {
			return r.cut(j.err)
		}
		d := <-j.done
		f, err := r.take(&d)
		if err != nil {
			return err
		}
		if f.State != nil {
			out.States = append(out.States, f.State)
		}
		if f.Sample != nil {
			out.add(f.Sample)
		}
	}
	return r.cut(io.EOF)
}

func (out *Recording) add(s *collector.Sample) {
	out.Samples = append(out.Samples, s)
	if len(out.Samples) < 2*maxSamples {
		return
	}
	half := out.Samples[:0]
	for i := 0; i < len(out.Samples); i += 2 {
		half = append(half, collector.Merge(out.Samples[i:i+2]...))
	}
	clear(out.Samples[len(half):])
	out.Samples = half
}

// Open reads the recording in a file. The error is ErrNot or ErrNewer where it is one of these.
func Open(name string) (*Recording, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, fmt.Errorf("read recording: %w", err)
	}
	defer f.Close()
	if st, err := f.Stat(); err == nil && st.IsDir() {
		return nil, fmt.Errorf("read recording: %w: a folder", ErrNot)
	}
	return Read(f)
}

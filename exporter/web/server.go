package web

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"
	"unicode"

	"github.com/rxsteer/rxsteer/collector"
)

// Config of a Server.
type Config struct {
	Version string
	Ring    *collector.Ring
	// Facts tells what else is known; it is called every Every (0: 2 s) while somebody looks.
	Facts func(context.Context) Facts
	Every time.Duration
	// Flame draws a flame graph (SVG) of the receive path of the next d; nil: not offered.
	Flame func(ctx context.Context, w io.Writer, d time.Duration) error
	// FlameOf draws what a transaction changed (see Facts.Profiled); nil: not offered.
	FlameOf func(w io.Writer, id string) error
	// Past is how many frames a new viewer gets at once; 0 is 300.
	Past int
	// Viewers is how many may look at the same time; 0 is 32.
	Viewers int
}

// Server sends the page and its events. Handler may be served before Run, which feeds it.
type Server struct {
	cfg   Config
	files map[string]*file

	mu      sync.Mutex
	past    [][]byte // encoded frames, oldest first
	state   []byte   // encoded, nil before the first
	viewers map[*viewer]struct{}
	woken   chan struct{} // somebody came: facts are due
	flaming sync.Mutex
}

type viewer struct {
	events chan []byte // closed when it was too slow, or the server ends
}

// New makes a Server.
func New(cfg Config) (*Server, error) {
	if cfg.Every <= 0 {
		cfg.Every = 2 * time.Second
	}
	if cfg.Past <= 0 {
		cfg.Past = 300
	}
	if cfg.Viewers <= 0 {
		cfg.Viewers = 32
	}
	f, err := files(cfg.Version)
	if err != nil {
		return nil, fmt.Errorf("prepare the web page: %w", err)
	}
	return &Server{cfg: cfg, files: f, viewers: map[*viewer]struct{}{}, woken: make(chan struct{}, 1)}, nil
}

// Run encodes every new sample once, and facts while somebody looks, until ctx ends.
func (s *Server) Run(ctx context.Context) error {
	samples, cancel := s.cfg.Ring.Subscribe() // first, so that none is missed
	defer cancel()
	return s.run(ctx, s.cfg.Ring.Window(time.Duration(s.cfg.Past)*time.Hour), samples)
}

// run begins with old samples; those that came while they were asked for are among samples too.
func (s *Server) run(ctx context.Context, old []*collector.Sample, samples <-chan *collector.Sample) error {
	defer s.close()
	for _, sample := range old {
		if err := s.frame(sample); err != nil {
			return err
		}
	}
	ticker := time.NewTicker(s.cfg.Every)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case sample := <-samples:
			if slices.Contains(old, sample) {
				continue
			}
			old = nil
			if err := s.frame(sample); err != nil {
				return err
			}
		case <-s.woken:
			if err := s.facts(ctx); err != nil {
				return err
			}
		case <-ticker.C:
			s.mu.Lock()
			watched := len(s.viewers) > 0
			s.mu.Unlock()
			if !watched {
				continue
			}
			if err := s.facts(ctx); err != nil {
				return err
			}
		}
	}
}

func (s *Server) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for v := range s.viewers {
		close(v.events)
		delete(s.viewers, v)
	}
}

func (s *Server) frame(sample *collector.Sample) error {
	b, err := encode(frameOf(sample))
	if err != nil {
		return fmt.Errorf("encode a frame: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.past) == s.cfg.Past {
		s.past = append(s.past[:0], s.past[1:]...)
	}
	s.past = append(s.past, b)
	s.send(event("frame", b))
	return nil
}

func (s *Server) facts(ctx context.Context) error {
	if s.cfg.Facts == nil {
		return nil
	}
	b, err := encode(stateOf(s.cfg.Facts(ctx)))
	if err != nil {
		return fmt.Errorf("encode the state: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !bytes.Equal(b, s.state) {
		s.state = b
		s.send(event("state", b))
	}
	return nil
}

// send gives an event to every viewer; one that has not read the last ones is let go, and comes back by itself.
func (s *Server) send(e []byte) {
	for v := range s.viewers {
		select {
		case v.events <- e:
		default:
			close(v.events)
			delete(s.viewers, v)
		}
	}
}

// encode is JSON in which names of others cannot turn the direction of text or hide: what has no width is seen.
func encode(v any) ([]byte, error) {
	b, err := json.Marshal(v)
	return bytes.Map(visible, b), err
}

func visible(r rune) rune {
	if unicode.Is(unicode.Cf, r) {
		return unicode.ReplacementChar
	}
	return r
}

func event(name string, data []byte) []byte {
	return fmt.Appendf(nil, "event: %s\ndata: %s\n\n", name, data)
}

// Handler serves the page at /, its files, /events and /flame.svg.
func (s *Server) Handler() http.Handler {
	mux := http.NewServeMux()
	for p, f := range s.files {
		if p == "/" {
			p = "/{$}"
		}
		mux.Handle("GET "+p, f)
	}
	mux.HandleFunc("GET /events", s.events)
	mux.HandleFunc("GET /flame.svg", s.flame)
	return guard(mux)
}

var errViewers = errors.New("too many viewers")

func (s *Server) join() (*viewer, [][]byte, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.viewers) >= s.cfg.Viewers {
		return nil, nil, errViewers
	}
	hello, err := json.Marshal(map[string]any{"version": s.cfg.Version, "flame": s.cfg.Flame != nil})
	if err != nil {
		return nil, nil, err
	}
	first := [][]byte{event("hello", hello)}
	if s.state != nil {
		first = append(first, event("state", s.state))
	}
	past := append([]byte{'['}, bytes.Join(s.past, []byte{','})...)
	first = append(first, event("past", append(past, ']')))
	v := &viewer{events: make(chan []byte, 16)}
	s.viewers[v] = struct{}{}
	select {
	case s.woken <- struct{}{}:
	default:
	}
	return v, first, nil
}

func (s *Server) leave(v *viewer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := s.viewers[v]; ok {
		delete(s.viewers, v)
		close(v.events)
	}
}

// A viewer that takes longer than this for an event is gone; a silent stream says so much this often.
const (
	slowest   = 10 * time.Second
	heartbeat = 15 * time.Second
)

func (s *Server) events(w http.ResponseWriter, r *http.Request) {
	v, first, err := s.join()
	if err != nil {
		w.Header().Set("Retry-After", "30")
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	defer s.leave(v)
	out := http.NewResponseController(w)
	if err := out.SetReadDeadline(time.Time{}); err != nil { // the server's own would end the stream
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("X-Accel-Buffering", "no")
	write := func(b []byte) bool {
		if out.SetWriteDeadline(time.Now().Add(slowest)) != nil {
			return false
		}
		_, err := w.Write(b)
		return err == nil && out.Flush() == nil
	}
	for _, b := range first {
		if !write(b) {
			return
		}
	}
	beat := time.NewTicker(heartbeat)
	defer beat.Stop()
	for {
		select {
		case <-r.Context().Done():
			return
		case b, ok := <-v.events:
			if !ok || !write(b) {
				return
			}
		case <-beat.C:
			if !write([]byte(": still here\n\n")) {
				return
			}
		}
	}
}

// Bounds of a profile on demand.
const (
	shortestFlame = time.Second
	longestFlame  = 20 * time.Second
)

func (s *Server) flame(w http.ResponseWriter, r *http.Request) {
	if id := r.URL.Query().Get("transaction"); id != "" && s.cfg.FlameOf != nil {
		var b bytes.Buffer
		if err := s.cfg.FlameOf(&b, id); err != nil {
			http.Error(w, "draw the flame graph: "+err.Error(), http.StatusNotFound)
			return
		}
		sendDrawing(w, b.Bytes())
		return
	}
	if s.cfg.Flame == nil {
		http.Error(w, "profiles are not offered here", http.StatusNotFound)
		return
	}
	d := 5 * time.Second
	if text := r.URL.Query().Get("seconds"); text != "" {
		n, err := strconv.Atoi(text)
		if d = time.Duration(n) * time.Second; err != nil || d < shortestFlame || d > longestFlame {
			http.Error(w, fmt.Sprintf("seconds: want %.0f … %.0f", shortestFlame.Seconds(), longestFlame.Seconds()), http.StatusBadRequest)
			return
		}
	}
	if !s.flaming.TryLock() {
		w.Header().Set("Retry-After", "5")
		http.Error(w, "another profile is being taken", http.StatusServiceUnavailable)
		return
	}
	defer s.flaming.Unlock()
	if err := http.NewResponseController(w).SetWriteDeadline(time.Now().Add(d + 20*time.Second)); err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	var b bytes.Buffer
	if err := s.cfg.Flame(r.Context(), &b, d); err != nil {
		http.Error(w, "profile the receive path: "+err.Error(), http.StatusServiceUnavailable)
		return
	}
	sendDrawing(w, b.Bytes())
}

func sendDrawing(w http.ResponseWriter, svg []byte) {
	w.Header().Set("Content-Type", "image/svg+xml")
	w.Header().Set("Cache-Control", "no-store")
	// The drawing's own zoom and search (which asks in a dialogue) are inline; it still loads nothing.
	w.Header().Set("Content-Security-Policy", "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; sandbox allow-scripts allow-modals")
	_, _ = w.Write(svg) // the viewer went away
}

package web

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rxsteer/rxsteer/collector"
)

func small() *host { return &host{cpus: 4, queues: 4, rnd: rand.New(rand.NewPCG(3, 4)), hot: 1} }

func get(t *testing.T, url string, header ...string) (*http.Response, []byte) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	r, err := (&http.Transport{DisableCompression: true}).RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	b, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	return r, b
}

func TestPageIsSmallAndLoadsNothingFromElsewhere(t *testing.T) {
	a := start(t, "127.0.0.1:0", `v1"<b>`, collector.NewRing(10), small().facts)
	r, page := get(t, "http://"+a.addr+"/")
	if p := r.Header.Get("Content-Security-Policy"); !strings.HasPrefix(p, "default-src 'none'") || strings.Contains(p, "unsafe") {
		t.Errorf("policy %q", p)
	}
	if strings.Contains(string(page), `v1"<b>`) {
		t.Error("the version became markup")
	}
	all := 0
	for _, path := range append(append([]string{""}, scripts...), styles...) {
		r, zipped := get(t, "http://"+a.addr+"/"+path, "Accept-Encoding", "gzip")
		if r.StatusCode != 200 || r.Header.Get("Content-Encoding") != "gzip" {
			t.Fatalf("%s: %s, encoding %q", path, r.Status, r.Header.Get("Content-Encoding"))
		}
		all += len(zipped)
		z, err := gzip.NewReader(bytes.NewReader(zipped))
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(z)
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(text)) {
			if strings.HasPrefix(strings.TrimSpace(line), "//") || strings.HasPrefix(strings.TrimSpace(line), "/*") {
				continue // a library's notice
			}
			for _, word := range []string{`src="http`, `href="http`, "fetch(\"http", "@import", "url(http", "eval(", "innerHTML"} {
				if strings.Contains(line, word) {
					t.Errorf("%s holds %s", path, word)
				}
			}
		}
		if r, _ := get(t, "http://"+a.addr+"/"+path, "If-None-Match", r.Header.Get("ETag")); r.StatusCode != http.StatusNotModified {
			t.Errorf("%s again: %s", path, r.Status)
		}
	}
	t.Logf("%d KiB compressed", all/1024)
	if all > 300<<10 {
		t.Errorf("%d KiB compressed, the budget is 300", all>>10)
	}
}

// stream reads server-sent events.
func stream(t *testing.T, addr string) (next func() (name, data string), end func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+addr+"/events", nil)
	if err != nil {
		t.Fatal(err)
	}
	r, err := http.DefaultTransport.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	if r.StatusCode != 200 {
		t.Fatalf("events: %s", r.Status)
	}
	in := bufio.NewScanner(r.Body)
	in.Buffer(nil, 64<<20)
	return func() (name, data string) {
		for in.Scan() {
			switch line := in.Text(); {
			case line == "" && data != "":
				return name, data
			case strings.HasPrefix(line, "event: "):
				name = line[len("event: "):]
			case strings.HasPrefix(line, "data: "):
				data = line[len("data: "):]
			}
		}
		return "", ""
	}, func() { cancel(); r.Body.Close() }
}

func TestEventsOutliveTheServersDeadlines(t *testing.T) {
	h := small()
	ring := collector.NewRing(10)
	ring.Add(h.sample(time.Now(), time.Second))
	a := start(t, "127.0.0.1:0", "v1", ring, h.facts) // its read and write deadlines are 2 s
	next, end := stream(t, a.addr)
	defer end()
	name, data := next()
	for name == "hello" || name == "state" {
		name, data = next()
	}
	// What came before the viewer did is in the past, or, where the server had not looked yet, in the first event.
	var past []frame
	if err := json.Unmarshal([]byte(data), &past); name != "past" || err != nil {
		t.Fatalf("want the past, got %s %s: %v", name, data, err)
	}
	if len(past) == 0 {
		past = append(past, nextFrame(t, next))
	}
	if len(past) != 1 || len(past[0].RX) != 4 {
		t.Errorf("past %+v", past)
	}
	for i := range 3 {
		time.Sleep(time.Second)
		h.hot = i
		ring.Add(h.sample(time.Now(), time.Second))
		if f := nextFrame(t, next); f.Queues[fmt.Sprintf("eth0 rx-%d", i)].Packets != 180000 {
			t.Fatalf("after %d s: %+v", i+1, f)
		}
	}
}

// TestASampleIsSentOnce: also one that came while those before it were asked for.
func TestASampleIsSentOnce(t *testing.T) {
	h := small()
	s, err := New(Config{Version: "v1", Ring: collector.NewRing(9)})
	if err != nil {
		t.Fatal(err)
	}
	var old []*collector.Sample
	for range 3 {
		old = append(old, h.sample(time.Now(), time.Second))
	}
	samples := make(chan *collector.Sample)
	ctx, cancel := context.WithCancel(t.Context())
	ran := make(chan error, 1)
	go func() { ran <- s.run(ctx, old, samples) }()
	for _, sample := range []*collector.Sample{old[1], old[2], h.sample(time.Now(), time.Second), h.sample(time.Now(), time.Second)} {
		samples <- sample
	}
	cancel()
	if err := <-ran; err != nil {
		t.Fatal(err)
	}
	if len(s.past) != 5 {
		t.Errorf("%d frames of 5 samples, of which 2 came twice", len(s.past))
	}
}

// TestNamesDoNotTurnText: what turns the direction of text, or has no width, is seen as such in a page and a report; nothing in it
// reaches a terminal that shows the Markdown.
func TestNamesDoNotTurnText(t *testing.T) {
	const odd = "\u202egnp.\u2066x\u200b\x1b[31m"
	h := small()
	r := recording(h, odd, 2)
	r.Samples[1].NAPIs[0].Device, r.Samples[1].Flows[0].Process, r.Facts.Host, r.Facts.Report.Findings[0].Subject = odd, odd, odd, odd
	var page, md bytes.Buffer
	if err := Report(&page, "v1", r, nil); err != nil {
		t.Fatal(err)
	}
	if err := Markdown(&md, r, nil); err != nil {
		t.Fatal(err)
	}
	b, err := encode(frameOf(r.Samples[1]))
	if err != nil {
		t.Fatal(err)
	}
	for what, text := range map[string]string{"page": page.String(), "markdown": md.String(), "frame": string(b)} {
		if i := strings.IndexAny(text, "\u202e\u2066\u200b\x1b"); i >= 0 {
			t.Errorf("%s holds %q", what, text[i:min(i+20, len(text))])
		}
		if !strings.Contains(text, "\ufffdgnp") {
			t.Errorf("%s lost the name", what)
		}
	}
}

// TestLostOnceIsCountedOnce: the page's places add up to what was lost, though the kernel counts a full backlog on the CPU and on
// the device.
func TestLostOnceIsCountedOnce(t *testing.T) {
	s := small().sample(time.Now(), time.Second)
	s.CPUs[1].Dropped, s.Devices[0].RXDropped, s.Devices[0].RXMissed = 16600, 16600, 0
	var lost float64
	for _, x := range frameOf(s).Drops {
		lost += x
	}
	if lost != 16600 {
		t.Errorf("%v lost/s of 16600: %v", lost, frameOf(s).Drops)
	}
}

// nextFrame passes over the states that come before.
func nextFrame(t *testing.T, next func() (name, data string)) (f frame) {
	t.Helper()
	name, data := next()
	for name == "state" {
		name, data = next()
	}
	if err := json.Unmarshal([]byte(data), &f); name != "frame" || err != nil {
		t.Fatalf("want a frame, got %s %s: %v", name, data, err)
	}
	return f
}

func TestViewersAreBoundedAndSlowOnesLetGo(t *testing.T) {
	h := small()
	ring := collector.NewRing(2)
	s, err := New(Config{Version: "v1", Ring: ring, Viewers: 2})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ran := make(chan error, 1)
	go func() { ran <- s.Run(ctx) }()
	slow, _, err := s.join()
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := s.join(); err != nil {
		t.Fatal(err)
	}
	w := httptest.NewRecorder()
	s.events(w, httptest.NewRequest(http.MethodGet, "/events", nil))
	if w.Code != http.StatusServiceUnavailable || w.Header().Get("Retry-After") == "" {
		t.Errorf("a third viewer: %d", w.Code)
	}
	for range cap(slow.events) + 2 {
		if err := s.frame(h.sample(time.Now(), time.Second)); err != nil {
			t.Fatal(err)
		}
	}
	n := 0
	for range slow.events { // ends: it was let go
		n++
	}
	if n != cap(slow.events) {
		t.Errorf("%d events kept for a viewer that reads none, want %d", n, cap(slow.events))
	}
	cancel()
	if err := <-ran; err != nil {
		t.Fatal(err)
	}
}

func TestFlameRefusesNonsense(t *testing.T) {
	a := start(t, "127.0.0.1:0", "v1", collector.NewRing(1), small().facts)
	for path, want := range map[string]int{"/flame.svg?seconds=0": 400, "/flame.svg?seconds=x": 400, "/flame.svg?seconds=99999999999999999999": 400, "/flame.svg?seconds=1": 200, "/nothing": 404, "/vendor/": 404} {
		if r, b := get(t, "http://"+a.addr+path); r.StatusCode != want {
			t.Errorf("%s: %s %s", path, r.Status, b)
		}
	}
	r, err := http.Post("http://"+a.addr+"/", "text/plain", strings.NewReader("x"))
	if err != nil {
		t.Fatal(err)
	}
	r.Body.Close()
	if r.StatusCode != http.StatusMethodNotAllowed {
		t.Errorf("POST: %s", r.Status)
	}
}

func recording(h *host, title string, n int) Recording {
	r := Recording{Title: title, Facts: h.facts()}
	began := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	for i := range n {
		r.Samples = append(r.Samples, h.sample(began.Add(time.Duration(i)*time.Second), time.Second))
	}
	return r
}

func TestReports(t *testing.T) {
	h := small()
	after := recording(h, "after", 20)
	h.hot = 3
	before := recording(h, "before", 20)
	var page, md bytes.Buffer
	if err := Report(&page, "v1", after, &before); err != nil {
		t.Fatal(err)
	}
	if err := Markdown(&md, after, &before); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ in, want string }{
		{md.String(), "| packets received per second | 1500000 | 1500000 | × 1.00 |"}, {md.String(), "| poll p99, at most | 2.1 ms | 2.1 ms | × 1.00 |"}, {md.String(), "| latency ring-wait p99, at most | 33 µs |"}, {md.String(), "**RX205 warning: eth0**"}, {md.String(), "ethtool -X eth0 …"}, {md.String(), "| eth0 rx-1 | 1 | 180000 |"},
	} {
		if !strings.Contains(c.in, c.want) {
			t.Errorf("no %q in:\n%s", c.want, c.in)
		}
	}
	for _, in := range []string{page.String(), md.String()} {
		if strings.Contains(in, "<img src=x") {
			t.Error("a hostile name became markup")
		}
	}
	file := filepath.Join(t.TempDir(), "report.html")
	if err := os.WriteFile(file, page.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
	reportInABrowser(t, file)
}

// BenchmarkViewers is what a sample of 64 CPUs × 64 queues costs the agent with ten viewers; at 1 Hz
// 10 ms are 1 % of a core.
func BenchmarkViewers(b *testing.B) {
	h := &host{cpus: 64, queues: 64, rnd: rand.New(rand.NewPCG(1, 2)), hot: 9}
	ring := collector.NewRing(2)
	s, err := New(Config{Version: "v1", Ring: ring})
	if err != nil {
		b.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	srv := &http.Server{Handler: s.Handler()}
	go func() { _ = srv.Serve(l) }()
	defer srv.Close()
	for range 10 {
		r, err := http.Get("http://" + l.Addr().String() + "/events")
		if err != nil {
			b.Fatal(err)
		}
		defer r.Body.Close()
		go func() { _, _ = io.Copy(io.Discard, r.Body) }()
	}
	sample := h.sample(time.Now(), time.Second)
	facts := h.facts()
	s.cfg.Facts = func(context.Context) Facts { return facts }
	for b.Loop() {
		if err := s.frame(sample); err != nil {
			b.Fatal(err)
		}
		if err := s.facts(context.Background()); err != nil {
			b.Fatal(err)
		}
		time.Sleep(time.Millisecond) // or the ten are too slow for it
	}
}

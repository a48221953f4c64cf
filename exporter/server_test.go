package exporter

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
)

func TestHandler(t *testing.T) {
	e := New(ownNetns, DefaultLimits)
	e.Add(sample())
	reg := prometheus.NewPedanticRegistry()
	reg.MustRegister(e)
	var sick error
	bad := map[string]string{}
	web := Web{Gatherer: reg, Healthy: func() error { return sick }, Degraded: func() map[string]string { return bad }}
	h := web.Handler()
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest("GET", "/readyz", nil))
	if w.Code != 503 {
		t.Errorf("ready before the first sample: %d %s", w.Code, w.Body)
	}
	web.Ready()
	for _, tc := range []struct {
		name, method, path string
		sick               error
		code               int
		body               string
	}{
		{"metrics", "GET", "/metrics", nil, 200, "rxsteer_samples_total 1"},
		{"healthy", "GET", "/healthz", nil, 200, "ok"},
		{"sick", "GET", "/healthz", errors.New("no sample for 30s"), 503, "no sample for 30s"},
		{"ready", "GET", "/readyz", nil, 200, "ready\n"},
		{"not ready", "GET", "/readyz", errors.New("no sample for 30s"), 503, "no sample for 30s"},
		{"no profiles of the agent unless asked for", "GET", "/debug/pprof/", nil, 404, ""},
		{"index", "GET", "/", nil, 200, "/metrics"},
		{"unknown path", "GET", "/etc/passwd", nil, 404, ""},
		{"nothing can be posted", "POST", "/metrics", nil, 405, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			sick = tc.sick
			w := httptest.NewRecorder()
			h.ServeHTTP(w, httptest.NewRequest(tc.method, tc.path, nil))
			if w.Code != tc.code || !strings.Contains(w.Body.String(), tc.body) {
				t.Errorf("got %d %.200q, want %d and %q", w.Code, w.Body, tc.code, tc.body)
			}
		})
	}
}

// TestDegradedIsVisible and does not make the agent unready.
func TestDegradedIsVisible(t *testing.T) {
	web := Web{Gatherer: prometheus.NewRegistry(), Pprof: true, Healthy: func() error { return nil },
		Degraded: func() map[string]string {
			return map[string]string{"writing": "read-only file system", "buckets": "no BTF"}
		}}
	web.Ready()
	for path, want := range map[string]string{"/readyz": "ready, degraded:\nbuckets: no BTF\nwriting: read-only file system\n", "/debug/pprof/cmdline": os.Args[0]} {
		w := httptest.NewRecorder()
		web.Handler().ServeHTTP(w, httptest.NewRequest("GET", path, nil))
		if w.Code != 200 || !strings.Contains(w.Body.String(), want) {
			t.Errorf("%s: %d %q", path, w.Code, w.Body)
		}
	}
}

func TestServeStopsWithItsContext(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		done <- (&Web{Pages: []Page{{Pattern: "GET /hello", Path: "/hello", Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "hello") })}}}).Serve(ctx, l)
	}()
	resp, err := http.Get("http://" + l.Addr().String() + "/hello")
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(resp.Body)
	if err != nil || string(body) != "hello" {
		t.Fatalf("got %q, %v", body, err)
	}
	resp.Body.Close()
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	if _, err := net.Dial("tcp", l.Addr().String()); err == nil {
		t.Error("the port still answers")
	}
}

func TestServeReportsABrokenListener(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
	if err := (&Web{}).Serve(t.Context(), l); err == nil || !strings.HasPrefix(err.Error(), "serve 127.0.0.1:") {
		t.Errorf("got %v", err)
	}
}

package exporter

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
)

func TestHandler(t *testing.T) {
	e := New(ownNetns)
	e.Add(sample())
	reg := prometheus.NewPedanticRegistry()
	reg.MustRegister(e)
	var sick error
	h := Handler(reg, func() error { return sick })
	for _, tc := range []struct {
		name, method, path string
		sick               error
		code               int
		body               string
	}{
		{"metrics", "GET", "/metrics", nil, 200, "rxsteer_samples_total 1"},
		{"healthy", "GET", "/healthz", nil, 200, "ok"},
		{"sick", "GET", "/healthz", errors.New("no sample for 30s"), 503, "no sample for 30s"},
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

func TestServeStopsWithItsContext(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		done <- Serve(ctx, l, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "hello") }))
	}()
	resp, err := http.Get("http://" + l.Addr().String())
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
	if err := Serve(t.Context(), l, http.NotFoundHandler()); err == nil || !strings.HasPrefix(err.Error(), "serve 127.0.0.1:") {
		t.Errorf("got %v", err)
	}
}

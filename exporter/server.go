package exporter

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"net/http/pprof"
	"os"
	"slices"
	"sync/atomic"
	"time"

	"github.com/goccy/go-yaml"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/exporter-toolkit/web"
	"golang.org/x/net/netutil"
)

// Web serves the metrics and what else an agent shows over HTTP.
type Web struct {
	// Gatherer is all metrics but the Bulk of Exporter, where there is one.
	Gatherer prometheus.Gatherer
	Exporter *Exporter
	// Healthy is nil while samples arrive, else why not.
	Healthy func() error
	// Degraded is what does not work and why; nil: nothing.
	Degraded func() map[string]string
	Pprof    bool
	// Config is the toolkit's file for TLS and passwords, "" none.
	Config string
	Log    *slog.Logger
	// Front answers all that nothing else does, "/" first; nil: an index of the pages.
	Front http.Handler
	// Pages are more of them, by pattern of http.ServeMux ("GET /profile"), with what the index page says of each.
	Pages []Page

	ready atomic.Bool
}

// Page is one more page.
type Page struct {
	Pattern string // "GET /profile"
	Path    string // "/profile"
	Text    string // for the index page
	Handler http.Handler
}

// Limits on those who ask. A loop that steers must not feel them.
const (
	maxConnections = 64
	maxScrapes     = 4
	scrapeTime     = 10 * time.Second
)

// Ready says that /readyz may answer well from now on.
func (w *Web) Ready() { w.ready.Store(true) }

// Handler answers /metrics, /healthz, /readyz, the pages, and /debug/pprof where it is switched on.
func (w *Web) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", w.metrics())
	mux.HandleFunc("GET /healthz", func(rw http.ResponseWriter, _ *http.Request) {
		if err := w.Healthy(); err != nil {
			http.Error(rw, err.Error(), http.StatusServiceUnavailable)
			return
		}
		fmt.Fprintln(rw, "ok")
	})
	mux.HandleFunc("GET /readyz", w.readyz)
	index := `<!doctype html><title>rxsteer</title><h1>rxsteer</h1><ul><li><a href="/metrics">/metrics</a><li><a href="/healthz">/healthz</a><li><a href="/readyz">/readyz</a>`
	for _, p := range w.Pages {
		mux.Handle(p.Pattern, p.Handler)
		index += fmt.Sprintf(`<li><a href="%s">%s</a> %s`, p.Path, p.Path, p.Text)
	}
	if w.Pprof {
		mux.HandleFunc("GET /debug/pprof/", pprof.Index)
		mux.HandleFunc("GET /debug/pprof/cmdline", pprof.Cmdline)
		mux.HandleFunc("GET /debug/pprof/profile", pprof.Profile)
		mux.HandleFunc("GET /debug/pprof/symbol", pprof.Symbol)
		mux.HandleFunc("GET /debug/pprof/trace", pprof.Trace)
	}
	if w.Front != nil {
		mux.Handle("/", w.Front)
		return mux
	}
	mux.HandleFunc("GET /{$}", func(rw http.ResponseWriter, _ *http.Request) {
		rw.Header().Set("Content-Type", "text/html; charset=utf-8")
		fmt.Fprint(rw, index+"</ul>")
	})
	return mux
}

// metrics answers a scrape: in text, or by the library in protocol buffers, which native histograms need.
func (w *Web) metrics() http.Handler {
	all := w.Gatherer
	if w.Exporter != nil {
		reg := prometheus.NewRegistry()
		reg.MustRegister(w.Exporter.Bulk())
		all = prometheus.Gatherers{w.Gatherer, reg}
	}
	library := promhttp.HandlerFor(all, promhttp.HandlerOpts{MaxRequestsInFlight: maxScrapes, Timeout: scrapeTime, EnableOpenMetrics: true})
	if w.Exporter == nil {
		return library
	}
	running := make(chan struct{}, maxScrapes)
	return http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if expfmt.NegotiateAccept(r.Header, expfmt.DefaultAcceptedFormats()...).FormatType() == expfmt.TypeProtoDelim {
			library.ServeHTTP(rw, r)
			return
		}
		select {
		case running <- struct{}{}:
		default:
			http.Error(rw, "more scrapes at once than are answered", http.StatusServiceUnavailable)
			return
		}
		text, err := w.Exporter.text(w.Gatherer)
		<-running // whoever takes long to read it is in nobody's way
		if err != nil {
			http.Error(rw, err.Error(), http.StatusInternalServerError)
			return
		}
		sendText(rw, r, text)
	})
}

// readyz answers 503 before the first sample and when none arrive, else 200 with a line for each thing that does not work.
func (w *Web) readyz(rw http.ResponseWriter, _ *http.Request) {
	if !w.ready.Load() {
		http.Error(rw, "not ready: starting", http.StatusServiceUnavailable)
		return
	}
	if err := w.Healthy(); err != nil {
		http.Error(rw, "not ready: "+err.Error(), http.StatusServiceUnavailable)
		return
	}
	var bad map[string]string
	if w.Degraded != nil {
		bad = w.Degraded()
	}
	if len(bad) == 0 {
		fmt.Fprintln(rw, "ready")
		return
	}
	fmt.Fprintln(rw, "ready, degraded:")
	for _, what := range slices.Sorted(maps.Keys(bad)) {
		fmt.Fprintf(rw, "%s: %s\n", what, bad[what])
	}
}

// CheckWebConfig reads the toolkit's file as the server will: a certificate or password that cannot be read is an error. ""
// is fine.
func CheckWebConfig(file string) error {
	if file == "" {
		return nil
	}
	return web.Validate(file)
}

// URL is where a listener is reached.
func (w *Web) URL(l net.Listener) string {
	scheme := "http"
	var c struct {
		TLS map[string]any `yaml:"tls_server_config"`
	}
	if text, err := os.ReadFile(cmp.Or(w.Config, os.DevNull)); err == nil && yaml.Unmarshal(text, &c) == nil && len(c.TLS) > 0 {
		scheme = "https"
	}
	return scheme + "://" + l.Addr().String()
}

// Serve answers on the listeners until ctx ends, then lets running requests finish for at most two seconds. It closes
// them. However slow or many the clients are, they take no more than a bounded number of connections.
func (w *Web) Serve(ctx context.Context, listeners ...net.Listener) error {
	srv := &http.Server{
		Handler:           w.Handler(),
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       10 * time.Second,
		WriteTimeout:      time.Minute,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    16 << 10,
		ErrorLog:          slog.NewLogLogger(quiet{}, slog.LevelInfo),
	}
	limited := make([]net.Listener, len(listeners))
	for i, l := range listeners {
		limited[i] = netutil.LimitListener(l, maxConnections)
	}
	no, config := false, w.Config
	failed := make(chan error, 1)
	go func() {
		failed <- web.ServeMultiple(limited, srv, &web.FlagConfig{WebSystemdSocket: &no, WebConfigFile: &config}, slog.New(quiet{}))
	}()
	select {
	case err := <-failed:
		return fmt.Errorf("serve %s: %w", listeners[0].Addr(), err)
	case <-ctx.Done():
	}
	grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
	defer cancel()
	if err := srv.Shutdown(grace); err != nil {
		if err := errors.Join(err, srv.Close()); !errors.Is(err, context.DeadlineExceeded) {
			return fmt.Errorf("stop serving %s: %w", listeners[0].Addr(), err)
		}
	}
	return nil
}

// quiet drops what the server says about its clients: a hostile one would fill the log.
type quiet struct{}

func (quiet) Enabled(context.Context, slog.Level) bool  { return false }
func (quiet) Handle(context.Context, slog.Record) error { return nil }
func (q quiet) WithAttrs([]slog.Attr) slog.Handler      { return q }
func (q quiet) WithGroup(string) slog.Handler           { return q }

package main

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/rxsteer/rxsteer/collector"
)

// profileFor is how long one profile of the agent's covers. Names of functions take 0.2 s to read: more often would cost more
// than the samples.
const profileFor = time.Minute

// profiles is the receive path's profile, taken all the time, and serves the last one as Parca and Pyroscope scrape it.
type profiles struct {
	mu   sync.Mutex
	last []byte // gzipped pprof
	at   time.Time
	why  string // there is none
}

// run profiles until ctx ends. A host that refuses it is degraded, not in error.
func (p *profiles) run(ctx context.Context, e *env, state *agentState) error {
	h, err := e.openHost() // of its own: it asks for queues while others read the map
	if err != nil {
		return err
	}
	defer h.close()
	if _, err := h.inventory(ctx); err != nil {
		return err
	}
	h.refresh = 30 * time.Second
	for d := 5 * time.Second; ; d = profileFor { // the first one is soon there
		prof, err := collector.Profile(ctx, collector.ProfileConfig{FS: h.fs, RXQueue: h.rxQueue}, d)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			p.mu.Lock()
			p.why = err.Error()
			p.mu.Unlock()
			state.degrade("/profile", err.Error())
			return nil
		}
		var b bytes.Buffer
		if err := prof.Write(&b); err != nil {
			return fmt.Errorf("encode profile: %w", err)
		}
		p.mu.Lock()
		p.last, p.at = b.Bytes(), time.Now()
		p.mu.Unlock()
	}
}

// ServeHTTP implements http.Handler.
func (p *profiles) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	p.mu.Lock()
	last, at, why := p.last, p.at, p.why
	p.mu.Unlock()
	if last == nil {
		if why == "" {
			why = "the first one is being taken"
		}
		http.Error(w, "no profile: "+why, http.StatusServiceUnavailable)
		return
	}
	w.Header().Set("Content-Type", "application/octet-stream")
	w.Header().Set("Content-Disposition", `attachment; filename="rxsteer.pb.gz"`)
	w.Header().Set("Last-Modified", at.UTC().Format(http.TimeFormat))
	w.Write(last)
}

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/rxsteer/rxsteer/collector"
	"github.com/rxsteer/rxsteer/steer/apply"
)

// profileFor is how long one profile of the agent covers. The kernel takes 0.2 s to list its functions: more often would cost more
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
// Of each transaction in the journal it keeps the last profile before and the first after.
func (p *profiles) run(ctx context.Context, e *env, state *agentState, stateDir string) error {
	h, err := e.openHost() // of its own: it asks for queues while others read the map
	if err != nil {
		return err
	}
	defer h.close()
	if _, err := h.inventory(ctx); err != nil {
		return err
	}
	h.refresh = 30 * time.Second
	var last minute
	for d := 5 * time.Second; ; d = profileFor { // the first one is soon there
		began := time.Now()
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
		now := minute{began: began, ended: time.Now(), text: b.Bytes()}
		if err := last.keep(now, stateDir); err != nil {
			state.degrade("profiles of transactions", err.Error())
		}
		last = now
		p.mu.Lock()
		p.last, p.at = now.text, now.ended
		p.mu.Unlock()
	}
}

// minute is one profile.
type minute struct {
	began, ended time.Time
	text         []byte // gzipped pprof
}

// keep writes down the profiles of the transactions that one of two successive profiles is beside: m, where it was the last one
// that had ended when a transaction began, and next, where it is the first that began when a transaction had ended.
func (m minute) keep(next minute, stateDir string) error {
	if m.text == nil {
		return nil
	}
	txs, _, err := apply.History(stateDir)
	if err != nil {
		return nil // whoever writes it says so
	}
	var errs []error
	for _, t := range txs {
		if hasAround(stateDir, t.ID) { // by apply --profile, which is nearer
			continue
		}
		if !t.Begun.Before(m.ended) && t.Begun.Before(next.ended) {
			errs = append(errs, saveAround(stateDir, t.ID, sideBefore, m.text))
		}
		if !t.Ended.IsZero() && t.Ended.After(m.began) && !t.Ended.After(next.began) {
			errs = append(errs, saveAround(stateDir, t.ID, sideAfter, next.text))
		}
	}
	return errors.Join(errs...)
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

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/google/pprof/profile"

	"github.com/rxsteer/rxsteer/collector"
	"github.com/rxsteer/rxsteer/steer/apply"
)

// Profiles of before and after a transaction lie in the state folder beside its journal, and die with it at the end of
// the boot.
const (
	aroundDir  = "profiles"
	aroundKept = 40 // files
)

type side string

const (
	sideBefore side = "before"
	sideAfter  side = "after"
)

func aroundFile(stateDir, id string, s side) string {
	return filepath.Join(stateDir, aroundDir, id+"-"+string(s)+".pb.gz")
}

// saveAround writes a profile (gzipped pprof) of one side of a transaction, and removes the oldest ones.
func saveAround(stateDir, id string, s side, text []byte) error {
	dir := filepath.Join(stateDir, aroundDir)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("write profile of transaction %s: %w", id, err)
	}
	if err := os.WriteFile(aroundFile(stateDir, id, s), text, 0o600); err != nil {
		return fmt.Errorf("write profile of transaction %s: %w", id, err)
	}
	all, err := os.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("list profiles of transactions: %w", err)
	}
	age := func(d os.DirEntry) time.Time {
		st, err := d.Info()
		if err != nil {
			return time.Time{} // gone meanwhile
		}
		return st.ModTime()
	}
	slices.SortStableFunc(all, func(a, b os.DirEntry) int { return age(b).Compare(age(a)) })
	for _, d := range all[min(len(all), aroundKept):] {
		if err := os.Remove(filepath.Join(dir, d.Name())); err != nil && !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("remove an old profile: %w", err)
		}
	}
	return nil
}

// hasAround says whether both sides of a transaction were profiled.
func hasAround(stateDir, id string) bool {
	for _, s := range []side{sideBefore, sideAfter} {
		if _, err := os.Stat(aroundFile(stateDir, id, s)); err != nil {
			return false
		}
	}
	return true
}

// readAround reads what was profiled before and after a transaction of this boot.
func (e *env) readAround(stateDir, id string) (before, after *profile.Profile, err error) {
	txs, boot, err := apply.History(stateDir)
	if err != nil {
		return nil, nil, applyFailure(err)
	}
	if current := e.bootID(); boot != "" && current != "" && boot != current {
		txs = nil
	}
	i := slices.IndexFunc(txs, func(t apply.Transaction) bool { return t.ID == id })
	if i < 0 {
		return nil, nil, &failure{exitFailed, fmt.Errorf("transaction %q: %w", id, apply.ErrNoSuch), []string{"rxsteer history lists those of this boot"}}
	}
	if !hasAround(stateDir, id) {
		return nil, nil, &failure{exitFailed, fmt.Errorf("transaction %s was not profiled before and after", id), []string{"rxsteer apply --profile does it, and so does the agent, by the minute, with profile: true"}}
	}
	if before, err = readProfile(aroundFile(stateDir, id, sideBefore)); err != nil {
		return nil, nil, err
	}
	if after, err = readProfile(aroundFile(stateDir, id, sideAfter)); err != nil {
		return nil, nil, err
	}
	if begun := txs[i].Begun; before.TimeNanos > begun.UnixNano() || after.TimeNanos < begun.UnixNano() {
		return nil, nil, fmt.Errorf("profiles of transaction %s are of another time than it (%s)", id, begun.UTC().Format(time.DateTime))
	}
	return before, after, nil
}

// around profiles while a transaction measures: before its first write, and after its last.
type around struct {
	e      *env
	h      *hostRooms // of its own: it asks for queues while others read the map
	asking sync.Mutex // of h: one profile is written up while the next is taken
	ctx    context.Context
	cancel context.CancelFunc // of the profile under way
	taken  map[side]chan taken
}

type taken struct {
	p   *profile.Profile
	err error
}

func (e *env) newAround(ctx context.Context) (*around, error) {
	h, err := e.openHost()
	if err != nil {
		return nil, err
	}
	if _, err := h.inventory(ctx); err != nil {
		h.close()
		return nil, err
	}
	h.refresh = time.Second // a step may make other queues
	return &around{e: e, h: h, ctx: context.WithoutCancel(ctx), cancel: func() {}, taken: map[side]chan taken{}}, nil
}

// phase is told what the transaction begins to do (apply.Config.Progress). Names of functions are read while it goes on.
func (a *around) phase(text string) {
	a.cancel()
	a.cancel = func() {}
	s, ok := map[string]side{"measure before": sideBefore, "measure after": sideAfter}[text]
	if !ok {
		return
	}
	if last := a.taken[s]; last != nil {
		<-last // of the step before
	}
	ctx, cancel := context.WithCancel(a.ctx)
	done := make(chan taken, 1)
	a.cancel, a.taken[s] = cancel, done
	go func() {
		defer cancel()
		p, err := collector.Profile(ctx, collector.ProfileConfig{FS: a.e.fs, RXQueue: a.rxQueue}, 24*time.Hour)
		if errors.Is(err, context.Canceled) && p != nil {
			err = nil
		}
		done <- taken{p, err}
	}()
}

func (a *around) rxQueue(netns uint64, ifindex int, napiID uint32) int {
	a.asking.Lock()
	defer a.asking.Unlock()
	return a.h.rxQueue(netns, ifindex, napiID)
}

// save ends what is under way and keeps both sides for the transaction; "": there was none.
func (a *around) save(stateDir, id string) error {
	a.cancel()
	var errs []error
	for _, s := range []side{sideBefore, sideAfter} {
		if a.taken[s] == nil {
			continue
		}
		t := <-a.taken[s]
		delete(a.taken, s)
		var b bytes.Buffer
		switch {
		case id == "":
		case t.err != nil:
			errs = append(errs, fmt.Errorf("profile %s transaction %s: %w", s, id, t.err))
		default:
			if err := t.p.Write(&b); err != nil {
				errs = append(errs, fmt.Errorf("encode profile: %w", err))
				continue
			}
			errs = append(errs, saveAround(stateDir, id, s, b.Bytes()))
		}
	}
	return errors.Join(errs...)
}

func (a *around) close() {
	a.cancel()
	a.h.close()
}

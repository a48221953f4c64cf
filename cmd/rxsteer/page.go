package main

import (
	"context"
	"errors"
	"io"
	"os"
	"time"

	"github.com/rxsteer/rxsteer/bpf"
	"github.com/rxsteer/rxsteer/collector"
	"github.com/rxsteer/rxsteer/exporter/flame"
	"github.com/rxsteer/rxsteer/exporter/web"
	"github.com/rxsteer/rxsteer/steer/apply"
	"github.com/rxsteer/rxsteer/steer/control"
	"github.com/rxsteer/rxsteer/steer/diagnose"
	"github.com/rxsteer/rxsteer/steer/plan"
)

// page is what the agent's web page knows besides samples. It looks for itself, and only while
// somebody watches, so that the loop neither waits for it nor pays for it.
type page struct {
	e        *env
	h        *hostRooms
	ring     *collector.Ring
	loop     *control.Loop
	state    *agentState
	stateDir string
	names    []string
}

// pageEvery is how often settings and findings are read anew for those who watch: a snapshot of a host with 64 queues takes
// some 20 ms, so they cost half a percent of a CPU.
const pageEvery = 5 * time.Second

func (e *env) newPage(ring *collector.Ring, loop *control.Loop, state *agentState, f *agentFlags) (*web.Server, func(), error) {
	h, err := e.openHost()
	if err != nil {
		return nil, nil, err
	}
	p := &page{e: e, h: h, ring: ring, loop: loop, state: state, stateDir: f.stateDir, names: f.names}
	s, err := web.New(web.Config{Version: versionText(), Ring: ring, Facts: p.facts, Every: pageEvery, Flame: p.flame, FlameOf: p.flameOf})
	if err != nil {
		h.close()
		return nil, nil, err
	}
	return s, h.close, nil
}

// facts leaves out what cannot be read; /readyz and the log say so where it matters.
func (p *page) facts(ctx context.Context) web.Facts {
	var f web.Facts
	if name, err := os.Hostname(); err == nil {
		f.Host = name
	}
	if boot := p.e.bootID(); boot != "" {
		if txs, of, err := apply.History(p.stateDir); err == nil && (of == "" || of == boot) {
			f.History = txs
			f.Profiled = func(id string) bool { return hasAround(p.stateDir, id) }
		}
	}
	f.Loop = loopLines(p.loop.Status(), p.state.degraded())
	var err error
	if f.NICs, err = p.h.inventory(ctx); err != nil {
		return f
	}
	if f.Topology, err = p.h.topology(); err != nil {
		f.Topology = nil
	}
	windows := p.ring.Window(10 * time.Second)
	sample := collector.Merge(windows...)
	linkNAPIs(f.NICs, sample)
	if f.Snapshot, err = p.h.machine.Snapshot(ctx); err != nil {
		f.Snapshot = nil
		return f
	}
	f.Kernel = f.Snapshot.Host.Kernel
	if owners, err := p.h.owners(ctx, f.NICs); err == nil {
		f.Snapshot.Owners = owners
	}
	if sample == nil {
		return f
	}
	f.Report = diagnose.Diagnose(diagnose.Input{Snapshot: f.Snapshot, NICs: f.NICs, Topology: f.Topology, Sample: sample, Windows: windows, Devices: p.names})
	f.Plan = plan.Make(plan.Input{Report: f.Report, Snapshot: f.Snapshot, Topology: f.Topology, NICs: f.NICs, Sample: sample, Goal: plan.Auto})
	return f
}

// loopLines says what the closed loop is at.
func loopLines(s *control.Status, bad map[string]string) []string {
	var out []string
	if s != nil {
		out = append(out, "closed loop: "+string(s.Mode))
		for _, d := range s.Devices {
			line := d.Name + " " + string(d.Phase)
			if d.Off != "" {
				line += " (no fast path: " + d.Off + ")"
			}
			out = append(out, line)
		}
	}
	for what, why := range bad {
		out = append(out, what+" degraded: "+why)
	}
	return out
}

func (p *page) flame(ctx context.Context, w io.Writer, d time.Duration) error {
	prof, err := collector.Profile(ctx, collector.ProfileConfig{FS: p.e.fs, RXQueue: p.h.rxQueue}, d)
	if err != nil {
		if errors.Is(err, bpf.ErrNoPrivilege) {
			return errors.Join(err, errors.New("the agent lacks CAP_PERFMON or CAP_BPF"))
		}
		return err
	}
	return flame.NewTree(prof, nil).WriteSVG(w, "receive softirq by queue and CPU, "+d.String())
}

// flameOf draws what a transaction changed.
func (p *page) flameOf(w io.Writer, id string) error {
	before, after, err := p.e.readAround(p.stateDir, id)
	if err != nil {
		return err
	}
	return flame.NewTree(after, before).WriteSVG(w, flameTitle(after, id))
}

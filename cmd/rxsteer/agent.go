package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"reflect"
	"runtime"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/coreos/go-systemd/v22/activation"
	"github.com/coreos/go-systemd/v22/daemon"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"github.com/rxsteer/rxsteer/collector"
	"github.com/rxsteer/rxsteer/exporter"
	"github.com/rxsteer/rxsteer/internal/cpuset"
	"github.com/rxsteer/rxsteer/steer/control"
)

// agentFlags are the command line of agent.
type agentFlags struct {
	config    string
	check     bool
	listen    string
	webConfig string
	interval  time.Duration
	level     attention
	overhead  overhead
	stateDir  string
	record    string
	names     []string
	set       func(flag string) bool // given on the command line
}

const agentName = "agent"

func agentCommand(e *env) *cobra.Command {
	var f agentFlags
	c := &cobra.Command{
		Use:   agentName + " [IFACE…]",
		Short: "Measure all the time, serve the figures, and steer where the configuration says so",
		Long: `Measure all the time and serve the figures at /metrics; docs/metrics.md lists
them. /healthz answers 200 while samples arrive, /readyz also says what does not
work here and why.

Without --config nothing on the host is changed. A configuration
(deploy/rxsteer.minimal.yaml explains each line) may set mode: advise, in which the
loop says in its log what it would change, or mode: auto, in which it changes the
settings the file allows of the interfaces the file names, judges each change by what
is measured after, and takes back what made things worse. SIGHUP reads the file again;
a bad one is refused and the old one stays in force. SIGTERM keeps or restores what
was changed, as the file says; after a SIGKILL the next start, or any other rxsteer
that writes, finishes what was under way.

With IFACE, figures of interfaces are limited to those; the CPUs' are always there.
It listens on the loopback address unless told otherwise: the figures name
interfaces, interrupts, CPUs and busy flows. --web.config.file sets up TLS and
passwords as for other Prometheus exporters. A socket of systemd is used where one is
handed over.`,
		Example: `  rxsteer agent
  rxsteer agent --config /etc/rxsteer/rxsteer.yaml --config.check
  rxsteer agent --config agent.yaml --web.listen-address :9742 --web.config.file web.yaml
  curl -s http://127.0.0.1:9742/metrics | grep rxsteer_napi_seconds_total`,
		GroupID:           groupServe,
		ValidArgsFunction: e.completeInterfaces,
	}
	c.Flags().StringVar(&f.config, "config", "", "read modes and limits from `FILE` (YAML)")
	c.Flags().BoolVar(&f.check, "config.check", false, "check the file of --config and end")
	c.Flags().StringVar(&f.listen, "web.listen-address", "127.0.0.1:9742", "serve on this `ADDRESS`; port 0 picks one")
	c.Flags().StringVar(&f.webConfig, "web.config.file", "", "TLS and basic auth from `FILE`, as Prometheus' exporter toolkit reads it")
	c.Flags().DurationVar(&f.interval, "interval", 10*time.Second, "without --config: take a sample every `TIME`")
	c.Flags().StringVar(&f.record, "loop.record", "", "append what the loop is told to `FILE`, to decide it again elsewhere")
	addLevel(c, &f.level)
	addOverhead(c, &f.overhead)
	addStateDir(c, &f.stateDir)
	c.RunE = func(c *cobra.Command, names []string) error {
		f.names, f.set = names, func(flag string) bool { return c.Flags().Changed(flag) }
		switch {
		case f.interval < shortest || f.interval > time.Hour:
			return usage("--interval %v: want %v … 1h", f.interval, shortest)
		case f.config != "" && f.set("interval"):
			return usage("--interval: it is in the file of --config")
		case f.check && f.config == "":
			return usage("--config.check: which file? --config FILE")
		}
		if f.check {
			return e.checkConfig(&f)
		}
		return e.serve(c.Context(), &f)
	}
	return c
}

// readConfig is the file of --config, or what holds without one.
func (e *env) readConfig(f *agentFlags) (*control.Config, error) {
	if f.config == "" {
		c := control.Default()
		c.Interval, c.Level, c.Overhead = f.interval, f.level.highest(), float64(f.overhead)
		return c, nil
	}
	text, err := os.ReadFile(f.config)
	if err != nil {
		return nil, &failure{exitFailed, fmt.Errorf("read configuration: %w", err), []string{"deploy/rxsteer.minimal.yaml is one to begin with"}}
	}
	h := hostRooms{fs: e.fs}
	var online cpuset.Set // a host that does not tell leaves them unchecked
	if top, err := h.topology(); err == nil {
		online = top.Online
	}
	c, err := control.Parse(f.config, text, online)
	if err != nil {
		return nil, &failure{exitFailed, fmt.Errorf("read configuration: %w", err), []string{"nothing was started or changed; check again with: rxsteer agent --config " + f.config + " --config.check"}}
	}
	if f.set("level") {
		c.Level = f.level.highest()
	}
	if f.set("overhead") {
		c.Overhead = float64(f.overhead)
	}
	return c, nil
}

func (e *env) checkConfig(f *agentFlags) error {
	c, err := e.readConfig(f)
	if err != nil {
		return err
	}
	fmt.Fprintf(e.stdout, "%s: fine, mode %s", f.config, c.Mode)
	for _, d := range c.Devices {
		fmt.Fprintf(e.stdout, ", %s %s", d.Name, d.Mode)
	}
	_, err = fmt.Fprintln(e.stdout)
	return err
}

// beat is how often a steering agent takes a sample: what a change is judged by.
const beat = time.Second

// listeners are systemd's, or a new one.
func listeners(address string) ([]net.Listener, error) {
	handed, err := activation.Listeners()
	if err != nil {
		return nil, fmt.Errorf("take systemd's sockets: %w", err)
	}
	if len(handed) > 0 {
		return handed, nil
	}
	l, err := net.Listen("tcp", address)
	if err != nil {
		return nil, &failure{exitFailed, fmt.Errorf("serve metrics: %w", err), []string{"choose another with --web.listen-address"}}
	}
	return []net.Listener{l}, nil
}

func (e *env) serve(ctx context.Context, f *agentFlags) error {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(50) // garbage up to half of what lives, not as much again: the agent is a guest here
		boundMemory()
	}
	hup := make(chan os.Signal, 1) // from now on: it would end the process
	signal.Notify(hup, syscall.SIGHUP)
	defer signal.Stop(hup)
	log := slog.New(slog.NewTextHandler(e.stderr, nil))
	c, err := e.readConfig(f)
	if err != nil {
		return err
	}
	if err := exporter.CheckWebConfig(f.webConfig); err != nil {
		return &failure{exitFailed, fmt.Errorf("read --web.config.file: %w", err), []string{"its form: the exporter toolkit's web configuration (tls_server_config, basic_auth_users)"}}
	}
	state := newAgentState(log)
	state.confined = confinement(e.fs)
	mine := &turn{dir: f.stateDir}
	defer mine.release()
	switch err := mine.take(c); {
	case errors.Is(err, errTaken):
		return &failure{exitFailed, fmt.Errorf("start the agent: %w", err), []string{"end it (systemctl stop rxsteer-agent), or run this one in mode: advise"}}
	case err != nil:
		state.degrade("steering", err.Error())
	default:
		state.degrade("steering", e.cannotSteer(c, f.stateDir))
	}
	for _, k := range e.persistChecks() {
		if !k.OK {
			state.degrade("what is persisted", k.Why+": "+k.Grant)
		}
	}
	h, err := e.openHost()
	if err != nil {
		return err
	}
	defer h.close()
	nics, err := h.inventory(ctx)
	if err != nil {
		return err
	}
	if err := checkInterfaces(nics, f.names); err != nil {
		return err
	}
	ls, err := listeners(f.listen)
	if err != nil {
		return err
	}
	h.refresh = 30 * time.Second
	interval := f.interval
	if f.config != "" {
		interval = beat
	}
	ring := collector.NewRing(max(1, int(c.Interval/interval)+int(c.Limits.Judge/interval)+2))
	// Packets are looked at when something asks for it, unless that may cost what it will or a person wants no less.
	level := attention(c.Level)
	if level == 2 && c.Overhead > 0 && !(f.set("level") && f.level != auto) {
		level = auto
	}
	h.overhead = overhead(c.Overhead)
	for _, d := range c.Devices {
		h.named = append(h.named, d.Name)
	}
	s := e.newSampler(h, level, interval, ring)
	samples, cancel := ring.Subscribe()
	defer cancel()
	hands, err := e.newHands(f, c, ring, s, state)
	if err != nil {
		return err
	}
	defer hands.close()
	hands.recover(ctx)
	loop := &control.Loop{Hands: hands, Log: log, Config: c, Degraded: state.degrade}
	reload := make(chan *control.Config)
	loop.Reload = reload
	if f.record != "" {
		done, err := recordLoop(f.record, loop, c)
		if err != nil {
			return err
		}
		defer done()
	}
	metrics := exporter.New(h.netns(), exporter.Limits{Series: c.Metrics.Series, Elephants: c.Metrics.Elephants, PerCPU: c.Metrics.PerCPU, Stages: c.Metrics.Stages, Native: c.Metrics.Native}, f.names...)
	reg := prometheus.NewRegistry()
	reg.MustRegister(metrics.Rest(), exporter.NewLoop(state.view(loop)), collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	var last atomic.Int64 // ns since the start, of the last sample: a step of the clock is no silence
	begun := time.Now()
	healthy := func() error {
		if quiet := time.Since(begun) - time.Duration(last.Load()); quiet > max(3*interval, 5*time.Second) {
			return fmt.Errorf("no sample for %v", quiet.Round(time.Second))
		}
		return nil
	}
	hands.buckets = metrics.AddBuckets
	web := exporter.Web{Gatherer: reg, Exporter: metrics, Healthy: healthy, Degraded: state.degraded, Pprof: c.Pprof, Config: f.webConfig, Log: log}

	var profiles profiles
	if c.Profile && c.Level > 0 && f.config != "" {
		web.Pages = append(web.Pages, exporter.Page{Pattern: "GET /profile", Path: "/profile", Text: "where receive time went in the last minute (pprof)", Handler: &profiles})
	}
	page, closePage, err := e.newPage(ring, loop, state, f)
	if err != nil {
		return err
	}
	defer closePage()
	web.Front = page.Handler()

	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return s.Run(ctx) })
	group.Go(func() error { return page.Run(ctx) })
	group.Go(func() error { return web.Serve(ctx, ls...) })
	group.Go(func() error {
		select {
		case <-s.Ready():
		case <-ctx.Done():
			return nil
		}
		if err := refused(s); err != nil && c.Level > 0 {
			if f.set("level") {
				return err
			}
			state.degrade("times, polls and buckets", err.Error())
		}
		log.Info("serving", "url", web.URL(ls[0])+"/metrics", "interval", interval, "level", &level, "mode", c.Mode)
		web.Ready()
		notify(daemon.SdNotifyReady)
		seen := -1
		group.Go(func() error { return watchdog(ctx, healthy) })
		group.Go(func() error { return loop.Run(ctx) })
		if len(web.Pages) > 0 {
			group.Go(func() error { return profiles.run(ctx, e, state, f.stateDir) })
		}
		group.Go(func() error { return e.reloads(ctx, hup, f, c, reload, hands, mine, state, log) })
		for {
			select {
			case <-ctx.Done():
				return nil
			case sample := <-samples:
				last.Store(int64(time.Since(begun)))
				metrics.Add(sample)
				if sample.Level != seen {
					// Programs were loaded, for which the kernel's types were read: tens of MiB that nothing needs any more.
					seen = sample.Level
					debug.FreeOSMemory()
					boundMemory()
				}
			}
		}
	})
	err = group.Wait()
	notify(daemon.SdNotifyStopping)
	// What the loop changed is kept or put back now that nothing runs any more.
	err = errors.Join(err, hands.finish())
	if err != nil {
		return err
	}
	log.Info("stopped")
	return nil
}

// boundMemory has garbage collected before it makes the agent big: half as much again as what lives may be waiting, not
// as much again, and reading the kernel's types, which lets go of tens of MiB in a moment, meets a bound. The bound is
// never near what lives, or collecting would take the CPU. Who sets GOGC or GOMEMLIMIT decides instead.
func boundMemory() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(50)
	}
	if os.Getenv("GOMEMLIMIT") == "" {
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		debug.SetMemoryLimit(max(24<<20, 3*int64(m.HeapAlloc)/2))
	}
}

// notify tells systemd, where it listens.
func notify(state string) {
	daemon.SdNotify(false, state) //nolint:errcheck // without systemd there is nobody to tell
}

// watchdog tells systemd that samples arrive.
func watchdog(ctx context.Context, healthy func() error) error {
	every, err := daemon.SdWatchdogEnabled(false)
	if err != nil || every == 0 {
		return nil
	}
	t := time.NewTicker(every / 3)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-t.C:
			if healthy() == nil {
				notify(daemon.SdNotifyWatchdog)
			}
		}
	}
}

// reloading is what does not work after a reload that was refused.
const reloading = "the new configuration"

// reloads reads the configuration again on SIGHUP.
func (e *env) reloads(ctx context.Context, hup <-chan os.Signal, f *agentFlags, old *control.Config, to chan<- *control.Config, hands *hands, mine *turn, state *agentState, log *slog.Logger) error {
	state.reloaded(true)
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-hup:
		}
		if f.config == "" {
			log.Info("reload", "why", "there is no --config to read again")
			continue
		}
		c, err := e.readConfig(f)
		if err == nil {
			err = mine.take(c)
		}
		if err != nil {
			state.reloaded(false)
			log.Error("reload refused, the old configuration stays in force", "error", err)
			state.degrade(reloading, err.Error())
			continue
		}
		if c.Level != old.Level || c.Overhead != old.Overhead || c.Pprof != old.Pprof || !reflect.DeepEqual(c.Metrics, old.Metrics) {
			log.Warn("reload", "why", "level, overhead, metrics and pprof change at the next start only")
			c.Level, c.Overhead, c.Metrics, c.Pprof = old.Level, old.Overhead, old.Metrics, old.Pprof
		}
		old = c
		state.reloaded(true)
		state.degrade(reloading, "")
		state.degrade("steering", e.cannotSteer(c, f.stateDir))
		hands.config.Store(c)
		select {
		case to <- c:
		case <-ctx.Done():
			return nil
		}
	}
}

// recordLoop appends the loop's configuration and events to a file, a JSON document a line.
func recordLoop(file string, loop *control.Loop, c *control.Config) (done func(), err error) {
	w, err := os.OpenFile(file, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, fmt.Errorf("record the loop: %w", err)
	}
	enc := json.NewEncoder(w)
	loop.Record = func(e control.Event) {
		if e.Tick == nil && e.Window == nil && e.Look == nil && e.Done == nil && e.Config == nil {
			return
		}
		if err := enc.Encode(e); err != nil {
			loop.Degraded("recording the loop", err.Error())
		}
	}
	loop.Record(control.Event{Config: c})
	return func() { w.Close() }, nil //nolint:errcheck // each line was written
}

// agentState is what does not work and what was told last, for everyone who shows it.
type agentState struct {
	log      *slog.Logger
	confined string // by which security module, "" none
	mu       sync.Mutex
	bad      map[string]string
	told
	reload reloadState
}

type reloadState struct {
	ok bool
	at time.Time
}

func newAgentState(log *slog.Logger) *agentState {
	return &agentState{log: log, bad: map[string]string{}}
}

// degrade says once that something does not work, and once that it does again (why "").
func (a *agentState) degrade(what, why string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.confined != "" && denied(why) {
		why += " (" + a.confined + ")"
	}
	was, is := a.bad[what], why
	switch {
	case is == "" && was != "":
		delete(a.bad, what)
		a.log.Info("works again", "what", what)
	case is != "" && was == "":
		a.log.Warn("degraded", "what", what, "why", why)
		fallthrough
	case is != "":
		a.bad[what] = why
	}
}

func (a *agentState) degraded() map[string]string {
	a.mu.Lock()
	defer a.mu.Unlock()
	out := make(map[string]string, len(a.bad))
	for k, v := range a.bad {
		out[k] = v
	}
	return out
}

func (a *agentState) reloaded(ok bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.reload.ok = ok
	if ok {
		a.reload.at = time.Now()
	}
}

// told is what a look found out.
type told struct{ report exporter.Told }

func (a *agentState) tell(t exporter.Told) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.told.report = t
}

// view is what the metrics of the loop are made from.
func (a *agentState) view(loop *control.Loop) func() exporter.LoopView {
	return func() exporter.LoopView {
		bad := a.degraded()
		a.mu.Lock()
		defer a.mu.Unlock()
		return exporter.LoopView{Status: loop.Status(), Degraded: bad, Told: a.told.report, ReloadOK: a.reload.ok, Reloaded: a.reload.at}
	}
}

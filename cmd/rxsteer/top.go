package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/spf13/cobra"

	"github.com/rxsteer/rxsteer/bpf"
	"github.com/rxsteer/rxsteer/cmd/rxsteer/internal/top"
	"github.com/rxsteer/rxsteer/collector"
	"github.com/rxsteer/rxsteer/collector/record"
	"github.com/rxsteer/rxsteer/internal/host/knob"
	"github.com/rxsteer/rxsteer/internal/host/nic"
	"github.com/rxsteer/rxsteer/steer/diagnose"
)

func topCommand(e *env) *cobra.Command {
	var (
		m        measureFlags
		interval time.Duration
	)
	c := &cobra.Command{
		Use:   "top [IFACE…]",
		Short: "Watch live which queue on which CPU hurts",
		Long: `Watch live: the share of each CPU that receiving takes, each queue with its
interrupt, CPU, packets, time and drops, the flows that weigh most, what diagnose
finds, and what is set. The second line names the queue and CPU that hurt most.

? shows the keys: sort, filter, pause, step back through the last ten minutes. With
--from it shows a recording of rxsteer record, from its end; space plays it. Without
privilege it shows what the kernel counts itself (level 0). Where the output is no
terminal it measures for three seconds and prints one frame.`,
		Example: `  rxsteer top
  rxsteer top eth0 --interval 200ms
  rxsteer top --from night.rxrec`,
		GroupID:           groupLook,
		ValidArgsFunction: e.completeInterfaces,
	}
	c.Flags().DurationVar(&interval, "interval", time.Second, "take a sample every `TIME`")
	addLevel(c, &m.level)
	addOverhead(c, &m.overhead)
	addFrom(c, &m)
	c.RunE = func(c *cobra.Command, names []string) error {
		m.duration = shortest // any
		if err := m.check(); err != nil {
			return err
		}
		if interval < 100*time.Millisecond || interval > time.Minute {
			return usage("--interval %v: want 100ms … 1m", interval)
		}
		if m.from != "" {
			return e.topFrom(c.Context(), m.from, names)
		}
		return e.topLive(c.Context(), &m, interval, names)
	}
	return c
}

func (e *env) topOptions(names []string) top.Options {
	return top.Options{Devices: names, Color: e.palette().on, UTF8: e.utf8(), Zone: time.Local}
}

// utf8 says whether the terminal takes more than ASCII: by the locale, as programs in C ask it.
func (e *env) utf8() bool {
	for _, name := range []string{"LC_ALL", "LC_CTYPE", "LANG"} {
		if v := strings.ToLower(e.getenv(name)); v != "" {
			return strings.Contains(v, "utf-8") || strings.Contains(v, "utf8")
		}
	}
	return false
}

// interactive says whether frames can follow one another on stdout.
func (e *env) interactive() bool { return e.stdoutTTY && e.getenv("TERM") != "dumb" }

// topKept is how many shots a live view can step back through.
const topKept = 600

func (e *env) topLive(ctx context.Context, m *measureFlags, interval time.Duration, names []string) error {
	h, err := e.openHost()
	if err != nil {
		return err
	}
	defer h.close()
	nics, err := h.inventory(ctx)
	if err != nil {
		return err
	}
	if err := checkInterfaces(nics, names); err != nil {
		return err
	}
	h.refresh, h.overhead, h.named = settingsAge, m.overhead, names
	states, err := e.openStates(ctx) // by sockets of its own: it looks while the sampler runs
	if err != nil {
		return err
	}
	defer states.host.close()
	recent := top.NewRecent(topKept)
	opts := e.topOptions(names)
	opts.Host, _ = os.Hostname() // "" where the kernel does not tell
	model := top.New(opts, recent)
	model.Set(topSettings(states.last, names))
	w := &watch{env: e, rooms: h, states: states, flags: m, interval: interval, names: names, recent: recent}
	if e.interactive() {
		return top.Run(ctx, model, e.stdin, e.stdout, interval, w.run)
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	judged := false
	err = w.run(ctx, func(msg tea.Msg) {
		if fed, ok := msg.(top.Fed); ok {
			fed.Add()
		}
		if w.report != nil {
			judged = true
			stop()
		}
	})
	if err != nil {
		return err
	}
	if !judged {
		return fmt.Errorf("measure for a frame: %w", ctx.Err())
	}
	_, err = fmt.Fprint(e.stdout, model.Plain(e.width))
	return err
}

// watch feeds a live view.
type watch struct {
	*env
	rooms    *hostRooms
	states   *states
	flags    *measureFlags
	interval time.Duration
	names    []string
	recent   *top.Recent

	window []*collector.Sample // the last judgedOver
	report *diagnose.Report    // of it, nil before the first judgement
	judged time.Time
	seen   *top.Shot // the last of level 1 or more, nil none
}

// A judgement is of judgedOver, and a new one is made every judgedEvery.
const (
	judgedOver  = 10 * time.Second
	judgedEvery = 3 * time.Second
)

// run measures until ctx ends.
func (w *watch) run(ctx context.Context, send func(tea.Msg)) error {
	w.rooms.overhead = w.flags.overhead
	s, err := w.startSampler(ctx, w.rooms, w.flags.level, w.interval)
	if err != nil {
		return err
	}
	reduced := reducedText(s.sampler.Refused())
	w.judged = w.now()
	for {
		select {
		case <-ctx.Done():
			return s.end()
		case err := <-s.done:
			s.stop()
			if err == nil && ctx.Err() == nil {
				err = errors.New("measure: the sampler stopped early")
			}
			return err
		case sample := <-s.samples:
			if err := w.refresh(ctx, sample, send); err != nil {
				return errors.Join(err, s.end())
			}
			st := w.states.last
			linkNAPIs(st.NICs, sample)
			w.judge(sample)
			shot := top.Take(sample, &top.Map{Netns: w.rooms.netns(), NICs: st.NICs, Topology: st.Topology})
			shot.Reduced = reduced
			if shot.Level > 0 {
				w.seen = shot
			} else if w.seen != nil {
				shot.Carry(w.seen)
			}
			report := w.report
			send(top.Fed{Add: func() { w.recent.Add(shot, top.Heat(sample), report) }})
		}
	}
}

// refresh looks at the settings again when they are old.
func (w *watch) refresh(ctx context.Context, sample *collector.Sample, send func(tea.Msg)) error {
	if sample.End.Sub(w.states.last.At) < settingsAge {
		return nil
	}
	last, _, err := w.states.read(ctx)
	if ctx.Err() != nil {
		return nil // the end
	}
	if err != nil {
		return err
	}
	w.states.last = last
	send(top.Changed{Settings: topSettings(last, w.names)})
	return nil
}

func (w *watch) judge(sample *collector.Sample) {
	w.window = append(w.window, sample)
	var covered time.Duration
	first := len(w.window)
	for first > 0 && covered < judgedOver {
		first--
		covered += w.window[first].Interval
	}
	w.window = slices.Delete(w.window, 0, first)
	if now := w.now(); now.Sub(w.judged) >= judgedEvery-w.interval/2 {
		w.judged = now
		w.report = reportOf(w.states.last, w.window, w.names)
	}
}

// reportOf judges consecutive samples.
func reportOf(st *record.State, windows []*collector.Sample, names []string) *diagnose.Report {
	return diagnose.Diagnose(diagnose.Input{Snapshot: st.Snapshot, NICs: st.NICs, Topology: st.Topology,
		Sample: collector.Merge(windows...), Windows: windows, Devices: names})
}

// reducedText says what level 0 lacks and why, "" where nothing was refused.
func reducedText(err error) string {
	switch {
	case err == nil:
		return ""
	case errors.Is(err, bpf.ErrNoPrivilege):
		return "Without privilege for BPF: no time, ns/pkt, p99, full of queues. sudo rxsteer top shows them"
	}
	return "No time, ns/pkt, p99, full of queues: " + err.Error()
}

func (e *env) topFrom(ctx context.Context, from string, names []string) error {
	c, err := e.openCapture(from)
	if err != nil {
		return err
	}
	if err := checkInterfaces(c.nics, names); err != nil {
		return err
	}
	samples := c.windows
	if len(samples) == 0 && c.sample != nil {
		samples = []*collector.Sample{c.sample}
	}
	if len(samples) == 0 {
		return &failure{exitFailed, fmt.Errorf("read %s: it holds no measurement to show", from), []string{"rxsteer status and diagnose read what it does hold", "rxsteer record -w FILE makes one that has"}}
	}
	sts := []*record.State{{NICs: c.nics, Topology: c.topology, Snapshot: c.snapshot}}
	opts := e.topOptions(names)
	opts.Recording = true
	step := time.Second
	if c.recording != nil {
		sts, opts.Host, step = c.recording.States, c.recording.Header.Name, c.recording.Header.Interval
	}
	var netns uint64
	if c.snapshot != nil {
		netns = c.snapshot.Host.Netns
	}
	for _, st := range sts {
		linkNAPIs(st.NICs, c.sample)
	}
	// at is what the host was at a sample.
	at := func(n int) *record.State {
		i := len(sts) - 1
		for i > 0 && sts[i].At.After(samples[n].End) {
			i--
		}
		return sts[i]
	}
	h := top.NewRecorded(samples,
		func(n int) *top.Shot {
			take := func(n int) *top.Shot {
				st := at(n)
				return top.Take(samples[n], &top.Map{Netns: netns, NICs: st.NICs, Topology: st.Topology})
			}
			shot := take(n)
			for i := n - 1; shot.Level == 0 && shot.Seen.IsZero() && i >= 0 && samples[n].End.Sub(samples[i].End) <= top.Carried; i-- {
				shot.Carry(take(i))
			}
			return shot
		},
		func(n int) *diagnose.Report {
			first, covered := n, samples[n].Interval
			for first > 0 && covered < judgedOver {
				first--
				covered += samples[first].Interval
			}
			return reportOf(at(n), samples[first:n+1], names)
		})
	model := top.New(opts, h)
	model.Set(topSettings(sts[len(sts)-1], names))
	if e.interactive() {
		return top.Run(ctx, model, e.stdin, e.stdout, max(step, 100*time.Millisecond), func(ctx context.Context, _ func(tea.Msg)) error {
			<-ctx.Done()
			return nil
		})
	}
	_, err = fmt.Fprint(e.stdout, model.Plain(e.width))
	return err
}

// topSettings is what is set on the interfaces that receive, side by side, as status says it.
func topSettings(st *record.State, names []string) top.Settings {
	if st.Snapshot == nil {
		return top.Settings{}
	}
	parts := settingsByPart(st.Snapshot)
	var views []statusNIC
	var out top.Settings
	for i := range st.NICs {
		n := &st.NICs[i]
		if slices.Contains(names, n.Name) || len(names) == 0 && n.Up && n.Kind != nic.Loopback {
			views = append(views, viewNIC(n, parts[n.Name]))
			out.Devices = append(out.Devices, n.Name)
		}
	}
	row := func(label string, text func(*statusNIC) string) {
		values, some := []string{}, false
		for i := range views {
			v := text(&views[i])
			values, some = append(values, v), some || v != ""
		}
		if some {
			out.Labels, out.Values = append(out.Labels, label), append(out.Values, values)
		}
	}
	row("driver", func(n *statusNIC) string { return n.Driver })
	row("link", func(n *statusNIC) string {
		if n.SpeedMb == nil {
			return ""
		}
		return speed(*n.SpeedMb)
	})
	for _, l := range settingLines {
		row(l.label, func(n *statusNIC) string {
			if l.text == nil {
				return partText(n, l.knob)
			}
			if v, ok := n.Settings[l.knob]; ok && v.Known() {
				return l.text(n, v)
			}
			return ""
		})
	}
	row("RPS", func(n *statusNIC) string { return partText(n, knob.RPSCPUs) })
	return out
}

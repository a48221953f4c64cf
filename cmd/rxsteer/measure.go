package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/rxsteer/rxsteer/bpf"
	"github.com/rxsteer/rxsteer/collector"
	"github.com/rxsteer/rxsteer/collector/record"
	"github.com/rxsteer/rxsteer/internal/host/knob"
	"github.com/rxsteer/rxsteer/internal/host/nic"
	"github.com/rxsteer/rxsteer/internal/host/paste"
	"github.com/rxsteer/rxsteer/internal/host/topo"
	"github.com/rxsteer/rxsteer/internal/sockdiag"
	"github.com/rxsteer/rxsteer/steer/diagnose"
	"github.com/rxsteer/rxsteer/steer/plan"
)

// measureFlags are those of every measuring command.
type measureFlags struct {
	duration time.Duration
	level    attention
	overhead overhead
	from     string         // folder or archive of texts instead of this host
	baseline *knob.Snapshot // to compare settings with, nil none
	stateDir string         // where it is remembered when a difference was seen first
}

// addFrom lets a command read what somebody captured.
func addFrom(c *cobra.Command, m *measureFlags) {
	c.Flags().StringVar(&m.from, "from", "", "read a recording, a bundle or a folder of pasted texts at `PATH` instead of this host")
}

func addMeasure(c *cobra.Command) *measureFlags {
	m := &measureFlags{}
	c.Flags().DurationVar(&m.duration, "for", 10*time.Second, "measure for this `TIME`")
	addLevel(c, &m.level)
	addOverhead(c, &m.overhead)
	return m
}

// attention is a level, or auto: 1 to begin with, and 2 when what is seen is worth it.
type attention int

const auto attention = -1

func addLevel(c *cobra.Command, level *attention) {
	*level = auto
	c.Flags().Var(level, "level", "attention `LEVEL`: 1 attaches the per-poll BPF programs, 2 also looks at packets (buckets and flows), 0 reads the kernel's counters only; auto begins with 1 and climbs to 2 when what it sees is worth it")
	c.RegisterFlagCompletionFunc("level", cobra.FixedCompletions([]string{"auto", "0", "1", "2"}, cobra.ShellCompDirectiveNoFileComp))
}

func (l *attention) Type() string { return "level" }

func (l *attention) String() string {
	if *l == auto {
		return "auto"
	}
	return strconv.Itoa(int(*l))
}

func (l *attention) Set(text string) error {
	switch text {
	case "auto":
		*l = auto
	case "0", "1", "2":
		*l = attention(text[0] - '0')
	default:
		return errors.New("want 0, 1, 2 or auto")
	}
	return nil
}

// highest is the level that may be reached.
func (l attention) highest() int {
	if l == auto {
		return 2
	}
	return int(l)
}

// addOverhead adds what measuring may cost.
func addOverhead(c *cobra.Command, o *overhead) {
	*o = collector.DefaultOverhead
	c.Flags().Var(o, "overhead", "measuring may take this `SHARE` of each CPU's time: it looks less closely rather than take more; 0 sets no limit, but 3% for following packets")
}

// overhead is a share of each CPU's time, as "1%" or "0.01".
type overhead float64

func (o *overhead) Type() string   { return "share" }
func (o *overhead) String() string { return strconv.FormatFloat(100*float64(*o), 'g', 6, 64) + "%" }

func (o *overhead) Set(text string) error {
	number, percent := strings.CutSuffix(strings.TrimSpace(text), "%")
	v, err := strconv.ParseFloat(strings.TrimSpace(number), 64)
	if percent {
		v /= 100
	}
	if err != nil || !(v == 0 || v >= 0.0001 && v <= 1) {
		return errors.New("want 0.01% … 100%, or 0 for no limit")
	}
	*o = overhead(v)
	return nil
}

// Measuring shorter than this says nothing: /proc/stat counts in ticks of 10 ms.
const shortest = time.Second

func (m *measureFlags) check() error {
	if m.duration < shortest || m.duration > 24*time.Hour {
		return usage("--for %v: want %v … 24h", m.duration, shortest)
	}
	return nil
}

// window is the length of the parts a measurement is cut into, so that what does not
// persist can be told.
func (m *measureFlags) window() time.Duration {
	return max(min(m.duration/10, time.Second), 200*time.Millisecond)
}

// seen is one look at the host: what it is, what is set, what was measured, what is wrong.
type seen struct {
	capture
	captured string // where it was read from, "" this host
	report   *diagnose.Report
}

// look measures and diagnoses.
func (e *env) look(ctx context.Context, m *measureFlags, names []string) (*seen, error) {
	if err := m.check(); err != nil {
		return nil, err
	}
	if m.from != "" {
		return e.lookFrom(m, names)
	}
	h, err := e.openHost()
	if err != nil {
		return nil, err
	}
	defer h.close()
	return e.lookAt(ctx, h, m, names)
}

// capture is what somebody took of a host: nothing of this one.
type capture struct {
	nics     []nic.NIC
	topology *topo.Topology
	snapshot *knob.Snapshot
	// windows is what was measured, in order; sample is their sum, or what a capture's texts let be
	// counted again; nil none.
	windows []*collector.Sample
	sample  *collector.Sample
	events  []diagnose.Event
	remarks []string // what was not as it should be; said on stderr, too
	// recording is whence, nil where it is a bundle or a folder.
	recording *record.Recording
}

// openCapture reads a recording, a bundle or a folder of pasted texts. What is not as it should be is
// said on stderr.
func (e *env) openCapture(from string) (*capture, error) {
	rec, err := record.Open(from)
	switch {
	case err == nil:
		return e.openRecording(from, rec)
	case errors.Is(err, record.ErrNewer):
		return nil, &failure{exitFailed, fmt.Errorf("%s: %w", from, err), []string{"read it with the rxsteer that wrote it, or a later one"}}
	case !errors.Is(err, record.ErrNot):
		return nil, err
	}
	h, err := paste.Open(from)
	if err != nil {
		return nil, &failure{exitFailed, err, []string{"--from takes what rxsteer record or rxsteer bundle writes, or a folder with any of: interrupts, softirqs, softnet_stat, stat, ip-link.txt, proc_irq.txt, rps_cpus.txt, ethtool-S.txt …"}}
	}
	var remarks []string
	for _, n := range h.Notes {
		e.remark(n.Error())
		remarks = append(remarks, n.Error())
	}
	// What was measured, where a bundle holds it, not what its texts let be counted again.
	c := &capture{nics: h.NICs(), topology: h.Topology(), snapshot: h.Snapshot(), windows: h.Saved.Windows, remarks: remarks}
	if c.sample = collector.Merge(c.windows...); c.sample == nil {
		c.sample = h.Sample()
	}
	for _, x := range h.Events {
		c.events = append(c.events, diagnose.Event{Kind: x.Kind, Text: x.Text})
	}
	return c, nil
}

// openRecording judges a host by what it was at the end, as measuring live does.
func (e *env) openRecording(from string, rec *record.Recording) (*capture, error) {
	if len(rec.States) == 0 || len(rec.Samples) == 0 {
		err := errors.New("it holds no sample")
		if rec.Cut != nil {
			err = rec.Cut
		}
		return nil, fmt.Errorf("read %s: %w", from, err)
	}
	if rec.Cut != nil {
		e.remark(from + ": " + rec.Cut.Error() + "; read is what came before")
	}
	last := rec.States[len(rec.States)-1]
	c := &capture{nics: last.NICs, topology: last.Topology, snapshot: last.Snapshot, windows: rec.Samples, sample: collector.Merge(rec.Samples...), recording: rec}
	linkNAPIs(c.nics, c.sample)
	return c, nil
}

// remark is a line on stderr about what was read.
func (e *env) remark(text string) { wrap(e.stderr, e.textWidth(), "! ", "  ", text) }

// lookFrom diagnoses what was captured: nothing of this host is read.
func (e *env) lookFrom(m *measureFlags, names []string) (*seen, error) {
	c, err := e.openCapture(m.from)
	if err != nil {
		return nil, err
	}
	if err := checkInterfaces(c.nics, names); err != nil {
		return nil, err
	}
	s := &seen{captured: m.from, capture: *c}
	s.judge(m, names)
	return s, nil
}

// judge diagnoses what was seen.
func (s *seen) judge(m *measureFlags, names []string) {
	var first func(knob.Ref) (time.Time, bool)
	if m.baseline != nil && s.captured == "" && s.snapshot != nil {
		seen, _ := sight(m.stateDir, m.baseline, s.snapshot, s.snapshot.Taken)
		first = seen.First
	}
	s.report = diagnose.Diagnose(diagnose.Input{
		Snapshot: s.snapshot, NICs: s.nics, Topology: s.topology, Sample: s.sample, Windows: s.windows, Events: s.events, Remarks: s.remarks, Devices: names, Baseline: m.baseline, FirstSeen: first, Captured: s.captured != "" && s.recording == nil,
	})
}

func (e *env) lookAt(ctx context.Context, h *hostRooms, m *measureFlags, names []string) (*seen, error) {
	wait := patience{began: time.Now()}
	var s seen
	var err error
	if s.nics, err = h.inventory(ctx); err != nil {
		return nil, err
	}
	if err := checkInterfaces(s.nics, names); err != nil {
		return nil, err
	}
	if s.topology, err = h.topology(); err != nil {
		return nil, err
	}
	h.named = nic.Under(s.nics, names)
	// What is set is read beside the last window: somebody waits for the answer.
	var settings chan error
	read := func() (err error) {
		if s.snapshot, err = h.machine.Snapshot(ctx); err != nil {
			return fmt.Errorf("read settings: %w", err)
		}
		s.snapshot.Owners, err = h.owners(ctx, s.nics)
		return err
	}
	wait.after = 2 * time.Since(wait.began) // the map is read once more, and all is judged
	wait.last = func() {
		settings = make(chan error, 1)
		go func() { settings <- read() }()
	}
	s.windows, err = e.measure(ctx, h, m, "measuring "+nameList(names), wait)
	if settings != nil {
		err = errors.Join(err, <-settings)
	}
	if err != nil {
		return nil, err
	}
	s.sample = collector.Merge(s.windows...)
	linkNAPIs(s.nics, s.sample)
	now, renewed, err := e.stillThere(ctx, h, names, s.nics, s.sample)
	if err != nil {
		return nil, err
	}
	s.nics = now
	if settings == nil || renewed {
		// A device that went away and came back is not judged by what it was.
		if err := read(); err != nil {
			return nil, err
		}
	}
	s.judge(m, names)
	return &s, nil
}

// stillThere refuses to judge a named device that vanished while it was measured. Of one that was
// removed and came back it leaves out of the sample what it did before, and says so there. It returns
// the interfaces to judge, and whether one of them is another than it was.
func (e *env) stillThere(ctx context.Context, h *hostRooms, names []string, was []nic.NIC, s *collector.Sample) (_ []nic.NIC, renewed bool, err error) {
	now, err := h.inventory(ctx)
	if err != nil {
		return nil, false, err
	}
	named := func(list []nic.NIC, name string) int {
		return slices.IndexFunc(list, func(n nic.NIC) bool { return n.Name == name })
	}
	for _, name := range names {
		if named(now, name) < 0 {
			return nil, false, &failure{code: exitFailed, err: fmt.Errorf("%s went away while it was measured", name),
				next: []string{"nothing was changed and nothing is left attached; rxsteer status shows what is there now"}}
		}
	}
	for _, n := range was {
		i := named(now, n.Name)
		if i < 0 || now[i].IfIndex == n.IfIndex {
			continue
		}
		renewed = true
		s.NAPIs = slices.DeleteFunc(s.NAPIs, func(p collector.NAPI) bool { return p.Netns == n.Netns && p.IfIndex == n.IfIndex })
		s.Devices = slices.DeleteFunc(s.Devices, func(d collector.Device) bool { return d.IfIndex == n.IfIndex })
		s.Drivers = slices.DeleteFunc(s.Drivers, func(d collector.Driver) bool { return d.IfIndex == n.IfIndex })
		s.Unmeasured = append(s.Unmeasured, collector.Unmeasured{What: "packets of " + n.Name + " before it came back",
			Why: fmt.Sprintf("it was removed and came back while it was measured (interface index %d, then %d): only what came after is judged", n.IfIndex, now[i].IfIndex)})
	}
	if !renewed {
		return was, false, nil
	}
	linkNAPIs(now, s)
	return now, true, nil
}

// makePlan plans from a look; typed is a plan that a person types.
func makePlan(s *seen, g plan.Goal, p plan.Policy, typed bool) *plan.Plan {
	return plan.Make(plan.Input{
		Report: s.report, Snapshot: s.snapshot, Topology: s.topology, NICs: s.nics, Sample: s.sample, Goal: g, Policy: p, Typed: typed,
	})
}

// measure takes samples of a window each until the duration is covered, or patience ends.
func (e *env) measure(ctx context.Context, h *hostRooms, m *measureFlags, what string, wait patience) ([]*collector.Sample, error) {
	var samples []*collector.Sample
	err := e.stream(ctx, h, m, m.window(), what, &wait, func(s *collector.Sample) error {
		samples = append(samples, s)
		return nil
	})
	if err != nil {
		return nil, err
	}
	return samples, nil
}

// patience is of somebody who waits for an answer, nil nobody: a slow start or slow loading on the way to level 2 shortens what is measured.
type patience struct {
	began time.Time     // to wait
	after time.Duration // what comes after measuring takes
	last  func()        // called when the last window begins, nil nothing
}

// mostLate is how much longer than asked for a person waits: 0.3 s, of which this process's own start, the end of measuring and
// writing the answer take the rest.
const mostLate = 270 * time.Millisecond

// enough says that n windows do: they cover the duration, or half of it and another would end too late. passed is since began.
func (w *patience) enough(n int, duration, window, passed time.Duration) bool {
	all := int((duration + window - 1) / window)
	return n >= all || w != nil && n >= (all+1)/2 && passed+window+w.after > duration+mostLate
}

// stream hands out samples of a window each until the duration is covered, or patience ends (nil: it does not). Level 1 that is
// refused is an error: a person who did not ask for less should not get less.
func (e *env) stream(ctx context.Context, h *hostRooms, m *measureFlags, window time.Duration, what string, wait *patience, each func(*collector.Sample) error) error {
	h.overhead = m.overhead
	s, err := e.startSampler(ctx, h, m.level, window)
	if err != nil {
		return err
	}
	if err := refused(s.sampler); err != nil && m.level != 0 {
		return errors.Join(err, s.end())
	}
	p := e.newProgress(what, m.duration)
	defer p.end()
	var began time.Time
	var last func()
	if wait != nil {
		began, last = wait.began, wait.last
	}
	for n := 0; ; {
		if last != nil && wait.enough(n+1, m.duration, window, time.Since(began)+window) {
			last()
			last = nil
		}
		select {
		case sample := <-s.samples:
			p.step(sample)
			if err := each(sample); err != nil {
				return errors.Join(err, s.end())
			}
			if n++; !wait.enough(n, m.duration, window, time.Since(began)) {
				continue
			}
		case <-p.tick():
			p.draw()
			continue
		case <-ctx.Done():
			return errors.Join(fmt.Errorf("measure for %v: %w", m.duration, ctx.Err()), s.end())
		case err := <-s.done:
			s.stop()
			if err == nil {
				err = errors.New("measure: the sampler stopped early")
			}
			return err
		}
		break
	}
	if missed := s.unsubscribe(); missed > 0 {
		return errors.Join(fmt.Errorf("measure: %d samples came faster than they could be taken", missed), s.end())
	}
	return s.end()
}

// sampling is a sampler that counts, and what it hands out.
type sampling struct {
	sampler     *collector.Sampler
	samples     <-chan *collector.Sample
	unsubscribe func() uint64 // returns how many samples came faster than they were taken
	stop        func()
	done        chan error // what Run returned
}

// startSampler returns when it counts, or why it does not.
func (e *env) startSampler(ctx context.Context, h *hostRooms, level attention, interval time.Duration) (*sampling, error) {
	ring := collector.NewRing(1)
	s := &sampling{sampler: e.newSampler(h, level, interval, ring), done: make(chan error, 1)}
	s.samples, s.unsubscribe = ring.Subscribe()
	running, cancel := context.WithCancel(ctx)
	s.stop = func() { cancel(); s.unsubscribe() }
	go func() { s.done <- s.sampler.Run(running) }()
	select {
	case <-s.sampler.Ready():
		return s, nil
	case err := <-s.done:
		s.stop()
		return nil, err
	}
}

// end stops it and waits until nothing is attached any more.
func (s *sampling) end() error {
	s.stop()
	return <-s.done
}

func (e *env) newSampler(h *hostRooms, level attention, interval time.Duration, ring *collector.Ring) *collector.Sampler {
	c := collector.Config{
		FS: e.fs, Level: level.highest(), Overhead: float64(h.overhead), Interval: interval, Ring: ring, RXQueue: h.rxQueue, Attach: e.attach,
		Connections: sockdiag.TCP,
	}
	if h.ethtool != nil {
		c.Statistics, c.XDP = h.ethtool, nic.Netlink{}.Programs
	}
	if level == auto {
		c.Worth = func(s *collector.Sample) string { return diagnose.CloserLook(s, h.nics, h.named) }
	}
	lookAtPackets(&c, h)
	return collector.New(c)
}

// refused is why level 1 is not possible here, as a failure with what grants it.
func refused(s *collector.Sampler) error {
	err := s.Refused()
	if err == nil {
		return nil
	}
	next := []string{}
	if errors.Is(err, bpf.ErrNoPrivilege) {
		next = append(next, "sudo rxsteer …")
	}
	next = append(next, "or measure with what the kernel counts itself: --level 0", "rxsteer doctor says all that is missing")
	return privilege(fmt.Errorf("live measurement: %w", err), next...)
}

func nameList(names []string) string {
	if len(names) == 0 {
		return "all interfaces"
	}
	return strings.Join(names, ", ")
}

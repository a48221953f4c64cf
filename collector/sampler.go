package collector

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/rxsteer/rxsteer/bpf"
	"github.com/rxsteer/rxsteer/internal/host"
	"github.com/rxsteer/rxsteer/internal/host/nic"
	"github.com/rxsteer/rxsteer/internal/sockdiag"
)

// Programs are the attached BPF programs, as bpf.Programs is.
type Programs interface {
	Read(*bpf.Counters) error
	Forget([]bpf.NAPIKey) error
	MaxNAPIs() int
	Close() error
}

// Config of a Sampler. Only FS is needed.
type Config struct {
	FS host.FS
	// Level is the highest to climb to: 0 the kernel's own counters, 1 the per-poll
	// BPF programs, 2 stages of sampled packets, and buckets and flows of the devices of RSS. Where 1 is refused, samples are of
	// level 0 and say why; where 2 is, of level 1.
	Level int
	// Worth tells why packets should be looked at after a sample, "" where nothing asks for it: with it level 2 is
	// climbed to when something does, and left a minute after the last that did. nil: from the beginning and always.
	// It is called from Run only.
	Worth func(*Sample) string
	// Overhead is the share of each CPU's time that measuring may take (0.01: 1 %); 0 means unlimited, but
	// for following packets at level 2, which may take 3 % then. To stay inside it, events are passed by and what is known
	// of the rest is scaled up: see Sample.Cost.
	Overhead float64
	// Interval of Run's samples; 0 means one second.
	Interval time.Duration
	// RXQueue tells the rx queue of a NAPI, -1 not known; nil knows none. It is
	// called from Run and Sample only.
	RXQueue func(netns uint64, ifindex int, napiID uint32) int
	// Statistics reads the drivers' own counters; nil reads none.
	Statistics Statistics
	// XDP lists the devices that have an XDP program, as nic.Netlink.Programs does: of these drivers' counters of what it
	// does are read, of virtual devices too. nil: of none.
	XDP func() ([]nic.XDP, error)
	// Connections lists TCP connections, as sockdiag.TCP does; nil lists none.
	Connections func(limit int) ([]sockdiag.Flow, error)
	// RSS lists the devices whose buckets and flows to count at level 2, as they are set now. It is asked
	// before and after each interval, from Run and Sample only. nil counts none.
	RSS func() []RSS
	// FlowRate has one packet in so many looked at for buckets and flows, at random; 1 all, 0 by the traffic: all
	// where little comes, one in DefaultFlowRate where much does.
	FlowRate int
	// Sockets lists sockets, as sockdiag.Sockets does, to tell whose a flow is; nil: not told.
	Sockets func(limit int) ([]sockdiag.Socket, error)
	// SocketsIn lists those of the network namespace of a file such as /proc/PID/ns/net: a flow that is passed on to a
	// container ends there. nil: none but Sockets'.
	SocketsIn func(netns string, limit int) ([]sockdiag.Socket, error)
	// LoadSpread loads the programs for buckets; nil means those of package bpf.
	LoadSpread func(bpf.SpreadOptions) (SpreadPrograms, error)
	// PacketRate has one packet in so many timed at level 2; 0 means bpf.DefaultRate.
	PacketRate int
	// LoadPackets loads the programs that time packets; nil means those of package bpf.
	LoadPackets func() (PacketPrograms, error)
	// Ring receives Run's samples; nil drops them.
	Ring *Ring
	// Attach loads and attaches the programs; nil means those of package bpf. The list
	// is what they cannot measure on this kernel.
	Attach func() (Programs, []Unmeasured, error)
	// Now is the clock; nil means time.Now.
	Now func() time.Time
}

// Sampler turns cumulative counters into samples. Use one of Run and Sample at
// a time.
type Sampler struct {
	cfg   Config
	ready chan struct{}

	programs Programs
	missing  []Unmeasured // while programs are attached, or why they are not
	refused  error
	stale    stale
	prev     *Reading
	drivers  driverSource
	tcp      tcpSource
	spare    *bpf.Counters // of the reading before, to be overwritten
	spread   spreadSource  // level 2
	owners   ownerSource
	packets  packetSource // level 2
	// Whether NAPI threads are timed, or why not though there are some.
	threadsOn  bool
	threadsOff string
	window     window                // of Buckets
	costs      atomic.Pointer[costs] // of the last sample that knows any
	budget     *budget               // nil: no programs that can be thinned
	before     *Reading              // of the events before the programs were loaded and after; nil: not seen
	loaded     *Reading
	ticked     bpf.Counters // of tick, to be overwritten
	climb      atomic.Int64 // Unix ns until which all detail is asked for
	ahead      *ahead       // while starting
	why        string       // level 2 was climbed to, "" not
	closer     time.Time    // until when it is kept
	coarse     []Unmeasured // missing without it
}

// New returns a Sampler that has touched nothing yet.
func New(cfg Config) *Sampler {
	if cfg.Interval <= 0 {
		cfg.Interval = time.Second
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	s := &Sampler{cfg: cfg, ready: make(chan struct{})}
	if cfg.Attach == nil {
		s.cfg.Attach = s.attach
	}
	return s
}

// attach loads and attaches the programs of package bpf. While they are loaded (some 50 ms) it sees how many events
// there are, and so what the programs will cost.
func (s *Sampler) attach() (Programs, []Unmeasured, error) {
	s.before, s.loaded = s.eventsNow(), nil
	p, err := bpf.Load(bpf.Options{Detail: s.cfg.Level >= 2})
	if err != nil {
		return nil, nil, err
	}
	s.loaded = s.eventsNow()
	if _, err := p.AttachCalibrated(); err != nil {
		return nil, nil, errors.Join(err, p.Close())
	}
	var missing []Unmeasured
	for _, h := range p.Missing() {
		missing = append(missing, Unmeasured{What: h.Lost, Why: h.Why})
	}
	return p, missing, nil
}

// Ready is closed when Run counts: what happens from then on is in a sample.
func (s *Sampler) Ready() <-chan struct{} { return s.ready }

// Refused is why the programs of level 1 are not attached though asked for,
// nil if they are: an error of package bpf. Valid once Ready is closed or
// Sample has returned.
func (s *Sampler) Refused() error { return s.refused }

// Run samples every interval into the ring until ctx ends; nothing is attached
// after it. It returns nil when ctx ends, and an error when the host's counters
// cannot be read at all or a program cannot be detached.
func (s *Sampler) Run(ctx context.Context) (err error) {
	if err := s.start(); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.stop()) }()
	close(s.ready)
	ticker := time.NewTicker(s.cfg.Interval)
	defer ticker.Stop()
	control := time.NewTimer(reaction)
	defer control.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-control.C:
			control.Reset(s.tick())
			continue
		case <-ticker.C:
		}
		sample, err := s.next()
		if err != nil {
			return err
		}
		sample.Closer = s.why
		s.attend(sample)
		if s.cfg.Ring != nil {
			s.cfg.Ring.Add(sample)
		}
	}
}

// Sample measures one interval of d and leaves nothing attached. If ctx ends
// first it returns what was measured until then together with ctx's error.
func (s *Sampler) Sample(ctx context.Context, d time.Duration) (_ *Sample, err error) {
	if err := s.start(); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.stop()) }()
	timer := time.NewTimer(d)
	defer timer.Stop()
	control := time.NewTimer(reaction)
	defer control.Stop()
	var ended error
	for waiting := true; waiting; {
		select {
		case <-ctx.Done():
			ended = fmt.Errorf("measure for %v: %w", d, ctx.Err())
			waiting = false
		case <-control.C:
			control.Reset(s.tick())
		case <-timer.C:
			waiting = false
		}
	}
	sample, err := s.next()
	if err != nil {
		return nil, err
	}
	return sample, ended
}

// start attaches what the level asks for and takes the first reading.
func (s *Sampler) start() error {
	s.stale, s.drivers, s.refused = stale{}, driverSource{}, nil
	s.owners = ownerSource{}
	s.tcp, s.budget = tcpSource{}, nil
	if s.ahead = nil; s.cfg.Worth == nil {
		s.ahead = s.loadAhead()
		defer s.ahead.end()
	}
	if s.cfg.Level < 1 {
		s.missing = withoutBPF("level 0 was asked for: no BPF programs are attached")
	} else {
		s.programs, s.missing, s.refused = s.cfg.Attach()
		if s.refused != nil {
			s.programs, s.missing = nil, withoutBPF(s.refused.Error())
		}
	}
	s.threadsOn, s.threadsOff = false, ""
	s.packets, s.why = packetSource{}, ""
	if s.cfg.Worth == nil {
		s.startDetail(nil)
	}
	var err error
	if s.prev, err = s.read(); err != nil {
		return errors.Join(err, s.stop())
	}
	if p, ok := s.programs.(thinner); ok && s.prev.BPF != nil {
		s.budget = newBudget(s.pollShare(), p, s.cfg.FS, len(s.prev.BPF.CPUs), s.prev.At)
		s.budget.last = eventsOf(s.prev.BPF)
		if s.cfg.Overhead > 0 && s.loaded != nil {
			rate, _ := s.budget.plan(s.budget.kernelLoads(s.before, s.loaded))
			if err := s.budget.look(s.prev.At, rate); err != nil {
				return errors.Join(err, s.stop())
			}
		}
	}
	return nil
}

// eventsNow reads what the kernel counts of the events that the programs see.
func (s *Sampler) eventsNow() *Reading {
	r := &Reading{At: s.cfg.Now()}
	r.readSoftirqs(s.cfg.FS)
	r.readInterrupts(s.cfg.FS)
	return r
}

// Climb asks for all detail at once and for d, whatever it costs: what that is above the budget is saved afterwards.
// It may be called from another goroutine than Run's.
func (s *Sampler) Climb(d time.Duration) { s.climb.Store(s.cfg.Now().Add(d).UnixNano()) }

// tick lets the budget answer to the traffic between samples, and returns when to do so again.
func (s *Sampler) tick() time.Duration {
	start := s.cfg.Now()
	s.packets.tick(start)
	s.followPackets()
	next := time.Hour
	if s.packets.programs != nil && s.packets.share > 0 {
		next = max(reaction, driverShare*s.cfg.Now().Sub(start))
	}
	if s.budget == nil || s.budget.share <= 0 || s.programs == nil {
		return next
	}
	if s.programs.Read(&s.ticked) != nil {
		return time.Hour // the next sample says so
	}
	s.thin(start, &s.ticked, false)
	return max(reaction, driverShare*s.cfg.Now().Sub(start))
}

// followPackets has buckets and flows counted in the windows in which packets are followed.
func (s *Sampler) followPackets() {
	if s.spread.programs == nil || s.packets.programs == nil {
		return
	}
	if err := s.spread.follow(s.packets.attached); err != nil {
		s.noSpread(err)
	}
	s.packets.spread = 0
	if s.spread.attached {
		s.packets.spread = s.spread.rate
	}
}

// thin has the budget charge what happened and decide on what comes.
func (s *Sampler) thin(now time.Time, c *bpf.Counters, sampled bool) {
	loads := s.budget.account(now, c)
	s.thinNext(now, loads, sampled)
}

func (s *Sampler) thinNext(now time.Time, loads []load, sampled bool) {
	if until := time.Unix(0, s.climb.Load()); until.After(now) {
		s.budget.climb = until
	}
	if err := s.budget.decide(now, loads, sampled); err != nil {
		// Programs that cannot be thinned must not stay.
		s.giveUp(err)
	}
}

// giveUp goes on at level 0.
func (s *Sampler) giveUp(err error) {
	s.refused = errors.Join(err, s.packets.close(), s.programs.Close())
	s.programs, s.budget, s.missing = nil, nil, withoutBPF(s.refused.Error())
}

// withoutBPF lists what only the programs can tell.
func withoutBPF(why string) []Unmeasured {
	return []Unmeasured{
		{What: "time per softirq and its context", Why: why},
		{What: "polls, packets and time per NAPI", Why: why},
		{What: "time per interrupt", Why: why},
	}
}

func (s *Sampler) stop() error {
	s.prev, s.spare = nil, nil
	err := errors.Join(s.packets.close(), s.spread.close(), s.CloseBuckets())
	if s.programs == nil {
		return err
	}
	err = errors.Join(s.programs.Close(), err)
	s.programs = nil
	return err
}

// next is the sample since the last reading.
func (s *Sampler) next() (*Sample, error) {
	cur, err := s.read()
	if err != nil {
		return nil, err
	}
	var loads []load
	if s.budget != nil {
		loads = s.budget.account(cur.At, cur.BPF)
		cur.thin = s.budget.thinness()
	}
	sample := Between(s.prev, cur, s.cfg.RXQueue)
	s.takeSpread(sample)
	if s.budget != nil {
		sample.Cost = s.budget.cost(sample)
	}
	s.takePackets(sample, cur)
	s.followPackets()
	if s.budget != nil {
		s.thinNext(cur.At, loads, true)
	}
	if cur.BPF != nil && s.programs != nil {
		s.threads(cur)
		s.forget(cur)
	}
	s.spare, s.prev = s.prev.BPF, cur
	return sample, nil
}

// read takes a reading. Programs that can no longer be read are given up, and
// measuring goes on at level 0.
func (s *Sampler) read() (*Reading, error) {
	now := s.cfg.Now()
	var counters *bpf.Counters
	if s.programs != nil {
		counters = s.spare
		if counters == nil {
			counters = &bpf.Counters{}
		}
		s.spare = nil
		if err := s.programs.Read(counters); err != nil {
			counters = nil
			s.giveUp(err)
		}
	}
	r := ReadHost(s.cfg.FS, now)
	s.drivers.read(r, &s.cfg)
	s.tcp.read(r, s.cfg.FS, s.cfg.Connections, s.cfg.Now)
	r.BPF = counters
	r.packets = s.packets.read()
	r.Unmeasured = append(append(r.Unmeasured, s.missing...), s.packets.missing...)
	if s.threadsOff != "" {
		r.unmeasured("time of NAPI threads", errors.New(s.threadsOff))
	}
	if r.Stat == nil && r.Softirqs == nil && r.Interrupts == nil && r.Softnet == nil && r.BPF == nil {
		var why []error
		for _, u := range r.Unmeasured {
			why = append(why, fmt.Errorf("%s: %s", u.What, u.Why))
		}
		return nil, fmt.Errorf("read the kernel's counters: none can be read: %w", errors.Join(why...))
	}
	return r, nil
}

// forget deletes {NAPI, CPU} pairs long idle, from the kernel and from the
// reading that the next sample starts from: should they return, they start from 0.
func (s *Sampler) forget(cur *Reading) {
	idle := s.stale.forget(cur.BPF, cur.At, s.programs.MaxNAPIs())
	if len(idle) == 0 {
		return
	}
	if err := s.programs.Forget(idle); err != nil {
		// They stay and are tried again later; a full map shows as Lost.
		return
	}
	gone := make(map[bpf.NAPIKey]bool, len(idle))
	for _, k := range idle {
		gone[k] = true
	}
	kept := 0
	for i, k := range cur.BPF.NAPIKeys {
		if !gone[k] {
			cur.BPF.NAPIKeys[kept], cur.BPF.NAPIs[kept] = k, cur.BPF.NAPIs[i]
			kept++
		}
	}
	cur.BPF.NAPIKeys = slices.Delete(cur.BPF.NAPIKeys, kept, len(cur.BPF.NAPIKeys))
	cur.BPF.NAPIs = slices.Delete(cur.BPF.NAPIs, kept, len(cur.BPF.NAPIs))
}

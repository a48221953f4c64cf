package collector

import (
	"cmp"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/rxsteer/rxsteer/bpf"
)

// SpreadPrograms count buckets, classes and flows, as bpf.Spread does.
type SpreadPrograms interface {
	Configure([]bpf.SpreadDevice) error // zeroes counters, but those of flows, and switches off
	SetRates(every, flows int) error
	SetOn(on bool) error
	Attach() error // and switch on
	Detach() error
	Read(*bpf.SpreadCounters) error
	Missing() []bpf.Hook
	Close() error
}

// loadSpread loads those of package bpf.
func loadSpread(o bpf.SpreadOptions) (SpreadPrograms, error) {
	p, err := bpf.LoadSpread(o)
	if err != nil {
		return nil, err // not a nil *bpf.Spread in an interface
	}
	return p, nil
}

// DefaultFlowRate: one packet in so many is looked at unless Config.FlowRate says otherwise, or fewer come.
const DefaultFlowRate = 64

// flowSamples is how many packets a second are looked at, at least, where a device receives as many: of some hundred
// buckets each must be seen often enough within a few seconds. At 0.3 µs each they are some 0.3 % of a CPU.
const flowSamples = 10_000

// Buckets watches every packet of a device for d and returns the load of each entry of
// its indirection table. It begins at once, whatever Run is doing, and may be called from
// another goroutine than Run's; calls wait for each other. The first one loads the programs, which
// takes 0.1–0.3 s: who is in a hurry later calls it early with d 0. Time needs the cost of a packet by queue and is nil until Run has
// made a sample of level 1 in which the device was polled. If ctx ends first, what was seen
// until then is returned with ctx's error. The programs stay loaded, detached, until
// Run ends or CloseBuckets, so that the next window is cheaper.
//
// A packet costs some 100 ns more while it lasts (BenchmarkSpread in package bpf): a window of 100 ms each
// ten seconds is 1 % of that. What the caller may spend is for the caller to know.
//
//	r, _ := collector.RSSOf(snapshot, "eth0")
//	b, err := sampler.Buckets(ctx, r, 150*time.Millisecond)
//
// Errors of package bpf (ErrNoPrivilege, ErrNoBTF, ErrNoTracepoint) say that it is not possible here.
func (s *Sampler) Buckets(ctx context.Context, device RSS, d time.Duration) (*DeviceBuckets, error) {
	s.window.Lock()
	b, err := s.window.watch(ctx, s.cfg.LoadSpread, s.cfg.Now, device, d)
	go func() { // detaching takes as long as attaching, and who asked has what he wants
		defer s.window.Unlock()
		s.window.late = errors.Join(s.window.late, s.window.end())
	}()
	if b != nil {
		if c := s.costs.Load(); c != nil {
			b.cost(*c)
		}
	}
	if err != nil {
		err = fmt.Errorf("watch buckets of %s: %w", device.Device, err)
	}
	return b, err
}

// CloseBuckets unloads what Buckets left loaded.
func (s *Sampler) CloseBuckets() error {
	s.window.Lock()
	defer s.window.Unlock()
	err := errors.Join(s.window.late, s.window.close())
	s.window.late = nil
	return err
}

// loading is programs that are being loaded.
type loading[T interface{ Close() error }] struct {
	done     chan struct{} // closed when they are
	programs T
	err      error
}

// take hands the programs over, as a load does.
func (l *loading[T]) take() (T, error) {
	<-l.done
	p, err := l.programs, l.err
	l.err = errTaken
	return p, err
}

// end unloads what nobody took.
func (l *loading[T]) end() {
	if p, err := l.take(); err == nil {
		_ = p.Close() // nothing is attached
	}
}

var errTaken = errors.New("loaded ahead once only")

// ahead loads the programs of level 2 while those of level 1 are loaded and calibrated, which takes about as long.
type ahead struct {
	devices []RSS
	spread  loading[SpreadPrograms] // where buckets are asked for
	packets loading[PacketPrograms]
}

// loadAhead begins to, where they are asked for; else it returns nil.
func (s *Sampler) loadAhead() *ahead {
	if s.cfg.Level < 2 {
		return nil
	}
	a := &ahead{spread: loading[SpreadPrograms]{done: make(chan struct{}), err: errTaken}, packets: loading[PacketPrograms]{done: make(chan struct{})}}
	types := bpf.NewTypes()
	packets := s.cfg.LoadPackets
	if packets == nil {
		packets = func() (PacketPrograms, error) { return bpf.LoadPackets(bpf.Options{Types: types}) }
	}
	spread := s.cfg.LoadSpread
	if spread == nil {
		spread = loadSpread
	}
	if s.cfg.RSS != nil {
		a.devices = s.cfg.RSS()
	}
	go func() {
		if s.cfg.RSS != nil {
			options := spreadOptions(a.devices)
			options.Types = types
			a.spread.programs, a.spread.err = spread(options)
		}
		close(a.spread.done)
		a.packets.programs, a.packets.err = packets()
		close(a.packets.done)
	}()
	return a
}

// end unloads what nobody took.
func (a *ahead) end() {
	if a != nil {
		a.spread.end()
		a.packets.end()
	}
}

// flowRate is one packet in how many to look at, by what the busiest device received in a sample; nil: nothing is known yet.
func (s *Sampler) flowRate(last *Sample) int {
	if s.cfg.FlowRate > 0 {
		return s.cfg.FlowRate
	}
	if last == nil || last.Interval <= 0 {
		return DefaultFlowRate
	}
	most := 0.0
	for _, d := range last.Devices {
		most = max(most, float64(d.RXPackets)/last.Interval.Seconds())
	}
	return min(max(int(math.Ceil(most/flowSamples)), 1), DefaultFlowRate)
}

// startSpread watches the devices of RSS from now on, where level 2 is asked for. last is the sample before, nil none.
func (s *Sampler) startSpread(last *Sample) {
	if s.cfg.RSS == nil || s.ahead == nil || s.programs == nil {
		return
	}
	if err := s.spread.begin(func(bpf.SpreadOptions) (SpreadPrograms, error) { return s.ahead.spread.take() }, s.cfg.Now, s.ahead.devices, s.flowRate(last), 1); err != nil {
		s.noSpread(err)
		return
	}
	for _, h := range s.spread.programs.Missing() {
		s.missing = append(s.missing, Unmeasured{What: h.Lost, Why: h.Why})
	}
}

// noSpread gives buckets and flows up.
func (s *Sampler) noSpread(why error) {
	if err := s.spread.close(); err != nil {
		why = errors.Join(why, err)
	}
	s.missing = append(s.missing, Unmeasured{What: "buckets and flows", Why: why.Error()})
}

// takeSpread adds buckets and flows to a sample, and the loads of its queues to what Buckets knows.
func (s *Sampler) takeSpread(sample *Sample) {
	c := s.learnCosts(sample)
	if s.spread.programs == nil {
		return
	}
	got, err := s.spread.take()
	if err != nil {
		s.noSpread(err)
		return
	}
	if !got.gated {
		got.window = sample.Interval
	}
	is := s.cfg.RSS()
	changed := len(is) != len(s.spread.devices)
	names := map[costKey]string{}
	if got.gated && got.window < sample.Interval/50 { // the end of a window that belongs to the sample before
		sample.note("buckets and flows", "counted in windows to stay inside the overhead budget, and this interval is between two")
		return
	}
	sample.Buckets = []DeviceBuckets{}
	if sample.Level > 0 { // else the budget has let nothing but packets be seen
		sample.Level = 2
	}
	for i := range got.buckets {
		b, was := &got.buckets[i], &s.spread.devices[i]
		j := slices.IndexFunc(is, func(r RSS) bool { return r.Netns == was.Netns && r.IfIndex == was.IfIndex })
		switch {
		case j < 0:
			changed = true
			sample.note("buckets of "+was.Device, "the device vanished, or its RSS settings can no longer be read")
		case !is[j].sameHash(was):
			changed = true
			sample.note("buckets of "+was.Device, "its RSS settings changed during the interval")
			names[costKey{was.Netns, was.IfIndex, 0}] = is[j].Device
			continue
		case !slices.Equal(is[j].Table, was.Table):
			changed = true
			b.Agreed, b.Compared, b.table = 0, 0, is[j].Table // which of the packets came after the change nobody knows
			b.Device = is[j].Device
		default:
			b.Device = is[j].Device
		}
		was.Device = b.Device // its end is told by the name it had then
		names[costKey{was.Netns, was.IfIndex, 0}] = b.Device
		b.Window = got.window
		b.scale(sample.Interval)
		b.cost(c)
		sample.Buckets = append(sample.Buckets, *b)
	}
	slices.SortFunc(sample.Buckets, compareBuckets)
	sample.Flows = got.top(sample.Interval, func(netns uint64, ifindex int) string { return names[costKey{netns, ifindex, 0}] })
	s.owners.tell(sample.Flows, &s.cfg)
	for cause, n := range map[string]uint64{LostFlows: got.lost, ForgottenFlows: got.forgotten} {
		if n > 0 {
			if sample.Lost == nil {
				sample.Lost = map[string]uint64{}
			}
			sample.Lost[cause] += n
		}
	}
	rate := s.flowRate(sample)
	if changed {
		err = s.spread.begin(s.cfg.LoadSpread, s.cfg.Now, is, rate, 1)
	} else {
		err = s.spread.look(rate)
	}
	if err != nil {
		s.noSpread(err)
	}
}

// mostCosts bounds what is remembered of queues that are gone.
const mostCosts = 1 << 16

// learnCosts is what packets cost lately: in this sample, and by the one before of a queue that rested.
func (s *Sampler) learnCosts(sample *Sample) costs {
	c := costsOf(sample)
	if known := s.costs.Load(); known != nil && len(*known) < mostCosts {
		for k, v := range *known {
			if _, ok := c[k]; !ok {
				c[k] = v
			}
		}
	}
	s.costs.Store(&c)
	return c
}

// note adds what a sample being made does not hold.
func (s *Sample) note(what, why string) {
	s.Unmeasured = append(s.Unmeasured, Unmeasured{What: what, Why: why})
}

// window is a spreadSource for windows of its own.
type window struct {
	sync.Mutex
	spreadSource
	late error // of the last one's end, that nobody was told
}

func (w *window) watch(ctx context.Context, load func(bpf.SpreadOptions) (SpreadPrograms, error), now func() time.Time, device RSS, d time.Duration) (*DeviceBuckets, error) {
	if err := w.late; err != nil {
		w.late = nil
		return nil, err
	}
	if err := w.begin(load, now, []RSS{device}, 1, 0); err != nil {
		return nil, err
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	var ended error
	select {
	case <-ctx.Done():
		ended = ctx.Err()
	case <-timer.C:
	}
	err := w.run(false) // so that all that is read is of one moment
	got, taken := w.take()
	if err = errors.Join(err, taken); err != nil {
		return nil, err
	}
	return &got.buckets[0], ended
}

// spreadSource runs the programs and takes differences of what they count.
type spreadSource struct {
	programs SpreadPrograms
	options  bpf.SpreadOptions // programs were loaded with
	attached bool
	now      func() time.Time
	rate     int
	devices  []RSS

	since time.Time     // counting, zero: not
	ran   time.Duration // counted since the last take, up to since
	gated bool          // it did not count all the time since the last take
	prev  bpf.SpreadCounters
	flows map[bpf.FlowKey]bpf.Flow // at the last take
	// Of flows since begin: samples taken, and told to have been forgotten.
	sampled, found, forgotten uint64
}

// spreadWindow is what was counted between two takes.
type spreadWindow struct {
	buckets []DeviceBuckets // by device as given to begin; not scaled
	flows   []flowCount
	rate    int
	window  time.Duration
	gated   bool // it is only part of the time between the takes
	// Samples of flows without a place, and those whose place was given to another flow.
	lost, forgotten uint64
}

// spreadOptions make room for twice as many devices and entries.
func spreadOptions(devices []RSS) bpf.SpreadOptions {
	entries := 0
	for i := range devices {
		entries += len(devices[i].Table)
	}
	return bpf.SpreadOptions{Devices: max(16, 2*len(devices)), Entries: max(1024, 2*entries)}
}

// begin watches devices from now on: one packet in rate, and of these one in flows for flows (0: no flows).
func (w *spreadSource) begin(load func(bpf.SpreadOptions) (SpreadPrograms, error), now func() time.Time, devices []RSS, rate, flows int) error {
	if load == nil {
		load = loadSpread
	}
	entries := 0
	watch := make([]bpf.SpreadDevice, len(devices))
	for i := range devices {
		watch[i] = devices[i].spread()
		entries += len(devices[i].Table)
	}
	if w.programs != nil && (len(devices) > w.options.Devices || entries > w.options.Entries) {
		if err := w.close(); err != nil {
			return err
		}
	}
	if w.programs == nil {
		o := spreadOptions(devices)
		p, err := load(o)
		if err != nil {
			return err
		}
		*w = spreadSource{programs: p, options: o}
	}
	w.now, w.rate, w.devices = now, rate, slices.Clone(devices)
	w.ran, w.since, w.gated = 0, time.Time{}, false
	if err := errors.Join(w.programs.Configure(watch), w.programs.SetRates(rate, flows)); err != nil {
		return err
	}
	// Configure has zeroed all but the flows.
	if err := w.programs.Read(&w.prev); err != nil {
		return err
	}
	w.flows = make(map[bpf.FlowKey]bpf.Flow, len(w.prev.Flows))
	for i, k := range w.prev.FlowKeys {
		w.flows[k] = w.prev.Flows[i]
	}
	w.sampled, w.found, w.forgotten = 0, 0, 0
	if w.attached {
		return w.run(true)
	}
	if err := w.programs.Attach(); err != nil {
		return err
	}
	w.attached, w.since = true, w.now()
	return nil
}

// look has one packet in rate looked at from now on; what came between the last take and now is little.
func (w *spreadSource) look(rate int) error {
	if rate == w.rate {
		return nil
	}
	w.rate = rate
	return w.programs.SetRates(rate, 1)
}

// run lets the attached programs count, or not.
func (w *spreadSource) run(on bool) error {
	if on == !w.since.IsZero() {
		return nil
	}
	if err := w.programs.SetOn(on); err != nil {
		return err
	}
	now := w.now()
	if on {
		w.since = now
		return nil
	}
	w.ran += now.Sub(w.since)
	w.since, w.gated = time.Time{}, true
	return nil
}

// follow has the programs attached and counting, or not.
func (w *spreadSource) follow(on bool) error {
	switch {
	case on == w.attached:
		return nil
	case on:
		if err := w.programs.Attach(); err != nil {
			return err
		}
		w.attached, w.since = true, w.now()
		return nil
	}
	err := errors.Join(w.run(false), w.programs.Detach())
	w.attached = false
	return err
}

// take is what was counted since begin or the last take; counting goes on.
func (w *spreadSource) take() (*spreadWindow, error) {
	cur := bpf.SpreadCounters{Buckets: make([][]bpf.BucketLoad, 0, len(w.devices))}
	if err := w.programs.Read(&cur); err != nil {
		return nil, err
	}
	out := &spreadWindow{window: w.ran, rate: w.rate, gated: w.gated}
	w.ran, w.gated = 0, w.since.IsZero()
	if !w.since.IsZero() {
		now := w.now()
		out.window += now.Sub(w.since)
		w.since = now
	}
	for i := range w.devices {
		b := bucketsBetween(&w.devices[i], &w.prev.Stats[i], &cur.Stats[i], w.prev.Buckets[i], cur.Buckets[i])
		b.Window = out.window
		b.times(uint64(w.rate))
		out.buckets = append(out.buckets, b)
	}
	w.takeFlows(&cur, out)
	w.prev = cur
	return out, nil
}

// end stops counting and detaches; the programs stay loaded.
func (w *spreadSource) end() error {
	w.since = time.Time{}
	if !w.attached {
		return nil
	}
	w.attached = false
	return w.programs.Detach()
}

func (w *spreadSource) close() error {
	if w.programs == nil {
		return nil
	}
	err := errors.Join(w.end(), w.programs.Close())
	*w = spreadSource{}
	return err
}

// mostly is the part of the packets whose bucket must come from the device's own hash for all to
// be called so: a few have none, as those of a protocol the card does not know.
const mostly = 0.99

// bucketsBetween is the load of a device between two readings.
func bucketsBetween(r *RSS, was, is *bpf.DeviceStat, before, after []bpf.BucketLoad) DeviceBuckets {
	b := DeviceBuckets{
		Netns: r.Netns, IfIndex: r.IfIndex, Device: r.Device, Classes: []Class{},
		Packets: make([]uint64, len(after)), Bytes: make([]uint64, len(after)),
		Seen: is.Seen.Packets - was.Seen.Packets, Unseen: is.Unseen - was.Unseen,
		Agreed: is.Agreed - was.Agreed, Compared: is.Compared - was.Compared,
	}
	for i := range after {
		b.Packets[i] = after[i].Packets - before[i].Packets
		b.Bytes[i] = after[i].Bytes - before[i].Bytes
	}
	nic, sum := is.ByNic-was.ByNic, is.BySum-was.BySum
	b.Unhashed = b.Seen - min(b.Seen, nic+sum)
	switch {
	case nic > 0 && float64(nic) >= mostly*float64(nic+sum):
		b.Hash = HashNIC
	case r.exact():
		b.Hash, b.Key = HashExact, hex.EncodeToString(r.Key)
	default:
		b.Hash = HashEstimated
	}
	for c := range is.Classes {
		for vlan := range is.Classes[c] {
			n := is.Classes[c][vlan].Packets - was.Classes[c][vlan].Packets
			if n > 0 {
				b.Classes = append(b.Classes, Class{Class: bpf.ClassNames[c], VLAN: vlan == 1, Packets: n, Bytes: is.Classes[c][vlan].Bytes - was.Classes[c][vlan].Bytes})
			}
		}
	}
	b.table = r.Table
	return b
}

// costs is the softirq ns of a packet by device and queue; queue -1: of all queues of the device.
type costs map[costKey]float64

type costKey struct {
	netns          uint64
	ifindex, queue int
}

// costsOf is what packets cost in a sample.
func costsOf(s *Sample) costs {
	type sum struct{ ns, packets uint64 }
	sums := map[costKey]sum{}
	for i := range s.NAPIs {
		n := &s.NAPIs[i]
		if n.IfIndex == 0 || n.Time == 0 {
			continue
		}
		for _, queue := range []int{-1, n.RXQueue} {
			k := costKey{n.Netns, n.IfIndex, queue}
			sums[k] = sum{sums[k].ns + n.Time, sums[k].packets + n.Packets}
			if n.RXQueue == -1 {
				break
			}
		}
	}
	c := costs{}
	for k, s := range sums {
		if s.packets > 0 {
			c[k] = float64(s.ns) / float64(s.packets)
		}
	}
	return c
}

// cost fills Time, from the cost of a packet in the queue that the table names for a bucket; where that queue is
// not known or has not polled, from the device's mean.
func (b *DeviceBuckets) cost(c costs) {
	mean, ok := c[costKey{b.Netns, b.IfIndex, -1}]
	if !ok {
		b.Time = nil
		return
	}
	b.Time = make([]uint64, len(b.Packets))
	for i, n := range b.Packets {
		ns := mean
		if i < len(b.table) {
			if own, ok := c[costKey{b.Netns, b.IfIndex, b.table[i]}]; ok && b.table[i] >= 0 {
				ns = own
			}
		}
		b.Time[i] = uint64(float64(n) * ns)
	}
}

// times has the counts of one packet in rate stand for all. Seen, Unseen and the comparison stay.
func (b *DeviceBuckets) times(rate uint64) {
	b.Rate = rate
	for i := range b.Packets {
		b.Packets[i] *= rate
		b.Bytes[i] *= rate
	}
	for i := range b.Classes {
		b.Classes[i].Packets *= rate
		b.Classes[i].Bytes *= rate
	}
	b.Unhashed *= rate
}

// grow multiplies what is scaled to an interval.
func (b *DeviceBuckets) grow(f float64) {
	up := func(n *uint64) { *n = uint64(math.Round(float64(*n) * f)) }
	for _, counts := range [][]uint64{b.Packets, b.Bytes, b.Time} {
		for i := range counts {
			up(&counts[i])
		}
	}
	for i := range b.Classes {
		up(&b.Classes[i].Packets)
		up(&b.Classes[i].Bytes)
	}
	up(&b.Unhashed)
}

// Shares are the parts of the packets that each entry of the table carries, as well as the packets looked at tell: few of
// them scatter more than their buckets do, and by so much each share is moved towards the mean of all (James and Stein).
// trust is what is left of the differences, 1 for many packets. nil, 0: no packet was looked at.
func (b *DeviceBuckets) Shares() (shares []float64, trust float64) {
	var total float64
	for _, n := range b.Packets {
		total += float64(n)
	}
	if total == 0 || b.Seen == 0 {
		return nil, 0
	}
	// Of those seen, as many as had a bucket. Each bucket's number scatters as a Poisson one does.
	seen := float64(b.Seen) * total / (total + float64(b.Unhashed))
	mean := 1 / float64(len(b.Packets))
	shares = make([]float64, len(b.Packets))
	var square float64
	for i, n := range b.Packets {
		shares[i] = float64(n) / total
		square += (shares[i] - mean) * (shares[i] - mean)
	}
	trust = 1
	if square > 0 {
		trust = max(0, 1-max(float64(len(shares)-3), 1)*mean/seen/square)
	}
	for i := range shares {
		shares[i] = mean + trust*(shares[i]-mean)
	}
	return shares, trust
}

// scale has the counts stand for the whole interval, of which Window was watched. Seen stays.
func (b *DeviceBuckets) scale(interval time.Duration) {
	if b.Window <= 0 || b.Window >= interval {
		return
	}
	b.grow(float64(interval) / float64(b.Window))
}

// plus adds y to x, which grows where it is shorter.
func plus(x, y []uint64) []uint64 {
	if len(y) > len(x) {
		x = append(x, make([]uint64, len(y)-len(x))...)
	}
	for i, n := range y {
		x[i] += n
	}
	return x
}

// add adds o, which comes later, to b; false if they cannot be added because the device hashed
// otherwise: b is then o alone.
func (b *DeviceBuckets) add(o *DeviceBuckets) bool {
	if b.Packets == nil { // nothing yet
		*b = o.clone()
		return true
	}
	if len(b.Packets) != len(o.Packets) || b.Key != o.Key && b.Seen > 0 && o.Seen > 0 {
		*b = o.clone()
		return false
	}
	b.Device, b.table, b.Rate = o.Device, o.table, max(b.Rate, o.Rate)
	if o.Seen > 0 {
		if b.Seen == 0 || o.Hash == HashEstimated {
			b.Hash = o.Hash
		}
		b.Key = o.Key
	}
	for i := range b.Packets {
		b.Packets[i] += o.Packets[i]
	}
	// A recording may hold less than is written here.
	b.Bytes, b.Time = plus(b.Bytes, o.Bytes), plus(b.Time, o.Time)
	for _, c := range o.Classes {
		i := slices.IndexFunc(b.Classes, func(x Class) bool { return x.Class == c.Class && x.VLAN == c.VLAN })
		if i < 0 {
			b.Classes = append(b.Classes, c)
			continue
		}
		b.Classes[i].Packets += c.Packets
		b.Classes[i].Bytes += c.Bytes
	}
	b.Seen += o.Seen
	b.Unseen += o.Unseen
	b.Unhashed += o.Unhashed
	b.Agreed += o.Agreed
	b.Compared += o.Compared
	b.Window += o.Window
	return true
}

func (b *DeviceBuckets) clone() DeviceBuckets {
	c := *b
	c.Packets, c.Bytes, c.Time, c.Classes = slices.Clone(b.Packets), slices.Clone(b.Bytes), slices.Clone(b.Time), slices.Clone(b.Classes)
	return c
}

func compareBuckets(a, b DeviceBuckets) int {
	return cmp.Or(cmp.Compare(a.Netns, b.Netns), cmp.Compare(a.IfIndex, b.IfIndex))
}

package collector

import (
	"cmp"
	"errors"
	"slices"
	"strconv"
	"time"

	"github.com/rxsteer/rxsteer/bpf"
)

// PacketPrograms are the programs that follow sampled packets, as bpf.Packets is.
type PacketPrograms interface {
	Attach() error
	AttachCalibrated() (bpf.PacketCost, error)
	Detach() error
	SetRate(n uint32) error
	Read(*bpf.PacketCounters) error
	ForgetStages([]bpf.StageKey) error
	MaxStages() int
	Missing() []bpf.Hook
	Close() error
}

// detailer is Programs that can tell how runs came about, as bpf.Programs.
type detailer interface {
	SetDetail(on bool) error
	SetThreads(on bool) error
}

// switchEvent is what timing NAPI threads takes for a switch of tasks, ns (measured on a guest of 2 CPUs, 6.18).
const switchEvent = 27

// unlimitedPackets is the share of each CPU's time that following packets may take where there is no budget: without it
// their programs would take a sixth of a CPU that does nothing but receive, and say no more.
const unlimitedPackets = 0.03

// packetSource is the packet programs of a Sampler, and the part of its budget that they may take. Passing a packet by is
// nearly all of their cost, so that sampling fewer would save nothing: they are attached for windows of a second or more.
type packetSource struct {
	programs PacketPrograms
	detail   detailer // of level 1, nil: none
	share    float64  // of each CPU's time that they may take, 0: unlimited
	pinned   bool     // no windows: some CPUs must not be called out of what they do
	rate     uint32
	cost     bpf.PacketCost
	missing  []Unmeasured

	attached bool
	since    time.Time // attached or detached
	at       time.Time // of last
	last     []float64 // events by CPU
	debt     []float64 // by CPU, ns
	stale    map[bpf.StageKey]seenStage
	ticked   bpf.PacketCounters

	spread int // one packet in so many is looked at for buckets and flows in the same windows, 0 none

	// Since the last sample.
	spent   []float64 // by CPU, ns
	watched time.Duration
}

// spreadEvent is what a packet costs that is handed to the programs for buckets and flows, and spreadLook what one costs
// more that is looked at: headers, hash, bucket, flow (a slow machine's; ns).
const (
	spreadEvent = 60
	spreadLook  = 250
)

type seenStage struct {
	count uint64
	at    time.Time
}

// startPackets attaches them at level 2. What refuses them is told in each sample, of level 1 then.
func (s *Sampler) startPackets() {
	s.packets = packetSource{}
	if s.cfg.Level < 2 || s.programs == nil {
		return
	}
	p := &s.packets
	refuse := func(err error) {
		p.missing = []Unmeasured{{What: "stages of packets", Why: err.Error()}}
	}
	programs, err := s.ahead.packets.take()
	if err != nil {
		refuse(err)
		return
	}
	p.rate = uint32(s.cfg.PacketRate)
	if p.rate == 0 {
		p.rate = bpf.DefaultRate
	}
	p.detail, _ = s.programs.(detailer)
	p.programs, p.stale = programs, map[bpf.StageKey]seenStage{}
	p.share = s.cfg.Overhead / 2 // the other half is the other programs'
	if p.pinned = pinned(s.cfg.FS); p.share <= 0 && !p.pinned {
		p.share = unlimitedPackets
	}
	now := s.cfg.Now()
	p.at = now
	err = programs.SetRate(p.rate)
	if err == nil {
		err = p.attach(now, func() error { p.cost, err = programs.AttachCalibrated(); return err })
	}
	var c bpf.PacketCounters
	if err = errors.Join(err, programs.Read(&c)); err != nil {
		refuse(errors.Join(err, p.close()))
		return
	}
	p.room(&c)
	for i := range c.CPUs { // the calibration's own
		p.last[i] = float64(c.CPUs[i].Ran())
	}
	if p.share > 0 && !p.cost.Measured {
		p.missing = append(p.missing, Unmeasured{What: "what following packets costs", Why: "taken is what a slow machine takes: " + p.cost.Why})
	}
	for _, h := range programs.Missing() {
		p.missing = append(p.missing, Unmeasured{What: h.Lost, Why: h.Why})
	}
}

// room makes room for the CPUs that are counted.
func (p *packetSource) room(c *bpf.PacketCounters) {
	if len(p.debt) < len(c.CPUs) {
		p.debt, p.spent, p.last = make([]float64, len(c.CPUs)), make([]float64, len(c.CPUs)), make([]float64, len(c.CPUs))
	}
}

func (p *packetSource) attach(now time.Time, programs func() error) error {
	if p.detail != nil {
		if err := p.detail.SetDetail(true); err != nil {
			return err
		}
	}
	if err := programs(); err != nil {
		return err
	}
	p.attached, p.since = true, now
	return nil
}

func (p *packetSource) detach(now time.Time) error {
	p.attached, p.since = false, now
	err := p.programs.Detach()
	if p.detail != nil {
		err = errors.Join(err, p.detail.SetDetail(false))
	}
	return err
}

func (p *packetSource) close() error {
	if p.programs == nil {
		return nil
	}
	err := p.programs.Close()
	if p.attached && p.detail != nil {
		err = errors.Join(err, p.detail.SetDetail(false))
	}
	p.programs, p.attached = nil, false
	return err
}

// giveUp goes on without them.
func (p *packetSource) giveUp(err error) {
	p.missing = []Unmeasured{{What: "stages of packets", Why: errors.Join(err, p.close()).Error()}}
}

// read reads them for a Reading; nil where there are none.
func (p *packetSource) read() *bpf.PacketCounters {
	if p.programs == nil {
		return nil
	}
	c := &bpf.PacketCounters{}
	if err := p.programs.Read(c); err != nil {
		p.giveUp(err)
		return nil
	}
	return c
}

// tick lets the budget answer between samples.
func (p *packetSource) tick(now time.Time) {
	if p.programs == nil || p.share <= 0 {
		return
	}
	if err := p.programs.Read(&p.ticked); err != nil {
		p.giveUp(err)
		return
	}
	p.account(now, &p.ticked)
}

// account charges what happened until now, and detaches or attaches as that is above the budget or paid back. As they
// stay detached for a while in any case, they may owe as much before.
func (p *packetSource) account(now time.Time, c *bpf.PacketCounters) {
	dt := float64(now.Sub(p.at))
	p.at = now
	p.room(c)
	most := 0.0
	for i := range c.CPUs {
		e := &c.CPUs[i].Events
		events := float64(c.CPUs[i].Ran())
		each := p.cost.Event
		if p.spread > 0 { // packets handed over are some third of the events
			each += (spreadEvent + spreadLook/float64(p.spread)) * float64(e.Gro+e.NetifRx) / max(events, 1)
		}
		ns := (events - p.last[i]) * each
		p.last[i] = events
		p.spent[i] += ns
		p.debt[i] = max(0, p.debt[i]+ns-p.share*dt)
		most = max(most, p.debt[i])
	}
	if p.attached {
		p.watched += time.Duration(dt)
	}
	if p.share <= 0 {
		return
	}
	var err error
	switch {
	case p.attached && most > p.share*float64(windowsApart) && now.Sub(p.since) >= shortestWindow:
		err = p.detach(now)
	case !p.attached && !p.pinned && most == 0 && now.Sub(p.since) >= windowsApart:
		err = p.attach(now, p.programs.Attach)
	}
	if err != nil {
		p.giveUp(err)
	}
}

// takePackets finishes a sample: what its packets cost, and what is forgotten.
func (s *Sampler) takePackets(sample *Sample, cur *Reading) {
	p := &s.packets
	if p.programs == nil || cur.packets == nil {
		return
	}
	p.account(cur.At, cur.packets)
	if p.programs == nil {
		return
	}
	if c := sample.Cost; c != nil && sample.Interval > 0 {
		ns := float64(sample.Interval)
		var hottest, sum float64
		for _, spent := range p.spent {
			hottest = max(hottest, spent/ns)
			sum += spent / ns
		}
		online := max(len(sample.CPUs), 1)
		c.Budget = s.cfg.Overhead
		c.Hottest, c.Mean = c.Hottest+hottest, c.Mean+sum/float64(online)
		c.DutyPackets = min(float64(p.watched)/ns, 1)
		c.Rate = uint64(p.rate)
		if c.PerEvent != nil {
			c.PerEvent["packet, passed by a program"] = p.cost.Event
		}
		switch {
		case c.DutyPackets == 0 && p.pinned:
			c.Thinned = append(c.Thinned, "packets are no longer followed: that costs more than the budget, and to attach again would disturb isolated CPUs")
		case c.DutyPackets < 0.98:
			c.Thinned = append(c.Thinned, "packets were followed in windows: to look at each for one to sample costs too much")
		}
	}
	clear(p.spent)
	p.watched = 0
	p.forget(cur)
}

// forget deletes stages long unused, sooner while their map is rather full.
func (p *packetSource) forget(cur *Reading) {
	limit := idleLong
	if len(cur.packets.StageKeys)*4 >= p.programs.MaxStages()*3 {
		limit = idleShort
	}
	var idle []bpf.StageKey
	for i, k := range cur.packets.StageKeys {
		n := cur.packets.Stages[i].Count
		last, ok := p.stale[k]
		switch {
		case !ok || last.count != n:
			p.stale[k] = seenStage{n, cur.At}
		case cur.At.Sub(last.at) >= limit:
			idle = append(idle, k)
			delete(p.stale, k)
		}
	}
	// Those that stay in the map are tried again; a full one shows as Lost.
	_ = p.programs.ForgetStages(idle)
}

// threads has NAPI threads timed from when one was seen on, as long as switches of tasks leave the budget whole.
func (s *Sampler) threads(cur *Reading) {
	p, ok := s.programs.(detailer)
	if !ok || s.threadsOff != "" {
		return
	}
	seen := false
	var switches uint64
	for i := range cur.BPF.NAPIs {
		seen = seen || cur.BPF.NAPIs[i].Thread != 0
	}
	for i := range cur.BPF.CPUs {
		n := cur.BPF.CPUs[i].Switches
		if s.prev != nil && s.prev.BPF != nil && i < len(s.prev.BPF.CPUs) && n >= s.prev.BPF.CPUs[i].Switches {
			n -= s.prev.BPF.CPUs[i].Switches
		}
		switches = max(switches, n)
	}
	if !seen {
		return
	}
	var err error
	interval := float64(cur.At.Sub(s.prev.At))
	if share := s.cfg.Overhead / 4; share > 0 && s.threadsOn && float64(switches)*switchEvent > share*interval {
		err = p.SetThreads(false)
		s.threadsOff = "so many switches of tasks that timing NAPI threads would cost too much"
	} else {
		err = p.SetThreads(true)
		s.threadsOn = err == nil
	}
	if err != nil {
		s.threadsOff = err.Error()
	}
}

// Causes of Sample.Lost.
const (
	LostRuns        = "runs: NAPI map full"
	LostStages      = "stages: stage map full"
	LostOverwritten = "packet samples: gave way to another"
	LostReused      = "packet samples: merged by GRO or passed on to another device"
	LostDropped     = "packet samples: dropped by the kernel"
	LostUnread      = "packet samples: freed unread"
	LostDrops       = "dropped packets: map of reasons full"
)

func (d *difference) lose(cause string, n uint64) {
	if n == 0 {
		return
	}
	if d.s.Lost == nil {
		d.s.Lost = map[string]uint64{}
	}
	d.s.Lost[cause] += n
}

// stages lists where packets and runs waited.
func (d *difference) stages() {
	index := index[stageKey, Stage]{}
	add := func(s Stage) {
		if s.Count > 0 {
			index.at(s.key()).add(&s)
		}
	}
	d.runStages(add)
	d.packetStages(add)
	d.s.Stages = index.sorted(compareStages)
}

// runStages adds those of NET_RX runs, by the NAPI polled.
func (d *difference) runStages(add func(Stage)) {
	was := make(map[bpf.NAPIKey]*bpf.RunStat, len(d.prev.BPF.RunKeys))
	for i, k := range d.prev.BPF.RunKeys {
		was[k] = &d.prev.BPF.Runs[i]
	}
	type napi struct {
		pointer uint64
		cpu     uint32
	}
	named := map[napi]*NAPI{}
	for i := range d.s.NAPIs {
		n := &d.s.NAPIs[i]
		named[napi{n.Pointer, uint32(n.CPU)}] = n
	}
	for i, k := range d.cur.BPF.RunKeys {
		now, before := &d.cur.BPF.Runs[i], was[k]
		if before == nil || now.ToRaise.Count < before.ToRaise.Count || now.RingWait.Count < before.RingWait.Count {
			before = &bpf.RunStat{}
		}
		base := Stage{Netns: uint64(k.Netns), IfIndex: int(k.Ifindex), RXQueue: -1, CPU: int(k.Cpu), FromCPU: int(k.Cpu)}
		if n := named[napi{k.Napi, k.Cpu}]; n != nil {
			base.Device, base.RXQueue = n.Device, n.RXQueue
		}
		for _, l := range []struct {
			name    StageName
			now, of *bpf.Latency
		}{
			{IRQToRaise, &now.ToRaise, &before.ToRaise},
			{RaiseToSoftirq, &now.ToRun, &before.ToRun},
			{SoftirqToPoll, &now.FirstPoll, &before.FirstPoll},
			{RingWait, &now.RingWait, &before.RingWait},
		} {
			s := base
			s.Stage = l.name
			s.Count, s.Sum = l.now.Count-l.of.Count, l.now.Sum-l.of.Sum
			for b := range s.Hist {
				s.Hist[b] = l.now.Hist[b] - l.of.Hist[b]
			}
			add(s)
		}
	}
}

// packetStages adds those of sampled packets.
func (d *difference) packetStages(add func(Stage)) {
	was := make(map[bpf.StageKey]*bpf.StageStat, len(d.prev.packets.StageKeys))
	for i, k := range d.prev.packets.StageKeys {
		was[k] = &d.prev.packets.Stages[i]
	}
	names := d.names()
	for i, k := range d.cur.packets.StageKeys {
		now, before := &d.cur.packets.Stages[i], was[k]
		if before == nil || now.Count < before.Count {
			before = &bpf.StageStat{}
		}
		s := Stage{Netns: uint64(k.Netns), IfIndex: int(k.Ifindex), RXQueue: int(k.Queue) - 1, CPU: int(k.Cpu), FromCPU: int(k.From),
			Count: now.Count - before.Count, Sum: now.Sum - before.Sum}
		switch k.Stage {
		case bpf.ToStack:
			s.Stage = GROToStack
			if s.CPU != s.FromCPU {
				s.Stage = GROToStackRPS
			}
		case bpf.ToSocket:
			s.Stage = StackToSocket
		case bpf.ToRead:
			s.Stage = SocketToRead
		case bpf.InAll:
			s.Stage = Total
		}
		for b := range s.Hist {
			s.Hist[b] = now.Hist[b] - before.Hist[b]
		}
		s.Device = d.nameOf(k.Netns, k.Ifindex, now.Device(), names)
		if s.RXQueue < 0 && k.NapiId != 0 && d.rxQueue != nil {
			s.RXQueue = d.rxQueue(s.Netns, s.IfIndex, k.NapiId)
		}
		add(s)
	}
	for i := range d.cur.packets.CPUs {
		if i >= len(d.prev.packets.CPUs) {
			break
		}
		was, now := &d.prev.packets.CPUs[i], &d.cur.packets.CPUs[i]
		d.lose(LostStages, now.Lost-was.Lost)
		d.lose(LostOverwritten, now.Overwritten-was.Overwritten)
		d.lose(LostReused, now.Reused-was.Reused)
		d.lose(LostDropped, now.Dropped-was.Dropped)
		d.lose(LostUnread, now.Unread-was.Unread)
		d.lose(LostDrops, now.LostDrops-was.LostDrops)
	}
}

// XDP is packets of a device that met one end in an XDP program on one CPU.
type XDP struct {
	Netns   uint64 `json:"netns"`
	IfIndex int    `json:"ifindex"`
	Device  string `json:"device"`
	Outcome string `json:"outcome"` // XDPRaised, XDPRedirected or XDPNotRedirected
	CPU     int    `json:"cpu"`
	Packets uint64 `json:"packets"`
}

// Outcomes of XDP programs. An AF_XDP socket gets what is redirected to it.
const (
	XDPRaised        = "exception"      // aborted, or an action the driver does not know or could not do
	XDPRedirected    = "redirect"       // to a device, a CPU or an AF_XDP socket
	XDPNotRedirected = "redirect-error" // an error
)

type xdpKey struct {
	netns        uint64
	ifindex, cpu int
	outcome      string
}

func (x *XDP) key() xdpKey { return xdpKey{x.Netns, x.IfIndex, x.CPU, x.Outcome} }

func (x *XDP) add(o *XDP) {
	n := x.Packets + o.Packets
	*x = *o
	x.Packets = n
}

func compareXDPs(a, b XDP) int {
	return cmp.Or(cmp.Compare(a.Netns, b.Netns), cmp.Compare(a.IfIndex, b.IfIndex), cmp.Compare(a.Outcome, b.Outcome), cmp.Compare(a.CPU, b.CPU))
}

// xdp lists what XDP did.
func (d *difference) xdp() {
	was := make(map[bpf.XDPKey]uint64, len(d.prev.packets.XDPKeys))
	for i, k := range d.prev.packets.XDPKeys {
		was[k] = d.prev.packets.XDPs[i]
	}
	names := d.names()
	for i, k := range d.cur.packets.XDPKeys {
		n := d.cur.packets.XDPs[i] - was[k]
		if n == 0 {
			continue
		}
		x := XDP{Netns: uint64(k.Netns), IfIndex: int(k.Ifindex), CPU: int(k.Cpu), Packets: n, Device: d.nameOf(k.Netns, k.Ifindex, "", names)}
		switch k.Outcome {
		case bpf.XDPRaised:
			x.Outcome = XDPRaised
		case bpf.XDPRedirected:
			x.Outcome = XDPRedirected
		case bpf.XDPNotRedirected:
			x.Outcome = XDPNotRedirected
		}
		d.s.XDP = append(d.s.XDP, x)
	}
	slices.SortFunc(d.s.XDP, compareXDPs)
}

// Drop is packets that the kernel freed on one CPU for one reason.
type Drop struct {
	// Reason is the running kernel's name: "SOCKET_RCVBUFF", "NO_SOCKET"; its number where it has no name (those of
	// a subsystem do not), "" where the kernel tells none.
	Reason string `json:"reason"`
	// Received: the packet had come to the protocol layer. Else it had not yet, or was being sent.
	Received bool   `json:"received"`
	CPU      int    `json:"cpu"`
	Packets  uint64 `json:"packets"`
}

type dropKey struct {
	reason   string
	received bool
	cpu      int
}

func (x *Drop) key() dropKey { return dropKey{x.Reason, x.Received, x.CPU} }

func (x *Drop) add(o *Drop) {
	n := x.Packets + o.Packets
	*x = *o
	x.Packets = n
}

func compareDrops(a, b Drop) int {
	received := func(d Drop) int {
		if d.Received {
			return 0
		}
		return 1
	}
	return cmp.Or(cmp.Compare(received(a), received(b)), cmp.Compare(a.Reason, b.Reason), cmp.Compare(a.CPU, b.CPU))
}

// drops lists what was thrown away.
func (d *difference) drops() {
	was := make(map[bpf.DropKey]uint64, len(d.prev.packets.DropKeys))
	for i, k := range d.prev.packets.DropKeys {
		was[k] = d.prev.packets.Drops[i]
	}
	for i, k := range d.cur.packets.DropKeys {
		n := d.cur.packets.Drops[i] - was[k]
		if n == 0 {
			continue
		}
		x := Drop{Received: k.Received != 0, CPU: int(k.Cpu), Packets: n}
		if names := d.cur.packets.Reasons; names != nil {
			x.Reason = cmp.Or(names[k.Reason], strconv.FormatUint(uint64(k.Reason), 10))
		}
		d.s.Drops = append(d.s.Drops, x)
	}
	slices.SortFunc(d.s.Drops, compareDrops)
}

// names lists the devices of our namespace.
func (d *difference) names() map[uint32]string {
	names := map[uint32]string{}
	for _, devs := range [][]Device{d.prev.Devices, d.cur.Devices} {
		for _, dev := range devs {
			names[uint32(dev.IfIndex)] = dev.Name
		}
	}
	return names
}

// nameOf names a device as NAPI.Device does.
func (d *difference) nameOf(netns, ifindex uint32, seenAs string, names map[uint32]string) string {
	if d.cur.Netns != 0 && uint64(netns) != d.cur.Netns {
		return Foreign
	}
	return cmp.Or(names[ifindex], seenAs)
}

// pacing lists how the interrupts of each line followed one another.
func (d *difference) pacing() {
	was := make(map[bpf.IRQKey]*bpf.IRQStat, len(d.prev.BPF.IRQKeys))
	for i, k := range d.prev.BPF.IRQKeys {
		was[k] = &d.prev.BPF.IRQs[i]
	}
	paces := index[int, Pacing]{}
	for i, k := range d.cur.BPF.IRQKeys {
		now, before := &d.cur.BPF.IRQs[i], was[k]
		if before == nil {
			before = &bpf.IRQStat{}
		}
		if now.Gaps == before.Gaps {
			continue
		}
		p := paces.at(int(k.Irq))
		p.IRQ = int(k.Irq)
		for b := range p.Hist {
			p.Hist[b] += uint64(now.Gaps[b] - before.Gaps[b]) // 32 bits: wraps
		}
	}
	if len(paces) == 0 {
		return
	}
	for _, l := range d.s.Learned {
		p := paces[l.IRQ]
		if p == nil {
			continue
		}
		for i := range d.s.NAPIs {
			if n := &d.s.NAPIs[i]; n.Netns == l.Netns && n.IfIndex == l.IfIndex && n.ID == l.NAPI {
				p.Packets += n.Packets
			}
		}
	}
	d.s.Pacing = paces.sorted(func(a, b Pacing) int { return cmp.Compare(a.IRQ, b.IRQ) })
}

// What it takes to believe in a link: so many votes, and so many times those against.
const (
	leastVotes = 8
	mostVotes  = 9
)

// learned lists what traffic has shown since the programs were loaded: an interrupt by vote over the runs it raised, a queue
// by the packets handed over.
func (d *difference) learned() {
	type votes struct {
		irq             int
		forIRQ, against uint64
		byQueue         map[uint32]uint64
		irqSeen         bool
	}
	links := map[linkKey]*votes{}
	at := func(netns, ifindex, napi uint32) *votes {
		k := linkKey{uint64(netns), int(ifindex), napi}
		if links[k] == nil {
			links[k] = &votes{byQueue: map[uint32]uint64{}}
		}
		return links[k]
	}
	for i, k := range d.cur.BPF.NAPIKeys {
		n := &d.cur.BPF.NAPIs[i]
		if k.NapiId == 0 || n.IrqVotes == 0 {
			continue
		}
		v := at(k.Netns, k.Ifindex, k.NapiId)
		switch { // each CPU has its own vote
		case !v.irqSeen:
			v.irq, v.forIRQ, v.against, v.irqSeen = int(n.Irq), uint64(n.IrqVotes), uint64(n.IrqAgainst), true
		case v.irq == int(n.Irq):
			v.forIRQ += uint64(n.IrqVotes)
			v.against += uint64(n.IrqAgainst)
		case uint64(n.IrqVotes) > v.forIRQ:
			v.irq, v.forIRQ, v.against = int(n.Irq), uint64(n.IrqVotes), v.against+v.forIRQ+uint64(n.IrqAgainst)
		default:
			v.against += uint64(n.IrqVotes)
		}
	}
	if d.cur.packets != nil {
		for i, k := range d.cur.packets.StageKeys {
			if k.Stage == bpf.ToStack && k.NapiId != 0 && k.Queue != 0 {
				at(k.Netns, k.Ifindex, k.NapiId).byQueue[k.Queue-1] += d.cur.packets.Stages[i].Count
			}
		}
	}
	for k, v := range links {
		l := Link{Netns: k.netns, IfIndex: k.ifindex, NAPI: k.napi, RXQueue: -1, IRQ: -1}
		if v.forIRQ >= leastVotes && v.forIRQ >= mostVotes*v.against {
			l.IRQ = v.irq
		}
		var all, most uint64
		queue := -1
		for q, n := range v.byQueue {
			if all += n; n > most || n == most && int(q) < queue {
				most, queue = n, int(q)
			}
		}
		if most >= leastVotes && most >= mostVotes*(all-most) {
			l.RXQueue = queue
		}
		if l.IRQ >= 0 || l.RXQueue >= 0 {
			d.s.Learned = append(d.s.Learned, l)
		}
	}
	slices.SortFunc(d.s.Learned, compareLinks)
}

type stageKey struct {
	stage          StageName
	netns          uint64
	ifindex, queue int
	cpu, from      int
}

func (s *Stage) key() stageKey {
	return stageKey{s.Stage, s.Netns, s.IfIndex, s.RXQueue, s.CPU, s.FromCPU}
}

func (s *Stage) add(o *Stage) {
	s.Stage, s.Netns, s.IfIndex, s.Device = o.Stage, o.Netns, o.IfIndex, o.Device
	s.RXQueue, s.CPU, s.FromCPU = o.RXQueue, o.CPU, o.FromCPU
	s.Count += o.Count
	s.Sum += o.Sum
	s.Hist.Add(&o.Hist)
}

func compareStages(a, b Stage) int {
	return cmp.Or(cmp.Compare(slices.Index(StageNames, a.Stage), slices.Index(StageNames, b.Stage)),
		cmp.Compare(a.Netns, b.Netns), cmp.Compare(a.IfIndex, b.IfIndex), cmp.Compare(a.RXQueue, b.RXQueue),
		cmp.Compare(a.CPU, b.CPU), cmp.Compare(a.FromCPU, b.FromCPU))
}

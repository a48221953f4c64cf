package plan

import (
	"cmp"
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"

	"github.com/rxsteer/rxsteer/collector"
	"github.com/rxsteer/rxsteer/internal/host/knob"
	"github.com/rxsteer/rxsteer/internal/host/nic"
	"github.com/rxsteer/rxsteer/internal/toeplitz"
	"github.com/rxsteer/rxsteer/steer/balance"
	"github.com/rxsteer/rxsteer/steer/diagnose"
)

const (
	// big is the part of its bucket that makes a flow one of several that fill it.
	big = 0.2
	// keys is how many hash keys are tried. Of k big flows over q queues a random key parts
	// all with a chance of q!/((q-k)!·q^k): 4 over 4 one in ten, 8 over 8 one in 400.
	keys = 4096
)

// flow is one of a device's biggest flows.
type flow struct {
	collector.Flow
	share  float64 // of its bucket's packets
	bucket int     // −1 not known
}

func (f flow) text() string {
	s := fmt.Sprintf("%s %s → %s", f.Protocol, f.Source, f.Destination)
	if f.Process != "" {
		s += " of " + f.Process
	}
	return s
}

// kind is the flow's type in ethtool's words, "" for what has no ports.
func (f flow) kind() string {
	if f.Protocol != "tcp" && f.Protocol != "udp" && f.Protocol != "sctp" {
		return ""
	}
	if f.Source.Addr().Unmap().Is4() {
		return f.Protocol + "4"
	}
	return f.Protocol + "6"
}

// flows is the known flows of a bucket, or with −1 of the device, biggest first.
func (m *maker) flows(dev string, bucket int) []flow {
	d := m.buckets(dev)
	if d == nil {
		return nil
	}
	rss, told := collector.RSSOf(m.in.Snapshot, dev)
	var out []flow
	for _, f := range m.in.Sample.Flows {
		if f.Device != dev {
			continue
		}
		x := flow{Flow: f, bucket: f.Bucket}
		if x.bucket < 0 && told {
			x.bucket = bucketOf(x, rss, rss.Key)
		}
		if x.bucket < 0 || x.bucket >= len(d.Packets) || bucket >= 0 && x.bucket != bucket {
			continue
		}
		if n := d.Packets[x.bucket]; n > 0 {
			x.share = min(1, float64(f.Packets)/float64(n))
		}
		out = append(out, x)
	}
	slices.SortStableFunc(out, func(a, b flow) int { return -cmp.Compare(a.Packets, b.Packets) })
	return out
}

// bucketOf is the bucket a flow falls into with a key, −1 where that cannot be told.
func bucketOf(f flow, rss collector.RSS, key []byte) int {
	letters, told := rss.Fields[f.kind()]
	if rss.Fields == nil && f.kind() != "" {
		letters, told = "sdfn", true // drivers that tell no fields hash by ports (virtio_net before 6.x)
	}
	if len(key) == 0 || len(rss.Table) == 0 || rss.Function != "" && rss.Function != "toeplitz" || !told {
		return -1
	}
	x := toeplitz.Flow{Src: f.Source.Addr(), Dst: f.Destination.Addr()}
	switch {
	case !strings.Contains(letters, "sd"):
		return -1
	case strings.Contains(letters, "fn"):
		x.SrcPort, x.DstPort = f.Source.Port(), f.Destination.Port()
	case strings.ContainsAny(letters, "fn"):
		return -1
	}
	hash, ok := toeplitz.Hash(key, x, cmp.Or(rss.Transform, toeplitz.None))
	if !ok {
		return -1
	}
	return toeplitz.Bucket(hash, len(rss.Table))
}

// part takes big flows that share a bucket apart, which no table can: by a rule for one of them,
// or by another key. It reports whether the plan now holds either.
func (m *maker) part(s *steered) bool {
	if !s.counted || m.rehashed[s.dev] {
		return false
	}
	total, busiest := 0.0, 0
	for b, l := range s.buckets {
		total += l
		if l > s.buckets[busiest] {
			busiest = b
		}
	}
	queues := 0
	for _, c := range s.cpus {
		if c != balance.Unused {
			queues++
		}
	}
	if total == 0 || queues < 2 || s.buckets[busiest] <= total/float64(queues) {
		return false // a table can do it
	}
	here := m.flows(s.dev, busiest)
	n := 0
	for _, f := range here {
		if f.share >= big {
			n++
		}
	}
	if n < 2 {
		return false
	}
	return m.rule(s, here[:n], busiest) || m.key(s, here[:n], busiest, total)
}

// rule gives the second of two big flows a queue by an ntuple rule, where the driver has them switched on.
func (m *maker) rule(s *steered, big []flow, bucket int) bool {
	n := m.nic(s.dev)
	var on map[string]bool
	if m.in.Snapshot.Get(knob.Ref{Knob: knob.Features, Target: knob.Target(s.dev)}).Decode(&on) != nil || !on["rx-ntuple-filter"] ||
		!m.in.Policy.allows(knob.NtupleRule) || nic.Support(n.Driver, knob.NtupleRule) == nic.NotOffered {
		return false
	}
	load := make([]float64, len(s.cpus))
	for b, q := range s.table {
		load[q] += s.buckets[b]
	}
	added := false
	for _, f := range big[1:] { // the biggest keeps its queue
		to := -1
		for q, c := range s.cpus {
			if c != balance.Unused && q != s.table[bucket] && (to < 0 || load[q] < load[to]) {
				to = q
			}
		}
		if f.kind() == "" || to < 0 {
			continue
		}
		location := 0
		for m.has(s.dev, location) {
			location++
		}
		w := s.buckets[bucket] * f.share
		ref := knob.Ref{Knob: knob.NtupleRule, Target: knob.On(s.dev, "rule-%d", location)}
		if m.add(Change{Knob: ref.Knob, Target: ref.Target, From: knob.Absent("no rule there"), Findings: []diagnose.ID{"RX205"}, Risk: Reorder,
			To: knob.Fields(map[string]any{"flow": f.kind(), "queue": to, "src-ip": addr(f.Source), "dst-ip": addr(f.Destination),
				"src-port": fmt.Sprint(f.Source.Port()), "dst-port": fmt.Sprint(f.Destination.Port())}),
			Why:    fmt.Sprintf("%s; %d big flows share bucket %d, which no table can part: %s goes to rx-%d by a rule of its own", s.why, len(big), bucket, f.text(), to),
			Expect: fmt.Sprintf("rx-%d loses %s of a CPU to rx-%d, which has %s now", s.table[bucket], percent(w), to, percent(load[to]))}) {
			added = true
			load[to] += w
		}
	}
	return added
}

func addr(a netip.AddrPort) string { return a.Addr().Unmap().String() }

// has reports whether a location of a device's rules is taken, by the host or the plan.
func (m *maker) has(dev string, location int) bool {
	ref := knob.Ref{Knob: knob.NtupleRule, Target: knob.On(dev, "rule-%d", location)}
	return m.in.Snapshot.Get(ref).Known() || slices.ContainsFunc(m.p.Changes, func(c Change) bool { return c.Ref() == ref })
}

// key looks for a hash key that parts the big flows. It is found by hashing the known flows with many keys; all
// other load is expected to spread as evenly as the table lets it.
func (m *maker) key(s *steered, apart []flow, bucket int, total float64) bool {
	ref := knob.Ref{Knob: knob.RSSKey, Target: knob.Target(s.dev)}
	from := m.in.Snapshot.Get(ref)
	rss, _ := collector.RSSOf(m.in.Snapshot, s.dev)
	rss.Table = s.table
	n := m.nic(s.dev)
	switch {
	case !from.Known() || len(rss.Key) < 16:
		m.p.reason("RX205 of %s: %d big flows share bucket %d; its hash key is %s (%s), so they cannot be parted by another", s.dev, len(apart), bucket, from, from.Reason())
		return false
	case nic.Support(n.Driver, knob.RSSKey) == nic.NotOffered || !m.in.Policy.allows(knob.RSSKey):
		m.p.reason("RX205 of %s: %d big flows share bucket %d; neither driver nor policy let the hash key be set", s.dev, len(apart), bucket)
		return false
	}
	type weighed struct {
		flow
		load float64
	}
	var known []weighed
	rest := total
	for _, f := range m.flows(s.dev, -1) {
		w := weighed{f, s.buckets[f.bucket] * f.share}
		if bucketOf(f, rss, rss.Key) != f.bucket {
			continue // hashed otherwise than is known: no prediction
		}
		known, rest = append(known, w), rest-w.load
	}
	if len(known) < 2 || !slices.ContainsFunc(known, func(w weighed) bool { return w.bucket == bucket }) {
		m.p.reason("RX205 of %s: how its big flows are hashed is not known well enough to choose a key", s.dev)
		return false
	}
	rest = max(0, rest)
	base := make([]float64, len(s.cpus))
	queues := 0
	for _, q := range s.table {
		base[q] += rest / float64(len(s.table))
	}
	biggest := 0.0
	for _, w := range known {
		biggest = max(biggest, w.load)
	}
	for _, c := range s.cpus {
		if c != balance.Unused {
			queues++
		}
	}
	bound := max(biggest, total/float64(queues))
	load := make([]float64, len(base))
	heat := func(key []byte) float64 {
		copy(load, base)
		for _, w := range known {
			if b := bucketOf(w.flow, rss, key); b >= 0 {
				load[s.table[b]] += w.load
			}
		}
		return slices.Max(load)
	}
	// The same flows and key give the same answer.
	var seed [32]byte
	copy(seed[:], rss.Key)
	random := rand.NewChaCha8(seed)
	now := heat(rss.Key)
	best, least := []byte(nil), now
	for range keys {
		k := make([]byte, len(rss.Key))
		_, _ = random.Read(k) // never fails
		if h := heat(k); h < least {
			best, least = k, h
		}
		if least <= bound*(1+slack) {
			break
		}
	}
	if least > now*(1-coolest) {
		m.p.reason("RX205 of %s: of %d hash keys none parts its big flows", s.dev, keys)
		return false
	}
	return m.add(Change{Knob: ref.Knob, Target: ref.Target, From: from, To: knob.Text(keyText(best)), Findings: []diagnose.ID{"RX205"}, Risk: Reorder,
		Why:    fmt.Sprintf("%s; %d big flows (%s and %s) share bucket %d, which no table can part: with this key the %d known flows fall into other buckets", s.why, len(apart), apart[0].text(), apart[1].text(), bucket, len(known)),
		Expect: fmt.Sprintf("the hottest queue takes %s of a CPU now and about %s then (no key does better than %s); every flow may change its queue once", percent(now), percent(least), percent(bound))})
}

// keyText is a key as ethtool takes it.
func keyText(key []byte) string {
	var b strings.Builder
	for i := range key {
		if i > 0 {
			b.WriteByte(':')
		}
		b.WriteString(hex.EncodeToString(key[i : i+1]))
	}
	return b.String()
}

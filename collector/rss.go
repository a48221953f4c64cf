package collector

import (
	"encoding/hex"
	"maps"
	"slices"
	"strings"

	"github.com/rxsteer/rxsteer/bpf"
	"github.com/rxsteer/rxsteer/internal/host/knob"
	"github.com/rxsteer/rxsteer/internal/toeplitz"
)

// RSS is how a device spreads packets over its receive queues, as it is set. The
// zero value of a field is "not told": what follows from it is then a guess and labelled so.
type RSS struct {
	Netns   uint64 // inode of the device's network namespace
	IfIndex int
	Device  string
	// Table is bucket → rx queue. nil: the device has none, and only classes and flows are counted.
	Table     []int
	Key       []byte
	Function  string             // "toeplitz", "xor", …
	Transform toeplitz.Transform // of the fields before they are hashed
	// Fields are ethtool -n's letters by flow type: {"tcp4": "sdfn", "udp4": "sd"}; nil: not told.
	Fields map[string]string
	// RXHash is the feature rx-hashing: the driver leaves its hash in the packet, if it has one.
	RXHash bool
}

// RSSOf takes what a Snapshot says of a device; ok is false where it does not know the device.
func RSSOf(s *knob.Snapshot, device string) (r RSS, ok bool) {
	r = RSS{Netns: s.Host.Netns, Device: device}
	for _, d := range s.Devices {
		if d.Name == device {
			r.IfIndex, ok = d.IfIndex, true
		}
	}
	if !ok {
		return RSS{}, false
	}
	get := func(k knob.Kind, t knob.Target, dst any) bool {
		return s.Get(knob.Ref{Knob: k, Target: t}).Decode(dst) == nil
	}
	target := knob.Target(device)
	get(knob.RSSTable, target, &r.Table)
	get(knob.RSSFunction, target, &r.Function)
	get(knob.RSSXfrm, target, &r.Transform)
	var key string
	if get(knob.RSSKey, target, &key) {
		r.Key, _ = hex.DecodeString(strings.ReplaceAll(key, ":", "")) // a key that is none is not told
	}
	for _, flow := range bpf.FlowTypeNames {
		var letters string
		if get(knob.RSSHashFields, knob.On(device, "%s", flow), &letters) {
			if r.Fields == nil {
				r.Fields = map[string]string{}
			}
			r.Fields[flow] = letters
		}
	}
	for _, k := range []knob.Kind{knob.Features, knob.FeaturesFixed} {
		var on map[string]bool
		if get(k, target, &on) && on["rx-hashing"] {
			r.RXHash = true
		}
	}
	return r, true
}

// spread is the device for the BPF programs. What is not told is guessed: the key that several
// drivers have as default, and hashing by addresses and ports.
func (r *RSS) spread() bpf.SpreadDevice {
	d := bpf.SpreadDevice{Netns: uint32(r.Netns), IfIndex: uint32(r.IfIndex), Table: r.Table, Key: r.Key, Transform: r.Transform, RXHash: r.RXHash}
	if len(r.Key) == 0 {
		d.Key = toeplitz.MicrosoftKey
	}
	for i, flow := range bpf.FlowTypeNames {
		d.Fields[i] = r.fields(flow)
	}
	return d
}

// fields are the letters of a flow type. One that a driver does not name falls back to the
// addresses, which is how cards treat IP packets whose protocol they do not hash; drivers rarely
// name ip4 and ip6, where that is always so.
func (r *RSS) fields(flow string) string {
	if r.Fields == nil {
		if strings.HasPrefix(flow, "ip") || strings.HasPrefix(flow, "sctp") {
			return "sd"
		}
		return "sdfn"
	}
	if letters, ok := r.Fields[flow]; ok {
		return letters
	}
	if letters, ok := r.Fields["ip"+flow[len(flow)-1:]]; ok {
		return letters
	}
	for _, l4 := range []string{"tcp", "udp"} {
		if strings.ContainsAny(r.Fields[l4+flow[len(flow)-1:]], "sd") {
			return "sd"
		}
	}
	return ""
}

// exact reports whether our hash of the device's packets is its own: key and function are told, and so
// are the fields of what is hashed, as a set every card means the same by.
func (r *RSS) exact() bool {
	if len(r.Key) == 0 || r.Function != "" && r.Function != "toeplitz" || r.Fields == nil {
		return false
	}
	for _, flow := range bpf.FlowTypeNames {
		if f := r.fields(flow); f != "" && f != "sd" && f != "sdfn" {
			return false
		}
	}
	return true
}

// sameHash reports whether buckets counted by r and by o are of the same kind.
func (r *RSS) sameHash(o *RSS) bool {
	return len(r.Table) == len(o.Table) && r.Function == o.Function && r.Transform == o.Transform && r.RXHash == o.RXHash &&
		slices.Equal(r.Key, o.Key) && maps.Equal(r.Fields, o.Fields)
}

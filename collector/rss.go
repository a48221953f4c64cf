package collector

import (
	"encoding/hex"
	"strings"

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
	for _, flow := range flowTypes {
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

// flowTypes are those a packet can be of here, by their names in ethtool -n.
var flowTypes = [...]string{"tcp4", "udp4", "sctp4", "ip4", "tcp6", "udp6", "sctp6", "ip6"}

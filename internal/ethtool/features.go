package ethtool

import (
	"fmt"
	"maps"
	"slices"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// ETHTOOL_A_FEATURES_* and ETHTOOL_A_BITSET_* of linux/ethtool_netlink_generated.h.
const (
	featuresHW       = 2 // can be changed by the user
	featuresWanted   = 3
	featuresActive   = 4
	featuresNoChange = 5 // cannot, on any device

	bitsetBits   = 3
	bitsetBit    = 1
	bitName      = 2
	bitValue     = 3
	bitsetNoMask = 1
)

// bitset reads a bitset in its verbose form: bits by name. A bitset without mask lists only
// the bits that are set; one with a mask lists every bit of it and marks those set.
func bitset(ad *netlink.AttributeDecoder) map[string]bool {
	out := map[string]bool{}
	noMask := false
	nested(ad, func(ad *netlink.AttributeDecoder) {
		switch ad.Type() {
		case bitsetNoMask:
			noMask = true
		case bitsetBits:
			nested(ad, func(ad *netlink.AttributeDecoder) {
				if ad.Type() != bitsetBit {
					return
				}
				name, on := "", false
				nested(ad, func(ad *netlink.AttributeDecoder) {
					switch ad.Type() {
					case bitName:
						name = ad.String()
					case bitValue:
						on = true
					}
				})
				if name != "" {
					out[name] = on
				}
			})
		}
	})
	if noMask {
		for name := range out {
			out[name] = true
		}
	}
	return out
}

// parseFeatures reads a FEATURES_GET reply with verbose bitsets.
func parseFeatures(b []byte) (Features, error) {
	var hw, wanted, active, never map[string]bool
	err := attributes(b, func(ad *netlink.AttributeDecoder) {
		switch ad.Type() {
		case featuresHW:
			hw = bitset(ad)
		case featuresWanted:
			wanted = bitset(ad)
		case featuresActive:
			active = bitset(ad)
		case featuresNoChange:
			never = bitset(ad)
		}
	})
	if err != nil {
		return Features{}, err
	}
	f := Features{Active: map[string]bool{}, Wanted: map[string]bool{}, Fixed: map[string]bool{}}
	for _, m := range []map[string]bool{hw, wanted, active, never} {
		for name := range m {
			f.Active[name] = active[name]
			f.Wanted[name] = wanted[name]
			f.Fixed[name] = !hw[name] || never[name]
		}
	}
	return f, nil
}

// Features reads the offloads.
func (c *Client) Features(dev string) (Features, error) {
	b, err := c.get("get features", unix.ETHTOOL_MSG_FEATURES_GET, dev)
	if err != nil {
		return Features{}, err
	}
	f, err := parseFeatures(b)
	if err != nil {
		return Features{}, fmt.Errorf("get features of %s: %w", dev, err)
	}
	return f, nil
}

// SetFeatures asks for offloads to be on or off. The kernel answers success also when a
// dependency keeps one from changing: read back.
func (c *Client) SetFeatures(dev string, changed map[string]bool) error {
	return c.set("set features", unix.ETHTOOL_MSG_FEATURES_SET, dev, func(ae *netlink.AttributeEncoder) {
		ae.Nested(featuresWanted, func(ae *netlink.AttributeEncoder) error {
			ae.Nested(bitsetBits, func(ae *netlink.AttributeEncoder) error {
				for _, name := range slices.Sorted(maps.Keys(changed)) {
					ae.Nested(bitsetBit, func(ae *netlink.AttributeEncoder) error {
						ae.String(bitName, name)
						ae.Flag(bitValue, changed[name])
						return nil
					})
				}
				return nil
			})
			return nil
		})
	})
}

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
	if !c.has[unix.ETHTOOL_MSG_FEATURES_GET] {
		names, b, err := c.featureBlocks(dev)
		if err != nil {
			return Features{}, err
		}
		return parseFeatureBlocks(names, b)
	}
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
	if !c.has[unix.ETHTOOL_MSG_FEATURES_SET] {
		return c.setFeatureBlocks(dev, changed)
	}
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

// struct ethtool_gfeatures and ethtool_sfeatures of linux/ethtool.h, for kernels before
// 5.8: cmd, number of blocks, then per 32 features the words available, requested,
// active, never_changed, and to set valid, requested. Bit i is string i of ETH_SS_FEATURES.
const (
	getFeatures = 0x3a // ETHTOOL_GFEATURES
	setFeatures = 0x3b // ETHTOOL_SFEATURES
)

func (c *Client) featureBlocks(dev string) (names []string, b []byte, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	n, err := c.stringCount("count features", dev, ssFeatures)
	if err != nil {
		return nil, nil, err
	}
	if names, err = c.strings("name features", dev, ssFeatures, n); err != nil {
		return nil, nil, err
	}
	blocks := (len(names) + 31) / 32
	b = make([]byte, 4*(2+4*blocks))
	putWord(b, 0, getFeatures)
	putWord(b, 1, uint32(blocks))
	return names, b, c.ioctl("get features", dev, b)
}

func parseFeatureBlocks(names []string, b []byte) (Features, error) {
	f := Features{Active: map[string]bool{}, Wanted: map[string]bool{}, Fixed: map[string]bool{}}
	if len(b) < 4*(2+4*((len(names)+31)/32)) {
		return Features{}, fmt.Errorf("get features: %w: %d names, %d bytes", ErrMalformed, len(names), len(b))
	}
	for i, name := range names {
		if name == "" { // a bit without a feature
			continue
		}
		at, bit := 2+4*(i/32), uint32(1)<<(i%32)
		f.Fixed[name] = word(b, at)&bit == 0 || word(b, at+3)&bit != 0
		f.Wanted[name] = word(b, at+1)&bit != 0
		f.Active[name] = word(b, at+2)&bit != 0
	}
	return f, nil
}

func (c *Client) setFeatureBlocks(dev string, changed map[string]bool) error {
	names, _, err := c.featureBlocks(dev)
	if err != nil {
		return err
	}
	blocks := (len(names) + 31) / 32
	b := make([]byte, 4*(2+2*blocks))
	putWord(b, 0, setFeatures)
	putWord(b, 1, uint32(blocks))
	for name, on := range changed {
		i := slices.Index(names, name)
		if i < 0 {
			return &Error{Op: "set features of " + dev, Errno: unix.EOPNOTSUPP, Message: "no feature " + name}
		}
		at, bit := 2+2*(i/32), uint32(1)<<(i%32)
		putWord(b, at, word(b, at)|bit)
		if on {
			putWord(b, at+1, word(b, at+1)|bit)
		}
	}
	return c.ioctl("set features", dev, b)
}

package ethtool

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// DIM profiles (ETHTOOL_A_COALESCE_RX_PROFILE, 6.11): a list of moderation steps.
// Attribute step i of the receive list is "rx-profile-i-usecs", "-frames", "-comps".
const (
	rxProfile = 29
	txProfile = 30
	irqModer  = 1 // ETHTOOL_A_PROFILE_IRQ_MODERATION
)

var moderation = [...]string{1: "usecs", 2: "frames", 3: "comps"} // ETHTOOL_A_IRQ_MODERATION_*

// maxSteps bounds what is read of a profile; the kernel has NET_DIM_PARAMS_NUM_PROFILES = 5.
const maxSteps = 64

func parseCoalesce(b []byte) (Group, error) {
	g, _, err := coalesceTable.parse(b)
	if err != nil {
		return nil, err
	}
	err = attributes(b, func(ad *netlink.AttributeDecoder) {
		prefix := ""
		switch ad.Type() {
		case rxProfile:
			prefix = "rx-profile-"
		case txProfile:
			prefix = "tx-profile-"
		default:
			return
		}
		i := 0
		nested(ad, func(ad *netlink.AttributeDecoder) {
			if ad.Type() != irqModer || i >= maxSteps {
				return
			}
			nested(ad, func(ad *netlink.AttributeDecoder) {
				if n := int(ad.Type()); n > 0 && n < len(moderation) {
					g[prefix+strconv.Itoa(i)+"-"+moderation[n]] = uint32(uintOf(ad))
				}
			})
			i++
		})
	})
	if err != nil {
		return nil, err
	}
	return g, nil
}

// Coalesce reads interrupt moderation. Attributes the driver does not have are left
// out over netlink and 0 over the ioctl.
func (c *Client) Coalesce(dev string) (Group, error) {
	if !c.has[coalesceTable.get] {
		g, _, err := c.read(&coalesceTable, dev)
		return g, err
	}
	b, err := c.get("get coalesce", coalesceTable.get, dev)
	if err != nil {
		return nil, err
	}
	g, err := parseCoalesce(b)
	if err != nil {
		return nil, fmt.Errorf("get coalesce of %s: %w", dev, err)
	}
	return g, nil
}

// SetCoalesce changes interrupt moderation. A profile goes over whole, with its
// other steps as they are, since the kernel takes it by position.
func (c *Client) SetCoalesce(dev string, changed Group) error {
	plain, profiles := Group{}, false
	for k, v := range changed {
		if strings.Contains(k, "-profile-") {
			profiles = true
		} else {
			plain[k] = v
		}
	}
	if !profiles {
		return c.write(&coalesceTable, dev, plain)
	}
	now, err := c.Coalesce(dev)
	if err != nil {
		return err
	}
	for k, v := range changed {
		if _, ok := now[k]; !ok {
			return &Error{Op: "set coalesce of " + dev, Errno: unix.EOPNOTSUPP, Message: "no attribute " + k}
		}
		now[k] = v
	}
	return c.set("set coalesce", coalesceTable.set, dev, func(ae *netlink.AttributeEncoder) {
		coalesceTable.encode(ae, plain)
		for prefix, nl := range map[string]uint16{"rx-profile-": rxProfile, "tx-profile-": txProfile} {
			if touches(changed, prefix) {
				encodeProfile(ae, nl, prefix, now)
			}
		}
	})
}

func touches(g Group, prefix string) bool {
	for k := range g {
		if strings.HasPrefix(k, prefix) {
			return true
		}
	}
	return false
}

func encodeProfile(ae *netlink.AttributeEncoder, nl uint16, prefix string, g Group) {
	ae.Nested(nl, func(ae *netlink.AttributeEncoder) error {
		for i := range maxSteps {
			step := prefix + strconv.Itoa(i) + "-"
			if !touches(g, step) {
				break
			}
			ae.Nested(irqModer, func(ae *netlink.AttributeEncoder) error {
				for n := 1; n < len(moderation); n++ {
					if v, ok := g[step+moderation[n]]; ok {
						ae.Uint32(uint16(n), v)
					}
				}
				return nil
			})
		}
		return nil
	})
}

// Per-queue moderation is ioctl only: struct ethtool_per_queue_op of linux/ethtool.h.
const (
	perQueue   = 0x4b // ETHTOOL_PERQUEUE
	maxQueues  = 4096 // MAX_NUM_QUEUE
	perQueueHd = 2 + maxQueues/32
)

// QueueCoalesce reads the moderation of queues 0 … n−1, all in one ioctl. Attributes
// that neither the device's own settings nor the queue uses are left out: the
// structure has no way to say "not supported".
func (c *Client) QueueCoalesce(dev string, n int) ([]Group, error) {
	if n < 1 || n > maxQueues {
		return nil, &Error{Op: "get queue coalesce of " + dev, Errno: unix.EINVAL, Message: "number of queues out of range"}
	}
	b := make([]byte, 4*(perQueueHd+n*coalesceTable.words))
	putWord(b, 0, perQueue)
	putWord(b, 1, coalesceTable.gio)
	for q := range n {
		putWord(b, 2+q/32, word(b, 2+q/32)|1<<(q%32))
	}
	if err := c.ioctl("get queue coalesce", dev, b); err != nil {
		return nil, err
	}
	device, err := c.Coalesce(dev)
	if err != nil {
		return nil, err
	}
	out := make([]Group, n)
	for q := range n {
		g, _, err := coalesceTable.parseWords(b[4*(perQueueHd+q*coalesceTable.words):])
		if err != nil {
			return nil, err
		}
		for k, v := range g {
			if _, ok := device[k]; !ok && v == 0 {
				delete(g, k)
			}
		}
		out[q] = g
	}
	return out, nil
}

// SetQueueCoalesce changes the moderation of one queue. The ioctl takes the whole
// structure, which is read a moment before.
func (c *Client) SetQueueCoalesce(dev string, queue int, changed Group) error {
	op := "set queue coalesce"
	if queue < 0 || queue >= maxQueues {
		return &Error{Op: op + " of " + dev, Errno: unix.EINVAL, Message: "queue out of range"}
	}
	for k := range changed {
		if a, ok := coalesceTable.named(k); !ok || a.word == 0 {
			return &Error{Op: op + " of " + dev, Errno: unix.EOPNOTSUPP, Message: "no attribute " + k}
		}
	}
	b := make([]byte, 4*(perQueueHd+coalesceTable.words))
	putWord(b, 0, perQueue)
	putWord(b, 1, coalesceTable.gio)
	putWord(b, 2+queue/32, 1<<(queue%32))
	if err := c.ioctl(op, dev, b); err != nil {
		return err
	}
	coalesceTable.put(b[4*perQueueHd:], changed)
	putWord(b, 0, perQueue)
	putWord(b, 1, coalesceTable.sio)
	putWord(b, perQueueHd, coalesceTable.sio)
	return c.ioctl(op, dev, b)
}

package ethtool

import (
	"encoding/binary"
	"fmt"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// attr is one attribute of a group: ethtool(8)'s name, its number, its width, the
// number of the attribute with its maximum (0 none), and its place in the
// structure of the older ioctl (index of a 32-bit word; 0 none).
type attr struct {
	name string
	nl   uint16
	byte bool // NLA_U8, else NLA_U32
	max  uint16
	word int
}

// table is a settings message: its attributes and both interfaces' commands.
type table struct {
	what     string
	get, set uint8  // netlink messages
	gio, sio uint32 // ioctl commands
	words    int    // size of the ioctl structure in 32-bit words
	maxWord  int    // added to an attribute's word for its maximum; negative: none
	attrs    []attr
}

// Numbers from linux/ethtool_netlink_generated.h (ETHTOOL_A_CHANNELS_* …) and the
// structures of linux/ethtool.h.
var (
	channelsTable = table{
		what: "channels", get: unix.ETHTOOL_MSG_CHANNELS_GET, set: unix.ETHTOOL_MSG_CHANNELS_SET,
		gio: 0x3c, sio: 0x3d, words: 9, maxWord: -4,
		attrs: []attr{
			{name: "rx", nl: 6, max: 2, word: 5},
			{name: "tx", nl: 7, max: 3, word: 6},
			{name: "other", nl: 8, max: 4, word: 7},
			{name: "combined", nl: 9, max: 5, word: 8},
		},
	}
	ringsTable = table{
		what: "rings", get: unix.ETHTOOL_MSG_RINGS_GET, set: unix.ETHTOOL_MSG_RINGS_SET,
		gio: 0x10, sio: 0x11, words: 9, maxWord: -4,
		attrs: []attr{
			{name: "rx", nl: 6, max: 2, word: 5},
			{name: "rx-mini", nl: 7, max: 3, word: 6},
			{name: "rx-jumbo", nl: 8, max: 4, word: 7},
			{name: "tx", nl: 9, max: 5, word: 8},
			{name: "rx-buf-len", nl: 10},
			{name: "tcp-data-split", nl: 11, byte: true},
			{name: "cqe-size", nl: 12},
			{name: "tx-push", nl: 13, byte: true},
			{name: "rx-push", nl: 14, byte: true},
			{name: "tx-push-buf-len", nl: 15, max: 16},
			{name: "hds-thresh", nl: 17, max: 18},
		},
	}
	coalesceTable = table{
		what: "coalesce", get: unix.ETHTOOL_MSG_COALESCE_GET, set: unix.ETHTOOL_MSG_COALESCE_SET,
		gio: 0x0e, sio: 0x0f, words: 23, maxWord: 0,
		attrs: []attr{
			{name: "rx-usecs", nl: 2, word: 1},
			{name: "rx-frames", nl: 3, word: 2},
			{name: "rx-usecs-irq", nl: 4, word: 3},
			{name: "rx-frames-irq", nl: 5, word: 4},
			{name: "tx-usecs", nl: 6, word: 5},
			{name: "tx-frames", nl: 7, word: 6},
			{name: "tx-usecs-irq", nl: 8, word: 7},
			{name: "tx-frames-irq", nl: 9, word: 8},
			{name: "stats-block-usecs", nl: 10, word: 9},
			{name: "adaptive-rx", nl: 11, byte: true, word: 10},
			{name: "adaptive-tx", nl: 12, byte: true, word: 11},
			{name: "pkt-rate-low", nl: 13, word: 12},
			{name: "rx-usecs-low", nl: 14, word: 13},
			{name: "rx-frames-low", nl: 15, word: 14},
			{name: "tx-usecs-low", nl: 16, word: 15},
			{name: "tx-frames-low", nl: 17, word: 16},
			{name: "pkt-rate-high", nl: 18, word: 17},
			{name: "rx-usecs-high", nl: 19, word: 18},
			{name: "rx-frames-high", nl: 20, word: 19},
			{name: "tx-usecs-high", nl: 21, word: 20},
			{name: "tx-frames-high", nl: 22, word: 21},
			{name: "sample-interval", nl: 23, word: 22},
			{name: "cqe-mode-tx", nl: 24, byte: true},
			{name: "cqe-mode-rx", nl: 25, byte: true},
			{name: "tx-aggr-max-bytes", nl: 26},
			{name: "tx-aggr-max-frames", nl: 27},
			{name: "tx-aggr-time-usecs", nl: 28},
		},
	}
	pauseTable = table{
		what: "pause", get: unix.ETHTOOL_MSG_PAUSE_GET, set: unix.ETHTOOL_MSG_PAUSE_SET,
		gio: 0x12, sio: 0x13, words: 4, maxWord: 0,
		attrs: []attr{
			{name: "autoneg", nl: 2, byte: true, word: 1},
			{name: "rx", nl: 3, byte: true, word: 2},
			{name: "tx", nl: 4, byte: true, word: 3},
		},
	}
)

func (t *table) named(name string) (attr, bool) {
	for _, a := range t.attrs {
		if a.name == name {
			return a, true
		}
	}
	return attr{}, false
}

// uintOf reads an unsigned attribute of 1, 2, 4 or 8 bytes; NLA_UINT has 4 or 8.
func uintOf(ad *netlink.AttributeDecoder) uint64 {
	switch b := ad.Bytes(); len(b) {
	case 1:
		return uint64(b[0])
	case 2:
		return uint64(binary.NativeEndian.Uint16(b))
	case 4:
		return uint64(binary.NativeEndian.Uint32(b))
	case 8:
		return binary.NativeEndian.Uint64(b)
	}
	return 0
}

// parse reads a reply into values and maxima.
func (t *table) parse(b []byte) (now, limit Group, err error) {
	now, limit = Group{}, Group{}
	err = attributes(b, func(ad *netlink.AttributeDecoder) {
		n := ad.Type()
		for _, a := range t.attrs {
			switch n {
			case a.nl:
				now[a.name] = uint32(uintOf(ad))
				return
			case a.max:
				if a.max != 0 {
					limit[a.name] = uint32(uintOf(ad))
					return
				}
			}
		}
	})
	if err != nil {
		return nil, nil, err
	}
	return now, limit, nil
}

// parseWords is parse for the structure of the ioctl.
func (t *table) parseWords(b []byte) (now, limit Group, err error) {
	if len(b) < 4*t.words {
		return nil, nil, fmt.Errorf("%w: %d bytes, not %d", ErrMalformed, len(b), 4*t.words)
	}
	now, limit = Group{}, Group{}
	for _, a := range t.attrs {
		if a.word == 0 {
			continue
		}
		now[a.name] = word(b, a.word)
		if t.maxWord != 0 {
			limit[a.name] = word(b, a.word+t.maxWord)
		}
	}
	return now, limit, nil
}

func word(b []byte, i int) uint32       { return binary.NativeEndian.Uint32(b[4*i:]) }
func putWord(b []byte, i int, v uint32) { binary.NativeEndian.PutUint32(b[4*i:], v) }

// read asks over netlink, or by ioctl where the kernel has no such message.
func (c *Client) read(t *table, dev string) (now, limit Group, err error) {
	if !c.has[t.get] {
		b, err := c.readWords(t, dev)
		if err != nil {
			return nil, nil, err
		}
		return t.parseWords(b)
	}
	b, err := c.get("get "+t.what, t.get, dev)
	if err != nil {
		return nil, nil, err
	}
	now, limit, err = t.parse(b)
	if err != nil {
		return nil, nil, fmt.Errorf("get %s of %s: %w", t.what, dev, err)
	}
	return now, limit, nil
}

func (c *Client) readWords(t *table, dev string) ([]byte, error) {
	b := make([]byte, 4*t.words)
	putWord(b, 0, t.gio)
	if err := c.ioctl("get "+t.what, dev, b); err != nil {
		return nil, err
	}
	return b, nil
}

// write sends the changed attributes only. The ioctl takes the whole structure: it is
// read a moment before, so that the others are written as they were.
func (c *Client) write(t *table, dev string, changed Group) error {
	op := "set " + t.what + " of " + dev
	for name := range changed {
		if a, ok := t.named(name); !ok || !c.has[t.set] && a.word == 0 {
			return &Error{Op: op, Errno: unix.EOPNOTSUPP, Message: "no attribute " + name}
		}
	}
	if !c.has[t.set] {
		b, err := c.readWords(t, dev)
		if err != nil {
			return err
		}
		t.put(b, changed)
		putWord(b, 0, t.sio)
		return c.ioctl("set "+t.what, dev, b)
	}
	return c.set("set "+t.what, t.set, dev, func(ae *netlink.AttributeEncoder) { t.encode(ae, changed) })
}

func (t *table) put(b []byte, changed Group) {
	for _, a := range t.attrs {
		if v, ok := changed[a.name]; ok && a.word != 0 {
			putWord(b, a.word, v)
		}
	}
}

func (t *table) encode(ae *netlink.AttributeEncoder, changed Group) {
	for _, a := range t.attrs {
		v, ok := changed[a.name]
		switch {
		case !ok:
		case a.byte:
			ae.Uint8(a.nl, uint8(v))
		default:
			ae.Uint32(a.nl, v)
		}
	}
}

// Channels reads the queue counts in use and their maxima.
func (c *Client) Channels(dev string) (now, limit Group, err error) {
	return c.read(&channelsTable, dev)
}

// SetChannels changes queue counts.
func (c *Client) SetChannels(dev string, changed Group) error {
	return c.write(&channelsTable, dev, changed)
}

// Rings reads ring sizes and their maxima.
func (c *Client) Rings(dev string) (now, limit Group, err error) { return c.read(&ringsTable, dev) }

// SetRings changes ring sizes.
func (c *Client) SetRings(dev string, changed Group) error { return c.write(&ringsTable, dev, changed) }

// Pause reads flow control: autoneg, rx and tx, each 0 or 1.
func (c *Client) Pause(dev string) (Group, error) {
	g, _, err := c.read(&pauseTable, dev)
	return g, err
}

// SetPause changes flow control.
func (c *Client) SetPause(dev string, changed Group) error {
	return c.write(&pauseTable, dev, changed)
}

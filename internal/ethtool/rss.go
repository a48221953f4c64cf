package ethtool

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/bits"
	"slices"

	"github.com/mdlayher/netlink"
)

// Messages and attributes of linux/ethtool_netlink_generated.h that x/sys lacks.
const (
	msgRSSGet = 38 // ETHTOOL_MSG_RSS_GET, 6.2
	msgRSSSet = 48 // ETHTOOL_MSG_RSS_SET, 6.17

	msgRSSCreate = 49 // ETHTOOL_MSG_RSS_CREATE_ACT, 6.17
	msgRSSDelete = 50 // ETHTOOL_MSG_RSS_DELETE_ACT, 6.17

	rssContext = 2 // ETHTOOL_A_RSS_CONTEXT
	rssHFunc   = 3 // ETHTOOL_A_RSS_HFUNC: bit number is the index below
	rssIndir   = 4 // ETHTOOL_A_RSS_INDIR: array of 32-bit queue numbers
	rssHKey    = 5 // ETHTOOL_A_RSS_HKEY
	rssXfrm    = 6 // ETHTOOL_A_RSS_INPUT_XFRM
	rssFlow    = 8 // ETHTOOL_A_RSS_FLOW_HASH, 6.17: ETHTOOL_A_FLOW_* → NLA_UINT of RXH_* bits
)

// Hash functions by bit (rss_hash_func_strings in net/ethtool/common.c).
var hashFunctions = [...]string{"toeplitz", "xor", "crc32"}

func functionName(bitset uint32) string {
	if bitset == 0 {
		return ""
	}
	i := bits.TrailingZeros32(bitset)
	if i < len(hashFunctions) {
		return hashFunctions[i]
	}
	return fmt.Sprintf("function-%d", i)
}

func functionBit(name string) (uint32, error) {
	i := slices.Index(hashFunctions[:], name)
	if i < 0 {
		return 0, fmt.Errorf("hash function %q: %w", name, ErrInvalid)
	}
	return 1 << i, nil
}

// parseRSS reads an RSS_GET reply.
func parseRSS(b []byte) (RSS, error) {
	var r RSS
	err := attributes(b, func(ad *netlink.AttributeDecoder) {
		switch ad.Type() {
		case rssContext:
			r.Context = ad.Uint32()
		case rssHFunc:
			r.Function = functionName(ad.Uint32())
		case rssIndir:
			r.Table = queues(ad.Bytes())
		case rssHKey:
			r.Key = slices.Clone(ad.Bytes())
		case rssXfrm:
			r.Xfrm = ad.Uint32()
		case rssFlow:
			r.Fields = map[string]string{}
			nested(ad, func(ad *netlink.AttributeDecoder) {
				for _, f := range flows {
					if f.nl == ad.Type() {
						r.Fields[f.name] = hashText(uint32(uintOf(ad)))
					}
				}
			})
		}
	})
	return r, err
}

// queues reads an array of 32-bit numbers; a cut-off last one is dropped.
func queues(b []byte) []int {
	out := make([]int, len(b)/4)
	for i := range out {
		out[i] = int(binary.NativeEndian.Uint32(b[4*i:]))
	}
	return out
}

// RSS reads the default context and, where the kernel lists them (6.11), all others.
func (c *Client) RSS(dev string) ([]RSS, error) {
	if !c.has[msgRSSGet] {
		r, err := c.rssByIoctl(dev, 0)
		if err != nil {
			return nil, err
		}
		return []RSS{r}, nil
	}
	first, err := c.get("get rss", msgRSSGet, dev)
	if err != nil {
		return nil, err
	}
	r, err := parseRSS(first)
	if err != nil {
		return nil, fmt.Errorf("get rss of %s: %w", dev, err)
	}
	out := []RSS{r}
	// Kernels before 6.11 refuse the dump: then only the default context is known.
	msgs, err := c.request("list rss contexts", msgRSSGet, netlink.Dump, dev, nil)
	if errors.Is(err, ErrNotSupported) {
		return out, nil
	}
	if err != nil {
		return nil, err
	}
	for _, b := range msgs {
		x, err := parseRSS(b)
		if err != nil {
			return nil, fmt.Errorf("list rss contexts of %s: %w", dev, err)
		}
		if x.Context != 0 {
			out = append(out, x)
		}
	}
	return out, nil
}

// struct ethtool_rxfh of linux/ethtool.h: cmd, rss_context, indir_size, key_size,
// hfunc and input_xfrm (6.8, reserved before) as bytes, then table and key.
const (
	getRSSH       = 0x46 // ETHTOOL_GRSSH
	setRSSH       = 0x47 // ETHTOOL_SRSSH
	rxfhWords     = 6
	rxfhHFunc     = 16
	rxfhXfrm      = 17
	indirNoChange = 0xffffffff // ETH_RXFH_INDIR_NO_CHANGE

	// maxTable and maxKey bound what is believed of a driver's sizes.
	maxTable = 1 << 16
	maxKey   = 1 << 12
)

func (c *Client) rssByIoctl(dev string, context uint32) (RSS, error) {
	size := make([]byte, 4*rxfhWords)
	putWord(size, 0, getRSSH)
	putWord(size, 1, context)
	if err := c.ioctl("get rss", dev, size); err != nil {
		return RSS{}, err
	}
	table, key := word(size, 2), word(size, 3)
	if table > maxTable || key > maxKey {
		return RSS{}, fmt.Errorf("get rss of %s: %w: table of %d, key of %d", dev, ErrMalformed, table, key)
	}
	b := make([]byte, 4*(rxfhWords+int(table))+int(key))
	copy(b, size)
	putWord(b, 0, getRSSH)
	if err := c.ioctl("get rss", dev, b); err != nil {
		return RSS{}, err
	}
	return parseRXFH(b)
}

// parseRXFH reads struct ethtool_rxfh with its table and key.
func parseRXFH(b []byte) (RSS, error) {
	if len(b) < 4*rxfhWords {
		return RSS{}, fmt.Errorf("get rss: %w: %d bytes", ErrMalformed, len(b))
	}
	table, key := uint64(word(b, 2)), uint64(word(b, 3))
	rest := b[4*rxfhWords:]
	if 4*table+key > uint64(len(rest)) {
		return RSS{}, fmt.Errorf("get rss: %w: table of %d, key of %d in %d bytes", ErrMalformed, table, key, len(rest))
	}
	r := RSS{Context: word(b, 1), Function: functionName(uint32(b[rxfhHFunc])), Xfrm: uint32(b[rxfhXfrm])}
	if table > 0 {
		r.Table = queues(rest[:4*table])
	}
	if key > 0 {
		r.Key = slices.Clone(rest[4*table : 4*table+key])
	}
	return r, nil
}

// SetRSS changes what change names of a context.
func (c *Client) SetRSS(dev string, context uint32, change RSSChange) error {
	if change.Default && change.Table != nil || change.Default && context != 0 {
		return fmt.Errorf("set rss of %s: a default table is for the default context and excludes another: %w", dev, ErrInvalid)
	}
	if c.has[msgRSSSet] {
		err := c.setRSS(dev, context, change)
		if err != nil {
			return err
		}
		// The kernel takes only the first quarter of a new table into account when
		// it asks itself whether anything changed (memcmp of indir_size bytes in
		// rss_set_prep_indir, net/ethtool/rss.c) and then answers success without
		// telling the driver. The ioctl does not ask.
		if change.Table == nil {
			return nil
		}
		now, err := c.context(dev, context)
		if err != nil {
			return err
		}
		if holds(now.Table, change.Table) {
			return nil
		}
		change = RSSChange{Table: change.Table}
	}
	return c.setRSSByIoctl(dev, context, change)
}

// allocContext asks the ioctl for a new context; the kernel or driver chooses its number.
const allocContext = 0xffffffff // ETH_RXFH_CONTEXT_ALLOC

// CreateRSS makes the RSS context with this number, spreading by table over the key and function of the
// default one. Only netlink lets the number be chosen: where the ioctl gave another one, that context is
// deleted again and the error is ErrInvalid.
func (c *Client) CreateRSS(dev string, context uint32, table []int) error {
	const op = "create rss context"
	if context == 0 || context == allocContext || len(table) == 0 {
		return fmt.Errorf("%s %d of %s with a table of %d: %w", op, context, dev, len(table), ErrInvalid)
	}
	if c.has[msgRSSCreate] {
		return c.set(op, msgRSSCreate, dev, func(ae *netlink.AttributeEncoder) {
			ae.Uint32(rssContext, context)
			ae.Bytes(rssIndir, words(table))
		})
	}
	now, err := c.rssByIoctl(dev, 0)
	if err != nil {
		return err
	}
	b, err := rxfhOf(allocContext, now, RSSChange{Table: table})
	if err != nil {
		return fmt.Errorf("%s of %s: %w", op, dev, err)
	}
	if err := c.ioctl(op, dev, b); err != nil {
		return err
	}
	got := word(b, 1)
	if got == context {
		return nil
	}
	return errors.Join(fmt.Errorf("%s %d of %s: the kernel chooses the number and gave %d: %w", op, context, dev, got, ErrInvalid), c.DeleteRSS(dev, got))
}

// DeleteRSS removes an RSS context that no rule uses (EBUSY else).
func (c *Client) DeleteRSS(dev string, context uint32) error {
	const op = "delete rss context"
	if context == 0 || context == allocContext {
		return fmt.Errorf("%s %d of %s: %w", op, context, dev, ErrInvalid)
	}
	if c.has[msgRSSDelete] {
		return c.set(op, msgRSSDelete, dev, func(ae *netlink.AttributeEncoder) { ae.Uint32(rssContext, context) })
	}
	now, err := c.rssByIoctl(dev, context)
	if err != nil {
		return err
	}
	b, err := rxfhOf(context, now, RSSChange{Default: true}) // an empty table deletes any but the default context
	if err != nil {
		return fmt.Errorf("%s of %s: %w", op, dev, err)
	}
	return c.ioctl(op, dev, b)
}

// words is an array of 32-bit numbers.
func words(table []int) []byte {
	b := make([]byte, 4*len(table))
	for i, q := range table {
		putWord(b, i, uint32(q))
	}
	return b
}

// holds reports whether a device table is want, repeated as often as it takes.
func holds(table, want []int) bool {
	if len(want) == 0 || len(table)%len(want) != 0 {
		return false
	}
	for i, q := range table {
		if q != want[i%len(want)] {
			return false
		}
	}
	return true
}

func (c *Client) context(dev string, context uint32) (RSS, error) {
	all, err := c.RSS(dev)
	if err != nil {
		return RSS{}, err
	}
	for _, r := range all {
		if r.Context == context {
			return r, nil
		}
	}
	return c.rssByIoctl(dev, context)
}

func (c *Client) setRSS(dev string, context uint32, change RSSChange) error {
	function := uint32(0)
	if change.Function != "" {
		var err error
		if function, err = functionBit(change.Function); err != nil {
			return fmt.Errorf("set rss of %s: %w", dev, err)
		}
	}
	return c.set("set rss", msgRSSSet, dev, func(ae *netlink.AttributeEncoder) {
		if context != 0 {
			ae.Uint32(rssContext, context)
		}
		if function != 0 {
			ae.Uint32(rssHFunc, function)
		}
		if change.Default {
			ae.Bytes(rssIndir, []byte{}) // an empty table resets it
		}
		if change.Table != nil {
			ae.Bytes(rssIndir, words(change.Table))
		}
		if change.Key != nil {
			ae.Bytes(rssHKey, change.Key)
		}
	})
}

func (c *Client) setRSSByIoctl(dev string, context uint32, change RSSChange) error {
	now, err := c.rssByIoctl(dev, context)
	if err != nil {
		return err
	}
	b, err := rxfhOf(context, now, change)
	if err != nil {
		return fmt.Errorf("set rss of %s: %w", dev, err)
	}
	return c.ioctl("set rss", dev, b)
}

// rxfhOf builds the request; sizes are the device's, since the ioctl takes no other.
func rxfhOf(context uint32, now RSS, change RSSChange) ([]byte, error) {
	b := make([]byte, 4*rxfhWords)
	putWord(b, 0, setRSSH)
	putWord(b, 1, context)
	putWord(b, 2, indirNoChange)
	b[rxfhXfrm] = byte(now.Xfrm) // 0 would switch symmetric hashing off
	switch {
	case change.Default:
		putWord(b, 2, 0)
	case change.Table != nil:
		if len(change.Table) == 0 || len(now.Table)%len(change.Table) != 0 {
			return nil, fmt.Errorf("table of %d entries does not fit the device's %d: %w", len(change.Table), len(now.Table), ErrInvalid)
		}
		putWord(b, 2, uint32(len(now.Table)))
		for i := range now.Table {
			b = binary.NativeEndian.AppendUint32(b, uint32(change.Table[i%len(change.Table)]))
		}
	}
	if change.Key != nil {
		if len(change.Key) != len(now.Key) {
			return nil, fmt.Errorf("key of %d bytes, the device has %d: %w", len(change.Key), len(now.Key), ErrInvalid)
		}
		putWord(b, 3, uint32(len(change.Key)))
		b = append(b, change.Key...)
	}
	if change.Function != "" {
		bit, err := functionBit(change.Function)
		if err != nil {
			return nil, err
		}
		b[rxfhHFunc] = byte(bit)
	}
	return b, nil
}

// struct ethtool_rxnfc of linux/ethtool.h: cmd, flow_type, data (64 bits), a rule,
// rule_cnt or rss_context, then rule locations from byte 188.
const (
	getRXFH   = 0x29 // ETHTOOL_GRXFH
	setRXFH   = 0x2a // ETHTOOL_SRXFH
	rxnfcSize = 192
	rxnfcLocs = 188
	flowRSS   = 0x20000000 // FLOW_RSS
)

// HashFields reads the hash fields of a flow type of the default context as letters.
func (c *Client) HashFields(dev, flow string) (string, error) {
	f, ok := flowNamed(flow)
	if !ok {
		return "", fmt.Errorf("get hash fields of %s: flow type %q: %w", dev, flow, ErrInvalid)
	}
	b := make([]byte, rxnfcSize)
	putWord(b, 0, getRXFH)
	putWord(b, 1, f.no)
	if err := c.ioctl("get "+flow+" hash fields", dev, b); err != nil {
		return "", err
	}
	return hashText(uint32(binary.NativeEndian.Uint64(b[8:]))), nil
}

// SetHashFields sets the hash fields of a flow type of the default context.
func (c *Client) SetHashFields(dev, flow, fields string) error {
	f, ok := flowNamed(flow)
	set, ok2 := hashBits(fields)
	if !ok || !ok2 {
		return fmt.Errorf("set hash fields of %s: %q of %q: %w", dev, fields, flow, ErrInvalid)
	}
	op := "set " + flow + " hash fields"
	if c.has[msgRSSSet] {
		err := c.set(op, msgRSSSet, dev, func(ae *netlink.AttributeEncoder) {
			ae.Nested(rssFlow, func(ae *netlink.AttributeEncoder) error {
				ae.Uint32(f.nl, set)
				return nil
			})
		})
		// Bits newer than the kernel's policy are refused there but may be known to the driver.
		if !errors.Is(err, ErrNotSupported) {
			return err
		}
	}
	b := make([]byte, rxnfcSize)
	putWord(b, 0, setRXFH)
	putWord(b, 1, f.no)
	binary.NativeEndian.PutUint64(b[8:], uint64(set))
	return c.ioctl(op, dev, b)
}

package ethtool

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"slices"

	"golang.org/x/sys/unix"
)

// struct ethtool_drvinfo of linux/ethtool.h: cmd, then texts of 32 bytes.
const (
	getDrvInfo  = 0x03 // ETHTOOL_GDRVINFO
	drvInfoSize = 196
)

func text(b []byte) string {
	s, _, _ := bytes.Cut(b, []byte{0})
	return string(bytes.ToValidUTF8(s, []byte("?")))
}

// Driver identifies driver and firmware.
func (c *Client) Driver(dev string) (Driver, error) {
	b := make([]byte, drvInfoSize)
	putWord(b, 0, getDrvInfo)
	if err := c.ioctl("get driver", dev, b); err != nil {
		return Driver{}, err
	}
	return Driver{Name: text(b[4:36]), Version: text(b[36:68]), Firmware: text(b[68:100]), Bus: text(b[100:132])}, nil
}

// String sets and statistics, linux/ethtool.h.
const (
	getSSetInfo = 0x37 // ETHTOOL_GSSET_INFO
	getStrings  = 0x1b // ETHTOOL_GSTRINGS
	getStats    = 0x1d // ETHTOOL_GSTATS
	ssStats     = 1    // ETH_SS_STATS
	ssFeatures  = 4    // ETH_SS_FEATURES
	stringLen   = 32   // ETH_GSTRING_LEN

	// maxStats bounds what is believed of a driver; mlx5 has about 10,000 with 128 queues.
	maxStats = 1 << 18
	// statsSlack is room, in statistics, for queues that appear between asking how many
	// there are and reading them: the kernel writes as many as there are by then,
	// whatever the room it was told of (ethtool_get_stats in net/ethtool/ioctl.c).
	statsSlack = 8192
)

// Stats reads the driver's statistics, in its order.
func (c *Client) Stats(dev string) ([]Stat, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for range 3 { // again when the number changed in between
		n, err := c.stringCount("count statistics", dev, ssStats)
		if err != nil {
			return nil, err
		}
		names, err := c.strings("name statistics", dev, ssStats, n)
		if err != nil {
			return nil, err
		}
		values, err := c.statValues(dev, n)
		if err != nil {
			return nil, err
		}
		if len(names) == len(values) {
			out := make([]Stat, len(names))
			for i := range out {
				out[i] = Stat{Name: names[i], Value: values[i]}
			}
			return out, nil
		}
	}
	return nil, fmt.Errorf("get statistics of %s: their number keeps changing: %w", dev, ErrBusy)
}

// stringCount is the size of a string set; an empty one is not supported.
func (c *Client) stringCount(op, dev string, set uint32) (int, error) {
	// struct ethtool_sset_info: cmd, reserved, 64-bit mask of sets, sizes.
	b := make([]byte, 20)
	putWord(b, 0, getSSetInfo)
	binary.NativeEndian.PutUint64(b[8:], 1<<set)
	if err := c.ioctl(op, dev, b); err != nil {
		return 0, err
	}
	n := word(b, 4)
	if binary.NativeEndian.Uint64(b[8:]) == 0 || n == 0 {
		return 0, &Error{Op: op + " of " + dev, Errno: unix.EOPNOTSUPP}
	}
	if n > maxStats {
		return 0, fmt.Errorf("%s of %s: %w: %d", op, dev, ErrMalformed, n)
	}
	return int(n), nil
}

// buffer gives n bytes of the scratch, zeroed at the front.
func (c *Client) buffer(n int) []byte {
	c.scratch = slices.Grow(c.scratch[:0], n)[:n]
	clear(c.scratch[:min(n, 16)])
	return c.scratch
}

// strings reads a string set of about n; the caller holds c.mu.
func (c *Client) strings(op, dev string, set uint32, n int) ([]string, error) {
	// struct ethtool_gstrings: cmd, set, number, texts.
	b := c.buffer(12 + stringLen*(n+statsSlack))
	putWord(b, 0, getStrings)
	putWord(b, 1, set)
	putWord(b, 2, uint32(n))
	if err := c.ioctl(op, dev, b); err != nil {
		return nil, err
	}
	return parseStrings(b)
}

func parseStrings(b []byte) ([]string, error) {
	if len(b) < 12 || uint64(len(b)-12) < stringLen*uint64(word(b, 2)) {
		return nil, fmt.Errorf("read strings: %w", ErrMalformed)
	}
	out := make([]string, word(b, 2))
	for i := range out {
		out[i] = text(b[12+stringLen*i:][:stringLen])
	}
	return out, nil
}

func (c *Client) statValues(dev string, n int) ([]uint64, error) {
	// struct ethtool_stats: cmd, number, 64-bit values.
	b := c.buffer(8 + 8*(n+statsSlack))
	putWord(b, 0, getStats)
	putWord(b, 1, uint32(n))
	if err := c.ioctl("get statistics", dev, b); err != nil {
		return nil, err
	}
	return parseStats(b)
}

func parseStats(b []byte) ([]uint64, error) {
	if len(b) < 8 || uint64(len(b)-8) < 8*uint64(word(b, 1)) {
		return nil, fmt.Errorf("get statistics: %w", ErrMalformed)
	}
	out := make([]uint64, word(b, 1))
	for i := range out {
		out[i] = binary.NativeEndian.Uint64(b[8+8*i:])
	}
	return out, nil
}

package netdev

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"github.com/mdlayher/genetlink"
	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"github.com/rxsteer/rxsteer/internal/ethtool"
)

// Commands and attributes of linux/netdev.h.
const (
	cmdDevGet    = 1
	cmdQueueGet  = 10
	cmdNAPIGet   = 11
	cmdQStatsGet = 12
	cmdNAPISet   = 14

	devIfIndex = 1
	devXDP     = 3

	napiIfIndex  = 1
	napiID       = 2
	napiIRQ      = 3
	napiPID      = 4
	napiDefer    = 5
	napiFlush    = 6
	napiSuspend  = 7
	napiThreaded = 8

	queueID      = 1
	queueIfIndex = 2
	queueType    = 3
	queueNAPI    = 4
	queueDMABuf  = 5
	queueIOUring = 6
	queueXSK     = 7

	qstatsIfIndex = 1
	qstatsType    = 2
	qstatsID      = 3
	qstatsScope   = 4
	scopeQueue    = 1
	qstatsFirst   = 8
)

// counters are NETDEV_A_QSTATS_* from qstatsFirst on, as the specification spells them.
var counters = [...]string{
	"rx-packets", "rx-bytes", "tx-packets", "tx-bytes", "rx-alloc-fail",
	"rx-hw-drops", "rx-hw-drop-overruns", "rx-csum-complete", "rx-csum-unnecessary", "rx-csum-none", "rx-csum-bad",
	"rx-hw-gro-packets", "rx-hw-gro-bytes", "rx-hw-gro-wire-packets", "rx-hw-gro-wire-bytes", "rx-hw-drop-ratelimits",
	"tx-hw-drops", "tx-hw-drop-errors", "tx-csum-none", "tx-needs-csum",
	"tx-hw-gso-packets", "tx-hw-gso-bytes", "tx-hw-gso-wire-packets", "tx-hw-gso-wire-bytes", "tx-hw-drop-ratelimits",
	"tx-stop", "tx-wake",
}

// Client talks to the kernel of one network namespace: the one of the thread that made it.
// It is safe for concurrent use.
type Client struct {
	conn   *genetlink.Conn
	family uint16
	has    map[uint8]bool // the commands this kernel answers
}

// New dials the kernel. A kernel without the family is ErrNotSupported.
func New() (*Client, error) {
	conn, err := ethtool.Dial()
	if err != nil {
		return nil, ethtool.Wrap("dial netdev netlink", err)
	}
	c, err := newClient(conn)
	if err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	return c, nil
}

func newClient(conn *genetlink.Conn) (*Client, error) {
	id, has, err := ethtool.FindFamily(conn, "netdev")
	if errors.Is(err, ErrNotSupported) {
		return nil, fmt.Errorf("this kernel has no netdev family (6.4 brought it): %w", err)
	}
	if err != nil {
		return nil, err
	}
	return &Client{conn: conn, family: id, has: has}, nil
}

// Commands tells which commands the kernel answers, by the names of the specification
// (Documentation/netlink/specs/netdev.yaml).
func (c *Client) Commands() map[string]bool {
	return map[string]bool{
		"dev-get":    c.has[cmdDevGet],
		"queue-get":  c.has[cmdQueueGet],
		"napi-get":   c.has[cmdNAPIGet],
		"qstats-get": c.has[cmdQStatsGet],
		"napi-set":   c.has[cmdNAPISet],
	}
}

// Close ends the connection.
func (c *Client) Close() error { return c.conn.Close() }

func (c *Client) execute(op string, cmd uint8, flags netlink.HeaderFlags, attrs func(*netlink.AttributeEncoder)) ([][]byte, error) {
	if !c.has[cmd] {
		return nil, &ethtool.Error{Op: op, Errno: unix.ENOSYS}
	}
	ae := netlink.NewAttributeEncoder()
	if attrs != nil {
		attrs(ae)
	}
	b, err := ae.Encode()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", op, err)
	}
	msgs, err := c.conn.Execute(genetlink.Message{Header: genetlink.Header{Command: cmd, Version: 1}, Data: b}, c.family, netlink.Request|flags)
	if err != nil {
		return nil, ethtool.Wrap(op, err)
	}
	out := make([][]byte, len(msgs))
	for i, m := range msgs {
		out[i] = m.Data
	}
	return out, nil
}

// list dumps one command's objects of a device (0: all devices).
func list[T any](c *Client, op string, cmd uint8, ifAttr uint16, ifindex int, more func(*netlink.AttributeEncoder), parse func([]byte) (T, error)) ([]T, error) {
	if ifindex != 0 {
		op = fmt.Sprintf("%s of interface %d", op, ifindex)
	}
	msgs, err := c.execute(op, cmd, netlink.Dump, func(ae *netlink.AttributeEncoder) {
		if ifindex != 0 {
			ae.Uint32(ifAttr, uint32(ifindex))
		}
		if more != nil {
			more(ae)
		}
	})
	if err != nil {
		return nil, err
	}
	out := make([]T, 0, len(msgs))
	for _, b := range msgs {
		x, err := parse(b)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", op, err)
		}
		out = append(out, x)
	}
	return out, nil
}

func attributes(b []byte, f func(*netlink.AttributeDecoder)) error {
	ad, err := netlink.NewAttributeDecoder(b)
	if err != nil {
		return fmt.Errorf("%w: %v", ErrMalformed, err)
	}
	for ad.Next() {
		f(ad)
	}
	if err := ad.Err(); err != nil {
		return fmt.Errorf("%w: %v", ErrMalformed, err)
	}
	return nil
}

// uintOf reads NLA_UINT, which has 4 or 8 bytes as the value needs, and NLA_U32.
func uintOf(ad *netlink.AttributeDecoder) uint64 {
	switch b := ad.Bytes(); len(b) {
	case 4:
		return uint64(binary.NativeEndian.Uint32(b))
	case 8:
		return binary.NativeEndian.Uint64(b)
	}
	return 0
}

func pointer[T any](v T) *T { return &v }

func parseNAPI(b []byte) (NAPI, error) {
	var n NAPI
	err := attributes(b, func(ad *netlink.AttributeDecoder) {
		switch ad.Type() {
		case napiIfIndex:
			n.IfIndex = int(uintOf(ad))
		case napiID:
			n.ID = uint32(uintOf(ad))
		case napiIRQ:
			n.IRQ = pointer(int(uintOf(ad)))
		case napiPID:
			n.PID = pointer(int(uintOf(ad)))
		case napiDefer:
			n.DeferHardIRQs = pointer(uint32(uintOf(ad)))
		case napiFlush:
			n.GROFlushTimeout = pointer(uintOf(ad))
		case napiSuspend:
			n.IRQSuspendTimeout = pointer(uintOf(ad))
		case napiThreaded:
			n.Threaded = pointer(uint32(uintOf(ad)))
		}
	})
	return n, err
}

func typeName(n uint64) string {
	if n == 1 { // NETDEV_QUEUE_TYPE_TX
		return TX
	}
	return RX
}

func parseQueue(b []byte) (Queue, error) {
	var q Queue
	err := attributes(b, func(ad *netlink.AttributeDecoder) {
		switch ad.Type() {
		case queueID:
			q.ID = int(uintOf(ad))
		case queueIfIndex:
			q.IfIndex = int(uintOf(ad))
		case queueType:
			q.Type = typeName(uintOf(ad))
		case queueNAPI:
			q.NAPI = uint32(uintOf(ad))
		case queueDMABuf:
			q.DMABuf = true
		case queueIOUring:
			q.IOUring = true
		case queueXSK:
			q.XSK = true
		}
	})
	return q, err
}

func parseDevice(b []byte) (Device, error) {
	var d Device
	err := attributes(b, func(ad *netlink.AttributeDecoder) {
		switch ad.Type() {
		case devIfIndex:
			d.IfIndex = int(uintOf(ad))
		case devXDP:
			d.XDPFeatures = uintOf(ad)
		}
	})
	return d, err
}

func parseQueueStats(b []byte) (QueueStats, error) {
	s := QueueStats{Counters: map[string]uint64{}}
	err := attributes(b, func(ad *netlink.AttributeDecoder) {
		switch t := int(ad.Type()); {
		case t == qstatsIfIndex:
			s.IfIndex = int(uintOf(ad))
		case t == qstatsType:
			s.Type = typeName(uintOf(ad))
		case t == qstatsID:
			s.ID = int(uintOf(ad))
		case t >= qstatsFirst && t-qstatsFirst < len(counters):
			s.Counters[counters[t-qstatsFirst]] = uintOf(ad)
		}
	})
	return s, err
}

// Devices lists all devices of the namespace.
func (c *Client) Devices() ([]Device, error) {
	return list(c, "get devices", cmdDevGet, 0, 0, nil, parseDevice)
}

// NAPIs lists a device's NAPI instances by id (6.8); ifindex 0 lists all devices'. Only
// instances with an id are told: none of tun, none of a device that is down.
func (c *Client) NAPIs(ifindex int) ([]NAPI, error) {
	out, err := list(c, "get napis", cmdNAPIGet, napiIfIndex, ifindex, nil, parseNAPI)
	slices.SortFunc(out, func(a, b NAPI) int { return int(int64(a.ID) - int64(b.ID)) })
	return out, err
}

// Queues lists a device's queues (6.8), rx first; ifindex 0 lists all devices'.
func (c *Client) Queues(ifindex int) ([]Queue, error) {
	return list(c, "get queues", cmdQueueGet, queueIfIndex, ifindex, nil, parseQueue)
}

// QueueStats lists the counters of each queue (6.9; filter by device from 6.10). A driver
// without per-queue counters has none: an empty list, or ErrNotSupported when asked for by
// ifindex.
func (c *Client) QueueStats(ifindex int) ([]QueueStats, error) {
	return list(c, "get queue statistics", cmdQStatsGet, qstatsIfIndex, ifindex,
		func(ae *netlink.AttributeEncoder) { putUint(ae, qstatsScope, scopeQueue) }, parseQueueStats)
}

// putUint encodes NLA_UINT.
func putUint(ae *netlink.AttributeEncoder, typ uint16, v uint64) {
	if v>>32 == 0 {
		ae.Uint32(typ, uint32(v))
		return
	}
	ae.Uint64(typ, v)
}

// SetNAPI sets what changed names of one NAPI instance (6.13; Threaded from 6.17).
func (c *Client) SetNAPI(id uint32, changed NAPIChange) error {
	_, err := c.execute(fmt.Sprintf("set napi %d", id), cmdNAPISet, netlink.Acknowledge, func(ae *netlink.AttributeEncoder) {
		ae.Uint32(napiID, id)
		if v := changed.DeferHardIRQs; v != nil {
			ae.Uint32(napiDefer, *v)
		}
		if v := changed.GROFlushTimeout; v != nil {
			putUint(ae, napiFlush, *v)
		}
		if v := changed.IRQSuspendTimeout; v != nil {
			putUint(ae, napiSuspend, *v)
		}
		if v := changed.Threaded; v != nil {
			ae.Uint32(napiThreaded, *v)
		}
	})
	return err
}

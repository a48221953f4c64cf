package ethtool

import (
	"errors"
	"fmt"
	"sync"

	mdl "github.com/mdlayher/ethtool"
	"github.com/mdlayher/genetlink"
	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// Client talks to the kernel of one network namespace: the one of the thread that made
// it. It is safe for concurrent use.
type Client struct {
	conn   *genetlink.Conn
	family uint16         // 0: the kernel has no ethtool family (before 5.6)
	has    map[uint8]bool // the messages of the family this kernel answers
	link   *mdl.Client    // nil when family is 0
	io     ioctler

	mu sync.Mutex // one buffer for the large ioctls
	// scratch is reused by Stats: drivers have thousands of statistics and are read often.
	scratch []byte
}

// ioctler is SIOCETHTOOL: data is the command's structure, request and reply. Its first
// 32 bits are the command.
type ioctler interface {
	ethtool(dev string, data []byte) error
	Close() error
}

// New dials the kernel.
func New() (*Client, error) {
	conn, err := Dial()
	if err != nil {
		return nil, Wrap("dial ethtool netlink", err)
	}
	io, err := openSocket()
	if err != nil {
		return nil, errors.Join(Wrap("open ethtool socket", err), conn.Close())
	}
	c, err := newClient(conn, io)
	if err != nil {
		return nil, errors.Join(err, conn.Close(), io.Close())
	}
	if c.family != 0 {
		c.link, err = mdl.New()
		if err != nil && !errors.Is(err, unix.ENOPROTOOPT) { // it insists on strict checking, 4.20
			return nil, errors.Join(Wrap("dial ethtool netlink", err), c.Close())
		}
	}
	return c, nil
}

// Dial opens a generic netlink connection with extended acknowledgements and strict
// checking, where the kernel has them. It serves package netdev too.
func Dial() (*genetlink.Conn, error) {
	conn, err := genetlink.Dial(nil)
	if err != nil {
		return nil, err
	}
	for _, o := range [...]netlink.ConnOption{netlink.ExtendedAcknowledge, netlink.GetStrictCheck} {
		if err := conn.SetOption(o, true); err != nil && !errors.Is(err, unix.ENOPROTOOPT) {
			return nil, errors.Join(err, conn.Close())
		}
	}
	return conn, nil
}

// newClient asks for the family over conn; a kernel without it leaves the ioctls.
func newClient(conn *genetlink.Conn, io ioctler) (*Client, error) {
	id, has, err := FindFamily(conn, "ethtool")
	if err != nil && !errors.Is(err, ErrNotSupported) {
		return nil, err
	}
	return &Client{conn: conn, family: id, has: has, io: io}, nil
}

// Close ends the connections.
func (c *Client) Close() error {
	errs := []error{c.conn.Close(), c.io.Close()}
	if c.link != nil {
		errs = append(errs, c.link.Close())
	}
	return errors.Join(errs...)
}

// Generic netlink controller (linux/genetlink.h).
const (
	ctrlID         = 0x10 // GENL_ID_CTRL
	ctrlGetFamily  = 3    // CTRL_CMD_GETFAMILY
	ctrlFamilyID   = 1    // CTRL_ATTR_FAMILY_ID
	ctrlFamilyName = 2    // CTRL_ATTR_FAMILY_NAME
	ctrlOps        = 6    // CTRL_ATTR_OPS
	ctrlOpID       = 1    // CTRL_ATTR_OP_ID
)

// FindFamily asks the generic netlink controller for a family: its id and the messages
// the kernel answers. It serves package netdev too. ErrNotSupported: no such family.
func FindFamily(conn *genetlink.Conn, name string) (id uint16, has map[uint8]bool, err error) {
	op := "find " + name + " family"
	ae := netlink.NewAttributeEncoder()
	ae.String(ctrlFamilyName, name)
	b, err := ae.Encode()
	if err != nil {
		return 0, nil, fmt.Errorf("%s: %w", op, err)
	}
	msgs, err := conn.Execute(genetlink.Message{Header: genetlink.Header{Command: ctrlGetFamily, Version: 1}, Data: b}, ctrlID, netlink.Request)
	switch err = Wrap(op, err); {
	case errors.Is(err, ErrNotFound):
		return 0, nil, &Error{Op: op, Errno: unix.ENOSYS}
	case err != nil:
		return 0, nil, err
	case len(msgs) != 1:
		return 0, nil, fmt.Errorf("%s: %w: %d messages, not 1", op, ErrMalformed, len(msgs))
	}
	if id, has, err = parseFamily(msgs[0].Data); err != nil {
		return 0, nil, fmt.Errorf("%s: %w", op, err)
	}
	return id, has, nil
}

// Messages tells which messages the kernel answers, by the names of the specification
// (Documentation/netlink/specs/ethtool.yaml); the others go by ioctl or not at all.
func (c *Client) Messages() map[string]bool {
	return map[string]bool{
		"features-get": c.has[unix.ETHTOOL_MSG_FEATURES_GET],
		"channels-get": c.has[channelsTable.get],
		"rings-get":    c.has[ringsTable.get],
		"coalesce-get": c.has[coalesceTable.get],
		"pause-get":    c.has[pauseTable.get],
		"fec-get":      c.has[unix.ETHTOOL_MSG_FEC_GET],
		"rss-get":      c.has[msgRSSGet],
		"rss-set":      c.has[msgRSSSet],
	}
}

// parseFamily reads the controller's answer: the family's id and its messages.
func parseFamily(b []byte) (id uint16, ops map[uint8]bool, err error) {
	ops = map[uint8]bool{}
	err = attributes(b, func(ad *netlink.AttributeDecoder) {
		switch ad.Type() {
		case ctrlFamilyID:
			id = ad.Uint16()
		case ctrlOps:
			nested(ad, func(ad *netlink.AttributeDecoder) { // one per operation
				nested(ad, func(ad *netlink.AttributeDecoder) {
					if ad.Type() == ctrlOpID {
						ops[uint8(ad.Uint32())] = true
					}
				})
			})
		}
	})
	return id, ops, err
}

// attributes calls f for each attribute of a message.
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

func nested(ad *netlink.AttributeDecoder, f func(*netlink.AttributeDecoder)) {
	ad.Nested(func(ad *netlink.AttributeDecoder) error {
		for ad.Next() {
			f(ad)
		}
		return ad.Err()
	})
}

// headerAttr is the number of the header attribute in every message of the family.
const headerAttr = 1

// Flags of the header (enum ethtool_header_flags).
const omitReply = 2 // no message besides the acknowledgement

// request sends one message about dev and gives the payloads of the answers.
func (c *Client) request(op string, cmd uint8, flags netlink.HeaderFlags, dev string, more func(*netlink.AttributeEncoder)) ([][]byte, error) {
	op += " of " + dev
	if !c.has[cmd] {
		return nil, &Error{Op: op, Errno: unix.ENOSYS}
	}
	ae := netlink.NewAttributeEncoder()
	ae.Nested(headerAttr, func(ae *netlink.AttributeEncoder) error {
		ae.String(unix.ETHTOOL_A_HEADER_DEV_NAME, dev)
		if flags&netlink.Acknowledge != 0 {
			// FEATURES_SET else answers twice, and the connection reads once.
			ae.Uint32(unix.ETHTOOL_A_HEADER_FLAGS, omitReply)
		}
		return nil
	})
	if more != nil {
		more(ae)
	}
	b, err := ae.Encode()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", op, err)
	}
	msgs, err := c.conn.Execute(genetlink.Message{Header: genetlink.Header{Command: cmd, Version: unix.ETHTOOL_GENL_VERSION}, Data: b},
		c.family, netlink.Request|flags)
	if err != nil {
		return nil, Wrap(op, err)
	}
	out := make([][]byte, len(msgs))
	for i, m := range msgs {
		out[i] = m.Data
	}
	return out, nil
}

// get is a request with exactly one answer.
func (c *Client) get(op string, cmd uint8, dev string) ([]byte, error) {
	msgs, err := c.request(op, cmd, 0, dev, nil)
	if err != nil {
		return nil, err
	}
	if len(msgs) != 1 {
		return nil, fmt.Errorf("%s of %s: %w: %d messages, not 1", op, dev, ErrMalformed, len(msgs))
	}
	return msgs[0], nil
}

// set is a request that is only acknowledged.
func (c *Client) set(op string, cmd uint8, dev string, more func(*netlink.AttributeEncoder)) error {
	_, err := c.request(op, cmd, netlink.Acknowledge, dev, more)
	return err
}

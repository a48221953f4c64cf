package ethtool

import (
	"errors"
	"fmt"
	"math"
	"strings"

	mdl "github.com/mdlayher/ethtool"
	"golang.org/x/sys/unix"
)

// Link modes, link state, FEC and private flags are read by mdlayher/ethtool.

// guard runs one of its calls and gives its errors our meaning; it panics on replies of
// an unexpected number.
func (c *Client) guard(op, dev string, call func(*mdl.Client) error) (err error) {
	op += " of " + dev
	if c.link == nil {
		return &Error{Op: op, Errno: unix.ENOSYS}
	}
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%s: %w: %v", op, ErrMalformed, p)
		}
	}()
	return Wrap(op, call(c.link))
}

// Link reads the state of the wire. A device without link modes (virtual ones) has only Up.
func (c *Client) Link(dev string) (Link, error) {
	var l Link
	err := c.guard("get link state", dev, func(m *mdl.Client) error {
		s, err := m.LinkState(mdl.Interface{Name: dev})
		if err == nil {
			l.Up = s.Link
		}
		return err
	})
	if err != nil {
		return l, err
	}
	err = c.guard("get link modes", dev, func(m *mdl.Client) error {
		s, err := m.LinkMode(mdl.Interface{Name: dev})
		if err != nil {
			return err
		}
		l.HasModes = true
		l.Autoneg = s.Autoneg == mdl.AutonegOn
		l.Duplex = strings.ToLower(s.Duplex.String())
		// SPEED_UNKNOWN is −1 in 32 bits.
		if s.SpeedMegabits > 0 && s.SpeedMegabits < math.MaxInt32 {
			l.SpeedMb = s.SpeedMegabits
		}
		return nil
	})
	if errors.Is(err, ErrNotSupported) {
		return l, nil
	}
	return l, err
}

var fecModes = [...]struct {
	bit  mdl.FECModes
	name string
}{
	{unix.ETHTOOL_FEC_OFF, "off"},
	{unix.ETHTOOL_FEC_RS, "rs"},
	{unix.ETHTOOL_FEC_BASER, "baser"},
	{unix.ETHTOOL_FEC_LLRS, "llrs"},
}

func fecText(m mdl.FECModes) string {
	var names []string
	for _, f := range fecModes {
		if m&f.bit != 0 {
			names = append(names, f.name)
		}
	}
	return strings.Join(names, " ")
}

func fecBits(text string) (mdl.FECModes, error) {
	var m mdl.FECModes
next:
	for _, w := range strings.Fields(text) {
		for _, f := range fecModes {
			if f.name == w {
				m |= f.bit
				continue next
			}
		}
		return 0, fmt.Errorf("fec mode %q: %w", w, ErrInvalid)
	}
	return m, nil
}

// FEC reads forward error correction.
func (c *Client) FEC(dev string) (FEC, error) {
	var f FEC
	err := c.guard("get fec", dev, func(m *mdl.Client) error {
		x, err := m.FEC(mdl.Interface{Name: dev})
		if err == nil {
			f = FEC{Auto: x.Auto, Modes: fecText(x.Modes), Active: fecText(mdl.FECModes(x.Active))}
		}
		return err
	})
	return f, err
}

// SetFEC sets forward error correction; Active is ignored.
func (c *Client) SetFEC(dev string, f FEC) error {
	bits, err := fecBits(f.Modes)
	if err != nil {
		return fmt.Errorf("set fec of %s: %w", dev, err)
	}
	return c.guard("set fec", dev, func(m *mdl.Client) error {
		return m.SetFEC(mdl.FEC{Interface: mdl.Interface{Name: dev}, Modes: bits, Auto: f.Auto})
	})
}

// PrivateFlags reads a driver's own flags.
func (c *Client) PrivateFlags(dev string) (map[string]bool, error) {
	var out map[string]bool
	err := c.guard("get private flags", dev, func(m *mdl.Client) error {
		x, err := m.PrivateFlags(mdl.Interface{Name: dev})
		if err == nil {
			out = x.Flags
		}
		return err
	})
	return out, err
}

// SetPrivateFlags changes the named flags.
func (c *Client) SetPrivateFlags(dev string, changed map[string]bool) error {
	return c.guard("set private flags", dev, func(m *mdl.Client) error {
		return m.SetPrivateFlags(mdl.PrivateFlags{Interface: mdl.Interface{Name: dev}, Flags: changed})
	})
}

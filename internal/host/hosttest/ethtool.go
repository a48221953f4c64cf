package hosttest

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"syscall"

	"github.com/rxsteer/rxsteer/internal/ethtool"
	"github.com/rxsteer/rxsteer/internal/netdev"
)

// Ethtool is the fake's ethtool client; it has the methods of knob.Ethtool.
type Ethtool struct{ h *Host }

// Ethtool returns a client of this host.
func (h *Host) Ethtool() *Ethtool { return &Ethtool{h} }

func refuse(op, dev string, no syscall.Errno, message string) error {
	return &ethtool.Error{Op: op + " of " + dev, Errno: no, Message: message}
}

// on runs fn under the lock with the device, or returns ENODEV.
func (e *Ethtool) on(op, dev string, fn func(n *device) (syscall.Errno, string)) error {
	e.h.mu.Lock()
	defer e.h.mu.Unlock()
	n := e.h.nic(dev)
	if n == nil {
		return refuse(op, dev, syscall.ENODEV, "no device matches name")
	}
	if no, message := fn(n); no != 0 {
		return refuse(op, dev, no, message)
	}
	return nil
}

const unsupported = syscall.EOPNOTSUPP

// changed applies attributes to a group: an attribute the device lacks is
// EOPNOTSUPP (ethnl_set_coalesce: supported_coalesce_params; rings and channels have a
// maximum of 0).
func changed(now, limit, change ethtool.Group) (ethtool.Group, syscall.Errno, string) {
	next := maps.Clone(now)
	for _, k := range sortedKeys(change) {
		if _, ok := now[k]; !ok {
			return nil, syscall.EINVAL, "requested " + k + " exceeds maximum"
		}
		if top, ok := limit[k]; ok && change[k] > top {
			return nil, syscall.EINVAL, "requested " + k + " exceeds maximum"
		}
		next[k] = change[k]
	}
	return next, 0, ""
}

func (e *Ethtool) Channels(dev string) (now, limit ethtool.Group, err error) {
	err = e.on("get channels", dev, func(n *device) (syscall.Errno, string) {
		if n.channels == nil {
			return unsupported, ""
		}
		now, limit = maps.Clone(n.channels), maps.Clone(n.spec.MaxChannels)
		return 0, ""
	})
	return now, limit, err
}

// SetChannels follows ethnl_set_channels in net/ethtool/channels.c and what
// drivers do then: queues, vectors and NAPIs are made anew, and a table the user has
// not set follows the number of queues.
func (e *Ethtool) SetChannels(dev string, change ethtool.Group) error {
	return e.on("set channels", dev, func(n *device) (syscall.Errno, string) {
		if n.channels == nil || n.spec.FixedChannels {
			return unsupported, ""
		}
		next, no, message := changed(n.channels, n.spec.MaxChannels, change)
		if no != 0 {
			return no, message
		}
		if maps.Equal(next, n.channels) {
			return 0, ""
		}
		rx, tx := int(next["combined"]+next["rx"]), int(next["combined"]+next["tx"])
		switch {
		case rx == 0:
			return syscall.EINVAL, "requested channel counts would result in no RX or TX channel being configured"
		case tx == 0:
			return syscall.EINVAL, "requested channel counts would result in no RX or TX channel being configured"
		}
		// ethtool_get_max_rxfh_channel, commit d4ab4286276f (4.6): only a table that
		// the user has set blocks, and every context's does.
		top := -1
		if n.user {
			top = slices.Max(n.table)
		}
		for _, t := range n.contexts {
			top = max(top, slices.Max(t))
		}
		if rx <= top {
			return syscall.EINVAL, "requested channel counts are too low for existing indirection table settings"
		}
		for _, r := range n.rules { // ethtool_get_max_rxnfc_channel
			if rx <= r.Queue {
				return syscall.EINVAL, "requested channel counts are too low for existing ntuple filter settings"
			}
		}
		for _, q := range n.spec.XSK { // xsk_get_pool_from_qid
			if q >= rx {
				return syscall.EINVAL, "requested channel counts are too low for existing zerocopy AF_XDP sockets"
			}
		}
		n.channels = next
		if len(n.table) > 0 {
			// netif_is_rxfh_configured keeps a user's table; some drivers overwrite it all the same.
			if !n.user || n.spec.LosesUserTable {
				n.driverTable()
			}
		}
		if !n.spec.Down && n.spec.Bus != "" {
			n.flaps++
		}
		n.build(e.h)
		e.h.rebuild()
		return 0, ""
	})
}

func (e *Ethtool) Rings(dev string) (now, limit ethtool.Group, err error) {
	err = e.on("get rings", dev, func(n *device) (syscall.Errno, string) {
		if n.rings == nil {
			return unsupported, ""
		}
		now, limit = maps.Clone(n.rings), maps.Clone(n.spec.MaxRings)
		return 0, ""
	})
	return now, limit, err
}

// SetRings follows ethnl_set_rings and igb_set_ringparam: sizes are rounded up
// and the device goes down and up; it refuses while an AF_XDP socket uses a ring
// (i40e_set_ringparam: i40e_xsk_any_rx_ring_enabled).
func (e *Ethtool) SetRings(dev string, change ethtool.Group) error {
	return e.on("set rings", dev, func(n *device) (syscall.Errno, string) {
		if n.rings == nil {
			return unsupported, ""
		}
		next, no, message := changed(n.rings, n.spec.MaxRings, change)
		if no != 0 {
			return no, message
		}
		if len(n.spec.XSK) > 0 {
			return syscall.EBUSY, ""
		}
		if step := n.spec.RingStep; step > 0 {
			for _, k := range sortedKeys(change) {
				next[k] = (next[k] + step - 1) / step * step
			}
		}
		if !maps.Equal(next, n.rings) {
			n.rings = next
			n.flaps++
		}
		return 0, ""
	})
}

func (e *Ethtool) Coalesce(dev string) (g ethtool.Group, err error) {
	err = e.on("get coalesce", dev, func(n *device) (syscall.Errno, string) {
		if n.coalesce == nil {
			return unsupported, ""
		}
		g = maps.Clone(n.coalesce)
		if n.paired() {
			g["tx-usecs"] = 0
		}
		return 0, ""
	})
	return g, err
}

// paired: igb_get_coalesce and igb_set_coalesce with IGB_FLAG_QUEUE_PAIRS.
func (n *device) paired() bool {
	rx, tx := n.queues()
	return n.spec.PairedUsecs && max(rx, tx) > n.spec.FewMax
}

func (e *Ethtool) SetCoalesce(dev string, change ethtool.Group) error {
	return e.on("set coalesce", dev, func(n *device) (syscall.Errno, string) {
		if n.coalesce == nil {
			return unsupported, ""
		}
		if n.paired() && change["tx-usecs"] != 0 {
			return syscall.EINVAL, ""
		}
		no, message := merge(n.coalesce, change, syscall.EINVAL)
		if no == 0 && n.paired() {
			n.coalesce["tx-usecs"] = n.coalesce["rx-usecs"]
		}
		if no == 0 { // a device-wide value is written to every queue (mlx5e_ethtool_set_coalesce, virtnet_set_coalesce)
			for _, q := range n.perQueue {
				maps.Copy(q, change)
			}
		}
		return no, message
	})
}

// merge changes attributes that the driver takes; another is refused with no
// (supported_coalesce_params: EINVAL over netlink, ethnl_set_coalesce; EOPNOTSUPP by
// ioctl, ethtool_set_per_queue_coalesce).
func merge(g, change ethtool.Group, no syscall.Errno) (syscall.Errno, string) {
	for _, k := range sortedKeys(change) {
		if _, ok := g[k]; !ok {
			return no, "cannot modify an unsupported parameter"
		}
	}
	maps.Copy(g, change)
	return 0, ""
}

func (e *Ethtool) QueueCoalesce(dev string, count int) (all []ethtool.Group, err error) {
	err = e.on("get queue coalesce", dev, func(n *device) (syscall.Errno, string) {
		if n.perQueue == nil {
			return unsupported, ""
		}
		if count > len(n.perQueue) {
			return syscall.EINVAL, ""
		}
		for _, g := range n.perQueue[:count] {
			all = append(all, maps.Clone(g))
		}
		return 0, ""
	})
	return all, err
}

func (e *Ethtool) SetQueueCoalesce(dev string, queue int, change ethtool.Group) error {
	return e.on("set queue coalesce", dev, func(n *device) (syscall.Errno, string) {
		switch {
		case n.perQueue == nil:
			return unsupported, ""
		case queue < 0 || queue >= len(n.perQueue):
			return syscall.EINVAL, ""
		case n.spec.QueueNoEffect: // virtio of QEMU: success and nothing, seen in the lab
			return 0, ""
		}
		return merge(n.perQueue[queue], change, unsupported)
	})
}

func (e *Ethtool) RSS(dev string) (all []ethtool.RSS, err error) {
	err = e.on("get rss", dev, func(n *device) (syscall.Errno, string) {
		if n.spec.Table == 0 {
			return unsupported, ""
		}
		all = append(all, ethtool.RSS{Table: slices.Clone(n.table), Key: slices.Clone(n.key), Function: n.function})
		for _, c := range sortedKeys(n.contexts) {
			all = append(all, ethtool.RSS{Context: c, Table: slices.Clone(n.contexts[c]), Key: slices.Clone(n.key), Function: n.function})
		}
		return 0, ""
	})
	return all, err
}

// SetRSS follows ethtool_set_rxfh in net/ethtool/ioctl.c: entries beyond the rx
// queues and a key of another length are EINVAL; the default table clears
// IFF_RXFH_CONFIGURED, any other sets it.
func (e *Ethtool) SetRSS(dev string, context uint32, change ethtool.RSSChange) error {
	return e.on("set rss", dev, func(n *device) (syscall.Errno, string) {
		if n.spec.Table == 0 {
			return unsupported, ""
		}
		if context != 0 && n.contexts[context] == nil {
			return syscall.ENOENT, ""
		}
		if change.Key != nil || change.Function != "" {
			switch {
			case n.spec.FixedHash:
				return unsupported, ""
			case change.Key != nil && len(change.Key) != len(n.key):
				return syscall.EINVAL, ""
			}
		}
		rx, _ := n.queues()
		if t := change.Table; t != nil {
			if len(t) == 0 || n.spec.Table%len(t) != 0 {
				return syscall.EINVAL, ""
			}
			for _, q := range t {
				if q < 0 || q >= rx {
					return syscall.EINVAL, ""
				}
			}
			full := make([]int, n.spec.Table)
			for i := range full {
				full[i] = t[i%len(t)]
			}
			if context != 0 {
				n.contexts[context] = full
			} else {
				n.table, n.user = full, true
			}
		}
		if change.Default && context == 0 {
			n.defaultTable()
		}
		if change.Key != nil {
			n.key = slices.Clone(change.Key)
		}
		if change.Function != "" {
			n.function = change.Function
		}
		return 0, ""
	})
}

// CreateRSS follows ethtool_set_rxfh and ethnl_rss_create_doit (net/ethtool/rss.c): only drivers with
// contexts, a number in use is EBUSY, entries beyond the rx queues EINVAL.
func (e *Ethtool) CreateRSS(dev string, context uint32, table []int) error {
	return e.on("create rss context", dev, func(n *device) (syscall.Errno, string) {
		switch {
		case n.spec.Table == 0 || !n.spec.Contexts:
			return unsupported, ""
		case n.contexts[context] != nil:
			return syscall.EBUSY, ""
		case len(table) == 0 || n.spec.Table%len(table) != 0:
			return syscall.EINVAL, ""
		}
		rx, _ := n.queues()
		full := make([]int, n.spec.Table)
		for i := range full {
			if full[i] = table[i%len(table)]; full[i] < 0 || full[i] >= rx {
				return syscall.EINVAL, ""
			}
		}
		n.contexts[context] = full
		return 0, ""
	})
}

// DeleteRSS is EBUSY while a rule sends packets to the context (ethtool_check_rss_ctx_busy in
// net/ethtool/common.c).
func (e *Ethtool) DeleteRSS(dev string, context uint32) error {
	return e.on("delete rss context", dev, func(n *device) (syscall.Errno, string) {
		if n.contexts[context] == nil {
			return syscall.ENOENT, ""
		}
		for _, r := range n.rules {
			if r.Context == context {
				return syscall.EBUSY, ""
			}
		}
		delete(n.contexts, context)
		return 0, ""
	})
}

func (e *Ethtool) HashFields(dev, flow string) (fields string, err error) {
	err = e.on("get hash fields", dev, func(n *device) (syscall.Errno, string) {
		f, ok := n.fields[flow]
		if !ok {
			return unsupported, ""
		}
		fields = f
		return 0, ""
	})
	return fields, err
}

// SetHashFields takes what the driver can do and EINVAL for the rest
// (igb_set_rss_hash_opt).
func (e *Ethtool) SetHashFields(dev, flow, fields string) error {
	return e.on("set hash fields", dev, func(n *device) (syscall.Errno, string) {
		if _, ok := n.fields[flow]; !ok {
			return unsupported, ""
		}
		if c := n.spec.HashChoices; c != nil && !slices.Contains(c, flow+" "+fields) && fields != n.fields[flow] {
			return syscall.EINVAL, ""
		}
		n.fields[flow] = fields
		return 0, ""
	})
}

func (e *Ethtool) Rules(dev string) (rules []ethtool.Rule, err error) {
	err = e.on("get rules", dev, func(n *device) (syscall.Errno, string) {
		if _, ok := n.features["rx-ntuple-filter"]; !ok {
			return unsupported, ""
		}
		rules = slices.Clone(n.rules)
		return 0, ""
	})
	return rules, err
}

func (e *Ethtool) InsertRule(dev string, r ethtool.Rule) error {
	return e.on("insert rule", dev, func(n *device) (syscall.Errno, string) {
		if _, ok := n.features["rx-ntuple-filter"]; !ok {
			return unsupported, ""
		}
		rx, _ := n.queues()
		switch {
		case !n.features["rx-ntuple-filter"]:
			return unsupported, "" // ixgbe, i40e: ntuple must be on
		case r.Queue >= rx:
			return syscall.EINVAL, ""
		}
		n.rules = slices.DeleteFunc(n.rules, func(x ethtool.Rule) bool { return x.Location == r.Location })
		n.rules = append(n.rules, r)
		slices.SortFunc(n.rules, func(a, b ethtool.Rule) int { return int(a.Location) - int(b.Location) })
		return 0, ""
	})
}

func (e *Ethtool) DeleteRule(dev string, location uint32) error {
	return e.on("delete rule", dev, func(n *device) (syscall.Errno, string) {
		before := len(n.rules)
		n.rules = slices.DeleteFunc(n.rules, func(x ethtool.Rule) bool { return x.Location == location })
		if len(n.rules) == before {
			return syscall.ENOENT, ""
		}
		return 0, ""
	})
}

func (e *Ethtool) Features(dev string) (f ethtool.Features, err error) {
	err = e.on("get features", dev, func(n *device) (syscall.Errno, string) {
		f = ethtool.Features{Active: maps.Clone(n.features), Wanted: maps.Clone(n.features), Fixed: map[string]bool{}}
		for _, k := range n.spec.Fixed {
			f.Fixed[k] = true
		}
		return 0, ""
	})
	return f, err
}

// SetFeatures changes what can be changed; fixed features stay without an error
// (netdev_update_features masks hw_features), and some flip others: ndo_fix_features,
// and one card on which GRO off turned LRO on.
func (e *Ethtool) SetFeatures(dev string, change map[string]bool) error {
	return e.on("set features", dev, func(n *device) (syscall.Errno, string) {
		for _, k := range sortedKeys(change) {
			if _, ok := n.features[k]; !ok {
				return unsupported, "bit name not found"
			}
		}
		for _, k := range sortedKeys(change) {
			if slices.Contains(n.spec.Fixed, k) {
				continue
			}
			n.features[k] = change[k]
			if flip, ok := n.spec.Flips[k+"="+onOff(change[k])]; ok {
				name, state, _ := strings.Cut(flip, "=")
				n.features[name] = state == "on"
			}
		}
		return 0, ""
	})
}

func onOff(b bool) string {
	if b {
		return "on"
	}
	return "off"
}

func (e *Ethtool) Pause(dev string) (g ethtool.Group, err error) {
	err = e.on("get pause", dev, func(n *device) (syscall.Errno, string) {
		if n.pause == nil {
			return unsupported, ""
		}
		g = maps.Clone(n.pause)
		return 0, ""
	})
	return g, err
}

func (e *Ethtool) SetPause(dev string, change ethtool.Group) error {
	return e.on("set pause", dev, func(n *device) (syscall.Errno, string) {
		if n.pause == nil {
			return unsupported, ""
		}
		no, message := merge(n.pause, change, syscall.EINVAL)
		if no == 0 {
			n.flaps++ // renegotiation
		}
		return no, message
	})
}

func (e *Ethtool) FEC(dev string) (f ethtool.FEC, err error) {
	err = e.on("get fec", dev, func(n *device) (syscall.Errno, string) {
		if n.spec.FEC == nil {
			return unsupported, ""
		}
		f = n.fec
		return 0, ""
	})
	return f, err
}

func (e *Ethtool) SetFEC(dev string, f ethtool.FEC) error {
	return e.on("set fec", dev, func(n *device) (syscall.Errno, string) {
		if n.spec.FEC == nil {
			return unsupported, ""
		}
		n.fec.Auto, n.fec.Modes = f.Auto, f.Modes
		n.flaps++
		return 0, ""
	})
}

func (e *Ethtool) PrivateFlags(dev string) (m map[string]bool, err error) {
	err = e.on("get private flags", dev, func(n *device) (syscall.Errno, string) {
		if n.flags == nil {
			return unsupported, ""
		}
		m = maps.Clone(n.flags)
		return 0, ""
	})
	return m, err
}

func (e *Ethtool) SetPrivateFlags(dev string, change map[string]bool) error {
	return e.on("set private flags", dev, func(n *device) (syscall.Errno, string) {
		for k := range change {
			if _, ok := n.flags[k]; !ok {
				return unsupported, "bit name not found"
			}
		}
		maps.Copy(n.flags, change)
		return 0, ""
	})
}

func (e *Ethtool) Driver(dev string) (d ethtool.Driver, err error) {
	err = e.on("get driver", dev, func(n *device) (syscall.Errno, string) {
		version := n.spec.Version
		if version == "" {
			version = e.h.spec.Kernel
		}
		d = ethtool.Driver{Name: n.spec.Driver, Version: version, Bus: n.spec.Bus}
		return 0, ""
	})
	return d, err
}

func (e *Ethtool) Link(dev string) (l ethtool.Link, err error) {
	err = e.on("get link", dev, func(n *device) (syscall.Errno, string) {
		l = ethtool.Link{Up: !n.spec.Down, SpeedMb: n.spec.SpeedMb, Duplex: "full", Autoneg: true, HasModes: n.spec.Bus != ""}
		return 0, ""
	})
	return l, err
}

// AddContext gives a device an RSS context, as another program would.
func (h *Host) AddContext(dev string, context uint32, table []int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.nic(dev).contexts[context] = slices.Clone(table)
}

// Netdev is the fake's netdev client.
type Netdev struct{ h *Host }

// Netdev returns a client of this host. Kernels before 6.8 have no queues and
// NAPIs in the family: every call is ErrNotSupported.
func (h *Host) Netdev() *Netdev { return &Netdev{h} }

func (c *Netdev) on(op string, ifindex int, fn func(n *device)) error {
	c.h.mu.Lock()
	defer c.h.mu.Unlock()
	if !c.h.since(6, 8) {
		return refuse(op, fmt.Sprint("ifindex ", ifindex), unsupported, "")
	}
	for _, n := range c.h.nics {
		if n.index == ifindex {
			fn(n)
			return nil
		}
	}
	if ifindex == 1 {
		return nil // lo has queues and no NAPI; nothing asks for them
	}
	return refuse(op, fmt.Sprint("ifindex ", ifindex), syscall.ENODEV, "")
}

// Queues is queue-get (netdev_nl_queue_fill in net/core/netdev-genl.c).
func (c *Netdev) Queues(ifindex int) (out []netdev.Queue, err error) {
	err = c.on("get queues", ifindex, func(n *device) {
		rx, tx := n.queues()
		if n.spec.Down {
			return // queues of a device that is down are not told
		}
		id := func(q int, tx bool) uint32 {
			for _, s := range n.napis {
				if !tx && s.rx == q || tx && s.tx == q {
					return s.id
				}
			}
			return 0
		}
		for q := range rx {
			out = append(out, netdev.Queue{ID: q, IfIndex: ifindex, Type: netdev.RX, NAPI: id(q, false), XSK: slices.Contains(n.spec.XSK, q)})
		}
		for q := range tx {
			out = append(out, netdev.Queue{ID: q, IfIndex: ifindex, Type: netdev.TX, NAPI: id(q, true)})
		}
	})
	return out, err
}

// NAPIs is napi-get.
func (c *Netdev) NAPIs(ifindex int) (out []netdev.NAPI, err error) {
	err = c.on("get napis", ifindex, func(n *device) {
		for _, s := range n.napis {
			x := netdev.NAPI{ID: s.id, IfIndex: ifindex}
			if s.irq >= 0 {
				x.IRQ = ptr(s.irq)
			}
			if c.h.since(6, 13) { // settings per NAPI came with 6.13
				x.DeferHardIRQs, x.GROFlushTimeout, x.IRQSuspendTimeout = ptr(s.deferIRQ), ptr(s.flush), ptr(s.suspend)
			}
			if c.h.since(6, 17) {
				x.Threaded = ptr(s.threaded)
			}
			out = append(out, x)
		}
	})
	return out, err
}

// SetNAPI is napi-set (6.13).
func (c *Netdev) SetNAPI(id uint32, change netdev.NAPIChange) error {
	c.h.mu.Lock()
	defer c.h.mu.Unlock()
	op := fmt.Sprint("napi ", id)
	if !c.h.since(6, 13) {
		return refuse("set napi", op, unsupported, "")
	}
	for _, n := range c.h.nics {
		for i := range n.napis {
			s := &n.napis[i]
			if s.id != id {
				continue
			}
			if change.Threaded != nil {
				if !c.h.since(6, 17) {
					return refuse("set napi", op, syscall.EINVAL, "unknown attribute")
				}
				s.threaded = *change.Threaded
			}
			if change.DeferHardIRQs != nil {
				if *change.DeferHardIRQs > 1<<31-1 { // NLA_POLICY_FULL_RANGE, napi_defer_hard_irqs is s32
					return refuse("set napi", op, syscall.ERANGE, "integer out of range")
				}
				s.deferIRQ = *change.DeferHardIRQs
			}
			if change.GROFlushTimeout != nil {
				s.flush = *change.GROFlushTimeout
			}
			if change.IRQSuspendTimeout != nil {
				s.suspend = *change.IRQSuspendTimeout
			}
			return nil
		}
	}
	return refuse("set napi", op, syscall.ENOENT, "")
}

func ptr[T any](v T) *T { return &v }

package knob

import (
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"
	"syscall"

	"github.com/rxsteer/rxsteer/internal/ethtool"
)

// Receive-side scaling (ethtool -x, -X): indirection table, hash key and function of
// the default context (target device) or another ("eth0 context-1").
var rssFamily = family{read: readRSS, write: writeRSS, command: commandRSS, meaning: meaningRSS}

// DefaultTable is the rss-table value that gives the table back to the driver: it then
// follows the number of channels again. The kernel does not tell whether a table
// is the user's; reading never returns it.
func DefaultTable() Value { return List(nil) }

func isDefaultTable(v Value) bool { return v.Equal(DefaultTable()) }

func rssContext(t Target) (uint32, bool) {
	if t.Part() == "" {
		return 0, validDevice(t.Device())
	}
	n, ok := part(t, "context-")
	return uint32(n), ok && n > 0
}

func readRSS(m *Machine, r Ref) Value {
	c, ok := rssContext(r.Target)
	switch {
	case !ok:
		return noSuch(r)
	case m.c.Ethtool == nil:
		return Unknown(m.c.EthtoolReason)
	}
	all, err := m.c.Ethtool.RSS(r.Target.Device())
	if err != nil {
		return m.unread(r.Target.Device(), err)
	}
	for _, x := range all {
		if x.Context == c {
			return rssValue(x, r.Knob)
		}
	}
	return noContext
}

// noContext is the table of a context that does not exist. Writing a table there creates the context, writing
// noContext to the table of one that exists deletes it.
var noContext = Absent("no such RSS context")

func rssValue(x ethtool.RSS, k Kind) Value {
	switch k {
	case RSSTable:
		if len(x.Table) == 0 {
			return Absent("the device has no indirection table")
		}
		return List(x.Table)
	case RSSKey:
		if len(x.Key) == 0 {
			return Absent("the device does not tell its hash key")
		}
		return Text(keyText(x.Key))
	case RSSFunction:
		if x.Function == "" {
			return Absent("the device does not tell its hash function")
		}
		return Text(x.Function)
	default: // RXH_XFRM_* of linux/ethtool.h
		switch x.Xfrm {
		case 0:
			return Text("none")
		case 1:
			return Text("symmetric-xor")
		case 2:
			return Text("symmetric-or-xor")
		}
		return Text(fmt.Sprintf("%#x", x.Xfrm))
	}
}

// keyText is the key as ethtool prints and takes it: "6d:5a:…".
func keyText(key []byte) string {
	var b strings.Builder
	for i, c := range key {
		if i > 0 {
			b.WriteByte(':')
		}
		fmt.Fprintf(&b, "%02x", c)
	}
	return b.String()
}

func writeRSS(m *Machine, r Ref, now, to Value) error {
	c, _ := rssContext(r.Target)
	if c != 0 && r.Knob == RSSTable && to.IsAbsent() {
		return m.c.Ethtool.DeleteRSS(r.Target.Device(), c)
	}
	var change ethtool.RSSChange
	switch r.Knob {
	case RSSTable:
		if isDefaultTable(to) {
			change.Default = true
		} else if err := to.Decode(&change.Table); err != nil {
			return err
		} else if c != 0 && now.IsAbsent() {
			return m.c.Ethtool.CreateRSS(r.Target.Device(), c, change.Table)
		}
	case RSSKey:
		var s string
		if err := to.Decode(&s); err != nil {
			return err
		}
		key, err := hex.DecodeString(strings.ReplaceAll(s, ":", ""))
		if err != nil {
			return fmt.Errorf("decode key: %w", err)
		}
		change.Key = key
	default:
		if err := to.Decode(&change.Function); err != nil {
			return err
		}
	}
	dev := r.Target.Device()
	if c == 0 && m.looksDefault(dev, change.Table) && m.c.Ethtool.SetRSS(dev, 0, ethtool.RSSChange{Default: true}) == nil {
		if now := readRSS(m, r); now.Equal(to) {
			return nil
		}
	}
	return m.c.Ethtool.SetRSS(dev, c, change)
}

// looksDefault reports whether a table is the one the kernel makes by itself: the queues in
// turn (ethtool_rxfh_indir_default). Such a table is given back to the driver rather
// than written, because one that was written counts as the user's: it no longer
// follows the number of channels and blocks shrinking it (IFF_RXFH_CONFIGURED). An undo
// would else leave that behind. igb's own table, in blocks, has no such way back.
func (m *Machine) looksDefault(dev string, table []int) bool {
	rx, _ := m.queues(dev)
	if len(rx) < 2 || len(table) < len(rx) {
		return false
	}
	for i, q := range table {
		if q != i%len(rx) {
			return false
		}
	}
	return true
}

func commandRSS(r Ref, v Value) string {
	c, ok := rssContext(r.Target)
	if !ok {
		return ""
	}
	cmd := "ethtool -X " + r.Target.Device()
	switch r.Knob {
	case RSSTable:
		if c != 0 && v.IsAbsent() {
			return cmd + " context " + strconv.FormatUint(uint64(c), 10) + " delete"
		}
		var table []int
		if v.Decode(&table) != nil {
			return ""
		}
		cmd += tableArguments(table)
	case RSSKey:
		cmd += " hkey " + quote(v.String())
	default:
		cmd += " hfunc " + quote(v.String())
	}
	if c != 0 {
		cmd += " context " + strconv.FormatUint(uint64(c), 10)
	}
	return cmd
}

// tableArguments are ethtool -X's words for a table. It can say default, "equal N"
// (bucket i to queue i mod N) and "weight w0 w1 …" (w0 buckets for queue 0, then w1
// for queue 1, …, scaled to the table). Any other table has no command line: weights
// then give the same shares in another order, which the text says.
func tableArguments(table []int) string {
	if len(table) == 0 {
		return " default"
	}
	top, falls := 0, false
	for i, q := range table {
		top = max(top, q)
		falls = falls || i > 0 && q < table[i-1]
	}
	for first := range top + 1 {
		n := top + 1 - first
		equal := n <= len(table)
		for i, q := range table {
			if q != first+i%n {
				equal = false
				break
			}
		}
		if equal && first == 0 {
			return " equal " + strconv.Itoa(n)
		}
		if equal {
			return " start " + strconv.Itoa(first) + " equal " + strconv.Itoa(n)
		}
	}
	weights := make([]int, min(top, 1<<16)+1)
	for _, q := range table {
		if q >= 0 && q < len(weights) {
			weights[q]++
		}
	}
	s := " weight"
	for _, w := range weights {
		s += " " + strconv.Itoa(w)
	}
	if falls {
		s += " # the same shares; ethtool cannot type this order of buckets"
	}
	return s
}

func meaningRSS(r Ref, no syscall.Errno) string {
	switch {
	case no == syscall.EINVAL && r.Knob == RSSTable:
		return "the table names a queue that does not exist, or its length does not fit the device's"
	case no == syscall.EINVAL && r.Knob == RSSKey:
		return "the key has not the device's length"
	case no == syscall.EOPNOTSUPP && r.Knob == RSSTable:
		return "the driver has no settable indirection table: permanent; RPS is what is left"
	case no == syscall.EOPNOTSUPP:
		return "the driver does not let key or function be set: permanent"
	case no == syscall.EBUSY:
		return "an RSS context or a rule uses it"
	case no == syscall.ENOENT:
		return "no such RSS context"
	}
	return ""
}

// Typable reports whether ethtool has words for an rss-table value: "default", "equal N", "weight …".
func Typable(table Value) bool {
	var t []int
	return table.Decode(&t) == nil && !strings.Contains(tableArguments(t), "#")
}

// listRSS is every context of a device with its hash fields, and the size of the
// default table.
func (m *Machine) listRSS(dev string) (out []Setting, size int) {
	all, err := m.c.Ethtool.RSS(dev)
	if err != nil {
		v := m.unread(dev, err)
		out = settings(Target(dev), RSSTable, v, RSSKey, v, RSSFunction, v)
	}
	var fields map[string]string
	for _, x := range all {
		t := Target(dev)
		if x.Context != 0 {
			t = On(dev, "context-%d", x.Context)
		} else {
			fields, size = x.Fields, len(x.Table)
		}
		for _, k := range [...]Kind{RSSTable, RSSKey, RSSFunction, RSSXfrm} {
			out = append(out, settings(t, k, rssValue(x, k))...)
		}
	}
	return append(out, m.listHashFields(dev, fields)...), size
}

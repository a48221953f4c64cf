package paste

import (
	"encoding/hex"
	"slices"
	"strconv"
	"strings"

	"github.com/rxsteer/rxsteer/internal/ethtool"
)

// maxTable bounds an indirection table: ice has 2048 entries, 4096 is the most seen.
const maxTable = 1 << 16

// RSS is `ethtool -x`.
type RSS struct {
	Device   string
	Rings    int   // "with N RX ring(s)", 0 not told
	Table    []int // rx queue of each bucket, nil where not told
	Cut      bool  // the text does not hold the whole table
	Key      string
	Function string // the one that is on: "toeplitz"
	// Xfrm is the input transformation that is on, "none", or "" where not told.
	Xfrm string
	// Refused are the answers in place of the table and the key, nil where they are there.
	TableRefused, KeyRefused *Refusal
	// Remarks are what is odd about it, as sentences: entries beyond the rings, all-zero key.
	Remarks []string
}

// ParseRSS reads `ethtool -x`.
func ParseRSS(file string, text []byte) (*RSS, []error) {
	r := &RSS{}
	l := newLines(file, text)
	const (
		none = iota
		table
		key
		function
		xfrm
	)
	section := none
	for {
		line, ok := l.next()
		if !ok {
			break
		}
		if line == "" {
			continue
		}
		if s, ok := after(line, "RX flow hash indirection table for ", " RX ring"); ok {
			dev, rings, _ := strings.Cut(s, " with ")
			n, err := strconv.Atoi(rings)
			if r.Device, section = dev, table; err != nil || n < 0 {
				l.errorf("number of rings is %s", clip(rings))
			} else {
				r.Rings = n
			}
			continue
		}
		switch {
		case strings.HasPrefix(line, "RSS hash key:"):
			section = key
			if line = strings.TrimSpace(strings.TrimPrefix(line, "RSS hash key:")); line == "" {
				continue
			}
		case strings.HasPrefix(line, "RSS hash function:"):
			section = function
			continue
		case strings.HasPrefix(line, "RSS input transformation:"):
			section, r.Xfrm = xfrm, "none"
			continue
		}
		if no := refusal(line); no != nil {
			switch section {
			case key:
				r.KeyRefused = no
			case function, xfrm:
			case none:
				r.TableRefused, r.KeyRefused = no, no
			default:
				r.TableRefused = no
			}
			continue
		}
		switch section {
		case table:
			r.entries(l, line)
		case key:
			k := strings.TrimSpace(line)
			if _, err := hex.DecodeString(strings.ReplaceAll(k, ":", "")); err != nil || len(k) > 3*256 {
				l.errorf("hash key is %s", clip(k))
				continue
			}
			r.Key = strings.ToLower(k)
		case function:
			if name, value, ok := field(line); ok && value == "on" {
				r.Function = name
			} else if !ok || name == "Unknown hash function" {
				l.errorf("%s", strings.TrimSpace(line))
			}
		case xfrm:
			if name, value, ok := field(line); ok && value == "on" {
				r.Xfrm = name
			} else if value != "off" {
				l.errorf("%s", strings.TrimSpace(line))
			}
		default:
			l.errorf("not a line of ethtool -x: %s", clip(line))
		}
	}
	r.remark()
	return r, l.errs
}

// entries reads "   8:      0     1     2 …", the index being that of the first.
func (r *RSS) entries(l *lines, line string) {
	index, values, ok := field(line)
	at, err := strconv.Atoi(index)
	if !ok || err != nil {
		l.errorf("not a row of the table: %s", clip(line))
		return
	}
	if at != len(r.Table) {
		l.errorf("row begins at entry %d, expected %d", at, len(r.Table))
		r.Cut = true
		return
	}
	for _, w := range strings.Fields(values) {
		q, err := strconv.Atoi(w)
		if err != nil || q < 0 || q > 1<<16 || len(r.Table) == maxTable {
			l.errorf("entry %d is %s", len(r.Table), clip(w))
			r.Cut = true
			return
		}
		r.Table = append(r.Table, q)
	}
}

func (r *RSS) remark() {
	n := len(r.Table)
	// Tables have a power of two of entries in all drivers but a few whose size
	// is a multiple of the rings (mlx4: of its own); 8 to the row.
	if n > 0 && n&(n-1) != 0 {
		r.Cut = true
		r.Remarks = append(r.Remarks, "the table has "+strconv.Itoa(n)+" entries, no power of two: the text is likely cut")
	}
	if n > 0 && r.Rings > 0 && slices.Max(r.Table) >= r.Rings {
		r.Remarks = append(r.Remarks, "the table refers to queue "+strconv.Itoa(slices.Max(r.Table))+" but there are "+strconv.Itoa(r.Rings)+" rings: it is older than the last change of channels")
	}
	if r.Key != "" && strings.Trim(r.Key, "0:") == "" {
		r.Remarks = append(r.Remarks, "the hash key is all zero: the driver does not tell the one in use")
	}
}

// Groups is an answer with maximums and current values: `ethtool -l`, `ethtool -g`.
// Kinds the device does not have (maximum "n/a", or 0 from tools before 5.8) are in neither map.
type Groups struct {
	Device   string
	Max, Now ethtool.Group
	Refused  *Refusal // nil where values are there
}

// ParseChannels reads `ethtool -l`. Kinds: rx tx other combined.
func ParseChannels(file string, text []byte) (*Groups, []error) {
	return parseGroups(file, text, "Channel parameters for ", map[string]string{
		"RX": "rx", "TX": "tx", "Other": "other", "Combined": "combined",
	})
}

// ParseRings reads `ethtool -g`. Kinds by ethtool's options: rx rx-mini rx-jumbo tx rx-buf-len cqe-size
// tx-push rx-push tx-push-buf-len tcp-data-split; the last five have no maximum.
func ParseRings(file string, text []byte) (*Groups, []error) {
	return parseGroups(file, text, "Ring parameters for ", map[string]string{
		"RX": "rx", "RX Mini": "rx-mini", "RX Jumbo": "rx-jumbo", "TX": "tx", "RX Buf Len": "rx-buf-len",
		"CQE Size": "cqe-size", "TX Push": "tx-push", "RX Push": "rx-push", "TX push buff len": "tx-push-buf-len",
		"TCP data split": "tcp-data-split", "HDS thresh": "hds-thresh",
	})
}

func parseGroups(file string, text []byte, heading string, kinds map[string]string) (*Groups, []error) {
	g := &Groups{Max: ethtool.Group{}, Now: ethtool.Group{}}
	l := newLines(file, text)
	var into ethtool.Group
	for {
		line, ok := l.next()
		if !ok {
			break
		}
		if line == "" {
			continue
		}
		if dev, ok := after(line, heading, ":"); ok {
			g.Device = dev
			continue
		}
		if no := refusal(line); no != nil {
			g.Refused = no
			continue
		}
		key, value, ok := field(line)
		switch {
		case key == "Pre-set maximums":
			into = g.Max
			continue
		case key == "Current hardware settings":
			into = g.Now
			continue
		case !ok || into == nil:
			l.errorf("not a line of this answer: %s", clip(line))
			continue
		}
		kind, known := kinds[key]
		if on, flag := onOff(value); flag {
			if value = "0"; on {
				value = "1"
			}
		}
		n, err := strconv.ParseUint(value, 10, 32)
		switch {
		case value == "n/a" || value == "auto":
		case err != nil:
			l.errorf("%s is %s", key, clip(value))
		case known: // kinds that tools to come print are left out
			into[kind] = uint32(n)
		}
	}
	for kind := range g.Now {
		if sized := kind == "rx" || kind == "tx" || kind == "other" || kind == "combined" || kind == "rx-mini" || kind == "rx-jumbo"; sized && g.Max[kind] == 0 {
			delete(g.Now, kind)
		}
	}
	for kind, n := range g.Max {
		if n == 0 {
			delete(g.Max, kind)
		}
	}
	if g.Refused == nil && len(g.Now) == 0 {
		l.errorf("no current settings")
	}
	return g, l.errs
}

// Coalesce is `ethtool -c`. Fields that print "n/a" are not in the group; tools before
// 5.7 print 0 for fields the driver does not have.
type Coalesce struct {
	Device  string
	Group   ethtool.Group // by ethtool's options: adaptive-rx rx-usecs rx-frames …
	Refused *Refusal
}

// ParseCoalesce reads `ethtool -c`.
func ParseCoalesce(file string, text []byte) (*Coalesce, []error) {
	c := &Coalesce{Group: ethtool.Group{}}
	l := newLines(file, text)
	for {
		line, ok := l.next()
		if !ok {
			break
		}
		if line == "" {
			continue
		}
		if dev, ok := after(line, "Coalesce parameters for ", ":"); ok {
			c.Device = dev
			continue
		}
		if no := refusal(line); no != nil {
			c.Refused = no
			continue
		}
		key, value, ok := field(line)
		if !ok {
			l.errorf("not a line of ethtool -c: %s", clip(line))
			continue
		}
		switch key {
		case "Adaptive RX", "CQE mode RX": // "Adaptive RX: on  TX: off"
			name := map[string]string{"Adaptive RX": "adaptive-", "CQE mode RX": "cqe-mode-"}[key]
			rx, rest, _ := strings.Cut(value, " ")
			_, tx, _ := field(rest)
			c.flag(l, name+"rx", rx)
			c.flag(l, name+"tx", tx)
			continue
		}
		// Printed as rx-frame-low, given as rx-frames-low.
		key = strings.Replace(key, "-frame-", "-frames-", 1)
		if value == "n/a" || strings.ContainsAny(key, " \t") {
			continue
		}
		n, err := strconv.ParseUint(value, 10, 32)
		if err != nil {
			l.errorf("%s is %s", clip(key), clip(value))
			continue
		}
		c.Group[key] = uint32(n)
	}
	if c.Refused == nil && len(c.Group) == 0 {
		l.errorf("no settings")
	}
	return c, l.errs
}

func (c *Coalesce) flag(l *lines, name, value string) {
	switch on, ok := onOff(value); {
	case on:
		c.Group[name] = 1
	case ok:
		c.Group[name] = 0
	case value != "n/a" && value != "":
		l.errorf("%s is %s", name, clip(value))
	}
}

// Features is `ethtool -k`, by the kernel's names.
type Features struct {
	Device  string
	On      map[string]bool
	Fixed   map[string]bool // true: cannot be changed
	Wanted  map[string]bool // what was asked for where it is not in effect
	Refused *Refusal
}

// kernelFeature are ethtool's names that differ from the kernel's
// (off_flag_def in ethtool's common.c, netdev_features_strings in the kernel).
var kernelFeature = map[string]string{
	"rx-checksumming": "rx-checksum", "generic-segmentation-offload": "tx-generic-segmentation",
	"generic-receive-offload": "rx-gro", "large-receive-offload": "rx-lro", "rx-vlan-offload": "rx-vlan-hw-parse",
	"tx-vlan-offload": "tx-vlan-hw-insert", "ntuple-filters": "rx-ntuple-filter", "receive-hashing": "rx-hashing",
}

// ParseFeatures reads `ethtool -k`.
func ParseFeatures(file string, text []byte) (*Features, []error) {
	f := &Features{On: map[string]bool{}, Fixed: map[string]bool{}, Wanted: map[string]bool{}}
	l := newLines(file, text)
	for {
		line, ok := l.next()
		if !ok {
			break
		}
		if line == "" {
			continue
		}
		if dev, ok := after(line, "Features for ", ":"); ok {
			f.Device = dev
			continue
		}
		if dev, ok := after(line, "Offload parameters for ", ":"); ok { // before 3.5
			f.Device = dev
			continue
		}
		if no := refusal(line); no != nil {
			if strings.HasPrefix(line, "Cannot get device ") && strings.Contains(line, "settings") {
				continue // one of the old tool's questions; the others are answered
			}
			f.Refused = no
			continue
		}
		name, value, ok := field(line)
		words := strings.Fields(value)
		if !ok || len(words) == 0 {
			l.errorf("not a line of ethtool -k: %s", clip(line))
			continue
		}
		on, ok := onOff(words[0])
		if !ok || len(name) > 64 {
			l.errorf("%s is %s", clip(name), clip(value))
			continue
		}
		switch name {
		case "tx-checksumming", "scatter-gather", "tcp-segmentation-offload", "udp-fragmentation-offload":
			continue // sums of the indented lines
		}
		if k, ok := kernelFeature[name]; ok {
			name = k
		}
		f.On[name] = on
		if strings.Contains(value, "[fixed]") {
			f.Fixed[name] = true
		}
		if strings.Contains(value, "[requested on]") || strings.Contains(value, "[requested off]") {
			f.Wanted[name] = strings.Contains(value, "[requested on]")
		}
	}
	if f.Refused == nil && len(f.On) == 0 {
		l.errorf("no features")
	}
	return f, l.errs
}

// Pause is `ethtool -a`.
type Pause struct {
	Device          string
	Autoneg, RX, TX bool
	Refused         *Refusal
}

// ParsePause reads `ethtool -a`.
func ParsePause(file string, text []byte) (*Pause, []error) {
	p := &Pause{}
	l := newLines(file, text)
	found := false
	for {
		line, ok := l.next()
		if !ok {
			break
		}
		if dev, ok := after(line, "Pause parameters for ", ":"); ok {
			p.Device = dev
			continue
		}
		if no := refusal(line); no != nil {
			p.Refused = no
			continue
		}
		key, value, _ := field(line)
		into := map[string]*bool{"Autonegotiate": &p.Autoneg, "RX": &p.RX, "TX": &p.TX}[key]
		if into == nil {
			continue // "RX negotiated" and what tools to come print
		}
		if *into, ok = onOff(value); !ok {
			l.errorf("%s is %s", key, clip(value))
			continue
		}
		found = true
	}
	if p.Refused == nil && !found {
		l.errorf("no settings")
	}
	return p, l.errs
}

// Info is `ethtool -i`.
type Info struct {
	Driver, Version, Firmware, Bus string
	Refused                        *Refusal
}

// ParseInfo reads `ethtool -i`.
func ParseInfo(file string, text []byte) (*Info, []error) {
	i := &Info{}
	l := newLines(file, text)
	for {
		line, ok := l.next()
		if !ok {
			break
		}
		if no := refusal(line); no != nil {
			i.Refused = no
			continue
		}
		key, value, _ := field(line)
		if len(value) > 128 {
			l.errorf("%s is %s", clip(key), clip(value))
			continue
		}
		switch key {
		case "driver":
			i.Driver = value
		case "version":
			i.Version = value
		case "firmware-version":
			i.Firmware = value
		case "bus-info":
			i.Bus = value
		}
	}
	if i.Refused == nil && i.Driver == "" {
		l.errorf("no driver")
	}
	return i, l.errs
}

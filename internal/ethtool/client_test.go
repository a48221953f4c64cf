package ethtool

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/mdlayher/genetlink"
	"github.com/mdlayher/genetlink/genltest"
	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// kernel is a scripted one: netlink messages by command, ioctls by command.
type kernel struct {
	family []uint8 // messages it has; nil: no family at all
	nl     map[uint8]func(b []byte) ([]byte, error)
	io     map[uint32]func(dev string, b []byte) error
	asked  []string // every request in order
}

func (k *kernel) Close() error { return nil }

func (k *kernel) ethtool(dev string, b []byte) error {
	cmd := word(b, 0)
	k.asked = append(k.asked, fmt.Sprintf("ioctl %#x", cmd))
	f, ok := k.io[cmd]
	if !ok {
		return unix.EOPNOTSUPP
	}
	return f(dev, b)
}

func (k *kernel) client(t *testing.T) *Client {
	t.Helper()
	conn := genltest.Dial(func(g genetlink.Message, n netlink.Message) ([]genetlink.Message, error) {
		if n.Header.Type == ctrlID {
			if k.family == nil {
				return nil, genltest.Error(int(unix.ENOENT))
			}
			return []genetlink.Message{{Data: encode(t, func(ae *netlink.AttributeEncoder) {
				ae.Uint16(ctrlFamilyID, 20)
				ae.Nested(ctrlOps, func(ae *netlink.AttributeEncoder) error {
					for i, op := range k.family {
						ae.Nested(uint16(i+1), func(ae *netlink.AttributeEncoder) error {
							ae.Uint32(ctrlOpID, uint32(op))
							return nil
						})
					}
					return nil
				})
			})}}, nil
		}
		k.asked = append(k.asked, fmt.Sprintf("netlink %d", g.Header.Command))
		f, ok := k.nl[g.Header.Command]
		if !ok || n.Header.Flags&netlink.Dump == netlink.Dump {
			return nil, &netlink.OpError{Op: "receive", Err: unix.EOPNOTSUPP}
		}
		b, err := f(g.Data)
		if err != nil {
			return nil, err
		}
		return []genetlink.Message{{Data: b}}, nil
	})
	c, err := newClient(conn, k)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return c
}

// plain decodes the attributes of a request that are numbers.
func plain(t *testing.T, b []byte) map[uint16]string {
	t.Helper()
	out := map[uint16]string{}
	if err := attributes(b, func(ad *netlink.AttributeDecoder) {
		if ad.Type() != headerAttr {
			out[ad.Type()] = fmt.Sprintf("%d bytes %d", len(ad.Bytes()), uintOf(ad))
		}
	}); err != nil {
		t.Fatal(err)
	}
	return out
}

func TestOnlyChangedAttributesAreSent(t *testing.T) {
	var got map[uint16]string
	k := &kernel{family: []uint8{unix.ETHTOOL_MSG_COALESCE_GET, unix.ETHTOOL_MSG_COALESCE_SET}}
	k.nl = map[uint8]func([]byte) ([]byte, error){
		unix.ETHTOOL_MSG_COALESCE_SET: func(b []byte) ([]byte, error) { got = plain(t, b); return nil, nil },
	}
	c := k.client(t)
	if err := c.SetCoalesce("eth0", Group{"rx-usecs": 50, "adaptive-rx": 0}); err != nil {
		t.Fatal(err)
	}
	want := map[uint16]string{2: "4 bytes 50", 11: "1 bytes 0"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	if err := c.SetCoalesce("eth0", Group{"rx-usec": 50}); !errors.Is(err, ErrNotSupported) {
		t.Errorf("unknown attribute: %v", err)
	}
}

func TestExtendedAckIsKept(t *testing.T) {
	err := Wrap("set channels of eth0", &netlink.OpError{Err: unix.EINVAL, Message: "requested channel counts are too low for existing indirection table settings"})
	var e *Error
	if !errors.As(err, &e) || e.Message == "" || e.Errno != unix.EINVAL {
		t.Errorf("%#v", err)
	}
}

// A kernel without the family gets the ioctl: the whole structure, but with every other
// attribute as it was.
func TestKernelWithoutTheFamily(t *testing.T) {
	ring := make([]uint32, ringsTable.words)
	copy(ring, []uint32{0, 4096, 0, 0, 4096, 512, 0, 0, 256})
	k := &kernel{}
	k.io = map[uint32]func(string, []byte) error{
		ringsTable.gio: func(_ string, b []byte) error {
			for i, v := range ring {
				if i > 0 {
					putWord(b, i, v)
				}
			}
			return nil
		},
		ringsTable.sio: func(_ string, b []byte) error {
			for i := range ring {
				ring[i] = word(b, i)
			}
			return nil
		},
	}
	c := k.client(t)
	now, limit, err := c.Rings("eth0")
	if err != nil {
		t.Fatal(err)
	}
	if now["rx"] != 512 || now["tx"] != 256 || limit["rx"] != 4096 {
		t.Errorf("now %v, maxima %v", now, limit)
	}
	if err := c.SetRings("eth0", Group{"rx": 1024}); err != nil {
		t.Fatal(err)
	}
	if ring[5] != 1024 || ring[8] != 256 {
		t.Errorf("structure written: %v", ring)
	}
	if err := c.SetRings("eth0", Group{"rx-buf-len": 1024}); !errors.Is(err, ErrNotSupported) {
		t.Errorf("an attribute newer than the ioctl: %v", err)
	}
}

// hardware is an RSS device behind GRSSH and SRSSH.
type hardware struct {
	table []uint32
	key   []byte
	hfunc byte
	xfrm  byte
}

func (h *hardware) get(_ string, b []byte) error {
	room, key := int(word(b, 2)), int(word(b, 3))
	putWord(b, 2, uint32(len(h.table)))
	putWord(b, 3, uint32(len(h.key)))
	b[rxfhHFunc], b[rxfhXfrm] = h.hfunc, h.xfrm
	if room == 0 && key == 0 {
		return nil
	}
	if room != len(h.table) || key != len(h.key) {
		return unix.EINVAL
	}
	for i, q := range h.table {
		putWord(b, rxfhWords+i, q)
	}
	copy(b[4*(rxfhWords+room):], h.key)
	return nil
}

func (h *hardware) set(_ string, b []byte) error {
	n := word(b, 2)
	switch {
	case n == indirNoChange:
		n = 0
	case n == 0:
		for i := range h.table {
			h.table[i] = uint32(i % 4)
		}
	case int(n) != len(h.table):
		return unix.EINVAL
	default:
		for i := range h.table {
			h.table[i] = word(b, rxfhWords+i)
		}
	}
	if k := int(word(b, 3)); k > 0 {
		h.key = slices.Clone(b[4*(rxfhWords+int(n)):][:k])
	}
	if b[rxfhHFunc] != 0 {
		h.hfunc = b[rxfhHFunc]
	}
	h.xfrm = b[rxfhXfrm]
	return nil
}

func (h *hardware) reply(t *testing.T) []byte {
	raw := make([]byte, 4*len(h.table))
	for i, q := range h.table {
		putWord(raw, i, q)
	}
	return encode(t, func(ae *netlink.AttributeEncoder) {
		header(ae)
		ae.Bytes(rssIndir, raw)
		ae.Bytes(rssHKey, h.key)
		ae.Uint32(rssHFunc, uint32(h.hfunc))
	})
}

func TestRSSByIoctl(t *testing.T) {
	h := &hardware{table: make([]uint32, 128), key: []byte{1, 2, 3, 4}, hfunc: 1, xfrm: 1}
	k := &kernel{io: map[uint32]func(string, []byte) error{getRSSH: h.get, setRSSH: h.set}}
	c := k.client(t)
	if err := c.SetRSS("eth0", 0, RSSChange{Table: []int{1, 3}}); err != nil {
		t.Fatal(err)
	}
	if err := c.SetRSS("eth0", 0, RSSChange{Key: []byte{9, 8, 7, 6}, Function: "xor"}); err != nil {
		t.Fatal(err)
	}
	all, err := c.RSS("eth0")
	if err != nil {
		t.Fatal(err)
	}
	want := RSS{Key: []byte{9, 8, 7, 6}, Function: "xor", Xfrm: 1}
	for i := range 128 {
		want.Table = append(want.Table, 1+i%2*2)
	}
	if diff := cmp.Diff([]RSS{want}, all); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	if err := c.SetRSS("eth0", 0, RSSChange{Default: true}); err != nil {
		t.Fatal(err)
	}
	if h.table[0] != 0 || h.table[5] != 1 {
		t.Errorf("table after the reset: %v", h.table[:8])
	}
	for _, bad := range []RSSChange{{Table: []int{1, 2, 3}}, {Table: []int{}}, {Key: []byte{1}}, {Function: "md5"}, {Default: true, Table: []int{1}}} {
		if err := c.SetRSS("eth0", 0, bad); !errors.Is(err, ErrInvalid) {
			t.Errorf("%+v: %v, want ErrInvalid", bad, err)
		}
	}
}

func TestRSSContextsByIoctl(t *testing.T) {
	h := &hardware{table: make([]uint32, 8), key: []byte{1, 2, 3, 4}, hfunc: 1}
	contexts := map[uint32][]uint32{}
	next := uint32(3)
	set := func(_ string, b []byte) error {
		n, c := word(b, 2), word(b, 1)
		switch {
		case c == allocContext && n == 0:
			return unix.EINVAL
		case c == allocContext:
			c, next = next, next+1
			putWord(b, 1, c)
		case contexts[c] == nil:
			return unix.ENOENT
		case n == 0:
			delete(contexts, c)
			return nil
		}
		contexts[c] = make([]uint32, n)
		for i := range contexts[c] {
			contexts[c][i] = word(b, rxfhWords+i)
		}
		return nil
	}
	k := &kernel{io: map[uint32]func(string, []byte) error{getRSSH: h.get, setRSSH: set}}
	c := k.client(t)
	if err := c.CreateRSS("eth0", 3, []int{0, 2}); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[uint32][]uint32{3: {0, 2, 0, 2, 0, 2, 0, 2}}, contexts); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	// The ioctl chooses the number: another one is taken back.
	if err := c.CreateRSS("eth0", 9, []int{1}); !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), "gave 4") {
		t.Errorf("context 9 where the kernel gives 4: %v", err)
	}
	if err := c.DeleteRSS("eth0", 3); err != nil || len(contexts) != 0 {
		t.Errorf("left %v: %v", contexts, err)
	}
	for _, bad := range []error{c.CreateRSS("eth0", 0, []int{1}), c.CreateRSS("eth0", 1, nil), c.DeleteRSS("eth0", 0)} {
		if !errors.Is(bad, ErrInvalid) {
			t.Errorf("%v, want ErrInvalid", bad)
		}
	}
}

func TestRSSContextsByNetlink(t *testing.T) {
	var sent []map[uint16][]byte
	record := func(b []byte) ([]byte, error) {
		m := map[uint16][]byte{}
		if err := attributes(b, func(ad *netlink.AttributeDecoder) {
			if ad.Type() != headerAttr {
				m[ad.Type()] = slices.Clone(ad.Bytes())
			}
		}); err != nil {
			t.Error(err)
		}
		sent = append(sent, m)
		return nil, nil
	}
	k := &kernel{family: []uint8{msgRSSGet, msgRSSSet, msgRSSCreate, msgRSSDelete}, nl: map[uint8]func([]byte) ([]byte, error){msgRSSCreate: record, msgRSSDelete: record}}
	c := k.client(t)
	if err := errors.Join(c.CreateRSS("eth0", 5, []int{1, 3}), c.DeleteRSS("eth0", 5)); err != nil {
		t.Fatal(err)
	}
	five := words([]int{5})
	if diff := cmp.Diff([]map[uint16][]byte{{rssContext: five, rssIndir: words([]int{1, 3})}, {rssContext: five}}, sent); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

// 6.17's RSS_SET answers success to a table whose first quarter is the old one and does
// nothing; the table has to arrive all the same.
func TestTableThatNetlinkDoesNotTake(t *testing.T) {
	h := &hardware{table: make([]uint32, 128), key: []byte{1, 2}, hfunc: 1}
	k := &kernel{
		family: []uint8{msgRSSGet, msgRSSSet},
		io:     map[uint32]func(string, []byte) error{getRSSH: h.get, setRSSH: h.set},
	}
	k.nl = map[uint8]func([]byte) ([]byte, error){
		msgRSSGet: func([]byte) ([]byte, error) { return h.reply(t), nil },
		msgRSSSet: func([]byte) ([]byte, error) { return nil, nil },
	}
	c := k.client(t)
	want := make([]int, 128)
	want[127] = 3
	if err := c.SetRSS("eth0", 0, RSSChange{Table: want}); err != nil {
		t.Fatal(err)
	}
	if h.table[127] != 3 {
		t.Errorf("the table did not arrive; asked %v", k.asked)
	}
}

func TestRSSRefusalIsNotRetriedByIoctl(t *testing.T) {
	k := &kernel{family: []uint8{msgRSSGet, msgRSSSet}}
	k.nl = map[uint8]func([]byte) ([]byte, error){
		msgRSSSet: func([]byte) ([]byte, error) { return nil, genltest.Error(int(unix.EINVAL)) },
	}
	c := k.client(t)
	if err := c.SetRSS("eth0", 0, RSSChange{Table: []int{9}}); !errors.Is(err, ErrInvalid) {
		t.Errorf("%v, want ErrInvalid", err)
	}
	if diff := cmp.Diff([]string{"netlink 48"}, k.asked); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

func TestHashFieldsByIoctlBefore617(t *testing.T) {
	fields := uint64(0x30)
	k := &kernel{io: map[uint32]func(string, []byte) error{
		getRXFH: func(_ string, b []byte) error {
			if word(b, 1) != 2 {
				return unix.EINVAL
			}
			binary.NativeEndian.PutUint64(b[8:], fields)
			return nil
		},
		setRXFH: func(_ string, b []byte) error { fields = binary.NativeEndian.Uint64(b[8:]); return nil },
	}}
	c := k.client(t)
	if err := c.SetHashFields("eth0", "udp4", "sdfn"); err != nil {
		t.Fatal(err)
	}
	if s, err := c.HashFields("eth0", "udp4"); s != "sdfn" || err != nil {
		t.Errorf("%q, %v", s, err)
	}
	if _, err := c.HashFields("eth0", "tcp4"); !errors.Is(err, ErrInvalid) {
		t.Errorf("%v", err)
	}
	if _, err := c.HashFields("eth0", "nonsense"); !errors.Is(err, ErrInvalid) {
		t.Errorf("%v", err)
	}
}

func TestQueueCoalesceReadsAllQueuesAtOnce(t *testing.T) {
	queues := map[int]uint32{0: 3, 33: 50}
	k := &kernel{family: []uint8{unix.ETHTOOL_MSG_COALESCE_GET}}
	k.nl = map[uint8]func([]byte) ([]byte, error){
		unix.ETHTOOL_MSG_COALESCE_GET: func([]byte) ([]byte, error) {
			return encode(t, func(ae *netlink.AttributeEncoder) { ae.Uint32(2, 3); ae.Uint8(11, 0) }), nil
		},
	}
	k.io = map[uint32]func(string, []byte) error{
		perQueue: func(_ string, b []byte) error {
			sub, at := word(b, 1), perQueueHd
			for q := range maxQueues {
				if word(b, 2+q/32)&(1<<(q%32)) == 0 {
					continue
				}
				switch sub {
				case coalesceTable.gio:
					putWord(b, at+1, queues[q])
				case coalesceTable.sio:
					if word(b, at) != coalesceTable.sio {
						return syscall.EINVAL
					}
					queues[q] = word(b, at+1)
				}
				at += coalesceTable.words
			}
			return nil
		},
	}
	c := k.client(t)
	all, err := c.QueueCoalesce("eth0", 40)
	if err != nil {
		t.Fatal(err)
	}
	want := make([]Group, 40)
	for q := range want {
		want[q] = Group{"rx-usecs": queues[q], "adaptive-rx": 0}
	}
	if diff := cmp.Diff(want, all); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	if err := c.SetQueueCoalesce("eth0", 33, Group{"rx-usecs": 8}); err != nil {
		t.Fatal(err)
	}
	if queues[33] != 8 || queues[0] != 3 {
		t.Errorf("after the write: %v", queues)
	}
	for _, n := range []int{0, -1, maxQueues + 1} {
		if _, err := c.QueueCoalesce("eth0", n); !errors.Is(err, ErrInvalid) {
			t.Errorf("%d queues: %v", n, err)
		}
	}
}

func TestRulesByIoctl(t *testing.T) {
	rules := map[uint32][]byte{}
	k := &kernel{io: map[uint32]func(string, []byte) error{
		getRuleCount: func(_ string, b []byte) error { putWord(b, countAt/4, uint32(len(rules))); return nil },
		getRules: func(_ string, b []byte) error {
			if len(b) < rxnfcLocs+4*len(rules) {
				return unix.EMSGSIZE
			}
			i := 0
			for loc := range rules {
				putWord(b, rxnfcLocs/4+i, loc)
				i++
			}
			return nil
		},
		getRule: func(_ string, b []byte) error {
			r, ok := rules[word(b, locationAt/4)]
			if !ok {
				return unix.ENOENT
			}
			copy(b[4:], r[4:])
			return nil
		},
		insertRule: func(_ string, b []byte) error { rules[word(b, locationAt/4)] = slices.Clone(b); return nil },
		deleteRule: func(_ string, b []byte) error {
			loc := word(b, locationAt/4)
			if rules[loc] == nil {
				return unix.ENOENT
			}
			delete(rules, loc)
			return nil
		},
	}}
	c := k.client(t)
	if got, err := c.Rules("eth0"); err != nil || len(got) != 0 {
		t.Errorf("no rules: %v, %v", got, err)
	}
	want := []Rule{
		{Location: 3, Flow: "tcp4", Match: map[string]string{"dst-port": "80"}, Queue: 1},
		{Location: 1000, Flow: "udp6", Match: map[string]string{"dst-port": "53"}, Queue: -1},
	}
	for _, r := range want {
		if err := c.InsertRule("eth0", r); err != nil {
			t.Fatal(err)
		}
	}
	got, err := c.Rules("eth0")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	if err := c.DeleteRule("eth0", 3); err != nil {
		t.Fatal(err)
	}
	if err := c.DeleteRule("eth0", 3); !errors.Is(err, ErrNotFound) {
		t.Errorf("deleting again: %v, want ErrNotFound", err)
	}
}

func TestFeaturesByIoctl(t *testing.T) {
	names := make([]string, 40)
	names[0], names[1], names[39] = "tx-scatter-gather", "highdma", "rx-gro"
	active := map[int]bool{0: true, 1: true}
	k := &kernel{io: map[uint32]func(string, []byte) error{
		getSSetInfo: func(_ string, b []byte) error { putWord(b, 4, 40); return nil },
		getStrings: func(_ string, b []byte) error {
			putWord(b, 2, 40)
			for i, n := range names {
				copy(b[12+stringLen*i:][:stringLen], n+"\x00")
			}
			return nil
		},
		getFeatures: func(_ string, b []byte) error {
			putWord(b, 2, 1<<0)
			putWord(b, 6, 1<<7)
			for i, on := range active {
				if on {
					putWord(b, 2+4*(i/32)+2, word(b, 2+4*(i/32)+2)|1<<(i%32))
				}
			}
			return nil
		},
		setFeatures: func(_ string, b []byte) error {
			for i := range 40 {
				if word(b, 2+2*(i/32))&(1<<(i%32)) != 0 {
					active[i] = word(b, 2+2*(i/32)+1)&(1<<(i%32)) != 0
				}
			}
			return nil
		},
	}}
	c := k.client(t)
	if err := c.SetFeatures("eth0", map[string]bool{"rx-gro": true, "tx-scatter-gather": false}); err != nil {
		t.Fatal(err)
	}
	f, err := c.Features("eth0")
	if err != nil {
		t.Fatal(err)
	}
	want := Features{
		Active: map[string]bool{"tx-scatter-gather": false, "highdma": true, "rx-gro": true},
		Wanted: map[string]bool{"tx-scatter-gather": false, "highdma": false, "rx-gro": false},
		Fixed:  map[string]bool{"tx-scatter-gather": false, "highdma": true, "rx-gro": false},
	}
	if diff := cmp.Diff(want, f); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	if err := c.SetFeatures("eth0", map[string]bool{"no-such": true}); !errors.Is(err, ErrNotSupported) {
		t.Errorf("%v", err)
	}
}

// Between counting statistics and reading them their number may grow: the kernel then
// writes more than it was asked for.
func TestStatisticsThatGrow(t *testing.T) {
	n, calls := 2, 0
	k := &kernel{io: map[uint32]func(string, []byte) error{
		getSSetInfo: func(_ string, b []byte) error { putWord(b, 4, uint32(n)); return nil },
		getStrings: func(_ string, b []byte) error {
			putWord(b, 2, uint32(n))
			for i := range n {
				copy(b[12+stringLen*i:][:stringLen], fmt.Sprintf("rx_queue_%d_packets\x00garbage", i))
			}
			return nil
		},
		getStats: func(_ string, b []byte) error {
			if calls++; calls == 1 {
				n = 5
			}
			putWord(b, 1, uint32(n))
			for i := range n {
				binary.NativeEndian.PutUint64(b[8+8*i:], uint64(100+i))
			}
			return nil
		},
	}}
	got, err := k.client(t).Stats("eth0")
	if err != nil {
		t.Fatal(err)
	}
	if len(got) != 5 || got[4] != (Stat{"rx_queue_4_packets", 104}) {
		t.Errorf("%v", got)
	}
}

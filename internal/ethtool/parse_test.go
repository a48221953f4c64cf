package ethtool

import (
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/mdlayher/netlink"
)

// encode builds a message as the kernel does.
func encode(t testing.TB, f func(*netlink.AttributeEncoder)) []byte {
	t.Helper()
	ae := netlink.NewAttributeEncoder()
	f(ae)
	b, err := ae.Encode()
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// captured is a reply of a real kernel: virtio_net with one queue on 6.18.
func captured(t testing.TB, name string) []byte {
	t.Helper()
	if *update {
		if err := os.WriteFile(filepath.Join("testdata", name), capture(t, name), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	b, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func header(ae *netlink.AttributeEncoder) {
	ae.Nested(headerAttr, func(ae *netlink.AttributeEncoder) error {
		ae.Uint32(1, 4)
		ae.String(2, "eth0")
		return nil
	})
}

func TestGroupsOfARealKernelAreRead(t *testing.T) {
	for _, tt := range []struct {
		file       string
		table      *table
		now, limit Group
	}{
		{"channels.bin", &channelsTable, Group{"combined": 1}, Group{"combined": 1}},
		{"rings.bin", &ringsTable, Group{"rx": 256, "tx": 256, "tx-push": 0, "rx-push": 0}, Group{"rx": 256, "tx": 256}},
		{"coalesce.bin", &coalesceTable, Group{"adaptive-rx": 0, "rx-frames": 1, "rx-usecs": 0, "tx-frames": 1, "tx-usecs": 0}, Group{}},
	} {
		now, limit, err := tt.table.parse(captured(t, tt.file))
		if err != nil {
			t.Fatalf("%s: %v", tt.file, err)
		}
		if diff := cmp.Diff(tt.now, now); diff != "" {
			t.Errorf("%s (-want +got)\n%s", tt.file, diff)
		}
		if diff := cmp.Diff(tt.limit, limit); diff != "" {
			t.Errorf("%s maxima (-want +got)\n%s", tt.file, diff)
		}
	}
}

func TestFeaturesOfARealKernelAreRead(t *testing.T) {
	f, err := parseFeatures(captured(t, "features.bin"))
	if err != nil {
		t.Fatal(err)
	}
	type state struct{ Active, Wanted, Fixed bool }
	got := map[string]state{}
	for _, name := range []string{"rx-gro", "highdma", "tx-scatter-gather", "rx-gro-list", "rx-lro", "netns-local"} {
		if _, ok := f.Active[name]; ok {
			got[name] = state{f.Active[name], f.Wanted[name], f.Fixed[name]}
		}
	}
	want := map[string]state{
		"rx-gro":            {true, true, false},
		"highdma":           {true, false, true}, // nobody asks for a fixed one
		"tx-scatter-gather": {true, true, false},
		"rx-gro-list":       {false, false, false},
		"rx-lro":            {false, false, true},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

func TestRSSReplyOfAnySize(t *testing.T) {
	for _, size := range []int{1, 40, 128, 256, 512, 2048, 4096} {
		table := make([]int, size)
		raw := make([]byte, 4*size)
		for i := range table {
			table[i] = i % 63
			putWord(raw, i, uint32(i%63))
		}
		b := encode(t, func(ae *netlink.AttributeEncoder) {
			header(ae)
			ae.Uint32(rssContext, 2)
			ae.Bytes(rssIndir, raw)
			ae.Uint32(rssHFunc, 1<<1)
			ae.Uint32(rssXfrm, 1)
			ae.Bytes(rssHKey, []byte{0x6d, 0x5a})
			ae.Nested(rssFlow, func(ae *netlink.AttributeEncoder) error {
				ae.Uint32(6, 1<<4|1<<5|1<<6|1<<7)
				ae.Uint64(4, 1<<4|1<<5) // NLA_UINT may be wide
				ae.Uint32(5, 0)
				ae.Uint32(99, 1) // a flow type of a later kernel
				return nil
			})
			ae.Uint32(77, 1) // an attribute of a later kernel
		})
		got, err := parseRSS(b)
		if err != nil {
			t.Fatalf("%d: %v", size, err)
		}
		want := RSS{Context: 2, Table: table, Key: []byte{0x6d, 0x5a}, Function: "xor", Xfrm: 1,
			Fields: map[string]string{"udp4": "sdfn", "tcp4": "sd", "tcp6": ""}}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%d entries (-want +got)\n%s", size, diff)
		}

		// The same over the ioctl.
		rxfh := make([]byte, 4*rxfhWords)
		putWord(rxfh, 1, 2)
		putWord(rxfh, 2, uint32(size))
		putWord(rxfh, 3, 2)
		rxfh[rxfhHFunc], rxfh[rxfhXfrm] = 2, 1
		rxfh = append(append(rxfh, raw...), 0x6d, 0x5a)
		want.Fields = nil
		got, err = parseRXFH(rxfh)
		if err != nil {
			t.Fatalf("%d: %v", size, err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%d entries by ioctl (-want +got)\n%s", size, diff)
		}
		for _, cut := range []int{0, 10, 4 * rxfhWords, len(rxfh) - 1} {
			if _, err := parseRXFH(rxfh[:cut]); !errors.Is(err, ErrMalformed) {
				t.Errorf("cut to %d of %d: %v, want ErrMalformed", cut, len(rxfh), err)
			}
		}
	}
}

func TestCoalesceProfilesAreFlat(t *testing.T) {
	steps := func(ae *netlink.AttributeEncoder) error {
		for i := range 2 {
			ae.Nested(irqModer, func(ae *netlink.AttributeEncoder) error {
				ae.Uint32(1, uint32(1+i*7))
				ae.Uint32(2, 256)
				return nil
			})
		}
		return nil
	}
	b := encode(t, func(ae *netlink.AttributeEncoder) {
		header(ae)
		ae.Uint32(2, 3)
		ae.Uint8(11, 1)
		ae.Nested(rxProfile, steps)
	})
	got, err := parseCoalesce(b)
	if err != nil {
		t.Fatal(err)
	}
	want := Group{"rx-usecs": 3, "adaptive-rx": 1,
		"rx-profile-0-usecs": 1, "rx-profile-0-frames": 256, "rx-profile-1-usecs": 8, "rx-profile-1-frames": 256}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	again := encode(t, func(ae *netlink.AttributeEncoder) { encodeProfile(ae, rxProfile, "rx-profile-", got) })
	if diff := cmp.Diff(encode(t, func(ae *netlink.AttributeEncoder) { ae.Nested(rxProfile, steps) }), again); diff != "" {
		t.Errorf("profile written (-want +got)\n%s", diff)
	}
}

func TestRulesGoThereAndBack(t *testing.T) {
	for _, r := range []Rule{
		{Location: 1023, Flow: "tcp4", Match: map[string]string{"src-ip": "10.0.0.1", "dst-port": "443"}, Queue: 3},
		{Location: 0, Flow: "udp4", Match: map[string]string{"dst-ip": "10.1.0.0/255.255.0.0", "tos": "16/252"}, Queue: -1},
		{Location: 7, Flow: "udp6", Match: map[string]string{"src-ip": "2001:db8::1", "src-port": "53", "tclass": "8"}, Queue: 0, Context: 2},
		{Location: 8, Flow: "ip4", Match: map[string]string{"l4proto": "47", "l4data": "0x1234abcd"}, Queue: 5, VF: 3},
		{Location: 9, Flow: "ip6", Match: map[string]string{"l4proto": "47"}, Queue: 5},
		{Location: 10, Flow: "esp4", Match: map[string]string{"spi": "0x10"}, Queue: 1},
		{Location: 11, Flow: "ether", Match: map[string]string{"dst": "02:00:00:00:00:01", "proto": "0x8864"}, Queue: 2},
		{Location: 12, Flow: "tcp4", Match: map[string]string{"vlan": "100/4095", "dst-mac": "02:00:00:00:00:02", "user-def": "0x1"}, Queue: 2},
	} {
		b, err := r.encode()
		if err != nil {
			t.Errorf("%v: %v", r, err)
			continue
		}
		got, err := parseRule(b)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(r, got); diff != "" {
			t.Errorf("(-want +got)\n%s", diff)
		}
	}
}

func TestRulesThatCannotBe(t *testing.T) {
	for _, tt := range []struct {
		rule Rule
		want string
	}{
		{Rule{Flow: "tcp5"}, `flow type "tcp5"`},
		{Rule{Flow: "tcp4", Match: map[string]string{"spi": "1"}}, "spi cannot be matched for tcp4"},
		{Rule{Flow: "tcp4", Match: map[string]string{"src-ip": "::1"}}, `src-ip "::1"`},
		{Rule{Flow: "tcp4", Match: map[string]string{"dst-port": "65536"}}, `dst-port "65536"`},
		{Rule{Flow: "ether", Match: map[string]string{"dst": "02:00"}}, `dst "02:00"`},
		{Rule{Flow: "tcp4", Match: map[string]string{"raw": "00"}}, "raw cannot be matched"},
	} {
		_, err := tt.rule.encode()
		if !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%v: %v, want ErrInvalid with %q", tt.rule, err, tt.want)
		}
	}
}

// A rule with a field this program does not know must not look like a simpler rule.
func TestUnknownMatchIsKept(t *testing.T) {
	b, err := Rule{Flow: "ether", Match: map[string]string{}, Queue: 1}.encode()
	if err != nil {
		t.Fatal(err)
	}
	b[maskAt+40] = 0xff
	r, err := parseRule(b)
	if err != nil || r.Match["raw"] == "" {
		t.Errorf("%v, %v: the masked byte is lost", r, err)
	}
	binary.NativeEndian.PutUint32(b[specAt:], 0x15)
	if r, err = parseRule(b); err != nil || r.Flow != "flow-21" {
		t.Errorf("%v, %v: want flow-21", r, err)
	}
	if _, err := r.encode(); !errors.Is(err, ErrInvalid) {
		t.Errorf("%v: a rule of unknown type must not be written", err)
	}
}

func TestInvertMask(t *testing.T) {
	for _, tt := range []struct{ field, mask, want string }{
		{"dst-ip", "255.255.0.0", "0.0.255.255"},
		{"src-port", "65280", "255"},
		{"dst", "ff:ff:ff:00:00:00", "00:00:00:ff:ff:ff"},
		{"proto", "0xff00", "0xff"},
	} {
		if got := InvertMask(tt.field, tt.mask); got != tt.want {
			t.Errorf("InvertMask(%s, %s) = %s, want %s", tt.field, tt.mask, got, tt.want)
		}
	}
	if got := InvertMask("src-ip", "ffff:ffff::"); got != "::ffff:ffff:ffff:ffff:ffff:ffff" && got != "0:0:ffff:ffff:ffff:ffff:ffff:ffff" {
		t.Errorf("IPv6 mask inverted is %s", got)
	}
}

func TestHashFieldLetters(t *testing.T) {
	for text, bits := range map[string]uint32{"": 0, "sd": 0x30, "sdfn": 0xf0, "mvtsdfnelr": 0x800003fe} {
		got, ok := hashBits(text)
		if !ok || got != bits {
			t.Errorf("hashBits(%q) = %#x, %v, want %#x", text, got, ok, bits)
		}
		if s := hashText(bits); s != text {
			t.Errorf("hashText(%#x) = %q, want %q", bits, s, text)
		}
	}
	if _, ok := hashBits("sx"); ok {
		t.Error("hashBits takes a letter that is none")
	}
}

func TestErrnoMeansOneThing(t *testing.T) {
	for no, want := range map[syscall.Errno]error{
		syscall.EOPNOTSUPP: ErrNotSupported, syscall.ENOSYS: ErrNotSupported, syscall.ENODEV: ErrNoDevice,
		syscall.ENOENT: ErrNotFound, syscall.EPERM: ErrPermission, syscall.EACCES: ErrPermission,
		syscall.EBUSY: ErrBusy, syscall.EINVAL: ErrInvalid, syscall.ENOSPC: ErrNoSpace, syscall.ENETDOWN: ErrDown,
	} {
		err := Wrap("set rings of eth0", &netlink.OpError{Op: "receive", Err: no, Message: "too many"})
		if !errors.Is(err, want) || !errors.Is(err, no) {
			t.Errorf("%v: is not %v and %v", err, want, no)
		}
		if msg := "set rings of eth0: " + no.Error() + " (too many)"; err.Error() != msg {
			t.Errorf("%q, want %q", err, msg)
		}
		if Wrap("again", err) != err {
			t.Error("an error is wrapped twice")
		}
	}
	if err := Wrap("op", nil); err != nil {
		t.Error(err)
	}
	if err := Wrap("op", errors.New("x")); err.Error() != "op: x" || errors.Is(err, ErrInvalid) {
		t.Error(err)
	}
}

// A reply cut short anywhere is malformed or lacks its last attributes; it never gives
// another value.
func TestRepliesCutShort(t *testing.T) {
	whole := captured(t, "rings.bin")
	want, _, err := ringsTable.parse(whole)
	if err != nil {
		t.Fatal(err)
	}
	for n := range whole {
		got, _, err := ringsTable.parse(whole[:n])
		if err != nil {
			if !errors.Is(err, ErrMalformed) {
				t.Errorf("cut to %d: %v, want ErrMalformed", n, err)
			}
			continue
		}
		for k, v := range got {
			if want[k] != v {
				t.Errorf("cut to %d: %s is %d, want %d", n, k, v, want[k])
			}
		}
	}
	whole = captured(t, "features.bin")
	for n := range whole {
		if _, err := parseFeatures(whole[:n]); err != nil && !errors.Is(err, ErrMalformed) {
			t.Errorf("cut to %d: %v, want ErrMalformed", n, err)
		}
	}
}

func FuzzParse(f *testing.F) {
	for _, name := range []string{"channels.bin", "rings.bin", "coalesce.bin", "features.bin", "rss.bin", "family.bin"} {
		f.Add(captured(f, name))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		channelsTable.parse(b)
		parseCoalesce(b)
		parseFeatures(b)
		parseRSS(b)
		parseFamily(b)
		coalesceTable.parseWords(b)
		parseRXFH(b)
		parseStrings(b)
		parseStats(b)
		parseFeatureBlocks([]string{"a", "", "b"}, b)
		if r, err := parseRule(b); err == nil {
			if again, err := r.encode(); err == nil {
				if _, err := parseRule(again); err != nil {
					t.Fatalf("%v is written but not read: %v", r, err)
				}
			}
		}
	})
}

package ethtool

import (
	"encoding/hex"
	"errors"
	"flag"
	"net"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/mdlayher/genetlink"
	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

var update = flag.Bool("update", false, "capture replies of this kernel into testdata")

func dial(t *testing.T) *Client {
	t.Helper()
	c, err := New()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	return c
}

// device is the first interface of this host that has channels.
func device(t *testing.T, c *Client) string {
	t.Helper()
	ifs, err := net.Interfaces()
	if err != nil {
		t.Fatal(err)
	}
	for _, i := range ifs {
		if _, _, err := c.Channels(i.Name); err == nil {
			return i.Name
		}
	}
	t.Skip("needs an interface with channels")
	return ""
}

// capture asks this kernel for the reply that testdata holds under name.
func capture(t testing.TB, name string) []byte {
	t.Helper()
	c, err := New()
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if name == "family.bin" {
		ae := netlink.NewAttributeEncoder()
		ae.String(ctrlFamilyName, "ethtool")
		b, err := ae.Encode()
		if err != nil {
			t.Fatal(err)
		}
		msgs, err := c.conn.Execute(genetlink.Message{Header: genetlink.Header{Command: ctrlGetFamily, Version: 1}, Data: b}, ctrlID, netlink.Request)
		if err != nil {
			t.Fatal(err)
		}
		return msgs[0].Data
	}
	cmd := map[string]uint8{
		"channels.bin": unix.ETHTOOL_MSG_CHANNELS_GET, "rings.bin": unix.ETHTOOL_MSG_RINGS_GET, "coalesce.bin": unix.ETHTOOL_MSG_COALESCE_GET,
		"features.bin": unix.ETHTOOL_MSG_FEATURES_GET, "rss.bin": msgRSSGet,
	}[name]
	b, err := c.get("capture", cmd, "eth0")
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// tool runs ethtool(8).
func tool(t *testing.T, args ...string) string {
	t.Helper()
	if _, err := exec.LookPath("ethtool"); err != nil {
		t.Skip("needs ethtool")
	}
	out, err := exec.Command("ethtool", args...).CombinedOutput()
	if err != nil {
		t.Fatalf("ethtool %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

// printed reads the "Name: 12" lines of ethtool -l and -g: maxima first, then current.
func printed(out string, names map[string]string) (now, limit Group) {
	now, limit = Group{}, Group{}
	into := limit
	for line := range strings.Lines(out) {
		if strings.HasPrefix(line, "Current") {
			into = now
		}
		k, v, _ := strings.Cut(strings.TrimSpace(line), ":")
		name, ok := names[k]
		n, err := strconv.ParseUint(strings.TrimSpace(v), 10, 32)
		if ok && err == nil {
			into[name] = uint32(n)
		}
	}
	return now, limit
}

// numbers drops attributes ethtool 6.1 does not print as numbers.
func numbers(g Group, names map[string]string) Group {
	out := Group{}
	for _, n := range names {
		if v, ok := g[n]; ok {
			out[n] = v
		}
	}
	return out
}

func TestChannelsAndRingsAreWhatEthtoolPrints(t *testing.T) {
	c := dial(t)
	dev := device(t, c)
	names := map[string]string{"RX": "rx", "TX": "tx", "Other": "other", "Combined": "combined", "RX Mini": "rx-mini", "RX Jumbo": "rx-jumbo"}
	for option, read := range map[string]func(string) (Group, Group, error){"-l": c.Channels, "-g": c.Rings} {
		now, limit, err := read(dev)
		if err != nil {
			t.Fatal(err)
		}
		wantNow, wantLimit := printed(tool(t, option, dev), names)
		if diff := cmp.Diff(wantNow, numbers(now, names)); diff != "" {
			t.Errorf("ethtool %s (-ethtool +got)\n%s", option, diff)
		}
		if diff := cmp.Diff(wantLimit, numbers(limit, names)); diff != "" {
			t.Errorf("ethtool %s maxima (-ethtool +got)\n%s", option, diff)
		}
	}
}

func TestCoalescingIsWhatEthtoolPrints(t *testing.T) {
	c := dial(t)
	dev := device(t, c)
	g, err := c.Coalesce(dev)
	if errors.Is(err, ErrNotSupported) {
		t.Skip("needs a driver with coalescing")
	}
	if err != nil {
		t.Fatal(err)
	}
	// ethtool prints "n/a" for attributes the device does not have.
	want := Group{}
	for line := range strings.Lines(tool(t, "-c", dev)) {
		if m := regexp.MustCompile(`^Adaptive RX: (\S+)  TX: (\S+)`).FindStringSubmatch(line); m != nil {
			for i, name := range []string{"adaptive-rx", "adaptive-tx"} {
				if m[i+1] != "n/a" {
					want[name] = map[string]uint32{"on": 1, "off": 0}[m[i+1]]
				}
			}
			continue
		}
		k, v, _ := strings.Cut(strings.TrimSpace(line), ":")
		n, err := strconv.ParseUint(strings.TrimSpace(v), 10, 32)
		if k = strings.Replace(k, "frame-", "frames-", 1); err == nil {
			want[k] = uint32(n)
		}
	}
	got := Group{}
	for k, v := range g {
		if !strings.HasPrefix(k, "cqe-") && !strings.Contains(k, "aggr") && !strings.Contains(k, "profile") { // ethtool 6.1 knows others than the kernel
			got[k] = v
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-ethtool +got)\n%s", diff)
	}
}

func TestTableKeyAndFunctionAreWhatEthtoolPrints(t *testing.T) {
	c := dial(t)
	dev := device(t, c)
	if _, err := exec.LookPath("ethtool"); err != nil {
		t.Skip("needs ethtool")
	}
	all, err := c.RSS(dev)
	out, _ := exec.Command("ethtool", "-x", dev).CombinedOutput() // it fails where there is no table
	if err != nil || len(all[0].Table) == 0 {
		if !strings.Contains(string(out), "not supported") {
			t.Errorf("no table is read (%v), ethtool prints\n%s", err, out)
		}
		return
	}
	var want RSS
	row := regexp.MustCompile(`^\s*\d+:((?:\s+\d+)+)$`)
	key := regexp.MustCompile(`^[0-9a-f]{2}(:[0-9a-f]{2})+$`)
	function := regexp.MustCompile(`^\s*(\S+): on$`)
	for line := range strings.Lines(string(out)) {
		line = strings.TrimRight(line, "\n")
		if m := row.FindStringSubmatch(line); m != nil {
			for _, f := range strings.Fields(m[1]) {
				q, err := strconv.Atoi(f)
				if err != nil {
					t.Fatal(err)
				}
				want.Table = append(want.Table, q)
			}
		}
		if m := function.FindStringSubmatch(line); m != nil {
			want.Function = m[1]
		}
		if key.MatchString(line) {
			if want.Key, err = hex.DecodeString(strings.ReplaceAll(line, ":", "")); err != nil {
				t.Fatal(err)
			}
		}
	}
	got := RSS{Table: all[0].Table, Key: all[0].Key, Function: all[0].Function}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-ethtool +got)\n%s", diff)
	}
}

func TestHashFieldsAreTheSameInBothWays(t *testing.T) {
	c := dial(t)
	dev := device(t, c)
	all, err := c.RSS(dev)
	if err != nil || all[0].Fields == nil {
		t.Skip("needs a kernel that tells hash fields over netlink (6.17) and a driver that has them")
	}
	for flow, want := range all[0].Fields {
		if got, err := c.HashFields(dev, flow); err != nil || got != want {
			t.Errorf("%s: %q over netlink, %q by ioctl (%v)", flow, want, got, err)
		}
	}
}

// The ioctls of kernels without the family read the same numbers.
func TestIoctlAgreesWithNetlink(t *testing.T) {
	c := dial(t)
	dev := device(t, c)
	old := &Client{conn: c.conn, io: c.io}
	for what, read := range map[string]func(*Client) (Group, error){
		"channels": func(c *Client) (Group, error) { g, _, err := c.Channels(dev); return g, err },
		"maxima":   func(c *Client) (Group, error) { _, g, err := c.Channels(dev); return g, err },
		"rings":    func(c *Client) (Group, error) { g, _, err := c.Rings(dev); return g, err },
		"coalesce": func(c *Client) (Group, error) { return c.Coalesce(dev) },
	} {
		want, err := read(c)
		if errors.Is(err, ErrNotSupported) {
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		got, err := read(old)
		if err != nil {
			t.Fatal(err)
		}
		for k, v := range got {
			// The structure says 0 for what a device does not have, and lacks what is newer.
			if w, ok := want[k]; v != w && ok || v != 0 && !ok {
				t.Errorf("%s: %s is %d by ioctl, %d over netlink", what, k, v, w)
			}
		}
	}
	want, err1 := c.RSS(dev)
	got, err2 := old.RSS(dev)
	if err1 == nil && err2 == nil {
		want[0].Fields = nil
		if diff := cmp.Diff(want[0], got[0]); diff != "" {
			t.Errorf("rss (-netlink +ioctl)\n%s", diff)
		}
	}
	wantF, err1 := c.Features(dev)
	gotF, err2 := old.Features(dev)
	if err1 != nil || err2 != nil {
		t.Fatal(err1, err2)
	}
	if diff := cmp.Diff(wantF, gotF); diff != "" {
		t.Errorf("features (-netlink +ioctl)\n%s", diff)
	}
	if _, err := old.FEC(dev); !errors.Is(err, unix.ENOSYS) {
		t.Errorf("fec without the family: %v, want ENOSYS", err)
	}
}

func TestFeaturesAreWhatEthtoolPrints(t *testing.T) {
	c := dial(t)
	for _, dev := range []string{"lo", device(t, c)} {
		f, err := c.Features(dev)
		if err != nil {
			t.Fatal(err)
		}
		// ethtool prints old names for some, and a sum for each of those above it;
		// the rest has the kernel's names.
		line := regexp.MustCompile(`(?m)^\t?([a-z0-9-]+): (on|off)(?: \[(fixed|requested (?:on|off))\])?$`)
		seen := 0
		for _, m := range line.FindAllStringSubmatch(tool(t, "-k", dev), -1) {
			on, ok := f.Active[m[1]]
			if !ok {
				continue
			}
			seen++
			if on != (m[2] == "on") || f.Fixed[m[1]] != (m[3] == "fixed") {
				t.Errorf("%s of %s: on %v, fixed %v; ethtool: %s", m[1], dev, on, f.Fixed[m[1]], m[0])
			}
		}
		if seen < 20 {
			t.Errorf("only %d features of %s compared: %v", seen, dev, f.Active)
		}
	}
}

func TestStatisticsHaveEthtoolsNamesAndOrder(t *testing.T) {
	c := dial(t)
	dev := device(t, c)
	stats, err := c.Stats(dev)
	if errors.Is(err, ErrNotSupported) {
		t.Skip("needs a driver with statistics")
	}
	if err != nil {
		t.Fatal(err)
	}
	var want, got []string
	for line := range strings.Lines(tool(t, "-S", dev)) {
		if k, _, ok := strings.Cut(strings.TrimSpace(line), ": "); ok {
			want = append(want, k)
		}
	}
	for _, s := range stats {
		got = append(got, s.Name)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-ethtool +got)\n%s", diff)
	}
}

func TestDriverIsWhatEthtoolPrints(t *testing.T) {
	c := dial(t)
	dev := device(t, c)
	d, err := c.Driver(dev)
	if err != nil {
		t.Fatal(err)
	}
	out := tool(t, "-i", dev)
	for k, v := range map[string]string{"driver": d.Name, "version": d.Version, "firmware-version": d.Firmware, "bus-info": d.Bus} {
		if !strings.Contains(out, k+": "+v+"\n") {
			t.Errorf("%s is %q, ethtool prints\n%s", k, v, out)
		}
	}
}

func TestAbsentIsToldFromRefused(t *testing.T) {
	c := dial(t)
	for what, err := range map[string]error{
		"channels": second(c.Channels("lo")),
		"rings":    second(c.Rings("lo")),
		"coalesce": first(c.Coalesce("lo")),
		"rss":      first(c.RSS("lo")),
		"rules":    first(c.Rules("lo")),
		"fields":   first(c.HashFields("lo", "udp4")),
		"pause":    first(c.Pause("lo")),
		"fec":      first(c.FEC("lo")),
		"flags":    first(c.PrivateFlags("lo")),
		"queue":    first(c.QueueCoalesce("lo", 1)),
		"stats":    first(c.Stats("lo")),
		"write":    c.SetChannels("lo", Group{"combined": 1}),
	} {
		if !errors.Is(err, ErrNotSupported) && !(what == "write" && errors.Is(err, ErrPermission)) {
			t.Errorf("%s of lo: %v, want ErrNotSupported", what, err)
		}
	}
	for what, err := range map[string]error{
		"channels": second(c.Channels("none0")),
		"features": first(c.Features("none0")),
		"rules":    first(c.Rules("none0")),
		"driver":   first(c.Driver("none0")),
		"link":     first(c.Link("none0")),
		"rss":      first(c.RSS("a-name-that-is-too-long")),
	} {
		if err == nil || errors.Is(err, ErrNotSupported) {
			t.Errorf("%s of no device: %v", what, err)
		}
	}
	if l, err := c.Link("lo"); err != nil || !l.Up || l.HasModes {
		t.Errorf("link of lo: %+v, %v: want up, no modes", l, err)
	}
}

func first[T any](_ T, err error) error     { return err }
func second[T any](_, _ T, err error) error { return err }

package reach

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rxsteer/rxsteer/internal/host/hosttest"
	"github.com/rxsteer/rxsteer/internal/testnet"
)

const route4 = `Iface	Destination	Gateway 	Flags	RefCnt	Use	Metric	Mask		MTU	Window	IRTT
bond0	00000000	0100000A	0003	0	0	100	00000000	0	0	0
bond0	0000000A	00000000	0001	0	0	100	00FFFFFF	0	0	0
eth2	0000A8C0	00000000	0000	0	0	0	00FFFFFF	0	0	0
`

const route6 = `fe800000000000000000000000000000 40 00000000000000000000000000000000 00 00000000000000000000000000000000 00000100 00000001 00000000 00000001     eth2
00000000000000000000000000000000 00 00000000000000000000000000000000 00 fe800000000000000000000000000001 00000400 00000001 00000000 00000003     eth2
ff000000000000000000000000000000 08 00000000000000000000000000000000 00 00000000000000000000000000000000 00000100 00000004 00000000 00000001     eth2
00000000000000000000000000000001 80 00000000000000000000000000000000 00 00000000000000000000000000000000 00000000 00000002 00000000 80200001       lo
`

func bonded(t *testing.T, edit map[string]string) Host {
	files := map[string]string{
		"/proc/meminfo":                                "MemTotal:        2000 kB\nMemFree: 10 kB\nMemAvailable:    1000 kB\n",
		"/proc/net/route":                              route4,
		"/proc/net/ipv6_route":                         route6,
		"/proc/self/environ":                           "A=b\x00",
		"/proc/self/status":                            "Name:\trxsteer\nPPid:\t7\n",
		"/proc/7/environ":                              "SUDO_USER=x\x00",
		"/proc/7/status":                               "PPid:\t6\n",
		"/proc/6/environ":                              "X=1\x00SSH_CONNECTION=10.0.0.9 1234 10.0.0.5 22\x00Y=2",
		"/sys/class/net/bond0/carrier":                 "1\n",
		"/sys/class/net/bond0/lower_eth0":              "-> ../eth0",
		"/sys/class/net/bond0/lower_eth1":              "-> ../eth1",
		"/sys/class/net/eth0/carrier":                  "1\n",
		"/sys/class/net/eth0/master":                   "-> ../bond0",
		"/sys/class/net/eth0/bonding_slave/state":      "active\n",
		"/sys/class/net/eth0/bonding_slave/mii_status": "up\n",
		"/sys/class/net/eth0/bonding_slave/ad_actor_oper_port_state": "61\n",
		"/sys/class/net/eth1/carrier":                                "1\n",
		"/sys/class/net/eth1/master":                                 "-> ../bond0",
		"/sys/class/net/eth1/bonding_slave/state":                    "active\n",
		"/sys/class/net/eth1/bonding_slave/mii_status":               "up\n",
		"/sys/class/net/eth2/carrier":                                "1\n",
	}
	for k, v := range edit {
		files[k] = v
	}
	return Host{FS: hosttest.Static(t, files), Addresses: func(d string) ([]string, error) {
		return map[string][]string{"bond0": {"10.0.0.5/24"}, "eth2": {"192.168.0.1/24", "fe80::1/64"}}[d], nil
	}}
}

func TestState(t *testing.T) {
	s, err := bonded(t, nil).State("bond0", "eth0", "eth1", "eth2", "eth9")
	if err != nil {
		t.Fatal(err)
	}
	want := &State{Available: 1000 << 10, Links: map[string]Link{
		"bond0": {Carrier: true, Addresses: []string{"10.0.0.5/24"}, Routes: []string{"0.0.0.0/0 via 10.0.0.1", "10.0.0.0/24"}},
		"eth0":  {Carrier: true, Bond: "bond0", Active: true},
		"eth1":  {Carrier: true, Bond: "bond0", Active: true},
		"eth2":  {Carrier: true, Addresses: []string{"192.168.0.1/24", "fe80::1/64"}, Routes: []string{"::/0 via fe80::1", "fe80::/64"}},
	}}
	if diff := cmp.Diff(want, s); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestLost(t *testing.T) {
	before, err := bonded(t, nil).State("bond0", "eth0", "eth2")
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		name, device string
		edit         map[string]string
		want         string
	}{
		{"nothing", "eth0", nil, ""},
		{"carrier", "eth2", map[string]string{"/sys/class/net/eth2/carrier": "0\n"}, "eth2 lost its carrier"},
		{"LACP does not collect", "eth0", map[string]string{"/sys/class/net/eth0/bonding_slave/ad_actor_oper_port_state": "5\n"}, "eth0 lost its place in bond0"},
		{"MII", "eth0", map[string]string{"/sys/class/net/eth0/bonding_slave/mii_status": "down\n"}, "eth0 lost its place in bond0"},
		{"a route", "bond0", map[string]string{"/proc/net/route": ""}, "bond0 lost route 0.0.0.0/0 via 10.0.0.1, route 10.0.0.0/24"},
	} {
		t.Run(test.name, func(t *testing.T) {
			after, err := bonded(t, test.edit).State("bond0", "eth0", "eth2")
			if err != nil {
				t.Fatal(err)
			}
			if got := Lost(before, after, test.device); got != test.want {
				t.Errorf("%q, want %q", got, test.want)
			}
		})
	}
	h := bonded(t, nil)
	h.Addresses = func(string) ([]string, error) { return nil, nil }
	after, err := h.State("eth2")
	if err != nil {
		t.Fatal(err)
	}
	if got := Lost(before, after, "eth2"); got != "eth2 lost address 192.168.0.1/24, address fe80::1/64" {
		t.Errorf("%q", got)
	}
	if got := Lost(before, after, "eth0"); got != "eth0 is gone" {
		t.Errorf("%q", got)
	}
}

// The connection is found also when sudo has dropped its variable, and so are the members of the bond it
// comes by.
func TestLifelines(t *testing.T) {
	h := bonded(t, nil)
	got := h.Lifelines("")
	want := []Lifeline{
		{"bond0", "your SSH connection from 10.0.0.9"}, {"eth0", "your SSH connection from 10.0.0.9 through bond0"}, {"eth1", "your SSH connection from 10.0.0.9 through bond0"},
		{"bond0", "the default route"}, {"eth0", "the default route through bond0"}, {"eth1", "the default route through bond0"},
		{"eth2", "the default route"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if got := h.Lifelines("192.168.0.2 999 192.168.0.1 22"); got[0] != (Lifeline{"eth2", "your SSH connection from 192.168.0.2"}) {
		t.Errorf("%v", got[0])
	}
}

// TestRealHost: the kernel's own words.
func TestRealHost(t *testing.T) {
	a, b := testnet.New(t), testnet.New(t)
	if err := testnet.Connect(a, b, testnet.Veth{AddrA: "10.82.0.1/24", AddrB: "10.82.0.2/24"}); err != nil {
		t.Fatal(err)
	}
	if err := b.IP("route", "add", "default", "via", "10.82.0.1"); err != nil {
		t.Fatal(err)
	}
	h := Host{FS: b.FS()}
	look := func() (s *State, l []Lifeline) {
		if err := b.Do(func() (err error) {
			l = h.Lifelines("10.82.0.1 1000 10.82.0.2 22")
			s, err = h.State("b0")
			return err
		}); err != nil {
			t.Fatal(err)
		}
		return s, l
	}
	before, lines := look()
	if diff := cmp.Diff([]Lifeline{{"b0", "your SSH connection from 10.82.0.1"}, {"b0", "the default route"}}, lines); diff != "" {
		t.Errorf("lifelines (-want +got):\n%s", diff)
	}
	if before.Available == 0 || !before.Links["b0"].Carrier || !cmp.Equal(before.Links["b0"].Routes[:2], []string{"0.0.0.0/0 via 10.82.0.1", "10.82.0.0/24"}) {
		t.Errorf("%+v", before)
	}
	if err := b.IP("addr", "del", "10.82.0.2/24", "dev", "b0"); err != nil {
		t.Fatal(err)
	}
	if err := a.IP("link", "set", "a0", "down"); err != nil {
		t.Fatal(err)
	}
	after, _ := look()
	if got, want := Lost(before, after, "b0"), "b0 lost its carrier, address 10.82.0.2/24, route 0.0.0.0/0 via 10.82.0.1, route 10.82.0.0/24"; len(got) < len(want) || got[:len(want)-20] != want[:len(want)-20] {
		t.Errorf("%q, want %q", got, want)
	}
}

func FuzzRoutes(f *testing.F) {
	f.Add(route4, route6)
	f.Fuzz(func(t *testing.T, a, b string) {
		for _, r := range append(parseRoutes4(a), parseRoutes6(b)...) {
			if r.text == "" || r.device == "" {
				t.Errorf("%+v", r)
			}
		}
	})
}

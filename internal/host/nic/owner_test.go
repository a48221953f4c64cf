package nic

import (
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rxsteer/rxsteer/internal/ethtool"
	"github.com/rxsteer/rxsteer/internal/host"
	"github.com/rxsteer/rxsteer/internal/host/hosttest"
	"github.com/rxsteer/rxsteer/internal/host/knob"
)

type attachments struct {
	programs []XDP
	sockets  []XSK
}

func (a attachments) Programs() ([]XDP, error) { return a.programs, nil }
func (a attachments) Sockets() ([]XSK, error)  { return a.sockets, nil }

type contexts map[string][]ethtool.RSS

func (c contexts) RSS(dev string) ([]ethtool.RSS, error) {
	if all := c[dev]; all != nil {
		return all, nil
	}
	return nil, ethtool.ErrNotSupported
}

func TestOwners(t *testing.T) {
	eth0 := NIC{Name: "eth0", IfIndex: 2, Kind: Physical, Driver: "igb", MAC: "02:00:00:00:00:02", Queues: []Queue{{RX: 0, TX: 0, IRQ: 41}, {RX: 1, TX: 1, IRQ: 42, XSK: true}}}
	eth1 := NIC{Name: "eth1", IfIndex: 3, Kind: Physical, Driver: "ixgbe", MAC: "02:00:00:00:00:03", Queues: []Queue{{RX: 0, TX: 0, IRQ: 51}}}
	noXSK := eth0
	noXSK.Queues = []Queue{{RX: 0, TX: 0, IRQ: 41}, {RX: 1, TX: 1, IRQ: 42}}
	cases := []struct {
		name  string
		files map[string]string
		nics  []NIC
		att   Attachments
		rss   RSS
		want  []knob.Owner
	}{
		{name: "nobody", nics: []NIC{noXSK}, files: map[string]string{"/proc/1/comm": "systemd\n"}},
		{
			name: "irqbalance without bans", nics: []NIC{noXSK},
			files: map[string]string{"/proc/812/comm": "irqbalance\n", "/proc/812/cmdline": "/usr/sbin/irqbalance\x00--foreground\x00", "/etc/sysconfig/irqbalance": "# IRQBALANCE_ARGS=\n"},
			want: []knob.Owner{{Name: "irqbalance", Device: "eth0", Knobs: []knob.Kind{knob.IRQAffinity}, Detail: "pid 812, moves IRQ 41-42",
				Settle: []string{`/etc/sysconfig/irqbalance: IRQBALANCE_ARGS="--banirq=41 --banirq=42"`, "systemctl restart irqbalance"}}},
		},
		{
			name: "irqbalance that bans one device and half of the other", nics: []NIC{noXSK, eth1},
			files: map[string]string{"/proc/812/comm": "irqbalance\n", "/proc/812/cmdline": "/usr/sbin/irqbalance\x00-i\x0041\x00", "/proc/812/environ": "PATH=/bin\x00IRQBALANCE_ARGS=--banirq=51 --policyscript=/etc/p\x00IRQBALANCE_BANNED_CPULIST=2-3\x00"},
			want: []knob.Owner{{Name: "irqbalance", Device: "eth0", Knobs: []knob.Kind{knob.IRQAffinity}, Detail: "pid 812, bans CPUs 2-3, policy script /etc/p, moves IRQ 42",
				Settle: []string{`/etc/default/irqbalance: IRQBALANCE_ARGS="--banirq=41 --banirq=51 --banirq=42"`, "systemctl restart irqbalance"}}},
		},
		{
			name: "tuned through an included profile", nics: []NIC{noXSK},
			files: map[string]string{
				"/proc/900/comm": "tuned\n", "/proc/900/cmdline": "/usr/bin/python3\x00-Es\x00/usr/sbin/tuned\x00",
				"/etc/tuned/active_profile":                     "mine\n",
				"/etc/tuned/mine/tuned.conf":                    "[main]\ninclude=network-latency\n[net]\nchannels=combined 4\n",
				"/usr/lib/tuned/network-latency/tuned.conf":     "[main]\nsummary=x\ninclude=latency-performance\n[sysctl]\nnet.core.busy_read=50\nvm.swappiness=10\n",
				"/usr/lib/tuned/latency-performance/tuned.conf": "[main]\ninclude=mine\n", // a cycle
			},
			want: []knob.Owner{{Name: "tuned", Knobs: []knob.Kind{knob.BusyRead, knob.Channels}, Detail: "pid 900, profile mine",
				Settle: []string{"/etc/tuned/rxsteer/tuned.conf: [main]", "/etc/tuned/rxsteer/tuned.conf: include=mine", "/etc/tuned/rxsteer/tuned.conf: [net]", "/etc/tuned/rxsteer/tuned.conf: enabled=false", "/etc/tuned/rxsteer/tuned.conf: [sysctl]", "/etc/tuned/rxsteer/tuned.conf: enabled=false", "tuned-adm profile rxsteer"}}},
		},
		{name: "a profile of a tuned that does not run", nics: []NIC{noXSK}, files: map[string]string{"/etc/tuned/active_profile": "throughput\n", "/usr/lib/tuned/throughput/tuned.conf": "[net]\nchannels=combined 4\n"}},
		{
			name: "the first .link file that matches, with its drop-in", nics: []NIC{noXSK, eth1},
			files: map[string]string{
				"/etc/systemd/network/10-a.link":                 "[Match]\nDriver=igb\n[Link]\nNamePolicy=keep\n",
				"/etc/systemd/network/10-a.link.d/x.conf":        "[Link]\nRxBufferSize=4096\nReceivePacketSteeringCPUMask=0-3\n",
				"/usr/lib/systemd/network/10-a.link":             "[Match]\nOriginalName=*\n[Link]\nCombinedChannels=1\n",
				"/usr/lib/systemd/network/20-b.link":             "[Match]\nOriginalName=eth*\n[Link]\nGenericReceiveOffload=no\n",
				"/usr/lib/systemd/network/30-c.link":             "[Match]\nOriginalName=*\n[Link]\nMTUBytes=9000\n",
				"/etc/systemd/network/20-b.link":                 "", // masked
				"/usr/lib/systemd/network/99-not-a-link.network": "[Match]\nName=*\n",
			},
			want: []knob.Owner{
				{Name: "systemd .link", Device: "eth0", Knobs: []knob.Kind{knob.Rings, knob.RPSCPUs}, Detail: "/etc/systemd/network/10-a.link: RxBufferSize=4096 ReceivePacketSteeringCPUMask=0-3",
					Settle: []string{"/etc/systemd/network/10-a.link: remove RxBufferSize=", "/etc/systemd/network/10-a.link: remove ReceivePacketSteeringCPUMask="}},
				{Name: "systemd .link", Device: "eth1", Knobs: []knob.Kind{knob.MTU}, Detail: "/usr/lib/systemd/network/30-c.link: MTUBytes=9000", Settle: []string{"/etc/systemd/network/30-c.link: remove MTUBytes="}},
			},
		},
		{
			name: "NetworkManager", nics: []NIC{noXSK},
			files: map[string]string{"/proc/700/comm": "NetworkManager\n", "/etc/NetworkManager/system-connections/wired.nmconnection": "[connection]\ninterface-name=eth0\n[ethtool]\nring-rx=4096\nfeature-gro=false\n"},
			want: []knob.Owner{{Name: "NetworkManager", Device: "eth0", Knobs: []knob.Kind{knob.Features, knob.Rings}, Detail: "pid 700, /etc/NetworkManager/system-connections/wired.nmconnection: ring-rx feature-gro",
				Settle: []string{"nmcli connection modify wired ethtool.ring-rx ''", "nmcli connection modify wired ethtool.feature-gro ''"}}},
		},
		{
			name: "ifcfg, interfaces and udev", nics: []NIC{noXSK},
			files: map[string]string{
				"/etc/sysconfig/network-scripts/ifcfg-eth0": "DEVICE=eth0\nETHTOOL_OPTS=\"-G ${DEVICE} rx 4096; -C ${DEVICE} rx-usecs 10\"\n",
				"/etc/sysconfig/network-scripts/ifcfg-lo":   "DEVICE=lo\n",
				"/etc/network/interfaces":                   "auto eth0\niface eth0 inet dhcp\n\toffload-gro off\n\tpost-up echo f > /sys/class/net/eth0/queues/rx-0/rps_cpus\n",
				"/etc/udev/rules.d/60-net.rules":            "# ethtool -K\nACTION==\"add\", SUBSYSTEM==\"net\", \\\n RUN+=\"/sbin/ethtool -L $name combined 4\"\n",
				"/usr/lib/udev/rules.d/99-azure-rps.rules":  "SUBSYSTEM==\"net\", ATTR{queues/rx-0/rps_cpus}=\"f\"\n",
				"/usr/lib/udev/rules.d/80-net-setup.rules":  "SUBSYSTEM==\"net\", IMPORT{builtin}=\"path_id\"\n",
			},
			want: []knob.Owner{
				{Name: "azure udev rules", Knobs: []knob.Kind{knob.RPSCPUs}, Detail: `/usr/lib/udev/rules.d/99-azure-rps.rules: SUBSYSTEM=="net", ATTR{queues/rx-0/rps_cpus}="f"`, Settle: []string{"/etc/udev/rules.d/99-azure-rps.rules: an empty file masks it"}},
				{Name: "ifcfg", Device: "eth0", Knobs: []knob.Kind{knob.Coalesce, knob.Rings}, Detail: "/etc/sysconfig/network-scripts/ifcfg-eth0: ETHTOOL_OPTS=-G ${DEVICE} rx 4096; -C ${DEVICE} rx-usecs 10", Settle: []string{"/etc/sysconfig/network-scripts/ifcfg-eth0: remove ETHTOOL_OPTS"}},
				{Name: "ifupdown", Device: "eth0", Knobs: []knob.Kind{knob.Features}, Detail: "/etc/network/interfaces: offload-gro off", Settle: []string{"/etc/network/interfaces: remove offload-gro off"}},
				{Name: "ifupdown", Device: "eth0", Knobs: []knob.Kind{knob.RPSCPUs}, Detail: "/etc/network/interfaces: post-up echo f > /sys/class/net/eth0/queues/rx-0/rps_cpus", Settle: []string{"/etc/network/interfaces: remove post-up echo f > /sys/class/net/eth0/queues/rx-0/rps_cpus"}},
				{Name: "udev", Knobs: []knob.Kind{knob.Channels}, Detail: `/etc/udev/rules.d/60-net.rules: ACTION=="add", SUBSYSTEM=="net",   RUN+="/sbin/ethtool -L $name combined 4"`, Settle: []string{"/etc/udev/rules.d/60-net.rules: an empty file masks it"}},
			},
		},
		{
			name: "google", nics: []NIC{noXSK}, files: map[string]string{"/usr/bin/google_set_multiqueue": "#!/bin/bash\n", "/etc/default/instance_configs.cfg": "[InstanceSetup]\nset_multiqueue = true\n"},
			want: []knob.Owner{{Name: "google guest agent", Knobs: []knob.Kind{knob.Channels, knob.IRQAffinity, knob.XPSCPUs}, Detail: "/usr/bin/google_set_multiqueue", Settle: []string{"/etc/default/instance_configs.cfg.template: [InstanceSetup]", "/etc/default/instance_configs.cfg.template: set_multiqueue = false"}}},
		},
		{name: "google told not to", nics: []NIC{noXSK}, files: map[string]string{"/usr/bin/google_set_multiqueue": "#!/bin/bash\n", "/etc/default/instance_configs.cfg": "[InstanceSetup]\nset_multiqueue = false\n"}},
		{
			name: "XDP, AF_XDP and contexts", nics: []NIC{eth0, eth1}, files: map[string]string{"/proc/1/comm": "systemd\n"},
			att: attachments{programs: []XDP{{IfIndex: 3, Program: 77, Mode: "driver"}, {IfIndex: 99, Program: 1, Mode: "generic"}}, sockets: []XSK{{IfIndex: 2, Queue: 1}, {IfIndex: 3, Queue: 0}}},
			rss: contexts{"eth1": {{Table: []int{0}}, {Context: 1, Table: []int{2, 3, 2, 3}}}},
			want: []knob.Owner{
				{Name: "AF_XDP", Device: "eth0", Knobs: []knob.Kind{knob.Channels, knob.Rings, knob.RSSTable}, Detail: "sockets on rx queues 1", Settle: []string{"stop the program that holds the sockets (ss --xdp -p)"}},
				{Name: "AF_XDP", Device: "eth1", Knobs: []knob.Kind{knob.Channels, knob.Rings, knob.RSSTable}, Detail: "sockets on rx queues 0", Settle: []string{"stop the program that holds the sockets (ss --xdp -p)"}},
				{Name: "RSS context", Device: "eth1", Knobs: []knob.Kind{knob.Channels, knob.NtupleRule, knob.RSSTable}, Detail: "context 1 uses queues 2-3", Settle: []string{"ethtool -X eth1 context 1 delete"}},
				{Name: "XDP program", Device: "eth1", Knobs: []knob.Kind{knob.Channels, knob.Features, knob.MTU}, Detail: "program 77 in driver mode", Settle: []string{"ip link set dev eth1 xdp off"}},
			},
		},
		{
			name: "another rxsteer, but not this one and not a reader", nics: []NIC{noXSK},
			files: map[string]string{"/proc/self": "-> 20", "/proc/20/comm": "rxsteer\n", "/proc/20/cmdline": "rxsteer\x00apply\x00", "/proc/21/comm": "rxsteer\n", "/proc/21/cmdline": "rxsteer\x00top\x00", "/proc/22/comm": "rxsteer\n", "/proc/22/cmdline": "/usr/bin/rxsteer\x00agent\x00--config\x00/etc/r\x00"},
			want:  []knob.Owner{{Name: "rxsteer", Detail: "pid 22, agent", Settle: []string{"stop the other rxsteer: systemctl stop rxsteer"}}},
		},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			got, err := Owners(t.Context(), OwnerSources{FS: hosttest.Static(t, c.files), NICs: c.nics, Attachments: c.att, RSS: c.rss})
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(c.want, got); d != "" {
				t.Errorf("owners (-want +got):\n%s", d)
			}
		})
	}
}

func TestAttachmentsOfThisHost(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: sock_diag")
	}
	if _, err := (Netlink{}).Programs(); err != nil {
		t.Error(err)
	}
	if _, err := (Netlink{}).Sockets(); err != nil {
		t.Error(err)
	}
}

func FuzzParseXDP(f *testing.F) {
	f.Add([]byte{})
	f.Add(append(make([]byte, 16), 12, 0, 43, 0, 5, 0, 2, 0, 1, 0, 0, 0))
	f.Fuzz(func(t *testing.T, b []byte) {
		if _, ok, err := parseXDP(b); ok && err != nil {
			t.Error("both a program and an error")
		}
		if _, ok, err := parseXSK(b); ok && err != nil {
			t.Error("both a socket and an error")
		}
	})
}

// TestOwnersOfThisHost: whatever runs here, reading it is no error.
func TestOwnersOfThisHost(t *testing.T) {
	all, err := Inventory(t.Context(), Sources{FS: host.OS{}})
	if errors.Is(err, os.ErrNotExist) {
		t.Skip("needs /sys/class/net")
	}
	if err != nil {
		t.Fatal(err)
	}
	got, err := Owners(t.Context(), OwnerSources{FS: host.OS{}, NICs: all, Attachments: Netlink{}})
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range got {
		if o.Name == "" || len(o.Settle) == 0 || strings.Contains(strings.Join(o.Settle, ""), "\n") {
			t.Errorf("owner without a name or with bad lines to settle: %+v", o)
		}
	}
}

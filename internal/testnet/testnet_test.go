package testnet

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"golang.org/x/sys/unix"
)

func names(t *testing.T, ns *NS, dir string) []string {
	t.Helper()
	entries, err := ns.FS().ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, e := range entries {
		out = append(out, e.Name())
	}
	return out
}

func exists(name string) bool {
	_, err := os.Stat(filepath.Join(runDir, name))
	return err == nil
}

func TestNamespaceShowsOnlyItsOwnDevices(t *testing.T) {
	ns := New(t)
	if err := ns.IP("link", "add", "x0", "type", "veth", "peer", "name", "x1"); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"lo", "x0", "x1"}, names(t, ns, "/sys/class/net")); diff != "" {
		t.Errorf("/sys/class/net (-want +got):\n%s", diff)
	}
	dev, err := ns.FS().ReadFile("/proc/net/dev")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(dev), "x0:") {
		t.Errorf("/proc/net/dev lacks x0:\n%s", dev)
	}
	if _, err := ns.FS().ReadFile("/sys/class/net/x0/none"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("absent file: got %v, want fs.ErrNotExist", err)
	}
	if err := ns.FS().WriteFile("/sys/class/net/x0/mtu", []byte("1400")); err != nil {
		t.Fatal(err)
	}
	if mtu, err := ns.FS().ReadFile("/sys/class/net/x0/mtu"); err != nil || string(mtu) != "1400\n" {
		t.Errorf("mtu after write: %q, %v", mtu, err)
	}
	if _, err := net.InterfaceByName("x0"); err == nil {
		t.Error("x0 is visible outside its namespace")
	}
}

func TestDoRunsInside(t *testing.T) {
	a, b := New(t), New(t)
	inode := func() (uint64, error) {
		var st unix.Stat_t
		err := unix.Stat("/proc/thread-self/ns/net", &st)
		return st.Ino, err
	}
	outside, err := inode()
	if err != nil {
		t.Fatal(err)
	}
	err = a.Do(func() error {
		got, err := inode()
		if err != nil {
			return err
		}
		if got != a.Inode() || got == outside {
			return fmt.Errorf("in a: inode %d, want %d (outside %d)", got, a.Inode(), outside)
		}
		// Nested, and back in the first namespace afterwards.
		if err := b.Do(func() error {
			if got, err := inode(); err != nil || got != b.Inode() {
				return fmt.Errorf("in b: inode %d, want %d, %v", got, b.Inode(), err)
			}
			return nil
		}); err != nil {
			return err
		}
		if got, err := inode(); err != nil || got != a.Inode() {
			return fmt.Errorf("after nesting: inode %d, want %d, %v", got, a.Inode(), err)
		}
		entries, err := os.ReadDir("/sys/class/net")
		if err != nil {
			return err
		}
		if len(entries) != 1 || entries[0].Name() != "lo" {
			return fmt.Errorf("/sys/class/net inside Do: %v", entries)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
	if got, err := inode(); err != nil || got != outside {
		t.Errorf("outside afterwards: inode %d, want %d, %v", got, outside, err)
	}
	want := errors.New("from fn")
	if err := a.Do(func() error { return want }); !errors.Is(err, want) {
		t.Errorf("Do: got %v, want the function's error", err)
	}
	if err := a.Do(func() error { runtime.Goexit(); return nil }); err == nil {
		t.Error("Do: a function that ended its goroutine was taken for success")
	}
}

func TestCloseRemovesTheNamespace(t *testing.T) {
	NeedRoot(t)
	ns, err := Create()
	if err != nil {
		t.Fatal(err)
	}
	if !exists(ns.Name) {
		t.Fatalf("%s is not in %s", ns.Name, runDir)
	}
	if err := ns.Close(); err != nil {
		t.Fatal(err)
	}
	if exists(ns.Name) {
		t.Errorf("%s survived Close", ns.Name)
	}
	if err := ns.Close(); err != nil {
		t.Errorf("second Close: %v", err)
	}
}

// The test runs itself as a child that makes a namespace and fails or is killed.
func TestNothingSurvivesAFailedOrKilledRun(t *testing.T) {
	NeedRoot(t)
	if how := os.Getenv("TESTNET_CHILD"); how != "" {
		ns := New(t)
		if err := os.WriteFile(os.Getenv("TESTNET_NAME"), []byte(ns.Name), 0o600); err != nil {
			t.Fatal(err)
		}
		if how == "kill" {
			if err := unix.Kill(os.Getpid(), unix.SIGKILL); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Minute) // the signal ends us
		}
		t.Fatal("the child fails on purpose")
	}
	for _, how := range []string{"fail", "kill"} {
		t.Run(how, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "name")
			cmd := exec.Command(os.Args[0], "-test.run=^TestNothingSurvivesAFailedOrKilledRun$")
			cmd.Env = append(os.Environ(), "TESTNET_CHILD="+how, "TESTNET_NAME="+file)
			if out, err := cmd.CombinedOutput(); err == nil {
				t.Fatalf("the child passed:\n%s", out)
			}
			name, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if how == "kill" {
				if !exists(string(name)) {
					t.Fatalf("%s vanished by itself: the test proves nothing", name)
				}
				if err := Reap(); err != nil {
					t.Fatal(err)
				}
			}
			if exists(string(name)) {
				t.Errorf("%s was left behind", name)
			}
		})
	}
}

func TestReapSparesTheLivingAndTheForeign(t *testing.T) {
	ns := New(t)
	if err := Reap(); err != nil {
		t.Fatal(err)
	}
	if !exists(ns.Name) {
		t.Error("Reap deleted a namespace whose owner lives")
	}
	for name, want := range map[string]bool{
		"rxt-12-345-1":   true,
		"rxt-12-345":     false,
		"rxt-x-345-1":    false,
		"cni-12-345-1":   false,
		"rxt-12-345-1-2": false,
	} {
		if _, _, ok := owner(name); ok != want {
			t.Errorf("owner(%q) ok = %v, want %v", name, ok, want)
		}
	}
}

func TestVethQueuesAndTraffic(t *testing.T) {
	a, b := New(t), New(t)
	if err := Connect(a, b, Veth{Queues: 3, AddrA: "10.9.0.1/24 fd09::1/64", AddrB: "10.9.0.2/24 fd09::2/64", NAPI: true, StaticNeigh: true}); err != nil {
		t.Fatal(err)
	}
	want := []string{"rx-0", "rx-1", "rx-2", "tx-0", "tx-1", "tx-2"}
	if diff := cmp.Diff(want, names(t, b, "/sys/class/net/b0/queues")); diff != "" {
		t.Errorf("queues (-want +got):\n%s", diff)
	}
	if err := b.SetRPS("b0", 2, "1"); err != nil {
		t.Error(err)
	}
	if err := b.SetRPS("b0", 7, "1"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("rps_cpus of an absent queue: got %v, want fs.ErrNotExist", err)
	}
	for _, addr := range []string{"10.9.0.2", "fd09::2"} {
		var rx, tx net.Conn
		err := b.Do(func() error {
			c, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.ParseIP(addr), Port: 9})
			rx = c
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		defer rx.Close()
		err = a.Do(func() (err error) {
			tx, err = net.Dial("udp", net.JoinHostPort(addr, "9"))
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		defer tx.Close()
		if _, err := tx.Write([]byte("hello")); err != nil {
			t.Fatal(err)
		}
		buf := make([]byte, 16)
		if err := rx.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
			t.Fatal(err)
		}
		n, err := rx.Read(buf)
		if err != nil || string(buf[:n]) != "hello" {
			t.Errorf("over %s: read %q, %v", addr, buf[:n], err)
		}
	}
	if err := b.Delete("b0"); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"lo"}, names(t, a, "/sys/class/net")); diff != "" {
		t.Errorf("peer after delete (-want +got):\n%s", diff)
	}
}

func TestTAPInjectionReachesTheChosenQueue(t *testing.T) {
	NeedTun(t)
	ns := New(t)
	tap, err := ns.NewTAP("t0", 3)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := tap.Close(); err != nil {
			t.Error(err)
		}
	})
	if err := ns.Addr("t0", "10.8.0.1/24"); err != nil {
		t.Fatal(err)
	}
	mac, err := ns.MAC("t0")
	if err != nil {
		t.Fatal(err)
	}
	// The witness: of a PACKET_FANOUT_QM group, member i gets the frames whose
	// skb->queue_mapping mod 3 is i, and the mapping of receive queue q is q + 1
	// (skb_record_rx_queue, include/linux/skbuff.h).
	socks := make([]int, 3)
	err = ns.Do(func() error {
		index, err := net.InterfaceByName("t0")
		if err != nil {
			return err
		}
		for i := range socks {
			fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, int(htons(unix.ETH_P_IP)))
			if err != nil {
				return err
			}
			t.Cleanup(func() { unix.Close(fd) })
			socks[i] = fd
			if err := unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: htons(unix.ETH_P_IP), Ifindex: index.Index}); err != nil {
				return err
			}
			if err := unix.SetsockoptInt(fd, unix.SOL_PACKET, unix.PACKET_FANOUT, unix.PACKET_FANOUT_QM<<16|77); err != nil {
				return err
			}
			if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Usec: 20_000}); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	want := []int{5, 7, 11}
	for q, n := range want {
		for range n {
			if err := tap.Inject(q, udpFrame(t, mac)); err != nil {
				t.Fatal(err)
			}
		}
	}
	got := make([]int, 3)
	buf := make([]byte, 256)
	for i, fd := range socks {
		for {
			if _, _, err := unix.Recvfrom(fd, buf, 0); err != nil {
				break
			}
			got[(i+len(got)-1)%len(got)]++
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("frames by queue (-want +got):\n%s", diff)
	}
	if err := tap.Inject(3, nil); err == nil {
		t.Error("injecting on an absent queue succeeded")
	}
}

func htons(v uint16) uint16 { return v<<8 | v>>8 }

func udpFrame(t *testing.T, dst net.HardwareAddr) []byte {
	t.Helper()
	ip := &layers.IPv4{Version: 4, TTL: 64, Protocol: layers.IPProtocolUDP, SrcIP: net.IP{10, 8, 0, 2}, DstIP: net.IP{10, 8, 0, 1}}
	udp := &layers.UDP{SrcPort: 1234, DstPort: 5678}
	if err := udp.SetNetworkLayerForChecksum(ip); err != nil {
		t.Fatal(err)
	}
	buf := gopacket.NewSerializeBuffer()
	if err := gopacket.SerializeLayers(buf, gopacket.SerializeOptions{FixLengths: true, ComputeChecksums: true},
		&layers.Ethernet{SrcMAC: net.HardwareAddr{2, 0, 0, 0, 0, 9}, DstMAC: dst, EthernetType: layers.EthernetTypeIPv4},
		ip, udp, gopacket.Payload("payload")); err != nil {
		t.Fatal(err)
	}
	return buf.Bytes()
}

// TestUndisturbedTriesAgain: what holds once passes, what was made is gone before the next try, what never holds fails.
func TestUndisturbedTriesAgain(t *testing.T) {
	n, open := 0, 0
	Undisturbed(t, func(t testing.TB) {
		if open++; open > 1 {
			t.Fatal("the try before was not cleaned up")
		}
		t.Cleanup(func() { open-- })
		switch n++; n {
		case 1:
			t.Fatalf("try %d", n)
		case 2:
			t.Error("try", n)
		}
	})
	if n != 3 || open != 0 {
		t.Errorf("%d tries, %d not cleaned up; want 3 and none", n, open)
	}
	never := &attempt{TB: t}
	n = 0
	never.run(func(t testing.TB) { Undisturbed(t, func(t testing.TB) { n++; t.Errorf("try %d", n) }) })
	if !never.failed || n != tries || !strings.Contains(never.said, "try 5") {
		t.Errorf("after %d tries: failed %v, %s", n, never.failed, never.said)
	}
	left := &attempt{TB: t}
	left.run(func(t testing.TB) { Undisturbed(t, func(t testing.TB) { t.Skip("needs luck") }) })
	if !left.skipped || left.why != "needs luck" {
		t.Errorf("skipped %v: %q", left.skipped, left.why)
	}
}

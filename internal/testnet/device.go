package testnet

import (
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Veth describes a veth pair; A is the sender's end, B the receiver's.
type Veth struct {
	A, B         string // device names; "a0", "b0" when empty
	Queues       int    // receive and transmit queues of both ends; 1 when 0
	AddrA, AddrB string // addresses with prefix length ("10.1.0.1/24"), blank-separated when several; none when empty
	// NAPI makes B receive through NAPI: its GRO on and A's TSO off
	// (veth_skb_is_eligible_for_gro, drivers/net/veth.c).
	NAPI bool
	// StaticNeigh enters each end's addresses in the other's neighbour table.
	StaticNeigh bool
}

// Connect makes a veth pair from namespace a to b and sets it up. It dies with
// either namespace.
func Connect(a, b *NS, v Veth) error {
	if v.A == "" {
		v.A = "a0"
	}
	if v.B == "" {
		v.B = "b0"
	}
	q := strconv.Itoa(max(v.Queues, 1))
	if err := run("ip", "link", "add", "name", v.A, "netns", a.Name, "numtxqueues", q, "numrxqueues", q,
		"type", "veth", "peer", "name", v.B, "netns", b.Name, "numtxqueues", q, "numrxqueues", q); err != nil {
		return err
	}
	if v.NAPI {
		if err := a.Run("ethtool", "-K", v.A, "tso", "off"); err != nil {
			return err
		}
		if err := b.Run("ethtool", "-K", v.B, "gro", "on"); err != nil {
			return err
		}
	}
	for _, end := range []struct {
		ns   *NS
		dev  string
		addr string
	}{{a, v.A, v.AddrA}, {b, v.B, v.AddrB}} {
		for _, addr := range strings.Fields(end.addr) {
			if err := end.ns.Addr(end.dev, addr); err != nil {
				return err
			}
		}
		if err := end.ns.IP("link", "set", end.dev, "up"); err != nil {
			return err
		}
	}
	if err := a.awaitCarrier(v.A); err != nil {
		return err
	}
	if v.StaticNeigh {
		if err := neighbours(a, v.A, b, v.B, v.AddrB); err != nil {
			return err
		}
		return neighbours(b, v.B, a, v.A, v.AddrA)
	}
	return nil
}

// awaitCarrier waits until a device sends. One that was set up before its peer gets its queueing discipline when a worker
// of the kernel hears of the carrier (linkwatch_do_dev, net/core/link_watch.c); until then it drops what it is to send.
func (ns *NS) awaitCarrier(dev string) error {
	for end := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		state, err := ns.FS().ReadFile("/sys/class/net/" + dev + "/operstate")
		if err != nil {
			return err
		}
		if strings.TrimSpace(string(state)) == "up" {
			break
		}
		if time.Now().After(end) {
			return fmt.Errorf("wait for the carrier of %s: it is %s", dev, strings.TrimSpace(string(state)))
		}
	}
	// The worker holds the lock of network settings until it is done: this waits for it.
	return ns.IP("link", "set", dev, "up")
}

// neighbours enters peer's addresses on dev of ns.
func neighbours(ns *NS, dev string, peer *NS, peerDev, addrs string) error {
	mac, err := peer.MAC(peerDev)
	if err != nil {
		return err
	}
	for _, addr := range strings.Fields(addrs) {
		host, _, _ := strings.Cut(addr, "/")
		if err := ns.Neigh(dev, host, mac); err != nil {
			return err
		}
	}
	return nil
}

// Addr adds an address with prefix length; IPv6 skips duplicate detection so
// that it works at once.
func (ns *NS) Addr(dev, addr string) error {
	args := []string{"addr", "add", addr, "dev", dev}
	if strings.Contains(addr, ":") {
		args = append(args, "nodad")
	}
	return ns.IP(args...)
}

// Neigh enters a permanent neighbour (ARP or ND): no resolution traffic.
func (ns *NS) Neigh(dev, ip string, mac net.HardwareAddr) error {
	return ns.IP("neigh", "replace", ip, "lladdr", mac.String(), "dev", dev, "nud", "permanent")
}

// Delete removes a device.
func (ns *NS) Delete(dev string) error { return ns.IP("link", "del", dev) }

// MAC is the hardware address of dev.
func (ns *NS) MAC(dev string) (net.HardwareAddr, error) {
	b, err := ns.FS().ReadFile("/sys/class/net/" + dev + "/address")
	if err != nil {
		return nil, fmt.Errorf("read address of %s: %w", dev, err)
	}
	return net.ParseMAC(strings.TrimSpace(string(b)))
}

// IfIndex is the interface index of dev inside the namespace.
func (ns *NS) IfIndex(dev string) (int, error) {
	b, err := ns.FS().ReadFile("/sys/class/net/" + dev + "/ifindex")
	if err != nil {
		return 0, fmt.Errorf("read ifindex of %s: %w", dev, err)
	}
	return strconv.Atoi(strings.TrimSpace(string(b)))
}

// SetRPS writes rps_cpus of a receive queue ("2", "ff"; "0" is off).
func (ns *NS) SetRPS(dev string, queue int, mask string) error {
	path := fmt.Sprintf("/sys/class/net/%s/queues/rx-%d/rps_cpus", dev, queue)
	if err := ns.FS().WriteFile(path, []byte(mask)); err != nil {
		return fmt.Errorf("write rps_cpus of %s rx-%d: %w", dev, queue, err)
	}
	return nil
}

// TAP is a multi-queue TAP device whose receive path runs one NAPI per queue
// (IFF_NAPI; tun's napi_id is 0 until 6.x). It is not persistent: Close, or the
// end of the process, deletes it.
type TAP struct {
	Name string
	fds  []*os.File
}

// NewTAP makes a TAP with that many queues in the namespace and sets it up.
// Close it before the namespace, or leave both to the test's end.
func (ns *NS) NewTAP(name string, queues int) (*TAP, error) {
	tap := &TAP{Name: name}
	for range max(queues, 1) {
		// The netns of the opening thread is the device's (tun_chr_open, drivers/net/tun.c).
		err := ns.Do(func() error {
			fd, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
			if err != nil {
				return err
			}
			ifr, err := unix.NewIfreq(name)
			if err != nil {
				unix.Close(fd)
				return err
			}
			ifr.SetUint16(unix.IFF_TAP | unix.IFF_NO_PI | unix.IFF_NAPI | unix.IFF_MULTI_QUEUE)
			if err := unix.IoctlIfreq(fd, unix.TUNSETIFF, ifr); err != nil {
				unix.Close(fd)
				return err
			}
			tap.fds = append(tap.fds, os.NewFile(uintptr(fd), name))
			return nil
		})
		if err != nil {
			tap.Close()
			return nil, fmt.Errorf("create tap %s: %w", name, err)
		}
	}
	if err := ns.IP("link", "set", name, "up"); err != nil {
		tap.Close()
		return nil, err
	}
	return tap, nil
}

// Inject has the device receive an Ethernet frame on a queue; the queue's NAPI
// polls on the CPU of the calling thread before Inject returns.
func (t *TAP) Inject(queue int, frame []byte) error {
	if queue < 0 || queue >= len(t.fds) {
		return fmt.Errorf("inject on %s: no queue %d", t.Name, queue)
	}
	if _, err := t.fds[queue].Write(frame); err != nil {
		return fmt.Errorf("inject on %s rx-%d: %w", t.Name, queue, err)
	}
	return nil
}

// Queue is the file of a queue: a Read returns one frame the host transmitted,
// and SetReadDeadline works.
func (t *TAP) Queue(queue int) *os.File { return t.fds[queue] }

// Close deletes the device.
func (t *TAP) Close() error {
	var first error
	for _, f := range t.fds {
		if err := f.Close(); err != nil && first == nil {
			first = err
		}
	}
	return first
}

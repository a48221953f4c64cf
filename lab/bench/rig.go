package main

import (
	"errors"
	"fmt"
	"net"
	"runtime"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rxsteer/rxsteer/internal/testnet"
)

const payload = 64 // bytes of UDP payload per packet

// rig is a veth pair whose receive side runs inline in the sender's system
// call, n packets to a NAPI poll: one UDP send of n segments, which the
// sender's device has the kernel cut, leaves as n packets back to back. They
// end in a UDP socket nobody reads, so that the whole stack takes part and no
// other thread does.
type rig struct {
	a, b *testnet.NS
	sink *net.UDPConn
	fd   int
}

func newRig() (r *rig, err error) {
	r = &rig{fd: -1}
	defer func() {
		if err != nil {
			err = errors.Join(err, r.Close())
		}
	}()
	if r.a, err = testnet.Create(); err != nil {
		return r, err
	}
	if r.b, err = testnet.Create(); err != nil {
		return r, err
	}
	if err := testnet.Connect(r.a, r.b, testnet.Veth{AddrA: "10.67.0.1/24", AddrB: "10.67.0.2/24", NAPI: true, StaticNeigh: true}); err != nil {
		return r, err
	}
	if err := r.a.Run("ethtool", "-K", "a0", "tx-udp-segmentation", "off"); err != nil {
		return r, err
	}
	if err := r.b.Do(func() (err error) {
		r.sink, err = net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(10, 67, 0, 2), Port: 9000})
		if err != nil {
			return err
		}
		return r.sink.SetReadBuffer(4096)
	}); err != nil {
		return r, err
	}
	return r, r.a.Do(func() error {
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return err
		}
		r.fd = fd
		if err := unix.SetsockoptInt(fd, unix.IPPROTO_UDP, unix.UDP_SEGMENT, payload); err != nil {
			return err
		}
		return unix.Connect(fd, &unix.SockaddrInet4{Port: 9000, Addr: [4]byte{10, 67, 0, 2}})
	})
}

func (r *rig) Close() error {
	var err error
	if r.fd >= 0 {
		err = errors.Join(err, unix.Close(r.fd))
	}
	if r.sink != nil {
		err = errors.Join(err, r.sink.Close())
	}
	for _, ns := range []*testnet.NS{r.a, r.b} {
		if ns != nil {
			err = errors.Join(err, ns.Close())
		}
	}
	return err
}

// slice is the length of one observation; a measurement is the median of many,
// so that a slice in which something else took the CPU does not count.
const slice = 4 * time.Millisecond

// cost sends batches of n packets for d on one CPU and returns ns per packet.
func (r *rig) cost(n int, d time.Duration, cpu int) (float64, error) {
	slices, err := r.slices(n, d, cpu)
	return median(slices), err
}

// slices is ns per packet in each slice of d.
func (r *rig) slices(n int, d time.Duration, cpu int) ([]float64, error) {
	type outcome struct {
		ns  []float64
		err error
	}
	done := make(chan outcome)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with its affinity
		ns, err := r.sendBatches(n, d, cpu)
		done <- outcome{ns, err}
	}()
	o := <-done
	return o.ns, o.err
}

func (r *rig) sendBatches(n int, d time.Duration, cpu int) ([]float64, error) {
	var set unix.CPUSet
	set.Set(cpu)
	if err := unix.SchedSetaffinity(0, &set); err != nil {
		return nil, fmt.Errorf("pin to CPU %d: %w", cpu, err)
	}
	// Before all ordinary threads, so that other work on this machine is in the
	// figures only through caches; without CAP_SYS_NICE the medians must do.
	_ = unix.SchedSetAttr(0, &unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: unix.SCHED_FIFO, Priority: 1}, 0)
	buf := make([]byte, n*payload)
	var slices []float64
	for start := time.Now(); time.Since(start) < d; {
		packets := 0
		began := time.Now()
		var took time.Duration
		for took < slice {
			for range max(240/n, 1) {
				if _, err := unix.Write(r.fd, buf); err != nil {
					return nil, fmt.Errorf("send %d packets: %w", n, err)
				}
				packets += n
			}
			took = time.Since(began)
		}
		slices = append(slices, float64(took.Nanoseconds())/float64(packets))
	}
	return slices, nil
}

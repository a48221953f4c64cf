package main

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"net/netip"
	"os/exec"
	"regexp"
	"strings"
)

// toeplitz is the hash of Microsoft's "Verifying the RSS Hash Calculation" (public
// documentation of NDIS) over data; the key has at least 4 more bytes than data.
func toeplitz(key, data []byte) uint32 {
	var hash uint32
	window := uint64(binary.BigEndian.Uint32(key)) << 32
	next := 4
	for _, b := range data {
		window |= uint64(key[next]) << 24
		next++
		for bit := 7; bit >= 0; bit-- {
			if b>>bit&1 == 1 {
				hash ^= uint32(window >> 32)
			}
			window <<= 1
		}
	}
	return hash
}

// hash4 is the hash of a UDP or TCP flow over IPv4 with ports.
func hash4(key []byte, from, to netip.AddrPort) uint32 {
	a, b := from.Addr().As4(), to.Addr().As4()
	data := append(a[:], b[:]...)
	data = binary.BigEndian.AppendUint16(data, from.Port())
	return toeplitz(key, binary.BigEndian.AppendUint16(data, to.Port()))
}

var (
	keyLine   = regexp.MustCompile(`(?m)^([0-9a-f]{2}(:[0-9a-f]{2}){15,})$`)
	tableLine = regexp.MustCompile(`(?m)^ *[0-9]+:((?: +[0-9]+)+)$`)
)

// collide prints the first two source ports whose flows share an entry of the table.
func collide(dev, tuple string) error {
	f, t, ok := strings.Cut(tuple, ",")
	if !ok {
		return fmt.Errorf("collide %q: want two addresses", tuple)
	}
	from, err := netip.ParseAddrPort(f)
	if err != nil {
		return err
	}
	to, err := netip.ParseAddrPort(t)
	if err != nil {
		return err
	}
	text, err := exec.Command("ethtool", "-x", dev).Output()
	if err != nil {
		return fmt.Errorf("read table and key of %s: %w", dev, err)
	}
	m := keyLine.FindSubmatch(text)
	if m == nil {
		return fmt.Errorf("read key of %s: ethtool shows none", dev)
	}
	key, err := hex.DecodeString(strings.ReplaceAll(string(m[1]), ":", ""))
	if err != nil {
		return err
	}
	size := 0
	for _, l := range tableLine.FindAllSubmatch(text, -1) {
		size += len(strings.Fields(string(l[1])))
	}
	if size == 0 {
		return fmt.Errorf("read table of %s: it is empty", dev)
	}
	seen := map[uint32]uint16{}
	for p := from.Port(); p < from.Port()+uint16(size)+1; p++ {
		bucket := hash4(key, netip.AddrPortFrom(from.Addr(), p), to) % uint32(size)
		if first, ok := seen[bucket]; ok {
			fmt.Printf("%d,%d\n", first, p)
			return nil
		}
		seen[bucket] = p
	}
	return nil // cannot happen: more ports than buckets
}

package capture

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"github.com/gopacket/gopacket/pcapgo"
)

// Info is where and how a packet was captured.
type Info struct {
	At     time.Time
	Length int // bytes on the wire, with the link layer header
}

// ErrCutShort is that a capture ends in the middle of a packet: what came before was read.
var ErrCutShort = errors.New("the capture is cut short")

// Read calls each for the packets of a capture, in order. It reads a pcap or a pcapng file, whatever its name.
// Link types without IP, or unknown here, are an error that names them; where a pcapng has
// several interfaces, of the first packet of such a one.
func Read(r io.Reader, each func(Packet, Info)) error {
	in := bufio.NewReaderSize(r, 1<<16)
	magic, err := in.Peek(4)
	if err != nil {
		if errors.Is(err, io.EOF) {
			err = errors.New("it is shorter than any capture")
		}
		return fmt.Errorf("read capture: %w", err)
	}
	next, err := open(in, magic)
	if err != nil {
		return fmt.Errorf("read capture: %w", eof(err, "its header is cut off"))
	}
	for n := 0; ; n++ {
		data, ci, link, err := next()
		if errors.Is(err, io.EOF) && ci.CaptureLength == 0 {
			return nil
		}
		if errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF) {
			return fmt.Errorf("read capture: packet %d: %w", n+1, ErrCutShort)
		}
		if err != nil {
			return fmt.Errorf("read capture: packet %d: %w", n+1, err)
		}
		p, err := dissect(link, data)
		if err != nil {
			return fmt.Errorf("read capture: packet %d: %w", n+1, err)
		}
		each(p, Info{ci.Timestamp, max(ci.Length, len(data))})
	}
}

func eof(err error, what string) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return errors.New(what)
	}
	return err
}

type nextPacket func() ([]byte, gopacket.CaptureInfo, layers.LinkType, error)

// open tells the format by the first bytes: a pcapng section header block, or one of pcap's magic numbers.
func open(r io.Reader, magic []byte) (nextPacket, error) {
	if bytes.Equal(magic, []byte{0x0a, 0x0d, 0x0d, 0x0a}) {
		ng, err := pcapgo.NewNgReader(r, pcapgo.NgReaderOptions{WantMixedLinkType: true, SkipUnknownVersion: true})
		if err != nil {
			return nil, err
		}
		return func() ([]byte, gopacket.CaptureInfo, layers.LinkType, error) {
			data, ci, err := ng.ZeroCopyReadPacketData()
			if err != nil {
				return nil, ci, 0, err
			}
			link := ng.LinkType()
			if i, err := ng.Interface(ci.InterfaceIndex); err == nil {
				link = i.LinkType
			}
			return data, ci, link, nil
		}, nil
	}
	p, err := pcapgo.NewReader(r)
	if err != nil {
		return nil, fmt.Errorf("neither pcap nor pcapng: %w", err)
	}
	return func() ([]byte, gopacket.CaptureInfo, layers.LinkType, error) {
		data, ci, err := p.ZeroCopyReadPacketData()
		return data, ci, p.LinkType(), err
	}, nil
}

// Link types that gopacket has no name for, of the tcpdump group's registry.
const (
	linkIPv4 layers.LinkType = 228
	linkIPv6 layers.LinkType = 229
	linkSLL2 layers.LinkType = 276
)

// dissect strips the link layer.
func dissect(link layers.LinkType, b []byte) (Packet, error) {
	etherType := func(at, size int) (Packet, error) {
		if len(b) < size {
			return Packet{}, nil
		}
		return Network(binary.BigEndian.Uint16(b[at:]), b[size:]), nil
	}
	switch link {
	case layers.LinkTypeEthernet:
		return Ethernet(b), nil
	case layers.LinkTypeLinuxSLL:
		return etherType(14, 16)
	case linkSLL2:
		return etherType(0, 20)
	case linkIPv4:
		return Network(etherIPv4, b), nil
	case linkIPv6:
		return Network(etherIPv6, b), nil
	case layers.LinkTypeRaw, 12, 14: // LINKTYPE_RAW and what BSDs write for it
		return version(b), nil
	case layers.LinkTypeNull, layers.LinkTypeLoop: // four bytes of an address family, whose numbers differ
		if len(b) < 4 {
			return Packet{}, nil
		}
		return version(b[4:]), nil
	}
	return Packet{}, fmt.Errorf("link type %d (%v) is not read here: capture on an Ethernet or IP interface", int(link), link)
}

// version tells IPv4 from IPv6 by the header itself.
func version(b []byte) Packet {
	switch {
	case len(b) > 0 && b[0]>>4 == 4:
		return Network(etherIPv4, b)
	case len(b) > 0 && b[0]>>4 == 6:
		return Network(etherIPv6, b)
	case len(b) > 0:
		return Packet{Class: "other"}
	}
	return Packet{}
}

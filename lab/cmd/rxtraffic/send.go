package main

import (
	"fmt"
	"io"
	"net"
	"net/netip"
	"slices"
	"time"

	"github.com/rxsteer/rxsteer/lab/traffic"
)

func (c *command) send(args []string) error {
	fs := c.flags
	pf := addPlan(fs, 1000, 0)
	plan := &pf.plan
	to := fs.String("to", "", "`ADDRESS:PORT` to send to; of a list, each flow takes its turn")
	from := fs.String("from", "", "source `ADDRESS`; of a list, each flow takes its turn")
	srcPorts := fs.String("src-ports", "", "source `ports` of the flows (1000,1010-1072); sets --flows when that is not given")
	proto := fs.String("proto", "udp", "udp or tcp")
	fs.IntVar(&plan.Flows, "flows", 1, "number of `flows`")
	fs.IntVar(&plan.Elephants, "elephants", 0, "`flows` that together send --share of the packets")
	fs.Float64Var(&plan.Share, "share", 0, "`share` (0…1) of the elephants together")
	fs.DurationVar(&plan.On, "on", 0, "`time` of sending, in turn with --off")
	fs.DurationVar(&plan.Off, "off", 0, "`time` of silence, in turn with --on")
	fs.DurationVar(&plan.Alternate, "alternate", 0, "even and odd flows take turns of that `time`")
	fs.IntVar(&plan.Train, "train", 1, "`packets` of a flow that leave back to back")
	fs.DurationVar(&plan.Tick, "tick", 500*time.Microsecond, "what becomes due in that `time` leaves together")
	fs.DurationVar(&plan.MaxLag, "max-lag", 100*time.Millisecond, "skip packets that are late by more than that `time`")
	fs.BoolVar(&plan.RealTime, "realtime", false, "run the sender before all ordinary threads where that is allowed")
	segment := fs.Bool("segment", false, "udp: hand trains to the kernel in one piece to cut (UDP_SEGMENT)")
	var f traffic.Frame
	dev := fs.String("dev", "", "send ready-made frames out of that `device`, past the sender's own stack; needs --from and --dst-mac")
	srcMAC := fs.String("src-mac", "", "frames: source `MAC`; the device's own when empty")
	dstMAC := fs.String("dst-mac", "", "frames: destination `MAC`")
	vlans := fs.String("vlan", "", "frames: VLAN `ids`, outermost first")
	encap := fs.String("encap", "", "frames: wrap in vxlan, gre, ipip or `pppoe`")
	outerFrom := fs.String("outer-from", "", "frames: outer source `ADDRESS` of vxlan, gre and ipip")
	outerTo := fs.String("outer-to", "", "frames: outer destination `ADDRESS`")
	id := fs.Uint("id", 0, "frames: VXLAN network, GRE key or PPPoE session `number`")
	fs.IntVar(&f.Fragment, "fragment", 0, "frames: split into IP fragments of that many `bytes`")
	if err := c.parse(args); err != nil {
		return err
	}
	dst, err := list(*to, func(s string) (netip.AddrPort, error) { return addrPort("to", s) })
	if err != nil || len(dst) == 0 {
		return fmt.Errorf("%w: --to: want ADDRESS:PORT", errUsage)
	}
	flows := traffic.FlowConfig{To: dst, Segment: *segment}
	if flows.From, err = list(*from, netip.ParseAddr); err != nil {
		return fmt.Errorf("%w: --from: %s", errUsage, err)
	}
	if flows.Ports, err = ports(*srcPorts); err != nil {
		return fmt.Errorf("%w: --src-ports: %s", errUsage, err)
	}
	if len(flows.Ports) > 0 && plan.Flows == 1 {
		plan.Flows = len(flows.Ports)
	}
	flows.Flows = plan.Flows
	p, err := pf.parse()
	if err != nil {
		return err
	}
	if err := p.Check(); err != nil {
		return fmt.Errorf("%w: %s", errUsage, err)
	}
	if *proto != "udp" && *proto != "tcp" {
		return fmt.Errorf("%w: --proto %q: want udp or tcp", errUsage, *proto)
	}
	var sink interface {
		traffic.Sink
		io.Closer
	}
	switch {
	case *dev != "":
		f.TCP, f.Encap, f.ID = *proto == "tcp", traffic.Encap(*encap), uint32(*id)
		if err := c.addresses(&f, *dev, *srcMAC, *dstMAC, *outerFrom, *outerTo, *vlans); err != nil {
			return err
		}
		templates, err := build(f, flows, p.Sizes)
		if err != nil {
			return err
		}
		sink, err = traffic.OpenPacketSocket(*dev, templates)
		if err != nil {
			return err
		}
	case *proto == "tcp":
		if sink, err = traffic.DialTCP(flows, slices.Max(p.Sizes)); err != nil {
			return err
		}
	default:
		if sink, err = traffic.DialUDP(flows, slices.Max(p.Sizes)); err != nil {
			return err
		}
	}
	defer sink.Close()
	r, err := traffic.Send(c.ctx, p, sink)
	if err != nil {
		return err
	}
	return c.print(r, func(w io.Writer) {
		fmt.Fprintf(w, "offered %d (%.0f/s), sent %d (%.0f/s) in %.2f s over %d flows; refused %d, skipped %d, latest by %v\n",
			r.Offered, r.OfferedRate(), r.Sent, r.SentRate(), r.Seconds, len(r.Flows), r.Refused, r.Skipped, r.MaxLag.Round(time.Microsecond))
	})
}

// addresses parses the flags of frames that are addresses.
func (c *command) addresses(f *traffic.Frame, dev, srcMAC, dstMAC, outerFrom, outerTo, vlans string) (err error) {
	if f.DstMAC, err = net.ParseMAC(dstMAC); err != nil {
		return fmt.Errorf("%w: --dst-mac: %s", errUsage, err)
	}
	if srcMAC == "" {
		nic, err := net.InterfaceByName(dev)
		if err != nil {
			return fmt.Errorf("find device %s: %w", dev, err)
		}
		f.SrcMAC = nic.HardwareAddr
	} else if f.SrcMAC, err = net.ParseMAC(srcMAC); err != nil {
		return fmt.Errorf("%w: --src-mac: %s", errUsage, err)
	}
	for _, a := range []struct {
		name, text string
		to         *netip.Addr
	}{{"outer-from", outerFrom, &f.OuterSrc}, {"outer-to", outerTo, &f.OuterDst}} {
		if a.text == "" {
			continue
		}
		if *a.to, err = netip.ParseAddr(a.text); err != nil {
			return fmt.Errorf("%w: --%s: %s", errUsage, a.name, err)
		}
	}
	if f.VLANs, err = ports(vlans); err != nil {
		return fmt.Errorf("%w: --vlan: %s", errUsage, err)
	}
	return nil
}

// build makes the frame of each flow.
func build(f traffic.Frame, c traffic.FlowConfig, sizes []int) ([]*traffic.Template, error) {
	if len(c.From) == 0 {
		return nil, fmt.Errorf("%w: frames need --from", errUsage)
	}
	if len(c.Ports) > 0 && len(c.Ports) < c.Flows {
		return nil, fmt.Errorf("%w: %d source ports for %d flows", errUsage, len(c.Ports), c.Flows)
	}
	var out []*traffic.Template
	for i := range c.Flows {
		f := f
		port := uint16(20000 + i%40000)
		if len(c.Ports) > 0 {
			port = c.Ports[i]
		}
		f.Src, f.Dst, f.Size = netip.AddrPortFrom(c.From[i%len(c.From)], port), c.To[i%len(c.To)], sizes[i%len(sizes)]
		t, err := f.Build()
		if err != nil {
			return nil, err
		}
		out = append(out, t)
	}
	return out, nil
}

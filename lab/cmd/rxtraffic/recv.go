package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/rxsteer/rxsteer/lab/traffic"
)

func (c *command) recv(args []string) error {
	fs := c.flags
	listen := fs.String("listen", "", "`ADDRESS:PORT` to listen on")
	proto := fs.String("proto", "udp", "udp or tcp")
	limit := fs.Duration("for", 10*time.Second, "end after that `time`")
	count := fs.Uint64("count", 0, "end after that many `packets`; 0 leaves it to --for")
	var rc traffic.ReceiveConfig
	fs.IntVar(&rc.Ports, "ports", 1, "udp: consecutive `ports`")
	fs.IntVar(&rc.Sockets, "sockets", 1, "udp: `sockets` per port, sharing its flows")
	fs.IntVar(&rc.Buffer, "buffer", 4<<20, "udp: `bytes` of socket buffer")
	fs.DurationVar(&rc.Every, "every", 0, "udp: read only so often; 0 is at once")
	cpu := fs.Int("cpu", -1, "udp: pin the readers to that `CPU`")
	if err := c.parse(args); err != nil {
		return err
	}
	addr, err := addrPort("listen", *listen)
	if err != nil {
		return err
	}
	if *limit <= 0 || rc.Ports < 1 || rc.Ports > 1024 || rc.Sockets < 1 || rc.Sockets > 256 || rc.Buffer < 1 || rc.Every < 0 {
		return fmt.Errorf("%w: --for, --ports (1…1024), --sockets (1…256), --buffer and --every must make sense", errUsage)
	}
	rc.Listen = addr
	if *cpu >= 0 {
		rc.CPU = cpu
	}
	var r interface {
		Run(context.Context) error
		Take() traffic.RecvReport
		Total() uint64
		io.Closer
	}
	switch *proto {
	case "udp":
		r, err = traffic.Listen(rc)
	case "tcp":
		r, err = traffic.ListenTCP(addr)
	default:
		return fmt.Errorf("%w: --proto %q: want udp or tcp", errUsage, *proto)
	}
	if err != nil {
		return err
	}
	defer r.Close()
	fmt.Fprintf(c.stderr, "rxtraffic: ready on %s %v\n", *proto, addr)
	ctx, cancel := context.WithTimeout(c.ctx, *limit)
	defer cancel()
	if *count > 0 {
		go func() {
			for ctx.Err() == nil && r.Total() < *count {
				time.Sleep(5 * time.Millisecond)
			}
			cancel()
		}()
	}
	if err := r.Run(ctx); err != nil {
		return err
	}
	rep := r.Take()
	return c.print(rep, func(w io.Writer) {
		fmt.Fprintf(w, "received %d (%.0f/s), %d bytes, in %.2f s; lost %d, late %d, foreign %d\n",
			rep.Received, rep.Rate(), rep.Bytes, rep.Seconds, rep.Lost, rep.Late, rep.Foreign)
		for _, f := range rep.Flows {
			kind := "flow"
			if f.Probe {
				kind = "probe"
			}
			fmt.Fprintf(w, "  %-5s %5d: %8d received, %6d lost, %6d late", kind, f.Flow, f.Received, f.Lost, f.Late)
			if f.Latency.Count > 0 {
				fmt.Fprintf(w, ", one way %s", percentiles(f.Latency))
			}
			fmt.Fprintln(w)
		}
		if rep.OtherClock > 0 {
			fmt.Fprintf(w, "  %d packets were stamped by another machine's clock: no one-way times\n", rep.OtherClock)
		}
	})
}

func (c *command) probe(args []string) error {
	fs := c.flags
	pf := addPlan(fs, 100, 1_000_000)
	to := fs.String("to", "", "`ADDRESS:PORT` of a recv")
	wait := fs.Duration("wait", time.Second, "`time` to wait for the last echoes")
	srcPort := fs.String("src-port", "", "source `port`, which with the addresses decides the queue; the kernel's choice when empty")
	if err := c.parse(args); err != nil {
		return err
	}
	addr, err := addrPort("to", *to)
	if err != nil {
		return err
	}
	src, err := ports(*srcPort)
	if err != nil || len(src) > 1 {
		return fmt.Errorf("%w: --src-port %q: want one port", errUsage, *srcPort)
	}
	p, err := pf.parse()
	if err != nil {
		return err
	}
	if err := p.Check(); err != nil {
		return fmt.Errorf("%w: %s", errUsage, err)
	}
	if p.Rate == 0 {
		return fmt.Errorf("%w: a probe needs a --rate", errUsage)
	}
	conn, err := traffic.DialProbe(addr, src...)
	if err != nil {
		return err
	}
	defer conn.Close()
	r, err := conn.Run(c.ctx, p, *wait)
	if err != nil {
		return err
	}
	return c.print(r, func(w io.Writer) {
		fmt.Fprintf(w, "probes: %d sent, %d answered, %d lost, %d late; round trip %s\n", r.Send.Sent, r.Received, r.Lost, r.Late, percentiles(r.RTT))
	})
}

func percentiles(s traffic.Summary) string {
	us := func(d time.Duration) string { return d.Round(time.Microsecond).String() }
	return fmt.Sprintf("p50 %s, p90 %s, p99 %s, p99.9 %s, max %s", us(s.P50), us(s.P90), us(s.P99), us(s.P999), us(s.Max))
}

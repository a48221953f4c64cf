package main

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"github.com/rxsteer/rxsteer/collector"
	"github.com/rxsteer/rxsteer/exporter"
)

func agentCommand(e *env) *cobra.Command {
	var (
		listen   string
		interval time.Duration
		level    int
	)
	c := &cobra.Command{
		Use:   "agent [IFACE…]",
		Short: "Measure all the time and serve the figures to Prometheus",
		Long: `Measure all the time and serve the figures at /metrics; docs/metrics.md lists
them. /healthz answers 200 while samples arrive. The agent changes nothing on the
host, and leaves nothing attached when it ends (SIGTERM or SIGINT).

With IFACE, figures of interfaces are limited to those; the CPUs' are always there.
It listens on the loopback address unless told otherwise: the figures name
interfaces, interrupts and CPUs, and there is no password.`,
		Example: `  rxsteer agent
  rxsteer agent eth0 --interval 5s
  rxsteer agent --web.listen-address :9742
  curl -s http://127.0.0.1:9742/metrics | grep rxsteer_napi_seconds_total`,
		GroupID:           groupServe,
		ValidArgsFunction: e.completeInterfaces,
	}
	c.Flags().StringVar(&listen, "web.listen-address", "127.0.0.1:9742", "serve on this `ADDRESS`; port 0 picks one")
	c.Flags().DurationVar(&interval, "interval", 10*time.Second, "take a sample every `TIME`")
	addLevel(c, &level)
	c.RunE = func(c *cobra.Command, names []string) error {
		switch {
		case interval < shortest || interval > time.Hour:
			return usage("--interval %v: want %v … 1h", interval, shortest)
		case level != 0 && level != 1:
			return usage("--level %d: want 0 or 1", level)
		}
		return e.serve(c.Context(), listen, interval, level, names)
	}
	return c
}

func (e *env) serve(ctx context.Context, listen string, interval time.Duration, level int, names []string) error {
	log := slog.New(slog.NewTextHandler(e.stderr, nil))
	h, err := e.openHost()
	if err != nil {
		return err
	}
	defer h.close()
	nics, err := h.inventory(ctx)
	if err != nil {
		return err
	}
	if err := checkInterfaces(nics, names); err != nil {
		return err
	}
	l, err := net.Listen("tcp", listen)
	if err != nil {
		return &failure{exitFailed, fmt.Errorf("serve metrics: %w", err), []string{"choose another with --web.listen-address"}}
	}
	h.refresh = 30 * time.Second
	ring := collector.NewRing(1)
	s := e.newSampler(h, level, interval, ring)
	samples, cancel := ring.Subscribe()
	defer cancel()
	metrics := exporter.New(h.netns(), names...)
	reg := prometheus.NewRegistry()
	reg.MustRegister(metrics, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	var last atomic.Int64 // Unix ns of the last sample
	last.Store(e.now().UnixNano())
	healthy := func() error {
		if quiet := e.now().Sub(time.Unix(0, last.Load())); quiet > 3*interval {
			return fmt.Errorf("no sample for %v", quiet.Round(time.Second))
		}
		return nil
	}

	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return s.Run(ctx) })
	group.Go(func() error { return exporter.Serve(ctx, l, exporter.Handler(reg, healthy)) })
	group.Go(func() error {
		select {
		case <-s.Ready():
		case <-ctx.Done():
			return nil
		}
		if err := refused(s); err != nil && level > 0 {
			return err
		}
		log.Info("serving", "url", "http://"+l.Addr().String()+"/metrics", "interval", interval, "level", level)
		for {
			select {
			case <-ctx.Done():
				return nil
			case sample := <-samples:
				last.Store(e.now().UnixNano())
				metrics.Add(sample)
			}
		}
	})
	if err := group.Wait(); err != nil {
		return err
	}
	log.Info("stopped")
	return nil
}

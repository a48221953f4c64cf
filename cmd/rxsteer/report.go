package main

import (
	"errors"
	"fmt"
	"io"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/rxsteer/rxsteer/collector"
	"github.com/rxsteer/rxsteer/exporter/web"
	"github.com/rxsteer/rxsteer/steer/plan"
)

func reportCommand(e *env) *cobra.Command {
	var file, from, base, format string
	c := &cobra.Command{
		Use:   "report --from FILE -w FILE",
		Short: "Make one page of a recording, or of before and after, for a ticket",
		Long: `Make one self-contained page of what rxsteer record or rxsteer bundle wrote: what was
found and what would help, CPUs and latency over time, queues, the map, tables, flows
and settings. It opens in any browser and loads nothing. With --base the page compares:
--base is before, --from after.

A FILE that ends in .md is written as Markdown: the figures and findings, for a ticket
that takes text.`,
		Example: `  rxsteer record -w before.rxrec
  rxsteer report --from before.rxrec -w ticket.html
  rxsteer report --from after.rxrec --base before.rxrec -w ticket.md`,
		GroupID: groupServe,
		Args:    cobra.NoArgs,
	}
	c.Flags().StringVarP(&file, "write", "w", "", "write the report to `FILE`")
	c.Flags().StringVar(&from, "from", "", "make it of the recording, bundle or folder `FILE`")
	c.Flags().StringVar(&base, "base", "", "compare with `FILE`, of before")
	c.Flags().StringVar(&format, "format", "", "html or md; by the file's name unless said")
	for _, required := range []string{"write", "from"} {
		if err := c.MarkFlagRequired(required); err != nil {
			panic(err) // the flags are the lines above
		}
	}
	c.RunE = func(*cobra.Command, []string) error {
		if format == "" {
			format = "html"
			if ext := filepath.Ext(file); ext == ".md" || ext == ".markdown" {
				format = "md"
			}
		}
		if format != "html" && format != "md" {
			return usage("--format %q: want html or md", format)
		}
		return e.report(file, from, base, format)
	}
	return c
}

func (e *env) report(file, from, base, format string) error {
	r, err := e.recorded(from)
	if err != nil {
		return err
	}
	var before *web.Recording
	if base != "" {
		if before, err = e.recorded(base); err != nil {
			return err
		}
	}
	return writeFile("report", file, func(w io.Writer) error {
		if format == "md" {
			return web.Markdown(w, *r, before)
		}
		return web.Report(w, versionText(), *r, before)
	})
}

// recorded reads a capture and judges it as every reader does.
func (e *env) recorded(from string) (*web.Recording, error) {
	s, err := e.lookFrom(&measureFlags{from: from}, nil)
	if err != nil {
		return nil, err
	}
	samples := s.windows
	if len(samples) == 0 && s.sample != nil {
		samples = []*collector.Sample{s.sample}
	}
	if len(samples) == 0 {
		return nil, &failure{exitFailed, fmt.Errorf("report on %s: %w", from, errors.New("it holds no measurement: two points in time, or a recording")),
			[]string{"rxsteer record -w FILE makes one; rxsteer status and rxsteer diagnose show what a single point tells"}}
	}
	f := web.Facts{NICs: s.nics, Topology: s.topology, Snapshot: s.snapshot, Report: s.report, Plan: makePlan(s, plan.Auto, plan.Policy{}, false)}
	if s.snapshot != nil {
		f.Kernel = s.snapshot.Host.Kernel
	}
	return &web.Recording{Title: filepath.Base(from), Samples: samples, Facts: f}, nil
}

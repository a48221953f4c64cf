package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"

	"github.com/spf13/cobra"

	"github.com/rxsteer/rxsteer/internal/host/knob"
	"github.com/rxsteer/rxsteer/internal/host/nic"
	"github.com/rxsteer/rxsteer/steer/diagnose"
)

func baselineCommand(e *env) *cobra.Command {
	c := &cobra.Command{
		Use:   "baseline",
		Short: "Save what is set; show every later difference",
		Long: `Save every receive setting of the host and its interfaces to a file, and later
show what differs from it, whoever changed it. Settings that could not be read on
either side count as unknown, never as changed.`,
		Example: `  rxsteer baseline save good.json
  rxsteer baseline check good.json || echo "settings drifted"`,
		GroupID: groupServe,
		Args:    knownCommand,
		RunE:    func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	c.AddCommand(baselineSave(e), baselineCheck(e))
	return c
}

func baselineSave(e *env) *cobra.Command {
	return &cobra.Command{
		Use:     "save FILE [IFACE…]",
		Short:   "Save what is set to a file (JSON)",
		Long:    "Save every receive setting of the host and of the named interfaces (all but lo\nwhen none is named) to a file. It is JSON: a snapshot as docs/json.md describes.",
		Example: "  rxsteer baseline save good.json\n  rxsteer baseline save eth0.json eth0",
		Args:    cobra.MinimumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			h, err := e.openHost()
			if err != nil {
				return err
			}
			defer h.close()
			nics, err := h.inventory(c.Context())
			if err != nil {
				return err
			}
			names := args[1:]
			if err := checkInterfaces(nics, names); err != nil {
				return err
			}
			for i := range nics {
				if len(args) == 1 && nics[i].Kind != nic.Loopback {
					names = append(names, nics[i].Name)
				}
			}
			snap, err := h.machine.Snapshot(c.Context(), names...)
			if err != nil {
				return err
			}
			if snap.Owners, err = h.owners(c.Context(), nics); err != nil {
				return err
			}
			f, err := os.Create(args[0])
			if err != nil {
				return fmt.Errorf("save baseline: %w", err)
			}
			if err := printJSON(f, snap); err != nil {
				f.Close()
				return fmt.Errorf("save baseline: %w", err)
			}
			if err := f.Close(); err != nil {
				return fmt.Errorf("save baseline: %w", err)
			}
			_, err = fmt.Fprintf(e.stdout, "Saved %d settings of %s to %s\n", len(snap.Settings), plural(len(snap.Devices), "interface"), args[0])
			return err
		},
	}
}

func baselineCheck(e *env) *cobra.Command {
	c := &cobra.Command{
		Use:     "check FILE",
		Short:   "Show what differs from a saved baseline (exit status 3)",
		Long:    "Show what differs from a saved baseline, on the interfaces it holds. Exit status 3\nsays that something does. Each difference has the severity of its setting: critical\nwhere it decides which CPUs can receive, info where it matters little, and the time at\nwhich a check saw it first, as far as checks were made since the boot.",
		Example: "  rxsteer baseline check good.json\n  rxsteer baseline check good.json -o json | jq '.[].target'",
		Args:    cobra.ExactArgs(1),
	}
	out := addOutput(c, "json")
	dir := ""
	addStateDir(c, &dir)
	c.RunE = func(c *cobra.Command, args []string) error {
		if err := out.check(); err != nil {
			return err
		}
		was, err := readBaseline(args[0])
		if err != nil {
			return err
		}
		h, err := e.openHost()
		if err != nil {
			return err
		}
		defer h.close()
		now, err := h.machine.Snapshot(c.Context(), e.stillHere(was)...)
		if err != nil {
			return err
		}
		seen, why := sight(dir, was, now, e.now())
		diff := diagnose.Drifted(was, now, seen.First)
		if out.format == "json" {
			err = printJSON(e.stdout, diff)
		} else {
			printDrift(e.stdout, was, now, diff, seen)
			if why != "" && len(diff) > 0 {
				wrap(e.stdout, e.textWidth(), "", "", "Since when is not remembered for the next check: "+why)
			}
		}
		if err == nil && len(diff) > 0 {
			err = exitWith(exitFindings)
		}
		return err
	}
	return c
}

func readBaseline(name string) (*knob.Snapshot, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, fmt.Errorf("read baseline: %w", err)
	}
	defer f.Close()
	s, err := knob.ReadSnapshot(f)
	if err != nil {
		return nil, fmt.Errorf("read baseline %s: %w", name, err)
	}
	return s, nil
}

// baseline reads a saved baseline, or takes the settings of a capture for one: a bundle, a recording, a folder.
func (e *env) baseline(name string) (*knob.Snapshot, error) {
	s, err := readBaseline(name)
	if err == nil || errors.Is(err, fs.ErrNotExist) {
		return s, err
	}
	if c, cerr := e.openCapture(name); cerr == nil && c.snapshot != nil {
		return c.snapshot, nil
	}
	return nil, err
}

// stillHere are the interfaces of a baseline that exist.
func (e *env) stillHere(was *knob.Snapshot) []string {
	var names []string
	for _, d := range was.Devices {
		if _, err := e.fs.Readlink("/sys/class/net/" + d.Name); err == nil {
			names = append(names, d.Name)
		}
	}
	return names
}

func printDrift(w io.Writer, was, now *knob.Snapshot, diff []diagnose.Drift, seen *diagnose.Sightings) {
	if len(diff) == 0 {
		fmt.Fprintf(w, "No difference from the baseline of %s.\n", was.Taken.Format("2006-01-02 15:04"))
	} else {
		fmt.Fprintf(w, "%s from the baseline of %s\n", plural(len(diff), "difference"), was.Taken.Format("2006-01-02 15:04"))
		for _, d := range diff {
			fmt.Fprintf(w, "%-8s  %s\n", d.Severity, d.Text())
			if since := seen.Since(d.Ref); since != "" {
				fmt.Fprintf(w, "          %s\n", since)
			}
		}
	}
	if was.Host.Kernel != now.Host.Kernel {
		fmt.Fprintf(w, "The kernel was %s and is %s.\n", was.Host.Kernel, now.Host.Kernel)
	}
	for _, d := range was.Devices {
		i := slices.IndexFunc(now.Devices, func(n knob.Device) bool { return n.Name == d.Name })
		switch {
		case i < 0:
			fmt.Fprintf(w, "%s is not there any more.\n", d.Name)
		case now.Devices[i].Driver != d.Driver || now.Devices[i].Version != d.Version || now.Devices[i].Firmware != d.Firmware:
			n := now.Devices[i]
			fmt.Fprintf(w, "The driver of %s was %s %s %s and is %s %s %s.\n", d.Name, d.Driver, d.Version, d.Firmware, n.Driver, n.Version, n.Firmware)
		}
	}
}

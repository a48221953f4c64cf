package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/rxsteer/rxsteer/internal/host/nic"
	"github.com/rxsteer/rxsteer/internal/host/paste"
)

func bundleCommand(e *env) *cobra.Command {
	var (
		file string
		mask bool
		m    measureFlags
	)
	c := &cobra.Command{
		Use:   "bundle -w FILE.tar.gz [IFACE…]",
		Short: "Pack what is set and counted here for a ticket",
		Long: `Pack the receive state of this host into one archive: the texts of /proc and /sys
at two points in time, the drivers' counters, and the settings, the map and the
measurement as JSON. Every file is text; unpack it and look before
you send it.

"rxsteer diagnose --from FILE" reads it anywhere. --mask replaces IP and MAC
addresses and the host's name by stand-ins, the same one for the same address;
names of interfaces, drivers and programs stay.`,
		Example: `  rxsteer bundle -w ticket-4711.tar.gz --mask
  rxsteer bundle -w eth0.tar.gz eth0 --for 30s
  rxsteer diagnose --from ticket-4711.tar.gz`,
		GroupID:           groupServe,
		ValidArgsFunction: e.completeInterfaces,
	}
	c.Flags().StringVarP(&file, "write", "w", "", "write the archive to `FILE`")
	if err := c.MarkFlagRequired("write"); err != nil {
		panic(err) // the flag is the line above
	}
	c.Flags().BoolVar(&mask, "mask", false, "replace addresses and the host's name")
	c.Flags().DurationVar(&m.duration, "for", 5*time.Second, "`TIME` between the two points")
	addLevel(c, &m.level)
	addOverhead(c, &m.overhead)
	c.RunE = func(c *cobra.Command, names []string) error {
		if err := m.check(); err != nil {
			return err
		}
		b := paste.Bundle{}
		if err := e.collect(c.Context(), b, &m, names); err != nil {
			return err
		}
		if mask {
			masker := paste.Masker{Key: []byte(rand.Text())}
			if name, err := os.Hostname(); err == nil {
				masker.Hosts = []string{name}
			}
			b.Mask(masker)
		}
		if err := writeBundle(file, b); err != nil {
			return err
		}
		size := 0
		for _, text := range b {
			size += len(text)
		}
		_, err := fmt.Fprintf(e.stdout, "Wrote %s: %s, %d KiB of text%s\nRead it with: rxsteer diagnose --from %s\n",
			file, plural(len(b), "file"), size>>10, map[bool]string{true: ", addresses masked"}[mask], file)
		return err
	}
	return c
}

func writeBundle(file string, b paste.Bundle) error {
	f, err := os.OpenFile(file, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err != nil {
		return fmt.Errorf("write bundle: %w", err)
	}
	if err := errors.Join(b.Write(f), f.Close()); err != nil {
		os.Remove(file) // half an archive helps nobody
		return fmt.Errorf("write bundle: %w", err)
	}
	return nil
}

func (e *env) collect(ctx context.Context, b paste.Bundle, m *measureFlags, names []string) error {
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
	if len(names) == 0 {
		for i := range nics {
			names = append(names, nics[i].Name)
		}
	}
	nics = slices.DeleteFunc(nics, func(n nic.NIC) bool { return !slices.Contains(names, n.Name) })
	point := func(n int) {
		b.AddCounters(e.fs, n, e.now())
		for i := range nics {
			if text := h.driverCounters(nics[i].Name); text != nil {
				b[fmt.Sprintf("ethtool-S.%s.txt.%d", nics[i].Name, n)] = text
			}
		}
	}
	point(0)
	windows, err := e.measure(ctx, h, m, "collecting", patience{began: time.Now()})
	if err != nil {
		return err
	}
	point(1)
	b.AddSettings(e.fs)
	saved := paste.Saved{NICs: nics, Windows: windows}
	if saved.Snapshot, err = h.machine.Snapshot(ctx, names...); err != nil {
		return err
	}
	if saved.Snapshot.Owners, err = h.owners(ctx, nics); err != nil {
		return err
	}
	if saved.Topology, err = h.topology(); err != nil {
		return err
	}
	if err := b.Save(saved); err != nil {
		return err
	}
	status, err := readStatus(ctx, h, names)
	if err != nil {
		return err
	}
	doctor, err := e.examine(ctx, h)
	if err != nil {
		return err
	}
	// For those who look into it without rxsteer.
	var text bytes.Buffer
	if err := printStatus(&text, status, palette{}, defaultWidth); err != nil {
		return err
	}
	b["status.txt"] = bytes.Clone(text.Bytes())
	text.Reset()
	printDoctor(&text, doctor, palette{}, defaultWidth)
	b["doctor.txt"] = text.Bytes()
	return nil
}

// driverCounters is what `ethtool -S` prints of a device, nil where it has none.
func (h *hostRooms) driverCounters(device string) []byte {
	if h.ethtool == nil {
		return nil
	}
	stats, err := h.ethtool.Stats(device)
	if err != nil || len(stats) == 0 {
		return nil
	}
	text := []byte("NIC statistics:\n")
	for _, s := range stats {
		text = fmt.Appendf(text, "     %s: %d\n", s.Name, s.Value)
	}
	return text
}

package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/rxsteer/rxsteer/internal/host/nic"
	"github.com/rxsteer/rxsteer/internal/host/procfs"
	"github.com/rxsteer/rxsteer/internal/host/vector"
)

func irqsCommand(e *env) *cobra.Command {
	c := &cobra.Command{
		Use:   "irqs [IFACE…]",
		Short: "Understand /proc/interrupts: whose each vector is, what it serves",
		Long: `Say for each interrupt which interface it belongs to, whether it serves receive,
transmit, both or neither, which queue, and how sure that is: "exact" when the
name says it, "inferred" when it was concluded from other rows or an order, "none"
when nothing tells.

With --interrupts it reads a file somebody pasted, and knows nothing of the host
it came from. "-" is standard input. The text output leaves out rows that are not
a network interface's unless --all is given; JSON has every row.`,
		Example: `  rxsteer irqs
  rxsteer irqs eth0
  rxsteer irqs --interrupts ticket-4711.txt
  rxsteer irqs -o json | jq '.[] | select(.actions[].kind == "rx")'`,
		GroupID:           groupLook,
		ValidArgsFunction: e.completeInterfaces,
	}
	out := addOutput(c, "json")
	file := c.Flags().String("interrupts", "", "read this `FILE` instead of /proc/interrupts")
	all := c.Flags().BoolP("all", "a", false, "show rows that are not a network interface's too")
	c.RunE = func(c *cobra.Command, names []string) error {
		if err := out.check(); err != nil {
			return err
		}
		rows, problems, err := e.readInterrupts(c.Context(), *file, names)
		if err != nil {
			return err
		}
		if out.format == "json" {
			return printJSON(e.stdout, rows)
		}
		printIRQs(e.stdout, rows, *all, e.palette())
		for _, p := range problems {
			wrap(e.stderr, e.textWidth(), "! ", "  ", p.Error())
		}
		return nil
	}
	return c
}

func (e *env) readInterrupts(ctx context.Context, file string, names []string) ([]vector.Row, []*procfs.Error, error) {
	var text []byte
	var err error
	var known []vector.Interface
	switch file {
	case "":
		file = "/proc/interrupts"
		if text, err = e.fs.ReadFile(file); err == nil {
			known, err = e.knownInterfaces(ctx, names)
		}
	case "-":
		file = "standard input"
		text, err = io.ReadAll(io.LimitReader(e.stdin, maxPaste+1))
	default:
		text, err = readPaste(file)
	}
	if err != nil {
		return nil, nil, err
	}
	if len(text) > maxPaste {
		return nil, nil, fmt.Errorf("read %s: more than %d MiB is no table of interrupts", file, maxPaste>>20)
	}
	t, err := procfs.ParseInterrupts(file, text)
	if err != nil {
		return nil, nil, err
	}
	rows := vector.Table(t, known)
	if len(names) > 0 {
		rows = slices.DeleteFunc(rows, func(r vector.Row) bool {
			return !slices.ContainsFunc(r.Actions, func(a vector.Action) bool { return slices.Contains(names, a.Device) })
		})
	}
	return rows, t.Problems, nil
}

// maxPaste bounds a pasted table: 4096 vectors on 1024 CPUs are 45 MiB.
const maxPaste = 64 << 20

func readPaste(file string) ([]byte, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, fmt.Errorf("read interrupts: %w", err)
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxPaste+1))
	if err != nil {
		return nil, fmt.Errorf("read interrupts: %w", err)
	}
	return text, nil
}

// knownInterfaces is what this host knows of its interfaces.
func (e *env) knownInterfaces(ctx context.Context, names []string) ([]vector.Interface, error) {
	h, err := e.openHost()
	if err != nil {
		return nil, err
	}
	defer h.close()
	nics, err := h.inventory(ctx)
	if err != nil {
		return nil, err
	}
	if err := checkInterfaces(nics, names); err != nil {
		return nil, err
	}
	out := []vector.Interface{}
	for i := range nics {
		rx, tx := nics[i].QueueCount()
		v := vector.Interface{Name: nics[i].Name, Driver: nic.CanonicalDriver(nics[i].Driver), RX: rx, TX: tx}
		if link, err := e.fs.Readlink("/sys/class/net/" + v.Name); err == nil && nics[i].Kind == nic.Physical {
			v.Bus = busNames(link)
		}
		out = append(out, v)
	}
	return out, nil
}

// pciAddress is domain:bus:device.function.
var pciAddress = regexp.MustCompile(`^[0-9a-f]{4,}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-9a-f]$`)

// busNames are the bus devices above an interface up to its PCI function, of the
// link /sys/class/net/NAME: ../../devices/pci0000:00/0000:00:03.0/virtio2/net/eth0.
func busNames(link string) []string {
	parts := strings.Split(link, "/")
	var out []string
	for _, p := range slices.Backward(parts[:max(len(parts)-2, 0)]) {
		if p == "devices" || p == ".." {
			break
		}
		out = append(out, p)
		if pciAddress.MatchString(p) {
			break
		}
	}
	return out
}

func printIRQs(w io.Writer, rows []vector.Row, all bool, p palette) {
	t := newTable("", ">IRQ", ">interrupts", "CPUs", "device", "kind", ">queue", "sure", "name")
	left := 0
	for _, r := range rows {
		ours := slices.ContainsFunc(r.Actions, func(a vector.Action) bool { return a.Kind != vector.Other })
		if !ours && !all {
			left++
			continue
		}
		irq, total, cpus := r.IRQ, strconv.FormatUint(r.Total, 10), countText(r.Counts)
		if len(r.Actions) == 0 {
			t.row(irq, total, cpus, "", "", "", "", "")
		}
		for _, a := range r.Actions {
			queue := ""
			if q := a.Queue(); q != vector.None {
				queue = strconv.Itoa(q)
			}
			t.row(irq, total, cpus, cmp.Or(a.Device, a.BDF), string(a.Kind), queue, string(a.Confidence), a.Name)
			irq, total, cpus = " ", " ", " " // an interrupt that several share
		}
	}
	if len(t.rows) > 0 {
		t.print(w, p)
	} else {
		fmt.Fprintln(w, "No interrupt is a network interface's.")
	}
	if left > 0 {
		fmt.Fprintf(w, "%s of other devices left out; --all shows them\n", plural(left, "row"))
	}
}

// countText names the CPUs that took most of the interrupts: "2 (98 %), 0 (2 %)".
func countText(c vector.Counts) string {
	type part struct {
		cpu int
		n   uint64
	}
	var parts []part
	var total uint64
	for i, n := range c.Values {
		if n > 0 && i < len(c.CPUs) {
			parts = append(parts, part{c.CPUs[i], n})
			total += n
		}
	}
	slices.SortStableFunc(parts, func(a, b part) int { return cmp.Compare(b.n, a.n) })
	var out []string
	for i, p := range parts {
		if i > 0 && float64(p.n) < 0.005*float64(total) {
			break
		}
		if i == 2 && len(parts) > 3 {
			out = append(out, fmt.Sprintf("+%d more", len(parts)-i))
			break
		}
		text := strconv.Itoa(p.cpu)
		if parts[0].n*1000 < total*995 {
			text += fmt.Sprintf(" (%.0f %%)", 100*float64(p.n)/float64(total))
		}
		out = append(out, text)
	}
	return strings.Join(out, ", ")
}

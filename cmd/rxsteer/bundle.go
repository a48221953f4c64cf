package main

import (
	"archive/tar"
	"cmp"
	"compress/gzip"
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/rxsteer/rxsteer/collector"
	"github.com/rxsteer/rxsteer/internal/host/knob"
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
at two points in time, what ethtool tells of each interface, the settings, the
map and the measurement as JSON. Every file is text; unpack it and look before
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
	c.RunE = func(c *cobra.Command, names []string) error {
		if err := m.check(); err != nil {
			return err
		}
		b := &bundle{e: e, now: e.now()}
		if mask {
			b.masker = &paste.Masker{Key: []byte(rand.Text())}
			if name, err := os.Hostname(); err == nil {
				b.masker.Hosts = []string{name}
			}
		}
		if err := e.collect(c.Context(), b, &m, names); err != nil {
			return err
		}
		if err := b.write(file); err != nil {
			return err
		}
		_, err := fmt.Fprintf(e.stdout, "Wrote %s: %s, %d KiB of text%s\nRead it with: rxsteer diagnose --from %s\n",
			file, plural(len(b.files), "file"), b.size()>>10, map[bool]string{true: ", addresses masked"}[mask], file)
		return err
	}
	return c
}

// bundle is the files of an archive in the making.
type bundle struct {
	e      *env
	now    time.Time
	masker *paste.Masker
	files  []bundleFile
}

type bundleFile struct {
	name string
	text []byte
}

func (b *bundle) add(name string, text []byte) {
	if b.masker != nil {
		text = b.masker.Mask(text)
	}
	b.files = append(b.files, bundleFile{name, text})
}

// copy takes a file of the host as it is; one that is not there is left out.
func (b *bundle) copy(name, from string) {
	if text, err := b.e.fs.ReadFile(from); err == nil {
		b.add(name, text)
	}
}

func (b *bundle) json(name string, v any) error {
	text, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return fmt.Errorf("encode %s: %w", name, err)
	}
	b.add(name, append(text, '\n'))
	return nil
}

func (b *bundle) size() int {
	n := 0
	for _, f := range b.files {
		n += len(f.text)
	}
	return n
}

// folder is where the files are in the archive.
const folder = "rxsteer-bundle/"

func (b *bundle) write(file string) (err error) {
	f, err := os.OpenFile(file, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err != nil {
		return fmt.Errorf("write bundle: %w", err)
	}
	z := gzip.NewWriter(f)
	t := tar.NewWriter(z)
	defer func() {
		for _, c := range []io.Closer{t, z, f} {
			if cerr := c.Close(); err == nil && cerr != nil {
				err = fmt.Errorf("write bundle: %w", cerr)
			}
		}
		if err != nil {
			os.Remove(file) // half an archive helps nobody
		}
	}()
	slices.SortFunc(b.files, func(x, y bundleFile) int { return cmp.Compare(x.name, y.name) })
	for _, x := range b.files {
		head := &tar.Header{Name: folder + x.name, Mode: 0o644, Size: int64(len(x.text)), ModTime: b.now, Format: tar.FormatPAX}
		if err := t.WriteHeader(head); err != nil {
			return fmt.Errorf("write bundle: %w", err)
		}
		if _, err := t.Write(x.text); err != nil {
			return fmt.Errorf("write bundle: %w", err)
		}
	}
	return nil
}

// counterTexts are taken at both points in time.
var counterTexts = []struct{ name, file string }{
	{"interrupts", "/proc/interrupts"},
	{"softirqs", "/proc/softirqs"},
	{"softnet_stat", "/proc/net/softnet_stat"},
	{"stat", "/proc/stat"},
}

// hostTexts are taken once.
var hostTexts = []struct{ name, file string }{
	{"online", "/sys/devices/system/cpu/online"},
	{"possible", "/sys/devices/system/cpu/possible"},
	{"isolated", "/sys/devices/system/cpu/isolated"},
	{"nohz_full", "/sys/devices/system/cpu/nohz_full"},
	{"cmdline", "/proc/cmdline"},
	{"version.txt", "/proc/version"},
}

func (e *env) collect(ctx context.Context, b *bundle, m *measureFlags, names []string) error {
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
	b.point(h, nics, ".0")
	windows, err := e.measure(ctx, h, m, "collecting")
	if err != nil {
		return err
	}
	b.point(h, nics, ".1")
	for _, t := range hostTexts {
		b.copy(t.name, t.file)
	}
	snap, err := h.machine.Snapshot(ctx, names...)
	if err != nil {
		return err
	}
	if snap.Owners, err = h.owners(ctx, nics); err != nil {
		return err
	}
	host, _ := os.Hostname() // "" is as good as any other
	b.add("uname.txt", fmt.Appendf(nil, "Linux %s %s\n", cmp.Or(host, "host"), snap.Host.Kernel))
	b.settings(snap, nics)
	status, err := readStatus(ctx, h, names)
	if err != nil {
		return err
	}
	doctor, err := e.examine(ctx, h)
	if err != nil {
		return err
	}
	for _, x := range []struct {
		name string
		v    any
	}{
		{"snapshot.json", snap}, {"status.json", status}, {"doctor.json", doctor}, {"sample.json", collector.Merge(windows...)},
	} {
		if err := b.json(x.name, x.v); err != nil {
			return err
		}
	}
	return nil
}

// point takes all counters; suffix says which of the two points it is.
func (b *bundle) point(h *hostRooms, nics []nic.NIC, suffix string) {
	b.add("time"+suffix, fmt.Appendf(nil, "%.3f\n", float64(b.e.now().UnixMilli())/1000))
	for _, t := range counterTexts {
		b.copy(t.name+suffix, t.file)
	}
	b.add("ip-link.txt"+suffix, b.links(nics))
	for i := range nics {
		if h.ethtool == nil {
			continue
		}
		stats, err := h.ethtool.Stats(nics[i].Name)
		if err != nil || len(stats) == 0 {
			continue
		}
		text := []byte("NIC statistics:\n")
		for _, s := range stats {
			text = fmt.Appendf(text, "     %s: %d\n", s.Name, s.Value)
		}
		b.add("ethtool-S."+nics[i].Name+".txt"+suffix, text)
	}
}

// links is what `ip -s link` prints of the counters.
func (b *bundle) links(nics []nic.NIC) []byte {
	var out []byte
	count := func(device string, names ...string) string {
		var figures []string
		for _, n := range names {
			text, err := b.e.fs.ReadFile("/sys/class/net/" + device + "/statistics/" + n)
			if err != nil {
				text = []byte("0")
			}
			figures = append(figures, strings.TrimSpace(string(text)))
		}
		return strings.Join(figures, " ")
	}
	for i := range nics {
		n := &nics[i]
		state, flags, kind := "DOWN", "BROADCAST,MULTICAST", "ether"
		if n.Kind == nic.Loopback {
			flags, kind = "LOOPBACK", "loopback"
		}
		if n.Up {
			state, flags = "UP", flags+",UP,LOWER_UP"
		}
		master := ""
		if n.Master != "" {
			master = " master " + n.Master
		}
		out = fmt.Appendf(out, "%d: %s: <%s> mtu %d%s state %s mode DEFAULT group default\n", n.IfIndex, n.Name, flags, n.MTU, master, state)
		out = fmt.Appendf(out, "    link/%s %s brd ff:ff:ff:ff:ff:ff\n", kind, cmp.Or(n.MAC, "00:00:00:00:00:00"))
		out = fmt.Appendf(out, "    RX:  bytes packets errors dropped  missed   mcast\n    %s\n",
			count(n.Name, "rx_bytes", "rx_packets", "rx_errors", "rx_dropped", "rx_missed_errors", "multicast"))
		out = fmt.Appendf(out, "    TX:  bytes packets errors dropped carrier collsns\n    %s\n",
			count(n.Name, "tx_bytes", "tx_packets", "tx_errors", "tx_dropped", "tx_carrier_errors", "collisions"))
	}
	return out
}

// settings writes what is set in the words of ethtool and of the kernel's files.
func (b *bundle) settings(snap *knob.Snapshot, nics []nic.NIC) {
	var irqs []byte
	for i := range nics {
		n := &nics[i]
		b.ethtool(snap, n)
		var rps, xps []byte
		for _, q := range n.Queues {
			if q.RX != nic.None {
				rps = fmt.Appendf(rps, "rx-%d %s\n", q.RX, mask(q.RPS.Mask(0)))
			}
			if q.TX != nic.None {
				xps = fmt.Appendf(xps, "tx-%d %s\n", q.TX, mask(q.XPS.Mask(0)))
			}
			if q.IRQ != nic.None {
				irqs = fmt.Appendf(irqs, "%d %s %s %s\n", q.IRQ, cmp.Or(q.Vector, n.Name), cmp.Or(q.Affinity.String(), "-"), cmp.Or(q.Effective.String(), "-"))
			}
		}
		for _, f := range []bundleFile{{"rps_cpus." + n.Name + ".txt", rps}, {"xps_cpus." + n.Name + ".txt", xps}} {
			if len(f.text) > 0 {
				b.add(f.name, f.text)
			}
		}
	}
	if len(irqs) > 0 {
		b.add("proc_irq.txt", irqs)
	}
}

func mask(s string) string { return cmp.Or(s, "0") }

func (b *bundle) ethtool(snap *knob.Snapshot, n *nic.NIC) {
	put := func(letter string, text []byte) {
		b.add("ethtool-"+letter+"."+n.Name+".txt", text)
	}
	get := func(k knob.Kind) (map[string]any, bool) {
		v := snap.Get(knob.Ref{Knob: k, Target: knob.Target(n.Name)})
		return group(v), v.Known()
	}
	if n.Driver != "" {
		put("i", fmt.Appendf(nil, "driver: %s\nversion: %s\nfirmware-version: %s\nexpansion-rom-version: \nbus-info: %s\n", n.Driver, n.Version, n.Firmware, n.Bus))
	}
	for _, g := range []struct {
		letter, title string
		now, limit    knob.Kind
		names         [][2]string
	}{
		{"l", "Channel parameters", knob.Channels, knob.ChannelsMax, [][2]string{{"rx", "RX"}, {"tx", "TX"}, {"other", "Other"}, {"combined", "Combined"}}},
		{"g", "Ring parameters", knob.Rings, knob.RingsMax, [][2]string{{"rx", "RX"}, {"rx-mini", "RX Mini"}, {"rx-jumbo", "RX Jumbo"}, {"tx", "TX"}}},
	} {
		now, ok := get(g.now)
		if !ok {
			continue
		}
		limit, _ := get(g.limit)
		text := fmt.Appendf(nil, "%s for %s:\nPre-set maximums:\n", g.title, n.Name)
		for _, x := range g.names {
			text = fmt.Appendf(text, "%s:\t\t%s\n", x[1], orNA(limit[x[0]]))
		}
		text = append(text, "Current hardware settings:\n"...)
		for _, x := range g.names {
			text = fmt.Appendf(text, "%s:\t\t%s\n", x[1], orNA(now[x[0]]))
		}
		put(g.letter, text)
	}
	if m, ok := get(knob.Coalesce); ok {
		text := fmt.Appendf(nil, "Coalesce parameters for %s:\nAdaptive RX: %s  TX: %s\n", n.Name, onOff(m["adaptive-rx"]), onOff(m["adaptive-tx"]))
		for _, k := range sortedParts(m) {
			if !strings.HasPrefix(k, "adaptive-") {
				text = fmt.Appendf(text, "%s:\t%v\n", k, m[k])
			}
		}
		put("c", text)
	}
	changeable, ok := get(knob.Features)
	if fixed, known := get(knob.FeaturesFixed); ok && known {
		text := fmt.Appendf(nil, "Features for %s:\n", n.Name)
		for _, k := range sortedParts(changeable) {
			text = fmt.Appendf(text, "%s: %s\n", k, onOff(changeable[k]))
		}
		for _, k := range sortedParts(fixed) {
			text = fmt.Appendf(text, "%s: %s [fixed]\n", k, onOff(fixed[k]))
		}
		put("k", text)
	}
	if m, ok := get(knob.Pause); ok {
		put("a", fmt.Appendf(nil, "Pause parameters for %s:\nAutonegotiate:\t%s\nRX:\t\t%s\nTX:\t\t%s\n", n.Name, onOff(m["autoneg"]), onOff(m["rx"]), onOff(m["tx"])))
	}
	var table []int
	if v := snap.Get(knob.Ref{Knob: knob.RSSTable, Target: knob.Target(n.Name)}); v.Decode(&table) == nil && len(table) > 0 {
		rx, _ := n.QueueCount()
		text := fmt.Appendf(nil, "RX flow hash indirection table for %s with %d RX ring(s):", n.Name, rx)
		for i, q := range table {
			if i%8 == 0 {
				text = fmt.Appendf(text, "\n%5d: ", i)
			}
			text = fmt.Appendf(text, " %5d", q)
		}
		key := snap.Get(knob.Ref{Knob: knob.RSSKey, Target: knob.Target(n.Name)})
		text = fmt.Appendf(text, "\nRSS hash key:\n%s\n", map[bool]string{true: key.String(), false: "Operation not supported"}[key.Known()])
		if f := snap.Get(knob.Ref{Knob: knob.RSSFunction, Target: knob.Target(n.Name)}); f.Known() {
			text = fmt.Appendf(text, "RSS hash function:\n    %s: on\n", f)
		}
		put("x", text)
	}
}

func onOff(v any) string {
	if v == true || fmt.Sprint(v) == "1" {
		return "on"
	}
	return "off"
}

func orNA(v any) string {
	if v == nil {
		return "n/a"
	}
	return fmt.Sprint(v)
}

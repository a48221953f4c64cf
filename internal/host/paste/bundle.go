package paste

import (
	"archive/tar"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/rxsteer/rxsteer/collector"
	"github.com/rxsteer/rxsteer/internal/host"
	"github.com/rxsteer/rxsteer/internal/host/knob"
	"github.com/rxsteer/rxsteer/internal/host/nic"
	"github.com/rxsteer/rxsteer/internal/host/procfs"
	"github.com/rxsteer/rxsteer/internal/host/topo"
	"github.com/rxsteer/rxsteer/internal/host/vector"
)

// Bundle is a folder of texts in the making, by file name: those that people paste, taken from a
// host, and beside them what rxsteer itself read, which a reader prefers.
type Bundle map[string][]byte

// The files that hold rxsteer's own types.
const (
	snapshotFile = "snapshot.json"
	nicsFile     = "nics.json"
	topologyFile = "topology.json"
	samplesFile  = "samples.json"
)

// Saved is what a bundle holds of rxsteer's own types, nil where it does not.
type Saved struct {
	Snapshot *knob.Snapshot
	NICs     []nic.NIC
	Topology *topo.Topology
	// Windows is what was measured, in order.
	Windows []*collector.Sample
}

// Save puts rxsteer's own types into the bundle.
func (b Bundle) Save(s Saved) error {
	for name, v := range map[string]any{snapshotFile: s.Snapshot, nicsFile: s.NICs, topologyFile: s.Topology, samplesFile: s.Windows} {
		j, err := json.MarshalIndent(v, "", " ")
		if err != nil {
			return fmt.Errorf("encode %s: %w", name, err)
		}
		if string(j) != "null" {
			b[name] = append(j, '\n')
		}
	}
	return nil
}

// load reads one of the files of Save.
func (s *Saved) load(name string, text []byte) error {
	var err error
	switch name {
	case snapshotFile:
		v := &knob.Snapshot{}
		if err = json.Unmarshal(text, v); err == nil && v.Version > knob.SnapshotVersion {
			err = fmt.Errorf("version %d, this program knows %d", v.Version, knob.SnapshotVersion)
		}
		if err == nil {
			v.Sort()
			s.Snapshot = v
		}
	case nicsFile:
		var v []nic.NIC
		if err = json.Unmarshal(text, &v); err == nil {
			s.NICs = v
		}
	case topologyFile:
		v := &topo.Topology{}
		if err = json.Unmarshal(text, v); err == nil {
			slices.SortFunc(v.CPUs, func(a, b topo.CPU) int { return a.ID - b.ID })
			s.Topology = v
		}
	case samplesFile:
		var v []*collector.Sample
		if err = json.Unmarshal(text, &v); err == nil {
			for _, x := range v {
				switch {
				case x == nil || x.Interval <= 0:
					err = errors.New("a sample of no time")
				case x.Version > collector.SampleVersion:
					err = fmt.Errorf("version %d, this program knows %d", x.Version, collector.SampleVersion)
				}
			}
		}
		if err == nil {
			s.Windows = v
		}
	}
	if err != nil {
		return &Error{File: name, Line: line(text, err), Cause: err.Error()}
	}
	return nil
}

// line is where in text a JSON error is, 0 not told.
func line(text []byte, err error) int {
	at := int64(-1)
	switch e := err.(type) {
	case *json.SyntaxError:
		at = e.Offset
	case *json.UnmarshalTypeError:
		at = e.Offset
	}
	if at < 0 || at > int64(len(text)) {
		return 0
	}
	return 1 + strings.Count(string(text[:at]), "\n")
}

// AddCounters adds the counters as they are now; point is 0 or 1. What the host does not let
// be read is left out.
func (b Bundle) AddCounters(f host.FS, point int, now time.Time) {
	suffix := "." + strconv.Itoa(point)
	for name, file := range map[string]string{
		"interrupts": "/proc/interrupts", "softirqs": "/proc/softirqs", "softnet_stat": "/proc/net/softnet_stat", "stat": "/proc/stat",
		"snmp": "/proc/net/snmp", "netstat": "/proc/net/netstat", "snmp6": "/proc/net/snmp6",
	} {
		if text, err := f.ReadFile(file); err == nil {
			b[name+suffix] = text
		}
	}
	b["ip-link.txt"+suffix] = ipLink(f)
	b["time"+suffix] = fmt.Appendf(nil, "%.6f\n", float64(now.UnixNano())/1e9)
}

// AddSettings adds what changes rarely: CPU lists, command line, release, vectors.
func (b Bundle) AddSettings(f host.FS) {
	for name, file := range map[string]string{
		"online": "/sys/devices/system/cpu/online", "possible": "/sys/devices/system/cpu/possible",
		"isolated": "/sys/devices/system/cpu/isolated", "nohz_full": "/sys/devices/system/cpu/nohz_full", "cmdline": "/proc/cmdline",
	} {
		if text, err := f.ReadFile(file); err == nil {
			b[name] = text
		}
	}
	b["uname.txt"] = fmt.Appendf(nil, "Linux %s %s\n", word(f, "/proc/sys/kernel/hostname"), word(f, "/proc/sys/kernel/osrelease"))
	if text, err := f.ReadFile("/proc/interrupts"); err == nil {
		if t, err := procfs.ParseInterrupts("interrupts", text); err == nil {
			b["proc_irq.txt"] = procIRQ(f, t)
		}
	}
}

// word is the text of a file, "-" where it is not told.
func word(f host.FS, elem ...string) string {
	text, err := f.ReadFile(path.Join(elem...))
	if s := strings.TrimSpace(string(text)); err == nil && s != "" {
		return s
	}
	return "-"
}

// procIRQ is proc_irq.txt of the vectors in a table.
func procIRQ(f host.FS, t *procfs.Interrupts) []byte {
	var out []byte
	for _, r := range t.Rows {
		if r.IRQ == vector.None || len(r.Actions) == 0 {
			continue
		}
		dir := "/proc/irq/" + strconv.Itoa(r.IRQ)
		out = fmt.Appendf(out, "%d %s %s %s\n", r.IRQ, strings.Join(r.Actions, ", "), word(f, dir, "smp_affinity_list"), word(f, dir, "effective_affinity_list"))
	}
	return out
}

// ipLink writes sysfs down as `ip -s link` would. It is empty where /sys is not there.
func ipLink(f host.FS) []byte {
	const class = "/sys/class/net"
	entries, err := f.ReadDir(class)
	if err != nil {
		return nil
	}
	type row struct {
		index int
		text  string
	}
	var rows []row
	for _, e := range entries {
		dir := path.Join(class, e.Name())
		index, err := strconv.Atoi(word(f, dir, "ifindex"))
		if err != nil {
			continue // bonding_masters
		}
		flags, _ := strconv.ParseUint(word(f, dir, "flags"), 0, 32)
		state := strings.ToUpper(word(f, dir, "operstate"))
		var names []string
		if flags&1 != 0 { // IFF_UP
			names = append(names, "UP")
		}
		if word(f, dir, "carrier") == "1" {
			names = append(names, "LOWER_UP")
		}
		kind := "ether"
		if flags&8 != 0 { // IFF_LOOPBACK
			kind = "loopback"
		}
		text := fmt.Sprintf("%d: %s: <%s> mtu %s state %s", index, e.Name(), strings.Join(names, ","), word(f, dir, "mtu"), state)
		if master, err := f.Readlink(path.Join(dir, "master")); err == nil {
			text += " master " + path.Base(master)
		}
		text += fmt.Sprintf("\n    link/%s %s\n", kind, word(f, dir, "address"))
		for _, part := range []struct{ head, files string }{
			{"RX:  bytes packets errors dropped missed mcast", "rx_bytes rx_packets rx_errors rx_dropped rx_missed_errors multicast"},
			{"TX:  bytes packets errors dropped carrier collsns", "tx_bytes tx_packets tx_errors tx_dropped tx_carrier_errors collisions"},
		} {
			text += "    " + part.head + "\n    "
			for _, name := range strings.Fields(part.files) {
				n := word(f, dir, "statistics", name)
				if n == "-" {
					n = "0"
				}
				text += " " + n
			}
			text += "\n"
		}
		rows = append(rows, row{index, text})
	}
	slices.SortFunc(rows, func(a, b row) int { return a.index - b.index })
	var out []byte
	for _, r := range rows {
		out = append(out, r.text...)
	}
	return out
}

// Mask replaces addresses and host names in all files.
func (b Bundle) Mask(m Masker) {
	for name, text := range b {
		b[name] = m.Mask(text)
	}
}

// Write writes the bundle as a .tar.gz below a folder "rxsteer", the same bytes for the same files.
func (b Bundle) Write(w io.Writer) error {
	z := gzip.NewWriter(w)
	t := tar.NewWriter(z)
	for _, name := range slices.Sorted(maps.Keys(b)) {
		text := b[name]
		head := &tar.Header{Name: "rxsteer/" + name, Mode: 0o644, Size: int64(len(text)), Typeflag: tar.TypeReg, Format: tar.FormatUSTAR}
		if err := t.WriteHeader(head); err != nil {
			return fmt.Errorf("write bundle: %w", err)
		}
		if _, err := t.Write(text); err != nil {
			return fmt.Errorf("write bundle: %w", err)
		}
	}
	if err := t.Close(); err != nil {
		return fmt.Errorf("write bundle: %w", err)
	}
	if err := z.Close(); err != nil {
		return fmt.Errorf("write bundle: %w", err)
	}
	return nil
}

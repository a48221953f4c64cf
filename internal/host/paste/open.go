package paste

import (
	"archive/tar"
	"cmp"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/rxsteer/rxsteer/internal/cpuset"
	"github.com/rxsteer/rxsteer/internal/host/procfs"
	"github.com/rxsteer/rxsteer/internal/host/topo"
)

// Bounds on what is read.
const (
	MaxFile  = 64 << 20  // of one file; a table of 4096 interrupts on 1024 CPUs has 45 MiB
	maxTotal = 512 << 20 // of all files
	maxFiles = 4096
)

// Host is everything a folder of pasted texts tells.
type Host struct {
	Points [2]Point // before and after; single texts are in the second
	// Timed says that Points have times; without them only ratios between counters mean something.
	Timed bool

	Online, Possible, Isolated, NoHzFull cpuset.Set
	CmdLine, Kernel, HostName            string
	IRQs                                 []IRQ
	RPS, XPS                             []QueueMask // Device filled in where it can be told
	Devices                              []*Device   // by name
	Saved                                Saved       // rxsteer's own types, in a bundle
	Events                               []Event
	// Notes are what was not understood or left out, each naming file and line.
	Notes []error
}

// Point is the counters at one point in time; what is nil was not there.
type Point struct {
	Time       time.Time // zero not told
	Interrupts *procfs.Interrupts
	Softirqs   *procfs.Softirqs
	Softnet    []procfs.Softnet
	Stat       *procfs.Stat
	Protocols  map[string]uint64 // as collector.Sample.Protocols, cumulative
	Links      []Link
	Stats      map[string]*Stats // by device
}

// Device is what was pasted of one interface; what is nil was not there.
type Device struct {
	Name           string
	Info           *Info
	RSS            *RSS
	Channels       *Groups
	Rings          *Groups
	Coalesce       *Coalesce
	Features       *Features
	Pause          *Pause
	Classification *Classification
}

// Open reads a folder or a .tar.gz of pasted texts. The error is that of a path that cannot be
// read at all or holds none of the known names.
func Open(name string) (*Host, error) {
	st, err := os.Stat(name)
	if err != nil {
		return nil, fmt.Errorf("open pasted texts: %w", err)
	}
	var c collection
	if st.IsDir() {
		err = c.folder(os.DirFS(name))
	} else {
		err = c.archive(name)
	}
	if err != nil {
		return nil, fmt.Errorf("open pasted texts in %s: %w", name, err)
	}
	h := c.parse()
	if !h.any() {
		return nil, fmt.Errorf("open pasted texts in %s: no file of a known name: %w", name, fs.ErrNotExist)
	}
	return h, nil
}

// OpenFS reads the pasted texts of a file tree.
func OpenFS(f fs.FS) (*Host, error) {
	var c collection
	if err := c.folder(f); err != nil {
		return nil, fmt.Errorf("open pasted texts: %w", err)
	}
	return c.parse(), nil
}

func (h *Host) any() bool {
	p := h.Points[1]
	return p.Interrupts != nil || p.Softirqs != nil || p.Softnet != nil || p.Stat != nil || p.Protocols != nil || len(p.Links) > 0 || len(p.Stats) > 0 ||
		len(h.Devices) > 0 || len(h.IRQs) > 0 || len(h.RPS) > 0 || len(h.XPS) > 0 || !h.Online.IsEmpty() || len(h.Notes) > 0 || h.Kernel != "" || h.CmdLine != "" ||
		h.Saved.Snapshot != nil || h.Saved.NICs != nil || h.Saved.Topology != nil
}

// collection is the files by path below the folder.
type collection struct {
	files map[string][]byte
	total int64
	notes []error
}

func (c *collection) add(name string, r io.Reader) error {
	if _, known := nameOf(path.Base(name)); !known {
		return nil
	}
	if c.files == nil {
		c.files = map[string][]byte{}
	}
	if len(c.files) == maxFiles {
		return fmt.Errorf("more than %d files", maxFiles)
	}
	b, err := io.ReadAll(io.LimitReader(r, MaxFile+1))
	if err != nil {
		c.notes = append(c.notes, fmt.Errorf("read %s: %w", name, err))
		if len(b) == 0 {
			return nil
		}
	}
	if len(b) > MaxFile {
		c.notes = append(c.notes, &Error{File: name, Cause: fmt.Sprintf("larger than %d MiB, left out", MaxFile>>20)})
		return nil
	}
	if c.total += int64(len(b)); c.total > maxTotal {
		return fmt.Errorf("more than %d MiB in all", maxTotal>>20)
	}
	c.files[name] = b
	return nil
}

// folder takes the files of the folder and, so that an unpacked archive needs no
// cd, those one level below.
func (c *collection) folder(f fs.FS) error {
	return fs.WalkDir(f, ".", func(p string, d fs.DirEntry, err error) error {
		switch {
		case err != nil && p == ".":
			return err
		case err != nil:
			c.notes = append(c.notes, fmt.Errorf("read %s: %w", p, err))
			return nil
		case d.IsDir() && strings.Count(p, "/") >= 1:
			return fs.SkipDir
		case !d.Type().IsRegular() && d.Type()&fs.ModeSymlink == 0 || d.IsDir():
			return nil
		}
		if _, known := nameOf(path.Base(p)); !known {
			return nil
		}
		file, err := f.Open(p)
		if err != nil {
			c.notes = append(c.notes, fmt.Errorf("read %s: %w", p, err))
			return nil
		}
		defer file.Close()
		if st, err := file.Stat(); err != nil || !st.Mode().IsRegular() {
			return nil
		}
		return c.add(p, file)
	})
}

func (c *collection) archive(name string) (err error) {
	f, err := os.Open(name)
	if err != nil {
		return err
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		return fmt.Errorf("neither a folder nor a .tar.gz: %w", err)
	}
	// The bound covers what is skipped, too.
	r := tar.NewReader(io.LimitReader(z, 2*maxTotal))
	for n := 0; ; n++ {
		head, err := r.Next()
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil && len(c.files) > 0: // cut off: what came before counts
			c.notes = append(c.notes, fmt.Errorf("read %s: %w", filepath.Base(name), err))
			return nil
		case err != nil:
			return err
		case n == 16*maxFiles:
			return fmt.Errorf("more than %d entries", 16*maxFiles)
		}
		if head.Typeflag == tar.TypeReg {
			if err := c.add(path.Clean(strings.TrimLeft(head.Name, "/")), r); err != nil {
				return err
			}
		}
	}
}

// fileName is a name taken apart: "ethtool-S.eth1.txt.0".
type fileName struct {
	kind   string // "interrupts", "ethtool-S", …
	device string // "" not in the name
	point  int    // 0 or 1
	single bool   // no point in the name
}

// kinds are the known files without ".txt", interface and point.
var kinds = []string{
	"interrupts", "softirqs", "softnet_stat", "stat", "snmp", "netstat", "snmp6", "online", "possible", "isolated", "nohz_full", "cmdline", "uname",
	"ip-link", "proc_irq", "rps_cpus", "xps_cpus", "dmesg", "time",
	"ethtool-x", "ethtool-l", "ethtool-c", "ethtool-k", "ethtool-g", "ethtool-S", "ethtool-i", "ethtool-n", "ethtool-a",
}

func nameOf(base string) (fileName, bool) {
	n := fileName{point: 1, single: true}
	if base == snapshotFile || base == nicsFile || base == topologyFile || base == samplesFile {
		n.kind = base
		return n, true
	}
	if s, ok := strings.CutSuffix(base, ".0"); ok {
		base, n.point, n.single = s, 0, false
	} else if s, ok := strings.CutSuffix(base, ".1"); ok {
		base, n.single = s, false
	}
	base = strings.TrimSuffix(base, ".txt")
	n.kind, n.device, _ = strings.Cut(base, ".")
	if len(n.device) > 15 || n.device != "" && !strings.HasPrefix(n.kind, "ethtool-") && n.kind != "rps_cpus" && n.kind != "xps_cpus" {
		return n, false
	}
	return n, slices.Contains(kinds, n.kind)
}

// parse reads the files, in a fixed order.
func (c *collection) parse() *Host {
	h := &Host{Notes: c.notes}
	for i := range h.Points {
		h.Points[i].Stats = map[string]*Stats{}
	}
	type file struct {
		fileName
		path string
	}
	var files []file
	for p := range c.files {
		n, _ := nameOf(path.Base(p))
		files = append(files, file{n, p})
	}
	slices.SortFunc(files, func(a, b file) int {
		return cmp.Or(cmp.Compare(strings.Count(a.path, "/"), strings.Count(b.path, "/")), cmp.Compare(a.path, b.path))
	})
	seen := map[fileName]string{}
	unnamed := map[string]*Device{} // kept until the device can be told
	for _, f := range files {
		key := f.fileName
		key.single = false
		if was, twice := seen[key]; twice {
			h.note(&Error{File: f.path, Cause: "left out, " + was + " is taken"})
			continue
		}
		seen[key] = f.path
		h.read(f.fileName, f.path, c.files[f.path], unnamed)
	}
	if d := unnamed[""]; d != nil || h.Points[0].Stats[""] != nil || h.Points[1].Stats[""] != nil {
		h.nameDevice(d)
	}
	slices.SortFunc(h.Devices, func(a, b *Device) int { return cmp.Compare(a.Name, b.Name) })
	h.order()
	h.contradictions()
	h.sets()
	h.nameQueues()
	h.Timed = !h.Points[0].Time.IsZero() && h.Points[1].Time.After(h.Points[0].Time)
	return h
}

func (h *Host) note(errs ...error) { h.Notes = append(h.Notes, errs...) }

// device returns the device of a name, made when it is new; "" is the one not yet named.
func (h *Host) device(name string, unnamed map[string]*Device) *Device {
	if name == "" {
		if unnamed[""] == nil {
			unnamed[""] = &Device{}
		}
		return unnamed[""]
	}
	for _, d := range h.Devices {
		if d.Name == name {
			return d
		}
	}
	d := &Device{Name: name}
	h.Devices = append(h.Devices, d)
	return d
}

// read parses one file.
func (h *Host) read(n fileName, file string, b []byte, unnamed map[string]*Device) {
	p := &h.Points[n.point]
	// named picks the device an answer is of: the file's name, else the answer's own heading.
	named := func(inText string) *Device { return h.device(cmp.Or(n.device, ifname(inText)), unnamed) }
	settings := n.point == 1 // settings count as they are at the end
	fail := func(err error) {
		if err != nil {
			h.note(err)
		}
	}
	var err error
	switch n.kind {
	case "interrupts":
		p.Interrupts, err = procfs.ParseInterrupts(file, b)
		fail(err)
		if err == nil {
			for _, e := range p.Interrupts.Problems {
				h.note(e)
			}
		}
	case "softirqs":
		p.Softirqs, err = procfs.ParseSoftirqs(file, b)
		fail(err)
	case "softnet_stat":
		p.Softnet, err = procfs.ParseSoftnet(file, b)
		fail(err)
	case "stat":
		p.Stat, err = procfs.ParseStat(file, b)
		fail(err)
	case "snmp", "netstat", "snmp6":
		counters, err := procfs.ParseSNMP(file, b)
		fail(err)
		if err == nil && p.Protocols == nil {
			p.Protocols = map[string]uint64{}
		}
		maps.Copy(p.Protocols, counters)
	case "time":
		s := strings.TrimSpace(string(b[:min(len(b), 64)]))
		t, err := strconv.ParseFloat(s, 64)
		if err != nil || !(t > 0 && t < 1e11) {
			h.note(&Error{File: file, Line: 1, Cause: "not Unix seconds: " + clip(s)})
			return
		}
		p.Time = time.Unix(0, int64(t*1e9)).UTC()
	case "online", "possible", "isolated", "nohz_full":
		set, err := cpuset.ParseList(string(b))
		if err != nil {
			h.note(&Error{File: file, Line: 1, Cause: err.Error()})
		}
		*map[string]*cpuset.Set{"online": &h.Online, "possible": &h.Possible, "isolated": &h.Isolated, "nohz_full": &h.NoHzFull}[n.kind] = set
	case "cmdline":
		h.CmdLine = strings.TrimSpace(string(b[:min(len(b), 1<<16)]))
	case snapshotFile, nicsFile, topologyFile, samplesFile:
		fail(h.Saved.load(n.kind, b))
	case "uname":
		h.uname(file, string(b[:min(len(b), 4096)]))
	case "ip-link":
		var errs []error
		p.Links, errs = ParseIPLink(file, b)
		h.note(errs...)
	case "dmesg":
		h.Events = ParseDmesg(b)
	case "ethtool-S":
		s, errs := ParseStats(file, b)
		h.note(errs...)
		p.Stats[n.device] = s
		if n.device != "" {
			h.device(n.device, unnamed)
		}
	case "proc_irq":
		var errs []error
		if settings {
			h.IRQs, errs = ParseIRQs(file, b)
		}
		h.note(errs...)
	case "rps_cpus", "xps_cpus":
		if !settings {
			return
		}
		masks, errs := ParseQueueMasks(file, b)
		h.note(errs...)
		for i := range masks {
			masks[i].Device = cmp.Or(masks[i].Device, n.device)
		}
		if n.kind == "rps_cpus" {
			h.RPS = append(h.RPS, masks...)
		} else {
			h.XPS = append(h.XPS, masks...)
		}
	default:
		if settings {
			h.ethtool(n.kind, file, b, named)
		}
	}
}

func (h *Host) ethtool(kind, file string, b []byte, named func(string) *Device) {
	var errs []error
	switch kind {
	case "ethtool-x":
		var v *RSS
		v, errs = ParseRSS(file, b)
		named(v.Device).RSS = v
		for _, r := range v.Remarks {
			errs = append(errs, &Error{File: file, Cause: r})
		}
	case "ethtool-l":
		var v *Groups
		v, errs = ParseChannels(file, b)
		named(v.Device).Channels = v
	case "ethtool-g":
		var v *Groups
		v, errs = ParseRings(file, b)
		named(v.Device).Rings = v
	case "ethtool-c":
		var v *Coalesce
		v, errs = ParseCoalesce(file, b)
		named(v.Device).Coalesce = v
	case "ethtool-k":
		var v *Features
		v, errs = ParseFeatures(file, b)
		named(v.Device).Features = v
	case "ethtool-a":
		var v *Pause
		v, errs = ParsePause(file, b)
		named(v.Device).Pause = v
	case "ethtool-i":
		var v *Info
		v, errs = ParseInfo(file, b)
		named("").Info = v
	case "ethtool-n":
		var v *Classification
		v, errs = ParseClassification(file, b)
		named("").Classification = v
	}
	h.note(errs...)
}

// ifname is s if it can be an interface name (dev_valid_name in net/core/dev.c), else "".
func ifname(s string) string {
	if s == "" || len(s) > 15 || strings.ContainsAny(s, "/: \t\n") {
		return ""
	}
	return strings.ToValidUTF8(s, "?")
}

// uname takes host name and release out of `uname -a` ("Linux host 6.1.0-21-amd64 #1 SMP …")
// or `uname -r`.
func (h *Host) uname(file, s string) {
	words := strings.Fields(s)
	switch {
	case len(words) >= 3 && words[0] == "Linux":
		h.HostName, h.Kernel = words[1], words[2]
	case len(words) > 0 && words[0][0] >= '0' && words[0][0] <= '9':
		h.Kernel = words[0]
	default:
		h.note(&Error{File: file, Line: 1, Cause: "no kernel release: " + clip(s)})
	}
}

// sets fills in CPU sets that other texts tell.
func (h *Host) sets() {
	for i := range h.Points {
		p := &h.Points[i]
		if p.Interrupts != nil && h.Online.IsEmpty() {
			h.Online = cpuset.Of(p.Interrupts.CPUs...)
		}
		if p.Softirqs != nil && h.Possible.IsEmpty() {
			h.Possible = cpuset.Of(p.Softirqs.CPUs...)
		}
	}
	for i := range h.Points {
		s := h.Points[i].Stat
		if h.Online.IsEmpty() && s != nil {
			for _, c := range s.CPUs {
				h.Online = h.Online.Union(cpuset.Of(c.CPU))
			}
		}
	}
	if h.Online.IsEmpty() {
		h.Online = h.Possible
	}
	for i := range h.Points {
		if n := len(h.Points[i].Softnet); n > 0 && h.Online.IsEmpty() {
			h.Online = cpuset.Range(0, n-1)
			h.note(&Error{File: "softnet_stat", Cause: fmt.Sprintf("nothing tells which CPUs are online: 0-%d assumed", n-1)})
		}
	}
	h.Possible = h.Possible.Union(h.Online)
	boot := topo.ParseCmdline(h.CmdLine, h.Possible.Last()+1)
	if h.Isolated.IsEmpty() {
		h.Isolated = boot.Isolated
	}
	if h.NoHzFull.IsEmpty() {
		h.NoHzFull = boot.NoHzFull
	}
	for i := range h.Points {
		if p := &h.Points[i]; p.Softnet != nil && !procfs.AssignCPUs(p.Softnet, h.Online) {
			h.note(&Error{File: "softnet_stat", Cause: fmt.Sprintf("%d rows without CPU numbers, %d CPUs online: left out", len(p.Softnet), h.Online.Len())})
			p.Softnet = nil
		}
	}
}

// nameDevice finds whose the answers without a name are: the only device there is.
func (h *Host) nameDevice(d *Device) {
	name := h.onlyDevice()
	if name == "" {
		h.note(errors.New("read ethtool texts: whose they are cannot be told, put the interface into the file name (ethtool-S.eth0.txt)"))
		for i := range h.Points {
			delete(h.Points[i].Stats, "")
		}
		return
	}
	into := h.device(name, nil)
	if d != nil {
		into.fill(d)
	}
	for i := range h.Points {
		s := h.Points[i].Stats
		if s[""] != nil {
			if s[name] == nil {
				s[name] = s[""]
			}
			delete(s, "")
		}
	}
}

// fill takes over what d does not have.
func (d *Device) fill(o *Device) {
	d.Info, d.RSS = cmp.Or(d.Info, o.Info), cmp.Or(d.RSS, o.RSS)
	d.Channels, d.Rings = cmp.Or(d.Channels, o.Channels), cmp.Or(d.Rings, o.Rings)
	d.Coalesce, d.Features = cmp.Or(d.Coalesce, o.Coalesce), cmp.Or(d.Features, o.Features)
	d.Pause, d.Classification = cmp.Or(d.Pause, o.Pause), cmp.Or(d.Classification, o.Classification)
}

// onlyDevice is the interface that texts without a name must be of, "" when there are several.
func (h *Host) onlyDevice() string {
	if len(h.Devices) == 1 {
		return h.Devices[0].Name
	}
	if len(h.Devices) > 1 {
		return ""
	}
	var names []string
	for _, q := range slices.Concat(h.RPS, h.XPS) {
		if q.Device != "" {
			names = append(names, q.Device)
		}
	}
	if len(names) == 0 {
		for name := range h.vectorDevices() {
			names = append(names, name)
		}
	}
	if len(names) == 0 {
		for _, l := range h.Points[1].Links {
			if l.Type != "loopback" && l.Name != "lo" && l.Kind == "" && l.Peer == "" {
				names = append(names, l.Name)
			}
		}
	}
	slices.Sort(names)
	if names = slices.Compact(names); len(names) == 1 {
		return names[0]
	}
	if len(names) == 0 && len(h.Points[1].Links) == 0 {
		return "eth0" // nothing names one: it needs some name
	}
	return ""
}

// nameQueues fills in the device of "rx-0" lines.
func (h *Host) nameQueues() {
	name := ""
	for _, list := range [][]QueueMask{h.RPS, h.XPS} {
		for i := range list {
			if list[i].Device != "" {
				continue
			}
			if name == "" {
				if name = h.onlyDevice(); name == "" {
					h.note(errors.New("read rps_cpus.txt and xps_cpus.txt: whose queues they are cannot be told, name them as eth0/queues/rx-0"))
					return
				}
			}
			list[i].Device = name
		}
	}
}

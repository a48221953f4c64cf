package nic

import (
	"context"
	"fmt"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/rxsteer/rxsteer/internal/cpuset"
	"github.com/rxsteer/rxsteer/internal/ethtool"
	"github.com/rxsteer/rxsteer/internal/host"
	"github.com/rxsteer/rxsteer/internal/host/knob"
)

// OwnerSources is where Owners looks. Only FS is needed.
type OwnerSources struct {
	FS          host.FS
	NICs        []NIC       // of Inventory: names, drivers and vectors
	Attachments Attachments // XDP programs and AF_XDP sockets; nil unknown
	RSS         RSS         // RSS contexts; nil unknown
}

// RSS is the part of an ethtool client that lists contexts.
type RSS interface {
	RSS(dev string) ([]ethtool.RSS, error)
}

// Owners finds who else writes receive settings on this host: daemons that
// run, configuration that is applied when a device appears or comes up, and users of
// queues. Each names what it writes and the lines that would make it leave that alone.
// What cannot be read is left out: an owner that is not found is no proof that there
// is none. The order is by name, then device.
func Owners(ctx context.Context, src OwnerSources) ([]knob.Owner, error) {
	o := owners{OwnerSources: src, processes: map[string][]process{}}
	o.readProcesses()
	for _, find := range []func(){o.irqbalance, o.tuned, o.linkFiles, o.networkManager, o.ifcfg, o.ifupdown, o.udevRules, o.cloud, o.xdp, o.contexts, o.rxsteer} {
		if err := ctx.Err(); err != nil {
			return nil, fmt.Errorf("find owners: %w", err)
		}
		find()
	}
	slices.SortStableFunc(o.found, func(a, b knob.Owner) int {
		return strings.Compare(a.Name+"\x00"+a.Device, b.Name+"\x00"+b.Device)
	})
	return o.found, nil
}

type owners struct {
	OwnerSources
	found     []knob.Owner
	processes map[string][]process // by comm
}

type process struct {
	pid  int
	args []string
}

// watched are the processes Owners knows (comm holds 15 characters).
var watched = []string{"irqbalance", "tuned", "NetworkManager", "rxsteer"}

func (o *owners) readProcesses() {
	list, err := o.FS.ReadDir("/proc")
	if err != nil {
		return
	}
	self, _ := o.FS.Readlink("/proc/self")
	for _, e := range list {
		pid, err := strconv.Atoi(e.Name())
		if err != nil || e.Name() == self {
			continue
		}
		comm, err := readText(o.FS, path.Join("/proc", e.Name(), "comm"))
		if err != nil {
			continue
		}
		args := o.args(pid)
		// Programs in Python are called python3 or after their script.
		if !slices.Contains(watched, comm) && strings.HasPrefix(comm, "python") {
			for _, a := range args[:min(len(args), 4)] {
				if b := path.Base(a); slices.Contains(watched, b) {
					comm = b
				}
			}
		}
		if slices.Contains(watched, comm) {
			o.processes[comm] = append(o.processes[comm], process{pid, args})
		}
	}
}

func (o *owners) args(pid int) []string {
	b, err := o.FS.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	if err != nil || len(b) == 0 {
		return nil
	}
	return strings.Split(strings.TrimRight(string(b), "\x00"), "\x00")
}

// running returns "pid 812" of a watched process, "" when there is none.
func (o *owners) running(comm string) string {
	if p := o.processes[comm]; len(p) > 0 {
		return fmt.Sprintf("pid %d", p[0].pid)
	}
	return ""
}

func (o *owners) add(w knob.Owner) {
	slices.Sort(w.Knobs)
	w.Knobs = slices.Compact(w.Knobs)
	o.found = append(o.found, w)
}

// vectors lists the IRQs of a device that carry queues.
func vectors(n NIC) []int {
	var out []int
	for _, q := range n.Queues {
		if q.IRQ != None && !slices.Contains(out, q.IRQ) {
			out = append(out, q.IRQ)
		}
	}
	slices.Sort(out)
	return out
}

// irqbalance moves every interrupt that it is not told to ban, when it starts and
// every 10 s. Bans are read at start only (irqbalance(1)); its options are in
// IRQBALANCE_ARGS of /etc/default/irqbalance (Debian) or /etc/sysconfig/irqbalance.
func (o *owners) irqbalance() {
	running := o.processes["irqbalance"]
	if len(running) == 0 {
		return
	}
	file, env := "/etc/default/irqbalance", map[string]string{}
	for _, f := range []string{"/etc/default/irqbalance", "/etc/sysconfig/irqbalance", "/etc/irqbalance.env"} {
		if b, err := o.FS.ReadFile(f); err == nil {
			file = f
			maps.Copy(env, assignments(string(b)))
		}
	}
	// The daemon's own environment is what it runs with.
	if b, err := o.FS.ReadFile(fmt.Sprintf("/proc/%d/environ", running[0].pid)); err == nil {
		for kv := range strings.SplitSeq(string(b), "\x00") {
			if k, v, ok := strings.Cut(kv, "="); ok && strings.HasPrefix(k, "IRQBALANCE_") {
				env[k] = v
			}
		}
	}
	banned := bannedIRQs(running[0].args)
	for _, k := range []string{"IRQBALANCE_ARGS", "IRQBALANCE_BANNED_INTERRUPTS"} {
		args := strings.Fields(env[k])
		if k == "IRQBALANCE_BANNED_INTERRUPTS" { // numbers without an option, older versions
			for _, a := range args {
				if n, err := strconv.Atoi(a); err == nil {
					banned[n] = true
				}
			}
			continue
		}
		maps.Copy(banned, bannedIRQs(args))
	}
	detail := fmt.Sprintf("pid %d", running[0].pid)
	if s, err := cpuset.ParseList(env["IRQBALANCE_BANNED_CPULIST"]); err == nil && !s.IsEmpty() {
		detail += ", bans CPUs " + s.String()
	} else if s, err := cpuset.ParseMask(env["IRQBALANCE_BANNED_CPUS"]); err == nil && !s.IsEmpty() {
		detail += ", bans CPUs " + s.String()
	}
	if script := option(append(slices.Clone(running[0].args), strings.Fields(env["IRQBALANCE_ARGS"])...), "-l", "--policyscript"); script != "" {
		detail += ", policy script " + script
	}
	for _, n := range o.NICs {
		var open []int
		for _, irq := range vectors(n) {
			if !banned[irq] {
				open = append(open, irq)
			}
		}
		if len(open) == 0 {
			continue
		}
		var all []int
		for irq := range banned {
			all = append(all, irq)
		}
		slices.Sort(all)
		args := ""
		for _, irq := range append(all, open...) {
			args += fmt.Sprintf(" --banirq=%d", irq)
		}
		o.add(knob.Owner{
			Name: "irqbalance", Device: n.Name, Knobs: []knob.Kind{knob.IRQAffinity},
			Detail: detail + ", moves IRQ " + cpuset.Of(open...).String(),
			Settle: []string{
				fmt.Sprintf("%s: IRQBALANCE_ARGS=%q", file, strings.TrimSpace(args)),
				"systemctl restart irqbalance",
			},
		})
	}
}

// bannedIRQs reads -i N, --banirq=N and --banirq N.
func bannedIRQs(args []string) map[int]bool {
	out := map[int]bool{}
	for i, a := range args {
		v, ok := strings.CutPrefix(a, "--banirq=")
		if !ok {
			v, ok = strings.CutPrefix(a, "-i")
		}
		if ok && v == "" || a == "--banirq" {
			if i+1 < len(args) {
				v, ok = args[i+1], true
			}
		}
		if n, err := strconv.Atoi(v); ok && err == nil {
			out[n] = true
		}
	}
	return out
}

func option(args []string, short, long string) string {
	for i, a := range args {
		if v, ok := strings.CutPrefix(a, long+"="); ok {
			return v
		}
		if (a == short || a == long) && i+1 < len(args) {
			return args[i+1]
		}
	}
	return ""
}

// assignments reads lines KEY=value or KEY="value" of a shell fragment.
func assignments(text string) map[string]string {
	out := map[string]string{}
	for line := range strings.Lines(text) {
		k, v, ok := strings.Cut(strings.TrimSpace(line), "=")
		if !ok || strings.HasPrefix(k, "#") {
			continue
		}
		out[strings.TrimSpace(strings.TrimPrefix(k, "export "))] = strings.Trim(strings.TrimSpace(v), `"'`)
	}
	return out
}

// tuned applies its profile at start and to devices that appear; profiles are in
// /etc/tuned/<name> before /usr/lib/tuned[/profiles]/<name> (tuned.conf(5)).
func (o *owners) tuned() {
	active, err := readText(o.FS, "/etc/tuned/active_profile")
	if err != nil || active == "" || o.running("tuned") == "" {
		return
	}
	var knobs []knob.Kind
	sections := map[string]bool{}
	seen := map[string]bool{}
	var read func(name string)
	read = func(name string) {
		if seen[name] || len(seen) > 16 {
			return
		}
		seen[name] = true
		var text []byte
		for _, dir := range []string{"/etc/tuned", "/etc/tuned/profiles", "/usr/lib/tuned", "/usr/lib/tuned/profiles"} {
			if b, err := o.FS.ReadFile(path.Join(dir, name, "tuned.conf")); err == nil {
				text = b
				break
			}
		}
		for _, e := range ini(string(text)) {
			switch {
			case e.section == "main" && e.key == "include":
				for p := range strings.FieldsFuncSeq(e.value, func(r rune) bool { return r == ',' || r == ' ' }) {
					read(strings.TrimPrefix(p, "-"))
				}
			default:
				if k := tunedKnobs(e); len(k) > 0 {
					knobs = append(knobs, k...)
					sections[e.section] = true
				}
			}
		}
	}
	for p := range strings.FieldsSeq(active) {
		read(p)
	}
	if len(knobs) == 0 {
		return
	}
	settle := []string{"/etc/tuned/rxsteer/tuned.conf: [main]", "/etc/tuned/rxsteer/tuned.conf: include=" + active}
	for _, s := range slices.Sorted(maps.Keys(sections)) {
		line := "enabled=false"
		if s == "scheduler" {
			line = "default_irq_smp_affinity=ignore"
		}
		settle = append(settle, "/etc/tuned/rxsteer/tuned.conf: ["+s+"]", "/etc/tuned/rxsteer/tuned.conf: "+line)
	}
	settle = append(settle, "tuned-adm profile rxsteer")
	o.add(knob.Owner{Name: "tuned", Knobs: knobs, Detail: o.running("tuned") + ", profile " + active, Settle: settle})
}

// tunedKnobs tells what a line of a profile writes.
func tunedKnobs(e iniLine) []knob.Kind {
	switch e.section {
	case "net":
		return map[string][]knob.Kind{"coalesce": {knob.Coalesce}, "channels": {knob.Channels}, "ring": {knob.Rings}, "features": {knob.Features}, "pause": {knob.Pause}}[e.key]
	case "scheduler":
		if e.key == "isolated_cores" || e.key == "default_irq_smp_affinity" && e.value != "ignore" {
			return []knob.Kind{knob.IRQAffinity}
		}
	case "irq":
		if e.key == "affinity" {
			return []knob.Kind{knob.IRQAffinity}
		}
	case "sysctl":
		if k, ok := sysctlKnobs[e.key]; ok {
			return []knob.Kind{k}
		}
	}
	return nil
}

var sysctlKnobs = map[string]knob.Kind{
	"net.core.rps_sock_flow_entries": knob.RPSSockFlowEntries, "net.core.rps_default_mask": knob.RPSDefaultMask,
	"net.core.netdev_budget": knob.NetdevBudget, "net.core.netdev_budget_usecs": knob.NetdevBudgetUsecs,
	"net.core.netdev_max_backlog": knob.NetdevMaxBacklog, "net.core.dev_weight": knob.DevWeight,
	"net.core.busy_poll": knob.BusyPoll, "net.core.busy_read": knob.BusyRead,
}

// iniLine is one assignment.
type iniLine struct{ section, key, value string }

// ini reads the format of systemd, tuned and NetworkManager files.
func ini(text string) []iniLine {
	var out []iniLine
	section := ""
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		switch {
		case line == "" || line[0] == '#' || line[0] == ';':
		case line[0] == '[' && line[len(line)-1] == ']':
			section = line[1 : len(line)-1]
		default:
			if k, v, ok := strings.Cut(line, "="); ok {
				out = append(out, iniLine{section, strings.TrimSpace(k), strings.TrimSpace(v)})
			}
		}
	}
	return out
}

// linkFiles: systemd-udevd applies the first .link file that matches a device
// whenever the device appears; files of one name in an earlier folder win
// (systemd.link(5)).
func (o *owners) linkFiles() {
	files := o.overlay([]string{"/etc/systemd/network", "/run/systemd/network", "/usr/local/lib/systemd/network", "/usr/lib/systemd/network", "/lib/systemd/network"}, ".link")
	for _, n := range o.NICs {
		for _, f := range files {
			lines := ini(f.text)
			if !linkMatches(lines, n) {
				continue
			}
			var knobs []knob.Kind
			var keys []string
			for _, e := range lines {
				if k := linkKnob(e.key); e.section == "Link" && k != "" {
					knobs = append(knobs, k)
					keys = append(keys, e.key+"="+e.value)
				}
			}
			if len(knobs) > 0 {
				var settle []string
				for _, k := range keys {
					key, _, _ := strings.Cut(k, "=")
					settle = append(settle, fmt.Sprintf("/etc/systemd/network/%s: remove %s=", path.Base(f.path), key))
				}
				o.add(knob.Owner{Name: "systemd .link", Device: n.Name, Knobs: knobs, Detail: f.path + ": " + strings.Join(keys, " "), Settle: settle})
			}
			break // the first that matches is the only one applied
		}
	}
}

// file is a configuration file.
type file struct{ path, text string }

// overlay reads files of several folders: one name counts once, from the first folder
// that has it, with its drop-ins; sorted by name. An empty file masks.
func (o *owners) overlay(dirs []string, suffix string) []file {
	byName := map[string]file{}
	for _, d := range dirs {
		list, err := o.FS.ReadDir(d)
		if err != nil {
			continue
		}
		for _, e := range list {
			name := e.Name()
			if base, ok := strings.CutSuffix(name, ".d"); ok && strings.HasSuffix(base, suffix) {
				continue
			}
			if _, done := byName[name]; done || !strings.HasSuffix(name, suffix) {
				continue
			}
			b, err := o.FS.ReadFile(path.Join(d, name))
			if err != nil {
				continue
			}
			byName[name] = file{path.Join(d, name), string(b) + "\n" + o.dropIns(dirs, name)}
		}
	}
	var out []file
	for _, name := range slices.Sorted(maps.Keys(byName)) {
		if strings.TrimSpace(byName[name].text) != "" {
			out = append(out, byName[name])
		}
	}
	return out
}

func (o *owners) dropIns(dirs []string, name string) string {
	var text strings.Builder
	for _, d := range dirs {
		list, err := o.FS.ReadDir(path.Join(d, name+".d"))
		if err != nil {
			continue
		}
		for _, e := range list {
			if b, err := o.FS.ReadFile(path.Join(d, name+".d", e.Name())); err == nil && strings.HasSuffix(e.Name(), ".conf") {
				text.Write(b)
				text.WriteByte('\n')
			}
		}
	}
	return text.String()
}

// linkMatches evaluates the [Match] lines that the inventory can tell; others
// (Path=, Property=, Host=) are taken as matching, so that an owner is not missed.
// No [Match] line at all matches nothing.
func linkMatches(lines []iniLine, n NIC) bool {
	any := false
	for _, e := range lines {
		if e.section != "Match" {
			continue
		}
		any = true
		value := ""
		switch e.key {
		case "OriginalName":
			value = n.Name
		case "Driver":
			value = n.Driver
		case "MACAddress", "PermanentMACAddress":
			value = strings.ToLower(n.MAC)
		default:
			continue
		}
		words := strings.Fields(e.value)
		invert := len(words) > 0 && strings.HasPrefix(words[0], "!")
		hit := slices.ContainsFunc(words, func(w string) bool {
			ok, err := path.Match(strings.ToLower(strings.TrimPrefix(w, "!")), strings.ToLower(value))
			return err == nil && ok
		})
		if hit == invert {
			return false
		}
	}
	return any
}

// linkKnob tells which setting a key of [Link] writes, "" none.
func linkKnob(key string) knob.Kind {
	switch {
	case strings.HasSuffix(key, "Channels"):
		return knob.Channels
	case strings.HasSuffix(key, "BufferSize"):
		return knob.Rings
	case strings.Contains(key, "Coalesce") || strings.HasPrefix(key, "CoalescePacketRate"):
		return knob.Coalesce
	case strings.HasSuffix(key, "Offload") || strings.Contains(key, "SegmentationOffload") || key == "NTupleFilter" || strings.HasSuffix(key, "VLANCTAGFilter"):
		return knob.Features
	case key == "RxFlowControl" || key == "TxFlowControl" || key == "AutoNegotiationFlowControl":
		return knob.Pause
	case key == "MTUBytes":
		return knob.MTU
	case key == "ReceivePacketSteeringCPUMask":
		return knob.RPSCPUs
	case strings.HasPrefix(key, "IRQAffinity"):
		return knob.IRQAffinity
	}
	return ""
}

// networkManager applies the [ethtool] section of a profile whenever it activates it
// (nm-settings-keyfile(5)).
func (o *owners) networkManager() {
	pid := o.running("NetworkManager")
	if pid == "" {
		return
	}
	for _, f := range o.overlay([]string{"/run/NetworkManager/system-connections", "/etc/NetworkManager/system-connections", "/usr/lib/NetworkManager/system-connections"}, ".nmconnection") {
		device := ""
		var knobs []knob.Kind
		var keys []string
		for _, e := range ini(f.text) {
			if e.section == "connection" && e.key == "interface-name" {
				device = e.value
			}
			if e.section != "ethtool" {
				continue
			}
			kind, _, _ := strings.Cut(e.key, "-")
			if k, ok := map[string]knob.Kind{"feature": knob.Features, "coalesce": knob.Coalesce, "ring": knob.Rings, "pause": knob.Pause, "channels": knob.Channels, "fec": knob.FEC}[kind]; ok {
				knobs = append(knobs, k)
				keys = append(keys, e.key)
			}
		}
		if len(knobs) == 0 {
			continue
		}
		id := strings.TrimSuffix(path.Base(f.path), ".nmconnection")
		var settle []string
		for _, k := range keys {
			settle = append(settle, fmt.Sprintf("nmcli connection modify %s ethtool.%s ''", id, k))
		}
		o.add(knob.Owner{Name: "NetworkManager", Device: device, Knobs: knobs, Detail: pid + ", " + f.path + ": " + strings.Join(keys, " "), Settle: settle})
	}
}

// ifcfg: ETHTOOL_OPTS of Red Hat's network-scripts and ETHTOOL_OPTIONS of SUSE's
// wicked are run at every ifup.
func (o *owners) ifcfg() {
	for _, dir := range []string{"/etc/sysconfig/network-scripts", "/etc/sysconfig/network"} {
		list, err := o.FS.ReadDir(dir)
		if err != nil {
			continue
		}
		for _, e := range list {
			name, ok := strings.CutPrefix(e.Name(), "ifcfg-")
			if !ok {
				continue
			}
			p := path.Join(dir, e.Name())
			b, err := o.FS.ReadFile(p)
			if err != nil {
				continue
			}
			env := assignments(string(b))
			if env["DEVICE"] != "" {
				name = env["DEVICE"]
			}
			for _, k := range slices.Sorted(maps.Keys(env)) {
				if !strings.HasPrefix(k, "ETHTOOL_OPT") {
					continue
				}
				if knobs := ethtoolKnobs(env[k]); len(knobs) > 0 {
					o.add(knob.Owner{Name: "ifcfg", Device: name, Knobs: knobs, Detail: p + ": " + k + "=" + env[k], Settle: []string{p + ": remove " + k}})
				}
			}
		}
	}
}

// ethtoolKnobs tells what an ethtool command line writes.
func ethtoolKnobs(line string) []knob.Kind {
	var out []knob.Kind
	for w := range strings.FieldsSeq(line) {
		if k, ok := map[string]knob.Kind{
			"-L": knob.Channels, "--set-channels": knob.Channels, "-G": knob.Rings, "--set-ring": knob.Rings,
			"-C": knob.Coalesce, "--coalesce": knob.Coalesce, "-K": knob.Features, "--features": knob.Features, "--offload": knob.Features,
			"-X": knob.RSSTable, "--rxfh": knob.RSSTable, "--set-rxfh-indir": knob.RSSTable, "-A": knob.Pause, "--pause": knob.Pause,
			"-N": knob.RSSHashFields, "-U": knob.NtupleRule, "--config-nfc": knob.RSSHashFields, "--config-ntuple": knob.NtupleRule,
			"--set-priv-flags": knob.PrivateFlags, "--set-fec": knob.FEC,
		}[w]; ok {
			out = append(out, k)
		}
	}
	return out
}

// ifupdown: hooks and ethtool's own options in /etc/network/interfaces run at every ifup.
func (o *owners) ifupdown() {
	files := []string{"/etc/network/interfaces"}
	if list, err := o.FS.ReadDir("/etc/network/interfaces.d"); err == nil {
		for _, e := range list {
			files = append(files, path.Join("/etc/network/interfaces.d", e.Name()))
		}
	}
	for _, p := range files {
		b, err := o.FS.ReadFile(p)
		if err != nil {
			continue
		}
		device := ""
		for line := range strings.Lines(string(b)) {
			f := strings.Fields(line)
			if len(f) < 2 || strings.HasPrefix(f[0], "#") {
				continue
			}
			var knobs []knob.Kind
			switch {
			case f[0] == "iface":
				device = f[1]
			case strings.HasPrefix(f[0], "offload-"): // ethtool.deb's if-up.d/ethtool
				knobs = []knob.Kind{knob.Features}
			case strings.HasPrefix(f[0], "hardware-dma-ring-"):
				knobs = []knob.Kind{knob.Rings}
			case strings.HasPrefix(f[0], "hardware-irq-coalesce-"):
				knobs = []knob.Kind{knob.Coalesce}
			case slices.Contains([]string{"up", "pre-up", "post-up"}, f[0]):
				knobs = commandKnobs(line)
			}
			if len(knobs) > 0 {
				o.add(knob.Owner{Name: "ifupdown", Device: device, Knobs: knobs, Detail: p + ": " + strings.Join(f, " "), Settle: []string{p + ": remove " + strings.Join(f, " ")}})
			}
		}
	}
}

// commandKnobs tells what a shell command or udev rule writes, by the names of tools and files in it.
func commandKnobs(line string) []knob.Kind {
	var out []knob.Kind
	if strings.Contains(line, "ethtool") {
		out = ethtoolKnobs(strings.NewReplacer(`"`, " ", "'", " ", ",", " ", ";", " ").Replace(line))
	}
	for _, w := range []struct {
		word string
		knob knob.Kind
	}{
		{"rps_cpus", knob.RPSCPUs}, {"rps_flow_cnt", knob.RPSFlowCnt}, {"xps_cpus", knob.XPSCPUs}, {"xps_rxqs", knob.XPSRXQs},
		{"smp_affinity", knob.IRQAffinity}, {"napi_defer_hard_irqs", knob.DeferHardIRQs}, {"gro_flush_timeout", knob.GROFlushTimeout},
		{"set_multiqueue", knob.IRQAffinity}, {"set_irq_affinity", knob.IRQAffinity}, {"ATTR{mtu}", knob.MTU},
	} {
		if strings.Contains(line, w.word) {
			out = append(out, w.knob)
		}
	}
	return out
}

// udevRules run when a device appears: those that name receive settings.
func (o *owners) udevRules() {
	for _, f := range o.overlay([]string{"/etc/udev/rules.d", "/run/udev/rules.d", "/usr/local/lib/udev/rules.d", "/usr/lib/udev/rules.d", "/lib/udev/rules.d"}, ".rules") {
		var knobs []knob.Kind
		first := ""
		for line := range strings.Lines(strings.ReplaceAll(f.text, "\\\n", " ")) {
			line = strings.TrimSpace(line)
			if strings.HasPrefix(line, "#") {
				continue
			}
			if k := commandKnobs(line); len(k) > 0 {
				knobs = append(knobs, k...)
				if first == "" {
					first = line
				}
			}
		}
		if len(knobs) > 0 {
			o.add(knob.Owner{Name: ruleOwner(path.Base(f.path)), Knobs: knobs, Detail: f.path + ": " + first, Settle: []string{"/etc/udev/rules.d/" + path.Base(f.path) + ": an empty file masks it"}})
		}
	}
}

// ruleOwner names whose rules a file holds.
func ruleOwner(name string) string {
	for _, w := range []struct{ word, owner string }{
		{"azure", "azure udev rules"}, {"walinux", "azure udev rules"}, {"waagent", "azure udev rules"}, {"ec2", "ec2 udev rules"}, {"amazon", "ec2 udev rules"}, {"gce", "google udev rules"}, {"google", "google udev rules"},
	} {
		if strings.Contains(strings.ToLower(name), w.word) {
			return w.owner
		}
	}
	return "udev"
}

// cloud finds google_set_multiqueue, which sets interrupt affinity, channels and XPS
// at boot (GoogleCloudPlatform/guest-configs) unless instance_configs.cfg says no. What
// other providers' agents set they set by udev rules: see udevRules.
func (o *owners) cloud() {
	const script, config = "/usr/bin/google_set_multiqueue", "/etc/default/instance_configs.cfg"
	if _, err := o.FS.ReadFile(script); err != nil {
		return
	}
	if b, err := o.FS.ReadFile(config); err == nil {
		for _, e := range ini(string(b)) {
			if e.section == "InstanceSetup" && e.key == "set_multiqueue" && e.value == "false" {
				return
			}
		}
	}
	o.add(knob.Owner{
		Name: "google guest agent", Knobs: []knob.Kind{knob.IRQAffinity, knob.XPSCPUs, knob.Channels}, Detail: script,
		Settle: []string{config + ".template: [InstanceSetup]", config + ".template: set_multiqueue = false"},
	})
}

// xdp: queues with an AF_XDP socket, and programs that see packets before the stack.
func (o *owners) xdp() {
	names := map[int]string{}
	queues := map[string][]int{}
	for _, n := range o.NICs {
		names[n.IfIndex] = n.Name
		for _, q := range n.Queues {
			if q.XSK && q.RX != None {
				queues[n.Name] = append(queues[n.Name], q.RX)
			}
		}
	}
	if o.Attachments != nil {
		if sockets, err := o.Attachments.Sockets(); err == nil {
			for _, s := range sockets {
				if n := names[s.IfIndex]; n != "" {
					queues[n] = append(queues[n], s.Queue)
				}
			}
		}
		if programs, err := o.Attachments.Programs(); err == nil {
			for _, p := range programs {
				if n := names[p.IfIndex]; n != "" {
					o.add(knob.Owner{
						Name: "XDP program", Device: n, Knobs: []knob.Kind{knob.Channels, knob.MTU, knob.Features},
						Detail: fmt.Sprintf("program %d in %s mode", p.Program, p.Mode),
						Settle: []string{"ip link set dev " + n + " xdp off"},
					})
				}
			}
		}
	}
	for _, n := range slices.Sorted(maps.Keys(queues)) {
		o.add(knob.Owner{
			Name: "AF_XDP", Device: n, Knobs: []knob.Kind{knob.Channels, knob.Rings, knob.RSSTable},
			Detail: "sockets on rx queues " + cpuset.Of(queues[n]...).String(),
			Settle: []string{"stop the program that holds the sockets (ss --xdp -p)"},
		})
	}
}

// contexts: a table of its own sends chosen flows to chosen queues.
func (o *owners) contexts() {
	if o.RSS == nil {
		return
	}
	for _, n := range o.NICs {
		if n.Kind != Physical {
			continue
		}
		all, err := o.RSS.RSS(n.Name)
		if err != nil {
			continue
		}
		for _, r := range all {
			if r.Context == 0 {
				continue
			}
			o.add(knob.Owner{
				Name: "RSS context", Device: n.Name, Knobs: []knob.Kind{knob.Channels, knob.RSSTable, knob.NtupleRule},
				Detail: fmt.Sprintf("context %d uses queues %s", r.Context, cpuset.Of(r.Table...)),
				Settle: []string{fmt.Sprintf("ethtool -X %s context %d delete", n.Name, r.Context)},
			})
		}
	}
}

// rxsteer: another one that writes. Reading commands are no owners.
func (o *owners) rxsteer() {
	for _, p := range o.processes["rxsteer"] {
		if len(p.args) > 1 && slices.Contains([]string{"agent", "apply", "trial", "persist", "rollback"}, p.args[1]) {
			o.add(knob.Owner{Name: "rxsteer", Detail: fmt.Sprintf("pid %d, %s", p.pid, p.args[1]), Settle: []string{"stop the other rxsteer: systemctl stop rxsteer"}})
		}
	}
}

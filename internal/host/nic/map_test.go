package nic

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rxsteer/rxsteer/internal/ethtool"
	"github.com/rxsteer/rxsteer/internal/host/hosttest"
	"github.com/rxsteer/rxsteer/internal/netdev"
)

// port is one interface of a map test: what sysfs and netlink would say of it.
type port struct {
	name     string
	driver   string
	path     string // bus device below /sys/devices, "" virtual; subsystems from its shape
	msi      string // IRQs of msi_irqs of the last PCI device in path ("30-33"), "empty" an empty folder
	irq      string // irq file of that device
	rx, tx   int    // queue folders; 0 means 1
	channels ethtool.Group
	down     bool
	mac      string
	devtype  string
	lower    []string
	files    map[string]string // further files of the bus device
}

type mapCase struct {
	name       string
	interrupts string
	ports      []port
	queues     []netdev.Queue
	napis      []netdev.NAPI
	affinity   map[int]string // effective_affinity_list by IRQ
	actions    map[int]string // folders below /proc/irq, for hosts without /proc/interrupts
	// want is one line per interface (see summary), problems and notes below it
	// as substrings: "! text" is a problem, "~ text" a note.
	want string
}

// build makes the file tree of a case.
func (c mapCase) build(t *testing.T) Sources {
	files := map[string]string{"/proc/interrupts": c.interrupts, "/proc/self/ns/net": "-> net:[4026531840]", "/sys/class/net/bonding_masters": "\n", "/proc/irq/default_smp_affinity": "f\n"}
	channels := fakeChannels{}
	for i, p := range c.ports {
		dir := "/sys/devices/virtual/net/" + p.name
		if p.path != "" {
			at := "/sys/devices"
			for _, s := range strings.Split(p.path, "/") {
				at += "/" + s
				if sub := subsystemOf(s); sub != "" {
					files[at+"/subsystem"] = "-> " + strings.Repeat("../", strings.Count(at, "/")) + "sys/bus/" + sub
				}
				if isPCI(s) || subsystemOf(s) == "platform" && !strings.Contains(p.path, "usb") {
					if p.msi == "empty" {
						files[at+"/msi_irqs/"] = ""
					}
					for _, n := range numbers(p.msi) {
						files[fmt.Sprintf("%s/msi_irqs/%d", at, n)] = "msix\n"
					}
					if p.irq != "" {
						files[at+"/irq"] = p.irq + "\n"
					}
				}
			}
			files[at+"/driver"] = "-> " + strings.Repeat("../", strings.Count(at, "/")) + "sys/bus/x/drivers/" + p.driver
			for name, text := range p.files {
				files[at+"/"+name] = text
			}
			dir = at + "/net/" + p.name
			files[dir+"/device"] = "-> ../../../" + filepath.Base(at)
		}
		files["/sys/class/net/"+p.name] = "-> ../../" + strings.TrimPrefix(dir, "/sys/")
		flags := "0x1003"
		if p.down {
			flags = "0x1002"
		}
		files[dir+"/flags"], files[dir+"/type"], files[dir+"/mtu"] = flags+"\n", "1\n", "1500\n"
		files[dir+"/ifindex"] = strconv.Itoa(i+2) + "\n"
		files[dir+"/address"] = p.mac + "\n"
		files[dir+"/uevent"] = "INTERFACE=" + p.name + "\n"
		if p.devtype != "" {
			files[dir+"/uevent"] = "DEVTYPE=" + p.devtype + "\nINTERFACE=" + p.name + "\n"
		}
		for _, l := range p.lower {
			files[dir+"/lower_"+l] = "-> ../" + l
		}
		for q := range max(p.rx, 1) {
			files[fmt.Sprintf("%s/queues/rx-%d/rps_cpus", dir, q)] = "0\n"
		}
		for q := range max(p.tx, 1) {
			files[fmt.Sprintf("%s/queues/tx-%d/xps_cpus", dir, q)] = "0\n"
		}
		if p.channels != nil {
			channels[p.name] = p.channels
		}
	}
	if c.interrupts == "" {
		delete(files, "/proc/interrupts")
	}
	for irq, name := range c.actions {
		files[fmt.Sprintf("/proc/irq/%d/%s/", irq, name)] = ""
	}
	for irq, cpus := range c.affinity {
		files[fmt.Sprintf("/proc/irq/%d/effective_affinity_list", irq)] = cpus + "\n"
	}
	src := Sources{FS: hosttest.Static(t, files), Ethtool: channels}
	if c.queues != nil {
		src.Netdev = fakeNetdev{c.queues, c.napis}
	}
	return src
}

func isPCI(s string) bool { return strings.Count(s, ":") == 2 && strings.Contains(s, ".") }

func subsystemOf(s string) string {
	switch {
	case strings.HasPrefix(s, "pci") || s == "platform" || s == "soc":
		return ""
	case isPCI(s):
		return "pci"
	case strings.HasPrefix(s, "virtio"):
		return "virtio"
	case strings.HasPrefix(s, "usb") || strings.Contains(s, "-") && s[0] >= '0' && s[0] <= '9' && len(s) < 12:
		return "usb"
	case strings.HasPrefix(s, "vif-"):
		return "xen"
	case strings.HasPrefix(s, "0.0."):
		return "ccwgroup"
	case len(s) == 36:
		return "vmbus"
	default:
		return "platform"
	}
}

// numbers reads "30-33,40".
func numbers(s string) []int {
	var out []int
	for _, part := range strings.Split(s, ",") {
		a, b, ok := strings.Cut(part, "-")
		x, err := strconv.Atoi(a)
		if err != nil {
			continue
		}
		y := x
		if ok {
			y, _ = strconv.Atoi(b)
		}
		for ; x <= y; x++ {
			out = append(out, x)
		}
	}
	return out
}

type fakeChannels map[string]ethtool.Group

func (f fakeChannels) Driver(string) (ethtool.Driver, error) {
	return ethtool.Driver{}, ethtool.ErrNotSupported
}

func (f fakeChannels) Channels(dev string) (now, limit ethtool.Group, err error) {
	if g := f[dev]; g != nil {
		return g, g, nil
	}
	return nil, nil, ethtool.ErrNotSupported
}

type fakeNetdev struct {
	queues []netdev.Queue
	napis  []netdev.NAPI
}

func (f fakeNetdev) Queues(ifindex int) (out []netdev.Queue, err error) {
	for _, q := range f.queues {
		if q.IfIndex == ifindex {
			out = append(out, q)
		}
	}
	return out, nil
}

func (f fakeNetdev) NAPIs(ifindex int) (out []netdev.NAPI, err error) {
	for _, n := range f.napis {
		if n.IfIndex == ifindex {
			out = append(out, n)
		}
	}
	return out, nil
}

// summary is a map in one line: runs of queues whose IRQs run along,
// "eth0: rx 0-3 tx 0-3 irq 30-33 msi; control 29".
func summary(n NIC) string {
	type run struct {
		rx, tx, irq, step int
		count             int
		by                Source
	}
	var runs []run
	for _, q := range n.Queues {
		if i := len(runs) - 1; i >= 0 {
			r := &runs[i]
			next := func(first, now int) bool {
				return first == None && now == None || first != None && now == first+r.count
			}
			step := r.step
			if r.count == 1 && r.irq != None && q.IRQ != None {
				step = q.IRQ - r.irq
			}
			sameIRQ := r.irq == None && q.IRQ == None || r.irq != None && q.IRQ == r.irq+step*r.count && step >= 0 && step <= 2
			if next(r.rx, q.RX) && next(r.tx, q.TX) && sameIRQ && r.by == q.KnownBy {
				r.count++
				r.step = step
				continue
			}
		}
		runs = append(runs, run{q.RX, q.TX, q.IRQ, 1, 1, q.KnownBy})
	}
	span := func(first, step, count int) string {
		s := strconv.Itoa(first)
		if count > 1 && step > 0 {
			s += "-" + strconv.Itoa(first+step*(count-1))
			if step > 1 {
				s += "/" + strconv.Itoa(step)
			}
		}
		return s
	}
	var parts []string
	for _, r := range runs {
		s := ""
		if r.rx != None {
			s += "rx " + span(r.rx, 1, r.count) + " "
		}
		if r.tx != None {
			s += "tx " + span(r.tx, 1, r.count) + " "
		}
		switch {
		case r.irq != None:
			s += "irq " + span(r.irq, r.step, r.count)
		default:
			s += "irq ?"
		}
		if r.by != "" {
			s += " " + string(r.by)
		}
		parts = append(parts, s)
	}
	if len(n.Control) > 0 {
		var c []string
		for _, v := range n.Control {
			c = append(c, strconv.Itoa(v.IRQ))
		}
		parts = append(parts, "control "+strings.Join(c, ","))
	}
	return n.Name + ": " + strings.Join(parts, "; ")
}

func (c mapCase) run(t *testing.T) {
	t.Helper()
	all, err := Inventory(t.Context(), c.build(t))
	if err != nil {
		t.Fatal(err)
	}
	var got, wantLines []string
	for _, n := range all {
		got = append(got, summary(n))
	}
	var wantProblems, wantNotes []string
	for line := range strings.Lines(c.want) {
		line = strings.TrimSpace(line)
		switch {
		case line == "":
		case strings.HasPrefix(line, "! "):
			wantProblems = append(wantProblems, line[2:])
		case strings.HasPrefix(line, "~ "):
			wantNotes = append(wantNotes, line[2:])
		default:
			wantLines = append(wantLines, line)
		}
	}
	t.Log("\n" + strings.Join(got, "\n"))
	if d := cmp.Diff(wantLines, got); d != "" {
		t.Errorf("map (-want +got):\n%s", d)
	}
	var problems, notes []string
	for _, n := range all {
		problems = append(problems, n.Problems...)
		notes = append(notes, n.Notes...)
	}
	match(t, "problem", wantProblems, problems, true)
	match(t, "note", wantNotes, notes, false)
}

// match wants each text within one of the sentences and, if all, none left over.
func match(t *testing.T, what string, want, got []string, all bool) {
	t.Helper()
	used := make([]bool, len(got))
	for _, w := range want {
		i := slices.IndexFunc(got, func(g string) bool { return strings.Contains(g, w) })
		if i < 0 {
			t.Errorf("no %s with %q in %q", what, w, got)
			continue
		}
		for j, g := range got {
			used[j] = used[j] || strings.Contains(g, w)
		}
	}
	for i, g := range got {
		if all && !used[i] {
			t.Errorf("unexpected %s: %s", what, g)
		}
	}
}

// caseFile reads a file of ../shared/cases, outside the repository.
func caseFile(t *testing.T, name string) string {
	t.Helper()
	root := filepath.Join("..", "..", "..", "..", "shared", "cases", "inputs")
	if _, err := os.Stat(root); err != nil {
		t.Skip("needs ../shared/cases")
	}
	b, err := os.ReadFile(filepath.Join(root, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

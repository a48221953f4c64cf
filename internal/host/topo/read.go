package topo

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/rxsteer/rxsteer/internal/cpuset"
	"github.com/rxsteer/rxsteer/internal/host"
)

const (
	cpuDir    = "/sys/devices/system/cpu"
	nodeDir   = "/sys/devices/system/node"
	cgroupDir = "/sys/fs/cgroup"
	cpusetDir = cgroupDir + "/cpuset" // of cgroup v1
)

// Read reads the host's topology. Parts the host does not tell (containers, arm64 without
// cache information, s390) are None and named in Unmeasured; the error is non-nil only when
// not even the online CPUs can be told.
func Read(f host.FS) (*Topology, error) {
	r := reader{fs: f, t: &Topology{}}
	if err := r.sets(); err != nil {
		return nil, err
	}
	r.nodes()
	r.cores()
	r.caches()
	r.capacities()
	return r.t, nil
}

type reader struct {
	fs host.FS
	t  *Topology
}

func (r *reader) text(elem ...string) (string, error) {
	b, err := r.fs.ReadFile(path.Join(elem...))
	return strings.TrimSpace(string(b)), err
}

func (r *reader) list(elem ...string) (cpuset.Set, error) {
	s, err := r.text(elem...)
	if err != nil {
		return cpuset.Set{}, err
	}
	set, err := cpuset.ParseList(s)
	if err != nil {
		return set, fmt.Errorf("read %s: %w", path.Join(elem...), err)
	}
	return set, nil
}

func (r *reader) number(elem ...string) (int, error) {
	s, err := r.text(elem...)
	if err != nil {
		return 0, err
	}
	n, err := strconv.Atoi(s)
	if err != nil {
		return 0, fmt.Errorf("read %s: %w", path.Join(elem...), err)
	}
	return n, nil
}

func (r *reader) unmeasured(format string, args ...any) {
	r.t.Unmeasured = append(r.t.Unmeasured, fmt.Sprintf(format, args...))
}

func cpu(id int) string { return "cpu" + strconv.Itoa(id) }

// sets reads which CPUs there are, are online and are kept free.
func (r *reader) sets() error {
	t := r.t
	online, err := r.list(cpuDir, "online")
	if err != nil || online.IsEmpty() {
		var err2 error
		if online, err2 = r.cpuDirs(); err2 != nil || online.IsEmpty() {
			return fmt.Errorf("read topology: %w", errors.Join(err, err2))
		}
		r.unmeasured("which CPUs are online: %v", err)
	}
	t.Online = online
	if t.Possible, err = r.list(cpuDir, "possible"); err != nil {
		r.unmeasured("possible CPUs: %v", err)
	}
	present, err := r.list(cpuDir, "present")
	if err != nil {
		present = t.Possible
	}
	present = present.Union(online)
	t.Possible = t.Possible.Union(present)

	cmdline, _ := r.text("/proc/cmdline") // only a fallback
	boot := ParseCmdline(cmdline, t.Possible.Last()+1)
	if t.Isolated, err = r.list(cpuDir, "isolated"); err != nil {
		if t.Isolated = boot.Isolated; cmdline == "" {
			r.unmeasured("isolated CPUs: %v", err)
		}
	}
	// The file is there only on kernels built with CONFIG_NO_HZ_FULL.
	if t.NoHzFull, err = r.list(cpuDir, "nohz_full"); err != nil {
		t.NoHzFull = boot.NoHzFull
	}
	t.Partitions = r.partitions().Intersect(t.Possible)
	t.fill(present)
	return nil
}

// cpuDirs are the CPUs that have a directory.
func (r *reader) cpuDirs() (cpuset.Set, error) {
	entries, err := r.fs.ReadDir(cpuDir)
	if err != nil {
		return cpuset.Set{}, err
	}
	return cpuset.Collect(func(yield func(int) bool) {
		for _, e := range entries {
			if n, ok := numbered(e.Name(), "cpu"); ok && !yield(n) {
				return
			}
		}
	}), nil
}

// numbered takes the number off "cpu12"; it stays below cpuset.Limit.
func numbered(name, prefix string) (int, bool) {
	digits, ok := strings.CutPrefix(name, prefix)
	if !ok || digits == "" || len(digits) > 5 || strings.Trim(digits, "0123456789") != "" {
		return 0, false
	}
	n, err := strconv.Atoi(digits)
	return n, err == nil && n < cpuset.Limit
}

// Bounds of the search for cpuset partitions.
const (
	maxDepth   = 4
	maxCgroups = 1024
)

// partitions are the CPUs of isolated cpuset partitions of cgroup v2
// (Documentation/admin-guide/cgroup-v2.rst, cpuset.cpus.partition): the root's
// cpuset.cpus.isolated since 6.8, else what a walk finds. Where cpuset is a hierarchy of
// cgroup v1 they are what v1 has instead.
func (r *reader) partitions() cpuset.Set {
	// The real root alone has memory_pressure_enabled (kernel/cgroup/cpuset-v1.c); a container is shown its own set there.
	if _, err := r.text(cpusetDir, "cpuset.memory_pressure_enabled"); err == nil {
		if s, err := r.text(cpusetDir, "cpuset.sched_load_balance"); err != nil || s != "0" {
			return cpuset.Set{} // the root's set, all CPUs, is one domain
		}
		return r.unbalanced()
	}
	if s, err := r.list(cgroupDir, "cpuset.cpus.isolated"); err == nil {
		return s
	}
	if _, err := r.fs.ReadFile(cgroupDir + "/cgroup.controllers"); err != nil {
		return cpuset.Set{} // no cpuset, or none visible
	}
	var found cpuset.Set
	r.walk(cgroupDir, func(sub string) {
		// "isolated invalid (reason)" isolates nothing.
		if s, err := r.text(sub, "cpuset.cpus.partition"); err == nil && s == "isolated" {
			if s, err := r.list(sub, "cpuset.cpus.effective"); err == nil {
				found = found.Union(s)
			}
		}
	})
	return found
}

// unbalanced are the CPUs that are in no cpuset of cgroup v1 whose sched_load_balance is on: the scheduler moves no task to
// them (Documentation/admin-guide/cgroup-v1/cpusets.rst, 1.7).
func (r *reader) unbalanced() cpuset.Set {
	var balanced cpuset.Set
	r.walk(cpusetDir, func(sub string) {
		if s, err := r.text(sub, "cpuset.sched_load_balance"); err != nil || s == "0" {
			return
		}
		s, err := r.list(sub, "cpuset.effective_cpus")
		if err != nil {
			s, err = r.list(sub, "cpuset.cpus")
		}
		if err == nil {
			balanced = balanced.Union(s)
		}
	})
	if balanced.IsEmpty() {
		return cpuset.Set{} // no CPU differs from another
	}
	return r.t.Online.Minus(balanced)
}

// walk calls look for each cgroup below dir, down to maxDepth.
func (r *reader) walk(dir string, look func(dir string)) {
	left := maxCgroups
	var walk func(dir string, depth int)
	walk = func(dir string, depth int) {
		entries, err := r.fs.ReadDir(dir)
		if err != nil {
			return
		}
		for _, e := range entries {
			if !e.IsDir() {
				continue
			}
			if left--; left < 0 {
				return
			}
			sub := path.Join(dir, e.Name())
			look(sub)
			if depth < maxDepth {
				walk(sub, depth+1)
			}
		}
	}
	walk(dir, 1)
	if left < 0 {
		r.unmeasured("isolated cpuset partitions: more than %d cgroups, not all looked at", maxCgroups)
	}
}

// at returns the CPU's slot, nil when it is not present.
func (r *reader) at(id int) *CPU {
	i, ok := slices.BinarySearchFunc(r.t.CPUs, id, func(c CPU, id int) int { return c.ID - id })
	if !ok {
		return nil
	}
	return &r.t.CPUs[i]
}

// nodes reads the memory nodes. A CPU that two nodes claim, or none, is of node None: such
// firmware tables are not to be steered by.
func (r *reader) nodes() {
	entries, err := r.fs.ReadDir(nodeDir)
	if err != nil {
		r.unmeasured("memory nodes: %v", err)
		return
	}
	t := r.t
	for _, e := range entries {
		id, ok := numbered(e.Name(), "node")
		if !ok {
			continue
		}
		cpus, err := r.list(nodeDir, e.Name(), "cpulist")
		if err != nil {
			r.unmeasured("CPUs of node %d: %v", id, err)
			continue
		}
		n := Node{ID: id, CPUs: cpus}
		if s, err := r.text(nodeDir, e.Name(), "distance"); err == nil {
			for _, w := range strings.Fields(s) {
				d, err := strconv.Atoi(w)
				if err != nil {
					n.Distance = nil
					break
				}
				n.Distance = append(n.Distance, d)
			}
		}
		t.Nodes = append(t.Nodes, n)
	}
	slices.SortFunc(t.Nodes, func(a, b Node) int { return a.ID - b.ID })
	var claimed, twice cpuset.Set
	for i := range t.Nodes {
		n := &t.Nodes[i]
		if len(n.Distance) != len(t.Nodes) {
			n.Distance = nil
		}
		twice = twice.Union(claimed.Intersect(n.CPUs))
		claimed = claimed.Union(n.CPUs)
	}
	if !twice.IsEmpty() {
		r.unmeasured("memory node of CPUs %v: more than one claims them", twice)
	}
	if lost := t.Online.Minus(claimed); !lost.IsEmpty() && len(t.Nodes) > 0 {
		r.unmeasured("memory node of CPUs %v: none claims them", lost)
	}
	for _, n := range t.Nodes {
		for id := range n.CPUs.Minus(twice).All() {
			if c := r.at(id); c != nil {
				c.Node = n.ID
			}
		}
	}
}

// cores groups SMT siblings. One CPU of each core is asked; offline CPUs have no topology folder.
func (r *reader) cores() {
	next := 0
	var why error
	for i := range r.t.CPUs {
		c := &r.t.CPUs[i]
		if !c.Online || c.Core != None {
			continue
		}
		dir := path.Join(cpuDir, cpu(c.ID), "topology")
		siblings, err := r.list(dir, "core_cpus_list") // since 5.3
		if err != nil {
			siblings, err = r.list(dir, "thread_siblings_list")
		}
		if err != nil {
			why, siblings = err, cpuset.Of(c.ID)
		}
		pkg, err := r.number(dir, "physical_package_id")
		if err != nil || pkg < 0 {
			pkg = None
		}
		for id := range siblings.Union(cpuset.Of(c.ID)).All() {
			if s := r.at(id); s != nil && s.Core == None && s.Online {
				s.Core, s.Package = next, pkg
			}
		}
		next++
	}
	if why != nil {
		r.unmeasured("SMT siblings, each CPU is taken for a core: %v", why)
	}
}

// caches groups the CPUs by their highest-level data or unified cache.
func (r *reader) caches() {
	next := 0
	var why error
	for i := range r.t.CPUs {
		c := &r.t.CPUs[i]
		if !c.Online || c.LLC != None {
			continue
		}
		shared, err := r.lastLevel(c.ID)
		if err != nil {
			why = err
			continue
		}
		for id := range shared.Union(cpuset.Of(c.ID)).All() {
			if s := r.at(id); s != nil && s.LLC == None && s.Online {
				s.LLC = next
			}
		}
		next++
	}
	if why != nil {
		r.unmeasured("last-level caches: %v", why)
	}
}

func (r *reader) lastLevel(id int) (cpuset.Set, error) {
	dir := path.Join(cpuDir, cpu(id), "cache")
	entries, err := r.fs.ReadDir(dir)
	if err != nil {
		return cpuset.Set{}, err
	}
	top, where := 0, ""
	for _, e := range entries {
		if _, ok := numbered(e.Name(), "index"); !ok {
			continue
		}
		level, err := r.number(dir, e.Name(), "level")
		if err != nil || level <= top {
			continue
		}
		if kind, err := r.text(dir, e.Name(), "type"); err == nil && kind == "Instruction" {
			continue
		}
		top, where = level, e.Name()
	}
	if where == "" {
		return cpuset.Set{}, &fs.PathError{Op: "read", Path: dir, Err: fs.ErrNotExist}
	}
	return r.list(dir, where, "shared_cpu_list")
}

// capacities reads cpu_capacity (arm64, riscv) where CPUs differ in it.
func (r *reader) capacities() {
	first := 0
	differ := false
	for i := range r.t.CPUs {
		c := &r.t.CPUs[i]
		n, err := r.number(cpuDir, cpu(c.ID), "cpu_capacity")
		if err != nil || n < 0 {
			if i == 0 {
				return // not that kind of host
			}
			continue
		}
		c.Capacity = n
		if first == 0 {
			first = n
		}
		differ = differ || n != first
	}
	if !differ {
		for i := range r.t.CPUs {
			r.t.CPUs[i].Capacity = 0
		}
	}
}

// Boot is what the kernel command line sets aside.
type Boot struct {
	Isolated cpuset.Set // isolcpus=
	NoHzFull cpuset.Set // nohz_full=
}

// ParseCmdline reads isolcpus= and nohz_full= of a kernel command line; nbits is the
// number of possible CPUs, for lists such as "4-N", 0 when not known. isolcpus=
// may begin with flags, "managed_irq,domain,4-15"; without "domain" (or no flags at
// all) it does not isolate from the scheduler (housekeeping_isolcpus_setup in kernel/sched/isolation.c).
// Lists that make no sense are taken as empty, as the kernel does.
func ParseCmdline(cmdline string, nbits int) Boot {
	var b Boot
	parse := func(s string) cpuset.Set {
		var set cpuset.Set
		var err error
		if nbits > 0 {
			set, err = cpuset.ParseListOf(s, nbits)
		} else {
			set, err = cpuset.ParseList(s)
		}
		if err != nil {
			return cpuset.Set{}
		}
		return set
	}
	for _, word := range strings.Fields(cmdline) {
		key, value, ok := strings.Cut(word, "=")
		if !ok {
			continue
		}
		switch key {
		case "isolcpus":
			domain, flags := false, false
			for {
				flag, rest, more := strings.Cut(value, ",")
				if flag != "domain" && flag != "managed_irq" && flag != "nohz" {
					break
				}
				flags, domain = true, domain || flag == "domain"
				if value = rest; !more {
					break
				}
			}
			if domain || !flags {
				b.Isolated = parse(value)
			}
		case "nohz_full":
			b.NoHzFull = parse(value)
		}
	}
	return b
}

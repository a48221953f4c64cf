package topo

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"strings"
	"syscall"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"

	"github.com/rxsteer/rxsteer/internal/cpuset"
)

// tree is a host's files by absolute path.
type tree map[string]string

func (t tree) mapFS() fstest.MapFS {
	m := fstest.MapFS{}
	for p, s := range t {
		m[strings.TrimPrefix(p, "/")] = &fstest.MapFile{Data: []byte(s)}
	}
	return m
}

// files is a read-only host.FS.
type files struct{ fstest.MapFS }

func (f files) ReadFile(p string) ([]byte, error) {
	return f.MapFS.ReadFile(strings.TrimPrefix(p, "/"))
}
func (f files) ReadDir(p string) ([]fs.DirEntry, error) {
	return f.MapFS.ReadDir(strings.TrimPrefix(p, "/"))
}
func (f files) Readlink(p string) (string, error) {
	return "", &fs.PathError{Op: "readlink", Path: p, Err: syscall.EINVAL}
}
func (f files) WriteFile(p string, _ []byte) error {
	return &fs.PathError{Op: "write", Path: p, Err: syscall.EROFS}
}

// shape is a regular host: CPU i is thread i/cores of core i mod cores, as x86 numbers them.
type shape struct {
	packages, nodesPerPackage, llcsPerNode, coresPerLLC, threads int
}

func (s shape) nodes() int { return s.packages * s.nodesPerPackage }
func (s shape) llcs() int  { return s.nodes() * s.llcsPerNode }
func (s shape) cores() int { return s.llcs() * s.coresPerLLC }
func (s shape) cpus() int  { return s.cores() * s.threads }

// spread is the CPUs of the cores first…first+n-1.
func (s shape) spread(first, n int) cpuset.Set {
	var out cpuset.Set
	for t := range s.threads {
		out = out.Union(cpuset.Range(t*s.cores()+first, t*s.cores()+first+n-1))
	}
	return out
}

func (s shape) tree() tree {
	all := cpuset.Range(0, s.cpus()-1).String() + "\n"
	t := tree{
		cpuDir + "/online": all, cpuDir + "/possible": all, cpuDir + "/present": all, cpuDir + "/isolated": "\n",
	}
	for c := range s.cpus() {
		core := c % s.cores()
		llc := core / s.coresPerLLC
		dir := fmt.Sprintf("%s/cpu%d", cpuDir, c)
		t[dir+"/topology/physical_package_id"] = fmt.Sprintln(llc / s.llcsPerNode / s.nodesPerPackage)
		t[dir+"/topology/core_cpus_list"] = s.spread(core, 1).String() + "\n"
		for i, cache := range []struct {
			level, kind string
			shared      cpuset.Set
		}{
			{"1", "Data", s.spread(core, 1)}, {"1", "Instruction", s.spread(core, 1)},
			{"3", "Unified", s.spread(llc*s.coresPerLLC, s.coresPerLLC)}, {"2", "Unified", s.spread(core, 1)},
		} {
			idx := fmt.Sprintf("%s/cache/index%d", dir, i)
			t[idx+"/level"], t[idx+"/type"], t[idx+"/shared_cpu_list"] = cache.level+"\n", cache.kind+"\n", cache.shared.String()+"\n"
		}
	}
	perNode := s.llcsPerNode * s.coresPerLLC
	for n := range s.nodes() {
		var d []string
		for m := range s.nodes() {
			d = append(d, map[bool]string{true: "10", false: "21"}[n == m])
		}
		dir := fmt.Sprintf("%s/node%d", nodeDir, n)
		t[dir+"/cpulist"] = s.spread(n*perNode, perNode).String() + "\n"
		t[dir+"/distance"] = strings.Join(d, " ") + "\n"
	}
	return t
}

func read(t *testing.T, tr tree) *Topology {
	t.Helper()
	got, err := Read(files{tr.mapFS()})
	if err != nil {
		t.Fatal(err)
	}
	return got
}

func TestReadRegularHosts(t *testing.T) {
	for _, s := range []shape{
		{1, 1, 1, 1, 2}, {1, 1, 1, 4, 1}, {2, 1, 1, 8, 2}, {1, 1, 16, 8, 2}, {2, 4, 2, 16, 2}, {8, 1, 1, 64, 4},
	} {
		t.Run(fmt.Sprintf("%d CPUs", s.cpus()), func(t *testing.T) {
			got := read(t, s.tree())
			if len(got.Unmeasured) > 0 {
				t.Errorf("unmeasured: %v", got.Unmeasured)
			}
			if len(got.CPUs) != s.cpus() || got.Online.Len() != s.cpus() {
				t.Fatalf("%d CPUs, %d online, want %d", len(got.CPUs), got.Online.Len(), s.cpus())
			}
			perNode := s.llcsPerNode * s.coresPerLLC
			for _, c := range got.CPUs {
				core := c.ID % s.cores()
				want := CPU{
					ID: c.ID, Core: core, LLC: core / s.coresPerLLC, Node: core / perNode,
					Package: core / perNode / s.nodesPerPackage, Online: true,
				}
				if c != want {
					t.Fatalf("CPU = %+v, want %+v", c, want)
				}
			}
			last := s.cpus() - 1
			core := last % s.cores()
			if got, want := got.Siblings(last), s.spread(core, 1); got != want {
				t.Errorf("Siblings(%d) = %v, want %v", last, got, want)
			}
			if got, want := got.SharingLLC(last), s.spread(core/s.coresPerLLC*s.coresPerLLC, s.coresPerLLC); got != want {
				t.Errorf("SharingLLC(%d) = %v, want %v", last, got, want)
			}
			if got, want := got.Local(0), s.spread(0, perNode); got != want {
				t.Errorf("Local(0) = %v, want %v", got, want)
			}
		})
	}
}

func TestDistance(t *testing.T) {
	s := shape{packages: 2, nodesPerPackage: 2, llcsPerNode: 2, coresPerLLC: 2, threads: 2} // 16 cores
	got := read(t, s.tree())
	for _, tt := range []struct{ a, b, want int }{
		{3, 3, SameCPU}, {3, 19, SameCore}, {0, 1, SameLLC}, {0, 2, SameNode}, {0, 4, SamePackage}, {0, 8, Far}, {0, 99, Far},
	} {
		if d := got.Distance(tt.a, tt.b); d != tt.want {
			t.Errorf("Distance(%d, %d) = %d, want %d", tt.a, tt.b, d, tt.want)
		}
	}
	if d := cmp.Diff([]int{21, 10, 21, 21}, got.Nodes[1].Distance); d != "" {
		t.Errorf("distances of node 1 (-want +got):\n%s", d)
	}
}

func TestReadOfflineAndIsolated(t *testing.T) {
	tr := shape{1, 1, 1, 4, 2}.tree()
	tr[cpuDir+"/online"] = "0-3\n" // SMT off
	tr[cpuDir+"/possible"] = "0-15\n"
	tr[cpuDir+"/isolated"] = "2\n"
	tr[cpuDir+"/nohz_full"] = "3\n"
	tr[cgroupDir+"/cgroup.controllers"] = "cpuset\n"
	tr[cgroupDir+"/rt.slice/cpuset.cpus.partition"] = "member\n"
	tr[cgroupDir+"/rt.slice/dpdk/cpuset.cpus.partition"] = "isolated\n"
	tr[cgroupDir+"/rt.slice/dpdk/cpuset.cpus.effective"] = "1\n"
	tr[cgroupDir+"/broken/cpuset.cpus.partition"] = "isolated invalid (Cpu list in cpuset.cpus not exclusive)\n"
	tr[cgroupDir+"/broken/cpuset.cpus.effective"] = "0-3\n"
	for c := 4; c < 8; c++ { // offline CPUs tell no topology
		delete(tr, fmt.Sprintf("%s/cpu%d/topology/core_cpus_list", cpuDir, c))
	}
	got := read(t, tr)
	want := []CPU{
		{ID: 0, Core: 0, Online: true},
		{ID: 1, Core: 1, Online: true, Isolated: true},
		{ID: 2, Core: 2, Online: true, Isolated: true},
		{ID: 3, Core: 3, Online: true, NoHzFull: true},
		{ID: 4, Core: None, LLC: None, Package: None},
		{ID: 5, Core: None, LLC: None, Package: None},
		{ID: 6, Core: None, LLC: None, Package: None},
		{ID: 7, Core: None, LLC: None, Package: None},
	}
	if d := cmp.Diff(want, got.CPUs); d != "" {
		t.Errorf("CPUs (-want +got):\n%s", d)
	}
	sets := map[string]string{
		"possible": got.Possible.String(), "partitions": got.Partitions.String(), "housekeeping": got.Housekeeping().String(),
		"siblings of an offline CPU": got.Siblings(5).String(), "siblings of none": got.Siblings(99).String(),
	}
	wantSets := map[string]string{
		"possible": "0-15", "partitions": "1", "housekeeping": "0",
		"siblings of an offline CPU": "5", "siblings of none": "",
	}
	if d := cmp.Diff(wantSets, sets); d != "" {
		t.Errorf("sets (-want +got):\n%s", d)
	}
	tr[cgroupDir+"/cpuset.cpus.isolated"] = "0\n" // 6.8: the root tells
	if got := read(t, tr).Partitions.String(); got != "0" {
		t.Errorf("partitions = %s, want 0", got)
	}
	tr[cpuDir+"/isolated"] = "0-3\n"
	if got := read(t, tr).Housekeeping().String(); got != "0-3" {
		t.Errorf("housekeeping of an all isolated host = %s, want 0-3", got)
	}
}

func TestReadWherePartsAreAbsent(t *testing.T) {
	tests := []struct {
		name  string
		files tree
		want  []CPU
		notes []string
	}{
		{
			"a container that shows the online list only",
			tree{cpuDir + "/online": "0-1\n", "/proc/cmdline": "ro isolcpus=1 quiet\n"},
			[]CPU{
				{ID: 0, Node: None, Package: None, Core: 0, LLC: None, Online: true},
				{ID: 1, Node: None, Package: None, Core: 1, LLC: None, Online: true, Isolated: true},
			},
			[]string{"possible CPUs:", "memory nodes:", "SMT siblings, each CPU is taken for a core:", "last-level caches:"},
		},
		{
			"no lists, only folders",
			tree{cpuDir + "/cpu0/topology/thread_siblings_list": "0\n", cpuDir + "/cpu3/topology/thread_siblings_list": "3\n", cpuDir + "/cpufreq/x": ""},
			[]CPU{
				{ID: 0, Node: None, Package: None, Core: 0, LLC: None, Online: true},
				{ID: 3, Node: None, Package: None, Core: 1, LLC: None, Online: true},
			},
			[]string{"which CPUs are online:", "possible CPUs:", "isolated CPUs:", "memory nodes:", "last-level caches:"},
		},
		{
			"arm64 big.LITTLE without cache information",
			tree{
				cpuDir + "/online": "0-1\n", cpuDir + "/possible": "0-1\n", cpuDir + "/isolated": "\n",
				cpuDir + "/cpu0/topology/core_cpus_list": "0\n", cpuDir + "/cpu0/topology/physical_package_id": "-1\n", cpuDir + "/cpu0/cpu_capacity": "446\n",
				cpuDir + "/cpu1/topology/core_cpus_list": "1\n", cpuDir + "/cpu1/topology/physical_package_id": "-1\n", cpuDir + "/cpu1/cpu_capacity": "1024\n",
				nodeDir + "/node0/cpulist": "0-1\n",
			},
			[]CPU{
				{ID: 0, Package: None, Core: 0, LLC: None, Online: true, Capacity: 446},
				{ID: 1, Package: None, Core: 1, LLC: None, Online: true, Capacity: 1024},
			},
			[]string{"last-level caches:"},
		},
		{
			"broken NUMA: a CPU in two nodes, one in none, a node without CPUs",
			tree{
				cpuDir + "/online": "0-2\n", cpuDir + "/possible": "0-2\n", cpuDir + "/isolated": "\n",
				cpuDir + "/cpu0/topology/core_cpus_list": "0\n", cpuDir + "/cpu1/topology/core_cpus_list": "1\n", cpuDir + "/cpu2/topology/core_cpus_list": "2\n",
				cpuDir + "/cpu0/cache/index0/level": "2\n", cpuDir + "/cpu0/cache/index0/shared_cpu_list": "0-2\n",
				nodeDir + "/node0/cpulist": "0-1\n", nodeDir + "/node1/cpulist": "1\n", nodeDir + "/node2/cpulist": "\n",
				nodeDir + "/node2/distance": "10\n", nodeDir + "/has_cpu": "0-1\n",
			},
			[]CPU{
				{ID: 0, Node: 0, Package: None, Core: 0, Online: true},
				{ID: 1, Node: None, Package: None, Core: 1, Online: true},
				{ID: 2, Node: None, Package: None, Core: 2, Online: true},
			},
			[]string{"memory node of CPUs 1: more than one claims them", "memory node of CPUs 2: none claims them"},
		},
		{
			"garbage in the files",
			tree{
				cpuDir + "/online": "0\n", cpuDir + "/possible": "0-4294967295\n", cpuDir + "/isolated": "\xff\n",
				cpuDir + "/cpu0/topology/core_cpus_list": "7\n", cpuDir + "/cpu0/cache/index0/level": "x\n",
				nodeDir + "/node0/cpulist": "x\n", nodeDir + "/node99999/cpulist": "0\n",
			},
			[]CPU{{ID: 0, Node: None, Package: None, Core: 0, LLC: None, Online: true}},
			[]string{"possible CPUs:", "isolated CPUs:", "CPUs of node 0:", "last-level caches:"},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := read(t, tt.files)
			if d := cmp.Diff(tt.want, got.CPUs); d != "" {
				t.Errorf("CPUs (-want +got):\n%s", d)
			}
			var notes []string
			for i, n := range got.Unmeasured {
				if i < len(tt.notes) && strings.HasPrefix(n, tt.notes[i]) {
					n = tt.notes[i]
				}
				notes = append(notes, n)
			}
			if d := cmp.Diff(tt.notes, notes); d != "" {
				t.Errorf("unmeasured (-want +got):\n%s", d)
			}
			if all := got.Local(None); all != got.Online {
				t.Errorf("Local(None) = %v, want all online %v", all, got.Online)
			}
			if all := got.Local(7); all != got.Online {
				t.Errorf("Local of a node there is not = %v, want all online %v", all, got.Online)
			}
		})
	}
}

func TestReadFailsWithoutAnyCPU(t *testing.T) {
	_, err := Read(files{fstest.MapFS{}})
	if err == nil || !strings.HasPrefix(err.Error(), "read topology: ") {
		t.Errorf("error = %v, want read topology: …", err)
	}
}

func TestCapacityIsZeroWhereAllAreEqual(t *testing.T) {
	tr := shape{1, 1, 1, 2, 1}.tree()
	tr[cpuDir+"/cpu0/cpu_capacity"], tr[cpuDir+"/cpu1/cpu_capacity"] = "1024\n", "1024\n"
	for _, c := range read(t, tr).CPUs {
		if c.Capacity != 0 {
			t.Errorf("capacity of CPU %d = %d, want 0", c.ID, c.Capacity)
		}
	}
}

func TestSharingLLCFallsBackToTheNode(t *testing.T) {
	tp := &Topology{CPUs: []CPU{
		{ID: 0, Node: 0, LLC: None}, {ID: 1, Node: 0, LLC: None}, {ID: 2, Node: 1, LLC: None}, {ID: 3, Node: 0, LLC: 5},
	}}
	if got := tp.SharingLLC(0).String(); got != "0-1" {
		t.Errorf("SharingLLC(0) = %s, want 0-1", got)
	}
}

func TestFromSets(t *testing.T) {
	got := FromSets(cpuset.Range(0, 3), cpuset.Of(0, 2), cpuset.Of(2), cpuset.Set{})
	want := []CPU{
		{ID: 0, Node: None, Package: None, Core: 0, LLC: None, Online: true},
		{ID: 1, Node: None, Package: None, Core: 1, LLC: None},
		{ID: 2, Node: None, Package: None, Core: 2, LLC: None, Online: true, Isolated: true},
		{ID: 3, Node: None, Package: None, Core: 3, LLC: None},
	}
	if d := cmp.Diff(want, got.CPUs); d != "" {
		t.Errorf("CPUs (-want +got):\n%s", d)
	}
	if got := FromSets(cpuset.Of(0, 1), cpuset.Set{}, cpuset.Set{}, cpuset.Set{}).Online.String(); got != "0-1" {
		t.Errorf("online = %s, want 0-1", got)
	}
}

func TestParseCmdline(t *testing.T) {
	tests := []struct {
		cmdline          string
		nbits            int
		isolated, nohzed string
	}{
		{"BOOT_IMAGE=/vmlinuz ro quiet", 8, "", ""},
		{"isolcpus=2-3 nohz_full=3", 8, "2-3", "3"},
		{"isolcpus=managed_irq,domain,4-N nohz_full=4-N", 8, "4-7", "4-7"},
		{"isolcpus=managed_irq,4-7", 8, "", ""},
		{"isolcpus=nohz,domain,1", 8, "1", ""},
		{"isolcpus=0-7:1/2", 8, "0,2,4,6", ""},
		{"isolcpus=domain", 8, "", ""},
		{"isolcpus=2-99", 8, "", ""},
		{"isolcpus=2-99", 0, "2-99", ""},
		{"isolcpus=\xff nohz_full", 8, "", ""},
	}
	for _, tt := range tests {
		got := ParseCmdline(tt.cmdline, tt.nbits)
		if got.Isolated.String() != tt.isolated || got.NoHzFull.String() != tt.nohzed {
			t.Errorf("ParseCmdline(%q, %d) = %v, %v, want %s, %s", tt.cmdline, tt.nbits, got.Isolated, got.NoHzFull, tt.isolated, tt.nohzed)
		}
	}
}

func TestCPUJSON(t *testing.T) {
	b, err := json.Marshal(CPU{ID: 1, Node: None, Core: 1, LLC: 0, Online: true})
	if err != nil {
		t.Fatal(err)
	}
	want := `{"id":1,"node":-1,"package":0,"core":1,"llc":0,"online":true,"isolated":false}`
	if string(b) != want {
		t.Errorf("JSON = %s, want %s", b, want)
	}
}

func BenchmarkRead512(b *testing.B) {
	f := files{shape{2, 4, 2, 16, 2}.tree().mapFS()}
	for b.Loop() {
		if _, err := Read(f); err != nil {
			b.Fatal(err)
		}
	}
}

// FuzzRead reads a host whose files hold whatever.
// TestIsolatedByCgroupV1: where cpuset is a hierarchy of cgroup v1, beside v2 or alone, CPUs in no balanced set are isolated.
func TestIsolatedByCgroupV1(t *testing.T) {
	tr := shape{1, 1, 1, 4, 1}.tree()
	tr[cgroupDir+"/unified/cgroup.controllers"] = "\n"
	tr[cpusetDir+"/cpuset.memory_pressure_enabled"] = "0\n"
	tr[cpusetDir+"/cpuset.sched_load_balance"] = "1\n"
	tr[cpusetDir+"/system/cpuset.sched_load_balance"] = "1\n"
	tr[cpusetDir+"/system/cpuset.cpus"] = "0-1\n"
	tr[cpusetDir+"/machine/cpuset.sched_load_balance"] = "0\n"
	tr[cpusetDir+"/machine/cpuset.cpus"] = "0-3\n"
	tr[cpusetDir+"/machine/guest/cpuset.sched_load_balance"] = "1\n"
	tr[cpusetDir+"/machine/guest/cpuset.cpus"] = "0-3\n"
	tr[cpusetDir+"/machine/guest/cpuset.effective_cpus"] = "2\n"
	if got := read(t, tr).Partitions.String(); got != "" {
		t.Errorf("the root is balanced, yet %s are isolated", got)
	}
	tr[cpusetDir+"/cpuset.sched_load_balance"] = "0\n"
	if got := read(t, tr).Partitions.String(); got != "3" {
		t.Errorf("isolated %q, want 3: the rest is in sets that are balanced", got)
	}
	delete(tr, cpusetDir+"/cpuset.memory_pressure_enabled")
	if got := read(t, tr).Partitions.String(); got != "" {
		t.Errorf("in a container that is shown its own set: isolated %q", got)
	}
}

func FuzzRead(f *testing.F) {
	for _, s := range []string{"0-3\n", "0\n", "(null)\n", "isolated\n", "1024\n", "Unified\n", "10 21\n", "isolcpus=managed_irq,domain,2-N nohz_full=1"} {
		f.Add("0-1\n", s, s)
	}
	f.Fuzz(func(t *testing.T, online, a, b string) {
		tr := shape{1, 1, 1, 2, 1}.tree()
		for p := range tr {
			if strings.HasSuffix(p, "list") {
				tr[p] = a
			} else {
				tr[p] = b
			}
		}
		tr[cpuDir+"/online"], tr["/proc/cmdline"] = online, b
		tr[cgroupDir+"/cgroup.controllers"], tr[cgroupDir+"/x/cpuset.cpus.partition"], tr[cgroupDir+"/x/cpuset.cpus.effective"] = "", b, a
		got, err := Read(files{tr.mapFS()})
		if err != nil {
			return
		}
		for i, c := range got.CPUs {
			if i > 0 && got.CPUs[i-1].ID >= c.ID {
				t.Errorf("CPU %d follows %d", c.ID, got.CPUs[i-1].ID)
			}
			if c.Online != got.Online.Contains(c.ID) {
				t.Errorf("CPU %d online %v, the set says %v", c.ID, c.Online, got.Online)
			}
			if !got.Siblings(c.ID).Contains(c.ID) || !got.SharingLLC(c.ID).Contains(c.ID) {
				t.Errorf("CPU %d is not its own sibling", c.ID)
			}
		}
		if !got.Housekeeping().SubsetOf(got.Online) || !got.Online.SubsetOf(got.Possible) {
			t.Errorf("housekeeping %v, online %v, possible %v", got.Housekeeping(), got.Online, got.Possible)
		}
	})
}

package nic

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/rxsteer/rxsteer/internal/host"
	"github.com/rxsteer/rxsteer/internal/testnet"
)

const (
	podUID = "0f8fad5b-d9cb-469f-a165-70867728950e"
	under  = "0f8fad5b_d9cb_469f_a165_70867728950e"
)

var (
	cid   = strings.Repeat("0123456789abcdef", 4)
	other = strings.Repeat("fedcba9876543210", 4)
)

func TestTenantOf(t *testing.T) {
	hash := strings.Repeat("ab", 16)
	for name, tc := range map[string]struct {
		text string
		want Tenant
	}{
		"v2, systemd":         {"0::/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod" + under + ".slice/cri-containerd-" + cid + ".scope\n", Tenant{Pod: podUID, Container: cid}},
		"v2, cgroupfs":        {"0::/kubepods/besteffort/pod" + podUID + "/" + cid + "\n", Tenant{Pod: podUID, Container: cid}},
		"guaranteed":          {"0::/kubepods.slice/kubepods-pod" + under + ".slice/crio-" + cid + ".scope\n", Tenant{Pod: podUID, Container: cid}},
		"v1":                  {"12:pids:/kubepods/burstable/pod" + podUID + "/" + cid + "\n11:cpu,cpuacct:/x\n1:name=systemd:/kubepods/burstable/pod" + podUID + "/" + cid + "\n0::/\n", Tenant{Pod: podUID, Container: cid}},
		"v1, colons":          {"3:cpu:/system.slice/containerd.service/kubepods-burstable-pod" + under + ".slice:cri-containerd:" + cid + "\n", Tenant{Pod: podUID, Container: cid}},
		"a static pod":        {"0::/kubepods/burstable/pod" + hash + "/" + cid + "\n", Tenant{Pod: hash, Container: cid}},
		"systemd within":      {"0::/kubepods.slice/kubepods-pod" + under + ".slice/cri-containerd-" + cid + ".scope/system.slice/x.service\n", Tenant{Pod: podUID, Container: cid}},
		"a node in Docker":    {"0::/docker/" + other + "/kubelet/kubepods/pod" + podUID + "/" + cid + "\n", Tenant{Pod: podUID, Container: cid}},
		"one below the other": {"0::/docker/" + other + "/" + cid + "\n", Tenant{Container: cid}},
		"of a namespace":      {"0::/../../kubepods/pod" + podUID + "/" + cid + "\n", Tenant{Pod: podUID, Container: cid}},
		"docker":              {"0::/system.slice/docker-" + cid + ".scope\n", Tenant{Container: cid}},
		"podman":              {"0::/machine.slice/libpod-" + cid + ".scope/container\n", Tenant{Container: cid}},
		"a pod beats":         {"2:cpu:/docker/" + other + "\n0::/kubepods/pod" + podUID + "/" + cid + "\n", Tenant{Pod: podUID, Container: cid}},
		"a service":           {"0::/system.slice/podman.service\n", Tenant{}},
		"a near miss":         {"0::/tripod" + podUID + "/x\n", Tenant{}},
		"nothing":             {"", Tenant{}},
	} {
		if diff := cmp.Diff(tc.want, tenantOf(tc.text)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

func FuzzTenantOf(f *testing.F) {
	f.Add("0::/kubepods/pod" + podUID + "/" + cid + "\n")
	f.Fuzz(func(t *testing.T, text string) {
		got := tenantOf(text)
		if !strings.Contains(strings.ReplaceAll(text, "_", "-"), got.Pod) || !strings.Contains(text, got.Container) {
			t.Errorf("%+v is not in the text", got)
		}
	})
}

// hierarchies are this machine's cgroup trees where a test may make a cgroup: v2, and one of v1 where there is any.
func hierarchies(t *testing.T) map[string]string {
	t.Helper()
	text, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]string{}
	for line := range strings.Lines(string(text)) {
		before, after, _ := strings.Cut(line, " - ")
		fields, tail := strings.Fields(before), strings.Fields(after)
		if len(fields) < 5 || len(tail) < 3 {
			continue
		}
		// cpuset wants CPUs and memory set before it takes a process.
		switch {
		case tail[0] == "cgroup2":
			out["v2"] = fields[4]
		case tail[0] == "cgroup" && strings.Contains(tail[2], "pids"):
			out["v1"] = fields[4]
		}
	}
	return out
}

// TestTenantsOfRealPods: two network namespaces with a process in a real cgroup each, whose veths have the same index at
// their other ends, as CNI plugins make them.
func TestTenantsOfRealPods(t *testing.T) {
	testnet.NeedRoot(t)
	trees := hierarchies(t)
	if len(trees) == 0 {
		t.Skip("needs a cgroup file system")
	}
	for version, tree := range trees {
		t.Run(version, func(t *testing.T) {
			node := testnet.New(t)
			want := map[string]Tenant{}
			for i := range 2 {
				pod := testnet.New(t)
				uid := fmt.Sprintf("%08x-0000-4000-8000-%012x", i+1, os.Getpid())
				top := filepath.Join(tree, fmt.Sprintf("rxsteer-test-%d-%d", os.Getpid(), i))
				dir := filepath.Join(top, "kubepods", "pod"+uid, cid)
				if err := os.MkdirAll(dir, 0o755); err != nil {
					t.Fatal(err)
				}
				cmd := exec.CommandContext(t.Context(), "nsenter", "--net=/run/netns/"+pod.Name, "sleep", "1000")
				if err := cmd.Start(); err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() {
					cmd.Process.Kill()
					cmd.Wait()
					for d := dir; d != tree; d = filepath.Dir(d) {
						if err := unix.Rmdir(d); err != nil {
							t.Errorf("remove %s: %v", d, err)
						}
					}
				})
				if err := os.WriteFile(filepath.Join(dir, "cgroup.procs"), []byte(strconv.Itoa(cmd.Process.Pid)), 0o644); err != nil {
					t.Fatal(err)
				}
				name := fmt.Sprintf("cali%d", i)
				if err := node.IP("link", "add", name, "type", "veth", "peer", "name", "eth0", "netns", pod.Name, "index", "77"); err != nil {
					t.Fatal(err)
				}
				want[name] = Tenant{Pod: uid, Container: cid, PID: cmd.Process.Pid}
				awaitNetns(t, cmd.Process.Pid, pod.Inode())
			}
			if err := node.IP("link", "add", "v0", "type", "veth", "peer", "name", "v1"); err != nil { // both ends here
				t.Fatal(err)
			}
			var got map[int]Tenant
			if err := node.Do(func() (err error) { got, err = Tenants(host.OS{}, Netlink{}); return err }); err != nil {
				t.Fatal(err)
			}
			byName := map[string]Tenant{}
			for index, tenant := range got {
				if err := node.Do(func() error {
					name, err := ifName(index)
					byName[name] = tenant
					return err
				}); err != nil {
					t.Fatal(err)
				}
			}
			if diff := cmp.Diff(want, byName); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func ifName(index int) (string, error) {
	i, err := net.InterfaceByIndex(index)
	if err != nil {
		return "", err
	}
	return i.Name, nil
}

// awaitNetns waits until a process that was started has entered its namespace.
func awaitNetns(t *testing.T, pid int, inode uint64) {
	t.Helper()
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		if link, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/net", pid)); err == nil && link == fmt.Sprintf("net:[%d]", inode) {
			return
		}
	}
	t.Fatalf("process %d does not enter its namespace", pid)
}

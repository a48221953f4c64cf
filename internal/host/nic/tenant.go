package nic

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"github.com/rxsteer/rxsteer/internal/host"
)

// Tenant is who lives at the other end of an interface (veth): a pod, or a container of no pod.
type Tenant struct {
	Pod       string `json:"pod"`       // the UID of a Kubernetes pod, "" none
	Container string `json:"container"` // the runtime's id of the first container found there, "" not told
	PID       int    `json:"pid"`       // of the process whose cgroup told it
}

// Peers tells in which network namespaces the other ends of interfaces are, by the numbers that the reader's
// namespace gives to others. Netlink is one.
type Peers interface {
	// PeerNamespaces are the numbers by ifindex; an interface whose other end is here, or that has none, is not in it.
	PeerNamespaces() (map[int]int, error)
	// NamespaceID is the number of the namespace of a file such as /proc/1/ns/net, −1 where it has none here.
	NamespaceID(file string) (int, error)
}

// Tenants finds by ifindex who lives at the other ends: the namespace of a veth's other end, a process in that namespace,
// and what its cgroup is called. No API is asked. It needs the right to look at others' processes (CAP_SYS_PTRACE) and the
// host's own /proc. The error, beside what was found, says what kept it from looking at all of them.
func Tenants(fsys host.FS, peers Peers) (map[int]Tenant, error) {
	ids, err := peers.PeerNamespaces()
	if err != nil || len(ids) == 0 {
		return nil, err
	}
	processes, err := fsys.ReadDir("/proc")
	if err != nil {
		return nil, fmt.Errorf("list processes: %w", err)
	}
	var pids []int
	for _, p := range processes {
		if pid, err := strconv.Atoi(p.Name()); err == nil {
			pids = append(pids, pid)
		}
	}
	slices.Sort(pids) // a pod's first process is its sandbox's
	missing := map[int]bool{}
	for _, id := range ids {
		missing[id] = true
	}
	of := map[int]Tenant{}
	numbers := map[string]int{} // by the link of a namespace
	var denied error
	for _, pid := range pids {
		if len(missing) == 0 {
			break
		}
		file := fmt.Sprintf("/proc/%d/ns/net", pid)
		link, err := fsys.Readlink(file)
		if errors.Is(err, fs.ErrPermission) {
			denied = errors.New("tell which pod an interface belongs to: no right to look at other processes: it needs CAP_SYS_PTRACE")
		}
		if err != nil || link == "" {
			continue // denied, gone, or a kernel thread
		}
		id, known := numbers[link]
		if !known {
			if id, err = peers.NamespaceID(file); err != nil {
				continue // it has gone
			}
			numbers[link] = id
		}
		if !missing[id] {
			continue
		}
		text, err := fsys.ReadFile(fmt.Sprintf("/proc/%d/cgroup", pid))
		if err != nil {
			continue
		}
		if t := tenantOf(string(text)); t != (Tenant{}) {
			t.PID = pid
			of[id] = t
			delete(missing, id)
		}
	}
	out := map[int]Tenant{}
	for ifindex, id := range ids {
		if t, ok := of[id]; ok {
			out[ifindex] = t
		}
	}
	if len(missing) == 0 {
		denied = nil
	}
	return out, denied
}

var (
	// A pod's cgroup, pkg/kubelet/cm of kubernetes: podUID (cgroupfs), kubepods-burstable-podUID.slice with _ for - (systemd).
	// The UID of a static pod is a hash.
	podCgroup = regexp.MustCompile(`[/-]pod([0-9a-f]{8}(?:[-_][0-9a-f]{4}){3}[-_][0-9a-f]{12}|[0-9a-f]{32})(?:\.slice)?(?:[/:]|$)`)
	// A container's: ID, or RUNTIME-ID.scope, or UNIT:RUNTIME:ID. What it runs may have cgroups of its own below.
	containerCgroup = regexp.MustCompile(`[/:-]([0-9a-f]{64})(?:\.scope)?(?:/|$)`)
)

// tenantOf reads /proc/PID/cgroup: a line for each hierarchy of cgroup v1, one that begins with 0:: for v2 (cgroups(7)).
func tenantOf(text string) Tenant {
	var best Tenant
	for line := range strings.Lines(text) {
		parts := strings.SplitN(strings.TrimSuffix(line, "\n"), ":", 3)
		if len(parts) < 3 {
			continue
		}
		var t Tenant
		// The last: a node may itself be a container.
		if m := podCgroup.FindAllStringSubmatch(parts[2], -1); m != nil {
			t.Pod = strings.ReplaceAll(m[len(m)-1][1], "_", "-")
		}
		// The / between two ids belongs to both: one at a time.
		for rest := parts[2]; ; {
			at := containerCgroup.FindStringSubmatchIndex(rest)
			if at == nil {
				break
			}
			t.Container = rest[at[2]:at[3]]
			rest = rest[at[3]:]
		}
		if best.Pod == "" && t != (Tenant{}) && (t.Pod != "" || best.Container == "") {
			best = t
		}
	}
	return best
}

// PeerNamespaces dumps the links and returns their IFLA_LINK_NETNSID (include/uapi/linux/if_link.h).
func (Netlink) PeerNamespaces() (map[int]int, error) {
	msgs, err := dumpLinks()
	if err != nil {
		return nil, fmt.Errorf("list other ends of interfaces: %w", err)
	}
	out := map[int]int{}
	for _, m := range msgs {
		index, id, err := parsePeer(m.Data)
		if err != nil {
			return nil, fmt.Errorf("list other ends of interfaces: %w", err)
		}
		if id >= 0 {
			out[index] = id
		}
	}
	return out, nil
}

// parsePeer reads a RTM_NEWLINK message; id is −1 where the other end is not in another namespace.
func parsePeer(b []byte) (ifindex, id int, err error) {
	if len(b) < unix.SizeofIfInfomsg {
		return 0, 0, errors.New("parse link: message cut short")
	}
	ad, err := netlink.NewAttributeDecoder(b[unix.SizeofIfInfomsg:])
	if err != nil {
		return 0, 0, fmt.Errorf("parse link: %w", err)
	}
	id = -1
	for ad.Next() {
		if ad.Type() == unix.IFLA_LINK_NETNSID {
			id = int(ad.Int32())
		}
	}
	if err := ad.Err(); err != nil {
		return 0, 0, fmt.Errorf("parse link: %w", err)
	}
	return int(int32(binary.NativeEndian.Uint32(b[4:]))), id, nil
}

// NETNSA_* of include/uapi/linux/net_namespace.h, and the size of struct rtgenmsg as netlink aligns it.
const (
	netnsaNSID    = 1
	netnsaFD      = 3
	sizeofRtgen   = 4
	noNamespaceID = -1
)

// NamespaceID asks by RTM_GETNSID, which gives no number to a namespace that has none.
func (n Netlink) NamespaceID(file string) (int, error) {
	if n.Path != nil {
		file = n.Path(file)
	}
	f, err := os.Open(file)
	if err != nil {
		return noNamespaceID, err
	}
	defer f.Close()
	c, err := netlink.Dial(unix.NETLINK_ROUTE, nil)
	if err != nil {
		return noNamespaceID, fmt.Errorf("number of a network namespace: %w", err)
	}
	defer c.Close()
	ae := netlink.NewAttributeEncoder()
	ae.Uint32(netnsaFD, uint32(f.Fd()))
	attributes, err := ae.Encode()
	if err != nil {
		return noNamespaceID, err
	}
	msgs, err := c.Execute(netlink.Message{
		Header: netlink.Header{Type: unix.RTM_GETNSID, Flags: netlink.Request},
		Data:   append(make([]byte, sizeofRtgen), attributes...),
	})
	if err != nil {
		return noNamespaceID, fmt.Errorf("number of a network namespace: %w", err)
	}
	id := noNamespaceID
	for _, m := range msgs {
		if len(m.Data) < sizeofRtgen {
			return noNamespaceID, errors.New("number of a network namespace: message cut short")
		}
		ad, err := netlink.NewAttributeDecoder(m.Data[sizeofRtgen:])
		if err != nil {
			return noNamespaceID, fmt.Errorf("number of a network namespace: %w", err)
		}
		for ad.Next() {
			if ad.Type() == netnsaNSID {
				id = int(ad.Int32())
			}
		}
		if err := ad.Err(); err != nil {
			return noNamespaceID, fmt.Errorf("number of a network namespace: %w", err)
		}
	}
	return id, nil
}

package collector

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"github.com/rxsteer/rxsteer/internal/host"
	"github.com/rxsteer/rxsteer/internal/sockdiag"
)

// Looking for the owners of sockets reads every process's open files: not each interval, and not on
// hosts with more sockets than this.
const (
	ownersEvery = 5 * time.Second
	mostSockets = 20000
)

// ownerSource tells whose a flow is. What it found is kept until it looks again; processes come and go.
type ownerSource struct {
	looked  time.Time
	sockets map[socketKey]uint64 // inode
	passed  map[socketKey]uint64 // of other network namespaces
	owners  map[uint64]owner     // by inode
}

// socketKey is a socket by its ends; a UDP one may have no remote one, or no local address.
type socketKey struct {
	protocol      string
	local, remote netip.AddrPort
}

type owner struct {
	pid  int
	name string
	cpu  int // it last ran on, where it has a single thread; -1 which of its threads reads is not known
}

// tell fills ConsumerCPU, PID and Process of flows that came to the reader's own network namespace.
func (o *ownerSource) tell(flows []Flow, c *Config) {
	if c.Sockets == nil || len(flows) == 0 {
		return
	}
	own := ownNetns(c.FS)
	inodes := make([]uint64, len(flows))
	find := func() (missing bool) {
		for i := range flows {
			if f := &flows[i]; f.Netns == own && inodes[i] == 0 {
				inodes[i] = o.socket(f)
				missing = missing || inodes[i] == 0
			}
		}
		return missing
	}
	if at := c.Now(); o.looked.IsZero() || at.Sub(o.looked) >= ownersEvery {
		o.looked, o.sockets, o.passed, o.owners = at, nil, nil, nil
		all, err := c.Sockets(mostSockets)
		if err != nil {
			return // too many: flows are told without their owner
		}
		o.sockets = make(map[socketKey]uint64, len(all))
		for _, s := range all {
			o.sockets[keyOf(&s)] = s.Inode
		}
		if find() && c.SocketsIn != nil {
			o.passed = passedOn(c, own, len(all))
		}
	}
	find()
	o.find(c.FS, inodes)
	for i := range flows {
		if w, ok := o.owners[inodes[i]]; ok && w.pid > 0 {
			flows[i].PID, flows[i].Process, flows[i].ConsumerCPU = w.pid, w.name, w.cpu
		}
	}
}

func keyOf(s *sockdiag.Socket) socketKey {
	return socketKey{s.Protocol, plain(s.Local), plain(s.Remote)}
}

// mostNamespaces bounds how many others are looked into.
const mostNamespaces = 256

// passedOn is the sockets of other network namespaces that are bound to an address of their own: what the reader's host
// passes on to such an address ends there. Two namespaces may have one address; whose packets they are is then not told.
func passedOn(c *Config, own uint64, known int) map[socketKey]uint64 {
	processes, err := c.FS.ReadDir("/proc")
	if err != nil {
		return nil
	}
	sockets, seen := map[socketKey]uint64{}, map[uint64]bool{own: true}
	for _, p := range processes {
		if _, err := strconv.Atoi(p.Name()); err != nil {
			continue
		}
		file := "/proc/" + p.Name() + "/ns/net"
		netns := netnsOf(c.FS, file)
		if netns == 0 || seen[netns] {
			continue
		}
		seen[netns] = true
		all, err := c.SocketsIn(file, mostSockets-known)
		if err != nil {
			continue // gone, not ours to enter, or too many
		}
		known += len(all)
		for _, s := range all {
			if k := keyOf(&s); !k.local.Addr().IsUnspecified() && !k.local.Addr().IsLoopback() {
				if _, twice := sockets[k]; twice {
					s.Inode = 0
				}
				sockets[k] = s.Inode
			}
		}
		if len(seen) > mostNamespaces {
			break
		}
	}
	return sockets
}

// plain is an address as a packet has it: IPv4 of a socket for both families as IPv4.
func plain(a netip.AddrPort) netip.AddrPort {
	return netip.AddrPortFrom(a.Addr().Unmap(), a.Port())
}

// socket is the inode of the socket that a flow arrives at, 0 not known: the most specific, as the
// kernel looks it up (__inet_lookup_established, udp4_lib_lookup2).
func (o *ownerSource) socket(f *Flow) uint64 {
	any4, any6 := netip.IPv4Unspecified(), netip.IPv6Unspecified()
	var none netip.AddrPort
	for _, remote := range []netip.AddrPort{f.Source, netip.AddrPortFrom(any4, 0), netip.AddrPortFrom(any6, 0), none} {
		for _, local := range []netip.Addr{f.Destination.Addr(), any4, any6} {
			if inode := o.sockets[socketKey{f.Protocol, netip.AddrPortFrom(local, f.Destination.Port()), remote}]; inode != 0 {
				return inode
			}
		}
	}
	for _, remote := range []netip.AddrPort{f.Source, netip.AddrPortFrom(any4, 0), netip.AddrPortFrom(any6, 0)} {
		if inode := o.passed[socketKey{f.Protocol, f.Destination, remote}]; inode != 0 {
			return inode
		}
	}
	return 0
}

// find looks for the processes that hold sockets open which are not known yet. One that is not found
// (another PID namespace, no privilege, gone) is not looked for again until the next list.
func (o *ownerSource) find(fsys host.FS, inodes []uint64) {
	missing := map[string]uint64{}
	for _, inode := range inodes {
		if _, known := o.owners[inode]; inode != 0 && !known {
			missing[fmt.Sprintf("socket:[%d]", inode)] = inode
		}
	}
	if len(missing) == 0 {
		return
	}
	if o.owners == nil {
		o.owners = map[uint64]owner{}
	}
	for _, inode := range missing {
		o.owners[inode] = owner{}
	}
	processes, err := fsys.ReadDir("/proc")
	if err != nil {
		return
	}
	for _, p := range processes {
		pid, err := strconv.Atoi(p.Name())
		if err != nil {
			continue
		}
		dir := "/proc/" + p.Name()
		files, err := fsys.ReadDir(dir + "/fd")
		if err != nil {
			continue // not ours to see, or gone
		}
		for _, f := range files {
			link, err := fsys.Readlink(dir + "/fd/" + f.Name())
			inode, wanted := missing[link]
			if err != nil || !wanted {
				continue
			}
			delete(missing, link) // of several that share it, the first
			o.owners[inode] = readOwner(fsys, dir, pid)
			if len(missing) == 0 {
				return
			}
		}
	}
}

// readOwner reads a process's name and, if it has one thread only, the CPU it last ran on: field 39 of
// /proc/PID/stat, counted from the command in parentheses (field 2), see proc_pid_stat(5).
func readOwner(fsys host.FS, dir string, pid int) owner {
	w := owner{pid: pid, cpu: -1}
	text, err := fsys.ReadFile(dir + "/stat")
	if err != nil {
		return w
	}
	open, end := strings.IndexByte(string(text), '('), strings.LastIndexByte(string(text), ')')
	if open < 0 || end < open {
		return w
	}
	w.name = string(text[open+1 : end])
	const threads, processor = 20 - 3, 39 - 3
	fields := strings.Fields(string(text[end+1:]))
	if len(fields) <= processor || fields[threads] != "1" {
		return w
	}
	if cpu, err := strconv.Atoi(fields[processor]); err == nil {
		w.cpu = cpu
	}
	return w
}

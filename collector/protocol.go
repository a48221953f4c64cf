package collector

import (
	"errors"
	"io/fs"

	"github.com/rxsteer/rxsteer/internal/host"
	"github.com/rxsteer/rxsteer/internal/host/procfs"
)

// established is the one of them that is no counter.
const established = "TcpCurrEstab"

// readProtocols reads the counters of IP, TCP and UDP of the reader's own network
// namespace. A host without IPv6 has no snmp6: not a gap.
func (r *Reading) readProtocols(fsys host.FS) {
	const what = "counters of IP, TCP and UDP"
	for _, file := range [...]string{"/proc/net/snmp", "/proc/net/netstat", "/proc/net/snmp6"} {
		text, err := fsys.ReadFile(file)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		var counters map[string]uint64
		if err == nil {
			counters, err = procfs.ParseSNMP(file, text)
		}
		if err != nil {
			r.unmeasured(what, err)
			continue
		}
		for name, n := range counters {
			if r.Protocols == nil {
				r.Protocols = make(map[string]uint64, 512)
			}
			r.Protocols[name] = n
		}
	}
}

// protocols adds what grew. The kernel sums unsigned longs, which 64-bit ones do not wrap, and lists
// some (IcmpMsg) only once they count: a new one began at 0.
func (d *difference) protocols() {
	if d.prev.Protocols == nil || d.cur.Protocols == nil {
		return
	}
	d.s.Protocols = map[string]uint64{}
	d.s.Established = d.cur.Protocols[established]
	for name, now := range d.cur.Protocols {
		if name == established {
			continue
		}
		if n := d.up64(subject{name, -1}, d.prev.Protocols[name], now); n > 0 {
			d.s.Protocols[name] = n
		}
	}
}

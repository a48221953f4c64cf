package procfs

import (
	"bytes"
	"strconv"
)

// maxSNMP bounds the counters of one file; Linux 6.18 has 250 of them.
const maxSNMP = 4096

// gauges are figures in /proc/net/snmp that do not count.
var gauges = map[string]bool{
	"IpForwarding": true, "IpDefaultTTL": true, "TcpRtoAlgorithm": true, "TcpRtoMin": true, "TcpRtoMax": true, "TcpMaxConn": true,
}

// ParseSNMP reads /proc/net/snmp, /proc/net/netstat (a line of names, a line of numbers, both after
// "Udp:") or /proc/net/snmp6 ("Udp6InDatagrams 7"), by the names nstat(8) prints: "UdpInDatagrams",
// "TcpExtListenDrops", "Udp6InDatagrams". Figures that do not count are left out, but for TcpCurrEstab, the open
// connections. The error is an *Error.
func ParseSNMP(file string, text []byte) (map[string]uint64, error) {
	out := map[string]uint64{}
	r := &reader{file: file, rest: text}
	var names [][]byte // of the block, the first its label with the colon
	for {
		line, ok := r.next()
		if !ok {
			break
		}
		f := bytes.Fields(line)
		if len(f) == 0 {
			continue
		}
		if len(out) > maxSNMP {
			return nil, r.errorf("more than %d counters", maxSNMP)
		}
		label, block := bytes.CutSuffix(f[0], []byte(":"))
		switch {
		case !block && len(f) == 2:
			n, err := strconv.ParseUint(string(f[1]), 10, 64)
			if err != nil {
				return nil, r.errorf("counter is not a number")
			}
			out[string(f[0])] = n
		case !block:
			return nil, r.errorf("neither a name and a number nor a line that begins with a label")
		case names == nil:
			names = f
		case len(names) != len(f) || !bytes.Equal(names[0], f[0]):
			return nil, r.errorf("%d numbers for the %d names of %s", len(f)-1, len(names)-1, names[0][:len(names[0])-1])
		default:
			for i, text := range f[1:] {
				name := string(label) + string(names[i+1])
				if gauges[name] {
					continue
				}
				n, err := strconv.ParseUint(string(text), 10, 64)
				if err != nil {
					return nil, r.errorf("%s is not a number", name)
				}
				out[name] = n
			}
			names = nil
		}
	}
	if names != nil {
		return nil, r.errorf("no numbers follow the names of %s", names[0][:len(names[0])-1])
	}
	return out, nil
}

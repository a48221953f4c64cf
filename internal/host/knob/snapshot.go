package knob

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"
)

// SnapshotVersion is the schema of the serialised Snapshot. It grows when a field
// changes meaning; readers refuse newer ones.
const SnapshotVersion = 1

// Snapshot is everything that is set on a host for receive, at one moment. It
// is the one type behind status, baseline, drift, verification and rollback.
type Snapshot struct {
	Version  int       `json:"version"`
	Taken    time.Time `json:"taken"`
	Host     Identity  `json:"host"`
	Devices  []Device  `json:"devices"`  // sorted by name
	Settings []Setting `json:"settings"` // sorted by target, then knob
	Owners   []Owner   `json:"owners,omitempty"`
}

// Identity says which host, boot and network namespace a Snapshot or Plan is of.
type Identity struct {
	BootID string `json:"boot_id"` // /proc/sys/kernel/random/boot_id
	Netns  uint64 `json:"netns"`   // inode of /proc/self/ns/net
	Kernel string `json:"kernel"`  // uname -r
	CPUs   string `json:"cpus"`    // online, list text
}

// Device identifies an interface and the driver state that settings hang on.
type Device struct {
	Name     string `json:"name"`
	IfIndex  int    `json:"ifindex"`
	Bus      string `json:"bus,omitempty"` // PCI address or bus id, "" for virtual devices
	Driver   string `json:"driver,omitempty"`
	Version  string `json:"driver_version,omitempty"`
	Firmware string `json:"firmware,omitempty"`
	SpeedMb  int    `json:"speed_mbit,omitempty"` // Mbit/s, 0 unknown
	RXQueues int    `json:"rx_queues"`            // live: /sys/class/net/<if>/queues
	TXQueues int    `json:"tx_queues"`
	Table    int    `json:"table_size,omitempty"` // entries of the indirection table, 0 none
}

// Setting is one knob of one target and what it is set to.
type Setting struct {
	Ref
	Value Value `json:"value"`
}

// Owner is somebody else who sets receive knobs on this host.
type Owner struct {
	Name   string   `json:"name"`             // "irqbalance", "tuned", "AF_XDP", …
	Device string   `json:"device,omitempty"` // "" when host-wide
	Knobs  []Kind   `json:"knobs,omitempty"`  // what it is known to write
	Detail string   `json:"detail,omitempty"` // pid, profile, file: how we know
	Settle []string `json:"settle,omitempty"` // lines that would make it leave the knob alone
}

// Get returns the value of a setting; a setting the Snapshot does not hold is
// unknown.
func (s *Snapshot) Get(r Ref) Value {
	i, ok := slices.BinarySearchFunc(s.Settings, r, func(x Setting, r Ref) int { return compareRef(x.Ref, r) })
	if !ok {
		return Unknown("not part of this snapshot")
	}
	return s.Settings[i].Value
}

// Sort puts devices and settings in their canonical order.
func (s *Snapshot) Sort() {
	slices.SortFunc(s.Devices, func(a, b Device) int { return cmp.Compare(a.Name, b.Name) })
	slices.SortFunc(s.Settings, func(a, b Setting) int { return compareRef(a.Ref, b.Ref) })
}

func compareRef(a, b Ref) int {
	return cmp.Or(compareTarget(a.Target, b.Target), cmp.Compare(a.Knob, b.Knob))
}

// Difference is one setting that is not what it was.
type Difference struct {
	Ref
	From Value `json:"from"`
	To   Value `json:"to"`
}

// Diff lists what changed from a to b, in canonical order. Unknown on either side is
// no change. A setting that only one side holds counts as absent on the other. NAPI
// ids live as long as a boot: between two boots the settings of single instances are
// left out, the device's own tell. Nor is it a change what adaptive moderation moves while it
// is on.
func Diff(a, b *Snapshot) []Difference {
	was, is := index(a), index(b)
	var out []Difference
	reboot := a.Host.BootID != b.Host.BootID
	for r := range union(was, is) {
		if reboot && strings.HasPrefix(r.Target.Part(), "napi-") {
			continue
		}
		from, ok := was[r]
		if !ok {
			from = Absent("not there before")
		}
		to, ok := is[r]
		if !ok {
			to = Absent("not there any more")
		}
		if from.state == unknown || to.state == unknown || from.Equal(to) || from.state == absent && to.state == absent {
			continue
		}
		if none := (Value{}); settled(from, from, none).Equal(settled(to, to, none)) {
			continue
		}
		out = append(out, Difference{Ref: r, From: from, To: to})
	}
	slices.SortFunc(out, func(a, b Difference) int { return compareRef(a.Ref, b.Ref) })
	return out
}

func index(s *Snapshot) map[Ref]Value {
	m := make(map[Ref]Value, len(s.Settings))
	for _, x := range s.Settings {
		m[x.Ref] = x.Value
	}
	return m
}

func union(a, b map[Ref]Value) map[Ref]Value {
	m := maps.Clone(a)
	maps.Copy(m, b)
	return m
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

// compareTarget orders "eth0 rx-2" before "eth0 rx-10" and the host first.
func compareTarget(a, b Target) int {
	if a == b {
		return 0
	}
	if a == Host || b == Host {
		if a == Host {
			return -1
		}
		return 1
	}
	return naturalCompare(string(a), string(b))
}

// naturalCompare compares runs of digits as numbers.
func naturalCompare(a, b string) int {
	for a != "" && b != "" {
		na, nb := digits(a), digits(b)
		if na > 0 && nb > 0 {
			x, y := trimZeros(a[:na]), trimZeros(b[:nb])
			if c := cmp.Or(cmp.Compare(len(x), len(y)), cmp.Compare(x, y), cmp.Compare(na, nb)); c != 0 {
				return c
			}
			a, b = a[na:], b[nb:]
			continue
		}
		if a[0] != b[0] {
			return cmp.Compare(a[0], b[0])
		}
		a, b = a[1:], b[1:]
	}
	return cmp.Compare(len(a), len(b))
}

func digits(s string) int {
	n := 0
	for n < len(s) && s[n] >= '0' && s[n] <= '9' {
		n++
	}
	return n
}

func trimZeros(s string) string {
	for len(s) > 1 && s[0] == '0' {
		s = s[1:]
	}
	return s
}

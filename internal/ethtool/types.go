package ethtool

// Group is a set of attributes that the kernel takes in one message, by the
// names ethtool(8) uses on its command line ("rx-usecs", "combined"). Flags
// are 0 or 1. An attribute the device or kernel lacks is not in the map.
type Group map[string]uint32

// RSS is one receive-side scaling context of a device.
type RSS struct {
	Context  uint32 // 0 is the default context
	Table    []int  // rx queue of each bucket; nil when the device has no table
	Key      []byte // nil when the device does not tell
	Function string // "toeplitz", "xor", "crc32"; "" when not told
	Xfrm     uint32 // RXH_XFRM_* of linux/ethtool.h: 0 none, 1 symmetric xor, 2 symmetric or-xor
	// Fields are the hash fields per flow type as letters ("udp4": "sdfn"); nil
	// when the kernel does not report them in the same message (before 6.17).
	Fields map[string]string
}

// RSSChange is what to change of a context; zero fields stay as they are.
type RSSChange struct {
	Table    []int  // whole table; its length must divide the device's
	Default  bool   // back to the driver's default table; Table must be nil
	Key      []byte // exactly as long as the device's
	Function string
}

// Features are a device's offloads by kernel name ("rx-gro", "rx-hashing").
type Features struct {
	Active map[string]bool // in effect
	Wanted map[string]bool // asked for; may wait for another feature or an up link
	Fixed  map[string]bool // true: cannot be changed by the user
}

// Driver is what ETHTOOL_GDRVINFO tells.
type Driver struct {
	Name, Version, Firmware, Bus string
}

// Link is the state of the wire.
type Link struct {
	Up       bool
	SpeedMb  int // Mbit/s, 0 unknown
	Duplex   string
	Autoneg  bool
	HasModes bool // the device reports link modes at all
}

// FEC is forward error correction.
type FEC struct {
	Auto   bool
	Modes  string // configured, "rs baser", "off"
	Active string // in effect on the link, "" unknown
}

// Rule is one ntuple rule (receive flow classification).
type Rule struct {
	Location uint32
	Flow     string // "tcp4", "udp6", "ip4", "ether", …
	// Match holds what is compared by ethtool(8)'s names ("dst-port": "443"),
	// with "/mask" when not all bits are; mask bits set are compared.
	Match   map[string]string
	Queue   int    // −1 drops the packet
	VF      uint32 // 0 none, n is VF n−1
	Context uint32 // RSS context that picks the queue, 0 none
}

// Stat is one driver statistic as `ethtool -S` prints it.
type Stat struct {
	Name  string
	Value uint64
}

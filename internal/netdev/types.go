package netdev

// NAPI is one NAPI instance. Pointers are nil where the kernel does not tell.
type NAPI struct {
	ID                uint32
	IfIndex           int
	IRQ               *int
	PID               *int    // thread, with threaded NAPI
	DeferHardIRQs     *uint32 // empty polls before the interrupt is armed again (6.13)
	GROFlushTimeout   *uint64 // ns (6.13)
	IRQSuspendTimeout *uint64 // ns (6.13)
	Threaded          *uint32 // 0 softirq, 1 thread, 2 busy-polling thread (6.17, 2 from 6.18)
}

// NAPIChange is what to set; nil stays as it is.
type NAPIChange struct {
	DeferHardIRQs     *uint32
	GROFlushTimeout   *uint64
	IRQSuspendTimeout *uint64
	Threaded          *uint32
}

// Queue types.
const (
	RX = "rx"
	TX = "tx"
)

// Queue is one queue of a device and the NAPI that serves it.
type Queue struct {
	ID      int
	IfIndex int
	Type    string // RX or TX
	NAPI    uint32 // 0: none told
	XSK     bool   // an AF_XDP socket owns it (6.15)
	IOUring bool   // io_uring zero-copy receive owns it (6.15)
	DMABuf  bool   // device memory is bound to it (6.12)
}

// Device is what dev-get tells.
type Device struct {
	IfIndex     int
	XDPFeatures uint64 // NETDEV_XDP_ACT_*
}

// QueueStats are the counters of one queue by the names of the kernel's netdev
// specification ("rx-packets"); a counter the driver lacks is not in the map.
type QueueStats struct {
	IfIndex  int
	Type     string
	ID       int
	Counters map[string]uint64
}

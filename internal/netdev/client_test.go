package netdev

import (
	"errors"
	"flag"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/mdlayher/genetlink"
	"github.com/mdlayher/genetlink/genltest"
	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

var update = flag.Bool("update", false, "capture replies of this kernel into testdata")

func encode(t testing.TB, f func(*netlink.AttributeEncoder)) []byte {
	t.Helper()
	ae := netlink.NewAttributeEncoder()
	f(ae)
	b, err := ae.Encode()
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// captured is the first answer of a real kernel about eth0: virtio_net on 6.18.
func captured(t testing.TB, name string) []byte {
	t.Helper()
	file := filepath.Join("testdata", name)
	if *update {
		c, err := New()
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		eth0, err := net.InterfaceByName("eth0")
		if err != nil {
			t.Fatal(err)
		}
		what := map[string]struct {
			cmd  uint8
			attr uint16
		}{"napi.bin": {cmdNAPIGet, napiIfIndex}, "queue.bin": {cmdQueueGet, queueIfIndex}, "qstats.bin": {cmdQStatsGet, qstatsIfIndex}}[name]
		msgs, err := c.execute("capture", what.cmd, netlink.Dump, func(ae *netlink.AttributeEncoder) {
			ae.Uint32(what.attr, uint32(eth0.Index))
			if what.cmd == cmdQStatsGet {
				ae.Uint32(qstatsScope, scopeQueue)
			}
		})
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, msgs[0], 0o644); err != nil {
			t.Fatal(err)
		}
	}
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestAnswersOfARealKernelAreRead(t *testing.T) {
	n, err := parseNAPI(captured(t, "napi.bin"))
	if err != nil {
		t.Fatal(err)
	}
	want := NAPI{ID: 257, IfIndex: 4, DeferHardIRQs: pointer(uint32(0)), GROFlushTimeout: pointer(uint64(0)),
		IRQSuspendTimeout: pointer(uint64(0)), Threaded: pointer(uint32(0))}
	if diff := cmp.Diff(want, n); diff != "" {
		t.Errorf("napi (-want +got)\n%s", diff)
	}
	q, err := parseQueue(captured(t, "queue.bin"))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(Queue{ID: 0, IfIndex: 4, Type: RX, NAPI: 257}, q); diff != "" {
		t.Errorf("queue (-want +got)\n%s", diff)
	}
	s, err := parseQueueStats(captured(t, "qstats.bin"))
	if err != nil {
		t.Fatal(err)
	}
	if s.IfIndex != 4 || s.Type != RX || s.ID != 0 || s.Counters["rx-packets"] == 0 || s.Counters["rx-bytes"] < s.Counters["rx-packets"] {
		t.Errorf("qstats %+v", s)
	}
}

func TestEveryAttribute(t *testing.T) {
	n, err := parseNAPI(encode(t, func(ae *netlink.AttributeEncoder) {
		ae.Uint32(napiIfIndex, 2)
		ae.Uint32(napiID, 8193)
		ae.Uint32(napiIRQ, 54)
		ae.Uint32(napiPID, 1234)
		ae.Uint32(napiDefer, 100)
		ae.Uint32(napiFlush, 200000)
		ae.Uint64(napiSuspend, 1<<33) // NLA_UINT as wide as it needs
		ae.Uint32(napiThreaded, 2)
		ae.Uint32(40, 7) // of a later kernel
	}))
	want := NAPI{ID: 8193, IfIndex: 2, IRQ: pointer(54), PID: pointer(1234), DeferHardIRQs: pointer(uint32(100)),
		GROFlushTimeout: pointer(uint64(200000)), IRQSuspendTimeout: pointer(uint64(1 << 33)), Threaded: pointer(uint32(2))}
	if diff := cmp.Diff(want, n); err != nil || diff != "" {
		t.Errorf("%v (-want +got)\n%s", err, diff)
	}
	q, err := parseQueue(encode(t, func(ae *netlink.AttributeEncoder) {
		ae.Uint32(queueID, 3)
		ae.Uint32(queueIfIndex, 2)
		ae.Uint32(queueType, 1)
		ae.Nested(queueXSK, func(*netlink.AttributeEncoder) error { return nil })
		ae.Uint32(queueDMABuf, 9)
		ae.Nested(queueIOUring, func(*netlink.AttributeEncoder) error { return nil })
	}))
	if diff := cmp.Diff(Queue{ID: 3, IfIndex: 2, Type: TX, XSK: true, DMABuf: true, IOUring: true}, q); err != nil || diff != "" {
		t.Errorf("%v (-want +got)\n%s", err, diff)
	}
	s, err := parseQueueStats(encode(t, func(ae *netlink.AttributeEncoder) {
		ae.Uint32(qstatsIfIndex, 2)
		ae.Uint32(qstatsType, 1)
		ae.Uint32(qstatsID, 1)
		for i := range counters {
			ae.Uint64(uint16(qstatsFirst+i), 1<<40+uint64(i))
		}
		ae.Uint64(uint16(qstatsFirst+len(counters)), 1) // of a later kernel
	}))
	if err != nil || len(s.Counters) != len(counters) || s.Counters["tx-wake"] != 1<<40+26 || s.Counters["rx-hw-drop-overruns"] != 1<<40+6 {
		t.Errorf("%v %+v", err, s)
	}
	d, err := parseDevice(encode(t, func(ae *netlink.AttributeEncoder) { ae.Uint32(devIfIndex, 2); ae.Uint64(devXDP, 0x7f) }))
	if diff := cmp.Diff(Device{2, 0x7f}, d); err != nil || diff != "" {
		t.Errorf("%v (-want +got)\n%s", err, diff)
	}
}

func FuzzParse(f *testing.F) {
	for _, name := range []string{"napi.bin", "queue.bin", "qstats.bin"} {
		f.Add(captured(f, name))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		for _, err := range []error{second(parseNAPI(b)), second(parseQueue(b)), second(parseQueueStats(b)), second(parseDevice(b))} {
			if err != nil && !errors.Is(err, ErrMalformed) {
				t.Errorf("%v is not ErrMalformed", err)
			}
		}
	})
}

func second[T any](_ T, err error) error { return err }

// dial serves the family with some commands.
func dial(t *testing.T, commands []uint8, f genltest.Func) *Client {
	t.Helper()
	conn := genltest.Dial(func(g genetlink.Message, n netlink.Message) ([]genetlink.Message, error) {
		if n.Header.Type != 0x10 { // GENL_ID_CTRL
			return f(g, n)
		}
		return []genetlink.Message{{Data: encode(t, func(ae *netlink.AttributeEncoder) {
			ae.Uint16(1, 21)                                        // CTRL_ATTR_FAMILY_ID
			ae.Nested(6, func(ae *netlink.AttributeEncoder) error { // CTRL_ATTR_OPS
				for i, op := range commands {
					ae.Nested(uint16(i+1), func(ae *netlink.AttributeEncoder) error {
						ae.Uint32(1, uint32(op))
						return nil
					})
				}
				return nil
			})
		})}}, nil
	})
	t.Cleanup(func() { conn.Close() })
	c, err := newClient(conn)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestKernelsWithoutTheFamilyOrACommand(t *testing.T) {
	none := genltest.Dial(func(genetlink.Message, netlink.Message) ([]genetlink.Message, error) {
		return nil, genltest.Error(int(unix.ENOENT))
	})
	defer none.Close()
	if _, err := newClient(none); !errors.Is(err, ErrNotSupported) || !strings.Contains(err.Error(), "6.4") {
		t.Errorf("no family: %v", err)
	}
	c := dial(t, []uint8{cmdDevGet}, func(genetlink.Message, netlink.Message) ([]genetlink.Message, error) {
		t.Error("a command the kernel does not have was sent")
		return nil, genltest.Error(int(unix.EOPNOTSUPP))
	})
	if !c.Commands()["dev-get"] || c.Commands()["napi-get"] {
		t.Errorf("%v", c.Commands())
	}
	for what, err := range map[string]error{
		"get queues of interface 3":           second(c.Queues(3)),
		"get napis":                           second(c.NAPIs(0)),
		"get queue statistics of interface 3": second(c.QueueStats(3)),
		"set napi 257":                        c.SetNAPI(257, NAPIChange{Threaded: pointer(uint32(1))}),
	} {
		if !errors.Is(err, ErrNotSupported) || !strings.HasPrefix(err.Error(), what+": ") {
			t.Errorf("%s: %v", what, err)
		}
	}
}

func TestDriversWithoutQueueStatistics(t *testing.T) {
	c := dial(t, []uint8{cmdQStatsGet}, func(genetlink.Message, netlink.Message) ([]genetlink.Message, error) {
		return nil, &netlink.OpError{Op: "receive", Err: unix.EOPNOTSUPP}
	})
	if _, err := c.QueueStats(3); !errors.Is(err, ErrNotSupported) || !errors.Is(err, unix.EOPNOTSUPP) {
		t.Errorf("%v", err)
	}
}

func TestSetNAPISendsOnlyWhatChanges(t *testing.T) {
	var got []netlink.Attribute
	c := dial(t, []uint8{cmdNAPISet}, func(g genetlink.Message, _ netlink.Message) ([]genetlink.Message, error) {
		var err error
		got, err = netlink.UnmarshalAttributes(g.Data)
		return []genetlink.Message{{}}, err
	})
	for _, tt := range []struct {
		change NAPIChange
		want   func(*netlink.AttributeEncoder)
	}{
		{NAPIChange{DeferHardIRQs: pointer(uint32(5))}, func(ae *netlink.AttributeEncoder) { ae.Uint32(napiDefer, 5) }},
		{NAPIChange{GROFlushTimeout: pointer(uint64(20000)), IRQSuspendTimeout: pointer(uint64(1 << 40))}, func(ae *netlink.AttributeEncoder) {
			ae.Uint32(napiFlush, 20000)
			ae.Uint64(napiSuspend, 1<<40)
		}},
		{NAPIChange{Threaded: pointer(uint32(0))}, func(ae *netlink.AttributeEncoder) { ae.Uint32(napiThreaded, 0) }},
	} {
		if err := c.SetNAPI(257, tt.change); err != nil {
			t.Fatal(err)
		}
		want, err := netlink.UnmarshalAttributes(encode(t, func(ae *netlink.AttributeEncoder) { ae.Uint32(napiID, 257); tt.want(ae) }))
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("(-want +got)\n%s", diff)
		}
	}
}

// The kernel of this host: each queue of sysfs is told, each NAPI a queue names exists.
func TestThisHost(t *testing.T) {
	c, err := New()
	if errors.Is(err, ErrNotSupported) {
		t.Skip("needs a kernel with the netdev family (6.4)")
	}
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	queues, err := c.Queues(0)
	if errors.Is(err, ErrNotSupported) {
		t.Skip("needs a kernel with queue-get (6.8)")
	}
	if err != nil {
		t.Fatal(err)
	}
	napis, err := c.NAPIs(0)
	if err != nil {
		t.Fatal(err)
	}
	known := map[uint32]int{}
	for _, n := range napis {
		known[n.ID] = n.IfIndex
	}
	told := map[string]int{}
	for _, q := range queues {
		i, err := net.InterfaceByIndex(q.IfIndex)
		if err != nil {
			t.Fatal(err)
		}
		told[i.Name+"/queues/"+q.Type+"-"+strconv.Itoa(q.ID)]++
		if q.NAPI != 0 && known[q.NAPI] != q.IfIndex {
			t.Errorf("%s %s-%d has NAPI %d, which napi-get gives interface %d", i.Name, q.Type, q.ID, q.NAPI, known[q.NAPI])
		}
	}
	files, err := filepath.Glob("/sys/class/net/*/queues/*")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		dev, queue, _ := strings.Cut(strings.TrimPrefix(f, "/sys/class/net/"), "/queues/")
		i, err := net.InterfaceByName(dev)
		if err != nil || i.Flags&net.FlagUp == 0 {
			continue // queue-get tells nothing of a device that is down
		}
		if told[dev+"/queues/"+queue] != 1 {
			t.Errorf("%s of %s is told %d times", queue, dev, told[dev+"/queues/"+queue])
		}
	}
	if _, err := c.Devices(); err != nil {
		t.Error(err)
	}
	if _, err := c.NAPIs(1 << 30); !errors.Is(err, ErrNoDevice) {
		t.Errorf("no such interface: %v, want ErrNoDevice", err)
	}
}

// Command probe answers, on the kernel it runs on, what the kernel matrix asks: does
// each BPF object load, which hooks are live, and does a known burn show up on the right
// NAPI. It prints one JSON object (Answer) on standard output.
//
// It is static and carries all it needs: the matrix runs it in guests and on the host.
// Without -dev it makes a TAP in a namespace of its own and injects frames into one
// queue; with -dev somebody sends traffic to that device meanwhile.
package main

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/cilium/ebpf/rlimit"
	"golang.org/x/sys/unix"

	"github.com/rxsteer/rxsteer/bpf"
	"github.com/rxsteer/rxsteer/internal/host"
	"github.com/rxsteer/rxsteer/internal/testnet"
)

// Answer is what the probe prints; lab/matrix reads it.
type Answer struct {
	Kernel  string            `json:"kernel"`
	Objects map[string]string `json:"objects"` // BPF object → "" loaded and attached, else why not
	Hooks   []bpf.Hook        `json:"hooks"`
	Rig     Rig               `json:"rig"`
	Reader  Reader            `json:"reader"`
}

// Reader is a known delay: datagrams over lo that are read a tenth of a second after they were sent.
type Reader struct {
	Err  string `json:"error,omitempty"`
	Sent uint64 `json:"sent"`
	// Seen had their reading timed, Right of them to 2^26 up to 2^28 ns (67 to 268 ms).
	Seen  uint64 `json:"seen"`
	Right uint64 `json:"right"`
}

// Rig is one comparison of our attribution with what is known. Times are ns.
type Rig struct {
	Name    string `json:"name"` // "tap" or the device's driver
	Err     string `json:"error,omitempty"`
	Packets uint64 `json:"packets"` // burnt for
	Burnt   uint64 `json:"burnt_ns"`
	// Attributed is the time of the device's NAPIs above what as many packets took without burn.
	Attributed int64   `json:"attributed_ns"`
	Ratio      float64 `json:"ratio"` // Attributed / Burnt
	// Elsewhere is the time of other devices' NAPIs in the same interval.
	Elsewhere uint64 `json:"elsewhere_ns"`
	// Fexit is the time of all polls between fentry and fexit of __napi_poll, ours that of
	// all NAPIs in the same interval; 0 with the reason where it does not load.
	Fexit      uint64  `json:"fexit_ns"`
	FexitPolls uint64  `json:"fexit_polls"`
	Ours       uint64  `json:"ours_ns"`
	OurPolls   uint64  `json:"our_polls"`
	FexitRatio float64 `json:"fexit_ratio"` // Ours / Fexit
	NoFexit    string  `json:"no_fexit,omitempty"`
}

func main() {
	dev := flag.String("dev", "", "measure on this device under traffic that is sent to it")
	phase := flag.Duration("for", 500*time.Millisecond, "length of each phase with -dev")
	burn := flag.Duration("burn", 100*time.Microsecond, "burn per packet")
	flag.Parse()
	a, err := ask(*dev, *phase, *burn)
	if err != nil {
		fmt.Fprintln(os.Stderr, "probe:", err)
		os.Exit(1)
	}
	enc := json.NewEncoder(os.Stdout)
	enc.SetIndent("", " ")
	if err := enc.Encode(a); err != nil {
		fmt.Fprintln(os.Stderr, "probe:", err)
		os.Exit(1)
	}
}

func ask(dev string, phase, burn time.Duration) (*Answer, error) {
	release, err := os.ReadFile("/proc/sys/kernel/osrelease")
	if err != nil {
		return nil, err
	}
	// Kernels before 5.11 charge BPF memory to RLIMIT_MEMLOCK.
	if err := rlimit.RemoveMemlock(); err != nil {
		return nil, err
	}
	a := &Answer{Kernel: strings.TrimSpace(string(release)), Objects: map[string]string{"rx": ""}}
	a.Hooks = bpf.Probe(host.OS{}, bpf.Options{}).Hooks
	programs, err := bpf.Load(bpf.Options{})
	if err == nil {
		defer programs.Close()
		err = programs.Attach()
	}
	if err != nil {
		a.Objects["rx"] = err.Error()
		return a, nil
	}
	a.Reader = reader(a.Objects)
	spread, err := bpf.LoadSpread(bpf.SpreadOptions{})
	a.Objects["spread"] = text(err)
	if err == nil {
		if err := spread.Close(); err != nil {
			return nil, err
		}
	}
	ref, err := loadReference()
	if err != nil {
		return nil, err
	}
	defer ref.close()
	m := &meter{ours: programs, ref: ref, burn: burn}
	if dev == "" {
		a.Rig = m.tap()
	} else {
		a.Rig = m.device(dev, phase)
	}
	return a, nil
}

func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// reader times the reading of datagrams by the programs of level 2.
func reader(objects map[string]string) (r Reader) {
	fail := func(err error) Reader { r.Err = err.Error(); return r }
	packets, err := bpf.LoadPackets(bpf.Options{})
	if err == nil {
		defer packets.Close()
		err = errors.Join(packets.SetRate(1), packets.Attach())
	}
	if objects["packet"] = text(err); err != nil {
		return fail(err)
	}
	ns, err := testnet.Create()
	if err != nil {
		return fail(err)
	}
	defer ns.Close()
	const sent, wait = 10, 100 * time.Millisecond
	err = ns.Do(func() error {
		if err := exec.Command("ip", "link", "set", "lo", "up").Run(); err != nil {
			return fmt.Errorf("set lo up: %w", err)
		}
		to, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
		if err != nil {
			return err
		}
		defer to.Close()
		from, err := net.DialUDP("udp", nil, to.LocalAddr().(*net.UDPAddr))
		if err != nil {
			return err
		}
		defer from.Close()
		for range sent {
			if _, err := from.Write(make([]byte, 100)); err != nil {
				return err
			}
		}
		time.Sleep(wait)
		if err := to.SetReadDeadline(time.Now().Add(time.Second)); err != nil {
			return err
		}
		buf := make([]byte, 200)
		for range sent {
			if _, err := to.Read(buf); err != nil {
				return err
			}
			r.Sent++
		}
		return nil
	})
	if err != nil {
		return fail(err)
	}
	var c bpf.PacketCounters
	if err := packets.Read(&c); err != nil {
		return fail(err)
	}
	for i, k := range c.StageKeys {
		if uint64(k.Netns) == ns.Inode() && k.Stage == bpf.ToRead {
			r.Seen += c.Stages[i].Count
			r.Right += c.Stages[i].Hist[27] + c.Stages[i].Hist[28]
		}
	}
	return r
}

// reference is the loaded reference programs.
type reference struct {
	objs    refObjects
	links   []link.Link
	noFexit string
	pins    string // a mount of bpffs that namespaces made later see too
}

// loadReference loads the burn, and fentry and fexit where the kernel lets it.
func loadReference() (*reference, error) {
	pins, err := os.MkdirTemp("", "probe")
	if err != nil {
		return nil, err
	}
	if err := unix.Mount("bpf", pins, "bpf", 0, ""); err != nil {
		return nil, errors.Join(fmt.Errorf("mount bpffs: %w", err), os.Remove(pins))
	}
	r := &reference{pins: pins}
	err = loadRefObjects(&r.objs, nil)
	if err == nil {
		for _, p := range []*ebpf.Program{r.objs.PollExit, r.objs.PollEntry} {
			var l link.Link
			if l, err = link.AttachTracing(link.TracingOptions{Program: p}); err != nil {
				break
			}
			r.links = append(r.links, l)
		}
	}
	if err == nil {
		return r, nil
	}
	r.noFexit = firstLine(err)
	r.unload()
	spec, err := loadRef()
	if err != nil {
		r.close()
		return nil, err
	}
	var objs struct {
		Burn    *ebpf.Program  `ebpf:"clock_burn"`
		Tallies *ebpf.Map      `ebpf:"tallies"`
		BurnNs  *ebpf.Variable `ebpf:"burn_ns"`
	}
	if err := spec.LoadAndAssign(&objs, nil); err != nil {
		r.close()
		return nil, fmt.Errorf("load the burn: %w", err)
	}
	r.objs = refObjects{ // the two that were left out stay nil
		refPrograms: refPrograms{ClockBurn: objs.Burn}, refMaps: refMaps{Tallies: objs.Tallies}, refVariables: refVariables{BurnNs: objs.BurnNs}}
	return r, nil
}

// unload takes the programs out of the kernel.
func (r *reference) unload() {
	for _, l := range r.links {
		l.Close()
	}
	r.links = nil
	r.objs.Close()
}

func (r *reference) close() {
	r.unload()
	unix.Unmount(r.pins, unix.MNT_DETACH)
	os.Remove(r.pins)
}

// read sums the CPUs.
func (r *reference) read() (refTally, error) {
	var cpus []refTally
	var sum refTally
	if err := r.objs.Tallies.Lookup(uint32(0), &cpus); err != nil {
		return sum, fmt.Errorf("read the reference: %w", err)
	}
	for _, c := range cpus {
		sum.Polls += c.Polls
		sum.PollTime += c.PollTime
		sum.Packets += c.Packets
		sum.Burnt += c.Burnt
	}
	return sum, nil
}

// meter takes differences of our counters and the reference.
type meter struct {
	ours *bpf.Programs
	ref  *reference
	burn time.Duration
}

// interval is what happened between two readings.
type interval struct {
	ref              refTally
	device, others   uint64 // ns of NAPIs
	packets          uint64 // of the device
	polls, pollsTime uint64 // of all NAPIs
}

func (m *meter) read(ifindex int, inode uint64) (interval, error) {
	var c bpf.Counters
	var i interval
	// The reference is read before and after ours, and its middle taken: no interval of one
	// is on the whole longer or later than the other's.
	before, err := m.ref.read()
	if err != nil {
		return i, err
	}
	if err := m.ours.Read(&c); err != nil {
		return i, err
	}
	after, err := m.ref.read()
	if err != nil {
		return i, err
	}
	i.ref = middle(before, after)
	for k, key := range c.NAPIKeys {
		s := c.NAPIs[k]
		i.polls += s.Polls
		i.pollsTime += s.Time
		if int(key.Ifindex) == ifindex && uint64(key.Netns) == inode {
			i.device += s.Time
			i.packets += s.Packets
		} else {
			i.others += s.Time
		}
	}
	return i, nil
}

func middle(a, b refTally) refTally {
	half := func(x, y uint64) uint64 { return x + (y-x)/2 }
	return refTally{Polls: half(a.Polls, b.Polls), PollTime: half(a.PollTime, b.PollTime),
		Packets: half(a.Packets, b.Packets), Burnt: half(a.Burnt, b.Burnt)}
}

// rounds is how many free and burnt phases there are.
const rounds = 4

func (i *interval) add(j interval) {
	i.ref.Polls += j.ref.Polls
	i.ref.PollTime += j.ref.PollTime
	i.ref.Packets += j.ref.Packets
	i.ref.Burnt += j.ref.Burnt
	i.device += j.device
	i.others += j.others
	i.packets += j.packets
	i.polls += j.polls
	i.pollsTime += j.pollsTime
}

// during measures f.
func (m *meter) during(ifindex int, inode uint64, f func() error) (interval, error) {
	a, err := m.read(ifindex, inode)
	if err != nil {
		return a, err
	}
	if err := f(); err != nil {
		return a, err
	}
	b, err := m.read(ifindex, inode)
	if err != nil {
		return a, err
	}
	return interval{
		ref: refTally{Polls: b.ref.Polls - a.ref.Polls, PollTime: b.ref.PollTime - a.ref.PollTime,
			Packets: b.ref.Packets - a.ref.Packets, Burnt: b.ref.Burnt - a.ref.Burnt},
		device: b.device - a.device, others: b.others - a.others, packets: b.packets - a.packets,
		polls: b.polls - a.polls, pollsTime: b.pollsTime - a.pollsTime,
	}, nil
}

// compare runs f without and with the burn and fills the rig.
func (m *meter) compare(name string, ifindex int, inode uint64, f func() error) Rig {
	rig := Rig{Name: name, NoFexit: m.ref.noFexit}
	fail := func(err error) Rig { rig.Err = err.Error(); return rig }
	if err := f(); err != nil { // warm: the first polls fill maps and caches
		return fail(err)
	}
	// Free and burnt phases alternate, so that what drifts meanwhile hits both.
	var free, burnt interval
	for range rounds {
		i, err := m.during(ifindex, inode, f)
		if err != nil {
			return fail(err)
		}
		free.add(i)
		if err := m.ref.objs.BurnNs.Set(uint64(m.burn)); err != nil {
			return fail(err)
		}
		i, err = m.during(ifindex, inode, f)
		if err := errors.Join(err, m.ref.objs.BurnNs.Set(uint64(0))); err != nil {
			return fail(err)
		}
		burnt.add(i)
	}
	if free.packets == 0 || burnt.packets == 0 || burnt.ref.Burnt == 0 {
		return fail(fmt.Errorf("no traffic: %d packets without burn, %d with it, %d ns burnt", free.packets, burnt.packets, burnt.ref.Burnt))
	}
	base := float64(free.device) / float64(free.packets)
	rig.Packets, rig.Burnt, rig.Elsewhere = burnt.ref.Packets, burnt.ref.Burnt, burnt.others
	rig.Attributed = int64(float64(burnt.device) - base*float64(burnt.packets))
	rig.Ratio = float64(rig.Attributed) / float64(rig.Burnt)
	if rig.NoFexit == "" {
		rig.Fexit, rig.FexitPolls = burnt.ref.PollTime, burnt.ref.Polls
		rig.Ours, rig.OurPolls = burnt.pollsTime, burnt.polls
		rig.FexitRatio = float64(rig.Ours) / float64(max(rig.Fexit, 1))
	}
	return rig
}

// tap injects frames into queue 1 of a TAP of two queues, in a namespace of its own.
func (m *meter) tap() Rig {
	const frames = 500
	rig, err := func() (Rig, error) {
		ns, err := testnet.Create()
		if err != nil {
			return Rig{}, err
		}
		defer ns.Close()
		tap, err := ns.NewTAP("rxtap", 2)
		if err != nil {
			return Rig{}, err
		}
		defer tap.Close()
		ifindex, err := ns.IfIndex(tap.Name)
		if err != nil {
			return Rig{}, err
		}
		mac, err := ns.MAC(tap.Name)
		if err != nil {
			return Rig{}, err
		}
		var detach func() error
		if err := ns.Do(func() (err error) { detach, err = m.ref.attachBurn(tap.Name, ifindex); return err }); err != nil {
			return Rig{}, err
		}
		frame := udpFrame(mac)
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		rig := m.compare("tap", ifindex, ns.Inode(), func() error {
			for range frames {
				if err := tap.Inject(1, frame); err != nil {
					return err
				}
			}
			return nil
		})
		return rig, ns.Do(detach)
	}()
	if err != nil {
		rig.Name, rig.Err = "tap", err.Error()
	}
	return rig
}

// device measures a real device under somebody else's traffic.
func (m *meter) device(name string, phase time.Duration) Rig {
	rig, err := func() (Rig, error) {
		dev, err := net.InterfaceByName(name)
		if err != nil {
			return Rig{}, err
		}
		driver, err := os.Readlink(filepath.Join("/sys/class/net", name, "device/driver"))
		if err != nil {
			return Rig{}, err
		}
		var st unix.Stat_t
		if err := unix.Stat("/proc/self/ns/net", &st); err != nil {
			return Rig{}, err
		}
		detach, err := m.ref.attachBurn(name, dev.Index)
		if err != nil {
			return Rig{}, err
		}
		rig := m.compare(filepath.Base(driver), dev.Index, st.Ino, func() error { time.Sleep(phase); return nil })
		return rig, detach()
	}()
	if err != nil {
		rig.Name, rig.Err = name, err.Error()
	}
	return rig
}

// attachBurn attaches the burn at a device's ingress: tcx (6.6 and later), else tc(8) with a
// pinned program.
func (r *reference) attachBurn(name string, ifindex int) (detach func() error, err error) {
	l, err := link.AttachTCX(link.TCXOptions{Interface: ifindex, Program: r.objs.ClockBurn, Attach: ebpf.AttachTCXIngress})
	if err == nil {
		return l.Close, nil
	}
	if !errors.Is(err, link.ErrNotSupported) {
		return nil, fmt.Errorf("attach the burn: %w", err)
	}
	pin := filepath.Join(r.pins, "clock_burn")
	if err := r.objs.ClockBurn.Pin(pin); err != nil {
		return nil, err
	}
	defer r.objs.ClockBurn.Unpin()
	for _, line := range []string{"qdisc add dev " + name + " clsact", "filter add dev " + name + " ingress bpf direct-action object-pinned " + pin} {
		if out, err := exec.Command("tc", strings.Fields(line)...).CombinedOutput(); err != nil {
			return nil, fmt.Errorf("tc %s: %w: %s", line, err, out)
		}
	}
	return func() error { return exec.Command("tc", "qdisc", "del", "dev", name, "clsact").Run() }, nil
}

// udpFrame is a minimal UDP datagram to a multicast-free foreign address: the stack drops it
// after the ingress hook.
func udpFrame(to net.HardwareAddr) []byte {
	f := append([]byte{}, to...)
	f = append(f, 2, 0, 0, 0, 0, 1, 0x08, 0x00)
	ip := make([]byte, 20, 64)
	ip[0], ip[8], ip[9] = 0x45, 64, unix.IPPROTO_UDP
	binary.BigEndian.PutUint16(ip[2:], 46)
	copy(ip[12:], []byte{192, 0, 2, 1})
	copy(ip[16:], []byte{192, 0, 2, 2})
	var sum uint32
	for i := 0; i < 20; i += 2 {
		sum += uint32(binary.BigEndian.Uint16(ip[i:]))
	}
	for sum > 0xffff {
		sum = sum&0xffff + sum>>16
	}
	binary.BigEndian.PutUint16(ip[10:], ^uint16(sum))
	udp := make([]byte, 26)
	binary.BigEndian.PutUint16(udp, 1000)
	binary.BigEndian.PutUint16(udp[2:], 9)
	binary.BigEndian.PutUint16(udp[4:], 26)
	return append(append(f, ip...), udp...)
}

func firstLine(err error) string {
	s, _, _ := strings.Cut(err.Error(), "\n")
	return s
}

package sockdiag

import (
	"encoding/binary"
	"errors"
	"io"
	"net"
	"net/netip"
	"syscall"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// The offsets are those of the kernel's structure as package unix has it.
func TestOffsets(t *testing.T) {
	var i unix.TCPInfo
	for _, x := range []struct {
		name      string
		got, want uintptr
	}{
		{"rtt", 68, unsafe.Offsetof(i.Rtt)}, {"rcv_rtt", 92, unsafe.Offsetof(i.Rcv_rtt)}, {"total_retrans", 100, unsafe.Offsetof(i.Total_retrans)},
		{"bytes_acked", 120, unsafe.Offsetof(i.Bytes_acked)}, {"bytes_received", 128, unsafe.Offsetof(i.Bytes_received)},
		{"segs_out", 136, unsafe.Offsetof(i.Segs_out)}, {"busy_time", 168, unsafe.Offsetof(i.Busy_time)},
		{"rwnd_limited", 176, unsafe.Offsetof(i.Rwnd_limited)}, {"sndbuf_limited", 184, unsafe.Offsetof(i.Sndbuf_limited)},
	} {
		if x.got != x.want {
			t.Errorf("%s is read at %d, it is at %d", x.name, x.got, x.want)
		}
	}
}

// pair is a connection over the loopback.
func pair(t *testing.T) (client, server net.Conn) {
	t.Helper()
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	accepted := make(chan net.Conn, 1)
	go func() {
		c, err := l.Accept()
		if err != nil {
			t.Error(err)
		}
		accepted <- c
	}()
	if client, err = net.Dial("tcp4", l.Addr().String()); err != nil {
		t.Fatal(err)
	}
	server = <-accepted
	t.Cleanup(func() { client.Close(); server.Close() })
	return client, server
}

func find(t *testing.T, local net.Addr) Flow {
	t.Helper()
	all, err := TCP(1 << 16)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range all {
		if f.Local == netip.MustParseAddrPort(local.String()) {
			return f
		}
	}
	t.Fatalf("%v is not among %d connections", local, len(all))
	return Flow{}
}

func TestConnection(t *testing.T) {
	client, server := pair(t)
	before := find(t, server.LocalAddr())
	if _, err := client.Write(make([]byte, 100000)); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(server, make([]byte, 100000)); err != nil {
		t.Fatal(err)
	}
	f := find(t, server.LocalAddr())
	if f.BytesReceived-before.BytesReceived != 100000 || f.Remote.String() != client.LocalAddr().String() || f.Cookie != before.Cookie || f.Cookie == 0 {
		t.Errorf("before %+v\nafter %+v\nwant 100000 bytes received from %v", before, f, client.LocalAddr())
	}
	if f.ReceiveBuffer == 0 || f.Congestion == "" {
		t.Errorf("%+v: no buffer or congestion control told", f)
	}
}

// A reader that sleeps holds back the sender, and the kernel says by what.
func TestPeerWindow(t *testing.T) {
	client, server := pair(t)
	if err := server.(*net.TCPConn).SetReadBuffer(4096); err != nil {
		t.Fatal(err)
	}
	sent := make(chan struct{})
	go func() {
		defer close(sent)
		client.Write(make([]byte, 32<<20)) // until the test closes it
	}()
	for {
		if f := find(t, client.LocalAddr()); f.PeerWindow > 0 {
			if f.Busy < f.PeerWindow {
				t.Errorf("held back %v of %v", f.PeerWindow, f.Busy)
			}
			break
		}
	}
	client.Close()
	<-sent
}

func TestMoreConnectionsThanAskedFor(t *testing.T) {
	pair(t)
	if _, err := TCP(1); !errors.Is(err, ErrTooMany) {
		t.Errorf("error %v, want ErrTooMany", err)
	}
}

func TestErrorAnswer(t *testing.T) {
	b := make([]byte, 36)
	binary.NativeEndian.PutUint32(b, 36)
	binary.NativeEndian.PutUint16(b[4:], unix.NLMSG_ERROR)
	no := -int32(unix.ENOENT)
	binary.NativeEndian.PutUint32(b[16:], uint32(no))
	if _, _, err := parse(b, parseFlow); !errors.Is(err, unix.ENOENT) {
		t.Errorf("error %v, want ENOENT", err)
	}
}

func FuzzParse(f *testing.F) {
	f.Add(request(unix.AF_INET, unix.IPPROTO_TCP, 0, 1<<established))
	answer := make([]byte, 16+msgSize+8)
	binary.NativeEndian.PutUint32(answer, uint32(len(answer)))
	binary.NativeEndian.PutUint16(answer[4:], byFamily)
	binary.NativeEndian.PutUint16(answer[16+msgSize:], 8)
	binary.NativeEndian.PutUint16(answer[16+msgSize+2:], diagInfo)
	f.Add(answer)
	f.Fuzz(func(t *testing.T, b []byte) {
		flows, _, err := parse(b, parseFlow)
		if err != nil && flows != nil {
			t.Errorf("%d connections beside an error", len(flows))
		}
	})
}

func TestSocketsAreTheirInodes(t *testing.T) {
	client, server := pair(t)
	udp, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	defer udp.Close()
	all, err := Sockets(1 << 20)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []struct {
		protocol string
		conn     syscall.Conn
		local    net.Addr
	}{{"tcp", client.(syscall.Conn), client.LocalAddr()}, {"tcp", server.(syscall.Conn), server.LocalAddr()}, {"udp", udp, udp.LocalAddr()}} {
		raw, err := want.conn.SyscallConn()
		if err != nil {
			t.Fatal(err)
		}
		var st unix.Stat_t
		if err := raw.Control(func(fd uintptr) { err = unix.Fstat(int(fd), &st) }); err != nil {
			t.Fatal(err)
		}
		found := false
		for _, s := range all {
			found = found || s.Protocol == want.protocol && s.Local.String() == want.local.String() && s.Inode == st.Ino
		}
		if !found {
			t.Errorf("%s %v with inode %d is not among %d sockets", want.protocol, want.local, st.Ino, len(all))
		}
	}
	if _, err := Sockets(1); !errors.Is(err, ErrTooMany) {
		t.Errorf("error %v, want ErrTooMany", err)
	}
}

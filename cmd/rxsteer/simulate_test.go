package main

import (
	"bytes"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"github.com/gopacket/gopacket/pcapgo"

	"github.com/rxsteer/rxsteer/lab/traffic"
)

// skewedCapture is an elephant, mice, fragments, PPPoE and ARP.
func skewedCapture(t *testing.T) []byte {
	t.Helper()
	var b bytes.Buffer
	w := pcapgo.NewWriter(&b)
	if err := w.WriteFileHeader(65536, layers.LinkTypeEthernet); err != nil {
		t.Fatal(err)
	}
	at := time.Unix(1e9, 0)
	add := func(n int, frames ...[]byte) {
		for range n {
			for _, f := range frames {
				at = at.Add(time.Microsecond)
				if err := w.WritePacket(gopacket.CaptureInfo{Timestamp: at, CaptureLength: len(f), Length: len(f)}, f); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	frame := func(port uint16, change func(*traffic.Frame)) [][]byte {
		f := traffic.Frame{SrcMAC: net.HardwareAddr{2, 0, 0, 0, 0, 1}, DstMAC: net.HardwareAddr{2, 0, 0, 0, 0, 2}, Size: 100,
			Src: netip.AddrPortFrom(netip.MustParseAddr("10.9.0.1"), port), Dst: netip.MustParseAddrPort("10.9.1.1:443"), TCP: true}
		change(&f)
		tpl, err := f.Build()
		if err != nil {
			t.Fatal(err)
		}
		return tpl.Frames
	}
	plain := func(*traffic.Frame) {}
	add(3000, frame(7777, plain)...)
	for port := range uint16(300) {
		add(20, frame(1024+port, plain)...)
	}
	add(100, frame(9, func(f *traffic.Frame) { f.TCP, f.Size, f.Fragment = false, 400, 200 })...)
	add(50, frame(9, func(f *traffic.Frame) { f.Encap, f.ID = traffic.PPPoE, 1 })...)
	add(50, frame(9, func(f *traffic.Frame) { f.VLANs = []uint16{5} })...)
	add(10, append([]byte{2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 6}, make([]byte, 46)...))
	return b.Bytes()
}

func TestSimulate(t *testing.T) {
	dir := t.TempDir()
	all := skewedCapture(t)
	write := func(name string, b []byte) string {
		file := filepath.Join(dir, name)
		if err := os.WriteFile(file, b, 0o600); err != nil {
			t.Fatal(err)
		}
		return file
	}
	whole, short, text := write("load.pcap", all), write("short.pcap", all[:len(all)/2]), write("text.pcap", []byte("no capture, but long enough for a header"))
	sim := func(args ...string) (code int, out, errs string) {
		e, stdout, stderr := testEnv(append([]string{"simulate"}, args...)...)
		code = run(t.Context(), e)
		return code, stdout.String(), stderr.String()
	}
	code, out, errs := sim(whole, "--queues", "4")
	if code != exitOK || errs != "" {
		t.Fatalf("exit %d: %s", code, errs)
	}
	golden(t, "simulate.txt", out)
	code, out, errs = sim(whole, "--queues", "2", "--table", "8", "-o", "json")
	if code != exitOK {
		t.Fatalf("exit %d: %s", code, errs)
	}
	golden(t, "simulate.json", out)

	code, out, errs = sim(short)
	if code != exitOK || !strings.Contains(errs, "is cut short") || !strings.Contains(out, "tcp4") {
		t.Errorf("cut short: exit %d, %q, %q", code, out, errs)
	}
	for _, tt := range []struct {
		code int
		say  string
		args []string
	}{
		{exitFailed, "neither pcap nor pcapng", []string{text}},
		{exitFailed, "no such file", []string{filepath.Join(dir, "none.pcap")}},
		{exitUsage, "--key xyz", []string{whole, "--key", "xyz"}},
		{exitUsage, "hash fields", []string{whole, "--fields", "sdx"}},
		{exitUsage, "a table of 2 entries", []string{whole, "--table", "2"}},
		{exitUsage, "0 queues", []string{whole, "--queues", "0"}},
	} {
		if code, out, errs := sim(tt.args...); code != tt.code || out != "" || !strings.Contains(errs, tt.say) {
			t.Errorf("%v: exit %d, stdout %q, stderr %q; want exit %d and %q", tt.args, code, out, errs, tt.code, tt.say)
		}
	}
	// Another key spreads otherwise, and the same written with colons likewise.
	_, other, _ := sim(whole, "--key", "00112233445566778899aabbccddeeff00112233")
	_, same, _ := sim(whole, "--key", "00:11:22:33:44:55:66:77:88:99:aa:bb:cc:dd:ee:ff:00:11:22:33")
	if _, plain, _ := sim(whole); other != same || other == plain {
		t.Error("the key makes no difference, or its colons do")
	}
}

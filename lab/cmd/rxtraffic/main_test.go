package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"io"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rxsteer/rxsteer/internal/testnet"
	"github.com/rxsteer/rxsteer/lab/traffic"
)

func TestUsageErrors(t *testing.T) {
	for _, line := range []string{
		"",
		"fly",
		"send",
		"send --to nowhere",
		"send --to 10.0.0.1:0",
		"send --to 10.0.0.1:9 --nope",
		"send --to 10.0.0.1:9 stray",
		"send --to 10.0.0.1:9 --size 8",
		"send --to 10.0.0.1:9 --size ,",
		"send --to 10.0.0.1:9 --for 0",
		"send --to 10.0.0.1:9 --proto sctp",
		"send --to 10.0.0.1:9 --src-ports 9-1",
		"send --to 10.0.0.1:9 --dev lo",
		"send --to 10.0.0.1:9 --dev lo --dst-mac 02:00:00:00:00:01 --src-mac 02:00:00:00:00:02",
		"recv",
		"recv --listen 127.0.0.1:9 --for 0",
		"recv --listen 127.0.0.1:9 --proto sctp",
		"probe --to 127.0.0.1:9 --rate 0",
	} {
		if err := run(context.Background(), strings.Fields(line), io.Discard, io.Discard); !errors.Is(err, errUsage) {
			t.Errorf("rxtraffic %s: got %v, want a usage error", line, err)
		}
	}
	for _, line := range []string{"send --help", "recv --help", "probe --help"} {
		var out bytes.Buffer
		if err := run(context.Background(), strings.Fields(line), io.Discard, &out); !errors.Is(err, flag.ErrHelp) || !strings.Contains(out.String(), "-for time") {
			t.Errorf("rxtraffic %s: %v\n%s", line, err, &out)
		}
	}
}

func TestPorts(t *testing.T) {
	got, err := ports("1000,1010-1012")
	if diff := cmp.Diff([]uint16{1000, 1010, 1011, 1012}, got); err != nil || diff != "" {
		t.Errorf("ports: %v (-want +got):\n%s", err, diff)
	}
	for _, bad := range []string{"0", "x", "70000", "5-4", "1-70000", "1,"} {
		if got, err := ports(bad); err == nil {
			t.Errorf("ports(%q) = %v, want an error", bad, got)
		}
	}
}

// readiness signals when the receiver says that it listens.
type readiness struct {
	once sync.Once
	ch   chan struct{}
}

func (r *readiness) Write(p []byte) (int, error) {
	if bytes.Contains(p, []byte("rxtraffic: ready")) {
		r.once.Do(func() { close(r.ch) })
	}
	return len(p), nil
}

func TestSendRecvProbeBetweenNamespaces(t *testing.T) {
	a, b := testnet.New(t), testnet.New(t)
	if err := testnet.Connect(a, b, testnet.Veth{AddrA: "10.3.0.1/24 fd03::1/64", AddrB: "10.3.0.2/24 fd03::2/64", StaticNeigh: true}); err != nil {
		t.Fatal(err)
	}
	mac, err := b.MAC("b0")
	if err != nil {
		t.Fatal(err)
	}
	inside := func(ns *testnet.NS, line string, out any) error {
		var buf bytes.Buffer
		if err := ns.Do(func() error { return run(context.Background(), strings.Fields(line), &buf, io.Discard) }); err != nil {
			return err
		}
		return json.Unmarshal(buf.Bytes(), out)
	}
	for _, tc := range []struct{ name, recv, send string }{
		{"udp", "--listen 10.3.0.2:9000", "--to 10.3.0.2:9000 --src-ports 5000-5003"},
		{"udp6", "--listen [fd03::2]:9000", "--to [fd03::2]:9000 --flows 4"},
		{"tcp", "--listen 10.3.0.2:9000 --proto tcp", "--to 10.3.0.2:9000 --flows 4 --proto tcp --size 64,700"},
		{"frames", "--listen 10.3.0.2:9000", "--to 10.3.0.2:9000 --flows 4 --dev a0 --from 10.3.0.1 --fragment 64 --size 300 --dst-mac " + mac.String()},
	} {
		t.Run(tc.name, func(t *testing.T) {
			ready := &readiness{ch: make(chan struct{})}
			var wg sync.WaitGroup
			var out bytes.Buffer
			wg.Go(func() {
				line := "recv --json --for 30s --count 400 " + tc.recv
				if err := b.Do(func() error { return run(context.Background(), strings.Fields(line), &out, ready) }); err != nil {
					t.Error(err)
					ready.once.Do(func() { close(ready.ch) })
				}
			})
			<-ready.ch
			var sent traffic.SendReport
			if err := inside(a, "send --json --rate 2000 --for 0 --count 400 --max-lag 1m "+tc.send, &sent); err != nil {
				t.Error(err)
			}
			wg.Wait()
			var got traffic.RecvReport
			if err := json.Unmarshal(out.Bytes(), &got); err != nil {
				t.Fatal(err)
			}
			if sent.Sent != 400 || got.Received != 400 || got.Lost != 0 || len(got.Flows) != 4 {
				t.Errorf("sent %+v, received %+v", sent, got)
			}
		})
	}
	t.Run("probe", func(t *testing.T) {
		ready := &readiness{ch: make(chan struct{})}
		ctx, cancel := context.WithCancel(context.Background())
		var wg sync.WaitGroup
		wg.Go(func() {
			if err := b.Do(func() error {
				return run(ctx, strings.Fields("recv --listen 10.3.0.2:9000"), io.Discard, ready)
			}); err != nil {
				t.Error(err)
			}
		})
		<-ready.ch
		var p traffic.ProbeReport
		if err := inside(a, "probe --json --to 10.3.0.2:9000 --for 100ms", &p); err != nil {
			t.Error(err)
		}
		cancel()
		wg.Wait()
		if p.Received != 10 || p.Lost != 0 || p.RTT.P50 <= 0 {
			t.Errorf("probe %+v", p)
		}
	})
}

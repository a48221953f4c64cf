package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"io"
	"strings"
	"testing"

	"github.com/rxsteer/rxsteer/internal/testnet"
)

func TestUsage(t *testing.T) {
	for _, args := range [][]string{{}, {"a", "b"}, {"--us", "0", "a"}, {"--nope"}, {"--iterations", "999999", "a"}} {
		if err := run(context.Background(), args, io.Discard, io.Discard); !errors.Is(err, errUsage) {
			t.Errorf("rxburn %v: got %v, want a usage error", args, err)
		}
	}
	var out bytes.Buffer
	if err := run(context.Background(), []string{"--help"}, io.Discard, &out); !errors.Is(err, flag.ErrHelp) || !strings.Contains(out.String(), "-us") {
		t.Errorf("--help: %v\n%s", err, &out)
	}
	if err := run(context.Background(), []string{"absent0"}, io.Discard, io.Discard); err == nil || !strings.Contains(err.Error(), "absent0") {
		t.Errorf("absent device: got %v, want an error that names it", err)
	}
}

func TestReportsTheCalibratedBurn(t *testing.T) {
	ns := testnet.New(t)
	if err := ns.IP("link", "add", "x0", "type", "veth", "peer", "name", "x1"); err != nil {
		t.Fatal(err)
	}
	var out, progress bytes.Buffer
	if err := ns.Do(func() error {
		return run(context.Background(), []string{"--us", "5", "--for", "50ms", "--json", "x0"}, &out, &progress)
	}); err != nil {
		t.Fatal(err)
	}
	var res result
	if err := json.Unmarshal(out.Bytes(), &res); err != nil {
		t.Fatal(err)
	}
	if res.Device != "x0" || res.NsPerPacket < 4800 || res.NsPerPacket > 5200 || res.Seconds < 0.05 {
		t.Errorf("result %+v", res)
	}
	if !strings.Contains(progress.String(), "rxburn: ready") {
		t.Errorf("no readiness line: %q", &progress)
	}
}

package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/rxsteer/rxsteer/internal/testnet"
)

// soakTime is how long the agent is worn: $RXSTEER_SOAK ("1h" in make soak), else what CI can afford.
func soakTime(t *testing.T) time.Duration {
	text := os.Getenv("RXSTEER_SOAK")
	if text == "" {
		return 60 * time.Second
	}
	d, err := time.ParseDuration(text)
	if err != nil {
		t.Fatalf("RXSTEER_SOAK: %v", err)
	}
	return d
}

const (
	mostResident = 60 << 20
	mostCPU      = 0.05 // of one CPU: a shared machine of two, not the budget itself
)

// wear is what an agent holds.
type wear struct {
	fds, bpf int
	resident int64
	cpu      time.Duration
}

func worn(t *testing.T, pid int) (p wear) {
	t.Helper()
	dir := fmt.Sprintf("/proc/%d", pid)
	fds, err := os.ReadDir(dir + "/fd")
	if err != nil {
		t.Fatal(err)
	}
	p.fds = len(fds)
	for _, fd := range fds {
		if info, err := os.ReadFile(dir + "/fdinfo/" + fd.Name()); err == nil && (bytes.Contains(info, []byte("map_id:")) || bytes.Contains(info, []byte("prog_id:"))) {
			p.bpf++
		}
	}
	status, err := os.ReadFile(dir + "/status")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(status)) {
		if f := strings.Fields(line); len(f) == 3 && f[0] == "VmRSS:" {
			kb, err := strconv.ParseInt(f[1], 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			p.resident = kb << 10
		}
	}
	stat, err := os.ReadFile(dir + "/stat")
	if err != nil {
		t.Fatal(err)
	}
	f := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+2:]))
	for _, i := range []int{11, 12} { // utime, stime in ticks of 10 ms
		n, err := strconv.Atoi(f[i])
		if err != nil {
			t.Fatal(err)
		}
		p.cpu += time.Duration(n) * 10 * time.Millisecond
	}
	return p
}

// TestSoak wears an agent in auto mode: mixed load, links that flap, devices that come and go, somebody who fights
// over a setting, kill −9, and clients of the worst manners. It leaks nothing, stays small, goes on sampling, and all it
// changed can be put back.
func TestSoak(t *testing.T) {
	total := soakTime(t)
	ns, peer := testnet.New(t), testnet.New(t)
	for i := range 2 {
		v := testnet.Veth{A: fmt.Sprintf("a%d", i), B: fmt.Sprintf("b%d", i), Queues: 2, AddrA: fmt.Sprintf("10.98.%d.1/24", i), AddrB: fmt.Sprintf("10.98.%d.2/24", i), NAPI: true, StaticNeigh: true}
		if err := testnet.Connect(peer, ns, v); err != nil {
			t.Fatal(err)
		}
	}
	read := func() map[string]string {
		out := map[string]string{}
		for _, f := range []string{"b0/queues/rx-0/rps_cpus", "b0/queues/rx-1/rps_cpus", "b0/queues/tx-0/xps_cpus", "b1/queues/rx-0/rps_cpus", "b1/queues/rx-1/rps_cpus"} {
			text, err := ns.FS().ReadFile("/sys/class/net/" + f)
			if err != nil {
				t.Fatal(err)
			}
			out[f] = strings.TrimSpace(string(text))
		}
		return out
	}
	original := read()
	dir := t.TempDir()
	config := filepath.Join(dir, "agent.yaml")
	if err := os.WriteFile(config, []byte("mode: auto\ninterval: 2s\ndevices:\n- name: b0\n- name: b1\nlimits: {persist: 1, cool_down: 1s, yield: 10m}\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	start := func() (*exec.Cmd, string, func() string) {
		cmd := ns.Command(t.Context(), "rxsteer", "agent", "--config", config, "--web.listen-address", "127.0.0.1:0", "--state-dir", filepath.Join(dir, "run"))
		url, rest := startAgent(t, cmd)
		return cmd, url, rest
	}
	cmd, url, rest := start()
	dial := func(_ context.Context, network, addr string) (c net.Conn, err error) {
		err = ns.Do(func() (err error) { c, err = net.DialTimeout(network, addr, 2*time.Second); return err })
		return c, err
	}
	client := &http.Client{Timeout: 20 * time.Second, Transport: &http.Transport{DialContext: dial, MaxIdleConnsPerHost: 8}}
	awaitSample(t, client, url)

	load, stopLoad := context.WithCancel(t.Context())
	var users sync.WaitGroup
	defer users.Wait()
	defer stopLoad()
	for i := range 2 {
		for port := range 4 {
			var c net.Conn
			if err := peer.Do(func() (err error) {
				c, err = net.Dial("udp", fmt.Sprintf("10.98.%d.2:%d", i, 2000+port))
				return err
			}); err != nil {
				t.Fatal(err)
			}
			users.Go(func() {
				defer c.Close()
				for n := 0; load.Err() == nil; n++ {
					c.Write(make([]byte, 64)) // some are refused, nobody listens
					if n%20 == 0 {
						time.Sleep(5 * time.Millisecond)
					}
				}
			})
		}
	}
	fight, stopFight := context.WithCancel(t.Context())
	defer stopFight()
	users.Go(func() { // somebody else's tuning of b1
		for n := 0; fight.Err() == nil; n++ {
			if err := ns.SetRPS("b1", 0, []string{"1", "2"}[n%2]); err != nil {
				t.Error(err)
				return
			}
			time.Sleep(300 * time.Millisecond)
		}
	})
	time.Sleep(5 * time.Second) // first looks, first loads
	first, began := worn(t, cmd.Process.Pid), time.Now()

	// Quiet wear: flaps and a device that comes and goes, nobody scrapes.
	quiet := time.Now().Add(total / 3)
	for n := 0; time.Now().Before(quiet); n++ {
		var err error
		switch n % 4 {
		case 0:
			err = ns.IP("link", "set", "b0", "down")
		case 1:
			err = ns.IP("link", "set", "b0", "up")
		case 2:
			err = ns.IP("link", "add", "d0", "type", "veth", "peer", "name", "d1")
		case 3:
			err = ns.IP("link", "del", "d0")
		}
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(700 * time.Millisecond)
	}
	if err := ns.IP("link", "set", "b0", "up"); err != nil {
		t.Fatal(err)
	}
	second := worn(t, cmd.Process.Pid)
	share := (second.cpu - first.cpu).Seconds() / time.Since(began).Seconds()
	t.Logf("quiet: %d → %d descriptors, %d → %d of BPF, %d → %d KiB, %.1f %% of a CPU", first.fds, second.fds, first.bpf, second.bpf, first.resident>>10, second.resident>>10, 100*share)
	if second.fds > first.fds+4 || second.bpf > first.bpf+4 {
		t.Errorf("descriptors leak: %+v, then %+v", first, second)
	}
	if share > mostCPU {
		t.Errorf("it took %.1f %% of a CPU", 100*share)
	}

	// Rude clients: many that send their request a byte at a time, garbage, and 100 scrapes a second.
	samples := func() float64 {
		_, body := get(t, client, url+"/metrics")
		return value(t, body, "rxsteer_samples_total")
	}
	before, at := samples(), time.Now()
	rude, stopRude := context.WithTimeout(t.Context(), total/3)
	var guests sync.WaitGroup
	host := strings.TrimPrefix(url, "http://")
	for i := range 30 {
		guests.Go(func() {
			for rude.Err() == nil {
				c, err := dial(rude, "tcp", host)
				if err != nil {
					time.Sleep(100 * time.Millisecond)
					continue
				}
				for _, b := range []byte("GET /metrics HTTP/1.1\r\nHost: x\r\nX: ") {
					if i%3 == 0 {
						b = 0xff
					}
					if _, err := c.Write([]byte{b}); err != nil || rude.Err() != nil {
						break
					}
					time.Sleep(100 * time.Millisecond)
				}
				c.Close()
			}
		})
	}
	var scraped, refused int
	var mu sync.Mutex
	for range 4 {
		guests.Go(func() {
			for rude.Err() == nil {
				resp, err := client.Get(url + "/metrics")
				ok := err == nil && resp.StatusCode == 200
				if err == nil {
					_, err = io.Copy(io.Discard, resp.Body)
					resp.Body.Close()
					ok = ok && err == nil
				}
				mu.Lock()
				if ok {
					scraped++
				} else {
					refused++
				}
				mu.Unlock()
				time.Sleep(40 * time.Millisecond)
			}
		})
	}
	guests.Wait()
	stopRude()
	elapsed := time.Since(at).Seconds()
	after := samples()
	t.Logf("rude: %d scrapes, %d refused in %.0f s; %.0f samples", scraped, refused, elapsed, after-before)
	if after-before < 0.8*elapsed {
		t.Errorf("%.0f samples in %.0f s: the clients disturb it", after-before, elapsed)
	}
	if scraped == 0 {
		t.Error("nobody who behaves gets an answer")
	}

	// Killed in the middle, several times.
	end := time.Now().Add(total / 3)
	for time.Now().Before(end) {
		time.Sleep(min(4*time.Second, time.Until(end)))
		if err := cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		rest()
		cmd.Wait()
		cmd, url, rest = start()
		awaitSample(t, client, url)
	}
	last := worn(t, cmd.Process.Pid)
	if most := max(first.resident, second.resident, last.resident); most > mostResident {
		t.Errorf("%d KiB resident, want at most %d", most>>10, mostResident>>10)
	}
	stopFight()
	stopLoad()
	users.Wait()
	held := read()["b1/queues/rx-0/rps_cpus"]
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	said := rest()
	if err := cmd.Wait(); err != nil {
		t.Errorf("after SIGTERM: %v\n%s", err, said)
	}
	if now := read()["b1/queues/rx-0/rps_cpus"]; now != held {
		t.Errorf("what somebody else set of b1 became %s, was %s", now, held)
	}
	back := ns.Command(t.Context(), "rxsteer", "rollback", "--original", "--state-dir", filepath.Join(dir, "run"))
	out, err := back.CombinedOutput()
	t.Logf("rollback --original: %v\n%s", err, out)
	now := read()
	original["b1/queues/rx-0/rps_cpus"] = now["b1/queues/rx-0/rps_cpus"] // the other's
	for _, f := range slices.Sorted(maps.Keys(original)) {
		if now[f] != original[f] {
			t.Errorf("%s is %q, was %q", f, now[f], original[f])
		}
	}
	if t.Failed() {
		t.Log(said)
	}
}

// value is that of a series without labels.
func value(t *testing.T, scrape, name string) float64 {
	t.Helper()
	for line := range strings.Lines(scrape) {
		if v, ok := strings.CutPrefix(line, name+" "); ok {
			f, err := strconv.ParseFloat(strings.TrimSpace(v), 64)
			if err != nil {
				t.Fatal(err)
			}
			return f
		}
	}
	t.Fatalf("no %s", name)
	return 0
}

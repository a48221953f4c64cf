package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rxsteer/rxsteer/internal/testnet"
)

// TestAgentSurvivesItsDevices: interfaces that come, change their queues, flap, are renamed, go and come back under
// their name, being stopped for a while, as in a suspend, and SIGHUP: the agent goes on, and its figures follow.
func TestAgentSurvivesItsDevices(t *testing.T) {
	r := newRig(t)
	dir := t.TempDir()
	config := filepath.Join(dir, "agent.yaml")
	if err := os.WriteFile(config, []byte("mode: auto\nlevel: 1\noverhead: 0%\ninterval: 1s\nlimits: {persist: 1}\ndevices:\n- name: b0\n- name: c0\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	cmd := r.b.Command(t.Context(), "rxsteer", "agent", "--config", config, "--web.listen-address", "127.0.0.1:0", "--state-dir", filepath.Join(dir, "run"))
	url, rest := startAgent(t, cmd)
	client := clientIn(r.b)
	awaitSample(t, client, url)

	scrape := func() string {
		code, body := get(t, client, url+"/metrics")
		if code != 200 {
			t.Fatalf("status %d: %s", code, body)
		}
		return body
	}
	shows := func(series string, want bool) func() bool {
		return func() bool { return strings.Contains(scrape(), series) == want }
	}
	received := func(device string) string {
		return fmt.Sprintf("rxsteer_device_receive_packets_total{device=%q}", device)
	}
	steered := func(device string) string {
		return fmt.Sprintf("rxsteer_loop_phase{device=%q,phase=\"observe\"} 1", device)
	}
	ip := func(ns *testnet.NS, args ...string) {
		t.Helper()
		if err := ns.IP(args...); err != nil {
			t.Fatal(err)
		}
	}
	await(t, "b0 in the loop", shows(steered("b0"), true))

	ip(r.b, "link", "add", "d0", "type", "veth", "peer", "name", "d1")
	await(t, "a new interface", shows(received("d0"), true))
	ip(r.b, "link", "del", "d0")
	await(t, "a gone interface to be forgotten", shows(received("d0"), false))

	for _, n := range []string{"1", "2"} {
		if out, err := r.b.Command(t.Context(), "ethtool", "-L", "b0", "rx", n, "tx", n).CombinedOutput(); err != nil {
			t.Fatalf("ethtool -L: %v: %s", err, out)
		}
		changed := fmt.Sprintf("rxsteer_loop_decisions_total{decision=\"device changed\",device=\"b0\"} %s", n)
		await(t, "the loop to see "+n+" queues", shows(changed, true))
	}
	for range 5 {
		ip(r.b, "link", "set", "b0", "down")
		ip(r.b, "link", "set", "b0", "up")
	}

	// What somebody else set stays his, also when the link is away for some looks.
	yielded := `rxsteer_loop_yielded{device="b0",knob="rps-cpus"} 1`
	if err := r.b.SetRPS("b0", 0, "1"); err != nil {
		t.Fatal(err)
	}
	await(t, "the loop to yield", shows(yielded, true))
	ip(r.b, "link", "set", "b0", "down")
	looks := value(t, scrape(), "rxsteer_samples_total")
	await(t, "some looks", func() bool {
		body := scrape()
		if !strings.Contains(body, yielded) {
			t.Fatal("it is forgotten while the link is down")
		}
		return value(t, body, "rxsteer_samples_total") > looks+4
	})
	ip(r.b, "link", "set", "b0", "up")

	ip(r.b, "link", "set", "b0", "down")
	ip(r.b, "link", "set", "b0", "name", "c0")
	ip(r.b, "link", "set", "c0", "up")
	await(t, "the new name", shows(steered("c0"), true))
	await(t, "the old name to be forgotten", shows(received("b0"), false))
	ip(r.b, "link", "del", "c0")
	await(t, "the loop to forget it", shows(`rxsteer_loop_phase{device="c0"`, false))
	if err := testnet.Connect(r.a, r.b, testnet.Veth{Queues: 2, NAPI: true, AddrA: "10.81.0.1/24", AddrB: "10.81.0.2/24"}); err != nil {
		t.Fatal(err)
	}
	await(t, "one that came back under its name", shows(steered("b0"), true))

	if err := cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	time.Sleep(6 * time.Second) // longer than a tick may be late, and than it may be without a sample
	if err := cmd.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	was := value(t, scrape(), "rxsteer_samples_total")
	await(t, "samples after it was stopped", func() bool { return value(t, scrape(), "rxsteer_samples_total") > was+2 })
	await(t, "its health after it was stopped", func() bool { code, _ := get(t, client, url+"/healthz"); return code == 200 })

	// SIGHUP is no end of it.
	if err := os.WriteFile(config, []byte("mode: advise\nlevel: 1\noverhead: 0%\ninterval: 1s\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Process.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	await(t, "the new mode", shows(`rxsteer_loop_mode{device="",mode="advise"} 1`, true))

	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	said := rest()
	if err := cmd.Wait(); err != nil {
		t.Errorf("after SIGTERM: %v", err)
	}
	if strings.Contains(said, "decision=write ") {
		t.Errorf("something was written without a load")
	}
	if t.Failed() {
		t.Log(said)
	}
}

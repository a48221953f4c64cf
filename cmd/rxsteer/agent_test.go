package main

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rxsteer/rxsteer/internal/testnet"
)

// agentArgs serves on a free port.
func agentArgs(args ...string) []string {
	return append([]string{"agent", "--web.listen-address", "127.0.0.1:0", "--interval", "1s"}, args...)
}

// startAgent starts an agent and waits until it serves. rest is what it says until its end.
func startAgent(t *testing.T, cmd *exec.Cmd) (url string, rest func() string) {
	t.Helper()
	stderr, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	r := bufio.NewReader(stderr)
	var said strings.Builder
	var m []string
	for m == nil { // what does not work here is said before
		line, err := r.ReadString('\n')
		said.WriteString(line)
		if err != nil {
			t.Fatalf("the agent said %q, then: %v", said.String(), err)
		}
		m = regexp.MustCompile(`url=(http://\S+)/metrics`).FindStringSubmatch(line)
	}
	return m[1], func() string {
		text, err := io.ReadAll(r)
		if err != nil {
			t.Error(err)
		}
		return string(text)
	}
}

// clientIn makes requests from within a namespace.
func clientIn(ns *testnet.NS) *http.Client {
	return &http.Client{Timeout: 20 * time.Second, Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(_ context.Context, network, addr string) (conn net.Conn, err error) {
		err = ns.Do(func() (err error) { conn, err = net.DialTimeout(network, addr, 2*time.Second); return err })
		return conn, err
	}}}
}

func get(t *testing.T, client *http.Client, url string) (int, string) {
	t.Helper()
	resp, err := client.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(body)
}

// awaitSample scrapes until the first sample is in.
func awaitSample(t *testing.T, client *http.Client, url string) (body string) {
	t.Helper()
	await(t, "the first sample", func() bool {
		var code int
		if code, body = get(t, client, url+"/metrics"); code != 200 {
			t.Fatalf("status %d: %s", code, body)
		}
		return !strings.Contains(body, "rxsteer_samples_total 0\n")
	})
	return body
}

func TestAgentServesUntilSIGTERM(t *testing.T) {
	for _, tc := range []struct {
		level string
		root  bool
		want  []string
	}{
		{"0", false, []string{`rxsteer_attention_level 0`, `rxsteer_sampled_seconds_total{level="0"}`, `rxsteer_softnet_processed_packets_total{cpu="0"}`, `rxsteer_unmeasured{what="time per interrupt"`, `process_cpu_seconds_total`}},
		{"1", true, []string{`rxsteer_attention_level 1`, `rxsteer_softirq_seconds_total{cpu="0",vector="NET_RX"}`, `rxsteer_net_rx_tail_seconds_total{cpu="0"}`}},
	} {
		t.Run("level "+tc.level, func(t *testing.T) {
			if tc.root && os.Geteuid() != 0 {
				t.Skip("needs root for BPF")
			}
			cmd := exec.CommandContext(t.Context(), "rxsteer", agentArgs("--level", tc.level)...)
			url, rest := startAgent(t, cmd)
			body := awaitSample(t, http.DefaultClient, url)
			for _, want := range tc.want {
				if !strings.Contains(body, "\n"+want) {
					t.Errorf("no %s in the scrape", want)
				}
			}
			if code, body := get(t, http.DefaultClient, url+"/healthz"); code != 200 || body != "ok\n" {
				t.Errorf("healthz: %d %q", code, body)
			}
			if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
				t.Fatal(err)
			}
			said := rest()
			if err := cmd.Wait(); err != nil || !strings.Contains(said, "msg=stopped") {
				t.Errorf("after SIGTERM: %v, it said %q", err, said)
			}
			if conn, err := net.Dial("tcp", strings.TrimPrefix(url, "http://")); err == nil {
				conn.Close()
				t.Error("the port still answers")
			}
		})
	}
}

func TestAgentRefusesATakenPort(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	e, stdout, stderr := testEnv("agent", "--level", "0", "--web.listen-address", l.Addr().String())
	if code := run(t.Context(), e); code != exitFailed {
		t.Errorf("exit %d, want %d", code, exitFailed)
	}
	for _, want := range []string{l.Addr().String(), "address already in use", "--web.listen-address"} {
		if !strings.Contains(stderr.String(), want) {
			t.Errorf("stderr lacks %q: %s", want, stderr)
		}
	}
	if stdout.Len() > 0 {
		t.Errorf("stdout: %s", stdout)
	}
}

// TestAgentCountsInjectedFrames: what a device received in the agent's namespace is in the scrape,
// to the packet.
func TestAgentCountsInjectedFrames(t *testing.T) {
	ns := testnet.New(t)
	testnet.NeedTun(t)
	tap, err := ns.NewTAP("tap0", 2)
	if err != nil {
		t.Fatal(err)
	}
	defer tap.Close()
	url, _ := startAgent(t, ns.Command(t.Context(), "rxsteer", agentArgs()...))
	client := clientIn(ns)
	awaitSample(t, client, url)
	frame := make([]byte, 60) // to nobody, of no protocol
	copy(frame, []byte{0x02, 0, 0, 0, 0, 1, 0x02, 0, 0, 0, 0, 2, 0x88, 0xb5})
	const frames = 500
	for i := range frames {
		if err := tap.Inject(i%2, frame); err != nil {
			t.Fatal(err)
		}
	}
	sum := func(metric string) (total float64) {
		_, body := get(t, client, url+"/metrics")
		for line := range strings.Lines(body) {
			if strings.HasPrefix(line, metric+"{") && strings.Contains(line, `device="tap0"`) {
				n, err := strconv.ParseFloat(strings.TrimSpace(line[strings.LastIndexByte(line, ' '):]), 64)
				if err != nil {
					t.Fatal(err)
				}
				total += n
			}
		}
		return total
	}
	await(t, "the frames in the scrape", func() bool { return sum("rxsteer_device_receive_packets_total") >= frames })
	if got := sum("rxsteer_device_receive_packets_total"); got != frames {
		t.Errorf("tap0 received %v packets, want %d", got, frames)
	}
	// Of polls some may be missed (docs/known-issues.md), and are made up for in steps of a sample.
	await(t, "polls in the scrape", func() bool { return sum("rxsteer_napi_packets_total") > 0 })
	if polls, ns := sum("rxsteer_napi_polls_total"), sum("rxsteer_napi_seconds_total"); polls < 1 || ns <= 0 {
		t.Errorf("%v polls took %v s", polls, ns)
	}
}

package main

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"
)

// startAgent runs the agent as a process of its own and waits until it serves.
func startAgent(t *testing.T, args ...string) (cmd *exec.Cmd, url string, rest func() string) {
	t.Helper()
	cmd = exec.CommandContext(t.Context(), "rxsteer", append([]string{"agent", "--web.listen-address", "127.0.0.1:0", "--interval", "1s"}, args...)...)
	stderr, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	r := bufio.NewReader(stderr)
	line, err := r.ReadString('\n')
	if err != nil {
		t.Fatalf("the agent said %q, then: %v", line, err)
	}
	m := regexp.MustCompile(`url=(http://\S+)/metrics`).FindStringSubmatch(line)
	if m == nil {
		text, _ := io.ReadAll(r)
		t.Fatalf("no address in %s%s", line, text)
	}
	return cmd, m[1], func() string {
		text, err := io.ReadAll(r)
		if err != nil {
			t.Error(err)
		}
		return string(text)
	}
}

func get(t *testing.T, url string) (int, string) {
	t.Helper()
	resp, err := http.Get(url)
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
func awaitSample(t *testing.T, url string) string {
	t.Helper()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-time.After(20 * time.Second):
			t.Fatal("no sample in 20 s")
		case <-tick.C:
			if code, body := get(t, url+"/metrics"); code != 200 {
				t.Fatalf("status %d: %s", code, body)
			} else if !strings.Contains(body, "rxsteer_samples_total 0\n") {
				return body
			}
		}
	}
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
			cmd, url, rest := startAgent(t, "--level", tc.level)
			body := awaitSample(t, url)
			for _, want := range tc.want {
				if !strings.Contains(body, "\n"+want) {
					t.Errorf("no %s in the scrape", want)
				}
			}
			if code, body := get(t, url+"/healthz"); code != 200 || body != "ok\n" {
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

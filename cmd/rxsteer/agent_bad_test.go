package main

import (
	"bufio"
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/pprof/profile"

	"github.com/rxsteer/rxsteer/bpf"
	"github.com/rxsteer/rxsteer/collector"
	"github.com/rxsteer/rxsteer/internal/host"
	"github.com/rxsteer/rxsteer/internal/host/knob"
	"github.com/rxsteer/rxsteer/internal/testnet"
	"github.com/rxsteer/rxsteer/steer/control"
	"github.com/rxsteer/rxsteer/steer/plan"
)

func file(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestAgentRefusesBadInput before anything is touched, and says where and what next.
func TestAgentRefusesBadInput(t *testing.T) {
	good := file(t, "good.yaml", "mode: advise\ndevices:\n- name: eth0\n  mode: auto\n")
	for name, tc := range map[string]struct {
		args []string
		code int
		want []string
	}{
		"an unknown key":               {[]string{"--config", file(t, "a.yaml", "mode: off\nmoed: on\n")}, exitFailed, []string{"a.yaml:2:1: unknown field \"moed\"", "nothing was started"}},
		"a broken file, checked":       {[]string{"--config", file(t, "a.yaml", "mode: [\n"), "--config.check"}, exitFailed, []string{"a.yaml:1:"}},
		"no file":                      {[]string{"--config", "/nonexistent.yaml"}, exitFailed, []string{"no such file", "rxsteer.minimal.yaml"}},
		"a check of nothing":           {[]string{"--config.check"}, exitUsage, []string{"--config FILE"}},
		"an interval twice":            {[]string{"--config", good, "--interval", "5s"}, exitUsage, []string{"it is in the file of --config"}},
		"a certificate not there":      {[]string{"--web.config.file", file(t, "web.yaml", "tls_server_config: {cert_file: /nonexistent.crt, key_file: /nonexistent.key}\n")}, exitFailed, []string{"--web.config.file", "/nonexistent.crt"}},
		"an unknown key for the web":   {[]string{"--web.config.file", file(t, "web.yaml", "tsl_server_config: {}\n")}, exitFailed, []string{"tsl_server_config"}},
		"a baseline that is not there": {[]string{"--config", file(t, "a.yaml", "baseline: /nonexistent.json\n"), "--web.listen-address", "127.0.0.1:0"}, exitFailed, []string{"/nonexistent.json"}},
		"an interface that is not":     {[]string{"nope0", "--web.listen-address", "127.0.0.1:0"}, exitFailed, []string{"no interface \"nope0\""}},
	} {
		t.Run(name, func(t *testing.T) {
			e, stdout, stderr := testEnv(append([]string{"agent", "--level", "0"}, tc.args...)...)
			if code := run(t.Context(), e); code != tc.code {
				t.Errorf("exit %d, want %d: %s", code, tc.code, stderr)
			}
			for _, want := range tc.want {
				if !strings.Contains(stderr.String(), want) {
					t.Errorf("stderr lacks %q: %s", want, stderr)
				}
			}
			if stdout.Len() > 0 {
				t.Errorf("stdout: %s", stdout)
			}
		})
	}
	e, stdout, stderr := testEnv("agent", "--config", good, "--config.check")
	if code := run(t.Context(), e); code != 0 || stdout.String() != good+": fine, mode advise, eth0 auto\n" {
		t.Errorf("a good file: exit %d, %q %s", code, stdout, stderr)
	}
}

// agentInside runs an agent in this process until stop, which returns what it said.
func agentInside(t *testing.T, e *env) (url string, stop func() string) {
	t.Helper()
	r, w := io.Pipe()
	e.stderr = w
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan int, 1)
	go func() { done <- run(ctx, e); w.Close() }()
	lines := bufio.NewScanner(r)
	var mu sync.Mutex
	var said bytes.Buffer
	found, ended := make(chan string, 1), make(chan struct{})
	go func() {
		defer close(ended)
		for lines.Scan() {
			mu.Lock()
			fmt.Fprintln(&said, lines.Text())
			mu.Unlock()
			if m := regexp.MustCompile(`url=(https?://\S+)/metrics`).FindStringSubmatch(lines.Text()); m != nil {
				found <- m[1]
			}
		}
	}()
	stop = func() string {
		cancel()
		if code := <-done; code != 0 {
			t.Errorf("exit %d", code)
		}
		<-ended
		mu.Lock()
		defer mu.Unlock()
		return said.String()
	}
	select {
	case url = <-found:
	case <-time.After(time.Minute):
		t.Fatalf("it does not serve: %s", stop())
	}
	return url, stop
}

// TestAgentWithoutHooksIsDegraded: on a kernel that refuses the programs it serves what there is, and says so in /readyz,
// in the metrics, and in the log once.
func TestAgentWithoutHooksIsDegraded(t *testing.T) {
	e, _, _ := testEnv("agent", "--config", file(t, "a.yaml", "mode: advise\nprofile: false\n"), "--web.listen-address", "127.0.0.1:0", "--state-dir", t.TempDir())
	e.attach = func() (collector.Programs, []collector.Unmeasured, error) {
		return nil, nil, fmt.Errorf("load programs: %w", bpf.ErrNoBTF)
	}
	url, stop := agentInside(t, e)
	awaitSample(t, http.DefaultClient, url)
	_, ready := get(t, http.DefaultClient, url+"/readyz")
	_, metrics := get(t, http.DefaultClient, url+"/metrics")
	time.Sleep(1500 * time.Millisecond) // another sample
	said := stop()
	const what = "times, polls and buckets"
	if !strings.HasPrefix(ready, "ready, degraded:\n") || !strings.Contains(ready, what) || !strings.Contains(metrics, `rxsteer_degraded{what="`+what+`"`) || strings.Count(said, what) != 1 {
		t.Errorf("/readyz %q; log %s", ready, said)
	}
}

// TestAgentReload: a bad file is refused and the old one stays in force; a good one takes effect.
func TestAgentReload(t *testing.T) {
	path := file(t, "a.yaml", "mode: off\nprofile: false\n")
	e, _, _ := testEnv("agent", "--config", path, "--level", "0", "--web.listen-address", "127.0.0.1:0", "--state-dir", t.TempDir())
	url, stop := agentInside(t, e)
	awaitSample(t, http.DefaultClient, url)
	reload := func(text, want string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := syscall.Kill(os.Getpid(), syscall.SIGHUP); err != nil {
			t.Fatal(err)
		}
		await(t, want, func() bool {
			_, body := get(t, http.DefaultClient, url+"/metrics")
			return strings.Contains(body, "\n"+want+"\n")
		})
	}
	await(t, "the first reading of the configuration", func() bool {
		_, body := get(t, http.DefaultClient, url+"/metrics")
		return strings.Contains(body, "\nrxsteer_config_last_reload_successful 1\n")
	})
	reload("mode: fast\n", "rxsteer_config_last_reload_successful 0")
	if _, body := get(t, http.DefaultClient, url+"/metrics"); !strings.Contains(body, `rxsteer_loop_mode{device="",mode="off"} 1`) {
		t.Error("the old configuration is not in force")
	}
	reload("mode: advise\nprofile: false\n", `rxsteer_loop_mode{device="",mode="advise"} 1`)
	said := stop()
	if !strings.Contains(said, `a.yaml:1:7: mode`) || strings.Count(said, "reload refused") != 1 {
		t.Errorf("log: %s", said)
	}
}

// TestOneAgentSteers: a second one that would steer is refused, at its start and when its configuration is read again;
// one that only advises runs beside it.
func TestOneAgentSteers(t *testing.T) {
	dir := t.TempDir()
	first := turn{dir: dir}
	if err := first.take(&control.Config{Devices: []control.Device{{Name: "eth0", Mode: control.Auto}}}); err != nil {
		t.Fatal(err)
	}
	defer first.release()
	path := file(t, "b.yaml", "mode: auto\n")
	args := []string{"agent", "--config", path, "--level", "0", "--web.listen-address", "127.0.0.1:0", "--state-dir", dir}
	e, _, stderr := testEnv(args...)
	want := fmt.Sprintf("another agent steers this host (pid %d)", os.Getpid())
	if code := run(t.Context(), e); code != exitFailed || !strings.Contains(stderr.String(), want) || !strings.Contains(stderr.String(), "mode: advise") {
		t.Errorf("exit %d, %s", code, stderr)
	}
	if err := os.WriteFile(path, []byte("mode: advise\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	e, _, _ = testEnv(args...)
	url, stop := agentInside(t, e)
	reads := func(value string) func() bool {
		return func() bool {
			_, body := get(t, http.DefaultClient, url+"/metrics")
			return strings.Contains(body, "\nrxsteer_config_last_reload_successful "+value+"\n")
		}
	}
	await(t, "the first reading of the configuration", reads("1"))
	if err := os.WriteFile(path, []byte("mode: auto\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(os.Getpid(), syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	await(t, "the refusal", reads("0"))
	await(t, "the refusal in /readyz", func() bool {
		_, body := get(t, http.DefaultClient, url+"/readyz")
		return strings.Contains(body, "\n"+reloading+": "+want)
	})
	if said := stop(); !strings.Contains(said, want) {
		t.Errorf("log: %s", said)
	}
	first.release()
	second := turn{dir: dir}
	defer second.release()
	if err := second.take(&control.Config{Mode: control.Auto}); err != nil {
		t.Errorf("after the first has ended: %v", err)
	}
}

// TestAgentServesTLSAndAsksForAPassword, by the exporter toolkit's file.
func TestAgentServesTLSAndAsksForAPassword(t *testing.T) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}}
	der, err := x509.CreateCertificate(rand.Reader, &template, &template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	cert := file(t, "c.pem", string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})))
	private := file(t, "k.pem", string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: raw})))
	// bcrypt of "test" with the least cost
	web := file(t, "web.yaml", fmt.Sprintf("tls_server_config: {cert_file: %s, key_file: %s}\nbasic_auth_users: {prometheus: '%s'}\n", cert, private, "$2y$04$SQCdWCnMvSE3zZZF0vBiLeLSFQx5rnSfdLuvWdRGX8AYYQ9fyhPRO"))
	e, _, _ := testEnv("agent", "--level", "0", "--web.listen-address", "127.0.0.1:0", "--web.config.file", web, "--state-dir", t.TempDir())
	url, stop := agentInside(t, e)
	defer stop()
	if !strings.HasPrefix(url, "https://") {
		t.Fatalf("it serves at %s", url)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM([]byte(must(os.ReadFile(cert))))
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}}}
	if code, _ := get(t, client, url+"/metrics"); code != http.StatusUnauthorized {
		t.Errorf("without a password: %d", code)
	}
	req, err := http.NewRequest("GET", url+"/metrics", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.SetBasicAuth("prometheus", "wrong")
	resp, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusUnauthorized {
		t.Errorf("with a wrong password: %d", resp.StatusCode)
	}
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// readOnly is a host whose files cannot be written, as /sys in a container.
type readOnly struct{ host.FS }

func (readOnly) WriteFile(path string, _ []byte) error {
	return &fs.PathError{Op: "write", Path: path, Err: syscall.EROFS}
}

// TestAReadOnlyHostIsDegraded: a write that the host refuses is told once and does not stay half done.
func TestAReadOnlyHostIsDegraded(t *testing.T) {
	ns := testnet.New(t)
	if err := ns.IP("link", "add", "v0", "type", "veth", "peer", "name", "v1"); err != nil {
		t.Fatal(err)
	}
	e, _, _ := testEnv("agent")
	e.fs = readOnly{ns.FS()}
	var log bytes.Buffer
	state := newAgentState(slog.New(slog.NewTextHandler(&log, nil)))
	c := control.Default()
	c.Mode = control.Auto
	d := c.Device
	d.Name, d.Mode = "v0", control.Auto
	c.Devices = []control.Device{d}
	var done *control.Done
	if err := ns.Do(func() error {
		x, err := e.newHands(&agentFlags{stateDir: t.TempDir()}, c, collector.NewRing(1), nil, state)
		if err != nil {
			return err
		}
		defer x.close()
		snap, err := x.h.machine.Snapshot(t.Context(), "v0")
		if err != nil {
			return err
		}
		x.snapshot = snap
		index := snap.Devices[0].IfIndex
		change := plan.Change{Knob: knob.RPSCPUs, Target: knob.On("v0", "rx-0"), From: knob.Text(""), To: knob.Text("0"), Risk: plan.Reorder}
		for range 2 {
			done = x.Do(t.Context(), control.Action{Verb: control.Write, Fast: true, Device: "v0", IfIndex: index, Changes: []plan.Change{change}})
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if done.Waits || done.Written || !strings.Contains(strings.Join(values(state.degraded()), " "), "read-only") || strings.Count(log.String(), "degraded") != 1 {
		t.Errorf("%+v; degraded %v; log %s", done, state.degraded(), &log)
	}
}

func values(m map[string]string) (out []string) {
	for _, v := range m {
		out = append(out, v)
	}
	return out
}

// TestAgentServesTheProfileOfTheReceivePath as a scraper of profiles reads it.
func TestAgentServesTheProfileOfTheReceivePath(t *testing.T) {
	ns := testnet.New(t)
	cmd := ns.Command(t.Context(), "rxsteer", "agent", "--config", file(t, "a.yaml", "mode: off\n"), "--web.listen-address", "127.0.0.1:0", "--state-dir", t.TempDir())
	url, _ := startAgent(t, cmd)
	client := clientIn(ns)
	var body string
	code := 0
	await(t, "a profile", func() bool {
		code, body = get(t, client, url+"/profile")
		return code != http.StatusServiceUnavailable || !strings.Contains(body, "being taken")
	})
	p, err := profile.ParseData([]byte(body))
	if err != nil || code != 200 {
		t.Fatalf("%d %v: %.200s", code, err, body)
	}
	if len(p.SampleType) != 2 || p.SampleType[1].Type != "cpu" || p.DurationNanos < int64(4*time.Second) {
		t.Errorf("sample types %v, %v", p.SampleType, time.Duration(p.DurationNanos))
	}
	if !errors.Is(p.CheckValid(), nil) {
		t.Error(p.CheckValid())
	}
}

// Package deploy_test runs what is shipped for Prometheus and Grafana against a real Prometheus and a live agent.
package deploy_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/rxsteer/rxsteer/internal/testnet"
)

// prometheus is a program of Debian's package, which the checks install (CHECK_PACKAGES).
func prometheus(t *testing.T, name string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		t.Skip("needs prometheus and promtool (Debian: prometheus)")
	}
	return path
}

func TestRules(t *testing.T) {
	promtool := prometheus(t, "promtool")
	for _, args := range [][]string{{"check", "rules", "rules.yaml"}, {"test", "rules", "rules_test.yaml"}, {"check", "rules", "fleet.yaml"}, {"test", "rules", "fleet_test.yaml"}} {
		cmd := exec.CommandContext(t.Context(), promtool, args...)
		cmd.Dir = "prometheus"
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("promtool %s: %v\n%s", strings.Join(args, " "), err, out)
		}
	}
}

// rig is an agent under traffic and a Prometheus that scrapes it, in a namespace of their own.
type rig struct {
	t      *testing.T
	ns     *testnet.NS
	client *http.Client
	prom   string // URL
	agent  string
}

func startRig(t *testing.T, config string, promArgs ...string) *rig {
	bin := prometheus(t, "prometheus")
	ns := testnet.New(t)
	dir := t.TempDir()
	rxsteer := filepath.Join(dir, "rxsteer")
	buildAgent(t, rxsteer)
	peer := testnet.New(t)
	if err := testnet.Connect(peer, ns, testnet.Veth{A: "a0", B: "b0", AddrA: "10.99.0.1/24", AddrB: "10.99.0.2/24", NAPI: true, StaticNeigh: true}); err != nil {
		t.Fatal(err)
	}
	var sender net.Conn
	if err := peer.Do(func() (err error) { sender, err = net.Dial("udp", "10.99.0.2:9"); return err }); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { sender.Close() })
	r := &rig{t: t, ns: ns, prom: "http://127.0.0.1:9090", agent: "http://127.0.0.1:9742"}
	r.client = clientIn(ns)
	write := func(name, text string) string {
		file := filepath.Join(dir, name)
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		return file
	}
	base := filepath.Join(dir, "baseline.json")
	save := ns.Command(t.Context(), rxsteer, "baseline", "save", base)
	if out, err := save.CombinedOutput(); err != nil {
		t.Fatalf("save a baseline: %v\n%s", err, out)
	}
	r.start("agent", rxsteer, "agent", "--config", write("agent.yaml", config+"baseline: "+base+"\n"), "--state-dir", dir+"/run")
	rules, err := filepath.Abs("prometheus/rules.yaml")
	if err != nil {
		t.Fatal(err)
	}
	file := write("prometheus.yaml", fmt.Sprintf("global: {scrape_interval: 1s, evaluation_interval: 1s}\nrule_files: [%s]\nscrape_configs:\n- {job_name: rxsteer, static_configs: [{targets: ['127.0.0.1:9742']}]}\n", rules))
	r.start("prometheus", bin, append([]string{"--config.file", file, "--storage.tsdb.path", dir + "/tsdb", "--web.listen-address", "127.0.0.1:9090", "--log.level", "warn"}, promArgs...)...)
	traffic, stop := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for i := 0; traffic.Err() == nil; i++ {
			sender.Write(make([]byte, 100)) // nobody listens: some are refused, all arrive
			if i%50 == 0 {
				time.Sleep(10 * time.Millisecond) // a load, not a flood
			}
		}
	}()
	t.Cleanup(func() { stop(); <-done })
	return r
}

// buildAgent builds rxsteer, static, in its own module.
func buildAgent(t *testing.T, file string) {
	t.Helper()
	build := exec.CommandContext(t.Context(), "go", "build", "-o", file, "./cmd/rxsteer")
	build.Dir, build.Env = "..", append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build rxsteer: %v\n%s", err, out)
	}
}

// clientIn makes requests from within a namespace.
func clientIn(ns *testnet.NS) *http.Client {
	return &http.Client{Timeout: time.Minute, Transport: &http.Transport{DialContext: func(_ context.Context, network, addr string) (c net.Conn, err error) {
		err = ns.Do(func() (err error) { c, err = net.DialTimeout(network, addr, time.Minute); return err })
		return c, err
	}}}
}

// start runs a program until the test ends.
func (r *rig) start(what, program string, args ...string) {
	var out bytes.Buffer
	cmd := r.ns.Command(r.t.Context(), program, args...)
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() {
		cmd.Process.Signal(os.Interrupt)
		cmd.Wait()
		if r.t.Failed() {
			r.t.Logf("%s said:\n%s", what, out.String())
		}
	})
}

func (r *rig) get(url string) (string, error) {
	resp, err := r.client.Get(url)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != 200 {
		err = fmt.Errorf("%s: %s: %.300s", url, resp.Status, body)
	}
	return string(body), err
}

// query is how many series an expression has, and the first value.
func (r *rig) query(expr string) (series int, first string, err error) {
	body, err := r.get(r.prom + "/api/v1/query?query=" + url.QueryEscape(expr))
	if err != nil {
		return 0, "", err
	}
	var answer struct {
		Data struct {
			Result []struct{ Value []any }
		}
	}
	if err := json.Unmarshal([]byte(body), &answer); err != nil {
		return 0, "", err
	}
	if n := len(answer.Data.Result); n > 0 && len(answer.Data.Result[0].Value) == 2 {
		return n, fmt.Sprint(answer.Data.Result[0].Value[1]), nil
	}
	return len(answer.Data.Result), "", nil
}

func (r *rig) await(what string, ok func() (bool, error)) {
	r.t.Helper()
	end := time.After(3 * time.Minute)
	var last error
	for {
		yes, err := ok()
		if yes && err == nil {
			return
		}
		last = err
		select {
		case <-end:
			r.t.Fatalf("waited three minutes for %s; last: %v", what, last)
		case <-time.After(200 * time.Millisecond):
		}
	}
}

const watching = "mode: advise\ninterval: 2s\ndevices:\n- name: b0\n"

// TestDashboard: every query of the dashboard returns data from a live agent under traffic, every rule is evaluated
// without an error, and what should not, does not fire.
func TestDashboard(t *testing.T) {
	r := startRig(t, watching+"overhead: 0%\n") // looks at packets all the time, whose stages and flows have panels
	r.await("ten scrapes", func() (bool, error) {
		n, v, err := r.query(`count_over_time(rxsteer_samples_total[1m]) >= 10`)
		return n > 0 && v != "", err
	})
	r.await("stages and flows", func() (bool, error) {
		stages, v, err := r.query(`histogram_quantile(0.5, sum by (le, device) (rate(rxsteer_stage_latency_seconds_bucket{device="b0"}[10s])))`)
		if err != nil {
			return false, err
		}
		flows, _, err := r.query(`rxsteer_elephant_packets_per_second{device="b0",destination="10.99.0.2:9"}`)
		return stages > 0 && v != "NaN" && flows > 0, err
	})
	r.await("a decision or a look", func() (bool, error) {
		n, _, err := r.query(`rxsteer_loop_phase{device="b0"}`)
		return n > 0, err
	})
	queries := dashboardQueries(t)
	if len(queries) < 20 {
		t.Fatalf("found %d queries", len(queries))
	}
	for _, q := range queries {
		n, first, err := r.query(expand.Replace(q))
		if err != nil || n == 0 || first == "NaN" {
			t.Errorf("%s: %d series, first %s, %v", q, n, first, err)
		}
	}
	body, err := r.get(r.prom + "/api/v1/rules")
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(body, `"health":"ok"`); n != 15 || strings.Contains(body, `"lastError"`) {
		t.Errorf("%d of 15 rules are evaluated well: %s", n, body)
	}
	if n, _, err := r.query(`ALERTS{severity=~"P1|P2",alertstate="firing"}`); err != nil || n != 0 {
		t.Errorf("%d alerts on a host in order, %v", n, err)
	}
	if n, _, err := r.query(`rxsteer:queue_packets:rate5m{device="b0"} > 0`); err != nil || n == 0 {
		t.Errorf("the recorded rate has no packets of b0: %v", err)
	}
}

// TestNativeHistograms: a Prometheus with its flag takes the native ones.
func TestNativeHistograms(t *testing.T) {
	r := startRig(t, watching+"metrics: {native_histograms: true}\n", "--enable-feature=native-histograms")
	r.await("a quantile of a native histogram", func() (bool, error) {
		n, v, err := r.query(`histogram_quantile(0.9, sum by (device) (rate(rxsteer_napi_poll_duration_seconds{device="b0"}[20s])))`)
		return n == 1 && v != "NaN", err
	})
}

// expand fills the dashboard's variables in as Grafana does.
var expand = strings.NewReplacer("$__rate_interval", "10s", "$instance", ".*", "$device", ".*")

// dashboardQueries are the expressions of all panels.
func dashboardQueries(t *testing.T) []string {
	text, err := os.ReadFile("grafana/rxsteer.json")
	if err != nil {
		t.Fatal(err)
	}
	var d struct {
		Panels []struct {
			Targets []struct{ Expr string }
		}
	}
	if err := json.Unmarshal(text, &d); err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, p := range d.Panels {
		for _, q := range p.Targets {
			out = append(out, q.Expr)
		}
	}
	return out
}

// TestMetricsOfRulesAndDashboardExist: a renamed metric breaks here, without a Prometheus.
func TestMetricsOfRulesAndDashboardExist(t *testing.T) {
	docs, err := os.ReadFile("../docs/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	rules, err := os.ReadFile("prometheus/rules.yaml")
	if err != nil {
		t.Fatal(err)
	}
	fleet, err := os.ReadFile("prometheus/fleet.yaml")
	if err != nil {
		t.Fatal(err)
	}
	used := regexp.MustCompile(`\brxsteer_[a-z_]+`).FindAllString(strings.Join(dashboardQueries(t), "\n")+string(rules)+string(fleet), -1)
	if len(used) < 30 {
		t.Fatalf("found %d names", len(used))
	}
	for _, name := range used {
		base := strings.TrimSuffix(strings.TrimSuffix(strings.TrimSuffix(name, "_bucket"), "_count"), "_sum")
		if !strings.Contains(string(docs), "`"+base+"`") {
			t.Errorf("%s is not in docs/metrics.md", name)
		}
	}
}

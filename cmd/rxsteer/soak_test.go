package main

import (
	"bytes"
	"context"
	"crypto/sha256"
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

	"github.com/cilium/ebpf"

	"github.com/rxsteer/rxsteer/internal/testnet"
)

// soakTime is how long the agent is worn: $RXSTEER_SOAK ("1h" in make soak, "5m" in make check), else what a person
// waits for.
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
	// Of a long soak most is quiet wear, which is what leaks show in.
	mostRude   = 3 * time.Minute
	mostKilled = 6 * time.Minute
)

// wear is what an agent holds.
type wear struct {
	fds      int
	maps     map[ebpf.MapID]bool
	programs map[ebpf.ProgramID]bool
	resident int64
	cpu      time.Duration
}

func (w wear) String() string {
	return fmt.Sprintf("%d descriptors, %d maps, %d programs, %d KiB, %v of a CPU", w.fds, len(w.maps), len(w.programs), w.resident>>10, w.cpu)
}

// most is the most of several.
type most struct {
	fds, maps, programs int
	kib                 int64
}

// watchesAll is what it holds while it looks at everything, which it may begin to do at any time.
var watchesAll = most{fds: 145, maps: 26, programs: 30}

func (m *most) grow(w wear) {
	m.fds, m.maps, m.programs, m.kib = max(m.fds, w.fds), max(m.maps, len(w.maps)), max(m.programs, len(w.programs)), max(m.kib, w.resident>>10)
}

func worn(t *testing.T, pid int) (p wear) {
	t.Helper()
	dir := fmt.Sprintf("/proc/%d", pid)
	fds, err := os.ReadDir(dir + "/fd")
	if err != nil {
		t.Fatal(err)
	}
	p.fds, p.maps, p.programs = len(fds), map[ebpf.MapID]bool{}, map[ebpf.ProgramID]bool{}
	for _, fd := range fds {
		info, err := os.ReadFile(dir + "/fdinfo/" + fd.Name())
		if err != nil {
			continue // it is closed by now
		}
		for line := range strings.Lines(string(info)) {
			f := strings.Fields(line)
			if len(f) != 2 || f[0] != "map_id:" && f[0] != "prog_id:" {
				continue
			}
			id, err := strconv.ParseUint(f[1], 10, 32)
			if err != nil {
				t.Fatal(err)
			}
			if f[0] == "map_id:" {
				p.maps[ebpf.MapID(id)] = true
			} else {
				p.programs[ebpf.ProgramID(id)] = true
			}
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

// awaitUnloaded waits until the kernel has none of the maps and programs of an agent that is gone; it frees them when no
// CPU can be in them any more.
func awaitUnloaded(t *testing.T, w wear) {
	t.Helper()
	left := func() (out []string) {
		for id := range w.maps {
			if m, err := ebpf.NewMapFromID(id); err == nil {
				out = append(out, m.String())
				m.Close()
			}
		}
		for id := range w.programs {
			if p, err := ebpf.NewProgramFromID(id); err == nil {
				out = append(out, p.String())
				p.Close()
			}
		}
		return out
	}
	for n := 0; len(left()) > 0; n++ {
		if n == 300 {
			t.Fatalf("the kernel still has, of an agent that was killed: %v", left())
		}
		time.Sleep(100 * time.Millisecond)
	}
}

// heap is what an agent's lives on and allocates, over a while.
type heap struct {
	objects      float64 // at least: just after garbage was collected
	bytes        float64
	first, last  float64 // objects allocated so far
	since, until time.Time
}

func (h *heap) see(t *testing.T, scrape string) {
	t.Helper()
	objects, bytes := value(t, scrape, "go_memstats_heap_objects"), value(t, scrape, "go_memstats_heap_alloc_bytes")
	if h.since.IsZero() {
		h.objects, h.bytes, h.since, h.first = objects, bytes, time.Now(), value(t, scrape, "go_memstats_mallocs_total")
	}
	h.objects, h.bytes, h.until, h.last = min(h.objects, objects), min(h.bytes, bytes), time.Now(), value(t, scrape, "go_memstats_mallocs_total")
}

func (h *heap) String() string {
	return fmt.Sprintf("at least %.0f objects, %.1f MiB, %.0f allocated a second", h.objects, h.bytes/(1<<20), (h.last-h.first)/max(h.until.Sub(h.since).Seconds(), 1))
}

// patient scrapes on a machine that may be starved: how long an answer may take is counted in beats, pauses with work of
// our own in each, which take as much longer there as the agent's do.
type patient struct {
	client        *http.Client
	answers, slow int // the slow took more than lateBeats
	slowest       time.Duration
	beats         int // of the slowest
}

const (
	beatPause = 100 * time.Millisecond
	lateBeats = 10
	mostBeats = 600
)

func (p *patient) String() string {
	return fmt.Sprintf("%d answers, %d of them slow, the slowest in %v (%d beats)", p.answers, p.slow, p.slowest.Round(time.Millisecond), p.beats)
}

// scrape returns the metrics; an agent that does not tell them in mostBeats is stuck.
func (p *patient) scrape(t *testing.T, url string) string {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	type answer struct {
		body string
		err  error
	}
	answers := make(chan answer, 1)
	ask := func() {
		body, err := scrapeOnce(ctx, p.client, url)
		answers <- answer{body, err}
	}
	go ask()
	from := time.Now()
	block := make([]byte, 1<<20)
	var why error
	for beats := 0; beats < mostBeats; beats++ {
		select {
		case a := <-answers:
			if a.err != nil { // as when too many ask at once
				why = a.err
				time.Sleep(beatPause)
				go ask()
				continue
			}
			p.answers++
			if beats > lateBeats {
				p.slow++
			}
			if took := time.Since(from); took > p.slowest {
				p.slowest, p.beats = took, beats
			}
			return a.body
		case <-time.After(beatPause):
			sha256.Sum256(block)
		}
	}
	t.Fatalf("the agent is stuck: no metrics in %v, in which we did %d beats of %v; last: %v", time.Since(from).Round(time.Millisecond), mostBeats, beatPause, why)
	return ""
}

func scrapeOnce(ctx context.Context, client *http.Client, url string) (string, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url+"/metrics", nil)
	if err != nil {
		return "", err
	}
	resp, err := client.Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("status %d: %.100s", resp.StatusCode, body)
	}
	return string(body), err
}

// awaitSample scrapes until the first sample is in.
func (p *patient) awaitSample(t *testing.T, url string) {
	t.Helper()
	for n := 0; value(t, p.scrape(t, url), "rxsteer_samples_total") == 0; n++ {
		if n == mostBeats {
			t.Fatalf("the agent is stuck: no sample in %d beats of %v", n, beatPause)
		}
		time.Sleep(beatPause)
	}
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
		err = ns.Do(func() (err error) { c, err = net.DialTimeout(network, addr, time.Minute); return err })
		return c, err
	}
	client := &http.Client{Transport: &http.Transport{DialContext: dial, MaxIdleConnsPerHost: 8}}
	scraper := &patient{client: client}
	scraper.awaitSample(t, url)

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
					c.Write(make([]byte, []int{64, 1400}[n/1000%2])) // some are refused, nobody listens
					if n%20 == 0 {
						// Two of ten seconds there is work, else little.
						time.Sleep([]time.Duration{5, 60}[min(time.Now().Unix()%10/2, 1)] * time.Millisecond)
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

	samples := func() float64 { return value(t, scraper.scrape(t, url), "rxsteer_samples_total") }
	rudely, killing := min(total/3, mostRude), min(total/3, mostKilled)

	// Quiet wear: flaps and a device that comes and goes, hardly anybody scrapes.
	calmly := total - rudely - killing
	calm, told := samples(), time.Now()
	var early, late most
	var thirds [3]heap
	looked, every := time.Time{}, max(calmly/100, 5*time.Second)
	for n := 0; time.Since(began) < calmly; n++ {
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
		// Programs come and go with what is worth looking at: the most of the beginning is compared with the most of the end.
		now := worn(t, cmd.Process.Pid)
		part := min(int(3*time.Since(began)/calmly), 2)
		switch part {
		case 0:
			early.grow(now)
		case 2:
			late.grow(now)
		}
		if time.Since(looked) > every {
			looked = time.Now()
			thirds[part].see(t, scraper.scrape(t, url))
		}
		if time.Since(told) > time.Minute {
			told = time.Now()
			t.Logf("%v: %v", time.Since(began).Round(time.Second), now)
		}
		time.Sleep(700 * time.Millisecond)
	}
	if err := ns.IP("link", "set", "b0", "up"); err != nil {
		t.Fatal(err)
	}
	second := worn(t, cmd.Process.Pid)
	usual := (samples() - calm) / time.Since(began).Seconds()
	share := (second.cpu - first.cpu).Seconds() / time.Since(began).Seconds()
	t.Logf("quiet: %v, then %v: %.1f %% of a CPU, %.2f samples a second", first, second, 100*share, usual)
	t.Logf("at most, in the first third: %+v, in the last: %+v", early, late)
	if late.fds > max(early.fds, watchesAll.fds)+4 || late.maps > max(early.maps, watchesAll.maps)+4 || late.programs > max(early.programs, watchesAll.programs)+4 {
		t.Errorf("descriptors leak: at most %+v in the first third, %+v in the last", early, late)
	}
	t.Logf("heap by third of that: %v; %v; %v", &thirds[0], &thirds[1], &thirds[2])
	if calmly >= 15*time.Minute && thirds[2].objects > thirds[0].objects+thirds[0].objects/4 {
		t.Errorf("what lives on the heap grows: %.0f objects at least in the first third, %.0f in the last", thirds[0].objects, thirds[2].objects)
	}
	if share > mostCPU {
		t.Errorf("it took %.1f %% of a CPU", 100*share)
	}

	// Rude clients: many that send their request a byte at a time, garbage, and 100 scrapes a second.
	at := time.Now()
	rude, stopRude := context.WithTimeout(t.Context(), rudely)
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
	for range 5 {
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
				time.Sleep(30 * time.Millisecond)
			}
		})
	}
	// What else the machine does disturbs it, too: clients that do, do so all the time.
	best := 0.0
	for rude.Err() == nil {
		was, from := samples(), time.Now()
		select {
		case <-rude.Done():
		case <-time.After(rudely / 6):
		}
		best = max(best, (samples()-was)/time.Since(from).Seconds())
	}
	guests.Wait()
	stopRude()
	t.Logf("rude: %d scrapes, %d refused in %.0f s; at best %.2f samples a second; %v", scraped, refused, time.Since(at).Seconds(), best, worn(t, cmd.Process.Pid))
	if best < 0.8*usual {
		t.Errorf("at best %.2f samples a second, %.2f without the clients: they disturb it", best, usual)
	}
	if scraped == 0 {
		t.Error("nobody who behaves gets an answer")
	}

	// Killed in the middle, several times.
	kills := 0
	for end := time.Now().Add(killing); time.Now().Before(end); kills++ {
		time.Sleep(min(4*time.Second, time.Until(end)))
		had := worn(t, cmd.Process.Pid)
		if err := cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		rest()
		cmd.Wait()
		awaitUnloaded(t, had)
		cmd, url, rest = start()
		scraper.awaitSample(t, url)
	}
	t.Logf("scrapes: %v", scraper)
	last := worn(t, cmd.Process.Pid)
	t.Logf("killed %d times; the last: %v", kills, last)
	if kib := max(early.kib, late.kib, last.resident>>10); kib > mostResident>>10 {
		t.Errorf("%d KiB resident, want at most %d", kib, mostResident>>10)
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

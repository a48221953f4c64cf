package main

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/pprof/profile"

	"github.com/rxsteer/rxsteer/exporter/flame"
	"github.com/rxsteer/rxsteer/steer/apply"
)

// fixedProfile is a second at 10 ms a tick; more is what a firewall takes of it.
func fixedProfile(more int64) *profile.Profile {
	p := &profile.Profile{
		SampleType: []*profile.ValueType{{Type: "samples", Unit: "count"}, {Type: "cpu", Unit: "nanoseconds"}},
		Period:     10e6, DurationNanos: 1e9, TimeNanos: 1e18,
		Comments: []string{"rxsteer: receive softirq", "rxsteer: 3 of 60 ticks were lost: no room"},
	}
	at := func(name string) *profile.Location {
		id := uint64(len(p.Location) + 1)
		f := &profile.Function{ID: id, Name: name}
		l := &profile.Location{ID: id, Line: []profile.Line{{Function: f}}}
		p.Function, p.Location = append(p.Function, f), append(p.Location, l)
		return l
	}
	run, poll, firewall := at("net_rx_action"), at("igb_poll"), at("bpf:fire\x1b[31mwall")
	add := func(n int64, labels map[string][]string, stack ...*profile.Location) {
		p.Sample = append(p.Sample, &profile.Sample{Location: stack, Label: labels, Value: []int64{n, n * p.Period}})
	}
	add(10+more, map[string][]string{"device": {"eth0"}, "queue": {"3"}, "cpu": {"5"}, "context": {"ksoftirqd"}, "part": {"poll"}}, firewall, poll, run)
	add(6, map[string][]string{"device": {"eth0"}, "queue": {"0"}, "cpu": {"1"}, "context": {"idle"}, "part": {"poll"}}, poll, run)
	add(2, map[string][]string{"cpu": {"1"}, "context": {"idle"}, "part": {"tail"}}, run)
	return p
}

func TestPrintProfile(t *testing.T) {
	var b bytes.Buffer
	p := fixedProfile(30)
	printProfile(&b, p, flame.NewTree(p, nil), palette{}, defaultWidth)
	golden(t, "profile.txt", b.String())
	b.Reset()
	printProfile(&b, p, flame.NewTree(p, fixedProfile(0)), palette{}, defaultWidth)
	golden(t, "profile-change.txt", b.String())
	b.Reset()
	p.Sample = nil
	printProfile(&b, p, flame.NewTree(p, nil), palette{}, defaultWidth)
	golden(t, "profile-empty.txt", b.String())
}

// TestProfileComparesFiles: a file is read, compared and drawn; one that is no profile of ours is refused.
func TestProfileComparesFiles(t *testing.T) {
	dir := t.TempDir()
	before, after, svg := filepath.Join(dir, "before.pb.gz"), filepath.Join(dir, "after.pb.gz"), filepath.Join(dir, "diff.svg")
	for name, p := range map[string]*profile.Profile{before: fixedProfile(0), after: fixedProfile(30)} {
		if err := writeFile("profile", name, p.Write); err != nil {
			t.Fatal(err)
		}
	}
	e, stdout, stderr := testEnv("profile", "--from", after, "--base", before, "--flame", svg)
	if code := run(t.Context(), e); code != exitOK {
		t.Fatalf("exit %d: %s", code, stderr)
	}
	golden(t, "profile-change.txt", stdout.String())
	drawn, err := os.ReadFile(svg)
	if err != nil || !bytes.Contains(drawn, []byte("+30.0 points")) {
		t.Errorf("the drawing does not show the change (%v)", err)
	}
	other := fixedProfile(0)
	other.SampleType = other.SampleType[:1]
	for _, s := range other.Sample {
		s.Value = s.Value[:1]
	}
	heap := filepath.Join(dir, "heap.pb.gz")
	if err := writeFile("profile", heap, other.Write); err != nil {
		t.Fatal(err)
	}
	text := filepath.Join(dir, "text")
	if err := os.WriteFile(text, []byte("no profile"), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{heap, text, filepath.Join(dir, "absent")} {
		e, _, stderr := testEnv("profile", "--from", name)
		if code := run(t.Context(), e); code != exitFailed || !strings.Contains(stderr.String(), "read profile") {
			t.Errorf("%s: exit %d: %s", name, code, stderr)
		}
	}
}

func TestProfileOfTraffic(t *testing.T) {
	r := newRig(t)
	dir := t.TempDir()
	file, svg := filepath.Join(dir, "rx.pb.gz"), filepath.Join(dir, "rx.svg")
	stop := r.send()
	o := r.rxsteer("profile", "--for", "2s", "--hz", "499", "--overhead", "0", "-w", file, "--flame", svg).want(t, exitOK)
	if err := r.b.FS().WriteFile("/sys/class/net/b0/threaded", []byte("1")); err != nil {
		t.Error(err)
	}
	threaded := r.rxsteer("profile", "--for", "1s", "--hz", "499", "--overhead", "0").want(t, exitOK)
	thinned := r.rxsteer("profile", "--for", "2500ms", "--overhead", "0.01%").want(t, exitOK)
	var sampled, of float64
	_, text, _ := strings.Cut(thinned.stdout, "! sampled in ")
	fmt.Sscanf(text, "%f of %f s", &sampled, &of)
	if sampled < 1 || of < 2.5 || sampled >= of { // more than a second and 2.5 where the machine was late
		t.Errorf("nothing says that the budget was spent after a second:\n%s", thinned.stdout)
	}
	stop()
	for _, want := range []string{"b0 ", "cpu ", "\nOver ", "with what it calls"} {
		if !strings.Contains(o.stdout, want) {
			t.Errorf("stdout lacks %q:\n%s", want, o.stdout)
		}
	}
	if _, over, _ := strings.Cut(threaded.stdout, "\nOver "); !strings.Contains(strings.SplitN(over, "\n", 2)[0], "thread ") || !strings.Contains(threaded.stdout, "b0 ") {
		t.Errorf("NAPI threads are not seen:\n%s", threaded.stdout)
	}
	p, err := readProfile(file)
	if err != nil {
		t.Fatal(err)
	}
	if d := time.Duration(p.DurationNanos); d < 2*time.Second || d > time.Minute || len(p.Sample) == 0 {
		t.Errorf("%v, %d samples", d, len(p.Sample))
	}
	if text, err := os.ReadFile(svg); err != nil || !bytes.Contains(text, []byte("veth_poll")) {
		t.Errorf("the drawing lacks veth_poll (%v)", err)
	}
	// The tool that people will open it with.
	top := r.b.Command(t.Context(), "go", "tool", "pprof", "-top", "-tagfocus=device=b0", file)
	out, err := top.CombinedOutput()
	if err != nil || !bytes.Contains(out, []byte("veth_poll")) {
		t.Errorf("go tool pprof: %v\n%s", err, out)
	}
}

// send has a send small packets to b as fast as it can until the answer is called.
func (r *rig) send() (stop func()) {
	r.t.Helper()
	ended := make(chan struct{})
	sent := make(chan error, 1)
	go func() {
		sent <- r.a.Do(func() error {
			c, err := net.Dial("udp", "10.81.0.2:9")
			if err != nil {
				return err
			}
			defer c.Close()
			for {
				select {
				case <-ended:
					return nil
				default:
					c.Write(make([]byte, 100)) // nobody listens: refused at times
				}
			}
		})
	}()
	return func() {
		close(ended)
		if err := <-sent; err != nil {
			r.t.Fatal(err)
		}
	}
}

// TestProfileAroundATransaction: what apply --profile keeps, profile --transaction compares; so it does of what the agent keeps.
func TestProfileAroundATransaction(t *testing.T) {
	r := newRig(t)
	stop := r.send()
	defer stop()
	r.rxsteer(r.apply(r.plan(nil), "--for", "1s", "--profile")...)
	txs, _, err := apply.History(r.dir)
	if err != nil || len(txs) != 1 {
		t.Fatalf("%d transactions, %v", len(txs), err)
	}
	svg := filepath.Join(t.TempDir(), "diff.svg")
	o := r.rxsteer("profile", "--transaction", txs[0].ID, "--flame", svg, "--state-dir", r.dir).want(t, exitOK)
	for _, want := range []string{"of one CPU, before ", "change", "with what it calls"} {
		if !strings.Contains(o.stdout, want) {
			t.Errorf("stdout lacks %q:\n%s", want, o.stdout)
		}
	}
	if drawn, err := os.ReadFile(svg); err != nil || !bytes.Contains(drawn, []byte("after transaction "+txs[0].ID)) || !bytes.Contains(drawn, []byte("; before ")) {
		t.Errorf("the drawing is not of the transaction (%v)", err)
	}
	r.rxsteer("profile", "--transaction", "77", "--state-dir", r.dir).want(t, exitFailed, "no such transaction", "rxsteer history")
	r.rxsteer("profile", "--transaction", "../../etc/passwd", "--state-dir", r.dir).want(t, exitFailed, "no such transaction")
	r.rxsteer("profile", "--transaction", txs[0].ID, "--base", svg).want(t, exitUsage)
	r.rxsteer("rollback", "--state-dir", r.dir)

	// Without --profile there is nothing, until the agent's minutes before and after it are there.
	r.rxsteer(r.apply(r.plan(nil), "--for", "0s")...).want(t, exitOK)
	if txs, _, err = apply.History(r.dir); err != nil {
		t.Fatal(err)
	}
	tx := txs[len(txs)-1]
	r.rxsteer("profile", "--transaction", tx.ID, "--state-dir", r.dir).want(t, exitFailed, "was not profiled", "apply --profile")
	at := func(from, to time.Duration, more int64) minute {
		p := fixedProfile(more)
		p.TimeNanos = tx.Begun.Add(from).UnixNano()
		var b bytes.Buffer
		if err := p.Write(&b); err != nil {
			t.Fatal(err)
		}
		return minute{began: tx.Begun.Add(from), ended: tx.Begun.Add(to), text: b.Bytes()}
	}
	during := at(-time.Second, 59*time.Second, 5)
	for _, pair := range [][2]minute{{{}, at(-4*time.Minute, -3*time.Minute, 1)}, {at(-61*time.Second, -time.Second, 0), during}, {during, at(time.Minute, 2*time.Minute, 30)}, {at(time.Minute, 2*time.Minute, 30), at(2*time.Minute, 3*time.Minute, 50)}} {
		if err := pair[0].keep(pair[1], r.dir); err != nil {
			t.Fatal(err)
		}
	}
	o = r.rxsteer("profile", "--transaction", tx.ID, "--state-dir", r.dir).want(t, exitOK)
	golden(t, "profile-change.txt", o.stdout)
}

// TestOldProfilesAreRemoved: the folder of a host whose agent steers all the time does not grow.
func TestOldProfilesAreRemoved(t *testing.T) {
	dir := t.TempDir()
	for i := range 2 * aroundKept {
		if err := saveAround(dir, strconv.Itoa(i), sideAfter, []byte("x")); err != nil {
			t.Fatal(err)
		}
		when := time.Unix(int64(1e9+i), 0)
		if err := os.Chtimes(aroundFile(dir, strconv.Itoa(i), sideAfter), when, when); err != nil {
			t.Fatal(err)
		}
	}
	left, err := os.ReadDir(filepath.Join(dir, aroundDir))
	if err != nil || len(left) != aroundKept {
		t.Errorf("%d files are left, want %d (%v)", len(left), aroundKept, err)
	}
	if _, err := os.Stat(aroundFile(dir, strconv.Itoa(2*aroundKept-1), sideAfter)); err != nil {
		t.Error("the newest is gone: ", err)
	}
}

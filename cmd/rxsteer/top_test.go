package main

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rxsteer/rxsteer/internal/testnet"
)

// screen is rxsteer in a terminal: a tmux of its own in the rig's receiving namespace.
type screen struct {
	t    *testing.T
	name string // of the tmux server
}

// onScreen starts a shell command in a terminal of that size. The screen keeps what is there after it ends.
func onScreen(t *testing.T, ns *testnet.NS, width, height int, env []string, command string) *screen {
	t.Helper()
	if _, err := exec.LookPath("tmux"); err != nil {
		t.Skip("needs tmux")
	}
	s := &screen{t, fmt.Sprintf("rxsteer-test-%d-%s", os.Getpid(), strings.ReplaceAll(t.Name(), "/", "-"))}
	args := []string{"-L", s.name, "-f", "/dev/null", "new-session", "-d", "-x", fmt.Sprint(width), "-y", fmt.Sprint(height)}
	for _, e := range env {
		args = append(args, "-e", e)
	}
	start := ns.Command(t.Context(), "tmux", append(args, command+"; echo left with $?; exec sleep 1000")...)
	start.Env = append(os.Environ(), "LC_ALL=C.UTF-8", "TERM=xterm-256color")
	if out, err := start.CombinedOutput(); err != nil {
		t.Fatalf("tmux: %v: %s", err, out)
	}
	t.Cleanup(func() { exec.Command("tmux", "-L", s.name, "kill-server").Run() }) // its end is all that counts
	return s
}

func (s *screen) tmux(args ...string) string {
	s.t.Helper()
	out, err := exec.CommandContext(s.t.Context(), "tmux", append([]string{"-L", s.name}, args...)...).CombinedOutput()
	if err != nil {
		s.t.Fatalf("tmux %v: %v: %s", args, err, out)
	}
	return string(out)
}

func (s *screen) press(keys ...string) { s.tmux(append([]string{"send-keys"}, keys...)...) }

// want waits until all of these are on the screen, and returns it.
func (s *screen) want(texts ...string) string {
	s.t.Helper()
	var shown string
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		shown = s.tmux("capture-pane", "-p")
		missing := false
		for _, text := range texts {
			missing = missing || !strings.Contains(shown, text)
		}
		if !missing {
			return shown
		}
	}
	s.t.Fatalf("never saw %q:\n%s", texts, shown)
	return ""
}

// trickle sends datagrams to the receiver until the test ends.
func (r *rig) trickle() {
	stop, done := make(chan struct{}), make(chan error, 1)
	go func() {
		done <- r.a.Do(func() error {
			c, err := net.Dial("udp", "10.81.0.2:9")
			if err != nil {
				return err
			}
			defer c.Close()
			tick := time.NewTicker(time.Millisecond)
			defer tick.Stop()
			for {
				select {
				case <-stop:
					return nil
				case <-tick.C:
					c.Write(make([]byte, 100)) // nobody listens: refused at times
				}
			}
		})
	}()
	r.t.Cleanup(func() {
		close(stop)
		if err := <-done; err != nil {
			r.t.Error(err)
		}
	})
}

func TestTopInATerminal(t *testing.T) {
	r := newRig(t)
	r.trickle()
	// The kernel lets anybody with CAP_NET_ADMIN name an interface so.
	if err := r.b.IP("link", "add", "name", "\x1b[31mevil", "type", "veth", "peer", "name", "good"); err != nil {
		t.Fatal(err)
	}
	if err := r.b.IP("link", "set", "\x1b[31mevil", "up"); err != nil {
		t.Fatal(err)
	}
	s := onScreen(t, r.b, 80, 24, nil, "rxsteer top --interval 200ms --overhead 0")
	shown := s.want("rxsteer top", "LIVE", "b0 ", "packets/s", "level 1", "?[31mevil")
	if lines := strings.Count(shown, "\n"); lines != 24 {
		t.Errorf("%d lines:\n%s", lines, shown)
	}
	s.want("findings") // judged
	s.press("Space")
	s.want("PAUSED")
	s.press("Left", "Left", "Left", "Left", "Left")
	s.want("PAUSED, 1 s ago")
	s.press("End")
	s.want("LIVE")
	s.press("/", "e", "v", "i", "l", "Enter")
	if shown := s.want("/evil"); strings.Contains(shown, "\n  b0 ") {
		t.Errorf("the filter shows b0:\n%s", shown)
	}
	s.press("Escape")
	s.want("queues by time ──", "\n  b0 ")
	s.press("s")
	s.want("queues by packets")
	s.press("Down")
	s.want("▶")
	s.press("Tab")
	s.want("elephants")
	s.press("Tab", "Enter")
	s.want("driver", "veth", "enter back")
	s.press("Enter")
	s.tmux("resize-window", "-x", "130", "-y", "40")
	if shown := s.want("busy/s", "napi"); strings.Count(shown, "\n") != 40 {
		t.Errorf("not 40 lines:\n%s", shown)
	}
	s.tmux("resize-window", "-x", "30", "-y", "6")
	s.want("needs 50x10")
	s.tmux("resize-window", "-x", "80", "-y", "24")
	s.press("?")
	s.want("What you see", "any key closes this")
	s.press("x")
	s.want("queues by packets")
	if coloured := s.tmux("capture-pane", "-p", "-e"); !strings.Contains(coloured, "\x1b[") {
		t.Error("no colour on a terminal that has it")
	}
	s.press("q")
	if shown := s.want("left with 0"); strings.Contains(shown, "queues by") {
		t.Errorf("the frame is left on the screen:\n%s", shown)
	}
}

// TestTopWithoutColourAndUTF8: plain ASCII, by environment.
func TestTopWithoutColourAndUTF8(t *testing.T) {
	r := newRig(t)
	r.trickle()
	s := onScreen(t, r.b, 80, 24, []string{"NO_COLOR=1", "LC_ALL=C"}, "rxsteer top --interval 200ms")
	shown := s.want("LIVE", "b0 ", "# receive = interrupts - other")
	for _, r := range shown {
		if r > 0x7e {
			t.Fatalf("%q on a screen of ASCII:\n%s", r, shown)
		}
	}
	if coloured := s.tmux("capture-pane", "-p", "-e"); strings.Contains(coloured, "\x1b[3") {
		t.Errorf("colour with NO_COLOR: %q", coloured)
	}
	s.press("C-c")
	s.want("left with 0")
}

// TestTopEndsBySignal: the terminal is given back.
func TestTopEndsBySignal(t *testing.T) {
	r := newRig(t)
	pid := filepath.Join(t.TempDir(), "pid")
	s := onScreen(t, r.b, 80, 24, nil, "sh -c 'echo $$ > "+pid+"; exec rxsteer top --interval 200ms'")
	s.want("LIVE")
	text, err := os.ReadFile(pid)
	if err != nil {
		t.Fatal(err)
	}
	if out, err := exec.CommandContext(t.Context(), "kill", "-TERM", strings.TrimSpace(string(text))).CombinedOutput(); err != nil {
		t.Fatalf("kill: %v: %s", err, out)
	}
	if shown := s.want("left with 0"); strings.Contains(shown, "queues by") {
		t.Errorf("the frame is left on the screen:\n%s", shown)
	}
}

func TestTopOfARecording(t *testing.T) {
	r := newRig(t)
	r.trickle()
	file := filepath.Join(t.TempDir(), "x.rxrec")
	r.rxsteer("record", "-w", file, "--for", "2s", "--interval", "200ms").want(t, exitOK)
	s := onScreen(t, r.b, 80, 24, nil, "rxsteer top --from "+file)
	s.want("RECORDED 10 of 10", "b0 ")
	s.press("Left")
	s.want("RECORDED 9 of 10")
	s.press("Home")
	s.want("RECORDED 1 of 10")
	s.press("Space")
	s.want("RECORDED 10 of 10\n") // played to its end
	s.press("q")
	s.want("left with 0")
	// The same without a terminal: one frame.
	o := r.rxsteer("top", "--from", file).want(t, exitOK)
	if !strings.Contains(o.stdout, "RECORDED 10 of 10") || !strings.Contains(o.stdout, "b0 ") || strings.Contains(o.stdout, "\x1b") {
		t.Errorf("frame:\n%s", o.stdout)
	}
}

// TestTopWithoutATerminal prints one frame and ends.
func TestTopWithoutATerminal(t *testing.T) {
	r := newRig(t)
	r.trickle()
	o := r.rxsteer("top", "b0", "--interval", "200ms", "--overhead", "0").want(t, exitOK)
	for _, want := range []string{"level 1", "b0 ", "findings", "driver"} {
		if !strings.Contains(o.stdout, want) {
			t.Errorf("frame lacks %q:\n%s", want, o.stdout)
		}
	}
	if bytes.Contains([]byte(o.stdout), []byte{0x1b}) {
		t.Errorf("escapes in a pipe:\n%s", o.stdout)
	}
	r.rxsteer("top", "b1").want(t, exitFailed, `no interface "b1"`)
}

// BenchmarkTop is the share of a core that rxsteer top takes at 1 Hz, 200x60, 64 queues with traffic: measuring and
// drawing, by the kernel's account of the process over ten seconds an iteration. Run it on a quiet machine.
func BenchmarkTop(b *testing.B) {
	testnet.NeedRoot(b)
	if _, err := exec.LookPath("tmux"); err != nil {
		b.Skip("needs tmux")
	}
	// Not in this process: testscript made "rxsteer" out of it.
	bin := filepath.Join(b.TempDir(), "rxsteer")
	if out, err := exec.CommandContext(b.Context(), "go", "build", "-o", bin, ".").CombinedOutput(); err != nil {
		b.Fatalf("build: %v: %s", err, out)
	}
	from, to := testnet.New(b), testnet.New(b)
	if err := testnet.Connect(from, to, testnet.Veth{Queues: 64, NAPI: true, AddrA: "10.81.0.1/24", AddrB: "10.81.0.2/24"}); err != nil {
		b.Fatal(err)
	}
	stop, sent := make(chan struct{}), make(chan error, 1)
	go func() {
		sent <- from.Do(func() error {
			var flows []net.Conn
			for range 256 {
				c, err := net.Dial("udp", "10.81.0.2:9")
				if err != nil {
					return err
				}
				defer c.Close()
				flows = append(flows, c)
			}
			for i := 0; ; i++ {
				select {
				case <-stop:
					return nil
				case <-time.After(200 * time.Microsecond):
					flows[i%len(flows)].Write(make([]byte, 100)) // nobody listens: refused at times
				}
			}
		})
	}()
	server := fmt.Sprintf("rxsteer-bench-%d", os.Getpid())
	tmux := func(args ...string) string {
		cmd := to.Command(b.Context(), "tmux", append([]string{"-L", server, "-f", "/dev/null"}, args...)...)
		cmd.Env = append(os.Environ(), "LC_ALL=C.UTF-8", "TERM=xterm-256color")
		out, err := cmd.CombinedOutput()
		if err != nil {
			b.Fatalf("tmux %v: %v: %s", args, err, out)
		}
		return strings.TrimSpace(string(out))
	}
	tmux("new-session", "-d", "-x", "200", "-y", "60", bin+" top")
	defer tmux("kill-server")
	pid := tmux("display-message", "-p", "#{pane_pid}")
	ticks := func() (sum float64) {
		text, err := os.ReadFile("/proc/" + pid + "/stat")
		if err != nil {
			b.Fatal(err)
		}
		_, rest, _ := strings.Cut(string(text), ") ")
		var user, system float64
		f := strings.Fields(rest) // from the third field, state, on: proc_pid_stat(5)
		if _, err := fmt.Sscan(f[11], &user); err != nil {
			b.Fatal(err)
		}
		if _, err := fmt.Sscan(f[12], &system); err != nil {
			b.Fatal(err)
		}
		return user + system
	}
	time.Sleep(10 * time.Second) // it loads the programs of both levels, reads the settings and draws the first frames
	var used, seconds float64
	for b.Loop() {
		before := ticks()
		time.Sleep(10 * time.Second)
		used, seconds = used+ticks()-before, seconds+10
	}
	const hz = 100 // USER_HZ
	b.ReportMetric(100*used/hz/seconds, "%core")
	if frame := tmux("capture-pane", "-p"); !strings.Contains(frame, "b0 ") {
		b.Errorf("it does not measure:\n%s", frame)
	}
	close(stop)
	if err := <-sent; err != nil {
		b.Error(err)
	}
}

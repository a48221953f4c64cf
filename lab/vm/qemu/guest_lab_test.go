//go:build lab

// These boot guests: go test -tags lab ./lab/vm/qemu

package qemu

import (
	"bufio"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

func open(t *testing.T) *Cache {
	t.Helper()
	c, err := OpenCache()
	if err != nil {
		t.Fatal(err)
	}
	return c
}

var small = Machine{NIC: "none", SMP: 1, MemMB: 512}

// failure boots a job that gives no status and returns why.
func failure(t *testing.T, m Machine, job Job) *Failure {
	t.Helper()
	_, err := open(t).Boot(context.Background(), m, job)
	f, ok := err.(*Failure)
	if !ok {
		t.Fatalf("got %v, want a Failure", err)
	}
	return f
}

func TestGuestStatusOutputAndFiles(t *testing.T) {
	res, err := open(t).Boot(context.Background(), Machine{NIC: "e1000e", SMP: 1, MemMB: 512},
		Job{Script: `host 'ip -br addr show labtap; exit 3'; echo "host said $?"; uname -r >release; exit 7`})
	if err != nil {
		t.Fatal(err)
	}
	if res.Status != 7 || !strings.Contains(res.Output, SenderIP) || !strings.Contains(res.Output, "host said 3") {
		t.Errorf("status %d, output %q", res.Status, res.Output)
	}
	if got := strings.TrimSpace(string(res.Files["release"])); !strings.HasPrefix(got, "6.12.") {
		t.Errorf("kernel release %q, want 6.12.x", got)
	}
}

func TestGuestThatHangsIsATimeoutWithItsLog(t *testing.T) {
	var f *Failure
	for _, limit := range []time.Duration{25 * time.Second, 75 * time.Second, 225 * time.Second} { // the least in which this host boots it
		if f = failure(t, small, Job{Script: "echo before; sleep 1000", Timeout: limit}); strings.Contains(f.Log, "before") {
			break
		}
	}
	if f.Code != ExitTimeout || !strings.Contains(f.Line, "hung") || !strings.Contains(f.Log, "before") || !strings.Contains(f.Log, "lab: ready") {
		t.Errorf("code %d, line %q, log %q", f.Code, f.Line, f.Log)
	}
}

func TestGuestThatPanicsIsTheLabsFailureWithItsLog(t *testing.T) {
	f := failure(t, small, Job{Script: "echo before; echo c >/proc/sysrq-trigger; sleep 100"})
	if f.Code != ExitLab || !strings.Contains(f.Line, "panicked: Kernel panic") || !strings.Contains(f.Log, "before") {
		t.Errorf("code %d, line %q, log %q", f.Code, f.Line, f.Log)
	}
}

func TestKernelWithoutPackageIsUnavailable(t *testing.T) {
	f := failure(t, Machine{Kernel: "4.4", NIC: "none"}, Job{Script: "true"})
	if f.Code != ExitUnavailable || !strings.Contains(f.Line, "kernel 4.4 unavailable") {
		t.Errorf("code %d, line %q", f.Code, f.Line)
	}
}

func TestTwoGuestsSideBySide(t *testing.T) {
	var wg sync.WaitGroup
	c := open(t)
	for _, word := range []string{"one", "two"} {
		wg.Go(func() {
			res, err := c.Boot(context.Background(), Machine{NIC: "e1000e", SMP: 1, MemMB: 512}, Job{Script: "host echo " + word})
			if err != nil || res.Status != 0 || strings.TrimSpace(res.Output) != word {
				t.Errorf("%s: %v, %+v", word, err, res)
			}
		})
	}
	wg.Wait()
}

// The owner is this test's own binary, run again as TestOwnerThatIsKilled.
func TestKilledOwnerLeavesNothing(t *testing.T) {
	owner := exec.Command(os.Args[0], "-test.run", "^TestOwnerThatIsKilled$", "-test.v")
	owner.Env = append(os.Environ(), "RXSTEER_LAB_OWNER=1")
	out, err := owner.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := owner.Start(); err != nil {
		t.Fatal(err)
	}
	for s := bufio.NewScanner(out); s.Scan() && !strings.Contains(s.Text(), "guest is up"); {
	}
	mine := strconv.Itoa(owner.Process.Pid)
	if n := children(t, mine); n < 2 {
		t.Errorf("%d children of the owner, want QEMU and the sender's shell", n)
	}
	runs := func() []string {
		dirs, err := filepath.Glob(filepath.Join(open(t).dir, "run", mine+".*"))
		if err != nil {
			t.Fatal(err)
		}
		return dirs
	}
	if err := owner.Process.Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	owner.Wait() // it was killed
	for deadline := time.Now().Add(time.Minute); len(processes(t, "lab-owner-mark")) > 0; time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("still running: %v", processes(t, "lab-owner-mark"))
		}
	}
	if dirs := runs(); len(dirs) > 0 { // runs opens the cache, which removes what dead owners left
		t.Errorf("left behind: %v", dirs)
	}
}

func TestOwnerThatIsKilled(t *testing.T) {
	if os.Getenv("RXSTEER_LAB_OWNER") == "" {
		t.Skip("needs to be run by TestKilledOwnerLeavesNothing")
	}
	m := Machine{NIC: "e1000e", SMP: 1, MemMB: 512, Append: "lab-owner-mark"}
	_, err := open(t).Boot(context.Background(), m, Job{Script: "host_bg 'exec -a lab-owner-mark sleep 600'; sleep 1; echo guest is up; sleep 600", Output: os.Stdout})
	t.Fatal("the owner was not killed: ", err)
}

// processes lists the live processes whose command line has a word.
func processes(t *testing.T, word string) []string {
	t.Helper()
	files, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, f := range files {
		if b, err := os.ReadFile(f); err == nil && strings.Contains(string(b), word) {
			out = append(out, strings.ReplaceAll(string(b), "\x00", " "))
		}
	}
	return out
}

// children counts the processes whose parent is pid.
func children(t *testing.T, pid string) int {
	t.Helper()
	files, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			continue // gone meanwhile
		}
		_, rest, _ := strings.Cut(string(b), ") ")
		if f := strings.Fields(rest); len(f) > 1 && f[1] == pid {
			n++
		}
	}
	return n
}

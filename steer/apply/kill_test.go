package apply

import (
	"bytes"
	"encoding/json"
	"flag"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/rxsteer/rxsteer/internal/testnet"
)

var killRounds = flag.Int("kill-rounds", 200, "how often apply is killed at a random point")

// killed is a host on which apply is killed at random points.
type killed struct {
	t *testing.T
	// command runs this test's child there; set reads what the plan sets.
	command func() *exec.Cmd
	env     []string
	set     func() []string
}

func (k killed) start(dir, do string) *exec.Cmd {
	k.t.Helper()
	c := k.command()
	c.Env = append(append(os.Environ(), childDo+"="+do, childDir+"="+dir), k.env...)
	c.Stderr = os.Stderr
	if do == "apply" {
		c.Stderr = nil // it dies in the middle of a sentence
	}
	if err := c.Start(); err != nil {
		k.t.Fatal(err)
	}
	return c
}

func (k killed) finish(dir, do string) {
	k.t.Helper()
	if err := k.start(dir, do).Wait(); err != nil {
		k.t.Fatalf("%s: %v", do, err)
	}
}

// begun waits for the journal's second line, that a transaction begins: the program's start and its look at
// the host take longest and change nothing.
func (k killed) begun(dir string) {
	k.t.Helper()
	for deadline := time.Now().Add(time.Minute); ; {
		if b, err := os.ReadFile(filepath.Join(dir, journalFile)); err == nil && bytes.Count(b, []byte("\n")) > 1 {
			return
		}
		if time.Now().After(deadline) {
			k.t.Fatal("no journal")
		}
		time.Sleep(50 * time.Microsecond)
	}
}

// last is how a journal's transaction stands.
func (k killed) last(dir string) State {
	k.t.Helper()
	txs, _, err := History(dir)
	if err != nil {
		k.t.Fatal(err)
	}
	if len(txs) == 0 {
		return "never begun"
	}
	return txs[len(txs)-1].State
}

// rounds kills: after each the host is as before or as planned, the journal tells which, and the
// next run ends it.
func (k killed) rounds(n int) {
	t := k.t
	before := k.set()
	var took []time.Duration
	var after []string
	for range 9 { // how long one takes that nobody kills
		dir := t.TempDir()
		c := k.start(dir, "apply")
		k.begun(dir)
		from := time.Now()
		ended := make(chan error, 1)
		go func() { ended <- c.Wait() }()
		var size int64
		var grown time.Duration // when the last line was written; the process ends long after
		for watching := true; watching; {
			select {
			case err := <-ended:
				if err != nil {
					t.Fatal(err)
				}
				watching = false
			default:
				if st, err := os.Stat(filepath.Join(dir, journalFile)); err == nil && st.Size() > size {
					size, grown = st.Size(), time.Since(from)
				}
			}
		}
		took = append(took, grown)
		after = k.set()
		k.finish(dir, "rollback")
		if diff := cmp.Diff(before, k.set()); diff != "" {
			t.Fatalf("rolled back (-want +got):\n%s", diff)
		}
	}
	if cmp.Equal(before, after) {
		t.Fatal("the plan changes nothing")
	}
	slices.Sort(took)
	whole := took[len(took)/2]
	found, ended := map[State]int{}, map[State]int{}
	for round := range n {
		dir := t.TempDir()
		c := k.start(dir, "apply")
		k.begun(dir)
		delay := time.Duration(rand.Int64N(int64(whole) * 11 / 10))
		for from := time.Now(); time.Since(from) < delay; { // finer than a sleep
		}
		c.Process.Kill() // or it has ended
		c.Wait()
		was := k.last(dir)
		found[was]++
		k.finish(dir, "recover")
		state := k.last(dir)
		ended[state]++
		want := before
		switch state {
		case Kept:
			want = after
		case RolledBack, "never begun":
		default:
			t.Fatalf("round %d: found as %s, ends as %s", round, was, state)
		}
		if diff := cmp.Diff(want, k.set()); diff != "" {
			t.Fatalf("round %d: found as %s, ends as %s after %v of %v (-want +got):\n%s", round, was, state, delay, whole, diff)
		}
		if state == Kept {
			k.finish(dir, "rollback")
			if diff := cmp.Diff(before, k.set()); diff != "" {
				t.Fatalf("round %d, rolled back (-want +got):\n%s", round, diff)
			}
		}
	}
	t.Logf("%d rounds, killed within %v of the transaction's begin: found as %s; after the next run %s", n, whole, counts(found), counts(ended))
	if n >= 50 && found[Applying] < n/4 {
		t.Errorf("only %d of %d were killed in the middle: the points are not random", found[Applying], n)
	}
}

func counts(m map[State]int) string {
	b, err := json.Marshal(m)
	if err != nil {
		return err.Error()
	}
	return string(b)
}

// TestRealKillAnywhere: SIGKILL whenever it may come, on this host's kernel.
func TestRealKillAnywhere(t *testing.T) {
	testnet.NeedRoot(t)
	ns := rig(t)
	n := *killRounds
	if testing.Short() {
		n = min(n, 20)
	}
	killed{t: t, set: func() []string { return masks(t, ns) },
		command: func() *exec.Cmd { return ns.Command(t.Context(), os.Args[0], "-test.run=^$") }}.rounds(n)
}

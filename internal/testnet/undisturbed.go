package testnet

import (
	"fmt"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
)

// tries is how often Undisturbed runs a test at most.
const tries = 5

// Undisturbed runs a test that measures time, or counts what the kernel may leave out where a CPU is contended: on a
// machine that does other work too a try may fail without a fault. It passes with the first try that holds; a fault fails
// every one. What earlier tries said is logged.
func Undisturbed(t testing.TB, test func(t testing.TB)) {
	t.Helper()
	for n := 1; ; n++ {
		a := &attempt{TB: t}
		a.run(test)
		switch {
		case a.skipped:
			t.Skip(a.why)
		case !a.failed:
			return
		case n == tries:
			t.Fatalf("%d tries failed, the last of them so:\n%s", tries, a.said)
		}
		t.Logf("try %d of %d:\n%s", n, tries, a.said)
	}
}

// attempt is a try: it fails and ends without the test's doing so.
type attempt struct {
	testing.TB
	mu              sync.Mutex // of all below; a test may fail from several goroutines
	failed, skipped bool
	said, why       string
	cleanups        []func()
}

func (a *attempt) run(test func(testing.TB)) {
	do := func(f func()) {
		done := make(chan struct{})
		go func() { // FailNow ends the goroutine
			defer close(done)
			f()
		}()
		<-done
	}
	do(func() { test(a) })
	for len(a.cleanups) > 0 {
		last := a.cleanups[len(a.cleanups)-1]
		a.cleanups = a.cleanups[:len(a.cleanups)-1]
		do(last)
	}
}

func (a *attempt) fail(text string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.failed = true
	if text == "" {
		return
	}
	_, file, line, _ := runtime.Caller(2)
	a.said += fmt.Sprintf("\t%s:%d: %s\n", filepath.Base(file), line, strings.TrimSuffix(text, "\n"))
}

func (a *attempt) skip(why string) {
	a.mu.Lock()
	a.skipped, a.why = true, why
	a.mu.Unlock()
	runtime.Goexit()
}

func (a *attempt) Cleanup(f func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.cleanups = append(a.cleanups, f)
}

func (a *attempt) Failed() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.failed || a.TB.Failed()
}

func (a *attempt) Fail()                     { a.fail("") }
func (a *attempt) FailNow()                  { a.fail(""); runtime.Goexit() }
func (a *attempt) Error(v ...any)            { a.fail(fmt.Sprintln(v...)) }
func (a *attempt) Errorf(f string, v ...any) { a.fail(fmt.Sprintf(f, v...)) }
func (a *attempt) Fatal(v ...any)            { a.fail(fmt.Sprintln(v...)); runtime.Goexit() }
func (a *attempt) Fatalf(f string, v ...any) { a.fail(fmt.Sprintf(f, v...)); runtime.Goexit() }
func (a *attempt) SkipNow()                  { a.skip("") }
func (a *attempt) Skip(v ...any)             { a.skip(fmt.Sprint(v...)) }
func (a *attempt) Skipf(f string, v ...any)  { a.skip(fmt.Sprintf(f, v...)) }

package hosttest

import (
	"errors"
	"syscall"
	"testing"

	"github.com/rxsteer/rxsteer/internal/ethtool"
	"github.com/rxsteer/rxsteer/internal/host/knob"
)

// TestFaults: files and ethtool share one count of writes; the n-th fails with the errno
// given and changes nothing.
func TestFaults(t *testing.T) {
	const rps = "/sys/class/net/eth0/queues/rx-0/rps_cpus"
	for fail := range 4 {
		h := New(t, Spec{CPUs: Small(4), NICs: []NIC{MLX5("eth0", 4)}})
		var done []string
		f := &Faulty{FS: h, FailWrite: fail, Err: syscall.ENOSPC, After: func(_ int, what string) { done = append(done, what) }}
		e := f.Ethtool(h.Ethtool())
		var _ knob.Ethtool = e
		before := h.Dump()
		steps := []func() error{
			func() error { return f.WriteFile(rps, []byte("3")) },
			func() error { return e.SetRings("eth0", ethtool.Group{"rx": 512}) },
			func() error { return f.WriteFile(rps, []byte("1")) },
		}
		for i, step := range steps {
			err := step()
			if failed := i+1 == fail; failed != errors.Is(err, syscall.ENOSPC) || !failed && err != nil {
				t.Errorf("failing write %d: write %d: %v", fail, i+1, err)
			}
		}
		want := 3
		if fail > 0 {
			want = 2
		}
		if len(done) != want || h.Dump() == before {
			t.Errorf("failing write %d: done %q", fail, done)
		}
	}
}

// recorder is a testing.TB that notes errors instead of failing.
type recorder struct {
	testing.TB
	errors int
}

func (r *recorder) Errorf(string, ...any) { r.errors++ }

// TestStrictness: writing what no host lets be written fails the test as well.
func TestStrictness(t *testing.T) {
	for path, want := range map[string]int{
		"/sys/class/net/eth0/queues/rx-0/rps_cpus": 0,
		"/sys/class/net/eth0/queues/rx-9/rps_cpus": 1,
		"/sys/class/net/eth1/mtu":                  1,
		"/proc/irq/24/effective_affinity_list":     1,
		"/proc/irq/24":                             1,
		"/sys/class/net/eth0/ifindex":              1,
	} {
		r := &recorder{TB: t}
		h := New(r, Spec{CPUs: Small(4), NICs: []NIC{IGB("eth0", 2)}})
		err := h.WriteFile(path, []byte("1"))
		if r.errors != want || (err != nil) != (want > 0) {
			t.Errorf("%s: %d complaints and error %v, want %d", path, r.errors, err, want)
		}
	}
}

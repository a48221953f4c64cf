package bpf

import (
	"errors"
	"fmt"
	"slices"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// The types of rx.h, which documents their fields.
type (
	NAPIKey  = rxNapiKey
	NAPIStat = rxNapiStat
	IRQKey   = rxIrqKey
	IRQStat  = rxIrqStat
	CPUStat  = rxCpuStat
	RunStat  = rxRunStat
	Latency  = rxLatency
	Context  = rxContext
)

// Over what a NET_RX run took the CPU: indices into CPUStat.RunsIn and TimeIn.
const (
	OverTask    = rxContextOVER_TASK
	OverIdle    = rxContextOVER_IDLE
	InKsoftirqd = rxContextIN_KSOFTIRQD
)

// Counters is everything counted since Attach. NAPIKeys[i] names NAPIs[i] and
// IRQKeys[i] IRQs[i], RunKeys[i] Runs[i]; order means nothing. CPUs is indexed by CPU and as long
// as the host's possible CPUs.
type Counters struct {
	NAPIKeys []NAPIKey
	NAPIs    []NAPIStat
	IRQKeys  []IRQKey
	IRQs     []IRQStat
	RunKeys  []NAPIKey
	Runs     []RunStat // with SetDetail only
	CPUs     []CPUStat
}

// batch is how many hash entries one bpf(2) call asks for. Room for that many is kept: 1024 took 8 MiB of an agent that read
// a dozen, and not a microsecond less at 4096.
const batch = 256

// Read reads all counters into c, reusing its slices. CPUs go on counting
// meanwhile: each number is right at some moment within the call.
func (p *Programs) Read(c *Counters) (err error) {
	if c.CPUs, err = readCPUs(p.cpus, p.cpuKeys, c.CPUs); err != nil {
		return fmt.Errorf("read CPU counters: %w", err)
	}
	if c.NAPIKeys, c.NAPIs, err = readHash(p.napis, c.NAPIKeys[:0], c.NAPIs[:0]); err != nil {
		return fmt.Errorf("read NAPI counters: %w", err)
	}
	if c.IRQKeys, c.IRQs, err = readHash(p.irqs, c.IRQKeys[:0], c.IRQs[:0]); err != nil {
		return fmt.Errorf("read IRQ counters: %w", err)
	}
	if c.RunKeys, c.Runs, err = readHash(p.runs, c.RunKeys[:0], c.Runs[:0]); err != nil {
		return fmt.Errorf("read NET_RX runs: %w", err)
	}
	return nil
}

// readCPUs reads an array with an element per CPU; keys is scratch of that length.
func readCPUs[V any](m *ebpf.Map, keys []uint32, values []V) ([]V, error) {
	values = slices.Grow(values[:0], len(keys))[:len(keys)]
	var cursor ebpf.MapBatchCursor
	n, err := m.BatchLookup(&cursor, keys, values, nil)
	if n != len(values) || err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
		return values, fmt.Errorf("%d of %d: %w", n, len(values), err)
	}
	return values, nil
}

// readHash appends all entries of a hash map to keys and values.
func readHash[K, V any](m *ebpf.Map, keys []K, values []V) ([]K, []V, error) {
	var cursor ebpf.MapBatchCursor
	for want := batch; ; {
		n := len(keys)
		keys, values = slices.Grow(keys, want), slices.Grow(values, want)
		got, err := m.BatchLookup(&cursor, keys[n:n+want], values[n:n+want], nil)
		keys, values = keys[:n+got], values[:n+got]
		switch {
		case err == nil:
		case errors.Is(err, ebpf.ErrKeyNotExist):
			return keys, values, nil // the end
		case errors.Is(err, unix.ENOSPC):
			// One bucket of the hash holds more than we asked for
			// (__htab_map_lookup_and_delete_batch, kernel/bpf/hashtab.c).
			want *= 2
		default:
			return keys, values, err
		}
	}
}

// MaxNAPIs is how many {NAPI, CPU} pairs fit.
func (p *Programs) MaxNAPIs() int { return int(p.napis.MaxEntries()) }

// Forget deletes {NAPI, CPU} pairs, so that the map has room for others. A
// pair that comes back counts from 0.
func (p *Programs) Forget(keys []NAPIKey) error {
	for _, k := range keys {
		for _, m := range []*ebpf.Map{p.napis, p.runs} {
			if err := m.Delete(k); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
				return fmt.Errorf("delete NAPI counters: %w", err)
			}
		}
	}
	return nil
}

// Device is the name the NAPI's device had when it was first polled on that
// CPU, "" for the backlog.
func (s *NAPIStat) Device() string { return name(s.Name[:]) }

// name is a C string of at most that length.
func name(c []int8) string {
	b := make([]byte, 0, len(c))
	for _, c := range c {
		if c == 0 {
			break
		}
		b = append(b, byte(c))
	}
	return string(b)
}

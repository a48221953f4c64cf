package main

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/rxsteer/rxsteer/internal/cpuset"
	"github.com/rxsteer/rxsteer/internal/host"
	"github.com/rxsteer/rxsteer/internal/host/knob"
	"github.com/rxsteer/rxsteer/internal/host/nic"
	"github.com/rxsteer/rxsteer/internal/host/topo"
)

// hostRooms is the host as the rooms below cmd see it.
type hostRooms struct {
	fs      host.FS
	machine *knob.Machine
	sources nic.Sources
	closers []func() error
}

func (h *hostRooms) close() {
	for _, c := range h.closers {
		c() // read-only sockets: nothing is lost
	}
}

func (h *hostRooms) inventory(ctx context.Context) ([]nic.NIC, error) {
	return nic.Inventory(ctx, h.sources)
}

func (h *hostRooms) topology() (*topo.Topology, error) {
	return &topo.Topology{}, nil
}

// openHost opens what can be opened; what cannot makes settings unknown, with the reason.
func (e *env) openHost() (*hostRooms, error) {
	h := &hostRooms{fs: e.fs, sources: nic.Sources{FS: e.fs}}
	m, err := knob.Open(knob.Config{FS: e.fs, Now: e.now})
	if err != nil {
		return nil, err
	}
	h.machine = m
	return h, nil
}

func setOf(cpus []int) string { return cpuset.Of(cpus...).String() }

// checkInterfaces refuses names that are not there, and says which are.
func checkInterfaces(nics []nic.NIC, names []string) error {
	var there []string
	for _, n := range nics {
		there = append(there, n.Name)
	}
	slices.Sort(there)
	for _, name := range names {
		if slices.Contains(there, name) {
			continue
		}
		f := &failure{code: exitFailed, err: fmt.Errorf("no interface %q in this network namespace; there are %s", name, strings.Join(there, ", "))}
		if best := closest(name, there); best != "" {
			f.next = append(f.next, "did you mean "+best+"?")
		}
		f.next = append(f.next, "for one in another namespace: ip netns exec NAME rxsteer …")
		return f
	}
	return nil
}

// closest is the name that differs least, "" when all differ by more than two letters.
func closest(name string, from []string) string {
	best, dist := "", 3
	for _, f := range from {
		if d := distance(name, f); d < dist {
			best, dist = f, d
		}
	}
	return best
}

// distance is the Levenshtein distance.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diag := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := 1
			if a[i] == b[j] {
				cost = 0
			}
			diag, row[j+1] = row[j+1], min(row[j+1]+1, row[j]+1, diag+cost)
		}
	}
	return row[len(b)]
}

// completeInterfaces offers interface names to the shell.
func (e *env) completeInterfaces(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	entries, err := e.fs.ReadDir("/sys/class/net")
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	var names []string
	for _, d := range entries {
		if _, err := e.fs.Readlink("/sys/class/net/" + d.Name()); err == nil && !slices.Contains(args, d.Name()) {
			names = append(names, d.Name())
		}
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}

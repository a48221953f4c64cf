// Package matrix asks each kernel of the lab, and the host's own, whether each BPF object
// loads, which hooks are live, and whether time is attributed to the right NAPI: against a
// burn whose length is known, and against fentry/fexit on __napi_poll where that loads.
package matrix

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/rxsteer/rxsteer/lab/vm/qemu"
)

// within is how far attribution may be from what is known.
const within = 0.03

// Answer is what the probe program prints.
type Answer struct {
	Kernel  string            `json:"kernel"`
	Objects map[string]string `json:"objects"` // "" is loaded and attached
	Hooks   []struct {
		Name string `json:"name"`
		Live bool   `json:"live"`
		Why  string `json:"why"`
		Lost string `json:"lost"`
	} `json:"hooks"`
	Rig struct {
		Name       string  `json:"name"`
		Err        string  `json:"error"`
		Packets    uint64  `json:"packets"`
		Ratio      float64 `json:"ratio"`
		FexitPolls uint64  `json:"fexit_polls"`
		OurPolls   uint64  `json:"our_polls"`
		FexitRatio float64 `json:"fexit_ratio"`
		NoFexit    string  `json:"no_fexit"`
	} `json:"rig"`
	Reader struct {
		Err   string `json:"error"`
		Sent  uint64 `json:"sent"`
		Seen  uint64 `json:"seen"`
		Right uint64 `json:"right"`
	} `json:"reader"`
}

// row is one line of the table.
type row struct {
	machine string
	answer  *Answer
	err     error
	took    time.Duration
}

// problems are what the answer must not say.
func (r *row) problems() []string {
	if r.err != nil {
		return nil
	}
	var out []string
	for name, why := range r.answer.Objects {
		if why != "" {
			out = append(out, "object "+name+" does not load: "+why)
		}
	}
	for _, h := range r.answer.Hooks {
		if !h.Live && (h.Why == "" || h.Lost == "") {
			out = append(out, "hook "+h.Name+" is missing without a reason or without what is lost")
		}
	}
	if p := r.answer.Reader; p.Err != "" {
		out = append(out, "the reader failed: "+p.Err)
	} else if p.Sent == 0 || p.Seen != p.Sent || p.Right != p.Sent {
		out = append(out, fmt.Sprintf("of %d datagrams read after 0.1 s %d were seen and %d with that delay", p.Sent, p.Seen, p.Right))
	}
	rig := r.answer.Rig
	switch {
	case rig.Err != "":
		out = append(out, "the rig failed: "+rig.Err)
	case math.Abs(rig.Ratio-1) > within:
		out = append(out, fmt.Sprintf("attributed/burnt is %.3f, want within %g %%", rig.Ratio, 100*within))
	case rig.NoFexit == "" && math.Abs(rig.FexitRatio-1) > within:
		out = append(out, fmt.Sprintf("ours/fexit is %.3f, want within %g %%", rig.FexitRatio, 100*within))
	}
	slices.Sort(out)
	return out
}

// Line is what came of one machine.
type Line struct {
	Machine, Result, Verdict string
	Took                     time.Duration
}

// Run asks each machine and this host, prints the table and returns a Failure where an
// answer is wrong. A kernel whose package is gone is a line, not a failure. bin are the
// programs for guests, among them the probe.
func Run(ctx context.Context, cache *qemu.Cache, bin []string, machines []qemu.Machine) ([]Line, error) {
	i := slices.IndexFunc(bin, func(b string) bool { return filepath.Base(b) == "rxprobe" })
	if i < 0 {
		return nil, &qemu.Failure{Code: qemu.ExitLab, Line: "matrix: rxprobe is not among the programs"}
	}
	var rows []row
	for _, m := range machines {
		fmt.Printf("--- matrix [%s]\n", m)
		rows = append(rows, guest(ctx, cache, m, bin))
	}
	fmt.Println("--- matrix [this host]")
	return report(append(rows, thisHost(ctx, bin[i])))
}

// A guest's packets cost 20 ms each: under TCG the rest of a poll takes 50 to 300 µs
// and depends on what the other virtual CPUs do, which must stay small beside the burn (at 8 ms
// it was 2.6 % on igb).
const guestScript = `host_bg "rxtraffic send --to 10.77.0.2:9000 --flows 4 --rate 25 --for 6m"
n=100; while [ "$(cat /sys/class/net/eth0/statistics/rx_packets)" -lt 20 ] && [ $n -gt 0 ]; do usleep 100000; n=$((n-1)); done
rxprobe -dev eth0 -for 1200ms -burn 20ms >/share/answer.json`

func guest(ctx context.Context, cache *qemu.Cache, m qemu.Machine, bin []string) row {
	start := time.Now()
	r := row{machine: m.NIC, answer: &Answer{Kernel: m.Kernel}}
	res, err := cache.Boot(ctx, m, qemu.Job{Script: guestScript, Bin: bin, Timeout: 6 * time.Minute})
	r.took = time.Since(start)
	switch {
	case err != nil:
		r.err = err
	case res.Status != 0:
		r.err = &qemu.Failure{Code: qemu.ExitLab, Line: fmt.Sprintf("the probe failed on %s: status %d", m, res.Status), Log: res.Output}
	default:
		if err := json.Unmarshal(res.Files["answer.json"], r.answer); err != nil {
			r.err = fmt.Errorf("read the probe's answer: %w", err)
		}
	}
	return r
}

func thisHost(ctx context.Context, probe string) row {
	start := time.Now()
	r := row{machine: "host", answer: &Answer{Kernel: "this host"}}
	cmd := exec.CommandContext(ctx, probe, "-burn", "300us")
	var log strings.Builder
	cmd.Stderr = &log
	out, err := cmd.Output()
	r.took = time.Since(start)
	if err == nil {
		err = json.Unmarshal(out, r.answer)
	}
	if err != nil {
		r.err = &qemu.Failure{Code: qemu.ExitLab, Line: fmt.Sprintf("the probe failed on this host: %v", err), Log: log.String()}
	}
	return r
}

func report(rows []row) ([]Line, error) {
	var lines []Line
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "\nkernel\tnic\tobjects\thooks\tlate reads\tattributed/burnt\tours/fexit\ts\tverdict")
	var wrong, broken []string
	code := qemu.ExitLab
	for i := range rows {
		r := &rows[i]
		a := r.answer
		verdict := "pass"
		switch {
		case r.err != nil && qemu.ExitCode(r.err) == qemu.ExitUnavailable:
			verdict = "unavailable"
		case r.err != nil:
			verdict, code = "BROKEN", qemu.ExitCode(r.err)
			broken = append(broken, r.err.Error())
			if f, ok := errors.AsType[*qemu.Failure](r.err); ok && f.Log != "" {
				fmt.Println(f.Log)
			}
		case len(r.problems()) > 0:
			verdict = "FAIL"
			wrong = append(wrong, fmt.Sprintf("%s %s: %s", a.Kernel, r.machine, strings.Join(r.problems(), "; ")))
		}
		if r.err != nil {
			fmt.Fprintf(w, "%s\t%s\t-\t-\t-\t-\t-\t%.0f\t%s\n", a.Kernel, r.machine, r.took.Seconds(), verdict)
			lines = append(lines, Line{a.Kernel + " " + r.machine, "-", verdict, r.took})
			continue
		}
		loaded, live := 0, 0
		for _, why := range a.Objects {
			if why == "" {
				loaded++
			}
		}
		var missing []string
		for _, h := range a.Hooks {
			if h.Live {
				live++
			} else {
				missing = append(missing, h.Name)
			}
		}
		hooks := fmt.Sprintf("%d of %d", live, len(a.Hooks))
		if len(missing) > 0 {
			hooks += " (no " + strings.Join(missing, ", ") + ")"
		}
		fexit := fmt.Sprintf("%.3f (%d/%d polls)", a.Rig.FexitRatio, a.Rig.OurPolls, a.Rig.FexitPolls)
		if a.Rig.NoFexit != "" {
			fexit = "does not load"
		}
		fmt.Fprintf(w, "%s\t%s\t%d of %d\t%s\t%d of %d\t%.3f (%s, %d packets)\t%s\t%.0f\t%s\n", a.Kernel, r.machine, loaded, len(a.Objects), hooks, a.Reader.Right, a.Reader.Sent,
			a.Rig.Ratio, a.Rig.Name, a.Rig.Packets, fexit, r.took.Seconds(), verdict)
		lines = append(lines, Line{a.Kernel + " " + r.machine, fmt.Sprintf("%d of %d objects, %s hooks, %d of %d late reads, attributed/burnt %.3f", loaded, len(a.Objects), hooks, a.Reader.Right, a.Reader.Sent, a.Rig.Ratio), verdict, r.took})
	}
	if err := w.Flush(); err != nil {
		return lines, err
	}
	switch {
	case len(wrong) > 0:
		return lines, &qemu.Failure{Code: qemu.ExitAssertion, Line: "matrix: " + strings.Join(wrong, "; ")}
	case len(broken) > 0:
		return lines, &qemu.Failure{Code: code, Line: "matrix: " + strings.Join(broken, "; ")}
	}
	return lines, nil
}

package main

import (
	"flag"
	"fmt"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"github.com/rxsteer/rxsteer/lab/traffic"
)

// list parses a comma-separated flag with parse for each element.
func list[T any](text string, parse func(string) (T, error)) ([]T, error) {
	var out []T
	if text == "" {
		return nil, nil
	}
	for _, s := range strings.Split(text, ",") {
		v, err := parse(strings.TrimSpace(s))
		if err != nil {
			return nil, err
		}
		out = append(out, v)
	}
	return out, nil
}

// ports parses "1000,1010-1073".
func ports(text string) ([]uint16, error) {
	ranges, err := list(text, func(s string) ([]uint16, error) {
		first, last, isRange := strings.Cut(s, "-")
		a, err := strconv.ParseUint(first, 10, 16)
		if err != nil {
			return nil, err
		}
		b := a
		if isRange {
			if b, err = strconv.ParseUint(last, 10, 16); err != nil {
				return nil, err
			}
		}
		if a == 0 || b < a {
			return nil, fmt.Errorf("port range %q", s)
		}
		var out []uint16
		for p := a; p <= b; p++ {
			out = append(out, uint16(p))
		}
		return out, nil
	})
	var out []uint16
	for _, r := range ranges {
		out = append(out, r...)
	}
	return out, err
}

// planFlags are the flags that make a traffic.Plan.
type planFlags struct {
	plan  traffic.Plan
	sizes string
	cpu   int
	first uint
}

func addPlan(fs *flag.FlagSet, rate float64, firstFlow uint) *planFlags {
	p := &planFlags{}
	fs.Float64Var(&p.plan.Rate, "rate", rate, "`packets` per second of all flows together; 0 is as fast as possible")
	fs.DurationVar(&p.plan.For, "for", 10*time.Second, "end after that `time`; 0 leaves it to --count")
	fs.Uint64Var(&p.plan.Count, "count", 0, "end after that many `packets`; 0 leaves it to --for")
	fs.StringVar(&p.sizes, "size", "64", "payload `bytes`; of a list, each flow takes its turn (64,1400)")
	fs.IntVar(&p.cpu, "cpu", -1, "pin the sender to that `CPU`")
	fs.UintVar(&p.first, "first-flow", firstFlow, "`number` of the first flow, so that several senders differ")
	return p
}

func (p *planFlags) parse() (traffic.Plan, error) {
	sizes, err := list(p.sizes, strconv.Atoi)
	if err != nil || len(sizes) == 0 {
		return p.plan, fmt.Errorf("%w: --size %q: want bytes", errUsage, p.sizes)
	}
	p.plan.Sizes, p.plan.FirstFlow = sizes, uint32(p.first)
	if p.cpu >= 0 {
		p.plan.CPU = &p.cpu
	}
	return p.plan, nil
}

func addrPort(flagName, text string) (netip.AddrPort, error) {
	a, err := netip.ParseAddrPort(text)
	if err != nil || a.Port() == 0 {
		return a, fmt.Errorf("%w: --%s %q: want ADDRESS:PORT", errUsage, flagName, text)
	}
	return a, nil
}

package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/rxsteer/rxsteer/bpf"
	"github.com/rxsteer/rxsteer/internal/host/knob"
)

// doctorDoc is the JSON of doctor; docs/json.md describes it.
type doctorDoc struct {
	Kernel      string   `json:"kernel"`
	UID         int      `json:"uid"`
	MissingCaps []string `json:"missing_capabilities"`
	Lockdown    string   `json:"lockdown"`
	Live        bool     `json:"live"`
	Checks      []check  `json:"checks"`
}

type check struct {
	Area  string `json:"area"`
	Name  string `json:"name"`
	OK    bool   `json:"ok"`
	Why   string `json:"why"`
	Lost  string `json:"lost"`
	Grant string `json:"grant"`
}

// Areas of a doctor's visit.
const (
	areaMeasure = "measure"
	areaNetlink = "netlink"
	areaFiles   = "files"
	areaSet     = "settings"
	areaState   = "state"
)

var areaTitles = []struct{ area, title string }{
	{areaMeasure, "Live measurement (BPF tracepoints)"},
	{areaNetlink, "Netlink and ethtool"},
	{areaFiles, "Kernel counters"},
	{areaSet, "Settings of the interfaces that are up"},
	{areaState, "Transactions"},
}

func doctorCommand(e *env) *cobra.Command {
	c := &cobra.Command{
		Use:   "doctor",
		Short: "Say what this kernel and this host allow, and what is lost",
		Long: `Try everything rxsteer asks of the kernel, one by one, and say what works, what
does not and why, what is lost without it, and the line that grants it. Each BPF
hook is loaded, attached and detached again; nothing else is touched.`,
		Example: `  rxsteer doctor
  rxsteer doctor -o json | jq '.checks[] | select(.ok | not)'`,
		GroupID: groupLook,
		Args:    cobra.NoArgs,
	}
	out := addOutput(c, "json")
	c.RunE = func(c *cobra.Command, _ []string) error {
		if err := out.check(); err != nil {
			return err
		}
		h, err := e.openHost()
		if err != nil {
			return err
		}
		defer h.close()
		doc, err := e.examine(c.Context(), h)
		if err != nil {
			return err
		}
		if out.format == "json" {
			return printJSON(e.stdout, doc)
		}
		printDoctor(e.stdout, doc, e.palette(), e.textWidth())
		return nil
	}
	return c
}

// counterFiles are the files of level 0 and what each is for.
var counterFiles = []struct{ file, lost string }{
	{"/proc/interrupts", "interrupt counts and the names of vectors"},
	{"/proc/softirqs", "softirq runs per CPU"},
	{"/proc/net/softnet_stat", "packets, drops and squeezes per CPU"},
	{"/proc/stat", "idle and stolen time per CPU"},
	{"/proc/net/dev", "packets and drops per interface"},
}

func (e *env) examine(ctx context.Context, h *hostRooms) (*doctorDoc, error) {
	s := bpf.Probe(e.fs, e.bpf)
	doc := &doctorDoc{UID: s.UID, MissingCaps: append([]string{}, s.MissingCaps...), Lockdown: s.Lockdown, Live: s.Err == nil, Checks: []check{}}
	add := func(c check) { doc.Checks = append(doc.Checks, c) }
	grant := ""
	if len(s.MissingCaps) > 0 {
		grant = grantLine(s.MissingCaps)
	}
	for _, k := range append([]bpf.Hook{s.BTF}, s.Hooks...) {
		c := check{Area: areaMeasure, Name: k.Name, OK: k.Live, Why: k.Why}
		if !k.Live {
			c.Lost = k.Lost
			if k.Name != s.BTF.Name {
				c.Grant = grant
			}
		}
		add(c)
	}
	for _, r := range h.netlink {
		add(r)
	}
	for _, f := range counterFiles {
		c := check{Area: areaFiles, Name: f.file, OK: true}
		if _, err := e.fs.ReadFile(f.file); err != nil {
			c.OK, c.Why, c.Lost = false, err.Error(), f.lost
		}
		add(c)
	}
	snap, err := h.machine.Snapshot(ctx)
	if err != nil {
		return nil, err
	}
	doc.Kernel = snap.Host.Kernel
	for _, c := range settingChecks(snap) {
		add(c)
	}
	state, err := e.stateChecks()
	if err != nil {
		return nil, err
	}
	for _, c := range state {
		add(c)
	}
	return doc, nil
}

// settingChecks says for each kind of setting whether it can be read, and on which interfaces
// there is none.
func settingChecks(snap *knob.Snapshot) []check {
	type state struct {
		known   int
		unknown map[string][]knob.Target // by reason
	}
	kinds := map[knob.Kind]*state{}
	for _, s := range snap.Settings {
		st := kinds[s.Knob]
		if st == nil {
			st = &state{unknown: map[string][]knob.Target{}}
			kinds[s.Knob] = st
		}
		switch {
		case s.Value.Known():
			st.known++
		case !s.Value.IsAbsent():
			st.unknown[s.Value.Reason()] = append(st.unknown[s.Value.Reason()], s.Target)
		}
	}
	var out []check
	for k, st := range kinds {
		for reason, targets := range st.unknown {
			where := string(targets[0])
			if len(targets) > 1 {
				where += fmt.Sprintf(" and %d more", len(targets)-1)
			}
			out = append(out, check{Area: areaSet, Name: string(k) + " of " + where, Why: reason, Lost: "this setting is not shown, compared or put back"})
		}
	}
	slices.SortFunc(out, func(a, b check) int { return cmp.Compare(a.Name, b.Name) })
	if len(out) == 0 {
		out = append(out, check{Area: areaSet, Name: fmt.Sprintf("all %d that exist", known(snap)), OK: true})
	}
	return out
}

func known(snap *knob.Snapshot) int {
	n := 0
	for _, s := range snap.Settings {
		if s.Value.Known() {
			n++
		}
	}
	return n
}

func printDoctor(w io.Writer, doc *doctorDoc, p palette, width int) {
	who := "root"
	if doc.UID != 0 {
		who = fmt.Sprintf("uid %d", doc.UID)
	}
	fmt.Fprintf(w, "Kernel %s, as %s, lockdown %s\n", doc.Kernel, who, doc.Lockdown)
	var grants []string
	for _, a := range areaTitles {
		printed := false
		for _, c := range doc.Checks {
			if c.Area != a.area {
				continue
			}
			if !printed {
				fmt.Fprintln(w, "\n"+p.bold(a.title))
				printed = true
			}
			if c.OK {
				fmt.Fprintln(w, "  "+p.green("yes")+"  "+c.Name)
				continue
			}
			fmt.Fprintln(w, "  "+p.red("no")+"   "+c.Name)
			if c.Why != "" {
				wrap(w, width, "       why:  ", "             ", c.Why)
			}
			if c.Lost != "" {
				wrap(w, width, "       lost: ", "             ", c.Lost)
			}
			if c.Grant != "" && !slices.Contains(grants, c.Grant) {
				grants = append(grants, c.Grant)
			}
		}
	}
	fmt.Fprintln(w)
	if doc.Live {
		fmt.Fprintln(w, p.green("Live measurement works here."))
	} else {
		wrap(w, width, p.red("No live measurement here")+"; ", "", "what the kernel counts itself (--level 0) still works.")
	}
	for _, g := range grants {
		fmt.Fprintln(w, "  → "+g)
	}
}

// grantLine is what gives the program the capabilities it lacks.
func grantLine(caps []string) string {
	return "run as root, or: setcap " + strings.ToLower(strings.Join(caps, ",")) + "=ep " + executable()
}

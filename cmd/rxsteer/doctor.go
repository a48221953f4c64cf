package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/rxsteer/rxsteer/bpf"
	"github.com/rxsteer/rxsteer/internal/host/knob"
	"github.com/rxsteer/rxsteer/steer/apply"
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
	areaChange  = "change"
	areaState   = "state"
)

var areaTitles = []struct{ area, title string }{
	{areaMeasure, "Live measurement (BPF tracepoints)"},
	{areaNetlink, "Netlink and ethtool"},
	{areaFiles, "Kernel counters"},
	{areaSet, "Settings"},
	{areaChange, "Changing the host"},
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
	for _, k := range slices.Concat([]bpf.Hook{s.BTF}, s.Hooks, []bpf.Hook{s.Profile}) {
		c := check{Area: areaMeasure, Name: k.Name, OK: k.Live, Why: k.Why}
		if !k.Live {
			c.Lost = k.Lost
			if k.Name != s.BTF.Name {
				c.Grant = grant
			}
		}
		add(c)
	}
	snap, err := h.machine.Snapshot(ctx)
	if err != nil {
		return nil, err
	}
	for _, r := range append(h.netlink, messageChecks(snap)...) {
		add(r)
	}
	for _, f := range counterFiles {
		c := check{Area: areaFiles, Name: f.file, OK: true}
		switch text, err := e.fs.ReadFile(f.file); {
		case err != nil:
			c.OK, c.Why, c.Lost = false, err.Error(), f.lost
		case len(text) == 0: // none of them is
			c.OK, c.Why, c.Lost, c.Grant = false, "it is empty: a container's runtime hides it", f.lost, "mount the host's /proc and /sys elsewhere and name them in RXSTEER_PROC and RXSTEER_SYS"
		}
		add(c)
	}
	doc.Kernel = snap.Host.Kernel
	for _, c := range settingChecks(snap) {
		add(c)
	}
	var first []string
	if len(snap.Devices) > 0 {
		first = []string{snap.Devices[0].Name}
	}
	for _, c := range slices.Concat(e.writeChecks(first, apply.DefaultDir), e.journalChecks(), e.persistChecks(), agentChecks(apply.DefaultDir)) {
		add(c)
	}
	if by := confinement(e.fs); by != "" {
		for i, c := range doc.Checks {
			if denied(c.Why) && (doc.UID == 0 || c.Grant == "") {
				doc.Checks[i].Grant = by
			}
		}
	}
	return doc, nil
}

// netdevLost is what is lost without a command of the netdev family (and the Linux that brought it).
var netdevLost = map[string]string{
	"queue-get":  "the kernel's own map of queues to NAPIs (6.8); names are used instead",
	"napi-get":   "the kernel's own map of NAPIs to interrupts (6.8); names are used instead",
	"qstats-get": "counters of queues in one form for all drivers (6.9); ethtool -S is used instead",
	"napi-set":   "settings of a single NAPI instance cannot be changed (6.13)",
}

// familyChecks says which messages of a netlink family the kernel answers: those it does in one
// line, then each it does not. Of ethtool nothing is lost, for the ioctl asks the same of the driver.
func familyChecks(family string, has map[string]bool, lost map[string]string) []check {
	var yes, no []string
	for _, m := range slices.Sorted(maps.Keys(has)) {
		if has[m] {
			yes = append(yes, m)
		} else {
			no = append(no, m)
		}
	}
	out := []check{{Area: areaNetlink, Name: family + ": " + strings.Join(yes, ", "), OK: true}}
	if len(yes) == 0 {
		out = nil
	}
	if len(no) > 0 && lost == nil {
		return append(out, check{Area: areaNetlink, Name: family + ": " + strings.Join(no, ", "), Why: "this kernel's family has no such message", Lost: "nothing where the driver answers the older ioctl"})
	}
	for _, m := range no {
		out = append(out, check{Area: areaNetlink, Name: family + ": " + m, Why: "this kernel's family has no such command", Lost: lost[m]})
	}
	return out
}

// messages are what is asked of drivers over netlink or ioctl, and what is lost where no
// driver of this host answers.
var messages = []struct {
	kind knob.Kind
	lost string
}{
	{knob.Channels, "queue counts are not shown or changed"},
	{knob.Rings, "ring sizes are not shown or changed"},
	{knob.Coalesce, "interrupt moderation is not shown or changed"},
	{knob.RSSTable, "flows cannot be spread by the device's table: RPS is what is left"},
	{knob.RSSKey, "the queue of a flow cannot be computed"},
	{knob.RSSHashFields, "which packet fields the device hashes is not shown or changed"},
	{knob.Features, "offloads are not shown or changed"},
	{knob.Pause, "pause frames that hide drops are not seen"},
	{knob.Threaded, "threaded NAPI is not seen or changed"},
}

// messageChecks says for each message which interfaces answer it.
func messageChecks(snap *knob.Snapshot) []check {
	out := make([]check, 0, len(messages))
	for _, m := range messages {
		var yes []string
		var no []string
		for _, s := range snap.Settings {
			dev := s.Target.Device()
			switch {
			case s.Knob != m.kind || dev == "":
			case s.Value.Known() && !slices.Contains(yes, dev):
				yes = append(yes, dev)
			case !s.Value.Known() && s.Target.Part() == "":
				no = append(no, dev+": "+s.Value.Reason())
			}
		}
		c := check{Area: areaNetlink, Name: string(m.kind), OK: len(yes) > 0}
		if c.OK {
			c.Name += " (" + clip(strings.Join(yes, ", "), 60) + ")"
		} else {
			c.Lost = m.lost
			c.Why = "no interface here answers"
			if len(no) > 0 {
				c.Why = no[0]
			}
			if len(no) > 1 {
				c.Why += fmt.Sprintf(" (and %d more do not answer)", len(no)-1)
			}
		}
		out = append(out, c)
	}
	return out
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
			lost := "this setting is not shown, compared or put back"
			if !knob.Writable(k) {
				lost = "this fact is not known before a change is tried"
			}
			out = append(out, check{Area: areaSet, Name: string(k) + " of " + where, Why: reason, Lost: lost})
		}
	}
	slices.SortFunc(out, func(a, b check) int { return cmp.Compare(a.Name, b.Name) })
	if len(out) == 0 {
		out = append(out, check{Area: areaSet, Name: fmt.Sprintf("all %d that this host has can be read", known(snap)), OK: true})
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
		printed, why := false, ""
		for _, c := range doc.Checks {
			if c.Area != a.area {
				continue
			}
			if !printed {
				fmt.Fprintln(w, "\n"+p.bold(a.title))
				printed = true
			}
			if c.OK {
				wrap(w, width, "  "+p.green("yes")+"  ", "       ", c.Name)
				continue
			}
			fmt.Fprintln(w, "  "+p.red("no")+"   "+c.Name)
			if c.Why == why && why != "" {
				fmt.Fprintln(w, "       why:  as above")
			} else if c.Why != "" {
				wrap(w, width, "       why:  ", "             ", c.Why)
			}
			if c.Lost != "" {
				wrap(w, width, "       lost: ", "             ", c.Lost)
			}
			why = c.Why
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

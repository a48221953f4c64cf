package web

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/rxsteer/rxsteer/internal/host/knob"
	"github.com/rxsteer/rxsteer/internal/host/nic"
	"github.com/rxsteer/rxsteer/internal/host/topo"
	"github.com/rxsteer/rxsteer/steer/apply"
	"github.com/rxsteer/rxsteer/steer/diagnose"
	"github.com/rxsteer/rxsteer/steer/plan"
)

// Facts is what the page shows besides samples. Nil and empty parts are not known.
type Facts struct {
	Host     string
	Kernel   string
	NICs     []nic.NIC
	Topology *topo.Topology
	Snapshot *knob.Snapshot
	Report   *diagnose.Report
	Plan     *plan.Plan
	History  []apply.Transaction  // oldest first
	Profiled func(id string) bool // says of which transactions Config.FlameOf has a drawing; nil: of none
	Loop     []string             // the closed loop's state, as sentences
}

type state struct {
	Host     string    `json:"host"`
	Kernel   string    `json:"kernel"`
	CPUs     []cpu     `json:"cpus"`
	Queues   []queue   `json:"queues"`
	Tables   []table   `json:"tables"`
	Settings []setting `json:"settings"`
	Findings []finding `json:"findings"`
	Checked  []string  `json:"checked"`
	Blind    []string  `json:"blind"`
	Changes  []change  `json:"changes"`
	Reasons  []string  `json:"reasons"`
	History  []deed    `json:"history"`
	Loop     []string  `json:"loop"`
	Judged   bool      `json:"judged"` // a report was there
}

type cpu struct {
	ID       int  `json:"id"`
	Node     int  `json:"node"` // -1 none
	Core     int  `json:"core"`
	LLC      int  `json:"llc"`
	Isolated bool `json:"isolated,omitempty"`
}

type queue struct {
	Key       string `json:"key"` // as frame.Queues
	Device    string `json:"dev"`
	RX        int    `json:"rx"`
	IRQ       int    `json:"irq"` // -1 not known
	Vector    string `json:"vector"`
	Affinity  string `json:"affinity"`
	Effective string `json:"effective"`
	Node      int    `json:"node"` // of the device, -1 none
	RPS       string `json:"rps"`
	KnownBy   string `json:"by"`
}

type table struct {
	Device string `json:"dev"`
	Now    []int  `json:"now"`
	// Other is the table before the last change, or the one that is advised; What says which.
	Other []int  `json:"other,omitempty"`
	What  string `json:"what,omitempty"`
}

// setting is one line of the settings side by side: a kind, its value by device.
type setting struct {
	Kind  string            `json:"kind"`
	Value map[string]string `json:"value"`
}

type finding struct {
	ID       string      `json:"id"`
	Severity string      `json:"severity"`
	Subject  string      `json:"subject"`
	Summary  string      `json:"summary"`
	Remedy   string      `json:"remedy"`
	Evidence [][2]string `json:"evidence"`
	RuledOut []string    `json:"ruled_out,omitempty"`
	Explains []string    `json:"explains,omitempty"`
}

type change struct {
	What    string   `json:"what"`
	From    string   `json:"from"`
	To      string   `json:"to"`
	Why     string   `json:"why"`
	Risk    string   `json:"risk"`
	Command string   `json:"command"`
	Undo    string   `json:"undo"`
	Expect  string   `json:"expect,omitempty"`
	Serves  []string `json:"serves"`
}

// deed is a transaction.
type deed struct {
	ID      string   `json:"id"`
	Begun   int64    `json:"begun"` // Unix ms
	Ended   int64    `json:"ended"`
	State   string   `json:"state"`
	Why     string   `json:"why"`
	Changes []string `json:"changes"`
	// Effect is measure, before, after; "significant" where the difference is.
	Effect [][4]string `json:"effect,omitempty"`
	Flame  bool        `json:"flame,omitempty"` // its flame graph is there
}

// stateOf draws facts up for the page.
func stateOf(f Facts) *state {
	s := &state{Host: f.Host, Kernel: f.Kernel, CPUs: []cpu{}, Queues: []queue{}, Tables: []table{}, Settings: []setting{}, Findings: []finding{},
		Checked: []string{}, Blind: []string{}, Changes: []change{}, Reasons: []string{}, History: []deed{}, Loop: f.Loop, Judged: f.Report != nil}
	if s.Loop == nil {
		s.Loop = []string{}
	}
	if f.Topology != nil {
		for _, c := range f.Topology.CPUs {
			s.CPUs = append(s.CPUs, cpu{ID: c.ID, Node: c.Node, Core: c.Core, LLC: c.LLC, Isolated: c.Isolated})
		}
	}
	for i := range f.NICs {
		n := &f.NICs[i]
		for _, q := range n.Queues {
			if q.RX == nic.None {
				continue
			}
			s.Queues = append(s.Queues, queue{Key: fmt.Sprintf("%s rx-%d", n.Name, q.RX), Device: n.Name, RX: q.RX, IRQ: q.IRQ, Vector: q.Vector,
				Affinity: q.Affinity.String(), Effective: q.Effective.String(), Node: n.Node, RPS: q.RPS.String(), KnownBy: string(q.KnownBy)})
		}
	}
	if f.Report != nil {
		s.judged(f.Report)
	}
	if f.Plan != nil {
		for _, c := range f.Plan.Changes {
			x := change{What: string(c.Knob) + " of " + string(c.Target), From: clip(c.From.String()), To: clip(c.To.String()), Why: c.Why, Risk: string(c.Risk),
				Command: c.Command, Undo: c.Undo, Expect: c.Expect, Serves: []string{}}
			for _, id := range c.Findings {
				x.Serves = append(x.Serves, string(id))
			}
			s.Changes = append(s.Changes, x)
		}
		s.Reasons = append(s.Reasons, f.Plan.Reasons...)
	}
	for i := range f.History {
		d := deedOf(&f.History[i])
		d.Flame = f.Profiled != nil && f.Profiled(d.ID)
		s.History = append(s.History, d)
	}
	if f.Snapshot != nil {
		s.tables(f)
		s.settings(f)
	}
	return s
}

func (s *state) judged(r *diagnose.Report) {
	for _, f := range r.Findings {
		x := finding{ID: string(f.ID), Severity: f.Severity.String(), Subject: f.Subject, Summary: f.Summary, Remedy: f.Remedy, Evidence: [][2]string{}, RuledOut: f.RuledOut}
		for _, e := range f.Evidence {
			x.Evidence = append(x.Evidence, [2]string{e.Name, e.Text()})
		}
		for _, y := range f.Explains {
			x.Explains = append(x.Explains, string(y.ID)+" "+y.Subject+": "+y.Summary)
		}
		s.Findings = append(s.Findings, x)
	}
	s.Checked = append(s.Checked, r.Checked...)
	for _, u := range r.Unmeasured {
		line := u.What + ": " + u.Why
		if u.Weakens != "" {
			line += " (weaker for it: " + u.Weakens + ")"
		}
		s.Blind = append(s.Blind, line)
	}
}

func deedOf(t *apply.Transaction) deed {
	d := deed{ID: t.ID, Begun: t.Begun.UnixMilli(), State: string(t.State), Why: t.Why, Changes: []string{}}
	if !t.Ended.IsZero() {
		d.Ended = t.Ended.UnixMilli()
	}
	for _, c := range t.Plan.Changes {
		d.Changes = append(d.Changes, string(c.Knob)+" of "+string(c.Target)+": "+clip(c.From.String())+" → "+clip(c.To.String()))
	}
	if t.Verdict != nil {
		for _, m := range t.Verdict.Measures {
			word := ""
			if m.Significant {
				word = "significant"
			}
			d.Effect = append(d.Effect, [4]string{m.Name, figure(m.Before), figure(m.After), word})
		}
	}
	return d
}

func figure(x float64) string {
	if x != 0 && x < 10 && x > -10 {
		return fmt.Sprintf("%.3f", x)
	}
	return fmt.Sprintf("%.0f", x)
}

// longest is how much of a value is shown in a sentence; a table has its own drawing.
const longest = 64

func clip(s string) string {
	if r := []rune(s); len(r) > longest {
		return string(r[:longest-1]) + "…"
	}
	return s
}

// tables shows each device's table beside the advised one, else beside the one before the last change that was kept.
func (s *state) tables(f Facts) {
	for i := range f.NICs {
		ref := knob.Ref{Knob: knob.RSSTable, Target: knob.Target(f.NICs[i].Name)}
		t := table{Device: f.NICs[i].Name}
		if f.Snapshot.Get(ref).Decode(&t.Now) != nil || len(t.Now) == 0 {
			continue
		}
		for j := range f.History {
			x := &f.History[j]
			for _, c := range x.Plan.Changes {
				if c.Ref() == ref && x.State == apply.Kept && c.From.Decode(&t.Other) == nil && len(t.Other) > 0 {
					t.What = "before transaction " + x.ID + " of " + x.Begun.UTC().Format(time.DateTime) + " UTC"
				}
			}
		}
		if f.Plan != nil {
			for _, c := range f.Plan.Changes {
				var to []int
				if c.Ref() == ref && c.To.Decode(&to) == nil && len(to) > 0 {
					t.Other, t.What = to, "advised: "+c.Why
				}
			}
		}
		s.Tables = append(s.Tables, t)
	}
}

// shown is a value for people: of a group of switches those that are on.
func shown(v knob.Value) string {
	var flags map[string]bool
	if v.Decode(&flags) != nil || len(flags) == 0 {
		return v.String()
	}
	on := []string{}
	for name, is := range flags {
		if is {
			on = append(on, name)
		}
	}
	slices.Sort(on)
	return strings.Join(on, " ")
}

// settings puts the settings of whole devices side by side.
func (s *state) settings(f Facts) {
	at := map[knob.Kind]int{}
	for _, x := range f.Snapshot.Settings {
		dev := x.Target.Device()
		if dev == "" {
			dev = "host"
		}
		if x.Target.Part() != "" || !x.Value.Known() || !knob.Writable(x.Knob) || x.Knob == knob.RSSTable || x.Knob == knob.RSSKey {
			continue
		}
		if dev != "host" && !slices.ContainsFunc(f.NICs, func(n nic.NIC) bool { return n.Name == dev }) {
			continue
		}
		i, ok := at[x.Knob]
		if !ok {
			i = len(s.Settings)
			at[x.Knob] = i
			s.Settings = append(s.Settings, setting{Kind: string(x.Knob), Value: map[string]string{}})
		}
		s.Settings[i].Value[dev] = shown(x.Value)
	}
	slices.SortFunc(s.Settings, func(a, b setting) int { return cmp.Compare(a.Kind, b.Kind) })
}

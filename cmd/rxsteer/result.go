package main

import (
	"cmp"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/rxsteer/rxsteer/collector"
	"github.com/rxsteer/rxsteer/steer/apply"
)

// applyDoc is the JSON of apply, confirm and rollback; docs/json.md describes it.
type applyDoc struct {
	*apply.Result
	Before *loadDoc `json:"before,omitempty"`
	After  *loadDoc `json:"after,omitempty"`
}

// loadDoc is what was measured on one side.
type loadDoc struct {
	IntervalS  float64   `json:"interval_s"`
	CPUs       []cpuLoad `json:"cpus"`
	PacketsPS  float64   `json:"packets_per_s"`
	DroppedPS  float64   `json:"dropped_per_s"`
	SqueezesPS float64   `json:"squeezes_per_s"`
}

type cpuLoad struct {
	CPU   int     `json:"cpu"`
	NetRX float64 `json:"receive_ratio"` // of the CPU's time
	Share float64 `json:"share_ratio"`   // of all CPUs' receive time
}

// shares is where receive softirq ran; nil without samples.
func shares(windows []*collector.Sample) *loadDoc {
	s := collector.Merge(windows...)
	if s == nil || s.Interval <= 0 {
		return nil
	}
	d := &loadDoc{IntervalS: s.Interval.Seconds(), CPUs: []cpuLoad{}}
	var all float64
	for _, c := range s.CPUs {
		t := c.Softirq
		if s.Level >= 1 {
			t = c.SoftirqTime[collector.NetRX]
		}
		d.CPUs = append(d.CPUs, cpuLoad{CPU: c.CPU, NetRX: float64(t) / float64(s.Interval)})
		all += float64(t) / float64(s.Interval)
		d.PacketsPS += float64(c.Processed) / d.IntervalS
		d.SqueezesPS += float64(c.Squeezed) / d.IntervalS
	}
	for _, l := range s.Losses() {
		if l.Place != collector.LossDropped && l.Place != collector.LossSocket { // nor what no protocol wanted, nor what had passed
			d.DroppedPS += float64(l.Packets) / d.IntervalS
		}
	}
	for i := range d.CPUs {
		if all > 0 {
			d.CPUs[i].Share = d.CPUs[i].NetRX / all
		}
	}
	return d
}

func printResult(w io.Writer, doc *applyDoc, p palette, width int) {
	r := doc.Result
	if len(r.Steps) > 0 {
		t := newTable("  ", "setting", "was", "wanted", "is", "outcome")
		for _, s := range r.Steps {
			t.row(s.Ref.String(), clip(shown(s.From), 20), clip(shown(s.To), 20), clip(shown(s.Got), 20), string(s.Outcome))
		}
		t.print(w, p)
		for _, s := range r.Steps {
			if s.Note != "" {
				wrap(w, width, "  ! ", "    ", s.Ref.String()+": "+s.Note)
			}
		}
	}
	if len(r.Unasked) > 0 {
		fmt.Fprintln(w, "\n"+p.bold("Changed although nobody asked"))
		for _, u := range r.Unasked {
			wrap(w, width, "  ", "    ", fmt.Sprintf("%s: %s → %s: %s", u.Ref, clip(shown(u.From), 30), clip(shown(u.To), 30), u.Note))
		}
	}
	for _, o := range r.Owners {
		wrap(w, width, "  ! ", "    ", ownerText(o))
	}
	printComparison(w, doc, p)
	if len(r.Judged) > 1 || len(r.Judged) == 1 && r.Verdict == nil {
		fmt.Fprintln(w)
		for _, j := range r.Judged {
			wrap(w, width, fmt.Sprintf("  %s of %s: %s. ", j.Knob, printable(cmp.Or(j.Device, "the host")), p.word(j.Verdict.Word)), "    ", j.Verdict.Why)
		}
	}
	if v := r.Verdict; v != nil {
		fmt.Fprintln(w)
		wrap(w, width, "Verdict: "+p.word(v.Word)+". ", "  ", v.Why)
	}
	fmt.Fprintln(w)
	switch r.State {
	case apply.Kept:
		fmt.Fprintf(w, "Kept as transaction %s; undo it with: rxsteer rollback %s\n", r.ID, r.ID)
	case apply.Unconfirmed:
		fmt.Fprintf(w, "Undone by itself in %s unless confirmed: rxsteer confirm %s\n", r.Confirm.Round(time.Second), r.ID)
	case apply.RolledBack:
		wrap(w, width, p.yellow("Rolled back")+": ", "  ", r.Why)
	case apply.Partial:
		wrap(w, width, p.red("Not everything could be put back")+": ", "  ", r.Why)
	default:
		wrap(w, width, "Nothing was changed: ", "  ", r.Why)
	}
	for _, l := range r.Left {
		wrap(w, width, "  ! ", "    ", fmt.Sprintf("%s is %s, was %s: %s", l.Ref, shown(l.Is), shown(l.Want), l.Why))
	}
}

// word is a verdict in its colour.
func (p palette) word(w apply.Word) string {
	switch w {
	case apply.Better:
		return p.green(string(w))
	case apply.Worse:
		return p.red(string(w))
	}
	return p.yellow(string(w))
}

// printComparison is the table of before and after.
func printComparison(w io.Writer, doc *applyDoc, p palette) {
	if doc.Before == nil || doc.After == nil {
		return
	}
	fmt.Fprintln(w)
	t := newTable("  ", "", ">before", ">after")
	after := map[int]cpuLoad{}
	for _, c := range doc.After.CPUs {
		after[c.CPU] = c
	}
	for _, c := range doc.Before.CPUs {
		a := after[c.CPU]
		if c.NetRX < 0.005 && a.NetRX < 0.005 {
			continue
		}
		t.row(fmt.Sprintf("cpu %d: receive softirq (share)", c.CPU),
			fmt.Sprintf("%5.1f %% (%3.0f %%)", 100*c.NetRX, 100*c.Share), fmt.Sprintf("%5.1f %% (%3.0f %%)", 100*a.NetRX, 100*a.Share))
	}
	b, a := doc.Before, doc.After
	v := doc.Verdict
	if v == nil || len(v.Devices) == 0 {
		t.row("packets/s through the stack", fmt.Sprintf("%.0f", b.PacketsPS), fmt.Sprintf("%.0f", a.PacketsPS))
		t.row("packets/s dropped before it", fmt.Sprintf("%.0f", b.DroppedPS), fmt.Sprintf("%.0f", a.DroppedPS))
	}
	if v != nil {
		of, elsewhere := "", "the rest of the host: "
		if len(v.Devices) > 0 {
			of = strings.Join(v.Devices, ", ") + ": "
		}
		for _, m := range v.Measures {
			show := func(what, format string, scale float64) {
				t.row(what, fmt.Sprintf(format, m.Before*scale), fmt.Sprintf(format, m.After*scale))
			}
			switch m.Name {
			case "packets_delivered_per_s":
				if of != "" {
					show(of+"packets/s delivered", "%.0f", 1)
				}
			case "dropped_of_offered_ratio":
				if of != "" {
					show(of+"dropped of those offered", "%.2f %%", 100)
				}
			case "receive_softirq_per_packet_ns":
				show(of+"receive softirq per packet", "%.0f ns", 1)
			case "background_packets_per_s":
				show(elsewhere+"packets/s", "%.0f", 1)
			case "background_busy_cpus":
				show(elsewhere+"CPUs busy", "%.2f", 1)
			}
		}
	}
	t.row("time squeezes/s", fmt.Sprintf("%.0f", b.SqueezesPS), fmt.Sprintf("%.0f", a.SqueezesPS))
	t.print(w, p)
}

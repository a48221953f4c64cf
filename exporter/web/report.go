package web

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/rxsteer/rxsteer/collector"
)

// Recording is what a report is made of: consecutive samples and what was known with them.
type Recording struct {
	Title   string
	Samples []*collector.Sample // oldest first, at least one
	Facts   Facts
}

// reportPolicy is of a file that somebody opens from a ticket: all inside, nothing fetched.
const reportPolicy = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data:"

// Report writes the page with its data inside, one file that loads nothing: of one recording, or with base of what was
// before and what is after.
func Report(w io.Writer, version string, r Recording, base *Recording) error {
	frames := []*frame{}
	if base != nil {
		frames = framesOf(base.Samples)
	}
	frames = append(frames, framesOf(r.Samples)...)
	data := map[string]any{"title": r.span(), "frames": frames, "state": stateOf(r.Facts)}
	if base != nil {
		data["title"] = "before: " + base.span() + " · after: " + r.span()
		data["compare"] = compare(base, &r)
		data["since"] = r.Samples[0].Start.UnixMilli()
	}
	text, err := encode(data) // <, > and & come out as \u003c…: it cannot end the element
	if err != nil {
		return fmt.Errorf("encode the report: %w", err)
	}
	var head, tail strings.Builder
	fmt.Fprintf(&head, "<meta http-equiv=\"Content-Security-Policy\" content=\"%s\">\n", htmlEscape(reportPolicy))
	for _, s := range styles {
		b, err := assets.ReadFile("assets/" + s)
		if err != nil {
			return err
		}
		fmt.Fprintf(&head, "<style>%s</style>\n", b)
	}
	fmt.Fprintf(&tail, "<script type=\"application/json\" id=\"data\">%s</script>\n", text)
	for _, s := range scripts {
		b, err := assets.ReadFile("assets/" + s)
		if err != nil {
			return err
		}
		fmt.Fprintf(&tail, "<script>%s</script>\n", b)
	}
	b, err := assets.ReadFile("assets/index.html")
	if err != nil {
		return err
	}
	_, err = w.Write(fill(b, head.String(), tail.String(), version))
	return err
}

func framesOf(samples []*collector.Sample) []*frame {
	out := []*frame{}
	for _, s := range samples {
		out = append(out, frameOf(s))
	}
	return out
}

func (r *Recording) span() string {
	first, last := r.Samples[0], r.Samples[len(r.Samples)-1]
	title := ""
	if r.Title != "" {
		title = r.Title + " · "
	}
	return fmt.Sprintf("%s%s … %s UTC", title, first.Start.UTC().Format(time.DateTime), last.End.UTC().Format(time.TimeOnly))
}

// measure is a figure of a recording, or of two.
type measure struct {
	Name   string  `json:"name"`
	Before *string `json:"before,omitempty"`
	After  string  `json:"after"`
	Change string  `json:"change,omitempty"`
}

// figures are the means of a recording that a ticket asks for, in a fixed order.
func figures(r *Recording) (names []string, values []float64, text func(i int, x float64) string) {
	m := collector.Merge(r.Samples...)
	f := frameOf(m)
	var hot, mean float64
	for _, x := range f.RX {
		hot, mean = max(hot, x), mean+x
	}
	if len(f.RX) > 0 {
		mean /= float64(len(f.RX))
	}
	var lost, most float64
	for _, x := range f.Drops {
		lost += x
	}
	for _, q := range f.Queues {
		most = max(most, q.Packets)
	}
	type line struct {
		name  string
		value float64
		unit  string
	}
	lines := []line{{"packets received per second", f.Packets, ""}, {"lost per second", lost, ""}, {"hottest CPU in receive softirq", hot, "%"}, {"mean of all CPUs", mean, "%"}, {"busiest queue, packets per second", most, ""}}
	var polls collector.Histogram
	for i := range m.NAPIs {
		polls.Add(&m.NAPIs[i].TimeHist)
	}
	if p := above(&polls, 0.99); p > 0 {
		lines = append(lines, line{"poll p99, at most", p, "ns"})
	}
	for _, s := range collector.StageNames {
		if x, ok := f.Stages[string(s)]; ok {
			lines = append(lines, line{"latency " + string(s) + " p99, at most", x.P99, "ns"})
		}
	}
	for _, l := range lines {
		names, values = append(names, l.name), append(values, l.value)
	}
	return names, values, func(i int, x float64) string {
		switch lines[i].unit {
		case "%":
			return fmt.Sprintf("%.1f %%", 100*x)
		case "ns":
			return short(time.Duration(x))
		}
		return fmt.Sprintf("%.0f", x)
	}
}

// short is a bound of two digits, as the page's JavaScript has it: buckets are powers of two.
func short(d time.Duration) string {
	for _, u := range []struct {
		of   time.Duration
		name string
	}{{time.Second, "s"}, {time.Millisecond, "ms"}, {time.Microsecond, "µs"}} {
		switch {
		case d >= 10*u.of:
			return fmt.Sprintf("%.0f %s", float64(d)/float64(u.of), u.name)
		case d >= u.of:
			return fmt.Sprintf("%.1f %s", float64(d)/float64(u.of), u.name)
		}
	}
	return fmt.Sprintf("%d ns", d.Nanoseconds())
}

// compare puts figures side by side; those that only one has are left out.
func compare(base, r *Recording) []measure {
	names, values, text := figures(r)
	before, was, _ := figures(base)
	var out []measure
	for i, n := range names {
		j := slices.Index(before, n)
		if j < 0 {
			continue
		}
		b := text(i, was[j])
		m := measure{Name: n, Before: &b, After: text(i, values[i])}
		if was[j] != 0 {
			m.Change = fmt.Sprintf("× %.2f", values[i]/was[j])
			if x := values[i] / was[j]; x > 0 && x < 0.1 {
				m.Change = fmt.Sprintf("× %.1g", x)
			}
		}
		out = append(out, m)
	}
	return out
}

// Markdown writes the short form, for a ticket that takes text.
func Markdown(w io.Writer, r Recording, base *Recording) error {
	var b strings.Builder
	s := stateOf(r.Facts)
	cell := func(t string) string {
		t = strings.Map(func(r rune) rune { // names come from others
			if unicode.IsControl(r) {
				return ' '
			}
			return visible(r)
		}, t)
		return strings.NewReplacer("|", "\\|", "<", "&lt;", ">", "&gt;", "`", "'").Replace(t)
	}
	b.WriteString("# Receive path")
	if s.Host != "" {
		b.WriteString(" of " + cell(s.Host))
	}
	fmt.Fprintf(&b, "\n\n%s", cell(r.span()))
	if s.Kernel != "" {
		fmt.Fprintf(&b, ", Linux %s", cell(s.Kernel))
	}
	b.WriteString("\n\n")
	names, values, text := figures(&r)
	if base != nil {
		fmt.Fprintf(&b, "Before: %s\n\n| measure | before | after | change |\n|---|--:|--:|--:|\n", cell(base.span()))
		for _, m := range compare(base, &r) {
			fmt.Fprintf(&b, "| %s | %s | %s | %s |\n", m.Name, *m.Before, m.After, m.Change)
		}
	} else {
		b.WriteString("| measure | |\n|---|--:|\n")
		for i, n := range names {
			fmt.Fprintf(&b, "| %s | %s |\n", n, text(i, values[i]))
		}
	}
	b.WriteString("\n## Findings\n\n")
	for _, f := range s.Findings {
		fmt.Fprintf(&b, "- **%s %s: %s** %s\n", f.ID, f.Severity, cell(f.Subject), cell(f.Summary))
		for _, e := range f.Evidence {
			fmt.Fprintf(&b, "  - %s: %s\n", cell(e[0]), cell(e[1]))
		}
		if f.Remedy != "" {
			fmt.Fprintf(&b, "  - next: %s\n", cell(f.Remedy))
		}
	}
	if len(s.Findings) == 0 {
		b.WriteString("None.\n")
	}
	if len(s.Changes) > 0 {
		b.WriteString("\n## What would help\n\n")
		for _, c := range s.Changes {
			fmt.Fprintf(&b, "- %s (%s, risk %s): %s\n", cell(c.What), strings.Join(c.Serves, ", "), c.Risk, cell(c.Why))
			if c.Command != "" {
				fmt.Fprintf(&b, "\n  ```sh\n  %s\n  ```\n", strings.ReplaceAll(strings.ReplaceAll(c.Command, "\n", "\n  "), "```", "'''"))
			}
		}
	}
	f := frameOf(collector.Merge(r.Samples...))
	keys := make([]string, 0, len(f.Queues))
	for k := range f.Queues {
		keys = append(keys, k)
	}
	slices.SortFunc(keys, func(x, y string) int {
		if d := f.Queues[y].Packets - f.Queues[x].Packets; d != 0 {
			return int(max(min(d, 1), -1))
		}
		return strings.Compare(x, y)
	})
	b.WriteString("\n## Busiest queues\n\n| queue | CPU | packets/s | of a CPU | ns/packet | full budget |\n|---|--:|--:|--:|--:|--:|\n")
	for _, k := range keys[:min(len(keys), 16)] {
		q := f.Queues[k]
		fmt.Fprintf(&b, "| %s | %d | %.0f | %.1f %% | %.0f | %.0f %% |\n", cell(k), q.CPU, q.Packets, 100*q.Share, q.PerPkt, 100*q.Full)
	}
	if len(s.Blind) > 0 {
		b.WriteString("\n## Not seen\n\n")
		for _, l := range s.Blind {
			fmt.Fprintf(&b, "- %s\n", cell(l))
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

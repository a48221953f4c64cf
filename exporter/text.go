package exporter

import (
	"bytes"
	"cmp"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/klauspost/compress/gzip"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/expfmt"
)

// The families that grow with queues × CPUs are nearly all of a scrape. The library takes some 3 µs for each of
// their series (65 ms for 64 queues × 256 CPUs); written straight from the totals each takes some 0.1 µs. Both ways are made from
// the same tables, and TestTextIsTheLibrarys holds that they say the same.

// bulk is the library's view of these families, for scrapers of the protocol buffer format.
type bulk struct{ e *Exporter }

// rest is the other families: few, whatever the host.
type rest struct{ e *Exporter }

// Bulk collects the families that grow with the host, Rest the others.
func (e *Exporter) Bulk() prometheus.Collector { return bulk{e} }

// Rest is what Bulk is not.
func (e *Exporter) Rest() prometheus.Collector { return rest{e} }

// AppendText appends what Bulk collects in Prometheus' text format.
func (e *Exporter) AppendText(b []byte) []byte {
	e.mu.Lock()
	defer e.mu.Unlock()
	napis := lines(e.napis, func(k napiKey, t *napiTotals) *string { return &t.labels }, napiLabels, napiValues)
	cpus := lines(e.cpus, func(_ int, t *cpuTotals) *string { return &t.labels }, cpuLabels, cpuValues)
	irqs := lines(e.irqs, func(_ irqKey, t *irqTotals) *string { return &t.labels }, irqLabels, irqValues)
	b = appendFamilies(b, e.timed, napiFamilies, napis)
	b = appendFamilies(b, e.timed, cpuFamilies, cpus)
	for _, f := range cpuSplits {
		if f.timed && !e.timed || len(cpus) == 0 {
			continue
		}
		b = header(b, f.name, f.help, "counter")
		for _, p := range f.parts {
			end := `,` + f.label + `="` + p.label + `"} `
			for _, l := range cpus {
				b = append(append(append(append(b, "rxsteer_"...), f.name...), l.labels[:len(l.labels)-1]...), end...)
				b = number64(b, p.value(l.totals))
			}
		}
	}
	return appendFamilies(b, e.timed, irqFamilies, irqs)
}

// line is the totals of one label set and its text.
type line[T any] struct {
	labels string // {device="eth0",queue="3",cpu="17"}
	totals *T
}

// lines is one group of totals, by label text; that is made once and kept in the totals.
func lines[K comparable, T any](m map[K]*T, text func(K, *T) *string, names []string, values func(K) []string) []line[T] {
	all := make([]line[T], 0, len(m))
	for k, t := range m {
		s := text(k, t)
		if *s == "" {
			*s = labelText(names, values(k))
		}
		all = append(all, line[T]{*s, t})
	}
	slices.SortFunc(all, func(a, b line[T]) int { return cmp.Compare(a.labels, b.labels) })
	return all
}

var escape = strings.NewReplacer(`\`, `\\`, "\n", `\n`, `"`, `\"`)

func labelText(names, values []string) string {
	var b strings.Builder
	for i, n := range names {
		b.WriteString([]string{"{", ","}[min(i, 1)] + n + `="` + escape.Replace(values[i]) + `"`)
	}
	return b.String() + "}"
}

func appendFamilies[T any](b []byte, timed bool, fs []family[T], all []line[T]) []byte {
	if len(all) == 0 {
		return b
	}
	for _, f := range fs {
		if f.timed && !timed {
			continue
		}
		kind := "counter"
		if f.gauge {
			kind = "gauge"
		}
		b = header(b, f.name, f.help, kind)
		for _, l := range all {
			b = append(append(append(append(b, "rxsteer_"...), f.name...), l.labels...), ' ')
			b = number64(b, f.value(l.totals))
		}
	}
	return b
}

func header(b []byte, name, help, kind string) []byte {
	for _, s := range []string{"# HELP rxsteer_", name, " ", strings.NewReplacer(`\`, `\\`, "\n", `\n`).Replace(help), "\n# TYPE rxsteer_", name, " ", kind, "\n"} {
		b = append(b, s...)
	}
	return b
}

// number64 appends a value and the end of its line. Whole numbers are written as such, exact in a float64.
func number64(b []byte, v float64) []byte {
	if n := int64(v); float64(n) == v && n < 1<<53 && n > -1<<53 {
		b = strconv.AppendInt(b, n, 10)
	} else {
		b = strconv.AppendFloat(b, v, 'g', -1, 64)
	}
	return append(b, '\n')
}

// text is a scrape: what g gathers, and the bulk.
func (e *Exporter) text(g prometheus.Gatherer) ([]byte, error) {
	families, err := g.Gather()
	if err != nil {
		return nil, fmt.Errorf("gather metrics: %w", err)
	}
	var b bytes.Buffer
	b.Grow(int(e.textSize.Load())*9/8 + 4096)
	for _, f := range families {
		if _, err := expfmt.MetricFamilyToText(&b, f); err != nil {
			return nil, fmt.Errorf("write metrics: %w", err)
		}
	}
	text := e.AppendText(b.Bytes())
	e.textSize.Store(int64(len(text)))
	return text, nil
}

// sendText answers with a scrape, compressed for who can read that. A scraper that went away is its own affair.
func sendText(rw http.ResponseWriter, r *http.Request, text []byte) {
	h := rw.Header()
	h.Set("Content-Type", string(expfmt.NewFormat(expfmt.TypeTextPlain)))
	h.Set("Vary", "Accept, Accept-Encoding")
	if !strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") {
		_, _ = rw.Write(text)
		return
	}
	h.Set("Content-Encoding", "gzip")
	z, _ := gzip.NewWriterLevel(rw, gzip.BestSpeed) // an error is a level that does not exist
	_, _ = z.Write(text)
	_ = z.Close()
}

package exporter

import (
	"compress/gzip"
	"io"
	"math"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/rxsteer/rxsteer/collector"
)

// served is the Web of an exporter, as the agent wires it.
func served(t *testing.T, e *Exporter) *Web {
	t.Helper()
	reg := prometheus.NewPedanticRegistry()
	if err := reg.Register(e.Rest()); err != nil {
		t.Fatal(err)
	}
	return &Web{Gatherer: reg, Exporter: e, Healthy: func() error { return nil }}
}

// get is /metrics with these request headers (name, value …).
func get(w *Web, headers ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest("GET", "/metrics", nil)
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	rec := httptest.NewRecorder()
	w.Handler().ServeHTTP(rec, r)
	return rec
}

// TestTextIsTheLibrarys: the text written straight from the totals says what the library's view of them does.
func TestTextIsTheLibrarys(t *testing.T) {
	hostile := sample()
	hostile.IRQs = append(hostile.IRQs, collector.IRQ{IRQ: 30, CPU: 1, Action: "a\"b\\c\nd", Count: 1, Time: math.MaxUint64})
	// The kernel takes any name without a slash, a colon and white space (dev_valid_name, net/core/dev.c).
	named := sample()
	for i, name := range []string{"a$(x)<b>", "q\"b\\c}", "\x1b[31m"} {
		named.Devices = append(named.Devices, collector.Device{Name: name, IfIndex: 20 + i, RXPackets: 7})
		named.NAPIs = append(named.NAPIs, collector.NAPI{Netns: ownNetns, IfIndex: 20 + i, Device: name, ID: uint32(500 + i), CPU: 1, Polls: 1, Packets: 7, Time: 9})
	}
	level0 := sample()
	level0.Level, level0.NAPIs = 0, nil
	for name, samples := range map[string][]*collector.Sample{
		"no sample": nil, "one": {sample()}, "two": {sample(), sample()}, "level 0": {level0}, "level 0, then 2": {level0, sample()}, "hostile action": {hostile}, "hostile devices": {named},
	} {
		t.Run(name, func(t *testing.T) {
			e := New(ownNetns, DefaultLimits)
			for _, s := range samples {
				e.Add(s)
			}
			parse := func(r io.Reader) map[string]*dto.MetricFamily {
				parser := expfmt.NewTextParser(model.UTF8Validation)
				families, err := parser.TextToMetricFamilies(r)
				if err != nil {
					t.Fatal(err)
				}
				return families
			}
			want, got := parse(strings.NewReader(scrape(t, e))), parse(get(served(t, e)).Body)
			if name == "hostile devices" {
				seen := map[string]bool{}
				for _, family := range got {
					for _, m := range family.Metric {
						for _, l := range m.Label {
							seen[l.GetValue()] = true
						}
					}
				}
				for _, d := range named.Devices {
					if !seen[d.Name] {
						t.Errorf("no label says %q", d.Name)
					}
				}
			}
			if len(got) != len(want) {
				t.Errorf("%d families, want %d", len(got), len(want))
			}
			byLabels := cmp.Options{protocmp.Transform(), protocmp.SortRepeated(func(a, b *dto.Metric) bool { return labelsOf(a) < labelsOf(b) }),
				protocmp.SortRepeated(func(a, b *dto.LabelPair) bool { return a.GetName() < b.GetName() })}
			for name, w := range want {
				if d := cmp.Diff(w, got[name], byLabels); d != "" {
					t.Errorf("%s (-library +text):\n%s", name, d)
				}
			}
		})
	}
}

func labelsOf(m *dto.Metric) string {
	set := model.LabelSet{}
	for _, l := range m.Label {
		set[model.LabelName(l.GetName())] = model.LabelValue(l.GetValue())
	}
	return set.String()
}

// TestScrapeFormats: text for whoever can read it, compressed where asked for; protocol buffers, with all families, for who prefers them.
func TestScrapeFormats(t *testing.T) {
	limits := DefaultLimits
	limits.Native = true
	e := New(ownNetns, limits)
	e.Add(sample())
	w := served(t, e)
	plain := get(w)
	if c := plain.Header().Get("Content-Type"); !strings.HasPrefix(c, "text/plain; version=0.0.4") {
		t.Errorf("content type %s", c)
	}
	zipped := get(w, "Accept-Encoding", "gzip", "Accept", "application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.4")
	z, err := gzip.NewReader(zipped.Body)
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(z)
	if err != nil || string(text) != plain.Body.String() {
		t.Errorf("compressed and plain differ, %v", err)
	}
	protocol := get(w, "Accept", "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited")
	d := expfmt.NewDecoder(protocol.Body, expfmt.ResponseFormat(protocol.Header()))
	native, families := 0, map[string]bool{}
	for {
		var f dto.MetricFamily
		if err := d.Decode(&f); err != nil {
			if err != io.EOF {
				t.Fatal(err)
			}
			break
		}
		families[f.GetName()] = true
		for _, m := range f.Metric {
			if m.Histogram != nil && m.Histogram.Schema != nil {
				native++
			}
		}
	}
	if native == 0 || !families["rxsteer_napi_polls_total"] || !families["rxsteer_samples_total"] {
		t.Errorf("%d native histograms in %d families", native, len(families))
	}
	if n := strings.Count(plain.Body.String(), "# TYPE "); n != len(families) {
		t.Errorf("%d families as text, %d as protocol buffers", n, len(families))
	}
}

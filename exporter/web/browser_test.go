package web

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"math/rand/v2"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	protocol "github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	cdp "github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/performance"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	"github.com/google/pprof/profile"

	"github.com/rxsteer/rxsteer/collector"
	"github.com/rxsteer/rxsteer/exporter/flame"
	"github.com/rxsteer/rxsteer/internal/cpuset"
	"github.com/rxsteer/rxsteer/internal/host/knob"
	"github.com/rxsteer/rxsteer/internal/host/nic"
	"github.com/rxsteer/rxsteer/internal/host/topo"
	"github.com/rxsteer/rxsteer/steer/apply"
	"github.com/rxsteer/rxsteer/steer/diagnose"
	"github.com/rxsteer/rxsteer/steer/plan"
)

// hostile is a name that would be markup, were it not put in as text.
const hostile = `<img src=x onerror=alert(1)>"'&`

// host is a made-up one: CPUs on two nodes, one device with as many queues, one of them hot.
type host struct {
	cpus, queues int
	rnd          *rand.Rand
	hot          int
	began        time.Time
}

func (h *host) sample(t time.Time, d time.Duration) *collector.Sample {
	s := &collector.Sample{Version: collector.SampleVersion, Start: t.Add(-d), End: t, Interval: d, Level: 2, Cost: &collector.Cost{Budget: 0.01, Hottest: 0.006, CPU: h.hot, Mean: 0.001}}
	ns := float64(d)
	for c := range h.cpus {
		share := 0.15 + 0.1*h.rnd.Float64()
		if c == h.hot {
			share = 0.85 + 0.1*h.rnd.Float64()
		}
		x := collector.CPU{CPU: c, Idle: uint64(ns * (1 - share)), Softirq: uint64(ns * share)}
		x.SoftirqTime[collector.NetRX] = uint64(ns * share)
		if c == h.hot {
			x.Dropped = 40
		}
		s.CPUs = append(s.CPUs, x)
	}
	for q := range h.queues {
		c := q % h.cpus
		n := collector.NAPI{Netns: 1, IfIndex: 2, Device: "eth0", ID: uint32(257 + q), RXQueue: q, CPU: c, Packets: 20000, Polls: 1000, Time: uint64(0.14 * ns)}
		if c == h.hot {
			n.Packets, n.Time, n.FullBudget = 180000, uint64(0.83*ns), 400
		}
		n.TimeHist[17] = 980
		n.TimeHist[21] = 20
		s.NAPIs = append(s.NAPIs, n)
	}
	s.Devices = []collector.Device{{Name: "eth0", IfIndex: 2, RXPackets: 1_500_000, RXBytes: 9e8, RXMissed: 12}}
	for i, name := range collector.StageNames {
		st := collector.Stage{Stage: name, IfIndex: 2, Device: "eth0", CPU: h.hot, FromCPU: h.hot, Count: 1000}
		for j := range 8 {
			st.Hist[10+i/2+j] = uint64(600 * math.Exp(-float64(j)))
		}
		s.Stages = append(s.Stages, st)
	}
	b := collector.DeviceBuckets{IfIndex: 2, Device: "eth0", Hash: collector.HashNIC, Packets: make([]uint64, 128), Bytes: make([]uint64, 128), Time: make([]uint64, 128), Seen: 1e6}
	for i := range b.Packets {
		b.Packets[i] = uint64(5000 + 3000*h.rnd.Float64())
	}
	b.Packets[17] = 160000
	s.Buckets = []collector.DeviceBuckets{b}
	for i := range 6 {
		s.Flows = append(s.Flows, collector.Flow{IfIndex: 2, Device: "eth0", RXQueue: h.hot % h.queues, CPU: h.hot, Protocol: "tcp", Bucket: 17 + i, Packets: uint64(150000 >> i), Bytes: uint64(150000>>i) * 1400, Error: 900, Share: 0.8 / float64(int(1)<<i),
			Source: netip.AddrPortFrom(netip.AddrFrom4([4]byte{192, 0, 2, byte(i)}), 40000), Destination: netip.MustParseAddrPort("198.51.100.7:443"), ConsumerCPU: 3, Process: hostile, PID: 4711})
	}
	return s
}

func (h *host) facts() Facts {
	t := &topo.Topology{Online: cpuset.Range(0, h.cpus-1)}
	for c := range h.cpus {
		t.CPUs = append(t.CPUs, topo.CPU{ID: c, Core: c, Node: c * 2 / h.cpus, LLC: c * 2 / h.cpus, Online: true})
	}
	n := nic.NIC{Name: "eth0", IfIndex: 2, Kind: nic.Physical, Driver: "mlx5_core", Bus: "0000:81:00.0", Node: 0, Up: true}
	for q := range h.queues {
		n.Queues = append(n.Queues, nic.Queue{RX: q, TX: q, IRQ: 100 + q, Vector: fmt.Sprintf("mlx5_comp%d", q), Affinity: cpuset.Of(q % h.cpus), Effective: cpuset.Of(q % h.cpus), KnownBy: "netlink"})
	}
	table, want := make([]int, 128), make([]int, 128)
	for i := range table {
		table[i], want[i] = i%h.queues, i%h.queues
	}
	want[17] = (want[17] + 3) % h.queues
	snap := &knob.Snapshot{Settings: []knob.Setting{
		{Ref: knob.Ref{Knob: knob.RSSTable, Target: "eth0"}, Value: knob.List(table)},
		{Ref: knob.Ref{Knob: knob.MTU, Target: "eth0"}, Value: knob.Int(1500)},
		{Ref: knob.Ref{Knob: knob.Rings, Target: "eth0"}, Value: knob.Fields(map[string]any{"rx": 1024, "tx": 1024})},
	}}
	snap.Sort()
	report := &diagnose.Report{Findings: []diagnose.Finding{{ID: "RX205", Severity: diagnose.Warning, Subject: "eth0", Summary: "one flow fills bucket 17 beyond a fair share; " + hostile,
		Evidence: diagnose.Evidence{{Name: "share_ratio", Value: 0.78}}, Remedy: "move the mice away from its queue"}}, Checked: []string{"ring drops: none"}}
	change := plan.Change{Knob: knob.RSSTable, Target: "eth0", From: knob.List(table), To: knob.List(want), Findings: []diagnose.ID{"RX205"}, Risk: plan.Reorder, Command: "ethtool -X eth0 …", Undo: "ethtool -X eth0 default", Why: "leaves the elephant alone", Expect: "the hottest CPU falls from 92 % to 61 %"}
	if h.began.IsZero() {
		h.began = time.Now().Add(-40 * time.Second)
	}
	return Facts{Host: "demo", Kernel: "6.18.0", NICs: []nic.NIC{n}, Topology: t, Snapshot: snap, Report: report, Plan: &plan.Plan{Changes: []plan.Change{change}},
		Profiled: func(id string) bool { return id == "3" },
		History:  []apply.Transaction{{ID: "3", Begun: h.began, Ended: h.began.Add(10 * time.Second), State: apply.Kept, Why: "the hottest CPU fell from 97 % to 88 %", Verdict: &apply.Verdict{Word: apply.Better, Measures: []apply.Measure{{Name: "hottest_cpu_ratio", Before: 0.97, After: 0.88, Significant: true}}}, Plan: &plan.Plan{Changes: []plan.Change{change}}}}}
}

// profileOf is a second of a queue's polls; more is what a program called hostile takes of it.
func profileOf(more int64) *profile.Profile {
	p := &profile.Profile{SampleType: []*profile.ValueType{{Type: "samples", Unit: "count"}, {Type: "cpu", Unit: "nanoseconds"}}, Period: 10e6, DurationNanos: 1e9}
	at := func(name string) *profile.Location {
		id := uint64(len(p.Location) + 1)
		p.Function = append(p.Function, &profile.Function{ID: id, Name: name})
		p.Location = append(p.Location, &profile.Location{ID: id, Line: []profile.Line{{Function: p.Function[id-1]}}})
		return p.Location[id-1]
	}
	run, poll, odd := at("net_rx_action"), at("igb_poll"), at(hostile)
	labels := map[string][]string{"device": {"eth0"}, "queue": {"3"}, "cpu": {"5"}, "part": {"poll"}}
	for _, s := range []struct {
		n     int64
		stack []*profile.Location
	}{{10, []*profile.Location{poll, run}}, {10 + more, []*profile.Location{odd, poll, run}}, {20, []*profile.Location{run}}} {
		p.Sample = append(p.Sample, &profile.Sample{Location: s.stack, Label: labels, Value: []int64{s.n, s.n * p.Period}})
	}
	return p
}

// TestFlameGraphInABrowser opens what a transaction changed from the page's history, zooms by mouse and key, and searches. It is
// under the policy that the agent sends, which forbids all else.
func TestFlameGraphInABrowser(t *testing.T) {
	ctx := browser(t, 1280, 500, false)
	a := start(t, "127.0.0.1:0", "v1", collector.NewRing(10), (&host{cpus: 2, queues: 2, rnd: rand.New(rand.NewPCG(1, 2))}).facts)
	said := console(ctx)
	asked := make(chan string, 9)
	chromedp.ListenTarget(ctx, func(e any) {
		if d, ok := e.(*cdp.EventJavascriptDialogOpening); ok {
			asked <- d.Message
			go func() { _ = chromedp.Run(ctx, cdp.HandleJavaScriptDialog(true).WithPromptText("onerror")) }() // the test sees what it did
		}
	})
	// box is a function's rectangle, by what it is called.
	box := func(name string) string {
		return fmt.Sprintf(`[...document.querySelectorAll(".f")].find(g => g.querySelector("text").dataset.n === %q)`, name)
	}
	wide := func(name string) string { return "+" + box(name) + `.querySelector("rect").getAttribute("width")` }
	var href, title string
	var shown, whole float64
	if err := chromedp.Run(ctx, log.Enable(), cdp.Enable(), chromedp.Navigate("http://"+a.addr+"/#history"), until(`!!document.querySelector("#deeds a")`),
		chromedp.Evaluate(`document.querySelector("#deeds a").href`, &href), chromedp.ActionFunc(func(ctx context.Context) error { return chromedp.Navigate(href).Do(ctx) }), until(`document.querySelectorAll(".f").length === 6`),
		chromedp.Evaluate(wide("igb_poll"), &shown), chromedp.Evaluate(wide("receiving"), &whole), chromedp.Evaluate(box(hostile)+`.querySelector("title").textContent`, &title), shot("flame-of-a-transaction.png")); err != nil {
		t.Fatalf("%v; the page said: %s", err, said())
	}
	if r := shown / whole; r < 0.70 || r > 0.73 || !strings.Contains(title, hostile+": 40.0 % of one CPU") || !strings.Contains(title, "(+30.0 points)") {
		t.Errorf("igb_poll is %.2f of all, want 50 of 70; %q", r, title)
	}
	key := func(k string) chromedp.Action { return chromedp.KeyEvent(k) }
	for _, step := range []struct {
		what string
		do   chromedp.Action
		want string
	}{
		{"a click zooms", chromedp.Evaluate(box("igb_poll")+`.dispatchEvent(new MouseEvent("click", {bubbles: true}))`, nil), wide("igb_poll") + " > 1170 && " + box("receiving") + `.classList.contains("under")`},
		{"Escape shows all again", key(kb.Escape), wide("igb_poll") + " < 900"},
		{"focus tells", chromedp.Evaluate(box(hostile)+`.focus()`, nil), `document.getElementById("detail").textContent.includes("onerror")`},
		{"Enter zooms", key(kb.Enter), wide(hostile) + " > 1170"},
		{"the reset zooms out", chromedp.Evaluate(`document.getElementById("reset").dispatchEvent(new MouseEvent("click"))`, nil), wide(hostile) + " < 900"},
		{"/ searches", key("/"), `document.querySelectorAll(".hit").length === 1 && document.getElementById("matched").textContent === "matched: 57.1 %"`},
	} {
		if err := chromedp.Run(ctx, step.do, until(step.want)); err != nil {
			_ = chromedp.Run(ctx, shot("flame-failed.png"))
			t.Fatalf("%s: %v; the page said: %s", step.what, err, said())
		}
	}
	if got := <-asked; !strings.Contains(got, "functions that match") {
		t.Errorf("asked %q", got)
	}
	if lines := said(); len(lines) > 0 {
		t.Errorf("the page said:\n%s", strings.Join(lines, "\n"))
	}
}

// agent is the server under a real listener that can go away and come back on its address.
type agent struct {
	ring *collector.Ring
	addr string
	stop func()
}

func start(t testing.TB, addr, version string, ring *collector.Ring, facts func() Facts) *agent {
	t.Helper()
	s, err := New(Config{Version: version, Ring: ring, Every: 200 * time.Millisecond, Facts: func(context.Context) Facts { return facts() },
		Flame: func(_ context.Context, w io.Writer, _ time.Duration) error {
			_, err := io.WriteString(w, `<svg xmlns="http://www.w3.org/2000/svg" width="300" height="40"><rect width="300" height="20" fill="orange"/></svg>`)
			return err
		},
		FlameOf: func(w io.Writer, id string) error {
			if id != "3" {
				return errors.New("no such transaction")
			}
			return flame.NewTree(profileOf(30), profileOf(0)).WriteSVG(w, "after transaction 3")
		}})
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	srv := &http.Server{Handler: s.Handler(), ReadTimeout: 2 * time.Second, WriteTimeout: 2 * time.Second}
	var all sync.WaitGroup
	all.Go(func() { _ = srv.Serve(l) })
	all.Go(func() {
		if err := s.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	a := &agent{ring: ring, addr: l.Addr().String()}
	a.stop = sync.OnceFunc(func() { cancel(); srv.Close(); all.Wait() })
	t.Cleanup(a.stop)
	return a
}

// browser is headless Chromium; what it says on its console fails the test.
func browser(t testing.TB, width, height int, dark bool) context.Context {
	t.Helper()
	bin := ""
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if p, err := exec.LookPath(name); err == nil {
			bin = p
			break
		}
	}
	if bin == "" {
		t.Skip("needs chromium")
	}
	opts := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(bin), chromedp.NoSandbox, chromedp.DisableGPU, chromedp.WindowSize(width, height), chromedp.Flag("disable-dev-shm-usage", true))
	if dark {
		opts = append(opts, chromedp.Flag("blink-settings", "preferredColorScheme=0"))
	}
	alloc, stop := chromedp.NewExecAllocator(context.Background(), opts...)
	t.Cleanup(stop)
	ctx, cancel := chromedp.NewContext(alloc)
	t.Cleanup(cancel)
	ctx, done := context.WithTimeout(ctx, 5*time.Minute)
	t.Cleanup(done)
	return ctx
}

// console collects errors and exceptions of the page, but for connections that the test itself cuts.
func console(ctx context.Context) func() []string {
	var mu sync.Mutex
	var lines []string
	add := func(s string) {
		mu.Lock()
		defer mu.Unlock()
		if !strings.Contains(s, "net::ERR_CONNECTION_REFUSED") && !strings.Contains(s, "net::ERR_INCOMPLETE_CHUNKED_ENCODING") && !strings.Contains(s, "net::ERR_EMPTY_RESPONSE") && !strings.Contains(s, "net::ERR_CONNECTION_RESET") {
			lines = append(lines, s)
		}
	}
	chromedp.ListenTarget(ctx, func(e any) {
		switch e := e.(type) {
		case *runtime.EventExceptionThrown:
			add("exception: " + e.ExceptionDetails.Error())
		case *runtime.EventConsoleAPICalled:
			if e.Type == runtime.APITypeError || e.Type == runtime.APITypeWarning {
				var said []string
				for _, x := range e.Args {
					said = append(said, string(x.Value)+x.Description)
				}
				add("console " + string(e.Type) + ": " + strings.Join(said, " "))
			}
		case *log.EventEntryAdded:
			if e.Entry.Level == log.LevelError {
				add("log: " + e.Entry.Text + " " + e.Entry.URL)
			}
		}
	})
	return func() []string {
		mu.Lock()
		defer mu.Unlock()
		return lines
	}
}

func text(sel string, to *string) chromedp.Action { return chromedp.Text(sel, to, chromedp.ByQuery) }

// until waits for a JavaScript expression to be true, also over a reload of the page.
func until(expr string) chromedp.Action {
	return chromedp.ActionFunc(func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, time.Minute)
		defer cancel()
		for {
			var ok bool
			err := chromedp.Evaluate(expr, &ok).Do(ctx)
			if ok && err == nil {
				return nil
			}
			select {
			case <-ctx.Done():
				return fmt.Errorf("wait for %s: %w", expr, errors.Join(ctx.Err(), err))
			case <-time.After(50 * time.Millisecond):
			}
		}
	})
}

// shot keeps what a person sees under bin/screenshots of the repository.
func shot(name string) chromedp.Action {
	return chromedp.ActionFunc(func(ctx context.Context) error {
		var b []byte
		if err := chromedp.FullScreenshot(&b, 100).Do(ctx); err != nil {
			return err
		}
		dir := filepath.Join("..", "..", "bin", "screenshots")
		err := os.MkdirAll(dir, 0o755)
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, name), b, 0o644)
		}
		if errors.Is(err, fs.ErrPermission) {
			return nil // an ordinary user's run keeps none
		}
		return err
	})
}

func TestPageInABrowser(t *testing.T) {
	ctx := browser(t, 1280, 900, false)
	h := &host{cpus: 8, queues: 8, rnd: rand.New(rand.NewPCG(1, 2)), hot: 2}
	ring := collector.NewRing(600)
	for i := range 90 {
		ring.Add(h.sample(time.Now().Add(time.Duration(i-90)*time.Second), time.Second))
	}
	a := start(t, "127.0.0.1:0", "v1", ring, h.facts)
	said := console(ctx)
	var status, tiles, queues, findings, flows, html string
	err := chromedp.Run(ctx, network.Enable(), log.Enable(),
		chromedp.Navigate("http://"+a.addr+"/"),
		until(`document.querySelectorAll("#queue-table tbody tr").length === 8 && document.querySelectorAll(".card.warning").length === 1`),
		text("#status", &status), text("#tiles", &tiles), text("#queue-table tbody tr", &queues), text("#finding-list", &findings),
		// Down the page, so that every view is drawn.
		chromedp.Evaluate(`new Promise(async done => { for (const s of document.querySelectorAll("section")) { s.scrollIntoView({behavior: "instant"}); await new Promise(r => setTimeout(r, 150)); } scrollTo({top: 0, behavior: "instant"}); done(true); })`, nil, func(p *runtime.EvaluateParams) *runtime.EvaluateParams { return p.WithAwaitPromise(true) }),
		until(`document.querySelectorAll("#sankey path").length >= 16 && document.querySelectorAll("#table-list canvas").length === 2 && document.querySelectorAll("#flow-table tbody tr").length === 6 && document.querySelectorAll("#stage-table tbody tr").length === 9 && document.getElementById("deeds").textContent.includes("significant")`),
		text("#flow-table", &flows), chromedp.OuterHTML("body", &html, chromedp.ByQuery),
		shot("page-light.png"),
	)
	if err != nil {
		_ = chromedp.Run(ctx, shot("page-failed.png"))
		t.Fatalf("%v; the page said: %s", err, said())
	}
	for _, c := range []struct{ what, got, want string }{
		{"status", status, "live"}, {"tiles", tiles, "cpu 2"}, {"tiles", tiles, "RX205 eth0"}, {"first row", queues, "eth0 rx-2"}, {"first row", queues, "102"},
		{"findings", findings, hostile}, {"flows", flows, "192.0.2.0:40000"}, {"flows", flows, hostile},
	} {
		if !strings.Contains(c.got, c.want) {
			t.Errorf("%s: %q, want %q in it", c.what, c.got, c.want)
		}
	}
	if strings.Contains(html, "<img src=x") {
		t.Error("a hostile name became markup")
	}

	// Live data moves the page; it survives the agent's restart and an upgrade.
	h.hot = 5
	ring.Add(h.sample(time.Now(), time.Second))
	if err := chromedp.Run(ctx, chromedp.Evaluate(`document.getElementById("queues").scrollIntoView({behavior: "instant"})`, nil), until(`document.querySelector("#queue-table tbody tr").dataset.key === "eth0 rx-5"`)); err != nil {
		t.Fatalf("a new sample: %v", err)
	}
	a.stop()
	if err := chromedp.Run(ctx, until(`document.body.classList.contains("lost")`), text("#status", &status)); err != nil || !strings.Contains(status, "old") {
		t.Fatalf("the agent went away: %q, %v", status, err)
	}
	a = start(t, a.addr, "v1", ring, h.facts)
	if err := chromedp.Run(ctx, until(`!document.body.classList.contains("lost")`)); err != nil {
		t.Fatalf("the agent came back: %v", err)
	}
	a.stop()
	start(t, a.addr, "v2", ring, h.facts)
	if err := chromedp.Run(ctx, until(`document.documentElement.dataset.version === "v2" && document.getElementById("version").textContent === "v2"`)); err != nil {
		t.Fatalf("the agent was upgraded under an old tab: %v", err)
	}
	// The profile comes on demand, and nothing was said on the console.
	if err := chromedp.Run(ctx, until(`!document.getElementById("profile").hidden`), chromedp.Evaluate(`document.getElementById("take").click()`, nil), until(`document.querySelector("#flame img")?.naturalWidth > 0`)); err != nil {
		t.Fatalf("profile: %v", err)
	}
	if lines := said(); len(lines) > 0 {
		t.Errorf("the page said:\n%s", strings.Join(lines, "\n"))
	}
}

// axTree is what Accessibility.getFullAXTree answers; chromedp's type refuses reasons that this Chromium has and it does not know.
type axTree struct {
	Nodes []struct {
		Ignored    bool    `json:"ignored"`
		Role       axValue `json:"role"`
		Name       axValue `json:"name"`
		DOM        int     `json:"backendDOMNodeId"`
		Properties []struct {
			Name  string  `json:"name"`
			Value axValue `json:"value"`
		} `json:"properties"`
	} `json:"nodes"`
}

// axValue is text or a number.
type axValue struct {
	Value any `json:"value"`
}

func (v axValue) String() string { s, _ := v.Value.(string); return s }

// interactive are the roles of what a person acts on, and what only a name tells.
var interactive = []string{"button", "link", "searchbox", "textbox", "combobox", "checkbox", "DisclosureTriangle", "image", "region", "navigation"}

// faint lists the texts whose contrast with what is behind them is less than WCAG 2.2 asks (1.4.3: 4.5, or 3 for large text).
const faint = `(() => {
  const rgb = c => c.match(/[\d.]+/g).map(Number), light = c => { const [r, g, b] = rgb(c).slice(0, 3).map(x => (x /= 255) <= .04045 ? x / 12.92 : ((x + .055) / 1.055) ** 2.4); return .2126 * r + .7152 * g + .0722 * b; };
  const behind = e => { for (; e; e = e.parentElement) { const c = getComputedStyle(e).backgroundColor; if ((rgb(c)[3] ?? 1) > .99) return c; } return "rgb(255, 255, 255)"; };
  const bad = [];
  for (const e of document.body.querySelectorAll("*")) {
    if (e.closest("script, style, svg") || !e.checkVisibility() || ![...e.childNodes].some(n => n.nodeType === 3 && n.data.trim())) continue;
    const s = getComputedStyle(e), a = light(s.color), b = light(behind(e)), ratio = (Math.max(a, b) + .05) / (Math.min(a, b) + .05), px = parseFloat(s.fontSize);
    if (ratio < (px >= 24 || px >= 18.66 && s.fontWeight >= 700 ? 3 : 4.5)) bad.push(e.tagName + " " + e.textContent.trim().slice(0, 40) + ": " + ratio.toFixed(2));
  }
  return bad; })()`

// unlabelled lists the tables with a column or a row that has no header.
const unlabelled = `[...document.querySelectorAll("table")].filter(t => !t.closest(".uplot") && t.rows.length && (!t.tHead?.rows[0] || [...t.tHead.rows[0].cells].some(c => c.tagName !== "TH" || c.scope !== "col" || !c.textContent.trim()) || [...t.tBodies[0].rows].some(r => r.cells[0].tagName !== "TH" || r.cells[0].scope !== "row"))).map(t => t.outerHTML.slice(0, 300))`

// TestPageIsAccessible reads the page as a screen reader does, walks it by Tab and looks at its contrast, light and dark.
func TestPageIsAccessible(t *testing.T) {
	for _, dark := range []bool{false, true} {
		t.Run(fmt.Sprintf("dark=%v", dark), func(t *testing.T) {
			ctx := browser(t, 1280, 6000, dark) // all of it is on screen, and drawn
			h := &host{cpus: 8, queues: 8, rnd: rand.New(rand.NewPCG(1, 2)), hot: 2}
			ring := collector.NewRing(60)
			for i := range 30 {
				ring.Add(h.sample(time.Now().Add(time.Duration(i-30)*time.Second), time.Second))
			}
			a := start(t, "127.0.0.1:0", "v1", ring, h.facts)
			var tree axTree
			var low, bare []string
			if err := chromedp.Run(ctx, chromedp.Navigate("http://"+a.addr+"/"),
				until(`document.querySelectorAll("#sankey path").length >= 16 && document.querySelectorAll("#table-list canvas").length === 2 && document.querySelectorAll("#stage-table tbody tr").length === 9 && document.querySelectorAll("#deeds table").length === 1 && !document.getElementById("profile").hidden`),
				chromedp.Evaluate(`for (const d of document.querySelectorAll("details")) d.open = true`, nil),
				chromedp.ActionFunc(func(ctx context.Context) error {
					return protocol.Execute(ctx, "Accessibility.getFullAXTree", nil, &tree)
				}),
				chromedp.Evaluate(faint, &low), chromedp.Evaluate(unlabelled, &bare)); err != nil {
				t.Fatal(err)
			}
			for _, x := range low {
				t.Errorf("little contrast: %s", x)
			}
			for _, x := range bare {
				t.Errorf("a table without headers: %s", x)
			}
			roles, level := map[string]int{}, 0
			for _, n := range tree.Nodes {
				if n.Ignored {
					continue
				}
				role, name := n.Role.String(), n.Name.String()
				roles[role]++
				if slices.Contains(interactive, role) && strings.TrimSpace(name) == "" {
					t.Errorf("a %s without a name: node %d", role, n.DOM)
				}
				if role != "heading" {
					continue
				}
				for _, p := range n.Properties {
					if n, ok := p.Value.Value.(float64); ok && p.Name == "level" {
						at := int(n)
						if at > level+1 || at == 1 && level > 0 || name == "" {
							t.Errorf("heading %q of level %d after one of level %d", name, at, level)
						}
						level = at
					}
				}
			}
			for role, n := range map[string]int{"main": 1, "banner": 1, "contentinfo": 1, "navigation": 1, "button": 11, "link": 13, "searchbox": 1, "checkbox": 1, "combobox": 1, "image": 6, "status": 2, "DisclosureTriangle": 4} {
				if roles[role] != n {
					t.Errorf("%d of role %s, want %d; all: %v", roles[role], role, n, roles)
				}
			}
			// Tab comes by all that can be acted on, in the order of the page, and shows where it is.
			var left []string
			if err := chromedp.Run(ctx, chromedp.Evaluate(`document.activeElement.blur(); window.way = []`, nil), chromedp.ActionFunc(func(ctx context.Context) error {
				for range 100 {
					var on bool
					if err := chromedp.KeyEvent(kb.Tab).Do(ctx); err != nil {
						return err
					}
					if err := chromedp.Evaluate(`(() => { const e = document.activeElement; if (e === document.body || way.includes(e)) return false; way.push(e); return true; })()`, &on).Do(ctx); err != nil || !on {
						return err
					}
					var seen bool
					if err := chromedp.Evaluate(`getComputedStyle(document.activeElement).outlineStyle !== "none"`, &seen).Do(ctx); err != nil {
						return err
					}
					if !seen {
						t.Error("a focus that is not seen")
					}
				}
				return errors.New("Tab does not come round")
			}), chromedp.Evaluate(`[...document.querySelectorAll("a[href], button, input, select, summary")].filter(e => !way.includes(e)).map(e => e.outerHTML.slice(0, 200)).concat(way.filter((e, i) => i && !(way[i - 1].compareDocumentPosition(e) & Node.DOCUMENT_POSITION_FOLLOWING)).map(e => "out of order: " + e.outerHTML.slice(0, 200)))`, &left)); err != nil {
				t.Fatal(err)
			}
			for _, x := range left {
				t.Errorf("Tab: %s", x)
			}
		})
	}
}

// TestPageOfABigHost draws 256 CPUs × 64 queues, dark and narrow.
func TestPageOfABigHost(t *testing.T) {
	ctx := browser(t, 1600, 1000, true)
	h := &host{cpus: 256, queues: 64, rnd: rand.New(rand.NewPCG(1, 2)), hot: 9}
	ring := collector.NewRing(600)
	for i := range 120 {
		ring.Add(h.sample(time.Now().Add(time.Duration(i-120)*time.Second), time.Second))
	}
	a := start(t, "127.0.0.1:0", "v1", ring, h.facts)
	said := console(ctx)
	if err := chromedp.Run(ctx, log.Enable(), chromedp.Navigate("http://"+a.addr+"/"),
		until(`document.querySelectorAll("#queue-table tbody tr").length === 64`),
		chromedp.Evaluate(`document.getElementById("map").scrollIntoView({behavior: "instant"})`, nil),
		until(`document.querySelectorAll("#sankey rect").length >= 64 * 3`),
		until(`document.querySelector("#sankey svg").clientWidth > 1200`),
		shot("page-256x64-dark.png"), chromedp.EmulateViewport(420, 800), chromedp.Sleep(300*time.Millisecond), shot("page-narrow-dark.png"),
	); err != nil {
		t.Fatal(err)
	}
	if lines := said(); len(lines) > 0 {
		t.Errorf("the page said:\n%s", strings.Join(lines, "\n"))
	}
}

// BenchmarkPage is what the page costs a viewer: the first paint, and CPU time of all of Chromium's processes (the page's own, the
// compositor's, the browser's) and of the page's thread alone, in percent of a core, at a sample a second of 64 CPUs × 64 queues.
// Each part of the page is looked at in turn. An op is a second.
func BenchmarkPage(b *testing.B) {
	for _, at := range []string{"now", "cpus", "queues", "map", "latency", "history"} {
		b.Run(at, func(b *testing.B) {
			ctx := browser(b, 1600, 1000, false)
			h := &host{cpus: 64, queues: 64, rnd: rand.New(rand.NewPCG(1, 2)), hot: 9}
			ring := collector.NewRing(600)
			for i := range 300 {
				ring.Add(h.sample(time.Now().Add(time.Duration(i-300)*time.Second), time.Second))
			}
			a := start(b, "127.0.0.1:0", "v1", ring, h.facts)
			thread := func() (s float64) {
				if err := chromedp.Run(ctx, chromedp.ActionFunc(func(ctx context.Context) error {
					all, err := performance.GetMetrics().Do(ctx)
					for _, m := range all {
						if m.Name == "TaskDuration" {
							s = m.Value
						}
					}
					return err
				})); err != nil {
					b.Fatal(err)
				}
				return s
			}
			var paint float64
			if err := chromedp.Run(ctx, performance.Enable().WithTimeDomain(performance.EnableTimeDomainThreadTicks), chromedp.Navigate("http://"+a.addr+"/"),
				until(`document.getElementById("host").textContent !== ""`),
				chromedp.Evaluate(`performance.getEntriesByName("first-contentful-paint")[0]?.startTime ?? -1`, &paint),
				chromedp.Evaluate(fmt.Sprintf(`document.getElementById(%q).scrollIntoView({behavior: "instant"})`, at), nil), chromedp.Sleep(2*time.Second)); err != nil {
				b.Fatal(err)
			}
			root := chromedp.FromContext(ctx).Browser.Process().Pid
			onThread, all, began, n := thread(), cpuOf(b, root), time.Now(), 0
			for b.Loop() {
				time.Sleep(time.Second)
				ring.Add(h.sample(time.Now(), time.Second))
				n++
			}
			took := time.Since(began)
			b.ReportMetric(100*(thread()-onThread)/took.Seconds(), "%thread")
			b.ReportMetric(100*float64(cpuOf(b, root)-all)/float64(took), "%chromium")
			b.ReportMetric(paint, "paint-ms")
		})
	}
}

// cpuOf is the CPU time of a process and all below it (/proc/PID/stat: utime and stime in ticks of 10 ms, proc(5)).
func cpuOf(b *testing.B, root int) time.Duration {
	parent, ticks := map[int]int{}, map[int]int{}
	files, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		b.Fatal(err)
	}
	for _, name := range files {
		text, err := os.ReadFile(name)
		if err != nil {
			continue // it ended
		}
		pid, _ := strconv.Atoi(strings.Split(name, "/")[2])
		f := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:])) // from the state, which is field 3
		parent[pid], _ = strconv.Atoi(f[1])
		user, _ := strconv.Atoi(f[11])
		system, _ := strconv.Atoi(f[12])
		ticks[pid] = user + system
	}
	sum := 0
	for pid, n := range ticks {
		for p := pid; p > 1; p = parent[p] {
			if p == root {
				sum += n
				break
			}
		}
	}
	if ticks[root] == 0 {
		b.Fatalf("process %d has no CPU time: it is not Chromium", root)
	}
	return time.Duration(sum) * 10 * time.Millisecond
}

// TestReportWithGapsOfAVirtualDevice: no interrupt is known, and the budget had nothing looked at in the last seconds. The
// queues and their map are those seen last.
func TestReportWithGapsOfAVirtualDevice(t *testing.T) {
	h := small()
	r := recording(h, "demo", 12)
	for i := range r.Facts.NICs[0].Queues {
		r.Facts.NICs[0].Queues[i].IRQ = nic.None
	}
	for _, s := range r.Samples[8:] {
		s.Level, s.NAPIs, s.Flows, s.Stages = 0, nil, nil, nil
	}
	file := reportOf(t, r)
	ctx := browser(t, 1280, 900, false)
	said := console(ctx)
	var queues, tiles string
	if err := chromedp.Run(ctx, log.Enable(), chromedp.Navigate("file://"+file),
		until(`document.querySelectorAll("#queue-table tbody tr").length === 4 && document.querySelectorAll("#sankey path").length === 4 + 4`),
		text("#queue-text", &queues), text("#tiles", &tiles), shot("report-with-gaps.png")); err != nil {
		t.Fatalf("%v; the page said: %s", err, said())
	}
	if !strings.Contains(queues, "seen 4 s before the end") || !strings.Contains(tiles, "eth0 rx-1") {
		t.Errorf("%q, %q", queues, tiles)
	}
	if lines := said(); len(lines) > 0 {
		t.Errorf("the page said:\n%s", strings.Join(lines, "\n"))
	}
}

// One sample is a point: its axis is of a second, not of the years that a chart without an extent takes.
func TestReportOfOneSample(t *testing.T) {
	r := recording(small(), "demo", 1)
	file := reportOf(t, r)
	ctx := browser(t, 1280, 900, false)
	var covers string
	if err := chromedp.Run(ctx, chromedp.Navigate("file://"+file), until(`document.querySelectorAll("#trend canvas").length === 1`),
		chromedp.AttributeValue("#trend", "aria-label", &covers, nil), shot("report-of-one-sample.png")); err != nil {
		t.Fatal(err)
	}
	if want := "from " + r.Samples[0].End.Add(-time.Second).Local().Format("3:04:05"); !strings.Contains(covers, want) {
		t.Errorf("%q, want it %s", covers, want)
	}
}

// reportOf writes a recording's report to a file.
func reportOf(t *testing.T, r Recording) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "report.html")
	w, err := os.Create(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(Report(w, "v1", r, nil), w.Close()); err != nil {
		t.Fatal(err)
	}
	return file
}

func reportInABrowser(t *testing.T, file string) {
	ctx := browser(t, 1280, 900, false)
	said := console(ctx)
	var rows, status string
	if err := chromedp.Run(ctx, log.Enable(), chromedp.Navigate("file://"+file),
		// All of it is drawn, also what was never scrolled to: it may be printed.
		until(`document.querySelectorAll("#compare-rows tr").length > 5 && document.querySelectorAll(".card.warning").length === 1 && document.querySelectorAll("#sankey path").length > 0 && document.querySelectorAll("#table-list canvas").length === 2 && document.querySelectorAll("#flow-table tbody tr").length === 6 && document.querySelectorAll("#trend canvas").length === 1`),
		text("#compare-rows", &rows), text("#status", &status), shot("report.png")); err != nil {
		t.Fatalf("%v; the page said: %s", err, said())
	}
	if !strings.Contains(rows, "hottest CPU") || !strings.Contains(status, "before") {
		t.Errorf("%q, %q", rows, status)
	}
	if lines := said(); len(lines) > 0 {
		t.Errorf("the page said:\n%s", strings.Join(lines, "\n"))
	}
}

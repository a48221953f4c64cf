package flame

import (
	"bytes"
	"encoding/xml"
	"errors"
	"flag"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/pprof/profile"
)

var update = flag.Bool("update", false, "rewrite golden files")

// stacks makes a profile of a second at 10 ms a tick; each line is "ticks labels functions", innermost last.
func stacks(t *testing.T, lines ...string) *profile.Profile {
	t.Helper()
	p := &profile.Profile{
		SampleType: []*profile.ValueType{{Type: "samples", Unit: "count"}, {Type: "cpu", Unit: "nanoseconds"}},
		Period:     10e6, DurationNanos: 1e9,
	}
	locations := map[string]*profile.Location{}
	for _, line := range lines {
		f := strings.Fields(line)
		n, err := strconv.Atoi(f[0])
		if err != nil {
			t.Fatal(err)
		}
		s := &profile.Sample{Value: []int64{int64(n), int64(n) * p.Period}, Label: map[string][]string{}}
		for _, l := range strings.Split(f[1], ",") {
			k, v, _ := strings.Cut(l, "=")
			s.Label[k] = []string{v}
		}
		for _, name := range f[2:] {
			l := locations[name]
			if l == nil {
				id := uint64(len(p.Location) + 1)
				l = &profile.Location{ID: id}
				if strings.HasPrefix(name, "0x") {
					fmt.Sscanf(name, "%v", &l.Address)
				} else {
					fn := &profile.Function{ID: id, Name: name}
					p.Function = append(p.Function, fn)
					l.Line = []profile.Line{{Function: fn}}
				}
				locations[name] = l
				p.Location = append(p.Location, l)
			}
			s.Location = append([]*profile.Location{l}, s.Location...)
		}
		p.Sample = append(p.Sample, s)
	}
	if err := p.CheckValid(); err != nil {
		t.Fatal(err)
	}
	return p
}

func after(t *testing.T) *profile.Profile {
	return stacks(t,
		"40 device=eth0,queue=3,cpu=5,part=poll,context=ksoftirqd net_rx_action igb_poll napi_gro_receive bpf:firewall",
		"10 device=eth0,queue=3,cpu=5,part=poll,context=idle net_rx_action igb_poll napi_gro_receive",
		"6 device=eth0,queue=0,cpu=1,part=poll,context=idle net_rx_action igb_poll",
		"2 cpu=1,part=tail,context=idle net_rx_action skb_defer_free_flush",
		"1 device=tap0,napi=#2,netns=77,cpu=1,part=poll net_rx_action 0xffffffff81000040",
		"1 device=backlog,cpu=1,part=poll net_rx_action process_backlog",
	)
}

func before(t *testing.T) *profile.Profile {
	return stacks(t,
		"5 device=eth0,queue=3,cpu=5,part=poll,context=ksoftirqd net_rx_action igb_poll napi_gro_receive bpf:firewall",
		"12 device=eth0,queue=0,cpu=1,part=poll,context=idle net_rx_action igb_poll",
		"3 device=eth0,queue=1,cpu=2,part=poll,context=idle net_rx_action igb_poll",
	)
}

func TestTreeAddsUp(t *testing.T) {
	tree := NewTree(after(t), before(t))
	var lines []string
	var walk func(*Node, string)
	walk = func(n *Node, indent string) {
		lines = append(lines, fmt.Sprintf("%s%s %.2f self %.2f, before %.2f self %.2f", indent, n.Name, n.Share, n.Self, n.Base, n.BaseSelf))
		sum, base := n.Self, n.BaseSelf
		for _, c := range n.Children {
			sum += c.Share
			base += c.Base
			walk(c, indent+" ")
		}
		if math.Abs(sum-n.Share) > 1e-9 || math.Abs(base-n.Base) > 1e-9 {
			t.Errorf("%s has %v and its parts %v; before %v and %v", n.Name, n.Share, sum, n.Base, base)
		}
	}
	walk(tree.Root, "")
	golden(t, "tree.txt", strings.Join(lines, "\n")+"\n")
	if tree.Ticks != 60 {
		t.Errorf("%d ticks, want 60", tree.Ticks)
	}
}

func TestTopCountsARecursiveFunctionOnce(t *testing.T) {
	got := NewTree(stacks(t, "10 device=a,cpu=0 f g f", "5 device=b,cpu=0 f g"), nil).Top(2)
	want := []Function{{Name: "f", Self: 0.1, Total: 0.15}, {Name: "g", Self: 0.05, Total: 0.15}}
	near := cmp.Comparer(func(a, b float64) bool { return math.Abs(a-b) < 1e-9 })
	if d := cmp.Diff(want, got, near); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
}

func TestBySplits(t *testing.T) {
	want := []Part{{"ksoftirqd", 40.0 / 60}, {"idle", 18.0 / 60}, {"", 2.0 / 60}}
	if d := cmp.Diff(want, By(after(t), "context")); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
}

func svg(t *testing.T, tree *Tree, title string) string {
	t.Helper()
	var b bytes.Buffer
	if err := tree.WriteSVG(&b, title); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func golden(t *testing.T, name, got string) {
	t.Helper()
	file := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(string(want), got); d != "" {
		t.Errorf("%s differs; -update rewrites it (-want +got):\n%s", file, d)
	}
}

func TestGoldenDrawings(t *testing.T) {
	golden(t, "one.svg", svg(t, NewTree(after(t), nil), "receive softirq"))
	golden(t, "change.svg", svg(t, NewTree(after(t), before(t)), "receive softirq"))
	golden(t, "empty.svg", svg(t, NewTree(stacks(t), nil), "receive softirq"))
}

// wellFormed parses a drawing and returns what it holds besides elements of SVG that draw.
func wellFormed(t *testing.T, text string) {
	t.Helper()
	d := xml.NewDecoder(strings.NewReader(text))
	scripts := 0
	for {
		tok, err := d.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatalf("not well-formed: %v", err)
		}
		e, ok := tok.(xml.StartElement)
		if !ok {
			continue
		}
		if e.Name.Local == "script" {
			scripts++
		}
		for _, a := range e.Attr {
			if strings.HasPrefix(strings.ToLower(a.Name.Local), "on") || a.Name.Local == "href" {
				t.Errorf("attribute %s=%q", a.Name.Local, a.Value)
			}
		}
	}
	if scripts != 1 {
		t.Errorf("%d scripts, want our own", scripts)
	}
}

// TestHostileNamesStayText: names of devices and BPF programs are chosen by others.
func TestHostileNamesStayText(t *testing.T) {
	for _, name := range []string{`</text><script>alert(1)</script>`, `"onload="alert(1)`, `]]><script>`, "a\x00\x1b[31m", "\u202egnp.\u200b", "\xff\xfe", `&lt;`} {
		p := after(t)
		p.Sample[0].Label["device"] = []string{name}
		p.Function[0].Name = name
		text := svg(t, NewTree(p, nil), name)
		wellFormed(t, text)
		if strings.ContainsAny(text, "\x1b\u202e\u200b") {
			t.Errorf("%q: control characters in the drawing", name)
		}
	}
}

func FuzzNamesStayText(f *testing.F) {
	f.Add("eth0", "net_rx_action")
	f.Add(`"><script>`, "]]>")
	f.Fuzz(func(t *testing.T, device, function string) {
		p := after(t)
		p.Sample[0].Label["device"] = []string{device}
		p.Function[0].Name = function
		wellFormed(t, svg(t, NewTree(p, nil), device))
	})
}

// TestBoxesLieInsideTheirCallers checks the drawing itself: widths add up and nothing overlaps.
func TestBoxesLieInsideTheirCallers(t *testing.T) {
	boxes, _ := NewTree(after(t), nil).layout()
	if len(boxes) < 10 {
		t.Fatalf("%d boxes", len(boxes))
	}
	for i, a := range boxes {
		if a.x < margin-1e-6 || a.x+a.w > svgWidth-margin+1e-6 {
			t.Errorf("%s lies outside", a.node.Name)
		}
		for _, b := range boxes[i+1:] {
			if a.depth == b.depth && a.x+a.w > b.x+1e-6 && b.x+b.w > a.x+1e-6 {
				t.Errorf("%s and %s overlap", a.node.Name, b.node.Name)
			}
		}
	}
}

// TestNothingForeign: the drawing works without a network and gives no address away.
func TestNothingForeign(t *testing.T) {
	text := svg(t, NewTree(after(t), nil), "x")
	for _, m := range regexp.MustCompile(`https?://[^"<\s]*`).FindAllString(text, -1) {
		if m != "http://www.w3.org/2000/svg" {
			t.Errorf("refers to %s", m)
		}
	}
}

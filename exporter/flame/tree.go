package flame

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/google/pprof/profile"

	"github.com/rxsteer/rxsteer/collector"
)

// Node is a function, called by its parent. Shares are of one CPU's time: 0.5 is half a CPU, and a
// sum over CPUs may exceed 1.
type Node struct {
	Name     string
	Share    float64 // with all it calls
	Self     float64 // without
	Base     float64 // Share before
	BaseSelf float64
	Children []*Node // by name
}

// Tree is a profile as calls from the outside in: below the root a queue, below it a CPU, then functions.
type Tree struct {
	Root    *Node
	Ticks   int64 // of the profile, not of the base
	Against bool  // there is a base
}

// NewTree adds up a profile, and the one before where base is not nil. Both are of collector.Profile.
func NewTree(p, base *profile.Profile) *Tree {
	t := &Tree{Root: &Node{Name: "receiving"}, Against: base != nil}
	t.Ticks = t.add(p, func(n *Node, share, self float64) { n.Share += share; n.Self += self })
	if base != nil {
		t.add(base, func(n *Node, share, self float64) { n.Base += share; n.BaseSelf += self })
	}
	t.Root.sort()
	return t
}

func (n *Node) sort() {
	slices.SortFunc(n.Children, func(a, b *Node) int { return cmp.Compare(a.Name, b.Name) })
	for _, c := range n.Children {
		c.sort()
	}
}

func (n *Node) child(name string) *Node {
	for _, c := range n.Children {
		if c.Name == name {
			return c
		}
	}
	c := &Node{Name: name}
	n.Children = append(n.Children, c)
	return c
}

// add calls count for every node that a sample passes and returns the ticks.
func (t *Tree) add(p *profile.Profile, count func(n *Node, share, self float64)) (ticks int64) {
	if p.DurationNanos <= 0 {
		return 0
	}
	for _, s := range p.Sample {
		ticks += s.Value[0]
		share := float64(s.Value[1]) / float64(p.DurationNanos)
		path := append([]string{Queue(s), "cpu " + label(s, collector.LabelCPU)}, functions(s)...)
		n := t.Root
		count(n, share, 0)
		for i, name := range path {
			n = n.child(name)
			self := 0.0
			if i == len(path)-1 {
				self = share
			}
			count(n, share, self)
		}
	}
	return ticks
}

// functions of a stack, outermost first.
func functions(s *profile.Sample) []string {
	var out []string
	for _, l := range slices.Backward(s.Location) {
		if len(l.Line) == 0 || l.Line[0].Function == nil {
			out = append(out, fmt.Sprintf("%#x", l.Address))
			continue
		}
		out = append(out, l.Line[0].Function.Name)
	}
	return out
}

func label(s *profile.Sample, name string) string {
	if v := s.Label[name]; len(v) > 0 {
		return v[0]
	}
	return ""
}

// Queue names what a sample's time was spent for: "eth0 rx 3", "tap0 napi 17", "backlog", "after the polls".
func Queue(s *profile.Sample) string {
	name := label(s, collector.LabelDevice)
	if ns := label(s, collector.LabelNetns); ns != "" {
		name += " in netns " + ns
	}
	switch {
	case label(s, collector.LabelPart) == "tail":
		return "after the polls"
	case label(s, collector.LabelQueue) != "":
		return name + " rx " + label(s, collector.LabelQueue)
	case label(s, collector.LabelNAPI) != "":
		return name + " napi " + label(s, collector.LabelNAPI)
	}
	return name
}

// Function is what a function took, whoever called it.
type Function struct {
	Name        string
	Self, Total float64 // share of one CPU; Total counts a recursive function once
	BaseSelf    float64
}

// Top lists the n functions with the most time of their own, now or (against a base) before.
func (t *Tree) Top(n int) []Function {
	sums := map[string]*Function{}
	var walk func(*Node, map[string]bool)
	walk = func(x *Node, above map[string]bool) {
		f := sums[x.Name]
		if f == nil {
			f = &Function{Name: x.Name}
			sums[x.Name] = f
		}
		f.Self += x.Self
		f.BaseSelf += x.BaseSelf
		if !above[x.Name] {
			f.Total += x.Share
			above[x.Name] = true
			defer delete(above, x.Name)
		}
		for _, c := range x.Children {
			walk(c, above)
		}
	}
	for _, q := range t.Root.Children {
		for _, cpu := range q.Children {
			for _, f := range cpu.Children {
				walk(f, map[string]bool{})
			}
		}
	}
	var out []Function
	for _, f := range sums {
		out = append(out, *f)
	}
	slices.SortFunc(out, func(a, b Function) int {
		return cmp.Or(cmp.Compare(max(b.Self, b.BaseSelf), max(a.Self, a.BaseSelf)), cmp.Compare(a.Name, b.Name))
	})
	return out[:min(n, len(out))]
}

// Part is the samples that have a value of a label.
type Part struct {
	Value string
	Ratio float64 // of all
}

// By splits a profile by a label, the most first.
func By(p *profile.Profile, name string) []Part {
	sums := map[string]int64{}
	var all int64
	for _, s := range p.Sample {
		sums[label(s, name)] += s.Value[0]
		all += s.Value[0]
	}
	var out []Part
	for v, n := range sums {
		if n > 0 {
			out = append(out, Part{v, float64(n) / float64(all)})
		}
	}
	slices.SortFunc(out, func(a, b Part) int {
		return cmp.Or(cmp.Compare(b.Ratio, a.Ratio), cmp.Compare(a.Value, b.Value))
	})
	return out
}

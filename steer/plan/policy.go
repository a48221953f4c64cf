package plan

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/rxsteer/rxsteer/internal/cpuset"
	"github.com/rxsteer/rxsteer/internal/host/knob"
	"github.com/rxsteer/rxsteer/internal/strictyaml"
)

// Policy bounds what a plan may contain. The zero Policy allows everything that the ceilings in code allow.
// Its YAML form is a file of its own (plan --policy) and a part of the agent's configuration;
// who decodes it as a part of something else calls Check.
type Policy struct {
	// CPUs limits where work is placed; empty means every usable CPU.
	CPUs cpuset.Set `yaml:"-"`
	// List is CPUs as it is written ("0-3,8"); Check reads it.
	List string `yaml:"cpus"`
	// Devices limits which interfaces are set; empty means all that are asked for. Settings of the host are
	// not a device's.
	Devices []string `yaml:"devices"`
	// Knobs limits what is set; empty means all. Never names what is not set although Knobs allows it.
	Knobs []knob.Kind `yaml:"knobs"`
	Never []knob.Kind `yaml:"never"`
	// Risks are those a plan may take beside none; empty means all.
	Risks []Risk `yaml:"risks"`
	// Ranges bound numbers further than the ceilings in code do.
	Ranges []Range `yaml:"ranges"`
	// Flows is the number of concurrent flows where the user or a
	// measurement knows it, LongFlows that they live long and their readers are pinned:
	// only then does RFS follow RPS.
	Flows     int  `yaml:"flows"`
	LongFlows bool `yaml:"long_flows"`
}

// Range bounds a number: of a setting that is one, or of one field of a group ("rx-usecs" of coalesce).
type Range struct {
	Knob  knob.Kind `yaml:"knob"`
	Field string    `yaml:"field"`
	Min   *int64    `yaml:"min"` // nil: no bound
	Max   *int64    `yaml:"max"`
}

// ParsePolicy reads a policy file strictly: unknown keys, settings and senseless ranges are errors that say
// "name:line:column: what".
func ParsePolicy(name string, data []byte) (*Policy, error) {
	p := &Policy{}
	doc, err := strictyaml.Decode(name, "policy", data, p)
	if err != nil {
		return nil, err
	}
	if err := p.Check(); err != nil {
		path := "$"
		if fe, ok := errors.AsType[*FieldError](err); ok {
			path += "." + fe.Field
		}
		return nil, doc.At(path, err)
	}
	return p, nil
}

// Check completes a policy that was decoded, and refuses one that says something no plan could follow. The error is a *FieldError
// whose Field is the YAML path in the policy ("ranges[0].field").
func (p *Policy) Check() error {
	if p.List != "" {
		s, err := cpuset.ParseList(p.List)
		if err != nil {
			return &FieldError{"cpus", err}
		}
		p.CPUs = s
	}
	for _, l := range []struct {
		name string
		list []knob.Kind
	}{{"knobs", p.Knobs}, {"never", p.Never}} {
		for i, k := range l.list {
			if _, ok := rules[k]; !ok {
				return wrong(fmt.Sprintf("%s[%d]", l.name, i), "%q is not a setting a plan can hold; those are %s", k, settable())
			}
		}
	}
	for i, r := range p.Risks {
		switch r {
		case NoRisk, Reorder, Pause, Flap:
		default:
			return wrong(fmt.Sprintf("risks[%d]", i), "%q is none of none, reorder, pause, flap", r)
		}
	}
	for i, d := range p.Devices {
		if d == "" || knob.Target(d).Device() != d {
			return wrong(fmt.Sprintf("devices[%d]", i), "%q is no interface name", d)
		}
	}
	for i, r := range p.Ranges {
		at := fmt.Sprintf("ranges[%d]", i)
		rule, ok := rules[r.Knob]
		switch {
		case !ok:
			return wrong(at+".knob", "%q is not a setting a plan can hold; those are %s", r.Knob, settable())
		case rule.fields != nil && r.Field == "":
			return wrong(at, "%s is a group: field has to name one of %s", r.Knob, fieldNames(rule))
		case rule.fields != nil:
			if f, ok := rule.fields[r.Field]; !ok || f.flag {
				return wrong(at+".field", "%s has no number %q; those are %s", r.Knob, r.Field, fieldNames(rule))
			}
		case r.Field != "":
			return wrong(at+".field", "%s is no group", r.Knob)
		case !rule.number():
			return wrong(at+".knob", "%s is no number: it has no range", r.Knob)
		}
		switch {
		case r.Min == nil && r.Max == nil:
			return wrong(at, "has neither min nor max")
		case r.Min != nil && r.Max != nil && *r.Min > *r.Max:
			return wrong(at+".min", "%d is above max %d", *r.Min, *r.Max)
		}
	}
	if p.Flows < 0 {
		return wrong("flows", "%d flows cannot be", p.Flows)
	}
	return nil
}

func (p *Policy) allows(k knob.Kind) bool {
	return (len(p.Knobs) == 0 || slices.Contains(p.Knobs, k)) && !slices.Contains(p.Never, k)
}

// device reports whether an interface may be set.
func (p *Policy) device(name string) bool {
	return len(p.Devices) == 0 || slices.Contains(p.Devices, name)
}

// clamp is the nearest number to n in the policy's range and below the ceiling in code.
func (p *Policy) clamp(k knob.Kind, field string, n int64) int64 {
	if r, ok := rules[k]; ok {
		c := r.ceiling
		if f, ok := r.fields[field]; ok {
			c = f.ceiling
		}
		if c > 0 {
			n = min(n, c)
		}
	}
	for _, r := range p.Ranges {
		if r.Knob != k || r.Field != field {
			continue
		}
		if r.Min != nil {
			n = max(n, *r.Min)
		}
		if r.Max != nil {
			n = min(n, *r.Max)
		}
	}
	return n
}

// Refuses says why the policy does not allow a change, "" that it does.
func (p *Policy) Refuses(c Change) string {
	dev := c.Target.Device()
	switch {
	case !p.allows(c.Knob):
		return fmt.Sprintf("the policy does not allow %s", c.Knob)
	case dev != "" && !p.device(dev):
		return fmt.Sprintf("the policy does not allow %s to be set", dev)
	}
	if c.Risk != NoRisk && c.Risk != "" && len(p.Risks) > 0 && !slices.Contains(p.Risks, c.Risk) {
		return fmt.Sprintf("it takes risk %s, which was not granted", c.Risk)
	}
	r := rules[c.Knob]
	if r.set && !p.CPUs.IsEmpty() {
		var text string
		if c.To.Decode(&text) == nil {
			if s, err := cpuset.ParseList(text); err == nil && !s.SubsetOf(p.CPUs) {
				return fmt.Sprintf("the policy does not allow cpu %s", s.Minus(p.CPUs))
			}
		}
	}
	for _, b := range p.Ranges {
		if b.Knob != c.Knob {
			continue
		}
		n, ok := number(c.To, b.Field)
		if was, had := number(c.From, b.Field); !ok || had && was == n {
			continue // not touched
		}
		if b.Min != nil && n < *b.Min || b.Max != nil && n > *b.Max {
			return fmt.Sprintf("%d is outside of what the policy allows for %s", n, wordOf(b))
		}
	}
	return ""
}

func wordOf(r Range) string {
	s := string(r.Knob)
	if r.Field != "" {
		s = r.Field + " of " + s
	}
	switch {
	case r.Min == nil:
		return fmt.Sprintf("%s (up to %d)", s, *r.Max)
	case r.Max == nil:
		return fmt.Sprintf("%s (from %d)", s, *r.Min)
	}
	return fmt.Sprintf("%s (%d…%d)", s, *r.Min, *r.Max)
}

// number is a value that is one, or a field of a group.
func number(v knob.Value, field string) (n int64, ok bool) {
	if field == "" {
		return n, v.Decode(&n) == nil
	}
	var g map[string]any
	if v.Decode(&g) != nil {
		return 0, false
	}
	return integer(g[field])
}

func settable() string { return words(slices.Sorted(maps.Keys(rules))) }

func fieldNames(r rule) string {
	var out []string
	for _, k := range slices.Sorted(maps.Keys(r.fields)) {
		if !r.fields[k].flag {
			out = append(out, k)
		}
	}
	return words(out)
}

func words[T ~string](list []T) string {
	var b []byte
	for i, s := range list {
		if i > 0 {
			b = append(b, ", "...)
		}
		b = append(b, s...)
	}
	return string(b)
}

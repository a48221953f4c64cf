package plan

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"

	"github.com/rxsteer/rxsteer/internal/cpuset"
	"github.com/rxsteer/rxsteer/internal/host/knob"
	"github.com/rxsteer/rxsteer/steer/diagnose"
)

// YAML is the plan as a file: the fields of the JSON form under a line that says what it is.
func (p *Plan) YAML() ([]byte, error) {
	j, err := json.Marshal(p)
	if err != nil {
		return nil, fmt.Errorf("encode plan: %w", err)
	}
	y, err := yaml.JSONToYAML(j)
	if err != nil {
		return nil, fmt.Errorf("encode plan: %w", err)
	}
	return append([]byte("# rxsteer plan: read it, edit it, then: rxsteer apply FILE\n"), y...), nil
}

// The file as it is decoded; its names are those of the JSON form.
type (
	file struct {
		Version  int          `yaml:"version"`
		Identity fileIdentity `yaml:"identity"`
		Goal     Goal         `yaml:"goal"`
		Changes  []fileChange `yaml:"changes"`
		Reasons  []string     `yaml:"reasons"`
	}
	fileIdentity struct {
		BootID  string       `yaml:"boot_id"`
		Netns   uint64       `yaml:"netns"`
		Kernel  string       `yaml:"kernel"`
		Devices []fileDevice `yaml:"devices"`
	}
	fileDevice struct {
		Name     string `yaml:"name"`
		IfIndex  int    `yaml:"ifindex"`
		Bus      string `yaml:"bus"`
		Driver   string `yaml:"driver"`
		RXQueues int    `yaml:"rx_queues"`
		TXQueues int    `yaml:"tx_queues"`
		Table    int    `yaml:"table_size"`
	}
	fileChange struct {
		Knob     knob.Kind     `yaml:"knob"`
		Target   knob.Target   `yaml:"target"`
		From     any           `yaml:"from"`
		To       any           `yaml:"to"`
		Findings []diagnose.ID `yaml:"findings"`
		Risk     Risk          `yaml:"risk"`
		Command  string        `yaml:"command"`
		Undo     string        `yaml:"undo"`
		Why      string        `yaml:"why"`
		Expect   string        `yaml:"expect"`
	}
)

// Parse reads a plan file strictly: unknown fields, settings, shapes and CPUs are errors that
// say "name:line:column: what" and show the line. cpus are the CPUs online on the host
// it is for; empty does not check them.
func Parse(name string, data []byte, cpus cpuset.Set) (p *Plan, err error) {
	if err := tame(name, data); err != nil {
		return nil, err
	}
	// The YAML library panics on some malformed text; for the reader that is one more bad file.
	defer func() {
		if v := recover(); v != nil {
			p, err = nil, fmt.Errorf("%s: not YAML a plan can be read from: %v", name, v)
		}
	}()
	tree, err := parser.ParseBytes(data, 0)
	if err != nil {
		return nil, located(name, err)
	}
	if len(tree.Docs) != 1 || tree.Docs[0].Body == nil {
		return nil, fmt.Errorf("%s: want one YAML document that holds a plan, found %d", name, docs(tree))
	}
	var f file
	if err := yaml.NewDecoder(bytes.NewReader(data), yaml.Strict()).Decode(&f); err != nil {
		return nil, located(name, err)
	}
	at := func(err error, path string) error { return place(name, tree, path, err) }
	switch {
	case f.Version == 0:
		return nil, at(errors.New("version is missing: this is no plan file"), "$")
	case f.Version > Version:
		return nil, at(fmt.Errorf("version %d is newer than this rxsteer reads (%d): use the rxsteer that wrote it", f.Version, Version), "$.version")
	case f.Version < 0:
		return nil, at(fmt.Errorf("version %d does not exist", f.Version), "$.version")
	}
	switch f.Goal {
	case Auto, Throughput, Latency, Balanced:
	default:
		return nil, at(fmt.Errorf("goal %q is none of auto, throughput, latency, balanced", f.Goal), "$.goal")
	}
	p = &Plan{Version: f.Version, Goal: f.Goal, Changes: []Change{}, Reasons: f.Reasons,
		Identity: Identity{BootID: f.Identity.BootID, Netns: f.Identity.Netns, Kernel: f.Identity.Kernel, Devices: []Device{}}}
	for _, d := range f.Identity.Devices {
		p.Identity.Devices = append(p.Identity.Devices, Device(d))
	}
	seen := map[knob.Ref]int{}
	for i, c := range f.Changes {
		path := fmt.Sprintf("$.changes[%d]", i)
		ch := Change{Knob: c.Knob, Target: c.Target, Findings: c.Findings, Risk: c.Risk, Command: c.Command, Undo: c.Undo, Why: c.Why, Expect: c.Expect}
		if ch.From, err = value(c.From); err != nil {
			return nil, at(fmt.Errorf("from: %w", err), path+".from")
		}
		if ch.To, err = value(c.To); err != nil {
			return nil, at(fmt.Errorf("to: %w", err), path+".to")
		}
		if err := Check(ch, cpus); err != nil {
			if fe, ok := errors.AsType[*FieldError](err); ok {
				path += "." + fe.Field
			}
			return nil, at(err, path)
		}
		if dev := ch.Target.Device(); dev != "" && !p.has(dev) {
			return nil, at(fmt.Errorf("target: identity does not name device %s", dev), path+".target")
		}
		if j, dup := seen[ch.Ref()]; dup {
			return nil, at(fmt.Errorf("%s is already change %d of this plan", ch.Ref(), j+1), path+".target")
		}
		seen[ch.Ref()] = i
		p.Changes = append(p.Changes, ch)
	}
	return p, nil
}

// Bounds on what is handed to the YAML library, whose time and stack grow with them.
const (
	maxFile  = 4 << 20 // a plan of 4096 vectors is about 2 MiB
	maxLine  = 64 << 10
	maxDepth = 32 // of brackets and dashes on one line
)

// tame refuses text that is no plan and would cost the YAML library much.
func tame(name string, data []byte) error {
	if len(data) > maxFile {
		return fmt.Errorf("%s: %d bytes is no plan (at most %d)", name, len(data), maxFile)
	}
	if i := bytes.IndexByte(data, 0); i >= 0 {
		return fmt.Errorf("%s:%d: holds a zero byte: not a text file", name, 1+bytes.Count(data[:i], []byte{'\n'}))
	}
	n := 0
	for line := range bytes.Lines(data) {
		n++
		if len(line) > maxLine {
			return fmt.Errorf("%s:%d: a line of %d bytes is no plan's (at most %d)", name, n, len(line), maxLine)
		}
		indent := len(line) - len(bytes.TrimLeft(line, " -?\t"))
		if indent > 2*maxDepth || bytes.Count(line, []byte{'['}) > maxDepth || bytes.Count(line, []byte{'{'}) > maxDepth {
			return fmt.Errorf("%s:%d: nested deeper than any plan", name, n)
		}
	}
	return nil
}

func (p *Plan) has(device string) bool {
	for _, d := range p.Identity.Devices {
		if d.Name == device {
			return true
		}
	}
	return false
}

func docs(f *ast.File) int {
	n := 0
	for _, d := range f.Docs {
		if d.Body != nil {
			n++
		}
	}
	return n
}

// value turns a decoded YAML value into a setting's value. A missing one is an error.
func value(v any) (knob.Value, error) {
	if v == nil {
		return knob.Value{}, errors.New("is missing")
	}
	j, err := json.Marshal(v)
	if err != nil {
		return knob.Value{}, fmt.Errorf("%v is no value of a setting", v)
	}
	var out knob.Value
	if err := out.UnmarshalJSON(j); err != nil {
		return knob.Value{}, err
	}
	return out, nil
}

// located puts the file name before an error of the YAML library and shows the line.
func located(name string, err error) error {
	var ye yaml.Error
	if !errors.As(err, &ye) || ye.GetToken() == nil {
		return fmt.Errorf("%s: %s", name, strings.TrimSpace(err.Error()))
	}
	pos := ye.GetToken().Position
	text := yaml.FormatError(err, false, true)
	if _, source, ok := strings.Cut(text, "\n"); ok {
		return fmt.Errorf("%s:%d:%d: %s\n%s", name, pos.Line, pos.Column, ye.GetMessage(), strings.TrimRight(source, "\n "))
	}
	return fmt.Errorf("%s:%d:%d: %s", name, pos.Line, pos.Column, ye.GetMessage())
}

// place puts file, line and column before an error about the value at a path, or about the
// nearest enclosing one that is there.
func place(name string, tree *ast.File, path string, err error) error {
	for p := path; ; {
		yp, perr := yaml.PathString(p)
		if perr == nil {
			if n, nerr := yp.FilterFile(tree); nerr == nil && n != nil && n.GetToken() != nil {
				pos := n.GetToken().Position
				return fmt.Errorf("%s:%d:%d: %w", name, pos.Line, pos.Column, err)
			}
		}
		i := strings.LastIndexAny(p, ".[")
		if i <= 0 {
			return fmt.Errorf("%s: %w", name, err)
		}
		p = p[:i]
	}
}

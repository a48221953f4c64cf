package plan

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/goccy/go-yaml"

	"github.com/rxsteer/rxsteer/internal/cpuset"
	"github.com/rxsteer/rxsteer/internal/host/knob"
	"github.com/rxsteer/rxsteer/internal/host/nic"
	"github.com/rxsteer/rxsteer/internal/strictyaml"
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
		Support  nic.Level     `yaml:"support"`
	}
)

// Parse reads a plan file strictly: unknown fields, settings, shapes and CPUs are errors that
// say "name:line:column: what" and show the line. cpus are the CPUs online on the host
// it is for; empty does not check them.
func Parse(name string, data []byte, cpus cpuset.Set) (p *Plan, err error) {
	var f file
	doc, err := strictyaml.Decode(name, "plan", data, &f)
	if err != nil {
		return nil, err
	}
	at := func(err error, path string) error { return doc.At(path, err) }
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
		ch := Change{Knob: c.Knob, Target: c.Target, Findings: c.Findings, Risk: c.Risk, Command: c.Command, Undo: c.Undo, Why: c.Why, Expect: c.Expect, Support: c.Support}
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

func (p *Plan) has(device string) bool {
	for _, d := range p.Identity.Devices {
		if d.Name == device {
			return true
		}
	}
	return false
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

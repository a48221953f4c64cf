package plan

import (
	"github.com/rxsteer/rxsteer/internal/host/knob"
	"github.com/rxsteer/rxsteer/internal/host/nic"
	"github.com/rxsteer/rxsteer/steer/diagnose"
)

// Version is the schema of a plan file; readers refuse newer ones.
const Version = 1

// Goal says what a plan is for.
type Goal string

const (
	Auto       Goal = "auto"
	Throughput Goal = "throughput"
	Latency    Goal = "latency"
	Balanced   Goal = "balanced"
)

// Risk says what a change does to traffic while it is being made.
type Risk string

const (
	NoRisk  Risk = "none"
	Reorder Risk = "reorder" // packets of one flow may overtake each other for a moment
	Pause   Risk = "pause"   // the device stops receiving for milliseconds
	Flap    Risk = "flap"    // the link goes down for seconds
)

// Plan is an ordered list of changes and what it was made for.
type Plan struct {
	Version  int      `json:"version"`
	Identity Identity `json:"identity"`
	Goal     Goal     `json:"goal"`
	Changes  []Change `json:"changes"`
	// Reasons say why there is nothing (more) to do, and what was left out and why.
	Reasons []string `json:"reasons,omitempty"`
}

// Identity is what a plan was made for; apply refuses any other.
type Identity struct {
	BootID  string   `json:"boot_id"`
	Netns   uint64   `json:"netns"`
	Kernel  string   `json:"kernel"`
	Devices []Device `json:"devices"` // those that changes touch, by name
}

// Device is the identity of one interface.
type Device struct {
	Name     string `json:"name"`
	IfIndex  int    `json:"ifindex"`
	Bus      string `json:"bus,omitempty"`
	Driver   string `json:"driver,omitempty"`
	RXQueues int    `json:"rx_queues"`
	TXQueues int    `json:"tx_queues"`
	Table    int    `json:"table_size,omitempty"`
}

// Change is one setting of one target.
type Change struct {
	Knob     knob.Kind     `json:"knob"`
	Target   knob.Target   `json:"target"`
	From     knob.Value    `json:"from"`
	To       knob.Value    `json:"to"`
	Findings []diagnose.ID `json:"findings"`
	Risk     Risk          `json:"risk"`
	Command  string        `json:"command"` // what a person types for the same effect
	Undo     string        `json:"undo"`
	Why      string        `json:"why"`
	Expect   string        `json:"expect,omitempty"` // what should be measured afterwards
	// Support is how far the setting was tried on this driver: "lab", "fake", "docs" or "-"; apply asks for
	// --allow untested below fake. Of a plan file it is for the reader: apply looks it up itself.
	Support nic.Level `json:"support,omitempty"`
}

// Ref is the setting that is changed.
func (c Change) Ref() knob.Ref { return knob.Ref{Knob: c.Knob, Target: c.Target} }
